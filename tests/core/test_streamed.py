"""Fits from sufficient statistics: in one call, batch by batch, or merged, they are one fit."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import assert_close, new_rows, several_sources, two_sources
from mgpa import ClosedFormMGPA
from random_cases import SEEDS, examples


def split(data, rng, n_batches):
    """Return the data in random batches of rows, pairs given as arrays split too."""
    parts = np.array_split(rng.permutation(len(data.X)), n_batches)
    batches = [data.rows(rows) for rows in parts]
    if data.pairs is not None:
        chunks = np.array_split(rng.permutation(len(data.pairs[0])), n_batches)
        batches = [
            replace(batch, pairs=tuple(side[rows] for side in data.pairs) if len(rows) else None)
            for batch, rows in zip(batches, chunks, strict=True)
        ]
    return batches


@examples(30)
@given(SEEDS, st.integers(1, 6), st.sampled_from(["pairs", 2, 3]), st.booleans())
def test_batch_streamed_and_merged_fits_are_one(seed, n_batches, kind, weighted):
    rng = np.random.default_rng(seed)
    data = two_sources(seed) if kind == "pairs" else several_sources(seed, K=kind)
    if weighted:
        data = replace(data, sample_weight=rng.uniform(0.1, 3.0, size=len(data.X)))
    X, whole = new_rows(data), data.fit(ClosedFormMGPA())
    batches = split(data, rng, n_batches)  # views of one event often fall into different batches
    streamed = ClosedFormMGPA()
    for batch in batches:
        streamed.partial_fit(batch.X, **batch.evidence())
    parts = [ClosedFormMGPA().partial_fit(batch.X, **batch.evidence()) for batch in batches]
    merged = ClosedFormMGPA()
    for i in rng.permutation(len(parts)):
        merged.merge(parts[i])
    for other in (streamed, merged):
        assert_close(other.transform(X), whole.transform(X), 1e-10)
        assert_close(other.covariance_, whole.covariance_, 1e-10)
        info, expected = (replace(model.to_map().info, gate_energy=None) for model in (other, whole))
        assert info == expected


def test_rows_can_be_added_after_a_fit():
    data = several_sources(5, K=2)
    rng = np.random.default_rng(5)
    first, second = split(data, rng, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some pairs are still incomplete
        model = first.fit(ClosedFormMGPA())
        early = model.transform(data.X)
    model.partial_fit(second.X, **second.evidence())
    assert np.abs(model.transform(data.X) - early).max() > 1e-6
    assert_close(model.transform(data.X), data.fit(ClosedFormMGPA()).transform(data.X), 1e-10)


@examples(20)
@given(SEEDS, st.floats(-1e6, 1e6), st.integers(2, 6))
def test_constant_features_stay_constant_when_streamed(seed, value, n_batches):
    data = two_sources(seed)
    data.X[:, 2] = value
    model = ClosedFormMGPA()
    for batch in split(data, np.random.default_rng(seed), n_batches):
        model.partial_fit(batch.X, **batch.evidence())
    X = new_rows(data)
    assert model.map_.scale[2] == 1.0
    assert np.array_equal(model.transform(X)[:, 2], X[:, 2])


def test_merging_checks_what_it_merges():
    data = two_sources()
    X, source, pairs = data.X, data.source, data.pairs
    names = list("abcdef")
    half = slice(0, 40), slice(40, 80)
    frames = [pd.DataFrame(X[rows], columns=names) for rows in half]
    first = ClosedFormMGPA().partial_fit(frames[0], source=source[half[0]], pairs=pairs)
    second = ClosedFormMGPA().partial_fit(frames[1], source=source[half[1]])
    fresh = ClosedFormMGPA().merge(first).merge(second)
    whole = ClosedFormMGPA().fit(pd.DataFrame(X, columns=names), source=source, pairs=pairs)
    np.testing.assert_allclose(fresh.transform(frames[0]), whole.transform(frames[0]), atol=1e-10)
    assert list(fresh.feature_names_in_) == names
    with pytest.raises(ValueError, match="count them twice"):
        first.merge(first)
    reversed_columns = ClosedFormMGPA().partial_fit(frames[1][names[::-1]], source=source[half[1]])
    with pytest.raises(ValueError, match="another order"):
        first.merge(reversed_columns)
    with pytest.raises(ValueError, match="not fitted"):
        first.merge(ClosedFormMGPA())
