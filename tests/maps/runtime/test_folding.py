"""The folded weights are the stored ones multiplied out, in float64, and every runtime starts from them."""

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.special import ndtr

from factories import embeddings, random_affine_map, random_routed_map, random_staged_map
from mgpa.maps.runtime.folding import fold_affine, fold_routed, fold_stages, linear_gram

SIZES = [(1, 1), (1, 0), (0, 1), (2, 3)]


def assert_float64(folded):
    arrays = [getattr(folded, field.name) for field in fields(folded)]
    assert {array.dtype for array in arrays if array is not None} == {np.dtype(np.float64)}


def gelu(u):
    return u * ndtr(u)


def gelu_slope(u):
    return ndtr(u) + u * np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)


@pytest.mark.parametrize(("n_linear", "n_network"), SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("anchored", [False, True])
def test_folded_stages_give_the_residuals_and_gated_gradients_of_the_stored_critics(
    n_linear, n_network, dtype, anchored
):
    m = random_staged_map(d=11, r=4, n_linear=n_linear, n_network=n_network, dtype=dtype, anchored=anchored)
    w = fold_stages(m)
    assert_float64(w)
    S, L, H, N = m.sizes
    rng = np.random.default_rng(1)
    X, z = embeddings(5, np.float64, d=11), rng.normal(size=(5, 4))
    B = m.basis.astype(np.float64)
    original = (X - m.center) / m.scale.astype(np.float64)
    h = original + z @ B.T
    h0 = (X - w.center) * w.inverse_scale
    width = S * (H + L + N)
    product = h0 @ w.first + w.constant
    first, point = product[:, :width].reshape(5, S, H + L + N), product[:, width:]
    assert point.shape[1] == (5 if anchored else 0)
    np.testing.assert_allclose(z @ w.back, (h - original) * m.scale, atol=1e-12)

    def scores(k, h):
        u = h @ m.hidden_weight[k].T + m.hidden_bias[k]
        network = gelu(u) @ m.output_weight[k].T + m.output_bias[k]
        return np.hstack([h @ m.linear_weight[k].T + m.linear_bias[k], network])

    for k in range(S):
        u = h @ m.hidden_weight[k].T + m.hidden_bias[k]
        if anchored:
            moved = (original @ m.anchor_readout + m.anchor_offset) @ m.anchor_direction.astype(float).T
            targets = scores(k, original - moved)
        else:
            targets = original @ m.anchor_weight[k].T + m.anchor_bias[k]
        residuals = scores(k, h) - targets
        gradients = np.einsum("nh,jh,hd,dr->njr", gelu_slope(u), m.output_weight[k], m.hidden_weight[k], B)
        folded_u = first[:, k, :H] + z @ w.hidden_gate[k]
        np.testing.assert_allclose(folded_u, u, atol=1e-12)
        value = gelu(folded_u)
        if anchored:
            value = value - gelu(first[:, k, :H] + point @ w.anchor_gate[k])
        folded_scores = np.hstack([z @ w.linear_gate[k].T, value @ w.output[k]])
        np.testing.assert_allclose(first[:, k, H:] + folded_scores, residuals, atol=1e-12)
        folded_gradients = (gelu_slope(folded_u) @ w.gradient_gate[k]).reshape(5, N, 4)
        np.testing.assert_allclose(folded_gradients, gradients, atol=1e-12)
        np.testing.assert_allclose(w.linear_gate[k], m.linear_weight[k] @ B, atol=1e-12)


@pytest.mark.parametrize("k", [1, 5, 6, 10])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_folded_affine_weights_give_the_displacement_whether_multiplied_out_or_not(k, dtype):
    m, X = random_affine_map(k=k, dtype=dtype), embeddings(5, np.float64)
    w = fold_affine(m)
    assert_float64(w)
    assert (w.back is None) == (k > 5)
    coordinates = (X - w.center) @ w.readout + w.offset
    displacement = coordinates if w.back is None else coordinates @ w.back
    np.testing.assert_allclose(displacement, m.transform(X) - X, atol=1e-12)


@pytest.mark.parametrize("diagonal", [False, True])
def test_folded_routed_weights_give_the_displacement_of_each_source(diagonal):
    m, X = random_routed_map(diagonal=diagonal), embeddings(5, np.float64)
    w = fold_routed(m)
    for s, source in enumerate(("wet", "dry")):
        edit = (X - w.center) * w.readout[s] if diagonal else (X - w.center) @ w.readout[s]
        np.testing.assert_allclose(edit + w.offset[s], m.transform(X, source=source) - X, atol=1e-12)


@pytest.mark.parametrize("changes", [{"strength": 0.3}, {"fraction": 0.3}])
def test_strength_and_fraction_are_not_folded_in(changes):
    m = random_staged_map()
    folded, other = fold_stages(m), fold_stages(replace(m, **changes))
    for field in fields(folded):
        np.testing.assert_array_equal(getattr(folded, field.name), getattr(other, field.name))


def test_the_linear_gram_matrix_is_that_of_the_gate_as_rounded():
    gate = fold_stages(random_staged_map(n_linear=4, r=2)).linear_gate.astype(np.float32)
    gram = linear_gram(gate)
    assert gram.dtype == np.float64
    np.testing.assert_array_equal(gram, gate.astype(float) @ gate.astype(float).swapaxes(1, 2))
    assert np.linalg.eigvalsh(gram).min() > -1e-12  # four scores in two dimensions: singular, not indefinite
