"""Make both views of paired events comparable: robust units, exchangeable events, predicted contrasts."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ..linalg import EPS, PIECE, blocks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CLIP = 6.0  # values are clipped at this number of robust standard deviations
MOST_AXES = 32
TRIM = 4.0  # pairs beyond this number of median absolute deviations are left out of regressions
RIDGE = 0.1  # ridge penalty, relative to the mean variance of midpoints
FOLDS = 5  # number of folds of regressions
FEWEST = 12  # minimum number of pairs for a regression
CLOSER = 0.9  # predictions are used if they reduce the distance of pairs to less than this share


def robust_scale(X: Floats) -> Floats:
    """Return the robust standard deviation of each feature, or its standard deviation if that is 0."""
    scale, deviation = 1.4826 * medians(np.abs(X).T), X.std(axis=0)
    return np.asarray(np.where(scale > 1e-3 * deviation, scale, deviation))


def comparable(A: Floats, B: Floats, kind: Ints) -> tuple[Floats, Floats]:
    """Return both views, centred by source, in robust units of each feature, clipped at CLIP units."""
    labels = np.concatenate([2 * kind, 2 * kind + 1])
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    X, varies = np.empty((len(labels), A.shape[1])), np.empty(A.shape[1], bool)
    for columns in blocks(A.shape[1], max(1, PIECE // len(labels))):  # blocks that fit into the cache
        part = np.concatenate([A[:, columns], B[:, columns]]).T.copy()
        for rows in groups:
            part[:, rows] -= medians(part[:, rows])[:, None]
        scale = robust_scale(part.T)
        varies[columns] = scale > 0
        part /= np.where(scale > 0, scale, 1.0)[:, None]
        np.clip(part, -CLIP, CLIP, out=part)
        for rows in groups:
            part[:, rows] -= part[:, rows].mean(axis=1, keepdims=True)
        X[:, columns] = part.T
    X = X if varies.all() else X[:, varies]
    return X[: len(A)], X[len(A) :]


def medians(rows: Floats) -> Floats:
    """Return the median of each row; for short rows, sorting is several times as fast as numpy's median."""
    rows, k = rows.copy(order="C"), rows.shape[1]
    rows.sort(axis=1)
    return np.asarray((rows[:, (k - 1) // 2] + rows[:, k // 2]) / 2)


def exchangeable(units: Ints, kind: Ints) -> Ints:
    """Return a label for each pair; pairs with equal labels can exchange views.

    These are events of one participant and the same sources; participants with one event form one group.
    """
    label = units * (kind.max() + 1) + kind
    _, code, size = np.unique(label, return_inverse=True, return_counts=True)
    label = np.where(size[code] > 1, code, len(size) + kind)
    _, code, size = np.unique(label, return_inverse=True, return_counts=True)
    return np.where(size[code] > 1, code, -1)  # single events of a kind cannot be exchanged


def exchanged(blocks: Ints, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return positions permuted at random within blocks."""
    places = np.arange(len(blocks))
    shuffled = rng.permutation(len(blocks))
    places[np.argsort(blocks, kind="stable")] = shuffled[np.argsort(blocks[shuffled], kind="stable")]
    return places


def principal_coordinates(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return both views along the leading principal axes of all views."""
    X, m = np.concatenate([a, b]), len(a)
    k = min(X.shape[1], MOST_AXES, max(2, m // 2))
    if X.shape[1] <= k:
        return a, b
    few = X.shape[1] > len(X)
    values, axes = leading(X @ X.T if few else X.T @ X, k)
    X = axes * np.sqrt(np.clip(values, 0.0, None)) if few else X @ axes
    return X[:m], X[m:]


def principal_axes(X: Floats) -> Floats:
    """Return the leading principal axes (d, k) along which centred rows vary by more than rounding error."""
    few, k = X.shape[1] > len(X), min(*X.shape, MOST_AXES)
    values, axes = leading(X @ X.T if few else X.T @ X, k)
    resolved = values > values.max(initial=0.0) * max(X.shape) * EPS
    axes = axes[:, resolved]
    return np.linalg.qr(X.T @ axes)[0] if few else axes


def leading(gram: Floats, k: int) -> tuple[Floats, Floats]:
    """Return the k largest eigenvalues of a symmetric matrix, weakest first, and their vectors."""
    n = len(gram)
    return scipy.linalg.eigh(gram, subset_by_index=[n - k, n - 1])  # type: ignore[no-any-return]


def robust_slope(a: Floats, b: Floats) -> Floats:
    """Return the ridge regression of contrasts on midpoints, fitted without outlying pairs."""
    contrasts, midpoints = b - a, (a + b) / 2
    kept = np.ones(len(a), bool)
    for _ in range(3):
        M, C = midpoints[kept], contrasts[kept]
        scatter = M.T @ M
        scatter[np.diag_indices_from(scatter)] += RIDGE * np.trace(scatter) / len(scatter) + 1e-300
        W = np.linalg.solve(scatter, M.T @ C)
        kept = near(np.linalg.norm(contrasts - midpoints @ W, axis=1))
    return np.asarray(W)


def near(distances: Floats, trim: float = TRIM) -> NDArray[np.bool_]:
    """Return a mask of distances up to ``trim`` median absolute deviations above the median."""
    middle = np.median(distances)
    return np.asarray(distances <= middle + trim * 1.4826 * np.median(np.abs(distances - middle)))


def cross_fitted_slopes(
    a: Floats, b: Floats, units: Ints, rng: np.random.Generator
) -> list[tuple[Ints, Floats]]:
    """Return, for each fold, its positions and the regression fitted on pairs of other units."""
    fold = rng.permutation(units.max() + 1)[units] % FOLDS
    return [(np.flatnonzero(fold == f), robust_slope(a[fold != f], b[fold != f])) for f in np.unique(fold)]


def predicted(a: Floats, b: Floats, slope: Floats) -> tuple[Floats, Floats]:
    """Return both views, each moved toward the other by half of the contrast that the slope predicts."""
    identity = np.eye(len(slope))
    return a @ (identity + slope / 2), b @ (identity - slope / 2)


def next_of_kind(kind: Ints) -> NDArray[np.intp]:
    """Return, for each event, another event of its kind (or the event itself if it is the only one)."""
    order = np.argsort(kind, kind="stable")
    return order[np.argsort(order, kind="stable") - 1]


def aligning_slopes(
    a: Floats, b: Floats, units: Ints, kind: Ints, rng: np.random.Generator
) -> tuple[list[tuple[Ints, Floats]], Floats, Floats, float]:
    """Return slopes that bring pairs closer, differences within pairs and to other events, and their ratio.

    Slopes are zero unless regressions bring paired views closer, relative to mismatched views.
    """
    plain = [(np.arange(len(a)), np.zeros((a.shape[1], a.shape[1])))]
    candidates = [plain]
    if len(a) >= FEWEST:
        candidates.append(cross_fitted_slopes(a, b, units, rng))
    other, best, chosen = next_of_kind(kind), np.inf, (plain, a, a)
    for slopes in candidates:
        own, others = np.empty_like(a), np.empty_like(a)
        for rows, slope in slopes:
            first, second = predicted(a, b, slope)
            own[rows], others[rows] = second[rows] - first[rows], second[rows] - first[other[rows]]
        ratio = float(np.median(np.sum(own**2, axis=1)) / np.median(np.sum(others**2, axis=1)))
        if ratio < CLOSER * best:
            best, chosen = ratio, (slopes, own, others)
    return *chosen, best


def centred_within(a: Floats, b: Floats, group: Ints) -> tuple[Floats, Floats]:
    """Return both views minus the mean of their group, scaled to keep the expected variance."""
    size = np.bincount(group)
    scale = np.sqrt(size / np.maximum(size - 1, 1))[group, None]
    order = np.argsort(group, kind="stable")
    firsts = np.cumsum(size) - size

    def centred(X: Floats) -> Floats:
        means = np.add.reduceat(X[order], firsts, axis=0) / size[:, None]
        centred = X - means[group]
        centred *= scale
        return np.asarray(centred)

    return centred(a), centred(b)
