"""Tokens move with their mean, all together, or one by one."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import Data, assert_close, new_rows, several_sources, two_sources
from mgpa import ClosedFormMGPA, JointTokens, TokenMean, load_map, transform_tokens
from mgpa.baselines import CORAL
from mgpa.statistics import LabelledRows
from random_cases import SEEDS, examples


@examples(15)
@given(SEEDS, st.integers(1, 5), st.sampled_from([np.float32, np.float64]))
def test_tokens_move_with_their_mean(seed, n_tokens, dtype):
    data, rng = two_sources(seed), np.random.default_rng(seed)

    def tokens(rows):
        return (rows[:, None] + rng.normal(size=(len(rows), n_tokens, rows.shape[1]))).astype(dtype)

    X, pairs = tokens(data.X), tuple(map(tokens, data.pairs))
    model = TokenMean(ClosedFormMGPA.paper()).fit(X, source=data.source, pairs=pairs)
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
    direct = replace(data, X=X.mean(1), pairs=tuple(side.mean(1) for side in pairs)).fit(
        ClosedFormMGPA.paper()
    )
    assert_close(m.transform(new.mean(axis=1)), direct.transform(new.mean(axis=1)), 10 * tolerance)


def tokens_of(rows, seed=0, t=3):
    return rows[:, None] + np.random.default_rng(seed).normal(size=(len(rows), t, rows.shape[1]))


def with_tokens(data):
    return replace(data, X=tokens_of(data.X), pairs=tuple(tokens_of(side, 1) for side in data.pairs))


@pytest.mark.parametrize("Tokens", [TokenMean, JointTokens])
def test_streamed_and_merged_tokens_are_one_fit(Tokens):
    data = with_tokens(two_sources())
    whole = data.fit(Tokens(ClosedFormMGPA()))
    first, second = data.rows(slice(0, 30)), replace(data.rows(slice(30, 80)), pairs=None)
    streamed = Tokens(ClosedFormMGPA())
    for batch in (first, second):
        streamed.partial_fit(batch.X, **batch.evidence())
    parts = [Tokens(ClosedFormMGPA()).partial_fit(b.X, **b.evidence()) for b in (first, second)]
    merged = parts[0].merge(parts[1])
    later = Tokens(ClosedFormMGPA()).partial_fit(data.X, source=data.source).add_pairs(data.pairs)
    for model in (streamed, merged, later):
        assert_close(model.transform(data.X), whole.transform(data.X), 1e-10)
        assert model.n_tokens_ == model.to_map().info.n_tokens == 3
    other = Tokens(ClosedFormMGPA()).partial_fit(data.X[:, :2], source=data.source)
    with pytest.raises(ValueError, match="2 tokens per row; fitted on 3"):
        merged.merge(other)


@pytest.mark.parametrize("Tokens", [TokenMean, JointTokens])
def test_labelled_token_pairs_of_three_sources_can_be_added(Tokens):
    data = several_sources(K=3)
    paired = data.pair_id >= 0
    X = tokens_of(data.X)
    labelled = LabelledRows(X[paired], data.source[paired], data.pair_id[paired])
    model = Tokens(ClosedFormMGPA.paper()).partial_fit(X, source=data.source).add_pairs(labelled)
    whole = Tokens(ClosedFormMGPA.paper()).fit(X, source=data.source, pair_id=data.pair_id)
    assert_close(model.transform(X), whole.transform(X), 1e-10)
    assert len(model.to_map().info.source_names) == 3
    with pytest.raises(ValueError, match="pairs has 2 tokens per row; fitted on 3"):
        model.add_pairs(replace(labelled, X=labelled.X[:, :2]))


def test_source_aware_corrections_of_tokens_are_told_the_sources():
    data = with_tokens(two_sources())
    model = TokenMean(CORAL(reference=0))
    direct = model.fit_transform(data.X, source=data.source)
    assert_close(direct, model.transform(data.X, source=data.source), 1e-12)
    assert np.abs(direct - data.X)[data.source == 1].max() > 0.1
    assert_close(direct[data.source == 0], data.X[data.source == 0], 1e-9)


def opposed(n=200, t=4, d=5, m=60):
    """Return tokens whose sources differ in two of them, in opposite ways: their mean shows nothing."""
    rng = np.random.default_rng(0)
    shift = np.zeros((t, d))
    shift[0, 0], shift[1, 0] = 3.0, -3.0
    source = np.arange(n) % 2
    X = rng.normal(size=(n, t, d)) + source[:, None, None] * shift
    A = rng.normal(size=(m, t, d))
    return Data(X, source, (A, A + shift + 0.1 * rng.normal(size=A.shape)))


def gap(data, Y):
    return np.abs(Y[data.source == 1].mean(axis=0) - Y[data.source == 0].mean(axis=0)).max()


@pytest.mark.filterwarnings("ignore:.*Returning the identity map")
def test_what_single_tokens_tell_is_corrected_where_the_mean_shows_nothing():
    data = opposed()
    assert gap(data, data.X) > 2.5
    assert gap(data, data.fit(TokenMean(ClosedFormMGPA(on_missing="warn"))).transform(data.X)) > 2.5
    assert gap(data, data.fit(JointTokens(ClosedFormMGPA())).transform(data.X)) < 0.7


def test_joint_tokens_are_the_rows_of_all_their_numbers():
    data = with_tokens(two_sources(effect=4.0))
    model = data.fit(JointTokens(ClosedFormMGPA()))
    flat = replace(data, X=data.X.reshape(80, -1), pairs=tuple(side.reshape(30, -1) for side in data.pairs))
    expected = flat.fit(ClosedFormMGPA()).transform(flat.X)
    np.testing.assert_array_equal(model.transform(data.X), expected.reshape(data.X.shape))
    assert np.abs(expected - flat.X).max() > 0.01
    assert model.coverage(data.pairs) == model.estimator_.coverage(flat.pairs)


@pytest.mark.parametrize("Tokens", [TokenMean, JointTokens])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_stored_map_of_tokens_says_how_it_takes_them(Tokens, dtype, tmp_path):
    data = with_tokens(two_sources())
    data.X[:, 1, 2] = 7.0  # a feature that never varies in one token only
    model = data.fit(Tokens(ClosedFormMGPA()))
    m = load_map(model.to_map().save(tmp_path / "m"))
    assert (m.info.n_tokens, m.info.token_layout) == (3, "mean" if Tokens is TokenMean else "joint")
    assert ("together, all 3" in m.summary()) == (Tokens is not TokenMean)
    X = data.X.astype(dtype)
    corrected = transform_tokens(m, X)
    np.testing.assert_array_equal(m.transform(X), corrected)
    assert m.check(X).ok
    with pytest.raises(TypeError, match="Omit out"):
        m.transform(X, out=X)
    assert corrected.dtype == dtype
    assert_close(corrected, model.transform(X), 1e-12 if dtype == np.float64 else 1e-5)
    if Tokens is not TokenMean:
        assert m.info.constant_features == (1 * 6 + 2,)
        np.testing.assert_array_equal(corrected[:, 1, 2], X[:, 1, 2])


def test_many_more_numbers_than_rows_take_no_square_matrix():
    rng = np.random.default_rng(0)
    source, shift = np.arange(60) % 2, np.zeros((40, 256))
    shift[:, :3] = 1.0
    X = rng.normal(size=(60, 40, 256)) + source[:, None, None] * shift  # 10 240 features: squared, 800 MiB
    A = rng.normal(size=(40, 40, 256))
    pairs = (A, A + shift + 0.1 * rng.normal(size=A.shape))
    tracemalloc.start()
    model = JointTokens(ClosedFormMGPA(anchor="within")).fit(X, source=source, pairs=pairs)
    model.transform(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**27
