"""Sufficient statistics that can be merged: batch, streamed and distributed fits use the same numbers.

The closed form needs only the weight, mean and centred scatter of each source, so memory is O(K d²) for any
number of rows.
"""

from __future__ import annotations

import functools
import hashlib
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ._common.arrays import cast, double
from ._common.checks import is_tensor, on_cuda
from .labels import coded, to_numpy
from .linalg import BLOCK, PIECE, Scatter, blocks, in_threads

Array = Any  # numpy array or torch tensor
Floats = NDArray[np.float64]

CENTER_ROWS = 256  # number of rows used for an approximate mean
GROUPED = 1024  # number of means added together
# Minimum number of rows per feature in a part for one thread, and maximum number of parts; each part needs
# the memory of a (features, features) matrix.
ROWS_PER_FEATURE, MOST_PARTS = 16, 16
DEVICE_BLOCK = 2**25  # float64 numbers per block on a tensor's device (256 MiB)


@dataclass(frozen=True)
class SourceMoments:
    """Moments of one source: Σ w, Σ w², mean, scatter Σ w (x - mean)(x - mean)ᵀ, and content checksum."""

    n_rows: int
    weight: float
    squared_weight: float
    mean: Floats
    spread: Scatter
    checksum: NDArray[np.uint64]

    @classmethod
    def from_rows(cls, X: Any, weight: Floats | None, rows: NDArray[np.intp] | None = None) -> SourceMoments:
        """Summarise the rows of one source in float64, block by block: in one pass, or two with weights."""
        rows = np.arange(len(X)) if rows is None else rows
        n, d = len(rows), X.shape[1]
        if is_tensor(X) and n < d:
            X, rows = double(X[rows]).cpu().numpy(), np.arange(n)
        elif is_tensor(X):
            return cls._from_tensor(X, weight, rows)
        total, squares = _weight_sums(weight, n)
        center = _near_mean(X, weight, rows)
        factored = n < d
        scatter, sums, checksum = np.zeros((0 if factored else d, d)), np.zeros(d), np.zeros(d, np.uint64)
        buffer = np.empty((n if factored else min(n, max(1, BLOCK // d)), d))
        for block in blocks(n, max(1, len(buffer))):
            F = buffer[: block.stop - block.start]
            for piece in blocks(len(F), max(1, PIECE // d)):
                here = rows[block][piece]
                F[piece] = X[here]
                checksum += content_checksum(F[piece])
                F[piece] -= center
                if weight is None:
                    sums += F[piece].sum(axis=0)
                else:
                    sums += weight[block][piece] @ F[piece]
                    F[piece] *= np.sqrt(weight[block][piece])[:, None]
            if not factored:
                scatter += F.T @ F
        gap = sums / total if total else sums
        if factored:
            buffer -= gap if weight is None else np.sqrt(weight)[:, None] * gap
            return cls(n, total, squares, center + gap, Scatter.from_rows(buffer), checksum)
        scatter -= total * np.outer(gap, gap)
        return cls(n, total, squares, center + gap, Scatter(scatter), checksum)

    @classmethod
    def _from_tensor(cls, X: Any, weight: Floats | None, rows: NDArray[np.intp]) -> SourceMoments:
        """Summarise the rows of a tensor on its device, in blocks larger than a CPU cache."""
        import torch

        n, d = len(rows), X.shape[1]
        here = {"device": X.device, "dtype": torch.float64}
        w = None if weight is None else torch.as_tensor(weight, **here)
        index = torch.as_tensor(rows, device=X.device)
        total, squares = _weight_sums(weight, n)
        pieces = blocks(n, max(1, DEVICE_BLOCK // d))
        center = torch.zeros(d, **here)
        if w is None:
            center += X[index[torch.linspace(0, n - 1, min(n, CENTER_ROWS), **here).long()]].double().mean(0)
        elif total:
            for piece in pieces:
                center += w[piece] @ X[index[piece]].double() / total
        sums, scatter = torch.zeros(d, **here), torch.zeros(d, d, **here)
        checksum = torch.zeros(d, device=X.device, dtype=torch.int64)
        for piece in pieces:
            F = X[index[piece]].double()
            checksum += F.view(torch.int64).sum(0)  # modulo 2^64, as in content_checksum
            F -= center
            sums += F.sum(0) if w is None else w[piece] @ F
            if w is not None:
                F *= w[piece, None].sqrt()
            scatter.addmm_(F.T, F)
        gap = sums / total if total else sums
        scatter -= total * torch.outer(gap, gap)
        host = torch.cat([(center + gap)[None], scatter]).cpu().numpy()
        spread = Scatter(host[1:]) if total else Scatter.from_rows(np.zeros((0, d)))
        return cls(n, total, squares, host[0], spread, checksum.cpu().numpy().view(np.uint64))

    @property
    def scatter(self) -> Floats:
        """Σ w (x - mean)(x - mean)ᵀ, shape (d, d)."""
        return self.spread.matrix

    def __add__(self, other: SourceMoments) -> SourceMoments:
        weight = self.weight + other.weight
        gap, share = other.mean - self.mean, other.weight / weight if weight else 0.0
        between = Scatter.from_rows(np.sqrt(self.weight * share) * gap[None])
        return SourceMoments(
            self.n_rows + other.n_rows,
            weight,
            self.squared_weight + other.squared_weight,
            self.mean + share * gap,
            self.spread + other.spread + between,
            self.checksum + other.checksum,
        )


def _weight_sums(weight: Floats | None, n: int) -> tuple[float, float]:
    """Return Σ w and Σ w² of n rows; without weights, all are 1."""
    return (float(n), float(n)) if weight is None else (float(weight.sum()), float(weight @ weight))


def _near_mean(X: Any, weight: Floats | None, rows: NDArray[np.intp]) -> Floats:
    """Return a centre to subtract from rows: the mean of a few rows or, with weights, of all rows."""
    n, d = len(rows), X.shape[1]
    center = np.zeros(d)
    if weight is None:
        spaced = np.linspace(0, n - 1, min(n, CENTER_ROWS)).astype(np.intp)
        return center + (np.asarray(X[rows[spaced]], dtype=np.float64).mean(axis=0) if n else 0.0)
    if total := float(weight.sum()):
        for piece in blocks(n, max(1, PIECE // d)):
            center += weight[piece] @ np.asarray(X[rows[piece]], dtype=np.float64) / total
    return center


@dataclass(frozen=True)
class Moments:
    """Moments of embeddings by source. ``a + b`` merges; order and grouping do not matter (to rounding).

    Examples
    --------
    >>> import numpy as np
    >>> X, source = np.arange(12.0).reshape(6, 2), np.array(["dry", "wet"] * 3)
    >>> whole = Moments.from_rows(X, source)
    >>> merged = Moments.from_rows(X[:2], source[:2]) + Moments.from_rows(X[2:], source[2:])
    >>> bool(np.allclose(whole.scatter, merged.scatter)), whole.sources
    (True, ('dry', 'wet'))
    """

    parts: dict[Any, SourceMoments]

    @classmethod
    def from_rows(cls, X: Any, source: Any, sample_weight: Any = None) -> Moments:
        """Summarise rows X with one source label each.

        A tensor on a CUDA device is summed on this device, in another order than an array. Results of other
        tensors are bit-identical to those of arrays.
        """
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return cls.from_codes(X if on_cuda(X) else to_numpy(X), *coded(np.asarray(source)), weight)

    @classmethod
    def from_codes(
        cls, X: Any, distinct: NDArray[Any], codes: NDArray[np.int64], weight: Floats | None = None
    ) -> Moments:
        """Summarise rows X with sources given as positions among the ``distinct`` labels.

        Rows are divided into parts for threads; parts and results do not depend on the number of threads.
        """
        n, d = X.shape
        size = n if is_tensor(X) else max(BLOCK // d, ROWS_PER_FEATURE * d, -(-n // MOST_PARTS))
        labels: list[Any] = []
        several: list[NDArray[np.intp]] = []
        for code, label in enumerate(distinct.tolist()):
            rows = np.flatnonzero(codes == code)
            several += np.array_split(rows, max(1, len(rows) // max(1, size)))
            labels += [label] * (len(several) - len(labels))

        def summarise(rows: NDArray[np.intp]) -> SourceMoments:
            return SourceMoments.from_rows(X, None if weight is None else weight[rows], rows)

        shared = n * d >= BLOCK and not is_tensor(X)
        parts: dict[Any, SourceMoments] = {}
        for label, part in zip(labels, (in_threads if shared else map)(summarise, several), strict=True):
            parts[label] = parts[label] + part if label in parts else part
        return cls(parts)

    def __add__(self, other: Moments) -> Moments:
        parts = dict(self.parts)
        for label, part in other.parts.items():
            parts[label] = parts[label] + part if label in parts else part
        return Moments(_sorted(parts, "source"))

    @property
    def sources(self) -> tuple[Any, ...]:
        """Sorted source labels."""
        return tuple(self.parts)

    @cached_property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(part.n_rows for part in self.parts.values())

    @property
    def n_features(self) -> int:
        """Width of the rows."""
        return len(next(iter(self.parts.values())).mean)

    @cached_property
    def weights(self) -> Floats:
        """Total weight of each source, shape (K,)."""
        return np.array([part.weight for part in self.parts.values()])

    @cached_property
    def counts(self) -> Floats:
        """Effective number of rows of each source, (Σ w)² / Σ w²; n for equal weights of any size."""
        squared = np.array([part.squared_weight for part in self.parts.values()])
        return np.asarray(self.weights**2 / squared)

    @cached_property
    def count(self) -> float:
        """Effective number of all rows."""
        squared = np.array([part.squared_weight for part in self.parts.values()])
        return float(self.weights.sum() ** 2 / squared.sum())

    @cached_property
    def means(self) -> Floats:
        """Mean of each source, shape (K, d)."""
        return np.stack([part.mean for part in self.parts.values()])

    @cached_property
    def mean(self) -> Floats:
        """Mean of all rows."""
        return np.asarray(self.weights @ self.means / self.weights.sum())

    @cached_property
    def within(self) -> Scatter:
        """Scatter of rows around the mean of their source, summed over sources."""
        return functools.reduce(operator.add, (part.spread for part in self.parts.values()))

    def within_scaled(self, divisor: Floats) -> Scatter:
        """Return the scatter within sources of features divided by ``divisor``.

        Weights are rescaled to the sum ``count``, so only relative weights matter.
        """
        return self.within.scaled(divisor * np.sqrt(self.weights.sum() / self.count))

    @property
    def total(self) -> Scatter:
        """Scatter of all rows about their mean: within sources plus between them."""
        return self.within + Scatter.from_rows((self.means - self.mean) * np.sqrt(self.weights)[:, None])

    @property
    def scatter(self) -> Floats:
        """Total scatter, as a matrix."""
        return self.total.matrix

    @cached_property
    def variance(self) -> Floats:
        """Population variance of each feature over all rows."""
        return np.asarray(self.total.diagonal / self.weights.sum())

    @cached_property
    def fingerprint(self) -> str:
        """A short checksum of all rows, independent of their order and batching."""
        return fingerprint({label: (part.n_rows, part.checksum) for label, part in self.parts.items()})


@dataclass(frozen=True)
class Means:
    """Weight and mean of the rows of each label, or of each combination of labels. ``a + b`` merges."""

    parts: dict[Any, tuple[float, Floats]]

    @classmethod
    def from_rows(cls, X: Any, *labels: NDArray[Any], sample_weight: Floats | None = None) -> Means:
        """Summarise rows X (array or tensor) by one or several labels per row."""
        X = X if on_cuda(X) else to_numpy(X)
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        kinds = [coded(values) for values in labels]
        combined = np.ravel_multi_index([codes for _, codes in kinds], [len(names) for names, _ in kinds])
        order = np.argsort(combined, kind="stable")
        firsts = np.flatnonzero(np.diff(combined[order], prepend=-1))
        several = [values[order[firsts]].tolist() for values in labels]
        totals = np.add.reduceat(weight[order], firsts) if len(order) else np.zeros(0)
        means = _sums_by_label(X, weight, order, firsts) / np.where(totals == 0, 1.0, totals)[:, None]
        names = zip(*several, strict=True) if len(labels) > 1 else several[0]
        parts = dict(zip(names, zip(totals.tolist(), means, strict=True), strict=True))
        return cls(parts)

    def __add__(self, other: Means) -> Means:
        parts = dict(self.parts)
        for label, (weight, mean) in other.parts.items():
            if label not in parts:
                parts[label] = weight, mean
                continue
            before, old = parts[label]
            share = weight / (before + weight) if before + weight else 0.0
            parts[label] = before + weight, old + share * (mean - old)
        return Means(_sorted(parts, "y"))

    def grouped(self, group: Callable[[Any], Any]) -> Means:
        """Return the means of groups of labels, where ``group`` maps a label to its group.

        Labels without weight are left out.
        """
        labels = [label for label, (weight, _) in self.parts.items() if weight]
        names: dict[Any, int] = {}
        codes = np.empty(len(labels), np.int64)
        for i, label in enumerate(labels):
            codes[i] = names.setdefault(group(label), len(names))
        weights = np.array([self.parts[label][0] for label in labels])
        totals = np.bincount(codes, weights, len(names))
        width = len(self.parts[labels[0]][1]) if labels else 0
        means = np.zeros((len(names), width))
        for block in blocks(len(labels), GROUPED):
            shares = np.zeros((len(names), block.stop - block.start))
            shares[codes[block], np.arange(shares.shape[1])] = weights[block]
            means += shares @ np.stack([self.parts[label][1] for label in labels[block]])
        parts = {name: (float(totals[i]), means[i] / totals[i]) for name, i in names.items()}
        return Means(_sorted(parts, "y"))


def _sums_by_label(X: Any, weight: Floats, order: NDArray[np.intp], firsts: NDArray[np.intp]) -> Floats:
    """Return the weighted sum of rows for each label, (labels, d).

    ``order`` sorts rows by label, and ``firsts`` has the positions at which labels begin.
    """
    d, sums = X.shape[1], np.zeros((len(firsts), X.shape[1]))
    if not isinstance(X, np.ndarray):  # sum on the device of the tensor
        for i, rows in enumerate(np.split(order, firsts[1:])):
            chosen = double(X[rows])
            sums[i] = to_numpy(cast(weight[rows], chosen) @ chosen)
        return sums
    ends = np.append(firsts, len(order))
    for part in blocks(len(order), max(1, BLOCK // d)):
        rows = order[part]
        here = slice(np.searchsorted(ends, part.start, "right") - 1, np.searchsorted(ends, part.stop))
        inside = np.clip(ends[here.start : here.stop + 1], part.start, part.stop) - part.start
        of_label = scipy.sparse.csr_array(
            (weight[rows], np.arange(len(rows)), inside), shape=(len(inside) - 1, len(rows))
        )
        sums[here] += of_label @ double(X[rows])
    return sums


def _sorted(parts: dict[Any, Any], name: str) -> dict[Any, Any]:
    try:
        return {label: parts[label] for label in sorted(parts)}
    except TypeError:
        kinds = " and ".join(sorted({type(label).__name__ for label in parts}))
        raise ValueError(f"{name} mixes {kinds} labels between batches; use one type.") from None


def content_checksum(X: Any) -> NDArray[np.uint64]:
    """Return the sum over rows of each feature's bit pattern, independent of row order and batches."""
    X = np.ascontiguousarray(X, dtype=np.float64)
    return np.asarray(X.view(np.uint64).sum(axis=0, dtype=np.uint64))


def fingerprint(parts: dict[Any, tuple[int, NDArray[np.uint64]]]) -> str:
    """Return a short digest of each source's number of rows and checksum."""
    digest = hashlib.sha256()
    for label, (n_rows, checksum) in parts.items():
        digest.update(f"{label!r}:{n_rows};".encode())
        digest.update(checksum.tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Standardizer:
    """Centre and scale of every feature in the fitting data, and the features that are not constant."""

    center: Floats
    scale: Floats
    varies: NDArray[np.bool_]

    def unscaled(self) -> Standardizer:
        """Return a standardisation that keeps the units of the input, with the same varying features."""
        return Standardizer(np.zeros_like(self.center), np.ones_like(self.scale), self.varies)

    @cached_property
    def divisor(self) -> Floats:
        """Divisors of features; the scale of constant features is infinite, so they have no effect."""
        return np.where(self.varies, self.scale, np.inf)

    @classmethod
    def from_spread(cls, mean: Floats, variance: Floats, n_rows: int, standardize: bool) -> Standardizer:
        """Return a standardisation from mean and population variance; constant features get scale 1."""
        eps = np.finfo(np.float64).eps
        varies = variance > n_rows * eps * variance + (n_rows * mean * eps) ** 2
        standard = cls(mean, np.where(varies, np.sqrt(np.maximum(variance, 0.0)), 1.0), varies)
        return standard if standardize else standard.unscaled()

    @classmethod
    def from_rows(cls, X: Any, sample_weight: Floats | None, standardize: bool) -> Standardizer:
        """Return the standardisation of rows of any type, accumulated in float64 in blocks."""
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        share = weight / weight.sum()
        parts = blocks(len(X), 65536)
        mean = np.sum([share[rows] @ X[rows].astype(np.float64) for rows in parts], axis=0)
        variance = np.sum([share[rows] @ (X[rows] - mean) ** 2 for rows in parts], axis=0)
        return cls.from_spread(mean, variance, len(X), standardize)

    def require_variation(self) -> Self:
        """Return this standardisation; raise if all features are constant."""
        if not self.varies.any():
            raise ValueError(
                f"All {len(self.varies)} features of X are constant, so there is nothing to correct. "
                "Check that the embeddings were computed."
            )
        return self

    def apply(self, X: Any) -> NDArray[np.float32]:
        """Return standardised float32 rows; constant features are zero, so critics do not use them."""
        H = np.asarray((X - self.center) / self.scale, dtype=np.float32)
        H[:, ~self.varies] = 0.0
        return H
