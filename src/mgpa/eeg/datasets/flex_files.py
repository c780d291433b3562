"""One file of the Neuroscan/Flex data set at a time: events as the experiment lists them, and each device's.

A file that is missing, cut short or not what its name says is one error that names it.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import RecordingError

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

ALIASES = {
    "onset": (
        "onset",
        "onsets",
        "onsettime",
        "stimulusonset",
        "stimonset",
        "eventonset",
        "time",
        "timestamp",
    ),
    "stimulus": (
        *("stimulus", "stim", "stimulustype", "stimtype", "stimuluscode", "condition", "category"),
        *("trialtype", "type", "tone", "code", "image", "event", "trigger"),
    ),
}


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


def read_behaviour(
    path: str | Path, labels: Mapping[str, int | None], columns: Mapping[str, str] | None = None
) -> tuple[NDArray[np.float64], list[int | None]]:
    """Read when events happened and which they were, from the experiment's csv file.

    Parameters
    ----------
    path : path
        Comma, semicolon or tab separated, with a header.
    labels : dict of stimulus to label
        Words count wherever they are in an entry, as in ``face_03.png``; numbers only as a whole. None: an
        event that is counted, and then left out.
    columns : dict or None
        Names of the columns ``onset`` (seconds) and ``stimulus``, if they have others.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "one.csv"
    ...     _ = path.write_text("Onset,Condition\\n1.5,face_1\\n2.75,watch_8\\n")
    ...     read_behaviour(path, {"face": 1, "watch": 0})
    (array([1.5 , 2.75]), [1, 0])
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecordingError(f"{path} is not text in UTF-8, as a csv file of events is.") from error
    header = text.partition("\n")[0]
    rows = csv.DictReader(text.splitlines(), delimiter=max(",;\t", key=header.count), strict=True)
    names = list(rows.fieldnames or ())
    onset, stimulus = (_column(path, names, name, columns) for name in ("onset", "stimulus"))
    times, kinds = [], []
    try:
        for row in rows:
            where = f"{path}, line {rows.line_num}"
            times.append(_number(row[onset], f"{where}, column {onset!r}"))
            kinds.append(_label(row[stimulus], labels, f"{where}, column {stimulus!r}"))
    except csv.Error as error:
        raise RecordingError(f"{path}, line {rows.line_num}: {error}.") from error
    if not times:
        raise RecordingError(f"{path} lists no events.")
    falls = np.flatnonzero(np.diff(times) <= 0)
    if len(falls):
        raise RecordingError(
            f"{path}: event {falls[0] + 2} is not after event {falls[0] + 1}, in column {onset!r}."
        )
    return np.array(times), kinds


def read_neuroscan(path: str | Path) -> Recording:
    """Read the shared channels and the triggers of a Curry recording.

    Parameters
    ----------
    path : path
        The ``.dat`` or ``.cdt`` file, with its header, labels and events beside it.
    """
    import mne

    path = Path(path)
    if absent := missing_companions(path):
        raise FileNotFoundError(f"{path} lacks {' and '.join(absent)} beside it, and cannot be read without.")
    for companion in itertools.chain.from_iterable(_needed(path)):
        if companion.is_file():
            _require_text(companion)
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
    return Recording(signal, float(raw.info["sfreq"]), np.sort(np.array(markers)), tuple(notes))


def read_flex(path: str | Path) -> Recording:
    """Read the shared channels and the hardware markers of a headset's EDF recording.

    Times follow the rate at which it samples, not the one its header gives.

    Parameters
    ----------
    path : path
        The ``.edf`` file.
    """
    import mne

    path = Path(path)
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
    return Recording(raw.get_data(picks), FLEX_RATE, (rising_edges(marker) + MARKER_DELAY) / FLEX_RATE)


def rising_edges(marker: Any, above: float = 0.5) -> NDArray[np.int64]:
    """Return the samples at which a marker rises; one that is high from the start did not.

    Examples
    --------
    >>> rising_edges([1, 0, 0, 3, 3, 0, 1]).tolist()
    [3, 6]
    """
    high = np.asarray(marker) > above
    return np.flatnonzero(high[1:] & ~high[:-1]) + 1


def missing_companions(path: str | Path) -> list[str]:
    """Return names of the files that Curry data need beside them and do not have.

    Examples
    --------
    >>> missing_companions("nowhere/1013.dat")
    ['1013.dap', '1013.rs3', '1013.ceo or 1013.cef']
    """
    return [
        " or ".join(file.name for file in names)
        for names in _needed(Path(path))
        if not any(file.is_file() for file in names)
    ]


def _needed(path: Path) -> list[list[Path]]:
    """Return the files that Curry 7 (.dat) or 8 (.cdt) data come with, each with its other names."""
    if path.suffix.lower() == ".dat":
        return [[path.with_suffix(s) for s in names] for names in ((".dap",), (".rs3",), (".ceo", ".cef"))]
    return [[Path(f"{path}{s}") for s in names] for names in ((".dpa", ".dpo"), (".ceo", ".cef"))]


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


def _column(path: Path, names: list[str], wanted: str, columns: Mapping[str, str] | None) -> str:
    given = (columns or {}).get(wanted)
    if given is not None:
        fits = [name for name in names if name == given]
    else:
        plain = {name: re.sub(r"[^a-z]", "", name.lower()) for name in names}
        fits = [name for name in names if plain[name] == wanted] or [
            name for name in names if plain[name] in ALIASES[wanted]
        ]
    if len(fits) != 1:
        which = f"{len(fits)} columns for the {wanted} of events" if given is None else f"no column {given!r}"
        raise RecordingError(
            f"{path} has {which}; its columns are {', '.join(map(repr, names))}. Pass "
            f'columns={{"{wanted}": …}} with the right one.'
        )
    return fits[0]


def _number(text: Any, where: str) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = np.nan
    if not np.isfinite(value):
        raise RecordingError(f"{where}: {text!r} is no time in seconds.")
    return value


def _label(text: Any, labels: Mapping[str, int | None], where: str) -> int | None:
    entry = str(text).strip().lower()
    number = re.fullmatch(r"(\d+)(\.0*)?", entry)
    entry = str(int(number[1])) if number else entry
    fits = [key for key in labels if key.lower() == entry or (key.isalpha() and key.lower() in entry)]
    if len(fits) != 1:
        raise RecordingError(
            f"{where}: {text!r} is none of {', '.join(labels)}. Pass labels={{stimulus: label}} (None: leave "
            "it out) if there are others."
        )
    return labels[fits[0]]
