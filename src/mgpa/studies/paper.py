"""The paper's tables and figures with our numbers beside its own, as LaTeX, CSV and PDF."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._common.files import write_atomically
from ..audit.plots import save_figures
from ..audit.plots.drawing import INK, MUTED, PAGE, canvas, plain, style
from ..audit.report.tables import latex_text
from .paper_figures import gate_figure, reuse_figure
from .paper_layout import CONTROLLED, NUMBERS, REUSE, Line, PaperTable, Value
from .paper_numbers import Found, Runs
from .paper_words import NOTHING, protocol_table, readers_table, settings_table


def write_paper(folders: Iterable[Path], out: Path, *, all_tables: bool = True) -> list[Path]:
    """Write the paper's tables and figures, with what studies found beside what it prints.

    Parameters
    ----------
    folders : sequence of path
        Where studies were run; each has a ``results.json``.
    out : path
        Folder for ``table_1.tex``, ``.csv``, ``.pdf`` and so on, and ``figure_3.pdf``, ``figure_4.pdf``.
    all_tables : bool
        Also tables that no study here has a number for; those show the paper's alone.

    Returns
    -------
    list of path
    """
    runs, out = Runs.read(folders), Path(out)
    out.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    figures: dict[str, Any] = {}
    tables = [(t, runs.notes(t)) for t in NUMBERS if all_tables or t.studies & set(runs.results)]
    if all_tables:
        tables += [(t, []) for t in (protocol_table(runs), settings_table(), readers_table())]
    for table, notes in tables:
        name = f"table_{table.name}"
        paths.append(write_atomically(out / f"{name}.tex", latex(table, runs, notes).encode()))
        paths.append(write_atomically(out / f"{name}.csv", as_csv(table, runs).encode()))
        figures[name] = draw(table, runs, notes)
    if CONTROLLED in runs.results:
        figures["figure_3"] = gate_figure(runs)
    if REUSE in runs.results:
        figures["figure_4"] = reuse_figure(runs)
    if all_tables:
        from .theory import figure

        figures["figure_2"] = figure()
    return sorted(paths + save_figures(figures, out, ("pdf",)))


def text_of(value: Value, found: Found | None) -> str:
    """Return a number as the paper writes it."""
    if found is None:
        return NOTHING
    sign = "+" if value.against else ""
    scale = 100 if value.percent else 1

    def number(x: float) -> str:
        return f"{scale * x:{sign}.{value.digits}f}"

    if not value.interval or found.low is None or found.high is None:
        return number(found.value)
    return f"{number(found.value)} [{number(found.low)}, {number(found.high)}]"


def _filled(table: PaperTable, runs: Runs) -> list[tuple[Line, list[str]]]:
    """Return every printed line: ours [paper] in one cell, or, with intervals, one line below the other."""
    lines = []
    for line in table.lines:
        cells = line.cells
        ours = [c if isinstance(c, str) else text_of(c, runs.ours(c)) for c in cells]
        theirs = [c if isinstance(c, str) else text_of(c, runs.paper(c)) for c in cells]
        if any(isinstance(c, Value) and c.interval for c in cells):
            lines.append((line, ours))
            below = (*("",) * (len(line.labels) - 1), "[paper]")
            lines.append((replace(line, labels=below, rule=False), theirs))
        else:
            pairs = zip(cells, ours, theirs, strict=True)
            lines.append((line, [a if isinstance(c, str) else f"{a} [{b}]" for c, a, b in pairs]))
    return lines


def latex(table: PaperTable, runs: Runs, notes: Sequence[str]) -> str:
    """Return a table as LaTeX, laid out as in the paper, and no wider than the text."""
    words = not table.studies
    width = len(table.labels) + len(table.columns)
    kinds = "p{.2\\linewidth}" + "p{.36\\linewidth}" * (width - 1) if words else (
        "l" * len(table.labels) + "r" * len(table.columns)
    )  # fmt: skip
    out = [
        r"% needs \usepackage{booktabs,graphicx}",
        *(f"% {note}" for note in notes),
        r"\begin{table}[t]\centering\small",
        rf"\caption{{\textbf{{{_tex(table.title)}.}} " + ("}" if words else r"Ours [paper].}"),
        # With the paper's numbers beside ours, most tables are wider than a page has room for.
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{@{{}}{kinds}@{{}}}}",
        r"\toprule",
    ]
    if table.spans:
        first, spans, rules = len(table.labels) + 1, [], []
        for text, n in table.spans:
            spans.append(rf"\multicolumn{{{n}}}{{c}}{{{_tex(text)}}}")
            rules.append(rf"\cmidrule(lr){{{first}-{first + n - 1}}}")
            first += n
        out += [" & ".join([""] * len(table.labels) + spans).strip() + r" \\", "".join(rules)]
    out += [" & ".join(map(_tex, (*table.labels, *table.columns))) + r" \\", r"\midrule"]
    before = ""
    for line, cells in _filled(table, runs):
        if line.rule:
            out.append(r"\midrule")
        # Of several lines with one interface, the first names it.
        named = line.labels if line.labels[0] != before or len(line.labels) < 2 else ("", *line.labels[1:])
        before = line.labels[0] or before
        out.append(" & ".join(map(_tex, (*named, *cells))) + r" \\")
    return "\n".join([*out, r"\bottomrule", r"\end{tabular}}", r"\end{table}", ""])


def _tex(text: str) -> str:
    """Return text for LaTeX, with minus signs and the paper's symbols."""
    if text in ("T_f ↑", "T_r ↑"):
        return f"${text[:3]}$" + r"$\uparrow$"
    if text.startswith(("ΔT_f", "ΔT_r")):
        return rf"$\Delta {text[1:4]}$" + _tex(text[4:])
    symbols = {"↓": r"$\downarrow$", "↑": r"$\uparrow$", "Δ": r"$\Delta$", "–": "--", "×": r"$\times$"}
    symbols |= {"√": r"$\surd$"}
    written = "".join(symbols.get(c, latex_text(c)) for c in text)
    if written.startswith("["):  # after a line's end, LaTeX would take it for a distance
        return f"{{{written}}}"
    return re.sub(r"(^|[\[ ])-(?=\d)", r"\1$-$", written)


def as_csv(table: PaperTable, runs: Runs) -> str:
    """Return a table as CSV: a column of ours and one of the paper's for each of its columns."""
    over = [text for text, n in table.spans for _ in range(n)] or [""] * len(table.columns)
    names = [f"{a}: {b}" if a else b for a, b in zip(over, table.columns, strict=True)]
    words = not table.studies
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    heads = names if words else [f"{name}{whose}" for name in names for whose in ("", " [paper]")]
    writer.writerow([*table.labels, *heads])
    for line in table.lines:
        cells: list[str] = []
        for c in line.cells:
            if isinstance(c, str):
                cells += [c] if words else [c, c]
            else:
                cells += [text_of(c, runs.ours(c)), text_of(c, runs.paper(c))]
        writer.writerow([*line.labels, *(("" if cell == NOTHING else cell) for cell in cells)])
    return stream.getvalue()


def draw(table: PaperTable, runs: Runs, notes: Sequence[str]) -> Any:
    """Return a table as a figure."""
    from textwrap import fill

    words = not table.studies
    filled = _filled(table, runs)
    wrap = 46 if words else 34
    text = [[fill(cell, wrap) for cell in (*line.labels, *cells)] for line, cells in filled]
    head = [fill(cell, wrap) for cell in (*table.labels, *table.columns)]
    heights = [max(cell.count("\n") for cell in row) + 1 for row in (head, *text)]
    widths = [
        max(len(part) for row in (head, *text) for part in row[i].split("\n")) + 2 for i in range(len(head))
    ]
    with style():
        size = max(3.5, min(7.5, 120 * PAGE / 7 / sum(widths) * 6.5))
        height = 0.028 * size * (sum(heights) + 2.5 + 1.3 * len(notes) + bool(table.spans))
        figure, [ax] = canvas(None, PAGE, height)
        ax.axis("off")
        total = sum(heights) + bool(table.spans)
        left = [sum(widths[:i]) / sum(widths) for i in range(len(widths) + 1)]
        y = 0.0

        def put(row: Sequence[str], at: float, weight: str = "normal") -> None:
            for i, cell in enumerate(row):
                right = i >= len(table.labels) and not words
                x = left[i + 1] - 0.005 if right else left[i] + 0.005
                ax.text(x, at + 0.15, plain(cell), size=size, weight=weight, va="top",
                        ha="right" if right else "left")  # fmt: skip

        ax.set(xlim=(0, 1), ylim=(total + 0.3, -1.6))
        ax.text(0, -0.4, f"Table {table.name}. {table.title}" + ("" if words else ". Ours [paper]"),
                size=size + 0.8, weight="bold")  # fmt: skip
        ax.axhline(0, color=INK, lw=0.9)
        if table.spans:
            first = len(table.labels)
            for label, n in table.spans:
                middle = (left[first] + left[first + n]) / 2
                ax.text(middle, y + 0.15, label, size=size, ha="center", va="top")
                first += n
            y += 1
        put(head, y, "bold")
        y += heights[0]
        ax.axhline(y, color=INK, lw=0.6)
        for (line, _), row, lines in zip(filled, text, heights[1:], strict=True):
            if line.rule:
                ax.axhline(y, color=MUTED, lw=0.5)
            put(row, y)
            y += lines
        ax.axhline(y, color=INK, lw=0.9)
        if notes:
            figure.supxlabel("\n".join(notes), size=size - 0.8, color=MUTED, ha="left", x=0.01)
    return figure
