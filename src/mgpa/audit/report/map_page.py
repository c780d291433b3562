"""A map as one HTML page: how to apply it, what evidence it had, how it moves rows, where it comes from."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from ... import __version__
from ..._common.remote import Place
from ...endpoint import relative_movement, stage_movement
from ...errors import printable
from ...maps import CorrectionMap, SequentialMap
from ...pairs import source_names
from ...tables.rows import rows_for, vectors
from ...tables.table import Table
from .page import fill, head
from .pieces import bullets, facts_list, plain_table, printed

Floats = NDArray[np.float64]

SHOWN, ALL = 10, 0.999  # so many directions, and no more than hold so much of the movement
# Facts about what it was fitted from; the others say where it comes from.
EVIDENCE = ("fitted on", "sources", "gate", "found")
# What a chart takes, in the units of its own drawing.
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 460, 250, 44, 40, 26


@dataclass(frozen=True)
class Motion:
    """How a map moves some rows.

    Attributes
    ----------
    rows : str
        Which rows, in words.
    movement : float
        Relative movement of all of them (:func:`mgpa.endpoint.movement`).
    by_source : dict of str to float
        Of each source's rows.
    stages : array
        After 1, 2, … stages or directions of the map; empty for maps that have none.
    directions : array
        Share of the squared movement along the directions in which rows moved most, the first first.
    """

    rows: str
    movement: float
    by_source: dict[str, float]
    stages: Floats
    directions: Floats


def motion(m: CorrectionMap, table: Table, rows: str) -> Motion:
    """Return how a map moves the rows of a table, which ``rows`` describes."""
    table = rows_for(m, table)
    X = np.asarray(vectors(table, m.info.token_layout), dtype=np.float64)
    source = None if table.source is None else np.asarray(table.source)
    known = {} if m.source_blind else {"source": source}
    moved = m.displacement(X, **known)
    squares = np.linalg.svd(moved, compute_uv=False) ** 2
    by_source = {}
    for label in [] if source is None else np.unique(source):
        own = source == label
        (name,) = source_names(np.array([label]))
        by_source[name] = relative_movement(m, X[own], source=None if source is None else source[own])
    return Motion(
        rows,
        relative_movement(m, X, source=source),
        by_source,
        stage_movement(m, X) if isinstance(m, SequentialMap) and m.source_blind else np.empty(0),
        squares / squares.sum() if squares.sum() > 0 else np.empty(0),
    )


def html_map(
    m: CorrectionMap,
    path: Place,
    *,
    moved: Motion | None = None,
    coverage: Floats | None = None,
    sentences: Sequence[str] = (),
    verified: str = "",
) -> str:
    """Return the whole page.

    Parameters
    ----------
    m : CorrectionMap
    path : path or address
        Where it is stored.
    moved : Motion or None
        How it moves rows, if there are rows at hand.
    coverage : (k,) array or None
        Share of held-out pairs' contrasts inside gates of rank 1, 2, …
    sentences : sequence of str
        What else is to be said about the evidence.
    verified : str
        Whether the file is what was written, in words.
    """
    heading, facts = m.facts()
    blind = "It needs no source label." if m.source_blind else "It needs to be told the source of every row."
    filled = {
        "head": head(printable(path.name)),
        "title": escape(printable(path.name)),
        "summary": escape(f"{heading}. {blind}"),
        "apply": _apply(m, path),
        "evidence": _evidence(m, facts, coverage, sentences),
        "movement": _movement(m, moved),
        "provenance": facts_list(
            (name, text)
            for name, text in (facts | {"verified": verified}).items()
            if text and name not in EVIDENCE
        ),
        "version": escape(__version__),
    }
    return fill("map.html", filled)


def _apply(m: CorrectionMap, path: Place) -> str:
    told = "" if m.source_blind else ", source=source"
    call, what = f"m.transform(X{told})", f"(n, {m.n_features}) embeddings"
    if m.info.n_tokens is not None:
        call, what = f"transform_tokens(m, tokens{told})", f"(n, {m.info.n_tokens}, features) tokens"
    elif m.coordinates is not None:
        call, what = f"m.from_raw(X{told})", f"(n, {m.n_raw}) raw features"
    lines = [
        "import mgpa",
        f"m = mgpa.load_map({printable(str(path))!r})",
        f"corrected = {call}  # of {what}",
    ]
    if m.info.n_tokens is not None:
        lines.insert(1, "from mgpa.tokens import transform_tokens")
    command = f"mgpa apply {shlex.quote(printable(str(path)))} recordings.parquet --out corrected.parquet"
    encoder = m.info.encoder.get("name") if m.info.encoder else None
    fits = f" It is for embeddings of the encoder {encoder} and no other." if encoder else ""
    sources = ", ".join(m.info.source_names)
    words = f"To new rows of the sources {sources}, people it has never seen included.{fits}"
    return (
        f"<p>{escape(words)}</p><pre><code>{escape(command)}</code></pre>"
        f"<pre><code>{escape(chr(10).join(lines))}</code></pre>"
    )


def _evidence(
    m: CorrectionMap, facts: dict[str, str], coverage: Floats | None, sentences: Sequence[str]
) -> str:
    parts = [facts_list((name, facts[name]) for name in EVIDENCE if facts.get(name))]
    if sentences:
        parts.append(bullets(sentences))
    if coverage is not None:
        words = (
            "How much of what held-out pairs differ by lies inside gates that the other pairs gave, by the "
            "gate's rank. Ring: the rank this map has."
        )
        chart = _line_chart(coverage, "directions in the gate", "held-out contrasts inside", m.info.gate_rank)
        rows = [[str(rank), printed(float(value))] for rank, value in enumerate(coverage, start=1)]
        parts.append(_figure("Gate coverage", words, chart, ["Directions", "inside"], rows))
    elif not m.info.gate_rank:
        parts.append("<p>It has no gate: nothing limits the directions in which it may move rows.</p>")
    return "\n".join(parts)


def _movement(m: CorrectionMap, moved: Motion | None) -> str:
    if moved is None:
        return (
            "<p>Movement is one of rows: pass a table (<code>mgpa inspect --table</code>) to see it here.</p>"
        )
    said = (
        f"{moved.rows} move by {100 * moved.movement:.1f} % of their size, in the map's standardised "
        "coordinates."
    )
    parts = [f"<p>{escape(said)}</p>"]
    if moved.by_source:
        rows = [[name, f"{100 * value:.1f} %"] for name, value in moved.by_source.items()]
        parts.append(plain_table(["Source", "movement"], rows, "Rows of each source"))
    figures = []
    if len(moved.stages) > 1:
        steps = "directions" if m.kind == "path" else "stages"
        chart = _line_chart(moved.stages, steps, "relative movement")
        words = f"Relative movement when the first so many {steps} are applied."
        rows = [[str(i), printed(float(value), 4)] for i, value in enumerate(moved.stages, start=1)]
        figures.append(
            _figure(f"After so many {steps}", words, chart, [steps.capitalize(), "movement"], rows)
        )
    shares = moved.directions[: min(SHOWN, 1 + int(np.sum(np.cumsum(moved.directions) < ALL)))]
    if len(shares) == 1:
        parts[0] = f"<p>{escape(said)} They all move along one direction.</p>"
    elif len(shares):
        words = "Share of the squared movement along the directions in which rows moved most."
        rows = [[str(i), printed(float(value))] for i, value in enumerate(shares, start=1)]
        chart = _bar_chart(shares, "direction", "share of squared movement")
        figures.append(_figure("Direction by direction", words, chart, ["Direction", "share"], rows))
    return "\n".join([*parts, f'<div class="pair">{"".join(figures)}</div>' if figures else ""])


def _figure(title: str, words: str, chart: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return (
        f'<figure class="card narrow"><figcaption><h3>{escape(title)}</h3><p>{escape(words)}</p></figcaption>'
        f'<div class="chart">{chart}</div>'
        f"<details><summary>Numbers of this chart</summary>{plain_table(head, rows)}</details></figure>"
    )


def _line_chart(values: Floats, xlabel: str, ylabel: str, ring: int | None = None) -> str:
    """Return values at 1, 2, … as a line with dots; the one at ``ring`` in a ring."""
    top = _round_up(float(values.max(initial=0.0)))
    step = (WIDTH - LEFT - 20) / max(len(values) - 1, 1)
    places = [(LEFT + 8 + i * step, _y(float(value), top)) for i, value in enumerate(values)]
    path = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in places)
    marks = [f'<path class="line" d="{path}"/>']
    if len(places) <= 60:
        marks += [f'<circle class="dot" r="3" cx="{x:.1f}" cy="{y:.1f}"/>' for x, y in places]
    if ring is not None and 1 <= ring <= len(places):
        x, y = places[ring - 1]
        marks.append(f'<circle class="ring" r="8" cx="{x:.1f}" cy="{y:.1f}"/>')
    shown = {1, len(values)} | ({ring} if ring and 1 <= ring <= len(values) else set())
    names = [(places[rank - 1][0], str(rank)) for rank in sorted(shown)]
    return _chart("".join(marks), names, top, xlabel, ylabel)


def _bar_chart(values: Floats, xlabel: str, ylabel: str) -> str:
    top = _round_up(float(values.max(initial=0.0)))
    step = (WIDTH - LEFT - 12) / len(values)
    bars, names = [], []
    for i, value in enumerate(values):
        x, y = LEFT + i * step + 0.15 * step, _y(float(value), top)
        height = HEIGHT - BOTTOM - y
        bars.append(
            f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{0.7 * step:.1f}" height="{height:.1f}"/>'
        )
        names.append((x + 0.35 * step, str(i + 1)))
    return _chart("".join(bars), names, top, xlabel, ylabel)


def _chart(marks: str, names: Sequence[tuple[float, str]], top: float, xlabel: str, ylabel: str) -> str:
    """Return marks with axes: ``names`` under the horizontal one, 0 to ``top`` beside the vertical one."""
    right, floor = WIDTH - 12, HEIGHT - BOTTOM
    lines = []
    for value in np.linspace(0.0, top, 5):
        y = _y(float(value), top)
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(
            f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_tick(value)}</text>'
        )
    for x, name in names:
        lines.append(f'<text class="tick" x="{x:.1f}" y="{floor + 16}" text-anchor="middle">{name}</text>')
    lines.append(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{floor}" y2="{floor}"/>')
    lines.append(
        f'<text x="{(LEFT + right) / 2}" y="{floor + 33}" text-anchor="middle">{escape(xlabel)}</text>'
    )
    lines.append(f'<text x="0" y="{TOP - 12}">{escape(ylabel)}</text>')
    return (
        f'<svg class="accent" style="max-width: {WIDTH}px" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(f"{ylabel} by {xlabel}; the numbers are in the table below")}">'
        f"{''.join(lines)}{marks}</svg>"
    )


def _tick(value: float) -> str:
    text = f"{value:.3g}"
    return text.removeprefix("0") or text


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top


def _round_up(value: float) -> float:
    """Return the end of an axis that holds a value: 1, 2, 4 or 8 of some power of ten."""
    if not value > 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(power * k for k in (1, 2, 4, 8, 10) if value <= power * k * (1 + 1e-9)))
