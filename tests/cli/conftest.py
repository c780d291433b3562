"""A table and a map that many tests of the command line share."""

import pytest

from simulated import simulated_table
from terminal import done, in_process


@pytest.fixture(scope="session")
def table():
    return simulated_table(n_people=24)


@pytest.fixture(scope="session")
def folder(table, tmp_path_factory):
    """A place with a space and an umlaut, a table and a map."""
    from mgpa.tables import write_table

    folder = tmp_path_factory.mktemp("Aufnahmen für alle")
    write_table(table, folder / "rec ördings.parquet")
    done("fit", "rec ördings.parquet", "--out", "map one.safetensors", run=in_process, folder=folder)
    return folder
