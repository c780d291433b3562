"""The numbers of section 5 and figure 2: model, paper, simulation and the fitted estimators agree."""

import sys
from pathlib import Path

import numpy as np
import pytest

from mgpa import IterativeMGPA, MeasurementGate
from mgpa.baselines import LEACE

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "theory"))
import gaussian
from gaussian import costs, gaussian_model, separation_left, target_map

N = 100_000


@pytest.fixture(scope="module")
def model():
    return gaussian_model()


@pytest.fixture(scope="module")
def slanted():
    """Unequal contexts, a covariance that is none of the identity, three gate coordinates."""
    covariance = [[1.0, 0.5, 0.2], [0.5, 2.0, -0.3], [0.2, -0.3, 0.7]]
    means = [[0.5, -1.0, 0.0], [1.5, 0.2, 0.4]]
    return gaussian_model([0.9, 0.4], weight=[0.2, 0.8], means=means, covariance=covariance)


@pytest.fixture(scope="module")
def rows(model):
    return model.sample(N, random_state=1)


@pytest.fixture(scope="module")
def pairs(model):
    return model.record_twice(50_000, random_state=2)


def moved(before, after, metric):
    step = after - before
    return np.einsum("ni,ij,nj->n", step, metric, step)


def assert_mean(values, expected, allowance=0.0):
    """Assert a sample mean within four standard errors, and what the fit itself may be off by."""
    error = values.std() / np.sqrt(len(values))
    assert abs(values.mean() - expected) < 4 * error + allowance, (values.mean(), expected, error)


# What is left of the source.


@pytest.mark.parametrize("off", [0.0, 0.3, 1.2])
def test_a_direction_that_is_off_leaves_the_part_it_does_not_cover(slanted, off):
    # Theorem 1 needs the true δ; along another direction a sine of the angle between them stays.
    guess = slanted.delta + off * np.array([0.3, -1.0, 0.8])
    wrong = gaussian.GaussianModel(guess, *(getattr(slanted, k) for k in ("Sigma", "p", "weight", "q", "m")))
    left = separation_left(slanted, target_map(wrong, 0.0))
    along = guess @ slanted.metric @ slanted.delta
    assert left == pytest.approx(slanted.D - along**2 / (guess @ slanted.metric @ guess), abs=1e-9)
    assert (left > 1e-3) == (off > 0)


# The estimators, fitted on many rows.


@pytest.mark.parametrize("name", ["conditional", "mean", "zero"])
def test_one_exact_step_of_the_iterative_map_costs_what_its_target_does(model, rows, pairs, name):
    # One linear critic, and neither radius nor damping in the way: T_a of proposition 1, with Ω = Σ⁻¹ = I.
    fitted = IterativeMGPA(
        MeasurementGate(rank=2), n_stages=1, critics=("linear",), target=name, radius=1e3, damping=1e-9,
        ridge=0.0, do_no_harm=False, standardize=False, random_state=0,
    )  # fmt: skip
    fitted.fit(rows.H, source=rows.source, pairs=pairs)
    after = fitted.transform(rows.H)
    assert_mean(moved(rows.Z, after[:, 1:], model.metric), costs(model)[name].mean(), allowance=0.02)
    level = model.evidence[rows.context] + model.residual_score(after[:, 1:], rows.context)
    target = model.mean_score[rows.context] if name == "conditional" else 0.0
    np.testing.assert_allclose(level, np.broadcast_to(target, N), rtol=0, atol=0.15)


def test_leace_within_a_context_is_the_conditional_correction(slanted):
    rows = slanted.sample(N, random_state=5, context=1)
    fitted = LEACE(standardize=False).fit(rows.Z, source=rows.source).to_map()
    exact = target_map(slanted, slanted.mean_score[1], 1)
    matrix = gaussian.linear_part(exact)
    np.testing.assert_allclose(gaussian.linear_part(fitted), matrix, rtol=0, atol=0.03)
    cost = moved(rows.Z, fitted.transform(rows.Z), slanted.metric)
    assert_mean(cost, costs(slanted)["conditional"][1], allowance=0.005)
