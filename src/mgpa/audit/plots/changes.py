"""Numbers and rows before and after a correction, or along a setting: for a page, a notebook, a talk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import drawing as draw
from .drawing import COLORS, MARKERS, PAGE, SOURCE_COLORS, canvas, plain, style


def plot_changes(
    values: Mapping[str, tuple[float, float]],
    ax: Any = None,
    *,
    xlabel: str = "AUROC (dotted: guessing)",
    legend: str = "lower right",
) -> Any:
    """Draw numbers before (circles) and after (squares), one row a name.

    Examples
    --------
    >>> figure = plot_changes({"headset": (0.98, 0.55), "task": (0.81, 0.80)})
    >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    ['headset', 'task']
    """
    with style():
        figure, [ax] = canvas(ax, PAGE, 0.35 * len(values) + 0.65)
        for row, (before, after) in enumerate(values.values()):
            ax.plot([before, after], [row, row], color=COLORS[1], lw=1.2, alpha=0.5)
            ax.plot(before, row, "o", ms=7, mfc="white", color=COLORS[0], label="" if row else "before")
            ax.plot(after, row, "s", color=COLORS[1], label="" if row else "after")
        ax.axvline(0.5, **draw.CHANCE)
        ax.set_yticks(range(len(values)), [plain(name) for name in values])
        ax.set(ylim=(len(values) - 0.5, -0.5), xlabel=xlabel)
        draw.rows(ax)
        ax.legend(loc=legend)
    return figure


def plot_lines(
    panels: Mapping[str, Mapping[str, tuple[Any, Any]]],
    axes: Any = None,
    *,
    xlabel: str = "",
    chance: Iterable[str] = (),
    before: Mapping[str, float] | None = None,
    mark: float | None = None,
    width: float = PAGE,
) -> Any:
    """Draw how numbers change with a setting: a panel a title, a line (x, y) a name, "Identity" grey.

    Of y in several columns (repetitions), the mean is drawn and the range shaded. Panels in ``chance`` have
    a dotted line at .5, those in ``before`` a dashed one at the value without correction.
    """
    others = dict.fromkeys(name for lines in panels.values() for name in lines if name != "Identity")
    hues = {"Identity": 0} | {name: i for i, name in enumerate(others, start=1)}
    with style():
        figure, drawn = canvas(axes, width, max(2.4, 0.3 * width), len(panels), len(panels))
        for (title, lines), ax in zip(panels.items(), drawn, strict=True):
            for name, (x, y) in lines.items():
                y, hue = np.asarray(y, dtype=np.float64), hues[name]
                color, marker = COLORS[hue % len(COLORS)], MARKERS[hue % len(MARKERS)]
                if y.ndim == 2:
                    ax.fill_between(x, y.min(axis=1), y.max(axis=1), color=color, alpha=0.15, lw=0)
                    y = y.mean(axis=1)
                ax.plot(x, y, "-" + marker, ms=3.2, color=color, label=plain(name))
            if title in tuple(chance):
                ax.axhline(0.5, **draw.CHANCE)
            if before is not None and title in before:
                ax.axhline(before[title], **draw.BEFORE, label="without correction")
            if mark is not None:
                ax.axvline(mark, color=draw.FAINT, lw=4, zorder=0)
            ax.set_title(plain(title), loc="left")
            ax.set_xlabel(xlabel)
        # Where most lines are, so that every name is in it.
        max(drawn, key=lambda ax: len(ax.lines)).legend(loc="best")
    return figure


def plot_clouds(clouds: Mapping[str, Any], source: Any, *, xlabel: str = "", ylabel: str = "") -> Any:
    """Draw the same rows, (n, 2) arrays, in a panel a name, coloured by source; large markers are means."""
    labels, count = np.unique(np.asarray(source)), len(clouds)
    with style():
        figure, panels = canvas(None, 5.8, 3.1, count, count, sharex=True, sharey=True)
        for (title, cloud), ax in zip(clouds.items(), panels, strict=True):
            for i, name in enumerate(labels):
                color, part = (
                    SOURCE_COLORS[i % len(SOURCE_COLORS)],
                    np.asarray(cloud)[np.asarray(source) == name],
                )
                ax.plot(*part.T, "o", ms=2.4, mew=0, alpha=0.45, color=color)
                # Of several sizes, so that all means are seen where they coincide.
                size, mean = 10 - 4 * i / max(len(labels) - 1, 1), part.mean(axis=0)
                ax.plot(*mean, "o", ms=size, mec="white", mew=1.2, color=color, label=plain(f"{name} (mean)"))
            ax.set_title(plain(title), loc="left", fontweight="bold")
            ax.set(xlabel=xlabel, aspect="equal", adjustable="box")
        panels[0].set_ylabel(ylabel)
        legend = panels[0].get_legend_handles_labels()
        figure.legend(*legend, loc="outside upper right", ncols=len(labels))
    return figure
