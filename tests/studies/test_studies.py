"""Studies of one's own: files that are checked, cells that are never computed twice, results that add up."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import mgpa
from simulated import simulated_table

pytest.importorskip("cyclopts")
pytest.importorskip("pydantic")
pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from mgpa.audit.store import Store
from mgpa.cli import main
from mgpa.gate import FullGate, PCAGate, RandomGate
from mgpa.studies import StudyError, load_study, plan_study, run_study, write_results
from mgpa.studies.arms import make_arms, pairs_by_method
from mgpa.studies.recordings import Recordings
from mgpa.studies.results import SIMULATED, contrasts, estimates
from mgpa.studies.splits import make_split, split_names
from mgpa.tables.files import open_table, write_table

TINY = """
name = "tiny"
title = "Tiny & <quick>"
seeds = [17]
[data]
kind = "table"
table = "rows.npz"
[gate]
rank = 2
[methods."LEACE_50 %"]
method = "leace"
[methods.CF]
method = "closed_form_mgpa"
[methods.Iter]
method = "iterative_mgpa"
budget = 0.05
parameters = { n_stages = 3, critic_epochs = 2, do_no_harm = false }
[readers]
restarts = 0
[[contrasts]]
a = "CF"
paper = { S = [-0.25, -0.3, -0.2] }
[[contrasts]]
a = "CF"
b = "LEACE_50 %"
metrics = ["T_f", "worst"]
[paper]
identity = { S = 0.75 }
CF = { S = 0.5, M = 0.125 }
"""
# Two amplifiers, five people, eight events.
RECORDED = """
name = "recorded"
title = "Recorded twice"
seeds = [17]
[data]
kind = "neuroscan_flex"
tasks = ["N170"]
[data.simulate]
n_events = 8
participants = ["1013", "1014", "1016", "1018", "1019"]
crosstalk = 1e-5
[encoder]
name = "temporal_bins"
[roles.people]
FIT = [1013, 1014]
HEAD = [1016]
EVAL = [1018, 1019]
[gate]
rank = 2
[methods.CF]
method = "closed_form_mgpa"
[readers]
restarts = 0
[[contrasts]]
a = "CF"
"""
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


def written(folder, text=TINY, name="my.toml"):
    """Return the path of a study, beside its table."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, "utf-8")
    write_table(simulated_table(), folder / "rows.npz", overwrite=True)
    return folder / name


def run(study, work, **options):
    return run_study(study, work, verbose=False, **options)


def files_of(folder):
    """Return the bytes of every file, but for what plans are made by and what killed writers left."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.name != "timings.jsonl"
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }


def assert_same_files(first, second):
    a, b = files_of(first), files_of(second)
    assert list(a) == list(b)
    assert [name for name in a if a[name] != b[name]] == []


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


def in_process(monkeypatch, *arguments):
    """Run a command here, as if it had been typed; return its exit code."""
    words = [str(argument) for argument in arguments]
    monkeypatch.setattr(sys, "argv", ["mgpa", *words])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    return main(words)


# --- what is written ---------------------------------------------------------------------------------------


def test_a_study_says_what_it_said(tmp_path):
    study = load_study(written(tmp_path))
    assert list(study.methods) == ["LEACE_50 %", "CF", "Iter"]
    assert study.data.table == tmp_path / "rows.npz"
    assert study.gate.rank == 2
    assert study.methods["Iter"].budget == 0.05
    assert not study.simulated
    assert load_study(tmp_path / "my.toml", gate={"rank": 3}).gate.rank == 3
    other = load_study(tmp_path / "my.toml", recordings=Path("elsewhere.parquet"))
    assert other.data.table == Path("elsewhere.parquet")


def test_overlays_replace_values_and_leave_methods_out(tmp_path):
    overlay = (
        "[quick]\nseeds = [1]\n[quick.methods]\nIter = false\n'LEACE_50 %' = false\n[quick.gate]\nrank = 1\n"
    )
    path = written(tmp_path, TINY + overlay)
    whole, quick = load_study(path), load_study(path, quick=True)
    assert (whole.seeds, quick.seeds) == ((17,), (1,))
    assert (whole.gate.rank, quick.gate.rank) == (2, 1)
    assert list(quick.methods) == ["CF"]
    assert [(c.a, c.b) for c in quick.contrasts] == [("CF", "identity")]
    assert len(whole.contrasts) == 2


def test_another_encoder_does_not_keep_the_parameters_of_the_first(tmp_path):
    text = RECORDED.replace('name = "temporal_bins"', 'name = "temporal_bins"\nparameters = { width = 0.1 }')
    text += '[simulated.encoder]\nname = "band_power"\n'
    assert load_study(written(tmp_path, text)).encoder.parameters == {}
    assert load_study(tmp_path / "my.toml", recordings=tmp_path).encoder.parameters == {"width": 0.1}


WRONG = {
    "[gate]\nrnk = 2": r"gate\.rnk: there is no such setting",
    "[extra]\na = 1": r"extra: there is no such setting",
    "[data.simulat]\na = 1": r"data\.simulat: there is no such setting",
    "[roles.people]\nTRAIN = ['a']": r"roles: TRAIN is no role; they are FIT, VAL, HEAD and EVAL",
    "[roles]\nshares = { FIT = 1.0 }\npeople = { FIT = ['a'] }": r"roles: give people, rotations .*",
    "[roles]\nrotations = [1]\nshares = { FIT = 1.0 }": r"roles: give people, rotations .* or shares",
    "[[contrasts]]\na = 'MGPA'": r"contrasts name 'MGPA'; the methods are CF, Iter, LEACE_50 %, identity",
    "[[contrasts]]\na = 'CF'\nb = 'none'": r"contrasts name 'none'",
    "[[contrasts]]\nb = 'CF'": r"contrasts\.2\.a: is missing",
    "[[contrasts]]\na = 'CF'\nmetrics = ['T']": r"contrasts\.2: there is no metric 'T' here; known: S, T_f",
    "[[contrasts]]\na = 'CF'\npaper = { S = [0.1, 0.0] }": r"contrasts\.2\.paper\.S: .*3 items",
    "[[contrasts]]\na = 'CF'\npaper = { worst = [0.1, 0.0, 0.2] }": r"contrasts\.2: .*no metric 'worst' here",
    "[methods.R]\nmethod = 'iterative_mgpa'\ngate = 'random'": r"methods\.R: .*random.* needs gate_seeds",
    "[methods.R]\nmethod = 'iterative_mgpa'\ngate_seeds = [1]": r"methods\.R: .*only that gate does",
    "[methods.R]\nmethod = 'iterative_mgpa'\ngate = 'best'": r"methods\.R\.gate: .*'measurement'.*got 'best'",
    "[methods.R]\nparameters = {}": r"methods\.R\.method: is missing",
    "[methods.R]\nmethod = 'leace'\ngrid = { ridge = [0, 1] }": r"methods\.R\.grid: only \[reuse\]",
    "[methods.identity]\nmethod = 'identity'": r"'identity' is always measured",
    "[encoder]\nname = 'band_power'": r"a table holds embeddings already; leave \[encoder\] and",
    "[views]\nzscore = true": r"a table holds embeddings already",
    "[reuse]\ndevelopment = 'a'\ntasks = ['b']": r"reuse: development is 'a', which is not among tasks",
    "[reuse]\ndevelopment = 'a'\ntasks = ['a']": r"reuse\.tasks names 'a'",
    "[paper.CF2]\nQ = 1.0": r"there is no metric 'Q' here",
    "[readers]\nrestarts = 'many'": r"readers\.restarts: .*integer.*got 'many'",
}


@pytest.mark.parametrize("extra", WRONG)
def test_what_is_wrong_is_said_in_one_line_with_its_place(extra, tmp_path):
    section = extra.partition("\n")[0]
    text = (
        TINY if section.startswith("[[") else re.sub(rf"(?m)^{re.escape(section)}\n(?:[^\[].*\n)*", "", TINY)
    )
    path = written(tmp_path, f"{text}\n{extra}\n")
    with pytest.raises(StudyError, match=WRONG[extra]) as error:
        load_study(path)
    first, *lines = str(error.value).splitlines()
    assert first == f"{path} is not a study that can be run:"
    assert len(lines) == 1


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(StudyError, match=r"(?s)name: is missing.*title: is missing.*methods: is missing"):
        load_study(written(tmp_path, "[data]\nkind = 'table'\ntable = 'rows.npz'\n"))
    with pytest.raises(StudyError, match=r"data\.kind: is missing"):
        load_study(written(tmp_path, "name = 'a'\ntitle = 'b'\n[methods]\n"))
    without = RECORDED.replace('[encoder]\nname = "temporal_bins"\n', "")
    with pytest.raises(StudyError, match=r"the study: recordings need an \[encoder\]"):
        load_study(written(tmp_path, without))
    for change, said in (
        ({"kind": "table"}, "data: kind = 'table' needs table = 'file.parquet'"),
        ({"tasks": []}, r"data: neuroscan_flex needs tasks, as tasks = \['N170'\]"),
        ({"table": "rows.npz"}, "data: kind = 'table' has a table, and recordings have a folder"),
        (
            {"tasks": ["N170", "oddball_active"]},
            r"N170, oddball_active: only \[reuse\] has several recorded tasks$",
        ),
    ):
        with pytest.raises(StudyError, match=said):
            load_study(written(tmp_path, RECORDED), data=change)
    with pytest.raises(StudyError, match=r"name: .*pattern"):
        load_study(written(tmp_path), name="../a")


def test_what_is_no_study_is_said(tmp_path):
    with pytest.raises(StudyError, match=r"is not TOML: .*line 2"):
        load_study(written(tmp_path, "name = 'a'\ntitle = \n"))
    with pytest.raises(StudyError, match=r"none\.toml cannot be read: No such file or directory"):
        load_study(tmp_path / "none.toml")
    with pytest.raises(StudyError, match="There is no study 'controled'; there are controlled-ssvep, "):
        load_study("controled")
    (tmp_path / "latin.toml").write_bytes(b"title = '\xe4'")
    with pytest.raises(StudyError, match="is not text in UTF-8"):
        load_study(tmp_path / "latin.toml")
    for key in ("data", "quick", "simulated"):
        with pytest.raises(StudyError, match=rf"my\.toml: {key} is 3; it must be a section, \[{key}\]"):
            load_study(written(tmp_path, f"name = 'a'\ntitle = 'b'\n{key} = 3\n"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"methods": {"X": {"method": "leaze"}}},
            "methods.X: there is no method 'leaze'; see `mgpa methods`",
        ),
        ({"methods": {"X": {"method": "cmmn"}}}, "methods.X: cmmn corrects signals"),
        ({"methods": {"X": {"method": "leace", "gate": "pca"}}}, "methods.X: leace has no gate"),
        ({"methods": {"X": {"method": "closed_form_mgpa", "gate": "full"}}}, "methods.X: control gates are"),
        (
            {"methods": {"X": {"method": "leace", "parameters": {"rigde": 1}}}},
            "methods.X.parameters: .*rigde",
        ),
    ],
)
def test_methods_that_cannot_be_made_are_refused_before_anything_is_computed(changes, said, tmp_path):
    study = load_study(written(tmp_path, RECORDED), **changes)
    for start in (run, plan_study):
        with pytest.raises(StudyError, match=said):
            start(study, tmp_path / "work")
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("text", "changes", "said"),
    [
        (TINY, {"data": {"labels": {"x": "moisture"}}}, "data.labels names the column 'moisture' for 'x'"),
        (TINY, {"coordinates": {"source": "gel"}}, "coordinates.source is 'gel'; the sources are dry, wet"),
        (TINY, {"gate": {"tokens": True}}, "gate.tokens is for embeddings of tokens"),
        (TINY, {"roles": {"people": {"FIT": ["nobody"]}}}, "roles.people names nobody"),
        (RECORDED, {"data": {"folder": "/none"}}, "There is no folder /none"),
        (RECORDED, {"data": {"simulate": {"loudness": 1}}}, "data.simulate does not fit the simulator.*loud"),
    ],
)
def test_data_that_do_not_fit_are_refused(text, changes, said, tmp_path):
    with pytest.raises(StudyError, match=said):
        run(load_study(written(tmp_path, text), **changes), tmp_path / "work")


def test_a_table_that_is_not_there_is_named(tmp_path, monkeypatch, capsys):
    path = written(tmp_path)
    (tmp_path / "rows.npz").unlink()
    for command_ in ("run", "plan"):
        assert in_process(monkeypatch, "study", command_, path, "--out", tmp_path / "out") == 2
        assert capsys.readouterr().err == f"mgpa: There is no file or folder {tmp_path / 'rows.npz'}.\n"


def test_a_new_study_loads_and_runs_on_simulated_embeddings(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert in_process(monkeypatch, "simulate", "--out", "embeddings.parquet") == 0
    title = 'What "it" does\\ to {mine}'
    assert in_process(monkeypatch, "study", "new", "mine, 50 %.toml", "--title", title) == 0
    study = load_study("mine, 50 %.toml")
    assert study.title == title
    assert study.name == "mine--50"
    assert in_process(monkeypatch, "study", "run", "mine, 50 %.toml", "--quick", "--out", "out") == 0
    assert "MGPA, closed form" in capsys.readouterr().out
    assert Path("out/report.html").exists()
    # Nothing is overwritten unasked, and names of files are told from names of studies.
    assert in_process(monkeypatch, "study", "new", "mine, 50 %.toml") == 2
    assert in_process(monkeypatch, "study", "new", "mine") == 2
    assert "should end in .toml" in capsys.readouterr().err


def test_everything_the_template_comments_out_is_known(tmp_path):
    """Each commented setting of the template, without its mark, is one that studies have."""
    from importlib.resources import files

    text = files("mgpa.studies").joinpath("template.toml").read_text("utf-8")
    text = text.format(file="a.toml", name="a", title="b", table="rows.npz")
    # Alternatives to each other, or to the table: one at a time.
    for wanted in ("shares = ", "people = ", "rotations = ", "gamma = ", "components = ", "restarts = "):
        lines, section = [], False
        for line in text.splitlines():
            bare = line.removeprefix("# ")
            if line.startswith("# ["):
                section = wanted in text.partition(line)[2].partition("\n\n")[0]
            lines.append(bare if bare.startswith(wanted) or (section and line.startswith("# [")) else line)
        assert "\n".join(lines) != text
        load_study(written(tmp_path, "\n".join(lines)))


# --- who sees what -----------------------------------------------------------------------------------------


def paired_table():
    """Events that both devices saw, of people without roles."""
    table = simulated_table(n_people=60)
    return replace(table.take(np.isin(table.role, ("HEAD", "EVAL"))), role=None)


@pytest.fixture
def associated(tmp_path):
    """A study in which one view of each event is seen, at a fifth of its contrast."""
    path = written(tmp_path)
    write_table(paired_table(), tmp_path / "rows.npz", overwrite=True)
    return load_study(path, endpoints={"gamma": 0.2, "association": 0.9}, roles={"seed": 3})


def test_a_split_shows_one_view_of_events_and_keeps_full_contrasts_for_the_gate(associated, tmp_path):
    split = make_split(associated, Recordings(associated, tmp_path), "all", None)
    first, second = split.contrasts
    weak = split.endpoints[1] - split.endpoints[0]
    np.testing.assert_allclose(weak, 0.2 * (second - first), atol=1e-9)
    fit = split.table.rows("FIT")
    assert (np.asarray(fit.pair_id) == -1).all()
    assert len(fit) == len(first)
    goes_with = (fit.source == "wet") == (fit.label == np.unique(fit.label)[1])
    assert 0.8 < goes_with.mean() < 0.97
    # Coordinates are of the FIT rows that are seen.
    np.testing.assert_allclose(fit.X.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(fit.X.std(axis=0), 1, atol=1e-9)
    roles = {role: set(split.table.rows(role).participant) for role in ("FIT", "VAL", "HEAD", "EVAL")}
    assert sum(map(len, roles.values())) == len(set().union(*roles.values()))


def test_those_who_are_judged_change_nothing_that_is_fitted(associated, tmp_path):
    before = make_split(associated, Recordings(associated, tmp_path), "all", None)
    raw = open_table(tmp_path / "rows.npz").read()
    judged = np.isin(raw.participant, np.unique(before.table.rows("EVAL").participant))
    write_table(replace(raw, X=raw.X + judged[:, None]), tmp_path / "rows.npz", overwrite=True)
    after = make_split(associated, Recordings(associated, tmp_path), "all", None)
    np.testing.assert_array_equal(after.table.rows("FIT").X, before.table.rows("FIT").X)
    np.testing.assert_array_equal(after.contrasts[0], before.contrasts[0])
    assert not np.array_equal(after.table.rows("EVAL").X, before.table.rows("EVAL").X)


def test_control_gates_have_the_measured_rank_and_its_anchors(associated, tmp_path):
    iterative = {"method": "iterative_mgpa"}
    study = load_study(
        tmp_path / "my.toml",
        endpoints={"gamma": 0.2, "association": 0.9},
        gate={"rank": 3},
        methods={
            "P": iterative | {"gate": "pca"},
            "R": iterative | {"gate": "random", "gate_seeds": [5, 6]},
            "U": iterative | {"gate": "full"},
            "C": {"method": "coral", "pairs": "endpoints", "parameters": {"reference": "dry"}},
        },
    )
    split = make_split(study, Recordings(study, tmp_path), "all", None)
    made = make_arms(study, split)
    assert isinstance(made["P"].gate, PCAGate)
    assert isinstance(made["U"].gate, FullGate)
    assert [type(model.gate) for model in made["R"]] == [RandomGate] * 2
    assert [model.gate.random_state for model in made["R"]] == [5, 6]
    assert {made["P"].gate.rank, *(model.gate.rank for model in made["R"])} == {3}
    for model in (made["P"], made["U"], *made["R"]):
        assert model.anchor_gate.rank == 3
        assert model.standardize is False
    assert made["CF"].standardize is False
    pairs = pairs_by_method(study, split)
    assert pairs["C"] is split.endpoints
    assert pairs["CF"] is split.contrasts
    without = replace(split, endpoints=None)
    with pytest.raises(StudyError, match=r"methods\.C: pairs = 'endpoints' needs endpoints"):
        pairs_by_method(study, without)


def test_rotations_are_splits_and_everybody_is_judged_once(tmp_path):
    study = load_study(written(tmp_path), roles={"rotations": [0, 1, 2, 3, 4]}, methods={"Iter": False})
    write_table(paired_table(), tmp_path / "rows.npz", overwrite=True)
    assert list(split_names(study)) == [f"rotation {i}" for i in range(5)]
    audit = run(study, tmp_path / "work").audits[""]
    assert sorted(audit["CF"].participants) == sorted(np.unique(paired_table().participant))
    cells = plan_study(study, tmp_path / "work").cells
    assert [cell["split"] for cell in cells] == [name for name in split_names(study) for _ in range(3)]
    assert all(cell["measured"] for cell in cells)


def test_an_encoders_weights_are_among_what_was_read(tmp_path):
    changes = {"data": {"folder": str(tmp_path / "recordings")}}
    text = RECORDED.replace('name = "temporal_bins"', 'name = "eegpt"\ncheckpoint = "weights.safetensors"')
    study = load_study(written(tmp_path, text), **changes)
    (tmp_path / "recordings").mkdir()
    with pytest.raises(StudyError, match=re.escape(f"There is no file {tmp_path / 'weights.safetensors'}.")):
        Recordings(study, tmp_path / "work").is_kept("N170")
    keys = []
    for content in (b"one", b"two"):
        (tmp_path / "weights.safetensors").write_bytes(content)
        recordings = Recordings(study, tmp_path / "work")
        assert recordings.checksums == {"checkpoint weights.safetensors": sha256(content).hexdigest()}
        keys.append(recordings._key("N170"))
    assert keys[0] != keys[1]


# --- what is computed --------------------------------------------------------------------------------------


def computed(study, work):
    """Run a study; return how often it fitted each method and measured one, and whether cells changed."""
    notes = work / "cells" / "timings.jsonl"
    before = notes.read_text().splitlines() if notes.exists() else []
    old = {path: path.stat().st_mtime_ns for path in (work / "cells").glob("*[!l]")}
    run(study, work)
    assert {path: path.stat().st_mtime_ns for path in old} == old, "a finished cell was written again"
    after = notes.read_text().splitlines() if notes.exists() else []
    return Counter(json.loads(line)[0] for line in after[len(before) :])


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
        ({"floor": True}, {"measure": 1}),
        ({"coordinates": {"components": 6}}, everything),
        ({}, {}),
    ):
        assert computed(load_study(path, **changes), work) == expected, changes


def test_other_rows_are_other_cells(tmp_path):
    path, work = written(tmp_path), tmp_path / "work"
    study = load_study(path, methods={"Iter": False})
    computed(study, work)
    write_table(simulated_table(seed=1), tmp_path / "rows.npz", overwrite=True)
    assert computed(study, work)["measure"] == 3


def test_a_plan_knows_what_is_there_and_computes_nothing(tmp_path, monkeypatch, capsys):
    path, work = written(tmp_path), tmp_path / "out" / "work"
    study = load_study(path)
    before = plan_study(study, work)
    assert [cell["method"] for cell in before.cells] == ["identity", "LEACE_50 %", "CF", "Iter"]
    assert not any(cell["fitted"] or cell["measured"] for cell in before.cells)
    assert {cell["seconds"] for cell in before.cells} == {None}
    assert "not known yet" in str(before)

    run(load_study(path, methods={"Iter": False}), work)
    cells = files_of(work)
    half = plan_study(study, work)
    assert [cell["measured"] for cell in half.cells] == [True, True, True, False]
    assert [cell["fitted"] for cell in half.cells] == [True, True, True, False]
    assert half.cells[0]["seconds"] == 0
    # A method that was changed costs what it did before; one that is new is not known.
    changed = plan_study(
        load_study(path, methods={"CF": {"parameters": {"ridge": 0.5}}, "Iter": False}), work
    ).cells[2]
    assert not changed["fitted"]
    assert changed["seconds"] > 0
    assert files_of(work) == cells

    run(study, work)
    after = plan_study(study, work)
    assert all(cell["fitted"] and cell["measured"] and cell["seconds"] == 0 for cell in after.cells)
    assert str(after).splitlines()[-1].split() == ["total", "4", "4", "4", "none"]
    assert in_process(monkeypatch, "study", "plan", path, "--out", tmp_path / "out", "--json") == 0
    assert json.loads(capsys.readouterr().out)["cells"] == after.cells


def test_a_plan_of_recordings_neither_simulates_nor_reads_them(tmp_path):
    study = load_study(written(tmp_path, RECORDED))
    before = plan_study(study, tmp_path / "work")
    assert before.tables == {"N170": False}
    assert [cell["measured"] for cell in before.cells] == [None, None]
    assert not (tmp_path / "work").exists()
    # As a killed simulation leaves it.
    begun = Recordings(study, tmp_path / "work")._simulated_folder()
    begun.mkdir(parents=True)
    assert plan_study(study, tmp_path / "work").tables == {"N170": False}
    assert list(begun.iterdir()) == []


def two_tasks():
    """Events that both devices saw, with two labels each: one of them is noise."""
    table = paired_table()
    event = np.unique(table.pair_id, return_inverse=True)[1]
    noise = np.random.default_rng(0).permutation(event.max() + 1) % 2
    return replace(table, label=None, other={"easy": np.asarray(table.label), "hard": noise[event]})


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
    cells = plan_study(study, tmp_path / "work").cells
    assert [cell["task"] for cell in cells] == ["Easy"] * 3 + ["Hard"] * 3
    with pytest.raises(StudyError, match="none can be the column 'label' itself"):
        load_study(tmp_path / "my.toml", data={"labels": labels | {"Third": "label"}})


def test_timings_are_means_and_survive_a_line_that_was_cut_off(tmp_path):
    store = Store(tmp_path)
    with store.timed("fit a"):
        pass
    with pytest.raises(ZeroDivisionError), store.timed("fit b"):
        1 / 0  # noqa: B018
    with open(tmp_path / "timings.jsonl", "a") as stream:
        stream.write('["measure", 1.0]\n["measure", 3.0]\n["meas')
    found = store.timings()
    assert found["measure"] == 2
    assert set(found) == {"fit a", "measure"}
    with Store().timed("fit a"):
        pass
    assert Store().timings() == {}


REUSE = """
[data.labels]
easy = "easy"
hard = "hard"
[methods.Family]
method = "leace"
grid = { ridge = [0.1, 0.5] }
[reuse]
development = "easy"
tasks = ["easy", "hard"]
calibration = 4
labels = { easy = "Easy", hard = "Hard" }
"""


@pytest.fixture
def reused(tmp_path):
    """A study of two tasks on events that both devices saw; the second task has other labels."""
    text = re.sub(r"(?s)\[\[contrasts\]\].*", "", TINY.replace("budget = 0.05\n", ""))
    path = written(tmp_path, text + REUSE)
    write_table(two_tasks(), tmp_path / "rows.npz", overwrite=True)
    return path


def test_reuse_selects_once_and_audits_every_task(reused, tmp_path):
    work = tmp_path / "work"
    study = load_study(reused)
    before = plan_study(study, work)
    assert Counter(cell["method"] for cell in before.cells)["Family"] == 2
    assert not any(cell["fitted"] for cell in before.cells if cell["method"] != "identity")
    result = run(study, work)
    assert list(result.audits) == ["Easy", "Hard"]
    assert set(result.selection) == set(study.methods)
    assert result.selection["Family"]["recipe"]["ridge"] in (0.1, 0.5)
    assert result.selection["Family"]["candidates"] == 2
    after = plan_study(study, work)
    assert all(cell["fitted"] and cell["measured"] for cell in after.cells)
    # Frozen maps: how far they move the same rows does not depend on the task.
    for name in study.methods:
        easy, hard = (result.audits[task][name].estimate("M").value for task in ("Easy", "Hard"))
        assert easy == pytest.approx(hard, rel=1e-9)
    # What tasks are called, and which there are besides the first, changes no fit; what may be lost does.
    for change in ({"labels": {"easy": "E", "hard": "H"}}, {"tasks": ["easy"]}):
        assert computed(load_study(reused, reuse=change), work) == {}
    found = computed(load_study(reused, reuse={"max_loss": 0.02}), work)
    selected = {name: n for name, n in found.items() if name.startswith("select")}
    assert selected == {f"select {name}": 2 if name == "Family" else 1 for name in study.methods}
    report = write_results(result, tmp_path / "out")
    text = report.read_text("utf-8")
    assert "What development people chose" in text
    assert 'href="report-Hard.html"' in text
    assert (tmp_path / "out" / "figures" / "worst.svg").exists()


def test_reuse_refuses_what_it_would_not_heed(reused, tmp_path):
    for changes, said in (
        ({"endpoints": {"association": 0.9}}, r"\[reuse\] has no \[endpoints\]"),
        ({"methods": {"CF": {"budget": 0.1}}}, r"methods\.CF\.budget: in \[reuse\], development people"),
        ({"reuse": {"tasks": ["easy", "harder"]}}, "reuse.tasks names 'harder'; the data have easy, hard"),
    ):
        with pytest.raises(StudyError, match=said):
            load_study(reused, **changes)
    with pytest.raises(StudyError, match="calibration = 5000 leaves no events"):
        run(load_study(reused, reuse={"calibration": 5000}), tmp_path / "work")


# --- what comes out ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study, its result, and the folder it was written to."""
    folder = tmp_path_factory.mktemp("finished")
    result = run(load_study(written(folder)), folder / "out" / "work")
    write_results(result, folder / "out", command="mgpa study run my.toml --out out")
    return result, folder / "out"


def read_rows(path):
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_rows_are_what_the_audit_says(finished):
    result, folder = finished
    audit = result.audits[""]
    rows = list(estimates(result))
    more = ("L", *(f"{t} {way}" for t in ("T_f", "T_r") for way in audit["identity"].directions))
    assert {(r.method, r.metric): r.estimate for r in rows} == {
        (name, metric): audit[name].estimate(metric)
        for name, found in audit.estimates.items()
        for metric in (*found, *more)
    }
    differences = list(contrasts(result))
    assert {(r.method, r.against, r.metric) for r in differences} == {
        *(("CF", "identity", metric) for metric in ("S", "T_f", "T_r", "M")),
        *(("CF", "LEACE_50 %", metric) for metric in ("T_f", "worst")),
    }
    for row in differences:
        assert row.estimate == audit.contrast(row.method, row.against, row.metric)
    for path, found in (("table.csv", rows), ("contrasts.csv", differences)):
        written_rows = read_rows(folder / path)
        assert [float(row["value"]) for row in written_rows] == [row.value for row in found]
        assert [float(row["low"]) for row in written_rows] == [row.low for row in found]
        assert [row["method"] for row in written_rows] == [row.method for row in found]
    content = json.loads((folder / "results.json").read_text("utf-8"))
    assert content["simulated"] is False
    assert [row["value"] for row in content["estimates"]] == [row.value for row in rows]
    people = {row["participant"] for row in read_rows(folder / "participants.csv")}
    assert people == set(audit["CF"].participants)


def test_the_papers_values_stand_beside_ours(finished):
    result, folder = finished
    rows = {(r.method, r.metric): r for r in estimates(result)}
    assert {key for key, row in rows.items() if row.paper is not None} == {
        ("identity", "S"), ("CF", "S"), ("CF", "M"),
    }  # fmt: skip
    row = rows["CF", "M"]
    assert row.difference == row.value - 0.125
    assert rows["CF", "T_f"].difference is None
    first = next(contrasts(result))
    assert (first.paper, first.paper_low, first.paper_high) == (-0.25, -0.3, -0.2)
    assert first.difference == first.value + 0.25
    found = {(r["method"], r["metric"]): r for r in read_rows(folder / "table.csv")}
    assert float(found["CF", "M"]["difference"]) == row.difference
    assert found["CF", "T_f"]["paper"] == found["CF", "T_f"]["difference"] == ""


@pytest.mark.parametrize("name", ["table.tex", "contrasts.tex"])
def test_latex_has_the_same_columns_in_every_line(finished, name):
    text = (finished[1] / name).read_text("utf-8")
    begin, *lines, end = text.splitlines()[1:]
    assert begin == r"\begin{tabular}{@{}llrlrr@{}}"
    assert end == r"\end{tabular}"
    body = [line for line in lines if not line.endswith("rule")]
    assert len(body) > 5
    for line in body:
        assert line.endswith(r" \\")
        assert len(re.findall(r"(?<!\\)&", line)) == 5
        assert not re.search(r"(?<!\\)[%_#]", line)
    assert r"LEACE\_50 \%" in text


def test_the_report_tells_about_the_study_and_loads_nothing(finished):
    text = (finished[1] / "report.html").read_text("utf-8")
    assert "Tiny &amp; &lt;quick&gt;" in text
    assert "<quick>" not in text
    assert "The study" in text
    assert "Differences that the study is about" in text
    assert SIMULATED not in text
    assert not re.search(r"""<[^>]*\s(?:src|href)=["'](?!data:|#|report)""", text)
    assert not re.search(r"https?://(?!www\.w3\.org)", text)
    assert "@import" not in text


def test_provenance_says_where_every_number_comes_from(finished):
    result, folder = finished
    found = json.loads((folder / "provenance.json").read_text("utf-8"))
    assert found["command"] == "mgpa study run my.toml --out out"
    assert found["study"]["seeds"] == [17]
    assert found["study"]["data"]["table"] == "rows.npz"
    assert found["study"]["methods"]["Iter"]["parameters"]["n_stages"] == 3
    assert found["versions"]["mgpa"] == mgpa.__version__
    assert found["versions"]["numpy"] == np.__version__
    assert {"python", "scipy", "scikit-learn", "torch"} <= set(found["versions"])
    checksum = sha256((folder.parent / "rows.npz").read_bytes()).hexdigest()
    assert found["data"]["files"] == result.checksums == {"rows.npz": checksum}
    assert found["rows"][""]["EVAL"] > 0
    here = (str(folder.parent), str(Path.home()), str(Path(mgpa.__file__).parent), str(Path.cwd()))
    for name, content in files_of(folder).items():
        if not name.endswith(".png"):
            assert not [path for path in here if len(path) > 1 and path.encode() in content], name


def test_results_without_what_a_contrast_asks_for_are_still_written(tmp_path):
    path = written(tmp_path)
    write_table(simulated_table(label=None), tmp_path / "rows.npz", overwrite=True)
    study = load_study(path, methods={"Iter": False}, contrasts=[{"a": "CF", "metrics": ["T_f"]}])
    result = run(study, tmp_path / "work")
    assert list(contrasts(result)) == []
    write_results(result, tmp_path / "out")
    assert not (tmp_path / "out" / "figures" / "contrasts.pdf").exists()


# --- the same, whatever happens ----------------------------------------------------------------------------

RUN = ("study", "run", "my.toml", "--out", "out")


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


def test_killed_anywhere_a_study_ends_with_the_same_bytes(tmp_path):
    expected = uninterrupted(tmp_path / "whole")
    written(tmp_path / "killed")
    rng = np.random.default_rng()  # a different moment every time
    kills = [interrupted(tmp_path / "killed", rng, latest) for latest in (4.0, 7.0, 10.0)]
    assert any(kills)
    done(*RUN, folder=tmp_path / "killed")
    assert_same_files(expected, tmp_path / "killed" / "out")


def test_killed_while_it_simulates_or_reads_recordings_a_study_ends_with_the_same_bytes(tmp_path):
    expected = uninterrupted(tmp_path / "whole", RECORDED)
    written(tmp_path / "killed", RECORDED)
    rng = np.random.default_rng()
    kills = [interrupted(tmp_path / "killed", rng, latest) for latest in (3.0, 5.0, 7.0)]
    assert any(kills)
    done(*RUN, folder=tmp_path / "killed")
    assert_same_files(expected, tmp_path / "killed" / "out")
    # The report is honest about what it rests on.
    assert "These recordings are simulated" in (expected / "report.html").read_text("utf-8")
    found = json.loads((expected / "provenance.json").read_text("utf-8"))
    assert "mne" in found["versions"]
    assert all(name.startswith("10") for name in found["data"]["files"])


def test_what_a_killed_simulation_left_is_no_recording(tmp_path):
    study = load_study(written(tmp_path, RECORDED))
    first = Recordings(study, tmp_path / "work")
    table = first.table("N170")
    left = first.folder / ".0123456789abcdef.tmp"
    left.mkdir()
    (left / "1018_N170_flex.edf").write_bytes(b"half of it")
    (first.folder / "1013" / ".fedcba9876543210.tmp").write_bytes(b"half of it")
    again = Recordings(study, tmp_path / "work")
    assert again.checksums == first.checksums
    assert again.is_kept("N170")
    np.testing.assert_array_equal(again.table("N170").X, table.X)


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


def test_control_gates_have_the_measured_rank_with_three_sources(tmp_path):
    from mgpa.studies.arms import measured_rank
    from mgpa.studies.splits import Split
    from mgpa.tables.simulate import simulate_table

    table = simulate_table(n_people=16, d=6, n_sources=3)
    study = load_study(
        "controlled-ssvep", data={"kind": "table", "table": str(tmp_path / "t.npz")}, encoder=None, views=None
    )
    split = Split("all", table, None)
    assert measured_rank(study, split) >= 1
