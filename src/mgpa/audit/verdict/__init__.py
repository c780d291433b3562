"""Report an audit in words: headline, effect of each method, certainty, next steps.

:mod:`~mgpa.audit.verdict.decisions` uses intervals to decide which methods lead. Findings are data
(:class:`Finding`); each kind of finding has one sentence template for all outputs.
"""

from __future__ import annotations

from itertools import dropwhile
from textwrap import wrap
from typing import TYPE_CHECKING

from ..._common.markup import text_table
from ...errors import printable
from ..estimates import number
from ..metrics import METRICS
from ..words import label
from .cards import OUTCOMES, card
from .caveats import (
    caveats,
    certainty,
    class_chance,
    confounding,
    decoder_note,
    missing_networks,
    readers_note,
    shortcut_note,
    warnings,
)
from .conclusions import conclude, repeated, units
from .decisions import ranking, smallest_cell, task_metric, too_few
from .finding import TEMPLATES, Change, Finding
from .requirements import participants_needed, read_requirement, unmet

if TYPE_CHECKING:
    from ..result import Audit

# Width of a printed table in characters, and its first columns.
LINE = 110
FIRST = ("S", "home", "away", "RMSEP_home", "RMSEP_away", "T_f", "M")

Column = tuple[str, ...]

__all__ = [
    "OUTCOMES", "TEMPLATES", "Change", "Finding", "card", "caveats", "certainty", "class_chance",
    "conclusions", "confounding", "decoder_note", "findings", "headline", "missing_networks",
    "participants_needed", "ranking", "read_requirement", "readers_note", "shortcut_note", "smallest_cell",
    "task_metric", "text", "too_few", "units", "unmet", "verdict", "warnings",
]  # fmt: skip


def verdict(audit: Audit) -> list[str]:
    """Return three lines: source information in the embeddings, effects of the best methods, certainty.

    If the pairs are doubtful, this is stated first.
    """
    before, main, rest = conclude(audit)
    return [*map(str, before), sentences([*main, *rest]), certainty(audit)]


def headline(audit: Audit) -> str:
    """Return the first sentences: source information in the embeddings, effects of the leading methods."""
    before, main, _ = conclude(audit)
    return sentences([*before, *main])


def below_headline(audit: Audit) -> str:
    """Return the other sentences of the verdict; warnings are omitted, as reports show them as badges."""
    return " ".join(filter(None, [sentences(conclude(audit).rest), certainty(audit, warn=False)]))


def sentences(found: list[Finding]) -> str:
    """Return findings as running text."""
    return " ".join(map(str, found))


def conclusions(audit: Audit) -> list[Finding]:
    """Return the findings behind the verdict, one for each sentence."""
    before, main, rest = conclude(audit)
    return [*before, *main, *rest, *repeated(audit)]


def findings(audit: Audit, method: str) -> list[str]:
    """Return sentences on a method: its effects on heads, source and rows, and the next step."""
    return [str(finding) for finding in card(audit, method)]


def text(audit: Audit, *, verbose: bool = False) -> str:
    """Return the verdict (three lines) and one table; with ``verbose``, all columns and sentences."""
    lines = [*verdict(audit), "", *table_lines(audit, everything=verbose)]
    lines += in_detail(audit) if verbose else decoder_lines(audit)
    return printable("\n".join(lines), lines=True)


def in_detail(audit: Audit) -> list[str]:
    """Return all sentences about all methods, the best first, then all caveats and notes."""
    lines: list[str] = []
    for name in ranking(audit)[0]:
        lines += ["", label(name), *(f"  {finding}" for finding in card(audit, name))]
    notes = (*caveats(audit), readers_note(audit), shortcut_note(audit))
    return [*lines, "", "How sure is this?", *(f"  {note}" for note in notes if note)]


def decoder_lines(audit: Audit) -> list[str]:
    """Return one line per end-to-end comparator with its scores and those of heads on uncorrected rows."""
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
    """Return the lines of the table of estimates; without ``everything``, only columns that fit a line."""
    names = [*audit.tabled] if everything else [*audit.methods]
    blocks = _blocks(_columns(audit, names), ("", "", "method", *map(printable, names)))
    lines: list[str] = []
    for block in blocks if everything else blocks[:1]:
        lines += ["", *dropwhile(lambda line: not line, text_table(zip(*block, strict=True)))]
    return lines[1:] + ([note] if (note := decoder_note(audit)) else [])


def _columns(audit: Audit, names: list[str]) -> list[Column]:
    """Return the columns of numbers: metric name, desired direction, then one line per method."""
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
    """Return the columns in blocks that fit a line; each block begins with the column of names."""
    blocks: list[list[Column]] = [[first]]
    for column in columns:
        used = sum(2 + max(map(len, c)) for c in blocks[-1])
        if len(blocks[-1]) > 1 and used + max(map(len, column)) > LINE:
            blocks.append([first])
        blocks[-1].append(column)
    return blocks
