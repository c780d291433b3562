"""Methods of other packages give new rows what those packages give the rows they were fitted on."""

import numpy as np
import pytest
from test_bench import small_events

from mgpa.bench import find_methods, rotate
from mgpa.bench.settings import calibration


def fitted(name, reference=0):
    events = small_events()
    data = calibration(next(rotate(events)), np.zeros(5), np.ones(5))
    correct = find_methods([name])[0].fit(data, reference)
    out = np.array(data.X)
    for k in np.unique(data.source):
        out[data.source == k] = correct(data.X[data.source == k], int(k))
    return data, out


def test_centring_and_procrustes_are_those_of_pyriemann():
    pytest.importorskip("pyriemann")
    from pyriemann.transfer import TLCenter, TLRotate, TLScale, encode_domains

    data, centred = fitted("centring")
    labels = encode_domains(data.X, data.label, data.source.astype(str))[1]
    goal = data.X[data.source == 0].mean(axis=0)
    expected = TLCenter("").fit_transform(data.X, labels)
    np.testing.assert_allclose(centred, expected + goal, atol=1e-10)
    scale = TLScale("", centered_data=True)
    expected = TLRotate("0").fit_transform(scale.fit_transform(expected, labels), labels)
    np.testing.assert_allclose(fitted("Procrustes")[1], expected * scale.scales_["0"] + goal, atol=1e-10)


@pytest.mark.parametrize("name", ["centring", "Procrustes", "z-scores", "ceiling", "Euclidean alignment"])
def test_rows_of_the_reference_stay(name):
    if name in ("centring", "Procrustes", "Euclidean alignment"):
        pytest.importorskip("pyriemann")
    for reference in (0, 1):
        data, out = fitted(name, reference)
        rows = data.source == reference
        np.testing.assert_allclose(out[rows], data.X[rows], atol=1e-10)
        assert np.abs(out[~rows] - data.X[~rows]).max() > 0.01


def test_euclidean_alignment_gives_a_device_the_covariance_of_the_reference():
    pytest.importorskip("pyriemann")
    from sklearn.covariance import oas

    data, out = fitted("Euclidean alignment")
    to, back = (oas(rows)[0] for rows in (data.X[data.source == 0], data.X[data.source == 1]))
    first = out[data.source == 1]
    moved = np.linalg.inv(data.X[data.source == 1].T @ data.X[data.source == 1]) @ (
        data.X[data.source == 1].T @ first
    )
    np.testing.assert_allclose(moved.T @ back @ moved, to, rtol=1e-6)
