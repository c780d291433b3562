"""Figures of an audit, for papers: plain functions that take the audit, draw, and return the figure.

Every function takes ``ax`` (or ``axes``) to draw into, and otherwise makes a figure of ``width`` inches:
3.4 is one column of most journals, 7.0 the full page. A method has the same colour and marker everywhere;
source-aware methods are hollow, as in the paper. Text stays text in PDF and SVG.

>>> from mgpa.audit import plots
>>> plots.plot_tradeoff(audit, width=plots.PAGE).savefig("tradeoff.pdf")                 # doctest: +SKIP
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .association import curve_at, curve_coefficients, curve_minimum
from .bootstrap import Estimate, estimate

if TYPE_CHECKING:
    from .result import Audit, MethodResult

Floats = NDArray[np.float64]

COLUMN, PAGE = 3.4, 7.0

# The first is the identity's. At least 3:1 against white, and apart from each other for readers with
# protanopia and deuteranopia too (smallest CIELAB distance 29); markers differ as well.
COLORS = ("#444444", "#006ed7", "#c77700", "#0b9e6c", "#b565a7", "#7a4312", "#3b1c6c")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
SOURCE_COLORS = ("#0e7c86", "#c2405b", "#6b6b00", "#5b5ea6", "#9a5b00", "#555555")
INK, MUTED, FAINT = "#1a1a1a", "#595959", "#d9d9d9"

#: How methods of this package are written; other names are shown as they are.
LABELS = {
    "identity": "Identity",
    "leace": "LEACE",
    "oracle_leace": "Oracle LEACE",
    "quadratic_leace": "Quadratic LEACE",
    "closed_form_mgpa": "Closed-form MGPA",
    "iterative_mgpa": "Iterative MGPA",
    "splince": "SPLINCE",
    "inlp": "INLP",
    "igbp": "IGBP",
    "mance": "MANCE",
    "ncm": "NCM",
    "pisco": "PISCO",
    "featmap": "FEATMAP",
    "coral": "CORAL",
    "combat": "ComBat",
}
AXIS = {
    "S": "Source accessibility $S$ (AUROC)",
    "T_f": "Frozen-head task $T_f$ (AUROC)",
    "T_r": "Refitted-head task $T_r$ (AUROC)",
    "M": "Relative movement $M$",
    "worst": "Worst-association AUROC",
    "control": "Control-head AUROC",
    "floor": "Source floor (AUROC)",
}
_READER_GROUPS = {"mean": "Token mean", "tokens": "All tokens", "residual": "Token residuals"}
_READER_NAMES = {
    "linear": "linear",
    "whitened_linear": "whitened linear",
    "gelu": "GELU",
    "linear_raw": "linear, raw",
    "linear_standardized": "linear, scaled",
    "flat_gelu": "GELU, flat",
    "grid_gelu": "GELU, grid",
}


@dataclass(frozen=True)
class Look:
    """How a method is drawn everywhere."""

    label: str
    color: str
    marker: str
    hollow: bool

    @property
    def face(self) -> str:
        """What markers are filled with."""
        return "white" if self.hollow else self.color


def looks(audit: Audit) -> dict[str, Look]:
    """Return each method's label, colour and marker; the identity is grey."""
    found, names = {}, [name for name in audit.methods if name != "identity"]
    for name in audit.methods:
        i = 0 if name == "identity" else 1 + names.index(name)
        color = COLORS[0] if i == 0 else COLORS[1 + (i - 1) % (len(COLORS) - 1)]
        found[name] = Look(
            LABELS.get(name, name), color, MARKERS[i % len(MARKERS)], not audit[name].source_blind
        )
    return found


def participant_values(result: MethodResult, metric: str) -> Floats:
    """Return a metric of every participant, averaged over fits; their mean is the metric itself.

    For S these are AUROCs of the reader that sets it, for the worst association AUROCs at the association
    that is worst on average.
    """
    statistic, values = result.values(metric)
    if statistic == "max":
        best = values.mean(axis=1).argmax(axis=-1)
        values = np.stack([fit[:, reader] for fit, reader in zip(values, best, strict=True)])
    elif statistic == "worst":
        curves = curve_coefficients(values)
        xi = curve_minimum(curves.mean(axis=1))[1]
        values = np.stack([curve_at(c, float(x)) for c, x in zip(curves, xi, strict=True)])
    return np.asarray(values.mean(axis=0))


def reader_intervals(result: MethodResult) -> list[Estimate]:
    """Return every reader's participant-mean AUROC with its interval."""
    return [estimate(result.source_auroc[:, :, r]) for r in range(len(result.readers))]


def reader_rows(readers: Iterable[str]) -> list[tuple[str, str]]:
    """Return the group and the short name of each reader.

    Examples
    --------
    >>> reader_rows(["whitened_linear", "gelu r0 e12", "tokens linear_raw"])
    [('Linear', 'whitened linear'), ('Networks', 'GELU r0 e12'), ('All tokens', 'linear, raw')]
    """
    rows = []
    for reader in readers:
        group, _, name = reader.partition(" ")
        if group not in _READER_GROUPS:
            group, name = "", reader
        family, run = re.fullmatch(r"(.*?)((?: r\d+ e\d+)?)", name, re.DOTALL).groups()  # type: ignore[union-attr]
        title = _READER_GROUPS.get(group) or ("Networks" if run else "Linear")
        rows.append((title, _READER_NAMES.get(family, family) + run))
    return rows


def gates(audit: Audit) -> list[tuple[list[str], dict[str, Any]]]:
    """Return the different gates, each with the methods that use it and what is known about it."""
    found: list[tuple[list[str], dict[str, Any]]] = []
    for name, result in audit.results.items():
        facts = result.facts[0] if result.facts else {}
        if "gate_energy" not in facts:
            continue
        for methods, known in found:
            if _same_span(known["gate_basis"], facts["gate_basis"]):
                methods.append(name)
                break
        else:
            found.append(([name], facts))
    return found


def _same_span(A: Floats, B: Floats) -> bool:
    return A.shape == B.shape and bool(np.allclose(np.linalg.svd(A.T @ B, compute_uv=False), 1, atol=1e-6))


def stage_movement(result: MethodResult) -> list[Floats]:
    """Return each fit's movement after 0, 1, 2, … stages; nothing for maps without stages."""
    return [
        np.concatenate([[0.0], fit["stage_movement"]])
        for fit in result.facts
        if len(fit.get("stage_movement", ()))
    ]


def variance(result: MethodResult) -> dict[str, tuple[float, float]]:
    """Return each factor's share of the variance, averaged over fits, and its share by chance."""
    if not result.cells or "variance_factor" not in result.cells[0]:
        return {}
    shares = np.mean([cell["variance_share"] for cell in result.cells], axis=0)
    factors = result.cells[0]["variance_factor"].tolist()
    return {f: (float(row[0]), float(row[1])) for f, row in zip(factors, shares, strict=True)}


def association_curve(result: MethodResult, head: str = "shortcut") -> tuple[Floats, float, float]:
    """Return (a, b, c) of the mean curve over participants and fits, its minimum, and the ξ of that."""
    values = result.shortcut if head == "shortcut" else result.control
    if values is None:
        result.values("worst")  # raises, and says why
        raise ValueError(f"{head} was not measured for {result.name}.")
    curve = curve_coefficients(values).mean(axis=(0, 1))
    lowest, xi = curve_minimum(curve)
    return curve, float(lowest), float(xi)


# ------------------------------------------------------------------------------------------------ style


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise ImportError("Figures need matplotlib: pip install 'mgpa[report]'.") from None
    return matplotlib


@cache
def _fonts() -> list[str]:
    """Return what the journals ask for, if it is installed; the last, which is always, fills in signs."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return [
        *(f for f in ("Arial", "Helvetica", "Liberation Sans") if f in installed),
        "DejaVu Sans",
    ]


def style() -> AbstractContextManager[Any]:
    """Return the settings all figures are drawn and saved with, as a context."""
    matplotlib = _matplotlib()
    context: AbstractContextManager[Any] = matplotlib.rc_context(
        {
            "font.family": _fonts(),
            "mathtext.fontset": "stixsans",
            "font.size": 7.5,
            "axes.labelsize": 7.5,
            "axes.titlesize": 7.5,
            "xtick.labelsize": 7,
            "ytick.labelsize": 7,
            "legend.fontsize": 7,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.linewidth": 0.6,
            "axes.edgecolor": MUTED,
            "axes.labelcolor": INK,
            "text.color": INK,
            "xtick.color": MUTED,
            "ytick.color": MUTED,
            "xtick.labelcolor": INK,
            "ytick.labelcolor": INK,
            "xtick.major.width": 0.6,
            "ytick.major.width": 0.6,
            "xtick.major.size": 2.5,
            "ytick.major.size": 2.5,
            "lines.linewidth": 1.2,
            "lines.markersize": 4.2,
            "legend.frameon": False,
            "figure.dpi": 150,
            "savefig.dpi": 300,
            "pdf.fonttype": 42,
            "ps.fonttype": 42,
            "svg.fonttype": "none",
            "svg.hashsalt": "mgpa",
        }
    )
    return context


@cache
def _figure_class() -> Any:
    from matplotlib.figure import Figure

    class AuditFigure(Figure):
        """A figure that saves with :func:`style`'s fonts and shows itself in notebooks without pyplot."""

        def savefig(self, fname: Any, **options: Any) -> None:
            with style():
                super().savefig(fname, **options)

        def _repr_png_(self) -> bytes:
            from io import BytesIO

            stream = BytesIO()
            self.savefig(stream, format="png", dpi=160)
            return stream.getvalue()

    return AuditFigure


def _canvas(
    axes: Any, width: float, height: float, count: int = 1, columns: int = 1, **options: Any
) -> tuple[Any, NDArray[Any]]:
    """Return the figure and ``count`` axes: those given, or new ones in so many columns."""
    if axes is not None:
        given = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
        if len(given) < count:
            raise ValueError(f"This figure needs {count} axes; got {len(given)}.")
        return given[0].figure, given[:count]
    figure = _figure_class()(figsize=(width, height), layout="constrained")
    made = figure.subplots(-(-count // columns), columns, squeeze=False, **options).ravel()
    for unused in made[count:]:
        unused.remove()
    return figure, made[:count]


def _plain(text: str) -> str:
    """Return text that matplotlib shows as it is, dollar signs included."""
    return text.replace("$", r"\$")


def _whiskers(
    ax: Any, x: float, y: float, look: Look, across: Estimate | None = None, up: Estimate | None = None
) -> None:
    """Draw the intervals of a point, along x (across) and along y (up)."""
    if across is not None:
        ax.plot([across.low, across.high], [y, y], color=look.color, lw=0.9, zorder=2)
    if up is not None:
        ax.plot([x, x], [up.low, up.high], color=look.color, lw=0.9, zorder=2)


def _point(ax: Any, x: float, y: float, look: Look, **options: Any) -> None:
    settings = {"ms": 5.0, "mfc": look.face, "mec": look.color, "mew": 1.1, "zorder": 3} | options
    ax.plot([x], [y], look.marker, **settings)


def _grid(ax: Any, axis: str) -> None:
    ax.grid(axis=axis, color="#ececec", lw=0.6)
    ax.set_axisbelow(True)


def _label_points(
    ax: Any, points: list[tuple[float, float, Look]], lines: Iterable[tuple[float, ...]]
) -> None:
    """Write each method's name beside its point, where it covers least of points, lines and other names."""
    ax.figure.draw_without_rendering()
    frame, dot = ax.get_window_extent(), ax.figure.dpi / 72
    at = [ax.transData.transform((x, y)) for x, y, _ in points]
    taken = [(x - 4 * dot, y - 4 * dot, x + 4 * dot, y + 4 * dot, 4.0) for x, y in at]
    for x0, y0, x1, y1 in lines:
        (a, b), (c, d) = ax.transData.transform([(x0, y0), (x1, y1)])
        taken.append((a - dot, b - dot, c + dot, d + dot, 1.0))

    def cost(box: tuple[float, ...], own: int) -> float:
        covered = sum(
            max(0.0, min(box[2], b[2]) - max(box[0], b[0]))
            * max(0.0, min(box[3], b[3]) - max(box[1], b[1]))
            * b[4]
            for b in taken
        )
        edge = 2 * dot
        beyond = (
            frame.x0 + edge - box[0], frame.y0 + edge - box[1],
            box[2] - frame.x1 + edge, box[3] - frame.y1 + edge,
        )  # fmt: skip
        # A name nearer to another point than to its own would be read as that one's.
        gaps = [np.hypot(max(box[0] - x, x - box[2], 0), max(box[1] - y, y - box[3], 0)) / dot for x, y in at]
        stolen = max(0.0, gaps[own] + 3 - min([g for i, g in enumerate(gaps) if i != own], default=99.0))
        return float(covered / dot**2 + 40 * sum(max(0.0, e) for e in beyond) + 25 * stolen + 2 * gaps[own])

    for own, ((x, y, look), (px, py)) in enumerate(zip(points, at, strict=True)):
        text = ax.annotate(_plain(look.label), (0, 0), xycoords="figure pixels", fontsize=7)
        box = text.get_window_extent()
        text.remove()
        w, h = box.width, box.height
        choices = []
        for reach in (6, 10, 15, 21, 28, 36, 46, 58):
            for angle in np.arange(0, 360, 30):
                ux, uy = np.cos(np.radians(angle)), np.sin(np.radians(angle))
                cx = px + ux * (reach * dot + w / 2)
                cy = py + uy * (reach * dot + h / 2)
                place = (cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2)
                choices.append((cost(place, own), reach, cx, cy, place))
        _, reach, cx, cy, place = min(choices)
        taken.append((*place, 6.0))
        ax.annotate(
            _plain(look.label),
            (x, y),
            ((cx - px) / dot, (cy - py) / dot),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=7,
            zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.4},
            arrowprops=None
            if reach < 10
            else {"arrowstyle": "-", "color": look.color, "lw": 0.6, "shrinkA": 1, "shrinkB": 3},
        )


def _spread(positions: list[float], gap: float) -> list[float]:
    """Return positions moved as little as needed to lie ``gap`` apart, in the order given."""
    order = np.argsort(positions, kind="stable")
    placed = np.asarray(positions, dtype=float)[order]
    for _ in range(200):
        close = np.diff(placed) < gap - 1e-9
        if not close.any():
            break
        for i in np.flatnonzero(close):
            middle = (placed[i] + placed[i + 1]) / 2
            placed[i], placed[i + 1] = middle - gap / 2, middle + gap / 2
    result = np.empty(len(placed))
    result[order] = placed
    return [float(x) for x in result]


def _label_ends(ax: Any, ends: list[tuple[float, float, Look]]) -> None:
    """Write names to the right of the ends of lines, moved apart where they would touch."""
    ax.figure.draw_without_rendering()
    dot = ax.figure.dpi / 72
    heights = [float(ax.transData.transform((x, y))[1]) / dot for x, y, _ in ends]
    for (x, y, look), height, moved in zip(ends, heights, _spread(heights, 8.5), strict=True):
        ax.annotate(
            _plain(look.label),
            (x, y),
            (9, moved - height),
            textcoords="offset points",
            va="center",
            fontsize=7,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": look.color, "lw": 0.7, "shrinkA": 0, "shrinkB": 2},
        )


def _forest(ax: Any, audit: Audit, values: list[tuple[str, Estimate]], names: bool = True) -> None:
    """Draw one row a method: a point and its interval."""
    styles = looks(audit)
    for row, (name, e) in enumerate(values):
        _whiskers(ax, e.value, row, styles[name], across=e)
        _point(ax, e.value, row, styles[name])
    ax.set_yticks(range(len(values)), [_plain(styles[n].label) if names else "" for n, _ in values])
    ax.set_ylim(len(values) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    _grid(ax, "x")


# ------------------------------------------------------------------------------------------------ figures


def plot_tradeoff(
    audit: Audit, ax: Any = None, *, x: str = "S", y: str | None = None, width: float = COLUMN
) -> Any:
    """Draw source accessibility against the task: further left is less source, further up more task.

    Parameters
    ----------
    audit : Audit
    ax : Axes or None
    x, y : str
        Metrics; y is T_f where the table has labels and the movement M otherwise.
    width : float
        Of a new figure, in inches.
    """
    y = y or ("T_f" if "T_f" in audit.metrics else "M")
    styles = looks(audit)
    with style():
        figure, [ax] = _canvas(ax, width, 0.78 * width if width < 5 else 0.55 * width)
        points, segments = [], []
        for name in audit.methods:
            look, (ex, ey) = styles[name], (audit[name].estimate(x), audit[name].estimate(y))
            _whiskers(ax, ex.value, ey.value, look, across=ex, up=ey)
            _point(ax, ex.value, ey.value, look, ms=5.5)
            points.append((ex.value, ey.value, look))
            segments += [(ex.low, ey.value, ex.high, ey.value), (ex.value, ey.low, ex.value, ey.high)]
        ax.margins(0.09)
        if x in ("S", "floor"):
            ax.axvline(0.5, color=MUTED, ls=":", lw=0.9, zorder=1)
        if y != "M":
            before = audit["identity"].estimate(y).value
            ax.axhline(before, color=COLORS[0], ls=(0, (4, 3)), lw=0.7, zorder=1)
            segments.append((ax.get_xlim()[0], before, ax.get_xlim()[1], before))
        better = {"M": "lower is better"}.get(y, "higher is better")
        ax.set_xlabel(f"{AXIS[x]}\n← {'lower is better' if x in ('S', 'floor', 'M') else 'lower'}")
        ax.set_ylabel(f"{AXIS[y]}\n{better}{' →' if y != 'M' else ''}")
        if x in ("S", "floor"):
            ax.annotate(
                "chance", (0.5, 0), (2, 3), xycoords=ax.get_xaxis_transform(), textcoords="offset points",
                color=MUTED, fontsize=6.5,
            )  # fmt: skip
        _label_points(ax, points, segments)
        _note_hollow(ax, audit)
    return figure


def _note_hollow(ax: Any, audit: Audit) -> None:
    if any(look.hollow for look in looks(audit).values()):
        ax.set_title("hollow: told the source of every row", fontsize=6.5, color=MUTED, loc="right", pad=3)


def plot_readers(audit: Audit, axes: Any = None, *, width: float = PAGE) -> Any:
    """Draw every reader's source AUROC before (grey) and after each method, readers by group.

    The ringed reader sets S. ``axes``, if given, need one for every method besides the identity.
    """
    styles, before = looks(audit), audit["identity"].reader_means()
    names = [name for name in audit.methods if name != "identity"] or ["identity"]
    rows = reader_rows(audit["identity"].readers)
    columns = min(len(names), 3 if width > 5 else 1)
    n_rows = -(-len(names) // columns)
    # Groups stand apart by an empty row.
    starts = [i for i in range(len(rows)) if i == 0 or rows[i][0] != rows[i - 1][0]]
    y = np.array([i + 1.2 * sum(s <= i for s in starts) for i in range(len(rows))])
    size = 6.5 if len(rows) <= 16 else 5.2
    with style():
        height = n_rows * (0.45 + (y[-1] + 1.5) * (0.135 if len(rows) <= 16 else 0.1))
        figure, panels = _canvas(axes, width, height, len(names), columns, sharex=True)
        for k, (name, ax) in enumerate(zip(names, panels, strict=True)):
            look, result = styles[name], audit[name]
            after = result.reader_means()
            if result.readers != audit["identity"].readers:
                raise ValueError(f"{name} and the identity were read by different readers.")
            ax.hlines(y, before, after, color=look.color, lw=1.0, alpha=0.45, zorder=1)
            ax.plot(before, y, "o", ms=3, color=COLORS[0], zorder=2)
            ax.plot(after, y, look.marker, ms=3.8, mfc=look.face, mec=look.color, mew=0.9, zorder=3)
            best = int(after.argmax())
            ax.plot(after[best], y[best], "o", ms=8, mfc="none", mec=INK, mew=0.7, zorder=4)
            ax.axvline(0.5, color=MUTED, ls=":", lw=0.9, zorder=0)
            ax.set_title(_plain(look.label), loc="left", fontweight="bold", color=INK, pad=4)
            ax.set_ylim(y[-1] + 0.8, -0.6)
            first = axes is not None or k % columns == 0
            ax.set_yticks(y, [_plain(row[1]) for row in rows] if first else [""] * len(rows), fontsize=size)
            ax.tick_params(axis="y", length=0)
            ax.spines["left"].set_visible(False)
            _grid(ax, "x")
            for s in starts if first else []:
                ax.annotate(
                    rows[s][0], (0, y[s] - 1), (-3, 0), xycoords=ax.get_yaxis_transform(),
                    textcoords="offset points", ha="right", va="center", fontsize=size,
                    fontweight="bold", annotation_clip=False,
                )  # fmt: skip
            if k == 0:
                for x, word in ((before[0], "before"), (after[0], "after")):
                    ax.annotate(
                        word,
                        (x, y[0]),
                        (0, 6),
                        textcoords="offset points",
                        ha="center",
                        fontsize=6,
                        color=MUTED,
                    )
            if k >= len(names) - columns:
                ax.set_xlabel("Source AUROC")
                ax.tick_params(labelbottom=True)
    return figure


def plot_movement(audit: Audit, axes: Any = None, *, width: float | None = None) -> Any:
    """Draw how far embeddings moved: stage by stage (validation rows) where maps have stages, and M.

    ``axes`` is one Axes (stages if there are any, else M) or two (stages, M).
    """
    staged = {name: stage_movement(result) for name, result in audit.results.items()}
    staged = {name: paths for name, paths in staged.items() if paths}
    moved = [(name, audit[name].estimate("M")) for name in audit.methods if name != "identity"]
    styles = looks(audit)
    one = not staged or (axes is not None and np.size(axes) == 1)
    with style():
        width = width or (COLUMN if one else PAGE)
        height = max(1.0 + 0.17 * len(moved), 2.2 if staged else 1.2)
        options = {} if one else {"width_ratios": [1.15, 1]}
        figure, panels = _canvas(axes, width, height, 1 if one else 2, 1 if one else 2, **options)
        if staged:
            ax, ends = panels[0], []
            for name, paths in staged.items():
                for path in paths:
                    ax.plot(range(len(path)), path, color=styles[name].color, lw=0.7, alpha=0.6)
                    _point(ax, len(path) - 1, path[-1], styles[name], ms=3.2)
                longest = max(paths, key=len)
                ends.append((len(longest) - 1.0, float(longest[-1]), styles[name]))
            ax.set_xlabel("Stage")
            ax.set_ylabel("Relative movement, VAL")
            ax.set_xlim(left=0)
            ax.set_ylim(bottom=0)
            ax.xaxis.get_major_locator().set_params(integer=True)
            _grid(ax, "y")
            _label_ends(ax, ends)
        if not (staged and one):
            ax = panels[-1 if not one else 0]
            _forest(ax, audit, moved)
            ax.set_xlim(left=0)
            ax.set_xlabel(f"{AXIS['M']}, EVAL")
    return figure


def plot_gate(audit: Audit, ax: Any = None, *, width: float = COLUMN) -> Any:
    """Draw how much of the paired contrasts the leading directions hold, and the rank the gate took.

    The diamond is what the chosen gate covers of contrasts of people it was not made from.
    """
    found = gates(audit)
    if not found:
        raise ValueError("No audited method has a gate; plot_gate has nothing to draw.")
    styles = looks(audit)
    with style():
        figure, [ax] = _canvas(ax, width, 0.66 * width if width < 5 else 0.4 * width)
        last = 1
        for methods, facts in found:
            look, energy = styles[methods[0]], np.asarray(facts["gate_energy"])
            rank = facts["gate_basis"].shape[1]
            # Beyond this the curve says nothing more.
            shown = max(rank + 2, int(np.searchsorted(energy, 0.999)) + 1)
            last = max(last, min(shown, len(energy)))
            ax.plot(range(1, len(energy) + 1), energy, "-o", color=look.color, ms=2.6, lw=1, zorder=2)
            ax.plot([rank], [energy[rank - 1]], "o", ms=7, mfc="none", mec=look.color, mew=1.3, zorder=4)
            text = f"rank {rank}, {100 * energy[rank - 1]:.1f} % of FIT contrasts"
            if "gate_coverage" in facts:
                coverage = float(facts["gate_coverage"])
                ax.plot([rank], [coverage], "D", ms=4.2, mfc="white", mec=look.color, mew=1.1, zorder=5)
                text += f"\ndiamond: {100 * coverage:.1f} % of held-out ones"
            names = "\n".join(_plain(styles[m].label) for m in methods)
            ax.plot([], [], "-o", color=look.color, ms=2.6, lw=1, label=f"{names}\n{text}")
        ax.set_xlim(0.5, last + 0.5)
        ax.set_ylim(min(0.0, ax.get_ylim()[0]), 1.04)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_xlabel("Directions in the gate")
        ax.set_ylabel("Cumulative contrast energy")
        _grid(ax, "y")
        ax.legend(loc="lower right", handlelength=1.4, labelspacing=0.8)
    return figure


def plot_association(audit: Audit, ax: Any = None, *, head: str = "shortcut", width: float = COLUMN) -> Any:
    """Draw a head's AUROC as device and label go together (ξ = 1), not at all (0) or reversed (-1).

    Curves are means over participants and fits; the marker is the minimum, its whisker the interval of the
    worst-association AUROC (of which, with several fits, each has its own minimum).
    """
    styles = looks(audit)
    xi = np.linspace(-1, 1, 81)
    with style():
        figure, [ax] = _canvas(ax, width, 0.8 * width if width < 5 else 0.45 * width)
        ends = []
        for name in audit.methods:
            look = styles[name]
            curve, lowest, where = association_curve(audit[name], head)
            ax.plot(xi, curve_at(curve, xi), color=look.color, lw=1.2, ls="--" if look.hollow else "-")
            if head == "shortcut":
                e = audit[name].estimate("worst")
                _whiskers(ax, where, lowest, look, up=e)
            _point(ax, where, lowest, look, ms=4.6, clip_on=False)
            ends.append((1.0, float(curve_at(curve, 1.0)), look))
        ax.set_xlim(-1.04, 1)
        ax.axhline(0.5, color=MUTED, ls=":", lw=0.9, zorder=1)
        ax.set_xticks([-1, 0, 1], ["−1\nreversed", "0\nindependent", "1\naligned"])
        ax.set_xlabel("Association ξ of device and label")
        ax.set_ylabel(f"{head.capitalize()}-head AUROC")
        _grid(ax, "y")
        _label_ends(ax, ends)
    return figure


def plot_participants(
    audit: Audit,
    metric: str = "S",
    axes: Any = None,
    *,
    methods: Iterable[str] | None = None,
    width: float = PAGE,
) -> Any:
    """Draw a metric of every participant without (left) and with (right) each method, and their means."""
    names = [name for name in (methods or audit.methods) if name != "identity"]
    if not names:
        raise ValueError("plot_participants compares methods with the identity; there is only the identity.")
    styles, before = looks(audit), participant_values(audit["identity"], metric)
    with style():
        columns = min(len(names), 6 if width > 5 else 3)
        n_rows = -(-len(names) // columns)
        figure, panels = _canvas(axes, width, 1.9 * n_rows + 0.1, len(names), columns, sharey=True)
        for k, (name, ax) in enumerate(zip(names, panels, strict=True)):
            look, after = styles[name], participant_values(audit[name], metric)
            ax.plot([0, 1], [before, after], color=FAINT, lw=0.7, zorder=1)
            ax.plot(np.zeros(len(before)), before, "o", ms=2.6, color=COLORS[0], alpha=0.75, mew=0, zorder=2)
            ax.plot(
                np.ones(len(after)),
                after,
                look.marker,
                ms=3,
                mfc=look.face,
                mec=look.color,
                mew=0.7,
                zorder=2,
            )
            ax.plot([0, 1], [before.mean(), after.mean()], "-", color=INK, lw=1.6, zorder=3)
            for side, name_ in ((0, "identity"), (1, name)):
                e = audit[name_].estimate(metric)
                out = -0.16 if side == 0 else 1.16
                ax.plot([out, out], [e.low, e.high], color=INK, lw=1)
                ax.plot([out], [e.value], "_", color=INK, ms=5, mew=1.2)
            if metric != "M":
                ax.axhline(0.5, color=MUTED, ls=":", lw=0.9, zorder=0)
            ax.set_xlim(-0.4, 1.4)
            ax.set_xticks([0, 1], ["before", "after"])
            ax.set_title(_plain(look.label), fontweight="bold", fontsize=7, pad=4)
            ax.tick_params(axis="x", length=0)
            _grid(ax, "y")
            if k % columns == 0:
                ax.set_ylabel(AXIS[metric])
    return figure


def plot_embedding(
    audit: Audit,
    axes: Any = None,
    *,
    methods: Iterable[str] | None = None,
    fit: int = 0,
    width: float = PAGE,
) -> Any:
    """Draw evaluation rows before and after, in the two leading directions they had before, by source."""
    names = list(methods or audit.methods)
    names = ["identity", *(name for name in names if name != "identity")]
    clouds = {name: audit[name].cells[fit if audit[name].n_fits > fit else 0]["picture"] for name in names}
    sources, codes = np.unique(audit.picture_source, return_inverse=True)
    colors = np.array([SOURCE_COLORS[i % len(SOURCE_COLORS)] for i in range(len(sources))])
    everything = np.concatenate(list(clouds.values()))
    # The same frame for all, or a method that shrinks the cloud would not be seen to.
    low, high = everything.min(axis=0), everything.max(axis=0)
    with style():
        columns = min(len(names), 4 if width > 5 else 2)
        n_rows = -(-len(names) // columns)
        tall = width / columns * float(np.clip(np.divide(*(high - low)[::-1]), 0.3, 2))
        figure, panels = _canvas(axes, width, (tall + 0.2) * n_rows + 0.35, len(names), columns)
        margin = 0.04 * (high - low).max()
        for k, (name, ax) in enumerate(zip(names, panels, strict=True)):
            order = np.random.default_rng(0).permutation(len(clouds[name]))
            # Mixed, or the source drawn last would hide the others.
            ax.scatter(
                *clouds[name][order].T, s=5, c=colors[codes[order]], alpha=0.5, linewidths=0, zorder=1,
                rasterized=len(order) > 3000,
            )  # fmt: skip
            for i, source in enumerate(sources):
                ax.plot(
                    *clouds[name][codes == i].mean(axis=0), MARKERS[i % len(MARKERS)],
                    ms=7.5 if i == 0 else 4.5, mfc=colors[i], mec="white", mew=0.9, zorder=3,
                    ls="none", label=_plain(str(source)),
                )  # fmt: skip
            ax.set_xlim(low[0] - margin, high[0] + margin)
            ax.set_ylim(low[1] - margin, high[1] + margin)
            ax.set_aspect("equal", adjustable="box")
            ax.set_xticks([])
            ax.set_yticks([])
            ax.spines[:].set(visible=True, color=FAINT)
            ax.set_title(_plain(looks(audit)[name].label), loc="left", fontweight="bold", fontsize=7, pad=3)
            if k >= len(names) - columns:
                ax.set_xlabel("Direction 1", color=MUTED)
            if k % columns == 0:
                ax.set_ylabel("Direction 2", color=MUTED)
        handles, labels = panels[0].get_legend_handles_labels()
        if axes is None:
            figure.legend(
                handles, [f"{label} (mean)" for label in labels], loc="outside upper right", ncols=len(labels)
            )
        else:
            panels[0].legend(handles, labels)
    return figure


def plot_variance(audit: Audit, axes: Any = None, *, width: float = PAGE) -> Any:
    """Draw which share of the variance lies between sources, between participants and between labels.

    The dotted line is the share unrelated groups of the same sizes would take, the dashed one the identity.
    """
    shares = {name: variance(audit[name]) for name in audit.methods}
    factors = list(shares["identity"])
    if not factors:
        raise ValueError("Variance shares were not measured.")
    styles = looks(audit)
    with style():
        figure, panels = _canvas(axes, width, 0.75 + 0.17 * len(shares), len(factors), len(factors))
        for k, (factor, ax) in enumerate(zip(factors, panels, strict=True)):
            before, chance = shares["identity"][factor]
            rows = [(name, Estimate(*3 * [shares[name][factor][0]])) for name in audit.methods]
            for row, (name, e) in enumerate(rows):
                ax.plot([before, e.value], [row, row], color=styles[name].color, lw=1, alpha=0.45, zorder=1)
            _forest(ax, audit, rows, names=k == 0 or axes is not None)
            ax.axvline(before, color=COLORS[0], ls=(0, (4, 3)), lw=0.7, zorder=1)
            ax.axvline(chance, color=MUTED, ls=":", lw=0.9, zorder=1)
            widest = max(e.value for _, e in rows) + 1e-9
            ax.set_xlim(-0.04 * widest, 1.12 * widest)
            ax.set_title(
                {"label": "task label"}.get(factor, factor).capitalize(), loc="left", fontweight="bold"
            )
        panels[len(panels) // 2].set_xlabel("Share of the embedding's variance")
    return figure


#: Figures by file name, what each needs, and how it is drawn.
FIGURES: dict[str, tuple[Callable[[Audit], bool], Callable[[Audit], Any]]] = {
    "tradeoff": (lambda audit: len(audit.methods) > 1, plot_tradeoff),
    "readers": (lambda audit: len(audit.methods) > 1, plot_readers),
    "association": (lambda audit: "worst" in audit.metrics, plot_association),
    "movement": (lambda audit: len(audit.methods) > 1, plot_movement),
    "gate": (lambda audit: bool(gates(audit)), plot_gate),
    "participants_source": (lambda audit: len(audit.methods) > 1, plot_participants),
    "participants_task": (
        lambda audit: len(audit.methods) > 1 and "T_f" in audit.metrics,
        lambda audit: plot_participants(audit, "T_f"),
    ),
    "embedding": (lambda audit: True, plot_embedding),
    "variance": (lambda audit: bool(variance(audit["identity"])), plot_variance),
}


def save_all(audit: Audit, folder: Any, formats: Iterable[str] = ("pdf", "svg", "png")) -> list[Path]:
    """Write every figure that applies to ``folder``, in every format, and return the paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(formats, str):
        formats = (formats,)
    # Without this, the same audit would give files that differ in their date only.
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    paths, formats = [], list(formats)
    for name, (applies, draw) in FIGURES.items():
        if not applies(audit):
            continue
        figure = draw(audit)
        for kind in formats:
            paths.append(folder / f"{name}.{kind}")
            figure.savefig(paths[-1], format=kind, metadata=undated.get(kind))
    return paths
