"""Tables of measured numbers name the command that printed them, and every named command exists."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "do_no_harm.md",
    "baselines.md",
    "performance.md",
    "studies/corn.md",
    "studies/kalunga.md",
    "bench.md",
]
COMMAND = re.compile(
    r"(?:^|[`=\d] ?)((?:python [\w./]+\.py|mgpa (?!to|closed)[a-z-]+|make \w+)[^`\n]*)", re.MULTILINE
)


def sections(text):
    """Return the text of a page from each heading to the next; all have what comes before the first."""
    first, *rest = re.split(r"^(?=##? )", text, flags=re.MULTILINE)[1:]
    return [first, *(first + "\n" + part for part in rest)]


def measured(table):
    """Return whether a table has measured numbers in it."""
    return len(re.findall(r"[|/ ][-+–]?\d*\.\d+", table)) >= 3


@pytest.mark.parametrize("page", PAGES)
def test_every_measured_table_has_a_command_in_its_section(page):
    for section in sections((ROOT / "docs" / page).read_text("utf-8")):
        tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
        if any(measured(table) for table in tables):
            heading = re.findall(r"^#+ .*", section, re.MULTILINE)[-1]
            assert COMMAND.search(section), f"{page}, {heading}: no command"


@pytest.mark.parametrize("page", PAGES)
def test_every_command_on_the_page_exists(page):
    pytest.importorskip("cyclopts")
    from mgpa.cli import app

    for command in COMMAND.findall((ROOT / "docs" / page).read_text("utf-8")):
        first, name, *rest = shlex.split(command, comments=True)
        options = {word for word in rest if word.startswith("--")}
        if first == "make":
            assert re.search(rf"^{name}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE), command
        elif first == "mgpa":
            described = app[name][rest[0]] if name == "study" else app[name]
            known = {name for argument in described.assemble_argument_collection() for name in argument.names}
            assert options <= known, command
        else:
            homes = [ROOT / name, *(ROOT / "examples").rglob(Path(name).name)]
            script = next((path for path in homes if path.exists()), None)
            assert script, command
            assert all(f'"{option}"' in script.read_text("utf-8") for option in options), command


def test_a_small_version_of_the_comparison_needs_no_data(tmp_path):
    """The tables of do_no_harm.md, of a few settings that this repository makes."""
    command = [sys.executable, ROOT / "benchmarks" / "trade_off.py", "--small", "--out", "small.json"]
    command += ["--methods", "identity", "MGPA", "paired regression (told)"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "| method | home | away | S | T_f | A | M | worst change of T_f |" in printed
    worlds = json.loads((tmp_path / "small.json").read_text("utf-8"))["world"]
    for cells in worlds.values():
        assert cells["MGPA"]["away"] > cells["identity"]["away"]
