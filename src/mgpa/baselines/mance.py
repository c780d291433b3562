"""MANCE: erase a source along the data manifold, by steps against a scorer inside local tangent spaces."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from .._common.parameters import Constraint, flag, nothing, number, one_of, read_seed, seed, text, whole
from .._common.progress import progress
from ..errors import Mention, UsageError
from ..estimators.base import FitData, MethodTags, require_several
from ..estimators.staged import SequentialEstimator, complete_stages_kept, torch_device
from ..maps import ManifoldMap, MapInfo
from ..maps.manifold import ERASURE, Cloud, advance
from ..moments import Scatter, Standardizer
from ..stopping import HELD_OUT, held_out_folds
from .leace import erasure_along

Floats = NDArray[Any]
Rows = tuple[Floats, NDArray[np.int64]]  # embeddings and their sources, 0 or 1

FEWEST_NEIGHBORS = 8
FEWEST_ROUNDS = 5
MARGIN = 0.01
CHECK_EVERY = 200
MAX_SEED = 2**31 - 1
TRAINING = ("hidden", "n_steps", "batch_size", "learning_rate", "weight_decay", "patience")


def intrinsic_dimension(rows: Floats) -> float:
    """Return the TwoNN estimate n / Σ log(r₂ / r₁) from each row's two nearest distances.

    Copies of a row, which have r₁ = 0, count once; fewer than three different rows have dimension 0.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> plane = rng.uniform(size=(1000, 2)) @ rng.normal(size=(2, 10))
    >>> round(intrinsic_dimension(plane))
    2
    """
    rows = np.unique(np.asarray(rows, dtype=np.float64), axis=0)
    if len(rows) < 3:
        return 0.0
    cloud = Cloud(rows, 2)
    pairs = [np.linalg.norm(cloud.offsets(rows[block]), axis=2) for block in cloud.blocks(len(rows))]
    near, far = np.sort(np.concatenate(pairs), axis=1).T
    total = float(np.log(far / near).sum())
    return min(len(rows) / total, float(rows.shape[1])) if total > 0 else float(rows.shape[1])


def first_erasure(H: Floats, codes: NDArray[np.int64], variant: str) -> tuple[Floats, Floats, Floats]:
    """Return readout, direction and offset of the erasure before the rounds: h - (h G + offset) Dᵀ.

    LEACE for "+"; for "++" also the projection off the two directions in which the sources' variances then
    differ most.
    """
    mean = H.mean(axis=0)
    C = H - mean
    if variant == "":
        return np.zeros((len(mean), 0)), np.zeros((len(mean), 0)), np.zeros(0)
    cross = C.T @ (codes - codes.mean())[:, None] / len(C)
    readout, direction = erasure_along(Scatter.of_rows(C / np.sqrt(len(C))).axes(), cross)
    if variant == "++":
        E = unequal_directions(C - (C @ readout) @ direction.T, codes)
        readout = np.hstack([readout, E - readout @ (direction.T @ E)])
        direction = np.hstack([direction, E])
    return readout, direction, -mean @ readout


def unequal_directions(H: Floats, codes: NDArray[np.int64]) -> Floats:
    """Return the two eigenvectors of Σ₁ - Σ₀ with the largest |eigenvalue|, (d, 2), or fewer."""
    first, second = (np.cov(H[codes == k].T, ddof=0).reshape(H.shape[1], -1) for k in (0, 1))
    values, vectors = np.linalg.eigh(second - first)
    chosen = np.argsort(-np.abs(values), kind="stable")[:2]
    return np.asarray(vectors[:, chosen[np.abs(values[chosen]) > 1e-12 * np.trace(first + second)]])


def fit_scorer(
    train: Rows,
    held: Rows,
    start: list[Floats] | None,
    device: Any,
    seed: int,
    *,
    hidden: int,
    n_steps: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    patience: int,
) -> tuple[list[Floats], float]:
    """Train a d → hidden → hidden → 1 ReLU scorer and return its weights and its held-out accuracy.

    Every 200 steps the held-out cross-entropy is looked at: the best weights are kept, and training ends
    after ``patience`` looks without improvement. ``start`` are earlier weights to go on from.
    """
    import torch
    import torch.nn.functional as F

    from ..networks import initial_weights

    rows, held_rows = (torch.as_tensor(H, dtype=torch.float32, device=device) for H, _ in (train, held))
    target, held_target = (torch.as_tensor(c, dtype=torch.float32, device=device) for _, c in (train, held))
    if start is None:
        d = rows.shape[1]
        start = initial_weights(((hidden, d), (hidden, hidden), (1, hidden)), seed)
        # From zero, training on swapped source names negates the output layer and changes nothing else.
        start[4:] = [torch.zeros(hidden), torch.zeros(())]
    weights = [torch.as_tensor(w, device=device).clone().requires_grad_() for w in start]
    optimizer = torch.optim.AdamW(weights, lr=learning_rate, weight_decay=weight_decay)
    draw = torch.Generator().manual_seed(seed % MAX_SEED)

    def score(x: Any) -> Any:
        W1, b1, W2, b2, w, b = weights
        return torch.relu(torch.relu(x @ W1.T + b1) @ W2.T + b2) @ w + b

    best, best_loss, accuracy, stale = weights, float("inf"), 0.0, 0
    for step in range(1, n_steps + 1):
        batch = torch.randint(len(rows), (batch_size,), generator=draw).to(device)
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
            elif stale >= patience:
                break
    return [w.detach().cpu().numpy() for w in best], accuracy


class MANCE(SequentialEstimator):
    """Erase a binary source by small steps inside the local tangent spaces of the data.

    Reference: Avitan, Goldberg, Elazar, "MANCE", 2026, arXiv 2607.03973; written from a description of it.

    Needs source labels (two sources) and torch to fit; no pairs, no task. Source-blind at application, which
    needs numpy only.

    What it cannot do: promise anything. A step is bounded and stays near the data, but no reader is
    guaranteed to fail afterwards, and what goes with the source is removed with it. It is slow, since every
    round searches the neighbours of every row, in fitting and in application. And its map stores fitting
    rows: share it only with those who may have them (:class:`~mgpa.maps.ManifoldMap`).

    Parameters
    ----------
    variant : {"++", "+", ""}
        What precedes the rounds: LEACE and the removal of the two directions in which the sources' variances
        then differ most; LEACE; nothing.
    n_rounds : int
        At most this many rounds. They end earlier, after five or more, once ``probe`` reads the source of
        held-out rows no better than the majority share plus .01.
    probe : {"logistic", "scorer"}
        A fresh logistic regression; or both it and the scorer, as last retrained. LEACE leaves little to a
        logistic regression, which may therefore stop "+" and "++" while a network still reads the source.
    step, power : float
        ε, a round's longest step as a share of the mean neighbour distance; α, how much tangent directions
        in which the data spread are preferred.
    refit_every : int
        Rounds that use one scorer before it is trained further.
    n_steps, batch_size, hidden, learning_rate, weight_decay, patience : int, int, int, float, float, int
        Training of the scorer (AdamW); it is checked on held-out rows every 200 steps.
    n_neighbors : int or None
        k; None is the TwoNN dimension of the reference rows, rounded up, and at least 8.
    reference_size : int or None
        Keep only a random subset of the fitting rows as the reference; None keeps all.
    standardize : bool
        Scale features to unit variance. They are centred in any case: the sign of a step depends on it.
    device : {"auto", "cpu", "cuda", ...}
        Where the scorer is trained; "auto" takes CUDA if torch sees it.
    random_state : int, RandomState or None
        Seed of the scorer, the held-out rows and the reference subset; the same seed gives the same map.
    verbose : bool
        Show progress.

    Attributes
    ----------
    map_ : ManifoldMap
        Its stages are the erasure, if any, and the rounds.
    n_rounds_, n_neighbors_ : int
        Rounds fitted, and k.
    dimension_ : float or None
        TwoNN dimension, if it was needed.
    history_ : list of dict
        Per round: ``scorer`` and, from the fifth, ``logistic``, accuracies on the held-out rows.
    sources_ : array
        The two labels.

    Notes
    -----
    Departures from the authors' code: after LEACE the class means agree, so the (rounding-noise) direction
    between them is not removed; held-out rows, never test rows, stop the rounds; rows are centred; LEACE is
    without shrinkage; the scorer's output layer starts at zero, so that swapping the labels changes nothing.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> source = np.repeat(["dry", "wet"], 100)
    >>> X = rng.normal(size=(200, 4)) * np.where(source == "wet", 2.0, 1.0)[:, None]
    >>> model = MANCE(n_rounds=2, n_steps=20, hidden=8, random_state=0).fit(X, source=source)
    >>> model.map_
    <ManifoldMap: rank-3 erasure and 2 rounds along 160 STORED FITTING ROWS, 4 features>
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True)

    map_: ManifoldMap

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "variant": one_of("++", "+", ""),
        "n_rounds": whole(),
        "probe": one_of("logistic", "scorer"),
        "step": number(above=0),
        "power": number(0),
        "refit_every": whole(1),
        "n_steps": whole(1),
        "batch_size": whole(1),
        "hidden": whole(1),
        "learning_rate": number(above=0),
        "weight_decay": number(0),
        "patience": whole(1),
        "n_neighbors": whole(2) | nothing,
        "reference_size": whole(1) | nothing,
        "standardize": flag,
        "device": text,
        "random_state": seed,
        "verbose": flag,
    }

    def __init__(
        self,
        *,
        variant: str = "++",
        n_rounds: int = 60,
        probe: str = "scorer",
        step: float = 0.1,
        power: float = 1.0,
        refit_every: int = 8,
        n_steps: int = 800,
        batch_size: int = 512,
        hidden: int = 512,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-4,
        patience: int = 4,
        n_neighbors: int | None = None,
        reference_size: int | None = None,
        standardize: bool = True,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.variant = variant
        self.n_rounds = n_rounds
        self.probe = probe
        self.step = step
        self.power = power
        self.refit_every = refit_every
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.n_neighbors = n_neighbors
        self.reference_size = reference_size
        self.standardize = standardize
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _looks_at_events(self) -> bool:
        return True  # held-out rows are whole events

    def _fit(self, data: FitData) -> None:
        if data.sample_weight is not None:
            raise ValueError("MANCE weighs all rows alike: sample_weight is not supported. Leave it out.")
        if require_several(data.sources) > 2:
            raise ValueError(
                f"source has {len(data.sources)} distinct values {data.sources.tolist()[:8]}; MANCE erases a "
                "binary source. Fit on two of them, or use a method for several sources."
            )
        first_seed, device = read_seed(self.random_state), torch_device(self.device, "MANCE")
        self._fit_rounds(data, *self._split(data, first_seed), device, first_seed)

    def _split(self, data: FitData, seed: int) -> tuple[Rows, Rows]:
        """Return rows to fit on and held-out rows, each with its codes."""
        held, held_codes = self._read_held_out(data, "they decide when to stop", every_source=True)
        if held is not None and held_codes is not None:
            return (data.X, data.codes), (held, held_codes)
        if np.bincount(data.codes).min() < 2:
            raise UsageError(
                "MANCE holds rows of both sources out, and one source has a single row. Add rows, or pass ",
                HELD_OUT,
                ".",
            )
        train, test = held_out_folds(data.codes, data.groups, data.pair_id, seed)[0][0]
        return (data.X[train], data.codes[train]), (data.X[test], data.codes[test])

    def _fit_rounds(self, data: FitData, train: Rows, held: Rows, device: Any, seed: int) -> None:
        standardizer = Standardizer.from_rows(train[0], None, True)
        if not self.standardize:
            standardizer = replace(standardizer, scale=np.ones_like(standardizer.scale))
        (H, codes), (V, held_codes) = ((_standardise(X, standardizer), c) for X, c in (train, held))
        first = first_erasure(H, codes, self.variant)
        readout, direction, offset = first
        direction[~standardizer.varies] = readout[~standardizer.varies] = 0.0
        for rows in (H, V):
            rows -= (rows @ readout + offset) @ direction.T
        reference = self._reference(H, seed)
        cloud = Cloud(reference, self.n_neighbors_)
        chance = np.bincount(held_codes).max() / len(held_codes) + MARGIN
        training = {name: getattr(self, name) for name in TRAINING}
        readers = ("logistic",) if self.probe == "logistic" else ("logistic", "scorer")
        self.sources_, self.history_ = data.sources, []
        info = self._info(standardizer, random_state=seed, **data.facts)
        snapshots: list[list[Floats]] = []
        with complete_stages_kept(lambda: self._finish(standardizer, first, reference, snapshots, info)):
            for k in progress(range(self.n_rounds), "MANCE rounds", self.verbose):
                if k % self.refit_every == 0:
                    last = snapshots[-1] if snapshots else None
                    fitted = fit_scorer((H, codes), (V, held_codes), last, device, seed + k, **training)
                    fitted[0][0] *= standardizer.varies  # what never varied must not steer the map later
                    snapshots.append(fitted[0])
                scorer = tuple(w.astype(np.float64) for w in snapshots[-1][:-1])
                for rows in (H, V):
                    advance(rows, cloud, scorer, self.step, self.power)
                record: dict[str, Any] = {"round": k, "scorer": fitted[1]}
                if k + 1 >= FEWEST_ROUNDS:
                    probe = LogisticRegression(max_iter=2500).fit(H, codes)
                    record["logistic"] = float(probe.score(V, held_codes))
                self.history_.append(record)
                if all(record.get(reader, 1.0) <= chance for reader in readers):
                    break

    def _reference(self, H: Floats, seed: int) -> NDArray[np.float32]:
        """Return the cloud, and set k."""
        reference = H.astype(np.float32)
        if self.reference_size is not None and self.reference_size < len(H):
            chosen = np.random.default_rng(seed % MAX_SEED).choice(len(H), self.reference_size, replace=False)
            reference = reference[np.sort(chosen)]
        m, k, self.dimension_ = len(reference), self.n_neighbors, None
        if k is None:
            self.dimension_ = intrinsic_dimension(reference) if m > FEWEST_NEIGHBORS else None
            k = max(FEWEST_NEIGHBORS, math.ceil(self.dimension_ or 0))
        if m <= k:
            raise UsageError(
                f"{m} reference rows are too few for {k} neighbours; at least {k + 1} are needed. Fit on "
                "more rows, raise ",
                Mention("reference_size"),
                " or lower ",
                Mention("n_neighbors"),
                ".",
            )
        self.n_neighbors_ = int(k)
        return reference

    def _finish(
        self,
        standardizer: Standardizer,
        first: tuple[Floats, Floats, Floats],
        reference: Floats,
        snapshots: list[list[Floats]],
        info: MapInfo,
    ) -> None:
        self.n_rounds_ = len(self.history_)
        (d, rank), hidden = first[0].shape, self.hidden
        rounds = np.arange(self.n_rounds_) // self.refit_every
        shapes = ((hidden, d), (hidden,), (hidden, hidden), (hidden,), (hidden,))
        scorers: dict[str, Any] = {
            name: np.array([weights[i] for weights in snapshots], dtype=np.float32).reshape(-1, *shape)
            for i, (name, shape) in enumerate(zip(ManifoldMap.scorer_names, shapes, strict=True))
        }
        readout, direction, offset = first
        self.map_ = ManifoldMap(
            center=standardizer.center,
            scale=standardizer.scale,
            stage=np.concatenate([[ERASURE] * (rank > 0), rounds]).astype(np.float64),
            readout=readout,
            direction=direction,
            offset=offset,
            reference=reference,
            **scorers,
            n_neighbors=float(self.n_neighbors_),
            step=float(self.step),
            power=float(self.power),
            info=info,
        )


def _standardise(X: Floats, standardizer: Standardizer) -> Floats:
    H = (X.astype(np.float64) - standardizer.center) / standardizer.scale
    return np.where(standardizer.varies, H, 0.0)
