"""How rows vary on each device: what shows a device of other gains or rotations, apart from its mean.

In the frame of a known device its rows have unit variance along every axis. There, rows of a device with
other gains or rotations vary more, above all along the axes of little variance. A batch that varies more than
usual is compared with what participants differ by, and with what known devices' rows show in each other's
frames.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .densities import log_density, log_density_unseen

Floats = NDArray[Any]

WINDOW = 50  # rows in the windows that frames are fitted on
LEAST_APART = 2.0  # logarithm of the odds by which rows of known devices are told apart
NEAREST_ROWS = 0.8  # share of a batch that its spread is of: the others may be outliers


def spread_of_rows(W: Floats, top: int) -> Floats:
    """Return logarithms of rows' mean squares about their median: of the larger axes, and of the others."""
    apart = np.square(W - np.median(W, axis=0))
    most = int(np.ceil(NEAREST_ROWS * len(W)))
    parts = (apart[:, :top], apart[:, top:])
    squares = np.stack([part.mean(axis=1) for part in parts if part.shape[1]], axis=1)
    nearest = np.sort(squares, axis=0)[:most]
    return np.asarray(np.log(np.maximum(nearest.mean(axis=0), np.finfo(np.float64).tiny)))


def log_densities(W: Floats, means: Floats, frames: Floats) -> Floats:
    """Return log-densities of rows as each device's, (K, n), up to a constant."""
    sizes = np.linalg.slogdet(frames)[1]
    squares = [np.sum(((W - mean) @ frame) ** 2, axis=1) for mean, frame in zip(means, frames, strict=True)]
    return np.asarray(sizes[:, None] - 0.5 * np.stack(squares))


def spread_in_own_frames(W: Floats, means: Floats, frames: Floats, top: int) -> Floats:
    """Return the spread of rows of several devices, each about its device's median and in its frame."""
    device = log_densities(W, means, frames).argmax(axis=0)
    apart = np.empty_like(W)
    for s in np.unique(device):
        rows = W[device == s]
        apart[device == s] = (rows - np.median(rows, axis=0)) @ frames[s]
    return spread_of_rows(apart, top)


def log_evidence(more: Floats, scatter: Floats, n_rows: int, n_participants: float) -> Floats:
    """Return logarithms of how many times likelier an unseen device is than each known one.

    ``more`` (K, g) is how much more than usual a batch varies in their frames, ``scatter`` (2, g, g) what
    participants' windows vary by and what unseen devices add. Less than usual is no evidence: a batch of one
    content may vary little.
    """
    more = np.maximum(more, 0.0)
    known = scatter[0] * max(1.0, WINDOW / n_rows)
    as_known = log_density(more, known * (1.0 + 1.0 / n_participants), n_participants - 1.0)
    return np.asarray(log_density_unseen(more, known, scatter[1]) - as_known)


def assignment(W: Floats, means: Floats, frames: Floats) -> float:
    """Return how clearly each row belongs to one device, as a share of what rows of known devices show.

    That is the mean logarithm of how many times likelier the likeliest device makes a row than the next one
    does, over its expectation for rows of the likeliest. Devices that overlap cannot tell: infinite.
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
