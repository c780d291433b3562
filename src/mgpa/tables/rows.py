"""How a table's rows reach a map and come back corrected: the one way, for fits, files and audits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..coordinates import Coordinates
from ..errors import TableError
from ..maps import CorrectionMap
from ..maps.io.mapfile import map_digest
from ..pairs import source_names
from ..tokens import token_rows, transform_tokens
from .columns import feature_names
from .table import Table


def vectors(table: Table, token_layout: str = "mean") -> NDArray[Any]:
    """Return one vector a row: the embedding; of tokens, their mean or ("joint") all of them."""
    return np.asarray(token_rows(table.X, token_layout)) if table.X.ndim == 3 else table.X


def in_coordinates(coordinates: Coordinates | None, table: Table) -> Table:
    """Return a table in these coordinates (None: its own); one that is in them already stays as it is."""
    if coordinates is None or _is_in(coordinates, table):
        return table
    noted = table.info.get("coordinates")
    if noted is not None:
        raise TableError(
            f"The table is in coordinates {noted}; bringing it into {coordinates.digest} takes the raw "
            "features. Pass the table as it was before."
        )
    info = table.info | {"coordinates": coordinates.digest}
    info.pop("feature_names", None)
    return replace(table, X=coordinates.transform(table.X), info=info)


def _is_in(coordinates: Coordinates, table: Table) -> bool:
    """Return whether a table says it is in these coordinates, or is silent and only that fits its width."""
    noted = table.info.get("coordinates")
    fits = table.X.shape[-1] == coordinates.n_coordinates != coordinates.n_raw
    return bool(noted == coordinates.digest or (noted is None and fits))


def rows_for(m: CorrectionMap, table: Table) -> Table:
    """Return a table as a map takes it: embeddings of its encoder, in its coordinates.

    Parameters
    ----------
    m : CorrectionMap
    table : Table
        Raw features, or embeddings that are in the map's coordinates already; vectors or tokens.
    """
    require_encoder(table.info, {"encoder": m.info.encoder}, "The table", "the map was fitted on")
    names = m.info.feature_names
    if names is not None and len(names) == m.n_raw and not (m.coordinates and _is_in(m.coordinates, table)):
        require_features(table.info, {"feature_names": names}, "The table", "the map was fitted on")
    return in_coordinates(m.coordinates, table)


def correct(m: CorrectionMap, table: Table, *, force: bool = False) -> Table:
    """Return the table with corrected embeddings and everything else as it was.

    Parameters
    ----------
    m : CorrectionMap
        Source-aware maps read the table's source column.
    table : Table
        In memory; for files there is :func:`mgpa.tables.correct_file`.
    force : bool
        Correct it although it was corrected before, or comes from sources that the map does not know.

    Examples
    --------
    >>> import mgpa
    >>> from mgpa.tables import correct, fit_table, simulate_table
    >>> table = simulate_table(8)
    >>> corrected = correct(fit_table(mgpa.ClosedFormMGPA(), table).to_map(), table)
    >>> corrected.X.shape == table.X.shape, "corrected_by" in corrected.info
    (True, True)
    """
    if not force:
        require_correctable(m, table.info, table.source)
    rows = rows_for(m, table)
    return replace(rows, X=corrected_rows(m, rows), info=rows.info | {"corrected_by": map_digest(m)[:16]})


def corrected_rows(m: CorrectionMap, table: Table) -> NDArray[Any]:
    """Return a table's embeddings or tokens, corrected."""
    table = rows_for(m, table)
    if not len(table):
        return table.X
    known: dict[str, Any] = {} if m.source_blind else {"source": table.require("source").source}
    if table.X.ndim == 3:
        return np.asarray(transform_tokens(m, table.X, **known))
    return np.asarray(m.transform(table.X, **known))


def require_correctable(
    m: CorrectionMap, info: Mapping[str, Any], sources: Any, instead: str = "Pass force=True to correct it."
) -> None:
    """Raise if a table was corrected before, or shares no source with those the map was fitted on.

    ``info`` and ``sources`` are the table's; ``instead`` says what the caller can do.
    """
    if "corrected_by" in info:
        raise TableError(
            f"The table was corrected before (by map {info['corrected_by']}), and corrections are meant for "
            f"uncorrected embeddings. {instead}"
        )
    if sources is None or not len(sources) or not m.info.source_names:
        return
    names = source_names(np.unique(sources))
    if not set(names) & set(m.info.source_names):
        raise TableError(
            f"The table has sources {', '.join(names)}; the map was fitted on "
            f"{', '.join(m.info.source_names)}, which says nothing about others. {instead}"
        )


# What a run found out, and which release of a library ran it: the weights and settings are the encoder.
_INCIDENTAL = ("precision_used", "precision_difference", "braindecode")


def _essence(encoder: Mapping[str, Any]) -> dict[str, str]:
    """Return what tells one encoder from another; weights are the same if their checksum is.

    In JSON, as files hold it: there a tuple is a list, so what was read compares equal to what was written.
    """
    essence = {name: value for name, value in encoder.items() if name not in _INCIDENTAL}
    weights = essence.get("checkpoint")
    if isinstance(weights, Mapping) and "sha256" in weights:
        essence["checkpoint"] = weights["sha256"]

    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, np.generic | np.ndarray) else str(value)

    return {str(name): json.dumps(value, sort_keys=True, default=plain) for name, value in essence.items()}


def require_encoder(found: Mapping[str, Any], expected: Mapping[str, Any], what: str, than: str) -> None:
    """Raise if both sides (each an ``info``) say which encoder they are of, and it is not the same."""
    if not found.get("encoder") or not expected.get("encoder"):
        return
    theirs, ours = _essence(found["encoder"]), _essence(expected["encoder"])
    if theirs == ours:
        return
    differing = [k for k in {**ours, **theirs} if theirs.get(k) != ours.get(k)]
    raise TableError(
        f"{what} holds embeddings of another encoder than {than}: "
        + "; ".join(f"{k} {theirs.get(k)} instead of {ours.get(k)}" for k in differing)
        + "."
    )


def require_features(found: Mapping[str, Any], expected: Mapping[str, Any], what: str, than: str) -> None:
    """Raise if both sides (each an ``info``) name their features, and they are not the same in that order."""
    theirs, ours = feature_names(found), feature_names(expected)
    if theirs is None or ours is None or theirs == ours:
        return
    differing = [f"{a!r} instead of {b!r}" for a, b in zip(theirs, ours, strict=False) if a != b]
    difference = ", ".join(differing[:3]) or f"{len(theirs)} of them instead of {len(ours)}"
    raise TableError(
        f"{what} has other features than {than}, or in another order: {difference}. Name them in the right "
        "order with embedding=[…]."
    )


def person_digest(name: Any) -> str:
    """Return a short digest of a participant's name: enough to recognise who is known already."""
    return hashlib.sha256(str(name).encode()).hexdigest()[:12]


def people_digests(participants: Any) -> tuple[str, ...]:
    """Return the digests of everybody in a participant column, sorted; none if there is no column."""
    if participants is None:
        return ()
    return tuple(sorted(map(person_digest, np.unique(participants).tolist())))
