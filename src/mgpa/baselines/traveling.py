"""Travelling subjects: estimate the measurement bias of each source from events seen by several sources.

The method subtracts this bias; :func:`split_source_difference` also estimates the sampling bias of the rows.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._common.markup import text_table
from .._common.parameters import Constraint, nothing, source_label
from ..errors import MissingEvidence, UsageError
from ..estimators.base import MethodTags
from ..labels import check_labels, check_pair_id, encode_source, is_paired, to_numpy
from ..maps import RoutedMap
from ..moments import Standardizer
from ..pairs import check_views
from ..statistics import NO_PAIRS, Statistics, join_rows, require_two_sources, source_codes
from ._base import Floats, MaybeReferencedMethod, direction_words, routed_map

Codes = NDArray[np.int64]
MAX_BLOCKS = 40  # maximum number of blocks that the jackknife leaves out in turn


def measurement_biases(X: Floats, codes: Codes, events: Codes, n_sources: int) -> Floats:
    """Return the least-squares biases b (K, d), with sum zero, of the model x = event + b_source + noise.

    Each event has its own free level, so only differences within events are used.
    """
    onehot = np.eye(n_sources)[codes]
    sums = np.zeros((int(events.max()) + 1, n_sources))
    np.add.at(sums, events, onehot)
    within = onehot - (sums / np.maximum(sums.sum(axis=1, keepdims=True), 1.0))[events]
    normal = within.T @ within
    if np.linalg.matrix_rank(normal) < n_sources - 1:
        raise MissingEvidence(
            f"The pairs do not connect all {n_sources} sources. Add pairs until each source is linked to "
            "all others, directly or through further sources."
        )
    return np.asarray(np.linalg.pinv(normal) @ (within.T @ X))


class TravelingSubjects(MaybeReferencedMethod):
    """Subtract the measurement bias of each source, estimated from subjects measured by several sources.

    Reference: Yamashita et al., "Harmonization of resting-state functional MRI data across multiple imaging
    sites via the separation of site differences into sampling bias and measurement bias", PLOS Biology 17,
    2019. Implemented is the part of the model that travelling subjects determine: x = subject + measurement
    bias + noise, with biases that sum to zero, fitted by least squares. The paper fits this part together
    with factors of disorders, with a ridge. An *event* (a pair) here corresponds to a travelling subject
    there.

    Needs pairs and source labels, and the source again at application. No task. Unlike ComBat, the method
    does not use unpaired rows, so differences between participants of the sources have no effect.

    What it cannot do: correct more than a constant for each source; gains, rotations and noise remain. Rows
    of an unknown or unseen source raise an error.

    Parameters
    ----------
    reference : label, int or None
        A source that stays unchanged. None maps all sources to their mean, as published.
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=False, needs_pairs=True)

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {"reference": source_label | nothing}

    def __init__(self, *, reference: Any = None) -> None:
        self.reference = reference

    def _solve(self, data: Statistics) -> RoutedMap:
        K, standardizer = len(data.sources), data.standardizer(True)
        X, codes, events = paired_events(data)
        biases = measurement_biases(np.where(standardizer.varies, X, 0.0), codes, events, K)
        words = "each source's measurement bias"
        if (target := self._target(data.sources)) is not None:
            biases = biases - biases[target]
            words = f"{words}: {direction_words(target, data.sources)}"
        biases /= standardizer.scale
        none = np.zeros(len(standardizer.scale))
        transports = [(none + 1.0, bias, none) for bias in biases]
        n_events = len(np.unique(events))
        info = self._evidence_info(data, n_contrasts=n_events, evidence=words)
        return routed_map(standardizer, transports, info)


def paired_events(data: Statistics) -> tuple[Floats, Codes, Codes]:
    """Return all paired rows with their source codes and event numbers."""
    require_two_sources(data.aligned, data.sources)
    rows, codes, events, first = [], [], [], 0
    for pairs in data.aligned:
        rows += [pairs.a, pairs.b]
        codes += [pairs.first, pairs.second]
        events += [first + np.arange(len(pairs))] * 2
        first += len(pairs)
    if labelled := data.paired_rows + data.calibration:
        joined = join_rows(labelled, data.sources)
        rows.append(joined.X)
        codes.append(source_codes(joined, data.sources))
        events.append(first + np.unique(np.asarray(joined.pair_id), return_inverse=True)[1])
    if not sum(map(len, rows)):
        raise MissingEvidence(NO_PAIRS)
    return np.concatenate(rows).astype(np.float64), np.concatenate(codes), np.concatenate(events)


@dataclass(frozen=True)
class SourceDifference:
    """The difference between one source (for one label) and the mean of all sources, split by cause.

    Lengths are per feature, in standard deviations of the rows, after subtraction of the squared estimation
    error (0 if the error is larger). Fields ``_se`` are standard errors. ``cosine`` is
    the cosine of the angle between the two biases.
    """

    source: Any
    label: Any
    n_rows: int
    total: float
    total_se: float
    measurement: float
    measurement_se: float
    sampling: float
    sampling_se: float
    cosine: float


class SourceSplit(tuple[SourceDifference, ...]):
    """Differences between sources, printed as a table; ``pandas.DataFrame(split)`` converts them."""

    __slots__ = ()

    def __str__(self) -> str:
        def text(value: Any) -> str:
            return f"{value:.3f}" if isinstance(value, float) else "all" if value is None else str(value)

        names = [field.name.replace("_", " ") for field in fields(SourceDifference)]
        head, *lines = text_table([names, *(list(map(text, astuple(row))) for row in self)])
        return "\n".join([head, "-" * len(head), *lines])

    __repr__ = __str__


def split_source_difference(
    X: Any, source: Any, *, pairs: Any = None, pair_id: Any = None, y: Any = None, groups: Any = None,
    pair_groups: Any = None,
) -> SourceSplit:  # fmt: skip
    """Split the difference between sources into measurement bias and sampling bias.

    The total is estimated from all rows: the mean of each source minus the mean over sources. The measurement
    bias is estimated from pairs, the same events measured by several sources (:class:`TravelingSubjects`).
    The remainder is the sampling bias: other participants or other conditions.

    Parameters
    ----------
    X, source, pairs, pair_id, groups, pair_groups
        As in ``fit``. Standard errors are over participants (``groups``) or else over events and rows.
    y : (n,) array or None
        Task labels: split the difference separately for each label, so that unequal label proportions do not
        count as sampling bias.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> A, source = rng.normal(size=(500, 3)), np.repeat(["dry", "wet"], 250)
    >>> rows = np.concatenate([A[:250], A[250:] + [2.0, 1.0, 0.0]])  # 1: another device; 2: other people
    >>> split = split_source_difference(rows, source, pairs=(A, A + [2.0, 0.0, 0.0]))
    >>> [(row.source, round(row.measurement, 1), round(row.sampling, 1)) for row in split]
    [('dry', 0.4, 0.3), ('wet', 0.4, 0.3)]
    """
    values = np.asarray(to_numpy(X), dtype=np.float64)
    n = len(values)
    sources, codes = encode_source(source, n)
    if len(sources) < 2:
        raise UsageError(f"source has 1 distinct value ({sources[0].item()!r}); a difference needs two.")
    if (pairs is None) == (pair_id is None):
        raise UsageError("Pass pairs=(A, B) or pair_id=, and not both." if pairs is not None else NO_PAIRS)
    standardizer = Standardizer.from_rows(values, None, True).require_variation()
    varies = standardizer.varies
    labels, classes = (np.array([None]), np.zeros(n, np.int64)) if y is None else encode_source(y, n, "y")
    people = np.arange(n) if groups is None else check_labels(groups, n, "groups")
    rows = Rows(values[:, varies] / standardizer.scale[varies], codes, classes, people)
    if pairs is None:
        paired, shared = _labelled_pairs(rows, pair_id, groups is not None)
    else:
        if len(sources) > 2:
            raise UsageError("pairs=(A, B) is for two sources; with more use pair_id=.")
        views = np.concatenate(check_views(pairs, values.shape[1]))[:, varies] / standardizer.scale[varies]
        m = len(views) // 2
        owners = np.arange(m) if pair_groups is None else check_labels(pair_groups, m, "pair_groups")
        paired = Rows(views, np.repeat([0, 1], m), np.tile(np.arange(m), 2), np.tile(owners, 2))
        shared = pair_groups is not None and groups is not None
    shape = len(sources), len(labels)
    whole = difference_parts(rows, paired, *shape)
    if (absent := np.isnan(whole[0]).any(axis=2)).any():
        k, c = np.argwhere(absent)[0]
        names = sources[k].item(), np.asarray(labels[c]).item()
        raise UsageError(f"No rows of source {names[0]!r} with label {names[1]!r}; leave that label out.")
    noise, variance = _jackknifed(rows, paired, shared, shape)
    lengths, errors = np.sqrt(np.maximum(np.square(whole).mean(axis=-1) - noise, 0.0)), np.sqrt(variance)
    table = []
    for (k, name), (c, label) in product(enumerate(sources.tolist()), enumerate(labels.tolist())):
        device, rest = whole[1:, k, c]
        size = np.linalg.norm(device) * np.linalg.norm(rest)
        # Length and standard error of total, measurement and sampling.
        parts: list[Any] = np.stack([lengths[:, k, c], errors[:, k, c]], axis=1).ravel().tolist()
        n_rows = int(((codes == k) & (classes == c)).sum())
        cosine = float(device @ rest / size) if size else 0.0
        table.append(SourceDifference(*(name, label, n_rows, *parts, cosine)))
    return SourceSplit(table)


@dataclass(frozen=True)
class Rows:
    """Rows with their sources, their labels (for pairs, their events) and their participants."""

    X: Floats
    codes: Codes
    kinds: Codes
    owners: NDArray[Any]

    def take(self, keep: NDArray[np.bool_]) -> Rows:
        """Return the selected rows."""
        return Rows(self.X[keep], self.codes[keep], self.kinds[keep], self.owners[keep])


def _labelled_pairs(rows: Rows, pair_id: Any, grouped: bool) -> tuple[Rows, bool]:
    """Return the paired rows, and ``grouped``: whether pairs and rows have the same participants."""
    ids = check_pair_id(pair_id, len(rows.X))
    if not (keep := is_paired(ids)).any():
        raise MissingEvidence(NO_PAIRS)
    events = np.unique(ids[keep], return_inverse=True)[1]
    return Rows(rows.X[keep], rows.codes[keep], events, rows.owners[keep] if grouped else events), grouped


def _jackknifed(rows: Rows, paired: Rows, shared: bool, shape: tuple[int, int]) -> tuple[Floats, Floats]:
    """Return jackknife variances of squared lengths per feature and of lengths."""
    noise: Any = 0.0
    variance: Any = 0.0
    for samples in without_each_block(rows, paired, shared):
        if not all(len(kept.X) for _, kept in samples):
            raise MissingEvidence(
                "Pairs of one participant do not show how participants differ; two are needed."
            )
        estimates = np.stack([difference_parts(*sample, *shape) for sample in samples])
        noise = noise + jackknife_variance(estimates).mean(axis=-1)
        variance = variance + jackknife_variance(np.sqrt(np.square(estimates).mean(axis=-1)))
    return noise, variance


def difference_parts(rows: Rows, paired: Rows, n_sources: int, n_labels: int) -> Floats:
    """Return total, measurement and sampling bias, (3, K, labels, d); NaN for cells without rows."""
    means = np.full((n_sources, n_labels, rows.X.shape[1]), np.nan)
    for k, c in product(range(n_sources), range(n_labels)):
        if (cell := (rows.codes == k) & (rows.kinds == c)).any():
            means[k, c] = rows.X[cell].mean(axis=0)
    total = means - means.mean(axis=0)
    measured = measurement_biases(paired.X, paired.codes, paired.kinds, n_sources)[:, None]
    return np.stack([total, np.broadcast_to(measured, total.shape), total - measured])


def without_each_block(rows: Rows, paired: Rows, shared: bool) -> list[list[tuple[Rows, Rows]]]:
    """Return rows and pairs with each block of participants left out in turn.

    If rows and pairs have the same participants, their blocks are left out together; otherwise blocks of rows
    are left out first, then blocks of pairs.
    """
    if shared:
        together = blocks(np.concatenate([rows.owners, paired.owners]))
        row_blocks, pair_blocks = np.split(together, [len(rows.X)])
        return [
            [(rows.take(row_blocks != i), paired.take(pair_blocks != i)) for i in range(together.max() + 1)]
        ]
    row_blocks, pair_blocks = blocks(rows.owners), blocks(paired.owners)
    return [
        [(rows.take(row_blocks != i), paired) for i in range(row_blocks.max() + 1)],
        [(rows, paired.take(pair_blocks != i)) for i in range(pair_blocks.max() + 1)],
    ]


def jackknife_variance(left: Floats) -> Floats:
    """Return the jackknife variance of leave-one-block-out estimates (first axis)."""
    n = len(left)
    return np.asarray(np.nansum((left - np.nanmean(left, axis=0)) ** 2, axis=0) * (n - 1) / n)


def blocks(units: NDArray[Any]) -> Codes:
    """Return the block of each row; blocks keep units together, and there are at most :data:`MAX_BLOCKS`."""
    codes = np.unique(units, return_inverse=True)[1]
    n = int(codes.max()) + 1
    dealt: Codes = np.random.default_rng(0).permutation(n) % min(n, MAX_BLOCKS)
    return dealt[codes]
