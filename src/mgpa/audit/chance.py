"""The chance level of a method's S: its units and readers (the permutations are in ``ranks``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .bootstrap import point
from .ranks import FLIPPED, LEVEL, Chance, compare, permuted_between, permuted_mean, with_units_flipped

if TYPE_CHECKING:
    from .method_result import MethodResult

Floats = NDArray[np.float64]


def chance_level(result: MethodResult, metric: str, readers: list[int]) -> Chance:
    """Return the chance level of a metric of readers from permuted sources (:mod:`mgpa.audit.ranks`)."""
    # Repeated deals score the same rows, so that their permutations may not be averaged: the deal counts
    # in which chance reaches furthest.
    n = result.n_fits // result.repeats
    deals = [_chance_of(result, slice(r * n, (r + 1) * n), metric, readers) for r in range(result.repeats)]
    p, high = max(chance.p for chance in deals), max(chance.high for chance in deals)
    # What luck adds is taken off the level on average: of few units it can still reach what was measured.
    return Chance(p, high if p <= LEVEL else max(high, result.estimate(metric).value))


def _chance_of(result: MethodResult, fits: slice, metric: str, readers: list[int]) -> Chance:
    """Return the chance level of some fits."""
    permuted = result.by_chance[fits][..., readers].max(axis=-1).mean(axis=0)
    if not result.within:  # the first draw is what was measured
        return compare(float(permuted[0]), permuted[1:], result.widen)
    statistic, values, sampling = result.sample(metric)
    # By the default rules largest values are compared with largest values.
    measured = point(values[fits], "max" if result.widen else statistic, sampling["strata"])
    by_rows = compare(measured, permuted, result.widen)
    units = result.source_auroc[fits][:, result.travelled]
    flip = result.widen and units.shape[1] >= FLIPPED
    return with_units_flipped(by_rows, units[..., readers]) if flip else by_rows


def exchanged_sources(result: MethodResult) -> Floats:
    """The mean AUROC of every reader over units with permuted sources, (F, draws, R)."""
    by_fit: list[Any] = [[] for _ in range(result.n_fits)]
    for i, cell in zip(result.cell_fits, result.cells, strict=True):
        scores, codes, units = (cell[name] for name in ("source_scores", "eval_source", "eval_person"))
        everyone = cell["participants"].tolist()
        travellers = everyone if result.design is None else result.design.travellers
        rows = np.array([unit in travellers for unit in everyone])[units] == result.within
        if not rows.any():
            continue
        units = np.unique(units[rows], return_inverse=True)[1]
        if result.within:
            areas = permuted_mean(scores[rows], codes[rows], units)
        else:
            areas = permuted_between(scores[rows], codes[rows], units, cell["eval_class"][rows])
        by_fit[i].append((areas, units.max() + 1))  # splits count by their units
    parts = [zip(*fit, strict=True) for fit in by_fit]
    return np.stack([np.average(list(areas), axis=0, weights=list(sizes)) for areas, sizes in parts])
