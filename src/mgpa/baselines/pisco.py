"""PISCO: keep content directions that vary much but differ little between views (Ngweta et al. 2023)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from .._common.parameters import Constraint, flag, number
from ..estimators.base import MethodTags
from ..estimators.streamed import Evidence, MomentEstimator
from ..maps import AffineMap
from ._base import Floats, projector_map, require_matrices


class PISCO(MomentEstimator):
    """Keep the subspace that trades the embedding's variance against paired differences.

    Reference: Ngweta, Maity, Gittens, Sun, Yurochkin, "Simple disentanglement of style and content in visual
    representations", ICML 2023. Written here from its description.

    The content basis Q holds the eigenvectors of the smallest eigenvalues of -HᵀH/n + λ ΔᵀΔ/m. The paper
    hands HQ, of smaller dimension, to a new head; for heads that exist already this keeps the dimension:
    h' = μ + QQᵀ(h - μ).

    Needs pairs. Source labels only say which rows are paired with what. No task. Source-blind.

    What it cannot do: adapt how much it removes to the evidence, d - ⌊ηd⌋ + K - 1 directions whatever the
    pairs show; or promise that the source is gone at any finite λ. With λ = 0 it is plain PCA, and what
    little varies is removed, measurement effect or not.

    Parameters
    ----------
    penalty : float
        λ, the weight of paired differences; the paper tries 0, 1, 10 and 50.
    keep : float in (0, 1]
        η, the share of dimensions kept (before K - 1 style directions are taken off).
    standardize : bool
        Work in features scaled to unit variance.
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True, needs_pairs=True)

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "penalty": number(0), "keep": number(above=0, most=1), "standardize": flag,
    }  # fmt: skip

    def __init__(self, *, penalty: float = 10.0, keep: float = 0.95, standardize: bool = True) -> None:
        self.penalty = penalty
        self.keep = keep
        self.standardize = standardize

    def _solve(self, data: Evidence) -> AffineMap:
        K = data.require_sources()
        contrasts, standardizer = data.contrasts(), data.standardizer(self.standardize)
        moments, scale = data.moments, standardizer.scale
        varying = np.flatnonzero(standardizer.varies)  # constant features are left alone
        n_content = int(self.keep * len(varying) + 1e-9) - (K - 1)
        if n_content < 1:
            raise ValueError(
                f"keep={self.keep} leaves {n_content} of {len(varying)} dimensions as content after removing "
                f"{K - 1} style direction(s); keep more."
            )
        differences = (contrasts.values / scale)[:, varying]
        if not differences.any():
            raise ValueError("All paired differences are zero: the two views are identical.")
        require_matrices(4, len(scale), "PISCO")
        mean = (moments.mean - standardizer.center) / scale
        second = moments.scatter / np.outer(scale, scale) / moments.weights.sum() + np.outer(mean, mean)
        objective = (
            self.penalty * differences.T @ differences / len(differences) - second[np.ix_(varying, varying)]
        )
        vectors: Floats = np.linalg.eigh(objective)[1]
        removed = np.zeros((len(scale), len(varying) - n_content))
        removed[varying] = vectors[:, n_content:]
        info = self._evidence_info(data, n_contrasts=len(contrasts), gate_rank=removed.shape[1])
        return projector_map(standardizer, moments.mean, removed, info)
