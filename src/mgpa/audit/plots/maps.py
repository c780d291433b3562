"""What the maps do, and from what: movement of embeddings, directions of the gates, the pairs behind them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..details import gates, movement_by_stage
from ..looks import looks
from ..metrics import METRICS
from ..result import Audit
from .drawing import COLUMN, PAGE, canvas, forest, grid, plain, points, style
from .labels import label_ends


def plot_movement(audit: Audit, axes: Any = None, *, width: float | None = None) -> Any:
    """Draw how far embeddings moved: stage by stage (validation rows) where maps have stages, and M.

    ``axes`` is one Axes (stages if there are any, else M) or two (stages, M).
    """
    staged = {name: paths for name in audit if (paths := movement_by_stage(audit[name]))}
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
                for path in paths:
                    ax.plot(range(len(path)), path, color=styles[name].color, lw=0.7, alpha=0.6)
                    points(ax, len(path) - 1, path[-1], styles[name], ms=3.2)
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
            panels[-1].set_xlabel(f"{METRICS['M'].axis}, EVAL")
    return figure


def plot_pairs(audit: Audit, ax: Any = None, *, width: float = COLUMN) -> Any:
    """Draw what the pairs in the fitting rows show (:meth:`mgpa.audit.pair_check.PairCheck.plot`)."""
    check = audit.check_pairs()
    if check is None:
        raise ValueError("The fitting rows have no pairs, or too few; plot_pairs has nothing to draw.")
    return check.plot(ax, width=width)


def plot_gate(audit: Audit, ax: Any = None, *, width: float = COLUMN) -> Any:
    """Draw how much of the paired contrasts the leading directions hold, and the rank the gate took.

    The diamond is what the chosen gate covers of contrasts of people it was not made from.
    """
    found, styles = gates(audit), looks(audit)
    if not found:
        raise ValueError("No audited method has a gate; plot_gate has nothing to draw.")
    with style():
        figure, [ax] = canvas(ax, width, 0.66 * width if width < 5 else 0.4 * width)
        for gate in found:
            color, rank, energy = styles[gate.methods[0]].color, gate.rank, gate.energy
            text = "\n".join(plain(styles[m].label) for m in gate.methods)
            text += f"\nrank {rank}, {100 * energy[rank - 1]:.1f} % of FIT contrasts"
            if gate.coverage is not None:
                text += f"\ndiamond: {100 * gate.coverage:.1f} % of held-out ones"
                ax.plot(rank, gate.coverage, "D", ms=4.2, mfc="white", mec=color, mew=1.1, zorder=5)
            ax.plot(range(1, len(energy) + 1), energy, "-o", color=color, ms=2.6, lw=1, zorder=2, label=text)
            ax.plot(rank, energy[rank - 1], "o", ms=7, mfc="none", mec=color, mew=1.3, zorder=4)
        ax.set_xlim(0.5, max(gate.shown for gate in found) + 0.5)
        ax.set_ylim(min(0.0, ax.get_ylim()[0]), 1.04)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_xlabel("Directions in the gate")
        ax.set_ylabel("Cumulative contrast energy")
        grid(ax, "y")
        ax.legend(loc="lower right", handlelength=1.4, labelspacing=0.8)
    return figure
