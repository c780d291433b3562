"""A demonstration with raw files: simulated recordings of two amplifiers in MNE's file format.

Both amplifiers record the same simulated brain signals, with a stronger alpha rhythm when the eyes are
closed. One amplifier has research settings; the other follows the sleep scoring manual of the American
Academy of Sleep Medicine (0.3 to 35 Hz, 200 samples per second). Both recordings have the average reference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..tables.table import Table
from .features import BandPower
from .raws import table_from_raws
from .simulate import Device, background, draw_people, leadfield, record

CHANNELS = ("Fz", "Cz", "Pz", "Oz", "O1", "O2", "P3", "P4")
# Seconds between trials, seconds per trial, and sampling rate of the brain signals.
EVERY, TRIAL, SFREQ = 1.6, 1.5, 256.0
# Both add 0.8 µV of noise, as BioSemi states for its amplifier.
DEVICES = (
    Device("amplifier", CHANNELS, 256.0, "average", white=0.8e-6, highpass=0.1, lowpass=100.0),
    Device("recorder", CHANNELS, 200.0, "average", white=0.8e-6, highpass=0.3, lowpass=35.0),
)
#: Factor of the alpha rhythm with eyes closed.
CLOSED = 3.0


def write_demo(folder: str | Path, *, n_people: int = 30, n_events: int = 24, random_state: int = 0) -> None:
    """Write ``S001_amplifier_raw.fif``, ``S001_recorder_raw.fif``, …, with a marker for each trial."""
    import mne

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    onset = 2.0 + EVERY * np.arange(n_events)
    for person in draw_people([f"S{i + 1:03d}" for i in range(n_people)], random_state):
        rng = person.rng(0)
        closed = rng.permutation(np.arange(n_events) % 2).astype(bool)
        *places, moments = background(person, int(SFREQ * (onset[-1] + EVERY + 2.0)), SFREQ, rng)
        for start in onset[closed]:
            at = slice(round(start * SFREQ), round((start + EVERY) * SFREQ))
            moments[-3:, at] *= CLOSED  # the last three sources generate the alpha rhythm
        for device in DEVICES:
            field = leadfield(device.electrodes, *places)
            volts = record(moments, field, device, rng, sfreq=SFREQ)
            info = mne.create_info(list(CHANNELS), device.sfreq, "eeg", verbose="error")
            info["subject_info"] = {"his_id": person.id}
            raw = mne.io.RawArray(volts, info, verbose="error")
            raw.set_annotations(mne.Annotations(onset, 0.0, np.where(closed, "closed", "open")))
            raw.save(folder / f"{person.id}_{device.name}_raw.fif", overwrite=True, verbose="error")


def demo_table(folder: str | Path, **settings: Any) -> Table:
    """Return the table of the recordings in a folder; simulate recordings if it is empty.

    Trials of both devices are paired by their markers, and embedded as band power.
    """
    import mne

    folder = Path(folder)
    if not any(folder.glob("*_raw.fif")):
        write_demo(folder, **settings)
    raws = {
        device: [
            mne.io.read_raw_fif(path, verbose="error") for path in sorted(folder.glob(f"*_{device}_raw.fif"))
        ]
        for device in ("amplifier", "recorder")
    }
    return table_from_raws(raws, encoder=BandPower(), tmin=0.0, tmax=TRIAL)
