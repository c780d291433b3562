"""Regressions between paired views on principal components, and folds of pairs for choosing settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from ._base import Floats

N_FOLDS = 5
ROUNDING = 1e-10  # singular values below this share of the largest are rounding errors
# Singular values above these shares are accurate enough when computed from a Gram matrix: to choose settings,
# and to solve a regression to about 1e-12.
CLEAR, EXACT = 1e-5, 1e-2


def pair_folds(n: int, people: NDArray[Any] | None) -> NDArray[np.int64]:
    """Return the fold of each pair; folds keep participants (or, if unknown, neighbouring pairs) together."""
    units = np.arange(n) if people is None else np.unique(people, return_inverse=True)[1]
    if units.max() == 0:
        units = np.arange(n)
    n_units = int(units.max()) + 1
    folds: NDArray[np.int64] = units * min(N_FOLDS, n_units) // n_units
    return folds


def fewest_training(A: Floats) -> int:
    """Return the number of pairs in the smallest training part of equal folds."""
    return len(A) - -(-len(A) // N_FOLDS)


def principal_axes(B: Floats) -> Floats:
    """Return the matrix (d, k) to coordinates along the principal axes of views, in standard deviations.

    The number of axes is a third of the number of pairs. A model calibrated on the reference may depend on
    any axis, often on one with little variance. Large axes would dominate unscaled squared errors.
    """
    values, rows = leading_components(B - B.mean(axis=0), max(1, len(B) // 3))
    return np.asarray(rows.T / values * np.sqrt(len(B)))


def leading_components(A: Floats, count: int) -> tuple[Floats, Floats]:
    """Return up to ``count`` of the largest singular values of A and their right vectors.

    They are computed from the smaller Gram matrix, in a fifth of the time, or from A if a value is too small
    for the Gram matrix. Values at rounding level are dropped.
    """
    if (components := _components_of_gram(A, count, CLEAR)) is not None:
        return components
    _, values, rows = np.linalg.svd(A, full_matrices=False)
    k = min(count, int((values > ROUNDING * values.max(initial=0.0)).sum()))
    return values[:k], rows[:k]


def _components_of_gram(A: Floats, count: int, clear: float) -> tuple[Floats, Floats] | None:
    """Return leading singular values and right vectors of A; None if one is below ``clear`` of the first."""
    few = len(A) < A.shape[1]
    gram = A @ A.T if few else A.T @ A
    n, most = len(gram), min(count, len(gram))
    if 4 * most > n:  # all of them take less time than so many
        squares, vectors = (part[..., n - most :] for part in np.linalg.eigh(gram))
    else:
        squares, vectors = scipy.linalg.eigh(gram, subset_by_index=[n - most, n - 1])
    if not squares[0] > clear**2 * squares[-1]:
        return None
    values, vectors = np.sqrt(squares[::-1]), vectors[:, ::-1]
    return values, np.asarray((A.T @ (vectors / values) if few else vectors).T)


def principal_regression(A: Floats, B: Floats, count: int) -> tuple[Floats, Floats]:
    """Return up to ``count`` principal axes (r, d) of centred A, largest first, and slopes of B on them."""
    if (components := _components_of_gram(A, count, EXACT)) is not None:
        values, rows = components
        return rows, np.asarray(((rows @ (A.T @ B)).T / values**2).T)
    U, values, rows = np.linalg.svd(A, full_matrices=False)
    rank = min(count, int((values > ROUNDING * values.max(initial=0.0)).sum()))
    return rows[:rank], np.asarray(((U[:, :rank].T @ B).T / values[:rank]).T)


def by_components(A: Floats, B: Floats, new: Floats, counts: list[int]) -> Iterator[Floats]:
    """For each number of leading components of A, regress B on them, and yield predictions for new rows."""
    values, rows = leading_components(A, max(counts))
    along, slopes = new @ rows.T, rows @ (A.T @ B) / values[:, None] ** 2
    for k in counts:
        yield along[:, :k] @ slopes[:k]


def piecewise(
    gram: Floats, cross: Floats, window: int, counts: list[int]
) -> Iterator[scipy.sparse.csc_array]:
    """Yield the regressions of all features on components of their neighbours, for each number of components.

    All neighbourhoods are decomposed together, from the products AᵀA and AᵀB.
    """
    d, width = len(gram), 2 * window + 1
    at = np.arange(d)[:, None] + np.arange(-window, window + 1)
    inside, at = (at >= 0) & (at < d), np.clip(at, 0, d - 1)
    values, axes = np.linalg.eigh(gram[at[:, :, None], at[:, None]] * (inside[:, :, None] & inside[:, None]))
    values, axes = values[:, ::-1], axes[:, :, ::-1]
    products = np.einsum("jik,ji->jk", axes, cross[at, np.arange(d)[:, None]] * inside)
    resolved = values > width * np.finfo(np.float64).eps * values[:, :1]
    slopes = np.where(resolved, products / np.where(resolved, values, 1.0), 0.0)
    coefficients = np.cumsum(axes * slopes[:, None], axis=2)
    for k in counts:
        of_feature = coefficients[:, :, min(k, width) - 1] * inside
        yield scipy.sparse.csc_array((of_feature.ravel(), at.ravel(), width * np.arange(d + 1)), shape=(d, d))
