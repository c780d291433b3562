"""Operating points: the strength or number of stages of a fitted correction (section 4.3, appendix B).

"Native" applies the complete map. A movement budget reduces the map until held-out rows move by a given
share. The development rule of the reuse study chooses, among the points at which no head loses more than
.01, the point with the best worst-association AUROC.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._common.checks import as_float_matrix
from .errors import BudgetNotAttained, ParameterError
from .maps import CorrectionMap, SequentialMap

Floats = NDArray[np.float64]

#: The affine strengths searched in the paper's reuse study: 0, .02, …, 1, 1.1, 1.2, 1.3.
STRENGTHS: tuple[float, ...] = (*(round(0.02 * i, 2) for i in range(51)), 1.1, 1.2, 1.3)


def movement(moved: Any, H: Any, varies: Any) -> float:
    """Return the movement of rows relative to their size, ‖H' - H‖_F / ‖H‖_F.

    This definition of movement is used in fits, budgets, audits and histories. ``moved`` is H' - H in
    standardised coordinates. The size includes only features that varied in the fitting rows (``varies``).
    Other features have no scale; if they varied in new participants, all movements would seem small.
    """
    size = float(np.linalg.norm(np.asarray(H, dtype=np.float64)[..., varies]))
    if not size > 0:
        raise ValueError(f"No relative movement: the {len(H)} rows are empty or all at the fitting mean.")
    return float(np.linalg.norm(np.asarray(moved, dtype=np.float64))) / size


def relative_movement(m: CorrectionMap, X: Any, *, source: Any = None, coordinates: Any = None) -> float:
    """Return the :func:`movement` of the rows of X, in the map's standardised coordinates.

    ``source`` is used only for source-aware maps. ``coordinates``, an object with ``center``, ``scale`` and
    ``varies``, makes maps with different standardisations comparable.
    """
    m, X, where = _read(m, X, coordinates)
    return movement(_displacement(m, X, where, source), (X - where.center) / where.scale, where.varies)


def stage_movement(m: SequentialMap, X: Any, *, coordinates: Any = None) -> Floats:
    """Return the :func:`relative_movement` of the rows of X after each stage."""
    m, X, where = _read(m, X, coordinates)
    moved = m.stage_movement(X, None if _same_scale(m, where) else where.scale)
    return np.asarray(moved * _one_unit(X, where))


def _read(m: Any, X: Any, coordinates: Any) -> tuple[Any, Floats, Any]:
    """Return the map, the rows in float64, and the coordinates of measurement (None: those of the map)."""
    m = as_map(m)
    X = as_float_matrix(X, n_features=m.n_features).astype(np.float64)
    return m, X, m if coordinates is None else coordinates


def as_map(m: Any) -> Any:
    """Return the map of a fitted estimator, or the map itself."""
    return m.to_map() if hasattr(m, "to_map") else m


def _same_scale(m: CorrectionMap, where: Any) -> bool:
    return m is where or np.allclose(m.scale, where.scale, rtol=1e-12, atol=0.0)


def _displacement(m: CorrectionMap, X: Floats, where: Any, source: Any = None) -> Floats:
    """Return the displacement of each row in the coordinates ``where``."""
    moved = m.displacement(X, **({} if m.source_blind else {"source": source}))
    return moved if _same_scale(m, where) else moved * (m.scale / where.scale)


def _one_unit(X: Floats, where: Any) -> float:
    """Return the movement of rows whose displacement has length 1."""
    return movement(1.0, (X - where.center) / where.scale, where.varies)


def movement_budget(
    m: CorrectionMap, X_val: Any, budget: float, *, source: Any = None, coordinates: Any = None
) -> Any:
    """Return the map at the operating point where the rows of X_val have moved by ``budget``.

    For affine maps, strength = budget / movement at full strength, at most the full strength. For staged
    maps, the result ends within the first stage at which the movement exceeds the budget. If the map cannot
    reach the budget, it raises :class:`BudgetNotAttained`.

    Parameters
    ----------
    m : CorrectionMap or fitted estimator
        The map. Its movement is measured at the strength that it has.
    X_val : (n, d) array
        Validation rows.
    budget : float
        Relative movement ‖H' - H‖_F / ‖H‖_F, for instance .05.
    source : (n,) array or None
        Sources of the rows, used only for source-aware maps.
    coordinates : Standardizer, map or None
        Its ``center``, ``scale`` and ``varies`` define the coordinates of the movement; None uses those of
        the fit. Movements of maps with different standardisations are comparable only in common coordinates.
    """
    if not (np.isfinite(budget) and budget >= 0):
        raise ParameterError("budget", budget, "zero or a positive number")
    m, X, where = _read(m, X_val, coordinates)
    if budget == 0:
        return m[:0] if isinstance(m, SequentialMap) else m.with_strength(0.0)
    if not isinstance(m, SequentialMap):
        native = relative_movement(m, X, source=source, coordinates=where)
        if budget > native:
            raise _not_attained(native)
        return m.with_strength(m.strength * budget / native)
    after = stage_movement(m, X, coordinates=where)
    before = np.concatenate([[0.0], after[:-1]])
    crossings = np.flatnonzero((before < budget) & (budget <= after))
    if not len(crossings):
        raise _not_attained(float(after[-1]) if len(m) else 0.0)
    k = int(crossings[0]) + 1
    start, end = (_displacement(m[:stages], X, where) for stages in (k - 1, k))
    return m.prefix(k, _crossing(start, end - start, budget / _one_unit(X, where)))


def _not_attained(native: float) -> BudgetNotAttained:
    return BudgetNotAttained(
        f"The budget was not attained: the complete map moves the validation rows by only {native:.4g}. Set "
        "a smaller budget, or use the complete map."
    )


def _crossing(start: Floats, step: Floats, length: float) -> float:
    """Return the fraction t in [0, 1] with ‖start + t step‖ = length."""
    a, b = float(np.vdot(step, step)), float(np.vdot(start, step))
    c = float(np.vdot(start, start)) - length**2
    # c ≤ 0 because the start lies inside; this form of the root avoids cancellation.
    root = np.sqrt(max(b * b - a * c, 0.0))
    t = (root - b) / a if b <= 0 else -c / (b + root)
    return float(np.clip(t, 0.0, 1.0))


def operating_points(m: CorrectionMap, strengths: Sequence[float] = STRENGTHS) -> Iterator[CorrectionMap]:
    """Yield all candidates of the reuse study: the prefixes of a staged map, or affine strengths.

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
    """Return the index of the operating point chosen by the development rule of the reuse study.

    The rule maximises worst-association AUROC among the points at which no head loses more than ``max_loss``
    of its AUROC without association. Ties are resolved by smaller movement, then by the earlier point.

    ``worst`` (n,) has the AUROC of the shortcut head at its worst association, ``heads`` (n, n_heads) the
    AUROC of each head without association; ``identity`` is the index of the uncorrected point.
    """
    worst, heads, movement = (np.asarray(a, dtype=np.float64) for a in (worst, heads, movement))
    if not np.isfinite(np.column_stack([worst, heads, movement])).all():
        raise ValueError("worst, heads or movement has missing values; every point must be scored.")
    slack = 4 * np.finfo(np.float64).eps
    admissible = np.flatnonzero((heads >= heads[identity] - max_loss - slack).all(axis=1))
    best = worst[admissible].max()
    tied = admissible[worst[admissible] >= best - slack]
    return int(min(tied, key=lambda i: (movement[i], i)))


def select_within_family(worst: Any, movement: Any, *, tolerance: float = 0.002) -> int:
    """Return the index of the best recipe of a family, given the selected point of each recipe.

    Recipes within ``tolerance`` of the best worst-association AUROC count as equal; of these, the one with
    the smallest movement is chosen, then the earliest.
    """
    worst, movement = np.asarray(worst, dtype=np.float64), np.asarray(movement, dtype=np.float64)
    near = np.flatnonzero(worst >= worst.max() - tolerance - 1e-15)
    return int(min(near, key=lambda i: (movement[i], i)))
