"""The paper's figures 3 and 4, with its values beside a run's."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

from ...audit.plots.drawing import CHANCE, INK, MUTED, PAGE, canvas, plain, rows, style
from .config import CONTROLLED, REUSE, TASKS

if TYPE_CHECKING:
    from .paper import Runs

GATES = ("Measurement gate", "PCA gate", "Random gates", "Ungated")


def gate_figure(runs: Runs) -> Any:
    """Draw figure 3: source and task at a common budget by gate, and what the target costs."""
    methods = runs.results[CONTROLLED]["settings"]["methods"]
    budgets = {methods[name]["budget"] for name in GATES if name in methods}
    budget = ", ".join("none" if b is None else f"{b:g}".lstrip("0") for b in sorted(budgets, key=str))
    source = {name: (CONTROLLED, "", name, "", "S") for name in GATES}
    task = {" " * y: (CONTROLLED, "", name, "identity", "T_f") for y, name in enumerate(GATES)}
    moved = {name: (CONTROLLED, "", f"{name} target", "", "M") for name in ("Conditional", "Mean")}
    with style():
        figure, axes = canvas(PAGE, 2.2, 3, 3)
        _panel(axes[0], runs, source, f"a  Source at a budget of {budget}", "Source AUROC")
        _panel(axes[1], runs, task, "b  Task, against identity", "Change of T_f (pp)", 100)
        _panel(axes[2], runs, moved, "c  Target, native", "Movement M")
        identity = runs.numbers.get((CONTROLLED, "", "identity", "", "S"))
        if identity is not None:
            axes[0].axvline(identity[0], color=INK, ls="--", lw=0.7)
        axes[0].axvline(0.5, **CHANCE)
        axes[1].axvline(0, **CHANCE)
        _note(figure, runs, CONTROLLED, "- - identity    ┈ guessing (a), no change (b)")
    return figure


def reuse_figure(runs: Runs) -> Any:
    """Draw figure 4: worst-association AUROC of reused maps; a dagger where they clearly gain on LEACE."""
    with style():
        figure, axes = canvas(PAGE, 2.2, 2, 2)
        for ax, task in zip(axes, TASKS[1:], strict=True):
            keys = {}
            for name in ("LEACE", "MGPA-CF", "MGPA-Iter", "CORAL", "FEATMAP"):
                gain = runs.numbers.get((REUSE, task, name, "LEACE", "worst"))
                clear = gain is not None and gain[1] is not None and gain[1] > 0
                keys[f"{name} †" if clear else name] = (REUSE, task, name, "", "worst")
            _panel(ax, runs, keys, task, "Worst-association AUROC")
            leace = runs.numbers.get((REUSE, task, "LEACE", "", "worst"))
            if leace is not None:
                ax.axvline(leace[0], color=INK, ls="--", lw=0.7)
            ax.axvline(0.5, **CHANCE)
        _note(figure, runs, REUSE, "- - LEACE    ┈ guessing")
    return figure


def _panel(ax: Any, runs: Runs, keys: dict[str, Any], title: str, xlabel: str, scale: float = 1) -> None:
    """Draw a line for each key of a number: the run's and the paper's, with their intervals."""
    for y, key in enumerate(keys.values()):
        run = {
            "marker": "o",
            "mfc": "white" if key[2] in ("CORAL", "FEATMAP") else INK,
            "ms": 4.2,
            "mec": INK,
        }
        paper = {"marker": "D", "mfc": "white", "ms": 3.2, "mec": MUTED}
        for number, at, look in ((runs.numbers.get(key), y, run), (runs.paper.get(key), y + 0.25, paper)):
            if number is None:
                continue
            value, low, high = number
            if low is not None and high is not None:
                ax.plot([scale * low, scale * high], [at, at], color=look["mec"], lw=0.9, zorder=2)
            ax.plot(scale * value, at, ls="", zorder=3, **look)
    rows(ax)
    ax.set_yticks(range(len(keys)), keys)
    ax.set_ylim(len(keys) - 0.4, -0.6)
    ax.set_title(title, loc="left")
    ax.set_xlabel(xlabel)


def _note(figure: Any, runs: Runs, study: str, marks: str) -> None:
    """Write above a figure what its marks are and, below it, how the run differs from the preset."""
    run = runs.results[study]
    line = f"● {run['heading']}, 95 % intervals    ◇ the paper    {marks}"
    figure.suptitle(line, fontsize=7, color=MUTED)
    if run["deviations"]:
        figure.supxlabel(fill(plain("; ".join(run["deviations"])), 170), fontsize=5.5, color=MUTED)
