"""Writing a table part by part, from several processes if need be, such that it can be interrupted.

Everything is written beside its final place, in ``<name>.partial``, and moved there when all parts are
complete. A writer for the same job finds what an interrupted one has finished.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from ..._common.files import put_in_place, remove, replacing
from ...errors import TableError
from ..columns import Columns
from ..table import Table
from .layout import Head, chunk_rows
from .manifest import PartOf, sha256
from .opening import blocks_of, format_from_name, open_table, require_place
from .table_file import as_bounds


class TableWriter:
    """A table that is written in parts: a folder of Parquet files, or a Zarr group.

    Parameters
    ----------
    path : path
        A folder for Parquet files (a name without suffix, or with ``.parquet``), or a ``.zarr`` group.
    like : Table
        A table with the columns, types and ``info`` of what will be written; its rows do not matter.
    rows : sequence of int
        Number of rows of every part. Parts without rows need not be written.
    overwrite : bool
        Replace what is there when all is written: a file, or a folder that holds a table by mgpa and nothing
        else.
    job : str
        Whatever determines the rows that will be written, such as checksums of a map and of the input. Parts
        left by another job are refused.

    Attributes
    ----------
    partial : Path
        Where unfinished output is. Removing it starts over.

    Notes
    -----
    A writer can be sent to other processes, which write different parts at the same time. One process makes
    it and calls :meth:`finish`.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from mgpa.tables import Table
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = Table(np.arange(12.0).reshape(6, 2))
    >>> with TableWriter(folder.name + "/out.parquet", table, rows=[4, 2]) as writer:
    ...     writer.write(1, table.take(slice(4, 6)))
    ...     writer.write(0, table.take(slice(0, 4)))
    >>> bool((open_table(folder.name + "/out.parquet").read().X == table.X).all())
    True
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        like: Table,
        rows: Sequence[int],
        *,
        overwrite: bool = False,
        job: str = "",
    ) -> None:
        self.path, self.overwrite = Path(path), overwrite
        require_place(self.path, overwrite)
        self.format = format_from_name(self.path) if self.path.suffix else "parquet"
        if self.format == "npz":
            raise TableError("An .npz file cannot be written in parts; choose .parquet or .zarr.")
        self.like = like.take(slice(0, 0))
        self.bounds = as_bounds(list(rows) or [0])
        self.partial = self.path.with_name(self.path.name + ".partial")
        self.table = self.partial / "table"
        self._begin(job)

    def _begin(self, job: str) -> None:
        plan = json.dumps(
            {
                "format": self.format,
                "bounds": self.bounds,
                "columns": {n: str(v.dtype) for n, v in _columns(self.like).items()},
                "head": Head.of(self.like).document(),
                "job": job,
            }
        )
        self.name = sha256(plan)
        stored = self.partial / "plan.json"
        if stored.exists() and not self.table.exists():
            self._remove_partial()  # all was done but to remove it
        if stored.exists():
            if stored.read_text(encoding="utf-8") != plan:
                raise FileExistsError(
                    f"{self.partial} holds unfinished output of another job (other rows, columns or "
                    "settings); finish that one, or remove the folder."
                )
            return
        with suppress(OSError):
            self.partial.rmdir()  # empty, if that was all there was left to do
        if os.path.lexists(self.partial):
            raise FileExistsError(
                f"{self.partial} is where output gathers, and holds something else; rename or remove it."
            )
        with replacing(self.partial) as temporary:
            (temporary / "done").mkdir(parents=True)
            if self.format == "zarr":
                from .zarr import create_zarr

                like = _columns(self.like)
                create_zarr(temporary / "table", like, Head.of(self.like), self._chunk(), self.bounds[-1])
            else:
                (temporary / "table").mkdir()
            (temporary / "plan.json").write_text(plan, encoding="utf-8")

    def _remove_partial(self) -> None:
        """Remove what is left when the table is in its place, and nothing that somebody else put there."""
        # A process that did the same may have been killed anywhere in between.
        for mark in (self.partial / "done").glob("*"):
            mark.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            (self.partial / "done").rmdir()
        (self.partial / "plan.json").unlink(missing_ok=True)
        with suppress(OSError):
            self.partial.rmdir()

    def _chunk(self) -> int:
        """Return a number of rows in a chunk such that no two parts share one."""
        usual = chunk_rows(math.prod(self.like.X.shape[1:]) * self.like.X.itemsize)
        common = math.gcd(*self.bounds[1:-1]) or usual
        fitting = next(size for size in range(min(usual, common), 0, -1) if common % size == 0)
        sizes = [b - a for a, b in pairwise(self.bounds)]
        if fitting * 16 < min([usual, *sizes[:-1]]):
            raise TableError(
                f"Parts that begin at rows {', '.join(map(str, self.bounds[1:-1][:3]))} … cannot have Zarr "
                f"chunks of their own; begin them at multiples of {usual}, or write Parquet."
            )
        return fitting

    @property
    def done(self) -> frozenset[int]:
        """Parts that are complete, from this writer or an interrupted one."""
        return frozenset(int(entry.name) for entry in (self.partial / "done").iterdir())

    def write(self, part: int, tables: Table | Iterable[Table]) -> None:
        """Write one part: a table, or several one after another. It counts as done only when complete.

        Parameters
        ----------
        part : int
            Position among ``rows``.
        tables : Table or iterable of Table
        """
        if not 0 <= part < len(self.bounds) - 1:
            raise TableError(f"There is no part {part}; rows has {len(self.bounds) - 1} of them.")
        try:
            self._write(part, [tables] if isinstance(tables, Table) else tables)
        except FileNotFoundError:
            if self.table.exists():
                raise
            raise FileExistsError(
                f"{self.partial} is gone while part {part} was written into it: another process that writes "
                f"the same table has finished it, or it was removed. See whether {self.path} is there."
            ) from None

    def _write(self, part: int, tables: Iterable[Table]) -> None:
        expected = self.bounds[part + 1] - self.bounds[part]
        blocks = _counted(blocks_of(tables, self.like), expected, part)
        if self.format == "parquet":
            from .parquet import write_parquet

            width = max(5, len(str(len(self.bounds))))
            place = PartOf(part, len(self.bounds) - 1, self.bounds[-1], self.name)
            with replacing(self.table / f"part-{part:0{width}d}.parquet") as temporary:
                write_parquet(temporary, blocks, Head.of(self.like), place)
        else:
            from .zarr import fill_zarr, open_for_filling

            arrays, at = open_for_filling(self.table), self.bounds[part]
            for block in blocks:
                fill_zarr(arrays, block, at)
                at += len(block["X"])
        (self.partial / "done" / str(part)).touch()

    def finish(self) -> Path:
        """Check that everything is there, move it to its place, and return that."""
        missing = sorted(set(range(len(self.bounds) - 1)) - self.done)
        for part in [part for part in missing if self.bounds[part] == self.bounds[part + 1]]:
            self.write(part, self.like)
            missing.remove(part)
        if missing:
            raise TableError(
                f"{len(missing)} of {len(self.bounds) - 1} parts are not written yet (first: {missing[0]}). "
                f"What is done stays in {self.partial}."
            )
        _clear_unfinished(self.table)
        if self.format == "zarr":
            from .zarr import seal_zarr

            seal_zarr(self.table, _columns(self.like), self.bounds[-1])
        open_table(self.table)  # compares all of it with its manifest
        require_place(self.path, self.overwrite)
        put_in_place(self.table, self.path, even_folder=self.overwrite)
        _clear_unfinished(self.path)  # what another writer of the same table was at meanwhile
        self._remove_partial()
        return self.path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        # After an error the finished parts stay, for the next attempt.
        if kind is None:
            self.finish()


def _clear_unfinished(table: Path) -> None:
    """Remove what processes that were killed, here or elsewhere, left of a part."""
    for leftover in table.glob(".mgpa-*.tmp"):
        remove(leftover)


def _columns(table: Table) -> Columns:
    return {"X": table.X, **table.columns}


def _counted(blocks: Iterable[Columns], expected: int, part: int) -> Iterable[Columns]:
    n = 0
    for block in blocks:
        n += len(block["X"])
        if n > expected:
            break
        yield block
    if n != expected:
        raise TableError(f"Part {part} has {expected} rows by plan; {'more' if n > expected else n} came.")
