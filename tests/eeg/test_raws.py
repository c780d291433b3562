"""Continuous recordings of two devices, in memory and in BIDS, end in the table that their epochs end in."""

import warnings

import mne
import numpy as np
import pytest

from mgpa.eeg import BandPower, table_from_bids, table_from_raws
from mgpa.eeg.raws import find_markers
from mgpa.errors import PairingError

EVENTS, LENGTH = 24, 70.0
CHANNELS = ["O1", "Oz", "O2"]
# Stationary rhythms and noise of each device: nothing tells the events apart, and the pairs are doubted.
pytestmark = pytest.mark.filterwarnings("ignore:The pairs of this table are doubtful")


def onsets(person="01"):
    return 4 + np.cumsum(np.random.default_rng(int(person)).uniform(2.0, 2.8, EVENTS))


def record(person, rate, *, lost=(), extra=(), start=0.0, names=("face", "watch"), stim=False):
    """Return a recording whose clock begins at ``start``; markers are annotations, or triggers."""
    time = np.arange(0, LENGTH, 1 / rate) + start
    brain = [np.sin(2 * np.pi * (5 + k) * time) for k in range(len(CHANNELS))]
    noise = np.random.default_rng([int(person), int(rate)]).normal(size=(len(CHANNELS), len(time)))
    info = mne.create_info(CHANNELS, rate, "eeg")
    raw = mne.io.RawArray(1e-5 * (brain + noise), info, verbose="error")
    raw.info["subject_info"] = {"his_id": person}
    raw.info["line_freq"] = 50
    marked = [(t, names[k % 2]) for k, t in enumerate(onsets(person) - start) if k not in lost]
    marked = sorted([*marked, *((t, names[0]) for t in extra)])
    if stim:
        trigger = np.zeros((1, len(time)))
        for t, name in marked:
            at = round(t * rate)
            trigger[0, at : at + 5] = names.index(name) + 1
        raw.add_channels(
            [mne.io.RawArray(trigger, mne.create_info(["STI"], rate, "stim"), verbose="error")],
            force_update_info=True,
        )
    else:
        raw.set_annotations(mne.Annotations([t for t, _ in marked], 0, [name for _, name in marked]))
    return raw


SPAN = {"encoder": BandPower(), "tmin": -0.2, "tmax": 1.2, "roles": {"FIT": 1}}


def test_recordings_end_in_paired_rows_named_by_their_markers():
    raws = {
        "cap": [record(p, 256.0) for p in ("01", "02")],
        "headset": [record(p, 128.0) for p in ("01", "02")],
    }
    table = table_from_raws(raws, **SPAN)
    assert table.require_pairs().X.shape == (4 * EVENTS, 15)
    assert set(table.label) == {"face", "watch"}
    assert table.other["event"][:EVENTS].tolist() == list(range(1, EVENTS + 1))
    np.testing.assert_allclose(table.other["onset"][:EVENTS], onsets(), atol=0.5 / 256 + 1e-9)


def test_recordings_by_name_and_by_session_are_those_of_a_list():
    raws = {"cap": [record("01", 256.0)], "headset": [record("01", 128.0)]}
    listed = table_from_raws(raws, pair_by="event", **SPAN)
    named = table_from_raws({name: {"01": raw} for name, [raw] in raws.items()}, **SPAN)
    sessions = {name: {("01", 2): raw} for name, [raw] in raws.items()}
    twice = table_from_raws(sessions, pair_by=("session", "event"), **SPAN)
    np.testing.assert_array_equal(named.X, listed.X)
    np.testing.assert_array_equal(twice.X, listed.X)
    assert set(named.participant) == set(twice.participant) == {"01"}
    assert set(twice.other["session"]) == {"2"}


def test_a_trigger_that_one_device_lost_is_found_by_the_times():
    raws = {"cap": record("01", 256.0), "headset": record("01", 128.0, lost=(9, 10), start=1.5)}
    table = table_from_raws(raws, **SPAN)
    alone = table.columns["pair_id"] == ""
    assert table.other["event"][alone].tolist() == [10, 11]
    assert "22 pairs of 24 events" in table.info["pairing"]


def test_one_recording_that_cannot_be_matched_is_left_out_of_a_cohort_and_named():
    people = ("01", "02", "03")
    raws = {
        "cap": [record(p, 256.0, extra=(0.5, 1.9) if p == "02" else ()) for p in people],
        "headset": [record(p, 128.0) for p in people],
    }
    with pytest.warns(UserWarning, match=r"Left out, because markers cannot be matched: 02\. 02: headset"):
        table = table_from_raws(raws, **SPAN)
    assert set(table.participant) == {"01", "03"}


def test_rows_that_are_kept_are_not_said_to_be_dropped():
    raws = {"cap": record("01", 256.0), "headset": record("01", 128.0, lost=(9, 10), start=1.5)}
    table = table_from_raws(raws, **SPAN)
    assert len(table) == 2 * EVENTS - 2
    assert "24 events in 1 session; 2 without a partner (their rows are kept)" in table.info["pairing"]
    assert "dropped" not in table.info["pairing"]


def test_the_experiments_own_list_settles_triggers_that_belong_to_no_event():
    raws = {"cap": record("01", 256.0, extra=(0.5, 1.9)), "headset": record("01", 128.0)}
    with pytest.raises(PairingError, match=r"01: headset has 24 markers for 26 events.*onsets="):
        table_from_raws(raws, **SPAN)
    table = table_from_raws(raws, onsets={"01": onsets()}, **SPAN)
    assert len(table.require_pairs()) == 2 * EVENTS


def test_recordings_of_two_days_are_paired_by_the_order_of_their_markers():
    first, second = record("01", 256.0), record("02", 128.0)
    second.info["subject_info"] = {"his_id": "01"}
    with pytest.raises(PairingError, match="fails the timing test"):
        table_from_raws({"cap": first, "headset": second}, **SPAN)
    table = table_from_raws({"cap": first, "headset": second}, at_once=False, **SPAN)
    assert len(table.require_pairs()) == 2 * EVENTS
    short = record("01", 128.0, lost=(9,))
    with pytest.raises(PairingError, match=r"headset has 23 markers for 24 events; with at_once=False"):
        table_from_raws({"cap": first, "headset": short}, at_once=False, **SPAN)


def test_annotations_of_bad_stretches_are_no_events_and_their_epochs_are_reported():
    raw = record("01", 256.0)
    raw.annotations.append(onsets()[3], 0.5, "BAD_movement")
    assert len(find_markers(raw)[0]) == EVENTS
    table = table_from_raws({"cap": raw, "headset": record("01", 128.0)}, **SPAN)
    assert "event 4: no epoch on cap" in table.info["pairing"]


def test_one_device_may_name_the_events_of_all():
    raws = {"cap": record("01", 256.0), "headset": record("01", 128.0, stim=True)}
    with pytest.raises(PairingError, match=r"event 1 is 1, face"):
        table_from_raws(raws, **SPAN)
    table = table_from_raws(raws, labels_from="cap", **SPAN)
    assert set(table.label) == {"face", "watch"}


def test_recordings_are_filtered_before_they_are_cut():
    raws = {"cap": record("01", 256.0), "headset": record("01", 128.0)}
    whole, low = (table_from_raws(raws, band=band, **SPAN) for band in (None, (None, 12.0)))
    power = [table.X.reshape(len(table), 3, 5)[:, :, 3].mean() for table in (whole, low)]
    assert power[1] < power[0] - 1  # beta, in logarithms


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (lambda: [record("01", 128.0)] * 2, r"\('01',\) is repeated or does not match"),
        (lambda: np.zeros(3), r"expected mne\.io\.Raw.*table_from_epochs"),
        (lambda: {"01": np.zeros(3)}, r"expected mne\.io\.Raw.*table_from_epochs"),
        (lambda: {("01", "a"): record("01", 128.0)}, r"key \('01', 'a'\) .*; expected .* \(participant\)"),
        (
            lambda: record("01", 128.0).set_annotations(None),
            r"^headset \(01\): A recording has neither annotations nor a trigger.*markers=",
        ),
    ],
)
def test_errors_name_what_helps(second, message):
    with pytest.raises((ValueError, TypeError), match=message):
        table_from_raws({"cap": record("01", 256.0), "headset": second()}, **SPAN)


@pytest.fixture(scope="module")
def bids(tmp_path_factory):
    mne_bids = pytest.importorskip("mne_bids")
    pytest.importorskip("edfio")
    root = tmp_path_factory.mktemp("bids")
    for person in ("01", "02"):
        for device, rate in (("cap", 256.0), ("headset", 128.0)):
            for session in ("a", "b"):
                lost = (5,) if (person, device, session) == ("02", "headset", "b") else ()
                names = {"subject": person, "session": session, "task": "faces", "acquisition": device}
                path = mne_bids.BIDSPath(**names, root=root, datatype="eeg")
                raw = record(person, rate, lost=lost)
                mne_bids.write_raw_bids(raw, path, format="EDF", allow_preload=True, verbose="error")
    return root


def test_a_bids_folder_gives_the_rows_of_its_recordings(bids):
    table = table_from_bids(bids, **SPAN)
    assert sorted(set(table.source)) == ["cap", "headset"]
    assert sorted(set(table.participant)) == ["01", "02"]
    assert len(table) == 2 * 4 * EVENTS - 1
    assert (table.columns["pair_id"] == "").sum() == 1
    assert "95 pairs of 96 events in 4 sessions" in table.info["pairing"]
    alone = table_from_raws({"cap": record("01", 256.0), "headset": record("01", 128.0)}, **SPAN)
    first = (table.participant == "01") & (table.other["session"] == "a")
    # EDF files keep sixteen bits.
    np.testing.assert_allclose(table.X[first], alone.X, atol=0.02)


def test_what_tells_devices_apart_has_to_be_there(bids):
    with pytest.raises(ValueError, match=r"no run, which should distinguish devices.*source="):
        table_from_bids(bids, source="run", **SPAN)
    with pytest.raises(ValueError, match="task="):
        table_from_bids(bids, task="tones", **SPAN)
    with pytest.raises(ValueError, match="expected one of"):
        table_from_bids(bids, source="device", **SPAN)


def test_windows_of_clocks_that_are_apart_are_doubted_when_they_become_a_table():
    """Devices that saw the same signal: right clocks pass in silence, wrong ones are told before any fit."""

    def devices(late):
        raws = {"lab": [], "headset": []}
        for person in ("01", "02", "03", "04"):
            rng = np.random.default_rng(int(person))
            time = np.arange(0, LENGTH, 1 / 100)
            loud = np.repeat(rng.uniform(0.3, 3.0, (len(CHANNELS), 71)), 100, axis=1)[:, : len(time)]
            brain = 1e-5 * loud * rng.normal(size=(len(CHANNELS), len(time)))
            for name, shift in (("lab", 0), ("headset", late)):
                noise = 1e-6 * np.random.default_rng([int(person), shift, len(name)]).normal(size=brain.shape)
                info = mne.create_info(CHANNELS, 100.0, "eeg")
                raw = mne.io.RawArray(np.roll(brain, shift, axis=1) + noise, info, verbose="error")
                raw.info["subject_info"], raw.info["line_freq"] = {"his_id": person}, 50
                raw.set_annotations(mne.Annotations(4 + 2.5 * np.arange(24), 0, ["rest"] * 24))
                raws[name].append(raw)
        return raws

    settings = {"encoder": BandPower(), "tmin": 0.0, "tmax": 1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table_from_raws(devices(0), **settings)
    with pytest.warns(UserWarning, match="The pairs of this table are doubtful"):
        table_from_raws(devices(320), **settings)
