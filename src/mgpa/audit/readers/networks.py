"""Network readers; all restarts of an architecture are trained together as one batched program.

Results equal separate training. Each network is evaluated at several epochs of one run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...critics import HIDDEN_WIDTH
from .common import BLOCK, Array, Codes, Scores, source_scores

# By number of epochs: a function that returns the logits (R, n, K) of all restarts for rows.
Trained = dict[int, Callable[[Array], NDArray[np.float32]]]


def train_networks(
    architecture: str,
    X: Array,
    codes: Codes,
    seeds: Sequence[int],
    checkpoints: Sequence[int],
    *,
    device: Any,
) -> Trained:
    """Train one network per seed on the same rows, in parallel; return the networks at each checkpoint.

    ``architecture`` is "gelu" for one hidden layer over all values of a row, or "grid_gelu" for a hidden
    layer shared by all tokens of a row (t, d).
    """
    return train_sets(architecture, [X], [codes], seeds, [checkpoints], device=device)[0]


def train_sets(
    architecture: str,
    sets: Sequence[Array],
    codes: Sequence[Codes],
    seeds: Sequence[int],
    checkpoints: Sequence[Sequence[int]],
    *,
    device: Any,
) -> list[Trained]:
    """Train one network per data set and seed as one batched program; return the networks of each set.

    Sets are different corrections of HEAD rows, possibly of several folds. Each network equals the one that
    :func:`train_networks` trains on its set, up to rounding. Sets with fewer checkpoints are trained as long
    as the others, but evaluated at their own checkpoints. Sets with different numbers of sources need
    separate programs.
    """
    trained: list[Trained] = [{} for _ in sets]
    # Sort sets by number of rows, so that equal sets finish an epoch together.
    alike = sorted(range(len(sets)), key=lambda i: (int(codes[i].max()), len(codes[i])))
    for _, members in groupby(alike, key=lambda i: int(codes[i].max())):
        chosen = list(members)
        last = sorted({epoch for i in chosen for epoch in checkpoints[i]})
        rows, theirs = [sets[i] for i in chosen], [codes[i] for i in chosen]
        for epoch, networks in training_run(architecture, rows, theirs, seeds, last, device=device):
            for i, network in zip(chosen, networks, strict=True):
                if epoch in checkpoints[i]:
                    trained[i][epoch] = network
    return trained


def training_run(
    architecture: str,
    sets: Sequence[Array],
    codes: Sequence[Codes],
    seeds: Sequence[int],
    checkpoints: Sequence[int],
    *,
    device: Any,
) -> Iterator[tuple[int, list[Callable[[Array], NDArray[np.float32]]]]]:
    """Train, and yield each checkpoint with the current networks of each set."""
    import torch

    from ...networks import HiddenLayerNetwork, TokenNetwork, Training

    shape, n_classes = sets[0].shape[1:], int(codes[0].max()) + 1
    network: HiddenLayerNetwork | TokenNetwork
    if architecture == "gelu":
        network = HiddenLayerNetwork(math.prod(shape), HIDDEN_WIDTH, n_classes)
        optimizer: dict[str, Any] = {"learning_rate": 1e-3}
    else:
        network = TokenNetwork(shape[0], shape[1], n_classes)
        optimizer = {"learning_rate": 5e-4, "batch_size": 128, "clip": 5.0}
    rows = [_as_input(X, device) for X in sets]
    sizes, every = [len(X) for X in rows], rows[0] if len(rows) == 1 else torch.cat(rows)
    del rows
    training = Training(network, every, np.concatenate(codes), seeds, **optimizer, sizes=sizes)
    for epoch in range(1, max(checkpoints) + 1):
        training.epoch()
        if epoch in checkpoints:
            parameters = training.parameters()
            of_set = [slice(i * len(seeds), (i + 1) * len(seeds)) for i in range(len(sets))]
            yield epoch, [partial(_logits, network, [part[own] for part in parameters]) for own in of_set]


def _logits(network: Any, parameters: list[Array], X: Array) -> NDArray[np.float32]:
    """Return the logits of each row, (R, n, K)."""
    import torch

    from ...networks import network_logits

    blocks = [torch.zeros((len(parameters[0]), 0, network.n_outputs))]
    for start in range(0, len(X), BLOCK):
        x = _as_input(X[start : start + BLOCK], parameters[0].device)
        blocks.append(network_logits(network, parameters, x).cpu())
    return np.asarray(torch.cat(blocks, dim=1).numpy())


def _as_input(X: Array, device: Any) -> Array:
    """Return rows as a float32 tensor on the device of the networks."""
    import torch

    rows = torch.from_numpy(np.array(X, dtype=np.float32)) if isinstance(X, np.ndarray) else X.float()
    return rows.to(device)


def network_scores(name: str, trained: Trained, X: Array, checkpoints: Sequence[int] | None = None) -> Scores:
    """Return the scores of each restart and checkpoint, by reader name.

    Checkpoints after early stopping have the scores of the last evaluated checkpoint.
    """
    logits = {epochs: networks(X) for epochs, networks in trained.items()}
    restarts = len(next(iter(logits.values())))
    last = logits[max(logits)]
    return {
        f"{name} r{r} e{epochs}": source_scores(logits.get(epochs, last)[r])
        for r in range(restarts)
        for epochs in (checkpoints or logits)
    }


def restart_seeds(seed: int, restarts: int) -> list[int]:
    """Return the seed of each restart."""
    return [seed + 1001 + 10000 * r for r in range(restarts)]
