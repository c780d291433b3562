"""Benchmarks that pages quote: their arithmetic is right, and simulated rows take the road of any table."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from mgpa import ClosedFormMGPA
from mgpa.tables import Table, fit_table

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    loaded = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - loaded:
        if "benchmarks" in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


def test_cost_grows_with_the_rows_and_workers_cost_nothing_but_their_share(benchmark):
    model = benchmark("cost_model")
    one = model.cost(10**6, 64, 1, efficiency=1.0)
    assert one.table_bytes == 10**6 * 64 * 4
    ten = model.cost(10**7, 64, 1, efficiency=1.0)
    assert ten.fit_core_seconds == pytest.approx(10 * one.fit_core_seconds)
    shared = model.cost(10**7, 64, 20, efficiency=0.5)
    assert shared.fit_minutes == pytest.approx(ten.fit_minutes / 10)
    assert shared.apply_minutes == pytest.approx(ten.apply_minutes / 10)
    assert shared.dollars == pytest.approx(2 * ten.dollars)
    # Bare storage: a fit reads the table once, a correction reads and writes it.
    idle = model.cost(10**6, 64, 1, model.Rates(0.0, 0.0, 0.0, storage=1e6), efficiency=1.0, core_hour=3600.0)
    assert idle.fit_core_seconds == pytest.approx(256.0)
    assert idle.dollars == pytest.approx(3 * 256.0)


@pytest.mark.parametrize("features", [64, 512])
def test_the_page_has_the_table_that_the_cost_model_prints(benchmark, features):
    page = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    assert "\n".join(benchmark("cost_model").table(features)) in page


def test_the_page_has_the_rates_of_the_cost_model(benchmark):
    page = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    rates = benchmark("cost_model").RATES
    for value, unit in (
        (rates.fit_number * 1e9, "ns a number"),
        (rates.multiply_add * 1e12, "ps a multiply-add"),
        (rates.corrected_number * 1e9, "ns a corrected number"),
        (rates.storage / 1e6, "MB/s"),
    ):
        assert re.search(rf"{value:.3g} {unit}", page), (value, unit)


def test_simulated_rows_are_fitted_like_the_same_rows_in_memory(benchmark):
    cluster = benchmark("cluster")
    parts = cluster.simulated_parts(150_000, 6)
    assert [part.n_rows for part in parts] == [65_536, 65_536, 18_928]
    batches = [batch for part in parts for batch in part.batches(8192)]
    assert sum(map(len, batches)) == 150_000
    columns = {
        name: np.concatenate([getattr(b, name) for b in batches]) for name in ("X", "source", "pair_id")
    }
    table = Table(columns.pop("X"), **columns)
    one = [SmallBlocks(part) for part in parts]
    a, b = cluster.fit_simulated(None, one), fit_table(ClosedFormMGPA(), table).to_map()
    assert a.info.fingerprint == b.info.fingerprint
    np.testing.assert_allclose(a.transform(table.X[:100]), b.transform(table.X[:100]), atol=1e-6)


class SmallBlocks:
    """The same part, whose batches are of 8192 rows."""

    def __init__(self, part):
        self.part = part

    @property
    def file(self):
        return self.part.file

    def batches(self, max_rows):
        return self.part.batches(8192)
