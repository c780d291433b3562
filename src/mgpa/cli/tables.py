"""Commands that describe a file and convert tables."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from .._common.progress import waiting
from ..errors import first_few, printable
from . import application as shared
from .application import AS_IT_IS, AnyOut, AnyPlace, AsJson, Overwrite, Seed, TableOptions, app
from .corrections import map_facts

FEW_PAIRED = 8  # minimum number of participants with pairs; if fewer, all of them are FIT


@app.command
def inspect(path: AnyPlace, *, reading: TableOptions = AS_IT_IS, json_: AsJson = False) -> None:
    """Describe a map or a table.

    Example: mgpa inspect adapter.safetensors

    Parameters
    ----------
    path
        A stored map, or a table.
    """
    if path.suffix == ".safetensors" or (isinstance(path, Path) and (path / "model.json").is_file()):
        from ..maps import load_map

        m = load_map(path)
        shared.show(map_facts(m), m.summary(), json_)
        return
    file = reading.open(path)
    facts = {
        "rows": file.n_rows,
        "shape": list(file.shape),
        "dtype": str(file.dtype),
        "columns": list(file.columns),
        "parts": len(file.parts),
        **({"info": file.info} if file.info else {}),
    }
    counts = _counts(file)
    summary = facts | {"columns": first_few(list(file.columns))}
    lines = [f"{name:<12}{_shortened(value)}" for name, value in summary.items()]
    lines += [f"{name}: " + first_few([f"{k} {n}" for k, n in c.items()], 12) for name, c in counts.items()]
    shared.show(facts | {"counts": counts}, "\n".join(map(printable, lines)), json_)


@app.command
def convert(
    table: AnyPlace,
    *more: AnyPlace,
    out: AnyOut,
    reading: TableOptions = AS_IT_IS,
    roles: bool = False,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Convert a table or CSV files: rename columns, assign roles to participants.

    Example: mgpa convert raw.csv --out table.parquet --embedding f --rename.device source --roles

    Parameters
    ----------
    table
        A .csv, .tsv or .txt file, or any table; also a URL (s3://…, gs://…, https://…, hf://…).
    more
        More files with the same columns, for example one per instrument or site, to concatenate. Without a
        source column, the file name is the source of its rows.
    out
        A .parquet, .npz or .csv file; also a URL (s3://…, gs://…).
    roles
        Assign one role to every participant: 40 % FIT, 20 % each VAL, HEAD and EVAL. The roles are balanced
        over sources, labels and the presence of pairs. If fewer than eight participants have pairs, and
        at least as many have none, those with pairs are FIT.
    """
    from dataclasses import replace

    from ..tables.columns import feature_names
    from ..tables.files import format_from_name, write_table

    shared.refuse_existing(out, overwrite, table, *more)
    format_from_name(out)  # raise errors before reading the table
    with waiting("convert: reading"):
        read = reading.open([table, *more] if more else table).read()
    wanted = ("source", "participant", "label", *(() if more else ("pair_id",)))
    if missing := [name for name in wanted if name not in read.columns]:
        example = "device source" if missing[0] == "source" else f"NAME {missing[0]}"
        print(f"mgpa: No {', '.join(missing)} yet: --rename.{example} ...", file=sys.stderr)
    if more:
        print(printable(f"mgpa: {_about_stacked(read, [table, *more])}"), file=sys.stderr)
    if roles:
        read.require("participant")
        read = replace(read, role=_roles_of(read, seed))
    with waiting("convert: writing"):
        write_table(read, out, overwrite=overwrite)
    names = feature_names(read.info)
    features = f" of {len(names)} features ({names[0]} … {names[-1]})" if names else ""
    print(printable(f"{len(read)} rows{features} with {', '.join(read.columns) or 'no columns'} in {out}"))


def _roles_of(rows: Any, seed: int) -> Any:
    """Return roles balanced over sources, labels and the presence of pairs.

    If few participants have pairs (:data:`FEW_PAIRED`), all of them are FIT, where pairs are needed.
    """
    import numpy as np

    from ..audit.design import columns_only, find_design, units_with_pairs
    from ..tables import assign_roles

    if rows.source is None:
        return assign_roles(rows.participant, random_state=seed)
    units, paired = find_design(columns_only(rows)).units, units_with_pairs(rows)
    alike = [f"{units[who]} {who in paired}" for who in rows.participant.tolist()]
    roles = assign_roles(rows.participant, stratify=alike, random_state=seed)
    are_few = len(paired) < FEW_PAIRED and 2 * len(paired) <= len(units)
    few = sorted(paired) if are_few else []
    return np.where(np.isin(rows.participant, few), "FIT", roles)


def _about_stacked(rows: Any, files: list[Any]) -> str:
    """Return a sentence on the origin of source and pairs of rows from several files."""
    names = [file.stem for file in files]
    by_name = sorted({*names}) == rows.sources.tolist()
    text = f"The rows of {len(files)} files follow each other; "
    text += f"the source is the name of the file ({', '.join(names)}); " if by_name else ""
    if rows.pair_id is None:
        return f"{text}no pairs: if a column names the sample in every file, add --rename.COLUMN pair_id."
    views = rows.paired_views() if len(rows.sources) == 2 else None
    n_pairs = f"{len(views[0])} pairs: " if views else ""
    return f"{text}{n_pairs}rows with the same pair_id are views of one event."


def _shortened(value: Any) -> Any:
    """Return the info of a file, with long lists and texts shortened."""
    if isinstance(value, dict):
        return {key: _shortened(inner) for key, inner in value.items()}
    if isinstance(value, str) and "\n" in value:
        return f"{value.splitlines()[0]} …"
    if isinstance(value, list | tuple) and len(value) > 5:
        return first_few([str(entry) for entry in value], 5)
    return value


def _counts(file: Any) -> dict[str, dict[str, int]]:
    """Return the number of rows of each source, role and label over all parts."""
    counts = {name: Counter[str]() for name in ("source", "role", "label") if name in file.columns}
    for part in file.parts:
        columns = part.read().columns
        for name, total in counts.items():  # labels may have missing values
            total.update("missing" if value is None else str(value) for value in columns[name].tolist())
    return {name: dict(sorted(total.items())) for name, total in counts.items()}
