"""Numbers, sentences, lists and tables as HTML, escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ..plots.drawing import COLORS, looks
from ..words import interval, label, number

if TYPE_CHECKING:
    from ..bootstrap import Estimate
    from ..result import Audit


def printed(x: float | None, digits: int = 3, sign: bool = False) -> str:
    """Return a number with a minus sign of its own; a dash for none."""
    return "–" if x is None else number(x, digits, sign).replace("-", "−")


def brackets(e: Estimate, digits: int = 3, sign: bool = False) -> str:
    """Return an interval."""
    return with_interval(e, digits, sign).partition(" ")[2]


def with_interval(e: Estimate, digits: int = 3, sign: bool = False) -> str:
    """Return a value and its interval."""
    return interval(e, digits, sign).replace("-", "−")


def method(audit: Audit, name: str) -> str:
    """Return a method's name after a spot of its colour."""
    look = looks(audit)[name]
    kind = f"key m{COLORS.index(look.color)}{' hollow' if look.hollow else ''}"
    return f'<span class="{kind}" aria-hidden="true"></span>{escape(label(name))}'


def sentence(text: str) -> str:
    """Return escaped text with minus signs before numbers, and intervals that do not break."""
    text = re.sub(r"(?<![\w.])-(?=[.\d])", "−", text)
    text = re.sub(r"\[[^\]]*\]", lambda interval: interval[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    text = re.sub(r"(?<=\bS) (?=[.\d])", "\N{NO-BREAK SPACE}", text)
    return subscript(text)


def subscript(text: str) -> str:
    """Return escaped text with T_f, A_r and the like as they are printed."""
    return re.sub(r"\b(A|T|RMSEP|bias|R2)_([fr])\b", r"\1<sub>\2</sub>", escape(text))


def bullets(lines: Iterable[str]) -> str:
    """Return sentences as a list."""
    return f"<ul>{''.join(f'<li>{sentence(line)}</li>' for line in lines)}</ul>"


def facts_list(facts: Iterable[tuple[str, str]]) -> str:
    """Return named facts as a list."""
    entries = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts)
    return f"<dl>{entries}</dl>"


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
