"""What a closed-form fit and its application cost: bytes, operations, minutes and price, from 10^6 rows on.

python benchmarks/cost_model.py                       # the table of docs/reliability.md
python benchmarks/cost_model.py --measure             # rates of one core here, instead of those below
python benchmarks/cost_model.py --check 1e6 1e7 1e8   # predicted against measured, on simulated rows

A fit touches every number a few times (it is read, converted, centred, hashed) and takes half a product of
d² multiply-adds a row; a correction touches every number a few times. Nothing else grows with the rows. So
three rates of one core say what it costs, and storage adds reading the table twice and writing it once.
"""

import argparse
import os
import time
from dataclasses import dataclass

os.environ.setdefault("OMP_NUM_THREADS", "1")

GIB = 2.0**30


@dataclass(frozen=True)
class Rates:
    """Seconds of one core for a number in a fit, for a multiply-add of its product, for a corrected number.

    ``storage`` is what one worker reads or writes in a second, in bytes, while others do the same.
    """

    fit_number: float
    multiply_add: float
    corrected_number: float
    storage: float = 200e6


@dataclass(frozen=True)
class Cost:
    """What correcting a table takes; ``dollars`` is for cores, storage is usually rented by the month."""

    table_bytes: float
    operations: float
    fit_core_seconds: float
    apply_core_seconds: float
    fit_minutes: float
    apply_minutes: float
    dollars: float


# One core of the machine of docs/performance.md, while others computed on it, by --measure.
RATES = Rates(fit_number=9.6e-9, multiply_add=4.1e-11, corrected_number=1.5e-9)


def fit_seconds(rows, features, rates):
    """Return the core seconds that a fit computes for; half of a symmetric product is enough."""
    return rows * (features * rates.fit_number + features * (features + 1) / 2 * rates.multiply_add)


def apply_seconds(rows, features, rates):
    """Return the core seconds that a correction computes for."""
    return rows * features * rates.corrected_number


def cost(rows, features, workers, rates=RATES, *, efficiency=0.85, core_hour=0.05, item=4):
    """Return what a fit to all rows and the correction of all rows cost on one-core workers.

    Parameters
    ----------
    rows, features, workers : int
    rates : Rates
    efficiency : float
        Share of the workers' time that is work (benchmarks/cluster.py).
    core_hour : float
        Price of one core for an hour.
    item : int
        Bytes of a number.
    """
    table = float(rows) * features * item
    fit = fit_seconds(rows, features, rates) + table / rates.storage
    apply = apply_seconds(rows, features, rates) + 2 * table / rates.storage
    together = workers * efficiency
    return Cost(
        table_bytes=table,
        operations=rows * (features * (features + 1.0) + 4.0 * features),
        fit_core_seconds=fit,
        apply_core_seconds=apply,
        fit_minutes=fit / together / 60,
        apply_minutes=apply / together / 60,
        dollars=(fit + apply) / efficiency / 3600 * core_hour,
    )


def size(n_bytes):
    """Return bytes in words."""
    for unit, step in (("TiB", 2.0**40), ("GiB", 2.0**30)):
        if n_bytes >= step:
            return f"{n_bytes / step:.3g} {unit}"
    return f"{n_bytes / 2.0**20:.3g} MiB"


def duration(minutes):
    """Return minutes in words."""
    if minutes < 1:
        return f"{60 * minutes:.2g} s"
    return f"{minutes:.3g} min" if minutes < 120 else f"{minutes / 60:.3g} h"


def table(features, rates=RATES):
    """Yield a Markdown table: one machine of 16 cores up to 10^8 rows, then 64 and 256 workers."""
    yield "| rows | table | operations | workers | fit | apply | cores |"
    yield "|---|---|---|---|---|---|---|"
    for power, workers in ((6, 16), (7, 16), (8, 16), (9, 64), (10, 256)):
        c = cost(10**power, features, workers, rates)
        name = f"10{'⁰¹²³⁴⁵⁶⁷⁸⁹'[power]}" if power < 10 else "10¹⁰"
        price = f"${c.dollars:.2f}" if c.dollars >= 0.01 else "< $0.01"
        cells = [name, size(c.table_bytes), f"{c.operations:.2g}", workers, duration(c.fit_minutes)]
        yield f"| {' | '.join(map(str, cells))} | {duration(c.apply_minutes)} | {price} |"


def seconds_of(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def simulated(rows, features):
    """Return processor seconds of a fit and of a correction of simulated rows, and of making the rows."""
    import cluster
    from mgpa.tables.scale import batches

    parts = cluster.simulated_parts(int(rows), features)
    made = seconds_of(lambda: [len(batch) for part in parts for batch in batches(part)])
    kept = []
    fit = seconds_of(lambda: kept.append(cluster.fit_simulated(None, parts)))
    apply = seconds_of(lambda: [cluster.correct_part(kept[0], part) for part in parts])
    return fit - made, apply - made


def measured(rows=400_000):
    """Return the rates of one core of this machine, from fits to 64 and to 512 features."""
    simulated(10_000, 64)  # imports
    (narrow, apply), (wide, wide_apply) = simulated(rows, 64), simulated(rows // 4, 512)
    a, b = (
        narrow / rows / 64,
        wide / (rows // 4) / 512,
    )  # seconds a number: fit_number + (d + 1) / 2 multiply_add
    multiply_add = (b - a) / ((512 + 1) / 2 - (64 + 1) / 2)
    number = a - (64 + 1) / 2 * multiply_add
    return Rates(number, multiply_add, max(apply / rows / 64, wide_apply / (rows // 4) / 512))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--features", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--check", type=float, nargs="+", default=[], metavar="ROWS")
    options = parser.parse_args()
    rates = measured() if options.measure or options.check else RATES
    print(rates)
    for rows in options.check:
        fit, apply = simulated(rows, 64)
        told = fit_seconds(rows, 64, rates), apply_seconds(rows, 64, rates)
        print(
            f"{rows:.0e} rows x 64: fit {fit:.1f} s, predicted {told[0]:.1f}; "
            f"apply {apply:.1f} s, predicted {told[1]:.1f}",
            flush=True,
        )
    for features in options.features:
        print(f"\n{features} features\n", *table(features, rates), sep="\n")


if __name__ == "__main__":
    main()
