"""Commands that make, apply, look at and pass on corrections."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from .._common.progress import waiting
from .._common.remote import Place
from ..errors import printable
from .application import (
    AnyOut,
    AnyPlace,
    AsJson,
    MaybePlace,
    Out,
    Rank,
    Seed,
    Tokens,
    UserError,
    app,
    of_tokens,
    refuse_existing,
    show,
    with_rank,
)
from .evidence import GateEvidence, gate_evidence

Params = Annotated[
    dict[str, str] | None,
    Parameter(name="--set", help="Parameters of the method, as --set.ridge 0.1; any number of them."),
]


@app.command
def fit(
    table: AnyPlace,
    *,
    out: AnyOut,
    method: str = "closed_form_mgpa",
    rank: Rank = None,
    pairs: MaybePlace = None,
    components: int | None = None,
    tokens: Tokens = "mean",
    seed: Seed | None = None,
    parameters: Params = None,
    html: Path | None = None,
    overwrite: bool = False,
    scheduler: str | None = None,
    json_: AsJson = False,
) -> None:
    """Fit a correction to a table and store it.

    Example: mgpa fit recordings.parquet --out adapter.safetensors --method closed_form_mgpa

    Parameters
    ----------
    table
        Embeddings with a source for every row (.npz, .parquet, a folder of .parquet, .zarr), also by an
        address (s3://…, gs://…, https://…, hf://…). With a role column only FIT rows are fitted on, and VAL
        rows decide when iterative methods stop.
    out
        Where to store the map.
    method
        As listed by `mgpa methods`.
    rank
        For MGPA: directions in the gate (3), or the share of contrast energy they hold (0.9). For NCM, which
        has no gate: those it removes.
    pairs
        A second table with paired rows (pair_id), if the pairs are not in the first. Of a table with
        roles, its FIT rows.
    components
        Correct this many principal components of the features, fitted on FIT rows and stored with the map:
        `mgpa apply` then takes raw features and gives corrected components. FIT rows must fit in memory.
    tokens
        Of a table of tokens: correct their mean and shift all alike (mean), all tokens of a row together
        (joint), or each token by a map of its own (each).
    seed
        Seed of methods that draw random numbers.
    html
        Also write a page about the map: how to apply it, its evidence, how it moves rows, its provenance.
    overwrite
        Replace an existing map, and an existing page.
    scheduler
        Address of a Dask scheduler (tcp://…), or "local" for a cluster on this machine.
    """
    with waiting("fit: loading"):
        from ..baselines import make
        from ..tables import fit_table, open_table
        from ..tables.scale import connect

    refuse_existing(out, overwrite, table, pairs)
    if html is not None:
        refuse_existing(html, overwrite, table, pairs)
        if isinstance(out, Path) and html.resolve() == out.resolve():
            raise UserError(f"--out and --html are both {out}; name two files.")
    settings = _typed(method, parameters or {})
    model = make(method, **settings)
    if seed is not None:
        if "random_state" not in model.get_params():
            raise UserError(f"{method} draws no random numbers; leave --seed out.")
        model.set_params(random_state=seed)
    if rank is not None:
        if "gate" in model.get_params():
            with_rank(model, rank)
        elif "rank" in model.get_params():
            model.set_params(rank=rank)
        else:
            raise UserError(f"{method} has no rank; leave --rank out.")
    if "verbose" in model.get_params():
        model.set_params(verbose=True)
    model = of_tokens(model, tokens, table)
    with connect(scheduler) as client, waiting("fit: fitting"):
        m = fit_table(model, table, pairs=pairs, components=components, client=client, verbose=True).to_map()
    m.save(out, overwrite=overwrite)
    if "role" not in open_table(table).columns:
        print(
            "mgpa: the table has no roles, so all of its rows were fitted on; an audit of the same people "
            "would not be held out (mgpa convert --roles gives everybody a role).",
            file=sys.stderr,
        )
    with waiting("fit: asking held-out pairs"):
        evidence = gate_evidence(m, table, pairs)
    facts, lines = {"map": str(out), **_map_facts(m)}, [m.summary()]
    if evidence is not None:
        facts |= {"held_out_coverage": evidence.held_out, "hints": evidence.hints}
        lines += [f"  held out    {evidence}", *evidence.hints]
    if html is not None:
        facts["page"] = str(_write_page(html, m, out, table, evidence))
        lines.append(f"\n{html}")
    show(facts, "\n".join(lines), json_)


@app.command
def apply(
    map: AnyPlace,
    table: AnyPlace,
    *,
    out: AnyOut,
    strength: float | None = None,
    overwrite: bool = False,
    force: bool = False,
    scheduler: str | None = None,
    json_: AsJson = False,
) -> None:
    """Correct every row of a table; all other columns are kept as they are.

    Example: mgpa apply adapter.safetensors recordings.parquet --out corrected.parquet

    Streams: memory does not grow with the table. Into a folder (a name without suffix), finished parts are
    kept, and running it again goes on where it was.

    Parameters
    ----------
    map
        A stored correction.
    table
        Embeddings; source-aware maps need their source column.
    out
        A .parquet, .npz or .csv file, or a folder (a name without suffix); also by an address (s3://…, gs://…).
    strength
        Apply this multiple of the correction.
    overwrite
        Replace an existing output.
    force
        Correct a table that was corrected before, or whose sources the map does not know.
    scheduler
        Address of a Dask scheduler (tcp://…), or "local" for a cluster on this machine.
    """
    from ..maps import load_map
    from ..tables import correct_file
    from ..tables.scale import connect

    m = load_map(map)
    if strength is not None:
        m = m.with_strength(strength)
    with connect(scheduler) as client:
        n_rows = correct_file(m, table, out, overwrite=overwrite, force=force, client=client, verbose=True)
    show({"table": str(out), "rows": n_rows}, f"{n_rows} rows corrected into {out}", json_)


@app.command
def select(
    map: AnyPlace,
    table: AnyPlace,
    *,
    budget: float,
    out: AnyOut,
    overwrite: bool = False,
    json_: AsJson = False,
) -> None:
    """Store the part of a correction that moves validation rows by a given share.

    Example: mgpa select adapter.safetensors recordings.parquet --budget 0.05 --out adapter-05.safetensors

    Parameters
    ----------
    map
        A stored correction.
    table
        Its VAL rows decide; all rows, if it has no roles.
    budget
        Relative movement, for instance 0.05.
    out
        Where to store the selected map.
    overwrite
        Replace an existing map.
    """
    from ..endpoint import movement_budget
    from ..maps import load_map
    from ..tables import open_table
    from ..tables.rows import rows_for, vectors

    refuse_existing(out, overwrite, map, table)
    m, rows = load_map(map), open_table(table).read()
    if rows.role is not None:
        rows = rows.rows("VAL")
        if not len(rows):
            raise UserError(
                f"{table} has roles but no VAL rows, and a budget that EVAL rows decide is not held out from "
                "them. Give some participants the role VAL (mgpa convert --roles)."
            )
    rows = rows_for(m, rows)
    point = movement_budget(m, vectors(rows), budget, source=rows.source)
    point.map.save(out, overwrite=overwrite)
    facts = {"map": str(out), "movement": point.movement, "strength": point.strength}
    if point.n_stages is not None:
        facts |= {"n_stages": point.n_stages, "fraction": point.fraction}
    show(facts, "\n".join(f"{name:<10}{value}" for name, value in facts.items()), json_)


@app.command
def inspect(
    path: AnyPlace,
    *,
    html: Path | None = None,
    table: MaybePlace = None,
    overwrite: bool = False,
    json_: AsJson = False,
) -> None:
    """Say what a map or a table is.

    Example: mgpa inspect adapter.safetensors --html adapter.html --table recordings.parquet

    Parameters
    ----------
    path
        A stored map, or a table.
    html
        Of a map, also write a page: how to apply it, its evidence, how it moves rows, its provenance.
    table
        Rows for that page to move, VAL rows if it has roles; and pairs, if it has them, to hold against the
        map's gate.
    overwrite
        Replace an existing page.
    """
    if html is not None:
        refuse_existing(html, overwrite, path, table)
    elif table is not None:
        raise UserError("--table has rows for the page that --html names; pass --html, too.")
    if path.suffix == ".safetensors" or (isinstance(path, Path) and (path / "model.json").is_file()):
        from ..maps import load_map

        m = load_map(path)
        digests = path.is_file()  # without which no file of ours loads; the authors' folders have none
        facts = _map_facts(m) | {"verified": digests}
        lines = [m.summary(), f"  {'verified':<12}{_verified(digests)}"]
        if html is not None:
            evidence = None if table is None else _evidence_of(m, table)
            facts["page"] = str(_write_page(html, m, path, table, evidence, _verified(digests)))
            lines.append(f"\n{html}")
        show(facts, "\n".join(lines), json_)
        return
    if html is not None:
        raise UserError(
            f"--html is a page about a map; {path} is a table, of which mgpa audit writes a report."
        )
    from ..tables.files import open_table

    file = open_table(path)
    facts = {
        "rows": file.n_rows,
        "shape": list(file.shape),
        "dtype": str(file.dtype),
        "columns": list(file.columns),
        "parts": len(file.parts),
        "verified": file.verified,
        **({"info": file.info} if file.info else {}),
    }
    counts = _counts(file)
    said = facts | {"verified": _verified(file.verified)}
    lines = [f"{name:<12}{value}" for name, value in said.items()]
    lines += [f"{name}: " + ", ".join(f"{k} {n}" for k, n in c.items()) for name, c in counts.items()]
    text = "\n".join(map(printable, lines))
    show(facts | {"counts": counts}, text, json_)


@app.command
def export(
    map: AnyPlace,
    *,
    out: Out,
    format: Literal["onnx", "torch"] | None = None,
    overwrite: bool = False,
) -> None:
    """Write a map for other runtimes.

    Example: mgpa export adapter.safetensors --out adapter.onnx

    Parameters
    ----------
    map
        A stored correction.
    out
        adapter.onnx, or adapter.pt for a torch state dict.
    format
        By default what the name of the output says.
    overwrite
        Replace an existing file.
    """
    from ..maps import load_map

    refuse_existing(out, overwrite, map)
    kind = format or {".onnx": "onnx", ".pt": "torch", ".pth": "torch"}.get(out.suffix)
    if kind is None:
        raise UserError(f"{out.name} says neither ONNX (.onnx) nor torch (.pt); pass --format.")
    m = load_map(map)
    if kind == "onnx":
        m.to_onnx(out)
    else:
        import io

        import torch

        from .._common.files import write_atomically

        buffer = io.BytesIO()
        torch.save(m.to_torch().state_dict(), buffer)
        write_atomically(out, buffer.getvalue())
    print(out)


def _typed(method: str, settings: dict[str, str]) -> dict[str, Any]:
    """Read parameter values as TOML would: numbers, true and false, else text."""
    from ..baselines import make

    accepted = make(method).get_params(deep=False)
    accepted.pop("gate", None)  # which is made of --rank
    read = {}
    for name, text in settings.items():
        if name not in accepted:
            raise UserError(f"{method} has no parameter {name!r}; it has {', '.join(accepted)}.")
        try:
            read[name] = json.loads(text)
        except json.JSONDecodeError:
            read[name] = text
    return read


def _evidence_of(m: Any, table: Place) -> GateEvidence | None:
    """Return what the pairs of a table say about a map's gate, if it is a table that the map is for."""
    from ..tables import open_table
    from ..tables.rows import require_correctable

    file = open_table(table)
    require_correctable(m, file.info, file.survey().get("source"), ["Name one that it is for with --table."])
    return gate_evidence(m, table)


def _write_page(
    html: Path, m: Any, stored: Place, table: Place | None, evidence: GateEvidence | None, verified: str = ""
) -> Path:
    """Write a page about a map; rows of the table, if there is one, show how it moves them."""
    from .._common.files import write_atomically
    from ..audit.report import html_map, motion

    moved = None if table is None else motion(m, *_some_rows(table))
    page = html_map(
        m,
        stored,
        moved=moved,
        coverage=None if evidence is None else evidence.curve,
        sentences=[] if evidence is None else [f"Held out: {evidence}.", *evidence.hints],
        verified=verified,
    )
    return write_atomically(html, page.encode())


def _some_rows(table: Place) -> tuple[Any, str]:
    """Return VAL rows, or the fitting rows without any; of very many, a draw. And what they are, in words."""
    import numpy as np

    from ..audit.pair_check import MAX_ROWS
    from ..tables.fitting import FitRows, draw_rows

    rows = FitRows(table)
    role = "VAL" if len(rows.positions("VAL")) else "FIT"
    chosen = rows.positions(role)
    drawn = chosen[draw_rows(rows.columns["source"][chosen], MAX_ROWS, 0)]
    named = f"{role} rows" if "role" in rows.columns else "rows"
    some = f"{len(drawn)} of {len(chosen)}" if len(drawn) < len(chosen) else f"The {len(chosen)}"
    return rows.read(np.sort(drawn)), f"{some} {named} of {table.name}"


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
        "notes": info.notes,
    }
    if hasattr(m, "stage_tensors"):
        facts["stages"] = len(m)
    return facts | ({"encoder": info.encoder} if info.encoder else {})


def _verified(digests: bool) -> str:
    """Return in words whether a file has digests, which were compared when it was opened and read."""
    if digests:
        return "yes: it has digests, and is what was written"
    return "no: it has no digests, so what is lost or changed in it goes unnoticed"


def _counts(file: Any) -> dict[str, dict[str, int]]:
    """Return how many rows each source, role and label has, over all parts."""
    import numpy as np

    counts: dict[str, dict[str, int]] = {
        name: {} for name in ("source", "role", "label") if name in file.columns
    }
    for part in file.parts:
        rows = part.read()
        for name, total in counts.items():
            for value, n in zip(*np.unique(getattr(rows, name), return_counts=True), strict=True):
                total[str(value)] = total.get(str(value), 0) + int(n)
    return counts
