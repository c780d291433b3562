"""The measurements of one method: every fit, every participant, and the metrics computed from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..maps import MapInfo
from .association import curve_at, curve_coefficients, curve_minimum
from .bootstrap import Estimate, contrast, estimate, leave_one_out
from .chance import Chance, compare, permuted_auroc
from .metrics import LINEAR, find_metric

Floats = NDArray[np.float64]
#: What is measured of a fit, by the names that its cell has for it; some of it not always.
MEASURED = ("source_auroc", "movement", "frozen", "refitted", "shortcut", "control")


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
    provenance : tuple of MapInfo
        Provenance of every fit's map; of pooled splits, that of the first.
    fitted_elsewhere : bool
        The map came fitted.
    fitted_on : tuple of str or None
        HEAD and EVAL participants that a fit is known to have seen; None: none known, and not all maps
        record whom they were fitted on.
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
    provenance: tuple[MapInfo, ...] = ()
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

        arrays = {key: np.stack([cell[key] for cell in cells]) for key in MEASURED if key in cells[0]}
        floor = None if floors[0] is None else np.stack([f["source_auroc"] for f in floors if f is not None])
        return cls(
            name=name,
            source_blind=fitted[0].map.source_blind,
            participants=tuple(cells[0]["participants"].tolist()),
            readers=tuple(cells[0]["readers"].tolist()),
            directions=tuple(cells[0].get("directions", np.array([])).tolist()),
            **arrays,
            floor_auroc=floor,
            facts=[fit.facts for fit in fitted],
            cells=cells,
            summary=fitted[0].map.summary(),
            provenance=tuple(fit.map.info for fit in fitted),
            fitted_elsewhere=fitted_elsewhere,
            fitted_on=fitted_on,
        )

    @classmethod
    def pool(cls, parts: Sequence[MethodResult]) -> MethodResult:
        """Pool the results of one method on different participants; fit i of all parts is fit i."""
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
            # A gate without evidence has no floor, and there may be folds of such.
            return None if any(a is None for a in arrays) else np.concatenate(arrays, axis=1)[:, order]

        return replace(
            first,
            participants=tuple(people[i] for i in order),
            facts=[fact for part in parts for fact in part.facts],
            cells=[cell for part in parts for cell in part.cells],
            fitted_elsewhere=any(part.fitted_elsewhere for part in parts),
            fitted_on=people_known(part.fitted_on for part in parts),
            **{name: join(name) for name in (*MEASURED, "floor_auroc")},
        )

    @cached_property
    def chance(self) -> Chance:
        """What S would be with labels swapped within participants, and the best reader taken again."""
        return compare(self.S, self._by_chance.max(axis=-1).mean(axis=0))

    @cached_property
    def linear_chance(self) -> Chance:
        """What L, the best of the linear readers, reaches by chance."""
        best = self.source_auroc[..., self._linear].mean(axis=1).max(axis=-1)
        return compare(float(best.mean()), self._by_chance[..., self._linear].max(axis=-1).mean(axis=0))

    @cached_property
    def beyond_linear(self) -> bool:
        """Whether other readers find more than linear ones, by more than .01 (95 %)."""
        return contrast(self.source_auroc, self.source_auroc[..., self._linear], "max").low > 0.01

    @property
    def _linear(self) -> list[int]:
        return [i for i, reader in enumerate(self.readers) if re.fullmatch(LINEAR, reader)]

    @cached_property
    def _by_chance(self) -> Floats:
        """What every reader reaches, on average over participants, with labels swapped, (F, draws, R)."""
        of_fits: list[Any] = [[] for _ in range(self.n_fits)]
        for i, cell in enumerate(self.cells):  # of splits that were put together, each has all fits
            drawn = permuted_auroc(cell["source_scores"], cell["eval_source"], cell["eval_person"])
            of_fits[i % self.n_fits].append(drawn)
        return np.stack([np.concatenate(parts, axis=1).mean(axis=1) for parts in of_fits])

    @cached_property
    def S(self) -> float:
        """The best reader's participant-mean AUROC, averaged over fits."""
        return self.estimate("S").value

    @property
    def n_fits(self) -> int:
        """Number of fits."""
        return len(self.source_auroc)

    def values(self, metric: str) -> tuple[str, Floats]:
        """Return the statistic of a metric ("mean", "max" or "worst") and the values it is taken of."""
        known = find_metric(metric)
        found = known.values(self)
        if found is None:
            raise ValueError(f"{metric} was not measured for {self.name}: {known.missing}")
        return known.statistic, found

    def has(self, metric: str) -> bool:
        """Return whether a metric was measured."""
        try:
            self.values(metric)
        except ValueError:
            return False
        return True

    def estimate(self, metric: str) -> Estimate:
        """Return a metric with its interval over participants."""
        if metric not in self._estimates:
            statistic, values = self.values(metric)
            self._estimates[metric] = estimate(values, statistic)
        return self._estimates[metric]

    @cached_property
    def _estimates(self) -> dict[str, Estimate]:
        return {}

    def influence(self, metric: str) -> Floats:
        """Return the metric without each participant in turn: does one participant drive the result?"""
        statistic, values = self.values(metric)
        return leave_one_out(values, statistic)

    @cached_property
    def floor_explains(self) -> bool:
        """Whether S is, to within .01, what readers reach from what the gate preserves alone."""
        if self.floor_auroc is None:
            return False
        return self.chance.excluded and contrast(self.source_auroc, self.floor_auroc, "max").low <= 0.01

    def reader_means(self) -> Floats:
        """Return each reader's participant-mean AUROC, averaged over fits."""
        return np.asarray(self.source_auroc.mean(axis=(0, 1)))

    def by_participant(self, metric: str) -> Floats:
        """Return a metric of every participant, averaged over fits; their mean is the metric itself.

        For S these are AUROCs of the reader that sets it, for the worst association AUROCs at the association
        that is worst on average.
        """
        statistic, values = self.values(metric)
        if statistic == "max":
            best = values.mean(axis=1).argmax(axis=-1)
            values = np.stack([fit[:, reader] for fit, reader in zip(values, best, strict=True)])
        elif statistic == "worst":
            curves = curve_coefficients(values)
            xi = curve_minimum(curves.mean(axis=1))[1]
            values = np.stack([curve_at(c, float(x)) for c, x in zip(curves, xi, strict=True)])
        return np.asarray(values.mean(axis=0))

    def association_curve(self, head: str = "shortcut") -> tuple[Floats, float, float]:
        """Return (a, b, c) of the mean curve over participants and fits, its minimum, and the ξ of that."""
        values = self.shortcut if head == "shortcut" else self.control
        if values is None:
            self.values("worst")  # raises, and says why
            raise ValueError(f"{head} was not measured for {self.name}.")
        curve = curve_coefficients(values).mean(axis=(0, 1))
        lowest, xi = curve_minimum(curve)
        return curve, float(lowest), float(xi)

    def best_reader(self) -> str:
        """Return the reader that sets S."""
        return self.readers[int(self.reader_means().argmax())]


def people_known(parts: Iterable[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """Return the participants in any of the parts; None if none is named and a part is unknown.

    Examples
    --------
    >>> people_known([("p1",), None]), people_known([(), None]), people_known([(), ()])
    (('p1',), None, ())
    """
    parts = list(parts)
    names = sorted({name for part in parts for name in part or ()})
    return tuple(names) if names or None not in parts else None
