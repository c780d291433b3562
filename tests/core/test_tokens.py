"""Tokens move with their mean, all alike."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import assert_close, new_rows, several_sources, two_sources
from mgpa import ClosedFormMGPA, MeasurementGate, TokenMean, transform_tokens
from mgpa.baselines import CORAL
from mgpa.estimators.streamed import LabelledPairs
from mgpa.tokens import token_mean
from random_cases import SEEDS, examples


@examples(15)
@given(SEEDS, st.integers(1, 5), st.sampled_from([np.float32, np.float64]))
def test_tokens_move_with_their_mean(seed, n_tokens, dtype):
    data, rng = two_sources(seed), np.random.default_rng(seed)

    def tokens(rows):
        return (rows[:, None] + rng.normal(size=(len(rows), n_tokens, rows.shape[1]))).astype(dtype)

    X, pairs = tokens(data.X), tuple(map(tokens, data.pairs))
    model = TokenMean(ClosedFormMGPA(do_no_harm=False)).fit(X, source=data.source, pairs=pairs)
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
    direct = ClosedFormMGPA(do_no_harm=False)
    direct.fit(X.mean(1), source=data.source, pairs=tuple(side.mean(1) for side in pairs))
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


def tokens_of(rows, seed=0, t=3):
    return rows[:, None] + np.random.default_rng(seed).normal(size=(len(rows), t, rows.shape[1]))


def with_tokens(data):
    return replace(data, X=tokens_of(data.X), pairs=tuple(tokens_of(side, 1) for side in data.pairs))


def test_streamed_and_merged_tokens_are_one_fit():
    data = with_tokens(two_sources())
    whole = data.fit(TokenMean(ClosedFormMGPA()))
    first, second = data.rows(slice(0, 30)), replace(data.rows(slice(30, 80)), pairs=None)
    streamed = TokenMean(ClosedFormMGPA())
    for batch in (first, second):
        streamed.partial_fit(batch.X, **batch.evidence())
    parts = [TokenMean(ClosedFormMGPA()).partial_fit(b.X, **b.evidence()) for b in (first, second)]
    merged = parts[0].merge(parts[1])
    later = TokenMean(ClosedFormMGPA()).partial_fit(data.X, source=data.source).add_pairs(data.pairs)
    for model in (streamed, merged, later):
        assert_close(model.transform(data.X), whole.transform(data.X), 1e-10)
        assert model.n_tokens_ == model.to_map().info.n_tokens == 3
    other = TokenMean(ClosedFormMGPA()).partial_fit(data.X[:, :2], source=data.source)
    with pytest.raises(ValueError, match="2 tokens per row; fitted on 3"):
        merged.merge(other)


def test_labelled_token_pairs_can_be_added():
    data = several_sources(K=3)
    paired = data.pair_id >= 0
    X = tokens_of(data.X)
    labelled = LabelledPairs(X[paired], data.source[paired], data.pair_id[paired])
    model = TokenMean(ClosedFormMGPA.paper()).partial_fit(X, source=data.source).add_pairs(labelled)
    whole = TokenMean(ClosedFormMGPA.paper()).fit(X, source=data.source, pair_id=data.pair_id)
    assert_close(model.transform(X), whole.transform(X), 1e-10)
    with pytest.raises(ValueError, match="pairs has 2 tokens per row; fitted on 3"):
        model.add_pairs(replace(labelled, X=labelled.X[:, :2]))


def test_rows_of_a_single_token_are_rows():
    data = two_sources()
    model = data.fit(TokenMean(ClosedFormMGPA()))
    expected = data.fit(ClosedFormMGPA()).transform(data.X)
    np.testing.assert_array_equal(model.transform(data.X), expected)
    assert_close(model.transform(data.X[:, None]), expected[:, None], 1e-12)
    assert model.n_tokens_ == 1


def test_a_token_fit_shows_what_its_estimator_learnt():
    data = with_tokens(two_sources())
    model = data.fit(TokenMean(ClosedFormMGPA(MeasurementGate(rank=1))))
    assert model.gate_ is model.estimator_.gate_
    means = tuple(side.mean(axis=1) for side in data.pairs)
    assert model.coverage(data.pairs) == pytest.approx(model.estimator_.coverage(means))
    with pytest.raises(AttributeError, match="has no attribute 'nothing_'"):
        _ = TokenMean(ClosedFormMGPA()).nothing_
    with pytest.raises(AttributeError, match="has no attribute 'gate'"):
        _ = model.gate


def test_token_means_are_accumulated_in_float64():
    X = np.full((1, 3, 1), 1.0, np.float32)
    X[0, 0] = 2.0**24  # next to which float32 has no room for 1
    assert token_mean(X)[0, 0] == np.float32((2.0**24 + 2) / 3)
    assert token_mean(X).dtype == np.float32


def test_source_aware_corrections_of_tokens_are_told_the_sources():
    data = with_tokens(two_sources())
    model = TokenMean(CORAL(reference=0))
    direct = model.fit_transform(data.X, source=data.source)
    assert_close(direct, model.transform(data.X, source=data.source), 1e-12)
    assert np.abs(direct - data.X)[data.source == 1].max() > 0.1
    assert_close(direct[data.source == 0], data.X[data.source == 0], 1e-9)
