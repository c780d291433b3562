"""Paired measurements: the same thing seen under two or more acquisition conditions.

Pairs come as two aligned arrays ``(A, B)``, or as one id per row of X. Both become :class:`Contrasts`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ._common.checks import as_float_matrix, is_tensor, refuse_masked, require_finite

Floats = NDArray[np.float64]

# What labels are of, where that is not X.
LABELLED = {"source_val": "X_val", "pair_groups": "the paired views"}
# What pandas makes of missing values where a column is turned into text.
GAPS_AS_TEXT = ("nan", "<NA>", "NaT", "None")


@dataclass(frozen=True)
class Contrasts:
    """Differences between paired views: ``values[i]`` is view ``second[i]`` minus view ``first[i]``.

    ``midpoints`` are the means of the two views; ``people``, where known of all, whose event it was.
    """

    values: Floats
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    midpoints: Floats
    people: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def from_pairs(cls, pairs: Any, n_features: int, people: NDArray[Any] | None = None) -> Self:
        """Make contrasts from ``(A, B)``: row i of A and row i of B are two views of one thing."""
        A, B = check_views(pairs, n_features)
        codes = np.zeros(len(A), np.int64), np.ones(len(A), np.int64)
        values, midpoints = _halves(A, B)
        return cls(values, *codes, midpoints, people)

    @classmethod
    def from_ids(
        cls, X: Any, codes: NDArray[np.int64], pair_id: NDArray[Any], people: NDArray[Any] | None = None
    ) -> Self:
        """Make contrasts between all rows that share a pair id, one for every two sources.

        Rows are matched by id and source, so neither their order nor how they were batched matters.
        """
        require_distinct(codes, pair_id)
        rows = np.flatnonzero(is_paired(pair_id))
        rows = rows[np.lexsort((codes[rows], pair_id[rows]))]
        _, starts, counts = np.unique(pair_id[rows], return_index=True, return_counts=True)
        values, midpoints, first, second, whose = [], [], [], [], []
        warn_of_singles(pair_id, stacklevel=5)
        # Groups of one size are stacked, so two sources cost one vectorised difference.
        for size in np.unique(counts[counts > 1]):
            members = rows[starts[counts == size][:, None] + np.arange(size)]
            for a, b in combinations(range(size), 2):
                contrast, midpoint = _halves(X[members[:, a]], X[members[:, b]])
                values.append(contrast)
                midpoints.append(midpoint)
                first.append(codes[members[:, a]])
                second.append(codes[members[:, b]])
                whose.append(members[:, a] if people is None else people[members[:, a]])
        if not values:
            return cls.none(X.shape[1])
        owners = None if people is None else np.concatenate(whose)
        return cls(joined(values), joined(first), joined(second), joined(midpoints), owners)

    @classmethod
    def none(cls, n_features: int) -> Self:
        """Return no contrasts."""
        values, codes = np.zeros((0, n_features)), np.zeros(0, np.int64)
        return cls(values, codes, codes, values)

    @classmethod
    def concatenate(cls, many: list[Contrasts]) -> Contrasts:
        """Return all contrasts in one."""
        whose = [c.people for c in many if c.people is not None]
        return cls(
            joined([c.values for c in many]),
            joined([c.first for c in many]),
            joined([c.second for c in many]),
            joined([c.midpoints for c in many]),
            joined(whose) if len(whose) == len(many) else None,
        )

    def take(self, rows: NDArray[np.intp]) -> Contrasts:
        """Return some of the contrasts."""
        people = None if self.people is None else self.people[rows]
        return Contrasts(self.values[rows], self.first[rows], self.second[rows], self.midpoints[rows], people)

    def views(self) -> tuple[Floats, NDArray[np.int64]]:
        """Return both views of every contrast, one below the other, and which source each is of."""
        m, views = len(self), np.empty((2 * len(self), self.values.shape[1]))
        for half, sign in ((views[:m], -0.5), (views[m:], 0.5)):
            np.multiply(self.values, sign, out=half)
            half += self.midpoints
        return views, np.concatenate([self.first, self.second])

    def source_effects(self, n_sources: int) -> Floats:
        """Return Δ, shape (K - 1, d): each source's mean measurement response relative to the first.

        Least squares over all contrasts; with two sources this is the mean contrast.
        """
        effects, rank = zero_sum_effects(self.values, self.first, self.second, n_sources)
        # A chain of pairs must link every source to the first, else their effects cannot be compared.
        if rank < n_sources - 1:
            raise ValueError(
                f"The pairs do not connect all {n_sources} sources. Add pairs until every source is "
                "linked to every other, directly or through a third."
            )
        return np.asarray(effects[1:] - effects[0])


def joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Return all parts in one array; a single one is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _halves(A: NDArray[Any], B: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return B - A and (A + B) / 2 in double precision, without further copies."""
    values, midpoints = B.astype(np.float64), A.astype(np.float64)
    values -= midpoints
    midpoints += B
    midpoints /= 2
    return values, midpoints


def zero_sum_effects(
    values: Floats, first: NDArray[np.int64], second: NDArray[np.int64], n_sources: int
) -> tuple[Floats, int]:
    """Return what each source adds to the mean of all, (K, d), by least squares, and the contrasts' rank."""
    design, rows = np.zeros((len(values), n_sources)), np.arange(len(values))
    design[rows, second] += 1.0
    design[rows, first] -= 1.0
    normal = design.T @ design
    effects = np.linalg.pinv(normal) @ (design.T @ values)
    return np.asarray(effects), int(np.linalg.matrix_rank(normal))


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


def matched_rows(
    codes: NDArray[np.int64], pair_id: NDArray[Any], first: int, second: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows, in sources ``first`` and ``second``, of the events that both have seen."""
    rows = [np.flatnonzero(is_paired(pair_id) & (codes == code)) for code in (first, second)]
    _, a, b = np.intersect1d(pair_id[rows[0]], pair_id[rows[1]], assume_unique=True, return_indices=True)
    return rows[0][a], rows[1][b]


def require_distinct(codes: NDArray[np.int64], pair_id: NDArray[Any]) -> None:
    """Raise if an id occurs twice in one source: then it is not clear which row is the view."""
    rows = np.flatnonzero(is_paired(pair_id))
    rows = rows[np.lexsort((codes[rows], pair_id[rows]))]
    ids, sources = pair_id[rows], codes[rows]
    again = np.flatnonzero((ids[1:] == ids[:-1]) & (sources[1:] == sources[:-1]))
    if len(again):
        first = again[0]
        raise ValueError(
            f"pair_id {ids[first].item()!r} occurs more than once in the same source "
            f"({len(np.unique(ids[again]))} such ids), as in rows {rows[first]} and {rows[first + 1]}; "
            "a pair is one row per source. Replicates? Open the table with replicates mean or pair "
            "(--replicates mean). Is source the task? Where ids restart for every participant, rename "
            "PARTICIPANT+ID to pair_id."
        )


def warn_of_singles(pair_id: NDArray[Any], stacklevel: int = 3) -> None:
    """Say how many pair ids occur once; where all of them do, also what may have gone wrong."""
    counts = np.unique(pair_id[is_paired(pair_id)], return_counts=True)[1]
    single = int((counts == 1).sum())
    if not single:
        return
    advice = " Splitting by row separates pairs: split by participant. Or does each source have its own ids?"
    warnings.warn(
        f"{single} of {len(counts)} pair ids occur once and form no pair."
        f"{advice if single == len(counts) else ''}",
        stacklevel=stacklevel,
    )


def check_pair_id(pair_id: Any, n: int) -> NDArray[Any]:
    """Return ids as an integer or string array of length n."""
    ids = _labels(pair_id, "pair_id", n)
    if ids.dtype.kind == "f" and (np.isnan(ids) | (ids == np.rint(ids))).all():
        ids = whole_numbers(np.where(np.isnan(ids), -1, ids), "pair_id")  # with gaps, as pandas has them
    if ids.dtype.kind not in "iuU" or ids.shape != (n,):
        raise ValueError(
            f"pair_id has dtype {ids.dtype}; use integers (negative: unpaired) or strings (empty: unpaired)."
        )
    refuse_gaps_as_text(ids, "pair_id")
    return ids


def refuse_gaps_as_text(labels: NDArray[Any], name: str) -> None:
    """Raise if a missing value has become text, and with it one more source, a person, or false pairs."""
    if labels.dtype.kind != "U":
        return
    unpaired = name == "pair_id"  # is what an empty one says
    rows = np.flatnonzero(np.isin(labels, GAPS_AS_TEXT if unpaired else ("", *GAPS_AS_TEXT)))
    if len(rows):
        remedy = "leave it empty for unpaired rows" if unpaired else "drop those rows or label them"
        raise ValueError(
            f"{name} is {labels[rows[0]].item()!r}, a missing value as text, in {len(rows)} of {len(labels)} "
            f"rows (first: row {rows[0]}); {remedy}."
        )


def whole_numbers(ids: NDArray[Any], name: str) -> NDArray[np.int64]:
    """Return ids that came as floats as the integers they stand for, or refuse those that are not exact."""
    least = 2.0 ** (np.finfo(ids.dtype).nmant + 1)
    wrong = np.flatnonzero((np.abs(ids) >= least) | (ids != np.rint(ids)))
    if len(wrong):
        raise ValueError(
            f"{name} is {ids[wrong[0]].item()!r} in row {wrong[0]}; {ids.dtype} holds whole numbers "
            f"only below {least:.0f}, so different ids would become one. Read ids as text, as "
            "mgpa.tables.open_table does (in pandas, dtype=str)."
        )
    return ids.astype(np.int64)


def is_paired(pair_id: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which ids name a pair: non-negative integers, non-empty strings."""
    return pair_id != "" if pair_id.dtype.kind == "U" else pair_id >= 0


def encode_source(source: Any, n: int, name: str = "source") -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct sources, sorted, and each row's index among them."""
    labels = check_labels(source, n, name)
    refuse_gaps_as_text(labels, name)
    sources, codes = np.unique(labels, return_inverse=True)
    return sources, codes.astype(np.int64)


def check_labels(values: Any, n: int, name: str) -> NDArray[Any]:
    """Return one label per row as a boolean, number or text array; raise if they are not."""
    labels = _labels(values, name, n)
    if labels.dtype.kind == "O":
        missing = np.array([_is_missing(label) for label in labels], dtype=bool)
    else:
        missing = np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(n, bool)
    if missing.any():
        raise ValueError(
            f"{name} is missing (None or NaN) in {int(missing.sum())} of {n} rows "
            f"(first: row {int(np.flatnonzero(missing)[0])}); drop those rows or label them."
        )
    if labels.dtype.kind == "O" and len(kinds := _kinds(labels)) > 1:
        raise ValueError(f"{name} mixes {' and '.join(sorted(kinds.values()))} labels; use one type.")
    if labels.dtype.kind not in "biufU" or labels.shape != (n,):
        raise ValueError(f"{name} has dtype {labels.dtype}; use integers, booleans or strings.")
    return labels


def source_names(sources: NDArray[Any]) -> tuple[str, ...]:
    """Return source labels as text; 1.0 is "1", because pandas turns integers into floats so easily."""
    return tuple(
        str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)
        for label in np.asarray(sources).tolist()
    )


def _labels(values: Any, name: str, n: int) -> NDArray[Any]:
    """Return n labels as an array; a list is read entry by entry: numpy would turn all of it into strings."""
    labels = to_numpy(values, name)
    if labels.dtype.kind == "U" and isinstance(values, (list, tuple)):
        labels = np.array(values, dtype=object)
    if labels.shape != (n,):
        raise ValueError(
            f"{name} has shape {labels.shape}; expected one {'id' if name == 'pair_id' else 'label'} for "
            f"each of the {n} rows of {LABELLED.get(name, 'X')}."
        )
    if labels.dtype.kind == "O" and len(_kinds(labels)) == 1:
        labels = np.array(labels.tolist())
    return labels.astype(str) if labels.dtype.kind == "S" else labels


def _kinds(labels: NDArray[Any]) -> dict[str, str]:
    """Return the kinds of label in an object array, each with the name of one type."""
    examples = {type(label): label for label in labels}
    return {np.asarray(label).dtype.kind: kind.__name__ for kind, label in examples.items()}


def _is_missing(label: Any) -> bool:
    # pandas.NA refuses to be compared.
    return label is None or type(label).__name__ == "NAType" or bool(np.all(label != label))


def to_numpy(values: Any, name: str = "X") -> NDArray[Any]:
    """Return values as a numpy array, moving torch tensors to the host; ``name`` is for errors."""
    refuse_masked(values, name)
    if is_tensor(values):
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":
            raise ValueError(f"{name} is bfloat16, not precise enough; convert it with {name}.float().")
        return np.asarray(values.numpy())
    return np.asarray(values)
