"""The idea in one picture, drawn from a real fit, in colours that follow the reader's theme."""

from __future__ import annotations

from html import escape
from typing import Any, ClassVar

import numpy as np
from docutils import nodes
from docutils.parsers.rst import Directive
from numpy.typing import NDArray
from sphinx.application import Sphinx

Floats = NDArray[np.float64]

SIZE, HEAD = 300, 58
RANGE = 4.6  # both axes go from minus to plus this
SHOWN = 90  # rows of each headset that are drawn
COLORS = ("var(--mgpa-a)", "var(--mgpa-b)")
# Of every panel: title, caption, the rows it shows (None: the pairs), and words for who cannot see it.
PANELS = (
    (
        "As recorded",
        "Right: the headset. Higher: its users.",
        "X",
        "Embeddings recorded with two headsets differ horizontally and vertically.",
    ),
    (
        "What pairs show",
        "One event, two headsets: horizontal only.",
        None,
        "Lines between paired views of one event are all horizontal.",
    ),
    (
        "Corrected inside the gate",
        "Horizontal corrected, vertical unchanged.",
        "gated",
        "Corrected inside the gate: headsets nearly coincide horizontally and differ vertically as before.",
    ),
    (
        "Erased by label instead",
        "Both differences are removed.",
        "erased",
        "Everything that predicts the headset is erased: both differences are gone.",
    ),
)


def simulate() -> dict[str, Any]:
    """Return rows before and after two corrections, and the pairs.

    The headset moves features 0 to 7. Those who use headset B also differ as people, in feature 8.
    """
    import mgpa
    from mgpa.baselines import LEACE

    rng = np.random.default_rng(4)
    source = np.repeat([0, 1], 600)
    headset = np.r_[2.6, np.full(7, 1.2), np.zeros(8)]
    people = np.r_[np.zeros(8), 1.1, np.zeros(7)]
    X = rng.normal(size=(1200, 16)) + np.outer(source - 0.5, headset + people)
    first = rng.normal(size=(60, 16)) - 0.5 * headset
    second = first + headset + 0.15 * rng.normal(size=first.shape)
    gated = mgpa.ClosedFormMGPA().fit(X, source=source, pairs=(first, second)).transform(X)
    erased = LEACE().fit(X, source=source).transform(X)
    return {"source": source, "X": X, "pairs": (first, second), "gated": gated, "erased": erased}


def draw(n_panels: int = len(PANELS)) -> str:
    """Return the first panels as SVGs, side by side where there is room, in the page's theme's colours."""
    made = simulate()
    source = made["source"]
    shown = np.concatenate([np.flatnonzero(source == s)[:SHOWN] for s in (0, 1)])
    parts = []
    for i, (title, caption, name, label) in enumerate(PANELS[:n_panels]):
        # Half of a border lies outside its rectangle, so the view is wider than that.
        parts.append(
            f'<svg viewBox="-2 0 {SIZE + 4} {HEAD + SIZE + 2}" role="img" aria-label="{escape(label)}">'
        )
        parts.append(
            f'<text class="title" y="18">{i + 1}  {title}</text><text class="caption" y="40">{caption}</text>'
        )
        parts.append(f'<g transform="translate(0,{HEAD})"><rect width="{SIZE}" height="{SIZE}" rx="8"/>')
        if name is None:
            parts.append(_pairs(made["pairs"]))
        else:
            parts.append(_cloud(made[name][shown], source[shown]) + _means(made[name], source))
        parts.append(f"{_legend() if i == 0 else ''}</g></svg>")
    return f'<figure class="mgpa-idea">{"".join(parts)}</figure>'


def _at(value: float, *, up: bool = False) -> float:
    share = (value + RANGE) / (2 * RANGE)
    return round(SIZE * (1 - share if up else share), 1)


def _cloud(X: Floats, source: NDArray[Any]) -> str:
    return "".join(
        f'<circle cx="{_at(row[0])}" cy="{_at(row[8], up=True)}" r="3.2" fill="{COLORS[s]}" opacity="0.55"/>'
        for row, s in zip(X, source, strict=True)
    )


def _means(X: Floats, source: NDArray[Any]) -> str:
    """Return a ringed mark at the mean of each headset, and how far apart they are."""
    means = [X[source == s].mean(axis=0)[[0, 8]] for s in (0, 1)]
    across, up = means[1] - means[0]
    marks = "".join(
        f'<circle class="mean" cx="{_at(m[0])}" cy="{_at(m[1], up=True)}" r="8" fill="{color}"/>'
        for m, color in zip(means, COLORS, strict=True)
    )
    said = f"B − A: {abs(across):.1f} across, {abs(up):.1f} up"
    return marks + f'<text class="said" x="{SIZE - 10}" y="{SIZE - 10}" text-anchor="end">{said}</text>'


def _pairs(pairs: tuple[Floats, Floats]) -> str:
    parts = []
    for a, b in zip(pairs[0][:26], pairs[1][:26], strict=True):
        (x1, y1), (x2, y2) = ((_at(row[0]), _at(row[8], up=True)) for row in (a, b))
        parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>')
        parts.append(f'<circle cx="{x1}" cy="{y1}" r="3.6" fill="{COLORS[0]}"/>')
        parts.append(f'<circle cx="{x2}" cy="{y2}" r="3.6" fill="{COLORS[1]}"/>')
    low = SIZE - 40
    arrow = f"M48,{low} H{SIZE - 48} M58,{low - 6} l-10,6 l10,6 M{SIZE - 58},{low - 6} l10,6 l-10,6"
    parts.append(f'<path class="gate" d="{arrow}"/>')
    parts.append(f'<text class="said" x="{SIZE / 2}" y="{SIZE - 16}" text-anchor="middle">')
    return "".join(parts) + "the gate: where a shift is corrected</text>"


def _legend() -> str:
    dots = [
        f'<circle cx="16" cy="{18 + 20 * i}" r="5" fill="{color}"/>'
        f'<text class="said" x="28" y="{22 + 20 * i}">headset {"AB"[i]}</text>'
        for i, color in enumerate(COLORS)
    ]
    return "".join(dots)


class IdeaPicture(Directive):
    """Put the picture, or its first panels (``:panels: 3``), on the page itself, where it sees the theme."""

    option_spec: ClassVar = {"panels": int}

    def run(self) -> list[nodes.Node]:
        """Return the picture."""
        return [nodes.raw("", draw(self.options.get("panels", len(PANELS))), format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("idea-picture", IdeaPicture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
