"""The stages of the iterative construction (Algorithm 1, steps 3 and 4), on numpy arrays or torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._common.arrays import cast, double, namespace
from .anchor import ConditionalMean, fit_anchor
from .critics import HIDDEN_WIDTH, Critic, fit_linear, fit_network
from .effect import Effect, within_anchor
from .errors import MissingEvidence
from .gate import MeasurementGate, fit_gate
from .labels import Labels, to_numpy
from .linalg import Scatter
from .maps import AffineMap, MapInfo, StagedMap
from .moments import Means, Moments, Standardizer
from .pairs import Pairs
from .position import PUBLISHED_RIDGE, GateShift, PositionSettings, solve_within
from .statistics import LabelledRows
from .trust_region import smooth_weights, step_coefficients

Array = Any  # numpy array or torch tensor
STEP_ROWS = 16384  # rows per block of a step, to limit memory

Critics = tuple[Critic, ...]
ClosedForm = Callable[[Moments], tuple[AffineMap, Effect]]
Floats = NDArray[np.float64]


def all_scores(critics: Critics, H: Array) -> Array:
    """Return the scores of all critics, (n, J)."""
    return namespace(H).concatenate([critic.scores(H) for critic in critics], -1)


@dataclass(frozen=True)
class AffinePoint:
    """The target of a row inside the gate, an affine function of the original row: h - (h G + c) Bᵀ."""

    readout: Array  # G, (d, r)
    offset: Array  # c, (r,)
    direction: Array  # B, (d, r)

    def __call__(self, original: Array) -> Array:
        """Return the points of original rows."""
        # Ignore floating-point warnings from unused vector lanes; rows are finite.
        with np.errstate(invalid="ignore"):
            return original - (original @ self.readout + self.offset) @ self.direction.T


def anchored_point(moments: Moments, basis: Array, ridge: float | None) -> AffinePoint:
    """Return q + B ẑ(q), with ẑ of :func:`~mgpa.effect.within_anchor`, from moments of rows."""
    B, n = double(to_numpy(basis)), moments.count
    anchor = within_anchor(moments.within_scaled(np.ones(len(B))), B, n, len(moments.sources), ridge)
    offset = -moments.means.mean(axis=0) @ anchor.residual
    return AffinePoint(cast(anchor.residual, basis), cast(offset, basis), basis)


@dataclass(frozen=True)
class Stage:
    """One fitted stage: its critics, and the targets of their scores (linear scores first).

    The targets are scores at a point, or weights (J, d), in the complement, and biases (J,).
    """

    critics: Critics
    anchor: AffinePoint | tuple[Array, Array]

    def targets(self, original: Array) -> Array:
        """Return the targets of the scores of original rows, (n, J)."""
        if isinstance(self.anchor, AffinePoint):
            return all_scores(self.critics, self.anchor(original))
        weight, bias = self.anchor
        return original @ weight.T + bias

    def residuals(self, H: Array, original: Array) -> Array:
        """Return the difference of each score from its target."""
        return all_scores(self.critics, H) - self.targets(original)


@dataclass(frozen=True)
class Recipe:
    """The settings of a fit that do not depend on its rows."""

    critics: tuple[str, ...]
    target: str
    damping: float
    radius: float  # absolute length
    stabilizer: float
    ridge: float | None  # None: cross-validated for target "within", as published for other targets
    epochs: int
    learning_rate: float
    patience: int | None  # None: no early stopping
    seed: int
    sources: Labels  # sorted labels
    basis: Array
    anchor_basis: Array
    n_networks: int = 1  # number of networks averaged in the GELU critic

    def move(self, stage: Stage | AffinePoint, H: Array, original: Array) -> Array:
        """Return h + B Δz, with the bounded step Δz, for the current rows H of inputs ``original``."""
        if isinstance(stage, AffinePoint):
            return stage(original)
        xp = namespace(H)
        out = []
        for start in range(0, len(H), STEP_ROWS):
            rows = slice(start, start + STEP_ROWS)
            parts = [critic.gated(H[rows], self.basis) for critic in stage.critics]
            scores = xp.concatenate([part[0] for part in parts], -1)
            A = xp.concatenate([part[1] for part in parts], 1)
            e = scores - stage.targets(original[rows])
            # Float64, because with more scores than gate directions rounding grows by 1 / damping.
            wide = double(A)
            gram = wide @ xp.swapaxes(wide, -1, -2)
            W = smooth_weights(xp.einsum("njj->nj", gram), self.stabilizer)
            y = W * step_coefficients(
                gram * W[:, :, None] * W[:, None, :], double(e) * W, damping=self.damping, radius=self.radius
            )
            out.append(cast(-xp.einsum("nj,njr->nr", y, wide), A))
        return H + xp.concatenate(out, 0) @ self.basis.T


class Rows:
    """Standardised rows, which change from stage to stage; paired views have an ``event``."""

    def __init__(self, H: Array, codes: Any = None, weight: Any = None, event: Any = None) -> None:
        self.H = self.original = H
        self.codes, self.weight, self.event = codes, weight, event

    def take(self, chosen: NDArray[np.intp]) -> Rows:
        """Return the selected original rows."""
        optional = (None if array is None else array[chosen] for array in (self.weight, self.event))
        return Rows(self.original[chosen], self.codes[chosen], *optional)

    @cached_property
    def moments(self) -> Moments:
        """Moments of the original rows for each source."""
        return Moments.from_rows(self.original, self.codes, self.weight)

    def movement(self) -> float:
        """Return the relative movement of the rows so far, ‖H' - H‖ / ‖H‖."""
        norm = namespace(self.H).linalg.norm
        return float(norm(self.H - self.original) / norm(self.original))


class Trajectory:
    """One run of the iterative method: its fitting rows and the stages so far."""

    def __init__(self, recipe: Recipe, rows: Rows, held: Rows | None = None) -> None:
        self.recipe, self.rows, self.held = recipe, rows, held
        self.stages: list[Stage | AffinePoint] = []  # the first stage may be the closed form

    @cached_property
    def anchor(self) -> AffinePoint | ConditionalMean:
        """The fixed anchor of a fit: the anchored point, or the regression of scores on Q."""
        recipe, rows = self.recipe, self.rows
        if recipe.target == "within":
            return anchored_point(rows.moments, recipe.anchor_basis, recipe.ridge)
        ridge = PUBLISHED_RIDGE if recipe.ridge is None else recipe.ridge
        weight = None if rows.weight is None else cast(rows.weight, rows.H, namespace(rows.H).float64)
        return ConditionalMean(rows.original, double(recipe.anchor_basis), ridge, weight)

    def fit_stage(self) -> Stage:
        """Fit critics on the current rows, and their anchors (Algorithm 1, step 3)."""
        critics, H = self._fit_critics(), self.rows.H
        if isinstance(self.anchor, AffinePoint):
            return Stage(critics, self.anchor)
        weight, bias = fit_anchor(self.recipe.target, self.anchor, double(all_scores(critics, H)))
        return Stage(critics, (cast(weight, H), cast(bias, H)))

    def advance(self, stage: Stage | AffinePoint) -> None:
        """Move fitting and held-out rows by the stage's bounded step (Algorithm 1, step 4)."""
        for rows in (self.rows, self.held):
            if rows is not None:
                rows.H = self.recipe.move(stage, rows.H, rows.original)
        self.stages.append(stage)

    def _fit_critics(self) -> Critics:
        recipe, rows, K = self.recipe, self.rows, len(self.recipe.sources)
        critics: list[Critic] = []
        if {"linear", "lbfgs"} & set(recipe.critics):
            lbfgs = "lbfgs" in recipe.critics
            critics.append(fit_linear(rows.H, rows.codes, K, rows.weight, lbfgs=lbfgs))
        if "gelu" in recipe.critics:
            first_seed = recipe.seed + 20001 + 1009 * len(self.stages)
            judges = self.held if recipe.patience is not None else None
            network = fit_network(
                rows.H,
                rows.codes,
                K,
                seeds=[first_seed + 7919 * i for i in range(recipe.n_networks)],
                epochs=recipe.epochs,
                learning_rate=recipe.learning_rate,
                sample_weight=rows.weight,
                held=None if judges is None else (judges.H, judges.codes),
                patience=recipe.patience or 0,
            )
            critics.append(network)
        return tuple(critics)


def staged_map(
    stages: Sequence[Stage | AffinePoint],
    recipe: Recipe,
    basis: Any,
    standardizer: Standardizer,
    *,
    anchored: AffinePoint | None = None,
    info: MapInfo,
) -> StagedMap:
    """Return fitted stages as a stored map, with the gate ``basis`` in float64."""
    d, K = len(basis), len(recipe.sources)
    n_scores = K if K > 2 else 1  # scores per critic
    n_linear = n_scores * bool({"linear", "lbfgs"} & set(recipe.critics))
    n_network = n_scores * ("gelu" in recipe.critics)
    n_hidden = HIDDEN_WIDTH * recipe.n_networks * bool(n_network)
    n_anchors = (n_linear + n_network) * (anchored is None)
    starts = [stage for stage in stages if isinstance(stage, AffinePoint)]
    fitted = [stage for stage in stages if isinstance(stage, Stage)]

    def stack(parts: list[Critic], name: str, *shape: int) -> NDArray[np.float32]:
        out = np.zeros((len(stages), *shape), dtype=np.float32)  # a start has no scores
        for k, part in enumerate(parts, start=len(starts)):
            out[k] = to_numpy(getattr(part, name))
        return out

    # Constant features of the fit must not influence the map, even if they vary later.
    varies = standardizer.varies.astype(np.float32)
    linear = [c for stage in fitted for c in stage.critics if c.hidden_weight is None]
    network = [c for stage in fitted for c in stage.critics if c.hidden_weight is not None]
    anchor_weight, anchor_bias = (
        np.zeros((len(stages), *shape), dtype=np.float32) for shape in ((n_anchors, d), (n_anchors,))
    )
    for k, stage in enumerate(fitted, start=len(starts)):
        if isinstance(stage.anchor, tuple):
            anchor_weight[k], anchor_bias[k] = map(to_numpy, stage.anchor)
    return StagedMap(
        center=standardizer.center,
        scale=standardizer.scale,
        basis=np.asarray(basis, dtype=np.float64),
        linear_weight=stack(linear, "weight", n_linear, d) * varies,
        linear_bias=stack(linear, "bias", n_linear),
        hidden_weight=stack(network, "hidden_weight", n_hidden, d) * varies,
        hidden_bias=stack(network, "hidden_bias", n_hidden),
        output_weight=stack(network, "weight", n_network, n_hidden),
        output_bias=stack(network, "bias", n_network),
        anchor_weight=anchor_weight,
        anchor_bias=anchor_bias,
        **_affine_arrays(anchored, starts, varies),
        damping=recipe.damping,
        radius=recipe.radius,
        stabilizer=recipe.stabilizer,
        info=info,
    )


def _affine_arrays(
    anchored: AffinePoint | None, starts: list[AffinePoint], varies: NDArray[np.float32]
) -> dict[str, Any]:
    """Return the arrays of the anchored point and of the closed form as a first stage, for a map."""
    arrays = {}
    if anchored is not None:
        arrays["anchor_readout"] = double(to_numpy(anchored.readout)) * varies[:, None]
        arrays["anchor_offset"] = double(to_numpy(anchored.offset))
        arrays["anchor_direction"] = double(to_numpy(anchored.direction))
    for start in starts:
        arrays["start_readout"] = double(to_numpy(-start.readout)) * varies[:, None]
        arrays["start_offset"] = double(to_numpy(-start.offset))
    return arrays


def supported_basis(
    gate: Any, pairs: Pairs, standardizer: Standardizer, spread: Callable[[], Scatter]
) -> Floats:
    """Return the part of a gate that held-out pairs support, or else the mean contrast."""
    B: Floats = gate.basis_
    if getattr(gate, "rank", None) == "auto":
        return B
    inside = pairs.contrasts / standardizer.scale @ B @ B.T * standardizer.scale
    try:
        projected = replace(pairs, a=np.zeros_like(inside), b=inside)
        return np.asarray(fit_gate(MeasurementGate(), projected, standardizer, lambda: B.T, spread).basis_)
    except MissingEvidence:
        mean = inside.mean(axis=0) / standardizer.scale
        return np.asarray(mean[:, None] / np.linalg.norm(mean)) if mean.any() else B[:, :0]


def closed_form(
    data: LabelledRows,
    views: Pairs | None,
    pairs: Pairs,
    standardizer: Standardizer,
    B: Floats,
    ridge: float | str,
) -> ClosedForm | None:
    """Return the closed form within sources, in the gate B, as a function of moments of standardised rows.

    Returns None if pairs show no mean contrast or do not connect all sources.
    """
    try:
        effects = pairs.source_effects(len(data.sources))
    except ValueError:  # pairs do not connect all sources
        return None
    shift = GateShift.of(pairs, effects, standardizer.scale, B)
    if not shift.mean.any():
        return None
    participants, calibration = Means({}), Moments({})
    if data.participant is not None:
        rows, weight = standardizer.apply(data.X), data.sample_weight
        participants = Means.from_rows(rows, data.codes, data.participant, sample_weight=weight)
    for code, side in enumerate(() if views is None else (views.a, views.b)):
        calibration += Moments.from_rows(standardizer.apply(side), np.full(len(side), code))

    settings = PositionSettings(ridge=ridge, do_no_harm=False)

    def solve(moments: Moments) -> tuple[AffineMap, Effect]:
        by_code = Moments(dict(enumerate(moments.parts.values())))  # with source codes, as in pairs
        path, _, effect = solve_within(
            by_code, participants, calibration, standardizer.unscaled(), shift, settings
        )
        return path, effect

    return solve


@contextmanager
def complete_stages_kept(finish: Callable[[], None]) -> Iterator[None]:
    """Call ``finish`` at the end of a fit, even after Ctrl-C, because the stages so far form a map."""
    try:
        yield
    except KeyboardInterrupt:
        finish()
        raise
    finish()
