"""Convolutional Monge mapping normalisation: filter every source's spectra to their common barycentre."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
import scipy.signal

from .._common.parameters import Constraint, nothing, number, whole
from ._signals import Floats, GroupedSignals, SignalBaseline

# Without clipping, a larger gain is refused: it lifts rounding or a filter's stop-band, not a spectrum.
MAX_GAIN = 1e6


def power_spectra(X: Floats, weight: Floats, size: int) -> Floats:
    """Return Welch spectra (channels, size // 2 + 1), averaged over trials; no segment spans two trials."""
    _, spectra = scipy.signal.welch(X, nperseg=size, axis=-1)
    return np.asarray(np.tensordot(weight / weight.sum(), spectra, axes=1))


def barycentre(spectra: list[Floats]) -> Floats:
    """Return the Wasserstein barycentre of stationary Gaussian signals, p̄ = (Σ √p_k / K)²."""
    return np.asarray(np.mean(np.sqrt(spectra), axis=0) ** 2)


def monge_gains(target: Floats, spectra: Floats) -> Floats:
    """Return the amplitude gains √(p̄/p); 1 where neither has power, infinite where only p has none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((spectra == 0) & (target == 0), 1.0, np.sqrt(target / spectra))


def zero_phase_filter(gains: Floats, size: int) -> Floats:
    """Return real filters, symmetric about their middle tap, with these gains at the frequencies k/size.

    An even size has one tap without a partner, at -size/2. It is shared with +size/2, which changes none of
    these gains; left alone, it and the "same" convolution would delay the signal by a sample.
    """
    taps = np.fft.fftshift(np.fft.irfft(gains, size, axis=-1), axes=-1)
    if size % 2 == 0:
        taps = np.concatenate([taps, taps[..., :1]], axis=-1)
        taps[..., [0, -1]] /= 2
    return np.asarray((taps + taps[..., ::-1]) / 2)


def _is_clip(value: Any) -> bool:
    pair = isinstance(value, (tuple, list)) and len(value) == 2
    return pair and number(0, 1).accepts(value[0]) and number(1).accepts(value[1])


class CMMN(SignalBaseline):
    """Filter every source, channel by channel, so that its spectra become those of the sources' barycentre.

    Needs source labels; no pairs, no task labels. The source is needed at application: a trial is filtered
    with its own source's filters, and a new source needs :meth:`adapt`, which maps it to the stored
    barycentre.

    What it cannot do: equalise anything but power spectra of single channels; correlations between channels,
    phases and transients stay. A difference in spectra between groups of people is removed like one between
    amplifiers.

    Parameters
    ----------
    filter_size : int
        F, length in samples of the filters and of the Welch segments; at most the trial length. It sets the
        frequency resolution, fs/F: 128 at 100 Hz resolves 0.78 Hz, so scale it with the sampling rate.
    clip : tuple (low, high) or None
        Limits of the amplitude gains √(p̄/p). The default is ours: it keeps stop-bands, where p is nearly
        zero, from being blown up, and it also limits how large a difference of scale is evened out. None is
        the published method, unclipped; gains above 1e6 are then an error.

    Attributes
    ----------
    barycenter_ : (channels, F // 2 + 1) array
        p̄, per unit sampling rate.
    filters_ : dict of (channels, F or F + 1) arrays
        Zero-phase filters of every source: an odd number of taps, symmetric about the middle.
    sources_ : array
        Source labels, fitted and adapted.
    n_channels_in_ : int
        Number of channels.

    Notes
    -----
    The barycentre weights the sources equally, however many trials each has. Trials are filtered one by one
    and taken as zero outside; the first and last F/2 samples are therefore damped, and offsets ring there:
    high-pass first. The gains hold at multiples of fs/F.

    References
    ----------
    Gnassounou, Flamary & Gramfort, "Convolution Monge mapping normalization for learning on sleep data",
    NeurIPS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 2, 400))
    >>> X[20:] *= 3
    >>> source = np.repeat(["A", "B"], 20)
    >>> Y = CMMN(filter_size=32).fit_transform(X, source=source)
    >>> [round(float(Y[source == s].std()), 1) for s in ("A", "B")]
    [2.0, 2.0]
    """

    barycenter_: Floats
    filters_: dict[Any, Floats]

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "filter_size": whole(2),
        "clip": Constraint("(low, high) with 0 <= low <= 1 <= high", _is_clip) | nothing,
    }

    def __init__(self, *, filter_size: int = 128, clip: tuple[float, float] | None = (0.25, 4.0)) -> None:
        self.filter_size = filter_size
        self.clip = clip

    def _check(self, X: Any, n_channels: int | None = None) -> Floats:
        checked: Floats = super()._check(X, n_channels)
        size = self.filter_size
        if checked.shape[2] < size:
            raise ValueError(
                f"X has trials of {checked.shape[2]} samples, shorter than filter_size={size}; "
                "use longer trials or a smaller filter_size."
            )
        return checked

    def _spectra(self, trials: GroupedSignals) -> dict[Any, Floats]:
        return {label: power_spectra(X, w, self.filter_size) for label, X, w in trials.by_source()}

    def _filter(self, label: Any, target: Floats, spectra: Floats) -> Floats:
        gains = monge_gains(target, spectra)
        if self.clip is None and gains.max() > MAX_GAIN:
            channel, k = np.unravel_index(gains.argmax(), gains.shape)
            raise ValueError(
                f"Source {label!r} has almost no power in channel {channel} at {k}/{self.filter_size} of the "
                f"sampling rate, where the barycentre has some (gain {gains.max():.1e}). Drop the channel if "
                "it is flat, or pass clip=(0.25, 4)."
            )
        if self.clip is not None:
            low, high = self.clip
            if ((gains <= low) | (gains >= high)).all():
                warnings.warn(
                    f"Every gain of source {label!r} was clipped to {self.clip}. Are its units those of the "
                    "other sources? Convert it, or widen clip.",
                    stacklevel=5,
                )
            gains = np.clip(gains, low, high)
        return zero_phase_filter(gains, self.filter_size)

    def _fit(self, trials: GroupedSignals, y: Any) -> None:
        spectra = self._spectra(trials)
        target = barycentre(list(spectra.values()))
        self.filters_ = {label: self._filter(label, target, p) for label, p in spectra.items()}
        self.barycenter_ = target

    def _adapt(self, trials: GroupedSignals) -> None:
        new = self._spectra(trials)
        self.filters_ = self.filters_ | {
            label: self._filter(label, self.barycenter_, p) for label, p in new.items()
        }

    def _apply(self, X: Floats, label: Any) -> Floats:
        return np.asarray(scipy.signal.oaconvolve(X, self.filters_[label][None], mode="same", axes=-1))
