"""Means over participants, and bootstrap draws of participants within cells, shared by all methods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
#: The signed sides of a difference, or a single side, each with values [fit, participant, k].
Sides = Sequence[tuple[float, Floats]]

# Number of draws and their seed, as in the paper.
DRAWS = 20_000
SEED = 1101
# Maximum size of a block of counts, and of all counts to keep for further estimates.
BLOCK, KEPT = 2**21, 2**21
# With more participants, groups are drawn instead of participants; minimum number of groups in a cell.
MANY, FEWEST_GROUPS = 2_000, 100


def cells_of(strata: Any, n: int) -> list[NDArray[np.intp]]:
    """Return the participants of each cell; without strata, of one cell."""
    if strata is None:
        return [np.arange(n)]
    codes = np.unique(strata, return_inverse=True)[1]
    return [np.flatnonzero(codes == k) for k in range(codes.max() + 1)]


def shares(strata: Any, n: int) -> Floats:
    """Return the weight of each participant: equal for all cells, and equal within a cell."""
    if strata is None:
        return np.full(n, 1.0 / n)
    cells, share = cells_of(strata, n), np.empty(n)
    for cell in cells:
        share[cell] = 1.0 / (len(cells) * len(cell))
    return share


def present_mean(values: Floats, axis: int | tuple[int, ...]) -> Floats:
    """Return the mean of the values that are not NaN; NaN if all are."""
    present = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(present, values, 0.0).sum(axis=axis) / present.sum(axis=axis))


def in_groups(sides: Sides, strata: Any) -> tuple[Sides, Any]:
    """Replace many participants by random groups within their cells; return the groups' values and strata.

    Means of groups are resampled with the spread of participants, so draws take the same time and memory for
    any number of participants.
    """
    n = sides[0][1].shape[1]
    if n <= MANY:
        return sides, strata
    rng, cells = np.random.default_rng(SEED), cells_of(strata, n)
    members, sizes, codes = [], [], []
    for k, cell in enumerate(cells):
        wanted = max(FEWEST_GROUPS, MANY * len(cell) // (2 * n))
        size = max(1, len(cell) // wanted)
        starts = np.arange(0, len(cell) - size + 1, size)
        members.append(rng.permutation(cell))
        sizes.append(np.diff([*starts, len(cell)]))
        codes += [k] * len(starts)
    order, size = np.concatenate(members), np.concatenate(sizes)
    starts = np.cumsum(size) - size
    parts = (np.add.reduceat(fits[:, order], starts, axis=1) / size[:, None] for _, fits in sides)
    grouped = list(zip((sign for sign, _ in sides), parts, strict=True))
    return grouped, None if strata is None else np.array(codes)


def draws_of(cells: list[NDArray[np.intp]], n: int, n_draws: int) -> Iterable[Floats]:
    """Yield the counts of each participant in blocks of draws (B, n).

    Cells are drawn separately; the draws of a single cell are ``default_rng(SEED).integers``.
    """
    if n * n_draws > KEPT:
        return _drawn(cells, n, n_draws)
    return _kept_draws(tuple(map(tuple, cells)), n, n_draws)


@lru_cache(maxsize=4)
def _kept_draws(cells: tuple[tuple[int, ...], ...], n: int, n_draws: int) -> tuple[Floats, ...]:
    """Return the cached blocks of draws for few participants, shared by all metrics and methods."""
    return tuple(_drawn([np.array(cell) for cell in cells], n, n_draws))


def _drawn(cells: list[NDArray[np.intp]], n: int, n_draws: int) -> Iterator[Floats]:
    """Yield the blocks of draws."""
    generators = [np.random.default_rng(SEED + k) for k in range(len(cells))]
    at_once = max(1, BLOCK // n)
    for start in range(0, n_draws, at_once):
        size = min(at_once, n_draws - start)
        counts = np.empty((size, n))
        for cell, rng in zip(cells, generators, strict=True):
            flat = rng.integers(len(cell), size=(size, len(cell))) + len(cell) * np.arange(size)[:, None]
            counts[:, cell] = np.bincount(flat.ravel(), minlength=size * len(cell)).reshape(size, -1)
        yield counts
