"""Travelling subjects: biases of least squares, and what is left of a source difference without them."""

import numpy as np
import pytest

from mgpa.baselines import TravelingSubjects, split_source_difference
from mgpa.baselines.traveling import measurement_biases
from mgpa.errors import MissingEvidence


def sites(K=3, events=40, d=5, seed=0, missing=0.3, noise=0.3):
    """Return rows of events that some sources have seen, with their biases."""
    rng = np.random.default_rng(seed)
    levels, biases = rng.normal(size=(events, d)), rng.normal(size=(K, d))
    event, source = (part.ravel() for part in np.mgrid[:events, :K])
    keep = rng.random(len(event)) > missing
    event, source = event[keep], source[keep]
    X = 2.0 + levels[event] + biases[source] + noise * rng.normal(size=(len(event), d))
    return X, source, event, biases - biases.mean(axis=0)


@pytest.mark.parametrize("K", [2, 3, 5])
def test_biases_are_least_squares_with_a_level_for_every_event(K):
    X, source, event, _ = sites(K)
    design = np.hstack([np.eye(K)[source], np.eye(event.max() + 1)[event]])
    dummies = np.linalg.lstsq(design, X, rcond=None)[0][:K]
    expected = dummies - dummies.mean(axis=0)
    np.testing.assert_allclose(measurement_biases(X, source, event, K), expected, atol=1e-10)
    model = TravelingSubjects().fit(X, source=source, pair_id=event)
    moved = X - model.transform(X, source=source)
    np.testing.assert_allclose(moved, expected[source], atol=1e-10)
    assert model.reference_ is None
    one = TravelingSubjects(reference=1).fit(X, source=source, pair_id=event)
    np.testing.assert_allclose(
        X - one.transform(X, source=source), (expected - expected[1])[source], atol=1e-10
    )
    assert one.reference_ == 1
    np.testing.assert_array_equal(one.transform(X[source == 1], source=1), X[source == 1])


def test_rows_of_other_people_do_not_enter():
    X, source, _, _ = sites(2)
    A, B = np.random.default_rng(1).normal(size=(2, 30, 5))
    first = TravelingSubjects().fit(X, source=source, pairs=(A, B))
    other = TravelingSubjects().fit(X + 5.0 * source[:, None], source=source, pairs=(A, B))
    np.testing.assert_allclose(
        first.transform(X, source=source), other.transform(X, source=source), atol=1e-10
    )
    gap = (B - A).mean(axis=0)
    np.testing.assert_allclose(first.transform(X, source=0), X + gap / 2, atol=1e-10)


def test_sources_that_no_pair_links_are_refused():
    X, source, event, _ = sites(4)
    apart = event + 100 * (source > 1)
    with pytest.raises(MissingEvidence, match="do not connect all 4 sources"):
        TravelingSubjects().fit(X, source=source, pair_id=apart)


def cohorts(sampling, seed=0, people=200, d=6):
    """Return rows of two cohorts on two devices, and pairs: the device is in feature 0, people in 1."""
    rng = np.random.default_rng(seed)
    source, y = rng.integers(2, size=(2, people))
    X = rng.normal(size=(people, d)) + np.outer(y, np.eye(d)[2])
    X += np.outer(source, 1.0 * np.eye(d)[0] + sampling * np.eye(d)[1])
    A = rng.normal(size=(60, d))
    B = A + np.eye(d)[0] + 0.2 * rng.normal(size=A.shape)
    return X, source, y, (A, B)


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("sampling", [0.0, 1.5])
def test_a_difference_is_split_into_device_and_people(sampling, labelled):
    X, source, y, pairs = cohorts(sampling, people=2000)
    split = split_source_difference(X, source, pairs=pairs, y=y if labelled else None)
    assert len(split) == 2 * (1 + labelled)
    scale = X.std(axis=0)
    for row in split:  # half the gap on each side of the mean
        assert row.measurement == pytest.approx(0.5 / scale[0] / np.sqrt(6), abs=3 * row.measurement_se)
        assert row.sampling == pytest.approx(
            0.5 * sampling / scale[1] / np.sqrt(6), abs=3 * row.sampling_se + 0.03
        )
    assert "measurement se" in str(split)


def test_without_sampling_bias_lengths_are_unbiased():
    """Noise has a length too: its mean is taken off, so nothing is not read as something."""
    squares, plain = [], []
    for seed in range(40):
        X, source, _, pairs = cohorts(0.0, seed=seed, people=60)
        row = split_source_difference(X, source, pairs=pairs)[0]
        gap = (X[source == 1].mean(0) - X[source == 0].mean(0) - (pairs[1] - pairs[0]).mean(0)) / 2
        plain.append(np.mean((gap / X.std(axis=0)) ** 2))
        squares.append(row.sampling**2)
    assert np.mean(squares) < 0.6 * np.mean(plain)
    assert np.median(squares) < 0.1 * np.mean(plain)


def test_standard_errors_are_over_participants():
    X, *_ = cohorts(0.0, people=40)
    many, people = np.repeat(X, 10, axis=0), np.repeat(np.arange(40), 10)
    rows, known = np.concatenate([many, many + np.eye(6)[0]]), np.tile(people, 2)
    arguments = {"source": np.repeat([0, 1], 400), "pair_id": np.tile(np.arange(400), 2)}
    by_people = split_source_difference(rows, groups=known, **arguments)[0]
    by_rows = split_source_difference(rows, **arguments)[0]
    assert by_people.measurement == pytest.approx(by_rows.measurement, abs=0.02)
    part = np.random.default_rng(0).random(800) < 0.5  # not everyone on both devices
    arguments = {name: values[part] for name, values in arguments.items()}
    by_people = split_source_difference(rows[part], groups=known[part], **arguments)[0]
    by_rows = split_source_difference(rows[part], **arguments)[0]
    assert by_people.total_se > 0
    assert by_people.sampling_se != pytest.approx(by_rows.sampling_se, rel=0.05)


def test_a_difference_that_one_participant_shows_has_no_standard_error():
    X, *_ = cohorts(0.0, people=40)
    people = np.tile(np.arange(40), 2)
    rows, source = np.concatenate([X, X + np.eye(6)[0]]), np.repeat([0, 1], 40)
    for travelled in (1, 2):
        keep = (people < travelled) | (people % 2 == source)
        ids = np.where(people < travelled, people, -1)[keep]
        arguments = {"source": source[keep], "pair_id": ids, "groups": people[keep]}
        if travelled == 1:
            with pytest.raises(MissingEvidence, match="Pairs of one participant do not show how"):
                split_source_difference(rows[keep], **arguments)
        else:
            assert split_source_difference(rows[keep], **arguments)[0].measurement_se > 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pairs": None}, "No pairs"),
        ({"pair_id": np.arange(200)}, "not both"),
        ({"source": np.zeros(200)}, "1 distinct value"),
        ({"y": np.arange(200) < 1}, "No rows of source .* with label True; leave that label out"),
    ],
)
def test_what_cannot_be_split_is_refused(changes, words):
    X, source, _, pairs = cohorts(0.0)
    with pytest.raises(ValueError, match=words):
        split_source_difference(X, **({"source": source, "pairs": pairs} | changes))
