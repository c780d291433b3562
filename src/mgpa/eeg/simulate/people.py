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

from ..._common.parameters import number
from ...errors import ParameterError

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


def draw_people(
    n: int | None = None, *, random_state: int = 0, population: float = 0.0, ids: Sequence[str] | None = None
) -> list[Person]:
    """Draw people who differ in anatomy, rhythms, responses and noise.

    Parameters
    ----------
    n : int or None
        How many: S001, S002, …; None: as many as there are ``ids``.
    random_state : int
        Seed.
    population : float
        How much the two groups, who mostly use one device each, differ in physiology: per unit, alpha is
        twice as strong and 0.5 Hz slower in group 1, and responses are 0.7 times as strong and 10 ms
        later. The source can then be predicted from physiology, which no device changed.
    ids : sequence of str or None
        Names to give them, each with a number of its own.

    Examples
    --------
    >>> [person.id for person in draw_people(ids=["1013", "1014"])]
    ['1013', '1014']
    """
    if not number().accepts(population):
        raise ParameterError("population", population, number().words)
    names = [f"S{i + 1:03d}" for i in range(n or 0)] if ids is None else list(ids)
    if len({_number(name) for name in names}) != len(names):
        raise ValueError(f"Each id needs a number of its own; got {', '.join(names)}.")
    return [_draw(name, random_state, population) for name in names]


def _draw(name: str, random_state: int, population: float) -> Person:
    rng = _rng(random_state, name, ())
    number = _number(name)
    group = (number - 1) % 2
    # Half of the difference to either side, so that the average person stays who they are.
    side = population * (group - 0.5)
    shift, turn = rng.normal(0.0, 0.004, 3), rng.normal(0.0, 0.15, 3)
    spread = rng.normal(size=5)
    return Person(
        id=name,
        random_state=random_state,
        age=int(rng.integers(18, 36)),
        gender=GENDERS[(number - 1) // 2 % 2],
        group=group,
        shift=tuple(shift.tolist()),
        turn=tuple(turn.tolist()),
        background=25e-9 * float(np.exp(0.2 * spread[0])),
        alpha=18e-9 * float(np.exp(0.4 * spread[1]) * 2.0**side),
        alpha_frequency=10.0 + 0.7 * float(spread[2]) - 0.5 * side,
        gain=float(np.exp(0.3 * spread[3]) * 0.7**side),
        latency=0.008 * float(spread[4]) + 0.010 * side,
    )


def _rng(random_state: int, name: str, purpose: tuple[int, ...]) -> np.random.Generator:
    seeds = np.random.SeedSequence(random_state, spawn_key=(_number(name), *purpose))
    return np.random.default_rng(seeds)


def _number(name: str) -> int:
    numbers = re.findall(r"\d+", name)
    if len(numbers) != 1:
        raise ValueError(f"Participant id {name!r} must hold one number, as S001 or 1013 do.")
    return int(numbers[0])


@dataclass(frozen=True)
class Device:
    """An amplifier with its electrodes, and what it does to the potentials they touch.

    Parameters
    ----------
    name : str
        As the ``source`` of its recordings.
    channels : tuple of str
        What it records, in order.
    sfreq : float
        Samples per second of its own clock.
    reference : str
        The electrode that all others are measured against (one of ``channels`` or another one), "average",
        or "none".
    white, pink : float
        Noise of the amplifier, and of each electrode (1/f), in volts (root mean square).
    gain_spread : float
        How much channels differ in gain (standard deviation of its logarithm).
    attenuation : float
        How much of the signal an electrode may lose: uniform between 0 and this share.
    highpass, lowpass : float or None
        Corners of its filters, in Hz.
    clock_offset, clock_drift : float
        When it starts, in seconds after the sources do; how much faster its clock runs, relatively.
    gains : tuple of float or None
        The gain of every channel; None is 1. :meth:`worn` draws them.
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
        """Return the device as it sits on somebody: with a gain of its own for every channel."""
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

    Parameters
    ----------
    sources : (k, samples) array
        Dipole moments in ampere metres.
    leadfield : (electrodes, k) array
        For ``device.electrodes``, free of a reference.
    device : Device
        As :meth:`~Device.worn`.
    rng : Generator
        For the noise.
    sfreq : float
        Samples per second of the sources, not below the device's rate.

    Examples
    --------
    >>> device = Device("wet", ("Oz", "O1"), 250.0, reference="average", white=1e-6)
    >>> record(np.zeros((1, 2000)), [[200.0], [100.0]], device, np.random.default_rng(0), sfreq=1000.0).shape
    (2, 500)
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
