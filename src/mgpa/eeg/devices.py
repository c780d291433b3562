"""Epochs of several devices that recorded the same events, as trials that can be compared, and as a table.

Devices differ in channels, sampling rate and the times of their samples, and each has its own clock. Here
they are brought to what all of them have, and events are paired by what names them; the times of paired
events on two clocks then have to lie on a straight line. What was left out or looks wrong is in the report.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.checks import require_finite
from ..errors import PairingError, UsageError
from ..tables.columns import ROLES, Columns, assign_roles
from ..tables.frames import subject_of
from ..tables.table import Table
from .pairing import PairingReport, SessionPairing, Timing, TimingLimits, timing_test
from .trials import Encoder, Trials, eeg_channels, encode, warn_of_projectors
from .views import rereference, resample

# Recordings of one session begin no further apart.
ONE_SESSION = timedelta(hours=12)
# Names of the 10-20 system that later ones replaced.
_OLD_NAMES = {"t3": "t7", "t4": "t8", "t5": "p7", "t6": "p8"}
# Volts from peak to peak: no electrode on a head is as quiet for a whole epoch; nothing there is as loud, and
# whatever is was not stored in volts.
FLAT, LOUD = 1e-8, 1.0
# Sample times are sums of rounded numbers; a part of a sample this small is none.
_WHOLE = 1e-6


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
    names, notes = _common_channels(parts, channels)
    grid, words = _common_times(parts, sfreq)
    notes.append(words)
    shared = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
    others = sorted({name for part in parts for name in part.columns} - set(shared))
    if others:
        notes.append(f"metadata that not all have, and that are left out: {', '.join(others)}")
    trials = Trials.concatenate(_align(part, names, grid, shared) for part in parts)
    pair_id, sessions, untimed = _pair(trials.columns, tuple(map(str, devices)), by, limits)
    if untimed:
        _require_one_day(parts, limits)
        notes.append(f"clocks not compared, without onsets or three pairs: {_some(untimed)}")
        warnings.warn(
            f"Clocks cannot be compared, without onsets or three pairs ({_some(untimed)}): that events "
            f"of one number are the same event rests on {', '.join(by)} alone. Cut epochs from the recording "
            "(mne.Epochs keeps when events were), or put their times in a metadata column onset, in seconds.",
            stacklevel=2,
        )
    trials = trials.with_columns(pair_id=pair_id)
    if reference is not None:
        trials = rereference(trials, reference)
    return trials, PairingReport(tuple(sessions), tuple(notes))


@dataclass(frozen=True)
class DeviceEpochs:
    """Epochs of one device, and what is known about each."""

    device: str
    epochs: Any
    columns: Columns

    @cached_property
    def channels(self) -> dict[str, str]:
        """EEG channels by their plain name."""
        names: dict[str, str] = {}
        for name in eeg_channels(self.epochs):
            if (other := names.setdefault(_plain(name), name)) != name:
                raise UsageError(
                    f"{self} has the channels {other!r} and {name!r}, which are one name here. Rename or "
                    "drop one (Epochs.rename_channels, Epochs.drop_channels)."
                )
        return names

    def __str__(self) -> str:
        return f"{self.device} ({_some(np.unique(self.columns['participant']).tolist())})"

    @property
    def rate(self) -> float:
        """Samples per second."""
        return float(self.epochs.info["sfreq"])

    @property
    def span(self) -> tuple[float, float]:
        """Times of the first and the last sample, in seconds after the event."""
        return float(self.epochs.times[0]), float(self.epochs.times[-1])


def _plain(name: str) -> str:
    lower = name.strip().lower()
    return _OLD_NAMES.get(lower, lower)


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
        raise UsageError(f"{device}: the metadata have another source, {_some(set(source.tolist()))}.")
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


def _common_channels(
    parts: list[DeviceEpochs], wanted: Sequence[str] | None
) -> tuple[tuple[str, ...], list[str]]:
    """Return the channels to keep, as the first device spells them, and notes about the others."""
    for part in parts:
        missing = [name for name in wanted or () if _plain(name) not in part.channels]
        if missing:
            raise UsageError(
                f"{part} has no channel {', '.join(missing)}. Channels: {', '.join(part.channels.values())}. "
                "Epochs.rename_channels renames channels."
            )
    spelled = {_plain(name): name.strip() for name in wanted or parts[0].channels.values()}
    common = [name for name in spelled if all(name in part.channels for part in parts)]
    if not common:
        lists = "; ".join(f"{part.device}: {', '.join(part.channels.values())}" for part in parts)
        raise UsageError(
            f"No channel is common to all devices ({lists}). Epochs.rename_channels renames channels."
        )
    notes = [f"{len(common)} channels: {' '.join(spelled[name] for name in common)}"]
    for device in dict.fromkeys(part.device for part in parts):
        channels = [part.channels for part in parts if part.device == device]
        others = dict.fromkeys(names[name] for names in channels for name in names if name not in common)
        if others:
            why = "not asked for" if wanted else "since not all have them"
            notes.append(f"left out of {device}, {why}: {' '.join(others)}")
    return tuple(spelled[name] for name in common), notes + _poor_signals(parts, common)


def _poor_signals(parts: list[DeviceEpochs], common: list[str]) -> list[str]:
    """Return, and warn of, common channels that are bad or flat, and epochs that are not in volts."""
    poor: dict[str, list[str]] = {}
    loud = []
    for part in parts:
        size = np.ptp(part.epochs.get_data(picks=list(part.channels.values()), copy=False), axis=2)
        for level, (plain, name) in zip(np.median(size, axis=0), part.channels.items(), strict=True):
            states = ["bad"] * (name in part.epochs.info["bads"]) + ["flat"] * bool(level < FLAT)
            if states and plain in common:
                poor.setdefault(name, []).append(f"{' and '.join(states)} on {part}")
        if (level := float(np.median(size))) > LOUD:
            loud.append(f"{part} has signals of {level:.3g} V from peak to peak")
    used = [f"{name}: {', '.join(places)}" for name, places in poor.items()]
    if used:
        warnings.warn(
            f"{'; '.join(used)}. They are used all the same: interpolate them (Epochs.interpolate_bads), or "
            "name the channels to use with channels=.",
            stacklevel=3,
        )
    if loud:
        warnings.warn(
            f"{_some(loud)}. MNE takes numbers for volts; if they are microvolts, multiply them by 1e-6 "
            "(apply_function); else the unit looks like an effect of the device.",
            stacklevel=3,
        )
    return used + ([_some(loud)] if loud else [])


def _common_times(parts: list[DeviceEpochs], sfreq: float | None) -> tuple[tuple[float, float, int], str]:
    """Return start, rate and samples of the times that all devices cover, at the slowest's; and in words."""
    slowest = min(parts, key=lambda part: part.rate)
    rate = slowest.rate if sfreq is None else float(sfreq)
    first, last = max(part.span[0] for part in parts), min(part.span[1] for part in parts)
    # The slowest device's own samples: what is not moved is not smoothed either.
    start = slowest.span[0]
    start += np.ceil((first - start) * slowest.rate - _WHOLE) / slowest.rate
    samples = int(np.floor((last - start) * rate + _WHOLE)) + 1
    if samples < 2:
        spans = ", ".join("{} {:g} to {:g} s".format(part.device, *part.span) for part in parts)
        raise UsageError(f"The epochs have no time in common ({spans}); cut all of them around the event.")
    words = [f"{rate:g} Hz from {start:.4g} to {start + (samples - 1) / rate:.4g} s"]
    for device in dict.fromkeys(part.device for part in parts):
        same = [part for part in parts if part.device == device]
        rates = sorted({part.rate for part in same})
        if rates != [rate]:
            words.append(f"{device} resampled from {' and '.join(f'{r:g}' for r in rates)} Hz")
        moved = max(abs(_offset(part, start, rate)[1]) for part in same)
        if moved > _WHOLE:
            words.append(f"{device} interpolated, by {moved:.2f} of a sample")
    return (start, rate, samples), "; ".join(words)


def _offset(part: DeviceEpochs, start: float, rate: float) -> tuple[int, float]:
    """Return the device's first sample to take, and by which part of a sample the grid lies after it."""
    before = np.floor((start - part.span[0]) * rate + _WHOLE)
    position = (start - before / rate - part.span[0]) * part.rate
    whole = int(np.floor(position + _WHOLE))
    return whole, float(position - whole)


def _align(
    part: DeviceEpochs, names: tuple[str, ...], grid: tuple[float, float, int], shared: list[str]
) -> Trials:
    """Return a device's epochs with the common channels, at the common times."""
    from scipy.interpolate import CubicSpline

    start, rate, samples = grid
    picks = [part.channels[_plain(name)] for name in names]
    signal = part.epochs.get_data(picks=picks).astype(np.float64)
    require_finite(signal.reshape(len(signal), -1), str(part))
    whole, share = _offset(part, start, rate)
    if share > _WHOLE:
        at = np.arange(whole, signal.shape[2] - 1) + share
        signal = CubicSpline(np.arange(signal.shape[2]), signal, axis=2)(at)
    else:
        signal = signal[:, :, whole:]
    trials = Trials(signal, names, part.rate, columns={name: part.columns[name] for name in shared})
    if part.rate != rate:
        trials = resample(trials, rate)
    # The first sample taken is a whole number of new samples before the grid.
    first = round((start - part.span[0] - (whole + share) / part.rate) * rate)
    return replace(trials, data=trials.data[:, :, first : first + samples], tmin=start)


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
                f"{'/'.join(map(str, session))}: {by[-1]} {event!r} occurs twice on {device}. If "
                f"numbers restart, also name the column that tells where: pair_by=('session', {by[-1]!r})."
            )
    reports, untimed = [], []
    for name, events in sessions.items():
        dropped = []
        for event, views in events.items():
            if len(views) > 1:
                rows = list(views.values())
                if len(labels := set(columns["label"][rows].tolist())) > 1:
                    raise PairingError(
                        f"{name}: event {event!r} is {_some(labels)}, depending on the device; is it the "
                        "same event? mgpa.eeg.match_events finds which markers belong together; label= names "
                        "the column of the task, and for recordings labels_from= the device that knows it."
                    )
                pair_id[rows] = f"{name}/{event}"
            if absent := [device for device in devices if device not in views]:
                dropped.append(f"{by[-1]} {event}: no epoch on {', '.join(absent)}")
        timing = {}
        for device in devices[1:]:
            what = f"{device} against {devices[0]}"
            both = [(v[devices[0]], v[device]) for v in events.values() if {devices[0], device} <= v.keys()]
            onsets = columns["onset"][np.array(both, dtype=int).reshape(-1, 2)]
            if len(both) < 3 or not np.isfinite(onsets).all():
                untimed.append(f"{what}, {name}")
            else:
                timing[what] = _compare(onsets[:, 0], onsets[:, 1], f"{name}: {what}", limits)
        n_pairs = sum(len(views) > 1 for views in events.values())
        reports.append(SessionPairing(name, len(events), n_pairs, tuple(dropped), timing))
    if not any(report.pairs for report in reports):
        described = "; ".join(
            f"{device} has "
            + " and ".join(
                f"{name} {_some(set(columns[name][columns['source'] == device]))}"
                for name in ("participant", by[-1])
            )
            for device in devices
        )
        raise PairingError(
            f"No event of a participant is on two devices: {described}. Name the columns of both with "
            "participant= and pair_by=; mgpa.eeg.match_events numbers events by their times."
        )
    return pair_id.astype(str), reports, untimed


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


def _some(values: Any, n: int = 4) -> str:
    """Return the first few of some values for a sentence, and how many more there are."""
    listed = sorted(values, key=str)
    return ", ".join(map(str, listed[:n])) + (f" and {len(listed) - n} more" if len(listed) > n else "")
