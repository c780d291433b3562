"""Simulated files of the Neuroscan/Flex data set come back as they were planted; damaged ones are refused."""

import json
import shutil

import mne
import numpy as np
import pytest

from mgpa.eeg.trials import Trials
from mgpa.errors import PairingError
from mgpa.paper.datasets import neuroscan_flex as dataset
from mgpa.paper.datasets.raw_files import CHANNELS, read_behaviour, read_flex, read_neuroscan
from mgpa.paper.simulate import erp
from mgpa.paper.simulate.erp import FULL_EVENTS, simulate_flex
from mgpa.paper.simulate.files import write_curry

N = 40
DEFECTS = {
    ("1020", "N170"): {
        "artifacts": (3, 17),
        "cut_last": True,
        "missing": (20, 21, 22, 23),
        "clock_break": 2.0,
    },
    ("1020", "oddball_active"): {"extra": 3},
}
RAW = "Saline Raw Data"


def files_of(person, task, kind, folder=RAW):
    """Where the simulation puts a file, as a path below a folder."""
    name = {"csv": f"behav/{person}_{task}.csv", "edf": f"eeg/emotiv/{person}_{task}_2018.edf"}.get(
        kind, f"eeg/neuroscan/{person}_{task}.{kind}"
    )
    return f"{folder}/{task}/{name}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("flex")
    simulate_flex(path, participants=["1019", "1020"], n_events=N, defects=DEFECTS)
    return path


@pytest.fixture(scope="module")
def truth(folder):
    return json.loads((folder / "truth.json").read_text())["participants"]


@pytest.fixture(scope="module")
def n170(folder):
    return dataset.read_neuroscan_flex(folder, "N170")


@pytest.fixture
def session(folder, tmp_path):
    """A copy of the files of 1019's N170, to damage."""
    for path in (folder / RAW / "N170").rglob("1019_*"):
        copy = tmp_path / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return tmp_path


def session_file(session, kind):
    return session / files_of("1019", "N170", kind)


def of(trials, participant, source):
    return trials.take((trials.columns["participant"] == participant) & (trials.columns["source"] == source))


# Files


def test_devices_read_back_their_markers(folder, truth):
    plan = truth["1019"]["N170"]
    signal, sfreq, markers, _ = read_neuroscan(folder / files_of("1019", "N170", "dat"))
    np.testing.assert_allclose(markers, np.array(plan["onset"]) - 3.0, atol=0.0006)
    assert (len(signal), sfreq) == (16, 1000.0)
    _, _, markers, _ = read_flex(folder / files_of("1019", "N170", "edf"))
    clock = plan["flex"]
    own = (np.array(plan["onset"]) - clock["start"]) * (1 + clock["drift"])
    assert len(markers) == N  # the pulse at its start is none
    np.testing.assert_allclose(markers, own, atol=0.5 / 129.05 + 1e-9)
    # Exactly eight samples after the edge, at the physical rate.
    np.testing.assert_allclose((markers * 129.05) % 1, 0, atol=1e-6)


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
    signal, sfreq, events, _ = read_flex(tmp_path / "one.edf")
    np.testing.assert_allclose(events, [108 / 129.05, 708 / 129.05], rtol=1e-12)
    np.testing.assert_allclose(signal[0], 1e-6 * markers, atol=1e-12)
    assert sfreq == 129.05


def test_the_shared_channels_are_the_papers_in_its_order():
    assert " ".join(dataset.CHANNELS) == "Cz Fz Fp1 F3 FT7 CP3 P7 O1 Pz Oz O2 P8 CP4 FT8 F4 Fp2"


def test_the_amplifiers_channels_are_found_in_capitals_and_in_our_order(folder):
    path = folder / files_of("1019", "N170", "dat")
    raw = mne.io.read_raw_curry(path, verbose="error")
    assert {"M1", "M2", "VEO"} < set(raw.ch_names)
    np.testing.assert_array_equal(read_neuroscan(path)[0], raw.get_data([n.upper() for n in CHANNELS]))


N170_HEADER = "trial,eventCode,stimCat,stimOrient,stimElapsedTime\n"


@pytest.mark.parametrize(
    "text",
    [
        N170_HEADER + "1,3,face,upright,1.0\n2,2,watch,inverted,2.5\n",
        # A byte order mark, blanks around everything, Windows line ends, a blank line at the end.
        "\ufefftrial , eventCode, stimCat , stimOrient, stimElapsedTime\r\n"
        " 1, 3, face , upright, 1.0 \r\n 2 , 2, watch, inverted , 2.5\r\n,,,,\r\n\r\n",
        # Other columns, two of them without a name, in another order; quotes.
        'stimElapsedTime,,stimCat,note,,stimOrient,eventCode,trial\n1.0,a,face,"x, y",b,upright,3,1\n'
        '2.5,a,"watch",,b,inverted,2,2\n',
    ],
)
def test_csv_files_of_faces_and_watches_are_read_by_their_columns(tmp_path, text):
    path = tmp_path / "1013_x.csv"
    path.write_bytes(text.encode())
    onset, label, facts = read_behaviour(path, "N170")
    assert onset.tolist() == [1.0, 2.5]
    assert label.tolist() == [1, 0]
    assert facts["orientation"].tolist() == ["upright", "inverted"]
    assert facts["event_code"].tolist() == [3, 2]


@pytest.mark.parametrize("task", ["oddball_active", "oddball_passive"])
def test_csv_files_of_tones_are_read_by_their_columns(tmp_path, task):
    path = tmp_path / "one.csv"
    path.write_text("trial,tone,elapsed_time\n1,3.0,1\n2, 1 ,2\n")
    onset, label, _ = read_behaviour(path, task)
    assert (onset.tolist(), label.tolist()) == ([1.0, 2.0], [1, 0])
    path.write_text("trial,tone,elapsed_time\n1,3,1\n2,13,2\n")
    with pytest.raises(dataset.RecordingError, match=r"one\.csv, line 3: tone is '13'; expected 1 or 3"):
        read_behaviour(path, task)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,face\n", "0 columns 'trial'; expected one each of trial, stimElapsedTime, stimCat"),
        ("stimCat," + N170_HEADER + "face,1,1,face,upright,1\n", "2 columns 'stimCat'"),
        (N170_HEADER + "1,1,face,upright,soon\n", "line 2: stimElapsedTime is 'soon'; expected a number"),
        (N170_HEADER + "1,1,face,upright,1\n2,1,face,upright\n", "line 3: stimElapsedTime is ''; expected"),
        (N170_HEADER + "1,1,house,upright,1\n", "stimCat is 'house'; expected watch or face"),
        (N170_HEADER + "1,x,face,upright,1\n", "line 2: eventCode is 'x'; expected a number"),
        (N170_HEADER + "1,1,face,upright,2\n2,1,face,upright,1\n", "line 3: stimElapsedTime is '1'"),
        (N170_HEADER + "1,1,face,upright,1\n3,1,face,upright,2\n", "line 3: trial is '3'; expected trials"),
        (N170_HEADER, "lists no events"),
        ("", "cannot be read as CSV"),
    ],
)
def test_csv_files_that_cannot_be_understood_are_named(tmp_path, text, message):
    path = tmp_path / "one.csv"
    path.write_text(text)
    with pytest.raises(dataset.RecordingError, match=r"one\.csv") as error:
        read_behaviour(path, "N170")
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
    assert len(set(columns["pair_id"])) == len(trials) // 2 == sum(report.pairs.values())
    for person in ("1019", "1020"):
        own = of(trials, person, "flex").columns
        label = np.array(truth[person]["N170"]["label"])
        np.testing.assert_array_equal(own["label"], label[own["ordinal"] - 1])
        # Codes say category and orientation; the amplifier's were 1 to 4.
        inverted = own["orientation"] == "inverted"
        np.testing.assert_array_equal(own["event_code"], 1 + 2 * own["label"] + inverted)


def test_each_side_of_a_clock_break_is_measured(n170):
    timing = n170[1].timing
    first, second = (timing["1020"][f"flex against Neuroscan, {side}"] for side in ("1 to 19", "24 to 40"))
    assert second.offset - first.offset == pytest.approx(-2.0, abs=0.05)
    assert list(timing["1019"]) == ["flex against Neuroscan"]


def test_everything_dropped_is_reported_with_its_reason(n170):
    trials, report = n170
    assert report.notes == ()
    assert (report.events["1020"], report.pairs["1020"]) == (N, N - 5)
    assert report.dropped["1020"] == [
        *(f"event {k}: no marker on Neuroscan" for k in (20, 21, 22, 23)),
        f"event {N}: its epoch leaves the recording of Neuroscan",
    ]
    kept = of(trials, "1020", "flex").columns["ordinal"].tolist()
    assert kept == [k for k in range(1, N) if k not in (20, 21, 22, 23)]
    assert report.dropped["1019"] == []
    assert "dropped event 40: its epoch leaves" in str(report)


def test_artefacts_are_flagged_exactly_and_for_both_devices(n170):
    trials = n170[0]
    flagged = trials.take(trials.columns["artifact"])
    assert flagged.columns["participant"].tolist() == ["1020"] * 4
    assert flagged.columns["ordinal"].tolist() == [3, 3, 17, 17]
    assert flagged.columns["source"].tolist() == ["Neuroscan", "flex"] * 2


# Folders


@pytest.mark.parametrize("around", ["", "raw", "Emotiv EPOC Flex Saline Validation/deeper"])
def test_the_folder_of_the_tasks_may_lie_in_others(session, around):
    (session / around).mkdir(parents=True, exist_ok=True)
    if around:
        shutil.move(session / RAW, session / around / RAW)
        # The project has other parts, too, of the same tasks.
        (session / "Gel Raw Data" / "N170" / "behav").mkdir(parents=True)
    for root in (session, session / around / RAW):
        assert set(dataset.find(root)) == {("1019", "N170")}
        assert set(dataset.find(root)["1019", "N170"]) == {"behaviour", "neuroscan", "flex"}


def test_the_id_is_what_a_name_begins_with(tmp_path):
    place = tmp_path / "oddball_active" / "eeg" / "emotiv"
    place.mkdir(parents=True)
    for name in ("1026_1032_2019.edf", "x_1027_P300.edf", "1028 P300.edf", "10290_x.edf", "1030_x.EDF"):
        (place / name).touch()
    assert list(dataset.find(tmp_path)) == [("1030", "oddball_active"), ("1026", "oddball_active")]


def strew(folder):
    """Put beside a session what lies about in real folders."""
    task = folder / RAW / "N170"
    emotiv, neuroscan = task / "eeg" / "emotiv", task / "eeg" / "neuroscan"
    shutil.copy(folder / files_of("1019", "N170", "edf"), emotiv / "1019_N170_2018 (1).edf")
    shutil.copy(folder / files_of("1019", "N170", "edf"), emotiv / "Copy of 1019_N170.edf")
    shutil.copy(folder / files_of("1019", "N170", "dat"), neuroscan / "1019_N170 copy.dat")
    (emotiv / "1019_N170_2018.csv").write_text("COUNTER,Cz\n0,4200\n")
    (emotiv / "._1019_N170_2018.edf").write_bytes(b"Mac OS X")
    (emotiv / "old").mkdir()
    (emotiv / "old" / "1019_N170_first.edf").write_bytes(b"another")
    (task / "behav" / "summary.csv").write_text("person,accuracy\n1019,1\n")
    # People without a role: files that would be refused if anybody looked at them.
    for person in ("1015", "1017", "1035"):
        (task / "behav" / f"{person}_N170.csv").write_text("nothing")
        (emotiv / f"{person}_a.edf").write_bytes(b"a")
        (emotiv / f"{person}_b.edf").write_bytes(b"b")
        (neuroscan / f"{person}_N170.dat").write_bytes(b"")


def test_strays_copies_and_people_without_a_role_change_no_bit(session):
    clean, before = dataset.read_neuroscan_flex(session, "N170")
    strew(session)
    strewn, after = dataset.read_neuroscan_flex(session, "N170")
    assert strewn.data.tobytes() == clean.data.tobytes()
    assert str(after) == str(before)
    for name, values in clean.columns.items():
        np.testing.assert_array_equal(strewn.columns[name], values)
    found = dataset.neuroscan_flex_inventory(session, ["N170"])
    assert not found.problems


@pytest.mark.parametrize(("task", "person"), [("N170", "1015"), ("MMN", "1034"), ("P300", "1021")])
def test_people_without_a_part_in_a_task_are_not_read(folder, task, person):
    with pytest.raises(ValueError, match=f"{person} did not take part in"):
        dataset.read_neuroscan_flex(folder, task, [person])


def test_those_who_are_used_are_the_papers():
    recorded = [str(i) for i in range(1013, 1035)]
    assert set(recorded) - set(dataset.USED["N170"]) == {"1015", "1017"}
    assert set(recorded) - set(dataset.USED["oddball_active"]) == {"1015", "1017", "1021", "1034"}
    judges = {"1019", "1020", "1024", "1025", *(str(i) for i in range(1026, 1034))}
    assert set(dataset.USED["oddball_passive"]) == judges
    # Six files each make the 300 that the studies need.
    assert 6 * sum(map(len, dataset.USED.values())) == 300


def test_two_different_files_for_the_same_thing_are_both_named(session):
    recording = session_file(session, "edf")
    (recording.with_name("1019_N170_2018 (1).edf")).write_bytes(recording.read_bytes()[:-2])
    with pytest.raises(
        dataset.RecordingError,
        match=r"2018\.edf and .*2018 \(1\)\.edf are both the flex of 1019 N170, and differ",
    ):
        dataset.read_neuroscan_flex(session, "N170")
    assert len(dataset.neuroscan_flex_inventory(session).problems) == 1


def test_an_inventory_counts_what_the_paper_needs(session):
    session_file(session, "dap").unlink()
    found = dataset.neuroscan_flex_inventory(session)
    assert len(found.present + found.missing) == 3 * (20 + 18 + 12)
    assert found.present == ("1019 N170 behaviour", "1019 N170 neuroscan", "1019 N170 flex")
    assert ["1019_N170.dap" in problem for problem in found.problems] == [True]
    assert not found.complete


def test_missing_folders_people_and_files_are_named(session):
    with pytest.raises(FileNotFoundError, match=r"No folder .*nowhere"):
        dataset.read_neuroscan_flex(session / "nowhere", "N170")
    with pytest.raises(
        FileNotFoundError, match="no behaviour and no neuroscan and no flex file of 1020 N170"
    ):
        dataset.read_neuroscan_flex(session, "N170", ["1020"])
    with pytest.raises(ValueError, match="has no files of oddball_active"):
        dataset.read_neuroscan_flex(session, "oddball_active")
    recording = session_file(session, "edf")
    recording.rename(recording.with_name("N170_1019.edf"))
    with pytest.raises(FileNotFoundError, match="no flex file of 1019 N170"):
        dataset.read_neuroscan_flex(session, "N170")


def cut(share):
    return lambda content: content[: int(share * len(content))]


def not_a_number(content):
    return np.float32(np.nan).tobytes() + content[4:]  # of Cz, which comes first


def picture(content):
    return b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        *(("dat", cut(0.6)), ("dap", cut(0.3)), ("ceo", cut(0.5)), ("edf", cut(0.6))),
        *(("rs3", picture), ("edf", picture), ("csv", picture), ("dat", not_a_number)),
    ],
)
def test_damaged_files_are_refused_by_name(session, kind, damage):
    path = session_file(session, kind)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(dataset.RecordingError, match="1019_N170"):
        dataset.read_neuroscan_flex(session, "N170")


def rewritten(path, events):
    """Write a session's Curry files again with other events."""
    raw = mne.io.read_raw_curry(path, verbose="error")
    write_curry(path, raw.get_data(), raw.ch_names, raw.info["sfreq"], events)


def test_a_gap_needs_its_note_and_no_epoch_spans_that(tmp_path):
    gap = {("1034", "N170"): {"missing": (13, 14), "clock_break": 5.0}}
    truth = simulate_flex(tmp_path, participants=["1034"], tasks=["N170"], n_events=30, defects=gap)
    path = tmp_path / files_of("1034", "N170", "dat")
    trials, report = dataset.read_neuroscan_flex(tmp_path, "N170")
    assert report.pairs["1034"] == 28
    onset = [round(1000 * t) for t in read_neuroscan(path)[2]]
    code = [int(x) for x in trials.columns["event_code"][::2]]
    events = [(t, c, "") for t, c in zip(onset, code, strict=True)]
    rewritten(path, events)
    with pytest.raises(PairingError, match=r"1034 N170: .*events 13 to 14 seem to have none.*there are 0"):
        dataset.read_neuroscan_flex(tmp_path, "N170")
    # Half a second after the last event before the gap, whose epoch lasts longer.
    rewritten(path, sorted([*events, (onset[11] + 500, 1200002, "Impedance check")]))
    _, report = dataset.read_neuroscan_flex(tmp_path, "N170")
    assert truth["participants"]["1034"]["N170"]["defects"]["missing"] == (13, 14)
    assert report.dropped["1034"][-1] == "event 12: its epoch spans the break"
    assert report.pairs["1034"] == 27


def test_markers_are_texts_of_digits_from_1_to_10_and_nothing_else(session):
    path = session_file(session, "dat")
    before = dataset.read_neuroscan_flex(session, "N170")[0]
    onset = [round(1000 * t) for t in read_neuroscan(path)[2]]
    code = [int(x) for x in before.columns["event_code"][::2]]
    events = [(t, c, "") for t, c in zip(onset, code, strict=True)]
    noise = [(onset[3] + 300, 11, ""), (onset[5] + 300, 255, ""), (onset[7] + 300, 1200004, "Stimulus 3 on")]
    rewritten(path, sorted(events + noise))
    assert [text for _, text in read_neuroscan(path)[3]] == ["11", "255", "Stimulus 3 on"]
    np.testing.assert_array_equal(dataset.read_neuroscan_flex(session, "N170")[0].data, before.data)


def test_events_closer_than_the_limit_stop_everything(session, monkeypatch):
    monkeypatch.setattr(dataset, "MIN_SOA", 1.2)
    with pytest.raises(ValueError, match=r"Events of .*1019_N170\.csv: \d+ and \d+ are .* s apart"):
        dataset.read_neuroscan_flex(session, "N170")
    # A device may have its marker late: the experiment's own times count.
    monkeypatch.setattr(
        dataset, "MIN_SOA", float(np.diff(read_behaviour(session_file(session, "csv"), "N170")[0]).min())
    )
    assert len(dataset.read_neuroscan_flex(session, "N170")[0]) == 2 * N


# Roles


def counted(task, per_person, artifacts=0, late=0.0):
    """Trials of all participants in a task, with nothing in them but what is counted."""
    people = dataset.USED[task]
    ordinal = np.tile(np.repeat(np.arange(1, per_person + 1), 2), len(people))
    device = np.tile([0, 1], per_person * len(people))
    columns = {
        "participant": np.repeat(people, 2 * per_person),
        "source": np.array(dataset.SOURCES)[device],
        "task": np.full(len(ordinal), task),
        "ordinal": ordinal,
        # The event after the calibration ones comes sooner on one device.
        "onset": 1.5 * ordinal - late * ((ordinal == 101) & (device == 1)),
        "artifact": ordinal <= artifacts,
    }
    return Trials(
        np.zeros((len(ordinal), 1, 2)), ["Cz"], 128.0, columns=columns, info={"artifact_limit": 1e-4}
    )


def test_clean_n170_pairs_are_counted_beside_the_published_ones():
    checks = dataset.count_checks(counted("N170", 300, artifacts=100))
    assert list(checks.values()) == [(622, 800), (288, 400), (716, 800), (1381, 2000)]
    assert next(iter(checks)) == "clean N170 pairs of FIT"


@pytest.mark.parametrize(("late", "left"), [(0.0, 2264), (0.6, 2260)])
def test_p300_events_are_counted_after_calibration_and_purge(late, left):
    checks = dataset.count_checks(counted("oddball_active", 666, late=late))
    assert list(checks.values()) == [(2260, left), (1332, 1332)]


# The simulation itself


def test_the_complete_simulation_counts_as_the_recorded_data_set():
    assert FULL_EVENTS == {"N170": 300, "oddball_active": 666, "oddball_passive": 666}
    person = erp.draw_people(["1026"])[0]
    ones = {task: sum(erp._plan(person, task, n, erp.NO_DEFECTS)["label"]) for task, n in FULL_EVENTS.items()}
    assert ones == {"N170": 150, "oddball_active": 99, "oddball_passive": 99}


def test_defects_of_the_recorded_data_set_are_read_as_they_should_be(tmp_path):
    people = ["1016", "1018", "1034"]
    simulate_flex(tmp_path, participants=people, tasks=["N170", "oddball_passive"], n_events=40)
    trials, report = dataset.read_neuroscan_flex(tmp_path, "N170")
    assert [report.pairs[person] for person in people] == [40, 40, 36]
    # A run that was broken off, of which the headset knows nothing.
    assert len(read_neuroscan(tmp_path / files_of("1016", "N170", "dat"))[2]) == 50
    assert len(report.dropped["1016"]) == 10
    # Four missed in the middle, with a note and a clock that jumped.
    notes = read_neuroscan(tmp_path / files_of("1034", "N170", "dat"))[3]
    assert [text for _, text in notes] == ["Impedance"]
    assert [one.split(":")[0] for one in report.dropped["1034"]] == [f"event {k}" for k in (21, 22, 23, 24)]
    sides = [report.timing["1034"][f"flex against Neuroscan, {side}"] for side in ("1 to 20", "25 to 40")]
    assert sides[1].offset - sides[0].offset == pytest.approx(-5.0, abs=0.1)
    # The headset's own csv file is not a list of events.
    assert (tmp_path / files_of("1018", "N170", "edf")).with_suffix(".csv").exists()
    # The first three of the passive oddball have no marker; they are not read, and would be refused.
    markers = read_neuroscan(tmp_path / files_of("1034", "oddball_passive", "dat"))[2]
    assert len(markers) == 37
    with pytest.raises(ValueError, match="has no files of oddball_passive"):
        dataset.read_neuroscan_flex(tmp_path, "MMN")
    assert set(trials.columns["participant"]) == set(people)
