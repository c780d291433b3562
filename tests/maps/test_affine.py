"""Applying an affine map: precision far from zero, blocks, identity."""

import numpy as np
import pytest

import mgpa
from factories import random_affine_map


@pytest.mark.parametrize("mean", [0.0, 1e3, 1e5])
def test_float32_output_stays_precise_when_features_are_far_from_zero(mean):
    rng = np.random.default_rng(0)
    source = np.repeat([0, 1], 400)
    shift = rng.normal(size=64)
    X = (mean + rng.normal(size=(800, 64)) + source[:, None] * shift).astype(np.float32)
    A = mean + rng.normal(size=(60, 64))
    B = A + shift + 0.1 * rng.normal(size=(60, 64))
    m = mgpa.ClosedFormMGPA.paper().fit(X.astype(np.float64), source=source, pairs=(A, B)).to_map()
    exact = m.transform(X.astype(np.float64))
    rounding = np.spacing(np.float32(mean + 4))
    assert np.abs(m.transform(X) - exact).max() < 4 * rounding + 1e-5


@pytest.mark.parametrize("n", [0, 1, 127, 128, 129, 1000])
def test_the_map_is_its_formula_for_every_number_of_rows(n):
    m = random_affine_map().with_strength(0.7)
    X = np.random.default_rng(n).normal(size=(n, m.n_features))
    expected = X - 0.7 * ((X - m.center) @ m.readout + m.offset) @ m.direction.T
    np.testing.assert_allclose(m.transform(X), expected, atol=1e-12)
