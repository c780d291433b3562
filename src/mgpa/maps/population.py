"""Test whether rows come from a fitted device or from another device of the same population.

In coordinates w whitened within sources, the mean of n rows of a known device s is μ_s plus effects of
participants and content. The mean of an unseen device varies around the mean of the known devices, with the
additional covariance B between devices:

    known:  t_ν(μ_s, P + I δ/n)          unseen:  t₅(μ̄, P + q B + I δ/n),  q = 1/4, 1, 4 equally likely.

P is the covariance of participants' means, ν its degrees of freedom, and δ ≥ 1 accounts for the correlation
of consecutive rows. The likelihood ratio is an e-value: for a known device, the probability that it ever
exceeds 1 / α is at most α. The same holds for the mean of this e-value and that of the covariance
of rows (:mod:`.frames`). Because a batch with other content is not another device, a mean may move by
:data:`CONTENT` along the axes with most of the variance before it counts as evidence.

This module needs only numpy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MapError
from .densities import BETWEEN, log_density, log_density_unseen, spread_of
from .frames import assignment, log_evidence, spread_in_own_frames, spread_of_rows

Floats = NDArray[Any]

# Other proportions of the fitted content move a whitened mean by at most sqrt(χ²): by .6 for two classes at
# 20 and 80 %, by 1.6 for one of five classes at 84 %, with variation between participants.
CONTENT = 2.0
RATE = 1e-3  # false-alarm rate for a batch, or for a stream at any time
FEWEST_ROWS, FEWEST_FOR_FAULTS = 5, 20
# A second device needs at least this share of rows; devices further apart are tested separately.
FEW, APART = 0.05, 6.0
MIXED = 0.3  # smallest share of a mixture's expected variance that still counts as a mixture
DECIDED = 0.3  # smallest result of ``assignment`` for which rows count as a mixture of known devices
TINY = 1e-12
FAR_OUT = 2.0  # rows beyond this multiple of the median distance are winsorised before measuring spread
RUN = 10  # number of consecutive rows that may be correlated


@dataclass(frozen=True)
class Population:
    """The devices and participants of a fit, in whitened coordinates.

    Attributes
    ----------
    center, whiten : (d,), (d, k)
        w = (x - center) whiten.
    levels : (K, d)
        Mean rows of the devices, in the order of ``info.source_names``; from pairs, means of the same events.
    people : (k, k)
        P, the covariance of participants' means around the mean of their device.
    spread, varies : (d,), (d,)
        Log standard deviation of each feature within sources, and the variation of this between participants.
    gains : (K, d)
        Log standard deviation of each feature on each device; empty in older files, which have only levels.
    frames, in_frame, frame_scatter : (K, k, k), (K, g), (2, g, g)
        For each device, the matrix that gives its whitened rows unit variance along each axis; the spread of
        these rows (:func:`~mgpa.maps.frames.spread_of_rows`); and the covariances of the spread, between
        windows of participants and between devices. Missing for devices added later and in older files.
    usual : (2, 3)
        Mean and standard deviation of :func:`shape_of` over batches of held-out participants.
    limits : (3,)
        Limits that one in a thousand batches of new participants exceeds: the share of rows farther out than
        all fitting rows, farther out than most fitting rows, and outside the range of one feature.
    numbers : (6,)
        ν; the length to which rows are winsorised; the number of axes with most of the variance; the number
        of participants; the number of standard deviations from ``usual`` that one in a thousand batches of
        new participants exceeds; and, if participants were unknown, the number of rows in the windows that
        replace them (else 0).
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
    frames: Floats = field(default_factory=lambda: np.zeros((0, 0, 0)))
    in_frame: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    frame_scatter: Floats = field(default_factory=lambda: np.zeros((2, 0, 0)))

    def __post_init__(self) -> None:
        d, k = self.whiten.shape if self.whiten.ndim == 2 else (-1, -1)
        shapes = {"center": (d,), "people": (k, k), "spread": (d,), "varies": (d,), "usual": (2, 3)}
        shapes |= {"limits": (3,), "numbers": (6,)}
        wrong = [name for name, shape in shapes.items() if getattr(self, name).shape != shape]
        wrong += ["gains"] * (self.gains.size > 0 and self.gains.shape != self.levels.shape)
        n_frames, g = len(self.frames), 1 + (self.numbers[2] < k)
        if n_frames and (
            n_frames > len(self.levels)
            or self.frames.shape[1:] != (k, k)
            or self.in_frame.shape != (n_frames, g)
            or self.frame_scatter.shape != (2, g, g)
        ):
            wrong += ["frames"]
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
        """The number of leading axes with most of the variance of rows."""
        return int(self.numbers[2])

    @cached_property
    def means(self) -> Floats:
        """The levels of the devices in whitened coordinates, (K, k)."""
        return self.read(self.levels)

    @property
    def are_few(self) -> bool:
        """Whether there are too few devices to tell how much a further one may differ."""
        return len(self.levels) < 3

    @cached_property
    def between(self) -> Floats:
        """B, the covariance between devices: the covariance of the known devices plus an isotropic part."""
        return spread_of(self.means)

    def read(self, X: Floats) -> Floats:
        """Return rows in whitened coordinates."""
        return np.asarray((X - self.center) @ self.whiten)

    @cached_property
    def back(self) -> Floats:
        """The pseudoinverse of ``whiten``, (k, d), which maps whitened coordinates back to rows."""
        scale = np.exp(self.spread)
        return np.asarray(np.linalg.pinv(self.whiten * scale[:, None]) * scale)

    def scores(self, means: Floats, center: Floats, scale: Floats) -> tuple[Floats, Floats]:
        """Return weights and bias of linear scores for devices with these means, relative to the first.

        ``means`` are whitened. The scores apply to rows standardised by ``center`` and ``scale``.
        """
        covariance = np.eye(means.shape[1]) + self.people
        weights = np.linalg.solve(covariance, (means - means[0]).T)  # (k, K)
        at = np.sum(weights.T * (means + means[0]), axis=1) / 2.0
        linear = scale[:, None] * (self.whiten @ weights)
        return linear.T, (center - self.center) @ self.whiten @ weights - at

    def weights(self, W: Floats) -> tuple[Floats, Floats]:
        """Return the median of whitened rows, and factors that shrink rows toward it (1: no shrinkage)."""
        middle = np.median(W, axis=0)
        away = np.linalg.norm(W - middle, axis=1)
        return middle, np.minimum(1.0, self.numbers[1] / np.maximum(away, TINY))

    def level(self, W: Floats) -> tuple[Floats, float]:
        """Return the winsorised mean of whitened rows and the effective number of independent rows."""
        middle, weight = self.weights(W)
        return middle + weight @ (W - middle) / len(W), len(W) / alike(W)

    def toward_known(self, level: Floats, noise: Floats) -> Floats:
        """Return a device's level (d,), shrunk toward the population.

        ``noise`` is the error covariance of the level in whitened coordinates, (k, k).
        The part of the level outside the whitened coordinates is kept, because rows hardly vary there.
        """
        away = self.read(level[None])[0] - self.means.mean(axis=0)
        kept = self.between @ np.linalg.solve(self.between + noise, away)
        return np.asarray(level - (away - kept) @ self.back)

    def gain(self, rows: Floats, n_units: float) -> Floats:
        """Return a device's log standard deviations (d,), shrunk toward those of the known devices.

        The shrinkage depends on the differences between known devices, for each feature and in total, beyond
        differences between participants and sampling error.
        """
        middle = self.gains.mean(axis=0)
        if len(rows) < FEWEST_FOR_FAULTS:
            return np.asarray(middle)
        by_chance = 0.0 if self.numbers[5] else self.varies**2 / max(1.0, float(self.numbers[3]))
        differ = self.gains.var(axis=0, ddof=1) - by_chance
        differ = np.maximum(BETWEEN * differ + (1.0 - BETWEEN) * differ[self.varies > 0].mean(), 0.0)
        # Windows that replace unknown participants vary in content; a longer batch averages over content.
        people = 0.0 if self.numbers[5] else self.varies**2 / n_units
        noise = people + alike(self.read(rows)) / len(rows) + TINY
        found = log_spread(rows, self.read(rows))
        return np.asarray(
            np.where(self.varies > 0, middle + differ / (differ + noise) * (found - middle), 0.0)
        )

    def evidence(self, W: Floats, own: int | None = None, *, mixed: bool = False) -> Evidence:
        """Return the evidence of whitened rows for an unknown device.

        ``own`` is the position of the named device. ``mixed`` rows may come from several known devices. If
        rows vary like a mixture, the rows of each device are tested separately; if devices overlap, the mean
        of all rows may lie between the means of the devices.
        """
        mean, n = self.level(W)
        which = slice(None) if own is None else slice(own, own + 1)
        centers, more = self.means[which], self._more_than_usual(W)[which]
        if mixed and own is None and len(among := self._present(W)) > 1:
            between, mixture = self._mixture(W, n, among)
            if mixture and (most := self._most_of_parts(W, among)):
                return most
            if mixture:
                centers = np.concatenate([centers, [between]])
                more = np.concatenate([more, [self._more_of_several(W)]])
        log_e = self._log_e(mean, n, centers)
        told = ~np.isnan(more).any(axis=1)
        if told.any() and len(W) >= FEWEST_FOR_FAULTS:
            by_spread = log_evidence(more[told], self.frame_scatter, len(W), float(self.numbers[3]))
            # The mean of two e-values is an e-value, even if they are dependent.
            log_e[told] = np.logaddexp(log_e[told], by_spread) - np.log(2.0)
        distances = np.linalg.norm(mean - self.means, axis=1)
        apart = np.linalg.norm(self.means[:, None] - self.means, axis=2)
        typical = float(np.median(apart[np.triu_indices(len(apart), 1)])) if len(apart) > 1 else np.nan
        closest = int(distances.argmin())
        return Evidence(len(W), float(log_e.min()), closest, float(distances.min()), typical)

    def _log_e(self, mean: Floats, n: float, centers: Floats) -> Floats:
        """Return the log likelihood ratio of an unseen device to each center, for the mean of n rows."""
        nu = float(self.numbers[0])
        known = self.people * (nu - 2.0) / nu + np.eye(len(mean)) / n
        gaps = mean - centers
        length = np.linalg.norm(gaps[:, : self.top], axis=1, keepdims=True)
        gaps[:, : self.top] *= np.maximum(0.0, 1.0 - CONTENT / np.maximum(length, TINY))
        return np.asarray(self._as_unseen(mean[None], 1.0 / n) - log_density(gaps, known, nu))

    def _more_than_usual(self, W: Floats) -> Floats:
        """Return the log spread of rows minus its usual value, in each device's frame; NaN without frames."""
        more = np.full((len(self.means), max(1, len(self.frame_scatter[0]))), np.nan)
        for s, frame in enumerate(self.frames):
            more[s] = spread_of_rows(W @ frame, self.top) - self.in_frame[s]
        return more

    def _more_of_several(self, W: Floats) -> Floats:
        """Return the log spread of rows minus its usual value, each row in its likeliest device's frame."""
        if len(self.frames) < len(self.means):
            return np.full(max(1, len(self.frame_scatter[0])), np.nan)
        spread = spread_in_own_frames(W, self.means, self.frames, self.top)
        return np.asarray(spread - self.in_frame.max(axis=0))

    def _nearest(self, W: Floats) -> NDArray[np.intp]:
        """Return the device with the nearest level, for each row."""
        return np.asarray(np.linalg.norm(W[:, None] - self.means, axis=2).argmin(axis=1))

    def _present(self, W: Floats) -> NDArray[np.intp]:
        """Return the devices that are nearest to more than a few rows."""
        counts = np.bincount(self._nearest(W), minlength=len(self.means))
        return np.flatnonzero(counts > max(1.0, FEW * len(W)))

    def _most_of_parts(self, W: Floats, among: NDArray[np.intp]) -> Evidence | None:
        """Return the strongest evidence of separate tests, one per device; None if devices overlap."""
        gaps = np.linalg.norm(self.means[among, None] - self.means[among], axis=2)
        if gaps[np.triu_indices(len(among), 1)].min() <= APART:
            return None
        nearest = self._nearest(W)
        parts = [W[nearest == s] for s in among]
        found = [self.evidence(part) for part in parts if len(part) >= FEWEST_ROWS]
        if not found:
            return None
        most = max(found, key=lambda e: e.log_e)
        return replace(most, n_rows=len(W), log_e=most.log_e - np.log(len(found)), mixture=True)

    def _mixture(self, W: Floats, n: float, among: NDArray[np.intp]) -> tuple[Floats, bool]:
        """Return the mixture of device means nearest to the rows' mean, and whether rows vary like it."""
        centers = self.means[among]
        mean, _ = self.level(W)
        shares = nearest_mixture(mean, centers, np.linalg.inv(self.people + np.eye(len(mean)) / n))
        middle = shares @ centers
        if len(self.frames) == len(self.means):
            return middle, assignment(W, self.means, self.frames) > DECIDED
        _, sizes, axes = np.linalg.svd(np.sqrt(shares)[:, None] * (centers - middle), full_matrices=False)
        expected = float(np.sum(sizes**2))
        seen = float(np.sum(np.var((W - mean) @ axes[sizes > 1e-9].T, axis=0) - 1.0))
        return middle, expected < 1.0 or seen > MIXED * expected

    def _as_unseen(self, W: Floats, noise: float) -> Floats:
        """Return the log-density of means or rows for an unknown device from the population."""
        scatter = self.people + noise * np.eye(W.shape[1])
        return log_density_unseen(W - self.means.mean(axis=0), scatter, self.between)

    def row_evidence(self, W: Floats) -> Floats:
        """Return the log likelihood ratio of an unknown device to the likeliest known device for each row."""
        nu = float(self.numbers[0])
        known = self.people * (nu - 2.0) / nu + np.eye(W.shape[1])
        as_known = np.max([log_density(W - mean, known, nu) for mean in self.means], axis=0)
        return np.asarray(self._as_unseen(W, 1.0) - as_known)


@dataclass(frozen=True)
class Evidence:
    """The evidence of a batch for an unknown device.

    ``log_e`` is the logarithm of the e-value: the likelihood ratio of an unknown device to the known devices.
    """

    n_rows: int
    log_e: float
    nearest: int
    distance: float  # to the nearest known device, in standard deviations within sources
    typical: float  # typical distance between two known devices, in the same units
    mixture: bool = False  # whether rows come from several known devices that do not overlap

    def alarm(self, rate: float = RATE) -> bool:
        """Whether no known device explains the batch, at the given false-alarm rate."""
        return bool(self.log_e > -np.log(rate))


def log_spread(X: Floats, W: Floats) -> Floats:
    """Return the log standard deviation of each feature, with outlying rows winsorised by whitened rows W."""
    apart = (X - np.median(X, axis=0)) * far_out_weights(W)[:, None]
    return np.asarray(0.5 * np.log(np.maximum(apart.var(axis=0, ddof=1), np.finfo(np.float64).tiny)))


def far_out_weights(W: Floats) -> Floats:
    """Return factors that shrink outlying rows toward the median (1: no shrinkage)."""
    away = np.linalg.norm(W - np.median(W, axis=0), axis=1)
    return np.asarray(np.minimum(1.0, FAR_OUT * np.median(away) / np.maximum(away, TINY)))


def alike(W: Floats) -> float:
    """Return the variance inflation of means over consecutive rows (1: independent rows)."""
    run = min(RUN, len(W) // 4)
    if run < 2:
        return 1.0
    n = len(W) // run
    runs = W[: n * run].reshape(n, run, -1).mean(axis=1)
    alone, together = W.var(axis=0, ddof=1).sum(), runs.var(axis=0, ddof=1).sum()
    return float(max(1.0, run * together / alone)) if alone > 0 else float(len(W))


def shape_of(W: Floats, top: int) -> Floats:
    """Return three measures of the log spread of whitened rows around their mean.

    They are the spread of all coordinates, of the smaller axes relative to the larger axes, and of the larger
    axes.
    """
    squares = np.square(W - W.mean(axis=0)) * (len(W) / max(1, len(W) - 1)) + np.finfo(np.float64).tiny
    large = np.log(squares[:, :top].mean(axis=1)).mean()
    small = np.log(squares[:, top:].mean(axis=1)).mean() if top < W.shape[1] else large
    return np.array([np.log(squares.mean(axis=1)).mean(), small - large, large])


def nearest_mixture(mean: Floats, centers: Floats, precision: Floats, steps: int = 200) -> Floats:
    """Return the non-negative weights of the mixture of centers nearest to a mean (Frank-Wolfe)."""
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
