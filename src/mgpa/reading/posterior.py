"""The posterior of the source, read from an uncorrected row: one Gaussian for every source.

    log p_s(y) = b_s + l_s·y - yᵀP_s y / 2, up to what all sources share.

Means come from the pairs alone, where nothing is associated with the source. Covariances come from the views
and, where that reads held-out views better, from the rows too, whose classes may differ in covariance and go
with a source. They are shrunk toward the covariance of all sources together. Covariances, shrinkage and one
temperature are those with the least log loss on held-out pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.special
from numpy.typing import NDArray

from ..linalg import BLOCK, blocks
from .views import BALL, SMALL, Floats, Views

POOLED = (0.0, 0.1, 0.3, 0.6, 0.9)  # shares of the covariance of all sources together to choose from
TEMPERATURES = np.geomspace(1.0, 16.0, 17)
LOST = 1e-3  # what a posterior may change by where a map keeps fewer squares
COUNTS = 33  # numbers of squares tried


@dataclass(frozen=True, eq=False)
class Whitening:
    """The coordinates that may separate sources, their origin, and what makes their variance one."""

    chosen: NDArray[np.intp]
    origin: Floats
    factor: Floats

    @classmethod
    def of(cls, views: Views) -> Whitening:
        """Return the coordinates in which there is variance, or a shift; the others are all ball."""
        shifts = views.source_means(np.arange(len(views)))
        largest = np.maximum(views.variance, np.max((shifts - shifts.mean(axis=0)) ** 2, axis=0))
        chosen = np.flatnonzero(largest > SMALL * BALL * views.typical)
        variance = (1.0 - BALL) * views.variance[chosen] + BALL * views.typical
        return cls(chosen, views.raw.mean(axis=0)[chosen], 1.0 / np.sqrt(variance))

    def white(self, rows: Floats) -> Floats:
        """Return rows in these coordinates."""
        rows = rows[:, self.chosen]
        rows -= self.origin
        rows *= self.factor
        return rows


@dataclass(frozen=True, eq=False)
class Posterior:
    """Gaussians of K sources in whitened coordinates, and how they read held-out views."""

    whitening: Whitening
    precision: Floats  # P (K, k, k)
    linear: Floats  # l (K, k)
    bias: Floats  # b (K,)
    held_out: Floats  # (2 m, K): the views' posteriors, by Gaussians of other pairs
    loss: float  # their log loss, sources weighing alike


def fit_posterior(views: Views, rows: list[tuple[float, Floats]]) -> Posterior:
    """Return the Gaussians that read held-out views best; ``rows`` are numbers and scatters of other rows."""
    views_alone = [(0.0, np.zeros_like(scatter)) for _, scatter in rows]
    tried = [fit_gaussians(views, covariances) for covariances in (rows, views_alone)]
    # Equal losses, as where no rows are unpaired, are no reason to leave rows out.
    return tried[0] if tried[0].loss <= tried[1].loss + 1e-9 else tried[1]


def fit_gaussians(views: Views, rows: list[tuple[float, Floats]]) -> Posterior:
    """Return Gaussians whose covariances are of the views and of further rows."""
    K, m, codes, whitening = views.n_sources, len(views), views.codes, Whitening.of(views)
    chosen, factor, share = whitening.chosen, whitening.factor, 1.0 - BALL
    points = np.empty((2 * m, len(chosen)))  # overwritten in other coordinates: the one large array
    for part in views.blocks(np.arange(2 * m)):
        points[part] = whitening.white(views.raw[part])
    folds = [(test, whitening.white(views.source_means(train))) for train, test in views.folds]
    center = np.stack([points[codes == code].mean(axis=0) for code in range(K)])
    scatters, free = [], np.empty(K)
    for code, (n, scatter) in enumerate(rows):
        C = scatter[np.ix_(chosen, chosen)] * factor * factor[:, None]
        here = np.flatnonzero(codes == code)
        for part in views.blocks(here):
            apart = points[part] - center[code]
            C += apart.T @ apart
        scatters.append(C)
        free[code] = max(1.0, n + len(here) - 1.0 - (n > 1.5))
    # In coordinates in which the pooled covariance, with the ball, is the identity.
    pool = share * sum(scatters) / free.sum()
    pool[np.diag_indices_from(pool)] += BALL * views.typical * factor**2
    turn = scipy.linalg.solve_triangular(np.linalg.cholesky(pool), np.eye(len(pool)), lower=True).T
    for part in views.blocks(np.arange(2 * m)):
        points[part] = points[part] @ turn
    center = center @ turn
    axes, held_out = [], np.zeros((K, len(POOLED), 2 * m))
    for code, scatter in enumerate(scatters):
        C = scatter * (share / free[code])
        C[np.diag_indices_from(C)] += BALL * views.typical * factor**2
        values, U = np.linalg.eigh(turn.T @ C @ turn)
        axes.append((values, turn @ U))
        for test, means in folds:
            both = np.concatenate([test, test + m])
            left_out, whose, n_out = _left_out(
                points[both], codes[both], center, np.bincount(codes, minlength=K)
            )
            left_out = left_out @ U
            turned = points[both] @ U - means[code] @ axes[-1][1]
            n_code = max(1.0, free[code] - n_out[code])
            n_all = max(1.0, free.sum() - n_out.sum())
            for j, pooled in enumerate(POOLED):
                spread = (1.0 - pooled) * values * free[code] / n_code + pooled * free.sum() / n_all
                weight = share * ((1.0 - pooled) * (whose == code) / n_code + pooled / n_all)
                held_out[code, j, both] = log_density(turned, spread, left_out * np.sqrt(weight)[:, None])
    source_weight = 1.0 / np.bincount(codes, minlength=K)[codes] / K
    losses = np.empty((len(POOLED), len(TEMPERATURES)))
    for loss, temperature in zip(losses.T, TEMPERATURES, strict=True):
        likely = scipy.special.log_softmax(held_out / temperature, axis=0)[codes, :, np.arange(2 * m)]
        loss[:] = -(source_weight @ likely)
    best, t = np.unravel_index(int(losses.argmin()), losses.shape)
    pooled, temperature = POOLED[best], float(TEMPERATURES[t])
    shrunk = [((1.0 - pooled) * values + pooled, W) for values, W in axes]
    means = whitening.white(views.source_means(np.arange(m)))
    precision = np.stack([(W / values) @ W.T for values, W in shrunk]) / temperature
    linear = np.stack([P @ mean for P, mean in zip(precision, means, strict=True)])
    determinants = np.array([np.sum(np.log(values)) for values, _ in shrunk]) / temperature
    bias = -0.5 * (determinants + np.sum(linear * means, axis=1))
    posterior = scipy.special.softmax(held_out[:, best].T / temperature, axis=1)
    return Posterior(whitening, precision, linear, bias, posterior, float(losses[best, t]))


def _left_out(
    points: Floats, codes: NDArray[np.int64], center: Floats, n_all: NDArray[np.int64]
) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Return what to take from the scatters without some points: a factor, and whose and how many they are.

    Scatters are about the mean of all ``n_all`` points of a source. The others' mean differs: one more row.
    """
    factors, whose, n_out = [], [], np.zeros(len(center))
    for code, n in enumerate(n_all):
        out = points[codes == code] - center[code]
        if not len(out):
            continue
        n_out[code] = len(out)
        moved = out.mean(axis=0, keepdims=True) * (len(out) / np.sqrt(max(1, n - len(out))))
        factors.append(np.concatenate([out, moved]))
        whose.append(np.full(len(out) + 1, code))
    return np.concatenate(factors), np.concatenate(whose), n_out


def log_density(points: Floats, values: Floats, out: Floats) -> Floats:
    """Return log-densities, up to a constant, of a Gaussian with covariance diag(values) - outᵀout.

    ``out`` are held-out rows' parts of a scatter. Where they are fewer than coordinates, by Woodbury's
    identity in the space of those rows.
    """
    parts = blocks(len(points), max(1, BLOCK // max(1, len(values))))
    if len(out) >= len(values):
        lower = np.linalg.cholesky(np.diag(values) - out.T @ out)
        squares = [_squares(lower, points[part].T) for part in parts]
        return np.asarray(-0.5 * np.concatenate(squares) - np.sum(np.log(np.diag(lower))))
    scale = np.sqrt(values)
    out = out / scale
    lower = np.linalg.cholesky(np.eye(len(out)) - out @ out.T)
    scaled = (points[part] / scale for part in parts)
    squares = [np.sum(rows**2, axis=1) + _squares(lower, out @ rows.T) for rows in scaled]
    return np.asarray(
        -0.5 * np.concatenate(squares) - 0.5 * np.sum(np.log(values)) - np.sum(np.log(np.diag(lower)))
    )


def _squares(lower: NDArray[Any], columns: NDArray[Any]) -> Floats:
    """Return the squared lengths of L⁻¹ columns."""
    return np.asarray(np.sum(scipy.linalg.solve_triangular(lower, columns, lower=True) ** 2, axis=0))


def score_form(views: Views, posterior: Posterior) -> tuple[Floats, Floats, Floats, Floats]:
    """Return scores as squares and a linear part: directions (q, d), weights (q, K), linear (K, d), bias (K).

    Relative to the first source, whose scores are zero. Squares that change no posterior of the paired views
    by more than :data:`LOST` are replaced by their mean.
    """
    whitening, K, n_views = posterior.whitening, views.n_sources, len(views.raw)
    chosen, origin, factor = whitening.chosen, whitening.origin, whitening.factor
    everything = blocks(n_views, max(1, BLOCK // (K * views.raw.shape[1])))
    scores = posterior.precision, posterior.linear, posterior.bias
    precision, linear, bias = (array - array[0] for array in scores)
    axes = [np.linalg.eigh(P) for P in precision[1:]]
    G = np.concatenate([vectors.T for _, vectors in axes])
    w = np.zeros((len(G), K))
    w[np.arange(len(G)), np.repeat(np.arange(1, K), len(chosen))] = -0.5 * np.concatenate(
        [values for values, _ in axes]
    )

    def squares(part: slice) -> tuple[Floats, Floats]:
        Y = whitening.white(views.raw[part])
        return Y, (Y @ G.T) ** 2

    means, fourth = np.zeros((2, len(G)))
    for part in everything:
        exact = squares(part)[1]
        means += exact.sum(axis=0) / n_views
        fourth += np.einsum("ij,ij->j", exact, exact) / n_views
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
