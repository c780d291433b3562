"""Paired measurements: ids, labels, contrasts and the effects they give."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from factories import several_sources
from mgpa import ClosedFormMGPA
from mgpa.labels import source_names
from mgpa.pairs import Pairs


def test_pair_ids_with_gaps_as_pandas_makes_them():
    data = several_sources(K=2)
    ids = data.pair_id
    gaps = pd.Series(ids).where(ids >= 0)
    assert gaps.dtype == float
    expected = data.fit(ClosedFormMGPA()).transform(data.X)
    with_gaps = replace(data, pair_id=gaps).fit(ClosedFormMGPA())
    np.testing.assert_array_equal(with_gaps.transform(data.X), expected)


def test_contrasts_are_second_minus_first_in_float64():
    A, B = np.float32([[1e8, 0.0]]), np.float32([[1e8 + 8, 2.0]])
    pairs = Pairs.from_arrays((A, B), 2)
    assert pairs.contrasts.dtype == np.float64
    assert (pairs.contrasts.tolist(), pairs.first.tolist(), pairs.second.tolist()) == (
        [[8, 2]],
        [0],
        [1],
    )


def test_ids_give_one_contrast_for_every_two_views_of_an_event():
    X = np.array([[1.0], [2.0], [4.0], [8.0], [16.0], [32.0], [64.0]])
    codes, ids = np.array([2, 0, 1, 1, 0, 0, 1]), np.array([7, 7, 7, 3, 3, -1, -1])
    pairs = Pairs.from_ids(X, codes, ids)
    rows = zip(pairs.first.tolist(), pairs.second.tolist(), pairs.contrasts[:, 0], strict=True)
    # Event 3 is rows 4 and 3; event 7 is rows 1, 2 and 0, by source.
    assert sorted(rows) == [(0, 1, 8.0 - 16.0), (0, 1, 4.0 - 2.0), (0, 2, 1.0 - 2.0), (1, 2, 1.0 - 4.0)]
    assert len(Pairs.from_ids(X, codes, np.full(7, -1))) == 0


def test_effects_are_relative_to_the_first_source_and_least_squares():
    effects = np.array([[0.0, 0.0], [1.0, -2.0], [5.0, 3.0]])
    first, second = np.array([0, 0, 1, 2]), np.array([1, 2, 2, 1])
    exact = Pairs(np.zeros((4, 2)), effects[second] - effects[first], first, second)
    np.testing.assert_allclose(exact.source_effects(3), effects[1:], atol=1e-12)
    two = Pairs(np.zeros((3, 1)), np.array([[1.0], [2.0], [6.0]]), np.zeros(3, int), np.ones(3, int))
    np.testing.assert_allclose(two.source_effects(2), [[3.0]], atol=1e-12)
    # A chain 0 - 1 - 2 is enough; without a link between 1 and 2 it is not.
    chain = Pairs(np.zeros((2, 2)), effects[1:] - effects[:-1], np.array([0, 1]), np.array([1, 2]))
    np.testing.assert_allclose(chain.source_effects(3), effects[1:], atol=1e-12)
    with pytest.raises(ValueError, match="do not connect all 3 sources"):
        two.source_effects(3)


def test_whole_numbers_are_named_alike_whatever_their_type():
    assert source_names(np.array([1.0, 2.0])) == source_names(np.array([1, 2])) == ("1", "2")
    assert source_names(np.array([0.5])) == ("0.5",)
    assert source_names(np.array(["1.0", "wet"])) == ("1.0", "wet")


def test_everything_of_pairs_follows_from_their_views():
    rng = np.random.default_rng(0)
    a, b, people = rng.normal(size=(4, 3)), rng.normal(size=(4, 3)), np.array(list("xxyz"))
    pairs = Pairs.from_arrays((a, b), 3, people)
    assert pairs.a is a  # one copy of the views: the user's own
    np.testing.assert_array_equal(pairs.contrasts, b - a)
    np.testing.assert_allclose(pairs.midpoints, (a + b) / 2, rtol=1e-15)
    some = pairs.take(np.array([2, 0]))
    assert (some.participants.tolist(), some.kind.tolist()) == (["y", "x"], [[0, 1], [0, 1]])
    both = Pairs.concatenate([pairs, some])
    np.testing.assert_array_equal(both.contrasts[4:], (b - a)[[2, 0]])
    assert both.participants.tolist() == list("xxyzyx")
    unknown = Pairs.from_arrays((a, b), 3)
    assert Pairs.concatenate([pairs, unknown]).participants is None
