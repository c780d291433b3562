"""Independent source readers: what models that the correction never met can still tell about the source.

A reader is trained on corrected HEAD rows and scores corrected EVAL rows of other participants. The paper's
bank has two logistic readers and a GELU network with three restarts, each read out at 12, 50 and 200 epochs.
The restarts train side by side as one batched program, each as it would alone. The full bank, which audits
use, has two readers more (:mod:`mgpa.audit.further_readers`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from .._common.checks import as_float_matrix, require_finite
from .._common.progress import progress
from ..critics import HIDDEN_WIDTH, LinearCritic, fit_logistic
from ..estimators.staged import torch_device
from ..pairs import encode_source, to_numpy
from .further_readers import further_scores

Array = Any  # torch.Tensor

#: The banks: the paper's eleven readers (41 for tokens), and these with boosted trees and spread besides.
BANKS = ("full", "paper")
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
class TrainedNetworks:
    """The networks of all restarts after so many epochs."""

    network: Any  # mgpa.networks.Architecture
    epochs: int
    parameters: list[Array]

    def logits(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """Return the logits of each row, (R, n, K)."""
        import torch

        from ..networks import network_logits

        blocks = [torch.zeros((len(self.parameters[0]), 0, self.network.n_outputs))]
        for start in range(0, len(X), EVAL_BLOCK):
            x = as_input(X[start : start + EVAL_BLOCK], self.parameters[0].device)
            blocks.append(network_logits(self.network, self.parameters, x).cpu())
        return np.asarray(torch.cat(blocks, dim=1).numpy())


def read_sources(
    X_head: Any,
    source_head: Any,
    X_eval: Any,
    *,
    device: str = "auto",
    seed: int = SEED,
    verbose: bool = False,
    bank: str = "paper",
    restarts: int = 3,
    checkpoints: Sequence[int] = CHECKPOINTS,
) -> SourceReading:
    """Train the bank of source readers on HEAD rows and score EVAL rows with each.

    The readers are "linear", "whitened_linear" and, for each restart and checkpoint, "gelu r0 e12"; in the
    full bank also "boosted_trees" and "spread".

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
    bank : {"paper", "full"}
        The paper's readers alone, or two more, as in :func:`mgpa.audit.run`.
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
    check_bank(bank)

    scores = _linear_scores(head, codes, n_sources, held)
    if restarts:
        trained = train_networks(
            "gelu",
            head,
            codes,
            restart_seeds(seed, restarts),
            checkpoints,
            device=torch_device(device, "read_sources"),
            label="source readers",
            verbose=verbose,
        )
        scores |= network_scores("gelu", trained, held)
    if bank == "full":
        scores |= further_scores(head, codes, held, seed)
    return as_reading(scores)


def train_networks(
    architecture: str,
    X: NDArray[Any],
    codes: NDArray[np.int64],
    seeds: Sequence[int],
    checkpoints: Sequence[int],
    *,
    device: Any,
    label: str,
    verbose: bool = False,
) -> list[TrainedNetworks]:
    """Train one network per seed, all of them side by side, and return them at each checkpoint.

    ``architecture`` is "gelu" for one hidden layer over all values of a row, or "grid_gelu" for one that all
    tokens of a row (t, d) share.
    """
    from ..networks import AdamW, HiddenLayerNetwork, TokenNetwork, Training

    shape, n_classes = X.shape[1:], int(codes.max()) + 1
    network: HiddenLayerNetwork | TokenNetwork
    if architecture == "gelu":
        network, optimizer = HiddenLayerNetwork(math.prod(shape), HIDDEN_WIDTH, n_classes), AdamW(1e-3)
    else:
        network, optimizer = (
            TokenNetwork(shape[0], shape[1], n_classes),
            AdamW(5e-4, batch_size=128, clip=5.0),
        )
    training = Training(network, as_input(X, device), codes, seeds, optimizer)
    trained = []
    for epoch in progress(range(1, max(checkpoints) + 1), label, verbose):
        training.epoch()
        if epoch in checkpoints:
            trained.append(TrainedNetworks(network, epoch, training.parameters()))
    return trained


def _linear_scores(
    head: NDArray[Any], codes: NDArray[np.int64], n_sources: int, held: NDArray[Any]
) -> dict[str, NDArray[np.float64]]:
    """Return the scores of the two logistic readers, fitted in float64."""
    head, held = head.astype(np.float64, copy=False), held.astype(np.float64, copy=False)
    plain = logistic_scores(fit_logistic(head, codes, n_sources), held)
    center, whitener = _whitening(head)
    whitened = fit_logistic((head - center) @ whitener, codes, n_sources)
    return {"linear": plain, "whitened_linear": logistic_scores(whitened, (held - center) @ whitener)}


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


def logistic_scores(reader: LinearCritic, X: NDArray[Any]) -> NDArray[np.float64]:
    """Return a logistic reader's scores: the logit difference of two sources, probabilities of more."""
    logits = reader.scores(X)
    return np.asarray(logits[:, 0]) if logits.shape[1] == 1 else source_scores(logits)


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


def check_bank(bank: str) -> None:
    """Raise unless there is such a bank of readers."""
    if bank not in BANKS:
        raise ValueError(f"There is no bank of readers {bank!r}; choose {' or '.join(map(repr, BANKS))}.")


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
