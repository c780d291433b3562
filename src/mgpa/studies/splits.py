"""One split of a study: everybody's role, the rows that are seen, their coordinates, and the pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..coordinates import Coordinates, fit_coordinates
from ..errors import StudyError
from ..gate import FixedGate, MeasurementGate
from ..tables.roles import with_roles
from ..tables.rows import in_coordinates
from ..tables.table import Table
from .config import CoordinatesSection, Study
from .recordings import Recordings
from .roles import associate, roles_of

Pairs = tuple[Any, Any]


@dataclass(frozen=True)
class Split:
    """What the methods of a study are fitted and judged on, for one assignment of roles.

    Attributes
    ----------
    name : str
    table : Table
        In the study's coordinates, with roles.
    coordinates : Coordinates
        How raw features became its rows.
    contrasts : tuple (A, B) or None
        Calibration pairs of FIT participants; None: those among the table's rows.
    endpoints : tuple (A, B) or None
        The evaluated views of the same events, where they are not the calibration pairs.
    gate : FixedGate or None
        The measurement gate, if it is not made of ``contrasts`` themselves (token contrasts).
    """

    name: str
    table: Table
    coordinates: Coordinates
    contrasts: Pairs | None = None
    endpoints: Pairs | None = None
    gate: FixedGate | None = None


def split_names(study: Study) -> dict[str, int | None]:
    """Return the splits of a study by name, and the rotation of each."""
    if study.roles.rotations:
        return {f"rotation {r}": r for r in study.roles.rotations}
    return {"all": None}


def make_split(study: Study, recordings: Recordings, name: str, rotation: int | None) -> Split:
    """Return one split: from raw tables to rows in coordinates, with roles and pairs."""
    raw = recordings.table(recordings.tasks[0])
    roles = roles_of(raw, study.roles, rotation)
    raw = with_roles(raw, roles)
    evaluated, plan = raw, study.endpoints
    if plan.gamma != 1.0:
        from ..eeg.views import scale_table

        evaluated = scale_table(raw, plan.gamma)
    seen = associate(evaluated, roles, plan, 0 if rotation is None else rotation)
    observed = evaluated.take(seen | np.isin(evaluated.role, ("HEAD", "EVAL")))
    coordinates = coordinates_of(observed.rows("FIT"), study.coordinates)
    contrasts = endpoints = None
    if study.views.transport is not None:
        contrasts = pairs_of(in_coordinates(coordinates, recordings.virtual_pairs(roles)))
    elif plan.gamma != 1.0 or plan.association is not None:
        contrasts = pairs_of(in_coordinates(coordinates, raw.rows("FIT")))
        endpoints = pairs_of(in_coordinates(coordinates, evaluated.rows("FIT")))
    if plan.association is not None:
        observed = _alone(observed)
    table = in_coordinates(coordinates, observed)
    gate = _token_gate(study, contrasts, table) if study.gate.tokens else None
    return Split(name, table, coordinates, contrasts, endpoints, gate)


def coordinates_of(fit: Table, plan: CoordinatesSection) -> Coordinates:
    """Return the coordinates of a plan, fitted on these rows or on those of the source it names."""
    if plan.source is not None:
        if plan.source not in fit.sources:
            raise StudyError(
                f"coordinates.source is {plan.source!r}; the sources are {', '.join(map(str, fit.sources))}."
            )
        fit = fit.take(fit.source == plan.source)
    return fit_coordinates(
        fit.X, n_components=plan.components, standardize=plan.standardize, floor=plan.floor, dtype=plan.dtype
    )


def pairs_of(table: Table) -> Pairs:
    """Return both views of every event of a table, the first source's first."""
    views = table.paired_views()
    if views is None:
        raise StudyError("The FIT rows have no events seen in two views; the gate needs such pairs.")
    return table.X[views[0]], table.X[views[1]]


def _alone(table: Table) -> Table:
    """Return the table with rows of FIT and VAL unpaired: of their events one view is seen."""
    ids = np.asarray(table.columns["pair_id"])
    held = np.isin(table.role, ("HEAD", "EVAL"))
    return replace(table, pair_id=np.where(held, ids, -1 if ids.dtype.kind in "iu" else ""))


def _token_gate(study: Study, contrasts: Pairs | None, table: Table) -> FixedGate:
    """Return the gate of all tokens' contrasts: the mean may shift where single tokens did."""
    if table.X.ndim != 3:
        raise StudyError("gate.tokens is for embeddings of tokens; these are vectors.")
    first, second = contrasts if contrasts is not None else pairs_of(table.rows("FIT"))
    d = table.X.shape[-1]
    moved = (second.astype(np.float64) - first).reshape(-1, d)
    gate = MeasurementGate(
        study.gate.rank, norm_quantile=study.gate.norm_quantile, max_contrasts=study.gate.max_contrasts
    ).fit(moved)
    return FixedGate(gate.basis_)
