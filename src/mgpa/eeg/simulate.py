"""Simulated heads, brain activity, participants, and devices with a known signature.

Three concentric shells around the brain (MNE's sphere model), and the standard 10-05 electrode positions, all
in head coordinates: metres, x to the right ear, y to the nose, z up. All random numbers of a participant
depend on the seed and the number in the participant's id, so data do not depend on other participants.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .trials import standard_montage

Array = NDArray[np.float64]
#: Current dipoles: positions and orientations (k, 3), and moments (k, samples) in ampere metres.
Sources = tuple[Array, Array, Array]

# The sphere that fits the standard positions best, and its inner skull.
CENTRE = (0.0, 0.0146, 0.0408)
RADIUS = 0.098
BRAIN_RADIUS = 0.9 * RADIUS
# 1/f sources of a brain, and electrodes above those of its alpha rhythm.
DIPOLES = 24
ALPHA_BENEATH = ("PO3", "PO4", "Pz")
# Far from the small purpose numbers used by simulations.
ANATOMY = 1_000_000
GENDERS = ("female", "male")


@dataclass(frozen=True)
class Person:
    """A simulated participant: anatomy, brain activity, and strength and latency of responses.

    ``group`` (alternating 0 and 1) is the device that this participant uses mostly or first. Brain sources
    are shifted by ``shift`` metres and rotated by the rotation vector ``turn``. ``background`` and ``alpha``
    are in ampere metres (root mean square), ``alpha_frequency`` in Hz; responses are ``gain`` times as strong
    and ``latency`` seconds later than in the average participant.
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

    def rng(self, *purpose: int) -> np.random.Generator:
        """Return the participant's random generator for a purpose, always with the same seed."""
        key = (_number(self.id), *purpose)
        return np.random.default_rng(np.random.SeedSequence(self.random_state, spawn_key=key))


def draw_people(ids: Sequence[str], random_state: int = 0) -> list[Person]:
    """Return random participants with different anatomy, rhythms, responses and noise, seeded by id."""
    people = []
    for name in ids:
        number = _number(name)
        rng = np.random.default_rng(np.random.SeedSequence(random_state, spawn_key=(number,)))
        shift, turn = rng.normal(0.0, 0.004, 3), rng.normal(0.0, 0.15, 3)
        spread = rng.normal(size=5)
        people.append(
            Person(
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
        )
    return people


def _number(name: str) -> int:
    return int(re.findall(r"\d+", name)[0])


def leadfield(channels: Sequence[str], dipoles: Any, orientations: Any, *, tilt: Any = None) -> Array:
    """Return the potential of current dipoles at electrodes, (channels, dipoles), in volts per ampere metre.

    Potentials have no reference (zero at infinity); a device subtracts its reference. Only the directions of
    ``orientations`` matter. The cap is turned about the centre of the head by the rotation vector ``tilt``.
    """
    import mne

    names, places, directions = list(channels), np.asarray(dipoles, float), np.asarray(orientations, float)
    info = mne.create_info(names, 1000.0, "eeg", verbose="error")
    # Move electrodes of the standard head onto the sphere, for which the solution holds.
    on_sphere = CENTRE + RADIUS * outward(electrode_positions(names, tilt=tilt))
    positions = dict(zip(names, on_sphere, strict=True))
    info.set_montage(mne.channels.make_dig_montage(positions, coord_frame="head"), verbose="error")
    directions = directions / np.linalg.norm(directions, axis=1)[:, None]
    ones = np.ones(len(places))
    sources = mne.Dipole(np.arange(len(places)) / 1000.0, places, ones, directions, ones)
    forward, _ = mne.make_forward_dipole(sources, _sphere(), info, verbose="error")
    return np.asarray(forward["sol"]["data"], np.float64)


def electrode_positions(channels: Sequence[str], *, tilt: Any = None) -> Array:
    """Return positions of electrodes, (channels, 3), in metres, in head coordinates."""
    from scipy.spatial.transform import Rotation

    places = np.array([_montage()[name] for name in channels])
    if tilt is None:
        return places
    return np.asarray(Rotation.from_rotvec(tilt).apply(places - CENTRE) + CENTRE)


def beneath(channels: Sequence[str], depth: float = 0.025) -> Array:
    """Return the point ``depth`` metres below each electrode, (channels, 3)."""
    return np.asarray(CENTRE + (RADIUS - depth) * outward(electrode_positions(channels)))


def outward(places: Any) -> Array:
    """Return the direction from the centre of the head to each place, (k, 3)."""
    away = np.asarray(places, float) - CENTRE
    return np.asarray(away / np.linalg.norm(away, axis=1, keepdims=True))


def below(person: Person, channels: Sequence[str]) -> tuple[Array, Array]:
    """Return positions and directions of dipoles below electrodes, in a participant's head."""
    from scipy.spatial.transform import Rotation

    average = beneath(channels)
    shifted = average + person.shift
    away = np.linalg.norm(shifted - CENTRE, axis=1, keepdims=True)
    # A shift must not push a source out of the brain.
    shifted = CENTRE + (shifted - CENTRE) * np.minimum(1.0, 0.97 * BRAIN_RADIUS / away)
    return np.asarray(shifted), np.asarray(Rotation.from_rotvec(person.turn).apply(outward(average)))


def background(person: Person, n_samples: int, sfreq: float, rng: np.random.Generator) -> Sources:
    """Return ongoing activity: 1/f sources over the whole cortex, and an occipital alpha rhythm."""
    # Anatomy does not change between recordings, so it has a separate random stream.
    anatomy = person.rng(ANATOMY)
    depth = anatomy.uniform(0.6, 0.85, (DIPOLES, 1))
    towards = anatomy.normal(size=(DIPOLES, 3))
    # Few sources lie below the centre of the head, far from the cortex near the scalp.
    towards[:, 2] = np.abs(towards[:, 2]) - 0.3
    places = CENTRE + depth * BRAIN_RADIUS * (towards / np.linalg.norm(towards, axis=1, keepdims=True))
    directions = anatomy.normal(size=(DIPOLES, 3))
    ongoing = person.background * pink_noise((DIPOLES, n_samples), sfreq, rng)
    at = below(person, ALPHA_BENEATH)
    rhythm = person.alpha * alpha_rhythm((len(at[0]), n_samples), person.alpha_frequency, sfreq, rng)
    return joined((places, directions, ongoing), (*at, rhythm))


def joined(*parts: Sources) -> Sources:
    """Return all groups of dipoles as one."""
    positions, orientations, moments = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return positions, orientations, moments


def alpha_rhythm(shape: tuple[int, int], frequency: float, sfreq: float, rng: np.random.Generator) -> Array:
    """Return oscillations of unit variance with varying amplitude: noise around ``frequency``, 1 Hz wide.

    Half of it is common to all rows, because neighbouring generators are correlated.
    """
    from scipy.fft import irfft, next_fast_len, rfft, rfftfreq

    n = next_fast_len(shape[1], real=True)
    peak = np.exp(-0.5 * (rfftfreq(n, 1 / sfreq) - frequency) ** 2)
    peak /= np.sqrt(2 * np.sum(peak**2) / n)
    waves = irfft(rfft(rng.normal(size=(shape[0] + 1, n))) * peak, n)[:, : shape[1]]
    return np.asarray((waves[:-1] + waves[-1]) / np.sqrt(2))


def pink_noise(shape: tuple[int, ...], sfreq: float, rng: np.random.Generator) -> Array:
    """Return noise of unit variance with 1/f power along the last axis (constant below 0.5 Hz)."""
    from scipy.fft import irfft, next_fast_len, rfft, rfftfreq

    # Lengths with large prime factors would take minutes to transform.
    n = next_fast_len(shape[-1], real=True)
    frequency = rfftfreq(n, 1 / sfreq)
    amplitude = 1 / np.sqrt(np.maximum(frequency, 0.5))
    amplitude[0] = 0.0
    weights = np.full(len(amplitude), 2.0)
    weights[-1] = 1.0 if n % 2 == 0 else 2.0
    amplitude /= np.sqrt(np.sum(weights * amplitude**2) / n)
    noise = irfft(rfft(rng.normal(size=(*shape[:-1], n))) * amplitude, n)
    return np.asarray(noise[..., : shape[-1]])


@dataclass(frozen=True)
class Device:
    """An amplifier with its electrodes, and its effects on the potentials.

    ``reference`` is an electrode, "average" or "none". ``white`` and ``pink`` are the noise of the amplifier,
    and of each electrode (1/f), in volts (root mean square). Channels differ in gain by ``gain_spread``
    (standard deviation of its logarithm), and may lose a share of the signal up to ``attenuation``. It starts
    ``clock_offset`` seconds after the sources, with a clock that is faster by a factor 1 + ``clock_drift``.
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
        """The channels, and the reference electrode unless it is one of them."""
        extra = self.reference not in ("average", "none", *self.channels)
        return (*self.channels, self.reference) if extra else self.channels

    def worn(self, rng: np.random.Generator) -> Self:
        """Return the device as worn by one participant, with a random gain for each channel."""
        gains = np.exp(self.gain_spread * rng.normal(size=len(self.channels)))
        gains *= 1 - self.attenuation * rng.random(len(self.channels))
        return replace(self, gains=tuple(gains.tolist()))

    def times(self, last: float) -> Array:
        """Return the times of its samples up to ``last``, in seconds on the sources' clock."""
        rate = self.sfreq * (1 + self.clock_drift)
        # Include a sample that only rounding puts beyond the end.
        count = int(np.floor((last - self.clock_offset) * rate + 1e-6)) + 1
        return np.asarray(self.clock_offset + np.arange(max(count, 0)) / rate)


def record(sources: Any, leadfield: Any, device: Device, rng: np.random.Generator, *, sfreq: float) -> Array:
    """Record sources with a device: (channels, samples), in volts, on the device's clock.

    The steps are potentials, noise of the electrodes, reference, gains, filters, sampling, and noise of the
    amplifier. ``sources`` (k, samples) are dipole moments in ampere metres at ``sfreq``, not below the
    device's rate; ``leadfield`` (electrodes, k) is that of ``device.electrodes``, free of a reference.
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
    # Analogue filters: second-order Butterworth in one direction, with delay.
    for corner, kind in ((device.highpass, "highpass"), (device.lowpass, "lowpass")):
        if corner is not None:
            volts = np.asarray(sosfilt(butter(2, corner, kind, fs=sfreq, output="sos"), volts, axis=-1))
    at = device.times((moments.shape[1] - 1) / sfreq) * sfreq
    if np.allclose(at, np.round(at), rtol=0, atol=1e-6):
        volts = volts[:, np.round(at).astype(int)]
    else:
        volts = np.asarray(CubicSpline(np.arange(volts.shape[1]), volts, axis=1)(at))
    return np.asarray(volts + device.white * rng.normal(size=volts.shape))


@cache
def _montage() -> dict[str, Array]:
    import mne

    montage = standard_montage()
    info = mne.create_info(montage.ch_names, 1000.0, "eeg", verbose="error")
    info.set_montage(montage, verbose="error")
    return {channel["ch_name"]: np.array(channel["loc"][:3]) for channel in info["chs"]}


@cache
def _sphere() -> Any:
    import mne

    return mne.make_sphere_model(CENTRE, RADIUS, verbose="error")
