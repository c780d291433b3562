"""Who is measured and with what: people with brains of their own, and devices that leave a signature.

Everything drawn for a person comes from the seed and the number in that person's id, so data do not change
with how many others are simulated, or in which order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

GENDERS = ("female", "male")
ELECTRODES = ("dry", "wet")


@dataclass(frozen=True)
class Person:
    """A simulated participant: anatomy, brain activity, and how strongly and when it responds.

    ``group`` (0 or 1, in turn) is the device this person mostly uses, or uses first. Sources lie ``shift``
    metres from where they are in others, turned by the rotation vector ``turn``. ``background`` and ``alpha``
    are in ampere metres (root mean square), ``alpha_frequency`` in Hz; responses are ``gain`` times as strong
    and ``latency`` seconds later than in the average person.
    """

    id: str
    random_state: int
    age: int
    gender: str
    group: int
    shift: tuple[float, ...]
    turn: tuple[float, ...]
    background: float
    alpha: float
    alpha_frequency: float
    gain: float
    latency: float

    @property
    def first_electrode(self) -> str:
        """The electrode of the first session, where there are a dry and a wet one."""
        return ELECTRODES[self.group]

    def rng(self, *purpose: int) -> np.random.Generator:
        """Return random numbers of this person's own, the same ones for the same purpose."""
        return _rng(self.random_state, self.id, purpose)


def draw_people(ids: Sequence[str], random_state: int = 0) -> list[Person]:
    """Draw people who differ in anatomy, rhythms, responses and noise; each id has a number of its own."""
    return [_draw(name, random_state) for name in ids]


def _draw(name: str, random_state: int) -> Person:
    rng = _rng(random_state, name, ())
    number = _number(name)
    shift, turn = rng.normal(0.0, 0.004, 3), rng.normal(0.0, 0.15, 3)
    spread = rng.normal(size=5)
    return Person(
        id=name,
        random_state=random_state,
        age=int(rng.integers(18, 36)),
        gender=GENDERS[(number - 1) // 2 % 2],
        group=(number - 1) % 2,
        shift=tuple(shift.tolist()),
        turn=tuple(turn.tolist()),
        background=25e-9 * float(np.exp(0.2 * spread[0])),
        alpha=18e-9 * float(np.exp(0.4 * spread[1])),
        alpha_frequency=10.0 + 0.7 * float(spread[2]),
        gain=float(np.exp(0.3 * spread[3])),
        latency=0.008 * float(spread[4]),
    )


def _rng(random_state: int, name: str, purpose: tuple[int, ...]) -> np.random.Generator:
    seeds = np.random.SeedSequence(random_state, spawn_key=(_number(name), *purpose))
    return np.random.default_rng(seeds)


def _number(name: str) -> int:
    return int(re.findall(r"\d+", name)[0])


@dataclass(frozen=True)
class Device:
    """An amplifier with its electrodes, and what it does to the potentials they touch.

    ``reference`` is an electrode, "average" or "none". ``white`` and ``pink`` are the noise of the amplifier,
    and of each electrode (1/f), in volts (root mean square). Channels differ in gain by ``gain_spread``
    (standard deviation of its logarithm), and may lose a share of the signal up to ``attenuation``. It starts
    ``clock_offset`` seconds after the sources, with a clock that is relatively ``clock_drift`` faster.
    :meth:`worn` draws ``gains``.
    """

    name: str
    channels: tuple[str, ...]
    sfreq: float
    reference: str = "none"
    white: float = 0.0
    pink: float = 0.0
    gain_spread: float = 0.0
    attenuation: float = 0.0
    highpass: float | None = None
    lowpass: float | None = None
    clock_offset: float = 0.0
    clock_drift: float = 0.0
    gains: tuple[float, ...] | None = None

    @property
    def electrodes(self) -> tuple[str, ...]:
        """Channels, and the reference if it is none of them: the rows of the lead field it needs."""
        extra = self.reference not in ("average", "none", *self.channels)
        return (*self.channels, self.reference) if extra else self.channels

    def worn(self, rng: np.random.Generator) -> Self:
        """Return the device as it sits on a person: with a gain of its own for every channel."""
        gains = np.exp(self.gain_spread * rng.normal(size=len(self.channels)))
        gains *= 1 - self.attenuation * rng.random(len(self.channels))
        return replace(self, gains=tuple(gains.tolist()))

    def times(self, last: float) -> Array:
        """Return when it takes its samples, in seconds of the sources, whose last one is at ``last``."""
        rate = self.sfreq * (1 + self.clock_drift)
        # A sample that rounding puts just beyond the end is still there.
        count = int(np.floor((last - self.clock_offset) * rate + 1e-6)) + 1
        return np.asarray(self.clock_offset + np.arange(max(count, 0)) / rate)


def record(sources: Any, leadfield: Any, device: Device, rng: np.random.Generator, *, sfreq: float) -> Array:
    """Record sources with a device: (channels, samples), in volts, on the device's clock.

    In turn: potentials, noise of the electrodes, reference, gains, filters, sampling, noise of the amplifier.
    ``sources`` (k, samples) are dipole moments in ampere metres at ``sfreq``, not below the device's rate;
    ``leadfield`` (electrodes, k) is that of ``device.electrodes``, free of a reference.
    """
    from scipy.interpolate import CubicSpline
    from scipy.signal import butter, sosfilt

    moments = np.asarray(sources, float)
    volts = np.asarray(leadfield, float) @ moments
    if device.pink:
        volts += device.pink * pink_noise(volts.shape, sfreq, rng)
    if device.reference == "average":
        volts = volts - volts.mean(0)
    elif device.reference != "none":
        volts = volts[: len(device.channels)] - volts[device.electrodes.index(device.reference)]
    if device.gains is not None:
        volts = volts * np.array(device.gains)[:, None]
    # What analogue filters would pass: second-order Butterworth, once, so with their delay.
    for corner, kind in ((device.highpass, "highpass"), (device.lowpass, "lowpass")):
        if corner is not None:
            volts = np.asarray(sosfilt(butter(2, corner, kind, fs=sfreq, output="sos"), volts, axis=-1))
    at = device.times((moments.shape[1] - 1) / sfreq) * sfreq
    if np.allclose(at, np.round(at), rtol=0, atol=1e-6):
        volts = volts[:, np.round(at).astype(int)]
    else:
        volts = np.asarray(CubicSpline(np.arange(volts.shape[1]), volts, axis=1)(at))
    return np.asarray(volts + device.white * rng.normal(size=volts.shape))


def pink_noise(shape: tuple[int, ...], sfreq: float, rng: np.random.Generator) -> Array:
    """Return noise of unit variance whose power falls as 1/f along the last axis, flat below half a hertz."""
    from scipy.fft import irfft, next_fast_len, rfft, rfftfreq

    # A long stretch whose length factors badly would take minutes to transform.
    n = next_fast_len(shape[-1], real=True)
    frequency = rfftfreq(n, 1 / sfreq)
    amplitude = 1 / np.sqrt(np.maximum(frequency, 0.5))
    amplitude[0] = 0.0
    weights = np.full(len(amplitude), 2.0)
    weights[-1] = 1.0 if n % 2 == 0 else 2.0
    amplitude /= np.sqrt(np.sum(weights * amplitude**2) / n)
    noise = irfft(rfft(rng.normal(size=(*shape[:-1], n))) * amplitude, n)
    return np.asarray(noise[..., : shape[-1]])
