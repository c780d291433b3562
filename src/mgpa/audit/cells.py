"""Compute and store the cells of an audit: fits, their measurements, and decoders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from joblib import delayed
from threadpoolctl import threadpool_limits

from .._common.extras import torch_device
from .._common.progress import in_processes, tell, waiting
from ..errors import printable
from ..estimators.tokens import needs_pairs, row_estimator
from ..maps.io.mapfile import map_digest
from .calibration import pairs_link_sources
from .design import Design
from .fits import (
    Fit,
    FittingData,
    cut_back,
    explain,
    fit_one,
    stored_fit,
)
from .ground import Ground
from .measure import gate_basis, measure, measure_floor, measure_unseen
from .readers import Scores, trained_scores
from .store import Arrays, Store, array_digest, cell_key

T = TypeVar("T")


@dataclass(frozen=True)
class Call(Generic[T]):
    """A computation: its name in messages, its stored result, and its function."""

    what: str
    stored: Callable[[], T | None]
    compute: Callable[..., T]


@dataclass(frozen=True, eq=False)
class Cell:
    """What is measured: its name in messages, its key, the function, and its data."""

    what: str
    key: str
    measures: Callable[..., Arrays]
    ground: Ground
    of: Any

    @property
    def has_readers(self) -> bool:
        """Whether source readers are trained for this measurement."""
        return self.measures is not measure_unseen

    def call(self, store: Store) -> Call[Arrays]:
        """Return the call that measures the cell and stores it."""
        compute = partial(_cell, self.what, store, self.key, self.measures, self.ground, self.of)
        return Call(self.what, partial(store.get, self.key), compute)


@dataclass(eq=False)
class Turn:
    """One assignment of roles: the data for fits and measurements, and the results."""

    data: FittingData
    ground: Ground
    fits: list[Fit] = field(default_factory=list)
    #: By method, its first fit without the rows of each source.
    unseen: dict[str, dict[Any, Fit]] = field(default_factory=dict)
    #: Measurements of each fit and, for gated methods, of the part that its gate preserves.
    cells: list[tuple[Arrays, Arrays | None]] = field(default_factory=list)
    decoded: list[Arrays] = field(default_factory=list)
    #: Methods that do not reach their budget, with reasons; and numbers of such fits and of all fits.
    omitted: dict[str, str] = field(default_factory=dict)
    unattained: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Engine:
    """Fit and measure all methods in one or several splits.

    Cells of splits that are computed together run in parallel (``n_jobs``); on a GPU, all their networks are
    trained together.
    """

    fits: list[Fit]
    decoders: list[Fit]
    budgets: Mapping[str, float]
    design: Design
    device: str
    store: Store
    floor: bool = True
    n_jobs: int = 1
    verbose: bool = True

    def run(self, turns: Sequence[Turn], name: str) -> None:
        """Compute the unfinished cells of some splits; ``name`` is used in messages."""
        self._fit(turns, name)
        self._fit_unseen(turns, name)
        self._measure(turns, name)
        if self.decoders:
            self._decode(turns, name)

    def say(self, text: str) -> None:
        """Print a line of progress if the audit is verbose."""
        if self.verbose:
            tell(f"audit: {printable(text)}\n")

    def _fit(self, turns: Sequence[Turn], name: str) -> None:
        """Fit all methods and apply their budgets."""
        keyed = [[(turn.data.key(fit), fit) for fit in self.fits] for turn in turns]
        calls: dict[str, Call[Fit]] = {}
        for turn, of_turn in zip(turns, keyed, strict=True):
            for key, fit in of_turn:  # methods that differ only in their budget share a fit
                calls.setdefault(key, self._fitting(fit, turn.data, key, fit.method))
        made = self._complete(calls, turns, name, "fits")
        for turn, of_turn in zip(turns, keyed, strict=True):
            whole = [(key, replace(fit, map=made[key].map, facts=made[key].facts)) for key, fit in of_turn]
            turn.omitted, turn.unattained = self._beyond_reach([fit for _, fit in whole])
            turn.fits = [
                self._at_budget(fit, turn.data, key) for key, fit in whole if fit.method not in turn.omitted
            ]

    def _fitting(self, fit: Fit, data: FittingData, key: str, what: str) -> Call[Fit]:
        stored = partial(stored_fit, fit, self.store, key)
        return Call(what, stored, partial(fit_one, fit, data, self.store, key))

    def _beyond_reach(self, fits: Sequence[Fit]) -> tuple[dict[str, str], dict[str, list[int]]]:
        """Return methods to leave out, with reasons, and the number of fits that miss the budget."""
        omitted: dict[str, str] = {}
        unattained = {name: [0, 0] for name in self.budgets}
        for fit in (fit for fit in fits if fit.method in self.budgets):
            moved = np.max(fit.facts.get("stage_movement", fit.facts["validation_movement"]), initial=0)
            unattained[fit.method][1] += 1
            if moved < self.budgets[fit.method]:
                unattained[fit.method][0] += 1
                # A mean over only the fits that reach the budget would not be comparable.
                omitted[fit.method] = (
                    f"the budget is {self.budgets[fit.method]:g}, but fit {fit.number} moves VAL rows by "
                    f"at most {moved:.3g}"
                )
                self.say(f"{fit.method} is left out: {omitted[fit.method]}")
        return omitted, unattained

    def _at_budget(self, fit: Fit, data: FittingData, key: str) -> Fit:
        budget = self.budgets.get(fit.method)
        if budget is None:
            return fit
        at = cell_key("budget", key, budget)
        return stored_fit(fit, self.store, at) or cut_back(fit, budget, data, self.store, at)

    def _fit_unseen(self, turns: Sequence[Turn], name: str) -> None:
        """Fit methods without the rows of each source, to test them on an unseen device.

        With three sources or more, this is done for the first fit of every source-blind method that is fitted
        here on pairs of the table, except if the pairs then do not link the other sources, or if the source
        is the reference of the method.
        """
        made: list[tuple[Turn, Any, str]] = []
        calls: dict[str, Call[Fit]] = {}
        for turn in turns:
            for source, data, fit in self._without_a_source(turn):
                key = data.key(fit)
                calls[key] = self._fitting(fit, data, key, f"{fit.method} without {source}")
                made.append((turn, source, key))
        if calls:
            done = self._complete(calls, turns, name, "fits without a source")
            for turn, source, key in made:
                turn.unseen.setdefault(done[key].method, {})[source] = done[key]

    def _without_a_source(self, turn: Turn) -> Iterator[tuple[Any, FittingData, Fit]]:
        data = turn.data
        if len(data.rows.sources) < 3 or data.pairs is not None or self.budgets:
            return
        first = {fit.method: fit for fit in reversed(turn.fits)}
        able = [fit for fit in first.values() if not fit.came_fitted and fit.map.source_blind]
        fitted = np.isin(data.rows.role, ("FIT", "VAL"))
        for source in self.design.heads if self.design.task else ():
            rows = data.rows.take(fitted & (data.rows.source != source))
            known = rows.rows("FIT")
            if len(known.sources) < 2:
                continue
            without = FittingData(rows, None, data.standardize, data.coordinates)
            linked = pairs_link_sources(known)
            for fit in able:
                reference = getattr(row_estimator(fit.model), "reference", None)
                if str(reference) != str(source) and (linked or not needs_pairs(fit.model)):
                    yield source, without, replace(fit, map=None, facts={})

    def _measure(self, turns: Sequence[Turn], name: str) -> None:
        """Measure each fit and, for gated methods, the part that its gate preserves."""
        planned = [[self._cells_of(fit, turn) for fit in turn.fits] for turn in turns]
        cells = {cell.key: cell for fits in planned for parts in fits for cell in parts if cell is not None}
        calls = {key: cell.call(self.store) for key, cell in cells.items()}
        done, missing = self._finished(calls, name, "cells to measure")
        trained = self._train([cells[key] for key in missing if cells[key].has_readers], name)
        for key, scores in trained.items():
            missing[key] = replace(missing[key], compute=partial(missing[key].compute, trained=scores))
        done |= self._compute(missing, turns, name, "cells to measure")
        for turn, fits in zip(turns, planned, strict=True):
            turn.cells = [
                (
                    done[whole.key] | ({} if unseen is None else done[unseen.key]),
                    None if floor is None else done[floor.key],
                )
                for whole, floor, unseen in fits
            ]

    def _cells_of(self, fit: Fit, turn: Turn) -> tuple[Cell, Cell | None, Cell | None]:
        """Return the cells of a fit: its correction, what its gate preserves, and sources not in the fit."""
        ground, floor, unseen = turn.ground, None, None
        key = cell_key("measure", ground.key, map_digest(fit.map))
        whole = Cell(fit.method, key, measure, ground, fit.map)
        if self.floor and "gate_basis" in fit.facts:
            basis = gate_basis(fit.facts, ground.standardizer.scale)
            if ground.preserves(basis):
                key = cell_key("floor", ground.key, array_digest(basis))
                floor = Cell(f"the gate of {fit.method}", key, measure_floor, ground, basis)
        if fit.method in turn.unseen:
            maps = {source: other.map for source, other in turn.unseen[fit.method].items()}
            key = cell_key("unseen", ground.key, [(str(source), map_digest(m)) for source, m in maps.items()])
            unseen = Cell(f"{fit.method} on unseen sources", key, measure_unseen, ground, maps)
        return whole, floor, unseen

    def _train(self, cells: Sequence[Cell], name: str) -> dict[str, Scores]:
        """Train the readers of all cells together on a GPU and return their scores.

        Without a GPU there are none; each cell then trains its readers.
        """
        if not cells or cells[0].ground.tokens or not self.on_gpu:
            return {}
        bank = cells[0].ground.bank
        if not bank["restarts"]:
            return {}
        with waiting(f"audit: {name}training the readers of {len(cells)} cells", self.verbose):
            found = trained_scores(
                (cell.ground.reading(cell.of) for cell in cells),
                bank=bank["bank"],
                restarts=bank["restarts"],
                epochs=bank["checkpoints"],
                seed=bank["seed"],
                place=torch_device(self.device, "The bank of source readers"),
            )
        return dict(zip((cell.key for cell in cells), found, strict=True))

    def _decode(self, turns: Sequence[Turn], name: str) -> None:
        """Score end-to-end comparators."""
        from .decoders import decode

        calls: dict[str, Call[Arrays]] = {}
        keys: list[list[str]] = []
        for turn in turns:
            keys.append([])
            for fit in self.decoders:
                kind = type(fit.model).__name__
                key = cell_key("decode", turn.ground.key, kind, repr(fit.model.get_params()))
                calls[key] = Cell(fit.method, key, decode, turn.ground, fit.model).call(self.store)
                keys[-1].append(key)
        done = self._complete(calls, turns, name, "decoders")
        for turn, of_turn in zip(turns, keys, strict=True):
            turn.decoded = [done[key] for key in of_turn]

    @property
    def together(self) -> bool:
        """Whether splits are computed in parallel."""
        return self.n_jobs != 1 or self.on_gpu

    @property
    def on_gpu(self) -> bool:
        """Whether there is a GPU."""
        return self.device.startswith("cuda")

    def _done(self, calls: Sequence[Callable[[], T]]) -> Iterator[T]:
        """Yield the result of every call, computed in ``n_jobs`` processes."""
        return in_processes((delayed(call)() for call in calls), self.n_jobs)

    def _complete(
        self, calls: Mapping[str, Call[T]], turns: Sequence[Turn], name: str, what: str
    ) -> dict[str, T]:
        """Return the stored or computed result of each call by key."""
        results, missing = self._finished(calls, name, what)
        return results | self._compute(missing, turns, name, what)

    def _finished(
        self, calls: Mapping[str, Call[T]], name: str, what: str
    ) -> tuple[dict[str, T], dict[str, Call[T]]]:
        """Return the stored results, and the calls without one."""
        results = {key: value for key, call in calls.items() if (value := call.stored()) is not None}
        if results:
            self.say(f"{name}{len(calls)} {what}, {len(results)} of them finished before")
        return results, {key: call for key, call in calls.items() if key not in results}

    def _compute(
        self, calls: Mapping[str, Call[T]], turns: Sequence[Turn], name: str, what: str
    ) -> dict[str, T]:
        """Compute and return the result of every call."""
        if not calls:
            return {}
        # Run this first, so that heads that cannot be fitted raise an error before maps are fitted.
        with waiting(f"audit: {name}heads", self.verbose):
            waits = [turn.ground for turn in turns if not turn.ground.prepared]
            heads = self._done([partial(Ground.prepare, ground) for ground in waits])
            for ground, shared in zip(waits, heads, strict=True):
                vars(ground).update(shared)
        computed = self._done([call.compute for call in calls.values()])
        results = {}
        for i, (key, call) in enumerate(calls.items(), start=1):
            with waiting(f"audit: {name}{i}/{len(calls)} {what}: {call.what}", self.verbose):
                results[key] = next(computed)
        return results


def _cell(
    what: str, store: Store, key: str, measures: Callable[..., Arrays], ground: Ground, of: Any, **more: Any
) -> Arrays:
    """Measure a cell and store it."""
    with explain(f"measuring {what}", store), threadpool_limits(ground.n_threads):
        return store.put(key, measures(ground, of, **more))
