"""The options of an audit, and the settings stored in its result."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..coordinates import Coordinates
from ..errors import UsageError
from ..tables.table import Table
from .readers import CHECKPOINTS, SEED, check_bank


@dataclass(frozen=True)
class Options:
    """The arguments of :func:`mgpa.audit.run` besides the table and the methods, with their defaults."""

    pairs: Any = None
    seeds: Sequence[int] = (17, 29, 43)
    budget: float | Mapping[str, float] | None = None
    coordinates: Coordinates | None = None
    head: Any = None
    head_source: Any = None
    task: str | None = None
    readers: str | Mapping[str, Any] = "full"
    association: tuple[Any, Any] | None = None
    floor: bool = True
    standardize: bool = True
    folds: int | None = None
    repeats: int | None = None
    refits: int = 0
    cache: Any = None
    n_jobs: int = 1
    device: str = "auto"
    verbose: bool = True


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of the audit, and a description of the table.

    Attributes
    ----------
    rows, participants : dict of role to int
    pair_participants : tuple of int
        Number of participants with pairs in the fits: minimum and maximum over folds.
    always_fit : int
        Number of participants who are FIT in every fold, because few have pairs or a map was fitted on them.
    one_source : dict of role to int
        Number of FIT and HEAD participants with rows of only one source.
    duplicates : dict of str to int, copied : tuple of str
        Number of rows that are copies of rows with another role, and their participants.
    directions, directions_of : tuple of str, str
        The shortcuts that association heads learned, and their origin.
    folds, splits, repeats : int
        Number of folds over which roles rotated (1: none), of pooled splits, and of random divisions into
        folds.
    turns : dict of tuple to int
        Number of participants with these roles in the folds of the first division; empty if roles do not
        rotate.
    refits : int
        Number of refits on half of the FIT participants.
    omitted, unattained : dict
        Methods that were left out, with reasons; numbers of fits that missed their budget, and of all fits.
    outcome : str
        The metric by which methods are ranked.
    map_rows : str
        For maps that were fitted elsewhere, the fitting data that they record.
    """

    version: str
    versions: dict[str, str]
    seeds: tuple[int, ...]
    pairs: Any
    floor: bool
    standardize: bool
    budget: Any
    head: str
    head_source: str
    deployed: bool
    readers: Any
    bank: str
    no_networks: bool
    preliminary: bool
    association: tuple[str, ...] | None
    device: str
    coordinates: str | None
    sources: tuple[str, ...]
    source_name: str
    task: str
    features: tuple[int, ...]
    corrected_by: str | None
    encoder: dict[str, Any]
    signals: dict[str, Any]
    pairing: str
    data: str
    rows: dict[str, int] = field(default_factory=dict)
    participants: dict[str, int] = field(default_factory=dict)
    pair_participants: tuple[int, ...] = ()
    always_fit: int = 0
    one_source: dict[str, int] = field(default_factory=dict)
    duplicates: dict[str, int] = field(default_factory=dict)
    copied: tuple[str, ...] = ()
    directions: tuple[str, ...] = ()
    directions_of: str = ""
    folds: int = 1
    splits: int = 1
    repeats: int = 1
    turns: dict[tuple[str, ...], int] = field(default_factory=dict)
    refits: int = 0
    omitted: dict[str, str] = field(default_factory=dict)
    unattained: dict[str, list[int]] = field(default_factory=dict)
    outcome: str = "S"

    @property
    def widen(self) -> bool:
        """Whether intervals over few participants are widened; the paper's are not."""
        return self.bank != "paper"


def bank_of(readers: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the requested set of readers."""
    settings: dict[str, Any] = {"bank": "full", "restarts": 3, "checkpoints": CHECKPOINTS, "seed": SEED}
    chosen = {"bank": readers} if isinstance(readers, str) else dict(readers)
    other = sorted(set(chosen) - set(settings))
    if other:
        raise TypeError(f"readers has {other}; it takes bank, restarts, checkpoints and seed.")
    settings |= chosen
    settings["checkpoints"] = check_bank(*(settings[k] for k in ("bank", "restarts", "checkpoints")))
    return settings


def budgets_of(budget: float | Mapping[str, float] | None, names: list[str]) -> dict[str, float]:
    """Return the budgets of methods that have one; the identity never moves."""
    if not isinstance(budget, Mapping):
        budget = {} if budget is None else dict.fromkeys(names, budget)
    budgets = {name: float(b) for name, b in budget.items() if name != "identity"}
    for name, b in budgets.items():
        if not (np.isfinite(b) and b >= 0):
            raise ValueError(f"The budget of {name} is {b!r}; expected a movement, zero or more.")
    return budgets


def preliminary(bank: Mapping[str, Any]) -> bool:
    """Return whether a set of readers is smaller than the full set."""
    return bool(bank["restarts"] < 3 or max(bank["checkpoints"]) < max(CHECKPOINTS))


def head_source_of(stated: Any, deployed: bool, table: Table) -> Any:
    """Return the source on which a deployed head was trained, or None."""
    if stated is None:
        return None
    named = {str(source): source for source in table.sources.tolist()}
    if not deployed:
        raise UsageError(
            f"head_source is {stated!r}, but no fitted head was passed. Pass head=, a fitted classifier or "
            "regressor; for heads fitted by the audit, home and away are scored automatically."
        )
    if str(stated) not in named:
        raise UsageError(f"head_source is {stated!r}; expected a source: {', '.join(named)}.")
    return named[str(stated)]


def pooled_settings(every: Sequence[Settings]) -> Settings:
    """Return the common settings of several splits or repeats, with the counts of all."""
    first = every[0]
    missed = [s.unattained for s in every]
    paired = [n for s in every for n in s.pair_participants]
    return replace(
        first,
        rows={role: sum(s.rows[role] for s in every) for role in first.rows},
        pair_participants=tuple(sorted({min(paired), max(paired)})) if paired else (),
        data=hashlib.sha256(" ".join(s.data for s in every).encode()).hexdigest()[:16],
        duplicates=dict(sum((Counter(s.duplicates) for s in every), Counter())),
        copied=tuple(dict.fromkeys(name for s in every for name in s.copied)),
        directions=tuple(dict.fromkeys(way for s in every for way in s.directions)),
        # Numbers of fits that missed their budget, and of all fits.
        unattained={
            name: [sum(counts.get(name, (0, 0))[k] for counts in missed) for k in (0, 1)]
            for name in dict.fromkeys(name for counts in missed for name in counts)
        },
    )
