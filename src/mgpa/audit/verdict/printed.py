"""The audit in a terminal: three lines of verdict, and a table."""

from __future__ import annotations

from itertools import dropwhile
from textwrap import wrap
from typing import TYPE_CHECKING

from ..._common.markup import text_table
from ...errors import printable
from ..estimates import number
from ..metrics import METRICS
from ..words import label
from .cards import card
from .caveats import caveats, class_chance, decoder_note, readers_note, shortcut_note
from .decisions import ranking

if TYPE_CHECKING:
    from ..result import Audit

# Characters of a printed table, and the columns that come first in it.
LINE = 110
FIRST = ("S", "home", "away", "RMSEP_home", "RMSEP_away", "T_f", "M")

Column = tuple[str, ...]


def in_detail(audit: Audit) -> list[str]:
    """Return every sentence about every method, the best first, and every caveat and note."""
    lines: list[str] = []
    for name in ranking(audit)[0]:
        lines += ["", label(name), *(f"  {finding}" for finding in card(audit, name))]
    notes = (*caveats(audit), readers_note(audit), shortcut_note(audit))
    return [*lines, "", "How sure is this?", *(f"  {note}" for note in notes if note)]


def decoder_lines(audit: Audit) -> list[str]:
    """Return a line for each end-to-end comparator: its scores beside those of heads on uncorrected rows."""
    lines, before = [""] if audit.decoders else [], audit.estimates["identity"]
    for name in audit.decoders:
        scores = (
            f"{m} {e} (a head on uncorrected rows: {number(before[m].value)})"
            for m, e in audit.estimates[name].items()
            if m in ("T_r", "T_p", "RMSEP_r", "RMSEP_p") and m in before
        )
        lines.append(f"{label(name)} replaces the head: {', '.join(scores)}")
    return lines


def table_lines(audit: Audit, *, everything: bool = False) -> list[str]:
    """Return the table of estimates; only the columns that fit a line, unless ``everything``."""
    names = [*audit.tabled] if everything else [*audit.methods]
    blocks = _blocks(_columns(audit, names), ("", "", "method", *map(printable, names)))
    lines: list[str] = []
    for block in blocks if everything else blocks[:1]:
        lines += ["", *dropwhile(lambda line: not line, text_table(zip(*block, strict=True)))]
    return lines[1:] + ([note] if (note := decoder_note(audit)) else [])


def _columns(audit: Audit, names: list[str]) -> list[Column]:
    """Return the columns of numbers: two lines of words, the name and what is wanted, a line per method."""
    columns: list[Column] = []
    outcome = audit.settings.outcome
    leading = (outcome, "control", *FIRST) if outcome == "worst" else FIRST
    for m in dict.fromkeys([*(m for m in leading if m in audit.columns), *audit.columns]):
        estimates = (audit.tabled[name].get(m) for name in names)
        wanted = f"{m} ({chance})" if (chance := class_chance(audit, m)) else METRICS[m].wanted
        cells = (wanted, *("–" if e is None else str(e) for e in estimates))
        words = wrap(METRICS[m].subject, max(map(len, cells)))[:2]
        columns.append((*[""] * (2 - len(words)), *words, *cells))
        if m == "S":
            reached = [number(r.chance.high) for r in audit.results.values()]
            columns.append(("", "chance", "up to", *reached, *["–"] * (len(names) - len(reached))))
    return columns


def _blocks(columns: list[Column], first: Column) -> list[list[Column]]:
    """Return the columns in blocks that fit a line, each with the column of names before it."""
    blocks: list[list[Column]] = [[first]]
    for column in columns:
        used = sum(2 + max(map(len, c)) for c in blocks[-1])
        if len(blocks[-1]) > 1 and used + max(map(len, column)) > LINE:
            blocks.append([first])
        blocks[-1].append(column)
    return blocks
