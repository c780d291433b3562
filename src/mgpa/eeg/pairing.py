"""Matching markers of simultaneous devices to events by their order, with a test of their times.

Each recording of a session has its own clock and markers, and the experiment has a list of events. The k-th
marker of a device is the k-th event. The fit of a straight line to the times tests this, but does not change
the times. If the clock of a device was interrupted, for example by an impedance check, each side of the break
has a separate line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PairingError

Floats = NDArray[np.float64]

#: Minimum number of events on one side of a break for the timing test.
MIN_SIDE = 10
#: Advice if times do not determine which events belong together.
WAY_OUT = (
    "Check that markers and events are of one session, or number the events in a metadata column and "
    "pass it as pair_by=."
)
#: Limits for two clocks: deviation from the straight line in seconds for each event and for 95 % of events,
#: and deviation of the slope from one.
LIMITS = (0.1, 0.04, 0.002)


@dataclass(frozen=True)
class Timing:
    """The linear relation of event times on two clocks: b ≈ slope · a + offset.

    The line is fitted by least squares; residuals are absolute distances from it, in seconds. ``failures``
    describes exceeded limits.
    """

    slope: float
    offset: float
    max_residual: float
    p95_residual: float
    failures: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"slope {self.slope:.6f}, offset {self.offset:+.3f} s, residuals at most "
            f"{1000 * self.max_residual:.1f} ms, 95 % within {1000 * self.p95_residual:.1f} ms"
        )


@dataclass(frozen=True)
class PairingReport:
    """How the events of each session were paired, with notes.

    ``events`` and ``pairs`` are counts. ``dropped`` lists unpaired events and markers without event.
    ``timing`` has one entry per comparison of two clocks. With ``kept``, unpaired events keep their rows.
    """

    events: dict[str, int]
    pairs: dict[str, int]
    dropped: dict[str, list[str]]
    timing: dict[str, dict[str, Timing]]
    notes: tuple[str, ...] = ()
    kept: bool = False

    def __str__(self) -> str:
        pairs, events, dropped = sum(self.pairs.values()), sum(self.events.values()), self.dropped.values()
        sessions = f"{len(self.events)} session{'s' if len(self.events) > 1 else ''}"
        fate = "without a partner (their rows are kept)" if self.kept else "dropped"
        first = f"{pairs} pairs of {events} events in {sessions}; {sum(map(len, dropped))} {fate}"
        lines = [first, *self.notes]
        for name in self.events:
            lines.append(f"{name}: {self.events[name]} events, {self.pairs[name]} pairs")
            lines += [f"  {what}: {timing}" for what, timing in self.timing[name].items()]
            lines += [f"  {'unpaired' if self.kept else 'dropped'} {one}" for one in self.dropped[name]]
        return "\n".join(lines)


def timing_test(a: Any, b: Any) -> Timing:
    """Fit a line to the times of the same events on two clocks, and test its residuals.

    Times, at least three, are in seconds. No event may be more than .1 s from the line, and at most 5 % more
    than .04 s. The slope may differ from 1 by .002.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape or a.ndim != 1 or len(a) < 3:
        raise PairingError(
            f"A test of clocks needs three pairs of times; got shapes {a.shape} and {b.shape}."
        )
    centred = a - a.mean()
    slope = float(centred @ (b - b.mean()) / (centred @ centred))
    offset = float(b.mean() - slope * a.mean())
    residual = np.abs(b - b.mean() - slope * centred)
    largest, p95 = float(residual.max()), float(np.percentile(residual, 95))
    names = (
        "greatest residual {:.4g} s",
        "95th percentile of residuals {:.4g} s",
        "distance of the slope from 1 {:.4g}",
    )
    failures = tuple(
        f"{name.format(value)} (limit {limit:g})"
        for name, value, limit in zip(names, (largest, p95, abs(slope - 1)), LIMITS, strict=True)
        if not value <= limit
    )
    return Timing(slope, offset, largest, p95, failures)


def match_events(
    times: Any,
    reference: Any,
    *,
    breaks: Sequence[float] | None = None,
    name: str = "the device",
) -> NDArray[np.int64]:
    """Return the event number of each marker, counted from 1; 0 for none.

    With as many markers as events, the k-th marker is the k-th event. With fewer, a single run of events
    inside the recording must have been missed, and only one place for it may pass the timing test; with more,
    a single run of consecutive markers must pass it. Anything else is an error.

    Parameters
    ----------
    times : (n,) array
        Times of the device's markers, in seconds of its clock.
    reference : (n,) array
        Times of the events, in seconds of the experiment's clock, or of another device.
    breaks : sequence of float or None
        Times, on the device's clock, of annotations that interrupt its markers and possibly its clock, such
        as an impedance check. If markers are missing, there must be exactly one break, in the gap; each side
        of it, with at least ten events, then has a separate line. None: the clock was not interrupted, and
        one line is fitted to all markers.
    name : str
        Name of the device for messages.

    Examples
    --------
    >>> import numpy as np
    >>> events = np.cumsum(np.random.default_rng(0).uniform(0.9, 1.4, 12))
    >>> match_events(np.delete(events, [4, 5]) + 20, events)
    array([ 1,  2,  3,  4,  7,  8,  9, 10, 11, 12])
    """
    events, times = _times(reference, "the events"), _times(times, name)
    n, m = len(events), len(times)
    what = f"{name} has {m} markers for {n} events"
    if m < 3:
        raise PairingError(f"{what}; three are needed at least. {WAY_OUT}")
    if m < n:
        start = _find_gap(times, events, breaks, what)
        return np.delete(np.arange(1, n + 1), slice(start, start + n - m))
    starts = [i for i in range(m - n + 1) if not timing_test(events, times[i : i + n]).failures]
    if m == n and not starts:
        failures = "; ".join(timing_test(events, times).failures)
        raise PairingError(f"{name} against the events fails the timing test: {failures}. {WAY_OUT}")
    if len(starts) != 1:
        raise PairingError(
            f"{what}, and {len(starts)} runs of {n} consecutive markers pass the timing test; exactly one "
            f"must. {WAY_OUT}"
        )
    number = np.zeros(m, np.int64)
    number[starts[0] : starts[0] + n] = np.arange(1, n + 1)
    return number


def exclude_overlap(onsets: Any, calibration: Any, seconds: float = 1.0) -> NDArray[np.bool_]:
    """Return the events to keep, so that no epoch overlaps a calibration epoch.

    Times of (k,) or (devices, k) events, and of calibration on the same clocks, are in seconds. Events less
    than ``seconds`` from a calibration event, on any clock, are removed.
    """
    events, chosen = (np.atleast_2d(np.asarray(times, dtype=np.float64)) for times in (onsets, calibration))
    if len(events) != len(chosen):
        raise ValueError(f"Events are timed on {len(events)} clocks and calibration on {len(chosen)}.")
    close = np.abs(events[:, :, None] - chosen[:, None]) < seconds
    return np.asarray(~close.any(axis=(0, 2)))


def _find_gap(times: Floats, events: Floats, breaks: Sequence[float] | None, what: str) -> int:
    """Return the number of events with a marker before the single run of events without markers."""
    m, missing = len(times), len(events) - len(times)

    def passes(start: int) -> bool:
        before, after = events[:start], events[start + missing :]
        if breaks is None or start in (0, m):
            return not timing_test(np.concatenate([before, after]), times).failures
        sides = (before, times[:start]), (after, times[start:])
        return min(start, m - start) >= MIN_SIDE and not any(timing_test(*side).failures for side in sides)

    starts = [start for start in range(m + 1) if passes(start)]
    if len(starts) != 1:
        places = ", ".join(f"after event {start}" for start in starts) or "none"
        raise PairingError(
            f"{what}, and one gap of {missing} passes the timing test at {len(starts)} places ({places}); "
            f"exactly one must. {WAY_OUT}"
        )
    start = starts[0]
    if start in (0, m):
        raise PairingError(
            f"{what}: the {'last' if start else 'first'} {missing} have none; remove these events from their "
            f"file if the recording does not cover them. {WAY_OUT}"
        )
    if breaks is not None:
        inside = [t for t in breaks if times[start - 1] < t < times[start]]
        if len(inside) != 1 or len(breaks) != 1:
            raise PairingError(
                f"{what}; events {start + 1} to {start + missing} seem to have none. Exactly one break "
                f"must be annotated, between {times[start - 1]:.3f} s and {times[start]:.3f} s: there "
                f"are {len(inside)} ({len(breaks)} in the whole recording). {WAY_OUT}"
            )
    return start


def _times(values: Any, name: str) -> Floats:
    times = np.asarray(values, dtype=np.float64)
    if times.ndim != 1 or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise PairingError(f"Times of {name} must be one list of rising, finite numbers of seconds.")
    return times
