"""`mgpa fit`, `select`, `inspect`, `export`: the map stored, described and passed on."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import mgpa
from simulated import simulated_table
from terminal import done, in_process, refused

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")

from mgpa.operating_point import relative_movement
from mgpa.tables import open_table, rows_for, write_table

TABLE = "rec ördings.parquet"


def test_a_fit_is_that_of_the_fit_rows_with_pairs_from_either_table(folder, table):
    m = mgpa.load_map(folder / "map one.safetensors")
    fit = table.rows("FIT")
    expected = mgpa.ClosedFormMGPA().fit(fit.X, source=fit.source, pair_id=fit.pair_id)
    np.testing.assert_allclose(m.transform(table.X), expected.transform(table.X), rtol=0, atol=1e-9)
    done("fit", TABLE, "--pairs", TABLE, "--out", "paired.safetensors", folder=folder)
    assert mgpa.load_map(folder / "paired.safetensors").info.n_contrasts == m.info.n_contrasts


def test_parameters_and_rank_are_read(folder):
    arguments = ("--method", "leace", "--set.ridge", "0.5", "--set.standardize", "false")
    done("fit", TABLE, "--out", "ridge.safetensors", *arguments, folder=folder)
    parameters = mgpa.load_map(folder / "ridge.safetensors").info.parameters
    assert (parameters["ridge"], parameters["standardize"]) == (0.5, False)
    for method, rank, expected in (("closed_form_mgpa", 2, 2), ("ncm", 2, 2), ("closed_form_mgpa", "1.0", 8)):
        arguments = ("--rank", rank, "--method", method, "--out", "rank.safetensors", "--overwrite")
        done("fit", TABLE, *arguments, folder=folder)
        assert mgpa.load_map(folder / "rank.safetensors").info.gate_rank == expected
    done("fit", TABLE, "--rank", "auto", "--out", "auto.safetensors", folder=folder)
    auto, default = (mgpa.load_map(folder / f"{n}.safetensors") for n in ("auto", "map one"))
    assert auto.info.gate_rank == default.info.gate_rank
    arguments = ("fit", TABLE, "--method", "leace", "--out", "x.safetensors")
    assert refused(*arguments, "--rank", 2, folder=folder) == "leace has no rank; leave --rank out."
    said = refused(*arguments, "--seed", 2, folder=folder)
    assert said == "leace draws no random numbers; leave --seed out."


def test_a_map_goes_to_the_device_that_is_named(folder, table):
    name = str(np.unique(table.source)[1])
    for method in ("mgpa", "closed_form_mgpa", "coral"):
        done(
            "fit",
            TABLE,
            "--method",
            method,
            "--reference",
            name,
            "--out",
            f"{method}.ref.safetensors",
            folder=folder,
        )
        assert mgpa.load_map(folder / f"{method}.ref.safetensors").info.parameters["reference"] == name
    m = mgpa.load_map(folder / "mgpa.ref.safetensors")
    assert m.info.reference == name
    assert f"'{name}'" in m.info.evidence
    arguments = ("fit", TABLE, "--out", "x.safetensors")
    assert name in refused(*arguments, "--reference", "tablet", folder=folder)  # the sources there are
    said = refused(*arguments, "--method", "leace", "--reference", name, folder=folder)
    assert said == "leace has no reference; leave --reference out."


def test_tokens_are_corrected_as_told(folder, tmp_path):
    table = simulated_table(n_people=24, tokens=3)
    write_table(table, tmp_path / "tokens.parquet")
    for how, width in (("mean", 8), ("joint", 24)):
        arguments = ("fit", "tokens.parquet", "--out", f"{how}.safetensors", "--tokens", how, "--json")
        facts = json.loads(done(*arguments, folder=tmp_path).stdout)
        assert (facts["features"], facts["tokens"]) == (width, 3)
        assert facts["token_layout"] == ("mean" if how == "mean" else "joint")
    said = refused("fit", TABLE, "--out", "x.safetensors", "--tokens", "joint", folder=folder)
    assert said == f"{TABLE} holds vectors, not tokens; leave --tokens out."


def test_a_fit_on_a_cluster_has_the_same_bits(folder):
    pytest.importorskip("distributed")
    arguments = ("fit", TABLE, "--out", "c.safetensors", "--scheduler", "local")
    done(*arguments, run=in_process, folder=folder)
    assert (folder / "c.safetensors").read_bytes() == (folder / "map one.safetensors").read_bytes()


@pytest.mark.parametrize("arguments", [(), ("--components", 5)])
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


def test_without_roles_all_rows_decide_a_budget_and_roles_without_val_are_refused(folder, table, tmp_path):
    write_table(table.with_columns(role=None), tmp_path / "t.parquet")
    write_table(table.with_columns(role=np.where(table.role == "VAL", "FIT", table.role)), tmp_path / "t.npz")
    out = tmp_path / "small.safetensors"
    arguments = ("select", folder / "map one.safetensors", "--budget", 0.05, "--out", out)
    assert "has no VAL rows" in refused(*arguments, tmp_path / "t.npz")
    assert not out.exists()
    done(*arguments, tmp_path / "t.parquet")
    assert relative_movement(mgpa.load_map(out), table.X) == pytest.approx(0.05, rel=1e-9)


def test_inspecting_a_map_tells_everything_about_it(folder):
    facts = json.loads(done("inspect", "map one.safetensors", "--json", folder=folder).stdout)
    info = mgpa.load_map(folder / "map one.safetensors").info
    assert facts["method"] == "MGPA"
    assert facts["sources"] == ["dry", "wet"]
    assert facts["gate"] == {"rank": info.gate_rank, "energy": info.gate_energy}
    assert facts["parameters"] == info.parameters
    assert (facts["evidence"], facts["notes"], facts["seed"]) == (info.evidence, "", None)
    arguments = ("fit", TABLE, "--method", "iterative_mgpa", "--seed", "3")
    arguments += ("--set.n_stages", "2", "--set.critics", '["linear"]')
    done(*arguments, "--out", "it.safetensors", folder=folder)
    facts = json.loads(done("inspect", "it.safetensors", "--json", folder=folder).stdout)
    assert facts["seed"] == mgpa.load_map(folder / "it.safetensors").info.random_state
    assert facts["stages"] <= 3


def test_inspecting_a_table_counts_rows_and_names_few_features(folder, table, tmp_path):
    facts = json.loads(done("inspect", TABLE, "--json", folder=folder).stdout)
    assert facts["rows"] == len(table)
    assert facts["counts"]["source"]["dry"] == (table.source == "dry").sum()
    assert "FIT" in done("inspect", TABLE, folder=folder).stdout
    write_table(replace(table, info={"features": [f"band {i}" for i in range(240)]}), tmp_path / "t.npz")
    text = done("inspect", "t.npz", folder=tmp_path).stdout
    assert "band 4, and 235 more" in text
    assert "band 5," not in text


def test_inspecting_a_csv_file_takes_the_names_of_its_columns(tmp_path):
    frame = pd.DataFrame({"f0": [0.5, 1.5, 2.5], "f1": [1.0, 2.0, 3.5], "device": ["dry", "wet", "wet"]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    text = done("inspect", "t.csv", "--embedding", "f", "--rename.device", "source", folder=tmp_path).stdout
    assert "source: dry 1, wet 2" in text


def test_inspecting_a_table_counts_rows_without_a_label(table, tmp_path):
    frame = pd.DataFrame({"embedding": list(table.X[:6]), "source": ["dry", "wet"] * 3})
    frame["label"] = pd.array([1, None, 1, None, 2, 1], "Int64")
    frame.to_parquet(tmp_path / "gaps.parquet")
    facts = json.loads(done("inspect", "gaps.parquet", "--json", folder=tmp_path).stdout)
    assert facts["counts"]["label"] == {"1": 3, "2": 1, "missing": 2}


def test_escapes_out_of_files_are_shown_and_do_not_act(tmp_path, table):
    hostile = "\x1b]0;owned\x07dry"
    rows = table.with_columns(source=np.where(table.source == "dry", hostile, table.source))
    write_table(rows, tmp_path / "t.npz")
    text = done("inspect", "t.npz", folder=tmp_path).stdout
    assert r"\x1b]0;owned\x07dry" in text
    done("fit", "t.npz", "--out", "m.safetensors", folder=tmp_path)
    text += done("inspect", "m.safetensors", folder=tmp_path).stdout
    error = refused("fit", "t.npz", "--out", "n.safetensors", "--method", "x\x1b[2J", folder=tmp_path)
    assert "\x1b" not in text + error


def test_a_map_is_written_for_another_runtime(folder, tmp_path):
    pytest.importorskip("onnx")
    done("export", folder / "map one.safetensors", "--out", tmp_path / "map.onnx")
    assert (tmp_path / "map.onnx").stat().st_size > 100
