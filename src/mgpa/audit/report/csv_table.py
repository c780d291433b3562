"""An audit as CSV."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from ..._common.files import csv_lines
from .. import verdict as words
from ..metrics import SERVED

if TYPE_CHECKING:
    from ..result import Audit


def csv_table(audit: Audit) -> str:
    """Return one line for every method and metric: value, interval, and difference from the identity.

    Metrics of single directions of transfer, and of single sources, come last.
    """
    parts = ("value", "low", "high")
    rows: list[list[Any]] = [
        [
            "method",
            "source_blind",
            "metric",
            *parts,
            *(f"difference_{p}" for p in parts),
            "simultaneous_low",
            "simultaneous_high",
            "refitted_low",
            "refitted_high",
            "note",
        ]
    ]
    notes = dict.fromkeys(SERVED, words.decoder_note(audit)) | {
        "S": words.readers_note(audit),
        "worst": words.shortcut_note(audit),
    }
    for name, estimates in audit.tabled.items():
        of_method = audit.details if name in audit.results else ()
        single = {metric: audit[name].estimate(metric) for metric in of_method}
        for metric, e in (estimates | single).items():
            compared = name in audit.changes and (metric in audit.details or metric in audit.changes[name])
            difference = astuple(audit.contrast(name, metric=metric))[:3] if compared else ("", "", "")
            note = " ".join([*words.warnings(audit).values(), notes.get(metric, "")]).strip()
            others: list[Any] = []
            for intervals in (audit.simultaneous, audit.refitted):
                change = intervals.get(name, {}).get(metric)
                others += ["", ""] if change is None else [change.low, change.high]
            rows.append([name, audit[name].source_blind, metric, *astuple(e)[:3], *difference, *others, note])
    return csv_lines(rows)
