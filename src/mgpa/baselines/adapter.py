"""Post-training augmentation invariance: a small network after the encoder, trained on pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._common.extras import torch_device
from .._common.parameters import Constraint, flag, nothing, number, read_seed, seed, source_label, text, whole
from ..estimators.base import CorrectionEstimator, HeldOut, MethodTags
from ..maps import CorrectionMap
from ..moments import Standardizer
from ..pairs import Pairs
from ..statistics import LabelledRows, Statistics, require_several
from ._base import Floats, InMemory, direction_words, reference_index, views_of
from .paired_regressions import pair_folds

MAX_SEED = 2**31 - 1
BLOCK_ROWS = 8192
CHECK_EVERY, PATIENCE = 50, 6  # steps between checks; checks without progress before training ends


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AdapterMap(InMemory, CorrectionMap):
    """The map h' = h + W₂ relu(W₁ h + b₁) + b₂ in standardised coordinates; it exists only in memory.

    Attributes
    ----------
    hidden_weight, hidden_bias, output_weight, output_bias : (H, d), (H,), (d, H), (d,)
        W₁, b₁, W₂ and b₂.
    """

    hidden_weight: Floats
    hidden_bias: Floats
    output_weight: Floats
    output_bias: Floats

    shapes: ClassVar[dict[str, str]] = {
        "hidden_weight": "H d", "hidden_bias": "H", "output_weight": "d H", "output_bias": "d",
    }  # fmt: skip
    scalar_names: ClassVar[tuple[str, ...]] = ("strength",)

    def _apply(self, X: NDArray[Any], out: NDArray[Any]) -> bool:
        W1, b1, W2, b2 = (getattr(self, name).astype(X.dtype) for name in self.shapes)
        center, scale = self.center.astype(X.dtype), self.scale.astype(X.dtype)
        factor = (self.strength * self.scale).astype(X.dtype)
        for start in range(0, len(X), BLOCK_ROWS):
            rows = X[start : start + BLOCK_ROWS]
            hidden = np.maximum(((rows - center) / scale) @ W1.T + b1, 0)
            out[start : start + BLOCK_ROWS] = rows + factor * (hidden @ W2.T + b2)
        return bool(np.isfinite(out).all())

    def _describe(self) -> str:
        return f"network of {len(self.hidden_bias)} hidden units"


class AugmentationInvariance(CorrectionEstimator):
    """Train a one-hidden-layer adapter that moves all views of an event to the view of the reference.

    Reference: Eikenberry, Liu, Lee, "Post-training augmentation invariance", Transactions on Machine Learning
    Research, 2026 (arXiv 2505.11702). As published, the encoder is frozen, and the adapter maps augmented
    inputs to each other but hardly moves unaugmented inputs. The details are ours: measurement views replace
    augmentations, and views of the reference replace unaugmented inputs. The loss is the mean squared
    distance between E(h) and the reference's view r, for all views h of an event, plus ``stay`` times the
    same distance for h = r. E(h) = h + network(h) is initially the identity. The weights with the smallest
    loss on held-out pairs are kept (a fifth of the pairs; whole participants if they are known).

    Needs pairs, source labels and torch to fit. No task. Source-blind at application.

    What it cannot do: give a guarantee. It recognises sources only from their rows. If embeddings of the
    sources overlap, rows move to the mean of the possible targets, and far from all pairs the network
    extrapolates. Noisy pairs shrink its output. Its correction exists only in memory and cannot be saved.

    Parameters
    ----------
    reference : label, int or None
        The reference source: a label, or a position among the sorted labels. None: the first.
    hidden : int or None
        Number of hidden units; None: the number of features.
    stay : float
        Weight of the loss that keeps views of the reference in place.
    n_steps, learning_rate, batch_size, weight_decay : int, float, int, float
        Settings of AdamW. The held-out loss is checked every 50 steps.
    standardize : bool
        Scale features to unit variance before fitting.
    device : {"auto", "cpu", "cuda", ...}
        Device for training; "auto" uses CUDA if available.
    random_state : int, RandomState or None
        The same seed gives the same map.

    Attributes
    ----------
    reference_ : label
        The reference source.
    history_ : list of float
        Loss on the held-out pairs, before training and every 50 steps.
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True, needs_pairs=True)

    map_: AdapterMap
    reference_: Any
    history_: list[float]

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "reference": source_label | nothing, "hidden": whole(1) | nothing, "stay": number(0),
        "n_steps": whole(), "learning_rate": number(above=0), "batch_size": whole(1),
        "weight_decay": number(0), "standardize": flag, "device": text, "random_state": seed,
    }  # fmt: skip

    def __init__(
        self, *, reference: Any = None, hidden: int | None = None, stay: float = 1.0, n_steps: int = 2000,
        learning_rate: float = 1e-3, batch_size: int = 256, weight_decay: float = 1e-4,
        standardize: bool = True, device: str = "auto", random_state: Any = None,
    ) -> None:  # fmt: skip
        self.reference = reference
        self.hidden = hidden
        self.stay = stay
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.standardize = standardize
        self.device = device
        self.random_state = random_state

    def _fit(self, data: LabelledRows, pairs: Pairs | None, held_out: HeldOut) -> None:
        device, first_seed = torch_device(self.device, "AugmentationInvariance"), read_seed(self.random_state)
        weight = data.sample_weight
        K = require_several(data.sources, data.source_weights)
        standardizer = Standardizer.from_rows(data.X, weight, self.standardize).require_variation()
        target, every = (
            reference_index(self.reference, data.sources),
            Statistics.from_rows(data, pairs).pairs(),
        )
        rows, goals, held = [], [], []
        for s in range(K):
            if s != target:
                *views, people = views_of(every, data.sources, s, target)
                A, B = map(standardizer.apply, views)
                rows.append(A)
                goals.append(B)
                # A single pair serves for both training and checking.
                held.append(pair_folds(len(A), people) == 0 if len(A) > 1 else np.zeros(len(A), bool))
        H, R, test = (np.concatenate(parts) for parts in (rows, goals, held))
        (W1, b1, W2, b2), self.history_ = self._train(H, R, test, device, first_seed)
        varies = standardizer.varies  # constant features are neither moved nor used
        self.sources_, self.reference_ = data.sources, data.sources[target].item()
        words = direction_words(target, data.sources)
        facts = {"random_state": first_seed, "n_contrasts": len(H), "evidence": words, **data.facts}
        self.map_ = AdapterMap(
            center=standardizer.center,
            scale=standardizer.scale,
            info=self._info(standardizer, **facts),
            hidden_weight=W1 * varies,
            hidden_bias=b1,
            output_weight=W2 * varies[:, None],
            output_bias=b2 * varies,
        )

    def _train(
        self, H: Floats, R: Floats, held: NDArray[np.bool_], device: Any, first_seed: int
    ) -> tuple[list[NDArray[Any]], list[float]]:
        """Return W₁, b₁, W₂ and b₂ with the smallest held-out loss, and the history of this loss."""
        import torch

        from ..networks import initial_weights

        h, r = (torch.as_tensor(part, dtype=torch.float32, device=device) for part in (H, R))
        d = h.shape[1]
        width = d if self.hidden is None else self.hidden
        start = initial_weights(((width, d), (d, width)), first_seed)
        start[2:] = [torch.zeros(d, width), torch.zeros(d)]  # E is initially the identity
        weights = [torch.as_tensor(w, device=device).clone().requires_grad_() for w in start]
        optimizer = torch.optim.AdamW(weights, lr=self.learning_rate, weight_decay=self.weight_decay)
        draw = torch.Generator().manual_seed(first_seed % MAX_SEED)
        train = torch.as_tensor(np.flatnonzero(~held))
        test = torch.as_tensor(np.flatnonzero(held) if held.any() else np.arange(len(H)), device=device)

        def loss(rows: Any) -> Any:
            def moved(x: Any) -> Any:
                W1, b1, W2, b2 = weights
                return x + torch.relu(x @ W1.T + b1) @ W2.T + b2

            view, goal = h[rows], r[rows]
            return (moved(view) - goal).square().mean() + self.stay * (moved(goal) - goal).square().mean()

        def checked() -> float:
            with torch.no_grad():
                return float(loss(test))

        history, best = [checked()], [w.detach().clone() for w in weights]
        for step in range(1, self.n_steps + 1):
            batch = train[torch.randint(len(train), (min(self.batch_size, len(train)),), generator=draw)]
            optimizer.zero_grad()
            loss(batch.to(device)).backward()
            optimizer.step()
            if step % CHECK_EVERY == 0 or step == self.n_steps:
                history.append(checked())
                if history[-1] <= min(history):
                    best = [w.detach().clone() for w in weights]
                elif np.argmin(history) < len(history) - PATIENCE:
                    break
        return [w.cpu().numpy() for w in best], history
