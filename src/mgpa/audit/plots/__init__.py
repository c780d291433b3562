"""Draw publication-ready figures of an audit; each function takes the audit and returns the figure.

Figures have the width of a column or a page of most journals. Each method has the same colour and marker in
all figures (:func:`colour_of`); source-aware methods have hollow markers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._common.files import write_atomically
from ..estimates import Estimate, number
from ..metrics import METRICS, find_metric
from ..verdict import warnings
from ..words import reader_name
from . import drawing as draw
from .drawing import COLUMN, PAGE, canvas, grid, looks, plain, points, style
from .gate import named_gate, plot_gate
from .palette import COLORS, MARKERS, SOURCE_COLORS, colour_of, marker_of, source_colours

if TYPE_CHECKING:
    from ..diagnostics import PairCheck
    from ..result import Audit

# Number of rows to draw in each cloud: enough to see the shape.
CLOUD_ROWS = 800
# Metrics to draw differences of, if they were measured.
DIFFERENCES = ("S", "home", "away", "RMSEP_home", "RMSEP_away", "T_f", "T_r", "RMSEP_r")

__all__ = [
    "CHARTS", "COLORS", "COLUMN", "MARKERS", "PAGE", "SOURCE_COLORS", "colour_of", "draw_all", "grid",
    "looks", "marker_of", "plot", "plot_association", "plot_differences", "plot_embedding", "plot_gate",
    "plot_pairs", "plot_participants", "plot_readers", "plot_tradeoff", "save_figures", "source_colours",
    "style",
]  # fmt: skip


def plot_tradeoff(audit: Audit) -> Any:
    """Draw task performance (y axis) against source AUROC (x axis) for each method.

    Task performance is T_f, or R² for numeric labels. Without labels, the y axis shows the movement M.
    """
    y = next((m for m in ("T_f", "R2_f") if m in audit.metrics), "M")
    up = METRICS[y]
    with style():
        figure, [ax] = canvas(COLUMN, 0.86 * COLUMN)
        places: list[tuple[float, float]] = []
        for name, look in reversed(looks(audit).items()):
            ex, ey = audit.tabled[name]["S"], audit.tabled[name][y]
            draw.whisker(ax, _paired(audit, name, "S"), ey.value, look)
            draw.whisker(ax, ex.value, _paired(audit, name, y), look)
            # Earlier markers are larger, so that all remain visible if methods coincide.
            above = sum(abs(ex.value - px) + abs(ey.value - py) < 0.004 for px, py in places)
            title, size = f"{look.label}\nS {ex}\n{y} {ey}", 5.5 + 3 * above
            points(ax, ex.value, ey.value, look, title, ms=size, zorder=4 - 0.1 * above)
            places.append((ex.value, ey.value))
        ax.margins(0.09)
        if up.unit == "AUROC":  # no ticks above 1, and no small change that looks large
            low, high = ax.get_ylim()
            high = min(max(high, low + 0.1), 1.01)
            ax.set_ylim(min(low, high - 0.1), high)
        ax.axvline(0.5, **draw.CHANCE, zorder=1)
        if up.better != "neither":
            ax.axhline(audit.tabled["identity"][y].value, **draw.BEFORE)
        ax.set_xlabel(f"{draw.axis_label(METRICS['S'])}\n← lower is better")
        ax.set_ylabel(draw.axis_label(up) + "\nhigher is better →" * (up.better == "higher"))
        draw.legend(ax, audit, 3)
        if not all(audit[name].source_blind for name in audit):
            ax.set_title(
                "hollow: needs the source of every row", fontsize=6.5, color=draw.MUTED, loc="right", pad=3
            )
    return figure


def _paired(audit: Audit, name: str, metric: str) -> Estimate:
    """Return a method's value with the paired interval of its difference from the identity."""
    shown, before = audit.tabled[name][metric], audit.tabled["identity"][metric].value
    if name == "identity" or metric not in audit.metrics:
        return shown
    change = audit.contrast(name, metric=metric)
    return Estimate(shown.value, before + change.low, before + change.high)


def plot_differences(audit: Audit) -> Any:
    """Draw the differences of each method from the identity, for the source and for existing and new heads.

    Intervals are paired over participants. The heads are those shown in tables.
    """
    names = audit.methods[1:]
    if not names:
        raise ValueError("plot_differences needs a method besides the identity.")
    metrics = [name for name in DIFFERENCES if name in audit.metrics]
    columns, styles = min(len(metrics), 3), looks(audit)
    with style():
        size = _width(columns), 0.75 + 0.2 * len(names)
        figure, panels = canvas(*size, len(metrics), columns, sharey=True)
        for metric, ax in zip(metrics, panels, strict=True):
            for i, name in enumerate(names):
                change = audit.changes[name][metric]
                draw.whisker(ax, change, i, styles[name])
                title = f"{styles[name].label}, {metric}: {change:+.3f}"
                points(ax, change.value, i, styles[name], title)
            ax.axvline(0, **draw.CHANCE, zorder=1)
            better = "← better" if METRICS[metric].better == "lower" else "better →"
            ax.set_title(f"{metric}: {METRICS[metric].subject}", loc="left", fontsize=6.5, pad=4)
            ax.set_xlabel(f"change\n{better}")
            ax.set_ylim(len(names) - 0.5, -0.5)
            ax.set_yticks(range(len(names)), [styles[name].short for name in names], fontsize=6.5)
            ax.margins(x=0.1)
            draw.rows(ax)
    return figure


def plot_readers(audit: Audit) -> Any:
    """Draw the source AUROC of each reader before (grey) and after correction; the best has a ring."""
    styles, before = looks(audit), audit["identity"].reader_means()
    names = audit.methods[1:] or audit.methods
    readers = [reader_name(reader) for reader in audit["identity"].readers]
    columns, y = min(len(names), 3), np.arange(len(readers))
    size, step = (6.5, 0.15) if len(readers) <= 16 else (5.2, 0.1)
    with style():
        height = 0.65 + (y[-1] + 1.5) * step
        figure, panels = canvas(_width(columns, 1.8), height, len(names), columns, sharex=True)
        for k, (name, ax) in enumerate(zip(names, panels, strict=True)):
            look, after = styles[name], audit[name].reader_means()
            draw.mark(ax.hlines(y, before, after, color=look.color, lw=1.0, alpha=0.45, zorder=1), "", name)
            ax.plot(before, y, "o", ms=3, color=COLORS[0], zorder=2)
            changes = zip(readers, before, after, strict=True)
            titles = [f"{look.label}, {reader}: {number(b)} → {number(a)}" for reader, b, a in changes]
            points(ax, after, y, look, titles, ms=3.8, mew=0.9)
            best = int(after.argmax())
            ax.plot(after[best], y[best], "o", ms=8, mfc="none", mec=draw.INK, mew=0.7, zorder=4)
            ax.axvline(0.5, **draw.CHANCE, zorder=0)
            ax.set_title(look.short, loc="left", fontweight="bold", pad=4)
            ax.set_ylim(y[-1] + 0.8, -0.8)
            ax.set_yticks(y, ["" if k % columns else plain(reader) for reader in readers], fontsize=size)
            draw.rows(ax)
            if k >= len(names) - columns:
                ax.set_xlabel("Source AUROC")
                ax.tick_params(labelbottom=True)
    return figure


def _width(columns: int, names: float = 0.6) -> float:
    """Return the width of a figure: a column for one or two panels (to fit on phones), else a page."""
    return COLUMN if columns * 1.4 + names <= 1.05 * COLUMN else PAGE


def plot_association(audit: Audit) -> Any:
    """Draw the AUROC of the shortcut head over the association ξ of source and label, marking minima."""
    xi = np.linspace(-1, 1, 81)
    with style():
        figure, [ax] = canvas(COLUMN, 0.86 * COLUMN)
        for name, look in looks(audit).items():
            curve, lowest, where = audit[name].association_curve()
            title = f"{look.label}: lowest {number(lowest)} at ξ = {number(where, '.2f')}"
            (line,) = ax.plot(xi, np.polyval(curve, xi), color=look.color, ls="--" if look.hollow else "-")
            draw.mark(line, title, name)
            draw.whisker(ax, where, audit[name].estimate("worst"), look)
            points(ax, where, lowest, look, title, ms=4.6, clip_on=False)
        ax.set_xlim(-1.04, 1.04)
        ax.axhline(0.5, **draw.CHANCE, zorder=1)
        ax.set_xticks([-1, 0, 1], ["−1\nreversed", "0\nindependent", "1\naligned"])
        ax.set_xlabel("Association ξ of source and label")
        ax.set_ylabel("AUROC of the shortcut head")
        grid(ax, "y")
        draw.legend(ax, audit, 3)
    return figure


def plot_participants(audit: Audit, metric: str = "S") -> Any:
    """Draw a metric for each participant and the mean, without (left) and with (right) each method.

    Metrics that compare participants have no values for single participants: S if each participant has one
    source, T_f if each has one label.
    """
    names, styles = audit.methods[1:], looks(audit)
    if not names:
        raise ValueError("plot_participants needs a method besides the identity.")
    before = audit["identity"].by_participant(metric)
    here = np.flatnonzero(np.isfinite(before))  # in mixed designs some participants have no value
    if audit["identity"].compares_units(metric, here):
        raise ValueError(
            f"{metric} compares participants in this design, so single participants have no values. Draw "
            "M or A_f, or in a mixed design S_travelled."
        )
    before, people = before[here], [audit["identity"].participants[i] for i in here]
    with style():
        columns = min(len(names), 6)
        figure, panels = canvas(_width(columns), 1.9, len(names), columns, sharey=True)
        for k, (name, ax) in enumerate(zip(names, panels, strict=True)):
            look, after = styles[name], audit[name].by_participant(metric)[here]
            changes = zip(people, before, after, strict=True)
            titles = [f"{who}, {look.label}: {number(b)} → {number(a)}" for who, b, a in changes]
            for i, line in enumerate(ax.plot([0, 1], [before, after], color=draw.FAINT, lw=0.7, zorder=1)):
                draw.mark(line, titles[i], name, here[i : i + 1].tolist())
            grey = {"ms": 2.6, "marker": "o", "mfc": COLORS[0], "mew": 0, "zorder": 2}
            points(ax, np.zeros(len(before)), before, look, titles, here.tolist(), **grey)
            points(ax, np.ones(len(after)), after, look, titles, here.tolist(), ms=3, mew=0.7, zorder=2)
            ax.plot([0, 1], [before.mean(), after.mean()], "-", color=draw.INK, lw=1.6, zorder=3)
            for x, e in ((-0.16, audit["identity"].estimate(metric)), (1.16, audit[name].estimate(metric))):
                ax.plot([x, x], [e.low, e.high], color=draw.INK, lw=1)
                ax.plot(x, e.value, "_", color=draw.INK, ms=5, mew=1.2)
            if find_metric(metric).unit == "AUROC":
                ax.axhline(0.5, **draw.CHANCE, zorder=0)
            ax.set(xlim=(-0.4, 1.4), xticks=[0, 1], xticklabels=["before", "after"])
            ax.set_title(look.short, fontweight="bold", fontsize=7, pad=4)
            grid(ax, "y")
            if k % columns == 0:
                ax.set_ylabel(draw.axis_label(find_metric(metric)).replace(", ", ",\n"))
    return figure


def _has_own(audit: Audit, metric: str) -> bool:
    """Return whether all methods have values of a metric for single participants."""
    if not all(result.has(metric) for result in audit.results.values()):
        return False
    here = np.flatnonzero(np.isfinite(audit["identity"].by_participant(metric)))
    return not audit["identity"].compares_units(metric, here)


def plot_embedding(audit: Audit) -> Any:
    """Draw EVAL rows by source, before and after correction, along the leading directions before it."""
    clouds = {name: audit[name].cells[0]["picture"] for name in audit.methods}
    styles, (sources, codes) = looks(audit), np.unique(audit.picture_source, return_inverse=True)
    # All panels share their limits, so that shrinkage is visible.
    everything = np.concatenate(list(clouds.values()))
    low, high = everything.min(axis=0), everything.max(axis=0)
    margin = 0.04 * (high - low).max()
    with style():
        rows = -(-len(clouds) // 4)
        columns = -(-len(clouds) // rows)  # for example, five panels as three and two
        wide = _width(columns, 0.0)
        tall = wide / columns * float(np.clip(np.divide(*(high - low)[::-1]), 0.3, 2))
        figure, panels = canvas(wide, tall + 0.2, len(clouds), columns, extra=0.35)
        for (name, cloud), ax in zip(clouds.items(), panels, strict=True):
            # Points of sources are interleaved, because the last source would cover the others.
            order = np.random.default_rng(0).permutation(len(cloud))[:CLOUD_ROWS]
            colors = [source_colours(sources)[str(source)] for source in sources]
            shades = [colors[i] for i in codes[order]]
            ax.scatter(*cloud[order].T, s=2.4**2, c=shades, lw=0, alpha=0.5)
            for i, source in enumerate(sources):
                ax.plot(
                    *cloud[codes == i].mean(axis=0), MARKERS[i % len(MARKERS)], mfc=colors[i],
                    ms=4.5 + 3 * (i == 0), mec="white", mew=0.9, zorder=3, label=plain(f"{source} (mean)"),
                )  # fmt: skip
            ax.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin))
            ax.set(xticks=[], yticks=[], aspect="equal", adjustable="box")
            ax.spines[:].set(visible=True, color=draw.FAINT)
            ax.set_title(styles[name].short, loc="left", fontweight="bold", fontsize=7, pad=3)
        legend = panels[0].get_legend_handles_labels()
        figure.legend(*legend, loc="outside upper left", ncols=len(sources), markerscale=0.8)
    return figure


def plot_pairs(source: Audit | PairCheck) -> Any:
    """Draw the held-out coverage of pairs and of permuted pairs, by gate rank.

    ``source`` is an audit with pairs among its fitting rows, or the result of :func:`mgpa.audit.check_pairs`.
    """
    check: Any = source.check_pairs() if hasattr(source, "check_pairs") else source
    if check is None:
        raise ValueError("The fitting rows have no pairs, or too few; plot_pairs has nothing to draw.")
    with style():
        figure, (ax,) = canvas(COLUMN, 0.75 * COLUMN)
        ranks = np.arange(1, len(check.coverage) + 1)
        low, middle, high = np.quantile(check.shuffled, [0.025, 0.5, 0.975], axis=0)
        ax.fill_between(ranks, low, high, color=draw.MUTED, alpha=0.2, lw=0)
        ax.plot(ranks, middle, color=draw.MUTED, label="views permuted between events")
        (line,) = ax.plot(ranks, check.coverage, "o-", ms=3, color=COLORS[1], label="pairs as they are")
        shares = zip(ranks, check.coverage, middle, strict=True)
        draw.mark(
            line, (f"{k} directions: {share:.1%}, permuted {chance:.1%}" for k, share, chance in shares)
        )
        if check.rank:
            ax.axvline(check.rank, **draw.CHANCE)
            ax.annotate("supported", (check.rank, 0.02), xytext=(3, 0), textcoords="offset points")
        ax.set(xlabel="Directions in the gate", ylabel="Held-out directions inside", ylim=(0, 1.02))
        ax.set_xlim(0.5, max(len(ranks) + 0.5, 2.5))
        grid(ax, "y")
        ax.legend(loc="lower right")
    return figure


#: Charts of an audit by name.
CHARTS: dict[str, Callable[..., Any]] = {
    "tradeoff": plot_tradeoff,
    "differences": plot_differences,
    "readers": plot_readers,
    "participants": plot_participants,
    "association": plot_association,
    "pairs": plot_pairs,
    "gate": plot_gate,
    "embedding": plot_embedding,
}


def plot(audit: Audit, chart: str = "tradeoff", *arguments: Any) -> Any:
    """Draw the named chart with the audit's warnings below it."""
    if chart not in CHARTS:
        raise ValueError(f"No chart {chart!r}. Charts: {', '.join(CHARTS)}.")
    figure, marks = CHARTS[chart](audit, *arguments), ", ".join(warnings(audit))
    if marks:
        line = 0.12 / figure.get_figheight()
        figure.get_layout_engine().set(rect=(0, line, 1, 1 - line))  # room below the axes' labels
        # The report shows badges instead, and removes this text by its gid.
        figure.text(0.995, 0.005, marks, ha="right", va="bottom", fontsize=6, color="#b00020", gid="stamp")
    return figure


def draw_all(audit: Audit) -> dict[str, Any]:
    """Return figures of all charts that apply to an audit, by name."""
    several = len(audit.methods) > 1
    applies = {
        **dict.fromkeys(("tradeoff", "differences", "readers"), several),
        "participants": False,  # drawn below, for metrics with values of single participants
        "association": "worst" in audit.metrics,
        "pairs": audit.pairs is not None,
        "gate": named_gate(audit) is not None,
    }
    figures = {name: plot(audit, name) for name in CHARTS if applies.get(name, True)}
    for name, metrics in (("participants", ("S", "S_travelled")), ("participants_task", ("T_f",))):
        for metric in [m for m in metrics if several and _has_own(audit, m)][:1]:
            figures[name] = plot(audit, "participants", metric)
    for figure in figures.values():  # computed once, so that all files have the same layout
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return figures


def save_figures(
    figures: Mapping[str, Any], folder: Any, formats: Sequence[str] = ("pdf", "svg", "png")
) -> list[Path]:
    """Write named figures to a folder in the given formats; return the paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return [
        write_atomically(folder / f"{name}.{kind}", draw.figure_bytes(figures[name], kind))
        for name, kind in product(figures, formats)
    ]
