"""The bounded step (eq. (5), appendix A.7, "The smooth trust-region step").

For each row with J linearised score residuals ``e + A Δz``, the step solves

    min ½‖A Δz + e‖² + ½ τ ‖Δz‖²   subject to   ‖Δz‖ ≤ ρ.

Its unique solution is ``Δz = -Aᵀ y`` with ``y = (G + (τ + ν) I)⁻¹ e`` and ``G = A Aᵀ``: only the
J x J Gram matrix matters, whatever the rank of the gate. ν is zero when the free step is short enough
and otherwise the root of the secular equation ‖Δz(ν)‖ = ρ. In the eigenbasis of G,

    ‖Δz(ν)‖² = Σ_i w_i λ_i / (λ_i + τ + ν)²,   w_i = (v_iᵀ e)²,

and Newton's method on 1/‖Δz(ν)‖, which is concave and increasing, climbs to the root from the left
without ever passing it.

All functions take numpy arrays or torch tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._common.arrays import namespace

Array = Any  # numpy array or torch tensor

# Newton needs about four steps on weighted problems and eleven on the most ill-scaled ones tried
# (tests/core/test_trust_region.py holds the result to an independent solver).
MAX_NEWTON_STEPS = 14
# Fixed number of steps in compiled or recorded torch programs, which cannot test convergence.
BLIND_NEWTON_STEPS = 8
_TINY = 1e-37  # a normal number even in float32


def smooth_weights(squared_norm: Array, stabilizer: float) -> Array:
    """Return W_jj = (‖A_j‖² + λ²)^(-1/2), eq. (13), which balances critics of different scale."""
    xp = namespace(squared_norm)
    return 1.0 / xp.sqrt(squared_norm + stabilizer * stabilizer)


def multiplier(spectrum: list[tuple[Array, Array]], damping: float, radius: float) -> Array:
    """Return the multiplier ν ≥ 0 of each row, given its J pairs ``(w_i, λ_i)``.

    Every term obeys √(w_i λ_i) / (λ_i + τ + ν) ≤ ρ at the solution, so the largest of the J bounds on ν
    that follow lies left of the root, and ‖Δz‖ there is at most √J ρ whatever the scale of the problem.
    """
    xp = namespace(spectrum[0][0])
    zero = spectrum[0][0] * 0.0
    nu = zero
    for w, lam in spectrum:
        nu = xp.maximum(nu, xp.sqrt(w * lam) / radius - lam - damping)
    if len(spectrum) == 1:
        return nu
    blind = _is_blind(zero)
    for _ in range(BLIND_NEWTON_STEPS if blind else MAX_NEWTON_STEPS):
        length2, slope = zero, zero
        for w, lam in spectrum:
            shifted = 1.0 / (lam + damping + nu)
            term = w * lam * shifted * shifted
            length2 = length2 + term
            slope = slope + term * shifted
        newton = length2 / (slope + _TINY) * (xp.sqrt(length2) / radius - 1.0)
        nu = xp.maximum(nu + newton, zero)
        # Convergence is quadratic: after such a small step, the error is below rounding level.
        if not blind and not (newton > 1e-9 * (nu + damping)).any():
            break
    return nu


def _is_blind(array: Array) -> bool:
    """Return whether torch is compiling or recording a CUDA graph, so that code cannot branch on values."""
    if isinstance(array, np.ndarray):
        return False
    torch = namespace(array)
    return bool(torch.compiler.is_compiling() or (array.is_cuda and torch.cuda.is_current_stream_capturing()))


def two_scores(
    g11: Array, g22: Array, g12: Array, e1: Array, e2: Array, damping: float, radius: float
) -> tuple[Array, Array]:
    """Return (y₁, y₂) for two scores, from the spectral projectors of their 2 x 2 Gram matrix."""
    xp = namespace(e1)
    mean, half = 0.5 * (g11 + g22), 0.5 * (g11 - g22)
    gap = xp.sqrt(half * half + g12 * g12)
    # (e' G e - mean ‖e‖²) / gap is the division of the residual between the two eigenvectors. Without a gap,
    # any division is correct, because both eigenvalues are equal.
    tilt = (half * (e1 * e1 - e2 * e2) + 2.0 * g12 * e1 * e2) / (gap + _TINY)
    zero = e1 * 0.0
    total = e1 * e1 + e2 * e2
    spectrum = [
        (xp.maximum(0.5 * (total + tilt), zero), mean + gap),
        (xp.maximum(0.5 * (total - tilt), zero), xp.maximum(mean - gap, zero)),
    ]
    t = damping + multiplier(spectrum, damping, radius)
    determinant = (g11 + t) * (g22 + t) - g12 * g12
    return ((g22 + t) * e1 - g12 * e2) / determinant, ((g11 + t) * e2 - g12 * e1) / determinant


def step_coefficients(gram: Array, e: Array, *, damping: float, radius: float) -> Array:
    """Return y, shape (n, J), such that Δz = -Aᵀ y solves eq. (5) for every row, as in eq. (14).

    ``gram`` (n, J, J) is A Aᵀ of the gated Jacobians A (n, J, r), one row per critic score, and ``e`` (n, J)
    the score residuals, both weighted if weights are wanted (:func:`smooth_weights`).

    Examples
    --------
    >>> import numpy as np
    >>> A, e = np.array([[[3.0, 0.0]]]), np.array([[6.0]])
    >>> -step_coefficients(A @ A.mT, e, damping=1.0, radius=10.0) @ A[0]   # -3 * 6 / (9 + 1)
    array([[-1.8,  0. ]])
    >>> -step_coefficients(A @ A.mT, e, damping=1.0, radius=0.5) @ A[0]
    array([[-0.5,  0. ]])
    """
    xp = namespace(e)
    n_scores = e.shape[-1]
    if n_scores == 1:
        nu = multiplier([(e * e, gram[:, 0])], damping, radius)
        return e / (gram[:, 0] + damping + nu)
    if n_scores == 2:
        y = two_scores(gram[:, 0, 0], gram[:, 1, 1], gram[:, 0, 1], e[:, 0], e[:, 1], damping, radius)
        return xp.stack(y, -1)
    eigenvalues, vectors = xp.linalg.eigh(gram)
    eigenvalues = xp.maximum(eigenvalues, eigenvalues * 0.0)
    coordinates = (xp.swapaxes(vectors, -1, -2) @ e[:, :, None])[:, :, 0]
    spectrum = [(coordinates[:, i] ** 2, eigenvalues[:, i]) for i in range(n_scores)]
    nu = multiplier(spectrum, damping, radius)
    return (vectors @ (coordinates / (eigenvalues + damping + nu[:, None]))[:, :, None])[:, :, 0]
