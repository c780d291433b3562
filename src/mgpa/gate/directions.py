"""Directions of rows: unit lengths, principal directions, and how many of them hold a share of the energy."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from numpy.typing import NDArray

from .._common.scatter import Scatter
from ..errors import Mention, UsageError

Floats = NDArray[np.float64]

# A contrast shorter than this (in standardised units) is two copies of the same embedding.
ZERO_NORM = 1e-10


def row_norms(rows: Floats) -> Floats:
    """Return the length of every row, without a copy of them all."""
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


def unit_rows(contrasts: Floats) -> Floats:
    """Return the non-zero rows scaled to unit length, so that directions count and magnitudes do not."""
    norms = row_norms(contrasts)
    moving = norms > ZERO_NORM
    return np.asarray(contrasts[moving] / norms[moving, None])


def principal_directions(rows: Floats, n_features: int) -> tuple[Floats, Floats]:
    """Return right singular vectors (columns, largest entry positive) and squared singular values of rows."""
    if not len(rows):
        return np.zeros((n_features, 0)), np.zeros(n_features)
    few = 2 * len(rows) < n_features
    energy, vectors = np.linalg.eigh(rows @ rows.T if few else rows.T @ rows)
    energy, vectors = energy[::-1], vectors[:, ::-1]
    resolved = energy > energy[0] * max(rows.shape) * np.finfo(np.float64).eps
    vectors = vectors[:, resolved]
    if few:
        vectors = rows.T @ (vectors / np.sqrt(energy[resolved]))
        # Products of rows cost the weak directions some digits of their right angles: restore them.
        lower = np.linalg.cholesky(vectors.T @ vectors)
        vectors = scipy.linalg.solve_triangular(lower, vectors.T, lower=True, overwrite_b=True).T
    vectors *= np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])])
    padded = np.zeros(n_features)
    padded[: resolved.sum()] = energy[resolved]
    return vectors, padded


def leading_directions(scatter: Scatter, k: int) -> Floats:
    """Return up to k principal directions of rows with this scatter, as columns; cheap if k is small."""
    gram = scatter.gram() if scatter.factored else scatter.matrix
    if 4 * k < len(gram):
        values, vectors = scipy.sparse.linalg.eigsh(gram, k=k, v0=np.ones(len(gram)))
    else:
        values, vectors = np.linalg.eigh(gram)
    order = np.argsort(-values, kind="stable")[:k]
    values, vectors = values[order], vectors[:, order]
    resolved = values > values.max(initial=0.0) * scatter.n_features * np.finfo(np.float64).eps
    values, vectors = values[resolved], vectors[:, resolved]
    return scatter.back(vectors / np.sqrt(values)) if scatter.factored else np.asarray(vectors)


def orthonormal(first: Floats, second: Floats) -> Floats:
    """Return an orthonormal basis: the columns of ``first``, which are so, then what ``second`` adds."""
    Q, R = np.linalg.qr(second - first @ (first.T @ second))
    added = Q[:, np.abs(np.diag(R)) > 1e-8]
    added = added * np.sign(added[np.abs(added).argmax(axis=0), np.arange(added.shape[1])])
    return np.concatenate([first, added], axis=1)


def cumulative_share(energy: Floats) -> Floats:
    """Return cumulative energy as a share of the total (zeros if there is none)."""
    total = energy.sum()
    return np.asarray(np.cumsum(energy) / total) if total > 0 else np.zeros_like(energy)


def choose_rank(rank: Any, energy: Floats, n_rows: int, what: str) -> int:
    """Turn ``rank`` (an int, or a float share of energy) into a number of directions."""
    available = int((energy > 0).sum())
    if isinstance(rank, (int, np.integer)):
        if rank > len(energy):
            limit = f" does not fit {len(energy)} features; use 0 to {len(energy)}."
            raise UsageError(Mention("rank", int(rank)), limit)
        if rank > available and available:
            raise UsageError(
                Mention("rank", int(rank)),
                f" needs {rank} independent {what}; the {n_rows} usable ones give {available}. Lower the "
                "rank, supply more, or ask for a share of energy such as ",
                Mention("rank", 0.9),
                ".",
            )
        return min(int(rank), available)
    retained = cumulative_share(energy)
    return min(int(np.searchsorted(retained, float(rank), side="left")) + 1, available)
