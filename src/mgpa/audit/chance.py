"""What the best of many readers reaches by chance: sources exchanged, the maximum taken again in every draw.

S is a maximum over readers, so guessing does not give .5 but somewhat more. Readers stay as they were
trained; which rows or units have which source is exchanged anew, as if scores knew nothing of the source.

Within units (every unit has several sources) there are two nulls. *Rows*: sources swapped among the rows of a
unit; the paper's, right if rows are independent. *Units*: whole units flipped, AUROC → 1 - AUROC; right if
sessions differ from each other for reasons that have nothing to do with the source. The larger p counts.
Between units (each has one source), sources are exchanged among whole units with the same labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from .ranks import placements, score_columns

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

DRAWS = 999
SEED = 1101
# One-sided, as the lower end of a 95 % interval is.
LEVEL = 0.025
#: Fewer units than this cannot be told from chance by flipping them: 2⁻⁵ is more than the level.
FLIPPED = 6


@dataclass(frozen=True)
class Chance:
    """What S would be without any source in the scores.

    Attributes
    ----------
    p : float
        Share of draws that reach the S that was measured.
    mean, high : float
        Their mean, and what the ``LEVEL`` share of them exceeds.
    """

    p: float
    mean: float
    high: float

    @property
    def excluded(self) -> bool:
        """Whether the source is readable: chance would seldom do as well."""
        return self.p <= LEVEL


def compare(measured: float, exchanged: Floats) -> Chance:
    """Return where a value lies among draws of it by chance.

    Examples
    --------
    >>> compare(0.61, np.linspace(0.49, 0.55, 999)).p
    0.001
    """
    at_least = int((exchanged >= measured - 1e-9).sum())
    p = (1 + at_least) / (1 + len(exchanged))
    return Chance(p, float(exchanged.mean()), float(np.quantile(exchanged, 1 - LEVEL)))


def permuted_auroc(scores: NDArray[Any], codes: Codes, people: Codes, draws: int = DRAWS) -> Floats:
    """Return every reader's AUROC on every participant, (draws, P, R), with labels swapped within them.

    Parameters
    ----------
    scores : (n, R) or (n, R, K) array
        As :func:`mgpa.audit.participant_auroc` takes them.
    codes, people : (n,) arrays
        Number of each row's source, and of its participant.
    draws : int
        How often labels are swapped; always the same ones for the same rows.

    Examples
    --------
    >>> scores = np.random.default_rng(0).normal(size=(40, 3))
    >>> exchanged = permuted_auroc(scores, np.arange(40) % 2, np.arange(40) // 20)
    >>> exchanged.shape, bool(abs(exchanged.mean() - 0.5) < 0.01)
    ((999, 2, 3), True)
    """
    rng = np.random.default_rng(SEED)
    columns = score_columns(scores)
    areas = np.empty((draws, int(people.max()) + 1, scores.shape[1]))
    for person in range(areas.shape[1]):
        rows = people == person
        n = int(rows.sum())
        swapped = rng.permuted(np.tile(codes[rows], (draws, 1)), axis=1)
        by_class = []
        for k, column in columns:
            ranks, m = rankdata(column[rows], axis=0), int((codes[rows] == k).sum())
            if 0 < m < n:
                by_class.append(((swapped == k) @ ranks - m * (m + 1) / 2) / (m * (n - m)))
        areas[:, person] = np.mean(by_class, axis=0)
    return areas


def with_units_flipped(by_rows: Chance, auroc: Floats, draws: int = DRAWS) -> Chance:
    """Return the chance level that holds where whole units are flipped too: the larger p counts.

    The level shown beside S is what units that differ as these do would reach around .5.

    Parameters
    ----------
    by_rows : Chance
        From rows swapped within units.
    auroc : (F, P, R) array
        AUROC of every fit, unit and reader.
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
    p = max(by_rows.p, compare(float(best), about_chance).p)
    level = max(by_rows.high, float(np.quantile(about_mean, 1 - LEVEL)))
    return Chance(p, max(by_rows.mean, float(about_mean.mean())), level)


def permuted_between(
    scores: NDArray[Any], codes: Codes, units: Codes, classes: Codes, draws: int = DRAWS
) -> Floats:
    """Return each reader's AUROC between units, (1 + draws, R): as it is, then with sources exchanged.

    Units weigh the same, comparisons are within classes of the label, and sources are exchanged among the
    units of a class.

    Parameters
    ----------
    scores : (n, R) or (n, R, K) array
    codes, units, classes : (n,) arrays
        Number of each row's source, unit and class of the label.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> units = np.repeat(np.arange(20), 5)
    >>> exchanged = permuted_between(rng.normal(size=(100, 3)), units % 2, units, units // 10)
    >>> exchanged.shape, bool(abs(exchanged[1:].mean() - 0.5) < 0.01)
    ((1000, 3), True)
    """
    rng = np.random.default_rng(SEED)
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
                ranks = n * placements(column[rows], column[rows], share) * share[:, None]
                ranks = np.stack([np.bincount(unit, r, n) for r in ranks.T], axis=1)
                areas.append(((swapped == k) @ ranks / m - m / 2) / (n - m))
        total += np.mean(areas, axis=0)
        n_classes += 1
    return total / max(n_classes, 1)
