"""Linear algebra that does not grow with the rows: scatter matrices, their principal axes, ridge penalties.

The scatter of fewer rows than features is stored as these rows. All decompositions are truncated in one
function (:func:`resolved_axes`), which removes axes that are only rounding errors. Threads share rows in one
function (:func:`in_threads`).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = Any  # numpy array or torch tensor
Floats = NDArray[np.float64]
Item = TypeVar("Item")
Result = TypeVar("Result")

EPS = float(np.finfo(np.float64).eps)
# Numbers in float64 that one product takes: 16 MiB.
BLOCK = 2**21
# Numbers in float64 that are converted, centred and summed up together: 1 MiB, which stays in a core's cache.
PIECE = 2**17


def blocks(n: int, size: int) -> list[slice]:
    """Return slices of ``size`` rows that cover n rows; the last may have fewer rows."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def outside(basis: Array, columns: Array) -> Array:
    """Return (I - BBᵀ) applied to columns: their part outside the span of an orthonormal basis."""
    return columns - basis @ (basis.T @ columns)


def resolved_axes(matrix: Floats, size: float, also: float = 0.0) -> tuple[Floats, Floats]:
    """Return eigenvalues in increasing order and eigenvectors of a symmetric matrix, without rounding errors.

    Eigenvalues are rounding errors if they are below ``size`` times the machine precision, relative to the
    largest eigenvalue and to the size of the terms whose difference is the matrix (``also``).
    """
    values, vectors = np.linalg.eigh(matrix)
    resolved = values > (values.max(initial=0.0) + also) * size * EPS
    return values[resolved], vectors[:, resolved]


@dataclass(frozen=True)
class Scatter:
    """A sum of squares FᵀF, stored as a matrix or, if F has fewer rows than features, as F."""

    dense: Floats | None
    factors: tuple[tuple[Floats, Floats | None], ...] = ()  # rows of F, and what to divide their features by

    @classmethod
    def from_rows(cls, F: Floats) -> Scatter:
        """Return the scatter of rows that are already centred and weighted."""
        return cls(None, ((F, None),)) if len(F) < F.shape[1] else cls(F.T @ F)

    @property
    def factored(self) -> bool:
        """Whether there are fewer rows than features."""
        return self.dense is None

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return int((self.factors[0][0] if self.dense is None else self.dense).shape[1])

    @property
    def n_rows(self) -> int:
        """Number of rows of F, if the scatter is stored as F."""
        return sum(len(rows) for rows, _ in self.factors)

    def __add__(self, other: Scatter) -> Scatter:
        if self.dense is None and other.dense is None:
            both = Scatter(None, self.factors + other.factors)
            return both if both.n_rows < both.n_features else Scatter(both.matrix)
        return Scatter(self.matrix + other.matrix)

    def scaled(self, scale: Floats) -> Scatter:
        """Return the scatter of features divided by ``scale``."""
        if self.dense is not None:
            return Scatter(self.dense / scale / scale[:, None])
        factors = ((F, scale if before is None else before * scale) for F, before in self.factors)
        return Scatter(None, tuple(factors))

    def take(self, features: NDArray[np.bool_]) -> Scatter:
        """Return the scatter of the selected features."""
        if features.all():
            return self
        if self.dense is not None:
            return Scatter(self.dense[np.ix_(features, features)])
        return Scatter(
            None, tuple((F[:, features], None if s is None else s[features]) for F, s in self.factors)
        )

    def _columns(self) -> Iterator[tuple[slice, Floats]]:
        """Yield blocks of columns of F."""
        for columns in blocks(self.n_features, max(1, BLOCK // max(1, self.n_rows))):
            pieces = [F[:, columns] if s is None else F[:, columns] / s[columns] for F, s in self.factors]
            yield columns, pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def rows(self) -> Floats:
        """Return F (m, d), if the scatter is stored as F."""
        F = np.empty((self.n_rows, self.n_features))
        for columns, piece in self._columns():
            F[:, columns] = piece
        return F

    def gram(self) -> Floats:
        """Return FFᵀ (m, m), if the scatter is stored as F."""
        total = np.zeros((self.n_rows, self.n_rows))
        for _, F in self._columns():
            total += F @ F.T
        return total

    def times(self, columns: Floats) -> Floats:
        """Return the product of F with columns, (m, k), if the scatter is stored as F."""
        products = [F @ (columns if s is None else columns / s[:, None]) for F, s in self.factors]
        return np.concatenate(products)

    def back(self, coefficients: Floats) -> Floats:
        """Return the product of Fᵀ with coefficients, (d, k), if the scatter is stored as F."""
        total, start = np.zeros((self.n_features, coefficients.shape[1])), 0
        for F, scale in self.factors:
            products = F.T @ coefficients[start : start + len(F)]
            total += products if scale is None else products / scale[:, None]
            start += len(F)
        return total

    @property
    def matrix(self) -> Floats:
        """FᵀF, shape (d, d)."""
        if self.dense is not None:
            return self.dense
        F = self.rows()
        return np.asarray(F.T @ F)

    @property
    def diagonal(self) -> Floats:
        """The diagonal of FᵀF, shape (d,)."""
        if self.dense is not None:
            return np.diag(self.dense)
        squares = np.zeros(self.n_features)
        for F, scale in self.factors:
            squares += np.einsum("ij,ij->j", F, F) / (1.0 if scale is None else scale**2)
        return squares

    def inside(self, G: Floats) -> Floats:
        """Return GᵀFᵀFG, the scatter in the coordinates along the columns of G (d, r)."""
        if self.dense is not None:
            return np.asarray(G.T @ (self.dense @ G))
        projected = self.times(G)
        return np.asarray(projected.T @ projected)

    def axes(self) -> PrincipalAxes:
        """Return the principal axes in increasing order, without rounding errors."""
        values, vectors = resolved_axes(self.gram() if self.dense is None else self.dense, self.n_features)
        if self.dense is None:
            return PrincipalAxes(values, vectors / np.sqrt(values), self)
        return PrincipalAxes(values, vectors)


@dataclass(frozen=True)
class PrincipalAxes:
    """Eigenvalues of a scatter matrix, and multiplication by its eigenvectors V, (d, p)."""

    values: Floats  # (p,), all positive
    vectors: Floats  # V; or, with fewer rows than features, M with V = FᵀM, which is never formed
    factor: Scatter | None = None  # FᵀF, in that case

    def along(self, columns: Floats) -> Floats:
        """Return the coordinates of columns along the axes, Vᵀ columns."""
        return np.asarray(self.vectors.T @ (columns if self.factor is None else self.factor.times(columns)))

    def back(self, coordinates: Floats) -> Floats:
        """Return the columns with the given coordinates along the axes, V coordinates."""
        products = self.vectors @ coordinates
        return products if self.factor is None else self.factor.back(products)


def cross_validated_ridge(values: Floats, products: Floats, total: float, n: float) -> float:
    """Return the penalty that minimises generalised cross-validation, from moments alone.

    Degrees of freedom are multiplied by 1.4 (Kim and Gu, 2004), because plain cross-validation sometimes
    chooses penalties that are too small.
    """
    if not len(values):
        return 1.0
    grid = ridge_grid(values)
    shrunk = values + grid[:, None]
    residual = total - (2.0 / shrunk - values / shrunk**2) @ np.sum(products**2, axis=1)
    free = n - 1.4 * np.sum(values / shrunk, axis=1)
    score = np.where(free > 0, residual / np.where(free > 0, free, 1.0) ** 2, np.inf)
    return float(grid[np.argmin(score)] if np.isfinite(score).any() else grid[-1])


def ridge_grid(values: Floats) -> Floats:
    """Return the candidate penalties for a scatter with these principal values, in increasing order."""
    return np.asarray(values[-1] * np.logspace(-10, 2, 73))


def n_threads() -> int:
    """Return the number of threads that share the rows: cores of this process, at most OMP_NUM_THREADS."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return min(cores, int(wanted)) if wanted.isdecimal() and int(wanted) else cores


def in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the function's result for every item, in order.

    Each thread processes whole items, including their matrix products: a BLAS that divides each small
    product among its threads spends most of the time waiting.
    """
    threads = min(n_threads(), len(items)) if len(items) > 1 else 1
    if threads > 1:
        with one_blas_thread() as granted, ThreadPoolExecutor(threads if granted else 1) as pool:
            return list(pool.map(function, items))
    return list(map(function, items))


@contextmanager
def one_blas_thread() -> Iterator[bool]:
    """Limit BLAS to one thread: several threads work on blocks of rows, or products are small.

    The limit applies to the whole process, so only one caller at a time can set it; yields whether this
    caller did. (Overlapping limits would restore each other and leave one thread permanently.)
    """
    blas = _blas("scipy.linalg" in sys.modules)
    if blas is None or not _LIMIT.acquire(blocking=False):
        yield False
        return
    try:
        with blas.limit(limits=1, user_api="blas"):
            yield True
    finally:
        _LIMIT.release()


def blas_for(n: int, d: int) -> AbstractContextManager[Any]:
    """Limit BLAS to one thread if n rows of d features, and d × d matrices, are small.

    In small decompositions, the threads of NumPy's and SciPy's BLAS would wait for each other.
    """
    return one_blas_thread() if max(n, d) * d <= BLOCK else nullcontext()


_LIMIT = threading.Lock()


@cache
def _blas(has_scipy: bool) -> Any:
    """Return what limits the libraries of BLAS loaded so far; scipy, which numba also uses, has its own."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:  # numpy alone applies maps
        return None
    return ThreadpoolController()
