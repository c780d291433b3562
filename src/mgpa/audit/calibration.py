"""The calibration pairs of an audit, from its table or given separately, and their contrasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ..coordinates import Coordinates
from ..errors import MissingEvidence
from ..labels import is_paired
from ..pairs import matched_rows
from ..tables.files import TableFile, open_table
from ..tables.rows import in_coordinates, row_digests, vectors
from ..tables.table import Table


def has_pairs(rows: Table) -> bool:
    """Return whether any event was recorded by two sources."""
    if rows.pair_id is None:
        return False
    ids = rows.pair_id[is_paired(rows.pair_id)]
    return len(np.unique(ids)) < len(ids)


def pairs_link_sources(rows: Table) -> bool:
    """Return whether pairs link all sources, directly or through other sources."""
    if rows.pair_id is None:
        return False
    paired = is_paired(rows.pair_id)
    event = np.unique(rows.pair_id[paired], return_inverse=True)[1]
    source = np.searchsorted(rows.sources, rows.source[paired])
    n = len(rows.sources)
    links = coo_array((np.ones(len(event)), (source, n + event)), shape=[n + len(event) + 1] * 2)
    return len(np.unique(connected_components(links, directed=False)[1][:n])) == 1


def contrasts(rows: Table, token_layout: str, scale: NDArray[Any]) -> NDArray[np.float64]:
    """Return the differences between paired views for every two sources, divided by ``scale``."""
    H, codes = vectors(rows, token_layout), np.searchsorted(rows.sources, rows.source)
    ids = np.full(len(rows), -1) if rows.pair_id is None else rows.pair_id
    matched = [matched_rows(codes, ids, a, b) for a, b in combinations(range(len(rows.sources)), 2)]
    none = np.zeros((0, H.shape[1]))  # rows of a single source have no pairs
    return np.concatenate([none, *((H[b].astype(np.float64) - H[a]) / scale for a, b in matched)])


def coverage(gate: Any, differences: NDArray[Any]) -> float | None:
    """Return the share of the directional energy of contrasts inside a gate, fitted on any data.

    None if no contrast differs from zero.
    """
    try:
        return float(gate.coverage(differences))
    except MissingEvidence:
        return None


def for_each(change: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that also accepts a dict with the pairs of each method."""

    @wraps(change)
    def changed(pairs: Any, *arguments: Any) -> Any:
        if isinstance(pairs, Mapping):
            return {name: change(of, *arguments) for name, of in pairs.items()}
        return change(pairs, *arguments)

    return changed


@for_each
def pairs_in(pairs: Any, coordinates: Coordinates | None) -> Any:
    """Return pairs transformed from raw features to the given coordinates."""
    if pairs is None or isinstance(pairs, Table):
        return pairs and in_coordinates(coordinates, pairs)
    return pairs if coordinates is None else tuple(coordinates.transform(side) for side in pairs)


@for_each
def read_calibration(pairs: Any) -> Any:
    """Return calibration pairs, reading tables into memory."""
    if pairs is None or isinstance(pairs, (tuple, list)):
        return pairs
    if not isinstance(pairs, Table):
        pairs = (pairs if isinstance(pairs, TableFile) else open_table(pairs)).read()
    return pairs.require("source", "pair_id")


@for_each
def count_pairs(pairs: Any) -> int | None:
    """Return the number of calibration pairs, or None without pairs."""
    if isinstance(pairs, Table):
        ids = np.asarray(pairs.pair_id)
        _, counts = np.unique(ids[is_paired(ids)], return_counts=True)
        return int(np.sum(counts > 1))
    return None if pairs is None else len(pairs[0])


def tables_of(pairs: Any, own: Table) -> list[Table]:
    """Return the tables with participants of the pairs; the audit's table if it contains the pairs."""
    each = [own, *each_of(pairs)] if isinstance(pairs, Mapping) or pairs is None else [pairs]
    return [one for one in each if isinstance(one, Table) and one.participant is not None]


def each_of(pairs: Any) -> list[Any]:
    """Return a list of all given calibration pairs."""
    return [one for one in (pairs.values() if isinstance(pairs, Mapping) else [pairs]) if one is not None]


@for_each
def held_in(pairs: Any, rows: Table) -> Any:
    """Return calibration pairs without those of the HEAD and EVAL participants of a table with roles."""
    if not isinstance(pairs, Table) or pairs.participant is None:
        return pairs
    held = np.unique(rows.participant[np.isin(rows.role, ("HEAD", "EVAL"))])
    return pairs.take(~np.isin(pairs.participant, held))


def among_rows(pairs: Any, digests: list[NDArray[Any]]) -> bool:
    """Return whether pairs without participants are rows of the table."""
    for one in each_of(pairs):
        if isinstance(one, Table):
            sides = [one.X] if one.participant is None else []
        else:
            sides = [np.asarray(side) for side in one]
        if any(np.isin(row_digests(side), rows).any() for side in sides for rows in digests):
            return True
    return False
