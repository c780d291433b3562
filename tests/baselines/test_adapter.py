"""The adapter trained on pairs: alike views afterwards, the reference near where it was."""

import pickle

import numpy as np
import pytest

import mgpa
from mgpa.baselines import AugmentationInvariance
from mgpa.maps import MapError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("one_torch_thread")


def devices(n=400, seed=0, d=5):
    """Return views of the same events; the second device shifts, and doubles one feature far from zero."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(n, d))
    second = first + np.where(np.arange(d) == 0, 6.0, 0.0)
    second[:, 1] *= 2.0
    return first, second


@pytest.fixture(scope="module")
def fitted():
    A, B = devices()
    X, source = np.concatenate([A, B]), np.repeat(["new", "old"], len(A))
    return AugmentationInvariance(random_state=0).fit(X, source=source, pairs=(A, B))


def test_views_become_alike_and_the_reference_hardly_moves(fitted):
    A, B = devices(seed=1)
    after = [fitted.transform(view) for view in (A, B)]
    scale = fitted.map_.scale
    gap = [np.square((b - a) / scale).mean() for a, b in ((A, B), after)]
    assert gap[1] < 0.05 * gap[0]
    assert np.square((after[0] - A) / scale).mean() < 0.05 * gap[0]
    assert fitted.reference_ == "new"
    assert "'old' → 'new'" in fitted.to_map().summary()
    assert fitted.history_[-1] < 0.1 * fitted.history_[0]


def test_the_map_is_the_network(fitted):
    m = fitted.to_map()
    A, _ = devices(seed=2)
    z = torch.as_tensor((A - m.center) / m.scale)
    network = torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.ReLU(), torch.nn.Linear(5, 5)).double()
    with torch.no_grad():
        for parameter, name in zip(network.parameters(), m.shapes, strict=True):
            parameter.copy_(torch.tensor(getattr(m, name)))
        expected = A + m.scale * network(z).numpy()
    np.testing.assert_allclose(m.transform(A), expected, atol=1e-10)
    half = m.with_strength(0.5).transform(A)
    np.testing.assert_allclose(half, (A + expected) / 2, atol=1e-10)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(m)).transform(A), m.transform(A))


def test_it_has_no_file_and_the_same_seed_gives_the_same_map(fitted, tmp_path):
    with pytest.raises(MapError, match="AugmentationInvariance exists only in memory"):
        fitted.to_map().save(tmp_path / "m.safetensors")
    assert "in memory" not in mgpa.maps.info.KINDS
    A, B = devices(60)
    X, source = np.concatenate([A, B]), np.repeat([0, 1], 60)
    maps = [
        AugmentationInvariance(random_state=5, n_steps=20).fit(X, source=source, pairs=(A, B)).transform(X)
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*maps)
    start = AugmentationInvariance(random_state=5, n_steps=0).fit(X, source=source, pairs=(A, B))
    np.testing.assert_array_equal(start.transform(X), X)


def test_features_that_never_varied_neither_move_nor_steer():
    A, B = devices(80)
    A[:, 3] = B[:, 3] = 7.0
    X, source = np.concatenate([A, B]), np.repeat([0, 1], 80)
    model = AugmentationInvariance(random_state=0, n_steps=60).fit(X, source=source, pairs=(A, B))
    later = X.copy()
    later[:, 3] = np.linspace(-1e3, 1e3, len(X))
    out, expected = model.transform(later), model.transform(X)
    np.testing.assert_array_equal(out[:, 3], later[:, 3])
    others = np.arange(5) != 3
    np.testing.assert_allclose(out[:, others], expected[:, others], atol=1e-8)
