"""Provide a stored correction as a ``torch.nn.Module``, for GPUs or inside a network.

The weights are those of :mod:`mgpa.maps.runtime.folding`. The algebra is that of
:mod:`mgpa.maps.runtime.numpy_replay`, with the J x J part of a step in float64 on all devices.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from ..._common.checks import require_finite
from ...errors import MapError
from ...trust_region import multiplier, step_coefficients
from .folding import Folded, fold_affine, fold_spread, fold_stages, linear_gram, uncentred
from .numpy_replay import run_stages, weighted_coefficients

Tensor = Any  # torch.Tensor

# Rows per block. On a CPU, the hidden layer of a block should fit into the cache. On a GPU, only memory
# limits the size, and long blocks reduce the relative cost of starting many small kernels.
CPU_ROWS = 2048
DEVICE_BYTES = 2**31
WITHOUT_FLOAT64 = ("mps",)


def as_module(m: Any) -> MapModule:
    """Return a map as a module with buffers instead of parameters, differentiable in its input."""
    if m.kind == "staged":
        return StagedModule(m, fold_stages(m))
    return SpreadModule(m, fold_spread(m)) if m.kind == "spread" else AffineModule(m, fold_affine(m))


class MapModule(torch.nn.Module):  # type: ignore[misc]
    """Base class of modules that compute x ↦ x + strength · coordinates(x) @ back.

    Buffers hold the folded weights and, as ``scalars``, the numbers of the map, so that a state dict contains
    the complete map. The weights are cast once per type and device.
    """

    def __init__(self, m: Any, folded: Folded) -> None:
        super().__init__()
        self.n_features = m.n_features
        self.moves = m.rank > 0 and (m.kind != "staged" or len(m) > 0)
        self.array_names = tuple(vars(folded))
        for name, array in vars(folded).items():
            if array is None:  # torch.export would count a None buffer
                setattr(self, name, None)
            else:
                self.register_buffer(name, torch.from_numpy(np.array(array, order="C")))
        self.scalar_names = m.scalar_names
        numbers = [float(getattr(m, name)) for name in m.scalar_names]
        self.register_buffer("scalars", torch.tensor(numbers, dtype=torch.float64))
        self._prepared: dict[tuple[Any, ...], Any] = {}
        self._read_scalars()

    def forward(self, X: Tensor) -> Tensor:
        """Correct the rows of X (n, d), float32 or float64, on the module's device."""
        self._check(X)
        return self._correct(X)

    def _correct(self, X: Tensor) -> Tensor:
        if not self.moves or self.strength == 0:
            if not _tracing():
                self._require_finite(X, X)
            return X.clone()
        # Autocast would compute the products in half precision.
        autocast = _tracing() or torch.is_autocast_enabled(X.device.type)
        with torch.autocast(X.device.type, enabled=False) if autocast else nullcontext():
            weights = self._weights(X.dtype, X.device)
            try:
                coordinates = self._coordinates(X, weights)
            except (np.linalg.LinAlgError, torch.linalg.LinAlgError):  # some decompositions raise for NaN
                self._require_finite(torch.full((), torch.nan), X)
                raise
            if weights.back is None:
                corrected = torch.add(X, coordinates, alpha=self.strength)
            else:
                corrected = torch.addmm(X, coordinates, weights.back, alpha=self.strength)
            if not _tracing():  # checked last, because the check waits for the device
                self._require_finite(coordinates, X)
            return corrected

    def _coordinates(self, X: Tensor, weights: Any) -> Tensor:
        raise NotImplementedError

    def _check(self, X: Tensor) -> None:
        if X.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"X has dtype {X.dtype}; convert it with X.float() or X.double() first.")
        if X.ndim != 2:
            hint = " For tokens (n, t, d) use mgpa.TokenMean or mgpa.transform_tokens." if X.ndim == 3 else ""
            raise ValueError(f"X has shape {tuple(X.shape)}; expected two dimensions (rows, features).{hint}")
        if X.shape[1] != self.n_features:
            raise ValueError(f"X has {X.shape[1]} features; this correction was fitted on {self.n_features}.")
        if X.device != self.center.device:
            raise ValueError(
                f"X is on {X.device} and this correction on {self.center.device}; move one with .to(...)."
            )
        if not _tracing() and torch.autograd.forward_ad.unpack_dual(X).tangent is not None:
            # The step would silently drop the tangent.
            raise NotImplementedError("A correction has no forward-mode derivative; use reverse mode.")

    def _require_finite(self, coordinates: Tensor, X: Tensor) -> None:
        # Check the sum first, in one pass; check each number only if the sum is not finite.
        if not (math.isfinite(coordinates.detach().sum()) or torch.isfinite(coordinates).all()):
            require_finite(X.detach().cpu().numpy(), "X")
            raise MapError("The correction overflows: X is many orders of magnitude from the fitting data.")

    def _weights(self, dtype: Any, device: Any) -> Any:
        if (dtype, device) in self._prepared:
            return self._prepared[dtype, device]
        if self.center.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"The correction's weights were cast to {self.center.dtype}, not precise enough; make "
                "the module again with to_torch() and keep it out of half precision."
            )
        # No inference tensors: cast weights are cached, and a later call may need gradients.
        with torch.inference_mode(False), torch.no_grad():
            weights = self._stored(dtype).cast(lambda tensor: tensor.to(dtype).contiguous())
        if not _tracing():  # traced tensors hold no numbers and must not outlive the trace
            self._prepared[dtype, device] = weights
        return weights

    def _stored(self, dtype: Any) -> Folded:
        return Folded(**{name: getattr(self, name) for name in self.array_names})

    def _read_scalars(self) -> None:
        for name, value in zip(self.scalar_names, self.scalars.tolist(), strict=True):
            setattr(self, name, value)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._prepared.clear()
        if fn(torch.empty(0)).device.type in WITHOUT_FLOAT64:
            super()._apply(lambda tensor: tensor.float(), recurse)
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._prepared.clear()
        self._read_scalars()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prepared": {}}


class AffineModule(MapModule):
    """:class:`~mgpa.maps.AffineMap` as a module."""

    def _correct(self, X: Tensor) -> Tensor:
        kernels = None if _tracing() or not self.moves or self.strength == 0 else _kernels_for(X)
        if kernels is not None and kernels.fits_affine(weights := self._weights(X.dtype, X.device)):
            out = torch.empty_like(X)
            self._require_finite(kernels.correct(X, out, weights, self.strength), X)
            return out
        return super()._correct(X)

    def _coordinates(self, X: Tensor, weights: Folded) -> Tensor:
        return torch.addmm(weights.offset, X - weights.center, weights.readout)


class SpreadModule(MapModule):
    """:class:`~mgpa.maps.PosteriorMap` as a module."""

    def _stored(self, dtype: Any) -> Folded:
        stored = super()._stored(dtype)
        return uncentred(stored) if dtype == torch.float64 else stored

    def _coordinates(self, X: Tensor, weights: Folded) -> Tensor:
        q, K = weights.square_weight.shape
        centred = X if weights.center is None else X - weights.center
        kernels = None if _tracing() else _kernels_for(X)
        if kernels is not None and weights.unseen_weight is None and kernels.fits_spread(weights):
            return kernels.blend(centred @ weights.first, weights)
        products = torch.addmm(weights.constant, centred, weights.first)
        scores = torch.addmm(products[:, q : q + K], products[:, :q].square(), weights.square_weight)
        p, end = torch.softmax(scores, dim=1), products.shape[1]
        if weights.unseen_weight is not None:
            end -= len(weights.unseen_weight) + K
            squares = products[:, end:-K].square() @ weights.unseen_weight
            odds = torch.nn.functional.pad(-products[:, -K:] - squares[:, None], (0, 1))
            unseen = torch.softmax(odds, dim=1)[:, K:]
            p = torch.cat([p * (1.0 - unseen), unseen], dim=1)
        shares = p.split(1, dim=1)
        edits = products[:, q + K : end].chunk(len(shares), dim=1)
        blended = shares[0] * edits[0]
        for share, edit in zip(shares[1:], edits[1:], strict=True):
            blended = torch.addcmul(blended, share, edit)
        return blended


class StagedModule(MapModule):
    """:class:`~mgpa.maps.StagedMap` as a module."""

    def _coordinates(self, X: Tensor, weights: Folded) -> Tensor:
        if _tracing():  # the number of blocks must not be baked into a graph
            return self._stages(X, weights)
        rows = CPU_ROWS
        if X.device.type != "cpu":
            rows = max(rows, DEVICE_BYTES // (X.element_size() * weights.constant.numel()))
        kernels = _kernels_for(X)
        if kernels is not None and not kernels.fits_stages(weights):
            kernels = None
        blocks = [self._stages(block, weights, kernels) for block in X.split(rows)]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks)

    def _stages(self, X: Tensor, weights: Folded, kernels: Any = None) -> Tensor:
        """Return Δz after the last stage for one block of rows, computed stage by stage or in one kernel."""
        h = (X - weights.center) * weights.inverse_scale
        first = torch.addmm(weights.constant, h, weights.first)  # one product for all stages
        if weights.start is not None:
            z = torch.addmm(weights.start_constant, h, weights.start)
        else:
            z = X.new_zeros(X.shape[0], weights.hidden_gate.shape[1])  # len(X) would be constant in a trace
        if kernels is not None:
            kernels.run_stages(first, z, weights, *self._constants(weights, X.device))
            return z
        point = None
        if weights.anchor_gate is not None:
            n_anchor = weights.anchor_gate.shape[1]
            first, point = first.split([first.shape[1] - n_anchor, n_anchor], dim=1)
        numbers = {"damping": self.damping, "radius": self.radius, "stabilizer": self.stabilizer}
        solve = partial(_coefficients, **numbers)
        return run_stages(first, point, z, weights, self.fraction, solve, _gelu_and_slope)

    def _constants(self, weights: Folded, device: Any) -> tuple[Tensor, Tensor]:
        """Return the linear Gram matrices and the constants on the device, cached to avoid transfers."""
        if ("constants", device) not in self._prepared:
            numbers = [self.damping, self.radius, self.stabilizer, self.fraction]
            constants = torch.tensor(numbers, dtype=torch.float64, device=device)
            self._prepared["constants", device] = linear_gram(weights.linear_gate), constants
        gram, constants = self._prepared["constants", device]
        return gram, constants


def _gelu_and_slope(u: Tensor) -> tuple[Tensor, Tensor]:
    below = 0.5 * torch.erf(math.sqrt(0.5) * u) + 0.5  # Φ(u)
    density = torch.exp(-0.5 * u.square()) * (1.0 / math.sqrt(2.0 * math.pi))  # φ(u)
    return u * below, torch.addcmul(below, u, density)


def _kernels_for(X: Tensor) -> Any:
    """Return the module of Triton kernels if it can correct these rows, otherwise None."""
    return _load_kernels() if X.is_cuda and not (torch.is_grad_enabled() and X.requires_grad) else None


@cache
def _load_kernels() -> Any:
    try:
        from . import triton_kernels
    except ImportError:  # a build of torch without Triton
        return None
    return triton_kernels


def _tracing() -> bool:
    return bool(torch.compiler.is_compiling() or torch.jit.is_tracing())


def _coefficients(gram: Tensor, e: Tensor, damping: float, radius: float, stabilizer: float) -> Tensor:
    """Return y, shape (n, J), with Δz = -Aᵀy; see :func:`~.numpy_replay.weighted_coefficients`."""
    if e.device.type == "cpu" and not e.requires_grad and not _tracing():
        # numpy shares the memory, has less overhead per call, and can stop when Newton's method converges.
        with np.errstate(over="ignore", invalid="ignore"):
            y = weighted_coefficients(gram.numpy(), e.numpy(), damping, radius, stabilizer)
        return torch.from_numpy(y)
    step = _differentiable_step if e.requires_grad else step_coefficients
    return weighted_coefficients(gram, e, damping, radius, stabilizer, step)


def _differentiable_step(gram: Tensor, e: Tensor, *, damping: float, radius: float) -> Tensor:
    """Return y = (G + (τ + ν) I)⁻¹ e with derivatives.

    Differentiation through eigenvectors fails for equal eigenvalues. Therefore ν is computed without a graph.
    Two Newton steps on the secular equation, starting at the solution, leave the value of ν unchanged and
    supply its derivatives: each step doubles the order of correct derivatives.
    """
    with torch.no_grad():
        eigenvalues, vectors = torch.linalg.eigh(gram)
        w, lam = (vectors.mT @ e[:, :, None])[:, :, 0].square(), eigenvalues.clamp(min=0.0)
        nu = multiplier(list(zip(w.unbind(1), lam.unbind(1), strict=True)), damping, radius)
        outside = nu > 0  # where the unconstrained step is short enough, ν is 0 and remains 0
    identity = torch.eye(e.shape[1], dtype=e.dtype, device=e.device)

    def solve(nu: Tensor, right: Tensor) -> Tensor:
        return torch.linalg.solve(gram + (damping + nu)[:, None, None] * identity, right)

    for _ in range(2):
        y = solve(nu, e)
        Gy = (gram @ y[:, :, None])[:, :, 0]
        # Rows inside the radius get the value 1, so that 0 / 0 does not reach the gradient.
        length2 = torch.where(outside, (y * Gy).sum(1), 1.0)
        slope = torch.where(outside, (Gy * solve(nu, y)).sum(1), 1.0)
        nu = torch.where(outside, nu + length2 / slope * (length2.sqrt() / radius - 1.0), nu)
    return solve(nu, e)
