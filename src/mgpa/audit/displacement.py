"""How far embeddings moved: per participant, per source, and outside the gate."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..endpoint import movement

Floats = NDArray[np.float64]


def movement_by_group(
    before: Any, after: Any, groups: NDArray[Any], varies: NDArray[np.bool_] | None = None
) -> tuple[tuple[str, ...], Floats]:
    """Return ‖H' - H‖_F / ‖H‖_F within each group, and the groups, sorted as text.

    Parameters
    ----------
    before, after : (n, d) or (n, t, d) arrays
        Rows, or tokens, in standardised coordinates.
    groups : (n,) array
        Participants, or sources.
    varies : (d,) array of bool or None
        Which features varied in the fitting rows. The units of the others are arbitrary, so they have no
        size; where they move, that counts all the same. None: all varied.

    Examples
    --------
    >>> import numpy as np
    >>> H = np.array([[3.0, 4.0], [0.0, 2.0]])
    >>> movement_by_group(H, H + [[0.0, 0.5], [1.0, 0.0]], np.array(["p1", "p2"]))
    (('p1', 'p2'), array([0.1, 0.5]))
    """
    before, after = (np.asarray(rows, dtype=np.float64) for rows in (before, after))
    names, codes = np.unique(np.asarray(groups).astype(str), return_inverse=True)
    counted = np.ones(before.shape[-1], bool) if varies is None else varies
    moved = [
        movement(after[rows] - before[rows], before[rows], counted)
        for rows in (codes == code for code in range(len(names)))
    ]
    return tuple(names.tolist()), np.array(moved)


def complement_drift(displacement: Any, basis: Floats) -> float:
    """Return the largest movement outside the gate, relative to the largest inside: rounding, for MGPA.

    Parameters
    ----------
    displacement : (n, d) array
        H' - H in the gate's coordinates.
    basis : (d, r) array
        Orthonormal gate basis.
    """
    displacement = np.asarray(displacement, dtype=np.float64)
    outside = np.abs(displacement - displacement @ basis @ basis.T).max(initial=0.0)
    size = np.abs(displacement).max(initial=0.0)
    return float(outside / size) if size else 0.0
