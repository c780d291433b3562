"""Readers find what was planted, as well as any of scikit-learn's, and nothing where there is nothing."""

import warnings

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from mgpa import audit
from mgpa.audit.readers.further import (
    FURTHER,
    KEPT,
    OWN,
    SPREAD_DIRECTIONS,
    further_scores,
    spread,
    spread_directions,
    telling_features,
)
from planted import SIGNATURES, noise

N = 1200


def planted(name, seed=0):
    X, source = SIGNATURES[name](np.random.default_rng(seed), 2 * N)
    return X[:N], source[:N], X[N:], source[N:]


def best_of_bank(head, source, held, truth, **options):
    read = audit.run_token_readers if head.ndim == 3 else audit.run_readers
    reading = read(head, source, held, device="cpu", **options)
    return max(roc_auc_score(truth, scores) for scores in reading.values())


def best_of_sklearn(head, source, held, truth):
    head, held = (X.reshape(len(X), -1) for X in (head, held))
    models = [
        RandomForestClassifier(200, random_state=0),
        HistGradientBoostingClassifier(random_state=0),
        make_pipeline(StandardScaler(), SVC()),
        make_pipeline(StandardScaler(), SVC(kernel="poly", degree=2, coef0=1.0)),
    ]
    found = []
    for model in models:
        model.fit(head, source)
        forest = not hasattr(model, "decision_function")
        found.append(model.predict_proba(held)[:, 1] if forest else model.decision_function(held))
    return max(roc_auc_score(truth, scores) for scores in found)


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNATURES)
def test_the_full_bank_finds_what_the_best_of_scikit_learn_finds(name):
    rows = planted(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert best_of_bank(*rows, bank="full") > best_of_sklearn(*rows) - 0.05


# What the two further readers reach alone on these rows, less a margin.
@pytest.mark.parametrize(
    ("name", "least"),
    [("quadratic", 0.72), ("scale_only", 0.62), ("xor", 0.95), ("heavy_tails", 0.58), ("tiny", 0.78)],
)
def test_further_readers_find_what_linear_ones_do_not(name, least):
    head, source, held, truth = planted(name)
    found = further_scores(head, source, held, seed=98)
    assert tuple(found) == tuple(name for name in FURTHER if name not in OWN)
    assert max(roc_auc_score(truth, scores) for scores in found.values()) > least


def test_wide_rows_are_read_by_their_telling_features():
    rng = np.random.default_rng(0)
    X, source = rng.normal(size=(400, 3000)), np.arange(400) % 2
    X[:, 2500] += 2.0 * source
    X[:, 11] *= 1 + 2.0 * source
    chosen = telling_features(X, source)
    assert len(chosen) == 1024
    assert {11, 2500} <= set(chosen.tolist())
    found = further_scores(X[:200], source[:200], X[200:], seed=98)["boosted_trees"]
    assert roc_auc_score(source[200:], found) > 0.85


def test_spread_of_wide_rows_is_looked_for_in_their_principal_directions():
    rng = np.random.default_rng(0)
    Z, codes = rng.normal(size=(1200, 400)), np.arange(1200) % 2
    Z[:, :40] += 2.0 + 3.0 * rng.normal(size=(1200, 1)) * (1 + 2 * codes[:, None])
    head, held = Z[:800].copy(), Z[800:]
    scores = spread(head, codes[:800], 98)(held)
    assert roc_auc_score(codes[800:], scores) > 0.65
    pca = PCA(SPREAD_DIRECTIONS, svd_solver="randomized", random_state=98).fit(Z[:800])
    by_hand = spread(pca.transform(Z[:800]), codes[:800], 98)(pca.transform(held))
    np.testing.assert_allclose(scores, by_hand, atol=1e-6)


@pytest.mark.parametrize("wide", [0, 1, 2])
def test_spread_is_looked_for_in_every_one_of_three_sources(wide):
    rng = np.random.default_rng(wide)
    codes = np.arange(3000) % 3
    Z = rng.normal(size=(3000, 4 * KEPT))
    Z[codes == wide, 7] *= 4.0
    directions = spread_directions(Z, codes)
    assert directions.shape == (4 * KEPT, 3 * KEPT)
    # Its own directions begin with the feature that spreads.
    assert np.abs(directions[:, wide * KEPT]).argmax() == 7


def test_further_readers_find_nothing_in_noise():
    found = []
    for seed in range(5):
        X, source = noise(np.random.default_rng(seed), 800)
        scores = further_scores(X[:400], source[:400], X[400:], seed=98)
        found.append([roc_auc_score(source[400:], values) for values in scores.values()])
    assert np.abs(np.mean(found, axis=0) - 0.5).max() < 0.05
