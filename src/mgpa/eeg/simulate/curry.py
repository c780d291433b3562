"""Curry 7 recordings, the files a Neuroscan amplifier leaves: data, header, sensors and events.

Only what readers need, in the places where they look for it: ``.dat`` holds 32-bit floats in microvolts,
sample by sample; ``.dap`` how many of them, and how fast; ``.rs3`` which electrodes; ``.ceo`` the events.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..._common.files import write_atomically
from .head import electrode_positions

# Curry's own type of the note that impedances were measured, far from the small numbers of triggers.
IMPEDANCE = 1200002

_LIST = """{name} START
   ListDescription      = {description}
   ListUnits            = {units}
   ListNrColumns        =  {columns}
   ListNrRows           =  {rows}
   ListNrTimepts        =  1
   ListNrBlocks         =  1
   ListBinary           =  0
   ListType             =  {type}
   ListTrafoType        =  0
   ListGridType         =  0
   ListFirstColumn      =  1
   ListIndexMin         = -1
   ListIndexMax         = -1
   ListIndexAbsMax      = -1
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
    events: Sequence[tuple[int, int, str]] = (),
) -> Path:
    """Write a continuous recording as Curry 7 files, which :func:`mne.io.read_raw_curry` opens.

    Parameters
    ----------
    path : path
        The ``.dat`` file; the others go beside it.
    data : (channels, samples) array
        In volts.
    channels : sequence of str
        Names; electrodes of the 10-05 system in any case, as in FP1 and Fp1. Others, as VEO, are put at Fpz.
    sfreq : float
        Samples per second.
    events : sequence of (sample, type, text)
        Triggers and notes, in order; all of a type have one text, empty for a plain trigger. Without any
        there is no ``.ceo`` file.

    Examples
    --------
    >>> import mne, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "one.dat"
    ...     _ = write_curry(path, np.full((2, 500), 1e-6), ["CZ", "PZ"], 250.0, [(90, 3, "")])
    ...     raw = mne.io.read_raw_curry(path, preload=True, verbose="error")
    >>> raw.ch_names, raw.annotations.description.tolist(), raw.annotations.onset.round(3).tolist()
    (['CZ', 'PZ'], ['3'], [0.36])
    """
    path, volts = Path(path), np.asarray(data, dtype=np.float64)
    if path.suffix != ".dat":
        raise ValueError(f"{path} must end in .dat, as Curry 7 names its data.")
    if volts.ndim != 2 or len(volts) != len(channels):
        raise ValueError(f"data has shape {volts.shape}; expected ({len(channels)}, samples).")
    n, samples = volts.shape
    header = _HEADER.format(samples=samples, channels=n, sfreq=sfreq, interval=1e6 / sfreq)
    numbers = _list("CHAN_IN_FILE", [str(i + 1) for i in range(n)], "number of channel in file", kind=3)
    write_atomically(path.with_suffix(".dap"), (header + numbers).encode())

    from ..trials import standard_montage

    standard = {name.lower(): name for name in standard_montage().ch_names}
    # Curry measures in millimetres.
    places = 1000 * electrode_positions([standard.get(name.lower(), "Fpz") for name in channels])
    labels = _list("LABELS", channels, "functional sensor labels", kind=6)
    lines = ["\t".join(f"{value:.4f}" for value in place) for place in places]
    sensors = _list("SENSORS", lines, "functional sensor positions", columns=3, units="mm", kind=1)
    # Readers look for lists at the start of a line that is not the first.
    write_atomically(path.with_suffix(".rs3"), f"\n{labels}{sensors}".encode())

    if events:
        write_atomically(path.with_suffix(".ceo"), _events(events).encode())
    else:
        # Readers take no file for no events, and an empty list for a mistake.
        path.with_suffix(".ceo").unlink(missing_ok=True)
    # Last, so that data are there only with everything that tells what they are.
    return write_atomically(path, np.ascontiguousarray(1e6 * volts.T, dtype="<f4").tobytes())


def _events(events: Sequence[tuple[int, int, str]]) -> str:
    # Sample, eyes closed, type, colour, start, stop, and five numbers that continuous data leave at zero.
    rows = [
        "\t".join(map(str, (sample, 0, kind, 0, sample, sample, 0, 0, 0, 0, 0))) for sample, kind, _ in events
    ]
    listed = _list("NUMBER_LIST", rows, "event list", columns=11, kind=3)
    remarks = _list("REMARK_LIST", [text for _, _, text in events], "event annotations", columns=40, kind=5)
    return f"\n{listed}{remarks}"


def _list(
    name: str, lines: Sequence[str], description: str, *, columns: int = 1, units: str = "", kind: int
) -> str:
    text = "".join(f"{line}\n" for line in lines)
    return _LIST.format(
        name=name,
        description=description,
        units=units,
        columns=columns,
        rows=len(lines),
        type=kind,
        lines=text,
    )
