"""What goes on in a brain: dipoles with their moments, and the background that everybody has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .head import BRAIN_RADIUS, CENTRE, beneath, leadfield, outward
from .people import Person, pink_noise

Array = NDArray[np.float64]

# 1/f sources of a brain, and electrodes above those of its alpha rhythm.
DIPOLES = 24
ALPHA_BENEATH = ("PO3", "PO4", "Pz")
# Far from the small numbers that simulations take for their own purposes.
ANATOMY = 1_000_000


@dataclass(frozen=True, eq=False)
class Sources:
    """Current dipoles and what they do over time.

    Parameters
    ----------
    positions, orientations : (k, 3) array
        In head coordinates, in metres.
    moments : (k, samples) array
        In ampere metres.

    Examples
    --------
    >>> one = Sources(beneath(["Oz"]), outward(beneath(["Oz"])), np.zeros((1, 100)))
    >>> (one + one).moments.shape, one.leadfield(["Oz", "O1", "O2"]).shape
    ((2, 100), (3, 1))
    """

    positions: Array
    orientations: Array
    moments: Array

    def __add__(self, other: Sources) -> Sources:
        return Sources(
            np.concatenate([self.positions, other.positions]),
            np.concatenate([self.orientations, other.orientations]),
            np.concatenate([self.moments, other.moments]),
        )

    def leadfield(self, channels: Any, *, tilt: Any = None) -> Array:
        """Return their lead field: see :func:`mgpa.eeg.simulate.head.leadfield`."""
        return leadfield(channels, self.positions, self.orientations, tilt=tilt)


def in_head(person: Person, positions: Any, orientations: Any) -> tuple[Array, Array]:
    """Return where these dipoles lie, and how they point, in somebody's own head.

    Examples
    --------
    >>> from mgpa.eeg.simulate.people import draw_people
    >>> below = beneath(["Oz"])
    >>> place, direction = in_head(draw_people(1)[0], below, outward(below))
    >>> bool(0 < np.linalg.norm(place - below) < 0.03)
    True
    """
    from scipy.spatial.transform import Rotation

    shifted = np.asarray(positions, float) + person.shift
    away = np.linalg.norm(shifted - CENTRE, axis=1, keepdims=True)
    # A shift must not push a source out of the brain.
    shifted = CENTRE + (shifted - CENTRE) * np.minimum(1.0, 0.97 * BRAIN_RADIUS / away)
    return np.asarray(shifted), np.asarray(Rotation.from_rotvec(person.turn).apply(orientations))


def background(person: Person, n_samples: int, sfreq: float, rng: np.random.Generator) -> Sources:
    """Return ongoing activity: 1/f sources all over the cortex, and an alpha rhythm at the back.

    Parameters
    ----------
    person : Person
        Whose strengths, alpha frequency and anatomy to use; places of 1/f sources are the same in every call.
    n_samples : int
        Length.
    sfreq : float
        Samples per second.
    rng : Generator
        For what the sources do.

    Examples
    --------
    >>> from mgpa.eeg.simulate.people import draw_people
    >>> person = draw_people(1)[0]
    >>> background(person, 500, 250.0, person.rng(1)).moments.shape
    (27, 500)
    """
    # Anatomy, unlike activity, stays with the person: its own stream of random numbers.
    anatomy = person.rng(ANATOMY)
    places = CENTRE + anatomy.uniform(0.6, 0.85, (DIPOLES, 1)) * BRAIN_RADIUS * _upper_half(anatomy, DIPOLES)
    directions = anatomy.normal(size=(DIPOLES, 3))
    ongoing = person.background * pink_noise((DIPOLES, n_samples), sfreq, rng)
    below = beneath(ALPHA_BENEATH)
    at, towards = in_head(person, below, outward(below))
    rhythm = person.alpha * alpha_rhythm((len(at), n_samples), person.alpha_frequency, sfreq, rng)
    return Sources(places, directions, ongoing) + Sources(at, towards, rhythm)


def alpha_rhythm(shape: tuple[int, int], frequency: float, sfreq: float, rng: np.random.Generator) -> Array:
    """Return waxing and waning oscillations of unit variance: noise around ``frequency``, 1 Hz wide.

    Half of it is common to all rows, as neighbouring generators go together.

    Examples
    --------
    >>> alpha_rhythm((2, 1000), 10.0, 250.0, np.random.default_rng(0)).shape
    (2, 1000)
    """
    from scipy.fft import irfft, next_fast_len, rfft, rfftfreq

    n = next_fast_len(shape[1], real=True)
    peak = np.exp(-0.5 * (rfftfreq(n, 1 / sfreq) - frequency) ** 2)
    peak /= np.sqrt(2 * np.sum(peak**2) / n)
    waves = irfft(rfft(rng.normal(size=(shape[0] + 1, n))) * peak, n)[:, : shape[1]]
    return np.asarray((waves[:-1] + waves[-1]) / np.sqrt(2))


def _upper_half(rng: np.random.Generator, n: int) -> Array:
    directions = rng.normal(size=(n, 3))
    # Few sources lie below the centre of the head, where there is no cortex near the scalp.
    directions[:, 2] = np.abs(directions[:, 2]) - 0.3
    return np.asarray(directions / np.linalg.norm(directions, axis=1, keepdims=True))
