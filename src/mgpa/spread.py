"""Correction of spread, for devices that differ by more than a shift: estimate the source, then use it.

Gains, rotations and references change how embeddings vary, which no single affine map can undo without
collapsing directions. After the correction c of position, every row is moved by paired regressions, weighted
by how likely each source is:

    h' = c(h) + Σ_s p_s(h) D_s(c(h)).

p is the posterior of the source given the uncorrected row: Gaussians whose means come from pairs alone, where
nothing is associated with the source. D_s predicts, from one view, the way to the mean of all views of the
same event. Where the source cannot be read, p is even and the D_s cancel.

Pairs have to show it first (:func:`shared_slope`): with a gain or a rotation contrasts follow their
midpoints, Var B - Var A = 2 Cov(B - A, (A + B) / 2), and one participant's slope is found in the others'.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.special
import scipy.stats
from numpy.typing import NDArray

from .evidence import LEVEL, contrast_folds, orthonormal
from .linalg import BLOCK, Scatter, blocks, cross_validated_ridge
from .maps import AffineMap, SpreadMap
from .moments import Moments, Standardizer
from .pairs import Pairs

Floats = NDArray[np.float64]
Affine = tuple[Floats, Floats]  # M (r, r) and v (r,): y -> y M + v
# P (K, k, k), l (K, k) and b (K,): log p_s(y) = b_s + l_s·y - yᵀP_s y / 2, up to what all sources share
Scores = tuple[Floats, Floats, Floats]

BALL = 0.02  # of every covariance, shared by all directions
POOLED = (0.0, 0.1, 0.3, 0.6, 0.9)  # shares of the covariance of all sources together to choose from
TEMPERATURES = np.geomspace(1.0, 16.0, 17)
SMALL = 0.1  # of the mean variance: directions with less count less when slopes are compared
UNIT_PAIRS, MOST_UNITS = 3, 25  # pairs in a unit, and units, where participants are unknown or have fewer
SIGN_FLIPS = 1999
ALL_NOISE = 0.99  # share of noise from which on there is nothing to undo
STILL_READABLE = 0.65  # an AUROC that is worth a sentence
FULL = 0.7  # of the features: from this rank on, edits are stored for each feature
LOST = 1e-3  # what a posterior may change by where a map keeps fewer squares
COUNTS = 33  # numbers of squares tried


@dataclass(frozen=True)
class SpreadEvidence:
    """What held-out pairs say about spread, and about correcting it."""

    p_value: float  # of a slope of contrasts on midpoints that units share; 1: too few units to tell
    n_units: int
    unit: str  # what was compared: "participants", "groups of participants", or "groups of pairs"
    removed: float = 0.0  # share of the squared difference between held-out views that the correction removes
    error: float = np.inf  # its standard error
    scale: float = np.nan  # rows' difference in spread as a multiple of the pairs'; NaN: all rows are pairs
    readable: float = np.nan  # share of held-out views whose source is read from the uncorrected embedding
    by_length: float = 0.5  # AUROC of the source by the length of corrected held-out views
    gain: float = 0.0  # shares of what pairs differ by beyond the shift: gains along directions,
    rotation: float = 0.0  # mixing of directions,
    noise: float = 1.0  # and what a view does not predict

    @property
    def is_shown(self) -> bool:
        """Whether pairs differ in spread."""
        return self.p_value <= LEVEL

    @property
    def helps(self) -> bool:
        """Whether held-out views come closer, by more than one standard error and not by noise alone."""
        return self.removed > self.error and self.noise < ALL_NOISE

    @property
    def matches_rows(self) -> bool:
        """Whether rows differ in spread as the pairs do."""
        return not (self.scale < 0.4 or self.scale > 2.5)

    def __str__(self) -> str:
        if not self.is_shown:
            return f"no difference in spread (p = {self.p_value:.2g}, {self.n_units} {self.unit})"
        return (
            f"sources differ in spread (p = {self.p_value:.2g}, {self.n_units} {self.unit}): gain "
            f"{self.gain:.0%}, rotation {self.rotation:.0%}, noise {self.noise:.0%} of the paired "
            "differences beyond the shift"
        )

    def outcome(self) -> str:
        """Return what correcting the spread does to held-out pairs, in words."""
        if self.noise >= ALL_NOISE:
            return "not corrected: noise cannot be undone, so the source stays readable from it"
        if not self.helps:
            return "not corrected: held-out pairs come no closer"
        words = (
            f"spread corrected: the source was read from {self.readable:.0%} of held-out views; "
            f"{self.removed:.0%} of their difference is removed"
        )
        if self.by_length < STILL_READABLE:
            return words
        return f"{words}; what stays readable is the length of embeddings (AUROC {self.by_length:.2f})"


@dataclass(frozen=True)
class Views:
    """Both views of every pair in r coordinates: principal axes of rows and views, in standardised units.

    They are the one large array here: whatever follows from them is computed some rows at a time.
    """

    axes: Floats  # V (d, r), orthonormal
    variance: Floats  # (r,): of rows and views along the axes, within sources
    typical: float  # mean variance of a feature
    raw: Floats  # (2 m, r): all first views, then all second ones
    read: Floats  # (2 m, k): what the correction of position reads from them
    along: Floats  # (k, r): and how far it moves them for it
    first: NDArray[np.int64]  # (m,): the sources of the first views
    second: NDArray[np.int64]  # and of the second ones
    people: NDArray[Any] | None  # whose pairs they are, where known

    def __len__(self) -> int:
        return len(self.first)

    def blocks(self, rows: NDArray[np.intp]) -> list[NDArray[np.intp]]:
        """Return some rows, as many at a time as one product takes."""
        return [rows[part] for part in blocks(len(rows), max(1, BLOCK // max(1, self.raw.shape[1])))]

    def moved(self, rows: NDArray[np.intp]) -> Floats:
        """Return some views after the correction of position."""
        return np.asarray(self.raw[rows] - self.read[rows] @ self.along)

    def contrasts(self, pairs: NDArray[np.intp]) -> Floats:
        """Return the second minus the first view of some pairs, after the correction of position."""
        contrasts = self.raw[pairs + len(self)]
        contrasts -= self.raw[pairs]
        contrasts -= (self.read[pairs + len(self)] - self.read[pairs]) @ self.along
        return np.asarray(contrasts)

    @cached_property
    def length(self) -> Floats:
        """The contrasts' lengths, (m,)."""
        parts = self.blocks(np.arange(len(self)))
        return np.concatenate([np.linalg.norm(self.contrasts(pairs), axis=1) for pairs in parts])

    @property
    def codes(self) -> NDArray[np.int64]:
        """The source of every view, (2 m,)."""
        return np.concatenate([self.first, self.second])

    @property
    def n_sources(self) -> int:
        """Number of sources."""
        return int(self.codes.max()) + 1

    @property
    def kind(self) -> NDArray[np.int64]:
        """Which two sources each pair is of, counted."""
        between = np.column_stack([self.first, self.second])
        return np.unique(between, axis=0, return_inverse=True)[1].ravel()

    @property
    def place(self) -> NDArray[np.int64]:
        """Rank of each pair among pairs of its kind: by length for one kind, in event order for several."""
        kind, place = self.kind, np.empty(len(self), np.int64)
        length = self.length * (kind.max() == 0)
        place[np.lexsort((length, kind))] = np.concatenate([np.arange(n) for n in np.bincount(kind)])
        return place

    def folds(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Return up to five splits of the pairs: whole people where known, else whole events."""
        return contrast_folds(self.length[:, None], self.place % 5 if self.people is None else self.people)

    def units(self) -> NDArray[np.int64]:
        """Return each pair's unit: its participant, or a group of pairs where participants are unknown."""
        if self.people is not None:
            return _grouped(np.unique(self.people, return_inverse=True)[1], self.kind, self.length)
        n_units = min(MOST_UNITS, (int(self.place.max()) + 1) // UNIT_PAIRS)
        return np.asarray(self.place % max(1, n_units))


def _grouped(whose: NDArray[np.int64], kind: NDArray[np.int64], length: Floats) -> NDArray[np.int64]:
    """Return the unit of each pair: its participant, or several of them, as many as have a slope together.

    Those with fewer than :data:`UNIT_PAIRS` pairs of every kind are dealt out by which pairs they have and
    how long those are, whatever their names and the sources' are.
    """
    counts, lengths = np.zeros((2, whose.max() + 1, kind.max() + 1))
    np.add.at(counts, (whose, kind), 1)
    np.add.at(lengths, (whose, kind), length)
    few = np.flatnonzero(counts.max(axis=1) < UNIT_PAIRS)
    kinds = np.argsort(lengths.sum(axis=0))
    few = few[np.lexsort((lengths[few].sum(axis=1), *counts[few][:, kinds].T))]
    unit = np.arange(len(counts))
    for n_units in range(min(MOST_UNITS, len(few)), 0, -1):
        group = np.arange(len(few)) % n_units
        unit[few] = len(counts) + group
        pairs = np.zeros((n_units, counts.shape[1]))
        np.add.at(pairs, group, counts[few])
        if pairs.max(axis=1).min() >= UNIT_PAIRS:
            break
    return np.asarray(np.unique(unit[whose], return_inverse=True)[1])


def _members(labels: NDArray[Any]) -> list[NDArray[np.intp]]:
    """Return the rows of every label."""
    return np.split(np.argsort(labels, kind="stable"), np.cumsum(np.unique(labels, return_counts=True)[1]))[
        :-1
    ]


def _centre(rows: Floats, labels: NDArray[np.int64]) -> Floats:
    """Take the mean of the rows with the same label from each, in place."""
    for members in _members(labels):
        rows[members] -= rows[members].mean(axis=0)
    return rows


def read_views(
    pairs: Pairs, within: Scatter, n_rows: float, standardizer: Standardizer, position: AffineMap
) -> Views:
    """Return the paired views in the coordinates that everything here is computed in.

    ``within`` is the scatter of the standardised rows about their sources' means, of ``n_rows`` in effect.
    """
    scale = np.where(standardizer.varies, standardizer.scale, np.inf)
    raw, codes = np.concatenate([pairs.a, pairs.b]), np.concatenate([pairs.first, pairs.second])
    parts = blocks(len(raw), max(1, BLOCK // raw.shape[1]))
    read = np.concatenate([(raw[part] - position.center) @ position.readout for part in parts])
    raw -= standardizer.center
    raw /= scale
    spread = within
    for members in _members(codes):
        mean = raw[members].mean(axis=0)
        few = len(raw) < raw.shape[1]
        for part in blocks(len(members), len(members) if few else max(1, BLOCK // raw.shape[1])):
            apart = raw[members[part]] - mean
            spread = spread + (Scatter.from_rows(apart) if few else Scatter(apart.T @ apart))
    axes = spread.axes()
    V = axes.vectors if axes.factor is None else axes.back(np.eye(len(axes.values)))
    scatter = axes.values / (n_rows + len(raw))
    V = orthonormal(V, pairs.source_effects(int(codes.max()) + 1).T / scale[:, None])  # of few rows
    variance = np.concatenate([scatter, np.zeros(V.shape[1] - len(scatter))])
    typical = float(variance.sum() / standardizer.varies.sum())
    for part in parts:
        raw[part, : V.shape[1]] = raw[part] @ V
    along = (position.direction / scale[:, None]).T @ V
    which = pairs.first, pairs.second, pairs.participants
    return Views(V, variance, typical, raw[:, : V.shape[1]], read + position.offset, along, *which)


def shared_slope(
    contrasts: Floats, midpoints: Floats, kind: NDArray[np.int64], units: NDArray[np.int64]
) -> float:
    """Return the p-value of a common slope, over units, of contrasts on midpoints.

    Every unit's slope is its own cross-product of contrasts and midpoints, centred in the unit, so that
    offsets of people and sessions drop out. Where views are exchangeable, a unit's slope is as
    likely to have the other sign: the sum of products of different units' slopes is compared with its values
    under exchanged signs, or, of six units and fewer, with its standard error and a t-quantile. Fewer than
    three cannot tell. ``kind`` is which two sources a contrast is between. Both arrays are overwritten.
    """
    n_units = int(units.max()) + 1
    if n_units < 3:
        return 1.0
    C, M = (_centre(rows, units * (kind.max() + 1) + kind) for rows in (contrasts, midpoints))
    products, r = np.zeros((n_units, n_units)), C.shape[1]
    for k in np.unique(kind):
        c, m, whose = (rows if kind.max() == 0 else rows[kind == k] for rows in (C, M, units))
        if n_units * r < len(c):  # slopes take less than products of pairs
            slopes = np.zeros((n_units, r * r))
            for members in _members(whose):
                slopes[whose[members[0]]] = (c[members].T @ m[members]).ravel()
            products += slopes @ slopes.T
            continue
        for unit in np.unique(whose):
            block = (c[whose == unit] @ c.T) * (m[whose == unit] @ m.T)
            products[unit] += np.bincount(whose, block.sum(axis=0), n_units)
    np.fill_diagonal(products, 0.0)
    total = float(products.sum())
    if n_units < 7:
        per_unit = products.sum(axis=1)
        error = np.sqrt(2.0 * n_units * np.var(per_unit, ddof=1))  # every product is in two units' sums
        # The slope's direction is learnt, so that its sign is free: a test of two sides.
        return float(min(1.0, 2.0 * scipy.stats.t.sf(total / error, n_units - 1))) if error > 0 else 1.0
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(SIGN_FLIPS, n_units))
    exchanged = np.sum((signs @ products) * signs, axis=1)
    return float((1 + np.sum(exchanged >= total * (1 - 1e-9))) / (1 + SIGN_FLIPS))


def show_spread(views: Views) -> float:
    """Return :func:`shared_slope` of the pairs, with directions of much variance scaled down."""
    pairs = np.arange(len(views))
    centred = _centre(views.contrasts(pairs), views.kind)
    scatter = centred.T @ centred / len(centred)
    if not np.trace(scatter) > np.finfo(np.float64).eps * views.variance.sum():
        return 1.0  # a shift is all there is
    scatter[np.diag_indices_from(scatter)] += SMALL * np.trace(scatter) / len(views.axes)
    lower, scale = np.linalg.cholesky(scatter), np.sqrt(views.variance + SMALL * views.typical)
    midpoints = np.empty_like(centred)
    for part in views.blocks(pairs):
        centred[part] = scipy.linalg.solve_triangular(lower, centred[part].T, lower=True).T
        midpoints[part] = (views.moved(part) + views.moved(part + len(views))) / (2.0 * scale)
    return shared_slope(centred, midpoints, views.kind, views.units())


def whitening(views: Views) -> tuple[NDArray[np.intp], Floats, Floats]:
    """Return the coordinates that may separate sources, their origin, and their whitening matrix.

    Directions with next to no variance, and no shift, are all ball, to every source alike.
    """
    shifts = _source_means(views, np.arange(len(views)))
    largest = np.maximum(views.variance, np.max((shifts - shifts.mean(axis=0)) ** 2, axis=0))
    chosen = np.flatnonzero(largest > SMALL * BALL * views.typical)
    variance = (1.0 - BALL) * views.variance[chosen] + BALL * views.typical
    return chosen, views.raw.mean(axis=0)[chosen], 1.0 / np.sqrt(variance)


def fit_posterior(views: Views, rows: list[tuple[float, Floats]]) -> tuple[Scores, Floats]:
    """Return the scores of every source for an uncorrected row, and the posteriors of the views, (2 m, K).

    The latter are by Gaussians of other pairs; ``rows`` are :func:`unpaired_scatters`.
    """
    K, m = views.n_sources, len(views)
    chosen, origin, whiten = whitening(views)

    def white(rows: Floats) -> Floats:
        rows = rows[:, chosen]
        rows -= origin
        rows *= whiten
        return rows

    folds = [(test, white(_source_means(views, train))) for train, test in views.folds()]
    axes, held_out = [], np.zeros((K, len(POOLED), 2 * m))
    for code, (n, scatter) in enumerate(rows):
        views_here = views.blocks(np.flatnonzero(views.codes == code))
        n_here = sum(map(len, views_here))
        center = sum(white(views.raw[part]).sum(axis=0) for part in views_here) / n_here
        free = max(1.0, n + n_here - 1.0)
        C = scatter[np.ix_(chosen, chosen)] * whiten * whiten[:, None]
        for part in views_here:
            apart = white(views.raw[part]) - center
            C += apart.T @ apart
        C *= (1.0 - BALL) / free
        C[np.diag_indices_from(C)] += BALL * views.typical * whiten**2
        values, U = np.linalg.eigh(C)
        axes.append((values, U))
        for test, means in folds:
            both = np.concatenate([test, test + m])
            turned = np.concatenate([white(views.raw[part]) @ U for part in views.blocks(both)])
            of_code = views.codes[both] == code
            n_others, out = free - np.sum(of_code), turned[of_code]
            out -= center @ U
            out *= np.sqrt((1.0 - BALL) / n_others)
            turned -= means[code] @ U
            for j, pooled in enumerate(POOLED):
                spread = (1.0 - pooled) * values * free / n_others + pooled
                held_out[code, j, both] = _log_density(turned, spread, out, 1.0 - pooled)
    weight = 1.0 / np.bincount(views.codes, minlength=K)[views.codes]
    losses = np.zeros((len(POOLED), len(TEMPERATURES)))
    for tried, loss in zip(TEMPERATURES, losses.T, strict=True):
        likely = scipy.special.log_softmax(held_out / tried, axis=0)[views.codes, :, np.arange(2 * m)]
        loss[:] = -(weight @ likely)
    best, t = np.unravel_index(int(losses.argmin()), losses.shape)
    means, temperature = white(_source_means(views, np.arange(m))), float(TEMPERATURES[t])
    shrunk = [((1.0 - POOLED[best]) * values + POOLED[best], U) for values, U in axes]
    precisions = np.stack([(U / values) @ U.T for values, U in shrunk]) / temperature
    linear = np.stack([P @ mean for P, mean in zip(precisions, means, strict=True)])
    determinants = np.array([np.sum(np.log(values)) for values, _ in shrunk]) / temperature
    bias = -0.5 * (determinants + np.sum(linear * means, axis=1))
    return (precisions, linear, bias), scipy.special.softmax(held_out[:, best].T / temperature, axis=1)


def _log_density(points: Floats, values: Floats, out: Floats, share: float = 1.0) -> Floats:
    """Return log-densities, up to a constant, of a Gaussian with covariance diag(values) - share outᵀout.

    ``out`` are the held-out rows' part of a scatter. Where they are fewer than coordinates, by Woodbury's
    identity in the space of those rows.
    """
    parts = blocks(len(points), max(1, BLOCK // max(1, len(values))))
    if len(out) >= len(values):
        lower = np.linalg.cholesky(np.diag(values) - share * (out.T @ out))
        squares = [_squares(lower, points[part].T) for part in parts]
        return np.asarray(-0.5 * np.concatenate(squares) - np.sum(np.log(np.diag(lower))))
    scale = np.sqrt(values)
    out = out * (np.sqrt(share) / scale)
    lower = np.linalg.cholesky(np.eye(len(out)) - out @ out.T)
    scaled = (points[part] / scale for part in parts)
    squares = [np.sum(rows**2, axis=1) + _squares(lower, out @ rows.T) for rows in scaled]
    return np.asarray(
        -0.5 * np.concatenate(squares) - 0.5 * np.sum(np.log(values)) - np.sum(np.log(np.diag(lower)))
    )


def _squares(lower: NDArray[Any], columns: NDArray[Any]) -> Floats:
    """Return the squared lengths of L⁻¹ columns."""
    return np.asarray(np.sum(scipy.linalg.solve_triangular(lower, columns, lower=True) ** 2, axis=0))


def _source_means(views: Views, train: NDArray[np.intp]) -> Floats:
    """Return the sources' means from pairs alone: of all midpoints, plus what each source adds to them."""
    design = np.eye(views.n_sources)[views.second[train]] - np.eye(views.n_sources)[views.first[train]]
    midpoint, products = np.zeros(views.raw.shape[1]), np.zeros((views.n_sources, views.raw.shape[1]))
    for part, rows in zip(views.blocks(train), views.blocks(np.arange(len(train))), strict=True):
        first, second = views.raw[part], views.raw[part + len(views)]
        midpoint += (first + second).sum(axis=0) / (2 * len(train))
        products += design[rows].T @ (second - first)
    return np.asarray(midpoint + np.linalg.pinv(design.T @ design) @ products)


@dataclass(frozen=True)
class Way:
    """A ridge regression from views of one source to the difference of another source's views.

    The difference expected for x is (x - center) slope + offset.
    """

    center: Floats
    slope: Floats
    offset: Floats
    axes: Floats  # (r, k): principal axes of the views it was fitted on
    scatter: Floats  # (k,): of those views along them
    ridge: float
    n_views: int

    @classmethod
    def fit(cls, x: Floats, y: Floats) -> Way:
        """Regress y on x, both overwritten, with the penalty of generalised cross-validation."""
        center, offset = x.mean(axis=0), y.mean(axis=0)
        x -= center
        y -= offset
        few = len(x) < x.shape[1]  # then nothing is decomposed that is larger than the rows
        values, axes = np.linalg.eigh(x @ x.T if few else x.T @ x)
        resolved = values > x.shape[1] * np.finfo(np.float64).eps * values.max(initial=0.0)
        values, axes = values[resolved], axes[:, resolved]
        if few:
            products = np.sqrt(values)[:, None] * (axes.T @ y)
            axes = x.T @ (axes / np.sqrt(values))
        else:
            products = axes.T @ (x.T @ y)
        ridge = cross_validated_ridge(values, products, float(np.vdot(y, y)), len(x) - 1.0)
        slope = axes @ (products / (values + ridge)[:, None])
        return cls(center, slope, offset, axes, values, ridge, len(x))

    def expect(self, X: Floats) -> Floats:
        """Return the differences expected for X."""
        return np.asarray((X - self.center) @ self.slope + self.offset)

    def without(self, x: Floats, y: Floats) -> Way:
        """Return the regression, with the same penalty, on all rows but some of those it was fitted on.

        Nothing is fitted again: with H the block of the hat matrix of the rows left out, their residuals e
        become (I - H)⁻¹e. If no row is left, no difference is expected.
        """
        if len(x) == self.n_views:
            return replace(self, slope=np.zeros_like(self.slope), offset=np.zeros_like(self.offset))
        residuals = y - self.expect(x)
        apart = x - self.center
        weights = self.axes @ (apart @ self.axes / (self.scatter + self.ridge)).T
        kept = np.eye(len(x)) - apart @ weights - 1.0 / self.n_views
        grown = np.linalg.solve(kept, residuals)
        offset = self.offset - grown.sum(axis=0) / self.n_views
        return replace(self, slope=self.slope - weights @ grown, offset=offset)


def _differences(views: Views, pairs: NDArray[np.intp]) -> Iterator[tuple[tuple[int, int], Floats, Floats]]:
    """Yield, for all two sources (from, to), views of some pairs and how the other source's views differ."""
    for a, b in sorted({(int(s), int(t)) for s, t in zip(views.first, views.second, strict=True)}):
        rows = pairs[(views.first[pairs] == a) & (views.second[pairs] == b)]
        yield (a, b), views.moved(rows), views.contrasts(rows)
        yield (b, a), views.moved(rows + len(views)), -views.contrasts(rows)


def fit_ways(views: Views) -> dict[tuple[int, int], Way]:
    """Return the regressions (from, to) between all two sources that share pairs."""
    return {step: Way.fit(x, y) for step, x, y in _differences(views, np.arange(len(views)))}


def routes(ways: dict[tuple[int, int], Way], source: int) -> list[tuple[int, int]]:
    """Return the steps (from, to) that reach all sources from one, each by as few as possible."""
    reached, steps = [source], []
    for t in reached:  # which grows
        for u in sorted(u for s, u in ways if s == t and u not in reached):
            reached.append(u)
            steps.append((t, u))
    return steps


def displacement(ways: dict[tuple[int, int], Way], source: int, X: Floats) -> Floats:
    """Return D_s(X): what takes views X of one source to the mean of all sources' views."""
    at = {source: X}
    for t, u in routes(ways, source):
        at[u] = at[t] + ways[t, u].expect(at[t])
    return np.asarray(sum(at.values()) / len(at) - X)


def affine_edit(ways: dict[tuple[int, int], Way], source: int) -> Affine:
    """Return D_s as a matrix and an offset."""
    r = len(ways[next(iter(ways))].center)
    moved = displacement(ways, source, np.eye(r + 1, r, k=-1))  # of the origin, then of every axis
    return moved[1:] - moved[0], moved[0]


def unpaired_scatters(
    moments: Moments, paired: Moments, V: Floats, scale: Floats
) -> list[tuple[float, Floats]]:
    """Return number and scatter, in the coordinates V, of every source's rows that are not paired.

    Held-out pairs have to stay held out, so ``paired``, the moments of the rows that are views of pairs, are
    taken out. With weights, which pairs do not have, they cannot be: then pairs speak for all rows.
    """
    weighted = not np.allclose(moments.weights, [part.n_rows for part in moments.parts.values()])
    scatters = []
    for (label, part), count in zip(moments.parts.items(), moments.counts, strict=True):
        size = part.weight / count  # weights are relative
        scatter, n = part.spread.scaled(scale * np.sqrt(size)).inside(V), float(count)
        if label in paired.parts:
            views = paired.parts[label]
            n = 0.0 if weighted else part.weight - views.weight
            gap = (part.mean - views.mean) / scale @ V
            scatter = scatter - views.spread.scaled(scale).inside(V)
            scatter -= np.outer(gap, gap) * (views.weight * part.weight / max(n, 1.0))
        scatters.append((n, scatter) if n > 1.5 else (0.0, np.zeros_like(scatter)))
    return scatters


def rows_scale(views: Views, rows: list[tuple[float, Floats]]) -> float:
    """Return the rows' difference in spread as a multiple of the pairs'; NaN if all rows are pairs.

    The pairs' own is the product of two halves' differences, of other people where known.
    """
    if min(n for n, _ in rows) < 2:
        return float("nan")
    units = views.units()
    whiten = 1.0 / np.sqrt(views.variance + SMALL * views.typical)

    def differences(covariances: list[Floats]) -> Floats:
        stack = np.stack(covariances) * whiten * whiten[:, None]
        return np.asarray(stack - stack.mean(axis=0))

    chosen = [
        [
            np.flatnonzero(np.tile(units % 2 == half, 2) & (views.codes == code))
            for code in range(views.n_sources)
        ]
        for half in (0, 1)
    ]
    if min(len(rows_here) for half in chosen for rows_here in half) < 2:
        return float("nan")
    one, other = (
        differences([np.atleast_2d(np.cov(views.raw[rows_here].T)) for rows_here in half]) for half in chosen
    )
    common, in_rows = float(np.sum(one * other)), differences([S / (n - 1.0) for n, S in rows])
    return float(np.sum(in_rows * (one + other))) / (2.0 * common) if common > 0 else float("nan")


def describe_spread(views: Views, ways: dict[tuple[int, int], Way]) -> tuple[float, float, float]:
    """Return shares of contrasts, less their mean: gains along directions, rotation, and noise.

    Both regressions between two sources say how contrasts follow midpoints. The symmetric part of what they
    have in common stretches, the antisymmetric part turns, and the rest of the contrasts is noise.
    """
    stretched, turned, residual, total = 0.0, 0.0, 0.0, np.finfo(np.float64).tiny
    for (a, b), way in ways.items():
        if a < b:
            slope = (way.slope - ways[b, a].slope) / 2
            center = (way.center + ways[b, a].center) / 2
            for pairs in views.blocks(np.flatnonzero((views.first == a) & (views.second == b))):
                X, C = views.moved(pairs), views.contrasts(pairs)
                M = X + C / 2 - center
                stretched += float(np.sum((M @ (slope + slope.T)) ** 2)) / 4
                turned += float(np.sum((M @ (slope - slope.T)) ** 2)) / 4
                residual += float(np.sum((C - way.expect(X)) ** 2))
                total += float(np.sum((C - way.offset) ** 2))
    noise, both = min(1.0, residual / total), max(stretched + turned, np.finfo(np.float64).tiny)
    return (1.0 - noise) * stretched / both, (1.0 - noise) * turned / both, noise


def fit_spread(
    views: Views, rows: list[tuple[float, Floats]], *, always: bool = False
) -> tuple[SpreadEvidence, Scores | None, list[Affine]]:
    """Return what pairs show, and, if they show something or ``always``, the sources' scores and the D_s."""
    units, m = views.units(), len(views)
    people = np.arange(m) if views.people is None else views.people
    whose = np.unique(people, return_inverse=True)[1]
    grouped = "groups of pairs" if views.people is None else "groups of participants"
    unit = grouped if whose.max() > units.max() else "participants"
    evidence = SpreadEvidence(show_spread(views), int(units.max()) + 1, unit)
    if not (evidence.is_shown or always) or not views.folds():
        return evidence, None, []
    (scores, posterior), ways = fit_posterior(views, rows), fit_ways(views)
    gain, rotation, noise = describe_spread(views, ways)
    chosen, origin, whiten = whitening(views)
    before, after, length = np.zeros(m), np.zeros(m), np.zeros(2 * m)
    for _, test in views.folds():
        held_out = {step: ways[step].without(x, y) for step, x, y in _differences(views, test)}
        for pairs in views.blocks(test):
            moved = []
            for part in (pairs, pairs + m):
                X = views.moved(part)
                edits = (
                    p[:, None] * displacement(held_out, code, X) for code, p in enumerate(posterior[part].T)
                )
                moved.append(X + sum(edits))
                length[part] = np.sum(((moved[-1][:, chosen] - origin) * whiten) ** 2, axis=1)
            before[pairs] = np.sum(views.contrasts(pairs) ** 2, axis=1)
            after[pairs] = np.sum((moved[1] - moved[0]) ** 2, axis=1)
    closer = np.bincount(whose if whose.max() > 1 else np.arange(m), before - after)
    total = max(float(before.sum()), np.finfo(np.float64).tiny)
    right = posterior.argmax(axis=1) == views.codes
    evidence = replace(
        evidence,
        scale=rows_scale(views, rows),
        gain=gain,
        rotation=rotation,
        noise=noise,
        removed=float(closer.sum()) / total,
        error=float(np.sqrt(len(closer) * np.var(closer, ddof=1))) / total,
        readable=float(np.mean([right[views.codes == code].mean() for code in range(views.n_sources)])),
        by_length=_read_by_length(length, views.codes),
    )
    return evidence, scores, [affine_edit(ways, code) for code in range(views.n_sources)]


def _read_by_length(length: Floats, codes: NDArray[np.int64]) -> float:
    """Return the AUROC of the source by the length of rows; of several sources, of the best two."""
    lengths = [length[codes == code] for code in np.unique(codes)]
    pairs = itertools.combinations(lengths, 2)
    aurocs = [scipy.stats.mannwhitneyu(a, b).statistic / (len(a) * len(b)) for a, b in pairs]
    return float(max(max(a, 1.0 - a) for a in aurocs))


def spread_map(
    views: Views, scores: Scores, edits: list[Affine], position: AffineMap, standardizer: Standardizer
) -> SpreadMap:
    """Return position and spread as one stored map."""
    V, scale = views.axes, standardizer.scale
    readout, along = position.readout * scale[:, None], (position.direction / scale[:, None]).T @ V
    offset = position.offset + (standardizer.center - position.center) @ position.readout
    # E_s(h) = pos(h) + D_s(h + pos(h)), pos(h) = -(h readout + offset) along
    stays = [along + along @ M for M, _ in edits]
    edit = np.stack([V @ M - readout @ S for (M, _), S in zip(edits, stays, strict=True)])
    edit_offset = np.stack([v - offset @ S for (_, v), S in zip(edits, stays, strict=True)])
    # Rows move in the span of the contrasts: too small to see is not too small to read, so all of it is kept.
    direction = V.T
    if len(views) < FULL * len(scale):
        contrasts = views.contrasts(np.arange(len(views)))
        _, sizes, turn = np.linalg.svd(np.concatenate([contrasts, along]), full_matrices=False)
        turn = turn[sizes > sizes[0] * V.shape[1] * np.finfo(np.float64).eps].T
        edit, edit_offset, direction = edit @ turn, edit_offset @ turn, (V @ turn).T
    direction = np.where(standardizer.varies, direction, 0.0)  # not even by rounding
    full = len(direction) > FULL * len(scale)  # where two thin products cost more than one
    if full:
        edit, edit_offset = edit @ direction, edit_offset @ direction
    square, square_weight, linear, bias = score_form(views, scores)
    return SpreadMap(
        center=standardizer.center,
        scale=scale,
        square=square,
        square_weight=square_weight,
        linear=linear,
        bias=bias,
        edit=edit,
        edit_offset=edit_offset,
        direction=None if full else direction,
    )


def score_form(views: Views, scores: Scores) -> tuple[Floats, Floats, Floats, Floats]:
    """Return scores as squares and a linear part: directions (q, d), weights (q, K), linear (K, d), bias (K).

    Relative to the first source, whose scores are zero. Squares that change no posterior of the paired views
    by more than :data:`LOST` are replaced by their mean.
    """
    chosen, origin, whiten = whitening(views)
    K = views.n_sources
    everything = blocks(len(views.raw), max(1, BLOCK // (K * views.raw.shape[1])))
    precisions, linear, bias = (array - array[0] for array in scores)
    axes = [np.linalg.eigh(P) for P in precisions[1:]]
    G = np.concatenate([vectors.T for _, vectors in axes])
    w = np.zeros((len(G), K))
    w[np.arange(len(G)), np.repeat(np.arange(1, K), len(chosen))] = -0.5 * np.concatenate(
        [v for v, _ in axes]
    )

    def squares(part: slice) -> tuple[Floats, Floats]:
        Y = (views.raw[part][:, chosen] - origin) * whiten
        return Y, (Y @ G.T) ** 2

    means, fourth = np.zeros((2, len(G)))
    for part in everything:
        exact = squares(part)[1]
        means += exact.sum(axis=0) / len(views.raw)
        fourth += np.einsum("ij,ij->j", exact, exact) / len(views.raw)
    order = np.argsort(-np.max(np.abs(w), axis=1) * np.sqrt(np.maximum(fourth - means**2, 0)), kind="stable")
    G, w, means = G[order], w[order], means[order]
    counts = np.unique(np.linspace(0, len(G), COUNTS).round().astype(int))
    lost = np.zeros(len(counts))  # change of posteriors where all further squares are their means
    for part in everything:
        Y, exact = squares(part)
        exact -= means
        scored = np.zeros((len(counts), len(Y), K))
        for k in range(1, K):
            scored[1:, :, k] = np.cumsum(exact * w[:, k], axis=1)[:, counts[1:] - 1].T
        scored += Y @ linear.T + bias + means @ w
        posterior = scipy.special.softmax(scored, axis=2)
        lost = np.maximum(lost, np.abs(posterior - posterior[-1]).max(axis=(1, 2)))
    low = counts[1 + max(np.flatnonzero(lost >= LOST), default=-1)]
    bias = bias + means[low:] @ w[low:]
    G, w, linear = G[:low] * whiten, w[:low], linear * whiten
    # (g·(x - o))² = (g·x)² - 2 (g·o)(g·x) + (g·o)²
    at_origin = G @ origin
    bias = bias - linear @ origin + at_origin**2 @ w
    linear = linear - 2.0 * (w * at_origin[:, None]).T @ G
    V = views.axes[:, chosen].T
    return G @ V, w, linear @ V, bias
