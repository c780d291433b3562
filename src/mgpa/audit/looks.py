"""How methods and readers are written and drawn: the same in figures, tables and the report."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from .further_readers import FURTHER
from .result import Audit

# The first is the identity's. At least 3:1 against white (the dark ones against black), and apart from each
# other with protanopia and deuteranopia too (smallest CIELAB distance 29); markers differ as well.
COLORS = ("#444444", "#006ed7", "#c77700", "#0b9e6c", "#b565a7", "#7a4312", "#3b1c6c")
DARK_COLORS = ("#d5d9df", "#7f87ff", "#f0a51e", "#2ee88f", "#a377b1", "#a8682e", "#6f45ff")
SOURCE_COLORS = ("#0e7c86", "#c2405b", "#6b6b00", "#5b5ea6", "#9a5b00", "#555555")
DARK_SOURCE_COLORS = ("#35c3cf", "#ff7d96", "#c9c94a", "#a4a7f0", "#e0a050", "#c0c0c0")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")

#: How methods of this package are written; other names are shown as they are.
LABELS = {
    "identity": "Identity", "leace": "LEACE", "oracle_leace": "Oracle LEACE",
    "quadratic_leace": "Quadratic LEACE", "closed_form_mgpa": "Closed-form MGPA",
    "iterative_mgpa": "Iterative MGPA", "splince": "SPLINCE", "inlp": "INLP", "igbp": "IGBP",
    "mance": "MANCE", "ncm": "NCM", "pisco": "PISCO", "featmap": "FEATMAP",
    "coral": "CORAL", "combat": "ComBat",
}  # fmt: skip
READER_GROUPS = {"mean": "Token mean", "tokens": "All tokens", "residual": "Token residuals"}
READERS = {
    "linear": "logistic",
    "whitened_linear": "logistic, whitened",
    "gelu": "network",
    "linear_raw": "logistic, raw",
    "linear_standardized": "logistic, scaled",
    "flat_gelu": "network",
    "grid_gelu": "token network",
    "boosted_trees": "boosted trees",
    "spread": "spread",
}


class Look(NamedTuple):
    """How a method is drawn everywhere; hollow if it is told the source."""

    label: str
    hue: int
    color: str
    face: str
    marker: str
    hollow: bool


def looks(audit: Audit) -> dict[str, Look]:
    """Return each method's label, colour and marker; the identity, which is the first, is grey."""
    found = {}
    for i, name in enumerate(audit.methods):
        hue, hollow = 1 + (i - 1) % (len(COLORS) - 1) if i else 0, not audit[name].source_blind
        face, marker = "white" if hollow else COLORS[hue], MARKERS[i % len(MARKERS)]
        found[name] = Look(label(name), hue, COLORS[hue], face, marker, hollow)
    return found


def label(method: str) -> str:
    """Return how a method is written."""
    return LABELS.get(method, method)


def reader_rows(readers: Iterable[str]) -> list[tuple[str, str]]:
    """Return the group and the name, in words, of each reader.

    Examples
    --------
    >>> reader_rows(["whitened_linear", "gelu r0 e12"])
    [('Linear', 'logistic, whitened'), ('Networks', 'network 1, 12 epochs')]
    >>> reader_rows(["tokens linear_raw"])
    [('All tokens', 'logistic, raw')]
    """
    rows = []
    for group, family, run in map(reader_parts, readers):
        title = group or ("Networks" if run else "Further" if family in FURTHER else "Linear")
        # One network for every random start, read several times.
        when = f" {run[0] + 1}, {run[1]} epochs" if run else ""
        rows.append((title, READERS.get(family, family) + when))
    return rows


def reader_parts(reader: str) -> tuple[str, str, tuple[int, int] | None]:
    """Return a reader's group, of those that read tokens, its family, and a network's restart and epochs.

    Examples
    --------
    >>> reader_parts("linear"), reader_parts("tokens grid_gelu r0 e12")
    (('', 'linear', None), ('All tokens', 'grid_gelu', (0, 12)))
    """
    group, _, name = reader.partition(" ")
    if group not in READER_GROUPS:
        group, name = "", reader
    run = re.fullmatch(r"(.*) r(\d+) e(\d+)", name, re.DOTALL)
    if run is None:
        return READER_GROUPS.get(group, ""), name, None
    return READER_GROUPS.get(group, ""), run[1], (int(run[2]), int(run[3]))
