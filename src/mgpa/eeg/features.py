"""Fixed features, with the interface of encoders: means over time bins, and power in frequency bands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .trials import as_trials

# Sample times are sums of rounded numbers; samples this close to an edge count as on the edge.
TIME_TOLERANCE = 1e-8
MICROVOLTS = 1e6
# Number of trials per block, which limits the memory for spectra.
BLOCK = 512
RHYTHMS = ((1.0, 4.0), (4.0, 8.0), (8.0, 13.0), (13.0, 30.0), (30.0, 45.0))
NAMES = dict(zip(RHYTHMS, ("delta", "theta", "alpha", "beta", "gamma"), strict=True))


@dataclass(frozen=True)
class TemporalBins:
    """Mean signal of each channel in consecutive bins of time.

    The defaults are those of the paper for N170: fifteen bins of 50 ms after the event, 240 features for 16
    channels, in µV. All bins of the first channel come first, then those of the second.

    Parameters
    ----------
    start, stop : float
        Seconds after the event; the bins fill this interval without its end.
    width : float
        Width of a bin in seconds.
    """

    start: float = 0.0
    stop: float = 0.75
    width: float = 0.05

    def __post_init__(self) -> None:
        _require_filled(self.start, self.stop, self.width, "s")

    @property
    def n_bins(self) -> int:
        """Number of bins per channel."""
        return round((self.stop - self.start) / self.width)

    @property
    def identity(self) -> dict[str, Any]:
        """The settings of the features."""
        return {"name": "temporal bins", **asdict(self), "unit": "uV", "layout": "channel-major"}

    def feature_names(self, channels: Sequence[str]) -> list[str]:
        """Return the name of each feature, such as "Cz 0.050 s"."""
        starts = self.start + np.arange(self.n_bins) * self.width
        return [f"{channel} {start:.3f} s" for channel in channels for start in starts]

    def embed(self, trials: Any, *, verbose: bool = False) -> NDArray[np.float32]:
        """Return the features, (n, channels × bins), of trials or MNE epochs."""
        trials = as_trials(trials)
        times, step = trials.times, 1 / trials.sfreq
        if times[0] > self.start + TIME_TOLERANCE or times[-1] + step < self.stop - TIME_TOLERANCE:
            raise ValueError(
                f"The trials last from {times[0]:g} to {times[-1]:g} s; the bins need {self.start:g} to "
                f"{self.stop:g} s."
            )
        edges = self.start + np.arange(self.n_bins + 1) * self.width - TIME_TOLERANCE
        bounds = np.searchsorted(times, edges)
        if (np.diff(bounds) == 0).any():
            raise ValueError(
                f"Bins of {self.width:g} s are narrower than a sample at {trials.sfreq:g} Hz; widen them."
            )
        bins = [trials.data[:, :, lo:hi].mean(axis=2, dtype=np.float64) for lo, hi in pairwise(bounds)]
        features = np.stack(bins, axis=2).reshape(len(trials), len(trials.channels) * self.n_bins)
        return (features * MICROVOLTS).astype(np.float32)


@dataclass(frozen=True)
class BandPower:
    """Logarithm of each channel's power in bands of frequency, by Welch's method, in µV².

    Parameters
    ----------
    bands : sequence of (low, high)
        Bands in Hz; the upper edge is excluded. The defaults are the usual rhythms: delta 1–4, theta 4–8,
        alpha 8–13, beta 13–30 and gamma 30–45.
    segment : float
        Length of Welch's segments in seconds (Hann window, half overlapping); the frequency resolution is 1 /
        ``segment``.
    floor : float
        Lower limit in µV², which keeps the logarithm finite if a channel is zero, such as the reference. The
        default is far below the noise of an amplifier.

    Examples
    --------
    >>> import numpy as np
    >>> from mgpa.eeg.trials import Trials
    >>> sine = 10e-6 * np.sin(2 * np.pi * 10 * np.arange(500) / 250)  # of power 50 µV²
    >>> log = BandPower([(8, 13), (13, 30)]).embed(Trials(sine[None, None], ["Oz"], 250.0))
    >>> np.exp(log).round(1).tolist()
    [[50.0, 0.0]]
    """

    bands: tuple[tuple[float, float], ...] = RHYTHMS
    segment: float = 1.0
    floor: float = 1e-4

    def __post_init__(self) -> None:
        bands = tuple((float(low), float(high)) for low, high in self.bands)
        object.__setattr__(self, "bands", bands)
        if not bands or not all(0 <= low < high for low, high in bands):
            raise ValueError(f"bands are {bands}; expected pairs (low, high) in Hz with 0 <= low < high.")
        if not self.segment > 0 or not self.floor > 0:
            raise ValueError(f"segment is {self.segment}, floor {self.floor}; both must be positive.")

    @property
    def identity(self) -> dict[str, Any]:
        """The settings of the features."""
        return {
            "name": "band power",
            "bands": [list(band) for band in self.bands],
            "log": True,
            "floor": self.floor,
            "segment": self.segment,
            "unit": "uV^2",
            "layout": "channel-major",
        }

    def feature_names(self, channels: Sequence[str]) -> list[str]:
        """Return the name of each feature, such as "Cz alpha" or "Cz 8-12 Hz"."""
        bands = [NAMES.get(band, f"{band[0]:g}-{band[1]:g} Hz") for band in self.bands]
        return [f"{channel} {band}" for channel in channels for band in bands]

    def embed(self, trials: Any, *, verbose: bool = False) -> NDArray[np.float32]:
        """Return the features, (n, channels × bands), of trials or MNE epochs."""
        from scipy.signal import welch

        trials = as_trials(trials)
        samples = round(self.segment * trials.sfreq)
        if samples > trials.data.shape[2]:
            raise ValueError(
                f"Segments of {self.segment:g} s are longer than the trials, of "
                f"{trials.data.shape[2] / trials.sfreq:g} s; take a shorter segment=."
            )
        _require_below_nyquist(max(high for _, high in self.bands), trials.sfreq)
        frequency = np.fft.rfftfreq(samples, 1 / trials.sfreq)
        members = [(frequency >= low) & (frequency < high) for low, high in self.bands]
        for band, inside in zip(self.bands, members, strict=True):
            if not inside.any():
                raise ValueError(
                    f"No frequency in the band {band}; frequencies lie {frequency[1]:g} Hz apart. Take a "
                    "longer segment or a wider band."
                )
        power = np.empty((len(trials), len(trials.channels), len(self.bands)))
        for i in range(0, len(trials), BLOCK):
            signal = trials.data[i : i + BLOCK].astype(np.float64) * MICROVOLTS
            _, density = welch(signal, trials.sfreq, nperseg=samples, axis=2)
            for k, inside in enumerate(members):
                power[i : i + BLOCK, :, k] = density[:, :, inside].sum(axis=2) * frequency[1]
        power = np.log(power + self.floor)
        return power.reshape(len(power), power.shape[1] * power.shape[2]).astype(np.float32)


@dataclass(frozen=True)
class WindowedPower:
    """Log power in narrow bands, window by window: one token per window.

    Parameters
    ----------
    window, step : float
        Length of a Hann window, and the distance between windows, in seconds.
    low, high, width : float
        The bands in Hz: from ``low`` to ``high``, each ``width`` wide. Windows are padded with zeros until
        every band contains a frequency.
    floor : float
        As for :class:`BandPower`, in µV².
    """

    window: float = 0.5
    step: float = 0.25
    low: float = 4.0
    high: float = 36.0
    width: float = 2.0
    floor: float = 1e-4

    def __post_init__(self) -> None:
        if not all(value > 0 for value in (self.window, self.step, self.width, self.floor)):
            raise ValueError(f"{self}: window, step, width and floor must be positive.")
        _require_filled(max(self.low, 0.0), self.high, self.width, "Hz")

    @property
    def identity(self) -> dict[str, Any]:
        """The settings of the features."""
        return {"name": "windowed power", **asdict(self), "log": True, "layout": "channel-major"}

    def embed(self, trials: Any, *, verbose: bool = False) -> NDArray[np.float32]:
        """Return the features, (n, windows, channels × bands), of trials or MNE epochs."""
        trials = as_trials(trials)
        length, step = round(self.window * trials.sfreq), round(self.step * trials.sfreq)
        if step < 1 or not 2 <= length <= trials.data.shape[2]:
            raise ValueError(
                f"Windows of {self.window:g} s, {self.step:g} s apart, do not fit trials of "
                f"{trials.data.shape[2] / trials.sfreq:g} s at {trials.sfreq:g} Hz."
            )
        _require_below_nyquist(self.high, trials.sfreq)
        taper = np.hanning(length + 2)[1:-1]
        n_fft = max(length, math.ceil(trials.sfreq / self.width))
        frequency = np.fft.rfftfreq(n_fft, 1 / trials.sfreq)
        band = np.floor((frequency - self.low) / self.width + TIME_TOLERANCE).astype(int)
        starts = range(0, trials.data.shape[2] - length + 1, step)
        n_bands = round((self.high - self.low) / self.width)
        power = np.empty((len(trials), len(starts), len(trials.channels), n_bands))
        # Power density, so that results do not depend on window length or padding.
        unit = 2 / (trials.sfreq * (taper**2).sum()) * frequency[1]
        for i in range(0, len(trials), BLOCK):
            signal = trials.data[i : i + BLOCK].astype(np.float64) * MICROVOLTS
            for t, start in enumerate(starts):
                part = signal[:, :, start : start + length]
                part = (part - part.mean(axis=2, keepdims=True)) * taper
                spectrum = np.abs(np.fft.rfft(part, n_fft, axis=2)) ** 2 * unit
                for k in range(n_bands):
                    power[i : i + BLOCK, t, :, k] = spectrum[:, :, band == k].sum(axis=2)
        log = np.log(power + self.floor).astype(np.float32)
        return log.reshape(*log.shape[:2], len(trials.channels) * n_bands)


def _require_filled(start: float, stop: float, width: float, unit: str) -> None:
    """Raise unless bins of this width fill a span."""
    n = round((stop - start) / width) if width > 0 else 0
    if n < 1 or not math.isclose(n * width, stop - start, abs_tol=1e-6):
        raise ValueError(
            f"Bins of {width:g} {unit} do not fill the span from {start:g} to {stop:g} {unit}; take a width "
            "that divides it."
        )


def _require_below_nyquist(top: float, sfreq: float) -> None:
    if top > sfreq / 2:
        raise ValueError(
            f"bands reach {top:g} Hz; at {sfreq:g} Hz signals end at {sfreq / 2:g} Hz. Pass lower bands."
        )
