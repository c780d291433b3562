"""Trials of MNE epochs: as they come by default, with what MNE would drop, rename or leave out on its own."""

from dataclasses import replace

import mne
import numpy as np
import pandas as pd
import pytest

from mgpa.eeg.features import BandPower
from mgpa.eeg.trials import Trials, encode
from mgpa.tables import TableError

EVENTS = np.array([[50 + 100 * i, 0, 1 + i % 2] for i in range(6)])


@pytest.fixture
def raw():
    data = np.random.default_rng(0).normal(scale=1e-5, size=(4, 700))
    data[1, 260] = 1e-3  # in the third epoch
    info = mne.create_info(["Oz", "O1", "O2", "EOG"], 100.0, ["eeg"] * 3 + ["eog"])
    return mne.io.RawArray(data, info, verbose="error")


def cut(raw, **settings):
    settings = {"baseline": None, "preload": True, "verbose": "error", **settings}
    return mne.Epochs(raw, EVENTS, {"slow": 1, "fast": 2}, -0.1, 0.5, **settings)


def test_epochs_that_are_not_in_memory_lose_their_bad_ones_and_no_columns_slip(raw):
    data = pd.DataFrame({"trial": np.arange(6), "label": list("abcabc")})
    epochs = cut(raw, preload=False, reject={"eeg": 2e-4}, metadata=data)
    trials = Trials.from_epochs(epochs)
    assert trials.columns["trial"].tolist() == [0, 1, 3, 4, 5]
    assert trials.columns["label"].tolist() == list("ababc"[:2] + "abc")
    assert not epochs.preload  # theirs is as it was
    np.testing.assert_array_equal(trials.data[2], raw.get_data()[:3, 340:401])
    assert trials.tmin == -0.1
    named = Trials.from_epochs(cut(raw, preload=False, reject={"eeg": 2e-4}))
    assert named.columns["label"].tolist() == ["slow", "fast", "fast", "slow", "fast"]


def test_channels_marked_as_bad_stay_with_a_warning_and_others_than_eeg_do_not(raw):
    epochs = cut(raw)
    epochs.info["bads"] = ["O1", "EOG"]
    with pytest.warns(UserWarning, match="^O1 is marked as bad but used"):
        trials = Trials.from_epochs(epochs)
    assert trials.channels == ("Oz", "O1", "O2")
    np.testing.assert_array_equal(trials.data[0], raw.get_data()[:3, 40:101])
    with pytest.raises(ValueError, match="no EEG channels, only eog"):
        Trials.from_epochs(cut(raw).pick(["EOG"]))


def test_a_list_of_epochs_becomes_one_table_with_everybody_in_it(raw):
    several = []
    for person in ("s1", "s2"):
        epochs = cut(raw, preload=False)
        epochs.info["subject_info"] = {"his_id": person}
        several.append(epochs)
    table = encode(several, BandPower([(8, 13)], segment=0.5))
    assert table.participant.tolist() == ["s1"] * 6 + ["s2"] * 6
    assert table.label.tolist() == ["slow", "fast"] * 6
    np.testing.assert_array_equal(table.X[:6], table.X[6:])


def test_projectors_that_were_not_applied_are_said(raw):
    epochs = cut(raw).pick(["eeg"]).set_eeg_reference("average", projection=True, verbose="error")
    with pytest.warns(UserWarning, match="Average EEG reference is a projector that was not applied"):
        assert np.abs(Trials.from_epochs(epochs).data.mean(axis=1)).max() > 1e-7
    applied = Trials.from_epochs(epochs.apply_proj(verbose="error"))
    assert np.abs(applied.data.mean(axis=1)).max() < 1e-18


@pytest.mark.parametrize("add_offset", [True, False])
def test_people_whose_epochs_mne_has_put_together_are_not_merged_in_silence(raw, add_offset):
    several = [cut(raw), cut(raw)]
    several[1].events[:, 0] += 3  # MNE wants no two events at one time
    for epochs, person in zip(several, ("s1", "s2"), strict=True):
        epochs.info["subject_info"] = {"his_id": person}
    together = mne.concatenate_epochs(several, add_offset=add_offset, verbose="error")
    with pytest.warns(UserWarning, match="12 epochs have the his_id 's1'.*like 2 joined recordings"):
        assert set(Trials.from_epochs(together).columns["participant"]) == {"s1"}
    together.metadata = pd.DataFrame({"participant": ["s1"] * 6 + ["s2"] * 6})
    assert set(Trials.from_epochs(together).columns["participant"]) == {"s1", "s2"}


def test_what_cannot_be_trials_is_told_what_can(raw):
    named = cut(raw, metadata=pd.DataFrame({"X": np.arange(6)}))
    for epochs, error, message in (
        ([], TableError, "The list of epochs is empty"),
        (
            {"cap": cut(raw)},
            TypeError,
            r"epochs is a dict; expected mne\.Epochs.*mgpa\.eeg\.table_from_epochs",
        ),
        (named, ValueError, "A column is called 'X'"),
    ):
        with pytest.raises(error, match=message):
            Trials.from_epochs(epochs)
    with pytest.raises(ValueError, match="A column is called 'X'"):
        Trials(np.zeros((2, 1, 4)), ["Oz"], 100.0, columns={"X": [1, 2]})


def test_trials_that_do_not_fit_together_say_what_makes_them_fit():
    first = Trials(np.zeros((2, 2, 5), "f4"), ["Oz", "O1"], 100.0, columns={"label": [0, 1]})
    for other, message in (
        (first.pick(["O1", "Oz"]), r"channels O1, Oz and .*Trials\.pick"),
        (replace(first, sfreq=200.0), r"at 200\.0 Hz.*mgpa\.eeg\.resample"),
        (replace(first, tmin=0.5), r"from 0\.5 s; .*mgpa\.eeg\.crop"),
        (replace(first, data=np.zeros((2, 2, 6), "f4")), r"6 samples .*mgpa\.eeg\.crop"),
        (replace(first, data=np.zeros((2, 2, 5))), r"\(float64\).*; the first .*\(float32\)"),
        (first.with_columns(label=["0", "1"]), "label: text instead of integer"),
        (first.with_columns(block=1), r"columns label, block; the first have label\. Trials\.with_columns"),
    ):
        with pytest.raises(ValueError, match=f"^Trials 1 (have|differs) .*{message}"):
            Trials.concatenate([first, other])
    assert Trials.concatenate([first, first]).data.dtype == np.float32
    assert len(Trials.concatenate([first, replace(first, sfreq=100, tmin=0)])) == 4  # 100 Hz are 100.0 Hz


def test_a_break_of_half_a_minute_is_one_persons_recording():
    info = mne.create_info(["Oz"], 100.0, "eeg")
    info["subject_info"] = {"his_id": "s0"}
    samples = 500 + 200 * np.arange(10)
    samples[5:] += 3000
    events = np.c_[samples, np.zeros(10, int), np.ones(10, int)]
    epochs = mne.EpochsArray(np.zeros((10, 1, 50)), info, events, verbose="error")
    assert set(Trials.from_epochs(epochs).columns["participant"]) == {"s0"}
