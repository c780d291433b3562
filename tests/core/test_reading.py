"""Read first: rows go to one device's view as if the source were known; collapse only where reading fails."""

from dataclasses import replace

import numpy as np
import pytest

import mgpa
from core.test_spread import GAIN, SHIFT, D, World, apart
from factories import assert_close
from mgpa.moments import Moments
from mgpa.reading.edits import Reading, blend_edits, hold_out
from mgpa.reading.posterior import Points, Whitening, fit_gaussians, fit_posterior, score_form
from mgpa.reading.regressions import Regression, Step, fit_regressions
from mgpa.reading.spread import read_by_length
from mgpa.reading.views import read_views, unpaired_scatters
from mgpa.statistics import LabelledRows, Statistics

FAR = np.r_[np.zeros(D - 2), 5.0, -4.0]  # a shift that is always read
READABLE = {
    "shift": lambda c, k: c + k * FAR,
    "gain and shift": lambda c, k: c * GAIN + FAR if k else c,
}


def told(world, reference, source):
    """Return the paired regression that is told the source, by least squares."""
    a, b = world.pairs[source], world.pairs[reference]
    center, offset = a.mean(axis=0), b.mean(axis=0)
    slope = np.linalg.lstsq(a - center, b - offset, rcond=None)[0]
    return lambda rows: (rows - center) @ slope + offset


@pytest.mark.parametrize("device", READABLE)
@pytest.mark.parametrize("reference", [0, 1])
def test_rows_of_the_reference_stay_and_the_others_come_to_its_view(device, reference):
    world = World(READABLE[device])
    model = world.fit(reference=reference)
    content, _ = world.content(400)
    views = [world.see(content, k) for k in (0, 1)]
    home, away = (model.transform(views[k]) for k in (reference, 1 - reference))
    gap = np.sum((views[1] - views[0]) ** 2)
    assert model.action_ == "read"
    assert np.sum((home - views[reference]) ** 2) < 0.01 * gap
    error = np.sum((away - views[reference]) ** 2)
    assert error < 1.5 * np.sum(
        (told(world, reference, 1 - reference)(views[1 - reference]) - views[reference]) ** 2
    )


def test_a_decoder_whose_task_lies_along_the_shift_is_kept():
    axis = np.eye(D)[3]  # the task's, in World.content
    world = World(lambda c, k: c + 8.0 * k * axis)
    content, _ = world.content(500)
    home, away = (world.see(content, k) for k in (0, 1))
    decoder = np.sign(home[:, 3] - np.median(home[:, 3]))

    def agreement(rows):
        return np.mean(np.sign(rows[:, 3] - np.median(home[:, 3])) == decoder)

    model = world.fit(reference=0)
    assert agreement(model.transform(home)) > 0.98
    assert agreement(model.transform(away)) > 0.9
    collapsed = world.fit(reference=0, collapse="always").transform(away)
    assert agreement(collapsed) < 0.8  # what collapsing costs where the shift is the task
    assert agreement(away) < 0.6


def test_a_decoder_along_the_shift_is_kept_where_devices_overlap_a_little():
    axis = np.eye(D)[3]
    world = World(lambda c, k: c + 4.0 * k * axis, n=1200, n_pairs=200)
    content, _ = world.content(500)
    home = world.see(content, 0)
    middle = np.median(home[:, 3])
    model = world.fit(reference=0)
    assert model.action_ == "read"
    assert 0.03 < model.reading_.expected < model.reading_.allowed  # some rows are misread

    def kept(corrected):
        return np.mean((corrected[:, 3] > middle) == (home[:, 3] > middle))

    assert kept(model.transform(home)) > 0.9
    assert kept(world.fit(reference=0, collapse="always").transform(home)) < 0.7


def test_where_the_source_is_read_with_doubt_the_direction_is_collapsed_unless_never():
    world = World(lambda c, k: c + 0.4 * k * SHIFT, n=1200, n_pairs=200)
    auto, never = world.fit(reference=0), world.fit(reference=0, collapse="never")
    assert (auto.action_, never.action_) == ("collapse", "read")
    assert not auto.reading_.suffices
    assert auto.reading_.expected > auto.reading_.allowed
    assert isinstance(auto.to_map(), mgpa.maps.AffineMap)
    assert "collapsed to the level of '0'" in auto.to_map().info.evidence
    assert "; rows of '0' move too, so a decoder may lose accuracy at home" in auto.to_map().info.evidence
    assert "move too" not in never.to_map().info.evidence


def test_few_views_cannot_show_that_reading_works():
    assert Reading(right=1.0, missed=0.0, n_views=120, allowed=0.035).suffices
    assert not Reading(right=1.0, missed=0.0, n_views=40, allowed=0.035).suffices


def test_the_map_says_what_it_aims_for_and_unknown_references_are_named():
    world = World("gain and shift")
    names = np.array(["phone", "watch"])[world.source]
    model = mgpa.MGPA(reference="watch").fit(world.X, source=names, pairs=world.pairs)
    assert model.to_map().info.reference == "watch"
    assert "the view of 'watch'" in model.to_map().info.evidence
    with pytest.raises(ValueError, match=r"phone.*watch.*tablet"):
        mgpa.MGPA(reference="tablet").fit(world.X, source=names, pairs=world.pairs)


def test_labels_and_their_order_do_not_matter_with_a_reference():
    world = World(READABLE["gain and shift"])
    one = world.fit(reference=1).transform(world.X)
    names = np.array(["z", "a"])[world.source]
    other = mgpa.MGPA(reference="a").fit(world.X, source=names, pairs=world.pairs[::-1])
    np.testing.assert_allclose(one, other.transform(world.X), rtol=1e-8, atol=1e-8)


def test_a_chain_of_six_devices_comes_to_one_of_them():
    shifts = np.random.default_rng(1).normal(size=(6, D)) * 6
    world = World(lambda c, k: c + shifts[k], n=900, n_sources=6)
    X, source, ids = [world.X], [world.source], [np.full(len(world.X), -1)]
    for link in range(5):
        for k, view in zip((link, link + 1), world.views(40, (link, link + 1)), strict=True):
            X.append(view)
            source.append(np.full(40, k))
            ids.append(40 * link + np.arange(40))
    X, source, ids = map(np.concatenate, (X, source, ids))
    model = mgpa.MGPA(reference=4).fit(X, source=source, pair_id=ids)
    views = world.views(200, range(6))
    corrected = [model.transform(view) for view in views]
    assert model.action_ == "read"
    np.testing.assert_allclose(corrected[4], views[4], atol=1e-3)
    for k in (0, 1, 2, 3, 5):
        assert apart((corrected[k], views[4])) < 0.02 * apart((views[k], views[4]))


def test_mean_differences_move_rows_inside_the_gate_alone():
    world = World(READABLE["shift"])
    model = world.fit(gate=mgpa.MeasurementGate(rank=2))
    moved = (model.transform(world.X) - world.X) / model.to_map().scale
    B = model.gate_.basis_
    assert model.action_ == "read"
    assert B.shape[1] == 2
    np.testing.assert_allclose(moved, moved @ B @ B.T, atol=1e-10)


@pytest.mark.parametrize("n_pairs", [12, 30])
def test_held_out_posteriors_tell_how_well_new_rows_are_read(n_pairs):
    """Of few pairs in many directions, what is held out must not be in means, covariances or their pool."""
    expected, measured = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        d, shift = 30, np.r_[2.0, np.zeros(29)]
        content = rng.normal(size=(n_pairs, d))
        pairs = (
            content + 0.2 * rng.normal(size=content.shape),
            content + shift + 0.2 * rng.normal(size=content.shape),
        )
        X, source = rng.normal(size=(80, d)), np.repeat([0, 1], 40)
        X[source == 1] += shift
        model = mgpa.MGPA(collapse="never").fit(X, source=source, pairs=pairs)
        new = rng.normal(size=(3000, d))
        m = model.to_map()
        if not isinstance(m, mgpa.maps.PosteriorMap):
            continue
        posteriors = [m.posterior(new), m.posterior(new + shift)]
        measured.append(np.mean([p.argmax(axis=1) == k for k, p in enumerate(posteriors)]))
        expected.append(model.reading_.right)
    assert len(measured) >= 4
    assert abs(np.mean(expected) - np.mean(measured)) < 0.06


def test_rows_that_are_views_of_aligned_pairs_are_held_out_with_them():
    world = World("gain and shift", n_pairs=80)
    X, source = np.concatenate(world.pairs), np.repeat([0, 1], 80)
    aligned = mgpa.MGPA().fit(X, source=source, pairs=world.pairs)
    by_id = mgpa.MGPA().fit(X, source=source, pair_id=np.tile(np.arange(80), 2))
    assert aligned.reading_ == by_id.reading_


def test_rows_whose_classes_differ_in_covariance_do_not_decide_what_is_read():
    """Nearly all rows of source 1 are of a wide class: the covariances of rows would read the class."""
    rng = np.random.default_rng(0)
    d, gain = 8, np.r_[3.0, np.ones(7)]
    y = rng.integers(0, 2, 1500)
    source = (rng.random(1500) < np.where(y == 1, 0.97, 0.03)).astype(int)

    def see(y, source):
        wide = np.where(y == 1, 2.0, 1.0)[:, None] ** np.r_[0.0, np.ones(7)]
        return rng.normal(size=(len(y), d)) * wide * np.where(source[:, None] == 1, gain, 1.0)

    event = see(rng.integers(0, 2, 400), np.zeros(400))
    pairs = mgpa.pairs.Pairs.from_arrays((event, event * gain + 0.1 * rng.normal(size=event.shape)), d)
    data = Statistics.from_rows(LabelledRows(see(y, source), source), pairs)
    standard = data.standardizer(True)
    within = data.moments.within_scaled(standard.divisor)
    effects = pairs.source_effects(len(data.sources))
    views = read_views(pairs, effects, within, data.moments.count, standard)
    rows = unpaired_scatters(data.moments, Moments({}), views.axes, standard.divisor)
    whitening = Whitening.of(views)
    of_rows = fit_gaussians(views, whitening, Points.of(views, whitening), rows)
    assert fit_posterior(views, rows).loss < of_rows.loss - 0.01


def test_batches_with_a_reference_give_the_map_of_one_fit():
    world = World(READABLE["gain and shift"])
    whole = world.fit(reference=1)
    parts = mgpa.MGPA(reference=1)
    for rows in (slice(0, 120), slice(120, None)):
        pairs = world.pairs if rows.start == 0 else None
        parts.partial_fit(world.X[rows], source=world.source[rows], pairs=pairs)
    np.testing.assert_allclose(parts.transform(world.X), whole.transform(world.X), rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_a_million_rows_in_batches_are_the_rows_in_memory():
    rng, n, d = np.random.default_rng(0), 1_000_000, 6
    gain, shift = np.array([1.0, 2.0, 1.0, 1.0, 1.0, 1.0]), 6.0 * np.eye(d)[0]
    source, X, A = rng.integers(0, 2, n), rng.normal(size=(n, d)), rng.normal(size=(300, d))
    X = np.where(source[:, None] == 1, X * gain + shift, X)
    pairs = A, A * gain + shift + 0.1 * rng.normal(size=A.shape)
    whole, parts = mgpa.MGPA(reference=0).fit(X, source=source, pairs=pairs), mgpa.MGPA(reference=0)
    batches = np.array_split(np.arange(n), 40)
    for number, rows in enumerate(batches):
        parts.partial_fit(X[rows], source=source[rows], pairs=None if number else pairs)
    assert whole.action_ == "read"
    streamed = np.concatenate([parts.transform(X[rows]) for rows in batches])
    np.testing.assert_allclose(streamed, whole.transform(X), atol=1e-10)


def test_edits_of_sources_of_which_only_one_has_a_slope_are_blended():
    """The edit of a source without a slope is the same for all rows, and is not written into."""
    zero, one = np.zeros(2), np.ones(2)

    def step(offset, p):
        return Regression(zero, offset, np.eye(2), 0.5 * np.eye(2)[:, :p], one, np.eye(2)[:, :p], 5)

    edits = {Step(1, 0): step(one, 0), Step(2, 0): step(-one, 2)}
    X, codes = np.arange(12.0).reshape(6, 2), np.array([0, 0, 1, 1, 2, 2])
    told = np.where(codes[:, None] == 2, 0.5 * X - 1.0, np.where(codes[:, None] == 1, 1.0, 0.0))
    blended, right = blend_edits(edits, X, codes, np.eye(3)[codes], 0)
    np.testing.assert_allclose(right, told)
    np.testing.assert_allclose(blended, told)


@pytest.mark.filterwarnings("ignore:.*occur once")
@pytest.mark.parametrize("seen", [1.0, 0.7], ids=["all events", "some events"])
def test_rows_that_several_pairs_share_are_computed_once_and_count_as_often_as_they_are_seen(seen):
    rng = np.random.default_rng(0)
    K, E, d = 4, 40, 6
    events, shift = rng.normal(size=(E, d)), 2 * rng.normal(size=(K, d))
    gain = 1 + 0.3 * np.arange(K)[:, None] * (np.arange(d) < 2)
    X = np.concatenate([events * gain[k] + shift[k] + 0.1 * rng.normal(size=(E, d)) for k in range(K)])
    source, ids = np.repeat(np.arange(K), E), np.tile(np.arange(E), K)
    ids[rng.random(len(ids)) > seen] = -1
    data = Statistics.from_rows(LabelledRows(X, source, ids))
    pairs, standard = data.pairs(), data.standardizer(True)
    within = data.moments.within.scaled(standard.divisor)
    effects = pairs.source_effects(len(data.sources))
    views = read_views(pairs, effects, within, data.moments.count, standard)
    apart = replace(views, row=np.arange(2 * len(views)))  # as if no two views were the same
    assert len(views.distinct.views) < len(apart.distinct.views) == 2 * len(views)
    rows = unpaired_scatters(data.moments, data.paired_moments(among_rows=True), views.axes, standard.divisor)
    one, other = fit_posterior(views, rows), fit_posterior(apart, rows)
    assert one.loss == pytest.approx(other.loss, rel=1e-12)
    for name in ("linear", "bias", "held_out"):
        assert_close(getattr(one, name), getattr(other, name), 1e-9)
    for got, expected in zip(score_form(views, one), score_form(apart, other), strict=True):
        assert_close(np.abs(got), np.abs(expected), 1e-8)
    regressions, those = fit_regressions(views), fit_regressions(apart)
    for step in regressions:
        assert_close(regressions[step].slope, those[step].slope, 1e-12)
    tested, expected = hold_out(views, one, regressions, None), hold_out(apart, other, those, None)
    for name in ("constant", "sloped", "missed", "told", "length"):
        assert_close(getattr(tested, name), getattr(expected, name), 1e-9)


def test_the_auroc_by_length_is_that_of_mann_and_whitney():
    import scipy.stats

    rng = np.random.default_rng(0)
    length, codes = np.round(rng.normal(size=90) + np.arange(90) % 3 * 0.4, 1), np.arange(90) % 3
    u = [
        scipy.stats.mannwhitneyu(length[codes == a], length[codes == b]).statistic / 900
        for a, b in ((0, 1), (0, 2), (1, 2))
    ]
    assert read_by_length(length, codes) == max(max(x, 1 - x) for x in u)
