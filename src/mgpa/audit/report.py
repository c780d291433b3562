"""An audit as one HTML file that opens offline, as a LaTeX table and as CSV.

The HTML has the verdict and every number in it as text; its script only draws charts from the same numbers.
Names of methods, sources and participants are other people's text, and are escaped wherever they go.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from . import plots
from .bootstrap import Estimate
from .result import KEPT

if TYPE_CHECKING:
    from .result import Audit, MethodResult

# The same hues as in the figures, on black; checked in the same way.
DARK_COLORS = ("#d5d9df", "#7f87ff", "#f0a51e", "#2ee88f", "#a377b1", "#a8682e", "#6f45ff")
DARK_SOURCE_COLORS = ("#35c3cf", "#ff7d96", "#c9c94a", "#a4a7f0", "#e0a050", "#c0c0c0")

SHORT = {
    "S": "S, source (AUROC)",
    "T_f": "T_f, existing heads (AUROC)",
    "T_r": "T_r, refitted heads (AUROC)",
    "M": "M, relative movement",
    "worst": "shortcut head at its worst (AUROC)",
    "control": "control head (AUROC)",
    "floor": "floor (AUROC)",
}
# Column heads of the tables: symbol, what it is, and LaTeX.
COLUMNS = {
    "S": ("S", "source, lower is better", r"$S\downarrow$"),
    "T_f": ("T_f", "existing heads, higher is better", r"$T_f\uparrow$"),
    "T_r": ("T_r", "refitted heads, higher is better", r"$T_r\uparrow$"),
    "M": ("M", "relative movement", r"$M$"),
    "worst": ("worst", "shortcut head, higher is better", r"Worst$\uparrow$"),
    "control": ("control", "control head, higher is better", r"Control$\uparrow$"),
    "floor": ("floor", "S of what the gate keeps", r"Floor"),
}
#: Titles of the charts, and how to read them.
CAPTIONS = {
    "tradeoff": (
        "Source against task",
        "Further left, the source is harder to read; further up, the task is better kept. Lines are 95 % "
        "intervals. The dotted line is guessing, the dashed one the task without correction. Hollow "
        "markers are source-aware methods.",
    ),
    "movement_tradeoff": (
        "Source against movement",
        "Further left, the source is harder to read; further down, rows moved less. Lines are 95 % "
        "intervals, the dotted line is guessing. There are no labels, so nothing is known about the "
        "task.",
    ),
    "readers": (
        "Reader by reader",
        "Each reader's source AUROC before (grey) and after. The ringed reader is the best one and sets "
        "S. r and e: random start and training epochs of a network.",
    ),
    "association": (
        "When the device no longer goes with the label",
        "AUROC of a head as the association ξ of device and label changes from the training's (1) to its "
        "reverse (−1), averaged over participants and fits. Markers are the minima, with the interval of "
        "the worst-association AUROC; with several fits, that averages each fit's own minimum. Dashed: "
        "source-aware.",
    ),
    "movement": (
        "How far rows moved",
        "Relative movement on validation rows after every stage, for maps that have stages (a line for "
        "every fit), and on EVAL participants in all.",
    ),
    "participants": (
        "Participant by participant",
        "Every thin line is a participant, before and after; the thick one is the mean. For S these are "
        "AUROCs of the reader that sets it. Click a dot to follow that person through the charts.",
    ),
    "embedding": (
        "The rows, before and after",
        "EVAL rows in the two directions in which they varied most before correction, coloured by "
        "source; large markers are the sources' means. All panels have one scale. Two directions show "
        "little of what readers see: clouds that overlap here may still be told apart.",
    ),
    "variance": (
        "What the variance is due to",
        "Share of the EVAL rows' variance that lies between sources, between participants and between "
        "task labels. Dotted: the share unrelated groups would take. Dashed: before correction. Factors "
        "overlap where they are associated.",
    ),
    "gate": (
        "The gate",
        "How much of the differences between two recordings of one event the leading directions hold. "
        "Ring: the rank the gate took. Diamond: how much it covers for people it was not made from.",
    ),
    "calibration": (
        "Are the best readers calibrated?",
        "Stated probability against what happened, for each method's best reader (first fit); larger "
        "markers stand for more rows. On the dashed diagonal a reader means what it says.",
    ),
    "influence": (
        "Does it hang on one person?",
        "Each dot is the change of the result when one participant is left out; the thin line is the "
        "interval with everyone. A dot far from the others is a person to look at.",
    ),
}


# ------------------------------------------------------------------------------------------- CSV and LaTeX


def csv_table(audit: Audit) -> str:
    """Return one line for every method and metric: value, interval, and difference from the identity."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    parts = ("value", "low", "high")
    writer.writerow(["method", "source_blind", "metric", *parts, *(f"difference_{p}" for p in parts)])
    for name in audit.methods:
        for metric, e in audit.estimates[name].items():
            change = audit.changes.get(name, {}).get(metric)
            found = [getattr(e, p) for p in parts]
            found += [getattr(change, p) if change is not None else "" for p in parts]
            writer.writerow([name, audit[name].source_blind, metric, *found])
    return stream.getvalue()


def latex_table(audit: Audit) -> str:
    """Return a table for the booktabs package, source-blind and source-aware methods apart."""
    metrics = _columns(audit)
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{tabular}}{{@{{}}l{'r' * len(metrics)}@{{}}}}",
        r"\toprule",
        " & ".join(["Method", *(COLUMNS[m][2] for m in metrics)]) + r" \\",
    ]
    groups = (("Source-blind correction", True), ("Source-aware alignment", False))
    for title, blind in groups:
        names = [name for name in audit.methods if audit[name].source_blind == blind]
        if not names:
            continue
        lines += [r"\midrule", rf"\multicolumn{{{len(metrics) + 1}}}{{@{{}}l}}{{\emph{{{title}}}}} \\"]
        for name in names:
            found = audit.estimates[name]
            cells = [_latex_estimate(found[m]) if m in found else "--" for m in metrics]
            lines.append(" & ".join([_latex(plots.LABELS.get(name, name)), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _latex_estimate(e: Estimate) -> str:
    value, interval = f"{e:.3f}".replace("-", "$-$").split(" ", 1)
    return rf"{value} {{\scriptsize {interval}}}"


def _latex(text: str) -> str:
    special = {c: "\\" + c for c in "&%$#_{}"}
    special |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {"<": r"\textless{}", ">": r"\textgreater{}", "\n": " "}
    return "".join(special.get(c, c) for c in text)


def _columns(audit: Audit) -> list[str]:
    floor = any(result.has("floor") for result in audit.results.values())
    return [*audit.metrics, *(["floor"] if floor else [])]


# ------------------------------------------------------------------------------------------------ verdict


def source_status(audit: Audit, name: str) -> str:
    """Return what became of the source: "fell", "rose" or "unclear"."""
    change = audit.changes[name]["S"]
    return "fell" if change.high < 0 else "rose" if change.low > 0 else "unclear"


def task_status(audit: Audit, name: str, metric: str = "T_f") -> str | None:
    """Return what became of the task: "improved", "kept", "suffered" or "unclear"; None if not measured."""
    if metric not in audit.metrics:
        return None
    change = audit.changes[name][metric]
    if change.low > 0:
        return "improved"
    if change.low >= -KEPT:
        return "kept"
    return "suffered" if change.high < 0 else "unclear"


def ranking(audit: Audit) -> tuple[list[str], str | None]:
    """Return the methods, the best first, and the best if there is one.

    The best has the lowest S of those that lowered it and kept (or improved) the task for existing heads.
    Methods that harmed the task come last, however low their S.
    """
    places = {"improved": 0, "kept": 0, None: 0, "unclear": 1, "suffered": 2}

    def place(name: str) -> tuple[int, int, float]:
        fell = source_status(audit, name) == "fell"
        return places[task_status(audit, name)], 0 if fell else 1, audit.estimates[name]["S"].value

    names = sorted((name for name in audit.methods if name != "identity"), key=place)
    return names, names[0] if names and place(names[0])[:2] == (0, 0) else None


def _verdict(audit: Audit) -> str:
    names, best = ranking(audit)
    if not names:
        return "<p>Only uncorrected embeddings were audited; there is nothing to compare.</p>"
    said = {name: audit.verdict(name) for name in names}
    # What is the same for everybody is said once, below.
    common = [line for line in said[names[0]] if all(line in lines for lines in said.values())]
    if len(names) == 1:
        common = said[names[0]][-1:]
    own = {name: [line for line in lines if line not in common] for name, lines in said.items()}
    parts = []
    if best is not None:
        parts.append(_best_card(audit, names, best, own[best]))
    else:
        task = " while clearly keeping the task" if "T_f" in audit.metrics else ""
        parts.append(
            f'<div class="card best"><h3>No method clearly lowered the source{task}.</h3>'
            '<p class="say">What each of them did is below. '
            "With more participants the intervals may become narrow enough to tell.</p></div>"
        )
    others = [name for name in names if name != best]
    cards = "".join(
        f'<article class="card"><h3>{_key(audit, name)}{_label(name)}</h3>{_chips(audit, name)}'
        f"{_list(own[name])}</article>"
        for name in others
    )
    parts.append(f'<div class="cards">{cards}</div>' if cards else "")
    sure = list(common)
    n = len(audit["identity"].participants)
    if n < 10:
        sure.append(
            f"With {n} participants, the intervals themselves are rough: read them as orders of size."
        )
    if len(names) > 1 and best is not None:
        sure.append(
            "The best method was picked on the same participants it is reported on, which flatters it a "
            "little; confirm it on new people."
        )
    parts.append(f'<div class="note"><h3>How sure is this?</h3>{_list(sure)}</div>' if sure else "")
    return "\n".join(parts)


def _best_card(audit: Audit, names: list[str], best: str, lines: list[str]) -> str:
    found, before = audit.estimates[best], audit.estimates["identity"]
    changes = audit.changes[best]
    reach = f"to {_number(found['S'].value)}"
    reach += ", which is chance as far as these readers can tell" if found["S"].low <= 0.52 else ""
    say = f"The best reader of the source fell from AUROC {_number(before['S'].value)} {reach}"
    status = task_status(audit, best)
    say += {
        "kept": f"; existing task heads kept their AUROC to within {_number(KEPT, 2)}.",
        "improved": "; existing task heads got better.",
        None: ". The table has no labels, so what happened to the task is not known.",
    }.get(status, ".")
    why = "The lowest S"
    if status is not None:
        why += f" among methods that kept the task (a loss above {_number(KEPT, 2)} is excluded)"
    why += f" of the {len(names)} audited." if len(names) > 1 else "."
    rival = _rival(audit, names, best)
    tiles = [
        (
            "S: can the source be read?",
            f"{_number(before['S'].value)} → {_number(found['S'].value)}",
            _brackets(changes["S"], "change"),
        )
    ]
    for metric, words in (("T_f", "T_f: existing task heads"), ("T_r", "T_r: refitted task heads")):
        if metric in audit.metrics:
            e = changes[metric]
            tiles.append((words, _number(e.value, 4, True), _brackets(e, "", 4)))
    if "worst" in audit.metrics:
        e = changes["worst"]
        tiles.append(("Shortcut head at its worst", _number(e.value, 3, True), _brackets(e, "")))
    M = found["M"]
    size = f"95 % interval {100 * M.low:.1f} to {100 * M.high:.1f} %"
    tiles.append(("M: how far rows moved", f"{100 * M.value:.1f} %", size))
    return (
        f'<article class="card best"><p class="eyebrow">Best here</p>'
        f"<h3>{_key(audit, best)}{_label(best)}</h3>"
        f'{_chips(audit, best)}<p class="say">{escape(say)}</p><p class="lede">{escape(why)} {rival} '
        f"{_passed_over(audit, best)}</p>"
        '<div class="tiles">'
        + "".join(
            f'<div class="tile"><div class="what">{_subscript(what)}</div>'
            f'<div class="big">{escape(big)}</div><div class="ci">{escape(ci)}</div></div>'
            for what, big, ci in tiles
        )
        + f"</div>{_list(lines)}</article>"
    )


def _rival(audit: Audit, names: list[str], best: str) -> str:
    """Return how the next good method compares, if there is one."""
    good = [n for n in names if n != best and task_status(audit, n) in ("kept", "improved", None)]
    if not good:
        return ""
    try:
        gap = audit.contrast(best, good[0], "S")
    except ValueError:  # different numbers of fits have no paired difference
        return ""
    difference = f"{_label(good[0])} (difference {escape(_interval(gap, 3, True))})"
    return f"Clearly below {difference}." if gap.high < 0 else f"Not clearly different from {difference}."


def _passed_over(audit: Audit, best: str) -> str:
    """Return which methods have a lower S than the best and why they are not it."""
    why = {
        "unclear": "whether it kept the task is not clear",
        "suffered": "it harmed the task",
    }
    lower = sorted(
        (audit.estimates[name]["S"].value, name, status)
        for name in audit.changes
        if audit.estimates[name]["S"].value < audit.estimates[best]["S"].value
        and (status := task_status(audit, name)) in why
    )
    return " ".join(
        f"{_label(name)} has a lower S ({_number(value)}), but {why[status]}."
        for value, name, status in lower
    )


def _chips(audit: Audit, name: str) -> str:
    chips = [
        {
            "fell": ("good", "✓ source harder to read"),
            "rose": ("bad", "✗ source easier to read"),
            "unclear": ("warn", "? source: no clear change"),
        }[source_status(audit, name)]
    ]
    for metric, words in (("T_f", "task"), ("T_r", "task after refitting")):
        status = task_status(audit, name, metric)
        if status is not None:
            kind = {"improved": "good", "kept": "good", "suffered": "bad", "unclear": "warn"}[status]
            sign = {"good": "✓", "bad": "✗", "warn": "?"}[kind]
            chips.append((kind, f"{sign} {words} {status}"))
    chips.append(("", "source-blind" if audit[name].source_blind else "source-aware"))
    if audit[name].n_fits > 1:
        chips.append(("", f"{audit[name].n_fits} fits"))
    spans = "".join(f'<span class="chip {kind}">{words}</span>' for kind, words in chips)
    return f'<div class="chips">{spans}</div>'


# ------------------------------------------------------------------------------------------------- pieces


def _number(x: float, digits: int = 3, sign: bool = False) -> str:
    text = f"{x:{'+' if sign else ''}.{digits}f}"
    if float(text) == 0:
        text = text.replace("-", "+" if sign else "")
    return re.sub(r"^([+-]?)0\.", r"\1.", text).replace("-", "−")


def _interval(e: Estimate, digits: int = 3, sign: bool = False) -> str:
    return f"{_number(e.value, digits, sign)} {_brackets(e, '', digits, sign)}"


def _brackets(e: Estimate, word: str, digits: int = 3, sign: bool = True) -> str:
    text = f"[{_number(e.low, digits, sign)}, {_number(e.high, digits, sign)}]"
    return f"{word} {_number(e.value, digits, sign)} {text}" if word else text


def _label(name: str) -> str:
    return escape(plots.LABELS.get(name, name))


def _key(audit: Audit, name: str) -> str:
    """Return a spot of the method's colour; the script puts its marker there."""
    i = audit.methods.index(name)
    hollow = "" if audit[name].source_blind else " hollow"
    return f'<span class="key c{_color(audit, name)}{hollow}" data-key="{i}" aria-hidden="true"></span>'


def _color(audit: Audit, name: str) -> int:
    return plots.COLORS.index(plots.looks(audit)[name].color)


def _list(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(_typeset(line))}</li>' for line in lines)}</ul>"


def _typeset(line: str) -> str:
    """Return a sentence with minus signs for hyphens before numbers, and intervals that do not break."""
    line = re.sub(r"(?<![\w.])-(?=[.\d])", "−", line)
    return re.sub(r"\[[^\]]*\]", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), line)


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """Return a plain table; the first cell of a row is its name."""
    body = "".join(
        f'<tr><th scope="row">{escape(str(row[0]))}</th>'
        + "".join(f"<td>{escape(str(cell))}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    columns = "".join(f'<th scope="col">{escape(c)}</th>' for c in head)
    words = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption or head[0])}">'
        f"<table>{words}"
        f"<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _main_table(audit: Audit, differences: bool) -> str:
    metrics = list(audit.metrics) if differences else _columns(audit)
    _, best = ranking(audit)
    rows = []
    for name in audit.methods:
        if differences and name == "identity":
            continue
        blind = "source-blind" if audit[name].source_blind else "source-aware"
        cells = [
            f'<th scope="row" data-value="{_label(name)}">{_key(audit, name)}{_label(name)}'
            f'<span class="group">{blind}</span></th>'
        ]
        for m in metrics:
            e = (audit.changes if differences else audit.estimates)[name].get(m)
            if e is None:
                cells.append("<td>–</td>")
                continue
            cells.append(
                f'<td data-value="{e.value:.6g}">{_number(e.value, 3, differences)}'
                f'<span class="ci">{_brackets(e, "", 3, differences)}</span></td>'
            )
        mark = ' class="is-best"' if name == best else ""
        rows.append(f"<tr{mark}>{''.join(cells)}</tr>")
    columns = "".join(
        f'<th scope="col">{_subscript(COLUMNS[m][0])}<span class="hint">{COLUMNS[m][1]}</span></th>'
        for m in metrics
    )
    caption = (
        "Differences from the identity, paired over participants, with 95 % intervals."
        if differences
        else "Means over EVAL participants, with 95 % intervals. Column heads sort."
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table class="sortable">'
        f'<caption>{caption}</caption><thead><tr><th scope="col">Method</th>{columns}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _subscript(text: str) -> str:
    """Return escaped text with T_f and T_r as they are printed."""
    return re.sub(r"\bT_([fr])\b", r"T<sub>\1</sub>", escape(text))


# ------------------------------------------------------------------------------------------------- charts


def _chart(name: str, head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """Return a chart's caption, a place to draw it, and its numbers as a table."""
    title, words = map(escape, CAPTIONS[caption or name])
    return (
        f'<figure class="card" id="figure-{name}"><figcaption><h3>{title}</h3><p>{words}</p></figcaption>'
        f'<div class="chart" id="chart-{name}" data-label="{title}. {words}"></div>'
        f"<details><summary>Numbers of this chart</summary>{_table(head, rows)}</details></figure>"
    )


def _charts(audit: Audit) -> str:
    """Return every chart that applies."""
    pair = _gate_chart(audit) + _calibration_chart(audit)
    return "\n".join(
        [
            _tradeoff_chart(audit),
            _reader_chart(audit),
            _association_chart(audit),
            f'<div class="pair">{pair}</div>' if pair else "",
            _movement_chart(audit),
            _participant_chart(audit),
            _influence_chart(audit),
            _embedding_chart(audit),
            _variance_chart(audit),
        ]
    )


def _names(audit: Audit, methods: Iterable[str] | None = None) -> dict[str, str]:
    """Return how methods are written, by name."""
    return {name: plots.LABELS.get(name, name) for name in methods or audit.methods}


def _corrections(audit: Audit) -> list[str]:
    return [name for name in audit.methods if name != "identity"]


def _tradeoff_chart(audit: Audit) -> str:
    rows = (
        [label, *(_interval(audit.estimates[name][m]) for m in audit.metrics)]
        for name, label in _names(audit).items()
    )
    caption = "tradeoff" if "T_f" in audit.metrics else "movement_tradeoff"
    return _chart("tradeoff", ["Method", *audit.metrics], rows, caption)


def _reader_chart(audit: Audit) -> str:
    if not _corrections(audit):
        return ""
    means = [audit[name].reader_means() for name in audit.methods]
    rows = (
        [reader, group, *(_number(mean[i]) for mean in means)]
        for i, (group, reader) in enumerate(plots.reader_rows(audit["identity"].readers))
    )
    return _chart("readers", ["Reader", "Group", *_names(audit).values()], rows)


def _association_chart(audit: Audit) -> str:
    if "worst" not in audit.metrics:
        return ""
    points = ("reversed", "independent", "aligned")
    rows = (
        [
            label,
            *(_number(audit[name].estimate(point).value) for point in points),
            _number(plots.association_curve(audit[name])[2], 2),
            _interval(audit.estimates[name]["worst"]),
        ]
        for name, label in _names(audit).items()
    )
    return _chart("association", ["Method", *points, "lowest at ξ", "worst"], rows)


def _gate_chart(audit: Audit) -> str:
    found, rows = plots.gates(audit), []
    for methods, facts in found:
        rank = facts["gate_basis"].shape[1]
        coverage = _number(float(facts["gate_coverage"])) if "gate_coverage" in facts else "–"
        names = ", ".join(_names(audit, methods).values())
        rows.append([names, rank, _number(float(facts["gate_energy"][rank - 1])), coverage])
    return (
        _chart("gate", ["Methods", "rank", "of FIT contrasts", "of held-out contrasts"], rows) if rows else ""
    )


def _calibration_chart(audit: Audit) -> str:
    found = {label: _reliability(audit, name) for name, label in _names(audit).items()}
    rows = [[label, r["reader"], _number(r["error"])] for label, r in found.items() if r is not None]
    return _chart("calibration", ["Method", "reader", "calibration error"], rows) if rows else ""


def _movement_chart(audit: Audit) -> str:
    if not _corrections(audit):
        return ""
    rows = (
        [
            label,
            _interval(audit.estimates[name]["M"]),
            *(_number(v) for v in _by_source(audit[name])),
            ", ".join(str(len(path) - 1) for path in plots.stage_movement(audit[name])) or "–",
        ]
        for name, label in _names(audit, _corrections(audit)).items()
    )
    head = ["Method", "M", *(f"M, {source}" for source in _sources(audit)), "stages of each fit"]
    return _chart("movement", head, rows)


def _participant_chart(audit: Audit) -> str:
    if not _corrections(audit):
        return ""
    cells = [(m, name, label) for m in audit.metrics for name, label in _names(audit).items()]
    columns = [map(_number, plots.participant_values(audit[name], m)) for m, name, _ in cells]
    rows = zip(audit["identity"].participants, *columns, strict=True)
    return _chart("participants", ["Participant", *(f"{label}, {m}" for m, _, label in cells)], rows)


def _influence_chart(audit: Audit) -> str:
    metrics = [m for m in ("S", "T_f") if m in audit.metrics]
    cells = [(m, name, label) for m in metrics for name, label in _names(audit).items()]
    columns = [map(_number, audit[name].influence(m)) for m, name, _ in cells]
    rows = zip(audit["identity"].participants, *columns, strict=True)
    return _chart("influence", ["Left out", *(f"{label}, {m}" for m, _, label in cells)], rows)


def _embedding_chart(audit: Audit) -> str:
    if not _has_picture(audit):
        return ""
    gaps = {label: _gap(audit, name) for name, label in _names(audit).items()}
    rows = ([label, "–" if gap is None else _number(gap, 2)] for label, gap in gaps.items())
    return _chart("embedding", ["Method", "distance of the sources' means, in units of spread"], rows)


def _variance_chart(audit: Audit) -> str:
    shares = {label: plots.variance(audit[name]) for name, label in _names(audit).items()}
    factors = list(plots.variance(audit["identity"]))
    rows = ([label, *(_number(v) for f in factors for v in share[f])] for label, share in shares.items())
    head = ["Method", *(text for f in factors for text in (f, "by chance"))]
    return _chart("variance", head, rows) if factors else ""


def _sources(audit: Audit) -> list[str]:
    return [str(s) for s in np.unique(audit.picture_source).tolist()]


def _by_source(result: MethodResult) -> list[float]:
    return [float(v) for v in np.mean([cell["movement_by_source"] for cell in result.cells], axis=0)]


def _has_picture(audit: Audit) -> bool:
    return all(result.cells and "picture" in result.cells[0] for result in audit.results.values())


def _gap(audit: Audit, name: str) -> float | None:
    """Return how far apart the two sources' means are in the picture, in standard deviations."""
    cloud, sources = audit[name].cells[0]["picture"].astype(np.float64), _sources(audit)
    if len(sources) != 2:
        return None
    parts = [cloud[audit.picture_source == s] for s in sources]
    spread = np.sqrt(np.mean([part.var(axis=0).sum() for part in parts]))
    return float(np.linalg.norm(parts[0].mean(axis=0) - parts[1].mean(axis=0)) / spread) if spread else None


def _reliability(audit: Audit, name: str) -> dict[str, Any] | None:
    scores = audit[name].cells[0].get("source_scores") if audit[name].cells else None
    if scores is None or scores.ndim != 2:
        return None
    found, reader = audit.reliability(name), audit[name].best_reader()
    return {
        "reader": plots.reader_rows([reader])[0][1],
        "p": _round(found.predicted),
        "o": _round(found.observed),
        "n": [int(n) for n in found.count],
        "error": round(found.error, 5),
    }


# ------------------------------------------------------------------------------------------- embedded data


def chart_data(audit: Audit) -> dict[str, Any]:
    """Return what the charts are drawn from: plain lists and numbers, for JSON."""
    styles, data_gates = plots.looks(audit), []
    for methods, facts in plots.gates(audit):
        energy, rank = np.asarray(facts["gate_energy"]), facts["gate_basis"].shape[1]
        data_gates.append(
            {
                "methods": [audit.methods.index(m) for m in methods],
                "names": ", ".join(styles[m].label for m in methods),
                "energy": _round(energy[:200]),
                "rank": rank,
                "shown": int(min(len(energy), 200, max(rank + 2, np.searchsorted(energy, 0.999) + 1))),
                "coverage": float(facts["gate_coverage"]) if "gate_coverage" in facts else None,
            }
        )
    picture = _picture(audit) if _has_picture(audit) else {"methods": {}}
    return {
        "identity": audit.methods.index("identity"),
        "sources": _sources(audit),
        "people": list(audit["identity"].participants),
        "readers": [list(row) for row in plots.reader_rows(audit["identity"].readers)],
        "factors": list(plots.variance(audit["identity"])),
        "metrics": {
            m: {"name": m, "short": SHORT[m], "lower": m in ("S", "M", "floor"), "auroc": m != "M"}
            for m in _columns(audit)
        },
        "gates": data_gates,
        "picture": {k: v for k, v in picture.items() if k != "methods"},
        "methods": [_method_data(audit, name) | picture["methods"].get(name, {}) for name in audit.methods],
    }


def _method_data(audit: Audit, name: str) -> dict[str, Any]:
    result, look = audit[name], plots.looks(audit)[name]
    curves = {}
    if "worst" in audit.metrics:
        for head in ("shortcut", "control"):
            curve, lowest, xi = plots.association_curve(result, head)
            worst = _triple(audit.estimates[name]["worst"]) if head == "shortcut" else None
            curves[head] = {"abc": _round(curve), "min": _round([xi, lowest]), "worst": worst}
    return {
        "label": look.label,
        "color": _color(audit, name),
        "marker": look.marker,
        "blind": result.source_blind,
        "est": {m: _triple(e) for m, e in audit.estimates[name].items()},
        "delta": {m: _triple(e) for m, e in audit.changes.get(name, {}).items()},
        "readers": [_triple(e) for e in plots.reader_intervals(result)],
        "best": result.readers.index(result.best_reader()),
        "people": {m: _round(plots.participant_values(result, m)) for m in audit.metrics},
        "influence": {m: _round(result.influence(m)) for m in ("S", "T_f") if m in audit.metrics},
        "stages": [_round(path) for path in plots.stage_movement(result)],
        "bySource": _round(_by_source(result)),
        "variance": {f: _round(pair) for f, pair in plots.variance(result).items()},
        "curves": curves,
        "reliability": _reliability(audit, name),
    }


def _picture(audit: Audit) -> dict[str, Any]:
    """Return the before/after clouds on a common grid of whole numbers, which is finer than the eye."""
    clouds = {name: audit[name].cells[0]["picture"].astype(np.float64) for name in audit.methods}
    everything = np.concatenate(list(clouds.values()))
    low, high = everything.min(axis=0), everything.max(axis=0)
    unit = float((high - low).max()) / 1000 or 1.0
    margin = 20.0
    sources, codes = np.unique(audit.picture_source, return_inverse=True)
    methods = {}
    for name, cloud in clouds.items():
        placed = (cloud - low) / unit + margin
        methods[name] = {
            "picture": [int(v) for v in placed.round().ravel()],
            "means": [_round(placed[codes == i].mean(axis=0)) for i in range(len(sources))],
            "counts": len(cloud),
            "gap": _gap(audit, name),
        }
    return {
        "source": [int(c) for c in codes],
        "size": _round((high - low) / unit + 2 * margin),
        "methods": methods,
    }


def _triple(e: Estimate) -> list[float]:
    return _round([e.value, e.low, e.high])


def _round(values: Any) -> list[float]:
    return [round(float(v), 5) for v in np.asarray(values, dtype=np.float64).ravel()]


def _json(value: Any) -> str:
    """Return JSON that cannot end the script element it stands in, nor start anything in it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


# ------------------------------------------------------------------------------------------------ settings


def _confounding(audit: Audit) -> str:
    found = audit.confounding
    lines = found.sentences()
    if not found.nested_participants:
        lines.append("Every fitting participant was seen by more than one source.")
    if found.source_label is None:
        lines.append("The table has no labels, so source and task cannot be compared.")
    parts = [_list(lines)]
    if found.counts:
        labels = list(dict.fromkeys(label for row in found.counts.values() for label in row))
        rows = [[source, *(row.get(label, 0) for label in labels)] for source, row in found.counts.items()]
        parts.append(_table(["Source", *labels], rows, "Fitting rows of each source and label"))
    return "\n".join(parts)


def _settings(audit: Audit) -> str:
    s = audit.settings
    roles = list(s.get("rows", {}))
    parts = [
        _table(
            ["", *roles],
            [
                ["rows", *(s["rows"][r] for r in roles)],
                ["participants", *(s.get("participants", {}).get(r, "–") for r in roles)],
            ],
            "Who was used for what",
        )
        if roles
        else "",
        "<dl>"
        + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in _facts(audit).items())
        + "</dl>",
        "<h3>Run it again</h3>",
        f"<pre><code>{escape(snippet(audit))}</code></pre>",
        "<h3>The fitted maps</h3>",
    ]
    for name in audit.methods:
        result = audit[name]
        drift = [float(f["complement_drift"]) for f in result.facts if "complement_drift" in f]
        text = result.summary
        if drift:
            text += f"\n  outside the gate, rows moved by at most {max(drift):.1e} of what they moved inside"
        parts.append(f"<details><summary>{_label(name)}</summary><pre>{escape(text)}</pre></details>")
    return "\n".join(parts)


def _facts(audit: Audit) -> dict[str, str]:
    s = audit.settings
    features = s.get("features", [])
    readers = s.get("readers") or "the paper's bank"
    return {
        "mgpa": str(s.get("version", "")),
        "Data": f"checksum {s.get('data', '')}",
        "Sources": ", ".join(map(str, s.get("sources", []))),
        "Features": " tokens × ".join(map(str, features)) + (" features" if len(features) > 1 else ""),
        "Seeds": ", ".join(map(str, s.get("seeds", []))),
        "Movement budget": "none: complete maps"
        if s.get("budget") is None
        else f"{s['budget']} on validation rows",
        "Task head": s.get("head") or "the paper's",
        "Readers": f"{readers}; {len(audit['identity'].readers)} in all",
        "Device": str(s.get("device", "")),
        "Intervals": "95 % percentile bootstrap over participants, 20,000 draws, seed 1101",
    }


def snippet(audit: Audit) -> str:
    """Return Python that runs the same audit on the same table."""
    from ..baselines import available

    s, known = audit.settings, {method.name for method in available()}
    names = [name for name in audit.methods if name != "identity"]
    if all(name in known for name in names):
        methods = repr(names)
    else:
        entries = (f"{n!r}: {n!r}" if n in known else f"{n!r}: ...  # your estimator or map" for n in names)
        methods = "{\n" + "".join(f"        {entry},\n" for entry in entries) + "    }"
        methods = re.sub(r"\.\.\.  (# .*),\n", r"...,  \1\n", methods)
    lines = [
        "from mgpa import audit",
        "from mgpa.tables import Table",
        "",
        "table = Table(X, source=source, participant=participant, label=label, pair_id=pair_id, role=role)",
        f"assert table.digest.startswith({s.get('data', '')!r})  # the same data",
        "result = audit.run(",
        "    table,",
        f"    {methods},",
        f"    seeds={tuple(s.get('seeds', ()))!r},",
    ]
    lines += [f"    budget={s['budget']!r},"] if s.get("budget") is not None else []
    lines += [f"    head=...,  # {' '.join(str(s['head']).split())}"] if s.get("head") else []
    lines += [f"    readers={s['readers']!r},"] if s.get("readers") else []
    lines += [f"    device={s.get('device', 'auto')!r},", ")", 'result.report("report.html")']
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------- page


def html_report(audit: Audit, title: str = "Correction audit") -> str:
    """Return the whole report as one HTML document that asks nothing of the network."""
    s, n = audit.settings, len(audit["identity"].participants)
    sources = ", ".join(_sources(audit))
    methods = len(audit.methods) - 1
    summary = (
        f"{methods} correction{'s' if methods != 1 else ''} measured on {n} participants that none of them "
        f"was fitted on, for the sources {sources}. Data {s.get('data', '')}, mgpa {s.get('version', '')}."
    )
    sections = {
        "verdict": "Verdict",
        "numbers": "Numbers",
        "charts": "Charts",
        "confounding": "Confounding",
        "settings": "Settings",
        "glossary": "Glossary",
    }
    template = files(__package__).joinpath("report_template.html").read_text(encoding="utf-8")
    script = template[template.rindex("<script>") + len("<script>") : template.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    tables = [_main_table(audit, differences=False)]
    if methods:
        tables.append(_main_table(audit, differences=True))
    colors = range(len(plots.COLORS))
    classes = [f".c{i} {{ --c: var(--m{i}); }}" for i in colors]
    classes += [f".k{i} {{ --c: var(--s{i}); }}" for i in range(len(plots.SOURCE_COLORS))]
    filled = {
        "title": escape(title),
        "script_hash": f"sha256-{digest}",
        "light_colors": _variables(plots.COLORS, plots.SOURCE_COLORS),
        "dark_colors": _variables(DARK_COLORS, DARK_SOURCE_COLORS),
        "color_classes": "\n".join(classes),
        "summary": escape(summary),
        "nav": "".join(f'<li><a href="#{key}">{words}</a></li>' for key, words in sections.items()),
        "verdict": _verdict(audit),
        "tables": "\n".join(tables),
        "charts": _charts(audit),
        "confounding": _confounding(audit),
        "settings": _settings(audit),
        "footer": f"Written by mgpa {escape(str(s.get('version', '')))}. This file loads nothing else.",
        "data": _json(chart_data(audit)),
    }
    # In one pass, so that text which looks like a placeholder stays text.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: filled[found[1]], template)


def _variables(methods: Sequence[str], sources: Sequence[str]) -> str:
    named = [f"--m{i}: {c};" for i, c in enumerate(methods)] + [
        f"--s{i}: {c};" for i, c in enumerate(sources)
    ]
    return " ".join(named)
