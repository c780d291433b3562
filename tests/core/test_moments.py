"""Moments merge in any order, and standardisation knows what varies."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mgpa.moments
from factories import assert_close
from mgpa.estimators.devices import sample_windows
from mgpa.labels import coded
from mgpa.moments import Means, Moments, SourceMoments
from mgpa.pairs import Pairs, rows_among_views
from mgpa.statistics import LabelledRows
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
    left = sum(pieces, Moments({}))
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


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("piece", [5, 6 * 10])  # rows longer than a piece are one each
@pytest.mark.parametrize("n", [5, 300])  # fewer rows than features, and several blocks
def test_moments_in_blocks_are_those_of_all_rows_at_once(n, piece, weighted, monkeypatch):
    monkeypatch.setattr(mgpa.moments, "BLOCK", 6 * 64)
    monkeypatch.setattr(mgpa.moments, "PIECE", piece)
    monkeypatch.setattr(mgpa.moments, "CENTER_ROWS", 3)
    rng = np.random.default_rng(n)
    X = (1000.0 + rng.normal(size=(n, 6))).astype(np.float32)
    X[:: n - 1] += 500.0  # the rows that the centre is taken from are far from the rest
    weight = rng.uniform(0.5, 2.0, size=n) if weighted else None
    seen = SourceMoments.from_rows(X, weight)
    wide, w = X.astype(np.float64), np.ones(n) if weight is None else weight
    assert_close(seen.mean, np.average(wide, axis=0, weights=w), 1e-12)
    expected = (wide - seen.mean).T @ ((wide - seen.mean) * w[:, None])
    assert_close(seen.scatter, expected, 1e-13 * np.abs(expected).max())
    assert seen.spread.factored == (n < 6)
    some = np.flatnonzero(rng.integers(2, size=n))
    part = SourceMoments.from_rows(X, None if weight is None else weight[some], some)
    assert_close(part.scatter, SourceMoments.from_rows(X[some], w[some]).scatter, 1e-9)


@pytest.mark.parametrize("weighted", [True, False])
def test_threads_share_the_rows_of_sources_in_parts_and_change_no_bit(weighted, monkeypatch):
    monkeypatch.setattr(mgpa.moments, "BLOCK", 6 * 16)
    rng = np.random.default_rng(0)
    X, source = (
        rng.normal(size=(3000, 6)).astype(np.float32),
        np.array(["a", "b"])[(rng.random(3000) < 0.1) * 1],
    )
    weight = rng.uniform(0.5, 2.0, size=3000) if weighted else None
    several = []
    for threads in (1, 2, 3):
        monkeypatch.setattr("mgpa.linalg.n_threads", lambda threads=threads: threads)
        several.append(Moments.from_rows(X, source, weight))
    for label in "ab":
        rows = np.flatnonzero(source == label)
        whole = SourceMoments.from_rows(X, None if weight is None else weight[rows], rows)
        first = several[0].parts[label]
        assert first.n_rows == whole.n_rows
        assert (first.checksum == whole.checksum).all()
        assert_close(first.mean, whole.mean, 1e-12)
        assert_close(first.scatter, whole.scatter, 1e-11 * np.abs(whole.scatter).max())
        for other in several[1:]:
            np.testing.assert_array_equal(other.parts[label].scatter, first.scatter)
            np.testing.assert_array_equal(other.parts[label].mean, first.mean)


def test_the_fingerprint_knows_rows_labels_and_numbers_but_no_order():
    X, source = np.random.default_rng(1).normal(size=(8, 3)), np.array(["a", "b"] * 4)
    fingerprint = Moments.from_rows(X, source).fingerprint
    order = np.random.default_rng(2).permutation(8)
    assert Moments.from_rows(X[order], source[order]).fingerprint == fingerprint
    others = [
        (X + 1e-9, source),
        (X, source[::-1]),
        (X, np.array(["a", "c"] * 4)),
        (X[:, ::-1], source),
        (np.concatenate([X, np.zeros((1, 3))]), np.append(source, "a")),
    ]
    for other in others:
        assert Moments.from_rows(*other).fingerprint != fingerprint


@pytest.mark.parametrize("weighted", [True, False])
def test_means_of_labels_merge(weighted):
    rng = np.random.default_rng(3)
    X, labels = rng.normal(size=(30, 4)).astype(np.float32), rng.choice(["x", "y", "z"], size=30)
    weight = rng.uniform(size=30) if weighted else None
    parts = [
        Means.from_rows(X[rows], labels[rows], sample_weight=None if weight is None else weight[rows])
        for rows in (slice(0, 7), slice(7, 8), slice(8, 30))
    ]
    merged = parts[2] + parts[0] + parts[1]
    assert list(merged.parts) == ["x", "y", "z"]
    known = np.ones(30) if weight is None else weight
    for label, (total, mean) in merged.parts.items():
        rows = labels == label
        assert total == pytest.approx(known[rows].sum())
        assert_close(mean, np.average(X[rows].astype(float), axis=0, weights=known[rows]), 1e-12)
    nothing = Means.from_rows(X[:2], np.array(["x", "x"]), sample_weight=np.zeros(2))
    assert nothing.parts["x"][0] == 0.0
    assert not nothing.parts["x"][1].any()
    assert (nothing + nothing).parts["x"][0] == 0.0
    assert_close((nothing + merged).parts["x"][1], merged.parts["x"][1], 1e-12)


@pytest.mark.parametrize("wild", [1e6, 1e12])
@pytest.mark.parametrize("share", [0.0, 1e-40])
def test_rows_that_weights_leave_out_leave_no_trace_whatever_they_hold(wild, share):
    rng = np.random.default_rng(0)
    X, source, weight = rng.normal(size=(3000, 20)), np.arange(3000) % 2, rng.uniform(0.5, 2.0, 3000)
    kept = np.arange(3000) % 10 > 0
    expected = Moments.from_rows(X[kept], source[kept], weight[kept])
    X[~kept], weight[~kept] = wild * rng.uniform(1, 2, (300, 20)), share
    found = Moments.from_rows(X, source, weight)
    np.testing.assert_allclose(
        found.scatter, expected.scatter, rtol=1e-10, atol=1e-10 * expected.scatter.max()
    )
    np.testing.assert_allclose(found.means, expected.means, atol=1e-10)


@pytest.mark.parametrize("labels", [["b", "a"] * 900, list(range(1500)), [0] * 3000 + [1], [1.0, 2.0] * 800])
def test_labels_are_coded_as_numpy_codes_them(labels):
    expected = np.unique(labels, return_inverse=True)
    for got, wanted in zip(coded(np.array(labels)), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_rows_that_are_views_are_told_from_rows_that_share_features_with_them():
    rng = np.random.default_rng(0)
    A, X = rng.integers(0, 2, (40, 12)).astype(float), rng.integers(0, 2, (300, 12)).astype(np.float32)
    X[[5, 17]], X[8] = A[[3, 30]], A[3] + np.eye(12)[1]
    codes = np.zeros(300, np.int64)
    pairs = Pairs.from_arrays((A, A + 5.0), 12)
    expected = [i for i, row in enumerate(X) if (row == A).all(axis=1).any()]
    np.testing.assert_array_equal(rows_among_views(X, codes, pairs), expected)
    assert {5, 17} <= set(expected)


def test_windows_and_moments_of_a_tensor_are_those_of_the_array():
    """Rows on a device are fetched together: their windows, keys and checksums are those of an array."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(900, 5)) + 100).astype(np.float32)
    source, participant = rng.integers(0, 2, 900), rng.integers(0, 4, 900)
    for participants in (None, participant):
        ours, theirs = (
            sample_windows(LabelledRows(rows, source, participant=participants))
            for rows in (X, torch.as_tensor(X))
        )
        assert [w.key for w in ours] == [w.key for w in theirs]
        assert [(w.source, w.participant) for w in ours] == [(w.source, w.participant) for w in theirs]
    for weight in (None, rng.uniform(0.5, 2, 900)):
        ours, theirs = (SourceMoments.from_rows(rows, weight) for rows in (X, torch.as_tensor(X)))
        assert_close(theirs.scatter, ours.scatter, 1e-9)
        assert_close(theirs.mean, ours.mean, 1e-12)
        assert (theirs.checksum == ours.checksum).all()


@pytest.mark.parametrize("numbers", [4, 12, 2**21])
def test_means_of_many_labels_are_those_of_each_in_blocks_of_any_size(monkeypatch, numbers):
    monkeypatch.setattr(mgpa.moments, "BLOCK", numbers)
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(60, 4)).astype(np.float32), rng.integers(0, 17, 60)
    weight = np.where(labels == 3, 0.0, rng.random(60))
    found = Means.from_rows(X, labels, sample_weight=weight).parts
    for label in np.unique(labels):
        rows, total = labels == label, weight[labels == label].sum()
        assert found[label][0] == pytest.approx(total, rel=1e-13)
        assert_close(found[label][1], weight[rows] @ X[rows] / (total or 1.0), 1e-12)


@pytest.mark.parametrize("known", [True, False])
def test_windows_are_evenly_spaced_runs_of_each_cell_with_the_smallest_keys(known):
    rng = np.random.default_rng(0)
    source, people = rng.integers(0, 2, 3000), rng.choice(9, 3000, p=[0.6, *[0.05] * 8])
    X = rng.normal(size=(3000, 3))
    expected = []
    for who in np.unique(people) if known else [None]:
        for label in (0, 1):
            rows = np.flatnonzero((source == label) & (True if who is None else people == who))
            n_parts = -(-len(rows) // 50)
            for i in np.unique(np.linspace(0, n_parts - 1, min(6 if known else 400, n_parts)).astype(int)):
                part = rows[i * len(rows) // n_parts : (i + 1) * len(rows) // n_parts][:50]
                expected.append((label, who, X[part].astype(np.float32).tobytes()))
    found = sample_windows(LabelledRows(X, source, participant=people if known else None))
    assert [w.key for w in found] == sorted(zlib.crc32(content) for _, _, content in expected)
    assert {(w.source, w.participant, w.rows.tobytes()) for w in found} == set(expected)
