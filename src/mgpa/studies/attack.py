"""Attack a study: change what its authors could have chosen otherwise, and see which conclusions stay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._common.files import claim, csv_lines, write_atomically
from .config import Study, load_study
from .run import StudyResult, run_study


def attacks(study: Study) -> dict[str, dict[str, Any]]:
    """Return changes to a study by name: seeds, strength of the effect, gate, anchor, bank.

    Examples
    --------
    >>> list(attacks(load_study("temporal-n170")))[:3]
    ['reader seed 17', 'reader seed 1', 'full bank of readers']
    """
    changes: dict[str, dict[str, Any]] = {
        "reader seed 17": {"readers": {"seed": 17}},
        "reader seed 1": {"readers": {"seed": 1}},
        "full bank of readers": {"readers": {"bank": "full"}},
    }
    if study.roles.rotations or study.roles.shares:
        changes |= {f"split seed {seed}": {"roles": {"seed": seed}} for seed in (1, 2)}
    if study.endpoints.association is not None:
        changes |= {f"assignment seed {seed}": {"endpoints": {"seed": seed}} for seed in (1, 2)}
    if study.reuse is not None:
        seeds = {"fit_seed": 1, "development_seed": 2}
        changes["assignment seeds 1 and 2"] = {"reuse": seeds}
    if study.endpoints.gamma != 1:
        changes |= {
            f"gamma {factor:g} times": {"endpoints": {"gamma": factor * study.endpoints.gamma}}
            for factor in (0.5, 2.0)
        }
    if isinstance(study.gate.rank, float):
        changes |= {f"gate energy {rank:g}": {"gate": {"rank": rank}} for rank in (0.8, 0.95)}
    else:
        changes |= {f"gate rank {rank}": {"gate": {"rank": rank}} for rank in (4, 16)}
    closed = [name for name, m in study.methods.items() if m.method == "closed_form_mgpa"]
    if closed:
        within = {name: {"parameters": {"anchor": "within"}} for name in closed}
        changes["anchor within sources"] = {"methods": within}
    return changes


def attack_study(
    which: str | Path, out: Path, *, names: Sequence[str] = (), device: str = "auto", **options: Any
) -> list[dict[str, Any]]:
    """Run a study and its variations; return and write a row for each declared contrast and variation.

    ``which`` and ``options`` are those of :func:`mgpa.studies.load_study`; ``names`` are variations, all of
    them if empty. ``out`` gets ``attack.csv``; all runs share its cells.
    """
    base = load_study(which, **options)
    changes = attacks(base)
    unknown = [name for name in names if name not in changes]
    if unknown:
        raise ValueError(f"No variation {unknown[0]!r}. Variations: {', '.join(changes)}.")
    [path] = claim(out, "attack.csv")
    first = run_study(base, Path(out) / "work", device=device)
    rows = [*_rows("as declared", first, first), *_left_out(first)]
    for name in names or changes:
        varied = run_study(load_study(which, **options, **changes[name]), Path(out) / "work", device=device)
        rows += _rows(name, varied, first)
        heads = list(rows[0])
        write_atomically(path, csv_lines([heads, *([row[h] for h in heads] for row in rows)]).encode())
    return rows


def _contrasts(result: StudyResult) -> dict[tuple[str, ...], Any]:
    from .rows import contrasts

    outcomes = {"worst"} if result.study.reuse is not None else {"S", "T_f"}
    return {(r.task, r.method, r.against, r.metric): r for r in contrasts(result) if r.metric in outcomes}


def _rows(variation: str, result: StudyResult, base: StudyResult) -> list[dict[str, Any]]:
    """Return every declared contrast under a variation, and whether its sign and clearness stay."""
    declared, rows = _contrasts(base), []
    for key, row in _contrasts(result).items():
        if key in declared:
            rows.append(_row(variation, key, row.value, row.low, row.high, declared[key], result.heading))
    return rows


def _left_out(result: StudyResult) -> list[dict[str, Any]]:
    """Return the range of every contrast when one EVAL participant at a time is left out."""
    rows = []
    for key, declared in _contrasts(result).items():
        task, a, b, metric = key
        audit = result.audits[task]
        without = audit[a].influence(metric) - audit[b].influence(metric)
        ends = float(np.min(without)), float(np.max(without))
        rows.append(
            _row("one participant left out", key, float(np.mean(without)), *ends, declared, result.heading)
        )
    return rows


def _row(
    variation: str, key: Any, value: float, low: float, high: float, base: Any, heading: str
) -> dict[str, Any]:
    clear = low > 0 or high < 0
    same = value * base.value > 0
    stays = "stays" if same and clear == (base.low > 0 or base.high < 0) else "moves" if same else "turns"
    names = dict(zip(("task", "method", "against", "metric"), key, strict=True))
    return names | {
        "variation": variation, "value": value, "low": low, "high": high, "declared": base.value,
        "conclusion": stays, "run": heading,
    }  # fmt: skip
