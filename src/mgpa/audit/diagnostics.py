"""What a reviewer would ask: what fills the embedding, what is confounded, are the readers calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats.contingency import crosstab

Floats = NDArray[np.float64]

#: Cramér's V below which source and task are said to show no association.
UNASSOCIATED = 0.1


@dataclass(frozen=True)
class Confounding:
    """How far the source goes together with the task and with the people in the fitting rows.

    Attributes
    ----------
    source_label : float or None
        Cramér's V of source and task, corrected for chance: 0 independent, 1 one determines the other.
    nested_participants : int
        Participants seen by one source only: their differences cannot be told from the device's.
    n_participants : int
        All of them.
    counts : dict
        Rows of each source (keys) and label (inner keys).
    """

    source_label: float | None
    nested_participants: int
    n_participants: int
    counts: dict[str, dict[str, int]]

    def sentences(self) -> list[str]:
        """Return what follows, in words."""
        lines = []
        if self.source_label is not None:
            strength = (
                "no" if self.source_label < UNASSOCIATED else "some" if self.source_label < 0.4 else "strong"
            )
            text = f"Source and task show {strength} association in the fitting rows"
            text += f" (Cramér's V {self.source_label:.2f})"
            if self.source_label >= UNASSOCIATED:
                text += ": methods that erase whatever predicts the source remove task with it"
            lines.append(f"{text}.")
        if self.nested_participants:
            lines.append(
                f"{self.nested_participants} of {self.n_participants} fitting participants were seen by one "
                "source only: without pairs, who they are cannot be told from how they were measured."
            )
        return lines


def confounding(source: Any, participant: Any, label: Any = None) -> Confounding:
    """Return how source, task and people go together.

    Examples
    --------
    >>> confounding(["a", "a", "b", "b"], ["p", "q", "p", "q"], [0, 1, 0, 1]).source_label
    0.0
    """
    source, participant = np.asarray(source).astype(str), np.asarray(participant).astype(str)
    counts: dict[str, dict[str, int]] = {}
    v = None
    if label is not None:
        (sources, labels), table = crosstab(source, np.asarray(label).astype(str))
        counts = {name: dict(zip(labels.tolist(), line.tolist(), strict=True))
                  for name, line in zip(sources.tolist(), table, strict=True)}  # fmt: skip
        v = cramers_v(table.astype(np.float64))
    people = crosstab(source, participant).count
    nested = int(((people > 0).sum(axis=0) == 1).sum())
    return Confounding(v, nested, people.shape[1], counts)


def cramers_v(table: Floats) -> float:
    """Return Cramér's V of a contingency table, with what chance alone gives taken off (Bergsma 2013)."""
    n = table.sum()
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    if min(table.shape) == 1 or n < 2:
        return 0.0
    df = np.array(table.shape) - 1
    chance = df.prod() / (n - 1)
    excess = (np.square(table - expected) / expected).sum() / n - chance
    largest = (df - df**2 / (n - 1)).min()
    return float(np.sqrt(np.clip(excess / largest, 0.0, 1.0))) if largest > 0 else 0.0
