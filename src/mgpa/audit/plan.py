"""Plan an audit: check its arguments, and find its methods, design and roles."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from typing import Any

import numpy as np

from .. import __version__
from .._common.extras import torch_device
from .._common.progress import waiting
from ..errors import TableError, UsageError
from ..estimators.tokens import needs_pairs
from ..tables.columns import ROLES, with_roles
from ..tables.rows import in_coordinates, row_digests
from ..tables.table import Table
from .association import choose_directions
from .calibration import among_rows, count_pairs, held_in, read_calibration, tables_of
from .cells import Engine, Turn
from .design import (
    FEW,
    FEWEST_PEOPLE,
    Design,
    columns_only,
    duplicates,
    find_design,
    require_measurable,
    seen_by,
    units_with_pairs,
)
from .fits import common_coordinates, is_decoder, is_fitted, list_fits, require_applicable
from .folds import fold_roles
from .heads import check_head
from .metrics import METRICS
from .result import Audit
from .running import Split, digests_of, run_plan, turn_of
from .settings import Options, Settings, bank_of, budgets_of, head_source_of, preliminary
from .store import LIBRARIES, Store, installed, resolve_device

DEFAULT_METHODS = ("identity", "leace", "mgpa")

#: Number of random divisions of few participants into folds; with one, chance may decide the best method.
REPEATS = 3

#: Minimum number of refits for an estimate of their variance.
FEWEST_REFITS = 3


class AuditPlan:
    """A checked audit that has not been run; its arguments are those of :func:`run`.

    Attributes
    ----------
    splits : list of Split
        The folds of the first division of participants, then those of the others; one split if the roles of
        the table are kept.
    settings : Settings
        The settings in the result.

    Examples
    --------
    >>> from mgpa.tables import simulate_table
    >>> plan = AuditPlan(simulate_table(16), ["leace"], readers={"restarts": 0}, verbose=False)
    >>> plan.settings.participants["EVAL"]
    3
    """

    design: Design
    engine: Engine
    settings: Settings
    splits: list[Split]

    def __init__(
        self, table: Table, methods: Iterable[str] | Mapping[str, Any] = DEFAULT_METHODS, **options: Any
    ) -> None:
        self.options = Options(**options)
        if not isinstance(table, Table):
            raise TypeError(
                f"table is a {type(table).__name__}; expected a Table (Table.from_frame makes one)."
            )
        with waiting("audit: preparing", self.options.verbose):
            self._prepare(table.require("source", "participant"), methods)
        folds = [f"Roles rotate over {self.settings.folds} folds."] if self.settings.folds > 1 else []
        for line in (self.design.sentence, *self.design.notes, *folds):
            self.engine.say(line)

    def _prepare(self, table: Table, methods: Iterable[str] | Mapping[str, Any]) -> None:
        """Check all arguments, and find the design and the splits."""
        o = self.options
        self.table, self.pairs = table, read_calibration(o.pairs)
        no_networks = self._choose_readers()
        fits = list(list_fits(methods, o.seeds, self.device))
        self.fits = [fit for fit in fits if not is_decoder(fit.model)]
        names = list(dict.fromkeys(fit.method for fit in self.fits))
        self._check_options(names)
        rows = self._place(table)
        deployed = self._check_design()
        rotated = self._rotated()
        if not rotated and table.role is not None and len(measured := columns_only(table).rows("EVAL")):
            self.design = find_design(measured, self.design.task or None)
        self.settings = self._settings(rows.X.shape[1:], no_networks, deployed)
        budgets = budgets_of(o.budget, names)
        self.needed = ["HEAD", "EVAL", *(["VAL"] if budgets else [])]
        if any(fit.map is None for fit in self.fits if fit.method != "identity"):
            self.needed.insert(0, "FIT")
        if rotated:
            self.splits = self._folds(rotated)
            self.settings = self._rotating(self.splits[0].settings, rotated)
        else:
            self.splits = [self._split(columns_only(table.require("role")))]
            self.settings = self.splits[0].settings
        decoders = [fit for fit in fits if is_decoder(fit.model)]
        how = (self.device, Store(o.cache), o.floor, o.n_jobs, o.verbose)
        self.engine = Engine(self.fits, decoders, budgets, self.design, *how)

    def _choose_readers(self) -> bool:
        """Find the bank and the device of readers, and return whether torch is missing for networks."""
        self.bank, self.device = bank_of(self.options.readers), resolve_device(self.options.device)
        full = self.bank["bank"] == "full"
        no_networks = full and self.bank["restarts"] > 0 and find_spec("torch") is None
        if no_networks:  # other readers need no torch; verdict and report say what is missing
            self.bank["restarts"] = 0
        elif self.bank["restarts"]:
            torch_device(self.device, "The bank of source readers")
        return no_networks

    def _check_options(self, names: list[str]) -> None:
        """Raise if options name other methods, or ask for refits where nothing is fitted."""
        o = self.options
        for what, named in (("budget", o.budget), ("pairs", self.pairs)):
            unknown = set(named) - set(names) if isinstance(named, Mapping) else set()
            if unknown:
                raise ValueError(f"{what} names {', '.join(unknown)}; the methods are {', '.join(names)}.")
        if o.refits and (o.refits < FEWEST_REFITS or all(fit.map is not None for fit in self.fits[1:])):
            raise UsageError(
                f"refits is {o.refits}; expected 0, or {FEWEST_REFITS} or more with methods fitted here."
            )

    def _place(self, table: Table) -> Table:
        """Return the rows in the coordinates of the audit."""
        stated = self.options.coordinates
        if stated is not None and table.info.get("coordinates") != stated.digest:
            raise TableError(
                f"The table is in coordinates {table.info.get('coordinates')}, not in "
                f"{stated.digest}; convert it with mgpa.tables.rows.in_coordinates."
            )
        self.where = common_coordinates(self.fits, stated)
        # Rows are recognised as they came and, where these differ, in the audit's coordinates.
        rows = in_coordinates(self.where, table)
        self.digests = [row_digests(form.X) for form in ([table] if rows is table else [table, rows])]
        self.width = rows.X.shape[-1]
        return rows

    def _check_design(self) -> bool:
        """Find the design, check the task head, and return whether the head is fitted."""
        o = self.options
        self.design = find_design(self.table, o.task)
        if len(self.design.units) < FEWEST_PEOPLE:
            raise TableError(
                f"The table has {len(self.design.units)} {self.design.plural}; an audit needs "
                f"{FEWEST_PEOPLE} or more: one to fit on, one to train readers on, one to score."
            )
        if o.head is not None and self.design.task:
            check_head(o.head, self.design.task)
        deployed = o.head is not None and is_fitted(o.head)
        self.head_source = head_source_of(o.head_source, deployed, self.table)
        return deployed

    def _rotated(self) -> list[list[dict[str, str]]]:
        """Return the roles in every fold and repeat; an empty list if the roles of the table are kept."""
        # Participants on whom a map was fitted stay FIT, and are never scored; None if the map does not say.
        given = [fit.map for fit in self.fits if fit.map is not None]
        known = [seen_by(m, self.table.participant, self.digests, self.design.units) for m in given]
        how: dict[str, Any] = {
            "can_rotate": self.pairs is None and not given,
            "paired": self._paired(),
            "fixed": frozenset(chain.from_iterable(who or () for who in known)),
        }
        first = fold_roles(self.table, self.design, self.options.folds, **how)
        if first and (None in known or among_rows(self.pairs, self.digests)):
            raise UsageError(
                "Roles rotate over folds, but a fitted map does not record its participants, or pairs are "
                f"rows of the table: {self.design.plural} to score may be among them. Fit maps with "
                "mgpa.tables.fit_table, name pairs in pair_id, or give roles (mgpa.tables.assign_roles; mgpa "
                f"convert --roles), with EVAL {self.design.plural} outside maps and pairs."
            )
        repeats = range(1, self._repeats(rotates=bool(first)))
        again = [fold_roles(self.table, self.design, self.options.folds, repeat=r, **how) for r in repeats]
        return [first, *again] if first else []

    def _paired(self) -> frozenset[str]:
        """Return the participants with pairs to fit on; none if no method is fitted on pairs."""
        if not self.takes_pairs:
            return frozenset()
        paired = map(units_with_pairs, tables_of(self.pairs, self.table))
        return frozenset(chain.from_iterable(paired)) & self.design.units.keys()

    def _repeats(self, rotates: bool) -> int:
        """Return the number of random divisions into folds: as set, or several for few participants."""
        repeats = self.options.repeats
        if repeats is None:
            quick = preliminary(self.bank) or self.bank["bank"] == "paper"
            return REPEATS if rotates and len(self.design.units) < 2 * FEW and not quick else 1
        if repeats < 1 or (repeats > 1 and not rotates):
            why = "one or more" if repeats < 1 else "1, as the table keeps its roles (folds= rotates them)"
            raise UsageError(f"repeats is {repeats}; expected {why}.")
        return repeats

    @property
    def takes_pairs(self) -> bool:
        """Whether a method is fitted here that needs pairs."""
        return any(fit.map is None and needs_pairs(fit.model) for fit in self.fits)

    def _folds(self, rotated: list[list[dict[str, str]]]) -> list[Split]:
        """Return a split for every fold; association shift is measured in all folds or in none."""
        columns = columns_only(self.table)
        # One EVAL participant is enough: intervals are over the participants of all folds.
        splits = [self._split(with_roles(columns, roles), fewest=1) for deal in rotated for roles in deal]
        lacking = next((split for split in splits if not split.directions), None)
        for i, split in enumerate(splits):
            turn, settings, directions = f"fold {i + 1} of {len(splits)}, ", split.settings, split.directions
            if lacking is not None:
                directions = ()
                origin = lacking.settings.directions_of
                settings = replace(settings, directions=(), directions_of=origin)
            splits[i] = replace(split, turn=turn, directions=directions, settings=settings)
        return splits

    def _rotating(self, settings: Settings, rotated: list[list[dict[str, str]]]) -> Settings:
        """Return settings with the roles that every participant has in the folds."""
        units, every = self.design.units, [*chain(*rotated)]
        return replace(
            settings,
            folds=len(rotated[0]),
            repeats=len(rotated),
            always_fit=sum(all(fold[unit] == "FIT" for fold in every) for unit in units),
            turns=Counter(tuple(fold[unit] for fold in rotated[0]) for unit in units),
        )

    def _settings(self, features: tuple[int, ...], no_networks: bool, deployed: bool) -> Settings:
        """Return the settings in the result that do not depend on roles."""
        o, bank, info = self.options, self.bank, self.table.info
        return Settings(
            version=__version__,
            versions={"Python": platform.python_version(), **installed(*LIBRARIES)},
            seeds=tuple(o.seeds),
            pairs=count_pairs(self.pairs),
            floor=o.floor,
            standardize=o.standardize,
            budget=dict(o.budget) if isinstance(o.budget, Mapping) else o.budget,
            head=repr(o.head) if o.head is not None else "",
            head_source="" if self.head_source is None else str(self.head_source),
            deployed=deployed,
            readers=o.readers if isinstance(o.readers, str) else dict(o.readers),
            bank=bank["bank"],
            no_networks=no_networks,
            preliminary=preliminary(bank),
            association=o.association and tuple(map(str, o.association)),
            device=self.device,
            coordinates=None if self.where is None else self.where.digest,
            sources=tuple(map(str, self.table.sources.tolist())),
            source_name=str(info.get("source_column", "source")),
            task=self.design.task,
            features=tuple(features),
            corrected_by=info.get("corrected_by"),
            encoder=dict(info.get("encoder") or {}),
            signals=dict(info.get("signals") or {}),
            pairing=str(info.get("pairing") or "").partition("\n")[0],
            data=self.table.digest[:16],
        )

    def _split(self, columns: Table, fewest: int = 2) -> Split:
        """Check that all measurements are possible with the roles of a table, and record the roles."""
        require_applicable(self.fits, columns, self.width, self.pairs)
        parts = {role: columns.rows(role) for role in ROLES}
        for role in self.needed:
            if not len(parts[role]):
                why = " A movement budget is chosen on VAL rows." if role == "VAL" else ""
                raise TableError(f"The table has no {role} rows; mgpa.tables.assign_roles gives roles.{why}")
        fit, _, head, evaluation = parts.values()
        require_measurable(self.design, head, evaluation, fewest)
        directions, origin = self._shortcuts(fit, head, evaluation)
        copies, copied = duplicates(columns.role, columns.participant, digests_of(self, columns)[-1])
        with_pairs = [
            units_with_pairs(pairs)
            for pairs in tables_of(held_in(self.pairs, columns), fit)
            if self.takes_pairs
        ]
        return Split(
            columns,
            directions,
            replace(
                self.settings,
                directions=tuple(f"{source} means {label}" for source, label in directions),
                directions_of=origin,
                rows={role: len(part) for role, part in parts.items()},
                participants={role: len(np.unique(part.participant)) for role, part in parts.items()},
                pair_participants=tuple(len(who) for who in with_pairs if who)[:1],
                one_source={role: _with_one_source(parts[role]) for role in ("FIT", "HEAD")},
                duplicates=copies,
                copied=copied,
                data=self.table.digest[:16],
            ),
        )

    def _shortcuts(
        self, fit: Table, head: Table, evaluation: Table
    ) -> tuple[tuple[tuple[Any, Any], ...], str]:
        """Return the associated (source, label) pairs of shortcut heads, and where they are from."""
        directions: tuple[tuple[Any, Any], ...] = ()
        origin, stated = "", self.options.association
        if self.design.kind == "crossed" and self.design.labels == "within":
            directions, origin = choose_directions(stated, fit, head, evaluation)
        if stated is not None and not directions:
            why = f"{origin}." if origin else METRICS["worst"].missing
            raise UsageError(f"Omit association; this table cannot measure it: {why}")
        return directions, origin

    def turn(self, split: Split) -> Turn:
        """Return the fitting data and the measuring data of a split."""
        return turn_of(self, split)

    def run(self) -> Audit:
        """Compute the unfinished cells, and return the result."""
        return run_plan(self)


def _with_one_source(rows: Table) -> int:
    """Return the number of participants with rows of only one source."""
    seen = {*zip(rows.participant.tolist(), rows.source.tolist(), strict=True)}
    return [*Counter(who for who, _ in seen).values()].count(1)
