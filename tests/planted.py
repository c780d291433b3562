"""Rows of two sources that differ in one known way: what a bank of readers has to find."""

from collections.abc import Callable
from typing import Any

import numpy as np

Rows = tuple[np.ndarray, np.ndarray]


def vectors(rng: np.random.Generator, n: int, d: int = 64) -> Rows:
    """Return standard normal rows that say nothing, and sources."""
    return rng.normal(size=(n, d)), rng.permutation(np.arange(n) % 2)


def noise(rng: np.random.Generator, n: int) -> Rows:
    return vectors(rng, n)


def linear(rng: np.random.Generator, n: int) -> Rows:
    """The means differ in an oblique direction."""
    X, source = vectors(rng, n)
    return X + 1.2 * np.outer(source, np.ones(64) / 8), source


def quadratic(rng: np.random.Generator, n: int) -> Rows:
    """The spreads differ in three oblique directions, one the other way round than the others."""
    X, source = vectors(rng, n)
    basis = np.linalg.qr(np.random.default_rng(5).normal(size=(64, 3)))[0]
    factor = np.where(source[:, None] == 1, [1.8, 1.8, 0.5], 1.0)
    return X + ((X @ basis) * (factor - 1)) @ basis.T, source


def scale_only(rng: np.random.Generator, n: int) -> Rows:
    """The spread of one feature differs, and nothing else."""
    X, source = vectors(rng, n)
    X[:, 7] *= np.where(source == 1, 2.0, 1.0)
    return X, source


def xor(rng: np.random.Generator, n: int) -> Rows:
    """The source is whether two features agree in sign."""
    X, source = vectors(rng, n, d=16)
    X[:, 1] = np.abs(X[:, 1]) * np.sign(X[:, 0]) * np.where(source == 1, 1, -1)
    return X, source


def heavy_tails(rng: np.random.Generator, n: int) -> Rows:
    """One source has Student's t with three degrees of freedom in four features, of the same variance."""
    X, source = vectors(rng, n)
    X[:, :4] = np.where(source[:, None] == 1, rng.standard_t(3, size=(n, 4)) / np.sqrt(3), X[:, :4])
    return X, source


def mixture(rng: np.random.Generator, n: int) -> Rows:
    """One source is two clouds around the other's mean, in two features, with the same covariance."""
    X, source = vectors(rng, n)
    side = rng.choice([-1.0, 1.0], size=(n, 2))
    clouds = 0.9 * side + np.sqrt(1 - 0.81) * X[:, :2]
    X[:, :2] = np.where(source[:, None] == 1, clouds, X[:, :2])
    return X, source


def tiny(rng: np.random.Generator, n: int) -> Rows:
    """The mean of one feature of 1024 differs."""
    X, source = vectors(rng, n, d=1024)
    X[:, 100] += 1.5 * source
    return X, source


def tokens(rng: np.random.Generator, n: int) -> Rows:
    return rng.normal(size=(n, 6, 16)), rng.permutation(np.arange(n) % 2)


def single_token(rng: np.random.Generator, n: int) -> Rows:
    """The spread of the features of one token differs."""
    X, source = tokens(rng, n)
    X[:, 4, :4] *= np.where(source == 1, 1.6, 1.0)[:, None]
    return X, source


def token_order(rng: np.random.Generator, n: int) -> Rows:
    """The same tokens, one source with the second and fifth swapped."""
    X, source = tokens(rng, n)
    X[:, 1, :3] += 0.7
    swapped = X[:, [0, 4, 2, 3, 1, 5]]
    return np.where(source[:, None, None] == 1, swapped, X), source


SIGNATURES: dict[str, Callable[[Any, int], Rows]] = {
    f.__name__: f
    for f in (linear, quadratic, scale_only, xor, single_token, token_order, heavy_tails, mixture, tiny)
}
