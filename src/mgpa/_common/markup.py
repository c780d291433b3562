"""HTML for notebooks: a heading and facts, escaped, since names in them are other people's text."""

from __future__ import annotations

from collections.abc import Mapping
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
