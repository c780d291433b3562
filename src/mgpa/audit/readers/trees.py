"""Shallow boosted trees: they see what a few features say together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .common import Codes, Floats, Reader, model_scores

# Features that trees are grown on: wider rows would cost more than they tell.
TREE_FEATURES = 1024


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
