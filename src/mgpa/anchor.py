"""The anchor, which is the target of a correction: the expected score given Q (section 4, eq. (4)).

The anchor of a score is its ridge regression on the preserved coordinates Q = (I - P)h. Q does not change
during a fit, so its factorisation is computed once, and each further anchor needs only one thin product.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg

from ._common.arrays import cast, double, namespace, zeros
from .linalg import blocks, outside

Array = Any  # numpy array or torch tensor

TARGETS = ("conditional", "mean", "zero")
BLOCK_ROWS = 65536  # rows converted to float64 at a time


def ridge_solver(gram: Array, ridge: float) -> Callable[[Array], Array]:
    """Return a function that solves (G + ridge I) x = b, with one factorisation."""
    xp = namespace(gram)
    if ridge == 0:
        # Q has at most d - r independent columns, so return the minimum-norm solution.
        inverse = xp.linalg.pinv(gram, hermitian=True)
        return lambda cross: inverse @ cross
    shifted = gram + ridge * cast(np.eye(len(gram)), gram)
    if xp is np:
        return partial(scipy.linalg.cho_solve, scipy.linalg.cho_factor(shifted, lower=True))
    lower = xp.linalg.cholesky(shifted)
    return lambda cross: xp.cholesky_solve(cross, lower)


class ConditionalMean:
    """Ridge regression of scores on the preserved coordinates Q of rows.

    Eq. (12) gives the additional cost of an estimated anchor.
    """

    def __init__(self, H: Array, basis: Array, ridge: float, sample_weight: Array | None = None) -> None:
        n, d = H.shape
        self._H, self.basis = H, basis
        self._weight = zeros((n,), H) + 1.0 if sample_weight is None else sample_weight
        self._share = self._weight / self._weight.sum()
        mean = zeros((d,), H)
        for rows in blocks(n, BLOCK_ROWS):
            mean += self._share[rows] @ double(H[rows])
        gram = zeros((d, d), H)
        for rows in blocks(n, BLOCK_ROWS):
            centred = double(H[rows]) - mean
            gram += (centred * self._weight[rows, None]).T @ centred
        self._mean, self._solve = mean, ridge_solver(outside(basis, outside(basis, gram).T), ridge)

    def fit(self, scores: Array) -> tuple[Array, Array]:
        """Return coefficients (J, d) in the complement of the gate and intercepts (J,) for scores (n, J)."""
        mean, cross = self.mean(scores), 0.0
        for rows in blocks(len(scores), BLOCK_ROWS):
            # Centred scores sum to zero, so rows need no centring and no float64 copy.
            centred = (scores[rows] - mean) * self._weight[rows, None]
            cross = cross + double(self._H[rows].T @ cast(centred, self._H))
        coefficients = outside(self.basis, self._solve(outside(self.basis, cross)))
        return coefficients.T, mean - self._mean @ coefficients

    def mean(self, scores: Array) -> Array:
        """Return the (weighted) mean of scores (n, J)."""
        return self._share @ scores


def fit_anchor(target: str, regression: ConditionalMean, scores: Array) -> tuple[Array, Array]:
    """Return the anchor's coefficients (J, d) and intercepts (J,) for the chosen target of scores (n, J)."""
    if target == "conditional":
        return regression.fit(scores)
    mean = regression.mean(scores)
    no_slope = zeros((scores.shape[1], len(regression.basis)), scores)
    return no_slope, mean if target == "mean" else mean * 0.0
