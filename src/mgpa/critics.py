"""Source critics (section 4.2): what can still be read about the source, and in which gate directions.

Each stage refits a balanced logistic critic and a small GELU network on the current embeddings. A critic
gives K - 1 scores, the logits of each source against the first, and their gradients inside the gate.
Only the network needs torch, imported when it is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from ._arrays import cast, namespace

Array = Any  # numpy array or torch tensor

CRITICS = ("linear", "gelu")
HIDDEN_WIDTH = 128
BATCH_SIZE = 256
WEIGHT_DECAY = 1e-3
MAX_SEED = 2**31 - 1


@dataclass(frozen=True)
class LinearCritic:
    """Scores ``H @ weight.T + bias``; their gradient is the same for every row."""

    weight: Array  # (K - 1, d)
    bias: Array  # (K - 1,)

    def scores(self, H: Array) -> Array:
        """Return the K - 1 source scores of each row."""
        return H @ self.weight.T + self.bias

    def gated(self, H: Array, basis: Array) -> tuple[Array, Array]:
        """Return scores (n, K - 1) and gated gradients (n, K - 1, r)."""
        gradient = self.weight @ basis
        return self.scores(H), namespace(H).broadcast_to(gradient, (len(H), *gradient.shape))


@dataclass(frozen=True)
class NetworkCritic:
    """Scores of a one-hidden-layer GELU network, held as torch tensors."""

    hidden_weight: Array  # (128, d)
    hidden_bias: Array
    output_weight: Array  # (K - 1, 128)
    output_bias: Array

    def scores(self, H: Array) -> Array:
        """Return the K - 1 source scores of each row."""
        import torch.nn.functional as F

        return F.gelu(H @ self.hidden_weight.T + self.hidden_bias) @ self.output_weight.T + self.output_bias

    def gated(self, H: Array, basis: Array) -> tuple[Array, Array]:
        """Return scores (n, K - 1) and gated gradients (n, K - 1, r), analytically."""
        import torch
        import torch.nn.functional as F

        u = H @ self.hidden_weight.T + self.hidden_bias
        scores = F.gelu(u) @ self.output_weight.T + self.output_bias
        slope = torch.ops.aten.gelu_backward(torch.ones_like(u), u)
        gate = self.hidden_weight @ basis
        return scores, torch.stack([(slope * w) @ gate for w in self.output_weight], dim=1)


def fit_linear(H: Array, codes: Any, n_sources: int, sample_weight: Any = None) -> LinearCritic:
    """Fit the balanced logistic critic (C = 1) on the current rows.

    The fit runs in float64 whatever the rows' type: scikit-learn's own choice differs between versions.
    """
    if not isinstance(H, np.ndarray) and H.device.type != "cpu":
        return _fit_linear_on_device(H, codes, n_sources, sample_weight)
    rows = np.asarray(H, dtype=np.float64)
    model = LogisticRegression(C=1.0, max_iter=2500, class_weight="balanced")
    # Matrix-vector products gain little from threads, and a BLAS's idle threads go on spinning: the torch
    # steps that follow would take half as long again.
    with threadpool_limits(1, user_api="blas"):
        model.fit(rows, codes, sample_weight=sample_weight)
    if len(model.classes_) != n_sources:
        raise ValueError(f"Critics saw {len(model.classes_)} of {n_sources} sources.")
    weight, bias = model.coef_, model.intercept_
    if n_sources > 2:
        weight, bias = weight[1:] - weight[0], bias[1:] - bias[0]
    return LinearCritic(cast(weight, H), cast(bias, H))


def _fit_linear_on_device(H: Array, codes: Any, n_sources: int, sample_weight: Any) -> LinearCritic:
    """Fit the same logistic regression where the rows are, by torch's L-BFGS in float64."""
    import torch
    import torch.nn.functional as F

    device = H.device
    target = torch.as_tensor(codes, device=device)
    weight = torch.ones(len(H), dtype=torch.float64, device=device)
    if sample_weight is not None:
        weight = torch.as_tensor(sample_weight, dtype=torch.float64, device=device)
    mass = torch.zeros(n_sources, dtype=torch.float64, device=device).index_add_(0, target, weight)
    weight = weight * (weight.sum() / (n_sources * mass))[target]
    total, rows = weight.sum(), H.double()
    # As scikit-learn: one score for two sources, a symmetric softmax beyond; intercept unpenalised.
    n_rows = 1 if n_sources == 2 else n_sources
    W = torch.zeros((n_rows, H.shape[1]), dtype=torch.float64, device=device, requires_grad=True)
    b = torch.zeros(n_rows, dtype=torch.float64, device=device, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [W, b], max_iter=2500, tolerance_grad=1e-4, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure() -> Any:
        optimizer.zero_grad()
        logits = rows @ W.T + b
        if n_rows == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        loss = (F.cross_entropy(logits, target, reduction="none") * weight).sum() / total
        loss = loss + 0.5 * (W * W).sum() / total
        loss.backward()
        return loss

    optimizer.step(closure)
    weights, bias = W.detach(), b.detach()
    if n_sources > 2:
        weights, bias = weights[1:] - weights[0], bias[1:] - bias[0]
    return LinearCritic(weights.to(H.dtype), bias.to(H.dtype))


def fit_network(
    H: Array,
    codes: Any,
    n_sources: int,
    *,
    seed: int,
    epochs: int,
    learning_rate: float,
    sample_weight: Any = None,
    validation: tuple[Array, Any] | None = None,
    patience: int = 10,
) -> NetworkCritic:
    """Train a d → 128 → K GELU network with AdamW and return its K - 1 logit differences.

    With ``validation`` (rows, codes) the weights of the epoch with the lowest validation cross-entropy are
    kept, and training stops after ``patience`` epochs without improvement. The loss is not balanced.
    Initialisation and shuffling follow the published recipe draw for draw. Gradients are written out:
    for so small a network, automatic differentiation would be a third of the time.
    """
    import torch
    import torch.nn.functional as F

    n, d = H.shape
    device = H.device
    target = torch.as_tensor(codes, device=device)
    onehot = F.one_hot(target, n_sources).to(H.dtype)
    weight = None
    if sample_weight is not None:
        weight = torch.as_tensor(sample_weight, dtype=H.dtype, device=device)[:, None]
        weight = weight * (n / weight.sum())

    # torch's own initialisation of two Linear layers, from a generator of our own: the process-wide one may
    # be in use elsewhere.
    draw = torch.Generator().manual_seed(seed % MAX_SEED)
    initial = []
    for width, fan_in in ((HIDDEN_WIDTH, d), (n_sources, HIDDEN_WIDTH)):
        weights = torch.empty(width, fan_in)
        initial.append(torch.nn.init.kaiming_uniform_(weights, a=math.sqrt(5), generator=draw))
        bound = 1 / math.sqrt(fan_in)
        initial.append(torch.empty(width).uniform_(-bound, bound, generator=draw))
    # One flat vector of parameters and one of gradients: a single fused optimiser call per step.
    flat = torch.nn.Parameter(torch.cat([p.reshape(-1) for p in initial]).to(device))
    flat.grad = torch.zeros_like(flat)
    shapes = [p.shape for p in initial]
    with torch.no_grad():
        W1, b1, W2, b2 = _views(flat.detach(), shapes)
        gW1, gb1, gW2, gb2 = _views(flat.grad, shapes)
    on_cuda = device.type == "cuda"
    optimizer = torch.optim.AdamW(
        [flat], lr=learning_rate, weight_decay=WEIGHT_DECAY, fused=True, capturable=on_cuda
    )
    shuffle = torch.Generator().manual_seed(seed % MAX_SEED)

    def step(batch: Array) -> None:
        x = H.index_select(0, batch)
        u = torch.addmm(b1, x, W1.T)
        g = F.gelu(u)
        error = torch.softmax(torch.addmm(b2, g, W2.T), dim=1).sub_(onehot.index_select(0, batch))
        if weight is not None:
            error *= weight[batch]
        error /= len(batch)
        torch.mm(error.T, g, out=gW2)
        torch.sum(error, 0, out=gb2)
        back = torch.ops.aten.gelu_backward(error @ W2, u)
        torch.mm(back.T, x, out=gW1)
        torch.sum(back, 0, out=gb1)
        optimizer.step()

    best, best_loss, stale = None, float("inf"), 0
    with torch.no_grad():
        full_step = _as_cuda_graph(step, flat, optimizer) if on_cuda and n >= BATCH_SIZE else step
        for _ in range(epochs):
            # A torch DataLoader with its own generator draws a base seed, an order and an order it discards.
            torch.empty((), dtype=torch.int64).random_(generator=shuffle)
            order = torch.randperm(n, generator=shuffle).to(device)
            torch.randperm(n, generator=shuffle)
            for batch in order.split(BATCH_SIZE):
                (full_step if len(batch) == BATCH_SIZE else step)(batch)
            if validation is not None:
                rows, held_codes = validation
                logits = F.gelu(rows @ W1.T + b1) @ W2.T + b2
                loss = float(F.cross_entropy(logits, torch.as_tensor(held_codes, device=device)))
                if loss < best_loss:
                    best, best_loss, stale = flat.detach().clone(), loss, 0
                else:
                    stale += 1
                    if stale >= patience:
                        break
        W1, b1, W2, b2 = _views(flat.detach() if best is None else best, shapes)
        return NetworkCritic(W1, b1, W2[1:] - W2[0], b2[1:] - b2[0])


def _as_cuda_graph(step: Callable[[Array], None], flat: Array, optimizer: Any) -> Callable[[Array], None]:
    """Record a full-batch step as a CUDA graph: launching its kernels singly would be most of its time."""
    import torch

    batch = torch.zeros(BATCH_SIZE, dtype=torch.int64, device=flat.device)
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


def _views(flat: Array, shapes: list[Any]) -> list[Array]:
    parts = flat.split([shape.numel() for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
