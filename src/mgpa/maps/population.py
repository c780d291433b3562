"""Whether rows come from a device of the fit: a component for one drawn from the population of devices.

In coordinates w whitened within sources, the mean of n rows of a known device s is μ_s plus what people and
content add; that of another device is drawn around the mean of the known ones, with their spread B added:

    known:  t_ν(μ_s, P + I δ/n)          unseen:  t₅(μ̄, P + q B + I δ/n),  q = 1/4, 1, 4 alike.

P is the covariance of participants' means, ν its degrees of freedom, δ ≥ 1 what rows in a row have in common.
The likelihood ratio is an e-value: where a known device was used it exceeds 1 / α at any time with a
probability of α at most. A batch of other content is not another device: along the axes that hold most of the
rows' variance, a mean may move by :data:`CONTENT` before it counts.

Everything here needs numpy alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import lgamma
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MapError

Floats = NDArray[Any]

# A batch with the fitted content in other shares moves a whitened mean by sqrt(χ²) at most: two classes at
# .2 instead of .5: .6; one of five classes at .84: 1.6, and participants differ in how.
CONTENT = 2.0
SPREADS = (0.25, 1.0, 4.0)  # a new device differs half, once or twice as much as the known ones do
HEAVY = 5.0  # degrees of freedom of that
BETWEEN = 0.5  # share of the spread between devices that lies in the span of the known ones
RATE = 1e-3  # of false alarms: of a batch, or of a stream at any time
FEWEST_ROWS, FEWEST_FOR_FAULTS = 5, 20
# Of fewer rows a second device is not expected; devices further apart are asked one by one.
FEW, APART = 0.05, 6.0
MIXED = 0.3  # of the variance of a mixture of devices is that of one
TINY = 1e-12
FAR_OUT = 2.0  # times the median distance, from where rows are drawn in before their spread is measured
RUN = 10  # rows that may be alike because they follow each other


@dataclass(frozen=True)
class Population:
    """The devices of a fit, and the people, in whitened coordinates.

    Attributes
    ----------
    center, whiten : (d,), (d, k)
        w = (x - center) whiten.
    levels : (K, d)
        Mean rows of the devices, in the order of ``info.source_names``: of the same events, where pairs tell.
    people : (k, k)
        P, the covariance of participants' means about their device's.
    spread, varies : (d,), (d,)
        Logarithms of each feature's standard deviation within sources, and how they differ between
        participants.
    gains : (K, d)
        Logarithms of each feature's standard deviation on each device; empty in older files, which tell of
        levels alone.
    usual : (2, 3)
        Mean and standard deviation, over batches of held-out participants, of what :func:`shape_of` returns.
    limits : (3,)
        Shares of a batch that only one batch in a thousand of new participants exceeds: of rows farther out
        than any, or than most, fitting rows, and of rows outside the range of one feature.
    numbers : (6,)
        ν; the length that a row is winsorised to; how many axes hold most variance; participants; how many
        standard deviations from ``usual`` only one batch in a thousand of new participants is; and, where
        participants are unknown and windows of rows stand for them, how many rows those have, else 0.
    """

    center: Floats
    whiten: Floats
    levels: Floats
    people: Floats
    spread: Floats
    varies: Floats
    usual: Floats
    limits: Floats
    numbers: Floats
    gains: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        d, k = self.whiten.shape if self.whiten.ndim == 2 else (-1, -1)
        shapes = {"center": (d,), "people": (k, k), "spread": (d,), "varies": (d,), "usual": (2, 3)}
        shapes |= {"limits": (3,), "numbers": (6,)}
        wrong = [name for name, shape in shapes.items() if getattr(self, name).shape != shape]
        wrong += ["gains"] * (self.gains.size > 0 and self.gains.shape != self.levels.shape)
        if wrong or self.levels.ndim != 2 or self.levels.shape[1] != d or not 0 < self.top <= k:
            raise MapError("The population of devices has unexpected shapes.")
        if not all(np.isfinite(array).all() for array in self.arrays.values()):
            raise MapError("The population of devices holds NaN or infinite values.")

    @property
    def arrays(self) -> dict[str, Floats]:
        """The stored arrays by name."""
        return {f.name: array for f in fields(self) if (array := getattr(self, f.name)).size}

    @property
    def top(self) -> int:
        """How many axes, the first ones, hold most of the rows' variance."""
        return int(self.numbers[2])

    @cached_property
    def means(self) -> Floats:
        """The devices' levels in whitened coordinates, (K, k)."""
        return self.read(self.levels)

    @cached_property
    def between(self) -> Floats:
        """B, the spread between the devices: of the known ones, and as much again in any direction."""
        return spread_of(self.means)

    def read(self, X: Floats) -> Floats:
        """Return rows in whitened coordinates."""
        return np.asarray((X - self.center) @ self.whiten)

    @cached_property
    def back(self) -> Floats:
        """The inverse of ``whiten`` (k, d): back to rows along the axes in which features vary together."""
        scale = np.exp(self.spread)
        return np.asarray(np.linalg.pinv(self.whiten * scale[:, None]) * scale)

    def scores(self, means: Floats, center: Floats, scale: Floats) -> tuple[Floats, Floats]:
        """Return linear scores of devices at these whitened means, relative to the first: weights and bias.

        They are of rows standardised by ``center`` and ``scale``.
        """
        covariance = np.eye(means.shape[1]) + self.people
        weights = np.linalg.solve(covariance, (means - means[0]).T)  # (k, K)
        at = np.sum(weights.T * (means + means[0]), axis=1) / 2.0
        linear = scale[:, None] * (self.whiten @ weights)
        return linear.T, (center - self.center) @ self.whiten @ weights - at

    def weights(self, W: Floats) -> tuple[Floats, Floats]:
        """Return the median of whitened rows, and how far each is drawn in toward it: 1 is not at all."""
        middle = np.median(W, axis=0)
        away = np.linalg.norm(W - middle, axis=1)
        return middle, np.minimum(1.0, self.numbers[1] / np.maximum(away, TINY))

    def level(self, W: Floats) -> tuple[Floats, float]:
        """Return the mean of whitened rows, distant ones drawn in, and of how many independent rows it is."""
        middle, weight = self.weights(W)
        return middle + weight @ (W - middle) / len(W), len(W) / alike(W)

    def toward_known(self, level: Floats, noise: Floats) -> Floats:
        """Return a device's level (d,), measured with this covariance (k, k), shrunk toward the population.

        What the measured level has beyond the whitened coordinates is kept: rows hardly vary there.
        """
        away = self.read(level[None])[0] - self.means.mean(axis=0)
        kept = self.between @ np.linalg.solve(self.between + noise, away)
        return np.asarray(level - (away - kept) @ self.back)

    def gain(self, rows: Floats, n_units: float) -> Floats:
        """Return the logarithms of a device's standard deviations (d,), shrunk toward those of known ones.

        How far depends on how much known devices differ, feature by feature and on the whole, beyond what
        participants and few rows do.
        """
        middle = self.gains.mean(axis=0)
        if len(rows) < FEWEST_FOR_FAULTS:
            return np.asarray(middle)
        by_chance = 0.0 if self.numbers[5] else self.varies**2 / max(1.0, float(self.numbers[3]))
        differ = self.gains.var(axis=0, ddof=1) - by_chance
        differ = np.maximum(BETWEEN * differ + (1.0 - BETWEEN) * differ[self.varies > 0].mean(), 0.0)
        # Where participants are unknown, windows vary by their content, which a batch has more of.
        people = 0.0 if self.numbers[5] else self.varies**2 / n_units
        noise = people + alike(self.read(rows)) / len(rows) + TINY
        found = log_spread(rows, self.read(rows))
        return np.asarray(
            np.where(self.varies > 0, middle + differ / (differ + noise) * (found - middle), 0.0)
        )

    def evidence(self, W: Floats, own: int | None = None, *, mixed: bool = False) -> Evidence:
        """Return what whitened rows say about their device.

        ``own`` is the device that they are said to be of. ``mixed`` rows may be of several known devices:
        where they vary as a mixture would, each device's rows are asked, or, where devices overlap, their
        mean may lie between those of the devices.
        """
        mean, n = self.level(W)
        centers = self.means if own is None else self.means[[own]]
        mixture = False
        if mixed and own is None:
            nearest = np.linalg.norm(W[:, None] - self.means, axis=2).argmin(axis=1)
            counts = np.bincount(nearest, minlength=len(self.means))
            among = np.flatnonzero(counts > max(1.0, FEW * len(W)))
            if len(among) > 1:
                between, mixture = self._mixture(W, n, among)
                gaps = np.linalg.norm(self.means[among, None] - self.means[among], axis=2)
                separate = mixture and gaps[np.triu_indices(len(among), 1)].min() > APART
                if separate:
                    parts = [W[nearest == s] for s in among]
                    found = [self.evidence(part) for part in parts if len(part) >= FEWEST_ROWS]
                    if found:
                        most = max(found, key=lambda e: e.log_e)
                        return replace(
                            most, n_rows=len(W), log_e=most.log_e - np.log(len(found)), mixture=True
                        )
                if mixture:
                    centers = np.concatenate([centers, [between]])
        nu = float(self.numbers[0])
        known = self.people * (nu - 2.0) / nu + np.eye(len(mean)) / n
        gaps = mean - centers
        length = np.linalg.norm(gaps[:, : self.top], axis=1, keepdims=True)
        gaps[:, : self.top] *= np.maximum(0.0, 1.0 - CONTENT / np.maximum(length, TINY))
        as_known = float(log_density(gaps, known, nu).max())
        as_unseen = float(self._as_unseen(mean[None], 1.0 / n)[0])
        distances = np.linalg.norm(mean - self.means, axis=1)
        apart = np.linalg.norm(self.means[:, None] - self.means, axis=2)
        typical = float(np.median(apart[np.triu_indices(len(apart), 1)])) if len(apart) > 1 else np.nan
        log_e, closest = as_unseen - as_known, int(distances.argmin())
        return Evidence(len(W), log_e, closest, float(distances.min()), typical)

    def _mixture(self, W: Floats, n: float, among: NDArray[np.intp]) -> tuple[Floats, bool]:
        """Return the mixture of devices' means nearest to the mean of rows, and whether rows vary so."""
        centers = self.means[among]
        mean, _ = self.level(W)
        shares = nearest_mixture(mean, centers, np.linalg.inv(self.people + np.eye(len(mean)) / n))
        middle = shares @ centers
        _, sizes, axes = np.linalg.svd(np.sqrt(shares)[:, None] * (centers - middle), full_matrices=False)
        expected = float(np.sum(sizes**2))
        seen = float(np.sum(np.var((W - mean) @ axes[sizes > 1e-9].T, axis=0) - 1.0))
        return middle, expected < 1.0 or seen > MIXED * expected

    def _as_unseen(self, W: Floats, noise: float) -> Floats:
        """Return log-densities of means, or rows, of a device drawn from the population."""
        away, scatter = W - self.means.mean(axis=0), self.people + noise * np.eye(W.shape[1])
        wider = [log_density(away, scatter + q * self.between, HEAVY) for q in SPREADS]
        return np.asarray(np.logaddexp.reduce(wider) - np.log(len(SPREADS)))

    def row_evidence(self, W: Floats) -> Floats:
        """Return every row's log-likelihood ratio: of an unseen device over the best known one."""
        nu = float(self.numbers[0])
        known = self.people * (nu - 2.0) / nu + np.eye(W.shape[1])
        as_known = np.max([log_density(W - mean, known, nu) for mean in self.means], axis=0)
        return np.asarray(self._as_unseen(W, 1.0) - as_known)


@dataclass(frozen=True)
class Evidence:
    """What a batch says about its device.

    ``log_e`` is the logarithm of the e-value: how many times more likely an unseen device makes it.
    """

    n_rows: int
    log_e: float
    nearest: int
    distance: float  # to the nearest known device, in standard deviations within sources
    typical: float  # the same between two known devices
    mixture: bool = False  # whether rows are of several known devices that do not overlap

    def alarm(self, rate: float = RATE) -> bool:
        """Whether no known device explains the batch, at this rate of false alarms."""
        return bool(self.log_e > -np.log(rate))


def spread_of(means: Floats) -> Floats:
    """Return the covariance of devices around their mean: of the known ones, a part of it anywhere."""
    apart = means - means.mean(axis=0)
    cov = apart.T @ apart / max(1, len(apart) - 1)
    return np.asarray(BETWEEN * cov + (1.0 - BETWEEN) * np.trace(cov) / len(cov) * np.eye(len(cov)))


def unseen_odds(means: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return how many times likelier a device drawn from the population makes a row than each known one.

    In whitened coordinates w, with the known devices' ``means`` (K, j), the logarithm is
    (w G)² a + w L + b, one for each device: N(μ̄, I + B) over N(μ_s, I). Returns G (j, j), a (j,), L (j, K)
    and b (K,).
    """
    values, axes = np.linalg.eigh(spread_of(means))
    values = np.maximum(values, 0.0)
    middle = means.mean(axis=0)
    toward = axes @ ((middle @ axes) / (1.0 + values))  # (I + B)⁻¹ μ̄
    constant = -0.5 * (middle @ toward + np.log1p(values).sum())
    bias = constant + 0.5 * np.sum(means**2, axis=1)
    return axes, 0.5 * values / (1.0 + values), toward[:, None] - means.T, bias


def log_odds(white: Floats, means: Floats) -> Floats:
    """Return the logarithm of how many times likelier an unseen device makes rows than all known ones, (n,).

    ``white`` are whitened rows (n, j), ``means`` the known devices' (K, j).
    """
    axes, weight, linear, bias = unseen_odds(means)
    known = -((np.square(white @ axes) @ weight)[:, None] + white @ linear + bias)
    most = known.max(axis=1)
    return np.asarray(-most - np.log(np.exp(known - most[:, None]).sum(axis=1)))


def log_spread(X: Floats, W: Floats) -> Floats:
    """Return the logarithms of features' standard deviations, rows far out (whitened: W) drawn in."""
    away = np.linalg.norm(W - np.median(W, axis=0), axis=1)
    weight = np.minimum(1.0, FAR_OUT * np.median(away) / np.maximum(away, TINY))
    apart = (X - np.median(X, axis=0)) * weight[:, None]
    return np.asarray(0.5 * np.log(np.maximum(apart.var(axis=0, ddof=1), np.finfo(np.float64).tiny)))


def alike(W: Floats) -> float:
    """Return what rows in order have in common: the variance of runs' means over that of rows alone."""
    run = min(RUN, len(W) // 4)
    if run < 2:
        return 1.0
    n = len(W) // run
    runs = W[: n * run].reshape(n, run, -1).mean(axis=1)
    alone, together = W.var(axis=0, ddof=1).sum(), runs.var(axis=0, ddof=1).sum()
    return float(max(1.0, run * together / alone)) if alone > 0 else float(len(W))


def shape_of(W: Floats, top: int) -> Floats:
    """Return three numbers of the spread of whitened rows about their mean, in logarithms.

    Of all coordinates; of the smaller axes relative to the larger ones; of the larger ones.
    """
    squares = np.square(W - W.mean(axis=0)) * (len(W) / max(1, len(W) - 1)) + np.finfo(np.float64).tiny
    large = np.log(squares[:, :top].mean(axis=1)).mean()
    small = np.log(squares[:, top:].mean(axis=1)).mean() if top < W.shape[1] else large
    return np.array([np.log(squares.mean(axis=1)).mean(), small - large, large])


def log_density(gaps: Floats, scatter: Floats, nu: float) -> Floats:
    """Return the logarithm of the multivariate t density, up to π, of some deviations, (n, k)."""
    lower = np.linalg.cholesky(scatter)
    squares = np.sum(np.linalg.solve(lower, gaps.T) ** 2, axis=0)
    return np.asarray(log_density_of(squares, len(scatter), nu) - np.log(np.diag(lower)).sum())


def log_density_of(squares: Any, k: int, nu: float) -> Any:
    """Return the log likelihood under a scatter with determinant 1, from squared lengths."""
    constant = lgamma((nu + k) / 2) - lgamma(nu / 2) - k / 2 * np.log(nu)
    return constant - 0.5 * (nu + k) * np.log1p(squares / nu)


def nearest_mixture(mean: Floats, centers: Floats, precision: Floats, steps: int = 200) -> Floats:
    """Return the shares, none negative, of the mixture of centers that is nearest to a mean (Frank-Wolfe)."""
    gaps = centers - mean
    products = gaps @ precision @ gaps.T
    shares = np.full(len(centers), 1.0 / len(centers))
    for _ in range(steps):
        slope = products @ shares
        best = int(slope.argmin())
        toward = -shares
        toward[best] += 1.0
        curvature, descent = float(toward @ products @ toward), float(toward @ slope)
        if descent > -1e-10 or curvature <= 0:
            break
        shares = shares + min(1.0, -descent / curvature) * toward
    return shares
