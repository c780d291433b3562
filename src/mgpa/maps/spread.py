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
        rows = np.asarray(X, dtype=np.float64)
        return blend((rows - self.center) @ fold_spread(self).first, fold_spread(self))[0]

    def _apply(self, X: Floats, out: Floats) -> bool:
        if self.strength == 0:
            np.copyto(out, X)
            return bool(np.isfinite(out).all())
        if X.dtype not in self._cache:
            self._cache[X.dtype] = fold_spread(self).cast(partial(np.ascontiguousarray, dtype=X.dtype))
        weights: Folded = self._cache[X.dtype]
        strength, finite = X.dtype.type(self.strength), True
        block = max(1, BLOCK_NUMBERS // (weights.first.shape[1] + 2 * X.shape[1]))
        for start in range(0, len(X), block):
            rows = X[start : start + block]
            _, edit = blend((rows - weights.center) @ weights.first, weights)
            edit *= strength
            finite &= bool(np.isfinite(edit).all())
            np.add(
                rows, edit if weights.back is None else edit @ weights.back, out=out[start : start + block]
            )
        return finite

    def _describe(self) -> str:
        return f"edits of {len(self.bias)} sources read from the row, in {self.rank} directions"


def blend(products: Floats, weights: Folded) -> tuple[Floats, Floats]:
    """Return posteriors, (n, K), and blended edits, (n, r), from all products of some rows."""
    q, K = weights.square_weight.shape
    scores = products[:, q : q + K] + weights.bias
    if q:
        scores += np.square(products[:, :q]) @ weights.square_weight
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores, out=scores)
    p /= p.sum(axis=1, keepdims=True)
    edits = products[:, q + K :].reshape(len(p), K, -1)
    blended = np.matmul(p[:, None, :], edits)[:, 0]
    blended += p @ weights.edit_offset
    return p, blended
