"""What must hold of both constructions, for any data: the complement stays, units and order do not matter."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import assert_close, both, linear, new_rows, several_sources, two_sources
from mgpa import ClosedFormMGPA, MeasurementGate
from mgpa.gate import FullGate, PCAGate, RandomGate
from random_cases import SEEDS, examples

# The complement.


@examples(8)
@given(SEEDS, st.integers(1, 3), st.booleans(), st.sampled_from([np.float32, np.float64]))
def test_the_iterative_map_leaves_the_complement(seed, rank, network, dtype):
    data = two_sources(seed, dtype=dtype)
    model = data.fit((both if network else linear)(gate=MeasurementGate(rank=rank), radius=0.3))
    X, m = new_rows(data), model.to_map()
    after = model.transform(X)
    assert after.dtype == dtype
    H, moved = ((Y.astype(np.float64) - m.center) / m.scale for Y in (X, after))
    assert np.linalg.norm(moved - H) > 1e-3 * np.linalg.norm(H)
    change = model.gate_.preserved(moved) - model.gate_.preserved(H)
    assert np.linalg.norm(change) <= (1e-5 if dtype == np.float32 else 1e-10) * np.linalg.norm(H)


def test_every_prefix_and_fraction_leaves_the_complement():
    data = two_sources(0)
    model, X = data.fit(both(n_stages=3, gate=MeasurementGate(rank=2))), new_rows(data)
    for n_stages, fraction, strength in [(1, 1.0, None), (2, 0.35, None), (3, 0.5, 1.5)]:
        moved = model.transform(X, n_stages=n_stages, fraction=fraction, strength=strength) - X
        assert np.abs(moved).max() > 1e-3
        assert_close(model.gate_.preserved(moved / model.map_.scale), 0.0, 1e-10)


# Nothing to do is nothing done.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rank_zero_changes_nothing(dtype):
    data = two_sources(1, dtype=dtype)
    for model in (ClosedFormMGPA(MeasurementGate(rank=0)), linear(gate=MeasurementGate(rank=0)),
                  both(gate=MeasurementGate(rank=0))):  # fmt: skip
        X = new_rows(data)
        assert np.array_equal(data.fit(model).transform(X), X)
        assert model.gate_.rank_ == 0


# Invariances.


@examples(6)
@given(SEEDS)
def test_which_view_comes_first_does_not_matter(seed):
    data = two_sources(seed)
    swapped = replace(data, source=1 - data.source, pairs=data.pairs[::-1])
    X = new_rows(data)
    closed = [d.fit(ClosedFormMGPA()).transform(X) for d in (data, swapped)]
    assert_close(closed[1], closed[0], 1e-10)
    iterative = [d.fit(linear()).transform(X) for d in (data, swapped)]
    assert_close(iterative[1], iterative[0], 1e-6)


@examples(6)
@given(SEEDS)
def test_the_order_of_rows_and_pairs_does_not_matter(seed):
    data, rng = two_sources(seed), np.random.default_rng(seed)
    order, pair_order = rng.permutation(len(data.X)), rng.permutation(len(data.pairs[0]))
    shuffled = replace(data.rows(order), pairs=tuple(side[pair_order] for side in data.pairs))
    X = new_rows(data)
    assert_close(shuffled.fit(ClosedFormMGPA()).transform(X), data.fit(ClosedFormMGPA()).transform(X), 1e-10)
    assert_close(shuffled.fit(linear()).transform(X), data.fit(linear()).transform(X), 1e-5)


@examples(6)
@given(SEEDS)
def test_scaled_and_shifted_features_give_scaled_and_shifted_output(seed):
    data, rng = two_sources(seed), np.random.default_rng(seed)
    scale, shift = 10 ** rng.uniform(-3, 3, size=data.X.shape[1]), 10 * rng.normal(size=data.X.shape[1])
    changed = data.map_features(lambda Y: (Y + shift) * scale)
    X = new_rows(data)
    for make, tolerance in ((ClosedFormMGPA, 1e-9), (linear, 1e-5)):
        expected = data.fit(make()).transform(X)
        actual = changed.fit(make()).transform((X + shift) * scale) / scale - shift
        assert_close(actual, expected, tolerance)


@examples(6)
@given(SEEDS)
def test_renaming_the_sources_changes_nothing(seed):
    data = several_sources(seed)
    X, expected = new_rows(data), data.fit(ClosedFormMGPA())
    for names in (["c", "a", "b"], [7, -1, 3], [2, 1, 0]):
        renamed = replace(data, source=np.array(names)[data.source]).fit(ClosedFormMGPA())
        assert renamed.sources_.tolist() == sorted(names)
        assert_close(renamed.transform(X), expected.transform(X), 1e-9)
    two = two_sources(seed)
    swapped = replace(two, source=1 - two.source)
    assert_close(swapped.fit(linear()).transform(X), two.fit(linear()).transform(X), 1e-5)


@examples(6)
@given(SEEDS)
def test_whole_number_weights_equal_repeated_rows(seed):
    data, rng = two_sources(seed), np.random.default_rng(seed)
    counts = rng.integers(0, 4, size=len(data.X))
    weighted = replace(data, sample_weight=counts.astype(float))
    repeated = data.rows(np.repeat(np.arange(len(data.X)), counts))
    X = new_rows(data)
    for make, tolerance in ((ClosedFormMGPA.paper, 1e-10), (linear, 1e-5)):
        models = [d.fit(make()) for d in (weighted, repeated)]
        assert_close(models[0].map_.scale, models[1].map_.scale, 1e-12)
        assert_close(models[0].transform(X), models[1].transform(X), tolerance)
    assert np.abs(data.fit(linear()).transform(X) - models[0].transform(X)).max() > 1e-6


@examples(6)
@given(SEEDS, st.floats(-12, 12))
def test_weights_of_the_within_source_anchor_are_relative(seed, exponent):
    data, rng = two_sources(seed), np.random.default_rng(seed)
    weight, X = rng.uniform(0.1, 2.0, size=len(data.X)), new_rows(data)
    model, scaled = (
        replace(data, sample_weight=w).fit(ClosedFormMGPA()) for w in (weight, weight * 10**exponent)
    )
    assert_close(scaled.transform(X), model.transform(X), 1e-9)
    assert scaled.effect_.error == pytest.approx(model.effect_.error, rel=1e-9)
    equal, plain = (
        replace(data, sample_weight=w).fit(ClosedFormMGPA()) for w in (np.full(80, 10**exponent), None)
    )
    assert_close(equal.transform(X), plain.transform(X), 1e-9)
    assert equal.effect_.error == pytest.approx(plain.effect_.error, rel=1e-9)


# Constant features.

GATES = [
    MeasurementGate(),
    MeasurementGate(rank=2),
    PCAGate(rank=2),
    RandomGate(rank=2, random_state=0),
    FullGate(),
]


@examples(6)
@given(
    SEEDS,
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=3),
    st.sampled_from(GATES),
    st.sampled_from([np.float32, np.float64]),
    st.booleans(),
)
def test_constant_features_are_never_edited(seed, values, gate, dtype, weighted):
    rng = np.random.default_rng(seed)
    data = two_sources(seed, dtype=dtype)
    dead = rng.permutation(data.X.shape[1])[: len(values)]
    data.X[:, dead] = values
    if weighted:
        data = replace(data, sample_weight=rng.uniform(0.1, 2.0, size=len(data.X)))
    X = new_rows(data)
    X[:, dead] += rng.normal(size=(len(X), len(dead))).astype(dtype) * 100
    for model in (ClosedFormMGPA(gate, do_no_harm=False), linear(gate=gate)):
        after = data.fit(model).transform(X)
        assert np.array_equal(after[:, dead], X[:, dead])
        assert (model.map_.scale[dead] == 1.0).all()
        assert not model.gate_.basis_[dead].any()
        living = np.delete(np.arange(data.X.shape[1]), dead)
        assert np.isfinite(after).all()
        assert np.abs(after - X)[:, living].max() > 0


# Precision.


@pytest.mark.parametrize("make", [ClosedFormMGPA, linear, both])
def test_float32_and_float64_rows_get_the_same_correction_in_their_own_type(make):
    data = two_sources(12, dtype=np.float32)
    X = new_rows(data)
    assert X.dtype == np.float32
    model = data.fit(make())
    single, double = model.transform(X), model.transform(X.astype(np.float64))
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    # Where the critics nearly agree, damping of .001 turns rounding of 1e-7 into 1e-4.
    assert_close(single, double, 3e-4 if make is both else 1e-5)
    # The fit itself does not depend on the type the same numbers come in.
    wide = data.map_features(lambda Y: Y.astype(np.float64)).fit(make())
    assert_close(wide.map_.center, model.map_.center, 1e-12)
    assert_close(wide.map_.scale, model.map_.scale, 1e-12)
    assert_close(wide.transform(X.astype(np.float64)), double, 1e-5)
