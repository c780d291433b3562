"""Find the design of a study: the sources and labels of each unit, and the comparisons they allow.

A unit is a value of the participant column: a participant, patient, sample or lot. In a **crossed** design,
every unit has every source, and scores are computed within units, as in the paper. In a **nested** design,
each unit has one source. Sources are then compared between units, within classes of the label, so that
reading the label does not count as reading the source. In a **mixed** design, some units travelled, and both
comparisons are reported.

Roles come from the table or rotate over folds of units. In each fold, different units are EVAL, HEAD and VAL,
and the rest are FIT; results include all units.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import ParameterError, TableError, first_few
from ..labels import is_paired
from ..maps import CorrectionMap
from ..tables.columns import ROLES, spoken
from ..tables.rows import person_digest, seen_people
from ..tables.table import Table

# With fewer EVAL units than FEW, the paper's percentile intervals are clearly too narrow; with fewer than
# TOO_FEW in a cell, no conclusion is drawn.
FEW = 12
TOO_FEW = 6
#: Minimum number of participants: one for fitting, one for readers, one for scoring.
FEWEST_PEOPLE = 3
# Numeric labels are classes if there are at most this number of distinct values.
MOST_CLASSES = 20
# From this number of distinct values on, labels are a quantity even if each participant has only one value.
FEWEST_NUMBERS = 6
# Numeric labels are compared within this number of parts of their range.
PARTS = 3

Kind = Literal["crossed", "nested", "mixed"]


@dataclass(frozen=True)
class Design:
    """The comparisons that the units of a table allow (:func:`find_design`).

    Attributes
    ----------
    kind : {"crossed", "nested", "mixed"}
        Whether all units, none, or some have several sources.
    unit : str
        The word for a unit: the name of the user's column, without "_id" or "No.".
    task : {"", "classification", "regression"}
        The kind of labels: none, classes or numbers.
    labels : {"", "within", "between"}
        Whether labels differ within units or only between units.
    units : dict of str to tuple of tuples
        The sources and the classes of every unit.
    cells : dict of (source, class) to int
        Number of units in each cell.
    heads : tuple
        Sources with units of every class; task heads are transferred between them.
    incomplete : int
        Number of units of a crossed design that lack a combination of source and class. They are scored on
        the other combinations.
    others : tuple of str
        Columns of the table without a meaning for an audit; one of them may be the label.
    """

    kind: Kind
    unit: str
    task: str
    labels: str
    units: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = field(repr=False)
    cells: dict[tuple[Any, Any], int]
    heads: tuple[Any, ...]
    incomplete: int = 0
    others: tuple[str, ...] = field(default=(), repr=False)

    @cached_property
    def within(self) -> bool:
        """Whether S is computed on units with several sources.

        Between units, S also contains differences between the units of two sources. In a mixed design, S is
        computed on units that travelled, if there are enough of them or if the others cannot be compared.
        """
        alone = self.alone
        if len(self.units) - len(alone) >= TOO_FEW or not alone:
            return len(alone) < len(self.units)
        seen = {(label, source) for source, classes in alone for label in classes}
        return len({label for label, _ in seen}) == len(seen)  # no class has two sources

    @cached_property
    def heads_within(self) -> bool:
        """Whether the task is scored on units that travelled (the majority, or those with all sources)."""
        return 2 * len(self.alone) < len(self.units) or not set(self.heads) <= {s for s, _ in self.alone}

    @cached_property
    def alone(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """The source and the classes of every unit with one source."""
        return [(sources[0], classes) for sources, classes in self.units.values() if len(sources) == 1]

    @cached_property
    def travellers(self) -> frozenset[str]:
        """The units with several sources."""
        return frozenset([unit for unit, (sources, _) in self.units.items() if len(sources) > 1])

    @cached_property
    def stratum(self) -> dict[str, str]:
        """The cell of each unit, for bootstraps and folds."""
        by_source, by_label = self.kind != "crossed", self.labels == "between"
        names: dict[Any, str] = {}
        for has in set(self.units.values()):
            parts = [has[0]] * by_source + [has[1]] * by_label
            names[has] = ", ".join(" and ".join(map(str, part)) for part in parts)
        return {unit: names[has] for unit, has in self.units.items()}

    def strata(self, units: Iterable[str]) -> NDArray[Any] | None:
        """Return the cells of units; None if there is only one cell."""
        if self.kind == "crossed" and self.labels != "between":
            return None
        return np.array([self.stratum[unit] for unit in units])

    @cached_property
    def sources(self) -> list[Any]:
        """The sources, in the order of the cells."""
        return list(dict.fromkeys(source for source, _ in self.cells))

    @cached_property
    def classes(self) -> list[Any]:
        """The classes of the label, in the order of the cells."""
        return list(dict.fromkeys(label for _, label in self.cells))

    @property
    def plural(self) -> str:
        """The plural of the unit's name."""
        return self.unit if self.unit.endswith("s") else f"{self.unit}s"

    @cached_property
    def sentence(self) -> str:
        """The design as a sentence."""
        n, many = len(self.units), self.plural
        alone = [source for source, _ in self.alone]
        counts = ", ".join(f"{source} {alone.count(source)}" for source in self.sources)
        within = " within classes of the label" if self.labels == "between" else ""
        if self.kind == "crossed":
            names = ", ".join(map(str, self.sources))
            return (
                f"Crossed design: all {n} {many} have every source ({names}), so sources are compared within "
                f"{many}."
            )
        if self.kind == "nested":
            return (
                f"Nested design: each of {n} {many} has one source ({counts}), so sources are compared "
                f"between {many}{within}."
            )
        return (
            f"Mixed design: {n - len(alone)} of {n} {many} have several sources, the rest one ({counts}). "
            "S is "
            + (
                "that of the former."
                if self.within
                else f"that of the latter, compared between {many}{within}."
            )
        )

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Sentences on imbalances and on the interpretation of comparisons between units."""
        lines = [
            f"No {self.unit} of source {source} has label {label}: {source} is compared with other sources "
            f"in the other classes only, and no task head uses {source}."
            for (source, label), n in self.cells.items()
            if n == 0 and self.kind != "crossed"
        ]
        if self.incomplete:
            lines.append(
                f"{self.incomplete} of {len(self.units)} {self.plural} "
                f"{'lacks' if self.incomplete == 1 else 'lack'} a combination of source and "
                "label; each is scored on the other combinations."
            )
        if self.kind != "crossed":
            name = "S_stayed" if self.within else "S"
            lines.append(
                f"{name} compares different {self.plural}, so it also reflects differences between the "
                f"{self.plural} of the sources (age, severity), even without an effect of the source itself."
            )
        if not self.task:
            has = f" (the table has: {first_few(self.others)})" if self.others else ""
            name_it = "; name its column label (--rename.NAME label)" if self.others else ""
            lines.append(f"No label column{has}: the cost to the task is not measured{name_it}.")
        return tuple(lines)

    def smallest_cell(self, units: Iterable[str]) -> tuple[str, int]:
        """Return the cell with the fewest of these units, and its number of units."""
        names, counts = np.unique([self.stratum[unit] for unit in units], return_counts=True)
        return str(names[counts.argmin()]), int(counts.min())


def pooled(designs: Sequence[Design]) -> Design:
    """Return the common design of several splits, or the design of all units."""
    first = designs[0]
    if all(design.units == first.units for design in designs):
        return first
    units = {unit: has for design in designs for unit, has in design.units.items()}
    cells = sum((Counter(design.cells) for design in designs), Counter())
    kind: Kind = first.kind if len({design.kind for design in designs}) == 1 else "mixed"
    return replace(first, kind=kind, units=units, cells=dict.fromkeys(first.cells, 0) | cells)


def find_design(table: Table, task: str | None = None) -> Design:
    """Return the design of a table.

    Parameters
    ----------
    table : Table
        A table with source and participant, and label for a task.
    task : {"classification", "regression"} or None
        The kind of labels. None: many distinct numbers that differ between units are a regression target.
    """
    if task not in (None, "classification", "regression"):
        raise ParameterError("task", task, "'classification', 'regression' or None")
    what, classes = _task_of(table, task)
    combined = {*zip(table.participant.tolist(), table.source.tolist(), classes.tolist(), strict=True)}
    units = _units_of(combined)
    sources, labels = table.sources.tolist(), np.unique(classes).tolist()
    counts = Counter((source, label) for _, source, label in combined)
    cells = {cell: counts[cell] for cell in itertools.product(sources, labels)}
    n_sources = [len(own) for own, _ in units.values()]
    kind: Kind = "mixed" if max(n_sources) > 1 else "nested"
    if min(n_sources) == len(sources):
        kind = "crossed"
    across = "" if table.label is None else "between"
    # Units may lack a few combinations; they are scored on the others.
    complete = len(labels) > 1 and len(combined) > sum(n_sources) * len(labels) / 2
    if (what == "classification" and complete) or (what == "regression" and kind == "crossed"):
        across = "within"
    gaps = 0
    if kind == "crossed" and across == "within" and what == "classification":
        filled = Counter(unit for unit, _, _ in combined)
        gaps = sum(n < len(cells) for n in filled.values())
    heads = tuple(source for source in sources if all(cells[source, label] for label in labels))
    unit = spoken(str(table.info.get("unit", "participant")))
    return Design(kind, unit, what, across, units, cells, heads, gaps, tuple(table.other))


def _task_of(table: Table, task: str | None) -> tuple[str, NDArray[Any]]:
    """Return the kind of labels and the class of each row; for numbers, the class is the tercile."""
    labels = table.label
    if labels is None:
        if task is not None:
            raise TableError(f"task is {task!r}, but the table has no column label.")
        return "", np.zeros(len(table), np.int64)
    what = task or ("regression" if are_numbers(labels, table.participant) else "classification")
    if what == "classification":
        return what, labels
    if labels.dtype.kind not in "iuf":
        raise TableError(f"task is 'regression', but labels are {labels.dtype}; expected numbers.")
    return what, label_parts(labels, table.participant)


def _units_of(combined: Iterable[tuple[str, Any, Any]]) -> dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Return the sources and the classes of every unit, all sorted."""
    has: dict[str, tuple[set[Any], set[Any]]] = defaultdict(lambda: (set(), set()))
    for unit, source, label in combined:
        has[unit][0].add(source)
        has[unit][1].add(label)
    return {unit: (_by_name(has[unit][0]), _by_name(has[unit][1])) for unit in sorted(has)}


def _by_name(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted(values, key=str))


def are_numbers(labels: NDArray[Any], units: NDArray[Any]) -> bool:
    """Return whether labels are a regression target: many distinct numbers, each with few units.

    A dozen samples with one number each are also a regression target, because classes need more than one
    unit.
    """
    if labels.dtype.kind not in "iuf":
        return False
    values, codes = np.unique(labels, return_inverse=True)
    names, who = np.unique(units, return_inverse=True)
    each = np.bincount(np.unique(codes.astype(np.int64) * len(names) + who) // len(names))
    if len(values) <= MOST_CLASSES:
        return len(values) >= FEWEST_NUMBERS and bool(np.median(each) < 2)
    return bool(np.median(each) < max(len(names) / 2, 2))


def label_parts(labels: NDArray[Any], units: NDArray[Any]) -> NDArray[np.int64]:
    """Return the tercile (0, 1, 2) of each row, from units sorted by their mean label."""
    names, who = np.unique(units, return_inverse=True)
    means = np.bincount(who, labels.astype(np.float64)) / np.bincount(who)
    edges = np.quantile(means, np.arange(1, PARTS) / PARTS) if len(names) >= 2 * PARTS else np.empty(0)
    return np.asarray(np.searchsorted(edges, means, side="right")[who], dtype=np.int64)


def units_with_pairs(table: Table) -> frozenset[str]:
    """Return the units with an event that two sources recorded."""
    if table.pair_id is None:
        return frozenset()
    rows = np.flatnonzero(is_paired(table.pair_id))
    _, codes, counts = np.unique(table.pair_id[rows], return_inverse=True, return_counts=True)
    return frozenset(np.unique(table.participant[rows[counts[codes] > 1]]).tolist())


def require_balanced(design: Design, folds: int) -> None:
    """Raise if a source has too few units for every fold to train and score its readers."""
    for source in design.sources:
        n = sum(source in sources for sources, _ in design.units.values())
        if n < folds:
            raise TableError(
                f"Source {source!r} has {n} {design.plural}; {folds} folds need one or more each. Add "
                f"{design.plural}, leave the source out, or give roles yourself."
            )
    if not any(
        sum(design.cells[source, label] > 0 for source in design.sources) > 1 for label in design.classes
    ):
        source, label = next(cell for cell, n in design.cells.items() if n == 0)
        raise TableError(
            f"Source and label are completely confounded (no {design.unit} of source {source!r} has label "
            f"{label!r}), so their effects cannot be separated. Drop the column label to audit the source."
        )


def require_measurable(design: Design, head: Table, evaluation: Table, fewest: int) -> None:
    """Raise unless HEAD has the sources and classes needed to score EVAL."""
    people = np.unique(evaluation.participant).tolist()
    if len(people) < fewest:
        raise TableError(
            f"EVAL has one {design.unit} ({people[0]!r}); an interval over {design.plural} needs two or "
            f"more. Give another {design.unit} the role EVAL; VAL may be empty."
        )
    # In a fold, rows of a class that is missing in HEAD are not scored.
    one_table = design.task == "classification" and fewest > 1
    labels = [("labels", head.label, evaluation.label)] if one_table else []
    for name, trained, scored in (("sources", head.source, evaluation.source), *labels):
        lacking = np.setdiff1d(scored, trained).tolist()
        if lacking:
            few = first_few(list(map(repr, lacking)), 4)
            raise ValueError(
                f"EVAL has {name} that are missing in HEAD: {few}; readers and heads could not learn them."
            )
    if design.task and len(np.unique(head.label)) < 2:
        raise TableError("label is the same in all HEAD rows, so the task cannot be scored; drop the column.")
    if design.kind != "crossed":
        require_balanced(design, 1)


def columns_only(table: Table) -> Table:
    """Return the table with only its first feature, to inspect columns without copying embeddings."""
    info = {k: v for k, v in table.info.items() if k != "feature_names"}
    return replace(table, X=table.X[..., :1], info=info)


def seen_by(
    m: CorrectionMap, people: NDArray[Any], digests: list[NDArray[Any]], scored: Iterable[str]
) -> tuple[str, ...] | None:
    """Return the scored participants who were in the fit of a map, recognised by their name or rows.

    ``people`` has the participant of each row. None if the map does not record its participants, or if the
    fit contains some of these participants but no scored ones. ``digests`` are hashes of the original rows
    and, if these differ, of rows in the audit's coordinates.
    """
    known = frozenset(m.info.people)
    seen = {name for name in np.unique(people).tolist() if person_digest(name) in known}
    for rows in digests:
        seen.update(seen_people(m.info.row_sample, rows, people))
    held_out = m.info.people and not seen
    return tuple(sorted(seen.intersection(scored))) or (() if held_out else None)


def duplicates(
    role: NDArray[Any], participant: NDArray[Any], digests: NDArray[Any]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the number of exact copies between every two roles, and the names of their participants.

    Such copies usually mean that a participant is registered twice ("p03 = p17").
    """
    counts, names = {}, []
    for earlier, later in itertools.combinations(ROLES, 2):
        first, second = np.flatnonzero(role == earlier), np.flatnonzero(role == later)
        copied = np.isin(digests[second], digests[first])
        if copied.any():
            counts[f"{later} rows are copies of {earlier} rows"] = int(copied.sum())
            owner = dict(zip(digests[first].tolist(), participant[first].tolist(), strict=True))
            pairs = zip(digests[second[copied]].tolist(), participant[second[copied]].tolist(), strict=True)
            names += [" = ".join(sorted((who, owner[digest]), reverse=True)) for digest, who in pairs]
    return counts, tuple(dict.fromkeys(names))
