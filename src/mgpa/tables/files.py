"""Tables in files: ``.npz``, Parquet (a file or a folder) and CSV, local or at a URL (docs/tables.md).

Parquet files are opened without reading embeddings; then they can be read completely, in independent parts,
or in batches of bounded memory. Other formats are read completely on opening. A file is written completely or
not at all.
Code in a file is never run, and invalid files raise a :class:`TableError`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Any, Self

import numpy as np

from .._common.files import no_such_file, path_taken, replacing, special_kind
from .._common.remote import Given, Place, RemotePath, as_place
from ..errors import TableError, first_few
from ..labels import check_pair_id, is_paired
from . import csv_file, npz_file
from .carried import in_plain, require_complete, say_unlabelled
from .columns import COLUMNS, Columns, check_columns, require_columns
from .layout import MAX_CHUNK_ROWS, Layout, block_rows, blocks_of, reading, require_place, write_head
from .table import Table

FORMATS = ".npz, .csv, a .parquet file or a folder of them"


@dataclass(frozen=True)
class TableFile:
    """A table in a file (:func:`open_table`), or a part of its rows. It can be pickled.

    Parameters
    ----------
    path : Path or RemotePath
    layout : Layout
        The columns of the file that form the table.
    info : dict
        The stored origin of the table, and the names of the features.
    bounds : tuple of int
        The first row of each part, and the row after the last.
    content : callable
        ``content(layout, start, stop, names, max_rows)`` yields the arrays of the file in batches of rows.
    """

    path: Place
    layout: Layout
    info: dict[str, Any]
    bounds: tuple[int, ...]
    content: Callable[[Layout, int, int, list[str], int], Iterator[Columns]]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.bounds[-1] - self.bounds[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row: (d,), or (t, d) for tokens."""
        return self.layout.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers in the embedding."""
        return self.layout.dtype

    @property
    def columns(self) -> dict[str, str]:
        """Names of all columns except the embedding, and their types in the file."""
        return self.layout.kinds

    @property
    def block_rows(self) -> int:
        """Number of rows in about 32 MiB."""
        return block_rows(math.prod(self.shape) * self.dtype.itemsize)

    @property
    def parts(self) -> list[TableFile]:
        """Parts that workers can read independently, in order."""
        return [replace(self, bounds=ends) for ends in pairwise(self.bounds) if ends[0] < ends[1]]

    def batches(self, max_rows: int | None = None) -> Iterator[Table]:
        """Yield tables of at most ``max_rows`` rows; None is about 32 MiB of embeddings per table."""
        for a, b in pairwise(self.bounds):
            rows = self.block_rows if max_rows is None else max_rows
            for start, columns in self.scan(a, b, self.layout.names, rows) if a < b else ():
                yield self.make_table(columns, f", rows from {start} on")

    def read(self, rows: Any = None) -> Table:
        """Return a table in memory with all rows, or with selected rows (slice, positions or mask)."""
        wanted = np.arange(self.bounds[0], self.bounds[-1])[slice(None) if rows is None else rows]
        distinct, order = np.unique(wanted, return_inverse=True)
        names, size, pieces = self.layout.names, 8 * self.block_rows, []
        for a, b in pairwise(self.bounds):
            inside = distinct[slice(*np.searchsorted(distinct, [a, b]))]
            for start, columns in self.scan(inside[0], inside[-1] + 1, names, size) if len(inside) else ():
                here = inside[slice(*np.searchsorted(inside, [start, start + len(columns["X"])]))] - start
                every = len(here) == len(columns["X"])
                pieces.append(columns if every else {n: v[here] for n, v in columns.items()})
        joined = _joined(pieces or [columns for _, columns in self.scan(0, 0, names, 1)])
        pieces.clear()
        if arrow := sys.modules.get("pyarrow"):  # its memory pool would keep half of the data
            arrow.default_memory_pool().release_unused()
        if not np.array_equal(order, np.arange(len(order))):
            joined = {name: values[order] for name, values in joined.items()}
        table = self.make_table(joined)
        if rows is None and "label" in self.layout.ours:
            say_unlabelled(table.kept)
        return table

    def read_columns(self, *names: str) -> Columns:
        """Return columns of all rows (by default all columns), without the embedding."""
        require_columns(names, self.columns, self.path)
        stored = self.layout.stored(*(names or self.layout.columns))
        scan = self.scan(self.bounds[0], self.bounds[-1], stored, 4 * MAX_CHUNK_ROWS)
        joined = _joined([columns for _, columns in scan]) if stored else {}
        return {name: joined[name] for name in names or self.layout.columns}

    def carrying(self, *ours: str) -> Self:
        """Return the file with only these columns checked; all other columns are copied unchanged."""
        return replace(self, layout=replace(self.layout, ours=ours))

    def survey(self, *only: str) -> Columns:
        """Check roles and pairs of the whole file in bounded memory; return the columns of selected rows.

        One row for each combination of source, participant and role is selected, and all paired rows. They
        contain all participants and sources, and reveal participants or events that occur twice.
        """
        names = [name for name in only or COLUMNS if name in self.layout.columns]
        scan = self.scan(self.bounds[0], self.bounds[-1], self.layout.stored(*names), 4 * MAX_CHUNK_ROWS)
        pieces = []
        with reading(self.path):
            for _, raw in scan if names else ():
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
        """Yield the first row number and the columns of each batch, by name in the table."""
        at = start
        with reading(self.path):
            for raw in self.content(self.layout, start, stop, names, max_rows):
                columns = self.layout.columns_of(raw)
                require_complete(columns, self.layout.ours, at)
                yield at, columns
                at += len(next(iter(raw.values())))
            if at != stop:
                raise TableError(f"damaged: it has {at - start} of the rows {start} to {stop}.")

    def make_table(self, columns: Columns, where: str = "") -> Table:
        """Return a table of some rows; name the file in errors."""
        with reading(self.path, where):
            return Table.from_columns(columns, self.info)


def _slices(
    arrays: Columns, _: Layout, start: int, stop: int, names: list[str], max_rows: int
) -> Iterator[Columns]:
    """Yield batches of arrays in memory; yield one empty batch without rows."""
    for a in range(start, max(stop, start + 1), max_rows):
        yield {name: arrays[name][a : min(a + max_rows, stop)] for name in names}


def _joined(pieces: Sequence[Columns]) -> Columns:
    if len(pieces) == 1:
        return pieces[0]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def open_table(
    path: Given | Sequence[Given],
    *,
    embedding: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    replicates: str | None = None,
    skip_rows: int = 0,
) -> TableFile:
    """Open a table; for Parquet, without reading its embeddings.

    The format is recognised by the content, and CSV by the file name. Files may come from other tools.

    Parameters
    ----------
    path : path or address
        An ``.npz``, Parquet or CSV file, or a folder of Parquet files; also a URL such as
        ``s3://bucket/table.parquet``. The rows of a list of files are concatenated in memory; without a
        source column, the stem of the file name is the source of its rows.
    embedding : str or list of str
        The column (or array) with the embedding, or many numeric columns. These are given by their names, a
        range ("1100:2492", in the order of the file), a common prefix ("f" for f0, f1 and so on, or for all
        columns with this prefix if none is numbered), or "numeric" (all numeric columns except the standard
        columns). None: "embedding", "X", "tokens", or the only possible column.
    columns : list of str or None
        Other columns to keep, by their name in the file; None keeps all.
    rename : dict or None
        New names of columns: ``{"subject": "participant"}``. ``{"site+subject": "participant"}`` joins
        several columns to one id; ``{"sample": "pair_id+participant"}`` uses one column twice.
    replicates : {"mean", "pair"} or None
        How to treat rows of one source with the same pair id: average them, or pair the first of one source
        with the first of another, and so on. None raises an error. The table is read into memory.
    skip_rows : int
        Number of lines before the line with the column names.

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
    choice: dict[str, Any] = {"embedding": embedding, "columns": columns, "rename": rename}
    if isinstance(path, (list, tuple)):
        choice["skip_rows"] = skip_rows
        return _stacked([open_table(one, **choice) for one in path], replicates)
    place = as_place(path)  # type: ignore[arg-type]
    with reading(place):
        kind = _format_of(place)
        if skip_rows and kind != "csv":
            raise TableError("skip_rows is for CSV files; this one has no lines.")
        if kind == "parquet":
            from .parquet import open_parquet

            file = TableFile(place, *open_parquet(place, choice))
        else:
            read = partial(csv_file.read_csv, skip=skip_rows) if kind == "csv" else npz_file.read_npz
            layout, info, arrays = read(place, **choice)
            ends = (0, len(arrays[layout.embedding[0]]))
            file = TableFile(place, layout, info, ends, partial(_slices, arrays))
    return file if replicates is None else _settle_replicates(file, replicates)


def _stacked(files: Sequence[TableFile], replicates: str | None) -> TableFile:
    """Return the rows of several files in memory; files without a source column use their name as source."""
    tables = []
    for file in files:
        if "source" not in file.columns:
            columns = _all_columns(file)
            file = _in_memory(file, columns | {"source": np.full(len(columns["X"]), file.path.stem)})
        tables.append((file if replicates is None else _settle_replicates(file, replicates)).read())
    table = Table.concatenate(tables)
    return _in_memory(files[0], {"X": table.X, **table.columns})


def _all_columns(file: TableFile) -> Columns:
    scan = file.scan(file.bounds[0], file.bounds[-1], file.layout.names, file.block_rows)
    return _joined([columns for _, columns in scan])


def _in_memory(file: TableFile, columns: Columns) -> TableFile:
    """Return a file's table with other columns, in memory."""
    names = {name: name for name in columns if name != "X"}
    kinds = {
        n: "text" if columns[n].dtype.kind == "U" else getattr(columns[n], "kind", str(columns[n].dtype))
        for n in names
    }
    embedding: tuple[str, ...] = ("X",)
    arrays = columns
    if len(file.layout.embedding) > 1 and not {*file.layout.embedding} & {*names}:  # one column per feature
        embedding = file.layout.embedding
        arrays = columns | dict(zip(embedding, columns["X"].reshape(len(columns["X"]), -1).T, strict=True))
    layout = replace(file.layout, embedding=embedding, columns=names, kinds=kinds, combined={})
    return replace(file, layout=layout, bounds=(0, len(columns["X"])), content=partial(_slices, arrays))


def _settle_replicates(file: TableFile, how: str) -> TableFile:
    """Return the table in memory; average or pair rows with the same source and pair id."""
    if how not in ("mean", "pair"):
        raise TableError(f"replicates must be 'mean' or 'pair'; got {how!r}.")
    require_columns(["source", "pair_id"], file.columns, file.path)
    columns = _all_columns(file)
    ids, n = check_pair_id(columns["pair_id"], file.n_rows), file.n_rows
    codes = np.stack([np.unique(values, return_inverse=True)[1] for values in (columns["source"], ids)])
    rows = np.arange(n)
    codes[1] = np.where(is_paired(ids), codes[1], n + rows)  # unpaired rows stay separate
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
    return _in_memory(file, columns)


def write_table(
    table: Table | Iterable[Table], path: Given, *, overwrite: bool = False, as_columns: bool = False
) -> Place:
    """Write one or several tables; ``path`` always holds either the complete new or the old content.

    Parameters
    ----------
    table : Table or iterable of Table
        One table, or several tables to concatenate; only ``.npz`` needs all of them in memory.
    path : path or address
        A path that ends in ``.npz``, ``.parquet`` or ``.csv``; a name without suffix is a folder of Parquet
        files. Its parent folder or bucket must exist. CSV does not store ``info`` and has only numbers and
        text.
    overwrite : bool
        Replace an existing file, or the table in a folder; other files in the folder are kept.
    as_columns : bool
        In Parquet, write one column per feature, with the names in ``info``, instead of one column of lists.

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
        from .parquet_folder import TableWriter

        with TableWriter(place, first, overwrite=overwrite, as_columns=as_columns) as writer:
            writer.write(0, chain([first], rest))
        return place
    head, blocks = write_head(first.X.shape[1:], first.info), blocks_of(chain([first], rest), first)
    with replacing(place, new=not overwrite) as temporary:
        if kind == "npz":
            npz_file.write_npz(temporary, in_plain(_joined(list(blocks)), ".npz"), head)
        elif kind == "csv":
            plain = (in_plain(block, "CSV") for block in blocks)
            csv_file.write_csv(temporary, plain, first.info, "\t" if place.suffix == ".tsv" else ",")
        else:
            from .parquet import column_for_each, write_parquet

            write_parquet(temporary, blocks, head, column_for_each(first) if as_columns else None)
    return place


def _format_of(path: Place) -> str:
    """Return the format of an existing file or folder; raise if it is not a table."""
    if not path_taken(path):
        raise no_such_file(path)
    if path.is_dir():
        return _format_of_folder(path)
    if kind := special_kind(path):
        raise TableError(f"{kind}, not a table; write it to a file first. Tables: {FORMATS}.")
    start = b""
    if isinstance(path, RemotePath) or path.stat().st_size:  # reading a file of size 0 may block
        with path.open("rb", buffering=0) as stream:
            start = stream.read(8) or b""
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(b"PK\x03\x04") and path.suffix.lower() != ".xlsx":
        return "npz"
    if start and path.suffix.lower() in csv_file.SUFFIXES:
        return "csv"
    hint = f"it starts with {start!r}" if start else "it is empty"
    hint = "it is a stored map" if path.suffix == ".safetensors" else hint
    raise TableError(
        f"not a table ({hint}). Tables: {FORMATS}. Save a spreadsheet as CSV; convert arrays with "
        "mgpa.tables.Table, data frames with Table.from_frame, epochs with mgpa.eeg.table_from_epochs."
    )


def _format_of_folder(path: Place) -> str:
    names = sorted(entry.name for entry in path.iterdir())
    if any(name.endswith((".parquet", ".pq")) and name[0] not in "._" for name in names):
        return "parquet"
    raise TableError(f"a folder with {first_few(names, 5) or 'nothing'}, not a table. Tables: {FORMATS}.")


def format_from_name(path: Place) -> str:
    """Return the format for a file name."""
    kinds = {".npz": "npz", ".parquet": "parquet", ".pq": "parquet", "": "folder"}
    kinds |= dict.fromkeys(csv_file.SUFFIXES, "csv")
    if path.suffix.lower() not in kinds:
        raise TableError(
            f"{path.name!r} has an unknown suffix; use .parquet, .npz or .csv, or none for a folder."
        )
    return kinds[path.suffix.lower()]
