"""Test the robustness of a study: vary its analysis choices and compare the conclusions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..._common.files import claim, csv_lines, write_atomically
from ..._common.progress import tell
from .config import Study
from .load import load_study
from .results import contrasts
from .run import StudyResult, run_study

LEFT_OUT = "one participant left out"


def attacks(study: Study) -> dict[str, dict[str, Any]]:
    """Return the variations of a study by name: other seeds, effect strengths, gates, anchors and readers.

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
    if study.roles.rotations:
        changes |= {f"split seed {seed}": {"roles": {"seed": seed}} for seed in (1, 2)}
    if study.endpoints.association is not None:
        changes |= {f"assignment seed {seed}": {"endpoints": {"seed": seed}} for seed in (1, 2)}
    if study.reuse is not None:
        changes["assignment seeds 1 and 2"] = {"reuse": {"fit_seed": 1, "development_seed": 2}}
    if study.endpoints.gamma != 1:
        for factor in (0.5, 2.0):
            changes[f"gamma {factor:g} times"] = {"endpoints": {"gamma": factor * study.endpoints.gamma}}
    word, ranks = ("energy", (0.8, 0.95)) if isinstance(study.gate.rank, float) else ("rank", (4, 16))
    changes |= {f"gate {word} {rank:g}": {"gate": {"rank": rank}} for rank in ranks}
    closed = [name for name, m in study.methods.items() if m.method == "closed_form_mgpa"]
    if closed:
        usual = {"anchor": "within", "ridge": "auto", "do_no_harm": True}
        within = {name: {"parameters": usual} for name in closed}
        changes["anchor within sources"] = {"methods": within}
    return changes


def attack_study(
    which: str | Path, out: Path, *, names: Sequence[str] = (), device: str = "auto", **options: Any
) -> list[dict[str, Any]]:
    """Run a study and its variations; write and return one row for each declared contrast and variation.

    ``which`` and ``options`` are passed to :func:`mgpa.paper.load_study`. ``names`` selects variations; an
    empty selection runs all of them. The rows are written to ``attack.csv`` in ``out``; all runs share the
    finished cells there.
    """
    base = load_study(which, **options)
    changes = attacks(base)
    unknown = [name for name in names if name not in changes]
    if unknown:
        raise ValueError(f"No variation {unknown[0]!r}. Variations: {', '.join(changes)}.")
    [path] = claim(out, "attack.csv")
    first = run_study(base, Path(out) / "work", device=device)
    declared = _contrasts(first)
    rows = [*_rows("as declared", declared, declared, first.heading), *_left_out(first, declared)]
    chosen = names or list(changes)
    for i, name in enumerate(chosen, start=1):
        tell(f"attack: variation {i} of {len(chosen)}, {name}\n")
        varied = run_study(load_study(which, **options, **changes[name]), Path(out) / "work", device=device)
        rows += _rows(name, _contrasts(varied), declared, varied.heading)
        heads = list(rows[0])
        write_atomically(path, csv_lines([heads, *([row[h] for h in heads] for row in rows)]).encode())
    return rows


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return as text how many conclusions stay, move or turn under each variation, and which ones change."""
    words, lines = ("stays", "same", "moves", "turns"), []
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        if row["conclusion"] != "declared":
            counts.setdefault(row["variation"], Counter())[row["conclusion"]] += 1
    lines.append(f"{'variation':<26}" + "".join(f"{word:>7}" for word in words))
    lines += [f"{name:<26}" + "".join(f"{count[w]:>7}" for w in words) for name, count in counts.items()]
    for row in rows:
        if row["conclusion"] in ("moves", "turns"):
            name = f"{row['task']} {row['method']} − {row['against']}, {row['metric']}".strip()
            change = f"{row['declared']:+.3f} → {row['value']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
            lines.append(f"{row['conclusion']} with {row['variation']}: {name}: {change}")
    return "\n".join(lines)


def _contrasts(result: StudyResult) -> dict[tuple[str, ...], tuple[float, float, float]]:
    """Return value, lower and upper limit of each declared contrast of a study's outcomes."""
    outcomes = {"worst"} if result.study.reuse is not None else {"S", "T_f"}
    return {
        (r["task"], r["method"], r["against"], r["metric"]): (r["value"], r["low"], r["high"])
        for r in contrasts(result)
        if r["metric"] in outcomes
    }


def _left_out(result: StudyResult, declared: dict[Any, Any]) -> list[dict[str, Any]]:
    """Return the range of each contrast over analyses that leave out one EVAL participant."""
    ranges = {}
    for task, a, b, metric in declared:
        audit = result.audits[task]
        without = audit[a].influence(metric) - audit[b].influence(metric)
        ranges[task, a, b, metric] = float(without.mean()), float(without.min()), float(without.max())
    return _rows(LEFT_OUT, ranges, declared, result.heading)


def _rows(variation: str, varied: Any, declared: Any, heading: str) -> list[dict[str, Any]]:
    """Return one row for each declared contrast under a variation: stays, moves, turns or same."""
    heads = ("task", "method", "against", "metric", "variation", "value", "low", "high", "declared")
    rows = []
    for key in (key for key in varied if key in declared):
        word = conclusion(varied[key], declared[key], variation == LEFT_OUT)
        if varied[key] == declared[key]:  # for example, the seed of a reader does not change the task
            word = "declared" if variation == "as declared" else "same"
        row = dict(zip(heads, (*key, variation, *varied[key], declared[key][0]), strict=True))
        rows.append(row | {"conclusion": word, "run": heading})
    return rows


def conclusion(varied: Any, declared: Any, is_range: bool) -> str:
    """Return "stays", "moves" (clear in one of the runs only) or "turns" (clear in both, opposite signs).

    ``varied`` and ``declared`` are (value, low, high); a contrast is clear if its interval excludes zero. The
    range over left-out participants (``is_range``) is narrower than an interval: such a range can make a
    clear conclusion unclear, but cannot make an unclear one clear.
    """
    sign, before = (int(low > 0) - int(high < 0) for _, low, high in (varied, declared))
    if sign == before or (is_range and before == 0):
        return "stays"
    return "turns" if sign * before < 0 else "moves"
