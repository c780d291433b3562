"""Numbers, sentences, lists and tables as HTML, escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from ..bootstrap import Estimate
from ..looks import label, looks
from ..result import Audit


def printed(x: float | None, digits: int = 3, sign: bool = False) -> str:
    """Return a number as the paper prints it, without a zero before the point; a dash for none."""
    if x is None:
        return "–"
    text = f"{x:{'+' if sign else ''}.{digits}f}"
    if float(text) == 0:
        text = text.replace("-", "+" if sign else "")
    return re.sub(r"^([+-]?)0\.", r"\1.", text).replace("-", "−")


def brackets(e: Estimate, digits: int = 3, sign: bool = False) -> str:
    """Return an interval."""
    return f"[{printed(e.low, digits, sign)}, {printed(e.high, digits, sign)}]"


def with_interval(e: Estimate, digits: int = 3, sign: bool = False) -> str:
    """Return a value and its interval."""
    return f"{printed(e.value, digits, sign)} {brackets(e, digits, sign)}"


def method(audit: Audit, name: str) -> str:
    """Return a method's name after a spot of its colour; the script puts its marker there."""
    look, i = looks(audit)[name], audit.methods.index(name)
    kind = f"key c{look.hue}{' hollow' if look.hollow else ''}"
    return f'<span class="{kind}" data-key="{i}" aria-hidden="true"></span>{escape(label(name))}'


def subscript(text: str) -> str:
    """Return escaped text with T_f and T_r as they are printed."""
    return re.sub(r"\bT_([fr])\b", r"T<sub>\1</sub>", escape(text))


def facts_list(facts: Iterable[tuple[str, str]]) -> str:
    """Return named facts as a list."""
    entries = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts)
    return f"<dl>{entries}</dl>"


def bullets(lines: Iterable[str]) -> str:
    """Return sentences as a list, with minus signs before numbers and intervals that do not break."""
    items = []
    for line in lines:
        line = re.sub(r"(?<![\w.])-(?=[.\d])", "−", line)
        line = re.sub(r"\[[^\]]*\]", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), line)
        items.append(f"<li>{escape(line)}</li>")
    return f"<ul>{''.join(items)}</ul>"


def scrolling(caption: str, table: str) -> str:
    """Return a table that scrolls by itself where the page is narrow."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">{table}</div>'


def plain_table(head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """Return a plain table; the first cell of a row is its name."""
    body = "".join(
        f'<tr><th scope="row">{escape(str(name))}</th>'
        + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    columns = "".join(f'<th scope="col">{escape(c)}</th>' for c in head)
    words = f"<caption><span>{escape(caption)}</span></caption>" if caption else ""
    table = f"<table>{words}<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>"
    return scrolling(caption or head[0], table)
