"""The rows' effect without each participant, from the moments of all rows and the participants' means.

The effect in rows is e = Σₖ wₖᵀ [gₖ - βᵀfₖ], with gₖ and fₖ the gate and preserved coordinates of the
difference between the means of source k and of the first, wₖ weights that stay, and β the ridge regression of
gate on preserved coordinates within sources, in the coordinates of the principal axes of their scatter:

    (i)     (S + λI) β = P,       S diagonal, P the products of preserved and gate coordinates.

Nothing is kept of a participant but the weight ω and mean of each source's rows, E their deviations from the
sources' means, one row for every source and participant. Rows about their own participant's mean are taken to
scatter alike for all, so that without participant u, of share s = Σ_{i∈u} ωᵢ / Σω, they leave 1 - s of it.

With M the indicators of sources, ω₋ = Mᵀ(ω[not u]) the weights that remain and V = M diag(1/ω₋) ∘ ω[u]:

    (ii)    the means move by     -VᵀE,
    (iii)   the others deviate by  N E,     N = (I + M Vᵀ)[not u],
    (iv)    scatter and products become (1 - s) S + EqᵀA Eq  and  (1 - s) P + EqᵀA Ez,
            A = Nᵀ diag(ω[not u]) N - (1 - s) diag(ω),

with Ez and Eq the gate and preserved parts of E. A has a row for each source and participant, whatever the
number of features, and (i) becomes, by Woodbury's identity with D = (1 - s) S + λI,

    (v)     β w = x - D⁻¹Eqᵀ (I + A Eq D⁻¹Eqᵀ)⁻¹ A Eq x,     x = D⁻¹ [(1 - s) P + EqᵀA Ez] w.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .linalg import PrincipalAxes, outside
from .moments import Means, Moments
from .statistics import MOST_PEOPLE

Floats = NDArray[np.float64]


def _groups(participants: Means) -> dict[Any, int]:
    """Return which participants are left out together."""
    names = sorted({name for _, name in participants.parts}, key=repr)
    return {name: i % MOST_PEOPLE for i, name in enumerate(names)}


def means_without_each(participants: Means, sources: Sequence[Any]) -> list[Floats]:
    """Return the sources' means (K, d) without each participant, of those without whom no source is empty."""
    group = _groups(participants)
    whole = participants.grouped(lambda cell: cell[0])
    left_out: dict[int, dict[Any, tuple[float, Floats]]] = {}
    for (label, unit), part in participants.grouped(lambda cell: (cell[0], group[cell[1]])).parts.items():
        left_out.setdefault(unit, {})[label] = part
    found = []
    for own in left_out.values():
        means = []
        for label in sources:
            weight, mean = whole.parts[label]
            out, of_own = own.get(label, (0.0, mean))
            if weight > out:
                means.append(mean + (out / (weight - out)) * (mean - of_own))
        if len(means) == len(sources):
            found.append(np.stack(means))
    return found


def effects_without_each(
    moments: Moments,
    participants: Means,
    weights: Floats,
    basis: Floats,
    axes: PrincipalAxes,
    products: Floats,
    ridge: float,
    scale: Floats,
) -> tuple[Floats, bool]:
    """Return the effect without each participant, and whether every one of them has all sources.

    ``weights`` (K - 1, r) are wₖ, ``basis`` the gate's, ``axes`` and ``products`` the S and P of (i), and
    ``scale`` what features are divided by. NaN: a source has no other participant.
    """
    sources = list(moments.sources)
    group = _groups(participants)
    cells = participants.grouped(lambda cell: (cell[0], group[cell[1]]))
    source = np.array([sources.index(label) for label, _ in cells.parts])
    unit = np.array([u for _, u in cells.parts])
    n_units, K, r = len(set(unit.tolist())), len(sources), basis.shape[1]
    E = (np.stack([mean for _, mean in cells.parts.values()]) - moments.means[source]) / scale  # (M, d)
    gaps = (moments.means[1:] - moments.means[0]) / scale
    Ez, Eq = E @ basis, axes.along(outside(basis, E.T)).T  # (M, r), (M, p)
    gaps_z, gaps_q = gaps @ basis, axes.along(outside(basis, gaps.T)).T
    # Weights as in the regression's scatter.
    omega = np.array([w for w, _ in cells.parts.values()]) * moments.count / moments.weights.sum()
    members = source[:, None] == np.arange(K)  # (M, K)
    penalty = max(ridge, 1e-10 * float(axes.values.max(initial=1.0)))
    effects = []
    for each in np.unique(unit):
        out = unit == each
        remaining = members.T @ (omega * ~out)  # (K,)
        if not remaining.all():
            effects.append(np.nan)
            continue
        move = members * ((omega * out)[:, None] / remaining)
        shift = -move.T @ np.concatenate([Ez, Eq], axis=1)  # (ii): gate and preserved part
        change = shift[1:] - shift[0]
        N = (np.eye(len(E)) + members @ move.T)[~out]  # (iii)
        share = float(np.sum(omega[out]) / np.sum(omega))
        A = (N.T * omega[~out]) @ N - (1.0 - share) * np.diag(omega)  # (iv)
        target = ((1.0 - share) * products + Eq.T @ (A @ Ez)) @ weights.T  # (p, K - 1)
        plain = ((1.0 - share) * axes.values + penalty)[:, None]
        x, spread = target / plain, Eq.T / plain  # (v)
        inner = np.eye(len(E)) + A @ (Eq @ spread)
        regressed = x - spread @ np.linalg.solve(inner, A @ (Eq @ x))
        here_z, here_q = gaps_z + change[:, :r], gaps_q + change[:, r:]
        effects.append(float(np.sum(here_z * weights) - np.sum(here_q * regressed.T)))
    return np.array(effects), len(E) == n_units * K
