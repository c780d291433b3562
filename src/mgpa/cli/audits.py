"""Commands that measure what corrections do."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, validators

from .._common.files import claim, write_atomically
from .._common.progress import waiting
from .._common.remote import as_place, is_address
from .application import (
    AS_IT_IS,
    AnyPlace,
    AsJson,
    Folder,
    Names,
    Rank,
    Seeds,
    TableOptions,
    Tokens,
    UserError,
    app,
    show,
    with_rank,
    with_tokens,
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """How an audit measures.

    Parameters
    ----------
    seeds
        Fits of methods that draw random numbers.
    rank
        For MGPA: directions in the gate (3), the share of contrast energy they hold (0.9), or auto.
    tokens
        As in `mgpa fit`, for all methods; stored maps know how they take tokens.
    budget
        Compare at this relative movement of the VAL rows instead of with complete maps.
    association
        A source and the label it is associated with in the HEAD rows that the shortcut head (metric
        `worst`) learns from; by default as in the FIT rows.
    folds
        Rotate roles over this many folds, so that each participant is EVAL once; 1 keeps the table's roles.
        By default five where fewer than twelve participants are EVAL, or the table has no roles, if
        possible; with three to seven participants, one fold each.
    task
        What labels are; by default numbers of which there are many are a quantity.
    jobs
        Cells at a time.
    readers
        Which readers try to read the source: `full`, or `paper` for the paper's eleven alone.
    quick
        One reader network and 12 epochs: a preliminary look.
    """

    seeds: Seeds = (17, 29, 43)  # type: ignore[assignment]
    rank: Rank = None
    tokens: Tokens = "mean"
    budget: float | None = None
    association: tuple[str, str] | None = None
    folds: int | None = None
    task: Literal["classification", "regression"] | None = None
    jobs: int = 1
    readers: Literal["full", "paper"] = "full"
    quick: bool = False


@app.command
def audit(
    table: AnyPlace,
    *,
    out: Folder,
    methods: Names = [],  # noqa: B006
    against: str | None = None,
    cache: Annotated[Path | None, Parameter(validator=validators.Path(file_okay=False))] = None,
    options: AuditOptions = AuditOptions(),
    reading: TableOptions = AS_IT_IS,
    require: str | None = None,
    verbose: Annotated[bool, Parameter(negative="")] = False,
    open_: Annotated[bool, Parameter(name="--open", negative="")] = False,
    json_: AsJson = False,
) -> None:
    """Measure what corrections do, on participants they were not fitted on, and write a report.

    Example: mgpa audit recordings.parquet --out audit --methods leace mgpa iterative_mgpa

    Parameters
    ----------
    table
        With source and participant columns; label for task utility, pair_id for pairs. Roles rotate over
        folds if the table has none. Also by an address (s3://…, gs://…, https://…, hf://…).
    out
        Folder for report.html, table.csv, table.tex and figures.
    methods
        Names (`mgpa methods`) or stored maps (*.safetensors); by default leace, and mgpa if there are pairs.
    against
        Also write how the others differ from this method, with paired intervals: contrasts.csv and .tex.
    cache
        Folder of finished cells; by default inside the output folder. Running again continues there.
    require
        What every method must reach, such as "S<=.6 and loss<=.01"; otherwise the exit status is 1.
    verbose
        Print every column and every sentence; the report has them anyway.
    open_
        Open the report in a browser when it is written.
    """
    from ..audit.plots import draw_all, save_figures
    from ..audit.report import contrast_csv, latex_table
    from ..audit.verdict import findings, read_requirement, text, unmet

    names = {"identity", *_named(methods or ["leace", "mgpa"])}
    if against is not None and against not in names:
        raise UserError(f"--against is {against!r}; choose one of {', '.join(sorted(names))}.")
    read_requirement(require or "S<=1")  # before anything is computed
    result = run_audit(reading.open(table), out, methods, options, cache)

    with waiting("audit: drawing figures"):
        drawn = draw_all(result)
        save_figures(drawn, out / "figures", ("pdf", "svg"), verbose=True)
    with waiting("audit: writing the report"):
        page, csv, tex = claim(out, "report.html", "table.csv", "table.tex")
        result.report(page, figures=drawn)
        result.to_csv(csv)
        result.to_latex(tex)
    facts = {
        "report": str(page),
        "estimates": {name: _triples(row) for name, row in result.estimates.items()},
        "verdict": result.verdict(),
        "findings": {name: findings(result, name) for name in result.methods[1:]},
        "plan": result.plan(),
        "folds": result.settings.get("folds", 1),
        "warnings": result.warnings,
    }
    lines = [text(result, verbose=verbose)]
    if against is not None:
        csv, tex = claim(out, "contrasts.csv", "contrasts.tex")
        write_atomically(csv, contrast_csv(result, against).encode())
        write_atomically(tex, latex_table(result, against).encode())
        others = [name for name in result.methods if name != against]
        rows = {name: {m: result.contrast(name, against, m) for m in result.metrics} for name in others}
        facts["contrasts"] = {name: _triples(row) for name, row in rows.items()}
        lines.append(f"\ndifference from {against}")
        lines += [
            f"  {name:<20}" + "  ".join(f"{m} {e:+.3f}" for m, e in row.items()) for name, row in rows.items()
        ]
    failed = unmet(result, require) if require else []
    facts |= {"unmet": failed} if require else {}
    show(facts, "\n".join([*lines, "", *failed, str(page)]), json_)
    if open_:
        webbrowser.open(page.resolve().as_uri())
    if failed:
        raise SystemExit(1)


def run_audit(
    file: Any, out: Path, methods: list[str], options: AuditOptions, cache: Path | None = None
) -> Any:
    """Return the audit of named methods and stored maps; finished cells are kept in the output folder."""
    claim(out)  # before the work
    with waiting("audit: reading"):
        from ..audit import AuditPlan
        from ..baselines import make
        from ..maps import load_map

        rows = file.read().require("source", "participant")
        methods = methods or ["leace", *(["mgpa"] if rows.pair_id is not None else [])]
        entries = {
            name: load_map(entry)
            if _is_map(entry)
            else with_tokens(with_rank(make(entry), options.rank), options.tokens, file)
            for name, entry in _named(methods).items()
        }
    quick = {"bank": options.readers, "restarts": 1, "checkpoints": (12,)}
    plan = AuditPlan(
        rows,
        entries,
        seeds=options.seeds,
        budget=options.budget,
        association=options.association,
        folds=options.folds,
        task=options.task,
        cache=out / "cells" if cache is None else cache,
        n_jobs=options.jobs,
        readers=quick if options.quick else options.readers,
    )
    claim(out, "report.html")  # after all options were checked
    return plan.run()


def _named(entries: list[str]) -> dict[str, str]:
    """Return methods and stored maps by the names they are shown under, all different.

    A map is called like its file, unless that is a method's name or another map's: then by its path.
    """
    from ..baselines.registry import available, canonical_name

    stems = [as_place(entry).stem for entry in entries if _is_map(entry)]
    methods = {method.name for method in available()}
    named: dict[str, str] = {}
    for entry in entries:
        name = as_place(entry).stem if _is_map(entry) else entry
        if _is_map(entry) and (stems.count(name) > 1 or canonical_name(name) in methods):
            name = str(as_place(entry)) if is_address(entry) else entry
        if any(canonical_name(name) == canonical_name(other) for other in named):
            raise UserError(f"--methods has {name} twice; name each method or map once.")
        named[name] = entry
    return named


def _is_map(entry: str) -> bool:
    return entry.endswith(".safetensors") or (is_address(entry) and as_place(entry).suffix == ".safetensors")


def _triples(row: dict[str, Any]) -> dict[str, list[float]]:
    return {metric: [e.value, e.low, e.high] for metric, e in row.items()}
