"""CSV that a spreadsheet reads as data, whatever names and labels are in it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def csv_cell(value: Any) -> Any:
    """Return what to write in a cell: a text that a spreadsheet would take for a formula gets a quote.

    Numbers, and texts that are numbers, stay as they are.

    Examples
    --------
    >>> csv_cell("=HYPERLINK(1)"), csv_cell("-1.5"), csv_cell(-1.5), csv_cell("leace")
    ("'=HYPERLINK(1)", '-1.5', -1.5, 'leace')
    """
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value if value.strip() == value else f"'{value}"


def csv_lines(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV: None is empty, and no text is a formula."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for row in rows:
        writer.writerow([csv_cell(value) for value in row])
    return stream.getvalue()
