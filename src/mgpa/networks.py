"""Train small source networks with the same random draws as the published code.

Critics and IGBP train one network per stage, and audits train several restarts in parallel. To train many
small networks fast, this module has no data loader, computes gradients explicitly (automatic differentiation
would take a third of the time), uses one flat parameter vector, and on a GPU records a step as one graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F

Array = Any  # torch.Tensor

MAX_SEED = 2**31 - 1
TOKEN_WIDTH = 64
BATCH_SIZE, WEIGHT_DECAY = 256, 1e-3  # as published
# torch's fused AdamW assigns 65 536 numbers of a tensor to one block of threads and processes up to 36
# tensors together: a network in one tensor would use only one of a GPU's hundred processors.
CUDA_PARTS = 32
# Activations and their backward functions of (output gradient, input, output).
ACTIVATIONS: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
    "gelu": (F.gelu, lambda back, u, g: torch.ops.aten.gelu_backward(back, u)),
    "relu": (torch.relu, lambda back, u, g: torch.ops.aten.threshold_backward(back, g, 0)),
}


@dataclass(frozen=True)
class HiddenLayerNetwork:
    """A network d → width → K with one hidden layer."""

    n_features: int
    width: int
    n_outputs: int
    activation: str = "gelu"

    def prepare(self, X: Array) -> Array:
        """Return flattened rows."""
        return X.flatten(1)

    def initial(self, seed: int) -> list[Array]:
        """Return W₁, b₁, W₂ and b₂."""
        return initial_weights(((self.width, self.n_features), (self.n_outputs, self.width)), seed)

    def forward(self, parameters: list[Array], x: Array) -> tuple[Array, Any]:
        """Return logits and (u, g), the hidden layer before and after its activation."""
        W1, b1, W2, b2 = parameters
        u = affine(x, W1, b1)
        g = ACTIVATIONS[self.activation][0](u)
        return affine(g, W2, b2), (u, g)

    def backward(
        self, parameters: list[Array], gradients: list[Array], x: Array, activations: Any, error: Array
    ) -> None:
        """Compute the gradients of all parameters in place."""
        gW1, gb1, gW2, gb2 = gradients
        u, g = activations
        torch.matmul(error.mT, g, out=gW2)
        torch.sum(error, -2, out=gb2)
        back = ACTIVATIONS[self.activation][1](error @ parameters[2], u, g)
        torch.matmul(back.mT, x, out=gW1)
        torch.sum(back, -2, out=gb1)


@dataclass(frozen=True)
class TokenNetwork:
    """LayerNorm, a d → 64 GELU layer shared by all tokens, then all t · 64 values → K."""

    n_tokens: int
    n_features: int
    n_outputs: int

    def prepare(self, X: Array) -> Array:
        """Return tokens (n, t, d) normalised one by one, as (n, t · d)."""
        return F.layer_norm(X, (self.n_features,)).flatten(1)

    def initial(self, seed: int) -> list[Array]:
        """Return LayerNorm's scale and shift, then W₁, b₁, W₂ and b₂."""
        layers = ((TOKEN_WIDTH, self.n_features), (self.n_outputs, self.n_tokens * TOKEN_WIDTH))
        return [torch.ones(self.n_features), torch.zeros(self.n_features), *initial_weights(layers, seed)]

    def forward(self, parameters: list[Array], x: Array) -> tuple[Array, Any]:
        """Return logits and (tokens, u, g), the hidden layer before and after its activation."""
        scale, shift, W1, b1, W2, b2 = parameters
        tokens = x.reshape(*x.shape[:-2], -1, self.n_features)
        # W₁ (scale · x + shift) + b₁, with scale and shift folded into the layer to avoid a copy of x.
        u = affine(tokens, W1 * scale[..., None, :], (W1 @ shift[..., None])[..., 0] + b1)
        g = F.gelu(u).view(*x.shape[:-1], -1)
        return affine(g, W2, b2), (tokens, u, g)

    def backward(
        self, parameters: list[Array], gradients: list[Array], x: Array, activations: Any, error: Array
    ) -> None:
        """Compute the gradients of all parameters in place."""
        scale, shift, W1, _, W2, _ = parameters
        g_scale, g_shift, gW1, gb1, gW2, gb2 = gradients
        tokens, u, g = activations
        torch.matmul(error.mT, g, out=gW2)
        torch.sum(error, -2, out=gb2)
        back = torch.ops.aten.gelu_backward((error @ W2).view_as(u), u)
        torch.sum(back, -2, out=gb1)
        outer = back.mT @ tokens
        torch.sum(outer * W1, -2, out=g_scale)
        g_shift.copy_((gb1[..., None, :] @ W1)[..., 0, :])
        torch.addcmul(gb1[..., None] * shift[..., None, :], outer, scale[..., None, :], out=gW1)


Architecture = HiddenLayerNetwork | TokenNetwork


class Training:
    """Parallel training of networks of one architecture with an unweighted cross-entropy.

    Each network starts from the initial weights that torch draws for its seed and uses the rows in the order
    of a DataLoader with its shuffle seed. Up to rounding, the results equal training the networks one by one.
    ``clip`` bounds the norm of the gradient of each network. ``sizes`` are the numbers of rows of several
    data sets, which are concatenated in X and codes; every set has one network for every seed. One step
    trains all networks that have a full batch left; sets of equal size finish their epoch together.
    """

    def __init__(
        self,
        network: Architecture,
        X: Array,
        codes: Any,
        seeds: Sequence[int],
        *,
        learning_rate: float,
        batch_size: int = BATCH_SIZE,
        weight_decay: float = WEIGHT_DECAY,
        clip: float | None = None,
        shuffle_seeds: Sequence[int] | None = None,
        sample_weight: Any = None,
        sizes: Sequence[int] = (),
    ) -> None:
        device, sizes = X.device, list(sizes) or [len(X)]
        self.network, self._batch_size, self._clip = network, batch_size, clip
        self._rows, R = network.prepare(X), len(sizes) * len(seeds)
        self._onehot = F.one_hot(torch.as_tensor(codes, device=device), network.n_outputs).to(X.dtype)
        self._weight = None
        if sample_weight is not None:
            weight = torch.tensor(sample_weight, dtype=X.dtype, device=device)
            self._weight = weight * (len(X) / weight.sum())
        initials = [network.initial(seed) for seed in seeds] * len(sizes)
        initial = [torch.stack(same) for same in zip(*initials, strict=True)]
        self._shapes = [p.shape for p in initial]
        # Flat vectors of parameters and gradients need only one fused optimiser call per step.
        self._flat = torch.cat([p.reshape(-1) for p in initial]).to(device)
        gradient = torch.zeros_like(self._flat)
        settings = CUDA_PARTS if device.type == "cuda" else 1, learning_rate, weight_decay
        self._groups = [
            self._group(gradient, sizes, list(sets), shuffle_seeds or seeds, settings)
            for _, sets in groupby(range(len(sizes)), key=sizes.__getitem__)
        ]
        self._all = Operands.of(self._views(self._flat), self._views(gradient), slice(None))
        self._optimizers = [optimizer for group in self._groups for optimizer in group.optimizers]
        self._together = min(sizes) // batch_size  # number of steps per epoch common to all networks
        self._full_step: Callable[[Array], None] = partial(self._step, self._all, self._optimizers)
        if device.type == "cuda" and self._together:
            with torch.no_grad():
                self._full_step = as_cuda_graph(self._full_step, R * batch_size, self._flat, self._optimizers)

    def _group(
        self, gradient: Array, sizes: list[int], sets: list[int], shuffle_seeds: Sequence[int], settings: Any
    ) -> Group:
        """Return the networks of neighbouring data sets of equal size, with their optimiser."""
        stacks = self._views(self._flat), self._views(gradient)
        some = slice(sets[0] * len(shuffle_seeds), (sets[-1] + 1) * len(shuffle_seeds))
        parameters, gradients = [self._flat], [gradient]
        if len(sets) < len(sizes):
            parameters, gradients = ([stack[some].view(-1) for stack in part] for part in stacks)
        shuffles = [torch.Generator().manual_seed(seed % MAX_SEED) for seed in shuffle_seeds]
        first_rows = torch.tensor([sum(sizes[:i]) for i in sets], device=gradient.device)
        operands, optimizer = Operands.of(*stacks, some), AdamW(parameters, gradients, *settings)
        return Group(sizes[sets[0]], first_rows, shuffles, operands, [optimizer])

    def _step(self, operands: Operands, optimizers: Sequence[AdamW], batch: Array) -> None:
        parameters, gradients = operands.parameters, operands.gradients
        x = self._rows.index_select(0, batch).view(*operands.stack, -1, self._rows.shape[1])
        logits, activations = self.network.forward(parameters, x)
        error = torch.softmax(logits, -1).sub_(self._onehot.index_select(0, batch).view_as(logits))
        if self._weight is not None:
            error *= self._weight.index_select(0, batch).view(*operands.stack, -1, 1)
        self.network.backward(parameters, gradients, x, activations, error.div_(x.shape[-2]))
        if self._clip is not None:
            clip_gradients(operands.stacked_gradients, self._clip)
        for optimizer in optimizers:
            optimizer.step()

    def epoch(self) -> None:
        """Train every network for one epoch."""
        orders = [group.orders(self._flat.device) for group in self._groups]
        together = self._together * self._batch_size
        shared = torch.cat([order[:, :together] for order in orders])
        # Ordered by batch, then by network.
        batches = shared.view(len(shared), self._together, -1).transpose(0, 1).flatten(1) if together else ()
        with torch.no_grad():
            for batch in batches:
                self._full_step(batch)
            for group, order in zip(self._groups, orders, strict=True):
                for batch in order[:, together:].split(self._batch_size, dim=1) if group.n > together else ():
                    self._step(group.operands, group.optimizers, batch.reshape(-1))

    def parameters(self) -> list[Array]:
        """Return a copy of the current parameters of the networks, each with a first axis of length R."""
        return self._views(self._flat.clone())

    def logits(self, X: Array) -> Array:
        """Return the logits (R, n, K) of each row."""
        return network_logits(self.network, self._views(self._flat), X)

    def _views(self, flat: Array) -> list[Array]:
        parts = flat.split([shape.numel() for shape in self._shapes])
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]


@dataclass(frozen=True)
class Operands:
    """Operands of a step: stacks of parameters and gradients or, for a single network, plain matrices."""

    parameters: list[Array]
    gradients: list[Array]
    stacked_gradients: list[Array]
    stack: tuple[int, ...]

    @classmethod
    def of(cls, parameters: list[Array], gradients: list[Array], networks: slice) -> Operands:
        """Return the operands of the selected networks."""
        both = [[stack[networks] for stack in part] for part in (parameters, gradients)]
        R = len(both[0][0])
        plain = [[p[0] for p in part] if R == 1 else part for part in both]
        return cls(plain[0], plain[1], both[1], () if R == 1 else (R,))


@dataclass(frozen=True)
class Group:
    """The networks of data sets of equal size."""

    n: int
    first_rows: Array
    shuffles: list[Any]
    operands: Operands
    optimizers: list[AdamW]

    def orders(self, device: Any) -> Array:
        """Return the order of the rows for each network in the next epoch, (networks, n)."""
        order = torch.stack([dataloader_order(self.n, shuffle) for shuffle in self.shuffles])
        if (
            device.type == "cuda"
        ):  # in pinned memory, so that the host can draw the next order while the GPU works
            order = order.pin_memory().to(device, non_blocking=True)
        return (self.first_rows[:, None, None] + order).flatten(0, 1)


def network_logits(network: Architecture, parameters: list[Array], X: Array) -> Array:
    """Return the logits (R, n, K) of R stacked networks for the same rows."""
    with torch.no_grad():
        x = network.prepare(X)
        return network.forward(parameters, x.expand(len(parameters[0]), *x.shape))[0]


class AdamW:
    """AdamW as in torch's fused version, in place, for vectors with ``n_parts`` parts.

    ``torch.optim`` is not used: its first optimiser imports torch's compiler, which takes seconds, and its
    calls would take much of the time of training small networks.
    """

    def __init__(
        self, vectors: list[Array], gradients: list[Array], n_parts: int, learning_rate: float, decay: float
    ) -> None:
        parameters, slopes = (
            [part for vector in tensors for part in vector.split(-(-len(vector) // n_parts))]
            for tensors in (vectors, gradients)
        )
        self._means, self._squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
        self._steps = [torch.zeros((), device=p.device) for p in parameters]
        moments = self._means, self._squares
        self._tensors: tuple[list[Array], ...] = parameters, slopes, *moments, [], self._steps
        self._settings: dict[str, Any] = {
            "lr": learning_rate,
            "weight_decay": decay,
            "beta1": 0.9,
            "beta2": 0.999,
            "eps": 1e-8,
            "amsgrad": False,
            "maximize": False,
        }

    def step(self) -> None:
        """Update the parameters with their gradients."""
        torch._foreach_add_(self._steps, 1)
        torch._fused_adamw_(*self._tensors, **self._settings)

    def forget(self) -> None:
        """Reset the state of the optimiser and keep the parameters."""
        for tensor in (*self._means, *self._squares, *self._steps):
            tensor.zero_()


def affine(x: Array, W: Array, b: Array) -> Array:
    """Return x Wᵀ + b for one network or a stack of networks."""
    return torch.addmm(b, x, W.mT) if x.ndim == 2 else torch.baddbmm(b[:, None], x, W.mT)


def dataloader_order(n: int, shuffle: Any) -> Array:
    """Return the next order of n rows in a torch DataLoader with this generator."""
    # A DataLoader draws a base seed, an order, and another order that it discards.
    torch.empty((), dtype=torch.int64).random_(generator=shuffle)
    order = torch.randperm(n, generator=shuffle)
    torch.randperm(n, generator=shuffle)
    return order


def clip_gradients(gradients: list[Array], bound: float) -> None:
    """Scale each network's gradient to a norm of at most ``bound``, as torch's ``clip_grad_norm_`` does."""
    norm = sum(gradient.flatten(1).square().sum(1) for gradient in gradients).sqrt()
    factor = (bound / (norm + 1e-6)).clamp_(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))


def initial_weights(layers: tuple[tuple[int, int], ...], seed: int) -> list[Array]:
    """Return weight and bias of Linear layers (width, inputs) as torch draws them after manual_seed.

    A separate generator is used, because the global one may be used elsewhere.
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
    step: Callable[[Array], None], batch_size: int, flat: Array, optimizers: Sequence[AdamW]
) -> Callable[[Array], None]:
    """Record a full-batch step as a CUDA graph, because launching single kernels takes most of the time."""
    batch = torch.zeros(batch_size, dtype=torch.int64, device=flat.device)
    start = flat.clone()
    side = torch.cuda.Stream(flat.device)
    side.wait_stream(torch.cuda.current_stream(flat.device))
    with torch.cuda.stream(side):
        step(batch)  # creates optimiser state and library handles, which is not possible while recording
    torch.cuda.current_stream(flat.device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(batch)
    flat.copy_(start)
    for optimizer in optimizers:
        optimizer.forget()

    def run(rows: Array) -> None:
        batch.copy_(rows)
        graph.replay()

    return run
