"""Parquet: one file, or a folder of files with an index of the parts of the table.

The embedding is one column of fixed-size lists. Each write uses new names for the parts in a folder. The
index is written last and lists the parts with their rows and checksums. A program that reads the folder reads
the index once, and then only these parts. So it gets one consistent version of the table or an error, an
interrupted write is not visible, and a lost or exchanged part is detected.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from .._common.extras import missing
from .._common.remote import Place, RemotePath
from .._common.untrusted import SEAL, require_plausible
from ..errors import TableError
from .carried import Arrow
from .columns import RESERVED, Columns, feature_names
from .frames import fields_of, read_arrow, to_arrow
from .layout import INDEX, PART_NAME, Field, Layout, read_head
from .table import Table

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise missing("Parquet", "pyarrow") from error

HEAD = b"mgpa"
# Types of columns that are read as dictionaries: each distinct text once, with an index per row.
TEXTS = ("string", "large_string", "string_view", "binary", "large_binary")
# Key in a part's description: the checksum of the input rows of the part.
MADE_FROM = b"mgpa.made_from"
# Memory stays bounded whatever the size of row groups: pages are read through a buffer, none ahead of time.
# Each request to a store costs as much as some megabytes.
BUFFER, BUFFER_REMOTE = 2**20, 2**23

#: An entry of the index of a folder: "name" of the file, "rows", and "sha256" of the footer.
IndexedPart = dict[str, Any]
#: A row group: the file, the checksum of the file's footer (which identifies the version), and the number of
#: the group in the file.
Group = tuple[Place, str, int]
Opened = tuple[Layout, dict[str, Any], tuple[int, ...], Callable[..., Iterator[Columns]]]


def open_parquet(path: Place, choice: dict[str, Any]) -> Opened:
    """Return the layout, the info, the row number at which each row group begins, and a scan function."""
    listed = _files_of(path)
    groups: list[Group] = []
    bounds, schema, stored, unpacked = [0], None, 0, 0
    fields: list[Field] = []
    for file, expected in listed:
        with opened(file, expected) as (parquet, digest, size):
            metadata, these = parquet.metadata, parquet.schema_arrow
            columns = fields_of(these, None if fields else _first_row(parquet))
        stored += size
        for j in range(metadata.num_row_groups):
            groups.append((file, digest, j))
            group = metadata.row_group(j)
            bounds.append(bounds[-1] + group.num_rows)
            unpacked += group.total_byte_size
        require_plausible(unpacked, stored, "columns")
        if not fields:
            fields, schema = columns, these
        elif wrong := {f.name for f in {*map(_kind, fields)} ^ {*map(_kind, columns)}}:
            raise TableError(
                f"{file} differs from {listed[0][0].name} in {', '.join(sorted(wrong))}; parts must agree."
            )
    shape, info = read_head(((schema and schema.metadata) or {}).get(HEAD))
    names = feature_names(info)
    if choice["embedding"] is None and names and {*names} <= {field.name for field in fields}:
        choice = choice | {"embedding": names}  # the table was written with one column per feature
    layout = Layout.choose(fields, shape=shape, **choice)
    require_plausible(bounds[-1] * math.prod(layout.shape) * layout.dtype.itemsize, stored)
    return (
        layout,
        layout.info(info),
        tuple(bounds),
        partial(scan, tuple(groups), tuple(bounds), schema, stored),
    )


def scan(
    groups: Sequence[Group],
    bounds: Sequence[int],
    schema: Arrow,
    stored: int,
    layout: Layout,
    start: int,
    stop: int,
    names: list[str],
    max_rows: int,
) -> Iterator[Columns]:
    """Yield arrays of at most ``max_rows`` rows; without rows, yield one empty batch."""
    whole = (bounds[-1], stored)
    if start >= stop:
        yield read_arrow(schema.empty_table(), schema, layout, names, start, whole)
    wanted = set(names)
    types = zip(schema.names, schema.types, strict=True)
    texts = [name for name, type_ in types if name in wanted and str(type_) in TEXTS]
    threads = len(names) < 1000  # for many small columns, threads cost more time than they save
    inside = range(bisect_right(bounds, start) - 1, bisect_left(bounds, stop))
    for (path, digest), numbers in groupby(inside, key=lambda i: groups[i][:2]):
        with opened(path, digest, read_dictionary=texts) as (file, _, _):
            for i in numbers:
                at = bounds[i]
                for batch in file.iter_batches(max_rows, [groups[i][2]], names, use_threads=threads):
                    a, b = max(start, at), min(stop, at + len(batch))
                    if a < b:
                        yield read_arrow(batch.slice(a - at, b - a), schema, layout, names, a, whole)
                    at += len(batch)
                    if at >= stop:
                        break


# Cache of footers, because parsing takes time and each row group is a part.
_described: dict[str, Any] = {}


@contextmanager
def opened(path: Place, expected: str | None = None, **options: Any) -> Iterator[tuple[Any, str, int]]:
    """Yield an open Parquet file, the checksum of its footer, and its size."""
    remote = isinstance(path, RemotePath)
    with path.open(buffering=0) if isinstance(path, RemotePath) else pa.OSFile(str(path), "rb") as stream:
        footer, size, seal = _footer(stream)
        digest = hashlib.sha256(footer).hexdigest()
        if expected not in (None, digest):
            raise TableError(f"{path.name} changed after it was opened or indexed; open the table again.")
        stream.seek(0)
        if digest not in _described:
            _require_seal(footer, seal)
            while len(_described) >= 8:
                _described.pop(next(iter(_described)))
            _described[digest] = pq.read_metadata(stream)
            stream.seek(0)
        with pq.ParquetFile(
            stream,
            metadata=_described[digest],
            buffer_size=BUFFER_REMOTE if remote else BUFFER,
            pre_buffer=False,
            page_checksum_verification=True,
            **options,
        ) as file:
            yield file, digest, size


def _footer(stream: Any) -> tuple[bytes, int, bytes]:
    """Return the footer of a file, the size of the file, and the bytes before the footer."""
    stream.seek(0, os.SEEK_END)
    size = stream.tell()
    stream.seek(max(0, size - 2**16))
    tail = stream.read(min(size, 2**16))
    length = int.from_bytes(tail[-8:-4], "little") + 8
    seal = len(SEAL) + 64
    if len(tail) < length + seal and length <= size:
        stream.seek(max(0, size - length - seal))
        tail = stream.read(min(size, length + seal))
    return tail[-length:], size, tail[-length - seal : -length]


def _require_seal(footer: bytes, seal: bytes) -> None:
    """Raise if a checksum before the footer does not match the footer."""
    # A file counts as sealed if either part of the seal is intact.
    sealed = seal.startswith(SEAL) or re.fullmatch(b"[0-9a-f]{64}", seal[len(SEAL) :])
    if sealed and seal != SEAL + hashlib.sha256(footer).hexdigest().encode():
        raise TableError("damaged: its description does not match its checksum.")


def read_index(folder: Place) -> list[IndexedPart] | None:
    """Return the parts in the index of a folder; None without an index."""
    try:
        text = (folder / INDEX).read_bytes()
    except FileNotFoundError:
        return None
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        parts: list[IndexedPart] = json.loads(text)["parts"]
        if text == index_of(parts) and all(PART_NAME.fullmatch(part["name"]) for part in parts):
            return parts
    raise TableError(f"damaged: its index {INDEX} was changed.")


def index_of(parts: Sequence[IndexedPart]) -> bytes:
    """Return the content of an index file."""
    listed = list(parts)
    digest = hashlib.sha256(json.dumps(listed).encode()).hexdigest()
    return json.dumps({"format": 1, "parts": listed, "sha256": digest}, indent=1).encode()


def _files_of(path: Place) -> list[tuple[Place, str | None]]:
    """Return the files of a table, and the checksums of their footers in the index."""
    if not path.is_dir():
        return [(path, None)]
    listed = read_index(path)
    if listed is None:
        return [(file, None) for file in _foreign_files(path)]
    return [(path / part["name"], part["sha256"]) for part in listed]


def _foreign_files(folder: Place) -> list[Place]:
    """Return the Parquet files in a folder, sorted by name, without ``.name`` and ``_name``."""
    files = [
        file
        for file in folder.iterdir()
        if file.suffix in (".parquet", ".pq") and file.name[0] not in "._" and file.is_file()
    ]
    if any(PART_NAME.fullmatch(file.name) for file in files):
        raise TableError(f"its index {INDEX} is missing: writing has not finished, or the index was lost.")
    return sorted(files, key=lambda file: file.name)


def write_parquet(
    path: Path,
    blocks: Iterable[Columns],
    head: str,
    names: Sequence[str] | None = None,
    made_from: Callable[[], str] | None = None,
) -> tuple[int, str]:
    """Write a table or one part, one row group per block; return the rows and the footer's checksum.

    ``names``: one column per feature with these names, instead of one column of lists.
    """
    writer, rows = None, 0
    try:
        for block in blocks:
            table = to_arrow(block, {HEAD: head.encode()}, names)
            if writer is None:
                # Dictionaries and compression help columns, but not numbers that never repeat.
                columns = [name for name in block if name != "X"]
                numbers = names or ["embedding.list.element"]
                writer = pq.ParquetWriter(
                    path,
                    table.schema,
                    use_dictionary=columns,
                    compression=dict.fromkeys(columns, "zstd") | dict.fromkeys(numbers, "none"),
                    write_statistics=columns,
                    write_page_checksum=True,
                )
            writer.write_table(table.cast(writer.schema), row_group_size=max(len(table), 1))
            rows += len(table)
        if writer is not None:
            # A random value makes each footer unique, even for equal content.
            notes = {b"mgpa.id": secrets.token_hex(16).encode()}
            if made_from is not None:
                notes[MADE_FROM] = made_from().encode()
            writer.add_key_value_metadata(notes)
    finally:
        if writer is not None:
            writer.close()
    with open(path, "r+b") as stream:
        footer, size, _ = _footer(stream)
        digest = hashlib.sha256(footer).hexdigest()
        # Parquet allows extra bytes between the last column and the footer, which readers find from the end.
        stream.seek(size - len(footer))
        stream.write(SEAL + digest.encode() + footer)
    return rows, digest


def column_for_each(table: Table) -> tuple[str, ...] | None:
    """Return the feature names of a table if each feature can be a separate column, else None."""
    names = feature_names(table.info)
    fits = names and table.X.shape[1:] == (len(names),) and not {*names} & {*RESERVED, *table.columns}
    return names if fits else None


def _first_row(file: Arrow) -> Callable[[str], Arrow]:
    return lambda name: next((b[name] for b in file.iter_batches(1, columns=[name])), pa.array([]))


def _kind(field: Field) -> Field:
    """Return what must be equal in all parts: the name, the type, and whether values are lists."""
    return replace(field, shape=(0,) * len(field.shape), kind="")
