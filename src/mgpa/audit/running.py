"""Run a planned audit: compute the cells of all splits and pool the results."""

from __future__ import annotations

import time
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.progress import waiting
from ..errors import MissingEvidence
from ..labels import SINGLES, warn_of_singles
from ..tables.rows import in_coordinates, person_digest
from ..tables.table import Table
from .calibration import has_pairs, held_in, pairs_in
from .cells import Turn
from .design import columns_only, find_design, seen_by, units_with_pairs
from .diagnostics import PairCheck, check_pairs, count_rows
from .fits import Fit, FittingData
from .ground import Ground
from .pooling import people_known, result_of_cells
from .result import Audit
from .settings import Settings

if TYPE_CHECKING:
    from .plan import AuditPlan


@dataclass(frozen=True, eq=False)
class Split:
    """One assignment of roles: the table without its features, the shortcuts, and the description."""

    table: Table
    directions: tuple[tuple[Any, Any], ...]
    settings: Settings
    turn: str = ""  # name of the fold in progress messages


def run_plan(plan: AuditPlan) -> Audit:
    """Compute the unfinished cells, and return the result."""
    ids, fitted, rotates = plan.table.pair_id, plan.takes_pairs, plan.settings.folds > 1
    if ids is not None and fitted and (plan.pairs is None or isinstance(plan.pairs, Mapping)):
        warn_of_singles(ids if rotates else ids[plan.table.role == "FIT"])
    with ThreadPoolExecutor(1) as aside:
        # Check the pairs while other processes compute.
        checking = aside.submit(_check_pairs, plan) if fitted and plan.options.n_jobs != 1 else None
        audits = _run_each(plan, plan.splits)
    result = audits[0]
    if rotates:
        n, whole = plan.settings.folds, plan.settings
        result = Audit.repeat([Audit.pool(audits[i : i + n]) for i in range(0, len(audits), n)])
        settings = replace(
            result.settings,
            folds=n,
            repeats=whole.repeats,
            data=whole.data,
            always_fit=whole.always_fit,
            turns=whole.turns,
        )
        # Each participant was in the fit of some fold.
        result = replace(result, settings=settings, counts=_counts(plan, plan.table))
    refits = tuple(_refitted(plan, number) for number in range(plan.options.refits))
    result = replace(result, refits=refits, settings=replace(result.settings, refits=len(refits)))
    checked = checking.result() if checking else _check_pairs(plan) if fitted else None
    return replace(result, paired_rows=_paired_rows(plan), pairs=checked)


def _run_each(plan: AuditPlan, splits: Sequence[Split]) -> list[Audit]:
    """Return the result of every split, computed one after another or in parallel."""
    if plan.engine.together:
        return run_splits(plan, splits)
    return [run_splits(plan, [split])[0] for split in splits]


def run_splits(plan: AuditPlan, splits: Sequence[Split]) -> list[Audit]:
    """Compute the unfinished cells of splits in parallel, and return the result of each."""
    started = time.monotonic()
    turns = [turn_of(plan, split) for split in splits]
    name = splits[0].turn if len(splits) == 1 else f"{len(splits)} folds, "
    plan.engine.run(turns, name)
    plan.engine.say(f"{name}done in {time.monotonic() - started:.0f} s")
    return [_collect(plan, split, turn) for split, turn in zip(splits, turns, strict=True)]


def turn_of(plan: AuditPlan, split: Split) -> Turn:
    """Return the fitting data and the measuring data of a split."""
    o, table = plan.options, plan.table
    if len(split.table) < len(table):
        table = table.take(np.isin(table.participant, np.unique(split.table.participant)))
    rows = in_coordinates(plan.where, replace(table, role=split.table.role))
    # Pairs have the coordinates of the original table.
    pairs = held_in(plan.pairs, rows)
    pairs = pairs if table.info == rows.info else pairs_in(pairs, plan.where)
    data = FittingData(rows, pairs, o.standardize, plan.where)
    settings = (o.head, plan.device, plan.bank, split.directions, plan.head_source, plan.settings.widen)
    return Turn(data, Ground(rows, data.standardizer, plan.design, *settings))


def _collect(plan: AuditPlan, split: Split, turn: Turn) -> Audit:
    """Return the result of a split from its finished cells."""
    fits, cells, ground = turn.fits, turn.cells, turn.ground
    held, how = (
        np.isin(split.table.role, ("HEAD", "EVAL")),
        {"design": plan.design, "widen": plan.settings.widen},
    )
    people, digests = split.table.participant[held], [d[held] for d in digests_of(plan, split.table)]
    shared = next((floor for _, floor in cells if floor is not None), None)
    results = {
        name: result_of_cells(
            [fits[i] for i in chosen],
            [cells[i][0] for i in chosen],
            [cells[i][1] for i in chosen],
            shared,
            fitted_on=people_known(seen_by(fits[i].map, people, digests, ground.units) for i in chosen),
            **how,
        )
        for name, chosen in _by_method(fits).items()
    }
    from .decoders import collect

    every = plan.engine.decoders
    decoders = {
        name: collect([every[i] for i in chosen], [turn.decoded[i] for i in chosen], **how)
        for name, chosen in _by_method(every).items()
    }
    return Audit(
        results,
        _counts(plan, split.table.rows("FIT")),
        replace(split.settings, omitted=turn.omitted, unattained=turn.unattained),
        ground.evaluation.source[ground.picture[0]].astype(str),
        design=plan.design,
        decoders=decoders,
    )


def _by_method(fits: Sequence[Fit]) -> dict[str, list[int]]:
    """Return the positions of the fits of each method."""
    places: dict[str, list[int]] = defaultdict(list)
    for i, fit in enumerate(fits):
        places[fit.method].append(i)
    return places


def digests_of(plan: AuditPlan, table: Table) -> list[NDArray[Any]]:
    """Return hashes of the rows of a split; some participants may have no role in it."""
    if len(table) == len(plan.table):
        return plan.digests
    kept = np.isin(plan.table.participant, np.unique(table.participant))
    return [digests[kept] for digests in plan.digests]


def _counts(plan: AuditPlan, rows: Table) -> dict[str, dict[str, int]]:
    """Return the number of fitting rows of each source and label, if labels are classes.

    For given maps, this is known only if they record that they were fitted on these rows.
    """
    people = sorted(map(person_digest, np.unique(rows.participant).tolist()))
    given = [fit.map.info for fit in plan.fits if fit.map is not None and fit.method != "identity"]
    here = all(info.n_rows == len(rows) and sorted(info.people) == people for info in given)
    return count_rows(rows.source, rows.label) if here and plan.design.task == "classification" else {}


def _refitted(plan: AuditPlan, number: int) -> dict[str, dict[str, float]]:
    """Return differences from the identity for methods fitted on half of the FIT participants."""
    rng = np.random.default_rng(number)
    halves = [
        replace(split, table=_half_of_fit(plan, split.table, rng), turn=f"refit {number + 1}, {split.turn}")
        for split in plan.splits[: plan.settings.folds]
    ]
    found = Audit.pool(_run_each(plan, halves))
    return {
        name: {metric: found.difference(name, metric) for metric in found.metrics}
        for name in found.methods[1:]
    }


def _half_of_fit(plan: AuditPlan, table: Table, rng: np.random.Generator) -> Table:
    """Return a split with half of the FIT participants of each stratum, separately with and without pairs."""
    fit = table.rows("FIT")
    paired = units_with_pairs(fit) if plan.takes_pairs else frozenset()
    design, strata = find_design(fit, plan.design.task or None), defaultdict(list)
    for who in design.units:
        strata[who in paired, design.stratum[who]].append(who)
    dropped = [who for people in strata.values() for who in rng.permutation(people)[: len(people) // 2]]
    return table.take(np.flatnonzero(~np.isin(table.participant, dropped)))


def _paired_rows(plan: AuditPlan) -> Table | None:
    """Return the rows of the pairs in the fits; all paired rows if each was FIT in some fold."""
    return in_coordinates(plan.where, _fit_rows(plan.table, plan)) if _own_pairs(plan) else None


def _own_pairs(plan: AuditPlan) -> bool:
    """Return whether methods were fitted on pairs, and these are rows of the table."""
    return plan.pairs is None and has_pairs(_fit_rows(columns_only(plan.table), plan))


def _fit_rows(table: Table, plan: AuditPlan) -> Table:
    """Return the rows in the fits; all rows if each was FIT in some fold."""
    return replace(table, role=None) if plan.settings.folds > 1 else table.rows("FIT")


def _check_pairs(plan: AuditPlan) -> PairCheck | None:
    """Return the check of the pairs in the fits; None without pairs or with too few."""
    own = isinstance(plan.pairs, Table)
    if not own and not _own_pairs(plan):
        return None
    # Read FIT rows from the whole table when needed, to avoid keeping a copy.
    role = None if plan.settings.folds > 1 else np.where(plan.table.role == "FIT", "FIT", "EVAL")
    table = replace(plan.table, role=role)
    with waiting("audit: checking pairs", plan.options.verbose), warnings.catch_warnings():
        warnings.filterwarnings("ignore", SINGLES)  # the audit warns once
        with suppress(MissingEvidence):
            rows, pairs = in_coordinates(plan.where, table), pairs_in(plan.pairs, plan.where) if own else None
            return check_pairs(rows, pairs, hidden=False)
    return None
