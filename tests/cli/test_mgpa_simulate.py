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


def test_simulated_erp_recordings_lie_as_the_providers(tmp_path):
    arguments = ("--people", "1", "--tasks", "N170", "--events", "8", "--json")
    facts = json.loads(done("simulate", "flex", "--out", "flex", *arguments, folder=tmp_path).stdout)
    assert facts["participants"] == ["1013"]
    task = tmp_path / "flex" / "Saline Raw Data" / "N170"
    assert sorted(path.name for path in task.glob("behav/*")) == ["1013_N170.csv"]
    assert sorted(path.suffix for path in task.glob("eeg/*/*")) == [".ceo", ".dap", ".dat", ".edf", ".rs3"]
    said = refused("simulate", "flex", "--out", "y", "--tasks", "N17", folder=tmp_path)
    assert "no task N17; there are N170" in said
