"""One method, measured: what every fit of it did to every participant, and the metrics made of that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .bootstrap import Estimate, estimate, leave_one_out

Floats = NDArray[np.float64]

#: What is measured: name, what it means, and whether less is better.
METRICS = {
    "S": ("source accessibility: best reader's AUROC", True),
    "T_f": ("frozen task heads: AUROC across sources", False),
    "T_r": ("refitted task heads: AUROC across sources", False),
    "M": ("movement relative to the embedding", True),
    "worst": ("shortcut head at its worst association: AUROC", False),
    "control": ("control head without association: AUROC", False),
}
#: S of some readers only, by a pattern of their names: linear ones, and those of the token mean.
PARTS = {"L": r"(.* )?(whitened_)?linear(_raw|_standardized)?", "S_mean": r"mean .*"}


@dataclass(frozen=True)
class MethodResult:
    """All measurements of one method; the first axis of every array is its fits.

    Attributes
    ----------
    name : str
    participants, readers, directions : tuples of str
        What the axes of the arrays stand for.
    source_auroc : (F, P, R) array
        Each reader's AUROC on each EVAL participant.
    frozen, refitted : (F, P, D) arrays or None
        Task AUROC for every direction of transfer between sources.
    movement : (F, P) array
    shortcut, control : (F, P, 3) arrays or None
        AUROC at association -1, 0 and 1.
    floor_auroc : (F, P, R) array or None
        Readers of what the gate preserves.
    facts : list of dict
        Per fit: validation movement, stage movement, gate spectrum and coverage, drift.
    cells : list of dict
        Per fit: everything else that was measured.
    fitted_elsewhere : bool
        The map came fitted.
    fitted_on : tuple of str or None
        HEAD and EVAL participants that it was fitted on; None if the map does not say.
    """

    name: str
    source_blind: bool
    participants: tuple[str, ...]
    readers: tuple[str, ...]
    directions: tuple[str, ...]
    source_auroc: Floats
    movement: Floats
    frozen: Floats | None = None
    refitted: Floats | None = None
    shortcut: Floats | None = None
    control: Floats | None = None
    floor_auroc: Floats | None = None
    facts: list[dict[str, Any]] = field(default_factory=list)
    cells: list[dict[str, Any]] = field(default_factory=list)
    summary: str = ""
    fitted_elsewhere: bool = False
    fitted_on: tuple[str, ...] | None = None

    @classmethod
    def collect(
        cls,
        name: str,
        fitted: list[Any],
        cells: list[dict[str, Any]],
        floors: list[dict[str, Any] | None],
        fitted_elsewhere: bool = False,
        fitted_on: tuple[str, ...] | None = None,
    ) -> MethodResult:
        """Stack the cells of a method's fits."""

        def stack(key: str) -> Floats | None:
            return np.stack([cell[key] for cell in cells]) if key in cells[0] else None

        floor = None if floors[0] is None else np.stack([f["source_auroc"] for f in floors if f is not None])
        return cls(
            name=name,
            source_blind=fitted[0].map.source_blind,
            participants=tuple(cells[0]["participants"].tolist()),
            readers=tuple(cells[0]["readers"].tolist()),
            directions=tuple(cells[0].get("directions", np.array([])).tolist()),
            source_auroc=np.stack([cell["source_auroc"] for cell in cells]),
            movement=np.stack([cell["movement"] for cell in cells]),
            frozen=stack("frozen"),
            refitted=stack("refitted"),
            shortcut=stack("shortcut"),
            control=stack("control"),
            floor_auroc=floor,
            facts=[fit.facts for fit in fitted],
            cells=cells,
            summary=fitted[0].map.summary(),
            fitted_elsewhere=fitted_elsewhere,
            fitted_on=fitted_on,
        )

    @classmethod
    def pool(cls, parts: Sequence[MethodResult]) -> MethodResult:
        """Put together the results of one method on different people; fit i of all parts is fit i."""
        first = parts[0]
        for other in parts[1:]:
            for name in ("readers", "directions", "n_fits"):
                if getattr(other, name) != getattr(first, name):
                    raise ValueError(
                        f"{first.name} has {name} {getattr(first, name)} in one split and "
                        f"{getattr(other, name)} in another."
                    )
        people = [person for part in parts for person in part.participants]
        if len(set(people)) != len(people):
            twice = sorted({person for person in people if people.count(person) > 1})
            raise ValueError(f"Participants are evaluated in more than one split: {', '.join(twice[:5])}.")
        order = np.argsort(people)  # as text, which the bootstrap's draws go by

        def join(name: str) -> Any:
            arrays = [getattr(part, name) for part in parts]
            return None if arrays[0] is None else np.concatenate(arrays, axis=1)[:, order]

        arrays = ("source_auroc", "movement", "frozen", "refitted", "shortcut", "control", "floor_auroc")
        return replace(
            first,
            participants=tuple(people[i] for i in order),
            facts=[fact for part in parts for fact in part.facts],
            cells=[cell for part in parts for cell in part.cells],
            **{name: join(name) for name in arrays},
        )

    @property
    def n_fits(self) -> int:
        """Number of fits."""
        return len(self.source_auroc)

    def values(self, metric: str) -> tuple[str, Floats]:
        """Return the statistic of a metric ("mean", "max" or "worst") and the values it is taken of."""
        found: tuple[str, Floats | None]
        if metric == "S":
            found = "max", self.source_auroc
        elif metric in PARTS:
            chosen = [i for i, reader in enumerate(self.readers) if re.fullmatch(PARTS[metric], reader)]
            found = "max", self.source_auroc[..., chosen] if chosen else None
        elif metric[:4] in ("T_f ", "T_r ") and metric[4:] in self.directions:
            values = self.frozen if metric.startswith("T_f") else self.refitted
            at = self.directions.index(metric[4:])
            found = "mean", None if values is None else values[..., at]
        elif metric == "floor":
            found = "max", self.floor_auroc
        elif metric == "M":
            found = "mean", self.movement
        elif metric in ("T_f", "T_r"):
            values = self.frozen if metric == "T_f" else self.refitted
            found = "mean", None if values is None else values.mean(axis=2)
        elif metric == "worst":
            found = "worst", self.shortcut
        elif metric == "control":
            found = "mean", None if self.control is None else self.control[..., 1]
        elif metric in ("reversed", "independent", "aligned"):
            i = ("reversed", "independent", "aligned").index(metric)
            found = "mean", None if self.shortcut is None else self.shortcut[..., i]
        else:
            raise ValueError(f"There is no metric {metric!r}; known: {', '.join([*METRICS, 'floor'])}.")
        statistic, array = found
        if array is None:
            raise ValueError(f"{metric} was not measured for {self.name}: {_why(metric)}")
        return statistic, array

    def has(self, metric: str) -> bool:
        """Return whether a metric was measured."""
        try:
            self.values(metric)
        except ValueError:
            return False
        return True

    def estimate(self, metric: str) -> Estimate:
        """Return a metric with its interval over participants."""
        statistic, values = self.values(metric)
        return estimate(values, statistic)

    def influence(self, metric: str) -> Floats:
        """Return the metric without each participant in turn."""
        statistic, values = self.values(metric)
        return leave_one_out(values, statistic)

    def reader_means(self) -> Floats:
        """Return each reader's participant-mean AUROC, averaged over fits."""
        return np.asarray(self.source_auroc.mean(axis=(0, 1)))

    def best_reader(self) -> str:
        """Return the reader that sets S."""
        return self.readers[int(self.reader_means().argmax())]


def _why(metric: str) -> str:
    if metric in ("worst", "control", "reversed", "independent", "aligned"):
        return (
            "association shift needs paired events of two sources and two classes in HEAD and in EVAL, and "
            "two HEAD participants or more."
        )
    if metric in PARTS:
        return "its bank has no such readers."
    if metric == "floor":
        return "only methods with a gate preserve something by design, and floor=False leaves it out."
    return "the table has no labels."
