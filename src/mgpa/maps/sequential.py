"""Maps made of consecutive stages: Algorithm 1 of the paper and the baseline IGBP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from .._common.arrays import cast, copy_rows, namespace
from .._common.checks import as_float_matrix
from ..errors import MapError
from .base import CorrectionMap, Floats
from .runtime.numpy_replay import Replay
from .validation import require_shape

Array = Any  # numpy array or torch tensor


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SequentialMap(CorrectionMap):
    """A map of consecutive stages; the first n stages are also a map, and the last stage may be partial.

    Attributes
    ----------
    fraction : float in [0, 1]
        The fraction of the last stage to apply.
    """

    fraction: float = 1.0

    stage_tensors: ClassVar[tuple[str, ...]]  # the arrays with a stage axis S

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
            raise ValueError("Only prefixes such as m[:13] are maps: later stages depend on earlier stages.")
        return self.prefix(stop)

    def prefix(self, n_stages: int, fraction: float = 1.0) -> Self:
        """Return a map of the first ``n_stages`` stages, with ``fraction`` of the last stage.

        The fraction is relative to this map: one half of a last stage that is itself applied by one half
        gives a quarter of the stage.
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
        self, X: Any, *, strength: float | None = None, n_stages: int | None = None, fraction: float = 1.0,
        out: Floats | None = None,
    ) -> Any:  # fmt: skip
        """Correct embeddings, optionally with the first ``n_stages`` stages and ``fraction`` of the last one.

        ``X``, ``strength`` and ``out`` are those of :meth:`CorrectionMap.transform`. To apply a prefix many
        times, store ``m.prefix(n_stages, fraction)``.
        """
        if n_stages is None and fraction == 1.0:
            return super().transform(X, strength=strength, out=out)
        part = self.prefix(len(self) if n_stages is None else n_stages, fraction)
        return part.transform(X, strength=strength, out=out)

    def stage_movement(self, X: Any, scale: Floats | None = None) -> NDArray[np.float64]:
        """Return the movement ‖H' - H‖_F of the rows of X after 1, 2, … stages, in standardised coordinates.

        ``scale`` replaces the map's own standardisation.
        """
        X = as_float_matrix(X, n_features=self.n_features)
        squares = np.zeros(len(self))
        if len(X) and len(self):
            self._add_squares(X, squares, None if scale is None else self.scale / scale)
        return np.asarray(self.strength * np.sqrt(squares))

    def _add_squares(self, X: Floats, squares: Floats, ratio: Floats | None) -> None:
        """Add the squared displacements of rows after each stage, at strength 1, to ``squares``.

        ``ratio`` multiplies each coordinate of the displacements; None means 1.
        """
        raise NotImplementedError

    def _last(self) -> str:
        return "" if self.fraction == 1 else f", {self.fraction:.3g} of the last"


# Tolerance for orthonormality of a stored basis: float32 rounding, as in the paper's own loader.
ORTHONORMAL_TOLERANCE = 2e-5


def is_orthonormal(basis: Floats) -> bool:
    """Return whether the columns of a (d, r) matrix are orthonormal, up to float32 rounding."""
    d, r = basis.shape
    B = basis.astype(np.float64)
    return r <= d and bool(np.abs(B.T @ B - np.eye(r)).max(initial=0.0) <= ORTHONORMAL_TOLERANCE)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StagedMap(SequentialMap):
    """A sequence of critic-guided stages; each stage is a bounded step inside the gate (Algorithm 1, replay).

    Attributes
    ----------
    basis : (d, r)
        Orthonormal gate basis B in standardised coordinates.
    linear_weight, linear_bias : (S, L, d), (S, L)
        Affine critic scores of each of the S stages.
    hidden_weight, hidden_bias, output_weight, output_bias : (S, H, d), (S, H), (S, N, H), (S, N)
        GELU critic: N scores from H hidden units. Scores are contrasts of the logits: with two sources, the
        second minus the first; with more, each minus the mean of the others.
    anchor_weight, anchor_bias : (S, L + N, d), (S, L + N)
        The target of each score as an affine function of the original standardised input; the weights lie in
        the preserved complement, so the target does not change with the edit. The shapes are (S, 0, d) and
        (S, 0) if targets are scores at the anchored point.
    anchor_readout, anchor_offset, anchor_direction : (d, a), (a,), (d, a), or all None
        G, c and D of the anchored point h - (h G + c) Dᵀ of an original standardised input h. The scores at
        this point are the targets of a stage.
    start_readout, start_offset : (d, r), (r,), or both None
        The first stage is the closed form, z = h G + c in gate coordinates.
    damping, radius, stabilizer : float
        τ, ρ (absolute) and λ of the trust-region step.
    """

    basis: Floats
    linear_weight: Floats
    linear_bias: Floats
    hidden_weight: Floats
    hidden_bias: Floats
    output_weight: Floats
    output_bias: Floats
    anchor_weight: Floats
    anchor_bias: Floats
    damping: float
    radius: float
    stabilizer: float
    anchor_readout: Floats | None = None
    anchor_offset: Floats | None = None
    anchor_direction: Floats | None = None
    start_readout: Floats | None = None
    start_offset: Floats | None = None

    kind: ClassVar[str] = "staged"
    shapes: ClassVar[dict[str, str]] = {
        "basis": "d r",
        "linear_weight": "S L d", "linear_bias": "S L", "hidden_weight": "S H d", "hidden_bias": "S H",
        "output_weight": "S N H", "output_bias": "S N", "anchor_weight": "S J d", "anchor_bias": "S J",
        "anchor_readout": "d a", "anchor_offset": "a", "anchor_direction": "d a",
        "start_readout": "d r", "start_offset": "r",
    }  # fmt: skip
    optional_tensors: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("anchor_readout", "anchor_offset", "anchor_direction"),
        ("start_readout", "start_offset"),
    )
    scalar_names: ClassVar[tuple[str, ...]] = ("strength", "damping", "radius", "stabilizer", "fraction")

    def __post_init__(self) -> None:
        super().__post_init__()
        S, L, H, N = self.sizes
        n_targets = L + N if self.anchor_readout is None else 0
        require_shape(self, "anchor_weight", (S, n_targets, self.n_features))
        if S and L + N == 0:
            raise MapError("A stage needs at least one critic score.")
        if N and not H:
            raise MapError("Network scores need hidden units.")
        if not is_orthonormal(self.basis):
            raise MapError("basis is not orthonormal.")
        if not (self.damping > 0 and self.radius > 0 and self.stabilizer > 0):
            raise MapError("damping, radius and stabilizer must be positive.")

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Numbers of stages, linear scores, hidden units and network scores: S, L, H, N."""
        S, L = self.linear_weight.shape[:2]
        return S, L, self.hidden_weight.shape[1], self.output_weight.shape[1]

    @property
    def rank(self) -> int:
        """Dimension of the subspace that the map may edit."""
        return int(self.basis.shape[1])

    def _weights(self, dtype: np.dtype[Any]) -> Replay:
        return Replay(self, dtype)

    def _apply(self, X: Floats, out: Floats) -> bool:
        if len(self) == 0 or self.rank == 0:
            return copy_rows(X, out)
        replay: Replay = self._prepared(X.dtype)
        return replay.apply(X, out, self.strength)

    def _add_squares(self, X: Floats, squares: Floats, ratio: Floats | None) -> None:
        if self.rank:
            scaled = None if ratio is None else self.basis.astype(np.float64) * ratio[:, None]
            metric = None if scaled is None else scaled.T @ scaled
            self._prepared(X.dtype).apply(X, np.empty_like(X), 1.0, squares, metric)

    def _describe(self) -> str:
        S, L, H, N = self.sizes
        if S == 0 or self.rank == 0:
            return "identity"
        critics = [f"{L} linear"] * bool(L) + [f"{N} by a network of {H} units"] * bool(N)
        first = "" if self.start_readout is None else ", the first is the closed form"
        stages = f"{S} stage{'s' * (S != 1)}{self._last()}{first}"
        return f"{stages}, in a gate of rank {self.rank}; scores per stage: {', '.join(critics)}"


# Rows with a squared gradient up to this value are not moved: all relevant hidden units are off.
FLAT = 1e-12
# Number of hidden-unit values in a block of rows: about a megabyte, which stays in the cache.
BLOCK_NUMBERS = 2**18


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ProjectiveMap(SequentialMap):
    """A sequence of one-hidden-layer ReLU networks; each stage computes h ← h - f ∇f / ‖∇f‖².

    Here h is the standardised row and f the margin between its two largest logits; for a linear f, one step
    reaches zero margin. With two sources, f is the logit difference, and its sign cancels in the step. Steps
    are not bounded, and all directions may be edited.

    Attributes
    ----------
    hidden_weight, hidden_bias : (S, H, d), (S, H)
        Hidden layers of the S stages.
    output_weight, output_bias : (S, K, H), (S, K)
        Logits of the K sources.
    """

    hidden_weight: Floats
    hidden_bias: Floats
    output_weight: Floats
    output_bias: Floats

    kind: ClassVar[str] = "projective"
    shapes: ClassVar[dict[str, str]] = {
        "hidden_weight": "S H d", "hidden_bias": "S H", "output_weight": "S K H", "output_bias": "S K",
    }  # fmt: skip
    scalar_names: ClassVar[tuple[str, ...]] = ("strength", "fraction")
    no_export: ClassVar[str] = "A ProjectiveMap has no torch or ONNX form."

    def __post_init__(self) -> None:
        super().__post_init__()
        S, H, K = self.sizes
        if S and (H < 1 or K < 2):
            raise MapError(f"A stage needs hidden units and at least two logits; got {H} and {K}.")

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Numbers of stages, hidden units and logits: S, H, K."""
        S, H = self.hidden_weight.shape[:2]
        return S, H, self.output_weight.shape[1]

    def _add_squares(self, X: Floats, squares: Floats, ratio: Floats | None) -> None:
        for _, k, moved in self._stage_by_stage(X):
            squares[k] += np.square(moved if ratio is None else moved * ratio, dtype=np.float64).sum()

    def _apply(self, X: Floats, out: Floats) -> bool:
        scale, finite = (self.strength * self.scale).astype(X.dtype), copy_rows(X, out)
        for rows, k, moved in self._stage_by_stage(X):
            if k == len(self) - 1:
                out[rows] = X[rows] + scale * moved
        return finite and bool(np.isfinite(out).all())

    def _stage_by_stage(self, X: Floats) -> Iterator[tuple[slice, int, Floats]]:
        """Yield each block of rows, stage number, and standardised displacement after this stage."""
        weights = (getattr(self, name).astype(X.dtype, copy=False) for name in self.stage_tensors)
        stages = list(zip(*weights, strict=True))
        center, inverse_scale = self.center.astype(X.dtype), (1.0 / self.scale).astype(X.dtype)
        size = max(1, BLOCK_NUMBERS // max(self.n_features, self.sizes[1]))
        for first in range(0, len(X), size):
            rows = slice(first, first + size)
            h = start = (X[rows] - center) * inverse_scale
            for k, stage in enumerate(stages):
                h = project(h, *stage, fraction=self.fraction if k == len(self) - 1 else 1.0)
                yield rows, k, h - start

    def _describe(self) -> str:
        S, H, K = self.sizes
        return f"{S} projections{self._last()}, by networks of {H} units, {K} sources" if S else "identity"


def project(h: Array, W1: Array, b1: Array, W2: Array, b2: Array, *, fraction: float = 1.0) -> Array:
    """Return rows h after a step that takes the linearised margin to zero, or ``fraction`` of the step."""
    xp, K = namespace(h), len(W2)
    u = h @ W1.T + b1
    pick = cast([[-1.0, 1.0]], u)  # the order of two logits changes the signs of both margin and gradient
    if K > 2:
        logits = (u * (u > 0)) @ W2.T + b2
        positions, one = cast(list(range(K)), u), cast([1.0], u)
        first = logits.argmax(1)[:, None] == positions
        second = xp.where(first, -np.inf, logits).argmax(1)[:, None] == positions
        pick = first * one - second * one
    slope = (u > 0) * (pick @ W2)  # the derivative of the margin with respect to u
    margin = (slope * u).sum(1) + pick @ b2
    gradient = slope @ W1
    length2 = (gradient * gradient).sum(1)
    # Rows without gradient get the value 1, so that 0 / 0 does not reach a derivative.
    flat = length2 <= FLAT
    step = xp.where(flat, 0.0, margin) / xp.where(flat, 1.0, length2)
    return h - (fraction * step)[:, None] * gradient
