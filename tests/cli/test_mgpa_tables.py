"""`mgpa convert` and `demo`: tables made, and one case from file to report."""

import re
import shlex

import numpy as np
import pytest

import mgpa
from simulated import simulated_table
from terminal import done

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")

from mgpa.tables import open_table


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
    done("convert", "raw.csv", "--out", "t.npz", *arguments, folder=tmp_path)
    table = open_table(tmp_path / "t.npz").read()
    np.testing.assert_array_equal(table.X, [[1.5, 2.5], [3.5, 4.5]])
    assert table.pair_id.tolist() == ["001", "001"]


def test_the_demo_ends_with_the_source_at_chance_and_a_better_decoder(tmp_path, monkeypatch):
    text = done("demo", "--out", "my demo", folder=tmp_path).stdout
    assert len(text.splitlines()) <= 20
    changes = [tuple(map(float, pair)) for pair in re.findall(r"(\.\d\d) → (\.\d\d)", text)]
    (source, hidden), (misled, right), (task, still) = changes
    assert source > 0.9
    assert abs(hidden - 0.5) < 0.05
    assert right > misled + 0.3
    assert abs(still - task) < 0.02
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
