"""MANCE: erase a source along the data manifold by steps against a scorer in local tangent spaces."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors

from .._common.extras import torch_device
from .._common.parameters import Constraint, nothing, one_of, read_seed, seed, text, whole
from ..errors import MapError
from ..estimators.base import HeldOut, MethodTags, SequentialEstimator
from ..linalg import Scatter
from ..maps import SequentialMap
from ..moments import Standardizer
from ..pairs import Pairs
from ..statistics import LabelledRows, require_several
from ..stopping import held_out_folds
from ._base import InMemory
from .leace import erasure_along

Floats = NDArray[Any]
Rows = tuple[Floats, NDArray[np.int64]]  # embeddings and their sources, 0 or 1

STEP, REFIT_EVERY = 0.1, 8  # ε, the maximum step per mean neighbour distance; rounds per scorer
FEWEST_NEIGHBORS, FEWEST_ROUNDS, MARGIN = 8, 5, 0.01
CHECK_EVERY, BATCH, PATIENCE, LEARNING_RATE, WEIGHT_DECAY = 200, 512, 4, 1e-3, 1e-4  # training of the scorer
MAX_SEED = 2**31 - 1


class MANCE(SequentialEstimator):
    """Erase a binary source by small steps inside the local tangent spaces of the data.

    Reference: Avitan, Goldberg, Elazar, "MANCE", 2026, arXiv 2607.03973; implemented from a description.
    Differences: after LEACE, the direction between class means (rounding noise) is not removed; rounds are
    stopped by held-out rows, never by test rows; rows are centred; LEACE has no shrinkage.

    Needs source labels (two sources) and torch to fit; no pairs, no task. Source-blind at application.

    What it cannot do: give a guarantee. Rows stay near the data, but readers may still find the source, and
    information associated with the source is also removed. Fitting and application are slow. The correction
    contains the fitting rows, exists only in memory and cannot be saved.

    Parameters
    ----------
    variant : {"++", "+", "plain"}
        The step before the rounds: LEACE followed by removal of the two directions in which the variances of
        the sources differ most (MANCE++), LEACE alone (MANCE+), or none (MANCE).
    n_rounds : int
        Maximum number of rounds. Rounds stop early, after at least five, if the accuracies of a new logistic
        regression and of the scorer on held-out rows are at most the majority share plus .01.
    n_steps, hidden : int
        Number of training steps (AdamW, batches of 512) and of hidden units of the scorer.
    reference_size : int or None
        Keep only a random subset of the fitting rows as the reference; None keeps all.
    device : {"auto", "cpu", "cuda", ...}
        Device for training; "auto" uses CUDA if available.
    random_state : int, RandomState or None
        The same seed gives the same map.

    Attributes
    ----------
    history_ : list of dict
        For each round, accuracies on held-out rows: ``scorer`` and, from the fifth round, ``logistic``.
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True)
    map_: ManifoldMap

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "variant": one_of("++", "+", "plain"), "n_rounds": whole(),
        "n_steps": whole(1), "hidden": whole(1), "reference_size": whole(1) | nothing,
        "device": text, "random_state": seed,
    }  # fmt: skip

    def __init__(
        self, *, variant: str = "++", n_rounds: int = 60, n_steps: int = 800, hidden: int = 512,
        reference_size: int | None = None, device: str = "auto", random_state: Any = None,
    ) -> None:  # fmt: skip
        self.variant = variant
        self.n_rounds = n_rounds
        self.n_steps = n_steps
        self.hidden = hidden
        self.reference_size = reference_size
        self.device = device
        self.random_state = random_state

    def _fit(self, data: LabelledRows, pairs: Pairs | None, held_out: HeldOut) -> None:
        if data.sample_weight is not None:
            raise ValueError("MANCE weights all rows equally; omit sample_weight.")
        if require_several(data.sources) > 2:
            raise ValueError(
                f"source has {len(data.sources)} distinct values {data.sources.tolist()[:8]}; MANCE erases a "
                "binary source. Fit on two of them, or use a method for several sources."
            )
        seed, device = read_seed(self.random_state), torch_device(self.device, "MANCE")
        (X, codes), (X_held, held_codes) = self._split(data, held_out, seed)
        standardizer = Standardizer.from_rows(X, None, True)
        center, scale, varies = standardizer.center, standardizer.scale, standardizer.varies
        H, V = (np.where(varies, (rows.astype(np.float64) - center) / scale, 0.0) for rows in (X, X_held))
        readout, direction, offset = first_erasure(H, codes, self.variant)
        direction[~varies] = readout[~varies] = 0.0
        for rows in (H, V):
            rows -= (rows @ readout + offset) @ direction.T
        reference, k = self._reference(H, seed)
        wide, chance = reference.astype(np.float64), np.bincount(held_codes).max() / len(held_codes) + MARGIN
        history: list[dict[str, Any]] = []
        scorers: list[list[Floats]] = []
        for i in range(self.n_rounds):
            if i % REFIT_EVERY == 0:
                last, sizes = scorers[-1] if scorers else None, (self.hidden, self.n_steps)
                weights, accuracy = fit_scorer((H, codes), (V, held_codes), last, device, seed + i, *sizes)
                weights[0] *= varies  # constant features must not influence the map
                scorers.append(weights)
            scorer = tuple(w.astype(np.float64) for w in scorers[-1][:-1])
            for rows in (H, V):
                rows += manifold_step(rows, wide, k, scorer, STEP, 1.0)
            history.append({"round": i, "scorer": accuracy})
            if i + 1 >= FEWEST_ROUNDS:
                probe = LogisticRegression(max_iter=2500).fit(H, codes)
                history[-1]["logistic"] = float(probe.score(V, held_codes))
            if max(accuracy, history[-1].get("logistic", 1.0)) <= chance:
                break
        self.sources_, self.history_, self.n_rounds_ = data.sources, history, len(history)
        hidden, d = self.hidden, H.shape[1]
        shapes = ((hidden, d), (hidden,), (hidden, hidden), (hidden,), (hidden,))
        stacks: dict[str, Any] = {
            name: np.array([weights[j] for weights in scorers], dtype=np.float32).reshape(-1, *shape)
            for j, (name, shape) in enumerate(zip(ManifoldMap.scorer_names, shapes, strict=True))
        }
        self.map_ = ManifoldMap(
            center=center, scale=scale, readout=readout, direction=direction, offset=offset,
            stage=np.concatenate([[ERASURE], np.arange(len(history)) // REFIT_EVERY]).astype(np.float64),
            reference=reference, **stacks, n_neighbors=float(k), step=STEP, power=1.0,
            info=self._info(standardizer, random_state=seed, **data.facts),
        )  # fmt: skip

    def _split(self, data: LabelledRows, held_out: HeldOut, seed: int) -> tuple[Rows, Rows]:
        """Return fitting rows and held-out rows, each with source codes."""
        held, held_codes = self._read_held_out(
            data.sources, held_out, "they decide when to stop", every_source=True
        )
        if held is not None and held_codes is not None:
            return (data.X, data.codes), (held, held_codes)
        if np.bincount(data.codes).min() < 2:
            raise ValueError("A source has a single row; MANCE holds out rows of both. Add rows or X_val.")
        train, test = held_out_folds(data.codes, data.participant, None, seed)[0][0]
        return (data.X[train], data.codes[train]), (data.X[test], data.codes[test])

    def _reference(self, H: Floats, seed: int) -> tuple[NDArray[np.float32], int]:
        """Return the reference rows and the number of neighbours."""
        reference = H.astype(np.float32)
        if self.reference_size is not None and self.reference_size < len(H):
            chosen = np.random.default_rng(seed % MAX_SEED).choice(len(H), self.reference_size, replace=False)
            reference = reference[np.sort(chosen)]
        m = len(reference)
        k = max(FEWEST_NEIGHBORS, math.ceil(intrinsic_dimension(reference) if m > FEWEST_NEIGHBORS else 0))
        if m <= k:
            raise ValueError(f"{m} reference rows are too few for {k} neighbours; use at least {k + 1}.")
        return reference, k


def intrinsic_dimension(rows: Floats) -> float:
    """Return the TwoNN estimate n / Σ log(r₂ / r₁) from the two nearest distances; copies count once."""
    rows = np.unique(np.asarray(rows, dtype=np.float64), axis=0)
    if len(rows) < 3:
        return 0.0
    nearest = NearestNeighbors(n_neighbors=3).fit(rows).kneighbors(rows, return_distance=False).T
    # The search rounds distances between nearly equal rows to zero.
    _, near, far = np.sort([np.linalg.norm(rows[i] - rows, axis=1) for i in nearest], axis=0)
    total = float(np.log(far / near).sum())
    return min(len(rows) / total, float(rows.shape[1])) if total > 0 else float(rows.shape[1])


def first_erasure(H: Floats, codes: NDArray[np.int64], variant: str) -> tuple[Floats, Floats, Floats]:
    """Return readout G, direction D and offset of the initial erasure h - (h G + offset) Dᵀ."""
    mean = H.mean(axis=0)
    if variant == "plain":
        return np.zeros((len(mean), 0)), np.zeros((len(mean), 0)), np.zeros(0)
    C = H - mean
    cross = C.T @ (codes - codes.mean())[:, None] / len(C)
    readout, direction = erasure_along(Scatter.from_rows(C / np.sqrt(len(C))).axes(), cross)
    if variant == "+":
        return readout, direction, -mean @ readout
    erased = C - (C @ readout) @ direction.T
    first, second = (np.cov(erased[codes == k].T, ddof=0).reshape(len(mean), -1) for k in (0, 1))
    values, vectors = np.linalg.eigh(second - first)
    chosen = np.argsort(-np.abs(values), kind="stable")[:2]
    E = vectors[:, chosen[np.abs(values[chosen]) > 1e-12 * np.trace(first + second)]]
    readout = np.hstack([readout, E - readout @ (direction.T @ E)])
    return readout, np.hstack([direction, E]), -mean @ readout


def fit_scorer(
    train: Rows, held: Rows, start: list[Floats] | None, device: Any, seed: int, hidden: int, n_steps: int
) -> tuple[list[Floats], float]:
    """Train a d → hidden → hidden → 1 ReLU scorer; return its weights and its held-out accuracy.

    The weights with the lowest held-out cross-entropy are kept. Training continues from ``start``, if given.
    """
    import torch
    import torch.nn.functional as F

    from ..networks import initial_weights

    rows, held_rows = (torch.as_tensor(H, dtype=torch.float32, device=device) for H, _ in (train, held))
    target, held_target = (torch.as_tensor(c, dtype=torch.float32, device=device) for _, c in (train, held))
    if start is None:
        start = initial_weights(((hidden, rows.shape[1]), (hidden, hidden), (1, hidden)), seed)
        # The output layer starts at zero, so that swapping source names only changes its sign.
        start[4:] = [torch.zeros(hidden), torch.zeros(())]
    weights = [torch.as_tensor(w, device=device).clone().requires_grad_() for w in start]
    optimizer = torch.optim.AdamW(weights, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    draw = torch.Generator().manual_seed(seed % MAX_SEED)

    def score(x: Any) -> Any:
        W1, b1, W2, b2, w, b = weights
        return torch.relu(torch.relu(x @ W1.T + b1) @ W2.T + b2) @ w + b

    best, best_loss, accuracy, stale = weights, float("inf"), 0.0, 0
    for step in range(1, n_steps + 1):
        batch = torch.randint(len(rows), (BATCH,), generator=draw).to(device)
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(score(rows[batch]), target[batch]).backward()
        optimizer.step()
        if step % CHECK_EVERY == 0 or step == n_steps:
            with torch.no_grad():
                scores = score(held_rows)
                loss = float(F.binary_cross_entropy_with_logits(scores, held_target))
            stale += 1
            if loss < best_loss:
                best, best_loss, stale = [w.detach().clone() for w in weights], loss, 0
                accuracy = float(((scores > 0) == (held_target > 0)).float().mean())
            elif stale >= PATIENCE:
                break
    return [w.detach().cpu().numpy() for w in best], accuracy


ERASURE = -1.0  # marks the initial erasure among stages; other stages have the index of their scorer
LONGEST = 64.0
SAME_ROW = 1e-5  # stored (float32) rows at smaller distances, relative to the norm, are the same row
NO_SPREAD = 1e-6  # smaller spreads of neighbours, relative to the widest direction, are rounding errors
SEARCHED_NUMBERS = 2**21  # size of the largest array for a block of rows


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ManifoldMap(InMemory, SequentialMap):
    """An affine erasure, then rounds of bounded steps along the manifold of the fitting rows (MANCE).

    The map keeps the fitting rows (``reference``) in memory and has no file format. Each round searches the
    neighbours of each row in float64, which takes minutes for tens of thousands of rows.

    Attributes
    ----------
    stage : (S,)
        The kind of each stage: -1 for the erasure, otherwise the index of the scorer of the round.
    readout, direction, offset : (d, q), (d, q), (q,)
        The erasure h - (h G + offset) Dᵀ in standardised coordinates; q may be 0.
    reference : (m, d)
        The stored rows, erased and standardised.
    hidden_weight, hidden_bias, second_weight, second_bias, output_weight : (R, H, d), (R, H), (R, H, H), …
        W₁, b₁, W₂, b₂ and w of R scorers wᵀ relu(W₂ relu(W₁h + b₁) + b₂).
    n_neighbors, step, power : float
        k, ε and α of :func:`tangent_step`.
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
            raise MapError(f"n_neighbors must be an integer from 2 to {m - 1}; got {self.n_neighbors:g}.")
        if self.step <= 0:
            raise MapError(f"step must be positive; got {self.step!r}.")

    def _add_squares(self, X: Floats, squares: Floats, ratio: Floats | None) -> None:
        for k, moved in self._stage_by_stage(X):
            squares[k] += np.square(moved if ratio is None else moved * ratio).sum()

    def _apply(self, X: Floats, out: Floats) -> bool:
        moved = np.zeros(X.shape)
        for _, moved in self._stage_by_stage(X):  # noqa: B007  (the last one counts)
            pass
        out[:] = X + self.strength * self.scale * moved
        return bool(np.isfinite(out).all())

    def _stage_by_stage(self, X: Floats) -> Iterator[tuple[int, Floats]]:
        """Yield each stage and the standardised displacement of the rows after this stage."""
        weights = [getattr(self, name).astype(np.float64) for name in ("reference", *self.scorer_names)]
        start = (X.astype(np.float64) - self.center) / self.scale
        H = start.copy()
        for i, scorer in enumerate(self.stage):
            fraction = self.fraction if i == len(self) - 1 else 1.0
            if scorer == ERASURE:
                H -= fraction * ((H @ self.readout + self.offset) @ self.direction.T)
            else:
                scorers = tuple(stack[int(scorer)] for stack in weights[1:])
                neighbours = weights[0], int(self.n_neighbors)
                H += fraction * manifold_step(H, *neighbours, scorers, self.step, self.power)
            yield i, H - start

    def _describe(self) -> str:
        rounds, erasure = int((self.stage >= 0).sum()), "an erasure and " if ERASURE in self.stage else ""
        return f"{erasure}{rounds} rounds{self._last()}, along {len(self.reference)} fitting rows"


def manifold_step(
    H: Floats, reference: Floats, k: int, scorer: tuple[Floats, ...], step: float, power: float
) -> Floats:
    """Return the displacement of all rows in one round, computed in blocks to limit memory."""
    m, d = reference.shape
    size = max(16, SEARCHED_NUMBERS // max(m, (k + 1) * d))
    blocks = (H[i : i + size] for i in range(0, len(H), size))
    steps = [tangent_step(h, neighbour_offsets(h, reference, k), scorer, step, power) for h in blocks]
    return np.concatenate([np.zeros((0, d)), *steps])


def neighbour_offsets(H: Floats, reference: Floats, k: int) -> Floats:
    """Return offsets of each row's k nearest reference rows, (n, k, d); a row is not its own neighbour."""
    H = np.where(reference.any(axis=0), H, 0.0)  # ignore features that were constant in the fit
    nearness = 0.5 * np.einsum("md,md->m", reference, reference) - H @ reference.T
    offsets = reference[np.argpartition(nearness, k, axis=1)[:, : k + 1]] - H[:, None]
    distance = np.linalg.norm(offsets, axis=2)
    itself = distance.min(axis=1) <= SAME_ROW * np.linalg.norm(H, axis=1)
    leave = np.where(itself, distance.argmin(axis=1), distance.argmax(axis=1))
    offsets[np.arange(len(H)), leave] = offsets[:, -1]
    return np.asarray(offsets[:, :-1])


def tangent_step(H: Floats, offsets: Floats, scorer: tuple[Floats, ...], step: float, power: float) -> Floats:
    """Return the displacement in one round, in the span of the centred neighbours and at most step · r long.

    With the SVD (B, σ) of the centred neighbours, their mean distance r and g = ∇s / ‖∇s‖,

        t = B Bᵀ g,   D = B diag(σ^α) Bᵀ (hᵀt) t,   h ← h - min(64, ε r / ‖D‖) D.
    """
    W1, b1, W2, b2, w = scorer
    first = H @ W1.T + b1
    gradient = (((np.maximum(first, 0.0) @ W2.T + b2 > 0) * w) @ W2 * (first > 0)) @ W1
    size = np.linalg.norm(gradient, axis=1, keepdims=True)
    g = np.divide(gradient, size, out=np.zeros_like(gradient), where=size > 0)
    C = offsets - offsets.mean(axis=1, keepdims=True)
    # C = U σ Bᵀ from the k x k Gram matrix; centring removes one direction, the first.
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
