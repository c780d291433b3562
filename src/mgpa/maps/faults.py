"""Broken features, detected from the spread of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import first_few
from .population import Population, shape_of

Floats = NDArray[Any]

DEAD, CHANGED = 0.03, 1.6  # standard deviation as a multiple of the fitted one
# The spread is that of batches of one participant; rows of many differ from it a little, and often clearly.
LEAST_SCALED = 1.2
MOST_LEFT = 3.0  # times the fitted variance, after signs are changed back


@dataclass(frozen=True)
class Faults:
    """Problems in the spread of a batch, by positions of features.

    ``z`` has three numbers in standard deviations over batches of held-out participants: the spread of all
    coordinates, that of the smaller axes relative to the larger axes (which shows flipped, dead and noisy
    features), and that of the larger axes.
    """

    n_rows: int
    z: tuple[float, ...]
    dead: tuple[int, ...]
    scaled: tuple[int, ...]
    flipped: tuple[int, ...]
    gain: float
    limit: float

    def sentences(self, name: Any) -> list[str]:
        """Return the problems as sentences; ``name`` returns the name of a feature from its position."""
        words = []

        def listed(positions: tuple[int, ...]) -> str:
            return f"{len(positions)} features ({first_few([name(i) for i in positions], 4)})"

        if self.dead:
            words.append(f"Dead: {listed(self.dead)} hardly vary in {self.n_rows} rows.")
        as_usual = 1 / LEAST_SCALED < self.gain < LEAST_SCALED
        if abs(self.z[0]) > self.limit and abs(self.z[1]) <= self.limit and not as_usual:
            words.append(f"Scaled: rows vary {self.gain:.2g} times as much as the fitted ones.")
        if self.z[1] > self.limit and not self.dead:
            why = "features are flipped, mixed up or noise"
            if self.flipped:
                why = f"{listed(self.flipped)} look flipped"
            words.append(f"Features do not vary together as in the fit: {why}.")
        if min(self.z[1], -abs(self.z[2])) < -2.0 * self.limit and abs(self.z[0]) <= self.limit:
            words.append(
                "Variance is distributed over the axes otherwise than in the fit (filters, reference?)."
            )
        if self.scaled:
            words.append(f"Scaled: {listed(self.scaled)}, relative to the others.")
        return words


def find_faults(population: Population, X: Floats, apart: Floats | None = None) -> Faults:
    """Return what is wrong with the spread of rows: dead, scaled or flipped features, or noise.

    ``apart`` are the rows about the means of their devices, where there may be several.
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
    """Return the features whose change of sign makes centred rows vary as in the fit, one after another."""
    d = apart.shape[1]
    signs = np.ones(d)
    if d > most:
        return signs < 0
    joint = (whiten @ whiten.T) * (apart.T @ apart / len(apart))
    own = np.diag(joint).copy()
    for _ in range(d):
        gain = signs * (joint @ signs) - own  # what each adds to the distance by how it varies with others
        worst = int(np.argmax(np.where(skip, -np.inf, gain)))
        if gain[worst] <= 1e-9 * own.sum():
            break
        signs[worst] *= -1.0
    if signs @ joint @ signs > MOST_LEFT * whiten.shape[1]:
        return signs > 1  # changes of sign do not explain it
    flipped = signs < 0
    return flipped if 2 * flipped.sum() <= d else ~flipped
