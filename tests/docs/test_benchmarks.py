"""Benchmarks: pages quote their numbers, and simulated rows take the road of any table."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from mgpa import ClosedFormMGPA
from mgpa.tables import Table, fit_table
from mgpa.tables.scale import batches

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    loaded = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - loaded:
        if "benchmarks" in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


def test_the_reliability_page_has_the_tables_and_rates_of_the_cost_model(benchmark):
    page, model = (ROOT / "docs" / "reliability.md").read_text("utf-8"), benchmark("cost_model")
    assert "\n".join(model.table(512)) in page
    for value, unit in (
        (model.RATES.fit_number * 1e9, "ns per number"),
        (model.RATES.multiply_add * 1e12, "ps per multiply-add"),
        (model.RATES.corrected_number * 1e9, "ns per corrected number"),
        (model.RATES.storage / 1e6, "MB/s"),
    ):
        assert f"{value:.3g} {unit}" in " ".join(page.split())


def test_simulated_rows_are_fitted_like_the_same_rows_in_memory(benchmark):
    cluster = benchmark("cluster")
    parts = cluster.simulated_parts(70_000, 6)
    assert [part.n_rows for part in parts] == [65_536, 4_464]
    rows = [batch for part in parts for batch in batches(part)]
    columns = {name: np.concatenate([getattr(b, name) for b in rows]) for name in ("X", "source", "pair_id")}
    table = Table(columns.pop("X"), **columns)
    a, b = cluster.fit_simulated(None, parts), fit_table(ClosedFormMGPA(), table).to_map()
    assert a.info.fingerprint == b.info.fingerprint
    np.testing.assert_allclose(a.transform(table.X[:100]), b.transform(table.X[:100]), atol=1e-6)


def test_a_ratio_below_the_physical_work_is_busy_whatever_its_aim(benchmark):
    quiet = benchmark("quiet")
    assert [quiet.verdict(ratio, ratio, 1.5) for ratio in (0.9, 1.2, 1.6)] == ["busy", "met", "not met"]
    assert quiet.verdict(0.9, 0.1, 0.2) == "busy"
    assert quiet.verdict(1.2, 1.2, None) == ""


def test_functions_take_turns(benchmark):
    turns = []
    times = benchmark("quiet").shortest([lambda: turns.append("ours"), lambda: turns.append("bare")], 2)
    assert turns == ["ours", "bare"] * 3
    assert len(times) == 2


def test_the_performance_page_is_what_its_numbers_make_of_it(benchmark):
    page = benchmark("page")
    text = written = (ROOT / "docs" / "performance.md").read_text("utf-8")
    for name, table in page.TABLES.items():
        stored = page.FOLDER / f"{name}.json"
        if stored.is_file():
            text = page.fill(text, name, table(json.loads(stored.read_text("utf-8"))))
    assert text == written


def test_the_page_on_harm_has_the_tables_of_the_stored_results(benchmark):
    page, trade_off = (ROOT / "docs" / "do_no_harm.md").read_text("utf-8"), benchmark("trade_off")
    results = json.loads(trade_off.STORED.read_text("utf-8"))
    for group in ("worn", "spectra", "world", "amplifiers", "real"):
        assert trade_off.table(results, group) in page, group
    for group in ("world", "tokens"):
        assert trade_off.each(results, group) in page, group
