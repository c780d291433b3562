"""Algorithm 1, stored: critic-guided stages, replayed by :mod:`mgpa.maps.runtime.numpy_replay`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import MapError
from .base import Floats
from .runtime.numpy_replay import Replay
from .sequential import SequentialMap

# How far a stored basis may be from orthonormal: float32 rounding, the bound the paper's own loader used.
ORTHONORMAL_TOLERANCE = 2e-5


def is_orthonormal(basis: Floats) -> bool:
    """Return whether the columns of a (d, r) matrix are orthonormal, up to the rounding of float32."""
    d, r = basis.shape
    B = basis.astype(np.float64)
    return r <= d and bool(np.abs(B.T @ B - np.eye(r)).max(initial=0.0) <= ORTHONORMAL_TOLERANCE)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StagedMap(SequentialMap):
    """A sequence of critic-guided stages, each a bounded step inside the gate (Algorithm 1, replay).

    Attributes
    ----------
    basis : (d, r)
        Orthonormal gate basis B in standardised coordinates.
    linear_weight, linear_bias : (S, L, d), (S, L)
        Affine critic scores of each of the S stages.
    hidden_weight, hidden_bias, output_weight, output_bias : (S, H, d), (S, H), (S, N, H), (S, N)
        GELU critic: N scores from H hidden units. Scores are contrasts of the critics' logits: of two sources
        the second against the first, of more each against the mean of the others.
    anchor_weight, anchor_bias : (S, L + N, d), (S, L + N)
        Each score's target as an affine function of the original standardised input; the weights lie in
        the preserved complement, so the target never moves with the edit. Without rows, (S, 0, d) and (S, 0),
        if targets are scores at the anchored point:
    anchor_readout, anchor_offset, anchor_direction : (d, a), (a,), (d, a), or all None
        G, c and D of the anchored point h - (h G + c) Dᵀ of an original standardised input h. Its scores in
        a stage are what the scores aim for.
    start_readout, start_offset : (d, r), (r,), or both None
        The first stage begins with z = h G + c in gate coordinates: the closed form, which then is all of it.
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
        self._require_shape("anchor_weight", (S, n_targets, self.n_features))
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
        """Dimension of the subspace the map may edit."""
        return int(self.basis.shape[1])

    def _replay(self, dtype: np.dtype[Any]) -> Replay:
        if dtype not in self._cache:
            self._cache[dtype] = Replay(self, dtype)
        replay: Replay = self._cache[dtype]
        return replay

    def _apply(self, X: Floats, out: Floats) -> bool:
        if len(self) == 0 or self.rank == 0 or self.strength == 0:
            np.copyto(out, X)
            return bool(np.isfinite(out).all())
        return self._replay(X.dtype).apply(X, out, self.strength)

    def _add_squares(self, X: Floats, squares: Floats, ratio: Floats | None) -> None:
        if self.rank:
            scaled = None if ratio is None else self.basis.astype(np.float64) * ratio[:, None]
            metric = None if scaled is None else scaled.T @ scaled
            self._replay(X.dtype).apply(X, np.empty_like(X), 1.0, squares, metric)

    def _describe(self) -> str:
        S, L, H, N = self.sizes
        if S == 0 or self.rank == 0:
            return "identity"
        critics = [f"{L} linear"] * bool(L) + [f"{N} by a network of {H} units"] * bool(N)
        first = "" if self.start_readout is None else ", the first of them the closed form"
        stages = f"{S} stage{'s' * (S != 1)}{self._last()}{first}"
        return f"{stages}, in a gate of rank {self.rank}; scores per stage: {', '.join(critics)}"
