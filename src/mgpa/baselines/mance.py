"""MANCE: erase a source along the data manifold, by steps against a scorer inside local tangent spaces."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors

from .._common.extras import torch_device
from .._common.parameters import Constraint, nothing, read_seed, seed, text, whole
from ..estimators.base import FitData, MethodTags, SequentialEstimator, require_several
from ..maps import ManifoldMap
from ..maps.sequential import ERASURE, manifold_step
from ..moments import Scatter, Standardizer
from ..stopping import held_out_folds
from .leace import erasure_along

Floats = NDArray[Any]
Rows = tuple[Floats, NDArray[np.int64]]  # embeddings and their sources, 0 or 1

STEP, REFIT_EVERY = 0.1, 8  # ε, the longest step per mean neighbour distance; rounds that use one scorer
FEWEST_NEIGHBORS, FEWEST_ROUNDS, MARGIN = 8, 5, 0.01
CHECK_EVERY, BATCH, PATIENCE, LEARNING_RATE, WEIGHT_DECAY = 200, 512, 4, 1e-3, 1e-4  # the scorer's training
MAX_SEED = 2**31 - 1


class MANCE(SequentialEstimator):
    """Erase a binary source by small steps inside the local tangent spaces of the data.

    Reference: Avitan, Goldberg, Elazar, "MANCE", 2026, arXiv 2607.03973 (its variant ++); written from a
    description. Departures: after LEACE the (rounding-noise) direction between class means is not removed;
    held-out rows, never test rows, stop the rounds; rows are centred; LEACE is without shrinkage.

    Needs source labels (two sources) and torch to fit; no pairs, no task. Source-blind at application.

    What it cannot do: promise anything. Steps stay near the data, but no reader is guaranteed to fail
    afterwards, and what is associated with the source is removed with it. It is slow, in fitting and in
    application. And its map stores fitting rows: share it only with those who may have them.

    Parameters
    ----------
    n_rounds : int
        At most this many rounds. They end earlier, after five or more, once a fresh logistic regression and
        the scorer read the source of held-out rows no better than the majority share plus .01.
    n_steps, hidden : int
        Training steps (AdamW, batches of 512) and units of the scorer.
    reference_size : int or None
        Keep only a random subset of the fitting rows as the reference; None keeps all.
    device : {"auto", "cpu", "cuda", ...}
        Where the scorer is trained; "auto" takes CUDA if torch sees it.
    random_state : int, RandomState or None
        The same seed gives the same map.

    Attributes
    ----------
    history_ : list of dict
        Per round: ``scorer`` and, from the fifth, ``logistic``, accuracies on the held-out rows.
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True)
    map_: ManifoldMap

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "n_rounds": whole(), "n_steps": whole(1), "hidden": whole(1), "reference_size": whole(1) | nothing,
        "device": text, "random_state": seed,
    }  # fmt: skip

    @property
    def _looks_at_events(self) -> bool:
        return True  # held-out rows are whole events

    def __init__(
        self, *, n_rounds: int = 60, n_steps: int = 800, hidden: int = 512, reference_size: int | None = None,
        device: str = "auto", random_state: Any = None,
    ) -> None:  # fmt: skip
        self.n_rounds = n_rounds
        self.n_steps = n_steps
        self.hidden = hidden
        self.reference_size = reference_size
        self.device = device
        self.random_state = random_state

    def _fit(self, data: FitData) -> None:
        if data.sample_weight is not None:
            raise ValueError("MANCE weighs all rows alike: leave sample_weight out.")
        if require_several(data.sources) > 2:
            raise ValueError(
                f"source has {len(data.sources)} distinct values {data.sources.tolist()[:8]}; MANCE erases a "
                "binary source. Fit on two of them, or use a method for several sources."
            )
        seed, device = read_seed(self.random_state), torch_device(self.device, "MANCE")
        (X, codes), (X_held, held_codes) = self._split(data, seed)
        standardizer = Standardizer.from_rows(X, None, True)
        center, scale, varies = standardizer.center, standardizer.scale, standardizer.varies
        H, V = (np.where(varies, (rows.astype(np.float64) - center) / scale, 0.0) for rows in (X, X_held))
        readout, direction, offset = first_erasure(H, codes)
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
                weights[0] *= varies  # what never varied must not steer the map later
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

    def _split(self, data: FitData, seed: int) -> tuple[Rows, Rows]:
        """Return rows to fit on and held-out rows, each with its codes."""
        held, held_codes = self._read_held_out(data, "they decide when to stop", every_source=True)
        if held is not None and held_codes is not None:
            return (data.X, data.codes), (held, held_codes)
        if np.bincount(data.codes).min() < 2:
            raise ValueError("A source has a single row; MANCE holds out rows of both. Add rows or X_val.")
        train, test = held_out_folds(data.codes, data.groups, data.pair_id, seed)[0][0]
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
    """Return the TwoNN estimate n / Σ log(r₂ / r₁) of each row's two nearest distances; copies count once."""
    rows = np.unique(np.asarray(rows, dtype=np.float64), axis=0)
    if len(rows) < 3:
        return 0.0
    nearest = NearestNeighbors(n_neighbors=3).fit(rows).kneighbors(rows, return_distance=False).T
    # The search's own distances round those of rows that nearly agree to zero.
    _, near, far = np.sort([np.linalg.norm(rows[i] - rows, axis=1) for i in nearest], axis=0)
    total = float(np.log(far / near).sum())
    return min(len(rows) / total, float(rows.shape[1])) if total > 0 else float(rows.shape[1])


def first_erasure(H: Floats, codes: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
    """Return readout, direction and offset of the erasure before the rounds: h - (h G + offset) Dᵀ.

    LEACE, and the removal of the two directions in which the sources' variances then differ most.
    """
    mean = H.mean(axis=0)
    C = H - mean
    cross = C.T @ (codes - codes.mean())[:, None] / len(C)
    readout, direction = erasure_along(Scatter.from_rows(C / np.sqrt(len(C))).axes(), cross)
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

    The weights of the lowest held-out cross-entropy are kept. ``start`` are earlier weights to continue from.
    """
    import torch
    import torch.nn.functional as F

    from ..networks import initial_weights

    rows, held_rows = (torch.as_tensor(H, dtype=torch.float32, device=device) for H, _ in (train, held))
    target, held_target = (torch.as_tensor(c, dtype=torch.float32, device=device) for _, c in (train, held))
    if start is None:
        start = initial_weights(((hidden, rows.shape[1]), (hidden, hidden), (1, hidden)), seed)
        # From zero, training on swapped source names negates the output layer and changes nothing else.
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
