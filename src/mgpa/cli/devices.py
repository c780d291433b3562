"""Commands for new devices: add one to a map, leave one out, and count the pairs that a fit needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import application as shared
from .application import AS_IT_IS, AnyOut, AnyPlace, AsJson, Overwrite, TableOptions, UserError, app

if TYPE_CHECKING:
    from ..maps import CorrectionMap
    from ..maps.check import RowCheck
    from ..tables import Table


@app.command
def adapt(
    map: AnyPlace,
    table: AnyPlace,
    *,
    out: AnyOut,
    name: str | None = None,
    known: str | None = None,
    reading: TableOptions = AS_IT_IS,
    overwrite: Overwrite = False,
    json_: AsJson = False,
) -> None:
    """Add a device that was not in the fit to a map, from its rows, or from pairs with a fitted device.

    Example: mgpa adapt adapter.safetensors hospital6.parquet --out adapter6.safetensors

    Without --known, the level of the new device is estimated from its rows alone, which assumes the same mix
    of content as in the fit. With --known, its rows are compared with rows of the known device that have the
    same pair_id; this needs no assumption about content and also corrects gains and rotations.

    Parameters
    ----------
    map
        A stored correction of MGPA or ClosedFormMGPA.
    table
        Uncorrected rows of the new device and, with --known, of a fitted one.
    out
        File for the new map.
    name
        Name of the new device; by default its name in the source column, else new.
    known
        The fitted device that recorded the same events.
    """
    from ..maps import load_map

    shared.refuse_existing(out, overwrite, map, table)
    m = load_map(map)
    rows = _rows_of_devices(m, table, reading)
    name = name or _new_device(m, rows, table)
    if known is None:
        before, adapted = _adapted_to_rows(m, rows, name)
    else:
        before, adapted = _adapted_to_pairs(m, rows, name, known, table)
    adapted.save(out, overwrite=overwrite)
    sources = list(adapted.info.source_names)
    facts = {"map": str(out), "device": name, "sources": sources, "before": before.to_dict()}
    words = adapted.info.evidence.rpartition("; ")[2]
    if not before.unknown_device:
        words += "\nA fitted device explained these rows already: compare with the map as it was."
    shared.show(facts, f"{words}\nStored in {out}", json_)


def _rows_of_devices(m: CorrectionMap, table: AnyPlace, reading: TableOptions) -> Table:
    """Return the rows of a table, with the column of their sources called ``source``."""
    from ..tables import COLUMNS
    from ..tables.rows import rows_for, source_column

    file = reading.open(table, m)
    column = source_column(m, file.columns) or "source"
    rows = rows_for(m, file.carrying(*COLUMNS, column).read())
    if column in rows.other:
        rows = rows.with_columns(source=rows.other[column], **{column: None})
    return rows


def _new_device(m: CorrectionMap, rows: Table, table: AnyPlace) -> str:
    """Return the name of the device that was not in the fit; raise if there are several."""
    here = [] if rows.source is None else [str(label) for label in rows.sources]
    fresh = [label for label in here if label not in m.info.source_names]
    if len(fresh) > 1:
        raise UserError(f"{table} has several new sources ({', '.join(fresh)}); choose one with --name.")
    return fresh[0] if fresh else "new"


def _adapted_to_rows(m: CorrectionMap, rows: Table, name: str) -> tuple[RowCheck, CorrectionMap]:
    """Return the check of a device's rows (all rows, if none has its name), and the new map."""
    from ..tables.rows import vectors

    if rows.source is not None and name in rows.source.astype(str):
        rows = rows.take(rows.source.astype(str) == name)
    X = vectors(rows, m.info.token_layout)
    n_participants = 1 if rows.participant is None else len(set(rows.participant.tolist()))
    return m.check(X), m.adapt(X, name, n_participants=n_participants)


def _adapted_to_pairs(
    m: CorrectionMap, rows: Table, name: str, known: str, table: AnyPlace
) -> tuple[RowCheck, CorrectionMap]:
    """Return the check of a device's rows, and the map adapted to pairs with a known device."""
    from ..tables.columns import require_columns
    from ..tables.rows import vectors

    words = f"--known compares rows with the same pair_id, and {table}"
    require_columns(["source", "pair_id"], rows.columns, words)
    assert rows.source is not None
    assert rows.pair_id is not None
    source, X = rows.source.astype(str), vectors(rows, m.info.token_layout)
    mine = source == name
    if not mine.any():
        here = ", ".join(str(label) for label in rows.sources)
        raise UserError(f"{table} has no rows of {name!r}; its sources are {here}.")
    theirs, ours = (
        dict(zip(rows.pair_id[part].tolist(), X[part], strict=True)) for part in (source == known, mine)
    )
    events = [event for event in theirs if event in ours]
    if not events:
        raise UserError(f"No pair_id joins {known!r} and {name!r}.")
    pairs = [theirs[event] for event in events], [ours[event] for event in events]
    return m.check(X[mine]), m.add_source(name, pairs, known=known)


def _paired_rows(table: AnyPlace, reading: TableOptions) -> Table:
    """Return the rows of a table to fit on; raise unless it has sources and pairs."""
    from ..tables.columns import require_columns

    file = reading.open(table)
    require_columns(["source", "pair_id"], file.columns, table)
    rows: Table = file.read()
    return rows if rows.role is None else rows.rows("FIT")


@app.command
def pairs_needed(
    table: AnyPlace,
    *,
    method: str = "mgpa",
    sizes: shared.Seeds | None = None,
    repeats: int = 4,
    seed: shared.Seed = 0,
    reading: TableOptions = AS_IT_IS,
    json_: AsJson = False,
) -> None:
    """Estimate the number of paired events that a correction needs.

    Example: mgpa pairs-needed recordings.parquet

    Parameters
    ----------
    table
        Embeddings with source and pair_id; with a role column, its FIT rows.
    method
        A name from `mgpa methods`, of a method that uses pairs.
    sizes
        Numbers of events to fit with; by default five up to all.
    repeats
        Number of fits of each size, with different events.
    """
    from ..baselines import make_method
    from ..estimators.pairs_needed import pairs_needed as needed
    from ..tables.rows import vectors

    rows = _paired_rows(table, reading)
    result = needed(
        make_method(method), vectors(rows), source=rows.source, pair_id=rows.pair_id, groups=rows.participant,
        sizes=None if sizes is None else tuple(sizes), repeats=repeats, random_state=seed,
    )  # fmt: skip
    shared.show(result.to_dict(), str(result), json_)


@app.command
def leave_one_out(
    table: AnyPlace,
    *,
    method: str = "mgpa",
    seed: shared.Seed = 0,
    reading: TableOptions = AS_IT_IS,
    json_: AsJson = False,
) -> None:
    """Leave each source out of the fit, and compare its rows uncorrected, corrected and after adapting.

    Example: mgpa leave-one-out recordings.parquet

    Parameters
    ----------
    table
        Embeddings with pair_id and three sources or more; with a role column, its FIT rows.
    method
        mgpa or closed_form_mgpa.
    """
    from ..baselines import make_method
    from ..estimators.left_out import leave_one_source_out
    from ..tables.rows import vectors

    rows = _paired_rows(table, reading)
    people = rows.participant
    found = leave_one_source_out(
        make_method(method),
        vectors(rows),
        source=rows.source,
        pair_id=rows.pair_id,
        groups=people,
        random_state=seed,
    )
    shared.show(found.to_dict(), str(found), json_)
