"""Paired views in the coordinates used for recognising sources and for correcting.

The coordinates are principal axes of rows and views within sources, in standardised units. With few rows,
there are at most as many axes as rows and views.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

from ..evidence import ZERO_NORM, Folds, contrast_folds, orthonormal, unit_rows
from ..linalg import EPS, Scatter, blocks
from ..maps import AffineMap
from ..moments import Moments, Standardizer
from ..pairs import Pairs, effect_weights, row_keys

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

BLOCK = 2**18  # numbers in float64 that one step takes: 2 MiB, little beside the views
BALL = 0.02  # share of each covariance that is spread equally over all directions
SMALL = 0.1  # directions with less than this share of the mean variance have less weight in spread tests
UNIT_PAIRS, MOST_UNITS = 3, 25  # minimum number of pairs in a unit, and maximum number of units
MOST_PARTICIPANTS = 200  # up to this number, each participant is a unit
ORDERS, CLEARLY = 50, 3.0  # number of random orders, and standard deviations for a clear difference
MOST_NEIGHBOURS = 500  # maximum number of pairs in the test of neighbours
ALIKE_UNITS, MOST_CLUSTERED = 8, 2000  # number of units of similar pairs, and maximum of clustered pairs


@dataclass(frozen=True, eq=False)
class Distinct:
    """Distinct views, so that quantities of a row are computed only once per fold."""

    views: NDArray[np.intp]  # the first view of each row and fold
    times: Floats  # number of equal views
    fold: Codes  # fold of the pairs
    of_view: NDArray[np.intp]  # (2 m,): number of the distinct view for each view


@dataclass(frozen=True, eq=False)
class Views:
    """Both views of all pairs in r coordinates.

    The views are the only large array; other quantities are computed from blocks of rows.
    """

    axes: Floats  # V (d, r), orthonormal
    variance: Floats  # (r,): variance of rows and views within sources, along the axes
    typical: float  # mean variance of a feature
    raw: Floats  # (2 m, r): all first views, then all second views
    row: Codes  # (2 m,): row number of each view; with more than two sources, rows may be in several pairs
    first: Codes  # (m,): sources of the first views
    second: Codes  # (m,): sources of the second views
    participants: NDArray[Any] | None  # participants of the pairs, if known
    read: Floats  # (2 m, k): coefficients of the correction of position for each view
    along: Floats  # (k, r): displacement per coefficient

    def __len__(self) -> int:
        return len(self.first)

    def after(self, position: AffineMap, pairs: Pairs, standardizer: Standardizer) -> Views:
        """Return views to which :meth:`moved` applies a correction of position."""
        sides = (pairs.a, pairs.b)
        read = np.concatenate(
            [
                (side[part] - position.center) @ position.readout
                for side in sides
                for part in blocks(len(side), max(1, BLOCK // side.shape[1]))
            ]
        )
        along = (position.direction / standardizer.divisor[:, None]).T @ self.axes
        return replace(self, read=read + position.offset, along=along)

    def blocks(self, rows: NDArray[np.intp]) -> list[NDArray[np.intp]]:
        """Return the given rows in blocks of the size of one step."""
        return [rows[part] for part in blocks(len(rows), self._rows)]

    def moved(self, rows: NDArray[np.intp]) -> Floats:
        """Return a copy of the selected views after the correction of position."""
        views = self.raw[rows]
        self._move(views, self.read[rows])
        return np.asarray(views)

    def contrasts(self, pairs: NDArray[np.intp]) -> Floats:
        """Return the second minus the first view of selected pairs, after the correction of position."""
        contrasts = self.raw[pairs + len(self)]
        for part in blocks(len(pairs), self._rows):
            contrasts[part] -= self.raw[pairs[part]]
        self._move(contrasts, self.read[pairs + len(self)] - self.read[pairs])
        return np.asarray(contrasts)

    def _move(self, rows: Floats, read: Floats) -> None:
        """Correct the position of rows, in place; nothing larger than a block is made."""
        for part in blocks(len(rows), self._rows) if len(self.along) else ():
            rows[part] -= read[part] @ self.along

    @property
    def _rows(self) -> int:
        return max(1, BLOCK // max(1, int(self.raw.shape[1])))

    @cached_property
    def weight(self) -> Floats:
        """Weights (r,) that give views nearly the same variance within sources along all axes."""
        return 1.0 / np.sqrt(self.variance + SMALL * self.typical)

    @cached_property
    def length(self) -> Floats:
        """The lengths of the contrasts, (m,)."""
        parts = self.blocks(np.arange(len(self)))
        return np.concatenate([np.linalg.norm(self.contrasts(pairs), axis=1) for pairs in parts])

    def coverage(self, basis: Floats) -> float:
        """Return the share of the contrasts' directional energy inside an orthonormal basis (d, r)."""
        inside = self.axes.T @ basis
        parts = self.blocks(np.flatnonzero(self.length > ZERO_NORM))
        energy = [float(np.sum((unit_rows(self.contrasts(pairs)) @ inside) ** 2)) for pairs in parts]
        return min(1.0, sum(energy) / sum(map(len, parts)))

    @cached_property
    def codes(self) -> Codes:
        """The source of every view, (2 m,)."""
        return np.concatenate([self.first, self.second])

    @cached_property
    def n_sources(self) -> int:
        """Number of sources."""
        return int(self.codes.max()) + 1

    @cached_property
    def kind(self) -> Codes:
        """For each pair, the number of its combination of sources."""
        between = np.column_stack([self.first, self.second])
        return np.unique(between, axis=0, return_inverse=True)[1].ravel()

    @cached_property
    def place(self) -> Codes:
        """Rank of each pair among pairs of its kind: by length for one kind, in event order for several."""
        kind, place = self.kind, np.empty(len(self), np.int64)
        length = self.length * (kind.max() == 0)
        place[np.lexsort((length, kind))] = np.concatenate([np.arange(n) for n in np.bincount(kind)])
        return place

    @cached_property
    def folds(self) -> Folds:
        """Up to five splits of the pairs, which keep participants (or, if unknown, events) together."""
        return contrast_folds(
            self.length[:, None], self.place % 5 if self.participants is None else self.participants
        )

    @cached_property
    def distinct(self) -> Distinct:
        """The distinct views; repeated views have the row and fold of an earlier view."""
        fold = np.zeros(len(self), np.int64)
        for k, (_, test) in enumerate(self.folds):
            fold[test] = k
        fold = np.concatenate([fold, fold])
        firsts, of_view = first_of_each(self.row * (1 + fold.max()) + fold)
        times = np.bincount(of_view).astype(np.float64)
        return Distinct(firsts, times, fold[firsts], of_view)

    @cached_property
    def units(self) -> Codes:
        """The unit of each pair: its participant or, if unknown, a group of pairs."""
        if self.participants is not None:
            return grouped(np.unique(self.participants, return_inverse=True)[1], self.kind, self.length)
        if self.kind.max() == 0:
            pairs = np.arange(len(self))
            if neighbours_agree(self.contrasts(pairs[:MOST_NEIGHBOURS])):
                midpoints = (self.moved(pairs) + self.moved(pairs + len(self))) / 2
                return alike(midpoints, self.contrasts(pairs))
        n_units = min(MOST_UNITS, (int(self.place.max()) + 1) // UNIT_PAIRS)
        return np.asarray(self.place % max(1, n_units))

    def source_means(self, train: NDArray[np.intp]) -> Floats:
        """Return the means of sources from the given pairs: the mean midpoint plus each source's effect."""
        of_contrasts, _ = effect_weights(self.first, self.second, self.n_sources, train)
        of_midpoint = np.zeros(len(self))
        of_midpoint[train] = 1.0 / (2 * len(train))
        # One product with weights that are 0 for other pairs: no view is copied.
        return np.hstack([of_midpoint - of_contrasts, of_midpoint + of_contrasts]) @ self.raw


def read_views(
    pairs: Pairs, effects: Floats, within: Scatter, n_rows: float, standardizer: Standardizer
) -> Views:
    """Return the paired views in principal axes.

    ``effects`` are :meth:`Pairs.source_effects`, ``within`` is the scatter of the standardised rows around
    the means of their sources, and ``n_rows`` is the effective number of rows.
    """
    divisor, codes = standardizer.divisor, np.concatenate([pairs.first, pairs.second])
    n_views, n_sources = len(codes), len(effects) + 1
    keys = np.concatenate([row_keys(pairs.a), row_keys(pairs.b)])
    firsts, row = first_of_each(np.unique(keys, return_inverse=True)[1] * n_sources + codes)
    codes, times = codes[firsts], np.bincount(row).astype(np.float64)
    n_first = np.searchsorted(firsts, len(pairs))
    raw = np.empty((len(firsts), len(divisor)))
    np.take(pairs.a, firsts[:n_first], axis=0, out=raw[:n_first], mode="clip")  # other modes copy
    np.take(pairs.b, firsts[n_first:] - len(pairs), axis=0, out=raw[n_first:], mode="clip")
    raw -= standardizer.center
    raw /= divisor
    # Each block is a product with all axes: blocks of few rows would read the axes too often.
    few, size, spread = n_views < len(divisor), max(64, BLOCK // len(divisor)), within
    for rows in members(codes):
        parts = [rows] if few else [rows[part] for part in blocks(len(rows), size)]
        mean = np.sum([times[some] @ raw[some] for some in parts], axis=0) / times[rows].sum()
        for some in parts:
            apart = (raw[some] - mean) * np.sqrt(times[some, None])
            spread = spread + (Scatter.from_rows(apart) if few else Scatter(apart.T @ apart))
    axes = spread.axes()
    V = axes.vectors if axes.factor is None else axes.back(np.eye(len(axes.values)))
    scatter = axes.values / (n_rows + n_views)
    V = orthonormal(V, effects.T / divisor[:, None])  # matters for few rows
    variance = np.concatenate([scatter, np.zeros(V.shape[1] - len(scatter))])
    typical = float(variance.sum() / standardizer.varies.sum())
    for part in blocks(len(raw), size):
        raw[part, : V.shape[1]] = raw[part] @ V
    if len(raw) < n_views or V.shape[1] < raw.shape[1]:
        raw = raw[row, : V.shape[1]]
    nothing = np.zeros((n_views, 0)), np.zeros((0, raw.shape[1]))
    return Views(V, variance, typical, raw, row, pairs.first, pairs.second, pairs.participants, *nothing)


def first_of_each(labels: Codes) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first position of each label, and the label number of each entry."""
    _, firsts, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return firsts[order], place[inverse.ravel()]


def unpaired_scatters(
    moments: Moments, paired: Moments, V: Floats, scale: Floats
) -> list[tuple[float, Floats]]:
    """Return the number and scatter (in the coordinates V) of each source's unpaired rows.

    Held-out pairs must remain held out, so ``paired``, the moments of paired rows, are subtracted. This is
    not possible with row weights, because pairs have no weights; then only pairs are used.
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


def neighbours_agree(contrasts: Floats) -> bool:
    """Return whether consecutive contrasts are similar beyond chance.

    This occurs for neighbouring windows of a recording with correlated noise.
    """
    centred = contrasts - contrasts.mean(axis=0)
    centred /= np.maximum(np.linalg.norm(centred, axis=1), EPS)[:, None]
    if len(centred) < 2 * UNIT_PAIRS:
        return False
    rng, alikeness = np.random.default_rng(0), np.empty(ORDERS + 1)
    for i in range(ORDERS + 1):
        order = rng.permutation(len(centred)) if i else np.arange(len(centred))
        alikeness[i] = np.einsum("ij,ij->", centred[order[1:]], centred[order[:-1]])
    return bool(alikeness[0] - alikeness[1:].mean() > CLEARLY * alikeness[1:].std())


def alike(midpoints: Floats, contrasts: Floats) -> Codes:
    """Return the unit of each pair if participants are unknown; similar pairs share a unit.

    If pairs are consecutive windows of one recording (:func:`neighbours_agree`), near copies in different
    units would seem to confirm each other. Units are clusters (Ward's method) of midpoints and contrasts of
    at most :data:`MOST_CLUSTERED` pairs; each pair belongs to the nearest cluster.
    """
    parts = [part - part.mean(axis=0) for part in (midpoints, contrasts)]
    Z = np.concatenate([part / max(float(np.linalg.norm(part)), EPS) for part in parts], axis=1)
    n_units = min(ALIKE_UNITS, len(Z) // UNIT_PAIRS)
    if n_units < 2:
        return np.zeros(len(Z), np.int64)
    order = np.argsort(np.sum(Z**2, axis=1), kind="stable")
    draw = order[np.linspace(0, len(Z) - 1, min(len(Z), MOST_CLUSTERED)).astype(np.int64)]
    cluster = fcluster(linkage(Z[draw], "ward"), n_units, "maxclust")
    means = np.stack([Z[draw][cluster == k].mean(axis=0) for k in np.unique(cluster)])
    means = means[np.argsort(np.sum(means**2, axis=1), kind="stable")]
    nearest = np.argmin(np.sum(means**2, axis=1) - 2.0 * Z @ means.T, axis=1)
    return np.asarray(np.unique(nearest, return_inverse=True)[1])


def grouped(whose: Codes, kind: Codes, length: Floats) -> Codes:
    """Return the unit of each pair: its participant, or a group of participants with enough pairs.

    Participants with fewer than :data:`UNIT_PAIRS` pairs of every kind are grouped by the kinds and lengths
    of their pairs, independently of names. If there are more than :data:`MOST_PARTICIPANTS` participants,
    they are also grouped, because units are compared in pairs.
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
    many = np.flatnonzero(counts.max(axis=1) >= UNIT_PAIRS)
    if len(many) > MOST_PARTICIPANTS:
        many = many[np.lexsort((lengths[many].sum(axis=1), *counts[many][:, kinds].T))]
        unit[many] = many[np.arange(len(many)) % MOST_PARTICIPANTS]
    return np.asarray(np.unique(unit[whose], return_inverse=True)[1])


def members(labels: NDArray[Any]) -> list[NDArray[np.intp]]:
    """Return the rows of each label."""
    ends = np.cumsum(np.unique(labels, return_counts=True)[1])
    return np.split(np.argsort(labels, kind="stable"), ends)[:-1]


def centre(rows: Floats, labels: NDArray[np.int64]) -> Floats:
    """Subtract the mean of the rows with the same label from each row, in place."""
    names, codes = np.unique(labels, return_inverse=True)
    shape = len(names), len(rows)
    sums = scipy.sparse.csr_array((np.ones(len(rows)), (codes, np.arange(len(rows)))), shape=shape) @ rows
    means = sums / np.bincount(codes)[:, None]
    for part in blocks(len(rows), max(1, BLOCK // max(1, rows.shape[1]))):
        rows[part] -= means[codes[part]]
    return rows
