"""MANCE: every step is short and tangent to the data, and the map replays the fit."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest

import mgpa
import mgpa.audit
import mgpa.tables
from mgpa.baselines import mance
from mgpa.baselines.mance import (
    LONGEST,
    MANCE,
    ManifoldMap,
    first_erasure,
    fit_scorer,
    intrinsic_dimension,
    neighbour_offsets,
    tangent_step,
)
from mgpa.maps import MapError
from mgpa.operating_point import movement_budget, operating_points, relative_movement

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("one_torch_thread")
QUICK = {"n_rounds": 3, "n_steps": 40, "hidden": 16, "random_state": 3}


def data(n=300, d=6, seed=0):
    """Two sources that differ in mean, variance and curvature of a 4-dimensional manifold."""
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(99).normal(size=(4, d))
    z, source = rng.normal(size=(n, 4)), rng.integers(0, 2, n)
    z[:, 0] += 1.5 * source
    z[:, 1] *= 1 + 2 * source
    z[:, 2] += source * (z[:, 3] ** 2 - 1)
    return 5 + z @ mixing + 0.1 * rng.normal(size=(n, d)), source


def gradient_of(scorer, H):
    W1, b1, W2, b2, w = map(torch.from_numpy, scorer)
    h = torch.from_numpy(H).requires_grad_()
    (torch.relu(torch.relu(h @ W1.T + b1) @ W2.T + b2) @ w).sum().backward()
    return h.grad.numpy()


@pytest.fixture(scope="module")
def fitted():
    X, source = data()
    return MANCE(**QUICK).fit(X, source=source)


@pytest.fixture(scope="module")
def X():
    return data(seed=1)[0]


def random_scorer(rng, d, hidden=12):
    """Return W₁, b₁, W₂, b₂ and w of a network with two hidden layers."""
    shapes = ((hidden, d), (hidden,), (hidden, hidden), (hidden,), (hidden,))
    return tuple(rng.normal(size=shape) for shape in shapes)


def random_manifold_map(d=6, m=60, rank=2, k=5, **changes) -> ManifoldMap:
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    scorers = (np.stack([w, w + 1]) for w in random_scorer(rng, d))
    arguments = dict(zip(ManifoldMap.scorer_names, scorers, strict=True)) | {
        "center": normal(d), "scale": np.exp(normal(d)), "stage": np.array([-1.0, 0, 0, 1], np.float32),
        "readout": normal(d, rank), "direction": normal(d, rank), "offset": normal(rank),
        "reference": normal(m, d), "n_neighbors": float(k), "step": 0.1, "power": 1.0,
    }  # fmt: skip
    return ManifoldMap(**(arguments | changes))


# The step


@pytest.mark.parametrize(("d", "k", "power"), [(8, 5, 1.0), (8, 6, 0.0), (5, 9, 2.0)])
def test_a_step_is_the_formula_of_the_paper(d, k, power):
    rng = np.random.default_rng(0)
    reference, H, scorer = rng.normal(size=(40, d)), rng.normal(size=(30, d)), random_scorer(rng, d)
    H[:10] = reference[:10]  # these must not be their own neighbours
    move = tangent_step(H, neighbour_offsets(H, reference, k), scorer, 0.1, power)
    for i, (h, g) in enumerate(zip(H, gradient_of(scorer, H), strict=True)):
        distance = np.linalg.norm(reference - h, axis=1)
        order = np.argsort(distance)[int(i < 10) :][:k]
        near, r = reference[order], distance[order].mean()
        _, sigma, Bt = np.linalg.svd(near - near.mean(axis=0), full_matrices=False)
        rank = min(k - 1, d)
        B, sigma = Bt[:rank].T, sigma[:rank]
        t = B @ B.T @ (g / np.linalg.norm(g))
        D = B @ np.diag((sigma + max(1e-4 * sigma[0], 1e-12)) ** power) @ B.T @ ((h @ t) * t)
        np.testing.assert_allclose(move[i], -min(LONGEST, 0.1 * r / np.linalg.norm(D)) * D, atol=1e-11)
        assert np.linalg.norm(move[i]) <= 0.1 * r * (1 + 1e-12)


def test_rows_without_gradient_tangent_or_spread_stay():
    rng = np.random.default_rng(0)
    H, offsets, scorer = rng.normal(size=(4, 6)), rng.normal(size=(4, 5, 6)), random_scorer(rng, 6)
    assert not tangent_step(H, offsets, (*scorer[:4], 0 * scorer[4]), 0.1, 1.0).any()
    offsets[:, :, 5] = 0.0
    only_5 = (scorer[0] * (np.arange(6) == 5), *scorer[1:])
    assert np.abs(tangent_step(H, offsets, only_5, 0.1, 1.0)).max() < 1e-12
    assert not tangent_step(H, np.ones((4, 5, 6)), scorer, 0.1, 1.0).any()
    assert not tangent_step(np.zeros((4, 6)), offsets, scorer, 0.1, 1.0).any()


@pytest.mark.parametrize("dimension", [1, 3, 6])
def test_twonn_finds_the_dimension(dimension):
    rng = np.random.default_rng(0)
    rows = rng.uniform(size=(1500, dimension)) @ rng.normal(size=(dimension, 10))
    assert intrinsic_dimension(np.vstack([rows, rows[:50]])) == pytest.approx(dimension, rel=0.15)
    assert intrinsic_dimension(np.ones((30, 4))) == 0.0
    assert intrinsic_dimension(np.eye(12)) == 12.0


def test_the_erasure_equalises_means_and_the_most_unequal_variances():
    X, source = data(2000, d=8)
    H = X - 3
    readout, direction, offset = first_erasure(H, source, "++")
    erased = H - (H @ readout + offset) @ direction.T
    np.testing.assert_allclose(erased[source == 1].mean(0), erased[source == 0].mean(0), atol=1e-9)
    np.testing.assert_allclose(erased.mean(0), H.mean(0), atol=1e-9)
    assert np.linalg.matrix_rank(np.cov(erased.T), tol=1e-9) == 8 - 3
    leace = H - (H @ readout[:, :1] + offset[:1]) @ direction[:, :1].T
    gaps = [np.linalg.eigvalsh(np.cov(R[source == 1].T) - np.cov(R[source == 0].T)) for R in (leace, erased)]
    assert np.abs(gaps[1]).max() < np.sort(np.abs(gaps[0]))[-2]
    plus = first_erasure(H, source, "+")
    np.testing.assert_allclose(H - (H @ plus[0] + plus[2]) @ plus[1].T, leace, atol=1e-12)
    assert first_erasure(H, source, "plain")[0].shape == (8, 0)
    twice, equal = np.vstack([H, H]), np.repeat([0, 1], len(H))
    assert first_erasure(twice, equal, "++")[0].shape[1] == 1  # equal covariances: nothing more to remove


# The map


def test_the_correction_pickles_and_has_no_file(fitted, X, tmp_path):
    again = pickle.loads(pickle.dumps(fitted.to_map()))
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    with pytest.raises(MapError, match="The correction of MANCE exists only in memory"):
        again.save(tmp_path / "m.safetensors")
    assert "manifold" not in mgpa.maps.info.KINDS  # no file is promised, so none is read


def test_an_audit_with_a_folder_goes_on_without_storing_it(tmp_path):
    table = mgpa.tables.simulate_table(n_people=16, events=6, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = mgpa.audit.run(
            table,
            {"MANCE": MANCE(**QUICK)},
            readers={"restarts": 0},
            seeds=[17],
            cache=tmp_path,
            verbose=False,
        )
    assert result["MANCE"].estimate("M").value > 0
    stored = [path.suffix for path in tmp_path.rglob("*") if path.is_file()]
    assert stored.count(".safetensors") == 1  # of the identity


def test_replaying_the_fitting_rows_ends_where_the_fit_ended(monkeypatch):
    (X, source), (held, held_source) = data(120), data(60, seed=1)
    ends = []

    class Spy(mance.LogisticRegression):
        def fit(self, H, codes):
            ends.append(H.copy())
            return super().fit(H, codes)

    monkeypatch.setattr(mance, "LogisticRegression", Spy)
    model = MANCE(**QUICK | {"n_rounds": 6}).fit(X, source=source, X_val=held, source_val=held_source)
    m = model.map_
    np.testing.assert_allclose((m.transform(X) - m.center) / m.scale, ends[-1], atol=1e-8)


def test_prefixes_fractions_strengths_and_budgets(fitted, X):
    m = fitted.map_
    assert len(m) == 1 + fitted.n_rounds_ == 4
    ends = [m[:k].transform(X) for k in range(5)]
    assert (ends[0] == X).all()
    assert (m.with_strength(0.0).transform(X) == X).all()
    np.testing.assert_allclose(m.prefix(3, 0.5).transform(X), (ends[2] + ends[3]) / 2, atol=1e-10)
    np.testing.assert_allclose(m.transform(X, strength=0.3), X + 0.3 * (ends[4] - X), atol=1e-10)
    expected = [np.linalg.norm((end - X) / m.scale) for end in ends[1:]]
    np.testing.assert_allclose(m.stage_movement(X), expected, rtol=1e-10)
    points = list(operating_points(fitted))
    erasure, whole = relative_movement(points[1], X), relative_movement(points[-1], X)
    for budget in (0.5 * erasure, (erasure + whole) / 2):
        assert relative_movement(movement_budget(fitted, X, budget), X) == pytest.approx(budget, rel=1e-6)


def test_single_rows_other_precisions_and_tensors_agree(fitted, X, tmp_path):
    whole = fitted.transform(X)
    alone = np.vstack([fitted.transform(row[None]) for row in X[:60]])
    np.testing.assert_allclose(alone, whole[:60], atol=1e-9)
    for rows in (X, data()[0]):  # the second are fitting rows, which find themselves in the reference
        out = fitted.transform(rows.astype(np.float32))
        assert out.dtype == np.float32
        # A near tie between neighbours may fall the other way, but rarely.
        assert np.quantile(np.abs(out - fitted.transform(rows)).max(axis=1), 0.97) < 1e-4
    out = fitted.transform(torch.from_numpy(X).requires_grad_(), strength=0.5)
    np.testing.assert_array_equal(out.numpy(), fitted.transform(X, strength=0.5))
    for export in (fitted.map_.to_torch, lambda: fitted.map_.to_onnx(tmp_path / "m.onnx")):
        with pytest.raises(MapError, match="exists only in memory"):
            export()
    assert f"{len(fitted.map_.reference)} fitting rows" in fitted.map_.summary()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_rows_that_are_not_numbers_are_named(fitted, X, value):
    bad = X.copy()
    bad[7, 2] = value
    with pytest.raises(ValueError, match="overflows" if value == 1e300 else "first: row 7"):
        fitted.map_.transform(bad)
    assert fitted.map_.transform(X[:0]).shape == (0, 6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stage": np.array([0.0, -1.0])}, "stage must name"),
        ({"stage": np.array([0.0, 2.0])}, "stage must name"),
        ({"n_neighbors": 60.0}, "integer from 2 to 59"),
        ({"n_neighbors": 4.5}, "integer"),
        ({"reference": np.ones((60, 5))}, "reference has shape"),
        ({"second_weight": np.ones((2, 12, 11))}, "second_weight has shape"),
        ({"step": 0.0}, "step must be positive"),
    ],
)
def test_inconsistent_maps_are_refused(changes, message):
    with pytest.raises(MapError, match=message):
        replace(random_manifold_map(), **changes)


# The estimator


@pytest.mark.parametrize("settings", [{"reference_size": 100}, {"random_state": np.random.RandomState(0)}])
def test_the_same_seed_gives_the_same_map(settings):
    X, source = data(150)
    before = torch.get_rng_state()
    one = MANCE(**QUICK | settings).fit(X, source=source).map_
    assert torch.equal(torch.get_rng_state(), before), "the process-wide generator is not ours"
    other = MANCE(**QUICK | settings | {"random_state": one.info.random_state}).fit(X, source=source).map_
    assert all(
        a.tobytes() == b.tobytes() for a, b in zip(*(m.tensors.values() for m in (one, other)), strict=True)
    )
    assert len(one.reference) == settings.get("reference_size", 120)


def test_swapping_the_labels_changes_nothing():
    (X, source), (new, _) = data(), data(seed=1)
    one, other = (MANCE(**QUICK).fit(X, source=labels) for labels in (source, 1 - source))
    a, b = one.transform(new), other.transform(new)
    assert np.quantile(np.abs(a - b), 0.99) < 1e-3 * np.abs(a - new).mean()


def simulated(n, seed, d=20, latent=8):
    """Two sources that differ in mean, variance and curvature of a curved 8-dimensional manifold."""
    mixing = np.random.default_rng(99).normal(size=(latent, d)) / np.sqrt(latent)
    rng = np.random.default_rng(seed)
    z, source = rng.normal(size=(n, latent)), rng.integers(0, 2, n)
    z[:, 0] += source
    z[:, 1] *= 0.6 + 1.4 * source
    z[:, 2] += 0.8 * source * z[:, 3] ** 2
    return np.tanh(z @ mixing) + 0.1 * rng.normal(size=(n, d)), source


def test_a_fresh_network_reads_far_less_of_the_source():
    (X, source), (new, new_source) = simulated(800, 0), simulated(600, 1)

    def readable(correct):
        rows, new_rows = ((correct(A) - X.mean(0)) / X.std(0) for A in (X, new))
        return fit_scorer((rows, source), (new_rows, new_source), None, "cpu", 5, 64, 200)[1]

    assert readable(lambda A: A) > 0.77
    model = MANCE(n_rounds=20, random_state=0, n_steps=200, hidden=64)
    assert readable(model.fit(X, source=source).transform) < 0.62


def test_rounds_stop_once_held_out_rows_tell_nothing():
    rng = np.random.default_rng(0)
    X, source = rng.normal(size=(400, 4)), np.tile([0, 1], 200)
    held, held_source = rng.normal(size=(4000, 4)), np.tile([0, 1], 2000)
    model = MANCE(**QUICK | {"n_rounds": 30}).fit(X, source=source, X_val=held, source_val=held_source)
    assert 5 <= model.n_rounds_ < 30
    assert max(model.history_[-1]["logistic"], model.history_[-1]["scorer"]) <= 0.51
    assert "logistic" not in model.history_[3]


def test_held_out_rows_of_x_fit_nothing_and_participants_stay_together():
    X, source = data(200)
    model = MANCE(**QUICK | {"n_rounds": 0}).fit(X, source=source, groups=np.arange(200) // 2)
    stored = model.map_.reference * model.map_.scale + model.map_.center
    inside = (np.abs(model.transform(X)[:, None] - stored[None]).max(axis=2) < 1e-4).any(axis=1)
    assert inside.sum() == len(stored) == 160
    assert (inside[::2] == inside[1::2]).all()


@pytest.mark.parametrize(
    ("changes", "parameters", "message"),
    [
        ({"source": np.arange(90) % 3}, {}, r"source has 3 distinct values \[0, 1, 2\]; MANCE erases a bin"),
        ({"source": np.zeros(90)}, {}, "source has 1 distinct value"),
        ({"source": None}, {}, "source is missing"),
        ({"source": np.arange(90) == 3}, {}, "single row"),
        ({"sample_weight": np.ones(90)}, {}, "omit sample_weight"),
        ({"X_val": data(90)[0]}, {}, "X_val is given without source_val.*they decide when to stop"),
        ({"groups": np.zeros(90)}, {}, "at least two groups"),
        ({}, {"reference_size": 8}, "8 reference rows are too few for 8 neighbours; use at least 9"),
    ],
)
def test_what_it_cannot_fit_is_said(changes, parameters, message):
    X, source = data(90)
    with pytest.raises(ValueError, match=message):
        MANCE(**QUICK, **parameters).fit(X, **{"source": source} | changes)


@pytest.mark.parametrize("case", ["duplicates", "constant feature", "all constant", "one feature", "wide"])
def test_degenerate_rows_give_finite_corrections(case):
    X, source = data(100, d=40 if case == "wide" else 6)
    if case == "duplicates":
        X = np.repeat(X[:20], 5, axis=0)
    elif case == "constant feature":
        X[:, 1] = 3.0
    elif case == "all constant":
        X[:] = 3.0
    elif case == "one feature":
        X = X[:, :1]
    model = MANCE(**QUICK).fit(X, source=source)
    out = model.transform(X)
    assert np.isfinite(out).all()
    if case == "constant feature":
        # It did not vary in the fit: when it does later, it stays and steers nothing.
        later = model.transform(X + np.eye(6)[1] * 100)
        assert (later[:, 1] == 103.0).all()
        np.testing.assert_allclose(np.delete(later, 1, 1), np.delete(out, 1, 1), atol=1e-9)
    if case == "all constant":
        assert (out == X).all()
