"""S without an effect is .5: what choosing the best of many readers adds is taken off."""

import numpy as np
import pytest
from scipy.stats import rankdata

from audited import LINEAR
from mgpa.audit import contrast, estimate, run
from mgpa.audit.bootstrap import leave_one_out, optimism
from mgpa.audit.ranks import between_auroc, ranks
from mgpa.tables import Table


def average_of(make, n=200):
    """Return the mean of S as the paper has it and as audits have it, and the error of the latter."""
    found = np.array([[values.mean(axis=0).max(), estimate(values, "best", n_draws=1).value]
                      for values in (make(np.random.default_rng(seed)) for seed in range(n))])  # fmt: skip
    return found.mean(axis=0), found[:, 1].std() / np.sqrt(n)


@pytest.mark.parametrize("n_people", [8, 12, 30])
@pytest.mark.parametrize("shared", [0.0, 0.7])
def test_without_an_effect_the_best_reader_has_a_half(n_people, shared):
    def auroc(rng):
        of_person, own = rng.normal(size=(n_people, 1)), rng.normal(size=(n_people, 24))
        return 0.5 + 0.06 * (np.sqrt(shared) * of_person + np.sqrt(1 - shared) * own)

    (largest, corrected), error = average_of(auroc)
    assert largest > 0.51
    assert corrected == pytest.approx(0.5, abs=0.005 + 2 * error)


def test_between_units_luck_is_taken_off_both_sides():
    rng = np.random.default_rng(0)
    source, classes, units = np.repeat([0, 1], 20), np.zeros(40, np.int64), np.arange(40)
    found = []
    for _ in range(200):
        values = between_auroc(rng.normal(size=(40, 15)), source, units, classes)
        best = estimate(values, "best", strata=source, leverage=2.0, n_draws=1).value
        found.append((values.mean(axis=0).max(), best))
    largest, corrected = np.mean(found, axis=0)
    assert largest > 0.6
    assert corrected == pytest.approx(0.5, abs=0.015)


def test_where_one_reader_is_best_nothing_is_taken_off():
    rng = np.random.default_rng(1)
    values = np.clip(0.55 + 0.05 * rng.normal(size=(20, 15)), 0, 1)
    values[:, 3] += 0.3
    assert optimism(values) == pytest.approx(0.0, abs=1e-3)
    assert estimate(values, "best").value == pytest.approx(values[:, 3].mean(), abs=1e-3)
    assert leave_one_out(values, "best") == pytest.approx(leave_one_out(values, "max"), abs=1e-3)


def test_readers_that_are_as_good_in_some_draws_add_no_luck_to_one_that_is_never_wrong():
    values = np.ones((15, 3))
    values[:4, 0] = values[4:9, 1] = 0.0  # the last reader is right about everybody
    assert optimism(values) == 0.0
    assert estimate(values[None], "best", widen=True).value == pytest.approx(1.0)


def test_intervals_surround_the_corrected_value_and_differences_stay_paired():
    rng = np.random.default_rng(2)
    values = 0.5 + 0.06 * rng.normal(size=(16, 20))
    raw, found = estimate(values, "max"), estimate(values, "best")
    assert found.low < found.value < found.high
    assert found.value < raw.value - 0.01
    assert found.high - found.low == pytest.approx(raw.high - raw.low, abs=1e-9)
    better = contrast(values + 0.01, values, "best")
    assert (better.low, better.value, better.high) == pytest.approx((0.01, 0.01, 0.01))


@pytest.mark.parametrize("nested", [False, True])
def test_an_audit_of_an_absent_source_says_a_half(nested):
    found, largest = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        person = np.repeat(np.arange(60), 12)
        source = (person if nested else np.arange(720)) % 2
        X = rng.normal(size=(720, 6)) + 0.3 * rng.normal(size=(60, 6))[person]
        role = np.array(["FIT", "HEAD", "EVAL"])[(person // 2) % 3]
        table = Table(X, source=source, participant=person, role=role)
        audit = run(table, ["identity"], readers={"restarts": 0}, folds=1, verbose=False)
        result = audit["identity"]
        found.append(result.S)
        largest.append(result.reader_means().max())
        assert result.by_participant("S").mean() == pytest.approx(result.S)
        assert result.influence("S").mean() == pytest.approx(result.S, abs=0.02)
        assert abs(result.chance.high - 0.5) < 0.2
    assert np.mean(largest) > 0.51
    assert np.mean(found) == pytest.approx(0.5, abs=0.005 + 2 * np.std(found) / np.sqrt(12))
    paper = run(table, ["identity"], readers=LINEAR, folds=1, verbose=False)["identity"]
    assert pytest.approx(paper.reader_means().max(), abs=1e-12) == paper.S


def test_a_class_that_no_unit_has_is_left_out():
    """Of three classes, the last is absent from the units that are compared."""
    rng = np.random.default_rng(4)
    scores, codes, units = rng.random((20, 1, 3)), np.arange(20) % 2, np.arange(20)
    found = between_auroc(scores, codes, units, np.zeros(20, np.int64))
    assert np.isfinite(found).all()
    both = [between_auroc(scores[:, :, k] * sign, codes, units, np.zeros(20, np.int64)).mean()
            for k, sign in ((0, -1), (1, 1))]  # fmt: skip
    assert found.mean() == pytest.approx(np.mean(both))


def test_ranks_are_those_of_scipy():
    rng = np.random.default_rng(3)
    scores = rng.integers(0, 6, size=(50, 4)) / 3
    assert np.array_equal(ranks(scores), rankdata(scores, axis=0))
