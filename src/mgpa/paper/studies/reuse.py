"""Select each correction on the development participants of one task, then audit it unchanged on all tasks.

The paper's development rule (appendix B) selects a recipe and an operating point: the best worst-association
AUROC of the shortcut head, among the points at which neither head loses more than .01 when source and label
are not associated.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from joblib import delayed
from numpy.typing import NDArray

from ..._common.progress import in_processes
from ...audit import (
    Audit,
    AuditPlan,
    assign_endpoints,
    association_auroc,
    curve_coefficients,
    curve_minimum,
    fit_association_heads,
)
from ...audit.association import shortcut_scores
from ...audit.fits import Fit, FittingData, explain, list_fits, stored_fit
from ...audit.store import Store, cell_key, resolve_device
from ...errors import StudyError
from ...labels import is_paired
from ...maps import CorrectionMap, SequentialMap
from ...operating_point import operating_points, select_by_development, select_within_family
from ...tables.columns import with_roles
from ...tables.fitting import fit_table
from ...tables.rows import in_coordinates
from ...tables.table import Table
from .arms import make_arm, recipes
from .config import Study
from .recordings import Recordings
from .splits import Split, alone, coordinates_of, pairs_of, roles_of, shortcut, some_pairs, split_names

#: Events within this many seconds of a calibration event are not used for fitting.
PURGE = 1.0


def run_reuse(
    study: Study, recordings: Recordings, **options: Any
) -> tuple[dict[str, list[Audit]], dict[str, Any], dict[str, int]]:
    """Select each method on the development task and audit the selected maps on all tasks.

    Returns three dictionaries: the audits of each task (by its printed name), one for each split; the
    selection, with each method's recipe in each split and, for each seed, its operating point and development
    scores; and the numbers of pairs and views used for fitting. ``options`` are passed to
    :func:`mgpa.audit.run`.
    """
    assert study.reuse is not None
    plan, splits = study.reuse, split_names(study)
    audits: dict[str, list[Audit]] = {}
    selection: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for split, rotation in splits.items():
        tables, fitting = prepare(study, recordings, rotation)
        counts = counts or counts_of(fitting)
        development = tables[plan.development]
        chosen: dict[str, list[CorrectionMap]] = {}
        for name in study.methods:
            recipe, fits, count = select_method(study, development, fitting, name, **options)
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
        for task, table in tables.items():
            audit = AuditPlan(
                _with_fit(table, fitting.table),
                chosen,
                seeds=study.seeds,
                readers=study.readers.model_dump(),
                association=shortcut(table),
                folds=1,
                floor=False,
                # All tasks share the coordinates of the development task.
                standardize=False,
                **options,
            ).run()
            # The outcome is the worst association; two source readers are reported but decide nothing.
            quick = "quick" in study.overlays
            audit = replace(audit, settings=replace(audit.settings, preliminary=quick, outcome="worst"))
            audits.setdefault(plan.labels.get(task, task), []).append(audit)
    return audits, selection, counts


def counts_of(fitting: Split) -> dict[str, int]:
    """Return the numbers of pairs and views used for fitting, and of views used to stop critics."""
    fit = fitting.table.rows("FIT")
    ids = np.asarray(fit.columns["pair_id"])
    pairs, endpoints = len(np.unique(ids[is_paired(ids)])), len(fit)
    return {
        "calibration pairs": pairs,
        "observed FIT events": endpoints - 2 * pairs,
        "fitting endpoints": endpoints,
        "development endpoints": len(fitting.table.rows("VAL")),
    }


def prepare(
    study: Study, recordings: Recordings, rotation: int | None = None
) -> tuple[dict[str, Table], Split]:
    """Return the table of each task and the fitting data, all in the same coordinates.

    The tables have both views of each event. Maps are fitted on FIT events of the development task: both
    views of calibration events and one view of each other event. Critics stop by one view of each VAL event.
    """
    plan = study.reuse
    assert plan is not None
    raw = {task: recordings.table(task) for task in plan.tasks}
    roles = roles_of(raw[plan.development], study.roles, rotation)
    scored = {person for person, role in roles.items() if role in ("HEAD", "EVAL")}
    tables = {task: with_roles(table, roles) for task, table in raw.items()}
    for task, table in tables.items():
        if absent := sorted(scored - set(table.participant.tolist())):
            raise StudyError(
                f"Task {task} has no rows of {', '.join(absent)}. HEAD and EVAL participants must be present "
                "on every task: add their recordings, or give them no role."
            )
        _views(table)
    fit = tables[plan.development].rows("FIT")
    calibration, purged = _calibration(fit, plan.calibration)
    remaining = fit.take(~calibration & ~purged)
    coordinates = coordinates_of(remaining, study.coordinates)
    tables = {task: in_coordinates(coordinates, table) for task, table in tables.items()}
    pairs = in_coordinates(coordinates, fit.take(calibration))
    seen = _one_view(in_coordinates(coordinates, remaining), plan.fit_seed)
    val = _one_view(tables[plan.development].rows("VAL"), plan.development_seed)
    contrasts = some_pairs(study.gate, pairs_of(pairs))
    return tables, Split(Table.concatenate([seen, pairs, val]), coordinates, contrasts)


def select_method(
    study: Study,
    development: Table,
    fitting: Split,
    name: str,
    *,
    cache: Any,
    device: str = "auto",
    n_jobs: int = 1,
    verbose: bool = False,
) -> tuple[dict[str, Any], list[Fit], int]:
    """Fit each recipe and seed of a method; return the chosen recipe, its fits, and the number of recipes.

    Each fit is truncated at the operating point selected on development participants. Recipes are compared by
    their mean over seeds.
    """
    method, store = study.methods[name], Store(cache)
    data = FittingData(fitting.table, fitting.contrasts, coordinates=fitting.coordinates)
    place = resolve_device(device)
    # Shortcut and control heads of the development task, trained on uncorrected HEAD events.
    heads = fit_association_heads(*events(development.rows("HEAD")))
    families = [
        (recipe, [*list_fits({name: make_arm(study, fitting, name, method, recipe)}, study.seeds, place)][1:])
        for recipe in recipes(method)
    ]
    candidates = [fit for _, fits in families for fit in fits]
    scored = development.rows("HEAD", "VAL").digest  # EVAL rows take no part in the selection
    keys = [cell_key("selection", data.key(fit), scored) for fit in candidates]
    calls = (
        delayed(_fit_one)(fit, key, fitting, development, heads, store)
        for fit, key in zip(candidates, keys, strict=True)
    )
    fitted = iter(list(in_processes(calls, n_jobs)))
    families = [(recipe, [next(fitted) for _ in fits]) for recipe, fits in families]
    worst, moved = (
        [float(np.mean([fit.facts[outcome] for fit in fits])) for _, fits in families]
        for outcome in ("worst", "movement")
    )
    recipe, best = families[select_within_family(worst, moved)]
    return recipe, best, len(candidates)


def _fit_one(fit: Fit, key: str, fitting: Split, development: Table, heads: Any, store: Store) -> Fit:
    """Return a fit at the operating point selected on development participants, with their scores."""
    stored = stored_fit(fit, store, key)
    if stored is not None:
        return stored
    table = development.rows("VAL")
    X0, X1, positive, people = events(table)
    worst, independent, moved = [], [], []
    with explain(f"fitting {fit.method}", store):
        fitted = fit_table(fit.model, fitting.table, pairs=fitting.contrasts).to_map()
        points: list[Any] = list(operating_points(fitted.with_coordinates(fitting.coordinates)))
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
        best = select_by_development(worst, independent, moved)
    facts = {"worst": np.array(worst[best]), "movement": np.array(moved[best])}
    return replace(fit, map=points[best], facts=store.put(key, facts, points[best]))


def _pair_movement(X0: Any, X1: Any, C0: Any, C1: Any, people: NDArray[Any]) -> float:
    """Return the relative displacement averaged over participants, with both views of an event as one row."""
    size = np.sqrt((X0.astype(np.float64) ** 2).sum(1) + (X1.astype(np.float64) ** 2).sum(1))
    step = np.sqrt(((C0 - X0).astype(np.float64) ** 2).sum(1) + ((C1 - X1).astype(np.float64) ** 2).sum(1))
    return float(np.mean([step[people == p].mean() / size[people == p].mean() for p in np.unique(people)]))


def _with_fit(table: Table, fitting: Table) -> Table:
    """Return the HEAD and EVAL rows of a task together with the FIT and VAL rows used for fitting."""
    scored = table.rows("HEAD", "EVAL")
    shared = [name for name in scored.columns if name in fitting.columns]
    parts = [
        Table.from_columns({"X": part.X} | {name: part.columns[name] for name in shared}, table.info)
        for part in (scored, fitting)
    ]
    return Table.concatenate(parts)


def events(table: Table) -> tuple[Any, Any, NDArray[np.bool_], NDArray[Any]]:
    """Return for each event both views, whether its label is the second, and its participant."""
    views = _views(table)
    label = np.asarray(table.columns["label"])
    positive = label[views[0]] == np.unique(label)[1]
    return table.X[views[0]], table.X[views[1]], positive, table.participant[views[0]]


def _calibration(fit: Table, n_events: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return masks of calibration rows (first events of each participant) and of rows that overlap them."""
    from ...eeg.pairing import exclude_overlap

    ids, who = np.asarray(fit.columns["pair_id"]), fit.participant
    if "ordinal" in fit.columns:
        calibration = (fit.columns["ordinal"] >= 1) & (fit.columns["ordinal"] <= n_events)
    else:
        first = [np.unique(ids[who == person])[:n_events] for person in np.unique(who)]
        calibration = np.isin(ids, np.concatenate(first))
    overlapping = np.zeros(len(fit), bool)
    if "onset" in fit.columns:
        onset = fit.columns["onset"]
        for person, source in product(np.unique(who), fit.sources):
            rows = (who == person) & (fit.source == source)
            clear = exclude_overlap(onset[rows & ~calibration], onset[rows & calibration], PURGE)
            overlapping[np.flatnonzero(rows & ~calibration)[~clear]] = True
        # An event that overlaps on one device is left out on both.
        overlapping = np.isin(ids, ids[overlapping]) & ~calibration
    if calibration.all() or not calibration.any():
        raise StudyError(f"reuse.calibration = {n_events} must leave events both to calibrate and to test.")
    return calibration, overlapping


def _one_view(table: Table, seed: int) -> Table:
    """Return one view of each event, sampled so that device and label are associated."""
    views = _views(table.require("label"))
    label = np.asarray(table.columns["label"])[views[0]]
    labels = np.unique(label)
    if len(labels) != 2:
        raise StudyError(f"Reuse needs two labels; there are {len(labels)}.")
    device = assign_endpoints(label == labels[1], table.participant[views[0]], 1.0, seed)
    return alone(table.take(np.sort(np.where(device == 1, views[1], views[0]))))


def _views(table: Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row numbers of both views of each event; raise if a row has no partner."""
    views = table.paired_views()
    alone = len(table) - (0 if views is None else 2 * len(views[0]))
    if views is None or alone:
        raise StudyError(
            f"Reuse needs events recorded by two sources; {alone} of {len(table)} rows have no partner."
        )
    return views
