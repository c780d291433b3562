"""Commands that measure what corrections do."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, validators

from .._common.progress import waiting
from .._common.remote import Place, as_place, is_address
from .application import (
    AnyPlace,
    AsJson,
    Folder,
    Rank,
    Seeds,
    Tokens,
    UserError,
    app,
    of_tokens,
    show,
    with_rank,
)


@app.command
def audit(
    table: AnyPlace,
    *,
    out: Folder,
    methods: Annotated[list[str], Parameter(consume_multiple=True)] = ["leace", "closed_form_mgpa"],  # noqa: B006
    seeds: Seeds = [17, 29, 43],  # noqa: B006
    rank: Rank = None,
    tokens: Tokens = "mean",
    budget: float | None = None,
    association: tuple[str, str] | None = None,
    folds: int | None = None,
    cache: Annotated[Path | None, Parameter(validator=validators.Path(file_okay=False))] = None,
    readers: Literal["full", "paper"] = "full",
    jobs: int = 1,
    quick: bool = False,
    open_: Annotated[bool, Parameter(name="--open", negative="")] = False,
    json_: AsJson = False,
) -> None:
    """Measure what corrections do, on participants they were not fitted on, and write a report.

    Example: mgpa audit recordings.parquet --out audit --methods leace closed_form_mgpa iterative_mgpa

    Parameters
    ----------
    table
        With source and participant columns; label for task utility, pair_id for pairs, and role, which few
        people do without. Also by an address (s3://…, gs://…, https://…, hf://…).
    out
        Folder for report.html, table.csv, table.tex and figures.
    methods
        Names (`mgpa methods`) or stored maps (*.safetensors).
    seeds
        Fits of methods that draw random numbers.
    rank
        For MGPA: directions in the gate (3), or the share of contrast energy they hold (0.9).
    tokens
        As in `mgpa fit`, for all methods; stored maps know how they take tokens.
    budget
        Compare at this relative movement of the VAL rows instead of with complete maps.
    association
        A source and the label that goes with it where the heads behind `worst` learn their shortcut; by
        default as in the FIT rows.
    folds
        Let roles rotate over so many folds, so that everybody judges once; 1 keeps the table's roles. By
        default five where fewer than twelve people are EVAL, or the table has no roles, if that is
        possible; three to seven people take turns one by one.
    cache
        Folder of finished cells; by default inside the output folder. Running again goes on where it was.
    jobs
        Cells at a time.
    readers
        Who tries to read the source: `full`, or `paper` for the paper's eleven readers alone.
    quick
        One reader network and 12 epochs: a preliminary look.
    open_
        Open the report in a browser when it is written.
    """
    result = _run_audit(
        table, out, methods, seeds, rank, tokens, budget, association, folds, cache, readers, jobs, quick
    )
    from ..audit.plots import draw_all, save_figures
    from ..audit.verdict import findings, text

    with waiting("audit: drawing figures"):
        drawn = draw_all(result)
        save_figures(drawn, out / "figures", verbose=True)
    with waiting("audit: writing the report"):
        page = result.report(out / "report.html", figures=drawn)
        result.to_csv(out / "table.csv")
        result.to_latex(out / "table.tex")
    show(
        {
            "report": str(page),
            "estimates": {name: _triples(row) for name, row in result.estimates.items()},
            "verdict": result.verdict(),
            "folds": result.settings.get("folds", 1),
            "warnings": result.warnings,
            "findings": {name: findings(result, name) for name in result.methods[1:]},
            "plan": result.plan(),
        },
        f"{text(result)}\n\n{page}",
        json_,
    )
    if open_:
        webbrowser.open(page.resolve().as_uri())


@app.command
def compare(
    table: AnyPlace,
    *,
    methods: Annotated[list[str], Parameter(consume_multiple=True)],
    against: str = "identity",
    out: Folder | None = None,
    seeds: Seeds = [17, 29, 43],  # noqa: B006
    rank: Rank = None,
    tokens: Tokens = "mean",
    budget: float | None = None,
    association: tuple[str, str] | None = None,
    folds: int | None = None,
    readers: Literal["full", "paper"] = "full",
    jobs: int = 1,
    quick: bool = False,
    json_: AsJson = False,
) -> None:
    """Compare methods with one another: differences with paired intervals.

    Example: mgpa compare recordings.parquet --methods leace closed_form_mgpa --against leace --out audit

    Parameters
    ----------
    table
        As in `mgpa audit`, like all options that are not described here.
    methods
        Names (`mgpa methods`) or stored maps (*.safetensors).
    against
        The method the others are compared with.
    out
        The same folder as `mgpa audit` used: finished cells are read from there. The differences are written
        there too, as contrasts.csv and contrasts.tex.
    """
    from ..audit import METRICS

    result = _run_audit(
        table, out, methods, seeds, rank, tokens, budget, association, folds, None, readers, jobs, quick
    )
    if against not in result.results:
        raise UserError(f"--against is {against!r}; audited are {', '.join(result.methods)}.")
    contrasts = {
        name: {metric: result.contrast(name, against, metric) for metric in result.metrics}
        for name in result.methods
        if name != against
    }
    words = {metric: f"{METRICS[metric].subject} ({metric})" for metric in result.metrics}
    width = max(map(len, words.values()))
    lines = [f"difference from {against}"]
    for name, row in contrasts.items():
        lines.append(f"  {name}")
        lines += [f"    {words[metric]:<{width}}  {estimate:+.4f}" for metric, estimate in row.items()]
    if out is not None:
        from .._common.files import write_atomically
        from ..audit.report import contrast_csv, latex_table

        write_atomically(out / "contrasts.csv", contrast_csv(result, against).encode())
        write_atomically(out / "contrasts.tex", latex_table(result, against).encode())
        lines.append(f"\n{out / 'contrasts.csv'}")
    plain = {name: _triples(row) for name, row in contrasts.items()}
    lines = [*result.warnings, *lines]
    facts = {"against": against, "contrasts": plain, "warnings": result.warnings}
    show(facts, "\n".join(lines), json_)


def _run_audit(
    table: Place,
    out: Path | None,
    names: list[str],
    seeds: list[int],
    rank: Rank,
    tokens: str,
    budget: float | None,
    association: tuple[str, str] | None,
    folds: int | None,
    cache: Path | None,
    bank: str,
    jobs: int,
    quick: bool,
) -> Any:
    with waiting("audit: reading"):
        from ..audit import run
        from ..baselines import make
        from ..maps import load_map
        from ..tables.files import open_table

        entries = {
            name: load_map(given)
            if _is_map(given)
            else of_tokens(with_rank(make(given), rank), tokens, table)
            for name, given in _named(names).items()
        }
        rows = open_table(table).read().require("source", "participant")
    readers = {"bank": bank, "restarts": 1, "checkpoints": (12,)} if quick else bank
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        cache = out / "cells" if cache is None else cache
    return run(
        rows,
        entries,
        seeds=seeds,
        budget=budget,
        association=association,
        folds=folds,
        cache=cache,
        n_jobs=jobs,
        readers=readers,
    )


def _named(given: list[str]) -> dict[str, str]:
    """Return methods and stored maps by the names they are shown under, no two alike.

    A map is called like its file, unless that is a method's name or another map's: then by its path.
    """
    from ..baselines.registry import available, canonical_name

    stems = [as_place(entry).stem for entry in given if _is_map(entry)]
    methods = {method.name for method in available()}
    named: dict[str, str] = {}
    for entry in given:
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
