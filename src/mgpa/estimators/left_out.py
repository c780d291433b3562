"""Estimate results for an unseen device by leaving each source out in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from ..labels import is_paired
from ..maps import CorrectionMap

Floats = NDArray[np.float64]

PAIRS = 10
FEWEST_EVENTS = 4
BATCH = 50
# Treatments of rows of an unknown device, with the strength of the map.
TREATMENTS = {"uncorrected": 0.0, "half of the correction": 0.5, "the correction": 1.0}
# The treatments (and adapting) as options of `mgpa apply`.
OPTIONS = ("--unknown leave", "--strength 0.5", "--unknown correct", "--unknown adapt")
ADAPTED, ADDED = "adapted to its rows", f"{PAIRS} pairs with one device"


@dataclass(frozen=True)
class LeftOut:
    """Results for sources that were left out; prints as a table and a sentence.

    ``distance`` compares the options for the rows of every source. It is the mean squared distance of the
    source's views to the other sources' corrected views of the same events, divided by the distance to other
    events: 0 is perfect, 1 is no better than chance. ``noticed`` is the share of batches of 50 rows with an
    alarm.
    """

    distance: dict[str, dict[str, float]]
    noticed: dict[str, float]

    @property
    def mean(self) -> dict[str, float]:
        """The mean distances over sources."""
        names = dict.fromkeys(name for row in self.distance.values() for name in row)
        return {name: float(np.mean([row[name] for row in self.distance.values()])) for name in names}

    @property
    def fallback(self) -> str:
        """The option without pairs of the new device that has the smallest distance."""
        return min((*TREATMENTS, ADAPTED), key=lambda name: self.mean[name])

    @property
    def option(self) -> str:
        """The corresponding option of ``mgpa apply``."""
        return OPTIONS[(*TREATMENTS, ADAPTED).index(self.fallback)]

    def __str__(self) -> str:
        names = list(self.mean)
        width = max(map(len, names))
        sources = list(self.distance)
        lines = [f"{'left out':<{width}}  " + "  ".join(f"{s[:8]:>8}" for s in sources) + "      mean"]
        for name in names:
            cells = "  ".join(f"{self.distance[s][name]:8.3f}" for s in sources)
            lines.append(f"{name:<{width}}  {cells}  {self.mean[name]:8.3f}")
        noticed = "  ".join(f"{self.noticed[s]:8.0%}" for s in sources)
        lines.append(f"{'noticed in ' + str(BATCH) + ' rows':<{width}}  {noticed}")
        best = f"{self.fallback} ({self.mean[self.fallback]:.3f}; mgpa apply {self.option})"
        sentence = (
            f"Best without pairs: {best}. With {PAIRS} pairs: {self.mean[ADDED]:.3f} (mgpa adapt --known)."
        )
        return "\n".join([*lines, sentence])

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, ready for JSON."""
        return {
            "distance": self.distance,
            "noticed": self.noticed,
            "mean": self.mean,
            "fallback": self.fallback,
            "option": self.option,
        }


def leave_one_source_out(
    model: Any,
    X: Any,
    *,
    source: ArrayLike,
    pair_id: Any,
    groups: ArrayLike | None = None,
    random_state: int = 0,
) -> LeftOut:
    """Leave each source out of the fit in turn and compare corrections of its rows.

    Parameters
    ----------
    model : estimator
        ``MGPA`` or ``ClosedFormMGPA``, whose maps can be adapted to another device.
    X, source, pair_id, groups
        As for ``fit``, with three sources or more, because two sources show nothing about a third.

    Examples
    --------
    >>> import numpy as np, mgpa
    >>> rng = np.random.default_rng(0)
    >>> source = np.repeat(["a", "b", "c", "d"], 200)
    >>> shift = np.repeat(rng.normal(size=(4, 5)) * 2, 200, axis=0)
    >>> X = np.tile(rng.normal(size=(200, 5)), (4, 1)) + shift + 0.2 * rng.normal(size=(800, 5))
    >>> ids = np.tile(np.arange(200), 4)
    >>> found = leave_one_source_out(mgpa.ClosedFormMGPA(), X, source=source, pair_id=ids)
    >>> found.mean["10 pairs with one device"] < found.mean["uncorrected"]
    True
    """
    X, source, ids = np.asarray(X, dtype=np.float64), np.asarray(source).astype(str), np.asarray(pair_id)
    names = np.unique(source).tolist()
    if len(names) < 3:
        raise ValueError(
            f"source has {len(names)} values ({', '.join(names)}); at least three are needed, because two "
            "devices show nothing about a third."
        )
    rng = np.random.default_rng(random_state)
    distance, noticed = {}, {}
    for name in names:
        rest, new = source != name, np.flatnonzero(source == name)
        whose = None if groups is None else np.asarray(groups)[rest]
        _, event, views = np.unique(ids[rest], return_inverse=True, return_counts=True)
        event = np.where(is_paired(ids[rest]) & (views[event] > 1), event, -1)
        m = clone(model).fit(X[rest], source=source[rest], pair_id=event, groups=whose).to_map()
        goal = {
            one: m.transform(X[rest & (ids == one)]).mean(axis=0)
            for one in np.intersect1d(ids[new][is_paired(ids[new])], ids[rest])
        }
        shared = np.array([row for row in new if ids[row] in goal], dtype=np.int64)
        if len(shared) < FEWEST_EVENTS:
            continue
        goals = np.stack([goal[ids[row]] for row in shared])
        rows = {label: m.transform(X[shared], strength=s) for label, s in TREATMENTS.items()}
        people = 1 if groups is None else len(np.unique(np.asarray(groups)[new]))
        rows[ADAPTED] = m.adapt(X[new], n_participants=people).transform(X[shared])
        distances = {label: closeness(moved, goals, m) for label, moved in rows.items()}
        partner, pairs, others = _few_pairs(X, source, ids, shared, rest, rng)
        moved = m.add_source("new", pairs, known=partner).transform(X[shared[others]])
        distances[ADDED] = closeness(moved, goals[others], m)
        distance[name] = {label: round(value, 4) for label, value in distances.items()}
        batches = [rng.choice(new, min(BATCH, len(new)), replace=False) for _ in range(10)]
        noticed[name] = float(np.mean([m.check(X[batch]).unknown_device for batch in batches]))
    if not distance:
        raise ValueError("No source shares enough events with the others to be left out.")
    return LeftOut(distance, noticed)


def closeness(moved: Floats, goals: Floats, m: CorrectionMap) -> float:
    """Return the mean squared distance of rows to their targets, relative to targets of other rows."""
    apart = (moved - goals) / m.scale
    others = np.concatenate([(moved - np.roll(goals, k, axis=0)) / m.scale for k in (1, len(goals) // 2)])
    return float(np.mean(apart**2) / max(np.mean(others**2), np.finfo(np.float64).tiny))


def _few_pairs(
    X: Floats, source: Any, ids: Any, rows: NDArray[np.int64], rest: Any, rng: np.random.Generator
) -> tuple[str, tuple[Floats, Floats], NDArray[np.bool_]]:
    """Return the device that shares most events, a few pairs with this device, and all other rows."""
    candidates = np.unique(source[rest]).tolist()
    common = {name: np.intersect1d(ids[rows], ids[source == name]) for name in candidates}
    partner = max(candidates, key=lambda name: len(common[name]))
    events = rng.permutation(common[partner])[: min(PAIRS, len(common[partner]) // 2)]
    a = np.array([np.flatnonzero((source == partner) & (ids == event))[0] for event in events])
    b = np.array([rows[np.flatnonzero(ids[rows] == event)[0]] for event in events])
    return partner, (X[a], X[b]), ~np.isin(ids[rows], events)
