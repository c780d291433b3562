"""Events of two devices are paired by their order, and only where their times leave no doubt."""

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
    match = match_events(events + 5, headset(events), events)
    assert match.ordinal.tolist() == list(range(1, 61))
    assert match.a.tolist() == match.b.tolist() == list(range(60))
    assert match.dropped == ()
    assert list(match.timing) == ["a against events", "b against events", "b against a"]
    cap, other, between = match.timing.values()
    assert cap.offset == pytest.approx(5, abs=1e-6)
    assert other.slope == pytest.approx(1.0012, abs=1e-4)
    assert between.slope == pytest.approx(1.0012, abs=1e-4)
    assert 0.001 < between.p95_residual <= between.max_residual < 0.01


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
    assert not timing_test(events, one_late, limits=(0.2, 0.04, 0.002)).failures


@pytest.mark.parametrize(("start", "count"), [(1, 1), (1, 4), (2, 1), (30, 4), (55, 1), (55, 4)])
def test_one_gap_is_found_wherever_it_is(events, start, count):
    a = np.delete(events + 5, np.arange(start, start + count))
    match = match_events(a, headset(events), events, names=("cap", "headset"))
    missing = list(range(start + 1, start + count + 1))
    assert match.dropped == tuple(f"event {k}: no marker on cap" for k in missing)
    assert match.ordinal.tolist() == [k for k in range(1, 61) if k not in missing]
    np.testing.assert_array_equal(a[match.a], events[match.ordinal - 1] + 5)
    assert match.b.tolist() == (match.ordinal - 1).tolist()


def test_a_gap_needs_the_only_note_where_notes_are_kept(events):
    a = np.delete(events + 5, [20, 21, 22, 23])
    note = a[20] - 0.5
    assert len(match_events(a, headset(events), events, breaks=[note]).ordinal) == 56
    for notes, inside in (([], 0), ([a[30] + 0.1], 0), ([note, note - 1], 2), ([3.0, note], 1)):
        message = f"events 21 to 24 seem to have none.*there are {inside}, and {len(notes)} in the whole"
        with pytest.raises(PairingError, match=message):
            match_events(a, headset(events), events, breaks=notes)


def clock_break(seconds, n=300, first=152, count=4):
    """Events of which one device missed some while its clock jumped, and when it noted why."""
    events = 100 + np.cumsum(np.random.default_rng(3).uniform(0.9, 1.4, n))
    a = np.delete(events, np.arange(first, first + count)) + 5
    a[first:] += seconds
    return events, a, (a[first - 1] + a[first]) / 2


@pytest.mark.parametrize("seconds", [50.0, -0.5])
def test_each_side_of_a_clock_break_has_its_own_line_between_the_devices_too(seconds):
    events, a, note = clock_break(seconds)
    match = match_events(a, headset(events), events, breaks=[note])
    assert match.ordinal.tolist() == [k for k in range(1, 301) if not 153 <= k <= 156]
    np.testing.assert_array_equal(match.b, match.ordinal - 1)
    assert [name for name in match.timing if name.startswith("b against e")] == ["b against events"]
    for what, jump, tolerance in (("a against events", 1, 1e-6), ("b against a", -1.0012, 0.05)):
        first, second = (match.timing[f"{what}, {side}"].offset for side in ("1 to 152", "157 to 300"))
        assert second - first == pytest.approx(jump * seconds, abs=tolerance)
    # One line for both sides would not do.
    with pytest.raises(PairingError, match="at 0 places"):
        match_events(a, headset(events), events)


def test_a_break_that_hides_which_events_are_missing_is_refused():
    events, a, _ = clock_break(0.0)
    # The first marker after the gap comes when the first event in it should have: both readings pass.
    a[152:] -= events[156] - events[152]
    note = (a[151] + a[152]) / 2
    with pytest.raises(PairingError, match=r"at 2 places \(after event 152, after event 153\)"):
        match_events(a, headset(events), events, breaks=[note])


@pytest.mark.parametrize(("first", "nearer"), [(9, 10), (287, 286)])
def test_a_side_of_fewer_than_ten_events_says_too_little(first, nearer):
    events, a, note = clock_break(5.0, first=first)
    with pytest.raises(PairingError, match="at 0 places"):
        match_events(a, headset(events), events, breaks=[note])
    events, a, note = clock_break(5.0, first=nearer)
    assert len(match_events(a, headset(events), events, breaks=[note]).ordinal) == 296


def test_missing_first_markers_are_no_clock_break(events):
    for breaks, markers, where in (([], slice(3, None), "first"), (None, slice(-3), "last")):
        with pytest.raises(PairingError, match=f"the {where} 3 have none"):
            match_events(events[markers], headset(events), events, breaks=breaks)


def test_markers_that_leave_a_doubt_are_refused(events):
    other = headset(events)
    for a, message in (
        (np.delete(events, [10, 40]), "at 0 places"),
        (np.sort(np.append(events, events[25] + 0.4)), "0 runs of 60 consecutive"),
        ([1.0, 1.0, 2.0, 3.0], "Times of a"),
        ([1.0, np.nan, 2.0, 3.0], "Times of a"),
        ([[1.0, 2.0], [3.0, 4.0]], "Times of a"),
    ):
        with pytest.raises(PairingError, match=message):
            match_events(a, other, events)
    with pytest.raises(PairingError, match="60 and 60 markers, both more than the 55 events"):
        match_events(events + 5, other, events[:55])
    # Events so fast that one more or less stays within the limits.
    fast = np.arange(40) * 0.03
    with pytest.raises(PairingError, match=r"at \d\d places"):
        match_events(np.delete(fast, 20), fast, fast, limits=(0.1, 0.04, 0.1))


@pytest.mark.parametrize(("before", "after"), [(3, 0), (2, 2)])
def test_extra_markers_are_left_out_and_reported(events, before, after):
    own = events + 5
    extra = [own[0] - 1.7 * (k + 1) for k in reversed(range(before))]
    a = np.concatenate([extra, own, [own[-1] + 1.9 * (k + 1) for k in range(after)]])
    match = match_events(a, headset(events), events)
    assert match.a.tolist() == list(range(before, before + 60))
    assert ["belongs to no event" in one for one in match.dropped] == [True] * (before + after)


def test_a_gap_on_one_device_and_extra_markers_on_the_other(events):
    a = np.delete(events, [11, 12])
    own = headset(events)
    b = np.append([own[0] - 3.3, own[0] - 1.1], own)
    match = match_events(a, b, events)
    assert (len(match.ordinal), len(match.dropped)) == (58, 4)
    np.testing.assert_allclose(b[match.b], 1.0012 * a[match.a] - 37, atol=0.01)
