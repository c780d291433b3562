"""The steps between a recording and its trials: filter, reference, rate, epochs, scale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .trials import Trials

Floats = NDArray[np.float64]


def prepare_recording(signal: Any, sfreq: float, low: float, high: float, new: float) -> Floats:
    """Filter a recording (channels, samples), reference it to its average and resample it, as MNE would.

    The filter is zero-phase FIR from ``low`` to ``high`` Hz, 3.3 / ``low`` seconds long; resampling to
    ``new`` Hz is by Fourier transform. MNE rounds the padding at either end to whole samples, so times are
    off by up to one new sample; the paper's recordings were resampled in this way.
    """
    import mne

    signal = np.asarray(signal, dtype=np.float64)
    taps = len(mne.filter.create_filter(None, sfreq, low, high, fir_design="firwin", verbose="error"))
    if signal.shape[-1] < taps:
        raise ValueError(
            f"The recording lasts {signal.shape[-1] / sfreq:.1f} s; a filter from {low:g} Hz on takes "
            f"{taps / sfreq:.1f} s. Pass the whole recording."
        )
    signal = mne.filter.filter_data(
        signal, sfreq, low, high, method="fir", phase="zero", fir_design="firwin", verbose="error"
    )
    signal = signal - signal.mean(axis=-2, keepdims=True)
    return np.asarray(mne.filter.resample(signal, new, sfreq, npad="auto", method="fft", verbose="error"))


def epochs_at(
    signal: Any, sfreq: float, onsets: Any, *, tmin: float, n: int
) -> tuple[Floats, NDArray[np.bool_]]:
    """Cut epochs (k, channels, n) at exact event times, by linear interpolation between samples.

    The recording's first sample is at 0 s; ``tmin`` is the time of an epoch's first point, in seconds after
    the event. Where an epoch leaves the recording it is NaN, and not ``valid``.
    """
    signal, onsets = np.asarray(signal, dtype=np.float64), np.asarray(onsets, dtype=np.float64)
    last = signal.shape[-1] - 1
    position = (onsets[:, None] + tmin + np.arange(n) / sfreq) * sfreq
    valid = (position[:, 0] >= 0) & (position[:, -1] <= last)
    epochs = np.full((len(onsets), len(signal), n), np.nan)
    if valid.any():
        inside = position[valid]
        before = np.minimum(np.floor(inside).astype(np.int64), max(last - 1, 0))
        share = inside - before
        cut = signal[:, before] * (1 - share) + signal[:, np.minimum(before + 1, last)] * share
        epochs[valid] = cut.transpose(1, 0, 2)
    return epochs, valid


def exclude_overlap(onsets: Any, calibration: Any, seconds: float = 1.0) -> NDArray[np.bool_]:
    """Tell which events to keep so that no epoch shares signal with a calibration epoch.

    Times of (k,) or (devices, k) events, and of calibration on as many clocks, are in seconds; events less
    than ``seconds`` from a calibration event, on any clock, go.
    """
    events, chosen = (np.atleast_2d(np.asarray(times, dtype=np.float64)) for times in (onsets, calibration))
    if len(events) != len(chosen):
        raise ValueError(f"Events are timed on {len(events)} clocks and calibration on {len(chosen)}.")
    close = np.abs(events[:, :, None] - chosen[:, None]) < seconds
    return np.asarray(~close.any(axis=(0, 2)))


def zscore_channels(trials: Trials) -> Trials:
    """Remove each trial's mean from each channel and divide by its standard deviation.

    No less than a millionth of a microvolt divides: a constant channel becomes zero.
    """
    data = trials.data.astype(np.float64)
    centred = data - data.mean(axis=-1, keepdims=True)
    scaled = centred / np.maximum(data.std(axis=-1, keepdims=True), 1e-12)
    return replace(trials, data=scaled.astype(trials.data.dtype))


def crop(trials: Trials, start: int, stop: int) -> Trials:
    """Keep samples ``start`` to ``stop`` - 1 of each trial.

    Examples
    --------
    >>> import numpy as np
    >>> trials = crop(Trials(np.zeros((1, 1, 710)), ["Oz"], 250.0, tmin=-0.5), 160, 660)
    >>> trials.data.shape, trials.tmin
    ((1, 1, 500), 0.14)
    """
    samples = trials.data.shape[2]
    if not 0 <= start < stop <= samples:
        raise ValueError(f"Samples {start} to {stop} were asked for, but trials have {samples}.")
    # Rounded to the nanosecond, so that crops of equal start have equal times.
    tmin = round(trials.tmin + start / trials.sfreq, 9)
    return replace(trials, data=trials.data[:, :, start:stop], tmin=tmin)
