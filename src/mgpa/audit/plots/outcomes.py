"""What corrections achieved: source against task, reader by reader, and under shifted association."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..association import curve_at
from ..metrics import Metric, find_metric
from ..words import number, reader_rows
from .drawing import (
    BEFORE,
    CHANCE,
    COLORS,
    COLUMN,
    INK,
    MUTED,
    PAGE,
    axis_label,
    canvas,
    grid,
    label_ends,
    label_points,
    looks,
    mark,
    plain,
    points,
    rows,
    style,
    whisker,
)

if TYPE_CHECKING:
    from ..result import Audit


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
    across, up = find_metric(x), find_metric(y)
    with style():
        figure, [ax] = canvas(ax, width, 0.78 * width if width < 5 else 0.55 * width)
        places, segments = [], []
        for name, look in looks(audit).items():
            ex, ey = audit[name].estimate(x), audit[name].estimate(y)
            whisker(ax, ex, ey.value, look)
            whisker(ax, ex.value, ey, look)
            title = f"{look.label}\n{across.name} {ex}\n{up.name} {ey}"
            points(ax, ex.value, ey.value, look, title, ms=5.5)
            places.append((ex.value, ey.value, look))
            segments += [(ex.low, ey.value, ex.high, ey.value), (ex.value, ey.low, ex.value, ey.high)]
        ax.margins(0.09)
        if up.unit == "AUROC" and (top := ax.get_ylim()[1]) > 1:
            ax.set_ylim(min(ax.get_ylim()[0], 0.95), min(top, 1.01))  # no tick where no AUROC can be
        if across.unit == "AUROC":
            ax.axvline(0.5, **CHANCE, zorder=1)
            ax.annotate(
                "chance", (0.5, 0), (2, 3), xycoords=ax.get_xaxis_transform(), textcoords="offset points",
                color=MUTED, fontsize=6.5,
            )  # fmt: skip
        if up.unit == "AUROC":
            before = audit["identity"].estimate(y).value
            ax.axhline(before, **BEFORE)
            segments.append((ax.get_xlim()[0], before, ax.get_xlim()[1], before))
        ax.set_xlabel(f"{axis_label(across)}\n{_ways(across)}")
        ax.set_ylabel(f"{axis_label(up)}\n{_ways(up)}")
        label_points(ax, places, segments)
        if not all(audit[name].source_blind for name in audit):
            ax.set_title(
                "hollow: told the source of every row", fontsize=6.5, color=MUTED, loc="right", pad=3
            )
    return figure


def _ways(metric: Metric) -> str:
    """Return which way on an axis is good."""
    return {"lower": "← lower is better", "higher": "higher is better →", "neither": ""}[metric.better]


def plot_readers(audit: Audit, axes: Any = None, *, width: float = PAGE) -> Any:
    """Draw every reader's source AUROC before (grey) and after each method, readers by group.

    The ringed reader sets S. ``axes``, if given, need one for every method besides the identity.
    """
    styles, before = looks(audit), audit["identity"].reader_means()
    names = audit.methods[1:] or audit.methods
    readers = reader_rows(audit["identity"].readers)
    columns = min(len(names), 3 if width > 5 else 1)
    # Groups stand apart by an empty row.
    starts = [i for i in range(len(readers)) if i == 0 or readers[i][0] != readers[i - 1][0]]
    y = np.array([i + 1.2 * sum(s <= i for s in starts) for i in range(len(readers))])
    size, step = (6.5, 0.135) if len(readers) <= 16 else (5.2, 0.1)
    with style():
        figure, panels = canvas(axes, width, 0.45 + (y[-1] + 1.5) * step, len(names), columns, sharex=True)
        for k, (name, ax) in enumerate(zip(names, panels, strict=True)):
            look, after = styles[name], audit[name].reader_means()
            if audit[name].readers != audit["identity"].readers:
                raise ValueError(f"{name} and the identity were read by different readers.")
            mark(ax.hlines(y, before, after, color=look.color, lw=1.0, alpha=0.45, zorder=1), "", name)
            ax.plot(before, y, "o", ms=3, color=COLORS[0], zorder=2)
            titles = [
                f"{look.label}, {reader}: {number(b)} → {number(a)}"
                for (_, reader), b, a in zip(readers, before, after, strict=True)
            ]
            points(ax, after, y, look, titles, ms=3.8, mew=0.9)
            best = int(after.argmax())
            ax.plot(after[best], y[best], "o", ms=8, mfc="none", mec=INK, mew=0.7, zorder=4)
            ax.axvline(0.5, **CHANCE, zorder=0)
            ax.set_title(look.short, loc="left", fontweight="bold", color=INK, pad=4)
            ax.set_ylim(y[-1] + 0.8, -0.6)
            first = axes is not None or k % columns == 0
            ax.set_yticks(y, [plain(name) if first else "" for _, name in readers], fontsize=size)
            rows(ax)
            for s in starts if first else []:
                ax.annotate(
                    readers[s][0], (0, y[s] - 1), (-3, 0), xycoords=ax.get_yaxis_transform(),
                    textcoords="offset points", ha="right", va="center", fontsize=size,
                    fontweight="bold", annotation_clip=False,
                )  # fmt: skip
            for x, word in ((before[0], "before"), (after[0], "after")) if k == 0 else ():
                ax.annotate(
                    word, (x, y[0]), (0, 6), textcoords="offset points", ha="center", fontsize=6, color=MUTED
                )
            if k >= len(names) - columns:
                ax.set_xlabel("Source AUROC")
                ax.tick_params(labelbottom=True)
    return figure


def plot_association(audit: Audit, ax: Any = None, *, head: str = "shortcut", width: float = COLUMN) -> Any:
    """Draw a head's AUROC as device and label go together (ξ = 1), not at all (0) or reversed (-1).

    Curves are means over participants and fits; the marker is the minimum, its whisker the interval of the
    worst-association AUROC (of which, with several fits, each has its own minimum).
    """
    xi = np.linspace(-1, 1, 81)
    with style():
        figure, [ax] = canvas(ax, width, 0.8 * width if width < 5 else 0.45 * width)
        ends = []
        for name, look in looks(audit).items():
            curve, lowest, where = audit[name].association_curve(head)
            (line,) = ax.plot(xi, curve_at(curve, xi), color=look.color, ls="--" if look.hollow else "-")
            title = f"{look.label}: lowest {number(lowest)} at ξ = {number(where, 2)}"
            mark(line, title, name)
            if head == "shortcut":
                whisker(ax, where, audit[name].estimate("worst"), look)
            points(ax, where, lowest, look, title, ms=4.6, clip_on=False)
            ends.append((1.0, float(curve_at(curve, 1.0)), look))
        ax.set_xlim(-1.04, 1)
        ax.axhline(0.5, **CHANCE, zorder=1)
        ax.set_xticks([-1, 0, 1], ["−1\nreversed", "0\nindependent", "1\naligned"])
        ax.set_xlabel("Association ξ of device and label")
        ax.set_ylabel(f"{head.capitalize()}-head AUROC")
        grid(ax, "y")
        label_ends(ax, ends)
    return figure
