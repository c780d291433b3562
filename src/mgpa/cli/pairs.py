"""The command that looks at pairs before anything is fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from .._common.progress import waiting
from .application import AnyPlace, AsJson, MaybePlace, Seed, UserError, app, refuse_existing, show


@app.command(name="check-pairs")
def check_pairs(
    table: AnyPlace,
    *,
    pairs: MaybePlace = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    overwrite: bool = False,
    seed: Seed = 0,
    json_: AsJson = False,
) -> None:
    """Say whether pairs show anything, and whether it is what differs in the rows.

    Example: mgpa check-pairs recordings.parquet --out pairs.png

    Parameters
    ----------
    table
        Embeddings with a source for every row; of a table with roles, its FIT rows count.
    pairs
        A second table with paired rows (pair_id), if the pairs are not in the first.
    out
        A figure of how much of held-out pairs gates of growing rank hold (.png, .pdf or .svg).
    overwrite
        Replace an existing figure.
    seed
        Seed of the exchanges of views between events that the pairs are compared with.
    """
    with waiting("check-pairs: loading"):
        from ..audit.pair_check import check_pairs as check
        from ..audit.plots import plot_pairs

    if out is not None:
        refuse_existing(out, overwrite, table, pairs)
        if out.suffix not in (".png", ".pdf", ".svg"):
            raise UserError(f"{out.name} names no figure; end it in .png, .pdf or .svg.")
    with waiting("check-pairs: fitting"):
        found = check(table, pairs, random_state=seed, verbose=True)
    if out is not None:
        plot_pairs(found).savefig(out)
    show(found.to_dict(), str(found), json_)
