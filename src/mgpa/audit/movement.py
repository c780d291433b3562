"""How far embeddings moved: per participant, per source, and outside the gate."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def movement(H: Any, corrected: Any, groups: NDArray[Any]) -> tuple[tuple[str, ...], Floats]:
    """Return ‖H' - H‖_F / ‖H‖_F within each group, and the groups, sorted as text.

    Parameters
    ----------
    H, corrected : (n, …) arrays
        Rows before and after, in standardised coordinates; tokens are flattened.
    groups : (n,) array
        Participants, or sources.

    Examples
    --------
    >>> import numpy as np
    >>> H = np.array([[3.0, 4.0], [0.0, 2.0]])
    >>> movement(H, H + [[0.0, 0.5], [1.0, 0.0]], np.array(["p1", "p2"]))
    (('p1', 'p2'), array([0.1, 0.5]))
    """
    H, corrected = (np.asarray(a, dtype=np.float64).reshape(len(a), -1) for a in (H, corrected))
    names, codes = np.unique(np.asarray(groups).astype(str), return_inverse=True)
    moved = np.bincount(codes, np.square(corrected - H).sum(axis=1))
    size = np.bincount(codes, np.square(H).sum(axis=1))
    if not (size > 0).all():
        raise ValueError(
            f"All rows of {names[size <= 0].tolist()} are at the fitting mean; movement is relative to them."
        )
    return tuple(names.tolist()), np.sqrt(moved / size)


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
