"""Paired regressions that predict the view of another source from a view of one source.

The edit of a source maps its rows to the target (the view of another source, or the mean of all views) along
the shortest chain of pairs. Slopes act in the leading directions of paired differences that cross-validation
supports. Slopes act in all directions if the supported directions are not few, or if differences outside
these directions also grow with the means of the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from ..evidence import LEVEL
from ..linalg import cross_validated_ridge, resolved_axes, ridge_grid
from .views import Floats, Views, centre

TINY = float(np.finfo(np.float64).tiny)
FEW = 0.25  # if slopes need fewer than this share of the coordinates, the other directions count as noise


class Step(NamedTuple):
    """A regression from one source to another, fitted on their common pairs."""

    start: int
    end: int


@dataclass(frozen=True, eq=False)
class Regression:
    """A ridge regression that predicts the difference to another source's view from a view of one source.

    The predicted difference for x is (x - center) whiten · coefficients · directionsᵀ / weight + offset.
    """

    center: Floats
    offset: Floats
    whiten: Floats  # (r, k): principal axes of the views, divided by the roots of scatter plus ridge
    coefficients: Floats  # (k, p)
    weight: Floats  # (r,): Views.weight, the units of the directions
    directions: Floats  # (r, p), orthonormal; if p = r, coefficients refer to the identity instead
    n_views: int

    @cached_property
    def slope(self) -> Floats:
        """The matrix that multiplies a view, (r, r)."""
        return self._turned(self.whiten @ self.coefficients)

    def _turned(self, along: Floats) -> Floats:
        few = self.directions.shape[1] < len(self.directions)
        return (along @ self.directions.T if few else along) / self.weight

    def expect(self, X: Floats) -> Floats:
        """Return the predicted differences for X."""
        if not self.directions.shape[1]:
            return np.broadcast_to(self.offset, X.shape)
        apart = X - self.center
        if len(X) > len(self.center):
            return np.asarray(apart @ self.slope + self.offset)
        return self._turned(apart @ self.whiten @ self.coefficients) + self.offset

    def constant(self) -> Regression:
        """Return the regression reduced to the mean difference."""
        return replace(self, coefficients=self.coefficients[:, :0], directions=self.directions[:, :0])

    def reversed(self) -> Regression:
        """Return the regression of the negative differences."""
        return replace(self, offset=-self.offset, coefficients=-self.coefficients)

    def without(self, x: Floats, y: Floats) -> Regression:
        """Return the regression with the same penalty on all rows except some fitting rows.

        The regression is downdated, not fitted again. With H = ZZᵀ the block of the hat matrix for the
        left-out rows, their residuals e become (I - H)⁻¹e. Only Zᵀ(I - H)⁻¹e = (I - ZᵀZ)⁻¹Zᵀe is needed; with
        many rows, the second form is the smaller system. If no rows remain, the predicted difference is zero.
        """
        if len(x) == self.n_views:
            return replace(self.constant(), offset=np.zeros_like(self.offset))
        mean = self.offset - (y - self.offset).sum(axis=0) / (self.n_views - len(x))
        if not self.directions.shape[1]:
            return replace(self, offset=mean)
        few = self.directions.shape[1] < len(self.directions)
        Z = np.empty((len(x), self.whiten.shape[1] + 1))
        Z[:, :-1], Z[:, -1] = (x - self.center) @ self.whiten, self.n_views**-0.5
        residual, step = (y - self.offset) * self.weight, (self.offset - mean) * self.weight
        if few:
            residual, step = residual @ self.directions, step @ self.directions
        residual -= Z[:, :-1] @ self.coefficients
        if len(x) < Z.shape[1]:
            grown = Z.T @ np.linalg.solve(np.eye(len(x)) - Z @ Z.T, residual)
        else:
            grown = np.linalg.solve(np.eye(Z.shape[1]) - Z.T @ Z, Z.T @ residual)
        offset = mean + self._turned(step - grown[-1] * self.n_views**-0.5)
        return replace(self, offset=offset, coefficients=self.coefficients - grown[:-1])


Regressions = dict[Step, Regression]


class Decomposed(NamedTuple):
    """Centred views along their principal axes, and the differences to predict from them."""

    center: Floats  # (r,): what was subtracted
    scatter: Floats  # (k,): squared singular values,
    axes: Floats  # (r, k): right singular vectors,
    products: Floats  # and (k, p): their products with the differences


def differences(views: Views, pairs: NDArray[np.intp]) -> Iterator[tuple[Step, Floats, Floats]]:
    """Yield, for each two sources with common pairs, views and their differences to the other source."""
    between = sorted({(int(s), int(t)) for s, t in zip(views.first, views.second, strict=True)})
    for a, b in between:
        rows = pairs[(views.first[pairs] == a) & (views.second[pairs] == b)]
        contrasts = views.contrasts(rows)
        yield Step(a, b), views.moved(rows), contrasts
        yield Step(b, a), views.moved(rows + len(views)), -contrasts


def fit_regressions(views: Views, *, slopes: bool = True) -> Regressions:
    """Return regressions between all sources with common pairs; without ``slopes``, mean differences."""
    steps = [step for step, *_ in differences(views, np.arange(0))]
    fitted: Regressions = {}
    done: dict[bytes, Decomposed] = {}  # views that occur in several regressions
    for a, b in steps[::2]:
        pairs = np.flatnonzero((views.first == a) & (views.second == b))
        y = views.contrasts(pairs)
        offset = y.mean(axis=0)
        if not slopes:
            for step, rows, sign in ((Step(a, b), pairs, 1.0), (Step(b, a), pairs + len(views), -1.0)):
                fitted[step] = mean_difference(views.moved(rows).mean(axis=0), sign * offset, len(pairs))
            continue
        y -= offset
        y *= views.weight
        parts = []
        for rows in (pairs, pairs + len(views)):
            key = views.row[rows].tobytes()
            done[key] = _decompose(views.moved(rows), y, done.get(key))
            parts.append(done[key])
        forward, backward = parts
        energy, T, n_few = shared_directions(parts, y)
        if n_few <= FEW * len(offset):
            rest, T, energy = T[:, n_few:], T[:, :n_few], energy[:n_few]
            if follows_midpoints(views, pairs, y, rest):
                T, energy = np.eye(len(offset)), np.sum(y**2, axis=0)
        total = float(energy.sum())
        fitted[Step(a, b)] = _solve(forward, T, total, views.weight, offset, len(pairs))
        fitted[Step(b, a)] = _solve(backward, T, total, views.weight, offset, len(pairs)).reversed()
    return fitted


def follows_midpoints(views: Views, pairs: NDArray[np.intp], y: Floats, rest: Floats) -> bool:
    """Return whether differences along axes depend on the means of pairs, and so are not only noise.

    The directions are estimated from the differences alone. If the differences are noise, their correlations
    with the coordinates of midpoints are random, and the sum of squared correlations follows a chi-squared
    distribution.
    """
    units = np.unique(views.units[pairs], return_inverse=True)[1]
    C, M = centre(y @ rest, units), np.empty((len(pairs), rest.shape[1]))
    for part in views.blocks(np.arange(len(pairs))):
        both = views.moved(pairs[part]) + views.moved(pairs[part] + len(views))
        M[part] = both * views.weight @ rest
    centre(M, units)
    squares = np.sum(C**2, axis=0) * np.sum(M**2, axis=0)
    free = len(pairs) - units.max() - 1.0
    if free < 1 or not rest.size:
        return False
    statistic = free * float(np.sum(np.sum(C * M, axis=0) ** 2 / np.maximum(squares, TINY)))
    return bool(scipy.stats.chi2.sf(statistic, rest.shape[1]) < LEVEL)


def mean_difference(center: Floats, offset: Floats, n_views: int) -> Regression:
    """Return the regression without a slope."""
    nothing = np.zeros((len(center), 0))
    return Regression(center, offset, nothing, np.zeros((0, 0)), np.ones_like(center), nothing, n_views)


def shared_directions(parts: list[Decomposed], y: Floats) -> tuple[Floats, Floats, int]:
    """Return the energy of y along its axes (decreasing), the axes, and the number of axes with slopes."""
    energy, T = _principal_axes(y)
    energy, T = energy[::-1], T[:, ::-1]
    counts = [count_directions(x.scatter, x.products @ T, energy, len(y) - 1.0) for x in parts]
    return energy, T, max(counts)


def _principal_axes(apart: Floats) -> tuple[Floats, Floats]:
    """Return squared singular values of centred rows, weakest first, and right singular vectors."""
    few = len(apart) < apart.shape[1]  # then decompose the smaller Gram matrix
    values, axes = resolved_axes(apart @ apart.T if few else apart.T @ apart, apart.shape[1])
    return values, np.asarray(apart.T @ (axes / np.sqrt(values)) if few else axes)


def _decompose(x: Floats, y: Floats, done: Decomposed | None = None) -> Decomposed:
    """Return views x, which are overwritten, decomposed for differences y.

    ``done`` is the decomposition of these views for other differences, if it was already computed.
    """
    center = x.mean(axis=0)
    x -= center
    scatter, axes = _principal_axes(x) if done is None else (done.scatter, done.axes)
    return Decomposed(center, scatter, axes, axes.T @ (x.T @ y))


def count_directions(scatter: Floats, products: Floats, energy: Floats, n: float) -> int:
    """Return the number of leading directions that slopes predict, by generalised cross-validation.

    ``products`` (p, k) are products of the axes with the k directions; ``energy`` (k,) is the energy to
    predict. Directions with slopes share one penalty; all others are predicted by their means.
    """
    if not len(scatter) or not len(energy):
        return 0
    grid = ridge_grid(scatter)
    shrunk = scatter + grid[:, None]
    free = n - 1.4 * np.sum(scatter / shrunk, axis=1, keepdims=True)  # 1.4: as for all ridges in this package
    residual = energy - (2.0 / shrunk - scatter / shrunk**2) @ products**2
    score = np.where(free > 0, residual / np.where(free > 0, free, 1.0) ** 2, np.inf)
    gained = np.cumsum(score - energy / n**2, axis=1).min(axis=0)
    return int(np.argmin(gained)) + 1 if gained.min() < 0 else 0


def _solve(
    x: Decomposed, T: Floats, energy: float, weight: Floats, offset: Floats, n_views: int
) -> Regression:
    """Return the regression of weighted, centred differences with slopes in the directions T.

    ``energy`` is the squared size of the differences along T. Directions and penalty are optimal relative to
    the variance of rows, because small differences matter in directions of small variance.
    """
    few = T.shape[1] < len(T)  # T Tᵀ is the identity otherwise
    along = x.products @ T if few else x.products
    ridge = cross_validated_ridge(x.scatter, along, energy, n_views - 1.0)
    root = np.sqrt(x.scatter + ridge)
    return Regression(x.center, offset, x.axes / root, along / root[:, None], weight, T, n_views)


def route(regressions: Regressions, source: int) -> list[Step]:
    """Return the steps of the shortest chains from one source to all others."""
    reached, steps, ends = {source}, [Step(source, source)], dict[int, list[int]]()
    for start, end in regressions:
        ends.setdefault(start, []).append(end)
    for _, start in steps:  # steps are appended during the loop
        for end in sorted(ends.get(start, ())):
            if end not in reached:
                reached.add(end)
                steps.append(Step(start, end))
    return steps[1:]


def path(regressions: Regressions, source: int, target: int | None) -> list[Step]:
    """Return the steps from a source to the target, or to all sources if the target is their mean."""
    steps = route(regressions, source)
    if target is None:
        return steps
    before, steps_back = {step.end: step for step in steps}, list[Step]()
    while (end := steps_back[0].start if steps_back else target) != source:
        steps_back.insert(0, before[end])
    return steps_back


def displacement(regressions: Regressions, source: int, X: Floats, target: int | None) -> Floats:
    """Return the displacement of views X of a source to the target source (None: the mean of all)."""
    steps = path(regressions, source, target)
    (n, r), n_steps, n_far = X.shape, len(steps), sum(step.start != source for step in steps)
    if is_constant(regressions) or n * (2 * n_steps - 1) >= r * (n_steps + n_far):  # in products of r x r
        M, v = affine_edit(regressions, source, target)
        return np.broadcast_to(v, X.shape) if M is None else X @ M + v
    view, views = X, {source: X}
    for step in steps:
        view = views[step.end] = views[step.start] + regressions[step].expect(views[step.start])
    if target is not None:
        return np.asarray(view - X)
    total = np.zeros_like(X)
    for view in views.values():
        total += view
    return np.asarray(total / len(views) - X)


def without_slopes(regressions: Regressions) -> Regressions:
    """Return the mean differences of regressions."""
    return {step: regression.constant() for step, regression in regressions.items()}


def is_constant(regressions: Regressions) -> bool:
    """Return whether all regressions are mean differences."""
    return not any(regression.directions.shape[1] for regression in regressions.values())


def affine_edit(regressions: Regressions, source: int, target: int | None) -> tuple[Floats | None, Floats]:
    """Return the displacement x M + v of a source: M (r, r) (None for zero) and v."""
    nowhere = np.zeros_like(next(iter(regressions.values())).offset)
    edits: dict[int, tuple[Floats | None, Floats]] = {source: (None, nowhere)}
    for step in path(regressions, source, target):
        (M, v), regression = edits[step.start], regressions[step]
        if regression.directions.shape[1]:
            S = regression.slope
            M, v = S if M is None else M + S + M @ S, v + (v - regression.center) @ S
        edits[step.end] = M, v + regression.offset
    if target is not None:
        return edits[target]
    linear = [M for M, _ in edits.values() if M is not None]
    offset = np.sum([v for _, v in edits.values()], axis=0) / len(edits)
    return (np.sum(linear, axis=0) / len(edits) if linear else None), np.asarray(offset)
