"""Affine corrections by source, for rows with known source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import MapError
from ..labels import encode_source, source_names
from .affine import PRODUCT_ROWS, AffineMap
from .base import CorrectionMap, Floats
from .validation import require_shape


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RoutedMap(CorrectionMap):
    """A source-aware map: x' = x - strength · ((x - center) G_s + offset_s) for a row of source s.

    Alignment methods (CORAL, FEATMAP, ComBat, …) use such maps. Labels are compared as text, so that 1 and
    "1" are the same source before and after storing.

    Attributes
    ----------
    readout : (K, d, d) or (K, d)
        G_s of each source: a matrix, or its diagonal if features are corrected separately.
    offset : (K, d)
        Constant part of each source's correction. A source with zeros in both is left unchanged.
    """

    readout: Floats
    offset: Floats

    kind: ClassVar[str] = "routed"
    source_blind: ClassVar[bool] = False
    shapes: ClassVar[dict[str, str]] = {"readout": "K d d or K d", "offset": "K d"}
    scalar_names: ClassVar[tuple[str, ...]] = ("strength",)
    no_export: ClassVar[str] = (
        "A RoutedMap needs the source of each row. Export the map of one source: m.for_source(label)."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.sources
        if not names or len(set(names)) != len(names):
            raise MapError(f"A routed map needs distinct source names; got {list(names)}.")
        require_shape(self, "offset", (len(names), self.n_features))

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources that this map can correct."""
        return self.info.source_names

    @cached_property
    def moves(self) -> NDArray[np.bool_]:
        """Mask of the sources with rows that the map changes."""
        still = [not (G.any() or offset.any()) for G, offset in zip(self.readout, self.offset, strict=True)]
        return ~np.array(still)

    def for_source(self, source: Any) -> AffineMap:
        """Return the correction of one source as a map that needs no labels, for one known device."""
        i = int(self.route(source, 1)[0])
        d, G = self.n_features, self.readout[i]
        return AffineMap(
            center=self.center,
            scale=self.scale,
            readout=np.diag(G) if G.ndim == 1 else G,
            direction=np.eye(d),
            offset=self.offset[i],
            strength=self.strength,
            info=replace(self.info, source_names=(self.sources[i],)),
            coordinates=self.coordinates,
            fitted=self.fitted,
        )

    def route(self, source: Any, n: int) -> NDArray[np.int64]:
        """Return the position of each row's source in :attr:`sources`; one label may stand for all rows."""
        if source is None:
            raise ValueError(
                f"{self.info.method or 'This correction'} is source-aware: pass source=, one label per row "
                f"({', '.join(self.sources)}). If sources are unknown at application, use a source-blind "
                "method."
            )
        if isinstance(source, (str, bytes, int, float, np.generic)):
            source = [source] * n
        labels, codes = encode_source(source, n)
        names = source_names(labels)
        unseen = [name for name in names if name not in self.sources]
        if unseen:
            raise ValueError(
                f"source has labels that were not in the fit: {', '.join(map(repr, unseen[:4]))}. This map "
                f"corrects only {', '.join(map(repr, self.sources))}."
            )
        return np.array([self.sources.index(name) for name in names], dtype=np.int64)[codes]

    def transform(
        self, X: Any, *, source: Any = None, strength: float | None = None, out: Floats | None = None
    ) -> Any:
        """Correct embeddings with known sources: one label per row, or one for all rows.

        The other parameters are those of :meth:`CorrectionMap.transform`.
        """
        if strength is not None and strength != self.strength:
            return self.with_strength(strength).transform(X, source=source, out=out)
        codes = self.route(source, len(X))
        return self._correct(X, lambda rows, into: self._apply_routed(rows, codes, into), out)

    def _apply_routed(self, X: Floats, codes: NDArray[np.int64], out: Floats) -> bool:
        center, readout, offset = (a.astype(X.dtype) for a in (self.center, self.readout, self.offset))
        readout, offset = -self.strength * readout, -self.strength * offset
        for start in range(0, len(X), PRODUCT_ROWS):
            rows = slice(start, start + PRODUCT_ROWS)
            source = codes[rows]
            if readout.ndim == 2:
                np.add(X[rows], (X[rows] - center) * readout[source] + offset[source], out=out[rows])
                continue
            for s in np.unique(source):
                members = start + np.flatnonzero(source == s)
                some = X[members]
                if self.moves[s]:
                    edit = (some - center) @ readout[s]
                    edit += offset[s]
                    some += edit
                out[members] = some
        return bool(np.isfinite(out.sum()) or np.isfinite(out).all())

    def _describe(self) -> str:
        form = "feature by feature" if self.readout.ndim == 2 else "affine"
        still = [repr(name) for name, moves in zip(self.sources, self.moves, strict=True) if not moves]
        reference = f", all to {still[0]}" if len(still) == 1 else ""
        return f"{form}, one for each of {len(self.sources)} sources{reference}"
