"""`mgpa convert`: a table from a CSV file, with roles."""

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
