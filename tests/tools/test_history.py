"""The benchmarks' history: one line a commit and machine, and what has become slower."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "benchmarks" / "history.py"


@pytest.fixture
def history(monkeypatch):
    spec = importlib.util.spec_from_file_location("history", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "commit", lambda: "abc1234")
    monkeypatch.setattr(module, "machine", lambda device="cpu": f"{device} of the test")
    return module


def line(commit, machine="cpu of the test", **ratios):
    return {"commit": commit, "date": "2026-01-01", "machine": machine, "ratios": ratios}


def test_a_commit_has_one_line_a_machine(history, tmp_path, monkeypatch):
    path = tmp_path / "history.jsonl"
    history.record(path, {"row": 2.0})
    history.record(path, {"row": 3.0}, "cuda")
    history.record(path, {"row": 2.5, "copy": 1.5})
    monkeypatch.setattr(history, "commit", lambda: "def5678")
    history.record(path, {"row": 2.4})
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    assert [(entry["commit"], entry["machine"], entry["ratios"]) for entry in lines] == [
        ("abc1234", "cuda of the test", {"row": 3.0}),
        ("abc1234", "cpu of the test", {"row": 2.5, "copy": 1.5}),
        ("def5678", "cpu of the test", {"row": 2.4}),
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
    assert history.regressions(lines[:3]) == []
    assert history.verdict(lines[:2]).startswith("Nothing is slower by more than 25%")
    assert history.regressions([]) == []
    assert history.verdict(lines[:3]) == "The first line of another machine: nothing to compare with."


def test_the_kept_history_can_be_read_and_compared(history):
    entries = history.read(ROOT / "benchmarks" / "history.jsonl")
    assert all(set(entry) == {"commit", "date", "machine", "ratios"} for entry in entries)
    assert history.verdict(entries)
