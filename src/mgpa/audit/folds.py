"""Folds: everybody judges once, by maps and readers that others were used for.

With few people one split leaves too few to judge. Here the roles rotate: in every fold other people are EVAL,
others again HEAD and VAL, and the rest FIT. What is said is then about all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import Mention, UsageError
from ..pairs import is_paired
from ..tables.roles import rotated, with_roles
from ..tables.table import Table
from .bootstrap import FEW

#: Folds that are made unless a number is given, and the fewest of several people: one for every role.
FOLDS = 5
FEWEST = 4
#: What fewer people do in turn, everybody a fold of their own. The first three roles no audit is without;
#: the fourth person decides how far iterative maps go, and from six on two people train the readers.
ALONE = ("EVAL", "HEAD", "FIT", "VAL", "FIT", "HEAD", "FIT")
FEWEST_PEOPLE = 3


def fold_tables(table: Table, folds: int | None, *, can_rotate: bool) -> list[Table]:
    """Return the table with the roles of every fold; nothing, if its own roles are to be kept.

    Parameters
    ----------
    table : Table
    folds : int or None
        How many; 1 keeps the table's roles. None makes folds where fewer than twelve people have the role
        EVAL, or there are no roles, and everybody can take every role.
    can_rotate : bool
        Whether everything is fitted here, from the table alone: a map that came fitted, or pairs from
        elsewhere, may be of people who would judge it.
    """
    people = np.unique(table.require("source", "participant").participant).tolist()
    n = len(people)
    least, most = (FEWEST, n // 2) if n > len(ALONE) else (n, n)
    if folds is None:
        judges = 0 if table.role is None else len(np.unique(table.rows("EVAL").participant))
        if judges >= FEW or not can_rotate or n < FEWEST_PEOPLE or not everybody_can_judge(table):
            return []
        folds = max(least, min(FOLDS, most))
    elif folds == 1:
        return []
    elif not can_rotate:
        raise UsageError(
            "Folds need methods that are fitted here, from the table's own pairs: a map that came fitted, or "
            "pairs from elsewhere, may be of people who would judge it. Pass methods by name, or ",
            Mention("folds", 1),
            ".",
        )
    if n < FEWEST_PEOPLE:
        raise UsageError(
            f"{n} participants are too few for folds, which need {FEWEST_PEOPLE} or more: one to fit on, one "
            "to train readers on, one to judge."
        )
    if not least <= folds <= most:
        sizes = f"{least} to {most} folds of two people or more" if least < n else f"{n} folds of one person"
        raise UsageError(
            Mention("folds"), f" is {folds}; {n} participants make {sizes}, and 1 keeps the table's roles."
        )
    return [with_roles(table, _turn(people, fold, folds)) for fold in range(folds)]


def _turn(people: list[Any], fold: int, folds: int) -> dict[Any, str]:
    """Return everybody's role in one of the folds."""
    if len(people) > len(ALONE):
        return rotated(dict.fromkeys(people, ""), fold, folds)
    return {person: ALONE[(i - fold) % folds] for i, person in enumerate(people)}


def everybody_can_judge(table: Table) -> bool:
    """Return whether everybody has rows of every source and label and, if anybody has, pairs of each."""
    keys: list[Any] = [table.source] if table.label is None else [table.source, table.label]
    if not _has_all(table.participant, keys):
        return False
    if table.pair_id is None or table.label is None or len(table.sources) != 2:
        return True
    views = table.paired_views()
    if views is None or not is_paired(table.pair_id).any():
        return True
    seen = table.participant[views[0]]
    everyone = len(np.unique(seen)) == len(np.unique(table.participant))
    return everyone and _has_all(seen, [table.label[views[0]]])


def _has_all(people: Any, keys: list[Any]) -> bool:
    """Return whether everybody has every combination of the keys' values."""
    codes = [np.unique(values, return_inverse=True) for values in (people, *keys)]
    combined = np.ravel_multi_index([code for _, code in codes], [len(names) for names, _ in codes])
    return len(np.unique(combined)) == int(np.prod([len(names) for names, _ in codes]))
