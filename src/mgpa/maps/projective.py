"""Iterated gradient projection, stored: each network's linearised source score is taken to zero in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import MapError
from .base import Floats
from .sequential import SequentialMap

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

    def _apply(self, X: Floats, out: Floats) -> bool:
        if len(self) == 0 or self.strength == 0:
            np.copyto(out, X)
            return bool(np.isfinite(out).all())
        if np.may_share_memory(X, out):  # stages write to out before X is done with
            X = X.copy()
        self._standardize(X, out)
        self._run_stages(out)
        scale, finite = (self.strength * self.scale).astype(X.dtype), True
        for rows in self._blocks(len(X)):
            h = out[rows]
            h -= self._standardize(X[rows], np.empty_like(h))
            h *= scale
            h += X[rows]
            finite &= bool(np.isfinite(h).all())
        return finite

    def _add_squares(self, X: Floats, squares: Floats, ratio: Floats | None) -> None:
        original = self._standardize(X, np.empty_like(X))
        h = original.copy()

        def add(k: int, rows: slice) -> None:
            moved = h[rows] - original[rows]
            squares[k] += np.square(moved if ratio is None else moved * ratio, dtype=np.float64).sum()

        self._run_stages(h, add)

    def _standardize(self, X: Floats, out: Floats) -> Floats:
        np.subtract(X, self.center.astype(X.dtype), out=out)
        out *= (1.0 / self.scale).astype(X.dtype)
        return out

    def _blocks(self, n: int) -> list[slice]:
        size = max(1, BLOCK_SIZE // max(self.n_features, self.sizes[1]))
        return [slice(start, start + size) for start in range(0, n, size)]

    def _run_stages(self, h: Floats, after: Callable[[int, slice], None] | None = None) -> None:
        """Move standardised rows in place; ``after`` is told of every stage and block that is done."""
        blocks = self._blocks(len(h))
        for k in range(len(self)):
            # Stage by stage, so that weights of another type are converted once and only for a while.
            stage = [getattr(self, name)[k].astype(h.dtype, copy=False) for name in self.stage_tensors]
            for rows in blocks:
                project(h[rows], *stage, fraction=self.fraction if k == len(self) - 1 else 1.0)
                if after is not None:
                    after(k, rows)

    def _describe(self) -> str:
        S, H, K = self.sizes
        return "identity" if S == 0 else f"{S} projections{self._extent()} by ReLU-{H} networks, {K} sources"


def project(h: Floats, W1: Floats, b1: Floats, W2: Floats, b2: Floats, *, fraction: float) -> None:
    """Take the linearised margin of rows h to zero, in place; ``fraction`` of the way."""
    u = h @ W1.T
    u += b1
    pick = top_two(u, W2, b2)
    slope = (u > 0) * (pick @ W2)  # the margin's derivative by u
    margin = np.einsum("nh,nh->n", slope, u)
    margin += pick @ b2
    gradient = slope @ W1
    length2 = np.einsum("nd,nd->n", gradient, gradient)
    step = np.divide(margin, length2, out=np.zeros_like(margin), where=length2 > FLAT)
    gradient *= (fraction * step)[:, None]
    h -= gradient


def top_two(u: Floats, W2: Floats, b2: Floats) -> Floats:
    """Return +1 for each row's largest logit and -1 for its second, shape (n, K); for K = 2 one row, -1, 1.

    With two logits the order is no matter: margin and gradient change sign together.
    """
    K = len(W2)
    if K == 2:
        return np.array([[-1.0, 1.0]], dtype=u.dtype)
    logits = np.maximum(u, 0.0) @ W2.T + b2
    first = logits.argmax(axis=1)[:, None] == np.arange(K)
    second = np.where(first, -np.inf, logits).argmax(axis=1)[:, None] == np.arange(K)
    return np.asarray(first.astype(u.dtype) - second.astype(u.dtype))
