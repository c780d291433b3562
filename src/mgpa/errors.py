"""The exceptions of this package; each is also a ValueError, OSError or RuntimeError."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

#: How to pass pairs to a function; the command line has options instead.
PASS_PAIRS = (
    "pass pairs=(A, B), two aligned views of the same events, or pair_id=, one id per row, shared by the "
    "rows of one event in different sources."
)


def printable(text: str, *, lines: bool = False) -> str:
    """Return a text with control and invisible characters escaped; ``lines`` keeps line ends.

    Such characters can clear a terminal, rename its window, or reverse the reading direction.
    """
    if text.isprintable():
        return text
    line_end = "\n" if lines else ""
    return "".join(
        [
            c
            if c.isprintable() or c in line_end or unicodedata.category(c) == "Zs"
            else c.encode("unicode_escape").decode()
            for c in text
        ]
    )


def first_few(names: Sequence[str], most: int = 8) -> str:
    """Return the first few names in words, with the number of further names."""
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class Printable(Exception):
    """Base class of exceptions with messages free of control characters."""

    def __str__(self) -> str:
        return printable("".join(map(str, self.args)), lines=True)


class UsageError(Printable, ValueError):
    """Arguments that conflict or are incomplete; the message says what to pass."""


class ParameterError(Printable, ValueError):
    """A parameter with an invalid value; ``expected`` says what is valid, such as "a number, 0 or more"."""

    def __init__(self, parameter: str, value: Any, expected: str) -> None:
        super().__init__(parameter, value, expected)
        self.parameter, self.value, self.expected = parameter, value, expected

    def __str__(self) -> str:
        got = " ".join(repr(self.value).split())  # an array's takes several lines
        got = got if len(got) <= 100 else f"{got[:97]}..."
        return printable(f"{self.parameter} must be {self.expected}; got {got}.")


class OutputExists(Printable, FileExistsError):
    """The output ``path`` exists, and overwriting was not allowed."""

    def __init__(self, path: Any) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return printable(f"{self.path} exists; pass overwrite=True to replace it.")


class MissingEvidence(Printable, ValueError):
    """Missing evidence for a fit: no source labels, no pairs, or pairs with identical views."""


class MissingEvidenceWarning(Printable, UserWarning):
    """Warning that evidence is missing and that the map is the identity."""


class MapError(Printable, ValueError):
    """A stored correction that is damaged, inconsistent or too new."""


class TableError(Printable, ValueError):
    """A table or table file that is incomplete, damaged or of the wrong kind."""


class BudgetNotAttained(Printable, RuntimeError):
    """The map cannot move the validation rows as far as the budget."""


class PairingError(Printable, ValueError):
    """Events of two devices that cannot be matched with certainty."""


class WrongPairs(PairingError):
    """Pairs that join views of different events; ``pairs`` has ids or positions of the clearest ones."""

    def __init__(self, message: str, pairs: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.pairs = tuple(pairs)


class RecordingError(Printable, ValueError):
    """A recording that is incomplete, damaged or of another kind than its name suggests."""


class CheckpointError(Printable, ValueError):
    """Weights that do not fit their encoder or differ from the expected weights."""


class DownloadError(Printable, OSError):
    """A download that failed, or a file with the wrong checksum."""


class StoreError(Printable, RuntimeError):
    """A remote store or web server that failed or does not support the operation."""


class ClusterError(Printable, RuntimeError):
    """A cluster that lost its scheduler or too many workers."""


class WorkerError(Printable, RuntimeError):
    """A worker process was killed, usually because of too little memory."""


class NotEnoughMemory(Printable, RuntimeError):
    """The computation needs more memory than the machine has; raised before it starts."""


class StudyError(Printable, ValueError):
    """A study file with settings that cannot be run."""


def identical_views(n_pairs: int) -> MissingEvidence:
    """Return the error for pairs of identical views."""
    return MissingEvidence(
        f"All {n_pairs} contrasts are zero: the paired views are identical, so they show no measurement "
        "effect. Check that the second view is from the other condition."
    )
