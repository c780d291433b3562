"""Which numbers and words stand where in the paper's tables; the data are in ``paper.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

CONTROLLED, REUSE = "controlled-ssvep", "p300-reuse"
TASKS = ("P300", "N170", "MMN")
_DATA = tomllib.loads(files(__package__).joinpath("paper.toml").read_text("utf-8"))
#: Facts that a reproduction has exactly, by study and key of ``results.json``'s protocol: value and source.
FACTS = {(study, fact): (value, source) for study, fact, value, source in _DATA["facts"]["rows"]}


@dataclass(frozen=True)
class Table:
    """A table of the paper; one in two parts is called "8A" and "8B".

    Attributes
    ----------
    columns : list of (head, study, task, metric, digits)
        Of words, the head alone.
    over : list of str
        A heading above each column; equal neighbours share it.
    rows : list of (labels, (method, against, task) or words)
    """

    name: str
    title: str
    labels: list[str]
    columns: list[Any]
    rows: list[tuple[list[str], Any]]
    over: list[str] | None = None
    percent: bool = False
    interval: bool = False

    @property
    def studies(self) -> set[str]:
        """The studies that its numbers come from; none, if it is one of words."""
        return {column[1] for column in self.columns if len(column) > 1}


TABLES = tuple(
    Table(**table | {"rows": [(row[:-1], tuple(row[-1])) for row in table["rows"]]})
    for table in _DATA["table"]
)


def word_tables(results: Mapping[str, Mapping[str, Any]]) -> list[Table]:
    """Return tables 4 to 6: the paper's words, and the settings that the runs stored."""
    heads = [("Paper",), ("What ran",)]
    protocol = [
        ([title], (paper, results[study]["facts"]["protocol"] if study in results else "not run"))
        for study, title, paper in _DATA["protocol"]["rows"]
    ]
    tables = [Table("4", "Protocol map", ["Study"], heads, protocol)]
    for name, title, label, key in (
        ("5", "Shared MGPA settings", "Component", "settings"),
        ("6", "Independent source-reader bank", "Input", "readers"),
    ):
        rows = []
        for component, paper, settings in _DATA[key]["rows"]:
            ran: dict[str, list[str]] = {}
            for study, run in results.items():
                if settings[0] in run["facts"]:
                    ran.setdefault(_told(run["facts"], settings), []).append(study)
            words_ran = "; ".join(
                words if len(ran) == 1 else f"{', '.join(names)}: {words}" for words, names in ran.items()
            )
            rows.append(([component], (paper, words_ran or "not run")))
        tables.append(Table(name, title, [label], heads, rows))
    return tables


def _told(facts: Mapping[str, Any], settings: list[str]) -> str:
    values = {key.rpartition(".")[2].replace("_", " "): facts[key] for key in settings if key in facts}
    return ", ".join(f"{name} {value}" for name, value in values.items())
