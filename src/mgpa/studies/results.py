"""A study's files: tables, figures, reports and provenance."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, fields
from html import escape
from pathlib import Path
from typing import Any

from .._common.csv_text import csv_cell, csv_lines
from .._common.files import write_atomically
from ..audit import Estimate
from ..audit.metrics import find_metric
from ..audit.report.pieces import brackets, bullets, plain_table, printed, scrolling, subscript, with_interval
from ..audit.report.tables import latex_text
from ..audit.store import versions
from ..audit.words import label
from .config import presets
from .figures import save_study_figures
from .paper import write_paper
from .recordings import checksum_of, reader_versions
from .rows import Row, contrasts, estimates, slug
from .run import StudyResult

SIMULATED = (
    "These recordings are simulated, and so is every number of ours here. The paper's values are of its "
    "recordings and its encoder; they are shown to compare patterns, not as numbers to be reproduced."
)


def write_results(result: StudyResult, folder: Path, *, command: str = "") -> Path:
    """Write tables, figures, reports and provenance; return the path of the (first) report.

    Parameters
    ----------
    result : StudyResult
    folder : path
        Made if it is not there. Equal results give equal files.
    command : str
        How the study was run, for the record.
    """

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "provenance.json", _json(provenance(result, command)))
    rows, differences = list(estimates(result)), list(contrasts(result))
    write_atomically(folder / "table.csv", _csv(rows))
    write_atomically(folder / "contrasts.csv", _csv(differences))
    write_atomically(folder / "table.tex", latex(rows).encode())
    write_atomically(folder / "contrasts.tex", latex(differences).encode())
    write_atomically(folder / "participants.csv", _participants(result))
    write_atomically(folder / "results.json", _json(as_json(result, rows, differences)))
    save_study_figures(result, folder / "figures")
    if result.study.name in presets():
        write_paper([folder], folder / "paper", all_tables=False)
    reports = {
        task: folder / (f"report-{slug(task)}.html" if task else "report.html") for task in result.audits
    }
    for task, audit in result.audits.items():
        if not task:
            audit.figures(folder / "figures")
        title = result.study.title + (f": {task}" if task else "")
        audit.report(reports[task], title, sections=_sections(result, task, reports))
    return next(iter(reports.values()))


def as_json(result: StudyResult, rows: list[Row], differences: list[Row]) -> dict[str, Any]:
    """Return everything that was found, as JSON can hold it."""
    return {
        "study": result.study.name,
        "simulated": result.study.simulated,
        "protocol": _protocol(result),
        "estimates": [asdict(row) | {"difference": row.difference} for row in rows],
        "contrasts": [asdict(row) | {"difference": row.difference} for row in differences],
        "selection": result.selection,
        "omitted": result.omitted,
    }


def _protocol(result: StudyResult) -> dict[str, Any]:
    """Return who took which part, how wide the embeddings are, and the rank of every split's gate."""
    audit = next(iter(result.audits.values()))
    gated = [
        audit[name]
        for name, method in result.study.methods.items()
        if method.gate == "measurement" and name in audit.methods and "gate_basis" in audit[name].facts[0]
    ]
    ranks = [int(fact["gate_basis"].shape[1]) for fact in gated[0].facts[:: gated[0].n_fits]] if gated else []
    if not gated and isinstance(result.study.gate.rank, int):
        ranks = [result.study.gate.rank]
    said = next(iter(result.tables.values()), {}).get("encoder") or {}
    return {
        "participants": audit.settings["participants"],
        "features": audit.settings["features"],
        "encoder": said.get("name", "unnamed"),
        "ranks": ranks,
    }


def provenance(result: StudyResult, command: str) -> dict[str, Any]:
    """Return what the numbers depend on: study, files, versions, machine; not when it was run."""
    study = result.study.model_dump(mode="json")
    for name in ("folder", "table"):  # which files they were is told by their checksums
        if study["data"][name] is not None:
            study["data"][name] = Path(study["data"][name]).name
    if study["encoder"] is not None and study["encoder"]["checkpoint"] is not None:
        study["encoder"]["checkpoint"] = Path(study["encoder"]["checkpoint"]).name
    first = next(iter(result.audits.values()))
    readers = reader_versions() if result.study.data.kind != "table" else {}
    return {
        "command": command,
        "study": study,
        "data": {"sha256": checksum_of(result.checksums), "files": result.checksums},
        "tables": result.tables,
        "versions": {"python": platform.python_version(), **versions(), **readers},
        "machine": {"system": platform.system(), "processor": platform.machine()},
        "device": first.settings["device"],
        "rows": {task: audit.settings["rows"] for task, audit in result.audits.items()},
    }


def latex(rows: list[Row]) -> str:
    """Return rows as a table of some pages: a line for every method, or difference, and metric."""
    lines = [
        r"% needs \usepackage{booktabs,longtable}",
        r"{\footnotesize\setlength{\tabcolsep}{4pt}",
        r"\begin{longtable}{@{}llrlrr@{}}",
        r"\toprule",
        r"Method & Metric & Ours & 95\% interval & Paper & Difference \\",
        r"\midrule",
        r"\endhead",
    ]
    for row in rows:
        sign = "+" if row.against else ""
        name = latex_text(_name(row))
        value, _, interval = f"{row.estimate:{sign}.3f}".partition(" ")
        paper = "--" if row.paper is None else f"{row.paper:{sign}.3f}"
        difference = "--" if row.difference is None else f"{row.difference:+.3f}"
        cells = [name, latex_text(row.metric), value, interval, paper, difference]
        lines.append(
            " & ".join(cell.replace("-0.", "$-$0.").replace("-.", "$-$.") for cell in cells) + r" \\"
        )
    return "\n".join([*lines, r"\bottomrule", r"\end{longtable}}", ""])


def _name(row: Row) -> str:
    name = label(row.method) + (f" minus {label(row.against)}" if row.against else "")
    return f"{row.task}: {name}" if row.task else name


def _csv(rows: list[Row]) -> bytes:
    header = [*(field.name for field in fields(Row)), "difference"]
    return csv_lines([header, *([*asdict(row).values(), row.difference] for row in rows)]).encode()


def _participants(result: StudyResult) -> bytes:
    import pandas

    frames = [audit.participants().assign(task=task) for task, audit in result.audits.items()]
    text: str = pandas.concat(frames).map(csv_cell).to_csv(index=False)
    return text.encode()


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False, default=str) + "\n").encode()


def _sections(result: StudyResult, task: str, reports: dict[str, Path]) -> list[tuple[str, str, str]]:
    """Return what a study adds to the report of an audit."""
    study = result.study
    said = [study.about] if study.about else []
    said += [SIMULATED] if study.simulated else []
    said += [f"{name} is left out: {why}." for name, why in result.audits[task].settings["omitted"].items()]
    parts = [bullets(said)] if said else []
    others = [other for other in reports if other != task]
    if others:
        links = ", ".join(f'<a href="{escape(reports[t].name)}">{escape(t)}</a>' for t in others)
        parts.append(f"<p>The same maps on other tasks: {links}.</p>")
    if result.selection:
        parts.append(_selection(result.selection))
    for caption, rows in (
        ("Differences that the study is about", contrasts(result)),
        ("Beside the paper's values", estimates(result)),
    ):
        mine = [row for row in rows if row.task == task and (row.against or row.paper is not None)]
        if mine:
            parts.append(_beside(mine, caption))
    return [("study", "The study", "\n".join(parts))]


def _beside(rows: list[Row], caption: str) -> str:
    """Return a line for every method, or difference of two, and a column a metric: ours, then the paper's."""
    caption += ", with 95 % intervals" + (
        "; after ◇, what the paper prints." if any(row.paper is not None for row in rows) else "."
    )
    metrics = list(dict.fromkeys(row.metric for row in rows))
    lines: dict[str, dict[str, Row]] = {}
    for row in rows:
        name = label(row.method) + (f" − {label(row.against)}" if row.against else "")
        lines.setdefault(name, {})[row.metric] = row
    head = "".join(
        f'<th scope="col">{subscript(m)}<span class="hint">{escape(find_metric(m).subject)}</span></th>'
        for m in metrics
    )
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f"<td>{_cell(line[m]) if m in line else '–'}</td>" for m in metrics)
        + "</tr>"
        for name, line in lines.items()
    )
    first = "Difference" if rows[0].against else "Method"
    table = f'<thead><tr><th scope="col">{first}</th>{head}</tr></thead><tbody>{body}</tbody>'
    return scrolling(caption, f"<table><caption><span>{escape(caption)}</span></caption>{table}</table>")


def _cell(row: Row) -> str:
    """Return a number of ours with its interval and, below, the paper's."""
    sign = bool(row.against)
    text = f'{printed(row.value, 3, sign)}<span class="ci">{brackets(row.estimate, 3, sign)}</span>'
    if row.paper is None:
        return text
    paper = printed(row.paper, 3, sign)
    if row.paper_low is not None and row.paper_high is not None:
        paper = with_interval(Estimate(row.paper, row.paper_low, row.paper_high), 3, sign)
    return f'{text}<span class="paper">◇ {paper}</span>'


def _selection(selection: dict[str, Any]) -> str:
    rows = []
    for name, chosen in selection.items():
        recipe = ", ".join(f"{k} {v}" for k, v in chosen["recipe"].items()) or "–"
        points = [f"{fit.get('n_stages')} stages" if "n_stages" in fit else f"× {fit['strength']:g}"
                  for fit in chosen["fits"]]  # fmt: skip
        worst = ", ".join(f"{fit['worst']:.3f}" for fit in chosen["fits"])
        rows.append([label(name), recipe, ", ".join(points), worst, chosen["candidates"]])
    head = ["Method", "Recipe", "How much of it", "Worst AUROC on development people", "Recipes fitted"]
    return plain_table(head, rows, "What development people chose")
