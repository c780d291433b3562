"""Simulate recordings with known effects, in the file format of the wearable SSVEP data set.

Participants look at twelve flickering targets in each block, once with dry and once with wet electrodes. Dry
electrodes are noisier, lose more of the signal and filter more narrowly. The cap sits slightly differently
in each session.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._common.files import replacing
from ..._common.progress import progress
from ...eeg.simulate import Device, Person, Sources, background, below, draw_people, joined, leadfield, record
from ..datasets import wearable_ssvep as files
from ..datasets.wearable_ssvep import CHANNELS, ELECTRODES, FREQUENCIES, SAMPLES, SFREQ, TMIN
from .files import write_truth

Array = NDArray[np.float64]

_DRY = Device("dry", CHANNELS, SFREQ, "Fz", white=2e-6, pink=10e-6, gain_spread=0.15, attenuation=0.2)
_WET = Device("wet", CHANNELS, SFREQ, "Fz", white=0.5e-6, pink=1.5e-6, gain_spread=0.03, attenuation=0.05)
DEVICES = {
    "dry": replace(_DRY, highpass=0.5, lowpass=60.0),
    "wet": replace(_WET, highpass=0.15, lowpass=90.0),
}
# Sources are computed at twice the sampling rate of the devices, well above the frequencies of responses.
OVERSAMPLING = 2
FLICKER, VISUAL_LATENCY, RISE = 2.0, 0.14, 0.1
RESPONSE = 12e-9
GENERATORS = ("Oz", "O1", "O2")
HARMONICS = (1.0, 0.5, 0.2)
# Increase this number when the output of a seed changes, so that old and new files are not mixed.
VERSION = 1


def simulate_ssvep(
    folder: str | Path,
    *,
    n_people: int = 102,
    random_state: int = 0,
    blocks: int = 10,
    verbose: bool = False,
) -> dict[str, Any]:
    """Write S001.mat, …, Subjects_Information.mat, and truth.json with the simulated effects.

    Each electrode type records ``blocks`` of twelve trials; the provider's files have ten blocks. Existing
    files are kept if truth.json has the same settings, so an interrupted run can be continued. Returns the
    content of truth.json: settings, devices, and the traits of each participant.
    """
    folder = Path(folder)
    settings = {"version": VERSION, "n_people": n_people, "random_state": random_state, "blocks": blocks}
    people = draw_people([f"S{i + 1:03d}" for i in range(n_people)], random_state)
    truth = {
        "settings": settings,
        "devices": {name: asdict(device) for name, device in DEVICES.items()},
        "people": {person.id: asdict(person) for person in people},
    }
    write_truth(folder, truth, "*.mat")
    for i in progress(range(n_people), "simulating", verbose):
        path = folder / f"{people[i].id}.mat"
        if not path.exists():
            _write_mat(path, {"data": 1e6 * simulate_person(people[i], blocks)})
    _write_mat(folder / files.INFORMATION, {"Subjects_Information": _information(people)})
    return truth


def simulate_person(person: Person, blocks: int) -> Array:
    """Return one participant's trials, (channels, samples, electrodes, blocks, targets), in volts."""
    sfreq = OVERSAMPLING * SFREQ
    data = np.empty((len(CHANNELS), SAMPLES, len(ELECTRODES), blocks, len(FREQUENCIES)))
    for e, electrode in enumerate(ELECTRODES):
        rng = person.rng(e, 0)
        # Each cap has its own gains and its own tilt.
        device, tilt = DEVICES[electrode].worn(rng), rng.normal(0.0, 0.03, 3)
        # Trials are in recording order: block by block, each with all targets.
        n_samples = blocks * len(FREQUENCIES) * OVERSAMPLING * SAMPLES
        *places, moments = joined(
            background(person, n_samples, sfreq, person.rng(e, 1)),
            flicker_response(person, np.tile(FREQUENCIES, blocks), person.rng(e, 2)),
        )
        field = leadfield(device.electrodes, *places, tilt=tilt)
        volts = record(moments, field, device, person.rng(e, 3), sfreq=sfreq)
        trials = volts.reshape(len(CHANNELS), blocks, len(FREQUENCIES), SAMPLES)
        data[:, :, e] = trials.transpose(0, 3, 1, 2)
    return data


def flicker_response(person: Person, frequencies: Any, rng: np.random.Generator) -> Sources:
    """Return the response of the visual cortex to flicker, for each trial.

    The response is a sum of harmonics that begins after the visual latency and lasts as long as the flicker.
    Participants differ in gain, latency, phases and dominant hemisphere; trials differ in strength.
    """
    traits = person.rng(len(ELECTRODES))
    phases = traits.uniform(0, 2 * np.pi, len(HARMONICS))
    balance = np.exp(0.3 * traits.normal(size=len(GENERATORS)))
    sfreq = OVERSAMPLING * SFREQ
    since = TMIN + np.arange(OVERSAMPLING * SAMPLES) / sfreq - VISUAL_LATENCY - person.latency
    envelope = np.clip(np.minimum(since, FLICKER + RISE - since) / RISE, 0.0, 1.0)
    waves = []
    for frequency in frequencies:
        wave = sum(
            share * np.sin(2 * np.pi * h * frequency * since + phase)
            for h, (share, phase) in enumerate(zip(HARMONICS, phases, strict=True), start=1)
        )
        # Responses grow weaker towards higher frequencies.
        waves.append(np.exp(0.25 * rng.normal()) * np.sqrt(10.0 / frequency) * envelope * wave)
    moments = RESPONSE * person.gain * balance[:, None] * np.concatenate(waves)
    return *below(person, GENERATORS), moments


def _information(people: list[Person]) -> NDArray[Any]:
    """Return the provider's cell array: column names (the first empty), then one row per participant."""
    questions = [f"Question {i + 1}" for i in range(6)]
    gender, first = files.COLUMNS.values()
    rows: list[list[Any]] = [["", gender, "Age", "Handedness", *questions, first]]
    rows += [
        [f"sub{i}", p.gender.title(), float(p.age), "Right", *[3.0] * 6, ELECTRODES[p.group].title()]
        for i, p in enumerate(people, start=1)
    ]
    return np.array(rows, dtype=object)


def _write_mat(path: Path, content: dict[str, Any]) -> None:
    from scipy.io import savemat

    with replacing(path) as temporary:
        savemat(temporary, content, appendmat=False)
        # The header would hold the time of writing; without it, equal simulations give equal bytes.
        with open(temporary, "r+b") as stream:
            stream.write(b"MATLAB 5.0 MAT-file, simulated by mgpa".ljust(116))
