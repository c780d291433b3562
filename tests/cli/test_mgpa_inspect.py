"""`mgpa inspect`: what a map or a table is."""

import json

import pytest

import mgpa
from terminal import done

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
