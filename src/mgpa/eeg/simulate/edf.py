"""EDF recordings as an Emotiv Flex leaves them: electrodes, and the device's own channels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..._common.files import replacing
from ..datasets.flex_files import FLEX_HEADER_RATE, FLEX_RATE

# What the header says. The device samples a little faster (FLEX_RATE).
HEADER_RATE = int(FLEX_HEADER_RATE)
# Electrodes sit on half of the converter's range.
MIDDLE, RANGE = 4200.0, (0.0, 8400.0)


def write_flex_edf(path: str | Path, data: Any, channels: Sequence[str], markers: Any) -> Path:
    """Write a recording of a Flex, which :func:`mne.io.read_raw_edf` opens.

    Parameters
    ----------
    path : path
        The ``.edf`` file.
    data : (channels, samples) array
        In volts; samples after the last whole second (128) are left out, as the device leaves them out.
    channels : sequence of str
        Names of electrodes.
    markers : (samples,) array
        Values of MARKER_HARDWARE, whole numbers.

    Examples
    --------
    >>> import mne, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_flex_edf(Path(folder) / "one.edf", np.zeros((2, 300)), ["Cz", "Pz"], np.zeros(300))
    ...     raw = mne.io.read_raw_edf(path, preload=True, verbose="error")
    >>> raw.ch_names, int(raw.n_times), raw.info["sfreq"]
    (['TIME_STAMP_s', 'TIME_STAMP_ms', 'COUNTER', 'INTERPOLATED', 'Cz', 'Pz', 'MARKER_HARDWARE'], 256, 128.0)
    """
    import edfio

    path, volts, markers = Path(path), np.asarray(data, dtype=np.float64), np.asarray(markers)
    if volts.ndim != 2 or len(volts) != len(channels) or markers.shape != volts.shape[1:]:
        raise ValueError(
            f"data has shape {volts.shape} and markers {markers.shape}; expected "
            f"({len(channels)}, samples) and (samples,)."
        )
    n = volts.shape[1] // HEADER_RATE * HEADER_RATE
    if not n:
        raise ValueError(f"{volts.shape[1]} samples are less than the one second that a file holds at least.")

    def signal(name: str, values: Any, limits: tuple[float, float]) -> Any:
        # Its own channels, too, are in "microvolts" to the device.
        return edfio.EdfSignal(
            np.asarray(values[:n], dtype=np.float64),
            HEADER_RATE,
            label=name,
            physical_dimension="uV",
            physical_range=limits,
        )

    whole = (-32768.0, 32767.0)
    counter = np.arange(n) % HEADER_RATE
    milliseconds = np.round(1000 * np.arange(n) / FLEX_RATE)
    microvolts = np.clip(MIDDLE + 1e6 * volts, *RANGE)
    signals = [
        signal("TIME_STAMP_s", milliseconds // 1000, whole),
        signal("TIME_STAMP_ms", milliseconds % 1000, whole),
        signal("COUNTER", counter, whole),
        signal("INTERPOLATED", np.zeros(n), whole),
        *(signal(name, values, RANGE) for name, values in zip(channels, microvolts, strict=True)),
        signal("MARKER_HARDWARE", markers, whole),
    ]
    with replacing(path) as temporary:
        edfio.Edf(signals, data_record_duration=1).write(temporary)
    return path
