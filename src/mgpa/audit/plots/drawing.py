"""Shared parts of figures: settings, canvas, markers of methods, labels and legends."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from ..._common.extras import missing
from ...errors import printable
from ..estimates import Estimate
from ..words import label
from .palette import COLORS, places

if TYPE_CHECKING:
    from ..metrics import Metric
    from ..result import Audit

COLUMN, PAGE = 3.4, 7.0
# Maximum number of characters of a method's name in a chart.
LONGEST = 22
INK, MUTED, FAINT, GRID = "#1a1a1a", "#595959", "#d9d9d9", "#ececec"
# Styles of the lines at chance level and at the uncorrected value.
CHANCE = {"color": MUTED, "ls": ":", "lw": 0.9}
BEFORE = {"color": COLORS[0], "ls": (0, (4, 3)), "lw": 0.7, "zorder": 1}
SETTINGS = {
    # Fonts required by journals, if installed; the last font is always available and supplies symbols.
    "font.family": ["sans-serif", "DejaVu Sans"],
    "font.sans-serif": ["Arial", "Helvetica", "Liberation Sans", "DejaVu Sans"],
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
    """Return a context with the settings for drawing and saving figures."""
    try:
        import matplotlib
    except ImportError:
        raise missing("A figure", "matplotlib") from None
    context: AbstractContextManager[Any] = matplotlib.rc_context(SETTINGS)
    return context


@cache
def _figure_class() -> Any:
    from matplotlib.figure import Figure

    class AuditFigure(Figure):
        """A figure that is saved with the fonts of :func:`style` and displayed in notebooks."""

        def savefig(self, fname: Any, **options: Any) -> None:
            with style():
                super().savefig(fname, **options)

        def _repr_png_(self) -> bytes:
            stream = BytesIO()
            self.savefig(stream, format="png", dpi=160)
            return stream.getvalue()

    return AuditFigure


def canvas(
    width: float, height: float, count: int = 1, columns: int = 1, extra: float = 0, **options: Any
) -> tuple[Any, NDArray[Any]]:
    """Return a figure and ``count`` axes; its height is ``height`` per row of axes plus ``extra``."""
    n_rows = -(-count // columns)
    figure = _figure_class()(figsize=(width, n_rows * height + extra), layout="constrained")
    made = figure.subplots(n_rows, columns, squeeze=False, **options).ravel()
    for unused in made[count:]:
        unused.remove()
    return figure, made[:count]


def figure_bytes(figure: Any, kind: str = "svg", **options: Any) -> bytes:
    """Return the bytes of a figure as svg, pdf or png; equal figures give equal bytes."""
    stream = BytesIO()
    # Without these settings, files of equal figures would differ in their date.
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    figure.savefig(stream, format=kind, metadata=undated.get(kind), **options)
    file = stream.getvalue()
    # matplotlib derives names of clip paths from all digits of their positions. The last digits of a layout
    # depend on memory addresses.
    for i, clip in enumerate(re.findall(rb'<clipPath id="(\w+)"', file) if kind == "svg" else ()):
        file = file.replace(clip, b"clip%d" % i)
    return file


def plain(text: str) -> str:
    """Escape dollar signs, which matplotlib would read as math."""
    return printable(text).replace("$", r"\$")


def axis_label(metric: Metric) -> str:
    """Return the title and unit of a metric without math, so that they remain text in SVG."""
    return re.sub(r" \$\w_\w\$", "", metric.axis).replace("$", "").replace("^2", "²")


class Look(NamedTuple):
    """The label, colour and marker of a method; hollow if it is source-aware."""

    name: str
    label: str
    color: str
    face: str
    marker: str
    hollow: bool

    @property
    def short(self) -> str:
        """The label, escaped for matplotlib and shortened if it is long."""
        return plain(self.label if len(self.label) <= LONGEST else f"{self.label[: LONGEST - 1]}…")


def looks(audit: Audit) -> dict[str, Look]:
    """Return the label, colour and marker of each method, by name."""
    styles = {}
    for name, (color, marker) in places(audit.methods).items():
        hollow = not audit[name].source_blind
        face = "white" if hollow else COLORS[color]
        styles[name] = Look(name, printable(label(name)), COLORS[color], face, marker, hollow)
    return styles


def mark(artist: Any, titles: str | Iterable[str], method: str = "", people: Iterable[int] = ()) -> None:
    """Attach data to an artist, for tooltips and highlighting in the report.

    ``titles`` is one text per point, or one for all; ``method`` is a name; ``people`` has the participants of
    the points.
    """
    marks = vars(artist.get_figure(root=True)).setdefault("mgpa_marks", {})
    artist.set_gid(f"mark{len(marks)}")
    titles = (titles,) if isinstance(titles, str) else tuple(titles)
    marks[artist.get_gid()] = titles, method, tuple(people)


def points(
    ax: Any, x: Any, y: Any, look: Look, titles: Any = "", people: Iterable[int] = (), **options: Any
) -> None:
    """Draw the markers of a method, with data for tooltips."""
    default = {"ms": 5.0, "mfc": look.face, "mec": look.color, "mew": 1.1, "zorder": 3, "ls": "none"}
    (line,) = ax.plot(x, y, **default | {"marker": look.marker} | options)
    mark(line, titles or look.label, look.name, people)


def whisker(ax: Any, x: Any, y: Any, look: Look) -> None:
    """Draw an interval; one of x and y is an Estimate, the other a number."""
    x, y = ([v.low, v.high] if isinstance(v, Estimate) else [v, v] for v in (x, y))
    (line,) = ax.plot(x, y, color=look.color, lw=0.9, zorder=2)
    mark(line, look.label, look.name)


def grid(ax: Any, axis: str) -> None:
    """Draw faint grid lines behind all other parts."""
    ax.grid(axis=axis, color=GRID, lw=0.6)
    ax.set_axisbelow(True)


def rows(ax: Any) -> None:
    """Hide the y axis of a chart with one named method per row."""
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    grid(ax, "x")


def legend(ax: Any, audit: Audit, columns: int) -> None:
    """Draw the legend of methods below a chart."""
    from matplotlib.lines import Line2D

    shape: dict[str, Any] = {"ls": "none", "ms": 4.6, "mew": 1.1}
    marks = [
        Line2D([], [], marker=look.marker, mfc=look.face, mec=look.color, label=look.short, **shape)
        for look in looks(audit).values()
    ]
    ax.figure.legend(handles=marks, loc="outside lower center", ncols=columns, handletextpad=0.2)
