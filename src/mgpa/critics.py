"""Source critics (section 4.2): classifiers of the source, and their gradients in the gate.

Each stage refits a balanced logistic critic and a small GELU network on the current embeddings. A critic
gives scores and their gradients inside the gate. With two sources the score is the paper's, the logit of the
second against the first. With K > 2 sources there are K scores, the logit of each source minus the mean of
the other logits, so the order of the labels does not matter. Only the network needs torch, imported when it
is fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from ._common.arrays import cast, namespace

Array = Any  # numpy array or torch tensor
Floats = NDArray[np.float64]

CRITICS = ("linear", "lbfgs", "gelu")
HIDDEN_WIDTH = 128
# Up to this number of features, the d x d matrices of Newton's method are fast on a GPU.
MOST_NEWTON_FEATURES = 2048
MAX_NEWTON_STEPS, MAX_HALVINGS = 50, 30


@dataclass(frozen=True)
class Critic:
    """A critic with scores ``H @ weight.T + bias`` of rows H, or of GELU hidden units (torch tensors)."""

    weight: Array  # (J, d), or (J, h)
    bias: Array  # (J,)
    hidden_weight: Array = None  # (h, d)
    hidden_bias: Array = None

    def scores(self, H: Array) -> Array:
        """Return the J scores of each row."""
        if self.hidden_weight is not None:
            from torch.nn.functional import gelu

            H = gelu(H @ self.hidden_weight.T + self.hidden_bias)
        return H @ self.weight.T + self.bias

    def gated(self, H: Array, basis: Array) -> tuple[Array, Array]:
        """Return scores (n, J) and gated gradients (n, J, r), analytically."""
        if self.hidden_weight is None:
            gradient = self.weight @ basis  # the same for all rows
            return self.scores(H), namespace(H).broadcast_to(gradient, (len(H), *gradient.shape))
        import torch
        import torch.nn.functional as F

        u = H @ self.hidden_weight.T + self.hidden_bias
        slope = torch.ops.aten.gelu_backward(torch.ones_like(u), u)
        gate = self.hidden_weight @ basis
        gradients = torch.stack([(slope * w) @ gate for w in self.weight], dim=1)
        return F.gelu(u) @ self.weight.T + self.bias, gradients


def logit_contrasts(logits: Array) -> Array:
    """Convert weights or biases of K logits (first axis) to those of the scores (contrasts).

    With two sources, the score is the second logit minus the first. With more, there are K scores that sum
    to zero: each logit minus the mean of the others. All K are kept, because the bounded step weights every
    score by its gradient and would otherwise depend on the score that is left out.

    Examples
    --------
    >>> import numpy as np
    >>> logit_contrasts(np.array([1.0, 4.0]))
    array([3.])
    >>> logit_contrasts(np.array([1.0, 4.0, 10.0]))
    array([-6. , -1.5,  7.5])
    """
    K = len(logits)
    return logits[1:] - logits[:1] if K == 2 else (logits - logits.mean(0)) * (K / (K - 1))


def balanced_weights(codes: Any, sample_weight: Any = None) -> Floats:
    """Return row weights that balance the classes and keep the total weight.

    This is ``class_weight="balanced"`` of scikit-learn 1.7 and later; earlier versions counted rows instead
    of weights.

    Examples
    --------
    >>> balanced_weights([0, 0, 0, 1]).round(2).tolist()
    [0.67, 0.67, 0.67, 2.0]
    """
    classes, members = np.unique(codes, return_inverse=True)
    weight = np.ones(len(members)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    totals = np.bincount(members, weight)
    return np.asarray(weight * (totals.sum() / (len(classes) * totals))[members])


def fit_logistic(
    X: Any, codes: Any, n_sources: int, *, C: float = 1.0, max_iter: int = 2500, sample_weight: Any = None
) -> Critic:
    """Fit a balanced logistic regression of the source in float64.

    As in scikit-learn, there is one score for two sources (the logit difference) and K logits for K > 2
    sources.
    """
    model = LogisticRegression(C=C, max_iter=max_iter)
    # Matrix-vector products gain little from threads, and idle BLAS threads keep spinning, which would slow
    # the following torch steps by 50 %.
    with threadpool_limits(1, user_api="blas"):
        # Always in float64, because the type chosen by scikit-learn differs between versions.
        model.fit(
            np.asarray(X, dtype=np.float64), codes, sample_weight=balanced_weights(codes, sample_weight)
        )
    if len(model.classes_) != n_sources:
        raise ValueError(f"Critics saw {len(model.classes_)} of {n_sources} sources.")
    return Critic(model.coef_, model.intercept_)


def fit_linear(
    H: Array, codes: Any, n_sources: int, sample_weight: Any = None, *, lbfgs: bool = False
) -> Critic:
    """Fit the balanced logistic critic (C = 1) on the current rows; ``lbfgs`` is the published solver."""
    on_cpu = isinstance(H, np.ndarray) or H.device.type == "cpu"
    if on_cpu or lbfgs:
        fitted = fit_logistic(H if on_cpu else H.cpu(), codes, n_sources, sample_weight=sample_weight)
    else:
        fitted = fit_logistic_on_device(H, codes, n_sources, sample_weight)
    weight, bias = fitted.weight, fitted.bias
    if n_sources > 2:
        weight, bias = logit_contrasts(weight), logit_contrasts(bias)
    return Critic(cast(weight, H), cast(bias, H))


def fit_logistic_on_device(H: Array, codes: Any, n_sources: int, sample_weight: Any = None) -> Critic:
    """Fit the regression of :func:`fit_logistic` (C = 1) on the device of the rows, in float64.

    About ten Newton steps minimise Σ weight · loss + ½‖w‖². With more than two sources or many features, the
    regression is fitted on the CPU.
    """
    import torch
    import torch.nn.functional as F

    if n_sources > 2 or H.shape[1] > MOST_NEWTON_FEATURES:
        fitted = fit_logistic(H.cpu(), codes, n_sources, sample_weight=sample_weight)
        return Critic(*(torch.as_tensor(part, device=H.device) for part in (fitted.weight, fitted.bias)))
    target = torch.as_tensor(codes, device=H.device).double()
    weight = torch.as_tensor(balanced_weights(codes, sample_weight), device=H.device)
    X = torch.cat([H.double(), torch.ones_like(H[:, :1], dtype=torch.float64)], dim=1)
    penalty = torch.ones_like(X[0])
    penalty[-1] = 0.0  # no penalty for the intercept
    total = float(weight.sum())

    def objective(w: Array) -> tuple[Array, Array]:
        logits = X @ w
        losses = F.softplus(logits) - target * logits
        return weight @ losses + 0.5 * (penalty * w) @ w, logits

    w = torch.zeros_like(X[0])
    loss, logits = objective(w)
    for _ in range(MAX_NEWTON_STEPS):
        p = torch.sigmoid(logits)
        gradient = X.T @ (weight * (p - target)) + penalty * w
        if float(gradient.abs().max()) <= 1e-8 * total:
            break
        hessian = (X * (weight * p * (1.0 - p))[:, None]).T @ X
        # If all rows are classified with certainty, the intercept has no curvature.
        hessian.diagonal().add_(penalty + 1e-12 * total)
        step = torch.cholesky_solve(gradient[:, None], torch.linalg.cholesky(hessian))[:, 0]
        for _ in range(MAX_HALVINGS):
            trial, trial_logits = objective(w - step)
            if trial <= loss:
                break
            step = 0.5 * step
        else:  # only rounding errors remain
            break
        w, loss, logits = w - step, trial, trial_logits
    return Critic(w[None, :-1], w[-1:])


def fit_network(
    H: Array,
    codes: Any,
    n_sources: int,
    *,
    seeds: Sequence[int],
    epochs: int,
    learning_rate: float,
    sample_weight: Any = None,
    held: tuple[Array, Any] | None = None,
    patience: int = 10,
) -> Critic:
    """Train d → 128 → K GELU networks with AdamW and return the contrasts of their mean logits.

    The mean of networks with different seeds is one wider network and depends less on each seed. With
    ``held`` (rows, codes), the weights of the epoch with the lowest cross-entropy on these rows are kept, and
    training stops after ``patience`` epochs without improvement. The loss is not class-balanced. A single
    network repeats the published random draws; with two sources, its first output belongs to the first label.
    With more sources or networks, outputs are assigned in the order in which the sources occur in the rows,
    so the names of the sources do not matter.
    """
    import torch
    import torch.nn.functional as F

    from .networks import HiddenLayerNetwork, Training

    output = np.arange(n_sources)  # the network output for each source
    if n_sources > 2 or len(seeds) > 1:
        first_rows = np.unique(codes, return_index=True)[1]
        output = np.argsort(np.argsort(first_rows))
    training = Training(
        HiddenLayerNetwork(H.shape[1], HIDDEN_WIDTH, n_sources),
        H,
        output[codes],
        seeds,
        learning_rate=learning_rate,
        sample_weight=sample_weight,
    )
    best, best_loss, stale = None, float("inf"), 0
    for _ in range(epochs):
        training.epoch()
        if held is not None:
            rows, held_codes = held
            target = torch.as_tensor(output[held_codes], device=H.device)
            loss = float(F.cross_entropy(training.logits(rows).mean(0), target))
            if loss < best_loss:
                best, best_loss, stale = training.parameters(), loss, 0
            else:
                stale += 1
                if stale >= patience:
                    break
    W1, b1, W2, b2 = best or training.parameters()
    W1, b1 = W1.flatten(0, 1), b1.flatten()
    W2, b2 = W2.transpose(0, 1).flatten(1) / len(seeds), b2.mean(0)
    return Critic(logit_contrasts(W2[output]), logit_contrasts(b2[output]), W1, b1)
