"""One call measures everything, finishes what was begun, and drops nobody quietly."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import mgpa
from mgpa import audit
from mgpa.audit.diagnostics import confounding, cramers_v, reliability, variance_shares
from mgpa.audit.store import Store, key_of
from mgpa.baselines import make
from simulated import simulated_table

SMALL = {"restarts": 1, "checkpoints": (3,)}
LINEAR = {"restarts": 0}


def run(table, methods, **changes):
    return audit.run(table, methods, **({"readers": LINEAR, "verbose": False, "seeds": (17, 29)} | changes))


@pytest.fixture(scope="module")
def table():
    return simulated_table()


@pytest.fixture(scope="module")
def found(table):
    methods = {
        "leace": "leace",
        "mgpa": mgpa.ClosedFormMGPA(gate=mgpa.MeasurementGate(rank=1)),
        "iterative": mgpa.IterativeMGPA(n_stages=6, critics=("linear",), do_no_harm=False),
        "coral": "coral",
        "igbp": make("igbp", n_stages=2, max_epochs=2),
    }
    return run(table, methods, readers=SMALL)


def same(a, b):
    assert a.methods == b.methods
    for name in a:
        for x, y in zip(a[name].cells, b[name].cells, strict=True):
            assert x.keys() == y.keys()
            for key in x:
                np.testing.assert_array_equal(x[key], y[key], err_msg=f"{name} {key}")
    assert str(a) == str(b)


def test_everything_is_measured(found, table):
    people = sorted(set(table.rows("EVAL").participant))
    assert found.methods == ("identity", "leace", "mgpa", "iterative", "coral", "igbp")
    assert found.metrics == ("S", "T_f", "T_r", "M", "worst", "control")
    for name in found:
        result = found[name]
        assert result.participants == tuple(people)
        assert result.source_auroc.shape == (result.n_fits, len(people), 3)
        assert result.frozen.shape == (result.n_fits, len(people), 2)
    assert found["igbp"].n_fits == 2
    assert found["iterative"].n_fits == 2
    assert found["leace"].n_fits == 1
    assert found["coral"].source_blind is False
    assert found["identity"].estimate("M").value == 0
    np.testing.assert_array_equal(found["identity"].frozen, found["identity"].refitted)


def test_the_verdicts_are_right_on_a_problem_with_a_known_answer(found):
    S = {name: found.estimates[name]["S"].value for name in found}
    assert S["identity"] > 0.9
    assert S["mgpa"] < 0.62
    assert found.contrast("mgpa", metric="S").high < 0
    assert found.contrast("mgpa", metric="T_f").low > -0.02
    assert found.contrast("mgpa", "leace", "worst").value > 0
    text = "\n".join(found.verdict("mgpa"))
    assert "harder to read" in text
    assert "What the gate preserves" in text
    assert abs(found.estimates["mgpa"]["floor"].value - S["mgpa"]) < 0.08
    assert found.confounding.source_label > 0.4
    assert "strong association" in found.confounding.sentences()[0]


def test_measurements_equal_their_parts(found, table):
    head, evaluation, fit = (table.rows(r) for r in ("HEAD", "EVAL", "FIT"))
    mean, spread = fit.X.mean(axis=0), fit.X.std(axis=0)
    H, E = ((part.X - mean) / spread for part in (head, evaluation))
    reader = LogisticRegression(C=1.0, max_iter=2500, class_weight="balanced").fit(H, head.source)
    by_hand = audit.participant_auroc(reader.decision_function(E), evaluation.source, evaluation.participant)
    np.testing.assert_allclose(found["identity"].source_auroc[0, :, 0], by_hand.values, atol=1e-12)
    m = mgpa.ClosedFormMGPA(gate=mgpa.MeasurementGate(rank=1))
    val = table.rows("VAL")
    m.fit(fit.X, source=fit.source, pair_id=fit.pair_id)
    corrected = (m.transform(evaluation.X) - mean) / spread
    moved = audit.movement(E, corrected, evaluation.participant)[1]
    np.testing.assert_allclose(found["mgpa"].movement[0], moved, rtol=1e-6)
    expected = mgpa.endpoint.relative_movement(m, val.X)
    assert found["mgpa"].facts[0]["validation_movement"] == pytest.approx(expected)
    assert found["mgpa"].facts[0]["complement_drift"] < 1e-12
    assert 0.8 < found["mgpa"].facts[0]["gate_coverage"] <= 1 + 1e-9


def test_frames(found):
    pytest.importorskip("pandas")
    frame = found.table()
    assert list(frame.index) == list(found.methods)
    assert frame.loc["mgpa", ("S", "value")] == found.estimates["mgpa"]["S"].value
    differences = found.table("leace")
    assert "leace" not in differences.index
    assert differences.loc["mgpa", ("S", "value")] == found.contrast("mgpa", "leace", "S").value
    people = found.participants()
    one = people[(people.method == "leace") & (people.metric == "source") & (people.part == "linear")]
    np.testing.assert_array_equal(one.value, found["leace"].source_auroc[0, :, 0])


def test_influence_and_reliability(found):
    influence = found["mgpa"].influence("T_f")
    assert influence.shape == (len(found["mgpa"].participants),)
    without_first = found["mgpa"].values("T_f")[1][:, 1:].mean()
    assert influence[0] == pytest.approx(without_first)
    change = found.influence("mgpa", metric="T_f")
    np.testing.assert_allclose(change, influence - found["identity"].influence("T_f"))
    calibration = found.reliability("identity")
    assert calibration.count.sum() == len(found["identity"].cells[0]["source_scores"])
    assert 0 <= calibration.error <= 1
    with pytest.raises(ValueError, match="There is no reader 'oracle'"):
        found.reliability("identity", "oracle")


def test_a_result_can_be_pickled(found):
    same(found, pickle.loads(pickle.dumps(found)))


def test_finished_cells_are_read_and_equal(table, tmp_path, capsys):
    methods = {"leace": "leace", "igbp": make("igbp", n_stages=1, max_epochs=2)}
    first = run(table, methods, cache=tmp_path, verbose=True)
    files = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    capsys.readouterr()
    again = run(table, methods, cache=tmp_path, verbose=True)
    assert "4 fits, 4 of them finished before" in capsys.readouterr().err
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == files
    same(first, again)
    same(first, run(table, methods))
    more = run(table, methods | {"ncm": make("ncm", rank=1)}, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == len(files) + 3
    np.testing.assert_array_equal(more["leace"].source_auroc, first["leace"].source_auroc)


def test_other_data_or_settings_are_other_cells(table, tmp_path):
    run(table, ["leace"], cache=tmp_path)
    n = len(list(tmp_path.glob("*[!l]")))  # timings.jsonl aside
    run(simulated_table(seed=1), ["leace"], cache=tmp_path)
    run(table, {"leace": make("leace", ridge=0.5)}, cache=tmp_path)
    assert len(list(tmp_path.glob("*[!l]"))) == 2 * n + 3


def test_a_damaged_cell_is_computed_again(table, tmp_path):
    first = run(table, ["leace"], cache=tmp_path)
    victim = max(tmp_path.glob("*.npz"), key=lambda path: path.stat().st_size)
    victim.write_bytes(victim.read_bytes()[:100])
    with pytest.warns(UserWarning, match="cannot be read"):
        same(first, run(table, ["leace"], cache=tmp_path))


@pytest.mark.parametrize("n_jobs", [2])
def test_parallel_equals_serial(table, n_jobs):
    methods = {"leace": "leace", "ncm": make("ncm", rank=1)}
    same(run(table, methods), run(table, methods, n_jobs=n_jobs))


def test_dask_workers_give_the_same_numbers(table):
    distributed = pytest.importorskip("distributed")
    import joblib

    methods = {"leace": "leace", "ncm": make("ncm", rank=1)}
    expected = run(table, methods)
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50
    )
    with cluster, distributed.Client(cluster), joblib.parallel_config("dask"):
        same(expected, run(table, methods, n_jobs=2))


KILLED = """
import sys
sys.path.insert(0, {tests!r})
from test_audit_run import killable
killable({cache!r})
"""


def killable(cache):
    methods = {"leace": "leace", "igbp": make("igbp", n_stages=2, max_epochs=3), "coral": "coral"}
    return run(simulated_table(), methods, cache=cache, readers=SMALL)


def test_killed_anywhere_it_finishes_with_the_same_bits(tmp_path):
    expected = killable(tmp_path / "whole")
    script = KILLED.format(tests=str(Path(__file__).parents[1]), cache=str(tmp_path / "killed"))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    rng = np.random.default_rng()  # a different moment every time
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(1.0, 5.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
    same(expected, killable(tmp_path / "killed"))


def test_budgets_compare_at_equal_movement(table):
    found = run(table, {"leace": "leace", "coral": "coral"}, budget=0.1)
    for name in ("leace", "coral"):
        assert found[name].facts[0]["validation_movement"] == pytest.approx(0.1)
    with pytest.raises(mgpa.endpoint.BudgetNotAttained):
        run(table, ["leace"], budget=50.0)


def test_maps_and_fitted_estimators_are_taken_as_they_are(table):
    fit = table.rows("FIT")
    model = make("leace").fit(fit.X, source=fit.source)
    found = run(table, {"fitted": model, "map": model.to_map(), "half": model.to_map().with_strength(0.5)})
    np.testing.assert_array_equal(found["fitted"].source_auroc, found["map"].source_auroc)
    assert found["half"].estimate("M").value == pytest.approx(found["map"].estimate("M").value / 2)
    several = run(table, {"both": [model.to_map(), model.to_map().with_strength(0.5)]})
    assert several["both"].n_fits == 2


def test_pairs_may_come_from_elsewhere(table):
    fit = table.rows("FIT")
    first, second = fit.paired_views()
    pairs = fit.X[first], fit.X[second]
    loose = simulated_table(pair_id=None)
    found = run(loose, {"mgpa": mgpa.ClosedFormMGPA()}, pairs=pairs)
    assert found.metrics == ("S", "T_f", "T_r", "M")  # no paired events to shift the association of
    expected = run(table, {"mgpa": mgpa.ClosedFormMGPA()})
    np.testing.assert_allclose(found["mgpa"].source_auroc, expected["mgpa"].source_auroc, atol=1e-9)
    with pytest.raises(ValueError, match="association shift needs paired events"):
        found["mgpa"].values("worst")


def test_without_labels_the_source_is_still_audited():
    found = run(simulated_table(label=None), ["leace"])
    assert found.metrics == ("S", "M")
    assert "harder to read" in "".join(found.verdict("leace"))


def test_three_sources_and_three_classes():
    found = run(simulated_table(K=3, n_classes=3), {"mgpa": mgpa.ClosedFormMGPA()})
    assert found["identity"].directions[0] == "dry → gel"
    assert found["identity"].frozen.shape[2] == 6
    assert found.estimates["identity"]["S"].value > 0.85 > found.estimates["mgpa"]["S"].value


def test_tokens():
    table = simulated_table(tokens=2, d=4, n_people=12, events=12, device_effect=4.0)
    found = run(table, {"leace": "leace", "coral": "coral"}, head=LogisticRegressionOfTokens())
    names = found["leace"].readers
    assert {name.partition(" ")[0] for name in names} == {"mean", "tokens", "residual"}
    residual = [i for i, name in enumerate(names) if name.startswith("residual")]
    np.testing.assert_array_equal(
        found["leace"].source_auroc[..., residual], found["identity"].source_auroc[..., residual]
    )


class LogisticRegressionOfTokens(LogisticRegression):
    def fit(self, X, y, sample_weight=None):
        return super().fit(X.reshape(len(X), -1), y)

    def decision_function(self, X):
        return super().decision_function(X.reshape(len(X), -1))


def test_people_missing_somewhere_are_an_error(table):
    evaluation = np.flatnonzero(table.role == "EVAL")
    someone = table.participant[evaluation[0]]
    rows = (table.participant != someone) | (table.source == "dry")
    with pytest.raises(ValueError, match=f"{someone}.*wet"):
        run(table.take(rows), ["leace"])
    rows = (table.participant != someone) | (table.label == 0)
    with pytest.raises(ValueError, match=f"{someone}"):
        run(table.take(rows), ["leace"])


def test_bad_calls_are_refused(table):
    with pytest.raises(ValueError, match="The table has no EVAL rows"):
        run(table.rows("FIT", "HEAD"), ["leace"])
    with pytest.raises(TypeError, match="single text 'leace'"):
        run(table, "leace")
    with pytest.raises(ValueError, match="no method 'laece'"):
        run(table, ["laece"])
    with pytest.raises(ValueError, match="cmmn corrects signals"):
        run(table, ["cmmn"])
    with pytest.raises(ValueError, match="No pairs"):
        run(simulated_table(pair_id=None), ["closed_form_mgpa"])
    found = run(table, ["leace"])
    with pytest.raises(KeyError, match="'mgpa' was not audited"):
        found.contrast("mgpa")
    with pytest.raises(ValueError, match="There is no metric 'AUC'"):
        found.contrast("leace", metric="AUC")


def test_variance_shares_split_what_they_should():
    rng = np.random.default_rng(0)
    source, person = np.repeat(["a", "b"], 500), np.tile(np.arange(10), 100)
    H = rng.normal(size=(1000, 6))
    H[:, 0] += 6.0 * (source == "b")
    shares = {s.factor: s for s in variance_shares(H, source=source, participant=person, label=None)}
    assert set(shares) == {"source", "participant"}
    assert shares["source"].share == pytest.approx(9 / 15, abs=0.02)
    assert shares["participant"].share == pytest.approx(shares["participant"].chance, abs=0.01)
    assert shares["participant"].omega2 < 0.01


def test_confounding_counts_nested_people():
    found = confounding(["a"] * 4 + ["b"] * 4, [1, 2, 3, 4, 4, 5, 6, 7], [0, 0, 1, 1, 0, 0, 1, 1])
    assert (found.nested_participants, found.n_participants) == (6, 7)
    assert found.source_label == pytest.approx(0.0)
    assert len(found.sentences()) == 2
    assert cramers_v(np.array([[10.0, 0.0], [0.0, 10.0]])) == pytest.approx(1.0)
    assert cramers_v(np.array([[10.0, 5.0]])) == 0.0


def test_a_calibrated_reader_has_no_error():
    rng = np.random.default_rng(0)
    p = rng.random(20000)
    logits = np.log(p / (1 - p))
    assert reliability(logits, rng.random(20000) < p).error < 0.02
    assert reliability(3 * logits, rng.random(20000) < p).error > 0.1


def test_keys_tell_estimators_apart():
    assert key_of(make("leace")) == key_of(make("leace"))
    assert key_of(make("leace")) != key_of(make("leace", ridge=0.1))
    assert key_of(make("leace")) != key_of(make("oracle_leace"))
    assert key_of(mgpa.ClosedFormMGPA(mgpa.MeasurementGate(rank=2))) != key_of(mgpa.ClosedFormMGPA())
    assert Store(None).get("anything") is None


def test_audits_of_different_people_pool_into_one(table):
    quick = {"readers": {"restarts": 0}, "floor": False, "verbose": False}
    halves = []
    people = np.unique(table.rows("EVAL").participant)
    for chosen in (people[::2], people[1::2]):
        own = (table.role != "EVAL") | np.isin(table.participant, chosen)
        halves.append(run(table.take(own), ["closed_form_mgpa"], **quick))
    pooled, whole = audit.Audit.pool(halves), run(table, ["closed_form_mgpa"], **quick)
    for metric in ("S", "T_f", "M"):
        assert pooled["closed_form_mgpa"].participants == whole["closed_form_mgpa"].participants
        found = pooled.contrast("closed_form_mgpa", metric=metric)
        np.testing.assert_allclose(
            [found.value, found.low], [(c := whole.contrast("closed_form_mgpa", metric=metric)).value, c.low]
        )
    with pytest.raises(ValueError, match="evaluated in more than one split"):
        audit.Audit.pool([whole, whole])


def test_budgets_and_pairs_are_given_to_single_methods(table, tmp_path):
    fit = table.rows("FIT")
    a, b = fit.paired_views()
    methods = {"whole": "closed_form_mgpa", "part": "closed_form_mgpa", "weak": "closed_form_mgpa"}
    result = run(
        table, methods, budget={"part": 0.05}, pairs={"weak": (fit.X[a][:9], fit.X[b][:9])},
        readers={"restarts": 0}, floor=False, verbose=False, cache=tmp_path,
    )  # fmt: skip
    moved = {name: float(result[name].facts[0]["validation_movement"]) for name in methods}
    assert moved["part"] == pytest.approx(0.05)
    assert moved["whole"] > 0.05
    assert moved["weak"] != moved["whole"]
    # A budget cuts a fit back; it does not make another fit.
    assert len(list(tmp_path.glob("*.safetensors"))) == 1 + 2 + 1
    with pytest.raises(ValueError, match="budget names nobody"):
        run(table, methods, budget={"nobody": 0.1}, verbose=False)
