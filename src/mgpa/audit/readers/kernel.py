"""Readers that compare rows: a Gaussian kernel on some landmarks (Nyström; Williams and Seeger 2001)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .common import Codes, Floats, Reader, source_scores

LANDMARKS = 384
# Kernel features have length one at most, so the ridge does not depend on how many rows there are.
RIDGE, SMALLEST = 0.1, 1e-6


def kernel(rows: Iterable[tuple[Floats, Codes]], landmarks: Floats, n_sources: int, width: float) -> Reader:
    """Return a ridge reader of exp(-``width`` · distance² / median distance²) to the landmarks.

    Rows are met once, block after block: time is linear in rows and memory is that of the landmarks.
    """
    middle = landmarks.mean(axis=0)
    points = landmarks - middle
    sizes = np.square(points).sum(axis=1)

    def distances(block: Floats) -> Floats:
        block = block - middle
        apart = np.square(block).sum(axis=1)[:, None] + sizes - 2.0 * block @ points.T
        return np.asarray(apart.clip(0.0))

    between = distances(landmarks)
    apart = between[between > SMALLEST * between.max()]  # rows may repeat, even most of them
    scale = -width / float(np.median(apart)) if len(apart) else 0.0
    values, vectors = np.linalg.eigh(np.exp(scale * between))
    root = vectors / np.sqrt(values.clip(SMALLEST))

    def features(block: Floats) -> Floats:
        return np.asarray(np.exp(scale * distances(block)) @ root)

    m = len(points)
    square, total, by_source, count = (
        np.zeros((m, m)),
        np.zeros(m),
        np.zeros((n_sources, m)),
        np.zeros(n_sources),
    )
    for block, codes in rows:
        found, member = features(block), np.eye(n_sources)[codes]
        square += found.T @ found
        total += found.sum(axis=0)
        by_source += member.T @ found
        count += member.sum(axis=0)
    n = count.sum()
    mean = total / n
    scatter = square - n * np.outer(mean, mean)
    # One target for each source, every source weighing the same.
    target = (by_source / count[:, None] - mean) * (n / n_sources)
    weight = np.linalg.solve(scatter + RIDGE * np.eye(m), target.T)
    return lambda held: source_scores((features(held) - mean) @ weight)
