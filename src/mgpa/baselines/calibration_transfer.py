"""Calibration transfer, learned from pairs: samples measured on both instruments.

Spectral space transformation, (piecewise) direct standardisation and FEATMAP.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.linalg

from .._common.parameters import Constraint, flag, nothing, number, source_label, whole
from ..estimators.base import MethodTags
from ..maps import RoutedMap
from ..statistics import Statistics
from ._base import Floats, SourceAware, Transport, reference_index, require_matrices, routed_map


class PairedTransfer(SourceAware):
    """Base of methods that map each source to the reference by a matrix of centred paired views."""

    tags: ClassVar[MethodTags] = MethodTags(source_blind=False, needs_pairs=True)

    reference: Any
    standardize: bool

    def _matrix(self, A: Floats, B: Floats) -> Floats:
        """Return the matrix, from centred views A of a source and B of the reference, both (m, d)."""
        raise NotImplementedError

    def _solve(self, data: Statistics) -> RoutedMap:
        K, d = data.require_sources(), data.moments.n_features
        target = reference_index(self.reference, data.sources)
        standardizer = data.standardizer(self.standardize)
        require_matrices(2 * K, d, type(self).__name__)
        transports: list[Transport] = [None] * K
        n_pairs = 0
        for s in range(K):
            if s != target:
                A, B = ((view - standardizer.center) / standardizer.scale for view in data.views(s, target))
                A[:, ~standardizer.varies] = 0.0
                start, end = A.mean(axis=0), B.mean(axis=0)
                transports[s] = self._matrix(A - start, B - end), start, end
                n_pairs += len(A)
        return routed_map(standardizer, transports, self._evidence_info(data, n_contrasts=n_pairs))


class SST(PairedTransfer):
    """Spectral space transformation: from one instrument's loadings to the other's.

    Reference: Du, Chen, Chen, Yu, Huang, Wang, "Maintaining the predictive abilities of multivariate
    calibration models by spectral space transformation", Analytica Chimica Acta 690, 2011. The views side by
    side have loadings P₁ (reference) and P₂; x' = x + x (P₂ᵀ)⁺ (P₁ - P₂)ᵀ, here for centred views.

    Needs pairs and source labels, and the source again at application. No task.

    What it cannot do: correct what the leading components do not hold, or a row of an unknown source.

    Parameters
    ----------
    n_components : int
        Components of the views side by side.
    reference, standardize
        As in :class:`FEATMAP`.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "reference": source_label, "n_components": whole(1), "standardize": flag,
    }  # fmt: skip

    def __init__(self, *, reference: Any = 0, n_components: int = 5, standardize: bool = False) -> None:
        self.reference = reference
        self.n_components = n_components
        self.standardize = standardize

    def _matrix(self, A: Floats, B: Floats) -> Floats:
        d = A.shape[1]
        _, values, rows = np.linalg.svd(np.hstack([B, A]), full_matrices=False)
        loadings = rows[: min(self.n_components, int((values > 1e-10 * values[0]).sum()))]
        P1, P2 = loadings[:, :d], loadings[:, d:]
        return np.asarray(np.eye(d) + np.linalg.pinv(P2) @ (P1 - P2))


class PDS(PairedTransfer):
    """Piecewise direct standardisation: regress each feature of the reference on its neighbourhood.

    Reference: Wang, Veltkamp, Kowalski, "Multivariate instrument standardization", Analytical Chemistry 63,
    1991. Regressions are on principal components. With ``window=None`` all features are the neighbourhood:
    direct standardisation (DS).

    Needs pairs and source labels, and the source again at application. No task. Features must be ordered, as
    wavelengths are, unless ``window=None``.

    What it cannot do: correct a row of an unknown source. Noisy pairs shrink what it maps.

    Parameters
    ----------
    window : int or None
        Neighbours on each side of a feature; None is all features.
    n_components : int
        Principal components of a neighbourhood at most.
    reference, standardize
        As in :class:`FEATMAP`.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "reference": source_label, "window": whole() | nothing, "n_components": whole(1), "standardize": flag,
    }  # fmt: skip

    def __init__(
        self, *, reference: Any = 0, window: int | None = 3, n_components: int = 3, standardize: bool = False
    ) -> None:
        self.reference = reference
        self.window = window
        self.n_components = n_components
        self.standardize = standardize

    def _matrix(self, A: Floats, B: Floats) -> Floats:
        d = A.shape[1]
        if self.window is None:
            return component_regression(A, B, self.n_components)
        matrix = np.zeros((d, d))
        for j in range(d):
            near = slice(max(0, j - self.window), j + self.window + 1)
            matrix[near, j] = component_regression(A[:, near], B[:, j], self.n_components)
        return matrix


def component_regression(A: Floats, B: Floats, n_components: int) -> Floats:
    """Return the slope of B on the leading principal components of A, in terms of A's features."""
    U, values, rows = np.linalg.svd(A, full_matrices=False)
    rank = min(n_components, int((values > 1e-10 * values.max(initial=0.0)).sum()))
    return np.asarray((rows[:rank].T / values[:rank]) @ (U[:, :rank].T @ B))


class FEATMAP(PairedTransfer):
    """Map each source's embeddings to the reference's embeddings of the same event.

    Reference: Donle et al. 2026, bioRxiv 10.64898/2026.07.02.736184. Written here from its description.

    Needs pairs and source labels, and the source again at application. No task.

    What it cannot do: correct a row of an unknown or unseen source. With fewer pairs than features,
    directions the pairs do not span collapse to their mean; with noisy pairs the regression shrinks variance,
    by which the source stays readable. A ridge trades the first for more of the second.

    Parameters
    ----------
    reference : label or int
        The source to map to: a label, or a position among the sorted labels.
    ridge : float
        Penalty of the regression, in standardised units; 0 is least squares, of minimum norm where the pairs
        do not determine it.
    standardize : bool
        Work in features scaled to unit variance.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "reference": source_label, "ridge": number(0), "standardize": flag,
    }  # fmt: skip

    def __init__(self, *, reference: Any = 0, ridge: float = 0.0, standardize: bool = True) -> None:
        self.reference = reference
        self.ridge = ridge
        self.standardize = standardize

    def _matrix(self, A: Floats, B: Floats) -> Floats:
        if self.ridge:
            penalty = self.ridge * np.eye(A.shape[1])
            return np.asarray(scipy.linalg.solve(A.T @ A + penalty, A.T @ B, assume_a="pos"))
        return np.asarray(np.linalg.lstsq(A, B, rcond=None)[0])
