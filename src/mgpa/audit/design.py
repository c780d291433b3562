"""The design of an audit: who takes which role, and whether everything asked for can be measured on them.

With few people one split leaves too few to score. Then the roles rotate: in every fold other people are
EVAL, others again HEAD and VAL, and the rest FIT; results are about all of them.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..errors import TableError, UsageError, first_few
from ..maps import CorrectionMap
from ..pairs import is_paired
from ..tables.columns import ROLES
from ..tables.roles import rotated, with_roles
from ..tables.rows import person_digest
from ..tables.seen import row_digests, seen_people
from ..tables.table import Table

# With fewer EVAL participants than FEW, percentile intervals are noticeably too narrow; with fewer than
# TOO_FEW, nothing should be concluded from them.
FEW = 12
TOO_FEW = 6
#: Folds that are made unless a number is given, and the fewest of several people: one for every role.
FOLDS = 5
FEWEST = 4
#: Roles that fewer people take in turn, each in a fold alone. No audit is without the first three roles; the
#: fourth person decides how far iterative maps go, and from six on two people train the readers.
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
        elsewhere, may be of people who would be scored.
    """
    people = np.unique(table.require("source", "participant").participant).tolist()
    n = len(people)
    least, most = (FEWEST, n // 2) if n > len(ALONE) else (n, n)
    if folds is None:
        scored = 0 if table.role is None else len(np.unique(table.rows("EVAL").participant))
        if scored >= FEW or not can_rotate or n < FEWEST_PEOPLE or not is_crossed(table):
            return []
        folds = max(least, min(FOLDS, most))
    elif folds == 1:
        return []
    elif not can_rotate:
        raise UsageError(
            "Folds need methods that are fitted here, from the table's own pairs: a map that came fitted, or "
            "pairs from elsewhere, may be of people who would be scored. Pass methods by name, or folds=1."
        )
    if n < FEWEST_PEOPLE:
        raise UsageError(
            f"{n} participants are too few for folds, which need {FEWEST_PEOPLE} or more: one to fit on, one "
            "to train readers on, one to score."
        )
    if not least <= folds <= most:
        sizes = f"{least} to {most} folds of two people or more" if least < n else f"{n} folds of one person"
        raise UsageError(
            f"folds is {folds}; {n} participants make {sizes}, and folds=1 keeps the table's roles."
        )
    if n > len(ALONE):
        turns = [rotated(dict.fromkeys(people, ""), fold, folds) for fold in range(folds)]
    else:
        turns = [{who: ALONE[(i - f) % folds] for i, who in enumerate(people)} for f in range(folds)]
    return [with_roles(table, roles) for roles in turns]


def is_crossed(table: Table) -> bool:
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


def require_enough_people(table: Table) -> None:
    """Raise if a table has too few people for the roles that an audit needs."""
    n_people = len(np.unique(table.participant))
    if n_people < FEWEST_PEOPLE:
        raise TableError(
            f"The table has {n_people} participants; an audit needs {FEWEST_PEOPLE} or more: one to fit on, "
            "one to train readers on, one to score."
        )


def require_measurable(head: Table, evaluation: Table, fewest: int) -> None:
    """Raise unless every EVAL participant has rows of every source and label of HEAD."""
    people = np.unique(evaluation.participant).tolist()
    if len(people) < fewest:
        raise TableError(
            f"EVAL has one participant ({people[0]!r}); an interval over people needs two or more. Give "
            "another participant the role EVAL; VAL may be empty."
        )
    for name, known, found in (
        ("sources", head.source, evaluation.source),
        ("labels", head.label, evaluation.label),
    ):
        if known is None or found is None:
            continue
        new = np.setdiff1d(found, known).tolist()
        if new:
            few = first_few(list(map(repr, new)), 4)
            classes = " Labels are classes; cut a measured quantity into some." if len(new) > 4 else ""
            raise ValueError(
                f"EVAL has {name} that HEAD lacks: {few}; no reader or head could learn them.{classes}"
            )
    if head.label is not None and evaluation.label is not None:
        if len(np.unique(head.label)) < 2:
            raise TableError("label is the same in all HEAD rows, so there is no task; drop the column.")
        pairs = {*zip(evaluation.participant.tolist(), evaluation.label.tolist(), strict=True)}
        if len(pairs) == len(people):
            raise TableError(
                "Every EVAL participant has one label, as a diagnosis is, and task scores compare labels "
                "within participants. Drop the column label to audit without the task; or let several "
                "people, of all labels, make one participant."
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


def require_everyone(present: Any, table: Table, what: str) -> None:
    """Raise unless these participants are all the table's."""
    missing = np.setdiff1d(table.participant, present).tolist()
    if missing:
        raise ValueError(
            f"EVAL participants have no rows of {what}: {first_few([repr(who) for who in missing])}. A mean "
            "over the others would be about other people. Complete them, give them the role FIT, which needs "
            "no labels, or leave them out of the table."
        )


def seen_by(m: CorrectionMap, forms: list[Table]) -> tuple[str, ...] | None:
    """Return which HEAD and EVAL participants a map was fitted on, by name or rows; None if it does not say.

    ``forms`` are the rows as they came and, where these differ, in the audit's coordinates.
    """
    people = forms[0].participant
    seen = {name for name in np.unique(people).tolist() if person_digest(name) in m.info.people}
    for rows in forms:
        seen.update(seen_people(m.info.row_sample, row_digests(rows.X), people))
    return tuple(sorted(seen)) if m.info.people or seen else None


def duplicates(table: Table) -> dict[str, int]:
    """Return how many rows of a role are exact copies of rows of another, by both roles' names."""
    digests = {role: row_digests(table.rows(role).X) for role in ROLES}
    return {
        f"{later} rows are copies of {earlier} rows": count
        for earlier, later in itertools.combinations(ROLES, 2)
        if (count := int(np.isin(digests[later], digests[earlier]).sum()))
    }
