"""Tables in files: ``.npz``, Parquet (a file or a folder) and CSV, here or at an address (docs/tables.md).

Parquet is opened without reading its embeddings, then read whole, in independent parts, or in batches of
bounded memory; the others are read when they are opened. Writing leaves a complete table or nothing under its
name. Nothing in a file is ever run, and whatever is wrong with it is a :class:`TableError` that says so.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from .._common.files import lies_there, replacing, special_kind
from .._common.remote import Given, Place, as_place
from ..errors import TableError
from ..pairs import check_pair_id, is_paired
from . import csv_file
from .columns import COLUMNS, Columns, check_columns, require_columns
from .layout import (
    MAX_CHUNK_ROWS,
    Field,
    Layout,
    block_rows,
    blocks_of,
    find_embedding,
    read_head,
    reading,
    require_place,
    require_plausible,
    write_head,
)
from .table import Table

FORMATS = ".npz, .csv, a .parquet file or a folder of them"
# The comment of an .npz archive by mgpa: a digest of the names and checksums of its arrays.
NPZ_SEAL = b"mgpa "
# How files of other kinds begin, and how tables are made of them.
OTHERS = {
    b"\x93NUMPY": "a single array: make a table with mgpa.tables.Table(numpy.load(path), source=…)",
    b"ARROW1": "Feather: make a table with mgpa.tables.Table.from_frame(pandas.read_feather(path), …)",
    b"\x89HDF": "HDF5: make a table of its arrays with mgpa.tables.Table(X, source=…)",
    b"\x1f\x8b": "compressed: unpack it with gunzip first",
}


@dataclass(frozen=True)
class Part:
    """Rows of a file that can be read alone; workers take one each."""

    file: TableFile
    start: int
    stop: int

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    def read(self) -> Table:
        """Return all rows."""
        return self.file.read(slice(self.start, self.stop))

    def batches(self, max_rows: int | None = None) -> Iterator[Table]:
        """Yield the rows, at most ``max_rows`` at a time; None takes about 32 MiB of embeddings."""
        rows = self.file.block_rows if max_rows is None else max_rows
        for start, columns in self.file.scan(self.start, self.stop, self.file.layout.names, rows):
            yield self.file.make_table(columns, f", rows from {start} on")


@dataclass(frozen=True)
class TableFile:
    """A table in a file, from :func:`open_table`. It can be sent to other processes.

    Parameters
    ----------
    path : Path or RemotePath
    layout : Layout
        Which of the file's columns make the table.
    info : dict
        What the writer kept about where the table comes from, and the names of the features.
    bounds : tuple of int
        Rows at which a part begins, and the number of rows.
    verified : bool
        Whether the file says what mgpa wrote, and that is there. Files by other tools do not: a column or a
        part of them may have been lost without a trace.
    content : dict of arrays, or Groups
        What was read when the file was opened, or is read from.
    """

    path: Place
    layout: Layout
    info: dict[str, Any]
    bounds: tuple[int, ...]
    verified: bool
    content: Any

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.bounds[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row: (d,), or (t, d) for tokens."""
        return self.layout.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the embedding's numbers."""
        return self.layout.dtype

    @property
    def columns(self) -> dict[str, str]:
        """Names of the columns, the embedding aside, and the types they have in the file."""
        return self.layout.kinds

    @property
    def block_rows(self) -> int:
        """How many rows make about 32 MiB."""
        return block_rows(math.prod(self.shape) * self.dtype.itemsize)

    @property
    def parts(self) -> list[Part]:
        """Pieces that can be read independently, in order."""
        return [Part(self, a, b) for a, b in pairwise(self.bounds) if b > a]

    def batches(self, max_rows: int | None = None) -> Iterator[Table]:
        """Yield tables of at most ``max_rows`` rows; None takes about 32 MiB of embeddings at a time."""
        for part in self.parts:
            yield from part.batches(max_rows)

    def read(self, rows: Any = None) -> Table:
        """Return all rows in memory, or some (a slice, positions or a mask) in the order asked for."""
        wanted = np.arange(self.n_rows)[slice(None) if rows is None else rows]
        distinct, order = np.unique(wanted, return_inverse=True)
        names, size, pieces = self.layout.names, 8 * self.block_rows, []
        for a, b in pairwise(self.bounds):
            inside = distinct[slice(*np.searchsorted(distinct, [a, b]))]
            for start, columns in self.scan(inside[0], inside[-1] + 1, names, size) if len(inside) else ():
                here = inside[slice(*np.searchsorted(inside, [start, start + len(columns["X"])]))] - start
                every = len(here) == len(columns["X"])
                pieces.append(columns if every else {n: v[here] for n, v in columns.items()})
        joined = _joined(pieces or [columns for _, columns in self.scan(0, 0, names, 1)])
        if not np.array_equal(order, np.arange(len(order))):
            joined = {name: values[order] for name, values in joined.items()}
        return self.make_table(joined)

    def read_columns(self, *names: str) -> Columns:
        """Return some columns of all rows (none named: all), but not the embedding."""
        require_columns(names, self.columns, self.path)
        stored = self.layout.stored(*(names or self.layout.columns))
        pieces = [c for _, c in self.scan(0, self.n_rows, stored, 4 * MAX_CHUNK_ROWS)] if stored else [{}]
        joined = _joined(pieces)
        return {name: joined[name] for name in names or self.layout.columns}

    def survey(self) -> Columns:
        """Check roles and pairs over the whole file in bounded memory; return the rows that this takes.

        One row of every source, participant and role, and all paired rows: enough to tell who is in the
        file, from which sources, and whether any participant or event is there twice.
        """
        names = [name for name in COLUMNS if name in self.layout.columns]
        stored = self.layout.stored(*names)
        pieces = []
        with reading(self.path):
            for _, raw in self.scan(0, self.n_rows, stored, 4 * MAX_CHUNK_ROWS) if names else ():
                columns = check_columns(raw, len(next(iter(raw.values()))))
                kinds = [columns[name] for name in ("source", "participant", "role") if name in columns]
                codes = [np.unique(values, return_inverse=True)[1] for values in kinds]
                rows = np.unique(np.stack(codes), axis=1, return_index=True)[1] if kinds else np.zeros(0, int)
                if "pair_id" in columns:
                    rows = np.union1d(rows, np.flatnonzero(is_paired(columns["pair_id"])))
                pieces.append({name: values[rows] for name, values in columns.items()})
            joined = _joined(pieces or [{}])
            return check_columns(joined, len(joined[names[0]])) if joined else {}

    def scan(self, start: int, stop: int, names: list[str], max_rows: int) -> Iterator[tuple[int, Columns]]:
        """Yield the first row of each batch and its columns, by their name in the table."""
        at = start
        with reading(self.path):
            if isinstance(self.content, dict):
                for a in range(start, max(stop, start + 1), max_rows):
                    batch = {name: self.content[name][a : min(a + max_rows, stop)] for name in names}
                    yield a, self.layout.columns_of(batch)
                return
            for raw in self.content.scan(start, stop, names, max_rows):
                n = len(next(iter(raw.values())))
                yield at, self.layout.columns_of(raw)
                at += n
            if at != stop:
                raise TableError(f"damaged: it has {at - start} of the rows {start} to {stop}.")

    def make_table(self, columns: Columns, where: str = "") -> Table:
        """Return a table of some rows, or say where it is wrong."""
        with reading(self.path, where):
            return Table.from_columns(columns, self.info)


def _joined(pieces: Sequence[Columns]) -> Columns:
    if len(pieces) == 1:
        return pieces[0]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def open_table(
    path: Given,
    *,
    embedding: str | Sequence[str] | re.Pattern[str] | None = None,
    tokens: int | None = None,
    columns: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    replicates: str | None = None,
) -> TableFile:
    """Open a table; of Parquet, without reading its embeddings.

    The format is told from the content; text is CSV by its name. Files may come from other tools.

    Parameters
    ----------
    path : path or address
        An ``.npz``, Parquet or CSV file, or a folder of Parquet files; also by an address, as
        ``s3://bucket/table.parquet``.
    embedding : str, list of str, or compiled regular expression
        What holds the embedding: one column (or array), or many with a number each, given by their names, a
        range ("1100:2492", in the file's order), what all of them start with ("f": f0, f1 and so on, or
        whatever starts so if none is numbered), "numeric" (every column of numbers but those that tables
        know), or a pattern that matches them whole. None: "embedding", "X", "tokens", or the only one that
        can be it.
    tokens : int or None
        Take each embedding for this many tokens, one after another.
    columns : list of str or None
        Other columns to keep, by their name in the file; None keeps all.
    rename : dict or None
        Names in the file, and what they are called here: ``{"subject": "participant"}``. Several columns make
        one id with ``{"site+subject": "participant"}``; one column is both with
        ``{"sample": "pair_id+participant"}``.
    replicates : {"mean", "pair"} or None
        What to do with rows of one source that share a pair id, which otherwise is an error: average them, or
        pair the first of one source with the first of another, and so on. The table is read into memory.

    Raises
    ------
    FileNotFoundError
        If there is nothing.
    TableError
        If there is something else, or it is damaged, or lacks what was asked for.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from mgpa.tables import Table
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = write_table(Table(np.zeros((5, 3)), source=list("abaab")), folder.name + "/small.npz")
    >>> file = open_table(path)
    >>> file.n_rows, file.shape, file.columns
    (5, (3,), {'source': 'text'})
    >>> folder.cleanup()
    """
    place = as_place(path)
    choice = {"embedding": embedding, "tokens": tokens, "columns": columns, "rename": rename}
    if replicates is not None:
        return _settle_replicates(open_table(place, **choice), replicates)  # type: ignore[arg-type]
    with reading(place):
        kind = _format_of(place)
        if kind == "npz":
            return _open_npz(place, choice)
        if kind == "csv":
            layout, arrays = csv_file.read_csv(place, **choice)
            n = len(arrays[layout.embedding[0]])
            return TableFile(place, layout, layout.info({}), (0, n), False, arrays)
        from .parquet import open_parquet

        groups, info, verified = open_parquet(place, choice)
        return TableFile(place, groups.layout, groups.layout.info(info), groups.bounds, verified, groups)


def _settle_replicates(file: TableFile, how: str) -> TableFile:
    """Return the table in memory with rows of one source and pair id averaged, or paired by their order."""
    if how not in ("mean", "pair"):
        raise TableError(f"replicates must be 'mean' or 'pair'; got {how!r}.")
    require_columns(["source", "pair_id"], file.columns, file.path)
    columns = _joined([c for _, c in file.scan(0, file.n_rows, file.layout.names, file.block_rows)])
    ids, n = check_pair_id(columns["pair_id"], file.n_rows), file.n_rows
    codes = np.stack([np.unique(values, return_inverse=True)[1] for values in (columns["source"], ids)])
    rows = np.arange(n)
    codes[1] = np.where(is_paired(ids), codes[1], n + rows)  # what is unpaired stands alone
    _, first, group, counts = np.unique(
        codes, axis=1, return_index=True, return_inverse=True, return_counts=True
    )
    group = group.ravel()
    if how == "mean":
        sums = np.zeros((len(first), *columns["X"].shape[1:]))
        np.add.at(sums, group, columns["X"])
        X = (sums.T / counts).T.astype(columns["X"].dtype)
        order = np.argsort(first)
        columns = {name: values[first[order]] for name, values in columns.items()} | {"X": X[order]}
    else:
        by_group = np.argsort(group, kind="stable")
        number = np.empty(n, int)
        number[by_group] = rows - np.repeat(np.cumsum(counts) - counts, counts)
        text = np.char.add(np.char.add(ids.astype(str), "/"), number.astype(str))
        columns["pair_id"] = np.where(is_paired(ids), text, "")
    names = {name: name for name in columns if name != "X"}
    layout = replace(file.layout, embedding=("X",), columns=names, combined={})
    return replace(file, layout=layout, bounds=(0, len(columns["X"])), content=columns)


def _open_npz(path: Place, choice: dict[str, Any]) -> TableFile:
    """Open numpy's archive of arrays; its arrays are never unpickled."""
    arrays: Columns = {}
    with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        members = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
        require_plausible(sum(e.file_size for e in members), sum(e.compress_size for e in members))
        sealed = archive.comment.startswith(NPZ_SEAL)
        if sealed and archive.comment != _npz_seal(members):
            raise TableError("damaged: its arrays are not those that were written.")
        if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in members):
            raise TableError("its arrays are compressed as numpy never does; save them with numpy.savez.")
        for entry in members:
            name = entry.filename.removesuffix(".npy")
            with archive.open(entry) as member:
                try:
                    arrays[name] = npy.read_array(member, allow_pickle=False)
                except (ValueError, MemoryError, EOFError) as error:
                    hint = "Python objects, which can run any code; save arrays of numbers or text"
                    what = f"holds {hint}" if "pickle" in str(error) else f"is damaged: {error}"
                    raise TableError(f"array {name!r} {what}.") from None
    head = arrays.pop("mgpa", None)
    shape, info = read_head(None if head is None else str(head))
    if not arrays:
        raise TableError("an archive without arrays; numpy.savez writes one with some.")
    fields = {name: _npz_field(name, array, None) for name, array in arrays.items()}
    n = len(arrays[find_embedding(fields, choice["embedding"])[0]])
    fields = {name: _npz_field(name, array, n) for name, array in arrays.items()}
    layout = Layout.choose(fields.values(), shape=shape, **choice)
    content = {name: np.ascontiguousarray(arrays[name]) for name in layout.names}
    return TableFile(path, layout, layout.info(info), (0, n), sealed, content)


def _npz_field(name: str, array: Any, n: int | None) -> Field:
    """Describe an array; one with another number of rows than the embedding cannot be used."""
    dtype: np.dtype[Any] | None = np.dtype("U") if array.dtype.kind in "US" else array.dtype.newbyteorder("=")
    raw = f"raw {array.dtype.itemsize}-byte values, as bfloat16 becomes; save float32"
    kind = {"U": "text", "S": "text", "V": raw}.get(array.dtype.kind, str(array.dtype))
    kind = " × ".join(map(str, array.shape[1:])) + f" {kind}" if array.shape[1:] else kind
    rows = len(array) if array.shape else 1
    if n not in (None, rows):
        kind = f"{kind} in {rows} rows, not {n}"
    if not array.shape or array.dtype.kind not in "biufUSM" or n not in (None, rows):
        dtype = None
    return Field(name, array.shape[1:], dtype, kind)


def _npz_seal(members: Sequence[zipfile.ZipInfo]) -> bytes:
    listed = json.dumps([[entry.filename, entry.CRC, entry.file_size] for entry in members])
    return NPZ_SEAL + hashlib.sha256(listed.encode()).hexdigest().encode()


def write_table(table: Table | Iterable[Table], path: Given, *, overwrite: bool = False) -> Place:
    """Write a table, or several one after another, so that ``path`` holds all of it or its old content.

    Parameters
    ----------
    table : Table or iterable of Table
        Tables that come one by one are written one by one; only ``.npz`` needs them all in memory.
    path : path or address
        Ends in ``.npz``, ``.parquet`` or ``.csv``; a name without suffix is a folder of Parquet files. The
        folder it is in, or the bucket, must exist. CSV keeps no ``info``, and no type but number and text.
    overwrite : bool
        Replace what is there: a file, or the table of a folder, whose other files stay.

    Returns
    -------
    path : Path or RemotePath
    """
    place = as_place(path)
    kind = format_from_name(place)
    require_place(place, overwrite, folder=kind == "folder")
    rest = iter([table] if isinstance(table, Table) else table)
    first = next(rest, None)
    if first is None:
        raise TableError(f"No tables to write to {place}; the list is empty.")
    if kind == "folder":
        from .parquet import TableWriter

        with TableWriter(place, first, overwrite=overwrite) as writer:
            writer.write(0, chain([first], rest))
        return place
    head, blocks = write_head(first.X.shape[1:], first.info), blocks_of(chain([first], rest), first)
    with replacing(place, new=not overwrite) as temporary:
        if kind == "npz":
            _write_npz(temporary, blocks, head)
        elif kind == "csv":
            csv_file.write_csv(temporary, blocks, first.info, "\t" if place.suffix == ".tsv" else ",")
        else:
            from .parquet import write_parquet

            write_parquet(temporary, blocks, head)
    return place


def _write_npz(path: Path, blocks: Iterable[Columns], head: str) -> None:
    arrays = _joined(list(blocks)) | {"mgpa": np.array(head)}
    with zipfile.ZipFile(path, "w") as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                npy.write_array(stream, values, allow_pickle=False)
        archive.comment = _npz_seal(archive.infolist())


def _format_of(path: Place) -> str:
    """Return the format of what is there, or raise an error that says what it is instead."""
    if not lies_there(path):
        raise FileNotFoundError(f"There is no file or folder {path}.")
    if path.is_dir():
        names = sorted(entry.name for entry in path.iterdir())
        if any(name.endswith((".parquet", ".pq")) and name[0] not in "._" for name in names):
            return "parquet"
        listed = ", ".join([*names[:5], *(["…"] if len(names) > 5 else [])]) or "nothing"
        raise TableError(f"a folder with {listed}, not a table. Tables: {FORMATS}.")
    if kind := special_kind(path):
        raise TableError(f"{kind}, not a table; write it to a file first. Tables: {FORMATS}.")
    with path.open("rb", buffering=0) as stream:
        start = stream.read(8) or b""
    if start.startswith(b"PAR1"):
        return "parquet"
    if path.suffix.lower() in (".safetensors", ".xlsx"):
        raise TableError("a stored map or a spreadsheet, not a table; save a spreadsheet as CSV (UTF-8).")
    if start.startswith(b"PK\x03\x04"):
        return "npz"
    if path.suffix.lower() in csv_file.SUFFIXES:
        return "csv"
    kinds = [f"it is {kind}" for beginning, kind in OTHERS.items() if start.startswith(beginning)]
    hint = kinds[0] if kinds else f"it starts with {start!r}" if start else "it is empty"
    raise TableError(f"not a table ({hint}). Tables: {FORMATS}.")


def format_from_name(path: Place) -> str:
    """Return the format that a name asks for."""
    kinds = {".npz": "npz", ".parquet": "parquet", ".pq": "parquet", "": "folder"}
    kinds |= dict.fromkeys(csv_file.SUFFIXES, "csv")
    if path.suffix.lower() not in kinds:
        raise TableError(
            f"{path.name!r} names no format to write; end it in .parquet, .npz or .csv, or in nothing for a "
            "folder."
        )
    return kinds[path.suffix.lower()]
