"""Maps can be taken out of a study's finished cells, with everything that applying them takes."""

import json
from pathlib import Path

import numpy as np
import pytest

import mgpa
from mgpa.studies import StudyError, load_study
from mgpa.studies.recordings import Recordings
from mgpa.studies.run import find_map, study_maps
from mgpa.studies.splits import make_split, split_names
from mgpa.tables import correct
from small_studies import CLOSED_FORM, in_process, paired_table, run, two_tasks, written

PCA = {"components": 5, "floor": 1e-8}


@pytest.fixture(scope="module")
def rotated(tmp_path_factory):
    """A study in coordinates of its own, with two rotations of roles."""
    folder = tmp_path_factory.mktemp("rotated")
    path = written(folder, table=paired_table())
    changes = {"coordinates": PCA, "roles": {"folds": 5, "rotations": [1, 2], "seed": 1}}
    study = load_study(path, **changes, methods={"Iter": {"budget": 0.01}})
    run(study, folder / "work")
    return study, folder


def test_every_finished_cell_has_a_name(rotated):
    study, folder = rotated
    methods = ("identity", "LEACE_50 %", "CF", "Iter")
    assert list(study_maps(study, folder / "work")) == [
        f"rotation {r}/{name}" for r in (1, 2) for name in methods
    ]


def test_a_map_takes_the_encoders_own_features(rotated):
    study, folder = rotated
    m = find_map(study_maps(study, folder / "work"), "rotation 2/CF")
    recordings = Recordings(study, folder / "work")
    raw = recordings.table()
    split = make_split(study, recordings, "rotation 2", split_names(study)["rotation 2"])
    assert m.coordinates.digest == split.coordinates.digest
    assert (m.n_raw, m.n_features) == (raw.X.shape[1], 5)
    np.testing.assert_array_equal(m.from_raw(raw.X), m.transform(split.coordinates.transform(raw.X)))
    np.testing.assert_array_equal(correct(m, raw).X, m.from_raw(raw.X))


def test_a_map_at_a_budget_is_the_cut_one(rotated):
    study, folder = rotated
    maps = study_maps(study, folder / "work")
    split = make_split(study, Recordings(study, folder / "work"), "rotation 1", 1)
    rows = split.table.rows("VAL").X
    moved = find_map(maps, "rotation 1/Iter").transform(rows) - rows
    assert np.linalg.norm(moved) / np.linalg.norm(rows) == pytest.approx(0.01, rel=0.02)


def test_names_that_are_not_enough_are_told_the_whole_ones(rotated):
    study, folder = rotated
    maps = study_maps(study, folder / "work")
    with pytest.raises(
        StudyError, match=r"'CF' names 2 finished cells; they are rotation 1/CF, rotation 2/CF"
    ):
        find_map(maps, "CF")
    with pytest.raises(StudyError, match=r"'CORAL' names 0 finished cells; there are rotation 1/identity"):
        find_map(maps, "CORAL")


def test_the_command_lists_cells_and_writes_one(tmp_path, monkeypatch, capsys):
    path = written(tmp_path)
    assert in_process(monkeypatch, "study", "run", path, "--out", tmp_path / "out") == 0
    capsys.readouterr()
    where = ("--run", tmp_path / "out")
    assert in_process(monkeypatch, "study", "map", path, *where, "--json") == 0
    assert json.loads(capsys.readouterr().out)["cells"] == ["identity", "LEACE_50 %", "CF", "Iter"]
    out = tmp_path / "cf.safetensors"
    assert in_process(monkeypatch, "study", "map", path, "CF", *where) != 0
    assert "--out" in capsys.readouterr().err
    assert in_process(monkeypatch, "study", "map", path, "CF", *where, "--out", out) == 0
    assert "coordinates" in capsys.readouterr().out
    m = mgpa.load_map(out)
    assert m.coordinates is not None
    rows = Path(tmp_path / "rows.npz")
    corrected = tmp_path / "corrected.npz"
    assert in_process(monkeypatch, "apply", out, rows, "--out", corrected) == 0
    assert in_process(monkeypatch, "study", "map", path, "CF", *where, "--out", out) != 0
    assert "exists" in capsys.readouterr().err


def test_a_study_that_was_not_run_there_says_so(tmp_path):
    study = load_study(written(tmp_path))
    assert study_maps(study, tmp_path / "work") == {}


def test_maps_of_reuse_are_those_that_development_people_chose(tmp_path):
    reuse = """
[data.labels]
easy = "easy"
hard = "hard"
[methods.Family]
method = "leace"
grid = { ridge = [0.1, 0.5] }
[coordinates]
components = 5
[reuse]
development = "easy"
tasks = ["easy", "hard"]
calibration = 4
"""
    study = load_study(written(tmp_path, CLOSED_FORM + reuse, two_tasks()))
    assert study_maps(study, tmp_path / "work") == {}
    result = run(study, tmp_path / "work")
    maps = study_maps(study, tmp_path / "work")
    assert list(maps) == ["CF", "Family"]
    m = find_map(maps, "CF")
    assert m.strength == result.selection["CF"]["fits"][0]["strength"]
    raw = Recordings(study, tmp_path / "work").table("easy")
    assert m.from_raw(raw.X).shape == (len(raw), 5)
