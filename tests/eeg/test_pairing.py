"""Events of two devices are paired by their order, and only where their times leave no doubt."""

import numpy as np
import pytest

from mgpa.eeg.pairing import PairingError, TimingLimits, match_events, timing_test


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
    [cap], [other], [between] = match.timing_a, match.timing_b, match.timing
    assert cap.offset == pytest.approx(5, abs=1e-6)
    assert other.slope == pytest.approx(1.0012, abs=1e-4)
    assert between.slope == pytest.approx(1.0012, abs=1e-4)
    assert 0.001 < between.p95_residual <= between.max_residual < 0.01
    assert match.sides == ((1, 60),)


def test_the_line_is_least_squares(events):
    b = headset(events, jitter=0.03)
    timing = timing_test(events, b)
    slope, offset = np.polyfit(events, b, 1)
    residual = np.abs(b - slope * events - offset)
    assert timing.slope == pytest.approx(slope, abs=1e-12)
    assert timing.offset == pytest.approx(offset, abs=1e-9)
    assert timing.max_residual == pytest.approx(residual.max(), abs=1e-9)
    assert timing.p95_residual == pytest.approx(np.percentile(residual, 95), abs=1e-9)


def test_each_limit_can_fail_alone(events):
    one_late = events.copy()
    one_late[30] += 0.12
    some_late = events + np.where(np.arange(60) % 8 == 0, 0.07, 0.0)
    cases = {"greatest residual": one_late, "95th percentile": some_late, "slope": 1.0021 * events}
    for what, times in cases.items():
        timing = timing_test(events, times)
        assert not timing.passed
        assert [what in failure for failure in timing.failures] == [True]
    assert timing_test(events, 1.0019 * events).passed
    assert timing_test(events, one_late, limits=TimingLimits(max_residual=0.2)).passed


@pytest.mark.parametrize("start", [1, 2, 30, 55])
@pytest.mark.parametrize("count", [1, 4])
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
        said = f"events 21 to 24 seem to have none.*there are {inside}, and {len(notes)} in the whole"
        with pytest.raises(PairingError, match=said):
            match_events(a, headset(events), events, breaks=notes)


def clock_break(seconds, n=300, first=152, count=4):
    """Events of which one device missed some while its clock jumped, and when it noted why."""
    events = 100 + np.cumsum(np.random.default_rng(3).uniform(0.9, 1.4, n))
    a = np.delete(events, np.arange(first, first + count)) + 5
    a[first:] += seconds
    return events, a, (a[first - 1] + a[first]) / 2


@pytest.mark.parametrize("seconds", [0.5, 5.0, 50.0, -0.5])
def test_each_side_of_a_clock_break_has_its_own_line_between_the_devices_too(seconds):
    events, a, note = clock_break(seconds)
    match = match_events(a, headset(events), events, breaks=[note])
    assert len(match.ordinal) == 296
    assert match.ordinal.tolist() == [k for k in range(1, 301) if not 153 <= k <= 156]
    np.testing.assert_array_equal(match.b, match.ordinal - 1)
    assert match.sides == ((1, 152), (157, 300))
    first, second = match.timing_a
    assert second.offset - first.offset == pytest.approx(seconds, abs=1e-6)
    assert len(match.timing_b) == 1
    assert [timing.passed for timing in match.timing] == [True, True]
    assert match.timing[1].offset - match.timing[0].offset == pytest.approx(-1.0012 * seconds, abs=0.05)
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


@pytest.mark.parametrize("first", [9, 287])
def test_a_side_of_fewer_than_ten_events_says_too_little(first):
    events, a, note = clock_break(5.0, first=first)
    with pytest.raises(PairingError, match="at 0 places"):
        match_events(a, headset(events), events, breaks=[note])
    nearer = 10 if first == 9 else 286
    events, a, note = clock_break(5.0, first=nearer)
    assert len(match_events(a, headset(events), events, breaks=[note]).ordinal) == 296


def test_missing_first_markers_are_no_clock_break(events):
    with pytest.raises(PairingError, match="the first 3 have none"):
        match_events(events[3:], headset(events), events, breaks=[])


@pytest.mark.parametrize(("kept", "where"), [(slice(3, None), "first"), (slice(-3), "last")])
def test_missing_ends_are_not_taken_for_a_gap(events, kept, where):
    with pytest.raises(PairingError, match=f"the {where} 3 have none"):
        match_events(events[kept], headset(events), events)


def test_two_gaps_are_refused(events):
    with pytest.raises(PairingError, match="at 0 places"):
        match_events(np.delete(events, [10, 40]), headset(events), events)


def test_a_gap_that_could_be_anywhere_is_refused():
    # Events so fast that one more or less stays within the limits.
    events = np.arange(40) * 0.03
    limits = TimingLimits(slope=0.1)
    with pytest.raises(PairingError, match=r"at \d\d places"):
        match_events(np.delete(events, 20), events, events, limits=limits)


@pytest.mark.parametrize(("before", "after"), [(3, 0), (0, 2), (2, 2)])
def test_extra_markers_are_left_out_and_reported(events, before, after):
    own = events + 5
    extra = [own[0] - 1.7 * (k + 1) for k in reversed(range(before))]
    a = np.concatenate([extra, own, [own[-1] + 1.9 * (k + 1) for k in range(after)]])
    match = match_events(a, headset(events), events)
    assert match.a.tolist() == list(range(before, before + 60))
    assert len(match.ordinal) == 60
    assert ["belongs to no event" in one for one in match.dropped] == [True] * (before + after)
    assert "marker" in str(match.dropped[0])


def test_extra_markers_between_events_are_refused(events):
    a = np.sort(np.append(events, events[25] + 0.4))
    with pytest.raises(PairingError, match="0 runs of 60 consecutive"):
        match_events(a, headset(events), events)


def test_more_markers_on_both_devices_mean_that_events_are_missing(events):
    with pytest.raises(PairingError, match="60 and 60 markers, both more than the 55 events"):
        match_events(events + 5, headset(events), events[:55])


def test_a_gap_on_one_device_and_extra_markers_on_the_other(events):
    a = np.delete(events, [11, 12])
    own = headset(events)
    b = np.append([own[0] - 3.3, own[0] - 1.1], own)
    match = match_events(a, b, events)
    assert len(match.ordinal) == 58
    assert len(match.dropped) == 4
    np.testing.assert_allclose(b[match.b], 1.0012 * a[match.a] - 37, atol=0.01)


@pytest.mark.parametrize(
    "times", [[1.0, 1.0, 2.0, 3.0], [1.0, np.nan, 2.0, 3.0], [[1.0, 2.0], [3.0, 4.0]], [3.0, 2.0, 1.0, 0.0]]
)
def test_times_that_do_not_rise_are_refused(times):
    with pytest.raises(PairingError, match="Times of cap"):
        match_events(times, np.arange(4.0), np.arange(4.0), names=("cap", "headset"))
