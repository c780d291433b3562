"""Quadratic LEACE: give every source the same mean and covariance (Quirke & Belrose 2025)."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np

from .._common.extras import missing
from .._common.parameters import Constraint, flag
from ..estimators.streamed import Evidence
from ..maps import RoutedMap
from ._base import Floats, SourceAware, require_matrices, require_variance, routed_map


class QuadraticLEACE(SourceAware):
    """Transport each source to the Wasserstein barycentre of all, which leaves quadratic readers nothing.

    Reference: Quirke & Belrose, "Quadratic erasure", arXiv 2502.02820. Barycentre and transport maps are
    those of the ``concept-erasure`` package, given our moments. One thing differs on purpose: the common mean
    is weighted by the number of rows, as the barycentre is; the package takes the plain mean of means.

    Needs source labels, also at application, and many more rows per source than features. No pairs, no task.

    What it cannot do: correct a row of an unknown or unseen source. Higher moments stay, and whatever else
    differs between the sources' populations is removed along with the device. Under an association of source
    with task it removes task too.

    Parameters
    ----------
    shrinkage : bool
        Shrink each source's covariance toward a multiple of the identity (the package's default). It is then
        the shrunk covariances that become equal; those of the fitting rows do so with False.
    standardize : bool
        Work in features scaled to unit variance.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {"shrinkage": flag, "standardize": flag}

    def __init__(self, *, shrinkage: bool = True, standardize: bool = True) -> None:
        self.shrinkage = shrinkage
        self.standardize = standardize

    def _solve(self, data: Evidence) -> RoutedMap:
        K = data.require_sources()
        standardizer, moments = data.standardizer(self.standardize), data.moments
        require_variance(moments)
        require_matrices(4 * K, moments.n_features, "QuadraticLEACE")
        scale, varies = standardizer.scale, standardizer.varies
        means = (moments.means - standardizer.center) / scale
        scatters = [part.scatter / np.outer(scale, scale) for part in moments.parts.values()]
        varying = np.flatnonzero(varies)
        maps = barycentre_maps(
            moments.weights, [s[np.ix_(varying, varying)] for s in scatters], bool(self.shrinkage)
        )
        common = (moments.mean - standardizer.center) / scale
        transports = []
        for mean, part in zip(means, maps, strict=True):
            A = np.eye(len(scale))
            A[np.ix_(varying, varying)] = part
            transports.append((A, mean, common))
        return routed_map(standardizer, transports, self._evidence_info(data))


def barycentre_maps(weights: Floats, scatters: list[Floats], shrinkage: bool) -> Floats:
    """Return the optimal transport matrix from each source's covariance to the barycentre's (K, d, d)."""
    try:
        import torch

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # its use of torch.jit
            from concept_erasure import QuadraticFitter
    except ImportError:
        raise missing("QuadraticLEACE", "concept-erasure", "torch") from None
    d: Any = len(scatters[0])
    fitter = QuadraticFitter(d, len(scatters), dtype=torch.float64, shrinkage=shrinkage)
    fitter.n = torch.as_tensor(weights)
    fitter.sigma_xx_ = torch.as_tensor(np.stack(scatters))
    # A symmetric matrix and its transpose differ by rounding in what comes back.
    maps = fitter.eraser.ot_maps
    return np.asarray(((maps + maps.mT) / 2).numpy())
