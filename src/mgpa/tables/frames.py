"""Convert data frames and Arrow tables to tables, and metadata of MNE epochs to columns."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.extras import missing
from .._common.untrusted import require_names, require_room
from ..errors import TableError
from .carried import Arrow, Carried, refuse_gaps, require_complete, say_unlabelled
from .columns import COLUMNS, Columns
from .layout import Field, Layout, read_head

# Pandas' column name for an index without a name.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_UNKNOWN = -1  # stands for list lengths that the type does not specify


def arrow() -> Any:
    """Import pyarrow, or raise with installation advice."""
    try:
        import pyarrow
    except ImportError:
        raise missing("A data frame or Parquet", "pyarrow") from None
    return pyarrow


def fields_of(schema: Arrow, first_row: Any = None) -> list[Field]:
    """Return the fields of an Arrow schema; ``first_row(name)`` gives the length of variable-size lists."""
    entries = [entry for entry in schema if not _PANDAS_INDEX.fullmatch(entry.name)]
    require_names(entry.name for entry in entries)
    fields: list[Field] = []
    by_type: dict[str, Field] = {}  # cached by type, because many columns have few types
    periods = b'"period' in (schema.metadata or {}).get(b"pandas", b"")
    for entry in entries:
        named = (entry.metadata or {}).get(b"ARROW:extension:name", b"").decode() if periods else ""
        if "pandas.period" in (named, getattr(entry.type, "extension_name", "")):  # if pandas is loaded
            fields.append(Field(entry.name, (), None, "pandas periods, stored as numbers"))
            continue
        if str(entry.type) in by_type:
            fields.append(replace(by_type[str(entry.type)], name=entry.name))
            continue
        item, shape = _item_and_shape(entry.type)
        if _UNKNOWN in shape and first_row is not None:
            row: Any = next((row for row in first_row(entry.name).to_pylist() if row is not None), [])
            shape = _shape_of(row, len(shape))
        size, kind = " × ".join(map(str, shape)), "text" if _is_text(item) else str(item)
        kind = f"{size} {kind}" if size else kind
        fields.append(Field(entry.name, tuple(shape), _dtype(item), kind, carried=True))
        if not shape:
            by_type[str(entry.type)] = fields[-1]
    return fields


def _shape_of(row: Any, n_axes: int) -> list[int]:
    """Return the lengths of nested lists, taken from the first list at each level."""
    shape = []
    for _ in range(n_axes):
        shape.append(len(row) if isinstance(row, list) else 0)
        row = row[0] if isinstance(row, list) and row else []
    return shape


def _item_and_shape(type_: Arrow) -> tuple[Arrow, list[int]]:
    """Return the type of a single value of a column, and the shape of a row."""
    pa, shape = arrow(), []
    if isinstance(type_, pa.FixedShapeTensorType):
        type_, shape = type_.value_type, [*type_.shape]
    elif isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    while _is_list(type_):
        shape.append(type_.list_size if pa.types.is_fixed_size_list(type_) else _UNKNOWN)
        type_ = type_.value_type
    return type_, shape


def read_arrow(
    batch: Arrow, schema: Arrow, layout: Layout, names: Iterable[str], first_row: int, whole: tuple[int, int]
) -> Columns:
    """Return columns of an Arrow table or batch as arrays, by their name in the file.

    ``whole`` is the number of rows and bytes of the whole table; ``schema`` is the schema of the file.
    """
    pa = arrow()
    # A column with several names follows the strictest rule: pair ids may be missing, participants may not.
    strict = sorted(layout.columns, key=lambda name: (name in COLUMNS, name != "pair_id"))
    called = {layout.columns[name]: name for name in strict}
    inside, made = set(layout.embedding), {}
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))  # faster than a search per name
    file_types = dict(zip(schema.names, schema.types, strict=True))
    parts = {part for parts in layout.combined.values() for part in parts}
    for stored in names:
        column = _in_one_piece(columns[stored], stored)
        if isinstance(column, pa.ExtensionArray) and (stored in inside or called.get(stored) in layout.ours):
            column = column.storage
        if stored in inside:
            made[stored] = _read_numbers(column, math.prod(layout.shape), stored, first_row)
        else:
            name = called.get(stored, stored)
            joined = stored in layout.combined.get("pair_id", ()) and not pa.types.is_floating(column.type)
            name = "pair_id" if joined and name not in COLUMNS else name
            ours = name in layout.ours or stored in parts
            type_ = file_types[stored]
            made[stored] = read_column(column, name, whole, ours=ours, type_=type_)
            if stored in parts and isinstance(made[stored], Carried):
                refuse_gaps(made[stored], name, first_row)
    return made


def _in_one_piece(column: Arrow, name: str) -> Arrow:
    """Return a column as one array with tensors in row-major order."""
    axes = getattr(column.type, "permutation", None)
    if axes not in (None, sorted(axes or [])):
        raise TableError(f"{name} has tensors with permuted dimensions; write them in row-major order.")
    return column.combine_chunks() if isinstance(column, arrow().ChunkedArray) else column


def read_column(column: Arrow, name: str, whole: tuple[int, int], *, ours: bool, type_: Arrow) -> Any:
    """Return one value per row: an array, or a column that is passed on unchanged (:class:`Carried`).

    In columns that mgpa reads (``ours``), categories and times become text, a missing pair id means
    "unpaired", and other missing values raise an error if the column is needed. In other columns, numbers,
    booleans and text without missing values become arrays; a missing number is NaN. ``type_`` is the type in
    the file.
    """
    if not ours and (name in COLUMNS or not _is_plain(type_, gaps=column.null_count > 0)):
        return Carried(column if column.type == type_ else column.cast(type_), whole[1])
    column = _plain_text(column)
    if column.null_count and name == "pair_id":
        column = _unpaired_filled(column)
    types = arrow().types
    if ours and column.null_count and (name in COLUMNS or not types.is_floating(column.type)):
        return Carried(column, whole[1])
    if types.is_dictionary(column.type):
        return _read_text(column, name, whole)
    if _is_text(column.type):
        return _read_text(column.cast(arrow().large_string()).dictionary_encode(), name, whole)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _is_plain(type_: Arrow, *, gaps: bool) -> bool:
    """Return whether a column becomes an array: floats; integers, booleans and text without gaps."""
    types = arrow().types
    whole = _is_text(type_) or types.is_boolean(type_) or types.is_integer(type_)
    return bool(types.is_floating(type_) or (whole and not gaps))


def _plain_text(column: Arrow) -> Arrow:
    """Return times as text, and categories as their values unless these are text without gaps."""
    types = arrow().types
    if types.is_dictionary(column.type):
        gaps = column.null_count or column.dictionary.null_count
        if gaps or not _is_text(column.type.value_type):
            column = column.dictionary_decode()
    if types.is_timestamp(column.type) or types.is_date(column.type) or types.is_time(column.type):
        column = column.cast(arrow().string())
    return column


def _unpaired_filled(column: Arrow) -> Arrow:
    """Return pair ids with missing ids replaced by the value for "unpaired"."""
    pa = arrow()
    if pa.types.is_null(column.type):
        return pa.array([-1] * len(column))
    if pa.types.is_unsigned_integer(column.type):
        column = column.cast(pa.string())  # no integer is free to mean "unpaired"
    return column.fill_null("" if _is_text(column.type) else -1)


def _read_text(column: Arrow, name: str, whole: tuple[int, int]) -> NDArray[Any]:
    """Return a text column, converting each distinct text once."""
    distinct = column.dictionary.to_pylist()
    if any("\0" in text for text in distinct):
        raise TableError(f"{name} has a text with a zero character; remove it.")
    require_room(name, max(map(len, distinct), default=0), *whole)
    return np.asarray(np.array(distinct, dtype=str)[column.indices.to_numpy(zero_copy_only=False)])


def _read_numbers(column: Arrow, size: int, name: str, first_row: int) -> NDArray[Any]:
    """Return one number per row, or (nested) lists of numbers as (n, size)."""
    n = len(column)
    refuse_gaps(column, name, first_row)
    if not _is_list(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    while _is_list(column.type):
        if n and not arrow().types.is_fixed_size_list(column.type):
            lengths = column.value_lengths().to_numpy(zero_copy_only=False)
            if len(bad := np.flatnonzero(lengths != lengths[0])):
                row = first_row + bad[0] * n // len(lengths)
                raise TableError(
                    f"{name} has lists of unequal length: {lengths[bad[0]]} in row {row}, {lengths[0]} in "
                    f"row {first_row}."
                )
        column = column.flatten()
    if column.null_count:
        place = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        row = first_row + place * n // len(column)
        raise TableError(f"{name} has a missing number in row {row}; drop that row or impute it.")
    values = np.asarray(column.to_numpy(zero_copy_only=False))
    if len(values) != n * size:
        raise TableError(f"{name} has {len(values) // max(n, 1)} numbers in row {first_row}, not {size}.")
    return values.reshape(n, size)


def to_arrow(
    columns: Columns, metadata: dict[bytes, bytes] | None = None, names: Sequence[str] | None = None
) -> Any:
    """Return X (as "embedding", or one column for each of ``names``) and columns as an Arrow table."""
    pa = arrow()
    X = np.ascontiguousarray(columns["X"])
    arrays, fields = [], []
    if names is None:
        # Declare that no value is missing: this makes Parquet's lists 50 % faster.
        number = pa.field("element", pa.from_numpy_dtype(X.dtype), nullable=False)
        rows = pa.list_(number, math.prod(X.shape[1:]))
        arrays.append(pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), type=rows))
        fields.append(pa.field("embedding", rows, nullable=False))
    features = {} if names is None else dict(zip(names, np.ascontiguousarray(X.T), strict=True))
    for name, values in (columns | features).items():
        if name != "X":
            try:
                arrays.append(values.values if isinstance(values, Carried) else pa.array(values))
            except UnicodeError:
                raise TableError(f"{name} has text that is not valid Unicode; no file can hold it.") from None
            # Columns of the user may have missing values in any part.
            fields.append(pa.field(name, arrays[-1].type, nullable=name not in features))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata))


def _dtype(type_: Arrow) -> np.dtype[Any] | None:
    """Return the numpy type for an Arrow type, or None if tables do not support it."""
    types = arrow().types
    if types.is_dictionary(type_):
        type_ = type_.value_type
    if _is_text(type_) or types.is_timestamp(type_) or types.is_date(type_) or types.is_time(type_):
        return np.dtype("U")
    if types.is_boolean(type_) or types.is_integer(type_) or types.is_floating(type_):
        dtype: np.dtype[Any] = np.dtype(type_.to_pandas_dtype())
        return dtype
    return np.dtype(np.int64) if types.is_null(type_) else None


def _is_list(type_: Arrow) -> bool:
    types = arrow().types
    return bool(types.is_fixed_size_list(type_) or types.is_list(type_) or types.is_large_list(type_))


def _is_text(type_: Arrow) -> bool:
    types = arrow().types
    return bool(types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_))


def from_frame(frame: Any, X: Any, **choice: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return X and the columns of a data frame, and its info; see :meth:`mgpa.tables.Table.from_frame`."""
    data = _as_arrow(frame)
    fields = fields_of(data.schema, lambda name: data[name].slice(0, 1))
    if X is not None:
        if choice.get("embedding") is not None:
            raise TypeError("Pass the embeddings as X, or name their column with embedding=; not both.")
        fields.append(Field("X", (1,), np.dtype(np.float64), "given"))
        choice["embedding"] = "X"
    shape, info = read_head((data.schema.metadata or {}).get(b"mgpa"))
    layout = Layout.choose(fields, shape=shape, **choice)
    names = [name for name in layout.names if X is None or name != "X"]
    made: dict[str, Any] = dict(
        layout.columns_of(read_arrow(data, data.schema, layout, names, 0, (len(data), data.nbytes)))
    )
    require_complete(made, layout.ours)
    say_unlabelled(made)
    return (made if X is None else {"X": X, **made}), layout.info(info)


def _as_arrow(frame: Any) -> Arrow:
    """Return a data frame as an Arrow table."""
    pa, library = arrow(), type(frame).__module__.partition(".")[0]
    try:
        if library == "pandas":
            # Named levels of the index are columns, as in the files that pandas writes.
            named = [name for name in frame.index.names if name is not None]
            periods = [name for name, dtype in frame.dtypes.items() if str(dtype).startswith("period[")]
            frame = frame.astype(dict.fromkeys(periods, "string")) if periods else frame
            return pa.Table.from_pandas(frame.reset_index(level=named) if named else frame)
        if library == "polars" and hasattr(frame, "to_arrow"):
            return frame.to_arrow()  # gives a text type that pyarrow before 19 can read
        if hasattr(frame, "__arrow_c_stream__"):
            return pa.table(frame)
    except (pa.ArrowException, UnicodeError, ValueError) as error:
        raise TableError(f"{'; '.join(map(str, error.args))}. Make every column one type.") from None
    raise TypeError(
        f"Expected a pandas or polars data frame or a pyarrow table; got {type(frame).__name__}. "
        "Call its .collect() or .to_pandas() if it has one."
    )


def epochs_columns(several: Sequence[Any]) -> Columns:
    """Return the metadata of MNE epochs or, without metadata, event names and subject."""
    each = []
    for epochs in several:
        if epochs.metadata is not None:
            each.append({str(name): np.asarray(epochs.metadata[name]) for name in epochs.metadata.columns})
            continue
        names = {code: name for name, code in epochs.event_id.items()}
        each.append({"label": np.array([names[code] for code in epochs.events[:, 2]])})
        if (person := subject_of(epochs)) is not None:
            each[-1]["participant"] = np.full(len(epochs.events), person)
    if any(columns.keys() != each[0].keys() for columns in each):
        raise TableError("The metadata of the epochs have different columns; give them the same.")
    return {name: np.concatenate([columns[name] for columns in each]) for name in each[0]}


def subject_of(epochs: Any) -> Any:
    """Return the ``his_id`` of the subject of MNE epochs, or None; warn if there may be several subjects.

    ``mne.concatenate_epochs`` keeps the first subject for all epochs and starts each further recording ten
    seconds after the end of the last epoch. Gaps of at least this length indicate joined recordings.
    """
    person = (epochs.info.get("subject_info") or {}).get("his_id")
    if person is not None and type(epochs).__name__ == "EpochsArray":
        rate = np.asarray(getattr(epochs, "_raw_sfreq", epochs.info["sfreq"]), dtype=np.float64).item()
        seconds = np.diff(epochs.events[:, 0]) / rate
        seam = 10 + epochs.times[-1] + epochs.events[0, 0] / rate
        # Gaps at dropped epochs are ignored.
        near = (np.abs(seconds - seam) < 5) & (np.diff(epochs.selection) == 1)
        seams = int(np.sum((seconds < 0) | near))
        if seams:
            warnings.warn(
                f"All {len(epochs.events)} epochs have the his_id {str(person)!r}, but their times look like "
                f"{seams + 1} joined recordings. If they come from several participants, pass a list with "
                "the epochs of each, or name the participants in a metadata column.",
                stacklevel=4,
            )
    return person
