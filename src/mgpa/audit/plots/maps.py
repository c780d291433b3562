"""What the maps do, and from what: movement of embeddings, directions of the gates, the pairs behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..metrics import METRICS
from ..words import number
from .drawing import (
    CHANCE,
    COLORS,
    COLUMN,
    INK,
    MUTED,
    PAGE,
    axis_label,
    canvas,
    forest,
    grid,
    label_ends,
    looks,
    mark,
    points,
    style,
)

if TYPE_CHECKING:
    from ..pair_check import PairCheck
    from ..result import Audit


def plot_movement(audit: Audit, axes: Any = None, *, width: float | None = None) -> Any:
    """Draw how far embeddings moved: stage by stage (validation rows) where maps have stages, and M.

    ``axes`` is one Axes (stages if there are any, else M) or two (stages, M).
    """
    staged = {name: paths for name in audit if (paths := audit[name].stage_movement())}
    moved = [(name, audit[name].estimate("M")) for name in audit.methods[1:]]
    styles = looks(audit)
    count = 1 if not staged or (axes is not None and np.size(axes) == 1) else 2
    options: dict[str, Any] = {"width_ratios": [1.15, 1]} if count == 2 else {}
    with style():
        width = width or (COLUMN, PAGE)[count - 1]
        height = max(1.0 + 0.17 * len(moved), 2.2 if staged else 1.2)
        figure, panels = canvas(axes, width, height, count, count, **options)
        if staged:
            ax, ends = panels[0], []
            for name, paths in staged.items():
                for fit, path in enumerate(paths, start=1):
                    title = (
                        f"{styles[name].label}, fit {fit}: {number(path[-1])} after {len(path) - 1} stages"
                    )
                    (line,) = ax.plot(range(len(path)), path, color=styles[name].color, lw=0.7, alpha=0.6)
                    mark(line, title, name)
                    points(ax, len(path) - 1, path[-1], styles[name], title, ms=3.2)
                longest = max(paths, key=len)
                ends.append((len(longest) - 1.0, float(longest[-1]), styles[name]))
            ax.set_xlabel("Stage")
            ax.set_ylabel("Relative movement, VAL")
            ax.set_xlim(left=0)
            ax.set_ylim(bottom=0)
            ax.xaxis.get_major_locator().set_params(integer=True)
            grid(ax, "y")
            label_ends(ax, ends)
        if not staged or count == 2:
            forest(panels[-1], audit, moved)
            panels[-1].set_xlim(left=0)
            panels[-1].set_xlabel(f"{axis_label(METRICS['M'])}, EVAL")
    return figure


def plot_pairs(source: Audit | PairCheck, ax: Any = None, *, width: float = COLUMN) -> Any:
    """Draw what pairs show: held-out coverage by rank, of the pairs and of permuted pairs.

    ``source`` is an audit, whose fitting rows have pairs, or what :func:`mgpa.audit.check_pairs` returned.
    """
    check: Any = source.check_pairs() if hasattr(source, "check_pairs") else source
    if check is None:
        raise ValueError("The fitting rows have no pairs, or too few; plot_pairs has nothing to draw.")
    with style():
        figure, (ax,) = canvas(ax, width, 0.75 * width)
        ranks = np.arange(1, len(check.coverage) + 1)
        low, middle, high = check.shuffled_range
        ax.fill_between(ranks, low, high, color=MUTED, alpha=0.2, lw=0)
        ax.plot(ranks, middle, color=MUTED, label="views permuted between events")
        (line,) = ax.plot(ranks, check.coverage, "o", ms=3, color=COLORS[1])
        ax.plot(ranks, check.coverage, "-", color=COLORS[1], label="pairs as they are")
        titles = (
            f"{rank} directions: {share:.1%}, permuted {permuted:.1%}"
            for rank, share, permuted in zip(ranks, check.coverage, middle, strict=True)
        )
        mark(line, titles)
        if check.rank:
            ax.axvline(check.rank, **CHANCE)
            ax.annotate("supported", (check.rank, 0.02), xytext=(3, 0), textcoords="offset points", color=INK)
        ax.set(xlabel="Directions in the gate", ylabel="Held-out directions inside", ylim=(0, 1.02))
        ax.set_xlim(0.5, max(len(ranks) + 0.5, 2.5))
        grid(ax, "y")
        ax.legend(loc="lower right")
    return figure


def gates(audit: Audit) -> list[tuple[list[str], dict[str, Any]]]:
    """Return the different gates of the methods' first fits: who uses each, and its facts."""
    different: list[tuple[list[str], dict[str, Any]]] = []
    for name, result in audit.results.items():
        facts = result.facts[0] if result.facts else {}
        if "gate_energy" not in facts:
            continue
        same = [users for users, other in different if _same_span(other["gate_basis"], facts["gate_basis"])]
        if same:
            same[0].append(name)
        else:
            different.append(([name], facts))
    return different


def _same_span(A: NDArray[Any], B: NDArray[Any]) -> bool:
    return A.shape == B.shape and bool(np.allclose(np.linalg.svd(A.T @ B, compute_uv=False), 1, atol=1e-6))


def plot_gate(audit: Audit, ax: Any = None, *, width: float = COLUMN) -> Any:
    """Draw how much of the paired contrasts the leading directions hold, and the rank the gate took.

    The diamond is what the chosen gate covers of contrasts of participants it was not fitted on.
    """
    different, styles, shown = gates(audit), looks(audit), 1
    if not different:
        raise ValueError("No audited method has a gate; plot_gate has nothing to draw.")
    with style():
        figure, [ax] = canvas(ax, width, 0.66 * width if width < 5 else 0.4 * width)
        for names, facts in different:
            energy, rank = np.asarray(facts["gate_energy"]), facts["gate_basis"].shape[1]
            color, look = styles[names[0]].color, styles[names[0]]
            text = "\n".join(styles[m].short for m in names)
            text += f"\nrank {rank}, {100 * energy[rank - 1]:.1f} % of FIT contrasts"
            if "gate_coverage" in facts:
                covered = float(facts["gate_coverage"])
                text += f"\ndiamond: {100 * covered:.1f} % of held-out ones"
                title = f"{look.label}: {covered:.1%} of held-out contrasts"
                points(ax, rank, covered, look, title, ms=4.2, mfc="white", marker="D", zorder=5)
            ax.plot(range(1, len(energy) + 1), energy, color=color, lw=1, zorder=2)
            titles = [f"{look.label}: {k} directions, {e:.1%}" for k, e in enumerate(energy, start=1)]
            dots: dict[str, Any] = {"ms": 2.6, "marker": "o", "mfc": color, "label": text}
            points(ax, range(1, len(energy) + 1), energy, look, titles, **dots)
            ax.plot(rank, energy[rank - 1], "o", ms=7, mfc="none", mec=color, mew=1.3, zorder=4)
            # Beyond this the spectrum says nothing more.
            enough = max(rank + 2, int(np.searchsorted(energy, 0.999)) + 1)
            shown = max(shown, min(len(energy), enough))
        ax.set_xlim(0.5, shown + 0.5)
        ax.set_ylim(min(0.0, ax.get_ylim()[0]), 1.04)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_xlabel("Directions in the gate")
        ax.set_ylabel("Cumulative contrast energy")
        grid(ax, "y")
        ax.legend(loc="lower right", handlelength=1.4, labelspacing=0.8)
    return figure
