"""A folder of Parquet files that is written part by part; the index is written last."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self

from .._common.files import replacing, write_atomically
from .._common.remote import Given, Place, RemotePath, as_place
from ..errors import OutputExists, TableError
from .carried import arrow_type
from .layout import INDEX, PART_NAME, blocks_of, reading, require_place, write_head
from .parquet import MADE_FROM, IndexedPart, column_for_each, index_of, opened, read_index, write_parquet
from .table import Table


class TableWriter:
    """A folder of Parquet files that is written part by part; it becomes a table after the last part.

    Parameters
    ----------
    path : path or address
        A folder: new, empty, or with a table by mgpa.
    like : Table
        A table with the columns, types and ``info`` of the new table; its rows do not matter.
    rows : sequence of int or None
        Number of rows of every part; None is one part with any number of rows.
    overwrite : bool
        Replace an existing table after the last part is written. Other files are kept.
    as_columns : bool
        Write one column per feature, with the names in ``info``, instead of one column of lists.
    job : str
        An id of the job that determines the corrected rows, such as a checksum of a map. :meth:`find` finds
        parts that an interrupted writer of the same job left. Empty: no such parts.

    Notes
    -----
    A writer can be sent to other processes, which write different parts at the same time. One process creates
    it, collects the results of :meth:`write` in ``written`` and calls :meth:`finish`.
    """

    def __init__(
        self,
        path: Given,
        like: Table,
        rows: Sequence[int] | None = None,
        *,
        overwrite: bool = False,
        as_columns: bool = False,
        job: str = "",
    ) -> None:
        self.path, self.overwrite = as_place(path), overwrite
        self.names = column_for_each(like) if as_columns else None
        require_place(self.path, overwrite, folder=True)
        self.like = like.take(slice(0, 0))
        self.rows = [None] if rows is None else list(rows) or [0]
        self.head = write_head(like.X.shape[1:], like.info)
        types = {name: arrow_type(values) for name, values in self.like.columns.items()}
        plan = json.dumps(
            [self.rows, str(like.X.dtype), types, self.head, self.names, job or secrets.token_hex(16)]
        )
        self.job = hashlib.sha256(plan.encode()).hexdigest()[:16]
        self.written: dict[int, IndexedPart] = {}

    def find(self, part: int, made_from: Callable[[], str]) -> IndexedPart | None:
        """Return a finished part of an interrupted writer of this job, if it was made from the same rows.

        ``made_from`` returns the checksum of the rows; it is called only if a part was found.
        """
        start = f"part-{part:05d}-{self.job}-"
        finished = [file for file in self._files() if file.name.startswith(start)]
        digest = made_from().encode() if finished else b""
        for file in finished:
            with suppress(TableError, OSError), reading(file), opened(file) as (parquet, footer, _):
                rows, made = parquet.metadata.num_rows, (parquet.metadata.metadata or {}).get(MADE_FROM)
                if made == digest and rows == self.rows[part]:
                    self.written[part] = {"name": file.name, "rows": rows, "sha256": footer}
                    return self.written[part]
        return None

    def write(
        self, part: int, tables: Table | Iterable[Table], made_from: Callable[[], str] | None = None
    ) -> IndexedPart:
        """Write one part from one or several tables; the part becomes visible when it is complete.

        ``made_from`` returns the checksum of the input rows; it is called after the tables are written.
        """
        if not 0 <= part < len(self.rows):
            raise TableError(f"No part {part}; rows lists {len(self.rows)} parts.")
        blocks = blocks_of([tables] if isinstance(tables, Table) else tables, self.like)
        if not isinstance(self.path, RemotePath):
            self.path.mkdir(exist_ok=True)
        name = f"part-{part:05d}-{self.job}-{secrets.token_hex(8)}.parquet"
        try:
            with replacing(self.path / name, new=True) as temporary:
                rows, digest = write_parquet(temporary, blocks, self.head, self.names, made_from)
                if self.rows[part] not in (None, rows):
                    raise TableError(f"Part {part} must have {self.rows[part]} rows; got {rows}.")
        except BaseException:
            with suppress(OSError, AttributeError):
                self.path.rmdir()  # type: ignore[union-attr]  # if nothing else is in it
            raise
        self.written[part] = {"name": name, "rows": rows, "sha256": digest}
        return self.written[part]

    def _files(self) -> list[Place]:
        """Return all parts in the folder, of any writer."""
        try:
            return [file for file in self.path.iterdir() if PART_NAME.fullmatch(file.name)]
        except FileNotFoundError:
            return []

    def finish(self) -> Place:
        """Write the index of the table; remove all parts that are not in the index."""
        absent = [part for part in range(len(self.rows)) if part not in self.written]
        for part in [part for part in absent if self.rows[part] == 0]:
            self.write(part, self.like)
            absent.remove(part)
        if absent:
            raise TableError(
                f"{len(absent)} of {len(self.rows)} parts are not written yet (first: {absent[0]}). Finished "
                f"parts are kept in {self.path}."
            )
        parts = [self.written[part] for part in range(len(self.rows))]
        keep = {part["name"] for part in parts}
        with _finishing_alone(self.path):
            if lost := keep - {file.name for file in self._files()}:
                raise TableError(
                    f"{len(lost)} parts of {self.path} are gone: another process wrote a table there. Run "
                    "this again, or name another output."
                )
            try:
                write_atomically(self.path / INDEX, index_of(parts), new=not self.overwrite)
            except FileExistsError:
                keep = {part["name"] for part in read_index(self.path) or ()}
                raise OutputExists(self.path) from None
            finally:
                for file in self._files():
                    if file.name not in keep:
                        file.unlink(missing_ok=True)
        return self.path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        # After an error, finished parts are kept for the next attempt.
        if kind is None:
            self.finish()


@contextmanager
def _finishing_alone(folder: Place) -> Iterator[None]:
    """Allow one process at a time to finish a folder on this machine; a killed process releases the lock."""
    if isinstance(folder, RemotePath) or os.name != "posix":
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
