"""The maps of other methods as torch modules: routed by source, and projective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .. import ProjectiveMap, RoutedMap
from ..projective import FLAT
from .folding import Folded, FoldedAffine, fold_routed
from .torch_module import CPU_ROWS, DEVICE_BYTES, MapModule, Tensor, _tracing

PROJECTED_ROWS = 16384


class RoutedModule(MapModule):
    """:class:`~mgpa.maps.RoutedMap` as a module, which takes positions among ``sources``, not labels."""

    def __init__(self, m: RoutedMap) -> None:
        super().__init__(m, fold_routed(m))
        self.sources = m.sources

    def forward(self, X: Tensor, source: Tensor | None = None) -> Tensor:
        """Correct rows of known sources.

        Parameters
        ----------
        X : (n, d) tensor
            Float32 or float64, on the module's device.
        source : (n,) tensor or array of integers
            Each row's position among ``sources``.
        """
        self._check(X)
        return self._correct(X, self._positions(source, X))

    def _positions(self, source: Any, X: Tensor) -> Tensor:
        expected = (
            f"one position per row of X: {', '.join(f'{i} for {s!r}' for i, s in enumerate(self.sources))}"
        )
        if source is None:
            raise ValueError(f"source is missing; this correction is source-aware and needs {expected}.")
        source = torch.as_tensor(source, device=X.device)
        if source.is_floating_point() or source.is_complex() or source.dtype == torch.bool:
            raise ValueError(f"source has dtype {source.dtype}; expected integers, {expected}.")
        if source.shape != X.shape[:1]:
            raise ValueError(
                f"source has shape {tuple(source.shape)} for {len(X)} rows; expected {expected}."
            )
        K = len(self.sources)
        if _tracing():  # a graph cannot raise, but it must not count negative positions from the end
            return torch.where(source < 0, K, source.long())
        wrong = source[(source < 0) | (source >= K)]
        if len(wrong):
            raise ValueError(f"source has {int(wrong[0])}; expected {expected}.")
        return source.long()

    def _is_identity(self) -> bool:
        return bool(self.strength == 0)

    def _coordinates(self, X: Tensor, weights: FoldedAffine, source: Tensor) -> Tensor:
        centred = X - weights.center
        if weights.readout.ndim == 2:
            return torch.addcmul(weights.offset[source], centred, weights.readout[source])
        # What belongs to no source, in a traced graph, comes out as NaN.
        edit = torch.full_like(X, torch.nan)
        for s, (G, offset) in enumerate(zip(weights.readout, weights.offset, strict=True)):
            mine = source == s
            if _tracing():  # the number of a source's rows must not be baked into a graph
                edit = torch.where(mine[:, None], torch.addmm(offset, centred, G), edit)
            else:
                edit[mine] = torch.addmm(offset, centred[mine], G)
        return edit


@dataclass(frozen=True, kw_only=True)
class ProjectiveWeights(Folded):
    """A projective map's arrays as they were stored: there is nothing to fold."""

    inverse_scale: Tensor
    scale: Tensor
    hidden_weight: Tensor
    hidden_bias: Tensor
    output_weight: Tensor
    output_bias: Tensor


class ProjectiveModule(MapModule):
    """:class:`~mgpa.maps.ProjectiveMap` as a module.

    Its derivative takes ∇f for constant, as it is wherever no hidden unit switches.
    """

    def __init__(self, m: ProjectiveMap) -> None:
        stages = {name: getattr(m, name) for name in m.stage_tensors}
        arrays = {"center": m.center, "inverse_scale": 1.0 / m.scale, "scale": m.scale, **stages}
        super().__init__(m, ProjectiveWeights(**arrays))

    def _is_identity(self) -> bool:
        return bool(self.strength == 0 or len(self.hidden_weight) == 0)

    def _coordinates(self, X: Tensor, weights: ProjectiveWeights) -> Tensor:
        if _tracing():  # the number of blocks must not be baked into a graph
            return self._displacement(X, weights)
        rows = CPU_ROWS
        if X.device.type != "cpu":
            numbers = 4 * (self.n_features + self.hidden_weight.shape[1])
            rows = max(rows, DEVICE_BYTES // (X.element_size() * numbers))
        return torch.cat([self._displacement(block, weights) for block in X.split(rows)])

    def _displacement(self, X: Tensor, weights: ProjectiveWeights) -> Tensor:
        start = h = (X - weights.center) * weights.inverse_scale
        last = len(weights.hidden_weight) - 1
        stages = zip(*(getattr(weights, name) for name in ProjectiveMap.stage_tensors), strict=True)
        for k, stage in enumerate(stages):
            h = projected(h, *stage, fraction=self.fraction if k == last else 1.0)
        return (h - start) * weights.scale


def projected(h: Tensor, W1: Tensor, b1: Tensor, W2: Tensor, b2: Tensor, *, fraction: float = 1.0) -> Tensor:
    """Return rows with the linearised margin taken to zero; see :func:`mgpa.maps.projective.project`."""
    u = torch.addmm(b1, h, W1.T)
    pick = _top_two(u, W2, b2)
    slope = (u > 0) * (pick @ W2)
    margin = (slope * u).sum(1) + pick @ b2
    gradient = slope @ W1
    length2 = gradient.square().sum(1)
    # Flat rows get a harmless 1, lest 0 / 0 reach the derivative.
    flat = length2 <= FLAT
    step = torch.where(flat, 0.0, margin) / torch.where(flat, 1.0, length2)
    return h - (fraction * step)[:, None] * gradient


def project_rows(H: Tensor, stage: list[Tensor]) -> Tensor:
    """Return all rows moved by one stage, without a graph and in blocks."""
    with torch.no_grad():
        return torch.cat([projected(rows, *stage) for rows in H.split(PROJECTED_ROWS)])


def _top_two(u: Tensor, W2: Tensor, b2: Tensor) -> Tensor:
    """Return +1 for the largest logit and -1 for the second; see :func:`mgpa.maps.projective.top_two`."""
    K = len(W2)
    if K == 2:
        return torch.tensor([[-1.0, 1.0]], dtype=u.dtype, device=u.device)
    logits = torch.addmm(b2, torch.relu(u.detach()), W2.T)
    positions = torch.arange(K, device=u.device)
    first = logits.argmax(1)[:, None] == positions
    second = logits.masked_fill(first, -np.inf).argmax(1)[:, None] == positions
    return first.to(u.dtype) - second.to(u.dtype)
