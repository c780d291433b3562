"""Methods that match the distributions of sources: CORAL and ComBat."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._common.parameters import Constraint, flag, nothing, number, one_of, source_label
from ..maps import RoutedMap
from ..moments import Moments
from ..statistics import Statistics
from ._base import (
    Floats,
    MaybeReferencedMethod,
    ReferencedMethod,
    Transport,
    direction_words,
    reference_index,
    require_matrices,
    require_variance,
    routed_map,
)

MAX_ITERATIONS = 1000
TOLERANCE = 1e-10  # in standard deviations


def symmetric_power(matrix: Floats, power: float) -> Floats:
    """Return a power of a symmetric positive definite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * values**power) @ vectors.T)


class CORAL(ReferencedMethod):
    """Whiten each source and give it the covariance of the reference: h' = μ_t + (h - μ_s) C_s^-½ C_t^½.

    Reference: Sun, Feng, Saenko, "Return of frustratingly easy domain adaptation", AAAI 2016, here with means
    as in the MGPA paper (appendix B). This implementation is fitted from moments. The adapter of ``skada``
    returns centred rows, which existing heads cannot use.

    Needs source labels, in fit and at application. No pairs, no task.

    What it cannot do: correct a row of an unknown source, or separate a device from a population, because all
    differences in mean or covariance between the sources are removed. Rows of the reference do not change.

    Parameters
    ----------
    reference : label, int or None
        The source to align to: a label, or a position among the sorted labels. None: the first.
        ``reference_`` and the first line of the map's summary name the source.
    ridge : float
        Added to the diagonal of both covariances, in standardised units.
    moments : {"observed", "pairs"}
        Use moments of the rows of X, or of all views of the calibration pairs (which requires pairs).
    standardize : bool
        Scale features to unit variance before fitting.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "reference": source_label | nothing, "ridge": number(0), "moments": one_of("observed", "pairs"),
        "standardize": flag,
    }  # fmt: skip

    def __init__(
        self,
        *,
        reference: Any = None,
        ridge: float = 1.0,
        moments: str = "observed",
        standardize: bool = True,
    ) -> None:
        self.reference = reference
        self.ridge = ridge
        self.moments = moments
        self.standardize = standardize

    @property
    def _reads_pairs(self) -> bool:
        return self.moments == "pairs"

    def _solve(self, data: Statistics) -> RoutedMap:
        K = len(data.sources)
        target = reference_index(self.reference, data.sources)
        standardizer = data.standardizer(self.standardize)
        moments = data.moments if self.moments == "observed" else data.paired_moments()
        missing = sorted(set(data.sources.tolist()) - set(moments.sources))
        if missing:
            raise ValueError(f"moments='pairs' needs paired rows of every source; {missing} has none.")
        require_variance(moments)
        require_matrices(2 * K, moments.n_features, "CORAL")
        means = (moments.means - standardizer.center) / standardizer.scale
        covariances = self._covariances(moments, standardizer.scale, standardizer.varies)
        colour = symmetric_power(covariances[target], 0.5)
        transports: list[Transport] = [
            None if s == target
            else (symmetric_power(covariances[s], -0.5) @ colour, means[s], means[target])
            for s in range(K)
        ]  # fmt: skip
        words = direction_words(target, data.sources)
        return routed_map(standardizer, transports, self._evidence_info(data, evidence=words))

    def _covariances(self, moments: Moments, scale: Floats, varies: NDArray[np.bool_]) -> list[Floats]:
        covariances = []
        constant = np.diag((~varies).astype(np.float64))  # constant features get variance 1 in all sources
        for label, part in moments.parts.items():
            covariance = part.scatter / np.outer(scale, scale) / (part.weight - 1) + constant
            rounding = len(scale) * np.finfo(np.float64).eps * np.trace(covariance)
            if self.ridge <= rounding and np.linalg.matrix_rank(covariance, hermitian=True) < len(scale):
                raise ValueError(
                    f"The covariance of source {label!r} is singular ({part.n_rows} rows, {len(scale)} "
                    f"features), and ridge={self.ridge} would divide by zero; use a larger ridge, such as 1."
                )
            covariances.append(covariance + self.ridge * np.eye(len(scale)))
        return covariances


def shrink_to_prior(location: Floats, variance: Floats, n: float) -> tuple[Floats, Floats]:
    """Return the posterior mean and variance of each feature of a source, with priors pooled over features.

    ``location`` and ``variance`` (ddof 1), both (d,), are computed from n rows of standardised features.
    """
    center, spread = location.mean(), location.var(ddof=1)
    m, s2 = variance.mean(), variance.var(ddof=1)
    if not (spread > 0 and s2 > 0):  # equal features need no shrinkage
        return location, variance
    a, b = (2 * s2 + m**2) / s2, (m * s2 + m**3) / s2
    new_location, new_variance = location, variance
    for _ in range(MAX_ITERATIONS):
        old_location, old_variance = new_location, new_variance
        new_location = (n * spread * location + old_variance * center) / (n * spread + old_variance)
        # Σ(z - γ)² over the rows of the source, from their mean and variance.
        squares = (n - 1) * variance + n * (location - new_location) ** 2
        new_variance = (b + 0.5 * squares) / (n / 2 + a - 1)
        moved = np.abs([new_location - old_location, new_variance - old_variance]).max()
        if moved < TOLERANCE:
            return new_location, new_variance
    raise ValueError(f"ComBat's priors did not converge in {MAX_ITERATIONS} rounds; try eb=False.")


class ComBat(MaybeReferencedMethod):
    """Give each feature the same mean and variance in all sources, with estimates shrunk across features.

    References: Johnson, Li, Rabinovic, Biostatistics 2007; Fortin et al., NeuroImage 2018. Fitted from
    moments; results equal those of ``neuroCombat`` 0.2.12 up to its stopping tolerance of 1e-4. Covariates
    are not supported: they would be needed again at application, and the task as a covariate would reveal
    the label to later classifiers.

    Needs source labels, in fit and at application. No pairs, no task.

    What it cannot do: correct a row of an unknown or unseen source. It corrects each feature separately, so
    correlations between features still reveal the source, and it treats population differences as device
    effects.

    Parameters
    ----------
    eb : bool
        Shrink location and scale toward a prior shared by the features.
    mean_only : bool
        Do not change variances.
    reference : label, int or None
        A source that stays unchanged and to which others are aligned. None: align all sources to the pooled
        mean and variance.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "eb": flag, "mean_only": flag, "reference": source_label | nothing,
    }  # fmt: skip

    def __init__(self, *, eb: bool = True, mean_only: bool = False, reference: Any = None) -> None:
        self.eb = eb
        self.mean_only = mean_only
        self.reference = reference

    def _solve(self, data: Statistics) -> RoutedMap:
        K = len(data.sources)
        moments, standardizer = data.moments, data.standardizer(True)
        weights = moments.weights
        require_variance(moments)
        target = self._target(data.sources)
        # Constant features have no scale to adjust and do not enter the priors.
        varying = np.flatnonzero(standardizer.varies)
        means = ((moments.means - standardizer.center) / standardizer.scale)[:, varying]
        scatters = np.stack([part.spread.diagonal for part in moments.parts.values()])
        scatters = (scatters / standardizer.scale**2)[:, varying]
        if target is None:
            grand = weights @ means / weights.sum()
            pooled = scatters.sum(axis=0) / weights.sum()
        else:
            grand, pooled = means[target], scatters[target] / weights[target]
        if not (pooled > 0).all():
            names = "the reference" if target is not None else "each source"
            raise ValueError(f"{int((pooled <= 0).sum())} feature(s) are constant within {names}.")
        sigma, d = np.sqrt(pooled), len(standardizer.scale)
        transports: list[Transport] = []
        for s in range(K):
            if s == target:
                transports.append(None)
                continue
            location, variance = self._shrunk(
                (means[s] - grand) / sigma, scatters[s] / (weights[s] - 1) / pooled, float(weights[s])
            )
            gain, start, end = np.ones(d), np.zeros(d), np.zeros(d)
            if not self.mean_only:
                if not (variance > 0).all():
                    raise ValueError(
                        f"{int((variance <= 0).sum())} feature(s) are constant in source "
                        f"{data.sources[s].item()!r}; use {'' if self.eb else 'eb=True or '}mean_only=True."
                    )
                gain[varying] = 1 / np.sqrt(variance)
            start[varying], end[varying] = grand + sigma * location, grand
            transports.append((gain, start, end))
        words = "" if target is None else direction_words(target, data.sources)
        return routed_map(standardizer, transports, self._evidence_info(data, evidence=words))

    def _shrunk(self, location: Floats, variance: Floats, n: float) -> tuple[Floats, Floats]:
        """Return the location and variance of a source of n rows, with ``eb`` shrunk across features."""
        if not self.eb or len(location) < 2:
            return location, variance
        if not self.mean_only:
            return shrink_to_prior(location, variance, n)
        # With unchanged variances, the reference implementations use one observation instead of n.
        spread = location.var(ddof=1)
        return (spread * location + location.mean()) / (spread + 1.0), variance
