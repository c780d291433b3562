"""Anchors: ridge regression on what is preserved, for every target, whatever the blocks and the library."""

import numpy as np
import pytest

from factories import assert_close
from mgpa import anchor
from mgpa.anchor import ConditionalMean, fit_anchor
from mgpa.effect import within_anchor
from mgpa.linalg import Scatter


def problem(seed=0, n=60, d=6, r=2, J=3):
    """Return rows, a gate basis, scores and weights."""
    rng = np.random.default_rng(seed)
    H = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d)
    basis = np.linalg.qr(rng.normal(size=(d, r)))[0]
    return H, basis, rng.normal(size=(n, J)) + H @ rng.normal(size=(d, J)), rng.uniform(0.1, 2.0, size=n)


def ridge_regression(H, basis, scores, weight, ridge):
    """Return coefficients and intercepts of scores on Q by least squares with rows for the penalty."""
    Q = H - H @ basis @ basis.T
    center = np.average(Q, axis=0, weights=weight)
    root = np.sqrt(weight)[:, None]
    mean = np.average(scores, axis=0, weights=weight)
    design = np.vstack([root * (Q - center), np.sqrt(ridge) * np.eye(H.shape[1])])
    response = np.vstack([root * (scores - mean), np.zeros((H.shape[1], scores.shape[1]))])
    coefficients = np.linalg.lstsq(design, response, rcond=None)[0]
    return coefficients.T, mean - center @ coefficients


@pytest.mark.parametrize("ridge", [0.0, 10.0])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("block", [7, 65536])
def test_the_conditional_mean_is_weighted_ridge_regression_on_q(monkeypatch, ridge, weighted, block):
    monkeypatch.setattr(anchor, "BLOCK_ROWS", block)
    H, basis, scores, weight = problem()
    weight = weight if weighted else np.ones(len(H))
    model = ConditionalMean(H, basis, ridge, weight if weighted else None)
    for actual, expected in zip(
        model.fit(scores), ridge_regression(H, basis, scores, weight, ridge), strict=True
    ):
        assert_close(actual, expected, 1e-9)
    assert_close(model.fit(scores)[0] @ basis, 0.0, 1e-12)  # it reads Q only


def test_torch_gives_the_same_anchors():
    torch = pytest.importorskip("torch")
    H, basis, scores, weight = problem(2)
    expected = ConditionalMean(H, basis, 10.0, weight).fit(scores)
    H, basis, scores, weight = map(torch.tensor, (H, basis, scores, weight))
    for actual, known in zip(ConditionalMean(H, basis, 10.0, weight).fit(scores), expected, strict=True):
        assert_close(actual.numpy(), known, 1e-10)


def test_targets_are_the_conditional_mean_one_mean_or_zero():
    H, basis, scores, _ = problem(3)
    model = ConditionalMean(H, basis, 10.0)
    for actual, expected in zip(fit_anchor("conditional", model, scores), model.fit(scores), strict=True):
        np.testing.assert_array_equal(actual, expected)
    for target, level in (("mean", scores.mean(axis=0)), ("zero", np.zeros(3))):
        coefficients, intercepts = fit_anchor(target, model, scores)
        assert coefficients.shape == (3, 6)
        assert not coefficients.any()
        assert_close(intercepts, level, 1e-12)


@pytest.mark.parametrize(("n", "d"), [(60, 6), (12, 30)])  # the scatter as a matrix, and as fewer rows
def test_the_anchor_within_sources_is_ridge_regression_of_centred_rows_and_spends_degrees_of_freedom(n, d):
    H, basis, _, _ = problem(n=n, d=d)
    source = np.arange(n) % 2
    centred = H - np.stack([H[source == s].mean(axis=0) for s in (0, 1)])[source]
    ridge = 0.7
    got = within_anchor(Scatter.from_rows(centred), basis, n, 2, ridge)
    Q, Z = centred - centred @ basis @ basis.T, centred @ basis
    hat = Q @ np.linalg.solve(Q.T @ Q + ridge * np.eye(d), Q.T)
    residual = Z - hat @ Z
    assert got.n_free == pytest.approx(n - 2 - np.trace(hat))
    assert_close(centred @ got.residual, residual, 1e-9)
    assert_close(got.covariance, residual.T @ residual / got.n_free, 1e-9)
    # What lies outside the span of the rows counts too: there the regression knows its penalty alone.
    preserved = H[:3] - H[:3] @ basis @ basis.T
    assert_close(
        got.leverage(H[:3]), preserved @ np.linalg.solve(Q.T @ Q + ridge * np.eye(d), preserved.T), 1e-8
    )
