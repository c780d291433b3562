"""Tables from data frames, Arrow, xarray and epochs."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.extras import missing
from ..errors import TableError, first_few
from .columns import COLUMNS, Columns
from .layout import Field, Layout, find_embedding, read_head, require_different

# Text of a batch, each row as wide as the longest, takes at most this much.
MAX_TEXT_BYTES = 2**30
# How pandas stores an index that nobody named.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_UNKNOWN = -1  # the length of lists whose type does not say it


def arrow() -> Any:
    """Return pyarrow, or say how to install it."""
    try:
        import pyarrow
    except ImportError:
        raise missing("A data frame or Parquet", "pyarrow") from None
    return pyarrow


def fields_of(schema: Any, first_row: Any = None) -> list[Field]:
    """Return the fields of an Arrow schema; ``first_row(names)`` shows the length of lists of any length."""
    fields = []
    for entry in schema:
        if _PANDAS_INDEX.fullmatch(entry.name):
            continue
        shape, item = _row_type(entry.type)
        if _UNKNOWN in shape and first_row is not None:
            shape = _measure(first_row([entry.name])[entry.name], len(shape))
        size = " × ".join("?" if n == _UNKNOWN else str(n) for n in shape)
        kind = "text" if _is_text(item) else str(item)
        fields.append(Field(entry.name, shape, _dtype(item), f"{size} {kind}" if size else kind))
    require_different([field.name for field in fields])
    return fields


def read_arrow(batch: Any, layout: Layout, names: Iterable[str], first_row: int) -> Columns:
    """Return columns of an Arrow table or batch as arrays, by their name in the file."""
    pa = arrow()
    called = {stored: name for name, stored in layout.columns.items()}
    inside, made = set(layout.embedding), {}
    for stored in names:
        column = batch[stored]
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if isinstance(column, pa.ExtensionArray) and not isinstance(column.type, pa.FixedShapeTensorType):
            column = column.storage
        if stored not in inside:
            made[stored] = read_column(column, called[stored], first_row)
        elif _is_number(column.type):
            _refuse_nulls(column, stored, first_row)
            made[stored] = column.to_numpy(zero_copy_only=False)
        else:
            made[stored] = _read_lists(column, math.prod(layout.shape), stored, first_row)
    return made


def read_column(column: Any, name: str, first_row: int = 0) -> NDArray[Any]:
    """Return one value a row. A missing pair id is "unpaired", a missing number of the user's own is NaN."""
    pa = arrow()
    types = pa.types
    if types.is_dictionary(column.type) and not _is_coded_text(column):
        column = column.dictionary_decode()
    if _is_time(column.type):
        column = column.cast(pa.string())
    if column.null_count and name == "pair_id":
        if types.is_null(column.type):
            return np.full(len(column), -1)
        if _is_coded_text(column):
            column = column.dictionary_decode()
        if types.is_unsigned_integer(column.type):
            column = column.cast(pa.string())  # no number is left to stand for "unpaired"
        column = column.fill_null("" if _is_text(column.type) else -1)
    if name in COLUMNS or not types.is_floating(column.type):
        _refuse_nulls(column, name, first_row)
    # Text repeats itself; each distinct one is converted once.
    if _is_text(column.type):
        column = column.cast(pa.large_string()).dictionary_encode()
    if not _is_coded_text(column):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    distinct = column.dictionary.to_pylist()
    size = 4 * max(map(len, distinct), default=0) * len(column)
    if size > MAX_TEXT_BYTES:
        raise TableError(f"{name} has texts so long that all rows take {size} bytes; leave it out.")
    return np.asarray(np.array(distinct, dtype=str)[column.indices.to_numpy(zero_copy_only=False)])


def to_arrow(columns: Columns, metadata: dict[bytes, bytes] | None = None) -> Any:
    """Return X (as "embedding") and columns as an Arrow table."""
    pa = arrow()
    X = np.ascontiguousarray(columns["X"])
    # Nothing is ever missing; saying so makes Parquet's lists half again as fast.
    number = pa.field("element", pa.from_numpy_dtype(X.dtype), nullable=False)
    rows = pa.list_(number, math.prod(X.shape[1:]))
    arrays = [pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), type=rows)]
    fields = [pa.field("embedding", rows, nullable=False)]
    for name, values in columns.items():
        if name != "X":
            try:
                arrays.append(pa.array(values))
            except UnicodeError:
                raise TableError(f"{name} has text that is not valid Unicode; no file can hold it.") from None
            fields.append(pa.field(name, arrays[-1].type, nullable=False))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata))


def _row_type(type_: Any) -> tuple[tuple[int, ...], Any]:
    """Return the shape of a row and the type of its numbers."""
    pa = arrow()
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
    types = arrow().types
    if types.is_dictionary(type_):
        type_ = type_.value_type
    if _is_text(type_) or _is_time(type_):
        return np.dtype("U")
    if types.is_boolean(type_) or _is_number(type_):
        dtype: np.dtype[Any] = np.dtype(type_.to_pandas_dtype())
        return dtype
    return np.dtype(np.int64) if types.is_null(type_) else None


def _measure(column: Any, depth: int) -> tuple[int, ...]:
    """Return the shape of the first row that has one."""
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
    pa, n = arrow(), len(column)
    if isinstance(column.type, pa.FixedShapeTensorType):
        if column.type.permutation not in (None, sorted(column.type.permutation or [])):
            raise TableError(f"{name} has tensors with permuted dimensions; write them in row-major order.")
        column = column.storage
    _refuse_nulls(column, name, first_row)
    owner = np.arange(n)  # the row each list belongs to
    while _is_list(column.type):
        if not pa.types.is_fixed_size_list(column.type):
            import pyarrow.compute as pc

            lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
            unequal = np.flatnonzero(lengths != lengths[:1])
            if len(unequal):
                raise TableError(
                    f"{name} has lists of unequal length: {lengths[unequal[0]]} in row "
                    f"{first_row + owner[unequal[0]]}, {lengths[0]} in row {first_row + owner[0]}."
                )
        inner = column.flatten()
        owner = owner if not _is_list(inner.type) else np.repeat(owner, len(inner) // max(len(owner), 1))
        column = inner
    if column.null_count:
        place = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        row = first_row + place // (len(column) // n)
        raise TableError(f"{name} has a missing number in row {row}; drop that row or impute it.")
    values = np.asarray(column.to_numpy(zero_copy_only=False))
    if len(values) != n * size:
        raise TableError(
            f"{name} has {len(values) // max(n, 1)} numbers a row from row {first_row} on; expected {size}, "
            "as in the first row."
        )
    return values.reshape(n, size)


def _refuse_nulls(column: Any, name: str, first_row: int) -> None:
    if column.null_count:
        row = first_row + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise TableError(
            f"{name} is missing (null) in {column.null_count} rows (first: row {row}); drop those rows, fill "
            "them in, or leave the column out (columns=)."
        )


def _is_list(type_: Any) -> bool:
    types = arrow().types
    kinds = (types.is_fixed_size_list, types.is_list, types.is_large_list)
    return any(kind(type_) for kind in (*kinds, types.is_list_view, types.is_large_list_view))


def _is_text(type_: Any) -> bool:
    types = arrow().types
    return bool(types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_))


def _is_coded_text(column: Any) -> bool:
    """Return whether a column is numbers and the texts they stand for."""
    coded = arrow().types.is_dictionary(column.type) and _is_text(column.type.value_type)
    return bool(coded and not column.dictionary.null_count)


def _is_time(type_: Any) -> bool:
    types = arrow().types
    return bool(types.is_timestamp(type_) or types.is_date(type_) or types.is_time(type_))


def _is_number(type_: Any) -> bool:
    types = arrow().types
    return bool(types.is_integer(type_) or types.is_floating(type_))


def from_frame(frame: Any, X: Any, **choice: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return X and the columns of a data frame, and its info; see :meth:`mgpa.tables.Table.from_frame`."""
    pa, library = arrow(), type(frame).__module__.partition(".")[0]
    try:
        if library == "pandas":
            data = pa.Table.from_pandas(_with_named_index(frame))
        elif library == "polars" and hasattr(frame, "to_arrow"):
            data = frame.to_arrow()  # text in a type that pyarrow before 19 can read, too
        elif hasattr(frame, "__arrow_c_stream__"):
            data = pa.table(frame)
        else:
            verbs = [verb for verb in ("collect", "to_pandas") if hasattr(frame, verb)]
            raise TypeError(
                f"Expected a pandas or polars data frame or a pyarrow table; got {type(frame).__name__}"
                f"{f' (pass its .{verbs[0]}())' if verbs else ''}."
            )
    except (pa.ArrowException, UnicodeError) as error:
        raise TableError(f"{'; '.join(map(str, error.args))}. Make every column one type.") from None
    fields = fields_of(data.schema, lambda names: data.select(names).slice(0, 1))
    if X is not None:
        if choice.get("embedding") is not None:
            raise TypeError("Pass the embeddings as X, or name their column with embedding=; not both.")
        fields.append(Field("X", (1,), np.dtype(np.float64), "given"))
        choice["embedding"] = "X"
    shape, info = read_head((data.schema.metadata or {}).get(b"mgpa"))
    layout = Layout.choose(fields, shape=shape, **choice)
    names = [name for name in layout.names if X is None or name != "X"]
    made: dict[str, Any] = dict(layout.columns_of(read_arrow(data, layout, names, 0)))
    if layout.feature_names is not None:
        info = info | {"feature_names": layout.feature_names}
    return (made if X is None else {"X": X, **made}), info


def _with_named_index(frame: Any) -> Any:
    """Return a pandas frame with the named levels of its index as columns, as in the files it writes."""
    named = [name for name in frame.index.names if name is not None]
    twice = [str(name) for name in named if name in frame.columns]
    if twice:
        raise TableError(
            f"{', '.join(twice)} is both a column and in the index; keep one (frame.reset_index(drop=True))."
        )
    return frame.reset_index(level=named) if named else frame


def from_xarray(
    data: Any, embedding: str | None, row: str | None, rename: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return X and columns of a Dataset or DataArray; see :meth:`mgpa.tables.Table.from_xarray`."""
    if hasattr(data, "data_vars"):
        variables = {str(name): data[name] for name in (*data.data_vars, *data.coords)}
    elif hasattr(data, "coords"):
        embedding = embedding or "X"
        variables = {**{str(name): data[name] for name in data.coords}, embedding: data}
    else:
        raise TypeError(f"Expected an xarray Dataset or DataArray; got {type(data).__name__}.")
    fields = {
        name: Field(name, v.shape[1:], v.dtype, f"{' × '.join(map(str, v.dims))} {v.dtype}")
        for name, v in variables.items()
        if v.dims
    }
    (chosen,) = find_embedding(fields, embedding)
    X = variables.pop(chosen)
    row = X.dims[0] if row is None else row
    if row not in X.dims:
        raise TableError(f"{chosen} has dimensions {', '.join(map(str, X.dims))}, none of them {row!r}.")
    for name, v in variables.items():
        if v.dims != (row,) and (rename or {}).get(name, name) in COLUMNS:
            along = ", ".join(map(str, v.dims)) or "no dimension"
            raise TableError(f"{name} lies along {along}, not along the rows ({row}); pass row=.")
    columns = {name: v.to_numpy() for name, v in variables.items() if v.dims == (row,)}
    return {"X": X.transpose(row, ...).to_numpy(), **_renamed(columns, rename)}


def from_epochs(epochs: Any, X: Any, rename: Mapping[str, str] | None) -> dict[str, Any]:
    """Return X and the columns of epochs; see :meth:`mgpa.tables.Table.from_epochs`."""
    several = list(epochs) if isinstance(epochs, (list, tuple)) else [epochs]
    if not several:
        raise TableError("The list of epochs is empty.")
    each = [_epoch_columns(one) for one in several]
    if any(columns.keys() != each[0].keys() for columns in each):
        raise TableError("The metadata of the epochs have different columns; give them the same.")
    columns = {name: np.concatenate([one[name] for one in each]) for name in each[0]}
    return {
        "X": np.concatenate([np.asarray(X(one)) for one in several]) if callable(X) else X,
        **_renamed(columns, rename),
    }


def _epoch_columns(epochs: Any) -> Columns:
    frame = epochs.get_metadata() if hasattr(epochs, "get_metadata") else epochs.metadata
    if frame is not None:
        return {str(name): np.asarray(frame[name]) for name in frame.columns}
    names = {code: name for name, code in epochs.event_id.items()}
    columns = {"label": np.array([names[code] for code in epochs.events[:, 2]])}
    person = subject_of(epochs)
    return columns if person is None else columns | {"participant": np.full(len(epochs.events), person)}


def subject_of(epochs: Any) -> Any:
    """Return the ``his_id`` of the subject of MNE epochs, or None; warn if that may be one of several people.

    ``mne.concatenate_epochs`` keeps the first subject for all epochs. What is left of the seam is the event
    after it: no sooner than ten seconds after the end of the epoch before, or with an earlier time.
    """
    person = (epochs.info.get("subject_info") or {}).get("his_id")
    if person is not None and type(epochs).__name__ == "EpochsArray":
        rate = np.asarray(getattr(epochs, "_raw_sfreq", epochs.info["sfreq"]), dtype=np.float64).item()
        seconds = np.diff(epochs.events[:, 0]) / rate
        seams = int(np.sum((seconds < 0) | (seconds >= 10 + epochs.times[-1])))
        if seams:
            warnings.warn(
                f"All {len(epochs.events)} epochs are taken for those of subject {person!r}, by their "
                f"his_id; their times look like {seams + 1} recordings put together. Are they of several "
                "people? Then pass a list of the epochs of each, or name them in a column of metadata.",
                stacklevel=4,
            )
    return person


def _renamed(columns: Mapping[str, Any], rename: Mapping[str, str] | None) -> dict[str, Any]:
    rename = rename or {}
    absent = [name for name in rename if name not in columns]
    if absent:
        raise TableError(f"No column {first_few(absent)}. Columns: {first_few(list(columns))}.")
    renamed = {rename.get(name, name): values for name, values in columns.items()}
    if "X" in renamed or len(renamed) < len(columns):
        raise TableError(
            f"The columns would be called {', '.join(rename.get(name, name) for name in columns)}. Names "
            "must differ, and X is the embedding's: give others with rename=."
        )
    return renamed
