"""A correction that reads the source and uses it: edits of every source, weighted by how likely it is.

    h' = h + Σ_s p_s(h) E_s(h),   p = softmax((h G)² w + h L + b),   E_s(h) = (e_s + h D_s) O

in standardised coordinates h. The scores are log-densities of Gaussians with unequal covariances, up to a
common term: squares of a few readings, and a linear part. The map is never told a source.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from .base import CorrectionMap, Floats
from .runtime.compiled import on_blocks
from .runtime.folding import Folded, fold_spread

BLOCK_NUMBERS = 2**18  # in the products of one block of rows, which stay in cache


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SpreadMap(CorrectionMap):
    """Edits of K sources, blended by the posterior of the source given the row.

    Where the source cannot be read, p is even and every row moves by the mean of the edits.

    Attributes
    ----------
    square, square_weight : (q, d), (q, K)
        G and w: readings of a row whose squares tell sources apart, and what each adds to each score.
    linear, bias : (K, d), (K,)
        L and b: the linear part of the scores.
    edit, edit_offset : (K, d, r), (K, r)
        D_s and e_s: what is done to a row of each source, along ``direction``.
    direction : (r, d) or None
        O, rows in the span of the contrasts; None is the identity, r = d.
    """

    square: Floats
    square_weight: Floats
    linear: Floats
    bias: Floats
    edit: Floats
    edit_offset: Floats
    direction: Floats | None = None

    kind: ClassVar[str] = "spread"
    shapes: ClassVar[dict[str, str]] = {
        "square": "q d", "square_weight": "q K", "linear": "K d", "bias": "K",
        "edit": "K d r", "edit_offset": "K r", "direction": "r d",
    }  # fmt: skip
    optional_tensors: ClassVar[tuple[tuple[str, ...], ...]] = (("direction",),)
    scalar_names: ClassVar[tuple[str, ...]] = ("strength",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.direction is None:
            self._require_shape("edit", (len(self.bias), self.n_features, self.n_features))

    @property
    def rank(self) -> int:
        """Dimension of the space that rows move in."""
        return int(self.edit.shape[2])

    def posterior(self, X: Any) -> Floats:
        """Return how likely each source is for every row, shape (n, K); columns as ``info.source_names``."""
        weights = self._weights(np.dtype(np.float64))
        return blend(np.asarray(X, dtype=np.float64) @ weights.first, weights)[0]

    def _apply(self, X: Floats, out: Floats) -> bool:
        if self.strength == 0:
            np.copyto(out, X)
            return bool(np.isfinite(out).all())
        weights = self._weights(X.dtype)
        strength = X.dtype.type(self.strength)

        def correct(block: slice) -> bool:
            rows = X[block]
            with np.errstate(over="ignore", invalid="ignore"):  # the caller's does not reach other threads
                centred = rows if weights.center is None else rows - weights.center
                _, edit = blend(centred @ weights.first, weights)
                if strength != 1:
                    edit *= strength
                np.add(rows, edit if weights.back is None else edit @ weights.back, out=out[block])
            return bool(np.isfinite(edit).all())

        return on_blocks(correct, len(X), max(1, BLOCK_NUMBERS // (weights.first.shape[1] + 2 * X.shape[1])))

    def _weights(self, dtype: np.dtype[Any]) -> Folded:
        """Return the folded weights in one type; float64 rows are not centred, which would cost a pass."""
        if dtype not in self._cache:
            folded = fold_spread(self)
            if dtype == np.float64:
                q, K = folded.square_weight.shape
                constant, folded.center = -folded.center @ folded.first, None
                folded.square_constant, folded.bias = constant[:q], folded.bias + constant[q : q + K]
                folded.edit_offset = folded.edit_offset + constant[q + K :].reshape(K, -1)
            self._cache[dtype] = folded.cast(partial(np.ascontiguousarray, dtype=dtype))
        weights: Folded = self._cache[dtype]
        return weights

    def _describe(self) -> str:
        return f"edits of {len(self.bias)} sources read from the row, in {self.rank} directions"


def blend(products: Floats, weights: Folded) -> tuple[Floats, Floats]:
    """Return posteriors, (n, K), and blended edits, (n, r), from all products of some rows."""
    q, K = weights.square_weight.shape
    scores = products[:, q : q + K] + weights.bias
    if q:
        readings = products[:, :q]
        if weights.square_constant is not None:
            readings += weights.square_constant
        scores += np.square(readings) @ weights.square_weight
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores, out=scores)
    p /= p.sum(axis=1, keepdims=True)
    edits = products[:, q + K :].reshape(len(p), K, -1)
    blended = np.matmul(p[:, None, :], edits)[:, 0]
    blended += p @ weights.edit_offset
    return p, blended
