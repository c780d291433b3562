"""Everything this package raises on purpose; each is an ordinary ValueError, OSError or RuntimeError, too.

Messages name parameters as Python does; options of the command line are called like them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._common.remote import Place


def printable(text: str, *, lines: bool = False) -> str:
    """Return a text with control and invisible characters as Python writes them.

    A terminal obeys some of these: they clear it, rename its window, or turn the reading direction around.

    Parameters
    ----------
    text : str
        From a file, or with something from a file in it.
    lines : bool
        It has several lines, and line ends are kept.

    Examples
    --------
    >>> print(printable("a\\x1b[2Jb"), printable("für alle"))
    a\\x1b[2Jb für alle
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
    """Return some names for a sentence: the first, and how many more there are.

    Examples
    --------
    >>> first_few(["a", "b", "c"], 2), first_few(["a", "b"], 2)
    ('a, b, and 1 more', 'a, b')
    """
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class UsageError(ValueError):
    """Arguments that do not go together, or are not enough; the message says which would be."""


class ParameterError(ValueError):
    """A parameter whose value will not do.

    Parameters
    ----------
    parameter : str
        Its name.
    value : object
        What it was.
    expected : str
        What it may be, in words: "a number, 0 or more".
    """

    def __init__(self, parameter: str, value: Any, expected: str) -> None:
        super().__init__(parameter, value, expected)
        self.parameter, self.value, self.expected = parameter, value, expected

    def __str__(self) -> str:
        got = " ".join(repr(self.value).split())  # an array's takes several lines
        got = got if len(got) <= 100 else f"{got[:97]}..."
        return f"{self.parameter} must be {self.expected}; got {got}."


class OutputExists(FileExistsError):
    """Something is where the output should go, and nobody said that it may be replaced.

    Parameters
    ----------
    path : Path or RemotePath
        Where.
    """

    def __init__(self, path: Place) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path} exists; pass overwrite=True (--overwrite) to replace it."


class MissingEvidence(ValueError):
    """Nothing to fit from: no source labels, no pairs, or pairs whose views are identical."""


class MissingEvidenceWarning(UserWarning):
    """The same, where it was asked for a correction that then moves nothing."""


class MapError(ValueError):
    """A stored correction that is damaged, inconsistent, too new or something else entirely."""


class TableError(ValueError):
    """A table, or a file with one, that is incomplete, damaged or not what was asked for."""


class BudgetNotAttained(RuntimeError):
    """The map never moves the validation rows that far; there is no map at this budget."""


class PairingError(ValueError):
    """Events of two devices that cannot be matched with certainty."""


class RecordingError(ValueError):
    """A recording that is incomplete, damaged or not what its name says."""


class CheckpointError(ValueError):
    """Weights that do not fit the encoder they are meant for, or are not the ones expected."""


class DownloadError(OSError):
    """A download that failed, or brought something else than promised."""


class StoreError(RuntimeError):
    """A store of objects or a web server that did not do what it was asked, or cannot."""


class ClusterError(RuntimeError):
    """A cluster that lost its scheduler, or one worker after another, in the middle of the work."""


class NotEnoughMemory(RuntimeError):
    """More memory would be needed than there is; said before any of it is taken."""


class StudyError(ValueError):
    """A study that cannot be run as it is written."""
