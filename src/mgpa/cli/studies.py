"""Commands that run studies: from recordings, or a table, to tables, figures and a report."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from .._common.progress import waiting
from .application import AsJson, Folder, Overwrite, Scheduler, UserError, app, refuse_existing, show

study = App(
    name="study", help="Run a study from recordings to tables, figures and a report; or plan your own."
)
app.command(study)

Which = Annotated[str, Parameter(help="The name of a packaged study (`mgpa study list`), or a TOML file.")]
Recordings = Annotated[
    Path | None,
    Parameter(
        name="--data",
        help="Folder with the recordings, in their provider's files (or a table). Without it, packaged "
        "studies simulate theirs.",
    ),
]


@study.command(name="list")
def list_(*, json_: AsJson = False) -> None:
    """List the studies that come with the package.

    Example: mgpa study list
    """
    from ..studies import presets

    titles = presets()
    width = max(map(len, titles))
    show({"studies": titles}, "\n".join(f"{name:<{width}}  {title}" for name, title in titles.items()), json_)


@study.command
def run(
    which: Which,
    *,
    out: Folder,
    data: Recordings = None,
    quick: bool = False,
    jobs: int = 1,
    scheduler: Scheduler = None,
    device: str = "auto",
    json_: AsJson = False,
) -> None:
    """Run a study, or finish one that was interrupted; finished cells are never computed again.

    Example: mgpa study run controlled-ssvep --quick --out controlled

    Parameters
    ----------
    out
        Folder for report.html, tables, figures and provenance.json; finished cells are kept in it.
    quick
        A run of minutes, with less of everything, as the study's [quick] section says.
    jobs
        Cells at a time on this machine.
    device
        Where networks are trained: auto, cpu, cuda.
    """
    with waiting("study: loading"):
        from ..studies import load_study, run_study, write_results
        from ..tables.scale import connect

        chosen = load_study(which, recordings=data, quick=quick)
    with connect(scheduler) as client:
        result = run_study(chosen, out / "work", n_jobs=jobs, client=client, device=device)
    with waiting("study: writing tables, figures and the report"):
        report = write_results(result, out, command=shlex.join(["mgpa", *sys.argv[1:]]))
    facts = {"report": str(report), "folder": str(out), "simulated": chosen.simulated}
    text = [f"{task}\n{audit}" if task else str(audit) for task, audit in result.audits.items()]
    text += [f"{name} is left out: {why}." for name, why in result.omitted.items()]
    if chosen.simulated:
        text.append("The recordings are simulated.")
    show(facts, "\n\n".join([*text, str(report)]), json_)


@study.command
def plan(
    which: Which,
    *,
    out: Folder,
    data: Recordings = None,
    quick: bool = False,
    device: str = "auto",
    json_: AsJson = False,
) -> None:
    """Show what a study consists of, what of it is finished, and how long the rest may take.

    Example: mgpa study plan controlled-ssvep --quick --out controlled

    Parameters
    ----------
    quick, device
        As in `mgpa study run`.
    out
        The folder it is, or will be, run in.
    """
    from dataclasses import asdict

    from ..studies import load_study, plan_study

    cells = plan_study(load_study(which, recordings=data, quick=quick), out / "work", device=device)
    show(asdict(cells), str(cells), json_)


@study.command(name="map")
def map_(
    which: Which,
    cell: str | None = None,
    *,
    run: Annotated[Path, Parameter(help="The folder that the study was run in.")],
    out: Path | None = None,
    data: Recordings = None,
    quick: bool = False,
    device: str = "auto",
    overwrite: Overwrite = False,
    json_: AsJson = False,
) -> None:
    """Take the map of a finished cell out of a study, or list the cells.

    Example: mgpa study map controlled-ssvep MGPA-CF --quick --run controlled --out mgpa-cf.safetensors

    The map carries its coordinates and its encoder: `mgpa apply` takes the encoder's own features to it.

    Parameters
    ----------
    cell
        Split, method and fit, as "rotation 1/MGPA-Iter/0", or as much of that as names one cell. Left out,
        the names are printed.
    out
        Where to write the map.
    quick, device
        As in `mgpa study run`.
    """
    from ..studies import load_study
    from ..studies.cells import find_map, study_maps

    maps = study_maps(load_study(which, recordings=data, quick=quick), run / "work", device=device)
    if cell is None:
        show({"cells": list(maps)}, "\n".join(maps) or "No cell is finished.", json_)
        return
    if out is None:
        raise UserError("Say where the map should go: --out map.safetensors.")
    refuse_existing(out, overwrite)
    m = find_map(maps, cell)
    show({"map": str(m.save(out))}, f"{m.summary()}\n{out}", json_)


@study.command
def new(
    file: Path,
    *,
    table: Path = Path("embeddings.parquet"),
    title: str = "What the correction does to my embeddings",
    overwrite: Overwrite = False,
) -> None:
    """Write a commented TOML file to start from.

    Example: mgpa study new my-study.toml --table embeddings.parquet

    Parameters
    ----------
    file
        Where to write it.
    table
        Your embeddings; a path relative to the file.
    title
        For the report.
    """
    from importlib.resources import files

    from .._common.files import write_atomically

    if file.suffix != ".toml":
        raise UserError(f"{file} should end in .toml; that is how studies are known from names.")
    refuse_existing(file, overwrite)
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in file.stem).strip("-.")
    text = files("mgpa.studies").joinpath("template.toml").read_text("utf-8")
    values: dict[str, Any] = {"name": name or "study", "title": _quoted(title), "table": _quoted(str(table))}
    write_atomically(file, text.format(file=file.name, **values).encode())
    print(f"{file}: edit it, then mgpa study run {shlex.quote(str(file))} --out {shlex.quote(file.stem)}")


@study.command
def paper(*folders: Path, out: Folder) -> None:
    """Write the paper's tables 1 to 11 and figures 2 to 4, with what studies found beside what it prints.

    Example: mgpa study paper controlled temporal recorded reuse --out paper

    Parameters
    ----------
    folders
        Where the packaged studies were run. A study that is not there leaves its columns to the paper.
    out
        Folder for table_1.tex, .csv and .pdf, figure_3.pdf and so on.
    """
    from ..studies.paper import write_paper

    for path in write_paper(folders, out):
        print(path)


@study.command
def theory(*, out: Folder) -> None:
    """Write the theory figure of the paper and the numbers behind it.

    Example: mgpa study theory --out theory

    Parameters
    ----------
    out
        Folder for the figures and theory_numbers.json.
    """
    from ..studies.theory import write_figure

    for path in write_figure(out):
        print(path)


def _quoted(text: str) -> str:
    """Return text as it stands between quotes in TOML."""
    return json.dumps(text, ensure_ascii=False)[1:-1].replace("\x7f", "\\u007f")
