"""Commands that make tables, and a demonstration of all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from .._common.progress import waiting
from ..errors import printable
from .application import AnyOut, AnyPlace, Folder, Seed, app, refuse_existing
from .audits import audit
from .corrections import apply, fit
from .simulations import table as simulate_table

RENAME = """As --rename.device source; a name with a dot in it as --rename '{"Sample No.": "pair_id"}'."""


@app.command
def convert(
    table: AnyPlace,
    *,
    out: AnyOut,
    embedding: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    rename: Annotated[dict[str, str] | None, Parameter(help=RENAME)] = None,
    columns: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    roles: bool = False,
    seed: Seed = 0,
    overwrite: bool = False,
) -> None:
    """Make a table of another one, or of a CSV file: name its columns, give participants roles.

    Example: mgpa convert raw.csv --out table.parquet --embedding f --rename.device source --roles

    Parameters
    ----------
    table
        A .csv, .tsv or .txt file, or any table; also by an address (s3://…, gs://…, https://…, hf://…).
    out
        A .parquet, .npz or .csv file; also by an address (s3://…, gs://…).
    embedding
        The column with the embedding, what its columns begin with (f for f0, f1, …), or several columns
        (--embedding alpha beta).
    columns
        Keep only these columns besides the embedding, by the names they have in the file.
    roles
        Give every participant one role: 40 % FIT, 20 % each VAL, HEAD and EVAL.
    seed
        Of the roles.
    overwrite
        Replace an existing table.
    """
    from dataclasses import replace

    from ..tables import assign_roles
    from ..tables.files import format_from_name, open_table, write_table

    refuse_existing(out, overwrite, table)
    format_from_name(out)  # before the work, not after it
    named = embedding[0] if embedding is not None and len(embedding) == 1 else embedding
    with waiting("convert: reading"):
        read = open_table(table, embedding=named, rename=rename, columns=columns).read()
    if roles:
        read.require("participant")
        read = replace(read, role=assign_roles(read.participant, random_state=seed))
    with waiting("convert: writing"):
        write_table(read, out, overwrite=overwrite)
    print(printable(f"{len(read)} rows with {', '.join(read.columns) or 'no columns'} in {out}"))


@app.command
def demo(*, out: Folder = Path("mgpa-demo")) -> None:
    """Simulate recordings, fit a correction, apply it, and audit it against LEACE (half a minute).

    Example: mgpa demo --out mgpa-demo

    Parameters
    ----------
    out
        Folder for everything that is made.
    """
    out.mkdir(parents=True, exist_ok=True)
    table, adapter = out / "recordings.parquet", out / "adapter.safetensors"
    simulate_table(out=table, people=80, overwrite=True)  # sixteen of them to judge by
    fit(table, out=adapter, overwrite=True)
    apply(adapter, table, out=out / "corrected.parquet", overwrite=True)
    audit(table, out=out / "audit", quick=True)
