"""MANCE: every step is short and tangent to the data, and the stored map replays the fit."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import mgpa
from mgpa.baselines import mance
from mgpa.baselines.mance import MANCE, first_erasure, fit_scorer, intrinsic_dimension, unequal_directions
from mgpa.endpoint import movement_budget, operating_points, relative_movement
from mgpa.maps import ManifoldMap, MapError
from mgpa.maps.manifold import LONGEST, Cloud, advance, score_gradient, tangent_step

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("one_torch_thread")
QUICK = {"n_rounds": 3, "n_steps": 40, "batch_size": 64, "hidden": 16, "refit_every": 2, "random_state": 3}


def data(n=300, d=6, seed=0):
    """Two sources that differ in mean, variance and curvature of a 4-dimensional manifold."""
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(99).normal(size=(4, d))
    z, source = rng.normal(size=(n, 4)), rng.integers(0, 2, n)
    z[:, 0] += 1.5 * source
    z[:, 1] *= 1 + 2 * source
    z[:, 2] += source * (z[:, 3] ** 2 - 1)
    return 5 + z @ mixing + 0.1 * rng.normal(size=(n, d)), source


def random_scorer(rng, d, hidden=12):
    shapes = ((hidden, d), (hidden,), (hidden, hidden), (hidden,), (hidden,))
    return tuple(rng.normal(size=shape) for shape in shapes)


def random_map(seed=0, d=6, m=60, rank=2, k=5, dtype=np.float32, **changes) -> ManifoldMap:
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.normal(size=shape).astype(dtype)

    arguments = dict(
        zip(ManifoldMap.scorer_names, (np.stack([w, w + 1]) for w in random_scorer(rng, d)), strict=True)
    )
    arguments |= {
        "center": normal(d),
        "scale": np.exp(normal(d)),
        "stage": np.array([-1.0, 0, 0, 1], dtype=dtype),
        "readout": normal(d, rank),
        "direction": normal(d, rank),
        "offset": normal(rank),
        "reference": normal(m, d),
        "n_neighbors": float(k),
        "step": 0.1,
        "power": 1.0,
    }
    return ManifoldMap(**(arguments | changes))


@pytest.fixture(scope="module")
def fitted():
    X, source = data()
    return MANCE(**QUICK).fit(X, source=source)


@pytest.fixture(scope="module")
def X():
    return data(seed=1)[0]


# The step


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
@pytest.mark.parametrize(("d", "k"), [(12, 6), (5, 9)])
def test_a_step_is_short_and_in_the_span_of_the_neighbours(d, k, power):
    rng = np.random.default_rng(k)
    cloud, H = Cloud(rng.normal(size=(80, d)), k), 3 * rng.normal(size=(50, d))
    offsets = cloud.offsets(H)
    move = tangent_step(H, offsets, rng.normal(size=(50, d)), 0.1, power)
    distance = np.linalg.norm(offsets, axis=2).mean(axis=1)
    length = np.linalg.norm(move, axis=1)
    assert (length <= 0.1 * distance * (1 + 1e-12)).all()
    assert (length > 0.099 * distance).mean() > 0.5
    for row, step in zip(offsets, move, strict=True):
        basis = np.linalg.svd(row - row.mean(axis=0), full_matrices=False)[2][: min(k - 1, d)]
        assert np.linalg.norm(step - basis.T @ (basis @ step)) < 1e-10


def test_a_step_is_the_formula_of_the_paper():
    rng = np.random.default_rng(0)
    reference, H, gradient = rng.normal(size=(40, 8)), rng.normal(size=(30, 8)), rng.normal(size=(30, 8))
    H[:10] = reference[:10]  # these must not be their own neighbours
    move = tangent_step(H, Cloud(reference, 5).offsets(H), gradient, 0.1, 1.0)
    for i, (h, g) in enumerate(zip(H, gradient, strict=True)):
        distance = np.linalg.norm(reference - h, axis=1)
        order = np.argsort(distance)[int(i < 10) :][:5]
        near, r = reference[order], distance[order].mean()
        _, sigma, Bt = np.linalg.svd(near - near.mean(axis=0), full_matrices=False)
        B, sigma = Bt[:4].T, sigma[:4]
        t = B @ B.T @ (g / np.linalg.norm(g))
        v = (h @ t) * t
        D = B @ np.diag(sigma + max(1e-4 * sigma[0], 1e-12)) @ B.T @ v
        np.testing.assert_allclose(move[i], -min(LONGEST, 0.1 * r / np.linalg.norm(D)) * D, atol=1e-12)


def test_rows_without_gradient_tangent_or_spread_stay():
    rng = np.random.default_rng(0)
    H, offsets = rng.normal(size=(4, 6)), rng.normal(size=(4, 5, 6))
    offsets[:, :, 5] = 0.0
    assert not tangent_step(H, offsets, np.zeros((4, 6)), 0.1, 1.0).any()
    assert np.abs(tangent_step(H, offsets, np.eye(6)[[5] * 4], 0.1, 1.0)).max() < 1e-12
    assert not tangent_step(H, np.ones((4, 5, 6)), H, 0.1, 1.0).any()
    assert not tangent_step(np.zeros((4, 6)), offsets, H, 0.1, 1.0).any()


def test_score_gradient_is_that_of_autograd():
    rng = np.random.default_rng(0)
    scorer, H = random_scorer(rng, 5), rng.normal(size=(20, 5))
    W1, b1, W2, b2, w = map(torch.from_numpy, scorer)
    h = torch.from_numpy(H).requires_grad_()
    (torch.relu(torch.relu(h @ W1.T + b1) @ W2.T + b2) @ w).sum().backward()
    np.testing.assert_allclose(score_gradient(H, scorer), h.grad.numpy(), atol=1e-12)


def test_every_round_of_a_fitted_map_keeps_the_bound(fitted, X):
    m = fitted.to_map()
    for k in range(2, len(m) + 1):
        before, after = m[: k - 1].transform(X), m[:k].transform(X)
        H = (before - m.center) / m.scale
        r = np.linalg.norm(Cloud(m.reference, int(m.n_neighbors)).offsets(H), axis=2).mean(axis=1)
        length = np.linalg.norm((after - before) / m.scale, axis=1)
        assert (length <= 0.1 * r * (1 + 1e-9)).all()
        assert length.max() > 0


def test_neighbours_are_found_in_blocks_as_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    cloud, H, scorer = Cloud(rng.normal(size=(50, 4)), 6), rng.normal(size=(90, 4)), random_scorer(rng, 4)
    whole, parts = H.copy(), H.copy()
    advance(whole, cloud, scorer, 0.1, 1.0)
    monkeypatch.setattr("mgpa.maps.manifold.BLOCK_SIZE", 1)
    assert len(list(cloud.blocks(90))) == 6
    advance(parts, cloud, scorer, 0.1, 1.0)
    np.testing.assert_allclose(parts, whole, atol=1e-12)


# Before the rounds


@pytest.mark.parametrize("dimension", [1, 3, 6])
def test_twonn_finds_the_dimension_of_a_linear_manifold(dimension):
    rng = np.random.default_rng(dimension)
    rows = rng.normal(size=(2000, dimension)) @ rng.normal(size=(dimension, 20))
    assert abs(intrinsic_dimension(rows) - dimension) < 0.12 * dimension
    assert intrinsic_dimension(np.repeat(rows, 1 + np.arange(2000) % 3, axis=0)) == intrinsic_dimension(rows)


def test_twonn_of_copies_and_of_equidistant_rows_is_a_number():
    assert intrinsic_dimension(np.ones((30, 4))) == 0.0
    assert intrinsic_dimension(np.eye(12)) == 12.0


@pytest.mark.parametrize("variant", ["+", "++"])
def test_the_erasure_equalises_means_and_the_most_unequal_variances(variant):
    X, source = data(2000, d=8)
    H = X - 3
    readout, direction, offset = first_erasure(H, source, variant)
    erased = H - (H @ readout + offset) @ direction.T
    np.testing.assert_allclose(erased[source == 1].mean(0), erased[source == 0].mean(0), atol=1e-9)
    np.testing.assert_allclose(erased.mean(0), H.mean(0), atol=1e-9)
    rank = {"+": 1, "++": 3}[variant]
    assert readout.shape == direction.shape == (8, rank)
    assert np.linalg.matrix_rank(np.cov(erased.T), tol=1e-9) == 8 - rank
    if variant == "++":
        leace = first_erasure(H, source, "+")
        E = unequal_directions(H - (H @ leace[0] + leace[2]) @ leace[1].T, source)
        assert np.abs((erased - erased.mean(0)) @ E).max() < 1e-9


def test_equal_covariances_leave_nothing_unequal_to_remove():
    H = np.random.default_rng(0).normal(size=(50, 4))
    assert unequal_directions(np.vstack([H, H]), np.repeat([0, 1], 50)).shape == (4, 0)


# The map


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_stored_map_replays_to_the_bit(tmp_path, fitted, X, dtype):
    for m in (fitted.map_, random_map(), random_map().prefix(3, 0.4).with_strength(0.7), random_map()[:0]):
        loaded = mgpa.load_map(m.save(tmp_path / "m.safetensors"))
        assert isinstance(loaded, ManifoldMap)
        assert loaded.transform(X.astype(dtype)).tobytes() == m.transform(X.astype(dtype)).tobytes()
        assert loaded.summary() == m.summary()


def test_replaying_the_fitting_rows_ends_where_the_fit_ended():
    (X, source), (held, held_source) = data(120), data(60, seed=1)
    ends = []
    real = mance.LogisticRegression

    class Spy(real):
        def fit(self, H, codes):
            ends.append(H.copy())
            return super().fit(H, codes)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mance, "LogisticRegression", Spy)
        model = MANCE(**QUICK | {"n_rounds": 6}).fit(X, source=source, X_val=held, source_val=held_source)
    m = model.map_
    np.testing.assert_allclose((m.transform(X) - m.center) / m.scale, ends[-1], atol=1e-8)


def test_prefixes_fractions_and_strengths(fitted, X):
    m = fitted.map_
    assert len(m) == 1 + fitted.n_rounds_ == 4
    assert (m[:0].transform(X) == X).all()
    assert (m.with_strength(0.0).transform(X) == X).all()
    ends = [m[:k].transform(X) for k in range(5)]
    half = m.prefix(3, 0.5).transform(X)
    np.testing.assert_allclose(half, (ends[2] + ends[3]) / 2, atol=1e-10)
    np.testing.assert_allclose(m.prefix(1, 0.5).transform(X), (X + ends[1]) / 2, atol=1e-10)
    np.testing.assert_allclose(m.transform(X, strength=0.3), X + 0.3 * (ends[4] - X), atol=1e-10)
    np.testing.assert_array_equal(fitted.transform(X, n_stages=3, fraction=0.5), half)
    expected = [np.linalg.norm((end - X) / m.scale) for end in ends[1:]]
    np.testing.assert_allclose(m.stage_movement(X), expected, rtol=1e-10)


def test_movement_budgets_below_and_above_the_erasure_are_met(fitted, X):
    points = list(operating_points(fitted))
    erasure, whole = relative_movement(points[1], X), relative_movement(points[-1], X)
    assert 0 < erasure < whole
    for budget in (0.5 * erasure, (erasure + whole) / 2):
        assert relative_movement(movement_budget(fitted, X, budget).map, X) == pytest.approx(budget, rel=1e-6)


def test_a_row_alone_is_corrected_as_in_a_batch(fitted, X):
    alone = np.vstack([fitted.transform(row[None]) for row in X[:60]])
    np.testing.assert_allclose(alone, fitted.transform(X)[:60], atol=1e-9)


def test_float32_rows_are_corrected_as_float64_ones(fitted, X):
    for rows in (X, data()[0]):  # the second are fitting rows, which find themselves in the reference
        out = fitted.transform(rows.astype(np.float32))
        assert out.dtype == np.float32
        # A near tie between neighbours may fall the other way, but rarely.
        assert np.quantile(np.abs(out - fitted.transform(rows)).max(axis=1), 0.97) < 1e-4


def test_torch_tensors_come_back_as_torch_tensors(fitted, X):
    out = fitted.transform(torch.from_numpy(X).requires_grad_(), strength=0.5)
    np.testing.assert_array_equal(out.numpy(), fitted.transform(X, strength=0.5))
    assert fitted.map_.transform(torch.from_numpy(X).float()).dtype == torch.float32
    with pytest.raises(ValueError, match="bfloat16"):
        fitted.map_.transform(torch.from_numpy(X).bfloat16())


def test_exports_are_refused(tmp_path, fitted):
    with pytest.raises(TypeError, match="no torch module"):
        fitted.map_.to_torch()
    with pytest.raises(TypeError, match="no ONNX form"):
        fitted.map_.to_onnx(tmp_path / "m.onnx")


def test_the_summary_says_that_fitting_rows_are_inside(fitted):
    assert f"{len(fitted.map_.reference)} STORED FITTING ROWS" in fitted.map_.summary()
    assert "share" in ManifoldMap.__doc__


def test_applying_a_map_needs_numpy_only(tmp_path):
    import subprocess

    path = random_map().save(tmp_path / "m")
    code = (
        f"import sys, numpy, mgpa; mgpa.load_map({str(path)!r}).transform(numpy.ones((40, 6)))\n"
        "assert not {'sklearn', 'scipy', 'torch'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_rows_that_are_not_numbers_are_named(fitted, X, value):
    bad = X.copy()
    bad[7, 2] = value
    match = "overflows" if value == 1e300 else "first: row 7"
    with pytest.raises(ValueError, match=match):
        fitted.map_.transform(bad)
    assert fitted.map_.transform(X[:0]).shape == (0, 6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stage": np.array([0.0, -1.0])}, "stage must name"),
        ({"stage": np.array([0.0, 2.0])}, "stage must name"),
        ({"stage": np.array([0.5])}, "stage must name"),
        ({"n_neighbors": 60.0}, "whole number from 2 to 59"),
        ({"n_neighbors": 4.5}, "whole number"),
        ({"reference": np.ones(6)}, r"reference has shape \(6,\); expected \(m, 6\)"),
        ({"reference": np.ones((60, 5))}, "reference has shape"),
        ({"second_weight": np.ones((2, 12, 11))}, "second_weight has shape"),
        ({"direction": np.ones((6, 1))}, "direction has shape"),
        ({"step": 0.0}, "step must be positive"),
    ],
)
def test_inconsistent_maps_are_refused(changes, message):
    with pytest.raises(MapError, match=message):
        replace(random_map(), **changes)


# The estimator


@pytest.mark.parametrize(
    "settings", [{}, {"reference_size": 100}, {"random_state": np.random.RandomState(0)}]
)
def test_the_same_seed_gives_the_same_map(settings):
    X, source = data(150)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    models = [MANCE(**QUICK | settings).fit(X, source=source) for _ in range(1)]
    assert torch.equal(torch.get_rng_state(), before), "the process-wide generator is not ours"
    seed = models[0].map_.info.random_state
    models.append(MANCE(**QUICK | settings | {"random_state": seed}).fit(X, source=source))
    for name in ManifoldMap.tensor_names:
        a, b = (getattr(model.map_, name) for model in models)
        assert a.tobytes() == b.tobytes(), name
    assert len(models[0].map_.reference) == settings.get("reference_size", 120)


@pytest.mark.parametrize("variant", ["", "++"])
def test_swapping_the_labels_changes_nothing(variant):
    (X, source), (new, _) = data(), data(seed=1)
    one, other = (MANCE(variant=variant, **QUICK).fit(X, source=labels) for labels in (source, 1 - source))
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
    training = {"n_steps": 200, "batch_size": 128, "hidden": 64}

    def readable(correct):
        rows, new_rows = ((correct(A) - X.mean(0)) / X.std(0) for A in (X, new))
        more = {"learning_rate": 1e-3, "weight_decay": 1e-3, "patience": 9}
        return fit_scorer((rows, source), (new_rows, new_source), None, "cpu", 5, **training, **more)[1]

    # .80 before; .52, .51 and .52 after.
    assert readable(lambda A: A) > 0.77
    for variant in ("", "+", "++"):
        model = MANCE(variant=variant, probe="scorer", n_rounds=20, random_state=0, **training)
        assert readable(model.fit(X, source=source).transform) < 0.62, variant


def test_rounds_stop_once_held_out_rows_tell_nothing():
    rng = np.random.default_rng(0)
    X, source = rng.normal(size=(400, 4)), np.tile([0, 1], 200)
    held, held_source = rng.normal(size=(4000, 4)), np.tile([0, 1], 2000)
    model = MANCE(**QUICK | {"n_rounds": 30}).fit(X, source=source, X_val=held, source_val=held_source)
    assert 5 <= model.n_rounds_ < 30
    assert model.history_[-1]["logistic"] <= 0.51
    assert "logistic" not in model.history_[3]
    both = MANCE(**QUICK | {"n_rounds": 30, "probe": "scorer"})
    both.fit(X, source=source, X_val=held, source_val=held_source)
    assert both.n_rounds_ >= model.n_rounds_


def test_held_out_rows_of_x_fit_nothing_and_pairs_stay_together():
    X, source = data(200)
    pair_id = np.arange(200) // 2
    model = MANCE(**QUICK | {"n_rounds": 0, "variant": ""}).fit(X, source=source, pair_id=pair_id)
    m = model.map_
    assert len(m) == 0
    stored = m.reference * m.scale + m.center
    inside = (np.abs(X[:, None] - stored[None]).max(axis=2) < 1e-4).any(axis=1)
    assert inside.sum() == len(stored) == 160
    assert (inside[::2] == inside[1::2]).all()


def test_pairs_are_not_looked_at_but_events_are():
    X, source = data(60)
    expected = MANCE(**QUICK).fit(X, source=source).transform(X)
    np.testing.assert_array_equal(MANCE(**QUICK).fit(X, source=source, pairs="none").transform(X), expected)
    with pytest.raises(ValueError, match="pair_id has shape"):
        MANCE(**QUICK).fit(X, source=source, pair_id=np.arange(59))


def test_an_interrupt_keeps_the_rounds_so_far(monkeypatch):
    X, source = data(100)
    real, calls = mance.advance, []

    def interrupted(*args):
        calls.append(0)
        if len(calls) > 4:
            raise KeyboardInterrupt
        real(*args)

    monkeypatch.setattr(mance, "advance", interrupted)
    model = MANCE(**QUICK)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, source=source)
    assert model.n_rounds_ == 2
    assert len(model.map_) == 3
    assert np.isfinite(model.transform(X)).all()


def test_a_failed_refit_leaves_an_unfitted_estimator():
    X, source = data(100)
    model = MANCE(**QUICK).fit(X, source=source)
    with pytest.raises(ValueError, match="source has 1 distinct value"):
        model.fit(X, source=0 * source)
    with pytest.raises(NotFittedError):
        model.transform(X)
    clone(model)


def test_what_it_cannot_fit_is_said():
    X, source = data(90)
    with pytest.raises(ValueError, match=r"source has 3 distinct values \[0, 1, 2\]; MANCE erases a binary"):
        MANCE(**QUICK).fit(X, source=np.arange(90) % 3)
    with pytest.raises(ValueError, match="source has 1 distinct value"):
        MANCE(**QUICK).fit(X, source=np.zeros(90))
    with pytest.raises(ValueError, match="sample_weight is not supported"):
        MANCE(**QUICK).fit(X, source=source, sample_weight=np.ones(90))
    with pytest.raises(ValueError, match="source is missing"):
        MANCE(**QUICK).fit(X)
    with pytest.raises(ValueError, match=r"X_val without source_val.*they decide when to stop"):
        MANCE(**QUICK).fit(X, source=source, X_val=X)
    with pytest.raises(ValueError, match="single row"):
        MANCE(**QUICK).fit(X, source=np.arange(90) == 3)
    with pytest.raises(ValueError, match="8 reference rows are too few for 8 neighbours; at least 9"):
        MANCE(**QUICK, reference_size=8).fit(X, source=source)
    with pytest.raises(ValueError, match="72 reference rows are too few for 72 neighbours"):
        MANCE(**QUICK, n_neighbors=72).fit(X, source=source)
    with pytest.raises(ValueError, match="NaN or infinite"):
        MANCE(**QUICK).fit(np.where(np.arange(6) == 2, np.nan, X), source=source)


def test_without_torch_the_error_says_what_to_install(monkeypatch):
    X, source = data(60)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install 'torch"):
        MANCE(**QUICK).fit(X, source=source)


@pytest.mark.parametrize("variant", ["", "++"])
@pytest.mark.parametrize(
    "case", ["duplicates", "constant feature", "all constant", "one feature", "more features"]
)
def test_degenerate_rows_give_finite_corrections(case, variant):
    X, source = data(100, d=40 if case == "more features" else 6)
    if case == "duplicates":
        X = np.repeat(X[:20], 5, axis=0)
    elif case == "constant feature":
        X[:, 1] = 3.0
    elif case == "all constant":
        X[:] = 3.0
    elif case == "one feature":
        X = X[:, :1]
    model = MANCE(**QUICK | {"variant": variant}).fit(X, source=source)
    out = model.transform(X)
    assert np.isfinite(out).all()
    if case == "constant feature":
        # It did not vary in the fit: when it does later, it stays and steers nothing.
        moved = X + np.eye(6)[1] * 100
        later = model.transform(moved)
        assert (later[:, 1] == 103.0).all()
        np.testing.assert_allclose(np.delete(later, 1, 1), np.delete(out, 1, 1), atol=1e-9)
    if case == "all constant":
        assert (out == X).all()


def test_centring_makes_a_common_shift_of_the_data_irrelevant():
    X, source = data()
    for standardize in (True, False):
        one, other = (MANCE(**QUICK, standardize=standardize).fit(A, source=source) for A in (X, X + 50))
        np.testing.assert_allclose(other.transform(X + 50) - 50, one.transform(X), atol=1e-4)


def test_too_few_people_to_hold_some_out_are_told_without_another_methods_parameter():
    rng = np.random.default_rng(0)
    X, source = rng.normal(size=(20, 3)), np.tile(["a", "b"], 10)
    with pytest.raises(ValueError, match="at least two groups") as error:
        MANCE().fit(X, source=source, groups=np.zeros(20))
    assert "do_no_harm" not in str(error.value)
