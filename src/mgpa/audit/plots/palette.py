"""Colours and markers of methods, by name, and colours of sources.

Colours remain distinguishable with protanopia and deuteranopia: the smallest CIELAB distance is 29 between
methods and 32 between sources. Each colour has a contrast of at least 3:1 to its background.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ...baselines.registry import canonical_name

# The first colour is that of the identity; the dark-mode colours have the same order.
COLORS = ("#444444", "#006ed7", "#c77700", "#0b9e6c", "#b565a7", "#7a4312", "#3b1c6c")
DARK_COLORS = ("#d5d9df", "#7f87ff", "#f0a51e", "#2ee88f", "#a377b1", "#a8682e", "#6f45ff")
SOURCE_COLORS = ("#0a9396", "#9b2226", "#a88a10", "#2b22b8", "#6d8df0", "#16123a")
DARK_SOURCE_COLORS = ("#6ff0e6", "#d4566f", "#a8820c", "#6a55f0", "#8a9ff2", "#f6f08c")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")

# Methods of one family share a colour and have different markers.
_FAMILIES = {
    "identity": (0, "o"), "mgpa": (1, "s"), "closed_form_mgpa": (6, "D"), "iterative_mgpa": (4, "P"),
    "leace": (2, "^"), "oracle_leace": (2, "v"), "quadratic_leace": (2, "<"), "splince": (2, ">"),
    "coral": (3, "v"), "combat": (3, "P"), "euclidean_alignment": (3, "s"), "cmmn": (3, "p"),
    "riemannian_recentring": (3, "h"), "riemannian_procrustes": (3, "X"), "traveling_subjects": (3, "D"),
    "inlp": (5, "v"), "igbp": (5, "^"), "mance": (5, "<"), "ncm": (5, ">"), "pisco": (5, "D"),
    "epo": (5, "s"), "sst": (5, "X"),
    "ds": (6, "<"), "pds": (6, ">"), "featmap": (6, "h"), "slope_bias": (6, "X"),
    "augmentation_invariance": (4, "D"), "circe": (4, "X"), "awar": (4, "p"), "sdda": (4, "h"),
}  # fmt: skip


def colour_of(method: str, dark: bool = False) -> str:
    """Return the colour of a method, which is the same in all charts.

    Parameters
    ----------
    method : str
        A name from :func:`mgpa.baselines.list_methods`; other names get a colour computed from the name.
    dark : bool, default=False
        Return the colour for dark pages.

    Returns
    -------
    str
        The colour as ``"#rrggbb"``.

    See Also
    --------
    source_colours : Colours of sources.

    Examples
    --------
    >>> colour_of("mgpa"), colour_of("LEACE"), colour_of("identity")
    ('#006ed7', '#c77700', '#444444')
    """
    return (DARK_COLORS if dark else COLORS)[_place(method)[0]]


def marker_of(method: str) -> str:
    """Return the matplotlib marker of a method."""
    return _place(method)[1]


def _place(method: str) -> tuple[int, str]:
    """Return the colour position and the marker of a method."""
    key = canonical_name(method)
    if key in _FAMILIES:
        return _FAMILIES[key]
    color, marker = hashlib.sha256(key.encode()).digest()[:2]
    return 1 + color % (len(COLORS) - 1), MARKERS[1 + marker % (len(MARKERS) - 1)]


def places(methods: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Return colour positions and markers for the methods of one chart.

    Listed methods keep their fixed colours and markers. If the names of a user's methods give equal colours,
    one of them gets another; the result does not depend on the order of methods.
    """
    chosen = {name: _place(name) for name in methods}
    taken = {place for name, place in chosen.items() if canonical_name(name) in _FAMILIES}
    every = [(color, marker) for marker in MARKERS[1:] for color in range(1, len(COLORS))]
    for name in sorted(name for name in chosen if canonical_name(name) not in _FAMILIES):
        used = {color for color, _ in taken}
        if chosen[name] in taken or chosen[name][0] in used:
            free = [place for place in every if place not in taken]
            chosen[name] = next((place for place in free if place[0] not in used), (free or every)[0])
        taken.add(chosen[name])
    return chosen


def source_colours(sources: Iterable[object], dark: bool = False) -> dict[str, str]:
    """Return a colour for each source, assigned in alphabetical order.

    Parameters
    ----------
    sources : iterable
        Names of sources, possibly repeated.
    dark : bool, default=False
        Return the colours for dark pages.

    Returns
    -------
    dict
        Colours by source name; with more than six sources, colours repeat.

    See Also
    --------
    colour_of : The colour of a method.

    Examples
    --------
    >>> source_colours(["wet", "dry", "wet"])
    {'dry': '#0a9396', 'wet': '#9b2226'}
    """
    colors = DARK_SOURCE_COLORS if dark else SOURCE_COLORS
    return {name: colors[i % len(colors)] for i, name in enumerate(sorted({str(s) for s in sources}))}
