"""Iterative gradient-based projection (Iskander, Radinsky and Belinkov, 2023), in logit space.

Each stage trains a new ReLU network d → d → K to predict the source, then moves each row to the point where
the network's linearised score is zero: h ← h - f ∇f / ‖∇f‖².
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from .._common.extras import torch_device
from .._common.parameters import Constraint, flag, number, read_seed, seed, text, whole
from .._common.progress import progress
from ..estimators.base import HeldOut, MethodTags, SequentialEstimator
from ..labels import to_numpy
from ..maps import MapInfo, ProjectiveMap
from ..maps.sequential import project
from ..moments import Standardizer
from ..pairs import Pairs
from ..stages import Rows, complete_stages_kept
from ..statistics import LabelledRows, require_several

Array = Any  # torch.Tensor
ONE_THREAD_WIDTH = 256  # up to this number of features, one thread is fastest
PROJECTED_ROWS = 16384  # rows per block, which bounds the memory for hidden units
WEIGHT_DECAY, MIN_GAIN = 0.01, 0.002


class IGBP(SequentialEstimator):
    """Erase the source by successive projections against many small networks.

    Reference: Iskander, Radinsky, Belinkov, "Shielded representations: protecting sensitive attributes
    through iterative gradient-based projection", Findings of ACL 2023. Implemented from its description, with
    longer training as in the MGPA paper's comparison.

    Needs source labels and torch to fit. No pairs, no task. Source-blind at application.

    What it cannot do: bound its steps, or keep task information. Every direction may be edited. It guarantees
    a zero linearised score only for the network of each stage, not for other readers.

    Parameters
    ----------
    n_stages : int
        Number of networks and projections; all are fitted.
    learning_rate, batch_size : float, int
        Settings of AdamW.
    max_epochs : int
        Maximum number of epochs per network. The weights of the last epoch are kept, not the best.
    patience : int
        Stop training after this number of epochs without a rise of more than .002 in accuracy on (X_val,
        source_val). As published, the first epoch and epochs with perfect accuracy count as epochs without a
        rise. Without X_val, accuracy is measured on the fitting rows.
    standardize : bool
        As in :class:`~mgpa.ClosedFormMGPA`.
    device : {"auto", "cpu", "cuda", ...}
        Device for training; "auto" uses CUDA if available.
    random_state : int, RandomState or None
        Seed; the same seed gives the same map.
    verbose : bool
        Show progress.

    Attributes
    ----------
    history_ : list of dict
        For each stage: number of ``epochs``, last ``accuracy``, and ``movement`` ‖H' - H‖ / ‖H‖ of the rows
        on which accuracy is measured, in standardised coordinates.
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True)

    map_: ProjectiveMap
    history_: list[dict[str, Any]]

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "n_stages": whole(), "learning_rate": number(above=0), "batch_size": whole(1), "max_epochs": whole(1),
        "patience": whole(1), "standardize": flag, "device": text, "random_state": seed, "verbose": flag,
    }  # fmt: skip

    def __init__(
        self, *, n_stages: int = 100, learning_rate: float = 2e-4, batch_size: int = 256,
        max_epochs: int = 50, patience: int = 10, standardize: bool = True, device: str = "auto",
        random_state: Any = None, verbose: bool = False,
    ) -> None:  # fmt: skip
        self.n_stages = n_stages
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.standardize = standardize
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, data: LabelledRows, pairs: Pairs | None, held_out: HeldOut) -> None:
        device = torch_device(self.device, "IGBP")
        import torch

        weight = data.sample_weight
        K = require_several(data.sources, data.source_weights)
        purpose = "they decide how long each network trains"
        held, held_codes = self._read_held_out(data.sources, held_out, purpose)
        standardizer = Standardizer.from_rows(data.X, weight, self.standardize).require_variation()
        first_seed = read_seed(self.random_state)
        info = self._info(standardizer, random_state=first_seed, **data.facts)
        self.sources_, self.history_ = data.sources, []
        H = torch.as_tensor(standardizer.apply(data.X), device=device)
        watched = H if held is None else torch.as_tensor(standardizer.apply(held), device=device)
        watch = Rows(watched, data.codes if held is None else held_codes, weight if held is None else None)
        varies = torch.as_tensor(standardizer.varies, dtype=H.dtype, device=device)
        stages: list[list[NDArray[Any]]] = []
        with (
            threadpool_limits(1 if data.X.shape[1] < ONE_THREAD_WIDTH else None),
            complete_stages_kept(lambda: self._finish(stages, K, standardizer, info)),
        ):
            for k in progress(range(self.n_stages), "IGBP stages", self.verbose):
                stage, record = self._train(H, data, K, watch, first_seed + 1009 * k)
                # Constant features must neither influence the map nor be moved by it.
                stage[0] *= varies
                with torch.no_grad():
                    H, held_rows = (
                        torch.cat([project(part, *stage) for part in rows.split(PROJECTED_ROWS)])
                        for rows in (H, watch.H)
                    )
                watch.H = H if held is None else held_rows
                if not (torch.isfinite(H).all() and torch.isfinite(watch.H).all()):
                    raise ValueError(
                        f"IGBP diverged in stage {k + 1}, because its steps are not bounded. Use "
                        f"n_stages={k} or fewer, or train longer."
                    )
                self.history_.append({"stage": k, **record, "movement": watch.movement()})
                stages.append([to_numpy(tensor) for tensor in stage])

    def _train(
        self, H: Array, data: LabelledRows, n_sources: int, watch: Rows, seed: int
    ) -> tuple[list[Array], dict[str, Any]]:
        """Return W₁, b₁, W₂, b₂ of one stage's network, and its training history."""
        from ..networks import HiddenLayerNetwork, Training

        d = H.shape[1]
        training = Training(
            HiddenLayerNetwork(d, d, n_sources, "relu"),
            H,
            data.codes,
            [seed],
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            weight_decay=WEIGHT_DECAY,
            shuffle_seeds=[seed + 1],
            sample_weight=data.sample_weight,
        )
        accuracies: list[float] = []
        while len(accuracies) < self.max_epochs:
            training.epoch()
            predicted = training.logits(watch.H)[0].argmax(1)
            accuracies.append(float(np.average(to_numpy(predicted) == watch.codes, weights=watch.weight)))
            if stale_epochs(accuracies) >= self.patience:
                break
        weights = [p[0] for p in training.parameters()]
        return weights, {"epochs": len(accuracies), "accuracy": accuracies[-1]}

    def _finish(
        self, stages: list[list[NDArray[Any]]], n_sources: int, standardizer: Standardizer, info: MapInfo
    ) -> None:
        d = len(standardizer.center)
        shapes = (d, d), (d,), (n_sources, d), (n_sources,)
        tensors: dict[str, Any] = {
            name: np.reshape(np.array([stage[i] for stage in stages], dtype=np.float32), (-1, *shape))
            for i, (name, shape) in enumerate(zip(ProjectiveMap.stage_tensors, shapes, strict=True))
        }
        self.n_stages_ = len(stages)
        del self.history_[self.n_stages_ :]
        self.map_ = ProjectiveMap(center=standardizer.center, scale=standardizer.scale, info=info, **tensors)


def stale_epochs(accuracies: list[float]) -> int:
    """Return the number of final epochs without a rise; the first and perfect epochs count, as published."""
    best, stale = accuracies[0], 1
    for accuracy in accuracies[1:]:
        fresh = best + MIN_GAIN < accuracy < 1.0
        best, stale = (accuracy, 0) if fresh else (best, stale + 1)
    return stale
