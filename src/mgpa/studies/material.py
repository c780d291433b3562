"""What a reuse study works with: its tasks in shared coordinates, and the rows that maps are fitted on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..audit import assign_endpoints
from ..audit.store import key_of
from ..coordinates import Coordinates
from ..errors import StudyError
from ..tables.roles import with_roles
from ..tables.rows import in_coordinates
from ..tables.table import Table
from .config import ReuseSection, Study
from .recordings import Recordings
from .splits import coordinates_of, pairs_of, roles_of


@dataclass(frozen=True)
class Material:
    """What a reuse study works with, in its shared coordinates.

    Attributes
    ----------
    tables : dict of task to Table
        Both views of every event, with roles.
    bank : Table
        What maps are fitted on: one view of every FIT event of the development task, and both views of those
        that calibrate.
    val : Table
        One view of every development event, for critics that stop by it.
    pairs : tuple (A, B)
        Calibration pairs.
    coordinates : Coordinates
    development : str
        The task that operating points are selected by.
    """

    tables: dict[str, Table]
    bank: Table
    val: Table
    pairs: tuple[Any, Any]
    coordinates: Coordinates
    development: str

    @property
    def digest(self) -> str:
        """A checksum of everything that a selection depends on, of which EVAL people are no part."""
        development = self.tables[self.development].rows("HEAD", "VAL").digest
        return key_of(development, self.bank.digest, self.val.digest, *self.pairs)


def prepare(study: Study, recordings: Recordings, rotation: int | None = None) -> Material:
    """Return a reuse study's tables in coordinates of the development task, and what maps are fitted on."""
    plan = reuse_plan(study)
    raw = {task: recordings.table(task) for task in plan.tasks}
    roles = roles_of(raw[plan.development], study.roles, rotation)
    _require_judges(raw, roles)
    tables = {task: with_roles(table, roles) for task, table in raw.items()}
    for table in tables.values():
        _views(table)
    development = tables[plan.development]
    fit = development.rows("FIT")
    calibration, purged = _calibration(fit, plan)
    remaining = fit.take(~calibration & ~purged)
    coordinates = coordinates_of(remaining, study.coordinates)
    observed = _one_view(in_coordinates(coordinates, remaining), plan.fit_seed)
    pairs = in_coordinates(coordinates, fit.take(calibration))
    bank = Table.concatenate([observed, pairs])
    val = _one_view(in_coordinates(coordinates, development.rows("VAL")), plan.development_seed)
    return Material(
        {task: in_coordinates(coordinates, table) for task, table in tables.items()},
        bank,
        val,
        pairs_of(pairs),
        coordinates,
        plan.development,
    )


def reuse_plan(study: Study) -> ReuseSection:
    """Return what a study says about reuse."""
    plan = study.reuse
    if plan is None:
        raise StudyError("The study has no [reuse] section.")
    return plan


def _require_judges(raw: Mapping[str, Table], roles: Mapping[str, str]) -> None:
    """Raise if somebody of HEAD or EVAL has no rows on a task, which fewer people would judge in silence.

    FIT and VAL are needed on the development task alone, where :func:`roles_of` has found them.
    """
    for task, table in raw.items():
        absent = set(roles) - set(table.participant.tolist())
        for role in ("HEAD", "EVAL"):
            people = sorted(person for person in absent if roles[person] == role)
            if people:
                raise StudyError(
                    f"Task {task} has no rows of {', '.join(people)}, whose role is {role}. HEAD and EVAL "
                    "people must be present on every task: add their recordings, or give them no role."
                )


def events(table: Table) -> tuple[Any, Any, NDArray[np.bool_], NDArray[Any]]:
    """Return both views of every event, whether it has the second label, and whose it is."""
    views = _views(table)
    label = np.asarray(table.columns["label"])
    positive = label[views[0]] == np.unique(label)[1]
    return table.X[views[0]], table.X[views[1]], positive, table.participant[views[0]]


def _calibration(fit: Table, plan: ReuseSection) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which rows calibrate (everybody's first events), and which overlap those in time."""
    from ..eeg.preprocessing import exclude_overlap

    if "ordinal" in fit.columns:
        ordinal = fit.columns["ordinal"]
        calibration = (ordinal >= 1) & (ordinal <= plan.calibration)
    else:
        calibration = np.zeros(len(fit), bool)
        ids = np.asarray(fit.columns["pair_id"])
        for person in np.unique(fit.participant):
            events = np.unique(ids[fit.participant == person])[: plan.calibration]
            calibration |= (fit.participant == person) & np.isin(ids, events)
    overlapping = np.zeros(len(fit), bool)
    if "onset" in fit.columns:
        for person in np.unique(fit.participant):
            for source in fit.sources:
                mine = (fit.participant == person) & (fit.source == source)
                near = exclude_overlap(
                    fit.columns["onset"][mine & ~calibration],
                    fit.columns["onset"][mine & calibration],
                    plan.purge,
                )
                overlapping[np.flatnonzero(mine & ~calibration)[~near]] = True
        # An event is left out on both devices if it overlaps on either.
        ids = np.asarray(fit.columns["pair_id"])
        overlapping = np.isin(ids, ids[overlapping]) & ~calibration
    if calibration.all() or not calibration.any():
        raise StudyError(f"reuse.calibration = {plan.calibration} leaves no events on one side of it.")
    return calibration, overlapping


def _one_view(table: Table, seed: int) -> Table:
    """Return one view of every event, drawn where the device goes with the label."""
    views = _views(table.require("label"))
    label = np.asarray(table.columns["label"])[views[0]]
    labels = np.unique(label)
    if len(labels) != 2:
        raise StudyError(f"Reuse needs two labels; there are {len(labels)}.")
    device = assign_endpoints(label == labels[1], table.participant[views[0]], 1.0, seed)
    seen = table.take(np.sort(np.where(device == 1, views[1], views[0])))
    ids = np.asarray(seen.columns["pair_id"])
    return replace(seen, pair_id=np.full(len(seen), -1 if ids.dtype.kind in "iu" else ""))


def _views(table: Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return both views of every event; no row is left out."""
    views = table.paired_views()
    alone = len(table) - (0 if views is None else 2 * len(views[0]))
    if views is None or alone:
        raise StudyError(
            f"Reuse needs events that two sources saw at once; {alone} of {len(table)} rows have no partner."
        )
    return views
