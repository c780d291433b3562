"""Corrections of spread: what pairs must show, what is moved then, and what stays as it is."""

import tracemalloc

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import mgpa
from mgpa.linalg import cross_validated_ridge
from mgpa.moments import Moments
from mgpa.reading.posterior import joint_axes, log_density
from mgpa.reading.regressions import FEW, _decompose, _solve, shared_directions
from mgpa.reading.spread import shared_slope
from mgpa.reading.views import MOST_PARTICIPANTS, grouped, unpaired_scatters

D = 12


def rotation(d, angle, seed=0):
    A = np.random.default_rng(seed).normal(size=(d, d))
    values, vectors = np.linalg.eigh(1j * (A - A.T) / np.linalg.norm(A - A.T, 2))
    return np.real((vectors * np.exp(-1j * angle * values)) @ vectors.conj().T)


GAIN = np.r_[2.5, 2.0, np.ones(D - 2)]
SHIFT = np.r_[np.zeros(D - 2), 2.0, -1.0]
DEVICES = {
    "gain": lambda c, k: c * GAIN if k else c,
    "gain and shift": lambda c, k: c * GAIN + SHIFT if k else c,
    "rotation and shift": lambda c, k: c @ rotation(D, 0.8) + SHIFT if k else c,
    "shift": lambda c, k: c + k * SHIFT,
    "nothing": lambda c, k: c,
}


class World:
    """Content of which class 1 comes mostly from device 1, and pairs of new content."""

    def __init__(self, device, n=300, n_pairs=60, seed=0, n_sources=2, association=0.9):
        self.rng, self.device = np.random.default_rng(seed), DEVICES.get(device, device)
        self.mixing = np.diag(np.linspace(1.5, 0.5, D)) @ rotation(D, 1.0, 5)
        content, y = self.content(n)
        mostly = self.rng.random(n) < np.where(y == 1, association, 1.0 - association)
        self.source = np.where(mostly, n_sources - 1, self.rng.integers(0, n_sources - 1, n))
        self.X = np.stack([self.see(c[None], k)[0] for c, k in zip(content, self.source, strict=True)])
        self.pairs = self.views(n_pairs)

    def content(self, n):
        y = self.rng.integers(0, 2, n)
        task = np.outer(y - 0.5, np.eye(D)[3]) * 2
        return self.rng.normal(size=(n, D)) @ self.mixing + task, y

    def see(self, content, k):
        return self.device(content, k) + 0.1 * self.rng.normal(size=content.shape)

    def views(self, n, sources=(0, 1)):
        content, _ = self.content(n)
        return tuple(self.see(content, k) for k in sources)

    def fit(self, **parameters):
        return mgpa.MGPA(**parameters).fit(self.X, source=self.source, pairs=self.pairs)


def apart(views):
    return float(np.sum((views[0] - views[1]) ** 2))


@pytest.mark.parametrize("device", ["gain", "gain and shift", "rotation and shift"])
def test_views_of_new_events_come_together_though_the_source_is_not_told(device):
    world = World(device)
    model, new = world.fit(), world.views(200)
    corrected = [model.transform(v) for v in new]
    assert isinstance(model.to_map(), mgpa.maps.PosteriorMap)
    assert apart(corrected) < 0.4 * apart(new)
    assert apart(corrected) < 0.5 * apart([world.fit(spread="never").transform(v) for v in new])


def test_a_pure_shift_is_the_closed_form_and_no_difference_is_the_identity():
    world = World("shift")
    closed = mgpa.ClosedFormMGPA().fit(world.X, source=world.source, pairs=world.pairs)
    np.testing.assert_array_equal(world.fit().transform(world.X), closed.transform(world.X))
    world.pairs = world.pairs[0], world.pairs[0] + SHIFT  # nothing but a shift, without noise
    assert "no difference in spread (p = 1," in world.fit().to_map().summary()
    same = World("nothing")
    np.testing.assert_array_equal(same.fit().transform(same.X), same.X)


def test_rows_that_do_not_show_the_pairs_spread_are_left_alone():
    pairs, rows = World("gain"), World("nothing", seed=1)
    model = mgpa.MGPA().fit(rows.X, source=rows.source, pairs=pairs.pairs)
    assert not isinstance(model.to_map(), mgpa.maps.PosteriorMap)
    assert "rows do not show it" in model.to_map().summary()


def test_the_summary_says_what_devices_do_and_what_stays_readable():
    words = World("gain and shift").fit().to_map().summary()
    assert all(word in words for word in ("sources differ in spread", "gain", "removes"))
    rng = np.random.default_rng(7)
    noisy = World(lambda c, k: c + 2 * k * rng.normal(size=c.shape))
    assert "may still reveal the source" in " ".join(noisy.fit(spread="always").to_map().summary().split())


def test_neither_names_nor_order_of_sources_matter():
    world = World("gain and shift")
    one = world.fit().transform(world.X)
    names = np.array(["z", "a"])[world.source]
    other = mgpa.MGPA().fit(world.X, source=names, pairs=world.pairs[::-1]).transform(world.X)
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_batches_and_merged_parts_give_the_map_of_one_fit():
    world = World("gain and shift")
    whole = world.fit()
    parts = [mgpa.MGPA(), mgpa.MGPA()]
    for part, rows in zip(parts, (slice(0, 120), slice(120, None)), strict=True):
        pairs = world.pairs if rows.start == 0 else None
        part.partial_fit(world.X[rows], source=world.source[rows], pairs=pairs)
    merged = parts[1].merge(parts[0])
    np.testing.assert_allclose(merged.transform(world.X), whole.transform(world.X), rtol=1e-8, atol=1e-8)


def test_paired_rows_with_ids_are_held_out_with_their_pairs():
    world = World("gain and shift")
    X = np.concatenate([world.X, *world.pairs])
    source = np.r_[world.source, np.repeat([0, 1], 60)]
    pair_id = np.r_[np.full(len(world.X), -1), np.tile(np.arange(60), 2)]
    people = np.r_[np.arange(len(world.X)) % 12, np.tile(np.arange(60) % 12, 2)]
    model = mgpa.MGPA().fit(X, source=source, pair_id=pair_id, groups=people)
    new = world.views(200)
    assert apart([model.transform(v) for v in new]) < 0.35 * apart(new)
    assert "12 participants" in model.to_map().summary()
    streamed = mgpa.MGPA()
    for batch in (slice(0, -60), slice(-60, None)):  # between a pair's two views
        streamed.partial_fit(X[batch], source=source[batch], pair_id=pair_id[batch], groups=people[batch])
    np.testing.assert_allclose(streamed.transform(X), model.transform(X), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("star", [False, True])
def test_three_sources_come_together_also_where_two_share_no_pairs(star):
    gains = (np.ones(D), GAIN, np.r_[1, 1, 2.5, np.ones(D - 3)])
    world = World(lambda c, k: c * gains[k] + k * SHIFT, n=600, n_sources=3)
    events = [(0, 1), (0, 2)] if star else [(0, 1, 2)]
    X, source, ids = [world.X], [world.source], [np.full(600, -1)]
    for j, sources in enumerate(events):
        for k, view in zip(sources, world.views(60, sources), strict=True):
            X.append(view)
            source.append(np.full(60, k))
            ids.append(60 * j + np.arange(60))
    model = mgpa.MGPA().fit(np.concatenate(X), source=np.concatenate(source), pair_id=np.concatenate(ids))
    new = world.views(200, (0, 1, 2))
    corrected = [model.transform(v) for v in new]
    assert isinstance(model.to_map(), mgpa.maps.PosteriorMap)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert apart((corrected[a], corrected[b])) < 0.5 * apart((new[a], new[b]))


@pytest.mark.parametrize("wrapper", [mgpa.TokenMean, mgpa.JointTokens])
def test_tokens(wrapper):
    rng = np.random.default_rng(3)

    def tokens(n, k):
        return rng.normal(size=(n, 2, 4)) * (np.r_[3.0, 1, 1, 1] if k else 1.0)

    A = tokens(80, 0)
    pairs = A, A * np.r_[3.0, 1, 1, 1]
    X, source = np.concatenate([tokens(200, 0), tokens(200, 1)]), np.repeat([0, 1], 200)
    model = wrapper(mgpa.MGPA()).fit(X, source=source, pairs=pairs)
    assert apart([model.transform(v) for v in pairs]) < apart(pairs)


def test_strength_features_that_never_varied_and_weights():
    world = World("gain and shift")
    X, pairs = (np.insert(a, 3, 7.0, axis=-1) for a in (world.X, np.stack(world.pairs)))
    model = mgpa.MGPA().fit(X, source=world.source, pairs=tuple(pairs), sample_weight=np.full(len(X), 2.0))
    Y = model.transform(X)
    np.testing.assert_array_equal(Y[:, 3], 7.0)
    np.testing.assert_allclose(model.transform(X, strength=0.5), (X + Y) / 2, atol=1e-12)
    once = mgpa.MGPA().fit(X, source=world.source, pairs=tuple(pairs)).transform(X)
    np.testing.assert_allclose(Y, once, rtol=1e-8, atol=1e-8)
    budget = mgpa.operating_point.movement_budget(model, X, 0.05)
    assert mgpa.operating_point.relative_movement(budget, X) == pytest.approx(0.05)


@pytest.mark.parametrize("n_units", [4, 12])
def test_units_without_a_common_slope_rarely_show_one(n_units):
    """Every unit has offsets and gains of its own; at a level of .05, 12 of 100 are hardly chance."""
    rng, shown = np.random.default_rng(0), 0
    units = np.repeat(np.arange(n_units), 10)
    for _ in range(100):
        own = rng.normal(size=(2, n_units, 1, 5)) * 0.5
        content = rng.normal(size=(n_units, 10, 5))
        A, B = (
            (content * (1 + own[k]) + rng.normal(size=(n_units, 1, 5))).reshape(-1, 5)
            + 0.3 * rng.standard_t(4, size=(10 * n_units, 5))
            for k in (0, 1)
        )
        shown += shared_slope(B - A, (A + B) / 2, np.zeros(len(A), int), units) <= 0.05
    assert shown < 12


def test_one_participant_cannot_tell_devices_from_themselves():
    world, people = World("gain and shift"), np.zeros(60)
    arguments = {"source": world.source, "pairs": world.pairs, "pair_groups": people}
    assert (
        "a difference in spread cannot be tested with 1 participant"
        in mgpa.MGPA(on_missing="warn").fit(world.X, **arguments).to_map().summary()
    )
    assert isinstance(mgpa.MGPA(spread="always").fit(world.X, **arguments).to_map(), mgpa.maps.PosteriorMap)


def one_pair_each(people, device="gain and shift"):
    world = World(device, n_pairs=len(people))
    return mgpa.MGPA().fit(world.X, source=world.source, pairs=world.pairs, pair_groups=people).spread_


def test_participants_with_few_pairs_are_compared_in_groups_whatever_their_names():
    found, renamed = one_pair_each(np.arange(80)), one_pair_each(np.arange(80)[::-1].astype(str))
    assert (found.n_units, found.unit) == (25, "groups of participants")
    assert found.is_shown
    assert (renamed.p_value, renamed.scale) == (found.p_value, found.scale)
    assert not one_pair_each(np.arange(80), "shift").is_shown
    # Those with enough pairs stay as they are: ten have four, and twenty have one or two.
    mixed = one_pair_each(np.r_[np.repeat(np.arange(10), 4), np.repeat(np.arange(10, 20), 2), 20:30])
    assert (mixed.n_units, mixed.unit) == (20, "groups of participants")
    assert one_pair_each(np.arange(80) % 20).unit == "participants"


def test_groups_of_participants_have_enough_pairs_and_whole_people():
    rng = np.random.default_rng(0)
    whose, kind, length = rng.integers(0, 60, 120), rng.integers(0, 3, 120), rng.random(120)
    units = grouped(whose, kind, length)
    assert all(len(np.unique(units[whose == person])) <= 1 for person in range(60))
    of_kind = np.stack([np.bincount(units[kind == k], minlength=units.max() + 1) for k in range(3)])
    assert of_kind.max(axis=0).min() >= 3
    other = grouped(59 - whose, 2 - kind, length)  # other names of people and sources
    np.testing.assert_array_equal(units[:, None] == units, other[:, None] == other)


def test_more_participants_than_units_share_them_by_what_they_have():
    whose, rng = np.repeat(np.arange(500), 4), np.random.default_rng(0)
    units = grouped(whose, np.zeros(2000, int), rng.random(2000))
    assert len(np.unique(units)) == MOST_PARTICIPANTS
    assert all(len(np.unique(units[whose == person])) == 1 for person in range(0, 500, 50))
    assert np.ptp(np.bincount(units)) <= 4  # of four pairs each


def test_a_common_gain_is_shown_by_few_units():
    rng = np.random.default_rng(1)
    A = rng.normal(size=(60, 5))
    B = A * 1.5 + 0.1 * rng.normal(size=A.shape)
    for units in (np.arange(60) % 3, np.arange(60) % 20):
        assert shared_slope(B - A, (A + B) / 2, np.zeros(60, int), units) < 0.05
    assert shared_slope(B - A, (A + B) / 2, np.zeros(60, int), np.arange(60) % 2) == 1.0


@pytest.mark.parametrize(
    ("n", "out"), [(6, []), (6, [1, 3]), (40, []), (40, [1, 3]), (40, list(range(5, 25)))]
)
@pytest.mark.parametrize("n_directions", [0, 3, 8])
def test_regressions_are_ridge_also_without_some_of_their_views(n, out, n_directions):
    rng = np.random.default_rng(2)
    X, Y, new = rng.normal(size=(n, 8)), rng.normal(size=(n, 8)), rng.normal(size=(5, 8))
    T = np.linalg.qr(rng.normal(size=(8, 8)))[0][:, :n_directions]
    offset = Y.mean(axis=0)
    weight = rng.uniform(0.5, 2.0, size=8)
    parts = _decompose(X.copy(), (Y - offset) * weight)
    fitted = _solve(parts, T, 1.0, weight, offset, n)
    ridge = cross_validated_ridge(parts[1], parts[3] @ T if n_directions < 8 else parts[3], 1.0, n - 1.0)
    kept = np.setdiff1d(np.arange(n), out)
    x, y = X[kept] - X[kept].mean(axis=0), Y[kept] - Y[kept].mean(axis=0)
    slope = np.linalg.solve(x.T @ x + ridge * np.eye(8), x.T @ y * weight) @ T @ T.T / weight
    expected = (new - X[kept].mean(axis=0)) @ slope + Y[kept].mean(axis=0)
    np.testing.assert_allclose(fitted.without(X[out], Y[out]).expect(new), expected, atol=1e-8)
    assert not fitted.without(X, Y).expect(new).any()  # nothing is known of it any more


@pytest.mark.parametrize(("n_gains", "n_directions"), [(2, 2), (12, 12)])
def test_slopes_act_in_few_directions_only_where_few_hold_the_differences(n_gains, n_directions):
    rng = np.random.default_rng(3)
    x, gains = rng.normal(size=(80, 12)), np.r_[np.ones(n_gains), np.zeros(12 - n_gains)]
    y = x * gains + 0.1 * rng.normal(size=x.shape)
    y -= y.mean(axis=0)
    energy, T, n_few = shared_directions([_decompose(x.copy(), y), _decompose(x + y, y)], y)
    assert (n_few if n_few <= FEW * 12 else 12) == n_directions
    np.testing.assert_allclose(energy, np.sum((y @ T) ** 2, axis=0))


@pytest.mark.parametrize("n_out", [2, 9])
def test_densities_without_held_out_rows_are_gaussian(n_out):
    rng = np.random.default_rng(4)
    values, weight = 1.0 + rng.random(5), rng.random(n_out)
    out, shifts, codes = 0.2 * rng.normal(size=(n_out, 5)), rng.normal(size=(2, 5)), np.array([1, 0])
    without = np.diag(values) - out.T @ (weight[:, None] * out)
    expected = multivariate_normal(np.zeros(5), without).logpdf(out[:2] + shifts[codes])
    density = log_density(out, shifts, codes, values, weight)
    np.testing.assert_allclose(density - 2.5 * np.log(2 * np.pi), expected)


@pytest.mark.parametrize("n_sources", [2, 3])
def test_joint_axes_diagonalise_every_scatter_and_their_sum(n_sources):
    rng = np.random.default_rng(5)
    scatters = [rows.T @ rows for rows in rng.normal(size=(n_sources, 9, 4))]
    for scatter, (values, W) in zip(scatters, joint_axes(scatters), strict=True):
        np.testing.assert_allclose(W.T @ scatter @ W, np.diag(values), atol=1e-9)
        np.testing.assert_allclose(W.T @ sum(scatters) @ W, np.eye(4), atol=1e-9)


def test_paired_rows_leave_the_scatter_of_rows_exactly():
    rng = np.random.default_rng(5)
    X, V = rng.normal(size=(50, 4)) + 3.0, np.linalg.qr(rng.normal(size=(4, 4)))[0]
    every, paired = (Moments.from_rows(a, np.zeros(len(a), int)) for a in (X, X[:20]))
    [(n, scatter)] = unpaired_scatters(every, paired, V, np.ones(4))
    rest = (X[20:] - X[20:].mean(axis=0)) @ V
    assert n == 30
    np.testing.assert_allclose(scatter, rest.T @ rest, atol=1e-10)


def test_a_fit_takes_a_few_times_the_memory_of_its_pairs(monkeypatch):
    names = "reading.views.BLOCK reading.posterior.BLOCK reading.posterior.TYPICAL reading.spread.BLOCK"
    for name in f"{names} evidence.BLOCK pairs.BLOCK pair_checks.BLOCK".split():
        monkeypatch.setattr(f"mgpa.{name}", 2**13)
    rng = np.random.default_rng(9)
    event = rng.normal(size=(2000, 128)).astype(np.float32)
    second = event * np.linspace(0.5, 2.0, 128, dtype=np.float32)
    X = np.concatenate([event, second + rng.normal(size=event.shape).astype(np.float32)])
    details = {"source": np.repeat([0, 1], 2000), "pair_id": np.tile(np.arange(2000), 2)}
    tracemalloc.start()
    model = mgpa.MGPA().fit(X, **details, groups=np.tile(np.arange(2000) % 8, 2))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(model.to_map(), mgpa.maps.PosteriorMap)
    assert peak < 8.5 * X.nbytes  # in single precision; it was 29 times


def test_neighbouring_windows_do_not_confirm_each_other():
    """A pure shift, participants unknown, each window .9 of the one before: spread was found in all fits."""
    found = 0
    for seed in range(5):
        rng, m = np.random.default_rng(seed), 200

        def wander(rng=rng, m=m):
            steps = rng.normal(size=(m, D))
            for i in range(1, m):
                steps[i] = 0.9 * steps[i - 1] + np.sqrt(1 - 0.81) * steps[i]
            return steps

        content = wander()
        A, B = content + 0.3 * wander(), content + SHIFT + 0.3 * wander()
        model = mgpa.MGPA().fit(np.r_[A, B], source=np.repeat([0, 1], m), pairs=(A, B))
        found += model.spread_.is_shown
    assert found <= 1
