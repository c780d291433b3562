"""Pairing of events with the same name in a session, and comparison of the clocks of the devices."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PairingError
from ..tables.columns import Columns
from .device_epochs import some
from .pairing import PairingReport, Timing, timing_test

# Maximum difference between the start times of recordings of one session.
ONE_SESSION = timedelta(hours=12)
#: Rows of a session by event and device; a session is a participant and all other names before the event.
Events = dict[Any, dict[str, int]]


def pair_sessions(
    columns: Columns, dates: NDArray[Any], devices: tuple[str, ...], by: tuple[str, ...], at_once: bool
) -> tuple[NDArray[Any], PairingReport, list[str]]:
    """Return the id of every row, a report for each session, and sessions without comparable clocks.

    A row has an empty id if no other device has its event.
    """
    pair_id = np.full(len(columns["source"]), "", dtype=object)
    report, untimed = PairingReport({}, {}, {}, {}, kept=True), []
    for name, events in _by_session(columns, by).items():
        pairs = {event: list(views.values()) for event, views in events.items() if len(views) > 1}
        for event, rows in pairs.items():
            _require_one_label(columns["label"][rows], f"{name}: event {event!r}")
            pair_id[rows] = f"{name}/{event}"
        report.events[name], report.pairs[name] = len(events), len(pairs)
        report.dropped[name] = [
            f"{by[-1]} {event}: no epoch on {', '.join(device for device in devices if device not in views)}"
            for event, views in events.items()
            if len(views) < len(devices)
        ]
        report.timing[name] = {}
        if at_once:
            report.timing[name], unknown = _compare_clocks(name, events, columns["onset"], dates, devices)
            untimed += unknown
    if not any(report.pairs.values()):
        described = "; ".join(
            f"{device} has {name} {some(set(columns[name][columns['source'] == device]))}"
            for device in devices
            for name in ("participant", by[-1])
        )
        raise PairingError(
            f"No event was recorded on two devices: {described}. Set participant= and pair_by=; "
            "mgpa.eeg.match_events numbers events by their times."
        )
    return pair_id.astype(str), report, untimed


def _by_session(columns: Columns, by: tuple[str, ...]) -> dict[str, Events]:
    """Return the rows of every session; raise if a device has an event twice."""
    sessions: dict[str, Events] = {}
    keys = zip(*(columns[name].tolist() for name in ("participant", *by, "source")), strict=True)
    for row, (*session, event, device) in enumerate(keys):
        name = "/".join(map(str, session))
        views = sessions.setdefault(name, {}).setdefault(event, {})
        if views.setdefault(device, row) != row:
            raise PairingError(
                f"{name}: {by[-1]} {event!r} occurs twice on {device}. If numbers "
                f"restart, also name the column in which they restart: pair_by=('session', {by[-1]!r})."
            )
    return sessions


def _require_one_label(labels: NDArray[Any], event: str) -> None:
    if len(different := set(labels.tolist())) > 1:
        raise PairingError(
            f"{event} is {some(different)}, depending on the device; is it the "
            "same event? mgpa.eeg.match_events pairs markers by time; label= names the "
            "task's column, and labels_from= the recording with the right labels."
        )


def _compare_clocks(
    name: str, events: Events, onset: NDArray[Any], dates: NDArray[Any], devices: tuple[str, ...]
) -> tuple[dict[str, Timing], list[str]]:
    """Return comparisons of every device's clock with the first, and impossible comparisons."""
    timing, unknown = {}, []
    present = set[str]().union(*events.values())
    first = devices[0]
    for device in devices[1:] if len(present) > 1 else ():
        if device not in present:
            continue
        what = f"{device} against {first}"
        both = [(views[first], views[device]) for views in events.values() if {first, device} <= views.keys()]
        rows = np.array(both, dtype=int).reshape(-1, 2)
        _require_one_day(dates[rows], f"{name}: {what}")
        if len(both) < 3 or not np.isfinite(onset[rows]).all():
            unknown.append(f"{what}, {name}")
            continue
        timing[what] = test = timing_test(onset[rows[:, 0]], onset[rows[:, 1]])
        if test.failures:
            raise PairingError(
                f"{name}: {what}: the onsets fail the timing test: {'; '.join(test.failures)}. Equal "
                "names are different events, or a clock jumped. Pair markers by time "
                "(mgpa.eeg.match_events), number them in a metadata column and pass it as pair_by=. "
                "After a clock jump, number the stretches too: pair_by=('stretch', 'event')."
            )
    return timing, unknown


def _require_one_day(dates: NDArray[Any], what: str) -> None:
    """Raise if paired epochs, (pairs, 2), come from recordings that were made on different days."""
    for first, second in dates:
        if first is not None and second is not None and abs(first - second) > ONE_SESSION:
            raise PairingError(
                f"{what}: recorded on {second:%Y-%m-%d} and on {first:%Y-%m-%d}, so these are not the same "
                "events. If a date is wrong, remove it: epochs.info.set_meas_date(None). For devices "
                "that did not record at once pass at_once=False."
            )
