"""Bits about the source equal theory, and participants are told apart where they differ."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import softmax
from scipy.stats import norm

from mgpa.audit import identity_auroc, source_information
from mgpa.audit.information import information_of_scores, multinomial
from mgpa.audit.ranks import twin_accuracy

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "theory"))
gaussian = pytest.importorskip("gaussian")


def entropy(p):
    return -p * np.log2(p) - (1 - p) * np.log2(1 - p)


def theory(model):
    """Return I(U; Q) and I(U; Z | Q) of the Gaussian model in bits."""
    root, left = np.sqrt(model.D), 0.0

    def unknown(evidence, sign):
        """Expected entropy of the source, given a score ℓ ~ N(± D / 2, D)."""
        density = norm(sign * model.D / 2, root).pdf
        span = (sign * model.D / 2 - 9 * root, sign * model.D / 2 + 9 * root)
        return quad(lambda x: density(x) * entropy(1 / (1 + np.exp(-evidence - x))), *span, limit=200)[0]

    for weight, p, evidence in zip(model.weight, model.p, model.evidence, strict=True):
        left += weight * (p * unknown(evidence, 1) + (1 - p) * unknown(evidence, -1))
    given_q = model.weight @ entropy(model.p)
    return entropy(model.weight @ model.p) - given_q, given_q - left


@pytest.fixture(scope="module")
def sampled():
    model = gaussian.gaussian_model(means=[(-0.5, 0.0), (0.5, 0.3)])
    return model, model.sample(6_000, 0), model.sample(40_000, 1)


def bits(model, head, held, change=lambda H: H):
    person = np.arange(len(held.H)) % 60
    gate = np.eye(head.H.shape[1])[:, 1:]
    return source_information(change(head.H), head.source, change(held.H), held.source, person, gate)


def test_bits_of_the_gaussian_model_are_those_of_theory(sampled):
    q, z = theory(sampled[0])
    assert q == pytest.approx(1 - entropy(0.2))
    found = bits(*sampled)
    assert found.I_Q.value == pytest.approx(q, abs=0.01)
    assert found.I_R.value == pytest.approx(z, abs=0.01)
    assert found.total.value == pytest.approx(q + z, abs=0.01)
    assert found.I_R.low < z < found.I_R.high
    assert len(found.participants) == 60


def test_a_correction_takes_away_what_the_gate_holds_and_nothing_else(sampled):
    model = sampled[0]
    direction, readout = gaussian.projection(model.Sigma, model.delta[:, None])

    def corrected(H):
        z = H[:, 1:]
        context = (H[:, 0] < 0).astype(int)
        return np.column_stack([H[:, 0], z - ((z - model.mean[context]) @ readout) @ direction.T])

    found = bits(*sampled, corrected)
    assert found.I_Q.value == pytest.approx(theory(model)[0], abs=0.01)
    assert found.I_R.value == pytest.approx(0.0, abs=0.01)


def test_bits_of_three_sources_and_of_a_variance():
    rng = np.random.default_rng(0)
    source, person = np.arange(24_000) % 3, np.arange(24_000) // 400
    q = rng.normal(size=24_000) + 1.5 * source
    z = rng.normal(size=24_000) * np.array([1.0, 1.0, 3.0])[source]
    X = np.column_stack([q, z])
    head, held = slice(0, 12_000), slice(12_000, None)
    gate = np.eye(2)[:, 1:]
    found = source_information(X[head], source[head], X[held], source[held], person[held], gate)
    density = norm.pdf(q[:, None] - 1.5 * np.arange(3))
    both = density * norm.pdf(z[:, None], scale=[1.0, 1.0, 3.0])
    posterior = [p / p.sum(axis=1, keepdims=True) for p in (density, both)]
    known = [np.log2(3) + np.log2(p[np.arange(24_000), source])[held].mean() for p in posterior]
    assert found.I_Q.value == pytest.approx(known[0], abs=0.02)
    assert found.I_R.value == pytest.approx(known[1] - known[0], abs=0.05)


def test_without_an_effect_there_are_no_bits():
    rng = np.random.default_rng(1)
    scores, codes, units = rng.normal(size=(2, 2000, 9)), np.arange(2000) % 2, np.arange(2000) // 100
    q, r = information_of_scores(*scores, codes, units)
    assert abs(q.mean()) < 0.01
    assert abs(r.mean()) < 0.01
    # One participant cannot be scored by readers weighed on others.
    assert np.isnan(information_of_scores(*scores, codes, np.zeros(2000, np.int64))).all()


def test_probabilities_of_few_units_are_not_used_if_they_are_worse_than_none():
    """With six sources and two units each, a logistic regression of the scores learns the units by heart."""
    rng, n_units, rows, K = np.random.default_rng(0), 12, 20, 6
    units = np.repeat(np.arange(n_units), rows)
    own = rng.normal(size=(n_units, 4, K))[units]
    scores = softmax(own + 0.3 * rng.normal(size=own.shape), axis=2)
    q, both = information_of_scores(scores, scores, units % K, units)
    assert q.mean() == pytest.approx(0.0, abs=0.05)
    assert both.mean() == pytest.approx(0.0, abs=0.05)


def test_multinomial_is_a_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(2)
    codes = rng.integers(3, size=500)
    X = rng.normal(size=(500, 2)) + np.eye(3)[codes][:, :2]
    plain = LogisticRegression(C=1.0, tol=1e-8).fit(X, codes)
    ours = np.concatenate([X, np.ones((500, 1))], axis=1) @ multinomial(X, codes, 3)
    probability = np.exp(ours) / np.exp(ours).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probability, plain.predict_proba(X), atol=1e-4)


def test_a_gate_of_other_features_is_refused():
    X, source = np.zeros((8, 3)), np.tile([0, 1], 4)
    with pytest.raises(ValueError, match=r"gate has shape \(2, 1\); expected \(3, r\)"):
        source_information(X, source, X, source, source, np.ones((2, 1)))


# --- twins -----------------------------------------------------------------------------------------------


def test_twins_tell_more_than_rows_where_content_hides_the_source():
    rng = np.random.default_rng(3)
    event, source = np.repeat(np.arange(600), 2), np.tile([0, 1], 600)
    content = 5.0 * rng.normal(size=600)
    shift, noise = 0.5, 0.5
    scores = (content[event] + shift * source + noise * rng.normal(size=1200))[:, None]
    units = event // 30
    found = twin_accuracy(scores, source, event, units)
    assert found.shape == (20, 1)
    assert found.mean() == pytest.approx(norm.cdf(shift / (noise * np.sqrt(2))), abs=0.05)
    assert twin_accuracy(-scores, source, event, units).mean() == pytest.approx(1 - found.mean())
    assert twin_accuracy(0 * scores, source, event, units).mean() == 0.5
    probability = 1 / (1 + np.exp(-scores / 10))
    both = np.stack([1 - probability, probability], axis=2)
    np.testing.assert_allclose(twin_accuracy(both, source, event, units), found)


def test_units_without_pairs_have_no_twins():
    source, units = np.tile([0, 1], 4), np.arange(8) // 4
    scores, events = np.arange(8.0)[:, None], np.array([0, 0, 1, 1, -1, -1, -1, -1])
    found = twin_accuracy(scores, source, events, units)
    assert found[0] == 1.0
    assert np.isnan(found[1])
    assert np.isnan(twin_accuracy(scores, source, None, units)).all()


def test_twins_of_three_sources_count_every_two():
    source = np.tile([0, 1, 2], 50)
    right = np.eye(3)[source] * 0.8 + 0.1
    events, units = np.arange(150) // 3, np.arange(150) // 30
    assert (twin_accuracy(right[:, None], source, events, units) == 1).all()
    confused = right[:, None][..., [1, 0, 2]]  # takes the first for the second: 0-1 wrong, the others half
    assert twin_accuracy(confused, source, events, units).mean() == pytest.approx((0 + 1 + 1) / 3, abs=0.4)


# --- participants ----------------------------------------------------------------------------------------


def people(rng, n_people, spread, rows=24, d=6):
    person = np.repeat(np.arange(n_people), rows)
    return rng.normal(size=(n_people * rows, d)) + spread * rng.normal(size=(n_people, d))[person], person


def test_people_are_told_apart_as_far_as_they_differ():
    rng = np.random.default_rng(4)
    same, different, little = (people(rng, 40, spread) for spread in (0.0, 4.0, 0.5))
    assert np.mean(identity_auroc(*same, *same)) == pytest.approx(0.5, abs=0.03)
    assert np.mean(identity_auroc(*different, *different)) > 0.99
    assert 0.6 < np.mean(identity_auroc(*little, *little)) < 0.9


def test_an_event_does_not_give_its_participant_away():
    """Views of one event are alike; people are not different."""
    rng = np.random.default_rng(5)
    event = np.repeat(np.arange(480), 2)
    X = 5.0 * rng.normal(size=(480, 6))[event] + 0.1 * rng.normal(size=(960, 6))
    person = event // 12
    assert np.mean(identity_auroc(X, person, X, person, event)) == pytest.approx(0.5, abs=0.05)


def test_unpaired_rows_are_events_of_their_own():
    """In a table in which few events are paired, the other participants are recognised, too."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(8), 20)
    X = rng.normal(size=(160, 5)) + rng.normal(size=(8, 5))[person]
    alone = identity_auroc(X, person, X, person)
    for unpaired in (np.full(160, -1), np.full(160, "")):
        np.testing.assert_array_equal(identity_auroc(X, person, X, person, unpaired), alone)
    events = np.where(person == 3, np.arange(160) // 2, -1)
    assert np.isfinite(identity_auroc(X, person, X, person, events)).all()


def test_few_rows_are_left_out():
    rng = np.random.default_rng(6)
    X, person = people(rng, 5, 2.0)
    person[:3], person[3:24] = 9, 0
    found = identity_auroc(X, person, X, person)
    assert np.isnan(found[-1])
    assert np.isfinite(found[:-1]).all()


# --- in an audit -----------------------------------------------------------------------------------------


def test_an_audit_measures_them():
    from mgpa.audit import run
    from mgpa.tables import simulate_table

    found = run(simulate_table(24), ["leace", "closed_form_mgpa"], readers={"restarts": 0}, verbose=False)
    bits = {name: found[name].estimate("I_R").value for name in found}
    assert bits["identity"] > bits["leace"] > bits["closed_form_mgpa"] - 0.01
    assert bits["closed_form_mgpa"] == pytest.approx(0.0, abs=0.01)
    kept = [found[name].estimate("I_Q").value for name in found]
    np.testing.assert_allclose(kept, kept[0])  # corrections at one gate keep the same
    for name in found:
        assert found[name].estimate("twin").value >= found[name].S - 0.02
        assert 0.5 < found[name].estimate("identity").value < 1.0
