"""Moments merge in any order, and standardisation knows what varies."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from factories import assert_close
from mgpa import Moments
from random_cases import SEEDS, examples


@examples(30)
@given(SEEDS, st.integers(1, 8), st.booleans())
def test_moments_merge_in_any_order(seed, n_batches, weighted):
    rng = np.random.default_rng(seed)
    X, source = 5 + rng.normal(size=(40, 4)), rng.choice(["a", "b", "c"], size=40)
    weight = rng.uniform(size=40) if weighted else None
    whole = Moments.from_rows(X, source, weight)
    pieces = [
        Moments.from_rows(X[rows], source[rows], None if weight is None else weight[rows])
        for rows in np.array_split(rng.permutation(40), n_batches)
    ]
    left = Moments.merge(pieces)
    right = pieces[-1]
    for piece in pieces[-2::-1]:
        right = piece + right
    for merged in (left, right):
        assert merged.sources == whole.sources
        assert merged.n_rows == 40
        assert merged.fingerprint == whole.fingerprint
        assert_close(merged.weights, whole.weights, 1e-12)
        assert_close(merged.means, whole.means, 1e-12)
        assert_close(merged.scatter, whole.scatter, 1e-10)
    weights = np.ones(40) if weight is None else weight
    assert_close(whole.mean, np.average(X, axis=0, weights=weights), 1e-12)
    assert_close(whole.scatter, np.cov(X.T, aweights=weights, ddof=0) * weights.sum(), 1e-10)
