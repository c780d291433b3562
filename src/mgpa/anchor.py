"""What a correction aims for: the expected value given what is preserved (section 4, eq. (4)).

The anchor of a score is its ridge regression on the preserved coordinates Q = (I - P)h. Q never changes
during a fit, so its factorisation is computed once and every later anchor costs one thin product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ._common.arrays import cast, double, namespace, zeros
from ._common.scatter import PrincipalAxes, Scatter, blocks
from .errors import ParameterError

Array = Any  # numpy array or torch tensor

TARGETS = ("conditional", "mean", "zero")
BLOCK_ROWS = 65536  # rows that are held in float64 at a time


def outside(basis: Array, columns: Array) -> Array:
    """Return (I - BBᵀ) applied to columns: what of them lies outside the span of an orthonormal basis."""
    return columns - basis @ (basis.T @ columns)


class RidgeSolver:
    """(G + ridge I)⁻¹ for one Gram matrix and many right-hand sides."""

    def __init__(self, gram: Array, ridge: float) -> None:
        xp = namespace(gram)
        if not 0 <= ridge < np.inf:
            raise ParameterError("ridge", ridge, "a number, 0 or more")
        if ridge == 0:
            # Q has no more than d - r independent columns: the minimum-norm solution.
            inverse = xp.linalg.pinv(gram, hermitian=True)
            self.solve: Callable[[Array], Array] = lambda cross: inverse @ cross
            return
        shifted = gram + ridge * cast(np.eye(len(gram)), gram)
        if xp is np:
            factor = scipy.linalg.cho_factor(shifted, lower=True)
            self.solve = lambda cross: scipy.linalg.cho_solve(factor, cross)
        else:
            lower = xp.linalg.cholesky(shifted)
            self.solve = lambda cross: xp.cholesky_solve(cross, lower)


@dataclass(frozen=True)
class ScoreMoments:
    """Scores of some rows: their mean, shape (J,), and Σ w h (s - mean)ᵀ with the rows, shape (d, J)."""

    mean: Array
    cross: Array


class PreservedRegression:
    """Ridge regression of scores on the preserved coordinates Q, from sums over rows.

    The rows themselves are not needed, so there may be more of them than can be held. What estimating the
    anchor adds to the cost of a correction is eq. (12).

    Parameters
    ----------
    mean : array of shape (d,)
        Mean of the original (standardised) rows.
    gram : array of shape (d, d)
        Their scatter Σ w (h - mean)(h - mean)ᵀ.
    basis : array of shape (d, r)
        Gate basis whose complement is Q.
    ridge : float
        Penalty on the coefficients (not on the intercept), on the sum-of-squares scale.
    """

    def __init__(self, mean: Array, gram: Array, basis: Array, ridge: float) -> None:
        self._mean, self._basis = mean, basis
        self._solver = RidgeSolver(outside(basis, outside(basis, gram).T), ridge)

    def solve(self, scores: ScoreMoments) -> tuple[Array, Array]:
        """Return coefficients (J, d), lying in the complement, and intercepts (J,)."""
        coefficients = outside(self._basis, self._solver.solve(outside(self._basis, scores.cross)))
        return coefficients.T, scores.mean - self._mean @ coefficients


class ConditionalMean(PreservedRegression):
    """Ridge regression of scores on the preserved coordinates Q of rows in memory.

    Parameters
    ----------
    H : array of shape (n, d)
        Original (standardised) rows.
    basis, ridge
        As in :class:`PreservedRegression`.
    sample_weight : array of shape (n,) or None
        Row weights.
    """

    def __init__(self, H: Array, basis: Array, ridge: float, sample_weight: Array | None = None) -> None:
        n, d = H.shape
        self._H = H
        self._weight = zeros((n,), H) + 1.0 if sample_weight is None else sample_weight
        self._share = self._weight / self._weight.sum()
        mean = zeros((d,), H)
        for rows in blocks(n, BLOCK_ROWS):
            mean += self._share[rows] @ double(H[rows])
        gram = zeros((d, d), H)
        for rows in blocks(n, BLOCK_ROWS):
            centred = double(H[rows]) - mean
            gram += (centred * self._weight[rows, None]).T @ centred
        super().__init__(mean, gram, basis, ridge)

    def moments(self, scores: Array) -> ScoreMoments:
        """Return the moments of the rows' scores (n, J)."""
        mean = self._share @ scores
        cross = 0.0
        for rows in blocks(len(scores), BLOCK_ROWS):
            # Centred scores sum to zero, so the rows need not be centred, nor copied to float64.
            centred = (scores[rows] - mean) * self._weight[rows, None]
            cross = cross + double(self._H[rows].T @ cast(centred, self._H))
        return ScoreMoments(mean, cross)

    def fit(self, scores: Array) -> tuple[Array, Array]:
        """Return coefficients (J, d), lying in the complement, and intercepts (J,) for scores (n, J)."""
        return self.solve(self.moments(scores))


def fit_anchor(target: str, regression: PreservedRegression, scores: ScoreMoments) -> tuple[Array, Array]:
    """Return the anchor's coefficients (J, d) and intercepts (J,) for the chosen target."""
    if target == "conditional":
        return regression.solve(scores)
    if target not in TARGETS:
        raise ParameterError("target", target, f"one of {', '.join(TARGETS)}")
    mean, no_slope = scores.mean, zeros(tuple(scores.cross.T.shape), scores.mean)
    return no_slope, mean if target == "mean" else mean * 0.0


def shrink(C: NDArray[np.float64], amount: float) -> NDArray[np.float64]:
    """Shrink a covariance toward its mean diagonal: (1 - γ) C + γ (tr C / r) I."""
    if not 0 <= amount <= 1:
        raise ParameterError("shrinkage", amount, "a number, 0 or more, at most 1")
    r = len(C)
    return np.asarray((1.0 - amount) * C + amount * np.trace(C) / r * np.eye(r))


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

    residual: NDArray[np.float64]
    covariance: NDArray[np.float64]
    ridge: float
    n_free: float
    basis: NDArray[np.float64]
    axes: PrincipalAxes

    def leverage(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return q (S + λI)⁻¹ qᵀ for rows: how uncertain the regression is at (and between) them."""
        along = self.axes.along(outside(self.basis, rows.T))
        return np.asarray((along.T / (self.axes.values + self.ridge)) @ along)


def within_anchor(
    spread: Scatter, B: NDArray[np.float64], n: float, n_means: int, ridge: float | None
) -> GateAnchor:
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
    if spread.factored:
        Z = spread.times(B)
        values, U = np.linalg.eigh(spread.gram() - Z @ Z.T)  # QQᵀ, without a copy of the rows
        resolved = values > (values[-1] + np.sum(Z**2)) * len(Z) * np.finfo(np.float64).eps
        values, U = values[resolved], U[:, resolved]
        axes = PrincipalAxes(values, U / np.sqrt(values), spread)
        total, products = Z.T @ Z, np.sqrt(values)[:, None] * (U.T @ Z)
    else:
        S = spread.matrix
        SB = S @ B
        total, cross = B.T @ SB, SB - B @ (B.T @ SB)
        Q = S - SB @ B.T - B @ cross.T
        values, vectors = np.linalg.eigh((Q + Q.T) / 2)
        # Next to nothing, where the gate is everything, is nothing.
        resolved = values > (values[-1] + np.trace(total)) * len(Q) * np.finfo(np.float64).eps
        values = values[resolved]
        axes = PrincipalAxes(values, vectors[:, resolved])
        products = axes.along(cross)
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


def cross_validated_ridge(
    values: NDArray[np.float64], products: NDArray[np.float64], total: float, n: float
) -> float:
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
