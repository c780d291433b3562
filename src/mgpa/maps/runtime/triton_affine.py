"""An affine correction of few directions as one GPU kernel: rows are read, corrected and written.

Written with torch's own operations, a centred copy of all rows goes to memory and back before anything is
corrected. Here the only traffic is that of the rows, and a second reading that the cache mostly answers.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from .folding import FoldedAffine

Tensor = Any  # torch.Tensor

WARPS = 4
MOST_DIRECTIONS = 64


def fits(weights: FoldedAffine) -> bool:
    """Return whether the kernel runs this correction: in float32, and along few directions."""
    return (
        weights.back is not None
        and weights.readout.shape[1] <= MOST_DIRECTIONS
        and weights.readout.dtype == torch.float32
    )


def correct(X: Tensor, out: Tensor, weights: FoldedAffine, strength: float) -> Tensor:
    """Write corrected rows into ``out``, which may be X itself; return their coordinates, shape (n, k)."""
    (n, d), k = X.shape, weights.readout.shape[1]
    coordinates = X.new_empty(n, k)
    if not n:
        return coordinates
    K = max(16, triton.next_power_of_2(k))
    rows, features = (32, 128) if K == 16 else (64, 64)  # the fastest of those tried
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
        # Centred before the product: means may be far larger than what varies.
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
