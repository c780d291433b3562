"""Logistic readers, of rows as they are and of whitened rows."""

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
WIDE = 4096  # features whose products are a matrix too large to decompose


def linear_scores(head: Array, codes: Codes, n_sources: int, held: Array) -> Scores:
    """Return the scores of the two logistic readers, fitted in float64 on the device of the rows."""
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
    """Return the mean of the rows and S^-1/2, S their covariance shrunk towards a multiple of I.

    With very many features and fewer rows, S^-1/2 has only the directions in which rows vary, (d, n): a
    logistic reader has no weight in others, and does not change if features are rotated, except for rounding.
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
    # Shrinking towards I leaves the eigenvectors as they are; rounding may leave a negative eigenvalue.
    values = (1 - SHRINKAGE) * values.clip(0.0) + SHRINKAGE * covariance.trace() / len(values) + RIDGE
    return (vectors / values**0.5) @ vectors.T


def logistic_scores(reader: Critic, X: Array) -> Floats:
    """Return a logistic reader's scores: the logit difference of two sources, probabilities of more."""
    logits: NDArray[Any] = to_numpy(reader.scores(X))
    return np.asarray(logits[:, 0]) if logits.shape[1] == 1 else source_scores(logits)
