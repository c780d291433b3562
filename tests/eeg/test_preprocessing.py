"""Preprocessing does what MNE, SciPy and plain arithmetic say it does."""

import mne
import numpy as np
import pytest
from scipy.interpolate import interp1d

from mgpa.eeg import crop, zscore_channels
from mgpa.eeg.pairing import exclude_overlap
from mgpa.eeg.trials import Trials
from mgpa.paper.datasets.neuroscan_flex import TMIN, epochs_at, prepare_recording


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.mark.parametrize("sfreq", [1000.0, 129.05])
def test_a_recording_is_prepared_as_by_mne(rng, sfreq):
    signal = 1e-5 * rng.normal(size=(3, int(40 * sfreq)))
    info = mne.create_info(["E1", "E2", "E3"], sfreq, "eeg")
    raw = mne.io.RawArray(signal.copy(), info, verbose="error")
    raw.filter(0.1, 30.0, fir_design="firwin", verbose="error")
    raw.set_eeg_reference("average", projection=False, verbose="error")
    raw.resample(128.0, method="fft", verbose="error")
    prepared = prepare_recording(signal, sfreq)
    np.testing.assert_allclose(prepared, raw.get_data(), atol=1e-15)


def test_epochs_interpolate_linearly_at_exact_times(rng):
    signal = rng.normal(size=(3, 1000))
    onsets = np.array([1.0, 2.123456, 5.6789])
    epochs, valid = epochs_at(signal, onsets)
    line = interp1d(np.arange(1000) / 128.0, signal, axis=1)
    expected = np.stack([line(t - 0.2 + np.arange(128) / 128.0) for t in onsets])
    assert valid.all()
    np.testing.assert_allclose(epochs, expected, atol=1e-9)


def test_epochs_may_touch_the_ends_of_a_recording_and_not_leave_it():
    signal = np.arange(300.0)[None]
    step = 1 / 128
    epochs, valid = epochs_at(signal, np.array([0.0, -0.01, 172, 172.01]) * step - TMIN)
    assert valid.tolist() == [True, False, True, False]
    assert epochs[2, 0, -1] == 299.0
    assert np.isnan(epochs[~valid]).all()
    assert np.isfinite(epochs[valid]).all()


def test_overlap_with_calibration_is_judged_on_every_clock(rng):
    onsets = np.cumsum(rng.uniform(0.8, 1.2, size=(2, 60)), axis=1)
    chosen = np.zeros(60, dtype=bool)
    chosen[[0, 1, 20, 41]] = True
    events, calibration = onsets[:, ~chosen], onsets[:, chosen]
    expected = [all(abs(events[d, i] - t) >= 1 for d in range(2) for t in calibration[d]) for i in range(56)]
    keep = exclude_overlap(events, calibration)
    assert keep.tolist() == expected
    # Both devices matter, and neither alone decides here.
    alone = [exclude_overlap(*one).sum() for one in zip(events, calibration, strict=True)]
    assert keep.sum() < min(alone)
    with pytest.raises(ValueError, match="on 2 clocks and calibration on 1"):
        exclude_overlap(events, calibration[0])
    # An event exactly a second from calibration stays.
    assert exclude_overlap([1.0, 2.99, 4.0], [2.0, 5.0]).tolist() == [True, False, True]


def test_zscores_are_per_trial_and_channel_and_keep_the_dtype(rng):
    data = (1e-5 * rng.normal(size=(3, 4, 500)) + 1e-4).astype(np.float32)
    data[:, 2] = 0.0
    scaled = zscore_channels(Trials(data, list("abcd"), 250.0)).data
    assert scaled.dtype == np.float32
    assert not scaled[:, 2].any()
    rest = np.delete(scaled, 2, axis=1)
    np.testing.assert_allclose(rest.mean(axis=2), 0, atol=1e-5)
    np.testing.assert_allclose(rest.std(axis=2), 1, atol=1e-5)


def test_crop_counts_samples_and_moves_time():
    data = np.arange(710.0)[None, None]
    cropped = crop(Trials(data, ["Oz"], 250.0, tmin=-0.5), 160, 660)
    assert cropped.data[0, 0, [0, -1]].tolist() == [160.0, 659.0]
    assert cropped.tmin == 0.14
    with pytest.raises(ValueError, match="start and stop are 160 and 711"):
        crop(Trials(data, ["Oz"], 250.0), 160, 711)
