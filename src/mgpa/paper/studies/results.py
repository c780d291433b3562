"""Compare a study's numbers with the paper's, and write tables, figures, reports and provenance."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from ..._common.files import claim, csv_cell, csv_lines, write_atomically
from ...audit import Audit, Estimate, estimate
from ...audit.metrics import METRICS
from ...audit.report import bullets, plain_table
from ...audit.store import key_of, versions
from ...audit.words import label
from .recordings import reader_versions
from .run import StudyResult

#: Columns of the CSV files. ``fit_low`` and ``fit_high`` are the extremes over single fits of a method.
HEADS = (
    *("task", "method", "against", "metric", "value", "low", "high", "paper", "paper_low", "paper_high"),
    *("fit_low", "fit_high", "difference"),
)

SIMULATED = (
    "These recordings are simulated, and so is every number of this run. The paper's values come from real "
    "recordings and another encoder; they are shown to compare patterns, not as numbers to be reproduced."
)


def estimates(result: StudyResult) -> Iterator[dict[str, Any]]:
    """Yield each metric of each method, with the paper's value if it has one."""
    # Also list the parts of S and, in reuse studies, the parts of the worst association.
    wholes = ("worst", "S") if result.study.reuse is not None else ("S",)
    parts = [name for whole in wholes for name, metric in METRICS.items() if metric.part_of == whole]
    for task, audit in result.audits.items():
        directions = [f"{t} {way}" for t in ("T_f", "T_r") for way in audit["identity"].directions]
        for name, values in audit.estimates.items():
            more = {m: audit[name].estimate(m) for m in (*parts, *directions) if audit[name].has(m)}
            for metric, e in (values | more).items():
                paper = result.study.paper.get(name, {}).get(f"{task} {metric}".strip())
                yield _row((task, name, "", metric), e, (paper, None, None), _fit_range(audit, name, metric))


def contrasts(result: StudyResult) -> Iterator[dict[str, Any]]:
    """Yield each declared contrast, with the paper's value if it has one."""
    for task, audit in result.audits.items():
        for plan in result.study.contrasts:
            if not {plan.a, plan.b} <= set(audit.methods):  # one of them was left out
                continue
            for metric in plan.metrics:
                if audit[plan.a].has(metric) and audit[plan.b].has(metric):
                    e = audit.contrast(plan.a, plan.b, metric)
                    paper = plan.paper.get(f"{task} {metric}".strip(), (None, None, None))
                    yield _row((task, plan.a, plan.b, metric), e, paper)


def _row(names: tuple[str, ...], e: Estimate, paper: Any, fits: Any = (None, None)) -> dict[str, Any]:
    difference = None if paper[0] is None else e.value - paper[0]
    return dict(zip(HEADS, (*names, e.value, e.low, e.high, *paper, *fits, difference), strict=True))


def _fit_range(audit: Audit, name: str, metric: str) -> tuple[float | None, float | None]:
    """Return the range of a metric over the fits of a method, or (None, None) for a single fit."""
    statistic, values = audit[name].values(metric)
    if len(values) < 2:
        return None, None
    single = [float(estimate(values[i : i + 1], statistic).value) for i in range(len(values))]
    return min(single), max(single)


def write_results(result: StudyResult, folder: Path, *, command: str = "") -> list[Path]:
    """Write the tables, figures, reports and provenance of a study; return the paths of the reports.

    Parameters
    ----------
    result : StudyResult
    folder : path
        Output folder; it must be new, empty, or written by an earlier run. Equal results give equal files.
        With several tasks, each task has its own report and folder of figures.
    command : str
        The command that ran the study, for the record.
    """
    import pandas

    from ...audit.plots import draw_all, save_figures

    people = [audit.participants().assign(task=task) for task, audit in result.audits.items()]
    rows, differences = list(estimates(result)), list(contrasts(result))
    texts = {
        "provenance.json": _json(provenance(result, command)),
        "table.csv": _csv(rows, result),
        "contrasts.csv": _csv(differences, result),
        "participants.csv": str(pandas.concat(people).map(csv_cell).to_csv(index=False)),
        "results.json": _json(
            {
                "study": result.study.name,
                "heading": result.heading,
                "deviations": result.deviations,
                "settings": result.settings,
                "digest": result.digest,
                "protocol": protocol(result),
                "facts": facts_of(result),
                "estimates": rows,
                "contrasts": differences,
                "selection": result.selection,
                "omitted": result.omitted,
            }
        ),
    }
    for name, text in texts.items():
        write_atomically(claim(folder, name)[0], text.encode())
    folder = Path(folder)
    slugs = {task: "".join(c if c.isalnum() else "-" for c in task) for task in result.audits}
    reports = {task: f"report-{slug}.html" if task else "report.html" for task, slug in slugs.items()}
    paths = dict(zip(reports, claim(folder, *reports.values()), strict=True))
    for task, audit in result.audits.items():
        figures, place = draw_all(audit), f"figures/{slugs[task]}".rstrip("/")
        claim(folder, *(f"{place}/{name}.{kind}" for name in figures for kind in ("pdf", "svg", "png")))
        save_figures(figures, folder / place)
        title = result.study.title + (f": {task}" if task else "")
        audit.report(paths[task], title, sections=_sections(result, task, reports))
    return list(paths.values())


def protocol(result: StudyResult) -> dict[str, str]:
    """Return facts that a reproduction must match: roles, rows, ranks, selected recipes, missed budgets."""
    audit = next(iter(result.audits.values()))
    roles, counts = ("FIT", "VAL", "HEAD", "EVAL"), audit.settings.rows
    facts = {
        "ranks": ", ".join(map(str, _ranks(result, audit))),
        "participants": ", ".join(
            "/".join(str(split.get(role, 0)) for role in roles) for split in result.splits
        ),
        "evaluated": str(len(audit["identity"].participants)),
        "features": " × ".join(map(str, audit.settings.features)),
        "rows": "/".join(str(counts.get(role, 0)) for role in roles),
        "events": "/".join(str(counts.get(role, 0) // 2) for role in roles),
        "reader seed": str(result.study.readers.seed),
    }
    for name, (missed, fits) in audit.settings.unattained.items():
        facts[f"unattained {name}"] = f"{missed} of {fits}"
    facts |= {name: str(count) for name, count in result.counts.items()} | _gate_cells(result, audit)
    for name, chosen in result.selection.items():
        points = [fit.get("n_stages", fit["strength"]) for fit in chosen["fits"]]
        facts[f"selected {name}"] = ", ".join(f"{point:g}" for point in points)
    return facts


def _ranks(result: StudyResult, audit: Audit) -> list[int]:
    """Return the rank of the measurement gate in each split, taken from the first gated method."""
    for name, method in result.study.methods.items():
        if method.gate == "measurement" and name in audit.methods and "gate_basis" in audit[name].facts[0]:
            return [int(fact["gate_basis"].shape[1]) for fact in audit[name].facts[:: audit[name].n_fits]]
    planned = result.study.gate.rank
    return [planned] if isinstance(planned, int) else []


def _gate_cells(result: StudyResult, audit: Audit) -> dict[str, str]:
    """Return the number of fits that can move rows by each movement budget at which gates are compared.

    These include Identity, as one fit for each seed and split.
    """
    methods = result.study.methods.values()
    cells = {}
    for budget in sorted({m.budget for m in methods if m.gate != "measurement" and m.budget is not None}):
        names = [name for name, method in result.study.methods.items() if method.budget == budget]
        counts = (audit.settings.unattained[name] for name in names)
        attained = sum(fits - missed for missed, fits in counts)
        identity = len(result.study.seeds) * len(result.splits)
        cells[f"cells at {f'{budget:.2f}'.lstrip('0')}"] = str(attained + identity)
    return cells


def facts_of(result: StudyResult) -> dict[str, Any]:
    """Return facts about the run, named as in the paper's tables 4 to 6."""
    from ...audit.draws import DRAWS, SEED
    from ...audit.readers import SHRINKAGE
    from ...critics import HIDDEN_WIDTH
    from ...networks import BATCH_SIZE, WEIGHT_DECAY

    study, exact = result.study, protocol(result)
    facts: dict[str, Any] = {}
    for kind in ("closed_form_mgpa", "iterative_mgpa"):
        methods = [m for m in result.settings["methods"].values() if m["method"] == kind]
        facts |= {f"{kind}.{key}": value for m in methods[:1] for key, value in m["parameters"].items()}
    facts |= {f"readers.{key}": value for key, value in result.settings["readers"].items()}
    if " × " in exact["features"] and study.reuse is None:
        facts["direct token readers"] = "raw and standardized linear, flat GELU, token network"
        facts["residual token readers"] = "standardized linear, token network"
    newton = result.device.startswith("cuda") and "lbfgs" not in facts.get("iterative_mgpa.critics", ())
    return facts | {
        "seeds": list(study.seeds),
        "logistic solver": "converged Newton" if newton else "lbfgs",
        "hidden width": HIDDEN_WIDTH,
        "optimizer": "AdamW",
        "batch": BATCH_SIZE,
        "weight decay": WEIGHT_DECAY,
        "bootstrap draws": DRAWS,
        "bootstrap seed": SEED,
        "whitening shrinkage": SHRINKAGE,
        "protocol": _protocol_words(result, exact),
    }


def _protocol_words(result: StudyResult, exact: dict[str, str]) -> str:
    """Return one sentence that describes the run, for a cell of the paper's tables."""
    study = result.study
    encoder = (next(iter(result.tables.values()), {}).get("encoder") or {}).get("name", "as given")
    weights = result.weights if result.weights.startswith("random") else f"weights {result.weights:.12}"
    budgets = sorted({m.budget for m in study.methods.values() if m.budget is not None})
    words = (
        f"{result.heading}: recordings {result.files}; {exact['features']} features ({encoder}, "
        f"{weights}); gamma {study.endpoints.gamma:g}; gate rank or energy {study.gate.rank}, "
        f"ranks {exact['ranks'] or 'unknown'}; participants {exact['participants']}, "
        f"{exact['evaluated']} EVAL; VAL budgets {budgets or 'none'}"
    )
    return words + (f"; first {study.reuse.calibration} events calibrate" if study.reuse else "")


def provenance(result: StudyResult, command: str) -> dict[str, Any]:
    """Return the provenance of the numbers: study, files, versions and machine, without dates."""
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
        "rows": {task: audit.settings.rows for task, audit in result.audits.items()},
    }


def _csv(rows: list[dict[str, Any]], result: StudyResult) -> str:
    run = result.heading, "; ".join(result.deviations)
    return csv_lines([[*HEADS, "run", "deviations"], *([*row.values(), *run] for row in rows)])


def _json(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, default=str) + "\n"


def _sections(result: StudyResult, task: str, reports: dict[str, str]) -> list[tuple[str, str, str]]:
    """Return the sections that a study adds to the report of an audit."""
    lines = _about(result, task)
    parts = [bullets(lines)] if lines else []
    others = [other for other in reports if other != task]
    if others:
        links = ", ".join(f'<a href="{escape(reports[t])}">{escape(t)}</a>' for t in others)
        parts.append(f"<p>The same maps on other tasks: {links}.</p>")
    differences = _differences(result, task)
    if differences:
        metrics = list(dict.fromkeys(metric for line in differences.values() for metric in line))
        rows = [[name, *(line.get(m, "–") for m in metrics)] for name, line in differences.items()]
        caption = (
            f"Declared contrasts of the study: {result.heading}, with 95 % intervals; the paper's values "
            "follow ◇."
        )
        parts.append(plain_table(["Difference", *metrics], rows, caption))
    return [("study", "The study", "\n".join(parts))]


def _about(result: StudyResult, task: str) -> list[str]:
    """Return lines on the study, the run's deviations, and its omitted or selected methods."""
    study = result.study
    lines = [study.description] if study.about else []
    lines += [SIMULATED] if result.files == "simulated" else []
    if result.deviations:
        lines.append(f"{result.heading}, not a reproduction: {'; '.join(result.deviations)}.")
    lines += [f"{name} is left out: {why}." for name, why in result.audits[task].settings.omitted.items()]
    for name, chosen in result.selection.items():
        recipe = ", ".join(f"{key} {value}" for key, value in chosen["recipe"].items())
        kind = "stages" if "n_stages" in chosen["fits"][0] else "strength"
        points = ", ".join(f"{fit.get('n_stages', fit['strength']):g}" for fit in chosen["fits"])
        lines.append(f"Development participants selected {name}: {kind} {points}{recipe and f' ({recipe})'}.")
    return lines


def _differences(result: StudyResult, task: str) -> dict[str, dict[str, str]]:
    """Return the declared contrasts of a task by name and metric, with the paper's values."""
    differences: dict[str, dict[str, str]] = {}
    for row in (row for row in contrasts(result) if row["task"] == task):
        printed = [row[key] for key in ("paper", "paper_low", "paper_high") if row[key] is not None]
        digits = max([3, *(len(repr(x).partition(".")[2]) for x in printed)])  # as many as in the paper
        text = f"{Estimate(row['value'], row['low'], row['high']):+.{digits}f}"
        if printed:
            text += f" ◇ {Estimate(*printed):+.{digits}f}"
        name = f"{label(row['method'])} − {label(row['against'])}"
        differences.setdefault(name, {})[row["metric"]] = text.replace("-", "−")
    return differences
