"""A study's files: tables, figures, reports and provenance."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, fields
from html import escape
from pathlib import Path
from typing import Any

from .._common.files import claim, csv_cell, csv_lines, write_atomically
from ..audit import Estimate
from ..audit.report.pieces import bullets, plain_table
from ..audit.store import key_of, versions
from ..audit.words import label
from .config import presets
from .paper import write_paper
from .recordings import reader_versions
from .rows import Row, contrasts, estimates, slug
from .run import StudyResult

SIMULATED = (
    "These recordings are simulated, and so is every number of this run. The paper's values are of its "
    "recordings and its encoder; they are shown to compare patterns, not as numbers to be reproduced."
)


def write_results(result: StudyResult, folder: Path, *, command: str = "") -> Path:
    """Write tables, figures, reports and provenance; return the path of the (first) report.

    Parameters
    ----------
    result : StudyResult
    folder : path
        New, empty or written by an earlier run. Equal results give equal files.
    command : str
        How the study was run, for the record.
    """
    rows, differences = list(estimates(result)), list(contrasts(result))
    texts = {
        "provenance.json": _json(provenance(result, command)),
        "table.csv": _csv(rows, result),
        "contrasts.csv": _csv(differences, result),
        "participants.csv": _participants(result),
        "results.json": _json(as_json(result, rows, differences)),
    }
    for name, text in texts.items():
        write_atomically(claim(folder, name)[0], text.encode())
    folder = Path(folder)
    if result.study.name in presets():
        write_paper([folder], folder / "paper", all_tables=False)
    reports = {task: f"report-{slug(task)}.html" if task else "report.html" for task in result.audits}
    paths = dict(zip(reports, claim(folder, *reports.values()), strict=True))
    for task, audit in result.audits.items():
        if not task:
            audit.figures(folder / "figures")
        title = result.study.title + (f": {task}" if task else "")
        audit.report(paths[task], title, sections=_sections(result, task, reports))
    return next(iter(paths.values()))


def as_json(result: StudyResult, rows: list[Row], differences: list[Row]) -> dict[str, Any]:
    """Return everything that was measured, with the settings it was measured with, as JSON can hold it."""
    return {
        "study": result.study.name,
        "heading": result.heading,
        "deviations": result.deviations,
        "simulated": result.files == "simulated",
        "settings": result.settings,
        "digest": result.digest,
        "protocol": protocol(result),
        "facts": facts_of(result),
        "estimates": [asdict(row) | {"difference": row.difference} for row in rows],
        "contrasts": [asdict(row) | {"difference": row.difference} for row in differences],
        "selection": result.selection,
        "omitted": result.omitted,
    }


def protocol(result: StudyResult) -> dict[str, str]:
    """Return facts that a reproduction has exactly: roles, rows, ranks, what was selected or not attained."""
    from ..audit.readers import SEED

    audit = next(iter(result.audits.values()))
    gated = [
        audit[name]
        for name, method in result.study.methods.items()
        if method.gate == "measurement" and name in audit.methods and "gate_basis" in audit[name].facts[0]
    ]
    ranks = [int(fact["gate_basis"].shape[1]) for fact in gated[0].facts[:: gated[0].n_fits]] if gated else []
    if not gated and isinstance(result.study.gate.rank, int):
        ranks = [result.study.gate.rank]
    roles, counts = ("FIT", "VAL", "HEAD", "EVAL"), audit.settings["rows"]
    facts = {
        "ranks": ", ".join(map(str, ranks)),
        "participants": ", ".join(
            "/".join(str(split.get(role, 0)) for role in roles) for split in result.splits
        ),
        "evaluated": str(len(audit["identity"].participants)),
        "features": " × ".join(map(str, audit.settings["features"])),
        "rows": "/".join(str(counts.get(role, 0)) for role in roles),
        "events": "/".join(str(counts.get(role, 0) // 2) for role in roles),
        "reader seed": str(SEED),
    }
    for name, (missed, fits) in audit.settings.get("unattained", {}).items():
        facts[f"unattained {name}"] = f"{missed} of {fits}"
    for name, chosen in result.selection.items():
        points = [fit.get("n_stages", fit["strength"]) for fit in chosen["fits"]]
        facts[f"selected {name}"] = ", ".join(f"{point:g}" for point in points)
    return facts


def facts_of(result: StudyResult) -> dict[str, Any]:
    """Return facts about the run under the names that the paper's tables 4 to 6 use."""
    from ..audit.bootstrap import DRAWS, SEED
    from ..audit.readers import SHRINKAGE
    from ..critics import HIDDEN_WIDTH
    from ..networks import AdamW

    study, exact, adam = result.study, protocol(result), AdamW(1e-3)
    facts: dict[str, Any] = {}
    for kind in ("closed_form_mgpa", "iterative_mgpa"):
        methods = [m for m in result.settings["methods"].values() if m["method"] == kind]
        facts |= {f"{kind}.{key}": value for m in methods[:1] for key, value in m["parameters"].items()}
    facts |= {f"readers.{key}": value for key, value in result.settings["readers"].items()}
    if " × " in exact["features"] and study.reuse is None:
        facts["token readers"] = "raw and standardized linear, flat GELU, token network"
    encoder = (next(iter(result.tables.values()), {}).get("encoder") or {}).get("name", "as given")
    budgets = sorted({m.budget for m in study.methods.values() if m.budget is not None})
    return facts | {
        "seeds": list(study.seeds),
        "logistic solver": "converged Newton" if result.device.startswith("cuda") else "lbfgs",
        "hidden width": HIDDEN_WIDTH,
        "optimizer": "AdamW",
        "batch": adam.batch_size,
        "weight decay": adam.weight_decay,
        "bootstrap draws": DRAWS,
        "bootstrap seed": SEED,
        "whitening shrinkage": SHRINKAGE,
        "protocol": (
            f"{result.heading}: recordings {result.files}; {exact['features']} features ({encoder}, weights "
            f"{result.weights:.12}); gamma {study.endpoints.gamma:g}; gate rank or energy {study.gate.rank}, "
            f"ranks {exact['ranks'] or 'unknown'}; participants {exact['participants']}, "
            f"{exact['evaluated']} EVAL; VAL budgets {budgets or 'none'}"
            + (f"; first {study.reuse.calibration} events calibrate" if study.reuse else "")
        ),
    }


def provenance(result: StudyResult, command: str) -> dict[str, Any]:
    """Return what the numbers depend on: study, files, versions, machine; not when it was run."""
    readers = reader_versions() if result.study.data.kind != "table" else {}
    return {
        "command": command,
        "heading": result.heading,
        "deviations": result.deviations,
        "study": result.settings,
        "digest": result.digest,
        "weights": result.weights,
        "data": {
            "are": result.files,
            "sha256": key_of(dict(sorted(result.checksums.items()))),
            "files": result.checksums,
        },
        "tables": result.tables,
        "versions": {"python": platform.python_version(), **versions(), **readers},
        "machine": {"system": platform.system(), "processor": platform.machine()},
        "device": result.device,
        "rows": {task: audit.settings["rows"] for task, audit in result.audits.items()},
    }


def _csv(rows: list[Row], result: StudyResult) -> str:
    header = [*(field.name for field in fields(Row)), "difference", "run", "deviations"]
    run = result.heading, "; ".join(result.deviations)
    return csv_lines([header, *([*asdict(row).values(), row.difference, *run] for row in rows)])


def _participants(result: StudyResult) -> str:
    import pandas

    frames = [audit.participants().assign(task=task) for task, audit in result.audits.items()]
    return str(pandas.concat(frames).map(csv_cell).to_csv(index=False))


def _json(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, default=str) + "\n"


def _sections(result: StudyResult, task: str, reports: dict[str, str]) -> list[tuple[str, str, str]]:
    """Return what a study adds to the report of an audit."""
    study = result.study
    lines = [study.description] if study.about else []
    lines += [SIMULATED] if result.files == "simulated" else []
    if result.deviations:
        lines.append(f"{result.heading}, not a reproduction: {'; '.join(result.deviations)}.")
    lines += [f"{name} is left out: {why}." for name, why in result.audits[task].settings["omitted"].items()]
    parts = [bullets(lines)] if lines else []
    others = [other for other in reports if other != task]
    if others:
        links = ", ".join(f'<a href="{escape(reports[t])}">{escape(t)}</a>' for t in others)
        parts.append(f"<p>The same maps on other tasks: {links}.</p>")
    if result.selection:
        parts.append(_selection(result.selection))
    for caption, rows in (
        ("Differences that the study is about", contrasts(result)),
        ("Beside the paper's values", estimates(result)),
    ):
        compared = [row for row in rows if row.task == task and (row.against or row.paper is not None)]
        if compared:
            parts.append(_beside(compared, caption, result.heading))
    return [("study", "The study", "\n".join(parts))]


def _beside(rows: list[Row], caption: str, whose: str) -> str:
    """Return a line for every method or difference, and a column a metric: the run's, then the paper's."""
    metrics = list(dict.fromkeys(row.metric for row in rows))
    lines: dict[str, dict[str, str]] = {}
    for row in rows:
        name = label(row.method) + (f" − {label(row.against)}" if row.against else "")
        sign = "+" if row.against else ""
        text = f"{row.estimate:{sign}.3f}"
        if row.paper is not None:
            paper = f"{Estimate(row.paper, row.paper_low or 0.0, row.paper_high or 0.0):{sign}.3f}"
            text += f" ◇ {paper if row.paper_low is not None else paper.partition(' ')[0]}"
        lines.setdefault(name, {})[row.metric] = text.replace("-", "−")
    head = ["Difference" if rows[0].against else "Method", *metrics]
    caption = f"{caption}: {whose}, with 95 % intervals; after ◇, what the paper prints."
    return plain_table(
        head, [[n, *(line.get(m, "–") for m in metrics)] for n, line in lines.items()], caption
    )


def _selection(selection: dict[str, Any]) -> str:
    rows = []
    for name, chosen in selection.items():
        recipe = ", ".join(f"{k} {v}" for k, v in chosen["recipe"].items()) or "–"
        points = [f"{fit['n_stages']} stages" if "n_stages" in fit else f"× {fit['strength']:g}"
                  for fit in chosen["fits"]]  # fmt: skip
        worst = ", ".join(f"{fit['worst']:.3f}" for fit in chosen["fits"])
        rows.append([label(name), recipe, ", ".join(points), worst, chosen["candidates"]])
    head = ["Method", "Recipe", "How much of it", "Worst AUROC on development participants", "Recipes fitted"]
    return plain_table(head, rows, "Chosen on development participants")
