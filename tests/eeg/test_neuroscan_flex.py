"""Simulated files of the Neuroscan/Flex data set come back as they were planted; damaged ones are refused."""

import json
import shutil

import mne
import numpy as np
import pytest

from mgpa.eeg.datasets import neuroscan_flex as dataset
from mgpa.eeg.datasets.flex_files import CHANNELS, read_behaviour, read_flex, read_neuroscan
from mgpa.eeg.pairing import PairingError
from mgpa.eeg.simulate.curry import write_curry
from mgpa.eeg.simulate.edf import write_flex_edf
from mgpa.eeg.simulate.erp import Defects, simulate_flex

N = 40
DEFECTS = {
    ("1014", "N170"): Defects(artifacts=(3, 17), cut_last=True, missing=(20, 21, 22, 23)),
    ("1014", "oddball_active"): Defects(extra=3),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("flex")
    simulate_flex(path, participants=["1013", "1014"], n_events=N, defects=DEFECTS)
    return path


@pytest.fixture(scope="module")
def truth(folder):
    return json.loads((folder / "truth.json").read_text())["participants"]


@pytest.fixture(scope="module")
def n170(folder):
    return dataset.read(folder, "N170")


@pytest.fixture
def session(folder, tmp_path):
    """A copy of the files of 1013's N170, to damage."""
    for path in (folder / "1013").glob("1013_N170_*"):
        shutil.copy(path, tmp_path)
    return tmp_path


def of(trials, participant, source):
    return trials.take((trials.columns["participant"] == participant) & (trials.columns["source"] == source))


# Files


def test_curry_files_hold_data_names_positions_and_events(tmp_path):
    data = 1e-5 * np.random.default_rng(0).normal(size=(3, 2000))
    events = [(100, 1, ""), (500, 3, ""), (700, 1200002, "Impedance"), (1999, 1, "")]
    raw = mne.io.read_raw_curry(
        write_curry(tmp_path / "one.dat", data, ["FP1", "CZ", "OZ"], 1000.0, events), verbose="error"
    )
    np.testing.assert_allclose(raw.get_data(), data, rtol=1e-6, atol=1e-14)
    assert raw.ch_names == ["FP1", "CZ", "OZ"]
    assert raw.info["sfreq"] == 1000.0
    assert raw.get_channel_types() == ["eeg"] * 3
    assert raw.annotations.description.tolist() == ["1", "3", "Impedance", "1"]
    np.testing.assert_allclose(raw.annotations.onset, [0.1, 0.5, 0.7, 1.999], atol=1e-9)


def test_curry_files_without_events_have_none(tmp_path):
    raw = mne.io.read_raw_curry(
        write_curry(tmp_path / "one.dat", np.zeros((1, 100)), ["Cz"], 500.0), verbose="error"
    )
    assert len(raw.annotations) == 0


def test_edf_files_hold_data_and_markers_to_within_a_step_of_the_converter(tmp_path):
    data = 1e-5 * np.random.default_rng(0).normal(size=(2, 300))
    markers = np.arange(300) % 7
    raw = mne.io.read_raw_edf(
        write_flex_edf(tmp_path / "one.edf", data, ["Cz", "Oz"], markers), preload=True, verbose="error"
    )
    np.testing.assert_allclose(raw.get_data(["Cz", "Oz"]) - 4200e-6, data[:, :256], atol=0.07e-6)
    # The header calls markers microvolts, too.
    np.testing.assert_allclose(1e6 * raw.get_data(["MARKER_HARDWARE"])[0], markers[:256], atol=1e-6)


def test_devices_read_back_their_markers(folder, truth):
    plan = truth["1013"]["N170"]
    amplifier = read_neuroscan(folder / "1013" / "1013_N170_neuroscan.dat")
    np.testing.assert_allclose(amplifier.markers, np.array(plan["onset"]) - 3.0, atol=0.0006)
    assert amplifier.signal.shape[0] == 16
    assert amplifier.sfreq == 1000.0
    headset = read_flex(folder / "1013" / "1013_N170_flex.edf")
    clock = plan["flex"]
    own = (np.array(plan["onset"]) - clock["start"]) * (1 + clock["drift"])
    assert len(headset.markers) == N  # the pulse at its start is none
    np.testing.assert_allclose(headset.markers, own, atol=0.5 / 129.05 + 1e-9)
    # Exactly eight samples after the edge, at the physical rate.
    np.testing.assert_allclose((headset.markers * 129.05) % 1, 0, atol=1e-6)


@pytest.mark.parametrize("unit", ["uV", "mV", ""])
def test_a_marker_counts_eight_samples_later_at_the_physical_rate_whatever_its_unit(tmp_path, unit):
    import edfio

    markers = np.zeros(12800)
    markers[:5], markers[100:103], markers[700] = 1, 1, 3
    signals = [
        edfio.EdfSignal(markers, 128, label=name, physical_dimension=its, physical_range=(-32768, 32767))
        for name, its in (*((name, "uV") for name in CHANNELS), ("MARKER_HARDWARE", unit))
    ]
    edfio.Edf(signals).write(tmp_path / "one.edf")
    found = read_flex(tmp_path / "one.edf")
    np.testing.assert_allclose(found.markers, [108 / 129.05, 708 / 129.05], rtol=1e-12)
    np.testing.assert_allclose(found.signal[0], 1e-6 * markers, atol=1e-12)
    assert found.sfreq == 129.05


def test_the_shared_channels_are_the_papers_in_its_order():
    assert " ".join(dataset.CHANNELS) == "Cz Fz Fp1 F3 FT7 CP3 P7 O1 Pz Oz O2 P8 CP4 FT8 F4 Fp2"


def test_the_amplifiers_channels_are_found_in_capitals_and_in_our_order(folder):
    path = folder / "1013" / "1013_N170_neuroscan.dat"
    raw = mne.io.read_raw_curry(path, verbose="error")
    expected = raw.get_data([name.upper() for name in CHANNELS])
    np.testing.assert_array_equal(read_neuroscan(path).signal, expected)


def test_notes_are_kept_apart_from_triggers(folder):
    amplifier = read_neuroscan(folder / "1014" / "1014_N170_neuroscan.dat")
    assert len(amplifier.markers) == N - 4
    assert [text for _, text in amplifier.notes] == ["Impedance"]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("onset,stimulus\n1.0,face\n2.5,watch\n", None),
        ("\ufeffTrial;Stim_Onset;Category\n1;1.0;Face_01.png\n2;2.5;WATCH_7.png\n", None),
        ("t\twhat\ttype\n1.0\tface\tx\n2.5\twatch\tx\n", {"onset": "t", "stimulus": "what"}),
    ],
)
def test_csv_files_may_call_their_columns_differently(tmp_path, text, columns):
    path = tmp_path / "one.csv"
    path.write_text(text, encoding="utf-8")
    onset, label = read_behaviour(path, dataset.LABELS["N170"], columns)
    assert onset.tolist() == [1.0, 2.5]
    assert label == [1, 0]


def test_tone_codes_may_be_written_as_fractions_and_not_within_others(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("onset,stimulus\n1,3.0\n2,1\n")
    assert read_behaviour(path, dataset.LABELS["oddball_active"])[1] == [1, 0]
    path.write_text("onset,stimulus\n1,3.0\n2,13\n")
    with pytest.raises(dataset.RecordingError, match=r"one\.csv, line 3.*'13' is none of 1, 3"):
        read_behaviour(path, dataset.LABELS["oddball_active"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,face\n", "0 columns for the onset of events; its columns are 'a', 'b'"),
        ("time,timestamp,stimulus\n1,1,face\n", "2 columns for the onset"),
        ("onset,stimulus\nsoon,face\n", "line 2, column 'onset': 'soon' is no time"),
        ("onset,stimulus\n1,face\n,watch\n", "line 3, column 'onset': '' is no time"),
        ("onset,stimulus\n1,house\n", "'house' is none of watch, face"),
        ("onset,stimulus\n2,face\n1,face\n", "event 2 is not after event 1"),
        ("onset,stimulus\n", "lists no events"),
        ("", "0 columns"),
    ],
)
def test_csv_files_that_cannot_be_understood_are_named(tmp_path, text, message):
    path = tmp_path / "one.csv"
    path.write_text(text)
    with pytest.raises(dataset.RecordingError, match=r"one\.csv") as error:
        read_behaviour(path, dataset.LABELS["N170"])
    assert message in str(error.value)


# Reading


def test_rows_are_pairs_in_order_with_what_was_planted(n170, truth):
    trials, report = n170
    columns = trials.columns
    assert trials.channels == CHANNELS
    assert trials.data.dtype == np.float32
    assert trials.data.shape[2] == 128
    assert (trials.sfreq, trials.tmin) == (128.0, -0.2)
    assert columns["source"].tolist() == ["Neuroscan", "flex"] * (len(trials) // 2)
    for name in ("participant", "label", "pair_id", "ordinal", "artifact"):
        np.testing.assert_array_equal(columns[name][::2], columns[name][1::2])
    assert len(set(columns["pair_id"])) == len(trials) // 2 == report.pairs
    for person in ("1013", "1014"):
        own = of(trials, person, "flex").columns
        label = np.array(truth[person]["N170"]["label"])
        np.testing.assert_array_equal(own["label"], label[own["ordinal"] - 1])


def test_onsets_are_on_each_devices_own_clock(n170, truth):
    plan = truth["1013"]["N170"]
    onset = np.array(plan["onset"])
    np.testing.assert_allclose(of(n170[0], "1013", "Neuroscan").columns["onset"], onset - 3, atol=0.0006)
    own = (onset - plan["flex"]["start"]) * (1 + plan["flex"]["drift"])
    np.testing.assert_allclose(of(n170[0], "1013", "flex").columns["onset"], own, atol=0.004)


@pytest.mark.parametrize("person", ["1013", "1014"])
def test_clocks_are_measured_as_planted(n170, truth, person):
    plan, timing = truth[person]["N170"], n170[1][person].timing
    drift = 1 + plan["flex"]["drift"]
    # Markers are 7.7 ms apart at best, over some 45 s.
    assert timing["flex against Neuroscan"].slope == pytest.approx(drift, abs=1e-4)
    middle = 30.0
    expected = (middle + 3.0 - plan["flex"]["start"]) * drift
    found = timing["flex against Neuroscan"]
    assert found.slope * middle + found.offset == pytest.approx(expected, abs=0.003)
    assert timing["Neuroscan against events"].slope == pytest.approx(1, abs=1e-5)


def test_everything_dropped_is_reported_with_its_reason(n170):
    trials, report = n170
    session = report["1014"]
    assert (session.events, session.pairs) == (N, N - 5)
    reasons = {one.ordinal: one.reason for one in session.dropped}
    assert reasons == {
        **dict.fromkeys((20, 21, 22, 23), "no marker on Neuroscan"),
        N: "its epoch leaves the recording of Neuroscan",
    }
    kept = of(trials, "1014", "flex").columns["ordinal"].tolist()
    assert kept == [k for k in range(1, N) if k not in (20, 21, 22, 23)]
    assert report["1013"].dropped == ()
    assert "dropped event 40: its epoch leaves" in str(report)


def test_artefacts_are_flagged_exactly_and_for_both_devices(n170):
    trials, report = n170
    flagged = trials.take(trials.columns["artifact"])
    assert flagged.columns["participant"].tolist() == ["1014"] * 4
    assert flagged.columns["ordinal"].tolist() == [3, 3, 17, 17]
    assert flagged.columns["source"].tolist() == ["Neuroscan", "flex"] * 2
    assert report["1014"].artifacts == 2


def test_without_a_limit_there_is_no_artifact_column(folder):
    trials, _ = dataset.read(folder, "N170", ["1014"], artifact=None)
    assert "artifact" not in trials.columns


def test_extra_markers_are_left_out_and_reported(folder):
    trials, report = dataset.read(folder, "P300", ["1014"])
    assert len(trials) == 2 * N
    assert len(report["1014"].dropped) == 3
    assert all("belongs to no event" in str(one) for one in report["1014"].dropped)


def test_epochs_have_no_baseline_and_an_average_reference(n170):
    data = n170[0].data.astype(float)
    assert np.abs(data[:, :, :26].mean(axis=2)).max() < 1e-11
    assert np.abs(data.mean(axis=1)).max() < 1e-11


def test_both_devices_saw_the_same_brain(n170):
    trials = n170[0].take(n170[0].columns["participant"] == "1013")
    a, b = trials.data[::2], trials.data[1::2]
    matched = np.corrcoef(a.ravel(), b.ravel())[0, 1]
    shuffled = np.corrcoef(a.ravel(), np.roll(b, 1, axis=0).ravel())[0, 1]
    assert matched > 0.6
    assert abs(shuffled) < 0.2


@pytest.mark.parametrize(
    ("task", "where", "when", "sign"),
    [
        ("N170", ("P7", "P8"), 0.170, -1),
        ("oddball_active", ("Pz", "CP3", "CP4"), 0.350, 1),
        ("oddball_passive", ("Fz", "F3", "F4"), 0.170, -1),
    ],
)
def test_the_planted_potential_shows_in_averages_of_each_device(folder, task, where, when, sign):
    trials, _ = dataset.read(folder, task)
    trials = trials.take(~trials.columns["artifact"])
    window = np.abs(trials.times - when) < 0.025
    for source in dataset.SOURCES:
        own = trials.take(trials.columns["source"] == source)
        means = [own.take(own.columns["label"] == k).data.mean(axis=0) for k in (0, 1)]
        difference = 1e6 * (means[1] - means[0])
        peak = difference[own.index(where)][:, window].mean()
        assert sign * peak > 1.5, (source, peak)


def test_tasks_go_by_the_papers_names_too(folder):
    by_paper, _ = dataset.read(folder, "mmn", ["1013"])
    by_name, _ = dataset.read(folder, "oddball_passive", ["1013"])
    np.testing.assert_array_equal(by_paper.data, by_name.data)
    with pytest.raises(ValueError, match=r"task is 'P3'; there are N170 \(N170\), oddball_active \(P300\)"):
        dataset.read(folder, "P3")


def test_a_stimulus_can_be_left_out(folder):
    trials, report = dataset.read(folder, "N170", ["1013"], labels={"face": 1, "watch": None})
    assert set(trials.columns["label"]) == {1}
    assert len(trials) // 2 + len(report["1013"].dropped) == N


def test_a_reading_has_the_same_rows_alone_and_among_others(n170, folder):
    alone, _ = dataset.read(folder, "N170", ["1014"])
    among = n170[0].take(n170[0].columns["participant"] == "1014")
    np.testing.assert_array_equal(alone.data, among.data)
    np.testing.assert_array_equal(alone.columns["pair_id"], among.columns["pair_id"])


# Folders


def test_files_are_found_in_any_layout(session):
    deep = session / "Data 2019" / "n170" / "raw" / "P1013"
    deep.mkdir(parents=True)
    for path in list(session.glob("1013_N170*")):
        kind = path.name.rsplit("_", 1)[1]
        name = f"EPOCFLEX_2019.{kind.split('.')[1]}" if kind.endswith("edf") else kind
        path.rename(deep / name)
    # The year in the headset's name is not a participant's id: 1013 comes from the folder.
    (deep / "EPOCFLEX_2019.edf").rename(deep / "EPOCFLEX_20190312.edf")
    found = dataset.find(session)
    assert set(found) == {("1013", "N170")}
    assert set(found["1013", "N170"]) == {"behaviour", "neuroscan", "flex"}
    assert len(dataset.read(session, "N170")[0]) == 2 * N


def test_a_year_beside_a_participants_id_is_no_participant(tmp_path):
    (tmp_path / "1026_N170_2019.edf").touch()
    assert list(dataset.find(tmp_path)) == [("1026", "N170")]


def test_files_that_are_still_being_written_are_not_seen(session):
    hidden = session / ".0123.tmp"
    hidden.mkdir()
    shutil.copy(session / "1013_N170_flex.edf", hidden)
    assert dataset.find(session)["1013", "N170"]["flex"] == session / "1013_N170_flex.edf"


def test_two_files_for_the_same_thing_are_both_named(session):
    shutil.copy(session / "1013_N170_flex.edf", session / "1013_N170_flex (1).edf")
    with pytest.raises(
        dataset.RecordingError, match=r"flex \(1\)\.edf and .*flex\.edf are both the flex of 1013"
    ):
        dataset.read(session, "N170")
    assert len(dataset.inventory(session).problems) == 1


def test_an_inventory_counts_what_the_paper_needs(session):
    shutil.copy(session / "1013_N170_flex.edf", session / "somebody_N170.edf")
    (session / "1013_N170_neuroscan.dap").unlink()
    found = dataset.inventory(session)
    assert len(found.expected) == 3 * (20 + 18 + 18)
    assert found.present == ("1013 N170 behaviour", "1013 N170 neuroscan", "1013 N170 flex")
    assert found.unexpected == ("somebody_N170.edf",)
    assert ["1013_N170_neuroscan.dap" in problem for problem in found.problems] == [True]
    assert not found.complete


def test_missing_folders_people_and_files_are_named(session):
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*nowhere"):
        dataset.read(session / "nowhere", "N170")
    with pytest.raises(
        FileNotFoundError, match="no behaviour and no neuroscan and no flex file of 1020 N170"
    ):
        dataset.read(session, "N170", ["1020"])
    with pytest.raises(ValueError, match="has nobody with oddball_active"):
        dataset.read(session, "oddball_active")
    (session / "1013_N170_flex.edf").rename(session / "1013_N17O_flex.edf")
    with pytest.raises(FileNotFoundError, match="no flex file of 1013 N170"):
        dataset.read(session, "N170")
    assert dataset.inventory(session).unexpected == ("1013_N17O_flex.edf",)


@pytest.mark.parametrize("suffix", ["dap", "rs3", "ceo"])
def test_curry_data_without_a_companion_are_refused(session, suffix):
    (session / f"1013_N170_neuroscan.{suffix}").unlink()
    with pytest.raises(
        FileNotFoundError, match=rf"1013_N170_neuroscan\.dat lacks 1013_N170_neuroscan\.{suffix}"
    ):
        dataset.read(session, "N170")


@pytest.mark.parametrize(
    ("name", "keep"),
    [
        ("neuroscan.dat", 0.6),
        ("neuroscan.dap", 0.3),
        ("neuroscan.rs3", 0.2),
        ("neuroscan.ceo", 0.5),
        ("flex.edf", 0.6),
        ("flex.edf", 0.001),
        ("flex.edf", 0.0),
    ],
)
def test_files_cut_short_are_refused_by_name(session, name, keep):
    path = session / f"1013_N170_{name}"
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(dataset.RecordingError, match="1013_N170_" + name.split(".")[0]):
        dataset.read(session, "N170")


@pytest.mark.parametrize(
    "name", ["neuroscan.dap", "neuroscan.rs3", "neuroscan.ceo", "flex.edf", "behaviour.csv"]
)
def test_files_of_something_else_are_refused_by_name(session, name):
    path = session / f"1013_N170_{name}"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40)
    with pytest.raises(ValueError, match="1013_N170_" + name.split(".")[0]):
        dataset.read(session, "N170")


def test_a_headset_in_an_unknown_unit_is_refused_by_name(session):
    path = session / "1013_N170_flex.edf"
    content = bytearray(path.read_bytes())
    n = int(content[252:256])
    at = 256 + 96 * n + 8 * 3
    content[at : at + 8] = b"counts  "
    path.write_bytes(content)
    with pytest.raises(dataset.RecordingError, match=r"flex\.edf: Fz is in 'counts'; expected uV"):
        dataset.read(session, "N170")


def test_an_amplifier_that_stored_no_number_is_refused_by_name(session):
    path = session / "1013_N170_neuroscan.dat"
    values = np.frombuffer(path.read_bytes(), "<f4").copy()
    values[9000] = np.nan
    path.write_bytes(values.tobytes())
    with pytest.raises(dataset.RecordingError, match=r"neuroscan\.dat holds NaN"):
        dataset.read(session, "N170")


def test_one_session_under_two_ids_is_refused(session):
    for path in sorted(session.iterdir()):
        shutil.copy(path, session / path.name.replace("1013", "1026"))
    with pytest.raises(dataset.RecordingError, match=r"1026_N170_flex\.edf hold the same signals as .* 1013"):
        dataset.read(session, "N170")


def test_a_list_of_events_cut_short_is_refused_by_name(session):
    path = session / "1013_N170_behaviour.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-6]))
    with pytest.raises(PairingError, match=r"both more than the 34 events.*1013_N170_behaviour\.csv"):
        dataset.read(session, "N170")


def test_a_recording_of_other_channels_is_refused(session):
    write_flex_edf(session / "1013_N170_flex.edf", np.zeros((2, 12800)), ["Cz", "T7"], np.zeros(12800))
    with pytest.raises(dataset.RecordingError, match=r"flex\.edf lacks channel Fz, Fp1.*it has COUNTER"):
        dataset.read(session, "N170")


def test_markers_of_another_session_are_refused(session, folder):
    shutil.copy(folder / "1013" / "1013_oddball_active_flex.edf", session / "1013_N170_flex.edf")
    with pytest.raises(PairingError, match=r"1013 N170: The times of flex .* fail.*1013_N170_flex\.edf"):
        dataset.read(session, "N170")


def test_a_gap_needs_its_impedance_note_unless_told_otherwise(tmp_path):
    gap = Defects(missing=(8, 9), impedance=False)
    simulate_flex(
        tmp_path, participants=["1034"], tasks=["N170"], n_events=20, defects={("1034", "N170"): gap}
    )
    with pytest.raises(PairingError, match=r"1034 N170: .*events 8 to 9 seem to have none, but 0 notes"):
        dataset.read(tmp_path, "N170")
    trials, report = dataset.read(tmp_path, "N170", gap_note=None)
    assert (len(trials), report["1034"].pairs) == (36, 18)


def test_events_closer_than_the_limit_stop_everything(session, monkeypatch):
    monkeypatch.setattr(dataset, "MIN_SOA", 1.2)
    with pytest.raises(ValueError, match=r"Events of .*behaviour\.csv: \d+ and \d+ are .* s apart"):
        dataset.read(session, "N170")


# Roles


def test_roles_are_the_papers():
    n170, reuse = dataset.ROLES["N170"], dataset.ROLES["reuse"]
    assert {role: len(people) for role, people in n170.items()} == {"FIT": 4, "VAL": 2, "HEAD": 4, "EVAL": 10}
    assert {role: len(people) for role, people in reuse.items()} == {"FIT": 4, "VAL": 2, "HEAD": 4, "EVAL": 8}
    assert len(dataset.PARTICIPANTS) == len(set(dataset.PARTICIPANTS)) == 20
    assert set(n170["EVAL"]) - set(reuse["EVAL"]) == {"1021", "1034"}


def test_roles_come_with_the_people_who_have_one(n170):
    trials = dataset.with_roles(n170[0])
    assert set(trials.columns["role"]) == {"FIT"}
    assert len(trials) == len(n170[0])
    with pytest.raises(ValueError, match="study is 'n400'"):
        dataset.with_roles(n170[0], "n400")
    with pytest.raises(ValueError, match="Nobody of x has a role in reuse"):
        dataset.with_roles(n170[0].with_columns(participant="x", pair_id=None), "reuse")


# The simulation itself


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.suffix != ".json"}


def test_a_participants_files_do_not_depend_on_the_others(folder, tmp_path):
    simulate_flex(tmp_path, participants=["1013"], n_events=N)
    assert contents(tmp_path / "1013") == contents(folder / "1013")


def test_simulating_again_adds_only_what_is_not_there(tmp_path):
    settings = {"tasks": ["N170"], "n_events": 12}
    simulate_flex(tmp_path, participants=["1013"], **settings)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "1013").iterdir()}
    truth = simulate_flex(tmp_path, participants=["1013", "1016"], **settings)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "1013").iterdir()} == before
    assert set(truth["participants"]) == {"1013", "1016"}
    assert json.loads((tmp_path / "truth.json").read_text()) == truth
    assert len(dataset.find(tmp_path)) == 2


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_a_truth_that_cannot_be_read_is_named(tmp_path, content):
    (tmp_path / "truth.json").write_text(content)
    with pytest.raises(ValueError, match=r"truth\.json cannot be read"):
        simulate_flex(tmp_path, participants=["1013"], tasks=["N170"], n_events=12)


def test_simulating_with_other_settings_into_the_same_folder_is_refused(tmp_path):
    simulate_flex(tmp_path, participants=["1013"], tasks=["N170"], n_events=12)
    with pytest.raises(ValueError, match="random_state 0, not 1"):
        simulate_flex(tmp_path, participants=["1013"], tasks=["N170"], n_events=12, random_state=1)
    defects = {("1013", "N170"): Defects(extra=1)}
    with pytest.raises(ValueError, match="1013 with other defects"):
        simulate_flex(tmp_path, participants=["1013"], tasks=["N170"], n_events=12, defects=defects)


def test_an_interrupted_simulation_leaves_no_half_participant(tmp_path, monkeypatch):
    from mgpa.eeg.simulate import erp

    settings = {"participants": ["1013"], "tasks": ["N170"], "n_events": 12}

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(erp, "_write_flex", interrupted)
        with pytest.raises(KeyboardInterrupt):
            simulate_flex(tmp_path, **settings)
    assert [path.name for path in tmp_path.iterdir()] == ["truth.json"]
    simulate_flex(tmp_path, **settings)
    assert set(dataset.find(tmp_path)["1013", "N170"]) == {"behaviour", "neuroscan", "flex"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tasks": ["N400"]}, r"tasks has \['N400'\]"),
        ({"participants": ["13"]}, "ids have four digits"),
        ({"n_events": 3}, "N170 has 3 events"),
        ({"defects": {("1013", "N170"): Defects(missing=(50,))}}, "name event 50 of 1013 N170"),
        ({"defects": {("1099", "N170"): Defects()}}, "which is not simulated"),
        ({"defects": {("1013", "N170"): Defects(extra=9)}}, "extra is 9"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        simulate_flex(tmp_path / "new", **({"participants": ["1013"], "tasks": ["N170"]} | settings))
    assert not (tmp_path / "new").exists()
