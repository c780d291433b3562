"""What the best of many readers reaches by chance: source labels swapped within participants.

S is a maximum over readers, so guessing does not give .5 but somewhat more. Readers stay as they were
trained. Which of a participant's EVAL rows has which label is drawn anew, as if scores knew nothing of the
source, and the maximum is taken again in every draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

Floats = NDArray[np.float64]

DRAWS = 999
SEED = 1101
# One-sided, as the lower end of a 95 % interval is.
LEVEL = 0.025


@dataclass(frozen=True)
class Chance:
    """What S would be without any source in the scores.

    Attributes
    ----------
    p : float
        Share of draws that reach the S that was found.
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


def compare(found: float, drawn: Floats) -> Chance:
    """Return where a value lies among draws of it by chance.

    Examples
    --------
    >>> compare(0.61, np.linspace(0.49, 0.55, 999)).p
    0.001
    """
    at_least = int((drawn >= found - 1e-9).sum())
    p = (1 + at_least) / (1 + len(drawn))
    return Chance(p, float(drawn.mean()), float(np.quantile(drawn, 1 - LEVEL)))


def permuted_auroc(
    scores: NDArray[Any], codes: NDArray[np.int64], people: NDArray[np.int64], draws: int = DRAWS
) -> Floats:
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
    >>> drawn = permuted_auroc(scores, np.arange(40) % 2, np.arange(40) // 20)
    >>> drawn.shape, bool(abs(drawn.mean() - 0.5) < 0.01)
    ((999, 2, 3), True)
    """
    rng = np.random.default_rng(SEED)
    # With two sources only the second is scored, and its AUROC is the whole answer.
    scored = [(1, scores)] if scores.ndim == 2 else [(k, scores[..., k]) for k in range(scores.shape[-1])]
    found = np.empty((draws, int(people.max()) + 1, scores.shape[1]))
    for person in range(found.shape[1]):
        mine = people == person
        n = int(mine.sum())
        swapped = rng.permuted(np.tile(codes[mine], (draws, 1)), axis=1)
        areas = []
        for k, column in scored:
            ranks, m = rankdata(column[mine], axis=0), int((codes[mine] == k).sum())
            areas.append(((swapped == k) @ ranks - m * (m + 1) / 2) / (m * (n - m)))
        found[:, person] = np.mean(areas, axis=0)
    return found
