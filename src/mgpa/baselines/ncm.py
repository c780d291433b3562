"""NCM: project out the leading directions of paired differences (Bai, Ji, Zhou & Inouye 2025)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .._common.parameters import Constraint, flag, share, whole
from ..estimators.base import MethodTags
from ..estimators.streamed import Evidence, MomentEstimator
from ..maps import AffineMap
from ._base import projector_map

Floats = NDArray[np.float64]


def leading_differences(differences: Floats, rank: int | float) -> Floats:
    """Return leading right singular vectors (d, k) of raw differences: a number of them, or an energy."""
    _, values, rows = np.linalg.svd(differences, full_matrices=False)
    spanned = int((values > max(differences.shape) * np.finfo(np.float64).eps * values[0]).sum())
    if isinstance(rank, (int, np.integer)):
        if not 1 <= rank <= spanned:
            raise ValueError(
                f"rank is {rank}; these {len(differences)} pairs span {spanned} direction(s) of "
                f"{differences.shape[1]}. Choose a rank from 1 to {spanned}."
            )
        k = int(rank)
    else:
        energy = np.cumsum(values**2) / np.sum(values**2)
        k = min(int(np.searchsorted(energy, rank - 1e-12)) + 1, spanned)
    return np.asarray(rows[:k].T)


class NCM(MomentEstimator):
    """Remove the subspace in which two measurements of the same event differ most.

    Reference: Bai, Ji, Zhou, Inouye, "Noisy-counterfactual matching", arXiv 2505.24843. Written here
    from its description. The paper trains a head on projected features; for heads that exist already the
    projection is about the mean, h' = μ + (I - UUᵀ)(h - μ).

    Needs pairs. Source labels only say which rows are paired with what. No task. Source-blind.

    What it cannot do: spare anything inside the removed span. MGPA's gate is such a span too, but MGPA keeps
    there what the rest of the embedding predicts and what a source reader does not use. Few large
    differences dominate the span (differences are neither centred nor normalised); k is bounded by the pairs.

    Parameters
    ----------
    rank : int or float
        How many directions to remove, or, as a float in (0, 1], the share of squared differences they hold.
        The paper tries 2 to 24; choose on validation data.
    standardize : bool
        Work in features scaled to unit variance.

    Attributes
    ----------
    basis_ : (d, k) array
        The directions removed, in standardised coordinates.
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True, needs_pairs=True)

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {"rank": whole(1) | share, "standardize": flag}

    def __init__(self, *, rank: int | float = 8, standardize: bool = True) -> None:
        self.rank = rank
        self.standardize = standardize

    def _solve(self, data: Evidence) -> AffineMap:
        data.require_sources()
        contrasts, standardizer = data.contrasts(), data.standardizer(self.standardize)
        differences = np.where(standardizer.varies, contrasts.values / standardizer.scale, 0.0)
        if not differences.any():
            raise ValueError("All paired differences are zero: the two views are identical.")
        removed = leading_differences(differences, self.rank)
        info = self._evidence_info(data, n_contrasts=len(contrasts), gate_rank=removed.shape[1])
        return projector_map(standardizer, data.moments.mean, removed, info)

    @property
    def basis_(self) -> Floats:
        """The directions removed, in standardised coordinates."""
        m = self.map_
        return np.asarray(m.readout * m.scale[:, None])
