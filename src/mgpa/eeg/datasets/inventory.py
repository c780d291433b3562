"""What a data set's folder should hold, and what it does hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import first_few, printable


class Check(NamedTuple):
    """Something that was published about a data set, and what these files give."""

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
    """The files of a data set, present and missing, by the names in the order in which they are expected.

    ``problems`` has a sentence each about files that are there and cannot be used; ``checks`` compare what
    they hold with what was published. Simulated files fail these, and are complete.
    """

    dataset: str
    folder: Path
    present: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether everything expected is there and can be used."""
        return not self.missing and not self.problems

    def __str__(self) -> str:
        n = len(self.present) + len(self.missing)
        lines = [f"{self.dataset} in {self.folder}: {len(self.present)} of {n} files."]
        if self.missing:
            lines.append(f"Missing ({len(self.missing)}): {first_few(self.missing)}")
        return "\n".join(map(printable, [*lines, *self.problems, *map(str, self.checks)]))
