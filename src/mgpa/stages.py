"""The stages of the iterative construction (Algorithm 1, steps 3 and 4), on numpy arrays or torch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ._common.arrays import cast, double, namespace
from .anchor import ConditionalMean, PreservedRegression, ScoreMoments, fit_anchor
from .critics import LinearCritic, NetworkCritic, fit_linear, fit_network
from .trust_region import smooth_weights, step_coefficients

Array = Any  # numpy array or torch tensor
STEP_ROWS = 16384  # rows that take a step together, to bound memory

Critics = tuple[LinearCritic | NetworkCritic, ...]


def all_scores(critics: Critics, H: Array) -> Array:
    """Return the scores of all critics, (n, J)."""
    return namespace(H).concatenate([critic.scores(H) for critic in critics], -1)


@dataclass(frozen=True)
class Stage:
    """One fitted stage: its critics and the anchors of their scores (linear scores first)."""

    critics: Critics
    anchor_weight: Array  # (J, d), in the complement
    anchor_bias: Array  # (J,)

    def residuals(self, H: Array, original: Array) -> Array:
        """Return e = s(h) - a(q): how far each score is from its anchor."""
        return all_scores(self.critics, H) - (original @ self.anchor_weight.T + self.anchor_bias)


@dataclass(frozen=True)
class Step:
    """The numerical settings of the bounded step, with the radius absolute."""

    damping: float
    radius: float
    stabilizer: float

    def __call__(self, stage: Stage, H: Array, original: Array, basis: Array) -> Array:
        """Return Δz, shape (n, r), for the current rows H of inputs ``original``."""
        xp = namespace(H)
        out = []
        for start in range(0, len(H), STEP_ROWS):
            rows = slice(start, start + STEP_ROWS)
            parts = [critic.gated(H[rows], basis) for critic in stage.critics]
            scores = xp.concatenate([part[0] for part in parts], -1)
            A = xp.concatenate([part[1] for part in parts], 1)
            e = scores - (original[rows] @ stage.anchor_weight.T + stage.anchor_bias)
            # Float64, since with more scores than gate directions rounding would grow by 1 / damping.
            wide = double(A)
            gram = wide @ xp.swapaxes(wide, -1, -2)
            W = smooth_weights(xp.einsum("njj->nj", gram), self.stabilizer)
            y = W * step_coefficients(
                gram * W[:, :, None] * W[:, None, :], double(e) * W, damping=self.damping, radius=self.radius
            )
            out.append(cast(-xp.einsum("nj,njr->nr", y, wide), A))
        return xp.concatenate(out, 0)


@dataclass(frozen=True)
class Recipe:
    """Everything about a fit that does not depend on its rows."""

    critics: tuple[str, ...]
    target: str
    step: Step
    ridge: float
    epochs: int
    learning_rate: float
    patience: int | None  # None: no source-validation early stopping
    seed: int
    sources: NDArray[Any]  # labels, sorted
    basis: Array
    anchor_basis: Array

    def move(self, stage: Stage, H: Array, original: Array) -> Array:
        """Return h + B Δz for the current rows H of inputs ``original``."""
        return H + self.step(stage, H, original, self.basis) @ self.basis.T


def follow(recipe: Recipe, stages: Sequence[Stage], H: Array) -> Array:
    """Return where original rows H are after these stages."""
    original = H
    for stage in stages:
        H = recipe.move(stage, H, original)
    return H


class Rows:
    """Standardised rows on their way through the stages.

    Parameters
    ----------
    H : array of shape (n, d)
        Where the rows are: at first the original inputs, which ``original`` remembers.
    codes, weight : (n,) arrays or None
        Their sources and weights, where known.
    """

    def __init__(self, H: Array, codes: Any = None, weight: Any = None) -> None:
        self.H = self.original = H
        self.codes, self.weight = codes, weight

    def take(self, chosen: NDArray[np.intp]) -> Rows:
        """Return some of the original rows."""
        weight = None if self.weight is None else self.weight[chosen]
        return Rows(self.original[chosen], self.codes[chosen], weight)

    def movement(self) -> float:
        """Return how far the rows have come, ‖H' - H‖ / ‖H‖."""
        norm = namespace(self.H).linalg.norm
        return float(norm(self.H - self.original) / norm(self.original))


class AllRows(Protocol):
    """More rows than can be held, of which critics see a draw: standardised, and known by their moments."""

    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean (d,) of the original rows and their scatter (d, d)."""

    def scores(self, recipe: Recipe, stages: Sequence[Stage], critics: Critics) -> ScoreMoments:
        """Return the moments of the critics' scores after these stages, with the original rows."""


class Trajectory:
    """A run of the construction: rows that stages are fitted on, and the stages so far.

    Parameters
    ----------
    recipe : Recipe
        How stages are fitted.
    rows : Rows
        What critics and anchors are fitted on.
    held : Rows or None
        Rows that only follow.
    all_rows : AllRows or None
        The rows that ``rows`` are a draw of: anchors are then fitted on all of them.
    """

    def __init__(
        self, recipe: Recipe, rows: Rows, held: Rows | None = None, all_rows: AllRows | None = None
    ) -> None:
        self.recipe, self.rows, self.held, self.all_rows = recipe, rows, held, all_rows
        self.stages: list[Stage] = []
        # Q never changes, so its ridge factorisation serves every stage.
        basis, wide = double(recipe.anchor_basis), namespace(rows.H).float64
        self._regression: PreservedRegression
        if all_rows is None:
            weight = None if rows.weight is None else cast(rows.weight, rows.H, wide)
            self._regression = ConditionalMean(rows.H, basis, recipe.ridge, weight)
        else:
            mean, scatter = (cast(values, rows.H, wide) for values in all_rows.moments())
            self._regression = PreservedRegression(mean, scatter, basis, recipe.ridge)

    def fit_stage(self) -> Stage:
        """Fit critics on the current rows and anchors on the original complement (Algorithm 1, step 3)."""
        critics = self._fit_critics()
        weight, bias = fit_anchor(self.recipe.target, self._regression, self._score_moments(critics))
        return Stage(critics, cast(weight, self.rows.H), cast(bias, self.rows.H))

    def advance(self, stage: Stage) -> None:
        """Move fitting and held-out rows by the stage's bounded step (Algorithm 1, step 4)."""
        for rows in (self.rows, self.held):
            if rows is not None:
                rows.H = self.recipe.move(stage, rows.H, rows.original)
        self.stages.append(stage)

    def _fit_critics(self) -> Critics:
        recipe, rows, K = self.recipe, self.rows, len(self.recipe.sources)
        critics: list[LinearCritic | NetworkCritic] = []
        if "linear" in recipe.critics:
            critics.append(fit_linear(rows.H, rows.codes, K, rows.weight))
        if "gelu" in recipe.critics:
            judges = None
            if recipe.patience is not None and self.held is not None:
                judges = self.held.H, self.held.codes
            critics.append(
                fit_network(
                    rows.H,
                    rows.codes,
                    K,
                    seed=recipe.seed + 20001 + 1009 * len(self.stages),
                    epochs=recipe.epochs,
                    learning_rate=recipe.learning_rate,
                    sample_weight=rows.weight,
                    held=judges,
                    patience=recipe.patience or 0,
                )
            )
        return tuple(critics)

    def _score_moments(self, critics: Critics) -> ScoreMoments:
        if self.all_rows is not None:
            return self.all_rows.scores(self.recipe, self.stages, critics)
        assert isinstance(self._regression, ConditionalMean)
        return self._regression.moments(double(all_scores(critics, self.rows.H)))
