"""`mgpa fit`: the map it stores, and what it says about the gate."""

import json
import os

import numpy as np
import pytest

import mgpa
from simulated import simulated_table
from terminal import done, in_process, refused

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")

from mgpa.gate import held_out_coverage
from mgpa.tables import Table, open_table, write_table


def test_a_fit_is_that_of_the_fit_rows(folder, table):
    m = mgpa.load_map(folder / "map one.safetensors")
    fit = table.rows("FIT")
    expected = mgpa.ClosedFormMGPA().fit(fit.X, source=fit.source, pair_id=fit.pair_id)
    np.testing.assert_allclose(m.transform(table.X), expected.transform(table.X), rtol=0, atol=1e-9)


def test_parameters_are_read(folder):
    arguments = ("--method", "leace", "--set.ridge", "0.5", "--set.standardize", "false")
    done("fit", "rec ördings.parquet", "--out", "ridge.safetensors", *arguments, folder=folder)
    parameters = mgpa.load_map(folder / "ridge.safetensors").info.parameters
    assert parameters["ridge"] == 0.5
    assert parameters["standardize"] is False


def test_the_rank_is_that_of_the_gate_or_of_a_method_without_one(folder):
    arguments = ("fit", "rec ördings.parquet", "--rank", 2)
    for method in ("closed_form_mgpa", "ncm"):
        done(*arguments, "--method", method, "--out", f"{method}.safetensors", folder=folder)
        assert mgpa.load_map(folder / f"{method}.safetensors").info.gate_rank == 2
    said = refused(*arguments, "--method", "leace", "--out", "x.safetensors", folder=folder)
    assert said == "leace has no rank; leave --rank out."


def test_tokens_are_taken_as_told(folder, tmp_path):
    table = simulated_table(n_people=24, tokens=3)
    write_table(table, tmp_path / "tokens.parquet")
    for how, width in (("mean", 8), ("joint", 24), ("each", 24)):
        arguments = ("fit", "tokens.parquet", "--out", f"{how}.safetensors", "--tokens", how, "--json")
        facts = json.loads(done(*arguments, folder=tmp_path).stdout)
        assert (facts["features"], facts["tokens"]) == (width, 3)
        assert facts["token_layout"] == ("mean" if how == "mean" else "joint")
        assert ("held_out_coverage" in facts) == (how != "each")  # a gate for each token has no one curve
        m = mgpa.load_map(tmp_path / f"{how}.safetensors")
        assert mgpa.transform_tokens(m, table.X).shape == table.X.shape
    said = refused("fit", "rec ördings.parquet", "--out", "x.safetensors", "--tokens", "joint", folder=folder)
    assert said == "rec ördings.parquet holds vectors, not tokens; leave --tokens out."


def test_a_fit_says_what_unseen_pairs_say_about_the_gate(folder, tmp_path):
    found = done("fit", "rec ördings.parquet", "--out", "r1.safetensors", "--rank", "1", folder=folder)
    assert "of contrast energy, 5-fold by participant" in found.stdout
    assert "Hint" not in found.stdout
    rng = np.random.default_rng(0)
    event, on_b = np.repeat(np.arange(150), 2), np.tile([0, 1], 150)
    X = rng.normal(size=(150, 24))[event] + 2.0 * np.outer(on_b, np.eye(24)[0])
    X += 0.3 * rng.normal(size=X.shape)  # a shift of rank one, and noisy pairs
    table = Table(X, source=on_b, pair_id=event, participant=event // 10)
    write_table(table, tmp_path / "noisy.parquet")
    found = done("fit", "noisy.parquet", "--out", "m.safetensors", "--json", folder=tmp_path)
    facts = json.loads(found.stdout)
    assert facts["gate"]["rank"] == 1
    assert facts["hints"] == []
    found = done("fit", "noisy.parquet", "--out", "9.safetensors", "--rank", 0.9, "--json", folder=tmp_path)
    facts = json.loads(found.stdout)
    assert facts["gate"]["rank"] > 8
    assert facts["held_out_coverage"] < facts["gate"]["energy"]
    assert f"the gate has {facts['gate']['rank']} of 24 directions" in facts["hints"][0]


@pytest.mark.parametrize(
    "arguments", [(), ("--components", 5), ("--pairs", "raw.parquet", "--components", 5)]
)
def test_the_evidence_is_that_of_the_fitted_pairs_in_the_coordinates_of_the_map(tmp_path, arguments):
    done("simulate", "--out", "raw.parquet", folder=tmp_path)
    command = ("fit", "raw.parquet", "--out", "m.safetensors", "--rank", 2, "--json", *arguments)
    facts = json.loads(done(*command, folder=tmp_path).stdout)
    m = mgpa.load_map(tmp_path / "m.safetensors")
    fit = open_table(tmp_path / "raw.parquet").read().rows("FIT")
    X = fit.X if m.coordinates is None else m.coordinates.transform(fit.X)
    first, second = fit.paired_views()
    curve = held_out_coverage((X[second] - X[first]) / m.scale, groups=fit.participant[first])
    assert facts["held_out_coverage"] == pytest.approx(curve[1], rel=1e-9)


def test_a_fit_on_a_cluster_has_the_same_bits(folder):
    pytest.importorskip("distributed")
    done(
        "fit",
        "rec ördings.parquet",
        "--out",
        "c.safetensors",
        "--scheduler",
        "local",
        run=in_process,
        folder=folder,
    )
    expected = (folder / "map one.safetensors").read_bytes()
    assert (folder / "c.safetensors").read_bytes() == expected


def test_pairs_of_another_table_are_its_fit_rows(folder, table):
    arguments = (
        "fit",
        "rec ördings.parquet",
        "--pairs",
        "rec ördings.parquet",
        "--out",
        "paired.safetensors",
    )
    done(*arguments, folder=folder)
    with_roles = mgpa.load_map(folder / "paired.safetensors").info.n_contrasts
    assert with_roles == mgpa.load_map(folder / "map one.safetensors").info.n_contrasts


def test_pairs_of_other_sources_are_refused(folder, tmp_path):
    renamed = simulated_table(n_people=12)
    write_table(renamed.with_columns(source=np.char.add(renamed.source, "2")), tmp_path / "pairs.parquet")
    arguments = ("--pairs", tmp_path / "pairs.parquet", "--out", tmp_path / "m.safetensors")
    said = refused("fit", folder / "rec ördings.parquet", *arguments)
    assert "The table of pairs has sources dry2, wet2; the table to fit has dry, wet" in said
    assert "name the sources alike in both" in said
    assert not (tmp_path / "m.safetensors").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_an_error_not_a_crash(folder, tmp_path):
    tmp_path.chmod(0o500)
    arguments = ("fit", folder / "rec ördings.parquet", "--out", tmp_path / "m.safetensors")
    said = refused(*arguments)
    tmp_path.chmod(0o700)
    assert "m.safetensors" in said


@pytest.mark.parametrize("command", ["fit", "select", "export", "convert"])
def test_no_command_writes_over_what_it_reads(command, tmp_path, capsys):
    from mgpa.cli import main
    from mgpa.tables import fit_table, simulate_table

    table = write_table(simulate_table(8), tmp_path / "t.npz")
    m = fit_table(mgpa.ClosedFormMGPA(), table).to_map().save(tmp_path / "m.safetensors")
    (tmp_path / "link.npz").symlink_to(table)
    arguments = {
        "fit": [table, "--out", tmp_path / "link.npz"],
        "select": [m, table, "--budget", "0.05", "--out", m],
        "export": [m, "--out", m, "--format", "torch"],
        "convert": [table, "--out", table],
    }[command]
    before = table.read_bytes(), m.read_bytes()
    assert main([command, *map(str, arguments), "--overwrite"]) == 2
    assert "name another output" in capsys.readouterr().err
    assert (table.read_bytes(), m.read_bytes()) == before
