"""Views of the same trials: other references, montages, filters and rates, and contrasts made small."""

import numpy as np
import pytest

from mgpa.eeg.trials import Trials
from mgpa.eeg.views import measure_views, rereference, resample, scale_table
from mgpa.tables import Table, TableError

CHANNELS = ["POz", "PO3", "PO4", "PO5", "PO6", "Oz", "O1", "O2"]


def noise(n=6, channels=CHANNELS, samples=500, dtype=np.float32, **columns):
    data = np.random.default_rng(0).normal(scale=1e-5, size=(n, len(channels), samples)).astype(dtype)
    return Trials(data, channels, 250.0, -0.5, columns)


def car(trials):
    return rereference(trials, "average")


def oz(trials):
    return rereference(trials, "Oz")


def test_the_average_reference_sums_to_zero_and_a_channel_becomes_zero_and_stays():
    trials = noise(dtype=np.float64)
    np.testing.assert_allclose(car(trials).data.sum(axis=1), 0, atol=1e-19)
    seen = oz(trials)
    assert seen.channels == trials.channels
    assert (seen.data[:, 5] == 0).all()
    np.testing.assert_array_equal(seen.data[:, 0], trials.data[:, 0] - trials.data[:, 5])
    for reference, message in (("Fz", r"No channel Fz\. Channels: POz"), ([], "names no channel")):
        with pytest.raises(ValueError, match=message):
            rereference(trials, reference)
    with pytest.raises(ValueError, match="average reference of Oz alone is zero"):
        car(trials.pick(["Oz"]))


@pytest.mark.parametrize("reference", ["average", "Oz", ["O1", "O2"]])
def test_a_new_reference_forgets_the_old_one_and_keeps_dtype_and_columns(reference):
    trials = noise(label=[0, 1] * 3)
    first, second = (rereference(seen, reference) for seen in (trials, rereference(trials, "PO3")))
    assert first.data.dtype == np.float32
    assert first.columns["label"].tolist() == [0, 1] * 3
    np.testing.assert_allclose(second.data, first.data, atol=1e-5 * np.abs(first.data).max())


@pytest.mark.parametrize("sfreq", [128.0, 500.0])
def test_resampling_keeps_what_both_rates_can_show(sfreq):
    time = np.arange(1000) / 250
    seen = resample(Trials(np.sin(2 * np.pi * 10 * time)[None, None], ["Oz"], 250.0, -0.5), sfreq)
    assert (seen.sfreq, seen.tmin, seen.data.shape[2]) == (sfreq, -0.5, 4 * sfreq)
    expected = np.sin(2 * np.pi * 10 * (seen.times + 0.5))
    inside = slice(int(sfreq), int(3 * sfreq))
    np.testing.assert_allclose(seen.data[0, 0, inside], expected[inside], atol=5e-3)


def test_resampling_keeps_offsets_and_slopes_to_the_ends():
    line = 3e-5 + 1e-6 * np.arange(500)
    seen = resample(Trials(line[None, None], ["Oz"], 250.0), 128.0)
    np.testing.assert_allclose(seen.data[0, 0], 3e-5 + 1e-6 * seen.times * 250, rtol=1e-3)


def test_views_come_trial_by_trial_joined_by_pair_id():
    trials = noise(n=3, label=[0, 1, 0], participant=["a", "b", "b"], block=[1, 2, 3])
    both = measure_views(trials, {"oz": oz, "car": car})
    assert both.columns["source"].tolist() == ["oz", "car"] * 3
    assert both.columns["pair_id"].tolist() == [0, 0, 1, 1, 2, 2]
    assert both.columns["block"].tolist() == [1, 1, 2, 2, 3, 3]
    np.testing.assert_array_equal(both.data[0::2], oz(trials).data)
    np.testing.assert_array_equal(both.data[1::2], car(trials).data)
    assert both.tmin == trials.tmin


def test_pairs_of_their_own_are_refused_and_unpaired_ids_replaced():
    paired = noise(n=4, source=["a", "b"] * 2, pair_id=[0, 0, -1, -1])
    with pytest.raises(ValueError, match="2 of 4 trials already have a pair_id"):
        measure_views(paired, {"car": car})
    loose = paired.with_columns(pair_id=-1)
    both = measure_views(loose, {"car": car, "oz": oz})
    assert both.columns["pair_id"].tolist() == np.arange(4).repeat(2).tolist()
    assert both.columns["recorded_source"].tolist() == ["a", "a", "b", "b"] * 2
    with pytest.raises(ValueError, match="have a recorded_source, where their source would go"):
        measure_views(both.with_columns(pair_id=None), {"car": car})


@pytest.mark.parametrize(
    ("view", "error", "message"),
    [
        (lambda t: t.take([0]), ValueError, "'bad' returned 1 trials with label; expected all 3"),
        (lambda t: t.take([2, 1, 0]), ValueError, "in the same order, with the same columns"),
        (lambda t: t.with_columns(label=None), ValueError, "3 trials with no columns"),
        (lambda t: t.pick(["Oz"]), ValueError, "View 'bad' has channels Oz and 500 samples"),
        (lambda t: resample(t, 125.0), ValueError, r"250 samples .* at 125\.0 Hz"),
    ],
)
def test_views_that_cannot_be_compared_are_refused(view, error, message):
    with pytest.raises(error, match=message):
        measure_views(noise(n=3, label=[0, 1, 2]), {"car": car, "bad": view})


def test_a_table_of_pairs_is_scaled_whatever_the_order_of_its_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8, 3)).astype(np.float32)
    order = rng.permutation(8)
    columns = {
        "source": np.tile(["car", "oz"], 4)[order],
        "pair_id": np.arange(4).repeat(2)[order],
        "block": np.arange(8)[order],
    }
    scaled = scale_table(Table.from_columns({"X": X[order], **columns}, {"from": "here"}), 0.1)
    assert scaled.X.dtype == np.float32
    assert scaled.info == {"from": "here", "gamma": 0.1}
    back = scaled.take(np.argsort(order))
    for side, sign in ((back.X[0::2], -0.05), (back.X[1::2], 0.05)):
        expected = (X[0::2] + X[1::2]) / 2 + sign * (X[1::2] - X[0::2])
        np.testing.assert_allclose(side, expected, atol=1e-6)
    assert back.columns["block"].tolist() == list(range(8))


def test_rows_without_a_partner_cannot_be_scaled():
    table = Table(np.zeros((4, 2)), source=["a", "b", "a", "b"], pair_id=[0, 0, -1, -1])
    with pytest.raises(TableError, match="Some rows are in no pair of two sources"):
        scale_table(table, 0.1)
    three = Table(np.zeros((3, 2)), source=["a", "b", "c"], pair_id=[0, 0, 0])
    with pytest.raises(TableError, match="sources are a, b, c"):
        scale_table(three, 0.1)
