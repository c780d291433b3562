"""Places for the charts, each with a caption and its numbers as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from ..association import curve_at
from ..bootstrap import Estimate
from .pieces import facts_list, plain_table, printed, with_interval

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
        "S. Networks differ in their random start, and are read after so many epochs.",
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
        "Share of the EVAL rows' variance that lies between the groups of each factor. Dotted: the share "
        "unrelated groups would take. Dashed: before correction. Factors overlap where they are associated.",
    ),
    "pairs": (
        "Do the pairs show anything?",
        "How much of what held-out pairs differ by lies inside gates that other people's pairs gave, by the "
        "gate's rank. Grey: the same with views exchanged between events, which leaves no event its own "
        "view (line: median, band: 95\N{NO-BREAK SPACE}%).",
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

#: Of charts that show one fit, where there are several folds.
FIRST_FOLD = " This is the first fold's."


def charts(data: dict[str, Any]) -> str:
    """Return every chart that there are numbers for in :func:`~mgpa.audit.report.data.chart_data`."""
    said = {} if data["pairs"] is None else {"pairs": _pairs_said(data["pairs"])}
    first = dict.fromkeys(("gate", "calibration", "embedding"), FIRST_FOLD if data["folds"] > 1 else "")
    found = {
        name: _figure(name, head, rows, said.get(name, ""), first.get(name, "")) if rows else ""
        for name, (head, rows) in _numbers(data).items()
    }
    pair = found.pop("gate") + found.pop("calibration")
    found["association"] += f'\n<div class="pair">{pair}</div>' if pair else ""
    return "\n".join(found.values())


def _pairs_said(pairs: dict[str, Any]) -> str:
    """Return the verdict on the pairs, and what it rests on."""
    facts = facts_list(pairs["facts"].items())
    return (
        f'<p class="said">{escape(pairs["verdict"])}</p>'
        f"<details><summary>What this rests on</summary>{facts}</details>"
    )


def _figure(
    name: str, head: Sequence[str], rows: Iterable[Sequence[Any]], said: str = "", note: str = ""
) -> str:
    """Return a chart's caption, what is ``said`` about it, a place to draw it, and its numbers as a table.

    The caption ends in the ``note``.
    """
    unlabelled = name == "tradeoff" and "T_f" not in head
    title, words = CAPTIONS["movement_tradeoff" if unlabelled else name]
    title, words = escape(title), escape(words + note)
    return (
        f'<figure class="card" id="figure-{name}"><figcaption>'
        f"<h3>{title}</h3>{said}<p>{words}</p></figcaption>"
        f'<div class="chart" id="chart-{name}" data-label="{title}. {words}"></div>'
        f"<details><summary>Numbers of this chart</summary>{plain_table(head, rows)}</details></figure>"
    )


def _numbers(data: dict[str, Any]) -> dict[str, tuple[list[str], list[Any]]]:
    """Return the table of every chart: column heads and rows, or no rows where the chart does not apply."""
    methods, corrections = data["methods"], data["methods"][1:]
    metrics, labels = list(methods[0]["people"]), [m["label"] for m in methods]

    def by_person(key: str, first: str) -> tuple[list[str], list[Any]]:
        cells = [(m, k) for k in methods[0][key] for m in methods]
        columns = (map(printed, m[key][k]) for m, k in cells)
        return [first, *(f"{m['label']}, {k}" for m, k in cells)], list(
            zip(data["people"], *columns, strict=True)
        )

    def shortcut(m: dict[str, Any]) -> list[str]:
        curve = m["curves"]["shortcut"]
        values = (printed(float(curve_at(np.array(curve["abc"]), xi))) for xi in (-1.0, 0.0, 1.0))
        return [*values, printed(curve["min"][0], 2), _interval(curve["worst"])]

    return {
        "tradeoff": (
            ["Method", *metrics],
            [[m["label"], *(_interval(m["est"][k]) for k in metrics)] for m in methods],
        ),
        "readers": (
            ["Reader", "Group", *labels],
            [
                [reader, group, *(printed(m["readers"][i][0]) for m in methods)]
                for i, (group, reader) in enumerate(data["readers"])
                if corrections
            ],
        ),
        "association": (
            ["Method", "reversed", "independent", "aligned", "lowest at ξ", "worst"],
            [[m["label"], *shortcut(m)] for m in methods if m["curves"]],
        ),
        "pairs": _pairs_numbers(data["pairs"]),
        "gate": (
            ["Methods", "rank", "of FIT contrasts", "of held-out contrasts"],
            [
                [g["names"], g["rank"], printed(g["energy"][g["rank"] - 1]), printed(g["coverage"])]
                for g in data["gates"]
            ],
        ),
        "calibration": (
            ["Method", "reader", "calibration error"],
            [[m["label"], r["reader"], printed(r["error"])] for m in methods if (r := m["reliability"])],
        ),
        "movement": (
            ["Method", "M", *(f"M, {source}" for source in data["sources"]), "stages of each fit"],
            [
                [
                    m["label"],
                    _interval(m["est"]["M"]),
                    *map(printed, m["bySource"]),
                    ", ".join(str(len(path) - 1) for path in m["stages"]) or "–",
                ]
                for m in corrections
            ],
        ),
        "participants": by_person("people", "Participant") if corrections else ([], []),
        "influence": by_person("influence", "Left out"),
        "embedding": (
            ["Method", "distance of the sources' means, in units of spread"],
            [[m["label"], printed(m["gap"], 2)] for m in methods],
        ),
        "variance": (
            ["Method", *(text for factor in data["factors"] for text in (factor, "by chance"))],
            [[m["label"], *(printed(v) for pair in m["variance"].values() for v in pair)] for m in methods],
        ),
    }


def _pairs_numbers(pairs: dict[str, Any] | None) -> tuple[list[str], list[Any]]:
    if pairs is None:
        return [], []
    low, middle, high = pairs["shuffled"]
    curves = zip(pairs["coverage"], middle, low, high, strict=True)
    return ["Directions", "held-out pairs", "views exchanged"], [
        [rank, printed(value), _interval([*exchanged])]
        for rank, (value, *exchanged) in enumerate(curves, start=1)
    ]


def _interval(triple: list[float]) -> str:
    return with_interval(Estimate(*triple))
