"""Estimate the number of pairs that a correction needs, from fits on fewer pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from ..errors import MissingEvidence
from ..labels import Codes, Labels, is_paired
from ..pairs import Pairs

Floats = NDArray[np.float64]

HELD_OUT = 0.3  # share of held-out events
ENOUGH = 0.1  # pairs are enough if more pairs would add less than this share of the total gain
RESAMPLES = 500
FEWEST_PARTICIPANTS = 4  # with fewer participants, events are held out instead of participants


@dataclass(frozen=True)
class PairsNeeded:
    """Results of fits on fewer pairs, measured on held-out events; prints as a table and a sentence.

    ``distance`` is the mean squared distance between corrected views of one event, divided by that between
    views of different events, for each of ``sizes`` (numbers of events) and each draw. ``uncorrected`` is the
    same before correction. ``needed`` is the number of events beyond which more events would add less than a
    tenth of the total gain, with a 95 % ``interval`` over draws; it is infinite if pairs do not help.
    """

    sizes: tuple[int, ...]
    distance: Floats
    uncorrected: float
    needed: float
    interval: tuple[float, float]

    def __str__(self) -> str:
        lines = [f"{'events':>8}  distance within pairs (share of that between events)"]
        lines += [f"{'none':>8}  {self.uncorrected:.3f}"]
        for size, draws in zip(self.sizes, self.distance, strict=True):
            lines.append(f"{size:>8}  {draws.mean():.3f} (± {draws.std():.3f})")
        if not np.isfinite(self.needed):
            return "\n".join([*lines, "More pairs do not bring views closer: run mgpa check-pairs."])
        low, high = (f"{value:.0f}" if np.isfinite(value) else "∞" for value in self.interval)
        return "\n".join([*lines, f"Enough: about {self.needed:.0f} events ({low} to {high})."])

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, ready for JSON; infinite numbers are None."""

        def number(value: float) -> float | None:
            return round(float(value), 4) if np.isfinite(value) else None

        return {
            "sizes": list(self.sizes),
            "distance": self.distance.round(4).tolist(),
            "uncorrected": number(self.uncorrected),
            "needed": number(self.needed),
            "interval": [number(value) for value in self.interval],
        }


def pairs_needed(
    model: Any,
    X: Any,
    *,
    source: ArrayLike,
    pair_id: Any,
    groups: ArrayLike | None = None,
    sizes: tuple[int, ...] | None = None,
    repeats: int = 4,
    random_state: int = 0,
) -> PairsNeeded:
    """Estimate how many paired events a correction needs, from the available ones.

    Three tenths of the events (of the participants, where ``groups`` are known) are held out. The model is
    fitted on all other rows with the pairs of some events only, and the corrected views of the held-out
    events are compared. The gain from further events is extrapolated.

    Parameters
    ----------
    model : estimator
        Fitted as a clone, ``repeats`` times for each size.
    X, source, pair_id, groups
        As for ``fit``.
    sizes : tuple of int or None
        Numbers of events to fit with; by default from five up to all of them.

    Examples
    --------
    >>> import numpy as np, mgpa
    >>> rng = np.random.default_rng(0)
    >>> events = np.repeat(rng.normal(size=(120, 6)) @ rng.normal(size=(6, 6)), 2, axis=0)
    >>> X = events + np.outer(np.tile([0.0, 1.0], 120), np.ones(6)) + rng.normal(size=(240, 6)) * 0.3
    >>> source, event = np.tile([0, 1], 120), np.arange(240) // 2
    >>> result = pairs_needed(mgpa.ClosedFormMGPA(), X, source=source, pair_id=event)
    >>> bool(result.uncorrected > result.distance[-1].mean())
    True
    """
    X, source, ids = np.asarray(X), np.asarray(source), np.asarray(pair_id)
    rng = np.random.default_rng(random_state)
    codes = np.unique(source, return_inverse=True)[1].astype(np.int64)
    rest, out = hold_out_events(ids, groups, rng)
    if sizes is None:
        sizes = tuple(np.unique(np.geomspace(4, len(rest), 5).round().astype(int)).tolist())
    if not all(2 <= size <= len(rest) for size in sizes):
        raise ValueError(f"sizes are {sizes}; after holding out, there are {len(rest)} events.")
    fitted = ~np.isin(ids, out)
    test = Pairs.from_ids(X, codes, np.where(fitted, -1, _coded(ids)))
    scale = np.maximum(X[fitted].std(axis=0), np.finfo(np.float64).tiny)
    uncorrected = closeness(test.a / scale, test.b / scale)
    distance = np.full((len(sizes), repeats), uncorrected)
    options = {"source": source[fitted], "groups": None if groups is None else np.asarray(groups)[fitted]}
    for draw in range(repeats):
        order = rng.permutation(rest)
        for i, size in enumerate(sizes):
            chosen = np.where(np.isin(ids, order[:size]), _coded(ids), -1)[fitted]
            try:
                m = clone(model).fit(X[fitted], pair_id=chosen, **options).to_map()
            except (MissingEvidence, ValueError):  # too few pairs for an effect, or for all sources
                continue
            distance[i, draw] = closeness(m.transform(test.a) / scale, m.transform(test.b) / scale)
    draws = rng.integers(repeats, size=(RESAMPLES, repeats))
    estimates = [_needed(sizes, distance[:, draw].mean(axis=1), uncorrected) for draw in draws]
    low, high = np.quantile(estimates, [0.025, 0.975], method="nearest")
    needed = _needed(sizes, distance.mean(axis=1), uncorrected)
    return PairsNeeded(sizes, distance, uncorrected, needed, (float(low), float(high)))


def hold_out_events(ids: Labels, groups: Any, rng: np.random.Generator) -> tuple[Labels, Labels]:
    """Return fitting events and held-out events, from different participants if there are enough."""
    labels, counts = np.unique(ids[is_paired(ids)], return_counts=True)
    events = labels[counts > 1]
    unit = events if groups is None else np.array([np.asarray(groups)[ids == event][0] for event in events])
    unit = unit if len(np.unique(unit)) >= FEWEST_PARTICIPANTS else events
    units = rng.permutation(np.unique(unit))
    out = events[np.isin(unit, units[: max(1, round(HELD_OUT * len(units)))])]
    rest = np.setdiff1d(events, out)
    if len(rest) < 4 or len(out) < 2:
        raise MissingEvidence(
            f"{len(events)} paired events are too few to extrapolate from; at least 6 are needed."
        )
    return rest, out


def closeness(a: Floats, b: Floats) -> float:
    """Return the mean squared distance between views of one event, relative to different events."""
    apart = np.mean((a - np.roll(b, 1, axis=0)) ** 2)
    return float(np.mean((a - b) ** 2) / apart) if apart > 0 else 1.0


def _coded(ids: Labels) -> Codes:
    """Return pair ids as positions among the distinct ids."""
    return np.unique(ids, return_inverse=True)[1].astype(np.int64)


def _needed(sizes: tuple[int, ...], distance: Floats, uncorrected: float) -> float:
    """Return the number of events at which distances exceed their limit by a tenth of the total gain.

    Distances are modelled as a + b / nᵖ, with p = 1/2 or 1, whichever fits better.
    """
    fits = []
    for power in (0.5, 1.0):
        design = np.column_stack([np.ones(len(sizes)), 1.0 / np.asarray(sizes) ** power])
        (limit, slope), *_ = np.linalg.lstsq(design, distance, rcond=None)
        error = float(np.sum((design @ np.array([limit, slope]) - distance) ** 2))
        fits.append((error, power, max(float(limit), 0.0), float(slope)))
    _, power, limit, slope = min(fits)
    gain = uncorrected - limit
    if gain <= 0.02 * uncorrected:
        return float("inf")
    return float(max(2.0, max(slope, 0.0) / (ENOUGH * gain)) ** (1.0 / power))
