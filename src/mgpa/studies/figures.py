"""Figures of a study: its differences beside the paper's, and what became of several tasks."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

from ..audit.metrics import find_metric
from ..audit.plots import looks, save_figures
from ..audit.plots.drawing import CHANCE, INK, MUTED, PAGE, canvas, forest, plain, rows, style
from ..audit.words import label
from .rows import Row, contrasts, slug
from .run import StudyResult


def save_study_figures(
    result: StudyResult, folder: Path, formats: tuple[str, ...] = ("pdf", "svg", "png")
) -> list[Path]:
    """Write the figures that apply to a folder, in every format, and return the paths."""
    figures: dict[str, Any] = {}
    if any(True for _ in contrasts(result)):
        figures["contrasts"] = plot_contrasts(result)
    if len(result.audits) > 1:
        shared = set.intersection(*(set(audit.metrics) for audit in result.audits.values()))
        # Association needs two sources; with more of them, the heads themselves are what there is to see.
        shown = ("worst", "control") if "worst" in shared else ("T_f", "T_r")
        figures |= {metric: plot_tasks(result, metric) for metric in shown if metric in shared}
        if "worst" in shared:
            figures |= {
                f"association-{slug(task)}": audit.plot("association")
                for task, audit in result.audits.items()
            }
    return save_figures(figures, folder, formats)


def plot_contrasts(result: StudyResult, width: float = PAGE) -> Any:
    """Draw the declared differences, a panel a metric: ours with intervals, the paper's hollow."""
    differences = list(contrasts(result))
    metrics = list(dict.fromkeys(row.metric for row in differences))
    names = list(dict.fromkeys(_title(row) for row in differences))
    with style():
        figure, axes = canvas(None, width, 0.22 * len(names) + 1.0, len(metrics), len(metrics), sharey=True)
        for ax, metric in zip(axes, metrics, strict=True):
            for row in (r for r in differences if r.metric == metric):
                y = names.index(_title(row))
                ax.plot([row.low, row.high], [y, y], color=INK, lw=1.0, zorder=2)
                ax.plot(row.value, y, "o", color=INK, ms=4, zorder=3)
                if row.paper is not None:
                    ends = [row.paper_low, row.paper_high]
                    if None not in ends:
                        ax.plot(ends, [y + 0.3] * 2, color=MUTED, lw=0.8, zorder=2)
                    ax.plot(row.paper, y + 0.3, "D", mfc="white", mec=MUTED, ms=3.2, zorder=3)
            ax.axvline(0, **CHANCE)
            rows(ax)
            ax.set_xlabel(fill(f"difference in {find_metric(metric).title}", 18))  # panels are narrow
        axes[0].set_yticks(range(len(names)), [plain(name) for name in names])
        axes[0].set_ylim(len(names) - 0.4, -0.6)
        data = "simulated recordings" if result.study.simulated else "these recordings"
        paper = "    ◇ the paper" if any(row.paper is not None for row in differences) else ""
        figure.suptitle(f"● {data}, 95 % intervals{paper}    ┈ no difference", fontsize=7, color=MUTED)
    return figure


def plot_tasks(result: StudyResult, metric: str, width: float = PAGE) -> Any:
    """Draw one metric of every method: a panel a task; dashed is LEACE, dotted guessing."""
    with style():
        tasks = list(result.audits)
        first = result.audits[tasks[0]]
        figure, axes = canvas(None, width, 0.2 * len(first.methods) + 0.6, len(tasks), len(tasks))
        for i, (ax, task) in enumerate(zip(axes, tasks, strict=True)):
            audit = result.audits[task]
            values = [(name, audit[name].estimate(metric)) for name in audit.methods]
            forest(ax, audit, values, names=i == 0)
            ax.axvline(0.5, **CHANCE)
            if "LEACE" in audit.methods:
                ax.axvline(
                    audit["LEACE"].estimate(metric).value, color=looks(audit)["LEACE"].color, ls="--", lw=0.7
                )
            ax.set_title(plain(task))
            ax.set_xlabel(find_metric(metric).axis)
        leace = "    - - LEACE" if "LEACE" in first.methods else ""
        figure.suptitle(f"┈ guessing{leace}", fontsize=7, color=MUTED)
    return figure


def _title(row: Row) -> str:
    name = f"{label(row.method)} − {label(row.against)}"
    return f"{row.task}: {name}" if row.task else name
