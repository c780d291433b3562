"""Rules for all file formats: the columns and description of a table, and the places it may be written to."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.files import path_taken, require_replaceable
from .._common.remote import Place, RemotePath, redacted
from .._common.untrusted import read_description
from ..errors import OutputExists, TableError, first_few
from ..labels import is_paired
from .columns import COLUMNS, RESERVED, Columns, require_alike

EMBEDDING_NAMES = ("embedding", "X", "tokens")
HOW_TO_NAME = (
    "Name it with embedding=, which takes a column, several columns, a range (1100:2492), a prefix, or "
    "numeric for all columns of numbers."
)
MAX_CHUNK_ROWS = 2**14
# File names in a folder of parts.
INDEX = "_mgpa_index.json"
PART_NAME = re.compile(r"part-\d{5,}-[0-9a-f]{16}-[0-9a-f]{16}\.parquet")


@dataclass(frozen=True)
class Field:
    """A column or array of a file: row shape, type (None: unusable), and description of the type."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None
    kind: str
    carried: bool = False  # whether the column can be copied whatever its type


@dataclass(frozen=True)
class Layout:
    """The fields of a file that form a table."""

    embedding: tuple[str, ...]  # one field with embeddings, or many fields with one number per row
    shape: tuple[int, ...]  # shape of one row of X, as stored
    dtype: np.dtype[Any]
    columns: dict[str, str]  # names in the table → names in the file
    kinds: dict[str, str]  # types of the columns in words
    combined: dict[str, tuple[str, ...]]  # parts of combined columns ("site+subject")
    ours: tuple[str, ...] = COLUMNS  # columns that mgpa reads; all others are copied unchanged

    @classmethod
    def choose(
        cls,
        fields: Iterable[Field],
        *,
        embedding: Any = None,
        columns: Sequence[str] | None = None,
        rename: Mapping[str, str] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> Layout:
        """Choose the fields of a table; ``shape`` is the row shape in mgpa's own description, if any."""
        by_name = {field.name: field for field in fields}
        chosen = find_embedding(by_name, embedding)
        dtype = np.result_type(*{by_name[name].dtype for name in chosen})
        one = by_name[chosen[0]].shape if len(chosen) == 1 else (len(chosen),)
        width = math.prod(one)
        if shape is not None and embedding is None:
            if math.prod(shape) != width:
                raise TableError(f"damaged: rows have {width} numbers, but are described as {shape}.")
            one = shape
        inside = set(chosen)
        others = {name: field for name, field in by_name.items() if name not in inside}
        joined = {name: tuple(name.split("+")) for name in rename or {} if name not in others}
        joined = {name: parts for name, parts in joined.items() if all(part in others for part in parts)}
        text = Field("", (), np.dtype("U"), "text")
        stored = _find_columns(others | dict.fromkeys(joined, text), columns, rename)
        kinds = {name: others.get(source, text).kind for name, source in stored.items()}
        combined = {name: joined[source] for name, source in stored.items() if source in joined}
        return cls(chosen, one or (1,), dtype, stored, kinds, combined)

    @property
    def names(self) -> list[str]:
        """Names in the file of all fields of the table."""
        return [*self.embedding, *self.stored(*self.columns)]

    def stored(self, *names: str) -> list[str]:
        """Return the names in the file of the fields behind these columns; "a+b" has the fields a and b."""
        parts = [p for n in names for p in self.combined.get(n, (self.columns[n],))]
        return list(dict.fromkeys(parts))

    def info(self, noted: dict[str, Any]) -> dict[str, Any]:
        """Return the info of a table, with the file's names of features and of the participant column."""
        more: dict[str, Any] = {}
        for key, name in (("unit", "participant"), ("source_column", "source")):
            if self.columns.get(name, name) != name:
                more[key] = self.columns[name]
        if len(self.embedding) > 1 and len(self.shape) == 1:
            more["feature_names"] = list(self.embedding)
        return noted | more

    def columns_of(self, raw: Mapping[str, NDArray[Any]]) -> Columns:
        """Return the columns of a table, and X if it was read, from the arrays of the file."""
        made: Columns = {}
        if self.embedding[0] in raw:
            X = raw[self.embedding[0]]
            if len(self.embedding) > 1:
                X = np.stack([raw[name] for name in self.embedding], axis=1)
            made["X"] = X.reshape(len(X), *self.shape)
        for name, stored in self.columns.items():
            parts = self.combined.get(name, (stored,))
            if all(part in raw for part in parts):
                made[name] = raw[parts[0]]
                for part in parts[1:]:
                    made[name] = np.char.add(np.char.add(made[name].astype(str), "+"), raw[part].astype(str))
                if name == "pair_id" and len(parts) > 1:  # rows with a missing part of the id are unpaired
                    made[name] = np.where(np.all([is_paired(raw[p]) for p in parts], axis=0), made[name], "")
        return made


def find_embedding(fields: Mapping[str, Field], wanted: Any = None) -> tuple[str, ...]:
    """Return the names of the fields with the embedding.

    Examples
    --------
    >>> number = np.dtype("f4")
    >>> fields = {name: Field(name, (), number, "float") for name in ("f10", "f2", "fold", "age")}
    >>> find_embedding(fields, "f"), find_embedding(fields, "f10:fold"), find_embedding(fields, "numeric")
    (('f2', 'f10'), ('f10', 'f2', 'fold'), ('f10', 'f2', 'fold', 'age'))
    """
    if wanted is None:
        arrays = [name for name, field in fields.items() if field.shape and field.dtype is not None]
        chosen = [name for name in EMBEDDING_NAMES if name in arrays][:1] or arrays
        if len(chosen) != 1:
            several = f"Several columns could be the embedding ({first_few(chosen)})."
            problem = several if chosen else "No column holds embeddings."
            raise TableError(
                f"{problem} Columns: {describe(fields.values())}. {_likely(fields)}{HOW_TO_NAME}"
            )
    else:
        chosen = _by_text(fields, wanted) if isinstance(wanted, str) else list(wanted)
    absent = [name for name in chosen if name not in fields]
    if absent or not chosen:
        names = first_few(absent) if absent else wanted
        raise TableError(f"No embedding {names!r}. Columns: {describe(fields.values())}. {HOW_TO_NAME}")
    wrong = [fields[name] for name in chosen if not _is_number(fields[name], len(chosen))]
    if wrong:
        raise TableError(f"{describe(wrong)} cannot be part of an embedding; expected numbers.")
    return tuple(chosen)


def _likely(fields: Mapping[str, Field]) -> str:
    """Return a sentence with the most frequent prefix of numbered columns; empty if under three share it."""
    stems = Counter(name.rstrip("0123456789") for name, f in fields.items() if _is_number(f) and not f.shape)
    stem, n = stems.most_common(1)[0] if stems else ("", 0)
    return (
        f"{n} columns of numbers begin with {stem!r}; if they are the embedding, pass embedding={stem!r}. "
        if stem and n > 2
        else ""
    )


def _is_number(field: Field, n: int = 2) -> bool:
    """Return whether a field can be the embedding or one of n features."""
    return field.dtype is not None and field.dtype.kind in "iuf" and not (field.shape and n > 1)


def _by_text(fields: Mapping[str, Field], wanted: str) -> list[str]:
    """Return the columns for a text: a column, a range, all numeric columns, or a prefix."""
    if wanted in fields:
        return [wanted]
    if wanted == "numeric":
        return [name for name, field in fields.items() if _is_number(field) and name not in COLUMNS]
    first, _, last = wanted.partition(":")
    if first in fields and last in fields:
        names = list(fields)
        return names[names.index(first) : names.index(last) + 1]
    # Numbered names (f0, f1, …, f10, but not fold) in numeric order, or else all names with this prefix.
    ends = {name: name.removeprefix(wanted) for name in fields if name.startswith(wanted)}
    numbered = [name for name, end in ends.items() if end.isascii() and end.isdigit()]
    return sorted(numbered, key=lambda name: int(ends[name])) or list(ends)


def _find_columns(
    fields: Mapping[str, Field], columns: Sequence[str] | None, rename: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the name of each column in the table with its name in the file."""
    rename = dict(rename or {})
    wanted = list(fields) if columns is None else [columns] if isinstance(columns, str) else list(columns)
    absent = [name for name in dict.fromkeys([*wanted, *rename]) if name not in fields]
    if absent:
        raise TableError(f"No column {first_few(absent)}. Columns: {describe(fields.values())}.")
    _require_one_value(fields, wanted, rename)
    stored: dict[str, str] = {}
    for name, source in [(new, column) for column in wanted for new in new_names(column, rename)]:
        if name in stored:
            raise TableError(f"Both {stored[name]} and {source} would be named {name}; rename one of them.")
        if name in RESERVED and name not in COLUMNS:
            raise TableError(f"{name} is a reserved name; rename this column.")
        stored[name] = source
    return stored


def _require_one_value(fields: Mapping[str, Field], wanted: Sequence[str], rename: Mapping[str, str]) -> None:
    """Raise if a column to read has more than one value per row; other columns are copied."""
    unfit = [
        fields[name]
        for name in wanted
        if (fields[name].shape or fields[name].dtype is None)
        and not (fields[name].carried and {*new_names(name, rename)}.isdisjoint(COLUMNS))
    ]
    if unfit:
        raise TableError(
            f"{describe(unfit)} cannot be a column: a column has one number, boolean, text or time per row. "
            "Name those to keep with columns."
        )


def new_names(column: str, rename: Mapping[str, str] | None) -> list[str]:
    """Return the names in the table of a column in the file; a column renamed to "a+b" has two names.

    Examples
    --------
    >>> new_names("sample", {"sample": "pair_id+participant"}), new_names("a+b", None)
    (['pair_id', 'participant'], ['a+b'])
    """
    return rename[column].split("+") if rename and column in rename else [column]


def describe(fields: Iterable[Field]) -> str:
    """Return fields in words, with their types if known."""
    return first_few([f"{f.name} ({f.kind})" if f.kind else f.name for f in fields], 12) or "none"


def write_head(shape: Sequence[int], info: Mapping[str, Any]) -> str:
    """Return mgpa's description of a table as JSON."""
    document = {"format": 1, "shape": list(shape), "info": dict(info)}
    try:
        text = json.dumps(document, allow_nan=False, default=lambda value: value.tolist())
        read_description(text)  # fail now rather than when the file is read
        return text
    except (TypeError, ValueError, RecursionError, AttributeError) as error:
        raise TableError(f"info cannot be stored: {error}. Keep text, numbers, lists and dicts.") from None


def read_head(text: str | bytes | None) -> tuple[tuple[int, ...] | None, dict[str, Any]]:
    """Return the shape of a row and the info in mgpa's description; (None, {}) without one."""
    return (None, {}) if text is None else read_description(text)


def require_place(path: Place, overwrite: bool, *, folder: bool = False) -> None:
    """Raise unless a file, or a folder with a table, may be written to ``path``."""
    if not isinstance(path, RemotePath) and not path.parent.is_dir():
        raise FileNotFoundError(f"No folder {path.parent}; create it, then write {path.name}.")
    require_replaceable(path)
    if not path_taken(path):
        return
    if path.is_dir() != folder:
        raise FileExistsError(f"{path} is a {'file' if folder else 'folder'}; name another output.")
    names = [entry.name for entry in path.iterdir()] if folder else []
    foreign = sorted(name for name in names if not PART_NAME.fullmatch(name) and name[0] != ".")
    if folder and INDEX not in names and foreign:
        raise FileExistsError(
            f"The folder {path} holds files that mgpa did not write ({foreign[0]}); name a new one."
        )
    if not overwrite and (INDEX in names or not folder):  # an interrupted write has no index
        raise OutputExists(path)


def block_rows(row_bytes: int) -> int:
    """Return the number of rows per block: about 32 MiB of embeddings."""
    return 4 * min(max(2**23 // max(row_bytes, 1), 1), MAX_CHUNK_ROWS)


def blocks_of(tables: Iterable[Any], like: Any) -> Iterator[Columns]:
    """Yield the rows of tables in blocks of about 32 MiB; all but the last have the same number of rows."""
    size = block_rows(like.X.itemsize * math.prod(like.X.shape[1:]))
    waiting = {name: values[:0] for name, values in {"X": like.X, **like.columns}.items()}
    yielded = False
    for i, table in enumerate(tables):
        columns = {"X": table.X, **table.columns}
        require_alike(waiting, columns, f"Table {i}")
        if len(waiting["X"]):
            columns = {name: np.concatenate([waiting[name], columns[name]]) for name in waiting}
        whole = len(columns["X"]) // size * size
        for start in range(0, whole, size):
            yield {name: values[start : start + size] for name, values in columns.items()}
            yielded = True
        waiting = {name: values[whole:] for name, values in columns.items()}
    if len(waiting["X"]) or not yielded:
        yield waiting


@contextmanager
def reading(path: Place, where: str = "") -> Iterator[None]:
    """Convert any error with a file into a :class:`TableError` that names the file."""
    try:
        yield
    except (ImportError, MemoryError, GeneratorExit):
        raise
    # All bad files must raise a TableError, whichever parser fails.
    except Exception as error:
        if isinstance(error, FileNotFoundError) and not path_taken(path):
            raise
        text = str(error).strip() or type(error).__name__
        reason = redacted(text if isinstance(error, TableError) else text.partition("\n")[0])
        named = reason if reason.startswith(str(path)) else f"{path}{where}: {reason}"
        secret = isinstance(path, RemotePath)  # errors of stores contain addresses
        raise TableError(named) from None if secret or isinstance(error, TableError) else error
