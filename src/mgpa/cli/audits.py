"""Commands that audit corrections, check pairs, and run the demonstration."""

from __future__ import annotations

import shlex
import shutil
import sys
import webbrowser
from dataclasses import asdict, astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, validators

from .._common.files import claim
from .._common.progress import waiting
from .._common.remote import as_place, is_address
from . import application as shared
from .application import AS_IT_IS, AnyPlace, AsJson, Folder, Names, TableOptions, UserError, app

if TYPE_CHECKING:
    from ..audit import Audit
    from ..tables import Table
    from ..tables.files import TableFile

QUICK = {"restarts": 1, "checkpoints": (12,)}


@app.command
def audit(
    table: AnyPlace,
    *,
    out: Folder,
    methods: Names = [],  # noqa: B006
    pairs: shared.MaybePlace = None,
    head: Path | None = None,
    head_source: str | None = None,
    trust: bool = False,
    quick: bool = False,
    readers: Literal["full", "paper"] = "full",
    folds: int | None = None,
    repeats: int | None = None,
    refits: int = 0,
    seeds: shared.Seeds = (17, 29, 43),  # type: ignore[assignment]
    reference: str | None = None,
    rank: shared.Rank = None,
    tokens: shared.Tokens = "mean",
    budget: float | None = None,
    association: tuple[str, str] | None = None,
    task: Literal["classification", "regression"] | None = None,
    reading: TableOptions = AS_IT_IS,
    cache: Annotated[Path | None, Parameter(validator=validators.Path(file_okay=False))] = None,
    jobs: int = 1,
    require: str | None = None,
    verbose: bool = False,
    open_: Annotated[bool, Parameter(name="--open")] = False,
    json_: AsJson = False,
) -> None:
    """Measure the effects of corrections on held-out participants, and write a report.

    Example: mgpa audit recordings.parquet --out audit --methods leace mgpa iterative_mgpa

    Parameters
    ----------
    table
        A table with source and participant columns; label for the task, pair_id for pairs. Without roles,
        roles rotate over folds. Also a URL (s3://…, gs://…, https://…, hf://…).
    out
        Folder for report.html, table.csv and figures.
    methods
        Names (`mgpa methods`) or stored maps (*.safetensors); by default leace, and mgpa if there are pairs.
        If roles rotate, participants in the fit of a stored map are never scored, unless all participants
        were in its fit.
    pairs
        A second table with paired rows (pair_id), if the first has no pairs. In every fold, pairs of HEAD and
        EVAL participants are left out.
    head
        Your own decoder, scored without refitting: an .onnx file, or .joblib with --trust. The classes of an
        ONNX classifier are the sorted labels of the table.
    head_source
        The source on which this head was trained, to separate home from away.
    trust
        Load a .joblib head, which runs code of its author.
    quick
        Preliminary audit with one reader network and 12 epochs.
    readers
        Source readers: `full`, or `paper` for only the paper's eleven readers.
    folds
        Number of folds over which roles rotate, so that each participant is EVAL once; 1 keeps the roles of
        the table. By default five if fewer than twelve participants are EVAL or the table has no roles, if
        possible; with three to seven participants, one fold each.
    repeats
        Number of random divisions of participants into folds; results are means over the divisions. By
        default 3 with fewer than 24 participants, and 1 otherwise or with --quick.
    refits
        Number of refits on half of the FIT participants, for intervals that include the variation of the fit;
        use 8 or more.
    seeds
        Seeds for several fits of methods that draw random numbers.
    reference
        For MGPA and other methods with a reference: the device of your existing decoder.
    rank
        For MGPA: number of directions in the gate (3), share of the contrast energy (0.9), or auto.
    tokens
        As in `mgpa fit`, for all methods; stored maps record their use of tokens.
    budget
        Compare methods at this relative movement of the VAL rows instead of complete maps.
    association
        A source and its associated label in the HEAD rows for the shortcut head (metric `worst`); by default
        as in the FIT rows.
    task
        Kind of labels; by default, many distinct numbers are a regression target.
    cache
        Folder of finished cells (fits and measurements), by default inside the output folder. Another run
        continues from these cells.
    jobs
        Number of cells computed in parallel.
    require
        Requirement for every method, such as "S<=.6 and loss<=.01"; otherwise the exit status is 1.
    verbose
        Print all columns and sentences; the report always contains them.
    open_
        Open the report in a browser.
    """
    from ..audit import AuditPlan
    from ..audit.verdict import read_requirement, text, unmet

    read_requirement(require or "S<=1")  # raise errors before anything is computed
    claim(out)
    file = reading.open(table)
    with waiting("audit: reading"):
        rows = file.read().require("source", "participant")
        paired = rows.pair_id is not None or pairs is not None
        if not methods and not paired:
            print(_without_pairs(rows, file.info.get("unit", "participant")), file=sys.stderr)
        entries = {
            name: _method(entry, rank, tokens, file)
            for name, entry in _named(methods or ["leace", *["mgpa"] * paired]).items()
        }
        shared.set_reference(entries, reference)
        given = _pairs_and_head(rows, pairs, head, task, trust) | {"head_source": head_source}
    plan = AuditPlan(
        rows,
        entries,
        **given,
        seeds=seeds,
        budget=budget,
        association=association,
        folds=folds,
        repeats=repeats,
        refits=refits,
        task=task,
        cache=out / "cells" if cache is None else cache,
        n_jobs=jobs,
        readers={"bank": readers, **QUICK} if quick else readers,
    )
    claim(out, "report.html")  # after all options were checked
    result = plan.run()
    page = _write(result, out, f"Audit of {as_place(str(table)).name}")
    failed = unmet(result, require) if require else []
    facts = {"report": str(page), **_facts(result)} | ({"unmet": failed} if require else {})
    shared.show(facts, "\n".join([text(result, verbose=verbose), "", *failed, str(page)]), json_)
    if open_:
        webbrowser.open(page.resolve().as_uri())
    if failed:
        raise SystemExit(1)


def _without_pairs(rows: Table, unit: str) -> str:
    """Return a sentence that MGPA is left out, with an option that would pair the rows."""
    left_out = "audit: without a pair_id column, MGPA is left out."
    seen = {*zip(rows.participant.tolist(), rows.source.tolist(), strict=True)}
    if len({*rows.participant.tolist()}) < len(seen) == len(rows):  # one row for every source
        left_out += f" Do all rows of a {unit} show one event? Add --rename.{unit} pair_id+participant."
    return left_out


def _method(entry: str, rank: shared.Rank, tokens: str, file: TableFile) -> object:
    """Return the stored map or the method for an entry of --methods."""
    from ..baselines import make_method
    from ..maps import load_map

    if _is_map(entry):
        return load_map(entry)
    return shared.with_tokens(shared.with_rank(make_method(entry), rank), tokens, file)


def _pairs_and_head(
    rows: Table, pairs: AnyPlace | None, head: Path | None, task: str | None, trust: bool
) -> dict[str, Any]:
    """Open and return the second table of pairs and the user's own head."""
    from ..audit.deployed import open_head
    from ..audit.design import find_design
    from ..tables import open_table

    given: dict[str, Any] = {"pairs": None if pairs is None else open_table(pairs)}
    if head is not None:
        numbers = find_design(rows.require("label"), task).task == "regression"
        given["head"] = open_head(head, rows.label, numbers=numbers, trust=trust)
    return given


def _write(result: Audit, out: Path, title: str) -> Path:
    """Write figures, report and table; return the path of the report."""
    from ..audit.plots import draw_all, save_figures

    with waiting("audit: drawing figures"):
        figures = draw_all(result)
        claim(out, *(f"figures/{name}.{kind}" for name in figures for kind in ("pdf", "svg")))
        save_figures(figures, out / "figures", ("pdf", "svg"))
    with waiting("audit: writing the report"):
        page, csv = claim(out, "report.html", "table.csv")
        result.report(page, title, figures=figures)
        result.to_csv(csv)
    return page


def _facts(result: Audit) -> dict[str, Any]:
    """Return the facts of an audit for --json."""
    from ..audit.verdict import conclusions, findings

    return {
        "estimates": {
            name: {metric: astuple(e)[:3] for metric, e in row.items()} for name, row in result.tabled.items()
        },
        "details": {
            name: {metric: astuple(result[name].estimate(metric))[:3] for metric in result.details}
            for name in result.methods
        },
        "verdict": result.verdict(),
        "conclusions": [asdict(conclusion) for conclusion in conclusions(result)],
        "findings": {name: findings(result, name) for name in result.methods[1:]},
        "participants_needed": result.participants_needed(),
        "folds": result.settings.folds,
        "warnings": result.warnings,
    }


def _named(entries: list[str]) -> dict[str, str]:
    """Return methods and stored maps by unique display names.

    The name of a map is its file name or, if a method or another map has this name, its path.
    """
    from ..baselines.registry import canonical_name, list_methods

    stems = [as_place(entry).stem for entry in entries if _is_map(entry)]
    methods = {method.name for method in list_methods()}
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


@app.command(name="check-pairs")
def check_pairs(
    table: AnyPlace,
    *,
    pairs: shared.MaybePlace = None,
    reading: TableOptions = AS_IT_IS,
    json_: AsJson = False,
) -> None:
    """Check whether pairs show an effect, and whether rows show the same effect.

    Example: mgpa check-pairs recordings.parquet

    Parameters
    ----------
    table
        Embeddings with a source for every row; with roles, FIT rows are used.
    pairs
        A second table with paired rows (pair_id), if the first has no pairs.
    """
    file = reading.open(table)
    if pairs is None:
        shared.require_pairs(file, table)
    with waiting("check-pairs: fitting"):
        from ..audit.diagnostics import check_pairs as check

        result = check(file, pairs)
    shared.show(result.to_dict(), str(result), json_)


@app.command
def demo(
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    eeg: bool = False,
    open_: Annotated[bool | None, Parameter(name="--open", negative="--no-open")] = None,
) -> None:
    """Keep a decoder across two simulated headsets: fit, apply and audit, in seconds.

    Example: mgpa demo

    Parameters
    ----------
    out
        Folder for all outputs: mgpa-demo, or mgpa-demo-eeg with --eeg.
    eeg
        Start from raw EEG files instead of embeddings.
    open_
        Open the report in a browser; by default in a terminal.
    """
    out = out or Path("mgpa-demo-eeg" if eeg else "mgpa-demo")
    claim(out)
    with waiting("demo: from a file to a report"):
        from ..tables import simulate_table

        if eeg:
            from ..eeg.demo import demo_table

            rows = demo_table(claim(out, "raw/truth.json")[0].parent)
        else:
            rows = simulate_table(60, overlap=0.5, device_effect=8.0)
        lines, page = _from_table(rows, out)
    print("\n".join(lines))
    if not eeg:
        print("From raw EEG files: mgpa demo --eeg")
    if sys.stdout.isatty() if open_ is None else open_:
        webbrowser.open(page.resolve().as_uri())


def _program() -> str:
    """Return the command to type: ``mgpa``, or the program's path if ``mgpa`` is not on the PATH."""
    called = sys.argv[0]
    return shlex.quote(called) if Path(called).stem == "mgpa" and shutil.which("mgpa") is None else "mgpa"


def _from_table(rows: Any, out: Path) -> tuple[list[str], Path]:
    """Fit, apply and audit a correction to the first device; return lines to print, and the report."""
    from ..audit import run
    from ..estimators.mgpa import MGPA
    from ..tables import apply_to_file, fit_table, write_table

    reference, other = map(str, rows.sources)
    model = MGPA(reference=reference)
    table, adapter, corrected = claim(out, "recordings.parquet", "adapter.safetensors", "corrected.parquet")
    write_table(rows, table, overwrite=True)
    m = fit_table(model, table).to_map()
    m.save(adapter, overwrite=True)
    apply_to_file(m, table, corrected, overwrite=True)
    [page] = claim(out / "audit", "report.html")
    quick = {"bank": "full", **QUICK}
    audit = run(rows, {"mgpa": model}, readers=quick, cache=out / "audit" / "cells", verbose=False)
    audit.report(page)

    def change(metric: str) -> str:
        before, after = (audit[name].estimate(metric).value for name in ("identity", "mgpa"))
        return f"{before:.2f} → {after:.2f}".replace("0.", ".")

    trained = f"Decoder trained on {reference}, tested on "
    shown = {
        f"{trained}{other} (balanced accuracy)": f"A_f {reference} → {other}",
        f"{trained}{reference}": f"home {reference}",
        "Device read from the embedding (AUROC; chance is .5)": "S",
        "Shortcut decoder, worst case (AUROC)": "worst",
    }
    width = max(map(len, shown)) + 2
    fit, apply, measure = (
        f"  {_program()} {command} " + " ".join(shlex.quote(str(word)) for word in words)
        for command, words in (
            ("fit", (table, "--reference", reference, "--out", adapter, "--overwrite")),
            ("apply", (adapter, table, "--out", corrected, "--overwrite")),
            (
                "audit",
                (table, "--out", out / "audit", "--methods", "mgpa", "--reference", reference, "--quick"),
            ),
        )
    )
    return [
        f"{len(set(rows.participant))} simulated people, two devices ({reference}, {other}), "
        f"{len(rows)} embeddings: {table}",
        f"A decoder was trained on {reference} and is not retrained. Before the correction → after:",
        "",
        *(f"{text:<{width}}{change(metric)}" for text, metric in shown.items() if audit["mgpa"].has(metric)),
        "",
        f"Report     {page}",
        f"Map        {adapter}",
        f"Corrected  {corrected}",
        "",
        f"The same by hand; your own file takes the place of {table.name}:",
        fit, apply, measure,
    ], page  # fmt: skip
