"""Draw the paper's figure 2 (its Gaussian model) and figures 3 and 4 (values of the paper and of a run)."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...audit.plots.drawing import CHANCE, FAINT, INK, MUTED, PAGE, canvas, plain, rows, style
from ...audit.plots.palette import SOURCE_COLORS
from ...position import projection
from .config import CONTROLLED, REUSE, TASKS

if TYPE_CHECKING:
    from .paper import Runs

#: Figure 2's illustration: source means (±1, 0), covariance I, Pr(U = 1 | q) = .8.
SHIFT, SHARE = np.array([2.0, 0.0]), 0.8
GATES = ("Measurement gate", "PCA gate", "Random gates", "Ungated")


@dataclass(frozen=True)
class Illustration:
    """Rows of figure 2's model at one q, their sources, and the rows after three corrections, each (n, 2).

    ``mean`` moves rows to the score μ(q) = E[s | q], ``zero`` to the score 0, ``block`` to E[Z | q].
    """

    rows: NDArray[np.float64]
    source: NDArray[np.int64]
    mean: NDArray[np.float64]
    zero: NDArray[np.float64]
    block: NDArray[np.float64]


def illustrate(n: int, random_state: int = 0) -> Illustration:
    """Sample rows from figure 2's model and correct them by equation (6)."""
    rng = np.random.default_rng(random_state)
    source = (rng.random(n) < SHARE).astype(np.int64)
    rows = rng.normal(size=(n, 2)) + np.outer(source - 0.5, SHIFT)
    direction, weight = projection(np.eye(2), SHIFT[:, None])
    middle = (SHARE - 0.5) * SHIFT
    mean = rows - (rows - middle) @ weight @ direction.T
    # The score is logit p + δᵀz, so it is zero at z₁ = -logit p / |δ|.
    level = -np.log(SHARE / (1 - SHARE)) / (SHIFT @ SHIFT) * SHIFT
    zero = rows - (rows - level) @ weight @ direction.T
    return Illustration(rows, source, mean, zero, np.broadcast_to(middle, rows.shape))


def illustrated_costs() -> dict[str, float]:
    """Return the expected squared movement of each correction, by equations (9) and (10).

    Examples
    --------
    >>> {name: round(cost, 2) for name, cost in illustrated_costs().items()}
    {'mean': 1.64, 'zero': 3.31, 'block': 2.64}
    """
    D, between = float(SHIFT @ SHIFT), float(SHIFT @ SHIFT) * SHARE * (1 - SHARE)
    excess = (np.log(SHARE / (1 - SHARE)) + (2 * SHARE - 1) * D / 2) ** 2 / D
    return {"mean": 1 + between, "zero": float(1 + between + excess), "block": len(SHIFT) + between}


def geometry_figure() -> Any:
    """Draw figure 2: gate and direction, selective or whole-block correction, and the cost of each target."""
    sample, cost = illustrate(36, 3), illustrated_costs()
    colors = [SOURCE_COLORS[s] for s in sample.source]
    with style():
        figure, axes = canvas(PAGE, 2.4, 3, 3)
        _pairs_panel(axes[0])
        titles = "b  Selective or whole-block", "c  Target: E[s | q] or zero"
        for ax, title in zip(axes[1:], titles, strict=True):
            ax.scatter(*sample.rows.T, s=9, c=colors, zorder=3)
            ax.set_title(title, loc="left")
            ax.set_xlabel("Gate coordinate along δ")
            ax.set_xlim(-3.4, 3.8)
        axes[1].scatter(*sample.mean.T, s=9, facecolors="none", edgecolors=colors, zorder=3)
        axes[1].plot(*sample.block[0], marker="X", ms=7, color=INK, ls="none", zorder=4)
        axes[1].set_ylabel("Shared gate coordinate")
        notes = (
            f"○ selective, cost {cost['mean']:.2f}; ✕ whole block, {cost['block']:.2f}",
            (f"solid: to E[s | q], cost {cost['mean']:.2f}; dashed: to zero, {cost['zero']:.2f}"),
        )
        for ax, note in zip(axes[1:], notes, strict=True):
            ax.text(0.5, -0.3, note, transform=ax.transAxes, ha="center", fontsize=6.5, color=MUTED)
        for start, mean, zero in list(zip(sample.rows, sample.mean, sample.zero, strict=True))[::3]:
            for end, look in ((mean, "-"), (zero, (0, (3, 2)))):
                arrow = {"arrowstyle": "->", "lw": 0.8, "ls": look, "color": INK if look == "-" else MUTED}
                axes[2].annotate("", end, start, arrowprops=arrow)
        for x, look in ((sample.mean[0, 0], "-"), (sample.zero[0, 0], "--")):
            axes[2].axvline(x, color=MUTED, lw=0.8, ls=look, zorder=1)
        figure.suptitle("Illustration in the paper's Gaussian model, not EEG", fontsize=7, color=MUTED)
    return figure


def _pairs_panel(ax: Any) -> None:
    """Draw pairs at several q, their differences, the mean difference, and a row that moves along it."""
    rng = np.random.default_rng(0)

    def seen(q: Any, z: Any) -> Any:  # q upward, the gate's plane obliquely
        return np.stack([z[..., 0] + 0.4 * z[..., 1], q + 0.55 * z[..., 1]], axis=-1)

    q, first = rng.uniform(1.2, 4.0, 12), rng.normal(scale=0.7, size=(12, 2))
    contrast = SHIFT + rng.normal(scale=0.55, size=(12, 2))
    for height, z, change in zip(q, first, contrast, strict=True):
        ends = seen(np.full(2, height), np.stack([z, z + change]))
        ax.plot(*ends.T, color=MUTED, lw=0.7, ls="--", zorder=1)
        ax.plot(*seen(np.zeros(2), np.stack([0 * change, change])).T, color=FAINT, lw=1.0, zorder=1)
        for end, color in zip(ends, SOURCE_COLORS[:2], strict=True):
            ax.plot(*end, marker="o", ms=2.6, color=color, ls="none", zorder=3)
    mean, arrow = contrast.mean(axis=0), {"arrowstyle": "->", "lw": 1.3, "color": INK}
    ax.annotate("", seen(0.0, mean), seen(0.0, 0 * mean), arrowprops=arrow)
    ax.annotate("", seen(5.2, 0.6 * mean), seen(5.2, -0.3 * mean), arrowprops=arrow)
    ax.text(*seen(0.0, 1.05 * mean), " δ̂", va="center")
    ax.text(*seen(5.2, -0.45 * mean), "h", ha="right", va="center")
    ax.text(*seen(5.2, 0.7 * mean), "h′", va="center")
    ax.set_xlim(-2.5, 4.5)
    ax.set_ylim(-1.2, 6.2)
    ax.set_title("a  Pairs and what they span", loc="left")
    ax.set_xlabel("Gate coordinates (oblique)")
    ax.set_ylabel("Preserved coordinate q")
    ax.set_xticks([])
    ax.set_yticks([])


def gate_figure(runs: Runs) -> Any:
    """Draw figure 3: source and task AUROC of each gate at a common budget, and the cost of each target."""
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
    """Draw figure 4: worst-association AUROC of reused maps. A dagger marks clear gains over LEACE."""
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
    """Draw one line per key: the number of the run and of the paper, with intervals."""
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
    """Write the legend above a figure and the run's deviations from the preset below it."""
    run = runs.results[study]
    line = f"● {run['heading']}, 95 % intervals    ◇ the paper    {marks}"
    figure.suptitle(line, fontsize=7, color=MUTED)
    if run["deviations"]:
        figure.supxlabel(fill(plain("; ".join(run["deviations"])), 170), fontsize=5.5, color=MUTED)
