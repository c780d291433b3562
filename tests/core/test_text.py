"""Text out of files does nothing to whoever looks at it."""

import csv

import numpy as np
import pytest

import mgpa
from mgpa._common.files import csv_cell, csv_lines
from mgpa.errors import DownloadError, RecordingError, TableError, printable
from mgpa.tables import Table

ESCAPE = "a\x1b[2J\x07\u202eb"
SHOWN = "a\\x1b[2J\\x07\\u202eb"


def test_control_and_invisible_characters_are_shown_escaped():
    assert printable(ESCAPE) == SHOWN
    assert printable("a\nb") == "a\\nb"
    assert printable("a\nb\r", lines=True) == "a\nb\\r"
    assert printable("\x9b\udc80") == "\\x9b\\udc80"


def test_ordinary_text_is_shown_as_it_is():
    text = "für alle: 95 % − 10⁻³, “脑电”, 1 234 and a\u00a0blank"
    assert printable(text) == text


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1+1"])
def test_a_cell_that_starts_a_formula_is_quoted(text):
    assert csv_cell(text) == f"'{text}"
    (row,) = csv.reader(csv_lines([[text, 1]]).splitlines() if "\r" not in text else [csv_lines([["x", 1]])])
    assert not row[0].startswith(("=", "+", "-", "@"))


@pytest.mark.parametrize(
    "value", ["-1.5", "+3", "-1e-5", -1.5, np.float64(-2.0), "leace", "a=b", "", None, True]
)
def test_a_cell_that_is_a_number_or_a_word_stays(value):
    assert csv_cell(value) is value


def test_errors_and_summaries_have_nothing_that_a_terminal_obeys():
    for error in (TableError, RecordingError, DownloadError):
        assert str(error(f"{ESCAPE}: damaged")) == f"{SHOWN}: damaged"
    with pytest.raises(ValueError, match="names are printable") as refused:
        Table(np.zeros((2, 3)), other={ESCAPE: np.array([1, 2])})
    assert "\x1b" not in str(refused.value)
    info = mgpa.maps.AffineMap.identity(2).info
    from dataclasses import replace

    m = replace(mgpa.maps.AffineMap.identity(2), info=replace(info, notes=ESCAPE, source_names=(ESCAPE, "b")))
    assert "\x1b" not in m.summary()
    assert m.summary().count(SHOWN) == 2
