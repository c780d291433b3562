"""Densities by which rows are compared with known devices, and with one drawn from their population."""

from __future__ import annotations

from math import lgamma
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]

SPREADS = (0.25, 1.0, 4.0)  # a new device differs half, once or twice as much as the known ones do
HEAVY = 5.0  # degrees of freedom of that
BETWEEN = 0.5  # share of the spread between devices that lies in the span of the known ones


def log_density(gaps: Floats, scatter: Floats, nu: float) -> Floats:
    """Return the logarithm of the multivariate t density, up to π, of some deviations, (n, k)."""
    lower = np.linalg.cholesky(scatter)
    squares = np.sum(np.linalg.solve(lower, gaps.T) ** 2, axis=0)
    return np.asarray(log_density_of(squares, len(scatter), nu) - np.log(np.diag(lower)).sum())


def log_density_of(squares: Any, k: int, nu: float) -> Any:
    """Return the log likelihood under a scatter with determinant 1, from squared lengths."""
    constant = lgamma((nu + k) / 2) - lgamma(nu / 2) - k / 2 * np.log(nu)
    return constant - 0.5 * (nu + k) * np.log1p(squares / nu)


def log_density_unseen(gaps: Floats, scatter: Floats, between: Floats) -> Floats:
    """Return log-densities of deviations of a device drawn from the population, which adds ``between``."""
    wider = [log_density(gaps, scatter + q * between, HEAVY) for q in SPREADS]
    return np.asarray(np.logaddexp.reduce(wider) - np.log(len(SPREADS)))


def spread_of(means: Floats) -> Floats:
    """Return the covariance of devices around their mean: of the known ones, a part of it anywhere."""
    apart = means - means.mean(axis=0)
    return anywhere(apart.T @ apart / max(1, len(apart) - 1))


def anywhere(cov: Floats) -> Floats:
    """Return a covariance with a part of it in all directions alike."""
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
