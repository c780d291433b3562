"""The closed form (section 4.1, eq. (3)): analytic steps along measured directions, from moments and pairs.

    z' = z - α Δ (ΔᵀC⁻¹Δ)⁻¹ ΔᵀC⁻¹ [z - ẑ(q)],   q' = q,

with Δ the mean projected contrast of each source against the first (one column for two sources), ẑ(q) the
ridge regression of the gate coordinates z on the preserved q, and C the shrunk residual covariance of z.

The paper regresses on the rows of all sources together (:func:`solve_pooled`). That ẑ(q) learns that q
predicts the task, the task predicts the source and the source shifts z, and writes the association into the
embeddings. The default (:func:`solve_within`) compares every row with the mean of its own source:

    ẑ(q) = z̄ + βᵀ(q - q̄),

with β and C from the scatter within sources. z̄ and q̄ set the level: the unweighted means of the sources'
means, or those of one source, whose rows then move only by the collapse. By Proposition 1
every level set by Q leaves the same information. The data are asked first whether pairs agree on a shift
(:func:`pairs_agree`) and rows show it (:func:`measured_effect`). No task label is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ._common.markup import rounded_repr
from .effects_without_each import effects_without_each, means_without_each
from .errors import MissingEvidence, PairingError
from .evidence import LEVEL, contrast_folds, jackknife, mean_over_units, t_quantile
from .gate import fit_gate, identical_views
from .linalg import PrincipalAxes, Scatter, cross_validated_ridge, outside, resolved_axes
from .maps import AffineMap, MapInfo
from .moments import Means, Moments, Standardizer
from .pairs import Pairs, zero_sum_effects
from .statistics import Statistics

Floats = NDArray[np.float64]

PUBLISHED_RIDGE = 10.0
# What populations may differ by along the shift, as a standard deviation, for what they differ by across it:
# as much as a difference at a cosine of .7.
ALONG_PER_ACROSS = 1.0
FAR_FROM_PAIRS = 1.5  # times the pairs' shift, or a part of it, from which on rows' effect is doubted
REFUSED = 0.001  # level at which rows contradict pairs
NOTABLE = 2.0  # times the error over people: from there on what populations may add is said too


@dataclass(frozen=True)
class Effect:
    """The source effect in the rows, as a multiple of the mean contrast, with its error over people.

    Given what is preserved, and within sources: what differs between sources in q is not part of it. Where
    populations differ (source and task may go together), their difference has a part along the shift too,
    which rows alone cannot tell from the device's: ``across`` tells how large that part may be.
    """

    size: float
    error: float  # its standard error: over people where they are known, over rows where not
    df: float = np.inf  # of the error
    units: str = ""  # what the units were
    in_pairs: bool = True  # whether pairs agree on a shift; if not, what rows show of it is noise
    across: float = 0.0  # what sources differ by across the shift, in units of the shift

    __repr__ = rounded_repr

    def is_clear(self, level: float) -> bool:
        """Return whether the effect is significant at ``level``, and of the pairs' sign."""
        return self.in_pairs and self.size > t_quantile(level / 2, self.df) * self.error

    @property
    def is_reversed(self) -> bool:
        """Whether rows clearly differ the other way round, by about as much: views were exchanged.

        A fit is refused for it, so that chance and populations have to be ruled out.
        """
        other = replace(self.with_populations, size=-self.size)
        return other.matches_pairs and other.is_clear(REFUSED)

    @property
    def exists(self) -> bool:
        """Whether the effect is significant at .05, so that the fit acts."""
        return self.is_clear(LEVEL)

    @property
    def is_absent(self) -> bool:
        """Whether rows show clearly less than the pairs' shift, and perhaps none of it."""
        return (
            self.in_pairs and not self.exists and self.size + t_quantile(LEVEL / 2, self.df) * self.error < 1
        )

    @property
    def with_populations(self) -> Effect:
        """The effect with the error it has if populations may differ along the shift as much as across it."""
        return replace(self, error=float(np.hypot(self.error, ALONG_PER_ACROSS * self.across)))

    @property
    def may_be_populations(self) -> bool:
        """Whether populations that differ as much along the shift as across it could explain the effect."""
        return self.exists and not self.with_populations.exists

    @property
    def doubt(self) -> str:
        """What is doubtful about the effect: populations could explain it, or it is far from the pairs'."""
        shown = f"{100 * self.size:.3g} %"
        if self.may_be_populations:
            return (
                "Sources differ in more than the pairs' shift, so populations could explain what rows show "
                f"of it ({shown}): check with people who used both."
            )
        far = abs(self.size - 1) > t_quantile(LEVEL / 2, self.df) * self.error
        if self.exists and far and not 1 / FAR_FROM_PAIRS < self.size < FAR_FROM_PAIRS:
            return (
                f"Rows show {shown} of the pairs' shift instead of all of it: populations may differ along "
                "it, or rows and pairs are in other units. Check with people who used both."
            )
        return ""

    @property
    def matches_pairs(self) -> bool:
        """Whether pairs and rows show the same effect, so that paired views can be used as rows."""
        return self.exists and 0.5 < self.size < 2.0

    def __str__(self) -> str:
        if not self.in_pairs:
            return "pairs do not agree on a shift between sources"
        errors = _percent(self.error) + (f" over {self.units}" if self.units else "")
        allowed = self.with_populations.error
        if np.isfinite(allowed) and allowed > NOTABLE * self.error:
            errors += f", ± {_percent(allowed)} if populations differ along the shift as they do elsewhere"
        words = f"rows show {100 * self.size:.3g} % (± {errors}) of the shift seen in pairs"
        if self.may_be_populations:
            words += ": populations could explain it"
        return words


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:{'.2g' if percent < 100 else '.0f'}} %" if np.isfinite(share) else "unknown"


def _none() -> Floats:
    return np.zeros((0, 0))


@dataclass(frozen=True)
class Position:
    """The correction of position, and what it rests on."""

    gate: Any
    map: AffineMap
    direction: Floats = field(default_factory=_none)  # Δ, (K - 1, r)
    covariance: Floats = field(default_factory=_none)  # C, (r, r)
    effect: Effect | None = None


@dataclass(frozen=True)
class GateShift:
    """Pairs in the coordinates of a gate: every contrast, and the mean ones of the sources."""

    basis: Floats  # B, (d, r), in standardised coordinates
    contrasts: Floats  # (m, r)
    mean: Floats  # Δ, (K - 1, r)
    pairs: Pairs

    @classmethod
    def of(cls, pairs: Pairs, effects: Floats, scale: Floats, basis: Floats) -> GateShift:
        """Return pairs and their sources' ``effects`` in a gate, after features were divided by ``scale``."""
        contrasts, mean = pairs.contrasts / scale @ basis, effects / scale @ basis
        # Contrasts that cancel leave rounding, and rounding has a direction too.
        typical = np.linalg.norm(contrasts, axis=1).mean()
        mean[np.linalg.norm(mean, axis=1) <= 1e-12 * typical] = 0.0
        return cls(basis, contrasts, mean, pairs)


def solve_position(
    data: Statistics,
    pairs: Pairs,
    *,
    gate: Any = None,
    anchor: str = "within",
    standardize: bool = True,
    ridge: float | str = "auto",
    shrinkage: float = 0.01,
    do_no_harm: bool = True,
    strength: float = 1.0,
    reference: int | None = None,
) -> Position:
    """Fit standardisation and gate, then anchor and projection (Algorithm 1, step 2; section 4.1).

    ``reference`` is the source whose level rows are taken to; None is the mean of all.
    """
    K, moments = len(data.sources), data.moments
    effects = pairs.source_effects(K)
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
        return Position(gate, identity, np.zeros((K - 1, 0)))
    shift = GateShift.of(pairs, effects, scale, gate.basis_)
    if np.array_equal(pairs.a, pairs.b):  # in a gate that is blind to them
        raise identical_views(len(pairs))
    if not shift.mean.any():
        raise MissingEvidence(
            "The mean contrast inside the gate is zero: the pairs differ, but in no common direction. "
            "Use IterativeMGPA, or check that all pairs are ordered alike (first view, second view)."
        )
    effect = None
    level: dict[str, Any] = {"strength": strength, "shrinkage": shrinkage, "reference": reference}
    if anchor == "pooled":
        ridge = PUBLISHED_RIDGE if ridge == "auto" else float(ridge)
        stored, C = solve_pooled(moments, standardizer, shift, ridge=ridge, **level)
    else:
        stored, C, effect = solve_within(
            moments, data.participants, data.calibration_moments(), standardizer, shift,
            ridge=None if ridge == "auto" else float(ridge), do_no_harm=do_no_harm, **level,
        )  # fmt: skip
        if len(data.names) > 1:  # of whom the means may be those of groups
            effect = replace(effect, units=f"{len(data.names)} people")
    return Position(gate, stored, shift.mean, C, effect)


def _rows_like(spread: Scatter) -> Floats:
    """Return rows with this scatter, twice: all the PCA control needs of the rows, which are not kept."""
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
    *,
    ridge: float = PUBLISHED_RIDGE,
    shrinkage: float = 0.01,
    strength: float = 1.0,
    reference: int | None = None,
) -> tuple[AffineMap, Floats]:
    """Return the published closed form, eq. (3), with one regression over all rows, and C."""
    B = shift.basis
    weights, scale, center = moments.weights, standardizer.scale, standardizer.center
    n = float(weights.sum())
    # The indicators of all sources but the first, centred.
    indicators = np.sqrt(weights)[:, None] * (np.eye(len(weights)) - weights / n)[:, 1:]
    between = (weights[1:, None] * (moments.means[1:] - moments.mean) / scale).T
    total = moments.total.scaled(scale)
    beta, C = anchor_and_covariance(total, B, between, indicators.T @ indicators, ridge, n)
    C = shrink_or_raise(C, shrinkage, moments.n_rows)
    D, W = projection(C, shift.mean.T)
    readout = (B - beta) @ W / scale[:, None]
    stored = AffineMap(
        center=center,
        scale=scale,
        readout=readout,
        direction=B @ D * scale[:, None],
        offset=(center - (moments.mean if reference is None else moments.means[reference])) @ readout,
        strength=float(strength),
    )
    return stored, C


def anchor_and_covariance(
    total: Scatter, B: Floats, between: Floats, overlap: Floats, ridge: float, n: float
) -> tuple[Floats, Floats]:
    """Return the anchor's coefficients β (d, r) and the residual covariance C (r, r) of n rows.

    ``between`` and ``overlap`` are the cross-products of the centred source indicators with the rows,
    (d, K - 1), and with each other. The ridge penalises Q only.
    """
    Szz, Sqz, axes = preserved_axes(total, B)  # q is meant along its principal axes
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
    *,
    ridge: float | None = None,
    shrinkage: float = 0.01,
    do_no_harm: bool = True,
    strength: float = 1.0,
    reference: int | None = None,
) -> tuple[AffineMap, Floats, Effect]:
    """Return the map along the mean contrasts, the residual covariance and the rows' effect.

    ``participants`` are means by source and participant, ``calibration`` the moments of views that are not
    among the rows; ``ridge`` None is chosen by cross-validation.
    """
    scale, B = standardizer.divisor, shift.basis
    n, K = moments.count, len(moments.sources)
    spread = moments.within_scaled(scale)
    anchor = within_anchor(spread, B, n, K, ridge)
    C = shrink_or_raise(anchor.covariance, shrinkage, moments.n_rows)
    effect = measured_effect(moments, participants, shift.mean, anchor, C, scale)
    effect = replace(effect, in_pairs=pairs_agree(shift, C, K))
    if do_no_harm and effect.is_reversed:
        raise PairingError(
            f"Rows differ between sources the other way round than pairs do: {effect}. Were the views "
            "exchanged? A holds the views of the source that comes first in order, B those of the second."
        )
    if calibration.parts and effect.matches_pairs:
        # Both views of the same events: rows in which the source is associated with nothing.
        spread = spread + calibration.within.scaled(scale)
        n_views, n_means = calibration.weights.sum(), len(calibration.sources)
        anchor = within_anchor(spread, B, n + n_views, K + n_means, anchor.ridge)
        C = shrink_or_raise(anchor.covariance, shrinkage, moments.n_rows)
    (D, W), outcome = projection(C, shift.mean.T), "correction applied"
    if do_no_harm and not effect.exists:
        D, W, outcome = D[:, :0], W[:, :0], "not clear, nothing is corrected"
    readout = anchor.residual @ W / scale[:, None]
    level = moments.means.mean(axis=0) if reference is None else moments.means[reference]
    stored = AffineMap(
        center=standardizer.center,
        scale=standardizer.scale,
        readout=readout,
        direction=B @ D * standardizer.scale[:, None],
        offset=(standardizer.center - level) @ readout,
        strength=float(strength),
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


def measured_effect(
    moments: Moments, participants: Means, delta: Floats, anchor: GateAnchor, C: Floats, scale: Floats
) -> Effect:
    """Return the effect: the difference of the sources' rows, given q, as a share of the mean contrast.

    The standard error is a jackknife over participants where they are known, with the penalty and C as they
    are. Otherwise rows are independent.
    """
    gaps = (moments.means[1:] - moments.means[0]) / scale  # (K - 1, d)
    weights = scipy.linalg.cho_solve(scipy.linalg.cho_factor(C), delta.T).T  # (K - 1, r): C⁻¹δ
    weights = weights / float(np.sum(weights * delta))
    size = float(np.sum(weights * (gaps @ anchor.residual)))
    n_people = len({person for _, person in participants.parts})
    if n_people > 1:
        left_out, crossed = effects_without_each(
            moments, participants, weights, anchor.basis, anchor.axes, anchor.products, anchor.ridge, scale
        )
        error, df = jackknife(size, left_out, len(moments.sources), crossed)
        across = gap_across(moments, participants, delta, anchor, C, scale)
        return Effect(size, error, df, f"{n_people} people", across=across)
    uncertain = np.diag(1.0 / moments.counts[1:]) + 1.0 / moments.counts[0] + anchor.leverage(gaps)
    variance = float(np.sum((weights @ C @ weights.T) * uncertain))
    across = gap_across(moments, participants, delta, anchor, C, scale)
    return Effect(size, float(np.sqrt(variance)), np.inf, f"{moments.n_rows} rows", across=across)


def gap_across(
    moments: Moments, participants: Means, delta: Floats, anchor: GateAnchor, C: Floats, scale: Floats
) -> float:
    """Return the length of what sources differ by across the shift, relative to the shift's.

    Lengths are Mahalanobis distances within sources, gate and preserved coordinates together. A device that
    does to rows what it does to pairs adds nothing across. What chance adds over participants is taken off by
    the jackknife, and a quarter of a standard error besides, so that few do not look like populations;
    where they are unknown, what independent rows would give.
    """
    weights = scipy.linalg.cho_solve(scipy.linalg.cho_factor(C), delta.T).T  # (K - 1, r): C⁻¹δ
    shift = float(np.sum(weights * delta))

    def squared(means: Floats) -> float:
        gaps = (means[1:] - means[0]) / scale
        inside = gaps @ anchor.residual
        whole = np.sum(inside * scipy.linalg.cho_solve(scipy.linalg.cho_factor(C), inside.T).T)
        whole += anchor.n_free * np.trace(anchor.leverage(gaps))
        return float(whole / shift - (np.sum(weights * inside) / shift) ** 2)

    found = squared(moments.means)
    without = means_without_each(participants, moments.sources)
    if len(without) > 1:
        left_out, P = np.array([squared(means) for means in without]), len(without)
        found += (P - 1) * (found - float(left_out.mean())) - 0.25 * np.sqrt(P - 1) * float(left_out.std())
    elif len({name for _, name in participants.parts}) < 2:
        values = anchor.axes.values
        dimensions = len(C) - 1 + float(np.sum(values / (values + anchor.ridge)))
        found -= dimensions * float(np.sum(1.0 / moments.counts[1:] + 1.0 / moments.counts[0])) / shift
    return float(np.sqrt(max(found, 0.0)))


def pairs_agree(shift: GateShift, C: Floats, n_sources: int) -> bool:
    """Return whether contrasts agree, over participants, with the mean contrasts of other participants.

    Two participants, and pairs too few to hold any out, are not tested: their gate has been asked
    already.
    """
    values, pairs, whose = shift.contrasts, shift.pairs, shift.pairs.participants
    folds = contrast_folds(values, whose)
    if not folds or (whose is not None and len(np.unique(whose)) == 2):
        return True
    whiten = np.linalg.inv(np.linalg.cholesky(C)).T
    along = np.zeros(len(values))
    for train, test in folds:
        effects, rank = zero_sum_effects(values[train], pairs.first[train], pairs.second[train], n_sources)
        if rank < n_sources - 1:  # the others' pairs do not connect all sources
            return True
        expected = (effects[pairs.second[test]] - effects[pairs.first[test]]) @ whiten
        along[test] = np.sum((values[test] @ whiten) * expected, axis=1)
    agreed, error, df = mean_over_units(along, whose)
    # Both factors of a product of means are of the same few people: its variance is twice what they show.
    return bool(agreed > np.sqrt(2.0) * t_quantile(LEVEL, df) * error)


@dataclass(frozen=True)
class GateAnchor:
    """ẑ(q), the gate coordinates expected given the preserved ones, and how rows scatter about it."""

    residual: Floats  # G, (d, r), with z - ẑ(q) = (h - center) G
    covariance: Floats  # C, (r, r), of the residuals within sources
    ridge: float
    n_free: float  # degrees of freedom that the regression leaves
    basis: Floats  # B, (d, r)
    axes: PrincipalAxes  # of the preserved coordinates' scatter
    products: Floats  # (p, r), of these axes with the gate coordinates

    def leverage(self, rows: Floats) -> Floats:
        """Return q (S + λI)⁻¹ qᵀ for rows: how uncertain the regression is at (and between) them.

        Where rows are fewer than features, most of q lies outside the span of the rows: there the regression
        knows nothing but its penalty.
        """
        preserved = outside(self.basis, rows.T)
        along = self.axes.along(preserved)
        inside = (along.T / (self.axes.values + self.ridge)) @ along
        if not self.ridge > 0:
            return np.asarray(inside)
        return np.asarray(inside + (preserved.T @ preserved - along.T @ along) / self.ridge)


def within_anchor(spread: Scatter, B: Floats, n: float, n_means: int, ridge: float | None) -> GateAnchor:
    """Regress z on q within sources, from the scatter of n rows about the means taken from them."""
    total, products, axes = preserved_axes(spread, B)
    values = axes.values
    if ridge is None:
        ridge = cross_validated_ridge(values, products, float(np.trace(total)), n - n_means)
    shrunk = values + ridge
    n_free = n - n_means - float(np.sum(values / shrunk))
    if not n_free > 0:
        raise ValueError(
            f"{n:g} rows are too few to estimate the spread inside the gate; use more rows, or a larger "
            "ridge."
        )
    explained = products.T @ ((2.0 / shrunk - values / shrunk**2)[:, None] * products)
    covariance = (total - explained) / n_free
    residual = B - outside(B, axes.back(products / shrunk[:, None]))
    covariance = (covariance + covariance.T) / 2
    return GateAnchor(residual, covariance, float(ridge), n_free, B, axes, products)


def preserved_axes(spread: Scatter, B: Floats) -> tuple[Floats, Floats, PrincipalAxes]:
    """Return BᵀSB, the products VᵀSB with the axes V of the preserved coordinates, and those axes.

    With fewer rows than features nothing here is larger than the rows.
    """
    if spread.factored:
        Z = spread.times(B)
        # QQᵀ, without a copy of the rows. Next to nothing, where the gate is everything, is nothing.
        values, U = resolved_axes(spread.gram() - Z @ Z.T, len(Z), float(np.sum(Z**2)))
        axes = PrincipalAxes(values, U / np.sqrt(values), spread)
        return Z.T @ Z, np.sqrt(values)[:, None] * (U.T @ Z), axes
    S = spread.matrix
    SB = S @ B
    total, cross = B.T @ SB, SB - B @ (B.T @ SB)
    Q = S - SB @ B.T - B @ cross.T
    axes = PrincipalAxes(*resolved_axes((Q + Q.T) / 2, len(Q), float(np.trace(total))))
    return total, axes.along(cross), axes


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
