"""One file of the Neuroscan/Flex data set at a time: events as the experiment lists them, and each device's.

A file that is missing, cut short or not what its name says is one error that names it.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import RecordingError
from .reader_process import read_apart

CHANNELS = (
    *("Cz", "Fz", "Fp1", "F3", "FT7", "CP3", "P7", "O1"),
    *("Pz", "Oz", "O2", "P8", "CP4", "FT8", "F4", "Fp2"),
)
# The headset's header says 128 Hz, but this is how fast it samples.
FLEX_RATE, FLEX_HEADER_RATE = 129.05, 128.0
# Samples by which the headset's marker comes before the event.
MARKER_DELAY = 8
# What MNE multiplies by, which it takes 1 for if it does not know the unit.
UNITS = {"uv": 1e-6, "µv": 1e-6, "mv": 1e-3, "v": 1.0}
# Triggers of events; Curry numbers its own notes far above.
TRIGGERS = range(1, 11)
# What Curry 7 puts beside its data: how they are stored, which sensors they are of, and the events.
COMPANIONS = (".dap", ".rs3", ".ceo")

# Columns of the experiment's csv files that are read, the first three: which event, when, and what it was.
_ODDBALL = ("trial", "elapsed_time", "tone")
COLUMNS = {
    "N170": ("trial", "stimElapsedTime", "stimCat", "stimOrient", "eventCode"),
    "oddball_active": _ODDBALL,
    "oddball_passive": _ODDBALL,
}
LABELS = {
    "N170": {"watch": 0, "face": 1},
    "oddball_active": {"1": 0, "3": 1},
    "oddball_passive": {"1": 0, "3": 1},
}


@dataclass(frozen=True, eq=False)
class Behaviour:
    """What the experiment's csv file says about the events of a session.

    Parameters
    ----------
    onset : (n,) array
        Seconds on the experiment's clock.
    label : (n,) array
        Faces are 1 and watches 0; deviant tones (code 3) are 1 and standard ones (code 1) 0.
    columns : dict of str to (n,) array
        Of N170: ``orientation`` and ``event_code``, as the file has them.
    """

    onset: NDArray[np.float64]
    label: NDArray[np.int64]
    columns: dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Recording:
    """What one device recorded of a session.

    Parameters
    ----------
    signal : (16, samples) array
        The shared channels, in their order, in volts.
    sfreq : float
        Samples per second.
    markers : (n,) array
        Times of event markers in seconds; the first sample is at 0.
    notes : tuple of (float, str)
        Time and text of everything else it noted.
    """

    signal: NDArray[np.float64]
    sfreq: float
    markers: NDArray[np.float64]
    notes: tuple[tuple[float, str], ...] = ()


def read_behaviour(path: str | Path, task: str) -> Behaviour:
    """Read when events happened and which they were, from the experiment's csv file.

    The file is comma separated UTF-8, with or without a byte order mark; blanks around names and values do
    not count, and neither do other columns.

    Parameters
    ----------
    path : path
        With the columns trial, eventCode, stimCat, stimOrient and stimElapsedTime (N170), or trial, tone and
        elapsed_time (oddballs). Trials are counted from 1.
    task : str
        N170, oddball_active or oddball_passive.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "1013_oddball.csv"
    ...     _ = path.write_text("trial, tone, elapsed_time\\n1, 1, 1.5\\n2, 3, 2.75\\n")
    ...     behaviour = read_behaviour(path, "oddball_active")
    >>> behaviour.onset.tolist(), behaviour.label.tolist()
    ([1.5, 2.75], [0, 1])
    """
    return Behaviour(**_behaviour(Path(path), task))


@read_apart
def _behaviour(path: Path, task: str) -> dict[str, Any]:
    labels = LABELS[task]
    onset: list[float] = []
    label: list[int] = []
    orientation: list[str] = []
    code: list[int] = []
    for where, row in _csv_rows(path, COLUMNS[task]):
        number, when, what = (row[name] for name in COLUMNS[task][:3])
        if _number(number, f"{where}, trial") != len(onset) + 1:
            raise RecordingError(
                f"{where}: trial is {number}; expected {len(onset) + 1}, as none is missing."
            )
        onset.append(_number(when, f"{where}, {COLUMNS[task][1]}"))
        # Tones may be written as 3.0.
        stimulus = re.sub(r"\.0*$", "", what.lower())
        if stimulus not in labels:
            raise RecordingError(f"{where}: {COLUMNS[task][2]} is {what!r}; expected {' or '.join(labels)}.")
        label.append(labels[stimulus])
        if task == "N170":
            orientation.append(row["stimOrient"])
            code.append(int(_number(row["eventCode"], f"{where}, eventCode")))
    if not onset:
        raise RecordingError(f"{path} lists no events.")
    falls = np.flatnonzero(np.diff(onset) <= 0)
    if len(falls):
        raise RecordingError(f"{path}: event {falls[0] + 2} is not after event {falls[0] + 1}.")
    columns: dict[str, NDArray[Any]] = {}
    if task == "N170":
        columns = {"orientation": np.array(orientation), "event_code": np.array(code)}
    return {"onset": np.array(onset), "label": np.array(label, dtype=np.int64), "columns": columns}


def read_neuroscan(path: str | Path) -> Recording:
    """Read the shared channels and the triggers of a Curry recording.

    Parameters
    ----------
    path : path
        The ``.dat`` file, with its header, labels and events beside it.
    """
    values = _neuroscan(Path(path))
    return Recording(**values | {"notes": tuple((onset, text) for onset, text in values["notes"])})


@read_apart
def _neuroscan(path: Path) -> dict[str, Any]:
    import mne

    if absent := missing_companions(path):
        raise FileNotFoundError(f"{path} lacks {' and '.join(absent)} beside it, and cannot be read without.")
    for suffix in COMPANIONS:
        _require_text(path.with_suffix(suffix))
    try:
        raw = mne.io.read_raw_curry(path, preload=False, verbose="error")
    except Exception as error:  # the reader raises bare Exceptions and failed assertions
        raise RecordingError(
            f"{path} cannot be read as a Curry recording ({str(error) or type(error).__name__}). It, or its "
            "header, labels or events, is damaged or incomplete; fetch them again."
        ) from error
    picks = _pick(raw.ch_names, path)
    markers, notes = [], []
    for onset, text in zip(raw.annotations.onset, raw.annotations.description, strict=True):
        event = re.fullmatch(r"\s*(\d+)\s*", text)
        if event and int(event[1]) in TRIGGERS:
            markers.append(float(onset))
        else:
            notes.append((float(onset), str(text)))
    signal = raw.get_data(picks)
    if not np.isfinite(signal).all():
        raise RecordingError(f"{path} holds NaN or infinite values: it is damaged. Fetch it again.")
    return {
        "signal": signal,
        "sfreq": float(raw.info["sfreq"]),
        "markers": np.sort(np.array(markers)),
        "notes": notes,
    }


def read_flex(path: str | Path) -> Recording:
    """Read the shared channels and the hardware markers of a headset's EDF recording.

    Times follow the rate at which it samples, not the one its header gives.

    Parameters
    ----------
    path : path
        The ``.edf`` file.
    """
    return Recording(**_flex(Path(path)))


@read_apart
def _flex(path: Path) -> dict[str, Any]:
    import mne

    units = _edf_units(path)
    try:
        raw = mne.io.read_raw_edf(path, preload=False, verbose="error")
    except Exception as error:  # whatever a damaged header leads to
        raise RecordingError(f"{path} cannot be read as EDF ({error}). Fetch it again.") from error
    if raw.info["sfreq"] != FLEX_HEADER_RATE:
        raise RecordingError(f"{path} says {raw.info['sfreq']:g} Hz; a Flex says {FLEX_HEADER_RATE:g} Hz.")
    if "MARKER_HARDWARE" not in raw.ch_names:
        raise RecordingError(f"{path} has no MARKER_HARDWARE; it has {', '.join(raw.ch_names)}.")
    # Everything that says microvolts was turned into volts, markers too.
    scale = UNITS.get(units["MARKER_HARDWARE"].lower(), 1.0)
    marker = raw.get_data(["MARKER_HARDWARE"])[0] / scale
    picks = _pick(raw.ch_names, path)
    for name in (raw.ch_names[i] for i in picks):
        if units[name].lower() not in UNITS:
            raise RecordingError(f"{path}: {name} is in {units[name]!r}; expected uV, mV or V.")
    return {
        "signal": raw.get_data(picks),
        "sfreq": FLEX_RATE,
        "markers": (rising_edges(marker) + MARKER_DELAY) / FLEX_RATE,
    }


def rising_edges(marker: Any) -> NDArray[np.int64]:
    """Return the samples at which a marker rises; one that is high from the start did not.

    Examples
    --------
    >>> rising_edges([1, 0, 0, 3, 3, 0, 1]).tolist()
    [3, 6]
    """
    high = np.asarray(marker) > 0.5
    return np.flatnonzero(high[1:] & ~high[:-1]) + 1


def missing_companions(path: str | Path) -> list[str]:
    """Return names of the files that Curry data need beside them and do not have.

    Examples
    --------
    >>> missing_companions("nowhere/1013_N170.dat")
    ['1013_N170.dap', '1013_N170.rs3', '1013_N170.ceo']
    """
    beside = [Path(path).with_suffix(suffix) for suffix in COMPANIONS]
    return [file.name for file in beside if not file.is_file()]


def _require_text(path: Path) -> None:
    try:
        path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RecordingError(
            f"{path} is not text, as Curry's descriptions of data are. Fetch it again."
        ) from error


def _edf_units(path: Path) -> dict[str, str]:
    """Return each channel's unit, from the header, after checking that the file is as long as that says."""
    with open(path, "rb") as stream:
        content = stream.read(1 << 16)
    try:
        n = int(content[252:256])
        names = [_edf_text(content[256 + 16 * i :][:16]) for i in range(n)]
        units = [_edf_text(content[256 + 96 * n + 8 * i :][:8]) for i in range(n)]
        samples = sum(int(content[256 + 216 * n + 8 * i :][:8]) for i in range(n))
        records, start = int(content[236:244]), int(content[184:192])
    except ValueError as error:
        raise RecordingError(f"{path} is not an EDF file, or its header is cut short.") from error
    expected, there = start + 2 * samples * records, path.stat().st_size
    if there < expected:
        raise RecordingError(f"{path} has {there} bytes of {expected}: it was cut short. Fetch it again.")
    return dict(zip(names, units, strict=True))


def _edf_text(field: bytes) -> str:
    # Padded with spaces, or by some writers with zeros.
    return field.decode("latin-1").partition("\0")[0].strip()


def _pick(names: Sequence[str], path: Path) -> list[int]:
    """Return where the shared channels are, whatever their case."""
    there = {name.lower(): i for i, name in enumerate(names)}
    missing = [name for name in CHANNELS if name.lower() not in there]
    if missing:
        raise RecordingError(f"{path} lacks channel {', '.join(missing)}; it has {', '.join(names)}.")
    return [there[name.lower()] for name in CHANNELS]


def _csv_rows(path: Path, needed: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield where each row is, and its values of the needed columns."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecordingError(f"{path} is not text in UTF-8, as a csv file of events is.") from error
    lines = csv.reader(text.splitlines(), strict=True, skipinitialspace=True)
    try:
        header = [name.strip() for name in next(lines, [])]
        for name in needed:
            if header.count(name) != 1:
                raise RecordingError(
                    f"{path} has {header.count(name)} columns {name!r}; expected one each of "
                    f"{', '.join(needed)}. Its columns are {', '.join(map(repr, header)) or 'none'}."
                )
        for row in lines:
            values = [value.strip() for value in row]
            if any(values):
                # A row cut short has nothing in its last columns.
                by_name = dict(itertools.zip_longest(header, values[: len(header)], fillvalue=""))
                yield f"{path}, line {lines.line_num}", {name: by_name[name] for name in needed}
    except csv.Error as error:
        raise RecordingError(f"{path}, line {lines.line_num}: {error}.") from error


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise RecordingError(f"{where}: {text!r} is no number.")
    return value
