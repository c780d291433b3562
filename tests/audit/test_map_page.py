"""The page about a map: complete, escaped, offline, and true to the map."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import mgpa
from layout import COLLIDING, OVERFLOWING, measure
from mgpa.audit.report import html_map, motion
from mgpa.baselines import make
from mgpa.endpoint import relative_movement
from mgpa.tables import fit_table
from simulated import simulated_table


def text_of(page):
    return unescape(re.sub(r"<[^>]*>", " ", page.partition("<body>")[2]))


@pytest.fixture(scope="module")
def table():
    return simulated_table(n_people=24)


@pytest.fixture(scope="module")
def m(table):
    return fit_table(mgpa.ClosedFormMGPA(n_directions=2, gate=mgpa.MeasurementGate(rank=2)), table).to_map()


def test_everything_the_summary_tells_is_on_the_page(m):
    page = text_of(html_map(m, Path("m.safetensors")))
    heading, facts = m.facts()
    for words in (heading, *facts.values(), "mgpa apply m.safetensors recordings.parquet"):
        assert words in page


def test_movement_is_that_of_the_rows_by_stage_source_and_direction(m, table):
    val = table.rows("VAL")
    moved = motion(m, val, "The VAL rows")
    X = np.asarray(val.X, dtype=np.float64)
    assert moved.movement == pytest.approx(relative_movement(m, X))
    assert moved.stages[-1] == pytest.approx(moved.movement)
    assert moved.by_source["wet"] == pytest.approx(relative_movement(m, X[val.source == "wet"]))
    displaced = m.displacement(X)
    first = np.linalg.svd(displaced)[2][0]
    assert moved.directions[0] == pytest.approx(np.sum((displaced @ first) ** 2) / np.sum(displaced**2))
    page = text_of(html_map(m, Path("m.safetensors"), moved=moved))
    assert f"The VAL rows move by {100 * moved.movement:.1f} % of their size" in page
    assert "After so many directions" in page


def test_a_map_without_rows_says_how_to_see_movement(m):
    assert "pass a table" in text_of(html_map(m, Path("m.safetensors")))


@pytest.mark.parametrize(
    ("method", "words"),
    [("combat", "m.transform(X, source=source)"), ("leace", "m.transform(X)"), ("leace", "It has no gate")],
)
def test_the_page_says_how_this_map_is_applied(table, method, words):
    assert words in text_of(html_map(fit_table(make(method), table).to_map(), Path("m.safetensors")))


def test_the_page_names_the_encoder_the_map_is_for(m):
    told = replace(m, info=replace(m.info, encoder={"name": "EEGPT"}))
    assert "It is for embeddings of the encoder EEGPT and no other." in text_of(html_map(told, Path("m")))
    unknown = replace(m, info=replace(m.info, encoder={}))
    assert "of the encoder" not in text_of(html_map(unknown, Path("m")))


def test_a_map_that_moves_nothing_has_a_page(m, table):
    still = m.with_strength(0.0)
    assert "move by 0.0 % of their size" in text_of(
        html_map(still, Path("m.safetensors"), moved=motion(still, table.rows("VAL"), "The rows"))
    )


def test_names_of_strangers_stay_text_and_nothing_is_loaded(m):
    hostile = replace(
        m, info=replace(m.info, source_names=("<script>alert(1)</script>", "wet"), notes="{{style}}")
    )
    page = html_map(hostile, Path("<img src=x>.safetensors"))
    assert "<script" not in page
    assert "<img" not in page
    assert "{{style}}" in text_of(page)
    assert not re.search(r"https?://|@import|url\(", page)


@pytest.mark.parametrize("width", [1400, 400])
def test_nothing_leaves_its_container_and_no_words_collide(m, table, width, tmp_path):
    coverage = np.linspace(0.5, 1.0, 16)
    page = html_map(m, Path("m.safetensors"), moved=motion(m, table.rows("VAL"), "Rows"), coverage=coverage)
    (tmp_path / "m.html").write_text(page, encoding="utf-8")
    words = "return page.querySelectorAll('.chart svg text').length"
    drawn, overflowing, colliding = measure(
        tmp_path / "m.html", width, tmp_path, words, OVERFLOWING, COLLIDING
    )
    assert drawn > 20
    assert overflowing == []
    assert colliding == []
