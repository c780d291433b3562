"""Rotate roles over folds: in each fold, different units are EVAL, HEAD and VAL, and the rest are FIT."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import UsageError
from ..tables.columns import rotated
from ..tables.table import Table
from .design import FEW, FEWEST_PEOPLE, Design, are_numbers, find_design, require_balanced

#: Default number of folds, and the minimum: one for each role.
FOLDS = 5
FEWEST = 4
#: In nested designs, readers learn the source from units, not rows: with fewer folds, S is too low by up to
#: .1 (docs/audit.md), so two of six folds train readers.
NESTED_FOLDS = 6
#: Roles for few participants, each of whom is a fold. The first three roles are always needed; a fourth
#: participant is VAL, for the stopping of iterative maps. With six or more, two participants train the
#: readers, and no two participants train readers for each other, because chance similarities would count
#: twice.
ALONE = ("EVAL", "HEAD", "FIT", "VAL", "FIT")
ALONE_OF_SIX = ("EVAL", "HEAD", "HEAD", "FIT", "VAL", "FIT", "FIT")


def fold_roles(
    table: Table,
    design: Design,
    folds: int | None,
    *,
    can_rotate: bool = True,
    paired: frozenset[str] = frozenset(),
    fixed: frozenset[str] = frozenset(),
    repeat: int = 0,
) -> list[dict[str, str]]:
    """Return the role of each unit in every fold; an empty list if the roles of the table are kept.

    1 keeps the roles of the table. None makes folds if fewer than twelve units are EVAL or the table has no
    roles. Folds of a nested or mixed design are balanced over its cells. If ``can_rotate`` is False, the
    roles of the table are kept unless ``folds`` is given. ``paired`` are units with pairs, if a method needs
    pairs. If they are few, all of them are FIT in every fold, or all except those on whom S is measured.
    ``fixed`` units are FIT in every fold. Another ``repeat`` divides the units again at random.
    """
    if design.kind != "crossed" and not design.within and 2 * len(paired) <= len(design.units):
        fixed |= paired
    everyone, fixed = design.units, fixed & design.units.keys()
    if len(everyone) - len(fixed) < FEWEST_PEOPLE:  # too few remain; the audit reports who was in the fit
        fixed = frozenset()
    design = replace(design, units={unit: has for unit, has in everyone.items() if unit not in fixed})
    crossed = design.kind == "crossed" and design.labels != "between"
    folds = _number_of_folds(table, design, folds, crossed, can_rotate)
    if folds == 1:
        return []
    if not crossed:
        require_balanced(design, folds)
    turns = _turns(design, folds, paired, crossed, repeat)
    if paired := paired & design.units.keys():
        turns = [_fit_on_pairs(turn, paired, crossed) for turn in turns]
    turns = [turn | dict.fromkeys(fixed, "FIT") for turn in turns]
    return [roles for roles in turns if "EVAL" in roles.values()]


def _number_of_folds(table: Table, design: Design, folds: int | None, crossed: bool, can_rotate: bool) -> int:
    """Return the number of folds; 1 if the roles of the table are kept."""
    n, unit = len(design.units), design.unit
    least, most = (FEWEST, n // 2) if n > len(ALONE_OF_SIX) or not crossed else (n, n)
    if folds is None:
        scored = 0 if table.role is None else len(np.unique(table.rows("EVAL").participant))
        if scored >= FEW or not (can_rotate or table.role is None):
            return 1
        if scored and _kept_complete(table, design, crossed):
            return 1
        folds = max(least, min(FOLDS if crossed else NESTED_FOLDS, most))
        if not crossed:
            folds = max(least, min(folds, design.smallest_cell(design.units)[1]))
    if folds != 1 and not least <= folds <= most:
        sizes = f"{least} to {most} folds of two {design.plural}" if least < n else f"{n} folds of one {unit}"
        raise UsageError(
            f"folds is {folds}; {n} {design.plural} make {sizes}, and 1 keeps the table's roles."
        )
    return folds


def _turns(
    design: Design, folds: int, paired: frozenset[str], crossed: bool, repeat: int
) -> list[dict[str, str]]:
    """Return the roles of every fold, before units with pairs are moved to FIT."""
    people, n = sorted(design.units), len(design.units)
    if not crossed:
        return [_turn(design, fold, folds, repeat) for fold in range(folds)]
    if n <= len(ALONE_OF_SIX):
        roles = ALONE if n < 6 else ALONE_OF_SIX
        order = people if not repeat else np.random.default_rng(repeat).permutation(people).tolist()
        return [{who: roles[(i - f) % folds] for i, who in enumerate(order)} for f in range(folds)]
    strata = {who: "" if len(paired) in (0, n) else str(who in paired) for who in people}
    if len({*strata.values()}) > 1:
        return [_dealt(strata, fold, folds, 1, repeat) for fold in range(folds)]
    return [rotated(strata, fold, folds, random_state=repeat) for fold in range(folds)]


def _kept_complete(table: Table, design: Design, crossed: bool) -> bool:
    """Return whether only participants outside EVAL are incomplete in the given roles."""
    evaluation = table.rows("EVAL")
    if crossed:
        return is_crossed(evaluation) and not is_crossed(table)
    return find_design(evaluation, design.task or None).kind == "crossed"


def is_crossed(table: Table) -> bool:
    """Return whether every unit has all sources and labels, and pairs of each if there are pairs."""
    numbers = table.label is not None and are_numbers(table.label, table.participant)
    keys: list[Any] = [table.source] if table.label is None or numbers else [table.source, table.label]
    views = table.paired_views() if len(keys) == 2 else None
    if views is None or not _has_all(table.participant, keys):
        return _has_all(table.participant, keys)
    seen = table.participant[views[0]]
    everyone = len(np.unique(seen)) == len(np.unique(table.participant))
    return everyone and _has_all(seen, [table.label[views[0]]])


def _has_all(people: Any, keys: list[Any]) -> bool:
    """Return whether every unit has every combination of the keys' values."""
    codes = [np.unique(values, return_inverse=True) for values in (people, *keys)]
    combined = np.ravel_multi_index([code for _, code in codes], [len(names) for names, _ in codes])
    return len(np.unique(combined)) == int(np.prod([len(names) for names, _ in codes]))


def _fit_on_pairs(roles: dict[str, str], paired: frozenset[str], crossed: bool) -> dict[str, str]:
    """Return the roles of a fold, changed so that FIT has pairs.

    If few units have pairs, all of them except those in EVAL become FIT, if other units can be HEAD (in a
    mixed design, those in HEAD are kept, because the others have one source each). A single unit with pairs
    is never scored.
    """
    roles = dict(roles)

    def having(role: str, with_pairs: bool) -> list[str]:
        return [who for who, other in roles.items() if other == role and (who in paired) == with_pairs]

    if len(paired) == 1:
        roles |= dict.fromkeys(paired, "FIT")
    if 2 * len(paired) <= len(roles):
        head = having("HEAD", True) if crossed else []
        roles |= dict.fromkeys([*head, *having("VAL", True)], "FIT")
        if "HEAD" not in roles.values():
            spare = [*having("VAL", False), *having("FIT", False)]
            roles |= dict.fromkeys(spare[: max(1, len(spare) // 2)], "HEAD")
    if not having("FIT", True) and (spare := [*having("VAL", True), *having("HEAD", True)]):
        exchanged = having("FIT", False)[:1]
        roles |= dict.fromkeys(exchanged, roles[spare[0]]) | {spare[0]: "FIT"}
    return roles


def _turn(design: Design, rotation: int, folds: int, repeat: int = 0) -> dict[str, str]:
    """Return the roles of one fold, with the units of each cell divided evenly over the folds."""
    strata = {unit: design.stratum[unit] for unit in sorted(design.units)}
    return _dealt(strata, rotation, folds, 1 if folds < NESTED_FOLDS else 2, repeat)


def _dealt(strata: dict[str, str], rotation: int, folds: int, readers: int, seed: int) -> dict[str, str]:
    """Return the roles of one fold, with each stratum divided evenly; ``readers`` folds are HEAD."""
    rng = np.random.default_rng(seed)
    members: dict[str, list[str]] = {}
    for unit, stratum in strata.items():
        members.setdefault(stratum, []).append(unit)
    turn = ("EVAL", *["HEAD"] * readers, "VAL", *["FIT"] * (folds - 2 - readers))
    roles, dealt = {}, 0
    for _, units in sorted(members.items()):
        for unit in rng.permutation(units).tolist():
            roles[unit] = turn[(dealt - rotation) % folds]
            dealt += 1
    return roles
