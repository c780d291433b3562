"""`mgpa select`: the part of a map that moves validation rows by a given share."""

import json

import numpy as np
import pytest

import mgpa
from terminal import done, refused

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")

from mgpa.endpoint import relative_movement
from mgpa.tables import open_table, rows_for, write_table


@pytest.mark.parametrize("arguments", [(), ("--components", 16), ("--components", 5)])
def test_the_selected_map_moves_val_rows_by_the_budget(tmp_path, arguments):
    done("simulate", "--out", "raw.parquet", folder=tmp_path)
    done("fit", "raw.parquet", "--out", "m.safetensors", *arguments, folder=tmp_path)
    command = ("select", "m.safetensors", "raw.parquet", "--budget", 0.05, "--out", "small.safetensors")
    facts = json.loads(done(*command, "--json", folder=tmp_path).stdout)
    m, raw = mgpa.load_map(tmp_path / "small.safetensors"), open_table(tmp_path / "raw.parquet").read()
    moved = {role: relative_movement(m, rows_for(m, raw.rows(role)).X) for role in ("VAL", "EVAL")}
    assert facts["movement"] == 0.05
    assert moved["VAL"] == pytest.approx(0.05, rel=1e-9)
    assert moved["EVAL"] != pytest.approx(0.05, rel=1e-6)
    assert m.strength == pytest.approx(facts["strength"])
    done("apply", "small.safetensors", "raw.parquet", "--out", "corrected.parquet", folder=tmp_path)


def test_a_table_without_roles_decides_with_all_of_its_rows(folder, table, tmp_path):
    write_table(table.with_columns(role=None), tmp_path / "t.parquet")
    arguments = ("select", folder / "map one.safetensors", tmp_path / "t.parquet", "--budget", 0.05)
    done(*arguments, "--out", tmp_path / "small.safetensors")
    m = mgpa.load_map(tmp_path / "small.safetensors")
    assert relative_movement(m, table.X) == pytest.approx(0.05, rel=1e-9)


def test_roles_without_val_are_refused(folder, table, tmp_path):
    write_table(table.with_columns(role=np.where(table.role == "VAL", "FIT", table.role)), tmp_path / "t.npz")
    arguments = ("select", folder / "map one.safetensors", tmp_path / "t.npz", "--budget", 0.05)
    assert "has roles but no VAL rows" in refused(*arguments, "--out", tmp_path / "small.safetensors")
    assert not (tmp_path / "small.safetensors").exists()


def test_a_budget_that_the_map_does_not_attain_is_refused(folder, tmp_path):
    arguments = ("select", "map one.safetensors", "rec ördings.parquet", "--budget", 50)
    said = refused(*arguments, "--out", tmp_path / "big.safetensors", folder=folder)
    assert "not attained" in said
    assert "a smaller --budget" in said
    assert not (tmp_path / "big.safetensors").exists()
