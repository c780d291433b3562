"""Run a study: from recordings to an audit pooled over its splits; what is finished stays finished."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from ..audit import Audit, AuditPlan
from ..tables.table import Table
from .arms import check_arms, make_arms, pairs_by_method, recipes, unfitted
from .config import Study
from .recordings import Recordings
from .roles import roles_of, shortcut
from .splits import Split, make_split, split_names


@dataclass(frozen=True)
class StudyResult:
    """What a study found.

    Attributes
    ----------
    study : Study
        As it was run.
    audits : dict of task to Audit
        Pooled over splits. A study of one task calls it by the empty text.
    checksums : dict of file to SHA-256
        Of everything that was read.
    selection : dict
        For reuse: what development people chose of every method.
    tables : dict of task to dict
        What the tables of embeddings say about themselves: encoder, pairing, what was left out.
    """

    study: Study
    audits: dict[str, Audit]
    checksums: dict[str, str]
    selection: dict[str, Any]
    tables: dict[str, dict[str, Any]]

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
        made from: killed at any moment, the same call goes on where it was and ends with the same bits.
    n_jobs : int
        Cells at a time on this machine. They share its threads, and more or fewer threads round differently:
        with ``OMP_NUM_THREADS=1`` in the environment, results are the same bits for any number of jobs.
    client : dask.distributed.Client or None
        Where to compute cells instead.
    device : str
        Where networks are trained.
    verbose : bool
        Say what is being done.
    """
    # Workers of a cluster may be in another folder.
    workspace = Path(workspace).resolve()
    check_arms(study)
    workspace.mkdir(parents=True, exist_ok=True)
    recordings = Recordings(study, workspace, device=device, verbose=verbose)
    with joblib.parallel_config("dask", client=client) if client is not None else nullcontext():
        options: dict[str, Any] = {
            "cache": workspace / "cells",
            "n_jobs": n_jobs,
            "device": device,
            "verbose": verbose,
        }
        if study.reuse is not None:
            from .reuse import run_reuse

            audits, selection = run_reuse(study, recordings, **options)
            return StudyResult(study, audits, recordings.checksums, selection, recordings.said)
        found: dict[str, list[Audit]] = {}
        for name, rotation in split_names(study).items():
            for task, plan in study_plans(study, make_split(study, recordings, name, rotation), **options):
                found.setdefault(task, []).append(plan.run())
        audits = {task: Audit.pool(parts) for task, parts in found.items()}
        return StudyResult(study, audits, recordings.checksums, {}, recordings.said)


def judged(study: Study, split: Split) -> dict[str, Table]:
    """Return the rows of a split for every task whose labels the study names.

    HEAD and EVAL have that task's labels. FIT and VAL keep the first one's, so that fits are the same ones:
    one map, judged by several tasks. A study of one task calls it by the empty text.
    """
    columns = study.data.labels
    if len(columns) < 2:
        return {"": split.table}
    table, first = split.table, next(iter(columns))
    held, kept = np.isin(table.role, ("HEAD", "EVAL")), table.columns["label"]
    return {
        task: table if task == first else replace(table, label=np.where(held, table.columns[name], kept))
        for task, name in columns.items()
    }


def study_plans(study: Study, split: Split, **options: Any) -> Iterator[tuple[str, AuditPlan]]:
    """Yield the tasks of one split, and how each is audited."""
    budgets = {name: method.budget for name, method in study.methods.items() if method.budget is not None}
    methods, pairs = make_arms(study, split), pairs_by_method(study, split)
    for task, table in judged(study, split).items():
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
    """What a study consists of, and what of it is there.

    Attributes
    ----------
    tables : dict of name to bool
        Whether each table of embeddings is made.
    cells : list of dict
        One for every fit (and task, where several are judged): split, task, method, fit, whether it is
        ``fitted`` and ``measured`` (None: not known before its table is made).
    """

    tables: dict[str, bool]
    cells: list[dict[str, Any]]

    def __str__(self) -> str:
        lines = [
            f"table {name or 'of embeddings'}: {'there' if kept else 'to be made'}"
            for name, kept in self.tables.items()
        ]
        methods = list(dict.fromkeys(cell["method"] for cell in self.cells))
        width = max(map(len, methods), default=0)
        lines.append(f"{'method':<{width}}  cells  fitted  measured")
        for method in methods:
            cells = [cell for cell in self.cells if cell["method"] == method]
            lines.append(f"{method:<{width}}  {_counts(cells)}")
        lines.append(f"{'total':<{width}}  {_counts(self.cells)}")
        return "\n".join(lines)


def _counts(cells: list[dict[str, Any]]) -> str:
    done = {name: sum(bool(cell[name]) for cell in cells) for name in ("fitted", "measured")}
    return f"{len(cells):>5}  {done['fitted']:>6}  {done['measured']:>8}"


def plan_study(study: Study, workspace: Path, *, device: str = "auto") -> Plan:
    """Return what a study consists of and what of it is there; nothing is computed."""
    workspace = Path(workspace)
    check_arms(study)
    recordings = Recordings(study, workspace, device=device)
    tasks = recordings.tasks if study.reuse is None else study.reuse.tasks
    tables = {task: recordings.is_kept(task) for task in tasks}
    embedded = all(tables.values())
    options: dict[str, Any] = {"cache": workspace / "cells", "device": device}
    cells: list[dict[str, Any]] = []
    for name, rotation in split_names(study).items():
        there = embedded
        if study.views.transport is not None:
            there = embedded and recordings.has_virtual_pairs(
                roles_of(recordings.table(tasks[0]), study.roles, rotation)
            )
            tables[f"of virtual pairs, {name}"] = there
        if not there:
            for method, fits in _known_fits(study).items():
                unknown: dict[str, Any] = {"split": name, "task": "", "method": method}
                unknown |= {"fitted": None, "measured": None}
                cells += [unknown | {"fit": fit} for fit in range(fits)]
        elif study.reuse is not None:
            from .reuse import plan_reuse

            planned = plan_reuse(study, recordings, rotation, **options)
            cells += [{"split": name, "task": ""} | cell for cell in planned]
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
