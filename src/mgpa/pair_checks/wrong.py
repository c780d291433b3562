"""Two tests for wrong pairs, whose views are of different events.

*By better matches* (:func:`suspect_by_distance`). Every distance within a pair comes from a correct pair,
with density f, or is like those of mismatched views, with density g. A noisy pair fits no other event better.
A wrong pair does, if its event is among the pairs. So with the shares w of wrong and v of noisy pairs, the
likelihood is

    Σ log[(1 - w - v) f/g + w · (mean of f/g over the other events) + v],

and its maximum is compared with that of w = 0. This test names the events of wrong pairs, and it works if
noise is below the signal.

*By shared signal* (:func:`suspect_by_signal`). Noise makes the difference of two views larger, and their sum
no smaller. In a wrong pair, the difference is larger and the sum smaller, because its views share no signal.
Along every axis let the views of an event have the variance T, of which ρT is shared. Then difference and sum
are normal with the variances

    right, with noise of the scale c:   2c(1 - ρ)T   and   4ρT + 2c(1 - ρ)T,
    wrong:                              2T           and   2T.

Pairs are a mixture of right ones with noise of several scales and, or not, of wrong ones; ρ and the shares
are fitted with and without (EM). Twice the log likelihood ratio is compared with that of right pairs
simulated without them: their events are midpoints, their noise differences of pairs drawn at random. This
needs no event to be recognised. Participants with several events are compared within.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .views import (
    FOLDS,
    Floats,
    Ints,
    aligning_slopes,
    centred_within,
    predicted,
    principal_coordinates,
)

# Twice the log likelihood ratio from which on pairs are doubted, and called wrong: see how_often_wrong.md.
DOUBTED, CLEAR = 1.0, 4.0
SIGNAL_DOUBTED, SIGNAL_CLEAR = 2.0, 10.0  # the same, by what pairs share
DRAWS, MOST_ABOVE = 99, 2  # simulations of right pairs; how many may reach what is doubted (none if clear)
SCALES = np.array([0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0])  # of noise
SHRINKAGE = 10.0  # pairs that the mean share of signal counts as, along each axis
FEWEST, FEWEST_TOGETHER = 12, 4  # pairs; events of a participant that are compared within
STEPS, CONVERGED = 60, 1e-3


@dataclass(frozen=True)
class Suspicion:
    """Evidence for wrong pairs: their share, twice the log likelihood ratio, and each pair's probability."""

    doubted: bool
    clear: bool
    share: float
    evidence: float
    probability: Floats
    belongs_to: Ints | None = (
        None  # the event whose first view each second view fits best, if that can be told
    )


def suspect(a: Floats, b: Floats, units: Ints, kind: Ints, rng: np.random.Generator) -> Suspicion:
    """Return evidence for wrong pairs, by better matches or, if these are not clear, by shared signal.

    ``a`` and ``b`` are comparable views (:func:`mgpa.pair_checks.views.comparable`).
    """
    along = principal_coordinates(a, b)
    by_distance = suspect_by_distance(*along, units, kind, rng)
    if by_distance.clear:
        return by_distance
    by_signal = suspect_by_signal(a, b, along, units, kind, rng)
    if by_signal.clear or (by_signal.doubted and not by_distance.doubted):
        return by_signal
    return by_distance


def suspect_by_distance(a: Floats, b: Floats, units: Ints, kind: Ints, rng: np.random.Generator) -> Suspicion:
    """Return evidence for pairs that fit other events better than their own."""
    share, evidence, probability, other = wrong_pairs(pair_distances(a, b, units, kind, rng))
    return Suspicion(evidence > DOUBTED, evidence > CLEAR, share, evidence, probability, other)


def suspect_by_signal(
    a: Floats, b: Floats, along: tuple[Floats, Floats], units: Ints, kind: Ints, rng: np.random.Generator
) -> Suspicion:
    """Return evidence for pairs whose views share no signal; ``along`` are the views in principal axes."""
    nothing = Suspicion(False, False, 0.0, 0.0, np.zeros(len(a)))
    label = np.unique(units * (kind.max() + 1) + kind, return_inverse=True)[1]
    size = np.bincount(label)
    alone = size.max() == 1
    # One pair a participant: compared over all. Several: within participants that have enough.
    kept = np.arange(len(a)) if alone else np.flatnonzero(size[label] >= FEWEST_TOGETHER)
    if len(kept) < FEWEST:
        return nothing
    group = np.unique(kind[kept] if alone else label[kept], return_inverse=True)[1]
    if alone and not kind.any():  # views are centred in their only group, and the axes the same
        a, b = centred_within(*along, group)
    else:
        a, b = principal_coordinates(*centred_within(a[kept], b[kept], group))
    fold_units = np.unique(units[kept], return_inverse=True)[1]
    if fold_units.max() + 1 < FOLDS:
        fold_units = np.arange(len(kept))
    slopes, *_ = aligning_slopes(a, b, fold_units, kind[kept], rng)
    first, second = np.empty_like(a), np.empty_like(b)
    for rows, slope in slopes:
        first[rows], second[rows] = predicted(a[rows], b[rows], slope)
    first, second = principal_coordinates(first, second)
    right, mixed = SharedSignal.fit(first, second, False), SharedSignal.fit(first, second, True)
    evidence = 2.0 * (mixed.likelihood - right.likelihood)
    if evidence <= SIGNAL_DOUBTED:
        return nothing
    above = as_extreme(first, second, right, evidence, group, rng)
    probability = np.zeros(len(units))
    probability[kept] = mixed.wrong
    clear = evidence > SIGNAL_CLEAR and above == 0
    return Suspicion(above <= MOST_ABOVE, clear, float(mixed.wrong.mean()), evidence, probability)


@dataclass(frozen=True)
class SharedSignal:
    """A mixture of right pairs, with noise of several scales, and of wrong ones."""

    likelihood: float
    scale: Floats  # of each pair's noise
    wrong: Floats  # each pair's probability of being wrong

    @classmethod
    def fit(cls, a: Floats, b: Floats, some_are_wrong: bool) -> SharedSignal:
        """Return the mixture that fits both views best, by EM."""
        sums, differences = (a + b) ** 2, (b - a) ** 2
        both, product = (sums + differences) / 4, (sums - differences) / 4
        total = np.maximum(both.mean(axis=0), 1e-9)
        shared = np.clip(product.mean(axis=0) / total, 0.05, 0.95)
        n_scales, last = len(SCALES), -np.inf
        shares = np.full(n_scales + some_are_wrong, 0.01)
        shares[:n_scales][SCALES == 1.0] = 1.0
        if some_are_wrong:
            shares[-1] = 0.1
        shares /= shares.sum()
        for _ in range(STEPS):
            noise = 2.0 * SCALES[:, None] * (1.0 - shared) * total
            logs = log_normal(differences, noise) + log_normal(sums, 4.0 * shared * total + noise)
            if some_are_wrong:
                logs = np.vstack([logs, log_normal(sums + differences, 2.0 * total[None], 2)])
            top = logs.max(axis=0)
            joint = np.exp(logs - top) * shares[:, None]
            each = joint.sum(axis=0)
            likelihood, belongs = float(np.sum(np.log(each) + top)), joint / each
            shares = belongs.mean(axis=1)
            weight = (belongs[:n_scales] / np.maximum(SCALES, 1.0)[:, None]).sum(axis=0)
            n, products, squares = weight.sum(), weight @ product, weight @ both
            total = np.maximum(squares / n, 1e-9)
            mean = products.sum() / squares.sum()
            shared = np.clip((products / total + SHRINKAGE * mean) / (n + SHRINKAGE), 0.01, 0.98)
            if abs(likelihood - last) < CONVERGED:
                break
            last = likelihood
        right = belongs[:n_scales]
        scale = SCALES @ right / np.maximum(right.sum(axis=0), 1e-300)
        return cls(likelihood, scale, belongs[-1] if some_are_wrong else np.zeros(len(a)))


def log_normal(squares: Floats, variance: Floats, times: int = 1) -> Floats:
    """Return log densities (variances, pairs) of independent normals, ``times`` of each variance."""
    return np.asarray(-0.5 * ((1.0 / variance) @ squares.T + times * np.log(variance).sum(axis=1)[:, None]))


def as_extreme(
    a: Floats, b: Floats, right: SharedSignal, evidence: float, group: Ints, rng: np.random.Generator
) -> int:
    """Return the number of draws in which simulated correct pairs show as much evidence; stop if too many."""
    m = len(a)
    sums, differences = a + b, b - a
    noise = np.mean(differences**2 / right.scale[:, None], axis=0)
    signal = np.mean(sums**2 / np.maximum(right.scale, 1.0)[:, None], axis=0) - noise
    midpoints = sums / 2
    midpoints *= np.sqrt(np.clip(signal / 4, 0.0, None) / np.maximum(midpoints.var(axis=0), 1e-12))

    def view(events: Floats) -> Floats:
        drawn = differences[rng.integers(m, size=m)] / np.sqrt(2.0)
        return np.asarray(events + drawn * rng.choice([-1.0, 1.0], (m, 1)))

    above = 0
    for _ in range(DRAWS):
        events = midpoints[rng.integers(m, size=m)]
        x, y = principal_coordinates(*centred_within(view(events), view(events), group))
        with_wrong, without = (SharedSignal.fit(x, y, some).likelihood for some in (True, False))
        above += 2.0 * (with_wrong - without) >= evidence
        if above > MOST_ABOVE:
            break
    return above


def pair_distances(a: Floats, b: Floats, units: Ints, kind: Ints, rng: np.random.Generator) -> Floats:
    """Return distances of the second view of every event (rows) from the first view of all (columns).

    Contrasts are predicted from midpoints first, as gains and rotations make them (fitted on other units'
    pairs, without those far off), if that brings views closer. Directions count as far as pairs are closer
    along them than mismatched views. The cube root makes sums of squares nearly normal. Views of different
    kinds are infinitely far.
    """
    slopes, own, others, best = aligning_slopes(a, b, units, kind, rng)
    variance = np.median(others**2, axis=0)
    variance = np.maximum(variance, 1e-6 * variance.max())
    share = (len(a) * np.median(own**2, axis=0) / variance + 20.0 * best) / (len(a) + 20.0)
    weight = np.sqrt((1.0 / np.clip(share, 0.02, 0.98) - 1.0) / variance)
    found = np.empty((len(a), len(a)))
    for rows, slope in slopes:
        first, second = predicted(a, b, slope)
        first, second = first * weight, second[rows] * weight
        squared = np.sum(second**2, axis=1)[:, None] + np.sum(first**2, axis=1) - 2.0 * second @ first.T
        found[rows] = np.cbrt(np.clip(squared, 0.0, None))
    found[kind[:, None] != kind] = np.inf
    return found


def wrong_pairs(distances: Floats) -> tuple[float, float, Floats, Ints]:
    """Return the share of wrong pairs, its evidence, each pair's probability, and where it belongs.

    ``distances`` (m, m) are those of :func:`pair_distances`, its diagonal that of the pairs.
    """
    m, own = len(distances), np.diag(distances).copy()
    off = ~np.eye(m, dtype=bool) & np.isfinite(distances)
    unlike = Smoothed(distances[off], own.max())
    middle, width = right_distances(own, unlike)
    ratio = normal_density(own, middle, width) / unlike(own)
    others = np.zeros((m, m))
    others[off] = normal_density(distances[off], middle, width) / unlike(distances[off])
    elsewhere = others.sum(axis=1) / np.maximum(off.sum(axis=1), 1)
    # Each at its best shares: of wrong pairs, and of right ones that noise alone made unlike the others.
    shares = np.concatenate([[0.0], np.geomspace(0.5 / m, 0.95, 20)])
    w, noise = shares[:, None, None], shares[None, :, None]
    mixed = (1 - w - noise) * ratio + w * elsewhere + noise
    possible = (w + noise <= 1.0)[:, :, 0]
    found = np.where(possible, np.sum(np.log(np.maximum(mixed, 1e-300)), axis=2), -np.inf)
    best = np.unravel_index(int(found.argmax()), found.shape)
    share = float(shares[best[0]])
    of_wrong = share * elsewhere / np.maximum(mixed[best], 1e-300)
    return share, float(2.0 * (found[best] - found[0].max())), of_wrong, others.argmax(axis=1)


def normal_density(x: Floats, middle: float, width: float) -> Floats:
    """Return the density of a normal distribution; SciPy's checks take longer than the density."""
    return np.asarray(np.exp(-0.5 * ((x - middle) / width) ** 2) / (np.sqrt(2.0 * np.pi) * width))


class Smoothed:
    """The density of mismatched distances, smoothed by about a tenth of their spread."""

    def __init__(self, distances: Floats, largest: float) -> None:
        self.spread = float(distances.std())
        self.grid = np.linspace(0.0, max(distances.max(), largest) * 1.05 + 1e-12, 512)
        step = self.grid[1] - self.grid[0]
        edges = np.append(self.grid - step / 2, self.grid[-1] + step / 2)
        counts = np.histogram(distances, bins=edges)[0]
        kernel = np.exp(-0.5 * ((self.grid - self.grid[256]) / max(0.15 * self.spread, step)) ** 2)
        self.density = np.convolve(counts / counts.sum(), kernel / kernel.sum(), "same") / step

    def __call__(self, x: Floats) -> Floats:
        """Return the density, which is nowhere zero."""
        return np.asarray(np.maximum(np.interp(x, self.grid, self.density), 1e-4 / self.spread))


def right_distances(own: Floats, unlike: Smoothed) -> tuple[float, float]:
    """Return the mean and the standard deviation of right pairs' distances, where some pairs are wrong."""
    least = 0.02 * unlike.spread
    middle, width = np.median(own), 1.4826 * np.median(np.abs(own - np.median(own)))
    width, right = max(width, least), np.ones(len(own))
    for _ in range(50):
        ratio = normal_density(own, middle, width) / unlike(own)
        share = np.clip(1.0 - right.mean(), 0.01, 0.9)
        right = (1 - share) * ratio / ((1 - share) * ratio + share)
        middle = np.sum(right * own) / right.sum()
        width = max(np.sqrt(np.sum(right * (own - middle) ** 2) / right.sum()), least)
    return float(middle), float(width)


def swapped_units(units: Ints, wrong: NDArray[np.intp], belongs_to: Ints) -> tuple[tuple[int, int], ...]:
    """Return participants whose wrong pairs belong to each other: most pairs of both, and both ways."""
    size, n = np.bincount(units), units.max() + 1
    goes = np.zeros((n, n), np.int64)
    np.add.at(goes, (units[wrong], units[belongs_to[wrong]]), 1)
    most = goes > 0.5 * size[:, None]
    return tuple((p, q) for p in range(n) for q in range(p + 1, n) if most[p, q] and most[q, p])
