"""Source-aware corrections: one affine map for each source, and a label that says which to apply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._common.arrays import is_tensor
from ..errors import MapError
from ..pairs import encode_source, source_names
from .affine import FAR_FROM_ZERO, AffineMap
from .base import CorrectionMap, Floats, refuse_output

BLOCK_ROWS = 2048


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RoutedMap(CorrectionMap):
    """x' = x - strength · ((x - center) G_s + offset_s) for a row of source s.

    Alignment methods (CORAL, FEATMAP, ComBat, …) need to know where each input comes from. Labels are
    compared as text, so that 1 and "1" name the same source before and after a file.

    Attributes
    ----------
    readout : (K, d, d) or (K, d)
        G_s of each source: a matrix, or its diagonal where features are corrected one by one.
    offset : (K, d)
        Constant part of each source's correction. A source with zeros in both is left unchanged.

    Examples
    --------
    >>> import numpy as np
    >>> from mgpa.maps import MapInfo
    >>> m = RoutedMap(center=np.zeros(2), scale=np.ones(2), readout=np.zeros((2, 2)),
    ...               offset=np.array([[0.0, 0.0], [1.0, 0.0]]), info=MapInfo(source_names=("dry", "wet")))
    >>> m.transform(np.ones((2, 2)), source=["dry", "wet"])
    array([[1., 1.],
           [0., 1.]])
    """

    readout: Floats
    offset: Floats

    kind: ClassVar[str] = "routed"
    source_blind: ClassVar[bool] = False
    shapes: ClassVar[dict[str, str]] = {"readout": "K d d or K d", "offset": "K d"}
    scalar_names: ClassVar[tuple[str, ...]] = ("strength",)

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.sources
        if not names or len(set(names)) != len(names):
            raise MapError(f"A routed map needs distinct source names; got {list(names)}.")
        self._require_shape("offset", (len(names), self.n_features))

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources it can correct."""
        return self.info.source_names

    def for_source(self, source: Any) -> AffineMap:
        """Return the correction of one source as a map that asks for no label: for a device you know."""
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
        )

    def route(self, source: Any, n: int) -> NDArray[np.int64]:
        """Return each row's position among :attr:`sources`; one label alone is meant for all n rows."""
        if source is None:
            raise ValueError(
                f"{self.info.method or 'This correction'} is source-aware: pass source=, one label per row "
                f"({', '.join(self.sources)}). Where sources are unknown at application, use a source-blind "
                "method."
            )
        if isinstance(source, (str, bytes, int, float, np.generic)):
            source = [source] * n
        labels, codes = encode_source(source, n)
        names = source_names(labels)
        unseen = [name for name in names if name not in self.sources]
        if unseen:
            raise ValueError(
                f"source has labels that were not seen in fit: {', '.join(map(repr, unseen[:4]))}; there is "
                f"no correction for them. Fitted on {', '.join(map(repr, self.sources))}."
            )
        return np.array([self.sources.index(name) for name in names], dtype=np.int64)[codes]

    def transform(
        self, X: Any, *, source: Any = None, strength: float | None = None, out: Floats | None = None
    ) -> Any:
        """Correct embeddings whose sources are known.

        Parameters
        ----------
        X : (n, d) array or torch tensor
            Embeddings.
        source : (n,) array of labels, or one label for all rows
            Which of the fitted sources each row comes from.
        strength : float or None
            Apply this strength instead of the map's own.
        out : array of shape (n, d) or None
            Where to write the corrected rows, as for every map.
        """
        if strength is not None and strength != self.strength:
            return self.with_strength(strength).transform(X, source=source, out=out)
        codes = self.route(source, len(X))
        if is_tensor(X):
            refuse_output(out)
            return self._module(X.device)(X, codes)
        return self._run(X, lambda rows, into: self._apply_routed(rows, codes, into), out)

    def _apply_routed(self, X: Floats, codes: NDArray[np.int64], out: Floats) -> bool:
        if self.readout.ndim == 2:
            self._apply_gains(X, codes, out)
        else:
            self._apply_matrices(X, codes, out)
        return bool(np.isfinite(out.sum()) or np.isfinite(out).all())

    def _apply_gains(self, X: Floats, codes: NDArray[np.int64], out: Floats) -> None:
        """Write x ⊙ gain_s + constant_s; a source without correction has gain 1 and constant 0, exactly."""
        gain = 1.0 - self.strength * self.readout
        constant = self.strength * (self.center * self.readout - self.offset)
        gain, constant = gain.astype(X.dtype), constant.astype(X.dtype)
        # Blocks of about a megabyte stay in cache between the passes over them.
        block = max(1, 2**20 // (X.itemsize * X.shape[1]))
        work = np.empty((min(block, len(X)), X.shape[1]), dtype=X.dtype)
        for start in range(0, len(X), block):
            rows = slice(start, start + block)
            part = work[: len(X[rows])]
            np.multiply(X[rows], np.take(gain, codes[rows], axis=0, out=part), out=out[rows])
            out[rows] += np.take(constant, codes[rows], axis=0, out=part)

    def _apply_matrices(self, X: Floats, codes: NDArray[np.int64], out: Floats) -> None:
        # Centring first costs a pass, needed only where float32 sums would lose digits.
        far = X.dtype == np.float32 and (np.abs(self.center) > FAR_FROM_ZERO * self.scale).any()
        for s, (G, offset) in enumerate(zip(self.readout, self.offset, strict=True)):
            members = np.flatnonzero(codes == s)
            unchanged = self.strength == 0 or not (G.any() or offset.any())
            matrix = (-self.strength * G).astype(X.dtype)
            constant = (-self.strength * (offset if far else offset - self.center @ G)).astype(X.dtype)
            for start in range(0, len(members), BLOCK_ROWS):
                rows = members[start : start + BLOCK_ROWS]
                part = X[rows]
                if not unchanged:
                    edit = (part - self.center.astype(X.dtype) if far else part) @ matrix
                    edit += constant
                    part += edit
                out[rows] = part

    def _describe(self) -> str:
        form = "feature by feature" if self.readout.ndim == 2 else "affine"
        return f"{form}, one for each of {len(self.sources)} sources, strength {self.strength:g}"
