"""The page about addresses is true: its code runs, and its numbers and commands are those of the package."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text("utf-8")


def test_the_code_runs_from_top_to_bottom(memory, capsys):
    pytest.importorskip("pyarrow")
    exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), {})
    assert int(capsys.readouterr().out) > 100


def test_every_address_on_the_page_is_one_that_is_known_here():
    from mgpa._common.remote import READ_ONLY, SCHEMES
    from mgpa.maps.io.mapfile import MAX_FILE_BYTES
    from mgpa.tables.parquet import BUFFER_REMOTE

    rows = re.findall(r"^\| (`\w+://.*)$", PAGE, re.MULTILINE)
    listed = {}
    for row in rows:
        addresses, _, writes, needs = (cell.strip() for cell in row.strip("|").split("|"))
        for scheme in re.findall(r"`(\w+)://", addresses):
            listed[scheme] = (writes, needs)
    assert listed.keys() == {*SCHEMES, "file"}
    for scheme, package in SCHEMES.items():
        assert (listed[scheme][0] == "no") == (scheme in READ_ONLY)
        assert package in listed[scheme][1] or scheme == "memory"
    assert f"refused beyond {MAX_FILE_BYTES // 2**30} GiB" in PAGE
    assert f"at most {BUFFER_REMOTE // 2**20} MiB" in " ".join(PAGE.split())


def test_every_dependency_is_listed_with_its_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    lists = [project["dependencies"], *(extras[name] for name in extras if name not in ("dev", "docs"))]
    declared = {re.split(r"[^\w.-]", line)[0] for lines in lists for line in lines} - {"mgpa"}
    listed = re.findall(r"`([\w-]+)`", PAGE.partition("| licence |")[2])
    assert sorted(listed) == sorted(declared)
