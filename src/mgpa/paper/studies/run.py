"""Run a study, from recordings to an audit pooled over splits, and keep finished cells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from ..._common.files import claim, write_atomically
from ...audit import Audit, AuditPlan
from ...audit.store import key_of, resolve_device
from ...tables.table import Table
from .arms import make_arms, pairs_by_method, recipes, unfitted
from .config import Study
from .recordings import Recordings
from .reuse import run_reuse
from .setup import check_study, deviations, effective_settings, heading
from .splits import Split, make_split, shortcut, split_names


@dataclass(frozen=True)
class StudyResult:
    """A finished study.

    Attributes
    ----------
    study : Study
    audits : dict of task to Audit
        Audits pooled over splits. The task of a single-task study has the empty name "".
    checksums, tables : dict
        SHA-256 of each input file; metadata of the tables of embeddings.
    selection : dict
        In reuse studies: the recipe and operating points of each method selected on development participants.
    files, device : str
        The origin of the recordings ("published", "simulated", or their differences); the device that trained
        networks.
    splits : tuple of dict
        Number of participants with each role, for each split.
    counts : dict of str to int
        In reuse studies: numbers of pairs and views used for fitting.
    """

    study: Study
    audits: dict[str, Audit]
    checksums: dict[str, str]
    selection: dict[str, Any]
    tables: dict[str, dict[str, Any]]
    files: str = "table"
    splits: tuple[dict[str, int], ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    device: str = "cpu"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Effective settings of the run, with all parameters of all methods."""
        return effective_settings(self.study)

    @property
    def weights(self) -> str:
        """SHA-256 of the encoder's weights, "random …" for random weights, or "none"."""
        for info in self.tables.values():
            record = (info.get("encoder") or {}).get("checkpoint")
            if record is not None:
                return str(record.get("sha256", record) if isinstance(record, dict) else record)
        return "none"

    @property
    def digest(self) -> str:
        """Checksum of settings, input files and weights."""
        return key_of(self.settings, dict(sorted(self.checksums.items())), self.weights)

    @cached_property
    def deviations(self) -> list[str]:
        """Differences between the run and the packaged study of the same name."""
        return deviations(self.study, self.files, self.weights, self.device)

    @property
    def heading(self) -> str:
        """The heading of the run's numbers: "Ours" only if it does not deviate from the packaged study."""
        return heading(self.study, self.files, self.deviations)

    @property
    def omitted(self) -> dict[str, str]:
        """Omitted methods with the reason: the budget that a fit does not attain."""
        return {
            f"{task}: {name}" if task else name: why
            for task, audit in self.audits.items()
            for name, why in audit.settings.omitted.items()
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
    """Run a study, or continue an interrupted one.

    Parameters
    ----------
    study : Study
        From :func:`mgpa.paper.load_study`.
    workspace : path
        Folder, which must be new, empty, or from an earlier run. It keeps the effective settings
        (settings.json), simulated recordings, tables of embeddings and finished cells, named by their inputs.
        If a run is interrupted, the same call continues it and gives bit-identical results.
    n_jobs : int
        Number of cells computed in parallel on this machine. Cells share its threads, and the number of
        threads changes rounding: with ``OMP_NUM_THREADS=1`` in the environment, results are bit-identical for
        any number of jobs.
    client : dask.distributed.Client or None
        Cluster to compute cells on instead of this machine.
    device : str
        Device that trains networks.
    verbose : bool
        Show progress.
    """
    workspace = Path(workspace).resolve()  # cluster workers may run in another folder
    recordings = Recordings(study, workspace, device=device, verbose=verbose)
    check_study(study, recordings)
    settings = json.dumps(effective_settings(study), indent=1, ensure_ascii=False, default=str)
    write_atomically(claim(workspace, "settings.json")[0], f"{settings}\n".encode())
    options = {"cache": workspace / "cells", "n_jobs": n_jobs, "device": device, "verbose": verbose}
    parts: dict[str, list[Audit]] = {}
    selection: dict[str, Any] = {}
    counts: dict[str, int] = {}
    with joblib.parallel_config("dask", client=client) if client is not None else nullcontext():
        if study.reuse is not None:
            parts, selection, counts = run_reuse(study, recordings, **options)
        else:
            for rotation in split_names(study).values():
                split = make_split(study, recordings, rotation)
                for task, plan in study_plans(study, split, **options):
                    parts.setdefault(task, []).append(plan.run())
    return StudyResult(
        study,
        {task: Audit.pool(audits) for task, audits in parts.items()},
        recordings.checksums,
        selection,
        recordings.info,
        recordings.origin,
        tuple(audit.settings.participants for audit in next(iter(parts.values()))),
        counts,
        resolve_device(device),
    )


def tasks_of(study: Study, table: Table) -> dict[str, Table]:
    """Return the rows of each task that the study names; a single task has the empty name.

    HEAD and EVAL rows have the labels of the task. FIT and VAL rows keep the labels of the first task, so
    that all tasks share fits.
    """
    columns = study.data.labels
    if len(columns) < 2:
        return {"": table}
    held, label = np.isin(table.role, ("HEAD", "EVAL")), table.columns["label"]
    first, *others = columns
    tables = {task: np.where(held, table.columns[columns[task]], label) for task in others}
    return {first: table} | {task: replace(table, label=labels) for task, labels in tables.items()}


def study_plans(study: Study, split: Split, **options: Any) -> Iterator[tuple[str, AuditPlan]]:
    """Yield each task of one split with its audit plan."""
    budgets = {name: method.budget for name, method in study.methods.items() if method.budget is not None}
    shared: dict[str, Any] = options | {
        "pairs": pairs_by_method(study, split),
        "seeds": study.seeds,
        "budget": budgets or None,
        "coordinates": split.coordinates,
        "readers": study.readers.model_dump(),
        "folds": 1,
        "floor": False,
    }
    methods = make_arms(study, split)
    for task, table in tasks_of(study, split.table).items():
        yield task, AuditPlan(table, methods, association=shortcut(table), **shared)


def plan_study(study: Study, workspace: Path) -> dict[str, int]:
    """Check a study without computing anything; return the number of cells (fits) of each method.

    Raises
    ------
    StudyError
        If the study cannot run; the message has one line per problem: missing files, roles or weights, or too
        little disk space or memory.
    """
    check_study(study, Recordings(study, Path(workspace)))
    splits = len(split_names(study))
    cells = {"identity": splits}
    for name, method in study.methods.items():
        seeded = unfitted(name, method).get_params().get("random_state", 0) is None
        fits = len(recipes(method)) * max(1, len(method.gate_seeds)) * (len(study.seeds) if seeded else 1)
        cells[name] = fits * splits
    return cells
