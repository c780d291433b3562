"""Continuous recordings of several devices, from memory or from a BIDS folder, as one table.

Markers of each device are numbered by the experiment's list of events (:func:`~mgpa.eeg.match_events`),
epochs are cut around them, and :func:`~mgpa.eeg.table_from_epochs` does the rest.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.extras import missing
from ..errors import PairingError, UsageError
from ..tables.table import Table
from .devices import table_from_epochs
from .pairing import match_events
from .trials import Encoder

Markers = tuple[NDArray[Any], dict[str, int]]
Key = tuple[str, ...]  # participant, and session if there are several
# BIDS entities in which recordings of the same participant and task can differ.
_ENTITIES = ("session", "acquisition", "run", "recording", "description")


def find_markers(raw: Any) -> Markers:
    """Return the events of a recording and their names: its annotations or, without any, its triggers.

    Annotations that begin with BAD or EDGE are not events, as everywhere in MNE.
    """
    import mne

    marks = [str(d) for d in raw.annotations.description if not str(d).upper().startswith(("BAD", "EDGE"))]
    if marks:
        # Numbered here, because MNE's default leaves out texts that it cannot convert to numbers.
        codes = {name: i + 1 for i, name in enumerate(sorted(set(marks)))}
        events, event_id = mne.events_from_annotations(raw, codes, verbose="error")
        return events, event_id
    if "stim" not in raw.get_channel_types():
        raise UsageError(
            "A recording has neither annotations nor a trigger channel; pass markers=, a function that "
            "returns its events and their names."
        )
    events = mne.find_events(raw, verbose="error")
    return events, {str(code): int(code) for code in np.unique(events[:, 2])}


def table_from_raws(
    devices: Mapping[str, Any],
    *,
    encoder: Encoder,
    tmin: float,
    tmax: float,
    band: tuple[float | None, float | None] | None = None,
    baseline: tuple[float | None, float | None] | None = None,
    markers: Callable[[Any], Markers] = find_markers,
    onsets: Mapping[str, Any] | None = None,
    labels_from: str | None = None,
    pair_by: str | Sequence[str] = ("event",),
    **settings: Any,
) -> Table:
    """Make one table of the continuous recordings of several devices.

    Parameters
    ----------
    devices : dict of name to mne.io.Raw, or to a list or dict of them
        A list has one recording of each participant (the subject's ``his_id``); the keys of a dict are
        ``(participant, *sessions)``.
    encoder : Encoder
        The encoder of the trials; see :func:`mgpa.eeg.encode`.
    tmin, tmax : float
        Start and end of an epoch, in seconds after the event.
    band : (low, high) or None
        Pass band in Hz of MNE's zero-phase FIR filter, applied before epochs are cut.
    baseline : tuple or None
        As for :class:`mne.Epochs`; None subtracts nothing.
    markers : function
        A function that returns the events of a recording and their names.
    onsets : dict of participant to (n,) array, or None
        Times of the events, in seconds of the experiment's clock. None uses the device with most markers. The
        list numbers the markers of each device. If the counts agree, markers are numbered in order.
        Otherwise, missing and extra markers are found by their times (:func:`mgpa.eeg.match_events`); a
        recording for which this fails is left out with a warning. With ``at_once=False``, times are not
        compared: markers are paired in order, and their numbers must agree.
    labels_from : str or None
        The device whose markers name the task; None if the markers of all devices do.
    pair_by : str or sequence of str
        Names for the sessions of a dict, then "event": ``("session", "event")``.
    **settings
        Channels, rate, reference, roles and so on, as for :func:`table_from_epochs`.

    Returns
    -------
    Table
        A table as made by :func:`table_from_epochs`. ``event`` is the position in ``onsets``, counted from 1.
    """
    by = (pair_by,) if isinstance(pair_by, str) else tuple(pair_by)
    if labels_from not in (None, *map(str, devices)):
        raise UsageError(f"labels_from is {labels_from!r}; the devices are {', '.join(map(str, devices))}.")
    number = match_events if settings.get("at_once", True) else _in_order
    span = {"tmin": tmin, "tmax": tmax, "baseline": baseline}
    epochs: dict[str, list[Any]] = {str(device): [] for device in devices}
    unmatched: dict[str, str] = {}
    for key, raws in _by_session(devices, by[:-1]).items():
        marked = {d: _Marked.read(raw, markers, f"{d} ({'/'.join(key)})") for d, raw in raws.items()}
        longest = max((one.times for one in marked.values()), key=len)
        events = longest if onsets is None else onsets[key[0]]
        try:
            numbers = {device: number(one.times, events, name=device) for device, one in marked.items()}
        except PairingError as error:
            unmatched["/".join(key)] = str(error)
            continue
        facts = dict(zip(("participant", *by[:-1]), key, strict=True))
        for device, cut in _cut(marked, numbers, labels_from, facts, band, span).items():
            epochs[device].append(cut)
    if unmatched:
        _report_unmatched(unmatched, all(epochs.values()))
    return table_from_epochs(epochs, encoder=encoder, pair_by=by, **settings)


def _by_session(devices: Mapping[str, Any], sessions: tuple[str, ...]) -> dict[Key, dict[str, Any]]:
    """Return the recordings of every participant and session by device."""
    recordings: dict[Key, dict[str, Any]] = {}
    for device, raws in devices.items():
        for key, raw in _by_person(raws, str(device), sessions).items():
            recordings.setdefault(key, {})[str(device)] = raw
    return recordings


def _report_unmatched(unmatched: dict[str, str], enough: bool) -> None:
    """Warn of recordings whose markers cannot be matched; raise if a device has no matched recordings."""
    who, reason = next(iter(unmatched.items()))
    how = "Or pass the experiment's own list with onsets=, or other markers with markers=."
    if not enough:
        raise PairingError(f"{who}: {reason} {how}")
    warnings.warn(
        f"Left out, because markers cannot be matched: {', '.join(unmatched)}. {who}: {reason} {how}",
        stacklevel=3,
    )


@dataclass(frozen=True)
class _Marked:
    """A recording and its markers: MNE's events, their names, and their times in seconds."""

    raw: Any
    events: NDArray[Any]
    names: list[str]
    times: NDArray[np.float64]

    @classmethod
    def read(cls, raw: Any, markers: Callable[[Any], Markers], whose: str) -> _Marked:
        """Read the markers; errors name the recording."""
        try:
            events, event_id = markers(raw)
        except UsageError as error:
            raise UsageError(f"{whose}: {error}") from None
        name_of = {code: name for name, code in event_id.items()}
        names = [name_of[code] for code in events[:, 2]]
        return cls(raw, events, names, (events[:, 0] - raw.first_samp) / raw.info["sfreq"])


def _cut(
    marked: dict[str, _Marked],
    numbers: dict[str, NDArray[np.int64]],
    labels_from: str | None,
    facts: dict[str, str],
    band: tuple[float | None, float | None] | None,
    span: dict[str, Any],
) -> dict[str, Any]:
    """Return MNE epochs for all markers with a number and a label, after filtering."""
    import mne
    import pandas

    labels: dict[Any, str] = {}
    if labels_from in marked:
        labels = dict(zip(numbers[labels_from], marked[labels_from].names, strict=True))
    epochs = {}
    for device, one in marked.items():
        raw, number = one.raw, numbers[device]
        if band is not None:
            raw = raw.copy().load_data().filter(*band, picks="eeg", verbose="error")
        label = one.names if labels_from is None else [labels.get(k) for k in number]
        rows = [i for i, k in enumerate(number) if k and label[i] is not None]
        metadata = pandas.DataFrame({"event": number, "label": label, **facts}).iloc[rows]
        codes = {one.names[i]: int(one.events[i, 2]) for i in rows}
        epochs[device] = mne.Epochs(
            raw, one.events[rows], codes, **span, metadata=metadata, preload=True, verbose="error"
        )
    return epochs


def table_from_bids(
    root: str | os.PathLike[str],
    *,
    source: str = "acquisition",
    task: str | None = None,
    subjects: Sequence[str] | None = None,
    **settings: Any,
) -> Table:
    """Make one table of an EEG data set in BIDS, in which several devices recorded the same events.

    Needs MNE-BIDS (``pip install mne-bids``).

    Parameters
    ----------
    root : path
        Folder of the data set.
    source : str
        The BIDS entity that distinguishes devices: acquisition, recording, session, run or description.
        Recordings of a subject that agree in all other entities were made at the same time.
    task : str or None
        The task; None if there is only one.
    subjects : sequence of str or None
        Subjects without "sub-"; None is all.
    **settings
        As for :func:`table_from_raws`, among them encoder, tmin and tmax.
    """
    try:
        import mne_bids
    except ImportError:
        raise missing("table_from_bids", "mne-bids") from None
    if source not in _ENTITIES:
        raise UsageError(f"source is {source!r}; expected one of {', '.join(_ENTITIES)}.")
    paths = mne_bids.find_matching_paths(
        root, subjects=subjects, tasks=task, datatypes="eeg", suffixes="eeg", ignore_json=True
    )
    # Keep only the header file of recordings with several files.
    paths = [path for path in paths if path.extension in mne_bids.config.ALLOWED_DATATYPE_EXTENSIONS["eeg"]]
    tasks = sorted({str(path.task) for path in paths})
    if len(tasks) != 1:
        raise UsageError(f"{root} has EEG of the tasks {', '.join(tasks) or '(none)'}; name one with task=.")
    others = tuple(name for name in _ENTITIES if name != source and any(getattr(p, name) for p in paths))
    recordings: dict[str, dict[Key, Any]] = {}
    for path in paths:
        device = _entity(path, source)
        key = (str(path.subject), *(str(getattr(path, name) or "") for name in others))
        if key in recordings.setdefault(device, {}):
            raise UsageError(f"{path.basename} occurs twice; keep one file.")
        recordings[device][key] = mne_bids.read_raw_bids(path, verbose="error")
    return table_from_raws(recordings, pair_by=(*others, "event"), **settings)


def _entity(path: Any, source: str) -> str:
    """Return the device of a BIDS path."""
    device = getattr(path, source)
    if device is None:
        raise UsageError(
            f"{path.basename} has no {source}, which should distinguish devices; it has "
            f"{', '.join(name for name, value in path.entities.items() if value)}. Name another: source=."
        )
    return str(device)


def _in_order(times: NDArray[Any], reference: NDArray[Any], *, name: str) -> NDArray[np.int64]:
    """Number markers by their order, for devices that did not record at the same time."""
    if len(times) != len(reference):
        raise PairingError(
            f"{name} has {len(times)} markers for {len(reference)} events; with at_once=False the k-th "
            "marker is the k-th event, and all are needed."
        )
    return np.arange(1, len(times) + 1)


def _by_person(raws: Any, device: str, sessions: tuple[str, ...]) -> dict[Key, Any]:
    """Return recordings by participant, and by session if given."""
    recordings: dict[Key, Any] = {}
    several = list(raws) if isinstance(raws, (list, tuple)) else [raws]
    for key, raw in raws.items() if isinstance(raws, dict) else ((None, raw) for raw in several):
        if not hasattr(raw, "annotations") or hasattr(raw, "selection"):
            raise TypeError(
                f"{device} is a {type(raw).__name__}; expected mne.io.Raw, or a list of them. "
                "mgpa.eeg.table_from_epochs takes epochs."
            )
        person = (raw.info.get("subject_info") or {}).get("his_id") if key is None else key
        if person is None:
            raise UsageError(
                f"{device}: the participant is unknown. Set raw.info['subject_info'] = {{'his_id': 's01'}}."
            )
        whose = tuple(map(str, person if isinstance(person, tuple) else (person,)))
        if len(whose) != 1 + len(sessions) or whose in recordings:
            expected = ", ".join(("participant", *sessions))
            raise UsageError(
                f"{device}: the key {whose} is repeated or does not match; expected one recording for each "
                f"({expected}), the names before the event in pair_by."
            )
        recordings[whose] = raw
    return recordings
