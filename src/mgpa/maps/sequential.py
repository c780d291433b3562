"""Maps of stages: any prefix of one is a map, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from .._common.checks import as_float_matrix
from ..errors import MapError
from .base import CorrectionMap, Floats


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SequentialMap(CorrectionMap):
    """A map of stages applied one after another: any prefix of it is a map, and its last stage divisible.

    Attributes
    ----------
    fraction : float in [0, 1]
        How much of the last stage is applied.
    """

    fraction: float = 1.0

    stage_tensors: ClassVar[tuple[str, ...]]  # those with an axis S, of stages

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.stage_tensors = tuple(name for name, axes in cls.shapes.items() if axes.startswith("S"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.fraction <= 1:
            raise MapError(f"fraction must lie in [0, 1]; got {self.fraction!r}.")

    def __len__(self) -> int:
        return len(getattr(self, self.stage_tensors[0]))

    def __getitem__(self, stages: slice) -> Self:
        """Return a prefix: ``m[:13]`` applies the first 13 stages."""
        if not isinstance(stages, slice):
            raise TypeError("A single stage is not a map; take a prefix such as m[:13].")
        start, stop, step = stages.indices(len(self))
        if start != 0 or step != 1:
            raise ValueError("Only prefixes such as m[:13] are maps: later stages rely on the earlier ones.")
        return self.prefix(stop)

    def prefix(self, n_stages: int, fraction: float = 1.0) -> Self:
        """Return the first ``n_stages`` stages, the last of them applied by ``fraction``.

        The fraction is relative to this map: half of a last stage applied by half is a quarter of it.
        """
        if not isinstance(n_stages, (int, np.integer)) or not 0 <= n_stages <= len(self):
            raise ValueError(f"n_stages is {n_stages}; this map has {len(self)} stages.")
        if not 0 <= fraction <= 1:
            raise ValueError(f"fraction must lie in [0, 1]; got {fraction!r}.")
        if n_stages == len(self) and fraction == 1.0:
            return self
        cut = {name: getattr(self, name)[:n_stages] for name in self.stage_tensors}
        if n_stages == len(self):
            fraction = fraction * self.fraction
        return replace(self, fraction=float(fraction), **cut)

    def transform(
        self,
        X: Any,
        *,
        strength: float | None = None,
        n_stages: int | None = None,
        fraction: float = 1.0,
        out: Floats | None = None,
    ) -> Any:
        """Correct embeddings with this map, or with its first ``n_stages`` stages, the last by ``fraction``.

        ``X``, ``strength`` and ``out`` are as for every map. To apply a prefix many times, keep it:
        ``m.prefix(n_stages, fraction)``.
        """
        if n_stages is None and fraction == 1.0:
            return super().transform(X, strength=strength, out=out)
        part = self.prefix(len(self) if n_stages is None else n_stages, fraction)
        return part.transform(X, strength=strength, out=out)

    def stage_movement(self, X: Any, scale: Floats | None = None) -> NDArray[np.float64]:
        """Return ‖H' - H‖_F over the rows of X after 1, 2, … stages, in standardised coordinates.

        ``scale`` is another standardisation to measure in, in place of the map's own.
        """
        X = as_float_matrix(X, n_features=self.n_features)
        squares = np.zeros(len(self))
        if len(X) and len(self):
            self._add_squares(X, squares, None if scale is None else self.scale / scale)
        return np.asarray(self.strength * np.sqrt(squares))

    def _add_squares(self, X: Floats, squares: Floats, ratio: Floats | None) -> None:
        """Add the rows' squared displacements after each stage, at full strength, to ``squares``.

        ``ratio`` multiplies each coordinate of the displacements; None is 1.
        """
        for _, k, h, start in self._stage_by_stage(X):
            edit = h - start if ratio is None else (h - start) * ratio
            squares[k] += np.square(edit, dtype=np.float64).sum()

    def _apply(self, X: Floats, out: Floats) -> bool:
        np.copyto(out, X)
        if self.strength:
            scale = (self.strength * self.scale).astype(X.dtype)
            for rows, k, h, start in self._stage_by_stage(X):
                if k == len(self) - 1:
                    out[rows] = X[rows] + scale * (h - start)
        return bool(np.isfinite(out).all())

    def _stage_by_stage(self, X: Floats) -> Iterator[tuple[slice, int, Floats, Floats]]:
        """Yield blocks of rows, the stage done, and their standardised rows after it and at the start."""
        raise NotImplementedError

    def _extent(self) -> str:
        last = "" if self.fraction == 1 else f" (last x {self.fraction:g})"
        return last + ("" if self.strength == 1 else f" at strength {self.strength:g}")
