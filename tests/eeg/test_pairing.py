"""Markers of a device are numbered by their order, and only where their times leave no doubt."""

import numpy as np
import pytest

from mgpa.eeg.pairing import PairingError, match_events, timing_test


@pytest.fixture
def events():
    return 100 + np.cumsum(np.random.default_rng(3).uniform(0.9, 1.4, 60))


def headset(events, jitter=0.004):
    """The events on another clock, which runs a little fast."""
    return 1.0012 * events - 37 + np.random.default_rng(8).uniform(-jitter, jitter, len(events))


def test_equal_counts_are_paired_in_order_and_clocks_are_measured(events):
    assert match_events(headset(events), events).tolist() == list(range(1, 61))
    timing = timing_test(events, headset(events))
    assert timing.slope == pytest.approx(1.0012, abs=1e-4)
    assert 0.001 < timing.p95_residual <= timing.max_residual < 0.01
    with pytest.raises(PairingError, match=r"cap against the events fails the timing test.*pair_by="):
        match_events(np.sort(np.random.default_rng(0).uniform(0, 80, 60)), events, name="cap")


def test_the_line_is_least_squares(events):
    b = headset(events, jitter=0.03)
    timing = timing_test(events, b)
    slope, offset = np.polyfit(events, b, 1)
    residual = np.abs(b - slope * events - offset)
    measured = timing.slope, timing.offset, timing.max_residual, timing.p95_residual
    expected = slope, offset, residual.max(), np.percentile(residual, 95)
    np.testing.assert_allclose(measured, expected, atol=1e-9)


def test_each_limit_can_fail_alone(events):
    one_late = events.copy()
    one_late[30] += 0.12
    some_late = events + np.where(np.arange(60) % 8 == 0, 0.07, 0.0)
    cases = {"greatest residual": one_late, "95th percentile": some_late, "slope": 1.0021 * events}
    for what, times in cases.items():
        assert [what in failure for failure in timing_test(events, times).failures] == [True]
    assert not timing_test(events, 1.0019 * events).failures


@pytest.mark.parametrize(("start", "count"), [(1, 1), (1, 4), (30, 4), (55, 4)])
def test_one_gap_is_found_wherever_it_is(events, start, count):
    number = match_events(np.delete(headset(events), np.arange(start, start + count)), events)
    assert number.tolist() == [k for k in range(1, 61) if not start < k <= start + count]


def test_a_gap_needs_the_only_note_where_notes_are_kept(events):
    a = np.delete(events + 5, [20, 21, 22, 23])
    note = a[20] - 0.5
    assert len(match_events(a, events, breaks=[note])) == 56
    for notes, inside in (([], 0), ([a[30] + 0.1], 0), ([note, note - 1], 2), ([3.0, note], 1)):
        message = f"events 21 to 24 seem to have none.*there are {inside} .{len(notes)} in the whole"
        with pytest.raises(PairingError, match=message):
            match_events(a, events, breaks=notes)


def clock_break(seconds, n=300, first=152, count=4):
    """Events of which one device missed some while its clock jumped, and when it noted why."""
    events = 100 + np.cumsum(np.random.default_rng(3).uniform(0.9, 1.4, n))
    a = np.delete(events, np.arange(first, first + count)) + 5
    a[first:] += seconds
    return events, a, (a[first - 1] + a[first]) / 2


@pytest.mark.parametrize("seconds", [50.0, -0.5])
def test_each_side_of_a_clock_break_has_its_own_line(seconds):
    events, a, note = clock_break(seconds)
    number = match_events(a, events, breaks=[note])
    assert number.tolist() == [k for k in range(1, 301) if not 153 <= k <= 156]
    # One line for both sides would not do.
    with pytest.raises(PairingError, match="at 0 places"):
        match_events(a, events)


def test_a_break_that_hides_which_events_are_missing_is_refused():
    events, a, _ = clock_break(0.0)
    # The first marker after the gap comes when the first event in it should have: both readings pass.
    a[152:] -= events[156] - events[152]
    note = (a[151] + a[152]) / 2
    with pytest.raises(PairingError, match=r"at 2 places \(after event 152, after event 153\)"):
        match_events(a, events, breaks=[note])


@pytest.mark.parametrize(("first", "nearer"), [(9, 10), (287, 286)])
def test_a_side_of_fewer_than_ten_events_says_too_little(first, nearer):
    events, a, note = clock_break(5.0, first=first)
    with pytest.raises(PairingError, match="at 0 places"):
        match_events(a, events, breaks=[note])
    events, a, note = clock_break(5.0, first=nearer)
    assert len(match_events(a, events, breaks=[note])) == 296


def test_missing_first_markers_are_no_clock_break(events):
    for breaks, markers, where in (([], slice(3, None), "first"), (None, slice(-3), "last")):
        with pytest.raises(PairingError, match=f"the {where} 3 have none"):
            match_events(events[markers], events, breaks=breaks)


def test_markers_that_leave_a_doubt_are_refused(events):
    for times, message in (
        (np.delete(events, [10, 40]), "at 0 places"),
        (np.sort(np.append(events, events[25] + 0.4)), "0 runs of 60 consecutive"),
        (events[:2], "three are needed"),
        ([1.0, 1.0, 2.0, 3.0], "Times of cap"),
        ([1.0, np.nan, 2.0, 3.0], "Times of cap"),
        ([[1.0, 2.0], [3.0, 4.0]], "Times of cap"),
    ):
        with pytest.raises(PairingError, match=message):
            match_events(times, events, name="cap")
    # Events so fast that one more or less stays within the limits.
    fast = np.arange(4000) * 0.03
    with pytest.raises(PairingError, match=r"at \d+ places"):
        match_events(np.delete(fast, 2000), fast)


@pytest.mark.parametrize(("before", "after"), [(3, 0), (2, 2)])
def test_extra_markers_belong_to_no_event(events, before, after):
    times = headset(events)
    extra = [times[0] - 1.7 * (k + 1) for k in reversed(range(before))]
    times = np.concatenate([extra, times, [times[-1] + 1.9 * (k + 1) for k in range(after)]])
    assert match_events(times, events).tolist() == [0] * before + list(range(1, 61)) + [0] * after
