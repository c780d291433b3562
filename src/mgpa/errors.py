"""Everything this package raises on purpose; each is an ordinary ValueError, OSError or RuntimeError, too."""

from __future__ import annotations

from typing import Any


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
        self.parameter, self.value, self.expected = parameter, value, expected
        got = " ".join(repr(value).split())  # an array's takes several lines
        got = got if len(got) <= 100 else f"{got[:97]}..."
        super().__init__(f"{parameter} must be {expected}; got {got}.")

    def __reduce__(self) -> Any:
        return type(self), (self.parameter, self.value, self.expected), vars(self)  # with any notes


class MissingEvidence(ValueError):
    """Nothing to fit from: no source labels, no pairs, or pairs whose views are identical."""


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


class StudyError(ValueError):
    """A study that cannot be run as it is written."""
