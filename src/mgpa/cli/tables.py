"""Commands about tables: reading others' files, and checking pairs before anything is fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from .._common.progress import waiting
from ..errors import printable
from .application import (
    AS_IT_IS,
    AnyOut,
    AnyPlace,
    AsJson,
    MaybePlace,
    Overwrite,
    Seed,
    TableOptions,
    UserError,
    app,
    refuse_existing,
    show,
)


@app.command
def convert(
    table: AnyPlace,
    *,
    out: AnyOut,
    reading: TableOptions = AS_IT_IS,
    roles: bool = False,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Make a table from another one, or from a CSV file: name its columns, give participants roles.

    Example: mgpa convert raw.csv --out table.parquet --embedding f --rename.device source --roles

    Parameters
    ----------
    table
        A .csv, .tsv or .txt file, or any table; also by an address (s3://…, gs://…, https://…, hf://…).
    out
        A .parquet, .npz or .csv file; also by an address (s3://…, gs://…).
    roles
        Give every participant one role: 40 % FIT, 20 % each VAL, HEAD and EVAL.
    seed
        Of the roles.
    """
    from dataclasses import replace

    from ..tables import assign_roles
    from ..tables.files import format_from_name, write_table

    refuse_existing(out, overwrite, table)
    format_from_name(out)  # before the work, not after it
    with waiting("convert: reading"):
        read = reading.open(table).read()
    if roles:
        read.require("participant")
        read = replace(read, role=assign_roles(read.participant, random_state=seed))
    with waiting("convert: writing"):
        write_table(read, out, overwrite=overwrite)
    print(printable(f"{len(read)} rows with {', '.join(read.columns) or 'no columns'} in {out}"))


@app.command(name="check-pairs")
def check_pairs(
    table: AnyPlace,
    *,
    pairs: MaybePlace = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    json_: AsJson = False,
) -> None:
    """Check whether pairs show an effect, and whether it is what differs in the rows.

    Example: mgpa check-pairs recordings.parquet --out pairs.png

    Parameters
    ----------
    table
        Embeddings with a source for every row; if it has roles, its FIT rows are used.
    pairs
        A second table with paired rows (pair_id), if the pairs are not in the first.
    out
        A figure of how much of held-out pairs gates of growing rank hold (.png, .pdf or .svg).
    seed
        Seed of the permutations that the pairs are compared with.
    """
    with waiting("check-pairs: loading"):
        from ..audit.pair_check import check_pairs as check
        from ..audit.plots import plot_pairs

    if out is not None:
        refuse_existing(out, overwrite, table, pairs)
        if out.suffix not in (".png", ".pdf", ".svg"):
            raise UserError(f"{out.name} must end in .png, .pdf or .svg.")
    with waiting("check-pairs: fitting"):
        result = check(table, pairs, random_state=seed, verbose=True)
    if out is not None:
        plot_pairs(result).savefig(out)
    show(result.to_dict(), str(result), json_)
