"""Reuse selects on one task, scores all of them, and leaves no participant out silently."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from mgpa.audit import verdict
from mgpa.audit.measure import movement_by_group
from mgpa.paper import StudyError, load_study, plan_study, write_results
from mgpa.paper.studies.recordings import Recordings
from mgpa.paper.studies.results import estimates, protocol
from mgpa.paper.studies.reuse import prepare, run_reuse, select_method
from mgpa.tables.files import open_table, write_table
from mgpa.tables.rows import corrected_rows
from simulated import simulated_table
from small_studies import CLOSED_FORM, computed, run, written

UNEVEN = """
[coordinates]
source = "dry"
[reuse]
development = "easy"
tasks = ["easy", "hard"]
calibration = 4
[data.labels]
easy = "easy"
hard = "hard"
"""
MORE = {
    "Family": {"method": "leace", "grid": {"ridge": [0.1, 0.5]}},
    "Iter": {
        "method": "iterative_mgpa",
        "parameters": {"n_stages": 3, "critic_epochs": 2, "do_no_harm": False},
    },
}


@pytest.fixture
def uneven(tmp_path):
    """A study of two tasks on the same events, of sources whose spread differs."""
    rng = np.random.default_rng(0)
    person, event = np.repeat(np.arange(16), 24), np.repeat(np.arange(192), 2)
    source, easy = np.tile(["dry", "wet"], 192), np.repeat(np.arange(192) % 2, 2)
    X = rng.normal(size=(192, 5))[event] + rng.normal(scale=0.1, size=(384, 5))
    X[:, 1] += 2 * easy
    X[source == "wet"] = X[source == "wet"] * [3, 1, 0.5, 1, 2] + 1
    table = replace(
        simulated_table(), X=X, source=source, participant=[f"p{p:02d}" for p in person], pair_id=event,
        label=None, role=None, other={"easy": easy, "hard": np.repeat(rng.permutation(192) % 2, 2)},
    )  # fmt: skip
    return written(tmp_path, CLOSED_FORM + UNEVEN, table)


def test_reuse_selects_once_and_audits_every_task(uneven, tmp_path):
    work, names = tmp_path / "work", {"labels": {"easy": "Easy", "hard": "Hard"}}
    study = load_study(uneven, methods=MORE, reuse=names)
    assert plan_study(study, work)["Family"] == 2
    assert not work.exists()
    result = run(study, work)
    assert list(result.audits) == ["Easy", "Hard"]
    assert set(result.selection) == set(study.methods)
    assert result.selection["Family"]["recipe"]["ridge"] in (0.1, 0.5)
    assert result.selection["Family"]["candidates"] == 2
    # Frozen maps: how far they move the same rows does not depend on the task.
    for name in study.methods:
        easy, hard = (result.audits[task][name].estimate("M").value for task in ("Easy", "Hard"))
        assert easy == pytest.approx(hard, rel=1e-9)
    # What tasks are called, and which there are besides the first, changes no fit; what is seen of VAL does.
    for change in ({"labels": {"easy": "E", "hard": "H"}}, {"tasks": ["easy"]}):
        assert computed(load_study(uneven, methods=MORE, reuse=change), work) == {}
    found = computed(load_study(uneven, methods=MORE, reuse={"development_seed": 5}), work)
    selected = {name: n for name, n in found.items() if name.startswith("select")}
    assert selected == {f"select {name}": 2 if name == "Family" else 1 for name in study.methods}
    report = write_results(result, tmp_path / "out")[0]
    text = report.read_text("utf-8")
    assert "Development participants selected Family: strength " in text
    assert f"(ridge {result.selection['Family']['recipe']['ridge']})" in text
    assert "Development participants selected Iter: stages " in text
    # The report speaks of the rows that maps were fitted on: views that mostly agree with the label.
    for audit in result.audits.values():
        counted = sum(sum(row.values()) for row in audit.counts.values())
        assert str(counted) == protocol(result)["fitting endpoints"]
        assert "Source and label show strong association in the fitting rows" in verdict.confounding(audit)
    assert 'href="report-Hard.html"' in text
    for task in ("Easy", "Hard"):  # every task has its figures
        names = {path.name for path in (tmp_path / "out" / "figures" / task).iterdir()}
        assert {"association.pdf", "association.svg", "association.png"} <= names


def test_reuse_is_measured_in_shared_coordinates_and_reports_what_is_behind_the_worst(uneven, tmp_path):
    study = load_study(uneven)
    result = run(study, tmp_path / "work")
    tables, fitting = prepare(study, Recordings(study, tmp_path / "work"))
    fit, counts = tables["easy"].rows("FIT"), protocol(result)
    assert counts["calibration pairs"] == str(len(np.unique(fit.participant)) * study.reuse.calibration)
    # One view of every other event, and both of those that calibrate.
    assert counts["observed FIT events"] == str(len(fit) // 2 - int(counts["calibration pairs"]))
    assert counts["fitting endpoints"] == str(len(fit) // 2 + int(counts["calibration pairs"]))
    assert counts["development endpoints"] == str(len(tables["easy"].rows("VAL")) // 2)
    cells = {"cache": tmp_path / "work" / "cells", "device": "cpu"}
    _, [chosen], _ = select_method(study, tables["easy"], fitting, "CF", **cells)
    for task in ("easy", "hard"):
        rows = tables[task].rows("EVAL")
        expected = movement_by_group(rows.X, corrected_rows(chosen.map, rows), rows.participant)[1]
        np.testing.assert_allclose(result.audits[task]["CF"].movement[0], expected, rtol=1e-9)
    rows = {(row["task"], row["method"], row["metric"]): row["value"] for row in estimates(result)}
    for task, audit in result.audits.items():
        for i, metric in enumerate(("reversed", "independent", "aligned")):
            assert rows[task, "CF", metric] == pytest.approx(audit["CF"].shortcut[..., i].mean())


def test_eval_rows_are_not_part_of_a_selection(uneven, tmp_path):
    study, raw = load_study(uneven), open_table(tmp_path / "rows.npz").read()
    computed(study, tmp_path / "work")
    table = prepare(study, Recordings(study, tmp_path))[0]["easy"]
    for role, n in (("EVAL", 0), ("VAL", 1), ("HEAD", 1)):
        changed = np.isin(raw.participant, table.rows(role).participant)[:, None]
        write_table(replace(raw, X=raw.X + changed), tmp_path / "rows.npz", overwrite=True)
        assert computed(study, tmp_path / "work")["select CF"] == n, role


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gate": {"tokens": True}}, r"\[reuse\] takes no \[endpoints\]"),
        ({"methods": {"CF": {"budget": 0.1}}}, r"methods\.CF: \[reuse\] chooses pairs and budget itself"),
        ({"endpoints": {"association": 0.9}}, r"\[reuse\] takes no \[endpoints\]"),
        ({"reuse": {"tasks": ["easy", "harder"]}}, "reuse.tasks are easy, harder; the data have easy, hard"),
    ],
)
def test_what_reuse_would_not_heed_is_refused(changes, said, uneven):
    with pytest.raises(StudyError, match=said):
        load_study(uneven, **changes)


def without(recordings, people):
    """Return recordings that lack some people on the hard task."""

    def table(task):
        rows = recordings.table(task)
        return rows.take(~np.isin(rows.participant, list(people))) if task == "hard" else rows

    return SimpleNamespace(table=table)


def test_participants_who_judge_are_needed_on_every_task_and_others_on_the_development_task(uneven, tmp_path):
    study = load_study(uneven)
    complete = Recordings(study, tmp_path / "work")
    tables, fitting = prepare(study, complete)
    for role in ("HEAD", "EVAL"):
        first, second, *_ = np.unique(tables["hard"].rows(role).participant)
        with pytest.raises(StudyError, match=f"Task hard has no rows of {first}, {second}"):
            prepare(study, without(complete, {first, second}))
    lacking = without(complete, set(tables["hard"].rows("FIT", "VAL").participant))
    found, same = prepare(study, lacking)
    assert same.table.digest == fitting.table.digest
    assert set(found["hard"].role) == {"HEAD", "EVAL"}
    # What they measure on the other task is the same with and without.
    audits = [
        run_reuse(study, recordings, cache=tmp_path / name, device="cpu", verbose=False)[0]["hard"][0]
        for name, recordings in (("a", complete), ("b", lacking))
    ]
    for name in audits[0]:
        assert audits[0].estimates[name] == audits[1].estimates[name]


def test_reuse_leaves_events_to_fit_on_and_no_row_out_in_silence(uneven, tmp_path):
    with pytest.raises(StudyError, match="calibration = 5000 must leave events"):
        run(load_study(uneven, reuse={"calibration": 5000}), tmp_path / "work")
    table = open_table(tmp_path / "rows.npz").read()
    write_table(table.take(np.arange(len(table)) != 7), tmp_path / "rows.npz", overwrite=True)
    with pytest.raises(StudyError, match=r"1 of \d+ rows have no partner"):
        run(load_study(uneven), tmp_path / "work")
