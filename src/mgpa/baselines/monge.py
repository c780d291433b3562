"""Convolutional Monge mapping normalisation: filter every source's spectra to their common barycentre."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
import scipy.signal

from .._common.parameters import Constraint, nothing, number, whole
from ._signals import Floats, Parts, SignalBaseline

# Without clipping, a larger gain is refused: it lifts rounding or a filter's stop-band, not a spectrum.
MAX_GAIN = 1e6


def power_spectra(X: Floats, size: int) -> Floats:
    """Return Welch spectra (channels, size // 2 + 1), averaged over trials; no segment spans two trials."""
    return np.asarray(scipy.signal.welch(X, nperseg=size, axis=-1)[1].mean(axis=0))


def zero_phase_filter(gains: Floats, size: int) -> Floats:
    """Return real filters, symmetric about their middle tap, with these gains at the frequencies k/size.

    The tap of an even size at -size/2 is shared with +size/2, which changes none of these gains; otherwise
    the filter would delay the signal by a sample.
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

    Reference: Gnassounou, Flamary & Gramfort, NeurIPS 2023. Written here: skada 0.6 does not have it.

    Needs source labels, also at application; no pairs, no task. All sources count alike in the barycentre.

    What it cannot do: equalise anything but power spectra of single channels. A difference in spectra between
    groups of people is removed like one between amplifiers. Trials are filtered one by one and taken as zero
    outside: the first and last F/2 samples are damped, and offsets ring there, so high-pass first.

    Parameters
    ----------
    filter_size : int
        F, length in samples of the filters and of the Welch segments; at most the trial length. The frequency
        resolution is fs/F.
    clip : tuple (low, high) or None
        Limits of the amplitude gains √(p̄/p); they keep stop-bands from being blown up. None is the published
        method, unclipped; gains above 1e6 are then an error.

    Attributes
    ----------
    barycenter_ : (channels, F // 2 + 1) array
        p̄ = (Σ √p_k / K)², per unit sampling rate.
    filters_ : dict of (channels, F or F + 1) arrays
        Zero-phase filters of every source.
    """

    barycenter_: Floats

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "filter_size": whole(2),
        "clip": Constraint("(low, high) with 0 <= low <= 1 <= high", _is_clip) | nothing,
    }

    def __init__(self, *, filter_size: int = 128, clip: tuple[float, float] | None = (0.25, 4.0)) -> None:
        self.filter_size = filter_size
        self.clip = clip

    def _check(self, X: Any) -> Floats:
        checked = super()._check(X)
        if checked.shape[2] < self.filter_size:
            raise ValueError(
                f"X has trials of {checked.shape[2]} samples, shorter than filter_size={self.filter_size}; "
                "use longer trials or a smaller filter_size."
            )
        return checked

    def _learn(self, parts: Parts, y: Any, codes: Any) -> dict[Any, Floats]:
        spectra = {label: power_spectra(X, self.filter_size) for label, X in parts.items()}
        target = np.mean(np.sqrt(list(spectra.values())), axis=0) ** 2
        filters = {label: self._filter(label, target, p) for label, p in spectra.items()}
        self.barycenter_ = target
        return filters

    def _filter(self, label: Any, target: Floats, spectra: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.where((spectra == 0) & (target == 0), 1.0, np.sqrt(target / spectra))
        if self.clip is None and gains.max() > MAX_GAIN:
            channel, k = np.unravel_index(gains.argmax(), gains.shape)
            raise ValueError(
                f"Source {label!r} has almost no power in channel {channel} at {k}/{self.filter_size} of the "
                f"sampling rate (gain {gains.max():.1e}). Drop the channel if it is flat, or pass "
                "clip=(0.25, 4)."
            )
        if self.clip is not None:
            low, high = self.clip
            if ((gains <= low) | (gains >= high)).all():
                warnings.warn(
                    f"Every gain of source {label!r} was clipped to {self.clip}. Does it have the units of "
                    "the other sources? Convert it, or widen clip.",
                    stacklevel=4,
                )
            gains = np.clip(gains, low, high)
        return zero_phase_filter(gains, self.filter_size)

    def _apply(self, X: Floats, learned: Floats) -> Floats:
        return np.asarray(scipy.signal.oaconvolve(X, learned[None], mode="same", axes=-1))
