"""The development rule of the reuse study: which of a map's operating points to take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..maps import CorrectionMap, SequentialMap
from .budget import as_map

#: The affine strengths searched in the paper's reuse study: 0, .02, …, 1, 1.1, 1.2, 1.3.
STRENGTHS: tuple[float, ...] = (*(round(0.02 * i, 2) for i in range(51)), 1.1, 1.2, 1.3)


def operating_points(m: CorrectionMap, strengths: Sequence[float] = STRENGTHS) -> Iterator[CorrectionMap]:
    """Yield every candidate of the reuse study: all prefixes of a staged map, or the affine strengths.

    The first prefix, and the first of the default strengths, is the identity.
    """
    m = as_map(m)
    if isinstance(m, SequentialMap):
        yield from (m[:k] for k in range(len(m) + 1))
    else:
        yield from (m.with_strength(strength) for strength in strengths)


def select_by_development(
    worst: Any, heads: Any, movement: Any, *, identity: int = 0, max_loss: float = 0.01
) -> int:
    """Return the index of the operating point the reuse study's development rule picks.

    Maximise worst-association AUROC among points that lose at most ``max_loss`` of every head's AUROC under
    independent association; ties go to less movement, then to the earlier point.

    Parameters
    ----------
    worst : (n_points,) array
        Worst-association AUROC of the shortcut head on development data.
    heads : (n_points, n_heads) array
        AUROC of each head at independent association.
    movement : (n_points,) array
        Development movement.
    identity : int
        Which point is the uncorrected one; losses are relative to it.

    Examples
    --------
    >>> select_by_development([0.5, 0.7, 0.8], [[0.62], [0.615], [0.6]], [0, 0.1, 0.2])   # 0.8 costs 0.02
    1
    """
    worst, heads, movement = (np.asarray(a, dtype=np.float64) for a in (worst, heads, movement))
    if heads.ndim != 2 or not len(worst) == len(heads) == len(movement):
        raise ValueError(
            f"worst {worst.shape}, heads {heads.shape} and movement {movement.shape} must describe the same "
            "points: (n,), (n, n_heads) and (n,)."
        )
    for name, values in (("worst", worst), ("heads", heads), ("movement", movement)):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} has missing values; every point must be scored.")
    slack = 4 * np.finfo(np.float64).eps
    admissible = np.flatnonzero((heads >= heads[identity] - max_loss - slack).all(axis=1))
    best = worst[admissible].max()
    tied = admissible[worst[admissible] >= best - slack]
    return int(min(tied, key=lambda i: (movement[i], i)))


def select_within_family(worst: Any, movement: Any, *, tolerance: float = 0.002) -> int:
    """Return the recipe to take among a family's selected points.

    Recipes within ``tolerance`` of the best worst-association AUROC count as equal; the one that moves
    least wins, then the earlier.
    """
    worst, movement = np.asarray(worst, dtype=np.float64), np.asarray(movement, dtype=np.float64)
    near = np.flatnonzero(worst >= worst.max() - tolerance - 1e-15)
    return int(min(near, key=lambda i: (movement[i], i)))
