"""The closed form within sources: an anchor that does not learn how source and task are associated.

Regressed on rows of all sources together, ẑ(q) learns that q predicts the task, the task predicts the source
and the source shifts z, and writes that association into the embeddings. Here every row is compared with the
mean of its own source, from the moments of each source alone:

    z' = z - Σⱼ pⱼ pⱼᵀC⁻¹ [z - ẑ(q)],   ẑ(q) = z̄ + βᵀ(q - q̄),

with z̄ and q̄ the unweighted means of the sources' means, C the residual covariance within sources, and
p₁, p₂, … ordered directions, C⁻¹-orthonormal: first the mean contrasts, which makes eq. (3), then those along
which contrasts vary. The data are asked first whether the rows show an effect at all
(:func:`measured_effect`), and along how many directions (:func:`supported`). No task label is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from .evidence import contrast_folds
from .maps import MapInfo, PathMap
from .moments import Means, Moments, PrincipalAxes, Scatter, Standardizer, outside
from .pairs import Contrasts

Floats = NDArray[np.float64]

# A direction is worth correcting if sources differ in variance along it by a fifth or more.
MATERIAL = 0.1
# Volts and millivolts are a thousand apart, but views that keep .005 of a contrast are in the paper.
UNITS = 500.0
QUIET = 2  # directions in a row without support that end the path


@dataclass(frozen=True)
class Effect:
    """The rows' own source effect along the mean contrast, as a multiple of it, and its standard error.

    Given what is preserved, and within sources: what goes with the source in q is not part of it.
    """

    size: float
    error: float

    @property
    def exists(self) -> bool:
        """Whether it exceeds two standard errors."""
        return abs(self.size) > 2.0 * self.error

    @property
    def matches_pairs(self) -> bool:
        """Whether pairs and rows show one effect, so that paired views are rows like any other."""
        return self.exists and 0.5 < abs(self.size) < 2.0

    @property
    def units_differ(self) -> bool:
        """Whether pairs and rows show effects so different in size that units are in doubt."""
        return self.exists and not 1 / UNITS < abs(self.size) < UNITS

    def __str__(self) -> str:
        if self.units_differ:
            return (
                f"effect {self.size:.1e} ± {self.error:.1e} of the contrast (are pairs and rows in the same "
                "units?)"
            )
        return f"effect {self.size:.4f} ± {self.error:.4f} of the contrast"


def solve_within(
    moments: Moments,
    people: Means,
    calibration: Moments,
    contrasts: Contrasts,
    standardizer: Standardizer,
    B: Floats,
    delta: Floats,
    *,
    n_directions: int | str = "auto",
    strength: float = 1.0,
    ridge: float | str = "auto",
    shrinkage: float = 0.01,
    do_no_harm: bool = True,
) -> tuple[PathMap, Floats, Effect]:
    """Return the path of directions, the residual covariance and the rows' effect.

    Parameters
    ----------
    moments, people : Moments, Means
        Of the rows by source, and by source and participant where those are known.
    calibration : Moments
        By source, of paired views that are not among the rows.
    contrasts : Contrasts
        In the rows' units.
    standardizer : Standardizer
        Of the rows.
    B, delta : (d, r), (K - 1, r)
        Gate basis, and mean contrasts in it.
    n_directions, strength, ridge, shrinkage, do_no_harm
        As in :class:`~mgpa.ClosedFormMGPA`.
    """
    scale = np.where(standardizer.varies, standardizer.scale, np.inf)  # what never varied takes no part
    n, K = moments.count, len(moments.sources)
    # As n rows of weight one would scatter: weights are relative.
    spread = moments.within.scaled(scale * np.sqrt(moments.weights.sum() / n))
    anchor = within_anchor(spread, B, n, K, None if ridge == "auto" else float(ridge))
    C = shrink_or_raise(anchor.covariance, shrinkage, moments.n_rows)
    effect = measured_effect(moments, people, delta, anchor, C, scale)
    if calibration.parts and effect.matches_pairs:
        # Both views of the same events: rows in which the source is associated with nothing.
        spread = spread + calibration.within.scaled(scale)
        n_views, n_means = calibration.weights.sum(), len(calibration.sources)
        anchor = within_anchor(spread, B, n + n_views, K + n_means, anchor.ridge)
        C = shrink_or_raise(anchor.covariance, shrinkage, moments.n_rows)
    path = ordered_directions(C, delta, contrasts, B / scale[:, None])
    told = "acted"
    if do_no_harm and not effect.exists:
        path, told = path[:, :0], "not clear in these rows, nothing was done"
    elif n_directions == "auto":
        path = path[:, : supported(moments, contrasts, delta, anchor, C, scale, effect)]
    else:
        path = path[:, : int(n_directions)]
    readout = (anchor.residual @ scipy.linalg.cho_solve(scipy.linalg.cho_factor(C), path)) / scale[:, None]
    stored = PathMap(
        center=standardizer.center,
        scale=standardizer.scale,
        readout=readout.T,
        direction=(B @ path * standardizer.scale[:, None]).T,
        offset=(standardizer.center - moments.means.mean(axis=0)) @ readout,
        strength=float(strength),
        info=MapInfo(evidence=f"{effect}; {told}"),
    )
    return stored, C, effect


def shrink_or_raise(C: Floats, shrinkage: float, n_rows: int) -> Floats:
    """Return C shrunk toward its mean diagonal, (1 - γ) C + γ (tr C / r) I, or say that there is none."""
    C = (1.0 - shrinkage) * C + shrinkage * np.trace(C) / len(C) * np.eye(len(C))
    if not np.trace(C) > 0:
        raise ValueError(
            f"{n_rows} rows leave no variation inside the gate once Q and the source are accounted for; use "
            "more rows."
        )
    return np.asarray(C)


@dataclass(frozen=True)
class GateAnchor:
    """ẑ(q), the gate coordinates expected given the preserved ones, and how rows scatter about it.

    Attributes
    ----------
    residual : (d, r)
        G with z - ẑ(q) = (h - center) G, so that Gᵀ S G is the residual scatter of rows with scatter S.
    covariance : (r, r)
        C, of the residuals within sources.
    ridge, n_free : float, float
        The penalty, and the degrees of freedom that the regression leaves.
    basis : (d, r)
        B.
    axes : PrincipalAxes
        Of the rows' scatter once B is taken out of their columns: the preserved coordinates'.
    """

    residual: Floats
    covariance: Floats
    ridge: float
    n_free: float
    basis: Floats
    axes: PrincipalAxes

    def leverage(self, rows: Floats) -> Floats:
        """Return q (S + λI)⁻¹ qᵀ for rows: how uncertain the regression is at (and between) them."""
        along = self.axes.along(outside(self.basis, rows.T))
        return np.asarray((along.T / (self.axes.values + self.ridge)) @ along)


def preserved_axes(spread: Scatter, B: Floats) -> tuple[Floats, Floats, PrincipalAxes]:
    """Return BᵀSB, the products VᵀSB with the axes V of the preserved coordinates, and those axes.

    With fewer rows than features nothing here is larger than the rows.
    """
    if spread.factored:
        Z = spread.times(B)
        values, U = np.linalg.eigh(spread.gram() - Z @ Z.T)  # QQᵀ, without a copy of the rows
        resolved = values > (values[-1] + np.sum(Z**2)) * len(Z) * np.finfo(np.float64).eps
        values, U = values[resolved], U[:, resolved]
        axes = PrincipalAxes(values, U / np.sqrt(values), spread)
        return Z.T @ Z, np.sqrt(values)[:, None] * (U.T @ Z), axes
    S = spread.matrix
    SB = S @ B
    total, cross = B.T @ SB, SB - B @ (B.T @ SB)
    Q = S - SB @ B.T - B @ cross.T
    values, vectors = np.linalg.eigh((Q + Q.T) / 2)
    # Next to nothing, where the gate is everything, is nothing.
    resolved = values > (values[-1] + np.trace(total)) * len(Q) * np.finfo(np.float64).eps
    axes = PrincipalAxes(values[resolved], vectors[:, resolved])
    return total, axes.along(cross), axes


def within_anchor(spread: Scatter, B: Floats, n: float, n_means: int, ridge: float | None) -> GateAnchor:
    """Regress z on q within sources: every row is compared with the mean of its own source.

    Regressed on rows of all sources together, an anchor learns that q tells the task, the task tells the
    source and the source shifts z, and writes that association into the embeddings. Differences within a
    source know nothing of it.

    Parameters
    ----------
    spread : Scatter
        Of the standardised rows about their sources' means.
    B : (d, r)
        Gate basis.
    n, n_means : float, int
        Number of rows (total weight), and of the means taken from them.
    ridge : float or None
        Penalty on the sum-of-squares scale; None takes :func:`cross_validated_ridge`.
    """
    total, products, axes = preserved_axes(spread, B)
    values = axes.values
    if ridge is None:
        ridge = cross_validated_ridge(values, products, float(np.trace(total)), n - n_means)
    shrunk = values + ridge
    n_free = n - n_means - float(np.sum(values / shrunk))
    if not n_free > 0:
        raise ValueError(
            f"{n:g} rows leave nothing to estimate the spread inside the gate from; use more rows, or a "
            "larger ridge."
        )
    explained = products.T @ ((2.0 / shrunk - values / shrunk**2)[:, None] * products)
    covariance = (total - explained) / n_free
    residual = B - outside(B, axes.back(products / shrunk[:, None]))
    covariance = (covariance + covariance.T) / 2
    return GateAnchor(residual, covariance, float(ridge), n_free, B, axes)


def cross_validated_ridge(values: Floats, products: Floats, total: float, n: float) -> float:
    """Return the penalty that minimises generalised cross-validation, from moments alone.

    Degrees of freedom count 1.4 times, the usual guard (Kim and Gu, 2004) against the too small penalties
    that plain cross-validation now and then prefers.

    Parameters
    ----------
    values : (p,)
        Scatter of the regressors along their principal axes.
    products : (p, r)
        Their products with the targets.
    total : float
        Sum of squares of the targets.
    n : float
        Rows, less the means taken from them.
    """
    if not len(values):
        return 1.0
    grid = values[-1] * np.logspace(-10, 2, 73)
    shrunk = values + grid[:, None]
    residual = total - (2.0 / shrunk - values / shrunk**2) @ np.sum(products**2, axis=1)
    free = n - 1.4 * np.sum(values / shrunk, axis=1)
    score = np.where(free > 0, residual / np.where(free > 0, free, 1.0) ** 2, np.inf)
    return float(grid[np.argmin(score)] if np.isfinite(score).any() else grid[-1])


def measured_effect(
    moments: Moments, people: Means, delta: Floats, anchor: GateAnchor, C: Floats, scale: Floats
) -> Effect:
    """Return how much of the mean contrast the rows of different sources differ by, given q.

    The standard error is the larger of two: of independent rows, and, where participants are known, of
    participants, whose rows rise and fall together.
    """
    gaps = (moments.means[1:] - moments.means[0]) / scale  # (K - 1, d)
    weights = scipy.linalg.cho_solve(scipy.linalg.cho_factor(C), delta.T).T  # (K - 1, r): C⁻¹δ
    total = float(np.sum(weights * delta))
    size = float(np.sum(weights * (gaps @ anchor.residual))) / total
    uncertain = np.diag(1.0 / moments.counts[1:]) + 1.0 / moments.counts[0] + anchor.leverage(gaps)
    variance = float(np.sum((weights @ delta.T) * uncertain)) / total**2
    if len({person for _, person in people.parts}) > 1:
        by_source = np.concatenate([-weights.sum(axis=0, keepdims=True), weights]) / total  # (K, r)
        sums = zip(moments.means, moments.weights, by_source, strict=True)
        means = dict(zip(moments.sources, sums, strict=True))
        influence: dict[Any, float] = {}
        for (source, person), (weight, mean) in people.parts.items():
            center, total_weight, direction = means[source]
            residual = ((mean - center) / scale) @ anchor.residual @ direction
            influence[person] = influence.get(person, 0.0) + weight / total_weight * float(residual)
        count = len(influence)
        variance = max(variance, count / (count - 1) * float(np.sum(np.square(list(influence.values())))))
    return Effect(size, float(np.sqrt(variance)))


def ordered_directions(C: Floats, delta: Floats, contrasts: Contrasts, basis: Floats) -> Floats:
    """Return all directions of the gate, (r, r), C⁻¹-orthonormal: mean contrasts first, then their spread.

    ``basis`` takes contrasts in the input's units to gate coordinates.
    """
    L = np.linalg.cholesky(C)
    _, sizes, mean_axes = np.linalg.svd(scipy.linalg.solve_triangular(L, delta.T, lower=True).T)
    mean_axes = mean_axes[: int(np.sum(sizes > sizes[0] * 1e-10))].T  # (r, k)
    projected = scipy.linalg.solve_triangular(L, (contrasts.values @ basis).T, lower=True).T
    effects = np.concatenate([np.zeros((1, len(C))), scipy.linalg.solve_triangular(L, delta.T, lower=True).T])
    projected -= effects[contrasts.second] - effects[contrasts.first]
    projected -= projected @ mean_axes @ mean_axes.T
    axes = np.linalg.svd(np.concatenate([projected, np.zeros_like(C)]), full_matrices=False)[2].T
    # The mean's axes have no spread left: they come out last, and go first.
    rest = axes[:, : len(C) - mean_axes.shape[1]]
    rest = rest - mean_axes @ (mean_axes.T @ rest)
    return np.asarray(L @ np.concatenate([mean_axes, np.linalg.qr(rest)[0]], axis=1))


def supported(
    moments: Moments,
    contrasts: Contrasts,
    delta: Floats,
    anchor: GateAnchor,
    C: Floats,
    scale: Floats,
    effect: Effect,
) -> int:
    """Return how many directions to correct along: the mean's, then those along which sources vary unequally.

    Directions are chosen on four fifths of the pairs (of the people, where known). A further one is supported
    if the rows' variances along it differ between sources, by more than two standard errors and by more than
    :data:`MATERIAL`, and the other pairs agree which source varies more: an association of source and task
    shows in the rows, but not in two views of the same events.
    """
    r = len(C)
    n_mean, n_sources = int(np.linalg.matrix_rank(delta)), len(moments.sources)
    folds = contrast_folds(contrasts.values / scale, contrasts.people) if r > n_mean else []
    if not folds:
        return n_mean
    inverse = np.linalg.inv(C)
    scatters = [part.spread.scaled(scale).inside(anchor.residual) for part in moments.parts.values()]
    views, codes = contrasts.views()
    residuals = (views / scale) @ anchor.residual
    agreement = np.zeros(r)
    for train, test in folds:
        chosen = ordered_directions(C, delta, contrasts.take(train), anchor.basis / scale[:, None])
        G = inverse @ chosen  # residuals to scores along the directions
        of_rows = [np.sum(G * (S @ G), axis=0) / w for S, w in zip(scatters, moments.weights, strict=True)]
        tested = np.isin(np.arange(len(codes)) % len(contrasts), test)
        of_pairs = [(residuals[tested & (codes == k)] @ G).var(axis=0) for k in range(n_sources)]
        # Rows that differ against the contrast say that the views were given in the other order.
        wider = np.sign(effect.size) * np.sign(of_pairs / np.mean(of_pairs, axis=0) - 1.0)
        agreement += np.mean(wider * (of_rows / np.mean(of_rows, axis=0) - 1.0), axis=0) / len(folds)
    # The variance of n rows has a relative standard error of √(2/n).
    error = np.sqrt(2.0 * np.sum(1.0 / moments.counts)) / n_sources
    good = agreement > max(MATERIAL, 2.0 * error)
    last, quiet = n_mean, 0
    for j in range(n_mean, r):
        quiet = 0 if good[j] else quiet + 1
        last = j + 1 if good[j] else last
        if quiet == QUIET:
            break
    return last
