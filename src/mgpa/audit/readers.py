"""Independent source readers: what models that the correction never met can still tell about the source.

A reader is trained on corrected HEAD rows and scores corrected EVAL rows of other participants. The bank has
two logistic readers and a GELU network with three restarts, each read out at 12, 50 and 200 epochs. The
restarts train side by side as one batched program, each as it would alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from .._common.checks import as_float_matrix, require_finite
from .._common.progress import progress
from ..critics import HIDDEN_WIDTH, LinearCritic, fit_linear
from ..estimators.staged import torch_device
from ..pairs import encode_source, to_numpy

Array = Any  # torch.Tensor

SEED = 98
CHECKPOINTS = (12, 50, 200)
SHRINKAGE = 0.01
RIDGE = 1e-8
EVAL_BLOCK = 2048


@dataclass(frozen=True)
class SourceReading:
    """Scores of a bank of source readers on EVAL rows.

    Parameters
    ----------
    readers : tuple of str
        Names, in the order of the scores.
    scores : (n_eval, n_readers) or (n_eval, n_readers, K) array
        Two sources: higher means the second of the sorted labels. More: the probability of each of them.
    """

    readers: tuple[str, ...]
    scores: NDArray[np.float64]


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: AdamW, the last partial batch kept, no early stopping.

    ``clip`` bounds the norm of each network's gradient.
    """

    learning_rate: float
    batch_size: int
    weight_decay: float = 1e-3
    clip: float | None = None


COMMON = Recipe(learning_rate=1e-3, batch_size=256)


class Architecture(Protocol):
    """Networks of one shape, R of them side by side: every parameter has a leading axis of length R."""

    @property
    def n_outputs(self) -> int:
        """Number of logits."""

    def prepare(self, X: Array) -> Array:
        """Return inputs as (n, features): what does not depend on parameters is done here, once."""

    def initial(self, seed: int) -> list[Array]:
        """Return one network's parameters as torch draws them after ``manual_seed``."""

    def forward(self, parameters: list[Array], x: Array) -> tuple[Array, Any]:
        """Return logits (R, n, K) of inputs (R, n, features), and what ``backward`` needs."""

    def backward(
        self, parameters: list[Array], gradients: list[Array], x: Array, kept: Any, error: Array
    ) -> None:
        """Write into ``gradients`` those of a loss whose gradient by the logits is ``error``."""


@dataclass(frozen=True)
class GeluNetwork:
    """Networks d → 128 → K."""

    n_features: int
    n_outputs: int

    def prepare(self, X: Array) -> Array:
        """Return the rows, flattened."""
        return X.flatten(1)

    def initial(self, seed: int) -> list[Array]:
        """Return W₁, b₁, W₂ and b₂ of one network."""
        from ..networks import initial_weights

        return initial_weights(((HIDDEN_WIDTH, self.n_features), (self.n_outputs, HIDDEN_WIDTH)), seed)

    def forward(self, parameters: list[Array], x: Array) -> tuple[Array, Any]:
        """Return logits and (u, g), the hidden layer before and after its activation."""
        import torch
        import torch.nn.functional as F

        W1, b1, W2, b2 = parameters
        u = torch.baddbmm(b1[:, None], x, W1.mT)
        g = F.gelu(u)
        return torch.baddbmm(b2[:, None], g, W2.mT), (u, g)

    def backward(
        self, parameters: list[Array], gradients: list[Array], x: Array, kept: Any, error: Array
    ) -> None:
        """Write out the gradients."""
        import torch

        W2 = parameters[2]
        gW1, gb1, gW2, gb2 = gradients
        u, g = kept
        torch.bmm(error.mT, g, out=gW2)
        torch.sum(error, 1, out=gb2)
        back = torch.ops.aten.gelu_backward(torch.bmm(error, W2), u)
        torch.bmm(back.mT, x, out=gW1)
        torch.sum(back, 1, out=gb1)


@dataclass(frozen=True)
class TrainedNetworks:
    """The networks of all restarts after so many epochs."""

    network: Architecture
    epochs: int
    parameters: list[Array]

    def logits(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """Return the logits of each row, (R, n, K)."""
        import torch

        R, device = len(self.parameters[0]), self.parameters[0].device
        blocks = [torch.zeros((R, 0, self.network.n_outputs))]
        with torch.no_grad():
            for start in range(0, len(X), EVAL_BLOCK):
                x = self.network.prepare(as_input(X[start : start + EVAL_BLOCK], device))
                blocks.append(self.network.forward(self.parameters, x.expand(R, *x.shape))[0].cpu())
        return np.asarray(torch.cat(blocks, dim=1).numpy())


def read_sources(
    X_head: Any,
    source_head: Any,
    X_eval: Any,
    *,
    device: str = "auto",
    seed: int = SEED,
    verbose: bool = False,
    restarts: int = 3,
    checkpoints: Sequence[int] = CHECKPOINTS,
) -> SourceReading:
    """Train the bank of source readers on HEAD rows and score EVAL rows with each.

    The readers are "linear", "whitened_linear" and, for each restart and checkpoint, "gelu r0 e12".

    Parameters
    ----------
    X_head, source_head : (n, d) array, (n,) labels
        Corrected HEAD rows and their sources, two or more.
    X_eval : (n_eval, d) array
        Corrected EVAL rows, of other participants. Their sources are not needed to read them.
    device : str
        Where the networks train; "auto" is CUDA if torch sees it.
    seed : int
        Restart r starts and shuffles from ``seed`` + 1001 + 10000 r.
    verbose : bool
        Show a progress line.
    restarts, checkpoints : int, increasing ints
        Networks, and the epochs after which they are read. Without restarts torch is not needed.

    Returns
    -------
    SourceReading

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.metrics import roc_auc_score
    >>> rng = np.random.default_rng(0)
    >>> source = np.tile(["dry", "wet"], 100)
    >>> X = rng.normal(size=(200, 4)) + (source == "wet")[:, None] * np.eye(4)[0]
    >>> reading = read_sources(X[:100], source[:100], X[100:], restarts=0)
    >>> reading.readers
    ('linear', 'whitened_linear')
    >>> round(float(roc_auc_score(source[100:], reading.scores[:, 0])), 2)
    0.75
    """
    head = _rows(X_head, "X_head")
    held = _rows(X_eval, "X_eval")
    if held.shape[1] != head.shape[1]:
        raise ValueError(f"X_eval has {held.shape[1]} features; X_head has {head.shape[1]}.")
    codes, n_sources = source_codes(source_head, len(head))
    checkpoints = check_schedule(restarts, checkpoints)

    scores = _linear_scores(head, codes, n_sources, held)
    if restarts:
        trained = train_networks(
            GeluNetwork(head.shape[1], n_sources),
            head,
            codes,
            restart_seeds(seed, restarts),
            COMMON,
            checkpoints,
            device=torch_device(device, "read_sources"),
            label="source readers",
            verbose=verbose,
        )
        scores |= network_scores("gelu", trained, held)
    return as_reading(scores)


def train_networks(
    network: Architecture,
    X: NDArray[Any],
    codes: NDArray[np.int64],
    seeds: Sequence[int],
    recipe: Recipe,
    checkpoints: Sequence[int],
    *,
    device: Any,
    label: str,
    verbose: bool = False,
) -> list[TrainedNetworks]:
    """Train one network per seed, all of them side by side, and return them at each checkpoint.

    Each starts from torch's own draws for its seed, and meets the rows in the order of a DataLoader whose
    generator has that seed: up to rounding, the result is that of training them one by one.
    """
    import torch
    import torch.nn.functional as F

    from ..networks import MAX_SEED, as_cuda_graph

    n, R, on_cuda = len(X), len(seeds), device.type == "cuda"
    rows = network.prepare(as_input(X, device))
    onehot = F.one_hot(torch.as_tensor(codes, device=device), network.n_outputs).float()
    initial = [torch.stack(same) for same in zip(*(network.initial(seed) for seed in seeds), strict=True)]
    # One flat vector of parameters and one of gradients: a single fused optimiser call per step.
    flat = torch.nn.Parameter(torch.cat([p.reshape(-1) for p in initial]).to(device))
    flat.grad = torch.zeros_like(flat)

    def views(vector: Array) -> list[Array]:
        parts = vector.split([p.numel() for p in initial])
        return [part.view(p.shape) for part, p in zip(parts, initial, strict=True)]

    parameters, gradients = views(flat.detach()), views(flat.grad)
    optimizer = torch.optim.AdamW(
        [flat], lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True, capturable=on_cuda
    )

    def step(batch: Array) -> None:
        x = rows.index_select(0, batch).view(R, -1, rows.shape[1])
        logits, kept = network.forward(parameters, x)
        error = torch.softmax(logits, dim=2).sub_(onehot.index_select(0, batch).view_as(logits))
        network.backward(parameters, gradients, x, kept, error.div_(x.shape[1]))
        if recipe.clip is not None:
            _clip(gradients, recipe.clip)
        optimizer.step()

    shuffles = [torch.Generator().manual_seed(seed % MAX_SEED) for seed in seeds]
    trained = []
    with torch.no_grad():
        full = R * recipe.batch_size
        full_step = as_cuda_graph(step, full, flat, optimizer) if on_cuda and n >= recipe.batch_size else step
        for epoch in progress(range(1, max(checkpoints) + 1), label, verbose):
            orders = torch.stack([_dataloader_order(n, shuffle) for shuffle in shuffles])
            # Batch after batch, and within a batch restart after restart.
            order = torch.cat([part.reshape(-1) for part in orders.split(recipe.batch_size, dim=1)])
            if on_cuda:  # pinned, so that the host draws the next order while the GPU is at this one
                order = order.pin_memory().to(device, non_blocking=True)
            for batch in order.split(full):
                (full_step if len(batch) == full else step)(batch)
            if epoch in checkpoints:
                trained.append(TrainedNetworks(network, epoch, views(flat.detach().clone())))
    return trained


def _dataloader_order(n: int, shuffle: Any) -> Array:
    """Return the order in which a torch DataLoader with this generator goes through n rows next."""
    import torch

    # It draws a base seed, an order and an order it discards.
    torch.empty((), dtype=torch.int64).random_(generator=shuffle)
    order = torch.randperm(n, generator=shuffle)
    torch.randperm(n, generator=shuffle)
    return order


def _clip(gradients: list[Array], bound: float) -> None:
    """Scale each network's gradient to a norm of at most ``bound``, as torch's ``clip_grad_norm_`` does."""
    norm = sum(gradient.flatten(1).square().sum(1) for gradient in gradients).sqrt()
    factor = (bound / (norm + 1e-6)).clamp_(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))


def _linear_scores(
    head: NDArray[Any], codes: NDArray[np.int64], n_sources: int, held: NDArray[Any]
) -> dict[str, NDArray[np.float64]]:
    """Return the scores of the two logistic readers, fitted in float64."""
    head, held = head.astype(np.float64, copy=False), held.astype(np.float64, copy=False)
    plain = critic_scores(fit_linear(head, codes, n_sources), held)
    center, whitener = _whitening(head)
    critic = fit_linear((head - center) @ whitener, codes, n_sources)
    return {"linear": plain, "whitened_linear": critic_scores(critic, (held - center) @ whitener)}


def _whitening(X: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean of the rows and S^-1/2, S their covariance shrunk towards a multiple of I."""
    center = X.mean(axis=0)
    centred = X - center
    covariance = centred.T @ centred / len(X)
    values, vectors = np.linalg.eigh(covariance)
    # Shrinking towards I leaves the eigenvectors as they are; rounding may leave a negative eigenvalue.
    values = (
        (1 - SHRINKAGE) * np.maximum(values, 0.0) + SHRINKAGE * np.trace(covariance) / len(values) + RIDGE
    )
    return center, (vectors / np.sqrt(values)) @ vectors.T


def critic_scores(critic: LinearCritic, X: NDArray[Any]) -> NDArray[np.float64]:
    """Return a linear reader's scores: its logits are relative to the first source."""
    return source_scores(np.pad(critic.scores(X), ((0, 0), (1, 0))))


def network_scores(
    name: str, trained: list[TrainedNetworks], X: NDArray[Any]
) -> dict[str, NDArray[np.float64]]:
    """Return the scores of every restart at every checkpoint, by reader name, restart by restart."""
    logits = {networks.epochs: networks.logits(X) for networks in trained}
    restarts = len(trained[0].parameters[0])
    return {
        f"{name} r{r} e{epochs}": source_scores(values[r])
        for r in range(restarts)
        for epochs, values in logits.items()
    }


def source_scores(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Return logit 1 - logit 0 for two sources, (n,), and probabilities for more, (n, K)."""
    if logits.shape[1] == 2:
        return np.asarray(logits[:, 1] - logits[:, 0], dtype=np.float64)
    return np.asarray(softmax(logits.astype(np.float64), axis=1))


def as_reading(scores: dict[str, NDArray[np.float64]]) -> SourceReading:
    """Return scores by reader name as one array."""
    return SourceReading(tuple(scores), np.stack(list(scores.values()), axis=1))


def restart_seeds(seed: int, restarts: int) -> list[int]:
    """Return the seed of each restart."""
    return [seed + 1001 + 10000 * r for r in range(restarts)]


def source_codes(source: Any, n: int) -> tuple[NDArray[np.int64], int]:
    """Return each HEAD row's source as a number, and how many sources there are."""
    sources, codes = encode_source(source, n, "source_head")
    names = sources.tolist()
    if len(names) < 2:
        raise ValueError(
            f"source_head has {len(names)} distinct value{'' if len(names) else 's'}"
            f"{f' ({names[0]!r})' if names else ''}; a reader tells sources apart and needs at least two."
        )
    counts = np.bincount(codes)
    if counts.min() < 2:
        raise ValueError(
            f"Source {names[int(counts.argmin())]!r} has a single row in HEAD; no reader can learn it from "
            "that. Pass more of its rows, or leave the source out."
        )
    return codes, len(names)


def check_schedule(restarts: int, checkpoints: Sequence[int]) -> tuple[int, ...]:
    """Return the checkpoints as a tuple, or say what is wrong with them or with ``restarts``."""
    epochs = tuple(int(epoch) for epoch in checkpoints)
    if not epochs or epochs[0] < 1 or any(a >= b for a, b in pairwise(epochs)):
        raise ValueError(f"checkpoints={tuple(checkpoints)}; expected increasing numbers of epochs, from 1.")
    if restarts < 0:
        raise ValueError(f"restarts={restarts}; expected 0 (linear readers only) or more.")
    return epochs


def as_input(X: NDArray[Any], device: Any) -> Array:
    """Return rows as a float32 tensor where the networks are."""
    import torch

    return torch.from_numpy(np.array(X, dtype=np.float32)).to(device)


def _rows(X: Any, name: str) -> NDArray[Any]:
    X = to_numpy(X)
    if X.ndim == 3:
        raise ValueError(f"{name} has shape {X.shape}; for tokens (n, t, d) use read_token_sources.")
    rows = as_float_matrix(X, name=name)
    require_finite(rows, name)
    return rows
