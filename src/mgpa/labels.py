"""Read labels of rows (sources, participants, pair ids) from arrays, lists, data frames or tensors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._common.checks import is_tensor, refuse_masked
from .errors import ParameterError

Labels = NDArray[Any]  # one label per row: boolean, number or text
Codes = NDArray[np.int64]

# Names of the arrays with labels, if not X.
LABELLED = {"source_val": "X_val", "pair_groups": "the paired views"}
# Number of rows examined first for distinct labels, and maximum number of few labels.
SPACED, FEW = 1000, 32
# Texts into which pandas converts missing values.
GAPS_AS_TEXT = ("nan", "<NA>", "NaT", "None")


def to_numpy(values: Any, name: str = "X") -> NDArray[Any]:
    """Return values as a numpy array, moving torch tensors to the host; ``name`` is for errors."""
    refuse_masked(values, name)
    if is_tensor(values):
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":
            raise ValueError(f"{name} is bfloat16, not precise enough; convert it with {name}.float().")
        return np.asarray(values.numpy())
    return np.asarray(values)


def encode_source(source: Any, n: int, name: str = "source") -> tuple[Labels, Codes]:
    """Return the distinct sources, sorted, and each row's index among them."""
    labels = check_labels(source, n, name)
    refuse_gaps_as_text(labels, name)
    return coded(labels)


def coded(labels: Labels) -> tuple[Labels, Codes]:
    """Return the sorted distinct labels and the code of each row; with few labels, rows are not sorted.

    Examples
    --------
    >>> coded(np.array(["wet", "dry", "wet"]))
    (array(['dry', 'wet'], dtype='<U3'), array([1, 0, 1]))
    """
    spaced = np.linspace(0, max(0, len(labels) - 1), min(len(labels), SPACED)).astype(np.intp)
    distinct, codes, n_seen = np.unique(labels[spaced]), np.zeros(len(labels), np.int64), 0
    if len(distinct) <= FEW:
        for code, label in enumerate(distinct):
            rows = np.flatnonzero(labels == label)
            codes[rows] = code
            n_seen += len(rows)
    if n_seen < len(labels):
        distinct, codes = np.unique(labels, return_inverse=True)
    return distinct, codes.astype(np.int64, copy=False)


def check_labels(values: Any, n: int, name: str) -> Labels:
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


def source_names(sources: Labels) -> tuple[str, ...]:
    """Return source labels as text; 1.0 is "1", because pandas often converts integers to floats."""
    return tuple(
        str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)
        for label in np.asarray(sources).tolist()
    )


def reference_code(reference: Any, sources: Labels) -> int | None:
    """Return the position of a source among the sorted sources, by label or name; None for None."""
    if reference is None:
        return None
    labels, names = sources.tolist(), source_names(sources)
    for candidates, wanted in ((labels, reference), (names, source_names(np.array([reference]))[0])):
        if wanted in candidates:
            return candidates.index(wanted)
    expected = f"one of the sources {', '.join(map(repr, labels))}, or None"
    raise ParameterError("reference", reference, expected)


def check_pair_id(pair_id: Any, n: int) -> Labels:
    """Return ids as an integer or string array of length n."""
    ids = _labels(pair_id, "pair_id", n)
    if ids.dtype.kind == "f" and (np.isnan(ids) | (ids == np.rint(ids))).all():
        ids = whole_numbers(np.where(np.isnan(ids), -1, ids), "pair_id")  # pandas stores missing ids as NaN
    if ids.dtype.kind not in "iuU" or ids.shape != (n,):
        raise ValueError(
            f"pair_id has dtype {ids.dtype}; use integers (negative: unpaired) or strings (empty: unpaired)."
        )
    refuse_gaps_as_text(ids, "pair_id")
    return ids


def is_paired(pair_id: Labels) -> NDArray[np.bool_]:
    """Return a mask of ids that name a pair: non-negative integers or non-empty strings."""
    return pair_id != "" if pair_id.dtype.kind == "U" else pair_id >= 0


def require_distinct(codes: Codes, pair_id: Labels) -> None:
    """Raise if an id occurs twice in one source, because the view is then ambiguous."""
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


#: Pattern of the warning of :func:`warn_of_singles`, for code that fits several times and warns once.
SINGLES = r"\d+ of \d+ pair ids occur once"


def warn_of_singles(pair_id: Labels, stacklevel: int = 3) -> None:
    """Warn of pair ids that occur once; if all ids do, also name possible reasons."""
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


def whole_numbers(ids: Labels, name: str) -> Codes:
    """Return float ids as integers; raise if they are not exact."""
    least = 2.0 ** (np.finfo(ids.dtype).nmant + 1)
    wrong = np.flatnonzero((np.abs(ids) >= least) | (ids != np.rint(ids)))
    if len(wrong):
        raise ValueError(
            f"{name} is {ids[wrong[0]].item()!r} in row {wrong[0]}; {ids.dtype} holds whole numbers "
            f"only below {least:.0f}, so different ids would become equal. Read ids as text, as "
            "mgpa.tables.open_table does (in pandas, dtype=str)."
        )
    return ids.astype(np.int64)


def refuse_gaps_as_text(labels: Labels, name: str) -> None:
    """Raise if a missing value has become text, which would count as a source, participant or pair id."""
    if labels.dtype.kind != "U":
        return
    unpaired = name == "pair_id"  # an empty pair id means "unpaired"
    rows = np.flatnonzero(np.isin(labels, GAPS_AS_TEXT if unpaired else ("", *GAPS_AS_TEXT)))
    if len(rows):
        remedy = "leave it empty for unpaired rows" if unpaired else "drop those rows or label them"
        raise ValueError(
            f"{name} is {labels[rows[0]].item()!r}, a missing value as text, in {len(rows)} of {len(labels)} "
            f"rows (first: row {rows[0]}); {remedy}."
        )


def _labels(values: Any, name: str, n: int) -> NDArray[Any]:
    """Return n labels as an array; lists are read by entry, because numpy would convert all to text."""
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


def _kinds(labels: Labels) -> dict[str, str]:
    """Return the kinds of label in an object array, each with the name of one type."""
    examples = {type(label): label for label in labels}
    return {np.asarray(label).dtype.kind: kind.__name__ for kind, label in examples.items()}


def _is_missing(label: Any) -> bool:
    # pandas.NA cannot be compared.
    return label is None or type(label).__name__ == "NAType" or bool(np.all(label != label))


def require_length(values: Any, n: int, name: str) -> None:
    """Raise if an unused argument does not have one value for each row."""
    if values is None:
        return
    shape = tuple(values.shape if hasattr(values, "shape") else np.asarray(values).shape)
    if shape[:1] != (n,):
        raise ValueError(
            f"{name} has shape {shape} for {n} rows; omit it (it is not used), or pass one value per row."
        )
