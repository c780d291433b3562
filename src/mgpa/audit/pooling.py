"""Collect the results of a method from its cells, and pool them over splits and repeated divisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..maps import MapInfo
from .design import pooled
from .draws import present_mean, shares
from .fits import Fit
from .information import of_floor
from .measure import present_only
from .method_result import Floats, MethodResult
from .ranks import between_auroc

#: Measurements of a fit, by their names in its cell; some may be missing.
MEASURED = ("source_auroc", "movement", "shortcut", "control", "flips", "output_change")
#: Measurements of task heads (AUROC and accuracy for classes, errors for numbers), and further results of
#: readers: on both views of an event, in bits, and on the identity of participants.
HEADS = (
    *("recall", "twin", "identity", "information_q", "information_r"),
    *(
        f"{heads}{what}"
        for heads in ("frozen", "refitted", "home", "pooled", "unseen")
        for what in ("", "_perfect", "_accuracy", "_shift", "_bias", "_square", "_relative")
    ),
)


def result_of_cells(
    fits: list[Fit],
    cells: list[dict[str, Any]],
    floors: list[dict[str, Any] | None],
    shared: dict[str, Any] | None = None,
    **fields: Any,
) -> MethodResult:
    """Return the result of a method's fits; ``fields`` sets further fields.

    Bits are split at the gate of the fit; for fits without a gate, at the gate with the floor ``shared``.
    """
    gates = [floor or shared for floor in floors]
    cells = [cell | of_floor(cell, gate) for cell, gate in zip(cells, gates, strict=True)]
    first = cells[0]
    stacked: dict[str, Any] = {
        name: np.stack([cell[name] for cell in cells]) for name in (*MEASURED, *HEADS) if name in first
    }
    heads = {name: stacked.pop(name) for name in HEADS if name in stacked}
    if floors[0] is not None:
        stacked["floor_auroc"] = np.stack([f["source_auroc"] for f in floors if f is not None])
    return MethodResult(
        name=fits[0].method,
        source_blind=fits[0].map.source_blind,
        participants=tuple(first["participants"].tolist()),
        readers=tuple(first["readers"].tolist()),
        directions=tuple(np.asarray(first.get("directions", ())).tolist()),
        homes=tuple(np.asarray(first.get("homes", ())).tolist()),
        heads=heads,
        facts=[fit.facts for fit in fits],
        cells=cells,
        cell_fits=tuple(range(len(cells))),
        summary=replace(fits[0].map, info=described(fits[0])).summary(),
        provenance=tuple(map(described, fits)),
        fitted_elsewhere=any(fit.came_fitted for fit in fits),
        **stacked,
        **fields,
    )


def described(fit: Fit) -> MapInfo:
    """Return the provenance of the map of a fit, with the share of contrast energy inside its gate.

    For a gate that was not fitted on contrasts, the measured coverage is used.
    """
    covered, info = fit.facts.get("contrast_coverage"), fit.map.info
    if info.gate_energy is not None or covered is None:
        return info  # type: ignore[no-any-return]
    return replace(info, gate_energy=float(covered))  # type: ignore[no-any-return]


def people_known(parts: Iterable[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """Return the participants of all parts; None if a part does not know its own and none is named."""
    parts = list(parts)
    names = sorted({name for part in parts for name in part or ()})
    return tuple(names) if names or None not in parts else None


def pool(parts: Sequence[MethodResult]) -> MethodResult:
    """Pool the results of one method on different participants; fits with the same number are joined."""
    first = parts[0]
    for name in ("readers", "directions", "n_fits"):
        if any(getattr(part, name) != getattr(first, name) for part in parts):
            raise ValueError(f"The splits of {first.name} differ in {name}; one has {getattr(first, name)}.")
    people = [person for part in parts for person in part.participants]
    if len(set(people)) != len(people):
        twice = sorted({person for person in people if people.count(person) > 1})
        raise ValueError(f"Participants are evaluated in more than one split: {', '.join(twice[:5])}.")
    order = np.argsort(people)  # sorted as text, which determines the bootstrap draws
    whole = replace(
        _combined(parts, lambda arrays: np.concatenate(arrays, axis=1)[:, order]),
        participants=tuple(people[i] for i in order),
        fitted_elsewhere=any(part.fitted_elsewhere for part in parts),
        design=None if first.design is None else pooled([part.design for part in parts if part.design]),
        cell_fits=tuple(i for part in parts for i in part.cell_fits),
    )
    perfect = np.concatenate([_perfect(part) for part in parts])[order]
    return _heads_rescaled(_rescaled(whole, perfect))


def repeat(deals: Sequence[MethodResult]) -> MethodResult:
    """Return the results of several divisions of the same participants into folds as further fits."""
    n = deals[0].n_fits
    return replace(
        _combined(deals, np.concatenate),
        cell_fits=tuple(i + r * n for r, deal in enumerate(deals) for i in deal.cell_fits),
        repeats=len(deals),
    )


def _combined(parts: Sequence[MethodResult], join: Callable[[list[Floats]], Floats]) -> MethodResult:
    """Return one result with the measurements that all parts have."""

    def joined(arrays: list[Any]) -> Any:
        # Some folds may have gates without evidence, and so no floor.
        return None if any(array is None for array in arrays) else join(arrays)

    heads = {name: joined([part.heads.get(name) for part in parts]) for name in parts[0].heads}
    return replace(
        parts[0],
        facts=[fact for part in parts for fact in part.facts],
        cells=[cell for part in parts for cell in part.cells],
        fitted_on=people_known(part.fitted_on for part in parts),
        heads={name: array for name, array in heads.items() if array is not None},
        **{name: joined([getattr(part, name) for part in parts]) for name in (*MEASURED, "floor_auroc")},
    )


def _perfect(part: MethodResult) -> Floats:
    """Return the contribution of each unit for a reader without errors; its mean is 1 in one split."""
    if part.travelled.all():
        return np.ones(part.n_units)
    cell = part.cells[0]
    codes, units, classes = (cell[f"eval_{name}"] for name in ("source", "person", "class"))
    right = codes[:, None] if cell["source_scores"].ndim == 2 else np.eye(codes.max() + 1)[codes][:, None]
    alone, values = ~part.travelled[units], np.ones(part.n_units)
    compared, source = present_only(right[alone], codes[alone])
    between = between_auroc(compared, source, units[alone], classes[alone])[:, 0]
    values[: len(between)] = np.where(part.travelled[: len(between)], 1.0, between)
    return values


def _rescaled(result: MethodResult, perfect: Floats) -> MethodResult:
    """Return pooled splits, rescaled so that an AUROC between units has the maximum 1.

    With three or more sources, units of larger sources have larger weights, which differ between splits.
    """
    alone = ~result.travelled & ~np.isnan(perfect)
    if not alone.any():
        return result
    scale = np.where(result.travelled, 1.0, _weighed(result, alone) @ perfect[alone])[:, None]
    floor = None if result.floor_auroc is None else result.floor_auroc / scale
    return replace(result, source_auroc=result.source_auroc / scale, floor_auroc=floor)


def _heads_rescaled(result: MethodResult) -> MethodResult:
    """Return pooled splits, rescaled so that an AUROC of heads between units has the maximum 1."""
    heads = dict(result.heads)
    for name in [name for name in heads if f"{name}_perfect" in heads]:
        # A unit is scored in the directions of transfer to its own source.
        perfect = present_mean(heads[f"{name}_perfect"], axis=(0, 2))
        scored = ~np.isnan(perfect)
        if scored.any():
            heads[name] = heads[name] / (_weighed(result, scored) @ perfect[scored])
    return replace(result, heads=heads)


def _weighed(result: MethodResult, units: NDArray[np.bool_]) -> Floats:
    """Return the weight of each of the given units in a mean over these units."""
    return shares(None if result.strata is None else result.strata[units], int(units.sum()))
