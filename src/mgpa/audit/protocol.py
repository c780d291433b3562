"""The protocol: fit the methods, correct HEAD and EVAL, measure everything, store finished cells."""

from __future__ import annotations

import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from inspect import signature
from typing import Any, TypeVar

import numpy as np
from joblib import delayed
from threadpoolctl import threadpool_limits

from .. import __version__
from .._common.extras import torch_device
from .._common.progress import in_processes, waiting
from ..coordinates import Coordinates
from ..errors import TableError, UsageError, printable
from ..labels import warn_of_singles
from ..maps.io.mapfile import map_digest
from ..tables.columns import ROLES
from ..tables.rows import in_coordinates, row_digests
from ..tables.table import Table
from .design import (
    FEWEST_PEOPLE,
    columns_only,
    duplicates,
    find_design,
    fold_tables,
    require_measurable,
    seen_by,
)
from .diagnostics import count_rows
from .fits import (
    Fit,
    FittingData,
    common_coordinates,
    cut_back,
    explain,
    fit_one,
    has_pairs,
    list_fits,
    needs_pairs,
    pairs_in,
    require_applicable,
    stored_fit,
)
from .heads import check_head, choose_directions
from .measure import Ground, gate_basis, measure, measure_floor
from .method_result import MethodResult, people_known
from .metrics import METRICS
from .readers import CHECKPOINTS, SEED, check_bank
from .result import Audit
from .store import LIBRARIES, Arrays, Store, array_digest, cell_key, installed, resolve_device

DEFAULT_METHODS = ("identity", "leace", "mgpa")

T = TypeVar("T")


def run(
    table: Table,
    methods: Iterable[str] | Mapping[str, Any] = DEFAULT_METHODS,
    *,
    pairs: Any = None,
    seeds: Sequence[int] = (17, 29, 43),
    budget: float | Mapping[str, float] | None = None,
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
        EVAL. Without, or with few EVAL participants, roles rotate (``folds``).
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
        of the dict. A method that does not move as far in every fit is left out, and
        ``settings["omitted"]`` says why.
    coordinates : Coordinates or None
        Those that the table is in (``info["coordinates"]``); fitted maps will carry them.
    head : scikit-learn classifier or regressor, or None
        Task head; None is the paper's balanced ridge head, its network for tokens, ridge regression for
        numbers. One that is fitted, your deployed model, is scored as it is on corrected and uncorrected
        rows, in the table's own units; copies of it are refitted.
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
        killed goes on where it was. After changing a class of your own, take another folder.
    folds : int or None
        Let roles rotate over this many folds, so that each participant is EVAL once, scored by models trained
        on others; 1 keeps the table's roles. None makes folds where the table has no roles or fewer than
        twelve EVAL participants, if all methods are fitted here: five, or six where participants have one
        source or label each; fewer of small cells; one a participant of three to seven.
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
    """A checked audit that has not run yet; its arguments are those of :func:`run`.

    Examples
    --------
    >>> from mgpa.tables import simulate_table
    >>> plan = AuditPlan(simulate_table(16), ["leace"], readers={"restarts": 0}, verbose=False)
    >>> plan.settings["participants"]["EVAL"]
    3
    """

    def __init__(
        self, table: Table, methods: Iterable[str] | Mapping[str, Any] = DEFAULT_METHODS, **settings: Any
    ) -> None:
        bound = signature(run).bind(table, methods, **settings)
        bound.apply_defaults()
        options = bound.arguments
        if not isinstance(table, Table):
            raise TypeError(
                f"table is a {type(table).__name__}; expected a Table (Table.from_frame makes one)."
            )
        self.table, self.options = table.require("source", "participant"), options
        self.store, self.verbose = Store(options["cache"]), options["verbose"]
        self.bank = _bank(options["readers"])
        self.device = resolve_device(options["device"])
        full = self.bank["bank"] == "full"
        self.no_networks = full and self.bank["restarts"] > 0 and find_spec("torch") is None
        if self.no_networks:  # other readers need no torch; verdict and report say what is missing
            self.bank["restarts"] = 0
        elif self.bank["restarts"]:
            torch_device(self.device, "The bank of source readers")
        self.fits = list(list_fits(methods, options["seeds"], self.device))
        names = list(dict.fromkeys(fit.method for fit in self.fits))
        for what in ("budget", "pairs"):
            unknown = set(options[what]) - set(names) if isinstance(options[what], Mapping) else set()
            if unknown:
                raise ValueError(f"{what} names {', '.join(unknown)}; the methods are {', '.join(names)}.")
        self.budgets = _budgets(options["budget"], names)
        coordinates = options["coordinates"]
        if coordinates is not None and table.info.get("coordinates") != coordinates.digest:
            raise TableError(
                f"The table is in coordinates {table.info.get('coordinates')}, not in "
                f"{coordinates.digest}; convert it with mgpa.tables.rows.in_coordinates."
            )
        self.where = common_coordinates(self.fits, coordinates)
        self.design = find_design(table, options["task"])
        if len(self.design.units) < FEWEST_PEOPLE:
            raise TableError(
                f"The table has {len(self.design.units)} {self.design.plural}; an audit needs "
                f"{FEWEST_PEOPLE} or more: one to fit on, one to train readers on, one to score."
            )
        if options["head"] is not None and self.design.task:
            check_head(options["head"], self.design.task)
        can_rotate = options["pairs"] is None and all(fit.map is None for fit in self.fits)
        rotated = fold_tables(table, self.design, options["folds"], can_rotate=can_rotate)
        if not rotated and table.role is not None and len(measured := columns_only(table).rows("EVAL")):
            self.design = find_design(measured, self.design.task or None)
        folds = [f"Roles rotate over {len(rotated)} folds."] if rotated else []
        for line in (self.design.sentence, *self.design.notes, *folds):
            self._say(line)
        # Rows are recognised as they came and, where these differ, in the audit's coordinates.
        rows = in_coordinates(self.where, table)
        self.digests = [row_digests(form.X) for form in ([table] if rows is table else [table, rows])]
        self.width = rows.X.shape[-1]
        self.settings = self._settings(rows.X.shape[1:])
        self.folds: list[AuditPlan] = []
        self.turn = ""  # which fold this is, for progress
        for fold in rotated:
            plan = copy(self)
            plan.folds, plan.table = [], fold
            # One EVAL participant is enough: intervals are over the participants of all folds.
            plan._take_roles(fewest=1)
            self.folds.append(plan)
        if self.folds:
            whole = {"folds": len(rotated), "data": table.digest[:16], "roles": table.role is not None}
            self.settings = self.folds[0].settings | whole
        else:
            self._take_roles(fewest=2)

    def _settings(self, features: tuple[int, ...]) -> dict[str, Any]:
        """Return what the result says about how it was made; what depends on roles comes later."""
        options, bank, info = self.options, self.bank, self.table.info
        pairs, budget, readers = options["pairs"], options["budget"], options["readers"]
        n_pairs = {k: len(a) for k, (a, _) in pairs.items()} if isinstance(pairs, Mapping) else None
        return {
            "version": __version__,
            "versions": {"Python": platform.python_version(), **installed(*LIBRARIES)},
            "seeds": list(options["seeds"]),
            "pairs": n_pairs if pairs is None or n_pairs is not None else len(pairs[0]),
            "floor": options["floor"],
            "standardize": options["standardize"],
            "budget": dict(budget) if isinstance(budget, Mapping) else budget,
            "head": repr(options["head"]) if options["head"] is not None else "",
            "readers": readers if isinstance(readers, str) else dict(readers),
            "bank": bank["bank"],
            "rules": "paper" if bank["bank"] == "paper" else "default",
            "no_networks": self.no_networks,
            "preliminary": bank["restarts"] < 3 or max(bank["checkpoints"]) < max(CHECKPOINTS),
            "association": options["association"] and [str(part) for part in options["association"]],
            "device": self.device,
            "coordinates": None if self.where is None else self.where.digest,
            "sources": [str(s) for s in self.table.sources.tolist()],
            "design": self.design.sentence,
            "unit": self.design.unit,
            "names": {"source": str(info.get("source_column", "source"))},
            "task": self.design.task,
            "features": list(features),
            "corrected_by": info.get("corrected_by"),
            "encoder": dict(info.get("encoder") or {}),
            "signals": dict(info.get("signals") or {}),
            "pairing": str(info.get("pairing") or "").partition("\n")[0],
        }

    def _take_roles(self, *, fewest: int) -> None:
        """Check that everything asked for can be done with the table's roles; note what they are."""
        table = self.table.require("role")
        columns = columns_only(table)
        require_applicable(self.fits, columns, self.width, self.options["pairs"])
        parts = {role: columns.rows(role) for role in ROLES}
        for role in ("FIT", "HEAD", "EVAL", *(["VAL"] if self.budgets else [])):
            if not len(parts[role]):
                why = " A movement budget is chosen on VAL rows." if role == "VAL" else ""
                raise TableError(f"The table has no {role} rows; mgpa.tables.assign_roles gives roles.{why}")
        fit, _, head, evaluation = parts.values()
        require_measurable(self.design, head, evaluation, fewest)
        self.directions: tuple[tuple[Any, Any], ...] = ()
        origin = ""
        if self.design.kind == "crossed" and self.design.labels == "within":
            self.directions, origin = choose_directions(self.options["association"], fit, head, evaluation)
        if self.options["association"] is not None and not self.directions:
            why = f"{origin}." if origin else METRICS["worst"].missing
            raise UsageError(f"Omit association; this table cannot measure it: {why}")
        self.settings = self.settings | {
            "directions": [f"{source} means {label}" for source, label in self.directions],
            "directions_of": origin,
            "rows": {role: len(part) for role, part in parts.items()},
            "participants": {role: len(np.unique(part.participant)) for role, part in parts.items()},
            "one_source": {role: _with_one_source(parts[role]) for role in ("FIT", "HEAD")},
            "duplicates": duplicates(table.role, self.digests[-1]),
            "data": table.digest[:16],
        }

    def rows(self) -> tuple[FittingData, Ground]:
        """Return the fitting data and the measuring data."""
        rows = in_coordinates(self.where, self.table)
        # Pairs come in the coordinates that the table came in.
        pairs = self.options["pairs"] if rows is self.table else pairs_in(self.where, self.options["pairs"])
        data = FittingData(rows, pairs, self.options["standardize"], self.where)
        settings = (self.options["head"], self.device, self.bank, self.directions)
        return data, Ground(rows, data.standardizer, self.design, *settings)

    def run(self) -> Audit:
        """Compute the unfinished cells, and return the result."""
        ids, pairs = self.table.pair_id, self.options["pairs"]
        fitted = any(fit.map is None and needs_pairs(fit.model) for fit in self.fits)
        if ids is not None and (pairs is None or isinstance(pairs, Mapping)) and fitted and not self.turn:
            warn_of_singles(ids if self.folds else ids[self.table.role == "FIT"])
        if self.folds:
            return self._run_folds()
        started = time.monotonic()
        data, ground = self.rows()
        fits, omitted, unattained = self._fit(data, ground)
        cells = self._measure(fits, ground)
        self._say(f"{self.turn}done in {time.monotonic() - started:.0f} s")
        held, scored = np.isin(self.table.role, ("HEAD", "EVAL")), ground.units
        people, digests = self.table.participant[held], [rows[held] for rows in self.digests]
        results, shared = {}, next((floor for _, floor in cells if floor is not None), None)
        for name in dict.fromkeys(fit.method for fit in fits):
            chosen = [i for i, fit in enumerate(fits) if fit.method == name]
            results[name] = MethodResult.collect(
                [fits[i] for i in chosen],
                [cells[i][0] for i in chosen],
                [cells[i][1] for i in chosen],
                shared,
                fitted_on=people_known(seen_by(fits[i].map, people, digests, scored) for i in chosen),
                design=self.design,
                widen=self.settings["rules"] == "default",
            )
        fit, paired = columns_only(self.table).rows("FIT"), None
        if self.options["pairs"] is None and has_pairs(fit):
            paired = in_coordinates(self.where, self.table).rows("FIT")
        return Audit(
            results,
            self._counts(fit),
            self.settings | {"omitted": omitted, "unattained": unattained},
            ground.evaluation.source[ground.picture[0]].astype(str),
            paired_rows=paired,
            design=self.design,
        )

    def _run_folds(self) -> Audit:
        audits = []
        for i, plan in enumerate(self.folds, start=1):
            plan.turn = f"fold {i} of {len(self.folds)}, "
            audits.append(replace(plan.run(), paired_rows=None))
        pooled, table = Audit.pool(audits), self.table
        return replace(
            pooled,
            settings=pooled.settings | {k: self.settings[k] for k in ("folds", "data", "roles")},
            counts=self._counts(table),  # each participant was fitted on in some fold
            paired_rows=replace(table, role=None) if has_pairs(table) else None,
        )

    def _counts(self, rows: Any) -> dict[str, dict[str, int]]:
        """Return the rows of each source and label, where labels are classes."""
        return count_rows(rows.source, rows.label) if self.design.task == "classification" else {}

    def _fit(
        self, data: FittingData, ground: Ground
    ) -> tuple[list[Fit], dict[str, str], dict[str, list[int]]]:
        """Return every fit at its budget, methods to leave out with why, and how many fits miss it."""
        keys = [data.key(fit) for fit in self.fits]
        calls: dict[str, tuple[str, Callable[[], Fit]]] = {}
        for fit, key in zip(self.fits, keys, strict=True):  # arms that differ in their budget share a fit
            calls.setdefault(key, (fit.method, partial(fit_one, fit, data, self.store, key)))
        first = dict(zip(reversed(keys), reversed(self.fits), strict=True))
        made = self._complete(calls, lambda key: stored_fit(first[key], self.store, key), ground, "fits")
        whole = [
            replace(fit, map=made[key].map, facts=made[key].facts)
            for fit, key in zip(self.fits, keys, strict=True)
        ]
        omitted: dict[str, str] = {}
        unattained = {name: [0, 0] for name in self.budgets}
        for fit in (fit for fit in whole if fit.method in self.budgets):
            moved = np.max(fit.facts.get("stage_movement", fit.facts["validation_movement"]), initial=0)
            unattained[fit.method][1] += 1
            if moved < self.budgets[fit.method]:
                unattained[fit.method][0] += 1
                # A mean over the fits that do get there would be about other fits.
                omitted[fit.method] = (
                    f"the budget is {self.budgets[fit.method]:g}, but fit {fit.number} moves VAL rows by "
                    f"at most {moved:.3g}"
                )
                self._say(f"{fit.method} is left out: {omitted[fit.method]}")
        fits = []
        for fit, key in zip(whole, keys, strict=True):
            if fit.method in omitted:
                continue
            budget = self.budgets.get(fit.method)
            if budget is not None:
                at = cell_key("budget", key, budget)
                fit = stored_fit(fit, self.store, at) or cut_back(fit, budget, data, self.store, at)
            fits.append(fit)
        return fits, omitted, unattained

    def _measure(self, fits: list[Fit], ground: Ground) -> list[tuple[Arrays, Arrays | None]]:
        """Return each fit's measurements and, for gated methods, the source floor of its gate."""
        calls: dict[str, tuple[str, Callable[[], Arrays]]] = {}
        keys: list[tuple[str, str | None]] = []
        for fit in fits:
            key, floor = cell_key("measure", ground.key, map_digest(fit.map)), None
            calls[key] = fit.method, partial(_cell, fit.method, self.store, key, measure, ground, fit.map)
            if self.options["floor"] and "gate_basis" in fit.facts:
                basis, what = gate_basis(fit.facts, ground.standardizer.scale), f"the gate of {fit.method}"
                floor = cell_key("floor", ground.key, array_digest(basis))
                calls[floor] = what, partial(_cell, what, self.store, floor, measure_floor, ground, basis)
            keys.append((key, floor))
        done = self._complete(calls, self.store.get, ground, "cells to measure")
        return [(done[key], None if floor is None else done[floor]) for key, floor in keys]

    def _complete(
        self,
        calls: Mapping[str, tuple[str, Callable[[], T]]],
        stored: Callable[[str], T | None],
        ground: Ground,
        what: str,
    ) -> dict[str, T]:
        """Return every call's result by its key: stored before, or computed now."""
        results = {key: value for key in calls if (value := stored(key)) is not None}
        missing = [key for key in calls if key not in results]
        if results:
            self._say(f"{self.turn}{len(calls)} {what}, {len(results)} of them finished before")
        if missing:
            # First: that a head cannot be fitted is better known before the maps are.
            with waiting(f"audit: {self.turn}heads", self.verbose), threadpool_limits(ground.n_threads):
                ground.prepare()
        computed = in_processes((delayed(calls[key][1])() for key in missing), self.options["n_jobs"])
        for i, key in enumerate(missing, start=1):
            with waiting(f"audit: {self.turn}{i}/{len(missing)} {what}: {calls[key][0]}", self.verbose):
                results[key] = next(computed)
        return results

    def _say(self, text: str) -> None:
        if self.verbose:
            sys.stderr.write(f"audit: {printable(text)}\n")
            sys.stderr.flush()


def _with_one_source(rows: Table) -> int:
    """Return how many participants have rows of one source only."""
    seen = {*zip(rows.participant.tolist(), rows.source.tolist(), strict=True)}
    return [*Counter(who for who, _ in seen).values()].count(1)


def _bank(readers: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the bank of readers that is asked for."""
    settings: dict[str, Any] = {"bank": "full", "restarts": 3, "checkpoints": CHECKPOINTS, "seed": SEED}
    chosen = {"bank": readers} if isinstance(readers, str) else dict(readers)
    other = sorted(set(chosen) - set(settings))
    if other:
        raise TypeError(f"readers has {other}; it takes bank, restarts, checkpoints and seed.")
    settings |= chosen
    settings["checkpoints"] = check_bank(*(settings[k] for k in ("bank", "restarts", "checkpoints")))
    return settings


def _budgets(budget: float | Mapping[str, float] | None, names: list[str]) -> dict[str, float]:
    """Return every method's budget, for those that have one; the identity never moves."""
    if not isinstance(budget, Mapping):
        budget = {} if budget is None else dict.fromkeys(names, budget)
    budgets = {name: float(b) for name, b in budget.items() if name != "identity"}
    for name, b in budgets.items():
        if not (np.isfinite(b) and b >= 0):
            raise ValueError(f"The budget of {name} is {b!r}; expected a movement, zero or more.")
    return budgets


def _cell(
    what: str, store: Store, key: str, measures: Callable[[Ground, Any], Arrays], ground: Ground, of: Any
) -> Arrays:
    """Measure a cell and keep it."""
    with explain(f"measuring {what}", store), threadpool_limits(ground.n_threads):
        return store.put(key, measures(ground, of))
