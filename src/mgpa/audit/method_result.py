"""The measurements of one method for all fits and participants, and metrics computed from them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._common.markup import facts_html
from ..errors import printable
from ..maps import MapInfo
from .bootstrap import (
    Statistic,
    contrast,
    curve_coefficients,
    curve_minimum,
    estimate,
    leave_one_out,
    optimism,
    point,
)
from .design import Design
from .draws import shares
from .estimates import Estimate
from .metrics import LINEAR, find_metric
from .ranks import FLIPPED, LEVEL, Chance, compare, permuted_between, permuted_mean, with_units_flipped
from .values import mean_size

Floats = NDArray[np.float64]
T = TypeVar("T")
K = TypeVar("K", bound="Kept")
P = ParamSpec("P")
#: Metrics shown in the repr.
REPR = ("S", "home", "away", "T_f", "RMSEP_home", "RMSEP_away", "M")


class Kept:
    """Mixin that caches in the object what :func:`once` computes; copies start with an empty cache."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_kept"}

    @cached_property
    def _kept(self) -> dict[tuple[Any, ...], Any]:
        return {}


def once(compute: Callable[Concatenate[K, P], T]) -> Callable[Concatenate[K, P], T]:
    """Cache a method or function of an object for every combination of its other arguments."""

    @wraps(compute)
    def kept(of: K, /, *arguments: P.args, **named: P.kwargs) -> T:
        key = (compute.__qualname__, *arguments, *named.items())
        if key not in of._kept:
            of._kept[key] = compute(of, *arguments, **named)
        return of._kept[key]  # type: ignore[no-any-return]

    return kept


@dataclass(frozen=True)
class MethodResult(Kept):
    """All measurements of one method; the first axis of all arrays is the fit.

    Attributes
    ----------
    participants, readers, directions, homes : tuples of str
        Names along the axes of the arrays.
    source_auroc : (F, P, R) array
        AUROC of each reader on each EVAL participant.
    movement : (F, P) array
    heads : dict of name to (F, P, D) array
        Scores of task heads: AUROC ("frozen" and "refitted" for each direction of transfer, "home" on the
        source of the head, "pooled" and "unseen" on each source), "_accuracy" and "_shift" at their
        threshold, and "recall" of each class; for numbers, "_bias", "_square" and "_relative" errors. NaN if
        the unit has no score.
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

    def of_each_repeat(self, metric: str) -> list[float]:
        """Return the metric for every division of the participants into folds."""
        statistic, values, sampling = self.sample(metric)
        n = len(values) // self.repeats
        parts = (values[r * n : (r + 1) * n] for r in range(self.repeats))
        return [estimate(part, statistic, **sampling, n_draws=2).value for part in parts]

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

    @once
    def sample(self, metric: str) -> tuple[Statistic, Floats, dict[str, Any]]:
        """Return the statistic of a metric, the values of units that have it, and bootstrap settings.

        The settings are ``strata``, ``leverage`` and ``widen`` of :func:`mgpa.audit.estimate`.
        """
        statistic, values = self.values(metric)
        flat = values.reshape(*values.shape[:2], -1)
        valid = np.asarray(~np.isnan(flat).any(axis=(0, 2)))
        strata = None if self.strata is None else self.strata[valid]
        leverage = 2.0 if self.compares_units(metric, valid) else 1.0
        if statistic == "max" and self.widen:  # the paper's S has no correction for the choice of reader
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
        """Whether units differ in their labels, so that the task score is an AUROC between them."""
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
        """Whether S is computed on units that travelled (:attr:`mgpa.audit.design.Design.within`)."""
        return self.design is None or self.design.within

    @property
    def heads_within(self) -> bool:
        """Whether the task is scored on units that travelled."""
        return self.design is None or self.design.heads_within

    @cached_property
    def reference(self) -> str:
        """The common reference source of the method's maps; empty without one."""
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
        """The mean AUROC of each reader over units with permuted sources, (F, draws, R)."""
        return exchanged_sources(self)

    @cached_property
    def S(self) -> float:
        """The mean AUROC of the best reader over units, averaged over fits."""
        return self.estimate("S").value

    @property
    def n_fits(self) -> int:
        """Number of fits."""
        return len(self.source_auroc)

    def values(self, metric: str) -> tuple[Statistic, Floats]:
        """Return the statistic of a metric and its values; NaN for units without values."""
        measure, values = find_metric(metric), self._measured(metric)
        if values is None:
            raise ValueError(f"{metric} was not measured for {self.name}: {measure.missing}")
        return measure.statistic, values

    @once
    def _measured(self, metric: str) -> Floats | None:
        """Return the values of a metric, or None if it was not measured on two units or more."""
        measure = find_metric(metric)
        values = measure.values(self)
        if values is not None:
            missing = np.isnan(values.reshape(*values.shape[:2], -1)).any(axis=(0, 2))
            values = None if self.n_units > 1 and np.sum(~missing) < 2 else values
        if values is not None and callable(measure.statistic) and values.ndim == 2:
            values = values[..., None]
        return values

    @property
    def n_units(self) -> int:
        """Number of EVAL units."""
        return len(self.participants)

    def __repr__(self) -> str:
        shown = (f"{name} {self.estimate(name)}" for name in REPR if self.has(name))
        return printable(
            f"<MethodResult {self.name!r}: {', '.join(shown)}; {len(self.participants)} participants>"
        )

    def _repr_html_(self) -> str:
        facts = {name: str(self.estimate(name)) for name in REPR if self.has(name)}
        return facts_html(self.name, facts | {"participants": str(len(self.participants))})

    def has(self, metric: str) -> bool:
        """Return whether a metric was measured."""
        return self._measured(metric) is not None

    def influence(self, metric: str) -> Floats:
        """Return the metric without each participant in turn, to show whether one drives the result."""
        statistic, values, sampling = self.sample(metric)
        return leave_one_out(values, statistic, sampling["strata"], sampling["leverage"])

    @once
    def estimate(self, metric: str) -> Estimate:
        """Return a metric with its interval over participants."""
        statistic, values, sampling = self.sample(metric)
        interval, measure = estimate(values, statistic, **sampling), find_metric(metric)
        share = measure.unit in ("AUROC", "balanced accuracy", "share")
        size = measure.better == "lower" and measure.unit != "bits"  # bits may fall below zero by chance
        low = 0.0 if share or size or metric == "M" else -np.inf
        low = -1.0 if measure.part_of == "shift_f" else low  # shifts in one direction have a sign
        low, high = max(interval.low, low), min(interval.high, 1.0 if share else np.inf)
        return replace(interval, low=low, high=high)

    @cached_property
    def floor_explains(self) -> bool:
        """Whether S is not clearly (by .01) above the AUROC of readers of the preserved part."""
        if self.floor_auroc is None:
            return False
        statistic, values, sampling = self.sample("S")
        _, floor, _ = self.sample("floor")
        return self.chance.excluded and contrast(values, floor, statistic, **sampling).low <= 0.01

    def reader_means(self) -> Floats:
        """Return the mean AUROC of each reader over participants, averaged over fits."""
        _, values, sampling = self.sample("S")
        return np.asarray(shares(sampling["strata"], values.shape[1]) @ values.mean(axis=0))

    def by_participant(self, metric: str) -> Floats:
        """Return a metric for each participant, averaged over fits; the mean over participants is the metric.

        For S, these are AUROCs of the best reader, minus the bias from choosing it. For the worst
        association, they are AUROCs at the association that is worst on average. If units are compared with
        each other, they are contributions to the AUROC. The sign of a bias or shift is relative to the mean.
        For root mean squared errors and R², the mean over participants differs from the metric.
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
        """Return (a, b, c) of the shortcut head's mean curve, its minimum, and the ξ of the minimum."""
        curve = curve_coefficients(self.sample("worst")[1]).mean(axis=(0, 1))
        lowest, xi = curve_minimum(curve)
        return curve, float(lowest), float(xi)

    def best_reader(self) -> str:
        """Return the name of the best reader, which determines S."""
        return self.readers[int(self.reader_means().argmax())]


def chance_level(result: MethodResult, metric: str, readers: list[int]) -> Chance:
    """Return the chance level of a metric of readers from permuted sources (:mod:`mgpa.audit.ranks`)."""
    # Repeated divisions score the same rows, so permutations must not be averaged over them: use the division
    # with the highest chance level.
    n = result.n_fits // result.repeats
    deals = [_chance_of(result, slice(r * n, (r + 1) * n), metric, readers) for r in range(result.repeats)]
    p, high = max(chance.p for chance in deals), max(chance.high for chance in deals)
    # The mean bias from choosing readers is subtracted from the level.
    return Chance(p, high if p <= LEVEL else max(high, result.estimate(metric).value))


def _chance_of(result: MethodResult, fits: slice, metric: str, readers: list[int]) -> Chance:
    """Return the chance level of some fits."""
    permuted = result.by_chance[fits][..., readers].max(axis=-1).mean(axis=0)
    if not result.within:  # the first draw has the measured values
        return compare(float(permuted[0]), permuted[1:], result.widen)
    statistic, values, sampling = result.sample(metric)
    # By default, maxima over readers are compared with maxima.
    measured = point(values[fits], "max" if result.widen else statistic, sampling["strata"])
    by_rows = compare(measured, permuted, result.widen)
    units = result.source_auroc[fits][:, result.travelled]
    flip = result.widen and units.shape[1] >= FLIPPED
    return with_units_flipped(by_rows, units[..., readers]) if flip else by_rows


def exchanged_sources(result: MethodResult) -> Floats:
    """Return the mean AUROC of each reader over units with permuted sources, (F, draws, R)."""
    by_fit: list[Any] = [[] for _ in range(result.n_fits)]
    for i, cell in zip(result.cell_fits, result.cells, strict=True):
        scores, codes, units = (cell[name] for name in ("source_scores", "eval_source", "eval_person"))
        everyone = cell["participants"].tolist()
        travellers = everyone if result.design is None else result.design.travellers
        rows = np.array([unit in travellers for unit in everyone])[units] == result.within
        if not rows.any():
            continue
        units, split = np.unique(units[rows], return_inverse=True)[1], len(by_fit[i])
        if result.within:
            areas = permuted_mean(scores[rows], codes[rows], units, split)
        else:
            areas = permuted_between(scores[rows], codes[rows], units, cell["eval_class"][rows], split)
        by_fit[i].append((areas, units.max() + 1))  # splits are weighted by their number of units
    parts = [zip(*fit, strict=True) for fit in by_fit]
    return np.stack([np.average(list(areas), axis=0, weights=list(sizes)) for areas, sizes in parts])
