"""Source critics (section 4.2): what can still be read about the source, and in which gate directions.

Each stage refits a balanced logistic critic and a small GELU network on the current embeddings. A critic
gives K - 1 scores, the logits of each source against the first, and their gradients inside the gate.
Only the network needs torch, imported when it is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from ._common.arrays import cast, namespace

Array = Any  # numpy array or torch tensor

CRITICS = ("linear", "gelu")
HIDDEN_WIDTH = 128


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
    Initialisation and shuffling follow the published recipe draw for draw.
    """
    import torch
    import torch.nn.functional as F

    from .networks import AdamW, HiddenLayerNetwork, Training

    training = Training(
        HiddenLayerNetwork(H.shape[1], HIDDEN_WIDTH, n_sources),
        H,
        codes,
        [seed],
        AdamW(learning_rate),
        sample_weight=sample_weight,
    )
    best, best_loss, stale = None, float("inf"), 0
    for _ in range(epochs):
        training.epoch()
        if validation is not None:
            rows, held_codes = validation
            target = torch.as_tensor(held_codes, device=H.device)
            loss = float(F.cross_entropy(training.logits(rows)[0], target))
            if loss < best_loss:
                best, best_loss, stale = training.parameters(), loss, 0
            else:
                stale += 1
                if stale >= patience:
                    break
    W1, b1, W2, b2 = (p[0] for p in best or training.parameters())
    return NetworkCritic(W1, b1, W2[1:] - W2[0], b2[1:] - b2[0])
