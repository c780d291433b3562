"""Names written beside points and lines, out of each other's way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..looks import Look
from .drawing import plain


def label_points(
    ax: Any, points: list[tuple[float, float, Look]], lines: Iterable[tuple[float, ...]]
) -> None:
    """Write each method's name beside its point, where it covers least of points, lines and other names."""
    ax.figure.draw_without_rendering()
    frame, dot = ax.get_window_extent(), ax.figure.dpi / 72
    at = [ax.transData.transform((x, y)) for x, y, _ in points]
    taken = [(x - 4 * dot, y - 4 * dot, x + 4 * dot, y + 4 * dot, 4.0) for x, y in at]
    for x0, y0, x1, y1 in lines:
        (a, b), (c, d) = ax.transData.transform([(x0, y0), (x1, y1)])
        taken.append((a - dot, b - dot, c + dot, d + dot, 1.0))

    def cost(box: tuple[float, ...], own: int) -> float:
        covered = sum(
            max(0.0, min(box[2], b[2]) - max(box[0], b[0]))
            * max(0.0, min(box[3], b[3]) - max(box[1], b[1]))
            * b[4]
            for b in taken
        )
        edge = 2 * dot
        beyond = (
            frame.x0 + edge - box[0], frame.y0 + edge - box[1],
            box[2] - frame.x1 + edge, box[3] - frame.y1 + edge,
        )  # fmt: skip
        # A name nearer to another point than to its own would be read as that one's.
        gaps = [np.hypot(max(box[0] - x, x - box[2], 0), max(box[1] - y, y - box[3], 0)) / dot for x, y in at]
        stolen = max(0.0, gaps[own] + 3 - min([g for i, g in enumerate(gaps) if i != own], default=99.0))
        return float(covered / dot**2 + 40 * sum(max(0.0, e) for e in beyond) + 25 * stolen + 2 * gaps[own])

    for own, ((x, y, look), (px, py)) in enumerate(zip(points, at, strict=True)):
        text = ax.annotate(plain(look.label), (0, 0), xycoords="figure pixels", fontsize=7)
        w, h = text.get_window_extent().size
        text.remove()
        choices = []
        for reach in (6, 10, 15, 21, 28, 36, 46, 58):
            for angle in np.radians(np.arange(0, 360, 30)):
                cx = px + np.cos(angle) * (reach * dot + w / 2)
                cy = py + np.sin(angle) * (reach * dot + h / 2)
                place = (cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2)
                choices.append((cost(place, own), reach, cx, cy, place))
        _, reach, cx, cy, place = min(choices)
        taken.append((*place, 6.0))
        lead = {"arrowstyle": "-", "color": look.color, "lw": 0.6, "shrinkA": 1, "shrinkB": 3}
        ax.annotate(
            plain(look.label), (x, y), ((cx - px) / dot, (cy - py) / dot), textcoords="offset points",
            ha="center", va="center", fontsize=7, zorder=4, arrowprops=lead if reach >= 10 else None,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.4},
        )  # fmt: skip


def label_ends(ax: Any, ends: list[tuple[float, float, Look]]) -> None:
    """Write names to the right of the ends of lines, moved apart where they would touch."""
    ax.figure.draw_without_rendering()
    heights = np.array([ax.transData.transform((x, y))[1] for x, y, _ in ends]) / (ax.figure.dpi / 72)
    for (x, y, look), up in zip(ends, _spread(heights, 8.5) - heights, strict=True):
        ax.annotate(
            plain(look.label), (x, y), (9, up), textcoords="offset points", va="center", fontsize=7,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": look.color, "lw": 0.7, "shrinkA": 0, "shrinkB": 2},
        )  # fmt: skip


def _spread(positions: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    """Return positions moved as little as needed to lie ``gap`` apart, in the order given."""
    order = np.argsort(positions, kind="stable")
    placed = positions[order]
    for _ in range(200):
        close = np.flatnonzero(np.diff(placed) < gap - 1e-9)
        for i in close:
            middle = (placed[i] + placed[i + 1]) / 2
            placed[i], placed[i + 1] = middle - gap / 2, middle + gap / 2
        if not len(close):
            break
    return placed[np.argsort(order)]
