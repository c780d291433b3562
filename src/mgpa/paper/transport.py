"""Virtual contrasts for unpaired data: trials transformed toward the other source.

Two sources differ even before the stimulus: in the spectrum of each channel and in the covariance of
channels. A trial is moved toward the other source by the ratio of the spectra (spectral), by whitening with
the covariance of its own source and colouring with that of the other (spatial), or by both steps (combined).
The difference between a trial and its virtual view replaces a measured contrast, as in the paper's recorded
SSVEP study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..eeg.trials import Trials
from ..labels import encode_source

Floats = NDArray[np.float64]

N_FFT = 1024
POWER_FLOOR = 1e-8
SMOOTHING = 2.0  # bins
SHRINKAGE = 0.1
GAIN_RANGE = (0.25, 4.0)
LOWEST = 0.5  # Hz; half a second of signal cannot measure slower drift
EIGENVALUE_FLOOR = 1e-6
# The lower limit of power, and all numbers in a Transport, are for signals in microvolts.
MICROVOLTS = 1e6
# Number of trials per block, which bounds the memory for spectra.
BLOCK = 512


@dataclass(frozen=True, eq=False)
class Transport:
    """The prestimulus difference between two sources, which can move trials of one toward the other.

    :func:`fit_transport` creates it for two ``sources`` (sorted labels). Each method moves each trial from
    its own ``source`` toward the other. Columns are unchanged: ``source`` still names the recording source of
    a trial. Means over time and the dtype are kept. ``log_power`` (2, channels, f) is the smoothed logarithm
    of mean power at ``frequencies`` in Hz, for signals in microvolts; ``covariance`` (2, channels, channels)
    is shrunk toward a multiple of the identity.
    """

    sources: NDArray[Any]
    channels: tuple[str, ...]
    sfreq: float
    frequencies: Floats
    log_power: Floats
    covariance: Floats

    def gain(self, source: Any, strength: float = 1.0) -> Floats:
        """Return the factors, (channels, f), for the amplitudes of a source at ``frequencies``."""
        code = self._code(source)
        half = 0.5 * (self.log_power[1 - code] - self.log_power[code])
        # Clip after scaling by the strength, so that weak views are clipped less often than strong ones.
        gain: Floats = np.clip(np.exp(strength * half), *GAIN_RANGE)
        return gain

    def mixing(self, source: Any, strength: float = 1.0, *, variances: bool = True) -> Floats:
        """Return the matrix, (channels, channels), to apply to the signals of a source.

        At ``strength`` 1 it replaces the covariance of the source by that of the other. ``variances=False``
        is for signals after the spectral step, which has moved the variances: only correlations change.
        """
        code = self._code(source)
        here, other = self.covariance[code], self.covariance[1 - code]
        if not variances:
            sd_here, sd_other = np.sqrt(np.diag(here)), np.sqrt(np.diag(other))
            reached = sd_here ** (1 - strength) * sd_other**strength
            here = here * np.outer(reached / sd_here, reached / sd_here)
            other = other * np.outer(reached / sd_other, reached / sd_other)
        mixing = _power(other, 0.5) @ _power(here, -0.5)
        return (1 - strength) * np.eye(len(here)) + strength * mixing

    def spectral(self, trials: Trials, strength: float = 1.0) -> Trials:
        """Give each channel the spectrum of the other source; gains are limited to [1/4, 4]."""
        n = trials.data.shape[2]
        frequencies = np.fft.rfftfreq(n, 1 / trials.sfreq)

        def move(source: Any) -> Any:
            gains = self.gain(source, strength)
            gain = np.stack([np.interp(frequencies, self.frequencies, g) for g in gains])
            gain[:, frequencies < LOWEST] = 1.0
            return lambda signal: np.fft.irfft(np.fft.rfft(signal, axis=2) * gain, n, axis=2)

        return self._moved(trials, strength, move)

    def spatial(self, trials: Trials, strength: float = 1.0, *, variances: bool = True) -> Trials:
        """Give the channels the covariance of the other source; see :meth:`mixing`."""

        def move(source: Any) -> Any:
            mixing = self.mixing(source, strength, variances=variances)
            return lambda signal: mixing @ signal

        return self._moved(trials, strength, move)

    def combined(self, trials: Trials, strength: float = 1.0, *, power_once: bool = True) -> Trials:
        """Move the spectrum, then the covariance.

        Each step on its own changes amplitudes by the full ratio between the sources. With ``power_once``,
        only the spectral step does so, and the spatial step changes only correlations. False applies the
        ratio twice, as in the paper.
        """
        return self.spatial(self.spectral(trials, strength), strength, variances=not power_once)

    def _moved(self, trials: Trials, strength: float, move: Any) -> Trials:
        """Apply ``move(source)`` to the centred signals of each source; then restore the means."""
        if not 0 <= strength <= 1:
            raise ValueError(f"strength is {strength!r}; expected a number from 0 to 1.")
        if trials.channels != self.channels or trials.sfreq != self.sfreq:
            raise ValueError(
                f"The trials have channels {', '.join(trials.channels)} at {trials.sfreq:g} Hz; the "
                f"transport was fitted on {', '.join(self.channels)} at {self.sfreq:g} Hz."
            )
        source = trials.columns["source"]
        data = np.empty_like(trials.data)
        for label in np.unique(source):
            rows, apply = np.flatnonzero(source == label), move(label)
            for i in range(0, len(rows), BLOCK):
                signal = trials.data[rows[i : i + BLOCK]].astype(np.float64)
                mean = signal.mean(axis=2, keepdims=True)
                data[rows[i : i + BLOCK]] = apply(signal - mean) + mean
        return replace(trials, data=data)

    def _code(self, source: Any) -> int:
        at = np.flatnonzero(self.sources == source)
        if not len(at):
            names = " and ".join(map(str, self.sources))
            raise ValueError(f"No source {source!s} in this transport, which is between {names}.")
        return int(at[0])


def fit_transport(trials: Trials) -> Transport:
    """Estimate how two sources differ before the stimulus.

    If the trials have a role column, all must be of FIT participants. A few thousand trials are enough
    (:func:`calibration_subset`).
    """
    from scipy.ndimage import gaussian_filter1d

    sources, codes = encode_source(trials.columns.get("source", []), len(trials))
    if len(sources) != 2:
        names = ", ".join(map(str, sources))
        raise ValueError(f"The trials have {len(sources)} sources ({names}); a transport needs exactly two.")
    others = sorted(set(np.unique(trials.columns.get("role", ["FIT"])).tolist()) - {"FIT"})
    if others:
        raise ValueError(
            f"The trials have {', '.join(others)} participants, but a transport is fitted on FIT only: "
            "trials.take(trials.columns['role'] == 'FIT')."
        )
    n = int((trials.times < -1e-9).sum())
    if n < 2:
        raise ValueError(
            f"Trials from {trials.tmin:g} s on have {n} prestimulus samples; expected 2 or more."
        )
    n_fft = max(N_FFT, 1 << (n - 1).bit_length())
    power, covariance = [], []
    for code in range(2):
        signal = trials.data[codes == code, :, :n].astype(np.float64) * MICROVOLTS
        signal -= signal.mean(axis=2, keepdims=True)
        power.append(_mean_power(signal, n_fft))
        C = np.atleast_2d(np.cov(signal.transpose(1, 0, 2).reshape(signal.shape[1], len(signal) * n)))
        covariance.append((1 - SHRINKAGE) * C + SHRINKAGE * np.trace(C) / len(C) * np.eye(len(C)))
    log_power = gaussian_filter1d(np.log(np.stack(power) + POWER_FLOOR), SMOOTHING, axis=2)
    frequencies = np.fft.rfftfreq(n_fft, 1 / trials.sfreq).astype(np.float64)
    return Transport(sources, trials.channels, trials.sfreq, frequencies, log_power, np.stack(covariance))


def _mean_power(signal: Floats, n_fft: int) -> Floats:
    window = np.hanning(signal.shape[2])
    total = np.zeros((signal.shape[1], n_fft // 2 + 1))
    for i in range(0, len(signal), BLOCK):
        total += (np.abs(np.fft.rfft(signal[i : i + BLOCK] * window, n_fft, axis=2)) ** 2).sum(axis=0)
    return total / len(signal)


def _power(C: Floats, exponent: float) -> Floats:
    """Return a power of a symmetric matrix, with small eigenvalues raised to a share of the largest."""
    values, vectors = np.linalg.eigh(C)
    values = np.maximum(values, EIGENVALUE_FLOOR * values[-1])
    root: Floats = (vectors * values**exponent) @ vectors.T
    return root


def virtual_views(
    trials: Trials, transport: Transport, strengths: Sequence[float] = (0.5, 1.0), *, power_once: bool = True
) -> list[tuple[str, Trials]]:
    """Return all virtual views of the trials with their names.

    The views are spectral, spatial and combined, each at all strengths; "spectral 0.5" is the first.
    ``power_once`` is passed to :meth:`Transport.combined`; the paper uses False.
    """
    views = [(f"spectral {a:g}", transport.spectral(trials, a)) for a in strengths]
    views += [(f"spatial {a:g}", transport.spatial(trials, a)) for a in strengths]
    views += [(f"combined {a:g}", transport.combined(trials, a, power_once=power_once)) for a in strengths]
    return views


def calibration_subset(participant: Any, source: Any, n: int, random_state: int) -> NDArray[np.int64]:
    """Return at most n rows, in order, balanced over participants and sources.

    Each combination of participant and source gives n / groups rows, rounded down, or all its rows. The rest
    are drawn from the remaining rows.
    """
    _, people = encode_source(participant, len(participant), "participant")
    sources, codes = encode_source(source, len(people))
    if n < 1:
        raise ValueError(f"n is {n}; expected at least 1.")
    if n >= len(people):
        return np.arange(len(people))
    rng = np.random.default_rng(random_state)
    group = people * len(sources) + codes
    groups = np.unique(group)
    share = n // len(groups)
    parts = []
    for one in groups:
        rows = np.flatnonzero(group == one)
        parts.append(rng.choice(rows, min(share, len(rows)), replace=False))
    chosen = np.concatenate(parts)
    rest = np.setdiff1d(np.arange(len(people)), chosen)
    return np.sort(np.concatenate([chosen, rng.choice(rest, n - len(chosen), replace=False)]))
