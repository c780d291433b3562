"""Epochs of several devices that recorded the same events, as trials that can be compared, and as a table.

Devices differ in channels, sampling rate and the times of their samples, and each has its own clock. Here
they are brought to what all of them have, and events are paired by what names them; the times of paired
events on two clocks then have to lie on a straight line. What was left out or looks wrong is in the report.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PairingError, UsageError
from ..tables.columns import ROLES, Columns
from ..tables.frames import subject_of
from ..tables.roles import assign_roles
from ..tables.table import Table
from .common_samples import DeviceEpochs, about_units, align, common_channels, common_times, some
from .encoding import Encoder, encode
from .pairing import PairingReport, SessionPairing, Timing, TimingLimits, timing_test
from .trials import Trials, warn_of_projectors
from .views import rereference

# Recordings of one session begin no further apart.
ONE_SESSION = timedelta(hours=12)


def table_from_epochs(
    devices: Mapping[str, Any],
    *,
    encoder: Encoder,
    roles: Mapping[str, float] | None = None,
    random_state: int = 0,
    verbose: bool = False,
    **alignment: Any,
) -> Table:
    """Make one table of the epochs of several devices: at common samples, paired, embedded, with roles.

    Parameters
    ----------
    devices : dict of name to mne.Epochs, or to a list of them
        Two or more devices that recorded the same events. The names become ``source``.
    encoder : Encoder
        What embeds the trials; see :func:`mgpa.eeg.encode`.
    roles : dict of role to share of participants, or None
        See :func:`mgpa.tables.assign_roles`; None is its default, and no roles with fewer than four people.
        A metadata column ``role`` is taken as it is.
    random_state : int
        Who gets which role.
    verbose : bool
        Show progress.
    **alignment
        How epochs are brought together, as for :func:`align_devices`: pair_by, participant, label, channels,
        sfreq, reference and limits.

    Returns
    -------
    Table
        For :func:`mgpa.tables.fit_table`, :func:`mgpa.audit.run` and :func:`mgpa.tables.write_table`. What
        was left out and how the clocks compare is in ``info["pairing"]``.

    Examples
    --------
    >>> import mne
    >>> import numpy as np
    >>> import mgpa
    >>> def record(person, channels, rate):
    ...     rng = np.random.default_rng(0)
    ...     onset = np.cumsum(rng.uniform(2, 3, 20))
    ...     events = np.c_[np.round(onset * rate), np.zeros(20), np.tile([1, 2], 10)].astype(int)
    ...     info = mne.create_info(channels, rate, "eeg")
    ...     info["subject_info"] = {"his_id": person}
    ...     data = rng.normal(scale=1e-5, size=(20, len(channels), int(2 * rate)))
    ...     return mne.EpochsArray(data, info, events, verbose="error")
    >>> cap = [record(person, ["Oz", "O1", "O2"], 512.0) for person in "abcd"]
    >>> headset = [record(person, ["O1", "O2"], 128.0) for person in "abcd"]
    >>> table_from_epochs({"cap": cap, "headset": headset}, encoder=mgpa.eeg.BandPower())
    <Table: 160 rows of 10 float32, with source, participant, role, label, pair_id, onset, event>
    """
    trials, report = align_devices(devices, **alignment)
    trials = replace(trials, info=trials.info | {"pairing": str(report)})
    return encode(_with_roles(trials, roles, random_state), encoder, verbose=verbose)


def align_devices(
    devices: Mapping[str, Any],
    *,
    pair_by: str | Sequence[str] = "event",
    participant: str = "participant",
    label: str = "label",
    channels: Sequence[str] | None = None,
    sfreq: float | None = None,
    reference: str | Sequence[str] | None = None,
    limits: TimingLimits | None = None,
) -> tuple[Trials, PairingReport]:
    """Bring the epochs of several devices to common channels, rate and times, and pair their events.

    Parameters
    ----------
    devices : dict of name to mne.Epochs, or to a list of them
        Two or more. In volts, as MNE keeps them.
    pair_by : str or sequence of str
        Metadata columns that together name an event of a participant. "event" need not be there: then it is
        the position of the event among all that the epochs were cut from (``Epochs.selection``), which
        dropping epochs does not change. Where numbers begin again, name that first: ("session", "event").
        Clocks are compared within each session.
    participant : str
        Metadata column of who was measured. "participant" need not be there: then it is the subject's
        ``his_id``.
    label : str
        Metadata column of the task. "label" need not be there: then it is the name of the event.
    channels : sequence of str or None
        None: those that all devices have, in the first one's order. Capitals do not matter, and T3, T4, T5
        and T6 are T7, T8, P7 and P8. Of those used, the bad and the flat ones are named in a warning.
    sfreq : float or None
        Samples per second; None: the lowest there is. Faster devices are resampled
        (:func:`mgpa.eeg.resample`), and where samples of two devices do not fall on the same times,
        interpolated by a cubic spline first.
    reference : str, sequence of str or None
        See :func:`mgpa.eeg.rereference`; of the channels that are left. None: signals stay as recorded.
    limits : TimingLimits or None
        How far the clocks may differ; see :func:`mgpa.eeg.timing_test`. ``TimingLimits(inf, inf, inf)`` lets
        everything pass, for devices that did not record at once.

    Returns
    -------
    trials : Trials
        A row for every epoch, in the order they came in. Columns: source, participant, label, pair_id (empty
        where no other device has the event), the columns of ``pair_by``, onset (s, on the device's own clock;
        NaN where epochs do not know it), and metadata that all devices have.
    report : PairingReport
        What was left out, which channels are bad or flat, and how the clocks compare.
    """
    by = (pair_by,) if isinstance(pair_by, str) else tuple(pair_by)
    if not isinstance(devices, Mapping) or len(devices) < 2 or not by:
        raise UsageError(
            "Expected epochs of two devices or more by name, as {'lab': …}, and the columns that "
            "name an event. Several views of one recording are made by mgpa.eeg.measure_views."
        )
    parts = [
        _read(str(name), epochs, by, participant, label)
        for name, several in devices.items()
        for epochs in _listed(several, name)
    ]
    names, notes = common_channels(parts, channels)
    grid, words = common_times(parts, sfreq)
    notes += [*about_units(parts), words]
    shared = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
    others = sorted({name for part in parts for name in part.columns} - set(shared))
    if others:
        notes.append(f"metadata that not all have, and that are left out: {', '.join(others)}")
    trials = Trials.concatenate(align(part, names, grid, shared) for part in parts)
    pair_id, sessions, untimed = _pair(trials.columns, tuple(map(str, devices)), by, limits)
    if untimed:
        _require_one_day(parts, limits)
        notes.append(f"clocks not compared, without onsets or three pairs: {some(untimed)}")
        warnings.warn(
            f"Clocks cannot be compared, without onsets or three pairs ({some(untimed)}): that events "
            f"of one number are the same event rests on {', '.join(by)} alone.",
            stacklevel=2,
        )
    trials = trials.with_columns(pair_id=pair_id)
    if reference is not None:
        trials = rereference(trials, reference)
    return trials, PairingReport(tuple(sessions), tuple(notes))


def _require_one_day(parts: Sequence[DeviceEpochs], limits: TimingLimits | None) -> None:
    """Raise if recordings that nothing else compares were made on different days."""
    if limits is not None and not np.isfinite(limits).any():
        return
    first: dict[tuple[str, ...], tuple[DeviceEpochs, Any]] = {}
    for part in parts:
        date, people = part.epochs.info["meas_date"], np.unique(part.columns["participant"].astype(str))
        if date is None:
            continue
        other, day = first.setdefault(tuple(people), (part, date))
        if abs(date - day) > ONE_SESSION and other.device != part.device:
            raise PairingError(
                f"{other} was recorded on {day:%Y-%m-%d} and {part} on {date:%Y-%m-%d}, and their clocks "
                "cannot be compared: these are not the same events. Devices that did not record at once are "
                "paired with limits=TimingLimits(inf, inf, inf)."
            )


def _with_roles(trials: Trials, shares: Mapping[str, float] | None, random_state: int) -> Trials:
    """Return the trials with a role for each participant: theirs, or assigned if there are enough."""
    if "role" in trials.columns:
        if shares is not None:
            raise UsageError("There is a column role already; leave roles out, or rename that column.")
        return trials
    people = trials.columns["participant"]
    if shares is None and len(np.unique(people)) < len(ROLES):
        warnings.warn(
            f"{len(np.unique(people))} participants are too few for the roles {', '.join(ROLES)}, so the "
            "table has none: mgpa.audit.run lets three people or more take turns in them, and a fit is on "
            "all participants.",
            stacklevel=3,
        )
        return trials
    return trials.with_columns(
        role=assign_roles(people, None if shares is None else dict(shares), random_state=random_state)
    )


def _listed(given: Any, device: str) -> list[Any]:
    several = list(given) if isinstance(given, (list, tuple)) else [given]
    for one in several:
        if not (hasattr(one, "get_data") and hasattr(one, "events") and hasattr(one, "selection")):
            kind = type(one).__name__
            hint = "mgpa.eeg.table_from_raws takes continuous recordings." if "Raw" in kind else ""
            raise TypeError(f"{device} is a {kind}; expected mne.Epochs, or a list of them. {hint}".rstrip())
    if not several:
        raise UsageError(f"{device} has no epochs; the list is empty.")
    return several


def _read(device: str, epochs: Any, by: tuple[str, ...], participant: str, label: str) -> DeviceEpochs:
    """Return epochs in memory with the columns that tables know, from their metadata or themselves."""
    # Which epochs are bad is known only once they are read.
    epochs = epochs if epochs.preload else epochs.copy().load_data()
    if not len(epochs):
        raise UsageError(f"{device}: no epochs are left; see Epochs.drop_log for why they were dropped.")
    warn_of_projectors(epochs)
    frame = epochs.metadata
    metadata = {} if frame is None else {str(name): np.asarray(frame[name]) for name in frame.columns}
    present = ", ".join(metadata) or "none"
    names = {code: name for name, code in epochs.event_id.items()}
    person = None if participant in metadata else subject_of(epochs)
    implied: Columns = {
        "event": epochs.selection,
        "label": np.array([names[code] for code in epochs.events[:, 2]]),
        "onset": _onsets(epochs),
    }
    whose = "or set info['subject_info']['his_id']"
    if person is not None:
        implied["participant"] = np.full(len(epochs), person)
        whose = f"or leave that out: the subject's his_id is {person!r}"
    columns = {"source": np.full(len(epochs), device)}
    for column, name, advice in (
        ("participant", participant, f"Name the participant's column with participant=, {whose}."),
        ("label", label, "Name the task's column with label=."),
        ("onset", "onset", ""),
        *((name, name, "Name the event's column with pair_by=; match_events numbers events.") for name in by),
    ):
        if name not in metadata and name not in implied:
            raise UsageError(f"{device}: no column {name!r}. Metadata columns: {present}. {advice}")
        columns[column] = metadata.pop(name) if name in metadata else implied[name]
    source = metadata.pop("source", None)
    if source is not None and set(source.tolist()) != {device}:
        raise UsageError(f"{device}: the metadata have another source, {some(set(source.tolist()))}.")
    if "pair_id" in metadata:
        raise UsageError(f"{device}: the metadata have a pair_id; pass pair_by='pair_id', or rename it.")
    return DeviceEpochs(device, epochs, columns | metadata)


def _onsets(epochs: Any) -> NDArray[np.float64]:
    """Return when events were, in seconds of the recording's clock; NaN where they are merely counted."""
    samples = epochs.events[:, 0].astype(np.float64)
    if len(samples) < 2 or np.median(np.diff(samples)) <= 1:  # what EpochsArray makes of an array
        return np.full(len(samples), np.nan)
    # Resampled epochs keep their events in samples of the recording, and only MNE's own field its rate: an
    # array, where they were read from a file.
    rate = np.asarray(getattr(epochs, "_raw_sfreq", epochs.info["sfreq"]), dtype=np.float64)
    return np.asarray(samples / rate.item())


def _pair(
    columns: Columns, devices: tuple[str, ...], by: tuple[str, ...], limits: TimingLimits | None
) -> tuple[NDArray[Any], list[SessionPairing], list[str]]:
    """Return the id of every row, how each session was paired, and sessions whose clocks cannot be compared.

    A row has an empty id where no other device has its event.
    """
    pair_id = np.full(len(columns["source"]), "", dtype=object)
    # Rows by session (participant and whatever else comes before the event), event and device.
    sessions: dict[str, dict[Any, dict[str, int]]] = {}
    keys = zip(*(columns[name].tolist() for name in ("participant", *by, "source")), strict=True)
    for row, (*session, event, device) in enumerate(keys):
        views = sessions.setdefault("/".join(map(str, session)), {}).setdefault(event, {})
        if views.setdefault(device, row) != row:
            raise PairingError(
                f"{'/'.join(map(str, session))}: {by[-1]} {event!r} is twice on {device}. Where numbers "
                f"begin again, say where first: pair_by=('session', {by[-1]!r})."
            )
    reports, untimed = [], []
    for name, events in sessions.items():
        dropped = []
        for event, views in events.items():
            if len(views) > 1:
                _require_one_label(columns["label"], list(views.values()), event, name)
                pair_id[list(views.values())] = f"{name}/{event}"
            if absent := [device for device in devices if device not in views]:
                dropped.append(f"{by[-1]} {event}: no epoch on {', '.join(absent)}")
        timing = {}
        for device in devices[1:]:
            what = f"{device} against {devices[0]}"
            rows = [(v[devices[0]], v[device]) for v in events.values() if {devices[0], device} <= v.keys()]
            onsets = columns["onset"][np.array(rows, dtype=int).reshape(-1, 2)]
            if len(rows) < 3 or not np.isfinite(onsets).all():
                untimed.append(f"{what}, {name}")
            else:
                timing[what] = _compare(onsets[:, 0], onsets[:, 1], f"{name}: {what}", limits)
        n_pairs = sum(len(views) > 1 for views in events.values())
        reports.append(SessionPairing(name, len(events), n_pairs, tuple(dropped), timing))
    if not any(report.pairs for report in reports):
        described = "; ".join(
            f"{device} has participants {some(set(columns['participant'][columns['source'] == device]))} and "
            f"{by[-1]} {some(set(columns[by[-1]][columns['source'] == device]))}"
            for device in devices
        )
        raise PairingError(
            f"No event of a participant is on two devices: {described}. Name the columns of both with "
            "participant= and pair_by=; mgpa.eeg.match_events numbers events by their times."
        )
    return pair_id.astype(str), reports, untimed


def _require_one_label(label: NDArray[Any], rows: list[int], event: Any, session: str) -> None:
    values = set(label[rows].tolist())
    if len(values) > 1:
        raise PairingError(
            f"{session}: event {event!r} is {some(values)}, depending on the device; is it the same event? "
            "mgpa.eeg.match_events finds which markers of two devices belong together; label= names the "
            "column of the task, and for recordings labels_from= the device that knows it."
        )


def _compare(
    first: NDArray[np.float64], second: NDArray[np.float64], what: str, limits: TimingLimits | None
) -> Timing:
    """Return how two clocks compare; raise if no straight line leads from one to the other."""
    order = np.argsort(first)
    if (np.diff(first[order]) <= 0).any() or (np.diff(second[order]) <= 0).any():
        failures: tuple[str, ...] = ("events come in another order",)
    else:
        timing = timing_test(first[order], second[order], limits=limits)
        failures = timing.failures
        if not failures:
            return timing
    raise PairingError(
        f"{what}: the onsets fail the timing test: {'; '.join(failures)}. Events of one name are not the "
        "same events, or a clock broke. mgpa.eeg.match_events finds which markers belong together; number "
        "them in a metadata column and name it with pair_by=, or stretches between breaks: "
        "pair_by=('stretch', 'event')."
    )
