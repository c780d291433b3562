"""How methods and readers are written: the same in tables, sentences, figures and the report."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .readers import FURTHER

#: How methods of this package are written; other names are shown as they are.
LABELS = {
    "identity": "Identity", "leace": "LEACE", "oracle_leace": "Oracle LEACE",
    "quadratic_leace": "Quadratic LEACE", "mgpa": "MGPA", "closed_form_mgpa": "Closed-form MGPA",
    "iterative_mgpa": "Iterative MGPA", "splince": "SPLINCE", "inlp": "INLP", "igbp": "IGBP",
    "ncm": "NCM", "epo": "EPO", "sst": "SST", "pds": "PDS", "pisco": "PISCO",
    "featmap": "FEATMAP", "coral": "CORAL", "combat": "ComBat",
}  # fmt: skip
READER_GROUPS = {"mean": "Token mean", "tokens": "All tokens", "residual": "Token residuals"}
READERS = {
    "linear": "logistic",
    "whitened_linear": "whitened logistic",
    "gelu": "network",
    "linear_raw": "raw logistic",
    "linear_standardized": "scaled logistic",
    "flat_gelu": "network",
    "grid_gelu": "token network",
    "boosted_trees": "boosted trees",
    "spread": "spread",
}


def label(method: str) -> str:
    """Return how a method is written."""
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


def reader_rows(readers: Iterable[str]) -> list[tuple[str, str]]:
    """Return the group and the name, in words, of each reader.

    Examples
    --------
    >>> reader_rows(["whitened_linear", "gelu r0 e12", "tokens linear_raw"])
    [('Linear', 'whitened logistic'), ('Networks', 'network 1, 12 epochs'), ('All tokens', 'raw logistic')]
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


def reader_name(reader: str) -> str:
    """Return one reader in words.

    Examples
    --------
    >>> reader_name("gelu r0 e200"), reader_name("tokens linear_raw")
    ('network 1, 200 epochs', 'all tokens: raw logistic')
    """
    [(group, name)] = reader_rows([reader])
    return f"{group[0].lower()}{group[1:]}: {name}" if group in READER_GROUPS.values() else name


def reader_summary(readers: Iterable[str]) -> str:
    """Return a bank of readers in words.

    Examples
    --------
    >>> reader_summary(["linear", "gelu r0 e12", "gelu r0 e50", "gelu r1 e12", "gelu r1 e50", "spread"])
    'logistic; 4 networks after 12 and 50 epochs; spread'
    """
    groups: dict[str, list[str]] = {}
    for group, name in reader_rows(readers):
        groups.setdefault(group, []).append(name)
    parts = []
    for group, names in groups.items():
        epochs = sorted({int(n[1]) for name in names if (n := re.search(r"(\d+) epochs", name))})
        words = [name for name in names if "epochs" not in name]
        if epochs:
            trained = len(names) - len(words)
            words.append(f"{trained} network{'s' * (trained > 1)} after {listed(epochs)} epochs")
        where = f"{group[0].lower()}{group[1:]}: " if group in READER_GROUPS.values() else ""
        parts.append(f"{where}{', '.join(words)}")
    return "; ".join(parts)
