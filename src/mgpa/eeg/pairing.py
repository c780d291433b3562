"""Pairing the events of two devices that recorded at once, by their order, and testing it by their times.

Two recordings of one session each have their own clock and their own markers, and a third list, the
experiment's own, says which events there were. The k-th marker of a device is the k-th event; how well times
agree after a straight line only tells whether that holds, and changes no time. Where a device's clock broke,
as in an impedance check, each side of the break has a straight line of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import PairingError

Floats = NDArray[np.float64]

#: A line through fewer events on one side of a break says little about whether they are the right ones.
MIN_SIDE = 10
#: What to do where times cannot say which events belong together.
WAY_OUT = (
    "Check that markers and events are of one session; else number the events yourself, in a column of the "
    "metadata, and name that column with pair_by=."
)


#: How far two clocks may differ: seconds from the straight line, of every event and of 95 % of them, and the
#: distance of the line's slope from one.
Limits = tuple[float, float, float]
LIMITS: Limits = (0.1, 0.04, 0.002)


@dataclass(frozen=True)
class Timing:
    """How the times of some events on one clock follow from those on another: b ≈ slope · a + offset.

    The line is that of least squares; residuals are absolute distances from it, in seconds. ``failures`` says
    in words what is beyond the limits.
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


class EventMatch(NamedTuple):
    """Events that both devices have.

    ``ordinal`` says which of the reference's events each is, from 1; ``a`` and ``b`` are positions of their
    markers among each device's. ``timing`` compares clocks, keyed by which with which and, where a clock
    broke, by the first and last event of a side. ``dropped`` says which events only one device has, and which
    markers belong to no event.
    """

    ordinal: NDArray[np.int64]
    a: NDArray[np.int64]
    b: NDArray[np.int64]
    timing: dict[str, Timing]
    dropped: tuple[str, ...]


@dataclass(frozen=True)
class SessionPairing:
    """How the events of one session were paired: how many there were, and how many pairs were kept.

    ``dropped`` says which events were not paired, and which markers belong to no event; ``timing`` is keyed
    by which clock was compared with which; ``artifacts`` counts the pairs that are flagged.
    """

    participant: str
    events: int
    pairs: int
    dropped: tuple[str, ...]
    timing: dict[str, Timing]
    artifacts: int = 0

    def __str__(self) -> str:
        flagged = f", {self.artifacts} with artefacts" if self.artifacts else ""
        lines = [f"{self.participant}: {self.events} events, {self.pairs} pairs{flagged}"]
        lines += [f"  {what}: {timing}" for what, timing in self.timing.items()]
        return "\n".join([*lines, *(f"  dropped {one}" for one in self.dropped)])


@dataclass(frozen=True)
class PairingReport:
    """How the events of several sessions were paired, with notes about all of them."""

    sessions: tuple[SessionPairing, ...]
    notes: tuple[str, ...] = ()

    def __getitem__(self, participant: str) -> SessionPairing:
        return {session.participant: session for session in self.sessions}[participant]

    @property
    def pairs(self) -> int:
        """Pairs of all sessions."""
        return sum(session.pairs for session in self.sessions)

    def __str__(self) -> str:
        n, events = len(self.sessions), sum(session.events for session in self.sessions)
        flagged = sum(session.artifacts for session in self.sessions)
        dropped = sum(len(session.dropped) for session in self.sessions)
        first = (
            f"{self.pairs} pairs of {events} events in {n} session{'s' if n > 1 else ''}; {flagged} with "
            f"artefacts, {dropped} dropped"
        )
        return "\n".join([first, *self.notes, *map(str, self.sessions)])


def timing_test(a: Any, b: Any, *, limits: Limits = LIMITS) -> Timing:
    """Fit a straight line to the times of the same events on two clocks, and measure what it leaves.

    Parameters
    ----------
    a, b : (k,) array
        Times in seconds, at least three.
    limits : (max, p95, slope)
        Seconds from the line that no event and 5 % of events may exceed, and how far its slope may be from 1.
    """
    a, b = _times(a, "a"), _times(b, "b")
    if len(a) != len(b) or len(a) < 3:
        raise PairingError(f"A test of clocks needs three pairs of times; got {len(a)} and {len(b)} times.")
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
        for name, value, limit in zip(names, (largest, p95, abs(slope - 1)), limits, strict=True)
        if not value <= limit
    )
    return Timing(slope, offset, largest, p95, failures)


def match_events(
    times_a: Any,
    times_b: Any,
    reference: Any,
    *,
    breaks: Sequence[float] | None = None,
    names: tuple[str, str] = ("a", "b"),
    limits: Limits = LIMITS,
) -> EventMatch:
    """Pair the markers of two devices by way of the events they mark.

    A device with as many markers as there are events has the k-th marker for the k-th event. With fewer, a
    single run of events inside the recording must have been missed, and only one place for it may pass the
    timing test; with more, a single run of consecutive markers must pass it. Anything else is an error, and
    so are more markers than events on both devices: then it is events that are missing.

    Parameters
    ----------
    times_a, times_b : (n,) array
        Times of each device's markers, in seconds of its own clock.
    reference : (n,) array
        Times of the events, in seconds of the experiment's clock.
    breaks : sequence of float or None
        Times, on the first device's clock, of notes about something that stops its markers and may stop its
        clock, such as an impedance check. Where markers are missing there must be exactly one, in the gap;
        each side of it, of ten events at least, then has a straight line of its own. None: the clock ran on,
        and one line holds for both sides.
    names : tuple of str
        What to call the devices.
    limits : (max, p95, slope)
        See :func:`timing_test`.

    Examples
    --------
    >>> import numpy as np
    >>> events = np.cumsum(np.random.default_rng(0).uniform(0.9, 1.4, 30))
    >>> missed = np.delete(events, [11, 12])
    >>> match = match_events(missed + 20, 1.0005 * events + 3, events, names=("cap", "headset"))
    >>> len(match.ordinal), match.dropped
    (28, ('event 12: no marker on cap', 'event 13: no marker on cap'))
    """
    events = _times(reference, "reference")
    counts = len(times_a), len(times_b)
    if min(counts) > len(events):
        raise PairingError(
            f"{names[0]} and {names[1]} have {counts[0]} and {counts[1]} markers, both more than the "
            f"{len(events)} events; the list of events seems to be cut short. {WAY_OUT}"
        )
    a, b = _times(times_a, names[0]), _times(times_b, names[1])
    markers_a, dropped_a = _match_one(a, events, breaks, names[0], limits)
    markers_b, dropped_b = _match_one(b, events, None, names[1], limits)
    index = np.flatnonzero((markers_a >= 0) & (markers_b >= 0))
    clocks = events[index], a[markers_a[index]], b[markers_b[index]]
    whole = np.arange(len(index))
    sides = [whole]
    if breaks is not None and len(a) < len(events):
        sides = np.split(whole, [np.searchsorted(index, np.flatnonzero(markers_a < 0)[0])])
    timing = {}
    for what, i, j, stretches in (
        (f"{names[0]} against events", 0, 1, sides),
        (f"{names[1]} against events", 0, 2, [whole]),
        (f"{names[1]} against {names[0]}", 1, 2, sides),
    ):
        for side in stretches:
            span = "" if len(stretches) == 1 else f", {index[side[0]] + 1} to {index[side[-1]] + 1}"
            timing[what + span] = test = timing_test(clocks[i][side], clocks[j][side], limits=limits)
            if test.failures:
                failures = "; ".join(test.failures)
                raise PairingError(f"The times of {what} fail the timing test: {failures}. {WAY_OUT}")
    return EventMatch(index + 1, markers_a[index], markers_b[index], timing, dropped_a + dropped_b)


def exclude_overlap(onsets: Any, calibration: Any, seconds: float = 1.0) -> NDArray[np.bool_]:
    """Tell which events to keep so that no epoch shares signal with a calibration epoch.

    Times of (k,) or (devices, k) events, and of calibration on as many clocks, are in seconds; events less
    than ``seconds`` from a calibration event, on any clock, go.
    """
    events, chosen = (np.atleast_2d(np.asarray(times, dtype=np.float64)) for times in (onsets, calibration))
    if len(events) != len(chosen):
        raise ValueError(f"Events are timed on {len(events)} clocks and calibration on {len(chosen)}.")
    close = np.abs(events[:, :, None] - chosen[:, None]) < seconds
    return np.asarray(~close.any(axis=(0, 2)))


def _match_one(
    times: Floats, events: Floats, breaks: Sequence[float] | None, name: str, limits: Limits
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the marker of every event, -1 for none; and what is left."""
    n, m = len(events), len(times)
    what = f"{name} has {m} markers for {n} events"
    if m < 3:
        raise PairingError(f"{what}; three are needed at least. {WAY_OUT}")
    if m == n:
        return np.arange(n), ()
    if m < n:
        start = _find_gap(times, events, breaks, what, limits)
        marker = np.concatenate([np.arange(start), np.full(n - m, -1), np.arange(start, m)])
        missed = tuple(f"event {i + 1}: no marker on {name}" for i in range(start, start + n - m))
        return marker, missed
    starts = [
        i for i in range(m - n + 1) if not timing_test(events, times[i : i + n], limits=limits).failures
    ]
    if len(starts) != 1:
        raise PairingError(
            f"{what}, and {len(starts)} runs of {n} consecutive markers pass the timing test; exactly one "
            f"must. {WAY_OUT}"
        )
    extra = [i for i in range(m) if not starts[0] <= i < starts[0] + n]
    unused = tuple(f"marker {i + 1} of {name}, at {times[i]:.3f} s, belongs to no event" for i in extra)
    return np.arange(starts[0], starts[0] + n), unused


def _find_gap(
    times: Floats, events: Floats, breaks: Sequence[float] | None, what: str, limits: Limits
) -> int:
    """Return how many events have a marker before the one run of events that has none."""
    m, missing = len(times), len(events) - len(times)

    def passes(start: int) -> bool:
        before, after = events[:start], events[start + missing :]
        if breaks is None or start in (0, m):
            return not timing_test(np.concatenate([before, after]), times, limits=limits).failures
        sides = (before, times[:start]), (after, times[start:])
        return min(start, m - start) >= MIN_SIDE and not any(
            timing_test(*side, limits=limits).failures for side in sides
        )

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
                f"{what}; events {start + 1} to {start + missing} seem to have none. One note must explain "
                f"that, between {times[start - 1]:.3f} s and {times[start]:.3f} s: there are {len(inside)}, "
                f"and {len(breaks)} in the whole recording. {WAY_OUT}"
            )
    return start


def _times(values: Any, name: str) -> Floats:
    times = np.asarray(values, dtype=np.float64)
    if times.ndim != 1 or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise PairingError(f"Times of {name} must be one list of rising, finite numbers of seconds.")
    return times
