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

from ..linalg import BLOCK, blocks
from .views import BALL, SMALL, Floats, Views

POOLED = (0.0, 0.1, 0.3, 0.6, 0.9)  # candidate weights of the pooled covariance
TEMPERATURES = np.geomspace(1.0, 16.0, 17)
LOST = 1e-3  # largest change of a posterior when the map keeps fewer squares
COUNTS = 33  # number of candidates for the number of squares


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
    """Whitened views, with quantities that do not depend on additional rows."""

    white: Floats  # (n, k): distinct views, whitened
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
        white, codes = np.empty((len(some), len(whitening.chosen))), views.codes[some]
        for part in views.blocks(np.arange(len(white))):
            white[part] = whitening.white(views.raw[some[part]])
        center, scatters = [], []
        for code in range(views.n_sources):
            rows = np.flatnonzero(codes == code)
            center.append(times[rows] @ white[rows] / times[rows].sum())
            scatter = np.zeros((white.shape[1], white.shape[1]))
            for part in views.blocks(rows):
                apart = (white[part] - center[code]) * np.sqrt(times[part, None])
                scatter += apart.T @ apart
            scatters.append(scatter)
        means, *without = (
            whitening.white(views.source_means(train))
            for train in (np.arange(len(views)), *(train for train, _ in views.folds))
        )
        return cls(white, codes, times, np.stack(center), scatters, means, without)


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Covariances of the sources, and their accuracy on held-out views at the best settings."""

    free: Floats  # (K,): degrees of freedom
    axes: list[tuple[Floats, Floats]]  # results of :func:`joint_axes`
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
    shrunk = [
        temperature * ((1.0 - pooled) * values / n + pooled / best.free.sum())
        for (values, _), n in zip(best.axes, best.free, strict=True)
    ]
    linear = np.stack(
        [W @ (mean @ W / v) for mean, (_, W), v in zip(points.means, best.axes, shrunk, strict=True)]
    )
    determinants = np.array([np.sum(np.log(values / temperature)) for values in shrunk]) / temperature
    bias = -0.5 * (determinants + np.sum(linear * points.means, axis=1))
    first, squares = best.axes[0][1], []
    for (_, W), values in zip(best.axes[1:], shrunk[1:], strict=True):
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
    K, codes, times, factor = views.n_sources, points.codes, points.times, whitening.factor
    scatters, free, n_views = [], np.empty(K), np.bincount(codes, times, K).astype(np.float64)
    for code, (n, scatter) in enumerate(rows):
        C = scatter[np.ix_(whitening.chosen, whitening.chosen)] * factor * factor[:, None]
        C += points.scatters[code]
        free[code] = max(1.0, n + n_views[code] - 1.0 - (n > 1.5))
        C *= 1.0 - BALL
        C[np.diag_indices_from(C)] += free[code] * BALL * views.typical * factor**2
        scatters.append(C)
    axes = joint_axes(scatters)
    held_out = np.empty((K, len(POOLED), len(codes)))
    for fold, means in enumerate(points.means_without):
        some = np.flatnonzero(views.distinct.fold == fold)
        out = _left_out(points.white[some], codes[some], times[some], points.center, n_views)
        held_out[:, :, some] = _held_out(*out, codes[some], points.center, means, scatters, free, axes)
    source_weight = times / n_views[codes] / K
    losses = np.empty((len(POOLED), len(TEMPERATURES)))
    for loss, temperature in zip(losses.T, TEMPERATURES, strict=True):
        likely = scipy.special.log_softmax(held_out / temperature, axis=0)[codes, :, np.arange(len(codes))]
        loss[:] = -(source_weight @ likely)
    best, t = np.unravel_index(int(losses.argmin()), losses.shape)
    chosen = np.ascontiguousarray(held_out[:, best])
    return Gaussians(free, axes, chosen, POOLED[best], float(TEMPERATURES[t]), float(losses[best, t]))


def joint_axes(scatters: list[Floats]) -> list[tuple[Floats, Floats]]:
    """Return (values, W) for each scatter, with Wᵀ scatter W = diag(values) and Wᵀ (sum of all) W = I.

    W diagonalises the scatter and the sum simultaneously.
    """
    total = np.sum(scatters, axis=0)
    if len(scatters) > 2:
        return [scipy.linalg.eigh(scatter, total) for scatter in scatters]
    values, W = scipy.linalg.eigh(scatters[0], total)
    return [(values, W), (1.0 - values, W)]


def _left_out(
    points: Floats, codes: NDArray[np.int64], times: Floats, center: Floats, n_all: Floats
) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Return the downdate of scatters when points are left out: a factor, its sources and multiplicities.

    Scatters are around the mean of all ``n_all`` points of a source. One more row per source accounts for the
    mean of the remaining points.
    """
    apart = points - center[codes]
    labels, moved = np.unique(codes), []
    for code in labels:
        rows = np.flatnonzero(codes == code)
        n = times[rows].sum()
        moved.append(times[rows] @ apart[rows] / np.sqrt(max(1.0, n_all[code] - n)))
    out = np.concatenate([apart, moved])
    return out, np.concatenate([codes, labels]), np.concatenate([times, np.ones(len(labels))])


def _held_out(
    out: Floats,
    whose: NDArray[np.int64],
    times: Floats,
    codes: NDArray[np.int64],
    center: Floats,
    means: Floats,
    scatters: list[Floats],
    free: Floats,
    axes: list[tuple[Floats, Floats]],
) -> Floats:
    """Return log-densities (K, len(POOLED), n) of left-out views, up to a constant.

    The Gaussians are fitted without these views. ``out``, ``whose`` and ``times`` are results of
    :func:`_left_out`; ``means`` has the means of the sources without these views. With fewer views than
    coordinates, the axes of all views and Gram matrices are used; otherwise computing new axes is faster.
    """
    share, n, n_out = 1.0 - BALL, len(codes), np.bincount(codes, times[: len(codes)], len(center))
    n_left, n_left_in_all = np.maximum(1.0, free - n_out), max(1.0, free.sum() - n_out.sum())
    few = len(out) < out.shape[1]
    if not few:
        parts = [(out * np.sqrt(times)[:, None])[whose == code] for code in range(len(center))]
        axes = joint_axes([S - share * (part.T @ part) for S, part in zip(scatters, parts, strict=True)])
    densities, before = np.empty((len(center), len(POOLED), n)), None
    for code, (values, W) in enumerate(axes):
        if W is not before:
            turned, before = out @ W, W
        shifts = (center - means[code]) @ W
        spread = np.stack(
            [(1.0 - pooled) * values / n_left[code] + pooled / n_left_in_all for pooled in POOLED]
        )
        if few:
            for j, pooled in enumerate(POOLED):
                weight = (
                    share * times * ((1.0 - pooled) * (whose == code) / n_left[code] + pooled / n_left_in_all)
                )
                densities[code, j] = log_density(turned, shifts, codes, spread[j], weight)
        else:
            moved = turned[:n] + shifts[codes]
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
    gram = scaled @ scaled.T
    inside, with_shifts = gram[:n, :n], gram[:, n:]
    first = np.arange(n_codes)
    squares = np.diag(inside)[:n_codes] + 2.0 * with_shifts[first, codes] + np.diag(with_shifts[n:])[codes]
    root = np.sqrt(weight)[:, None]
    across = root * (inside[:, :n_codes] + with_shifts[:n, codes])
    inside *= -root * root.T
    inside[np.diag_indices(n)] += 1.0
    lower = np.linalg.cholesky(inside)
    # Use only numpy's solver, because threads of two BLAS libraries in one loop would wait for each other.
    squares += np.sum(np.linalg.solve(lower, across) ** 2, axis=0)
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

    size = max(1, BLOCK // (K * views.raw.shape[1]))
    spaced = np.linspace(0, n_views - 1, min(n_views, size)).astype(np.intp)
    exact = squares(spaced)[1]
    means, matters = exact.mean(axis=0), np.max(np.abs(w), axis=1) * exact.std(axis=0)
    order = np.argsort(-matters, kind="stable")
    G, w, means = G[order], w[order], means[order]
    counts = np.unique(np.linspace(0, len(G), COUNTS).round().astype(int))
    lost = np.zeros(len(counts))  # change of posteriors if all further squares are replaced by their means
    some = views.distinct.views
    for part in blocks(len(some), size):
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
