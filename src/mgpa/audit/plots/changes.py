"""Numbers and rows before and after a correction, without an audit: for a page, a notebook, a talk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..looks import COLORS, SOURCE_COLORS
from .drawing import CHANCE, PAGE, canvas, plain, rows, style


def plot_changes(
    values: Mapping[str, tuple[float, float]],
    ax: Any = None,
    *,
    xlabel: str = "AUROC (dotted: guessing)",
    legend: str | None = "lower right",
    width: float = PAGE,
) -> Any:
    """Draw numbers before (circles) and after (squares), one row a name.

    Parameters
    ----------
    values : dict of name to (before, after)
    ax : Axes or None
        Where to draw; None makes a figure.
    xlabel : str
        What the numbers are.
    legend : str or None
        Where the legend stands; None draws none.
    width : float
        Of a new figure, in inches.

    Examples
    --------
    >>> figure = plot_changes({"headset": (0.98, 0.55), "task": (0.81, 0.80)})
    >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    ['headset', 'task']
    """
    with style():
        figure, [ax] = canvas(ax, width, 0.35 * len(values) + 0.65)
        for row, (before, after) in enumerate(values.values()):
            ax.plot([before, after], [row, row], color=COLORS[1], lw=1.2, alpha=0.5)
            ax.plot(before, row, "o", ms=7, mfc="white", color=COLORS[0], label="" if row else "before")
            ax.plot(after, row, "s", color=COLORS[1], label="" if row else "after")
        ax.axvline(0.5, **CHANCE)
        ax.set_yticks(range(len(values)), [plain(name) for name in values])
        ax.set_ylim(len(values) - 0.5, -0.5)
        ax.set_xlabel(xlabel)
        rows(ax)
        if legend is not None:
            ax.legend(loc=legend)
    return figure


def plot_clouds(
    clouds: Mapping[str, Any],
    source: Any,
    axes: Any = None,
    *,
    xlabel: str = "",
    ylabel: str = "",
    width: float = 5.8,
) -> Any:
    """Draw rows in two directions, a panel a name, coloured by source; large markers are the sources' means.

    Parameters
    ----------
    clouds : dict of name to (n, 2) array
        The same rows, say before and after; all panels have one scale.
    source : array of n labels
    axes : Axes or None
        One for every panel; None makes a figure.
    xlabel, ylabel : str
        What the two directions are.
    width : float
        Of a new figure, in inches.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, source = rng.normal(size=(40, 2)), np.repeat(["dry", "wet"], 20)
    >>> [ax.get_title(loc="left") for ax in plot_clouds({"Before": X, "After": X / 2}, source).axes]
    ['Before', 'After']
    """
    source = np.asarray(source)
    labels = np.unique(source)
    with style():
        count = len(clouds)
        figure, panels = canvas(axes, width, 0.53 * width, count, count, sharex=True, sharey=True)
        for (title, cloud), ax in zip(clouds.items(), panels, strict=True):
            for i, name in enumerate(labels):
                color, part = SOURCE_COLORS[i % len(SOURCE_COLORS)], np.asarray(cloud)[source == name]
                ax.plot(*part.T, "o", ms=2.4, mew=0, alpha=0.45, color=color)
                # Of several sizes, so that all means are seen where they coincide.
                size, mean = 10 - 4 * i / max(len(labels) - 1, 1), part.mean(axis=0)
                ax.plot(*mean, "o", ms=size, mec="white", mew=1.2, color=color, label=plain(f"{name} (mean)"))
            ax.set_title(plain(title), loc="left", fontweight="bold")
            ax.set_xlabel(xlabel)
            ax.set_aspect("equal", adjustable="box")
        panels[0].set_ylabel(ylabel)
        if axes is None:
            figure.legend(
                *panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=len(labels)
            )
    return figure
