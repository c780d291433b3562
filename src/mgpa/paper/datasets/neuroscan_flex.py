"""Read the Neuroscan/Flex data set: each event was recorded by a research amplifier and a headset at once.

It has sixteen shared channels and three tasks (Williams et al., 2020): N170 (faces and watches), and an
auditory oddball that is attended (P300) or not (MMN). Recordings of both devices are filtered, referenced and
resampled in the same way, events are paired by their order, and epochs are cut at the event times of each
device.

Files are arranged as in the provider's folder "Saline Raw Data": ``<task>/behav/<person>_*.csv``,
``<task>/eeg/emotiv/<person>_*.edf`` and ``<task>/eeg/neuroscan/<person>_*.dat`` with its companions. Only
participants with a role in the paper's public release are read.
"""

from __future__ import annotations

import filecmp
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..._common.progress import progress
from ...eeg.pairing import PairingReport, Timing, exclude_overlap, match_events, timing_test
from ...eeg.trials import Trials
from ...errors import PairingError, RecordingError
from .catalogue import Inventory, beside_published
from .raw_files import CHANNELS, Recording, missing_companions, read_behaviour, read_flex, read_neuroscan

Floats = NDArray[np.float64]

# Sources are numbered in the order of their labels; in the paper, Neuroscan is the first.
SOURCES = ("Neuroscan", "flex")
# Folder (inside that of a task) and file suffix of each kind of file.
KINDS = {
    "behaviour": ("behav", ".csv"),
    "neuroscan": ("eeg/neuroscan", ".dat"),
    "flex": ("eeg/emotiv", ".edf"),
}
RAW = "Saline Raw Data"
# Names of the tasks in the paper.
TASKS = {"N170": "N170", "oddball_active": "P300", "oddball_passive": "MMN"}
# Roles of participants in the paper. The reuse study's DEV participants are called VAL here.
_SHARED = {
    "FIT": ("1013", "1014", "1016", "1018"),
    "VAL": ("1022", "1023"),
    "HEAD": ("1019", "1020", "1024", "1025"),
}
ROLES = {
    "N170": _SHARED | {"EVAL": ("1021", *(str(i) for i in range(1026, 1035)))},
    "reuse": _SHARED | {"EVAL": tuple(str(i) for i in range(1026, 1034))},
}
PARTICIPANTS = tuple(sorted(name for names in ROLES["N170"].values() for name in names))
# Participants of each task with a role in some study; the passive oddball has only HEAD and EVAL.
USED = {
    "N170": PARTICIPANTS,
    "oddball_active": tuple(sorted(name for names in ROLES["reuse"].values() for name in names)),
    "oddball_passive": tuple(sorted(ROLES["reuse"]["HEAD"] + ROLES["reuse"]["EVAL"])),
}
# Counts in the paper: clean N170 pairs of each role; P300 events for fitting and for selection.
CLEAN_N170 = {"FIT": 622, "VAL": 288, "HEAD": 716, "EVAL": 1381}
P300_EVENTS = {"FIT": 2260, "VAL": 1332}
CALIBRATION, PURGE = 100, 1.0

BAND, SFREQ, TMIN, POINTS, MIN_SOA = (0.1, 30.0), 128.0, -0.2, 128, 0.8
ARTIFACT = 100e-6
# The amplifier's note when it pauses to measure impedances, in upper or lower case.
BREAK_NOTE = "impedance"


def find(folder: str | Path) -> dict[tuple[str, str], dict[str, Path]]:
    """Return the files of every participant and task that the paper uses."""
    files, problems = _scan(folder)
    if problems:
        raise RecordingError(" ".join(problems))
    return files


def neuroscan_flex_inventory(
    folder: str | Path, tasks: Iterable[str] = tuple(TASKS), *, check: bool = False
) -> Inventory:
    """Return which of the paper's recordings are present in a folder."""
    files, problems = _scan(folder)
    present: list[str] = []
    missing: list[str] = []
    checks: dict[str, tuple[int, int]] = {}
    for task in map(_task, tasks):
        for person in USED[task]:
            session = files.get((person, task), {})
            for kind in KINDS:
                (present if kind in session else missing).append(f"{person} {task} {kind}")
            if "neuroscan" in session and (absent := missing_companions(session["neuroscan"])):
                problems.append(f"{session['neuroscan']} lacks {' and '.join(absent)} beside it.")
        if check:
            try:
                checks |= count_checks(read_neuroscan_flex(folder, task)[0])
            except (OSError, ValueError) as error:
                problems.append(str(error))
    return Inventory(
        "Neuroscan/Flex", Path(folder), tuple(present), tuple(missing), tuple(problems), dict(checks)
    )


def read_neuroscan_flex(
    folder: str | Path,
    task: str,
    participants: Sequence[str] | None = None,
    *,
    artifact: float | None = ARTIFACT,
    verbose: bool = False,
) -> tuple[Trials, PairingReport]:
    """Read the paired trials of one task, prepared as in the paper.

    Recordings of both devices have 16 channels, a zero-phase FIR filter (0.1-30 Hz), an average reference and
    128 Hz. Epochs have 128 points from -0.2 s relative to exact event times, minus the mean before the event,
    as float32 in volts. A pair is dropped and reported if an epoch extends beyond its recording or spans a
    break in which the amplifier measured impedances.

    Parameters
    ----------
    folder : path
        Folder of the provider's files.
    task : str
        N170, oddball_active (or P300) or oddball_passive (or MMN).
    participants : sequence of str or None
        Some of the participants with a role in the task (``USED``). None: all of these that have files.
    artifact : float or None
        Pairs that exceed this amplitude (in volts) on either device are kept and marked in the column
        ``artifact``. None: no such column.

    Returns
    -------
    trials : Trials
        Two rows per event, Neuroscan first. Columns: participant, source, label, pair_id, task, ordinal
        (number of the event, from 1), onset (s, on the device's own clock), artifact; for N170 also
        orientation and event_code.
    report : PairingReport
        How events were paired, which were dropped, and, if all participants were read, the counts beside the
        published ones.
    """
    task = _task(task)
    files = find(folder)
    people = [p for p in USED[task] if (p, task) in files] if participants is None else list(participants)
    if unused := [person for person in people if person not in USED[task]]:
        raise ValueError(
            f"{', '.join(unused)} did not take part in {task}; expected some of {' '.join(USED[task])}."
        )
    if not people:
        raise ValueError(f"{folder} has no files of {task}.")
    for person in people:
        if absent := [kind for kind in KINDS if kind not in files.get((person, task), {})]:
            raise FileNotFoundError(f"{folder} has no {' and no '.join(absent)} file of {person} {task}.")
    parts = []
    report = PairingReport({}, {}, {}, {})
    for i in progress(range(len(people)), "Participants", verbose):
        parts.append(_read_session(people[i], task, files[people[i], task], artifact, report))
    trials = Trials.concatenate(parts)
    notes = tuple(beside_published(what, *counts) for what, counts in count_checks(trials).items())
    return trials, replace(report, notes=notes)


def count_checks(trials: Trials) -> dict[str, tuple[int, int]]:
    """Return the published number and the number found for each kind of event, by name.

    For N170, these are the clean pairs of each role. For P300, they are the FIT events that remain without
    each participant's first hundred (calibration) and all events within a second of these, and the events of
    development participants.
    """
    task = str(trials.columns["task"][0])
    if set(trials.columns["participant"]) != set(USED[task]):
        return {}
    if task == "N170" and trials.info["artifact_limit"] == ARTIFACT:
        clean = trials.columns["participant"][~trials.columns["artifact"]]
        return {
            f"clean N170 pairs of {role}": (n, int(np.isin(clean, ROLES["N170"][role]).sum()) // 2)
            for role, n in CLEAN_N170.items()
        }
    if task != "oddball_active":
        return {}
    counts = dict.fromkeys(P300_EVENTS, 0)
    for role in counts:
        for person in ROLES["reuse"][role]:
            rows = trials.columns["participant"] == person
            onset = trials.columns["onset"][rows].reshape(-1, len(SOURCES)).T
            if role == "FIT":
                calibrates = trials.columns["ordinal"][rows][:: len(SOURCES)] <= CALIBRATION
                rest = onset[:, ~calibrates]
                onset = rest[:, exclude_overlap(rest, onset[:, calibrates], PURGE)]
            counts[role] += onset.shape[1]
    return {
        "P300 events for fitting, without calibration and purge": (P300_EVENTS["FIT"], counts["FIT"]),
        "P300 events for selection": (P300_EVENTS["VAL"], counts["VAL"]),
    }


def _read_session(
    person: str, task: str, paths: Mapping[str, Path], artifact: float | None, report: PairingReport
) -> Trials:
    """Return the paired trials of a participant, and add the pairing to the report."""
    listed, label, facts = read_behaviour(paths["behaviour"], task)
    _require_apart(listed, paths["behaviour"])
    devices = (read_neuroscan(paths["neuroscan"]), read_flex(paths["flex"]))
    markers = [times for _, _, times, _ in devices]
    breaks = [t for t, text in devices[0][3] if BREAK_NOTE in text.lower()]
    try:
        ordinal, onsets, dropped, timing = _pair_events(markers, listed, breaks)
    except PairingError as error:
        names = ", ".join(str(path) for path in paths.values())
        raise PairingError(f"{person} {task}: {error} The files are {names}.") from error
    cut = [_epochs(device, onset) for device, onset in zip(devices, onsets, strict=True)]
    spans = np.zeros(len(ordinal), dtype=bool)
    if breaks and len(markers[0]) < len(listed):
        start = onsets[0] + TMIN
        spans = (start <= breaks[0]) & (breaks[0] <= start + (POINTS - 1) / SFREQ)
    keep = ~spans & cut[0][1] & cut[1][1]
    dropped += _words_of_dropped(ordinal, keep, [valid for _, valid in cut])
    ordinal = ordinal[keep]
    # Two rows per event: the second axis is the device.
    data = np.stack([epochs[keep] for epochs, _ in cut], axis=1).astype(np.float32)
    flags = (np.abs(data) > (np.inf if artifact is None else artifact)).any(axis=(1, 2, 3))
    twice = np.repeat(ordinal, 2)
    columns = {
        "participant": np.full(len(twice), person),
        "source": np.tile(SOURCES, len(ordinal)),
        "label": label[twice - 1],
        "pair_id": np.array([f"{person}-{TASKS[task]}-{k:04d}" for k in twice]),
        "task": np.full(len(twice), task),
        "ordinal": twice,
        "onset": np.stack([onset[keep] for onset in onsets], axis=1).ravel(),
        **{name: values[twice - 1] for name, values in facts.items()},
    }
    if artifact is not None:
        columns["artifact"] = np.repeat(flags, 2)
    info = {"dataset": "Neuroscan/Flex", "task": task, "artifact_limit": artifact}
    report.events[person], report.pairs[person] = len(listed), len(ordinal)
    report.dropped[person], report.timing[person] = dropped, timing
    return Trials(data.reshape(-1, *data.shape[2:]), CHANNELS, SFREQ, TMIN, columns, info)


def _require_apart(listed: Floats, path: Path) -> None:
    gaps = np.diff(listed)
    if (gaps < MIN_SOA).any():
        first = int(np.argmax(gaps < MIN_SOA))
        raise ValueError(
            f"Events of {path}: {first + 1} and {first + 2} are {gaps[first]:.3f} s apart; "
            f"at least {MIN_SOA:g} s are needed, so that responses do not overlap."
        )


def _words_of_dropped(
    ordinal: NDArray[np.int64], keep: NDArray[np.bool_], valid: Sequence[NDArray[np.bool_]]
) -> list[str]:
    """Return the reasons for dropped epochs; ``valid`` marks, per device, the epochs inside its recording."""
    words = []
    for i in np.flatnonzero(~keep).tolist():
        outside = [name for name, inside in zip(SOURCES, valid, strict=True) if not inside[i]]
        where = f"leaves the recording of {' and '.join(outside)}" if outside else "spans the break"
        words.append(f"event {ordinal[i]}: its epoch {where}")
    return words


def _pair_events(
    markers: Sequence[Floats], listed: Floats, breaks: Sequence[float]
) -> tuple[NDArray[np.int64], list[Floats], list[str], dict[str, Timing]]:
    """Return events that both devices marked, the two event times, unmatched markers, and timing tests."""
    numbers = [
        match_events(times, listed, breaks=notes, name=name)
        for name, times, notes in zip(SOURCES, markers, (breaks, None), strict=True)
    ]
    events = np.arange(len(listed)) + 1
    missed = [np.setdiff1d(events, number) for number in numbers]
    dropped = []
    for name, times, number, absent in zip(SOURCES, markers, numbers, missed, strict=True):
        dropped += [f"event {k}: no marker on {name}" for k in absent]
        extra = np.flatnonzero(number == 0)
        dropped += [f"marker {i + 1} of {name}, at {times[i]:.3f} s, belongs to no event" for i in extra]
    ordinal = np.setdiff1d(events, np.concatenate(missed))
    onsets = [times[np.isin(number, ordinal)] for times, number in zip(markers, numbers, strict=True)]
    # The amplifier's clock may jump where it missed events, so each side is tested with its own line.
    sides = np.split(np.arange(len(ordinal)), [np.searchsorted(ordinal, k) for k in missed[0][:1]])
    timing = {}
    for side in sides:
        span = "" if len(sides) == 1 else f", {ordinal[side[0]]} to {ordinal[side[-1]]}"
        what = f"{SOURCES[1]} against {SOURCES[0]}{span}"
        timing[what] = test = timing_test(*(times[side] for times in onsets))
        if test.failures:
            raise PairingError(f"The times of {what} fail the timing test: {'; '.join(test.failures)}.")
    return ordinal, onsets, dropped, timing


def _epochs(device: Recording, onsets: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    signal, sfreq, *_ = device
    epochs, valid = epochs_at(prepare_recording(signal, sfreq), onsets)
    before = TMIN + np.arange(POINTS) / SFREQ < 0
    return epochs - epochs[..., before].mean(axis=-1, keepdims=True), valid


def prepare_recording(signal: Floats, sfreq: float) -> Floats:
    """Filter a recording (channels, samples), apply an average reference and resample, as MNE does.

    The filter is a zero-phase FIR filter; resampling uses the Fourier transform. MNE rounds the padding at
    both ends to whole samples, so times are off by up to one new sample; the paper's recordings were
    resampled in the same way.
    """
    import mne

    signal = mne.filter.filter_data(
        signal, sfreq, *BAND, method="fir", phase="zero", fir_design="firwin", verbose="error"
    )
    signal = signal - signal.mean(axis=-2, keepdims=True)
    return np.asarray(mne.filter.resample(signal, SFREQ, sfreq, npad="auto", method="fft", verbose="error"))


def epochs_at(signal: Floats, onsets: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Cut epochs (k, channels, points) at exact event times, by linear interpolation between samples.

    Epochs that extend beyond the recording are NaN and not ``valid``.
    """
    last = signal.shape[-1] - 1
    position = (onsets[:, None] + TMIN + np.arange(POINTS) / SFREQ) * SFREQ
    valid = (position[:, 0] >= 0) & (position[:, -1] <= last)
    epochs = np.full((len(onsets), len(signal), POINTS), np.nan)
    before = np.minimum(np.floor(position[valid]).astype(np.int64), last - 1)
    share = position[valid] - before
    cut = signal[:, before] * (1 - share) + signal[:, before + 1] * share
    epochs[valid] = cut.transpose(1, 0, 2)
    return epochs, valid


def _scan(folder: str | Path) -> tuple[dict[tuple[str, str], dict[str, Path]], list[str]]:
    """Return the files by participant, task and kind, and the problems found."""
    root = _root(Path(folder))
    files: dict[tuple[str, str], dict[str, Path]] = {}
    problems = []
    places = [(task, kind, *KINDS[kind]) for task in TASKS for kind in KINDS]
    for task, kind, place, suffix in places:
        # Hidden files are unfinished or belong to the operating system.
        beside = [p for p in root.joinpath(task, place).glob("[!.]*") if p.is_file()]
        # Copies such as "1013_N170 (1).edf" have longer names.
        for path in sorted(beside, key=lambda p: (len(p.name), p.name)):
            person = re.match(r"(\d{4})_", path.name)
            if path.suffix.lower() == suffix and person is not None and person[1] in USED[task]:
                first = files.setdefault((person[1], task), {}).setdefault(kind, path)
                if first != path and not filecmp.cmp(first, path, shallow=False):
                    problems.append(
                        f"{first} and {path} are both the {kind} of {person[1]} {task}, and differ; move "
                        "one of them away."
                    )
    return files, problems


def _root(folder: Path) -> Path:
    """Return the folder that contains the task folders."""
    if not folder.is_dir():
        raise FileNotFoundError(f"No folder {folder}.")
    if any((folder / task).is_dir() for task in TASKS):
        return folder
    paths = [path for task in TASKS for path in folder.rglob(task)]
    roots = sorted(
        {path.parent for path in paths if any((path / name).is_dir() for name in ("behav", "eeg"))}
    )
    # The project has other parts with the same tasks.
    roots = [root for root in roots if RAW in root.parts] or roots
    if len(roots) > 1:
        raise RecordingError(f"{folder} has recordings in {roots[0]} and in {roots[1]}; name one of them.")
    return roots[0] if roots else folder


def _task(name: str) -> str:
    for task, paper in TASKS.items():
        if name.lower() in (task.lower(), paper.lower()):
            return task
    raise ValueError(
        f"task is {name!r}; expected one of {', '.join(f'{a} ({b})' for a, b in TASKS.items())}."
    )
