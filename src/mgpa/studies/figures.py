"""The paper's figures 3 and 4, with its values beside a run's."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

from ..audit.plots.drawing import CHANCE, INK, MUTED, PAGE, canvas, plain, rows, style
from .config import CONTROLLED, REUSE, TASKS

if TYPE_CHECKING:
    from .paper import Number, Runs

GATES = ("Measurement gate", "PCA gate", "Random gates", "Ungated")


def gate_figure(runs: Runs) -> Any:
    """Draw figure 3: source and task at a common budget by gate, and what the target costs."""
    run = runs.results[CONTROLLED]

    def number(of: dict[Any, Number], name: str, metric: str, against: str = "") -> Number | None:
        return of.get((CONTROLLED, "", name, against, metric))

    with style():
        figure, axes = canvas(PAGE, 2.2, 3, 3)
        identity = number(runs.numbers, "identity", "S")
        for y, name in enumerate(GATES):
            _mark(axes[0], number(runs.numbers, name, "S"), y)
            _mark(axes[1], number(runs.numbers, name, "T_f", "identity"), y, 100)
            _mark(axes[1], number(runs.paper, name, "T_f", "identity"), y + 0.28, 100, paper=True)
        if identity is not None:
            axes[0].axvline(identity[0], color=INK, ls="--", lw=0.7)
        axes[0].axvline(0.5, **CHANCE)
        axes[1].axvline(0, **CHANCE)
        for y, name in enumerate(("Conditional target", "Mean target")):
            _mark(axes[2], number(runs.numbers, name, "M"), y)
            _mark(axes[2], number(runs.paper, name, "M"), y + 0.2, paper=True)
        budgets = {
            run["settings"]["methods"][name]["budget"] for name in GATES if name in run["settings"]["methods"]
        }
        budget = ", ".join("none" if b is None else f"{b:g}".lstrip("0") for b in sorted(budgets, key=str))
        _panels(
            (axes[0], GATES, f"a  Source at a budget of {budget}", "Source AUROC"),
            (axes[1], ("",) * 4, "b  Task, against identity", "Change of T_f (pp)"),
            (axes[2], ("Conditional", "Mean"), "c  Target, native", "Movement M"),
        )
        marks = "◇ the paper    - - identity    ┈ guessing (a), no change (b)"
        _note(figure, f"● {run['heading']}, 95 % intervals    {marks}", run["deviations"])
    return figure


def reuse_figure(runs: Runs) -> Any:
    """Draw figure 4: worst-association AUROC of reused maps; a dagger where they clearly gain on LEACE."""
    names, run = ("LEACE", "MGPA-CF", "MGPA-Iter", "CORAL", "FEATMAP"), runs.results[REUSE]
    with style():
        figure, axes = canvas(PAGE, 2.2, 2, 2)
        for ax, task in zip(axes, TASKS[1:], strict=True):
            labels = []
            for y, name in enumerate(names):
                aware = name in ("CORAL", "FEATMAP")
                key = (REUSE, task, name, "", "worst")
                _mark(ax, runs.numbers.get(key), y, face="white" if aware else INK)
                _mark(ax, runs.paper.get(key), y + 0.25, paper=True)
                gain = runs.numbers.get((REUSE, task, name, "LEACE", "worst"))
                clear = gain is not None and gain[1] is not None and gain[1] > 0
                labels.append(f"{name} †" if clear else name)
            leace = runs.numbers.get((REUSE, task, "LEACE", "", "worst"))
            if leace is not None:
                ax.axvline(leace[0], color=INK, ls="--", lw=0.7)
            ax.axvline(0.5, **CHANCE)
            _panels((ax, labels, task, "Worst-association AUROC"))
        line = f"● {run['heading']}, 95 % intervals    ◇ the paper    - - LEACE    ┈ guessing"
        _note(figure, line, run["deviations"])
    return figure


def _panels(*panels: Any) -> None:
    for ax, names, title, xlabel in panels:
        rows(ax)
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(names) - 0.4, -0.6)
        ax.set_title(title, loc="left")
        ax.set_xlabel(xlabel)


def _mark(ax: Any, number: Any, y: float, scale: float = 1, face: str = INK, paper: bool = False) -> None:
    """Draw a number with its interval; the paper's is a hollow diamond."""
    if number is None:
        return
    value, low, high = number
    color = MUTED if paper else INK
    if low is not None and high is not None:
        ax.plot([scale * low, scale * high], [y, y], color=color, lw=0.8 if paper else 1.0, zorder=2)
    look = {"marker": "D", "mfc": "white", "ms": 3.2} if paper else {"marker": "o", "mfc": face, "ms": 4.2}
    ax.plot(scale * value, y, ls="", mec=color, zorder=3, **look)


def _note(figure: Any, line: str, deviations: list[str]) -> None:
    """Write above a figure what its marks are and, below it, how the run differs from the preset."""
    figure.suptitle(line, fontsize=7, color=MUTED)
    if deviations:
        figure.supxlabel(fill(plain("; ".join(deviations)), 170), fontsize=5.5, color=MUTED)
