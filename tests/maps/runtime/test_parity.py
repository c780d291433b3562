"""One map, one answer: numpy, numba, torch and ONNX on random maps and on those of the authors.

The reference is numpy in float64. Every way is held to 1e-6 of it, relative to the largest number of a row.
"""

import os
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from factories import random_affine_map, random_staged_map
from mgpa.maps.runtime.compiled import VARIABLE, kernels

TOLERANCE = 1e-6
N_MAPS, ONNX_MAPS = 200, 60
ROWS = (0, 1, 2, 3, 31, 33, 65, 129, 257, 300)
NUMPY_ALONE = {VARIABLE: "0"}


def reference(m, X):
    with mock.patch.dict(os.environ, NUMPY_ALONE):
        return m.transform(X)


def assert_equal(actual, expected, tolerance=TOLERANCE):
    assert actual.shape == expected.shape
    size = np.maximum(1.0, np.abs(expected).max(axis=1, initial=0.0, keepdims=True))
    np.testing.assert_array_less(np.abs(actual - expected) / size, tolerance)


def random_case(seed: int):
    """Return a map of 2 to 5 sources, gate rank 1 to 64: affine, published or aiming within the critic."""
    rng = np.random.default_rng(seed)
    K, r = int(rng.integers(2, 6)), int(rng.integers(1, 65))
    d = r + int(rng.integers(0, 60))
    kind = ("affine", "published", "within")[seed % 3]
    m = random_affine(rng, d, K - 1) if kind == "affine" else random_staged(rng, d, r, K, kind == "within")
    X = rng.normal(size=(ROWS[int(rng.integers(len(ROWS)))], d))
    # float32 numbers, so that every way is given the same rows.
    return m, X.astype(np.float32).astype(np.float64)


def random_affine(rng, d, k):
    m = random_affine_map(int(rng.integers(2**31)), d, k, strength=float(rng.uniform(0.5, 1.5)))
    return scaled(m, "readout", "direction", axis=0)


def random_staged(rng, d, r, K, within):
    """Return stages with weights as fits have them: scores of order one, more hidden units than scores.

    With fewer, gradients depend on each other, and float32 itself is too coarse for 1e-6.
    """
    S, H = int(rng.integers(1, 7)), int(rng.integers(9, 72))
    L, N = ((K - 1, K - 1), (K - 1, 0), (0, K - 1))[int(rng.choice(3, p=[0.6, 0.2, 0.2]))]
    m = random_staged_map(int(rng.integers(2**31)), d, r, S, H, L, N, anchored=within)
    m = scaled(m, "center", "linear_weight", "hidden_weight", "output_weight", "anchor_weight")
    m = replace(m, scale=m.scale ** np.float32(d**-0.5), anchor_weight=np.float32(0.3) * m.anchor_weight)
    if within:
        m = scaled(m, "anchor_readout", "anchor_direction", "start_readout", axis=0)
        if rng.random() < 0.5:
            m = replace(m, start_readout=None, start_offset=None)
    m = replace(m, radius=float(rng.choice([0.05, 0.2])) * d**0.5)
    return m.prefix(S, fraction=float(rng.choice([1.0, 0.35]))).with_strength(float(rng.uniform(0.5, 1.5)))


def scaled(m, *names, axis=-1):
    """Return the map with these arrays divided by the root of their number of inputs."""
    arrays = {name: getattr(m, name) for name in names}
    return replace(m, **{n: (x / max(1, x.shape[axis]) ** 0.5).astype(x.dtype) for n, x in arrays.items()})


@pytest.fixture(scope="module")
def cases():
    """Return the random maps, their rows, and what numpy makes of these in float64."""
    return [(m, X, reference(m, X)) for m, X in map(random_case, range(N_MAPS))]


def check_numpy(m, X, expected):
    assert_equal(reference(m, X.astype(np.float32)), expected)


def check_numba(m, X, expected):
    with mock.patch("mgpa.maps.affine.COMPILED_BYTES", 0):  # few rows are enough to compare
        assert_equal(m.transform(X), expected, 1e-9)
        assert_equal(m.transform(X.astype(np.float32)), expected)


def check_torch(m, X, expected, device):
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.float64):
        rows = torch.as_tensor(X, dtype=dtype, device=device)
        actual = m.transform(rows)
        assert actual.device == rows.device
        assert_equal(actual.cpu().numpy(), expected)


def check_onnx(m, X, expected, folder):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    path = m.to_onnx(folder / "map.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert_equal(session.run(None, {"X": X.astype(np.float32)})[0], expected)


def has_cuda():
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


needs_numba = pytest.mark.skipif(kernels() is None, reason="stages do not run compiled here")
devices = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not has_cuda(), reason="no CUDA device"))]
)


def test_numpy_in_float32_is_numpy_in_float64(cases):
    for case in cases:
        check_numpy(*case)


@needs_numba
def test_numba_is_numpy(cases):
    for case in cases:
        check_numba(*case)


@devices
def test_torch_is_numpy(cases, device):
    for case in cases:
        check_torch(*case, device)


def test_onnx_is_numpy(cases, tmp_path):
    for case in cases[:ONNX_MAPS]:
        check_onnx(*case, tmp_path)


def test_authors_maps_are_the_same_in_every_way(authors, tmp_path):
    assert authors.maps
    X = authors.arrays["X_new"]
    for m in authors.maps.values():
        expected = reference(m, X)
        check_numpy(m, X, expected)
        check_torch(m, X, expected, "cpu")
        check_onnx(m, X, expected, tmp_path)
        if kernels() is not None:
            check_numba(m, X, expected)
