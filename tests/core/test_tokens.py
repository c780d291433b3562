"""Tokens move with their mean, all alike."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import assert_close, new_rows, two_sources
from mgpa import ClosedFormMGPA, TokenMean, transform_tokens
from random_cases import SEEDS, examples


@examples(15)
@given(SEEDS, st.integers(1, 5), st.sampled_from([np.float32, np.float64]))
def test_tokens_move_with_their_mean(seed, n_tokens, dtype):
    data, rng = two_sources(seed), np.random.default_rng(seed)

    def tokens(rows):
        return (rows[:, None] + rng.normal(size=(len(rows), n_tokens, rows.shape[1]))).astype(dtype)

    X, pairs = tokens(data.X), tuple(map(tokens, data.pairs))
    model = TokenMean(ClosedFormMGPA()).fit(X, source=data.source, pairs=pairs)
    new = tokens(new_rows(data))
    after = model.transform(new)
    assert (after.shape, after.dtype) == (new.shape, dtype)
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    inner, inner_after = (Y - Y.mean(axis=1, keepdims=True) for Y in (new, after))
    assert_close(inner_after, inner, tolerance)
    m = model.to_map()
    assert m.info.n_tokens == n_tokens
    assert_close(after.mean(axis=1), m.transform(new.mean(axis=1)), tolerance)
    assert np.abs(after - new).max() > 1e-3
    assert_close(transform_tokens(m, new), after, 1e-12)
    direct = replace(data, X=X.mean(1), pairs=tuple(side.mean(1) for side in pairs)).fit(ClosedFormMGPA())
    assert_close(m.transform(new.mean(axis=1)), direct.transform(new.mean(axis=1)), 10 * tolerance)


def test_another_number_of_tokens_is_refused():
    data, rng = two_sources(19), np.random.default_rng(19)
    X = data.X[:, None] + rng.normal(size=(len(data.X), 3, data.X.shape[1]))
    pairs = tuple(np.repeat(side[:, None], 3, axis=1) for side in data.pairs)
    model = TokenMean(ClosedFormMGPA()).fit(X, source=data.source, pairs=pairs)
    for apply in (model.transform, lambda Y: transform_tokens(model.to_map(), Y)):
        assert apply(X).shape == X.shape
        with pytest.raises(ValueError, match="2 tokens per row"):
            apply(X[:, :2])
