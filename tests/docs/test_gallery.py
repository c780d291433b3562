"""The gallery's and the theory's pages run as they are built: alone, without warnings, figures drawn."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted([*DOCS.glob("gallery/plot_*.py"), *DOCS.glob("theory/plot_*.py")])
THEORY = {page.stem: page.read_text("utf-8") for page in PAGES if page.parent.name == "theory"}
PROVEN = (DOCS / "theory" / "GALLERY_HEADER.rst").read_text("utf-8")
# Those that train networks or embed signals; the others take a few seconds each.
SLOW = {"plot_04_operating_point", "plot_09_streaming_and_dask", "plot_10_onnx"}
NEEDS = {
    "plot_01_quickstart": ("mne",),
    "plot_05_erp_two_headsets": ("mne",),
    "plot_06_rereferenced": ("mne",),
    "plot_07_third_headset": ("mne",),
    "plot_09_streaming_and_dask": ("distributed", "pyarrow"),
    "plot_10_onnx": ("onnx", "onnxruntime"),
    "plot_11_tokens": ("mne",),
    "plot_14_spectra_csv": ("pandas",),
}

# A figure is laid out and drawn only when it is saved; what is wrong with it shows then.
RUN = """
import pathlib, runpy, sys
import matplotlib.pyplot as plt
sys.path.insert(0, str(pathlib.Path(sys.argv[1]).parent))
runpy.run_path(sys.argv[1], run_name="__main__")
for number in plt.get_fignums():
    plt.figure(number).savefig("figure.png")
print("figures drawn:", len(plt.get_fignums()))
"""


@pytest.mark.parametrize(
    "page", [pytest.param(p, id=p.stem, marks=[pytest.mark.slow] if p.stem in SLOW else []) for p in PAGES]
)
def test_page_runs_without_warnings_and_draws_figures(page, tmp_path):
    for module in ("matplotlib", "torch", *NEEDS.get(page.stem, ())):
        pytest.importorskip(module)
    # One thread is fastest for such small data; with a display, plt.show() would wait.
    env = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, str(page)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=env | {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    assert re.search(r"figures drawn: [1-9]", done.stdout), done.stdout
    # Theory pages compare the package with another computation, and fail where the two differ.
    assert "by hand" in done.stdout or page.stem not in THEORY
    assert not {path.name for path in tmp_path.iterdir()} - {"figure.png"}, "a page leaves files behind"


def test_every_numbered_equation_is_written_out_once_and_in_the_table_of_what_is_proven():
    written = [int(number) for text in THEORY.values() for number in re.findall(r"\\tag\{(\d+)\}", text)]
    assert sorted(written) == list(range(1, 15))
    for number in written:
        assert f"({number})" in PROVEN


def test_every_name_on_a_theory_page_exists():
    names = {n for text in [PROVEN, *THEORY.values()] for n in re.findall(r"``(mgpa\.[\w.]+)[`(]", text)}
    assert len(names) > 10
    for name in names:
        value = importlib.import_module("mgpa")
        for part in name.split(".")[1:]:
            if not hasattr(value, part):
                importlib.import_module(f"{value.__name__}.{part}")
            value = getattr(value, part)


def test_theory_pages_link_their_names_and_the_module_that_they_import(monkeypatch):
    for module in ("docutils", "sphinx"):
        pytest.importorskip(module)
    monkeypatch.syspath_prepend(DOCS / "_ext")
    internal = importlib.import_module("theory_code").internal_names()
    assert "mgpa.position.projection" in internal
    assert "mgpa.MGPA" not in internal  # has an API page
    for name, text in THEORY.items():
        assert ("from gaussian import" in text) == (":download:`gaussian.py" in text), name
