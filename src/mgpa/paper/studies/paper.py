"""Write the paper's tables 1 to 11 and figures 2 to 4, with each printed result beside that of a run.

Captions give the heading of each run ("Ours", "Simulated", "Quick", "Changed") and list how the run differs
from the packaged study. The contents of each table are defined in ``paper.toml``.
"""

from __future__ import annotations

import csv
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ..._common.files import claim, csv_lines, write_atomically
from ..._common.markup import latex_text
from ...audit.bootstrap import contrast, estimate
from ...errors import StudyError
from .config import CONTROLLED, REUSE, TASKS
from .load import load_study, presets

NOTHING = "–"
_DATA = tomllib.loads(files(__package__).joinpath("paper.toml").read_text("utf-8"))
#: A column is [head, study, task, metric, digits]; a row is its labels, then [method, against, task].
TABLES: list[dict[str, Any]] = _DATA["table"]
#: Facts that a reproduction must match: (value, source) by study and protocol key of ``results.json``.
FACTS = {(study, fact): (value, source) for study, fact, value, source in _DATA["facts"]["rows"]}
#: Columns of the shortcut head's AUROC in the published participant values.
PARTS = ("reversed", "independent", "aligned")
#: A value and the ends of its interval, or None where it has no interval.
Number = tuple[float, float | None, float | None]
#: The key of a number: study, task, method, compared method, metric.
Key = tuple[str, ...]


class Runs:
    """Numbers of completed runs and numbers printed in the paper, with the same keys.

    Parameters
    ----------
    results : sequence of dict
        The contents of ``results.json`` files, one per study.
    """

    def __init__(self, results: Sequence[Mapping[str, Any]]) -> None:
        self.results = {str(run["study"]): run for run in results}
        if len(self.results) < len(results):
            raise StudyError("Two folders hold the same study; name one of them.")
        self.numbers = _numbers_of(self.results)
        self.paper = _printed_numbers()
        for study, task, method, _, metric in self.paper:
            part, times, other = metric.partition(" times ")  # a ratio, such as "M times Conditional target"
            over, under = (self.numbers.get((study, task, name, "", part)) for name in (method, other))
            if times and over and under:
                self.numbers[study, task, method, "", metric] = over[0] / under[0], None, None

    @classmethod
    def read(cls, folders: Iterable[Path], *, published: bool = False) -> Runs:
        """Read the results in study folders; with ``published``, add the reuse study's published values."""
        results = [published_reuse()] if published else []
        for folder in folders:
            path = Path(folder) / "results.json"
            if not path.is_file():
                raise StudyError(f"{folder} has no results.json; `mgpa study run` writes one.")
            results.append(json.loads(path.read_text("utf-8")))
        return cls(results)

    def caption(self, table: Mapping[str, Any]) -> str:
        """Return a table's caption: title, origin of the numbers, differences of each run from the paper."""
        sentences = [f"{table['title']}."]
        if not studies_of(table) and self.results:
            # The published values come from the paper's run; this package ran nothing for them.
            runs = {study: run for study, run in self.results.items() if run["digest"] != "published"}
            ran = ", ".join(f"{study} ({run['heading']})" for study, run in runs.items()) or "nothing"
            sentences.append(f"What ran: {ran}.")
        methods = {name for *_, content in table["rows"] for name in content[:2]}
        for study in studies_of(table):
            run = self.results.get(study)
            if run is None:
                sentences.append(f"{study}: not run.")
                continue
            differences = "; ".join(run["deviations"]) or "no deviation from the preset"
            sentences.append(
                f"{study}: {run['heading']} [paper]; {differences} (digest {run['digest'][:12]})."
            )
            for name, why in run["omitted"].items():
                if name.split(": ")[-1] in methods:
                    sentences.append(f"{study}: {name} is left out, {why}.")
        return " ".join(sentences)


def _numbers_of(results: Mapping[str, Mapping[str, Any]]) -> dict[Key, Number]:
    """Return the results of runs by study, task, method, compared method and metric."""
    numbers: dict[Key, Number] = {}
    for study, run in results.items():
        for row in (*run["estimates"], *run["contrasts"]):
            *names, metric = (row[part] for part in ("task", "method", "against", "metric"))
            numbers[study, *names, metric] = row["value"], row["low"], row["high"]
            for end in ("low", "high"):
                if row.get(f"fit_{end}") is not None:
                    numbers[study, *names, f"{metric} of {end}est fit"] = row[f"fit_{end}"], None, None
    return numbers


def _printed_numbers() -> dict[Key, Number]:
    """Return the numbers printed in the paper, with the keys of :func:`_numbers_of`."""
    numbers: dict[Key, Number] = {}
    for name in presets():
        preset = load_study(name)
        printed: list[Any] = [
            (m, "", key, (x, None, None)) for m in preset.paper for key, x in preset.paper[m].items()
        ]
        printed += [(c.a, c.b, key, tuple(xs)) for c in preset.contrasts for key, xs in c.paper.items()]
        for method, against, key, number in printed:
            task, _, metric = key.partition(" ")
            task, metric = (task, metric) if task in TASKS else ("", key)
            numbers[name, task, method, against, metric] = number
    return numbers


def published_reuse() -> dict[str, Any]:
    """Return the results of the reuse study, computed from the published values of its participants.

    The results have the same format as those of ``mgpa study run``.

    Examples
    --------
    >>> rows = published_reuse()["contrasts"]
    >>> [round(r["value"], 4) for r in rows if r["task"] == "N170" and r["metric"] == "worst"][:2]
    [0.0364, 0.0574]
    """
    fits = _published_fits()

    def values(task: str, method: str, metric: str) -> Any:
        heads = PARTS if metric == "worst" else (metric,)
        rows = [
            [[float(row[head]) for head in heads] for row in sorted(fit, key=lambda row: row["participant"])]
            for fit in fits[task, method].values()
        ]
        return np.array(rows) if metric == "worst" else np.array(rows)[..., 0]

    def entry(task: str, method: str, against: str, metric: str) -> dict[str, Any]:
        statistic: Any = "worst" if metric == "worst" else "mean"
        first = values(task, method, metric)
        second = values(task, against, metric) if against else None
        e = estimate(first, statistic) if second is None else contrast(first, second, statistic)
        single = [float(estimate(fit[None], statistic, n_draws=1).value) for fit in first]
        names = {"task": task, "method": method, "against": against, "metric": metric}
        return names | vars(e) | {"fit_low": min(single), "fit_high": max(single)}

    metrics, declared = ("worst", "control", *PARTS), load_study(REUSE).contrasts
    return {
        "study": REUSE,
        "heading": "Published participant values",
        "deviations": ["recomputed from the public release's participant values; no recordings were read"],
        "digest": "published",
        "settings": {"methods": {}},
        "protocol": {},
        "facts": {"protocol": "not run (published participant values)"},
        "estimates": [entry(task, method, "", m) for task, method in fits for m in metrics],
        "contrasts": [entry(task, c.a, c.b, m) for task in TASKS for c in declared for m in c.metrics],
        "omitted": {},
    }


def _published_fits() -> dict[tuple[str, str], dict[str, list[dict[str, str]]]]:
    """Return the published rows (one per participant) by task and method, then by fit."""
    text = files(__package__).joinpath("published_reuse.csv").read_text("utf-8")
    fits: dict[tuple[str, str], dict[str, list[dict[str, str]]]] = {}
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        fits.setdefault((row["task"], row["method"]), {}).setdefault(row["fit"], []).append(row)
    return fits


def studies_of(table: Mapping[str, Any]) -> list[str]:
    """Return the studies behind a table's numbers, or an empty list for a table of words."""
    return sorted({column[1] for column in table["columns"] if len(column) > 1})


def write_paper(folders: Iterable[Path], out: Path, *, published: bool = False) -> list[Path]:
    """Write the paper's tables and figures, with the numbers of runs beside those of the paper.

    Parameters
    ----------
    folders : sequence of path
        Folders of completed studies, each with a ``results.json``.
    out : path
        Output folder; it must be new, empty, or written earlier by this function. It receives ``paper.html``
        (all tables), ``table_1.tex`` and so on, ``numbers.csv`` (every printed result), and ``figure_2.pdf``
        to ``figure_4.pdf``. Cells without a number from a run show only the paper's number.
    published : bool
        Compute tables 3, 10 and 11 from published values of participants, without running the reuse study.

    Returns
    -------
    list of path
    """
    runs = Runs.read(folders, published=published)
    tables = sorted(
        [*TABLES, *word_tables(runs.results)], key=lambda table: int(re.sub(r"\D", "", table["name"]))
    )
    texts = {"paper.html": as_html(tables, runs), "numbers.csv": numbers_csv(runs)}
    for table in tables:
        texts[f"table_{table['name']}.tex"] = latex(table, runs)
    paths = [write_atomically(claim(out, name)[0], text.encode()) for name, text in texts.items()]
    from ...audit.plots import save_figures
    from .figures import gate_figure, geometry_figure, reuse_figure

    folder = claim(out, "figure_2.pdf")[0].parent
    paths += save_figures({"figure_2": geometry_figure()}, folder, ("pdf",))
    for study, name, draw in ((CONTROLLED, "figure_3", gate_figure), (REUSE, "figure_4", reuse_figure)):
        if study in runs.results:
            folder = claim(out, f"{name}.pdf")[0].parent
            paths += save_figures({name: draw(runs)}, folder, ("pdf",))
    return sorted(paths)


def word_tables(results: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return tables 4 to 6: the paper's description beside the settings stored by the runs."""
    tables = []
    for table in _DATA["words"]:
        rows = [[name, [paper, _what_ran(results, *settings)]] for name, paper, *settings in table["rows"]]
        tables.append(table | {"columns": [["Paper"], ["What ran"]], "rows": rows})
    return tables


def _what_ran(results: Mapping[str, Mapping[str, Any]], *settings: str) -> str:
    """Return the values of settings as text, by study if the runs differ.

    If the first name is that of a packaged study, return the stored protocol of its run.
    """
    if settings[0] in presets():
        return str(results[settings[0]]["facts"]["protocol"]) if settings[0] in results else "not run"
    ran: dict[str, list[str]] = {}
    for study, run in results.items():
        if settings[0] in run["facts"]:
            facts = {key: run["facts"][key] for key in settings if key in run["facts"]}
            words = [f"{key.rpartition('.')[2].replace('_', ' ')} {value}" for key, value in facts.items()]
            ran.setdefault(", ".join(dict.fromkeys(words)), []).append(study)
    if len(ran) == 1:
        return next(iter(ran))
    return "; ".join(f"{', '.join(names)}: {words}" for words, names in ran.items()) or "not run"


def number_text(
    number: Number | None, digits: int, percent: bool, sign: bool, interval: bool, printed: bool = False
) -> str:
    """Return a number as the paper writes it, rounded as a run's report rounds it.

    A ``printed`` number is rounded half up, as in the paper: .9155 becomes .916.

    Examples
    --------
    >>> number_text((-0.0413, -0.0647, -0.021), 2, percent=True, sign=True, interval=True)
    '-4.13 [-6.47, -2.10]'
    """
    if number is None:
        return NOTHING
    unit, how = Decimal(1).scaleb(-digits), ROUND_HALF_UP if printed else ROUND_HALF_EVEN
    decimals = (None if x is None else Decimal(repr(x)) if printed else Decimal(x) for x in number)
    scaled = (None if x is None else (100 if percent else 1) * x for x in decimals)
    value, *ends = (None if x is None else f"{x.quantize(unit, how):{'+' * sign}f}" for x in scaled)
    return f"{value} [{ends[0]}, {ends[1]}]" if interval and None not in ends else str(value)


def filled(table: Mapping[str, Any], runs: Runs) -> list[tuple[list[str], list[tuple[str, str]]]]:
    """Return the rows of a table: labels, and for each column the text of the run and of the paper."""
    rows = []
    for *labels, content in table["rows"]:
        if not studies_of(table):
            rows.append((labels, [(text, "") for text in content]))
            continue
        (method, against, other_task), cells = content, []
        for _, study, task, metric, digits in table["columns"]:
            if not any(key[0] == study and key[2] == method for key in runs.paper):
                cells.append(("N/A", "N/A"))  # the paper's study does not include this method
                continue
            key = (study, other_task or task, method, against, metric)
            how = (digits, table.get("percent", False), bool(against), table.get("interval", False))
            run, paper = (
                number_text(runs.numbers.get(key), *how),
                number_text(runs.paper.get(key), *how, True),
            )
            cells.append((run, paper))
        rows.append((labels, cells))
    return rows


def _lines(table: Mapping[str, Any], runs: Runs) -> list[list[str]]:
    """Return the header and rows of a table as text, with the paper's number in brackets after the run's."""
    over = table.get("over") or [""] * len(table["columns"])
    heads = [f"{a}: {c[0]}" if a else c[0] for a, c in zip(over, table["columns"], strict=True)]
    rows = [
        [*labels, *(run if paper in ("", "N/A") else f"{run} [{paper}]" for run, paper in cells)]
        for labels, cells in filled(table, runs)
    ]
    return [[*table["labels"], *heads], *rows]


def latex(table: Mapping[str, Any], runs: Runs) -> str:
    """Return a table as LaTeX that fits the text width."""
    labels, columns = len(table["labels"]), len(table["columns"])
    kinds = "l" * labels + "r" * columns
    if not studies_of(table):
        kinds = "p{.2\\linewidth}" + "p{.36\\linewidth}" * columns
    heads, *rows = (" & ".join(map(_tex, line)) + r" \\" for line in _lines(table, runs))
    return "\n".join([
        r"% needs \usepackage{booktabs,graphicx}",
        r"\begin{table}[t]\centering\small",
        rf"\caption{{{_tex(runs.caption(table))}}}",
        # With the paper's numbers beside those of a run, most tables are wider than a page.
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{@{{}}{kinds}@{{}}}}", r"\toprule", heads, r"\midrule", *rows, r"\bottomrule",
        r"\end{tabular}}", r"\end{table}", "",
    ])  # fmt: skip


def _tex(text: str) -> str:
    """Return text escaped for LaTeX, with minus signs and the paper's symbols."""
    symbols = {"↓": r"$\downarrow$", "↑": r"$\uparrow$", "Δ": r"$\Delta$", "–": "--", "×": r"$\times$"}
    symbols |= {"√": r"$\surd$", "γ": r"$\gamma$", "α": r"$\alpha$"}
    written = "".join(symbols.get(c, latex_text(c)) for c in text)
    written = re.sub(r"T\\_([fr])\b", r"$T_\1$", written)
    return re.sub(r"(^|[\[ ])-(?=\d)", r"\1$-$", written)


def as_html(tables: Iterable[Mapping[str, Any]], runs: Runs) -> str:
    """Return all tables as one HTML page."""
    parts = []
    for table in tables:
        heads, *rows = (
            "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in line) + "</tr>"
            for tag, line in zip(["th"] + ["td"] * len(table["rows"]), _lines(table, runs), strict=True)
        )
        words = escape(f"Table {table['name']}. {runs.caption(table)}")
        parts.append(f"<table><caption>{words}</caption><thead>{heads}</thead>{''.join(rows)}</table>")
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
    """Return as CSV each result printed in the paper, its value in a run, and their comparison."""
    heads = "study run deviations task method against metric paper paper_low paper_high value low high"
    heads += " difference same_sign intervals_overlap equal source"
    rows: list[Sequence[Any]] = [heads.split()]
    what = {study: (run["heading"], "; ".join(run["deviations"])) for study, run in runs.results.items()}
    for key, paper in runs.paper.items():
        number = runs.numbers.get(key)
        compared: list[Any] = [None] * 7
        if number is not None:
            (value, low, high), (printed, printed_low, printed_high) = number, paper
            overlap = None
            if low is not None and high is not None and printed_low is not None and printed_high is not None:
                overlap = low <= printed_high and printed_low <= high
            sign = value * printed > 0 if key[3] and value else None  # 0 has none
            compared = [*number, value - printed, sign, overlap, None]
        rows.append([key[0], *what.get(key[0], ("", "")), *key[1:], *paper, *compared, "paper's text"])
    for (study, fact), (expected, source) in FACTS.items():
        ran = runs.results[study]["protocol"].get(fact) if study in runs.results else None
        equal = None if ran is None else str(ran) == expected
        row = [study, *what.get(study, ("", "")), "", "", "", fact, expected, None, None, ran]
        rows.append([*row, None, None, None, None, None, equal, source])
    return csv_lines(rows)
