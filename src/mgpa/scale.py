"""Tables larger than memory: fit and apply part by part, here or on a Dask cluster, with the same bits.

Closed-form methods reduce every part to moments, which are merged as a tree whose shape depends on the number
of parts only; so one process, two workers, or a worker lost on the way give the same map. Corrected parts are
written by :class:`~mgpa.tablefiles.TableWriter`: complete or not at all, and never twice.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from ._progress import progress
from .mapfile import map_digest
from .maps import CorrectionMap
from .on_tables import corrected_rows, fit_on, vectors
from .pairs import check_pair_id, is_paired
from .streaming import MomentEstimator
from .tablefiles import Part, TableError, TableFile, TableWriter, open_table, write_table
from .tables import Table
from .tokens import TokenMean

RETRIES = 3


@contextmanager
def connect(scheduler: str | None) -> Iterator[Any]:
    """Yield a Dask client: of a scheduler's address, of a cluster on this machine ("local"), or None.

    Parameters
    ----------
    scheduler : str or None
        ``tcp://host:8786``, "local", or None to do without Dask.
    """
    if scheduler is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("A cluster needs Dask: pip install 'mgpa[scale]'.") from None
    with Client(**({} if scheduler == "local" else {"address": scheduler})) as client:
        yield client


def fit_file(
    model: Any,
    table: Any,
    *,
    pairs: Any = None,
    max_rows: int = 200_000,
    random_state: int = 0,
    client: Any = None,
    verbose: bool = False,
) -> Any:
    """Fit a method to a table in a file.

    Parameters
    ----------
    model : estimator
        Methods that stream (see :func:`mgpa.baselines.available`) see every row in bounded memory. The others
        are fitted on at most ``max_rows`` rows, all paired ones and others drawn for every source alike, and
        their map says so.
    table : path
        With a role column, FIT rows are fitted on and VAL rows are shown to methods that stop by them.
    pairs : path or None
        Another table with paired rows (two sources), if the pairs are not in the first.
    max_rows, random_state : int
        Rows for methods that do not stream, and the seed they are drawn with.
    client : dask.distributed.Client or None
        Where to work; None is here.
    verbose : bool
        Show progress.

    Returns
    -------
    estimator
        Fitted; ``to_map()`` gives the map.
    """
    file = open_table(table)
    _require(file, "source")
    views = None if pairs is None else _views(open_table(pairs).read())
    if isinstance(model, MomentEstimator):
        return _fit_moments(model, file, views, client, verbose)
    return _fit_rows(model, file, views, max_rows, random_state)


def _require(file: TableFile, *names: str) -> None:
    missing = [name for name in names if name not in file.columns]
    if missing:
        raise TableError(
            f"{file.path} has no column {', '.join(missing)}; it has {', '.join(file.columns) or 'none'}."
        )


def _views(table: Table) -> tuple[Any, Any]:
    table = table if table.role is None else table.rows("FIT")  # other people are for judging
    found = table.require("source", "pair_id").paired_views()
    if found is None:
        raise TableError(
            "The table of pairs has no events seen by two sources; check its pair_id and source."
        )
    rows = vectors(table)
    return rows[found[0]], rows[found[1]]


def _fit_moments(model: Any, file: TableFile, views: Any, client: Any, verbose: bool) -> Any:
    parts = file.parts
    jobs = [partial(summarise, model, part, views if i == 0 else None) for i, part in enumerate(parts)]
    if client is None:
        merged = merge_tree(job() for job in _watched(jobs, "reading", verbose))
    else:
        merged = _merge_on(client, jobs)
    if merged is None:
        raise TableError(f"{file.path} has no FIT rows; its roles are something else.")
    return _remember_tokens(merged, file)


def summarise(model: Any, part: Part, views: Any = None) -> Any:
    """Return a clone of the model that has seen one part's FIT rows, or None if there are none."""
    own, seen = clone(model), False
    for batch in _batches(part):
        rows = batch if batch.role is None else batch.rows("FIT")
        if not len(rows):
            continue
        known = {"pairs": views} if views is not None else {"pair_id": rows.pair_id}
        own.partial_fit(vectors(rows), rows.label, source=rows.source, **known)
        seen, views = True, None
    return own if seen else None


def merged(a: Any, b: Any) -> Any:
    """Return what two partly fitted models have seen together, leaving both as they are."""
    if a is None or b is None:
        return b if a is None else a
    return copy.copy(a).merge(b)


def merge_tree(models: Iterable[Any]) -> Any:
    """Merge in pairs, then pairs of pairs, holding no more than one model of each level."""
    levels: list[tuple[int, Any]] = []
    for model in models:
        level, total = 0, model
        while levels and levels[-1][0] == level:
            level, total = level + 1, merged(levels.pop()[1], total)
        levels.append((level, total))
    total = None
    for _, left in reversed(levels):
        total = left if total is None else merged(left, total)
    return total


def _merge_on(client: Any, jobs: Sequence[Callable[[], Any]]) -> Any:
    """Do the same on a cluster: neighbours are merged where they are."""
    futures = [client.submit(job, pure=False, retries=RETRIES) for job in jobs]
    while len(futures) > 1:
        odd = [futures[-1]] if len(futures) % 2 else []
        futures = [
            client.submit(merged, a, b, pure=False, retries=RETRIES)
            for a, b in zip(futures[0::2], futures[1::2], strict=False)
        ] + odd
    return futures[0].result() if futures else None


def _fit_rows(model: Any, file: TableFile, views: Any, max_rows: int, random_state: int) -> Any:
    wanted = ("role", "source", "pair_id")
    columns = file.read_columns(*[name for name in wanted if name in file.columns])
    role = np.char.upper(columns["role"].astype(str)) if "role" in columns else np.full(file.n_rows, "FIT")
    available = np.flatnonzero(role == "FIT")
    if not len(available):
        raise TableError(f"{file.path} has no FIT rows; its roles are {', '.join(np.unique(role))}.")
    # Paired rows are few, and a pair that is torn apart is none: all of them stay.
    paired = np.zeros(len(available), bool)
    if views is None and "pair_id" in columns:
        paired = is_paired(check_pair_id(columns["pair_id"], file.n_rows))[available]
    loose = np.flatnonzero(~paired)
    drawn = draw_rows(columns["source"][available][loose], max(max_rows - int(paired.sum()), 0), random_state)
    chosen = np.sort(np.concatenate([np.flatnonzero(paired), loose[drawn]]))
    fit = file.read(available[chosen])
    val = file.read(np.flatnonzero(role == "VAL")) if (role == "VAL").any() else None
    own = fit_on(model, fit, val, views)
    if len(chosen) < len(available):
        notes = f"fitted on {len(chosen)} of {len(available)} FIT rows, drawn with seed {random_state}"
        target = own.estimator_ if isinstance(own, TokenMean) else own
        target.map_ = target.map_.with_notes(notes)
    return own


def draw_rows(source: Any, max_rows: int, random_state: int) -> Any:
    """Return at most ``max_rows`` positions, as many of every source as there are, in order.

    Examples
    --------
    >>> import numpy as np
    >>> source = np.array(["a"] * 10 + ["b"] * 2)
    >>> np.bincount(source[draw_rows(source, 6, 0)] == "b").tolist()
    [4, 2]
    """
    n = len(source)
    if n <= max_rows:
        return np.arange(n)
    rng = np.random.default_rng(random_state)
    order = rng.permutation(n)
    # Take sources in turn, each row by its place in its own source's queue.
    codes = np.unique(source, return_inverse=True)[1][order]
    place = np.empty(n, np.int64)
    for code in range(codes.max() + 1):
        place[codes == code] = np.arange((codes == code).sum())
    return np.sort(order[np.argsort(place, kind="stable")[:max_rows]])


def _remember_tokens(model: Any, file: TableFile) -> Any:
    """Let the map of token means say how many tokens a mean is of."""
    if len(file.shape) == 2:
        m = model.map_
        model._solved = replace(m, info=replace(m.info, n_tokens=file.shape[0]))
    return model


def apply_file(
    m: CorrectionMap,
    table: Any,
    out: Any,
    *,
    overwrite: bool = False,
    client: Any = None,
    verbose: bool = False,
) -> int:
    """Correct a table from file to file and return the number of rows.

    Parameters
    ----------
    m : CorrectionMap
        The correction; source-aware maps need the table's source column.
    table : path
        Where the embeddings are. All other columns are copied.
    out : path
        A folder (a name without suffix) or ``.zarr``: written in parts, by several workers if there are,
        and resumed if interrupted. ``.parquet`` and ``.npz`` are single files, streamed here.
    overwrite : bool
        Replace what is there.
    client : dask.distributed.Client or None
        Where to work; None is here.
    verbose : bool
        Show progress.
    """
    file, out = open_table(table), Path(out)
    if out.exists() and out.resolve() == file.path.resolve():
        raise ValueError(f"{out} is the table to be corrected; name another output, lest it be lost.")
    if not m.source_blind:
        _require(file, "source")
    if out.suffix in (".parquet", ".npz"):
        if client is not None:
            raise ValueError(
                f"{out.name} is one file; for a cluster name a folder, without suffix, or .zarr."
            )
        batches = [partial(_batches, part) for part in file.parts]
        corrected = (
            correct(m, batch) for read in _watched(batches, "correcting", verbose) for batch in read()
        )
        write_table(corrected, out, overwrite=overwrite)
        return file.n_rows
    parts = file.parts
    like = correct(m, file.read(slice(0, min(1, file.n_rows))))
    job = f"{map_digest(m)} {file.path.resolve()} {_stamp(file.path)}"
    rows = [part.n_rows for part in parts]
    with TableWriter(out, like, rows, overwrite=overwrite, job=job) as writer:
        todo = [i for i in range(len(parts)) if i not in writer.done]
        if client is None:
            for i in _watched(todo, "correcting", verbose):
                write_corrected(m, parts[i], writer, i)
        else:
            _write_on(client, m, parts, writer, todo)
    return file.n_rows


def _batches(part: Part) -> Iterator[Table]:
    """Yield about 8 MiB at a time: what is made of a batch, in float64 and copies, is several times that."""
    return part.batches(max(1, part.file.block_rows // 4))


def correct(m: CorrectionMap, table: Table) -> Table:
    """Return the table with corrected embeddings and everything else as it was."""
    info = table.info | {"corrected_by": map_digest(m)[:16]}
    return replace(table, X=corrected_rows(m, table), info=info)


def write_corrected(m: CorrectionMap, part: Part, writer: TableWriter, i: int) -> int:
    """Correct one part and write it; return its number."""
    writer.write(i, (correct(m, batch) for batch in _batches(part)))
    return i


def _write_on(client: Any, m: CorrectionMap, parts: list[Part], writer: TableWriter, todo: list[int]) -> None:
    everywhere = client.scatter(m, broadcast=True)
    futures = [
        client.submit(write_corrected, everywhere, parts[i], writer, i, pure=False, retries=RETRIES)
        for i in todo
    ]
    client.gather(futures)


def _stamp(path: Path) -> str:
    """Return what changes when a file or folder of files is written again."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return " ".join(f"{p.name}:{p.stat().st_size}:{p.stat().st_mtime_ns}" for p in files[:1000])


def _watched(steps: list[Any], label: str, verbose: bool) -> Iterator[Any]:
    for i in progress(range(len(steps)), label, verbose and sys.stderr.isatty()):
        yield steps[i]
