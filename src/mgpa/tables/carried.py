"""Arrow columns that tables copy unchanged: missing values, times, categories, lists, decimals."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.untrusted import require_room
from ..errors import TableError

#: An array, column, schema or type of pyarrow, which has no types for Python's checkers.
Arrow = Any


class Carried:
    """A column with a type that NumPy does not have; it is written to files unchanged.

    It is sliced and joined like an array. ``numpy.asarray`` returns text for categories and times, and
    objects (None for missing values) for other types.

    Parameters
    ----------
    values : pyarrow.Array or pyarrow.ChunkedArray
    stored : int or None
        Size in bytes of the original file, which limits the size as text; None uses the size of the column.
    """

    ndim = 1
    dtype = np.dtype(object)

    def __init__(self, values: Arrow, stored: int | None = None) -> None:
        import pyarrow as pa

        self.values = pa.chunked_array([values]) if isinstance(values, pa.Array) else values
        self.stored = self.values.nbytes if stored is None else stored

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"<Carried: {len(self)} values of {self.kind}>"

    @property
    def shape(self) -> tuple[int]:
        """The number of values."""
        return (len(self),)

    @property
    def kind(self) -> str:
        """The type of the column in words."""
        return str(self.values.type)

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(len(self))
            return Carried(self.values.slice(start, max(stop - start, 0)), self.stored)
        wanted = np.arange(len(self))[rows]
        if wanted.ndim == 0:
            return self.values[int(wanted)].as_py()
        return Carried(self.values.take(wanted), self.stored)

    def tolist(self) -> list[Any]:
        """Return the values as Python objects."""
        return list(self.values.to_pylist())

    def tobytes(self) -> bytes:
        """Return bytes that are equal for equal values of the same type."""
        return repr((self.kind, self.tolist())).encode()

    def plain(self) -> NDArray[Any] | None:
        """Return the values for other formats, with categories and times as text; None if not possible."""
        import pyarrow as pa

        types, values = pa.types, self.values
        inner = values.type.value_type if types.is_dictionary(values.type) else values.type
        timed = types.is_timestamp(inner) or types.is_date(inner) or types.is_time(inner)
        if values.null_count:
            return None
        if types.is_boolean(inner) or types.is_integer(inner) or types.is_floating(inner):
            return np.asarray(values.to_numpy())
        if not (timed or types.is_string(inner) or types.is_large_string(inner)):
            return None
        distinct = values.unique().cast(pa.string()).to_pylist()
        if any("\0" in text for text in distinct):  # NumPy would truncate the text there
            raise TableError("A column of categories has a text with a zero character; remove it.")
        longest = max(map(len, distinct), default=0)
        require_room("A column of text", longest, len(self), self.stored)
        return np.array(values.cast(pa.string()).to_pylist(), dtype=str)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        array = self.plain()
        if array is None:
            array = np.empty(len(self), dtype=object)
            array[:] = self.tolist()
        return array if dtype is None else array.astype(dtype)

    def __array_function__(self, function: Any, types: Any, arguments: Any, named: Any) -> Any:
        if function is np.concatenate:
            return joined(arguments[0])
        return function(*(np.asarray(a) if isinstance(a, Carried) else a for a in arguments), **named)


def joined(pieces: Iterable[Any]) -> Carried:
    """Return the concatenation of columns; columns without missing values may be arrays."""
    import pyarrow as pa

    pieces = list(pieces)
    type_ = next(piece.values.type for piece in pieces if isinstance(piece, Carried))
    arrays = [p.values if isinstance(p, Carried) else pa.chunked_array([pa.array(p)]) for p in pieces]
    chunks = [chunk for array in arrays for chunk in array.cast(type_).chunks]
    stored = max(piece.stored for piece in pieces if isinstance(piece, Carried))
    return Carried(pa.chunked_array(chunks, type_), stored)


def arrow_type(values: Any) -> str:
    """Return the Arrow type of a column."""
    import pyarrow as pa

    if isinstance(values, Carried):
        return values.kind
    return "string" if values.dtype.kind == "U" else str(pa.from_numpy_dtype(values.dtype))


def require_complete(columns: dict[str, Any], ours: Iterable[str], first_row: int = 0) -> None:
    """Raise if a needed column has missing values; only labels may have them."""
    for name in ours:
        if name != "label" and isinstance(columns.get(name), Carried):
            refuse_gaps(columns[name], name, first_row)


def refuse_gaps(column: Any, name: str, first_row: int = 0) -> None:
    """Raise if values are missing in a column that is needed."""
    if isinstance(column, Carried):
        column = column.values
    if column.null_count:
        gaps = np.array(column.is_null().to_pylist())
        raise TableError(
            f"{name} is missing (null) in {column.null_count} rows (first: row "
            f"{first_row + int(gaps.argmax())}); drop those rows, fill them in, or leave the column "
            "out (columns)."
        )


def say_unlabelled(columns: dict[str, Any]) -> None:
    """Warn that some rows have no label and that labels are therefore not used."""
    if isinstance(label := columns.get("label"), Carried):
        warnings.warn(
            f"label is missing in {label.values.null_count} of {len(label)} rows, so labels are not used. "
            "Drop those rows or fill in their labels to use the task.",
            stacklevel=3,
        )


def in_plain(columns: dict[str, Any], where: str) -> dict[str, Any]:
    """Return columns for formats other than Parquet, with categories and times as text."""
    made = dict(columns)
    for name, values in columns.items():
        if isinstance(values, Carried):
            array = values.plain()
            flat = values.values
            if array is None and where == "CSV" and not hasattr(flat.type, "value_type"):
                texts = ["" if v is None else str(v) for v in values.tolist()]
                array = np.array(texts) if not hasattr(flat.type, "fields") else None
            if array is None:
                gaps = " with gaps" * bool(flat.null_count)
                raise TableError(f"{where} cannot hold {name} ({values.kind}{gaps}); write .parquet.")
            made[name] = array
    return made
