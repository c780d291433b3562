"""Convert epochs of single devices to the common channels, columns and samples of all devices."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._common.checks import require_finite
from ..errors import UsageError, first_few
from ..tables.columns import Columns
from ..tables.frames import subject_of
from .trials import Trials, eeg_channels, plain_name
from .views import resample

# Limits of the peak-to-peak amplitude in volts: smaller means a flat channel; larger means other units.
FLAT, LOUD = 1e-8, 1.0
# Sample times are sums of rounded numbers; smaller fractions of a sample count as zero.
WHOLE = 1e-6


def some(values: Any) -> str:
    """Return the first four of some values, sorted, as text."""
    return first_few(sorted(map(str, values)), 4)


def common_channels(
    several: list[tuple[str, Any]], wanted: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """Return the channels to keep, in the requested spelling or that of the first device, and notes."""
    channels: dict[str, list[str]] = {}
    common = [name.strip() for name in wanted or eeg_channels(several[0][1])]
    for device, epochs in several:
        names = eeg_channels(epochs)
        plain = [plain_name(name) for name in names]
        _require_one_name(device, names, plain)
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


def _require_one_name(device: str, names: list[str], plain: list[str]) -> None:
    if twice := [name for name, one in zip(names, plain, strict=True) if plain.count(one) > 1]:
        raise UsageError(
            f"{device} has the channels {' and '.join(map(repr, twice))}, two names of one "
            "electrode; rename one with Epochs.rename_channels."
        )


def read_epochs(
    device: str, epochs: Any, names: list[str], by: tuple[str, ...], participant: str, label: str
) -> Trials:
    """Return some channels with the columns of a table, from the epochs and their metadata.

    ``info`` contains the participant, bad channels, and the time of the recording.
    """
    if not len(epochs):
        raise UsageError(f"{device}: no epochs are left; see Epochs.drop_log for why they were dropped.")
    columns = _columns(device, epochs, by, participant, label)
    who = f"{device} ({some(set(columns['participant'].tolist()))})"
    spelled = {plain_name(name): name for name in eeg_channels(epochs)}
    picks = [spelled[plain_name(name)] for name in names]
    signal = epochs.get_data(picks=picks).astype(np.float64)
    require_finite(signal.reshape(len(signal), -1), who)
    bads = [name for name, pick in zip(names, picks, strict=True) if pick in epochs.info["bads"]]
    info = {"who": who, "bads": bads, "date": epochs.info["meas_date"]}
    rate, tmin = float(epochs.info["sfreq"]), float(epochs.times[0])
    return Trials(signal, tuple(names), rate, tmin, columns, info)


def _columns(device: str, epochs: Any, by: tuple[str, ...], participant: str, label: str) -> Columns:
    """Return source, participant, label, onset and the columns of ``by``, then all other metadata."""
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
    columns: Columns = {"source": np.full(len(epochs), device)}
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
    return columns | metadata


def _onsets(epochs: Any) -> NDArray[np.float64]:
    """Return onsets of events in seconds of the recording's clock; NaN if unknown."""
    samples = epochs.events[:, 0].astype(np.float64)
    if len(samples) < 2 or np.median(np.diff(samples)) <= 1:  # default event samples of EpochsArray
        return np.full(len(samples), np.nan)
    # Events of resampled epochs are in samples of the recording; only a private field of MNE has the rate of
    # the recording (an array, if the epochs were read from a file).
    rate = np.asarray(getattr(epochs, "_raw_sfreq", epochs.info["sfreq"]), dtype=np.float64)
    return np.asarray(samples / rate.item())


def poor_signals(parts: list[Trials]) -> list[str]:
    """Return bad or flat channels and epochs that are not in volts, and warn of them."""
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


def common_times(parts: list[Trials], sfreq: float | None) -> tuple[float, float, int, str]:
    """Return start, lowest rate and number of samples of the common time, and a sentence about it."""
    slowest = min(parts, key=lambda part: part.sfreq)
    rate = slowest.sfreq if sfreq is None else float(sfreq)
    first, last = max(part.tmin for part in parts), min(part.times[-1] for part in parts)
    # Use the samples of the slowest device, so that its signals are not interpolated.
    start = slowest.tmin + np.ceil((first - slowest.tmin) * slowest.sfreq - WHOLE) / slowest.sfreq
    samples = int(np.floor((last - start) * rate + WHOLE)) + 1
    if samples < 2:
        spans = ", ".join(f"{p.info['who']} {p.tmin:g} to {p.times[-1]:g} s" for p in parts)
        raise UsageError(f"The epochs have no time in common ({spans}); cut all of them around the event.")
    words = [f"{rate:g} Hz from {start:.4g} to {start + (samples - 1) / rate:.4g} s"]
    for part in parts:
        device = part.columns["source"][0]
        if part.sfreq != rate:
            words.append(f"{device} resampled from {part.sfreq:g} Hz")
        if (moved := _offset(part, start, rate)[1]) > WHOLE:
            words.append(f"{device} interpolated, by {moved:.2f} of a sample")
    return start, rate, samples, "; ".join(dict.fromkeys(words))


def _offset(part: Trials, start: float, rate: float) -> tuple[int, float]:
    """Return the first sample of the device, and the offset of the grid as a fraction of a sample."""
    before = np.floor((start - part.tmin) * rate + WHOLE)
    position = (start - before / rate - part.tmin) * part.sfreq
    whole = int(np.floor(position + WHOLE))
    return whole, float(position - whole)


def resample_to(part: Trials, start: float, rate: float, samples: int) -> Trials:
    """Return a device's epochs at the common times."""
    from scipy.interpolate import CubicSpline

    whole, share = _offset(part, start, rate)
    signal = part.data[:, :, whole:]
    if share > WHOLE:
        at = np.arange(whole, part.data.shape[2] - 1) + share
        signal = CubicSpline(np.arange(part.data.shape[2]), part.data, axis=2)(at)
    trials = replace(part, data=signal)
    if part.sfreq != rate:
        trials = resample(trials, rate)
    # The first sample is an integer number of new samples before the grid.
    first = round((start - part.tmin - (whole + share) / part.sfreq) * rate)
    return replace(trials, data=trials.data[:, :, first : first + samples], tmin=start)
