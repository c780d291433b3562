"""`mgpa simulate`: recordings in the files of public data sets."""

import json

import pytest

from terminal import done, here, refused

pytest.importorskip("cyclopts")
pytest.importorskip("mne")


def test_simulated_ssvep_recordings_are_complete_and_lack_what_is_taken_away(tmp_path):
    done("simulate", "ssvep", "--out", "ss vep", "--people", "2", "--blocks", "1", folder=tmp_path)
    done("data", "verify", "wearable_ssvep", "ss vep", folder=tmp_path)
    (tmp_path / "ss vep" / "S002.mat").unlink()
    found = here("data", "verify", "wearable_ssvep", "ss vep", "--json", folder=tmp_path)
    assert found.returncode == 2
    assert json.loads(found.stdout)["missing"] == ["S002.mat"]


def test_simulated_erp_recordings_have_a_folder_a_participant(tmp_path):
    arguments = ("--people", "1", "--tasks", "N170", "--events", "8", "--json")
    facts = json.loads(done("simulate", "flex", "--out", "flex", *arguments, folder=tmp_path).stdout)
    assert [path.name for path in (tmp_path / "flex").iterdir() if path.is_dir()] == facts["participants"]
    said = refused("simulate", "flex", "--out", "y", "--tasks", "N17", folder=tmp_path)
    assert "no task N17; there are N170" in said
