"""The compiled functions against exact ones, and what becomes of bad rows in them."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.special import ndtr

from factories import random_affine_map, random_staged_map
from mgpa.maps.runtime.numpy_replay import gelu_and_slope
from mgpa.trust_region import step_coefficients

pytest.importorskip("numba")
kernels = pytest.importorskip("mgpa.maps.runtime.numba_kernels")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gelu_and_its_slope_equal_the_exact_ones_to_float32_rounding(dtype):
    u = np.concatenate([np.linspace(-14, 14, 5001), [0.0, -0.0, 40.0, -40.0, 1e30, -1e30]]).astype(dtype)
    value, slope = np.empty((2, u.size), dtype=dtype)
    kernels.gelu_and_slope(0.25 * u, 0.75 * u, value, slope)
    exact = (0.25 * u + 0.75 * u).astype(np.float64)
    with np.errstate(under="ignore"):
        density = np.exp(-0.5 * exact**2) / np.sqrt(2 * np.pi)
        with np.errstate(over="ignore"):
            of_numpy = gelu_and_slope((0.25 * u + 0.75 * u)[:-2])
        for values, slopes in ((value[:-2], slope[:-2]), of_numpy):
            np.testing.assert_allclose(values, (exact * ndtr(exact))[:-2], rtol=3e-7, atol=2e-6)
            assert np.abs(slopes - (ndtr(exact) + exact * density)[:-2]).max() < 1e-6
        np.testing.assert_allclose(value, exact * ndtr(exact), rtol=3e-7, atol=2e-6)
    value, slope = np.empty((2, 3))
    kernels.gelu_and_slope(np.array([np.nan, np.inf, -np.inf]), np.zeros(3), value, slope)
    assert not np.isfinite(slope).any()


@pytest.mark.parametrize("radius", [1e-3, 0.3, 1e3])
def test_two_scores_in_closed_form_are_those_of_the_reference(radius):
    rng = np.random.default_rng(0)
    A, e = rng.normal(size=(50, 2, 6)), 3.0 * rng.normal(size=(50, 2))
    A[0, 1] = A[0, 0]
    A[1] = 0.0
    gram = A @ A.swapaxes(1, 2)
    triangles = zip(gram[:, 0, 0], gram[:, 1, 1], gram[:, 0, 1], *e.T, strict=True)
    y = [kernels.two_scores(*row, 1e-3, radius) for row in triangles]
    np.testing.assert_allclose(y, step_coefficients(gram, e, damping=1e-3, radius=radius), rtol=1e-7)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_arrays_are_shifted_as_small_ones_are(k, dtype, monkeypatch):
    m = random_affine_map(d=33, k=k).with_strength(0.7)
    X = np.random.default_rng(k).normal(size=(300, 33)).astype(dtype)
    X.flags.writeable = False  # as memory-mapped rows are
    expected = m.transform(X)
    monkeypatch.setattr("mgpa.maps.affine.COMPILED_BYTES", 0)
    actual = m.transform(X)
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5 if dtype == np.float32 else 1e-13)
    bad = X.copy()
    bad[7, 3] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite values in 1 of 300 rows"):
        m.transform(bad)


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    m = random_staged_map(anchored=True)
    X = np.random.default_rng(0).normal(size=(1000, m.n_features)).astype(np.float32)
    results = []
    for threads in (1, 2, 3):
        monkeypatch.setattr("mgpa.linalg.n_threads", lambda threads=threads: threads)
        results.append((m.transform(X), m.stage_movement(X)))
    for rows, movement in results[1:]:
        np.testing.assert_array_equal(rows, results[0][0])
        np.testing.assert_array_equal(movement, results[0][1])


def test_maps_of_all_sizes_share_what_was_compiled():
    random_staged_map().warm_up(np.float64)
    before = len(kernels.run_stages.signatures)
    for n_linear, n_network, anchored in [(1, 1, False), (1, 1, True), (1, 0, False), (0, 2, True)]:
        m = random_staged_map(n_linear=n_linear, n_network=n_network, anchored=anchored, dtype=np.float64)
        m.transform(np.ones((3, m.n_features)))
        m.stage_movement(np.ones((3, m.n_features)), np.full(m.n_features, 2.0))
    assert len(kernels.run_stages.signatures) == before


def test_without_a_folder_to_write_to_stages_are_compiled_all_the_same():
    code = """
from numba.core import caching
caching.CacheImpl._locator_classes = []
for implementation in (caching.CompileResultCacheImpl, caching.CodeLibraryCacheImpl):
    implementation._locator_classes = []
import numba
try:
    numba.njit(cache=True)(lambda: None)
except RuntimeError:
    import mgpa.maps.runtime.numba_kernels as kernels, numpy
    assert kernels.inner(numpy.ones(3), numpy.ones(3)) == 3
    print("compiled")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "compiled"
