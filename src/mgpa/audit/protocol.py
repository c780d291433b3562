"""The protocol: fit the methods, correct HEAD and EVAL, measure everything, keep what is finished."""

from __future__ import annotations

import itertools
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
from joblib import delayed
from numpy.typing import NDArray

from .. import __version__
from .._common.progress import waiting
from .._common.workers import in_processes
from ..coordinates import Coordinates
from ..errors import Mention, ParameterError, TableError, printable
from ..estimators.staged import torch_device
from ..maps import CorrectionMap, load_map
from ..maps.io.mapfile import map_digest
from ..pairs import is_paired
from ..tables.columns import GIVE_ROLES, ROLES
from ..tables.rows import corrected_rows, in_coordinates, person_digest, require_correctable, require_encoder
from ..tables.seen import row_digests, seen_people
from ..tables.table import Table
from .association import Direction, find_directions
from .diagnostics import confounding
from .fits import (
    BudgetSpec,
    Fitted,
    FittingData,
    Job,
    cut_back,
    fit_one,
    list_jobs,
    require_pairs,
    saying,
    stored_fit,
)
from .folds import fold_tables
from .looks import label as shown_as
from .measure import (
    FloorSpec,
    Ground,
    MeasureSpec,
    Rows,
    measure,
    preserved_rows,
    require_everyone,
    source_accessibility,
)
from .method_result import MethodResult, people_known
from .readers import CHECKPOINTS, SourceReading, check_bank, check_schedule
from .result import Audit
from .store import Arrays, Store, array_digest, resolve_device

DEFAULT_METHODS = ("identity", "leace", "closed_form_mgpa", "iterative_mgpa")

P = ParamSpec("P")
T = TypeVar("T")


class AuditPlan:
    """What an audit is going to compute: checked as a whole before anything is.

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
    head : classifier or None
        Task head; None is the paper's balanced ridge head, or its network for tokens.
    readers : {"full", "paper"} or dict
        Who tries to read the source: the paper's eleven readers (41 for tokens) alone, or these and boosted
        trees and a reader of spread besides ("full"). A dict has ``bank``, one of these names, and
        ``restarts`` and ``checkpoints`` for smaller ones.
    association : tuple (source, label), or None
        Which source a label goes with where the heads behind ``worst`` learn their shortcut. None takes the
        direction that FIT rows have; where they have none, the curves of both are averaged.
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
        Let roles rotate over so many folds, so that everybody is EVAL once, by maps and readers of others;
        1 keeps the table's roles. None makes five (or four, of eight or nine people) where fewer than twelve
        people are EVAL or the table has no roles, if all methods are fitted here and everybody has rows of
        every source and label.
    n_jobs : int
        Cells at a time (joblib; ``joblib.parallel_config("dask")`` sends them to a cluster).
    device : str
        Where networks are trained, unless a method says so itself; "auto" is CUDA if torch sees it here.
    verbose : bool
        Say what is being done.

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
        bank = _check_bank(**({"bank": readers} if isinstance(readers, str) else readers))
        device = resolve_device(device)
        if bank["restarts"]:
            torch_device(device, "The bank of source readers")
        self.jobs = list(list_jobs(methods, seeds, device))
        _require_distinct(self.jobs)
        self.verbose = verbose
        can_rotate = pairs is None and all(job.fitted is None for job in self.jobs)
        self.folds = [
            AuditPlan(
                rotated,
                methods,
                seeds=seeds,
                budget=budget,
                head=head,
                readers=readers,
                association=association,
                floor=floor,
                standardize=standardize,
                folds=1,
                cache=cache,
                n_jobs=n_jobs,
                device=device,
                verbose=verbose,
            )
            for rotated in fold_tables(table, folds, can_rotate=can_rotate)
        ]
        self.settings: dict[str, Any]
        if self.folds:
            self.settings = self.folds[0].settings | {"folds": len(self.folds), "data": table.digest[:16]}
            return
        _require_enough_people(table)
        table.require("role")
        self.budgets = _budgets(budget, self.jobs)
        if isinstance(pairs, Mapping):
            _require_known(pairs, self.jobs, "pairs")
        if unattained not in ("raise", "omit"):
            raise ParameterError("unattained", unattained, "'raise' or 'omit'")
        self.unattained = unattained
        if coordinates is not None and table.info.get("coordinates") != coordinates.digest:
            raise TableError(
                f"The table is in coordinates {table.info.get('coordinates')}, not in {coordinates.digest}; "
                "mgpa.tables.rows.in_coordinates brings it there."
            )
        coordinates = _common_coordinates(self.jobs, coordinates)
        rows = in_coordinates(coordinates, table)
        _require_applicable(self.jobs, rows)
        parts = {role: rows.rows(role) for role in ("FIT", "VAL", "HEAD", "EVAL")}
        for role in ("FIT", "HEAD", "EVAL", *(["VAL"] if self.budgets else [])):
            if not len(parts[role]):
                why = " A movement budget is one of VAL rows." if role == "VAL" else ""
                raise TableError(f"The table has no {role} rows; ", GIVE_ROLES, f" can give roles.{why}")
        _require_measurable(parts["HEAD"], parts["EVAL"])
        require_pairs(self.jobs, parts["FIT"], pairs)
        # Pairs come in the coordinates that the table came in.
        contrasts = pairs if rows is table else _transformed(coordinates, pairs)
        self.data = FittingData(parts["FIT"], parts["VAL"], contrasts, standardize, coordinates)
        directions, origin = _directions(association, parts)
        self.ground = Ground(
            parts["HEAD"], parts["EVAL"], self.data.standardizer, head, device, bank, directions
        )
        self.judges = _Judges.of(table, rows)
        self.store = Store(cache)
        self.floor, self.n_jobs = floor, n_jobs
        self.settings = {
            "version": __version__,
            "versions": _versions(),
            "seeds": list(seeds),
            "pairs": None if pairs is None else _count_pairs(pairs),
            "floor": floor,
            "standardize": standardize,
            "coordinates": None if coordinates is None else coordinates.digest,
            "budget": dict(budget) if isinstance(budget, Mapping) else budget,
            "head": repr(head) if head is not None else "",
            "readers": readers if isinstance(readers, str) else dict(readers),
            "bank": bank["bank"],
            "association": None if association is None else [str(part) for part in association],
            "directions": [str(direction) for direction in directions],
            "directions_of": origin,
            "device": device,
            "rows": {role: len(part) for role, part in parts.items()},
            "participants": {role: len(np.unique(part.participant)) for role, part in parts.items()},
            "sources": [str(s) for s in table.sources.tolist()],
            "features": list(rows.X.shape[1:]),
            "preliminary": bank["restarts"] < 3 or max(bank["checkpoints"]) < max(CHECKPOINTS),
            "nested_readers": confounding(
                parts["HEAD"].source, parts["HEAD"].participant
            ).nested_participants,
            "duplicates": _duplicates(rows),
            "data": table.digest[:16],
        }

    def pending(self) -> list[dict[str, Any]]:
        """Return the cells there are, and which of them are finished; nothing is computed.

        Returns
        -------
        list of dict
            For every fit: ``method``, ``fit``, whether it is ``fitted`` and ``measured``, and the ``seconds``
            left, by what finished cells of the same method took (None: none are finished).
        """
        if self.folds:
            return [cell for plan in self.folds for cell in plan.pending()]
        took = self.store.timings()
        cells, counted = [], set()
        for job in self.jobs:
            key = self.data.key(job)
            whole = found = stored_fit(self.store, key)
            if job.method in self.budgets:
                found = stored_fit(self.store, self._budget_key(job))
            measured = found is not None and all(
                self.store.get(cell) is not None for cell in self._measured_keys(found)
            )
            # Nothing is left to do where there is no point to measure.
            measured = measured or (whole is not None and self._beyond(job, whole) is not None)
            left: list[float | None] = []
            # Arms that differ in their operating point alone share a fit.
            if whole is None and key not in counted:
                left.append(took.get(f"fit {job.method}"))
                counted.add(key)
            if not measured:
                left.append(took.get("measure"))
            cells.append(
                {
                    "method": job.method,
                    "fit": job.fit,
                    "fitted": whole is not None,
                    "measured": measured,
                    "seconds": None if None in left else sum(t for t in left if t is not None),
                }
            )
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
            audits = []
            for i, plan in enumerate(self.folds, start=1):
                self._say(f"fold {i} of {len(self.folds)}")
                audits.append(plan.run())
            pooled = Audit.pool(audits)
            return replace(
                pooled, settings=pooled.settings | {k: self.settings[k] for k in ("folds", "data")}
            )
        started = time.monotonic()
        self.store.create()
        maps, omitted = self._fit()
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
                fitted_on=people_known(self.judges.seen_by(maps[job].map) for job in jobs),
            )
        fit = self.data.fit
        return Audit(
            results,
            confounding(fit.source, fit.participant, fit.label),
            self.settings | {"omitted": omitted},
            self.ground.evaluation.source[self.ground.picture[0]].astype(str),
            paired_rows=fit if self.data.pairs is None and _has_pairs(fit) else None,
        )

    def _fit(self) -> tuple[dict[Job, Fitted], dict[str, str]]:
        """Return every job's fit, at the method's budget if it has one, and methods to leave out with why."""
        keys = {job: self.data.key(job) for job in self.jobs}
        # Arms that differ in their operating point alone share a fit, named after the first of them.
        first = {key: job for job, key in reversed(keys.items())}
        calls = {
            key: (first[key].method, partial(fit_one, first[key], self.data, self.store, key))
            for key in dict.fromkeys(keys.values())
        }
        full = self._complete(calls, partial(stored_fit, self.store), "fits", "fitted")
        omitted: dict[str, str] = {}
        for job, key in keys.items():
            moved = self._beyond(job, full[key])
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
        return fits, omitted

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
            cells[cell] = job.method, partial(corrected, fits[job].map, self.ground), measure
            for key in floor:
                rows = partial(preserved_rows, self.ground, self._basis(fits[job].facts))
                cells[key] = f"{job.method}, what its gate preserves", rows, source_accessibility
        readings = self._read_together({key: rows for key, (_, rows, _) in cells.items()})
        kept = {
            key: (what, partial(_keep, what, measures, self.ground, rows, readings.get(key), self.store, key))
            for key, (what, rows, measures) in cells.items()
        }
        found = self._complete(kept, self.store.get, "cells to measure", "measured")
        return {
            job: (found[cell], found[floor[0]] if floor else None) for job, (cell, *floor) in keys.items()
        }

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
            found = self.ground.read([rows[key]() for key in group])
            readings |= dict(zip(group, found, strict=True))
        return readings

    def _complete(
        self,
        calls: Mapping[str, tuple[str, Callable[[], T]]],
        stored: Callable[[str], T | None],
        what: str,
        done: str,
    ) -> dict[str, T]:
        """Return every call's result by its key: stored before, or computed now."""
        found = {key: value for key in calls if (value := stored(key)) is not None}
        missing = [key for key in calls if key not in found]
        self._say(f"{len(calls)} {what}, {len(found)} of them finished before")
        if missing:
            # First: that a head cannot be fitted is better known before the maps are.
            with waiting("audit: training heads on uncorrected rows", self.verbose):
                self.ground.prepare()
        results = in_processes((delayed(calls[key][1])() for key in missing), self.n_jobs)
        started = time.monotonic()
        for i, key in enumerate(missing, start=1):
            with waiting(f"audit: {i}/{len(missing)} {what}: {calls[key][0]}", self.verbose):
                found[key] = next(results)
            left = (time.monotonic() - started) / i * (len(missing) - i)
            about = f", about {left:.0f} s left" if left >= 1 else ""
            self._say(f"{done} {i}/{len(missing)}: {calls[key][0]}{about}")
        return found

    def _budget_key(self, job: Job) -> str:
        return BudgetSpec(fit=self.data.key(job), budget=self.budgets[job.method]).key

    def _measured_keys(self, fitted: Fitted) -> list[str]:
        """Return the names of a fit's measurements and, if it is wanted and there is one, of its floor."""
        keys = [MeasureSpec(ground=self.ground.key, map=map_digest(fitted.map)).key]
        if self.floor and "gate_basis" in fitted.facts:
            basis = array_digest(self._basis(fitted.facts))
            keys.append(FloorSpec(ground=self.ground.key, basis=basis).key)
        return keys

    def _basis(self, facts: Arrays) -> NDArray[Any]:
        """Return an orthonormal basis of the gate where readers see it; its own scaling may differ."""
        basis, scale = facts["gate_basis"], self.data.standardizer.scale
        scale = np.tile(scale, len(basis) // len(scale))  # of all tokens, for a gate of all of them
        if np.array_equal(facts["gate_scale"], scale):
            return basis
        return np.linalg.qr(basis * (facts["gate_scale"] / scale)[:, None])[0]

    def _say(self, text: str) -> None:
        if self.verbose:
            sys.stderr.write(f"audit: {printable(text)}\n")
            sys.stderr.flush()


def corrected(m: CorrectionMap, ground: Ground) -> Rows:
    """Return HEAD and EVAL rows in FIT's coordinates as a map leaves them."""
    return (
        ground.standardized(corrected_rows(m, ground.head)),
        ground.standardized(corrected_rows(m, ground.evaluation)),
    )


def _keep(
    what: str,
    measures: Callable[..., Arrays],
    ground: Ground,
    rows: Callable[[], Rows],
    reading: SourceReading | None,
    store: Store,
    key: str,
) -> Arrays:
    """Measure a cell and keep it."""
    with saying(f"measuring {what}", store), store.timed("measure"):
        arrays = measures(ground, rows(), reading)
    return store.put(key, arrays)


def _planned(plan: Callable[P, AuditPlan]) -> Callable[[Callable[..., Audit]], Callable[P, Audit]]:
    """Return a decorator that shows a plan's parameters as a function's own, to readers and to mypy."""

    def decorate(function: Callable[..., Audit]) -> Callable[P, Audit]:
        function.__signature__ = signature(plan)  # type: ignore[attr-defined]
        return function

    return decorate


@_planned(AuditPlan)
def run(*given: Any, **settings: Any) -> Audit:
    """Measure what corrections do to source, task and movement, on people they were not fitted on.

    Takes what :class:`AuditPlan` takes, and is ``AuditPlan(...).run()``.

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
    with waiting("audit: preparing", settings.get("verbose", True)):
        plan = AuditPlan(*given, **settings)
    return plan.run()


def _common_coordinates(jobs: list[Job], given: Coordinates | None) -> Coordinates | None:
    """Return the coordinates that were given, or of maps that came fitted; they must be the same for all."""
    where = [(job.method, m.coordinates) for job in jobs if (m := job.fitted) is not None]
    where += [] if given is None else [("the table", given)]
    digests = [None if coordinates is None else coordinates.digest for _, coordinates in where]
    if len(set(digests)) > 1:
        said = (f"{name} {digest or 'none'}" for (name, _), digest in zip(where, digests, strict=True))
        raise ValueError(
            f"The maps have different coordinates ({', '.join(said)}), so one audit cannot compare them. "
            "Audit maps of the same coordinates together, and the others apart."
        )
    return where[0][1] if where else None


def _require_distinct(jobs: list[Job]) -> None:
    """Raise if two methods would be shown under the same name."""
    shown: dict[str, str] = {}
    for name in dict.fromkeys(job.method for job in jobs):
        other = shown.setdefault(shown_as(name), name)
        if other != name:
            raise ValueError(
                f"{other!r} and {name!r} are both shown as {shown_as(name)}; name one otherwise."
            )


def _require_applicable(jobs: list[Job], table: Table) -> None:
    """Raise unless every map that came fitted may be applied to the table."""
    for job in jobs:
        m = job.fitted
        if m is None:
            continue
        width = table.X.shape[-1]
        if m.n_features != width:
            raise TableError(f"{job.method} corrects {m.n_features} features; the table has {width}.")
        require_encoder(table.info, {"encoder": m.info.encoder}, "The table", f"{job.method} was fitted on")
        require_correctable(m, table.info, table.source, "Audit the table that the map is meant for.")


def _transformed(coordinates: Coordinates | None, pairs: Any) -> Any:
    """Return pairs of raw features in the audit's coordinates."""
    if coordinates is None or pairs is None:
        return pairs
    if isinstance(pairs, Mapping):
        return {name: _transformed(coordinates, sides) for name, sides in pairs.items()}
    return tuple(coordinates.transform(side) for side in pairs)


@dataclass(frozen=True)
class _Judges:
    """HEAD and EVAL rows by their content, and whose they are."""

    participant: NDArray[Any]
    digests: tuple[NDArray[np.uint64], ...]

    @classmethod
    def of(cls, table: Table, rows: Table) -> _Judges:
        """Take note of a table as it came, and of the same rows in the audit's coordinates."""
        forms = [table] if rows is table else [table, rows]
        held = [form.rows("HEAD", "EVAL") for form in forms]
        return cls(held[0].participant, tuple(row_digests(form.X) for form in held))

    def seen_by(self, m: CorrectionMap) -> tuple[str, ...] | None:
        """Return who of them a map was fitted on, by their names or their rows; None if it does not say."""
        people, sample = m.info.people, m.info.row_sample
        known = {name for name in np.unique(self.participant).tolist() if person_digest(name) in people}
        for digests in self.digests:
            known.update(seen_people(sample, digests, self.participant))
        return tuple(sorted(known)) if people or known else None


def _duplicates(table: Table) -> dict[str, int]:
    """Return how many rows of a role are exact copies of rows of another, by both roles' names."""
    digests = {role: row_digests(table.rows(role).X) for role in ROLES}
    return {
        f"{later} rows are copies of {earlier} rows": count
        for earlier, later in itertools.combinations(ROLES, 2)
        if (count := int(np.isin(digests[later], digests[earlier]).sum()))
    }


def _require_enough_people(table: Table) -> None:
    """Raise if the people of a table cannot take the roles that an audit needs, whoever gives them out."""
    n_people = len(np.unique(table.participant))
    if n_people < 4:
        raise TableError(
            f"The table has {n_people} participants; an audit needs four or more: one in FIT, one in HEAD "
            "and two in EVAL, on whom nothing was fitted."
        )


def _require_measurable(head: Table, evaluation: Table) -> None:
    """Raise unless every EVAL participant has rows of everything that HEAD teaches readers and heads."""
    people = np.unique(evaluation.participant).tolist()
    if len(people) < 2:
        raise TableError(
            f"EVAL has one participant ({people[0]!r}); how a result varies over people needs two or more. "
            "Give another participant the role EVAL; VAL may be empty."
        )
    for name, known, found in (
        ("sources", head.source, evaluation.source),
        ("labels", head.label, evaluation.label),
    ):
        if known is None or found is None:
            continue
        new = np.setdiff1d(found, known).tolist()
        if new:
            few = ", ".join(map(repr, new[:4])) + (f" and {len(new) - 4} more" if len(new) > 4 else "")
            classes = " Labels are classes; cut a measured quantity into some." if len(new) > 4 else ""
            raise ValueError(
                f"EVAL has {name} that HEAD lacks: {few}; no reader or head could learn them.{classes}"
            )
    if head.label is not None and evaluation.label is not None:
        others = Mention("columns", [name for name in evaluation.columns if name != "label"])
        if len(np.unique(head.label)) < 2:
            raise TableError("label is the same in all HEAD rows, so there is no task; keep ", others, ".")
        pairs = {*zip(evaluation.participant.tolist(), evaluation.label.tolist(), strict=True)}
        if len(pairs) == len(people):
            raise TableError(
                "Every EVAL participant has one label, as a diagnosis is, and task scores compare labels "
                "within participants. Audit without the task, keeping ",
                others,
                "; or let several people, of all labels, make one participant.",
            )
    for source in head.sources.tolist():
        mine = evaluation.source == source
        require_everyone(evaluation.participant[mine], evaluation, f"source {source!r}")
        if head.label is None or evaluation.label is None:
            continue
        for label in np.unique(head.label).tolist():
            rows = mine & (evaluation.label == label)
            what = f"source {source!r} with label {label!r}"
            require_everyone(evaluation.participant[rows], evaluation, what)


def _directions(
    stated: tuple[Any, Any] | None, parts: Mapping[str, Table]
) -> tuple[tuple[Direction, ...], str]:
    """Return which label goes with which source where shortcuts are learned, and who says so.

    No direction, where association shift cannot be measured: it needs events of two sources and two classes
    that both sources saw, in HEAD and in EVAL, and two HEAD participants or more.
    """
    fit, head, evaluation = parts["FIT"], parts["HEAD"], parts["EVAL"]
    views = head.paired_views()
    if views is None or evaluation.paired_views() is None or head.label is None:
        return (), ""
    labels = np.unique(head.label)
    if len(labels) != 2 or len(np.unique(head.participant[views[0]])) < 2:
        return (), ""
    if stated is not None:
        return (Direction(*_among(stated, head.sources, labels)),), "stated"
    # FIT rows may have the labels of another task; they then say nothing about this one's.
    told = fit.label is not None and np.array_equal(np.unique(fit.label), labels)
    role = "FIT" if told and len(fit.sources) == 2 else "HEAD"
    return find_directions(parts[role].source, parts[role].label), role


def _has_pairs(rows: Table) -> bool:
    """Return whether any event was seen by two sources."""
    if rows.pair_id is None:
        return False
    ids = rows.pair_id[is_paired(rows.pair_id)]
    return len(np.unique(ids)) < len(ids)


def _among(stated: tuple[Any, Any], sources: NDArray[Any], labels: NDArray[Any]) -> tuple[Any, Any]:
    """Return a stated source and label as the table has them; they are compared as text."""
    chosen = []
    for what, value, there in zip(("source", "label"), stated, (sources, labels), strict=True):
        same = [entry for entry in there.tolist() if str(entry) == str(value)]
        if not same:
            names = ", ".join(map(str, there.tolist()))
            raise ValueError(f"association names the {what} {value!r}; the table has {names}.")
        chosen.append(same[0])
    return chosen[0], chosen[1]


def _budgets(budget: float | Mapping[str, float] | None, jobs: list[Job]) -> dict[str, float]:
    """Return every method's budget, for those that have one; the identity never moves."""
    if isinstance(budget, Mapping):
        _require_known(budget, jobs, "budget")
    elif budget is not None:
        budget = {job.method: budget for job in jobs}
    budgets = {name: float(b) for name, b in (budget or {}).items() if name != "identity"}
    for name, b in budgets.items():
        if not (np.isfinite(b) and b >= 0):
            raise ValueError(f"The budget of {name} is {b!r}; expected a movement, zero or more.")
    return budgets


def _require_known(given: Mapping[str, Any], jobs: list[Job], what: str) -> None:
    names = list(dict.fromkeys(job.method for job in jobs))
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ValueError(f"{what} names {', '.join(unknown)}; the methods are {', '.join(names)}.")


def _versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that compute."""
    found = {"Python": platform.python_version()}
    for name in ("numpy", "scipy", "scikit-learn", "torch"):
        with suppress(PackageNotFoundError):  # torch need not be there
            found[name] = version(name)
    return found


def _count_pairs(pairs: Any) -> Any:
    if isinstance(pairs, Mapping):
        return {name: len(own[0]) for name, own in pairs.items()}
    return len(pairs[0])


def _check_bank(
    bank: str = "full", restarts: int = 3, checkpoints: Sequence[int] = CHECKPOINTS, **other: Any
) -> dict[str, Any]:
    if other:
        raise TypeError(f"readers has {sorted(other)}; it takes bank, restarts and checkpoints.")
    check_bank(bank)
    return {"bank": bank, "restarts": int(restarts), "checkpoints": check_schedule(restarts, checkpoints)}
