"""Check columns separately and together, and assign roles."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import TableError
from ..labels import (
    Labels,
    check_labels,
    check_pair_id,
    encode_source,
    is_paired,
    refuse_gaps_as_text,
    require_distinct,
    to_numpy,
    whole_numbers,
)
from .carried import Carried, arrow_type

ROLES = ("FIT", "VAL", "HEAD", "EVAL")
COLUMNS = ("source", "participant", "role", "label", "pair_id")
# Reserved names, which no column of the user may have.
RESERVED = ("X", "embedding", "mgpa", *COLUMNS)

Columns = dict[str, Labels]


def require_columns(wanted: Iterable[str], columns: Iterable[str], table: Any = "The table") -> None:
    """Raise if columns of a table are missing; name missing and existing columns."""
    present = list(columns)
    missing = [name for name in wanted if name not in present]
    if not missing:
        return
    hint = " mgpa.tables.assign_roles (mgpa convert --roles) makes roles." if "role" in missing else ""
    named = next((name for name in missing if name in COLUMNS and name != "role"), None)
    others = [name for name in present if name not in COLUMNS]
    if named and others:
        # Name a column as the example only if it has the missing name in capitals.
        same = next((name for name in others if name.lower() == named), "NAME")
        hint += f" If the column has another name, pass rename={{{same!r}: {named!r}}}."
    if "participant" in missing and "pair_id" in present:
        hint += " If each pair_id is a separate sample, rename the column to both: pair_id+participant."
    raise TableError(f"{table} lacks {column_names(missing)}; it has {column_names(present)}.{hint}")


def check_columns(given: Mapping[str, Any], n: int) -> Columns:
    """Return the standard columns of n rows, checked separately and together."""
    columns: Columns = {}
    for name in COLUMNS:
        if name in given and not isinstance(given[name], Carried):
            check = check_pair_id(given[name], n) if name == "pair_id" else check_labels(given[name], n, name)
            refuse_gaps_as_text(check, name)
            columns[name] = _tidy(check)
    if "participant" in columns:
        people = columns["participant"]
        if people.dtype.kind == "f":  # 1.0 and 1 are the same participant
            people = whole_numbers(people, "participant")
        columns["participant"] = _tidy(people.astype(str))
    if "role" in columns:
        columns["role"] = check_roles(columns["role"])
    if "participant" in columns:
        _require_people_apart(columns["participant"], columns.get("role"))
    if "pair_id" in columns:
        if "source" in columns:
            codes = np.unique(columns["source"], return_inverse=True)[1]
            require_distinct(codes.astype(np.int64), columns["pair_id"])
        for name in ("participant", "label"):
            if name in columns:
                _require_same(columns[name], columns["pair_id"], name)
    return columns


def require_matched(pair_id: Labels) -> None:
    """Raise if an id occurs in only one row, which is not a pair."""
    rows = np.flatnonzero(is_paired(pair_id))
    _, first, counts = np.unique(pair_id[rows], return_index=True, return_counts=True)
    single = np.sort(rows[first[counts == 1]])
    if len(single):
        raise TableError(
            f"{len(single)} pair ids have a single row and form no pair "
            f"(first: {pair_id[single[0]].item()!r}, row {single[0]}). "
            "Did one device lose the event? Mark unpaired rows with a negative or empty id."
        )


def check_roles(values: Labels) -> Labels:
    """Return roles in capitals; raise for other values."""
    roles = values if np.isin(values, ROLES).all() else _tidy(np.char.upper(values.astype(str)))
    wrong = ~np.isin(roles, ROLES)
    if wrong.any():
        unknown, first = sorted(set(roles[wrong].tolist())), int(np.flatnonzero(wrong)[0])
        raise ValueError(f"role has {unknown} (first: row {first}); expected {', '.join(ROLES)}.")
    return roles


def _require_people_apart(participant: Labels, role: Labels | None) -> None:
    """Raise if two participant names look alike, or if a participant has two roles."""
    parts = [participant] if role is None else [participant[role == name] for name in np.unique(role)]
    several = np.concatenate([participant[:0], *map(np.unique, parts)]).tolist()
    if len({unicodedata.normalize("NFC", name).strip() for name in several}) == len(several):
        return
    firsts: dict[tuple[str, str], int] = {}  # the first row of each name in each role
    in_role = [""] * len(participant) if role is None else role.tolist()
    for row, who in enumerate(zip(participant.tolist(), in_role, strict=True)):
        firsts.setdefault(who, row)
    names: dict[str, str] = {}
    roles: dict[str, tuple[str, int]] = {}
    for (name, where), row in firsts.items():
        other = names.setdefault(unicodedata.normalize("NFC", name).strip(), name)
        if other != name:
            raise ValueError(f"participant has {other!a} and {name!a}, which look alike; use one spelling.")
        this = where, row
        (first, i), (second, j) = sorted([this, roles.setdefault(name, this)])
        if first != second:
            raise ValueError(
                f"Participant {name!r} has rows in {first} and in {second} (rows {i} and {j}, for example); "
                "give every participant one role (mgpa.tables.assign_roles does)."
            )


def check_other(values: Any, n: int, name: Any) -> Any:
    """Return an additional column after checking: numbers, booleans, text, or a type copied unchanged."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ValueError(f"other has a column named {name!r}; names are printable Unicode text.")
    if isinstance(values, Carried):
        if len(values) != n:
            raise ValueError(f"{name} has {len(values)} values for {n} rows.")
        return values
    array = to_numpy(values, name)
    if array.dtype.kind == "M":
        if np.isnat(array).any():
            raise ValueError(f"{name} has a missing time in row {int(np.isnat(array).argmax())}; fill it in.")
        array = np.datetime_as_string(array)
    # Measurements may be NaN, unlike labels.
    if array.dtype.kind == "f" and array.shape == (n,) and array.dtype.itemsize <= 8:
        return _tidy(array)
    return _tidy(check_labels(array if isinstance(values, np.ndarray) else values, n, name))


def changed_columns(columns: Mapping[str, Any], changes: Mapping[str, Any], n: int) -> dict[str, Any]:
    """Return columns with changes; a change is one value per row, one value for all rows, or None to drop."""
    unchanged = {name: values for name, values in columns.items() if name not in changes}
    filled = {name: np.full(n, v) if np.ndim(v) == 0 else v for name, v in changes.items() if v is not None}
    return unchanged | filled


def require_alike(first: Columns, other: Columns, what: str) -> None:
    """Raise if arrays to be joined differ in name, row shape or type.

    NumPy would convert different types to a common one, for example numbers to text.
    """

    def kind(columns: Columns, name: str) -> str:
        if name not in columns:
            return "missing"
        if any(isinstance(all_.get(name), Carried) for all_ in (first, other)):
            return arrow_type(columns[name])
        dtype, shape = columns[name].dtype, columns[name].shape[1:]
        words = {"U": "text", "i": "integer", "u": "unsigned integer"}.get(dtype.kind, str(dtype))
        return f"{words} {shape or ''}".strip()

    for name in {**first, **other}:
        if (got := kind(other, name)) != (expected := kind(first, name)):
            raise TableError(f"{what} differs from the first in {name}: {got} instead of {expected}.")


def _tidy(values: Labels) -> Labels:
    """Return values so that equal columns have equal bytes: native byte order, narrowest text type."""
    dtype = values.dtype.newbyteorder("=")
    if dtype.kind == "U":
        lengths = np.char.str_len(values)
        filled = np.count_nonzero(np.frombuffer(values.tobytes(), np.uint32))
        if filled != lengths.sum():  # pyarrow would truncate the text there
            raise ValueError("A text has a zero character; remove it.")
        dtype = np.dtype(f"U{max(int(lengths.max(initial=1)), 1)}")
    return values.astype(dtype, copy=False)


def spoken(column: str) -> str:
    """Return the name of a column in the form used in sentences.

    Examples
    --------
    >>> spoken("sample_id"), spoken("Sample No.")
    ('sample', 'Sample')
    """
    return re.sub(r" (id|no\.?|number)$", "", column.replace("_", " "), flags=re.IGNORECASE) or column


def in_units(text: str, info: Mapping[str, Any]) -> str:
    """Return a sentence with the table's own word for participants.

    Examples
    --------
    >>> in_units("over 64 people", {"unit": "sample_id"}), in_units("over 64 people", {})
    ('over 64 samples', 'over 64 people')
    >>> in_units("with 1 participant", {"unit": "subject"})
    'with 1 subject'
    """
    unit = spoken(str(info.get("unit", "participant")))
    units = unit if unit.endswith("s") else f"{unit}s"
    if unit == "participant":
        return text
    return re.sub("people|participants?", lambda word: unit if word[0] == "participant" else units, text)


def feature_names(info: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the feature names in an ``info``, or None."""
    names = info.get("feature_names")
    return tuple(map(str, names)) if isinstance(names, (list, tuple)) and names else None


def column_names(names: Iterable[str]) -> str:
    """Return column names as a list in words."""
    return ", ".join(names) or "no columns but X"


def _require_same(values: Labels, pair_id: Labels, name: str) -> None:
    """Raise if two views of one event differ in participant or label."""
    rows = np.flatnonzero(is_paired(pair_id))
    ids, first, codes = np.unique(pair_id[rows], return_index=True, return_inverse=True)
    differs = values[rows] != values[rows][first][codes]
    if differs.any():
        event = ids[codes[differs][0]].item()
        views = np.flatnonzero(pair_id == event)
        different = np.unique(values[views]).tolist()
        raise ValueError(
            f"pair_id {event!r} has rows of {name} {different} (rows {', '.join(map(str, views[:4]))}); rows "
            f"that share an id are views of one event, with one {name}. Make ids unique across participants."
        )


def assign_roles(
    participant: Any, shares: dict[str, float] | None = None, *, stratify: Any = None, random_state: int = 0
) -> Labels:
    """Return a role for each row; all rows of a participant have the same role.

    Parameters
    ----------
    participant : (n,) array
        The participant of each row.
    shares : dict of role to share of participants
        None: 40 % FIT and 20 % each VAL, HEAD and EVAL, as in the paper's controlled study.
    stratify : (n,) array or None
        A property of participants (age group, session order) to balance over the roles.
    random_state : int
        Seed.

    Examples
    --------
    >>> import numpy as np
    >>> person = np.repeat([f"s{i}" for i in range(10)], 3)
    >>> role = assign_roles(person, random_state=1)
    >>> {r: len(set(person[role == r])) for r in ("FIT", "VAL", "HEAD", "EVAL")}
    {'FIT': 4, 'VAL': 2, 'HEAD': 2, 'EVAL': 2}
    """
    shares = {"FIT": 0.4, "VAL": 0.2, "HEAD": 0.2, "EVAL": 0.2} if shares is None else shares
    if not shares or min(shares.values()) < 0 or not sum(shares.values()) > 0:
        raise ValueError(f"shares must be non-negative and not all zero; got {shares}.")
    people, codes = encode_source(participant, len(participant), "participant")
    roles = [role for role, share in shares.items() if share > 0]
    if len(people) < len(roles):
        raise ValueError(
            f"{len(people)} participants cannot fill the {len(roles)} roles {', '.join(roles)}; each role "
            "needs its own participants. Without roles, an audit rotates them over folds."
        )
    order = np.random.default_rng(random_state).permutation(len(people))
    if stratify is not None:
        _, strata = encode_source(stratify, len(codes), "stratify")
        if len(np.unique(np.stack([codes, strata]), axis=1).T) != len(people):
            raise ValueError("stratify must be constant within a participant.")
        stratum = np.zeros(len(people), np.int64)
        stratum[codes] = strata
        order = order[np.argsort(stratum[order], kind="stable")]
    # Assign each participant in turn to the role that is furthest below its share.
    total = sum(shares.values())
    counts = dict.fromkeys(roles, 0)
    chosen = np.empty(len(people), dtype=object)
    for i, person in enumerate(order):
        role = max(roles, key=lambda r: (counts[r] == 0, shares[r] / total * (i + 1) - counts[r]))
        chosen[person] = role
        counts[role] += 1
    return np.asarray(chosen[codes], dtype=str)


def with_roles(table: Any, roles: Mapping[str, str]) -> Any:
    """Return the rows of participants that have a role, with a role column."""
    rows = table.take(np.isin(table.participant, list(roles)))
    return replace(rows, role=np.array([roles[person] for person in rows.participant], dtype=str))


def rotated(strata: Mapping[str, str], rotation: int, n: int = 5, random_state: int = 0) -> dict[str, str]:
    """Return roles by folds: fold ``rotation`` is EVAL, the next HEAD, then VAL, and the others FIT.

    Parameters
    ----------
    strata : dict of participant to stratum
        The stratum of each participant; strata are balanced over the folds.
    rotation, n : int
        The position of the EVAL fold, and the number of folds.
    random_state : int
        Seed of the folds; all rotations share them.

    Examples
    --------
    >>> roles = rotated({f"s{i}": "" for i in range(10)}, rotation=1)
    >>> sorted(roles.values())
    ['EVAL', 'EVAL', 'FIT', 'FIT', 'FIT', 'FIT', 'HEAD', 'HEAD', 'VAL', 'VAL']
    """
    from sklearn.model_selection import StratifiedKFold

    if n < 4 or not 0 <= rotation < n:
        raise TableError(f"rotation is {rotation} of {n} folds; expected 4 folds or more, and 0 to {n - 1}.")
    people = sorted(strata)
    labels = [strata[person] for person in people]
    if max(labels.count(label) for label in set(labels)) < n:
        raise TableError(f"{len(people)} participants in {len(set(labels))} strata do not fill {n} folds.")
    turn = ("EVAL", "HEAD", "VAL", *["FIT"] * (n - 3))
    folds = StratifiedKFold(n, shuffle=True, random_state=random_state).split(people, labels)
    return {people[row]: turn[(fold - rotation) % n] for fold, (_, rows) in enumerate(folds) for row in rows}
