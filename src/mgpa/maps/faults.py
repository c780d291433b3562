"""Detect broken features from the spread of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import first_few
from .population import Population, shape_of

Floats = NDArray[Any]

DEAD, CHANGED = 0.03, 1.6  # limits of a feature's standard deviation, as a multiple of that in the fit
# Smallest gain that is reported: batches of many participants clearly differ a little from those of one.
LEAST_SCALED = 1.2
MOST_LEFT = 3.0  # largest variance after restoring signs, as a multiple of the fitted variance


@dataclass(frozen=True)
class Faults:
    """Problems in the spread of a batch, by feature position.

    ``z`` has three z-scores relative to batches of held-out participants: the spread of all coordinates, the
    spread along smaller axes relative to larger axes (which detects flipped, dead and noisy features), and
    the spread along larger axes.
    """

    n_rows: int
    z: tuple[float, ...]
    dead: tuple[int, ...]
    scaled: tuple[int, ...]
    flipped: tuple[int, ...]
    gain: float
    limit: float

    def sentences(self, name: Any) -> list[str]:
        """Return the problems as sentences; ``name`` turns a feature position into a name."""
        words = []

        def listed(positions: tuple[int, ...]) -> str:
            return f"{len(positions)} features ({first_few([name(i) for i in positions], 4)})"

        if self.dead:
            words.append(f"Dead: {listed(self.dead)} hardly vary in {self.n_rows} rows.")
        as_usual = 1 / LEAST_SCALED < self.gain < LEAST_SCALED
        if abs(self.z[0]) > self.limit and abs(self.z[1]) <= self.limit and not as_usual:
            words.append(f"Scaled: rows vary {self.gain:.2g} times as much as in the fit.")
        if self.z[1] > self.limit and not self.dead:
            why = "features are flipped, mixed up or noise"
            if self.flipped:
                why = f"{listed(self.flipped)} look flipped"
            words.append(f"Features do not vary together as in the fit: {why}.")
        if min(self.z[1], -abs(self.z[2])) < -2.0 * self.limit and abs(self.z[0]) <= self.limit:
            words.append("The distribution of variance over axes differs from the fit (filters, reference?).")
        if self.scaled:
            words.append(f"Scaled: {listed(self.scaled)}, relative to the others.")
        return words


def find_faults(population: Population, X: Floats, apart: Floats | None = None) -> Faults:
    """Return problems in the spread of rows: dead, scaled, flipped or noisy features.

    ``apart`` has the rows minus the means of their devices, for rows of several devices.
    """
    apart = X - X.mean(axis=0) if apart is None else apart
    spread = 0.5 * np.log(np.maximum(apart.var(axis=0, ddof=1), np.finfo(np.float64).tiny))
    change = spread - population.spread
    at_all = np.isfinite(change) & (population.varies > 0)
    dead = at_all & (change < np.log(DEAD))
    found = shape_of(apart @ population.whiten, population.top)
    z = (found - population.usual[0]) / population.usual[1]
    limit = float(population.numbers[4])
    odd = np.abs(z) > limit
    alive = at_all & ~dead
    common = float(np.median(change[alive])) if alive.any() else 0.0
    scaled = alive & (np.abs(change - common) > np.maximum(np.log(CHANGED), 3.0 * population.varies))
    flipped = np.zeros(len(change), dtype=bool)
    if odd[1] and not dead.any():
        flipped = flips(apart, population.whiten, scaled)
    return Faults(
        len(X),
        z=tuple(float(v) for v in z),
        dead=tuple(np.flatnonzero(dead).tolist()),
        scaled=tuple(np.flatnonzero(scaled).tolist()) if odd.any() else (),
        flipped=tuple(np.flatnonzero(flipped).tolist()),
        gain=float(np.exp(common)),
        limit=limit,
    )


def flips(apart: Floats, whiten: Floats, skip: NDArray[np.bool_], most: int = 512) -> NDArray[np.bool_]:
    """Return a mask of features with flipped signs, found by greedy search for the covariance of the fit."""
    d = apart.shape[1]
    signs = np.ones(d)
    if d > most:
        return signs < 0
    joint = (whiten @ whiten.T) * (apart.T @ apart / len(apart))
    own = np.diag(joint).copy()
    for _ in range(d):
        gain = signs * (joint @ signs) - own  # each feature's contribution through its covariances
        worst = int(np.argmax(np.where(skip, -np.inf, gain)))
        if gain[worst] <= 1e-9 * own.sum():
            break
        signs[worst] *= -1.0
    if signs @ joint @ signs > MOST_LEFT * whiten.shape[1]:
        return signs > 1  # flipped signs do not explain the difference: return no feature
    flipped = signs < 0
    return flipped if 2 * flipped.sum() <= d else ~flipped
