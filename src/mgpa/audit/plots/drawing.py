"""What all figures share: settings, canvas, and the marks of a method."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._common.extras import missing
from ..._common.files import write_atomically
from ..bootstrap import Estimate
from ..looks import COLORS, Look, looks
from ..result import Audit

COLUMN, PAGE = 3.4, 7.0
INK, MUTED, FAINT = "#1a1a1a", "#595959", "#d9d9d9"
# Lines at the AUROC of guessing, and at the value without correction.
CHANCE = {"color": MUTED, "ls": ":", "lw": 0.9}
BEFORE = {"color": COLORS[0], "ls": (0, (4, 3)), "lw": 0.7, "zorder": 1}
SETTINGS = {
    "mathtext.fontset": "stixsans", "font.size": 7.5, "axes.labelsize": 7.5, "axes.titlesize": 7.5,
    "xtick.labelsize": 7, "ytick.labelsize": 7, "legend.fontsize": 7, "legend.frameon": False,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6,
    "axes.edgecolor": MUTED, "axes.labelcolor": INK, "text.color": INK,
    "xtick.color": MUTED, "xtick.labelcolor": INK, "xtick.major.width": 0.6, "xtick.major.size": 2.5,
    "ytick.color": MUTED, "ytick.labelcolor": INK, "ytick.major.width": 0.6, "ytick.major.size": 2.5,
    "lines.linewidth": 1.2, "lines.markersize": 4.2, "figure.dpi": 150, "savefig.dpi": 300,
    "pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "mgpa",
}  # fmt: skip


def style() -> AbstractContextManager[Any]:
    """Return the settings all figures are drawn and saved with, as a context."""
    try:
        import matplotlib
    except ImportError:
        raise missing("A figure", "matplotlib") from None
    context: AbstractContextManager[Any] = matplotlib.rc_context(SETTINGS | {"font.family": _fonts()})
    return context


@cache
def _fonts() -> list[str]:
    """Return what the journals ask for, if it is installed; the last, which is always, fills in signs."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return [*(f for f in ("Arial", "Helvetica", "Liberation Sans") if f in installed), "DejaVu Sans"]


@cache
def _figure_class() -> Any:
    from matplotlib.figure import Figure

    class AuditFigure(Figure):
        """A figure that saves with :func:`style`'s fonts, whole or not at all, and shows in notebooks."""

        def savefig(self, fname: Any, **options: Any) -> None:
            with style():
                if not isinstance(fname, str | os.PathLike):
                    super().savefig(fname, **options)
                    return
                path, stream = Path(fname), BytesIO()
                kind = path.suffix.removeprefix(".") or self.canvas.get_default_filetype()
                super().savefig(stream, **{"format": kind, **options})
                write_atomically(path if path.suffix else path.with_suffix(f".{kind}"), stream.getvalue())

        def _repr_png_(self) -> bytes:
            stream = BytesIO()
            self.savefig(stream, format="png", dpi=160)
            return stream.getvalue()

    AuditFigure.__qualname__ = "AuditFigure"  # by which pickles find it, see below
    return AuditFigure


def __getattr__(name: str) -> Any:
    if name == "AuditFigure":
        return _figure_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def canvas(
    axes: Any,
    width: float,
    height: float,
    count: int = 1,
    columns: int = 1,
    extra: float = 0.0,
    **options: Any,
) -> tuple[Any, NDArray[Any]]:
    """Return the figure and ``count`` axes: those given, or new ones in so many columns.

    A new figure has ``height`` for every row and ``extra`` once.
    """
    if axes is not None:
        given = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
        if len(given) < count:
            raise ValueError(f"This figure needs {count} axes; got {len(given)}.")
        return given[0].figure, given[:count]
    n_rows = -(-count // columns)
    figure = _figure_class()(figsize=(width, n_rows * height + extra), layout="constrained")
    made = figure.subplots(n_rows, columns, squeeze=False, **options).ravel()
    for unused in made[count:]:
        unused.remove()
    return figure, made[:count]


def plain(text: str) -> str:
    """Return text that matplotlib shows as it is, dollar signs included."""
    return text.replace("$", r"\$")


def points(ax: Any, x: Any, y: Any, look: Look, **options: Any) -> None:
    """Draw a method's markers."""
    settings = {"ms": 5.0, "mfc": look.face, "mec": look.color, "mew": 1.1, "zorder": 3} | options
    ax.plot(x, y, look.marker, **settings)


def whisker(ax: Any, x: Any, y: Any, look: Look) -> None:
    """Draw an interval; of x and y, one is an Estimate and the other a number."""
    x, y = ([v.low, v.high] if isinstance(v, Estimate) else [v, v] for v in (x, y))
    ax.plot(x, y, color=look.color, lw=0.9, zorder=2)


def grid(ax: Any, axis: str) -> None:
    """Draw faint lines behind everything."""
    ax.grid(axis=axis, color="#ececec", lw=0.6)
    ax.set_axisbelow(True)


def rows(ax: Any) -> None:
    """Take the y axis away, where rows have names instead of values."""
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    grid(ax, "x")


def forest(ax: Any, audit: Audit, values: list[tuple[str, Estimate]], names: bool = True) -> None:
    """Draw one row a method: a point and its interval."""
    styles = looks(audit)
    for row, (name, e) in enumerate(values):
        whisker(ax, e, row, styles[name])
        points(ax, e.value, row, styles[name])
    ax.set_yticks(range(len(values)), [plain(styles[n].label) if names else "" for n, _ in values])
    ax.set_ylim(len(values) - 0.5, -0.5)
    rows(ax)
