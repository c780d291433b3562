"""Spatial distillation with distribution alignment (SDDA): a decoder for a headset with fewer channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from .._common.checks import as_floats, require_finite
from .._common.extras import torch_device
from .._common.parameters import Constraint, check_parameters, nothing, number, read_seed, seed, text, whole
from ..errors import MissingEvidence, UsageError
from ..estimators.base import MethodTags, forget
from ..labels import to_numpy
from ._base import Decoder, task_classes, two_as_one
from .signals import EuclideanAlignment

Array = Any  # torch.Tensor
MAX_SEED = 2**31 - 1
TEMPERATURE, CONFUSION_TEMPERATURE = 8.0, 2.0  # for distillation and for class confusion, as published
WIDTHS = (0.125, 0.25, 0.5, 1.0, 2.0)  # kernel widths, as multiples of the mean squared distance
N_FILTERS, DEPTH = 8, 2  # number of temporal filters, and of spatial filters for each temporal filter
positions = Constraint(
    "a list of positions of channels",
    lambda value: (
        isinstance(value, (list, tuple, np.ndarray))
        and len(value) > 0
        and all(whole().accepts(i) for i in value)
    ),
)


class SDDA(Decoder):
    """Train a decoder for a headset with fewer channels, with a teacher on all channels of another headset.

    Reference: Liu, Li, Wang, Li, Wu, "SDDA: spatial distillation based distribution alignment for
    cross-headset EEG classification", IEEE Transactions on Biomedical Engineering 73, 2026. Signals are
    Euclidean-aligned for each source. A teacher learns the task from all channels. A student uses only the
    channels shared with the target and has four losses: the labels; the teacher's softened outputs
    (temperature 8); the difference between feature distributions on both headsets (maximum mean discrepancy
    of five Gaussian kernels); and class confusion on unlabelled target trials (temperature 2). The networks
    resemble EEGNet: one temporal convolution, spatial filters and power-like pooling; their sizes are ours.
    The discrepancy uses all pairs in a batch, while the authors' code uses successive pairs. The distillation
    loss is summed over classes, while their code takes the mean.

    Needs labelled trials, their sources, unlabelled trials of the target and torch. No pairs. Gives
    predictions, not signals or embeddings.

    What it cannot do: work on embeddings, keep an existing decoder, or separate a device from the
    participants who used it. It is fitted for one target.

    Parameters
    ----------
    channels : list of int or None
        Positions in X of the channels that the target has, in the target's order. None: all channels.
    n_epochs, learning_rate, batch_size : int, float, int
        Settings of Adam.
    kernel_size : int or None
        Length of the temporal filters in samples; None: an odd number near a quarter of the trial length.
    ridge : float
        ``ridge`` of :class:`EuclideanAlignment`, for signals with an average reference.
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
        "channels": positions | nothing, "n_epochs": whole(), "learning_rate": number(above=0),
        "batch_size": whole(4), "kernel_size": whole(1) | nothing, "ridge": number(0), "device": text,
        "random_state": seed,
    }  # fmt: skip

    def __init__(
        self, *, channels: Sequence[int] | None = None, n_epochs: int = 50, learning_rate: float = 1e-2,
        batch_size: int = 32, kernel_size: int | None = None, ridge: float = 1e-3, device: str = "auto",
        random_state: Any = None,
    ) -> None:  # fmt: skip
        self.channels = channels
        self.n_epochs = n_epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.kernel_size = kernel_size
        self.ridge = ridge
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, source: Any = None, X_target: Any = None, pairs: Any = None) -> Self:
        """Fit on labelled trials X (n, channels, times) and unlabelled target trials ``X_target``.

        ``source`` has the session or headset of each trial in X; these are aligned separately. None: all
        trials have the same source.
        """
        check_parameters(self)
        forget(self)
        device, first_seed = torch_device(self.device, "SDDA"), read_seed(self.random_state)
        if X_target is None:
            raise MissingEvidence("SDDA needs a target: pass X_target, unlabelled trials of the new headset.")
        trials, target = as_trials(X, "X"), as_trials(X_target, "X_target")
        channels = list(range(trials.shape[1])) if self.channels is None else list(self.channels)
        if max(channels) >= trials.shape[1] or target.shape[1:] != (len(channels), trials.shape[2]):
            raise UsageError(
                f"X_target has shape {target.shape}, X {trials.shape}; expected ({len(channels)} channels, "
                f"{trials.shape[2]} samples) in X_target. Pass channels=, the target's channels in X."
            )
        classes, task = task_classes(y, len(trials))
        sessions = np.zeros(len(trials), int) if source is None else source
        align = EuclideanAlignment(ridge=self.ridge)
        whole_cap = align.fit_transform(trials, source=sessions)
        common = align.fit_transform(trials[:, channels], source=sessions)
        self._align = EuclideanAlignment(ridge=self.ridge).fit(target, source=np.zeros(len(target), int))
        aligned = self._align.transform(target, source=np.zeros(len(target), int))
        self._student = self._train(whole_cap, common, aligned, task, len(classes), device, first_seed)
        self.classes_, self.shape_in_ = classes, target.shape[1:]
        return self

    def _train(
        self, whole_cap: NDArray[Any], common: NDArray[Any], target: NDArray[Any], task: NDArray[np.int64],
        n_classes: int, device: Any, first_seed: int,
    ) -> list[Any]:  # fmt: skip
        """Return the weights of the student."""
        import torch
        import torch.nn.functional as F

        whole_cap, common, target = (
            torch.as_tensor(part, dtype=torch.float32, device=device) for part in (whole_cap, common, target)
        )
        labels, draw = (
            torch.as_tensor(task, device=device),
            torch.Generator().manual_seed(first_seed % MAX_SEED),
        )
        size = self.kernel_size or (common.shape[2] // 4) | 1
        teacher, student = (
            [w.to(device).requires_grad_() for w in initial_network(part.shape[1], size, n_classes, draw)]
            for part in (whole_cap, common)
        )
        optimizers = [torch.optim.Adam(weights, lr=self.learning_rate) for weights in (teacher, student)]
        for _ in range(self.n_epochs):
            for batch in torch.randperm(len(labels), generator=draw).split(self.batch_size):
                if len(batch) < 4:
                    continue
                target_batch = torch.randint(len(target), (len(batch),), generator=draw).to(device)
                batch = batch.to(device)
                _, taught = forward(teacher, whole_cap[batch])
                features, logits = forward(student, common[batch])
                far_features, far_logits = forward(student, target[target_batch])
                soft = F.softmax(taught.detach() / TEMPERATURE, dim=1)
                distilled = F.kl_div(F.log_softmax(logits / TEMPERATURE, dim=1), soft, reduction="batchmean")
                losses = (
                    F.cross_entropy(taught, labels[batch]),
                    F.cross_entropy(logits, labels[batch]) + TEMPERATURE**2 * distilled
                    + mean_discrepancy(features, far_features) + class_confusion(far_logits),
                )  # fmt: skip
                for loss, optimizer in zip(losses, optimizers, strict=True):
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
        return [w.detach().cpu() for w in student]

    def _scores(self, X: Any) -> NDArray[Any]:
        import torch

        trials = as_trials(X, "X")
        if trials.shape[1:] != self.shape_in_:
            raise UsageError(f"X has shape {trials.shape}; this decoder is for trials of {self.shape_in_}.")
        aligned = self._align.transform(trials, source=np.zeros(len(trials), int))
        with torch.no_grad():
            return two_as_one(
                forward(self._student, torch.as_tensor(aligned, dtype=torch.float32))[1].numpy()
            )


def as_trials(X: Any, name: str) -> NDArray[Any]:
    """Return trials as an array (n, channels, times); raise unless they are finite."""
    trials = as_floats(to_numpy(X, name), name, "a float array of shape (trials, channels, times)")
    if trials.ndim != 3 or not trials.size:
        raise UsageError(f"{name} has shape {trials.shape}; expected (trials, channels, times), none empty.")
    require_finite(trials, name)
    return np.asarray(trials)


def initial_network(n_channels: int, size: int, n_classes: int, draw: Any) -> list[Array]:
    """Return random initial weights: temporal filters, spatial filters, class weights and biases."""
    import torch

    n = N_FILTERS * DEPTH
    shapes = (N_FILTERS, 1, size), (n, n_channels), (n_classes, n)
    weights = [torch.randn(shape, generator=draw) / np.sqrt(shape[-1]) for shape in shapes]
    return [*weights, torch.zeros(n_classes)]


def forward(weights: list[Array], x: Array) -> tuple[Array, Array]:
    """Return features and logits of trials (n, channels, times)."""
    import torch
    import torch.nn.functional as F

    temporal, spatial, W, b = weights
    mixed = torch.einsum("fc,nct->nft", spatial, x)  # both filters are linear; spatial first is faster
    kernels = temporal.repeat_interleave(DEPTH, 0)
    filtered = F.conv1d(mixed, kernels, padding="same", groups=len(spatial))
    features = torch.log(filtered.square().mean(2) + 1e-6)
    return features, features @ W.T + b


def mean_discrepancy(a: Array, b: Array) -> Array:
    """Return the squared maximum mean discrepancy between two batches, over five Gaussian kernels."""
    import torch

    both = torch.cat([a, b])
    squares = (both[:, None] - both[None]).square().sum(2)
    scale = squares.detach().mean()
    kernel = sum((-squares / (2 * width * scale)).exp() for width in WIDTHS)
    n = len(a)
    return kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[:n, n:].mean()


def class_confusion(logits: Array) -> Array:
    """Return the mean confusion of each predicted class with others; confident predictions weigh more."""
    p = (logits / CONFUSION_TEMPERATURE).softmax(1)
    entropy = -(p * (p + 1e-5).log()).sum(1).detach()
    weight = 1 + (-entropy).exp()
    confusion = (p * (len(p) * weight / weight.sum())[:, None]).T @ p
    confusion = confusion / confusion.sum(1, keepdim=True)
    return (confusion.sum() - confusion.trace()) / len(confusion)
