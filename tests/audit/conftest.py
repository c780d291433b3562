"""Tables, and an audit of several methods, that several files look at."""

import pytest

import mgpa
from audited import SMALL, run
from mgpa.baselines import make_method
from simulated import simulated_table


@pytest.fixture(scope="session")
def table():
    return simulated_table()


@pytest.fixture(scope="session")
def tokens():
    return simulated_table(tokens=2, d=4, n_people=12, events=12)


@pytest.fixture(scope="session")
def found(table):
    methods = {
        "leace": "leace",
        "mgpa": mgpa.ClosedFormMGPA(gate=mgpa.MeasurementGate(rank=1)),
        "iterative": mgpa.IterativeMGPA(n_stages=6, critics=("linear",), do_no_harm=False),
        "coral": "coral",
        "igbp": make_method("igbp", n_stages=2, max_epochs=2),
    }
    return run(table, methods, readers=SMALL)
