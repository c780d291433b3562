"""Each exported name has a page with a summary, what it returns and an example; the examples run."""

import importlib
import os
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sphinx")
ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def pages():
    sys.path.insert(0, str(DOCS / "_ext"))
    yield importlib.import_module("api_pages")
    sys.path.remove(str(DOCS / "_ext"))


def test_no_exported_name_lacks_anything(pages):
    lacking = {
        name: pages.lacks(name, value)
        for package in pages.PACKAGES
        for short, value in pages.in_package(package)
        if callable(value) and pages.homes()[id(value)] == (name := f"{package}.{short}")
    }
    assert len(lacking) > 150
    assert {name: missing for name, missing in lacking.items() if missing} == {}


def test_a_name_without_summary_return_or_example_is_noticed(pages):
    def bare(x):
        return x

    assert pages.lacks("mgpa.bare", bare) == ["summary", "return", "example"]


def test_every_exported_name_is_listed_on_a_page(pages):
    text = (DOCS / "reference/api.md").read_text("utf-8")
    entries = {f"mgpa.{name}" for name in re.findall(r"^   ([\w.]+)$", text, re.MULTILINE)}
    for package in pages.PACKAGES[1:]:
        assert package in entries
        entries |= {f"{package}.{name}" for names in pages.exported(package).values() for name in names}
    values = {name for name in pages.homes().values() if not isinstance(pages_value(name), types.ModuleType)}
    assert values - entries == set()


def pages_value(name):
    module, _, short = name.rpartition(".")
    return getattr(importlib.import_module(module), short)


def test_examples_are_for_names_that_exist(pages):
    for name in pages.examples():
        if name not in ("before", "all"):
            pages_value(name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using padding:UserWarning")
def test_examples_run_from_top_to_bottom(tmp_path, monkeypatch):
    for needed in ("torch", "mne", "pyarrow", "curryreader"):
        pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    exec(compile((DOCS / "reference/examples.py").read_text("utf-8"), "examples.py", "exec"), {})
    assert os.path.exists("tradeoff.pdf")


def test_the_examples_of_methods_run(pages):
    pytest.importorskip("pyriemann")
    from mgpa.baselines import list_methods
    from mgpa.tables import simulate_table

    table = simulate_table(6)
    first, second = (table.X[i] for i in table.paired_views())
    X, y, source = table.X, table.label, table.source
    signals = np.random.default_rng(0).normal(size=(len(X), 3, 128))
    slow = {"igbp", "mance", "augmentation_invariance", "iterative_mgpa"}
    for name in (m.name for m in list_methods() if m.acts_on != "predictions" and m.name not in slow):
        code = pages.example_of_method(name.replace("_", ""))
        names = {"X": X, "y": y, "source": source, "first": first, "second": second, "signals": signals}
        exec(code, names)
        assert len(names["corrected"]) == len(X), name
