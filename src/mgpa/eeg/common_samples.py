"""What epochs of several devices have in common (channels, rate and times), and bringing them there."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .._common.checks import require_finite
from ..errors import UsageError
from ..tables.columns import Columns
from .trials import Trials, eeg_channels
from .views import resample

# Names of the 10-20 system that later ones replaced.
_OLD_NAMES = {"t3": "t7", "t4": "t8", "t5": "p7", "t6": "p8"}
# Volts from peak to peak: no electrode on a head is as quiet for a whole epoch; nothing there is as loud, and
# whatever is was not stored in volts.
FLAT, LOUD = 1e-8, 1.0
# Sample times are sums of rounded numbers; a part of a sample this small is none.
_WHOLE = 1e-6


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
        return f"{self.device} ({some(np.unique(self.columns['participant']).tolist())})"

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


def common_channels(
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
            notes.append(f"left out of {device}, since not all have them: {' '.join(others)}")
    poor = _poor_channels(parts)
    used = [f"{spelled[name]}: {', '.join(poor[name])}" for name in poor if name in common]
    if used:
        warnings.warn(
            f"{'; '.join(used)}. They are used all the same: interpolate them (Epochs.interpolate_bads), or "
            "name the channels to use with channels=.",
            stacklevel=3,
        )
    return tuple(spelled[name] for name in common), [*notes, *used]


def _poor_channels(parts: list[DeviceEpochs]) -> dict[str, list[str]]:
    """Return, by plain name, where channels are marked as bad, or flat."""
    poor: dict[str, list[str]] = {}
    for part in parts:
        data = part.epochs.get_data(picks=list(part.channels.values()), copy=False)
        quiet = np.median(np.ptp(data, axis=2), axis=0) < FLAT
        for flat, (plain, name) in zip(quiet, part.channels.items(), strict=True):
            states = ["bad"] * (name in part.epochs.info["bads"]) + ["flat"] * bool(flat)
            if states:
                poor.setdefault(plain, []).append(f"{' and '.join(states)} on {part}")
    return poor


def about_units(parts: list[DeviceEpochs]) -> list[str]:
    """Return which epochs cannot be in volts, as MNE takes them to be; warn of them."""
    loud = []
    for part in parts:
        data = part.epochs.get_data(picks=list(part.channels.values()), copy=False)
        size = float(np.median(np.ptp(data, axis=2)))
        if size > LOUD:
            loud.append(f"{part} has signals of {size:.3g} V from peak to peak")
    if loud:
        warnings.warn(
            f"{some(loud)}. MNE takes numbers for volts; if they are microvolts, multiply them by 1e-6 "
            "(apply_function); else the unit looks like an effect of the device.",
            stacklevel=4,
        )
    return loud


class Grid(NamedTuple):
    """The times that all devices are brought to."""

    start: float
    rate: float
    samples: int


def common_times(parts: list[DeviceEpochs], sfreq: float | None) -> tuple[Grid, str]:
    """Return the times that all devices cover, at the slowest one's samples or at another rate; in words."""
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
    return Grid(start, rate, samples), "; ".join(words)


def _offset(part: DeviceEpochs, start: float, rate: float) -> tuple[int, float]:
    """Return the device's first sample to take, and by which part of a sample the grid lies after it."""
    before = np.floor((start - part.span[0]) * rate + _WHOLE)
    position = (start - before / rate - part.span[0]) * part.rate
    whole = int(np.floor(position + _WHOLE))
    return whole, float(position - whole)


def align(part: DeviceEpochs, names: tuple[str, ...], grid: Grid, shared: list[str]) -> Trials:
    """Return a device's epochs with the common channels, at the common times."""
    from scipy.interpolate import CubicSpline

    picks = [part.channels[_plain(name)] for name in names]
    signal = part.epochs.get_data(picks=picks).astype(np.float64)
    require_finite(signal.reshape(len(signal), -1), str(part))
    whole, share = _offset(part, grid.start, grid.rate)
    if share > _WHOLE:
        at = np.arange(whole, signal.shape[2] - 1) + share
        signal = CubicSpline(np.arange(signal.shape[2]), signal, axis=2)(at)
    else:
        signal = signal[:, :, whole:]
    trials = Trials(signal, names, part.rate, columns={name: part.columns[name] for name in shared})
    if part.rate != grid.rate:
        trials = resample(trials, grid.rate)
    # The first sample taken is a whole number of new samples before the grid.
    first = round((grid.start - part.span[0] - (whole + share) / part.rate) * grid.rate)
    return replace(trials, data=trials.data[:, :, first : first + grid.samples], tmin=grid.start)


def some(values: Any, n: int = 4) -> str:
    """Return the first few of some values for a sentence, and how many more there are."""
    listed = sorted(values, key=str)
    return ", ".join(map(str, listed[:n])) + (f" and {len(listed) - n} more" if len(listed) > n else "")
