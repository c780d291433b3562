"""Figures of a page's own tables: every one finds its table, and reads values, intervals and words."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
FIGURE = re.compile(r"^```\{interval-figure\} (.+)\n((?::.*\n)*)```", re.MULTILINE)
USES = [
    pytest.param(page, match[1], match[2], id=f"{page.stem}: {match[1]}")
    for page in sorted(DOCS.rglob("*.md"))
    if not {"_build", "auto"} & set(page.parts)
    for match in FIGURE.finditer(page.read_text("utf-8"))
]


@pytest.fixture(scope="module")
def figure():
    for module in ("docutils", "sphinx", "matplotlib"):
        pytest.importorskip(module)
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        spec = importlib.util.spec_from_file_location("interval_figure", DOCS / "_ext/interval_figure.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(DOCS / "_ext"))
    return module


def test_pages_use_it():
    assert len(USES) > 5


@pytest.mark.parametrize(("page", "marker", "options"), USES)
def test_a_figure_finds_its_table_and_draws_every_row(figure, page, marker, options):
    columns, rows = figure.table_below(page.read_text("utf-8"), marker)
    assert len(rows) > 2
    assert all(len(row) == len(columns) for row in rows.values())
    wanted = re.search(r"^:columns: (.+)$", options, re.MULTILINE)
    names = [] if not wanted else wanted[1].split(";" if ";" in wanted[1] else ",")
    assert set(map(str.strip, names)) <= set(columns)
    drawn = re.search(r"^:as: (\w+)$", options, re.MULTILINE)
    svg = figure.DRAWN[drawn[1]](columns, rows).decode()
    assert all(name.split(" (")[0] in svg for name in rows)
    clips = re.findall(r'<clipPath id="(\w+)"', svg)  # named by their order, not by where parts lie in memory
    assert clips == [f"clip{i}" for i in range(len(clips))] != []


def test_cells(figure):
    assert figure.read_cell("−.154 [−.162, −.147]") == (-0.154, -0.162, -0.147)
    assert figure.read_cell("+.007 (.989 to .946)") == (0.007, 0.007, 0.007)
    assert figure.read_cell("not corrected") is None
    assert figure.read_cell("476 ms") is figure.read_cell("0.2 ms") is figure.read_cell("1.5 s") is None
    assert figure.read_cell("1.76") == (1.76, 1.76, 1.76)
    with pytest.raises(ValueError, match="no line begins with 'Nowhere'"):
        figure.table_below("# Here\n", "Nowhere")


def test_rows_of_one_name_are_told_apart_by_their_further_words(figure):
    lines = (
        "Sets",
        "",
        "| set | method | S | home |",
        "|---|---|---|---|",
        "| a | MGPA | .5 | – |",
        "| a | LEACE | .9 | .8 |",
    )
    columns, rows = figure.table_below("\n".join((*lines, "")), "Sets")
    assert columns == ["S", "home"]
    assert list(rows) == ["a, MGPA", "a, LEACE"]
    assert [figure.key_of(name) for name in rows] == ["mgpa", "leace"]
    assert figure.key_of("`MGPA()`, row by row".replace("`", "")) == "mgpa"
    assert figure.key_of("MANCE++ (8 rounds)") == "mance"
