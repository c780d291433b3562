"""Diagrams as SVG on the page itself, in the theme's colours: which method, the roles, the designs."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

API = "reference/generated/mgpa."
LINE = 17  # height of a line of text


def box(x: float, y: float, width: float, lines: list[str], kind: str = "", link: str = "") -> str:
    """Return a rectangle with centred lines of text; a question's corners are rounder."""
    height = LINE * len(lines) + 18
    bold = ' font-weight="600"'
    radius = 18 if kind == "question" else 6
    text = "".join(
        f'<text x="{x + width / 2}" y="{y + 21 + LINE * i}" text-anchor="middle"'
        f"{bold * (i == 0 and kind != 'question')}>{escape(line)}</text>"
        for i, line in enumerate(lines)
    )
    shape = f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>{text}'
    return f'<a href="{link}">{shape}</a>' if link else shape


def arrow(path: str, label: str = "", at: tuple[float, float] = (0, 0)) -> str:
    """Return a line with an arrowhead, and a word beside it."""
    text = f'<text class="label" x="{at[0]}" y="{at[1]}">{escape(label)}</text>' if label else ""
    return f'<path d="{path}" marker-end="url(#arrowhead)"/>{text}'


def picture(width: int, height: int, label: str, *parts: str) -> str:
    """Return parts as one figure that scales with the page, and scrolls where it would be too small."""
    head = (
        '<defs><marker id="arrowhead" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>'
    )
    return (
        f'<figure class="mgpa-diagram" tabindex="0" role="region" aria-label="{escape(label)}">'
        f'<svg viewBox="0 0 {width} {height}" style="max-width: {width}px" role="img" '
        f'aria-label="{escape(label)}">{head}{"".join(parts)}</svg></figure>'
    )


def choosing() -> str:
    """Return the flow chart of methods."""
    return picture(
        720, 442,
        "Flow chart for choosing a method. The table below has the same content.",
        box(20, 10, 300, ["Some events measured under both", "conditions (pairs)?"], "question"),
        box(400, 10, 300, ["Can you make the second view", "(reference, filter, rate)?"], "question"),
        arrow("M320,36 H396", "no", (346, 28)),
        arrow("M550,63 V102", "no", (558, 88)),
        arrow("M400,46 L322,46", "yes", (346, 62)),
        box(400, 106, 300, ["Are task and source associated", "in your rows?"], "question"),
        arrow("M620,159 V212", "yes", (628, 190)),
        arrow("M470,159 V212", "no", (448, 190)),
        box(560, 216, 140, ["None", "Record pairs."], "stop"),
        box(400, 216, 140, ["LEACE", "labels only"], "answer", API + "baselines.LEACE.html"),
        arrow("M170,63 V102", "yes", (178, 88)),
        box(20, 106, 300, ["Must a decoder of one device", "stay unchanged?"], "question"),
        arrow("M90,159 V212", "yes", (98, 190)),
        arrow("M262,159 V212", "no", (270, 190)),
        box(20, 216, 170, ["MGPA", 'reference="that device"'], "answer", API + "MGPA.html"),
        box(204, 216, 116, ["MGPA", "the default"], "answer", API + "MGPA.html"),
        arrow("M95,269 V302"), arrow("M262,269 V302"),
        box(20, 306, 300, ["Source of every future row known?"], "question"),
        arrow("M170,341 V376", "yes", (178, 364)),
        box(20, 380, 300, ["Compare with FEATMAP", "paired regression, source given"], "answer",
            API + "baselines.FEATMAP.html"),
        arrow("M470,269 V302"),
        box(400, 306, 300, ["Source of every future row known?"], "question"),
        arrow("M550,341 V376", "yes", (558, 364)),
        box(400, 380, 300, ["Compare with CORAL, ComBat", "also remove population differences"], "answer",
            "baselines.html"),
    )  # fmt: skip


def roles() -> str:
    """Return who does what: four groups of participants."""
    groups = (
        ("FIT", "maps are fitted", "rows, pairs, source"),
        ("VAL", "early stopping", "iterative maps, budgets"),
        ("HEAD", "readers and heads", "trained on corrected rows"),
        ("EVAL", "all scores", "S, T, M with intervals"),
    )
    parts = [box(10 + 178 * i, 44, 160, list(lines), "answer") for i, lines in enumerate(groups)]
    parts += [arrow(f"M{170 + 178 * i},78 H{185 + 178 * i}") for i in range(3)]
    parts.append('<text x="10" y="24" class="label">Each participant has one role.</text>')
    folds = []
    for k in range(5):
        for i in range(5):
            name = "EVAL" if i == k else ("HEAD" if i == (k + 1) % 5 else "FIT")
            kind = {"EVAL": "stop", "HEAD": "question", "FIT": "answer"}[name]
            folds.append(
                f'<rect class="{kind}" x="{150 + 100 * i}" y="{172 + 30 * k}" width="92" height="24" rx="4"/>'
                f'<text x="{196 + 100 * i}" y="{189 + 30 * k}" text-anchor="middle">{name}</text>'
            )
        folds.append(f'<text class="label" x="70" y="{189 + 30 * k}">fold {k + 1}</text>')
    note = "With few participants, roles rotate: each is EVAL once. Columns are groups of participants."
    parts.append(f'<text x="10" y="158" class="label">{note}</text>')
    return picture(
        720, 326, "Roles: maps are fitted on FIT, VAL stops iterative maps, readers and heads are trained on "
        "HEAD, and EVAL is scored. With few participants, roles rotate over five folds.", *parts, *folds,
    )  # fmt: skip


def designs() -> str:
    """Return crossed, nested and mixed designs: which participant was measured with which device."""
    parts = []
    tables = {
        "Crossed": ["AB"] * 6,
        "Nested": ["A"] * 3 + ["B"] * 3,
        "Mixed": ["AB", "AB", "A", "A", "B", "B"],
    }
    for k, (title, rows) in enumerate(tables.items()):
        x = 20 + 240 * k
        parts.append(f'<text x="{x + 46}" y="20" font-weight="600">{title}</text>')
        for j, device in enumerate("AB"):
            centre = x + 91 + 62 * j
            parts.append(
                f'<text class="label" x="{centre}" y="42" text-anchor="middle">device {device}</text>'
            )
        for i, measured in enumerate(rows):
            parts.append(f'<text class="label" x="{x}" y="{66 + 26 * i}">p{i + 1}</text>')
            for j, device in enumerate("AB"):
                kind = f"device-{device.lower()}" if device in measured else "empty"
                parts.append(
                    f'<rect class="{kind}" x="{x + 62 + 62 * j}" y="{51 + 26 * i}" width="56" '
                    'height="20" rx="3"/>'
                )
    return picture(
        720, 216, "Designs. Crossed: every participant was measured with both devices. Nested: each with "
        "one. "
        "Mixed: some with both.", *parts,
    )  # fmt: skip


def pair() -> str:
    """Return a pair: one event, two devices, two rows with one id, and their difference."""
    rows = []
    for i, (device, kind) in enumerate((("device A", "device-a"), ("device B", "device-b"))):
        y = 28 + 76 * i
        rows += [
            arrow(f"M150,86 L196,{y + 20}"),
            box(200, y, 110, [device]),
            arrow(f"M310,{y + 18} H346"),
            f'<rect class="{kind}" x="350" y="{y + 4}" width="130" height="28" rx="4"/>',
            f'<text class="label" x="350" y="{y - 4}">row, pair_id 7</text>',
            arrow(f"M480,{y + 18} L536,{78 + 16 * i}"),
        ]
    return picture(
        720, 150, "One event, measured by two devices, gives two rows with one pair id. Their difference "
        "shows what the devices do.",
        box(20, 60, 130, ["one event", "of one participant"], "question"), *rows,
        box(540, 60, 160, ["difference", "= what devices do"], "answer"),
    )  # fmt: skip


def layers() -> str:
    """Return the layers of the architecture page, each above what it may import."""
    text = (Path(__file__).parents[1] / "maintainers/architecture.md").read_text("utf-8")
    rule = text.partition("## The layering rule")[2].partition("```text\n")[2].partition("```")[0]
    named = [line.split(": ") for line in rule.splitlines()]
    parts = []
    for i, (title, modules) in enumerate(named):
        y = 10 + 34 * i
        parts.append(f'<text class="label" x="290" y="{y + 18}" text-anchor="end">{escape(title)}</text>')
        groups = modules.split(" | ")
        width = (408 - 8 * (len(groups) - 1)) / len(groups)
        for k, group in enumerate(groups):
            x = 302 + k * (width + 8)
            parts.append(
                f'<rect x="{x}" y="{y}" width="{width}" height="27" rx="4"/>'
                f'<text x="{x + width / 2}" y="{y + 18}" text-anchor="middle" '
                f'style="font-size: 10.5px">{escape(group.replace(" ", " · "))}</text>'
            )
    label = "Layers: a module imports from its own and those below."
    return picture(720, 16 + 34 * len(named), label, *parts)


DIAGRAMS: dict[str, Callable[[], str]] = {
    "choosing": choosing,
    "roles": roles,
    "designs": designs,
    "pair": pair,
    "layers": layers,
}


class Diagram(Directive):
    """Put a diagram on the page, by its name."""

    required_arguments: ClassVar = 1

    def run(self) -> list[nodes.Node]:
        """Return the diagram."""
        return [nodes.raw("", DIAGRAMS[self.arguments[0]](), format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("diagram", Diagram)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
