"""Commands that run studies on recordings or a table and write tables, figures and a report."""

from __future__ import annotations

import csv
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from ..._common.markup import text_table
from ..._common.progress import waiting
from ...cli.application import AsJson, Folder, Scheduler, app, show

study = App(name="study", help="Run a packaged study or your own, from recordings to tables and a report.")
app.command(study)

Which = Annotated[str, Parameter(help="The name of a packaged study (`mgpa study list`), or a TOML file.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Inputs of a study.

    Parameters
    ----------
    data
        Folder with the provider's recordings (or a table). Without it, packaged studies simulate recordings.
    checkpoint
        File with the encoder's weights, for offline machines.
    quick
        Use the settings of the study's [quick] section, for a run of minutes.
    """

    data: Path | None = None
    checkpoint: Path | None = None
    quick: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The inputs as arguments of :func:`mgpa.paper.load_study`."""
        return {"recordings": self.data, "checkpoint": self.checkpoint, "quick": self.quick}


#: The default inputs.
NO_INPUTS = Inputs()


@study.command(name="list")
def list_(*, json_: AsJson = False) -> None:
    """List the packaged studies.

    Example: mgpa study list
    """
    from ..studies.load import presets

    titles = presets()
    show({"studies": titles}, "\n".join(f"{name:<18}{title}" for name, title in titles.items()), json_)


@study.command(name="show")
def show_(which: Which) -> None:
    """Print a study as TOML, to edit and run; "template" is for your own table.

    Example: mgpa study show template > mine.toml
    """
    from ..studies.load import read_study

    print(read_study(which)[0], end="")


@study.command
def plan(
    which: Which,
    *,
    out: Folder,
    inputs: Inputs = NO_INPUTS,
    json_: AsJson = False,
) -> None:
    """Check all requirements of a study and count its cells, without computing.

    Example: mgpa study plan controlled-ssvep --quick --out controlled

    Parameters
    ----------
    out
        The output folder of the run.
    """
    from ..._common.files import claim
    from ..studies.load import load_study
    from ..studies.recordings import Recordings
    from ..studies.run import plan_study

    claim(out)
    chosen = load_study(which, **inputs.options)
    cells = plan_study(chosen, out / "work")
    origin = Recordings(chosen, out / "work").origin
    text = [f"{n:>5} cells  {name}" for name, n in cells.items()]
    needs = chosen.needs
    if needs.disk and not inputs.quick:
        text.append(f"Needs about {needs.disk:g} GB of disk and {needs.memory:g} GB of memory.")
    text.append(f"Ready to run. Data: {origin}.")
    if chosen.encoder is not None and chosen.encoder.checkpoint == "paper":
        text.append("Weights are downloaded at the start of the run; offline, pass --checkpoint FILE.")
    show({"cells": cells, "data": origin}, "\n".join(text), json_)


@study.command
def run(
    which: Which,
    *,
    out: Folder,
    inputs: Inputs = NO_INPUTS,
    jobs: int = 1,
    scheduler: Scheduler = None,
    device: str = "auto",
    json_: AsJson = False,
) -> None:
    """Run a study, or continue one that was interrupted; finished cells are not computed again.

    Example: mgpa study run controlled-ssvep --quick --out controlled

    Parameters
    ----------
    out
        Folder for report.html, tables, figures and provenance.json; it must be new, empty, or from an earlier
        run. Finished cells are kept in it. Workers of a scheduler must share it.
    jobs
        Number of cells computed in parallel on this machine.
    device
        Device for training networks: auto, cpu, cuda.
    """
    with waiting("study: loading"):
        from ..._common.files import claim
        from ...tables.scale import connect
        from ..studies.load import load_study
        from ..studies.results import write_results
        from ..studies.run import run_study

        claim(out)
        chosen = load_study(which, **inputs.options)
    with connect(scheduler) as client:
        result = run_study(chosen, out / "work", n_jobs=jobs, client=client, device=device)
    with waiting("study: writing tables, figures and the report"):
        reports = write_results(result, out, command=shlex.join(["mgpa", *sys.argv[1:]]))
    facts = {
        "report": str(reports[0]),
        "reports": [*map(str, reports)],
        "folder": str(out),
        "heading": result.heading,
        "digest": result.digest,
    }
    text = [f"{task}\n{audit}" if task else str(audit) for task, audit in result.audits.items()]
    text += [f"{name} is left out: {why}." for name, why in result.omitted.items()]
    if result.deviations:
        text.append(f"{result.heading}, not a reproduction: {'; '.join(result.deviations)}.")
    show(facts | {"deviations": result.deviations}, "\n\n".join([*text, "\n".join(map(str, reports))]), json_)


@study.command
def paper(*folders: Path, out: Folder, published: bool = False) -> None:
    """Write the paper's tables 1 to 11 and figures 2 to 4, with your numbers beside the published ones.

    Example: mgpa study paper controlled temporal recorded reuse --out paper

    Parameters
    ----------
    folders
        Output folders of the packaged studies. Columns of other studies show only the paper's numbers.
    out
        Folder for paper.html, table_1.tex, numbers.csv, figure_3.pdf and so on.
    published
        Compute tables 3, 10 and 11 from the published participant values, without recordings.
    """
    from ..studies.paper import write_paper

    paths = write_paper(folders, out, published=published)
    print(f"{out / 'paper.html'} and {len(paths) - 1} more files")


@study.command
def beyond(
    which: Which,
    *,
    out: Folder,
    inputs: Inputs = NO_INPUTS,
    device: str = "auto",
) -> None:
    """Run analyses beyond the paper: measurement or sampling, number of pairs, CORAL of each token.

    Example: mgpa study beyond temporal-n170 --quick --out beyond

    Parameters
    ----------
    out
        Folder for sources.csv, pairs.csv and, for tokens, tokens.csv; finished cells are kept in it.
    device
        Device for training networks: auto, cpu, cuda.
    """
    from ..studies.beyond import write_beyond

    for path in write_beyond(which, out, device=device, **inputs.options):
        rows = csv.reader(path.read_text("utf-8").splitlines())
        print(path, *text_table([list(map(_rounded, row)) for row in rows]), "", sep="\n")


def _rounded(cell: str) -> str:
    """Return a cell of a CSV file, with decimal numbers rounded to three digits."""
    try:
        return f"{float(cell):.3f}" if set(".e") & set(cell) else cell
    except ValueError:
        return cell


@study.command
def attack(
    which: Which,
    *variations: str,
    out: Folder,
    inputs: Inputs = NO_INPUTS,
    device: str = "auto",
) -> None:
    """Vary seeds, effect, gate, anchor and readers of a study, and list the conclusions that hold.

    Example: mgpa study attack temporal-n170 --quick --out attack

    Parameters
    ----------
    variations
        Names of variations, such as 'gate energy 0.8'; by default all of them. Leaving out
        each participant in turn is always among them.
    out
        Folder for attack.csv; finished cells are kept in it.
    device
        Device for training networks: auto, cpu, cuda.
    """
    from ..studies.attack import attack_study, summary

    rows = attack_study(which, out, names=variations, device=device, **inputs.options)
    print(summary(rows))
    print(f"{rows[0]['run']}; {out / 'attack.csv'}")
