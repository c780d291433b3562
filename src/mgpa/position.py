"""The closed form (section 4.1, eq. (3)): an analytic step along measured directions.

    z' = z - α Δ (ΔᵀC⁻¹Δ)⁻¹ ΔᵀC⁻¹ [z - ẑ(q)],   q' = q,

with Δ the mean projected contrast of each source against the first (one column for two sources), ẑ(q) the
ridge regression of the gate coordinates z on the preserved q, and C the shrunk residual covariance of z.

The paper fits the regression on the rows of all sources together (:func:`solve_pooled`). If q predicts the
task and the task is associated with the source, this ẑ(q) learns the association and writes it into the
embeddings. The default (:func:`solve_within`) compares each row with the mean of its own source:

    ẑ(q) = z̄ + βᵀ(q - q̄),

with β and C from the scatter within sources. z̄ and q̄ set the level: the unweighted mean of the sources'
means, or the mean of one source, in which case its rows move only by the collapse. By Proposition 1, all
levels determined by Q leave the same information. The correction is applied only if pairs show a consistent
shift (:func:`pairs_agree`) and rows show it (:func:`measured_effect`). No task label is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from .effect import Effect, displacement, measured_effect, preserved_axes, within_anchor
from .errors import MissingEvidence, PairingError, identical_views
from .evidence import LEVEL, contrast_folds, mean_over_units, t_quantile
from .gate import fit_gate
from .linalg import Scatter, outside
from .maps import AffineMap, MapInfo
from .moments import Means, Moments, Standardizer
from .pairs import Pairs, effect_weights
from .statistics import Statistics

Floats = NDArray[np.float64]

PUBLISHED_RIDGE = 10.0


def _none() -> Floats:
    return np.zeros((0, 0))


@dataclass(frozen=True)
class Position:
    """The correction of position with its evidence."""

    gate: Any
    map: AffineMap
    direction: Floats = field(default_factory=_none)  # Δ, (K - 1, r)
    covariance: Floats = field(default_factory=_none)  # C, (r, r)
    effect: Effect | None = None


@dataclass(frozen=True)
class GateShift:
    """Pairs in the coordinates of a gate: all contrasts, and the mean contrasts of the sources."""

    basis: Floats  # B, (d, r), in standardised coordinates
    contrasts: Floats  # (m, r)
    mean: Floats  # Δ, (K - 1, r)
    pairs: Pairs

    @classmethod
    def of(cls, pairs: Pairs, effects: Floats, scale: Floats, basis: Floats) -> GateShift:
        """Return pairs and their sources' ``effects`` in a gate, after features were divided by ``scale``."""
        contrasts, mean = pairs.contrasts_along(basis / scale[:, None]), effects / scale @ basis
        # If contrasts cancel, only rounding errors remain, which must not count as a direction.
        typical = np.linalg.norm(contrasts, axis=1).mean()
        mean[np.linalg.norm(mean, axis=1) <= 1e-12 * typical] = 0.0
        return cls(basis, contrasts, mean, pairs)


@dataclass(frozen=True)
class PositionSettings:
    """Settings of the closed form inside a gate: parameters of :class:`~mgpa.ClosedFormMGPA`."""

    anchor: str = "within"
    ridge: float | str = "auto"
    shrinkage: float = 0.01
    do_no_harm: bool = True
    strength: float = 1.0
    reference: int | None = None  # position of the reference source; None: the mean of all


def solve_position(
    data: Statistics,
    pairs: Pairs,
    effects: Floats,
    *,
    gate: Any = None,
    standardize: bool = True,
    settings: PositionSettings = PositionSettings(),
) -> Position:
    """Fit standardisation and gate, then anchor and projection (Algorithm 1, step 2; section 4.1).

    ``effects`` are :meth:`Pairs.source_effects`.
    """
    moments = data.moments
    standardizer = data.standardizer(standardize)
    scale = standardizer.scale
    gate = fit_gate(
        gate,
        pairs,
        standardizer,
        lambda: _rows_like(moments.total.scaled(scale)),
        lambda: moments.within.scaled(scale),
    )
    if not gate.rank_:
        identity = AffineMap.identity(len(scale), center=standardizer.center, scale=scale)
        return Position(gate, identity, np.zeros((len(effects), 0)))
    shift = GateShift.of(pairs, effects, scale, gate.basis_)
    if np.array_equal(pairs.a, pairs.b):  # identical views, in a gate that ignores pairs
        raise identical_views(len(pairs))
    if not shift.mean.any():
        raise MissingEvidence(
            "The mean contrast inside the gate is zero: the pairs differ, but in no common direction. "
            "Use IterativeMGPA, or check that all pairs have the same order (first view, second view)."
        )
    effect = None
    if settings.anchor == "pooled":
        stored, C = solve_pooled(moments, standardizer, shift, settings)
    else:
        calibration = data.calibration_moments()
        stored, C, effect = solve_within(
            moments, data.participants, calibration, standardizer, shift, settings
        )
        if len(data.names) > 1:  # means may be those of groups of participants
            effect = replace(effect, units=f"{len(data.names)} people")
    return Position(gate, stored, shift.mean, C, effect)


def _rows_like(spread: Scatter) -> Floats:
    """Return artificial rows with twice this scatter.

    The PCA control needs rows, and only scatters are stored.
    """
    if spread.factored:
        half = spread.rows()
    else:
        values, vectors = np.linalg.eigh(spread.matrix)
        half = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    return np.concatenate([half, -half])  # centred


def solve_pooled(
    moments: Moments,
    standardizer: Standardizer,
    shift: GateShift,
    settings: PositionSettings,
) -> tuple[AffineMap, Floats]:
    """Return the published closed form, eq. (3), with one regression over all rows, and C."""
    B, reference = shift.basis, settings.reference
    ridge = PUBLISHED_RIDGE if settings.ridge == "auto" else float(settings.ridge)
    weights, scale, center = moments.weights, standardizer.scale, standardizer.center
    n = float(weights.sum())
    # Centred indicators of all sources except the first.
    indicators = np.sqrt(weights)[:, None] * (np.eye(len(weights)) - weights / n)[:, 1:]
    between = (weights[1:, None] * (moments.means[1:] - moments.mean) / scale).T
    total = moments.total.scaled(scale)
    beta, C = anchor_and_covariance(total, B, between, indicators.T @ indicators, ridge, n)
    C = shrink_or_raise(C, settings.shrinkage, moments.n_rows)
    D, W = projection(C, shift.mean.T)
    readout = (B - beta) @ W / scale[:, None]
    stored = AffineMap(
        center=center,
        scale=scale,
        readout=readout,
        direction=B @ D * scale[:, None],
        offset=(center - (moments.mean if reference is None else moments.means[reference])) @ readout,
        strength=float(settings.strength),
    )
    return stored, C


def anchor_and_covariance(
    total: Scatter, B: Floats, between: Floats, overlap: Floats, ridge: float, n: float
) -> tuple[Floats, Floats]:
    """Return the anchor's coefficients β (d, r) and the residual covariance C (r, r) of n rows.

    ``between`` and ``overlap`` are the cross-products of the centred source indicators with the rows,
    (d, K - 1), and with each other. The ridge penalises Q only.
    """
    Szz, Sqz, axes = preserved_axes(total, B)  # q is in the coordinates of its principal axes
    Squ, Szu = axes.along(outside(B, between)), B.T @ between
    shrunk = (axes.values + ridge)[:, None]
    beta, on_q = Sqz / shrunk, Squ / shrunk  # pooled anchor: Z on Q alone; and U on Q
    # Z on Q and U together, by partialling Q out of U.
    free = overlap - Squ.T @ on_q  # scatter of the indicators that q does not explain
    if np.linalg.eigvalsh(free)[0] <= 1e-12 * max(1.0, float(np.trace(overlap))):
        raise ValueError(
            "The preserved coordinates predict the source exactly, so its effect on the gate cannot be "
            "estimated. Use more rows, or a larger ridge."
        )
    delta = np.linalg.solve(free, Szu.T - Squ.T @ beta)  # (K - 1, r)
    joint = beta - on_q @ delta
    # Residual scatter of Z - Q joint - U delta, from the joint second moments.
    fitted = Sqz.T @ joint + Szu @ delta
    mixed = joint.T @ Squ @ delta
    explained = joint.T @ (axes.values[:, None] * joint) + mixed + mixed.T + delta.T @ overlap @ delta
    residual = Szz - fitted - fitted.T + explained
    return outside(B, axes.back(beta)), (residual + residual.T) / (2.0 * n)


def solve_within(
    moments: Moments,
    participants: Means,
    calibration: Moments,
    standardizer: Standardizer,
    shift: GateShift,
    settings: PositionSettings,
) -> tuple[AffineMap, Floats, Effect]:
    """Return the map along the mean contrasts, the residual covariance and the rows' effect.

    ``participants`` are means by source and participant, ``calibration`` the moments of views that are not
    among the rows.
    """
    ridge = None if settings.ridge == "auto" else float(settings.ridge)
    scale, B = standardizer.divisor, shift.basis
    n, K = moments.count, len(moments.sources)
    spread = moments.within_scaled(scale)
    anchor = within_anchor(spread, B, n, K, ridge)
    C = shrink_or_raise(anchor.covariance, settings.shrinkage, moments.n_rows)
    effect = measured_effect(moments, participants, shift.mean, anchor, C, scale)
    effect = replace(effect, in_pairs=pairs_agree(shift, C, K))
    if effect.doubt:
        where = displacement(moments, participants, shift.pairs, shift.mean, anchor, C, scale)
        effect = replace(effect, displacement=where)
    if settings.do_no_harm and effect.is_reversed:
        raise PairingError(
            f"Rows and pairs show opposite differences between sources: {effect}. Were the views "
            "exchanged? A holds the views of the first source in sorted order, B those of the second."
        )
    if calibration.parts and effect.matches_pairs:
        # Both views of the same events, as rows in which the source has no associations.
        spread = spread + calibration.within.scaled(scale)
        n_views, n_means = calibration.weights.sum(), len(calibration.sources)
        anchor = within_anchor(spread, B, n + n_views, K + n_means, anchor.ridge)
        C = shrink_or_raise(anchor.covariance, settings.shrinkage, moments.n_rows)
    (D, W), outcome = projection(C, shift.mean.T), "correction applied"
    if settings.do_no_harm and not effect.exists:
        outcome = "nothing is corrected" if effect.lies_with else "not clear, nothing is corrected"
        D, W = D[:, :0], W[:, :0]
    readout = anchor.residual @ W / scale[:, None]
    reference = settings.reference
    level = moments.means.mean(axis=0) if reference is None else moments.means[reference]
    stored = AffineMap(
        center=standardizer.center,
        scale=standardizer.scale,
        readout=readout,
        direction=B @ D * standardizer.scale[:, None],
        offset=(standardizer.center - level) @ readout,
        strength=float(settings.strength),
        info=MapInfo(evidence=f"{effect}: {outcome}"),
    )
    return stored, C, effect


def shrink_or_raise(C: Floats, shrinkage: float, n_rows: int) -> Floats:
    """Return C shrunk toward its mean diagonal, (1 - γ) C + γ (tr C / r) I; raise if C is zero."""
    C = (1.0 - shrinkage) * C + shrinkage * np.trace(C) / len(C) * np.eye(len(C))
    if not np.trace(C) > 0:
        raise ValueError(
            f"{n_rows} rows leave no variation inside the gate after regression on Q and the source; use "
            "more rows."
        )
    return np.asarray(C)


def pairs_agree(shift: GateShift, C: Floats, n_sources: int) -> bool:
    """Return whether contrasts agree with the mean contrasts of other participants, over participants.

    Two participants, or too few pairs to hold any out, are not tested, because the gate was already tested.
    """
    values, pairs, whose = shift.contrasts, shift.pairs, shift.pairs.participants
    folds = contrast_folds(values, whose)
    if not folds or (whose is not None and len(np.unique(whose)) == 2):
        return True
    whiten = np.linalg.inv(np.linalg.cholesky(C)).T
    along = np.zeros(len(values))
    for train, test in folds:
        weights, rank = effect_weights(pairs.first, pairs.second, n_sources, train)
        if rank < n_sources - 1:  # pairs of the other participants do not connect all sources
            return True
        effects = weights @ values
        expected = (effects[pairs.second[test]] - effects[pairs.first[test]]) @ whiten
        along[test] = np.sum((values[test] @ whiten) * expected, axis=1)
    agreed, error, df = mean_over_units(along, whose)
    # Both factors of a product of means come from the same few participants, which doubles the variance.
    return bool(agreed > np.sqrt(2.0) * t_quantile(LEVEL, df) * error)


def projection(C: Floats, Delta: Floats) -> tuple[Floats, Floats]:
    """Return D (r, k) and W (r, k) with D Wᵀ = Δ(ΔᵀC⁻¹Δ)⁻¹ΔᵀC⁻¹, the C⁻¹-orthogonal projection on span Δ.

    This is eq. (6) with the score w = C⁻¹Δ and the metric Ω = C⁻¹.

    Sources whose effects coincide leave fewer than K - 1 independent columns; k is that number.
    """
    try:
        solved = scipy.linalg.cho_solve(scipy.linalg.cho_factor(C), Delta)
    except np.linalg.LinAlgError:  # only without shrinkage: a direction without residual variance
        solved = np.linalg.pinv(C, hermitian=True) @ Delta
    gram = Delta.T @ solved
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    positive = values > max(values[-1] * 1e-12, np.finfo(np.float64).tiny)
    whiten = vectors[:, positive] / np.sqrt(values[positive])
    return np.asarray(Delta @ whiten), np.asarray(solved @ whiten)
