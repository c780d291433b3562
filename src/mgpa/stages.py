"""The stages of the iterative construction (Algorithm 1, steps 3 and 4), on numpy arrays or torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ._common.arrays import cast, double, namespace
from .anchor import ConditionalMean, Regression, ScoreMoments, fit_anchor
from .critics import LinearCritic, NetworkCritic, fit_linear, fit_network
from .pairs import to_numpy
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
    n_sources: int
    basis: Array
    anchor_basis: Array


def follow(recipe: Recipe, stages: Sequence[Stage], H: Array) -> Array:
    """Return where original rows H are after these stages."""
    original = H
    for stage in stages:
        H = H + recipe.step(stage, H, original, recipe.basis) @ recipe.basis.T
    return H


class AllRows(Protocol):
    """More rows than can be held, of which critics see a draw: standardised, and known by their moments."""

    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean (d,) of the original rows and their scatter (d, d)."""

    def scores(self, recipe: Recipe, stages: Sequence[Stage], critics: Critics) -> ScoreMoments:
        """Return the moments of the critics' scores after these stages, with the original rows."""


class Trajectory:
    """Rows on their way through the stages: critics are fitted on ``H``, ``held`` only follows."""

    def __init__(
        self,
        recipe: Recipe,
        H: Array,
        codes: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None = None,
        held: Array | None = None,
        held_codes: NDArray[np.int64] | None = None,
    ) -> None:
        self.recipe, self.codes, self.sample_weight = recipe, codes, sample_weight
        self.original, self.H = H, H
        self.held_original, self.held, self.held_codes = held, held, held_codes
        self.stages: list[Stage] = []
        # Q never changes, so its ridge factorisation serves every stage.
        basis = double(recipe.anchor_basis)
        weight = None if sample_weight is None else cast(sample_weight, H, namespace(H).float64)
        own = ConditionalMean(H, basis, recipe.ridge, weight)
        self.regression: Regression = own
        self.score_moments: Callable[[Critics], ScoreMoments] = lambda critics: own.moments(
            double(all_scores(critics, self.H))
        )

    def anchor_on(self, all_rows: AllRows) -> None:
        """Fit anchors on more rows than are here from now on: those that these are a draw of."""
        basis, wide = double(self.recipe.anchor_basis), namespace(self.H).float64
        mean, gram = (cast(values, self.H, wide) for values in all_rows.moments())
        self.regression = Regression(mean, gram, basis, self.recipe.ridge)
        self.score_moments = lambda critics: all_rows.scores(self.recipe, self.stages, critics)

    def fit_stage(self, k: int) -> Stage:
        """Fit critics on the current rows and anchors on the original complement (Algorithm 1, step 3)."""
        recipe, seed = self.recipe, self.recipe.seed + 20000 + 1009 * k
        critics: list[LinearCritic | NetworkCritic] = []
        if "linear" in recipe.critics:
            critics.append(fit_linear(self.H, self.codes, recipe.n_sources, self.sample_weight))
        if "gelu" in recipe.critics:
            early = recipe.patience is not None
            critics.append(
                fit_network(
                    self.H,
                    self.codes,
                    recipe.n_sources,
                    seed=seed + 1,
                    epochs=recipe.epochs,
                    learning_rate=recipe.learning_rate,
                    sample_weight=self.sample_weight,
                    validation=(self.held, self.held_codes) if early else None,
                    patience=recipe.patience or 0,
                )
            )
        weight, bias = fit_anchor(recipe.target, self.regression, self.score_moments(tuple(critics)))
        return Stage(tuple(critics), cast(weight, self.H), cast(bias, self.H))

    def residuals(self, stage: Stage) -> NDArray[Any]:
        """Return the held-out score residuals e, (n, J): what the critics read beyond their anchors."""
        return to_numpy(stage.residuals(self.held, self.held_original))

    def advance(self, stage: Stage) -> None:
        """Move fitting and held-out rows by the stage's bounded step (Algorithm 1, step 4)."""
        basis = self.recipe.basis
        self.H = self.H + self.recipe.step(stage, self.H, self.original, basis) @ basis.T
        if self.held is not None:
            self.held = self.held + self.recipe.step(stage, self.held, self.held_original, basis) @ basis.T
        self.stages.append(stage)

    def held_movement(self) -> float | None:
        """Return the relative movement of the held-out rows, ‖H' - H‖ / ‖H‖."""
        if self.held is None:
            return None
        norm = namespace(self.held).linalg.norm
        return float(norm(self.held - self.held_original) / norm(self.held_original))
