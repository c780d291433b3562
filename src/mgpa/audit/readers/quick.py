"""Fast readers of covariances, length, and similarity to landmark rows, on CPU or GPU.

A device that amplifies all features by a few per cent changes no mean, and no single direction noticeably,
but it changes all variances together. Gaussians with shrunk covariances (Friedman 1989) combine the evidence
of all directions; the length of rows combines that of all features with only one fitted number. A Gaussian
kernel on landmarks (Nyström; Williams and Seeger 2001) compares rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..._common.arrays import Array, cast, namespace, zeros
from ...labels import to_numpy
from .common import Floats, model_scores, source_scores
from .logistic import inverse_root

#: Shrinkage of covariances towards a multiple of I, for rows and for whitened rows.
PLAIN, WHITENED = (0.05, 0.3), (0.1, 0.5)
TINY = 1e-12
LANDMARKS = 384
# Kernel features have a length of at most one, so the ridge does not depend on the number of rows.
KERNEL_RIDGE, SMALLEST = 0.1, 1e-6


@dataclass(frozen=True)
class ClassMoments:
    """The number of rows (K,), mean (K, d) and covariance (K, d, d) of each source."""

    count: Array
    mean: Array
    covariance: Array

    @property
    def pooled(self) -> tuple[Array, Array]:
        """Mean and covariance of all rows."""
        share = self.count / self.count.sum()
        center = share @ self.mean
        between = self.mean - center
        within = namespace(share).einsum("k,kij->ij", share, self.covariance)
        return center, within + (share[:, None] * between).T @ between

    @cached_property
    def whitener(self) -> Array:
        """S^-1/2 of the covariance S of all rows, slightly shrunk."""
        return inverse_root(self.pooled[1])


def class_moments(rows: Iterable[tuple[Array, Array]], n_sources: int, d: int) -> ClassMoments:
    """Return the moments of each source from blocks of rows and sources.

    Rows should be standardised, because squares are summed before means are subtracted.
    """
    count: Array = None
    for block, codes in rows:
        if count is None:
            count, total, square = (zeros((n_sources, *rest), block) for rest in ((), (d,), (d, d)))
        for k in range(n_sources):
            of_k = block[codes == k]
            count[k] += len(of_k)
            total[k] += of_k.sum(axis=0)
            square[k] += of_k.T @ of_k
    mean = total / count.clip(1)[:, None]
    covariance = square / count.clip(1)[:, None, None] - mean[:, :, None] * mean[:, None, :]
    return ClassMoments(count, mean, covariance)


def quadratics(
    moments: ClassMoments, shrinkages: Sequence[float], whiten: bool
) -> Callable[[Array], list[Floats]]:
    """Return log-odds under Gaussians with covariances shrunk towards multiples of I, for each shrinkage.

    For more than two sources, probabilities are returned. With ``whiten``, covariances are shrunk after
    whitening all rows, so that directions of small variance count as much as others.
    """
    sources, xp = [], namespace(moments.mean)
    for mean, own in zip(moments.mean, moments.covariance, strict=True):
        if whiten:
            variances, axes = xp.linalg.eigh(moments.whitener @ own @ moments.whitener)
            axes = moments.whitener @ axes
        else:
            variances, axes = xp.linalg.eigh(own)
        # Shrinkage does not change the axes, so one decomposition serves all values.
        shrunk = [(1 - s) * variances.clip(0.0) + s * variances.mean() + TINY for s in shrinkages]
        sources.append((mean, axes, shrunk))

    def scores(rows: Array) -> list[Floats]:
        squares = [((rows - mean) @ axes) ** 2 for mean, axes, _ in sources]
        found = []
        for i in range(len(shrinkages)):
            parts = [
                square @ (-0.5 / shrunk[i]) - 0.5 * xp.log(shrunk[i]).sum()
                for square, (_, _, shrunk) in zip(squares, sources, strict=True)
            ]
            # Log-likelihoods of d features differ by about √d; softmax would turn them into 0 or 1.
            soften = np.sqrt(rows.shape[1]) if len(parts) > 2 else 1.0
            found.append(source_scores(to_numpy(xp.stack(parts, 1)) / soften))
        return found

    return scores


def lengths(rows: Iterable[tuple[Array, Array]], moments: ClassMoments) -> Callable[[Array], list[Floats]]:
    """Return logistic readers of the log squared length of rows and of whitened rows.

    Each reader has one feature: whitened HEAD rows have more uniform lengths than new rows, so a reader of
    both lengths would overfit.
    """
    from sklearn.linear_model import LogisticRegression

    center, whitener = moments.pooled[0], moments.whitener
    xp = namespace(center)

    def sizes(block: Array) -> Floats:
        both = [(block**2).mean(axis=1), (((block - center) @ whitener) ** 2).mean(axis=1)]
        return np.asarray(to_numpy(xp.log(xp.stack(both, 1) + TINY)))

    features, codes = zip(*((sizes(block), to_numpy(codes)) for block, codes in rows), strict=True)
    known, source = np.concatenate(features), np.concatenate(codes)
    middle, spread = known.mean(axis=0), known.std(axis=0) + TINY
    models = [
        LogisticRegression(class_weight="balanced").fit((known[:, [i]] - middle[i]) / spread[i], source)
        for i in (0, 1)
    ]

    def scores(held: Array) -> list[Floats]:
        found = (sizes(held) - middle) / spread
        return [model_scores(model, found[:, [i]]) for i, model in enumerate(models)]

    return scores


def kernel(
    rows: Iterable[tuple[Array, Array]], landmarks: Array, n_sources: int, width: float
) -> Callable[[Array], Floats]:
    """Return a ridge reader of the kernel exp(-``width`` · distance² / median distance²) to landmarks.

    Rows are processed once, in blocks: time is linear in rows, and memory depends only on the landmarks.
    """
    xp, middle = namespace(landmarks), landmarks.mean(axis=0)
    points = landmarks - middle
    sizes = xp.square(points).sum(axis=1)

    def distances(block: Array) -> Array:
        block = block - middle
        apart = xp.square(block).sum(axis=1)[:, None] + sizes - 2.0 * block @ points.T
        return apart.clip(0.0)

    between = distances(landmarks)
    apart = to_numpy(between[between > SMALLEST * between.max()])  # ignore repeated rows
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
    # One target per source, with equal weights for sources.
    target = (by_source / count[:, None] - mean) * (n / n_sources)
    weight = xp.linalg.solve(scatter + KERNEL_RIDGE * cast(np.eye(m), landmarks), target.T)
    return lambda held: source_scores(to_numpy((features(held) - mean) @ weight))
