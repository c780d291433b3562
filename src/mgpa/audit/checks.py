"""Before an audit: what was asked for, held against the table and the methods, and what it means for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..coordinates import Coordinates
from ..errors import Mention, TableError, UsageError, first_few
from ..tables.rows import require_correctable, require_encoder
from ..tables.table import Table
from .association import Direction, find_directions
from .fits import Job
from .folds import FEWEST_PEOPLE
from .words import label as shown_as
from .measure import require_everyone
from .readers import CHECKPOINTS, check_bank, check_schedule


def check_readers(
    bank: str = "full", restarts: int = 3, checkpoints: Sequence[int] = CHECKPOINTS, **other: Any
) -> dict[str, Any]:
    """Return the bank of source readers that was asked for."""
    if other:
        raise TypeError(f"readers has {sorted(other)}; it takes bank, restarts and checkpoints.")
    check_bank(bank)
    return {"bank": bank, "restarts": int(restarts), "checkpoints": check_schedule(restarts, checkpoints)}


def require_distinct_names(jobs: list[Job]) -> None:
    """Raise if two methods would be shown under the same name."""
    shown: dict[str, str] = {}
    for name in dict.fromkeys(job.method for job in jobs):
        other = shown.setdefault(shown_as(name), name)
        if other != name:
            raise ValueError(
                f"{other!r} and {name!r} are both shown as {shown_as(name)}; name one otherwise."
            )


def require_known(given: Mapping[str, Any], jobs: list[Job], what: str) -> None:
    """Raise if a parameter that goes by methods names others than there are."""
    names = list(dict.fromkeys(job.method for job in jobs))
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ValueError(f"{what} names {', '.join(unknown)}; the methods are {', '.join(names)}.")


def read_budgets(budget: float | Mapping[str, float] | None, jobs: list[Job]) -> dict[str, float]:
    """Return every method's budget, for those that have one; the identity never moves."""
    if isinstance(budget, Mapping):
        require_known(budget, jobs, "budget")
    elif budget is not None:
        budget = {job.method: budget for job in jobs}
    budgets = {name: float(b) for name, b in (budget or {}).items() if name != "identity"}
    for name, b in budgets.items():
        if not (np.isfinite(b) and b >= 0):
            raise ValueError(f"The budget of {name} is {b!r}; expected a movement, zero or more.")
    return budgets


def common_coordinates(jobs: list[Job], given: Coordinates | None) -> Coordinates | None:
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


def require_applicable(jobs: list[Job], table: Table) -> None:
    """Raise unless every map that came fitted may be applied to the table."""
    for job in jobs:
        m = job.fitted
        if m is None:
            continue
        width = table.X.shape[-1]
        if m.n_features != width:
            raise TableError(f"{job.method} corrects {m.n_features} features; the table has {width}.")
        require_encoder(table.info, {"encoder": m.info.encoder}, "The table", f"{job.method} was fitted on")
        require_correctable(m, table.info, table.source, ("Audit the table that the map is meant for.",))


def require_enough_people(table: Table) -> None:
    """Raise if the people of a table cannot take the roles that an audit needs, whoever gives them out."""
    n_people = len(np.unique(table.participant))
    if n_people < FEWEST_PEOPLE:
        raise TableError(
            f"The table has {n_people} participants; an audit needs {FEWEST_PEOPLE} or more, who take turns: "
            "one to fit on, one to train readers on, one to judge."
        )


def require_measurable(head: Table, evaluation: Table, fewest: int) -> None:
    """Raise unless every EVAL participant has rows of everything that HEAD teaches readers and heads."""
    people = np.unique(evaluation.participant).tolist()
    if len(people) < fewest:
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
            few = first_few(list(map(repr, new)), 4)
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


def choose_directions(
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
    if len(labels) != 2:
        return (), ""
    if len(np.unique(head.participant[views[0]])) < 2:
        return (), "HEAD has paired events of one participant, and shortcuts are learned of two or more"
    if stated is not None:
        return (Direction(*_among(stated, head.sources, labels)),), "stated"
    # FIT rows may have the labels of another task; they then say nothing about this one's.
    told = fit.label is not None and np.array_equal(np.unique(fit.label), labels)
    role = "FIT" if told and len(fit.sources) == 2 else "HEAD"
    return find_directions(parts[role].source, parts[role].label), role


def _among(stated: tuple[Any, Any], sources: NDArray[Any], labels: NDArray[Any]) -> tuple[Any, Any]:
    """Return a stated source and label as the table has them; they are compared as text."""
    chosen = []
    for what, value, there in zip(("source", "label"), stated, (sources, labels), strict=True):
        same = [entry for entry in there.tolist() if str(entry) == str(value)]
        if not same:
            names = ", ".join(map(str, there.tolist()))
            raise UsageError(Mention("association"), f" names the {what} {value!r}; the table has {names}.")
        chosen.append(same[0])
    return chosen[0], chosen[1]
