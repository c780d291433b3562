"""Tables as Parquet: the embedding is one column of fixed-size lists; a file, or a folder of files."""

from __future__ import annotations

import json
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from ..._common.extras import missing
from ..._common.files import size_of
from ..._common.remote import Place, RemotePath
from ...errors import TableError
from ..columns import Columns
from .arrow import fields_of, pa, read_columns, write_columns
from .layout import Choice, Field, Head, Layout
from .manifest import Manifest, PartOf, column_types, sha256
from .table_file import TableFile, as_bounds, reading, require_plausible

try:
    import pyarrow.parquet as pq
except ImportError as error:
    raise missing("Parquet", "pyarrow") from error

HEAD = b"mgpa"
# Beside the schema's metadata, which Arrow copies into whatever is made of a table.
MANIFEST = b"mgpa.manifest"
# What precedes the footer in a file by mgpa, and then the footer's SHA-256 in hexadecimal.
SEAL = b"mgpa.footer.sha256="
SEAL_SIZE = len(SEAL) + 64
# How much of a file's end is searched for it: what footers of ours take, and then more, lest one was damaged.
SEARCHED = (2**16, 2**20)
# Bytes of one number or of a reference to one text, by Parquet's types.
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# Memory stays bounded whatever the size of row groups: pages are read through a buffer, none ahead of time.
_READ: dict[str, Any] = {"pre_buffer": False, "buffer_size": 2**20, "page_checksum_verification": True}
# Each request to a store costs as much as some megabytes.
_READ_REMOTE: dict[str, Any] = _READ | {"buffer_size": 2**23}


@dataclass(frozen=True)
class ParquetTable(TableFile):
    """A table in a Parquet file or a folder of them; each row group is a part."""

    format = "parquet"

    groups: tuple[tuple[Place, int], ...]
    schema: Any
    part_files: tuple[Place, ...]

    def part_name(self, i: int) -> str:
        """Return the name of a part: the file's, and the row group."""
        path, group = self.groups[i]
        return f"{path.name}-{group:05d}"

    def files(self) -> set[Place]:
        """Return the file, or those of the folder."""
        return set(self.part_files)

    def arrays(self, start: int, stop: int, names: list[str], max_rows: int) -> Iterator[Columns]:
        """Yield arrays of the file, at most ``max_rows`` rows at a time."""
        if start >= stop:
            yield read_columns(self.schema.empty_table(), self.layout, names, start)
        texts = [name for name in names if pa.types.is_string(self.schema.field(name).type)]
        inside = range(bisect_right(self.bounds, start) - 1, bisect_left(self.bounds, stop))
        for path, numbers in groupby(inside, key=lambda i: self.groups[i][0]):
            # Text that repeats itself stays what the file has: once, and numbers that stand for it.
            with _opened(path, read_dictionary=texts) as file:
                for i in numbers:
                    at = self.bounds[i]
                    for batch in file.iter_batches(max_rows, [self.groups[i][1]], names):
                        a, b = max(start, at), min(stop, at + len(batch))
                        if a < b:
                            yield read_columns(batch.slice(a - at, b - a), self.layout, names, a)
                        at += len(batch)
                        if at >= stop:
                            break


def open_parquet(path: Place, choice: Choice) -> ParquetTable:
    """Open a table, reading the description at the end of every file."""
    files = part_files(path) if path.is_dir() else [path]
    groups: list[tuple[Place, int]] = []
    sizes: list[int] = []
    fields: list[Field] = []
    manifests: list[Manifest | None] = []
    for file in files:
        with reading(file), _opened(file, check_footer=True) as opened:
            schema, metadata = opened.schema_arrow, opened.metadata
            require_plausible(_unfolded_bytes(metadata), size_of(file))
            there = fields_of(schema, None if fields else _first_rows(opened))
            rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            groups += [(file, i) for i in range(metadata.num_row_groups)]
            sizes += rows
            manifests.append(_checked_manifest(metadata.metadata or {}, schema, there, sum(rows)))
        if not fields:
            fields, first = there, schema
        elif wrong := _differences(fields, there):
            raise TableError(
                f"{file} differs from {files[0].name} in {', '.join(wrong)}; parts must be alike."
            )
    stored = (first.metadata or {}).get(HEAD)
    head = None if stored is None else Head.read(stored)
    layout = Layout.choose(fields, choice, head)
    verified = _require_all_parts(files, manifests) if path.is_dir() else manifests[0] is not None
    bounds = as_bounds(sizes)
    return ParquetTable(path, layout, head, bounds, verified, tuple(groups), first, tuple(files))


@contextmanager
def _opened(path: Place, check_footer: bool = False, **options: Any) -> Iterator[Any]:
    """Yield a Parquet file: of a store, to be read in the ranges that are asked for."""
    with path.open("rb", buffering=0) as stream:
        if check_footer:
            _require_intact_footer(stream)
        if isinstance(path, RemotePath):
            with pq.ParquetFile(stream, **_READ_REMOTE, **options) as file:
                yield file
            return
        there = os.fstat(stream.fileno())
        footer = _footer(path, there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns)
        with pq.ParquetFile(path, metadata=footer, **_READ, **options) as file:
            yield file


@lru_cache(maxsize=8)
def _footer(path: Path, *identity: int) -> Any:
    """Return the description of a file: parsing takes time for every row group, and each is a part."""
    return pq.read_metadata(path)


def _checked_manifest(metadata: Any, schema: Any, fields: list[Field], rows: int) -> Manifest | None:
    """Return what a file says that mgpa wrote into it, if it does and that is there."""
    if MANIFEST not in metadata:
        return None
    manifest = Manifest.read(metadata[MANIFEST])
    manifest.check(fields, rows, {"mgpa": sha256((schema.metadata or {}).get(HEAD, b""))})
    return manifest


def _require_all_parts(files: Sequence[Place], manifests: list[Manifest | None]) -> bool:
    """Return whether files are the parts of one table by mgpa; raise if they are, but not all of them."""
    parts = [None if manifest is None else manifest.part for manifest in manifests]
    first = next((part for part in parts if part is not None), None)
    if first is None:
        return False
    for i, (file, part) in enumerate(zip(files, parts, strict=True)):
        if part is None or part.table != first.table:
            raise TableError(f"damaged: {file.name} was not written with the other parts.")
        if part.number != i:
            raise TableError(
                f"damaged: {file.name} was written as part {part.number} of {part.of} and is part {i} here."
            )
    rows = sum(manifest.rows for manifest in manifests if manifest is not None)
    if len(files) != first.of or rows != first.rows:
        raise TableError(
            f"damaged: {first.of} parts with {first.rows} rows were written; {len(files)} with {rows} are "
            "there."
        )
    return True


def _unfolded_bytes(metadata: Any) -> int:
    """Return what all columns take in memory by a file's own account; repeated values count each time."""
    total = 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for j in range(group.num_columns):
            column = group.column(j)
            total += max(
                column.num_values * WIDTHS.get(column.physical_type, 4), column.total_uncompressed_size
            )
    return total


def part_files(folder: Place) -> list[Place]:
    """Return a folder's Parquet files in the order of their names, leaving out ``.name`` and ``_name``."""
    files = [
        file
        for file in folder.iterdir()
        if file.suffix in (".parquet", ".pq") and file.name[0] not in "._" and file.is_file()
    ]
    return sorted(files, key=lambda file: file.name)


def write_parquet(path: Path, blocks: Iterable[Columns], head: Head, part: PartOf | None = None) -> None:
    """Write a table or one part of it, a row group a block."""
    description = json.dumps(head.document()).encode()
    metadata = {HEAD: description}
    writer, rows = None, 0
    try:
        for block in blocks:
            table = write_columns(block, metadata)
            if writer is None:
                # Numbers that never repeat gain nothing from a dictionary or compression; columns do.
                columns = [name for name in table.column_names if name != "embedding"]
                writer = pq.ParquetWriter(
                    path,
                    table.schema,
                    use_dictionary=columns,
                    compression={**dict.fromkeys(columns, "zstd"), "embedding.list.element": "none"},
                    write_statistics=columns,
                    write_page_checksum=True,
                )
                manifest = Manifest(
                    column_types(block, X="embedding"), 0, {"mgpa": sha256(description)}, part
                )
            writer.write_table(table, row_group_size=max(len(table), 1))
            rows += len(table)
        if writer is not None:
            document = replace(manifest, rows=rows).document()
            writer.add_key_value_metadata({MANIFEST: json.dumps(document).encode()})
    finally:
        if writer is not None:
            writer.close()
    if writer is not None:
        _seal_footer(path)


def _seal_footer(path: Path) -> None:
    """Put a digest of a file's footer before it, where readers of Parquet do not look."""
    with open(path, "r+b") as stream:
        stream.seek(-8, os.SEEK_END)
        length = int.from_bytes(stream.read(4), "little")
        stream.seek(-8 - length, os.SEEK_END)
        start, footer = stream.tell(), stream.read()
        stream.seek(start)
        stream.write(SEAL + sha256(footer).encode() + footer)


def _require_intact_footer(stream: Any) -> None:
    """Raise if the footer of a file by mgpa is damaged, before pyarrow sees it: some damage ends the process.

    A file without a digest, by another tool, passes.
    """
    size = stream.seek(0, os.SEEK_END)
    for searched in SEARCHED:
        stream.seek(max(0, size - searched))
        tail = stream.read()
        length = int.from_bytes(tail[-8:-4], "little")
        if len(tail) < length + 8 + SEAL_SIZE <= size:
            stream.seek(-length - 8 - SEAL_SIZE, os.SEEK_END)
            tail = stream.read()
        # Where it is says the footer's length, which may be what is damaged; so it is looked for.
        at = tail.rfind(SEAL)
        if at >= 0:
            break
    else:
        return
    digest, footer = tail[at + len(SEAL) : at + SEAL_SIZE], tail[at + SEAL_SIZE :]
    if digest != sha256(footer).encode():
        raise TableError("damaged: the description at its end is not as it was written.")


def _first_rows(file: Any) -> Any:
    def read(names: list[str]) -> Any:
        for batch in file.iter_batches(1, columns=names):
            return batch
        return pa.table({name: [] for name in names})

    return read


def _differences(first: list[Field], second: list[Field]) -> list[str]:
    """Return the columns that only one of two files has, or that have another type there."""
    a, b = ({field.name: (field.dtype, len(field.shape)) for field in fields} for fields in (first, second))
    return [name for name in {**a, **b} if a.get(name) != b.get(name)]
