"""What is finished stays finished, plans compute nothing, and a study ends with the same bytes."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mgpa.paper import StudyError, load_study, plan_study, presets, write_results
from mgpa.paper.studies import run as studies_run
from mgpa.tables.files import write_table
from simulated import simulated_table
from small_studies import (
    CLOSED_FORM,
    RECORDED,
    TINY,
    assert_same_files,
    computed,
    in_process,
    paired_table,
    run,
    two_tasks,
    written,
)


def test_the_template_runs_on_simulated_embeddings(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert in_process(monkeypatch, "simulate", "--out", "embeddings.parquet") == 0
    capsys.readouterr()
    assert in_process(monkeypatch, "study", "show", "template") == 0
    Path("mine.toml").write_text(capsys.readouterr().out, "utf-8")
    assert in_process(monkeypatch, "study", "run", "mine.toml", "--quick", "--out", "out") == 0
    assert "MGPA, closed form" in capsys.readouterr().out
    assert Path("out/report.html").exists()
    for name in presets():
        assert in_process(monkeypatch, "study", "show", name) == 0
        Path(f"{name}.toml").write_text(capsys.readouterr().out, "utf-8")
        assert load_study(f"{name}.toml", quick=True) == load_study(name, quick=True)


def test_a_study_of_three_sources_leaves_each_out_of_the_fit(tmp_path):
    write_table(simulated_table(K=3), tmp_path / "rows.npz")
    (tmp_path / "tiny.toml").write_text(CLOSED_FORM)
    result = run(load_study(tmp_path / "tiny.toml"), tmp_path / "work")
    write_results(result, tmp_path / "out")
    with open(tmp_path / "out" / "table.csv", newline="") as file:
        unseen = {
            row["method"]: float(row["value"]) for row in csv.DictReader(file) if row["metric"] == "A_u"
        }
    assert unseen.keys() == {"identity", "CF"}
    assert all(0.5 < value <= 1.0 for value in unseen.values())


def test_a_changed_setting_recomputes_what_it_affects_and_nothing_else(tmp_path):
    path, work = written(tmp_path), tmp_path / "work"
    everything = {"fit identity": 1, "fit LEACE_50 %": 1, "fit CF": 1, "fit Iter": 1, "measure": 4}
    assert computed(load_study(path), work) == everything
    for changes, expected in (
        ({}, {}),
        ({"title": "Another", "about": "Nothing new.", "name": "other"}, {}),
        ({"contrasts": [{"a": "Iter", "b": "CF"}], "paper": {}}, {}),
        ({"methods": {"CF": False}}, {}),
        ({"methods": {"LEACE_50 %": {"parameters": {"ridge": 0.5}}}}, {"fit LEACE_50 %": 1, "measure": 1}),
        ({"methods": {"Iter": {"budget": 0.03}}}, {"measure": 1}),
        ({"methods": {"Iter": {"parameters": {"critic_epochs": 3}}}}, {"fit Iter": 1, "measure": 1}),
        ({"methods": {"NCM": {"method": "ncm", "parameters": {"rank": 1}}}}, {"fit NCM": 1, "measure": 1}),
        ({"gate": {"rank": 1}}, {"fit CF": 1, "fit Iter": 1, "measure": 2}),
        ({"seeds": [17, 29]}, {"fit Iter": 1, "measure": 1}),
        ({"readers": {"restarts": 1, "checkpoints": [2]}}, {"measure": 4}),
        ({"coordinates": {"components": 6}}, everything),
        ({}, {}),
    ):
        assert computed(load_study(path, **changes), work) == expected, changes
    write_table(simulated_table(seed=1), tmp_path / "rows.npz", overwrite=True)  # other rows, other cells
    assert computed(load_study(path, methods={"Iter": False}), work)["measure"] == 3


def test_one_map_is_judged_by_several_labels(tmp_path):
    labels = {"Easy": "easy", "Hard": "hard"}
    study = load_study(written(tmp_path), data={"labels": labels}, methods={"Iter": False}, contrasts=[])
    write_table(two_tasks(), tmp_path / "rows.npz", overwrite=True)
    assert computed(study, tmp_path / "work") == {
        "fit identity": 1, "fit LEACE_50 %": 1, "fit CF": 1, "measure": 6,
    }  # fmt: skip
    audits = run(study, tmp_path / "work").audits
    assert list(audits) == ["Easy", "Hard"]
    assert audits["Easy"]["CF"].estimate("M") == audits["Hard"]["CF"].estimate("M")
    assert audits["Easy"]["CF"].estimate("T_f").value > audits["Hard"]["CF"].estimate("T_f").value
    with pytest.raises(StudyError, match="none may be called 'label'"):
        load_study(tmp_path / "my.toml", data={"labels": labels | {"Third": "label"}})


def test_a_plan_counts_cells_and_computes_nothing(tmp_path, monkeypatch, capsys):
    planned = plan_study(load_study(written(tmp_path)), tmp_path / "work")
    assert planned == {"identity": 1, "LEACE_50 %": 1, "CF": 1, "Iter": 1}
    assert plan_study(load_study(written(tmp_path, RECORDED)), tmp_path / "work") == {"identity": 1, "CF": 1}
    assert not (tmp_path / "work").exists()
    assert in_process(monkeypatch, "study", "plan", "temporal-n170", "--out", tmp_path / "out", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["cells"]["MGPA-Iter"], plan["cells"]["LEACE"], plan["data"]) == (3, 1, "simulated")


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("study", "arguments", "line"),
    [
        ("temporal-n170", ("--data", "empty"), "data: empty has no recordings of neuroscan_flex"),
        ("temporal-n170", ("--data", "nowhere"), "data: the folder nowhere does not exist"),
        ("temporal-n170", ("--data", "flex"), "roles.people names participants without rows: 1014, 1016"),
        ("p300-reuse", ("--data", "flex", "--checkpoint", "none.pt"), "none.pt does not exist"),
        ("controlled-ssvep", ("--data", "ssvep"), "do not fill 5 folds"),
        ("large.toml", (), "GB free; the study needs about 1e+06 GB"),
        ("large.toml", ("--data", "none.npz"), "data.table: none.npz does not exist"),
    ],
)
def test_what_would_stop_a_study_is_said_before_anything_is_computed(
    few, tmp_path, monkeypatch, capsys, command, study, arguments, line
):
    monkeypatch.chdir(few)
    out = tmp_path / "out"
    assert in_process(monkeypatch, "study", command, study, *arguments, "--out", out) == 2
    assert line in capsys.readouterr().err
    assert not out.exists()


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Folders with too few recordings, and a study that needs too much room."""
    folder = tmp_path_factory.mktemp("few")
    (folder / "empty").mkdir()
    from mgpa.paper.simulate.erp import simulate_flex
    from mgpa.paper.simulate.ssvep import simulate_ssvep

    simulate_flex(folder / "flex", participants=("1013",), n_events=8)
    simulate_ssvep(folder / "ssvep", n_people=3, blocks=1)
    written(folder, CLOSED_FORM)
    (folder / "large.toml").write_text(CLOSED_FORM + "[needs]\ndisk = 1e6\nmemory = 2e6\n")
    return folder


def test_workers_elsewhere_keep_cells_where_the_study_is(tmp_path, monkeypatch):
    path = written(tmp_path, CLOSED_FORM)
    monkeypatch.chdir(tmp_path)
    found = []

    def audit(*_, cache, **__):
        found.append(cache)
        raise KeyboardInterrupt

    monkeypatch.setattr(studies_run, "AuditPlan", audit)
    with pytest.raises(KeyboardInterrupt):
        run(load_study(path), Path("work"))
    assert found == [tmp_path / "work" / "cells"]


ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}

RUN = ("study", "run", "my.toml", "--out", "out")


def command(*arguments, folder):
    return [sys.executable, "-m", "mgpa", *map(str, arguments)], {
        "cwd": folder,
        "env": ENVIRONMENT,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.PIPE,
        "text": True,
    }


def done(*arguments, folder):
    words, options = command(*arguments, folder=folder)
    result = subprocess.run(words, check=False, **options)
    assert result.returncode == 0, result.stderr


def interrupted(folder, rng, latest):
    """Run a study and kill it at a random moment; return whether it was still running."""
    words, options = command(*RUN, folder=folder)
    with subprocess.Popen(words, **options | {"stderr": subprocess.DEVNULL}) as process:
        try:
            process.wait(timeout=rng.uniform(1.0, latest))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return True
    return False


def uninterrupted(folder, text=TINY):
    """Run a study here, as its command would."""
    result = run(load_study(written(folder, text)), folder / "out" / "work")
    write_results(result, folder / "out", command="mgpa " + " ".join(RUN))
    return folder / "out"


def test_killed_while_it_simulates_reads_or_measures_a_study_ends_with_the_same_bytes(tmp_path):
    expected = uninterrupted(tmp_path / "whole", RECORDED)
    written(tmp_path / "killed", RECORDED)
    rng = np.random.default_rng()  # a different moment every time
    kills = [interrupted(tmp_path / "killed", rng, latest) for latest in (3.0, 6.0, 10.0)]
    assert any(kills)
    done(*RUN, folder=tmp_path / "killed")
    assert_same_files(expected, tmp_path / "killed" / "out")
    # The report is honest about what it rests on.
    assert "These recordings are simulated" in (expected / "report.html").read_text("utf-8")
    found = json.loads((expected / "provenance.json").read_text("utf-8"))
    assert "mne" in found["versions"]


def test_two_at_a_time_give_the_same_bytes(finished, tmp_path):
    study = load_study(written(tmp_path))
    result = run(study, tmp_path / "out" / "work", n_jobs=2)
    write_results(result, tmp_path / "out", command="mgpa study run my.toml --out out")
    assert_same_files(finished[1], tmp_path / "out")


def test_a_cluster_gives_the_same_bytes(finished, tmp_path):
    pytest.importorskip("distributed")
    written(tmp_path)
    done(*RUN, "--scheduler", "local", folder=tmp_path)
    provenance = tmp_path / "out" / "provenance.json"
    text = provenance.read_text("utf-8")
    assert " --scheduler local" in text
    provenance.write_text(text.replace(" --scheduler local", ""), "utf-8")
    assert_same_files(finished[1], tmp_path / "out")


def test_a_method_that_cannot_reach_its_budget_is_left_out_with_a_note(tmp_path, monkeypatch, capsys):
    path = written(tmp_path, TINY.replace("budget = 0.05", "budget = 0.9") + '[[contrasts]]\na = "Iter"\n')
    result = run(load_study(path), tmp_path / "out" / "work")
    assert list(result.audits[""].methods) == ["identity", "LEACE_50 %", "CF"]
    assert list(result.omitted) == ["Iter"]
    assert re.fullmatch(
        r"the budget is 0\.9, but fit 0 moves VAL rows by at most 0\.\d+", result.omitted["Iter"]
    )
    write_results(result, tmp_path / "out")
    written_down = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))
    assert written_down["omitted"] == result.omitted
    assert not any("Iter" in (row["method"], row["against"]) for row in written_down["contrasts"])
    assert "Iter is left out: the budget is 0.9" in (tmp_path / "out" / "report.html").read_text("utf-8")
    assert in_process(monkeypatch, "study", "run", path, "--out", tmp_path / "out") == 0
    assert "Iter is left out" in capsys.readouterr().out


def test_a_budget_that_one_split_does_not_attain_leaves_the_method_out_of_all(tmp_path):
    path = written(tmp_path, table=paired_table())
    rotated = {"roles": {"folds": 5, "rotations": [1, 2], "seed": 1}}
    whole = run(load_study(path, **rotated, methods={"Iter": {"budget": None}}), tmp_path / "work")
    moved = [float(fact["validation_movement"]) for fact in whole.audits[""]["Iter"].facts]
    between = {"Iter": {"budget": float(np.mean(moved))}}
    result = run(load_study(path, **rotated, methods=between), tmp_path / "work")
    assert "Iter" not in result.audits[""].methods
    assert list(result.omitted) == ["Iter"]
