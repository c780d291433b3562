"""`mgpa convert`: a table from a CSV file, with roles."""

import numpy as np
import pytest

import mgpa
from simulated import simulated_table
from terminal import done, in_process, refused

pytest.importorskip("cyclopts")
pytest.importorskip("pyarrow")

from mgpa.tables import open_table


def test_a_csv_file_becomes_a_table_with_roles(tmp_path):
    pandas = pytest.importorskip("pandas")
    table = simulated_table(n_people=12, role=None)
    frame = pandas.DataFrame(table.X, columns=[f"f{i}" for i in range(8)])
    frame = frame.assign(device=table.source, subject=table.participant, pair_id=table.pair_id)
    frame.to_csv(tmp_path / "raw.csv", index=False)
    arguments = (
        "--embedding",
        "f",
        "--rename.device",
        "source",
        "--rename.subject",
        "participant",
        "--roles",
    )
    done("convert", "raw.csv", "--out", "t.parquet", *arguments, folder=tmp_path)
    made = open_table(tmp_path / "t.parquet").read()
    np.testing.assert_allclose(made.X, table.X, rtol=1e-12)
    assert set(made.role) == {"FIT", "VAL", "HEAD", "EVAL"}
    done("fit", "t.parquet", "--out", "m.safetensors", "--rank", "1", folder=tmp_path)
    assert mgpa.load_map(tmp_path / "m.safetensors").info.gate_rank == 1


def test_columns_of_the_embedding_are_named_one_by_one_or_by_their_beginning(tmp_path):
    (tmp_path / "raw.csv").write_text("alpha,beta,source\n1.5,2.5,dry\n3.5,4.5,wet\n")
    done("convert", "raw.csv", "--out", "t.npz", "--embedding", "alpha", "beta", folder=tmp_path)
    np.testing.assert_array_equal(open_table(tmp_path / "t.npz").read().X, [[1.5, 2.5], [3.5, 4.5]])
    line = refused("convert", "raw.csv", "--out", "u.npz", "--embedding", "gamma", folder=tmp_path)
    assert line.endswith("Name a column, or what the names of many columns start with.")


@pytest.mark.parametrize("name", ["raw.csv", "raw.CSV", "raw.tsv", "raw.txt"])
def test_the_command_that_is_said_to_make_a_table_makes_one(tmp_path, name):
    separator = "\t" if name == "raw.tsv" else ","
    (tmp_path / name).write_text("\n".join(separator.join(row) for row in ("ABC", "123", "456")))
    told = in_process("inspect", name, folder=tmp_path)
    command = told.stderr.partition(": mgpa convert ")[2].partition(" makes one of it")[0].split()
    assert command == [name, "--out", "table.parquet"]
    done("convert", *command, "--embedding", "A", run=in_process, folder=tmp_path)
    assert open_table(tmp_path / "table.parquet").read().other["C"].tolist() == [3, 6]
