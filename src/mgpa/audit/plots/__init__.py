"""Figures of an audit, for papers: plain functions that take the audit, draw, and return the figure.

Three need no audit: :func:`plot_changes` draws numbers, and :func:`plot_clouds` rows, before and after, and
:func:`plot_lines` numbers along a setting.

Every function takes ``ax`` (or ``axes``) to draw into, and otherwise makes a figure of ``width`` inches:
3.4 is one column of most journals, 7.0 the full page. A method has the same colour and marker everywhere;
source-aware methods are hollow, as in the paper. Text stays text in PDF and SVG.

>>> from mgpa.audit import plots
>>> plots.plot_tradeoff(audit, width=plots.PAGE).savefig("tradeoff.pdf")                 # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..._common.progress import progress
from ..details import gates
from ..result import Audit
from .changes import plot_changes, plot_clouds, plot_lines
from .drawing import COLUMN, PAGE, style
from .maps import plot_gate, plot_movement, plot_pairs
from .outcomes import plot_association, plot_readers, plot_tradeoff
from .rows import plot_embedding, plot_participants, plot_variance

__all__ = [
    "COLUMN",
    "PAGE",
    "plot_association",
    "plot_changes",
    "plot_clouds",
    "plot_embedding",
    "plot_gate",
    "plot_lines",
    "plot_movement",
    "plot_pairs",
    "plot_participants",
    "plot_readers",
    "plot_tradeoff",
    "plot_variance",
    "save_all",
    "save_figures",
    "stamped",
    "style",
]


def save_all(
    audit: Audit, folder: Any, formats: Iterable[str] = ("pdf", "svg", "png"), *, verbose: bool = False
) -> list[Path]:
    """Write every figure that applies to ``folder``, in every format, and return the paths.

    ``verbose`` shows how far it is.
    """
    several = len(audit.methods) > 1
    figures: dict[str, tuple[bool, Callable[[Audit], Any]]] = {
        "tradeoff": (several, plot_tradeoff),
        "readers": (several, plot_readers),
        "association": ("worst" in audit.metrics, plot_association),
        "movement": (several, plot_movement),
        "pairs": (audit.check_pairs() is not None, plot_pairs),
        "gate": (bool(gates(audit)), plot_gate),
        "participants_source": (several, plot_participants),
        "participants_task": (several and "T_f" in audit.metrics, lambda a: plot_participants(a, "T_f")),
        "embedding": (True, plot_embedding),
        "variance": (True, plot_variance),
    }
    drawn = {n: stamped(audit, draw(audit)) for n, (applies, draw) in figures.items() if applies}
    return save_figures(drawn, folder, formats, verbose=verbose)


def stamped(audit: Audit, figure: Any) -> Any:
    """Return a figure of an audit, marked with what warns of its numbers."""
    marks = ", ".join(warning.partition(":")[0] for warning in audit.warnings)
    if marks:
        layout, line = figure.get_layout_engine(), 0.12 / figure.get_figheight()
        if layout is not None and "rect" in layout.get():
            layout.set(rect=(0, line, 1, 1 - line))  # room below the axes' labels
        figure.text(0.995, 0.005, marks, ha="right", va="bottom", fontsize=6, color="#b00020")
    return figure


def save_figures(
    figures: Mapping[str, Any],
    folder: Any,
    formats: Iterable[str] = ("pdf", "svg", "png"),
    *,
    verbose: bool = False,
) -> list[Path]:
    """Write figures to a folder by their names, in every format, and return the paths."""
    formats = [formats] if isinstance(formats, str) else list(formats)
    # Without this, the same figure would give files that differ in their date only.
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    paths, folder = [], Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = [(name, kind) for name in figures for kind in formats]
    for i in progress(range(len(files)), "writing figures", verbose):
        name, kind = files[i]
        paths.append(folder / f"{name}.{kind}")
        figures[name].savefig(paths[-1], format=kind, metadata=undated.get(kind))
    return paths
