"""Training of one-hidden-layer source networks, draw for draw as the published recipes do it.

These networks are small and many: one per stage. So there is no data loader, the gradients are written out
(automatic differentiation would be a third of the time), the optimiser sees one flat vector, and on a GPU a
step is one recorded graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Array = Any  # torch.Tensor

MAX_SEED = 2**31 - 1
# Activations and their backward passes, of (gradient by the output, input, output).
ACTIVATIONS: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
    "gelu": (F.gelu, lambda back, u, g: torch.ops.aten.gelu_backward(back, u)),
    "relu": (torch.relu, lambda back, u, g: torch.ops.aten.threshold_backward(back, g, 0)),
}


class NetworkTraining:
    """A d → width → K network in training on rows H by AdamW, with a cross-entropy that is not balanced.

    Parameters
    ----------
    H, codes : (n, d) tensor, (n,) integers
        Rows, and their sources from 0 to ``n_sources`` - 1.
    n_sources, width, activation : int, int, {"gelu", "relu"}
        The network.
    seed, shuffle_seed : int
        Of the initial weights, and of the order of rows.
    learning_rate, weight_decay, batch_size : float, float, int
        The optimiser.
    sample_weight : (n,) array or None
        Weights of the rows' losses.
    """

    def __init__(
        self,
        H: Array,
        codes: Any,
        n_sources: int,
        *,
        width: int,
        activation: str,
        seed: int,
        shuffle_seed: int,
        learning_rate: float,
        weight_decay: float,
        batch_size: int,
        sample_weight: Any = None,
    ) -> None:
        self.n, self.batch_size, device = len(H), batch_size, H.device
        self._activation = ACTIVATIONS[activation]
        initial = initial_weights(((width, H.shape[1]), (n_sources, width)), seed)
        # One flat vector of parameters and one of gradients: a single fused optimiser call per step.
        flat = torch.nn.Parameter(torch.cat([p.reshape(-1) for p in initial]).to(device))
        flat.grad = torch.zeros_like(flat)
        self.flat, self._shapes = flat.detach(), [p.shape for p in initial]
        optimizer = torch.optim.AdamW(
            [flat], lr=learning_rate, weight_decay=weight_decay, fused=True, capturable=device.type == "cuda"
        )
        self._shuffle = torch.Generator().manual_seed(shuffle_seed % MAX_SEED)
        with torch.no_grad():
            self._step = self._make_step(H, codes, n_sources, sample_weight, flat.grad, optimizer)
            self._full_step = self._step
            if device.type == "cuda" and self.n >= batch_size:
                self._full_step = as_cuda_graph(self._step, batch_size, flat, optimizer)

    def _make_step(
        self, H: Array, codes: Any, n_sources: int, sample_weight: Any, gradient: Array, optimizer: Any
    ) -> Callable[[Array], None]:
        W1, b1, W2, b2 = self.weights()
        gW1, gb1, gW2, gb2 = self.weights(gradient)
        activation, backward = self._activation
        onehot = F.one_hot(torch.as_tensor(codes, device=H.device), n_sources).to(H.dtype)
        weight = None
        if sample_weight is not None:
            weight = torch.tensor(sample_weight, dtype=H.dtype, device=H.device)[:, None]
            weight = weight * (len(H) / weight.sum())

        def step(batch: Array) -> None:
            x = H.index_select(0, batch)
            u = torch.addmm(b1, x, W1.T)
            g = activation(u)
            error = torch.softmax(torch.addmm(b2, g, W2.T), dim=1).sub_(onehot.index_select(0, batch))
            if weight is not None:
                error *= weight[batch]
            error /= len(batch)
            torch.mm(error.T, g, out=gW2)
            torch.sum(error, 0, out=gb2)
            back = backward(error @ W2, u, g)
            torch.mm(back.T, x, out=gW1)
            torch.sum(back, 0, out=gb1)
            optimizer.step()

        return step

    def epoch(self) -> None:
        """Go through all rows once."""
        # A torch DataLoader with its own generator draws a base seed, an order and an order it discards.
        torch.empty((), dtype=torch.int64).random_(generator=self._shuffle)
        order = torch.randperm(self.n, generator=self._shuffle).to(self.flat.device)
        torch.randperm(self.n, generator=self._shuffle)
        with torch.no_grad():
            for batch in order.split(self.batch_size):
                (self._full_step if len(batch) == self.batch_size else self._step)(batch)

    def logits(self, rows: Array) -> Array:
        """Return the K logits of each row."""
        W1, b1, W2, b2 = self.weights()
        with torch.no_grad():
            return self._activation[0](rows @ W1.T + b1) @ W2.T + b2

    def weights(self, flat: Array | None = None) -> list[Array]:
        """Return W₁, b₁, W₂ and b₂: views of the present weights, or of ``flat``."""
        parts = (self.flat if flat is None else flat).split([shape.numel() for shape in self._shapes])
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]


class Patience:
    """When to stop training, as published.

    The first epoch sets the reference accuracy and counts as stale. A later one is fresh if it beats the
    reference by more than ``min_gain`` without being perfect.

    Examples
    --------
    >>> patience = Patience(3, 0.002)
    >>> [patience.is_over(accuracy) for accuracy in (0.6, 0.7, 0.7, 1.0, 1.0)]
    [False, False, False, False, True]
    """

    def __init__(self, patience: int, min_gain: float, accuracy_exit: float | None = None) -> None:
        self.patience, self.min_gain, self.accuracy_exit = patience, min_gain, accuracy_exit
        self.best, self.stale = -1.0, 0

    def is_over(self, accuracy: float) -> bool:
        """Take one more epoch's accuracy and say whether it was the last."""
        if self.best < 0:
            self.best, self.stale = accuracy, 1
        elif self.best + self.min_gain < accuracy < 1.0:
            self.best, self.stale = accuracy, 0
        else:
            self.stale += 1
        exits = self.accuracy_exit is not None and accuracy >= self.accuracy_exit
        return exits or self.stale >= self.patience


class Watch:
    """The rows whose accuracy decides how long a network trains."""

    def __init__(self, rows: Array, codes: Any, weight: Any) -> None:
        self.rows = self.original = rows
        self.codes = torch.as_tensor(codes, device=rows.device)
        self.weight = None if weight is None else torch.tensor(weight, device=rows.device)

    def accuracy(self, logits: Array) -> float:
        """Return the (weighted) share of rows whose largest logit is their source's."""
        right = (logits.argmax(1) == self.codes).double()
        return float(right.mean() if self.weight is None else right @ self.weight / self.weight.sum())

    def movement(self) -> float:
        """Return ‖H' - H‖ / ‖H‖."""
        return float((self.rows - self.original).norm() / self.original.norm())


def initial_weights(layers: tuple[tuple[int, int], ...], seed: int) -> list[Array]:
    """Return weight and bias of Linear layers (width, inputs) as torch would draw them after manual_seed.

    The generator is our own: the process-wide one may be in use elsewhere.
    """
    draw = torch.Generator().manual_seed(seed % MAX_SEED)
    initial = []
    for width, fan_in in layers:
        weights = torch.empty(width, fan_in)
        initial.append(torch.nn.init.kaiming_uniform_(weights, a=math.sqrt(5), generator=draw))
        bound = 1 / math.sqrt(fan_in)
        initial.append(torch.empty(width).uniform_(-bound, bound, generator=draw))
    return initial


def as_cuda_graph(
    step: Callable[[Array], None], batch_size: int, flat: Array, optimizer: Any
) -> Callable[[Array], None]:
    """Record a full-batch step as a CUDA graph: launching its kernels singly would be most of its time."""
    batch = torch.zeros(batch_size, dtype=torch.int64, device=flat.device)
    start = flat.detach().clone()
    side = torch.cuda.Stream(flat.device)
    side.wait_stream(torch.cuda.current_stream(flat.device))
    with torch.cuda.stream(side):
        step(batch)  # makes the optimiser's state and the libraries' handles, which a recording may not
    torch.cuda.current_stream(flat.device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(batch)
    flat.detach().copy_(start)
    for state in optimizer.state[flat].values():
        state.zero_()

    def run(rows: Array) -> None:
        batch.copy_(rows)
        graph.replay()

    return run
