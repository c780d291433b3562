"""Ordered directions: an affine correction that is a path, each direction of it a stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .affine import AffineMap
from .base import Floats
from .sequential import SequentialMap


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PathMap(SequentialMap):
    """x' = x - strength · Σⱼ ((x - center)·gⱼ + offsetⱼ) dⱼ, with the directions in order of importance.

    Every prefix ``m[:k]`` is the correction along the first k directions, and the last of them can be applied
    by a fraction: movement budgets and development rules work on it as on the stages of a staged map. Unlike
    stages, directions do not wait for one another, so applying all of them is one affine map.

    Attributes
    ----------
    readout, direction, offset : (k, d), (k, d), (k,)
        g, d and their constants, in the input's units.
    """

    readout: Floats
    direction: Floats
    offset: Floats

    kind: ClassVar[str] = "path"
    shapes: ClassVar[dict[str, str]] = {"readout": "S d", "direction": "S d", "offset": "S"}
    scalar_names: ClassVar[tuple[str, ...]] = ("strength", "fraction")

    @property
    def affine(self) -> AffineMap:
        """The same correction as one affine map, which is how it is applied."""
        if "affine" not in self._cache:
            direction = self.direction.T.astype(np.float64)
            if len(self):
                direction[:, -1] *= self.fraction
            self._cache["affine"] = AffineMap(
                center=self.center,
                scale=self.scale,
                readout=self.readout.T,
                direction=direction,
                offset=self.offset,
                strength=self.strength,
                info=self.info,
                coordinates=self.coordinates,
            )
        folded: AffineMap = self._cache["affine"]
        return folded

    def _apply(self, X: Floats, out: Floats) -> bool:
        return self.affine._apply(X, out)

    def _add_squares(self, X: Floats, squares: Floats, ratio: Floats | None) -> None:
        coefficients = (X.astype(np.float64) - self.center) @ self.readout.T + self.offset
        if len(self):
            coefficients[:, -1] *= self.fraction
        steps = self.direction / self.scale * (1.0 if ratio is None else ratio)
        # ‖Σ c d‖² over the first j directions grows by c_j² ‖d_j‖² and twice its products with the earlier.
        products = (coefficients.T @ coefficients) * (steps @ steps.T)
        squares += np.diag(np.cumsum(np.cumsum(products, axis=0), axis=1))

    def _describe(self) -> str:
        if not len(self):
            return "identity"
        return f"{len(self)} direction{'s' * (len(self) > 1)}{self._extent()}"
