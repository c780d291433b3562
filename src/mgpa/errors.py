"""Everything this package raises on purpose; each is an ordinary ValueError, OSError or RuntimeError, too."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any


def printable(text: str, *, lines: bool = False) -> str:
    """Return a text with control and invisible characters escaped; with ``lines``, line ends are kept.

    A terminal obeys some of these: they clear it, rename its window, or turn the reading direction around.
    """
    if text.isprintable():
        return text
    return "".join(
        c
        if c.isprintable() or unicodedata.category(c) == "Zs" or (lines and c == "\n")
        else c.encode("unicode_escape").decode()
        for c in text
    )


def first_few(names: Sequence[str], most: int = 8) -> str:
    """Return some names for a sentence: the first, and how many more there are."""
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class Printable(Exception):
    """A message with nothing in it that a terminal obeys."""

    def __str__(self) -> str:
        return printable("".join(map(str, self.args)), lines=True)


class UsageError(Printable, ValueError):
    """Arguments that do not go together, or are not enough; the message says which would be."""


class ParameterError(Printable, ValueError):
    """A parameter that has another value than ``expected``, in words: "a number, 0 or more"."""

    def __init__(self, parameter: str, value: Any, expected: str) -> None:
        super().__init__(parameter, value, expected)
        self.parameter, self.value, self.expected = parameter, value, expected

    def __str__(self) -> str:
        got = " ".join(repr(self.value).split())  # an array's takes several lines
        got = got if len(got) <= 100 else f"{got[:97]}..."
        return printable(f"{self.parameter} must be {self.expected}; got {got}.")


class OutputExists(Printable, FileExistsError):
    """Something is at ``path``, where the output should go, and may not be replaced."""

    def __init__(self, path: Any) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return printable(f"{self.path} exists; pass overwrite to replace it.")


class MissingEvidence(Printable, ValueError):
    """Nothing to fit from: no source labels, no pairs, or pairs whose views are identical."""


class MissingEvidenceWarning(Printable, UserWarning):
    """Missing evidence, where a map that moves nothing was asked for."""


class MapError(Printable, ValueError):
    """A stored correction that is damaged, inconsistent or too new."""


class TableError(Printable, ValueError):
    """A table, or a file with one, that is incomplete, damaged or not what was asked for."""


class BudgetNotAttained(Printable, RuntimeError):
    """The map never moves the validation rows that far."""


class PairingError(Printable, ValueError):
    """Events of two devices that cannot be matched with certainty."""


class RecordingError(Printable, ValueError):
    """A recording that is incomplete, damaged or not what its name says."""


class CheckpointError(Printable, ValueError):
    """Weights that do not fit the encoder they are meant for, or are not the ones expected."""


class DownloadError(Printable, OSError):
    """A download that failed, or brought something else than promised."""


class StoreError(Printable, RuntimeError):
    """A store of objects or a web server that did not do what it was asked, or cannot."""


class ClusterError(Printable, RuntimeError):
    """A cluster that lost its scheduler, or one worker after another, in the middle of the work."""


class NotEnoughMemory(Printable, RuntimeError):
    """More memory would be needed than there is; said before any of it is taken."""


class StudyError(Printable, ValueError):
    """A study that cannot be run as it is written."""
