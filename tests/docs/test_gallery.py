"""The gallery's pages run as they are built: alone, without warnings, and with figures that can be drawn."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GALLERY = Path(__file__).resolve().parents[2] / "docs" / "gallery"
PAGES = sorted(path.name for path in GALLERY.glob("plot_*.py"))
# Those that train networks or embed signals; the others take a few seconds each.
SLOW = {"plot_04_operating_point.py", "plot_10_onnx.py"}
NEEDS = {
    "plot_04_operating_point.py": ("torch",),
    "plot_09_streaming_and_dask.py": ("distributed", "pyarrow"),
    "plot_10_onnx.py": ("torch", "onnx", "onnxruntime"),
}

# A figure is laid out and drawn only when it is saved; what is wrong with it shows then.
RUN = """
import runpy, sys
import matplotlib.pyplot as plt
runpy.run_path(sys.argv[1], run_name="__main__")
for number in plt.get_fignums():
    plt.figure(number).savefig("figure.png")
print("figures drawn:", len(plt.get_fignums()))
"""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in PAGES]
)
def test_page_runs_without_warnings_and_draws_figures(name, tmp_path):
    for module in ("matplotlib", *NEEDS.get(name, ())):
        pytest.importorskip(module)
    # One thread is fastest for such small data; with a display, plt.show() would wait for somebody.
    env = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, str(GALLERY / name)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=env | {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    drawn = re.search(r"figures drawn: (\d+)", done.stdout)
    assert drawn is not None, done.stdout
    assert int(drawn[1]) >= 1
    left = {path.name for path in tmp_path.iterdir()} - {"figure.png"}
    assert not left, "a page leaves files behind"


@pytest.mark.parametrize("name", PAGES)
def test_page_has_a_title_and_says_how_far_to_trust_it(name):
    text = (GALLERY / name).read_text()
    title, line, *_ = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    assert set(line) == {"="}
    assert len(line) == len(title)
    assert "# How far to trust this\n# ---" in text


@pytest.mark.parametrize("name", PAGES)
def test_pages_refer_to_pages_that_are_there(name):
    found = re.findall(r":doc:`(plot_\w+)`", (GALLERY / name).read_text())
    assert not [page for page in found if f"{page}.py" not in PAGES]


def test_what_is_marked_slow_is_there():
    assert set(PAGES) >= SLOW | set(NEEDS)


def test_a_thumbnail_is_one_panel_at_its_own_size_and_the_figure_stays(tmp_path, monkeypatch):
    pytest.importorskip("sphinx_gallery")
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.syspath_prepend(str(GALLERY.parent / "_ext"))
    import thumbnails

    figure, panels = plt.subplots(1, 3, figsize=(7, 2))
    panels[1].plot([0, 1], label="a line")
    panels[1].set_xlabel("words that would be too small")
    panels[1].legend()
    shown = plt.get_fignums()
    thumbnails.draw(figure, 1, tmp_path / "panel.png")
    assert plt.get_fignums() == shown  # or the page would show it, too
    assert plt.imread(tmp_path / "panel.png").shape[:2] == (280, 400)
    assert len(figure.axes) == 3
    assert panels[1].get_xlabel() == "words that would be too small"
    plt.close(figure)
    examples = {
        path.stem for folder in ("gallery", "theory") for path in (GALLERY.parent / folder).glob("plot_*")
    }
    assert set(thumbnails.PANELS) <= examples
