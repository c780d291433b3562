"""Run a study: from recordings to an audit pooled over its splits; what is finished stays finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from ..audit import Audit, AuditPlan
from ..audit.store import Store, resolve_device
from ..errors import StudyError
from ..maps import CorrectionMap
from ..tables.table import Table
from .arms import make_arms, pairs_by_method, recipes, unfitted
from .checks import check_study
from .config import Study
from .material import prepare
from .recordings import Recordings
from .reuse import chosen_maps, plan_reuse, run_reuse
from .setup import deviations, effective_settings, heading, settings_digest, weights_of
from .splits import Split, make_split, roles_of, shortcut, split_names


@dataclass(frozen=True)
class StudyResult:
    """A finished study.

    Attributes
    ----------
    study : Study
        As it was run.
    audits : dict of task to Audit
        Pooled over splits. A study of one task calls it by the empty text.
    checksums : dict of file to SHA-256
        Of everything that was read.
    selection : dict
        For reuse: what was chosen of every method on development participants.
    tables : dict of task to dict
        What the tables of embeddings say about themselves: encoder, pairing, what was left out.
    files : str
        "published", "simulated", or how the recordings differ from the published ones.
    splits : list of dict
        How many participants have each role, in every split.
    device : str
        Where networks were trained.
    """

    study: Study
    audits: dict[str, Audit]
    checksums: dict[str, str]
    selection: dict[str, Any]
    tables: dict[str, dict[str, Any]]
    files: str = "table"
    splits: tuple[dict[str, int], ...] = ()
    device: str = "cpu"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Effective settings: what really ran, with every parameter of every method."""
        return effective_settings(self.study)

    @property
    def weights(self) -> str:
        """SHA-256 of the encoder's weights; "random …" or "none" without."""
        return weights_of(self.tables)

    @property
    def digest(self) -> str:
        """Checksum of settings, input files and weights."""
        return settings_digest(self.settings, self.checksums, self.weights)

    @cached_property
    def deviations(self) -> list[str]:
        """How the run differs from the packaged study of its name."""
        return deviations(self.study, self.files, self.weights)

    @property
    def heading(self) -> str:
        """What the numbers are called: "Ours" only without deviations from the packaged study."""
        return heading(self.study, self.files, self.deviations)

    @property
    def omitted(self) -> dict[str, str]:
        """Methods that were left out, and why: a budget that a fit does not attain."""
        return {
            f"{task}: {name}" if task else name: why
            for task, audit in self.audits.items()
            for name, why in audit.settings["omitted"].items()
        }


def run_study(
    study: Study,
    workspace: Path,
    *,
    n_jobs: int = 1,
    client: Any = None,
    device: str = "auto",
    verbose: bool = True,
) -> StudyResult:
    """Run a study, or finish one that was begun.

    Parameters
    ----------
    study : Study
        From :func:`mgpa.studies.load_study`.
    workspace : path
        Simulated recordings, tables of embeddings and finished cells are kept there, named by what they were
        made from: killed at any moment, the same call continues and ends with the same bits.
    n_jobs : int
        Cells at a time on this machine. They share its threads, and more or fewer threads round differently:
        with ``OMP_NUM_THREADS=1`` in the environment, results are the same bits for any number of jobs.
    client : dask.distributed.Client or None
        Where to compute cells instead.
    device : str
        Where networks are trained.
    verbose : bool
        Show progress.
    """
    workspace = Path(workspace).resolve()  # workers of a cluster may be in another folder
    recordings = Recordings(study, workspace, device=device, verbose=verbose)
    check_study(study, recordings)
    workspace.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"cache": workspace / "cells", "n_jobs": n_jobs, "device": device}
    options["verbose"] = verbose
    parts: dict[str, list[Audit]] = {}
    selection: dict[str, Any] = {}
    with joblib.parallel_config("dask", client=client) if client is not None else nullcontext():
        if study.reuse is not None:
            parts, selection = run_reuse(study, recordings, **options)
        else:
            for name, rotation in split_names(study).items():
                for task, plan in study_plans(
                    study, make_split(study, recordings, name, rotation), **options
                ):
                    parts.setdefault(task, []).append(plan.run())
    return StudyResult(
        study,
        {task: Audit.pool(audits) for task, audits in parts.items()},
        recordings.checksums,
        selection,
        recordings.info,
        recordings.origin,
        tuple(audit.settings["participants"] for audit in next(iter(parts.values()))),
        resolve_device(device),
    )


def tasks_of(study: Study, split: Split) -> dict[str, Table]:
    """Return the rows of a split for every task whose labels the study names.

    HEAD and EVAL have that task's labels. FIT and VAL keep the first task's, so that all tasks share the same
    fits. A study of one task calls it by the empty text.
    """
    columns = study.data.labels
    if len(columns) < 2:
        return {"": split.table}
    table, first = split.table, next(iter(columns))
    held, label = np.isin(table.role, ("HEAD", "EVAL")), table.columns["label"]
    return {
        task: table if task == first else replace(table, label=np.where(held, table.columns[name], label))
        for task, name in columns.items()
    }


def study_plans(study: Study, split: Split, **options: Any) -> Iterator[tuple[str, AuditPlan]]:
    """Yield the tasks of one split, and how each is audited."""
    budgets = {name: method.budget for name, method in study.methods.items() if method.budget is not None}
    methods, pairs = make_arms(study, split), pairs_by_method(study, split)
    for task, table in tasks_of(study, split).items():
        yield (
            task,
            AuditPlan(
                table,
                methods,
                pairs=pairs,
                seeds=study.seeds,
                budget=budgets or None,
                unattained="omit",
                coordinates=split.coordinates,
                readers=study.readers.model_dump(),
                association=shortcut(table),
                folds=1,
                floor=study.floor,
                **options,
            ),
        )


@dataclass(frozen=True)
class Plan:
    """What a study consists of, and what of it is finished.

    Attributes
    ----------
    tables : dict of name to bool
        Whether each table of embeddings is made.
    cells : list of dict
        One for every fit (and task, where there are several): split, task, method, fit, whether it is
        ``fitted`` and ``measured`` (None: unknown before its table is made).
    """

    tables: dict[str, bool]
    cells: list[dict[str, Any]]

    def __str__(self) -> str:
        lines = [
            f"table {name or 'of embeddings'}: {'made' if made else 'not made yet'}"
            for name, made in self.tables.items()
        ]
        by_method: dict[str, list[dict[str, Any]]] = {}
        for cell in self.cells:
            by_method.setdefault(cell["method"], []).append(cell)
        width = max(map(len, (*by_method, "method")))
        lines.append(f"{'method':<{width}}  cells  fitted  measured")
        for method, cells in {**by_method, "total": self.cells}.items():
            fitted, measured = (sum(bool(cell[name]) for cell in cells) for name in ("fitted", "measured"))
            lines.append(f"{method:<{width}}  {len(cells):>5}  {fitted:>6}  {measured:>8}")
        return "\n".join(lines)


def plan_study(study: Study, workspace: Path, *, device: str = "auto") -> Plan:
    """Check a study, and return what it consists of and what of it is finished; nothing is computed."""
    recordings = Recordings(study, Path(workspace), device=device)
    check_study(study, recordings)
    tasks = recordings.tasks if study.reuse is None else study.reuse.tasks
    tables = {task: recordings.is_kept(task) for task in tasks}
    embedded = all(tables.values())
    options: dict[str, Any] = {"cache": recordings.workspace / "cells", "device": device}
    cells: list[dict[str, Any]] = []
    for name, rotation in split_names(study).items():
        made = embedded
        if study.views.transport is not None:
            made = embedded and recordings.has_virtual_pairs(
                roles_of(recordings.table(tasks[0]), study.roles, rotation)
            )
            tables[f"of virtual pairs, {name}"] = made
        if not made:
            cells += [
                {"split": name, "task": "", "method": method, "fit": fit, "fitted": None, "measured": None}
                for method, fits in _known_fits(study).items()
                for fit in range(fits)
            ]
        elif study.reuse is not None:
            cells += [
                {"split": name, "task": ""} | cell
                for cell in plan_reuse(study, recordings, rotation, **options)
            ]
        else:
            for task, plan in study_plans(study, make_split(study, recordings, name, rotation), **options):
                cells += [{"split": name, "task": task} | cell for cell in plan.pending()]
    return Plan(tables, cells)


def _known_fits(study: Study) -> dict[str, int]:
    """Return how many fits each method has, without its data."""
    counts = {"identity": 1}
    for name, method in study.methods.items():
        seeded = unfitted(name, method).get_params().get("random_state", 0) is None
        seeds = len(study.seeds) if seeded else 1
        counts[name] = len(recipes(method)) * max(1, len(method.gate_seeds)) * seeds
    return counts


def study_maps(
    study: Study, workspace: Path, *, device: str = "auto"
) -> dict[str, Callable[[], CorrectionMap]]:
    """Return the maps of a study's finished cells, by name; each is opened when it is called for.

    Parameters
    ----------
    study : Study
        As it was run.
    workspace : path
        Where it was run; nothing is computed, and unfinished cells are absent.
    device : str
        As it was run.

    Returns
    -------
    dict of name to function
        Names are ``split/method/fit``, without the split where there is one, and without the fit where a
        method has one. Maps carry their coordinates: ``from_raw`` takes the encoder's own features.
    """
    recordings = Recordings(study, Path(workspace), device=device)
    tasks = recordings.tasks if study.reuse is None else study.reuse.tasks
    if not all(recordings.is_kept(task) for task in tasks):
        raise StudyError(f"{workspace} has no tables of this study; was it run there, with these settings?")
    splits, cells = split_names(study), recordings.workspace / "cells"
    maps: dict[str, Callable[[], CorrectionMap]] = {}
    for split, rotation in splits.items():
        if study.reuse is not None:
            material = prepare(study, recordings, rotation)
            chosen = chosen_maps(study, material, Store(cells), resolve_device(device))
            finished: Any = {name: [partial(_same, m) for m in fits] for name, fits in chosen.items()}
        else:
            made = make_split(study, recordings, split, rotation)
            finished = next(study_plans(study, made, cache=cells, device=device))[1].finished()
        for method, openers in finished.items():
            name = method if len(splits) == 1 else f"{split}/{method}"
            maps |= {name if len(openers) == 1 else f"{name}/{i}": o for i, o in enumerate(openers)}
    return maps


def _same(m: CorrectionMap) -> CorrectionMap:
    return m


def find_map(maps: dict[str, Callable[[], CorrectionMap]], name: str) -> CorrectionMap:
    """Return the map of one cell.

    Parameters
    ----------
    maps : dict
        From :func:`study_maps`.
    name : str
        Of the cell, or as much of it as names one: "MGPA-CF" of a study with one split.
    """
    near = [cell for cell in maps if cell == name] or [cell for cell in maps if f"/{name}/" in f"/{cell}/"]
    if len(near) == 1:
        return maps[near[0]]()
    listed = ", ".join(near or maps) or "none"
    raise StudyError(f"{name!r} matches {len(near)} finished cells. Cells: {listed}.")
