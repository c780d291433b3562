"""A MOABB data set goes the same way as everything else; with MOABB itself where it is installed."""

import warnings

import mne
import numpy as np
import pandas as pd
import pytest

from mgpa.eeg.features import BandPower
from mgpa.eeg.moabb import from_moabb
from mgpa.eeg.trials import encode


class Dataset:
    code = "Fake2026"


class Paradigm:
    """What MOABB's paradigms answer, of two subjects with two sessions of four trials each."""

    def __init__(self, bands=1, **columns):
        self.bands, self.columns = bands, columns

    def get_data(self, dataset, subjects=None, return_epochs=False, additional_metadata=None):
        assert return_epochs
        subjects = [1, 2] if subjects is None else subjects
        n = 8 * len(subjects)
        info = mne.create_info(["C3", "Cz", "C4", "STI"], 128.0, ["eeg"] * 3 + ["stim"])
        data = np.random.default_rng(0).normal(scale=1e-5, size=(n * self.bands, 4, 256))
        metadata = pd.DataFrame(
            {
                "subject": np.repeat(subjects, 8),
                "session": np.tile(["0", "0", "0", "0", "1", "1", "1", "1"], len(subjects)),
                "run": "0",
            }
        )
        for name in additional_metadata or self.columns:
            metadata[name] = self.columns[name]
        epochs = mne.EpochsArray(data, info, tmin=0.5, verbose="error")
        return epochs, np.tile(["left_hand", "right_hand"], n // 2), metadata


def test_a_data_set_arrives_in_volts_with_its_metadata():
    trials = from_moabb(Dataset(), Paradigm(), source="session")
    epochs, labels, metadata = Paradigm().get_data(Dataset(), return_epochs=True)
    np.testing.assert_array_equal(trials.data, epochs.get_data()[:, :3])
    assert (trials.sfreq, trials.tmin, trials.channels) == (128.0, 0.5, ("C3", "Cz", "C4"))
    assert trials.columns["label"].tolist() == labels.tolist()
    assert trials.columns["participant"].tolist() == metadata["subject"].astype(str).tolist()
    assert (
        trials.columns["source"].tolist() == trials.columns["session"].tolist() == list(metadata["session"])
    )
    assert trials.info == {"dataset": "Fake2026", "paradigm": "Paradigm"}
    assert encode(trials, BandPower([(8, 13), (13, 30)])).X.shape == (16, 6)


def test_subjects_and_further_columns_can_be_chosen():
    trials = from_moabb(Dataset(), Paradigm(device=["dry"] * 8), [2], source="device", additional=["device"])
    assert set(trials.columns["participant"]) == {"2"}
    assert set(trials.columns["source"]) == {"dry"}
    assert "source" not in from_moabb(Dataset(), Paradigm()).columns


@pytest.mark.parametrize(
    ("paradigm", "source", "message"),
    [
        (Paradigm(bands=2), None, "32 epochs, 16 labels.*one pass band"),
        (Paradigm(), "device", "source is 'device'; the metadata have session, run"),
    ],
)
def test_what_does_not_fit_is_refused(paradigm, source, message):
    with pytest.raises(ValueError, match=message):
        from_moabb(Dataset(), paradigm, source=source)


def test_moabb_itself():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fake = pytest.importorskip("moabb.datasets.fake")
        paradigms = pytest.importorskip("moabb.paradigms")
        settings = {"n_subjects": 2, "n_runs": 1, "n_events": 6, "duration": 20, "seed": 1}
        dataset = fake.FakeDataset(["left_hand", "right_hand"], paradigm="imagery", **settings)
        paradigm = paradigms.LeftRightImagery()
        trials = from_moabb(dataset, paradigm, source="session")
        microvolts, labels, metadata = paradigm.get_data(dataset)
    np.testing.assert_allclose(1e6 * trials.data, microvolts, rtol=1e-12)
    assert trials.columns["label"].tolist() == labels.tolist()
    assert trials.columns["participant"].tolist() == metadata["subject"].astype(str).tolist()
