"""How methods, readers and numbers are written: the same in tables, sentences, figures and the report."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .readers import FURTHER

if TYPE_CHECKING:
    from .bootstrap import Estimate

#: How methods of this package are written; other names are shown as they are.
LABELS = {
    "identity": "Identity", "leace": "LEACE", "oracle_leace": "Oracle LEACE",
    "quadratic_leace": "Quadratic LEACE", "mgpa": "MGPA", "closed_form_mgpa": "Closed-form MGPA",
    "iterative_mgpa": "Iterative MGPA", "splince": "SPLINCE", "inlp": "INLP", "igbp": "IGBP",
    "mance": "MANCE", "ncm": "NCM", "epo": "EPO", "sst": "SST", "pds": "PDS", "pisco": "PISCO",
    "featmap": "FEATMAP", "coral": "CORAL", "combat": "ComBat",
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


def label(method: str) -> str:
    """Return how a method is written."""
    return LABELS.get(method, method)


def number(x: float, digits: int = 3, sign: bool = False) -> str:
    """Return a number as every output prints it: rounded once, without a zero before the point.

    Examples
    --------
    >>> number(0.8123), number(-0.02, sign=True), number(-1e-5), number(0.8975) == number(0.8975 + 1e-15)
    ('.812', '-.020', '.000', True)
    """
    # Equal values that were summed in another order must print alike.
    text = f"{round(x, 9):{'+' if sign else ''}.{digits}f}"
    if float(text) == 0:
        text = text.replace("-", "+" if sign else "")
    return re.sub(r"^([+-]?)0\.", r"\1.", text)


def interval(e: Estimate, digits: int = 3, sign: bool = False) -> str:
    """Return a value and its interval."""
    value, low, high = (number(x, digits, sign) for x in (e.value, e.low, e.high))
    return f"{value} [{low}, {high}]"


def listed(items: Iterable[object]) -> str:
    """Return items with commas and an "and" before the last.

    Examples
    --------
    >>> listed([17, 29, 43]), listed(["dry"])
    ('17, 29 and 43', 'dry')
    """
    *words, last = map(str, items)
    return f"{', '.join(words)} and {last}" if words else last


def reader_rows(readers: Iterable[str]) -> list[tuple[str, str]]:
    """Return the group and the name, in words, of each reader.

    Examples
    --------
    >>> reader_rows(["whitened_linear", "gelu r0 e12", "tokens linear_raw"])
    [('Linear', 'logistic, whitened'), ('Networks', 'network 1, 12 epochs'), ('All tokens', 'logistic, raw')]
    """
    rows = []
    for reader in readers:
        group, _, name = reader.partition(" ")
        tokens, name = (READER_GROUPS[group], name) if group in READER_GROUPS else ("", reader)
        run = re.fullmatch(r"(.*) r(\d+) e(\d+)", name, re.DOTALL)
        family = run[1] if run else name
        title = tokens or ("Networks" if run else "Further" if family in FURTHER else "Linear")
        when = f" {int(run[2]) + 1}, {run[3]} epochs" if run else ""
        rows.append((title, READERS.get(family, family) + when))
    return rows
