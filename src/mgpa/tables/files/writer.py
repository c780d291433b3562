"""Writing a table part by part, from several processes if need be, such that it can be interrupted.

Everything is written beside its final place, in ``<name>.partial``, and put there when all parts are complete
(:mod:`mgpa.tables.files.drafts`). A writer for the same job finds what an interrupted one has finished.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from ..._common.files import replacing
from ..._common.remote import Given, Place, as_place
from ...errors import TableError
from ..columns import Columns
from ..table import Table
from .drafts import draft_of
from .layout import Head, chunk_rows
from .manifest import PartOf, sha256
from .opening import blocks_of, format_from_name, open_table, require_place
from .table_file import as_bounds


class TableWriter:
    """A table that is written in parts: a folder of Parquet files, or a Zarr group.

    Parameters
    ----------
    path : path or address
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
    partial : Path or RemotePath
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
        self, path: Given, like: Table, rows: Sequence[int], *, overwrite: bool = False, job: str = ""
    ) -> None:
        self.path, self.overwrite = as_place(path), overwrite
        require_place(self.path, overwrite, resume=True)
        self.format = format_from_name(self.path) if self.path.suffix else "parquet"
        if self.format == "npz":
            raise TableError("An .npz file cannot be written in parts; choose .parquet or .zarr.")
        self.like = like.take(slice(0, 0))
        self.bounds = as_bounds(list(rows) or [0])
        self.draft = draft_of(self.path)
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
        self.draft.begin(plan, self._create)

    def _create(self, table: Path) -> None:
        if self.format == "zarr":
            from .zarr import create_zarr

            create_zarr(table, _columns(self.like), Head.of(self.like), self._chunk(), self.bounds[-1])
        else:
            table.mkdir()

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
    def partial(self) -> Place:
        """Where unfinished output is."""
        return self.draft.partial

    @property
    def done(self) -> frozenset[int]:
        """Parts that are complete, from this writer or an interrupted one."""
        return self.draft.done

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
        with self._unless_gone(f"while part {part} was written into it"):
            self._write(part, [tables] if isinstance(tables, Table) else tables)

    @contextmanager
    def _unless_gone(self, when: str) -> Iterator[None]:
        """Say so if something is missing because another process was quicker."""
        try:
            yield
        except FileNotFoundError:
            if not self.draft.gone:
                raise
            raise FileExistsError(
                f"{self.partial} is gone {when}: another process that writes the same table has finished it, "
                f"or it was removed. See whether {self.path} is there."
            ) from None

    def _write(self, part: int, tables: Iterable[Table]) -> None:
        expected = self.bounds[part + 1] - self.bounds[part]
        blocks = _counted(blocks_of(tables, self.like), expected, part)
        if self.format == "parquet":
            from .parquet import write_parquet

            width = max(5, len(str(len(self.bounds))))
            place = PartOf(part, len(self.bounds) - 1, self.bounds[-1], self.name)
            with replacing(self.draft.table / f"part-{part:0{width}d}.parquet") as temporary:
                write_parquet(temporary, blocks, Head.of(self.like), place)
        else:
            from .zarr import fill_zarr, open_for_filling

            arrays, at = open_for_filling(self.draft.table), self.bounds[part]
            for block in blocks:
                fill_zarr(arrays, block, at)
                at += len(block["X"])
        self.draft.mark(part)

    def finish(self) -> Place:
        """Check that everything is there, move it to its place, and return that."""
        with self._unless_gone("before it was moved to its place"):
            self._finish()
        return self.path

    def _finish(self) -> None:
        missing = sorted(set(range(len(self.bounds) - 1)) - self.done)
        for part in [part for part in missing if self.bounds[part] == self.bounds[part + 1]]:
            self.write(part, self.like)
            missing.remove(part)
        if missing:
            raise TableError(
                f"{len(missing)} of {len(self.bounds) - 1} parts are not written yet (first: {missing[0]}). "
                f"What is done stays in {self.partial}."
            )
        self.draft.tidy()
        if self.format == "zarr":
            from .zarr import seal_zarr

            seal_zarr(self.draft.table, _columns(self.like), self.bounds[-1])
        open_table(self.draft.table)  # compares all of it with its manifest
        require_place(self.path, self.overwrite, resume=True)
        self.draft.publish(self.overwrite)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        # After an error the finished parts stay, for the next attempt.
        if kind is None:
            self.finish()


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
