"""What a data set's folder should hold, and what it does hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SHOWN = 8


@dataclass(frozen=True)
class Inventory:
    """The files of a data set, found and not found.

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

    @property
    def expected(self) -> tuple[str, ...]:
        """Every name that should be there."""
        return self.present + self.missing

    @property
    def complete(self) -> bool:
        """Whether everything expected is there and can be used."""
        return not self.missing and not self.problems

    def require(self) -> Inventory:
        """Raise unless the data set is complete; return the inventory itself."""
        if not self.complete:
            raise FileNotFoundError(str(self))
        return self

    def __str__(self) -> str:
        lines = [f"{self.dataset} in {self.folder}: {len(self.present)} of {len(self.expected)} files."]
        if self.missing:
            lines.append(f"Missing ({len(self.missing)}): {_names(self.missing)}")
        if self.unexpected:
            lines.append(f"Unexpected ({len(self.unexpected)}): {_names(self.unexpected)}")
        return "\n".join([*lines, *self.problems])


def _names(names: tuple[str, ...]) -> str:
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
