"""Write the files of simulations: Curry 7 of a Neuroscan amplifier, EDF of an Emotiv Flex, and settings.

Only the fields that file readers need are written. In Curry, ``.dat`` holds 32-bit floats in microvolts,
sample by sample; ``.dap`` the number of samples and the sampling rate; ``.rs3`` the electrodes; ``.ceo`` the
events.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..._common.files import replacing, write_atomically
from ...eeg.simulate import electrode_positions
from ...eeg.trials import standard_montage
from ..datasets.raw_files import FLEX_HEADER_RATE, FLEX_RATE

# Curry's code for an impedance measurement, far from the small numbers of triggers.
IMPEDANCE = 1200002
# Sampling rate in the header of a Flex; the true rate is slightly higher (FLEX_RATE).
HEADER_RATE = int(FLEX_HEADER_RATE)
# Offset of Flex electrodes: half of the converter's range.
MIDDLE, RANGE = 4200.0, (0.0, 8400.0)

_LIST = """{name} START
   ListNrRows           =  {rows}
{name} END

{name} START_LIST    # Do not edit!
{lines}{name} END_LIST

"""

_HEADER = """DATA_PARAMETERS START
   NumSamples           =  {samples}
   NumChannels          =  {channels}
   NumTrials            =  1
   SampleFreqHz         =  {sfreq:.6f}
   TriggerOffsetUsec    =  0
   DataFormat           =  FLOAT
   DataByteOrder        =  INTEL
   DataSampOrder        =  SAMP
   SampleTimeUsec       =  {interval:.6f}
   StartYear            =  2018
   StartMonth           =  1
   StartDay             =  15
   StartHour            =  10
   StartMin             =  0
   StartSec             =  0
   StartMillisec        =  0
   AmplifierInfo        =  simulated
DATA_PARAMETERS END

DEVICE_PARAMETERS START
   DataDescription      =  functional data
   DataUnit             =  uV
   NumChanThisGroup     =  {channels}
   DeviceGroup          =  EEG
DEVICE_PARAMETERS END

"""


def write_curry(
    path: str | Path,
    data: Any,
    channels: Sequence[str],
    sfreq: float,
    events: Sequence[tuple[int, int, str]],
) -> Path:
    """Write a continuous recording as Curry 7 files for :func:`mne.io.read_raw_curry`."""
    path, volts = Path(path), np.asarray(data, dtype=np.float64)
    n, samples = volts.shape
    header = _HEADER.format(samples=samples, channels=n, sfreq=sfreq, interval=1e6 / sfreq)
    numbers = _list("CHAN_IN_FILE", [str(i + 1) for i in range(n)])
    write_atomically(path.with_suffix(".dap"), (header + numbers).encode())

    standard = {name.lower(): name for name in standard_montage().ch_names}
    # Curry stores positions in millimetres.
    places = 1000 * electrode_positions([standard.get(name.lower(), "Fpz") for name in channels])
    labels = _list("LABELS", channels)
    lines = ["\t".join(f"{value:.4f}" for value in place) for place in places]
    sensors = _list("SENSORS", lines)
    # Readers find a list only at the start of a line, and not in the first line.
    write_atomically(path.with_suffix(".rs3"), f"\n{labels}{sensors}".encode())

    # Sample, eyes closed, type, colour, start, stop, and five numbers that continuous data leave at zero.
    rows = ["\t".join(map(str, (at, 0, kind, 0, at, at, 0, 0, 0, 0, 0))) for at, kind, _ in events]
    listed = _list("NUMBER_LIST", rows)
    texts = _list("REMARK_LIST", [text for _, _, text in events])
    write_atomically(path.with_suffix(".ceo"), f"\n{listed}{texts}".encode())
    # The data file is written last, so that data never lack the files that describe them.
    return write_atomically(path, np.ascontiguousarray(1e6 * volts.T, dtype="<f4").tobytes())


def _list(name: str, lines: Sequence[str]) -> str:
    return _LIST.format(name=name, rows=len(lines), lines="".join(f"{line}\n" for line in lines))


def write_flex_edf(path: str | Path, data: Any, channels: Sequence[str], markers: Any) -> Path:
    """Write a recording of a Flex as EDF for :func:`mne.io.read_raw_edf`."""
    import edfio

    path, volts = Path(path), np.asarray(data, dtype=np.float64)
    n = volts.shape[1] // HEADER_RATE * HEADER_RATE

    def signal(name: str, values: Any, limits: tuple[float, float] = (-32768.0, 32767.0)) -> Any:
        # The device labels even its internal channels "microvolts".
        return edfio.EdfSignal(
            np.asarray(values[:n], dtype=np.float64),
            HEADER_RATE,
            label=name,
            physical_dimension="uV",
            physical_range=limits,
        )

    milliseconds = np.round(1000 * np.arange(n) / FLEX_RATE)
    microvolts = np.clip(MIDDLE + 1e6 * volts, *RANGE)
    signals = [
        signal("TIME_STAMP_s", milliseconds // 1000),
        signal("TIME_STAMP_ms", milliseconds % 1000),
        signal("COUNTER", np.arange(n) % HEADER_RATE),
        signal("INTERPOLATED", np.zeros(n)),
        *(signal(name, values, RANGE) for name, values in zip(channels, microvolts, strict=True)),
        signal("MARKER_HARDWARE", np.asarray(markers)),
    ]
    with replacing(path) as temporary:
        edfio.Edf(signals, data_record_duration=1).write(temporary)
    return path


def write_truth(folder: Path, truth: dict[str, Any], pattern: str) -> None:
    """Write truth.json; raise if the folder holds foreign files or a simulation with other settings."""
    path = folder / "truth.json"
    if not path.exists() and (foreign := sorted(folder.glob(pattern))):
        raise FileExistsError(f"{foreign[0]} is not simulated; name another folder.")
    content = json.dumps(truth, indent=1) + "\n"
    settings = json.loads(content)["settings"]
    if path.exists() and (stored := json.loads(path.read_text()).get("settings")) != settings:
        raise ValueError(f"{path} has the settings {stored}, not {settings}; use another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.encode())
