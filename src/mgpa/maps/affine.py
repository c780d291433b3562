"""Affine corrections: the closed form, and every linear eraser it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from ..errors import MapError
from .base import CorrectionMap, Floats, MapInfo

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
    tensor_names: ClassVar[tuple[str, ...]] = ("center", "scale", "readout", "direction", "offset")
    scalar_names: ClassVar[tuple[str, ...]] = ("strength",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.readout.ndim != 2:
            raise MapError(f"readout has shape {self.readout.shape}; expected (d, k).")
        d, k = self.n_features, self.readout.shape[1]
        self._require_shape("readout", (d, k))
        self._require_shape("direction", (d, k))
        self._require_shape("offset", (k,))

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

    def _apply(self, X: Floats, out: Floats) -> bool:
        def cast(array: Floats) -> Floats:
            return np.ascontiguousarray(array, dtype=X.dtype)

        readout = cast(self.readout)
        negative = cast(-self.strength * self.direction.T)
        if readout.shape[1] == 0 or self.strength == 0:
            np.copyto(out, X)
            return bool(np.isfinite(out).all())
        if 2 * readout.shape[1] > X.shape[1]:
            if X.dtype not in self._cache:
                self._cache[X.dtype] = (
                    cast(self.readout @ self.direction.T),
                    cast(self.offset @ self.direction.T),
                )
            matrix, offset = self._cache[X.dtype]
            np.matmul(X - cast(self.center), matrix, out=out)
            out += offset
            out *= -self.strength
            out += X
            return bool(np.isfinite(out).all())
        coefficient = self._coefficients(X, readout)
        # Blocks of about a megabyte stay in cache between the two passes over them.
        block = max(1, 2**20 // (X.itemsize * X.shape[1]))
        work = np.empty((min(block, len(X)), X.shape[1]), dtype=X.dtype)
        outer = np.multiply if readout.shape[1] == 1 else np.matmul
        for start in range(0, len(X), block):
            rows = slice(start, start + block)
            edit = outer(coefficient[rows], negative, out=work[: len(X[rows])])
            np.add(X[rows], edit, out=out[rows])
        return bool(np.isfinite(coefficient).all())

    def _coefficients(self, X: Floats, readout: Floats) -> Floats:
        """Return (X - center) G + offset, centring first only where float32 sums would lose digits."""
        offset = self.offset
        if X.dtype == np.float32 and (np.abs(self.center) > FAR_FROM_ZERO * self.scale).any():
            X = X - self.center.astype(X.dtype)
        else:
            offset = offset - self.center @ self.readout
        # A BLAS is many times faster at matrix times vector than at matrix times one column.
        product = (X @ readout[:, 0])[:, None] if readout.shape[1] == 1 else X @ readout
        product += offset.astype(X.dtype)
        return np.asarray(product)

    def _describe(self) -> str:
        k = self.readout.shape[1]
        return "identity" if k == 0 else f"affine, rank {k}, strength {self.strength:g}"
