"""What epochs of several devices have in common (channels, rate and times), and bringing them there."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._common.checks import require_finite
from ..errors import UsageError
from ..tables.columns import Columns
from .trials import Trials, eeg_channels
from .views import resample

# Names of the 10-20 system that later ones replaced.
_OLD_NAMES = {"t3": "t7", "t4": "t8", "t5": "p7", "t6": "p8"}
# Volts from peak to peak: no electrode on a head is as quiet for a whole epoch.
FLAT = 1e-8
# Volts from peak to peak: nothing on a head is as loud, and whatever is was not stored in volts.
LOUD = 1.0
# Sample times are sums of rounded numbers; a part of a sample this small is none.
_WHOLE = 1e-6


@dataclass(frozen=True)
class DeviceEpochs:
    """Epochs of one device, and what is known about each."""

    device: str
    epochs: Any
    columns: Columns

    @property
    def rate(self) -> float:
        """Samples per second."""
        return float(self.epochs.info["sfreq"])

    @property
    def tmin(self) -> float:
        """Time of the first sample, in seconds after the event."""
        return float(self.epochs.times[0])

    @property
    def tmax(self) -> float:
        """Time of the last sample."""
        return float(self.epochs.times[-1])

    @property
    def people(self) -> str:
        """Who is in it, for a sentence."""
        return some(np.unique(self.columns["participant"]).tolist())


def _plain(name: str) -> str:
    lower = name.strip().lower()
    return _OLD_NAMES.get(lower, lower)


def _channel_names(part: DeviceEpochs) -> dict[str, str]:
    """Return a device's EEG channels by their plain name."""
    return {_plain(name): name for name in eeg_channels(part.epochs)}


def common_channels(
    parts: list[DeviceEpochs], wanted: Sequence[str] | None, dropped: set[str]
) -> tuple[tuple[str, ...], list[str]]:
    """Return the channels to keep, as the first device spells them, and what is to be said about others."""
    there = [_channel_names(part) for part in parts]
    asked = list(there[0]) if wanted is None else [_plain(name) for name in wanted]
    for part, channels in zip(parts, there, strict=True):
        missing = [] if wanted is None else [name for name in wanted if _plain(name) not in channels]
        if missing:
            raise UsageError(
                f"{part.device} ({part.people}) has no channel {', '.join(missing)}; it has "
                f"{', '.join(channels.values())}. Epochs.rename_channels renames channels."
            )
    common = [name for name in asked if all(name in channels for channels in there)]
    kept = [name for name in common if name not in dropped]
    if not kept:
        lists = "; ".join(f"{p.device}: {', '.join(c.values())}" for p, c in zip(parts, there, strict=True))
        bad = " that is not bad or flat" if common else ""
        raise UsageError(
            f"No channel{bad} is common to all devices ({lists}). Epochs.rename_channels renames channels; "
            "bads='keep' keeps bad ones."
        )
    spelled = tuple(
        there[0][name].strip() if wanted is None else next(w for w in wanted if _plain(w) == name)
        for name in kept
    )
    notes = [f"{len(kept)} channels: {' '.join(spelled)}"]
    for device in dict.fromkeys(part.device for part in parts):
        others = dict.fromkeys(
            channels[name]
            for part, channels in zip(parts, there, strict=True)
            for name in channels
            if part.device == device and name not in common
        )
        if others:
            notes.append(f"left out of {device}, since not all have them: {' '.join(others)}")
    return spelled, notes


def poor_channels(parts: list[DeviceEpochs]) -> dict[str, tuple[str, list[str]]]:
    """Return channels that are marked as bad or flat, by plain name: as spelled there, and where."""
    poor: dict[str, tuple[str, list[str]]] = {}
    for part in parts:
        channels = _channel_names(part)
        data = part.epochs.get_data(picks=list(channels.values()), copy=False)
        quiet = np.median(np.ptp(data, axis=2), axis=0) < FLAT
        for i, (plain, name) in enumerate(channels.items()):
            states = [word for word, holds in (("bad", name in part.epochs.info["bads"]), ("flat", quiet[i]))
                      if holds]  # fmt: skip
            if states:
                _, where = poor.setdefault(plain, (name.strip(), []))
                where.append(f"{' and '.join(states)} on {part.device} ({part.people})")
    return poor


def about_poor(poor: dict[str, tuple[str, list[str]]], names: tuple[str, ...], bads: str) -> list[str]:
    """Return what is to be said about bad and flat channels; warn of those that are used."""
    if bads not in ("keep", "drop"):
        raise UsageError(f"bads is {bads!r}; expected 'keep' or 'drop'.")
    kept = {_plain(name): name for name in names}
    said = [f"{kept.get(plain, name)}: {', '.join(where)}" for plain, (name, where) in poor.items()]
    if bads == "drop":
        return [f"dropped {line}" for line in said]
    used = [line for line, plain in zip(said, poor, strict=True) if plain in kept]
    if used:
        warnings.warn(
            f"{'; '.join(used)}. They are used all the same: interpolate them (Epochs.interpolate_bads), or "
            "leave them out for everyone with bads='drop'.",
            stacklevel=4,
        )
    return [f"kept {line}" for line in used]


def about_units(parts: list[DeviceEpochs]) -> list[str]:
    """Return which epochs cannot be in volts, as MNE takes them to be; warn of them."""
    said = []
    for part in parts:
        data = part.epochs.get_data(picks=eeg_channels(part.epochs), copy=False)
        size = float(np.median(np.ptp(data, axis=2)))
        if size > LOUD:
            said.append(f"{part.device} ({part.people}) has signals of {size:.3g} V from peak to peak")
    if said:
        warnings.warn(
            f"{some(said)}. MNE takes numbers for volts; if they are microvolts, multiply them by 1e-6 "
            "(apply_function), lest the unit be taken for an effect of the device.",
            stacklevel=4,
        )
    return said


@dataclass(frozen=True)
class Grid:
    """The times that all devices are brought to."""

    start: float
    rate: float
    samples: int
    said: str


def common_times(parts: list[DeviceEpochs], sfreq: float | None) -> Grid:
    """Return the times that all devices cover, at the slowest one's samples or at another rate."""
    slowest = min(parts, key=lambda part: part.rate)
    rate = slowest.rate if sfreq is None else float(sfreq)
    first, last = max(part.tmin for part in parts), min(part.tmax for part in parts)
    # The slowest device's own samples: what is not moved is not smoothed either.
    ahead = np.ceil((first - slowest.tmin) * slowest.rate - _WHOLE)
    start = slowest.tmin + ahead / slowest.rate
    samples = int(np.floor((last - start) * rate + _WHOLE)) + 1
    if samples < 2:
        spans = ", ".join(f"{p.device} {p.tmin:g} to {p.tmax:g} s" for p in parts)
        raise UsageError(f"The epochs have no time in common ({spans}); cut all of them around the event.")
    words = [f"{rate:g} Hz from {start:.4g} to {start + (samples - 1) / rate:.4g} s"]
    for device in dict.fromkeys(part.device for part in parts):
        rates = sorted({part.rate for part in parts if part.device == device})
        if rates != [rate]:
            words.append(f"{device} resampled from {' and '.join(f'{r:g}' for r in rates)} Hz")
        moved = max(abs(_offset(part, start, rate)[1]) for part in parts if part.device == device)
        if moved > _WHOLE:
            words.append(f"{device} interpolated, by {moved:.2f} of a sample")
    return Grid(start, rate, samples, "; ".join(words))


def _offset(part: DeviceEpochs, start: float, rate: float) -> tuple[int, float]:
    """Return the device's first sample to take, and by which part of a sample the grid lies after it."""
    before = np.floor((start - part.tmin) * rate + _WHOLE)
    position = (start - before / rate - part.tmin) * part.rate
    whole = int(np.floor(position + _WHOLE))
    return whole, float(position - whole)


def brought(part: DeviceEpochs, names: tuple[str, ...], grid: Grid, shared: list[str]) -> Trials:
    """Return a device's epochs with the common channels, at the common times."""
    from scipy.interpolate import CubicSpline

    channels = _channel_names(part)
    signal = part.epochs.get_data(picks=[channels[_plain(name)] for name in names]).astype(np.float64)
    require_finite(signal.reshape(len(signal), -1), f"{part.device} ({part.people})")
    whole, share = _offset(part, grid.start, grid.rate)
    if share > _WHOLE:
        at = np.arange(whole, signal.shape[2] - 1) + share
        signal = CubicSpline(np.arange(signal.shape[2]), signal, axis=2)(at)
    else:
        signal = signal[:, :, whole:]
    columns = {name: part.columns[name] for name in shared}
    trials = Trials(signal, names, part.rate, columns=columns)
    if part.rate != grid.rate:
        trials = resample(trials, grid.rate)
    # The first sample taken is a whole number of new samples before the grid.
    first = round((grid.start - part.tmin - (whole + share) / part.rate) * grid.rate)
    data = trials.data[:, :, first : first + grid.samples]
    return replace(trials, data=data, tmin=grid.start)


def some(values: Any, n: int = 4) -> str:
    """Return the first few of some values for a sentence, and how many more there are."""
    listed = sorted(values, key=str)
    return ", ".join(map(str, listed[:n])) + (f" and {len(listed) - n} more" if len(listed) > n else "")
