"""The ``mgpa`` command: files in, files out, nothing half-written.

Exit codes: 0 done; 1 something unexpected; 2 a wrong file, column or option, said in one line;
130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.config import Toml

from ._version import __version__

app = App(
    name="mgpa",
    help="Remove how it was measured, keep what was measured: correct embeddings and audit the result.",
    suppress_keyboard_interrupt=False,
    version=__version__,
    help_format="plaintext",
    config=Toml("mgpa.toml", must_exist=False, search_parents=False),
)

app.register_install_completion_command()

AsJson = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON instead of text.")]
Params = Annotated[
    dict[str, str] | None,
    Parameter(name="--set", help="Parameters of the method, as --set.ridge 0.1; any number of them."),
]


class UserError(Exception):
    """Something the user can put right; its text says what."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        app(arguments)
    except SystemExit as stop:
        # cyclopts exits with 1 for wrong options; 2 is what shells expect.
        return 0 if not stop.code else 2 if stop.code == 1 else int(stop.code)
    except KeyboardInterrupt:
        print("mgpa: interrupted; what was finished is kept.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our output has left: say nothing, and keep Python from saying something at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (UserError, ValueError, OSError, ImportError) as error:
        print(f"mgpa: {error}".replace("overwrite=True", "--overwrite"), file=sys.stderr)
        return 2
    return 0


@app.command
def fit(
    table: Path,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    method: str = "closed_form_mgpa",
    rank: float | None = None,
    pairs: Path | None = None,
    seed: int | None = None,
    set: Params = None,
    overwrite: bool = False,
    json_: AsJson = False,
) -> None:
    """Fit a correction to a table and store it.

    Example: mgpa fit recordings.parquet --out adapter.safetensors --method closed_form_mgpa

    Parameters
    ----------
    table
        Embeddings with a source for every row (.npz, .parquet, a folder of .parquet, .zarr). With a role
        column only FIT rows are fitted on, and VAL rows decide when iterative methods stop.
    out
        Where to store the map.
    method
        As listed by `mgpa methods`.
    rank
        For MGPA: directions in the gate (3), or the share of contrast energy they hold (0.9).
    pairs
        A second table with paired rows (pair_id), if the pairs are not in the first. Of a table with
        roles, its FIT rows.
    seed
        Seed of methods that draw random numbers.
    overwrite
        Replace an existing map.
    """
    from .baselines import make
    from .gate import MeasurementGate
    from .scale import fit_file

    _refuse_existing(out, overwrite)
    settings = _typed(method, set or {})
    model = make(method, **settings)
    if seed is not None:
        model.set_params(random_state=seed)
    if rank is not None:
        if "gate" not in model.get_params():
            raise UserError(f"{method} has no gate; --rank is for MGPA.")
        model.set_params(gate=MeasurementGate(rank=int(rank) if rank >= 1 else rank))
    if "verbose" in model.get_params():
        model.set_params(verbose=True)
    m = fit_file(model, table, pairs=pairs, verbose=True).to_map()
    m.save(out, overwrite=overwrite)
    _show({"map": str(out), **_map_facts(m)}, m.summary(), json_)


@app.command
def apply(
    map: Path,
    table: Path,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    strength: float | None = None,
    overwrite: bool = False,
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
        A .parquet or .zarr file, or a folder of .parquet parts.
    strength
        Apply this multiple of the correction.
    overwrite
        Replace an existing output.
    scheduler
        Address of a Dask scheduler (tcp://…), or "local" for a cluster on this machine.
    """
    from .maps import load_map
    from .scale import apply_file, connect

    m = load_map(map)
    if strength is not None:
        m = m.with_strength(strength)
    with connect(scheduler) as client:
        n_rows = apply_file(m, table, out, overwrite=overwrite, client=client, verbose=True)
    _show({"table": str(out), "rows": n_rows}, f"{n_rows} rows corrected into {out}", json_)


@app.command
def audit(
    table: Path,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    methods: Annotated[list[str], Parameter(consume_multiple=True)] = ["leace", "closed_form_mgpa"],  # noqa: B006
    seeds: Annotated[list[int], Parameter(consume_multiple=True)] = [17, 29, 43],  # noqa: B006
    budget: float | None = None,
    cache: Path | None = None,
    jobs: int = 1,
    quick: bool = False,
    json_: AsJson = False,
) -> None:
    """Measure what corrections do, on participants they were not fitted on, and write a report.

    Example: mgpa audit recordings.parquet --out audit --methods leace closed_form_mgpa iterative_mgpa

    Parameters
    ----------
    table
        With source, participant and role columns; label for task utility, pair_id for pairs.
    out
        Folder for report.html, table.csv, table.tex and figures.
    methods
        Names (`mgpa methods`) or stored maps (*.safetensors).
    seeds
        Fits of methods that draw random numbers.
    budget
        Compare at this relative movement of the VAL rows instead of with complete maps.
    cache
        Folder of finished cells; by default inside the output folder. Running again goes on where it was.
    jobs
        Cells at a time.
    quick
        One reader network and 12 epochs instead of the paper's bank.
    """
    result = _run_audit(table, out, methods, seeds, budget, cache, jobs, quick)
    result.report(out / "report.html")
    result.to_csv(out / "table.csv")
    result.to_latex(out / "table.tex")
    result.figures(out / "figures")
    verdicts = {name: result.verdict(name) for name in result.methods[1:]}
    text = "\n".join(
        [
            str(result),
            "",
            *(f"{name}: {lines[0]}" for name, lines in verdicts.items()),
            *[lines[-1] for lines in verdicts.values()][:1],  # how sure that is
            f"\n{out / 'report.html'}",
        ]
    )
    _show(
        {"report": str(out / "report.html"), "estimates": _estimates(result), "verdicts": verdicts},
        text,
        json_,
    )


@app.command
def compare(
    table: Path,
    *,
    methods: Annotated[list[str], Parameter(consume_multiple=True)],
    against: str = "identity",
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    seeds: Annotated[list[int], Parameter(consume_multiple=True)] = [17, 29, 43],  # noqa: B006
    budget: float | None = None,
    jobs: int = 1,
    quick: bool = False,
    json_: AsJson = False,
) -> None:
    """Compare methods with one another: differences with paired intervals.

    Example: mgpa compare recordings.parquet --methods leace closed_form_mgpa --against leace --out audit

    Parameters
    ----------
    table, methods, seeds, budget, jobs, quick
        As in `mgpa audit`.
    against
        The method the others are compared with.
    out
        The same folder as `mgpa audit` used: finished cells are read from there.
    """
    result = _run_audit(table, out, methods, seeds, budget, None, jobs, quick)
    if against not in result.results:
        raise UserError(f"--against is {against!r}; audited are {', '.join(result.methods)}.")
    found = {
        name: {metric: result.contrast(name, against, metric) for metric in result.metrics}
        for name in result.methods
        if name != against
    }
    lines = [f"difference from {against}"]
    for name, row in found.items():
        lines.append(f"  {name}")
        lines += [f"    {metric:<8}{estimate:+.4f}" for metric, estimate in row.items()]
    plain = {name: {k: [e.value, e.low, e.high] for k, e in row.items()} for name, row in found.items()}
    _show({"against": against, "contrasts": plain}, "\n".join(lines), json_)


@app.command
def select(
    map: Path,
    table: Path,
    *,
    budget: float,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
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
    from .endpoint import BudgetNotAttained, movement_budget
    from .maps import load_map
    from .tablefiles import open_table

    _refuse_existing(out, overwrite)
    rows = open_table(table).read()
    rows = rows.rows("VAL") if rows.role is not None and (rows.role == "VAL").any() else rows
    X = rows.X if rows.X.ndim == 2 else rows.X.mean(axis=1)
    try:
        point = movement_budget(load_map(map), X, budget, source=rows.source)
        point.map.save(out, overwrite=overwrite)
    except BudgetNotAttained as error:
        raise UserError(str(error)) from None
    facts = {"map": str(out), "movement": point.movement, "strength": point.strength}
    if point.n_stages is not None:
        facts |= {"n_stages": point.n_stages, "fraction": point.fraction}
    _show(facts, "\n".join(f"{name:<10}{value}" for name, value in facts.items()), json_)


@app.command
def inspect(path: Path, *, json_: AsJson = False) -> None:
    """Say what a map or a table is.

    Example: mgpa inspect adapter.safetensors

    Parameters
    ----------
    path
        A stored map, or a table.
    """
    if path.suffix == ".safetensors" or (path / "model.json").is_file():
        from .maps import load_map

        m = load_map(path)
        _show(_map_facts(m), m.summary(), json_)
        return
    from .tablefiles import open_table

    file = open_table(path)
    facts: dict[str, Any] = {
        "rows": file.n_rows,
        "shape": list(file.shape),
        "dtype": str(file.dtype),
        "columns": list(file.columns),
        "parts": len(file.parts),
        **({"info": file.info} if file.info else {}),
    }
    counts = _counts(file)
    text = "\n".join(f"{name:<12}{value}" for name, value in facts.items())
    text += "".join(f"\n{name}: " + ", ".join(f"{k} {n}" for k, n in c.items()) for name, c in counts.items())
    _show(facts | {"counts": counts}, text, json_)


@app.command
def export(
    map: Path,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
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
    from .maps import load_map

    _refuse_existing(out, overwrite)
    kind = format or {".onnx": "onnx", ".pt": "torch", ".pth": "torch"}.get(out.suffix)
    if kind is None:
        raise UserError(f"{out.name} says neither ONNX (.onnx) nor torch (.pt); pass --format.")
    m = load_map(map)
    if kind == "onnx":
        m.to_onnx(out)
    else:
        import io

        import torch

        from ._files import write_atomically

        buffer = io.BytesIO()
        torch.save(m.to_torch().state_dict(), buffer)
        write_atomically(out, buffer.getvalue())
    print(out)


@app.command
def convert(
    table: Path,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    embedding: str | None = None,
    rename: Annotated[dict[str, str] | None, Parameter(help="As --rename.device source.")] = None,
    roles: bool = False,
    seed: int = 0,
    overwrite: bool = False,
) -> None:
    """Make a table of another one, or of a CSV file: name its columns, give participants roles.

    Example: mgpa convert raw.csv --out table.parquet --embedding f --rename.device source --roles

    Parameters
    ----------
    table
        A .csv file, or any table.
    out
        A .parquet, .npz or .zarr file.
    embedding
        The column with the embedding, or what its columns begin with (f for f0, f1, …).
    roles
        Give every participant one role: 40 % FIT, 20 % each VAL, HEAD and EVAL.
    seed
        Of the roles.
    overwrite
        Replace an existing table.
    """
    from dataclasses import replace

    from .tablefiles import open_table, write_table
    from .tables import Table, assign_roles

    _refuse_existing(out, overwrite)
    if table.suffix == ".csv":
        import pandas

        read = Table.from_frame(pandas.read_csv(table), embedding=embedding, rename=rename)
    else:
        read = open_table(table, embedding=embedding, rename=rename).read()
    if roles:
        read.require("participant")
        read = replace(read, role=assign_roles(read.participant, random_state=seed))
    write_table(read, out, overwrite=overwrite)
    print(f"{len(read)} rows with {', '.join(read.columns) or 'no columns'} in {out}")


@app.command
def simulate(
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    people: int = 24,
    events: int = 24,
    features: int = 16,
    sources: int = 2,
    tokens: int = 0,
    association: float = 0.85,
    seed: int = 0,
    overwrite: bool = False,
) -> None:
    """Write a table of simulated embeddings with a known device effect, to try things on.

    Example: mgpa simulate --out recordings.parquet

    Parameters
    ----------
    out
        A .parquet, .npz or .zarr file.
    people, events
        Participants, and events of each.
    features, tokens
        Width of the embedding; tokens per event, 0 for vectors.
    sources
        Number of devices.
    association
        How often, in FIT and VAL, the class decides the device.
    seed
        Of the random numbers.
    overwrite
        Replace an existing table.
    """
    from .simulate import simulate_table
    from .tablefiles import write_table

    table = simulate_table(
        people, events, features, sources, tokens=tokens, association=association, random_state=seed
    )
    write_table(table, out, overwrite=overwrite)
    print(f"{len(table)} rows of {people} participants and {sources} devices in {out}")


@app.command
def demo(*, out: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("mgpa-demo")) -> None:
    """Simulate recordings, fit a correction, apply it, and audit it against LEACE (half a minute).

    Example: mgpa demo --out mgpa-demo

    Parameters
    ----------
    out
        Folder for everything that is made.
    """
    out.mkdir(parents=True, exist_ok=True)
    table, adapter = out / "recordings.parquet", out / "adapter.safetensors"
    simulate(out=table, overwrite=True)
    fit(table, out=adapter, overwrite=True)
    apply(adapter, table, out=out / "corrected.parquet", overwrite=True)
    audit(table, out=out / "audit", quick=True)


@app.command
def methods(*, json_: AsJson = False) -> None:
    """List the methods that can be fitted, and what each needs.

    Example: mgpa methods
    """
    from dataclasses import asdict

    from .baselines import available

    table = available()
    _show({"methods": [asdict(m) for m in table]}, str(table), json_)


@app.command
def doctor(*, json_: AsJson = False) -> None:
    """Say what is installed, which devices there are, and how many threads will be used.

    Example: mgpa doctor
    """
    import importlib.metadata as metadata
    import platform

    packages = ["numpy", "scipy", "scikit-learn", "safetensors", "torch", "onnx", "onnxruntime", "pandas"]
    packages += [
        "matplotlib",
        "pyarrow",
        "zarr",
        "dask",
        "mne",
        "braindecode",
        "concept-erasure",
        "pyriemann",
    ]
    found: dict[str, str | None] = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    devices = ["cpu"]
    if found["torch"] is not None:
        import torch

        devices += [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    facts = {
        "mgpa": __version__,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "devices": devices,
        "packages": found,
    }
    text = "\n".join(f"{k:<18}{v}" for k, v in facts.items() if k != "packages")
    text += "\n" + "\n".join(f"  {name:<16}{version or 'not installed'}" for name, version in found.items())
    _show(facts, text, json_)


def _run_audit(
    table: Path,
    out: Path | None,
    names: list[str],
    seeds: list[int],
    budget: float | None,
    cache: Path | None,
    jobs: int,
    quick: bool,
) -> Any:
    from .audit import run
    from .maps import load_map
    from .tablefiles import open_table

    chosen = {Path(n).stem if n.endswith(".safetensors") else n: n for n in names}
    entries = {k: load_map(n) if n.endswith(".safetensors") else n for k, n in chosen.items()}
    readers = {"restarts": 1, "checkpoints": (12,)} if quick else None
    rows = open_table(table).read().require("source", "participant", "role")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        cache = out / "cells" if cache is None else cache
    return run(rows, entries, seeds=seeds, budget=budget, cache=cache, n_jobs=jobs, readers=readers)


def _estimates(result: Any) -> Any:
    return {
        name: {metric: [e.value, e.low, e.high] for metric, e in row.items()}
        for name, row in result.estimates.items()
    }


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


def _typed(method: str, settings: dict[str, str]) -> dict[str, Any]:
    """Read parameter values as TOML would: numbers, true and false, else text."""
    from .baselines import make

    known = make(method).get_params(deep=False)
    read = {}
    for name, text in settings.items():
        if name not in known:
            raise UserError(f"{method} has no parameter {name!r}; it has {', '.join(known)}.")
        try:
            read[name] = json.loads(text)
        except json.JSONDecodeError:
            read[name] = text
    return read


def _map_facts(m: Any) -> dict[str, Any]:
    info = m.info
    return {
        "kind": m.kind,
        "method": info.method,
        "features": m.n_features,
        "sources": list(info.source_names),
        "source_blind": m.source_blind,
        "strength": m.strength,
        "rows": info.n_rows,
        "contrasts": info.n_contrasts,
        "data": info.fingerprint,
    }


def _refuse_existing(path: Path, overwrite: bool) -> None:
    """Refuse before the work, not after it."""
    if path.exists() and not overwrite:
        raise UserError(f"{path} exists; pass --overwrite to replace it.")
    if not path.parent.is_dir():
        raise UserError(f"The folder {path.parent} does not exist; create it first.")


def _show(facts: dict[str, Any], text: str, as_json: bool) -> None:
    print(json.dumps(facts, indent=2, default=str) if as_json else text)
