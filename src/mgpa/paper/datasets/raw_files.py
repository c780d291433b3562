"""Read single files of the providers: MATLAB arrays, the experiment's csv, Curry and EDF recordings.

A missing, truncated or wrong file raises one error that names the file. The libraries that read recordings
are partly written in C, and a few changed bytes can crash or block them. They therefore run in another
process, started by joblib (loky): unlike the standard library, joblib needs no ``if __name__ == "__main__"``
in the calling script.
"""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..._common.progress import start_worker
from ...errors import RecordingError

CHANNELS = (
    *("Cz", "Fz", "Fp1", "F3", "FT7", "CP3", "P7", "O1"),
    *("Pz", "Oz", "O2", "P8", "CP4", "FT8", "F4", "Fp2"),
)
# The true sampling rate of the headset, and the rate in its header.
FLEX_RATE, FLEX_HEADER_RATE = 129.05, 128.0
# The headset's marker precedes the event by this many samples.
MARKER_DELAY = 8
# Scale factors of MNE, which uses 1 for unknown units.
UNITS = {"µV": 1e-6, "mV": 1e-3, "V": 1.0}
# Triggers of events; Curry uses far larger numbers for its own notes.
TRIGGERS = [str(i) for i in range(1, 11)]
# Files beside the data of a Curry 7 recording: storage format, sensors and events.
COMPANIONS = (".dap", ".rs3", ".ceo")

# Columns read from the experiment's csv files; the first three are number, time and kind of the event.
_ODDBALL, _TONES = ("trial", "elapsed_time", "tone"), {"1": 0, "3": 1}
COLUMNS = {
    "N170": ("trial", "stimElapsedTime", "stimCat", "stimOrient", "eventCode"),
    "oddball_active": _ODDBALL,
    "oddball_passive": _ODDBALL,
}
LABELS = {"N170": {"watch": 0, "face": 1}, "oddball_active": _TONES, "oddball_passive": _TONES}
# Time limit for reading a file: a constant, plus a time per byte.
SECONDS, SECONDS_PER_BYTE = 120.0, 1e-6
_pool: Any = None
T = TypeVar("T")

#: One device's recording of a session: the shared channels (16, samples), in volts; sampling rate in Hz;
#: times of event markers, in seconds from the first sample; time and text of each other note.
Recording = tuple[NDArray[np.float64], float, NDArray[np.float64], list[tuple[float, str]]]


def read_apart(reader: Callable[..., T], path: Any, *arguments: Any) -> T:
    """Run ``reader(*arguments)`` in another process and return its result; errors name ``path``."""
    from joblib.externals.loky import ProcessPoolExecutor

    global _pool
    if _pool is None:
        _pool = ProcessPoolExecutor(1, timeout=60, initializer=start_worker, initargs=(os.getpid(),))
        atexit.register(_pool.shutdown, kill_workers=True)
    # The other process may run in another folder.
    arguments = tuple(a.absolute() if isinstance(a, Path) else a for a in arguments)
    seconds = SECONDS + SECONDS_PER_BYTE * Path(path).stat().st_size
    try:
        result: T = _pool.submit(reader, *arguments).result(seconds)
        return result
    except BrokenExecutor:
        problem = "crashed the library that reads it"
    except TimeoutError:
        problem = f"was not read within {seconds:.0f} s"
        _pool.shutdown(wait=True, kill_workers=True)
    _pool = None
    raise RecordingError(f"{path} {problem}: it is damaged. Fetch it again.")


def read_array(path: Path, variable: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Read a variable from a MATLAB file; raise unless it is a real, finite array of this shape."""
    array = read_apart(_variable, path, path, variable)
    if array.shape != shape or array.dtype.kind not in "fiu":
        raise RecordingError(
            f"{path}: {variable} is {array.dtype} of shape {array.shape}; expected real numbers of {shape}."
        )
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise RecordingError(f"{path}: {variable} has NaN or infinity (first at {where}, counted from 0).")
    return array


def read_cell(path: Path, variable: str) -> list[list[Any]]:
    """Return the rows of a cell array, with blanks stripped from texts."""
    cell = read_apart(_variable, path, path, variable, True)
    if cell.dtype != object or cell.ndim != 2 or len(cell) < 2:
        raise RecordingError(
            f"{path}: {variable} is {cell.dtype} of shape {cell.shape}; expected a cell array with a row of "
            "names and a row for each participant."
        )
    return [[value.strip() if isinstance(value, str) else value for value in row] for row in cell]


def _variable(path: Path, variable: str, squeeze: bool = False) -> NDArray[Any]:
    from scipy.io import loadmat

    try:
        variables = loadmat(path, squeeze_me=squeeze)
    except NotImplementedError:
        raise RecordingError(
            f"{path} is a MATLAB 7.3 file, unlike the provider's; store it with save(..., '-v7')."
        ) from None
    except Exception as error:  # raised by zlib, struct or scipy; all mean a damaged file
        raise RecordingError(f"{path} is damaged, or not a MATLAB file: {error}. Fetch it again.") from None
    if variable not in variables:
        names = ", ".join(sorted(name for name in variables if not name.startswith("__")))
        raise RecordingError(f"{path} has no variable {variable!r}. Variables: {names or 'none'}.")
    return np.asarray(variables[variable])


def read_behaviour(
    path: Path, task: str
) -> tuple[NDArray[np.float64], NDArray[np.int64], dict[str, NDArray[Any]]]:
    """Read the times and kinds of events from the experiment's csv file.

    The file has the columns trial (counted from 1), eventCode, stimCat, stimOrient and stimElapsedTime
    (N170), or trial, tone and elapsed_time (oddballs). It is comma-separated UTF-8, with or without a byte
    order mark. Blanks around names and values, and other columns, are ignored.

    Returns onsets in seconds on the experiment's clock, labels (1 for faces and deviant tones, code 3; 0 for
    watches and standard tones, code 1) and, for N170, ``orientation`` and ``event_code``.
    """
    import pandas

    labels, columns = LABELS[task], COLUMNS[task]
    try:
        # Read without a header, because pandas would rename duplicate columns.
        cells = pandas.read_csv(
            path, header=None, dtype=str, skipinitialspace=True, skip_blank_lines=False, encoding="utf-8-sig"
        )
    except ValueError as error:  # the file is empty, is not text, or has a line that is too long
        raise RecordingError(f"{path} cannot be read as CSV ({error}). Fetch it again.") from None
    cells = cells.fillna("").apply(lambda column: column.str.strip())
    header = cells.iloc[0].tolist()
    if absent := [name for name in columns if header.count(name) != 1]:
        raise RecordingError(
            f"{path} has {header.count(absent[0])} columns {absent[0]!r}; expected one each of "
            f"{', '.join(columns)}. Columns: {', '.join(map(repr, header))}."
        )
    rows = cells.iloc[1:, [header.index(name) for name in columns]].set_axis(columns, axis=1)
    rows = rows[(rows != "").any(axis=1)]

    def require(right: Any, name: str, expected: str) -> None:
        if not right.all():
            line = int(np.argmin(right))
            where = f"{path}, line {rows.index[line] + 1}"
            raise RecordingError(f"{where}: {name} is {rows[name].iloc[line]!r}; expected {expected}.")

    def numbers(name: str) -> NDArray[np.float64]:
        values = pandas.to_numeric(rows[name], errors="coerce").to_numpy(np.float64)
        require(np.isfinite(values), name, "a number")
        return np.asarray(values)

    number, onset = numbers(columns[0]), numbers(columns[1])
    if not len(rows):
        raise RecordingError(f"{path} lists no events.")
    require(number == np.arange(len(rows)) + 1, columns[0], "trials counted from 1 without gaps")
    require(np.diff(onset, prepend=-np.inf) > 0, columns[1], "a later time than before")
    # Tones may be written as 3.0.
    label = rows[columns[2]].str.lower().str.replace(r"\.0*$", "", regex=True).map(labels)
    require(label.notna().to_numpy(), columns[2], " or ".join(labels))
    facts: dict[str, NDArray[Any]] = {}
    if len(columns) > 3:
        orientation = rows[columns[3]].to_numpy(str)
        facts = {"orientation": orientation, "event_code": numbers(columns[4]).astype(np.int64)}
    return onset, label.to_numpy(np.int64), facts


def read_neuroscan(path: Path) -> Recording:
    """Read the shared channels and triggers of a Curry recording."""
    if absent := missing_companions(path):
        raise FileNotFoundError(f"{path} cannot be read without {' and '.join(absent)} beside it.")
    return read_apart(_neuroscan, path, path)


def _neuroscan(path: Path) -> Recording:
    import mne

    try:
        raw = mne.io.read_raw_curry(path, preload=False, verbose="error")
    except Exception as error:  # the reader raises bare Exceptions and failed assertions
        raise RecordingError(
            f"{path} cannot be read as a Curry recording ({str(error) or type(error).__name__}). This "
            "file, or its header, labels or events, is damaged or incomplete; fetch the recording again."
        ) from None
    markers, notes = [], []
    for onset, text in zip(raw.annotations.onset.tolist(), raw.annotations.description, strict=True):
        if text.strip() in TRIGGERS:
            markers.append(onset)
        else:
            notes.append((onset, str(text)))
    signal = raw.get_data(_pick(raw.ch_names, path))
    if not np.isfinite(signal).all():
        raise RecordingError(f"{path} holds NaN or infinite values: it is damaged. Fetch it again.")
    return signal, float(raw.info["sfreq"]), np.sort(np.array(markers)), notes


def read_flex(path: Path) -> Recording:
    """Read the shared channels and the hardware markers of a headset's EDF recording.

    Times are based on the true sampling rate, not on the rate in the header.
    """
    return read_apart(_flex, path, path)


def _flex(path: Path) -> Recording:
    import mne

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # MNE would read the remaining part of a truncated file without an error.
            warnings.filterwarnings("error", "Number of records from the header does not match")
            raw = mne.io.read_raw_edf(path, preload=False, verbose="warning")
    except Exception as error:  # damaged headers cause many kinds of errors
        raise RecordingError(f"{path} cannot be read as EDF ({error}). Fetch it again.") from None
    units = raw._orig_units
    if raw.info["sfreq"] != FLEX_HEADER_RATE:
        raise RecordingError(f"{path}: header has {raw.info['sfreq']:g} Hz; expected {FLEX_HEADER_RATE:g}.")
    if "MARKER_HARDWARE" not in raw.ch_names:
        raise RecordingError(f"{path} has no MARKER_HARDWARE. Channels: {', '.join(raw.ch_names)}.")
    # MNE has converted all channels labelled microvolts to volts, including markers.
    scale = UNITS.get(units["MARKER_HARDWARE"], 1.0)
    marker = raw.get_data(["MARKER_HARDWARE"])[0] / scale
    picks = _pick(raw.ch_names, path)
    for name in (raw.ch_names[i] for i in picks):
        if units[name] not in UNITS:
            raise RecordingError(f"{path}: {name} is in {units[name]!r}; expected uV, mV or V.")
    # An event is a rising marker; a marker that starts high is not an event.
    high = marker > 0.5
    rises = np.flatnonzero(high[1:] & ~high[:-1]) + 1
    return raw.get_data(picks), FLEX_RATE, (rises + MARKER_DELAY) / FLEX_RATE, []


def missing_companions(path: Path) -> list[str]:
    """Return the names of missing companion files of a Curry recording."""
    beside = [path.with_suffix(suffix) for suffix in COMPANIONS]
    return [file.name for file in beside if not file.is_file()]


def _pick(names: Sequence[str], path: Path) -> list[int]:
    """Return the positions of the shared channels, ignoring case."""
    place = {name.lower(): i for i, name in enumerate(names)}
    missing = [name for name in CHANNELS if name.lower() not in place]
    if missing:
        raise RecordingError(f"{path} lacks channel {', '.join(missing)}. Channels: {', '.join(names)}.")
    return [place[name.lower()] for name in CHANNELS]
