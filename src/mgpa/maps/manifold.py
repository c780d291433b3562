"""Erasure along the data manifold (MANCE), stored: fitting rows, and the scorers that steer the steps.

A round moves each row h against the gradient of a source scorer, seen in the tangent space that the k nearest
stored rows span: with their centred SVD (B, σ), their mean distance r and g = ∇s / ‖∇s‖,

    t = B Bᵀ g,   D = B diag(σ^α) Bᵀ (hᵀt) t,   h ← h - min(64, ε r / ‖D‖) D.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import MapError
from .base import Floats
from .sequential import SequentialMap

Scorer = tuple[Floats, ...]  # W₁, b₁, W₂, b₂, w of wᵀ relu(W₂ relu(W₁h + b₁) + b₂)

ERASURE = -1.0  # the stage that is the initial erasure; other stages name their scorer
LONGEST = 64.0
SAME_ROW = 1e-5  # distance, relative to a row's norm, below which a stored (float32) row is the row itself
NO_SPREAD = 1e-6  # neighbours spread this little, relative to the widest direction, only by rounding
BLOCK_SIZE = 2**21  # numbers in the largest array of a block of rows


def blocks_of(n: int, reference: Floats, k: int) -> Iterator[slice]:
    """Yield slices of n rows that bound what a search for k neighbours holds in memory."""
    m, d = reference.shape
    block = max(16, BLOCK_SIZE // max(m, (k + 1) * d))
    return (slice(start, start + block) for start in range(0, n, block))


def neighbour_offsets(H: Floats, reference: Floats, k: int) -> Floats:
    """Return the k nearest reference rows minus the row itself, (n, k, d); a row is not its own neighbour."""
    H = np.where(reference.any(axis=0), H, 0.0)  # what never varied in the fit adds nothing to distances
    nearness = 0.5 * np.einsum("md,md->m", reference, reference) - H @ reference.T
    offsets = reference[np.argpartition(nearness, k, axis=1)[:, : k + 1]] - H[:, None]
    distance = np.linalg.norm(offsets, axis=2)
    itself = distance.min(axis=1) <= SAME_ROW * np.linalg.norm(H, axis=1)
    leave = np.where(itself, distance.argmin(axis=1), distance.argmax(axis=1))
    offsets[np.arange(len(H)), leave] = offsets[:, -1]
    return np.asarray(offsets[:, :-1])


def tangent_step(H: Floats, offsets: Floats, scorer: Scorer, step: float, power: float) -> Floats:
    """Return one round's displacement: in the span of the centred neighbours, at most ``step · r`` long."""
    W1, b1, W2, b2, w = scorer
    first = H @ W1.T + b1
    gradient = (((np.maximum(first, 0.0) @ W2.T + b2 > 0) * w) @ W2 * (first > 0)) @ W1
    size = np.linalg.norm(gradient, axis=1, keepdims=True)
    g = np.divide(gradient, size, out=np.zeros_like(gradient), where=size > 0)
    C = offsets - offsets.mean(axis=1, keepdims=True)
    # C = U σ Bᵀ from the k x k Gram matrix; centring costs one direction, which comes first.
    variance, U = np.linalg.eigh(C @ C.transpose(0, 2, 1))
    spread, U = np.sqrt(np.maximum(variance[:, 1:], 0.0)), U[:, :, 1:]
    widest = spread[:, -1:]
    inverse = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > NO_SPREAD * widest)
    along_g, along_h = (
        (rows[:, None] @ C.transpose(0, 2, 1) @ U)[:, 0] * inverse for rows in (g, H)
    )  # in the basis B
    inner = np.einsum("nr,nr->n", along_g, along_h)[:, None]  # hᵀt
    stretched = inner * (spread + np.maximum(1e-4 * widest, 1e-12)) ** power * along_g
    D = ((stretched * inverse)[:, None] @ U.transpose(0, 2, 1) @ C)[:, 0]
    length, distance = np.linalg.norm(D, axis=1), np.linalg.norm(offsets, axis=2).mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        shrink = np.where(length == 0, 0.0, np.minimum(LONGEST, step * distance / length))
    return np.asarray(-shrink[:, None] * D)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ManifoldMap(SequentialMap):
    """An affine erasure, then rounds of bounded steps along the manifold of the fitting rows.

    THE MAP CONTAINS FITTING ROWS (``reference``), and so do its prefixes and files: share them only with
    those who may have the data. Every round searches the neighbours of every row, in float64: minutes
    for tens of thousands of rows.

    Attributes
    ----------
    stage : (S,)
        What each stage is: -1 for the erasure, otherwise the index of the round's scorer.
    readout, direction, offset : (d, q), (d, q), (q,)
        The erasure h - (h G + offset) Dᵀ in standardised coordinates; q may be 0.
    reference : (m, d)
        The stored rows, erased and standardised.
    hidden_weight, hidden_bias, second_weight, second_bias, output_weight : (R, H, d), (R, H), (R, H, H), …
        Scorers: two ReLU layers of H units and an output, whose own bias has no gradient.
    n_neighbors, step, power : float
        k, ε and α.
    """

    stage: Floats
    readout: Floats
    direction: Floats
    offset: Floats
    reference: Floats
    hidden_weight: Floats
    hidden_bias: Floats
    second_weight: Floats
    second_bias: Floats
    output_weight: Floats
    n_neighbors: float
    step: float
    power: float

    kind: ClassVar[str] = "manifold"
    shapes: ClassVar[dict[str, str]] = {
        "stage": "S", "readout": "d q", "direction": "d q", "offset": "q", "reference": "m d",
        "hidden_weight": "R H d", "hidden_bias": "R H", "second_weight": "R H H", "second_bias": "R H",
        "output_weight": "R H",
    }  # fmt: skip
    no_export: ClassVar[str] = "A ManifoldMap searches its stored rows, which has no torch or ONNX form."
    scorer_names: ClassVar[tuple[str, ...]] = tuple(shapes)[5:]
    scalar_names: ClassVar[tuple[str, ...]] = ("strength", "fraction", "n_neighbors", "step", "power")

    def __post_init__(self) -> None:
        super().__post_init__()
        m, R = len(self.reference), len(self.hidden_bias)
        if not np.isin(self.stage[:1], np.arange(-1, R)).all() or not np.isin(self.stage[1:], range(R)).all():
            raise MapError(f"stage must name one of {R} scorers, or -1 (the erasure) in the first place.")
        if not (self.n_neighbors.is_integer() and 2 <= self.n_neighbors < m):
            raise MapError(f"n_neighbors must be an integer from 2 to {m - 1}; got {self.n_neighbors:g}.")
        if self.step <= 0:
            raise MapError(f"step must be positive; got {self.step!r}.")

    def _stage_by_stage(self, X: Floats) -> Iterator[tuple[slice, int, Floats, Floats]]:
        reference, k = self.reference.astype(np.float64), int(self.n_neighbors)
        scorers = list(
            zip(*(getattr(self, name).astype(np.float64) for name in self.scorer_names), strict=True)
        )
        for rows in blocks_of(len(X), reference, k):
            start = (X[rows].astype(np.float64) - self.center) / self.scale
            H = start.copy()
            for i, scorer in enumerate(self.stage):
                fraction = self.fraction if i == len(self) - 1 else 1.0
                if scorer == ERASURE:
                    H -= fraction * ((H @ self.readout + self.offset) @ self.direction.T)
                else:
                    offsets = neighbour_offsets(H, reference, k)
                    H += fraction * tangent_step(H, offsets, scorers[int(scorer)], self.step, self.power)
                yield rows, i, H, start

    def _describe(self) -> str:
        rounds, rank = int((self.stage >= 0).sum()), self.readout.shape[1]
        erasure = f"rank-{rank} erasure and " if ERASURE in self.stage else ""
        return f"{erasure}{rounds} rounds{self._extent()} along {len(self.reference)} STORED FITTING ROWS"
