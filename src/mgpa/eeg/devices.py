"""Epochs of several devices that recorded the same events, as aligned trials and as a table.

Devices differ in channels, sampling rate and sample times, and each has its own clock. The epochs are
converted to common channels, rate and times, and events are paired by their names. The times of paired events
on two clocks must then lie on a straight line. The report lists omitted events and problems.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .._common.arrays import token_rows
from ..errors import UsageError
from ..labels import is_paired
from ..pair_checks import doubt, examine_pairs, kinds_of
from ..pairs import Pairs
from ..tables.columns import ROLES, assign_roles
from ..tables.rows import other_signals
from ..tables.table import Table
from .device_epochs import WHOLE, common_channels, common_times, poor_signals, read_epochs, resample_to, some
from .pairing import PairingReport
from .sessions import pair_sessions
from .trials import Encoder, Trials, as_trials, encode, loaded_epochs
from .views import rereference


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
        The encoder of the trials; see :func:`mgpa.eeg.encode`.
    roles : dict of role to share of participants, or None
        See :func:`mgpa.tables.assign_roles`; None uses its default, or no roles with fewer than four
        participants.
        A metadata column ``role`` is used unchanged.
    random_state : int
        Seed of the assignment of roles.
    verbose : bool
        Show progress.
    **alignment
        Settings of :func:`align_devices`: pair_by, participant, label, channels, sfreq, reference and
        at_once.

    Returns
    -------
    Table
        A table for :func:`mgpa.tables.fit_table`, :func:`mgpa.audit.run` and :func:`mgpa.tables.write_table`.
        ``info["pairing"]`` reports omitted events and the comparison of the clocks.
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
    """Return doubts about the pairs of a table, or wrong pairs; empty without doubts."""
    rows = table.take(is_paired(np.asarray(table.pair_id)))
    X = rows.X if rows.X.ndim == 2 else token_rows(rows.X, "mean")
    codes = np.searchsorted(rows.sources, rows.source)
    pairs = Pairs.from_ids(X, codes, np.asarray(rows.pair_id), rows.participant)
    findings = examine_pairs(pairs.a, pairs.b, pairs.participants, kinds_of(pairs))
    return doubt(findings, pairs.ids)


def _preparation(epochs: Any, sfreq: float) -> dict[str, Any]:
    """Return the band (Hz) of MNE epochs up to the Nyquist frequency, and their baseline (s)."""
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
    """Convert epochs of several devices to common channels, rate and times, and pair their events.

    Parameters
    ----------
    devices : dict of name to mne.Epochs, or to a list of them
        Epochs of two or more devices, in volts as in MNE.
    pair_by : str or sequence of str
        Metadata columns that together identify an event of a participant. Without a column "event", events
        are identified by their position in the recording (``Epochs.selection``), which does not change when
        epochs are dropped. If event numbers restart in each session, use ("session", "event").
        Clocks are compared within each session.
    participant : str
        Metadata column of the participant. Without a column "participant", the subject's ``his_id`` is used.
    label : str
        Metadata column of the task. Without a column "label", the name of the event is used.
    channels : sequence of str or None
        None: the channels of all devices, in the order of the first device. Case is ignored, and T3, T4, T5
        and T6 are T7, T8, P7 and P8. A warning names bad and flat channels among those used.
    sfreq : float or None
        Samples per second; None is the lowest rate of the devices. Faster devices are resampled
        (:func:`mgpa.eeg.resample`). If samples of two devices have different times, they are first
        interpolated by a cubic spline.
    reference : str, sequence of str or None
        See :func:`mgpa.eeg.rereference`; computed from the remaining channels. None keeps the recorded
        reference.
    at_once : bool
        Whether the devices recorded at the same time, so that days must agree and onsets on two clocks must
        lie on a line (:func:`mgpa.eeg.timing_test`). False: events are paired only by their names.

    Returns
    -------
    trials : Trials
        One row for every epoch, in the original order. Columns: source, participant, label, pair_id (empty if
        no other device has the event), the columns of ``pair_by``, onset (s, on the clock of the device; NaN
        if unknown), and metadata that all devices have.
    report : PairingReport
        Omitted events, bad or flat channels, and the comparison of the clocks.
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
    names, notes = common_channels(several, channels)
    parts = [read_epochs(device, epochs, names, by, participant, label) for device, epochs in several]
    notes += poor_signals(parts)
    start, rate, samples, words = common_times(parts, sfreq)
    notes.append(words)
    parts = _with_shared_columns(parts, notes)
    trials = Trials.concatenate(resample_to(part, start, rate, samples) for part in parts)
    dates = np.concatenate([np.full(len(part), part.info["date"], dtype=object) for part in parts])
    pair_id, report, untimed = pair_sessions(trials.columns, dates, tuple(map(str, devices)), by, at_once)
    who, source = (trials.columns[name].astype(str) for name in ("participant", "source"))
    for device in map(str, devices):
        if absent := {*who} - {*who[source == device]}:
            notes.append(f"no epochs on {device} of {some(absent)}")
    if untimed:
        notes.append(f"clocks not compared (no onsets, or fewer than three pairs): {some(untimed)}")
        warnings.warn(
            f"Clocks cannot be compared: no onsets, or fewer than three pairs ({some(untimed)}). "
            f"Events are paired only by {', '.join(by)}. Cut epochs from the recording "
            "(mne.Epochs keeps event times), or add a metadata column onset, in seconds.",
            stacklevel=2,
        )
    trials = replace(trials.with_columns(pair_id=pair_id), info={})
    if reference is not None:
        trials = rereference(trials, reference)
    return trials, replace(report, notes=tuple(notes))


def _with_shared_columns(parts: list[Trials], notes: list[str]) -> list[Trials]:
    """Return the parts with the columns that all of them have; the others are noted."""
    shared = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
    others = sorted({name for part in parts for name in part.columns} - set(shared))
    if others:
        notes.append(f"metadata columns dropped, because some epochs lack them: {', '.join(others)}")
    return [replace(part, columns={name: part.columns[name] for name in shared}) for part in parts]


def align_like(epochs: Any, table: Table) -> Trials:
    """Convert new epochs of any device to the channels, samples and reference of a table.

    Parameters
    ----------
    epochs : Trials, mne.Epochs, or a list of mne.Epochs
        New epochs, which need no paired epochs. A different filter or baseline than in the table raises a
        warning.
    table : Table
        A table made by :func:`table_from_epochs`.
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
    if trials.tmin > start + WHOLE or trials.times[-1] < end - WHOLE:
        raise UsageError(
            f"The epochs last from {trials.tmin:g} to {trials.times[-1]:g} s, at {trials.sfreq:g} Hz; those "
            f"of the table from {start:g} to {end:g} s, at {rate:g} Hz. Cut longer ones from the recording."
        )
    trials = resample_to(trials, start, rate, samples)
    return trials if signals["reference"] is None else rereference(trials, signals["reference"])
