"""Analyses beyond the paper, for any study.

They estimate how much of the difference between sources comes from measurement and how much from sampling
different participants or events, how many calibration pairs the results need, and how CORAL performs when
each token has its own map.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._common.files import claim, csv_lines, write_atomically
from ...estimators.tokens import token_mean
from .config import Study
from .load import load_study
from .recordings import Recordings
from .results import estimates
from .reuse import prepare
from .run import run_study
from .splits import Split, make_split, pairs_of, planned_gate, split_names

#: Numbers of calibration pairs to try; only those below the study's own number are used.
COUNTS = (10, 30, 100, 300, 1000)
OUTCOMES = ("S", "T_f", "worst", "control")
Rows = list[dict[str, Any]]


def study_splits(study: Study, workspace: Path) -> Iterator[tuple[str, Split]]:
    """Yield the name and the fitting data of each split of a study."""
    workspace = Path(workspace).resolve()
    claim(workspace, "settings.json")  # before recordings fill the folder: later runs refuse unclaimed ones
    recordings = Recordings(study, workspace, verbose=False)
    for name, rotation in split_names(study).items():
        if study.reuse is None:
            yield name, make_split(study, recordings, rotation)
        else:
            yield name, prepare(study, recordings, rotation)[1]


def source_split(split: Split, gate: Any) -> dict[str, float]:
    """Split the difference between two sources' FIT rows into a measurement part and a sampling part.

    This is the method of travelling subjects (Yamashita et al. 2019): pairs show how the measurement changes
    the same event. The remaining difference between the means comes from the participants or events sampled
    under each source.

    Parameters
    ----------
    split : Split
        A split with two sources. The pairs are the evaluated views: endpoints if contrasts are scaled.
    gate : Gate
        The unfitted measurement gate.

    Returns
    -------
    dict of str to float
        The lengths of ``difference`` = ``measurement`` + ``sampling``; the share of the squared difference
        along each part (``measured`` and ``sampled``, which sum to one); and, for each of the three vectors,
        the share of its squared length inside the gate of rank ``rank``.

    Examples
    --------
    >>> from mgpa.coordinates import fit_coordinates
    >>> from mgpa.gate import MeasurementGate
    >>> from mgpa.tables import Table
    >>> first = np.array([[0.0, 0.0], [0.0, 2.0]])
    >>> rows = np.concatenate([first, first + [1.0, 3.0]])
    >>> table = Table(rows, source=[0, 0, 1, 1], role=["FIT"] * 4)
    >>> split = Split(table, fit_coordinates(table.X), (first, first + [1.0, 0.0]))
    >>> found = source_split(split, MeasurementGate(1))
    >>> [round(found[name], 3) for name in ("difference", "measurement", "sampling", "measured")]
    [3.162, 1.0, 3.0, 0.1]
    """
    fit = split.table.rows("FIT")
    X = np.asarray(token_mean(fit.X) if fit.X.ndim == 3 else fit.X, dtype=np.float64)
    first, second = (X[fit.source == source].mean(axis=0) for source in fit.sources)
    calibration = split.contrasts or pairs_of(fit)
    full, seen = (_mean_contrasts(pairs) for pairs in (calibration, split.endpoints or calibration))
    basis = gate.fit(full).basis_ if split.gate is None else split.gate.basis
    parts = {"difference": second - first, "measurement": seen.mean(axis=0)}
    parts["sampling"] = parts["difference"] - parts["measurement"]
    squared = float(parts["difference"] @ parts["difference"])
    facts = {name: float(np.linalg.norm(part)) for name, part in parts.items()}
    facts["measured"] = float(parts["measurement"] @ parts["difference"]) / squared
    facts["sampled"] = 1.0 - facts["measured"]
    for name, part in parts.items():
        length = float(part @ part)
        seen_part = length > 1e-12 * squared  # shorter vectors are rounding error and have no direction
        facts[f"gate_{name}"] = float(np.sum((part @ basis) ** 2)) / length if seen_part else float("nan")
    return facts | {"rank": float(basis.shape[1]), "pairs": float(len(seen))}


def _mean_contrasts(pairs: Any) -> NDArray[np.float64]:
    moved = np.subtract(pairs[1], pairs[0], dtype=np.float64)
    return np.asarray(token_mean(moved) if moved.ndim == 3 else moved)


def split_sources(study: Study, workspace: Path) -> Rows:
    """Return one row for each split of a study: the result of :func:`source_split`."""
    return [
        {"study": study.name, "split": name, **source_split(split, planned_gate(study))}
        for name, split in study_splits(study, workspace)
    ]


def pairs_needed(
    which: str | Path,
    workspace: Path,
    *,
    counts: Sequence[int] = COUNTS,
    seeds: Sequence[int] = (0,),
    device: str = "auto",
    **options: Any,
) -> Rows:
    """Run a study's complete MGPA maps (closed form and iterative) with fewer calibration pairs.

    Parameters
    ----------
    which, options
        As for :func:`mgpa.paper.load_study`.
    workspace : path
        Shared by all runs: recordings, tables and cells.
    counts, seeds : sequence of int
        Numbers of pairs to keep (those below the study's own number), and the seeds that choose the pairs.

    Returns
    -------
    list of dict
        One row for each number of pairs, seed, task, method and outcome, with its interval. The rows with
        all pairs come last.
    """
    base = load_study(which, **options)
    complete = [(m.method, name) for name, m in base.methods.items() if m.budget is None]
    selected = {kind: name for kind, name in reversed(complete) if kind.endswith("mgpa")}  # the first of each
    dropped = dict.fromkeys((name for name in base.methods if name not in selected.values()), False)
    splits = (split for _, split in study_splits(base, workspace))
    sizes = [len((split.contrasts or pairs_of(split.table.rows("FIT")))[0]) for split in splits]
    plans: list[tuple[int | None, int]] = [(n, seed) for n in counts if n < min(sizes) for seed in seeds]
    rows: Rows = []
    for n, seed in [*plans, (None, 0)]:
        changed = load_study(which, **options, methods=dropped, gate={"pairs": n, "pairs_seed": seed})
        result = run_study(changed, workspace, device=device, verbose=False)
        rows += [
            {"study": base.name, "pairs": n or min(sizes), "seed": seed}
            | {key: row[key] for key in ("task", "method", "metric", "value", "low", "high")}
            for row in estimates(result)
            if row["metric"] in OUTCOMES
        ]
    return rows


def coral_of_each_token(which: str | Path, workspace: Path, *, device: str = "auto", **options: Any) -> Rows:
    """Compare CORAL of the token mean, as in the paper, with CORAL of each token separately.

    Returns one row for each method and metric, with its interval, or no rows if the study has no CORAL of
    tokens.
    """
    base = load_study(which, **options)
    corals = {name: m for name, m in base.methods.items() if m.method == "coral"}
    if not base.gate.tokens or not corals:
        return []
    methods: dict[str, Any] = dict.fromkeys((name for name in base.methods if name not in corals), False)
    for name, method in corals.items():
        each = {"method": "coral", "parameters": method.parameters, "tokens": "each"}
        methods[f"{name}, each token"] = each
    result = run_study(load_study(which, **options, methods=methods), workspace, device=device, verbose=False)
    heads = ("method", "metric", "value", "low", "high")
    return [{"study": base.name} | {key: row[key] for key in heads} for row in estimates(result)]


def write_beyond(which: str | Path, out: Path, *, device: str = "auto", **options: Any) -> list[Path]:
    """Write ``sources.csv``, ``pairs.csv`` and, for studies of tokens, ``tokens.csv``; return the paths."""
    workspace = Path(out) / "work"
    tables = {
        "sources.csv": split_sources(load_study(which, **options), workspace),
        "pairs.csv": pairs_needed(which, workspace, device=device, **options),
        "tokens.csv": coral_of_each_token(which, workspace, device=device, **options),
    }
    texts = {
        name: csv_lines([[*rows[0]], *([*row.values()] for row in rows)])
        for name, rows in tables.items()
        if rows
    }
    return [write_atomically(claim(out, name)[0], text.encode()) for name, text in texts.items()]
