"""The Neuroscan/Flex data set: every event recorded by a research amplifier and a headset at once.

Sixteen shared channels of three tasks (Williams et al., 2020): N170 (faces and watches), and an auditory
oddball that is attended (P300) or not (MMN). Both devices are filtered, referenced and resampled alike,
events are paired by their order, and epochs are cut at each device's own event times.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..._common.progress import progress
from ...errors import PairingError, RecordingError
from ..pairing import Dropped, PairingReport, SessionPairing, match_events
from ..preprocessing import (
    amplitude_flags,
    average_reference,
    baseline,
    epochs_at,
    filter_recording,
    require_soa,
    resample_recording,
)
from ..trials import Trials
from .flex_files import CHANNELS, Recording, missing_companions, read_behaviour, read_flex, read_neuroscan
from .inventory import Inventory

__all__ = [
    "CHANNELS",
    "LABELS",
    "PARTICIPANTS",
    "ROLES",
    "SOURCES",
    "TASKS",
    "RecordingError",
    "find",
    "neuroscan_flex_inventory",
    "read_neuroscan_flex",
    "with_paper_roles",
]

# Sources are counted in the order of their labels; the paper counts Neuroscan first.
SOURCES = ("Neuroscan", "flex")
KINDS = {"behaviour": (".csv",), "neuroscan": (".dat", ".cdt"), "flex": (".edf",)}
# What the paper calls them.
TASKS = {"N170": "N170", "oddball_active": "P300", "oddball_passive": "MMN"}
LABELS: dict[str, dict[str, int | None]] = {
    "N170": {"watch": 0, "face": 1},
    "oddball_active": {"1": 0, "3": 1},
    "oddball_passive": {"1": 0, "3": 1},
}
# Who does what in the paper. In the reuse study, whose maps are chosen on DEV, that is called VAL here.
ROLES = {
    "N170": {
        "FIT": ("1013", "1014", "1016", "1018"),
        "VAL": ("1022", "1023"),
        "HEAD": ("1019", "1020", "1024", "1025"),
        "EVAL": ("1021", *(str(i) for i in range(1026, 1035))),
    },
    "reuse": {
        "FIT": ("1013", "1014", "1016", "1018"),
        "VAL": ("1022", "1023"),
        "HEAD": ("1019", "1020", "1024", "1025"),
        "EVAL": tuple(str(i) for i in range(1026, 1034)),
    },
}
PARTICIPANTS = tuple(sorted(name for names in ROLES["N170"].values() for name in names))

SFREQ, TMIN, POINTS, MIN_SOA = 128.0, -0.2, 128, 0.8
_TOKENS = {
    "N170": ("n170",),
    "oddball_active": ("oddballactive", "activeoddball", "p300"),
    "oddball_passive": ("oddballpassive", "passiveoddball", "mmn"),
}


def find(folder: str | Path) -> dict[tuple[str, str], dict[str, Path]]:
    """Return the files of every participant and task, wherever they lie in a folder.

    A file is known by a participant's four digits and the name of a task in its name, or else in that of a
    folder it is in, and by its suffix: csv is ``behaviour``, edf ``flex``, and dat or cdt ``neuroscan``.

    Parameters
    ----------
    folder : path
        Searched with everything in it.

    Raises
    ------
    RecordingError
        Two files say that they are the same.
    """
    files, _, problems = _scan(folder)
    if problems:
        raise RecordingError(" ".join(problems))
    return files


def neuroscan_flex_inventory(folder: str | Path, tasks: Iterable[str] = tuple(TASKS)) -> Inventory:
    """Return which of the recordings that the paper uses are in a folder.

    Parameters
    ----------
    folder : path
        See :func:`find`.
    tasks : sequence of str
        Of N170, oddball_active and oddball_passive.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "1013_N170.edf").touch()
    ...     found = neuroscan_flex_inventory(folder, ["N170"])
    >>> found.present, len(found.missing)
    (('1013 N170 flex',), 59)
    """
    files, unexpected, problems = _scan(folder)
    present: list[str] = []
    missing: list[str] = []
    for task in map(_task, tasks):
        study = "N170" if task == "N170" else "reuse"
        people = sorted(name for names in ROLES[study].values() for name in names)
        for person in people:
            for kind in KINDS:
                there = kind in files.get((person, task), {})
                (present if there else missing).append(f"{person} {task} {kind}")
    for its in files.values():
        if "neuroscan" in its and (absent := missing_companions(its["neuroscan"])):
            problems.append(f"{its['neuroscan']} lacks {' and '.join(absent)} beside it.")
    return Inventory(
        "Neuroscan/Flex", Path(folder), tuple(present), tuple(missing), tuple(unexpected), tuple(problems)
    )


def read_neuroscan_flex(
    folder: str | Path,
    task: str,
    participants: Sequence[str] | None = None,
    *,
    artifact: float | None = 100e-6,
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, int | None] | None = None,
    gap_note: str | None = "impedance",
    verbose: bool = False,
) -> tuple[Trials, PairingReport]:
    """Read the paired trials of one task, prepared as in the paper.

    Both devices: 16 channels, zero-phase FIR 0.1-30 Hz, average reference, 128 Hz; 128 points from -0.2 s at
    exact event times, the mean before the event removed; float32, in volts. A pair is dropped, and reported,
    if an epoch leaves a recording.

    Parameters
    ----------
    folder : path
        See :func:`find`.
    task : str
        N170, oddball_active (or P300) or oddball_passive (or MMN).
    participants : sequence of str or None
        None: everybody with files of the task.
    artifact : float or None
        Pairs that exceed this many volts on either device are kept, and marked in the column ``artifact``;
        None: there is no such column.
    columns, labels : dict or None
        Names in the csv files: see :func:`mgpa.eeg.datasets.flex_files.read_behaviour`.
    gap_note : str or None
        Where the amplifier missed markers, it must have noted something with this in it (in any case) in
        between; None: the timing test alone decides.
    verbose : bool
        Show a progress line.

    Returns
    -------
    trials : Trials
        Two rows an event, Neuroscan first. Columns: participant, source, label, pair_id, task, ordinal (which
        event, from 1), onset (s, on the device's own clock), artifact.
    report : PairingReport
        How events were paired, and what was dropped.
    """
    task = _task(task)
    files = find(folder)
    people = (
        sorted({person for person, its in files if its == task}) if participants is None else participants
    )
    if not len(people) or len(set(people)) != len(people):
        raise ValueError(f"{folder} has nobody with {task}, or somebody was named twice: {list(people)}.")
    for person in people:
        if absent := [kind for kind in KINDS if kind not in files.get((person, task), {})]:
            raise FileNotFoundError(f"{folder} has no {' and no '.join(absent)} file of {person} {task}.")
    parts, sessions = [], []
    seen: dict[bytes, str] = {}
    for i in progress(range(len(people)), "Participants", verbose):
        paths = files[people[i], task]
        trials, session = _read_session(people[i], task, paths, artifact, columns, labels, gap_note)
        # One person under two names would be on both sides of every split.
        same = seen.setdefault(hashlib.sha256(trials.data.tobytes()).digest(), people[i])
        if same != people[i]:
            raise RecordingError(
                f"{paths['neuroscan']} and {paths['flex']} hold the same signals as those of {same}; one of "
                "them is a copy. Fetch both again."
            )
        parts.append(trials)
        sessions.append(session)
    return Trials.concatenate(parts), PairingReport(tuple(sessions))


def with_paper_roles(trials: Trials, study: str = "N170") -> Trials:
    """Return the trials of people who have a role in one of the paper's studies, with that role.

    Parameters
    ----------
    trials : Trials
        With a participant column.
    study : str
        "N170" or "reuse".

    Examples
    --------
    >>> trials = Trials(np.zeros((2, 1, 4)), ["Cz"], 128.0, columns={"participant": ["1013", "1034"]})
    >>> with_paper_roles(trials, "reuse").columns["role"].tolist()
    ['FIT']
    """
    if study not in ROLES:
        raise ValueError(f"study is {study!r}; there are {', '.join(ROLES)}.")
    role = {person: name for name, people in ROLES[study].items() for person in people}
    chosen = trials.take(np.isin(trials.columns["participant"], list(role)))
    if not len(chosen):
        there = ", ".join(np.unique(trials.columns["participant"]).tolist())
        raise ValueError(f"Nobody of {there} has a role in {study}; {PARTICIPANTS[0]} has, for example.")
    return chosen.with_columns(role=np.array([role[str(p)] for p in chosen.columns["participant"]]))


def _read_session(
    person: str,
    task: str,
    paths: Mapping[str, Path],
    artifact: float | None,
    columns: Mapping[str, str] | None,
    labels: Mapping[str, int | None] | None,
    gap_note: str | None,
) -> tuple[Trials, SessionPairing]:
    events, label = read_behaviour(paths["behaviour"], labels or LABELS[task], columns)
    devices = (read_neuroscan(paths["neuroscan"]), read_flex(paths["flex"]))
    notes = (
        None if gap_note is None else [t for t, text in devices[0].notes if gap_note.lower() in text.lower()]
    )
    try:
        match = match_events(devices[0].markers, devices[1].markers, events, breaks_a=notes, names=SOURCES)
    except PairingError as error:
        listed = ", ".join(str(path) for path in paths.values())
        raise PairingError(f"{person} {task}: {error} The files are {listed}.") from error
    onsets = [devices[0].markers[match.a], devices[1].markers[match.b]]
    for onset, path in ((events, "behaviour"), (onsets[0], "neuroscan"), (onsets[1], "flex")):
        require_soa(onset, MIN_SOA, name=f"Events of {paths[path]}")
    cut = [_epochs(device, onset) for device, onset in zip(devices, onsets, strict=True)]

    dropped = list(match.dropped)
    keep = np.ones(len(match.ordinal), dtype=bool)
    for i, ordinal in enumerate(match.ordinal.tolist()):
        outside = [name for name, (_, valid) in zip(SOURCES, cut, strict=True) if not valid[i]]
        if outside or label[ordinal - 1] is None:
            keep[i] = False
            reason = f"its epoch leaves the recording of {' and '.join(outside)}" if outside else "left out"
            dropped.append(Dropped(ordinal, reason))
    if not keep.any():
        raise PairingError(
            f"{person} {task}: no epoch lies within both {paths['neuroscan']} and {paths['flex']}."
        )
    ordinal = match.ordinal[keep]
    # Two rows an event: the second axis is the device.
    data = np.stack([epochs[keep] for epochs, _ in cut], axis=1).astype(np.float32)
    flags = amplitude_flags(data, np.inf if artifact is None else artifact).any(axis=1)
    twice = np.repeat(ordinal, 2)
    facts = {
        "participant": np.full(len(twice), person),
        "source": np.tile(SOURCES, len(ordinal)),
        "label": np.array([label[k - 1] for k in twice], dtype=np.int64),
        "pair_id": np.array([f"{person}-{TASKS[task]}-{k:04d}" for k in twice]),
        "task": np.full(len(twice), task),
        "ordinal": twice,
        "onset": np.stack([onset[keep] for onset in onsets], axis=1).ravel(),
    }
    if artifact is not None:
        facts["artifact"] = np.repeat(flags, 2)
    info = {"dataset": "Neuroscan/Flex", "task": task, "artifact_limit": artifact}
    trials = Trials(data.reshape(-1, *data.shape[2:]), CHANNELS, SFREQ, TMIN, facts, info)
    timing = {
        "Neuroscan against events": match.timing_a,
        "flex against events": match.timing_b,
        "flex against Neuroscan": match.timing,
    }
    session = SessionPairing(person, len(events), len(ordinal), tuple(dropped), timing, int(flags.sum()))
    return trials, session


def _epochs(device: Recording, onsets: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    signal = average_reference(filter_recording(device.signal, device.sfreq))
    epochs, valid = epochs_at(
        resample_recording(signal, device.sfreq, SFREQ), SFREQ, onsets, tmin=TMIN, n=POINTS
    )
    return baseline(epochs, TMIN + np.arange(POINTS) / SFREQ), valid


def _scan(folder: str | Path) -> tuple[dict[tuple[str, str], dict[str, Path]], list[str], list[str]]:
    """Return files by participant, task and kind; names of data files that are none; and problems."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}.")
    files: dict[tuple[str, str], dict[str, Path]] = {}
    unexpected, problems = [], []
    for path in sorted(folder.rglob("*")):
        kind = next((kind for kind, suffixes in KINDS.items() if path.suffix.lower() in suffixes), None)
        inside = path.relative_to(folder).parts
        # Hidden names are of files that are still being written, or of the operating system.
        if kind is None or not path.is_file() or any(name.startswith(".") for name in inside):
            continue
        # The file's own name decides; if it says nothing, its folder's, and so on.
        names = inside[::-1]
        person = next(filter(None, map(_participant_in, names)), None)
        task = next(filter(None, map(_task_in, names)), None)
        if person is None or task is None:
            unexpected.append(str(path.relative_to(folder)))
            continue
        session = files.setdefault((person, task), {})
        if kind in session:
            problems.append(
                f"{session[kind]} and {path} are both the {kind} of {person} {task}; move one of them away."
            )
        session.setdefault(kind, path)
    return files, unexpected, problems


def _participant_in(name: str) -> str | None:
    """Return the only four digits in a name or, among several such as a year, the only participant."""
    numbers = sorted(set(re.findall(r"(?<!\d)\d{4}(?!\d)", name)))
    candidates = numbers if len(numbers) == 1 else [number for number in numbers if number in PARTICIPANTS]
    return candidates[0] if len(candidates) == 1 else None


def _task_in(name: str) -> str | None:
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    tasks = [task for task, tokens in _TOKENS.items() if any(token in plain for token in tokens)]
    return tasks[0] if len(tasks) == 1 else None


def _task(name: str) -> str:
    for task, paper in TASKS.items():
        if name.lower() in (task.lower(), paper.lower()):
            return task
    raise ValueError(f"task is {name!r}; there are {', '.join(f'{a} ({b})' for a, b in TASKS.items())}.")
