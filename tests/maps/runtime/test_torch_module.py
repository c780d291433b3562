"""The torch module is the numpy map, on any device and with derivatives."""

import copy
import io
import pickle

import numpy as np
import pytest

from factories import edge_cases, embeddings, random_affine_map, random_staged_map
from mgpa.maps import CorrectionMap, StagedMap

torch = pytest.importorskip("torch")
torch_module = pytest.importorskip("mgpa.maps.runtime.torch_module")

pytestmark = pytest.mark.usefixtures("one_torch_thread")
SCORES = [(1, 1), (1, 0), (0, 1), (2, 2), (3, 0)]
# Steps that end on the trust-region boundary, and steps short enough to be free.
BOUNDARY = {"radius": 0.1}
FREE = {"radius": 1e3, "damping": 3.0, "stabilizer": 1.0}


def staged(n_linear: int = 1, n_network: int = 1, **changes) -> StagedMap:
    m = random_staged_map(n_linear=n_linear, n_network=n_network, **(BOUNDARY | changes))
    return m.prefix(3, fraction=0.35).with_strength(1.3)


ALL_MAPS = {
    "affine": lambda: random_affine_map(k=2),
    **{
        f"staged-{L}-{N}-{name}": lambda L=L, N=N, step=step: staged(L, N, **step)
        for L, N in SCORES
        for name, step in (("boundary", BOUNDARY), ("free", FREE))
    },
    **edge_cases(staged, SCORES),
}


@pytest.fixture(params=ALL_MAPS)
def any_map(request) -> CorrectionMap:
    return ALL_MAPS[request.param]()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_agrees_with_numpy_for_any_number_of_rows_and_changes_no_input(any_map, dtype):
    rows = embeddings(dtype=dtype)
    X, module = torch.from_numpy(rows.copy()), any_map.to_torch()
    Y = module(X)
    assert Y.numpy().dtype == dtype
    assert not Y.requires_grad
    assert not list(module.parameters())
    # numpy's error function is good to 1.5e-7.
    tolerance = 1e-5 if dtype == np.float32 else 1e-6
    np.testing.assert_allclose(Y.numpy(), any_map.transform(rows), atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(any_map.transform(X), Y)
    torch.testing.assert_close(module(X[:1]), Y[:1], atol=1e-5, rtol=1e-5)
    assert module(X[:0]).shape == (0, 10)
    np.testing.assert_array_equal(X.numpy(), rows)
    assert Y.data_ptr() != X.data_ptr()
    if isinstance(any_map, StagedMap):  # what the gate preserves is untouched
        B, moved = any_map.basis.astype(np.float64), (Y.numpy() - rows) / any_map.scale
        np.testing.assert_allclose(moved, moved @ B @ B.T, atol=tolerance)


@pytest.mark.parametrize(("scores", "step"), [(s, step) for s in SCORES for step in (BOUNDARY, FREE)])
def test_step_on_a_device_agrees_with_step_on_the_cpu(monkeypatch, scores, step):
    # Devices cannot use numpy for the small algebra; pretend to be tracing to take their path here.
    m, X = staged(*scores, **step), torch.from_numpy(embeddings())
    expected = m.to_torch()(X)
    monkeypatch.setattr(torch_module, "_tracing", lambda: True)
    torch.testing.assert_close(m.to_torch()(X), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("scores", "step"), [(s, step) for s in SCORES for step in (BOUNDARY, FREE)])
def test_gradient_agrees_with_finite_differences(scores, step):
    module = staged(*scores, **step).to_torch()
    X = torch.from_numpy(embeddings(3, np.float64)).requires_grad_()
    assert torch.autograd.gradcheck(module, X)
    torch.testing.assert_close(module(X).detach(), module(X.detach()))


@pytest.mark.parametrize("step", [BOUNDARY, FREE])
def test_second_derivative_agrees_with_finite_differences(step):
    module = random_staged_map(stages=2, hidden=2, **step).to_torch()
    assert torch.autograd.gradgradcheck(module, torch.from_numpy(embeddings(1, np.float64)).requires_grad_())


@pytest.mark.parametrize("step", [BOUNDARY, FREE])
def test_gradient_is_finite_where_eigenvalues_meet(step):
    # Three linear scores with orthonormal gated gradients: the Gram matrix is a multiple of the identity.
    weight = np.eye(10)[None, :3]
    sizes = {"stages": 1, "n_linear": 3, "n_network": 0, "basis": np.eye(10)[:, :3], "dtype": np.float64}
    m = random_staged_map(linear_weight=weight, **sizes, **step)
    X = torch.from_numpy(embeddings(2, np.float64)).requires_grad_()
    assert torch.autograd.gradcheck(m.to_torch(), X)


def test_gradient_is_finite_where_the_critics_are_flat():
    m = random_staged_map(linear_weight=np.zeros((4, 1, 10)), output_weight=np.zeros((4, 1, 6)))
    X = torch.from_numpy(embeddings(2, np.float64)).requires_grad_()
    module = m.to_torch()
    module(X).sum().backward()
    torch.testing.assert_close(X.grad, torch.ones_like(X))


def test_rows_do_not_depend_on_the_block_they_are_in(monkeypatch):
    m, X = staged(2, 2), torch.from_numpy(embeddings(50, np.float64))
    expected = m.to_torch()(X)
    monkeypatch.setattr(torch_module, "CPU_ROWS", 7)
    torch.testing.assert_close(m.to_torch()(X), expected, atol=1e-12, rtol=0)


def test_works_after_inference_mode_and_ignores_autocast():
    module, X = staged().to_torch(), torch.from_numpy(embeddings())
    with torch.inference_mode():
        expected = module(X).numpy()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        Y = module(X)
    assert Y.dtype == torch.float32
    np.testing.assert_array_equal(Y.numpy(), expected)
    module(X.requires_grad_()).sum().backward()
    assert torch.isfinite(X.grad).all()


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_behave_alike(any_map, clone):
    module, X = any_map.to_torch(), torch.from_numpy(embeddings())
    expected = module(X)
    torch.testing.assert_close(clone(module)(X), expected, atol=0, rtol=0)


def test_state_dict_is_the_whole_map():
    X = torch.from_numpy(embeddings())
    m = staged(radius=0.2)
    source, target = m.to_torch(), random_staged_map(seed=5)[:3].to_torch()
    target(X)  # what was derived from the old weights must not survive
    file = io.BytesIO()
    torch.save(source.state_dict(), file)
    file.seek(0)
    target.load_state_dict(torch.load(file, weights_only=True))
    torch.testing.assert_close(target(X), source(X), atol=0, rtol=0)


def test_moving_to_double_and_back_does_not_keep_old_weights():
    module, X = staged().to_torch(), torch.from_numpy(embeddings())
    expected = module(X)
    module.double().float()
    torch.testing.assert_close(module(X), expected)
    module.constant.add_(1.0)
    module.float()
    assert not torch.equal(module(X), expected)


def test_half_precision_weights_are_refused():
    module = staged().to_torch().to(torch.bfloat16)
    with pytest.raises(ValueError, match=r"weights were cast to torch\.bfloat16"):
        module(torch.from_numpy(embeddings()))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        *((torch.ones(3, 10, dtype=dtype), r"convert it with X\.float\(\)")
          for dtype in (torch.float16, torch.bfloat16, torch.int64)),
        (torch.ones(3, 9), "X has 9 features; this correction was fitted on 10"),
        (torch.ones(3, 4, 10), r"mgpa\.TokenMean"),
        (torch.ones(3, 10, device="meta"), "X is on meta and this correction on cpu"),
        *((torch.full((4, 10), value).requires_grad_(grad), "first: row 0")
          for value in (np.nan, np.inf) for grad in (False, True)),
    ],
)  # fmt: skip
def test_bad_rows_are_refused(any_map, X, message):
    with pytest.raises(ValueError, match=message):
        any_map.to_torch()(X)


@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated"
)  # torch's own, on entering a dual level
def test_forward_mode_is_refused_rather_than_wrong():
    X = torch.from_numpy(embeddings())
    with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match="reverse mode"):
        staged().to_torch()(torch.autograd.forward_ad.make_dual(X, torch.ones_like(X)))


@pytest.mark.parametrize("name", ["staged-1-1-boundary", "affine"])
def test_export_keeps_the_number_of_rows_free(name):
    module = ALL_MAPS[name]().to_torch().eval()
    rows = {"X": {0: torch.export.Dim("n")}}
    program = torch.export.export(module, (torch.ones(7, 10),), dynamic_shapes=rows)
    X = torch.from_numpy(embeddings())
    torch.testing.assert_close(program.module()(X), module(X), atol=1e-6, rtol=1e-5)
