"""The demonstration."""

from __future__ import annotations

from pathlib import Path

from .._common.outputs import claim
from .application import Folder, app
from .audits import AuditOptions, audit
from .corrections import apply, fit
from .simulations import table as simulate_table


@app.command
def demo(*, out: Folder = Path("mgpa-demo")) -> None:
    """Simulate recordings, fit a correction, apply it, and audit it against LEACE (half a minute).

    Example: mgpa demo --out mgpa-demo

    Parameters
    ----------
    out
        Folder for everything that is made.
    """
    table, adapter, corrected = claim(out, "recordings.parquet", "adapter.safetensors", "corrected.parquet")
    simulate_table(out=table, people=80, overwrite=True)  # sixteen of them are EVAL
    fit(table, out=adapter, overwrite=True)
    apply(adapter, table, out=corrected, overwrite=True)
    audit(table, out=out / "audit", options=AuditOptions(quick=True))
