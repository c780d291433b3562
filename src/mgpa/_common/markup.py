"""Tables as text, and escaped HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape


def facts_html(heading: str, facts: Mapping[str, str]) -> str:
    """Return a heading and a table of named facts.

    Examples
    --------
    >>> facts_html("Map", {"source": "<b>"})
    '<div><strong>Map</strong><table><tr><th>source</th><td>&lt;b&gt;</td></tr></table></div>'
    """
    rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in facts.items())
    return f"<div><strong>{escape(heading)}</strong><table>{rows}</table></div>"


def text_table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table of text, each column as wide as its widest entry.

    Examples
    --------
    >>> text_table([("name", "S"), ("LEACE", ".5")])
    ['name   S', 'LEACE  .5']
    """
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
