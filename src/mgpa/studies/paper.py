"""The paper's tables 1 to 11, figures 3 and 4, and every number it prints beside a run's.

Captions name each run's heading ("Ours", "Simulated", "Quick", "Changed") and list how it differs from the
packaged study.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from .._common.files import claim, csv_lines, write_atomically
from ..audit.report.tables import latex_text
from ..errors import StudyError
from .config import load_study, presets
from .paper_tables import CONTROLLED, FACTS, REUSE, TABLES, TASKS, Table, word_tables

NOTHING = "–"


class Number(NamedTuple):
    """A number, and its interval where there is one."""

    value: float
    low: float | None = None
    high: float | None = None


class Runs:
    """The numbers of studies that were run, and those that the paper prints, by the same keys.

    Parameters
    ----------
    results : sequence of dict
        The contents of ``results.json`` files, of different studies.
    """

    def __init__(self, results: Sequence[Mapping[str, Any]]) -> None:
        self.results = {str(one["study"]): one for one in results}
        if len(self.results) < len(results):
            raise StudyError("Two folders hold the same study; name one of them.")
        self.numbers: dict[tuple[str, ...], Number] = {
            (study, row["task"], row["method"], row["against"], row["metric"]): Number(
                row["value"], row["low"], row["high"]
            )
            for study, one in self.results.items()
            for row in (*one["estimates"], *one["contrasts"])
        }
        self.paper: dict[tuple[str, ...], Number] = {}
        for name in presets():
            study = load_study(name)
            printed: list[tuple[str, str, str, tuple[float, ...]]]
            printed = [(m, "", key, (x,)) for m, xs in study.paper.items() for key, x in xs.items()]
            printed += [(c.a, c.b, key, tuple(xs)) for c in study.contrasts for key, xs in c.paper.items()]
            for method, against, key, ends in printed:
                task, _, metric = key.partition(" ")
                task, metric = (task, metric) if task in TASKS else ("", key)
                self.paper[name, task, method, against, metric] = Number(*ends)

    @classmethod
    def read(cls, folders: Iterable[Path], *, published: bool = False) -> Runs:
        """Return what studies wrote into their folders, and the reuse study's published values if asked."""
        results = []
        if published:
            from .published import published_reuse

            results.append(published_reuse())
        for folder in folders:
            path = Path(folder) / "results.json"
            if not path.is_file():
                raise StudyError(f"{folder} has no results.json; `mgpa study run` writes one.")
            results.append(json.loads(path.read_text("utf-8")))
        return cls(results)

    def caption(self, studies: Iterable[str], methods: Iterable[str] = ()) -> str:
        """Return what the numbers of some studies are, and how each run differs from the paper's study."""
        sentences = []
        for study in studies:
            run = self.results.get(study)
            if run is None:
                sentences.append(f"{study}: not run.")
                continue
            differences = "; ".join(run["deviations"]) or "no deviation from the preset"
            sentences.append(
                f"{study}: {run['heading']} [paper]; {differences} (digest {run['digest'][:12]})."
            )
            omitted = {name: why for name, why in run["omitted"].items() if name.split(": ")[-1] in methods}
            sentences += [f"{study}: {name} is left out, {why}." for name, why in omitted.items()]
        return " ".join(sentences)


def write_paper(
    folders: Iterable[Path], out: Path, *, all_tables: bool = True, published: bool = False
) -> list[Path]:
    """Write the paper's tables and figures, with the numbers of runs beside those it prints.

    Parameters
    ----------
    folders : sequence of path
        Where studies were run; each has a ``results.json``.
    out : path
        Folder, new, empty or written by this function, for ``paper.html`` with all tables, ``table_1.tex``
        and ``.csv`` and so on, ``numbers.csv`` (every printed number), ``figure_3.pdf``, ``figure_4.pdf``.
    all_tables : bool
        Also tables that no study here has a number for; those show the paper's alone.
    published : bool
        Compute tables 3, 10 and 11 from the published participant values, without a run of the reuse study.

    Returns
    -------
    list of path
    """
    runs = Runs.read(folders, published=published)
    tables = [t for t in TABLES if all_tables or t.studies & set(runs.results)]
    if all_tables:
        tables += word_tables(runs.results)
    texts = {"paper.html": as_html(tables, runs), "numbers.csv": numbers_csv(runs)}
    for table in tables:
        texts[f"table_{table.name}.tex"] = latex(table, runs)
        texts[f"table_{table.name}.csv"] = as_csv(table, runs)
    paths = [write_atomically(claim(out, name)[0], text.encode()) for name, text in texts.items()]
    from .figures import gate_figure, reuse_figure, save_study_figure

    for study, name, draw in (
        (CONTROLLED, "figure_3.pdf", gate_figure),
        (REUSE, "figure_4.pdf", reuse_figure),
    ):
        if study in runs.results:
            paths.append(save_study_figure(draw(runs), claim(out, name)[0]))
    return sorted(paths)


def number_text(number: Number | None, digits: int, percent: bool, sign: bool, interval: bool) -> str:
    """Return a number as the paper writes it.

    Examples
    --------
    >>> number_text(Number(-0.0413, -0.0647, -0.021), 2, percent=True, sign=True, interval=True)
    '-4.13 [-6.47, -2.10]'
    """
    if number is None:
        return NOTHING
    value, *ends = (
        None if x is None else f"{(100 if percent else 1) * x:{'+' if sign else ''}.{digits}f}"
        for x in number
    )
    return f"{value} [{ends[0]}, {ends[1]}]" if interval and None not in ends else str(value)


def filled(table: Table, runs: Runs) -> list[tuple[list[str], list[tuple[str, str]]]]:
    """Return a table's rows: labels, and for every column the run's text and the paper's."""
    rows = []
    for labels, content in table.rows:
        if not table.studies:
            rows.append((labels, [(text, "") for text in content]))
            continue
        (method, against, of_task), cells = content, []
        for _, study, task, metric, digits in table.columns:
            if not any(key[0] == study and key[2] == method for key in runs.paper):
                cells.append(("N/A", "N/A"))  # a method that this study of the paper does not have
                continue
            key = (study, of_task or task, method, against, metric)
            how = (digits, table.percent, bool(against), table.interval)
            cells.append((number_text(runs.numbers.get(key), *how), number_text(runs.paper.get(key), *how)))
        rows.append((labels, cells))
    return rows


def _caption(table: Table, runs: Runs) -> str:
    methods = {name for _, content in table.rows for name in content[:2]}
    return f"{table.title}. {runs.caption(sorted(table.studies), methods)}".strip()


def _spans(table: Table) -> list[tuple[str, int]]:
    return [(text, len(list(same))) for text, same in groupby(table.over or ())]


def _both(run: str, paper: str) -> str:
    return run if paper in ("", "N/A") else f"{run} [{paper}]"


def latex(table: Table, runs: Runs) -> str:
    """Return a table as LaTeX, laid out as in the paper, and no wider than the text."""
    words = not table.studies
    kinds = "p{.2\\linewidth}" + "p{.36\\linewidth}" * len(table.columns) if words else (
        "l" * len(table.labels) + "r" * len(table.columns)
    )  # fmt: skip
    out = [
        r"% needs \usepackage{booktabs,graphicx}",
        r"\begin{table}[t]\centering\small",
        rf"\caption{{{_tex(_caption(table, runs))}}}",
        # With the paper's numbers beside the run's, most tables are wider than a page has room for.
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{@{{}}{kinds}@{{}}}}",
        r"\toprule",
    ]
    if table.over:
        spans = [rf"\multicolumn{{{n}}}{{c}}{{{_tex(text)}}}" for text, n in _spans(table)]
        out.append(" & ".join([""] * len(table.labels) + spans) + r" \\")
    heads = [*table.labels, *(column[0] for column in table.columns)]
    out += [" & ".join(map(_tex, heads)) + r" \\", r"\midrule"]
    out += [
        " & ".join(map(_tex, (*labels, *(_both(*cell) for cell in cells)))) + r" \\"
        for labels, cells in filled(table, runs)
    ]
    return "\n".join([*out, r"\bottomrule", r"\end{tabular}}", r"\end{table}", ""])


def _tex(text: str) -> str:
    """Return text for LaTeX, with minus signs and the paper's symbols."""
    symbols = {"↓": r"$\downarrow$", "↑": r"$\uparrow$", "Δ": r"$\Delta$", "–": "--", "×": r"$\times$"}
    symbols |= {"√": r"$\surd$", "γ": r"$\gamma$", "α": r"$\alpha$"}
    written = "".join(symbols.get(c, latex_text(c)) for c in text)
    written = re.sub(r"T\\_([fr])\b", r"$T_\1$", written)
    return re.sub(r"(^|[\[ ])-(?=\d)", r"\1$-$", written)


def as_csv(table: Table, runs: Runs) -> str:
    """Return a table as CSV: a run's column and the paper's for each column, and what the run was."""
    words = not table.studies
    over = table.over or [""] * len(table.columns)
    names = [f"{a}: {c[0]}" if a else c[0] for a, c in zip(over, table.columns, strict=True)]
    heads = names if words else [f"{name}{whose}" for name in names for whose in ("", " [paper]")]
    rows: list[Sequence[Any]] = [[*table.labels, *heads, *([] if words else ["what the numbers are"])]]
    caption = runs.caption(sorted(table.studies))
    for labels, cells in filled(table, runs):
        flat = [cell[0] for cell in cells] if words else [text for cell in cells for text in cell]
        texts_shown = ["" if text == NOTHING else text for text in flat]
        rows.append([*labels, *texts_shown, *([] if words else [caption])])
    return csv_lines(rows)


def as_html(tables: Sequence[Table], runs: Runs) -> str:
    """Return all tables as one page."""
    parts = []
    for table in tables:
        heads = "".join(f"<th>{escape(h)}</th>" for h in (*table.labels, *(c[0] for c in table.columns)))
        spans = "".join(f'<th colspan="{n}">{escape(text)}</th>' for text, n in _spans(table))
        top = f'<tr><td colspan="{len(table.labels)}"></td>{spans}</tr>' if spans else ""
        body = "".join(
            "<tr>"
            + "".join(f"<td>{escape(c)}</td>" for c in (*labels, *(_both(*x) for x in cells)))
            + "</tr>"
            for labels, cells in filled(table, runs)
        )
        words = escape(f"Table {table.name}. {_caption(table, runs)}")
        parts.append(f"<table><caption>{words}</caption><thead>{top}<tr>{heads}</tr></thead>{body}</table>")
    style = (
        "body{font:15px/1.45 system-ui,sans-serif;max-width:75em;margin:2em auto;padding:0 1em}"
        "table{border-collapse:collapse;margin:0 0 2.5em;display:block;overflow-x:auto}"
        "caption{text-align:left;font-weight:600;padding:.4em 0;max-width:60em}"
        "td,th{padding:.2em .7em;text-align:left;border-top:1px solid #ccc;vertical-align:top}"
    )
    title = "The paper's tables: a run's number, then [the paper's]"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{style}</style>'
        f"<h1>{title}</h1>{''.join(parts)}</html>\n"
    )


def numbers_csv(runs: Runs) -> str:
    """Return a row for every number that the paper prints: its value, the run's, and how they compare."""
    heads = "study run task method against metric paper paper_low paper_high value low high difference"
    rows: list[Sequence[Any]] = [[*heads.split(), "same_sign", "intervals_overlap", "equal", "source"]]
    for key, paper in runs.paper.items():
        run, number = runs.results.get(key[0]), runs.numbers.get(key)
        compared: list[Any] = [None] * 7
        if number is not None:
            overlap = None
            if None not in (number.low, number.high, paper.low, paper.high):
                overlap = number.low <= paper.high and paper.low <= number.high  # type: ignore[operator]
            sign = number.value * paper.value > 0 if key[3] else None
            compared = [*number, number.value - paper.value, sign, overlap, None]
        rows.append([key[0], run and run["heading"], *key[1:], *paper, *compared, "paper's text"])
    for (study, fact), (value, source) in FACTS.items():
        run = runs.results.get(study)
        ours = None if run is None else run["protocol"].get(fact)
        equal = None if ours is None else str(ours) == value
        row = [study, run and run["heading"], "", "", "", fact, value, None, None, ours]
        rows.append([*row, None, None, None, None, None, equal, source])
    return csv_lines(rows)
