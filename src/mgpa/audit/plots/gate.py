"""Draw how freely a gate lets each feature change, as scalp maps, a curve or bars."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import drawing as draw
from .drawing import PAGE, canvas, grid, looks, plain, style
from .palette import COLORS

if TYPE_CHECKING:
    from ..result import Audit

# Limits on the number of features in a chart and of scalp maps.
SHOWN_FEATURES, SHOWN_BANDS = 20, 6


def named_gate(audit: Audit) -> str | None:
    """Return the method whose gate has the lowest rank, among methods with named features, or None."""
    ranks = {}
    for name, result in audit.results.items():
        names = result.provenance[0].feature_names if result.provenance else None
        basis = result.facts[0].get("gate_basis") if result.facts else None
        if names and basis is not None and len(basis) == len(names) and basis.shape[1]:
            ranks[name] = basis.shape[1]
    return min(ranks, key=lambda name: ranks[name], default=None)


def plot_gate(audit: Audit) -> Any:
    """Draw the share of each named feature's variation that a gate lets change, from 0 to 1.

    The chart has scalp maps of channels by band, a curve over numeric names such as wavelengths, or bars. If
    several methods have gates, the gate with the fewest directions is drawn.
    """
    method = named_gate(audit)
    if method is None:
        raise ValueError("No method has a gate over named features, so plot_gate has nothing to draw.")
    basis, names = audit[method].facts[0]["gate_basis"], audit[method].provenance[0].feature_names or ()
    free, scalps = np.square(basis).sum(axis=1), _bands(names)
    means = {band: free[[*channels.values()]].mean() for band, channels in scalps.items()}
    shown = sorted(means, key=lambda band: -means[band])[:SHOWN_BANDS]
    left_out = f"; the freest {len(shown)} of {len(scalps)} bands" if len(shown) < len(scalps) else ""
    scalps = {band: channels for band, channels in scalps.items() if band in shown}
    alike = "; all features may change equally" if free.min() > 0.9 * free.max() else ""
    with style():
        n_panels = max(len(scalps), 1)
        figure, panels = canvas(PAGE, 1.6 if scalps else 2.2, n_panels, n_panels)
        figure.suptitle(
            f"{looks(audit)[method].short}, gate of rank {basis.shape[1]}{left_out}{alike}",
            fontsize=7,
            x=0.01,
            ha="left",
        )
        if scalps:
            _scalp_maps(figure, list(panels), scalps, free)
        else:
            _by_feature(panels[0], list(names), free)
    return figure


def _bands(names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return channel positions by band for features named like "Fz alpha"; empty for other names.

    Also empty if MNE is not installed or a channel's position is unknown.
    """
    parts = [re.fullmatch(r"([A-Za-z]+\d*[zh]?)[ _:/-]+(.+)", name) for name in names]
    bands: dict[str, dict[str, int]] = {}
    for i, part in enumerate(parts):
        if part is None:
            return {}
        bands.setdefault(part[2], {})[part[1]] = i
    try:
        channels_of_mne = {*_montage().ch_names}
    except ImportError:
        return {}
    placed = all(len(channels) > 3 and channels_of_mne >= {*channels} for channels in bands.values())
    return bands if placed else {}


def _montage() -> Any:
    from mne.channels import get_builtin_montages, make_standard_montage

    newer = "colin27_1005" in get_builtin_montages()
    return make_standard_montage("colin27_1005" if newer else "standard_1005")


def _scalp_maps(figure: Any, panels: list[Any], bands: dict[str, dict[str, int]], free: NDArray[Any]) -> None:
    """Draw one scalp map per band with a common colour scale."""
    import mne

    for ax, (band, channels) in zip(panels, bands.items(), strict=True):
        info = mne.create_info(list(channels), 100.0, "eeg").set_montage(_montage())
        image, _ = mne.viz.plot_topomap(
            free[[*channels.values()]], info, axes=ax, show=False, contours=0, vlim=(0, free.max()),
            cmap="viridis", extrapolate="local",
        )  # fmt: skip
        ax.set_title(plain(band))
    bar = figure.colorbar(image, ax=panels, shrink=0.6, aspect=15, pad=0.02)
    bar.set_label("Share that may change")
    bar.outline.set_visible(False)


def _by_feature(ax: Any, names: list[str], free: NDArray[Any]) -> None:
    """Draw a curve over features with numeric names in one unit; otherwise bars of the freest features."""
    numbers = [re.fullmatch(r"(-?\d+(?:\.\d+)?) ?([a-zA-Zµ]*)", name) for name in names]
    unit = {n[2] if n else None for n in numbers}
    if len(names) > 2 and len(unit) == 1 and None not in unit:
        x = np.array([float(n[1]) for n in numbers if n])
        order = np.argsort(x)
        ax.fill_between(x[order], free[order], color=COLORS[1], alpha=0.15, lw=0)
        ax.plot(x[order], free[order], color=COLORS[1])
        word = str(unit.pop())
        ax.set(xlabel=f"Feature ({word})" if word else "Feature", xlim=(x.min(), x.max()))
        ax.set(ylabel="Share that may change", ylim=(0, None))
        grid(ax, "y")
        return
    order = np.argsort(-free)[:SHOWN_FEATURES]
    ax.barh(range(len(order)), free[order], color=COLORS[1], height=0.7)
    ax.set_yticks(range(len(order)), [plain(names[i]) for i in order], fontsize=5.5)
    ax.set(ylim=(len(order) - 0.5, -0.5), xlabel="Share that may change")
    draw.rows(ax)
