"""Readers beyond the paper's: of rules about single features, and of spread instead of means.

Linear readers and small networks hardly see a source that changes the spread of one feature of many, the sign
of a product, or the shape of a distribution. Shallow boosted trees see what a few features say; the other
reader looks along the directions in which the sources' spreads differ most, as common spatial patterns do.
Two readers, because these two catch the most a second of those that were tried (docs/audit.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

Floats = NDArray[np.float64]
Reader = Callable[[Floats], Floats]

#: Their names.
FURTHER = ("boosted_trees", "spread")

# Features that trees are grown on, and principal directions in which spreads are compared: wider rows would
# cost more than they tell.
TREE_FEATURES = 1024
SPREAD_DIRECTIONS = 256
# Directions kept of each source, and how far its covariance is shrunk towards a multiple of I.
KEPT = 12
SHRINKAGE = 0.05
# Rows that these readers are trained on, at most, and rows that are scored at a time.
MOST_ROWS, BLOCK = 40_000, 8192
# Further out, a standardised value says no more than that it is far out.
FAR = 6.0


def further_scores(
    head: NDArray[Any], codes: NDArray[np.int64], held: NDArray[Any], seed: int
) -> dict[str, Floats]:
    """Return the scores of both readers, fitted on HEAD rows with source numbers, for EVAL rows.

    As everywhere, these are (n,), larger for the second source, or probabilities (n, K) of more sources.
    """
    if len(head) > MOST_ROWS:
        chosen = np.sort(np.random.default_rng(seed).permutation(len(head))[:MOST_ROWS])
        head, codes = head[chosen], codes[chosen]
    scaler = StandardScaler().fit(head.astype(np.float64))

    def scaled(X: NDArray[Any]) -> Floats:
        return np.asarray(np.clip(scaler.transform(X.astype(np.float64)), -FAR, FAR))

    Z = scaled(head)
    readers = [fit(Z, codes, seed) for fit in (boosted_trees, spread)]
    blocks = [
        [reader(block) for reader in readers]
        for start in range(0, len(held), BLOCK)
        for block in [scaled(held[start : start + BLOCK])]
    ]
    return {name: np.concatenate([block[i] for block in blocks]) for i, name in enumerate(FURTHER)}


def boosted_trees(Z: Floats, codes: NDArray[np.int64], seed: int) -> Reader:
    """Return a reader of a hundred boosted trees of depth three."""
    chosen = telling_features(Z, codes)
    # Without class weights, which AUROC hardly notices and which take scikit-learn twenty times as long.
    model = HistGradientBoostingClassifier(
        max_iter=100, max_depth=3, max_features=0.3, early_stopping=False, random_state=seed
    )
    model.fit(Z[:, chosen], codes)
    return lambda held: _scores(model, held[:, chosen])


def telling_features(Z: Floats, codes: NDArray[np.int64], at_most: int = TREE_FEATURES) -> NDArray[np.intp]:
    """Return the features, at most so many, whose mean or mean size differs most between the sources.

    Examples
    --------
    >>> Z = np.array([[0.0, 1.0, 2.0], [0.1, 1.0, -2.0], [0.0, 1.0, 0.1], [0.1, 1.0, -0.1]])
    >>> telling_features(Z, np.array([0, 0, 1, 1]), at_most=1)
    array([2])
    """
    if Z.shape[1] <= at_most:
        return np.arange(Z.shape[1])
    telling = np.zeros(Z.shape[1])
    for values in (Z, np.abs(Z)):
        mean, spread = values.mean(axis=0), values.std(axis=0)
        for k in range(codes.max() + 1):
            rows_of_k = values[codes == k]
            distance = np.abs(rows_of_k.mean(axis=0) - mean) * np.sqrt(len(rows_of_k))
            telling = np.maximum(telling, distance / np.where(spread > 0, spread, 1.0))
    return np.sort(np.argsort(-telling, kind="stable")[:at_most])


def spread(Z: Floats, codes: NDArray[np.int64], seed: int) -> Reader:
    """Return a logistic reader of sizes along the directions in which the sources' spreads differ most.

    Directions are found on one half of the rows and sizes weighed on the other, then the other way round:
    directions that fit the rows they were found on would seem to tell more than they do.
    """
    leading = None
    if Z.shape[1] > SPREAD_DIRECTIONS:
        leading = PCA(min(SPREAD_DIRECTIONS, len(Z) - 1), svd_solver="randomized", random_state=seed).fit(Z)
        Z = leading.transform(Z)
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
        held = held if leading is None else leading.transform(held)
        total: Any = sum(_scores(model, _sizes(held, directions)) for directions, model in fitted)
        return np.asarray(total / 2)

    return scores


def spread_directions(Z: Floats, codes: NDArray[np.int64]) -> Floats:
    """Return directions, in columns, along which each source's variance differs most from the others'.

    For two sources the same directions serve both.
    """
    d, n_sources = Z.shape[1], int(codes.max()) + 1
    level = np.eye(d) * max(float(Z.var(axis=0).mean()), np.finfo(np.float64).tiny)

    def covariance(rows: Floats) -> Floats:
        centred = rows - rows.mean(axis=0)
        return np.asarray((1 - SHRINKAGE) * centred.T @ centred / len(rows) + SHRINKAGE * level)

    directions = []
    for k in range(1 if n_sources == 2 else 0, n_sources):
        ratios, vectors = eigh(covariance(Z[codes == k]), covariance(Z[codes != k]))
        order = np.argsort(-np.abs(np.log(ratios)), kind="stable")
        directions.append(vectors[:, order[:KEPT]])
    return np.concatenate(directions, axis=1)


def _sizes(Z: Floats, directions: Floats) -> Floats:
    along = np.clip(Z @ directions, -FAR, FAR)
    return np.concatenate([np.abs(along), along**2], axis=1)


def _scores(model: Any, X: Floats) -> Floats:
    if len(model.classes_) == 2:
        return np.asarray(model.decision_function(X), dtype=np.float64)
    return np.asarray(model.predict_proba(X), dtype=np.float64)
