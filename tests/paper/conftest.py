"""Studies that tests of several modules look at."""

import pytest

from mgpa.paper import load_study, write_results
from small_studies import paired_table, run, written


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A study, its result, and the folder it was written to."""
    folder = tmp_path_factory.mktemp("finished")
    result = run(load_study(written(folder)), folder / "out" / "work")
    write_results(result, folder / "out", command="mgpa study run my.toml --out out")
    return result, folder / "out"


@pytest.fixture
def associated(tmp_path):
    """A study in which one view of each event is seen, at a fifth of its contrast."""
    path = written(tmp_path, table=paired_table())
    return load_study(path, endpoints={"gamma": 0.2, "association": 0.9}, roles={"seed": 3})
