"""The demonstration: one case from a file to a report."""

from __future__ import annotations

import sys
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from .._common.outputs import claim
from .._common.progress import waiting
from .application import Folder, app


@app.command
def demo(
    *,
    out: Folder = Path("mgpa-demo"),
    eeg: Annotated[bool, Parameter(negative="")] = False,
    open_: Annotated[bool | None, Parameter(name="--open")] = None,
) -> None:
    """Correct and audit simulated recordings of two headsets, in seconds.

    Example: mgpa demo

    Parameters
    ----------
    out
        Folder for everything that is made.
    eeg
        Begin with raw EEG files instead of embeddings.
    open_
        Open the report in a browser; by default if this is a terminal.
    """
    claim(out)
    with waiting("demo: from a file to a report"):
        if eeg:
            from ..eeg.demo import run_demo

            lines, page = run_demo(out)
        else:
            lines, page = _two_headsets(out)
    print("\n".join(lines))
    if sys.stdout.isatty() if open_ is None else open_:
        webbrowser.open(page.resolve().as_uri())


def _two_headsets(out: Path) -> tuple[list[str], Path]:
    """Simulate, fit, apply and audit; return what to print, and the report."""
    from .. import MGPA
    from ..audit import run
    from ..tables import correct_file, fit_table, open_table, simulate_table, write_table

    table, adapter, corrected, page = claim(
        out, "recordings.parquet", "adapter.safetensors", "corrected.parquet", "audit/report.html"
    )
    write_table(simulate_table(60), table, overwrite=True)
    m = fit_table(MGPA(), table).to_map()
    m.save(adapter, overwrite=True)
    correct_file(m, table, corrected, overwrite=True)
    claim(out / "audit", "report.html")
    rows = open_table(table).read()
    quick = {"bank": "full", "restarts": 1, "checkpoints": (12,)}
    audit = run(rows, {"mgpa": MGPA()}, readers=quick, cache=out / "audit" / "cells", verbose=False)
    audit.report(page)
    before, after = (audit.estimates[name] for name in ("identity", "mgpa"))

    def change(metric: str) -> str:
        return f"{before[metric].value:.2f} → {after[metric].value:.2f}".replace("0.", ".")

    people = len(set(rows.participant.tolist()))
    return [
        f"{people} people with a dry and a wet headset; {len(rows)} rows of {rows.X.shape[1]} features ({table})",
        "",
        f"Headset readable from the embedding (AUROC, .5 is chance)        {change('S')}",
        f"Decoder that learned the headset, where that misleads it         {change('worst')}",
        f"Decoder as it was, on everything else                            {change('T_f')}",
        f"Cost: rows move by {100 * after['M'].value:.0f} % of their length",
        "",
        f"Report     {page}",
        f"Map        {adapter}",
        f"Corrected  {corrected}",
        "",
        "The same by hand:",
        f"  mgpa fit {table} --out {adapter} --method mgpa --overwrite",
        f"  mgpa apply {adapter} {table} --out {corrected} --overwrite",
        f"  mgpa audit {table} --out {out / 'audit'} --methods mgpa --quick",
        *(["From raw EEG files: mgpa demo --eeg"] if find_spec("mgpa.eeg.demo") else []),
    ], page
