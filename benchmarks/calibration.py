"""PYTHONPATH=src python benchmarks/calibration.py --jobs 16 --out benchmarks/calibration.json

How often each decision goes wrong: simulated people, sessions and devices, without an effect and with one.

    python benchmarks/calibration.py --quick act      # some decisions, 60 fits each
    python benchmarks/calibration.py --quick --cells association=0.9    # some cells, by a part of their names
    python benchmarks/calibration_page.py             # tables and picture of docs/how_often_wrong.md

A decision is a function ``(cell, rng, effect) -> bool``: does it say yes? Without an effect the share of yes
is its error rate, with one (half the shift that pairs show) its power. Cells that the file already has with
as many fits are not computed again, so a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

import mgpa
from mgpa.errors import MissingEvidence
from mgpa.linalg import Scatter
from mgpa.pair_checks import PairExamination, Pairing, doubt, examine_pairs
from mgpa.statistics import LabelledRows

N_FITS = 400
QUICK = 60
CHUNK = 10  # fits of one task
RECORD = Path(__file__).with_suffix(".json")
NOMINAL = {
    "act": 0.05, "gate": 0.01, "more": 0.01, "begin": 0.05, "go on": 0.16, "spread": 0.05, "doubt": 0.05,
    "refuse": 0.05, "mismatched": 0.05, "associated": 0.05, "windows": 0.05,
}  # fmt: skip
PERSON, SESSION = 1.0, 0.5  # spread of people, and of their sessions with one device, in spreads of rows


@dataclass(frozen=True)
class Cell:
    """A design: how many people, each with every source or with one, and what their rows are like."""

    decision: str = "act"
    # "nested": people have one source each; "mixed": half of them travelled; "lopsided": two have the first
    # source, all others the second; "star": pairs all with source 0
    design: str = "crossed"
    people: int = 6
    sources: int = 2
    # "heavy": Student's t, 3 degrees of freedom; "uneven": noise of each view has a size of its own (pairs);
    # "alone": independent, people unknown
    rows: str = "normal"
    unequal: bool = False  # people have very different numbers of rows
    features: int = 10  # 200: more than rows
    noise: float = 0.0  # of a view, in standard deviations of what both views show
    association: float = 0.5  # how often task and source agree
    cosine: float = 0.0  # of what classes differ by to the pairs' shift

    def __str__(self) -> str:
        extra = [self.rows] * (self.rows != "normal") + ["unequal"] * self.unequal
        extra += [f"d={self.features}"] * (self.features != 10)
        extra += [f"noise={self.noise}"] * (self.noise > 0)
        if self.association != 0.5:
            extra += [f"association={self.association}", f"cosine={self.cosine}"]
        return " ".join([self.decision, self.design, f"P={self.people}", f"K={self.sources}", *extra])


def draw(cell: Cell, rng: np.random.Generator, effect: float) -> dict[str, Any]:
    """Return rows with sources and people, and views of the same events by all sources, of other people.

    In the views every source but the first shifts a feature of its own by one; in the rows, by ``effect``.
    """
    d, K = cell.features, cell.sources
    rank = min(d, 10)
    n_first = 2 if cell.design == "lopsided" else 0
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
        for k in range(K) if travelled else [int(p >= n_first) if n_first else p % K]:
            n = max(6, int(30 * rng.exponential())) if cell.unequal else 30
            session = SESSION * (rng.normal(size=rank) @ mix) * (cell.rows != "alone")
            X.append(noise(n) + trait + session + effect * shift[k])
            source += [k] * n
            person += [p] * n
    events, m = noise(40), 40
    views = np.concatenate([events + shift[k] + 0.1 * rng.normal(size=events.shape) for k in range(K)])
    pairs = LabelledRows(
        views, np.repeat(np.arange(K), m), np.tile(np.arange(m), K), np.tile(np.arange(m) % 8, K)
    )
    groups = None if cell.rows == "alone" else np.array(person)
    return {"X": np.concatenate(X), "source": np.array(source), "groups": groups, "pairs": pairs}


def draw_associated(
    rng: np.random.Generator,
    association: float,
    cosine: float,
    effect: float,
    *,
    design: str = "crossed",
    people: int = 12,
    rows: int = 30,
    d: int = 10,
) -> dict[str, Any]:
    """Return what a fit takes: rows whose task depends on the source, and pairs in which it does not.

    Classes differ by two, at this cosine to the pairs' shift of one; rows of the second source are shifted by
    ``effect``.
    """
    mix = rng.normal(size=(d, d)) / np.sqrt(d) + 0.5 * np.eye(d)
    across = rng.normal(size=d) * (np.arange(d) > 0)
    shift = np.eye(d)[0]
    task = 2.0 * (cosine * shift + np.sqrt(1 - cosine**2) * across / np.linalg.norm(across))

    def noise(n: int) -> Any:
        return rng.normal(size=(n, d)) @ mix + 0.3 * rng.normal(size=(n, d))

    X, source, person = [], [], []
    for p in range(people):
        trait = PERSON * rng.normal(size=d) @ mix
        for k in (0, 1) if design == "crossed" else (p % 2,):
            label = rng.random(rows) < (association if k else 1 - association)
            session = SESSION * rng.normal(size=d) @ mix
            X.append(noise(rows) + trait + session + effect * k * shift + (label - 0.5)[:, None] * task)
            source += [k] * rows
            person += [p] * rows
    events = noise(40) + (rng.integers(0, 2, 40) - 0.5)[:, None] * task
    views = [events + k * shift + 0.1 * rng.normal(size=events.shape) for k in (0, 1)]
    return {"X": np.concatenate(X), "source": np.array(source), "groups": np.array(person),
            "pairs": tuple(views), "pair_groups": np.arange(40) % 8}  # fmt: skip


def acts(cell: Cell, rng: np.random.Generator, effect: float) -> bool:
    """Return whether the closed form moves rows."""
    data = draw(cell, rng, effect)
    model = mgpa.ClosedFormMGPA().partial_fit(data["X"], source=data["source"], groups=data["groups"])
    return model.add_pairs(data["pairs"]).to_map().rank > 0


def takes_a_direction(cell: Cell, rng: np.random.Generator, effect: float) -> bool:
    """Return whether a gate has any direction; sessions differ, and devices by twice the effect."""
    d = cell.features
    # Unequal: one person has most of the pairs.
    person = np.repeat(np.arange(cell.people), [100] + [8] * (cell.people - 1) if cell.unequal else 30)
    contrasts = (
        0.4 * rng.normal(size=(len(person), d))
        + np.sqrt(2) * SESSION * rng.normal(size=(cell.people, d))[person]
    )
    return bool(mgpa.MeasurementGate().fit(contrasts + 4.0 * effect * np.eye(d)[0], groups=person).rank_ > 0)


def takes_more(cell: Cell, rng: np.random.Generator, effect: float) -> bool:
    """Return whether a gate has a direction too many: one source differs, weakly, from the others.

    The noise of contrasts has very different sizes along different directions, and so have rows. With an
    effect, two sources differ from the others, each in a direction of its own.
    """
    d, K, n_events = cell.features, cell.sources, 60
    mixing = np.geomspace(2.0, 0.3, d)[:, None] * np.linalg.qr(rng.normal(size=(d, d)))[0]
    effects = np.zeros((K, d))
    effects[-1] = 0.3 * rng.normal(size=d)
    if effect:
        effects[-2] = 0.3 * rng.normal(size=d)
    every_two = [(a, b) for a in range(K) for b in range(a + 1, K)]
    kinds = np.array([(a, b) for a, b in every_two if a == 0 or cell.design == "crossed"])
    views = rng.normal(size=(n_events, K, d)) @ mixing / np.sqrt(2) + effects
    contrasts = np.concatenate([views[:, b] - views[:, a] for a, b in kinds])
    people = np.tile(np.arange(n_events) % cell.people, len(kinds))
    scatter = Scatter.from_rows(rng.normal(size=(1000, d)) @ mixing)
    gate = mgpa.MeasurementGate().fit(
        contrasts, kind=np.repeat(kinds, n_events, axis=0), groups=people, rows=scatter
    )
    return bool(gate.rank_ > 1)


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
    return isinstance(model.to_map(), mgpa.maps.PosteriorMap)


def paired_views(cell: Cell, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return two views of one event of each participant, shifted by one."""
    m, d = cell.people, cell.features
    events = rng.normal(size=(m, d)) @ rng.normal(size=(d, d))
    events /= events.std()
    draw = rng.standard_t(3, (2, m, d)) / np.sqrt(3) if cell.rows == "heavy" else rng.normal(size=(2, m, d))
    if cell.rows == "uneven":
        draw *= np.exp(0.7 * rng.normal(size=(2, m, 1)) - 0.49)
    return events + cell.noise * draw[0], events + 1.0 + cell.noise * draw[1]


@cache
def examination(cell: Cell, entropy: tuple[int, ...], shuffled: float) -> PairExamination:
    """Return what is found in pairs of which a share was shuffled; several decisions ask for the same."""
    rng = np.random.default_rng(entropy)
    A, B = paired_views(cell, rng)
    if shuffled == 1:
        B = B[rng.permutation(len(B))]
    elif shuffled:
        some = rng.choice(len(A), int(len(A) * shuffled), replace=False)
        B[some] = B[np.roll(some, 1)]
    return examine_pairs(A, B)


def examined(cell: Cell, rng: np.random.Generator, shuffled: float) -> PairExamination:
    """Return the examination for this state of a fresh generator."""
    return examination(replace(cell, decision="pairs"), tuple(rng.bit_generator.seed_seq.entropy), shuffled)


def doubts_pairs(cell: Cell, rng: np.random.Generator, effect: float) -> bool:
    """Return whether pairs are doubted; with an effect, a fifth of the second views was shuffled."""
    return bool(doubt(examined(cell, rng, 0.2 if effect else 0.0)))


def refuses_pairs(cell: Cell, rng: np.random.Generator, effect: float) -> bool:
    """Return whether a fit refuses pairs; with an effect, a fifth of the second views was shuffled."""
    return examined(cell, rng, 0.2 if effect else 0.0).pairing is Pairing.PARTLY_WRONG


def doubts_all_pairs(cell: Cell, rng: np.random.Generator, effect: float) -> bool:
    """Return whether pairs are doubted; with an effect, all second views were shuffled."""
    return bool(doubt(examined(cell, rng, 1.0 if effect else 0.0)))


def acts_associated(cell: Cell, rng: np.random.Generator, effect: float) -> bool:
    """Return whether the closed form acts, without a warning, on rows whose task depends on the source."""
    settings = {"design": cell.design, "people": cell.people}
    data = draw_associated(rng, cell.association, cell.cosine, 2.0 * effect, **settings)
    found = mgpa.ClosedFormMGPA().fit(**data).effect_
    return found is not None and found.exists and not found.may_be_populations


def finds_spread_in_windows(cell: Cell, rng: np.random.Generator, effect: float) -> bool:
    """Return whether spread is found in windows of unknown participants, each .9 of the one before."""
    m, d = 200, cell.features

    def wander() -> Any:
        steps = rng.normal(size=(m, d))
        for i in range(1, m):
            steps[i] = 0.9 * steps[i - 1] + np.sqrt(1 - 0.81) * steps[i]
        return steps

    gain = 1.0 + effect * (np.arange(d) < 3)
    rows, views = ((x + 0.3 * wander(), (x + 0.3 * wander()) * gain + 1.0) for x in (wander(), wander()))
    model = mgpa.MGPA().fit(np.concatenate(rows), source=np.repeat([0, 1], m), pairs=views)
    return bool(model.spread_ is not None and model.spread_.is_shown)


DECISIONS: dict[str, Callable[[Cell, np.random.Generator, float], bool]] = {
    "act": acts,
    "gate": takes_a_direction,
    "more": takes_more,
    "begin": begins,
    "go on": goes_on,
    "spread": corrects_spread,
    "doubt": doubts_pairs,
    "refuse": refuses_pairs,
    "mismatched": doubts_all_pairs,
    "associated": acts_associated,
    "windows": finds_spread_in_windows,
}

PEOPLE = (3, 4, 6, 8, 12, 24)
DESIGNS = ("crossed", "nested")
CELLS = (
    [
        Cell(design=design, people=P, sources=K)
        for K in (2, 3, 5)
        for design in DESIGNS
        for P in PEOPLE
        if design == "crossed" or P >= K
    ]
    + [Cell(design=design, people=P, rows="heavy") for design in DESIGNS for P in PEOPLE]
    + [Cell(design=design, people=P, unequal=True) for design in DESIGNS for P in PEOPLE]
    + [Cell(design=design, people=P, features=400) for design in DESIGNS for P in (3, 4)]
    + [Cell(design="mixed", people=P) for P in (6, 12)]
    + [Cell(design="lopsided", people=24)]
    + [Cell(rows="alone"), Cell(rows="alone", people=2, features=200)]
)
SMALL = [Cell(people=4), Cell(design="nested", people=8), Cell(design="mixed", people=6), Cell(sources=3)]
OTHERS = (
    [Cell("gate", people=P) for P in (2, *PEOPLE)]
    + [Cell("more", design, P, sources=4, features=40) for design in ("crossed", "star") for P in (6, 12)]
    + [Cell("begin", design=design, people=P) for design in ("crossed", "nested") for P in (6, 12)]
    + [Cell("go on", people=P) for P in (6, 12)]
    + [Cell("spread", people=P, features=20) for P in PEOPLE]
    + [Cell("spread", people=8, features=20, rows=rows) for rows in ("heavy", "alone")]
    + [Cell("gate", people=P, unequal=True) for P in (4, 6, 12)]
    + [
        Cell(decision, people=P, features=16, noise=noise, rows=rows)
        for decision in ("doubt", "refuse", "mismatched")
        for rows in ("normal", "heavy", "uneven")
        for P in (6, 20, 60)
        for noise in (0.1, 0.5, 1.0, 2.0)
    ]
    + [
        Cell(decision, people=200, features=16, noise=noise)
        for decision in ("doubt", "refuse")
        for noise in (0.5, 1.0, 2.0)
    ]
    + [
        Cell("associated", design=design, people=12, association=association, cosine=cosine)
        for design in DESIGNS
        for association in (0.75, 0.9)
        for cosine in (0.0, 0.3, 0.7)
    ]
    + [Cell("windows", rows="alone")]
)


def count(cell: Cell, effect: float, seeds: range) -> int:
    """Return in how many simulations a decision says yes."""
    total = 0
    for seed in seeds:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                total += DECISIONS[cell.decision](
                    cell, np.random.default_rng([seed, int(1000 * effect)]), effect
                )
        except (MissingEvidence, ValueError):  # nothing is done
            continue
    return total


def false_rate(cell: Cell, n_fits: int = N_FITS) -> float:
    """Return how often a decision says yes without an effect."""
    return count(cell, 0.0, range(n_fits)) / n_fits


def measure(cells: list[Cell], n_fits: int, jobs: int, out: Path) -> None:
    """Measure cells that the file does not have with as many fits, and write it after each of them."""
    record = json.loads(out.read_text()) if out.exists() else {}
    started = time.monotonic()
    with Parallel(jobs, return_as="generator") as workers:
        for cell in cells:
            if record.get(str(cell), {}).get("fits", 0) >= n_fits:
                continue
            tasks = [
                (effect, range(first, min(first + CHUNK, n_fits)))
                for effect in ((0.0,) if cell.decision == "go on" else (0.0, 0.5))
                for first in range(0, n_fits, CHUNK)
            ]
            totals = {0.0: 0, 0.5: 0}
            counts = workers(delayed(count)(cell, *task) for task in tasks)
            for (effect, _), yes in zip(tasks, counts, strict=True):
                totals[effect] += yes
            power = None if cell.decision == "go on" else totals[0.5] / n_fits
            rates = {"false": totals[0.0] / n_fits, "power": power}
            record[str(cell)] = {"fits": n_fits, **rates, "date": date.today().isoformat()}
            out.write_text(json.dumps(record, indent=1) + "\n")
            print(f"{time.monotonic() - started:6.0f} s  {cell}: {record[str(cell)]}", flush=True)


def number(value: float | None, digits: int) -> str:
    """Return a rate as the page writes it: .050, 1.00."""
    return "" if value is None else f"{value:.{digits}f}".removeprefix("0")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Error rates and power of every decision of a fit.")
    parser.add_argument("decisions", nargs="*", help=f"some of: {', '.join(DECISIONS)}; none: all")
    parser.add_argument("--fits", type=int, default=N_FITS, help="simulations for each rate and each power")
    parser.add_argument("--quick", action="store_const", dest="fits", const=QUICK, help=f"{QUICK} of them")
    parser.add_argument("--cells", default="", help="only cells whose name has this in it")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=RECORD, help="where rates are kept (JSON)")
    options = parser.parse_args()
    chosen = options.decisions or list(DECISIONS)
    cells = [c for c in (*CELLS, *OTHERS) if c.decision in chosen and options.cells in str(c)]
    measure(cells, options.fits, options.jobs, options.out)
