"""When to stop: no evidence is no correction, participants stay whole, and a strong effect is reduced."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from factories import both, linear, two_sources
from mgpa.stopping import held_out_folds, rank_evidence


def test_chance_rarely_starts_a_correction():
    started = 0
    for seed in range(60):
        data = two_sources(seed, n=200, effect=0.0)  # the pairs differ, the sources do not
        model = data.fit(linear(n_stages=1, do_no_harm=True))
        started += model.n_stages_
        assert model.history_[0]["kept"] == bool(model.n_stages_)
        assert np.array_equal(model.transform(data.X), data.X) == (model.n_stages_ == 0)
    assert started <= 8  # 5 % error, binomial: more than 8 of 60 has probability .003


@pytest.mark.parametrize("make", [linear, both])
@pytest.mark.parametrize("held_out", [True, False])
def test_a_strong_source_effect_is_reduced(make, held_out):
    everything = two_sources(n=2600, effect=5.0)
    data, validation, test = (everything.rows(slice(*ends)) for ends in ((0, 400), (400, 600), (600, 2600)))
    extra = {"X_val": validation.X, "source_val": validation.source} if held_out else {}
    model = make(n_stages=20, do_no_harm=True).fit(data.X, **data.evidence(), **extra)
    assert model.n_stages_ > 0
    assert len(model.history_) >= model.n_stages_
    assert model.history_[0]["kept"]
    assert max(model.history_[0]["auroc"]) > 0.7

    def auroc(X_fit, X):
        score = LogisticRegression(max_iter=1000).fit(X_fit, data.source).decision_function(X)
        return roc_auc_score(test.source, score)

    before = auroc(data.X, test.X)
    after = auroc(model.transform(data.X), model.transform(test.X))
    assert before > 0.8
    assert abs(after - 0.5) < 0.4 * (before - 0.5)


def test_participants_that_differ_are_not_evidence_of_a_device():
    rng = np.random.default_rng(0)
    people = np.repeat(np.arange(20), 60)
    is_b = people % 2 == 1
    z = []
    for _ in range(200):
        scores = rng.normal(size=20)[people] + rng.normal(size=1200)
        z.append(rank_evidence([(scores, is_b, people)])[1])
    assert np.mean(np.array(z) > 1.645) < 0.10
    assert np.std(z) < 1.3


def test_folds_keep_participants_whole():
    codes, people = np.tile([0, 1], 200), np.repeat(np.arange(40), 10)
    folds, units = held_out_folds(codes, people, None, seed=0)
    for train, test in folds:
        assert not set(people[train]) & set(people[test])
    assert len(np.unique(units)) == 40
