#!/usr/bin/env python3
"""A device that was not in the fit: false alarms, power, what adapting is worth (tables of docs/unseen.md).

python benchmarks/unseen.py                     # all tables (real ones where ../shared/real exists)
python benchmarks/unseen.py boards              # gas boards, each left out in turn
python benchmarks/unseen.py corn                # corn spectrometers, each of three left out in turn
python benchmarks/unseen.py populations         # simulated populations of 3, 5 and 8 devices
python benchmarks/unseen.py two                 # maps of two devices, and a third
python benchmarks/unseen.py seen                # rows of fitted devices and new people: false alarms
python benchmarks/unseen.py broken              # broken inputs
python benchmarks/unseen.py stream              # rows until the monitor's alarm
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import itertools
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.cross_decomposition import PLSRegression
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mgpa

Floats = NDArray[np.float64]
REAL = Path(__file__).resolve().parents[2] / "shared" / "real"
SEEDS = 3


class Population:
    """Devices that differ by shift, gain and rotation, and people and two classes that they see.

    People may differ by gains, too (``own_gain``), and rows of one class may be larger (``loud`` times).
    """

    def __init__(
        self,
        seed: int,
        n: int,
        *,
        gain: float = 0.0,
        rotation: float = 0.0,
        own_gain: float = 0.0,
        loud: float = 1.0,
        d: int = 32,
    ) -> None:
        self.own_gain, self.loud = own_gain, loud
        self.rng, self.d, self.gain, self.rotation = np.random.default_rng(seed), d, gain, rotation
        low = self.rng.normal(size=(8, d)).T @ self.rng.normal(size=(8, d)) / np.sqrt(8 * d)
        self.mixing = 0.6 * np.eye(d) + 2.1 * low
        self.task = self.rng.normal(size=d)
        self.task /= np.linalg.norm(self.task)
        self.devices = [self.device() for _ in range(n)]

    def device(self, size: float = 1.0) -> tuple[Floats, Floats, Floats]:
        """Return gains, rotation and shift of a device, ``size`` times as unusual as the known ones."""
        A = self.rng.normal(size=(self.d, self.d))
        A = A - A.T
        turn = scipy.linalg.expm(size * self.rotation * A / np.linalg.norm(A, 2))
        shift = self.rng.normal(size=self.d) * 2.0 / np.sqrt(self.d) * size
        return np.exp(size * self.gain * self.rng.normal(size=self.d)), turn, shift

    def between(self, size: float) -> tuple[Floats, Floats, Floats]:
        """Return a new device whose shift is off the mean of the known ones by a share of their spread."""
        gains, turn, shift = self.device(size)
        return gains, turn, shift + np.mean([device[2] for device in self.devices], axis=0)

    def content(self, n: int, share: float = 0.5, person: bool = True) -> tuple[Floats, NDArray[np.int64]]:
        """Return events of one new person, and their classes."""
        y = (self.rng.random(n) < share).astype(np.int64)
        offset = 0.1 * self.rng.normal(size=self.d) * person
        rows = self.rng.normal(size=(n, self.d)) @ self.mixing * np.where(y == 1, self.loud, 1.0)[:, None]
        if self.own_gain:
            rows *= np.exp(self.own_gain * self.rng.normal(size=self.d))
        return rows + np.outer(y - 0.5, self.task) * 2 + offset, y

    def see(self, content: Floats, device: tuple[Floats, Floats, Floats]) -> Floats:
        """Return what a device makes of events."""
        gains, turn, shift = device
        return (content * gains) @ turn + shift + 0.1 * self.rng.normal(size=content.shape)

    def fit(self, model: Any, people: int = 12) -> tuple[Any, Floats, NDArray[np.int64]]:
        """Return the fitted map, and rows with their classes."""
        X, y, source, groups, ids = [], [], [], [], []
        for person in range(people):
            rows, classes = self.content(50 * len(self.devices))
            for k, device in enumerate(self.devices):
                part = slice(50 * k, 50 * (k + 1))
                X.append(self.see(rows[part], device))
                y.append(classes[part])
                source += [k] * 50
                groups += [person] * 50
                ids.append(np.full(50, -1))
        rows, classes = self.content(60)
        for k, device in enumerate(self.devices):
            X.append(self.see(rows, device))
            y.append(classes)
            source += [k] * 60
            groups += [people] * 60
            ids.append(np.arange(60))
        model.fit(np.concatenate(X), source=source, pair_id=np.concatenate(ids), groups=groups)
        return model.to_map(), np.concatenate(X), np.concatenate(y)


def head(X: Floats, y: Any) -> Any:
    """Return a classifier of corrected rows."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(X, y)


def gas_boards() -> tuple[Floats, Any, Any, Any]:
    """Return rows of the gas boards, their boards, gases and events."""
    data = np.load(REAL / "gas_boards.npz")
    X = np.sign(data["X"]) * np.log1p(np.abs(data["X"])).astype(float)
    names = zip(data["gas"], data["concentration"], data["replicate"], strict=True)
    return X, data["board"], data["gas"], np.array([" ".join(name) for name in names])


def boards() -> None:
    """Each of five gas boards left out in turn, a head refitted on the corrected rows of the others."""
    X, board, gas, event = gas_boards()
    rng, found = np.random.default_rng(0), defaultdict(list)
    for left in np.unique(board):
        fit, new = board != left, np.flatnonzero(board == left)
        found["uncorrected", "all"].append(head(X[fit], gas[fit]).score(X[new], gas[new]))
        for model in (mgpa.ClosedFormMGPA(), mgpa.MGPA()):
            name = type(model).__name__
            m = model.fit(X[fit], source=board[fit], pair_id=event[fit]).to_map()
            reader = head(m.transform(X[fit]), gas[fit])

            def score(corrected: Any, rows: Any, reader: Any = reader) -> float:
                return float(reader.score(corrected.transform(X[rows]), gas[rows]))

            found[name, "the original map"].append(score(m, new))
            if getattr(m, "unseen_odds", None) is not None:
                alone = replace(m, **dict.fromkeys(m.optional_tensors[1]))
                known_only = head(alone.transform(X[fit]), gas[fit])
                found[name, "known devices' edits alone"].append(score(alone, new, known_only))
                looks = float((m.unseen(X[fit]) > 0.5).mean())
                found[name, "fitted rows that look unknown: share"].append(looks)
            found[name, "rows not corrected"].append(score(m.with_strength(0.0), new))
            found[name, "alarm on its rows (share of boards)"].append(m.check(X[new]).unknown_device)
            found[name, "alarm on 10 of its rows"].append(
                m.check(rng.permutation(X[new])[:10]).unknown_device
            )
            known = m.check(X[fit], source=board[fit]).unknown_device or m.check(X[fit]).unknown_device
            found[name, "alarm on fitted boards"].append(known)
            for n in (20, 40, len(new)):
                some = [rng.choice(new, n, replace=False) for _ in range(1 if n == len(new) else 5)]
                label = f"adapted, {n if n < 80 else 'all'} rows"
                found[name, label].append(np.mean([score(m.adapt(X[rows]), new) for rows in some]))
            tilted = []
            for _ in range(6):
                often = np.isin(gas[new], rng.choice(np.unique(gas), 2, replace=False))
                weight = np.where(often, 0.8, 0.2)
                rows = rng.choice(new, len(new) // 2, replace=False, p=weight / weight.sum())
                tilted.append(score(m.adapt(X[rows]), new))
            found[name, "adapted, two gases .8 of the rows"].append(np.mean(tilted))
            known = np.unique(board[fit])[0]
            common = np.array(
                [(i, j) for j in new for i in np.flatnonzero((board == known) & (event == event[j]))]
            )
            for n in (5, 10, 20, 40):
                scores = []
                for _ in range(6):
                    a, b = common[rng.permutation(len(common))[:n]].T
                    scores.append(score(m.add_source("new", (X[a], X[b]), known=known), np.setdiff1d(new, b)))
                found[name, f"{n} pairs with {known if n < 0 else 'one fitted board'}"].append(
                    np.mean(scores)
                )
    boards = " | ".join(np.unique(board))
    print(f"\n| gas boards, each left out in turn | what is done | mean | {boards} |")
    print("|---" * (3 + len(np.unique(board))) + "|")
    for (name, what), values in found.items():
        each = " | ".join(
            f"{value:.3f}" for value in np.reshape(values, (len(np.unique(board)), -1)).mean(axis=1)
        )
        print(f"| {name} | {what} | {np.mean(values):.3f} | {each} |")


def corn() -> None:
    """Each of three corn spectrometers left out in turn, partial least squares on the others' corrected rows.

    Errors are in standard deviations of the content, over four contents and two halves of the samples: models
    are fitted on one half, and tested with rows of the other half by the spectrometer that was left out.
    """
    data = np.load(REAL / "corn_nir.npz")
    spectra, targets = data["spectra"].astype(float), data["targets"].astype(float)
    n, K = spectra.shape[:2]
    found = defaultdict(list)
    for left, half in itertools.product(range(K), range(2)):
        order = np.random.default_rng(half).permutation(n)
        fit, test = order[: n // 2], order[n // 2 :]
        known = [k for k in range(K) if k != left]
        X = np.concatenate([spectra[fit, k] for k in known])
        source, event = np.repeat(known, len(fit)), np.tile(fit, len(known))
        y, new, truth = np.tile(targets[fit], (len(known), 1)), spectra[test, left], targets[test]

        def errors(rows: Any, corrected: Any, y: Any = y, truth: Any = truth) -> float:
            read = [PLSRegression(8, scale=False).fit(rows, y[:, j]).predict(corrected) for j in range(4)]
            gaps = np.stack([r.ravel() for r in read], axis=1) - truth
            return float(np.sqrt(np.mean((gaps / targets.std(axis=0)) ** 2)))

        found["uncorrected", ""].append(errors(X, new))
        for model in (mgpa.ClosedFormMGPA(), mgpa.MGPA()):
            m, name = model.fit(X, source=source, pair_id=event).to_map(), type(model).__name__
            rows = m.transform(X)
            found["the original map", name].append(errors(rows, m.transform(new)))
            found["rows not corrected", name].append(errors(rows, new))
            found["alarm on its rows: share", name].append(m.check(new).unknown_device)
            found["adapted, 40 rows", name].append(errors(rows, m.adapt(new).transform(new)))
            for n_pairs in (5, 10, 20):
                pairs = spectra[fit[:n_pairs], known[0]], spectra[fit[:n_pairs], left]
                added = m.add_source("new", pairs, known=str(known[0]))
                what = f"{n_pairs} pairs with one fitted spectrometer"
                found[what, name].append(errors(rows, added.transform(new)))
    print("\n| corn, each spectrometer left out in turn | MGPA | ClosedFormMGPA |\n|---|---|---|")
    for what in dict.fromkeys(what for what, _ in found):
        cells = [
            f"{np.mean(v):.2f} ({np.max(v):.2f})" if v else ""
            for v in (found[what, name] for name in ("MGPA", "ClosedFormMGPA"))
        ]
        cells = (
            [f"{np.mean(found[what, '']):.2f} ({np.max(found[what, '']):.2f})", ""]
            if (what, "") in found
            else cells
        )
        print(f"| {what} | {' | '.join(cells)} |")


def populations() -> None:
    """Simulated populations: alarms on known and new devices, and accuracy after each remedy."""
    columns = [
        "devices",
        "differ by",
        "false alarms: new people · mix .2 to .8 · 10 % outliers · two devices",
        "power at 50 rows: half the spread, named · not · all of it, named · not",
        "accuracy: uncorrected · map · not corrected · adapted · adapted, mix .8 · 10 pairs · 40 pairs",
    ]
    print(f"\n| {' | '.join(columns)} |\n|---|---|---|---|---|")
    every = {"gain": 0.2, "rotation": 0.3}
    for n in (3, 5, 8):
        worlds: dict[str, dict[str, float]] = {"shift": {}, "shift, gain, rotation": every}
        if n == 5:
            worlds["the same, and people by gains of .15"] = {**every, "own_gain": 0.15}
            worlds["the same, one class 1.5 times as large"] = {**every, "loud": 1.5}
        for words, options in worlds.items():
            alarms, scores = defaultdict(list), defaultdict(list)
            for seed in range(SEEDS):
                world = Population(seed, n, **options)
                m, X, y = world.fit(mgpa.MGPA())

                def alarm(
                    device: Any,
                    share: float = 0.5,
                    outliers: bool = False,
                    name: str | None = None,
                    m: Any = m,
                    world: Any = world,
                ) -> bool:
                    rows = world.see(world.content(50, share)[0], device)
                    if outliers:
                        rows[::10] += 10 * world.rng.normal(size=(5, world.d))
                    return bool(m.check(rows, source=None if name is None else [name] * 50).unknown_device)

                for i in range(40):
                    device = world.devices[i % n]
                    alarms["people"].append(alarm(device))
                    alarms["mix"].append(alarm(device, (0.2, 0.8)[i % 2]))
                    alarms["outliers"].append(alarm(device, outliers=True))
                    half = [world.see(world.content(25)[0], d) for d in (device, world.devices[(i + 1) % n])]
                    alarms["two devices"].append(m.check(np.concatenate(half)).unknown_device)
                    for size in (0.5, 1.0):
                        alarms[size, "named"].append(alarm(world.between(size), name="new"))
                        alarms[size, ""].append(alarm(world.between(size)))
                plain, corrected = head(X, y), head(m.transform(X), y)
                for _ in range(3):
                    device = world.between(1.0)
                    content, classes = world.content(400, person=False)
                    new = world.see(content, device)
                    scores["uncorrected"].append(plain.score(new, classes))
                    scores["map"].append(corrected.score(m.transform(new), classes))
                    scores["left"].append(corrected.score(new, classes))
                    for label, share in (("adapted", 0.5), ("mix", 0.8)):
                        batch = world.see(world.content(200, share, person=False)[0], device)
                        adapted = m.adapt(batch, n_participants=10)
                        scores[label].append(corrected.score(adapted.transform(new), classes))
                    for n_pairs in (10, 40):
                        events = world.content(n_pairs)[0]
                        pairs = world.see(events, world.devices[0]), world.see(events, device)
                        added = m.add_source("new", pairs, known="0")
                        scores[n_pairs].append(corrected.score(added.transform(new), classes))
            rates = " · ".join(
                f"{np.mean(alarms[k]):.3f}" for k in ("people", "mix", "outliers", "two devices")
            )
            power = " · ".join(f"{np.mean(alarms[k]):.2f}" for k in alarms if isinstance(k, tuple))
            worth = " · ".join(f"{np.mean(v):.3f}" for v in scores.values())
            print(f"| {n} | {words} | {rates} | {power} | {worth} |", flush=True)


def two() -> None:
    """Maps of two devices, and a third one's rows: accuracy of a classifier of corrected rows."""
    found = defaultdict(list)

    def measure(name: str, X: Floats, y: Any, new: Floats, truth: Any, m: Any, people: int) -> None:
        plain, corrected = head(X, y), head(m.transform(X), y)
        found[name].append(
            [
                plain.score(new, truth),
                corrected.score(m.transform(new), truth),
                corrected.score(new, truth),
                corrected.score(m.adapt(new, n_participants=people).transform(new), truth),
                m.check(new).unknown_device,
            ]
        )

    for name, options in (("shift", {}), ("shift, gain, rotation", {"gain": 0.2, "rotation": 0.3})):
        for seed in range(4):
            world = Population(seed, 2, **options)
            m, X, y = world.fit(mgpa.MGPA())
            for _ in range(5):
                content, truth = world.content(300, person=False)
                measure(name, X, y, world.see(content, world.between(1.0)), truth, m, 10)
    X, board, gas, event = gas_boards()
    for fitted in itertools.combinations(np.unique(board), 2):
        fit = np.isin(board, fitted)
        try:
            m = mgpa.MGPA().fit(X[fit], source=board[fit], pair_id=event[fit]).to_map()
        except mgpa.errors.WrongPairs as error:
            print(f"{' and '.join(fitted)}: {error}")
            continue
        for left in np.setdiff1d(board, fitted):
            new = board == left
            measure("gas boards", X[fit], gas[fit], X[new], gas[new], m, 1)
    print("\n| devices | uncorrected | corrected | left as they are | adapted | alarm |\n" + "|---" * 6 + "|")
    for name, values in found.items():
        print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in np.mean(values, axis=0)) + " |")


def two_views() -> Iterator[tuple[str, Floats, Any, Any, Any, int]]:
    """Yield real sets of two devices: name, rows, source, participant, label, people to fit on."""
    z = np.load(REAL / "phone_watch.npz")
    both = np.concatenate([z["phone"], z["watch"]]).astype(float)
    half = len(z["phone"])
    yield (
        "phone and watch",
        both,
        np.repeat(["phone", "watch"], half),
        np.tile(z["participant"], 2),
        np.tile(z["label"], 2),
        12,
    )
    tokens, epochs = np.load(REAL / "kalunga_gssc_tokens.npz"), np.load(REAL / "kalunga_epochs.npz")
    both = np.concatenate([tokens["car"].mean(axis=1), tokens["oz"].mean(axis=1)]).astype(float)
    half = len(tokens["car"])
    yield (
        "EEG, two references",
        both,
        np.repeat(["car", "oz"], half),
        np.tile(epochs["participant"], 2),
        np.tile(epochs["label"], 2),
        7,
    )


def fits(X: Floats, source: Any, people: Any, n: int) -> Iterator[tuple[Any, Any, np.random.Generator]]:
    """Yield maps fitted on some people, the rows of the others, and a generator."""
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        chosen = np.isin(people, rng.permutation(np.unique(people))[:n])
        event = np.tile(np.arange(len(X) // 2), 2)
        model = mgpa.ClosedFormMGPA()
        model.fit(X[chosen], source=source[chosen], pair_id=event[chosen], groups=people[chosen])
        yield model.to_map(), ~chosen, rng


def seen() -> None:
    """Rows of fitted devices and people who were not in the fit: how often is a device called unknown?"""
    columns = [
        "fitted devices, new people",
        "50 rows in order",
        "drawn at random",
        "one class .8 of 50 rows",
        "10 % outliers",
        "named as the other device",
    ]
    print(f"\n| {' | '.join(columns)} |\n|---|---|---|---|---|---|")
    for name, X, source, people, label, n in two_views():
        rates = defaultdict(list)
        for m, new, rng in fits(X, source, people, n):
            for person in np.unique(people[new]):
                for device in np.unique(source):
                    rows = np.flatnonzero((people == person) & (source == device))
                    other = [d for d in np.unique(source) if d != device] * 50
                    for start in range(0, len(rows) - 49, 50):
                        rates["order"].append(m.check(X[rows[start : start + 50]]).unknown_device)
                    for c in np.unique(label[rows]):
                        some = rng.choice(rows, 50)
                        rates["random"].append(m.check(X[some]).unknown_device)
                        bad = X[some].copy()
                        bad[::10] += 10 * X.std(axis=0) * rng.normal(size=bad[::10].shape)
                        rates["outliers"].append(m.check(bad).unknown_device)
                        weight = np.where(label[rows] == c, 0.8 / np.mean(label[rows] == c), 0.2)
                        some = rng.choice(rows, 50, p=weight / weight.sum())
                        rates["mix"].append(m.check(X[some]).unknown_device)
                        rates["named"].append(not m.check(X[some], source=other).ok)
        row = " | ".join(
            f"{np.mean(rates[k]):.3f} of {len(rates[k])}"
            for k in ("order", "random", "mix", "outliers", "named")
        )
        print(f"| {name} | {row} |", flush=True)


def damages(rng: np.random.Generator, d: int) -> dict[str, Callable[[Floats], Floats]]:
    """Return what can be wrong with the features of a batch."""
    some, quarter, one = rng.random(d) < 0.2, rng.random(d) < 0.25, np.arange(d) == rng.integers(d)
    return {
        "nothing": lambda B: B,
        "gains × .5": lambda B: 0.5 * B,
        "gains × .1": lambda B: 0.1 * B,
        "one feature dead": lambda B: np.where(one, 0.0, B),
        "a quarter dead": lambda B: np.where(quarter, 0.0, B),
        "a fifth flipped": lambda B: np.where(some, -B, B),
        "white noise of the same size": lambda B: B.mean(axis=0) + B.std(axis=0) * rng.normal(size=B.shape),
    }


def broken() -> None:
    """Broken inputs: how often 50 and 200 rows of new people give a problem."""
    print(
        "\n| what is wrong | "
        + " | ".join(f"{name}: 50 rows · 200" for name, *_ in two_views())
        + " |\n|---|---|---|"
    )
    found = defaultdict(list)
    names = []
    for name, X, source, people, _, n in two_views():
        names.append(name)
        for m, new, rng in fits(X, source, people, n):
            for what, change in damages(rng, X.shape[1]).items():
                for person in np.unique(people[new]):
                    for device in np.unique(source):
                        rows = np.flatnonzero((people == person) & (source == device))
                        for size in (50, 200):
                            some = X[rng.choice(rows, size, replace=size > len(rows))]
                            found[what, name, size].append(not m.check(change(some)).ok)
    for what in dict.fromkeys(key[0] for key in found):
        cells = (
            " · ".join(f"{np.mean(found[what, name, size]):.2f}" for size in (50, 200)) for name in names
        )
        print(f"| {what} | {' | '.join(cells)} |")


def stream() -> None:
    """A stream of twenty rows at a time: alarms before the device changes, and rows until one after it."""
    print("\n| new device | false alarm in 1000 rows | rows to the alarm: median · 90 % |\n|---|---|---|")
    for size in (0.5, 1.0, 2.0):
        false, delay = [], []
        for seed in range(SEEDS):
            world = Population(seed, 5)
            m, _, _ = world.fit(mgpa.ClosedFormMGPA())
            for i in range(10):
                monitor = m.monitor()
                for _ in range(50):
                    state = monitor.update(world.see(world.content(20)[0], world.devices[i % 5]))
                false.append(not state.ok)
                monitor.reset()
                device, state = (
                    world.between(size),
                    monitor.update(world.see(world.content(20)[0], world.devices[0])),
                )
                while state.ok and state.n_rows < 1000:
                    state = monitor.update(world.see(world.content(20)[0], device))
                delay.append(state.n_rows - 20)
        middle, late = np.quantile(delay, [0.5, 0.9])
        print(
            f"| {size:g} × the spread | {np.mean(false):.3f} of {len(false)} | {middle:.0f} · {late:.0f} |",
            flush=True,
        )


TABLES = {
    "boards": boards,
    "corn": corn,
    "populations": populations,
    "two": two,
    "seen": seen,
    "broken": broken,
    "stream": stream,
}

if __name__ == "__main__":
    for table in sys.argv[1:] or TABLES:
        TABLES[table]()
