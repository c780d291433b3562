"""A demonstration from raw files: a cap and a headset worn at once, as recordings that MNE opens.

Both see the same brains, whose alpha rhythm is stronger with eyes closed. The headset's channels have other
gains, and its amplifier passes a narrower band.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..tables.table import Table
from .features import BandPower
from .raws import table_from_raws
from .simulate.brain import background
from .simulate.people import Device, draw_people, record

CHANNELS = ("Fz", "Cz", "Pz", "Oz", "O1", "O2", "P3", "P4")
SFREQ, EVERY, TRIAL = 256.0, 1.6, 1.5
CAP = Device("cap", CHANNELS, SFREQ, "average", white=0.2e-6, pink=0.2e-6, lowpass=100.0)
HEADSET = Device(
    *("headset", CHANNELS, 128.0, "average"), white=0.2e-6, pink=0.2e-6, highpass=1.0, lowpass=35.0
)
#: How much stronger alpha is with eyes closed.
CLOSED = 3.0


def write_demo(folder: str | Path, *, n_people: int = 30, n_events: int = 24, random_state: int = 0) -> None:
    """Write ``S001_cap_raw.fif``, ``S001_headset_raw.fif`` and so on, with a marker for every trial."""
    import mne

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    onset = 2.0 + EVERY * np.arange(n_events)
    gains = np.exp(np.random.default_rng(random_state).normal(0.0, 0.2, len(CHANNELS)))
    devices = (CAP, replace(HEADSET, gains=tuple(gains.tolist())))
    for person in draw_people([f"S{i + 1:03d}" for i in range(n_people)], random_state):
        rng = person.rng(0)
        closed = rng.permutation(np.arange(n_events) % 2).astype(bool)
        brain = background(person, int(SFREQ * (onset[-1] + EVERY + 2.0)), SFREQ, rng)
        for start in onset[closed]:
            at = slice(round(start * SFREQ), round((start + EVERY) * SFREQ))
            brain.moments[-3:, at] *= CLOSED  # the last three sources are the alpha rhythm's
        field = brain.leadfield(CHANNELS)
        for device in devices:
            volts = record(brain.moments, field, device, rng, sfreq=SFREQ)
            info = mne.create_info(list(CHANNELS), device.sfreq, "eeg", verbose="error")
            info["subject_info"] = {"his_id": person.id}
            raw = mne.io.RawArray(volts, info, verbose="error")
            raw.set_annotations(mne.Annotations(onset, 0.0, np.where(closed, "closed", "open")))
            raw.save(folder / f"{person.id}_{device.name}_raw.fif", overwrite=True, verbose="error")


def demo_table(folder: str | Path, **settings: Any) -> Table:
    """Return the table of the recordings in a folder, which are simulated if there are none.

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
        for device in ("cap", "headset")
    }
    return table_from_raws(raws, encoder=BandPower(), tmin=0.0, tmax=TRIAL)
