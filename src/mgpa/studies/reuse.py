"""Reuse: a correction is selected on one task's development participants, then used unchanged on every task.

The paper's development rule (appendix B) decides which of a method's recipes is used, and how much of it: the
best worst-association AUROC of the shortcut head, among points that cost neither head more than .01 where
there is no association.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import delayed
from numpy.typing import NDArray

from .._common.progress import in_processes
from ..audit import (
    Audit,
    AuditPlan,
    assign_endpoints,
    association_auroc,
    curve_coefficients,
    curve_minimum,
    fit_association_heads,
)
from ..audit.fits import Fit, FittingData, explain, list_fits, stored_fit
from ..audit.heads import shortcut_scores
from ..audit.store import Store, cell_key, key_of, resolve_device
from ..coordinates import Coordinates
from ..endpoint import operating_points, select_by_development, select_within_family
from ..errors import StudyError
from ..maps import CorrectionMap, SequentialMap
from ..tables.columns import with_roles
from ..tables.fitting import fit_table
from ..tables.rows import in_coordinates
from ..tables.table import Table
from .arms import make_arm, recipes
from .config import ReuseSection, Study
from .recordings import Recordings
from .splits import Split, alone, coordinates_of, pairs_of, roles_of, shortcut, split_names


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
        """A checksum of everything that a selection depends on; EVAL rows are not part of it."""
        development = self.tables[self.development].rows("HEAD", "VAL").digest
        return key_of(development, self.bank.digest, self.val.digest, *self.pairs)


def run_reuse(
    study: Study, recordings: Recordings, **options: Any
) -> tuple[dict[str, list[Audit]], dict[str, Any]]:
    """Select every method on the development task, and audit the selected maps on all tasks.

    Returns an audit for every task (by its printed name) and split; and, for every method and split, the
    recipe, and for every seed the point and what it did to development participants. ``options`` are those
    of :func:`mgpa.audit.run`.
    """
    assert study.reuse is not None
    plan, splits = study.reuse, split_names(study)
    audits: dict[str, list[Audit]] = {}
    selection: dict[str, Any] = {}
    for split, rotation in splits.items():
        material = prepare(study, recordings, rotation)
        chosen: dict[str, list[CorrectionMap]] = {}
        for name in study.methods:
            recipe, fits, count = select_method(study, material, name, **options)
            chosen[name] = [fit.map for fit in fits]
            points = [
                {"seed": fit.model.get_params().get("random_state")}
                | ({"n_stages": len(fit.map)} if isinstance(fit.map, SequentialMap) else {})
                | {"strength": fit.map.strength}
                | {outcome: float(fit.facts[outcome]) for outcome in ("worst", "movement")}
                for fit in fits
            ]
            key = name if len(splits) == 1 else f"{name}, {split}"
            selection[key] = {"recipe": recipe, "fits": points, "candidates": count}
        fit = material.tables[material.development].rows("FIT")
        for task in plan.tasks:
            table = material.tables[task]
            audit = AuditPlan(
                _with_fit(table, fit),
                chosen,
                seeds=study.seeds,
                readers=study.readers.model_dump(),
                association=shortcut(table),
                folds=1,
                floor=False,
                # All tasks are measured in the coordinates that they share, those of the development task.
                standardize=not study.coordinates.standardize,
                **options,
            ).run()
            # The outcome is the worst association; the source is read by two readers, only to look at.
            more = {"preliminary": "quick" in study.overlays, "outcome": "worst"}
            audit = replace(audit, settings=audit.settings | more)
            audits.setdefault(plan.labels.get(task, task), []).append(audit)
    return audits, selection


def prepare(study: Study, recordings: Recordings, rotation: int | None = None) -> Material:
    """Return a reuse study's tables in coordinates of the development task, and what maps are fitted on."""
    plan = study.reuse
    assert plan is not None
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
    pairs = in_coordinates(coordinates, fit.take(calibration))
    observed = _one_view(in_coordinates(coordinates, remaining), plan.fit_seed)
    return Material(
        {task: in_coordinates(coordinates, table) for task, table in tables.items()},
        Table.concatenate([observed, pairs]),
        _one_view(in_coordinates(coordinates, development.rows("VAL")), plan.development_seed),
        pairs_of(pairs),
        coordinates,
        plan.development,
    )


def select_method(
    study: Study,
    material: Material,
    name: str,
    *,
    cache: Any,
    device: str = "auto",
    n_jobs: int = 1,
    verbose: bool = False,
) -> tuple[dict[str, Any], list[Fit], int]:
    """Fit every recipe and seed of a method; return the chosen recipe, its fits, and the count.

    Each fit is cut to the point that development participants choose; recipes compete by their mean over
    seeds.
    """
    method, plan, store = study.methods[name], study.reuse, Store(cache)
    assert plan is not None
    split = Split(material.bank, material.coordinates, material.pairs)
    data = FittingData(Table.concatenate([material.bank, material.val]), material.pairs)
    place = resolve_device(device)
    # The development task's shortcut and control heads, of original HEAD events.
    heads = fit_association_heads(*events(material.tables[material.development].rows("HEAD")))
    families = [
        (recipe, [*list_fits({name: make_arm(study, split, name, method, recipe)}, study.seeds, place)][1:])
        for recipe in recipes(method)
    ]
    candidates = [fit for _, fits in families for fit in fits]
    keys = [cell_key("selection", data.key(fit), material.digest, plan.max_loss) for fit in candidates]
    calls = (
        delayed(_fit_one)(fit, key, data.rows, material, heads, plan, store)
        for fit, key in zip(candidates, keys, strict=True)
    )
    fitted = iter(list(in_processes(calls, n_jobs)))
    families = [(recipe, [next(fitted) for _ in fits]) for recipe, fits in families]
    worst, moved = (
        [float(np.mean([fit.facts[outcome] for fit in fits])) for _, fits in families]
        for outcome in ("worst", "movement")
    )
    recipe, best = families[select_within_family(worst, moved, tolerance=plan.tolerance)]
    return recipe, best, len(candidates)


def _fit_one(
    fit: Fit, key: str, rows: Table, material: Material, heads: Any, plan: ReuseSection, store: Store
) -> Fit:
    """Return a fit at the point that development participants choose, and what it did to them."""
    stored = stored_fit(fit, store, key)
    if stored is not None:
        return stored
    table = material.tables[material.development].rows("VAL")
    X0, X1, positive, people = events(table)
    worst, independent, moved = [], [], []
    with explain(f"fitting {fit.method}", store):
        fitted = fit_table(fit.model, rows, pairs=material.pairs).to_map()
        points: list[Any] = list(operating_points(fitted.with_coordinates(material.coordinates)))
        for point in points:
            C0, C1 = (
                point.transform(X) if point.source_blind else point.transform(X, source=np.full(len(X), s))
                for X, s in zip((X0, X1), table.sources, strict=True)
            )
            curves = []
            for head in heads:  # shortcut and control
                scores = shortcut_scores(head, C0), shortcut_scores(head, C1)
                curves.append(association_auroc(*scores, positive, people)[1].mean(0))
            worst.append(float(curve_minimum(curve_coefficients(curves[0]))[0]))
            independent.append([float(curve[1]) for curve in curves])
            moved.append(_pair_movement(X0, X1, C0, C1, people))
        best = select_by_development(worst, independent, moved, max_loss=plan.max_loss)
    facts = {"worst": np.array(worst[best]), "movement": np.array(moved[best])}
    return replace(fit, map=points[best], facts=store.put(key, facts, points[best]))


def _pair_movement(X0: Any, X1: Any, C0: Any, C1: Any, people: NDArray[Any]) -> float:
    """Return the mean over people of displacement relative to size, both views of an event taken as one."""
    size = np.sqrt((X0.astype(np.float64) ** 2).sum(1) + (X1.astype(np.float64) ** 2).sum(1))
    step = np.sqrt(((C0 - X0).astype(np.float64) ** 2).sum(1) + ((C1 - X1).astype(np.float64) ** 2).sum(1))
    return float(np.mean([step[people == p].mean() / size[people == p].mean() for p in np.unique(people)]))


def _with_fit(table: Table, fit: Table) -> Table:
    """Return a task's rows; where FIT people were not recorded on it, with those that maps are fitted on."""
    if len(table.rows("FIT")):
        return table
    shared = [name for name in table.columns if name in fit.columns]
    parts = [
        Table.from_columns({"X": part.X} | {name: part.columns[name] for name in shared}, table.info)
        for part in (table, fit)
    ]
    return Table.concatenate(parts)


def _require_judges(raw: Mapping[str, Table], roles: Mapping[str, str]) -> None:
    """Raise if a HEAD or EVAL participant has no rows on a task; FIT and VAL need the development task."""
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
    """Return which rows calibrate (each participant's first events), and which overlap those in time."""
    from ..eeg.pairing import exclude_overlap

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
                rows = (fit.participant == person) & (fit.source == source)
                near = exclude_overlap(
                    fit.columns["onset"][rows & ~calibration],
                    fit.columns["onset"][rows & calibration],
                    plan.purge,
                )
                overlapping[np.flatnonzero(rows & ~calibration)[~near]] = True
        # An event is left out on both devices if it overlaps on either.
        ids = np.asarray(fit.columns["pair_id"])
        overlapping = np.isin(ids, ids[overlapping]) & ~calibration
    if calibration.all() or not calibration.any():
        raise StudyError(f"reuse.calibration = {plan.calibration} leaves no events on one side of it.")
    return calibration, overlapping


def _one_view(table: Table, seed: int) -> Table:
    """Return one view of every event, drawn where device and label are associated."""
    views = _views(table.require("label"))
    label = np.asarray(table.columns["label"])[views[0]]
    labels = np.unique(label)
    if len(labels) != 2:
        raise StudyError(f"Reuse needs two labels; there are {len(labels)}.")
    device = assign_endpoints(label == labels[1], table.participant[views[0]], 1.0, seed)
    return alone(table.take(np.sort(np.where(device == 1, views[1], views[0]))))


def _views(table: Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return both views of every event; no row is left out."""
    views = table.paired_views()
    alone = len(table) - (0 if views is None else 2 * len(views[0]))
    if views is None or alone:
        raise StudyError(
            f"Reuse needs events that two sources saw at once; {alone} of {len(table)} rows have no partner."
        )
    return views
