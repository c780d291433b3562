"""The GPU kernels give numpy's corrections, and nothing is lost where there are none."""

import numpy as np
import pytest

from factories import random_affine_map, random_posterior_map, random_staged_map

torch = pytest.importorskip("torch")
torch_module = pytest.importorskip("mgpa.maps.runtime.torch_module")

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

# Sizes at and off the powers of two that kernels work in, up to the largest they take.
STAGES = [
    {},
    {"d": 7, "r": 1, "hidden": 1},
    {"d": 33, "r": 17, "hidden": 33},
    {"d": 64, "r": 64, "hidden": 128},
    {"d": 150, "r": 128, "hidden": 256},
    {"n_network": 0},
    {"n_linear": 0},
    {"anchored": True},
    {"anchored": True, "n_linear": 0},
    {"anchored": True, "d": 33, "r": 5, "hidden": 20},
]


POSTERIORS = [
    {},
    {"readings": 0},
    {"r": 3, "n_sources": 8, "readings": 5},
    {"n_sources": 9},
    {"d": 150, "r": 130, "readings": 100},
]
MAPS = [random_staged_map(), random_affine_map(), random_posterior_map()]


def rows(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def reference(m, X):
    return m.transform(X.astype(np.float64))


@cuda
@pytest.mark.parametrize("sizes", STAGES, ids=str)
@pytest.mark.parametrize("n", [1, 16, 53])
def test_stages_in_one_kernel_agree_with_numpy(sizes, n):
    pytest.importorskip("triton")
    m = random_staged_map(**sizes).prefix(3, fraction=0.35).with_strength(1.3)
    module = m.to_torch().to("cuda")
    weights = module._weights(torch.float32, module.center.device)
    assert torch_module._kernels_for(module.center).fits_stages(weights)
    X = rows(n, m.n_features)
    Y = module(torch.from_numpy(X).cuda()).cpu().numpy()
    size = np.abs(reference(m, X)).max()
    np.testing.assert_allclose(Y, reference(m, X), rtol=0, atol=1e-6 * max(1.0, size))


@cuda
def test_more_scores_than_the_kernel_takes_run_one_by_one():
    pytest.importorskip("triton")
    m = random_staged_map(n_linear=2, n_network=2)
    module = m.to_torch().to("cuda")
    X = rows(20, m.n_features)
    weights = module._weights(torch.float32, module.center.device)
    assert not torch_module._kernels_for(module.center).fits_stages(weights)
    np.testing.assert_allclose(module(torch.from_numpy(X).cuda()).cpu(), reference(m, X), atol=1e-5)


@cuda
@pytest.mark.parametrize("k", [1, 3, 17, 64])
@pytest.mark.parametrize("n", [1, 32, 75])
@pytest.mark.parametrize("d", [130, 512])
def test_an_affine_correction_in_one_kernel_agrees_with_numpy(k, n, d):
    pytest.importorskip("triton")
    m = random_affine_map(d=d, k=k).with_strength(0.7)
    X = rows(n, d) + 100.0  # a mean far beyond what varies
    Y = m.to_torch().to("cuda")(torch.from_numpy(X).cuda()).cpu().numpy()
    np.testing.assert_allclose(Y, reference(m, X), rtol=0, atol=1e-6 * np.abs(reference(m, X)).max())


@cuda
@pytest.mark.parametrize("n", [1, 53])
@pytest.mark.parametrize("size", [1e13, 1e18])
def test_a_row_far_out_leaves_its_step_and_its_neighbours_as_they_are(size, n):
    """The multiplier is found in float32 first; where that overflows, in float64."""
    pytest.importorskip("triton")
    m = random_staged_map(stages=2)
    X = rows(n, m.n_features)
    X[0] *= size
    Y = m.to_torch().to("cuda")(torch.from_numpy(X).cuda()).cpu().numpy()
    moved, expected = (Y - X)[0], (reference(m, X) - X)[0]
    np.testing.assert_allclose(moved, expected, atol=2 * np.spacing(np.abs(X[0])).max())
    np.testing.assert_allclose(Y[1:], reference(m, X)[1:], atol=1e-5)


@cuda
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", POSTERIORS, ids=str)
@pytest.mark.parametrize("n", [1, 53])
def test_edits_by_posterior_agree_with_numpy(sizes, dtype, n):
    m = random_posterior_map(**sizes).with_strength(0.7)
    X = rows(n, m.n_features).astype(dtype)
    module = m.to_torch().to("cuda")
    weights = module._weights(torch.float32, module.center.device)
    kernels = torch_module._kernels_for(module.center)
    assert kernels is None or kernels.fits_spread(weights) == (sizes.get("n_sources", 2) <= 8)
    Y = module(torch.from_numpy(X).cuda()).cpu().numpy()
    np.testing.assert_allclose(Y, reference(m, X), rtol=0, atol=1e-4 if dtype == "float32" else 1e-11)


@cuda
def test_rows_of_any_memory_layout_are_corrected():
    m = random_affine_map(d=130, k=2)
    X = rows(40, 130)
    across = torch.from_numpy(np.asfortranarray(X)).cuda()
    np.testing.assert_allclose(m.to_torch().to("cuda")(across).cpu(), m.transform(X), atol=1e-4)


@cuda
@pytest.mark.parametrize("m", MAPS, ids=lambda m: m.kind)
def test_derivatives_do_not_go_through_a_kernel(m):
    module = m.to_torch().to("cuda")
    X = torch.from_numpy(rows(5, m.n_features)).cuda().requires_grad_()
    module(X).sum().backward()
    assert torch.isfinite(X.grad).all()
    assert (X.grad != 0).any()


@cuda
@pytest.mark.parametrize("m", MAPS, ids=lambda m: m.kind)
def test_a_nan_is_refused_by_a_kernel_too(m):
    X = rows(5, m.n_features)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        m.to_torch().to("cuda")(torch.from_numpy(X).cuda())


@cuda
@pytest.mark.parametrize("m", MAPS, ids=lambda m: m.kind)
def test_without_triton_corrections_are_the_same(m, monkeypatch):
    X = torch.from_numpy(rows(40, m.n_features)).cuda()
    with_kernel = m.to_torch().to("cuda")(X)
    monkeypatch.setattr(torch_module, "_load_kernels", lambda: None)
    np.testing.assert_allclose(m.to_torch().to("cuda")(X).cpu(), with_kernel.cpu(), atol=1e-5)


def test_rows_on_a_cpu_need_no_triton():
    assert torch_module._kernels_for(torch.zeros(1)) is None
