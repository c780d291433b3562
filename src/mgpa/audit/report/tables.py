"""The table of estimates: as HTML, as LaTeX and as CSV."""

from __future__ import annotations

from dataclasses import astuple
from html import escape
from typing import Any

from ..._common.csv_text import csv_lines
from ..looks import label
from ..metrics import METRICS
from ..result import Audit
from .pieces import brackets, method, printed, scrolling, subscript
from .verdict import ranking


def csv_table(audit: Audit) -> str:
    """Return one line for every method and metric: value, interval, and difference from the identity."""
    parts = ("value", "low", "high")
    rows: list[list[Any]] = [
        ["method", "source_blind", "metric", *parts, *(f"difference_{p}" for p in parts), "note"]
    ]
    for name, found in audit.estimates.items():
        for metric, e in found.items():
            change = audit.changes.get(name, {}).get(metric)
            difference = ("", "", "") if change is None else astuple(change)
            note = {"S": audit.bank, "worst": audit.direction}.get(metric, "")
            note = " ".join([*audit.warnings, note]).strip()
            rows.append([name, audit[name].source_blind, metric, *astuple(e), *difference, note])
    return csv_lines(rows)


def contrast_csv(audit: Audit, against: str) -> str:
    """Return one line for every other method and metric: its difference from ``against``, with interval."""
    rows: list[list[Any]] = [["method", "against", "metric", "difference", "low", "high", "note"]]
    for name in audit.methods:
        for metric in audit.metrics if name != against else ():
            change = astuple(audit.contrast(name, against, metric))
            rows.append([name, against, metric, *change, " ".join(audit.warnings)])
    return csv_lines(rows)


def latex_table(audit: Audit, against: str | None = None) -> str:
    """Return a table for the booktabs package, source-blind and source-aware methods apart.

    With ``against``, of the differences from that method.
    """
    metrics = audit.columns if against is None else audit.metrics
    notes = [f"% {latex_text(note)}" for note in (*audit.warnings, audit.bank, audit.direction) if note]
    lines = [
        r"% needs \usepackage{booktabs}",
        *notes,
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
    found = audit.changes if differences else audit.estimates
    metrics = audit.metrics if differences else audit.columns
    _, best = ranking(audit)
    rows = []
    for name in found:
        blind = "source-blind" if audit[name].source_blind else "source-aware"
        cells = [
            f'<th scope="row" data-value="{escape(label(name))}">{method(audit, name)}'
            f'<span class="group">{blind}</span></th>'
        ]
        for m in metrics:
            e = found[name].get(m)
            cells.append(
                "<td>–</td>"
                if e is None
                else f'<td data-value="{e.value:.6g}">{printed(e.value, 3, differences)}'
                f'<span class="ci">{brackets(e, 3, differences)}</span></td>'
            )
        mark = ' class="is-best"' if name in best else ""
        rows.append(f"<tr{mark}>{''.join(cells)}</tr>")
    head = "".join(
        f'<th scope="col">{subscript(m)}<span class="hint">{METRICS[m].hint}</span></th>' for m in metrics
    )
    caption = (
        "Differences from the identity, paired over participants, with 95 % intervals."
        if differences
        else "Means over EVAL participants, with 95 % intervals. Column heads sort."
    )
    # The table above says by whom S was read, and with which values.
    caption = f"{caption} {'' if differences else audit.bank} {audit.direction}"
    caption = " ".join(caption.split())
    table = (
        f'<table class="sortable"><caption><span>{escape(caption)}</span></caption>'
        f'<thead><tr><th scope="col">Method</th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )
    return scrolling(caption, table)
