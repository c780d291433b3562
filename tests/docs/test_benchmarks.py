"""Benchmarks: pages quote their numbers, simulated rows take the road of any table, history is compared."""

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
    for features in (64, 512):
        assert "\n".join(model.table(features)) in page
    for value, unit in (
        (model.RATES.fit_number * 1e9, "ns a number"),
        (model.RATES.multiply_add * 1e12, "ps a multiply-add"),
        (model.RATES.corrected_number * 1e9, "ns a corrected number"),
        (model.RATES.storage / 1e6, "MB/s"),
    ):
        assert f"{value:.3g} {unit}" in page


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


@pytest.fixture
def history(benchmark, monkeypatch):
    module = benchmark("history")
    monkeypatch.setattr(module, "commit", lambda: "abc1234")
    monkeypatch.setattr(module, "machine", lambda device="cpu": f"{device} of the test")
    return module


def line(commit, machine="cpu of the test", **ratios):
    return {"commit": commit, "date": "2026-01-01", "machine": machine, "ratios": ratios}


def test_a_commit_has_one_line_a_machine(history, tmp_path):
    path = tmp_path / "history.jsonl"
    history.record(path, {"row": 2.0})
    history.record(path, {"row": 3.0}, "cuda")
    history.record(path, {"row": 2.5})
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    assert [(entry["machine"], entry["ratios"]) for entry in lines] == [
        ("cuda of the test", {"row": 3.0}),
        ("cpu of the test", {"row": 2.5}),
    ]


def test_what_became_slower_by_more_than_a_quarter_is_named(history):
    lines = [
        line("a", row=1.0, copy=2.0, fit=1.0),
        line("b", row=1.2),
        line("c", "another machine", row=0.1),
        line("d", row=1.49, copy=2.6, fit=1.2, new=9.0),
    ]
    assert history.regressions(lines) == ["copy: ratio 2.60, was 2.00 at a (+30%)"]
    assert history.verdict(lines).splitlines()[0] == "Slower by more than 25% on cpu of the test:"
    assert history.verdict(lines[:2]).startswith("Nothing is slower by more than 25%")
    assert history.verdict(history.read(ROOT / "benchmarks" / "history.jsonl"))
