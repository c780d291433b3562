"""Fixed features say what they claim to, under the interface of encoders."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mgpa.eeg.features import BandPower, TemporalBins, WindowedPower
from mgpa.eeg.trials import Trials, encode

SIXTEEN = tuple(f"E{i}" for i in range(16))


def erp(n=4, dtype=np.float32):
    """Epochs of one second from 200 ms before the event, 128 a second."""
    data = np.random.default_rng(0).normal(scale=1e-5, size=(n, 16, 128)).astype(dtype)
    return Trials(data, SIXTEEN, 128.0, -0.2, {"label": np.arange(n) % 2, "participant": np.arange(n)})


def sines(amplitudes, frequency, seconds=4, sfreq=256.0):
    time = np.arange(int(seconds * sfreq)) / sfreq
    signal = np.asarray(amplitudes)[:, None] * np.sin(2 * np.pi * frequency * time)
    return Trials(signal[None], [f"E{i}" for i in range(len(amplitudes))], sfreq)


def test_the_papers_240_features_are_means_of_50_ms_in_microvolts_channel_by_channel():
    trials = erp()
    X = TemporalBins().embed(trials)
    assert (X.shape, X.dtype) == ((4, 240), np.float32)
    t = -0.2 + np.arange(128) / 128
    sizes = set()
    for channel in (0, 7):
        for k in range(15):
            lo, hi = 0.05 * k, 0.05 * (k + 1)
            inside = (t >= lo - 1e-8) & (t < hi - 1e-8)
            sizes.add(int(inside.sum()))
            expected = trials.data[:, channel, inside].astype(float).mean(axis=1) * 1e6
            np.testing.assert_allclose(X[:, 15 * channel + k], expected, rtol=1e-6)
    assert sizes == {6, 7}


def test_a_sample_on_an_edge_belongs_to_the_later_bin():
    # At 100 Hz, .15 s is a sample; as a sum of rounded numbers it lies a little to either side.
    data = np.zeros((1, 1, 60))
    trials = Trials(data, ["Oz"], 100.0, -0.2)
    trials.data[0, 0, 35] = 1e-6
    assert np.flatnonzero(TemporalBins(0, 0.3, 0.05).embed(trials)[0]).tolist() == [3]


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (TemporalBins, {"width": 0.04}, "do not fill the span"),
        (TemporalBins, {"stop": -1.0}, "do not fill the span"),
        (BandPower, {"bands": [(8, 8)]}, "expected pairs"),
        (BandPower, {"bands": []}, "expected pairs"),
        (BandPower, {"floor": 0}, "must be positive"),
        (WindowedPower, {"window": np.nan}, "must be positive"),
    ],
)
def test_bins_and_bands_that_make_no_sense_are_refused(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        kind(**settings)


def test_bins_beyond_the_trials_or_narrower_than_a_sample_are_refused():
    with pytest.raises(ValueError, match=r"last from -0\.2 to 0\.792188 s; the bins need 0 to 1 s"):
        TemporalBins(stop=1.0).embed(erp())
    with pytest.raises(ValueError, match=r"need -0\.5 to"):
        TemporalBins(start=-0.5).embed(erp())
    with pytest.raises(ValueError, match="narrower than a sample at 128 Hz"):
        TemporalBins(stop=0.75, width=0.005).embed(erp())


def test_band_power_is_the_power_of_a_sine_in_its_band():
    trials = sines([10e-6, 2e-6], 10)
    power = np.exp(BandPower([(4, 8), (8, 13), (13, 30)], segment=2.0).embed(trials))
    assert (power.shape, power.dtype) == ((1, 6), np.float32)
    np.testing.assert_allclose(power, [[0, 50, 0, 0, 2, 0]], atol=0.01)
    log = BandPower([(8, 13)], segment=2.0).embed(trials)
    np.testing.assert_allclose(log, [np.log([50, 2])], atol=1e-3)


def test_a_zero_channel_has_the_floor_as_its_power():
    power = BandPower([(8, 13)], floor=1e-3).embed(sines([0.0, 1e-5], 10))
    assert power[0, 0] == np.float32(np.log(1e-3))


def test_bands_the_trials_cannot_show_are_refused():
    with pytest.raises(ValueError, match="bands reach 80 Hz; at 128 Hz signals end at 64 Hz"):
        BandPower([(30, 80)]).embed(erp())
    with pytest.raises(ValueError, match="longer than the trials, of 1 s"):
        BandPower(segment=2.0).embed(erp())
    with pytest.raises(ValueError, match=r"in the band \(10\.2, 10\.8\); frequencies lie 1 Hz apart"):
        BandPower([(10.2, 10.8)]).embed(erp())


@pytest.mark.parametrize("encoder", [TemporalBins(), BandPower(), WindowedPower()])
def test_a_table_has_the_trials_columns_and_says_what_made_it(encoder):
    trials = erp().with_columns(source=["a", "b", "a", "b"], block=[1, 2, 3, 4])
    table = encode(trials, encoder)
    np.testing.assert_array_equal(table.X, encoder.embed(trials))
    assert set(table.columns) == {"label", "participant", "source", "block"}
    assert json.loads(json.dumps(table.info["encoder"])) == encoder.identity


def test_mne_epochs_are_embedded_like_their_trials():
    mne = pytest.importorskip("mne")
    trials = replace(erp(dtype=np.float64), tmin=-25 / 128)  # MNE begins at whole samples
    info = mne.create_info(list(SIXTEEN), 128.0, "eeg")
    epochs = mne.EpochsArray(trials.data, info, tmin=trials.tmin, verbose="error")
    np.testing.assert_array_equal(TemporalBins().embed(epochs), TemporalBins().embed(trials))
    np.testing.assert_array_equal(encode([epochs, epochs], BandPower()).X[4:], BandPower().embed(trials))


def test_any_object_with_an_identity_can_embed_but_has_to_embed_every_trial():
    class Mean:
        identity = {"name": "mean"}  # noqa: RUF012

        def embed(self, trials, *, verbose=False):
            return trials.data.mean(axis=2).astype(np.float16)[self.rows]

    encoder = Mean()
    encoder.rows = slice(None)
    assert encode(erp(), encoder).X.dtype == np.float32  # half precision is widened, not refused
    encoder.rows = slice(1)
    with pytest.raises(ValueError, match=r"Mean\.embed returned shape \(1, 16\) for 4 trials"):
        encode(erp(), encoder)
