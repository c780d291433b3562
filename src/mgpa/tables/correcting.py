"""Correcting a table from file to file: streamed, resumed if interrupted, or on a Dask cluster.

Corrected parts are written by :class:`~mgpa.tables.TableWriter`: complete or not at all, and never twice.
"""

from __future__ import annotations

import hashlib
from typing import Any

from .._common.files import require_distinct_paths
from .._common.remote import Given, Place, RemotePath, as_place
from ..maps import CorrectionMap
from ..maps.io.mapfile import map_digest
from .columns import require_columns
from .files import Part, TableWriter, open_table, write_table
from .files.opening import format_from_name, require_place
from .rows import correct, require_correctable
from .scale import RETRIES, batches, watched


def correct_file(
    m: CorrectionMap,
    table: Given,
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
    table : path or address
        Where the embeddings are. All other columns are copied.
    out : path or address
        A folder (a name without suffix) or ``.zarr``: written in parts, by several workers if there are,
        and resumed if interrupted. ``.parquet`` and ``.npz`` are single files, streamed here.
    overwrite : bool
        Replace what is there: a file, or a folder that holds a table by mgpa and nothing else.
    force : bool
        Correct a table that was corrected before, or whose sources the map does not know.
    client : dask.distributed.Client or None
        Where to work; None is here.
    verbose : bool
        Show progress.
    """
    file, out = open_table(table), as_place(out)
    require_distinct_paths(out, file.path)
    single = out.suffix in (".parquet", ".npz")
    require_place(out, overwrite, resume=not single)  # before the work, not after it
    if out.suffix:
        format_from_name(out)
    if not m.source_blind:
        require_columns(["source"], file.columns, file.path)
    if not force:
        require_correctable(m, file.info, file.survey().get("source"))
    if single:
        if client is not None:
            raise ValueError(
                f"{out.name} is one file; for a cluster name a folder, without suffix, or .zarr."
            )
        corrected = (
            correct(m, batch, force=True)
            for part in watched(file.parts, "correcting", verbose)
            for batch in batches(part)
        )
        write_table(corrected, out, overwrite=overwrite)
        return file.n_rows
    parts = file.parts
    like = correct(m, file.read(slice(0, min(1, file.n_rows))), force=True)
    place = file.path if isinstance(file.path, RemotePath) else file.path.resolve()
    job = f"{map_digest(m)} {place} {_stamp(file.path)}"
    rows = [part.n_rows for part in parts]
    with TableWriter(out, like, rows, overwrite=overwrite, job=job) as writer:
        todo = [i for i in range(len(parts)) if i not in writer.done]
        if client is None:
            for i in watched(todo, "correcting", verbose):
                write_corrected(m, parts[i], writer, i)
        else:
            _write_on(client, m, parts, writer, todo)
    return file.n_rows


def write_corrected(m: CorrectionMap, part: Part, writer: TableWriter, i: int) -> int:
    """Correct one part and write it; return its number."""
    writer.write(i, (correct(m, batch, force=True) for batch in batches(part)))
    return i


def _write_on(client: Any, m: CorrectionMap, parts: list[Part], writer: TableWriter, todo: list[int]) -> None:
    # The result of a task is made again if the workers that had it are lost; scattered data are not.
    the_map = client.submit(_itself, m, pure=False, retries=RETRIES)
    futures = [
        client.submit(write_corrected, the_map, parts[i], writer, i, pure=False, retries=RETRIES)
        for i in todo
    ]
    client.gather(futures)


def _itself(m: CorrectionMap) -> CorrectionMap:
    return m


def _stamp(path: Place) -> str:
    """Return what changes when a file, or any file of a folder, is written again."""
    if isinstance(path, RemotePath):
        objects = {"": path} if path.is_file() else path.files() if path.lists else _described_by(path)
        listing = repr([(name, place.listed()) for name, place in objects.items()])
        return hashlib.sha256(listing.encode()).hexdigest()
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        written = file.stat()
        digest.update(f"{file.relative_to(path)}\0{written.st_size} {written.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _described_by(group: RemotePath) -> dict[str, RemotePath]:
    """Return what describes a Zarr group whose other objects cannot be listed."""
    names = ("zarr.json", "X/mgpa.json", ".zmetadata")
    return {name: group / name for name in names if (group / name).exists()}
