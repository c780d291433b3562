"""What a correction aims for: the expected value given what is preserved (section 4, eq. targets).

The anchor of a score is its ridge regression on the preserved coordinates Q = (I - P)h. Q never changes
during a fit, so its factorisation is computed once and every later anchor costs one thin product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ._arrays import cast, double, namespace, zeros

Array = Any  # numpy array or torch tensor

TARGETS = ("conditional", "mean", "zero")
_BLOCK = 65536  # rows that are held in float64 at a time


class RidgeSolver:
    """(G + ridge I)⁻¹ for one Gram matrix and many right-hand sides."""

    def __init__(self, gram: Array, ridge: float) -> None:
        xp = namespace(gram)
        if not 0 <= ridge < np.inf:
            raise ValueError(f"ridge must be zero or a positive number; got {ridge!r}.")
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


class ConditionalMean:
    """Ridge regression of any scores on the preserved coordinates of fixed rows.

    Parameters
    ----------
    H : array of shape (n, d)
        Original (standardised) rows.
    basis : array of shape (d, r)
        Gate basis whose complement is Q.
    ridge : float
        Penalty on the coefficients (not on the intercept), on the sum-of-squares scale.
    sample_weight : array of shape (n,) or None
        Row weights.
    """

    def __init__(self, H: Array, basis: Array, ridge: float, sample_weight: Array | None = None) -> None:
        n, d = H.shape
        weight = zeros((n,), H) + 1.0 if sample_weight is None else sample_weight
        self._H, self._basis = H, basis
        self._share = weight / weight.sum()
        self._weight = weight
        self._mean = zeros((d,), H)
        for rows in _blocks(n):
            self._mean += self._share[rows] @ double(H[rows])
        self.zero_coefficients = zeros((1, d), H)
        gram = zeros((d, d), H)
        for rows in _blocks(n):
            centred = double(H[rows]) - self._mean
            gram += (centred * weight[rows, None]).T @ centred
        self._solver = RidgeSolver(self._preserve(self._preserve(gram).T), ridge)

    def _preserve(self, columns: Array) -> Array:
        """Return (I - BBᵀ) applied to columns."""
        return columns - self._basis @ (self._basis.T @ columns)

    def mean(self, scores: Array) -> Array:
        """Return the (weighted) mean of each score."""
        return self._share @ scores

    def fit(self, scores: Array) -> tuple[Array, Array]:
        """Return coefficients (J, d), lying in the complement, and intercepts (J,) for scores (n, J)."""
        mean = self.mean(scores)
        cross = 0.0
        for rows in _blocks(len(scores)):
            # Centred scores sum to zero, so the rows need not be centred, nor copied to float64.
            centred = (scores[rows] - mean) * self._weight[rows, None]
            cross = cross + double(self._H[rows].T @ cast(centred, self._H))
        coefficients = self._preserve(self._solver.solve(self._preserve(cross)))
        return coefficients.T, mean - self._mean @ coefficients


def fit_anchor(target: str, regression: ConditionalMean, scores: Array) -> tuple[Array, Array]:
    """Return the anchor's coefficients (J, d) and intercepts (J,) for the chosen target."""
    if target == "conditional":
        return regression.fit(scores)
    if target in ("mean", "zero"):
        mean = regression.mean(scores)
        nothing = mean[:, None] * 0.0 + regression.zero_coefficients
        return nothing, mean if target == "mean" else mean * 0.0
    raise ValueError(f"target must be one of {', '.join(TARGETS)}; got {target!r}.")


def shrink(C: NDArray[np.float64], amount: float) -> NDArray[np.float64]:
    """Shrink a covariance toward its mean diagonal: (1 - γ) C + γ (tr C / r) I."""
    if not 0 <= amount <= 1:
        raise ValueError(f"shrinkage must lie in [0, 1]; got {amount!r}.")
    r = len(C)
    return np.asarray((1.0 - amount) * C + amount * np.trace(C) / r * np.eye(r))


def _blocks(n: int) -> list[slice]:
    return [slice(start, start + _BLOCK) for start in range(0, n, _BLOCK)]
