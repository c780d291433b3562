"""CIRCE: test or penalise the dependence of a representation on the source, given the task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from .._common.checks import as_float_matrix, require_finite
from .._common.extras import torch_device
from .._common.parameters import Constraint, check_parameters, flag, number, read_seed, seed, text, whole
from ..errors import MissingEvidence, UsageError
from ..estimators.base import MethodTags, forget
from ..labels import encode_source, to_numpy
from ..moments import Standardizer
from ._base import Decoder, Floats, finite_rows, task_classes, two_as_one

Codes = NDArray[np.int64]
MAX_SEED = 2**31 - 1
MAX_ROWS = 4000  # maximum size of the kernel matrices of the test


def source_residuals(codes: Codes, task: Codes, held: NDArray[np.bool_], ridge: float) -> Floats:
    """Return the residuals (n, K) of source indicators after kernel ridge regression on the task.

    The regression is fitted on ``held`` rows. For a discrete task (a kernel that is 1 for equal labels and 0
    otherwise) it predicts shrunk proportions of the sources for each label: counts / (rows + ridge).
    """
    onehot = np.eye(int(codes.max()) + 1)[codes]
    counts = np.zeros((int(task.max()) + 1, onehot.shape[1]))
    np.add.at(counts, task[held], onehot[held])
    shares = counts / (counts.sum(axis=1, keepdims=True) + ridge)
    return np.asarray(onehot - shares[task])


def hsic(K: Any, L: Any) -> Any:
    """Return the biased HSIC of two kernel matrices (n, n), arrays or tensors: tr(K H L H) / n²."""
    centred = K - K.mean(0)[None] - K.mean(1)[:, None] + K.mean()
    return (centred * L).mean()


def squared_distances(X: Any) -> Any:
    """Return the squared distances (n, n) between rows of an array or tensor."""
    squares = (X**2).sum(1)
    return (squares[:, None] + squares[None] - 2 * X @ X.T).clip(0)


@dataclass(frozen=True)
class ConditionalDependence:
    """The result of :func:`circe`: statistic, its mean and standard deviation under permutation, p-value."""

    statistic: float
    chance: float
    chance_sd: float
    p_value: float
    n_rows: int

    def __str__(self) -> str:
        return (
            f"CIRCE {self.statistic:.3g}; by chance {self.chance:.3g} ± {self.chance_sd:.2g} "
            f"(p = {self.p_value:.2g}, {self.n_rows} rows)"
        )


def circe(
    R: Any, source: Any, y: Any, *, n_permutations: int = 500, ridge: float = 1.0, random_state: Any = 0
) -> ConditionalDependence:
    """Test whether a representation depends on the source given the task.

    Reference: Pogodin, Deka, Li, Sutherland, Veitch, Gretton, "Efficient conditionally invariant
    representation learning", ICLR 2023. The statistic is HSIC(K_R, K_y ∘ K^c). K_R is a Gaussian kernel of
    the rows (bandwidth: the median distance), K_y is 1 for equal labels and 0 otherwise, and K^c is the
    kernel of the source's residuals given the task. The p-value is ours: the source is permuted within each
    label, which is exact for a discrete task and independent rows.

    Needs source and task labels. No pairs.

    What it cannot do: separate a device from the participants who used it, or account for several rows of one
    participant. If participants have several rows of one source, pass one row per participant and label.

    Parameters
    ----------
    R : (n, d) or (n,) array
        Embeddings, corrected or not, or scores of a decoder. From more than 4000 rows, 4000 are sampled.
    source, y : (n,) arrays
        The source and the task label of each row.
    n_permutations : int
        Number of permutations; the smallest p-value is 1 / (n_permutations + 1).
    ridge : float
        Penalty of the regression of the source on the task.
    random_state : int, RandomState or None
        Seed of the permutations.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y, source = rng.integers(2, size=(2, 300))
    >>> R = rng.normal(size=(300, 4)) + y[:, None]
    >>> circe(R, source, y).p_value > 0.05, circe(R + source[:, None], source, y).p_value < 0.01
    (True, True)
    """
    rows = to_numpy(R, "R")
    X = as_float_matrix(rows[:, None] if rows.ndim == 1 else rows, name="R").astype(np.float64)
    require_finite(X, "R")
    sources, codes = encode_source(source, len(X))
    labels, task = encode_source(y, len(X), "y")
    if len(sources) < 2:
        raise UsageError(f"source has 1 distinct value ({sources[0].item()!r}); dependence needs two.")
    if len(labels) > max(20, len(X) // 4):
        raise UsageError(f"y has {len(labels)} distinct values in {len(X)} rows; expected task classes.")
    draw = np.random.default_rng(read_seed(random_state))
    if len(X) > MAX_ROWS:
        some = np.sort(draw.choice(len(X), MAX_ROWS, replace=False))
        X, codes, task = X[some], codes[some], task[some]
    n = len(X)
    standard = Standardizer.from_rows(X, None, True)
    distances = squared_distances(np.where(standard.varies, (X - standard.center) / standard.scale, 0.0))
    K = np.exp(-distances / max(float(np.median(distances)), np.finfo(float).tiny))
    centred = K - K.mean(0)[None] - K.mean(1)[:, None] + K.mean()
    everything = np.ones(n, bool)
    # K_y is 1 within a label and 0 elsewhere, so only diagonal blocks of the centred kernel are needed.
    members = [np.flatnonzero(task == label) for label in range(len(labels))]
    parts = [centred[np.ix_(rows, rows)] for rows in members]

    def statistic(codes: Codes) -> float:
        residuals = source_residuals(codes, task, everything, ridge)
        return float(sum(np.sum((part @ residuals[rows]) * residuals[rows])
                         for part, rows in zip(parts, members, strict=True))) / n**2  # fmt: skip

    observed, null = statistic(codes), np.empty(n_permutations)
    for i in range(n_permutations):
        permuted = codes.copy()
        for rows in members:
            permuted[rows] = codes[draw.permutation(rows)]
        null[i] = statistic(permuted)
    # Permutations that only exchange rows of one source differ from the observed value by rounding.
    reached = int((null >= observed - 1e-12 * abs(observed)).sum())
    p_value = (1 + reached) / (n_permutations + 1)
    return ConditionalDependence(observed, float(null.mean()), float(null.std()), p_value, n)


class CIRCEHead(Decoder):
    """A small decoder with a penalty on features that depend on the source given the task.

    Reference: Pogodin, Deka, Li, Sutherland, Veitch, Gretton, "Efficient conditionally invariant
    representation learning", ICLR 2023. The loss is the cross-entropy plus ``penalty`` times HSIC(K_φ, K_y ∘
    K^c) of each batch. K^c is the kernel of the source's residuals; the source is regressed on the task once,
    on a tenth of the rows. In the paper, features come from a trained encoder; here, from one hidden layer on
    a frozen embedding. Two details are ours: kernels of bandwidth 1 for φ in standard deviations of the
    batch, and the biased estimate of HSIC.

    Needs source labels, the task and torch to fit. No pairs. Gives predictions, not a correction, from rows
    alone.

    What it cannot do: keep an existing decoder, or separate a device from the participants who used it.

    Parameters
    ----------
    penalty : float
        λ, the weight of CIRCE; 0 trains the decoder without a penalty.
    hidden : int
        Number of units of the hidden layer φ.
    ridge : float
        Penalty of the regression of the source on the task.
    n_epochs, learning_rate, batch_size, weight_decay : int, float, int, float
        Settings of AdamW.
    standardize : bool
        Scale features to unit variance before fitting.
    device : {"auto", "cpu", "cuda", ...}
        Device for training; "auto" uses CUDA if available.
    random_state : int, RandomState or None
        The same seed gives the same decoder.

    Attributes
    ----------
    classes_ : (n_classes,) array
        Task labels, sorted.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"source": True}
    tags: ClassVar[MethodTags] = MethodTags(source_blind=True, needs_task=True, acts_on="predictions")

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "penalty": number(0), "hidden": whole(1), "ridge": number(0), "n_epochs": whole(),
        "learning_rate": number(above=0), "batch_size": whole(4), "weight_decay": number(0),
        "standardize": flag, "device": text, "random_state": seed,
    }  # fmt: skip

    def __init__(
        self, *, penalty: float = 10.0, hidden: int = 32, ridge: float = 1.0, n_epochs: int = 30,
        learning_rate: float = 1e-3, batch_size: int = 256, weight_decay: float = 1e-3,
        standardize: bool = True, device: str = "auto", random_state: Any = None,
    ) -> None:  # fmt: skip
        self.penalty = penalty
        self.hidden = hidden
        self.ridge = ridge
        self.n_epochs = n_epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.standardize = standardize
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, source: Any = None, X_target: Any = None, pairs: Any = None) -> Self:
        """Fit on labelled rows of all sources; ``X_target`` and ``pairs`` are ignored."""
        check_parameters(self)
        forget(self)
        device, first_seed = torch_device(self.device, "CIRCEHead"), read_seed(self.random_state)
        import torch
        import torch.nn.functional as F

        from ..networks import initial_weights

        rows = finite_rows(X)
        if source is None:
            raise MissingEvidence("CIRCEHead needs sources: pass source=, one label per row.")
        classes, task = task_classes(y, len(rows))
        codes = encode_source(source, len(rows))[1]
        standardizer = Standardizer.from_rows(rows, None, self.standardize)
        draw = np.random.default_rng(first_seed)
        held = draw.permutation(len(rows)) < max(1, len(rows) // 10)
        residuals = source_residuals(codes, task, held, self.ridge)
        H = standardizer.apply(rows)
        h, u = (torch.as_tensor(part, dtype=torch.float32, device=device) for part in (H, residuals))
        target = torch.as_tensor(task, device=device)
        shapes = ((self.hidden, h.shape[1]), (len(classes), self.hidden))
        weights = [w.to(device).requires_grad_() for w in initial_weights(shapes, first_seed)]
        optimizer = torch.optim.AdamW(weights, lr=self.learning_rate, weight_decay=self.weight_decay)
        order = torch.Generator().manual_seed(first_seed % MAX_SEED)
        for _ in range(self.n_epochs):
            for batch in torch.randperm(len(h), generator=order).split(self.batch_size):
                batch = batch.to(device)
                features = torch.relu(h[batch] @ weights[0].T + weights[1])
                loss = F.cross_entropy(features @ weights[2].T + weights[3], target[batch])
                if self.penalty and len(batch) > 3:
                    scaled = features / (features.std() + 1e-6) / self.hidden**0.5
                    same = (target[batch][:, None] == target[batch][None]).float()
                    L = same * (u[batch] @ u[batch].T)
                    loss = loss + self.penalty * hsic(torch.exp(-squared_distances(scaled)), L)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        self._standardizer, self._weights = standardizer, [w.detach().cpu().numpy() for w in weights]
        self.classes_, self.n_features_in_ = classes, rows.shape[1]
        return self

    def _scores(self, X: Any) -> NDArray[Any]:
        W1, b1, W2, b2 = self._weights
        H = self._standardizer.apply(finite_rows(X, n_features=self.n_features_in_))
        return two_as_one(np.maximum(H @ W1.T + b1, 0.0) @ W2.T + b2)
