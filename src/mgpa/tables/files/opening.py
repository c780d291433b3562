"""Opening and writing tables, whatever their format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ..._common.files import (
    clear_leftovers,
    lies_there,
    replacing,
    require_replaceable,
    scratch_folder,
    special_kind,
)
from ..._common.remote import Given, Place, RemotePath, as_place
from ...errors import Mention, OutputExists, TableError
from ..columns import Columns
from ..table import Table
from . import csv_file
from .drafts import RemoteDraft
from .layout import Choice, Head, block_rows
from .table_file import TableFile, reading

FORMATS = ".npz, Parquet (a .parquet file, or a folder of them) and Zarr (a .zarr folder)"
# How files of other kinds begin, what they are, and how tables are made of them.
OTHERS = {
    b"\x93NUMPY": "a single array: make a table with mgpa.tables.Table(numpy.load(path), source=…)",
    b"ARROW1": "Feather: make a table with mgpa.tables.Table.from_frame(pandas.read_feather(path), …)",
    b"\x89HDF": "HDF5: make a table of its arrays with mgpa.tables.Table(X, source=…)",
    b"MATLAB 5": "MATLAB's: make a table of its arrays with mgpa.tables.Table(X, source=…)",
    b"\x1f\x8b": "compressed: unpack it with gunzip first",
}


def open_table(
    path: Given,
    *,
    embedding: str | Sequence[str] | re.Pattern[str] | None = None,
    tokens: int | None = None,
    columns: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
) -> TableFile:
    """Open a table without reading its embeddings.

    The format is told from the content, not from the name. Files may come from other tools.

    Parameters
    ----------
    path : path or address
        An ``.npz`` or Parquet file, a folder of Parquet files, or a Zarr group; also by an address, as
        ``s3://bucket/table.parquet``, of which no more is fetched than is read.
    embedding : str, list of str, or compiled regular expression
        What holds the embedding: one column (or array), or many with a number each, given by their names,
        by what all of them start with, or by a pattern that matches them whole. None: "embedding", "X",
        "tokens", or the only one that can be it.
    tokens : int or None
        Take each embedding for this many tokens, one after another.
    columns : list of str or None
        Other columns to keep, by their name in the file; None keeps all.
    rename : dict or None
        Names in the file, and what they are called here: ``{"subject": "participant"}``.

    Returns
    -------
    TableFile

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
    >>> [len(batch) for batch in file.batches(max_rows=2)]
    [2, 2, 1]
    >>> folder.cleanup()
    """
    path = as_place(path)
    choice = Choice(embedding, tokens, columns, rename)
    with reading(path):
        found = format_of(path)
        if found == "npz":
            from .npz import open_npz

            return open_npz(path, choice)
        if found == "zarr":
            from .zarr import open_zarr

            return open_zarr(path, choice)
        from .parquet import open_parquet

        return open_parquet(path, choice)


def write_table(table: Table | Iterable[Table], path: Given, *, overwrite: bool = False) -> Place:
    """Write a table, or several one after another, so that ``path`` holds all of it or its old content.

    Parameters
    ----------
    table : Table or iterable of Table
        Tables that come one by one are written one by one; only ``.npz`` needs them all in memory.
    path : path or address
        Ends in ``.npz``, ``.parquet`` or ``.zarr``. The folder it is in, or the bucket, must exist.
    overwrite : bool
        Replace what is there: a file, or a folder that holds a table by mgpa and nothing else.

    Returns
    -------
    path : Path or RemotePath
    """
    path = as_place(path)
    kind = format_from_name(path)
    require_place(path, overwrite, resume=kind == "zarr")
    rest = iter([table] if isinstance(table, Table) else table)
    first = next(rest, None)
    if first is None:
        raise TableError(f"There are no tables to write to {path}.")
    blocks, head = blocks_of(chain([first], rest), first), Head.of(first)
    if kind == "zarr" and isinstance(path, RemotePath):
        from .zarr import write_zarr

        with scratch_folder() as folder:
            write_zarr(folder, blocks, head)
            RemoteDraft(path).publish_folder(folder, overwrite)
        return path
    with replacing(path, even_folder=overwrite) as temporary:
        if kind == "npz":
            from .npz import write_npz

            write_npz(temporary, blocks, head)
        elif kind == "zarr":
            from .zarr import write_zarr

            write_zarr(temporary, blocks, head)
        else:
            from .parquet import write_parquet

            write_parquet(temporary, blocks, head)
    return path


def format_of(path: Place) -> str:
    """Return the format of what is there, or raise an error that says what it is instead."""
    if not lies_there(path):
        unfinished = path.with_name(path.name + ".partial")
        hint = f" {unfinished.name} is there: what writes it has not finished." if unfinished.exists() else ""
        what = "nothing at" if isinstance(path, RemotePath) else "no file or folder"
        raise FileNotFoundError(f"There is {what} {path}.{hint}")
    if path.is_dir():
        if any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray")):
            return "zarr"
        names = sorted(entry.name for entry in path.iterdir())
        if any(name.endswith((".parquet", ".pq")) and name[0] not in "._" for name in names):
            return "parquet"
        there = ", ".join([*names[:5], *(["…"] if len(names) > 5 else [])]) or "nothing"
        raise TableError(f"a folder with {there}, which is no table. Known: {FORMATS}.")
    kind = special_kind(path)
    if kind is not None:
        raise TableError(f"{kind}, not a table; write it to a file first. Known: {FORMATS}.")
    with path.open("rb", buffering=0) as stream:
        start = stream.read(8) or b""
    if start.startswith(b"PAR1"):
        return "parquet"
    if path.suffix == ".safetensors":
        raise TableError("a stored map, not a table.")
    if path.suffix.lower() == ".xlsx":
        raise TableError("a spreadsheet, not a table; save it as CSV (UTF-8).")
    if start.startswith(b"PK\x03\x04"):
        return "npz"
    kinds = [f"it is {kind}" for beginning, kind in OTHERS.items() if start.startswith(beginning)]
    hint = kinds[0] if kinds else f"it starts with {start!r}" if start else "it is empty"
    if path.suffix.lower() in csv_file.SUFFIXES:
        made = Mention("convert", str(path), python=f"mgpa.tables.Table.from_csv({str(path)!r}, …)")
        raise TableError("text, not a table: ", made, " makes one of it.")
    raise TableError(f"not a table ({hint}). Known: {FORMATS}.")


def format_from_name(path: Place) -> str:
    """Return the format that a name asks for."""
    kinds = {".npz": "npz", ".parquet": "parquet", ".pq": "parquet", ".zarr": "zarr"}
    if path.suffix.lower() in csv_file.SUFFIXES:
        raise TableError(
            f"{path.name!r} would be text, which has no place for what a table says about itself (that it "
            "was corrected, for one) and is only read; end it in .parquet, which pandas.read_parquet(…) and "
            "to_csv(…) make text of, or in .npz or .zarr."
        )
    if path.suffix not in kinds:
        raise TableError(f"{path.name!r} names no format to write; end it in .npz, .parquet or .zarr.")
    return kinds[path.suffix]


def require_place(path: Place, overwrite: bool, *, resume: bool = False) -> None:
    """Raise unless something can be written to ``path``; to ``resume``, even where a table is half copied."""
    if isinstance(path, RemotePath):
        require_replaceable(path)
        draft = RemoteDraft(path)
        if draft.clear_published():
            if resume:
                return
            raise FileExistsError(
                f"{path} is a table of which half was copied from {draft.partial}; run again what wrote it, "
                "or remove both."
            )
    else:
        if not path.parent.is_dir():
            raise FileNotFoundError(f"There is no folder {path.parent}; create it, then write {path.name}.")
        require_replaceable(path)
        clear_leftovers(path.parent)
    if not lies_there(path):
        return
    if not overwrite:
        raise OutputExists(path)
    if path.is_dir() and any(path.iterdir()):
        _require_own(path)


def _require_own(folder: Place) -> None:
    """Raise unless a folder holds a table by mgpa, which says so in its manifest, and nothing else."""
    try:
        table = open_table(folder)
    except TableError as error:
        raise FileExistsError(
            f"{folder} is a folder but no table that could be replaced ({error}); remove it yourself."
        ) from None
    if not table.verified:
        raise FileExistsError(f"{folder} is a folder that mgpa did not write; remove it yourself.")
    there: Iterable[Place] = (
        folder.files().values()
        if isinstance(folder, RemotePath)
        else (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    )
    foreign = sorted(map(str, set(there) - table.files()))
    if foreign:
        raise FileExistsError(
            f"{folder} holds {len(foreign)} files that are no part of the table (first: {foreign[0]}); move "
            "them, or remove the folder yourself."
        )


def blocks_of(tables: Iterable[Table], like: Table) -> Iterator[Columns]:
    """Yield the rows of tables in blocks of about 32 MiB; all but the last have the same number of rows."""
    size = block_rows(like.X.itemsize * int(np.prod(like.X.shape[1:])))
    waiting = _slice({"X": like.X, **like.columns}, 0, 0)
    expected, yielded = _types(waiting), False
    for i, table in enumerate(tables):
        columns = {"X": table.X, **table.columns}
        found = _types(columns)
        if found != expected:
            wrong = [name for name in {**expected, **found} if found.get(name) != expected.get(name)]
            raise TableError(f"Table {i} differs from the first in {', '.join(wrong)}; all must be alike.")
        if len(waiting["X"]):
            columns = {name: np.concatenate([waiting[name], columns[name]]) for name in waiting}
        whole = len(columns["X"]) // size * size
        for start in range(0, whole, size):
            yield _slice(columns, start, start + size)
            yielded = True
        waiting = _slice(columns, whole, None)
    if len(waiting["X"]) or not yielded:
        yield waiting


def _slice(columns: Columns, start: int, stop: int | None) -> Columns:
    return {name: values[start:stop] for name, values in columns.items()}


def _types(columns: Columns) -> dict[str, Any]:
    return {
        name: (values.shape[1:], "U" if values.dtype.kind == "U" else values.dtype)
        for name, values in columns.items()
    }
