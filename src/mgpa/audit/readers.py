"""Independent source readers: what models that the correction never met can still tell about the source.

A reader is trained on corrected HEAD rows and scores corrected EVAL rows of other participants. The paper's
bank has two logistic readers and a GELU network with three restarts, each read out at 12, 50 and 200 epochs.
The restarts train side by side as one batched program, each as it would alone. The full bank, which audits
use, has two readers more (:mod:`mgpa.audit.further_readers`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from .._common.arrays import double, namespace
from .._common.checks import as_float_matrix, require_finite
from ..critics import HIDDEN_WIDTH, LinearCritic, fit_logistic, fit_logistic_on_device
from ..estimators.staged import torch_device
from ..pairs import encode_source, to_numpy
from .further_readers import further_scores

Array = Any  # numpy array or torch.Tensor
Scores = dict[str, NDArray[np.float64]]  # by reader

#: The banks: the paper's eleven readers (41 for tokens), and these with boosted trees and spread besides.
BANKS = ("full", "paper")
SEED = 98
CHECKPOINTS = (12, 50, 200)
SHRINKAGE = 0.01
RIDGE = 1e-8
WIDE = 4096  # features whose products are a matrix too large to decompose
EVAL_BLOCK = 2048
BLOCK = 8192  # EVAL rows that linear readers score at a time


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
    """The networks of all restarts after a number of epochs."""

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
    return read_many_sources(
        [(X_head, X_eval)],
        source_head,
        device=device,
        seed=seed,
        bank=bank,
        restarts=restarts,
        checkpoints=checkpoints,
    )[0]


def read_many_sources(
    corrections: Sequence[tuple[Any, Any]],
    source_head: Any,
    *,
    device: str = "auto",
    seed: int = SEED,
    bank: str = "paper",
    restarts: int = 3,
    checkpoints: Sequence[int] = CHECKPOINTS,
) -> list[SourceReading]:
    """Read the sources of the same rows after several corrections (X_head, X_eval), with a bank for each.

    On a GPU the networks of all banks train as one program, those of eight three times as fast as one after
    the other, and trees grow beside them. The other parameters are those of :func:`read_sources`.
    """
    sets = [(_rows(head, "X_head"), _rows(held, "X_eval")) for head, held in corrections]
    for head, held in sets:
        if held.shape[1] != head.shape[1]:
            raise ValueError(f"X_eval has {held.shape[1]} features; X_head has {head.shape[1]}.")
        if head.shape != sets[0][0].shape:
            raise ValueError(f"Corrected HEAD rows have shapes {head.shape} and {sets[0][0].shape}.")
    codes, n_sources = source_codes(source_head, len(sets[0][0]))
    checkpoints = check_schedule(restarts, checkpoints)
    check_bank(bank)
    place = torch_device(device, "read_sources") if restarts else None
    seeds = restart_seeds(seed, restarts)

    def networks_of(part: list[tuple[NDArray[Any], NDArray[Any]]]) -> list[Scores]:
        if not restarts:
            return [{} for _ in part]
        trained = train_networks("gelu", [head for head, _ in part], codes, seeds, checkpoints, device=place)
        return [
            network_scores("gelu", networks, held) for networks, (_, held) in zip(trained, part, strict=True)
        ]

    def linear_of(head: NDArray[Any], held: NDArray[Any], place: Callable[[Any], Any] = np.asarray) -> Scores:
        return _linear_scores(place(head), codes, n_sources, place(held))

    def further_of(head: NDArray[Any], held: NDArray[Any], threads: int | None = None) -> Scores:
        if bank != "full":
            return {}
        with threadpool_limits(threads):
            return further_scores(head, codes, held, seed)

    if place is None or place.type != "cuda":
        return [as_reading(linear_of(*s) | networks_of([s])[0] | further_of(*s)) for s in sets]
    import torch

    # Trees grow on the host meanwhile, those of each bank on its share of the cores.
    threads = max(1, cpu_count() // len(sets))
    with ThreadPoolExecutor(len(sets)) as pool:
        further = [pool.submit(further_of, *rows, threads) for rows in sets]
        linear = [linear_of(*rows, partial(torch.as_tensor, device=place)) for rows in sets]
        parts = zip(linear, networks_of(sets), (trees.result() for trees in further), strict=True)
        return [as_reading(a | b | c) for a, b, c in parts]


def train_networks(
    architecture: str,
    sets: Sequence[NDArray[Any]],
    codes: NDArray[np.int64],
    seeds: Sequence[int],
    checkpoints: Sequence[int],
    *,
    device: Any,
) -> list[list[TrainedNetworks]]:
    """Train one network per set of rows and seed, all of them side by side.

    ``architecture`` is "gelu" for one hidden layer over all values of a row, or "grid_gelu" for one that all
    tokens of a row (t, d) share. Returned are, for each set, its networks at each checkpoint.
    """
    import torch

    from ..networks import AdamW, HiddenLayerNetwork, TokenNetwork, Training

    shape, n_classes, n_sets = sets[0].shape[1:], int(codes.max()) + 1, len(sets)
    network: HiddenLayerNetwork | TokenNetwork
    if architecture == "gelu":
        network, optimizer = HiddenLayerNetwork(math.prod(shape), HIDDEN_WIDTH, n_classes), AdamW(1e-3)
    else:
        network, optimizer = (
            TokenNetwork(shape[0], shape[1], n_classes),
            AdamW(5e-4, batch_size=128, clip=5.0),
        )
    rows = torch.cat([as_input(X, device) for X in sets])
    training = Training(network, rows, codes, seeds, optimizer, n_sets=n_sets)
    trained: list[list[TrainedNetworks]] = [[] for _ in sets]
    for epoch in range(1, max(checkpoints) + 1):
        training.epoch()
        if epoch in checkpoints:
            by_set = zip(*(p.chunk(n_sets) for p in training.parameters()), strict=True)
            for networks, parameters in zip(trained, by_set, strict=True):
                networks.append(TrainedNetworks(network, epoch, list(parameters)))
    return trained


def _linear_scores(head: Array, codes: NDArray[np.int64], n_sources: int, held: Array) -> Scores:
    """Return the scores of the two logistic readers, fitted in float64 where the rows are."""
    head = double(head)
    fit = fit_logistic if isinstance(head, np.ndarray) else fit_logistic_on_device
    plain = fit(head, codes, n_sources)
    center, whitener = _whitening(head)
    head = (head - center) @ whitener
    whitened = fit(head, codes, n_sources)
    scores: dict[str, list[NDArray[np.float64]]] = {"linear": [], "whitened_linear": []}
    for start in range(0, max(len(held), 1), BLOCK):
        block = double(held[start : start + BLOCK])
        scores["linear"].append(logistic_scores(plain, block))
        scores["whitened_linear"].append(logistic_scores(whitened, (block - center) @ whitener))
    return {name: np.concatenate(parts) for name, parts in scores.items()}


def _whitening(X: Array) -> tuple[Array, Array]:
    """Return the mean of the rows and S^-1/2, S their covariance shrunk towards a multiple of I.

    Of fewer rows than very many features only the directions in which they vary, (d, n): a logistic reader
    has no weight in others, and turning the features does not change it, but for rounding.
    """
    center = X.mean(0)
    centred = X - center
    n, d = centred.shape
    if n < d and d > WIDE:
        _, sizes, rows = namespace(X).linalg.svd(centred, full_matrices=False)
        values = sizes**2 / n
        values = (1 - SHRINKAGE) * values + SHRINKAGE * values.sum() / d + RIDGE
        return center, rows.T / values**0.5
    covariance = centred.T @ centred / len(X)
    values, vectors = namespace(X).linalg.eigh(covariance)
    # Shrinking towards I leaves the eigenvectors as they are; rounding may leave a negative eigenvalue.
    values = (1 - SHRINKAGE) * values.clip(0.0) + SHRINKAGE * covariance.trace() / len(values) + RIDGE
    return center, (vectors / values**0.5) @ vectors.T


def logistic_scores(reader: LinearCritic, X: Array) -> NDArray[np.float64]:
    """Return a logistic reader's scores: the logit difference of two sources, probabilities of more."""
    logits = to_numpy(reader.scores(X))
    return np.asarray(logits[:, 0]) if logits.shape[1] == 1 else source_scores(logits)


def network_scores(name: str, trained: list[TrainedNetworks], X: NDArray[Any]) -> Scores:
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


def as_reading(scores: Scores) -> SourceReading:
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
        raise ValueError(f"No bank of readers {bank!r}; choose {' or '.join(map(repr, BANKS))}.")


def reader_bank(
    bank: str = "full",
    restarts: int = 3,
    checkpoints: Sequence[int] = CHECKPOINTS,
    seed: int = SEED,
    **other: Any,
) -> dict[str, Any]:
    """Return the settings of the bank of readers that an audit asks for."""
    if other:
        raise TypeError(f"readers has {sorted(other)}; it takes bank, restarts, checkpoints and seed.")
    check_bank(bank)
    settings = {"bank": bank, "restarts": int(restarts), "checkpoints": check_schedule(restarts, checkpoints)}
    return settings if seed == SEED else settings | {"seed": int(seed)}


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
