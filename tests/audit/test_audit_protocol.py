"""One plan measures everything, finishes what was begun, and drops no participant silently."""

import os
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info, threadpool_limits

import mgpa
from audited import LINEAR, SMALL, HeadOfMeans, assert_same, run
from mgpa import audit
from mgpa.audit import AuditPlan, verdict
from mgpa.baselines import make_method
from mgpa.coordinates import fit_coordinates
from mgpa.tables import Table, TableError, apply_to_table, assign_roles, fit_table
from mgpa.tables.rows import in_coordinates
from simulated import simulated_table


def test_everything_is_measured(found, table):
    people = sorted(set(table.rows("EVAL").participant))
    assert found.methods == ("identity", "leace", "mgpa", "iterative", "coral", "igbp")
    assert found.metrics == (
        *("S", "home", "away", "T_f", "shift_f", "A_r", "T_r", "flips", "M", "worst", "control"),
        *("twin", "I_Q", "I_R", "identity"),
    )
    for name in found:
        result = found[name]
        assert result.participants == tuple(people)
        assert result.source_auroc.shape == (result.n_fits, len(people), 3)
        assert result.heads["frozen"].shape == (result.n_fits, len(people), 2)
    assert found["igbp"].n_fits == 2
    assert found["iterative"].n_fits == 2
    assert found["leace"].n_fits == 1
    assert found["coral"].source_blind is False
    assert found["identity"].estimate("M").value == 0
    np.testing.assert_array_equal(found["identity"].heads["frozen"], found["identity"].heads["refitted"])


def test_measurements_equal_their_parts(found, table):
    head, evaluation, fit = (table.rows(r) for r in ("HEAD", "EVAL", "FIT"))
    mean, spread = fit.X.mean(axis=0), fit.X.std(axis=0)
    H, E = ((part.X - mean) / spread for part in (head, evaluation))
    reader = LogisticRegression(C=1.0, max_iter=2500, class_weight="balanced").fit(H, head.source)
    by_hand = audit.participant_auroc(reader.decision_function(E), evaluation.source, evaluation.participant)
    np.testing.assert_allclose(found["identity"].source_auroc[0, :, 0], by_hand[1], atol=1e-12)
    m = mgpa.ClosedFormMGPA(gate=mgpa.MeasurementGate(rank=1))
    val = table.rows("VAL")
    m.fit(fit.X, source=fit.source, pair_id=fit.pair_id)
    corrected = (m.transform(evaluation.X) - mean) / spread
    moved = audit.movement_by_group(E, corrected, evaluation.participant)[1]
    np.testing.assert_allclose(found["mgpa"].movement[0], moved, rtol=1e-6)
    expected = mgpa.operating_point.relative_movement(m, val.X)
    assert found["mgpa"].facts[0]["validation_movement"] == pytest.approx(expected)
    assert 0.8 < found["mgpa"].facts[0]["gate_coverage"] <= 1 + 1e-9


def test_finished_cells_are_read_and_equal(table, tmp_path, capsys):
    methods = {"leace": "leace", "igbp": make_method("igbp", n_stages=1, max_epochs=2)}
    first = run(table, methods, cache=tmp_path, verbose=True)
    files = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    capsys.readouterr()
    again = run(table, methods, cache=tmp_path, verbose=True)
    assert "4 fits, 4 of them finished before" in capsys.readouterr().err
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == files
    assert_same(first, again)
    assert_same(first, run(table, methods))
    more = run(table, methods | {"ncm": make_method("ncm", rank=1)}, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == len(files) + 3
    np.testing.assert_array_equal(more["leace"].source_auroc, first["leace"].source_auroc)


def test_dask_workers_give_the_same_numbers(table):
    distributed = pytest.importorskip("distributed")
    import joblib

    methods = {"leace": "leace", "ncm": make_method("ncm", rank=1)}
    expected = run(table, methods)
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    )
    with cluster, distributed.Client(cluster), joblib.parallel_config("dask"):
        assert_same(expected, run(table, methods, n_jobs=2))


KILLED = """
import sys
sys.path[:0] = {tests!r}
from test_audit_protocol import killable
killable({cache!r})
"""


def killable(cache):
    methods = {"leace": "leace", "igbp": make_method("igbp", n_stages=2, max_epochs=3), "coral": "coral"}
    return run(simulated_table(), methods, cache=cache, readers=SMALL)


def test_killed_anywhere_it_finishes_with_the_same_bits(tmp_path):
    expected = killable(tmp_path / "whole")
    cache = tmp_path / "killed"
    folders = [str(folder) for folder in Path(__file__).parents[:2]]
    script = KILLED.format(tests=folders, cache=str(cache))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    rng = np.random.default_rng()  # a different moment every time
    for _ in range(2):
        kept = set(cache.glob("*.npz"))
        process = subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=subprocess.DEVNULL)
        while process.poll() is None and set(cache.glob("*.npz")) == kept:
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, 0.5))
        process.send_signal(signal.SIGKILL)
        assert process.wait() in (0, -signal.SIGKILL)
    assert_same(expected, killable(tmp_path / "killed"))


class Counting(LogisticRegression):
    """A task head that notes how many threads libraries may use where it is fitted."""

    def fit(self, X, y, sample_weight=None):
        self.threads_ = max(library["num_threads"] for library in threadpool_info())
        THREADS.append(self.threads_)
        return super().fit(X, y)


THREADS = []


def test_cells_of_small_tables_are_measured_by_one_thread(table):
    with threadpool_limits(4):
        if max(library["num_threads"] for library in threadpool_info()) < 2:
            pytest.skip("libraries have one thread here")
        run(table, ["leace"], head=Counting())
    assert THREADS == [1] * 6


def test_maps_and_fitted_estimators_are_taken_as_they_are(table):
    fit = table.rows("FIT")
    model = make_method("leace").fit(fit.X, source=fit.source)
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
    assert "worst" not in found.metrics  # no paired events to shift the association of
    expected = run(table, {"mgpa": mgpa.ClosedFormMGPA()})
    np.testing.assert_allclose(found["mgpa"].source_auroc, expected["mgpa"].source_auroc, atol=1e-9)
    with pytest.raises(ValueError, match="association shift needs paired events"):
        found["mgpa"].values("worst")


def test_corrections_that_move_tokens_apart_are_read_in_their_own_centred_tokens():
    table = simulated_table(tokens=2, d=4, n_people=12, events=12)
    # The device shows in the difference of two tokens.
    shown = np.where(table.source == "wet", 3.0, -3.0)
    table.X[:, 0, 0] += shown
    table.X[:, 1, 0] -= shown
    methods = {"mean": mgpa.ClosedFormMGPA(), "all": mgpa.JointTokens(mgpa.ClosedFormMGPA())}
    found = run(table, methods, head=HeadOfMeans())
    residual = [i for i, name in enumerate(found["all"].readers) if name.startswith("residual")]
    worst = {name: found[name].source_auroc[..., residual].mean(axis=(0, 1)).max() for name in methods}
    assert worst["mean"] > 0.95
    assert worst["all"] < 0.75
    assert found["all"].has("floor")


class Unfittable(type(make_method("leace"))):
    def fit(self, *args, **kwargs):
        raise AssertionError("a fit was started")


def test_what_cannot_be_measured_is_refused_before_anything_is_fitted(table):
    evaluation, head = table.role == "EVAL", table.role == "HEAD"
    someone = table.participant[evaluation][0]
    mine, dry = table.participant == someone, table.source == "dry"
    for changed, message in (
        (table.rows("FIT", "HEAD"), "The table has no EVAL rows"),
        (table.take(~evaluation | mine), f"EVAL has one participant \\('{someone}'\\)"),
        (table.take(~head | dry), "EVAL has sources that are missing in HEAD: 'wet'; readers"),
        (replace(table, label=np.zeros(len(table))), "label is the same in all HEAD rows"),
    ):
        with pytest.raises(ValueError, match=message):
            run(changed, {"slow": Unfittable()})
    with pytest.raises(ValueError, match="No pairs"):
        run(simulated_table(pair_id=None), ["closed_form_mgpa"])
    with pytest.raises(ValueError, match="str has neither decision_function"):
        run(table, {"slow": Unfittable()}, head="ridge")
    with pytest.raises(TypeError, match=r"readers has \['restart'\]"):
        run(table, {"slow": Unfittable()}, readers={"restart": 1})


def test_errors_name_the_method_and_what_is_kept(table, tmp_path):
    methods = {"leace": "leace", "broken": make_method("closed_form_mgpa", gate=-3)}
    with pytest.raises(ValueError, match="gate must be") as caught:
        run(table, methods, cache=tmp_path)
    assert caught.value.__notes__[0] == "This happened while fitting broken."
    assert str(tmp_path) in caught.value.__notes__[1]
    assert len(list(tmp_path.glob("*.npz"))) == 2
    with pytest.raises(ValueError, match="gate must be") as caught:
        run(table, methods, n_jobs=2)
    assert caught.value.__notes__ == ["This happened while fitting broken."]


def test_a_map_fitted_on_the_people_it_is_judged_by_is_found_out(tmp_path):
    table = simulated_table()
    honest = fit_table(mgpa.ClosedFormMGPA(), table).to_map()
    leaked = fit_table(mgpa.ClosedFormMGPA(), table.with_columns(role=None)).to_map()
    silent = leaked.with_notes("from elsewhere")
    silent = replace(silent, info=replace(silent.info, people=(), row_sample=""))
    of_readers = fit_table(mgpa.ClosedFormMGPA(), table.rows("HEAD").with_columns(role=None)).to_map()
    maps = {
        "honest": honest,
        "leaked": leaked,
        "silent": silent,
        "mixed": [silent, leaked],
        "head": of_readers,
    }
    for m in (honest, leaked, silent):
        m.save(tmp_path / "m.safetensors")
        assert mgpa.load_map(tmp_path / "m.safetensors").info.people == m.info.people
    result = audit.run(table, maps, readers={"restarts": 0}, floor=False, verbose=False)
    judged = sorted({*table.rows("EVAL").participant})
    assert result["honest"].fitted_on == ()
    assert list(result["leaked"].fitted_on) == judged
    assert "leaked" in verdict.warnings(result)["Not held out"]
    assert result["silent"].fitted_on is None
    assert result.verdict("leaked")[0].startswith(f"Not held out: it was fitted on {len(judged)} of the")
    # One fit that keeps silent does not hide another that was found out.
    assert list(result["mixed"].fitted_on) == judged
    assert "The map was fitted before this audit, perhaps on these" in " ".join(result.verdict("silent"))
    assert "The map was fitted before this audit, perhaps on these" in " ".join(result.verdict("head"))
    assert "fitted elsewhere" not in " ".join(result.verdict("honest"))


# Every argument counts: what can change a number is part of the names of cells.

STAGED = mgpa.IterativeMGPA(n_stages=2, critics=("linear",), do_no_harm=False)
BASE = {
    "methods": {"closed": mgpa.ClosedFormMGPA(), "staged": STAGED},
    "budget": {"closed": 0.02},
    "floor": False,
    "device": "cpu",
}


def other_arguments():
    """Return, for every argument that can change a number, another value."""
    table = replace(simulated_table(), X=simulated_table().X * np.linspace(0.1, 10, 8))
    fit = table.rows("FIT")
    a, b = fit.paired_views()
    return table, {
        "table": replace(table, X=table.X + (table.role == "HEAD")[:, None]),
        "methods": BASE["methods"] | {"closed": mgpa.ClosedFormMGPA(ridge=0.3)},
        "pairs": (fit.X[a][:20], fit.X[b][:20]),
        "seeds": (3,),
        "budget": {"closed": 0.03},
        "head": LogisticRegression(),
        "task": "regression",
        "readers": SMALL,
        "association": ("dry", 1),
        "folds": 4,
        "repeats": 2,
        "refits": 3,
        "head_source": "dry",
        "floor": True,
        "standardize": False,
        "device": "meta",
    }


def test_every_argument_of_an_audit_is_known_here():
    # Whether a method is left out, and what its map carries, are not numbers: the tests below are about both.
    harmless = {"cache", "n_jobs", "verbose", "coordinates"}
    assert set(signature(audit.run).parameters) == {*other_arguments()[1], *harmless}


@pytest.fixture(scope="module")
def base_cells(tmp_path_factory):
    cells = tmp_path_factory.mktemp("base") / "cells"
    run(other_arguments()[0], seeds=(17,), **BASE, cache=cells)
    return cells


# Folds need people with rows of every kind, and a source of the head a fitted head: other tests have these.
KEPT_BY_OTHERS = ("device", "folds", "repeats", "refits", "head_source")


@pytest.mark.parametrize("name", [name for name in other_arguments()[1] if name not in KEPT_BY_OTHERS])
def test_another_argument_gives_other_cells_and_the_numbers_of_a_run_without_a_cache(
    name, base_cells, tmp_path
):
    table, others = other_arguments()
    changed = {"table": table, "seeds": (17,), **BASE} | {name: others[name]}
    cells = shutil.copytree(base_cells, tmp_path / "cells")
    kept = set(cells.glob("*.npz"))
    result = run(**changed, cache=cells)
    assert set(cells.glob("*.npz")) > kept
    assert_same(result, run(**changed))


def test_a_method_that_does_not_reach_its_budget_is_left_out(table, tmp_path):
    found = run(table, ["leace", "closed_form_mgpa"], budget={"leace": 50.0}, cache=tmp_path)
    assert found.methods == ("identity", "closed_form_mgpa")
    assert "the budget is 50, but fit 0 moves" in found.settings.omitted["leace"]
    assert_same(found, run(table, ["closed_form_mgpa"]))


def test_maps_carry_the_coordinates_that_a_table_is_in(table, tmp_path):
    coordinates = fit_coordinates(table.rows("FIT").X, n_components=3)
    rows = in_coordinates(coordinates, table)
    found = run(rows, ["leace"], coordinates=coordinates, cache=tmp_path)
    assert_same(found, run(rows, ["leace"]))
    kept = [mgpa.load_map(path) for path in tmp_path.glob("*.safetensors")]
    assert {m.coordinates.digest for m in kept} == {coordinates.digest}
    with pytest.raises(ValueError, match="The table is in coordinates None"):
        run(table, ["leace"], coordinates=coordinates)


def test_a_plan_checks_everything_and_makes_nothing(table, tmp_path):
    settings = {"readers": LINEAR, "folds": 1, "verbose": False, "cache": tmp_path / "cells"}
    plan = AuditPlan(table, ["leace"], **settings)
    assert not (tmp_path / "cells").exists()
    assert_same(plan.run(), run(table, ["leace"]))
    with pytest.raises(TypeError, match="unexpected keyword argument 'reader'"):
        AuditPlan(table, ["leace"], reader="paper")


# Maps are applied to what they are meant for, where they are meant to work, or not at all.


def test_at_strength_zero_a_map_with_coordinates_is_the_identity(table):
    m = fit_table(mgpa.ClosedFormMGPA(), table, components=3).to_map()
    found = run(table, {"none": m.with_strength(0.0), "whole": m}, floor=False)
    assert found.settings.features == (3,)
    for metric in found.metrics:
        assert found["none"].estimate(metric) == found["identity"].estimate(metric)
    assert found["whole"].estimate("S").value < found["identity"].estimate("S").value
    # The rows that a user deploys, measured by hand.
    before, after = (apply_to_table(m.with_strength(s), table).rows("EVAL") for s in (0.0, 1.0))
    fit = apply_to_table(m.with_strength(0.0), table).rows("FIT").X
    H, C = ((part.X - fit.mean(axis=0)) / fit.std(axis=0) for part in (before, after))
    np.testing.assert_allclose(
        found["whole"].movement[0], audit.movement_by_group(H, C, before.participant)[1], rtol=1e-9
    )


def test_methods_are_fitted_in_the_coordinates_of_the_maps_beside_them(table):
    fit = table.rows("FIT")
    a, b = fit.paired_views()
    # Published: to the default's anchor, pairs that are given apart are rows of their own.
    m = fit_table(mgpa.ClosedFormMGPA.paper(), table, components=3).to_map()
    for pairs in (None, (fit.X[a], fit.X[b])):
        found = run(table, {"map": m, "fresh": mgpa.ClosedFormMGPA.paper()}, pairs=pairs, floor=False)
        np.testing.assert_allclose(found["fresh"].movement, found["map"].movement, rtol=1e-6)
        np.testing.assert_allclose(found["fresh"].source_auroc, found["map"].source_auroc, atol=1e-9)


def test_maps_of_different_coordinates_are_not_audited_together(table):
    three, four, plain = (
        fit_table(make_method("leace"), table, components=components).to_map() for components in (3, 4, None)
    )
    for methods in ({"a": three, "b": four}, {"a": three, "b": plain}, {"a": [plain, four]}):
        with pytest.raises(ValueError, match=r"The maps have different coordinates \(a "):
            run(table, methods)
    there = apply_to_table(three.with_strength(0.0), table)
    there = replace(there, info={"coordinates": there.info["coordinates"]})
    with pytest.raises(TableError, match="The table is in coordinates"):
        run(there, {"b": four})
    same_place = run(there, {"a": three})
    np.testing.assert_array_equal(same_place["a"].source_auroc, run(table, {"a": three})["a"].source_auroc)


def test_a_map_is_not_applied_where_it_says_nothing(table):
    m = fit_table(make_method("leace"), table).to_map()
    names = {"dry": "Neuroscan", "wet": "flex"}
    elsewhere = replace(table, source=np.array([names[s] for s in table.source]))
    with pytest.raises(TableError, match="has sources Neuroscan, flex; the map was fitted on dry, wet"):
        run(elsewhere, {"map": m})
    with pytest.raises(TableError, match="map corrects 8 features; the table has 7"):
        run(replace(table, X=table.X[:, :7]), {"map": m})
    said = replace(table, info={"encoder": {"name": "eegpt"}})
    other = fit_table(make_method("leace"), replace(table, info={"encoder": {"name": "labram"}})).to_map()
    with pytest.raises(TableError, match="another encoder than map was fitted on"):
        run(said, {"map": other})


def test_a_budget_needs_validation_rows(table):
    rows = table.rows("FIT", "HEAD", "EVAL")
    with pytest.raises(ValueError, match=r"The table has no VAL rows.*budget"):
        run(rows, {"slow": Unfittable()}, budget=0.05)
    with pytest.raises(ValueError, match=r"The budget of slow is -1\.0"):
        run(table, {"slow": Unfittable()}, budget=-1.0)
    # Nothing else is called movement of VAL rows either.
    assert not {"validation_movement", "stage_movement"} & set(
        run(rows, {"staged": STAGED})["staged"].facts[0]
    )


def test_people_are_recognised_by_their_rows_whatever_they_are_called(table, tmp_path):
    other = replace(
        table,
        participant=np.array([f"another {name}" for name in table.participant]),
        role=np.where(table.role == "EVAL", "FIT", np.where(table.role == "FIT", "EVAL", table.role)),
        X=table.X.astype(np.float32),
    )
    leaked = mgpa.load_map(
        fit_table(make_method("leace"), other).to_map().save(tmp_path / "leaked.safetensors")
    )
    found = run(table, {"leaked": leaked, "leace": "leace"})
    assert found["leaked"].fitted_on == found["leaked"].participants
    assert found.verdict("leaked")[0].startswith("Not held out")
    assert found["leace"].fitted_on == ()


def test_the_same_rows_in_two_roles_are_reported(table, tmp_path):
    alone = table.with_columns(pair_id=None)
    scored = alone.rows("EVAL").participant[0]
    copied = alone.take(alone.participant == scored).with_columns(participant="another", role="FIT")
    found = run(alone.concatenate([alone, copied]), ["leace"])
    said = f"{len(copied)} EVAL rows are copies of FIT rows"
    assert found.settings.duplicates == {"EVAL rows are copies of FIT rows": len(copied)}
    assert said in str(found)
    assert said in " ".join(found.verdict("leace"))
    assert said in found.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert found["leace"].fitted_on == (scored,)
    assert not run(table, ["leace"]).settings.duplicates


@pytest.mark.parametrize(
    ("n", "folds", "readers", "limit"), [(12_000, 1, {"restarts": 0}, 6.0), (6_000, 4, LINEAR, 5.0)]
)
def test_an_audit_holds_a_few_times_the_table_and_keeps_less_than_one(n, folds, readers, limit):
    """Peak memory beside the table, of one split with all quick readers, and of folds one after another.

    Corrected rows of each method, kept until the end, would take more.
    """
    rng, d, events = np.random.default_rng(0), 192, n // 2
    label, who = rng.integers(0, 2, events), np.arange(events) * 12 // events
    first = rng.standard_normal((events, d), dtype=np.float32)
    first[:, :8] += label[:, None]
    table = Table(
        np.stack([first, first + np.float32(0.3)], axis=1).reshape(n, d),
        source=np.tile(["dry", "wet"], events),
        participant=np.repeat(who, 2),
        label=np.repeat(label, 2),
    )
    if folds == 1:
        table = replace(table, role=assign_roles(table.participant))
    how = {"readers": readers, "folds": folds, "repeats": 1, "n_jobs": 1, "verbose": False}
    audit.run(table.take(np.arange(n) % 50 < 2), ["leace"], **how)  # loads what is imported when needed
    tracemalloc.start()
    result = audit.run(table, ["leace"], **how)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result["leace"].S < 0.7
    assert peak < limit * table.X.nbytes
    assert kept < table.X.nbytes
