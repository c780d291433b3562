"""The posterior of the source of an uncorrected row, with one Gaussian per source.

    log p_s(y) = b_s + l_s·y - yᵀP_s y / 2, up to a common constant.

Means come only from pairs, in which content is not associated with the source. Covariances come from the
paired views and, if this improves the recognition of held-out views, also from other rows; the classes of
these rows may differ in covariance and be associated with a source. Covariances are shrunk toward the pooled
covariance. The covariances, the shrinkage and a temperature are chosen to minimise the log loss on held-out
pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.special
from numpy.typing import NDArray

from ..linalg import blocks
from .views import BALL, BLOCK, SMALL, Floats, Views

POOLED = (0.0, 0.1, 0.3, 0.6, 0.9)  # candidate weights of the pooled covariance
TEMPERATURES = np.geomspace(1.0, 16.0, 17)
LOST = 1e-3  # largest change of a posterior when the map keeps fewer squares
COUNTS = 33  # number of candidates for the number of squares
TYPICAL = 2**21  # numbers of views that show which squares matter


@dataclass(frozen=True, eq=False)
class Whitening:
    """Coordinates that may separate sources, with their origin and scaling to unit variance."""

    chosen: NDArray[np.intp]
    origin: Floats
    factor: Floats

    @classmethod
    def of(cls, views: Views) -> Whitening:
        """Return the coordinates that have variance or a shift."""
        shifts = views.source_means(np.arange(len(views)))
        largest = np.maximum(views.variance, np.max((shifts - shifts.mean(axis=0)) ** 2, axis=0))
        chosen = np.flatnonzero(largest > SMALL * BALL * views.typical)
        variance = (1.0 - BALL) * views.variance[chosen] + BALL * views.typical
        return cls(chosen, views.raw.mean(axis=0)[chosen], 1.0 / np.sqrt(variance))

    def white(self, rows: Floats) -> Floats:
        """Return rows in the whitened coordinates."""
        some = len(self.chosen) < rows.shape[1]
        white = (rows[:, self.chosen] if some else rows) - self.origin
        white *= self.factor
        return white


@dataclass(frozen=True, eq=False)
class Posterior:
    """Gaussians of K sources in whitened coordinates, and their accuracy on held-out views."""

    whitening: Whitening
    squares: list[
        tuple[Floats, Floats]
    ]  # g (k, k) and w (k,): P_s - P_0 = Σ w gᵀg, of all sources but the first
    linear: Floats  # l (K, k)
    bias: Floats  # b (K,)
    held_out: Floats  # (2 m, K): posteriors of views under Gaussians fitted on other pairs
    loss: float  # log loss of these posteriors, with equal weights for sources


@dataclass(frozen=True, eq=False)
class Points:
    """Quantities of the whitened views that do not depend on additional rows."""

    codes: NDArray[np.int64]  # (n,): source of each distinct view
    times: Floats  # (n,): number of repetitions of each distinct view
    center: Floats  # (K, k): means of the sources
    scatters: list[Floats]  # scatter matrices around these means
    means: Floats  # (K, k): means of the sources from all pairs
    means_without: list[Floats]  # means of the sources from the training pairs of each fold

    @classmethod
    def of(cls, views: Views, whitening: Whitening) -> Points:
        """Return the distinct views in whitened coordinates."""
        some, times = views.distinct.views, views.distinct.times
        codes, center, scatters = views.codes[some], [], []
        for code in range(views.n_sources):
            rows = np.flatnonzero(codes == code)
            parts = views.blocks(rows)
            total = np.sum([times[part] @ views.raw[some[part]] for part in parts], axis=0)
            center.append(whitening.white(total[None] / times[rows].sum())[0])
            scatter = np.zeros((len(whitening.chosen), len(whitening.chosen)))
            for part in parts:
                apart = whitening.white(views.raw[some[part]])
                apart -= center[code]
                apart *= np.sqrt(times[part, None])
                scatter += apart.T @ apart
            scatters.append(scatter)
        means, *without = (
            whitening.white(views.source_means(train))
            for train in (np.arange(len(views)), *(train for train, _ in views.folds))
        )
        return cls(codes, times, np.stack(center), scatters, means, without)


@dataclass(frozen=True, eq=False)
class Covariances:
    """The covariances of the sources: their scatters over their degrees of freedom."""

    scatters: list[Floats]
    free: Floats  # (K,)
    axes: list[tuple[Floats, Floats]]  # of :func:`joint_axes`


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Rows to subtract from the scatters of the sources if some views are left out.

    Scatters are around the mean of all views of a source. One more row per source accounts for the mean of
    the remaining views.
    """

    rows: Floats  # left-out views minus the mean of their source, then the additional rows
    codes: NDArray[np.int64]  # source of each row
    times: Floats  # number of repetitions of each row
    n_views: int

    @classmethod
    def of(cls, white: Floats, codes: NDArray[np.int64], times: Floats, points: Points) -> LeftOut:
        """Return the rows of some views; ``white`` is overwritten."""
        n_all = np.bincount(points.codes, points.times)
        white -= points.center[codes]
        labels, moved = np.unique(codes), []
        for code in labels:
            rows = np.flatnonzero(codes == code)
            n = times[rows].sum()
            moved.append(times[rows] @ white[rows] / np.sqrt(max(1.0, n_all[code] - n)))
        codes, times = np.concatenate([codes, labels]), np.concatenate([times, np.ones(len(labels))])
        return cls(np.concatenate([white, moved]), codes, times, len(white))


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Covariances of the sources, and their accuracy on held-out views at the best settings."""

    covariances: Covariances
    held_out: Floats  # (K, n): log-densities of the distinct views when held out
    pooled: float
    temperature: float
    loss: float


def fit_posterior(views: Views, rows: list[tuple[float, Floats]]) -> Posterior:
    """Return the best Gaussians for held-out views; ``rows`` has counts and scatters of other rows."""
    whitening = Whitening.of(views)
    points = Points.of(views, whitening)
    best = fit_gaussians(views, whitening, points, rows)
    if any(n for n, _ in rows):
        from_views = fit_gaussians(views, whitening, points, [(0.0, np.zeros_like(S)) for _, S in rows])
        best = best if best.loss <= from_views.loss else from_views
    temperature, pooled = best.temperature, best.pooled
    axes, free = best.covariances.axes, best.covariances.free
    shrunk = [
        temperature * ((1.0 - pooled) * values / n + pooled / free.sum())
        for (values, _), n in zip(axes, free, strict=True)
    ]
    linear = np.stack(
        [W @ (mean @ W / v) for mean, (_, W), v in zip(points.means, axes, shrunk, strict=True)]
    )
    determinants = np.array([np.sum(np.log(values / temperature)) for values in shrunk]) / temperature
    bias = -0.5 * (determinants + np.sum(linear * points.means, axis=1))
    first, squares = axes[0][1], []
    for (_, W), values in zip(axes[1:], shrunk[1:], strict=True):
        if W is first:
            squares.append((W.T, 1.0 / values - 1.0 / shrunk[0]))
        else:
            weights, vectors = np.linalg.eigh((W / values) @ W.T - (first / shrunk[0]) @ first.T)
            squares.append((vectors.T, weights))
    posterior = scipy.special.softmax(best.held_out.T / temperature, axis=1)[views.distinct.of_view]
    return Posterior(whitening, squares, linear, bias, posterior, best.loss)


def fit_gaussians(
    views: Views, whitening: Whitening, points: Points, rows: list[tuple[float, Floats]]
) -> Gaussians:
    """Return Gaussians with covariances estimated from views and further rows."""
    distinct, codes, times, K = views.distinct, points.codes, points.times, views.n_sources
    covariances = estimate_covariances(views, whitening, points, rows)
    held_out = np.empty((K, len(POOLED), len(codes)))
    for fold, means in enumerate(points.means_without):
        some = np.flatnonzero(distinct.fold == fold)
        white = whitening.white(views.raw[distinct.views[some]])
        out = LeftOut.of(white, codes[some], times[some], points)
        held_out[:, :, some] = densities_without(out, points.center, means, covariances)
    source_weight = times / np.bincount(codes, times, K)[codes] / K
    losses = np.empty((len(POOLED), len(TEMPERATURES)))
    for loss, temperature in zip(losses.T, TEMPERATURES, strict=True):
        likely = scipy.special.log_softmax(held_out / temperature, axis=0)[codes, :, np.arange(len(codes))]
        loss[:] = -(source_weight @ likely)
    best, t = np.unravel_index(int(losses.argmin()), losses.shape)
    chosen = np.ascontiguousarray(held_out[:, best])
    return Gaussians(covariances, chosen, POOLED[best], float(TEMPERATURES[t]), float(losses[best, t]))


def estimate_covariances(
    views: Views, whitening: Whitening, points: Points, rows: list[tuple[float, Floats]]
) -> Covariances:
    """Return the covariances of the sources, estimated from views and further rows."""
    factor, n_views = whitening.factor, np.bincount(points.codes, points.times, views.n_sources)
    scatters, free = [], np.empty(views.n_sources)
    for code, (n, scatter) in enumerate(rows):
        C = scatter[np.ix_(whitening.chosen, whitening.chosen)] * factor * factor[:, None]
        C += points.scatters[code]
        free[code] = max(1.0, n + n_views[code] - 1.0 - (n > 1.5))
        C *= 1.0 - BALL
        C[np.diag_indices_from(C)] += free[code] * BALL * views.typical * factor**2
        scatters.append(C)
    return Covariances(scatters, free, joint_axes(scatters))


def joint_axes(scatters: list[Floats]) -> list[tuple[Floats, Floats]]:
    """Return (values, W) for each scatter, with Wᵀ scatter W = diag(values) and Wᵀ (sum of all) W = I.

    W diagonalises the scatter and the sum simultaneously.
    """
    total = np.sum(scatters, axis=0)
    if len(scatters) > 2:
        return [scipy.linalg.eigh(scatter, total) for scatter in scatters]
    values, W = scipy.linalg.eigh(scatters[0], total)
    return [(values, W), (1.0 - values, W)]


def densities_without(out: LeftOut, center: Floats, means: Floats, covariances: Covariances) -> Floats:
    """Return log-densities (K, len(POOLED), n) of left-out views, up to a constant.

    The Gaussians are fitted without these views. ``center`` (K, k) has the means of the sources over all
    views, ``means`` those without these views. With fewer views than coordinates, the axes of all views and
    Gram matrices are used; otherwise computing new axes is faster.
    """
    rows, whose, times, n = out.rows, out.codes, out.times, out.n_views
    share, free, axes, K = 1.0 - BALL, covariances.free, covariances.axes, len(center)
    n_out = np.bincount(whose[:n], times[:n], K)
    n_left, n_left_in_all = np.maximum(1.0, free - n_out), max(1.0, free.sum() - n_out.sum())
    few = len(rows) < rows.shape[1]
    if not few:
        weighted = rows * np.sqrt(times)[:, None]
        parts = [weighted[whose == code] for code in range(K)]
        scatters = zip(covariances.scatters, parts, strict=True)
        axes = joint_axes([S - share * (part.T @ part) for S, part in scatters])
        del weighted, parts
    densities, before = np.empty((K, len(POOLED), n)), None
    for code, (values, W) in enumerate(axes):
        if W is not before:
            turned, before = rows @ W, W
        shifts = (center - means[code]) @ W
        spread = np.stack(
            [(1.0 - pooled) * values / n_left[code] + pooled / n_left_in_all for pooled in POOLED]
        )
        if few:
            for j, pooled in enumerate(POOLED):
                weight = (
                    share * times * ((1.0 - pooled) * (whose == code) / n_left[code] + pooled / n_left_in_all)
                )
                densities[code, j] = log_density(turned, shifts, whose[:n], spread[j], weight)
        else:
            moved = turned[:n] + shifts[whose[:n]]
            squares = np.square(moved, out=moved) @ (1.0 / spread.T)
            densities[code] = -0.5 * (squares + np.sum(np.log(spread), axis=1)).T
    return densities


def log_density(
    out: Floats, shifts: Floats, codes: NDArray[np.int64], values: Floats, weight: Floats
) -> Floats:
    """Return log-densities of a Gaussian with covariance diag(values) - outᵀ diag(weight) out.

    They omit a constant and are evaluated at the first ``len(codes)`` rows of ``out``, each plus the shift of
    its code, by Woodbury's identity in the space of the rows of ``out``. One Gram matrix has all products.
    """
    n, n_codes = len(out), len(codes)
    scaled = np.empty((n + len(shifts), out.shape[1]))
    root = 1.0 / np.sqrt(values)
    np.multiply(out, root, out=scaled[:n])
    np.multiply(shifts, root, out=scaled[n:])
    # Use only SciPy's BLAS, because threads of two BLAS libraries in one loop would wait for each other.
    gram = scipy.linalg.blas.dsyrk(1.0, scaled.T, trans=1, lower=1)
    gram += np.tril(gram, -1).T
    inside, with_shifts = gram[:n, :n], gram[:, n:]
    first = np.arange(n_codes)
    squares = np.diag(inside)[:n_codes] + 2.0 * with_shifts[first, codes] + np.diag(with_shifts[n:])[codes]
    root = np.sqrt(weight)[:, None]
    across = root * (inside[:, :n_codes] + with_shifts[:n, codes])
    inside *= -root * root.T
    inside[np.diag_indices(n)] += 1.0
    lower = scipy.linalg.cholesky(inside, lower=True, check_finite=False)
    solved = scipy.linalg.solve_triangular(lower, across, lower=True, overwrite_b=True, check_finite=False)
    squares += np.einsum("ij,ij->j", solved, solved)
    return np.asarray(-0.5 * (squares + np.sum(np.log(values))) - np.sum(np.log(np.diag(lower))))


def score_form(views: Views, posterior: Posterior) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the scores' form: square directions (q, d) and weights (q, K), linear part (K, d), bias (K).

    Scores are relative to the first source. Squares that change the posteriors of paired views by at most
    :data:`LOST` are replaced by a constant.
    """
    whitening, K, n_views = posterior.whitening, views.n_sources, len(views.raw)
    chosen, origin, factor = whitening.chosen, whitening.origin, whitening.factor
    linear, bias = (array - array[0] for array in (posterior.linear, posterior.bias))
    G = np.concatenate([directions for directions, _ in posterior.squares])
    w = np.zeros((len(G), K))
    w[np.arange(len(G)), np.repeat(np.arange(1, K), len(chosen))] = -0.5 * np.concatenate(
        [weights for _, weights in posterior.squares]
    )

    def squares(part: NDArray[np.intp]) -> tuple[Floats, Floats]:
        Y = whitening.white(views.raw[part])
        products = Y @ G.T
        return Y, np.square(products, out=products)

    n_typical = min(n_views, max(1, TYPICAL // (K * views.raw.shape[1])))
    typical = np.linspace(0, n_views - 1, n_typical).astype(np.intp)
    exact = squares(typical)[1]
    means, matters = exact.mean(axis=0), np.max(np.abs(w), axis=1) * exact.std(axis=0)
    order = np.argsort(-matters, kind="stable")
    G, w, means = G[order], w[order], means[order]
    counts = np.unique(np.linspace(0, len(G), COUNTS).round().astype(int))
    lost = np.zeros(len(counts))  # change of posteriors if all further squares are replaced by their means
    some = views.distinct.views
    for part in blocks(len(some), max(1, BLOCK // (K * views.raw.shape[1]))):
        Y, exact = squares(some[part])
        exact -= means
        scored = np.zeros((len(counts), len(Y), K))
        for k in range(1, K):
            scored[1:, :, k] = np.cumsum(exact * w[:, k], axis=1)[:, counts[1:] - 1].T
        scored += Y @ linear.T + bias + means @ w
        probable = scipy.special.softmax(scored, axis=2)
        lost = np.maximum(lost, np.abs(probable - probable[-1]).max(axis=(1, 2)))
    low = counts[1 + max(np.flatnonzero(lost >= LOST), default=-1)]
    bias = bias + means[low:] @ w[low:]
    G, w, linear = G[:low] * factor, w[:low], linear * factor
    # (g·(x - o))² = (g·x)² - 2 (g·o)(g·x) + (g·o)²
    at_origin = G @ origin
    bias = bias - linear @ origin + at_origin**2 @ w
    linear = linear - 2.0 * (w * at_origin[:, None]).T @ G
    V = views.axes[:, chosen].T
    return G @ V, w, linear @ V, bias
