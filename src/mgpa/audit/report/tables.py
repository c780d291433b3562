"""The table of estimates as HTML, LaTeX and CSV; sentences, lists and plain tables as HTML, escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from html import escape
from typing import TYPE_CHECKING, Any

from ..._common.files import csv_lines
from ..bootstrap import number
from ..metrics import METRICS
from ..plots.drawing import COLORS, looks
from ..verdict import OUTCOMES, ranking, readers_note, shortcut_note, warnings
from ..words import label

if TYPE_CHECKING:
    from ..result import Audit

# Colours of outcomes in the table of differences.
JUDGED = {"improved": "good", "kept": "good", "suffered": "bad", "unclear": "warn"}


def csv_table(audit: Audit) -> str:
    """Return one line for every method and metric: value, interval, and difference from the identity."""
    parts = ("value", "low", "high")
    rows: list[list[Any]] = [
        ["method", "source_blind", "metric", *parts, *(f"difference_{p}" for p in parts), "note"]
    ]
    notes = {"S": readers_note(audit), "worst": shortcut_note(audit)}
    for name, estimates in audit.estimates.items():
        for metric, e in estimates.items():
            change = audit.changes.get(name, {}).get(metric)
            difference = ("", "", "") if change is None else astuple(change)
            note = " ".join([*warnings(audit).values(), notes.get(metric, "")]).strip()
            rows.append([name, audit[name].source_blind, metric, *astuple(e), *difference, note])
    return csv_lines(rows)


def contrast_csv(audit: Audit, against: str) -> str:
    """Return one line for every other method and metric: its difference from ``against``, with interval."""
    rows: list[list[Any]] = [["method", "against", "metric", "difference", "low", "high", "note"]]
    for name in audit.methods:
        for metric in audit.metrics if name != against else ():
            change = astuple(audit.contrast(name, against, metric))
            rows.append([name, against, metric, *change, " ".join(warnings(audit).values())])
    return csv_lines(rows)


def latex_table(audit: Audit, against: str | None = None) -> str:
    """Return a table for the booktabs package, source-blind and source-aware methods apart.

    With ``against``, of the differences from that method.
    """
    metrics = audit.columns if against is None else audit.metrics
    notes = (*warnings(audit).values(), readers_note(audit), shortcut_note(audit))
    comments = [f"% {latex_text(note)}" for note in notes if note]
    lines = [
        r"% needs \usepackage{booktabs}",
        *comments,
        rf"\begin{{tabular}}{{@{{}}l{'r' * len(metrics)}@{{}}}}",
        r"\toprule",
        " & ".join(["Method", *(METRICS[m].latex for m in metrics)]) + r" \\",
    ]
    for title, blind in (("Source-blind correction", True), ("Source-aware alignment", False)):
        names = [name for name in audit.methods if audit[name].source_blind == blind and name != against]
        if not names:
            continue
        lines += [r"\midrule", rf"\multicolumn{{{len(metrics) + 1}}}{{@{{}}l}}{{\emph{{{title}}}}} \\"]
        for name in names:
            cells = [latex_text(label(name))]
            for m in metrics:
                if against is None:
                    e = audit.estimates[name].get(m)
                    text = "–" if e is None else f"{e:.3f}"
                else:
                    text = f"{audit.contrast(name, against, m):+.3f}"
                value, _, interval = text.replace("-", "$-$").replace("–", "--").partition(" ")
                cells.append(rf"{value} {{\scriptsize {interval}}}" if interval else value)
            lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def latex_text(text: str) -> str:
    """Return text that LaTeX prints as it is."""
    special = {c: "\\" + c for c in "&%$#_{}"}
    special |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {"<": r"\textless{}", ">": r"\textgreater{}", "\n": " ", "→": r"$\to$", "−": "$-$"}
    return "".join(special.get(c, c) for c in text)


def html_table(audit: Audit, differences: bool = False) -> str:
    """Return the estimates, or their differences from the identity, as a table that sorts."""
    shown = audit.changes if differences else audit.estimates
    metrics = audit.metrics if differences else audit.columns
    leaders = {name for group in ranking(audit)[1] for name in group}
    rows = []
    for name in shown:
        blind = "source-blind" if audit[name].source_blind else "source-aware"
        cells = [
            f'<th scope="row" data-value="{escape(label(name))}">{method(audit, name)}'
            f'<span class="group">{blind}</span></th>'
        ]
        for m in metrics:
            e = shown[name].get(m)
            if e is None:
                cells.append("<td>–</td>")
                continue
            value, _, below = minus(f"{e:+.3f}" if differences else str(e)).partition(" ")
            kind = ""
            if m == "S" and not differences:
                below += f"<br>chance reaches {number(audit[name].chance.high)}"
            if differences and METRICS[m].better != "neither":
                outcome = str(audit.outcome(name, m))
                kind, below = JUDGED[outcome], f"{below}<br>{OUTCOMES[outcome]}"
            cells.append(
                f'<td data-value="{e.value:.6g}"><span class="{kind}">{value}</span>'
                f'<span class="ci">{below}</span></td>'
            )
        best = ' class="is-best"' if name in leaders else ""
        rows.append(f"<tr{best}>{''.join(cells)}</tr>")
    head = "".join(
        f'<th scope="col">{subscript(m)}<span class="hint">{METRICS[m].hint}</span></th>' for m in metrics
    )
    caption = f"Means with 95 % intervals. {readers_note(audit)} {shortcut_note(audit)}".strip()
    if differences:
        caption = "Differences from the identity, paired over participants, with 95 % intervals."
    table = (
        f'<table class="sortable"><caption><span>{escape(caption)}</span></caption>'
        f'<thead><tr><th scope="col">Method</th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )
    return _scrolling(caption, table)


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
    return _scrolling(caption or head[0], table)


def _scrolling(caption: str, table: str) -> str:
    """Return a table that scrolls by itself where the page is narrow."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">{table}</div>'


def method(audit: Audit, name: str) -> str:
    """Return a method's name after a spot of its colour."""
    look = looks(audit)[name]
    kind = f"key m{COLORS.index(look.color)}{' hollow' if look.hollow else ''}"
    return f'<span class="{kind}" aria-hidden="true"></span>{escape(label(name))}'


def minus(numbers: str) -> str:
    """Return printed numbers with minus signs instead of hyphens."""
    return numbers.replace("-", "−")


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
