"""Estimate the share of the pairs' shift that rows show, with its error over participants.

The effect in rows is e = Σₖ wₖᵀ [gₖ - βᵀfₖ], with gₖ and fₖ the gate and preserved coordinates of the
difference between the means of source k and of the first, wₖ weights that stay, and β the ridge regression of
gate on preserved coordinates within sources, in the coordinates of the principal axes of their scatter:

    (i)     (S + λI) β = P,       S diagonal, P the products of preserved and gate coordinates.

For each participant and source, only the weight ω and the mean of the rows are stored. E contains the
deviations of these means from the means of the sources, one row for every source and participant. The scatter
of rows around the mean of their participant is assumed to be equal for all participants. Without participant
u, a share 1 - s of this scatter remains, with s = Σ_{i∈u} ωᵢ / Σω.

Let M be the indicators of sources, ω₋ = Mᵀ(ω[not u]) the remaining weights and V = M diag(1/ω₋) ∘ ω[u]:

    (ii)    the source means move by      -VᵀE,
    (iii)   other deviations become        N E,     N = (I + M Vᵀ)[not u],
    (iv)    scatter and products become (1 - s) S + EqᵀA Eq  and  (1 - s) P + EqᵀA Ez,
            A = Nᵀ diag(ω[not u]) N - (1 - s) diag(ω),

with Ez and Eq the gate and preserved parts of E. A has a row for each source and participant, whatever the
number of features, and (i) becomes, by Woodbury's identity with D = (1 - s) S + λI,

    (v)     β w = x - D⁻¹Eqᵀ (I + A Eq D⁻¹Eqᵀ)⁻¹ A Eq x,     x = D⁻¹ [(1 - s) P + EqᵀA Ez] w.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ._common.markup import rounded_repr
from .evidence import LEVEL, jackknife, mean_over_units, t_quantile
from .labels import source_names
from .linalg import PrincipalAxes, Scatter, cross_validated_ridge, outside, resolved_axes
from .moments import Means, Moments
from .pairs import Pairs
from .statistics import MOST_PARTICIPANTS

Floats = NDArray[np.float64]

# Assumed standard deviation of population differences along the shift, relative to those across it; it
# corresponds to a difference at a cosine of .7.
ALONG_PER_ACROSS = 1.0
FAR_FROM_PAIRS = 1.5  # effects that differ from the pairs' shift by a larger factor are doubtful
REFUSED = 0.001  # significance level at which rows contradict pairs
NOTABLE = 2.0  # the error with population differences is reported if larger by this factor


@dataclass(frozen=True)
class Displacement:
    """Distance of rows from the paired views of their source along the shift, summed over both sources.

    In units of the shift: about 0 if a device does to rows what it does to pairs, -1 if rows of both sources
    lie where views of the first source do, and 1 if they lie where views of the second do. Differences
    between populations cancel in this sum if the paired participants resemble both populations equally.
    """

    size: float
    error: float  # over the people of the rows and of the pairs
    df: float
    sources: tuple[str, ...]

    __repr__ = rounded_repr

    def lies_with(self, least: float, error: float) -> str:
        """Return the source whose views resemble the rows of both sources; empty if this is not clear.

        The size must be about 1 or -1, and clearly more than ``least`` (with this standard error): the
        displacement of rows in which the device has a share of the effect, or all of it.
        """
        t = t_quantile(LEVEL / 2, self.df)
        is_clear = abs(self.size) - least > t * np.hypot(self.error, error)
        is_there = abs(abs(self.size) - 1.0) < t * self.error
        return self.sources[int(self.size > 0)] if is_clear and is_there else ""


@dataclass(frozen=True)
class Effect:
    """The source effect in the rows as a multiple of the mean contrast, with its error over participants.

    The effect is conditional on the preserved coordinates q, so differences between sources in q are not part
    of it. If populations differ (source and task may be associated), part of their difference may lie along
    the shift. Rows alone cannot separate this part from the device effect: ``across`` estimates its possible
    size.
    """

    size: float
    error: float  # standard error over participants or, if unknown, over rows
    df: float = np.inf  # degrees of freedom of the error
    units: str = ""  # number and kind of units, in words
    in_pairs: bool = True  # whether pairs agree on a shift; otherwise, the effect in rows is noise
    across: float = 0.0  # difference of sources across the shift, in units of the shift
    displacement: Displacement | None = None  # measured if the effect is doubtful and participants are known

    __repr__ = rounded_repr

    def is_clear(self, level: float) -> bool:
        """Return whether the effect is significant at ``level`` and has the sign of the pairs' shift."""
        return self.in_pairs and self.size > t_quantile(level / 2, self.df) * self.error

    @property
    def is_reversed(self) -> bool:
        """Whether rows clearly show the opposite effect, of about the same size, as if views were exchanged.

        The fit then raises an error, so chance and population differences must be excluded.
        """
        other = replace(self.with_populations, size=-self.size)
        return other.matches_pairs and other.is_clear(REFUSED)

    @cached_property
    def exists(self) -> bool:
        """Whether the effect is significant at .05 and due to the device, so that a correction is applied."""
        return self.is_clear(LEVEL) and not self.lies_with

    @property
    def is_absent(self) -> bool:
        """Whether rows clearly show less than the pairs' shift, and possibly none of it."""
        low = self.size + t_quantile(LEVEL / 2, self.df) * self.error < 1
        return self.in_pairs and bool(self.lies_with or (low and not self.exists))

    @cached_property
    def lies_with(self) -> str:
        """The source whose paired views resemble the rows of both sources, if populations explain the effect.

        Empty otherwise. An effect that is not doubtful is believed wherever the rows lie.
        """
        if self.displacement is None or not (self.may_be_populations or self._is_far_from_pairs):
            return ""
        return self.displacement.lies_with(abs(1.0 - self.size), self.error)

    @cached_property
    def with_populations(self) -> Effect:
        """The effect with its error if populations differ along the shift as much as in other directions."""
        return replace(self, error=float(np.hypot(self.error, ALONG_PER_ACROSS * self.across)))

    @property
    def may_be_populations(self) -> bool:
        """Whether populations that differ as much along the shift as across it could explain the effect."""
        return self.is_clear(LEVEL) and not self.with_populations.is_clear(LEVEL)

    @property
    def _is_far_from_pairs(self) -> bool:
        """Whether rows clearly show much more or much less than the pairs' shift, and some of it."""
        far = abs(self.size - 1) > t_quantile(LEVEL / 2, self.df) * self.error
        return self.is_clear(LEVEL) and far and not 1 / FAR_FROM_PAIRS < self.size < FAR_FROM_PAIRS

    @property
    def doubt(self) -> str:
        """Doubts about the effect: populations could explain it, or it differs much from the pairs' shift."""
        percent = f"{100 * self.size:.3g} %"
        if self.lies_with:
            return (
                f"Populations, not devices, explain the effect in rows ({percent}): rows of both sources lie "
                f"where paired views of {self.lies_with!r} do, so there is no shift to correct if the paired "
                "participants are like both populations. Check this, and that the rows are uncorrected."
            )
        if self.may_be_populations:
            return (
                "Sources differ in more than the pairs' shift, so populations could explain the effect in "
                f"rows ({percent}): check with people who used both."
            )
        if self._is_far_from_pairs:
            return (
                f"Rows show {percent} of the pairs' shift: populations may differ along it, or rows and "
                "pairs have different units. Check with people who used both."
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
            errors += f", ± {_percent(allowed)} allowing for population differences between sources"
        words = f"rows show {100 * self.size:.3g} % (± {errors}) of the shift seen in pairs"
        if self.lies_with:
            words += f", but rows of both sources lie where paired views of {self.lies_with!r} do"
        elif self.may_be_populations:
            words += ": populations could explain it"
        return words


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:{'.2g' if percent < 100 else '.0f'}} %" if np.isfinite(share) else "unknown"


@dataclass(frozen=True)
class GateAnchor:
    """ẑ(q), the expected gate coordinates given the preserved ones, and the covariance of residuals."""

    residual: Floats  # G, (d, r), with z - ẑ(q) = (h - center) G
    covariance: Floats  # C, (r, r): covariance of the residuals within sources
    ridge: float
    n_free: float  # residual degrees of freedom of the regression
    basis: Floats  # B, (d, r)
    axes: PrincipalAxes  # principal axes of the scatter of preserved coordinates
    products: Floats  # (p, r): products of these axes with the gate coordinates

    def leverage(self, rows: Floats) -> Floats:
        """Return q (S + λI)⁻¹ qᵀ for rows, which measures the uncertainty of the regression at these rows.

        With fewer rows than features, most of q lies outside the span of the rows, where the regression
        depends only on its penalty.
        """
        preserved = outside(self.basis, rows.T)
        along = self.axes.along(preserved)
        inside = (along.T / (self.axes.values + self.ridge)) @ along
        if not self.ridge > 0:
            return np.asarray(inside)
        return np.asarray(inside + (preserved.T @ preserved - along.T @ along) / self.ridge)


def within_anchor(spread: Scatter, B: Floats, n: float, n_means: int, ridge: float | None) -> GateAnchor:
    """Return the regression of z on q within sources, from the scatter of n rows around their means."""
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
    """Return BᵀSB, VᵀSB, and the principal axes V of the preserved coordinates.

    With fewer rows than features, no array is larger than the rows.
    """
    if spread.factored:
        Z = spread.times(B)
        # QQᵀ without a copy of the rows; rounding errors become zero if the gate spans all directions.
        values, U = resolved_axes(spread.gram() - Z @ Z.T, len(Z), float(np.sum(Z**2)))
        axes = PrincipalAxes(values, U / np.sqrt(values), spread)
        return Z.T @ Z, np.sqrt(values)[:, None] * (U.T @ Z), axes
    S = spread.matrix
    SB = S @ B
    total, cross = B.T @ SB, SB - B @ (B.T @ SB)
    Q = S - SB @ B.T - B @ cross.T
    axes = PrincipalAxes(*resolved_axes((Q + Q.T) / 2, len(Q), float(np.trace(total))))
    return total, axes.along(cross), axes


def measured_effect(
    moments: Moments, participants: Means, delta: Floats, anchor: GateAnchor, C: Floats, scale: Floats
) -> Effect:
    """Return the source difference given q, divided by the mean contrast.

    The standard error is a jackknife over participants if they are known, with fixed penalty and C.
    Otherwise, rows are assumed to be independent.
    """
    gaps = (moments.means[1:] - moments.means[0]) / scale  # (K - 1, d)
    weights = scipy.linalg.cho_solve(scipy.linalg.cho_factor(C), delta.T).T  # (K - 1, r): C⁻¹δ
    shift = float(np.sum(weights * delta))
    weights = weights / shift
    size = float(np.sum(weights * (gaps @ anchor.residual)))
    across = gap_across(moments, participants, weights, shift, anchor, C, scale)
    n_participants = len({name for _, name in participants.parts})
    if n_participants > 1:
        left_out, crossed = effects_without_each(moments, participants, weights, anchor, scale)
        error, df = jackknife(size, left_out, len(moments.sources), crossed)
        return Effect(size, error, df, f"{n_participants} people", across=across)
    uncertain = np.diag(1.0 / moments.counts[1:]) + 1.0 / moments.counts[0] + anchor.leverage(gaps)
    variance = float(np.sum((weights @ C @ weights.T) * uncertain))
    return Effect(size, float(np.sqrt(variance)), np.inf, f"{moments.n_rows} rows", across=across)


def displacement(
    moments: Moments,
    participants: Means,
    pairs: Pairs,
    delta: Floats,
    anchor: GateAnchor,
    C: Floats,
    scale: Floats,
) -> Displacement | None:
    """Return how far rows of two sources lie from their paired views; None if people are not known.

    ``delta`` (1, r) is the shift of pairs. Levels are taken along the shift, given the preserved coordinates.
    """
    whose = pairs.participants
    n_participants = len({name for _, name in participants.parts})
    if len(delta) > 1 or n_participants < 2 or whose is None or len(np.unique(whose)) < 2:
        return None
    weights = scipy.linalg.cho_solve(scipy.linalg.cho_factor(C), delta[0])
    readout = anchor.residual @ (weights / (weights @ delta[0])) / scale

    def total(means: Floats) -> float:
        return float((means @ readout).sum())

    rows, crossed = total(moments.means), len(participants.parts) == 2 * n_participants
    left_out = [total(means) for means in means_without_each(participants, moments.sources)]
    error, df = jackknife(rows, left_out, 2, crossed)
    views, views_error, views_df = mean_over_units((pairs.a + pairs.b) @ readout, whose)
    sources = tuple(source_names(np.array(moments.sources)))
    return Displacement(rows - float(views), float(np.hypot(error, views_error)), min(df, views_df), sources)


def gap_across(
    moments: Moments,
    participants: Means,
    weights: Floats,
    shift: float,
    anchor: GateAnchor,
    C: Floats,
    scale: Floats,
) -> float:
    """Return the length of source differences across the shift, relative to the length of the shift.

    ``shift`` is the squared length of the shift, and ``weights`` (K - 1, r) give its share of a difference.
    Lengths are Mahalanobis distances within sources, over gate and preserved coordinates. A device with the
    same effect on rows and pairs adds no difference across the shift. The expected random difference is
    subtracted, estimated by a jackknife over participants or, if unknown, for independent rows.
    """

    def squared(means: Floats) -> float:
        gaps = (means[1:] - means[0]) / scale
        inside = gaps @ anchor.residual
        whole = np.sum(inside * scipy.linalg.cho_solve(scipy.linalg.cho_factor(C), inside.T).T)
        whole += anchor.n_free * np.trace(anchor.leverage(gaps))
        return float(whole / shift - np.sum(weights * inside) ** 2)

    distance = squared(moments.means)
    if len({name for _, name in participants.parts}) > 1:
        left_out = [squared(means) for means in means_without_each(participants, moments.sources)]
        if len(left_out) > 1:
            distance += (len(left_out) - 1) * (distance - float(np.mean(left_out)))
    else:
        values = anchor.axes.values
        dimensions = len(C) - 1 + float(np.sum(values / (values + anchor.ridge)))
        distance -= dimensions * float(np.sum(1.0 / moments.counts[1:] + 1.0 / moments.counts[0])) / shift
    return float(np.sqrt(max(distance, 0.0)))


def _groups(participants: Means) -> dict[Any, int]:
    """Return the group of each participant; groups are left out together."""
    names = sorted({name for _, name in participants.parts}, key=repr)
    return {name: i % MOST_PARTICIPANTS for i, name in enumerate(names)}


def means_without_each(participants: Means, sources: Sequence[Any]) -> list[Floats]:
    """Return the source means (K, d) without each participant who is not alone in a source."""
    group = _groups(participants)
    whole = participants.grouped(lambda cell: cell[0])
    left_out: dict[int, dict[Any, tuple[float, Floats]]] = {}
    for (label, unit), part in participants.grouped(lambda cell: (cell[0], group[cell[1]])).parts.items():
        left_out.setdefault(unit, {})[label] = part
    means_left = []
    for parts_out in left_out.values():
        means = []
        for label in sources:
            weight, mean = whole.parts[label]
            out, mean_out = parts_out.get(label, (0.0, mean))
            if weight > out:
                means.append(mean + (out / (weight - out)) * (mean - mean_out))
        if len(means) == len(sources):
            means_left.append(np.stack(means))
    return means_left


def effects_without_each(
    moments: Moments, participants: Means, weights: Floats, anchor: GateAnchor, scale: Floats
) -> tuple[Floats, bool]:
    """Return the effect without each participant, and whether all participants have all sources.

    ``weights`` (K - 1, r) are wₖ, ``anchor`` has S and P of (i), and ``scale`` divides features. The effect
    is NaN if a source has no other participant.
    """
    basis, axes = anchor.basis, anchor.axes
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
    # Weights as in the scatter of the regression.
    omega = np.array([w for w, _ in cells.parts.values()]) * moments.count / moments.weights.sum()
    members = source[:, None] == np.arange(K)  # (M, K)
    penalty = max(anchor.ridge, 1e-10 * float(axes.values.max(initial=1.0)))
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
        target = ((1.0 - share) * anchor.products + Eq.T @ (A @ Ez)) @ weights.T  # (p, K - 1)
        plain = ((1.0 - share) * axes.values + penalty)[:, None]
        x, spread = target / plain, Eq.T / plain  # (v)
        inner = np.eye(len(E)) + A @ (Eq @ spread)
        regressed = x - spread @ np.linalg.solve(inner, A @ (Eq @ x))
        here_z, here_q = gaps_z + change[:, :r], gaps_q + change[:, r:]
        effects.append(float(np.sum(here_z * weights) - np.sum(here_q * regressed.T)))
    return np.array(effects), len(E) == n_units * K
