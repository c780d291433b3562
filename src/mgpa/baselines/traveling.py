"""Travelling subjects: the measurement bias of each source, from events that several sources have seen.

The method subtracts it; :func:`split_source_difference` shows what else differs between the sources' rows.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
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
from ._base import Floats, SourceAware, direction_words, reference_index, routed_map

Codes = NDArray[np.int64]
MAX_BLOCKS = 40  # parts that the jackknife leaves out one after another


def measurement_biases(X: Floats, codes: Codes, events: Codes, n_sources: int) -> Floats:
    """Return the biases b (K, d) of least squares in x = event + b_source + noise, which sum to zero.

    Every event has a free level of its own, so only differences within events count.
    """
    onehot = np.eye(n_sources)[codes]
    sums = np.zeros((int(events.max()) + 1, n_sources))
    np.add.at(sums, events, onehot)
    within = onehot - (sums / np.maximum(sums.sum(axis=1, keepdims=True), 1.0))[events]
    normal = within.T @ within
    if np.linalg.matrix_rank(normal) < n_sources - 1:
        raise MissingEvidence(
            f"The pairs do not connect all {n_sources} sources. Add pairs until every source is linked to "
            "every other, directly or through a third."
        )
    return np.asarray(np.linalg.pinv(normal) @ (within.T @ X))


class TravelingSubjects(SourceAware):
    """Subtract each source's measurement bias, estimated from subjects measured by several sources.

    Reference: Yamashita et al., "Harmonization of resting-state functional MRI data across multiple imaging
    sites via the separation of site differences into sampling bias and measurement bias", PLOS Biology 17,
    2019. Ours is the part of its model that travelling subjects determine, x = subject + measurement bias +
    noise with biases that sum to zero, by least squares; the paper estimates it together with factors of
    disorders, with a ridge. An *event* (a pair) is here what a travelling subject is there.

    Needs pairs and source labels, and the source again at application. No task. It differs from ComBat in
    that the rows of the sources, and so the people in them, do not enter.

    What it cannot do: correct more than a constant for each source: gains, rotations and noise stay. A row
    of an unknown or unseen source is refused.

    Parameters
    ----------
    reference : label, int or None
        A source to leave as it is. None maps all sources to their mean, as published.
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=False, needs_pairs=True)

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {"reference": source_label | nothing}

    def __init__(self, *, reference: Any = None) -> None:
        self.reference = reference

    @property
    def reference_(self) -> Any:
        """The label of the reference; None if all sources move to their mean."""
        sources = self.sources_
        return None if self.reference is None else sources[reference_index(self.reference, sources)].item()

    def _solve(self, data: Statistics) -> RoutedMap:
        K, standardizer = data.require_sources(), data.standardizer(True)
        X, codes, events = paired_events(data)
        biases = measurement_biases(np.where(standardizer.varies, X, 0.0), codes, events, K)
        words = "each source's measurement bias"
        if self.reference is not None:
            target = reference_index(self.reference, data.sources)
            biases = biases - biases[target]
            words = f"{words}: {direction_words(target, data.sources)}"
        biases /= standardizer.scale
        none = np.zeros(len(standardizer.scale))
        transports = [(none + 1.0, bias, none) for bias in biases]
        n_events = len(np.unique(events))
        info = self._evidence_info(data, n_contrasts=n_events, evidence=words)
        return routed_map(standardizer, transports, info)


def paired_events(data: Statistics) -> tuple[Floats, Codes, Codes]:
    """Return all paired rows with the positions of their sources and the number of their event."""
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
    """How one source's rows (of one label) differ from the mean of all sources', and from which cause.

    Lengths are per feature, in standard deviations of the rows, with the squared error of the estimate taken
    off (0 where it is all error); ``_se`` are standard errors. ``cosine`` is between the two biases.
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
    """Differences between sources, printed as a table; ``pandas.DataFrame(split)`` makes a frame of it."""

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

    The total is what the rows show: each source's mean minus the mean over sources. The measurement bias is
    what the pairs show, where the same events were measured by several sources
    (:class:`TravelingSubjects`). The rest is the sampling bias: other people, other conditions.

    Parameters
    ----------
    X, source, pairs, pair_id, groups, pair_groups
        As in ``fit``. Standard errors are over participants (``groups``); without them over events and rows.
    y : (n,) array or None
        The task: split the difference for each label by itself, so that unequal proportions of labels are no
        sampling bias.

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
    rows = np.asarray(to_numpy(X), dtype=np.float64)
    sources, codes = encode_source(source, len(rows))
    if len(sources) < 2:
        raise UsageError(f"source has 1 distinct value ({sources[0].item()!r}); a difference needs two.")
    standardizer = Standardizer.from_rows(rows, None, True).require_variation()
    Z = rows[:, standardizer.varies] / standardizer.scale[standardizer.varies]
    people = np.arange(len(rows)) if groups is None else check_labels(groups, len(rows), "groups")
    labels, label_codes = (np.array([None]), np.zeros(len(rows), np.int64))
    if y is not None:
        labels, label_codes = encode_source(y, len(rows), "y")
    if (pairs is None) == (pair_id is None):
        raise UsageError("Pass pairs=(A, B) or pair_id=, and not both." if pairs is not None else NO_PAIRS)
    if pairs is not None:
        if len(sources) > 2:
            raise UsageError("pairs=(A, B) is for two sources; with more use pair_id=.")
        A, B = check_views(pairs, rows.shape[1])
        m = len(A)
        views = np.concatenate([A, B])[:, standardizer.varies] / standardizer.scale[standardizer.varies]
        which, events = np.repeat([0, 1], m), np.tile(np.arange(m), 2)
        owners = np.arange(m) if pair_groups is None else check_labels(pair_groups, m, "pair_groups")
        shared, owners = pair_groups is not None and groups is not None, np.tile(owners, 2)
    else:
        ids = check_pair_id(pair_id, len(rows))
        keep = is_paired(ids)
        if not keep.any():
            raise MissingEvidence(NO_PAIRS)
        views, which = Z[keep], codes[keep]
        events = np.unique(ids[keep], return_inverse=True)[1]
        owners = people[keep] if groups is not None else events
        shared = groups is not None

    def biases(rows_in: NDArray[np.bool_], pairs_in: NDArray[np.bool_]) -> Floats:
        """Return total and measurement bias, (2, K, labels, d)."""
        K, L = len(sources), len(labels)
        means = np.full((K, L, Z.shape[1]), np.nan)
        for k in range(K):
            for c in range(L):
                mine = rows_in & (codes == k) & (label_codes == c)
                if mine.any():
                    means[k, c] = Z[mine].mean(axis=0)
        measured = measurement_biases(views[pairs_in], which[pairs_in], events[pairs_in], K)
        return np.stack([means - means.mean(axis=0), np.broadcast_to(measured[:, None], means.shape)])

    every = np.ones(len(Z), bool), np.ones(len(views), bool)
    whole = biases(*every)
    if np.isnan(whole[0]).any():
        k, c = np.argwhere(np.isnan(whole[0]).any(axis=2))[0]
        names = sources[k].item(), np.asarray(labels[c]).item()
        raise UsageError(f"No rows of source {names[0]!r} with label {names[1]!r}; leave that label out.")
    row_blocks, pair_blocks = blocks(people), blocks(owners)
    if shared:  # the same people in rows and pairs: both leave together
        together = blocks(np.concatenate([people, owners]))
        row_blocks, pair_blocks = np.split(together, [len(people)])
        parts = [(row_blocks != i, pair_blocks != i) for i in range(int(together.max()) + 1)]
        draws = [parts]
    else:
        draws = [
            [(row_blocks != i, every[1]) for i in range(int(row_blocks.max()) + 1)],
            [(every[0], pair_blocks != i) for i in range(int(pair_blocks.max()) + 1)],
        ]
    square, variance = 0.0, 0.0
    for parts in draws:
        left = np.stack([with_sampling(biases(*part)) for part in parts])
        n = len(left)
        spread = np.nansum((left - np.nanmean(left, axis=0)) ** 2, axis=0) * (n - 1) / n
        square = square + spread.mean(axis=-1)  # of the length per feature, squared
        lengths = np.sqrt(np.square(left).mean(axis=-1))
        variance = variance + np.nansum((lengths - np.nanmean(lengths, axis=0)) ** 2, axis=0) * (n - 1) / n
    both = with_sampling(whole)
    length = np.sqrt(np.maximum(np.square(both).mean(axis=-1) - square, 0.0))
    table = []
    for k, name in enumerate(sources.tolist()):
        for c, label in enumerate(np.asarray(labels).tolist()):
            device, rest = both[1, k, c], both[2, k, c]
            size = np.linalg.norm(device) * np.linalg.norm(rest)
            (total, measured, sampled), errors = length[:, k, c].tolist(), np.sqrt(variance)[:, k, c].tolist()
            table.append(
                SourceDifference(
                    source=name,
                    label=label,
                    n_rows=int(((codes == k) & (label_codes == c)).sum()),
                    total=total,
                    total_se=errors[0],
                    measurement=measured,
                    measurement_se=errors[1],
                    sampling=sampled,
                    sampling_se=errors[2],
                    cosine=float(device @ rest / size) if size else 0.0,
                )
            )
    return SourceSplit(table)


def with_sampling(biases: Floats) -> Floats:
    """Return total and measurement bias, and their difference, the sampling bias."""
    return np.concatenate([biases, biases[:1] - biases[1:]])


def blocks(units: NDArray[Any]) -> Codes:
    """Return the block of each row: whole units, in at most :data:`MAX_BLOCKS` parts."""
    codes = np.unique(units, return_inverse=True)[1]
    n = int(codes.max()) + 1
    dealt: Codes = np.random.default_rng(0).permutation(n) % min(n, MAX_BLOCKS)
    return dealt[codes]
