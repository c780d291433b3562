"""Maps that read the source: one result in numpy, torch and ONNX, in files and in either precision."""

from dataclasses import replace

import numpy as np
import pytest

import mgpa
from factories import random_posterior_map


@pytest.fixture(scope="module", params=["full", "low rank", "three sources"])
def stored(request):
    sizes = {"full": {}, "low rank": {"r": 2}, "three sources": {"r": 2, "n_sources": 3}}
    return random_posterior_map(strength=0.8, **sizes[request.param])


@pytest.fixture(scope="module", params=[None, 1])
def fitted(request):
    """Return a map that reads two devices, which differ by a shift and a gain, and new rows."""
    rng = np.random.default_rng(2)
    source, gain = np.repeat([0, 1], 300), np.array([1.0, 2.0, 1.0, 1.0, 0.5, 1.0])

    def see(events, device):
        return events * gain**device + 6.0 * device * np.eye(6)[0] + 0.1 * rng.normal(size=events.shape)

    X = np.concatenate([see(rng.normal(size=(300, 6)), device) for device in (0, 1)])
    both = rng.normal(size=(200, 6))
    model = mgpa.MGPA(reference=request.param).fit(X, source=source, pairs=(see(both, 0), see(both, 1)))
    assert model.action_ == "read"
    return model.to_map(), np.concatenate([see(rng.normal(size=(150, 6)), device) for device in (0, 1)])


@pytest.fixture(scope="module")
def rows(stored):
    return stored.center + stored.scale * np.random.default_rng(1).normal(size=(300, 7))


def formula(m, X):
    h = (X - m.center) / m.scale
    scores = (h @ m.square.T) ** 2 @ m.square_weight + h @ m.linear.T + m.bias
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    edits = np.einsum("ns,nsr->nr", p, np.einsum("nd,sdr->nsr", h, m.edit) + m.edit_offset)
    return p, X + m.strength * m.scale * (edits if m.direction is None else edits @ m.direction)


def test_it_is_its_formula(stored, rows):
    p, expected = formula(stored, rows)
    np.testing.assert_allclose(stored.transform(rows), expected, rtol=1e-12)
    np.testing.assert_allclose(stored.posterior(rows), p, atol=1e-12)
    np.testing.assert_allclose(stored.transform(rows[:1]), expected[:1], rtol=1e-12)
    np.testing.assert_array_equal(stored.with_strength(0).transform(rows), rows)


def test_files_precisions_torch_and_onnx_agree(stored, rows, tmp_path):
    expected, single = stored.transform(rows), rows.astype(np.float32)
    loaded = mgpa.load_map(stored.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(loaded.transform(rows), expected)
    assert stored.transform(single).dtype == np.float32
    np.testing.assert_allclose(stored.transform(single), expected, rtol=1e-5)
    torch = pytest.importorskip("torch")
    X = torch.tensor(rows, requires_grad=True)
    Y = stored.to_torch()(X)
    np.testing.assert_allclose(Y.detach().numpy(), expected, rtol=1e-12)
    Y.sum().backward()
    assert torch.isfinite(X.grad).all()
    np.testing.assert_allclose(stored.transform(torch.from_numpy(single)).numpy(), expected, rtol=1e-5)
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(stored.to_onnx(tmp_path / "m.onnx"))
    np.testing.assert_allclose(session.run(None, {"X": single})[0], expected, rtol=1e-5)


def test_fitted_maps_are_the_same_in_every_way(fitted, tmp_path):
    m, X = fitted
    expected, single = m.transform(X), X.astype(np.float32)
    size = np.maximum(1.0, np.abs(expected).max(axis=1, keepdims=True))

    def agree(rows, within=1e-5):
        assert np.max(np.abs(np.asarray(rows) - expected) / size) < within

    agree(np.concatenate([m.transform(row[None]) for row in X]), 1e-12)
    agree(m.transform(single))
    torch = pytest.importorskip("torch")
    agree(m.transform(torch.from_numpy(X)).numpy(), 1e-12)
    agree(m.transform(torch.from_numpy(single)).numpy())
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(m.to_onnx(tmp_path / "m.onnx"))
    agree(session.run(None, {"X": single})[0])


def test_arrays_must_fit_together(stored):
    with pytest.raises(mgpa.errors.MapError, match="edit"):
        replace(stored, edit=stored.edit[:, :, :1], edit_offset=stored.edit_offset[:, :1], direction=None)
    with pytest.raises(ValueError, match="NaN"):
        stored.transform(np.full((1, 7), np.nan))
