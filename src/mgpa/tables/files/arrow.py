"""Between Arrow columns and numpy arrays, without a Python loop and mostly without a copy."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._common.extras import missing
from ...errors import Mention, TableError
from ..columns import Columns
from .layout import Field, Layout, require_short

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise missing("A data frame or Parquet", "pyarrow") from error

__all__ = ["fields_of", "pa", "read_column", "read_columns", "write_columns"]

# How pandas stores an index that nobody named.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_UNKNOWN = -1  # the length of lists whose type does not say it


def fields_of(schema: Any, first_rows: Any = None) -> list[Field]:
    """Return the fields of an Arrow schema.

    Parameters
    ----------
    schema : pyarrow.Schema
    first_rows : function or None
        Given column names, returns a table with some rows of them, from which lists without a fixed size
        get theirs.
    """
    fields = []
    for entry in schema:
        if _PANDAS_INDEX.fullmatch(entry.name):
            continue
        shape, item = _row_type(entry.type)
        if _UNKNOWN in shape and first_rows is not None:
            shape = _measure(first_rows([entry.name])[entry.name], len(shape))
        fields.append(Field(entry.name, shape, _dtype(item), _kind(shape, item)))
    names = [field.name for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TableError(f"Several columns are called {', '.join(twice)}; rename them.")
    return fields


def read_columns(batch: Any, layout: Layout, names: Iterable[str], first_row: int) -> Columns:
    """Return columns of an Arrow table as arrays, by their name in the file.

    Parameters
    ----------
    batch : pyarrow.Table or pyarrow.RecordBatch
    layout : Layout
    names : list of str
        As the file has them.
    first_row : int
        Where the batch begins, for error messages.
    """
    called = {stored: name for name, stored in layout.columns.items()}
    found: Columns = {}
    for stored in names:
        column = _whole(batch[stored])
        if not isinstance(column.type, pa.FixedShapeTensorType) and isinstance(column, pa.ExtensionArray):
            column = column.storage
        if stored in layout.embedding and not _is_number(column.type):
            found[stored] = _read_lists(column, math.prod(layout.shape), stored, first_row)
        elif stored in layout.embedding:
            _refuse_nulls(column, stored, first_row, embedding=True)
            found[stored] = column.to_numpy(zero_copy_only=False)
        else:
            found[stored] = read_column(column, called[stored], first_row)
    return found


def read_column(column: Any, name: str, first_row: int = 0) -> NDArray[Any]:
    """Return one value a row. A missing pair id is "unpaired", a missing number of the user's own is NaN."""
    if pa.types.is_dictionary(column.type) and not _is_coded_text(column):
        column = column.dictionary_decode()
    if _is_time(column.type):
        column = column.cast(pa.string())
    if column.null_count and name == "pair_id":
        if pa.types.is_null(column.type):
            return np.full(len(column), -1)
        if _is_coded_text(column):
            column = column.dictionary_decode()
        column = column.fill_null("" if _is_text(column.type) else -1)
    from_user = name not in ("source", "participant", "role", "label", "pair_id")
    if not (from_user and pa.types.is_floating(column.type)):
        _refuse_nulls(column, name, first_row)
    # Text repeats itself; each distinct one is converted once.
    if _is_text(column.type):
        column = column.cast(pa.large_string()).dictionary_encode()
    if not _is_coded_text(column):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    distinct = column.dictionary.to_pylist()
    require_short(name, max(map(len, distinct), default=0), len(column))
    return np.asarray(np.array(distinct, dtype=str)[column.indices.to_numpy(zero_copy_only=False)])


def write_columns(columns: Columns, metadata: dict[bytes, bytes] | None = None) -> Any:
    """Return X (as "embedding") and columns as an Arrow table."""
    X = np.ascontiguousarray(columns["X"])
    number = pa.from_numpy_dtype(X.dtype)
    # Nothing is ever missing; saying so makes Parquet's lists half again as fast.
    rows = pa.list_(pa.field("element", number, nullable=False), math.prod(X.shape[1:]))
    arrays = [pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), type=rows)]
    fields = [pa.field("embedding", rows, nullable=False)]
    for name, values in columns.items():
        if name != "X":
            try:
                arrays.append(pa.array(values))
            except UnicodeError:
                raise TableError(
                    f"{name} has text that is not valid Unicode, which no file can hold."
                ) from None
            fields.append(pa.field(name, arrays[-1].type, nullable=False))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata))


def _row_type(type_: Any) -> tuple[tuple[int, ...], Any]:
    """Return the shape of a row and the type of its numbers."""
    if isinstance(type_, pa.FixedShapeTensorType):
        return tuple(type_.shape), type_.value_type
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    shape: list[int] = []
    while _is_list(type_):
        shape.append(type_.list_size if pa.types.is_fixed_size_list(type_) else _UNKNOWN)
        type_ = type_.value_type
    return tuple(shape), type_


def _dtype(type_: Any) -> np.dtype[Any] | None:
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if _is_text(type_) or _is_time(type_):
        return np.dtype("U")
    if pa.types.is_boolean(type_) or _is_number(type_):
        found: np.dtype[Any] = np.dtype(type_.to_pandas_dtype())
        return found
    return np.dtype(np.int64) if pa.types.is_null(type_) else None


def _kind(shape: tuple[int, ...], item: Any) -> str:
    size = " × ".join("?" if n == _UNKNOWN else str(n) for n in shape)
    text = "text" if _is_text(item) else str(item)
    return f"{size} {text}" if size else text


def _measure(column: Any, depth: int) -> tuple[int, ...]:
    """Return the shape of the first row."""
    for row in column.to_pylist():
        shape = []
        for _ in range(depth):
            if not isinstance(row, list):
                break
            shape.append(len(row))
            row = row[0] if row else None
        else:
            return tuple(shape)
    return (0,) * depth


def _read_lists(column: Any, size: int, name: str, first_row: int) -> NDArray[Any]:
    """Return lists of numbers, nested or not, as (n, size)."""
    if isinstance(column.type, pa.FixedShapeTensorType):
        if column.type.permutation not in (None, sorted(column.type.permutation or [])):
            raise TableError(f"{name} has tensors with permuted dimensions; write them in row-major order.")
        column = column.storage
    n = len(column)
    _refuse_nulls(column, name, first_row, embedding=True)
    owner = np.arange(n)  # the row each list belongs to
    while _is_list(column.type):
        if not pa.types.is_fixed_size_list(column.type):
            _refuse_ragged(column, name, first_row, owner)
        inner = column.flatten()
        owner = owner if not _is_list(inner.type) else np.repeat(owner, len(inner) // max(len(owner), 1))
        column = inner
    if column.null_count:
        place = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        row = first_row + place // (len(column) // n)
        raise TableError(f"{name} has a missing number in row {row}; drop that row or impute it.")
    values = column.to_numpy(zero_copy_only=False)
    if len(values) != n * size:
        raise TableError(
            f"{name} has {len(values) // max(n, 1)} numbers a row from row {first_row} on; expected {size}, "
            "as in the first row."
        )
    return np.asarray(values).reshape(n, size)


def _refuse_ragged(column: Any, name: str, first_row: int, owner: NDArray[np.int64]) -> None:
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    unequal = np.flatnonzero(lengths != lengths[:1])
    if len(unequal):
        bad = unequal[0]
        raise TableError(
            f"{name} has lists of unequal length: {lengths[bad]} in row {first_row + owner[bad]}, "
            f"{lengths[0]} in row {first_row + owner[0]}."
        )


def _refuse_nulls(column: Any, name: str, first_row: int, *, embedding: bool = False) -> None:
    if column.null_count:
        row = first_row + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        missing = f"{name} is missing (null) in {column.null_count} rows (first: row {row}); "
        if embedding:
            raise TableError(f"{missing}drop those rows, or impute them.")
        leave_out = "drop those rows, fill them in, or leave the column out with "
        raise TableError(missing + leave_out, Mention("columns", python="columns="), ".")


def _whole(column: Any) -> Any:
    """Return a column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _is_list(type_: Any) -> bool:
    return bool(
        pa.types.is_fixed_size_list(type_)
        or pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_list_view(type_)
        or pa.types.is_large_list_view(type_)
    )


def _is_text(type_: Any) -> bool:
    return bool(
        pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)
    )


def _is_coded_text(column: Any) -> bool:
    """Return whether a column is numbers and the texts they stand for."""
    type_ = column.type
    return bool(
        pa.types.is_dictionary(type_) and _is_text(type_.value_type) and not column.dictionary.null_count
    )


def _is_time(type_: Any) -> bool:
    return bool(pa.types.is_timestamp(type_) or pa.types.is_date(type_) or pa.types.is_time(type_))


def _is_number(type_: Any) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))
