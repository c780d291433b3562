"""Detect devices with other gains or rotations from the covariance of rows, independently of their mean.

The frame of a known device is the set of coordinates in which its rows have unit variance along each axis.
Rows of a device with other gains or rotations have larger variance in this frame, especially along axes with
little variance. The excess variance of a batch is compared with its variation between participants and with
the variance of known devices in each other's frames.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .densities import log_density, log_density_unseen

Floats = NDArray[Any]

WINDOW = 50  # rows per window for estimating the variation of frames
LEAST_APART = 2.0  # smallest expected log-odds at which rows of known devices count as separable
NEAREST_ROWS = 0.8  # share of rows, nearest to the median, used for the spread; the rest may be outliers


def spread_of_rows(W: Floats, top: int) -> Floats:
    """Return the log mean square of rows around their median, for larger axes and for smaller axes."""
    apart = np.square(W - np.median(W, axis=0))
    most = int(np.ceil(NEAREST_ROWS * len(W)))
    parts = (apart[:, :top], apart[:, top:])
    squares = np.stack([part.mean(axis=1) for part in parts if part.shape[1]], axis=1)
    nearest = np.sort(squares, axis=0)[:most]
    return np.asarray(np.log(np.maximum(nearest.mean(axis=0), np.finfo(np.float64).tiny)))


def log_densities(W: Floats, means: Floats, frames: Floats) -> Floats:
    """Return the log-density of each row under each device, (K, n), up to a constant."""
    sizes = np.linalg.slogdet(frames)[1]
    squares = [np.sum(((W - mean) @ frame) ** 2, axis=1) for mean, frame in zip(means, frames, strict=True)]
    return np.asarray(sizes[:, None] - 0.5 * np.stack(squares))


def spread_in_own_frames(W: Floats, means: Floats, frames: Floats, top: int) -> Floats:
    """Return the spread of rows of several devices, each row in the frame of its likeliest device."""
    device = log_densities(W, means, frames).argmax(axis=0)
    apart = np.empty_like(W)
    for s in np.unique(device):
        rows = W[device == s]
        apart[device == s] = (rows - np.median(rows, axis=0)) @ frames[s]
    return spread_of_rows(apart, top)


def log_evidence(more: Floats, scatter: Floats, n_rows: int, n_participants: float) -> Floats:
    """Return the log likelihood ratio of an unseen device to each known device, from the spread of a batch.

    ``more`` (K, g) is the excess log spread of the batch in the frame of each known device. ``scatter``
    (2, g, g) has the covariance of log spreads between windows of participants, and the covariance that
    unseen devices add. Spreads below the usual one give no evidence, because a batch of uniform content may
    vary little.
    """
    more = np.maximum(more, 0.0)
    known = scatter[0] * max(1.0, WINDOW / n_rows)
    as_known = log_density(more, known * (1.0 + 1.0 / n_participants), n_participants - 1.0)
    return np.asarray(log_density_unseen(more, known, scatter[1]) - as_known)


def assignment(W: Floats, means: Floats, frames: Floats) -> float:
    """Return how clearly rows belong to one known device, relative to the expectation for known devices.

    The result is the mean log likelihood ratio of the likeliest to the second likeliest device, divided by
    its expectation for rows of the likeliest device; it is infinite if the known devices overlap.
    """
    densities, sizes = log_densities(W, means, frames), np.linalg.slogdet(frames)[1]
    second, first = np.sort(densities, axis=0)[-2:]
    expected = np.full((len(means), len(means)), np.inf)
    for s, back in enumerate(np.linalg.inv(frames)):
        for t in np.delete(np.arange(len(means)), s):
            apart = np.sum((back @ frames[t]) ** 2) + np.sum(((means[s] - means[t]) @ frames[t]) ** 2)
            expected[s, t] = sizes[s] - sizes[t] + 0.5 * (apart - len(back))
    usual = expected.min(axis=1)[densities.argmax(axis=0)].mean()
    return float((first - second).mean() / usual) if usual > LEAST_APART else np.inf
