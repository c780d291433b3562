"""`mgpa inspect`: what a map or a table is."""

import json
from dataclasses import replace

import numpy as np
import pytest

import mgpa
from mgpa.tables import write_table
from terminal import done, refused

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")


def test_inspecting_a_map_tells_everything_about_it(folder):
    facts = json.loads(done("inspect", "map one.safetensors", "--json", folder=folder).stdout)
    m = mgpa.load_map(folder / "map one.safetensors")
    assert facts["method"] == "ClosedFormMGPA"
    assert facts["sources"] == ["dry", "wet"]
    assert facts["gate"] == {"rank": m.info.gate_rank, "energy": m.info.gate_energy}
    assert facts["parameters"]["ridge"] == "auto"
    assert facts["evidence"] == m.info.evidence
    assert "of the contrast; acted" in facts["evidence"]
    assert facts["notes"] == ""
    assert facts["seed"] is None
    arguments = ("fit", "rec ördings.parquet", "--method", "iterative_mgpa", "--seed", "3")
    arguments += ("--set.n_stages", "2", "--set.critics", '["linear"]')
    done(*arguments, "--out", "it.safetensors", folder=folder)
    facts = json.loads(done("inspect", "it.safetensors", "--json", folder=folder).stdout)
    assert facts["seed"] == 3
    assert facts["stages"] <= 2


def test_inspecting_a_table_counts_its_rows(folder, table):
    facts = json.loads(done("inspect", "rec ördings.parquet", "--json", folder=folder).stdout)
    assert facts["rows"] == len(table)
    assert facts["counts"]["source"]["dry"] == (table.source == "dry").sum()
    assert "FIT" in done("inspect", "rec ördings.parquet", folder=folder).stdout


def test_inspecting_says_whether_a_file_has_digests_and_they_were_compared(folder, tmp_path, table):
    for name in ("rec ördings.parquet", "map one.safetensors"):
        assert json.loads(done("inspect", name, "--json", folder=folder).stdout)["verified"] is True
        assert "yes: it has digests" in done("inspect", name, folder=folder).stdout
    np.savez(tmp_path / "foreign.npz", X=table.X, source=table.source)
    assert json.loads(done("inspect", "foreign.npz", "--json", folder=tmp_path).stdout)["verified"] is False
    assert "no: it has no digests" in done("inspect", "foreign.npz", folder=tmp_path).stdout


def test_escapes_out_of_files_are_shown_and_do_not_act(tmp_path, table):
    hostile = "\x1b]0;owned\x07dry"
    rows = table.with_columns(source=np.where(table.source == "dry", hostile, table.source))
    write_table(replace(rows, other={"note\x1b[2J": np.arange(len(rows))}), tmp_path / "t.npz")
    text = done("inspect", "t.npz", folder=tmp_path).stdout
    assert r"\x1b]0;owned\x07dry" in text
    assert r"note\x1b[2J" in text
    done("fit", "t.npz", "--out", "m.safetensors", folder=tmp_path)
    text += done("inspect", "m.safetensors", folder=tmp_path).stdout
    error = refused("fit", "t.npz", "--out", "n.safetensors", "--method", "x\x1b[2J", folder=tmp_path)
    assert "\x1b" not in text + error
