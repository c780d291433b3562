"""`mgpa convert` and `demo`: tables made, and one case from file to report."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import mgpa
from simulated import simulated_table
from terminal import done, refused

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")

from mgpa.tables import Table, open_table, write_table
from mgpa.tables.columns import ROLES


def test_roles_are_spread_over_sources_labels_and_pairs(tmp_path):
    """Participants of one kind follow each other: every role has some of each."""
    who = np.repeat(np.arange(40), 2)
    kind = who // 10  # one site, the other, both without pairs, both with pairs
    source = np.where(kind < 2, np.array(["a", "b"])[kind % 2], np.tile(["a", "b"], 40))
    ids = np.where(kind == 3, who, -1)
    table = Table(np.zeros((80, 2)), source=source, participant=who, pair_id=ids)
    write_table(table, tmp_path / "t.npz")
    done("convert", "t.npz", "--out", "with.npz", "--roles", folder=tmp_path)
    roles = open_table(tmp_path / "with.npz").read().role[::2]
    counts = [[int(np.sum(roles[i : i + 10] == role)) for role in ROLES] for i in range(0, 40, 10)]
    assert np.max(np.abs(np.array(counts) - [4, 2, 2, 2])) <= 1


def test_few_participants_with_pairs_all_have_the_role_fit(tmp_path):
    who = np.repeat(np.arange(24), 2)  # four used both devices, twenty used one
    bridges = who < 4
    source = np.where(bridges, np.tile(["a", "b"], 24), np.where(who % 2, "a", "b"))
    table = Table(np.zeros((48, 2)), source=source, participant=who, pair_id=np.where(bridges, who, -1))
    write_table(table, tmp_path / "t.npz")
    done("convert", "t.npz", "--out", "with.npz", "--roles", folder=tmp_path)
    roles = open_table(tmp_path / "with.npz").read().role
    assert set(roles[bridges]) == {"FIT"}
    assert {str(role): int(np.sum(roles[~bridges] == role)) // 2 for role in np.unique(roles)} == {
        "EVAL": 4, "FIT": 8, "HEAD": 4, "VAL": 4,
    }  # fmt: skip


def test_a_csv_file_becomes_a_table_with_roles(tmp_path):
    pandas = pytest.importorskip("pandas")
    table = simulated_table(n_people=12, role=None)
    frame = pandas.DataFrame(table.X, columns=[f"f{i}" for i in range(8)])
    frame = frame.assign(device=table.source, subject=table.participant, pair_id=table.pair_id)
    frame.to_csv(tmp_path / "raw.csv", index=False)
    arguments = ("--embedding", "f", "--rename.device", "source", "--rename.subject", "participant")
    done("convert", "raw.csv", "--out", "t.parquet", *arguments, "--roles", folder=tmp_path)
    made = open_table(tmp_path / "t.parquet").read()
    np.testing.assert_allclose(made.X, table.X, rtol=1e-12)
    assert set(made.role) == {"FIT", "VAL", "HEAD", "EVAL"}
    done("fit", "t.parquet", "--out", "m.safetensors", "--rank", "1", folder=tmp_path)
    assert mgpa.load_map(tmp_path / "m.safetensors").info.gate_rank == 1


def test_columns_are_named_one_by_one_and_renamed_whatever_their_names(tmp_path):
    (tmp_path / "raw.csv").write_text("alpha,beta,Sample No.,Instrument\n1.5,2.5,001,a\n3.5,4.5,001,b\n")
    names = '{"Sample No.": "pair_id", "Instrument": "source"}'
    arguments = ("--embedding", "alpha", "beta", "--rename", names)
    said = done("convert", "raw.csv", "--out", "t.npz", *arguments, folder=tmp_path).stderr
    assert "mgpa: No participant, label yet: --rename.NAME participant ..." in said
    said = done("convert", "raw.csv", "--out", "bare.npz", *arguments[:3], folder=tmp_path).stderr
    assert "mgpa: No source, participant, label, pair_id yet: --rename.device source ..." in said
    table = open_table(tmp_path / "t.npz").read()
    np.testing.assert_array_equal(table.X, [[1.5, 2.5], [3.5, 4.5]])
    assert table.pair_id.tolist() == ["001", "001"]


@pytest.fixture
def instruments(tmp_path):
    """Spectra of 40 samples by two instruments, a file each, with a column for every wavelength."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    spectra, names = rng.normal(size=(40, 4)), ["1100", "1102", "1104", "1106"]
    for name, shift in (("m5", 0.0), ("mp6", 2.0)):
        X = spectra + 0.05 * rng.normal(size=(40, 4)) + [shift, 0, 0, 0]
        frame = pandas.DataFrame(X, columns=names)
        frame.insert(0, "sample", [f"{i:03d}" for i in range(40)])
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        frame.to_parquet(tmp_path / f"{name}.parquet")
    return tmp_path


def test_files_of_several_instruments_become_one_table(instruments):
    command = ("convert", "m5.csv", "mp6.csv", "--embedding", "1100:1106", "--out")
    said = done(*command, "a.parquet", "--rename.sample", "pair_id+participant", folder=instruments).stderr
    assert "the source is the name of the file (m5, mp6); 40 pairs" in said
    table = open_table(instruments / "a.parquet").read()
    assert table.sources.tolist() == ["m5", "mp6"]
    assert len(table.paired_views()[0]) == 40
    said = done(*command, "b.parquet", folder=instruments).stderr
    assert "no pairs: if a column names the sample in every file, add --rename.COLUMN pair_id" in said
    refused(*command, "m5.csv", "--overwrite", folder=instruments)
    several = open_table([instruments / "m5.csv", instruments / "mp6.csv"], embedding="11", replicates=None)
    np.testing.assert_array_equal(several.read().X, table.X)


@pytest.mark.parametrize("out", ["out.parquet", "out", "out.csv"])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_features_that_were_columns_stay_columns_when_corrected(instruments, suffix, out):
    pandas = pytest.importorskip("pandas")
    rename = ("--rename.sample", "pair_id+participant")
    table = ("convert", "m5.csv", "mp6.csv", "--embedding", "1100:1106", "--out", "t.parquet", *rename)
    done(*table, folder=instruments)
    done("fit", "t.parquet", "--out", "m.safetensors", folder=instruments)
    done("apply", "m.safetensors", f"mp6.{suffix}", "--out", out, folder=instruments)
    read = pandas.read_csv if out.endswith("csv") else pandas.read_parquet
    frame = read(instruments / out)
    assert list(frame.columns) == ["sample", "1100", "1102", "1104", "1106"]
    raw = pandas.read_parquet(instruments / "mp6.parquet")
    expected = mgpa.load_map(instruments / "m.safetensors").transform(raw.iloc[:, 1:].to_numpy())
    np.testing.assert_allclose(frame.iloc[:, 1:], expected, rtol=1e-12)
    if not out.endswith("csv"):
        assert open_table(instruments / out).shape == (4,)  # it says itself what its features are


def test_pairs_are_checked_in_a_table_that_names_its_columns_otherwise(instruments):
    done("convert", "m5.csv", "mp6.csv", "--embedding", "11", "--out", "t.csv", folder=instruments)
    arguments = ("check-pairs", "t.csv", "--embedding", "11", "--rename.sample", "pair_id+participant")
    assert "pairs" in done(*arguments, folder=instruments).stdout


def test_the_demo_prints_what_to_type_where_mgpa_is_not_on_the_path(tmp_path, monkeypatch):
    from mgpa.cli.audits import _program

    program = tmp_path / "my environment" / "mgpa"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(program)])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shlex.split(_program()) == [str(program)]
    monkeypatch.setenv("PATH", str(program.parent))
    assert _program() == "mgpa"
    monkeypatch.setattr("sys.argv", ["/python/of/mgpa/__main__.py"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _program() == "mgpa"


def test_the_demo_keeps_a_decoder_and_ends_with_the_source_at_chance(tmp_path, monkeypatch):
    text = done("demo", "--out", "my demo", folder=tmp_path).stdout
    assert len(text.splitlines()) <= 20
    changes = [tuple(map(float, pair)) for pair in re.findall(r"(1?\.\d\d) → (\.\d\d)", text)]
    (away, there), (home, still), (source, hidden), (misled, right) = changes
    shown = re.findall(r"(1?\.\d\d) → (\.\d\d)", (Path(__file__).parents[2] / "README.md").read_text("utf-8"))
    np.testing.assert_allclose(np.array(shown, float), changes, atol=0.02)
    assert source > 0.9
    assert abs(hidden - 0.5) < 0.05
    assert right > misled + 0.3
    assert there > away + 0.2
    assert abs(still - home) < 0.02
    for name in ("recordings.parquet", "adapter.safetensors", "corrected.parquet", "audit/report.html"):
        assert (tmp_path / "my demo" / name).exists()
    assert mgpa.load_map(tmp_path / "my demo" / "adapter.safetensors").info.method == "MGPA"
    commands = [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("  mgpa ")]
    assert [command[0] for command in commands] == ["fit", "apply", "audit"]
    before = (tmp_path / "my demo" / "adapter.safetensors").read_bytes()
    monkeypatch.setattr("mgpa.audit.plots.draw_all", lambda audit: {})
    for command in commands:  # as copied: the same map comes out
        done(*command, folder=tmp_path)
    assert (tmp_path / "my demo" / "adapter.safetensors").read_bytes() == before
