"""Logistic readers of rows and of whitened rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._common.arrays import double, namespace, zeros
from ...critics import Critic, fit_logistic, fit_logistic_on_device
from ...labels import to_numpy
from .common import BLOCK, Array, Codes, Floats, Scores, blocks, source_scores

SHRINKAGE = 0.01
RIDGE = 1e-8
WIDE = 4096  # above this number of features, the covariance matrix is too large to decompose


def linear_scores(head: Array, codes: Codes, n_sources: int, held: Array) -> Scores:
    """Fit the two logistic readers in float64 on the device of the rows; return their scores."""
    fit = fit_logistic if isinstance(head, np.ndarray) else fit_logistic_on_device
    plain = fit(head, codes, n_sources)
    center, whitener = whitening(head)
    white = zeros((len(head), whitener.shape[1]), center)
    for start, block in blocks(head):
        white[start : start + BLOCK] = (block - center) @ whitener
    whitened = fit(white, codes, n_sources)
    scores: dict[str, list[Floats]] = {"linear": [], "whitened_linear": []}
    for _, block in blocks(held):
        scores["linear"].append(logistic_scores(plain, block))
        scores["whitened_linear"].append(logistic_scores(whitened, (block - center) @ whitener))
    return {name: np.concatenate(parts) for name, parts in scores.items()}


def whitening(X: Array) -> tuple[Array, Array]:
    """Return the mean of rows, and S^-1/2 for their covariance S, shrunk towards a multiple of I.

    With very many features and fewer rows, S^-1/2 has only the directions in which rows vary, (d, n).
    Logistic readers have no weights in other directions, and rotations change them only by rounding.
    """
    n, d = X.shape
    center = sum(block.sum(0) for _, block in blocks(X)) / n
    if n < d and d > WIDE:
        _, sizes, rows = namespace(X).linalg.svd(double(X) - center, full_matrices=False)
        values = sizes**2 / n
        values = (1 - SHRINKAGE) * values + SHRINKAGE * values.sum() / d + RIDGE
        return center, rows.T / values**0.5
    covariance = sum((block - center).T @ (block - center) for _, block in blocks(X)) / n
    return center, inverse_root(covariance)


def inverse_root(covariance: Array) -> Array:
    """Return S^-1/2 of a covariance shrunk towards a multiple of I."""
    values, vectors = namespace(covariance).linalg.eigh(covariance)
    # Shrinkage does not change eigenvectors; rounding may make an eigenvalue negative.
    values = (1 - SHRINKAGE) * values.clip(0.0) + SHRINKAGE * covariance.trace() / len(values) + RIDGE
    return (vectors / values**0.5) @ vectors.T


def logistic_scores(reader: Critic, X: Array) -> Floats:
    """Return the scores of a logistic reader: logit differences for two sources, probabilities for more."""
    logits: NDArray[Any] = to_numpy(reader.scores(X))
    return np.asarray(logits[:, 0]) if logits.shape[1] == 1 else source_scores(logits)
