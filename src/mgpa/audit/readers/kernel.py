"""Readers that compare rows: a Gaussian kernel on some landmarks (Nyström; Williams and Seeger 2001)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ..._common.arrays import Array, cast, namespace, zeros
from ...labels import to_numpy
from .common import Floats, source_scores

LANDMARKS = 384
# Kernel features have length one at most, so the ridge does not depend on how many rows there are.
RIDGE, SMALLEST = 0.1, 1e-6


def kernel(
    rows: Iterable[tuple[Array, Array]], landmarks: Array, n_sources: int, width: float
) -> Callable[[Array], Floats]:
    """Return a ridge reader of exp(-``width`` · distance² / median distance²) to the landmarks.

    Rows are met once, block after block: time is linear in rows and memory is that of the landmarks.
    """
    xp, middle = namespace(landmarks), landmarks.mean(axis=0)
    points = landmarks - middle
    sizes = xp.square(points).sum(axis=1)

    def distances(block: Array) -> Array:
        block = block - middle
        apart = xp.square(block).sum(axis=1)[:, None] + sizes - 2.0 * block @ points.T
        return apart.clip(0.0)

    between = distances(landmarks)
    apart = to_numpy(between[between > SMALLEST * between.max()])  # rows may repeat, even most of them
    scale = -width / float(np.median(apart)) if len(apart) else 0.0
    values, vectors = xp.linalg.eigh(xp.exp(scale * between))
    root = vectors / xp.sqrt(values.clip(SMALLEST))

    def features(block: Array) -> Array:
        return xp.exp(scale * distances(block)) @ root

    m, each = len(points), cast(np.eye(n_sources), landmarks)
    square, total, by_source, count = (
        zeros(shape, landmarks) for shape in ((m, m), (m,), (n_sources, m), (n_sources,))
    )
    for block, codes in rows:
        found, member = features(block), each[codes]
        square += found.T @ found
        total += found.sum(axis=0)
        by_source += member.T @ found
        count += member.sum(axis=0)
    n = count.sum()
    mean = total / n
    scatter = square - n * mean[:, None] * mean
    # One target for each source, every source weighing the same.
    target = (by_source / count[:, None] - mean) * (n / n_sources)
    weight = xp.linalg.solve(scatter + RIDGE * cast(np.eye(m), landmarks), target.T)
    return lambda held: source_scores(to_numpy((features(held) - mean) @ weight))
