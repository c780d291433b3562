"""GPU kernels for staged maps (all stages in one kernel), affine maps of few directions, and posterior maps.

With torch, each stage launches about two hundred kernels of a few microseconds. Here each program loads a
block of rows, keeps its Δz in registers, and runs all stages: two small products, GELU and its derivative,
the Gram matrix of the two scores, and the bounded step. Small products are sums of three tf32 parts, which
equal float32 except for the last bits; plain float32 takes ten times as long. The algebra is that of
:mod:`mgpa.maps.runtime.numpy_replay`; Gram entries, step and multiplier are in float64, as in all runtimes.

One kernel reads, corrects and writes the rows of an affine correction. Torch's own operations first write a
centred copy of all rows to memory and read it back; here, most rows are still in the cache for the second
read.

Maps that recognise the source before they correct need two matrix products; between the products, one kernel
replaces ten.

Triton is part of torch's CUDA builds; without Triton, :mod:`mgpa.maps.runtime.torch_module` uses torch's
operations.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ...trust_region import BLIND_NEWTON_STEPS
from .folding import Folded

Tensor = Any  # torch.Tensor

# Rows and warps per program. Programs have few rows, so that ten thousand rows keep a GPU busy. For many
# rows, larger programs read the weights less often.
ROWS = 16
WARPS = 4
LONG_ROWS, MANY_ROWS = 64, 50_000
BLENDED_ROWS = 8
# Up to this many weights, a stage is loaded while the previous one runs; two larger stages would not fit.
PREFETCHED = 64 * 128
# Limits of the kernels; larger stages do not fit.
MOST_RANK = 128
MOST_HIDDEN = 256
MOST_DIRECTIONS = 64
MOST_READINGS, MOST_SOURCES = 128, 8


def fits_stages(weights: Folded) -> bool:
    """Return whether the kernel can run these stages: one score of each kind and limited size."""
    _, rank, n_hidden = weights.hidden_gate.shape
    n_linear, n_network = weights.linear_gate.shape[1], weights.output.shape[2]
    n_anchor = 0 if weights.anchor_gate is None else weights.anchor_gate.shape[1]
    few = max(n_linear, n_network) == 1 and max(rank, n_anchor) <= MOST_RANK and n_hidden <= MOST_HIDDEN
    return bool(few and weights.first.dtype == torch.float32)


def run_stages(first: Tensor, z: Tensor, weights: Folded, gram: Tensor, constants: Tensor) -> None:
    """Update Δz, ``z`` (n, r), in place through all stages; :func:`fits_stages` must accept the weights.

    ``first`` is ``h₀ @ weights.first + weights.constant``; ``gram`` is the result of
    :func:`~.folding.linear_gram`. ``constants`` (4,) are damping, radius, stabilizer and the fraction of the
    last stage, as a float64 tensor because plain arguments are converted to float32.
    """
    if not len(z):
        return
    n_stages, rank, n_hidden = weights.hidden_gate.shape
    n_linear, n_network = weights.linear_gate.shape[1], weights.output.shape[2]
    anchored = weights.anchor_gate is not None and n_network > 0
    n_anchor = weights.anchor_gate.shape[1] if anchored else 0
    # GPU products need sizes that are powers of two, from 16; the padding is zero.
    R, H, A = (max(16, triton.next_power_of_2(size)) for size in (rank, n_hidden, n_anchor))
    small = R * H <= PREFETCHED
    rows = LONG_ROWS if small and len(z) >= MANY_ROWS else ROWS
    _stages[(triton.cdiv(len(z), rows),)](
        first, z, weights.hidden_gate, weights.linear_gate, weights.output, weights.gradient_gate,
        weights.anchor_gate if anchored else weights.hidden_gate, gram,
        constants, len(z), first.stride(0), n_stages,
        rank=rank, n_hidden=n_hidden, n_anchor=n_anchor,
        LINEAR=n_linear, NETWORK=n_network, NEWTON=BLIND_NEWTON_STEPS, R=R, H=H, A=A, ROWS=rows,
        num_warps=WARPS, num_stages=2 if small and rows == ROWS else 1,
    )  # fmt: skip


@triton.jit
def _normal_cdf(u):
    return 0.5 * tl.math.erf(0.7071067811865476 * u) + 0.5


@triton.jit
def _stages(
    first_at, z_at, hidden_gate_at, linear_gate_at, output_at, gradient_gate_at, anchor_gate_at,
    linear_gram_at, constants_at, n, width, n_stages,
    rank: tl.constexpr, n_hidden: tl.constexpr, n_anchor: tl.constexpr,
    LINEAR: tl.constexpr, NETWORK: tl.constexpr, NEWTON: tl.constexpr,
    R: tl.constexpr, H: tl.constexpr, A: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    r, h, a = tl.arange(0, R), tl.arange(0, H), tl.arange(0, A)
    real, in_gate, in_hidden = row < n, r < rank, h < n_hidden
    damping, radius = tl.load(constants_at), tl.load(constants_at + 1)
    stabilizer, fraction = tl.load(constants_at + 2), tl.load(constants_at + 3)
    z_places = z_at + row[:, None] * rank + r[None, :]
    z_mask = real[:, None] & in_gate[None, :]
    z = tl.load(z_places, mask=z_mask, other=0.0)
    row_at = first_at + row * width
    if n_anchor > 0:
        point_at = row_at + n_stages * (n_hidden + LINEAR + NETWORK)
        point = tl.load(
            point_at[:, None] + a[None, :], mask=real[:, None] & (a < n_anchor)[None, :], other=0.0
        )
    for k in range(n_stages):
        stage_at = row_at + k * (n_hidden + LINEAR + NETWORK)
        last = k == n_stages - 1
        scale = tl.where(last, fraction, 1.0)
        if LINEAR:
            v = tl.load(linear_gate_at + k * rank + r, mask=in_gate, other=0.0).to(tl.float64)
            e1 = tl.load(stage_at + n_hidden, mask=real, other=0.0).to(tl.float64)
            e1 += tl.sum(z.to(tl.float64) * v[None, :], 1)
            vv = tl.load(linear_gram_at + k)
        if NETWORK:
            hidden = tl.load(
                stage_at[:, None] + h[None, :], mask=real[:, None] & in_hidden[None, :], other=0.0
            )
            gate = tl.load(
                hidden_gate_at + k * rank * n_hidden + r[:, None] * n_hidden + h[None, :],
                mask=in_gate[:, None] & in_hidden[None, :],
                other=0.0,
            )
            u = tl.dot(z, gate, hidden, input_precision="tf32x3")
            below = _normal_cdf(u)
            slope = below + u * tl.exp(-0.5 * u * u) * 0.3989422804014327
            value = u * below
            if n_anchor > 0:
                anchor_gate = tl.load(
                    anchor_gate_at + k * n_anchor * n_hidden + a[:, None] * n_hidden + h[None, :],
                    mask=(a < n_anchor)[:, None] & in_hidden[None, :],
                    other=0.0,
                )
                anchored = tl.dot(point, anchor_gate, hidden, input_precision="tf32x3")
                value -= anchored * _normal_cdf(anchored)
            output = tl.load(output_at + k * n_hidden + h, mask=in_hidden, other=0.0)
            e2 = tl.load(stage_at + n_hidden + LINEAR, mask=real, other=0.0).to(tl.float64)
            e2 += tl.sum(value * output[None, :], 1).to(tl.float64)
            gradient_gate = tl.load(
                gradient_gate_at + k * n_hidden * rank + h[:, None] * rank + r[None, :],
                mask=in_hidden[:, None] & in_gate[None, :],
                other=0.0,
            )
            g = tl.dot(slope, gradient_gate, input_precision="tf32x3").to(tl.float64)
            gg = tl.sum(g * g, 1)
        if LINEAR and NETWORK:
            vg = tl.sum(g * v[None, :], 1)
            w1 = 1.0 / tl.sqrt(vv + stabilizer * stabilizer)
            w2 = 1.0 / tl.sqrt(gg + stabilizer * stabilizer)
            y1, y2 = _two_scores(
                vv * w1 * w1, gg * w2 * w2, vg * w1 * w2, e1 * w1, e2 * w2, damping, radius, NEWTON
            )
            step = (y1 * w1)[:, None] * v[None, :] + (y2 * w2)[:, None] * g
        elif LINEAR:
            step = _one_score(vv, e1, damping, radius, stabilizer)[:, None] * v[None, :]
        else:
            step = _one_score(gg, e2, damping, radius, stabilizer)[:, None] * g
        if last and k == 0:  # the initial Δz is part of the first stage
            z *= fraction.to(tl.float32)
        # Nearly parallel gradients have large opposite coefficients, so their sum is also float64.
        z = (z.to(tl.float64) - step * scale).to(tl.float32)
    tl.store(z_places, z, mask=z_mask)


@triton.jit
def _one_score(g, e, damping, radius, stabilizer):
    w = 1.0 / tl.sqrt(g + stabilizer * stabilizer)
    g, e = g * w * w, e * w
    nu = tl.maximum(tl.abs(e) * tl.sqrt(g) / radius - g - damping, 0.0)
    return e / (g + damping + nu) * w


@triton.jit
def _two_scores(g11, g22, g12, e1, e2, damping, radius, NEWTON: tl.constexpr):
    """Return the result of :func:`mgpa.trust_region.two_scores` with a fixed number of Newton steps.

    All steps but the last are in float32, in which division and square root cost a tenth. The last step, in
    float64, doubles the number of correct digits.
    """
    mean, half = 0.5 * (g11 + g22), 0.5 * (g11 - g22)
    gap = tl.sqrt(half * half + g12 * g12)
    tilt = (half * (e1 * e1 - e2 * e2) + 2.0 * g12 * e1 * e2) / (gap + 1e-37)
    total = e1 * e1 + e2 * e2
    high, low = mean + gap, tl.maximum(mean - gap, 0.0)
    a = tl.maximum(0.5 * (total + tilt), 0.0) * high
    b = tl.maximum(0.5 * (total - tilt), 0.0) * low
    high, low = high + damping, low + damping
    per_radius = 1.0 / radius
    short = _multiplier(
        a.to(tl.float32), b.to(tl.float32), high.to(tl.float32), low.to(tl.float32),
        per_radius.to(tl.float32), NEWTON,
    )  # fmt: skip
    nu = short.to(tl.float64)
    if tl.max((short < 1e30).to(tl.int32) == 0, 0):  # too large for float32, or NaN
        nu = _multiplier(a, b, high, low, per_radius, NEWTON)
    nu = _newton_step(nu, a, b, high, low, per_radius)
    t = damping + nu
    per_determinant = 1.0 / ((g11 + t) * (g22 + t) - g12 * g12)
    return ((g22 + t) * e1 - g12 * e2) * per_determinant, ((g11 + t) * e2 - g12 * e1) * per_determinant


@triton.jit
def _multiplier(a, b, high, low, per_radius, NEWTON: tl.constexpr):
    nu = tl.maximum(tl.maximum(tl.sqrt(a) * per_radius - high, tl.sqrt(b) * per_radius - low), 0.0)
    for _ in tl.static_range(NEWTON):
        nu = _newton_step(nu, a, b, high, low, per_radius)
    return nu


@triton.jit
def _newton_step(nu, a, b, high, low, per_radius):
    over, under = high + nu, low + nu
    both = 1.0 / (over * under)
    p, q = under * both, over * both
    c, d = a * p * p, b * q * q
    length2 = c + d
    newton = length2 / (c * p + d * q + 1e-37) * (tl.sqrt(length2) * per_radius - 1.0)
    return tl.maximum(nu + newton, 0.0)


def fits_affine(weights: Folded) -> bool:
    """Return whether the kernel can run this correction: float32 and few directions."""
    return (
        weights.back is not None
        and weights.readout.shape[1] <= MOST_DIRECTIONS
        and weights.readout.dtype == torch.float32
    )


def correct(X: Tensor, out: Tensor, weights: Folded, strength: float) -> Tensor:
    """Write the corrected rows into ``out`` (which may be X); return their coordinates, shape (n, k)."""
    (n, d), k = X.shape, weights.readout.shape[1]
    coordinates = X.new_empty(n, k)
    if not n:
        return coordinates
    K = max(16, triton.next_power_of_2(k))
    rows, features = (32, 128) if K == 16 else (64, 64)  # the fastest of several tried
    _correct[(triton.cdiv(n, rows),)](
        X, out, coordinates, weights.center, weights.readout, weights.offset, weights.back, strength,
        n, d, *X.stride(), *out.stride(),
        k=k, K=K, ROWS=rows, FEATURES=features, num_warps=WARPS,
    )  # fmt: skip
    return coordinates


@triton.jit
def _correct(
    x_at, out_at, coordinates_at, center_at, readout_at, offset_at, back_at, strength,
    n, d, x_row, x_feature, out_row, out_feature,
    k: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, FEATURES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    direction = tl.arange(0, K)
    real, used = row < n, direction < k
    coordinates = tl.zeros((ROWS, K), dtype=tl.float32)
    coordinates += tl.load(offset_at + direction, mask=used, other=0.0)[None, :]
    for start in range(0, d, FEATURES):
        feature = start + tl.arange(0, FEATURES)
        inside = feature < d
        x = tl.load(
            x_at + row[:, None] * x_row + feature[None, :] * x_feature,
            mask=real[:, None] & inside[None, :],
            other=0.0,
        )
        # Centre before the product, because means may be far larger than the variation.
        x -= tl.load(center_at + feature, mask=inside, other=0.0)[None, :]
        readout = tl.load(
            readout_at + feature[:, None] * k + direction[None, :],
            mask=inside[:, None] & used[None, :],
            other=0.0,
        )
        coordinates = tl.dot(x, readout, coordinates, input_precision="tf32x3")
    tl.store(
        coordinates_at + row[:, None] * k + direction[None, :],
        coordinates,
        mask=real[:, None] & used[None, :],
    )
    coordinates *= strength
    for start in range(0, d, FEATURES):
        feature = start + tl.arange(0, FEATURES)
        inside = feature < d
        mask = real[:, None] & inside[None, :]
        x = tl.load(x_at + row[:, None] * x_row + feature[None, :] * x_feature, mask=mask, other=0.0)
        back = tl.load(
            back_at + direction[:, None] * d + feature[None, :],
            mask=used[:, None] & inside[None, :],
            other=0.0,
        )
        corrected = tl.dot(coordinates, back, x, input_precision="tf32x3")
        tl.store(out_at + row[:, None] * out_row + feature[None, :] * out_feature, corrected, mask=mask)


def fits_spread(weights: Folded) -> bool:
    """Return whether the kernel can blend these edits: few sources and few readings."""
    q, n_sources = weights.square_weight.shape
    return bool(q <= MOST_READINGS and n_sources <= MOST_SOURCES)


def blend(products: Tensor, weights: Folded) -> Tensor:
    """Return the posterior-weighted edits of all rows, (n, r); ``products`` is ``h @ weights.first``."""
    (n, width), (q, n_sources) = products.shape, weights.square_weight.shape
    rank = (width - q - n_sources) // n_sources
    blended = products.new_empty(n, rank)
    if n:
        _blend[(triton.cdiv(n, BLENDED_ROWS),)](
            products, weights.constant, weights.square_weight, blended, n, q, rank,
            SOURCES=n_sources, K=max(2, triton.next_power_of_2(n_sources)),
            Q=max(2, triton.next_power_of_2(q)), ROWS=BLENDED_ROWS, COLUMNS=64, num_warps=WARPS,
        )  # fmt: skip
    return blended


@triton.jit
def _blend(
    products_at, constant_at, square_weight_at, blended_at, n, q, rank,
    SOURCES: tl.constexpr, K: tl.constexpr, Q: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    reading, source, column = tl.arange(0, Q), tl.arange(0, K), tl.arange(0, COLUMNS)
    real, used, known = row < n, reading < q, source < SOURCES
    row_at = products_at + row * (q + SOURCES + SOURCES * rank)
    readings = tl.load(row_at[:, None] + reading[None, :], mask=real[:, None] & used[None, :], other=0.0)
    readings += tl.load(constant_at + reading, mask=used, other=0.0)[None, :]
    square_weight = tl.load(
        square_weight_at + reading[:, None] * SOURCES + source[None, :],
        mask=used[:, None] & known[None, :],
        other=0.0,
    )
    scores = tl.load(row_at[:, None] + q + source[None, :], mask=real[:, None] & known[None, :], other=0.0)
    scores += tl.load(constant_at + q + source, mask=known, other=0.0)[None, :]
    scores += tl.sum((readings * readings)[:, :, None] * square_weight[None, :, :], 1)
    scores = tl.where(known[None, :], scores, -float("inf"))
    p = tl.exp(scores - tl.max(scores, 1)[:, None])
    p = p / tl.sum(p, 1)[:, None]
    for start in range(0, rank, COLUMNS):
        at = start + column
        inside = at < rank
        blended = tl.zeros((ROWS, COLUMNS), dtype=products_at.dtype.element_ty)
        for s in tl.static_range(SOURCES):
            here = q + SOURCES + s * rank + at
            edit = tl.load(row_at[:, None] + here[None, :], mask=real[:, None] & inside[None, :], other=0.0)
            edit += tl.load(constant_at + here, mask=inside, other=0.0)[None, :]
            blended += tl.sum(tl.where((source == s)[None, :], p, 0.0), 1)[:, None] * edit
        tl.store(
            blended_at + row[:, None] * rank + at[None, :], blended, mask=real[:, None] & inside[None, :]
        )
