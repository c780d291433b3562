"""The simulated head, people, devices and SSVEP files do what they say."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.io import loadmat
from scipy.signal import welch

from mgpa.eeg.datasets import wearable_ssvep
from mgpa.eeg.simulate import ssvep
from mgpa.eeg.simulate.brain import (
    CENTRE,
    Device,
    background,
    beneath,
    draw_people,
    leadfield,
    outward,
    pink_noise,
    record,
)
from mgpa.eeg.simulate.ssvep import simulate_ssvep

CHANNELS = ("Fz", "Cz", "Pz", "Oz", "O1", "O2", "P7", "T8", "F3", "CP4")


def test_turning_cap_and_sources_together_changes_nothing_and_the_cap_alone_something():
    from scipy.spatial.transform import Rotation

    turn = (0.05, -0.02, 0.1)
    places = beneath(["Oz", "Cz"])
    turned = Rotation.from_rotvec(turn).apply(places - CENTRE) + CENTRE
    straight = leadfield(CHANNELS, places, outward(places))
    np.testing.assert_allclose(
        leadfield(CHANNELS, turned, outward(turned), tilt=turn), straight, rtol=1e-4, atol=1e-3
    )
    alone = leadfield(CHANNELS, places, outward(places), tilt=turn)
    assert np.abs(alone - straight).max() > 0.05 * np.abs(straight).max()


def test_a_person_does_not_depend_on_the_others():
    assert draw_people(["1020", "1013"])[1] == draw_people(["1013"])[0]
    assert draw_people(["1013"], 3)[0].alpha != draw_people(["1013"], 4)[0].alpha


def test_a_recording_is_what_the_physics_say():
    sources = np.random.default_rng(0).normal(size=(2, 400)) * 1e-8
    field = np.array([[200.0, 10.0], [50.0, 90.0], [5.0, 20.0]])
    rng = np.random.default_rng(1)
    device = Device("d", ("Oz", "O1"), 100.0, reference="Fz", gains=(1.0, 0.5))
    assert device.electrodes == ("Oz", "O1", "Fz")
    expected = ((field[:2] - field[2]) @ sources)[:, ::4] * [[1.0], [0.5]]
    np.testing.assert_allclose(record(sources, field, device, rng, sfreq=400.0), expected, rtol=1e-12)
    averaged = replace(device, reference="average")
    np.testing.assert_allclose(
        record(sources, field[:2], replace(averaged, gains=None), rng, sfreq=400.0).sum(0), 0, atol=1e-18
    )
    own = record(sources, field[:2], replace(device, reference="Oz"), rng, sfreq=400.0)
    assert not own[0].any()
    assert own[1].any()


def test_a_clock_that_starts_later_and_runs_faster_samples_when_it_says():
    time = np.arange(20_000) / 1000.0
    device = Device("d", ("Oz",), 128.0, clock_offset=1.2345, clock_drift=1e-3)
    volts = record(
        np.sin(2 * np.pi * 7 * time)[None], [[1.0]], device, np.random.default_rng(0), sfreq=1000.0
    )
    at = device.times(time[-1])
    assert at[0] == 1.2345
    assert np.diff(at) == pytest.approx(1 / (128.0 * 1.001))
    assert time[-1] - 1 / 128 < at[-1] <= time[-1]
    np.testing.assert_allclose(volts[0], np.sin(2 * np.pi * 7 * at), atol=1e-6)


def test_noise_and_filters_have_the_strength_they_are_given():
    silent, rng = np.zeros((1, 100_000)), np.random.default_rng(0)
    white = record(silent, [[1.0]], Device("d", ("Oz",), 250.0, white=2e-6), rng, sfreq=500.0)
    pink = record(silent, [[1.0]], Device("d", ("Oz",), 250.0, pink=3e-6), rng, sfreq=500.0)
    assert white.std() == pytest.approx(2e-6, rel=0.02)
    assert pink.std() == pytest.approx(3e-6, rel=0.05)
    device = Device("d", ("Oz",), 500.0, pink=3e-6, highpass=4.0, lowpass=40.0)
    f, power = welch(record(silent, [[1.0]], device, rng, sfreq=500.0)[0], 500.0, nperseg=1000)
    f, before = welch(
        record(silent, [[1.0]], replace(device, highpass=None, lowpass=None), rng, sfreq=500.0)[0],
        *(500.0,),
        nperseg=1000,
    )
    passed = power / before
    # Half of the power at a corner, nearly all between them, little beyond.
    assert passed[np.isin(f, (4.0, 40.0))] == pytest.approx(0.5, abs=0.15)
    assert passed[(f > 10) & (f < 16)].mean() == pytest.approx(1.0, abs=0.1)
    assert passed[f == 1.0] < 0.05
    assert passed[f == 120.0] < 0.05


def test_pink_noise_falls_as_one_over_f():
    f, power = welch(pink_noise((8, 60_001), 250.0, np.random.default_rng(0)), 250.0, nperseg=2000)
    band = (f > 1) & (f < 100)
    slope = np.polyfit(np.log(f[band]), np.log(power.mean(0)[band]), 1)[0]
    assert slope == pytest.approx(-1.0, abs=0.03)


def test_alpha_peaks_at_a_persons_own_frequency():
    for person in draw_people(["S001", "S002", "S003"], 5):
        *places, moments = background(person, 60_000, 250.0, person.rng(1))
        f, power = welch(leadfield(["POz"], *places) @ moments, 250.0, nperseg=1000)
        # Against 1/f, which pulls the peak towards lower frequencies.
        lifted = power[0] * f
        near = (f > 6) & (f < 14)
        assert f[near][np.argmax(lifted[near])] == pytest.approx(person.alpha_frequency, abs=0.8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("ssvep")
    simulate_ssvep(path, n_people=3, blocks=3)
    return path


def decode(trials):
    """Return the target whose sines and cosines agree best with each trial (canonical correlation)."""
    t = np.arange(500) / 250.0
    waves = []
    for frequency in wearable_ssvep.FREQUENCIES:
        angles = 2 * np.pi * frequency * np.arange(1, 4)[:, None] * t
        waves.append(np.linalg.qr(np.concatenate([np.sin(angles), np.cos(angles)]).T)[0])
    found = []
    for x in trials.data[:, :, 160:660].astype(float):
        q = np.linalg.qr((x - x.mean(1, keepdims=True)).T)[0]
        found.append(np.argmax([np.linalg.norm(q.T @ w, 2) for w in waves]))
    return np.array(found)


def test_the_planted_frequency_is_found_better_with_wet_electrodes_and_not_always(folder):
    trials = wearable_ssvep.read_wearable_ssvep(folder, blocks=3)
    right = decode(trials) == trials.columns["target"]
    share = {source: right[trials.columns["source"] == source].mean() for source in ("dry", "wet")}
    assert 0.3 < share["dry"] < share["wet"] <= 1.0
    assert not right.all()


def test_the_response_begins_after_the_visual_latency():
    person = draw_people(["S001"])[0]
    [wave] = ssvep.flicker_response(person, [10.25], person.rng(1))[2][:1]
    since = -0.5 + np.arange(len(wave)) / 500.0
    first = since[np.flatnonzero(wave)[0]]
    assert first == pytest.approx(0.14 + person.latency, abs=0.005)
    assert not wave[since > 0.14 + person.latency + 2.1 + 0.002].any()


def test_a_second_run_writes_only_what_is_missing(tmp_path):
    first = simulate_ssvep(tmp_path, n_people=2, blocks=1)
    before = loadmat(tmp_path / "S002.mat")["data"]
    stamp = (tmp_path / "S001.mat").stat()
    (tmp_path / "S002.mat").unlink()
    assert simulate_ssvep(tmp_path, n_people=2, blocks=1) == first
    after = (tmp_path / "S001.mat").stat()
    assert (after.st_ino, after.st_mtime_ns) == (stamp.st_ino, stamp.st_mtime_ns)
    np.testing.assert_array_equal(loadmat(tmp_path / "S002.mat")["data"], before)


def test_other_settings_or_others_files_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match=r"truth\.json has the settings .* not .*5"):
        simulate_ssvep(folder, n_people=3, blocks=3, random_state=5)
    (tmp_path / "S001.mat").write_bytes(b"real data")
    with pytest.raises(FileExistsError, match=r"S001\.mat is not simulated"):
        simulate_ssvep(tmp_path, n_people=3)
    assert (tmp_path / "S001.mat").read_bytes() == b"real data"
