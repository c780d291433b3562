"""The audit in words: headline, effect of each method, certainty, next steps.

What leads and why is decided in :mod:`~mgpa.audit.verdict.decisions`, from intervals. What was found is data
(:class:`Finding`); every kind of finding has one template, and every output takes its sentences from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import printable
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
from .printed import decoder_lines, in_detail, table_lines
from .requirements import participants_needed, read_requirement, unmet

if TYPE_CHECKING:
    from ..result import Audit

__all__ = [
    "OUTCOMES", "TEMPLATES", "Change", "Finding", "card", "caveats", "certainty", "class_chance",
    "conclusions", "confounding", "decoder_note", "findings", "headline", "missing_networks",
    "participants_needed", "ranking", "read_requirement", "readers_note", "shortcut_note", "smallest_cell",
    "task_metric", "text", "too_few", "units", "unmet", "verdict", "warnings",
]  # fmt: skip


def verdict(audit: Audit) -> list[str]:
    """Return three lines: what the embeddings reveal, what the best methods did, how sure that is.

    What is doubtful about the pairs comes before them.
    """
    before, main, rest = conclude(audit)
    return [*map(str, before), sentences([*main, *rest]), certainty(audit)]


def headline(audit: Audit) -> str:
    """Return what the embeddings reveal, and what the leading methods did."""
    before, main, _ = conclude(audit)
    return sentences([*before, *main])


def below_headline(audit: Audit) -> str:
    """Return the rest of the verdict, without the warnings, which reports show as badges."""
    return " ".join(filter(None, [sentences(conclude(audit).rest), certainty(audit, warn=False)]))


def sentences(found: list[Finding]) -> str:
    """Return findings as running text."""
    return " ".join(map(str, found))


def conclusions(audit: Audit) -> list[Finding]:
    """Return what the verdict rests on, as data: one finding for every sentence."""
    before, main, rest = conclude(audit)
    return [*before, *main, *rest, *repeated(audit)]


def findings(audit: Audit, method: str) -> list[str]:
    """Return what a method did: to heads, to the source, to the rows; and what to try next."""
    return [str(finding) for finding in card(audit, method)]


def text(audit: Audit, *, verbose: bool = False) -> str:
    """Return three lines of verdict and one table; with ``verbose``, every column and every sentence."""
    lines = [*verdict(audit), "", *table_lines(audit, everything=verbose)]
    lines += in_detail(audit) if verbose else decoder_lines(audit)
    return printable("\n".join(lines), lines=True)
