"""Readers that take longest: shallow boosted trees, which see what a few features say together, and spread.

The latter reads sizes along the directions where the sources' spreads differ most (common spatial patterns).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from .common import Codes, Floats, Reader, model_scores

# Features that trees are grown on: wider rows would cost more than they tell.
TREE_FEATURES = 1024
# Principal directions in which spreads are compared: wider rows would cost more than they tell.
SPREAD_DIRECTIONS = 256
# Directions kept of each source, and how far its covariance is shrunk towards a multiple of I.
KEPT = 12
SPREAD_SHRINKAGE = 0.05
# Further out, a standardised value says no more than that it is far out.
FAR = 6.0


def boosted_trees(Z: Floats, codes: Codes, seed: int) -> Reader:
    """Return a reader of a hundred boosted trees of depth three."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    chosen = slice(None) if Z.shape[1] <= TREE_FEATURES else telling_features(Z, codes)
    # Without class weights, which AUROC hardly notices and which take scikit-learn twenty times as long.
    model = HistGradientBoostingClassifier(
        max_iter=100, max_depth=3, max_features=0.3, early_stopping=False, random_state=seed
    )
    model.fit(Z[:, chosen], codes)
    return lambda held: model_scores(model, held[:, chosen])


def telling_features(Z: Floats, codes: Codes) -> NDArray[np.intp]:
    """Return the ``TREE_FEATURES`` features whose mean or mean size differs most between the sources."""
    telling = np.zeros(Z.shape[1])
    for values in (Z, np.abs(Z)):
        mean, spread = values.mean(axis=0), values.std(axis=0)
        for k in range(codes.max() + 1):
            rows_of_k = values[codes == k]
            distance = np.abs(rows_of_k.mean(axis=0) - mean) * np.sqrt(len(rows_of_k))
            telling = np.maximum(telling, distance / np.where(spread > 0, spread, 1.0))
    return np.sort(np.argsort(-telling, kind="stable")[:TREE_FEATURES])


def spread(Z: Floats, codes: Codes, seed: int, leading: Floats | None = None) -> Reader:
    """Return a logistic reader of absolute values along the directions where sources differ most in spread.

    Directions are found on one half of the rows and sizes weighed on the other, then the other way round:
    directions that fit the rows they were found on would seem to tell more than they do. Wide rows are
    centred in place, and read in their ``leading`` directions.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    center: Any = 0.0
    if Z.shape[1] > SPREAD_DIRECTIONS:
        center = Z.mean(axis=0)
        Z -= center
        leading = leading_directions(Z, seed) if leading is None else leading
        Z = Z @ leading
    half = np.empty(len(Z), np.int64)
    rng = np.random.default_rng(seed)
    for k in range(codes.max() + 1):  # of every source
        rows = rng.permutation(np.flatnonzero(codes == k))
        half[rows] = np.arange(len(rows)) % 2
    fitted = []
    for first, second in ((0, 1), (1, 0)):
        directions = spread_directions(Z[half == first], codes[half == first])
        model = make_pipeline(
            StandardScaler(), LogisticRegression(C=0.1, max_iter=1000, class_weight="balanced")
        )
        fitted.append((directions, model.fit(_sizes(Z[half == second], directions), codes[half == second])))

    def scores(held: Floats) -> Floats:
        held = held if leading is None else (held - center) @ leading
        total: Any = sum(model_scores(model, _sizes(held, directions)) for directions, model in fitted)
        return np.asarray(total / 2)

    return scores


def leading_directions(Z: Floats, seed: int) -> Floats:
    """Return the principal directions of centred rows, (d, 256) or fewer.

    scikit-learn's PCA would copy all rows, or leave their squares in their place.
    """
    from sklearn.utils.extmath import randomized_svd

    directions: Floats = randomized_svd(Z, min(SPREAD_DIRECTIONS, len(Z) - 1), random_state=seed)[2].T
    return directions


def spread_directions(Z: Floats, codes: Codes) -> Floats:
    """Return directions, in columns, along which each source's variance differs most from the others'.

    For two sources the same directions serve both.
    """
    d, n_sources = Z.shape[1], int(codes.max()) + 1
    level = np.eye(d) * max(float(Z.var(axis=0).mean()), np.finfo(np.float64).tiny)

    def covariance(rows: Floats) -> Floats:
        centred = rows - rows.mean(axis=0)
        return np.asarray((1 - SPREAD_SHRINKAGE) * centred.T @ centred / len(rows) + SPREAD_SHRINKAGE * level)

    directions = []
    for k in range(1 if n_sources == 2 else 0, n_sources):
        ratios, vectors = eigh(covariance(Z[codes == k]), covariance(Z[codes != k]))
        order = np.argsort(-np.abs(np.log(ratios)), kind="stable")
        directions.append(vectors[:, order[:KEPT]])
    return np.concatenate(directions, axis=1)


def _sizes(Z: Floats, directions: Floats) -> Floats:
    along = np.clip(Z @ directions, -FAR, FAR)
    return np.concatenate([np.abs(along), along**2], axis=1)
