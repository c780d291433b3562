"""Methods of other packages give new rows what those packages give the rows they were fitted on."""

import numpy as np
import pytest
from test_bench import small_events

from mgpa.bench import METHODS, find_methods, rotate
from mgpa.bench.methods import refit, regression
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


def apart(X, data):
    """Return how far the devices' rows are apart on average, class by class."""
    means = [[X[(data.source == k) & (data.label == c)].mean(axis=0) for c in ("no", "yes")] for k in (0, 1)]
    return np.abs(np.subtract(*means)).sum()


@pytest.mark.parametrize(
    "method", [m for m in METHODS if m.reference and m.fit is not refit], ids=lambda m: m.name
)
def test_a_device_is_brought_to_the_reference_whose_rows_stay(method):
    if method.package:
        pytest.importorskip(method.package.replace("-", "_"))
    for reference in (0, 1):
        data, out = fitted(method.name, reference)
        rows = data.source == reference
        if method.told:
            np.testing.assert_allclose(out[rows], data.X[rows], atol=1e-6)
        before, after = (apart(X, data) for X in (data.X, out))
        assert after < before or method.name in ("Euclidean alignment", "CORAL")  # of covariances alone


@pytest.mark.parametrize("name", ["LEACE", "quadratic LEACE"])
def test_erasers_take_the_difference_of_means_off(name):
    pytest.importorskip("concept_erasure")
    data, out = fitted(name)
    first, second = (out[data.source == k].mean(axis=0) for k in (0, 1))
    np.testing.assert_allclose(first, second, atol=1e-6)


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


@pytest.mark.parametrize("devices", [2, 3])
def test_the_told_regression_to_the_midpoint_is_a_regression_to_the_mean_of_all_views(devices):
    data = calibration(next(rotate(small_events(devices=devices))), np.zeros(5), np.ones(5))
    correct = find_methods(["told regression (midpoint)"])[0].fit(data, None)
    views = data.pairs.views
    for device, rows in enumerate(views):
        expected = regression(rows, views.mean(axis=0))(rows)
        np.testing.assert_allclose(correct(rows, device), expected, atol=1e-10)
