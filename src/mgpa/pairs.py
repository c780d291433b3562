"""Paired measurements of the same event under two or more acquisition conditions.

Pairs come as two aligned arrays ``(A, B)``, or as one id per row of X. Both become :class:`Pairs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ._common.checks import as_float_matrix, require_finite
from .labels import Codes, Labels, is_paired, require_distinct, to_numpy
from .linalg import BLOCK, blocks

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Both views of all pairs, a and b, with derived quantities.

    Attributes
    ----------
    a, b : (m, d) arrays
        First and second views.
    first, second : (m,) arrays
        Source codes of the views: positions among the sorted sources.
    participants : (m,) array or None
        The participants of the events, if all are known.
    ids : (m,) array or None
        The pair ids, if the pairs have any.
    """

    a: Floats
    b: Floats
    first: Codes
    second: Codes
    participants: Labels | None = None
    ids: Labels | None = None

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def from_arrays(cls, pairs: Any, n_features: int, participants: Labels | None = None) -> Self:
        """Return pairs from arrays ``(A, B)``; row i of A (source 0) and of B (source 1) is one event."""
        a, b = (np.asarray(side, dtype=np.float64) for side in check_views(pairs, n_features))
        return cls(a, b, np.zeros(len(a), np.int64), np.ones(len(a), np.int64), participants)

    @classmethod
    def from_ids(cls, X: Any, codes: Codes, pair_id: Labels, participants: Labels | None = None) -> Self:
        """Return the pairs of all rows that share an id, for every two sources.

        Rows are matched by id and source, so their order and batches do not matter.
        """
        require_distinct(codes, pair_id)
        rows = np.flatnonzero(is_paired(pair_id))
        rows = rows[np.lexsort((codes[rows], pair_id[rows]))]
        _, starts, counts = np.unique(pair_id[rows], return_index=True, return_counts=True)
        sides: tuple[list[NDArray[np.intp]], ...] = ([np.zeros(0, np.intp)], [np.zeros(0, np.intp)])
        for size in np.unique(counts[counts > 1]):  # process events with equal numbers of views together
            members = rows[starts[counts == size][:, None] + np.arange(size)]
            for i, j in combinations(range(size), 2):
                sides[0].append(members[:, i])
                sides[1].append(members[:, j])
        first, second = map(np.concatenate, sides)
        a, b = (np.asarray(X[side], dtype=np.float64) for side in (first, second))
        whose = None if participants is None else participants[first]
        return cls(a, b, codes[first], codes[second], whose, pair_id[first])

    @classmethod
    def concatenate(cls, many: Sequence[Pairs]) -> Pairs:
        """Return all pairs in one object."""
        if len(many) == 1:
            return many[0]
        participants, ids_of_parts = (
            [value for pairs in many if (value := getattr(pairs, name)) is not None]
            for name in ("participants", "ids")
        )
        a, b, first, second = (
            np.concatenate([getattr(pairs, name) for pairs in many]) for name in ("a", "b", "first", "second")
        )
        whose, ids = (
            np.concatenate(x) if len(x) == len(many) else None for x in (participants, ids_of_parts)
        )
        return cls(a, b, first, second, whose, ids)

    def take(self, pairs: NDArray[np.intp]) -> Pairs:
        """Return the selected pairs."""
        whose, ids = (None if x is None else x[pairs] for x in (self.participants, self.ids))
        return Pairs(self.a[pairs], self.b[pairs], self.first[pairs], self.second[pairs], whose, ids)

    def without(self, others: Pairs) -> Pairs:
        """Return the pairs that share no view with the pairs ``others``."""
        views = np.concatenate([row_keys(others.a), row_keys(others.b)])
        seen = np.isin(row_keys(self.a), views) | np.isin(row_keys(self.b), views)
        return self.take(np.flatnonzero(~seen)) if seen.any() else self

    def distinct(self) -> Pairs:
        """Return the pairs without exact copies, which add no evidence."""
        again = repeated_pairs(self.a, self.b, self.kind)
        return self.take(np.setdiff1d(np.arange(len(self)), again)) if len(again) else self

    @property
    def contrasts(self) -> Floats:
        """Second view minus first; computed when needed, to save memory."""
        return self.b - self.a

    @property
    def midpoints(self) -> Floats:
        """The mean of both views."""
        midpoints = self.a + self.b
        midpoints /= 2
        return midpoints

    @cached_property
    def kind(self) -> NDArray[np.int64]:
        """The two sources of each pair, (m, 2)."""
        return np.column_stack([self.first, self.second])

    def contrasts_along(self, directions: Floats) -> Floats:
        """Return the contrasts' coordinates along directions (d, r), computed in blocks of pairs."""
        return np.concatenate([(self.b[part] - self.a[part]) @ directions for part in self._blocks()])

    def _blocks(self) -> list[slice]:
        return blocks(len(self), max(1, BLOCK // (4 * self.a.shape[1])))

    def source_effects(self, n_sources: int) -> Floats:
        """Return Δ (K - 1, d), the mean measurement effect of each source relative to the first source.

        It is the least-squares solution over all contrasts; with two sources, the mean contrast.
        """
        weights, rank = effect_weights(self.first, self.second, n_sources)
        # Effects can only be compared if chains of pairs link all sources to the first.
        if rank < n_sources - 1:
            raise ValueError(
                f"The pairs do not connect all {n_sources} sources. Add pairs until every source is "
                "linked to every other, directly or through a third."
            )
        effects = np.zeros((n_sources, self.a.shape[1]))
        for part in self._blocks():
            effects += weights[:, part] @ (self.b[part] - self.a[part])
        return np.asarray(effects[1:] - effects[0])


def repeated_pairs(A: Any, B: Any, kind: Any = None) -> NDArray[np.intp]:
    """Return the positions of pairs that are exact copies of earlier pairs of the same sources.

    Examples
    --------
    >>> A = np.array([[1.0], [2.0], [1.0]])
    >>> repeated_pairs(A, A + 1).tolist()
    [2]
    """
    key = np.zeros(len(A), np.uint64)
    for side in (A, B) if kind is None else (A, B, kind):
        key = key * np.uint64(0x9E3779B97F4A7C15) + row_keys(side)
    return np.setdiff1d(np.arange(len(key)), np.unique(key, return_index=True)[1])


def row_keys(rows: Any) -> NDArray[np.uint64]:
    """Return a key for each row; only equal rows have equal keys."""
    # Weighted sums of bit patterns as integers, so that equal rows have exactly equal keys.
    d, keys = rows.shape[1], np.empty(len(rows), np.uint64)
    weight = np.random.default_rng(d).integers(2**63, size=d, dtype=np.uint64) | np.uint64(1)
    for part in blocks(len(rows), max(1, BLOCK // (16 * d))):
        bits = (np.ascontiguousarray(rows[part], dtype=np.float64) + 0.0).view(np.uint64)
        bits ^= bits >> np.uint64(29)
        keys[part] = bits @ weight
    return keys


def effect_weights(
    first: Codes, second: Codes, n_sources: int, pairs: NDArray[np.intp] | None = None
) -> tuple[Floats, int]:
    """Return weights (K, m) of contrasts, and their rank.

    Weighted sums of contrasts are the effects of the sources, relative to their mean: least squares over some
    ``pairs`` (None: all). The weights of other pairs are 0.
    """
    pairs = np.arange(len(first)) if pairs is None else pairs
    design = np.zeros((n_sources, len(first)))
    design[second[pairs], pairs] += 1.0
    design[first[pairs], pairs] -= 1.0
    normal = design @ design.T
    return np.asarray(np.linalg.pinv(normal) @ design), int(np.linalg.matrix_rank(normal))


def check_views(pairs: Any, n_features: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the two views as finite float matrices; raise if they are not."""
    if not isinstance(pairs, (tuple, list)) or len(pairs) != 2:
        got = f"{len(pairs)} of them" if isinstance(pairs, (tuple, list)) else f"a {type(pairs).__name__}"
        raise ValueError(f"pairs must be a tuple (A, B) of aligned arrays, first and second view; got {got}.")
    names = ("pairs[0]", "pairs[1]")
    A, B = (as_float_matrix(to_numpy(side, name), name=name) for name, side in zip(names, pairs, strict=True))
    if A.shape != B.shape:
        raise ValueError(
            f"pairs are not aligned: the first view has shape {A.shape}, the second {B.shape}. "
            "Row i of both must be the same event."
        )
    if A.shape[1] != n_features:
        raise ValueError(f"The pairs have {A.shape[1]} features, but the rows have {n_features}.")
    if not len(A):
        raise ValueError("pairs are empty; at least one pair is needed.")
    require_finite(A, "pairs[0]")
    require_finite(B, "pairs[1]")
    return A, B


def matched_rows(codes: Codes, pair_id: Labels, first: int, second: int) -> tuple[Codes, Codes]:
    """Return the row numbers, in sources ``first`` and ``second``, of events recorded by both."""
    rows = [np.flatnonzero(is_paired(pair_id) & (codes == code)) for code in (first, second)]
    _, a, b = np.intersect1d(pair_id[rows[0]], pair_id[rows[1]], assume_unique=True, return_indices=True)
    return rows[0][a], rows[1][b]


def rows_among_views(X: Any, codes: Codes, pairs: Pairs) -> NDArray[np.intp]:
    """Return the row numbers that are also views of aligned pairs, which must stay held out.

    Rows that agree in a few features are compared in all features. In tensors, no row counts as a view.
    """
    if not isinstance(X, np.ndarray):
        return np.zeros(0, np.intp)
    repeated = []
    for code, views in enumerate((pairs.a, pairs.b)):
        rows = np.flatnonzero(codes == code)
        for feature in np.linspace(0, X.shape[1] - 1, 4).astype(int):
            rows = rows[_among(X[rows, feature].astype(np.float64), views[:, feature])]
        repeated.append(rows[_among(row_keys(X[rows]), row_keys(views))])
    return np.concatenate(repeated)


def _among(values: NDArray[Any], some: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the values that occur in ``some``, a short array."""
    some = np.sort(some)
    return np.asarray(some[np.minimum(np.searchsorted(some, values), len(some) - 1)] == values)
