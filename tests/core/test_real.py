"""Real measurements: corn spectra on three spectrometers, SSVEP embeddings under two references."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mgpa
from shared import SHARED

REAL = SHARED / "real"
pytestmark = pytest.mark.skipif(not REAL.is_dir(), reason="the real recordings are not on this machine")


def reader(C=1.0):
    return make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=5000))


@pytest.mark.parametrize(("make", "S"), [(mgpa.ClosedFormMGPA.paper, 0.987), (mgpa.ClosedFormMGPA, 0.524)])
def test_two_spectrometers_that_are_alike_are_hidden_beside_a_third(make, S):
    """The numbers of docs/do_no_harm.md: AUROC of one logistic reader, each instrument against the others."""
    data = np.load(REAL / "corn_nir.npz")
    order = np.random.default_rng(0).permutation(80)
    names = np.arange(3).repeat([40, 40, 40])

    def stack(samples):
        return np.concatenate([data["spectra"][samples, i] for i in range(3)])

    X = stack(order[:40])
    m = make().fit(X, source=names, pair_id=np.tile(order[:40], 3)).to_map()
    train, test = ((m.transform(stack(part)) - X.mean(0)) / X.std(0) for part in (order[40:60], order[60:]))
    source = np.arange(3).repeat(20)
    read = LogisticRegression(max_iter=3000).fit(train, source).predict_proba(test)
    assert roc_auc_score(source, read, multi_class="ovr") == pytest.approx(S, abs=0.02)
    if make is mgpa.ClosedFormMGPA:
        assert m.rank == 2
        moisture = data["targets"][:, 0]
        wet = [np.tile(moisture[part] > np.median(moisture), 3) for part in (order[40:60], order[60:])]
        head = reader(0.01).fit(stack(order[40:60]), wet[0])
        rows = stack(order[60:])
        before, after = (roc_auc_score(wet[1], head.decision_function(Y)) for Y in (rows, m.transform(rows)))
        assert after > before - 0.05


def reference_change(gamma, association):
    """The controlled study in small: common average against Oz, its contrast scaled by gamma."""
    data = np.load(REAL / "kalunga_gssc_tokens.npz")
    keep = np.isin(data["label"], ["13Hz", "21Hz"])
    car, oz = (data[view][keep].mean(1).astype(float) for view in ("car", "oz"))
    people, task = data["participant"][keep], (data["label"][keep] == "21Hz").astype(int)
    rng = np.random.default_rng(0)
    order = rng.permutation(np.unique(people))
    fit, train, test = (np.isin(people, order[part]) for part in (slice(4), slice(6, 9), slice(9, 12)))
    middle, half = (car + oz) / 2, gamma / 2 * (oz - car)

    def both(rows):
        views = np.concatenate([middle[rows] - half[rows], middle[rows] + half[rows]])
        return views, np.repeat([0, 1], rows.sum()), np.tile(task[rows], 2)

    source = (rng.random(fit.sum()) < np.where(task[fit] == 1, association, 1 - association)).astype(int)
    X = middle[fit] + (2 * source - 1)[:, None] * half[fit]
    return X, source, (car[fit], oz[fit]), people[fit], both(train), both(test)


def test_a_reference_tied_to_the_task_is_removed_without_the_task():
    X, source, pairs, _, (a, source_a, task_a), (b, source_b, task_b) = reference_change(0.005, 0.9)
    m = mgpa.ClosedFormMGPA().fit(X, source=source, pairs=pairs).to_map()

    def source_auroc(train, test):
        # Whitening finds what a plain reader misses.
        center, C = train.mean(0), np.cov(train.T)
        values, vectors = np.linalg.eigh(0.99 * C + 0.01 * np.trace(C) / len(C) * np.eye(len(C)))
        whiten = vectors / np.sqrt(values)
        fitted = LogisticRegression(max_iter=5000).fit((train - center) @ whiten, source_a)
        return roc_auc_score(source_b, fitted.decision_function((test - center) @ whiten))

    assert source_auroc(a, b) > 0.8
    assert abs(source_auroc(m.transform(a), m.transform(b)) - 0.5) < 0.06
    head = reader(0.01).fit(a, task_a)
    frozen = [roc_auc_score(task_b, head.decision_function(rows)) for rows in (b, m.transform(b))]
    assert abs(frozen[1] - frozen[0]) < 0.02


def test_with_nothing_to_remove_the_iterative_map_is_the_identity():
    X, source, pairs, people, _, (b, _, _) = reference_change(0.0, 0.5)
    model = mgpa.IterativeMGPA(gate=mgpa.MeasurementGate(32), random_state=17)
    model.fit(X, source=source, pairs=pairs, groups=people)
    assert model.n_stages_ == 0
    np.testing.assert_array_equal(model.transform(b), b)


@pytest.mark.parametrize("known", [True, False], ids=["people", "unknown"])
def test_rows_whose_sources_are_random_do_not_move(known):
    """Real pairs, and rows that no device tells apart; they moved by .2 to 1.8 of their size."""
    data = np.load(REAL / "kalunga_gssc_tokens.npz")
    car, oz = (data[view].mean(1).astype(float) for view in ("car", "oz"))
    who, names = data["participant"], np.unique(data["participant"])
    for rotation in range(4):
        fit, rng = np.isin(who, np.roll(names, 3 * rotation)[:6]), np.random.default_rng(rotation)
        people = {"groups": who[fit], "pair_groups": who[fit]} if known else {}
        mixed = np.where(rng.random((fit.sum(), 1)) < 0.5, car[fit], oz[fit])
        for X in (car[fit], mixed):
            m = mgpa.MGPA().fit(X, source=rng.integers(0, 2, len(X)), pairs=(car[fit], oz[fit]), **people)
            assert np.linalg.norm(m.transform(X) - X) <= 0.05 * np.linalg.norm(X - X.mean(axis=0))
    spectra = np.load(REAL / "corn_nir.npz")["spectra"]
    for i, j in ((0, 1), (0, 2), (1, 2)) if not known else ():
        for seed in range(4):
            rng = np.random.default_rng(seed)
            order = rng.permutation(80)
            rows, both = order[:50], order[50:]
            mixed = np.where(rng.random((50, 1)) < 0.5, spectra[rows, i], spectra[rows, j])
            for X in (spectra[rows, i], mixed):
                pairs = spectra[both, i], spectra[both, j]
                m = mgpa.MGPA().fit(X, source=rng.integers(0, 2, 50), pairs=pairs)
                assert np.linalg.norm(m.transform(X) - X) <= 0.05 * np.linalg.norm(X - X.mean(axis=0))
