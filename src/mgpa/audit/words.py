"""Display names of methods and readers, for tables, sentences, figures and the report."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: How methods of this package are written; other names are shown as they are.
LABELS = {
    "identity": "Identity", "leace": "LEACE", "oracle_leace": "Oracle LEACE",
    "quadratic_leace": "Quadratic LEACE", "mgpa": "MGPA", "closed_form_mgpa": "Closed-form MGPA",
    "iterative_mgpa": "Iterative MGPA", "splince": "SPLINCE", "inlp": "INLP", "igbp": "IGBP",
    "ncm": "NCM", "epo": "EPO", "sst": "SST", "pds": "PDS", "pisco": "PISCO",
    "featmap": "FEATMAP", "coral": "CORAL", "combat": "ComBat",
}  # fmt: skip
TOKENS = {"mean": "token mean: ", "tokens": "all tokens: ", "residual": "token residuals: "}
READERS = {
    "linear": "logistic", "whitened_linear": "whitened logistic", "gelu": "network",
    "linear_raw": "raw logistic", "linear_standardized": "scaled logistic", "flat_gelu": "network",
    "grid_gelu": "token network", "boosted_trees": "boosted trees", "spread": "spread",
    "quadratic_5": "quadratic (5 % shrunk)", "quadratic_30": "quadratic (30 %)",
    "whitened_quadratic_10": "whitened quadratic (10 %)",
    "whitened_quadratic_50": "whitened quadratic (50 %)", "whitened_kernel": "whitened kernel",
    "whitened_length": "whitened length",
    "own_quadratic_5": "quadratic about own mean",
    "own_whitened_quadratic_50": "whitened quadratic about own mean",
}  # fmt: skip


def label(method: str) -> str:
    """Return the display name of a method."""
    return LABELS.get(method, method)


def listed(items: Iterable[object]) -> str:
    """Return items with commas and an "and" before the last.

    Examples
    --------
    >>> listed([17, 29, 43]), listed(["dry"])
    ('17, 29 and 43', 'dry')
    """
    *words, last = map(str, items)
    return f"{', '.join(words)} and {last}" if words else last


def reader_name(reader: str) -> str:
    """Return the name of a reader in words.

    Examples
    --------
    >>> reader_name("gelu r0 e200"), reader_name("tokens linear_raw")
    ('network 1, 200 epochs', 'all tokens: raw logistic')
    """
    group, _, name = reader.partition(" ")
    where, name = (TOKENS[group], name) if group in TOKENS else ("", reader)
    if run := re.fullmatch(r"(.*) r(\d+) e(\d+)", name):
        return f"{where}{READERS.get(run[1], run[1])} {int(run[2]) + 1}, {run[3]} epochs"
    return f"{where}{READERS.get(name, name)}"


def reader_summary(readers: Iterable[str]) -> str:
    """Return a set of readers in words.

    Examples
    --------
    >>> reader_summary(["linear", "gelu r0 e12", "gelu r0 e50", "gelu r1 e12", "gelu r1 e50", "spread"])
    'logistic, spread, 4 networks after 12 and 50 epochs'
    """
    groups: dict[str, list[str]] = {}
    for where, colon, name in (reader_name(reader).rpartition(": ") for reader in readers):
        groups.setdefault(where + colon, []).append(name)
    parts = []
    for where, names in groups.items():
        words = [name for name in names if not name.endswith(" epochs")]
        if trained := len(names) - len(words):
            epochs = sorted({int(name.split()[-2]) for name in names if name not in words})
            words.append(f"{trained} network{'s' * (trained > 1)} after {listed(epochs)} epochs")
        parts.append(f"{where}{', '.join(words)}")
    return "; ".join(parts)
