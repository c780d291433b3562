"""The measurements of one method: every fit, every participant, and the metrics computed from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import printable
from ..maps import MapInfo
from .bootstrap import (
    Estimate,
    Statistic,
    contrast,
    curve_coefficients,
    curve_minimum,
    estimate,
    leave_one_out,
    optimism,
    shares,
)
from .chance import chance_level, exchanged_sources
from .design import Design, pooled
from .fits import Fit
from .information import of_floor
from .measure import present_only
from .metrics import LINEAR, find_metric, mean_size
from .ranks import (
    Chance,
    between_auroc,
)

Floats = NDArray[np.float64]
#: What is measured of a fit, by the names that its cell has for it; some of it not always.
#: What the repr shows.
REPR = ("S", "home", "away", "T_f", "RMSEP_home", "RMSEP_away", "M")
MEASURED = ("source_auroc", "movement", "shortcut", "control", "flips", "output_change")
#: What is measured of task heads: AUROC and accuracy of classes; errors of numbers. And what readers say
#: besides: of both views of an event, in bits, and who is who.
HEADS = (
    "recall",
    "twin",
    "identity",
    "information_q",
    "information_r",
    *(
        f"{heads}{what}"
        for heads in ("frozen", "refitted", "home", "pooled", "unseen")
        for what in ("", "_perfect", "_accuracy", "_shift", "_bias", "_square", "_relative")
    ),
)


@dataclass(frozen=True)
class MethodResult:
    """All measurements of one method; the first axis of every array is its fits.

    Attributes
    ----------
    participants, readers, directions, homes : tuples of str
        Names along the axes of the arrays.
    source_auroc : (F, P, R) array
        Each reader's AUROC on each EVAL participant.
    movement : (F, P) array
    heads : dict of name to (F, P, D) array
        Scores of task heads: AUROC ("frozen", "refitted" in every direction of transfer, "home" on the source
        of the head, "pooled" and "unseen" on every source), "_accuracy" and "_shift" at their threshold, and
        "recall" of every class; for numbers, "_bias", "_square" and "_relative" errors. NaN if the unit has
        no score.
    shortcut, control : (F, P, 3) arrays or None
        AUROC at association -1, 0 and 1. NaN if the unit has no paired events of both labels.
    flips, output_change : (F, P) arrays or None
        Differences between outputs of existing heads for one unit under two sources.
    floor_auroc : (F, P, R) array or None
        AUROC of readers of the part that the gate preserves.
    facts, cells : lists of dict
        Facts about every fit (movement of VAL rows, gate), and all other measurements.
    fitted_on : tuple of str or None
        EVAL participants who were in a fit. None if the map does not record its participants, or was fitted
        on HEAD participants.
    cell_fits : tuple of int
        The fit of every cell; pooled splits have one cell each.
    repeats : int
        Number of divisions of participants into folds; the fits of each division are consecutive.
    """

    name: str
    source_blind: bool
    participants: tuple[str, ...]
    readers: tuple[str, ...]
    directions: tuple[str, ...]
    homes: tuple[str, ...]
    source_auroc: Floats
    movement: Floats
    heads: dict[str, Floats] = field(default_factory=dict)
    shortcut: Floats | None = None
    control: Floats | None = None
    flips: Floats | None = None
    output_change: Floats | None = None
    floor_auroc: Floats | None = None
    facts: list[dict[str, Any]] = field(default_factory=list)
    cells: list[dict[str, Any]] = field(default_factory=list)
    summary: str = ""
    provenance: tuple[MapInfo, ...] = ()
    fitted_elsewhere: bool = False
    fitted_on: tuple[str, ...] | None = None
    design: Design | None = None
    widen: bool = False
    cell_fits: tuple[int, ...] = ()
    repeats: int = 1

    @classmethod
    def collect(
        cls,
        fits: list[Fit],
        cells: list[dict[str, Any]],
        floors: list[dict[str, Any] | None],
        shared: dict[str, Any] | None = None,
        **fields: Any,
    ) -> MethodResult:
        """Stack the cells of a method's fits; ``fields`` sets further fields.

        Bits are split at the gate of the fit or, without a gate, at another gate with the floor ``shared``.
        """
        gates = [floor or shared for floor in floors]
        cells = [cell | of_floor(cell, gate) for cell, gate in zip(cells, gates, strict=True)]
        arrays: dict[str, Any] = {
            key: np.stack([cell[key] for cell in cells]) for key in (*MEASURED, *HEADS) if key in cells[0]
        }
        heads = {key: arrays.pop(key) for key in HEADS if key in arrays}
        floor = None if floors[0] is None else np.stack([f["source_auroc"] for f in floors if f is not None])
        return cls(
            name=fits[0].method,
            source_blind=fits[0].map.source_blind,
            participants=tuple(cells[0]["participants"].tolist()),
            readers=tuple(cells[0]["readers"].tolist()),
            directions=tuple(cells[0].get("directions", np.array([])).tolist()),
            homes=tuple(cells[0].get("homes", np.array([])).tolist()),
            **arrays,
            heads=heads,
            floor_auroc=floor,
            facts=[fit.facts for fit in fits],
            cells=cells,
            cell_fits=tuple(range(len(cells))),
            summary=replace(fits[0].map, info=described(fits[0])).summary(),
            provenance=tuple(map(described, fits)),
            fitted_elsewhere=any(fit.came_fitted for fit in fits),
            **fields,
        )

    @classmethod
    def pool(cls, parts: Sequence[MethodResult]) -> MethodResult:
        """Pool the results of one method on different participants; fit i of all parts is fit i."""
        first = parts[0]
        for name in ("readers", "directions", "n_fits"):
            if any(getattr(part, name) != getattr(first, name) for part in parts):
                raise ValueError(
                    f"The splits of {first.name} differ in {name}; one has {getattr(first, name)}."
                )
        people = [person for part in parts for person in part.participants]
        if len(set(people)) != len(people):
            twice = sorted({person for person in people if people.count(person) > 1})
            raise ValueError(f"Participants are evaluated in more than one split: {', '.join(twice[:5])}.")
        order = np.argsort(people)  # as text, which the bootstrap's draws go by

        def join(arrays: list[Any]) -> Any:
            # A gate without evidence has no floor, and there may be folds of such.
            return None if any(a is None for a in arrays) else np.concatenate(arrays, axis=1)[:, order]

        whole = replace(
            first,
            participants=tuple(people[i] for i in order),
            facts=[fact for part in parts for fact in part.facts],
            cells=[cell for part in parts for cell in part.cells],
            fitted_elsewhere=any(part.fitted_elsewhere for part in parts),
            fitted_on=people_known(part.fitted_on for part in parts),
            design=None if first.design is None else pooled([part.design for part in parts if part.design]),
            heads={
                name: join([part.heads[name] for part in parts])
                for name in first.heads
                if all(name in part.heads for part in parts)
            },
            cell_fits=tuple(i for part in parts for i in part.cell_fits),
            **{name: join([getattr(part, name) for part in parts]) for name in (*MEASURED, "floor_auroc")},
        )
        return whole._rescaled(np.concatenate([part._perfect for part in parts])[order])._heads_rescaled()

    @classmethod
    def repeat(cls, deals: Sequence[MethodResult]) -> MethodResult:
        """Return the results of several divisions of the same participants into folds as further fits."""
        first, n = deals[0], deals[0].n_fits
        shared = [name for name in first.heads if all(name in deal.heads for deal in deals)]

        def stack(arrays: list[Any]) -> Any:
            return None if any(a is None for a in arrays) else np.concatenate(arrays)

        return replace(
            first,
            facts=[fact for deal in deals for fact in deal.facts],
            cells=[cell for deal in deals for cell in deal.cells],
            cell_fits=tuple(i + r * n for r, deal in enumerate(deals) for i in deal.cell_fits),
            fitted_on=people_known(deal.fitted_on for deal in deals),
            heads={name: stack([deal.heads[name] for deal in deals]) for name in shared},
            repeats=len(deals),
            **{name: stack([getattr(deal, name) for deal in deals]) for name in (*MEASURED, "floor_auroc")},
        )

    def of_each_repeat(self, metric: str) -> list[float]:
        """Return the metric for every division of the participants into folds."""
        statistic, values, sampling = self.sample(metric)
        n = len(values) // self.repeats
        parts = (values[r * n : (r + 1) * n] for r in range(self.repeats))
        return [estimate(part, statistic, **sampling, n_draws=2).value for part in parts]

    @property
    def _perfect(self) -> Floats:
        """The values of a perfect reader for every unit; in one split, the mean over cells is 1."""
        if self.travelled.all():
            return np.ones(len(self.participants))
        cell = self.cells[0]
        codes, units, classes = (cell[f"eval_{name}"] for name in ("source", "person", "class"))
        right = codes[:, None] if cell["source_scores"].ndim == 2 else np.eye(codes.max() + 1)[codes][:, None]
        alone, values = ~self.travelled[units], np.ones(len(self.participants))
        compared, source = present_only(right[alone], codes[alone])
        between = between_auroc(compared, source, units[alone], classes[alone])[:, 0]
        values[: len(between)] = np.where(self.travelled[: len(between)], 1.0, between)
        return values

    def _rescaled(self, perfect: Floats) -> MethodResult:
        """Return pooled splits, rescaled so that an AUROC between units has the maximum 1.

        With three or more sources, units of a source with many units have larger weights, which differ
        between splits.
        """
        alone = ~self.travelled & ~np.isnan(perfect)
        if not alone.any():
            return self
        strata = None if self.strata is None else self.strata[alone]
        scale = np.where(self.travelled, 1.0, shares(strata, alone.sum()) @ perfect[alone])[:, None]
        floor = None if self.floor_auroc is None else self.floor_auroc / scale
        return replace(self, source_auroc=self.source_auroc / scale, floor_auroc=floor)

    def _heads_rescaled(self) -> MethodResult:
        """Return pooled splits, rescaled so that an AUROC of heads between units has the maximum 1."""
        heads = dict(self.heads)
        for name in [name for name in heads if f"{name}_perfect" in heads]:
            # A unit is scored in the directions that lead to its own source.
            ideal = heads[f"{name}_perfect"]
            present = ~np.isnan(ideal)
            with np.errstate(invalid="ignore"):
                perfect = np.where(present, ideal, 0.0).sum(axis=(0, 2)) / present.sum(axis=(0, 2))
            valid = ~np.isnan(perfect)
            if valid.any():
                strata = None if self.strata is None else self.strata[valid]
                heads[name] = heads[name] / (shares(strata, valid.sum()) @ perfect[valid])
        return replace(self, heads=heads)

    @cached_property
    def travelled(self) -> NDArray[np.bool_]:
        """Which units have several sources."""
        if self.design is None:
            return np.ones(len(self.participants), bool)
        return np.array([unit in self.design.travellers for unit in self.participants])

    @cached_property
    def strata(self) -> NDArray[Any] | None:
        """The cell of every unit; cells have equal weights. None if there is one cell."""
        return None if self.design is None else self.design.strata(self.participants)

    def sample(self, metric: str) -> tuple[Statistic, Floats, dict[str, Any]]:
        """Return the statistic of a metric, the values of units that have it, and settings of the bootstrap.

        The settings are ``strata``, ``leverage`` and ``widen`` of :func:`mgpa.audit.estimate`.
        """
        statistic, values = self.values(metric)
        flat = values.reshape(*values.shape[:2], -1)
        valid = np.asarray(~np.isnan(flat).any(axis=(0, 2)))
        strata = None if self.strata is None else self.strata[valid]
        leverage = 2.0 if self.compares_units(metric, valid) else 1.0
        if statistic == "max" and self.widen:  # the paper's S is what its reader has on the same participants
            statistic = "best"
        return statistic, values[:, valid], {"strata": strata, "leverage": leverage, "widen": self.widen}

    def compares_units(self, metric: str, units: NDArray[Any]) -> bool:
        """Return whether a metric compares these units with each other.

        Their values are then contributions to one AUROC, which may exceed 1.
        """
        compares = find_metric(metric).compares
        if compares == "labels":
            return self.labels_between
        return compares == "sources" and not self.travelled[units].any()

    @property
    def labels_between(self) -> bool:
        """Whether units differ in their labels, so that the task is an AUROC between them."""
        return self.design is not None and self.design.labels == "between"

    @cached_property
    def chance(self) -> Chance:
        """The chance level of S: the best reader of every permutation."""
        return chance_level(self, "S", list(range(len(self.readers))))

    @cached_property
    def linear_chance(self) -> Chance:
        """The chance level of L, the best linear reader."""
        return chance_level(self, "L", self._linear)

    @property
    def within(self) -> bool:
        """Whether S is that of units that travelled (:attr:`mgpa.audit.design.Design.within`)."""
        return self.design is None or self.design.within

    @property
    def heads_within(self) -> bool:
        """Whether the task is scored on units that travelled."""
        return self.design is None or self.design.heads_within

    @cached_property
    def reference(self) -> str:
        """The source to which all maps of the method map rows, if they name one; else empty."""
        named = {info.reference or str(info.parameters.get("reference") or "") for info in self.provenance}
        return named.pop() if len(named) == 1 else ""

    def directions_of(self, heads: str) -> tuple[str, ...]:
        """Return the names along the last axis of measurements of heads."""
        kind = heads.partition("_")[0]
        if kind in ("pooled", "unseen") and self.design is not None:
            return tuple(map(str, self.design.heads))
        if kind == "recall" and self.design is not None:
            return tuple(map(str, self.design.classes))
        return self.homes if kind == "home" else self.directions

    @cached_property
    def beyond_linear(self) -> bool:
        """Whether nonlinear readers exceed linear readers by more than .01 (95 %)."""
        statistic, values, sampling = self.sample("S")
        return contrast(values, values[..., self._linear], statistic, **sampling).low > 0.01

    @property
    def _linear(self) -> list[int]:
        return [i for i, reader in enumerate(self.readers) if re.fullmatch(LINEAR, reader)]

    @cached_property
    def by_chance(self) -> Floats:
        """The mean AUROC of every reader over units with permuted sources, (F, draws, R)."""
        return exchanged_sources(self)

    @cached_property
    def S(self) -> float:
        """The best reader's mean AUROC over units, averaged over fits."""
        return self.estimate("S").value

    @property
    def n_fits(self) -> int:
        """Number of fits."""
        return len(self.source_auroc)

    def values(self, metric: str) -> tuple[Statistic, Floats]:
        """Return the statistic of a metric and its values; NaN for units without any."""
        measure, values = find_metric(metric), self._measured(metric)
        if values is None:
            raise ValueError(f"{metric} was not measured for {self.name}: {measure.missing}")
        return measure.statistic, values

    def _measured(self, metric: str) -> Floats | None:
        """Return the values of a metric, or None if it was not measured on two units or more."""
        if metric not in self._values:
            measure = find_metric(metric)
            values = measure.values(self)
            if values is not None:
                missing = np.isnan(values.reshape(*values.shape[:2], -1)).any(axis=(0, 2))
                values = None if self.n_units > 1 and np.sum(~missing) < 2 else values
            if values is not None and callable(measure.statistic) and values.ndim == 2:
                values = values[..., None]
            self._values[metric] = values
        return self._values[metric]

    @cached_property
    def _values(self) -> dict[str, Floats | None]:
        return {}

    @property
    def n_units(self) -> int:
        """Number of EVAL units."""
        return len(self.participants)

    def __repr__(self) -> str:
        shown = (f"{name} {self.estimate(name)}" for name in REPR if self.has(name))
        return printable(
            f"<MethodResult {self.name!r}: {', '.join(shown)}; {len(self.participants)} participants>"
        )

    def has(self, metric: str) -> bool:
        """Return whether a metric was measured."""
        return self._measured(metric) is not None

    def influence(self, metric: str) -> Floats:
        """Return the metric without each participant in turn, to show whether one drives the result."""
        statistic, values, sampling = self.sample(metric)
        return leave_one_out(values, statistic, sampling["strata"], sampling["leverage"])

    def estimate(self, metric: str) -> Estimate:
        """Return a metric with its interval over participants."""
        if metric not in self._estimates:
            statistic, values, sampling = self.sample(metric)
            interval, measure = estimate(values, statistic, **sampling), find_metric(metric)
            share = measure.unit in ("AUROC", "balanced accuracy", "share")
            low = 0.0 if share or measure.better == "lower" or metric == "M" else -np.inf
            low, high = max(interval.low, low), min(interval.high, 1.0 if share else np.inf)
            self._estimates[metric] = replace(interval, low=low, high=high)
        return self._estimates[metric]

    @cached_property
    def _estimates(self) -> dict[str, Estimate]:
        return {}

    @cached_property
    def floor_explains(self) -> bool:
        """Whether S is within .01 of the floor, the AUROC of readers of the preserved part."""
        if self.floor_auroc is None:
            return False
        statistic, values, sampling = self.sample("S")
        _, floor, _ = self.sample("floor")
        return self.chance.excluded and contrast(values, floor, statistic, **sampling).low <= 0.01

    def reader_means(self) -> Floats:
        """Return each reader's participant-mean AUROC, averaged over fits."""
        _, values, sampling = self.sample("S")
        return np.asarray(shares(sampling["strata"], values.shape[1]) @ values.mean(axis=0))

    def by_participant(self, metric: str) -> Floats:
        """Return a metric of every participant, averaged over fits; their mean is the metric itself.

        For S, these are AUROCs of the best reader, minus the bias from choosing it. For the worst
        association, they are AUROCs at the association that is worst on average. If units are compared with
        each other, they are contributions to the AUROC. The sign of a bias or shift is relative to the mean.
        Root mean squared errors and R² do not average to the metric.
        """
        statistic, values = self.values(metric)
        if statistic is mean_size:
            share = shares(self.strata, values.shape[1])
            values = (values * np.sign(np.einsum("p,fpk->fk", share, values))[:, None]).mean(axis=-1)
        elif callable(statistic):
            return np.asarray(statistic(values).mean(axis=0))
        if statistic == "max":
            _, present, sampling = self.sample(metric)
            best = np.einsum("p,fpr->fr", shares(sampling["strata"], present.shape[1]), present).argmax(
                axis=-1
            )
            values = np.stack([fit[:, reader] for fit, reader in zip(values, best, strict=True)])
            if self.widen:
                values = values - optimism(present, sampling["strata"], sampling["leverage"])
        elif statistic == "worst":
            curves = curve_coefficients(values)
            xi = curve_minimum(np.nanmean(curves, axis=1))[1]
            values = np.stack([np.polyval(c.T, x) for c, x in zip(curves, xi, strict=True)])
        return np.asarray(values.mean(axis=0))

    def association_curve(self) -> tuple[Floats, float, float]:
        """Return (a, b, c) of the shortcut head's mean curve, its minimum, and the ξ of that."""
        curve = curve_coefficients(self.sample("worst")[1]).mean(axis=(0, 1))
        lowest, xi = curve_minimum(curve)
        return curve, float(lowest), float(xi)

    def best_reader(self) -> str:
        """Return the best reader, whose AUROC is S."""
        return self.readers[int(self.reader_means().argmax())]


def described(fit: Fit) -> MapInfo:
    """Return the provenance of the map of a fit, with the share of contrast energy inside its gate.

    For a gate that was not fitted on contrasts, the measured coverage is used.
    """
    covered, info = fit.facts.get("contrast_coverage"), fit.map.info
    if info.gate_energy is not None or covered is None:
        return info  # type: ignore[no-any-return]
    return replace(info, gate_energy=float(covered))  # type: ignore[no-any-return]


def people_known(parts: Iterable[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """Return the participants of all parts; None if some are unknown and none is named."""
    parts = list(parts)
    names = sorted({name for part in parts for name in part or ()})
    return tuple(names) if names or None not in parts else None
