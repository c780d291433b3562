"""Correcting a table from file to file: streamed, resumed if interrupted, or on a Dask cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .._common.files import require_distinct_paths
from .._common.remote import Given, as_place
from ..maps import CorrectionMap
from ..maps.check import RowCheck
from ..maps.io.mapfile import map_digest
from .columns import require_columns
from .files import Part, TableFile, format_from_name, open_table, require_place, write_table
from .rows import correct, require_correctable, rows_for, vectors
from .scale import RETRIES, batches, watched
from .table import Table

CHECKED_ROWS = 200_000


def correct_file(
    m: CorrectionMap,
    table: Given | TableFile,
    out: Given,
    *,
    overwrite: bool = False,
    force: bool = False,
    client: Any = None,
    verbose: bool = False,
) -> int:
    """Correct a table from file to file and return the number of rows.

    Parameters
    ----------
    m : CorrectionMap
        The correction; source-aware maps need the table's source column.
    table : path, address or TableFile
        Where the embeddings are. All other columns are copied.
    out : path or address
        A folder (a name without suffix): written in parts, by several workers if there are. After an
        interruption, parts by the same map from the same rows, by their digest, are kept. ``.parquet``,
        ``.npz`` and ``.csv`` are single files, streamed here.
    overwrite : bool
        Replace what is there: a file, or the table of a folder, whose other files stay.
    force : bool
        Correct a table that was corrected before, or whose sources the map does not know.
    client : dask.distributed.Client or None
        Where to work; None is here.
    verbose : bool
        Show progress.
    """
    file = table if isinstance(table, TableFile) else open_table(table)
    place = as_place(out)
    require_distinct_paths(place, file.path)
    single = format_from_name(place) != "folder"
    require_place(place, overwrite, folder=not single)  # before the work, not after it
    if not m.source_blind:
        require_columns(["source"], file.columns, file.path)
    if not force:
        require_correctable(m, file.info, file.survey().get("source"))
    like = correct(m, file.read(slice(0, min(1, file.n_rows))), force=True).take(slice(0, 0))
    if single:
        if client is not None:
            raise ValueError(f"{place.name} is one file; for a cluster name a folder, without suffix.")
        write_table(_corrected(m, file, like, verbose), place, overwrite=overwrite)
        return file.n_rows
    from .writer import TableWriter

    parts = file.parts
    rows = [part.n_rows for part in parts]
    with TableWriter(place, like, rows, overwrite=overwrite, job=map_digest(m)) as writer:
        if client is None:
            for i in watched(range(len(parts)), "correcting", verbose):
                write_corrected(m, parts[i], writer, i)
        else:
            # The result of a task is made again if the workers that had it are lost; scattered data are not.
            the_map = client.submit(lambda: m, pure=False, retries=RETRIES)
            futures = [
                client.submit(write_corrected, the_map, part, writer, i, pure=False, retries=RETRIES)
                for i, part in enumerate(parts)
            ]
            writer.written.update(enumerate(client.gather(futures)))
    return file.n_rows


def check_table(m: CorrectionMap, table: Given | TableFile) -> RowCheck:
    """Say whether a table's rows are like those a map was fitted on: all of them, or of parts spread evenly.

    See :meth:`mgpa.CorrectionMap.check`.
    """
    file = table if isinstance(table, TableFile) else open_table(table)
    every = -(-file.n_rows // CHECKED_ROWS) or 1
    tables = [rows_for(m, batch) for part in file.parts[::every] for batch in batches(part)]
    X = np.concatenate([vectors(t, m.info.token_layout) for t in tables] or [np.zeros((0, m.n_features))])
    sources = [t.source for t in tables if t.source is not None]
    return m.check(X, np.concatenate(sources) if sources and len(sources) == len(tables) else None)


def _corrected(m: CorrectionMap, file: TableFile, like: Table, verbose: bool) -> Iterator[Table]:
    yield like  # its types count, even of a table without rows
    for part in watched(file.parts, "correcting", verbose):
        for batch in batches(part):
            yield correct(m, batch, force=True)


def write_corrected(m: CorrectionMap, part: Part, writer: Any, i: int) -> Any:
    """Correct one part and write it, unless an interrupted run has; return what the index says about it."""

    def digest_of_rows() -> str:
        digest = hashlib.sha256()
        for _ in _digested(batches(part), digest):
            pass
        return digest.hexdigest()

    digest = hashlib.sha256()
    corrected = (correct(m, batch, force=True) for batch in _digested(batches(part), digest))
    return writer.find(i, digest_of_rows) or writer.write(i, corrected, digest.hexdigest)


def _digested(tables: Iterable[Table], digest: Any) -> Iterator[Table]:
    """Yield tables, and have a digest see everything in them."""
    for table in tables:
        for name, values in {"X": table.X, **table.columns}.items():
            digest.update(f"{name}:{values.dtype.str}:{values.shape};".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
        yield table
