"""A table in a file: opened without reading the embeddings, then read whole, in parts or in batches."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from ..._common.files import lies_there
from ..._common.remote import Place, RemotePath, redacted
from ...errors import TableError
from ...pairs import is_paired
from ..columns import COLUMNS, Columns, check_columns, require_columns
from ..table import Table
from .layout import MAX_CHUNK_ROWS, Head, Layout, block_rows

# A file that unfolds into more than this, and into more than a hundred times its size, is no honest table:
# embeddings hardly compress.
MAX_UNFOLDED_BYTES = 2**26
MAX_EXPANSION = 100


@dataclass(frozen=True)
class Part:
    """Rows of a file that can be read alone; workers take one each.

    Parameters
    ----------
    file : TableFile
    name : str
        The same whenever the same file is opened.
    start, stop : int
        Its rows.
    """

    file: TableFile
    name: str
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
        if rows < 1:
            raise ValueError(f"max_rows is {max_rows}; a batch has at least one row.")
        for start, columns in self.file.scan(self.start, self.stop, self.file.layout_names, rows):
            yield self.file.make_table(columns, start)


@dataclass(frozen=True)
class TableFile(ABC):
    """A table in a file. Only what describes it is in memory; it can be sent to other processes.

    Parameters
    ----------
    path : Path or RemotePath
    layout : Layout
        Which of the file's arrays make the table.
    head : Head or None
        What mgpa wrote about the table; None if another tool wrote the file.
    bounds : tuple of int
        Rows at which a part begins, and the number of rows.
    verified : bool
        Whether the file has a manifest, which says what mgpa wrote and was compared with what is there.
        Files by other tools have none: a column or a part of them may have been lost without a trace.
    """

    format: ClassVar[str]

    path: Place
    layout: Layout
    head: Head | None
    bounds: tuple[int, ...]
    verified: bool

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
    def info(self) -> dict[str, Any]:
        """What the writer kept about where the table comes from, and names that the features have here."""
        info, names = {} if self.head is None else self.head.info, self.layout.feature_names
        return info if names is None else info | {"feature_names": names}

    @property
    def block_rows(self) -> int:
        """How many rows make about 32 MiB."""
        return block_rows(math.prod(self.shape) * self.dtype.itemsize)

    @property
    def layout_names(self) -> list[str]:
        """Everything of the file that the table needs, by its name there."""
        return [*self.layout.embedding, *self.layout.columns.values()]

    @property
    def parts(self) -> list[Part]:
        """Pieces that can be read independently, in order."""
        return [
            Part(self, self.part_name(i), a, b) for i, (a, b) in enumerate(pairwise(self.bounds)) if b > a
        ]

    @abstractmethod
    def part_name(self, i: int) -> str:
        """Return the name of a part."""

    @abstractmethod
    def arrays(self, start: int, stop: int, names: list[str], max_rows: int) -> Iterator[Columns]:
        """Yield arrays of the file, by their name there, at most ``max_rows`` rows at a time.

        No rows are one batch without rows.
        """

    @abstractmethod
    def files(self) -> set[Place]:
        """Return every file that the table consists of."""

    def read(self, rows: Any = None) -> Table:
        """Return a table in memory.

        Parameters
        ----------
        rows : slice, positions, mask or None
            None is all of them. Rows come back in the order asked for.
        """
        if rows is None:
            rows = slice(None)
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(self.n_rows)
            return self.make_table(self.gather(start, max(start, stop)), start)
        wanted = np.arange(self.n_rows)[rows]
        distinct, order = np.unique(wanted, return_inverse=True)
        pieces = []
        for part in self.parts:
            inside = distinct[(distinct >= part.start) & (distinct < part.stop)]
            if len(inside):
                first, last = int(inside[0]), int(inside[-1])
                for start, columns in self.scan(first, last + 1, self.layout_names, self.block_rows):
                    here = inside[(inside >= start) & (inside < start + len(columns["X"]))] - start
                    pieces.append({name: values[here] for name, values in columns.items()})
        if not pieces:
            return self.read(slice(0, 0))
        joined = {name: np.concatenate([piece[name] for piece in pieces])[order] for name in pieces[0]}
        return self.make_table(joined, None)

    def batches(self, max_rows: int | None = None) -> Iterator[Table]:
        """Yield tables of at most ``max_rows`` rows; None takes about 32 MiB of embeddings at a time."""
        for part in self.parts:
            yield from part.batches(max_rows)

    def read_columns(self, *names: str) -> Columns:
        """Return columns without reading the embeddings; no names: all columns.

        They are as the file has them: neither roles nor pairs have been checked.
        """
        require_columns(names, self.layout.columns)
        wanted = names or tuple(self.layout.columns)
        if not wanted:
            return {}
        stored = [self.layout.columns[name] for name in wanted]
        pieces = [columns for _, columns in self.scan(0, self.n_rows, stored, 4 * MAX_CHUNK_ROWS)]
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in wanted}

    def check(self) -> Columns:
        """Check roles and pairs over the whole file, which batches cannot; return the columns involved."""
        known = [name for name in COLUMNS if name in self.layout.columns]
        with reading(self.path):
            return check_columns(self.read_columns(*known) if known else {}, self.n_rows)

    def survey(self) -> Columns:
        """Check roles and pairs over the whole file in bounded memory; return the rows that this takes.

        One row of every source, participant and role, and all paired rows: enough to tell who is in the
        file, from which sources, and whether anybody or any event is there twice.
        """
        names = [name for name in COLUMNS if name in self.layout.columns]
        stored = [self.layout.columns[name] for name in names]
        pieces = []
        for _, raw in self.scan(0, self.n_rows, stored, 4 * MAX_CHUNK_ROWS) if names else ():
            with reading(self.path):
                columns = check_columns(raw, len(next(iter(raw.values()))))
            kinds = [columns[name] for name in ("source", "participant", "role") if name in columns]
            rows = np.zeros(0, np.intp)
            if kinds:
                coded = [np.unique(values, return_inverse=True) for values in kinds]
                sizes = [max(1, len(distinct)) for distinct, _ in coded]
                together = np.ravel_multi_index([codes for _, codes in coded], sizes)
                rows = np.unique(together, return_index=True)[1]
            if "pair_id" in columns:
                rows = np.union1d(rows, np.flatnonzero(is_paired(columns["pair_id"])))
            pieces.append({name: values[rows] for name, values in columns.items()})
        joined = {name: np.concatenate([piece[name] for piece in pieces]) for name in names}
        try:
            return check_columns(joined, len(joined[names[0]])) if pieces else {}
        except ValueError:
            self.check()  # says the same, with the rows' true numbers
            raise

    def gather(self, start: int, stop: int) -> Columns:
        """Return rows, the embeddings written straight into one array."""
        pieces: list[Columns] = []
        X: Any = None
        for first, columns in self.scan(start, stop, self.layout_names, self.block_rows):
            part = columns.pop("X")
            if len(part) == stop - start:
                return {"X": part, **columns}
            if X is None:
                X = np.empty((stop - start, *part.shape[1:]), part.dtype)
            X[first - start : first - start + len(part)] = part
            pieces.append(columns)
        return {"X": X, **{name: np.concatenate([p[name] for p in pieces]) for name in pieces[0]}}

    def scan(self, start: int, stop: int, names: list[str], max_rows: int) -> Iterator[tuple[int, Columns]]:
        """Yield the first row of each batch and its columns, by their name in the table."""
        at = start
        with reading(self.path):
            for raw in self.arrays(start, stop, names, max_rows):
                columns = self.layout.columns_of(raw)
                n = len(next(iter(raw.values())))
                yield at, columns
                at += n
            if at != stop:
                raise TableError(f"damaged: rows {start} to {stop} were asked for, {at - start} are there.")

    def make_table(self, columns: Columns, start: int | None) -> Table:
        """Return a table of some rows, or say in which of them it is wrong."""
        n = len(columns["X"])
        where = "" if start is None or (start == 0 and n == self.n_rows) else f", rows from {start} on"
        with reading(self.path, where):
            return Table.from_columns(columns, self.info)


@contextmanager
def reading(path: Place, where: str = "") -> Iterator[None]:
    """Turn whatever goes wrong with a file into a :class:`TableError` that names it."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except TableError as error:
        named = () if str(error).startswith(str(path)) else (f"{path}{where}: ",)
        raise TableError(*named, *error.parts) from error.__cause__
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not lies_there(path):
            raise
        if isinstance(path, RemotePath):
            raise TableError(_named(path, where, str(error))) from None
        raise TableError(f"{path}: cannot be read ({error.strerror or error}).") from error
    # One kind of error for every bad file is the promise, and a file can be bad in many parsers' ways.
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        if isinstance(path, RemotePath):
            raise TableError(_named(path, where, reason)) from None
        raise TableError(f"{path}{where}: {reason}") from error


def _named(path: RemotePath, where: str, reason: str) -> str:
    """Return what is wrong with an object, by its address, without what is secret in either."""
    reason = redacted(reason)
    return reason if str(path) in reason else f"{path}{where}: {reason}"


def require_plausible(claimed: int, stored: int) -> None:
    """Raise, before any memory is taken, if a file claims far more numbers than it can hold.

    Parameters
    ----------
    claimed : int
        Bytes that reading it would take, by its own account.
    stored : int
        Bytes on disk.
    """
    if claimed > max(MAX_UNFOLDED_BYTES, MAX_EXPANSION * stored):
        raise TableError(
            f"claims {claimed} bytes of numbers and text, and has {stored} on disk; it is damaged, or made "
            "to exhaust memory."
        )


def as_bounds(sizes: Iterable[int]) -> tuple[int, ...]:
    """Return where parts of these sizes begin, and where the last ends."""
    return (0, *np.cumsum(list(sizes), dtype=np.int64).tolist())
