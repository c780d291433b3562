"""What a user may get wrong, tried on small simulated data: does the package say so?

    python benchmarks/nothing_silent.py
    python benchmarks/nothing_silent.py monitored    # rates of the monitor

Every line is a case, what was measured, and whether it is what should be.
"""

import pickle
import sys
import warnings

import numpy as np

import mgpa
from mgpa.errors import PairingError
from mgpa.pair_checks import Pairing, doubt, examine_pairs
from mgpa.tables import Table

D = 16


def world(seed, people=16, rows=40, noise=0.3):
    """Return rows of two devices (a shift), sources, people, paired views, and rows of new people."""
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(D, D)) / np.sqrt(D) + 0.5 * np.eye(D)
    shift = rng.normal(size=D)

    def seen(n, device, trait):
        return rng.normal(size=(n, D)) @ mix + trait + device * shift + noise * rng.normal(size=(n, D))

    traits = 0.7 * rng.normal(size=(people, D)) @ mix
    X = np.concatenate([seen(rows, k, trait) for trait in traits for k in (0, 1)])
    source, who = np.tile(np.repeat([0, 1], rows), people), np.repeat(np.arange(people), 2 * rows)
    events, owner = rng.normal(size=(60, D)) @ mix, np.arange(60) % min(8, people)
    events += traits[owner]
    pairs = [events + device * shift + noise * rng.normal(size=events.shape) for device in (0, 1)]

    def new_person(device, n):
        return seen(n, device, 0.7 * rng.normal(size=D) @ mix)

    return X, source, who, pairs, owner, new_person


def refused(call):
    """Return the error of a call that should not succeed, or nothing."""
    try:
        call()
    except PairingError as error:
        return str(error)
    return ""


def tell(case, measured, is_right):
    """Print a line."""
    print(f"{'holds' if is_right else 'FALSE':6}{case}: {measured}", flush=True)


def pairs_examined():
    """Wrong, shifted, exchanged and copied pairs."""
    X, source, who, (A, B), owner, _ = world(0)
    rng = np.random.default_rng(1)
    evidence = {"source": source, "groups": who}
    some = rng.choice(60, 12, replace=False)
    shuffled = B.copy()
    shuffled[some] = B[np.roll(some, 1)]
    found = examine_pairs(A, shuffled, owner)
    tell("a fifth of pairs shuffled", found.pairing.value, found.pairing is Pairing.PARTLY_WRONG)
    tell("all pairs shuffled", doubt(examine_pairs(A, B[rng.permutation(60)], owner))[:60],
         bool(doubt(examine_pairs(A, B[rng.permutation(60)], owner))))  # fmt: skip
    order = np.argsort(owner, kind="stable")
    late = examine_pairs(A[order][:-2], B[order][2:], owner[order][:-2])
    tell("clocks two windows apart", f"lag {late.lag}", late.lag != 0)
    error = refused(lambda: mgpa.MGPA().fit(X, pairs=(B, A), pair_groups=owner, **evidence))
    tell("pairs as (B, A)", error[:60], bool(error))
    exchanged = B.copy()
    first, second = np.flatnonzero(owner == 1), np.flatnonzero(owner == 2)
    exchanged[first[:7]], exchanged[second[:7]] = B[second[:7]], B[first[:7]]
    found = examine_pairs(A, exchanged, owner)
    tell("two people exchanged", found.swapped or found.pairing.value, found.is_wrong)
    tell("right pairs", found := doubt(examine_pairs(A, B, owner)) or "no doubt", found == "no doubt")

    def moved(model):
        return model.transform(X) - X

    once = moved(mgpa.MGPA().fit(X, pairs=(A, B), pair_groups=owner, **evidence))
    twice = moved(
        mgpa.MGPA().fit(X, pairs=(np.r_[A, A], np.r_[B, B]), pair_groups=np.r_[owner, owner], **evidence)
    )
    change = np.linalg.norm(twice - once) / np.linalg.norm(once)
    tell("every pair twice", f"the map changes by {change:.2g}", change < 1e-9)
    again = mgpa.MGPA().fit(
        np.r_[X, X], source=np.r_[source, source], groups=np.r_[who, who], pairs=(A, B), pair_groups=owner
    )
    change = np.linalg.norm(moved(again) - once) / np.linalg.norm(once)
    tell("every row twice", f"the map changes by {change:.2g}", change < 0.01)
    cells = B.copy()
    cells[3, 2], cells[40, 7] = 50.0, -50.0
    change = moved(mgpa.MGPA().fit(X, pairs=(A, cells), pair_groups=owner, **evidence))
    change = np.linalg.norm(change - once) / np.linalg.norm(once)
    tell("two cells of 50 in pairs", f"the map changes by {change:.2g}", change < 0.35)
    far = X.copy()
    far[5] = 1e6
    doubtful = mgpa.MGPA().fit(far, pairs=(A, B), pair_groups=owner, **evidence).to_map().summary()
    tell("one row of 1e6", doubtful.splitlines()[0][:70], doubtful.startswith("Doubtful"))
    model = mgpa.MGPA().fit(X, source=rng.permutation(source), pairs=(A, B))
    change = np.linalg.norm(moved(model)) / np.linalg.norm(X - X.mean(axis=0))
    tell("sources at random, people unknown", f"rows move by {change:.2g} of their size", change < 0.05)
    size = len(pickle.dumps(mgpa.MGPA().fit(X, pairs=(A, B), pair_groups=owner, **evidence)))
    tell("a fitted MGPA, pickled", f"{size / 1e6:.2g} MB", size < 5e6)


def damaged(rows, rng):
    """Return rows that are broken in several ways, by what is wrong with them."""
    dead, flipped, quarter = rows.copy(), rows.copy(), rows.copy()
    dead[:, 3], flipped[:, :3], quarter[:, :4] = 0.0, -flipped[:, :3], 0.0
    return {
        "gains of a half": 0.5 * rows, "gains of a tenth": 0.1 * rows, "a dead feature": dead,
        "a quarter of features dead": quarter, "a fifth of features flipped": flipped,
        "white noise of the same size": rows.mean(axis=0) + rows.std(axis=0) * rng.normal(size=rows.shape),
    }  # fmt: skip


def monitored(fits=20, people=100):
    """Streams of 200 rows of new people, twenty at a time: alarms of the monitor."""
    alarms = {}
    for seed in range(fits):
        X, source, who, (A, B), owner, new = world(seed)
        fitted = mgpa.MGPA().fit(X, source=source, groups=who, pairs=(A, B), pair_groups=owner).to_map()
        for person in range(people):
            rows, rng = new(person % 2, 200), np.random.default_rng([seed, person])
            streams = {"rows of a new person": rows}
            if person < people // 5:
                streams |= damaged(rows, rng)
            for case, values in streams.items():
                monitor = fitted.monitor(window=200)
                for start in range(0, 200, 20):
                    state = monitor.update(values[start : start + 20])
                alarms.setdefault(case, []).append(not state.ok)
    for case, said in alarms.items():
        is_right = np.mean(said) <= 1e-3 if case == "rows of a new person" else np.mean(said) >= 0.9
        tell(case, f"alarm in {sum(said)} of {len(said)} windows of 200 rows", is_right)


def broken_rows():
    """Rows of new people, as they are and broken."""
    X, source, who, (A, B), owner, new = world(2)
    fitted = mgpa.MGPA().fit(X, source=source, groups=who, pairs=(A, B), pair_groups=owner).to_map()
    rows, rng = np.concatenate([new(i % 2, 20) for i in range(20)]), np.random.default_rng(3)

    def said(rows):
        check = fitted.check(rows)
        return not check.ok, str(check).splitlines()[0][:70]

    alarm, words = said(rows)
    tell("rows of new people", words, not alarm)
    for case, values in damaged(rows, rng).items():
        alarm, words = said(values)
        tell(case, words, alarm)
    one = fitted.transform(rows[0])
    tell("a row of one dimension", f"shape {np.shape(one)}", np.allclose(one, fitted.transform(rows[:1])[0]))


def carried_columns():
    """Columns that are not ours, and nulls."""
    import pandas as pd

    X, source, who, *_ = world(4, people=4, rows=5)
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(D)])
    frame["device"], frame["who"] = np.where(source, "wet", "dry"), who
    frame["note"] = [None, "text"] * (len(frame) // 2)
    frame["when"] = pd.Timestamp("2026-01-01")
    frame["list"] = [[1, 2]] * len(frame)
    try:
        table = Table.from_frame(frame, embedding="f", rename={"device": "source", "who": "participant"})
        tell("nulls, times and lists in columns of others", f"{len(table)} rows", len(table) == len(frame))
    except Exception as error:
        tell("nulls, times and lists in columns of others", repr(error)[:90], False)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parts = (pairs_examined, broken_rows, carried_columns)
    for part in (monitored,) if "monitored" in sys.argv else parts:
        part()
