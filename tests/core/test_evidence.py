"""Evidence over people: how often decisions go wrong, and what they must not depend on."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mgpa
from mgpa.effect import Displacement, Effect
from mgpa.evidence import jackknife, mean_over_units, t_quantile
from mgpa.moments import Means, Moments, Standardizer
from mgpa.pairs import Pairs
from mgpa.position import GateShift, PositionSettings, solve_within

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import calibration
import populations

D = 12


def test_errors_over_units_are_those_of_their_means():
    rng = np.random.default_rng(0)
    values, units = rng.normal(size=(60, 2)), np.repeat(np.arange(6), 10)
    mean, error, df = mean_over_units(values, units)
    means = values.reshape(6, 10, 2).mean(axis=1)
    np.testing.assert_allclose(error, means.std(axis=0, ddof=1) / np.sqrt(6))
    assert (df, mean_over_units(values)[2], mean_over_units(values, np.zeros(60))[2]) == (5, 59, 59)
    left_out = (means.sum(axis=0) - means)[:, 0] / 5
    assert jackknife(mean[0], left_out, 2, crossed=True) == (pytest.approx(error[0]), 5)
    assert jackknife(0.0, left_out, 2, crossed=False)[1] == 4
    assert jackknife(5.0, [4.9, 5.1, np.nan], 2, crossed=False)[0] == np.inf


def test_nobody_counts_more_for_having_more_pairs():
    rng = np.random.default_rng(0)
    values, units = rng.normal(size=(50, 3)), np.repeat(np.arange(5), [30, 5, 5, 5, 5])
    means = np.array([values[units == u].mean(axis=0) for u in range(5)])
    mean, error, df = mean_over_units(values, units)
    np.testing.assert_allclose(mean, means.mean(axis=0))
    np.testing.assert_allclose(error, means.std(axis=0, ddof=1) / np.sqrt(5))
    assert df == 4
    # One person with most of the pairs makes no direction: .15 to .4 of gates had one.
    found = 0
    for seed in range(20):
        rng = np.random.default_rng([seed, 4])
        who = np.repeat(np.arange(4), [400, 8, 8, 8])
        contrasts = 0.4 * rng.normal(size=(len(who), 10)) + 0.7 * rng.normal(size=(4, 10))[who]
        found += mgpa.MeasurementGate().fit(contrasts, groups=who).rank_ > 0
    assert found <= 2


def test_where_populations_could_explain_the_effect_the_fit_says_so():
    """Without a device effect; task and source are associated, at a cosine of .7 to the shift."""
    unsaid = 0
    for seed in range(8):
        data = calibration.draw_associated(np.random.default_rng(seed), 0.9, 0.7, 0.0)
        model = mgpa.ClosedFormMGPA().fit(**data)
        effect = model.effect_
        warned = effect.may_be_populations and effect.exists
        assert warned == ("populations could explain it" in model.map_.info.evidence)
        first = "Doubtful: Sources differ in more than the pairs' shift, so populations could explain"
        assert warned == model.to_map().summary().startswith(first)
        unsaid += effect.exists and not effect.may_be_populations
    assert unsaid <= 1


def test_rows_of_both_devices_that_lie_where_one_devices_views_do_are_left_alone():
    """Populations differ along the shift, at a cosine of .9; rows have no device effect, or all of it."""
    acts = {}
    for effect in (0.0, 1.0):
        worlds = [populations.World(np.random.default_rng(seed), 0.9, 2.0, 0.5, effect) for seed in range(8)]
        fits = [mgpa.MGPA().fit(**world.fitting("nested")) for world in worlds]
        acts[effect] = [model.action_ != "nothing" for model in fits]
        if effect == 0.0:
            left = next(model for model in fits if model.effect_.lies_with)
    assert sum(acts[0.0]) <= 4  # without asking: 8
    assert sum(acts[1.0]) >= 7
    assert (left.effect_.lies_with, left.action_) == ("0", "nothing")
    assert (
        left.to_map().summary().startswith("Doubtful: Populations, not devices, explain the effect in rows")
    )
    assert "rows of both sources lie where paired views of '0' do" in left.to_map().info.evidence


def test_where_rows_lie_is_asked_of_known_people_and_believed_of_doubtful_effects():
    data = populations.World(np.random.default_rng(0), 0.6, 2.0, 0.5, 0.0).fitting("crossed")
    asked = mgpa.ClosedFormMGPA().fit(**data)
    assert asked.effect_.displacement.size == pytest.approx(-1.0, abs=0.5)
    unknown = mgpa.ClosedFormMGPA().fit(data["X"], source=data["source"], pairs=data["pairs"])
    assert unknown.effect_.displacement is None
    found = Displacement(-0.5, 0.05, 7, ("a", "b"))
    lie_with = [replace(found, size=size).lies_with(0.6, 0.05) for size in (-1.0, 1.0, -0.5, 0.0, 3.0)]
    assert lie_with == ["a", "b", "", "", ""]
    # Rows a little beside the views do not lie where the other device's views do.
    assert [replace(found, size=size).lies_with(0.0, 0.05) for size in (-0.2, 0.5, -0.95)] == ["", "", "a"]
    elsewhere = replace(found, size=-1.0)
    assert not replace(elsewhere, error=0.2).lies_with(0.6, 0.05)
    assert not elsewhere.lies_with(0.6, 0.2)  # rows may have less of the device's effect than pairs
    assert Effect(1.0, 0.05, 11, displacement=elsewhere).exists  # nothing is doubtful
    assert not Effect(0.4, 0.05, 11, displacement=elsewhere).exists
    # The device's effect, and one of populations that is as large:
    assert Effect(2.0, 0.05, 11, displacement=elsewhere).exists
    assert Effect(0.4, 0.05, 11, displacement=elsewhere).is_absent
    assert Effect(0.4, 0.05, 11, displacement=replace(elsewhere, size=-0.6)).exists


def test_where_pairs_are_of_one_population_the_whole_effect_of_the_device_is_corrected():
    effects = []
    for seed in range(8):
        world = populations.World(np.random.default_rng(seed), 0.9, 1.0, 0.5, 1.0)
        data = world.fitting("crossed")
        views = tuple(view - 0.5 * world.population for view in data["pairs"])
        effects.append(mgpa.ClosedFormMGPA().fit(**data | {"pairs": views}).effect_)
    withheld = [effect for effect in effects if effect.lies_with]
    assert len(withheld) <= 2  # if sizes above 1 were not allowed for: half of them
    assert all("if the paired participants are like both populations" in e.doubt for e in withheld)


def test_effects_are_printed_with_an_error_that_allows_for_populations():
    covered = {"people": 0, "populations": 0}
    for seed in range(8):
        data = calibration.draw_associated(np.random.default_rng(seed), 0.9, 0.0, 1.0)
        effect = mgpa.ClosedFormMGPA().fit(**data).effect_
        for name, one in (("people", effect), ("populations", effect.with_populations)):
            covered[name] += abs(one.size - 1.0) < t_quantile(0.025, one.df) * one.error
    assert "% allowing for population differences between sources" in str(effect)
    assert covered["populations"] >= 7 > covered["people"]
    assert str(Effect(1.0, 0.1, 9, "10 people", across=0.1)).count("±") == 1


def test_an_effect_of_the_wrong_sign_never_acts():
    effect = Effect(-0.9, 0.05, 11)
    assert effect.is_reversed
    assert not effect.exists
    assert not Effect(-9.0, 0.05, 11).is_reversed


@pytest.mark.parametrize(
    ("size", "error", "df", "clear"),
    [(2.5, 1.0, 100, True), (2.5, 1.0, 3, False), (1e9, 1.0, 0, False), (5.0, np.inf, 9, False)],
)
def test_few_units_must_be_surer_and_a_lost_source_says_nothing(size, error, df, clear):
    assert Effect(size, error, df).exists == clear


def test_leaving_people_out_equals_refitting_without_them():
    """Where people's rows scatter alike about their means, to what that leaves open."""
    rng = np.random.default_rng(1)
    P, n, d = 5, 40, 6
    scatter = rng.normal(size=(n, d))
    scatter = (scatter - scatter.mean(axis=0)) @ rng.normal(size=(d, d))
    means = rng.normal(size=(P, 2, d)) + np.array([0.0, 1.0])[:, None] * np.eye(d)[0]
    X = (means[:, :, None] + scatter).reshape(-1, d)
    person, source = np.repeat(np.arange(P), 2 * n), np.tile(np.repeat([0, 1], n), P)
    pairs = Pairs.from_arrays((np.zeros((9, d)), np.eye(d)[0] + 0.01 * rng.normal(size=(9, d))), d)
    one = Standardizer(np.zeros(d), np.ones(d), np.ones(d, bool))

    def effect(rows, groups=None, ridge=3.0):
        moments = Moments.from_rows(X[rows], source[rows])
        people = Means.from_rows(X, source, person) if groups else Means({})
        shift = GateShift.of(pairs, pairs.source_effects(2), one.scale, np.eye(d)[:, :1])
        return solve_within(moments, people, Moments({}), one, shift, PositionSettings(ridge=ridge))[2]

    whole = effect(np.ones(len(X), bool), groups=True)
    left_out = [effect(person != p).size for p in range(P)]
    assert whole.error == pytest.approx(jackknife(whole.size, left_out, 2, crossed=True)[0], rel=1e-6)


# Pairs know their people


def offsets_without_effect(rng, n_people=6, n=30):
    """Return rows of people whose sessions with either device differ, and a device that does nothing."""
    person = np.repeat(np.arange(n_people), n)
    events = rng.normal(size=(len(person), D)) + rng.normal(size=(n_people, D))[person]
    views = [events + 0.5 * rng.normal(size=(n_people, D))[person] for _ in range(2)]
    views = [view + 0.2 * rng.normal(size=view.shape) for view in views]
    return views, person


@pytest.mark.filterwarnings("ignore:.*Returning the identity map")
@pytest.mark.parametrize("way", ["pair_id", "pairs", "streamed", "tokens"])
@pytest.mark.parametrize(
    "make", [mgpa.ClosedFormMGPA, lambda **k: mgpa.IterativeMGPA(critics=("linear",), **k)]
)
def test_session_offsets_of_people_are_not_taken_for_a_device(make, way):
    rng, moved = np.random.default_rng(2), 0
    for _ in range(6):
        (A, B), person = offsets_without_effect(rng)
        X, source = np.concatenate([A, B]), np.repeat([0, 1], len(A))
        model, groups = make(on_missing="warn"), np.tile(person, 2)
        evidence = {"source": source, "groups": groups}
        if way == "pair_id":
            evidence["pair_id"] = np.tile(np.arange(len(A)), 2)
        else:
            evidence |= {"pairs": (A, B), "pair_groups": person}
        if way == "tokens":
            model, X = mgpa.TokenMean(model), np.stack([X, X], axis=1)
            evidence["pairs"] = tuple(np.stack([side, side], axis=1) for side in (A, B))
        streams = way == "streamed" and hasattr(model, "partial_fit")
        fitted = (model.partial_fit if streams else model.fit)(X, **evidence)
        moved += not np.array_equal(fitted.transform(X), X)
    assert moved <= 1  # 6 of 6, where pairs forget whose they are


# The gate


def test_two_people_with_offsets_seldom_support_a_direction_and_agree_on_a_clear_one():
    rng, found, missed = np.random.default_rng(3), 0, 0
    for _ in range(40):
        (A, B), person = offsets_without_effect(rng, n_people=2)
        found += mgpa.MeasurementGate().fit(B - A, groups=person).rank_ > 0
        missed += mgpa.MeasurementGate().fit(B - A + 4.0 * np.eye(D)[0], groups=person).rank_ == 0
    assert found <= 2
    assert missed <= 10


def test_one_weak_effect_of_four_sources_seldom_brings_a_second_direction():
    cell = calibration.Cell("more", "star", 6, sources=4, features=40)
    assert calibration.false_rate(cell, n_fits=100) <= 0.03  # .06 where all kinds shared a source's noise


# The path


def test_the_length_of_a_path_depends_on_neither_signs_nor_names():
    """Gains without a shift: the sign of the effect means nothing, and nothing is corrected along it."""
    rng = np.random.default_rng(4)
    source, gains = np.arange(600) % 2, np.r_[[2.0] * 4, [1.0] * (D - 4)]
    model = mgpa.ClosedFormMGPA(mgpa.MeasurementGate(rank=4), do_no_harm=False)
    for _ in range(8):
        X, first = rng.normal(size=(600, D)), rng.normal(size=(60, D))
        X[source == 1] *= gains
        second = first * gains + 0.1 * rng.normal(size=(60, D))
        for sign, u, pairs in ((1, source, (first, second)), (1, 1 - source, (second, first)),
                               (-1, source, (-first, -second))):  # fmt: skip
            assert (
                model.fit(sign * X, source=u, pairs=pairs).to_map().rank == 1
            )  # 1 or 4, by the sign, before


# Gates that are wider than what pairs support


@pytest.mark.parametrize(
    "make", [mgpa.ClosedFormMGPA, lambda gate: mgpa.IterativeMGPA(gate, critics=("linear",))]
)
def test_a_wide_gate_does_not_make_a_map_collapse_what_is_content(make):
    """One device amplifies everything: along every direction spreads differ, and all of it is content."""
    rng = np.random.default_rng(5)
    mix, task, shift = rng.normal(size=(D, D)), rng.normal(size=D), 4.0 * np.eye(D)[0]

    def content(n):
        y = np.arange(n) % 2
        return rng.normal(size=(n, D)) @ mix + np.outer(y, task), y

    def see(c, k):
        return (c + k * shift) * (1.0 + 0.5 * k) + 0.1 * rng.normal(size=c.shape)

    (c, _), (events, _), (new, _) = content(600), content(80), content(400)
    source = np.arange(600) % 2
    X = np.where(source[:, None] == 1, see(c, 1), see(c, 0))
    model = make(gate=mgpa.MeasurementGate(rank=0.99)).fit(
        X, source=source, pairs=(see(events, 0), see(events, 1))
    )
    after = model.transform(see(new, 0))
    kept = np.linalg.matrix_rank(after - after.mean(axis=0), tol=0.2 * np.sqrt(400))
    assert kept >= D - 2


# Iterative maps are functions of the data


def test_iterative_maps_depend_on_neither_seed_nor_label_order():
    pytest.importorskip("torch")
    rng = np.random.default_rng(6)
    U = np.linalg.qr(rng.normal(size=(D, 2)))[0]
    c, events = rng.normal(size=(300, D)), rng.normal(size=(60, D))
    source = np.arange(300) % 2
    X = np.where(source[:, None] == 1, c + (c @ U) @ U.T + 1.0, c)
    pairs = events, events + (events @ U) @ U.T + 1.0 + 0.1 * rng.normal(size=events.shape)
    made = [
        mgpa.IterativeMGPA(random_state=seed, n_stages=3, do_no_harm=False, device="cpu").fit(
            X, source=labels, pairs=views
        )
        for seed, labels, views in ((0, source, pairs), (1, source, pairs), (0, 1 - source, pairs[::-1]))
    ]
    assert made[0].n_stages_ == 3
    for other in made[1:]:
        np.testing.assert_allclose(other.transform(X), made[0].transform(X), atol=1e-3)


# More features than rows


def test_a_difference_in_what_rows_of_a_source_never_vary_in_is_seldom_acted_on():
    """The regression knows only its penalty there; without that part of the leverage .7 of fits act."""
    acted = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        mix, source = rng.normal(size=(10, 80)), np.arange(24) % 2
        X = rng.normal(size=(24, 10)) @ mix + 0.01 * rng.normal(size=(24, 80))
        X[source == 1] += 0.3 * rng.normal(size=80)
        first = rng.normal(size=(30, 10)) @ mix
        shift = 6.0 * mix[0] / np.linalg.norm(mix[0])
        pairs = first, first + shift + 0.1 * rng.normal(size=first.shape)
        acted += mgpa.ClosedFormMGPA().fit(X, source=source, pairs=pairs).to_map().rank > 0
    assert acted <= 14


# The table of docs/how_often_wrong.md, small


@pytest.mark.parametrize("cell", calibration.SMALL, ids=str)
def test_false_acting_is_near_its_nominal_rate(cell):
    assert calibration.false_rate(cell, n_fits=40) <= 0.15  # nominal .05; 40 fits


@pytest.mark.slow
@pytest.mark.parametrize("cell", calibration.CELLS, ids=str)
def test_false_acting_holds_in_every_design(cell):
    assert calibration.false_rate(cell, n_fits=400) <= 1.5 * 0.05 + 0.02


def test_an_effect_far_from_the_pairs_is_doubted():
    assert not Effect(1.0, 0.05, 11).doubt
    assert not Effect(0.8, 0.05, 11).doubt
    assert "Rows show 184 % of the pairs' shift" in Effect(1.84, 0.1, 11).doubt
    assert "Rows show 40 % of the pairs' shift" in Effect(0.4, 0.05, 11).doubt
    assert not Effect(1.84, 0.6, 11).doubt  # 100 % is in its interval
    assert not Effect(0.1, 0.2, 11).doubt  # nothing is done
