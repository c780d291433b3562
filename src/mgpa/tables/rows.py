"""Apply maps to the rows of tables, and recognise rows that were in a fit.

Fits, files and audits share these functions. A map stores hashes of all participants' names and the 4096
smallest hashes of rows, from which rows cannot be recovered. Fitting rows are therefore recognised even under
another participant's name: all rows of fits with at most 4096 rows, otherwise a sample.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.files import require_distinct_paths
from .._common.remote import Given, as_place
from ..coordinates import Coordinates
from ..errors import TableError
from ..estimators.tokens import token_rows, transform_tokens
from ..labels import encode_source, source_names
from ..maps import CorrectionMap
from ..maps.check import RowCheck
from ..maps.io.mapfile import map_digest
from .carried import Carried
from .columns import feature_names, require_columns
from .files import TableFile, format_from_name, open_table, write_table
from .layout import require_place
from .scale import RETRIES, batches, watched
from .table import Table

Digests = NDArray[np.uint64]
#: Number of row hashes that a map keeps (the smallest).
KEPT = 4096
CHECKED_ROWS = 200_000


def open_for(m: CorrectionMap, table: Given | Sequence[Given] | TableFile, **choice: Any) -> TableFile:
    """Open a table for a map; columns that are not named are those of the fit.

    ``choice`` is for :func:`mgpa.tables.open_table`. Without ``embedding``, and if no column is an embedding,
    the features have the names that the map stores.
    """
    if isinstance(table, TableFile):
        return table
    try:
        return open_table(table, **choice)
    except TableError as error:
        names, unnamed = m.info.feature_names, choice.get("embedding") is None
        if names is None or not unnamed or "No column holds embeddings" not in str(error):
            raise
        return open_table(table, **choice | {"embedding": list(names)})


def source_column(m: CorrectionMap, columns: Iterable[str]) -> str | None:
    """Return the name of the source column: ``source``, or the name it had in the fit; None if absent."""
    return next((name for name in ("source", m.info.source_column) if name in columns), None)


def sources_of(m: CorrectionMap, table: Table) -> Any:
    """Return the sources of the rows, from the column of :func:`source_column`; None without this column."""
    column = source_column(m, table.columns)
    return None if column is None else table.columns[column]


def vectors(table: Table, token_layout: str = "mean") -> NDArray[Any]:
    """Return one vector per row: the embedding, the token mean, or ("joint") all tokens concatenated."""
    return np.asarray(token_rows(table.X, token_layout)) if table.X.ndim == 3 else table.X


def in_coordinates(coordinates: Coordinates | None, table: Table) -> Table:
    """Return a table in the given coordinates (None: unchanged), converting it if necessary."""
    if coordinates is None or _is_in(coordinates, table):
        return table
    if (noted := table.info.get("coordinates")) is not None:
        raise TableError(
            f"The table is in coordinates {noted}; conversion to {coordinates.digest} needs the raw "
            "features. Pass the original table."
        )
    info = table.info | {"coordinates": coordinates.digest}
    info.pop("feature_names", None)
    return replace(table, X=coordinates.transform(table.X), info=info)


def _is_in(coordinates: Coordinates, table: Table) -> bool:
    """Return whether a table has these coordinates, as stated in its info or implied by its width."""
    noted = table.info.get("coordinates")
    fits = table.X.shape[-1] == coordinates.n_coordinates != coordinates.n_raw
    return bool(noted == coordinates.digest or (noted is None and fits))


def rows_for(m: CorrectionMap, table: Table) -> Table:
    """Return a table in the form that a map expects: embeddings of its encoder, in its coordinates.

    Parameters
    ----------
    m : CorrectionMap
    table : Table
        Raw features, or embeddings in the coordinates of the map; vectors or tokens.
    """
    require_encoder(table.info, {"encoder": m.info.encoder}, "The table", "the map was fitted on")
    names = m.info.feature_names
    if names is not None and len(names) == m.n_raw and not (m.coordinates and _is_in(m.coordinates, table)):
        require_features(table.info, {"feature_names": names}, "The table", "the map was fitted on")
    return in_coordinates(m.coordinates, table)


def apply_to_table(m: CorrectionMap, table: Table, *, force: bool = False) -> Table:
    """Return the table with corrected embeddings and all other columns unchanged.

    Parameters
    ----------
    m : CorrectionMap
        Source-aware maps use the source column of the table: ``source``, or the name it had in the fit.
    table : Table
        A table in memory; for files, use :func:`mgpa.tables.apply_to_file`.
    force : bool
        Correct a table that was corrected before or that has only sources outside the fit.

    Examples
    --------
    >>> import mgpa
    >>> from mgpa.tables import apply_to_table, fit_table, simulate_table
    >>> table = simulate_table(8)
    >>> corrected = apply_to_table(fit_table(mgpa.ClosedFormMGPA(), table).to_map(), table)
    >>> corrected.X.shape == table.X.shape, "corrected_by" in corrected.info
    (True, True)
    """
    if not force:
        require_correctable(m, table.info, sources_of(m, table))
    rows = rows_for(m, table)
    return replace(rows, X=corrected_rows(m, rows), info=rows.info | {"corrected_by": map_digest(m)[:16]})


def corrected_rows(m: CorrectionMap, table: Table) -> NDArray[Any]:
    """Return the corrected embeddings or tokens of a table."""
    table = rows_for(m, table)
    if not len(table):
        return table.X
    labels: dict[str, Any] = {}
    if not m.source_blind:
        table.require(source_column(m, table.columns) or "source")
        labels["source"] = sources_of(m, table)
    if table.X.ndim == 3:
        return np.asarray(transform_tokens(m, table.X, **labels))
    return np.asarray(m.transform(table.X, **labels))


def apply_to_file(
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
        The correction. Source-aware maps need the source column of the table: ``source``, or the name it
        had in the fit.
    table : path, address or TableFile
        The file with the embeddings. All other columns are copied. Features in separate columns are found by
        the names that the map stores.
    out : path or address
        A folder (a name without suffix), which is written in parts, possibly by several workers. After an
        interruption, parts made by the same map from the same rows are kept. ``.parquet``, ``.npz`` and
        ``.csv`` are single files, written by this process.
    overwrite : bool
        Replace an existing file, or the table in a folder; other files in the folder are kept.
    force : bool
        Correct a table that was corrected before or that has only sources outside the fit.
    client : dask.distributed.Client or None
        Dask client; None works in this process.
    verbose : bool
        Show progress.
    """
    file = open_for(m, table)
    place = as_place(out)
    require_distinct_paths(place, file.path)
    single = format_from_name(place) != "folder"
    require_place(place, overwrite, folder=not single)  # before the work, not after it
    column = source_column(m, file.columns)
    if not m.source_blind and column is None:
        require_columns(["source"], file.columns, file.path)
    if not force:
        sources = None
        with suppress(ValueError):  # missing sources cannot be compared; only source-aware maps need them
            if column == "source":
                sources = file.survey("source").get("source")
            elif column is not None:
                sources = file.read_columns(column)[column]
        require_correctable(m, file.info, sources)
    file = file.carrying(*([] if m.source_blind or column is None else [column]))
    like = apply_to_table(m, file.read(slice(0, min(1, file.n_rows))), force=True).take(slice(0, 0))
    as_columns = len(file.layout.embedding) > 1  # keep one column per feature
    if single:
        if client is not None:
            raise ValueError(f"{place.name} is one file; for a cluster name a folder, without suffix.")
        tables = _corrected(m, file, like, verbose)
        write_table(tables, place, overwrite=overwrite, as_columns=as_columns)
        return file.n_rows
    from .parquet_folder import TableWriter

    parts = file.parts
    rows = [part.n_rows for part in parts]
    options: Any = {"overwrite": overwrite, "as_columns": as_columns, "job": map_digest(m)}
    with TableWriter(place, like, rows, **options) as writer:
        if client is None:
            for i in watched(range(len(parts)), "correcting", verbose):
                write_corrected(m, parts[i], writer, i)
        else:
            # Task results are recomputed if their workers are lost; scattered data are not.
            the_map = client.submit(lambda: m, pure=False, retries=RETRIES)
            futures = [
                client.submit(write_corrected, the_map, part, writer, i, pure=False, retries=RETRIES)
                for i, part in enumerate(parts)
            ]
            writer.written.update(enumerate(client.gather(futures)))
    return file.n_rows


def check_table(m: CorrectionMap, table: Given | TableFile) -> RowCheck:
    """Check whether rows of a table resemble the fitting rows of a map; large tables are sampled in parts.

    See :meth:`mgpa.maps.CorrectionMap.check`. Sources are read from ``source`` or, without it, from the
    column that was the source in the fit.
    """
    X, source, _, why = _some_rows(m, table)
    return replace(m.check(X), not_checked=why) if why else m.check(X, source)


def adapt_to_table(m: CorrectionMap, table: Given | TableFile, check: RowCheck) -> CorrectionMap:
    """Return the map with unknown devices of a table added, from their rows without pairs.

    ``check`` is the result of :func:`check_table`. See :meth:`mgpa.maps.CorrectionMap.adapt`.
    """
    X, source, people, _ = _some_rows(m, table)
    for entry in (entry for entry in check.devices if entry["alarm"]):
        label = entry["rows_named"]
        mine = np.arange(len(X)) if not label else np.flatnonzero(source == label)
        name = f"{label}, as in the table" if label in m.info.source_names else label or "new"
        m = m.adapt(X[mine], name, n_participants=1 if people is None else len(np.unique(people[mine])))
    return m


def _some_rows(m: CorrectionMap, table: Given | TableFile) -> tuple[Any, Any, Any, str]:
    """Return rows of a table (all, or evenly spaced parts), their sources and participants.

    The last value is the reason if sources cannot be compared with those of the fit.
    """
    file = open_for(m, table).carrying()
    every = -(-file.n_rows // CHECKED_ROWS) or 1
    tables = [rows_for(m, batch) for part in file.parts[::every] for batch in batches(part)]
    X = np.concatenate([vectors(t, m.info.token_layout) for t in tables] or [np.zeros((0, m.n_features))])
    known = tables and "participant" in file.columns
    people = np.concatenate([t.columns["participant"] for t in tables]) if known else None
    if not m.info.source_names or not tables:
        return X, None, people, ""
    column = source_column(m, file.columns)
    if column is None:
        names = dict.fromkeys(["source", m.info.source_column or "source"])
        return X, None, people, f"sources not checked: no column {' or '.join(map(repr, names))}"
    try:
        labels, codes = encode_source(np.concatenate([t.columns[column] for t in tables]), len(X), column)
    except ValueError as error:  # such as missing values in a column other than ``source``
        return X, None, people, f"sources not checked: {error}"
    return X, np.array(source_names(labels))[codes], people, ""


def _corrected(m: CorrectionMap, file: TableFile, like: Table, verbose: bool) -> Iterator[Table]:
    yield like  # sets the column types, even for a table without rows
    for part in watched(file.parts, "correcting", verbose):
        for batch in batches(part):
            yield apply_to_table(m, batch, force=True)


def write_corrected(m: CorrectionMap, part: TableFile, writer: Any, i: int) -> Any:
    """Correct and write one part, unless an interrupted run did; return its entry in the index."""
    again, digest = hashlib.sha256(), hashlib.sha256()

    def digest_of_rows() -> str:
        for _ in _digested(part, again):
            pass
        return again.hexdigest()

    corrected = (apply_to_table(m, batch, force=True) for batch in _digested(part, digest))
    return writer.find(i, digest_of_rows) or writer.write(i, corrected, digest.hexdigest)


def _digested(part: TableFile, digest: Any) -> Iterator[Table]:
    """Yield the batches of a part, and add their content to a checksum."""
    for table in batches(part):
        columns: dict[str, Any] = {"X": table.X, **table.columns}
        for name, values in columns.items():
            digest.update(f"{name}:{values.dtype.str}:{values.shape};".encode())
            digest.update(values.tobytes() if isinstance(values, Carried) else np.ascontiguousarray(values))
        yield table


def require_correctable(
    m: CorrectionMap,
    info: Mapping[str, Any],
    sources: Any,
    instead: str = "Pass force (--force) to correct it anyway.",
) -> None:
    """Raise if a table was corrected before, or shares no source with those the map was fitted on.

    ``info`` and ``sources`` belong to the table; ``instead`` is the advice in the message.
    """
    if "corrected_by" in info:
        raise TableError(
            f"The table was already corrected (by map {info['corrected_by']}); a map expects uncorrected "
            f"embeddings. {instead}"
        )
    if sources is None or not len(sources) or not m.info.source_names:
        return
    try:
        names = source_names(encode_source(sources, len(sources))[0])
    except ValueError:  # sources with gaps cannot be compared; a map that needs them refuses them itself
        return
    if not set(names) & set(m.info.source_names):
        raise TableError(
            f"The table has sources {', '.join(names)}; the map was fitted on "
            f"{', '.join(m.info.source_names)} only. Add a new device first (mgpa adapt). {instead}"
        )


# Facts about a run and library versions, which do not identify an encoder; weights and settings do.
_INCIDENTAL = ("precision_used", "precision_difference", "braindecode")


def _essence(encoder: Mapping[str, Any]) -> dict[str, str]:
    """Return the identity of an encoder in JSON, with its weights by their checksum."""
    essence = {str(name): value for name, value in encoder.items() if name not in _INCIDENTAL}
    weights = essence.get("checkpoint")
    if isinstance(weights, Mapping) and "sha256" in weights:
        essence["checkpoint"] = weights["sha256"]

    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)

    return {name: json.dumps(value, sort_keys=True, default=plain) for name, value in essence.items()}


def require_encoder(info: Mapping[str, Any], expected: Mapping[str, Any], what: str, than: str) -> None:
    """Raise if two ``info`` dictionaries have different encoders."""
    got, wanted = _essence(info.get("encoder") or {}), _essence(expected.get("encoder") or {})
    if got and wanted and got != wanted:
        differing = [k for k in {**wanted, **got} if got.get(k) != wanted.get(k)]
        changes = "; ".join(f"{k} {got.get(k)} instead of {wanted.get(k)}" for k in differing)
        raise TableError(f"{what} holds embeddings of another encoder than {than}: {changes}.")


def other_signals(info: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return a sentence on differences between the signals in two ``info``; empty without differences."""
    got, wanted = info.get("signals") or {}, expected.get("signals") or {}
    differ = [name for name in wanted if name in got and not _alike(got[name], wanted[name])]
    changes = "; ".join(f"{name} {got[name]} instead of {wanted[name]}" for name in differ)
    return f"Signals were prepared in another way than those of the fit: {changes}." if changes else ""


def _alike(got: Any, wanted: Any) -> bool:
    """Return whether two settings are equal, whatever the file format they were stored in."""
    if isinstance(got, int | float) and isinstance(wanted, int | float):
        return bool(np.isclose(got, wanted, rtol=1e-6, atol=1e-9))
    if isinstance(got, list | tuple) and isinstance(wanted, list | tuple):
        return len(got) == len(wanted) and all(map(_alike, got, wanted))
    return bool(got == wanted)


def require_features(info: Mapping[str, Any], expected: Mapping[str, Any], what: str, than: str) -> None:
    """Raise if two ``info`` have different features, or the same features in another order."""
    got, wanted = feature_names(info), feature_names(expected)
    if got and wanted and got != wanted:
        differing = [f"{a!r} instead of {b!r}" for a, b in zip(got, wanted, strict=False) if a != b]
        difference = ", ".join(differing[:3]) or f"{len(got)} of them instead of {len(wanted)}"
        raise TableError(
            f"{what} has other features than {than}, or in another order: {difference}. Name them in the "
            "right order with embedding; for new epochs, mgpa.eeg.align_like matches the table's channels."
        )


def person_digest(name: Any) -> str:
    """Return a short hash of a participant's name, to recognise the participant later."""
    return hashlib.sha256(str(name).encode()).hexdigest()[:12]


def row_digests(X: Any) -> Digests:
    """Return a hash of each row: BLAKE2b with 8 bytes of its values as little-endian float32.

    Single precision makes tables in both precisions equal; zero has no sign.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    >>> bool((row_digests(X) == row_digests(X.astype(np.float64))).all())
    True
    """
    X, digests = np.asarray(X), np.empty(len(X), np.uint64)
    for start in range(0, len(X), 4096):
        with np.errstate(over="ignore"):  # values beyond single precision become infinite
            rows = X[start : start + 4096].astype("<f4") + np.float32(0)
        # Convert all rows to Python bytes at once, which is faster than one array per row.
        content = rows.reshape(len(rows), -1).view(f"V{rows[0].nbytes}")[:, 0].tolist()
        content = [hashlib.blake2b(row, digest_size=8).digest() for row in content]
        digests[start : start + len(rows)] = np.frombuffer(b"".join(content), "<u8")
    return digests


def merge_samples(*samples: Digests) -> Digests:
    """Return the sample of hashes of several batches, independent of their order."""
    return np.unique(np.concatenate([np.empty(0, np.uint64), *samples]))[:KEPT]


def encode_sample(sample: Digests) -> str:
    """Return hashes as text: base64 of little-endian numbers."""
    return base64.b64encode(sample.astype("<u8").tobytes()).decode()


def seen_people(seen: str, digests: Digests, participants: NDArray[Any]) -> tuple[str, ...]:
    """Return the participants whose rows were in the fit of a map.

    Parameters
    ----------
    seen : str
        From :func:`encode_sample`.
    digests, participants : (n,) arrays
        Hashes and participants of the rows. A row of several participants, such as zeros, identifies none.
    """
    names, codes = np.unique(participants, return_inverse=True)
    whose = np.unique(np.stack([digests, codes.astype(np.uint64)]), axis=1)
    rows, counts = np.unique(whose[0], return_counts=True)
    telling = np.intersect1d(rows[counts == 1], np.frombuffer(base64.b64decode(seen), "<u8"))
    return tuple(names[np.unique(codes[np.isin(digests, telling)])].tolist())
