"""The paper's figures of numbers, 3 and 4, with its values beside ours."""

from __future__ import annotations

from typing import Any

from ..audit.plots.drawing import CHANCE, INK, MUTED, PAGE, canvas, rows, style
from .paper_layout import CONTROLLED, REUSE, TASKS, Value
from .paper_numbers import Found, Runs

GATES = ("Measurement gate", "PCA gate", "Random gates", "Ungated")


def gate_figure(runs: Runs) -> Any:
    """Draw figure 3: source and task at a common budget by gate, and what the target costs."""
    with style():
        figure, axes = canvas(None, PAGE, 1.9, 3, 3)
        identity = runs.ours(Value(CONTROLLED, "identity", "S"))
        for y, name in enumerate(GATES):
            _point(axes[0], runs.ours(Value(CONTROLLED, name, "S")), y)
            _point(axes[1], runs.ours(Value(CONTROLLED, name, "T_f", against="identity")), y, 100)
            _hollow(axes[1], runs.paper(Value(CONTROLLED, name, "T_f", against="identity")), y + 0.28, 100)
        if identity is not None:
            axes[0].axvline(identity.value, color=INK, ls="--", lw=0.7)
        axes[0].axvline(0.5, **CHANCE)
        axes[1].axvline(0, **CHANCE)
        targets = ("Conditional target", "Mean target")
        for y, name in enumerate(targets):
            _point(axes[2], runs.ours(Value(CONTROLLED, name, "M")), y)
            _hollow(axes[2], runs.paper(Value(CONTROLLED, name, "M")), y + 0.2)
        for ax, names, title, xlabel in (
            (axes[0], GATES, "a  Source at a budget of .05", "Source AUROC"),
            (axes[1], ("",) * 4, "b  Task, against identity", "Change of T_f (pp)"),
            (axes[2], ("Conditional", "Mean"), "c  Target, native", "Movement M"),
        ):
            rows(ax)
            ax.set_yticks(range(len(names)), names)
            ax.set_ylim(len(names) - 0.4, -0.6)
            ax.set_title(title, loc="left")
            ax.set_xlabel(xlabel)
        _footnote(figure, runs, CONTROLLED, "- - identity    ┈ guessing (a), no change (b)")
    return figure


def reuse_figure(runs: Runs) -> Any:
    """Draw figure 4: worst-association AUROC of reused maps; a dagger where they clearly gain on LEACE."""
    names = ("LEACE", "MGPA-CF", "MGPA-Iter", "CORAL", "FEATMAP")
    with style():
        figure, axes = canvas(None, PAGE, 1.9, 2, 2)
        for ax, task in zip(axes, TASKS[1:], strict=True):
            for y, name in enumerate(names):
                aware = name in ("CORAL", "FEATMAP")
                _point(ax, runs.ours(Value(REUSE, name, "worst", task)), y, face="white" if aware else INK)
                _hollow(ax, runs.paper(Value(REUSE, name, "worst", task)), y + 0.25)
            gains = [runs.ours(Value(REUSE, name, "worst", task, "LEACE")) for name in names]
            clear = [g is not None and g.low is not None and g.low > 0 for g in gains]
            leace = runs.ours(Value(REUSE, "LEACE", "worst", task))
            if leace is not None:
                ax.axvline(leace.value, color=INK, ls="--", lw=0.7)
            ax.axvline(0.5, **CHANCE)
            rows(ax)
            shown = [f"{name} †" if gained else name for name, gained in zip(names, clear, strict=True)]
            ax.set_yticks(range(len(names)), shown)
            ax.set_ylim(len(names) - 0.4, -0.6)
            ax.set_title(task, loc="left")
            ax.set_xlabel("Worst-association AUROC")
        _footnote(figure, runs, REUSE, "- - LEACE    ┈ guessing")
    return figure


def _point(ax: Any, found: Found | None, y: float, scale: float = 1, face: str = INK) -> None:
    if found is not None:
        ax.plot([scale * (found.low or 0), scale * (found.high or 0)], [y, y], color=INK, lw=1.0)
        ax.plot(scale * found.value, y, "o", mfc=face, mec=INK, ms=4.5, zorder=3)


def _hollow(ax: Any, found: Found | None, y: float, scale: float = 1) -> None:
    if found is not None:
        if found.low is not None and found.high is not None:
            ax.plot([scale * found.low, scale * found.high], [y, y], color=MUTED, lw=0.8)
        ax.plot(scale * found.value, y, "D", mfc="white", mec=MUTED, ms=3.2, zorder=3)


def _footnote(figure: Any, runs: Runs, study: str, lines: str) -> None:
    data = "simulated recordings" if runs.results[study]["simulated"] else "recordings"
    figure.suptitle(f"● {data}, 95 % intervals    ◇ the paper    {lines}", fontsize=7, color=MUTED)
