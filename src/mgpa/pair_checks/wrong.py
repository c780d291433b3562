"""Two tests for wrong pairs, which join views of different events.

*By better matches* (:func:`suspect_by_distance`). The distance within a pair has density f for correct pairs.
For wrong and for noisy pairs, it has the density g of mismatched views. A wrong pair fits another event
better, if this event is among the pairs; a noisy pair does not. With the shares w of wrong and v of noisy
pairs, the likelihood is

    Σ log[(1 - w - v) f/g + w · (mean of f/g over the other events) + v],

and its maximum is compared with that of w = 0. This test names the events of wrong pairs, and it works if
noise is below the signal.

*By shared signal* (:func:`suspect_by_signal`). The vector of a noisy view is longer than those of other
views. The views of a wrong pair have usual lengths and no common signal. Along each axis, let a view have the
variance S + cN, of which S is common to both views, with a noise scale c for each view. Then the two views of
an event are normal with

    right:   variances S + cN and S + c'N, covariance S,
    wrong:   the same variances, covariance 0.

Pairs are modelled as a mixture of correct pairs with all noise scales, with or without a component of wrong
pairs; S, N and the shares of scales are fitted for both models (EM). Events need not be recognised. Axes are
principal axes of the views' directions, so that long views have no larger weight and heavy tails of single
features are spread over all axes. Events of one participant are compared with each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

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

# Twice the log likelihood ratio above which pairs are doubted or called wrong: see how_often_wrong.md.
DOUBTED, CLEAR = 1.0, 4.0
# The same for shared signal: a minimum, and an amount per pair (many pairs reveal deviations of the noise
# from the model). A few correct pairs, or those of one participant, may also lack shared signal: the share of
# wrong pairs must exceed a minimum without the most affected participant, and this test never refuses pairs.
SIGNAL_DOUBTED, DOUBTED_PER_PAIR, LEAST_SHARE = 2.0, 0.04, 0.055
SCALES = 3.0 ** np.arange(-3, 4)  # scales of noise
FIRST, SECOND = np.indices((len(SCALES),) * 2).reshape(2, -1)  # scales of both views: all combinations
# Noisy views have less weight for the shared signal.
PRECISION = 1.0 / np.sqrt(np.maximum(SCALES[FIRST], 1.0) * np.maximum(SCALES[SECOND], 1.0))
SHRINKAGE = 3.0  # weight, in pairs, of the mean share of signal for each axis
FIRST_SHARES = 0.1, 0.3  # initial shares of wrong pairs for EM
FEWEST, FEWEST_TOGETHER = 12, 4  # minimum number of pairs, and of events for comparisons within participants
STEPS, CONVERGED = 60, 1e-3


@dataclass(frozen=True)
class Suspicion:
    """Evidence for wrong pairs: share, twice the log likelihood ratio, and probability of each pair."""

    doubted: bool
    clear: bool
    share: float
    evidence: float
    probability: Floats
    belongs_to: Ints | None = None  # the event whose first view each second view fits best, if known


def suspect(a: Floats, b: Floats, units: Ints, kind: Ints, rng: np.random.Generator) -> Suspicion:
    """Return evidence for wrong pairs, by better matches or, if these are not clear, by shared signal.

    ``a`` and ``b`` are comparable views (:func:`mgpa.pair_checks.views.comparable`).
    """
    along = principal_coordinates(a, b)
    by_distance = suspect_by_distance(*along, units, kind, rng)
    if by_distance.clear:
        return by_distance
    by_signal = suspect_by_signal(a, b, along, units, kind, rng)
    return by_signal if by_signal.doubted and not by_distance.doubted else by_distance


def suspect_by_distance(a: Floats, b: Floats, units: Ints, kind: Ints, rng: np.random.Generator) -> Suspicion:
    """Return evidence for pairs that fit other events better than their own."""
    share, evidence, probability, other = wrong_pairs(pair_distances(a, b, units, kind, rng))
    return Suspicion(evidence > DOUBTED, evidence > CLEAR, share, evidence, probability, other)


def suspect_by_signal(
    a: Floats, b: Floats, along: tuple[Floats, Floats], units: Ints, kind: Ints, rng: np.random.Generator
) -> Suspicion:
    """Return evidence for pairs whose views share no signal; ``along`` are the views in principal axes.

    This evidence is never called clear, because pairs of real devices may share less than the model assumes.
    """
    nothing = Suspicion(False, False, 0.0, 0.0, np.zeros(len(a)))
    label = np.unique(units * (kind.max() + 1) + kind, return_inverse=True)[1]
    size = np.bincount(label)
    alone = size.max() == 1
    # With one pair per participant, compare all pairs; otherwise, compare within participants.
    kept = np.arange(len(a)) if alone else np.flatnonzero(size[label] >= FEWEST_TOGETHER)
    if len(kept) < FEWEST:
        return nothing
    group = np.unique(kind[kept] if alone else label[kept], return_inverse=True)[1]
    if alone and not kind.any():  # views are already centred, and the axes stay the same
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
    first, second = along_directions(*principal_coordinates(first, second))
    evidence, mixed = signal_evidence(first, second)
    probability = np.zeros(len(units))
    probability[kept] = mixed.wrong
    by_participant = np.bincount(units, probability)
    share, beside = by_participant.sum() / len(a), (by_participant.sum() - by_participant.max()) / len(a)
    least = max(SIGNAL_DOUBTED, DOUBTED_PER_PAIR * len(a))
    doubted = bool(beside > LEAST_SHARE and evidence > least)
    return Suspicion(doubted, False, float(share), evidence, probability)


def signal_evidence(a: Floats, b: Floats) -> tuple[float, Mixture]:
    """Return twice the log likelihood ratio for wrong pairs, and the mixture with them."""
    right = fit_mixture(a, b)
    mixtures = [fit_mixture(a, b, right, share) for share in FIRST_SHARES]
    mixed = max(mixtures, key=lambda fitted: fitted.likelihood)
    return 2.0 * (mixed.likelihood - right.likelihood), mixed


def along_directions(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return both views along the principal axes of their directions, which ignore lengths."""
    views = np.concatenate([a, b])
    views /= np.maximum(np.linalg.norm(views, axis=1, keepdims=True), 1e-300)
    axes = np.linalg.eigh(views.T @ views)[1]
    return a @ axes, b @ axes


@dataclass(frozen=True)
class Mixture:
    """A mixture of correct pairs, with a noise scale for each view, and wrong pairs."""

    shared: Floats  # S, the variance that both views share, by axis
    noise: Floats  # N, the variance of noise of scale 1, by axis
    scales: Floats  # share of pairs with each combination of noise scales (FIRST, SECOND)
    likelihood: float = -np.inf
    wrong: Floats = field(default_factory=lambda: np.zeros(0))  # each pair's probability of being wrong


def fit_mixture(a: Floats, b: Floats, start: Mixture | None = None, wrong_share: float = 0.0) -> Mixture:
    """Return the mixture that fits both views best (EM); without wrong pairs if ``wrong_share`` is 0."""
    first, second, products, apart = a * a, b * b, a * b, (b - a) ** 2
    if start is None:
        total = np.maximum((first + second).mean(axis=0) / 2, 1e-9)
        shared = np.clip(products.mean(axis=0) / total, 0.05, 0.95) * total
        scales = np.where((SCALES[FIRST] == 1.0) & (SCALES[SECOND] == 1.0), 1.0, 0.01)
        start = Mixture(shared, total - shared, scales / scales.sum())
    share, at, found = wrong_share, start, []
    for _ in range(STEPS):
        variances = at.shared + SCALES[:, None] * at.noise
        logs = log_right(first, second, products, variances, at.shared) + log(at.scales)
        if wrong_share > 0:
            wrong = log_wrong(first, second, variances, at.scales)
            logs = np.hstack([logs + log(1.0 - share), wrong + log(share)])
        top = logs.max(axis=1, keepdims=True)
        joint = np.exp(logs - top)
        each = joint.sum(axis=1, keepdims=True)
        belongs, right = joint / each, joint[:, : len(FIRST)] / each
        found.append(replace(at, likelihood=float(np.sum(np.log(each) + top)), wrong=1.0 - right.sum(axis=1)))
        if len(found) > 1 and abs(found[-1].likelihood - found[-2].likelihood) < CONVERGED:
            break
        share = float(np.clip(1.0 - right.sum() / len(a), 1e-6, 0.9))
        scales = belongs.reshape(len(a), -1, len(FIRST)).sum(axis=(0, 1)) / len(a)
        at = Mixture(*shared_and_noise(right, products, apart), scales)
    return max(found, key=lambda fitted: fitted.likelihood)


def shared_and_noise(right: Floats, products: Floats, apart: Floats) -> tuple[Floats, Floats]:
    """Return S and N, given each pair's probabilities of being correct with each combination of scales.

    The shares of S along the axes are slightly shrunk toward their mean.
    """
    noise = right @ (1.0 / (SCALES[FIRST] + SCALES[SECOND])) @ apart / right.sum()
    noise, weight = np.maximum(noise, 1e-9), right @ PRECISION
    products, n = weight @ products / weight.sum(), weight.sum()
    total = np.maximum(products, 0.0) + noise
    mean = np.clip(products.sum() / (products.sum() + noise.sum()), 0.01, 0.98)
    part = np.clip((n * products / total + SHRINKAGE * mean) / (n + SHRINKAGE), 0.01, 0.98)
    return part * total, (1.0 - part) * total


def log(x: Any) -> Any:
    """Return the logarithm, with a finite value for x = 0."""
    return np.log(np.maximum(x, 1e-300))


def log_right(first: Floats, second: Floats, products: Floats, variances: Floats, shared: Floats) -> Floats:
    """Return log densities of correct pairs for all scales of both views, from squares of the views."""
    a, b = variances[FIRST], variances[SECOND]
    determinant = a * b - shared**2
    inner = first @ (b / determinant).T + second @ (a / determinant).T
    inner -= 2.0 * products @ (shared / determinant).T
    return np.asarray(-0.5 * (inner + np.log(determinant).sum(axis=1)))


def log_wrong(first: Floats, second: Floats, variances: Floats, scales: Floats) -> Floats:
    """Return log densities of wrong pairs for all scales of both views, including the shares of scales."""
    a, b = (-0.5 * (x @ (1.0 / variances).T + np.log(variances).sum(axis=1)) for x in (first, second))
    joint = scales.reshape(len(SCALES), len(SCALES))
    chance = np.outer(joint.sum(axis=1), joint.sum(axis=0)).ravel()
    return np.asarray(a[:, FIRST] + b[:, SECOND] + log(chance))


def pair_distances(a: Floats, b: Floats, units: Ints, kind: Ints, rng: np.random.Generator) -> Floats:
    """Return distances of the second view of each event (rows) to the first views of all events (columns).

    Contrasts from gains and rotations are first predicted from midpoints (fitted on pairs of other units,
    without outliers), if this brings views closer. Directions are weighted by how much closer pairs are than
    mismatched views. The cube root makes sums of squares nearly normal. Views of different kinds have
    infinite distances.
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
    """Return the share of wrong pairs, its evidence, the probability of each pair, and the best match.

    ``distances`` (m, m) are those of :func:`pair_distances`; the diagonal has the distances within pairs.
    """
    m, own = len(distances), np.diag(distances).copy()
    off = ~np.eye(m, dtype=bool) & np.isfinite(distances)
    unlike = Smoothed(distances[off], own.max())
    middle, width = right_distances(own, unlike)
    ratio = normal_density(own, middle, width) / unlike(own)
    others = np.zeros((m, m))
    others[off] = normal_density(distances[off], middle, width) / unlike(distances[off])
    elsewhere = others.sum(axis=1) / np.maximum(off.sum(axis=1), 1)
    # Maximise over the shares of wrong pairs and of correct pairs with unusual noise.
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
    """Return mean and standard deviation of distances within correct pairs, if some pairs are wrong."""
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
    """Return pairs of participants with exchanged views: most pairs of each fit the other participant."""
    size, n = np.bincount(units), units.max() + 1
    goes = np.zeros((n, n), np.int64)
    np.add.at(goes, (units[wrong], units[belongs_to[wrong]]), 1)
    most = goes > 0.5 * size[:, None]
    return tuple((p, q) for p in range(n) for q in range(p + 1, n) if most[p, q] and most[q, p])
