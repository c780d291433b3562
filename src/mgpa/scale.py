"""Tables larger than memory: fit and apply part by part, here or on a Dask cluster, with the same bits.

Closed-form methods reduce every part to moments, merged by :mod:`mgpa.part_jobs`. Iterative ones train their
critics on a draw of rows and take standardisation and anchors from the moments of all (:mod:`mgpa.all_rows`).
Corrected parts are written by :class:`~mgpa.tablefiles.TableWriter`: complete or not at all, and never twice.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from .all_rows import FileRows
from .mapfile import map_digest
from .maps import CorrectionMap
from .on_tables import corrected_rows, fit_on, vectors
from .pairs import check_pair_id, is_paired
from .part_jobs import RETRIES, batches, fit_batches, reduce_parts, watched
from .streaming import MomentEstimator
from .tablefiles import Part, TableError, TableFile, TableWriter, open_table, write_table
from .tables import Table
from .tokens import TokenMean


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
        their map says so; of them, iterative MGPA still standardises, and regresses its anchors, on all rows,
        which costs a pass over the table for every stage.
    table : path
        With a role column, FIT rows are fitted on and VAL rows, at most ``max_rows``, are shown to methods
        that stop by them.
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
    return _fit_rows(model, file, views, max_rows, random_state, client)


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


def _roles(file: TableFile) -> Any:
    """Return every row's role; without that column, all rows are fitted on."""
    if "role" not in file.columns:
        return np.full(file.n_rows, "FIT")
    return np.char.upper(file.read_columns("role")["role"].astype(str))


def _fit_moments(model: Any, file: TableFile, views: Any, client: Any, verbose: bool) -> Any:
    # Pairs of another table are shown once, together with the first rows.
    first = int(np.argmax(_roles(file) == "FIT")) if views is not None else 0
    jobs = [
        partial(summarise, model, part, views if part.start <= first < part.stop else None)
        for part in file.parts
    ]
    total = reduce_parts(jobs, merged, client=client, verbose=verbose)
    if total is None:
        raise TableError(f"{file.path} has no FIT rows; its roles are something else.")
    return _remember_tokens(total, file)


def summarise(model: Any, part: Part, views: Any = None) -> Any:
    """Return a clone of the model that has seen one part's FIT rows, or None if there are none."""
    own, seen = clone(model), False
    for rows in fit_batches(part):
        known = {"pairs": views} if views is not None else {"pair_id": rows.pair_id}
        own.partial_fit(vectors(rows), rows.label, source=rows.source, **known)
        seen, views = True, None
    return own if seen else None


def merged(a: Any, b: Any) -> Any:
    """Return what two partly fitted models have seen together, leaving both as they are."""
    if a is None or b is None:
        return b if a is None else a
    return copy.copy(a).merge(b)


def _fit_rows(model: Any, file: TableFile, views: Any, max_rows: int, random_state: int, client: Any) -> Any:
    columns = file.read_columns(*[name for name in ("source", "pair_id") if name in file.columns])
    role = _roles(file)
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
    held = np.flatnonzero(role == "VAL")
    judges = draw_rows(columns["source"][held], max_rows, random_state)
    val = file.read(held[judges]) if len(held) else None
    notes, seed = [], f", drawn with seed {random_state}"
    if len(chosen) == len(available):
        own = fit_on(model, fit, val, views)
    elif has_fit_parameter(model, "all_rows"):
        own = _fit_with_all(model, fit, val, views, FileRows(file, client))
        notes += [f"critics fitted on {len(chosen)} of {len(available)} FIT rows{seed}"]
        notes += ["standardisation and anchors on all of them"]
    else:
        own = fit_on(model, fit, val, views)
        notes += [f"fitted on {len(chosen)} of {len(available)} FIT rows{seed}"]
    if len(judges) < len(held):
        notes += [f"held-out rows are {len(judges)} of {len(held)} VAL rows{seed}"]
    if notes:
        target = own.estimator_ if isinstance(own, TokenMean) else own
        target.map_ = target.map_.with_notes("; ".join(notes))
    return own


def _fit_with_all(model: Any, fit: Table, val: Table | None, views: Any, everyone: FileRows) -> Any:
    """Fit on drawn rows and the moments of all; the latter are of token means, if there are tokens."""
    means = [None if rows is None else replace(rows, X=vectors(rows)) for rows in (fit, val)]
    own = fit_on(model, means[0], means[1], views, all_rows=everyone)  # type: ignore[arg-type]
    if fit.X.ndim == 2:
        return own
    tokens = TokenMean(model)
    tokens.estimator_, tokens.n_tokens_, tokens.n_features_in_ = own, fit.X.shape[1], fit.X.shape[2]
    return tokens


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
        corrected = (
            correct(m, batch)
            for part in watched(file.parts, "correcting", verbose)
            for batch in batches(part)
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
            for i in watched(todo, "correcting", verbose):
                write_corrected(m, parts[i], writer, i)
        else:
            _write_on(client, m, parts, writer, todo)
    return file.n_rows


def correct(m: CorrectionMap, table: Table) -> Table:
    """Return the table with corrected embeddings and everything else as it was."""
    info = table.info | {"corrected_by": map_digest(m)[:16]}
    if m.coordinates is not None:
        info["coordinates"] = m.coordinates.digest
    return replace(table, X=corrected_rows(m, table), info=info)


def write_corrected(m: CorrectionMap, part: Part, writer: TableWriter, i: int) -> int:
    """Correct one part and write it; return its number."""
    writer.write(i, (correct(m, batch) for batch in batches(part)))
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
