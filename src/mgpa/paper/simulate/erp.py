"""Simulate ERPs recorded by two devices at once, in the file formats of the Neuroscan/Flex data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._common.files import write_atomically
from ..._common.progress import progress
from ...eeg.pairing import MIN_SIDE
from ...eeg.simulate import Device, Person, Sources, background, below, draw_people, joined, leadfield, record
from ..datasets.neuroscan_flex import KINDS, PARTICIPANTS, RAW, TASKS
from ..datasets.raw_files import CHANNELS, FLEX_RATE, MARKER_DELAY
from .files import IMPEDANCE, write_curry, write_flex_edf, write_truth

Array = NDArray[np.float64]

SFREQ = 1000.0
# Increase this number when the output of a seed changes, so that old and new files are not mixed.
VERSION = 2
# Numbers of events in the recorded data set, and of events with label 1.
FULL_EVENTS = {"N170": 300, "oddball_active": 666, "oddball_passive": 666}
FULL_ONES = {"N170": 150, "oddball_active": 99, "oddball_passive": 99}
_MORE = (
    *("F7", "F8", "FC3", "FCz", "FC4", "T7", "C3", "C4"),
    *("T8", "TP7", "CPz", "TP8", "P3", "P4", "M1", "M2"),
)

# The headset has drier electrodes (noisier, less uniform) and a narrower filter.
NEUROSCAN = Device(
    "neuroscan", CHANNELS + _MORE, SFREQ, "FCz", white=0.5e-6, pink=1e-6, gain_spread=0.02, lowpass=200.0
)
_DRY = Device("flex", CHANNELS, FLEX_RATE, "average", white=1.5e-6, pink=3e-6, gain_spread=0.08)
FLEX = replace(_DRY, attenuation=0.2, highpass=0.2, lowpass=43.0)

# Peaks of the response: electrodes above the dipoles; latency and width of the Gaussian, in seconds; moment
# of each dipole after events of label 0 and 1, in ampere metres, positive outward.
COMPONENTS: dict[str, tuple[tuple[tuple[str, ...], float, float, tuple[float, float]], ...]] = {
    "N170": (
        (("O1", "O2"), 0.105, 0.018, (15e-9, 15e-9)),
        (("P7", "P8"), 0.170, 0.020, (-12e-9, -45e-9)),
    ),
    "oddball_active": (
        (("Cz",), 0.100, 0.020, (-20e-9, -20e-9)),
        (("Pz", "CP3", "CP4"), 0.350, 0.070, (6e-9, 40e-9)),
    ),
    "oddball_passive": (
        (("Cz",), 0.100, 0.020, (-20e-9, -20e-9)),
        (("Fz", "F3", "F4"), 0.170, 0.035, (-4e-9, -28e-9)),
    ),
}
ORIENTATIONS = ("upright", "inverted")
CATEGORIES = ("watch", "face")


#: Possible defects of one recording; events are counted from 1. ``artifacts``: events in which the headset's
#: front electrodes jump by 300 µV. ``cut_last``: the amplifier stops 0.3 s after the last event. ``missing``:
#: consecutive events whose triggers the amplifier missed; unless they come first, the amplifier notes an
#: impedance check just before the next event, and its clock then jumps ahead by ``clock_break`` seconds.
#: ``extra``: number of triggers from an earlier, aborted run that only the amplifier recorded. ``stray_csv``:
#: the headset's own csv file lies beside its recording.
NO_DEFECTS: dict[str, Any] = {
    **{"artifacts": (), "missing": (), "clock_break": 0.0},
    **{"cut_last": False, "extra": 0, "stray_csv": False},
}


def recorded_defects(n_events: Mapping[str, int]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the defects of the real data set, for sessions of this many events.

    Participant 1016 was started twice. The amplifier of 1034 missed four events in the middle of N170 and the
    first three of the passive oddball. Sessions that are too short for such a gap have none.
    """
    n = n_events.get("N170", 0)
    gap = tuple(range(n // 2 + 1, n // 2 + 5)) if n - n // 2 - 4 >= MIN_SIDE else ()
    defects: dict[tuple[str, str], dict[str, Any]] = {
        ("1016", "N170"): {"extra": min(23, n // 4)},
        ("1018", "N170"): {"stray_csv": True},
        ("1034", "N170"): {"missing": gap, "clock_break": 5.0 if gap else 0.0},
        ("1034", "oddball_passive"): {"missing": (1, 2, 3)},
    }
    return {key: one for key, one in defects.items() if key[1] in n_events}


def simulate_flex(
    folder: str | Path,
    *,
    participants: Sequence[str] = PARTICIPANTS,
    tasks: Sequence[str] = tuple(TASKS),
    random_state: int = 0,
    n_events: int | Mapping[str, int] = 40,
    crosstalk: float = 0.0,
    defects: Mapping[tuple[str, str], dict[str, Any]] | None = None,
    verbose: bool = False,
) -> dict[str, Any]:
    """Write simulated recordings as files of the Neuroscan/Flex data set, with the defects of the real data.

    A repeated call with the same settings adds missing files; the csv file of a session is written last. The
    files of a participant do not depend on the other participants. Returns the content of ``truth.json``:
    the settings, and the events, labels and clocks of each participant and task.

    Parameters
    ----------
    folder : path
        Created if it does not exist.
    participants, tasks : sequence of str
        Ids of four digits; some of N170, oddball_active and oddball_passive.
    n_events : int, or dict of task to int
        Number of events in a recording; ``FULL_EVENTS`` has the numbers of the real data set.
    crosstalk : float
        Size, in volts, of the artifact that each marker leaves in the headset's channels. It decays within a
        second and depends on the device, not on the stimulus.
    defects : dict of (participant, task) to dict, or None
        Defects of each recording, with the keys of ``NO_DEFECTS``. None: those of the real data set.
    """
    folder = Path(folder)
    if not tasks or not set(tasks) <= set(TASKS):
        raise ValueError(f"tasks is {tasks}; expected some of {', '.join(TASKS)}.")
    counts = {task: n_events if isinstance(n_events, int) else n_events[task] for task in tasks}
    defects = recorded_defects(counts) if defects is None else defects
    settings = {"version": VERSION, "tasks": list(tasks), "random_state": random_state, "n_events": counts}
    settings |= {"crosstalk": crosstalk, "defects": {" ".join(key): one for key, one in defects.items()}}
    people = draw_people(participants, random_state)
    plans = {
        person.id: {
            task: _plan(person, task, counts[task], NO_DEFECTS | defects.get((person.id, task), {}))
            for task in tasks
        }
        for person in people
    }
    truth = {"settings": settings, "participants": plans}
    write_truth(folder, truth, f"{RAW}/**/*.*")
    for i in progress(range(len(people)), "Participants", verbose):
        for task in tasks:
            _write_session(folder / RAW / task, people[i], task, plans[people[i].id][task], crosstalk)
    return truth


def _plan(person: Person, task: str, n: int, defects: dict[str, Any]) -> dict[str, Any]:
    """Return the events, labels and clocks of a session, drawn before any signal is simulated."""
    rng = person.rng(list(TASKS).index(task), 0)
    # Short sessions have a larger share of deviants, enough to estimate the response to them.
    ones = max(round(FULL_ONES[task] / FULL_EVENTS[task] * n), min(n // 5, 10))
    label = rng.permutation((np.arange(n) < ones).astype(int))
    # The headset records only the final run.
    early = np.cumsum(rng.uniform(0.9, 1.3, defects["extra"]))
    flex_start = float(rng.uniform(10.0, 25.0)) + 1.3 * defects["extra"]
    onset = flex_start + 6.0 + np.cumsum(rng.uniform(0.9, 1.3, n))
    # At least 45 s on either device, more than the longest filter.
    end = max(float(onset[-1]) + 6.0, flex_start + 45.0)
    stop = float(onset[-1]) + 0.3 if defects["cut_last"] else end
    orientation = rng.integers(0, 2, n) if task == "N170" else None
    return {
        # In seconds from the start of the simulated sources.
        "onset": onset.round(6).tolist(),
        "label": label.tolist(),
        "orientation": None if orientation is None else orientation.tolist(),
        # The trigger code sent to the amplifier, for a category and orientation or for a tone.
        "code": (1 + 2 * label + (0 if orientation is None else orientation)).tolist(),
        "extra": (4.0 + early).round(6).tolist(),
        "end": end,
        "behaviour": {"start": round(float(rng.uniform(-600.0, -60.0)), 3), "drift": 0.0},
        "neuroscan": {"start": 3.0, "drift": 0.0, "stop": stop},
        "flex": {"start": flex_start, "drift": float(rng.uniform(-1.5e-3, 1.5e-3)), "stop": end},
        "defects": defects,
    }


def _write_session(folder: Path, person: Person, task: str, plan: dict[str, Any], crosstalk: float) -> None:
    """Write the session files of one participant, csv file last; do nothing if the csv file exists."""
    path = {kind: folder / place / f"{person.id}_{task}{suffix}" for kind, (place, suffix) in KINDS.items()}
    if path["behaviour"].exists():
        return
    for file in path.values():
        file.parent.mkdir(parents=True, exist_ok=True)
    rng = person.rng(list(TASKS).index(task), 1)
    onset, label = np.array(plan["onset"]), np.array(plan["label"])
    ongoing = background(person, int(SFREQ * plan["end"]), SFREQ, rng)
    *places, moments = joined(ongoing, *_responses(person, task, onset, label, plan["end"]))
    volts = {}
    for device in (NEUROSCAN, FLEX):
        clock = plan[device.name]
        worn = replace(device, clock_offset=clock["start"], clock_drift=clock["drift"]).worn(rng)
        field = leadfield(worn.electrodes, *places, tilt=rng.normal(0.0, 0.03, 3))
        volts[device.name] = record(moments, field, worn, rng, sfreq=SFREQ)
    clocks = {name: plan[name] for name in ("behaviour", "neuroscan", "flex")}
    times = {name: (onset - clock["start"]) * (1 + clock["drift"]) for name, clock in clocks.items()}
    if crosstalk:
        _add_crosstalk(volts["flex"], times["flex"], crosstalk, person)
    _write_neuroscan(path["neuroscan"], volts["neuroscan"], times["neuroscan"], plan)
    # The headset's software puts the year into file names: four digits that are not an id.
    headset = path["flex"].with_stem(f"{person.id}_{task}_2018")
    _write_flex(headset, volts["flex"], times["flex"], plan)
    if plan["defects"]["stray_csv"]:
        write_atomically(headset.with_suffix(".csv"), b"COUNTER,INTERPOLATED,Cz\n0,0,4200.0\n")
    write_atomically(path["behaviour"], _behaviour(task, times["behaviour"], plan))


def _behaviour(task: str, times: Array, plan: dict[str, Any]) -> bytes:
    """Return the content of the experiment's csv file, with the byte order mark and blanks of real files."""
    lines = ["trial, tone, elapsed_time"]
    if task == "N170":
        lines = ["trial, eventCode, stimCat, stimOrient, stimElapsedTime"]
    for i, (code, t) in enumerate(zip(plan["code"], times, strict=True)):
        words = ""
        if task == "N170":
            words = f"{CATEGORIES[plan['label'][i]]}, {ORIENTATIONS[plan['orientation'][i]]}, "
        lines.append(f"{i + 1}, {code}, {words}{t:.4f}")
    return "\n".join([*lines, ""]).encode("utf-8-sig")


def _add_crosstalk(volts: Array, times: Array, size: float, person: Person) -> None:
    """Add a decaying artifact after each marker, with a pattern over channels that depends on the device."""
    pattern = np.random.default_rng(0).normal(size=len(volts))
    pattern += 0.1 * person.rng(len(TASKS)).normal(size=len(volts))
    decay = np.exp(-np.arange(round(FLEX_RATE)) / (0.25 * FLEX_RATE))
    for t in times:
        start = round(t * FLEX_RATE)
        part = volts[:, start : start + len(decay)]
        part += size * pattern[:, None] * decay[: part.shape[1]]


def _responses(person: Person, task: str, onset: Array, label: Any, end: float) -> list[Sources]:
    times = np.arange(int(SFREQ * end)) / SFREQ
    parts: list[Sources] = []
    for beneath, latency, width, moment in COMPONENTS[task]:
        course = np.zeros(len(times))
        for start, kind in zip(onset, label, strict=True):
            peak = start + latency + person.latency
            near = slice(*np.searchsorted(times, [peak - 5 * width, peak + 5 * width]))
            course[near] += moment[kind] * np.exp(-0.5 * ((times[near] - peak) / width) ** 2)
        at = below(person, beneath)
        parts.append((*at, np.tile(person.gain * course, (len(at[0]), 1))))
    return parts


def _write_neuroscan(path: Path, volts: Array, times: Array, plan: dict[str, Any]) -> None:
    defects, clock = plan["defects"], plan["neuroscan"]
    volts = volts[:, : round((clock["stop"] - clock["start"]) * SFREQ)]
    notes = []
    if defects["missing"] and min(defects["missing"]) > 1:
        after = min(max(defects["missing"]), len(times) - 1)
        at, held = round((times[after] - 0.4) * SFREQ), round(defects["clock_break"] * SFREQ)
        # Insert constant values: the amplifier's clock runs on while the experiment pauses.
        volts = np.insert(volts, [at] * held, volts[:, [at]], axis=1)
        times = times + defects["clock_break"] * (np.arange(len(times)) >= after)
        notes = [(at, IMPEDANCE, "Impedance")]
    events = [
        (round(t * SFREQ), code, "")
        for i, (t, code) in enumerate(zip(times, plan["code"], strict=True), start=1)
        if i not in defects["missing"]
    ]
    early = [(round((t - clock["start"]) * SFREQ), plan["code"][0], "") for t in plan["extra"]]
    # Channel names of the amplifier are in capitals; an electrode under the eye comes last.
    names = [*(name.upper() for name in NEUROSCAN.channels), "VEO"]
    eye = 2 * volts[[CHANNELS.index("Fp1")]]
    write_curry(path, np.concatenate([volts, eye]), names, SFREQ, sorted(early + events + notes))


def _write_flex(path: Path, volts: Array, times: Array, plan: dict[str, Any]) -> None:
    volts, front = volts.copy(), [CHANNELS.index(name) for name in ("Fp1", "Fp2")]
    for ordinal in plan["defects"]["artifacts"]:
        start = round((times[ordinal - 1] + 0.25) * FLEX_RATE)
        jump = 300e-6 * np.hanning(32)
        volts[front, start : start + len(jump)] += jump
    markers = np.zeros(volts.shape[1])
    # The marker channel starts high, which readers must not mistake for an event.
    markers[:3] = 1
    for t, code in zip(times, plan["code"], strict=True):
        at = round(t * FLEX_RATE) - MARKER_DELAY
        markers[at : at + 3] = code
    write_flex_edf(path, volts, CHANNELS, markers)
