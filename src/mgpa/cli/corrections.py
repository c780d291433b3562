"""Commands that fit, apply and export corrections, and that describe and convert files."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
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
    Flag,
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
    everyone: Flag = False,
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
        Embeddings with a source for every row (.npz, .parquet, .csv, a folder of .parquet), also by an
        address (s3://…, gs://…, https://…, hf://…). With a role column only FIT rows are fitted on, and VAL
        rows decide when iterative methods stop.
    out
        Where to store the map.
    method
        As listed by `mgpa methods`.
    reference
        Correct all rows to this source, the device that your decoder or calibration was trained on. Its own
        rows stay, as far as they can be recognised. Without it, MGPA corrects to the mean of all sources.
    rank
        For MGPA: directions in the gate (3), the share of contrast energy they hold (0.9), or what held-out
        pairs support (auto). For NCM, which has no gate: the directions it removes.
    pairs
        A second table with paired rows (pair_id), if the pairs are not in the first. If it has roles, its
        FIT rows are used.
    components
        Correct this many principal components of the features, fitted on FIT rows and stored with the map:
        `mgpa apply` then takes raw features and gives corrected components. FIT rows must fit in memory.
    tokens
        For a table of tokens: correct their mean and shift all alike (mean), or all tokens of a row together
        (joint).
    everyone
        Fit on the rows of every role: the last step, after an audit. The audit was of fits on FIT rows; this
        map cannot be audited, since no participant is left who was not in its fit.
    """
    with waiting("fit: loading"):
        from ..baselines import make_method
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
    model = shared.with_tokens(model, tokens, file)
    with connect(scheduler) as client, waiting("fit: fitting"):
        settings: dict[str, Any] = {"everyone": everyone, "client": client, "verbose": True}
        m = fit_table(model, file, pairs=pairs, components=components, **settings).to_map()
    m.save(out, overwrite=overwrite)
    if reference is None and not m.source_blind and "reference" in model.get_params():
        text = f"mgpa: no --reference, so rows go to {m.info.source_names[0]!r}, the first source in order."
        print(printable(f"{text} Name the device that your decoder was trained on."), file=sys.stderr)
    if everyone:
        text = "mgpa: fitted on the rows of every role; an audit of this table scored fits on its FIT rows,"
        print(f"{text} and says nothing about this map.", file=sys.stderr)
    elif "role" not in file.columns:
        text = "mgpa: the table has no roles, so all rows were fitted on; audit other participants, or"
        print(f"{text} give each participant a role first (mgpa convert --roles).", file=sys.stderr)
    shared.show({"map": str(out), **_map_facts(m)}, m.summary(), json_)


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
    """Correct every row of a table; all other columns are kept as they are.

    Example: mgpa apply adapter.safetensors recordings.parquet --out corrected.parquet

    Rows are streamed, so memory does not grow with the table. In a folder (a name without suffix), finished
    parts are kept, and the same command continues there. The exit status is 3 if rows look like those of a
    device that was not in the fit.

    Parameters
    ----------
    map
        A stored correction.
    table
        Embeddings; source-aware maps need their source column.
    out
        A .parquet, .npz or .csv file, or a folder (a name without suffix); also an address (s3://…, gs://…).
    strength
        Apply this multiple of the correction.
    source
        The source of all rows, where the table has no such column.
    force
        Correct a table that was corrected before, or whose sources the map does not know.
    strict
        Write nothing, and fail, if rows are not like those the map was fitted on. Without it, a line says so.
    unknown
        What to do with rows of a device that was not in the fit: correct them all the same; adapt to them, as
        `mgpa adapt` does; or leave them as they are, if all rows are such. Choose adapt for a model that was
        trained on corrected rows, and leave for one trained on uncorrected rows; `mgpa leave-one-out`
        measures both.
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
    file = reading.open(table, m.info.feature_names)
    if source is not None:
        m = _of_source(m, file, source, force)
    check = check_table(m, file)
    if other := other_signals(file.info, {"signals": m.info.signals}):
        if strict:
            raise UserError(other)
        print(printable(f"mgpa: {other}"), file=sys.stderr)
    if strict and not check.ok:
        raise UserError(" ".join(check.problems))
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
    done = "left as they are" if left else "corrected, after adapting to them," if adapted else "corrected"
    text = f"{n_rows} rows {done} into {out}\n{check}"
    if adapted:
        text += "\nAdapted: their content was taken to be mixed as in the fit."
    elif check.unknown_device and not left and isinstance(m, (AffineMap, PosteriorMap)):
        text += f"\nNext: mgpa adapt {map} {table} --out NEW.safetensors, or mgpa apply … --unknown adapt."
    shared.show(facts, text, json_)
    if check.unknown_device:
        raise SystemExit(3)


def _of_source(m: Any, file: Any, source: str, force: bool) -> Any:
    """Return the correction of one source; raise if the map does not know it, or the table says another."""
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
    """Store the part of a correction that moves validation rows by a given share.

    Example: mgpa select adapter.safetensors recordings.parquet --budget 0.05 --out adapter-05.safetensors

    Parameters
    ----------
    map
        A stored correction.
    table
        Movement is measured on its VAL rows; on all rows, if it has no roles.
    budget
        Relative movement, for instance 0.05.
    out
        Where to store the selected map.
    """
    from ..maps import SequentialMap, load_map
    from ..operating_point import movement_budget
    from ..tables import open_table
    from ..tables.rows import rows_for, vectors

    shared.refuse_existing(out, overwrite, map, table)
    m, rows = load_map(map), open_table(table).read()
    if rows.role is not None:
        rows = rows.rows("VAL")
        if not len(rows):
            raise UserError(
                f"{table} has no VAL rows, and a budget must not be chosen on EVAL rows. Give some "
                "participants the role VAL (mgpa convert --roles)."
            )
    rows = rows_for(m, rows)
    m = movement_budget(m, vectors(rows), budget, source=rows.source)
    m.save(out, overwrite=overwrite)
    facts = {"map": str(out), "movement": budget, "strength": m.strength}
    if isinstance(m, SequentialMap):
        facts |= {"n_stages": len(m), "fraction": m.fraction}
    shared.show(facts, "\n".join(f"{name:<10}{value}" for name, value in facts.items()), json_)


@app.command
def inspect(path: AnyPlace, *, json_: AsJson = False) -> None:
    """Describe a map or a table.

    Example: mgpa inspect adapter.safetensors

    Parameters
    ----------
    path
        A stored map, or a table.
    """
    if path.suffix == ".safetensors" or (isinstance(path, Path) and (path / "model.json").is_file()):
        from ..maps import load_map

        m = load_map(path)
        shared.show(_map_facts(m), m.summary(), json_)
        return
    from ..tables.files import open_table

    file = open_table(path)
    facts = {
        "rows": file.n_rows,
        "shape": list(file.shape),
        "dtype": str(file.dtype),
        "columns": list(file.columns),
        "parts": len(file.parts),
        **({"info": file.info} if file.info else {}),
    }
    counts = _counts(file)
    summary = facts | {"columns": first_few(list(file.columns))}
    lines = [f"{name:<12}{_shortened(value)}" for name, value in summary.items()]
    lines += [f"{name}: " + first_few([f"{k} {n}" for k, n in c.items()], 12) for name, c in counts.items()]
    shared.show(facts | {"counts": counts}, "\n".join(map(printable, lines)), json_)


@app.command
def export(map: AnyPlace, *, out: shared.Out, overwrite: Overwrite = False) -> None:
    """Write a map as ONNX, for other runtimes.

    Example: mgpa export adapter.safetensors --out adapter.onnx

    Parameters
    ----------
    map
        A stored correction.
    out
        Where to write it, such as adapter.onnx.
    """
    from ..maps import load_map

    shared.refuse_existing(out, overwrite, map)
    if out.suffix != ".onnx":
        raise UserError(f"{out.name} must end in .onnx.")
    load_map(map).to_onnx(out)
    print(out)


@app.command
def convert(
    table: AnyPlace,
    *more: AnyPlace,
    out: AnyOut,
    reading: TableOptions = AS_IT_IS,
    roles: bool = False,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Convert a table or CSV files: rename columns, assign roles to participants.

    Example: mgpa convert raw.csv --out table.parquet --embedding f --rename.device source --roles

    Parameters
    ----------
    table
        A .csv, .tsv or .txt file, or any table; also by an address (s3://…, gs://…, https://…, hf://…).
    more
        More files with the same columns, one per instrument or site, say: their rows follow. Without a source
        column, the name of a file is the source of its rows.
    out
        A .parquet, .npz or .csv file; also by an address (s3://…, gs://…).
    roles
        Give every participant one role: 40 % FIT, 20 % each VAL, HEAD and EVAL. Participants with the same
        sources and labels, with pairs and without, are spread evenly over the roles.
    """
    from dataclasses import replace

    from ..tables import assign_roles
    from ..tables.columns import feature_names
    from ..tables.files import format_from_name, write_table

    shared.refuse_existing(out, overwrite, table, *more)
    format_from_name(out)  # before the work, not after it
    with waiting("convert: reading"):
        read = reading.open([table, *more] if more else table).read()
    if more:
        print(printable(f"mgpa: {_about_stacked(read, [table, *more])}"), file=sys.stderr)
    if roles:
        read.require("participant")
        alike = _strata_of(read) if read.source is not None else None
        read = replace(read, role=assign_roles(read.participant, stratify=alike, random_state=seed))
    with waiting("convert: writing"):
        write_table(read, out, overwrite=overwrite)
    names = feature_names(read.info)
    features = f" of {len(names)} features ({names[0]} … {names[-1]})" if names else ""
    print(printable(f"{len(read)} rows{features} with {', '.join(read.columns) or 'no columns'} in {out}"))


def _strata_of(rows: Any) -> list[str]:
    """Return what each row's participant has: sources, labels, and whether there are pairs."""
    from ..audit.design import columns_only, find_design, units_with_pairs

    units, paired = find_design(columns_only(rows)).units, units_with_pairs(rows)
    return [f"{units[who]} {who in paired}" for who in rows.participant.tolist()]


def _about_stacked(rows: Any, files: list[Any]) -> str:
    """Return what was taken for the source and the pairs of rows from several files."""
    names = [file.stem for file in files]
    by_name = sorted({*names}) == rows.sources.tolist()
    text = f"The rows of {len(files)} files follow each other; "
    text += f"the source is the name of the file ({', '.join(names)}); " if by_name else ""
    if rows.pair_id is None:
        return f"{text}no pairs: if a column names the sample in every file, add --rename.COLUMN pair_id."
    views = rows.paired_views() if len(rows.sources) == 2 else None
    n_pairs = f"{len(views[0])} pairs: " if views else ""
    return f"{text}{n_pairs}rows with the same pair_id are views of one event."


def _typed(method: str, settings: dict[str, str]) -> dict[str, Any]:
    """Read parameter values as TOML would: numbers, true and false, else text."""
    from ..baselines import make_method

    accepted = make_method(method).get_params(deep=False)
    accepted.pop("gate", None)  # --rank makes the gate
    read = {}
    for name, text in settings.items():
        if name not in accepted:
            raise UserError(f"{method} has no parameter {name!r}; it has {', '.join(accepted)}.")
        try:
            read[name] = json.loads(text)
        except json.JSONDecodeError:
            read[name] = text
    return read


def _map_facts(m: Any) -> dict[str, Any]:
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


def _shortened(value: Any) -> Any:
    """Return what a file says about itself, with five names of a long list and one line of a text."""
    if isinstance(value, dict):
        return {key: _shortened(inner) for key, inner in value.items()}
    if isinstance(value, str) and "\n" in value:
        return f"{value.splitlines()[0]} …"
    if isinstance(value, list | tuple) and len(value) > 5:
        return first_few([str(entry) for entry in value], 5)
    return value


def _counts(file: Any) -> dict[str, dict[str, int]]:
    """Return how many rows each source, role and label has, over all parts."""
    counts = {name: Counter[str]() for name in ("source", "role", "label") if name in file.columns}
    for part in file.parts:
        rows = part.read()
        for name, total in counts.items():
            total.update(map(str, getattr(rows, name).tolist()))
    return {name: dict(sorted(total.items())) for name, total in counts.items()}
