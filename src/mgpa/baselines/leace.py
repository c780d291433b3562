"""LEACE: the least edit after which no linear reader finds the source (Belrose et al. 2023)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .._common.parameters import Constraint, flag, number
from ..estimators.base import MethodTags
from ..estimators.streamed import Evidence, MomentEstimator
from ..maps import AffineMap
from ..moments import PrincipalAxes, Scatter
from ._base import blind_map

Floats = NDArray[np.float64]

# Squared whitened covariance below which a source indicator has no effect: rounding has directions too.
NO_EFFECT = 1e-15


def erasure(covariance: Floats, cross: Floats) -> tuple[Floats, Floats]:
    """Return :func:`erasure_along` the axes of a covariance matrix (d, d), which may be singular."""
    return erasure_along(Scatter(covariance).axes(), cross)


def erasure_along(covariance: PrincipalAxes, cross: Floats, ridge: float = 0.0) -> tuple[Floats, Floats]:
    """Return readout and direction, both (d, k), of h ↦ h - (h - μ)ᵀ readout directionᵀ.

    Parameters
    ----------
    covariance : PrincipalAxes
        Of the rows; may be of fewer axes than features.
    cross : (d, k)
        Covariance of the rows with k source indicators.
    ridge : float
        Added to the variance along every axis.

    Notes
    -----
    This is Σ_hu (Σ_hu' Σ⁺ Σ_hu)⁺ Σ_hu' Σ⁺: LEACE's whitened orthogonal projection, written without square
    roots of Σ.
    """
    along = covariance.along(cross)
    readout = covariance.back(along / (covariance.values + ridge)[:, None])
    if ridge:  # what no axis holds, rounding aside, meets the ridge alone
        readout = readout + (cross - covariance.back(along)) / ridge
    inner = cross.T @ readout
    if len(inner) == 1:
        return readout, cross / np.maximum(inner, NO_EFFECT)
    shares, axes = np.linalg.eigh((inner + inner.T) / 2)
    axes, shares = (part[..., shares > max(1e-12 * shares[-1], NO_EFFECT)] for part in (axes, shares))
    return readout, cross @ (axes / shares) @ axes.T


def source_covariance(data: Evidence, scale: Floats) -> tuple[PrincipalAxes, Floats]:
    """Return the covariance of the rows and that with all but the first source's indicators (d, K - 1).

    Population moments (ddof 0), in standardised coordinates.
    """
    moments = data.moments
    n = moments.weights.sum()
    gaps = (moments.means[1:] - moments.mean) / scale
    return moments.total.scaled(scale * np.sqrt(n)).axes(), (gaps * (moments.weights[1:, None] / n)).T


class LEACE(MomentEstimator):
    """Remove every linear trace of the source with the least squared movement.

    Reference: Belrose, Schneider-Joseph, Ravfogel, Cotterell, Raff, Biderman, "LEACE: Perfect linear concept
    erasure in closed form", NeurIPS 2023. Written here from the paper, so that it fits from moments;
    equal to the ``concept-erasure`` package without its shrinkage and cut-offs.

    Needs source labels. No pairs, no task. Source-blind at application.

    What it cannot do: tell a measurement effect from anything else associated with the source. Where source
    and task are associated in the fitting rows it removes task along with source. Nonlinear readers are not
    its concern.

    Parameters
    ----------
    ridge : float
        Added to the diagonal of the covariance, in standardised units: steadier with few rows. The erasure
        stays exact, but it is no longer the least edit.
    standardize : bool
        Work in features scaled to unit variance; matters only with a ridge.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> source = np.repeat(["dry", "wet"], 100)
    >>> X = rng.normal(size=(200, 4)) + (source == "wet")[:, None]
    >>> Y = LEACE().fit(X, source=source).transform(X)
    >>> float(abs(Y[source == "wet"].mean(0) - Y[source == "dry"].mean(0)).max().round(12))
    0.0
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True)

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {"ridge": number(0), "standardize": flag}

    def __init__(self, *, ridge: float = 0.0, standardize: bool = True) -> None:
        self.ridge = ridge
        self.standardize = standardize

    def _solve(self, data: Evidence) -> AffineMap:
        data.require_sources()
        standardizer = data.standardizer(self.standardize)
        covariance, cross = source_covariance(data, standardizer.scale)
        readout, direction = erasure_along(covariance, cross, float(self.ridge))
        info = self._evidence_info(data)
        return blind_map(standardizer, data.moments.mean, readout, direction, info)
