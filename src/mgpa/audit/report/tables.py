"""The table of estimates: as HTML, as LaTeX and as CSV."""

from __future__ import annotations

from dataclasses import astuple
from html import escape
from typing import TYPE_CHECKING, Any

from ..._common.files import csv_lines
from ..metrics import METRICS
from ..verdict import ranking, readers_note, shortcut_note, warnings
from ..words import label, number
from .pieces import brackets, method, printed, scrolling, subscript

if TYPE_CHECKING:
    from ..result import Audit


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
    colours = {"improved": "good", "kept": "good", "suffered": "bad", "unclear": "warn"}
    rows = []
    for name in shown:
        blind = "source-blind" if audit[name].source_blind else "source-aware"
        cells = [
            f'<th scope="row" data-value="{escape(label(name))}">{method(audit, name)}'
            f'<span class="group">{blind}</span></th>'
        ]
        for m in metrics:
            e = shown[name].get(m)
            below = "" if e is None else brackets(e, 3, differences)
            if m == "S" and not differences:
                below += f"<br>chance reaches {number(audit[name].chance.high)}"
            judged = differences and METRICS[m].better != "neither"
            kind = colours[str(audit.outcome(name, m))] if judged else ""
            cells.append(
                "<td>–</td>"
                if e is None
                else f'<td data-value="{e.value:.6g}"><span class="{kind}">{printed(e.value, 3, differences)}'
                f'</span><span class="ci">{below}</span></td>'
            )
        best = ' class="is-best"' if name in leaders else ""
        rows.append(f"<tr{best}>{''.join(cells)}</tr>")
    head = "".join(
        f'<th scope="col">{subscript(m)}<span class="hint">{METRICS[m].hint}</span></th>' for m in metrics
    )
    caption = (
        "Differences from the identity, paired over participants, with 95 % intervals. Green: improved or "
        "kept; amber: not clear; red: worse."
        if differences
        else f"Means with 95 % intervals. {readers_note(audit)} {shortcut_note(audit)}".strip()
    )
    table = (
        f'<table class="sortable"><caption><span>{escape(caption)}</span></caption>'
        f'<thead><tr><th scope="col">Method</th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )
    return scrolling(caption, table)
