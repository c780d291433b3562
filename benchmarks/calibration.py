"""How often each decision goes wrong: simulated people, sessions and devices, without an effect and with one.

    python benchmarks/calibration.py                  # every cell, 400 fits each: the table of the docs
    python benchmarks/calibration.py --fits 40 act    # some decisions, quickly

A decision is a function ``(cell, rng, effect) -> bool``: does it say yes? Without an effect the share of yes
is its error rate, with one (half the shift that pairs show) its power.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import mgpa
from mgpa.errors import MissingEvidence
from mgpa.estimators.streamed import LabelledPairs
from mgpa.moments import Means

N_FITS = 400
NOMINAL = {"act": 0.05, "gate": 0.01, "begin": 0.05, "go on": 0.16, "spread": 0.05}
PERSON, SESSION = 1.0, 0.5  # spread of people, and of their sessions with one device, in spreads of rows


def means(X: Any, source: Any, person: Any) -> Means:
    """Return the means of rows by source and person."""
    return Means.from_rows(X, np.asarray(source), np.asarray(person)) if len(X) else Means({})


@dataclass(frozen=True)
class Cell:
    """A design: how many people, each with every source or with one, and what their rows are like."""

    decision: str = "act"
    design: str = "crossed"  # "nested": one source each; "mixed": half of the people travelled
    people: int = 6
    sources: int = 2
    rows: str = "normal"  # "heavy": Student's t, 3 degrees of freedom; "alone": independent, people unknown
    unequal: bool = False  # people have very different numbers of rows
    features: int = 10  # 200: more than rows

    def __str__(self) -> str:
        extra = [self.rows] * (self.rows != "normal") + ["unequal"] * self.unequal
        extra += [f"d={self.features}"] * (self.features != 10)
        return " ".join([self.decision, self.design, f"P={self.people}", f"K={self.sources}", *extra])


def draw(cell: Cell, rng: np.random.Generator, effect: float) -> dict[str, Any]:
    """Return rows with sources and people, and views of the same events by all sources, of other people.

    In the views every source but the first shifts a feature of its own by one; in the rows, by ``effect``.
    """
    d, K = cell.features, cell.sources
    rank = min(d, 10)
    mix = rng.normal(size=(rank, d)) / np.sqrt(rank) + 0.5 * np.eye(rank, d)
    shift = np.zeros((K, d))
    shift[np.arange(1, K), np.arange(K - 1)] = 1.0

    def noise(n: int) -> Any:
        draws = (
            rng.standard_t(3, (n, rank)) / np.sqrt(3) if cell.rows == "heavy" else rng.normal(size=(n, rank))
        )
        return draws @ mix + 0.3 * rng.normal(size=(n, d))

    X, source, person = [], [], []
    for p in range(cell.people):
        travelled = cell.design == "crossed" or (cell.design == "mixed" and p < cell.people // 2)
        trait = PERSON * (rng.normal(size=rank) @ mix) * (cell.rows != "alone")
        for k in range(K) if travelled else [p % K]:
            n = max(6, int(30 * rng.exponential())) if cell.unequal else 30
            session = SESSION * (rng.normal(size=rank) @ mix) * (cell.rows != "alone")
            X.append(noise(n) + trait + session + effect * shift[k])
            source += [k] * n
            person += [p] * n
    events, m = noise(40), 40
    views = np.concatenate([events + shift[k] + 0.1 * rng.normal(size=events.shape) for k in range(K)])
    pairs = LabelledPairs(
        views, np.repeat(np.arange(K), m), np.tile(np.arange(m), K), np.tile(np.arange(m) % 8, K)
    )
    groups = None if cell.rows == "alone" else np.array(person)
    return {"X": np.concatenate(X), "source": np.array(source), "groups": groups, "pairs": pairs}


def acts(cell: Cell, rng: np.random.Generator, effect: float) -> bool:
    """Return whether the closed form moves rows."""
    data = draw(cell, rng, effect)
    model = mgpa.ClosedFormMGPA().partial_fit(data["X"], source=data["source"], groups=data["groups"])
    return len(model.add_pairs(data["pairs"]).to_map()) > 0


def takes_a_direction(cell: Cell, rng: np.random.Generator, effect: float) -> bool:
    """Return whether a gate has any direction; sessions differ, and devices by twice the effect."""
    d, n = cell.features, 30
    person = np.repeat(np.arange(cell.people), n)
    contrasts = (
        0.4 * rng.normal(size=(len(person), d))
        + np.sqrt(2) * SESSION * rng.normal(size=(cell.people, d))[person]
    )
    return bool(mgpa.MeasurementGate().fit(contrasts + 4.0 * effect * np.eye(d)[0], groups=person).rank_ > 0)


def iterative(cell: Cell, rng: np.random.Generator, effect: float, most: int) -> Any:
    data = draw(cell, rng, effect)
    labelled = data["pairs"]
    first, second = labelled.matched()
    model = mgpa.IterativeMGPA(critics=("linear",), n_stages=most)
    views = labelled.X[first], labelled.X[second]
    evidence = {
        "source": data["source"],
        "groups": data["groups"],
        "pair_groups": labelled.participant[first],
    }
    return model.fit(data["X"], pairs=views, **evidence)


def begins(cell: Cell, rng: np.random.Generator, effect: float) -> bool:
    """Return whether the iterative correction takes any stage."""
    return bool(iterative(cell, rng, effect, 1).n_stages_ > 0)


def goes_on(cell: Cell, rng: np.random.Generator, effect: float) -> bool:
    """Return whether, after a shift that the closed form removes, a second stage follows."""
    return bool(iterative(cell, rng, 1.0, 3).n_stages_ > 1)


def corrects_spread(cell: Cell, rng: np.random.Generator, effect: float) -> bool:
    """Return whether MGPA corrects spread: sessions have offsets and gains of their own, device 1 a gain."""
    d, n, known = cell.features, 15, cell.rows != "alone"

    def seen(device: int) -> Any:
        noise = rng.standard_t(3, events.shape) if cell.rows == "heavy" else rng.normal(size=events.shape)
        session = SESSION * rng.normal(size=(cell.people, d)) * known
        own = 0.3 * rng.normal(size=(cell.people, d)) * (np.arange(d) < 3) * known
        gain = 1.0 + own + effect * device * (np.arange(d) < 3)
        return events * gain[person] + session[person] + 0.3 * noise

    person = np.repeat(np.arange(cell.people), n)
    mix = rng.normal(size=(d, d)) / np.sqrt(d) + 0.5 * np.eye(d)
    events = rng.normal(size=(len(person), d)) @ mix + PERSON * rng.normal(size=(cell.people, d))[person]
    rows, pairs, source = (seen(0), seen(1)), (seen(0), seen(1)), np.repeat([0, 1], len(person))
    people = {"groups": np.tile(person, 2), "pair_groups": person} if known else {}
    model = mgpa.MGPA().fit(np.concatenate(rows), source=source, pairs=pairs, **people)
    return isinstance(model.to_map(), mgpa.SpreadMap)


DECISIONS: dict[str, Callable[[Cell, np.random.Generator, float], bool]] = {
    "act": acts,
    "gate": takes_a_direction,
    "begin": begins,
    "go on": goes_on,
    "spread": corrects_spread,
}

PEOPLE = (3, 4, 6, 8, 12, 24)
CELLS = (
    [Cell(design=design, people=P) for design in ("crossed", "nested") for P in PEOPLE]
    + [
        Cell(design=design, people=P, sources=K)
        for K in (3, 5)
        for design in ("crossed", "nested")
        for P in (6, 12)
    ]
    + [Cell(design="mixed", people=P) for P in (6, 12)]
    + [Cell(design=design, people=8, rows="heavy") for design in ("crossed", "nested")]
    + [Cell(design=design, people=8, unequal=True) for design in ("crossed", "nested")]
    + [Cell(design=design, people=4, features=400) for design in ("crossed", "nested")]
    + [Cell(rows="alone"), Cell(rows="alone", people=2, features=200)]
)
SMALL = [Cell(people=4), Cell(design="nested", people=8), Cell(design="mixed", people=6), Cell(sources=3)]
OTHERS = (
    [Cell("gate", people=P) for P in (2, *PEOPLE)]
    + [Cell("begin", design=design, people=P) for design in ("crossed", "nested") for P in (6, 12)]
    + [Cell("go on", people=P) for P in (6, 12)]
    + [Cell("spread", people=P, features=20) for P in PEOPLE]
    + [Cell("spread", people=8, features=20, rows=rows) for rows in ("heavy", "alone")]
)


def rate(cell: Cell, effect: float, n_fits: int) -> float:
    """Return how often a decision says yes."""
    decide, said = DECISIONS[cell.decision], 0
    for seed in range(n_fits):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                said += decide(cell, np.random.default_rng([seed, int(1000 * effect)]), effect)
        except (MissingEvidence, ValueError):  # nothing is done
            continue
    return said / n_fits


def false_rate(cell: Cell, n_fits: int = N_FITS) -> float:
    """Return how often a decision says yes without an effect."""
    return rate(cell, 0.0, n_fits)


def main(arguments: list[str]) -> None:
    """Print one row of the table for each cell."""
    n_fits = int(arguments[arguments.index("--fits") + 1]) if "--fits" in arguments else N_FITS
    wanted = [name for name in arguments if name in DECISIONS]
    print(
        "| decision | design | people | sources | rows | nominal | measured | power |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for cell in [*CELLS, *OTHERS]:
        if wanted and cell.decision not in wanted:
            continue
        fits = n_fits if cell.decision in ("act", "gate", "spread") else max(20, n_fits // 4)
        false = rate(cell, 0.0, fits)
        power = "" if cell.decision == "go on" else f"{rate(replace(cell), 0.5, max(20, fits // 4)):.2f}"
        rows = ", ".join(filter(None, [cell.rows * (cell.rows != "normal"), "unequal" * cell.unequal,
                                       f"d = {cell.features}" * (cell.features != 10)]))  # fmt: skip
        print(
            f"| {cell.decision} | {cell.design} | {cell.people} | {cell.sources} | {rows} "
            f"| {NOMINAL[cell.decision]:.2f} | {false:.3f} | {power} |",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
