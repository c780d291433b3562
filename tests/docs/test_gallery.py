"""The gallery's pages run as they are built: alone, without warnings, and with figures that can be drawn."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GALLERY = Path(__file__).resolve().parents[2] / "docs" / "gallery"
PAGES = sorted(path.name for path in GALLERY.glob("plot_*.py"))
# Those that train networks or embed signals; the others take a few seconds each.
SLOW = {"plot_04_operating_point.py", "plot_09_streaming_and_dask.py", "plot_10_onnx.py"}
NEEDS = {
    "plot_01_quickstart.py": ("mne",),
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
