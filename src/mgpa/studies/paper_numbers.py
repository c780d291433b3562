"""What studies found, read from their folders, and what the paper prints of the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import StudyError
from .config import load_study, presets
from .paper_layout import TASKS, PaperTable, Value


@dataclass(frozen=True)
class Found:
    """A number, and its interval where there is one."""

    value: float
    low: float | None = None
    high: float | None = None


class Runs:
    """What studies found, and what the paper prints of the same.

    Parameters
    ----------
    results : sequence of dict
        The contents of ``results.json`` files, of different studies.
    """

    def __init__(self, results: Sequence[Mapping[str, Any]]) -> None:
        self.results = {str(found["study"]): found for found in results}
        if len(self.results) < len(results):
            raise StudyError("Two folders hold the same study; name one of them.")
        self._ours = {
            (study, row["task"], row["method"], row["against"], row["metric"]): Found(
                row["value"], row["low"], row["high"]
            )
            for study, found in self.results.items()
            for row in (*found["estimates"], *found["contrasts"])
        }
        self._paper: dict[tuple[str, ...], Found] = {}
        for name in presets():
            study = load_study(name)
            for method, values in study.paper.items():
                for key, value in values.items():
                    self._paper[name, *_task_and_metric(key), method, ""] = Found(value)
            for plan in study.contrasts:
                for key, ends in plan.paper.items():
                    self._paper[name, *_task_and_metric(key), plan.a, plan.b] = Found(*ends)

    @classmethod
    def read(cls, folders: Iterable[Path]) -> Runs:
        """Return what studies wrote into their folders."""
        results = []
        for folder in folders:
            path = Path(folder) / "results.json"
            if not path.is_file():
                raise StudyError(f"{folder} has no results.json; `mgpa study run` writes one.")
            results.append(json.loads(path.read_text("utf-8")))
        return cls(results)

    def ours(self, value: Value) -> Found | None:
        """Return what a study found; None if it was not run, or left that out."""
        return self._ours.get((value.study, value.task, value.method, value.against, value.metric))

    def paper(self, value: Value) -> Found | None:
        """Return what the paper prints; None where it prints nothing."""
        return self._paper.get((value.study, value.task, value.metric, value.method, value.against))

    def notes(self, table: PaperTable) -> list[str]:
        """Return what has to be said with the numbers of a table."""
        values = [cell for line in table.lines for cell in line.cells if isinstance(cell, Value)]
        said = []
        for name in sorted(table.studies):
            found = self.results.get(name)
            if found is None:
                said.append(f"{name} was not run.")
                continue
            if found["simulated"]:
                said.append(f"{name}: our recordings are simulated; patterns compare, numbers do not.")
            shown = {
                method for value in values if value.study == name for method in (value.method, value.against)
            }
            said += [
                f"{name}: {method} is left out, {why}."
                for method, why in found["omitted"].items()
                if method.split(": ")[-1] in shown
            ]
        return said


def _task_and_metric(key: str) -> tuple[str, str]:
    task, _, metric = key.partition(" ")
    return (task, metric) if task in TASKS else ("", key)
