"""The within-source anchor: blind to how source and task are associated, idle without evidence, a path."""

import numpy as np
import pytest

import mgpa

D = 8


def rows(rng, n=3000, association=0.0, shift=3.0):
    """Draw embeddings whose first feature the source shifts and whose second tells the task."""
    y = rng.choice([-1, 1], n)
    u = np.where(rng.random(n) < (1 + association) / 2, y, -y)
    X = rng.normal(size=(n, D))
    X[:, 1] += y
    X[:, 0] += 0.5 * X[:, 2] + shift / 2 * u
    return X, (u > 0).astype(int), y


def paired(rng, n=100, shift=3.0):
    first = rows(rng, n, shift=0.0)[0]
    return first - shift / 2 * np.eye(D)[0], first + shift / 2 * np.eye(D)[0] + 1e-3 * rng.normal(size=(n, D))


def within(**changes):
    return mgpa.ClosedFormMGPA(mgpa.MeasurementGate(rank=1), **changes)


@pytest.mark.parametrize("association", [0.0, 0.5, 0.9])
def test_the_anchor_does_not_know_how_source_goes_with_task(association):
    rng = np.random.default_rng(0)
    X, source, _ = rows(rng, 20_000, association)
    model = within(standardize=False).fit(X, source=source, pairs=paired(rng))
    pooled = mgpa.ClosedFormMGPA.paper(mgpa.MeasurementGate(rank=1), standardize=False)
    pooled.fit(X, source=source, pairs=paired(rng))
    slope = [m.to_map().readout.ravel() for m in (model, pooled)]
    slope = [s / s[0] for s in slope]
    np.testing.assert_allclose(slope[0][1], 0.0, atol=0.05)  # the task's feature tells nothing of z
    np.testing.assert_allclose(slope[0][2], -0.5, atol=0.05)
    assert (abs(slope[1][1]) > 0.2) == (association > 0)


def test_with_equal_means_of_what_is_preserved_both_anchors_are_one():
    rng = np.random.default_rng(1)
    X, _, _ = rows(rng, 2000, shift=0.0)
    X, source = np.concatenate([X, X + 3.0 * np.eye(D)[0]]), np.repeat([0, 1], 2000)
    options = {"gate": mgpa.gate.FixedGate(np.eye(D)[:, :1]), "standardize": False, "ridge": 10.0}
    models = [
        mgpa.ClosedFormMGPA(**options, anchor=anchor).fit(X, source=source, pair_id=np.r_[0:2000, 0:2000])
        for anchor in ("pooled", "within")
    ]
    np.testing.assert_allclose(models[0].transform(X), models[1].transform(X), atol=1e-6)


def test_without_an_effect_in_the_rows_the_map_is_the_identity_and_says_so():
    rng = np.random.default_rng(2)
    starts = 0
    for _ in range(40):
        X, source, _ = rows(rng, 300, association=0.9, shift=0.0)
        model = within().fit(X, source=source, pairs=paired(rng))
        starts += model.to_map().rank > 0
    assert starts <= 6  # two standard errors: one in twenty
    X, source, _ = rows(rng, 300, shift=3.0)
    model = within().fit(X, source=source, pairs=paired(rng))
    assert 0.8 < model.effect_.size < 1.2
    assert model.effect_.matches_pairs
    assert "of the shift seen in pairs: correction applied" in model.to_map().summary()
    X, source, _ = rows(rng, 300, shift=0.0)
    untouched = within().fit(X, source=source, pairs=paired(rng)).to_map()
    assert "of the shift seen in pairs: not clear, nothing is corrected" in untouched.summary()
    assert within(do_no_harm=False).fit(X, source=source, pairs=paired(rng)).to_map().rank == 1


def test_the_error_is_over_people_where_they_are_known():
    rng = np.random.default_rng(3)
    people = np.repeat(np.arange(10), 60)
    X, _, _ = rows(rng, 600, shift=0.0)
    source = people % 2  # each person was recorded with one device
    X[:, 0] += np.repeat(rng.normal(size=10), 60)  # and has a level of their own
    pairs = paired(rng)
    alone = within().fit(X, source=source, pairs=pairs).effect_
    known = within().fit(X, source=source, pairs=pairs, groups=people).effect_
    assert known.size == alone.size
    assert known.error > 3 * alone.error


@pytest.mark.parametrize("n", [7, 2000])  # moments are kept as rows, and as a matrix
def test_a_gate_that_is_everything_leaves_nothing_to_regress_on(n):
    rng = np.random.default_rng(10)
    X, source, _ = rows(rng, n, shift=10.0)
    gate = mgpa.gate.FixedGate(np.linalg.qr(rng.normal(size=(D, D)))[0])  # up to rounding
    model = mgpa.ClosedFormMGPA(gate, standardize=False, shrinkage=0.5)
    model.fit(X, source=source, pairs=paired(rng, shift=10.0))
    assert model.effect_.size == pytest.approx(1.0, abs=0.2)
    assert model.effect_.error < 0.3


@pytest.mark.parametrize("n_pairs", [30, 120])
def test_what_few_pairs_leave_of_the_source_is_the_error_of_their_mean(n_pairs):
    rng = np.random.default_rng(3)
    shift, left = 20.0 * np.eye(D)[0], []
    for _ in range(40):
        X, source = rng.normal(size=(4000, D)), np.repeat([0, 1], 2000)
        first = rng.normal(size=(n_pairs, D))
        pairs = first, first + shift + np.sqrt(2.0) * rng.normal(size=(n_pairs, D))
        model = mgpa.ClosedFormMGPA(mgpa.gate.FullGate(), standardize=False)
        model.fit(X + source[:, None] * shift, source=source, pairs=pairs)
        left.append(np.sum((model.transform(shift[None]) - model.transform(np.zeros((1, D)))) ** 2))
    assert np.mean(left) == pytest.approx(2.0 * (D - 1) / n_pairs, rel=0.2)
