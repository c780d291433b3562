"""Reuse: a correction is selected on one task's development people, then used unchanged on every task.

Which of a method's recipes, and how much of it, the development rule of the paper decides (appendix B): the
best worst-association AUROC of the shortcut head, among points that cost neither head more than .01 where
there is no association.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import delayed
from numpy.typing import NDArray

from .._common.workers import in_processes
from ..audit import (
    Audit,
    AuditPlan,
    assign_endpoints,
    association_auroc,
    curve_coefficients,
    curve_minimum,
    fit_association_heads,
)
from ..audit.fits import Fitted, FittingData, list_jobs, saying, stored_fit
from ..audit.store import Spec, Store, key_of, resolve_device
from ..coordinates import Coordinates
from ..endpoint import operating_points, select_by_development, select_within_family
from ..errors import StudyError
from ..maps import CorrectionMap, SequentialMap
from ..tables.fitting import fit_table
from ..tables.roles import with_roles
from ..tables.rows import in_coordinates
from ..tables.table import Table
from .arms import make_arm, recipes
from .config import ReuseSection, Study
from .recordings import Recordings
from .roles import roles_of, shortcut
from .splits import Split, coordinates_of, pairs_of, split_names


@dataclass(frozen=True)
class Candidate:
    """One recipe of a method with one seed: what was fitted, and the point development people chose."""

    recipe: dict[str, Any]
    seed: int | None
    map: CorrectionMap
    worst: float
    movement: float
    point: int


def run_reuse(
    study: Study, recordings: Recordings, **options: Any
) -> tuple[dict[str, Audit], dict[str, Any]]:
    """Select every method on the development task, and audit the selected maps on all tasks.

    Parameters
    ----------
    study : Study
        With a [reuse] section.
    recordings : Recordings
        Tables of all its tasks.
    **options
        ``cache``, ``n_jobs``, ``device`` and ``verbose``, as for :func:`mgpa.audit.run`.

    Returns
    -------
    audits : dict of task to Audit
        Tasks go by the names that the study prints.
    selection : dict
        For every method (and rotation of roles): the recipe, and for every seed the point and what it did to
        development people.
    """
    plan, splits = _plan(study), split_names(study)
    device, store = resolve_device(options["device"]), Store(options["cache"]).create()
    audits: dict[str, list[Audit]] = {}
    selection: dict[str, Any] = {}
    for split, rotation in splits.items():
        material = prepare(study, recordings, rotation)
        chosen: dict[str, list[CorrectionMap]] = {}
        for name in study.methods:
            family = _candidates(study, material, name, store, device, options["n_jobs"])
            best = _family_choice(family, plan)
            chosen[name] = [candidate.map for candidate in best]
            selection[name if len(splits) == 1 else f"{name}, {split}"] = {
                "recipe": best[0].recipe,
                "fits": [_facts(candidate) for candidate in best],
                "candidates": len(family),
            }
        for task in plan.tasks:
            found = _audit_plan(study, material, task, chosen, **options).run()
            # The question is the worst association; the source is read to look at, by few readers.
            found = replace(found, settings=found.settings | {"preliminary": False})
            audits.setdefault(plan.labels.get(task, task), []).append(found)
    return {task: Audit.pool(parts) for task, parts in audits.items()}, selection


def _audit_plan(
    study: Study, material: Material, task: str, chosen: dict[str, list[CorrectionMap]], **options: Any
) -> AuditPlan:
    """Return how the chosen maps are audited on one task."""
    table = material.tables[task]
    return AuditPlan(
        _with_fit(table, material.tables[material.development].rows("FIT")),
        chosen,
        seeds=study.seeds,
        readers=study.readers.model_dump(),
        association=shortcut(table),
        folds=1,
        floor=False,
        # All tasks are measured in the coordinates that they share, those of the development task.
        standardize=not study.coordinates.standardize,
        **options,
    )


def plan_reuse(
    study: Study, recordings: Recordings, rotation: int | None, *, cache: Any, device: str
) -> list[dict[str, Any]]:
    """Return every fit that :func:`run_reuse` would make in one split, as ``AuditPlan.pending`` does.

    A fit is ``measured`` once the fits that its method chose are measured on every task.
    """
    plan, material, store = _plan(study), prepare(study, recordings, rotation), Store(cache)
    took, device = store.timings(), resolve_device(device)
    there = {
        name: [stored_fit(store, fit.key) is not None for fit in _fits(study, material, name, device)]
        for name in study.methods
    }
    chosen = chosen_maps(study, material, store, device)
    measured: dict[str, bool] = {}
    for task in plan.tasks:
        audit = _audit_plan(study, material, task, chosen, cache=cache, device=device)
        for cell in audit.pending():
            measured[cell["method"]] = measured.get(cell["method"], True) and cell["measured"]
    cells = []
    for name, fits in {"identity": [True], **there}.items():
        done = measured.get(name, False)
        for i, fitted in enumerate(fits):
            left = [] if fitted else [took.get(f"select {name}")]
            # Measuring is of the method, not of each of its candidates.
            left += [] if done or i else [took.get("measure")]
            seconds = None if None in left else sum(t for t in left if t is not None)
            cells.append({"method": name, "fit": i, "fitted": fitted, "measured": done, "seconds": seconds})
    return cells


def chosen_maps(
    study: Study, material: Material, store: Store, device: str
) -> dict[str, list[CorrectionMap]]:
    """Return what development people chose of every method all of whose candidates are finished."""
    chosen = {}
    for name in study.methods:
        if all(stored_fit(store, fit.key) is not None for fit in _fits(study, material, name, device)):
            family = _candidates(study, material, name, store, device)
            chosen[name] = [candidate.map for candidate in _family_choice(family, _plan(study))]
    return chosen


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
    plan = _plan(study)
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


def _plan(study: Study) -> ReuseSection:
    plan = study.reuse
    if plan is None:
        raise StudyError("The study has no [reuse] section.")
    return plan


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


@dataclass(frozen=True, kw_only=True)
class SelectionSpec(Spec):
    """A fit at the point that development people choose: the fit's key, a checksum, and what may be lost."""

    fit: str
    material: str
    max_loss: float


@dataclass(frozen=True)
class _Fit:
    """One recipe and seed of a method that is to be fitted, and the name of its cell."""

    recipe: dict[str, Any]
    model: Any
    key: str


def _fits(study: Study, material: Material, name: str, device: str) -> Iterator[_Fit]:
    """Yield every recipe and seed of a method."""
    method = study.methods[name]
    split = Split(name, material.bank, material.coordinates, material.pairs)
    data = FittingData(material.bank, material.val, material.pairs)
    for recipe in recipes(method):
        for job in list_jobs({name: make_arm(study, split, name, method, recipe)}, study.seeds, device):
            if job.method == name:
                spec = SelectionSpec(
                    fit=data.key(job), material=material.digest, max_loss=_plan(study).max_loss
                )
                yield _Fit(recipe, job.model, spec.key)


def _candidates(
    study: Study, material: Material, name: str, store: Store, device: str, n_jobs: int = 1
) -> list[Candidate]:
    """Return every recipe and seed of a method, fitted, at the point that development people choose."""
    fits = list(_fits(study, material, name, device))
    by_key = {fit.key: stored_fit(store, fit.key) for fit in fits}
    missing = [fit for fit in fits if by_key[fit.key] is None]
    if missing:
        heads = _heads(material)
        calls = (delayed(_fit_one)(name, fit, material, heads, _plan(study), store) for fit in missing)
        made = list(in_processes(calls, n_jobs))
        by_key |= {fit.key: fitted for fit, fitted in zip(missing, made, strict=True)}
    return [_candidate(fit, by_key[fit.key]) for fit in fits]


def _fit_one(
    name: str, fit: _Fit, material: Material, heads: Any, plan: ReuseSection, store: Store
) -> Fitted:
    with saying(f"fitting {name}", store), store.timed(f"select {name}"):
        rows = Table.concatenate([material.bank, material.val])
        model = fit_table(fit.model, rows, pairs=material.pairs)
        m, facts = _select(model.to_map().with_coordinates(material.coordinates), material, heads, plan)
    return Fitted(m, store.put(fit.key, facts, m))


def _candidate(fit: _Fit, fitted: Any) -> Candidate:
    seed, facts = fit.model.get_params().get("random_state"), fitted.facts
    return Candidate(
        fit.recipe, seed, fitted.map, float(facts["worst"]), float(facts["movement"]), int(facts["point"])
    )


def _heads(material: Material) -> Any:
    """Return the development task's shortcut and control heads, of original HEAD events."""
    X0, X1, positive, people = _events(material.tables[material.development].rows("HEAD"))
    return fit_association_heads(X0, X1, positive, people)


def _events(table: Table) -> tuple[Any, Any, NDArray[np.bool_], NDArray[Any]]:
    views = _views(table)
    label = np.asarray(table.columns["label"])
    positive = label[views[0]] == np.unique(label)[1]
    return table.X[views[0]], table.X[views[1]], positive, table.participant[views[0]]


def _select(
    fitted: CorrectionMap, material: Material, heads: Any, plan: ReuseSection
) -> tuple[CorrectionMap, dict[str, Any]]:
    """Return the map at the point that development people choose, and what it did to them."""
    table = material.tables[material.development].rows("VAL")
    X0, X1, positive, people = _events(table)
    sources = table.sources
    points = list(operating_points(fitted))
    worst, independent, moved = [], [], []
    for point in points:
        C0, C1 = (_corrected(point, X, s) for X, s in zip((X0, X1), sources, strict=True))
        curves = [
            association_auroc(head.scores(C0), head.scores(C1), positive, people).values.mean(axis=0)
            for head in (heads.shortcut, heads.control)
        ]
        worst.append(float(curve_minimum(curve_coefficients(curves[0]))[0]))
        independent.append([float(curve[1]) for curve in curves])
        moved.append(_pair_movement(X0, X1, C0, C1, people))
    best = select_by_development(worst, independent, moved, max_loss=plan.max_loss)
    facts = {
        "point": np.array(best),
        "worst": np.array(worst[best]),
        "movement": np.array(moved[best]),
        "independent": np.array(independent[best]),
        "strength": np.array(points[best].strength),
        "curve": np.array(worst),
    }
    return points[best], facts


def _corrected(m: Any, X: Any, source: Any) -> Any:
    return m.transform(X) if m.source_blind else m.transform(X, source=np.full(len(X), source))


def _pair_movement(X0: Any, X1: Any, C0: Any, C1: Any, people: NDArray[Any]) -> float:
    """Return the mean over people of displacement relative to size, both views of an event taken as one."""
    size = np.sqrt((X0.astype(np.float64) ** 2).sum(1) + (X1.astype(np.float64) ** 2).sum(1))
    step = np.sqrt(((C0 - X0).astype(np.float64) ** 2).sum(1) + ((C1 - X1).astype(np.float64) ** 2).sum(1))
    return float(np.mean([step[people == p].mean() / size[people == p].mean() for p in np.unique(people)]))


def _family_choice(family: list[Candidate], plan: ReuseSection) -> list[Candidate]:
    """Return the chosen recipe's fits; recipes compete by their mean over seeds."""
    recipes: list[list[Candidate]] = []
    for candidate in family:
        if recipes and recipes[-1][0].recipe == candidate.recipe:
            recipes[-1].append(candidate)
        else:
            recipes.append([candidate])
    worst = [float(np.mean([c.worst for c in fits])) for fits in recipes]
    moved = [float(np.mean([c.movement for c in fits])) for fits in recipes]
    return recipes[select_within_family(worst, moved, tolerance=plan.tolerance)]


def _facts(candidate: Candidate) -> dict[str, Any]:
    stages = {"n_stages": len(candidate.map)} if isinstance(candidate.map, SequentialMap) else {}
    return {
        "seed": candidate.seed,
        **stages,
        "strength": candidate.map.strength,
        "worst": candidate.worst,
        "movement": candidate.movement,
    }
