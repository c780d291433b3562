"""Commands that fit, apply, select and export corrections."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from .._common.progress import waiting
from ..errors import first_few, printable
from . import application as shared
from .application import (
    AS_IT_IS,
    AnyOut,
    AnyPlace,
    AsJson,
    Overwrite,
    Rank,
    Seed,
    TableOptions,
    UserError,
    app,
)
from .ending import will_write

Params = Annotated[
    dict[str, str] | None,
    Parameter(name="--set", help="Parameters of the method, as --set.ridge 0.1; any number of them."),
]


@app.command
def fit(
    table: AnyPlace,
    *,
    out: AnyOut,
    method: str = "mgpa",
    reference: str | None = None,
    rank: Rank = None,
    pairs: shared.MaybePlace = None,
    components: int | None = None,
    tokens: shared.Tokens = "mean",
    seed: Seed | None = None,
    parameters: Params = None,
    everyone: bool = False,
    reading: TableOptions = AS_IT_IS,
    overwrite: Overwrite = False,
    scheduler: shared.Scheduler = None,
    json_: AsJson = False,
) -> None:
    """Fit a correction to a table and store it.

    Example: mgpa fit recordings.parquet --out adapter.safetensors

    Parameters
    ----------
    table
        Embeddings with a source for every row (.npz, .parquet, .csv, a folder of .parquet), also a URL
        (s3://…, gs://…, https://…, hf://…). With a role column, FIT rows are used for fitting, and VAL rows
        for early stopping of iterative methods.
    out
        File for the map.
    method
        A name from `mgpa methods`.
    reference
        Map all rows to this source, the device on which your decoder or calibration was trained. Rows of
        this source do not move if the source can be recognised from a row; otherwise they also move, and the
        summary says so. Without this option, MGPA maps rows to the mean of all sources.
    rank
        For MGPA: number of directions in the gate (3), share of the contrast energy (0.9), or the rank that
        held-out pairs support (auto). For NCM, which has no gate: number of removed directions.
    pairs
        A second table with paired rows (pair_id), if the first has no pairs. With roles, its FIT rows are
        used.
    components
        Number of principal components to correct, fitted on FIT rows and stored with the map: `mgpa apply`
        then reads raw features and writes corrected components. FIT rows must fit in memory.
    tokens
        For a table of tokens: correct their mean and shift all tokens equally (mean), or correct all tokens
        of a row together (joint).
    everyone
        Fit on the rows of all roles: the last step, after an audit. The audit refers to fits on FIT rows.
        This map cannot be audited on held-out participants, because all participants were in its fit.
    """
    with waiting("fit: loading"):
        from ..baselines import make_method
        from ..estimators.tokens import needs_pairs
        from ..maps.check import FEW_DEVICES
        from ..tables import fit_table
        from ..tables.scale import connect

    shared.refuse_existing(out, overwrite, table, pairs)
    model = make_method(method, **_typed(method, parameters or {}))
    if seed is not None:
        if "random_state" not in model.get_params():
            raise UserError(f"{method} draws no random numbers; leave --seed out.")
        model.set_params(random_state=seed)
    shared.set_reference({method: model}, reference)
    if rank is not None:
        if "gate" in model.get_params():
            shared.with_rank(model, rank)
        elif "rank" in model.get_params():
            model.set_params(rank=rank)
        else:
            raise UserError(f"{method} has no rank; leave --rank out.")
    if "verbose" in model.get_params():
        model.set_params(verbose=True)
    file = reading.open(table)
    if pairs is None and needs_pairs(model) and model.get_params().get("on_missing") != "warn":
        shared.require_pairs(file, table)
    model = shared.with_tokens(model, tokens, file)
    with connect(scheduler) as client, waiting("fit: fitting"):
        settings: dict[str, Any] = {"everyone": everyone, "client": client, "verbose": True}
        m = fit_table(model, file, pairs=pairs, components=components, **settings).to_map()
    m.save(out, overwrite=overwrite)
    if reference is None and not m.source_blind and "reference" in model.get_params():
        text = f"mgpa: no --reference, so rows go to {m.info.source_names[0]!r}, the first source in order."
        print(printable(f"{text} Name the device that your decoder was trained on."), file=sys.stderr)
    if m.population is not None and m.population.are_few and getattr(m, "rank", 1):
        print(f"mgpa: {FEW_DEVICES}", file=sys.stderr)
    if everyone:
        text = "mgpa: fitted on the rows of every role; an audit of this table scored fits on its FIT rows,"
        print(f"{text} and does not apply to this map.", file=sys.stderr)
    elif "role" not in file.columns:
        text = "mgpa: the table has no roles, so all rows were fitted on; audit other participants, or"
        print(f"{text} give each participant a role first (mgpa convert --roles).", file=sys.stderr)
    shared.show({"map": str(out), **map_facts(m)}, m.summary(), json_)


@app.command
def apply(
    map: AnyPlace,
    table: AnyPlace,
    *,
    out: AnyOut,
    strength: float | None = None,
    source: str | None = None,
    reading: TableOptions = AS_IT_IS,
    overwrite: Overwrite = False,
    force: bool = False,
    strict: bool = False,
    unknown: Literal["correct", "adapt", "leave"] = "correct",
    scheduler: shared.Scheduler = None,
    json_: AsJson = False,
) -> None:
    """Correct all rows of a table; other columns do not change.

    Example: mgpa apply adapter.safetensors recordings.parquet --out corrected.parquet

    Rows are streamed, so memory does not grow with the table. In a folder (a name without suffix), finished
    parts are kept, and the same command continues an interrupted run. The exit status is 3 if rows look like
    rows of a device that was not in the fit.

    Parameters
    ----------
    map
        A stored correction.
    table
        Embeddings; source-aware maps need their source column.
    out
        A .parquet, .npz or .csv file, or a folder (a name without suffix); also an address (s3://…, gs://…).
    strength
        Factor of the correction.
    source
        The source of all rows, if the table has no such column.
    force
        Correct a table that was corrected before or that has only sources outside the fit.
    strict
        Fail and write nothing if rows are not like the fitting rows. Without it, this is only reported.
    unknown
        Treatment of rows of a device that was not in the fit: correct them; adapt the map to them, as in
        `mgpa adapt`; or leave them uncorrected, if all rows are of such devices. Choose adapt for a model
        that was trained on corrected rows, and leave for a model trained on uncorrected rows;
        `mgpa leave-one-out` measures both.
    """
    from ..maps import AffineMap, PosteriorMap, load_map
    from ..tables import apply_to_file, check_table
    from ..tables.rows import adapt_to_table, other_signals
    from ..tables.scale import connect

    will_write(out)
    if str(table).endswith(".safetensors") and not str(map).endswith(".safetensors"):
        raise UserError(f"The map comes first: mgpa apply {table} {map} --out {out}.")
    m = load_map(map)
    if strength is not None:
        m = m.with_strength(strength)
    file = reading.open(table, m)
    if source is not None:
        m = _of_source(m, file, source, force)
    check = check_table(m, file)
    _report_differences(check, other_signals(file.info, {"signals": m.info.signals}), strict)
    left = unknown == "leave" and check.unknown_device and all(entry["alarm"] for entry in check.devices)
    adapted = unknown == "adapt" and check.unknown_device
    if left:
        m = m.with_strength(0.0)
    if adapted:
        m = adapt_to_table(m, file, check)
    with connect(scheduler) as client:
        n_rows = apply_to_file(m, file, out, overwrite=overwrite, force=force, client=client, verbose=True)
    facts = {"table": str(out), "rows": n_rows, "corrected": not left, "adapted": adapted}
    facts["check"] = check.to_dict()
    done, after = "corrected", ""
    if left:
        done = "left uncorrected"
    elif adapted:
        done = "corrected, after adapting to them,"
        after = "\nAdapted, assuming the same mix of content as in the fit."
    elif check.unknown_device and isinstance(m, (AffineMap, PosteriorMap)):
        near = shlex.quote(next(entry["nearest"] for entry in check.devices if entry["alarm"]))
        command = shlex.join(["mgpa", "adapt", str(map), str(table), "--out", "NEW.safetensors"])
        after = (
            f"\nNext: {command} (add --known {near} if the table also has rows of {near} with the same "
            "pair_id), or mgpa apply … --unknown adapt."
        )
        if reading != AS_IT_IS:
            after += " Read the table with the same options."
    shared.show(facts, f"{n_rows} rows {done} into {out}\n{check}{after}", json_)
    if check.unknown_device:
        raise SystemExit(3)


def _report_differences(check: Any, other_signals: str, strict: bool) -> None:
    """Print differences in signal preparation from the fit; with ``strict``, refuse such rows."""
    if strict and (problems := other_signals or " ".join([] if check.ok else check.problems)):
        raise UserError(problems)
    if other_signals:
        print(printable(f"mgpa: {other_signals}"), file=sys.stderr)


def _of_source(m: Any, file: Any, source: str, force: bool) -> Any:
    """Return the correction of one source; raise if it was not in the fit or the table has sources."""
    if "source" in file.columns:
        raise UserError(f"{file.path} has a source column; leave --source out, or rename that column.")
    if source not in m.info.source_names and not (force and m.source_blind):
        known = first_few(list(m.info.source_names)) or "none by name"
        raise UserError(f"--source is {source!r}; the map was fitted on {known}.")
    return m if m.source_blind else m.for_source(source)


@app.command
def select(
    map: AnyPlace,
    table: AnyPlace,
    *,
    budget: float,
    out: AnyOut,
    overwrite: Overwrite = False,
    json_: AsJson = False,
) -> None:
    """Store a correction with a given relative movement of validation rows.

    Example: mgpa select adapter.safetensors recordings.parquet --budget 0.05 --out adapter-05.safetensors

    Parameters
    ----------
    map
        A stored correction.
    table
        Movement is measured on VAL rows, or on all rows without roles.
    budget
        Relative movement, for instance 0.05.
    out
        File for the selected map.
    """
    from ..maps import SequentialMap, load_map
    from ..operating_point import movement_budget
    from ..tables.rows import open_for, rows_for, sources_of, vectors

    shared.refuse_existing(out, overwrite, map, table)
    m = load_map(map)
    rows = open_for(m, table).read()
    if rows.role is not None:
        rows = rows.rows("VAL")
        if not len(rows):
            raise UserError(
                f"{table} has no VAL rows, and a budget must not be chosen on EVAL rows. Give some "
                "participants the role VAL (mgpa convert --roles)."
            )
    rows = rows_for(m, rows)
    m = movement_budget(m, vectors(rows), budget, source=sources_of(m, rows))
    m.save(out, overwrite=overwrite)
    facts = {"map": str(out), "movement": budget, "strength": m.strength}
    if isinstance(m, SequentialMap):
        facts |= {"n_stages": len(m), "fraction": m.fraction}
    shared.show(facts, "\n".join(f"{name:<10}{value}" for name, value in facts.items()), json_)


@app.command
def export(map: AnyPlace, *, out: shared.Out, overwrite: Overwrite = False) -> None:
    """Write a map as ONNX, for other runtimes.

    Example: mgpa export adapter.safetensors --out adapter.onnx

    Parameters
    ----------
    map
        A stored correction.
    out
        Output file, such as adapter.onnx.
    """
    from ..maps import load_map

    shared.refuse_existing(out, overwrite, map)
    if out.suffix != ".onnx":
        raise UserError(f"{out.name} must end in .onnx.")
    load_map(map).to_onnx(out)
    print(out)


def _typed(method: str, settings: dict[str, str]) -> dict[str, Any]:
    """Convert parameter values as in TOML: numbers, true, false, or else text."""
    from ..baselines import make_method

    accepted = make_method(method).get_params(deep=False)
    accepted.pop("gate", None)  # the gate is set by --rank
    read = {}
    for name, text in settings.items():
        if name not in accepted:
            raise UserError(f"{method} has no parameter {name!r}; it has {', '.join(accepted)}.")
        try:
            read[name] = json.loads(text)
        except json.JSONDecodeError:
            read[name] = text
    return read


def map_facts(m: Any) -> dict[str, Any]:
    """Return the facts of a map for JSON output."""
    info = m.info
    facts = {
        "kind": m.kind,
        "method": info.method,
        "features": m.n_features,
        "sources": list(info.source_names),
        "source_blind": m.source_blind,
        "strength": m.strength,
        "gate": None if info.gate_rank is None else {"rank": info.gate_rank, "energy": info.gate_energy},
        "rows": info.n_rows,
        "contrasts": info.n_contrasts,
        "parameters": info.parameters,
        "seed": info.random_state,
        "tokens": info.n_tokens,
        "token_layout": None if info.n_tokens is None else info.token_layout,
        "data": info.fingerprint,
        "written_by": f"mgpa {info.library_version}",
        "evidence": info.evidence,
        "doubt": info.doubt,
        "notes": info.notes,
    }
    if hasattr(m, "stage_tensors"):
        facts["stages"] = len(m)
    return facts | ({"encoder": info.encoder} if info.encoder else {})
