"""People and rows before and after: participants, the embedding, and what its variance is due to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..bootstrap import Estimate
from ..metrics import find_metric
from ..words import number
from .drawing import (
    BEFORE,
    CHANCE,
    COLORS,
    FAINT,
    INK,
    MARKERS,
    MUTED,
    PAGE,
    SOURCE_COLORS,
    axis_label,
    canvas,
    forest,
    grid,
    looks,
    mark,
    plain,
    points,
    style,
)

if TYPE_CHECKING:
    from ..result import Audit

# Rows of a cloud that are drawn: enough to see its shape.
CLOUD_ROWS = 800


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
    styles, before = looks(audit), audit["identity"].by_participant(metric)
    people = audit["identity"].participants
    with style():
        columns = min(len(names), 6 if width > 5 else 3)
        figure, panels = canvas(axes, width, 1.9, len(names), columns, extra=0.1, sharey=True)
        for k, (name, ax) in enumerate(zip(names, panels, strict=True)):
            look, after = styles[name], audit[name].by_participant(metric)
            titles = [
                f"{who}, {look.label}: {number(b)} → {number(a)}"
                for who, b, a in zip(people, before, after, strict=True)
            ]
            for i, line in enumerate(ax.plot([0, 1], [before, after], color=FAINT, lw=0.7, zorder=1)):
                mark(line, titles[i], name, [i])
            uncorrected = {"ms": 2.6, "marker": "o", "mfc": COLORS[0], "mew": 0, "zorder": 2}
            points(ax, np.zeros(len(before)), before, look, titles, range(len(before)), **uncorrected)
            points(ax, np.ones(len(after)), after, look, titles, range(len(after)), ms=3, mew=0.7, zorder=2)
            ax.plot([0, 1], [before.mean(), after.mean()], "-", color=INK, lw=1.6, zorder=3)
            for x, e in ((-0.16, audit["identity"].estimate(metric)), (1.16, audit[name].estimate(metric))):
                ax.plot([x, x], [e.low, e.high], color=INK, lw=1)
                ax.plot(x, e.value, "_", color=INK, ms=5, mew=1.2)
            if find_metric(metric).unit == "AUROC":
                ax.axhline(0.5, **CHANCE, zorder=0)
            ax.set_xlim(-0.4, 1.4)
            ax.set_xticks([0, 1], ["before", "after"])
            ax.set_title(look.short, fontweight="bold", fontsize=7, pad=4)
            ax.tick_params(axis="x", length=0)
            grid(ax, "y")
            if k % columns == 0:
                ax.set_ylabel(axis_label(find_metric(metric)))
    return figure


def plot_embedding(
    audit: Audit, axes: Any = None, *, methods: Iterable[str] | None = None, fit: int = 0, width: float = PAGE
) -> Any:
    """Draw evaluation rows before and after, in the two leading directions they had before, by source."""
    names, styles = ["identity", *(n for n in (methods or audit.methods) if n != "identity")], looks(audit)
    clouds = {name: audit[name].cells[fit if audit[name].n_fits > fit else 0]["picture"] for name in names}
    sources, codes = np.unique(audit.picture_source, return_inverse=True)
    colors = np.array([SOURCE_COLORS[i % len(SOURCE_COLORS)] for i in range(len(sources))])
    # The same frame for all, or a method that shrinks the cloud would not be seen to.
    everything = np.concatenate(list(clouds.values()))
    low, high = everything.min(axis=0), everything.max(axis=0)
    margin = 0.04 * (high - low).max()
    with style():
        columns = min(len(names), 4 if width > 5 else 2)
        tall = width / columns * float(np.clip(np.divide(*(high - low)[::-1]), 0.3, 2))
        figure, panels = canvas(axes, width, tall + 0.2, len(names), columns, extra=0.35)
        for k, (name, ax) in enumerate(zip(names, panels, strict=True)):
            # In turns, or the source drawn last would hide the others.
            order = np.random.default_rng(0).permutation(len(clouds[name]))[:CLOUD_ROWS]
            for part in np.array_split(order, 8):
                for i in range(len(sources)):
                    drawn = clouds[name][part[codes[part] == i]]
                    dots = {"ms": 2.4, "mew": 0, "alpha": 0.5, "zorder": 1, "color": colors[i]}
                    ax.plot(*drawn.T, "o", **dots)
            for i, source in enumerate(sources):
                ax.plot(
                    *clouds[name][codes == i].mean(axis=0), MARKERS[i % len(MARKERS)],
                    ms=7.5 if i == 0 else 4.5, mfc=colors[i], mec="white", mew=0.9, zorder=3,
                    ls="none", label=plain(str(source)),
                )  # fmt: skip
            ax.set(
                xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin),
                xticks=[], yticks=[],
            )  # fmt: skip
            ax.set_aspect("equal", adjustable="box")
            ax.spines[:].set(visible=True, color=FAINT)
            ax.set_title(styles[name].short, loc="left", fontweight="bold", fontsize=7, pad=3)
            if k >= len(names) - columns:
                ax.set_xlabel("Direction 1", color=MUTED)
            if k % columns == 0:
                ax.set_ylabel("Direction 2", color=MUTED)
        handles, labels = panels[0].get_legend_handles_labels()
        if axes is None:
            words = [f"{source} (mean)" for source in labels]
            figure.legend(handles, words, loc="outside upper right", ncols=len(words))
        else:
            panels[0].legend(handles, labels)
    return figure


def plot_variance(audit: Audit, axes: Any = None, *, width: float = PAGE) -> Any:
    """Draw which share of the variance lies between sources, between participants and between labels.

    The dotted line is the share unrelated groups of the same sizes would take, the dashed one the identity.
    """
    shares, styles = {name: audit[name].variance_shares() for name in audit}, looks(audit)
    factors = list(shares["identity"])
    with style():
        figure, panels = canvas(axes, width, 0.75 + 0.17 * len(shares), len(factors), len(factors))
        for k, (factor, ax) in enumerate(zip(factors, panels, strict=True)):
            before, chance = shares["identity"][factor]
            values = {name: share[factor][0] for name, share in shares.items()}
            for row, (name, value) in enumerate(values.items()):
                ax.plot([before, value], [row, row], color=styles[name].color, lw=1, alpha=0.45, zorder=1)
            estimates = [(name, Estimate(value, value, value)) for name, value in values.items()]
            forest(ax, audit, estimates, names=k == 0 or axes is not None)
            ax.axvline(before, **BEFORE)
            ax.axvline(chance, **CHANCE, zorder=1)
            widest = max(values.values()) + 1e-9
            ax.set_xlim(-0.04 * widest, 1.12 * widest)
            title = "Task label" if factor == "label" else factor.capitalize()
            ax.set_title(title, loc="left", fontweight="bold")
        panels[len(panels) // 2].set_xlabel("Share of the embedding's variance")
    return figure
