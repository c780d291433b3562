"""Densities that compare rows with known devices and with a new device from the same population."""

from __future__ import annotations

from math import lgamma
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]

SPREADS = (0.25, 1.0, 4.0)  # a new device differs by half, once or twice the spread of the known devices
HEAVY = 5.0  # degrees of freedom of a new device's t distribution
BETWEEN = 0.5  # share of the variance between devices that lies in the span of the known devices


def log_density(gaps: Floats, scatter: Floats, nu: float) -> Floats:
    """Return the log of the multivariate t density of deviations (n, k), without the constant in π."""
    lower = np.linalg.cholesky(scatter)
    squares = np.sum(np.linalg.solve(lower, gaps.T) ** 2, axis=0)
    return np.asarray(log_density_of(squares, len(scatter), nu) - np.log(np.diag(lower)).sum())


def log_density_of(squares: Any, k: int, nu: float) -> Any:
    """Return the log density for a scatter matrix with determinant 1, from squared lengths."""
    constant = lgamma((nu + k) / 2) - lgamma(nu / 2) - k / 2 * np.log(nu)
    return constant - 0.5 * (nu + k) * np.log1p(squares / nu)


def log_density_unseen(gaps: Floats, scatter: Floats, between: Floats) -> Floats:
    """Return log-densities of deviations for a new device, which adds ``between`` to the scatter matrix."""
    wider = [log_density(gaps, scatter + q * between, HEAVY) for q in SPREADS]
    return np.asarray(np.logaddexp.reduce(wider) - np.log(len(SPREADS)))


def spread_of(means: Floats) -> Floats:
    """Return the covariance between devices, with part of the variance spread over all directions."""
    apart = means - means.mean(axis=0)
    return anywhere(apart.T @ apart / max(1, len(apart) - 1))


def anywhere(cov: Floats) -> Floats:
    """Return a covariance with part of its variance spread equally over all directions."""
    return np.asarray(BETWEEN * cov + (1.0 - BETWEEN) * np.trace(cov) / len(cov) * np.eye(len(cov)))


def unseen_odds(means: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the log likelihood ratio of a new device to each known device, as a function of the row.

    In whitened coordinates w, with ``means`` (K, j) of the known devices, the ratio of N(μ̄, I + B) to
    N(μ_s, I) has the logarithm (w G)² a + w L + b, one number per device s. Returns G (j, j), a (j,),
    L (j, K) and b (K,).
    """
    values, axes = np.linalg.eigh(spread_of(means))
    values = np.maximum(values, 0.0)
    middle = means.mean(axis=0)
    toward = axes @ ((middle @ axes) / (1.0 + values))  # (I + B)⁻¹ μ̄
    constant = -0.5 * (middle @ toward + np.log1p(values).sum())
    bias = constant + 0.5 * np.sum(means**2, axis=1)
    return axes, 0.5 * values / (1.0 + values), toward[:, None] - means.T, bias


def log_odds(white: Floats, means: Floats) -> Floats:
    """Return the log likelihood ratio of an unseen device to the known devices for each row, (n,).

    ``white`` has whitened rows (n, j); ``means`` has the means of the known devices (K, j).
    """
    axes, weight, linear, bias = unseen_odds(means)
    known = -((np.square(white @ axes) @ weight)[:, None] + white @ linear + bias)
    most = known.max(axis=1)
    return np.asarray(-most - np.log(np.exp(known - most[:, None]).sum(axis=1)))
