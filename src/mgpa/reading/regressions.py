"""Paired regressions: what another source would have seen, predicted from a view of one source.

A source's edit takes its rows to the target: another source's view, or the mean of the views of all sources,
along the shortest route of pairs. Slopes act in the leading directions of the paired differences, as few as
cross-validation supports; in all of them where those are not few, or where differences outside of them still
grow with the pairs' means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from ..evidence import LEVEL
from ..linalg import cross_validated_ridge, resolved_axes, ridge_grid
from .views import Floats, Views, centre

TINY = float(np.finfo(np.float64).tiny)
FEW = 0.25  # of the coordinates: where fewer directions hold the differences, the others are noise


class Step(NamedTuple):
    """From one source to another that shares pairs with it."""

    start: int
    end: int


@dataclass(frozen=True, eq=False)
class Regression:
    """A ridge regression from views of one source to the difference of another source's views.

    The difference expected for x is (x - center) slope + offset. ``directions`` over ``weight`` span the
    slope's range.
    """

    center: Floats
    offset: Floats
    slope: Floats
    axes: Floats  # (r, k): principal axes of the views it was fitted on
    scatter: Floats  # (k,): of those views along them
    weight: Floats  # (r,): Views.weight, the units of the directions
    directions: Floats  # (r, p), orthonormal
    ridge: float
    n_views: int

    def expect(self, X: Floats) -> Floats:
        """Return the differences expected for X."""
        if not self.directions.shape[1]:
            return np.broadcast_to(self.offset, X.shape)
        return np.asarray((X - self.center) @ self.slope + self.offset)

    def constant(self) -> Regression:
        """Return the mean difference alone."""
        return replace(self, slope=np.zeros_like(self.slope), directions=self.directions[:, :0])

    def reversed(self) -> Regression:
        """Return the regression of the differences with the other sign."""
        return replace(self, offset=-self.offset, slope=-self.slope)

    def without(self, x: Floats, y: Floats) -> Regression:
        """Return the regression, with the same penalty, on all rows but some of those it was fitted on.

        Nothing is fitted again: with H the block of the hat matrix of the rows left out, their residuals e
        become (I - H)⁻¹e. If no row is left, no difference is expected.
        """
        if len(x) == self.n_views:
            return replace(self.constant(), offset=np.zeros_like(self.offset))
        mean = self.offset - (y - self.offset).sum(axis=0) / (self.n_views - len(x))
        if not self.directions.shape[1]:
            return replace(self, offset=mean)
        T, apart = self.directions, x - self.center
        root = apart @ self.axes / np.sqrt(self.scatter + self.ridge)
        kept = np.eye(len(x)) - root @ root.T - 1.0 / self.n_views
        residual, step = y - self.expect(x), self.offset - mean
        few = T.shape[1] < len(T)
        if few:
            residual, step = (residual * self.weight) @ T, (step * self.weight) @ T
        grown = np.linalg.solve(kept, residual)
        step = step - grown.sum(axis=0) / self.n_views
        change = (self.axes / np.sqrt(self.scatter + self.ridge)) @ (root.T @ grown)
        if few:
            change, step = change @ T.T / self.weight, step @ T.T / self.weight
        return replace(self, slope=self.slope - change, offset=mean + step)


Regressions = dict[Step, Regression]


def differences(views: Views, pairs: NDArray[np.intp]) -> Iterator[tuple[Step, Floats, Floats]]:
    """Yield, for all two sources, views of some pairs and how the other source's views differ."""
    between = sorted({(int(s), int(t)) for s, t in zip(views.first, views.second, strict=True)})
    for a, b in between:
        rows = pairs[(views.first[pairs] == a) & (views.second[pairs] == b)]
        contrasts = views.contrasts(rows)
        yield Step(a, b), views.moved(rows), contrasts
        yield Step(b, a), views.moved(rows + len(views)), -contrasts


def fit_regressions(views: Views, *, slopes: bool = True) -> Regressions:
    """Return the regressions between all two sources that share pairs; without slopes, mean differences."""
    steps = [step for step, *_ in differences(views, np.arange(0))]
    fitted: Regressions = {}
    for a, b in steps[::2]:
        pairs = np.flatnonzero((views.first == a) & (views.second == b))
        y = views.contrasts(pairs)
        offset = y.mean(axis=0)
        if not slopes:
            for step, rows, sign in ((Step(a, b), pairs, 1.0), (Step(b, a), pairs + len(views), -1.0)):
                fitted[step] = mean_difference(views.moved(rows).mean(axis=0), sign * offset, len(pairs))
            continue
        y = (y - offset) * views.weight
        there = _decompose(views.moved(pairs), y)
        back = _decompose(views.moved(pairs + len(views)), y)
        T = shared_directions([there, back], y)
        if T.shape[1] < y.shape[1] and follows_midpoints(views, pairs, y, T):
            T = np.eye(y.shape[1])
        fitted[Step(a, b)] = _solve(*there, T, y, views.weight, offset)
        fitted[Step(b, a)] = _solve(*back, T, y, views.weight, offset).reversed()
    return fitted


def follows_midpoints(views: Views, pairs: NDArray[np.intp], y: Floats, T: Floats) -> bool:
    """Return whether centred differences outside of T grow with the pairs' means: they are not all noise.

    Directions come from the differences alone. If those are noise, their correlations with the midpoints'
    coordinates are of chance, and the sum of their squares has a chi-squared distribution.
    """
    rest = _principal_axes(y - y @ T @ T.T)[1]
    units = np.unique(views.units[pairs], return_inverse=True)[1]
    C = centre(y @ rest, units)
    M = centre((views.moved(pairs) + views.moved(pairs + len(views))) * views.weight @ rest, units)
    squares = np.sum(C**2, axis=0) * np.sum(M**2, axis=0)
    free = len(pairs) - units.max() - 1.0
    if free < 1 or not rest.size:
        return False
    statistic = free * float(np.sum(np.sum(C * M, axis=0) ** 2 / np.maximum(squares, TINY)))
    return bool(scipy.stats.chi2.sf(statistic, rest.shape[1]) < LEVEL)


def mean_difference(center: Floats, offset: Floats, n_views: int) -> Regression:
    """Return the regression without a slope."""
    r = len(center)
    nothing = np.zeros((r, 0))
    none = np.zeros(0)
    return Regression(center, offset, np.zeros((r, r)), nothing, none, np.ones(r), nothing, 1.0, n_views)


def shared_directions(parts: list[tuple[Floats, Floats, Floats, Floats]], y: Floats) -> Floats:
    """Return the directions, (r, k), of the differences y, (m, r), in which slopes act."""
    energy, T = _principal_axes(y)
    energy, T = energy[::-1], T[:, ::-1]  # strongest first
    n_few = max(count_directions(scatter, P @ T, energy, len(y) - 1.0) for _, scatter, _, P in parts)
    return np.asarray(T[:, :n_few] if n_few <= FEW * y.shape[1] else T)


def _principal_axes(apart: Floats) -> tuple[Floats, Floats]:
    """Return squared singular values of centred rows, weakest first, and right singular vectors."""
    few = len(apart) < apart.shape[1]  # then nothing is decomposed that is larger than the rows
    values, axes = resolved_axes(apart @ apart.T if few else apart.T @ apart, apart.shape[1])
    return values, np.asarray(apart.T @ (axes / np.sqrt(values)) if few else axes)


def _decompose(x: Floats, y: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the mean of x, which is overwritten, its scatter along its axes, these, and products with y."""
    center = x.mean(axis=0)
    x -= center
    scatter, axes = _principal_axes(x)
    return center, scatter, axes, axes.T @ (x.T @ y)


def count_directions(scatter: Floats, products: Floats, energy: Floats, n: float) -> int:
    """Return how many leading directions slopes predict, by generalised cross-validation.

    ``products`` (p, k) are those of the axes with the k directions, ``energy`` (k,) the squares to predict.
    Directions with a slope share one penalty; the others are predicted by their means.
    """
    if not len(scatter) or not len(energy):
        return 0
    grid = ridge_grid(scatter)
    shrunk = scatter + grid[:, None]
    free = n - 1.4 * np.sum(scatter / shrunk, axis=1, keepdims=True)  # counted as for every ridge here
    residual = energy - (2.0 / shrunk - scatter / shrunk**2) @ products**2
    score = np.where(free > 0, residual / np.where(free > 0, free, 1.0) ** 2, np.inf)
    gained = np.cumsum(score - energy / n**2, axis=1).min(axis=0)
    return int(np.argmin(gained)) + 1 if gained.min() < 0 else 0


def _solve(
    center: Floats,
    scatter: Floats,
    axes: Floats,
    products: Floats,
    T: Floats,
    y: Floats,
    weight: Floats,
    offset: Floats,
) -> Regression:
    """Return the regression of the centred differences y, times weight, with slopes in the directions T.

    Directions and penalty are the best relative to how rows vary. Differences are small where rows hardly
    vary, and no less important to what is computed from rows.
    """
    if T.shape[1] < len(T):  # T Tᵀ is the identity otherwise
        products, y = products @ T @ T.T, y @ T
    ridge = cross_validated_ridge(scatter, products, float(np.vdot(y, y)), len(y) - 1.0)
    slope = axes @ (products / (scatter + ridge)[:, None]) / weight
    return Regression(center, offset, slope, axes, scatter, weight, T, ridge, len(y))


def route(regressions: Regressions, source: int) -> list[Step]:
    """Return the steps that reach all sources from one, each by as few as possible."""
    reached, steps = [source], []
    for start in reached:  # which grows
        for end in sorted(end for s, end in regressions if s == start and end not in reached):
            reached.append(end)
            steps.append(Step(start, end))
    return steps


def displacement(regressions: Regressions, source: int, X: Floats, target: int | None) -> Floats:
    """Return what takes views X of one source to the target: a source, or None, the mean of all of them."""
    steps = route(regressions, source)
    if target is not None:
        before, path = {step.end: step for step in steps}, list[Step]()
        while (end := path[0].start if path else target) != source:
            path.insert(0, before[end])
        steps = path
    (n, r), n_steps = X.shape, len(steps)
    if n * (n_steps - 1) > (r + 1) * n_steps:  # the steps' product first takes less
        M, v = affine_edit(regressions, source, target, r)
        return X @ M + v
    view, views = X, {source: X}
    for step in steps:
        view = views[step.end] = views[step.start] + regressions[step].expect(views[step.start])
    if target is not None:
        return np.asarray(view - X)
    total = np.zeros_like(X)
    for view in views.values():
        total += view
    return np.asarray(total / len(views) - X)


def affine_edit(regressions: Regressions, source: int, target: int | None, r: int) -> tuple[Floats, Floats]:
    """Return a source's displacement as a matrix M (r, r) and an offset v: x -> x M + v."""
    moved = displacement(regressions, source, np.eye(r + 1, r, k=-1), target)  # the origin, then every axis
    return moved[1:] - moved[0], moved[0]
