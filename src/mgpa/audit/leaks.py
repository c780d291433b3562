"""Leaks between those who fit and those who judge: people a map has seen, and rows in two roles."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..maps import CorrectionMap
from ..tables.columns import ROLES
from ..tables.rows import person_digest
from ..tables.seen import row_digests, seen_people
from ..tables.table import Table


@dataclass(frozen=True)
class Judges:
    """HEAD and EVAL rows by their content, and whose they are."""

    participant: NDArray[Any]
    digests: tuple[NDArray[np.uint64], ...]

    @classmethod
    def of(cls, table: Table, rows: Table) -> Judges:
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


def duplicates(table: Table) -> dict[str, int]:
    """Return how many rows of a role are exact copies of rows of another, by both roles' names."""
    digests = {role: row_digests(table.rows(role).X) for role in ROLES}
    return {
        f"{later} rows are copies of {earlier} rows": count
        for earlier, later in itertools.combinations(ROLES, 2)
        if (count := int(np.isin(digests[later], digests[earlier]).sum()))
    }
