"""What a data set's folder should hold, and what it does hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import first_few, printable


class Check(NamedTuple):
    """Something that was published about a data set, and what these files give.

    Examples
    --------
    >>> print(Check("men", 64, 64), Check("women", 38, 37), sep="\\n")
    men: 64, as published
    women: 37, not 38 as published
    """

    what: str
    published: Any
    computed: Any

    @property
    def passed(self) -> bool:
        """Whether both agree."""
        return bool(self.published == self.computed)

    def __str__(self) -> str:
        beside = "as published" if self.passed else f"not {self.published} as published"
        return f"{self.what}: {self.computed}, {beside}"


@dataclass(frozen=True)
class Inventory:
    """The files of a data set, present and missing.

    Parameters
    ----------
    dataset : str
        Its name.
    folder : Path
        Where it was looked for.
    present, missing : tuple of str
        Expected names, in the order in which they are expected.
    unexpected : tuple of str
        Names of files that do not belong there.
    problems : tuple of str
        A sentence each about files that are there and cannot be used.
    checks : tuple of Check
        How what they hold compares with what was published. Simulated files fail these, and are complete.

    Examples
    --------
    >>> print(Inventory("Wearable SSVEP", Path("data"), ("S001.mat",), ("S002.mat",)))
    Wearable SSVEP in data: 1 of 2 files.
    Missing (1): S002.mat
    """

    dataset: str
    folder: Path
    present: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether everything expected is there and can be used."""
        return not self.missing and not self.problems

    def __str__(self) -> str:
        n = len(self.present) + len(self.missing)
        lines = [f"{self.dataset} in {self.folder}: {len(self.present)} of {n} files."]
        for word, names in (("Missing", self.missing), ("Unexpected", self.unexpected)):
            if names:
                lines.append(f"{word} ({len(names)}): {first_few(names)}")
        return "\n".join(map(printable, [*lines, *self.problems, *map(str, self.checks)]))
