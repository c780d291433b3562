"""Fold the weights of a map into the form used for application, once, in float64, for all runtimes.

The numpy, torch and ONNX runtimes cast these arrays and use them.

The input of a stage is h = h₀ + B Δz, where h₀ is the standardised row and Δz the displacement so far. The
first layer of the stage is W₁h = W₁h₀ + (W₁B) Δz, and its anchor depends on h₀ only. One matrix product,
``h₀ @ first``, therefore computes all terms in h₀ for all stages; the loop over stages then needs only the r
coordinates of the gate, and the gated gradient Bᵀ∇s = (W₁B)ᵀ(w₂ ⊙ gelu'(u)) needs no automatic
differentiation.

The target of a score may be its value at the anchored point h₀ - D (Gᵀh₀ + c). The a coordinates p = Gᵀh₀ + c
of this point are then part of the same product. The hidden layer at this point is W₁h₀ - (W₁D) p, without a
second product of full width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..._common.arrays import double, namespace
from ..densities import unseen_odds

Array = Any  # numpy array, torch tensor, value of an ONNX graph; None if unused

# For GELU in numpy and in compiled stages: erfc(x) ≈ (a₁t + … + a₅t⁵) exp(-x²) with t = 1 / (1 + px),
# Abramowitz & Stegun 7.1.26. The error of 1.5e-7 is similar to float32 rounding. The derivative of GELU uses
# the same exponential. The constants absorb p, the √2 of the normal density and its normalisation.
P = 0.3275911 / math.sqrt(2.0)
LOG_DENSITY = -0.5 * math.log(2.0 * math.pi)
ERFC = tuple(
    -0.5 * math.sqrt(2.0 * math.pi) * a / P**i
    for i, a in enumerate((0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429), start=1)
)


class Folded(SimpleNamespace):
    """Arrays that compute the displacement at strength 1; each ``fold_`` function lists its arrays.

    ``center`` (d,) is subtracted from each row first. The displacement is the computed coordinates times
    ``back`` (k, d), or the coordinates themselves if ``back`` is None.
    """

    def cast(self, convert: Callable[[Array], Array]) -> Folded:
        """Return the weights with each array converted to another precision, library or device."""
        return Folded(
            **{name: None if array is None else convert(array) for name, array in vars(self).items()}
        )


def fold_affine(m: Any) -> Folded:
    """Fold an affine map into (x - center) readout + offset; if k is near d, into its displacement."""
    readout, offset, back = double(m.readout), double(m.offset), -double(m.direction.T)
    if 2 * len(back) > m.n_features:
        return Folded(center=double(m.center), readout=readout @ back, offset=offset @ back, back=None)
    return Folded(center=double(m.center), readout=readout, offset=offset, back=back)


def fold_stages(m: Any) -> Folded:
    """Fold a staged map: S stages of L linear and N network scores, with H hidden units, in a gate of rank r.

    Arrays
    ------
    inverse_scale : (d,)
        h₀ = (x - center) ⊙ inverse_scale.
    first, constant : (d, S (H + L + N) + a), (S (H + L + N) + a,)
        For each stage, the part of its hidden units and score residuals that depends on h₀; the arrays below
        add the parts that depend on Δz and on hidden units. The last a columns are the coordinates of the
        anchored point, if used.
    hidden_gate, linear_gate : (S, r, H), (S, L, r)
        Weights of Δz in the hidden units and (transposed) in the linear scores; the latter are also the gated
        gradients of the linear scores.
    output : (S, H, N)
        Weights of the hidden units, after GELU, in the network's scores.
    gradient_gate : (S, H, N r)
        diag(w₂) W₁B: the slopes of the hidden layer times this matrix are the gated gradients of its scores.
    anchor_gate : (S, a, H) or None
        Weights of the anchored point's coordinates in the hidden units. The network's scores at this point
        remain to be subtracted from the residuals.
    start, start_constant : (d, r), (r,), or None
        Weights of h₀ in the initial Δz; None: Δz starts at zero.
    """
    S, L, H, N = m.sizes
    basis, output = double(m.basis), double(m.output_weight)
    linear, hidden = double(m.linear_weight), double(m.hidden_weight)
    # A linear critic and its anchor are both affine in h₀, so their difference is one column of weights.
    if m.anchor_readout is None:
        anchor, anchor_bias = double(m.anchor_weight), double(m.anchor_bias)
        residual = np.concatenate([linear - anchor[:, :L], -anchor[:, L:]], axis=1)
        residual_constant = np.concatenate([m.linear_bias, m.output_bias], axis=1) - anchor_bias
        readout, offset, anchor_gate = np.zeros((m.n_features, 0)), np.zeros(0), None
    else:
        readout, offset = double(m.anchor_readout), double(m.anchor_offset)
        direction = double(m.anchor_direction)
        nothing = np.zeros((S, N, len(offset)))
        along = np.concatenate([linear @ direction, nothing], axis=1)  # (S, L + N, a)
        residual, residual_constant = along @ readout.T, along @ offset
        anchor_gate = -(hidden @ direction).swapaxes(1, 2)
    rows = np.concatenate([hidden, residual], axis=1).reshape(-1, m.n_features)
    constant = np.concatenate([m.hidden_bias, residual_constant], axis=1).ravel()
    gated = hidden @ basis
    return Folded(
        center=double(m.center),
        inverse_scale=1.0 / double(m.scale),
        first=np.concatenate([rows.T, readout], axis=1),
        constant=np.concatenate([constant, offset]),
        hidden_gate=gated.swapaxes(1, 2),
        linear_gate=linear @ basis,
        output=output.swapaxes(1, 2),
        gradient_gate=np.einsum("snh,shr->shnr", output, gated).reshape(S, H, N * m.rank),
        anchor_gate=anchor_gate,
        start=None if m.start_readout is None else double(m.start_readout),
        start_constant=None if m.start_offset is None else double(m.start_offset),
        back=(basis * m.scale[:, None]).T,
    )


def uncentred(folded: Folded) -> Folded:
    """Return the weights of :func:`fold_spread` for uncentred rows, which saves a pass over the data."""
    constant = folded.constant - folded.center @ folded.first
    return Folded(**{**vars(folded), "center": None, "constant": constant})


def linear_gram(linear_gate: Array) -> Array:
    """Return the Gram matrices of the linear scores, (S, L, L), in float64.

    They are computed from the gate as rounded by the runtime, like all other Gram entries; mixing rounded and
    exact entries would make a singular matrix indefinite.
    """
    wide = double(linear_gate)
    return wide @ namespace(wide).swapaxes(wide, 1, 2)


def fold_spread(m: Any) -> Folded:
    """Fold a posterior map with the edits of K sources, so that one product computes all terms in the row.

    Arrays
    ------
    first, constant : (d, q + K + K r), (q + K + K r,)
        Weights of the row in the readings to be squared, the linear scores, and the edits of each source.
    square_weight : (q, K)
        Weights of the squared readings in the scores.

    A map with an edit for unseen devices has one more edit and j + K more columns: j readings to be squared,
    and the linear part of the log-likelihood ratio of an unseen device to each known device.

    unseen_weight : (j,) or None
        Weights of these squared readings in all K ratios.
    """
    scale = double(m.scale)
    unit = scale if m.direction is None else 1.0
    edit, offset, weight = double(m.edit) * unit, double(m.edit_offset) * unit, None
    columns, constants = [double(m.square).T, double(m.linear).T], [np.zeros(len(m.square)), double(m.bias)]
    if m.unseen_odds is not None:
        edit = np.concatenate([edit, double(m.unseen_edit)[None] * unit])
        offset = np.concatenate([offset, double(m.unseen_offset)[None] * unit])
    columns.append(edit.swapaxes(0, 1).reshape(m.n_features, -1))
    constants.append(offset.ravel())
    if m.unseen_odds is not None:
        square, weight, linear, bias = unseen_odds(double(m.unseen_means))
        columns += [double(m.unseen_whiten) @ square, double(m.unseen_whiten) @ linear]
        constants += [np.zeros(len(weight)), bias - double(m.unseen_odds)]
    return Folded(
        center=double(m.center),
        first=np.concatenate(columns, axis=1) / scale[:, None],
        constant=np.concatenate(constants),
        square_weight=double(m.square_weight),
        unseen_weight=weight,
        back=None if m.direction is None else double(m.direction) * scale,
    )
