"""The demonstration: one case from a file to a report."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from .._common.files import claim
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
        from ..tables import simulate_table

        if eeg:
            from ..eeg.demo import demo_table

            rows = demo_table(claim(out, "raw/truth.json")[0].parent)
        else:
            rows = simulate_table(60)
        lines, page = _from_table(rows, out)
    print("\n".join(lines))
    if not eeg:
        print("From raw EEG files: mgpa demo --eeg --out mgpa-demo-eeg")
    if sys.stdout.isatty() if open_ is None else open_:
        webbrowser.open(page.resolve().as_uri())


def _from_table(rows: Any, out: Path) -> tuple[list[str], Path]:
    """Fit, apply and audit; return what to print, and the report."""
    from ..audit import run
    from ..front import MGPA
    from ..tables import correct_file, fit_table, write_table

    table, adapter, corrected = claim(out, "recordings.parquet", "adapter.safetensors", "corrected.parquet")
    write_table(rows, table, overwrite=True)
    m = fit_table(MGPA(), table).to_map()
    m.save(adapter, overwrite=True)
    correct_file(m, table, corrected, overwrite=True)
    [page] = claim(out / "audit", "report.html")
    quick = {"bank": "full", "restarts": 1, "checkpoints": (12,)}
    audit = run(rows, {"mgpa": MGPA()}, readers=quick, cache=out / "audit" / "cells", verbose=False)
    audit.report(page)
    before, after = (audit.estimates[name] for name in ("identity", "mgpa"))

    def change(metric: str) -> str:
        return f"{before[metric].value:.2f} → {after[metric].value:.2f}".replace("0.", ".")

    worst = [f"Decoder that learned the device, where that misleads it          {change('worst')}"]
    return [
        f"{len(set(rows.participant.tolist()))} people, two devices, {len(rows)} embeddings: {table}",
        "",
        f"Device readable from the embedding (AUROC, .5 is chance)         {change('S')}",
        *(worst if "worst" in before else []),
        f"Decoder as it was, on everything else                            {change('T_f')}",
        f"Cost: rows move by {100 * after['M'].value:.0f} % of their length",
        "",
        f"Report     {page}",
        f"Map        {adapter}",
        f"Corrected  {corrected}",
        "",
        "The same by hand:",
        f"  mgpa fit {table} --out {adapter} --overwrite",
        f"  mgpa apply {adapter} {table} --out {corrected} --overwrite",
        f"  mgpa audit {table} --out {out / 'audit'} --methods mgpa --quick",
    ], page
