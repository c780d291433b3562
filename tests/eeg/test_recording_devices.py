"""Epochs of two devices become one table: one signal at the same times, paired, and nothing in silence."""

from dataclasses import replace
from datetime import UTC, datetime

import mne
import numpy as np
import pandas
import pytest

import mgpa
from mgpa import audit
from mgpa.eeg import BandPower, align_devices, align_like, encode, table_from_epochs
from mgpa.errors import PairingError
from mgpa.tables import apply_to_table, fit_table, open_table, write_table
from terminal import done, refused

EPOC = ["AF3", "F7", "F3", "FC5", "T7", "P7", "O1", "O2", "P8", "T8", "FC6", "F4", "F8", "AF4"]
BIOSEMI = mne.channels.make_standard_montage("biosemi32").ch_names
PEOPLE = [f"s{i}" for i in range(10)]
EVENTS = 20
# The same potentials in every epoch: nothing tells the events apart, and the pairs are doubted.
pytestmark = pytest.mark.filterwarnings("ignore:The pairs of this table are doubtful")


def onsets(person):
    """When the events were, on the experiment's clock."""
    return 5 + np.cumsum(np.random.default_rng(PEOPLE.index(person)).uniform(1.5, 2.5, EVENTS))


def potential(channel, seconds):
    """What an electrode sees at any time: slow enough for 128 Hz, and the same whoever samples it."""
    k = BIOSEMI.index(channel)
    return 1e-5 * (np.sin(2 * np.pi * (3 + k / 8) * seconds) + 0.5 * np.sin(2 * np.pi * 17 * seconds + k))


def record(person, channels, rate, *, tmin=-0.2, tmax=1.0, start=0.0, slope=1.0, lost=(), **settings):
    """Return a device's epochs of one person; its clock begins at ``start``, ``slope`` times as fast."""
    noise, seed = settings.pop("noise", 0.0), settings.pop("seed", 0)
    sample = np.round((onsets(person) - start) * slope * rate).astype(int)
    first, last = round(tmin * rate), round(tmax * rate)
    # The device samples when it does: the marker falls on the nearest sample.
    at = (sample[:, None] + np.arange(first, last + 1)) / rate / slope + start
    signal = np.stack([potential(name, at) for name in channels], axis=1)
    signal += noise * np.random.default_rng([PEOPLE.index(person), seed]).normal(size=signal.shape)
    info = mne.create_info(list(channels), rate, "eeg")
    info["subject_info"] = {"his_id": person}
    events = np.c_[sample, np.zeros(EVENTS, int), np.tile([1, 2], EVENTS // 2)]
    metadata = pandas.DataFrame(settings) if settings else None
    epochs = mne.EpochsArray(
        signal, info, events, first / rate, {"face": 1, "watch": 2}, metadata=metadata, verbose="error"
    )
    return epochs.drop(list(lost), verbose="error")


def both(people=PEOPLE, epoc=None, biosemi=None):
    return {
        "biosemi": [record(p, BIOSEMI, 512.0, **(biosemi or {})) for p in people],
        "epoc": [record(p, EPOC, 128.0, start=3.7, slope=1.0005, **(epoc or {})) for p in people],
    }


@pytest.fixture(scope="module")
def aligned():
    return align_devices(both())


def test_two_devices_of_other_channels_and_rates_see_the_same_signal_at_the_same_times(aligned):
    trials, _ = aligned
    assert trials.channels == tuple(name for name in BIOSEMI if name in EPOC)
    assert (trials.sfreq, trials.data.shape[2]) == (128.0, 154)
    # At 512 Hz an epoch begins at -102 samples, at 128 Hz at -26: the slower one's times are kept.
    assert trials.tmin == -25 / 128
    source, pair = trials.columns["source"], trials.columns["pair_id"]
    a, b = (np.flatnonzero(source == name) for name in ("biosemi", "epoc"))
    assert pair[a].tolist() == pair[b].tolist()
    inside = slice(10, -10)  # resampling knows nothing of what lies beyond the ends
    # Markers fall on the nearest sample, up to 4 ms away; compare with the potential where each device was.
    for rows, rate, slope, start in ((a, 512.0, 1.0, 0.0), (b, 128.0, 1.0005, 3.7)):
        for row in rows[:5]:
            onset = trials.columns["onset"][row] / slope + start
            truth = np.stack([potential(name, onset + trials.times / slope) for name in trials.channels])
            assert np.abs(trials.data[row] - truth)[:, inside].max() < 0.01e-5, rate


def test_what_samples_already_agree_is_not_touched():
    devices = {
        "a": record("s0", ["O1", "O2"], 128.0, tmin=0.0),
        "b": record("s0", ["O2", "O1"], 128.0, tmin=-0.5, tmax=0.75),
    }
    trials, report = align_devices(devices)
    np.testing.assert_array_equal(trials.data[:EVENTS], devices["a"].get_data()[:, :, :97])
    np.testing.assert_array_equal(trials.data[EVENTS:], devices["b"].get_data()[:, ::-1, 64:])
    assert "128 Hz from 0 to 0.75 s" in report.notes


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_offsets_of_part_of_a_sample_are_interpolated_and_reported(share):
    a = record("s0", ["O1"], 128.0)
    b = record("s0", ["O1"], 128.0)
    b._set_times(b.times + share / 128)  # MNE itself counts whole samples; files of others do not
    trials, report = align_devices({"a": a, "b": b})
    later = trials.data[EVENTS:, 0]
    truth = np.stack([potential("O1", t + trials.times - share / 128) for t in a.events[:, 0] / 128])
    assert np.abs(later - truth)[:, 3:-3].max() < 0.01e-5
    assert any("b interpolated" in note for note in report.notes)


def test_names_in_capitals_and_of_the_old_system_are_the_same_channels():
    old = record("s0", ["O1", "T7", "P8"], 128.0).rename_channels({"O1": "O1 ", "T7": "T3", "P8": "t6"})
    trials, _ = align_devices({"a": record("s0", ["P8", "T7", "O1"], 128.0), "b": old})
    assert trials.channels == ("P8", "T7", "O1")
    np.testing.assert_array_equal(trials.data[:EVENTS], trials.data[EVENTS:])


def test_the_table_fits_corrects_and_saves(tmp_path):
    devices = both(epoc={"noise": 2e-6, "seed": 1}, biosemi={"noise": 1e-6, "seed": 2})
    table = table_from_epochs(devices, encoder=BandPower(), random_state=1)
    assert table.require_pairs().X.shape == (2 * len(PEOPLE) * EVENTS, 14 * 5)
    assert [len(set(table.participant[table.role == role])) for role in ("FIT", "EVAL")] == [4, 2]
    write_table(table, tmp_path / "devices.parquet")
    stored = open_table(tmp_path / "devices.parquet").read()
    assert stored.digest == table.digest
    assert "200 pairs of 200 events in 10 sessions" in stored.info["pairing"]
    m = fit_table(mgpa.ClosedFormMGPA(), table).to_map()
    assert apply_to_table(m, table).X.shape == table.X.shape
    # New epochs come with their own channels and rate, and are brought to the table's.
    for name, epochs in devices.items():
        rows = (table.source == name) & (table.participant == "s3")
        new = encode(align_like(epochs[3].copy().rename_channels(str.upper), stored), BandPower())
        np.testing.assert_array_equal(new.X, table.X[rows])
        apply_to_table(m, new)
    with pytest.raises(ValueError, match=r"to 1 s, at 128 Hz; those of the table from -0\.195"):
        align_like(devices["epoc"][0].copy().crop(0, None), table)
    with pytest.raises(ValueError, match="table_from_epochs made"):
        align_like(devices["epoc"][0], replace(table, info={}))
    with pytest.raises(ValueError, match=r"This AffineMap has no info.*table_from_epochs made"):
        align_like(devices["epoc"][0], m)
    with pytest.raises(ValueError, match=r"in another order.*mgpa\.eeg\.align_like"):
        apply_to_table(m, encode(devices["epoc"][0].copy().reorder_channels(EPOC[::-1]), BandPower()))
    with pytest.raises(TypeError, match=r"is a str; expected mne\.Epochs \(mne\.read_epochs reads a file\)"):
        align_like("s0-epo.fif", table)


def filtered(epochs, low, high):
    """The same epochs, said to be filtered so."""
    several = [one.copy() for one in epochs]
    for one in several:
        with one.info._unlock():
            one.info["highpass"], one.info["lowpass"] = low, high
    return several


def test_filter_baseline_window_and_reference_are_stored_and_compared(tmp_path):
    devices = {name: filtered(epochs, 1.0, 40.0) for name, epochs in both().items()}
    table = table_from_epochs(devices, encoder=BandPower(), random_state=1)
    signals = {"band": [1.0, 40.0], "baseline": None, "reference": None, "unit": "V", "sfreq": 128.0}
    assert signals.items() <= table.info["signals"].items()
    m = fit_table(mgpa.ClosedFormMGPA(), table).to_map()
    m = mgpa.load_map(m.save(tmp_path / "m.safetensors"))
    assert m.info.signals == write_and_read(table, tmp_path / "t.parquet").info["signals"]
    assert "band 1.0 to 40.0" in m.summary()
    [other] = filtered(devices["epoc"][:1], 0.0, 30.0)
    with pytest.warns(
        UserWarning, match=r"another way than those of the fit: band \[0\.0, 30\.0\] instead of \[1"
    ):
        align_like(other, table)
    baselined = devices["epoc"][0].copy().apply_baseline((None, 0))
    with pytest.warns(UserWarning, match=r"baseline \[.*\] instead of None"):
        align_like(baselined, table)
    new = replace(table, info=table.info | {"signals": table.info["signals"] | {"reference": "average"}})
    write_table(new, tmp_path / "new.parquet")
    said = done("apply", "m.safetensors", "new.parquet", "--out", "c.parquet", folder=tmp_path).stderr
    assert (
        "Signals were prepared in another way than those of the fit: reference average instead of None."
        in said
    )
    strict = refused(
        "apply", "m.safetensors", "new.parquet", "--out", "d.parquet", "--strict", folder=tmp_path
    )
    assert strict.startswith("Signals were prepared in another way")
    devices["epoc"] = filtered(devices["epoc"], 0.0, 40.0)
    with pytest.warns(UserWarning, match="Devices were filtered or baselined in different ways"):
        table_from_epochs(devices, encoder=BandPower(), random_state=1)


def write_and_read(table, path):
    return open_table(write_table(table, path)).read()


def test_a_person_whom_one_device_missed_is_named_and_no_clock_is_missed(recwarn):
    devices = both()
    devices["epoc"].pop()
    report = align_devices(devices)[1]
    assert f"no epochs on epoc of {PEOPLE[-1]}" in report.notes
    assert not [w for w in recwarn if "Clocks" in str(w.message)]


def test_everything_left_out_is_named_and_clocks_are_compared(aligned):
    notes = "\n".join(aligned[1].notes)
    assert "14 channels: AF3 F7" in notes
    [others] = [note for note in aligned[1].notes if note.startswith("left out of biosemi")]
    assert set(others.split(": ")[1].split()) == set(BIOSEMI) - set(EPOC)
    assert "biosemi resampled from 512 Hz" in notes
    timing = aligned[1].timing["s3"]["epoc against biosemi"]
    assert timing.slope == pytest.approx(1.0005, abs=1e-4)
    assert timing.offset == pytest.approx(-3.7 * 1.0005, abs=0.01)
    assert timing.max_residual < 0.01


def test_events_that_a_device_lost_stay_without_a_partner_and_are_reported():
    trials, report = align_devices(both(["s0", "s1"], epoc={"lost": (5, 11)}))
    alone = trials.columns["pair_id"] == ""
    assert trials.columns["event"][alone].tolist() == [5, 11, 5, 11]
    assert set(trials.columns["source"][alone]) == {"biosemi"}
    assert report.pairs == {"s0": 18, "s1": 18}
    assert report.dropped["s1"] == ["event 5: no epoch on epoc", "event 11: no epoch on epoc"]


def test_events_numbered_wrongly_fail_the_clocks_and_are_told_what_finds_them():
    # One trigger was lost while recording, so that everything after it has another number.
    shifted = record("s0", EPOC, 128.0, lost=(7,))
    shifted.reset_drop_log_selection()
    with pytest.raises(PairingError, match=r"event 7 is face, watch.*mgpa\.eeg\.match_events"):
        align_devices({"biosemi": record("s0", BIOSEMI, 512.0), "epoc": shifted})
    one = record("s0", BIOSEMI, 512.0)
    for epochs in (one, shifted):
        epochs.events[:, 2] = 1
        epochs.event_id = {"tone": 1}
    with pytest.raises(PairingError, match=r"s0: epoc against biosemi.*timing test.*mgpa\.eeg\.match_events"):
        align_devices({"biosemi": one, "epoc": shifted})


def test_epochs_without_times_warn():
    devices = {"a": record("s0", ["O1"], 128.0), "b": record("s0", ["O1"], 128.0)}
    for epochs in devices.values():
        epochs.events[:, 0] = np.arange(EVENTS)
    with pytest.warns(UserWarning, match=r"Clocks cannot be compared.*paired only by event"):
        trials, report = align_devices(devices)
    assert any(note.startswith("clocks not compared") and "s0" in note for note in report.notes)
    assert np.isnan(trials.columns["onset"]).all()


def test_mondays_are_not_paired_with_fridays_even_where_a_script_gave_both_the_same_times():
    def sessions(rate):
        parts = [record("s0", ["O1"], rate, session=[k] * EVENTS, event=range(EVENTS)) for k in (1, 2)]
        for epochs, day in zip(parts, (2, 6), strict=True):
            epochs.info.set_meas_date(datetime(2026, 11, day, 9, tzinfo=UTC))
        return parts

    a, b = sessions(128.0), sessions(256.0)
    align_devices({"a": a, "b": b}, pair_by=("session", "event"))
    for epochs in b:
        epochs.metadata["session"] = 3 - epochs.metadata["session"]
    message = r"s0/1: b against a: recorded on 2026-11-06 and on 2026-11-02.*set_meas_date\(None\)"
    with pytest.raises(PairingError, match=message):
        align_devices({"a": [a[0]], "b": [b[1]]}, pair_by=("session", "event"))
    align_devices({"a": [a[0]], "b": [b[1]]}, pair_by=("session", "event"), at_once=False)
    b[1].info.set_meas_date(None)
    align_devices({"a": [a[0]], "b": [b[1]]}, pair_by=("session", "event"))


def test_bad_flat_and_loud_channels_are_named_and_used():
    devices = both(["s0", "s1"])
    devices["epoc"][1].info["bads"] = ["T7"]
    devices["biosemi"][0]._data[:, BIOSEMI.index("O1")] = 3e-5
    for epochs in devices["epoc"]:
        epochs.apply_function(lambda signal: 1e6 * signal, verbose="error")
    message = r"O1: flat on biosemi \(s0\); T7: bad on epoc \(s1\); epoc \(s0\) has signals of [\d.]+ V"
    with pytest.warns(UserWarning, match=message):
        trials, report = align_devices(devices)
    assert {"O1: flat on biosemi (s0)", "T7: bad on epoc (s1)"} <= set(report.notes)
    assert {"O1", "T7"} <= set(trials.channels)
    assert [note[:9] for note in report.notes if "has signals of" in note] == ["epoc (s0)", "epoc (s1)"]


def test_columns_say_who_what_and_which_event():
    code = np.arange(EVENTS) + 100
    names = {"who": ["x"] * EVENTS, "kind": ["a", "b"] * 10, "code": code, "age": [30] * EVENTS}
    cap = record("s0", ["O1"], 128.0, **names)
    headset = record("s0", ["O1"], 128.0, **{k: v for k, v in names.items() if k != "age"})
    trials, report = align_devices(
        {"cap": cap, "headset": headset}, pair_by="code", participant="who", label="kind"
    )
    assert trials.columns["participant"][0] == "x"
    assert trials.columns["pair_id"][0] == "x/100"
    assert set(trials.columns["label"]) == {"a", "b"}
    assert any("lack them: age" in note for note in report.notes)


def test_events_that_begin_again_are_told_apart_by_session():
    def sessions(rate):
        return [record("s0", ["O1"], rate, session=[k] * EVENTS, event=range(EVENTS)) for k in (1, 2)]

    devices = {"a": sessions(128.0), "b": sessions(256.0)}
    with pytest.raises(PairingError, match=r"event 0 occurs twice on a.*pair_by=\('session', 'event'\)"):
        align_devices(devices)
    trials, report = align_devices(devices, pair_by=("session", "event"))
    assert report.pairs == {"s0/1": EVENTS, "s0/2": EVENTS}
    assert trials.columns["pair_id"][0] == "s0/1/0"


def failing():
    def second(*channels, person="s0", **settings):
        return record(person, channels or ["O1"], 128.0, **settings)

    eog = second().set_channel_types({"O1": "eog"}, verbose="error")
    nameless, broken = second(), second()
    nameless.info["subject_info"] = None
    broken.get_data(copy=False)[3] = np.nan
    raw = mne.io.RawArray(np.zeros((1, 9)), mne.create_info(1, 1.0), verbose="error")
    coded = second(event=np.arange(EVENTS) + 500)
    return [
        (second("O2"), {}, ValueError, r"b has no channel O1\. Channels: O2.*rename_channels"),
        (second("O1", "O2").rename_channels({"O2": "o1"}), {}, ValueError, r"'O1' and 'o1'.*rename_channels"),
        (second(tmin=2.0, tmax=3.0), {}, ValueError, r"no time in common"),
        (coded, {}, PairingError, r"No event was recorded on two.*500.*mgpa\.eeg\.match_events"),
        (second(person="s1"), {}, PairingError, r"No event was recorded.*b has participant s1; b has"),
        (nameless, {}, ValueError, r"no column 'participant'.*participant=.*his_id"),
        (coded, {"participant": "subject"}, ValueError, r"default: .*his_id"),
        (broken, {}, ValueError, r" \(s0\) contains NaN or infinite values in 1 of 20 rows \(first: row 3\)"),
        (coded, {"label": "kind"}, ValueError, r"no column 'kind'\. Metadata columns: none\..*label="),
        (coded, {"pair_by": "code"}, ValueError, r"no column 'code'.*pair_by=.*match_events"),
        (second(source=["z"] * EVENTS), {}, ValueError, r"other sources; rename that column"),
        (eog, {}, ValueError, r"no EEG channels"),
        (raw, {}, TypeError, r"b is a RawArray; expected mne\.Epochs.*mgpa\.eeg\.table_from_raws"),
        ([], {}, ValueError, r"list of b is empty"),
    ]


@pytest.mark.parametrize(("second", "settings", "error", "message"), failing())
def test_errors_name_what_helps(second, settings, error, message):
    devices = {"a": record("s0", ["O1"], 128.0), "b": second}
    with pytest.raises(error, match=message):
        align_devices(devices, **settings)


def test_people_who_are_too_few_for_the_roles_take_turns_in_an_audit():
    with pytest.warns(UserWarning, match="3 participants are too few for the roles.*rotates roles"):
        table = table_from_epochs(both(["s0", "s1", "s2"]), encoder=BandPower())
    assert table.role is None
    result = audit.run(table, ["leace"], readers={"restarts": 0}, verbose=False)
    assert result["leace"].participants == ("s0", "s1", "s2")
    table = table_from_epochs(both(["s0", "s1"]), encoder=BandPower(), roles={"FIT": 1})
    assert set(table.role) == {"FIT"}
    with pytest.raises(ValueError, match="2 participants cannot fill the 3 roles"):
        table_from_epochs(
            both(["s0", "s1"]), encoder=BandPower(), roles=dict.fromkeys(("FIT", "HEAD", "EVAL"), 1)
        )


def test_roles_in_the_metadata_stay():
    devices = {
        name: [record(p, ["O1"], 128.0, role=[role] * EVENTS) for p, role in (("s0", "FIT"), ("s1", "EVAL"))]
        for name in ("a", "b")
    }
    table = table_from_epochs(devices, encoder=BandPower())
    assert set(table.role[table.participant == "s1"]) == {"EVAL"}
    with pytest.raises(ValueError, match="already have a column 'role'"):
        table_from_epochs(devices, encoder=BandPower(), roles={"FIT": 1})


def test_another_rate_channels_and_reference_can_be_asked_for_of_two_devices_by_name():
    trials, report = align_devices(both(["s0"]), sfreq=64.0, channels=["o1", "O2"], reference=["O1", "o2"])
    assert any(note.startswith("left out of epoc, not asked for: AF3") for note in report.notes)
    assert (trials.sfreq, trials.channels) == (64.0, ("o1", "O2"))
    np.testing.assert_allclose(trials.data.sum(axis=1), 0, atol=1e-15)
    for alone in ([record("s0", ["O1"], 128.0)] * 2, {"a": record("s0", ["O1"], 128.0)}):
        with pytest.raises(ValueError, match=r"two devices or more by name.*mgpa\.eeg\.measure_views"):
            align_devices(alone)
