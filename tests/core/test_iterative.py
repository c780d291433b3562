"""The iterative fit: seeds and threads, prefixes and fractions, bounded stages, several sources."""

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits

import mgpa
from factories import Data, assert_close, both, linear, new_rows, same_tensors, several_sources, two_sources
from mgpa import IterativeMGPA, MeasurementGate
from mgpa import critics as critic_module
from mgpa.critics import fit_network
from mgpa.effect import within_anchor
from mgpa.gate import FixedGate
from mgpa.moments import Moments

torch = pytest.importorskip("torch")


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    data = two_sources(8)
    for changes in ({"do_no_harm": True}, {"critics": ("gelu",)}):
        first, again, other = (data.fit(both(random_state=s, **changes)).to_map() for s in (3, 3, 4))
        assert len(first) > 0
        assert same_tensors(first, again)
        assert not same_tensors(first, other)


def test_fitting_leaves_global_random_state_alone():
    data = two_sources(10)
    torch.manual_seed(0)
    state, numpy_state = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    data.fit(both())
    assert torch.equal(state, torch.random.get_rng_state())
    assert np.array_equal(numpy_state, np.random.get_state()[1])  # noqa: NPY002


def test_threads_change_rounding_only():
    data, threads, results = two_sources(11, n=300, d=12), torch.get_num_threads(), []
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            with threadpool_limits(n):
                model = data.fit(both(n_stages=4, critic_epochs=4))
            results.append(model.transform(new_rows(data)))
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_allclose(*results, rtol=0, atol=1e-4)


@pytest.mark.parametrize("target", ["within", "conditional"])
def test_a_prefix_equals_stopping_the_fit(target):
    data = two_sources(16)
    whole = data.fit(both(n_stages=4, target=target)).to_map()
    X = new_rows(data)
    assert (whole.start_readout is None) == (target == "conditional")
    for k in range(5):
        stopped = data.fit(both(n_stages=k, target=target)).to_map()
        assert k == 0 or same_tensors(whole[:k], stopped)
        assert np.array_equal(whole[:k].transform(X), stopped.transform(X))


@pytest.mark.parametrize("ridge", [5.0, "auto"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_anchored_point_regresses_gate_coordinates_within_sources(ridge, weighted):
    data = two_sources(21, n=200)
    weight = np.arange(200) % 3 + 1.0 if weighted else None
    model = IterativeMGPA(n_stages=1, critics=("linear",), ridge=ridge, do_no_harm=False)
    m = model.fit(data.X, **data.evidence(), sample_weight=weight).to_map()
    B, H = m.basis, (data.X - m.center) / m.scale
    w = np.ones(200) if weight is None else weight
    means = np.stack([np.average(H[data.source == k], axis=0, weights=w[data.source == k]) for k in (0, 1)])
    centred = (H - means[data.source]) * np.sqrt(w)[:, None]
    Z, Q = centred @ B, centred - centred @ B @ B.T
    expected_ridge = 5.0
    n = w.sum() ** 2 / (w**2).sum()  # rows of equal weight that would tell as much
    if ridge == "auto":
        spread = Moments.from_rows(H, data.source, weight).within.scaled(np.full(6, np.sqrt(w.sum() / n)))
        expected_ridge = within_anchor(spread, B, n, 2, None).ridge
    beta = np.linalg.solve(n / w.sum() * Q.T @ Q + expected_ridge * np.eye(6), n / w.sum() * Q.T @ Z)
    point = H - (H @ m.anchor_readout + m.anchor_offset) @ m.anchor_direction.T
    center = means.mean(axis=0)
    q = H - H @ B @ B.T
    expected = q + (center @ B + (q - (center - center @ B @ B.T)) @ beta) @ B.T
    np.testing.assert_allclose(point, expected, atol=1e-5)


@pytest.mark.parametrize("critics", [("linear",), ("linear", "gelu")])
def test_rows_approach_their_anchored_points_and_do_not_pass_them(critics):
    data = two_sources(22, n=300, effect=3.0)
    gate = MeasurementGate(rank=1)
    # With an anchor gate of its own, a fit does not begin with the closed form.
    model = IterativeMGPA(gate, anchor_gate=gate, critics=critics, device="cpu", random_state=0)
    m = data.fit(model).to_map()
    assert m.start_readout is None
    assert len(m) > 3
    X = np.concatenate([data.X, new_rows(data)])

    def left(X):
        # The preserved part is the same before and after, and with it the anchored point.
        return ((X - m.center) / m.scale) @ m.anchor_readout + m.anchor_offset

    share = left(m.transform(X)) / left(X)
    assert share.min() > -0.05  # a network's step is exact to first order only
    assert share.max() < 1
    assert np.median(share) < 0.2


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("critics", [("linear",), ("linear", "gelu")])
def test_the_first_stage_is_the_closed_form(K, critics):
    data = two_sources(23, n=300, effect=3.0) if K == 2 else several_sources(23, K=3, events=80)
    stages = IterativeMGPA(critics=critics, device="cpu", n_stages=3)
    model, m = data.fit(stages), stages.to_map()
    closed = data.fit(mgpa.ClosedFormMGPA()).to_map()
    X = new_rows(data)
    assert_close(m[:1].transform(X), closed.transform(X), 1e-5)
    assert_close(m.prefix(1, 0.3).transform(X), X + 0.3 * (closed.transform(X) - X), 1e-5)
    assert np.abs(closed.transform(X) - X).max() > 0.5
    assert model.history_[0]["evidence"] == "effect"
    assert m.stage_movement(X)[0] == pytest.approx(np.linalg.norm(closed.displacement(X)), rel=1e-4)


def test_without_an_effect_along_the_mean_contrast_the_closed_form_is_no_stage():
    data = two_sources(24, n=300, effect=0.0)
    ruled = data.fit(IterativeMGPA(critics=("linear",), random_state=0))
    assert (ruled.n_stages_, ruled.map_.start_readout) == (0, None)
    told = data.fit(IterativeMGPA(critics=("linear",), random_state=0, n_stages=2, do_no_harm=False))
    assert told.map_.start_readout is not None


@pytest.mark.parametrize("target", ["within", "conditional"])
def test_a_unit_dead_in_the_fit_neither_moves_nor_steers_the_others_later(target):
    data = two_sources()
    X = data.X
    X[:, 5] = 0.0
    m = data.fit(both(n_stages=4, target=target)).to_map()
    awake = X.copy()
    awake[:, 5] = 50.0
    np.testing.assert_array_equal(m.transform(awake)[:, 5], 50.0)
    np.testing.assert_allclose(
        np.delete(m.transform(awake), 5, 1), np.delete(m.transform(X), 5, 1), atol=1e-12
    )


def test_the_rule_sees_which_of_three_sources_differs_and_leaves_three_that_do_not():
    rng = np.random.default_rng(0)
    source, pair_id = np.arange(450) % 3, np.arange(450) // 3
    noise = rng.normal(size=(450, 8))
    model = linear(do_no_harm=True, n_stages=1, gate=FixedGate(np.eye(8)[:, :2]))
    different = Data(noise + np.outer(source == 1, np.eye(8)[0]), source, pair_id=pair_id).fit(clone(model))
    assert different.history_[0]["kept"]
    assert np.argmax(different.history_[0]["z"]) == 1
    alike = Data(noise, source, pair_id=pair_id).fit(clone(model))
    assert len(alike.history_[0]["z"]) == 3
    assert alike.n_stages_ == 0


@pytest.mark.parametrize("n_sources", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_logistic_critic_of_rows_on_a_device_is_scikit_learns(n_sources, weighted):
    rng = np.random.default_rng(0)
    codes = np.arange(90) % n_sources
    H = rng.normal(size=(90, 4)) + codes[:, None] * [1.0, 0.5, 0, 0]
    weight = rng.uniform(0.1, 3.0, size=90) if weighted else None
    ours = critic_module.fit_logistic_on_device(torch.as_tensor(H), codes, n_sources, weight)
    theirs = critic_module.fit_logistic(H, codes, n_sources, sample_weight=weight)
    np.testing.assert_allclose(ours.weight, theirs.weight, atol=2e-3)
    np.testing.assert_allclose(ours.bias, theirs.bias, atol=2e-3)


def test_a_network_that_no_longer_improves_on_held_out_rows_stops_after_its_patience(monkeypatch):
    from mgpa.networks import Training

    epochs, one = [], Training.epoch
    monkeypatch.setattr(Training, "epoch", lambda self: (epochs.append(1), one(self))[1])
    rng = np.random.default_rng(0)
    H, codes = torch.as_tensor(rng.normal(size=(40, 6)), dtype=torch.float32), np.arange(40) % 2
    # Labels that are wrong in the held-out rows: every epoch makes them less likely.
    fit_network(H, codes, 2, epochs=50, learning_rate=1e-2, seeds=[0], held=(H, 1 - codes), patience=3)
    assert len(epochs) == 1 + 3
