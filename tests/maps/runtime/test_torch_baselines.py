"""Routed and projective maps as torch modules: the numpy maps, with derivatives and with their errors."""

import numpy as np
import pytest

from factories import embeddings, random_projective_map, random_routed_map
from mgpa.maps import ProjectiveMap

torch = pytest.importorskip("torch")
torch_baselines = pytest.importorskip("mgpa.maps.runtime.torch_baselines")

POSITIONS = np.arange(50) % 2
LABELS = np.array(["wet", "dry"])[POSITIONS]
ROUTED = pytest.mark.parametrize("diagonal", [False, True])


def projective(n_sources: int = 2, **changes) -> ProjectiveMap:
    return random_projective_map(n_sources=n_sources, **changes).prefix(3, 0.35).with_strength(1.3)


@pytest.mark.parametrize("K", [2, 3])
def test_projective_gradient_agrees_with_finite_differences(K):
    module = projective(K, dtype=np.float64).to_torch()
    X = torch.from_numpy(embeddings(5, np.float64)).requires_grad_()
    assert torch.autograd.gradcheck(module, X)


def test_projective_gradient_is_finite_where_the_networks_are_flat():
    X = torch.from_numpy(embeddings(3, np.float64)).requires_grad_()
    random_projective_map(hidden_bias=np.full((4, 10), -1e3)).to_torch()(X).sum().backward()
    torch.testing.assert_close(X.grad, torch.ones_like(X))


def test_projected_rows_do_not_depend_on_the_block_they_are_in(monkeypatch):
    m, X = projective(dtype=np.float64), torch.from_numpy(embeddings(50, np.float64))
    expected = m.to_torch()(X)
    monkeypatch.setattr(torch_baselines, "CPU_ROWS", 7)
    torch.testing.assert_close(m.to_torch()(X), expected, atol=1e-12, rtol=1e-10)


@ROUTED
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_routed_maps_agree_with_numpy(diagonal, dtype, tolerance):
    m, X = random_routed_map(diagonal=diagonal).with_strength(1.3), embeddings(dtype=dtype)
    expected = m.transform(X, source=LABELS)
    for positions in (POSITIONS, torch.from_numpy(POSITIONS).int()):
        Y = m.to_torch()(torch.from_numpy(X), positions)
        np.testing.assert_allclose(Y.numpy(), expected, atol=tolerance, rtol=tolerance)
    np.testing.assert_array_equal(m.transform(torch.from_numpy(X), source=LABELS).numpy(), Y.numpy())
    assert m.to_torch()(torch.from_numpy(X[:0]), POSITIONS[:0]).shape == (0, 10)
    assert torch.equal(m.with_strength(0).to_torch()(torch.from_numpy(X), positions), torch.from_numpy(X))


@ROUTED
def test_routed_gradient_agrees_with_finite_differences(diagonal):
    module = random_routed_map(diagonal=diagonal).to_torch()
    X = torch.from_numpy(embeddings(4, np.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda X: module(X, POSITIONS[:4]), X)


@ROUTED
def test_routed_maps_keep_their_errors(diagonal):
    m, X = random_routed_map(diagonal=diagonal), torch.from_numpy(embeddings())
    module = m.to_torch()
    with pytest.raises(ValueError, match=r"source is missing.*0 for 'wet', 1 for 'dry'"):
        module(X)
    for position in (-1, 2):
        with pytest.raises(ValueError, match=f"source has {position}; expected one position"):
            module(X, torch.full((50,), position))
    for source in (POSITIONS[:3], 0, POSITIONS[:, None]):
        with pytest.raises(ValueError, match="source has shape"):
            module(X, torch.as_tensor(source))
    for source in (POSITIONS == 0, POSITIONS.astype(float)):
        with pytest.raises(ValueError, match="expected integers"):
            module(X, source)
    with pytest.raises(ValueError, match="source-aware"):
        m.transform(X)
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match="first: row 3"):
        module(X, POSITIONS)
    with pytest.raises(ValueError, match="X has 9 features"):
        module(X[:, :9], POSITIONS)


@ROUTED
def test_routed_export_keeps_rows_free_and_cannot_miss_a_bad_position(diagonal):
    module, X = random_routed_map(diagonal=diagonal).to_torch().eval(), torch.from_numpy(embeddings())
    source = torch.from_numpy(POSITIONS)
    n = torch.export.Dim("n")
    rows = {"X": {0: n}, "source": {0: n}}
    program = torch.export.export(module, (X[:7], source[:7]), dynamic_shapes=rows).module()
    torch.testing.assert_close(program(X, source), module(X, source))
    for position in (2, -1):
        bad = source.clone()
        bad[4] = position
        if diagonal:
            with pytest.raises(IndexError):
                program(X, bad)
        else:
            assert program(X, bad)[4].isnan().all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@ROUTED
def test_routed_maps_on_cuda_agree_with_numpy(diagonal):
    m, X = random_routed_map(diagonal=diagonal), embeddings(dtype=np.float64)
    Y = m.transform(torch.from_numpy(X).to("cuda"), source=LABELS)
    np.testing.assert_allclose(Y.cpu().numpy(), m.transform(X, source=LABELS), atol=1e-10)
