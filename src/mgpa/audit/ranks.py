"""Compute AUROC by ranks for all readers and participants, and its chance level.

Ties count half. S is a maximum over readers, so its chance level is above .5. To estimate the chance level,
sources of rows or units are permuted, and the maximum is computed again in every draw. Readers are not
trained again.

Within units (every unit has several sources) there are two null models. *Rows*: sources are permuted among
the rows of a unit, which is valid if rows are independent. *Units*: whole units are flipped, AUROC → 1 -
AUROC, which is valid if sessions differ for reasons other than the source. The larger p is used. Between
units (each has one source), sources are permuted among whole units with the same labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..labels import encode_source, to_numpy
from ..pairs import matched_rows

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

DRAWS = 999
SEED = 1101
# One-sided level, like the lower end of a 95 % interval.
LEVEL = 0.025
#: Minimum number of units for a test by flips; with fewer, the smallest p (2⁻⁵) exceeds the level.
FLIPPED = 6


def participant_auroc(
    scores: Any, labels: Any, participants: Any, weight: Any = None
) -> tuple[tuple[str, ...], Floats]:
    """Return every participant's AUROC: binary, or the macro average of one class against the rest.

    Parameters
    ----------
    scores : array
        For two classes (n,), or (n, R) for R readers; larger means the second class. For K > 2 classes (n,
        K), or (n, R, K), with one column for each of the sorted classes.
    labels, participants : (n,) arrays
        The classes and participants of the rows. Every participant needs every class.
    weight : (n,) array or None
        Weights of the rows; None is 1.

    Returns
    -------
    tuple of str, (P,) array or (P, R) for several readers
        The participants, sorted as text, and their values.

    Examples
    --------
    >>> participant_auroc([0.2, 0.9, 0.8, 0.3], ["no", "yes", "no", "yes"], ["b", "b", "a", "a"])
    (('a', 'b'), array([0., 1.]))
    """
    scores, n = check_scores(scores), len(scores)
    names, who = encode_source(participants, n, name="participants")
    classes, codes = encode_source(labels, n, name="labels")
    if len(classes) < 2:
        raise ValueError(f"labels has {classes.tolist()}; AUROC needs two classes or more.")
    weight = None if weight is None else to_numpy(weight).astype(np.float64)
    counts = np.bincount(who * len(classes) + codes, weight, minlength=len(names) * len(classes))
    if not (counts > 0).all():
        person, k = divmod(int(counts.argmin()), len(classes))
        raise ValueError(
            f"Participant {str(names[person])!r} has no rows of class {classes.tolist()[k]!r}; AUROC needs "
            "every class for every participant. Leave the participant or the class out of all methods."
        )
    several = scores.ndim == (2 if len(classes) == 2 else 3)
    values = within_auroc(scores if several else scores[:, None], codes, who, weight)
    people = [str(name) for name in names.tolist()]
    order = sorted(range(len(people)), key=people.__getitem__)
    return tuple(people[i] for i in order), values[order] if several else values[order, 0]


def within_auroc(scores: NDArray[Any], codes: Codes, units: Codes, weight: Floats | None = None) -> Floats:
    """Return the AUROC of each unit between its classes or sources, (P, R); NaN for units with only one.

    ``scores`` are (n, R) or (n, R, K), ``codes`` and ``units`` the number of each row's class and unit.
    """
    columns, order = score_columns(scores), np.argsort(units, kind="stable")
    values = np.full((int(units.max()) + 1, scores.shape[1]), np.nan)
    for rows in np.split(order, np.flatnonzero(np.diff(units[order])) + 1):
        present = np.unique(codes[rows])
        if len(present) > 1:
            weights = None if weight is None else weight[rows]
            areas = [_auroc(column[rows], codes[rows] == k, weights) for k, column in columns if k in present]
            values[units[rows[0]]] = np.mean(areas, axis=0)
    return values


def _auroc(scores: NDArray[Any], positive: NDArray[np.bool_], weight: Floats | None) -> Floats:
    """Return the AUROC of every column, by ranks or, for weighted rows, by cumulative weights."""
    if weight is not None:
        right = placements(scores[positive], scores[~positive], weight[~positive])
        return np.asarray(weight[positive] @ right / weight[positive].sum())
    total = ranks(scores)[positive].sum(axis=0)
    return np.asarray(rank_auroc(total, int(positive.sum()), len(positive)))


def ranks(scores: NDArray[Any]) -> Floats:
    """Return the rank of every row in each column, from 1; ties share their mean rank.

    Examples
    --------
    >>> ranks(np.array([[0.2], [0.7], [0.2], [0.1]]))[:, 0].tolist()
    [2.5, 4.0, 2.5, 1.0]
    """
    order = np.argsort(scores, axis=0, kind="stable")
    ordered = np.take_along_axis(scores, order, axis=0)
    n, columns = scores.shape
    new = np.ones((n + 1, columns), bool)  # where a run of ties begins, and the end
    new[1:-1] = ordered[1:] != ordered[:-1]
    placed = np.empty((n, columns))
    for column in range(columns):
        edges = np.flatnonzero(new[:, column])
        shared = np.repeat((edges[:-1] + 1 + edges[1:]) / 2, np.diff(edges))
        placed[order[:, column], column] = shared
    return placed


def rank_auroc(total: Any, m: int, n: int) -> Any:
    """Return the AUROC of m positive rows of n whose ranks have this sum."""
    return (total - m * (m + 1) / 2) / (m * (n - m))


def between_auroc(scores: NDArray[Any], codes: Codes, units: Codes, classes: Codes) -> Floats:
    """Return each unit's AUROC against units of other sources, (P, R), within classes of the label.

    Every unit has the same weight. The mean over units of a class and source, then over sources, then over
    classes, is the AUROC over rows (of one source against the rest, if there are more than two). A unit in
    several classes has the mean of its values; a unit without comparison has NaN.
    """
    n_units, columns = int(units.max()) + 1, score_columns(scores)
    total, count = np.zeros((n_units, scores.shape[1])), np.zeros(n_units)
    for label in np.unique(classes):
        rows = np.flatnonzero(classes == label)
        source, unit = codes[rows], units[rows]
        members, first = np.unique(unit, return_index=True)
        sizes = np.bincount(source[first], minlength=columns[-1][0] + 1)  # units of every source or class
        if (sizes > 0).sum() < 2:
            continue
        weight = 1.0 / np.bincount(unit, minlength=n_units)[unit]
        for k, column in columns:
            is_k, rest = source == k, sizes.sum() - sizes[k]
            if not sizes[k] or not rest:
                continue
            scored = column[rows]
            right = np.empty(scored.shape)
            right[is_k] = placements(scored[is_k], scored[~is_k], weight[~is_k])
            right[~is_k] = 1 - placements(scored[~is_k], scored[is_k], weight[is_k])
            # Both sides of a comparison give the same area, so two sources are compared once.
            share = np.where(is_k, 1.0, sizes[source] / rest) * (1.0 if len(columns) == 1 else 0.5)
            np.add.at(total, unit, right * (weight * share)[:, None])
        count[members] += 1
    with np.errstate(invalid="ignore"):
        return np.asarray(total / count[:, None])


def placements(scores: NDArray[Any], reference: NDArray[Any], weight: Floats) -> Floats:
    """Return the weighted share of reference scores below each score; ties count half."""
    shares = np.empty(scores.shape)
    for k in range(scores.shape[1]):
        # Stable, so that sums of weights within ties do not depend on the processor's sorting code.
        order = np.argsort(reference[:, k], kind="stable")
        ordered, total = reference[order, k], np.concatenate([[0.0], np.cumsum(weight[order])])
        first, last = np.searchsorted(ordered, scores[:, k]), np.searchsorted(ordered, scores[:, k], "right")
        shares[:, k] = total[first] + total[last]
    return np.asarray(shares / (2 * weight.sum()))


def score_columns(scores: NDArray[Any]) -> list[tuple[int, NDArray[Any]]]:
    """Return each scored class with its (n, R) scores; with two classes, only the second is scored."""
    return [(1, scores)] if scores.ndim == 2 else [(k, scores[..., k]) for k in range(scores.shape[-1])]


def check_scores(scores: Any, name: str = "scores") -> NDArray[Any]:
    """Return scores as a finite numeric array with at least one row."""
    array: NDArray[Any] = to_numpy(scores)
    if array.ndim == 0 or array.dtype.kind not in "biuf" or not array.size or not np.isfinite(array).all():
        raise ValueError(f"{name} must hold finite numbers, one row or more; got shape {array.shape}.")
    return array


@dataclass(frozen=True)
class Chance:
    """The chance level of S: its value when scores do not depend on the source.

    Attributes
    ----------
    p : float
        Share of permutations with at least the measured S.
    high : float
        Value that a share ``LEVEL`` of permutations exceeds.
    """

    p: float
    high: float

    @property
    def excluded(self) -> bool:
        """Whether the source is readable: p is at most ``LEVEL``."""
        return self.p <= LEVEL


def compare(measured: float, exchanged: Floats, centred: bool = False) -> Chance:
    """Return the chance level of a value from its permutations.

    With ``centred``, the bias from choosing among readers is subtracted from the level, as it is from S; p
    compares maxima with maxima.
    """
    at_least = int((exchanged >= measured - 1e-9).sum())
    p = (1 + at_least) / (1 + len(exchanged))
    return Chance(p, float(np.quantile(exchanged, 1 - LEVEL)) - centred * float(exchanged.mean() - 0.5))


def permuted_mean(
    scores: NDArray[Any], codes: Codes, people: Codes, split: int = 0, draws: int = DRAWS
) -> Floats:
    """Return each reader's mean AUROC over participants, (draws, R), with sources permuted among their rows.

    ``scores`` and ``codes`` are those of :func:`within_auroc`. The permutations depend only on the rows and
    on ``split``; different splits have independent permutations.
    """
    rng, total = _generator(split), np.zeros((draws, scores.shape[1]))
    columns, order = score_columns(scores), np.argsort(people, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(people[order])) + 1):
        n = len(rows)
        swapped = rng.permuted(np.tile(codes[rows], (draws, 1)), axis=1)
        by_class = []
        for k, column in columns:
            placed, m = ranks(column[rows]), int((codes[rows] == k).sum())
            if 0 < m < n:
                by_class.append(rank_auroc((swapped == k) @ placed, m, n))
        total += np.mean(by_class, axis=0)
    return np.asarray(total / (people.max() + 1))


def with_units_flipped(by_rows: Chance, auroc: Floats, draws: int = DRAWS) -> Chance:
    """Return the chance level that also includes flips of whole units; the larger p is used.

    The chance level shown beside S assumes the same deviations of units, but around .5. ``by_rows`` is the
    chance level from rows permuted within units; ``auroc`` (F, P, R) has the AUROC of each fit, unit and
    reader.
    """
    signs = np.random.default_rng(SEED).choice([-1.0, 1.0], size=(draws, auroc.shape[1])) / auroc.shape[1]
    best = auroc.mean(axis=1).max(axis=-1).mean()
    about_chance, about_mean = (
        np.mean(
            [0.5 + (signs @ (fit - middle)).max(axis=-1) for fit, middle in zip(auroc, middles, strict=True)],
            axis=0,
        )
        for middles in (np.full(len(auroc), 0.5), auroc.mean(axis=1))
    )
    level = max(by_rows.high, compare(float(best), about_mean, centred=True).high)
    return Chance(max(by_rows.p, compare(float(best), about_chance).p), level)


def _generator(split: int) -> np.random.Generator:
    """Return the generator of a split; each split has its own, so that permutations are independent."""
    return np.random.default_rng([SEED, split] if split else SEED)


def permuted_between(
    scores: NDArray[Any], codes: Codes, units: Codes, classes: Codes, split: int = 0, draws: int = DRAWS
) -> Floats:
    """Return each reader's AUROC between units, (1 + draws, R): measured, then with sources permuted.

    Units have equal weights, comparisons are within classes of the label, and sources are permuted among the
    units of a class. Arguments are those of :func:`between_auroc`.
    """
    rng = _generator(split)
    columns = score_columns(scores)
    total, n_classes = np.zeros((1 + draws, scores.shape[1])), 0
    for label in np.unique(classes):
        rows = classes == label
        _, first, unit = np.unique(units[rows], return_index=True, return_inverse=True)
        source, n = codes[rows][first], len(first)
        if len(np.unique(source)) < 2:
            continue
        swapped = np.concatenate([source[None], rng.permuted(np.tile(source, (draws, 1)), axis=1)])
        share = 1.0 / np.bincount(unit)[unit]
        areas = []
        for k, column in columns:
            m = int((source == k).sum())
            if 0 < m < n:
                # A unit's mean rank among all rows of the class, every unit weighing the same.
                placed = n * placements(column[rows], column[rows], share) * share[:, None]
                placed = np.stack([np.bincount(unit, r, n) for r in placed.T], axis=1)
                areas.append(((swapped == k) @ placed / m - m / 2) / (n - m))
        total += np.mean(areas, axis=0)
        n_classes += 1
    return total / max(n_classes, 1)


def twin_accuracy(scores: NDArray[Any], codes: Codes, events: NDArray[Any] | None, units: Codes) -> Floats:
    """Return the share of events for which each reader assigns both views correctly, (P, R).

    Given both views of one event, a reader assigns them to the sources. This is correct if the sum of its
    scores for the true sources exceeds the sum for exchanged views, and counts half if both are equal; chance
    is .5. The content of both views is the same, so it does not act as noise, as it does in the AUROC over
    rows of different events. NaN for units without such events. With more than two sources, all pairs of
    sources have equal weights.

    Parameters
    ----------
    scores, codes, units : arrays
        As in :func:`within_auroc`.
    events : (n,) array or None
        The event of every row (``pair_id``).
    """
    values = np.full((int(units.max()) + 1, scores.shape[1]), np.nan)
    if events is None:
        return values
    # Log-odds of the second source; of more sources log-probabilities of each.
    logs = np.stack([np.zeros_like(scores), scores], axis=2) if scores.ndim == 2 else np.log(
        scores.clip(np.finfo(np.float32).tiny)
    )  # fmt: skip
    right, count = np.zeros_like(values), np.zeros(len(values))
    present = np.unique(codes)
    for i, a in enumerate(present):
        for b in present[i + 1 :]:
            first, second = matched_rows(codes, events, a, b)
            margin = logs[first, :, a] + logs[second, :, b] - logs[first, :, b] - logs[second, :, a]
            whose = units[first]
            np.add.at(right, whose, 0.5 + 0.5 * np.sign(margin))
            count += np.bincount(whose, minlength=len(values))
    seen = count > 0
    values[seen] = right[seen] / count[seen, None]
    return values
