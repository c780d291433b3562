"""Virtual contrasts have the moments they are made to have, and nothing more is changed."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.ndimage import gaussian_filter1d
from scipy.signal import lfilter

from mgpa.eeg.trials import Trials
from mgpa.paper.transport import calibration_subset, fit_transport, virtual_views

CHANNELS = ("POz", "PO3", "Oz")


def two_sources(n=60, ratio=1.7, seed=0, dtype=np.float64):
    """Coloured, correlated noise; the wet source has another spectrum, other correlations, less amplitude."""
    rng = np.random.default_rng(seed)
    source = np.tile(["dry", "wet"], n // 2)
    white = rng.normal(size=(n, 3, 810))
    dry, wet = lfilter([1], [1, -0.7], white), lfilter([1], [1, -0.5], white)
    dry = np.einsum("ck,nkt->nct", [[1, 0.2, 0], [0, 1, 0.5], [0.3, 0, 1]], dry / dry.std())
    wet = np.einsum("ck,nkt->nct", [[1, 0, 0.6], [0.1, 1, 0], [0, 0.4, 1]], wet / wet.std() / ratio)
    data = np.where((source == "wet")[:, None, None], wet, dry)[:, :, 100:] * 1e-5
    data += rng.normal(scale=2e-5, size=(n, 3, 1))  # electrodes have offsets
    return Trials(data.astype(dtype), CHANNELS, 250.0, -0.5, {"source": source, "label": np.arange(n) % 5})


def test_the_fit_is_the_papers_recipe():
    trials = two_sources()
    fitted = fit_transport(trials)
    for code, name in enumerate(["dry", "wet"]):
        x = trials.data[trials.columns["source"] == name, :, :125] * 1e6
        x = x - x.mean(axis=-1, keepdims=True)
        power = np.mean(np.abs(np.fft.rfft(x * np.hanning(125), 1024)) ** 2, axis=0)
        expected = np.stack([gaussian_filter1d(np.log(p + 1e-8), 2) for p in power])
        np.testing.assert_allclose(fitted.log_power[code], expected, rtol=1e-12)
        C = np.cov(np.concatenate(list(x), axis=1))
        shrunk = 0.9 * C + 0.1 * np.trace(C) / 3 * np.eye(3)
        np.testing.assert_allclose(fitted.covariance[code], shrunk, rtol=1e-12)
    np.testing.assert_allclose(fitted.frequencies, np.arange(513) * 250 / 1024)
    # Nothing after the event is looked at.
    trials.data[:, :, 125:] = np.random.default_rng(1).normal(size=(60, 3, 585))
    np.testing.assert_array_equal(fit_transport(trials).covariance, fitted.covariance)


def test_gains_are_clipped_after_the_strength_is_applied():
    trials = two_sources(ratio=10.0)
    fitted = fit_transport(trials)
    half = 0.5 * (fitted.log_power[0] - fitted.log_power[1])
    assert np.exp(half).max() > 4
    np.testing.assert_allclose(fitted.gain("wet", 0.5), np.clip(np.exp(0.5 * half), 0.25, 4))
    assert fitted.gain("wet").max() == 4
    assert fitted.gain("dry").min() == 0.25
    # Clipping before would have stopped at a factor of two.
    assert fitted.gain("wet", 0.5).max() > 2.5


def test_spectral_transport_multiplies_every_frequency_by_its_gain_and_leaves_the_slowest():
    trials = two_sources()
    fitted = fit_transport(trials)
    moved = fitted.spectral(trials)
    frequencies = np.fft.rfftfreq(710, 1 / 250)
    for name in ("dry", "wet"):
        rows = trials.columns["source"] == name
        before, after = (np.fft.rfft(t.data[rows], axis=2) for t in (trials, moved))
        gain = np.stack([np.interp(frequencies, fitted.frequencies, g) for g in fitted.gain(name)])
        gain[:, frequencies < 0.5] = 1
        np.testing.assert_allclose(after, before * gain, atol=1e-12 * np.abs(before).max())
        assert (gain[:, :2] == 1).all()
        assert (gain[:, 2:] != 1).any()


def test_spatial_transport_gives_the_other_sources_covariance():
    fitted = fit_transport(two_sources())
    for own, name in enumerate(["dry", "wet"]):
        M, target = fitted.mixing(name), fitted.covariance[1 - own]
        np.testing.assert_allclose(M @ fitted.covariance[own] @ M.T, target, rtol=1e-10)
        expected = sqrtm(target) @ np.linalg.inv(sqrtm(fitted.covariance[own]))
        np.testing.assert_allclose(M, expected, rtol=1e-9)
        np.testing.assert_allclose(fitted.mixing(name, 0.5), 0.5 * np.eye(3) + 0.5 * M)


@pytest.mark.parametrize("way", ["spectral", "spatial", "combined"])
def test_strength_zero_is_the_identity_and_means_are_kept(way):
    trials = two_sources()
    fitted = fit_transport(trials)
    still = getattr(fitted, way)(trials, 0.0)
    np.testing.assert_allclose(still.data, trials.data, atol=1e-12 * np.abs(trials.data).max())
    moved = getattr(fitted, way)(trials, 1.0)
    np.testing.assert_allclose(moved.data.mean(axis=2), trials.data.mean(axis=2), rtol=1e-9, atol=1e-18)
    assert np.abs(moved.data - trials.data).max() > 1e-6
    assert all((moved.columns[name] == values).all() for name, values in trials.columns.items())


def test_combined_transport_carries_amplitude_once_or_as_the_paper_twice():
    trials = two_sources(n=2000)
    fitted = fit_transport(trials)

    def amplitude(moved):
        return np.sqrt(np.trace(fit_transport(moved).covariance[0]) / np.trace(fitted.covariance[0]))

    wanted = np.sqrt(np.trace(fitted.covariance[1]) / np.trace(fitted.covariance[0]))
    once, twice = (amplitude(fitted.combined(trials, power_once=way)) for way in (True, False))
    assert abs(once / wanted - 1) < 0.03
    assert abs(twice / wanted**2 - 1) < 0.1
    paper = fitted.spatial(fitted.spectral(trials, 0.5), 0.5)
    views = dict(virtual_views(trials, fitted, power_once=False))
    ways = [f"{way} {strength}" for way in ("spectral", "spatial", "combined") for strength in ("0.5", "1")]
    assert list(views) == ways  # the paper's order
    np.testing.assert_array_equal(views["combined 0.5"].data, paper.data)
    # The shape is the other source's, too: correlations of moved dry trials are those of wet ones.
    moved = fit_transport(fitted.combined(trials)).covariance[0]
    spectral = fit_transport(fitted.spectral(trials)).covariance[0]

    def correlation(C):
        return C / np.sqrt(np.outer(np.diag(C), np.diag(C)))

    target = correlation(fitted.covariance[1])
    assert np.abs(correlation(moved) - target).max() < 0.2 * np.abs(correlation(spectral) - target).max()


def test_trials_that_no_transport_is_for_are_refused():
    trials = two_sources()
    wet = (trials.columns["source"] == "wet")[:, None, None]
    people = {"participant": np.repeat(["a", "b", "c"], 20), "role": np.repeat(["FIT", "HEAD", "EVAL"], 20)}
    for bad, message in (
        (trials.take(~wet.ravel()), r"1 sources \(dry\)"),
        (replace(trials, tmin=0.0), "from 0 s on have 0 prestimulus samples"),
        (trials.with_columns(**people), "EVAL, HEAD participants, but a transport is fitted on FIT only"),
    ):
        with pytest.raises(ValueError, match=message):
            fit_transport(bad)
    fitted = fit_transport(trials)
    for bad, strength, message in (
        (trials.pick(["Oz", "PO3", "POz"]), 1.0, "fitted on POz, PO3, Oz at 250 Hz"),
        (trials, 1.5, r"strength is 1\.5"),
    ):
        with pytest.raises(ValueError, match=message):
            fitted.spatial(bad, strength)


def test_a_calibration_subset_is_drawn_group_by_group_then_filled():
    rng = np.random.default_rng(3)
    person = rng.choice(["S003", "S001", "S002"], size=300)
    source = rng.choice(["wet", "dry"], size=300)
    rows = calibration_subset(person, source, 64, random_state=20261003)

    draw = np.random.default_rng(20261003)
    expected = []
    for p in ("S001", "S002", "S003"):
        for s in ("dry", "wet"):
            expected += draw.choice(np.flatnonzero((person == p) & (source == s)), 10, replace=False).tolist()
    others = [i for i in range(300) if i not in expected]
    expected += draw.choice(others, 4, replace=False).tolist()
    assert rows.tolist() == sorted(expected)
