"""The closed form within sources: an anchor that does not learn how source and task are associated.

Regressed on rows of all sources together, ẑ(q) learns that q predicts the task, the task predicts the source
and the source shifts z, and writes that association into the embeddings. Here every row is compared with the
mean of its own source, from the moments of each source alone:

    z' = z - Σⱼ pⱼ pⱼᵀC⁻¹ [z - ẑ(q)],   ẑ(q) = z̄ + βᵀ(q - q̄),

with z̄ and q̄ the unweighted means of the sources' means, C the residual covariance within sources, and pⱼ the
directions of the mean contrasts, C⁻¹-orthonormal, which makes eq. (3). The data are asked first whether pairs
agree on a shift (:func:`pairs_agree`) and rows show it (:func:`measured_effect`). No task label is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from .evidence import LEVEL, contrast_folds, jackknife, mean_over_units, t_quantile
from .maps import AffineMap, MapInfo
from .moments import Means, Moments, PrincipalAxes, Scatter, Standardizer, outside
from .pairs import Contrasts

Floats = NDArray[np.float64]

MOST_PEOPLE = 64


@dataclass(frozen=True)
class Effect:
    """The source effect in the rows, as a multiple of the mean contrast, with its error over people.

    Given what is preserved, and within sources: what differs between sources in q is not part of it.
    """

    size: float
    error: float  # its standard error: over people where they are known, over rows where not
    df: float = np.inf  # of the error
    units: str = ""  # what the units were
    in_pairs: bool = True  # whether pairs agree on a shift; if not, what rows show of it is noise

    def is_clear(self, level: float) -> bool:
        """Return whether the effect is significant at ``level``."""
        return self.in_pairs and abs(self.size) > t_quantile(level / 2, self.df) * self.error

    @property
    def exists(self) -> bool:
        """Whether the effect is significant at .05, so that the fit acts."""
        return self.is_clear(LEVEL)

    @property
    def matches_pairs(self) -> bool:
        """Whether pairs and rows show the same effect, so that paired views can be used as rows."""
        return self.exists and 0.5 < abs(self.size) < 2.0

    def __str__(self) -> str:
        if not self.in_pairs:
            return "pairs do not agree on a shift between sources"
        over = f" over {self.units}" if self.units else ""
        error = f"{100 * self.error:.2g} %" if np.isfinite(self.error) else "unknown"
        return f"rows show {100 * self.size:.3g} % (± {error}{over}) of the shift seen in pairs"


def solve_within(
    moments: Moments,
    people: Means,
    calibration: Moments,
    contrasts: Contrasts,
    standardizer: Standardizer,
    B: Floats,
    delta: Floats,
    *,
    strength: float = 1.0,
    ridge: float | str = "auto",
    shrinkage: float = 0.01,
    do_no_harm: bool = True,
) -> tuple[AffineMap, Floats, Effect]:
    """Return the map along the mean contrasts, the residual covariance and the rows' effect.

    ``people`` are means by source and participant, ``calibration`` views that are not among the rows, B the
    gate's basis and delta, (K - 1, r), the mean contrasts in it.
    """
    scale = np.where(standardizer.varies, standardizer.scale, np.inf)  # what never varied takes no part
    n, K = moments.count, len(moments.sources)
    # As n rows of weight one would scatter: weights are relative.
    spread = moments.within.scaled(scale * np.sqrt(moments.weights.sum() / n))
    anchor = within_anchor(spread, B, n, K, None if ridge == "auto" else float(ridge))
    C = shrink_or_raise(anchor.covariance, shrinkage, moments.n_rows)
    effect = measured_effect(moments, people, delta, anchor, C, scale)
    effect = replace(effect, in_pairs=pairs_agree(contrasts, C, B / scale[:, None], K))
    if calibration.parts and effect.matches_pairs:
        # Both views of the same events: rows in which the source is associated with nothing.
        spread = spread + calibration.within.scaled(scale)
        n_views, n_means = calibration.weights.sum(), len(calibration.sources)
        anchor = within_anchor(spread, B, n + n_views, K + n_means, anchor.ridge)
        C = shrink_or_raise(anchor.covariance, shrinkage, moments.n_rows)
    (D, W), outcome = projection(C, delta.T), "correction applied"
    if do_no_harm and not effect.exists:
        D, W, outcome = D[:, :0], W[:, :0], "not clear, nothing is corrected"
    readout = anchor.residual @ W / scale[:, None]
    stored = AffineMap(
        center=standardizer.center,
        scale=standardizer.scale,
        readout=readout,
        direction=B @ D * standardizer.scale[:, None],
        offset=(standardizer.center - moments.means.mean(axis=0)) @ readout,
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


def preserved_axes(spread: Scatter, B: Floats) -> tuple[Floats, Floats, PrincipalAxes]:
    """Return BᵀSB, the products VᵀSB with the axes V of the preserved coordinates, and those axes.

    With fewer rows than features nothing here is larger than the rows.
    """
    if spread.factored:
        Z = spread.times(B)
        values, U = np.linalg.eigh(spread.gram() - Z @ Z.T)  # QQᵀ, without a copy of the rows
        resolved = values > (values[-1] + np.sum(Z**2)) * len(Z) * np.finfo(np.float64).eps
        values, U = values[resolved], U[:, resolved]
        axes = PrincipalAxes(values, U / np.sqrt(values), spread)
        return Z.T @ Z, np.sqrt(values)[:, None] * (U.T @ Z), axes
    S = spread.matrix
    SB = S @ B
    total, cross = B.T @ SB, SB - B @ (B.T @ SB)
    Q = S - SB @ B.T - B @ cross.T
    values, vectors = np.linalg.eigh((Q + Q.T) / 2)
    # Next to nothing, where the gate is everything, is nothing.
    resolved = values > (values[-1] + np.trace(total)) * len(Q) * np.finfo(np.float64).eps
    axes = PrincipalAxes(values[resolved], vectors[:, resolved])
    return total, axes.along(cross), axes


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


def cross_validated_ridge(values: Floats, products: Floats, total: float, n: float) -> float:
    """Return the penalty that minimises generalised cross-validation, from moments alone.

    Degrees of freedom count 1.4 times, the usual guard (Kim and Gu, 2004) against the too small penalties
    that plain cross-validation now and then prefers.
    """
    if not len(values):
        return 1.0
    grid = values[-1] * np.logspace(-10, 2, 73)
    shrunk = values + grid[:, None]
    residual = total - (2.0 / shrunk - values / shrunk**2) @ np.sum(products**2, axis=1)
    free = n - 1.4 * np.sum(values / shrunk, axis=1)
    score = np.where(free > 0, residual / np.where(free > 0, free, 1.0) ** 2, np.inf)
    return float(grid[np.argmin(score)] if np.isfinite(score).any() else grid[-1])


def measured_effect(
    moments: Moments, people: Means, delta: Floats, anchor: GateAnchor, C: Floats, scale: Floats
) -> Effect:
    """Return the effect: the difference of the sources' rows, given q, as a share of the mean contrast.

    The standard error is a jackknife over participants where they are known, with the penalty and C as they
    are. Otherwise rows are independent.
    """
    gaps = (moments.means[1:] - moments.means[0]) / scale  # (K - 1, d)
    weights = scipy.linalg.cho_solve(scipy.linalg.cho_factor(C), delta.T).T  # (K - 1, r): C⁻¹δ
    weights = weights / float(np.sum(weights * delta))
    size = float(np.sum(weights * (gaps @ anchor.residual)))
    if len({person for _, person in people.parts}) > 1:
        left_out, crossed = effects_without_each(moments, people, weights, anchor, scale)
        error, df = jackknife(size, left_out, len(moments.sources), crossed)
        return Effect(size, error, df, f"{len(left_out)} people")
    uncertain = np.diag(1.0 / moments.counts[1:]) + 1.0 / moments.counts[0] + anchor.leverage(gaps)
    variance = float(np.sum((weights @ C @ weights.T) * uncertain))
    return Effect(size, float(np.sqrt(variance)), np.inf, f"{moments.n_rows} rows")


def pairs_agree(contrasts: Contrasts, C: Floats, basis: Floats, n_sources: int) -> bool:
    """Return whether contrasts agree, over people, with the mean contrasts of other people.

    ``basis`` takes contrasts in the input's units to gate coordinates. Two people, and pairs too few to hold
    any out, are taken at their word: their gate has been asked already.
    """
    values = contrasts.values @ basis
    folds = contrast_folds(values, contrasts.people)
    if not folds or (contrasts.people is not None and len(np.unique(contrasts.people)) == 2):
        return True
    whiten = np.linalg.inv(np.linalg.cholesky(C)).T
    along = np.zeros(len(values))
    for train, test in folds:
        try:
            effects = contrasts.take(train).source_effects(n_sources) @ basis @ whiten
        except ValueError:  # the others' pairs do not connect all sources
            return True
        effects = np.concatenate([np.zeros((1, len(C))), effects])
        expected = effects[contrasts.second[test]] - effects[contrasts.first[test]]
        along[test] = np.sum((values[test] @ whiten) * expected, axis=1)
    agreed, error, df = mean_over_units(along, contrasts.people)
    # Both factors of a product of means are of the same few people: its variance is twice what they show.
    return bool(agreed > np.sqrt(2.0) * t_quantile(LEVEL, df) * error)


def effects_without_each(
    moments: Moments, people: Means, weights: Floats, anchor: GateAnchor, scale: Floats
) -> tuple[Floats, bool]:
    """Return the effect without each person, and whether every person has all sources.

    The scatter of a person's rows about their own mean is taken to be like all others', so that people's
    means are all that must be kept of them. With E the deviations of those means from their sources', the
    scatter without a person is then (1 - share) S + E A Eᵀ with a small matrix A, and the regression
    follows from that of all rows in the coordinates of its principal axes.
    """
    sources, names = list(moments.sources), sorted({person for _, person in people.parts}, key=repr)
    # More people than this are left out in groups.
    group = {name: i % MOST_PEOPLE for i, name in enumerate(names)}
    cells = Means({})
    for (source, person), (weight, mean) in people.parts.items():
        if weight:
            cells += Means({(source, group[person]): (weight, mean)})
    source = np.array([sources.index(s) for s, _ in cells.parts])
    unit = np.array([u for _, u in cells.parts])
    n_units, K = len(set(unit.tolist())), len(sources)
    E = (np.stack([m for _, m in cells.parts.values()]) - moments.means[source]) / scale  # (M, d)
    gaps = (moments.means[1:] - moments.means[0]) / scale
    B, values, products = anchor.basis, anchor.axes.values, anchor.products
    Ez, Eq = E @ B, anchor.axes.along(outside(B, E.T)).T  # (M, r), (M, p)
    gaps_z, gaps_q = gaps @ B, anchor.axes.along(outside(B, gaps.T)).T
    # Weights as in the anchor's scatter.
    omega = np.array([w for w, _ in cells.parts.values()]) * moments.count / moments.weights.sum()
    members = source[:, None] == np.arange(K)  # (M, K)
    ridge = max(anchor.ridge, 1e-10 * float(values.max(initial=1.0)))
    effects = []
    for each in np.unique(unit):
        out = unit == each
        remaining = members.T @ (omega * ~out)  # (K,)
        if not remaining.all():
            effects.append(np.nan)
            continue
        # Deviations of the others from the means that are left: rows of N @ E.
        move = members * ((omega * out)[:, None] / remaining)  # (M, K): minus the shift of each source's mean
        N = (np.eye(len(E)) + members @ move.T)[~out]
        share = float(np.sum(omega[out]) / np.sum(omega))
        A = (N.T * omega[~out]) @ N - (1.0 - share) * np.diag(omega)
        shift = -move.T @ np.concatenate([Ez, Eq], axis=1)  # of each source's mean: gate and preserved part
        change = shift[1:] - shift[0]
        r = Ez.shape[1]
        here_z, here_q = gaps_z + change[:, :r], gaps_q + change[:, r:]
        # Solve [(1 - share) S + ridge + Eqᵀ A Eq] x = (products + Eqᵀ A Ez) weights.
        target = ((1.0 - share) * products + Eq.T @ (A @ Ez)) @ weights.T  # (p, K - 1)
        plain = (1.0 - share) * values + ridge
        solved, spread = target / plain[:, None], Eq.T / plain[:, None]
        inner = np.eye(len(E)) + A @ (Eq @ spread)
        x = solved - spread @ np.linalg.solve(inner, A @ (Eq @ solved))
        effects.append(float(np.sum(here_z * weights) - np.sum(here_q * x.T)))
    return np.array(effects), len(E) == n_units * K


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
