"""Iterated gradient projection, stored: each network's linearised source score is taken to zero in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._common.arrays import cast, namespace
from ..errors import MapError
from .base import Floats
from .sequential import SequentialMap

Array = Any  # numpy array or torch tensor

# A row whose squared gradient is at most this (every hidden unit that matters is off) is not moved.
FLAT = 1e-12
# Numbers in a block of hidden units: about a megabyte, which stays in cache between the passes over it.
BLOCK_SIZE = 2**18


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ProjectiveMap(SequentialMap):
    """A sequence of one-hidden-layer ReLU networks; stage by stage h ← h - f ∇f / ‖∇f‖².

    h is the standardised row and f the margin between its two largest logits, so that one step ends where a
    linear f would be zero. With two sources f is their logit difference: its sign cancels in the step. Steps
    are not bounded, and every direction may be edited.

    Attributes
    ----------
    hidden_weight, hidden_bias : (S, H, d), (S, H)
        Hidden layers of the S stages.
    output_weight, output_bias : (S, K, H), (S, K)
        Logits of the K sources.

    Examples
    --------
    >>> import numpy as np
    >>> on = ProjectiveMap(center=np.zeros(2), scale=np.ones(2), hidden_weight=np.array([[[1.0, 0.0]]]),
    ...                    hidden_bias=np.array([[10.0]]), output_weight=np.array([[[0.0], [1.0]]]),
    ...                    output_bias=np.array([[0.0, -10.0]]))
    >>> on.transform(np.array([[3.0, 1.0], [-20.0, 1.0]]))  # f = x₁ where the unit is on; else flat
    array([[  0.,   1.],
           [-20.,   1.]])
    """

    hidden_weight: Floats
    hidden_bias: Floats
    output_weight: Floats
    output_bias: Floats

    kind: ClassVar[str] = "projective"
    shapes: ClassVar[dict[str, str]] = {
        "hidden_weight": "S H d",
        "hidden_bias": "S H",
        "output_weight": "S K H",
        "output_bias": "S K",
    }
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

    def _stage_by_stage(self, X: Floats) -> Iterator[tuple[slice, int, Floats, Floats]]:
        weights = (getattr(self, name).astype(X.dtype, copy=False) for name in self.stage_tensors)
        stages = list(zip(*weights, strict=True))
        center, inverse_scale = self.center.astype(X.dtype), (1.0 / self.scale).astype(X.dtype)
        size = max(1, BLOCK_SIZE // max(self.n_features, self.sizes[1]))
        for first in range(0, len(X), size):
            rows = slice(first, first + size)
            h = start = (X[rows] - center) * inverse_scale
            for k, stage in enumerate(stages):
                h = project(h, *stage, fraction=self.fraction if k == len(self) - 1 else 1.0)
                yield rows, k, h, start

    def _describe(self) -> str:
        S, H, K = self.sizes
        return "identity" if S == 0 else f"{S} projections{self._extent()} by ReLU-{H} networks, {K} sources"


def project(h: Array, W1: Array, b1: Array, W2: Array, b2: Array, *, fraction: float = 1.0) -> Array:
    """Return rows h with the linearised margin taken to zero, or ``fraction`` of the way."""
    xp = namespace(h)
    u = h @ W1.T + b1
    pick = top_two(u, W2, b2)
    slope = (u > 0) * (pick @ W2)  # the margin's derivative by u
    margin = (slope * u).sum(1) + pick @ b2
    gradient = slope @ W1
    length2 = (gradient * gradient).sum(1)
    # Flat rows get a harmless 1, so that 0 / 0 does not reach a derivative.
    flat = length2 <= FLAT
    step = xp.where(flat, 0.0, margin) / xp.where(flat, 1.0, length2)
    return h - (fraction * step)[:, None] * gradient


def top_two(u: Array, W2: Array, b2: Array) -> Array:
    """Return +1 for each row's largest logit and -1 for its second, shape (n, K); for K = 2 one row, -1, 1.

    With two logits the order does not matter: margin and gradient change sign together.
    """
    xp, K = namespace(u), len(W2)
    if K == 2:
        return cast([[-1.0, 1.0]], u)
    logits = (u * (u > 0)) @ W2.T + b2
    positions, one = cast(list(range(K)), u), cast([1.0], u)
    first = logits.argmax(1)[:, None] == positions
    second = xp.where(first, -np.inf, logits).argmax(1)[:, None] == positions
    return first * one - second * one
