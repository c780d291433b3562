"""The simulated head, people, devices and SSVEP files do what they say."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.io import loadmat

from mgpa.eeg.simulate import Device, draw_people, record
from mgpa.paper.simulate.ssvep import simulate_ssvep


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


def test_a_second_run_writes_only_what_is_missing(tmp_path):
    first = simulate_ssvep(tmp_path, n_people=2, blocks=1)
    before = loadmat(tmp_path / "S002.mat")["data"]
    stamp = (tmp_path / "S001.mat").stat()
    (tmp_path / "S002.mat").unlink()
    assert simulate_ssvep(tmp_path, n_people=2, blocks=1) == first
    after = (tmp_path / "S001.mat").stat()
    assert (after.st_ino, after.st_mtime_ns) == (stamp.st_ino, stamp.st_mtime_ns)
    np.testing.assert_array_equal(loadmat(tmp_path / "S002.mat")["data"], before)


def test_other_settings_or_others_files_are_refused(tmp_path):
    simulate_ssvep(tmp_path / "old", n_people=1, blocks=1)
    with pytest.raises(ValueError, match=r"truth\.json has the settings .* not .*5"):
        simulate_ssvep(tmp_path / "old", n_people=1, blocks=1, random_state=5)
    (tmp_path / "S001.mat").write_bytes(b"real data")
    with pytest.raises(FileExistsError, match=r"S001\.mat is not simulated"):
        simulate_ssvep(tmp_path, n_people=3)
    assert (tmp_path / "S001.mat").read_bytes() == b"real data"
    (tmp_path / "truth.json").write_text("{}")
    with pytest.raises(ValueError, match=r"truth\.json has the settings None"):
        simulate_ssvep(tmp_path, n_people=3)
