"""The closed form within sources: an anchor that does not learn how source goes with task.

Regressed on rows of all sources together, ẑ(q) learns that q tells the task, the task tells the source and
the source shifts z, and writes that detour into the embeddings. Here everything compares rows with the mean
of their own source (:func:`~mgpa.anchor.within_anchor`), from the moments of each source alone:

    z' = z - Σⱼ pⱼ pⱼᵀC⁻¹ [z - ẑ(q)],   ẑ(q) = z̄ + βᵀ(q - q̄),

with z̄ and q̄ the unweighted means of the sources' means, C the residual covariance within sources, and
p₁, p₂, … ordered directions, C⁻¹-orthonormal: first the mean contrasts, which makes eq. (3), then those along
which contrasts vary. Two things are asked of the data first: do the rows show an effect at all
(:func:`measured_effect`), and along how many directions (:func:`supported`). No task label takes part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from .anchor import GateAnchor, shrink, within_anchor
from .gate import contrast_folds
from .maps import CorrectionMap, MapInfo, PathMap
from .moments import Standardizer
from .pairs import Contrasts

if TYPE_CHECKING:
    from .closed_form import ClosedFormMGPA
    from .estimators.streamed import Evidence

Floats = NDArray[np.float64]

# A direction is worth correcting if sources differ in variance along it by a fifth or more.
MATERIAL = 0.1
# Volts and millivolts are a thousand apart, but views that keep .005 of a contrast are in the paper.
UNITS = 500.0
QUIET = 2  # directions in a row without support that end the path


@dataclass(frozen=True)
class Effect:
    """The rows' own source effect along the mean contrast, as a multiple of it, and its standard error.

    Given what is preserved, and within sources: what goes with the source in q is not part of it.
    """

    size: float
    error: float

    @property
    def is_there(self) -> bool:
        """Whether it exceeds two standard errors."""
        return abs(self.size) > 2.0 * self.error

    @property
    def is_of_the_pairs_scale(self) -> bool:
        """Whether pairs and rows show one effect, so that paired views are rows like any other."""
        return self.is_there and 0.5 < abs(self.size) < 2.0

    @property
    def is_of_other_units(self) -> bool:
        """Whether pairs and rows show effects so different in size that units are in doubt."""
        return self.is_there and not 1 / UNITS < abs(self.size) < UNITS

    def __str__(self) -> str:
        if self.is_of_other_units:
            return (
                f"effect {self.size:.1e} ± {self.error:.1e} of the contrast (are pairs and rows in the same "
                "units?)"
            )
        return f"effect {self.size:.4f} ± {self.error:.4f} of the contrast"


@dataclass(frozen=True)
class Solution:
    """What solving the evidence gives."""

    gate: Any
    map: CorrectionMap
    sources: NDArray[Any]
    direction: Floats
    covariance: Floats
    effect: Effect | None = None


@dataclass(frozen=True)
class Setting:
    """Where a fit takes place: the evidence in standardised coordinates, and a gate with something in it."""

    data: Evidence
    contrasts: Contrasts
    standardizer: Standardizer
    gate: Any
    delta: Floats  # (K - 1, r): mean projected contrasts
    info: MapInfo


def shrink_some(C: Floats, shrinkage: float, n_rows: int) -> Floats:
    """Return the shrunk residual covariance, or say that there is none."""
    C = shrink(C, shrinkage)
    if not np.trace(C) > 0:
        raise ValueError(
            f"{n_rows} rows leave no variation inside the gate once Q and the source are accounted for; use "
            "more rows."
        )
    return C


def solve_within(model: ClosedFormMGPA, at: Setting) -> Solution:
    """Return the path of directions with an anchor that does not learn how source goes with task."""
    moments, standardizer, B = at.data.moments, at.standardizer, at.gate.basis_
    scale = np.where(standardizer.varies, standardizer.scale, np.inf)  # what never varied takes no part
    n, K = moments.count, len(moments.sources)
    # As n rows of weight one would scatter: weights are relative.
    spread = moments.within.scaled(scale * np.sqrt(moments.weights.sum() / n))
    ridge = None if model.ridge == "auto" else float(model.ridge)
    anchor = within_anchor(spread, B, n, K, ridge)
    effect = measured_effect(
        at, anchor, shrink_some(anchor.covariance, model.shrinkage, moments.n_rows), scale
    )
    calibration = at.data.calibration_moments()
    if calibration.parts and effect.is_of_the_pairs_scale:
        # Both views of the same events: rows in which source goes with nothing.
        more = calibration.within.scaled(scale)
        anchor = within_anchor(
            spread + more, B, n + calibration.weights.sum(), K + len(calibration.sources), anchor.ridge
        )
    C = shrink_some(anchor.covariance, model.shrinkage, moments.n_rows)
    path = ordered_directions(C, at.delta, at.contrasts, B / scale[:, None])
    if model.do_no_harm and not effect.is_there:
        kept, told = 0, "not clear in these rows, nothing was done"
    else:
        auto = model.n_directions == "auto"
        kept = supported(at, anchor, C, scale, effect) if auto else int(model.n_directions)
        told = "acted"
    path = path[:, : min(kept, path.shape[1])]
    readout = (anchor.residual @ scipy.linalg.cho_solve(scipy.linalg.cho_factor(C), path)) / scale[:, None]
    stored = PathMap(
        center=standardizer.center,
        scale=standardizer.scale,
        readout=readout.T,
        direction=(B @ path * standardizer.scale[:, None]).T,
        offset=(standardizer.center - moments.means.mean(axis=0)) @ readout,
        strength=float(model.strength),
        info=replace(at.info, evidence=f"{effect}; {told}"),
    )
    return Solution(at.gate, stored, at.data.sources, at.delta, C, effect)


def measured_effect(at: Setting, anchor: GateAnchor, C: Floats, scale: Floats) -> Effect:
    """Return how much of the mean contrast the rows of different sources differ by, given q.

    The standard error is the larger of two: of independent rows, and, where participants are known, of
    participants, whose rows rise and fall together.
    """
    moments = at.data.moments
    gaps = (moments.means[1:] - moments.means[0]) / scale  # (K - 1, d)
    weights = scipy.linalg.cho_solve(scipy.linalg.cho_factor(C), at.delta.T).T  # (K - 1, r): C⁻¹δ
    total = float(np.sum(weights * at.delta))
    size = float(np.sum(weights * (gaps @ anchor.residual))) / total
    uncertain = np.diag(1.0 / moments.counts[1:]) + 1.0 / moments.counts[0] + anchor.leverage(gaps)
    variance = float(np.sum((weights @ at.delta.T) * uncertain)) / total**2
    people = at.data.people.parts
    if len({person for _, person in people}) > 1:
        by_source = np.concatenate([-weights.sum(axis=0, keepdims=True), weights]) / total  # (K, r)
        sums = zip(moments.means, moments.weights, by_source, strict=True)
        means = dict(zip(moments.sources, sums, strict=True))
        influence: dict[Any, float] = {}
        for (source, person), (weight, mean) in people.items():
            center, total_weight, direction = means[source]
            residual = ((mean - center) / scale) @ anchor.residual @ direction
            influence[person] = influence.get(person, 0.0) + weight / total_weight * float(residual)
        count = len(influence)
        variance = max(variance, count / (count - 1) * float(np.sum(np.square(list(influence.values())))))
    return Effect(size, float(np.sqrt(variance)))


def ordered_directions(C: Floats, delta: Floats, contrasts: Contrasts, basis: Floats) -> Floats:
    """Return all directions of the gate, (r, r), C⁻¹-orthonormal: mean contrasts first, then their spread.

    ``basis`` takes contrasts in the input's units to gate coordinates.
    """
    L = np.linalg.cholesky(C)
    _, sizes, mean_axes = np.linalg.svd(scipy.linalg.solve_triangular(L, delta.T, lower=True).T)
    mean_axes = mean_axes[: int(np.sum(sizes > sizes[0] * 1e-10))].T  # (r, k)
    projected = scipy.linalg.solve_triangular(L, (contrasts.values @ basis).T, lower=True).T
    effects = np.concatenate([np.zeros((1, len(C))), scipy.linalg.solve_triangular(L, delta.T, lower=True).T])
    projected -= effects[contrasts.second] - effects[contrasts.first]
    projected -= projected @ mean_axes @ mean_axes.T
    axes = np.linalg.svd(np.concatenate([projected, np.zeros_like(C)]), full_matrices=False)[2].T
    # The mean's axes have no spread left: they come out last, and go first.
    rest = axes[:, : len(C) - mean_axes.shape[1]]
    rest = rest - mean_axes @ (mean_axes.T @ rest)
    return np.asarray(L @ np.concatenate([mean_axes, np.linalg.qr(rest)[0]], axis=1))


def supported(at: Setting, anchor: GateAnchor, C: Floats, scale: Floats, effect: Effect) -> int:
    """Return how many directions to correct along: the mean's, then those along which sources vary unequally.

    Directions are chosen on four fifths of the pairs (of the people, where known). A further one is supported
    if the rows' variances along it differ between sources, by more than two standard errors and by more than
    :data:`MATERIAL`, and the other pairs agree which source varies more: an association of source and task
    shows in the rows, but not in two views of the same events.
    """
    contrasts, moments, r = at.contrasts, at.data.moments, len(C)
    n_mean, n_sources = int(np.linalg.matrix_rank(at.delta)), len(moments.sources)
    folds = contrast_folds(contrasts.values / scale, contrasts.people) if r > n_mean else []
    if not folds:
        return n_mean
    inverse = np.linalg.inv(C)
    scatters = [part.spread.scaled(scale).inside(anchor.residual) for part in moments.parts.values()]
    views, codes = contrasts.views()
    residuals = (views / scale) @ anchor.residual
    agreement = np.zeros(r)
    for train, test in folds:
        chosen = ordered_directions(C, at.delta, contrasts.take(train), at.gate.basis_ / scale[:, None])
        G = inverse @ chosen  # residuals to scores along the directions
        of_rows = [np.sum(G * (S @ G), axis=0) / w for S, w in zip(scatters, moments.weights, strict=True)]
        tested = np.isin(np.arange(len(codes)) % len(contrasts), test)
        of_pairs = [(residuals[tested & (codes == k)] @ G).var(axis=0) for k in range(n_sources)]
        # Rows that differ against the contrast say that the views were given in the other order.
        wider = np.sign(effect.size) * np.sign(of_pairs / np.mean(of_pairs, axis=0) - 1.0)
        agreement += np.mean(wider * (of_rows / np.mean(of_rows, axis=0) - 1.0), axis=0) / len(folds)
    # The variance of n rows has a relative standard error of √(2/n).
    error = np.sqrt(2.0 * np.sum(1.0 / moments.counts)) / n_sources
    good = agreement > max(MATERIAL, 2.0 * error)
    last, quiet = n_mean, 0
    for j in range(n_mean, r):
        quiet = 0 if good[j] else quiet + 1
        last = j + 1 if good[j] else last
        if quiet == QUIET:
            break
    return last
