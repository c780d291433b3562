"""How often is an audit wrong? Error rates of "readable", "kept" and "improved", and coverage of intervals.

``winners`` compares the methods that quick and full audits of the same table name best; ``memory`` measures
one large audit.

python benchmarks/calibration_audit.py readable --audits 400 --jobs 16
python benchmarks/calibration_audit.py readable --audits 60 --cells "nested n=64"
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from datetime import date
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import norm

import mgpa
from mgpa.audit.bootstrap import contrast, estimate
from mgpa.audit.metrics import METRICS
from mgpa.audit.ranks import between_auroc
from mgpa.audit.verdict import ranking
from mgpa.tables import Table, assign_roles, simulate_table

WINNERS = ["leace", "closed_form_mgpa", "mgpa", "splince"]


def crossed_table(seed: int, n_people: int, offset: float, events: int = 16, d: int = 8) -> Table:
    """Return rows without a source effect in which every person has an offset in every session."""
    rng = np.random.default_rng(seed)
    person, source = np.repeat(np.arange(n_people), 2 * events), np.tile(["dry", "wet"], n_people * events)
    label = np.arange(len(person)) // 2 % 2
    X = (
        rng.normal(size=(len(person), d))
        + offset * rng.normal(size=(n_people, 2, d))[person, (source == "wet").astype(int)]
    )
    X[:, 0] += label
    return Table(X, source=source, participant=person, label=label)


def nested_table(
    seed: int,
    n_units: int = 64,
    rows: int = 12,
    d: int = 10,
    shift: float = 1.5,
    association: float = 0.75,
    trait: float = 1.0,
    travelled: int = 0,
) -> Table:
    """Return units with one source and label each, which go together; the first ones travelled.

    A source moves rows by ``shift``, units differ by traits of this standard deviation.
    """
    rng = np.random.default_rng(seed)
    direction, task = rng.normal(size=(2, d))
    direction *= shift * np.sqrt(d) / 2 / np.linalg.norm(direction)
    parts = {name: [] for name in ("X", "source", "participant", "label", "pair_id")}
    event = 0
    for unit in range(n_units):
        own = unit % 2
        label = int(rng.uniform() < (1 - association if own else association))
        base = trait / 2 * rng.normal(size=d) + 0.8 * label * task
        for _ in range(rows):
            common = base + rng.normal(size=d)
            for source in (0, 1) if unit < travelled else (own,):
                parts["X"].append(common + source * direction + 0.2 * rng.normal(size=d))
                parts["source"].append("AB"[source])
                parts["participant"].append(f"u{unit:03d}")
                parts["label"].append(("well", "ill")[label])
                parts["pair_id"].append(event if unit < travelled else -1)
            event += 1
    return Table(**{name: np.array(values) for name, values in parts.items()})


def is_readable(design: str, seed: int, n: int, spread: float) -> bool:
    """Return whether a source without an effect is called readable."""
    if design == "crossed":
        table = crossed_table(seed, n, spread)
    else:
        table = nested_table(seed, n, rows=8, d=8, shift=0.0, trait=spread)
    return mgpa.audit.run(table, [], readers={"restarts": 0}, verbose=False)["identity"].chance.excluded


def readable(audits: int, jobs: int, cells: str = "") -> None:
    """Print how often an absent source is called readable (nominal .025), in cells whose name begins so."""
    for design, sizes, spreads in (
        ("crossed", (6, 8, 12, 24), (0.0, 0.2, 0.5, 1.0)),
        ("nested", (32, 64), (0.0, 1.0)),
    ):
        for n in sizes:
            for spread in spreads:
                name = f"{design} n={n} spread={spread}"
                if name.startswith(cells):
                    calls = (delayed(is_readable)(design, 1000 * n + i, n, spread) for i in range(audits))
                    count = sum(Parallel(jobs)(calls))
                    print(f"{name}: readable {count / audits:.3f} ({count} of {audits})", flush=True)


def changes(seed: int, n: int, spread: str) -> tuple[bool, bool, bool]:
    """Return whether a task is called kept at a true loss of .01 (now, and by percentiles), improved at 0.

    The tail of skewed changes is where the error is: a few lose, or gain, much.
    """
    rng = np.random.default_rng(seed)
    draws = {
        "normal": rng.normal(size=n),
        "heavy": rng.standard_t(3, n) / 3**0.5,
        "skewed": rng.exponential(size=n) - 1,
        "lognormal": (np.exp(rng.normal(size=n)) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e),
        "one in ten": ((rng.random(n) < 0.1) - 0.1) / 0.3,
    }
    change, zero = -0.02 * draws[spread] - 0.01, np.zeros(n)
    kept, percentiles = (
        METRICS["T_f"].outcome(contrast(change, zero, widen=widen, n_draws=2000)) in ("kept", "improved")
        for widen in (True, False)
    )
    gain = -0.01 - change
    improved = METRICS["T_f"].outcome(contrast(zero, gain, widen=True, n_draws=2000)) == "improved"
    return kept, percentiles, improved


def keep(name: str, audits: int, **rates: float) -> None:
    """Put rates into calibration.json, from which the page is written."""
    path = Path(__file__).with_name("calibration.json")
    entry = {
        "fits": audits,
        **{k: float(rate) for k, rate in rates.items()},
        "date": date.today().isoformat(),
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: entry}, indent=1) + "\n")


def kept(audits: int, jobs: int) -> None:
    """Print and keep how often "kept" and "improved" are said wrongly (nominal .05)."""
    for spread in ("normal", "heavy", "skewed", "lognormal", "one in ten"):
        for n in (4, 6, 8, 12, 24):
            calls = (delayed(changes)(seed, n, spread) for seed in range(audits))
            rates = np.mean(Parallel(jobs)(calls), axis=0)
            keep(f"kept {spread} P={n}", audits, false=rates[0], improved=rates[2])
            print(
                f"{spread} n={n}: kept {rates[0]:.3f} (percentiles {rates[1]:.3f}), improved {rates[2]:.3f}",
                flush=True,
            )


def covers(seed: int, per_cell: int, trait: float, shift: float) -> tuple[bool, bool]:
    """Return whether a nested interval of S covers the true one: now, and without widening."""
    rng = np.random.default_rng(seed)
    source, label = np.repeat([0, 1], 2 * per_cell), np.tile(np.repeat([0, 1], per_cell), 2)
    unit = np.repeat(np.arange(4 * per_cell), rng.integers(3, 12, 4 * per_cell))
    levels = trait * rng.normal(size=4 * per_cell) + shift * source + 0.8 * label
    scores = levels[unit] + rng.normal(size=len(unit))
    values = between_auroc(scores[:, None], source[unit], unit, label[unit])[:, 0]
    truth = norm.cdf(shift / np.sqrt(2 * (1 + trait**2)))
    intervals = (
        estimate(values, strata=2 * source + label, leverage=2.0, widen=wide, n_draws=1000)
        for wide in (True, False)
    )
    return tuple(e.low <= truth <= e.high for e in intervals)


def coverage(audits: int, jobs: int) -> None:
    """Print how often nested intervals of S cover the truth (nominal .95)."""
    for per_cell in (3, 6, 12, 25):
        for trait, shift in ((0.5, 0.0), (1.0, 0.0), (1.0, 1.0), (1.0, 2.5)):
            calls = (delayed(covers)(seed, per_cell, trait, shift) for seed in range(audits))
            rates = np.mean(Parallel(jobs)(calls), axis=0)
            print(
                f"{per_cell} per cell, trait {trait}, shift {shift}: covered {rates[0]:.3f} ({rates[1]:.3f})",
                flush=True,
            )


def reader_scores(rng: np.random.Generator, n: int, level: float) -> np.ndarray:
    """Return AUROC of twelve readers on n participants, which share most of their spread."""
    below = np.concatenate([[0.0, 0.0], np.linspace(0.02, 0.4, 10)]) * (level > 0)
    shared, own = rng.normal(size=(n, 1)), rng.normal(size=(n, 12))
    return norm.cdf(level - below + 0.35 * (np.sqrt(0.7) * shared + np.sqrt(0.3) * own))


def covered(seed: int, n: int, level: float, truth: float) -> bool:
    """Return whether the interval of S holds the true largest mean or, without a level, that of RMSEP."""
    rng = np.random.default_rng([seed, n])
    if np.isfinite(level):
        found = estimate(reader_scores(rng, n, level), "best", widen=True, n_draws=1000)
    else:
        squares = np.exp(rng.normal(size=(n, 1)))
        found = estimate(squares, lambda means: np.sqrt(means[..., 0]), widen=True, n_draws=1000)
    return bool(found.low <= truth <= found.high)


def intervals(audits: int, jobs: int) -> None:
    """Print how often crossed intervals of S, and of RMSEP of lognormal units, cover the truth (.95)."""
    for level in (0.0, 0.13, 0.3, 0.7, 1.3, 2.2, np.nan):
        truth = np.exp(0.25)
        if np.isfinite(level):
            truth = reader_scores(np.random.default_rng(9), 200_000, level).mean(axis=0).max()
        for n in (6, 12, 24):
            calls = (delayed(covered)(seed, n, level, truth) for seed in range(audits))
            rate = np.mean(Parallel(jobs)(calls))
            print(
                f"{'S' if np.isfinite(level) else 'RMSEP'} {truth:.3f}, n={n}: covered {rate:.3f}", flush=True
            )


def leaders(seed: int) -> tuple[set[str], set[str], bool]:
    """Return the leaders of a quick and of a full audit, and whether the full one can tell them apart.

    Of several leaders, tied ones, none is named best.
    """
    effects = {"device_effect": 1.0 + seed % 4, "association": (0.0, 0.85)[seed // 4 % 2]}
    table = simulate_table(40, events=16, d=12, random_state=seed, **effects)
    quick, full = (
        mgpa.audit.run(table, WINNERS, readers=bank, folds=1, device="cpu", verbose=False)
        for bank in ({"restarts": 1, "checkpoints": (12,)}, "full")
    )
    first, second = (set(ranking(audit)[1][0]) if ranking(audit)[1] else set() for audit in (quick, full))
    apart = (full.contrast(a, b, metric) for a in first for b in second - first for metric in ("S", "T_f"))
    return first, second, any(change.low > 0 or change.high < 0 for change in apart)


def winners(audits: int, jobs: int) -> None:
    """Print how often quick and full audits name different winners, and how often no interval says why."""
    results = Parallel(jobs)(delayed(leaders)(seed) for seed in range(audits))
    different = [(a, b, told) for a, b, told in results if a and b and not a & b]
    same, untold = sum(a == b for a, b, _ in results), sum(not told for *_, told in different)
    print(f"{audits} audits: the same leaders {same}, none in common {len(different)}, no interval {untold}")
    for seed, (a, b, _) in enumerate(results):
        if a != b:
            print(f"  seed {seed}: quick {sorted(a)}, full {sorted(b)}")


def memory(rows: int, features: int) -> None:
    """Print the time of an audit and its largest memory, relative to the table in single precision."""
    rng = np.random.default_rng(0)
    X = np.empty((rows, features), np.float32)
    for start in range(0, rows, 10_000):
        X[start : start + 10_000] = rng.standard_normal(X[start : start + 10_000].shape, dtype=np.float32)
    row, source = np.arange(rows), np.tile(["a", "b"], rows // 2)
    person, label = np.minimum(row // (rows // 100), 99), row // 2 % 2
    X[source == "b", :5] += 0.5
    X[label == 1, 5:10] += 0.5
    role = assign_roles(person)
    paired = (role == "FIT") & (row % 100 < 4)
    pair_id = np.where(paired, row // 2, -1)
    table = Table(X, source=source, participant=person, label=label, pair_id=pair_id, role=role)
    size, started = X.nbytes, time.monotonic()
    del X
    bank = {"restarts": 1, "checkpoints": (2,)}
    audit = mgpa.audit.run(table, ["leace", "closed_form_mgpa"], readers=bank, folds=1)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took, S = time.monotonic() - started, [round(audit[name].S, 4) for name in audit]
    print(f"{rows} x {features}: S {S}, {took:.0f} s, {peak / 1e9:.2f} GB, {peak / size:.1f} x the table")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    studies = {
        "readable": readable,
        "kept": kept,
        "coverage": coverage,
        "intervals": intervals,
        "winners": winners,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=[*studies, "memory"])
    parser.add_argument("--audits", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cells", default="", help="beginning of the names of cells (readable)")
    parser.add_argument("--rows", type=int, default=245_758)
    parser.add_argument("--features", type=int, default=768)
    options = parser.parse_args()
    if options.what == "memory":
        memory(options.rows, options.features)
    elif options.what == "readable":
        readable(options.audits, options.jobs, options.cells)
    else:
        studies[options.what](options.audits, options.jobs)
