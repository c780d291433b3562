"""The statistics of a fit: moments of rows by source, and pairs. ``a + b`` merges.

Batches, streams and clusters differ only in how they compute these statistics. Rows are reduced to
:class:`~mgpa.moments.Moments` immediately, so memory does not grow with their number. Paired rows are few and
are stored, because methods use all of them (for a filter or a regression), and the two views of one event may
be in different batches.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ._common.arrays import cast, double, namespace
from .errors import PASS_PAIRS, MissingEvidence
from .labels import Codes, Labels, coded, is_paired, require_distinct, source_names, to_numpy, warn_of_singles
from .linalg import PIECE, blocks
from .moments import Means, Moments, Standardizer, content_checksum, fingerprint
from .pairs import Pairs, matched_rows, row_keys, rows_among_views

Array = Any  # numpy array or torch tensor
Floats = NDArray[np.float64]

MOST_PARTICIPANTS = 64  # with more participants, the jackknife of effects leaves out groups
MOST_NAMED = 10_000  # with more participants, means of groups are kept instead of individual means
GOLDEN, LOWEST = 0x9E3779B97F4A7C15 - 2**64, -(2**63)
SAMPLE_ROWS, SAMPLE_NUMBERS, HASHED = 1000, 2**22, 16  # rows of a sample, its numbers, features that choose
FAR_OUT = 50.0  # times the range of the middle half of rows; of normal rows the deviation is .74 of it

NO_PAIRS = (
    f"No pairs: {PASS_PAIRS} Source labels alone cannot tell a measurement effect from a population "
    "difference."
)


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows with their sources, pair ids, participants, weights and task labels."""

    X: Any  # array or tensor
    source: Labels
    pair_id: Labels | None = None
    participant: Labels | None = None
    sample_weight: Floats | None = None
    task: Labels | None = None

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def _coded(self) -> tuple[Labels, Codes]:
        return coded(self.source)

    @property
    def sources(self) -> Labels:
        """The sorted distinct sources."""
        return self._coded[0]

    @property
    def codes(self) -> Codes:
        """The position of each row's source among the sources."""
        return self._coded[1]

    @property
    def source_weights(self) -> Floats | None:
        """The total weight of each source, or None without weights."""
        w = self.sample_weight
        return None if w is None else np.bincount(self.codes, w).astype(np.float64)

    @property
    def facts(self) -> dict[str, Any]:
        """The facts about the rows that a map stores."""
        return {
            "source_names": source_names(self.sources),
            "n_rows": len(self),
            "fingerprint": fingerprint(row_checksums(self.X, self.source)),
        }

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> LabelledRows:
        """Return the selected rows."""
        labels = (self.pair_id, self.participant, self.sample_weight, self.task)
        return LabelledRows(
            self.X[rows], self.source[rows], *(None if x is None else x[rows] for x in labels)
        )

    def paired(self) -> LabelledRows:
        """Return the rows with a pair id, on the host; an id may occur once per source."""
        assert self.pair_id is not None
        require_distinct(self.codes, self.pair_id)
        keep = is_paired(self.pair_id)
        participants = None if self.participant is None else self.participant[keep]
        return LabelledRows(to_numpy(self.X[keep]), self.source[keep], self.pair_id[keep], participants)

    def matched(self) -> tuple[Codes, Codes]:
        """Return the row numbers of the first and second views of all pairs, for every two sources."""
        assert self.pair_id is not None
        n_sources = len(self.sources)
        between = [(first, second) for second in range(n_sources) for first in range(second)]
        matches = [matched_rows(self.codes, self.pair_id, *two) for two in between]
        first, second = (np.concatenate(side) for side in zip(*matches, strict=True))
        return first, second


@dataclass(frozen=True, eq=False)
class Statistics:
    """The statistics of the data seen so far."""

    moments: Moments = field(default_factory=lambda: Moments({}))  # of all rows, by source
    # Pairs that are not among the rows: aligned arrays, and rows with ids.
    aligned: tuple[Pairs, ...] = ()
    repeated: Moments = field(default_factory=lambda: Moments({}))  # of rows that are views of aligned pairs
    calibration: tuple[LabelledRows, ...] = ()
    paired_rows: tuple[LabelledRows, ...] = ()  # rows that have pair ids
    participants: Means = field(default_factory=lambda: Means({}))  # by (source, participant or group)
    names: frozenset[Any] = frozenset()  # names of the participants
    task: Means = field(default_factory=lambda: Means({}))
    n_features: int | None = None  # None before the first batch
    sample: Floats | None = None  # sample of the rows, independent of their division into batches

    @classmethod
    def from_rows(cls, rows: LabelledRows, pairs: Pairs | None = None) -> Self:
        """Return the statistics of one batch."""
        X, weight, nothing = rows.X, rows.sample_weight, Means({})
        participants, task = rows.participant, rows.task
        names = frozenset() if participants is None else frozenset(np.unique(participants).tolist())
        repeated = np.zeros(0, np.intp) if pairs is None else rows_among_views(X, rows.codes, pairs)
        return cls(
            Moments.from_codes(X, rows.sources, rows.codes, weight),
            aligned=() if pairs is None else (pairs,),
            repeated=Moments.from_rows(X[repeated], rows.source[repeated]) if len(repeated) else Moments({}),
            paired_rows=() if rows.pair_id is None else (rows.paired(),),
            participants=nothing
            if participants is None
            else in_groups(Means.from_rows(X, rows.source, participants, sample_weight=weight), names),
            names=names,
            task=nothing if task is None else Means.from_rows(X, task, sample_weight=weight),
            n_features=X.shape[1],
            sample=sample_rows(X),
        )

    def __add__(self, other: Statistics) -> Statistics:
        samples = [sample for sample in (self.sample, other.sample) if sample is not None]
        names = self.names | other.names
        return Statistics(
            self.moments + other.moments,
            self.aligned + other.aligned,
            self.repeated + other.repeated,
            self.calibration + other.calibration,
            self.paired_rows + other.paired_rows,
            in_groups(self.participants, names) + in_groups(other.participants, names),
            names,
            self.task + other.task,
            other.n_features or self.n_features,
            sample_rows(*samples[::-1]) if samples else None,
        )

    @cached_property
    def sources(self) -> Labels:
        """Sorted source labels."""
        return np.array(self.moments.sources)

    def require_sources(self) -> None:
        """Raise unless there are two sources or more, each with some weight."""
        if not self.moments.parts:
            raise MissingEvidence("source is missing: no labelled rows were added.")
        require_several(self.sources, self.moments.weights)

    @cached_property
    def _standard(self) -> Standardizer:
        m = self.moments
        return Standardizer.from_spread(m.mean, m.variance, m.n_rows, True).require_variation()

    def standardizer(self, standardize: bool) -> Standardizer:
        """Return the centre and scale of all rows so far; raise if no feature varies."""
        return self._standard if standardize else self._standard.unscaled()

    @property
    def n_views(self) -> int:
        """Number of paired rows so far."""
        return 2 * sum(map(len, self.aligned)) + sum(map(len, self._labelled))

    def pairs(self, *, again: bool = False) -> Pairs:
        """Return all pairs, from aligned arrays and ids; raise if there are none.

        Ids that occur once are mentioned, unless a fit collects the pairs ``again``.
        """
        return collect_pairs(self.aligned, self._labelled, self.sources, again=again)

    def without_views(self, pairs: Pairs) -> Statistics:
        """Return the statistics without pairs that share views with ``pairs``; rows are kept."""
        views = np.concatenate([row_keys(pairs.a), row_keys(pairs.b)])
        aligned = tuple(some.without(pairs) for some in self.aligned)
        events = [np.asarray(rows.pair_id)[np.isin(row_keys(rows.X), views)] for rows in self._labelled]
        dropped = np.unique(np.concatenate(events)) if events else ()
        calibration, paired = (
            tuple(rows.take(~np.isin(np.asarray(rows.pair_id), dropped)) for rows in parts)
            for parts in (self.calibration, self.paired_rows)
        )
        return replace(self, aligned=aligned, calibration=calibration, paired_rows=paired)

    def paired_moments(self, *, among_rows: bool = False) -> Moments:
        """Return the moments of paired views, which show the same events in every source.

        They include all paired views, or only those ``among_rows``.
        """
        total = self.repeated if among_rows else self._aligned_moments()
        if labelled := self.paired_rows if among_rows else self._labelled:
            rows = join_rows(labelled, self.sources)
            _, event, n_views = np.unique(np.asarray(rows.pair_id), return_inverse=True, return_counts=True)
            seen = n_views[event] > 1
            total = total + Moments.from_rows(rows.X if seen.all() else rows.X[seen], rows.source[seen])
        return total

    def calibration_moments(self) -> Moments:
        """Return the moments of the paired views that are not among the rows."""
        total = self._aligned_moments()
        for rows in self.calibration:
            total = total + Moments.from_rows(rows.X, rows.source)
        return total

    def _aligned_moments(self) -> Moments:
        require_two_sources(self.aligned, self.sources)
        total = Moments({})
        for pairs in self.aligned:
            pairs = pairs.distinct()
            for label, side in zip(self.sources, (pairs.a, pairs.b), strict=True):
                total = total + Moments.from_rows(side, np.full(len(side), label))
        return total

    @property
    def _labelled(self) -> tuple[LabelledRows, ...]:
        return self.paired_rows + self.calibration


class Group(int):
    """Position of a group of participants, in place of a name."""


def in_groups(participants: Means, names: frozenset[Any]) -> Means:
    """Return the means of participants, or of groups of them if there are too many ``names`` to keep each.

    The group of a participant is derived from the name, so it is the same in every batch.
    """
    if len(names) <= MOST_NAMED:
        return participants

    def cell(label: tuple[Any, Any]) -> tuple[Any, Group]:
        source, who = label
        group = who if isinstance(who, Group) else Group(zlib.crc32(repr(who).encode()) % MOST_PARTICIPANTS)
        return source, group

    return participants.grouped(cell)


def scale_doubt(sample: Any, standardizer: Standardizer) -> str:
    """Return a sentence if a few outlying rows determine the scale of features; else empty.

    A feature's standard deviation is compared with its spread in the middle half of the rows.
    """
    if sample is None:
        return ""
    low, high = _quartiles(np.asarray(sample, dtype=np.float64))
    features = np.flatnonzero((high > low) & (standardizer.scale > FAR_OUT * (high - low)))
    if not len(features):
        return ""
    first, many = features[0], f"{len(features)} feature{'s' if len(features) > 1 else ''}"
    return (
        f"A few rows are extreme outliers that determine the scale of {many} (feature {first} has standard "
        f"deviation {standardizer.scale[first]:.3g}, but half of its rows lie within "
        f"{high[first] - low[first]:.3g}): leave out these rows."
    )


def _quartiles(rows: Floats) -> tuple[Floats, Floats]:
    """Return the lower and upper quartiles of columns; sorting is several times as fast as numpy's."""
    at = np.array([0.25, 0.75]) * (len(rows) - 1)
    columns = rows.T.copy()
    columns.sort(axis=1)
    below, above = columns[:, np.floor(at).astype(int)], columns[:, np.ceil(at).astype(int)]
    low, high = (below + (at - np.floor(at)) * (above - below)).T
    return low, high


def require_several(sources: Labels, weights: Floats | None = None) -> int:
    """Return the number of sources, at least two, each with some weight."""
    if len(sources) < 2:
        raise ValueError(
            f"source has 1 distinct value ({sources[0].item()!r}); a correction needs at least two "
            "acquisition conditions. Pass every condition you want attenuated."
        )
    if weights is not None and not weights.all():
        raise ValueError(
            f"sample_weight is zero in every row of source {sources[weights == 0].tolist()}; "
            "leave such a source out, or give it weight."
        )
    return len(sources)


def collect_pairs(
    aligned: Sequence[Pairs], labelled: Sequence[LabelledRows], sources: Labels, *, again: bool = False
) -> Pairs:
    """Return the pairs of aligned arrays and of rows with ids; their codes are positions in ``sources``."""
    parts = list(aligned)
    if labelled:
        rows = join_rows(labelled, sources)
        codes, ids = source_codes(rows, sources), np.asarray(rows.pair_id)
        parts.append(Pairs.from_ids(rows.X, codes, ids, rows.participant))
        if not again:
            warn_of_singles(ids, stacklevel=5)
    if not sum(map(len, parts)):
        raise MissingEvidence(NO_PAIRS)
    require_two_sources(aligned, sources)
    return Pairs.concatenate(parts).distinct()


def require_two_sources(aligned: Sequence[Pairs], sources: Labels) -> None:
    """Raise if there are aligned arrays of more than two sources."""
    if aligned and len(sources) > 2:
        raise ValueError(
            f"pairs=(A, B) does not show which of the {len(sources)} sources each view is; use "
            "pair_id= with source=."
        )


def join_rows(parts: Sequence[LabelledRows], sources: Labels) -> LabelledRows:
    """Return all paired rows, with participants if all are known; raise if a source is unknown."""
    X, labels, ids = (
        arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        for arrays in ([getattr(rows, name) for rows in parts] for name in ("X", "source", "pair_id"))
    )
    if len(unseen := np.setdiff1d(labels, sources)):
        raise ValueError(
            f"The pairs have {len(np.unique(labels))} sources and the rows {len(sources)}: no "
            f"row has source {unseen[0].item()!r}. Use the same source names in both, or add rows."
        )
    participants = [rows.participant for rows in parts if rows.participant is not None]
    whose = np.concatenate(participants) if len(participants) == len(parts) else None
    joined = LabelledRows(X, labels, ids, whose)
    require_distinct(source_codes(joined, sources), ids)
    return joined


def source_codes(rows: LabelledRows, sources: Labels) -> Codes:
    """Return the position of each row's source among these sources."""
    return np.searchsorted(sources, rows.source).astype(np.int64)


def row_checksums(X: Any, source: Labels) -> dict[Any, tuple[int, NDArray[np.uint64]]]:
    """Return the number of rows and the content checksum of each source, as in the moments."""
    distinct, codes = coded(source)
    checksums = {}
    for code, label in enumerate(distinct):
        rows = np.flatnonzero(codes == code)
        total = np.zeros(X.shape[1], np.uint64)
        for piece in blocks(len(rows), max(1, PIECE // X.shape[1])):
            total += content_checksum(X[rows[piece]])
        checksums[label.item()] = len(rows), total
    return checksums


def sample_rows(X: Any, more: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return up to a thousand rows of X and of an earlier sample, independent of the division of X.

    A hash of each row decides whether it is kept, so samples of parts can be merged in any order.
    """
    _, d = X.shape
    most = max(8, min(SAMPLE_ROWS, SAMPLE_NUMBERS // d))
    sample = to_numpy(X[_first_by_hash(X[:, :HASHED], most)]).astype(np.float64)
    if more is None:
        return sample
    both = np.concatenate([more, sample])
    return np.asarray(both[_first_by_hash(both[:, :HASHED], most)])


def _first_by_hash(rows: Array, most: int) -> Array:
    """Return the rows with the smallest hashes in increasing order, as an array or a tensor."""
    xp, rng = namespace(rows), np.random.default_rng(0)
    # Signed and unsigned integers wrap equally; masks remove the effect of the sign on shifts.
    factors = (rng.integers(2**62, 2**63, rows.shape[1], dtype=np.uint64) * 2 + 1).view(np.int64)
    number = xp.zeros_like(rows[:, 0], dtype=xp.int64)
    for part in blocks(len(rows), PIECE // rows.shape[1] if xp is np else max(1, len(rows))):
        bits = double(rows[part])
        bits = (np.ascontiguousarray(bits) if xp is np else bits.contiguous()).view(xp.int64)
        bits = (bits ^ ((bits >> 29) & (2**35 - 1))) * cast(factors, bits)
        number[part] = bits.sum(1) * GOLDEN
    number = (number ^ ((number >> 32) & (2**32 - 1))) ^ LOWEST  # sorts like unsigned numbers
    if len(number) > most:
        last = (
            np.partition(number, most - 1)[most - 1] if xp is np else number.topk(most, largest=False)[0][-1]
        )
        rows = xp.where(number <= last)[0]
    else:
        rows = xp.arange(len(number), **({} if xp is np else {"device": number.device}))
    return rows[xp.argsort(number[rows], stable=True)][:most]
