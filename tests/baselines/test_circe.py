"""CIRCE: the published kernel formula, a calibrated test, and a penalty that does what it says."""

import numpy as np
import pytest

from mgpa.baselines import CIRCEHead, circe
from mgpa.baselines.conditional import hsic, source_residuals, squared_distances


def problem(n=300, seed=0, effect=0.0, association=0.7):
    """Return rows, source and task that go together; ``effect`` is the source's own."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    source = np.where(rng.random(n) < association, y, 1 - y)
    R = rng.normal(size=(n, 4))
    R[:, 0] += 1.5 * y
    R[:, 1] += effect * source
    return R, source, y


@pytest.mark.parametrize("ridge", [0.1, 1.0])
def test_residuals_are_those_of_kernel_ridge_regression(ridge):
    """The formula with kernels, as published: K^c = K_zz - cross terms + the regression's own."""
    rng = np.random.default_rng(0)
    codes, task = rng.integers(3, size=60), rng.integers(2, size=60)
    held = np.arange(60) < 25
    Kz, Ky = ((v[:, None] == v[None]).astype(float) for v in (codes, task))
    W = np.linalg.inv(Ky[np.ix_(held, held)] + ridge * np.eye(25))
    cross = Kz[:, held] @ W @ Ky[held]
    Kc = Kz - cross - cross.T + Ky[:, held] @ W @ Kz[np.ix_(held, held)] @ W @ Ky[held]
    residuals = source_residuals(codes, task, held, ridge)
    np.testing.assert_allclose(residuals @ residuals.T, Kc, atol=1e-10)


def test_the_statistic_is_hsic_of_the_rows_with_task_times_residual_kernel():
    R, source, y = problem(80, effect=0.5)
    n, everything = len(R), np.ones(80, bool)
    Z = (R - R.mean(axis=0)) / R.std(axis=0)
    squares = np.square(Z[:, None] - Z[None]).sum(axis=2)
    np.testing.assert_allclose(squared_distances(Z), squares, atol=1e-10)
    K = np.exp(-squares / np.median(squares))
    residuals = source_residuals(source, y, everything, 1.0)
    L = (y[:, None] == y[None]) * (residuals @ residuals.T)
    H = np.eye(n) - 1 / n
    expected = np.trace(K @ H @ L @ H) / n**2
    assert circe(R, source, y, n_permutations=1).statistic == pytest.approx(expected, rel=1e-10)
    assert hsic(K, L) == pytest.approx(expected, rel=1e-10)


def test_it_keeps_its_level_where_source_and_task_go_together_and_finds_a_device():
    p = [circe(*problem(120, seed=s, association=0.85), n_permutations=99).p_value for s in range(60)]
    assert np.mean(np.array(p) <= 0.05) <= 0.13  # .05, of 60
    found = [
        circe(*problem(120, seed=s, effect=1.5, association=0.85), n_permutations=99).p_value
        for s in range(10)
    ]
    assert np.mean(np.array(found) <= 0.05) >= 0.9
    scores = problem(120, effect=3.0)[0][:, 1]  # a decoder's scores, one number a row
    assert circe(scores, *problem(120, effect=3.0)[1:], n_permutations=99).p_value == 0.01
    assert "by chance" in str(circe(*problem(60), n_permutations=9))


def test_the_penalty_lowers_the_dependence_of_the_decoder():
    pytest.importorskip("torch")
    R, source, y = problem(1200, effect=2.0, association=0.9)
    new, new_source, new_y = problem(1200, seed=1, effect=2.0, association=0.1)
    accuracies, statistics = [], []
    for penalty in (0.0, 1000.0):
        model = CIRCEHead(penalty=penalty, random_state=0, n_epochs=40, learning_rate=3e-3)
        model.fit(R, y, source=source)
        accuracies.append((model.predict(new) == new_y).mean())
        statistics.append(circe(model.decision_function(new), new_source, new_y, n_permutations=1).statistic)
    assert accuracies[1] > accuracies[0] + 0.1
    assert statistics[1] < 0.5 * statistics[0]
    assert (model.classes_ == [0, 1]).all()


def test_what_it_cannot_use_is_refused():
    R, source, y = problem(60)
    with pytest.raises(ValueError, match="dependence needs two"):
        circe(R, np.zeros(60), y)
    with pytest.raises(ValueError, match="60 distinct values in 60 rows"):
        circe(R, source, np.arange(60))
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match="CIRCEHead needs sources"):
        CIRCEHead().fit(R, y)
    with pytest.raises(ValueError, match="penalty must be a number, 0 or more"):
        CIRCEHead(penalty=-1).fit(R, y, source=source)
