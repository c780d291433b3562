"""Affine corrections: the closed form, and every linear eraser it is compared with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from .._common.arrays import double
from .base import CorrectionMap, Floats
from .info import MapInfo
from .runtime.compiled import kernels, on_threads
from .runtime.folding import FoldedAffine, fold_affine

# Up to this many directions, arrays of many rows are corrected in one compiled pass over them. For fewer rows
# loading the compiler would cost more than it saves.
MOST_COMPILED, COMPILED_BYTES = 4, 2**24
BLOCK_BYTES, PRODUCT_ROWS = 2**19, 2048
# Up to this many standard deviations from zero, float32 sums of uncentred features are exact enough.
FAR_FROM_ZERO = 8.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AffineMap(CorrectionMap):
    """x' = x - strength · ((x - center) G + offset) Dᵀ, with k-column G and D in the input's units.

    The closed form with K sources has k = K - 1 columns, so applying it costs little more than copying.
    ``k = 0`` is the identity; with k near d the factors are multiplied out, and it costs one matrix product.
    """

    readout: Floats
    direction: Floats
    offset: Floats

    kind: ClassVar[str] = "affine"
    shapes: ClassVar[dict[str, str]] = {"readout": "d k", "direction": "d k", "offset": "k"}
    scalar_names: ClassVar[tuple[str, ...]] = ("strength",)

    @classmethod
    def identity(cls, n_features: int, *, info: MapInfo | None = None, **standardisation: Floats) -> Self:
        """Return the map that changes nothing (a zero-rank gate)."""
        nothing = np.zeros((n_features, 0))
        center = standardisation.get("center", np.zeros(n_features))
        scale = standardisation.get("scale", np.ones(n_features))
        return cls(
            center=center,
            scale=scale,
            readout=nothing,
            direction=nothing,
            offset=np.zeros(0),
            info=info or MapInfo(method="identity"),
        )

    def _weights(self, dtype: np.dtype[Any]) -> FoldedAffine:
        if dtype not in self._cache:
            folded = fold_affine(self)
            far = (np.abs(self.center) > FAR_FROM_ZERO * self.scale).any()
            if folded.back is not None and not (far and dtype == np.float32):
                # Centring costs a pass over the rows, needed only where float32 sums would lose digits.
                offset = folded.offset - folded.center @ folded.readout
                folded = replace(folded, center=None, offset=offset)
            cast = folded.cast(partial(np.ascontiguousarray, dtype=dtype))
            # The strength multiplies this factor before it is rounded.
            self._cache[dtype] = replace(cast, back=folded.back)
        weights: FoldedAffine = self._cache[dtype]
        return weights

    def _apply(self, X: Floats, out: Floats) -> bool:
        k = self.readout.shape[1]
        if k == 0 or self.strength == 0:
            np.copyto(out, X)
            return bool(np.isfinite(out).all())
        weights = self._weights(X.dtype)
        if weights.back is None:  # a (d, d) matrix: the edits themselves
            return self._apply_blocks(X, weights, None, out)
        back = np.ascontiguousarray(self.strength * weights.back, dtype=X.dtype)
        in_order = X.flags.c_contiguous and out.flags.c_contiguous
        if k <= MOST_COMPILED and X.nbytes >= COMPILED_BYTES and in_order:
            compiled = kernels()
            if compiled is not None:
                center, offset = self.center.astype(X.dtype), double(self.offset)
                readout = np.array(self.readout.T, dtype=np.float64, order="C")

                def shift(rows: slice) -> bool:
                    return bool(compiled.shift_rows(X[rows], center, readout, offset, back, out[rows]))

                return all(on_threads(shift, len(X)))
        return self._apply_blocks(X, weights, back, out)

    def _apply_blocks(self, X: Floats, weights: FoldedAffine, back: Floats | None, out: Floats) -> bool:
        """Correct rows block by block, which stay in cache between the passes over them."""
        k, finite = weights.readout.shape[1], True
        block = max(1, BLOCK_BYTES // (X.itemsize * X.shape[1])) if back is not None else PRODUCT_ROWS
        work = np.empty((min(block, len(X)), X.shape[1]), dtype=X.dtype)
        outer = np.multiply if k == 1 else np.matmul
        for start in range(0, len(X), block):
            rows = X[start : start + block]
            centred = rows if weights.center is None else rows - weights.center
            # A BLAS is many times faster at matrix times vector than at matrix times one column.
            coefficient = (centred @ weights.readout[:, 0])[:, None] if k == 1 else centred @ weights.readout
            coefficient += weights.offset
            finite &= bool(np.isfinite(coefficient).all())
            if back is None:
                coefficient *= self.strength
            edit = coefficient if back is None else outer(coefficient, back, out=work[: len(rows)])
            np.add(rows, edit, out=out[start : start + block])
        return finite

    def _describe(self) -> str:
        k = self.readout.shape[1]
        return "identity" if k == 0 else f"affine, rank {k}, strength {self.strength:g}"
