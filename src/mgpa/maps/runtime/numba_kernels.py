"""Compiled stages of up to two scores: the arithmetic of :mod:`mgpa.maps.runtime.numpy_replay` row by row.

Matrix products use BLAS. Between them, numpy makes about fifty passes over arrays; this code makes one. The
interpreter lock is released, so threads can process different blocks of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  loads the BLAS of compiled products before threads are limited
from numpy.typing import NDArray

from .folding import ERFC, LOG_DENSITY, P

Floats = NDArray[Any]

# OpenBLAS computes products of up to BLAS_SIZE multiplications on the calling thread, which has the data in
# its cache. Larger products are faster if OpenBLAS has one thread.
BLAS_SIZE, LONG_BLAS_SIZE = 2**18, 2**20
MOST_BLAS_ROWS = 128
# Newton's method starts further from the root than with eigenvalues; five steps are usual.
MAX_NEWTON_STEPS = 40
TINY = 1e-37

A1, A2, A3, A4, A5 = ERFC
INVERSE_P, DENSITY_AT_0 = 1.0 / P, math.exp(LOG_DENSITY)
# exp(x) = 2ⁿ exp(r), r = x - n log 2, with log 2 split into two parts and exp(r) computed by its series.
LOG2_E, LOG_2_HIGH, LOG_2_LOW = 1.0 / math.log(2.0), 0.693359375, -2.12194440054690583e-4
C2, C3, C4, C5, C6, C7, C8, C9, C10, C11 = (1.0 / math.factorial(i) for i in range(2, 12))
SMALLEST = -87.0  # below this, 2ⁿ underflows in float32; the density is practically zero


def _compiled(function: Callable[..., Any], *, lanes: bool = False) -> Any:
    # Allow fused multiply-add, and with ``lanes`` reordered (vectorised) sums; NaN and infinity keep their
    # meaning.
    fastmath = {"contract", "reassoc"} if lanes else {"contract"}
    options = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba cannot write its cache: compile in each process
        return numba.njit(**options)(function)


_compiled_sum = partial(_compiled, lanes=True)


@_compiled
def shift_rows(X: Floats, center: Floats, readout: Floats, offset: Floats, back: Floats, out: Floats) -> bool:
    """Write x + ((x - center) readoutᵀ + offset) back, row by row; return whether all edits are finite.

    ``readout`` and ``offset`` are float64, (k, d) and (k,); the others have the type of X. ``out`` may be X.
    """
    finite, real = True, X.dtype.type
    coefficient, row = np.empty(offset.size), np.empty(X.shape[1], X.dtype)
    for i in range(len(X)):
        x = X[i]
        for a in range(offset.size):
            coefficient[a] = centred_inner(x, center, readout[a]) + offset[a]
            finite &= math.isfinite(coefficient[a])
        # Write through a local array: vectorised loops must not read what they write.
        copy(x, row)
        for a in range(offset.size):
            add_multiple(row, real(coefficient[a]), back[a])
        copy(row, out[i])
    return finite


@_compiled_sum
def centred_inner(x: Floats, center: Floats, g: Floats) -> float:
    """Return (x - center)ᵀg, summed in float64."""
    total = 0.0
    for j in range(x.size):
        total += np.float64(x[j] - center[j]) * g[j]
    return total


@_compiled
def copy(row: Floats, to: Floats) -> None:
    """Copy a row; much faster than numba's assignment, which checks for overlaps."""
    for j in range(row.size):
        to[j] = row[j]


@_compiled
def add_multiple(row: Floats, factor: Any, direction: Floats) -> None:
    """Add factor · direction to a row, in the row's precision."""
    for j in range(row.size):
        row[j] += factor * direction[j]


@_compiled_sum
def inner(a: Floats, b: Floats) -> float:
    """Return aᵀb, summed in float64."""
    total = 0.0
    for i in range(a.size):
        total += np.float64(a[i]) * np.float64(b[i])
    return total


@_compiled
def run_stages(
    first: Floats, point: Floats, z: Floats, hidden_gate: Floats, linear_gate: Floats, linear_gram: Floats,
    output: Floats, gradient_gate: Floats, anchor_gate: Floats, constants: Floats,
    metric: Floats, squares: Floats, blas_size: int,
) -> None:  # fmt: skip
    """Update Δz, ``z`` (n, r), in place through all stages.

    ``first`` is ``h₀ @ first``, with H + L + N columns for each stage; further columns are ignored. ``point``
    (n, a) has the coordinates of the anchored point, if a > 0. The weights are those of
    :func:`~.folding.fold_stages`, except that ``output`` is (S, N, H), and ``anchor_gate`` is (S, 0, H)
    without an anchored point. ``constants`` (4,) are damping, radius, stabilizer and the fraction of the last
    stage. ``squares`` (S,), unless empty, receives the sums of Δzᵀ metric Δz after each stage. Matrix
    products are split so that each has up to ``blas_size`` multiplications.
    """
    n, r = z.shape
    n_stages, n_network, n_hidden = output.shape
    n_scores = linear_gate.shape[1] + n_network
    width = n_hidden + n_scores
    rows = max(1, min(blas_size // max(1, n_hidden * r * n_network), MOST_BLAS_ROWS, n))
    slope, gradients = np.empty((rows, n_hidden), z.dtype), np.empty((rows, n_network * r), z.dtype)
    residual, y = np.empty((rows, n_scores)), np.empty((rows, n_scores))
    gram = np.empty((rows, n_scores, n_scores))
    for k in range(n_stages):
        fraction = constants[3] if k == n_stages - 1 else 1.0
        before = fraction if k == 0 else 1.0  # the initial Δz is part of the first stage
        for start in range(0, n, rows):
            stop = min(start + rows, n)
            m = stop - start
            for i in range(m):
                for j in range(n_scores):
                    residual[i, j] = first[start + i, k * width + n_hidden + j]
            if n_network > 0:
                network_scores(
                    first[start:stop], k * width, point[start:stop], z[start:stop], hidden_gate[k],
                    anchor_gate[k], output[k], slope[:m], residual[:m],
                )  # fmt: skip
                np.dot(slope[:m], gradient_gate[k], gradients[:m])
            linearize(linear_gate[k], linear_gram[k], z[start:stop], gradients[:m], residual[:m], gram[:m])
            coefficients(gram[:m], residual[:m], y[:m], constants)
            move(linear_gate[k], z[start:stop], gradients[:m], y[:m], before, fraction)
        if squares.size > 0:
            for i in range(n):
                for a in range(r):
                    squares[k] += np.float64(z[i, a]) * inner(metric[a], z[i])


@_compiled
def network_scores(
    first: Floats, column: int, point: Floats, z: Floats, hidden_gate: Floats, anchor_gate: Floats,
    output: Floats, slope: Floats, residual: Floats,
) -> None:  # fmt: skip
    """Add the network's scores to the residuals and write the slopes of its hidden layer.

    The hidden units begin at ``column`` of ``first``. Rows of ``first`` are passed whole, because vectorised
    loops need contiguous numbers.
    """
    n_network, n_hidden = output.shape
    n_linear = residual.shape[1] - n_network
    hidden, work = np.empty((len(z), n_hidden), z.dtype), np.empty((3, n_hidden), z.dtype)
    value, at_anchor, unused = work[0], work[1], work[2]
    np.dot(z, hidden_gate, hidden)
    anchored = point.shape[1] > 0
    if anchored:
        anchored_hidden = np.dot(point, anchor_gate)
    for i in range(len(z)):
        before = first[i][column : column + n_hidden]
        gelu_and_slope(hidden[i], before, value, slope[i])
        if anchored:
            gelu_and_slope(anchored_hidden[i], before, at_anchor, unused)
            for h in range(n_hidden):
                value[h] -= at_anchor[h]
        for j in range(n_network):
            residual[i, n_linear + j] += inner(value, output[j])


# The loops below use indices: counting references to a slice takes longer than reading its numbers.


@_compiled_sum
def linearize_one_of_each(
    linear: Floats, linear_gram: Floats, z: Floats, gradients: Floats, residual: Floats, gram: Floats
) -> None:
    """Do what :func:`linearize` does, for one linear and one network score, in a fifth of the time."""
    for i in range(len(z)):
        along, mixed, own = 0.0, 0.0, 0.0
        for c in range(linear.shape[1]):
            w, g = np.float64(linear[0, c]), np.float64(gradients[i, c])
            along += w * np.float64(z[i, c])
            mixed += w * g
            own += g * g
        residual[i, 0] += along
        gram[i, 0, 0], gram[i, 1, 0], gram[i, 1, 1] = linear_gram[0, 0], mixed, own


@_compiled_sum
def linearize(
    linear: Floats, linear_gram: Floats, z: Floats, gradients: Floats, residual: Floats, gram: Floats
) -> None:
    """Add the contribution of Δz to the linear scores and write the lower triangles of the Gram matrices.

    Gram matrices are summed in float64: with more scores than gate directions they are singular, and rounding
    errors would grow by 1 / damping.
    """
    n_linear, r = linear.shape
    if n_linear == 1 and residual.shape[1] == 2:
        linearize_one_of_each(linear, linear_gram, z, gradients, residual, gram)
        return
    for i in range(len(z)):
        for a in range(n_linear):
            total = 0.0
            for c in range(r):
                total += np.float64(linear[a, c]) * np.float64(z[i, c])
            residual[i, a] += total
            for b in range(a + 1):
                gram[i, a, b] = linear_gram[a, b]
        for a in range(n_linear, residual.shape[1]):
            at = (a - n_linear) * r
            for b in range(n_linear):
                total = 0.0
                for c in range(r):
                    total += np.float64(gradients[i, at + c]) * np.float64(linear[b, c])
                gram[i, a, b] = total
            for b in range(n_linear, a + 1):
                other = (b - n_linear) * r
                total = 0.0
                for c in range(r):
                    total += np.float64(gradients[i, at + c]) * np.float64(gradients[i, other + c])
                gram[i, a, b] = total


@_compiled
def coefficients(gram: Floats, e: Floats, y: Floats, constants: Floats) -> None:
    """Write y with Δz = -Aᵀy for one or two scores; see :func:`~.numpy_replay.weighted_coefficients`."""
    damping, radius, stabilizer = constants[0], constants[1], constants[2]
    for i in range(len(e)):
        w1 = 1.0 / math.sqrt(gram[i, 0, 0] + stabilizer * stabilizer)
        g11 = gram[i, 0, 0] * w1 * w1
        if e.shape[1] == 1:
            y1, _ = two_scores(g11, 0.0, 0.0, e[i, 0] * w1, 0.0, damping, radius)
            y[i, 0] = y1 * w1
        else:
            w2 = 1.0 / math.sqrt(gram[i, 1, 1] + stabilizer * stabilizer)
            g22, g12 = gram[i, 1, 1] * w2 * w2, gram[i, 1, 0] * w1 * w2
            y1, y2 = two_scores(g11, g22, g12, e[i, 0] * w1, e[i, 1] * w2, damping, radius)
            y[i, 0], y[i, 1] = y1 * w1, y2 * w2


@_compiled
def move(linear: Floats, z: Floats, gradients: Floats, y: Floats, before: float, fraction: float) -> None:
    """Set z to ``before`` · z - ``fraction`` · Aᵀy for each row."""
    n_linear, r = linear.shape
    if n_linear == 1 and y.shape[1] == 2:  # in one pass, which takes a quarter of the time
        for i in range(len(z)):
            first, second = fraction * y[i, 0], fraction * y[i, 1]
            for c in range(r):
                moved = first * np.float64(linear[0, c]) + second * np.float64(gradients[i, c])
                z[i, c] = before * np.float64(z[i, c]) - moved
        return
    step = np.empty(r)
    for i in range(len(z)):
        # Nearly parallel gradients have large opposite coefficients, so their sum is also float64.
        for c in range(r):
            step[c] = 0.0
        for a in range(n_linear):
            for c in range(r):
                step[c] += y[i, a] * np.float64(linear[a, c])
        for a in range(n_linear, y.shape[1]):
            at = (a - n_linear) * r
            for c in range(r):
                step[c] += y[i, a] * np.float64(gradients[i, at + c])
        for c in range(r):
            z[i, c] = before * np.float64(z[i, c]) - fraction * step[c]


@_compiled
def gelu_and_slope(u: Floats, added: Floats, value: Floats, slope: Floats) -> None:
    """Write GELU(t) and its derivative at t = u + added, as :func:`~.numpy_replay.gelu_and_slope` does."""
    real = u.dtype.type
    for i in range(u.size):
        t = u[i] + added[i]
        x = real(-0.5) * t * t
        n = np.int32(x * real(LOG2_E) - real(0.5))
        r = (x - real(n) * real(LOG_2_HIGH)) - real(n) * real(LOG_2_LOW)
        series = real(C10) + r * real(C11)
        series = real(C9) + r * series
        series = real(C8) + r * series
        series = real(C7) + r * series
        series = real(C6) + r * series
        series = real(C5) + r * series
        series = real(C4) + r * series
        series = real(C3) + r * series
        series = real(C2) + r * series
        series = real(1.0) + r * (real(1.0) + r * series)
        power = real(np.int32((n + 127) << 23).view(np.float32))  # 2ⁿ from its bits
        density = real(DENSITY_AT_0) * power * series if x > real(SMALLEST) else real(0.0)
        q = real(1.0) / (abs(t) + real(INVERSE_P))
        tail = real(A4) + q * real(A5)
        tail = real(A3) + q * tail
        tail = real(A2) + q * tail
        tail = q * (real(A1) + q * tail)
        half = real(0.5) + tail * density  # Φ(|t|) - ½
        below = real(0.5) + (half if t >= real(0.0) else -half)  # Φ(t)
        value[i] = t * below
        slope[i] = below + t * density


@_compiled
def two_scores(
    g11: float, g22: float, g12: float, e1: float, e2: float, damping: float, radius: float
) -> tuple[float, float]:
    """Return (y₁, y₂) of one row with two scores, as :func:`mgpa.trust_region.two_scores`."""
    mean, half = 0.5 * (g11 + g22), 0.5 * (g11 - g22)
    gap = math.sqrt(half * half + g12 * g12)
    tilt = (half * (e1 * e1 - e2 * e2) + 2.0 * g12 * e1 * e2) / (gap + TINY)
    total = e1 * e1 + e2 * e2
    lam1, lam2 = mean + gap, max(mean - gap, 0.0)
    w1, w2 = max(0.5 * (total + tilt), 0.0) * lam1, max(0.5 * (total - tilt), 0.0) * lam2
    nu = max(0.0, math.sqrt(w1) / radius - lam1 - damping, math.sqrt(w2) / radius - lam2 - damping)
    for _ in range(MAX_NEWTON_STEPS):
        shifted1, shifted2 = 1.0 / (lam1 + damping + nu), 1.0 / (lam2 + damping + nu)
        term1, term2 = w1 * shifted1 * shifted1, w2 * shifted2 * shifted2
        length2, slope = term1 + term2, term1 * shifted1 + term2 * shifted2
        newton = length2 / (slope + TINY) * (math.sqrt(length2) / radius - 1.0)
        nu = max(nu + newton, 0.0)
        if newton <= 1e-9 * (nu + damping):
            break
    t = damping + nu
    determinant = (g11 + t) * (g22 + t) - g12 * g12
    return ((g22 + t) * e1 - g12 * e2) / determinant, ((g11 + t) * e2 - g12 * e1) / determinant
