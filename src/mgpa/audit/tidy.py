"""Export the numbers of an audit: a tidy data frame, a data frame of participants, and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np

from .._common.extras import missing
from .._common.files import csv_lines
from . import verdict as words
from .estimates import Estimate
from .metrics import SERVED

if TYPE_CHECKING:
    from .result import Audit

Row = tuple[Any, ...]
#: The columns of both frames.
TIDY = ("method", "against", "metric", "participant", "repeat", "value", "low", "high")
BY_PARTICIPANT = ("method", "participant", "metric", "value")


def csv_table(audit: Audit) -> str:
    """Return one line for every method and metric: value, interval, and difference from the identity.

    Metrics of single directions of transfer, and of single sources, come last.
    """
    parts = ("value", "low", "high")
    rows: list[list[Any]] = [
        ["method", "source_blind", "metric", *parts, *(f"difference_{p}" for p in parts),
         "simultaneous_low", "simultaneous_high", "refitted_low", "refitted_high", "note"]
    ]  # fmt: skip
    warned = list(words.warnings(audit).values())
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
            note = " ".join([*warned, notes.get(metric, "")]).strip()
            others: list[Any] = []
            for intervals in (audit.simultaneous, audit.refitted):
                change = intervals.get(name, {}).get(metric)
                others += ["", ""] if change is None else [change.low, change.high]
            rows.append([name, audit[name].source_blind, metric, *astuple(e)[:3], *difference, *others, note])
    return csv_lines(rows)


def tidy_rows(audit: Audit) -> Iterator[Row]:
    """Yield every number of an audit, in the columns ``TIDY``."""

    def whole(name: str, metric: str, e: Estimate, against: str = "") -> Row:
        return name, against, metric, "", "", e.value, e.low, e.high

    differences = {
        "identity": audit.changes,
        "identity, all methods at once": audit.simultaneous,
        "identity, refitted": audit.refitted,
    }
    for name, result in audit.results.items():
        for metric, e in audit.tabled[name].items():
            yield whole(name, metric, e)
            for against, changes in differences.items():
                if metric in changes.get(name, {}):
                    yield whole(name, metric, changes[name][metric], against)
            for r, value in enumerate(result.of_each_repeat(metric) if result.repeats > 1 else (), start=1):
                yield name, "", metric, "", r, value, None, None
        for metric in audit.details:
            yield whole(name, metric, result.estimate(metric))
    for name in audit.decoders:
        for metric, e in audit.estimates[name].items():
            yield whole(name, metric, e)
    for name, participant, metric, value in participant_rows(audit):
        yield name, "", metric, participant, "", value, None, None


def participant_rows(audit: Audit) -> Iterator[tuple[str, str, str, float]]:
    """Yield every metric of every participant, averaged over fits, in the columns ``BY_PARTICIPANT``."""
    for name, result in audit.results.items():
        for metric in audit.estimates[name]:
            values = result.by_participant(metric)
            between = result.compares_units(metric, np.isfinite(values))
            what = f"{metric} contribution" if between else metric
            for participant, value in zip(result.participants, values, strict=True):
                yield name, participant, what, value


def frame(rows: Iterator[Row], columns: Sequence[str]) -> Any:
    """Return rows as a pandas frame."""
    try:
        import pandas
    except ImportError:
        raise missing("A table of results", "pandas") from None
    return pandas.DataFrame(list(rows), columns=list(columns))
