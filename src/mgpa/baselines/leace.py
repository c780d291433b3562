"""LEACE, the smallest edit that prevents linear readers from finding the source, and related methods.

Oracle and quadratic LEACE need the source of each row; SPLINCE preserves a given task.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np

from .._common.extras import missing
from .._common.parameters import Constraint, flag, number
from ..estimators.base import MethodTags
from ..estimators.closed_form import MomentEstimator
from ..linalg import PrincipalAxes
from ..maps import AffineMap, RoutedMap
from ..statistics import Statistics
from ._base import Floats, SourceAware, blind_map, require_matrices, require_variance, routed_map

# Squared whitened covariances below this value are rounding errors, not effects of the source.
NO_EFFECT = 1e-15
# Singular values below this share of the largest are rounding errors.
RELATIVE_RANK = 1e-8


def erasure_along(covariance: PrincipalAxes, cross: Floats, ridge: float = 0.0) -> tuple[Floats, Floats]:
    """Return readout and direction, both (d, k), of h ↦ h - (h - μ)ᵀ readout directionᵀ.

    Parameters
    ----------
    covariance : PrincipalAxes
        Covariance of the rows; may have fewer axes than features.
    cross : (d, k)
        Covariance of the rows with k source indicators.
    ridge : float
        Added to the variance along each axis.

    Notes
    -----
    This is Σ_hu (Σ_hu' Σ⁺ Σ_hu)⁺ Σ_hu' Σ⁺: LEACE's whitened orthogonal projection, written without square
    roots of Σ.
    """
    along = covariance.along(cross)
    readout = covariance.back(along / (covariance.values + ridge)[:, None])
    if ridge:  # outside the axes, the variance is the ridge alone
        readout = readout + (cross - covariance.back(along)) / ridge
    inner = cross.T @ readout
    if len(inner) == 1:
        return readout, cross / np.maximum(inner, NO_EFFECT)
    shares, axes = np.linalg.eigh((inner + inner.T) / 2)
    axes, shares = (part[..., shares > max(1e-12 * shares[-1], NO_EFFECT)] for part in (axes, shares))
    return readout, cross @ (axes / shares) @ axes.T


def source_covariance(data: Statistics, scale: Floats) -> tuple[PrincipalAxes, Floats]:
    """Return the covariance of the rows, and their covariance (d, K - 1) with source indicators.

    Both are population moments (ddof 0) in standardised coordinates.
    """
    moments = data.moments
    n = moments.weights.sum()
    gaps = (moments.means[1:] - moments.mean) / scale
    return moments.total.scaled(scale * np.sqrt(n)).axes(), (gaps * (moments.weights[1:, None] / n)).T


class LEACE(MomentEstimator):
    """Remove every linear trace of the source with the least squared movement.

    Reference: Belrose, Schneider-Joseph, Ravfogel, Cotterell, Raff, Biderman, "LEACE: Perfect linear concept
    erasure in closed form", NeurIPS 2023. Implemented from the paper, so that it can be fitted from moments;
    results equal those of the ``concept-erasure`` package without its shrinkage and cut-offs.

    Needs source labels. No pairs, no task. Source-blind at application.

    What it cannot do: separate a measurement effect from other variables associated with the source. If
    source and task are associated in the fitting rows, LEACE also removes task information. It gives no
    guarantee against nonlinear readers.

    Parameters
    ----------
    ridge : float
        Added to the diagonal of the covariance, in standardised units, for more stable results with few rows.
        The erasure remains exact, but is no longer the smallest edit.
    standardize : bool
        Scale features to unit variance before fitting; matters only with a ridge.

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

    def _solve(self, data: Statistics) -> AffineMap:
        standardizer = data.standardizer(self.standardize)
        covariance, cross = source_covariance(data, standardizer.scale)
        readout, direction = erasure_along(covariance, cross, float(self.ridge))
        info = self._evidence_info(data)
        return blind_map(standardizer, data.moments.mean, readout, direction, info)


class OracleLEACE(SourceAware):
    """Replace the mean of each source by the common mean: the smallest linear erasure, given source labels.

    Reference: Belrose et al., NeurIPS 2023 and the EleutherAI note "Oracle LEACE". The method is defined by a
    regression on source indicators, which is a shift of means. Results equal those of ``OracleFitter`` in the
    ``concept-erasure`` package, except that its cut-off of .01 drops rare sources.

    Needs source labels, in fit and at application. No pairs, no task.

    What it cannot do: correct a row of an unknown or unseen source. It shifts only means: differences in
    spread remain, and the authors warn that nonlinear readers may find the source more easily afterwards.
    Differences between the populations of the sources are also removed.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {}

    def _solve(self, data: Statistics) -> RoutedMap:
        standardizer, moments = data.standardizer(True), data.moments
        shifts = (moments.mean - moments.means) / standardizer.scale
        unscaled = np.ones(len(standardizer.scale))
        transports = [(unscaled, np.zeros_like(shift), shift) for shift in shifts]
        return routed_map(standardizer, transports, self._evidence_info(data))


class QuadraticLEACE(SourceAware):
    """Transport each source to the common Wasserstein barycentre, against quadratic readers.

    Reference: Quirke & Belrose, "Quadratic erasure", arXiv 2502.02820. The ``concept-erasure`` package
    computes the barycentre and transport maps from our moments. One intended difference: the common mean is
    weighted by the number of rows, like the barycentre; the package uses the unweighted mean of means.

    Needs source labels, in fit and at application, and many more rows per source than features. No pairs, no
    task.

    What it cannot do: correct a row of an unknown or unseen source. Higher moments remain, and differences
    between populations of the sources are also removed. If source and task are associated, it also removes
    task information.

    Parameters
    ----------
    shrinkage : bool
        Shrink the covariance of each source toward a multiple of the identity (the package's default). Then
        the shrunk covariances become equal; with False, the covariances of the fitting rows become equal.
    standardize : bool
        Scale features to unit variance before fitting.
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {"shrinkage": flag, "standardize": flag}

    def __init__(self, *, shrinkage: bool = True, standardize: bool = True) -> None:
        self.shrinkage = shrinkage
        self.standardize = standardize

    def _solve(self, data: Statistics) -> RoutedMap:
        K = len(data.sources)
        standardizer, moments = data.standardizer(self.standardize), data.moments
        require_variance(moments)
        require_matrices(4 * K, moments.n_features, "QuadraticLEACE")
        scale, varying = standardizer.scale, np.flatnonzero(standardizer.varies)
        means = (moments.means - standardizer.center) / scale
        scatters = [part.scatter / np.outer(scale, scale) for part in moments.parts.values()]
        scatters = [scatter[np.ix_(varying, varying)] for scatter in scatters]
        maps = barycentre_maps(moments.weights, scatters, bool(self.shrinkage))
        common, transports = (moments.mean - standardizer.center) / scale, []
        for mean, part in zip(means, maps, strict=True):
            A = np.eye(len(scale))
            A[np.ix_(varying, varying)] = part
            transports.append((A, mean, common))
        return routed_map(standardizer, transports, self._evidence_info(data))


def barycentre_maps(weights: Floats, scatters: list[Floats], shrinkage: bool) -> Floats:
    """Return the optimal transport matrices from each source's covariance to the barycentre, (K, d, d)."""
    try:
        import torch

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the package uses torch.jit
            from concept_erasure import QuadraticFitter
    except ImportError:
        raise missing("QuadraticLEACE", "concept-erasure", "torch") from None
    d: Any = len(scatters[0])
    fitter = QuadraticFitter(d, len(scatters), dtype=torch.float64, shrinkage=shrinkage)
    fitter.n = torch.as_tensor(weights)
    fitter.sigma_xx_ = torch.as_tensor(np.stack(scatters))
    # The returned matrices are symmetric only up to rounding.
    maps = fitter.eraser.ot_maps
    return np.asarray(((maps + maps.mT) / 2).numpy())


class SPLINCE(MomentEstimator):
    """Remove every linear trace of the source while keeping the covariance with a task label exactly.

    Reference: Holstege, Ravfogel, Wouters, "Preserving task-relevant information under linear concept
    removal", NeurIPS 2025 (arXiv 2506.10703). Implemented from its derivation.

    Needs source labels and task labels y, in fit only. No pairs. Source-blind at application.

    What it cannot do: preserve a task that was not given, or several tasks with one map. Movement increases
    with the alignment of source and task; if both vary along one direction, SPLINCE has no solution and
    raises an error. Refitted linear heads are the same as after LEACE; only existing or regularised heads
    benefit.
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True, needs_task=True)

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {}

    def _solve(self, data: Statistics) -> AffineMap:
        labels = [label for label, (weight, _) in data.task.parts.items() if weight]
        if len(labels) < 2:
            raise ValueError(f"y has 1 distinct value ({labels[0]!r}); a task needs at least two.")
        standardizer, mean = data.standardizer(True), data.moments.mean
        scale = standardizer.scale
        covariance, source = source_covariance(data, scale)
        total = data.moments.weights.sum()
        task = np.stack([w / total * (part - mean) / scale for w, part in data.task.parts.values()], axis=1)
        readout, direction, _ = oblique_erasure(covariance, source, task[:, 1:])
        info = self._evidence_info(data)
        return blind_map(standardizer, mean, readout, direction, info)


def oblique_erasure(covariance: PrincipalAxes, source: Floats, task: Floats) -> tuple[Floats, Floats, float]:
    """Return readout, direction and the sine of the smallest angle between source and task.

    In whitened coordinates, Z the span of source covariances and Y that of task covariances, the least
    edit with kernel Z that fixes Y is I - B_z (B_z'N B_z)⁻¹ B_z'N with N = I - B_y B_y'.
    """
    root = np.sqrt(covariance.values)[:, None]
    B_z, B_y = _span(covariance.along(source) / root), _span(covariance.along(task) / root)
    free = B_z - B_y @ (B_y.T @ B_z)
    inner = B_z.T @ free
    sine = float(np.sqrt(max(np.linalg.eigvalsh(inner)[0], 0.0))) if inner.size else 1.0
    if sine < 1e-6:
        raise ValueError(
            "SPLINCE has no solution here: in these rows source and task vary along a common direction, so "
            "no edit can remove the source and keep the task. Use rows with a weaker association of source "
            "and task, LEACE (which then also removes task information), or MGPA, which uses pairs instead."
        )
    direction = np.asarray(np.linalg.solve(inner, B_z.T).T if inner.size else B_z, np.float64)
    return covariance.back(free / root), covariance.back(direction * root), sine


def _span(columns: Floats) -> Floats:
    U, values, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(U[:, values > max(RELATIVE_RANK * values.max(initial=0.0), NO_EFFECT**0.5)])
