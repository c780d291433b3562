"""Where devices differ in more than a shift: read the source from the row, then use it.

Gains, rotations and references change how embeddings vary, which no single affine map can undo without
collapsing directions. After the correction c of position, every row is moved by paired regressions, weighted
by how likely each source is:

    h' = c(h) + Σ_s p_s(h) D_s(c(h)).

p is the posterior of the source given the uncorrected row: Gaussians whose means come from pairs alone, where
source goes with nothing. D_s predicts, from one view, the way to the mean of all views of the same event.
Where the source cannot be read, p is even and the D_s cancel.

Pairs have to show it first (:func:`shared_slope`): with a gain or a rotation contrasts follow their
midpoints, Var B - Var A = 2 Cov(B - A, (A + B) / 2), and one participant's slope is found in the others'.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
import scipy.special
import scipy.stats
from numpy.typing import NDArray

from ._common.scatter import Scatter
from .anchor import cross_validated_ridge
from .gate import contrast_folds
from .gate.directions import orthonormal
from .maps import AffineMap, SpreadMap
from .moments import Moments, Standardizer
from .pairs import Contrasts

if TYPE_CHECKING:
    from .estimators.streamed import Evidence

Floats = NDArray[np.float64]
Affine = tuple[Floats, Floats]  # M (r, r) and v (r,): y -> y M + v

BALL = 0.02  # of every covariance, shared by all directions
POOLED = (0.0, 0.1, 0.3, 0.6, 0.9)  # shares of the covariance of all sources together to choose from
TEMPERATURES = np.geomspace(1.0, 16.0, 17)
LEVEL = 0.05  # how often pairs without a spread of their own may show one
SMALL = 0.1  # of the mean variance: directions with less count less when slopes are compared
UNIT_PAIRS, MOST_UNITS = 3, 25  # pairs in a unit, and units, where participants are unknown
SIGN_FLIPS = 1999
MANY_AXES = 256  # from which on folds are three
STILL_READABLE = 0.65  # an AUROC that is worth a sentence
LOST = 1e-3  # what a posterior may change by where a map keeps fewer squares


@dataclass(frozen=True)
class SpreadEvidence:
    """What held-out pairs say about spread, and about correcting it.

    Attributes
    ----------
    p_value : float
        Of the slope of contrasts on midpoints that units share; 1 where there are too few units to tell.
    n_units, unit : int, str
        What was compared: participants, or groups of pairs.
    removed, error : float
        Share of the squared difference between held-out views that the correction removes; standard error.
    scale : float
        The rows' difference in spread as a multiple of the pairs'; NaN where all rows are pairs.
    readable : float
        Share of held-out views whose source is read from the uncorrected embedding.
    by_length : float
        AUROC of the source by the length of corrected held-out views alone, which noise and saturation change.
    gain, rotation, noise : float
        Shares of what contrasts differ by, beyond their mean: gains along directions, mixing of directions,
        and what midpoints do not predict.
    """

    p_value: float
    n_units: int
    unit: str
    removed: float = 0.0
    error: float = np.inf
    scale: float = np.nan
    readable: float = np.nan
    by_length: float = 0.5
    gain: float = 0.0
    rotation: float = 0.0
    noise: float = 1.0

    @property
    def is_shown(self) -> bool:
        """Whether pairs differ in spread."""
        return self.p_value <= LEVEL

    @property
    def helps(self) -> bool:
        """Whether the correction brings held-out views closer, by more than a standard error."""
        return self.removed > self.error

    @property
    def matches_rows(self) -> bool:
        """Whether rows differ in spread as the pairs do."""
        return not (self.scale < 0.4 or self.scale > 2.5)

    def __str__(self) -> str:
        if not self.is_shown:
            return f"no difference in spread (p = {self.p_value:.2g}, {self.n_units} {self.unit})"
        return (
            f"sources differ in spread (p = {self.p_value:.2g}, {self.n_units} {self.unit}): gain "
            f"{self.gain:.0%}, rotation {self.rotation:.0%}, noise {self.noise:.0%} of what pairs differ by "
            "beyond the shift"
        )

    def outcome(self) -> str:
        """Return what correcting the spread does to held-out pairs, in words."""
        if not self.helps:
            return "held-out pairs come no closer: spread not corrected"
        said = (
            f"spread corrected: the source was read from {self.readable:.0%} of held-out views; "
            f"{self.removed:.0%} of their difference is removed"
        )
        if self.by_length < STILL_READABLE:
            return said
        return f"{said}; what stays readable is the length of embeddings (AUROC {self.by_length:.2f})"


@dataclass(frozen=True)
class Views:
    """Both views of every pair in r coordinates: principal axes of rows and views, in standardised units.

    Attributes
    ----------
    axes, variance : (d, r), (r,)
        V, orthonormal, and the variance of rows and views along each column, within sources.
    typical : float
        Mean variance of a feature.
    raw, moved : (2 m, r)
        The views before and after the correction of position: all first views, then all second ones.
    codes : (2 m,)
        Their sources.
    pairs : Contrasts
        Sources and people of the m pairs; ``values`` are the corrected contrasts in r coordinates.
    """

    axes: Floats
    variance: Floats
    typical: float
    raw: Floats
    moved: Floats
    codes: NDArray[np.int64]
    pairs: Contrasts

    @property
    def n_sources(self) -> int:
        """K."""
        return int(self.codes.max()) + 1

    def folds(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Return up to five splits of the pairs: whole people where known, else whole events."""
        one_kind = len(np.unique(self.codes)) == 2
        people = self.pairs.people if one_kind or self.pairs.people is not None else self._position() % 5
        tests = [test for _, test in contrast_folds(self.pairs.values, people)]
        if self.raw.shape[1] > MANY_AXES:  # three fits instead of five
            tests = [np.concatenate(tests[i::3]) for i in range(min(3, len(tests)))]
        every = np.arange(len(self.pairs))
        return [(np.setdiff1d(every, test), test) for test in tests] if len(tests) > 1 else []

    def units(self) -> NDArray[np.int64]:
        """Return which unit each pair belongs to: a participant, or some pairs where those are unknown."""
        people = self.pairs.people
        if people is not None and len(np.unique(people)) > 2:
            return np.unique(people, return_inverse=True)[1]
        order = self._position()
        if len(np.unique(self.codes)) == 2:
            order = np.empty(len(order), np.int64)
            order[np.argsort(np.linalg.norm(self.pairs.values, axis=1), kind="stable")] = np.arange(len(order))
        n_units = min(MOST_UNITS, (order.max() + 1) // UNIT_PAIRS)
        return np.asarray(order % max(1, n_units))

    def _position(self) -> NDArray[np.int64]:
        """Return each pair's place among those of its two sources: events come in the same order in all."""
        kind = _kinds(self.pairs)
        place = np.empty(len(kind), np.int64)
        for k in np.unique(kind):
            place[kind == k] = np.arange(np.sum(kind == k))
        return place


def _kinds(pairs: Contrasts) -> NDArray[np.int64]:
    return np.unique(np.column_stack([pairs.first, pairs.second]), axis=0, return_inverse=True)[1].ravel()


def read_views(
    contrasts: Contrasts, within: Scatter, n_rows: float, standardizer: Standardizer, position: AffineMap
) -> Views:
    """Return the paired views in the coordinates that everything here is computed in.

    Parameters
    ----------
    contrasts : Contrasts
        In the input's units, with midpoints.
    within : Scatter
        Of the standardised rows about their sources' means, as ``n_rows`` rows of weight one would scatter.
    n_rows : float
        Effective number of rows.
    standardizer : Standardizer
    position : AffineMap
        The correction of position.
    """
    scale = np.where(standardizer.varies, standardizer.scale, np.inf)
    views, codes = contrasts.views()
    raw, moved = ((rows - standardizer.center) / scale for rows in (views, position.transform(views)))
    centred = raw.copy()
    for code in np.unique(codes):
        centred[codes == code] -= raw[codes == code].mean(axis=0)
    axes = (within + Scatter.of_rows(centred)).axes()
    V = axes.back(np.eye(len(axes.values)))
    m, kind = len(contrasts), _kinds(contrasts)
    shifts = [(raw[m:] - raw[:m])[kind == k].mean(axis=0) for k in np.unique(kind)]
    V = orthonormal(V, np.stack(shifts, axis=1))  # of few rows, which need not vary along them
    variance = np.zeros(V.shape[1])
    variance[: len(axes.values)] = axes.values / (n_rows + len(raw))
    raw, moved = raw @ V, moved @ V
    pairs = replace(contrasts, values=moved[m:] - moved[:m], midpoints=(moved[m:] + moved[:m]) / 2)
    return Views(V, variance, float(variance.sum() / standardizer.varies.sum()), raw, moved, codes, pairs)


def shared_slope(
    contrasts: Floats, midpoints: Floats, kind: NDArray[np.int64], units: NDArray[np.int64]
) -> float:
    """Return the p-value of a slope of contrasts on midpoints that units have in common.

    Every unit's slope is its own cross-product of contrasts and midpoints, centred in the unit, so that
    offsets of people and sessions are no part of it. Where views are exchangeable, as noise and people's own
    gains are, a unit's slope is as likely to have the other sign. The sum of products of different units'
    slopes is compared with its values under exchanged signs: exactly, but for six units and fewer, whose
    signs are too few; those are compared by their standard error and a t-quantile.

    Parameters
    ----------
    contrasts, midpoints : (m, r), (m, r)
        In coordinates in which all directions count alike.
    kind : (m,)
        Which two sources a contrast is between.
    units : (m,)
        Participants, or groups of pairs.
    """
    n_units = int(units.max()) + 1
    if n_units < 3:
        return 1.0
    group = units * (kind.max() + 1) + kind
    member = (group[:, None] == np.unique(group)).astype(np.float64)
    member /= member.sum(axis=0)

    def centred(rows: Floats) -> Floats:
        return np.asarray(rows - (member > 0) @ (member.T @ rows))

    C, M = centred(contrasts), centred(midpoints)
    of_unit = (units == np.arange(n_units)[:, None]).astype(np.float64)
    products = np.zeros((n_units, n_units))
    for k in np.unique(kind):
        same = kind == k
        for unit in np.unique(units[same]):
            rows = same & (units == unit)
            block = (C[rows] @ C[same].T) * (M[rows] @ M[same].T)
            products[unit] += of_unit[:, same] @ block.sum(axis=0)
    np.fill_diagonal(products, 0.0)
    total = float(products.sum())
    if n_units < 7:
        of_each = products.sum(axis=1)
        error = np.sqrt(2.0 * n_units * np.var(of_each, ddof=1))  # every product is in two units' sums
        # The slope's direction is learnt, so that its sign is free: a test of two sides.
        return float(min(1.0, 2.0 * scipy.stats.t.sf(total / error, n_units - 1))) if error > 0 else 1.0
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(SIGN_FLIPS, n_units))
    exchanged = np.sum((signs @ products) * signs, axis=1)
    return float((1 + np.sum(exchanged >= total * (1 - 1e-9))) / (1 + SIGN_FLIPS))


def show_spread(views: Views) -> float:
    """Return :func:`shared_slope` of the pairs, with directions of much variance scaled down."""
    kind = _kinds(views.pairs)
    centred = views.pairs.values.copy()
    for k in np.unique(kind):
        centred[kind == k] -= centred[kind == k].mean(axis=0)
    axes = Scatter.of_rows(centred / np.sqrt(len(centred))).axes()
    whiten = 1.0 / np.sqrt(axes.values + SMALL * axes.values.sum() / len(views.axes))
    contrasts = centred @ axes.back(np.diag(whiten))
    midpoints = views.pairs.midpoints / np.sqrt(views.variance + SMALL * views.typical)
    return shared_slope(contrasts, midpoints, kind, views.units())


@dataclass(frozen=True)
class Posterior:
    """Gaussians of K sources in whitened coordinates y = (x - origin) whiten, x in r coordinates.

    Attributes
    ----------
    origin, whiten : (r,), (r, k)
    means, precisions, offsets : (K, k), (K, k, k), (K,)
        Of every source; offsets are half the logarithms of the precisions' determinants.
    temperature : float
        What scores are divided by.
    held_out : (2 m, K)
        Posteriors of the paired views, each by Gaussians of other pairs (of other people, where known).
    """

    origin: Floats
    whiten: Floats
    means: Floats
    precisions: Floats
    offsets: Floats
    temperature: float
    held_out: Floats

    def scores(self, Y: Floats) -> Floats:
        """Return log-densities, (n, K), up to a constant, divided by the temperature."""
        scores = []
        for mean, precision, offset in zip(self.means, self.precisions, self.offsets, strict=True):
            apart = Y - mean
            scores.append(offset - 0.5 * np.sum((apart @ precision) * apart, axis=1))
        return np.stack(scores, axis=1) / self.temperature


def fit_posterior(views: Views, rows: list[tuple[float, Floats]]) -> Posterior:
    """Return the posterior of the source given an uncorrected row.

    Parameters
    ----------
    views : Views
    rows : list of (n, (r, r) array)
        Of every source, the number and scatter of rows that are not paired, in r coordinates.
    """
    K, origin = views.n_sources, views.raw.mean(axis=0)
    # Directions with next to no variance, and no shift, are all ball, to every source alike.
    m = len(views.pairs)
    shifts = _source_means(views.raw, views, np.arange(m)) - origin
    kept = np.maximum(views.variance, np.max(shifts**2, axis=0)) > SMALL * BALL * views.typical
    variance = (1.0 - BALL) * views.variance[kept] + BALL * views.typical
    whiten = np.eye(len(kept))[:, kept] / np.sqrt(variance)
    Y = (views.raw - origin) @ whiten
    ball = np.diag(BALL * views.typical / variance)
    scatters = [(n, whiten.T @ S @ whiten) for n, S in rows]

    def gaussians(train: NDArray[np.intp]) -> tuple[Floats, list[Floats]]:
        both = np.concatenate([train, train + m])
        means, covariances = _source_means(Y, views, train), []
        for code, (n, scatter) in enumerate(scatters):
            mine = Y[both[views.codes[both] == code]]
            apart = mine - mine.mean(axis=0) if len(mine) else mine
            free = max(1.0, n + len(mine) - 1.0)
            covariances.append((1.0 - BALL) * (scatter + apart.T @ apart) / free + ball)
        return means, covariances

    held_out = np.zeros((len(POOLED), 2 * m, K))
    for train, test in views.folds():
        means, covariances = gaussians(train)
        both = np.concatenate([test, test + m])
        for j, pooled in enumerate(POOLED):
            for code in range(K):
                lower = np.linalg.cholesky(_shrunk(covariances[code], pooled))
                apart = scipy.linalg.solve_triangular(lower, (Y[both] - means[code]).T, lower=True)
                score = -0.5 * np.sum(apart**2, axis=0) - np.sum(np.log(np.diag(lower)))
                held_out[j, both, code] = score
    weight = 1.0 / np.bincount(views.codes, minlength=K)[views.codes]
    own = np.arange(2 * m), views.codes
    losses = np.array(
        [
            [-weight @ scipy.special.log_softmax(scores / t, axis=1)[own] for t in TEMPERATURES]
            for scores in held_out
        ]
    )
    j, t = np.unravel_index(int(losses.argmin()), losses.shape)
    means, covariances = gaussians(np.arange(m))
    shrunk = [_shrunk(C, POOLED[j]) for C in covariances]
    precisions = np.stack([np.linalg.inv(C) for C in shrunk])
    offsets = np.array([-0.5 * np.linalg.slogdet(C)[1] for C in shrunk])
    temperature = float(TEMPERATURES[t])
    p = scipy.special.softmax(held_out[j] / temperature, axis=1)
    return Posterior(origin, whiten, means, precisions, offsets, temperature, p)


def _shrunk(C: Floats, pooled: float) -> Floats:
    """Return a whitened covariance shrunk toward that of all sources, which is the identity."""
    return np.asarray((1.0 - pooled) * C + pooled * np.eye(len(C)))


def _source_means(Y: Floats, views: Views, train: NDArray[np.intp]) -> Floats:
    """Return the sources' means from pairs alone: of all midpoints, plus what each source adds to them."""
    m, K = len(views.pairs), views.n_sources
    design = np.zeros((len(train), K))
    design[np.arange(len(train)), views.pairs.second[train]] += 1.0
    design[np.arange(len(train)), views.pairs.first[train]] -= 1.0
    effects = np.linalg.pinv(design) @ (Y[train + m] - Y[train])  # they add up to zero
    return np.asarray((Y[train + m] + Y[train]).mean(axis=0) / 2 + effects)


def fit_edits(
    views: Views, train: NDArray[np.intp], ridges: dict[tuple[int, int], float]
) -> tuple[list[Affine], dict[tuple[int, int], float]]:
    """Return D_s of every source, from a corrected view to the mean of all views, and the ridges chosen.

    The regression of the contrast with each other source on a view; sources without common pairs are
    reached through others. D_s is the mean of the ways to all sources, itself included.

    Parameters
    ----------
    views : Views
    train : array
        Pairs to use.
    ridges : dict
        Of regressions (from, to), where they are known already; the others' by generalised cross-validation.
    """
    K, m, r = views.n_sources, len(views.pairs), views.moved.shape[1]
    ways: dict[tuple[int, int], Affine] = {}
    ridges = dict(ridges)
    first, second = views.pairs.first[train], views.pairs.second[train]
    for a, b in {(int(s), int(t)) for s, t in zip(first, second, strict=True)}:
        rows = train[(first == a) & (second == b)]
        for way, x, y in (
            ((a, b), views.moved[rows], views.pairs.values[rows]),
            ((b, a), views.moved[rows + m], -views.pairs.values[rows]),
        ):
            x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
            slope, ridges[way] = _ridge(x - x_mean, y - y_mean, ridges.get(way))
            ways[way] = np.eye(r) + slope, y_mean - x_mean @ slope
    edits = []
    for s in range(K):
        reached: dict[int, Affine] = {s: (np.eye(r), np.zeros(r))}
        while new := [(t, u) for t in reached for u in range(K) if (t, u) in ways and u not in reached]:
            for t, u in new:
                if u not in reached:
                    (M, v), (N, w) = reached[t], ways[t, u]
                    reached[u] = M @ N, v @ N + w
        M = sum(M for M, _ in reached.values()) / len(reached)
        v = sum(v for _, v in reached.values()) / len(reached)
        edits.append((np.asarray(M - np.eye(r)), np.asarray(v)))
    return edits, ridges


def _ridge(x: Floats, y: Floats, ridge: float | None) -> tuple[Floats, float]:
    """Return the ridge regression of centred y on centred x, (r, r), and its penalty."""
    if ridge is None:
        axes = Scatter.of_rows(x).axes()
        products = axes.along(x.T @ y)
        n = len(x) - 1.0
        ridge = cross_validated_ridge(axes.values, products, float(np.sum(y**2)), n) if len(products) else 1.0
        return axes.back(products / (axes.values + ridge)[:, None]), ridge
    few = len(x) < x.shape[1]
    gram = x @ x.T if few else x.T @ x
    factor = scipy.linalg.cho_factor(gram + ridge * np.eye(len(gram)))
    if few:
        return x.T @ scipy.linalg.cho_solve(factor, y), ridge
    return scipy.linalg.cho_solve(factor, x.T @ y), ridge


def apply_edits(edits: list[Affine], p: Floats, Y: Floats) -> Floats:
    """Return Σ_s p_s D_s for rows Y in r coordinates, (n, r)."""
    return np.asarray(sum(p[:, [s]] * (Y @ M + v) for s, (M, v) in enumerate(edits)))


def unpaired_scatters(data: Evidence, V: Floats, scale: Floats) -> list[tuple[float, Floats]]:
    """Return number and scatter, in the coordinates V, of every source's rows that are not paired.

    Paired rows are taken out of the moments they are part of, so that held-out pairs stay held out. With
    weights, which pairs do not have, they cannot be: pairs then speak for all rows.
    """
    moments, sizes = data.moments, data.moments.weights / data.moments.counts
    paired = Moments({})
    for rows in data.paired_rows:
        _, event, n_views = np.unique(rows.pair_id, return_inverse=True, return_counts=True)
        paired = paired + Moments.from_rows(rows.X[n_views[event] > 1], rows.source[n_views[event] > 1])
    weighted = not np.allclose(moments.weights, [part.n_rows for part in moments.parts.values()])
    scatters = []
    for (label, part), size in zip(moments.parts.items(), sizes, strict=True):
        scatter, n = part.spread.scaled(scale * np.sqrt(size)).inside(V), part.weight / size
        if label in paired.parts:
            other = paired.parts[label]
            left = part.weight - other.weight
            if weighted or left < 2:
                scatters.append((0.0, np.zeros_like(scatter)))
                continue
            gap = (part.mean - other.mean) / scale @ V * part.weight / left
            scatter = scatter - other.spread.scaled(scale).inside(V)
            scatter -= np.outer(gap, gap) * other.weight * left / part.weight
            n = left
        scatters.append((n, scatter))
    return scatters


def rows_scale(views: Views, rows: list[tuple[float, Floats]]) -> float:
    """Return the rows' difference in spread as a multiple of the pairs'; NaN if all rows are pairs.

    The pairs' own is the product of two halves' differences, of other people where known.
    """
    if min(n for n, _ in rows) < 2:
        return float("nan")
    m, units = len(views.pairs), views.units()
    whiten = 1.0 / np.sqrt(views.variance + SMALL * views.typical)

    def differences(covariances: list[Floats]) -> Floats:
        stack = np.stack(covariances) * whiten * whiten[:, None]
        return np.asarray(stack - stack.mean(axis=0))

    halves = []
    for half in (0, 1):
        mine = np.tile(units % 2 == half, 2)
        covariances = []
        for code in range(views.n_sources):
            Y = views.raw[mine & (views.codes == code)]
            if len(Y) < 2:
                return float("nan")
            covariances.append(np.cov(Y.T).reshape(Y.shape[1], -1))
        halves.append(differences(covariances))
    common = float(np.sum(halves[0] * halves[1]))
    of_rows = differences([S / (n - 1.0) for n, S in rows])
    return float(np.sum(of_rows * (halves[0] + halves[1]))) / (2.0 * common) if common > 0 else float("nan")


def describe_spread(views: Views) -> tuple[float, float, float]:
    """Return shares of contrasts, less their mean: gains along directions, rotation, and noise.

    Of the regression of contrasts on midpoints, in whitened coordinates: its symmetric part, which stretches,
    its antisymmetric part, which turns, and what it leaves.
    """
    whiten = 1.0 / np.sqrt(views.variance + SMALL * views.typical)
    stretched, turned, total = 0.0, 0.0, 0.0
    kind = _kinds(views.pairs)
    for k in np.unique(kind):
        C, M = (rows[kind == k] * whiten for rows in (views.pairs.values, views.pairs.midpoints))
        C, M = C - C.mean(axis=0), M - M.mean(axis=0)
        slope, _ = _ridge(M, C, None)
        fitted = [M @ (slope + sign * slope.T) / 2 for sign in (1.0, -1.0)]
        explained = max(0.0, 2.0 * np.sum(C * (M @ slope)) - np.sum((M @ slope) ** 2))
        stretch, turn = (float(np.sum(part**2)) for part in fitted)
        both = max(stretch + turn, np.finfo(np.float64).tiny)
        stretched, turned = stretched + explained * stretch / both, turned + explained * turn / both
        total += float(np.sum(C**2))
    total = max(total, np.finfo(np.float64).tiny)
    return stretched / total, turned / total, max(0.0, 1.0 - (stretched + turned) / total)


@dataclass(frozen=True)
class Spread:
    """A correction of spread in r coordinates, and what held-out pairs say about it."""

    evidence: SpreadEvidence
    views: Views
    posterior: Posterior | None = None
    edits: tuple[Affine, ...] = ()


def fit_spread(views: Views, rows: list[tuple[float, Floats]], *, always: bool = False) -> Spread:
    """Fit the correction of spread, if pairs show that there is one to correct.

    Parameters
    ----------
    views : Views
    rows : list of (n, (r, r) array)
        Unpaired rows of every source: :func:`unpaired_scatters`.
    always : bool
        Fit it whatever the evidence.
    """
    units, m = views.units(), len(views.pairs)
    people = views.pairs.people
    whole = people is not None and len(np.unique(people)) > 2
    evidence = SpreadEvidence(
        show_spread(views), int(units.max()) + 1, "participants" if whole else "groups of pairs"
    )
    if not (evidence.is_shown or always) or not views.folds():
        return Spread(evidence, views)
    gain, rotation, noise = describe_spread(views)
    evidence = replace(
        evidence, scale=rows_scale(views, rows), gain=gain, rotation=rotation, noise=noise
    )
    posterior = fit_posterior(views, rows)
    edits, ridges = fit_edits(views, np.arange(m), {})
    moved = views.moved.copy()
    for train, test in views.folds():
        both = np.concatenate([test, test + m])
        held_out, _ = fit_edits(views, train, ridges)
        moved[both] += apply_edits(held_out, posterior.held_out[both], views.moved[both])
    before, after = (np.sum((a[m:] - a[:m]) ** 2, axis=1) for a in (views.moved, moved))
    closer = np.bincount(units if whole else np.arange(m), before - after)
    error = np.sqrt(len(closer) * np.var(closer, ddof=1)) / before.sum()
    right = posterior.held_out.argmax(axis=1) == views.codes
    evidence = replace(
        evidence,
        removed=float(closer.sum() / before.sum()),
        error=float(error),
        readable=float(np.mean([right[views.codes == code].mean() for code in range(views.n_sources)])),
        by_length=_read_by_length((moved - moved.mean(axis=0)) @ posterior.whiten, views.codes),
    )
    return Spread(evidence, views, posterior, tuple(edits))


def _read_by_length(Y: Floats, codes: NDArray[np.int64]) -> float:
    """Return the AUROC of the source by the length of rows; of several sources, of the two told apart best."""
    lengths = [np.sum(Y[codes == code] ** 2, axis=1) for code in np.unique(codes)]
    best = 0.5
    for i, one in enumerate(lengths):
        for other in lengths[:i]:
            auroc = scipy.stats.mannwhitneyu(one, other).statistic / (len(one) * len(other))
            best = max(best, auroc, 1.0 - auroc)
    return float(best)


def spread_map(spread: Spread, position: AffineMap, standardizer: Standardizer, **facts: Any) -> SpreadMap:
    """Return position and spread as one stored map.

    Parameters
    ----------
    spread : Spread
    position : AffineMap
    standardizer : Standardizer
    **facts
        ``strength`` and ``info`` of the map.
    """
    views, posterior = spread.views, spread.posterior
    assert posterior is not None
    V, scale = views.axes, standardizer.scale
    readout, along = position.readout * scale[:, None], (position.direction / scale[:, None]).T @ V
    offset = position.offset + (standardizer.center - position.center) @ position.readout
    edit, edit_offset = [], []
    for M, v in spread.edits:  # E_s(h) = pos(h) + D_s(h + pos(h)), pos(h) = -(h readout + offset) along
        stays = along @ (np.eye(len(M)) + M)
        edit.append(V @ M - readout @ stays)
        edit_offset.append(v - offset @ stays)
    edits, offsets = np.stack(edit), np.stack(edit_offset)
    # Rows move in the span of the contrasts. Differences too small to see are not too small to read, so
    # nothing of it is left out.
    turn = np.eye(V.shape[1])
    if len(views.pairs) < 0.7 * len(scale):
        _, sizes, turn = np.linalg.svd(np.concatenate([views.pairs.values, along]), full_matrices=False)
        turn = turn[sizes > sizes[0] * V.shape[1] * np.finfo(np.float64).eps].T
    edits, offsets, direction = edits @ turn, offsets @ turn, (V @ turn).T
    if len(direction) > 0.7 * len(scale):  # two thin products cost more than one
        edits, offsets, direction = edits @ direction, offsets @ direction, None
    square, square_weight, linear, bias = score_form(posterior, views)
    return SpreadMap(
        center=standardizer.center,
        scale=scale,
        square=square @ V.T,
        square_weight=square_weight,
        linear=linear @ V.T,
        bias=bias,
        edit=edits,
        edit_offset=offsets,
        direction=direction,
        **facts,
    )


def score_form(posterior: Posterior, views: Views) -> tuple[Floats, Floats, Floats, Floats]:
    """Return scores as squares and a linear part: directions (q, r), weights (q, K), linear (K, r), bias (K).

    Relative to the first source, whose scores are zero. Squares that change no posterior of the paired views
    by more than :data:`LOST` are replaced by their mean.
    """
    K, temperature = len(posterior.offsets), posterior.temperature
    Y = (views.raw - posterior.origin) @ posterior.whiten
    linear = np.einsum("skl,sl->sk", posterior.precisions, posterior.means)
    bias = posterior.offsets - 0.5 * np.sum(linear * posterior.means, axis=1)
    linear, bias = (linear - linear[0]) / temperature, (bias - bias[0]) / temperature
    directions, weights = [], []
    for s in range(1, K):
        values, vectors = np.linalg.eigh(posterior.precisions[s] - posterior.precisions[0])
        weight = np.zeros((len(values), K))
        weight[:, s] = -0.5 * values / temperature
        directions.append(vectors.T)
        weights.append(weight)
    G, w = np.concatenate(directions), np.concatenate(weights)
    squares = (Y @ G.T) ** 2
    influence = np.max(np.abs(w), axis=1) * squares.std(axis=0)
    order = np.argsort(-influence, kind="stable")
    G, w, squares = G[order], w[order], squares[:, order]
    means = squares.mean(axis=0)
    exact = scipy.special.softmax(Y @ linear.T + bias + squares @ w, axis=1)

    def lost(q: int) -> float:
        scores = Y @ linear.T + bias + squares[:, :q] @ w[:q] + means[q:] @ w[q:]
        return float(np.abs(scipy.special.softmax(scores, axis=1) - exact).max())

    low, high = 0, len(G)
    while low < high:  # the loss need not fall with every square, but where the search ends it is small
        middle = (low + high) // 2
        low, high = (low, middle) if lost(middle) < LOST else (middle + 1, high)
    bias = bias + means[low:] @ w[low:]
    G, w = G[:low] @ posterior.whiten.T, w[:low]
    # (g·(x - o))² = (g·x)² - 2 (g·o)(g·x) + (g·o)²
    at_origin, linear = G @ posterior.origin, linear @ posterior.whiten.T
    bias = bias - linear @ posterior.origin + at_origin**2 @ w
    return G, w, linear - 2.0 * (w * at_origin[:, None]).T @ G, bias
