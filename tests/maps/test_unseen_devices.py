"""Devices that were not in the fit: noticed, watched in a stream, and added from rows or from pairs."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mgpa
from mgpa.estimators.devices import fit_population, sample_windows
from mgpa.maps import MapError, PosteriorMap
from mgpa.maps.densities import log_density
from mgpa.maps.faults import flips
from mgpa.maps.frames import assignment, log_densities
from mgpa.maps.population import alike, nearest_mixture
from mgpa.statistics import LabelledRows
from shared import SHARED

D, PEOPLE = 24, 12
FRAMES = ("frames", "in_frame", "frame_scatter")


class Devices:
    """Content with two classes and people in it, seen by devices that differ by shifts."""

    def __init__(self, seed, n_devices=4, size=2.0):
        self.rng = np.random.default_rng(seed)
        low = self.rng.normal(size=(6, D)).T @ self.rng.normal(size=(6, D)) / np.sqrt(6 * D)
        self.mixing = 0.6 * np.eye(D) + 1.8 * low
        self.task = np.linalg.qr(self.rng.normal(size=(D, 1)))[0][:, 0]
        self.shifts = self.rng.normal(size=(n_devices, D)) * size / np.sqrt(D)

    def person(self):
        return 0.1 * self.rng.normal(size=D)

    def content(self, n, person=0.0, share=0.5):
        y = (self.rng.random(n) < share).astype(int)
        return self.rng.normal(size=(n, D)) @ self.mixing + np.outer(y - 0.5, self.task) * 2 + person, y

    def see(self, content, shift):
        return content + shift + 0.1 * self.rng.normal(size=content.shape)

    def rows(self, n, shift, share=0.5):
        return self.see(self.content(n, self.person(), share)[0], shift)

    def new(self, size=1.0):
        """Return a shift that differs from the mean of the devices by a share of what they do."""
        away = self.rng.normal(size=D)
        spread = np.linalg.norm(self.shifts - self.shifts.mean(axis=0), axis=1).mean()
        return self.shifts.mean(axis=0) + away * size * spread / np.linalg.norm(away)

    def fit(self, model=None):
        X, source, people = [], [], []
        for person in range(PEOPLE):
            offset = self.person()
            for k, shift in enumerate(self.shifts):
                X.append(self.see(self.content(50, offset)[0], shift))
                source += [f"B{k}"] * 50
                people += [person] * 50
        events = self.content(60)[0]
        ids = [np.full(len(source), -1)]
        for k, shift in enumerate(self.shifts):
            X.append(self.see(events, shift))
            source += [f"B{k}"] * 60
            people += [PEOPLE] * 60
            ids.append(np.arange(60))
        model = mgpa.ClosedFormMGPA() if model is None else model
        return model.fit(
            np.concatenate(X), source=source, pair_id=np.concatenate(ids), groups=people
        ).to_map()


class TurnedDevices(Devices):
    """Devices that differ by gain and rotation, too, and a class that may be louder than the other."""

    def __init__(self, seed, n_devices=4, loud=1.0):
        super().__init__(seed, n_devices)
        self.loud = loud
        self.shifts = [(shift, *self.turn()) for shift in self.shifts]

    def turn(self, size=1.0):
        """Return gains and a rotation of a device, as unusual as those of the others, or a share of it."""
        A = self.rng.normal(size=(D, D))
        A = 0.3 * size * (A - A.T) / np.linalg.norm(A - A.T, 2)
        return np.exp(0.2 * size * self.rng.normal(size=D)), np.linalg.solve(
            np.eye(D) - A / 2, np.eye(D) + A / 2
        )

    def content(self, n, person=0.0, share=0.5):
        rows, y = super().content(n, person, share)
        return rows * np.where(y == 1, self.loud, 1.0)[:, None], y

    def see(self, content, device):
        shift, gains, turn = device
        return super().see((content * gains) @ turn, shift)

    def new(self, size=1.0):
        away = 2.0 * size * self.rng.normal(size=D) / np.sqrt(D)
        return np.mean([shift for shift, *_ in self.shifts], axis=0) + away, *self.turn(size)


def without_fading(m):
    return replace(m, **dict.fromkeys(type(m).optional_tensors[1]))


@pytest.fixture(scope="module")
def world():
    return Devices(0)


@pytest.fixture(scope="module")
def m(world):
    return world.fit()


def test_rows_of_new_people_are_of_a_fitted_device_whatever_their_mix(world, m):
    alarms = []
    for i in range(150):
        rows = world.rows(50, world.shifts[i % 4], share=(0.2, 0.5, 0.8)[i % 3])
        if i % 2:  # outliers
            rows[::10] += 10 * world.rng.normal(size=(5, D))
        check = m.check(rows)
        alarms.append(check.unknown_device)
        assert check.devices[0]["nearest"] == f"B{i % 4}"
    assert not any(alarms)


def test_half_the_devices_spread_is_noticed(world, m):
    def power(n_rows):
        return np.mean([m.check(world.rows(n_rows, world.new(0.5))).unknown_device for _ in range(25)])

    assert power(50) >= 0.7
    assert power(100) >= 0.9
    assert m.check(world.rows(10, world.new(2.0))).unknown_device


@pytest.mark.parametrize("loud", [1.0, 1.5], ids=["classes alike", "one class louder"])
def test_gains_and_rotations_show_an_unknown_device_and_new_people_do_not(loud):
    world = TurnedDevices(2, loud=loud)
    m = world.fit()
    assert m.population.frames.shape[0] == 4
    power = {
        name: np.mean([m.check(world.rows(50, world.new(size)), named).unknown_device for _ in range(40)])
        for name, size, named in (("half", 0.5, None), ("half, named", 0.5, ["new"] * 50), ("all", 1.0, None))
    }
    assert min(power.values()) >= (0.9 if loud == 1.0 else 0.5), power
    alarms = []
    for i in range(120):
        device, other = world.shifts[i % 4], world.shifts[(i + 1) % 4]
        rows = world.rows(50, device, share=(0.2, 0.5, 0.8)[i % 3])
        alarms.append(m.check(rows).unknown_device)
        rows[::10] += 10 * world.rng.normal(size=(5, D))
        alarms.append(m.check(rows).unknown_device)
        several = [world.rows(25, device), world.rows(25, other)]
        alarms.append(m.check(np.concatenate(several)).unknown_device)
        several = [world.rows(20, device) for _ in range(5)]
        alarms.append(m.check(np.concatenate(several)).unknown_device)
    assert not any(alarms)


def test_frames_are_stored_and_a_device_that_is_added_needs_none(tmp_path):
    world = TurnedDevices(2)
    m, new = world.fit(), world.new(1.0)
    again = mgpa.load_map(m.save(tmp_path / "m.safetensors"))
    for name in ("frames", "in_frame", "frame_scatter"):
        np.testing.assert_array_equal(getattr(again.population, name), getattr(m.population, name))
    assert again.check(world.rows(50, new)).unknown_device
    events = world.content(40)[0]
    pairs = world.see(events, world.shifts[0]), world.see(events, new)
    added = again.add_source("new", pairs, known="B0")
    assert len(added.population.levels) == 1 + len(added.population.frames)
    assert not any(added.check(world.rows(50, new), ["new"] * 50).unknown_device for _ in range(20))
    arrays = {name: array for name, array in m.population.arrays.items() if name not in FRAMES}
    before = replace(m, population=type(m.population)(**arrays))
    older = mgpa.load_map(before.save(tmp_path / "older.safetensors"))
    assert not older.population.frames.size
    assert not older.check(world.rows(50, world.shifts[0])).unknown_device
    with pytest.raises(MapError, match="unexpected shapes"):
        replace(m.population, in_frame=m.population.in_frame[:2])


def test_frames_without_a_difference_between_devices_are_left_out(m):
    assert not m.population.frames.size


def test_rows_belong_to_one_device_as_clearly_as_their_densities_differ():
    rng = np.random.default_rng(0)
    means, frames = rng.normal(size=(3, 5)), np.stack([np.diag(rng.uniform(0.3, 3.0, 5)) for _ in range(3)])
    W = np.concatenate(
        [mean + rng.normal(size=(4000, 5)) @ np.linalg.inv(f) for mean, f in zip(means, frames, strict=True)]
    )
    densities = log_densities(W, means, frames)
    expected = [
        scipy.stats.multivariate_normal(mean, np.linalg.inv(f @ f)).logpdf(W)
        for mean, f in zip(means, frames, strict=True)
    ]
    np.testing.assert_allclose(densities - densities[0], np.subtract(expected, expected[0]), atol=1e-9)
    # The likeliest device is sometimes another one, which is nearer to the next.
    assert 0.8 < assignment(W, means, frames) < 1.4
    between = means.mean(axis=0) + rng.normal(size=(400, 5))
    assert assignment(between, means, frames) < assignment(W, means, frames)
    assert assignment(W, means[[0, 0]], frames[[0, 0]]) == np.inf


def test_the_unknown_device_is_described_in_words_and_json(world, m):
    check = m.check(world.rows(60, world.new(2.0)))
    assert check.problems[0].startswith("Unknown device: no device of the fit explains the 60 rows.")
    said = json.loads(json.dumps(check.to_dict()))
    assert said["unknown_device"]
    assert said["devices"][0]["log10_evidence"] > 3
    assert said["devices"][0]["nearest"] in m.info.source_names


def test_a_map_of_two_devices_says_what_a_check_cannot_notice(world, m):
    two = Devices(3, n_devices=2)
    stored, often = (
        two.fit(),
        "With two devices in the fit, only large differences of a third device are detected.",
    )
    check = stored.check(two.rows(60, two.shifts[0]))
    assert check.ok
    assert str(check).splitlines()[1:] == [often]
    assert check.to_dict()["caution"] == often
    words = str(stored.check(two.rows(60, two.new(3.0))))
    assert "With only two fitted devices, little is known about how a third may differ." in words
    assert often not in words  # one of both
    assert "only large differences" not in str(m.check(world.rows(60, world.shifts[0])))


def test_rows_of_several_fitted_devices_are_not_unknown(world, m):
    alarms = []
    for i in range(40):
        a, b = world.shifts[[i % 4, (i + 1) % 4]]
        alarms.append(m.check(np.concatenate([world.rows(25, a), world.rows(25, b)])).unknown_device)
    assert not any(alarms)


def test_rows_under_another_device_s_name_are_told(world, m):
    rows = world.rows(60, world.shifts[1])
    assert m.check(rows, source=["B1"] * 60).ok
    check = m.check(rows, source=["B2"] * 60)
    assert check.problems == ("Rows named 'B2' resemble the fitted rows of 'B1', not those of 'B2'.",)
    assert not check.unknown_device


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda X: 0.5 * X, r"Scaled: rows vary 0\.[45]\d? times"),
        (lambda X: 0.1 * X, r"Scaled: rows vary 0\.(1|09)\d* times"),
        (lambda X: np.where(np.arange(D) == 7, 0.0, X), r"Dead: 1 features \(feature 7\)"),
        (lambda X: np.where(np.arange(D) % 4 == 0, 0.0, X), "Dead: 6 features"),
        (lambda X: np.where(np.isin(np.arange(D), (1, 5, 9, 20)), -X, X), "4 features .* look flipped"),
        (lambda X: X.mean(axis=0) + X.std(axis=0) * np.random.default_rng(0).normal(size=X.shape), "noise"),
    ],
    ids=["half", "a tenth", "one dead", "a quarter dead", "flipped", "white noise"],
)
def test_broken_features_are_named(world, m, damage, words):
    rows = world.rows(200, world.shifts[0])
    assert m.check(rows).ok
    found = "\n".join(m.check(damage(rows)).problems)
    assert re.search(words, found), found


def test_flipped_features_are_the_ones_that_were_flipped(world, m):
    wrong = [1, 5, 9, 20]
    rows = world.rows(200, world.shifts[0])
    rows[:, wrong] *= -1
    assert m.check(rows).broken["flipped"] == tuple(wrong)
    whole = flips(rows - rows.mean(axis=0), m.population.whiten, np.zeros(D, dtype=bool))
    assert np.flatnonzero(whole).tolist() == wrong


def test_a_monitor_is_silent_on_new_people_and_speaks_when_the_device_changes(world, m):
    silent = []
    for i in range(10):
        monitor = m.monitor()
        for _ in range(20):
            state = monitor.update(world.rows(20, world.shifts[i % 4]))
        silent.append(state.ok)
    assert all(silent)
    assert str(state) == f"400 rows, most like 'B{i % 4}': nothing unusual."
    new = world.new(1.0)
    while state.ok and state.n_rows < 800:
        state = monitor.update(world.rows(20, new))
    assert 400 < state.first_alarm <= 600
    assert json.loads(json.dumps(state.to_dict()))["ok"] is False
    monitor.reset()
    assert monitor.update(world.rows(20, world.shifts[0])).ok
    with pytest.raises(ValueError, match="window is 3"):
        m.monitor(window=3)


@pytest.mark.parametrize("estimator", [mgpa.ClosedFormMGPA, mgpa.MGPA])
def test_adapt_and_add_source_bring_a_new_device_to_the_others(world, estimator, tmp_path):
    m = world.fit(estimator())
    shift = world.new(1.5)
    events = world.content(400)[0]
    new, known = world.see(events, shift), world.see(events, world.shifts[0])
    goal = m.transform(known)

    def error(found):
        return float(np.mean((found.transform(new) - goal) ** 2))

    before = error(m)
    adapted = m.adapt(world.see(world.content(300)[0], shift), "C", n_participants=8)
    assert error(adapted) < 0.5 * before
    errors = []
    for n in (3, 10, 40):
        views = world.content(n)[0]
        pairs = world.see(views, world.shifts[0]), world.see(views, shift)
        errors.append(error(m.add_source("C", pairs, known="B0")))
    assert errors[-1] < 0.3 * before
    assert errors[0] < before
    # Fitted devices are corrected as before, and the new one is known from now on.
    moved = np.abs(adapted.transform(known) - goal).max(axis=1)
    assert np.quantile(moved, 0.9) < 0.05
    assert isinstance(adapted, PosteriorMap)
    assert adapted.info.source_names == ("B0", "B1", "B2", "B3", "C")
    assert not adapted.check(world.rows(60, shift)).unknown_device
    loaded = mgpa.load_map(adapted.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(loaded.transform(new), adapted.transform(new))
    assert "C added from 300 rows without labels" in loaded.summary()


def test_adapting_matches_the_spread_of_features_where_known_devices_differ_in_it(world):
    rng = np.random.default_rng(5)
    gains = np.exp(0.3 * rng.normal(size=(5, D)))
    X, source, people, ids = [], [], [], []
    events = world.content(60)[0]
    for k, shift in enumerate(world.shifts):
        for person in range(8):
            X.append(world.content(40, world.person())[0] * gains[k] + shift)
            source += [k] * 40
            people += [person] * 40
            ids.append(np.full(40, -1))
        X.append(events * gains[k] + shift)
        source += [k] * 60
        people += [8] * 60
        ids.append(np.arange(60))
    model = mgpa.MGPA().fit(np.concatenate(X), source=source, pair_id=np.concatenate(ids), groups=people)
    m, new = model.to_map(), world.content(300)[0]
    known = [m.transform(new * gain + shift) for gain, shift in zip(gains, world.shifts, strict=False)]
    goal = np.mean([np.log(view.std(axis=0)) for view in known], axis=0)
    rows = new * gains[4] + world.new(1.0)
    adapted = m.adapt(rows, "C", n_participants=8).transform(rows)
    apart = [np.abs(np.log(X.std(axis=0)) - goal).mean() for X in (rows, adapted)]
    assert apart[1] < 0.5 * apart[0]
    old = replace(
        without_fading(m), population=replace(m.population, gains=np.zeros((0, 0)))
    )  # an older file
    level = old.adapt(rows, "C", n_participants=8).transform(rows)
    np.testing.assert_allclose(level.std(axis=0), rows.std(axis=0), rtol=0.05)


def test_a_second_device_is_added_as_well_as_the_first(world, m):
    events, shifts = world.content(300)[0], [world.new(1.5), world.new(1.5)]
    goal = m.transform(world.see(events, world.shifts[0]))
    batches = [world.see(world.content(200)[0], shift) for shift in shifts]
    both = m.adapt(batches[0], "C", n_participants=8).adapt(batches[1], "D", n_participants=8)
    alone = m.adapt(batches[1], "D", n_participants=8)
    new = world.see(events, shifts[1])
    apart = [np.mean((f.transform(new) - goal) ** 2) for f in (both, alone)]
    assert apart[0] < 1.2 * apart[1]
    np.testing.assert_allclose(both.population.gains[4], both.population.gains[:4].mean(axis=0), atol=0.2)


def test_adapting_is_refused_with_a_reason(world, m):
    rows = world.rows(20, world.new())
    for wrong, message in (
        (lambda: m.adapt(rows[:3]), "X has 3 rows"),
        (lambda: m.adapt(rows, "B1"), "is a device of the fit"),
        (lambda: m.add_source("C", (rows, rows[:4]), known="B0"), "the same events on both devices"),
        (lambda: m.add_source("C", (rows, rows), known="Z"), "fitted on B0, B1, B2, B3"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()
    with pytest.raises(MapError, match="no population of devices"):
        replace(m, population=None).adapt(rows)


def test_a_map_of_before_works_and_says_that_it_cannot_tell(world, m, tmp_path):
    old = mgpa.load_map(replace(m, population=None).save(tmp_path / "m.safetensors"))
    rows = world.rows(50, world.new(1.0))
    np.testing.assert_array_equal(old.transform(rows), m.transform(rows))
    check = old.check(rows)
    assert check.not_checked == (
        "This map cannot recognise devices that were not in its fit: it has no population of devices."
    )
    assert not check.unknown_device
    with pytest.raises(MapError, match="cannot recognise"):
        old.monitor()


def test_a_stream_of_batches_gives_the_same_population(world):
    X = np.concatenate([world.rows(100, shift) for shift in world.shifts])
    source = np.repeat(["a", "b", "c", "d"], 100)
    one, several = mgpa.baselines.make_method("leace"), mgpa.baselines.make_method("leace")
    whole = one.fit(X, source=source, groups=np.arange(400) // 50).to_map().population
    for part in np.split(np.arange(400), 4):
        several.partial_fit(X[part], source=source[part], groups=part // 50)
    streamed = several.to_map().population
    for name, array in whole.arrays.items():
        np.testing.assert_allclose(streamed.arrays[name], array, atol=1e-9, err_msg=name)


def test_few_rows_have_no_population_and_say_so():
    X = np.random.default_rng(0).normal(size=(12, 3))
    assert fit_population(sample_windows(LabelledRows(X, np.repeat(["a", "b"], 6)))) is None


def test_density_and_mixture_agree_with_their_definitions():
    scipy_stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    scatter, gaps = root @ root.T + np.eye(4), rng.normal(size=(5, 4))
    expected = scipy_stats.multivariate_t(np.zeros(4), scatter, df=7).logpdf(gaps)
    np.testing.assert_allclose(log_density(gaps, scatter, 7.0) - 2 * np.log(np.pi), expected)
    centers = rng.normal(size=(3, 4))
    shares = nearest_mixture(np.array([0.2, 0.5, 0.3]) @ centers, centers, np.eye(4))
    np.testing.assert_allclose(shares, [0.2, 0.5, 0.3], atol=1e-3)
    assert alike(rng.normal(size=(400, 4))) < 1.5
    assert alike(np.repeat(rng.normal(size=(40, 4)), 10, axis=0)) > 5


@pytest.mark.skipif(not (SHARED / "real" / "gas_boards.npz").exists(), reason="needs the real measurements")
def test_boards_that_were_not_in_the_fit_are_noticed_and_adapted_to():
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = np.load(SHARED / "real" / "gas_boards.npz")
    X = np.sign(data["X"]) * np.log1p(np.abs(data["X"])).astype(float)
    event = [
        f"{g} {c} {r}" for g, c, r in zip(data["gas"], data["concentration"], data["replicate"], strict=True)
    ]
    scores = []
    for board in np.unique(data["board"]):
        fit = data["board"] != board
        model = mgpa.MGPA().fit(X[fit], source=data["board"][fit], pair_id=np.array(event)[fit])
        m = model.to_map()
        assert m.check(X[~fit]).unknown_device
        assert m.check(X[~fit][::16]).unknown_device
        assert not m.check(X[fit]).unknown_device
        assert not m.check(X[fit], source=data["board"][fit]).unknown_device
        head = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
        head.fit(m.transform(X[fit]), data["gas"][fit])
        scores.append(head.score(m.adapt(X[~fit]).transform(X[~fit]), data["gas"][~fit]))
    assert np.mean(scores) >= 0.92


# Rows that no device explains, one by one


def gain_world(seed=0, n_devices=5, d=24, events=150):
    """Return views of events by devices that differ by shift, gain and rotation: rows, devices, events."""
    rng = np.random.default_rng(seed)
    content = rng.normal(size=(events, 6)) @ rng.normal(size=(6, d)) + 0.3 * rng.normal(size=(events, d))
    views = []
    for _ in range(n_devices):
        turn = np.eye(d) + 0.15 * rng.normal(size=(d, d)) / np.sqrt(d)
        seen = content @ turn * np.exp(0.2 * rng.normal(size=d)) + 3.0 * rng.normal(size=d)
        views.append(seen + 0.1 * rng.normal(size=seen.shape))
    device = np.repeat([f"B{k}" for k in range(n_devices)], events)
    return np.concatenate(views), device, np.tile(np.arange(events), n_devices)


@pytest.fixture(scope="module", params=[None, "B0"], ids=["mean", "reference"])
def fading(request):
    X, device, event = gain_world()
    fit = device != "B4"
    model = mgpa.MGPA(reference=request.param).fit(X[fit], source=device[fit], pair_id=event[fit])
    return model, X, device, event


def test_rows_of_an_unknown_device_are_brought_nearer_one_by_one_and_known_ones_stay(fading):
    model, X, device, _ = fading
    m, new, known = model.to_map(), X[device == "B4"], X[device != "B4"]
    before = without_fading(m)
    assert (m.unseen(new) > 0.9).mean() > 0.99
    assert (m.unseen(known) > 0.5).mean() <= 0.01
    assert not before.unseen(new).any()
    goal = np.mean([before.transform(X[device == f"B{k}"]) for k in range(4)], axis=0)
    far = [np.mean(((part.transform(new) - goal) / m.scale) ** 2) for part in (m, before)]
    assert far[0] < 0.3 * far[1]
    assert far[0] < 0.3 * np.mean(((new - goal) / m.scale) ** 2)
    same = np.abs(m.transform(known) - before.transform(known)).max(axis=1)
    assert (same < 1e-2 * np.abs(known).max()).mean() > 0.98
    np.testing.assert_allclose(m.posterior(X).sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.transform(X), m.transform(X))


def test_the_evidence_says_what_leaving_devices_out_showed(fading):
    model, *_ = fading
    words = model.to_map().info.evidence
    shares = re.search(
        r"no device explains are moved by a regression: .* known devices (.*), "
        r"left as they are (.*), moved by a regression ([.\d]+)",
        words,
    )
    known, unmoved, regressed = map(float, shares.groups())
    assert regressed < min(known, unmoved)


def test_adding_the_device_makes_its_rows_known(fading):
    model, X, device, event = fading
    m, new = model.to_map(), device == "B4"
    few = event < 20
    pairs = X[(device == "B0") & few], X[new & few]
    for added in (m.adapt(X[new], "B4"), m.add_source("B4", pairs, known="B0")):
        assert (added.unseen(X[new]) < 0.5).mean() > 0.95
        assert (added.unseen(X[new] + 9.0 * m.scale) > 0.5).all()  # others are still unknown
        assert (added.unseen(X[~new]) > 0.5).mean() <= 0.02


def test_two_devices_say_nothing_about_a_third_and_files_without_the_component_are_as_before(tmp_path):
    X, device, event = gain_world()
    two = np.isin(device, ["B0", "B1"])
    m = mgpa.MGPA().fit(X[two], source=device[two], pair_id=event[two]).to_map()
    assert isinstance(m, PosteriorMap)
    assert m.unseen_odds is None
    assert "no device explains" not in m.info.evidence
    assert not m.unseen(X).any()
    with pytest.raises(MapError, match="missing; expected all of unseen_whiten"):
        replace(m, unseen_odds=np.zeros(1))
    path = m.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(mgpa.load_map(path).transform(X), m.transform(X))


@pytest.mark.skipif(not (SHARED / "real" / "gas_boards.npz").exists(), reason="needs the gas boards")
def test_a_board_that_is_left_out_is_read_as_well_as_without_correction_row_by_row():
    data = np.load(SHARED / "real" / "gas_boards.npz")
    X = np.sign(data["X"]) * np.log1p(np.abs(data["X"])).astype(float)
    board, gas = data["board"], data["gas"]
    names = zip(gas, data["concentration"], data["replicate"], strict=True)
    event = np.array([" ".join(name) for name in names])
    for left in np.unique(board):
        fit, new = board != left, board == left
        m = mgpa.MGPA().fit(X[fit], source=board[fit], pair_id=event[fit]).to_map()
        plain, corrected = (
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(rows, gas[fit])
            for rows in (X[fit], m.transform(X[fit]))
        )
        uncorrected = plain.score(X[new], gas[new])
        assert corrected.score(m.transform(X[new]), gas[new]) > max(0.93, uncorrected - 0.02)
