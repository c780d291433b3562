"""What a file or a data frame has, and which of it makes a table.

Formats differ in how they hold arrays. Here they are alike: each is a list of :class:`Field`, from which a
:class:`Layout` picks the embedding and the columns.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import Mention, TableError
from ..columns import COLUMNS, RESERVED, Columns
from ..table import Table

FORMAT_VERSION = 1
# Embeddings are called one of these, unless somebody says otherwise.
EMBEDDING_NAMES = ("embedding", "X", "tokens")
# Embeddings of a chunk of rows take about this much.
CHUNK_BYTES = 2**23
MAX_CHUNK_ROWS = 2**14
MAX_HEAD_BYTES = 2**24
# Text of a batch, each row as wide as the longest, takes at most this much.
MAX_TEXT_BYTES = 2**30


@dataclass(frozen=True)
class Field:
    """One named thing in a file.

    Parameters
    ----------
    name : str
    shape : tuple of int
        Of one row: () for a column, (d,) or (t, d) for embeddings.
    dtype : dtype or None
        None if a table cannot hold it; text is ``dtype("U")``.
    kind : str
        What the file calls its type, for people.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None
    kind: str


@dataclass(frozen=True)
class Head:
    """What mgpa wrote about a table, beside its columns."""

    shape: tuple[int, ...]
    info: dict[str, Any]

    @classmethod
    def of(cls, table: Table) -> Head:
        """Return the head of a table."""
        return cls(table.X.shape[1:], table.info)

    def document(self) -> dict[str, Any]:
        """Return the head as JSON can hold it."""
        document = {"format": FORMAT_VERSION, "shape": list(self.shape), "info": self.info}
        try:
            text = json.dumps(document, allow_nan=False, default=_number)
        except (TypeError, ValueError, RecursionError) as error:
            raise TableError(
                f"info cannot be stored: {error}. Keep text, numbers, lists and dicts."
            ) from None
        if len(text) > MAX_HEAD_BYTES:
            raise TableError(f"info takes {len(text)} bytes as JSON; at most {MAX_HEAD_BYTES} are stored.")
        found: dict[str, Any] = json.loads(text)
        return found

    @classmethod
    def read(cls, document: Any) -> Head:
        """Return the head from JSON text, or what was made of it, trusting nothing."""
        if isinstance(document, (str, bytes)):
            if len(document) > MAX_HEAD_BYTES:
                raise TableError("damaged: its description is too long.")
            try:
                document = json.loads(document)
            except (ValueError, RecursionError):
                raise TableError("damaged: its description is no JSON.") from None
        version = document.get("format") if isinstance(document, dict) else None
        if type(version) is not int or version < 1:
            raise TableError("damaged: it states no file format.")
        if version > FORMAT_VERSION:
            raise TableError(
                f"written by a newer mgpa (format {version}, this library reads up to {FORMAT_VERSION}); "
                "upgrade mgpa."
            )
        shape, info = document.get("shape"), document.get("info", {})
        sizes = shape if isinstance(shape, list) and len(shape) in (1, 2) else [0]
        if not all(type(size) is int and 0 < size < 2**31 for size in sizes) or not isinstance(info, dict):
            raise TableError("damaged: its description has no proper shape or info.")
        return cls(tuple(sizes), info)


@dataclass(frozen=True)
class Choice:
    """What the user asked for; see :func:`mgpa.tables.files.open_table`."""

    embedding: str | Sequence[str] | re.Pattern[str] | None = None
    tokens: int | None = None
    columns: Sequence[str] | None = None
    rename: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Layout:
    """Which fields make a table.

    Parameters
    ----------
    embedding : tuple of str
        One field with embeddings, or many with a number each.
    shape : tuple of int
        Of one row of X.
    dtype : dtype
        Of X, in the file.
    columns : dict
        A column's name in the table, and in the file.
    kinds : dict
        A column's name in the table, and its type.
    """

    embedding: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    columns: dict[str, str]
    kinds: dict[str, str]

    @classmethod
    def choose(cls, fields: Iterable[Field], choice: Choice, head: Head | None = None) -> Layout:
        """Pick a table's parts among the fields, or say what is there instead."""
        there = {field.name: field for field in fields}
        embedding = find_embedding(there, choice.embedding)
        dtype = np.result_type(*(there[name].dtype for name in embedding))
        flat = len(embedding) if len(embedding) > 1 else math.prod(there[embedding[0]].shape)
        shape = (flat,) if len(embedding) > 1 else there[embedding[0]].shape
        if choice.tokens is not None:
            if choice.tokens < 1 or flat % choice.tokens:
                raise TableError(f"{flat} numbers a row do not make {choice.tokens} tokens of equal size.")
            shape = (choice.tokens, flat // choice.tokens)
        elif head is not None and choice.embedding is None:
            if math.prod(head.shape) != flat:
                raise TableError(f"damaged: rows have {flat} numbers, but are described as {head.shape}.")
            shape = head.shape
        columns = _find_columns({n: f for n, f in there.items() if n not in embedding}, choice)
        kinds = {name: there[stored].kind for name, stored in columns.items()}
        return cls(embedding, shape or (1,), dtype, columns, kinds)

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, where each is a field of its own."""
        return list(self.embedding) if len(self.embedding) > 1 and len(self.shape) == 1 else None

    def columns_of(self, raw: Mapping[str, NDArray[Any]]) -> Columns:
        """Return a table's columns, and X if it is there, from the file's arrays."""
        found: Columns = {}
        if self.embedding[0] in raw:
            many = len(self.embedding) > 1
            X = np.column_stack([raw[n] for n in self.embedding]) if many else raw[self.embedding[0]]
            found["X"] = X.reshape(len(X), *self.shape)
        return found | {name: raw[stored] for name, stored in self.columns.items() if stored in raw}


def find_embedding(there: Mapping[str, Field], wanted: Any = None) -> tuple[str, ...]:
    """Return the names of the fields that hold the embedding.

    Examples
    --------
    >>> number = np.dtype("f4")
    >>> there = {name: Field(name, (), number, "float") for name in ("f10", "f2", "fold", "age")}
    >>> find_embedding(there, "f")
    ('f2', 'f10')
    """
    arrays = [name for name, field in there.items() if field.shape and field.dtype is not None]
    if wanted is None:
        usual = [name for name in EMBEDDING_NAMES if name in arrays]
        found = usual[:1] or arrays
        if len(found) != 1:
            several = f"Several could be the embedding ({', '.join(found[:8])})" if found else "No embedding"
            raise TableError(
                f"{several}; there is {describe(there.values())}. Name it with ",
                Mention("embedding", python="embedding="),
                ": a column, a list of columns, or what the names of many columns start with.",
            )
    elif isinstance(wanted, re.Pattern):
        found = [name for name in there if wanted.fullmatch(name)]
    elif isinstance(wanted, str):
        found = [wanted] if wanted in there else _starting(there, wanted)
    else:
        found = list(wanted)
    missing = [name for name in found if name not in there]
    if missing or not found:
        names = ", ".join(missing[:8]) or getattr(wanted, "pattern", wanted)
        raise TableError(
            f"There is no embedding {names!r}; there is {describe(there.values())}. Name a column, or what "
            "the names of many columns start with."
        )
    wrong = [
        name
        for name in found
        if there[name].dtype is None or there[name].dtype.kind not in "iuf"  # type: ignore[union-attr]
    ]
    if len(found) > 1:
        wrong += [name for name in found if there[name].shape]
    if wrong:
        raise TableError(
            f"{describe(there[name] for name in dict.fromkeys(wrong))} cannot be part of an embedding; "
            "expected numbers."
        )
    return tuple(found)


def require_rows(fields: Iterable[Field], rows: Mapping[str, int], wanted: Any = None) -> list[Field]:
    """Return fields of arrays; those with another number of rows than the embedding cannot be used.

    Examples
    --------
    >>> number = np.dtype("f4")
    >>> fields = [Field("X", (2,), number, "2 float32"), Field("channels", (), np.dtype("U"), "text")]
    >>> require_rows(fields, {"X": 100, "channels": 8})[1].kind
    'text in 8 rows, not 100'
    """
    there = {field.name: field for field in fields}
    n = rows[find_embedding(there, wanted)[0]]
    return [
        field
        if rows[name] == n or field.dtype is None
        else replace(field, dtype=None, kind=f"{field.kind} in {rows[name]} rows, not {n}")
        for name, field in there.items()
    ]


def require_along_rows(
    aside: Mapping[str, Sequence[Any]], row: Any, rename: Mapping[str, str] | None
) -> None:
    """Raise if a column that tables know is among the arrays that do not lie along the rows.

    Parameters
    ----------
    aside : dict
        Names and dimensions of the arrays that are to be left out.
    row : str or tuple of str
        The dimension that counts rows.
    rename : dict or None
        Names in the file, and what they are called in the table.
    """
    for name, dimensions in aside.items():
        if (rename or {}).get(name, name) in COLUMNS:
            along = ", ".join(map(str, dimensions)) or "no dimension"
            named = row if isinstance(row, str) else ", ".join(row)
            raise TableError(
                f"{name} lies along {along}, and rows are counted by {named}. If that is the wrong one, "
                "mgpa.tables.Table.from_xarray(…, row=…) names another."
            )


def describe(fields: Iterable[Field], most: int = 12) -> str:
    """Return fields in words."""
    named = [f"{field.name} ({field.kind})" for field in fields]
    more = f" and {len(named) - most} more" if len(named) > most else ""
    return ", ".join(named[:most]) + more or "nothing"


def _starting(names: Iterable[str], prefix: str) -> list[str]:
    """Return f0, f1, …, f10 by number, and no fold; without such names, all that start so, in order."""
    starting = [name for name in names if name.startswith(prefix)]
    numbers = {name: name.removeprefix(prefix) for name in starting}
    numbered = [name for name, end in numbers.items() if end.isascii() and end.isdigit()]
    return sorted(numbered, key=lambda name: int(numbers[name])) or starting


def _find_columns(there: Mapping[str, Field], choice: Choice) -> dict[str, str]:
    """Return the name of every column in the table, and in the file."""
    rename = dict(choice.rename or {})
    wanted = list(there) if choice.columns is None else list(choice.columns)
    if isinstance(choice.columns, str):
        wanted = [choice.columns]
    missing = [name for name in dict.fromkeys([*wanted, *rename]) if name not in there]
    if missing:
        raise TableError(f"There is no column {', '.join(missing)}; there is {describe(there.values())}.")
    unfit = [name for name in wanted if there[name].shape or there[name].dtype is None]
    if unfit:
        fit = [name for name in wanted if name not in unfit]
        raise TableError(
            f"{describe(there[name] for name in unfit)} cannot be a column, which has one number, boolean, "
            "text or time a row. Leave it out with ",
            Mention("columns", fit),
            ".",
        )
    found: dict[str, str] = {}
    for stored in wanted:
        name = rename.get(stored, stored)
        if name in found:
            raise TableError(f"Both {found[name]} and {stored} would be called {name}; rename one of them.")
        if name in RESERVED and name not in COLUMNS:
            raise TableError(f"A column cannot be called {name}, which tables use themselves; rename it.")
        found[name] = stored
    return found


def require_short(name: str, characters: int, rows: int) -> None:
    """Raise if a column's longest text is such that all rows, each as wide as that, take too much memory."""
    if 4 * characters * rows > MAX_TEXT_BYTES:
        raise TableError(
            f"{name} has text of {characters} characters, for which {rows} rows would take "
            f"{4 * characters * rows} bytes; shorten it, or leave the column out with columns=."
        )


def chunk_rows(row_bytes: int) -> int:
    """Return how many rows make a chunk, the least that is written at once.

    Examples
    --------
    >>> chunk_rows(1024), chunk_rows(4), chunk_rows(2**40)
    (8192, 16384, 1)
    """
    return min(max(CHUNK_BYTES // max(row_bytes, 1), 1), MAX_CHUNK_ROWS)


def block_rows(row_bytes: int) -> int:
    """Return how many rows are usually written or read at a time: four chunks."""
    return 4 * chunk_rows(row_bytes)


def _number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"it has a {type(value).__name__}")
