"""Test whether paired devices differ in spread (more than a shift), and whether correcting it helps.

With a gain or a rotation, a pair's difference grows with its mean: Var B - Var A = 2 Cov(B - A, (A + B) / 2).
The test compares the slopes of differences on means between participants (:func:`shared_slope`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.stats
from numpy.typing import NDArray

from .._common.markup import rounded_repr
from ..evidence import LEVEL
from ..linalg import BLOCK, blocks
from .regressions import Regressions, Step
from .views import SMALL, Floats, Views, centre, members

SIGN_FLIPS = 1999
FEWEST_UNITS = 3  # minimum number of units for the test of a common slope
SURE = 0.02  # largest p-value of a common slope if no other rows can confirm it
ALL_NOISE = 0.99  # from this share of noise on, nothing can be corrected
STILL_READABLE = 0.65  # AUROC from which the length of embeddings is mentioned


@dataclass(frozen=True)
class SpreadEvidence:
    """The evidence of held-out pairs on spread and on its correction."""

    p_value: float  # of a common slope of contrasts on midpoints; 1 with too few units
    n_units: int
    unit: str  # the compared units: "participants", "groups of participants", or "groups of pairs"
    removed: float = 0.0  # share of the squared difference between held-out views that slopes remove
    error: float = np.inf  # its standard error
    scale: float = np.nan  # difference in spread of rows relative to pairs; NaN if all rows are pairs
    readable: float = np.nan  # share of uncorrected held-out views with correctly recognised source
    by_length: float = 0.5  # AUROC of the source by the length of corrected held-out views
    gain: float = 0.0  # share of gains in the paired differences beyond the shift
    rotation: float = 0.0  # share of rotations (mixing of directions)
    noise: float = 1.0  # share that a view does not predict
    is_absent: bool = False  # the device: rows clearly lack the shift that comes with the spread

    __repr__ = rounded_repr

    @property
    def is_shown(self) -> bool:
        """Whether paired views differ in spread."""
        return self.p_value <= LEVEL

    @property
    def helps(self) -> bool:
        """Whether the correction clearly (by one standard error) brings held-out views closer."""
        return self.removed > self.error and self.noise < ALL_NOISE

    @property
    def matches_rows(self) -> bool:
        """Whether rows differ in spread like the pairs; if all rows are pairs, whether the test is certain.

        False if rows lack the shift of the pairs, because other differences then explain their spread.
        """
        if self.is_absent:
            return False
        if np.isnan(self.scale):
            return self.p_value <= SURE and self.removed > 2.0 * self.error
        return 0.4 <= self.scale <= 2.5

    def __str__(self) -> str:
        if self.n_units < FEWEST_UNITS:
            unit = self.unit if self.n_units > 1 else self.unit.removesuffix("s")
            return f"a difference in spread cannot be tested with {self.n_units} {unit}"
        tested = f"(p = {self.p_value:.2g}, {self.n_units} {self.unit})"
        if not self.is_shown:
            return f"no difference in spread {tested}"
        words = (
            f"sources differ in spread {tested}: gain {self.gain:.0%}, rotation {self.rotation:.0%}, noise "
            f"{self.noise:.0%} of the paired differences beyond the shift"
        )
        if self.noise >= ALL_NOISE:
            return f"{words}; noise cannot be removed and may still reveal the source"
        if not self.helps:
            return f"{words}; correcting it does not bring held-out pairs closer"
        if not self.matches_rows:
            return f"{words}; rows do not show it"
        words += f"; correcting it removes {self.removed:.0%} of the difference of held-out pairs"
        if self.by_length < STILL_READABLE:
            return words
        return f"{words}; the length of embeddings can still be read (AUROC {self.by_length:.2f})"


def show_spread(views: Views) -> SpreadEvidence:
    """Return whether paired devices differ in spread (:func:`shared_slope`), and the units of the test."""
    units, whose = views.units, views.participants
    n_units = int(units.max()) + 1
    unit = "groups of pairs"
    if whose is not None:
        unit = "participants" if len(np.unique(whose)) == n_units else "groups of participants"
    pairs = np.arange(len(views))
    centred = centre(views.contrasts(pairs), views.kind)
    scatter = centred.T @ centred / len(centred)
    if not np.trace(scatter) > np.finfo(np.float64).eps * views.variance.sum():
        return SpreadEvidence(1.0, n_units, unit)  # contrasts have no variation beyond the shift
    # Scale down directions with large variance.
    scatter[np.diag_indices_from(scatter)] += SMALL * np.trace(scatter) / len(views.axes)
    lower = np.linalg.cholesky(scatter)
    midpoints = np.empty_like(centred)
    for part in views.blocks(pairs):
        centred[part] = scipy.linalg.solve_triangular(lower, centred[part].T, lower=True).T
        midpoints[part] = (views.moved(part) + views.moved(part + len(views))) * (views.weight / 2.0)
    return SpreadEvidence(shared_slope(centred, midpoints, views.kind, units), n_units, unit)


def shared_slope(
    contrasts: Floats, midpoints: Floats, kind: NDArray[np.int64], units: NDArray[np.int64]
) -> float:
    """Return the p-value of a slope of contrasts on midpoints that is common to all units.

    The slope of a unit is the cross-product of its contrasts and midpoints, centred within the unit, so that
    offsets of participants and sessions cancel. If views are exchangeable, both signs of a unit's slope are
    equally likely. The sum of products of slopes of different units is therefore compared with its values
    under random signs or, with six units or fewer, with its standard error and a t-quantile. At least three
    units are needed. ``kind`` is the pair of sources of a contrast. Both arrays are overwritten.
    """
    n_units = int(units.max()) + 1
    if n_units < FEWEST_UNITS:
        return 1.0
    C, M = (centre(rows, units * (kind.max() + 1) + kind) for rows in (contrasts, midpoints))
    products, r = np.zeros((n_units, n_units)), C.shape[1]
    for k in np.unique(kind):
        c, m, whose = (rows if kind.max() == 0 else rows[kind == k] for rows in (C, M, units))
        if r * (len(c) + n_units**2) < 2 * len(c) ** 2:  # slopes are faster than products of pairs
            parts = members(whose)
            here = np.unique(whose)
            n_columns = max(1, BLOCK // (2 * len(parts) * r))
            buffer = np.empty((len(parts), n_columns * r))
            for columns in blocks(r, n_columns):
                slopes = buffer[:, : (columns.stop - columns.start) * r]
                for slope, rows in zip(slopes, parts, strict=True):
                    slope[:] = (c[rows, columns].T @ m[rows]).ravel()
                products[np.ix_(here, here)] += slopes @ slopes.T
            continue
        for unit in np.unique(whose):
            block = (c[whose == unit] @ c.T) * (m[whose == unit] @ m.T)
            products[unit] += np.bincount(whose, block.sum(axis=0), n_units)
    np.fill_diagonal(products, 0.0)
    total = float(products.sum())
    if n_units < 7:
        per_unit = products.sum(axis=1)
        error = np.sqrt(2.0 * n_units * np.var(per_unit, ddof=1))  # each product is in the sums of two units
        # Two-sided, because the sign of the common slope is unknown.
        return float(min(1.0, 2.0 * scipy.stats.t.sf(total / error, n_units - 1))) if error > 0 else 1.0
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(SIGN_FLIPS, n_units))
    exchanged = np.sum((signs @ products) * signs, axis=1)
    return float((1 + np.sum(exchanged >= total * (1 - 1e-9))) / (1 + SIGN_FLIPS))


def rows_scale(views: Views, rows: list[tuple[float, Floats]]) -> float:
    """Return the difference in spread of rows as a multiple of that of pairs; NaN if all rows are pairs.

    The squared difference of pairs is estimated by the product of differences in two halves (of different
    participants, if known). If the halves do not agree, the result is 0.
    """
    if min(n for n, _ in rows) < 2:
        return float("nan")

    def differences(covariances: list[Floats]) -> Floats:
        stack = np.stack(covariances) * views.weight * views.weight[:, None]
        return np.asarray(stack - stack.mean(axis=0))

    chosen = [
        [
            np.flatnonzero(np.tile(views.units % 2 == half, 2) & (views.codes == code))
            for code in range(views.n_sources)
        ]
        for half in (0, 1)
    ]
    if min(len(rows_here) for half in chosen for rows_here in half) < 2:
        return 0.0
    one, other = (
        differences([np.atleast_2d(np.cov(views.raw[rows_here].T)) for rows_here in half]) for half in chosen
    )
    common, in_rows = float(np.sum(one * other)), differences([S / (n - 1.0) for n, S in rows])
    return float(np.sum(in_rows * (one + other))) / (2.0 * common) if common > 0 else 0.0


def describe_spread(views: Views, regressions: Regressions) -> tuple[float, float, float]:
    """Return the shares of gains, rotation and noise in centred contrasts.

    Regressions in both directions between two sources predict the difference of a pair from its mean. The
    symmetric part of their common matrix is the gain, the antisymmetric part is the rotation, and the rest of
    the differences is noise.
    """
    stretched, turned, residual, total = 0.0, 0.0, 0.0, np.finfo(np.float64).tiny
    for (a, b), forward in regressions.items():
        if a < b:
            backward = regressions[Step(b, a)]
            slope, center = (forward.slope - backward.slope) / 2, (forward.center + backward.center) / 2
            for pairs in views.blocks(np.flatnonzero((views.first == a) & (views.second == b))):
                X, C = views.moved(pairs), views.contrasts(pairs)
                M = X + C / 2 - center
                stretched += float(np.sum((M @ (slope + slope.T)) ** 2)) / 4
                turned += float(np.sum((M @ (slope - slope.T)) ** 2)) / 4
                residual += float(np.sum((C - forward.expect(X)) ** 2))
                total += float(np.sum((C - forward.offset) ** 2))
    noise, both = min(1.0, residual / total), max(stretched + turned, np.finfo(np.float64).tiny)
    return (1.0 - noise) * stretched / both, (1.0 - noise) * turned / both, noise


def read_by_length(length: Floats, codes: NDArray[np.int64]) -> float:
    """Return the AUROC of the source from the length of rows; with several sources, that of the best two."""
    lengths = [np.sort(length[codes == code]) for code in np.unique(codes)]
    aurocs = []
    for a, b in itertools.combinations(lengths, 2):
        below = np.searchsorted(b, a) + np.searchsorted(b, a, side="right")  # smaller values twice, ties once
        aurocs.append(float(below.sum()) / (2 * len(a) * len(b)))
    return float(max(max(a, 1.0 - a) for a in aurocs))
