"""Erasure along the data manifold (MANCE), stored: a cloud of fitting rows and the scorers that push off it.

A round moves each row h against the gradient of a source scorer, seen in the tangent space that the k nearest
rows of the cloud span: with their centred SVD (B, σ), their mean distance r and g = ∇s / ‖∇s‖,

    t = B Bᵀ g,   D = B diag(σ̃^α) Bᵀ (hᵀt) t,   h ← h - min(64, ε r / ‖D‖) D.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np

from ..errors import MapError
from ..pairs import to_numpy
from .base import Floats, PathLike, refuse_output
from .sequential import SequentialMap

Scorer = tuple[Floats, ...]  # W₁, b₁, W₂, b₂, w

ERASURE = -1.0  # the stage that is the initial erasure; other stages name their scorer
LONGEST = 64.0
# A row this close to a stored one, relative to its own norm, is that row: stored rows are rounded to float32.
SAME_ROW = 1e-5
# Directions in which the neighbours spread this little, relative to the widest, are rounding.
NO_SPREAD = 1e-6
BLOCK_SIZE = 2**21  # numbers in the largest array of a block of rows


class Cloud:
    """Reference rows, prepared for nearest-neighbour search.

    Neighbours, tangents and scores are float64 whatever the rows are: a near tie decided by rounding would
    change a neighbourhood, and with it the row, by far more than rounding.
    """

    def __init__(self, reference: Floats, n_neighbors: int) -> None:
        self.rows = np.asarray(reference, dtype=np.float64)
        self.half_square = 0.5 * np.einsum("md,md->m", self.rows, self.rows)
        self.n_neighbors = n_neighbors
        # What never varied in the fit is zero in every reference row; later it must not add to distances.
        self.varies = self.rows.any(axis=0)

    def blocks(self, n: int) -> Iterator[slice]:
        """Yield slices of n rows that bound what a search holds in memory."""
        m, d = self.rows.shape
        block = max(16, BLOCK_SIZE // max(m, (self.n_neighbors + 1) * d))
        return (slice(start, start + block) for start in range(0, n, block))

    def offsets(self, H: Floats) -> Floats:
        """Return the k nearest reference rows minus the row itself, (n, k, d); a row is not its neighbour."""
        H = np.where(self.varies, H, 0.0)
        nearness = self.half_square - H @ self.rows.T  # half the squared distance, up to a row's constant
        nearest = np.argpartition(nearness, self.n_neighbors, axis=1)[:, : self.n_neighbors + 1]
        offsets = self.rows[nearest]
        offsets -= H[:, None]
        distance = np.linalg.norm(offsets, axis=2)
        itself = distance.min(axis=1) <= SAME_ROW * np.linalg.norm(H, axis=1)
        leave = np.where(itself, distance.argmin(axis=1), distance.argmax(axis=1))
        offsets[np.arange(len(H)), leave] = offsets[:, -1]
        return np.asarray(offsets[:, :-1])


def score_gradient(H: Floats, scorer: Scorer) -> Floats:
    """Return ∇s of s(h) = wᵀ relu(W₂ relu(W₁h + b₁) + b₂), shape (n, d)."""
    W1, b1, W2, b2, w = scorer
    first = H @ W1.T + b1
    second = np.maximum(first, 0.0) @ W2.T + b2
    back = ((second > 0) * w) @ W2
    return np.asarray((back * (first > 0)) @ W1)


def tangent_step(H: Floats, offsets: Floats, gradient: Floats, step: float, power: float) -> Floats:
    """Return one round's displacement: in the span of the centred neighbours, and at most ``step · r`` long.

    Parameters
    ----------
    H, offsets, gradient : (n, d), (n, k, d), (n, d)
        Rows, their neighbours relative to them, and the scorer's gradient there.
    step, power : float
        ε and α.
    """
    distance = np.linalg.norm(offsets, axis=2).mean(axis=1)
    C = offsets - offsets.mean(axis=1, keepdims=True)
    # C = U σ Bᵀ from the k x k Gram matrix; centring costs one direction, which comes first.
    variance, U = np.linalg.eigh(C @ C.transpose(0, 2, 1))
    spread, U = np.sqrt(np.maximum(variance[:, 1:], 0.0)), U[:, :, 1:]
    widest = spread[:, -1:]
    solid = spread > NO_SPREAD * widest
    inverse = np.divide(1.0, spread, out=np.zeros_like(spread), where=solid)
    size = np.linalg.norm(gradient, axis=1, keepdims=True)
    g = np.divide(gradient, size, out=np.zeros_like(gradient), where=size > 0)
    along_g, along_h = ((np.stack([g, H], axis=1) @ C.transpose(0, 2, 1)) @ U * inverse[:, None]).swapaxes(
        0, 1
    )
    inner = np.einsum("nr,nr->n", along_g, along_h)[:, None]  # hᵀt
    stretched = inner * (spread + np.maximum(1e-4 * widest, 1e-12)) ** power * along_g
    D = ((stretched * inverse)[:, None] @ U.transpose(0, 2, 1) @ C)[:, 0]
    length = np.linalg.norm(D, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        shrink = np.where(length == 0, 0.0, np.minimum(LONGEST, step * distance / length))
    return np.asarray(-shrink[:, None] * D)


def advance(
    H: Floats, cloud: Cloud, scorer: Scorer, step: float, power: float, fraction: float = 1.0
) -> None:
    """Move float64 rows by one round (or a fraction of it), in place."""
    for rows in cloud.blocks(len(H)):
        part = H[rows]
        part += fraction * tangent_step(part, cloud.offsets(part), score_gradient(part, scorer), step, power)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ManifoldMap(SequentialMap):
    """An affine erasure, then rounds of bounded steps along the manifold of the fitting rows.

    THE MAP CONTAINS FITTING ROWS (``reference``: after the erasure, in standardised coordinates), and so do
    its prefixes and files: share them only with those who may have the data.

    The erasure, if any, is the first stage, so that the empty prefix changes nothing; every round is a
    stage. A round searches the neighbours of every row: minutes for tens of thousands of rows. A torch tensor
    is corrected on the host and comes back without its gradient.

    Attributes
    ----------
    stage : (S,)
        What each stage is: -1 for the erasure, otherwise the index of the round's scorer.
    readout, direction, offset : (d, q), (d, q), (q,)
        The erasure h - (h G + offset) Dᵀ in standardised coordinates; q may be 0.
    reference : (m, d)
        The cloud whose rows span the tangents.
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
    scorer_names: ClassVar[tuple[str, ...]] = tuple(shapes)[5:]
    scalar_names: ClassVar[tuple[str, ...]] = ("strength", "fraction", "n_neighbors", "step", "power")

    def __post_init__(self) -> None:
        super().__post_init__()
        m, R = len(self.reference), len(self.hidden_bias)
        if not np.isin(self.stage[:1], np.arange(-1, R)).all() or not np.isin(self.stage[1:], range(R)).all():
            raise MapError(f"stage must name one of {R} scorers, or -1 (the erasure) in the first place.")
        if not (self.n_neighbors.is_integer() and 2 <= self.n_neighbors < m):
            raise MapError(f"n_neighbors is {self.n_neighbors:g}; expected a whole number from 2 to {m - 1}.")
        if self.step <= 0:
            raise MapError(f"step must be positive; got {self.step!r}.")

    def _transform_tensor(self, X: Any, out: Any) -> Any:
        import torch

        refuse_output(out)
        return torch.as_tensor(self._run(to_numpy(X), self._apply), device=X.device)

    def to_torch(self) -> NoReturn:
        """Raise: neighbour search and one eigendecomposition per row have no place in a small module."""
        raise TypeError("A ManifoldMap has no torch module: it searches its rows. Use transform(tensor).")

    def to_onnx(self, path: PathLike) -> NoReturn:
        """Raise, as :meth:`to_torch`."""
        raise TypeError(
            "A ManifoldMap has no ONNX form: it searches its rows and decomposes every neighbourhood. Use "
            "transform, or export another kind of map."
        )

    def _prepared(self) -> tuple[Cloud, list[Scorer]]:
        key = np.dtype(np.float64)
        if key not in self._cache:
            cloud = Cloud(self.reference, int(self.n_neighbors))
            stacks = [getattr(self, name).astype(np.float64) for name in self.scorer_names]
            self._cache[key] = cloud, list(zip(*stacks, strict=True))
        prepared: tuple[Cloud, list[Scorer]] = self._cache[key]
        return prepared

    def _edits(self, X: Floats) -> Iterator[tuple[slice, int, Floats]]:
        """Yield blocks of rows, the stages done, and the standardised displacement after them."""
        cloud, scorers = self._prepared()
        for rows in cloud.blocks(len(X)):
            start = (X[rows].astype(np.float64) - self.center) / self.scale
            H = start.copy()
            for k, scorer in enumerate(self.stage):
                fraction = self.fraction if k == len(self) - 1 else 1.0
                if scorer == ERASURE:
                    H -= fraction * ((H @ self.readout + self.offset) @ self.direction.T)
                else:
                    advance(H, cloud, scorers[int(scorer)], self.step, self.power, fraction)
                yield rows, k, H - start

    def _apply(self, X: Floats, out: Floats) -> bool:
        np.copyto(out, X)
        if self.strength == 0:
            return bool(np.isfinite(out).all())
        for rows, k, edit in self._edits(X):
            if k == len(self) - 1:
                out[rows] = X[rows] + self.strength * self.scale * edit
        return bool(np.isfinite(out).all())

    def _add_squares(self, X: Floats, squares: Floats, ratio: Floats | None) -> None:
        for _, k, edit in self._edits(X):
            squares[k] += np.square(edit if ratio is None else edit * ratio).sum()

    def _describe(self) -> str:
        rounds, rank = int((self.stage >= 0).sum()), self.readout.shape[1]
        erasure = f"rank-{rank} erasure and " if ERASURE in self.stage else ""
        return f"{erasure}{rounds} rounds{self._extent()} along {len(self.reference)} STORED FITTING ROWS"
