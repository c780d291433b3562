"""Epochs of several devices that recorded the same events, as aligned trials and as a table.

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

from .._common.arrays import token_rows
from .._common.checks import require_finite
from ..errors import PairingError, UsageError, first_few
from ..labels import is_paired
from ..pair_checks import doubt, examine_pairs, kinds_of
from ..pairs import Pairs
from ..tables.columns import ROLES, Columns, assign_roles
from ..tables.frames import subject_of
from ..tables.rows import other_signals
from ..tables.table import Table
from .pairing import PairingReport, timing_test
from .trials import Encoder, Trials, as_trials, eeg_channels, encode, loaded_epochs, plain_name
from .views import rereference, resample

# Recordings of one session begin no further apart.
ONE_SESSION = timedelta(hours=12)
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
    """Make one table of the epochs of several devices: aligned, paired, embedded, with roles.

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
        sfreq, reference and at_once.

    Returns
    -------
    Table
        For :func:`mgpa.tables.fit_table`, :func:`mgpa.audit.run` and :func:`mgpa.tables.write_table`. What
        was left out and how the clocks compare is in ``info["pairing"]``.
    """
    trials, report = align_devices(devices, **alignment)
    signals = {"channels": trials.channels, "reference": alignment.get("reference")}
    signals |= {"sfreq": trials.sfreq, "tmin": trials.tmin, "samples": trials.data.shape[2], "unit": "V"}
    prepared = {name: _preparation(epochs, trials.sfreq) for name, epochs in devices.items()}
    if len({*map(str, prepared.values())}) > 1:
        warnings.warn(
            "Devices were filtered or baselined in different ways: "
            + "; ".join(f"{name} {facts}" for name, facts in prepared.items())
            + ". A correction then removes that difference, too.",
            stacklevel=2,
        )
    signals |= next(iter(prepared.values()))
    trials = replace(trials, info={"pairing": str(report), "signals": signals})
    people = trials.columns["participant"]
    n_people = len(np.unique(people))
    if "role" in trials.columns:
        if roles is not None:
            raise UsageError("The metadata already have a column 'role'; omit roles, or rename that column.")
    elif roles is None and n_people < len(ROLES):
        warnings.warn(
            f"{n_people} participants are too few for the roles {', '.join(ROLES)}, so the table has "
            "none. mgpa.audit.run rotates roles over three participants or more; a fit uses all "
            "participants.",
            stacklevel=2,
        )
    else:
        shares = None if roles is None else dict(roles)
        trials = trials.with_columns(role=assign_roles(people, shares, random_state=random_state))
    table = encode(trials, encoder, verbose=verbose)
    if doubtful := _doubt(table):
        warnings.warn(f"The pairs of this table are doubtful. {doubtful}", stacklevel=2)
    return table


def _doubt(table: Table) -> str:
    """Return what is doubtful about the pairs of a table, or wrong; empty if nothing is."""
    rows = table.take(is_paired(np.asarray(table.pair_id)))
    X = rows.X if rows.X.ndim == 2 else token_rows(rows.X, "mean")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # events that one device alone has are in the report
        pairs = Pairs.from_ids(
            X, np.searchsorted(rows.sources, rows.source), np.asarray(rows.pair_id), rows.participant
        )
    found = examine_pairs(pairs.a, pairs.b, pairs.participants, kinds_of(pairs))
    return doubt(found, pairs.ids)


def _preparation(epochs: Any, sfreq: float) -> dict[str, Any]:
    """Return the band (Hz) of MNE epochs as far as a rate shows it, and their baseline (s), as MNE knows."""
    one = epochs[0] if isinstance(epochs, (list, tuple)) else epochs
    facts = getattr(one, "info", None)
    if not isinstance(facts, Mapping) or "highpass" not in facts:
        return {}
    band = [float(facts["highpass"]), min(float(facts["lowpass"]), sfreq / 2)]
    return {"band": band, "baseline": None if one.baseline is None else [float(t) for t in one.baseline]}


def align_devices(
    devices: Mapping[str, Any],
    *,
    pair_by: str | Sequence[str] = "event",
    participant: str = "participant",
    label: str = "label",
    channels: Sequence[str] | None = None,
    sfreq: float | None = None,
    reference: str | Sequence[str] | None = None,
    at_once: bool = True,
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
    at_once : bool
        Whether the devices recorded at once, so that days must agree and onsets on two clocks lie on a line
        (:func:`mgpa.eeg.timing_test`). False: what names an event alone says which belong together.

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
            "name an event. For several views of one recording use mgpa.eeg.measure_views."
        )
    several = [
        (str(name), one)
        for name, epochs in devices.items()
        for one in loaded_epochs(epochs, str(name), "mgpa.eeg.table_from_raws takes continuous recordings.")
    ]
    names, notes = _common_channels(several, channels)
    parts = [_read(device, epochs, names, by, participant, label) for device, epochs in several]
    notes += _poor_signals(parts)
    start, rate, samples, words = _common_times(parts, sfreq)
    notes.append(words)
    shared = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
    others = sorted({name for part in parts for name in part.columns} - set(shared))
    if others:
        notes.append(f"metadata columns dropped, because some epochs lack them: {', '.join(others)}")
    parts = [replace(part, columns={name: part.columns[name] for name in shared}) for part in parts]
    trials = Trials.concatenate(_resample(part, start, rate, samples) for part in parts)
    dates = np.concatenate([np.full(len(part), part.info["date"], dtype=object) for part in parts])
    pair_id, report, untimed = _pair(trials.columns, dates, tuple(map(str, devices)), by, at_once)
    who, source = (trials.columns[name].astype(str) for name in ("participant", "source"))
    for device in map(str, devices):
        if absent := {*who} - {*who[source == device]}:
            notes.append(f"no epochs on {device} of {_some(absent)}")
    if untimed and at_once:
        notes.append(f"clocks not compared (no onsets, or fewer than three pairs): {_some(untimed)}")
        warnings.warn(
            f"Clocks cannot be compared: no onsets, or fewer than three pairs ({_some(untimed)}). Which "
            f"events are the same rests on {', '.join(by)} alone. Cut epochs from the recording "
            "(mne.Epochs keeps event times), or add a metadata column onset, in seconds.",
            stacklevel=2,
        )
    trials = replace(trials.with_columns(pair_id=pair_id), info={})
    if reference is not None:
        trials = rereference(trials, reference)
    return trials, replace(report, notes=tuple(notes))


def align_like(epochs: Any, table: Table) -> Trials:
    """Bring new epochs of any device to the channels, samples and reference of a table.

    Parameters
    ----------
    epochs : Trials, mne.Epochs, or a list of mne.Epochs
        Which need no partner. Another filter or baseline than the table's, as far as MNE knows, is a warning.
    table : Table
        That :func:`table_from_epochs` made.
    """
    info = getattr(table, "info", None)
    if (signals := info.get("signals") if isinstance(info, Mapping) else None) is None:
        raise UsageError(
            f"This {type(table).__name__} has no info['signals']; expected the table that "
            "mgpa.eeg.table_from_epochs made, as it is or read from its file (mgpa.tables.open_table)."
        )
    start, rate, samples = (signals[name] for name in ("tmin", "sfreq", "samples"))
    if other := other_signals({"signals": _preparation(epochs, rate)}, {"signals": signals}):
        warnings.warn(f"{other} Prepare the recording in the same way first.", stacklevel=2)
    trials = as_trials(epochs).pick(signals["channels"])
    end = start + (samples - 1) / rate
    if trials.tmin > start + _WHOLE or trials.times[-1] < end - _WHOLE:
        raise UsageError(
            f"The epochs last from {trials.tmin:g} to {trials.times[-1]:g} s, at {trials.sfreq:g} Hz; those "
            f"of the table from {start:g} to {end:g} s, at {rate:g} Hz. Cut longer ones from the recording."
        )
    trials = _resample(trials, start, rate, samples)
    return trials if signals["reference"] is None else rereference(trials, signals["reference"])


def _common_channels(
    several: list[tuple[str, Any]], wanted: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """Return the channels to keep, as they were asked for or the first device spells them, and notes."""
    channels: dict[str, list[str]] = {}
    common = [name.strip() for name in wanted or eeg_channels(several[0][1])]
    for device, epochs in several:
        names = eeg_channels(epochs)
        plain = [plain_name(name) for name in names]
        if twice := [name for name in names if plain.count(plain_name(name)) > 1]:
            raise UsageError(
                f"{device} has the channels {' and '.join(map(repr, twice))}, two names of one "
                "electrode; rename one with Epochs.rename_channels."
            )
        missing = [name for name in common if plain_name(name) not in plain]
        if missing and (wanted or len(missing) == len(common)):
            raise UsageError(
                f"{device} has no channel {first_few(missing)}. Channels: {', '.join(names)}. "
                "Epochs.rename_channels renames channels."
            )
        common = [name for name in common if name not in missing]
        channels[device] = list(dict.fromkeys([*channels.get(device, []), *names]))
    notes = [f"{len(common)} channels: {' '.join(common)}"]
    why = "not asked for" if wanted else "not on all devices"
    for device, names in channels.items():
        others = [name for name in names if plain_name(name) not in map(plain_name, common)]
        if others:
            notes.append(f"left out of {device}, {why}: {' '.join(others)}")
    return common, notes


def _read(
    device: str, epochs: Any, names: list[str], by: tuple[str, ...], participant: str, label: str
) -> Trials:
    """Return some channels with the columns that tables know, from the epochs' metadata or themselves.

    ``info`` says whose epochs they are, which channels are bad, and when they were recorded.
    """
    if not len(epochs):
        raise UsageError(f"{device}: no epochs are left; see Epochs.drop_log for why they were dropped.")
    frame = epochs.metadata
    metadata = {} if frame is None else {str(name): np.asarray(frame[name]) for name in frame.columns}
    present = ", ".join(metadata) or "none"
    events = {code: name for name, code in epochs.event_id.items()}
    implied: Columns = {
        "event": epochs.selection,
        "label": np.array([events[code] for code in epochs.events[:, 2]]),
        "onset": _onsets(epochs),
    }
    if participant not in metadata and (person := subject_of(epochs)) is not None:
        implied["participant"] = np.full(len(epochs), person)
    columns = {"source": np.full(len(epochs), device)}
    wanted = {"participant": participant, "label": label, "onset": "onset"} | {name: name for name in by}
    for column, name in wanted.items():
        if name not in metadata and name not in implied:
            raise UsageError(
                f"{device}: no column {name!r}. Metadata columns: {present}. Set participant= (default: "
                "info['subject_info']['his_id']), label= for the task and pair_by= for the event "
                "(match_events numbers events)."
            )
        columns[column] = metadata.pop(name) if name in metadata else implied[name]
    if "pair_id" in metadata or set(metadata.pop("source", [device])) != {device}:
        raise UsageError(
            f"{device}: the metadata have a column pair_id, or other sources; rename that column, or pass "
            "pair_by='pair_id'."
        )
    who = f"{device} ({_some(set(columns['participant'].tolist()))})"
    spelled = {plain_name(name): name for name in eeg_channels(epochs)}
    picks = [spelled[plain_name(name)] for name in names]
    signal = epochs.get_data(picks=picks).astype(np.float64)
    require_finite(signal.reshape(len(signal), -1), who)
    bads = [name for name, pick in zip(names, picks, strict=True) if pick in epochs.info["bads"]]
    info = {"who": who, "bads": bads, "date": epochs.info["meas_date"]}
    rate, tmin = float(epochs.info["sfreq"]), float(epochs.times[0])
    return Trials(signal, tuple(names), rate, tmin, columns | metadata, info)


def _onsets(epochs: Any) -> NDArray[np.float64]:
    """Return when events were, in seconds of the recording's clock; NaN where they are merely counted."""
    samples = epochs.events[:, 0].astype(np.float64)
    if len(samples) < 2 or np.median(np.diff(samples)) <= 1:  # what EpochsArray makes of an array
        return np.full(len(samples), np.nan)
    # Resampled epochs keep their events in samples of the recording, and only MNE's own field its rate: an
    # array, where they were read from a file.
    rate = np.asarray(getattr(epochs, "_raw_sfreq", epochs.info["sfreq"]), dtype=np.float64)
    return np.asarray(samples / rate.item())


def _poor_signals(parts: list[Trials]) -> list[str]:
    """Return, and warn of, channels that are bad or flat, and epochs that are not in volts."""
    poor: dict[str, list[str]] = {}
    loud = []
    for part in parts:
        size = np.ptp(part.data, axis=2)
        for name, level in zip(part.channels, np.median(size, axis=0), strict=True):
            states = ["bad"] * (name in part.info["bads"]) + ["flat"] * bool(level < FLAT)
            if states:
                poor.setdefault(name, []).append(f"{' and '.join(states)} on {part.info['who']}")
        if (level := float(np.median(size))) > LOUD:
            loud.append(f"{part.info['who']} has signals of {level:.3g} V from peak to peak")
    faults = [f"{name}: {', '.join(places)}" for name, places in poor.items()] + loud[:4]
    if faults:
        warnings.warn(
            f"{'; '.join(faults)}. All are used. Interpolate bad channels (Epochs.interpolate_bads), or "
            "choose channels with channels=. MNE expects volts: multiply microvolts by 1e-6 "
            "(apply_function).",
            stacklevel=3,
        )
    return faults


def _common_times(parts: list[Trials], sfreq: float | None) -> tuple[float, float, int, str]:
    """Return start, rate and samples of the times that all devices cover, at the slowest's; and in words."""
    slowest = min(parts, key=lambda part: part.sfreq)
    rate = slowest.sfreq if sfreq is None else float(sfreq)
    first, last = max(part.tmin for part in parts), min(part.times[-1] for part in parts)
    # The slowest device's own samples: what is not moved is not smoothed either.
    start = slowest.tmin + np.ceil((first - slowest.tmin) * slowest.sfreq - _WHOLE) / slowest.sfreq
    samples = int(np.floor((last - start) * rate + _WHOLE)) + 1
    if samples < 2:
        spans = ", ".join(f"{p.info['who']} {p.tmin:g} to {p.times[-1]:g} s" for p in parts)
        raise UsageError(f"The epochs have no time in common ({spans}); cut all of them around the event.")
    words = [f"{rate:g} Hz from {start:.4g} to {start + (samples - 1) / rate:.4g} s"]
    for part in parts:
        device = part.columns["source"][0]
        if part.sfreq != rate:
            words.append(f"{device} resampled from {part.sfreq:g} Hz")
        if (moved := _offset(part, start, rate)[1]) > _WHOLE:
            words.append(f"{device} interpolated, by {moved:.2f} of a sample")
    return start, rate, samples, "; ".join(dict.fromkeys(words))


def _offset(part: Trials, start: float, rate: float) -> tuple[int, float]:
    """Return the device's first sample to take, and by which part of a sample the grid lies after it."""
    before = np.floor((start - part.tmin) * rate + _WHOLE)
    position = (start - before / rate - part.tmin) * part.sfreq
    whole = int(np.floor(position + _WHOLE))
    return whole, float(position - whole)


def _resample(part: Trials, start: float, rate: float, samples: int) -> Trials:
    """Return a device's epochs at the common times."""
    from scipy.interpolate import CubicSpline

    whole, share = _offset(part, start, rate)
    signal = part.data[:, :, whole:]
    if share > _WHOLE:
        at = np.arange(whole, part.data.shape[2] - 1) + share
        signal = CubicSpline(np.arange(part.data.shape[2]), part.data, axis=2)(at)
    trials = replace(part, data=signal)
    if part.sfreq != rate:
        trials = resample(trials, rate)
    # The first sample taken is a whole number of new samples before the grid.
    first = round((start - part.tmin - (whole + share) / part.sfreq) * rate)
    return replace(trials, data=trials.data[:, :, first : first + samples], tmin=start)


def _pair(
    columns: Columns, dates: NDArray[Any], devices: tuple[str, ...], by: tuple[str, ...], at_once: bool
) -> tuple[NDArray[Any], PairingReport, list[str]]:
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
                f"{'/'.join(map(str, session))}: {by[-1]} {event!r} occurs twice on {device}. If numbers "
                f"restart, also name the column in which they restart: pair_by=('session', {by[-1]!r})."
            )
    report, untimed = PairingReport({}, {}, {}, {}, kept=True), []
    for name, events in sessions.items():
        dropped = []
        for event, views in events.items():
            if len(views) > 1:
                rows = list(views.values())
                if len(labels := set(columns["label"][rows].tolist())) > 1:
                    raise PairingError(
                        f"{name}: event {event!r} is {_some(labels)}, depending on the device; is it the "
                        "same event? mgpa.eeg.match_events pairs markers by time; label= names the "
                        "task's column, and labels_from= the recording with the right labels."
                    )
                pair_id[rows] = f"{name}/{event}"
            if absent := [device for device in devices if device not in views]:
                dropped.append(f"{by[-1]} {event}: no epoch on {', '.join(absent)}")
        timing, present = {}, set().union(*events.values())
        for device in devices[1:] if at_once and len(present) > 1 else ():
            if device not in present:
                continue
            what = f"{device} against {devices[0]}"
            both = [(v[devices[0]], v[device]) for v in events.values() if {devices[0], device} <= v.keys()]
            index = np.array(both, dtype=int).reshape(-1, 2)
            _require_one_day(dates[index], f"{name}: {what}")
            onsets = columns["onset"][index]
            if len(both) < 3 or not np.isfinite(onsets).all():
                untimed.append(f"{what}, {name}")
                continue
            timing[what] = test = timing_test(onsets[:, 0], onsets[:, 1])
            if test.failures:
                raise PairingError(
                    f"{name}: {what}: the onsets fail the timing test: {'; '.join(test.failures)}. Equal "
                    "names are different events, or a clock jumped. Pair markers by time "
                    "(mgpa.eeg.match_events), number them in a metadata column and pass it as pair_by=. "
                    "After a clock jump, number the stretches too: pair_by=('stretch', 'event')."
                )
        report.events[name], report.pairs[name] = len(events), sum(len(v) > 1 for v in events.values())
        report.dropped[name], report.timing[name] = dropped, timing
    if not any(report.pairs.values()):
        described = "; ".join(
            f"{device} has {name} {_some(set(columns[name][columns['source'] == device]))}"
            for device in devices
            for name in ("participant", by[-1])
        )
        raise PairingError(
            f"No event was recorded on two devices: {described}. Set participant= and pair_by=; "
            "mgpa.eeg.match_events numbers events by their times."
        )
    return pair_id.astype(str), report, untimed


def _require_one_day(dates: NDArray[Any], what: str) -> None:
    """Raise if paired epochs, (pairs, 2), come from recordings that were made on different days."""
    for first, second in dates:
        if first is not None and second is not None and abs(first - second) > ONE_SESSION:
            raise PairingError(
                f"{what}: recorded on {second:%Y-%m-%d} and on {first:%Y-%m-%d}, so these are not the same "
                "events. If a date is wrong, remove it: epochs.info.set_meas_date(None). For devices "
                "that did not record at once pass at_once=False."
            )


def _some(values: Any) -> str:
    return first_few(sorted(map(str, values)), 4)
