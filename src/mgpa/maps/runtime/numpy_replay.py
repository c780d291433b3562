"""Apply a staged map: the loop over its stages for numpy and torch, and its application with numpy.

The weights come from :mod:`mgpa.maps.runtime.folding`: one matrix product for all stages, then a loop over
the stages in the r coordinates of the gate. If numba is installed, the loop is compiled for stages of up to
two scores (the number for two sources); see :mod:`mgpa.maps.runtime.numba_kernels`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._common.arrays import cast, double, namespace
from ...trust_region import smooth_weights, step_coefficients
from .compiled import kernels, on_blocks
from .folding import ERFC, LOG_DENSITY, Folded, P, fold_stages, linear_gram

Floats = NDArray[Any]
Array = Any  # numpy array or torch tensor

# Rows per block: their hidden layer fits into a core's second-level cache.
CACHE_ROWS = 256


def run_stages(
    first: Array, point: Array, z: Array, weights: Folded, fraction: float,
    solve: Callable[[Array, Array], Array], gelu: Callable[[Array], tuple[Array, Array]],
    after: Callable[[int, Array], None] | None = None,
) -> Array:  # fmt: skip
    """Return Δz after all stages, with ``fraction`` of the last; call ``after(k, Δz)`` after each stage.

    ``first`` is ``h₀ @ weights.first + weights.constant``, restricted to the columns of these stages,
    (n, S (H + L + N)).
    ``point`` (n, a) has the coordinates of the anchored point, or is None. ``z`` (n, r) is the initial Δz.
    ``solve`` returns y, with Δz = -Aᵀy, from float64 Gram matrices (n, J, J) and residuals (n, J). ``gelu``
    returns GELU and its derivative.
    """
    xp = namespace(z)
    n_stages, rank, n_hidden = weights.hidden_gate.shape
    n_network, n_linear = weights.output.shape[2], weights.linear_gate.shape[1]
    first = first.reshape(z.shape[0], n_stages, n_hidden + n_linear + n_network)
    linear_grams = linear_gram(weights.linear_gate)
    for k in range(n_stages):
        linear, hidden, gradients = weights.linear_gate[k], first[:, k, :n_hidden], None
        scores, gram = z @ linear.T, xp.broadcast_to(linear_grams[k], (z.shape[0], n_linear, n_linear))
        if n_network:
            value, slope = gelu(hidden + z @ weights.hidden_gate[k])
            if point is not None:
                value = value - gelu(hidden + point @ weights.anchor_gate[k])[0]
            scores = xp.concatenate([scores, value @ weights.output[k]], 1)
            # Summed in float64: with more scores than gate directions the matrix is singular, and rounding
            # errors would grow by 1 / damping.
            gradients = double((slope @ weights.gradient_gate[k]).reshape(z.shape[0], n_network, rank))
            lower = xp.concatenate(
                [gradients @ double(linear).T, gradients @ xp.swapaxes(gradients, 1, 2)], 2
            )
            upper = xp.concatenate([gram, xp.swapaxes(lower[:, :, :n_linear], 1, 2)], 2)
            gram = xp.concatenate([upper, lower], 1)
        y = solve(gram, double(first[:, k, n_hidden:] + scores))
        if k == n_stages - 1:
            y = y * fraction
            z = z * fraction if k == 0 else z  # the initial Δz is part of the first stage
        # Nearly parallel gradients have large opposite coefficients, so their sum is also float64.
        step = y[:, :n_linear] @ double(linear)
        if gradients is not None:
            step = step + (y[:, n_linear:, None] * gradients).sum(1)
        z = z - cast(step, z)
        if after is not None:
            after(k, z)
    return z


def weighted_coefficients(
    gram: Array, e: Array, damping: float, radius: float, stabilizer: float,
    step: Callable[..., Array] = step_coefficients,
) -> Array:  # fmt: skip
    """Return y, shape (n, J), with Δz = -Aᵀy, from the unweighted Gram matrix and residuals."""
    weight = smooth_weights(namespace(gram).diagonal(gram, 0, 1, 2), stabilizer)
    gram = gram * weight[:, :, None] * weight[:, None, :]
    return step(gram, e * weight, damping=damping, radius=radius) * weight


class Replay:
    """The arrays for applying a :class:`~mgpa.maps.StagedMap`, in one floating-point type."""

    def __init__(self, m: Any, dtype: np.dtype[Any]) -> None:
        S, L, H, N = m.sizes
        self.weights = w = fold_stages(m).cast(partial(np.ascontiguousarray, dtype=dtype))
        # The last row of weights multiplies a column of ones; the columns of the initial Δz come last.
        self.first = np.vstack([w.first, w.constant])
        if w.start is not None:
            self.first = np.hstack([self.first, np.vstack([w.start, w.start_constant])])
        self.n_columns, self.n_scores, self.fraction = S * (H + L + N), L + N, m.fraction
        self.solve = partial(
            weighted_coefficients, damping=m.damping, radius=m.radius, stabilizer=m.stabilizer
        )
        none, self.identity = np.zeros((S, 0, H), dtype), np.eye(m.rank)
        self.compiled = (
            w.hidden_gate, w.linear_gate, linear_gram(w.linear_gate),
            np.ascontiguousarray(w.output.swapaxes(1, 2)), w.gradient_gate,
            none if w.anchor_gate is None else w.anchor_gate,
            np.array([m.damping, m.radius, m.stabilizer, m.fraction]),
        )  # fmt: skip

    def apply(
        self, X: Floats, out: Floats, strength: float,
        squares: Floats | None = None, metric: Floats | None = None,
    ) -> bool:  # fmt: skip
        """Write the corrected rows of X into ``out`` (which may be X); return whether all edits are finite.

        ``squares`` (one number per stage) receives the sum of squared displacements after each stage:
        Δzᵀ metric Δz, or ‖Δz‖² without a metric. Each thread processes blocks from product to output. Blocks
        do not depend on the number of threads, so results are bit-identical for any number.
        """
        compiled = kernels() if self.n_scores <= 2 else None
        sums = np.zeros((-(-len(X) // CACHE_ROWS), 0 if squares is None else len(squares)))
        metric = self.identity if metric is None else metric
        several = len(X) > CACHE_ROWS  # several blocks, each with one BLAS thread; see on_blocks
        scratch = threading.local()  # one buffer per thread: a new one per block would cost 20 % of the time

        def correct(rows: slice) -> bool:
            if not hasattr(scratch, "product"):
                scratch.product = np.empty((min(len(X), CACHE_ROWS), self.first.shape[1]), dtype=X.dtype)
            added = sums[rows.start // CACHE_ROWS]
            with np.errstate(over="ignore", invalid="ignore"):  # the caller's setting has no effect here
                first, point, z = self._product(X[rows], scratch.product)
                if compiled is not None:
                    blas_size = compiled.LONG_BLAS_SIZE if several else compiled.BLAS_SIZE
                    compiled.run_stages(first, point, z, *self.compiled, metric, added, blas_size)
                else:
                    z = self._run(first, point, z, metric, added)
                z *= strength
                np.add(X[rows], z @ self.weights.back, out=out[rows])
            return bool(np.isfinite(z).all())

        finite = on_blocks(correct, len(X), CACHE_ROWS)
        if squares is not None:
            squares += sums.sum(axis=0)
        return finite

    def _product(self, X: Floats, buffer: Floats) -> tuple[Floats, Floats, Floats]:
        """Return ``h₀ @ first`` in three parts: columns of the stages, anchored point, and initial Δz."""
        h = np.ones((len(X), X.shape[1] + 1), dtype=X.dtype)
        np.subtract(X, self.weights.center, out=h[:, :-1])
        h[:, :-1] *= self.weights.inverse_scale
        first = np.matmul(h, self.first, out=buffer[: len(X)])
        end, rank = self.n_columns, len(self.weights.back)
        end_of_point = self.first.shape[1] - (0 if self.weights.start is None else rank)
        z = np.zeros((len(X), rank), dtype=X.dtype)
        if self.weights.start is not None:
            z[:] = first[:, end_of_point:]
        return first, np.ascontiguousarray(first[:, end:end_of_point]), z

    def _run(self, first: Floats, point: Floats, z: Floats, metric: Floats, squares: Floats) -> Floats:
        """Run the stages with numpy instead of compiled code."""

        def add(k: int, z: Floats) -> None:
            moved = z.astype(np.float64)
            squares[k] += np.vdot(moved, moved @ metric)

        anchored = point if self.weights.anchor_gate is not None else None
        after = add if squares.size else None
        first = first[:, : self.n_columns]
        return np.asarray(
            run_stages(first, anchored, z, self.weights, self.fraction, self.solve, gelu_and_slope, after)
        )


def gelu_and_slope(u: Floats) -> tuple[Floats, Floats]:
    """Return GELU(u) = uΦ(u) and its derivative Φ(u) + uφ(u)."""
    t = np.abs(u)
    t += 1.0 / P
    np.reciprocal(t, out=t)
    value = t * ERFC[4]
    for coefficient in ERFC[3::-1]:
        value += coefficient
        value *= t
    slope = u * u
    slope *= -0.5
    slope += LOG_DENSITY
    np.exp(slope, out=slope)  # φ(u)
    value *= slope
    value += 0.5  # Φ(|u|) - ½
    np.copysign(value, u, out=value)
    value += 0.5  # Φ(u)
    slope *= u
    slope += value
    value *= u
    return value, slope
