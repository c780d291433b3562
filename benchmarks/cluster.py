"""Dask on one machine: how much faster fit and apply become with more workers, with and without files.

python benchmarks/cluster.py --workers 2 4 8 --rows 1e7 --features 512
python benchmarks/cluster.py --workers 1 2 --rows 2e5 --file-rows 1e5 --features 64    # a try

Simulated rows are made by the workers, so that neither disk nor network limits: each part draws one batch and
repeats it, scaled. They are read like the parts of any table. Then come files with fewer rows, which the
workers write, fit from and correct. Efficiency is rows per second and worker, as a share of that with the
fewest workers. The last line has the same share for a plain matrix product: the limit that is set by cores
that share caches, memory and a power budget.
"""

import argparse
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread a worker: the workers are what is counted

import numpy as np

PART = 65_536  # rows


@dataclass(frozen=True)
class SimulatedPart:
    """Rows that exist only while they are looked at; what a file's part offers to a fit."""

    number: int
    n_rows: int
    n_features: int

    @property
    def block_rows(self):
        from mgpa.tables.files import block_rows

        return block_rows(4 * self.n_features)

    def batches(self, max_rows):
        from mgpa.tables import Table

        rng = np.random.default_rng(self.number)
        size = min(self.n_rows, max_rows)
        X = rng.normal(size=(size, self.n_features)).astype(np.float32)
        source = rng.integers(2, size=size)
        X[:, :3] += source[:, None]
        for start in range(0, self.n_rows, size):
            here, ids = min(size, self.n_rows - start), np.full(size, -1)
            if self.number == start == 0:  # rows 0 and 1, 2 and 3, … show one event each
                n_pairs = min(200, here // 2)
                ids[: 2 * n_pairs] = np.repeat(np.arange(n_pairs), 2)
                source = source.copy()
                source[: 2 * n_pairs] = np.tile([0, 1], n_pairs)
                X[1 : 2 * n_pairs : 2] = X[0 : 2 * n_pairs : 2] + 0.1 * X[1 : 2 * n_pairs : 2]
                X[1 : 2 * n_pairs : 2, :3] += 1.0
            scaled = X[:here] * np.float32(1.0 + start / 2**24)
            yield Table(scaled, source=source[:here], pair_id=ids[:here])


def simulated_parts(n_rows, n_features):
    bounds = [*range(0, n_rows, PART), n_rows]
    return [SimulatedPart(i, b - a, n_features) for i, (a, b) in enumerate(pairwise(bounds))]


def correct_part(m, part):
    """Correct a part and keep nothing; return its number of rows."""
    from mgpa.tables import apply_to_table
    from mgpa.tables.scale import batches

    return sum(len(apply_to_table(m, batch, force=True)) for batch in batches(part))


def write_part(writer, i, part):
    from mgpa.tables.scale import batches

    writer.write(i, batches(part))


def gram_rate(n_features, seconds):
    """Return how many Gram products of 4096 rows one core makes in a second, all workers being at it."""
    X = np.random.default_rng(0).normal(size=(4096, n_features))
    X.T @ X
    start, n = time.perf_counter(), 0
    while time.perf_counter() < start + seconds:
        X.T @ X
        n += 1
    return n / (time.perf_counter() - start)


def fit_simulated(client, parts):
    import mgpa
    from mgpa.tables.fitting import merged, summarise
    from mgpa.tables.scale import reduce_parts

    jobs = [partial(summarise, mgpa.ClosedFormMGPA(), part, None) for part in parts]
    model, _ = reduce_parts(jobs, merged, client=client)
    return model.to_map()


def apply_simulated(client, m, parts):
    the_map = client.scatter(m, broadcast=True, hash=False)  # or one map twice may be released in between
    return sum(client.gather(client.map(correct_part, [the_map] * len(parts), parts, pure=False)))


def write_files(client, path, parts):
    from mgpa.tables import TableWriter

    like = next(iter(parts[0].batches(1)))
    with TableWriter(path, like, rows=[part.n_rows for part in parts]) as writer:
        client.gather([client.submit(write_part, writer, i, p, pure=False) for i, p in enumerate(parts)])


class Measurements:
    """Seconds by what was done and by how many; a line a measurement, and nothing begun that cannot end."""

    def __init__(self, minutes):
        self.end, self.seconds = time.perf_counter() + 60 * minutes, {}

    def measure(self, name, n_workers, work):
        earlier = self.seconds.setdefault(name, {})
        expected = max((s * k / n_workers for k, s in earlier.items()), default=0.0)
        if time.perf_counter() + expected > self.end:
            print(f"{name}, {n_workers} workers: skipped, would take about {expected:.0f} s more", flush=True)
            return None
        start = time.perf_counter()
        result = work()
        earlier[n_workers] = time.perf_counter() - start
        print(f"{name}, {n_workers} workers: {earlier[n_workers]:.2f} s", flush=True)
        return result

    def table(self, rows, aim):
        print(
            f"\n{'':<24}{'rows':>12}{'workers':>9}{'time':>11}{'rows/s':>12}{'efficiency':>12}  (aim {aim})"
        )
        for name, seconds in self.seconds.items():
            fewest = min(seconds, default=0)
            for k, s in sorted(seconds.items()):
                share = seconds[fewest] * fewest / (s * k)
                speed = f"{s:>9.2f} s{rows[name] / s:>12.3g}"
                print(f"{name:<24}{rows[name]:>12}{k:>9}{speed}{100 * share:>10.0f} %")


def run(workers, n_rows, n_file_rows, n_features, folder, minutes):
    from distributed import Client, LocalCluster

    import mgpa
    from mgpa.tables import apply_to_file, fit_table

    taken, rates = Measurements(minutes), {}
    parts, to_write = (simulated_parts(n, n_features) for n in (n_rows, n_file_rows))
    source, m = folder / "rows", None
    for k in sorted(workers, reverse=True):  # the quickest first: what does not fit in is known in time
        local = LocalCluster(
            n_workers=k, threads_per_worker=1, dashboard_address=None, memory_limit=0, local_directory=folder
        )
        with local as cluster, Client(cluster) as client:
            client.wait_for_workers(k)
            products = [client.submit(gram_rate, n_features, 2.0, pure=False) for _ in range(k)]
            rates[k] = float(np.mean(client.gather(products)))
            warm = simulated_parts(k * 4096, n_features)
            m = fit_simulated(client, warm)  # imports, first pages
            apply_simulated(client, m, warm)
            m = taken.measure("fit, simulated", k, partial(fit_simulated, client, parts)) or m
            taken.measure("apply, simulated", k, partial(apply_simulated, client, m, parts))
            if not to_write:
                continue
            if not source.exists():
                taken.measure("write files", k, partial(write_files, client, source, to_write))
            if source.exists():
                fit = partial(fit_table, mgpa.ClosedFormMGPA(), source, client=client)
                taken.measure("fit, from files", k, fit)
                out = folder / f"out{k}"
                apply = partial(apply_to_file, m, source, out, client=client)
                taken.measure("apply, file to file", k, apply)
                shutil.rmtree(out, ignore_errors=True)
    rows = {name: n_rows if "simulated" in name else n_file_rows for name in taken.seconds}
    taken.table(rows, "85 %")
    shares = ", ".join(f"{k} workers {100 * rates[k] / rates[min(rates)]:.0f} %" for k in sorted(rates))
    print(f"bare Gram products in float64, efficiency of the machine itself: {shares}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rows", type=float, default=1e6, help="simulated rows")
    parser.add_argument(
        "--file-rows", type=float, default=None, help="rows in files, 0: none; a fifth of --rows"
    )
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--folder", type=Path, default=None, help="where files go for a while")
    parser.add_argument("--minutes", type=float, default=5.5, help="begin nothing that would end later")
    options = parser.parse_args()
    n_rows = int(options.rows)
    n_file_rows = n_rows // 5 if options.file_rows is None else int(options.file_rows)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        run(options.workers, n_rows, n_file_rows, options.features, Path(folder), options.minutes)


if __name__ == "__main__":
    main()
