"""The protocol: fit the methods, correct HEAD and EVAL, measure everything, keep what is finished."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self, TypeVar

import numpy as np
from joblib import delayed
from threadpoolctl import threadpool_limits

from .. import __version__
from .._common.progress import in_processes, waiting
from ..coordinates import Coordinates
from ..errors import ParameterError, TableError, UsageError, printable
from ..estimators.staged import torch_device
from ..maps import CorrectionMap, load_map
from ..maps.io.mapfile import map_digest
from ..tables.columns import ROLES
from ..tables.rows import in_coordinates
from ..tables.table import Table
from .association import Direction, choose_directions
from .design import FEWEST_PEOPLE, duplicates, find_design, fold_tables, require_measurable, seen_by
from .diagnostics import confounding
from .fits import (
    Fitted,
    FittingData,
    Job,
    common_coordinates,
    cut_back,
    explain,
    fit_one,
    has_pairs,
    list_jobs,
    pairs_in,
    require_applicable,
    stored_fit,
)
from .heads import check_head
from .measure import Ground, Rows, measure, preserved_rows, source_accessibility
from .method_result import MethodResult, people_known
from .readers import CHECKPOINTS, SourceReading, reader_bank
from .result import Audit
from .store import LIBRARIES, Arrays, Store, array_digest, cell_key, installed, resolve_device
from .words import label as shown_as

# Values of HEAD rows up to which a cell is measured by one thread.
SMALL = 2**22

DEFAULT_METHODS = ("identity", "leace", "mgpa")

T = TypeVar("T")


def run(
    table: Table,
    methods: Iterable[str] | Mapping[str, Any] = DEFAULT_METHODS,
    *,
    pairs: Any = None,
    seeds: Sequence[int] = (17, 29, 43),
    budget: float | Mapping[str, float] | None = None,
    unattained: Literal["raise", "omit"] = "raise",
    coordinates: Coordinates | None = None,
    head: Any = None,
    task: str | None = None,
    readers: str | Mapping[str, Any] = "full",
    association: tuple[Any, Any] | None = None,
    floor: bool = True,
    standardize: bool = True,
    folds: int | None = None,
    cache: Any = None,
    n_jobs: int = 1,
    device: str = "auto",
    verbose: bool = True,
) -> Audit:
    """Measure what corrections do to source, task and movement, on people they were not fitted on.

    Parameters
    ----------
    table : Table
        With roles: methods are fitted on FIT (and VAL), readers and heads on HEAD, everything is scored on
        EVAL. Every EVAL participant needs rows of every source.
    methods : names, or dict of name to method
        Names as in :func:`mgpa.baselines.available`. A dict's values are names, estimators, fitted
        estimators, maps, or lists of them (several fits of one method). "identity" is always measured too.
        Maps with coordinates must share them; the whole audit then takes place there.
    pairs : tuple (A, B), dict of name to tuple, or None
        Calibration pairs, if they are not rows of the table (then its ``pair_id`` in FIT is used). In a dict,
        those of each method; methods it leaves out use the rows.
    seeds : sequence of int
        Fits of every method that has a ``random_state`` of None; the others are fitted once.
    budget : float, dict of name to float, or None
        Compare at this relative movement of the VAL rows instead of with complete maps: all methods, or those
        of the dict.
    unattained : {"raise", "omit"}
        What becomes of a method that cannot move as far as its budget in every fit: an error, or it is left
        out, and ``settings["omitted"]`` says why.
    coordinates : Coordinates or None
        Those that the table is in (``info["coordinates"]``); fitted maps will carry them.
    head : scikit-learn classifier or regressor, or None
        Task head; None is the paper's balanced ridge head, or its network for tokens, or ridge regression
        where labels are numbers. One that is fitted, your deployed model, is scored as it is on corrected and
        uncorrected rows, in the table's own units; copies of it are refitted.
    task : {"classification", "regression"} or None
        What labels are. None: many distinct numbers that differ between participants are a quantity.
    readers : {"full", "paper"} or dict
        Who tries to read the source: the paper's eleven readers (41 for tokens) alone, or these and boosted
        trees and a reader of spread besides ("full"). A dict has ``bank``, one of these names, and
        ``restarts`` and ``checkpoints`` for smaller ones.
    association : tuple (source, label), or None
        Which source a label is associated with where the heads behind ``worst`` learn their shortcut. None:
        as in the FIT rows; where these show no association, the curves of both directions are averaged.
    floor : bool
        Also read the source from what each gate preserves.
    standardize : bool
        Measure in features scaled to unit spread over the FIT rows. False measures in the table's own
        coordinates: where several tables share them, they are not to be made again from each.
    cache : path or None
        Folder for finished cells. Running again with the same data and settings reads them; a run that was
        killed goes on where it was. Code is not among the settings: after changing a class of your own,
        take another folder.
    folds : int or None
        Let roles rotate over this many folds, so that each participant is EVAL once, scored by models trained
        on others; 1 keeps the table's roles. None makes five (four with eight or nine people, one a person
        with three to seven) where fewer than twelve people are EVAL or the table has no roles, if all
        methods are fitted here.
    n_jobs : int
        Cells at a time (joblib; ``joblib.parallel_config("dask")`` sends them to a cluster).
    device : str
        Where networks are trained, unless a method says so itself; "auto" is CUDA if torch sees it here.
    verbose : bool
        Say what is being done.

    Returns
    -------
    Audit

    Examples
    --------
    >>> import numpy as np
    >>> from mgpa.tables import Table, assign_roles
    >>> rng = np.random.default_rng(0)
    >>> person, event = np.repeat(np.arange(16), 20), np.repeat(np.arange(160), 2)
    >>> source, y = np.tile(["dry", "wet"], 160), np.repeat(np.arange(160) % 2, 2)
    >>> X = rng.normal(size=(160, 5))[event] + (source == "wet")[:, None] + y[:, None] * [0, 2, 0, 0, 0]
    >>> table = Table(X, source=source, participant=person, label=y, pair_id=event, role=assign_roles(person))
    >>> audit = run(table, ["closed_form_mgpa"], readers={"restarts": 0}, verbose=False)
    >>> bool(audit["closed_form_mgpa"].estimate("S").value < audit["identity"].estimate("S").value)
    True
    """
    settings = locals()
    with waiting("audit: preparing", verbose):
        plan = AuditPlan(**settings)
    return plan.run()


class AuditPlan:
    """An audit before it runs, checked as a whole; the parameters are those of :func:`run`.

    Examples
    --------
    >>> from mgpa.tables import simulate_table
    >>> plan = AuditPlan(simulate_table(16), ["leace"], readers={"restarts": 0}, verbose=False)
    >>> [(cell["method"], cell["measured"]) for cell in plan.pending()]
    [('identity', False), ('leace', False)]
    >>> plan.run().methods
    ('identity', 'leace')
    """

    def __init__(
        self,
        table: Table,
        methods: Iterable[str] | Mapping[str, Any] = DEFAULT_METHODS,
        *,
        pairs: Any = None,
        seeds: Sequence[int] = (17, 29, 43),
        budget: float | Mapping[str, float] | None = None,
        unattained: Literal["raise", "omit"] = "raise",
        coordinates: Coordinates | None = None,
        head: Any = None,
        task: str | None = None,
        readers: str | Mapping[str, Any] = "full",
        association: tuple[Any, Any] | None = None,
        floor: bool = True,
        standardize: bool = True,
        folds: int | None = None,
        cache: Any = None,
        n_jobs: int = 1,
        device: str = "auto",
        verbose: bool = True,
    ) -> None:
        if not isinstance(table, Table):
            raise TypeError(
                f"table is a {type(table).__name__}; make a Table of it, as Table.from_frame does."
            )
        table.require("source", "participant")
        self.bank = reader_bank(**({"bank": readers} if isinstance(readers, str) else readers))
        self.device = resolve_device(device)
        if self.bank["restarts"]:
            torch_device(self.device, "The bank of source readers")
        self.jobs = list(list_jobs(methods, seeds, self.device))
        names = list(dict.fromkeys(job.method for job in self.jobs))
        by_label: dict[str, str] = {}
        for name in names:
            other = by_label.setdefault(shown_as(name), name)
            if other != name:
                raise ValueError(f"{other!r} and {name!r} are both shown as {shown_as(name)}; rename one.")
        for what, by_method in (("budget", budget), ("pairs", pairs)):
            unknown = sorted(set(by_method) - set(names)) if isinstance(by_method, Mapping) else []
            if unknown:
                raise ValueError(f"{what} names {', '.join(unknown)}; the methods are {', '.join(names)}.")
        if unattained not in ("raise", "omit"):
            raise ParameterError("unattained", unattained, "'raise' or 'omit'")
        self.budgets = _budgets(budget, names)
        self.pairs, self.unattained, self.coordinates = pairs, unattained, coordinates
        self.head, self.association, self.floor, self.standardize = head, association, floor, standardize
        self.table, self.store, self.n_jobs, self.verbose = table, Store(cache), n_jobs, verbose
        n_pairs = {k: len(a) for k, (a, _) in pairs.items()} if isinstance(pairs, Mapping) else None
        self.settings: dict[str, Any] = {
            "version": __version__,
            "versions": {"Python": platform.python_version(), **installed(*LIBRARIES)},
            "seeds": list(seeds),
            "pairs": n_pairs if pairs is None or n_pairs is not None else len(pairs[0]),
            "floor": floor,
            "standardize": standardize,
            "budget": dict(budget) if isinstance(budget, Mapping) else budget,
            "head": repr(head) if head is not None else "",
            "readers": readers if isinstance(readers, str) else dict(readers),
            "bank": self.bank["bank"],
            "rules": "paper" if self.bank["bank"] == "paper" else "default",
            "preliminary": self.bank["restarts"] < 3 or max(self.bank["checkpoints"]) < max(CHECKPOINTS),
            "association": None if association is None else [str(part) for part in association],
            "device": self.device,
        }
        can_rotate = pairs is None and all(job.fitted is None for job in self.jobs)
        self.design = find_design(table, task)
        if len(self.design.units) < FEWEST_PEOPLE:
            raise TableError(
                f"The table has {len(self.design.units)} {self.design.plural}; an audit needs "
                f"{FEWEST_PEOPLE} or more: one to fit on, one to train readers on, one to score."
            )
        if head is not None and self.design.task:
            check_head(head, self.design.task)
        rotated = fold_tables(table, self.design, folds, can_rotate=can_rotate)
        if not rotated and table.role is not None and len(measured := table.rows("EVAL")):
            self.design = find_design(measured, self.design.task or None)
        for line in (self.design.sentence, *self.design.notes):
            self._say(line)
        self.folds = [self._fold(fold) for fold in rotated]
        if self.folds:
            whole = {"folds": len(self.folds), "data": table.digest[:16], "roles": table.role is not None}
            self.settings = self.folds[0].settings | whole
        else:
            self._take_roles(table, fewest=2)

    def _fold(self, table: Table) -> Self:
        """Return the same plan for one fold: a table with that fold's roles.

        One EVAL participant is enough in it: intervals are over the participants of all folds.
        """
        plan = copy(self)
        plan.folds = []
        plan._take_roles(table, fewest=1)
        return plan

    def _take_roles(self, table: Table, *, fewest: int) -> None:
        """Take a table with roles, once everything asked for can be done with it; note what it has."""
        table.require("role")
        if self.coordinates is not None and table.info.get("coordinates") != self.coordinates.digest:
            raise TableError(
                f"The table is in coordinates {table.info.get('coordinates')}, not in "
                f"{self.coordinates.digest}; mgpa.tables.rows.in_coordinates brings it there."
            )
        where = common_coordinates(self.jobs, self.coordinates)
        rows = in_coordinates(where, table)
        require_applicable(self.jobs, rows, self.pairs)
        parts = {role: rows.rows(role) for role in ROLES}
        for role in ("FIT", "HEAD", "EVAL", *(["VAL"] if self.budgets else [])):
            if not len(parts[role]):
                why = " A movement budget is one of VAL rows." if role == "VAL" else ""
                raise TableError(f"The table has no {role} rows; mgpa.tables.assign_roles gives roles.{why}")
        fit, val, head, evaluation = parts.values()
        require_measurable(self.design, head, evaluation, fewest)
        # Pairs come in the coordinates that the table came in.
        pairs = self.pairs if where is None or rows is table else pairs_in(where, self.pairs)
        self.data = FittingData(fit, val, pairs, self.standardize, where)
        directions: tuple[Direction, ...] = ()
        origin = ""
        if self.design.kind == "crossed" and self.design.labels == "within":
            directions, origin = choose_directions(self.association, fit, head, evaluation)
        scaling, design = self.data.standardizer, self.design
        self.ground = Ground(head, evaluation, scaling, design, self.head, self.device, self.bank, directions)
        self._held_out = [form.rows("HEAD", "EVAL") for form in ([table] if rows is table else [table, rows])]
        self.settings = self.settings | {
            "coordinates": None if where is None else where.digest,
            "directions": [str(direction) for direction in directions],
            "directions_of": origin,
            "rows": {role: len(part) for role, part in parts.items()},
            "participants": {role: len(np.unique(part.participant)) for role, part in parts.items()},
            "sources": [str(s) for s in table.sources.tolist()],
            "design": self.design.sentence,
            "unit": self.design.unit,
            "names": {"source": str(table.info.get("source_column", "source"))},
            "task": self.design.task,
            "features": list(rows.X.shape[1:]),
            "nested_readers": confounding(head.source, head.participant).nested_participants,
            "duplicates": duplicates(rows),
            "corrected_by": table.info.get("corrected_by"),
            "data": table.digest[:16],
        }

    def pending(self) -> list[dict[str, Any]]:
        """Return every fit: its ``method``, ``fit``, whether it is ``fitted`` and ``measured``."""
        if self.folds:
            return [cell for plan in self.folds for cell in plan.pending()]
        cells = []
        for job in self.jobs:
            whole = stored_fit(self.store, self.data.key(job))
            point = whole if job.method not in self.budgets else stored_fit(self.store, self._budget_key(job))
            measured = point is not None and all(
                self.store.get(cell) is not None for cell in self._measured_keys(point)
            )
            # A budget beyond the fit leaves nothing to measure.
            measured = measured or (whole is not None and self._beyond(job, whole) is not None)
            done = {"fitted": whole is not None, "measured": measured}
            cells.append({"method": job.method, "fit": job.fit, **done})
        return cells

    def finished(self) -> dict[str, list[Callable[[], CorrectionMap]]]:
        """Return the maps of methods whose fits are all finished, at their budgets; opened when called."""
        opened: dict[str, list[Callable[[], CorrectionMap]]] = {}
        unfinished = set()
        for job in self.jobs:
            at = self._budget_key(job) if job.method in self.budgets else self.data.key(job)
            path = self.store.path(at)
            if path is None or not path.exists():
                unfinished.add(job.method)
            else:
                opened.setdefault(job.method, []).append(partial(load_map, path.with_suffix(".safetensors")))
        return {name: maps for name, maps in opened.items() if name not in unfinished}

    def run(self) -> Audit:
        """Compute what is not finished, and return everything."""
        if self.folds:
            return self._run_folds()
        started = time.monotonic()
        self.store.create()
        maps, omitted, unattained = self._fit()
        cells = self._measure(maps)
        self._say(f"done in {time.monotonic() - started:.0f} s")
        results = {}
        for name in dict.fromkeys(job.method for job in maps):
            jobs = [job for job in maps if job.method == name]
            results[name] = MethodResult.collect(
                name,
                [maps[job] for job in jobs],
                [cells[job][0] for job in jobs],
                [cells[job][1] for job in jobs],
                fitted_elsewhere=any(job.fitted is not None for job in jobs),
                fitted_on=people_known(seen_by(maps[job].map, self._held_out) for job in jobs),
                design=self.design,
                widen=self.settings["rules"] == "default",
            )
        fit = self.data.fit
        return Audit(
            results,
            confounding(fit.source, fit.participant, fit.label),
            self.settings | {"omitted": omitted, "unattained": unattained},
            self.ground.evaluation.source[self.ground.picture[0]].astype(str),
            paired_rows=fit if self.data.pairs is None and has_pairs(fit) else None,
            design=self.design,
        )

    def _run_folds(self) -> Audit:
        audits = []
        for i, plan in enumerate(self.folds, start=1):
            self._say(f"fold {i} of {len(self.folds)}")
            try:
                audits.append(plan.run())
            except UsageError as error:
                if not plan.settings["participants"]["VAL"]:
                    error.add_note(
                        "Three participants leave one to fit on and none for VAL: methods that hold rows "
                        "out, as iterative_mgpa does, need a fourth. Audit the others."
                    )
                raise
        pooled, table = Audit.pool(audits), self.table
        return replace(
            pooled,
            settings=pooled.settings | {k: self.settings[k] for k in ("folds", "data", "roles")},
            # Each participant was fitted on in some fold.
            confounding=confounding(table.source, table.participant, table.label),
            paired_rows=replace(table, role=None) if has_pairs(table) else None,
        )

    def _fit(self) -> tuple[dict[Job, Fitted], dict[str, str], dict[str, list[int]]]:
        """Return every job's fit at its budget, methods to leave out with why, and how many fits miss it."""
        keys = {job: self.data.key(job) for job in self.jobs}
        # Arms that differ in their operating point alone share a fit, named after the first of them.
        first = {key: job for job, key in reversed(keys.items())}
        calls = {
            key: (first[key].method, partial(fit_one, first[key], self.data, self.store, key))
            for key in dict.fromkeys(keys.values())
        }
        full = self._complete(calls, partial(stored_fit, self.store), "fits", "fitted")
        omitted: dict[str, str] = {}
        unattained = {job.method: [0, 0] for job in keys if job.method in self.budgets}
        for job, key in keys.items():
            moved = self._beyond(job, full[key])
            if job.method in unattained:
                unattained[job.method][0] += moved is not None
                unattained[job.method][1] += 1
            if moved is not None:
                # A mean over the fits that do get there would be about other fits.
                omitted[job.method] = (
                    f"a budget of {self.budgets[job.method]:g} is beyond fit {job.fit}, which moves VAL rows "
                    f"by {moved:.3g} at most"
                )
                self._say(f"{job.method} is left out: {omitted[job.method]}")
        fits = {}
        for job, key in keys.items():
            if job.method in omitted:
                continue
            fits[job] = full[key]
            if job.method in self.budgets:
                at = self._budget_key(job)
                fits[job] = stored_fit(self.store, at) or cut_back(
                    job, full[key], self.budgets[job.method], self.data, self.store, at
                )
        return fits, omitted, unattained

    def _beyond(self, job: Job, fitted: Fitted) -> float | None:
        """Return how far a fit moves VAL rows at most, if its budget is beyond that and may be left out."""
        if self.unattained == "raise" or job.method not in self.budgets:
            return None
        moved = float(
            np.max(fitted.facts.get("stage_movement", fitted.facts["validation_movement"]), initial=0)
        )
        return moved if moved < self.budgets[job.method] else None

    def _measure(self, fits: dict[Job, Fitted]) -> dict[Job, tuple[Arrays, Arrays | None]]:
        """Return each job's measurements and, for gated methods, the source floor of its gate."""
        keys = {job: self._measured_keys(fitted) for job, fitted in fits.items()}
        # Of each cell: what it is of, its rows, and what is measured on them.
        cells: dict[str, tuple[str, Callable[[], Rows], Callable[..., Arrays]]] = {}
        for job, (cell, *floor) in keys.items():
            cells[cell] = job.method, partial(self.ground.corrected, fits[job].map), measure
            for key in floor:
                rows = partial(preserved_rows, self.ground, self.data.gate_basis(fits[job].facts))
                cells[key] = f"{job.method}, what its gate preserves", rows, source_accessibility
        readings = self._read_together({key: rows for key, (_, rows, _) in cells.items()})
        calls = {
            key: (what, partial(_cell, what, measures, self.ground, rows, readings.get(key), self.store, key))
            for key, (what, rows, measures) in cells.items()
        }
        done = self._complete(calls, self.store.get, "cells to measure", "measured")
        return {job: (done[cell], done[floor[0]] if floor else None) for job, (cell, *floor) in keys.items()}

    def _read_together(self, rows: dict[str, Callable[[], Rows]]) -> dict[str, SourceReading]:
        """Return what source readers make of cells' rows where all of them train as one program: on a GPU.

        Cells go in groups that do not depend on which of them are finished: another group could round
        differently, and a run that was stopped and taken up again would not give the same bits.
        """
        readings: dict[str, SourceReading] = {}
        cells, together = list(rows), self.ground.banks_together
        for start in range(0, len(cells) if together > 1 else 0, together):
            group = cells[start : start + together]
            if all(self.store.get(key) is not None for key in group):
                continue
            self._say(f"reading sources after {len(group)} corrections at once")
            readings |= dict(zip(group, self.ground.read([rows[key]() for key in group]), strict=True))
        return readings

    def _complete(
        self,
        calls: Mapping[str, tuple[str, Callable[[], T]]],
        stored: Callable[[str], T | None],
        what: str,
        done: str,
    ) -> dict[str, T]:
        """Return every call's result by its key: stored before, or computed now."""
        results = {key: value for key in calls if (value := stored(key)) is not None}
        missing = [key for key in calls if key not in results]
        self._say(f"{len(calls)} {what}, {len(results)} of them finished before")
        if missing:
            # First: that a head cannot be fitted is better known before the maps are.
            with waiting("audit: training heads on uncorrected rows", self.verbose):
                self.ground.prepare()
        computed = in_processes((delayed(calls[key][1])() for key in missing), self.n_jobs)
        started = time.monotonic()
        for i, key in enumerate(missing, start=1):
            with waiting(f"audit: {i}/{len(missing)} {what}: {calls[key][0]}", self.verbose):
                results[key] = next(computed)
            seconds = (time.monotonic() - started) / i * (len(missing) - i)
            about = f", about {seconds:.0f} s left" if seconds >= 1 else ""
            self._say(f"{done} {i}/{len(missing)}: {calls[key][0]}{about}")
        return results

    def _budget_key(self, job: Job) -> str:
        return cell_key("budget", self.data.key(job), self.budgets[job.method])

    def _measured_keys(self, fitted: Fitted) -> list[str]:
        """Return the names of a fit's measurements and, if it is wanted and there is one, of its floor."""
        keys = [cell_key("measure", self.ground.key, map_digest(fitted.map))]
        if self.floor and "gate_basis" in fitted.facts:
            basis = array_digest(self.data.gate_basis(fitted.facts))
            keys.append(cell_key("floor", self.ground.key, basis))
        return keys

    def _say(self, text: str) -> None:
        if self.verbose:
            sys.stderr.write(f"audit: {printable(text)}\n")
            sys.stderr.flush()


def _budgets(budget: float | Mapping[str, float] | None, names: list[str]) -> dict[str, float]:
    """Return every method's budget, for those that have one; the identity never moves."""
    by_method = (
        budget if isinstance(budget, Mapping) else {} if budget is None else dict.fromkeys(names, budget)
    )
    budgets = {name: float(b) for name, b in by_method.items() if name != "identity"}
    for name, b in budgets.items():
        if not (np.isfinite(b) and b >= 0):
            raise ValueError(f"The budget of {name} is {b!r}; expected a movement, zero or more.")
    return budgets


def _cell(
    what: str,
    measures: Callable[..., Arrays],
    ground: Ground,
    rows: Callable[[], Rows],
    reading: SourceReading | None,
    store: Store,
    key: str,
) -> Arrays:
    """Measure a cell and keep it."""
    # Of few rows, libraries that compute in parallel cost each other more than they gain.
    with explain(f"measuring {what}", store), threadpool_limits(1 if ground.head.X.size < SMALL else None):
        arrays = measures(ground, rows(), reading)
    return store.put(key, arrays)
