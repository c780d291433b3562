"""Format tables as plain text, HTML for notebooks, and LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import Any


def facts_html(heading: str, facts: Mapping[str, str]) -> str:
    """Return a heading and a table of named facts as escaped HTML.

    Examples
    --------
    >>> facts_html("Map", {"source": "<b>"})
    '<div><strong>Map</strong><table><tr><th>source</th><td>&lt;b&gt;</td></tr></table></div>'
    """
    rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in facts.items())
    return f"<div><strong>{escape(heading)}</strong><table>{rows}</table></div>"


def rounded_repr(record: Any) -> str:
    """Return the repr of a dataclass with floats rounded to three digits.

    Examples
    --------
    >>> from dataclasses import make_dataclass
    >>> rounded_repr(make_dataclass("Effect", ["size", "units"])(0.99870057, "568 rows"))
    "Effect(size=0.999, units='568 rows')"
    """
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    shown = (f"{n}={v:.3g}" if isinstance(v, float) else f"{n}={v!r}" for n, v in values.items())
    return f"{type(record).__name__}({', '.join(shown)})"


def rows_html(rows: Iterable[Sequence[str]]) -> str:
    """Return rows as an HTML table; the first row is the header."""
    head, *body = ([escape(cell) for cell in row] for row in rows)
    lines = [f"<tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body]
    return f"<table>{''.join(lines)}</table>"


def text_table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a plain-text table, with each column as wide as its widest entry.

    Examples
    --------
    >>> text_table([("name", "S"), ("LEACE", ".5")])
    ['name   S', 'LEACE  .5']
    """
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def latex_text(text: str) -> str:
    """Escape text for LaTeX."""
    special = {c: "\\" + c for c in "&%$#_{}"}
    special |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {"<": r"\textless{}", ">": r"\textgreater{}", "\n": " ", "→": r"$\to$", "−": "$-$"}
    return "".join(special.get(c, c) for c in text)
