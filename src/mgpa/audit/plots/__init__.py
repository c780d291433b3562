"""Figures of an audit, for papers: plain functions that take the audit, draw, and return the figure.

Every function takes ``ax``
(or ``axes``) to draw into, and otherwise makes a figure of ``width`` inches: 3.4 is one column of most
journals, 7.0 the full page. A method has the same colour and marker everywhere; source-aware methods are
hollow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._common.files import write_atomically
from ..._common.progress import progress
from ..verdict import warnings
from .charts import (
    gates,
    plot_association,
    plot_embedding,
    plot_gate,
    plot_pairs,
    plot_participants,
    plot_readers,
    plot_tradeoff,
)
from .drawing import COLORS, COLUMN, MARKERS, PAGE, SOURCE_COLORS, grid, looks, style

if TYPE_CHECKING:
    from ..result import Audit

#: Every chart of an audit by its name.
CHARTS: dict[str, Callable[..., Any]] = {
    "tradeoff": plot_tradeoff,
    "readers": plot_readers,
    "participants": plot_participants,
    "association": plot_association,
    "pairs": plot_pairs,
    "gate": plot_gate,
    "embedding": plot_embedding,
}


__all__ = [
    "CHARTS", "COLORS", "COLUMN", "MARKERS", "PAGE", "SOURCE_COLORS", "draw_all", "grid", "looks", "plot",
    "plot_association", "plot_embedding", "plot_gate", "plot_pairs", "plot_participants", "plot_readers",
    "plot_tradeoff", "save_figures", "style",
]  # fmt: skip


def plot(audit: Audit, chart: str = "tradeoff", *arguments: Any, **options: Any) -> Any:
    """Draw a chart by its name, marked with what warns of its numbers."""
    if chart not in CHARTS:
        raise ValueError(f"No chart {chart!r}. Charts: {', '.join(CHARTS)}.")
    figure, marks = CHARTS[chart](audit, *arguments, **options), ", ".join(warnings(audit))
    if marks:
        layout, line = figure.get_layout_engine(), 0.12 / figure.get_figheight()
        if layout is not None and "rect" in layout.get():
            layout.set(rect=(0, line, 1, 1 - line))  # room below the axes' labels
        # The report has badges instead and leaves this out of its charts, by its gid.
        figure.text(0.995, 0.005, marks, ha="right", va="bottom", fontsize=6, color="#b00020", gid="stamp")
    return figure


def draw_all(audit: Audit) -> dict[str, Any]:
    """Return a figure of every chart that applies to an audit, by their names."""
    several = len(audit.methods) > 1
    applies = {
        **dict.fromkeys(("tradeoff", "readers", "participants"), several),
        "association": "worst" in audit.metrics,
        "pairs": audit.check_pairs() is not None,
        "gate": bool(gates(audit)),
    }
    drawn = {name: plot(audit, name) for name in CHARTS if applies.get(name, True)}
    if several and "T_f" in audit.metrics:
        drawn["participants_task"] = plot(audit, "participants", "T_f")
    for figure in drawn.values():  # laid out once, however often they are written
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return drawn


def save_figures(
    figures: Mapping[str, Any], folder: Any, formats: Any = ("pdf", "svg", "png"), verbose: bool = False
) -> list[Path]:
    """Write figures to a folder by their names, in every format, and return the paths."""
    formats = [formats] if isinstance(formats, str) else list(formats)
    # Without this, the same figure would give files that differ in their date only.
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    paths, folder = [], Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = [(name, kind) for name in figures for kind in formats]
    for i in progress(range(len(files)), "writing figures", verbose):
        (name, kind), stream = files[i], BytesIO()
        figures[name].savefig(stream, format=kind, metadata=undated.get(kind))
        paths.append(write_atomically(folder / f"{name}.{kind}", stream.getvalue()))
    return paths
