"""The theory pages run, cover every equation, and name only what exists."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "theory").glob("plot_*.py"))
TEXTS = {page.stem: page.read_text(encoding="utf-8") for page in PAGES}
PROVEN = (ROOT / "docs" / "theory" / "GALLERY_HEADER.rst").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs_alone_without_a_warning(page, tmp_path):
    # Pages compare the package with another computation and fail where the two differ.
    headless = {k: v for k, v in os.environ.items() if k != "DISPLAY"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(page)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=headless | {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "by hand" in done.stdout
    assert not list(tmp_path.iterdir())


def test_every_numbered_equation_is_written_out_once_and_in_the_table_of_what_is_proven():
    written = [int(number) for text in TEXTS.values() for number in re.findall(r"\\tag\{(\d+)\}", text)]
    assert sorted(written) == list(range(1, 15))
    for number in written:
        assert f"({number})" in PROVEN


def test_every_name_on_a_page_exists():
    names = {name for text in [PROVEN, *TEXTS.values()] for name in re.findall(r"``(mgpa\.[\w.]+)[`(]", text)}
    assert len(names) > 10
    for name in names:
        found, *rest = importlib.import_module("mgpa"), *name.split(".")[1:]
        for part in rest:
            if not hasattr(found, part):
                importlib.import_module(f"{found.__name__}.{part}")
            found = getattr(found, part)
