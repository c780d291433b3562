"""Reuse: a correction is selected on one task's development people, then used unchanged on every task.

Which of a method's recipes, and how much of it, the development rule of the paper decides (appendix B): the
best worst-association AUROC of the shortcut head, among points that cost neither head more than .01 where
there is no association.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import delayed
from numpy.typing import NDArray

from .._common.workers import in_processes
from ..audit import (
    Audit,
    AuditPlan,
    association_auroc,
    curve_coefficients,
    curve_minimum,
    fit_association_heads,
)
from ..audit.fits import Fitted, FittingData, explain, list_jobs, stored_fit
from ..audit.store import Store, cell_key, resolve_device
from ..endpoint import operating_points, select_by_development, select_within_family
from ..maps import CorrectionMap, SequentialMap
from ..tables.fitting import fit_table
from ..tables.table import Table
from .arms import make_arm, recipes
from .config import ReuseSection, Study
from .material import Material, events, prepare, reuse_plan
from .recordings import Recordings
from .splits import Split, shortcut, split_names


@dataclass(frozen=True)
class Candidate:
    """One recipe of a method with one seed.

    Attributes
    ----------
    recipe : dict
    model : estimator
        To be fitted.
    key : str
        The name of its cell.
    chosen : Fitted or None
        The map at the point that development people chose, and what it did to them; None before it is fitted.
    """

    recipe: dict[str, Any]
    model: Any
    key: str
    chosen: Any = None

    def on_development(self, outcome: str) -> float:
        """Return what the chosen point did to development people: "worst" (AUROC) or "movement"."""
        return float(self.chosen.facts[outcome])


def run_reuse(
    study: Study, recordings: Recordings, **options: Any
) -> tuple[dict[str, list[Audit]], dict[str, Any]]:
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
    audits : dict of task to list of Audit
        One for every split; tasks go by the names that the study prints.
    selection : dict
        For every method (and rotation of roles): the recipe, and for every seed the point and what it did to
        development people.
    """
    plan, splits = reuse_plan(study), split_names(study)
    device, store = resolve_device(options["device"]), Store(options["cache"]).create()
    audits: dict[str, list[Audit]] = {}
    selection: dict[str, Any] = {}
    for split, rotation in splits.items():
        material = prepare(study, recordings, rotation)
        chosen: dict[str, list[CorrectionMap]] = {}
        for name in study.methods:
            family = _candidates(study, material, name, store, device, options["n_jobs"])
            best = _family_choice(family, plan)
            chosen[name] = [candidate.chosen.map for candidate in best]
            selection[name if len(splits) == 1 else f"{name}, {split}"] = {
                "recipe": best[0].recipe,
                "fits": [_facts(candidate) for candidate in best],
                "candidates": len(family),
            }
        for task in plan.tasks:
            found = _audit_plan(study, material, task, chosen, **options).run()
            # The outcome is the worst association; the source is read by two readers, only to look at.
            more = {"preliminary": "quick" in study.overlays, "outcome": "worst"}
            found = replace(found, settings=found.settings | more)
            audits.setdefault(plan.labels.get(task, task), []).append(found)
    return audits, selection


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


def _unfitted(study: Study, material: Material, name: str, device: str) -> Iterator[Candidate]:
    """Yield every recipe and seed of a method, to be fitted."""
    method = study.methods[name]
    split = Split(name, material.bank, material.coordinates, material.pairs)
    data = FittingData(material.bank, material.val, material.pairs)
    for recipe in recipes(method):
        for job in list_jobs({name: make_arm(study, split, name, method, recipe)}, study.seeds, device):
            if job.method == name:
                key = cell_key("selection", data.key(job), material.digest, reuse_plan(study).max_loss)
                yield Candidate(recipe, job.model, key)


def _candidates(
    study: Study, material: Material, name: str, store: Store, device: str, n_jobs: int = 1
) -> list[Candidate]:
    """Return every recipe and seed of a method, fitted, at the point that development people choose."""
    candidates = list(_unfitted(study, material, name, device))
    chosen = {candidate.key: stored_fit(store, candidate.key) for candidate in candidates}
    missing = [candidate for candidate in candidates if chosen[candidate.key] is None]
    if missing:
        plan = reuse_plan(study)
        # The development task's shortcut and control heads, of original HEAD events.
        heads = fit_association_heads(*events(material.tables[material.development].rows("HEAD")))
        calls = (delayed(_fit_one)(name, one, material, heads, plan, store) for one in missing)
        made = list(in_processes(calls, n_jobs))
        chosen |= {candidate.key: fitted for candidate, fitted in zip(missing, made, strict=True)}
    return [replace(candidate, chosen=chosen[candidate.key]) for candidate in candidates]


def _fit_one(
    name: str, candidate: Candidate, material: Material, heads: Any, plan: ReuseSection, store: Store
) -> Fitted:
    with explain(f"fitting {name}", store):
        rows = Table.concatenate([material.bank, material.val])
        model = fit_table(candidate.model, rows, pairs=material.pairs)
        m, facts = _select(model.to_map().with_coordinates(material.coordinates), material, heads, plan)
    return Fitted(m, store.put(candidate.key, facts, m))


def _select(
    fitted: CorrectionMap, material: Material, heads: Any, plan: ReuseSection
) -> tuple[CorrectionMap, dict[str, Any]]:
    """Return the map at the point that development people choose, and what it did to them."""
    table = material.tables[material.development].rows("VAL")
    X0, X1, positive, people = events(table)
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
    worst = [float(np.mean([c.on_development("worst") for c in fits])) for fits in recipes]
    moved = [float(np.mean([c.on_development("movement") for c in fits])) for fits in recipes]
    return recipes[select_within_family(worst, moved, tolerance=plan.tolerance)]


def _facts(candidate: Candidate) -> dict[str, Any]:
    m = candidate.chosen.map
    return {
        "seed": candidate.model.get_params().get("random_state"),
        **({"n_stages": len(m)} if isinstance(m, SequentialMap) else {}),
        "strength": m.strength,
        **{outcome: candidate.on_development(outcome) for outcome in ("worst", "movement")},
    }
