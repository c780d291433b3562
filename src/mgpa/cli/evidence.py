"""What pairs that a gate has not seen say about it, and when to doubt its rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._common.remote import Place
from ..errors import TableError

if TYPE_CHECKING:  # for commands that need neither, `mgpa --help` among them
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class GateEvidence:
    """Cross-validated coverage of gates of rank 1, 2, … on pairs they were not fitted on; ``by`` says how."""

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
        return f"{self.held_out:.1%} of contrast energy{one}, {self.by}"

    @property
    def hints(self) -> list[str]:
        """What speaks against the rank, a sentence each."""
        hints = []
        if self.rank > self.n_features / 3:
            hints.append(
                f"Hint: the gate has {self.rank} of {self.n_features} directions, which leaves little to be "
                "preserved. A smaller --rank keeps more of the embedding."
            )
        if self.n_contrasts < 5 * self.rank:
            hints.append(
                f"Hint: {self.n_contrasts} contrasts are few for {self.rank} directions. Add pairs, or pass "
                "a smaller --rank."
            )
        return hints


def gate_evidence(m: Any, table: Place, pairs: Place | None = None) -> GateEvidence | None:
    """Return what held-out pairs say about a map's gate, or None without a gate or with too few pairs.

    Parameters
    ----------
    m : CorrectionMap
        Just fitted.
    table, pairs : path or address; or None
        What it was fitted on.
    """
    import numpy as np

    from ..audit.pair_check import FOLDS, paired_views
    from ..gate import held_out_coverage
    from ..tables.fitting import FitRows

    if not m.info.gate_rank:
        return None
    rows = FitRows(table)
    if pairs is None and "pair_id" not in rows.columns:
        return None
    paired = paired_views(rows, pairs, m.coordinates, m.info.token_layout)
    if paired.X.shape[1] != m.n_features:
        raise TableError(f"{table} has {paired.X.shape[1]} features; the map was fitted on {m.n_features}.")
    first, second = paired.matched()
    people = None if paired.participant is None else paired.participant[first]
    if len(first if people is None else np.unique(people)) < FOLDS:
        return None
    curve = held_out_coverage((paired.X[second] - paired.X[first]) / m.scale, groups=people, n_splits=FOLDS)
    by = f"{FOLDS}-fold by {'pair' if people is None else 'participant'}"
    return GateEvidence(m.info.gate_rank, m.n_features, m.info.n_contrasts, curve, by)
