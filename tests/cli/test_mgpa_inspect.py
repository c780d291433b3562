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


def test_pages_about_a_map_follow_the_rule_of_every_output(folder, tmp_path):
    m, rows = folder / "map one.safetensors", folder / "rec ördings.parquet"
    done("inspect", m, "--html", "m.html", "--table", rows, folder=tmp_path)
    page = (tmp_path / "m.html").read_text("utf-8")
    assert "map one.safetensors" in page
    assert "VAL rows of rec ördings.parquet move by" in page
    assert "5-fold by participant" in page
    assert refused("inspect", m, "--html", "m.html", folder=tmp_path) == (
        "m.html exists; pass --overwrite to replace it."
    )
    assert (tmp_path / "m.html").read_text("utf-8") == page
    done("inspect", m, "--html", "m.html", "--overwrite", folder=tmp_path)
    assert "VAL rows" not in (tmp_path / "m.html").read_text("utf-8")
    assert "is what is read" in refused("inspect", m, "--html", m, "--overwrite", folder=tmp_path)
    assert "is a table" in refused("inspect", rows, "--html", "t.html", folder=tmp_path)
    assert "pass --html" in refused("inspect", m, "--table", rows, folder=tmp_path)


def test_a_fit_writes_its_page_or_refuses_before_the_work(folder, tmp_path):
    rows = folder / "rec ördings.parquet"
    facts = json.loads(
        done("fit", rows, "--out", "m.safetensors", "--html", "m.html", "--json", folder=tmp_path).stdout
    )
    assert facts["page"] == "m.html"
    assert "m.safetensors" in (tmp_path / "m.html").read_text("utf-8")
    assert "m.html exists" in refused(
        "fit", rows, "--out", "n.safetensors", "--html", "m.html", folder=tmp_path
    )
    assert not (tmp_path / "n.safetensors").exists()
    said = refused("fit", rows, "--out", "o.html", "--html", "o.html", folder=tmp_path)
    assert "name two files" in said
