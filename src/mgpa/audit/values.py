"""Functions that return the values of metrics for each unit, from the result of a method."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from .bootstrap import ASSOCIATIONS
from .draws import present_mean, shares
from .readers import FURTHER

if TYPE_CHECKING:
    from .method_result import MethodResult

Floats = NDArray[np.float64]
Values = Callable[["MethodResult"], Floats | None]


def readers(pattern: str) -> Values:
    """Return a function for the AUROC of the readers with matching names."""

    def values(result: MethodResult) -> Floats | None:
        chosen = [i for i, reader in enumerate(result.readers) if re.fullmatch(pattern, reader)]
        return result.source_auroc[..., chosen] if chosen else None

    return primary(values, "sources")


def paper_readers(result: MethodResult) -> Floats | None:
    """Return the AUROC of the paper's readers, if there are also other readers."""
    further = [reader.rpartition(" ")[2] in FURTHER for reader in result.readers]
    return result.source_auroc[..., ~np.array(further)] if any(further) else None


def measured(name: str) -> Values:
    """Return a function for a measurement of each unit (None if not measured)."""

    def values(result: MethodResult) -> Floats | None:
        array = result.heads.get(name)
        return None if array is None or np.isnan(array).all() else array

    return values


def transfer(heads: str, direction: str | None = None) -> Values:
    """Return a function for scores of heads in one direction of transfer, or averaged over all."""

    def values(result: MethodResult) -> Floats | None:
        array = result.heads.get(heads)
        if array is not None and direction is not None:
            array = array[..., _chosen(result.directions_of(heads), direction)]
        return present_mean(array, axis=-1) if array is not None and array.shape[-1] else None

    return values


def _chosen(axis: tuple[str, ...], direction: str) -> list[int]:
    """Return the positions of a direction on an axis; "phone → *" is every direction from phone."""
    start = direction.removesuffix("*")
    return [
        i for i, way in enumerate(axis) if way == direction or (start != direction and way.startswith(start))
    ]


def each_direction(heads: str) -> Values:
    """Return a function for the mean of each direction over the units that have it."""

    def values(result: MethodResult) -> Floats | None:
        array = result.heads.get(heads)
        if array is None:
            return None
        present, weight = ~np.isnan(array[0]), shares(result.strata, array.shape[1])
        used = present.any(axis=0)
        if not used.any():
            return None
        return np.asarray(np.where(present, array, 0.0)[..., used] / (weight @ present[:, used]))

    return values


def group(travelled: bool, values: Values) -> Values:
    """Return a function for values of units that travelled, or did not, in a mixed design (others: NaN)."""

    def chosen(result: MethodResult) -> Floats | None:
        array, members = values(result), result.travelled == travelled
        if array is None or members.all() or members.sum() < 2:
            return None
        return np.where(members.reshape(1, -1, *[1] * (array.ndim - 2)), array, np.nan)

    return chosen


def primary(values: Values, of: Literal["sources", "labels"] = "labels") -> Values:
    """Return a function for values of the primary group in a mixed design, or of all units."""

    def chosen(result: MethodResult) -> Floats | None:
        within = result.within if of == "sources" else result.heads_within
        grouped = group(within, values)(result)
        return values(result) if grouped is None else grouped

    return chosen


def association(head: str, xi: float) -> Values:
    """Return a function for the AUROC of the shortcut or control head at one association."""

    def values(result: MethodResult) -> Floats | None:
        curve: Floats | None = getattr(result, head)
        return None if curve is None else curve[..., ASSOCIATIONS.index(xi)]

    return values


def mean_size(means: Floats) -> Floats:
    """Return the mean absolute value over directions."""
    return np.asarray(np.abs(means).mean(axis=-1))
