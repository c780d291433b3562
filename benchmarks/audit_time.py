"""Time and memory of a whole audit, by part: identity, LEACE and MGPA, five folds, the full bank of readers.

    python benchmarks/audit_time.py                            # 7 920 x 256, 30 participants, one core
    python benchmarks/audit_time.py --rows 30000 --features 768 --jobs 16 --device cuda
    python benchmarks/audit_time.py --readers '{"restarts": 0}' --profile 40
    python benchmarks/audit_time.py --rows 30000 --features 384 --folds 1 --readers '{"restarts": 0}'

Every event has both views, so that all rows are paired. Parts are nested ("readers" contains "trees"), and
with several jobs those of worker processes are not seen. On a CPU they
are processor time. Run with OMP_NUM_THREADS=1 for the time of one core.
"""

import argparse
import cProfile
import importlib
import json
import pstats
import resource
import time
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np

# What is timed: a name, and where the function is.
PARTS = {
    "heads before any correction": "ground.Ground.prepare",
    "fits": "cells.Engine._fit",
    "cells": "cells.Engine._measure",
    "trained together (GPU)": "cells.trained_scores",
    "  networks": "readers.vectors.train_sets",
    "  how long to train": "readers.vectors.worth_training",
    "  logistic readers": "readers.vectors.linear_scores",
    "readers of a cell": "measure.source_accessibility",
    "  further readers": "readers.vectors.further_scores",
    "    covariances, kernels": "readers.further._covariance_readers",
    "    trees": "readers.further.boosted_trees",
    "    spread": "readers.further.spread",
    "    own rows": "readers.further._own_readers",
    "  twins": "measure.twin_accuracy",
    "rows read": "ground.Ground.read",
    "task heads": "measure.task_utility",
    "agreement": "measure.agreement",
    "identity of participants": "measure.identity_auroc",
    "association": "measure.association",
    "pairs checked": "running.check_pairs",
    "result of a split": "running._collect",
}


def make_table(n, d, people, seed=0):
    """Return rows of two devices that differ in gain and shift, each event seen by both."""
    from mgpa.tables import Table

    rng, half = np.random.default_rng(seed), n // 2
    who, label = np.arange(half) * people // half, rng.integers(0, 2, half)
    first = rng.standard_normal((half, d), dtype=np.float32)
    first += 0.5 * rng.standard_normal((people, d), dtype=np.float32)[who]
    first[:, :8] += label[:, None] * np.float32(0.8)
    gain = np.where(np.arange(d) < d // 8, 1.2, 1.0).astype(np.float32)
    second = first * gain + 0.3 * rng.standard_normal((half, d), dtype=np.float32)
    second[:, 4:10] += np.float32(0.3)
    X = np.empty((n, d), np.float32)
    X[0::2], X[1::2] = first, second
    return Table(
        X,
        source=np.tile(["dry", "wet"], half),
        participant=np.char.add("P", np.repeat(who, 2).astype(str)),
        label=np.repeat(label, 2),
        pair_id=np.repeat(np.arange(half), 2),
    )


@contextmanager
def timed_parts(clock):
    """Sum the seconds of every part, of this process, and count its calls."""
    spent, calls, undo = defaultdict(float), defaultdict(int), []

    def timed(name, function):
        def call(*args, **how):
            start = clock()
            try:
                return function(*args, **how)
            finally:
                spent[name] += clock() - start
                calls[name] += 1

        return call

    for name, place in PARTS.items():
        *parents, attribute = place.split(".")
        classes = [part for part in parents if part[0].isupper()]
        owner = importlib.import_module(".".join(["mgpa.audit", *parents[: len(parents) - len(classes)]]))
        for part in classes:
            owner = getattr(owner, part)
        original = getattr(owner, attribute)
        undo.append((owner, attribute, original))
        setattr(owner, attribute, timed(name, original))
    try:
        yield spent, calls
    finally:
        for owner, attribute, original in undo:
            setattr(owner, attribute, original)


def usage():
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    seconds = sum(part.ru_utime + part.ru_stime for part in (own, children))
    return seconds, own.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=7920)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--people", type=int, default=30)
    parser.add_argument("--methods", default="leace,mgpa")
    parser.add_argument("--readers", default="{}", help="settings of the bank, as JSON")
    parser.add_argument("--folds", type=int)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--profile", type=int, default=0, help="functions to list by their own time")
    options = parser.parse_args()

    from mgpa import audit
    from mgpa.tables import assign_roles

    table = make_table(options.rows, options.features, options.people)
    if options.folds == 1:
        table = replace(table, role=assign_roles(table.participant))
    with np.errstate(all="ignore"):
        table.X @ table.X[0]  # a BLAS is loaded by now, and counts as a library
    for library in ("scipy.stats", "sklearn.ensemble", "sklearn.linear_model", "torch"):
        with suppress(ImportError):
            importlib.import_module(library)
    if options.device != "cpu":
        import torch

        torch.zeros(1, device=options.device) + 1
    (idle_seconds, idle), size = usage(), table.X.nbytes / 2**20
    profile = cProfile.Profile()
    start = time.perf_counter()
    clock = time.process_time if options.device == "cpu" else time.perf_counter
    with timed_parts(clock) as (spent, calls):
        if options.profile:
            profile.enable()
        result = audit.run(
            table,
            options.methods.split(","),
            readers=json.loads(options.readers),
            folds=options.folds,
            n_jobs=options.jobs,
            device=options.device,
            verbose=False,
        )
        computed = time.perf_counter() - start
        text = str(result)
        profile.disable()
    wall = time.perf_counter() - start
    seconds, peak = usage()
    where = f"{options.device}, {options.jobs} jobs"
    print(f"{options.rows} x {options.features}, {options.methods}, {where}: {wall:.1f} s")
    print(f"  verdict {wall - computed:.1f} s of it; processor time {seconds - idle_seconds:.1f} s")
    print(f"  table {size:.0f} MiB, peak {peak:.0f} MiB ({idle:.0f} before, table included): "
          f"{(peak - idle) / size + 1:.1f} times the table")  # fmt: skip
    for name in PARTS:
        if calls[name]:
            print(f"  {name:<30}{spent[name]:>8.2f} s{calls[name]:>6} calls")
    print({name: round(float(result[name].S), 4) for name in result.methods}, len(text), flush=True)
    if options.profile:
        pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(options.profile)


if __name__ == "__main__":
    main()
