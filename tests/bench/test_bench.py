"""The benchmark: what it measures is what it says, and it resumes, reproduces and refuses."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

from mgpa.bench import (
    METHODS,
    Events,
    Method,
    Setting,
    build,
    estimator,
    find_methods,
    find_settings,
    protocol,
    rotate,
    run,
)
from mgpa.bench.datasets import DATASETS, amplitudes, data_sets
from mgpa.bench.fetch import FACTS
from mgpa.bench.page import CEILING, compare, read_results, sentences, standing, where_not
from mgpa.bench.protocol import QUICK_BANK, measure_cell, measure_round, prepare
from mgpa.bench.settings import calibration, record_once
from mgpa.bench.worlds import World, worlds

DOCS = Path(__file__).resolve().parents[2] / "docs"


def small_events(n=480, people=8, devices=2, shift=1.5, seed=0):
    rng = np.random.default_rng(seed)
    label = np.tile(["no", "yes"], n // 2)
    content = rng.normal(size=(n, 5)) + 2.5 * (label == "yes")[:, None] * np.eye(5)[0]
    views = [content + k * shift * np.ones(5) + 0.1 * rng.normal(size=(n, 5)) for k in range(devices)]
    person = np.array([f"P{i * people // n}" for i in range(n)])
    return Events(np.stack(views), tuple("abc"[:devices]), label, person)


def small_setting(**options):
    events = small_events(**options)
    return Setting("small", "shifted", lambda quick: rotate(events))


class Undo:
    """A correction that knows the answer: takes the shift off, told the device."""

    def fit(self, X, source, pairs):
        self.shift = (pairs[1] - pairs[0]).mean(axis=0)
        return self

    def transform(self, X, source):
        return X - np.asarray(source)[:, None] * self.shift


def test_people_who_are_scored_are_in_no_fit_and_everybody_is_scored_once():
    events, scored = small_events(), []
    for part in rotate(events):
        people = [set(e.participant) for e in (part.evaluation, part.head, part.singles, part.pairs)]
        assert not people[0] & (people[1] | people[2] | people[3])
        assert not people[1] & (people[2] | people[3])
        assert part.pairs.seen.all()
        assert (part.singles.seen.sum(axis=0) == 1).all()
        scored += list(people[0])
    assert sorted(scored) == sorted(set(events.participant))


def test_single_recordings_go_with_their_class_nine_to_one():
    once = record_once(small_events(n=4000), np.random.default_rng(0))
    assert np.mean(once.seen[1][once.label == "yes"]) == pytest.approx(0.9, abs=0.02)
    assert np.mean(once.seen[1][once.label == "no"]) == pytest.approx(0.1, abs=0.02)


def test_home_and_away_are_the_balanced_accuracies_of_a_decoder_of_one_device():
    part = next(rotate(small_events()))
    prepared = prepare(part, QUICK_BANK)
    measured = measure_round(prepared, METHODS[0], 0)
    expected = {"home": [], "away": []}
    X = calibration(part, np.zeros(5), np.ones(5)).X
    head, held = ((e.views - X.mean(axis=0)) / X.std(axis=0) for e in (part.head, part.evaluation))
    for k in (0, 1):
        ridge = RidgeClassifier(alpha=10, class_weight="balanced", solver="lsqr")
        decoder = make_pipeline(StandardScaler(), ridge).fit(head[k], part.head.label)
        for name, device in (("home", k), ("away", 1 - k)):
            predicted = decoder.predict(held[device])
            people = part.evaluation.participant
            expected[name].append(
                [balanced_accuracy_score(part.evaluation.label[people == p], predicted[people == p])
                 for p in np.unique(people)]
            )  # fmt: skip
    for name, values in expected.items():
        np.testing.assert_allclose(measured[name], np.mean(values, axis=0), atol=1e-12)


def test_a_correction_that_knows_the_answer_reaches_home_accuracy():
    cell = measure_cell(small_setting(), Method("undo", estimator(Undo, told=True), told=True), True)
    before = measure_cell(small_setting(), METHODS[0], True)
    assert cell["S"][0] < 0.65 < 0.95 < before["S"][0]
    assert cell["away"][0] == pytest.approx(cell["home"][0], abs=0.03)
    assert before["away"][0] < cell["away"][0] - 0.1
    assert cell["worst"][0] > before["worst"][0]
    assert before["M"][0] == 0.0 < cell["M"][0]


def test_a_device_left_out_is_in_no_fit():
    seen = []

    class Spy:
        def fit(self, X, source, pairs=None, pair_id=None):
            seen.append(sorted(set(np.asarray(source).tolist())))
            return self

        def transform(self, X):
            return X

    cell = measure_cell(small_setting(devices=3), Method("spy", estimator(Spy)), True)
    assert seen == [[0, 1, 2], [0, 1], [0, 1], [0, 1]]
    assert "unseen" in cell
    assert "unseen" not in measure_cell(small_setting(devices=3), find_methods(["z-scores"])[0], True)


def test_a_run_resumes_and_gives_the_same_numbers(tmp_path):
    setting, methods = small_setting(), find_methods(["no correction", "to the midpoint"])
    first = run([setting], methods[:1], tmp_path / "a", quick=True, verbose=False)
    stored = (tmp_path / "a" / "small.json").read_bytes()
    run([setting], methods[:1], tmp_path / "a", quick=True, verbose=False)
    assert (tmp_path / "a" / "small.json").read_bytes() == stored
    again = run([setting], methods, tmp_path / "a", quick=True, verbose=False)
    other = run([setting], methods, tmp_path / "b", quick=True, verbose=False)

    def numbers(results):
        cells = results["small"]["settings"]["shifted"]
        changes = ("seconds", "measured")
        return {name: {k: v for k, v in cell.items() if k not in changes} for name, cell in cells.items()}

    assert numbers(again) == numbers(other)
    assert numbers(first).items() <= numbers(again).items()
    with pytest.raises(ValueError, match="other settings"):
        run([setting], methods, tmp_path / "a", quick=False, verbose=False)


def test_a_method_is_measured_again_if_asked(tmp_path):
    setting, options = small_setting(), {"quick": True, "verbose": False}
    run([setting], METHODS[:1], tmp_path, commit="aaaaaaaa", **options)
    run([setting], find_methods(["no correction", "LEACE"]), tmp_path, commit="bbbbbbbb", **options)
    page = build(tmp_path).read_text("utf-8")
    today = "20\\d\\d-\\d\\d-\\d\\d"
    assert re.search(rf"LEACE: commit bbbbbbbb, {today}. All others: commit aaaaaaaa, {today}. With", page)
    run([setting], METHODS[:1], tmp_path, commit="cccccccc", again=True, **options)
    cells = read_results(tmp_path)["small"]["settings"]["shifted"]
    assert [cells[name]["measured"][:15] for name in ("no correction", "LEACE")] == [
        "commit cccccccc",
        "commit bbbbbbbb",
    ]


def test_a_cell_is_measured_with_one_thread():
    threads = []

    def spy(data, reference):
        threads.extend(pool["num_threads"] for pool in threadpool_info())
        return lambda rows, device: rows

    with threadpool_limits(2):
        measure_cell(small_setting(), Method("spy", spy), True)
    assert threads
    assert set(threads) == {1}


def test_what_cannot_be_fitted_is_a_dash_with_a_note(tmp_path):
    def absent(data, reference):
        raise ModuleNotFoundError("No module named 'absent'", name="absent")

    def fails(data, reference):
        raise RuntimeError("singular | matrix")

    entries = [METHODS[0], Method("not here", absent), Method("fails", fails)]
    run([small_setting()], entries, tmp_path, quick=True, verbose=False)
    page = build(tmp_path).read_text("utf-8")
    assert re.search(r"\| not here \|( – \|)+ not installed: absent \|", page)
    assert re.search(r"\| fails \|( – \|)+ RuntimeError: singular / matrix \|", page)


def test_means_are_of_the_settings_in_which_there_is_something(tmp_path):
    def fails_on_480(data, reference):
        if len(data.X) == 120:
            raise RuntimeError("too large")
        return lambda rows, device: rows

    partly = Method("partly", fails_on_480)
    settings = [
        Setting("small", f"{n} events", lambda quick, n=n: rotate(small_events(n=n))) for n in (320, 480)
    ]
    settings.append(Setting("small", "three devices", lambda quick: rotate(small_events(n=160, devices=3))))
    run(settings, [METHODS[0], partly], tmp_path, quick=True, verbose=False)
    page, cells = build(tmp_path).read_text("utf-8"), read_results(tmp_path)["small"]["settings"]
    assert "| unseen device (1 setting) |" in page
    ran = [cells[name]["partly"]["away"][0] for name in cells if "away" in cells[name]["partly"]]
    assert len(ran) == 2
    row = next(line for line in page.splitlines() if line.startswith("| partly |"))
    assert row.split("|")[4].strip() == f"{np.mean(ran):.3f}".lstrip("0")
    assert row.endswith("| mean of 2 of 3 settings; RuntimeError: too large |")
    assert ">partly<" not in (tmp_path / "results.svg").read_text("utf-8")


def test_standing_counts_ties_by_the_interval():
    def cell(values, told=False):
        return {"told": told, "away": [float(np.mean(values)), 0, 1], "away_of_each": list(values)}

    rng = np.random.default_rng(0)
    base = 0.8 + 0.05 * rng.normal(size=20)
    noise = 0.05 * rng.normal(size=20)
    near = cell(base - 0.005 + noise - noise.mean())
    cells = {"LEACE": cell(base), "MGPA to the reference": near, "MGPA to the midpoint": cell(base - 0.1)}
    cells["told regression (ceiling)"] = cell(base + 0.01, told=True)
    cells["told regression (midpoint)"] = cell(base - 0.085, told=True)
    judged = standing(cells)
    assert judged["MGPA to the reference"]["first"]
    assert not judged["MGPA to the reference"]["highest"]
    assert judged["MGPA to the reference"]["close"]
    assert not judged["MGPA to the midpoint"]["first"]
    assert judged["MGPA to the midpoint"]["close"]  # to the regression to the midpoint
    assert not judged["MGPA to the midpoint"]["near_ceiling"]
    cells["told regression (midpoint)"] = cell(base - 0.075, told=True)
    assert not standing(cells)["MGPA to the midpoint"]["close"]
    cells["of another package"] = cell(base + 0.2)
    assert not standing(cells)["MGPA to the reference"]["first"]
    assert standing(cells)["MGPA to the reference"]["best"] == "of another package"


def test_a_tie_away_from_home_with_a_loss_at_home_is_counted():
    def cell(home):
        return {"told": False, "home": [home, 0, 1], "away": [0.7, 0, 1], "away_of_each": [0.6, 0.7, 0.8]}

    cells = {"no correction": cell(0.8), "LEACE": cell(0.8), "MGPA to the midpoint": cell(0.5)}
    cases = {"falls": 0.78, "hardly falls": 0.795, "rises": 0.9}
    results = {
        "mine": {"settings": {n: cells | {"MGPA to the reference": cell(h)} for n, h in cases.items()}}
    }
    [first] = [line for line in sentences(results) if "or ties with the best" in line]
    assert "to the reference (3 of 3 settings" in first
    assert "at home falls by more than .01 in 1 of 3 settings, of which 1 count here as best or tied" in first
    assert where_not(results) == ["- mine, falls: MGPA to the reference -.020 at home, against no correction"]


def test_worlds_differ_as_they_say():
    part = next(worlds()["shift"].rounds(True))
    contrast = part.pairs.views[1] - part.pairs.views[0]
    assert np.linalg.norm(contrast.mean(axis=0)) == pytest.approx(2, abs=0.2)
    part = next(worlds()["gain 1.5 of all"].rounds(True))
    assert np.std(part.head.views[1]) / np.std(part.head.views[0]) == pytest.approx(1.5, abs=0.02)
    assert isinstance(worlds()["5 devices, shift"], World)
    assert len(next(worlds()["5 devices, shift"].rounds(True)).pairs.devices) == 5


def test_amplitudes_see_a_flicker_in_its_band():
    time = np.arange(1280) / 256
    bands = amplitudes(np.sin(2 * np.pi * 13 * time)[None, None], 256.0)
    assert bands.shape == (1, 10)
    assert bands[0].argmax() == 2


def test_data_sets_say_what_they_are_and_what_is_missing(tmp_path):
    for data in DATASETS.values():
        assert data.license
        assert data.citation
        assert data.size
    settings, missing = find_settings(["kalunga_tokens"], tmp_path, False)
    assert not settings
    assert missing == [line for line in missing if "kalunga_gssc_tokens.npz" in line] != []
    np.savez(
        tmp_path / "corn_nir.npz", spectra=np.random.default_rng(0).normal(size=(80, 3, 9)),
        instruments=["m5", "mp5", "mp6"], targets=np.random.default_rng(1).normal(size=(80, 2)),
        target_names=["oil", "starch"],
    )  # fmt: skip
    settings, missing = find_settings(["corn"], tmp_path, False)
    assert [s.name for s in settings] == ["oil", "starch"]
    assert not missing
    part = next(settings[0].rounds())
    assert part.pairs.devices == ("m5", "mp5", "mp6")
    assert not len(part.singles)


def test_a_data_set_without_its_function_is_an_error():
    assert list(data_sets(FACTS)) == list(DATASETS)
    without = {name: fact for name, fact in FACTS.items() if name != "corn"}
    for facts, name in ((FACTS | {"rings": FACTS["corn"]}, "rings"), (without, "corn")):
        with pytest.raises(
            ValueError, match=f"^{name}: a data set needs an entry in datasets.toml and a line"
        ):
            data_sets(facts)


def test_the_page_of_the_site_is_built_from_its_stored_results(tmp_path):
    for path in (DOCS / "bench").glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert build(tmp_path).read_text("utf-8") == (DOCS / "bench" / "results.md").read_text("utf-8")
    assert (tmp_path / "results.svg").stat().st_size > 5000
    names = {method.name for method in METHODS}
    for data, result in read_results(DOCS / "bench").items():
        for cells in result["settings"].values():
            assert set(cells) <= names
            for cell in cells.values():
                assert re.fullmatch(r"(commit [0-9a-f]{7,}, 20\d\d-\d\d-\d\d(; )?)+", cell["measured"]), data


def test_the_page_says_why_the_midpoint_is_behind_a_regression_that_is_told():
    results = read_results(DOCS / "bench")
    behind = {
        (data, name): (standing(cells)["MGPA to the midpoint"]["told"], cells["no correction"]["S"][0])
        for data, result in results.items()
        for name, cells in result["settings"].items()
        if not standing(cells)["MGPA to the midpoint"]["close"]
    }
    readable = [S for (data, _), (_, S) in behind.items() if data == "electrodes"]
    others = [gap for (data, _), (gap, _) in behind.items() if data != "electrodes"]
    unsure = [gap for gap in others if gap.low < 0 < gap.high]
    assert (len(behind), len(readable), len(others), len(unsure)) == (8, 5, 3, 2)
    page = " ".join((DOCS / "bench.md").read_text("utf-8").split())
    S = [f"{value:.2f}".lstrip("0") for value in (min(readable), max(readable))]
    assert "Of the eight settings" in page
    assert "five are electrodes" in page
    assert f"an AUROC of {S[0]} to {S[1]} from uncorrected rows" in page
    assert "In two of the other three settings, the interval contains zero." in page


def test_the_page_on_harm_has_the_numbers_of_the_benchmark():
    page = " ".join((DOCS / "do_no_harm.md").read_text("utf-8").split())
    results = read_results(DOCS / "bench")

    def mean(data, name, measure, digits=3):
        cells = [cells[name] for cells in results[data]["settings"].values()]
        return f"{np.mean([cell[measure][0] for cell in cells]):.{digits}f}".lstrip("0")

    for data in ("electrodes", "wearable_hrv"):
        measured = [
            [mean(data, name, m, digits) for name in ("no correction", "MGPA to the reference", CEILING)]
            for m, digits in (("home", 3), ("away", 3), ("S", 2))
        ]
        (h0, h1, h2), (a0, a1, a2), S = measured
        accuracies = f"{h0} and {a0} without correction, {h1} and {a1} with MGPA, and {h2} and {a2} with the"
        assert f"{accuracies} regression. *S* is {S[0]}, {S[1]} and {S[2]}." in page
    worst = results["electrodes"]["settings"]["Lemon and Wang: Cz, T7"]
    before, after = worst["no correction"], worst["MGPA to the reference"]
    words = [f"{before[m][0]:.3f} → {after[m][0]:.3f}".replace("0.", ".") for m in ("home", "away")]
    assert f"{words[0]} at home and {words[1]} away" in page


def test_results_are_compared_value_by_value(tmp_path):
    run([small_setting()], METHODS[:1], tmp_path / "a", quick=True, verbose=False)
    run([small_setting()], METHODS[:1], tmp_path / "b", quick=True, verbose=False)
    path = tmp_path / "b" / "small.json"
    stored = json.loads(path.read_text("utf-8"))
    cell = stored["settings"]["shifted"]["no correction"]
    n = sum(name in cell for name in protocol.MEASURES[:-1])
    assert f"{n} of {n} measures and their intervals are within .005" in compare(
        tmp_path / "a", tmp_path / "b"
    )
    cell["home"][2] += 0.04
    path.write_text(json.dumps(stored), "utf-8")
    said = compare(tmp_path / "a", tmp_path / "b")
    assert f"{n - 1} of {n} measures" in said
    assert "largest difference is .040 (home of no correction in small, shifted)." in said


def test_the_command_runs_and_rebuilds_its_page(tmp_path, monkeypatch, capsys):
    pytest.importorskip("cyclopts")
    from mgpa.cli import main

    monkeypatch.chdir(tmp_path)
    command = ["bench", "--quick", "--out", "b", "--only", "headsets", "--methods", "no correction"]
    assert main(command) == 0
    assert main([*command, "to the ref"]) == 0  # added to what is there
    made = Path("b/results.md").read_bytes()
    assert b"| MGPA to the reference |" in made
    assert json.loads(Path("b/headsets.json").read_text())["quick"] is True
    assert main(["bench", "--page", "--out", "b"]) == 0
    assert Path("b/results.md").read_bytes() == made
    assert main(["bench", "--only", "nowhere", "--out", "b"]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_the_same_rows_are_read_once(monkeypatch):
    calls = []
    measured = protocol.source_accessibility
    monkeypatch.setattr(protocol, "source_accessibility", lambda *args: calls.append(1) or measured(*args))
    setting, copies = (
        small_setting(seed=5),
        Method("copies", lambda data, reference: lambda rows, device: rows + 0),
    )
    first = measure_cell(setting, METHODS[0], True)
    assert measure_cell(setting, copies, True)["S"] == first["S"]
    assert len(calls) == 1
    assert measure_cell(setting, find_methods(["LEACE"])[0], True)["S"] != first["S"]
    assert len(calls) == 2


def test_a_command_whose_data_are_missing_says_what_they_need(tmp_path, capsys):
    pytest.importorskip("cyclopts")
    from mgpa.cli import main

    assert main(["bench", "--only", "kalunga_tokens", "--out", str(tmp_path / "out")]) != 0
    printed = capsys.readouterr()
    assert "put kalunga_gssc_tokens.npz in the folder of --data" in printed.out
    assert "kalunga_tokens in its name, or its data are missing (see above)." in printed.err
    assert main(["bench", "--only", "worlds", "no such world", "--out", str(tmp_path / "out")]) != 0
    assert "No data set or setting has worlds or no such world in its name." in capsys.readouterr().err
