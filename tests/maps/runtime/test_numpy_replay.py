"""The replay of stages, by numpy alone and compiled: every block shape."""

from dataclasses import replace

import numpy as np
import pytest

from factories import random_staged_map
from mgpa.errors import MapError
from mgpa.maps.runtime.compiled import VARIABLE, kernels


@pytest.fixture(autouse=True, params=["numpy", "numba"])
def engine(request, monkeypatch):
    """Run every test both ways."""
    if request.param == "numpy":
        monkeypatch.setenv(VARIABLE, "0")
    elif kernels() is None:
        pytest.skip("stages do not run compiled here")
    return request.param


@pytest.mark.parametrize(("n_linear", "n_network"), [(1, 1), (0, 1), (1, 0), (2, 2)])
@pytest.mark.parametrize("n", [1, 3, 256, 257, 700])
@pytest.mark.parametrize("anchored", [False, True])
def test_every_number_of_rows_gives_the_rows_one_by_one(n, n_linear, n_network, anchored):
    m = random_staged_map(n_linear=n_linear, n_network=n_network, anchored=anchored)
    X = np.random.default_rng(n).normal(size=(n, m.n_features))
    chosen = [0, n // 2, n - 1]
    alone = np.concatenate([m.transform(X[i : i + 1]) for i in chosen])
    np.testing.assert_allclose(m.transform(X)[chosen], alone, atol=1e-9)


@pytest.mark.parametrize("n", [1, 40, 600])
def test_a_correction_that_overflows_is_an_error_without_warnings(n):
    m = random_staged_map()
    X = np.ones((n, m.n_features), dtype=np.float32)
    X[-1] = 3e38
    with pytest.raises(MapError, match="The correction overflows"):
        m.transform(X)


@pytest.mark.parametrize("anchored", [False, True])
def test_stage_movement_is_the_movement_of_each_prefix(anchored):
    m = random_staged_map(stages=5, anchored=anchored)
    X = np.random.default_rng(1).normal(size=(50, m.n_features))
    prefixes = [np.linalg.norm(m[:k].displacement(X)) for k in range(1, 6)]
    np.testing.assert_allclose(m.stage_movement(X), prefixes, rtol=1e-7)


@pytest.mark.parametrize("n", [2, 40])
@pytest.mark.parametrize(("n_linear", "n_network"), [(1, 1), (2, 2), (1, 0)])
def test_a_first_stage_without_scores_is_its_start(n, n_linear, n_network):
    m = random_staged_map(n_linear=n_linear, n_network=n_network, anchored=True, dtype=np.float64)
    silent = {name: getattr(m, name).copy() for name in m.stage_tensors}
    for array in silent.values():
        array[0] = 0.0
    m = replace(m, **silent)
    X = np.random.default_rng(5).normal(size=(n, m.n_features))
    start = ((X - m.center) / m.scale @ m.start_readout + m.start_offset) @ m.basis.T * m.scale
    np.testing.assert_allclose(m[:1].transform(X), X + start, atol=1e-12)
    np.testing.assert_allclose(m.prefix(1, 0.4).transform(X), X + 0.4 * start, atol=1e-12)
    np.testing.assert_allclose(m[:1].transform(X, strength=0.5), X + 0.5 * start, atol=1e-12)
    np.testing.assert_array_equal(m[:0].transform(X), X)
    assert np.abs(m.transform(X) - m[:1].transform(X)).max() > 0.01


def test_a_prepared_map_pickles_small_and_deep_copies():
    import copy
    import pickle

    m = random_staged_map()
    X = np.random.default_rng(2).normal(size=(9, m.n_features))
    size = len(pickle.dumps(m))
    expected = m.transform(X)
    assert len(pickle.dumps(m)) == size
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(m)).transform(X), expected)
    np.testing.assert_array_equal(copy.deepcopy(m).transform(X), expected)


@pytest.mark.parametrize(("n_linear", "n_network"), [(1, 1), (0, 1), (1, 0), (2, 2)])
def test_a_row_at_its_anchored_point_stays_there(n_linear, n_network):
    m = random_staged_map(n_linear=n_linear, n_network=n_network, anchored=True, dtype=np.float64)
    # An anchored point inside the gate, at which every row of X is already.
    B, X = m.basis, np.random.default_rng(3).normal(size=(40, m.n_features))
    H = (X - m.center) / m.scale
    there = replace(
        m,
        anchor_readout=B,
        anchor_offset=np.zeros(3),
        anchor_direction=B,
        start_readout=None,
        start_offset=None,
    )
    resting = (H - H @ B @ B.T) * m.scale + m.center
    np.testing.assert_allclose(there.transform(resting), resting, atol=1e-12)
    assert np.abs(there.transform(X) - X).max() > 0.01
