"""What pairs that a gate has not seen say about it, and when to doubt its rank."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_ROWS = 20_000  # paired rows are few; should they be many, these will do
FOLDS = 5


@dataclass(frozen=True)
class GateEvidence:
    """Cross-validated coverage of gates of rank 1, 2, … on pairs they were not fitted on."""

    rank: int
    n_features: int
    n_contrasts: int
    curve: NDArray[np.float64]
    by: str

    @property
    def held_out(self) -> float:
        """Coverage at the fitted rank."""
        return float(self.curve[min(self.rank, len(self.curve)) - 1])

    def __str__(self) -> str:
        one = "" if self.rank == 1 else f" (rank 1: {self.curve[0]:.1%})"
        return f"{self.held_out:.1%} of contrast energy{one}, {FOLDS}-fold by {self.by}"

    @property
    def enough(self) -> int:
        """The last direction that holds, on held-out pairs, twice what a random one would."""
        curve = np.concatenate([[0.0], self.curve[: self.rank]])
        chance = (1 - curve[:-1]) / (self.n_features - np.arange(len(curve) - 1))
        shared = np.flatnonzero(np.diff(curve) > 2 * chance)
        return int(shared[-1]) + 1 if len(shared) else 0

    @property
    def hints(self) -> list[str]:
        """What speaks against the rank, a sentence each."""
        found = []
        if self.enough <= self.rank / 2:
            keep = "--rank 1" if self.enough == 0 else f"--rank {self.enough}"
            found.append(
                f"Hint: on pairs the gate has not seen, only {self.enough} of {self.rank} directions hold "
                f"clearly more than random ones; the others are noise of the pairs. Consider {keep}."
            )
        elif self.rank > self.n_features / 3:
            found.append(
                f"Hint: the gate has {self.rank} of {self.n_features} directions, which leaves little to be "
                "preserved. A smaller --rank keeps more of the embedding."
            )
        if self.n_contrasts < 5 * self.rank:
            found.append(
                f"Hint: {self.n_contrasts} contrasts are few for {self.rank} directions. Add pairs, or pass "
                "a smaller --rank."
            )
        return found


def gate_evidence(m: Any, path: Path) -> GateEvidence | None:
    """Return the evidence about a map's gate from the FIT pairs of a table, or None if there is none."""
    from ..gate import held_out_coverage
    from ..tables.files import open_table

    if not m.info.gate_rank:
        return None
    values, people = _contrasts(open_table(path))
    units = len(values) if people is None else len(np.unique(people))
    if units < FOLDS:
        return None
    curve = held_out_coverage(values / m.scale, groups=people, n_splits=FOLDS)
    by = "pair" if people is None else "participant"
    return GateEvidence(m.info.gate_rank, m.n_features, m.info.n_contrasts, curve, by)


def _contrasts(file: Any) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
    """Return the differences between paired FIT rows, and whose they are if the table says so."""
    from ..pairs import check_pair_id, is_paired
    from ..tables.rows import vectors

    if not {"source", "pair_id"} <= set(file.columns):
        return np.zeros((0, 1)), None
    columns = file.read_columns(*({"role", "pair_id"} & set(file.columns)))
    ids = check_pair_id(columns["pair_id"], file.n_rows)
    wanted = is_paired(ids)
    if "role" in columns:
        wanted &= np.char.upper(columns["role"].astype(str)) == "FIT"
    rows = np.flatnonzero(wanted)
    rows = rows[np.argsort(ids[rows], kind="stable")][:MAX_ROWS]  # whole pairs, but for the last
    table = file.read(np.sort(rows))
    values, people = [], []
    for two in combinations(table.sources, 2):
        part = table.take(np.isin(table.source, two))
        views = part.paired_views()
        if views is not None:
            X = vectors(part).astype(np.float64)
            values.append(X[views[1]] - X[views[0]])
            people.append(views[0] * 0 if part.participant is None else part.participant[views[0]])
    if not values:
        return np.zeros((0, 1)), None
    return np.concatenate(values), None if table.participant is None else np.concatenate(people)
