"""`mgpa convert`: a table from a CSV file, with roles."""

import numpy as np
import pytest

import mgpa
from simulated import simulated_table
from terminal import done, in_process

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


@pytest.mark.parametrize("name", ["raw.csv", "raw.CSV", "raw.tsv", "raw.txt"])
def test_the_command_that_is_said_to_make_a_table_makes_one(tmp_path, name):
    separator = "\t" if name == "raw.tsv" else ","
    (tmp_path / name).write_text("\n".join(separator.join(row) for row in ("ABC", "123", "456")))
    refused = in_process("inspect", name, folder=tmp_path)
    command = refused.stderr.partition(": mgpa convert ")[2].partition(" makes one of it")[0].split()
    assert command == [name, "--out", "table.parquet"]
    done("convert", *command, "--embedding", "A", run=in_process, folder=tmp_path)
    assert open_table(tmp_path / "table.parquet").read().other["C"].tolist() == [3, 6]
