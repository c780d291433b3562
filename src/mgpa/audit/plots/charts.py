"""Charts of an audit: source against task, readers, participants, association, rows, gates and pairs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..bootstrap import curve_at
from ..metrics import find_metric
from ..words import number, reader_rows
from . import drawing as draw
from .drawing import COLUMN, PAGE, canvas, grid, looks, mark, plain, points, rows, style, whisker

if TYPE_CHECKING:
    from ..pair_check import PairCheck
    from ..result import Audit

# Rows of a cloud that are drawn, and features with names of their own: enough to see the shape.
CLOUD_ROWS, SHOWN_FEATURES = 800, 20


def plot_tradeoff(
    audit: Audit, ax: Any = None, *, x: str = "S", y: str | None = None, width: float = COLUMN
) -> Any:
    """Draw source accessibility against the task: further left is less source, further up more task.

    ``x`` and ``y`` are metrics; y is T_f where the table has labels and the movement M otherwise.
    """
    y = y or next((m for m in ("T_f", "R2_f") if m in audit.metrics), "M")
    across, up = find_metric(x), find_metric(y)
    with style():
        figure, [ax] = canvas(ax, width, 0.86 * width if width < 5 else 0.55 * width)
        for name, look in looks(audit).items():
            ex, ey = audit[name].estimate(x), audit[name].estimate(y)
            whisker(ax, ex, ey.value, look)
            whisker(ax, ex.value, ey, look)
            points(ax, ex.value, ey.value, look, f"{look.label}\n{x} {ex}\n{y} {ey}", ms=5.5)
        ax.margins(0.09)
        if up.unit == "AUROC" and (top := ax.get_ylim()[1]) > 1:
            ax.set_ylim(min(ax.get_ylim()[0], 0.95), min(top, 1.01))  # no tick where no AUROC can be
        if across.unit == "AUROC":
            ax.axvline(0.5, **draw.CHANCE, zorder=1)
        if up.better != "neither":
            ax.axhline(audit["identity"].estimate(y).value, **draw.BEFORE)
        ways = {"lower": "\n← lower is better", "higher": "\nhigher is better →", "neither": ""}
        ax.set_xlabel(draw.axis_label(across) + ways[across.better])
        ax.set_ylabel(draw.axis_label(up) + ways[up.better])
        draw.legend(ax, audit, 3 if width < 5 else 6)
        if not all(audit[name].source_blind for name in audit):
            ax.set_title("hollow: told the source", fontsize=6.5, color=draw.MUTED, loc="right", pad=3)
    return figure


def plot_readers(audit: Audit, axes: Any = None, *, width: float = PAGE) -> Any:
    """Draw every reader's source AUROC before (grey) and after each method; the ringed reader sets S."""
    styles, before = looks(audit), audit["identity"].reader_means()
    names = audit.methods[1:] or audit.methods
    readers = reader_rows(audit["identity"].readers)
    columns = min(len(names), 3 if width > 5 else 1)
    # Groups stand apart by an empty row.
    starts = [i for i in range(len(readers)) if i == 0 or readers[i][0] != readers[i - 1][0]]
    y = np.array([i + 1.2 * sum(s <= i for s in starts) for i in range(len(readers))])
    size, step = (6.5, 0.135) if len(readers) <= 16 else (5.2, 0.1)
    with style():
        figure, panels = canvas(axes, width, 0.45 + (y[-1] + 1.5) * step, len(names), columns, sharex=True)
        for k, (name, ax) in enumerate(zip(names, panels, strict=True)):
            look, after = styles[name], audit[name].reader_means()
            mark(ax.hlines(y, before, after, color=look.color, lw=1.0, alpha=0.45, zorder=1), "", name)
            ax.plot(before, y, "o", ms=3, color=draw.COLORS[0], zorder=2)
            changes = zip(readers, before, after, strict=True)
            titles = [f"{look.label}, {reader}: {number(b)} → {number(a)}" for (_, reader), b, a in changes]
            points(ax, after, y, look, titles, ms=3.8, mew=0.9)
            best = int(after.argmax())
            ax.plot(after[best], y[best], "o", ms=8, mfc="none", mec=draw.INK, mew=0.7, zorder=4)
            ax.axvline(0.5, **draw.CHANCE, zorder=0)
            ax.set_title(look.short, loc="left", fontweight="bold", pad=4)
            ax.set_ylim(y[-1] + 0.8, -0.6)
            first = axes is not None or k % columns == 0
            ax.set_yticks(y, [plain(name) if first else "" for _, name in readers], fontsize=size)
            rows(ax)
            for s in starts if first else []:
                ax.annotate(
                    readers[s][0], (0, y[s] - 1), (-3, 0), xycoords=ax.get_yaxis_transform(), ha="right",
                    textcoords="offset points", va="center", fontsize=size, fontweight="bold",
                )  # fmt: skip
            if k >= len(names) - columns:
                ax.set_xlabel("Source AUROC")
                ax.tick_params(labelbottom=True)
    return figure


def plot_association(audit: Audit, ax: Any = None, *, head: str = "shortcut", width: float = COLUMN) -> Any:
    """Draw a head's AUROC over the association ξ of source and label; markers are the minima."""
    xi = np.linspace(-1, 1, 81)
    with style():
        figure, [ax] = canvas(ax, width, 0.86 * width if width < 5 else 0.45 * width)
        for name, look in looks(audit).items():
            curve, lowest, where = audit[name].association_curve(head)
            title = f"{look.label}: lowest {number(lowest)} at ξ = {number(where, 2)}"
            (line,) = ax.plot(xi, curve_at(curve, xi), color=look.color, ls="--" if look.hollow else "-")
            mark(line, title, name)
            if head == "shortcut":
                whisker(ax, where, audit[name].estimate("worst"), look)
            points(ax, where, lowest, look, title, ms=4.6, clip_on=False)
        ax.set_xlim(-1.04, 1.04)
        ax.axhline(0.5, **draw.CHANCE, zorder=1)
        ax.set_xticks([-1, 0, 1], ["−1\nreversed", "0\nindependent", "1\naligned"])
        ax.set_xlabel("Association ξ of source and label")
        ax.set_ylabel(f"{head.capitalize()}-head AUROC")
        grid(ax, "y")
        draw.legend(ax, audit, 3 if width < 5 else 6)
    return figure


def plot_participants(audit: Audit, metric: str = "S", axes: Any = None, *, width: float = PAGE) -> Any:
    """Draw a metric of every participant without (left) and with (right) each method, and their means."""
    names, styles = audit.methods[1:], looks(audit)
    if not names:
        raise ValueError("plot_participants compares methods with the identity; there is only the identity.")
    before = audit["identity"].by_participant(metric)
    here = np.flatnonzero(np.isfinite(before))  # in mixed designs some have no such value
    before, people = before[here], [audit["identity"].participants[i] for i in here]
    with style():
        columns = min(len(names), 6 if width > 5 else 3)
        figure, panels = canvas(axes, width, 1.9, len(names), columns, sharey=True)
        for k, (name, ax) in enumerate(zip(names, panels, strict=True)):
            look, after = styles[name], audit[name].by_participant(metric)[here]
            changes = zip(people, before, after, strict=True)
            titles = [f"{who}, {look.label}: {number(b)} → {number(a)}" for who, b, a in changes]
            for i, line in enumerate(ax.plot([0, 1], [before, after], color=draw.FAINT, lw=0.7, zorder=1)):
                mark(line, titles[i], name, here[i : i + 1].tolist())
            grey = {"ms": 2.6, "marker": "o", "mfc": draw.COLORS[0], "mew": 0, "zorder": 2}
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
                ax.set_ylabel(draw.axis_label(find_metric(metric)))
    return figure


def plot_embedding(
    audit: Audit, axes: Any = None, *, methods: Iterable[str] = (), width: float = PAGE
) -> Any:
    """Draw evaluation rows before and after, in the two leading directions they had before, by source."""
    clouds = {name: audit[name].cells[0]["picture"] for name in ("identity", *(methods or audit.methods[1:]))}
    styles, (sources, codes) = looks(audit), np.unique(audit.picture_source, return_inverse=True)
    # The same frame for all, or a method that shrinks the cloud would not be seen to.
    everything = np.concatenate(list(clouds.values()))
    low, high = everything.min(axis=0), everything.max(axis=0)
    margin = 0.04 * (high - low).max()
    with style():
        columns = min(len(clouds), 4 if width > 5 else 2)
        tall = width / columns * float(np.clip(np.divide(*(high - low)[::-1]), 0.3, 2))
        figure, panels = canvas(axes, width, tall + 0.2, len(clouds), columns, extra=0.35)
        for (name, cloud), ax in zip(clouds.items(), panels, strict=True):
            # In turns, or the source drawn last would hide the others.
            order = np.random.default_rng(0).permutation(len(cloud))[:CLOUD_ROWS]
            colors = [draw.SOURCE_COLORS[i % len(draw.SOURCE_COLORS)] for i in range(len(sources))]
            for part in np.array_split(order, 8):
                for i, color in enumerate(colors):
                    ax.plot(*cloud[part[codes[part] == i]].T, "o", ms=2.4, mew=0, alpha=0.5, color=color)
            for i, source in enumerate(sources):
                ax.plot(
                    *cloud[codes == i].mean(axis=0), draw.MARKERS[i % len(draw.MARKERS)], mfc=colors[i],
                    ms=4.5 + 3 * (i == 0), mec="white", mew=0.9, zorder=3, label=plain(f"{source} (mean)"),
                )  # fmt: skip
            ax.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin))
            ax.set(xticks=[], yticks=[], aspect="equal", adjustable="box")
            ax.spines[:].set(visible=True, color=draw.FAINT)
            ax.set_title(styles[name].short, loc="left", fontweight="bold", fontsize=7, pad=3)
        if axes is None:
            legend = panels[0].get_legend_handles_labels()
            figure.legend(*legend, loc="outside upper right", ncols=len(sources), markerscale=0.8)
    return figure


def plot_pairs(source: Audit | PairCheck, ax: Any = None, *, width: float = COLUMN) -> Any:
    """Draw what pairs show: held-out coverage by rank, of the pairs and of permuted pairs.

    ``source`` is an audit whose fitting rows have pairs, or what :func:`mgpa.audit.check_pairs` returned.
    """
    check: Any = source.check_pairs() if hasattr(source, "check_pairs") else source
    if check is None:
        raise ValueError("The fitting rows have no pairs, or too few; plot_pairs has nothing to draw.")
    with style():
        figure, (ax,) = canvas(ax, width, 0.75 * width)
        ranks = np.arange(1, len(check.coverage) + 1)
        low, middle, high = check.shuffled_range
        ax.fill_between(ranks, low, high, color=draw.MUTED, alpha=0.2, lw=0)
        ax.plot(ranks, middle, color=draw.MUTED, label="views permuted between events")
        (line,) = ax.plot(ranks, check.coverage, "o-", ms=3, color=draw.COLORS[1], label="pairs as they are")
        shares = zip(ranks, check.coverage, middle, strict=True)
        mark(
            line, (f"{rank} directions: {share:.1%}, permuted {chance:.1%}" for rank, share, chance in shares)
        )
        if check.rank:
            ax.axvline(check.rank, **draw.CHANCE)
            ax.annotate("supported", (check.rank, 0.02), xytext=(3, 0), textcoords="offset points")
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
        same = [
            users for users, other in different if np.array_equal(other["gate_basis"], facts["gate_basis"])
        ]
        if same:
            same[0].append(name)
        else:
            different.append(([name], facts))
    return different


def plot_gate(audit: Audit, axes: Any = None, *, width: float | None = None) -> Any:
    """Draw how much of the paired contrasts the leading directions hold, and the rank the gate took.

    The diamond is what the chosen gate covers of contrasts of participants it was not fitted on. Where
    features have names, further panels show which features the (first) gate may change, from 0 (not at all)
    to 1 (freely): scalp maps of channels by band, a curve over numbers such as wavelengths, or bars.
    """
    different, styles, shown = gates(audit), looks(audit), 1
    if not different:
        raise ValueError("No audited method has a gate; plot_gate has nothing to draw.")
    (first, *_), facts = different[0]
    names = audit[first].provenance[0].feature_names if audit[first].provenance else None
    free = np.square(facts["gate_basis"]).sum(axis=1)
    views = _feature_views(list(names), free) if names and len(names) == len(free) and axes is None else []
    with style():
        width = width or (PAGE if views else COLUMN)
        ratio: dict[str, Any] = (
            {"width_ratios": [3, *(2 if kind == "scalp" else 3 for kind, *_ in views)]} if views else {}
        )
        figure, (ax, *others) = canvas(axes, width, 2.2, 1 + len(views), 1 + len(views), **ratio)
        for users, facts in different:
            energy, rank, look = (
                np.asarray(facts["gate_energy"]),
                facts["gate_basis"].shape[1],
                styles[users[0]],
            )
            text = "\n".join(styles[m].short for m in users)
            text += f"\nrank {rank}, {100 * energy[rank - 1]:.1f} % of FIT contrasts"
            if "gate_coverage" in facts:
                covered = float(facts["gate_coverage"])
                text += f"\ndiamond: {100 * covered:.1f} % of held-out ones"
                title = f"{look.label}: {covered:.1%} of held-out contrasts"
                points(ax, rank, covered, look, title, ms=4.2, mfc="white", marker="D", zorder=5)
            titles = [f"{look.label}: {k} directions, {e:.1%}" for k, e in enumerate(energy, start=1)]
            dots: dict[str, Any] = {"ms": 2.6, "marker": "o", "mfc": look.color, "label": text, "ls": "-"}
            points(ax, range(1, len(energy) + 1), energy, look, titles, color=look.color, **dots)
            ax.plot(rank, energy[rank - 1], "o", ms=7, mfc="none", mec=look.color, mew=1.3, zorder=4)
            # Beyond this the spectrum says nothing more.
            shown = max(shown, min(len(energy), max(rank + 2, int(np.searchsorted(energy, 0.999)) + 1)))
        ax.set(xlim=(0.5, shown + 0.5), ylim=(min(0.0, ax.get_ylim()[0]), 1.04))
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set(xlabel="Directions in the gate", ylabel="Cumulative contrast energy")
        grid(ax, "y")
        ax.legend(loc="lower right", handlelength=1.4, labelspacing=0.8)
        for view, panel in zip(views, others, strict=True):
            _draw_features(panel, *view, float(free.max()))
    return figure


def _feature_views(names: list[str], free: NDArray[Any]) -> list[tuple[str, str, Any, NDArray[Any]]]:
    """Return how to draw features: the kind, a title, places (channels, numbers or names), and values."""
    numbers = [re.fullmatch(r"(-?\d+(?:\.\d+)?) ?([a-zA-Zµ]*)", name) for name in names]
    if len(names) > 2 and all(numbers) and len(units := {n[2] for n in numbers if n}) == 1:
        x = np.array([float(n[1]) for n in numbers if n])
        return [("curve", f"Feature {units.pop()}".strip(), np.sort(x), free[np.argsort(x)])]
    parts = [re.fullmatch(r"([A-Za-z]+\d*[zh]?)[ _:/-]+(.+)", name) for name in names]
    if all(parts):
        bands = {
            band: [i for i, p in enumerate(parts) if p and p[2] == band]
            for band in (p[2] for p in parts if p)
        }
        channels = {band: [parts[i][1] for i in rows] for band, rows in bands.items()}  # type: ignore[index]
        if min(map(len, channels.values())) > 3 and _on_scalp(
            {c for some in channels.values() for c in some}
        ):
            return [("scalp", band, channels[band], free[rows]) for band, rows in list(bands.items())[:6]]
    order = np.argsort(-free)[:SHOWN_FEATURES]
    return [("bars", "Most changeable features", [names[i] for i in order], free[order])]


def _montage() -> Any:
    from mne.channels import get_builtin_montages, make_standard_montage

    return make_standard_montage(
        "colin27_1005" if "colin27_1005" in get_builtin_montages() else "standard_1005"
    )


def _on_scalp(channels: set[str]) -> bool:
    """Return whether MNE is installed and knows where all channels are."""
    try:
        return channels <= set(_montage().ch_names)
    except ImportError:
        return False


def _draw_features(ax: Any, kind: str, title: str, places: Any, values: NDArray[Any], top: float) -> None:
    if kind == "scalp":
        import mne

        info = mne.create_info(list(places), 100.0, "eeg").set_montage(_montage())
        mne.viz.plot_topomap(values, info, axes=ax, show=False, contours=0, vlim=(0, top), cmap="viridis")
        ax.set_title(plain(f"{title}\nup to {number(values.max(), 2)}"), fontsize=7)
    elif kind == "curve":
        ax.plot(places, values, color=draw.COLORS[1])
        ax.set(xlabel=plain(title), ylabel="May change (share)")
        grid(ax, "y")
    else:
        ax.barh(range(len(values)), values, color=draw.COLORS[1])
        ax.set_yticks(range(len(values)), [plain(name) for name in places], fontsize=5.5)
        ax.set(ylim=(len(values) - 0.5, -0.5), xlabel="May change (share)", title=title)
        rows(ax)
