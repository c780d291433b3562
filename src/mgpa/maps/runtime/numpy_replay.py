"""Replaying a staged map with numpy alone, at close to the cost of one matrix product.

The weights are those of :mod:`mgpa.maps.runtime.folding`: one product for all stages, and a loop over them in
the r coordinates of the gate. Where numba is installed that loop is :mod:`mgpa.maps.runtime.numba_kernels`.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...trust_region import smooth_weights, step_coefficients, two_scores
from .compiled import Stages, kernels, n_threads, one_blas_thread
from .folding import fold_stages, linear_gram
from .gelu import gelu_and_slope

if TYPE_CHECKING:
    from .. import StagedMap

Floats = NDArray[Any]

# Rows that share the one product; rows whose hidden layer stays in a core's second-level cache; rows of the
# small products inside the loop, few enough that a BLAS runs them on the calling thread, where the data is.
BLOCK_ROWS = 2048
CACHE_ROWS = 256
BLAS_ROWS = 32
# Up to this many rows, scalar arithmetic beats numpy's overhead per call.
FEW_ROWS = 3


class Replay:
    """The arrays a :class:`~mgpa.maps.StagedMap` needs at application, in one floating-point type."""

    def __init__(self, m: StagedMap, dtype: np.dtype[Any]) -> None:
        self.n_stages, self.n_linear, self.n_hidden, self.n_network = m.sizes
        weights = fold_stages(m).cast(partial(np.ascontiguousarray, dtype=dtype))
        # The last row meets a column of ones.
        self.first = np.vstack([weights.first, weights.constant])
        self.starts = weights.start is not None
        if self.starts:
            self.first = np.hstack([self.first, np.vstack([weights.start, weights.start_constant])])
        self.hidden_gate, self.linear_gate = weights.hidden_gate, weights.linear_gate
        self.output, self.back, self.anchor_gate = weights.output, weights.back, weights.anchor_gate
        # (stage, network, hidden, r): one product for each score's gradient.
        by_score = weights.gradient_gate.reshape(self.n_stages, self.n_hidden, self.n_network, m.rank)
        self.gradient_gate = np.ascontiguousarray(by_score.swapaxes(1, 2))
        self.linear_gram = linear_gram(weights.linear_gate)
        self.center, self.inverse_scale = weights.center, weights.inverse_scale
        self.damping, self.radius, self.stabilizer = m.damping, m.radius, m.stabilizer
        self.last_fraction = m.fraction
        nothing = np.zeros((self.n_stages, 0, self.n_hidden), dtype)
        self.stages = Stages(
            hidden_gate=self.hidden_gate,
            linear_gate=self.linear_gate,
            linear_gram=self.linear_gram,
            output=np.ascontiguousarray(self.output.swapaxes(1, 2)),
            gradient_gate=weights.gradient_gate,
            anchor_gate=nothing if self.anchor_gate is None else self.anchor_gate,
            damping=m.damping,
            radius=m.radius,
            stabilizer=m.stabilizer,
            last_fraction=m.fraction,
        )

    def apply(
        self,
        X: Floats,
        out: Floats,
        strength: float,
        squares: NDArray[np.float64] | None = None,
        metric: NDArray[np.float64] | None = None,
    ) -> bool:
        """Write the corrected rows of X into ``out``, which may be X; say whether all edits are finite.

        ``squares``, one number per stage, receives the sum of squared displacements after each:
        Δzᵀ metric Δz, or ‖Δz‖² without one.
        """
        compiled = kernels()
        if compiled is not None:
            return self._apply_compiled(compiled, X, out, strength, squares, metric)
        if squares is None and len(X) <= FEW_ROWS and self.n_linear == 1 and self.n_network == 1:
            rows = zip(*self._first(X, pad=False), strict=True)
            z = np.stack([self._row(first, start) for first, start in rows])
            return self._write(X, z, strength, out)
        finite = True
        blocks = [slice(i, i + BLOCK_ROWS) for i in range(0, len(X), BLOCK_ROWS)]
        # The product of the next block runs beside the stages of this one: the first is one long BLAS
        # call, the second many short single-threaded ones.
        with ThreadPoolExecutor(1) as pool:
            upcoming = pool.submit(self._first, X[blocks[0]])
            for block, following in zip(blocks, [*blocks[1:], None], strict=True):
                first, z = upcoming.result()
                if following is not None:
                    upcoming = pool.submit(self._first, X[following])
                self._rows(first, z, len(X[block]), squares, metric)
                finite &= self._write(X[block], z, strength, out[block])
        return finite

    def _apply_compiled(
        self,
        compiled: ModuleType,
        X: Floats,
        out: Floats,
        strength: float,
        squares: NDArray[np.float64] | None,
        metric: NDArray[np.float64] | None,
    ) -> bool:
        """Do what :meth:`apply` does, each thread from product to output with parts of its own.

        Parts do not depend on the number of threads, so neither does a bit of the result.
        """
        parts = [slice(i, i + CACHE_ROWS) for i in range(0, len(X), CACHE_ROWS)]
        sums = np.zeros((len(parts), 0 if squares is None else self.n_stages))
        metric = np.eye(len(self.back)) if metric is None else metric

        def work(thread: int, threads: int) -> bool:
            finite, product = True, np.empty((len(X[parts[0]]), self.first.shape[1]), dtype=X.dtype)
            with np.errstate(over="ignore", invalid="ignore"):  # the caller's does not reach this thread
                for i in range(thread, len(parts), threads):
                    rows = parts[i]
                    first = self._product(X[rows], product)
                    z, point = self._start(first)
                    compiled.run_stages(self.stages, first, point, z, metric, sums[i])
                    finite &= self._write(X[rows], z, strength, out[rows])
            return finite

        threads = min(n_threads(), len(parts))
        if threads == 1:
            finite = work(0, 1)
        else:
            with one_blas_thread() as granted:
                threads = threads if granted else 1
                with ThreadPoolExecutor(threads) as pool:
                    finite = all(list(pool.map(work, range(threads), repeat(threads))))
        if squares is not None:
            squares += sums.sum(axis=0)
        return finite

    def _start(self, first: Floats) -> tuple[Floats, Floats]:
        """Return Δz before the first stage and the coordinates of the anchored point, out of the product."""
        end = self.n_stages * (self.n_hidden + self.n_linear + self.n_network)
        end_of_point = end + self.stages.anchor_gate.shape[1]
        z = np.zeros((len(first), len(self.back)), dtype=first.dtype)
        if self.starts:
            z[:] = first[:, end_of_point:]
        return z, np.ascontiguousarray(first[:, end:end_of_point])

    def _product(self, X: Floats, out: Floats) -> Floats:
        """Write ``h₀ @ first``, constants included, into the first rows of ``out`` and return those."""
        h = np.ones((len(X), X.shape[1] + 1), dtype=X.dtype)
        np.subtract(X, self.center, out=h[:, :-1])
        h[:, :-1] *= self.inverse_scale
        with np.errstate(over="ignore", invalid="ignore"):  # the caller's does not reach other threads
            return np.matmul(h, self.first, out=out[: len(X)])

    def _first(self, X: Floats, pad: bool = True) -> tuple[Floats, Floats]:
        """Return what the stages need of ``h₀ @ first``, rows padded for :func:`_stacked_matmul`, and Δz."""
        padded = -(-len(X) // BLAS_ROWS) * BLAS_ROWS if pad else len(X)
        first = np.empty((padded, self.first.shape[1]), dtype=X.dtype)
        first[len(X) :] = 0.0
        self._product(X, first)
        z = np.zeros((len(first), len(self.back)), dtype=X.dtype)
        if self.starts:
            z[:] = first[:, first.shape[1] - len(self.back) :]
            first = first[:, : first.shape[1] - len(self.back)]
        with np.errstate(over="ignore", invalid="ignore"):
            return first if self.anchor_gate is None else self._anchored(first), z

    def _anchored(self, first: Floats) -> Floats:
        """Subtract the network's scores at the anchored point from its residuals, stage by stage."""
        n, n_hidden, n_anchor = len(first), self.n_hidden, self.anchor_gate.shape[1]
        point = first[:, first.shape[1] - n_anchor :]
        first = first[:, : first.shape[1] - n_anchor]
        stages = first.reshape(n, self.n_stages, -1)
        hidden = np.empty((4, min(n, CACHE_ROWS), n_hidden), dtype=first.dtype)
        for start in range(0, n if self.n_network else 0, CACHE_ROWS):
            rows = slice(start, start + CACHE_ROWS)
            u, value, slope, work = hidden[:, : len(stages[rows])]
            for k in range(self.n_stages):
                np.matmul(point[rows], self.anchor_gate[k], out=u)
                u += stages[rows, k, :n_hidden]
                gelu_and_slope(u, value, slope, work)
                stages[rows, k, n_hidden + self.n_linear :] -= value @ self.output[k]
        return first

    def _write(self, X: Floats, z: Floats, strength: float, out: Floats) -> bool:
        z = z[: len(X)]
        z *= strength
        np.add(X, z @ self.back, out=out)
        return bool(np.isfinite(z).all())

    def _rows(
        self,
        first: Floats,
        z: Floats,
        n_real: int,
        squares: NDArray[np.float64] | None,
        metric: NDArray[np.float64] | None,
    ) -> None:
        """Move Δz from the start through all stages; ``first`` is the product ``h₀ @ first``."""
        n, dtype = len(first), first.dtype
        first = first.reshape(n, self.n_stages, -1)
        hidden = np.empty((4, min(n, CACHE_ROWS), self.n_hidden), dtype=dtype)
        gradients = np.empty((self.n_network, *z.shape), dtype=dtype)
        wide = np.empty_like(gradients, dtype=np.float64)
        step = np.empty(z.shape, dtype=np.float64)
        n_linear, n_scores = self.n_linear, self.n_linear + self.n_network
        e = np.empty((n, n_scores), dtype=np.float64)
        gram = np.empty((n, n_scores, n_scores), dtype=np.float64)
        for k in range(self.n_stages):
            linear_gate, constants = self.linear_gate[k], first[:, k, self.n_hidden :]
            linear_wide = linear_gate.astype(np.float64)
            e[:, :n_linear] = constants[:, :n_linear]
            e[:, :n_linear] += z @ linear_gate.T
            gram[:, :n_linear, :n_linear] = self.linear_gram[k]
            if self.n_network:
                for start in range(0, n, CACHE_ROWS):
                    rows = slice(start, start + CACHE_ROWS)
                    u, value, slope, work = hidden[:, : len(z[rows])]
                    _stacked_matmul(z[rows], self.hidden_gate[k], u)
                    u += first[rows, k, : self.n_hidden]
                    gelu_and_slope(u, value, slope, work)
                    e[rows, n_linear:] = value @ self.output[k]
                    for weights, g in zip(self.gradient_gate[k], gradients, strict=True):
                        _stacked_matmul(slope, weights, g[rows])
                e[:, n_linear:] += constants[:, n_linear:]
            # Summed in float64: with more scores than gate directions the matrix is singular, and rounding
            # would grow by 1 / damping. The lower triangle is enough.
            wide[:] = gradients
            for j, g in enumerate(wide):
                gram[:, n_linear + j, :n_linear] = g @ linear_wide.T
                for i in range(j + 1):
                    np.einsum("nr,nr->n", wide[i], g, out=gram[:, n_linear + j, n_linear + i])
            y = weighted_coefficients(gram, e, self.damping, self.radius, self.stabilizer)
            if k == self.n_stages - 1:
                y *= self.last_fraction
                if k == 0:  # the start is part of the first stage
                    z *= self.last_fraction
            # Nearly parallel gradients take large opposite coefficients: their sum, too, is float64.
            np.matmul(y[:, :n_linear], linear_wide, out=step)
            for j, g in enumerate(wide):
                g *= y[:, n_linear + j, None]
                step += g
            z -= step
            if squares is not None:
                moved = z[:n_real].astype(np.float64)
                squares[k] += np.vdot(moved, moved if metric is None else moved @ metric)

    def _row(self, first: Floats, z: Floats) -> Floats:
        """One row, one linear and one network score: the same formulas with the 2 x 2 part in floats."""
        n_hidden, stabilizer2 = self.n_hidden, self.stabilizer**2
        rows = first.reshape(self.n_stages, -1)
        hidden, affine = rows[:, :n_hidden], rows[:, n_hidden:].astype(np.float64).tolist()
        linear_corner = self.linear_gram[:, 0, 0].tolist()
        u, value, slope, work = np.empty((4, n_hidden), dtype=first.dtype)
        g = np.empty_like(z)
        last = self.n_stages - 1
        for k in range(self.n_stages):
            v = self.linear_gate[k, 0]
            np.dot(z, self.hidden_gate[k], out=u)
            u += hidden[k]
            gelu_and_slope(u, value, slope, work)
            np.dot(slope, self.gradient_gate[k, 0], out=g)
            e1 = affine[k][0] + float(v.dot(z))
            e2 = float(value.dot(self.output[k, :, 0])) + affine[k][1]
            vv, vg, gg = linear_corner[k], float(v.dot(g)), float(g.dot(g))
            w1, w2 = 1.0 / math.sqrt(vv + stabilizer2), 1.0 / math.sqrt(gg + stabilizer2)
            y1, y2 = two_scores(
                vv * w1 * w1, gg * w2 * w2, vg * w1 * w2, e1 * w1, e2 * w2, self.damping, self.radius
            )
            if k == last:
                y1, y2 = y1 * self.last_fraction, y2 * self.last_fraction
                if k == 0:
                    z *= self.last_fraction
            z -= g * np.float64(y2 * w2) + v * np.float64(y1 * w1)
        return z


def _stacked_matmul(a: Floats, b: Floats, out: Floats) -> None:
    np.matmul(a.reshape(-1, BLAS_ROWS, a.shape[1]), b, out=out.reshape(-1, BLAS_ROWS, b.shape[1]))


def weighted_coefficients(
    gram: Floats, e: Floats, damping: float, radius: float, stabilizer: float
) -> Floats:
    """Return y, shape (n, J), with Δz = -Aᵀy, from the unweighted Gram matrix and residuals."""
    n_scores = e.shape[1]
    weight = smooth_weights(np.einsum("njj->nj", gram), stabilizer)
    e = e * weight
    if n_scores == 2:
        # Columns instead of 2 x 2 matrices: contiguous vectors are what numpy is fast at.
        w1, w2 = weight.T.copy()
        y1, y2 = two_scores(
            gram[:, 0, 0] * w1 * w1, gram[:, 1, 1] * w2 * w2, gram[:, 1, 0] * w1 * w2,
            e[:, 0].copy(), e[:, 1].copy(), damping, radius,
        )  # fmt: skip
        return np.stack([y1 * w1, y2 * w2], axis=1)
    gram = gram * weight[:, :, None] * weight[:, None, :]
    y = step_coefficients(gram, e, damping=damping, radius=radius)
    return np.asarray(y * weight)
