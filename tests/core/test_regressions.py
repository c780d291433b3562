"""Things that once went wrong, each as a user would meet it."""

import threading

import numpy as np
import pandas as pd
import pytest

import mgpa
from factories import random_staged_map
from mgpa import endpoint
from mgpa.stopping import held_out_folds, rank_evidence

torch = pytest.importorskip("torch")


def two_headsets(n=300, d=8, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    source = np.arange(n) % 2
    shift = np.r_[1.5, 1.0, np.zeros(d - 2)]
    X = (rng.normal(size=(n, d)) + source[:, None] * shift).astype(dtype)
    A = rng.normal(size=(60, d)).astype(dtype)
    return X, source, (A, (A + shift + 0.1 * rng.normal(size=(60, d))).astype(dtype))


@pytest.mark.parametrize("make", [mgpa.ClosedFormMGPA, lambda: mgpa.IterativeMGPA.paper(n_stages=2)])
@pytest.mark.parametrize("total_weight", [None, 1.0, 1e14])
def test_a_constant_float32_feature_is_seen_as_constant_whatever_the_weights(make, total_weight):
    X, source, (A, B) = two_headsets(dtype=np.float32)
    X[:, 3], B[:, 3] = 0.1, B[:, 3] + 1
    weight = None if total_weight is None else np.full(len(X), total_weight / len(X))
    model = make().fit(X, source=source, pairs=(A, B), sample_weight=weight)
    assert model.map_.scale[3] == 1.0
    assert not model.gate_.basis_[3].any()
    assert model.gate_.cumulative_energy_.shape == (8,)


def test_a_unit_dead_in_the_fit_neither_moves_nor_steers_the_others_later():
    X, source, pairs = two_headsets()
    X[:, 5] = 0.0
    m = mgpa.IterativeMGPA.paper(n_stages=4).fit(X, source=source, pairs=pairs).to_map()
    awake = X.copy()
    awake[:, 5] = 50.0
    np.testing.assert_array_equal(m.transform(awake)[:, 5], 50.0)
    np.testing.assert_allclose(
        np.delete(m.transform(awake), 5, 1), np.delete(m.transform(X), 5, 1), atol=1e-12
    )


def test_a_budget_on_a_map_that_already_stops_within_a_stage_is_met():
    m = random_staged_map(stages=3).prefix(2, 0.4)
    X = np.random.default_rng(0).normal(size=(40, m.n_features))
    for share in (0.3, 0.9, 0.999):
        budget = share * endpoint.relative_movement(m, X)
        point = endpoint.movement_budget(m, X, budget)
        assert endpoint.relative_movement(point.map, X) == pytest.approx(budget, rel=1e-6)
    assert m.prefix(2, 0.5).fraction == pytest.approx(0.2)
    assert m[:2].fraction == pytest.approx(0.4)


def test_pairs_that_cancel_are_refused_instead_of_followed():
    X, source, (A, B) = two_headsets()
    both_ways = (np.concatenate([A, B]), np.concatenate([B, A]))
    with pytest.raises(ValueError, match="mean contrast inside the gate is zero"):
        mgpa.ClosedFormMGPA().fit(X, source=source, pairs=both_ways)


def test_merging_checks_what_it_merges():
    X, source, pairs = two_headsets()
    names = [f"f{i}" for i in range(8)]
    half = slice(0, 150), slice(150, 300)
    frames = [pd.DataFrame(X[rows], columns=names) for rows in half]
    first = mgpa.ClosedFormMGPA().partial_fit(frames[0], source=source[half[0]], pairs=pairs)
    second = mgpa.ClosedFormMGPA().partial_fit(frames[1], source=source[half[1]])
    fresh = mgpa.ClosedFormMGPA().merge(first).merge(second)
    whole = mgpa.ClosedFormMGPA().fit(pd.DataFrame(X, columns=names), source=source, pairs=pairs)
    np.testing.assert_allclose(fresh.transform(frames[0]), whole.transform(frames[0]), atol=1e-10)
    assert list(fresh.feature_names_in_) == names
    with pytest.raises(ValueError, match="count them twice"):
        first.merge(first)
    reversed_columns = mgpa.ClosedFormMGPA().partial_fit(frames[1][names[::-1]], source=source[half[1]])
    with pytest.raises(ValueError, match="another order"):
        first.merge(reversed_columns)
    with pytest.raises(ValueError, match="not fitted"):
        first.merge(mgpa.ClosedFormMGPA())


def test_a_failed_fit_is_not_an_identity():
    X, source, pairs = two_headsets()
    groups = np.where(source == 1, 0, np.arange(300))  # one participant holds all of source 1
    model = mgpa.IterativeMGPA(random_state=0)
    with pytest.raises(ValueError, match="too few groups to hold any out"):
        model.fit(X, source=source, pairs=pairs, groups=groups)
    with pytest.raises(ValueError, match="not fitted"):
        model.transform(X)


def test_participants_that_differ_are_not_evidence_of_a_device():
    rng = np.random.default_rng(0)
    people = np.repeat(np.arange(20), 60)
    is_b = people % 2 == 1
    z = []
    for _ in range(200):
        scores = rng.normal(size=20)[people] + rng.normal(size=1200)
        z.append(rank_evidence([(scores, is_b, people)])[1])
    assert np.mean(np.array(z) > 1.645) < 0.10
    assert np.std(z) < 1.3


def test_folds_keep_participants_whole():
    codes, people = np.tile([0, 1], 200), np.repeat(np.arange(40), 10)
    folds, units = held_out_folds(codes, people, None, seed=0)
    for train, test in folds:
        assert not set(people[train]) & set(people[test])
    assert len(np.unique(units)) == 40


def test_coverage_is_asked_in_the_users_units():
    X, source, (A, B) = two_headsets()
    units = np.r_[1000.0, np.ones(7)]
    model = mgpa.ClosedFormMGPA().fit(X * units, source=source, pairs=(A * units, B * units))
    plain = mgpa.ClosedFormMGPA().fit(X, source=source, pairs=(A, B))
    assert model.coverage((A * units, B * units)) == pytest.approx(plain.coverage((A, B)))


def test_a_fitted_gate_keeps_no_contrasts():
    X, source, pairs = two_headsets()
    assert not mgpa.ClosedFormMGPA().fit(X, source=source, pairs=pairs).gate_._seen


def test_fits_in_threads_are_the_fits_alone():
    from mgpa.critics import fit_network

    X, source, _ = two_headsets()
    H = torch.as_tensor(X, dtype=torch.float32)
    alone = fit_network(H, source, 2, seed=5, epochs=1, learning_rate=1e-3).hidden_weight
    state = torch.get_rng_state()
    found = []

    def fit():
        for _ in range(5):
            found.append(fit_network(H, source, 2, seed=5, epochs=1, learning_rate=1e-3).hidden_weight)

    threads = [threading.Thread(target=fit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(weights, alone) for weights in found)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("on_cuda", [False, True])
def test_one_map_serves_many_threads(on_cuda):
    if on_cuda and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    m = random_staged_map(d=32, r=4)
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(400, 32)).astype(np.float32) for _ in range(4)]
    if on_cuda:
        inputs = [torch.as_tensor(X, device="cuda") for X in inputs]
    expected = [np.asarray(m.transform(X).cpu() if on_cuda else m.transform(X)) for X in inputs]
    wrong = []

    def work(i):
        for _ in range(20):
            out = m.transform(inputs[i])
            if not np.array_equal(np.asarray(out.cpu() if on_cuda else out), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_pair_ids_with_gaps_as_pandas_makes_them():
    X, source, (A, B) = two_headsets()
    rows, labels = np.concatenate([X, A, B]), np.r_[source, np.zeros(60, int), np.ones(60, int)]
    ids = np.r_[np.full(300, -1), np.arange(60), np.arange(60)]
    gaps = pd.Series(ids).where(ids >= 0)
    assert gaps.dtype == float
    expected = mgpa.ClosedFormMGPA().fit(rows, source=labels, pair_id=ids).transform(X)
    np.testing.assert_array_equal(
        mgpa.ClosedFormMGPA().fit(rows, source=labels, pair_id=gaps).transform(X), expected
    )


@pytest.mark.parametrize("n_sources", [2, 3])
@pytest.mark.parametrize("rank", [1, 2])
def test_exports_of_fitted_maps_agree_when_scores_outnumber_gate_directions(tmp_path, rank, n_sources):
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    source = np.arange(360) % n_sources
    effects = rng.normal(size=(n_sources, 2)) @ np.eye(2, 12)
    X = (rng.normal(size=(360, 12)) + effects[source]).astype(np.float32)
    events = rng.normal(size=(30, 12))
    views = [events + effect + 0.1 * rng.normal(size=events.shape) for effect in effects]
    rows = np.concatenate([X, *views]).astype(np.float32)
    labels = np.r_[source, np.repeat(np.arange(n_sources), 30)]
    ids = np.r_[np.full(360, -1), np.tile(np.arange(30), n_sources)]
    model = mgpa.IterativeMGPA.paper(n_stages=6, gate=mgpa.MeasurementGate(rank))
    m = model.fit(rows, source=labels, pair_id=ids).to_map()
    exact = m.transform(X.astype(np.float64))
    session = onnxruntime.InferenceSession(m.to_onnx(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    for found in (session.run(None, {"X": X})[0], m.transform(torch.as_tensor(X)).numpy(), m.transform(X)):
        assert np.abs(found - exact).max() < 1e-4


def test_operating_points_take_estimators_and_maps_alike():
    X, source, pairs = two_headsets()
    model = mgpa.ClosedFormMGPA().fit(X, source=source, pairs=pairs)
    point = endpoint.movement_budget(model, X, 0.05)
    assert point.map.strength == endpoint.movement_budget(model.to_map(), X, 0.05).map.strength
    np.testing.assert_array_equal(model.to_map().transform(X, strength=0.3), model.transform(X, strength=0.3))


def test_a_map_knows_the_seed_it_was_fitted_with_even_a_drawn_one():
    X, source, pairs = two_headsets()
    first = mgpa.IterativeMGPA(n_stages=2, do_no_harm=False).fit(X, source=source, pairs=pairs)
    again = mgpa.IterativeMGPA(n_stages=2, do_no_harm=False, random_state=first.map_.info.random_state)
    np.testing.assert_array_equal(again.fit(X, source=source, pairs=pairs).transform(X), first.transform(X))


def test_maps_and_estimators_take_the_same_operating_point():
    X, source, pairs = two_headsets()
    model = mgpa.IterativeMGPA.paper(n_stages=4).fit(X, source=source, pairs=pairs)
    point = {"n_stages": 3, "fraction": 0.35, "strength": 1.2}
    np.testing.assert_array_equal(model.to_map().transform(X, **point), model.transform(X, **point))
    tokens = np.stack([X, X + 0.1], axis=1)
    np.testing.assert_array_equal(
        mgpa.transform_tokens(model.to_map(), tokens, **point), mgpa.transform_tokens(model, tokens, **point)
    )


def test_big_endian_rows_are_read():
    m = random_staged_map()
    X = np.random.default_rng(0).normal(size=(5, m.n_features))
    np.testing.assert_array_equal(m.transform(X.astype(">f8")), m.transform(X))


def test_movement_of_nothing_is_an_error():
    m = random_staged_map()
    for rows in (np.zeros((0, m.n_features)), np.tile(m.center.astype(float), (3, 1))):
        with pytest.raises(ValueError, match="empty or all at the fitting mean"):
            endpoint.movement_budget(m, rows, 0.05)
