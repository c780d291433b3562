"""A head and what goes on in it: dipoles with their moments, and what they put onto the scalp.

Three concentric shells around the brain (MNE's sphere model), and the standard 10-05 electrode positions, all
in head coordinates: metres, x to the right ear, y to the nose, z up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..trials import standard_montage
from .people import Person, pink_noise

Array = NDArray[np.float64]

# The sphere that fits the standard positions best, and its inner skull.
CENTRE = (0.0, 0.0146, 0.0408)
RADIUS = 0.098
BRAIN_RADIUS = 0.9 * RADIUS
# 1/f sources of a brain, and electrodes above those of its alpha rhythm.
DIPOLES = 24
ALPHA_BENEATH = ("PO3", "PO4", "Pz")
# Far from the small numbers that simulations take for their own purposes.
ANATOMY = 1_000_000


class Sources(NamedTuple):
    """Current dipoles: positions and orientations (k, 3), and moments (k, samples) in ampere metres."""

    positions: Array
    orientations: Array
    moments: Array

    def joined(self, *others: Sources) -> Sources:
        """Return these and other dipoles."""
        return Sources(*(np.concatenate(parts) for parts in zip(self, *others, strict=True)))

    def leadfield(self, channels: Sequence[str], *, tilt: Any = None) -> Array:
        """Return their potential at electrodes: see :func:`leadfield`."""
        return leadfield(channels, self.positions, self.orientations, tilt=tilt)


def leadfield(channels: Sequence[str], dipoles: Any, orientations: Any, *, tilt: Any = None) -> Array:
    """Return the potential of current dipoles at electrodes, (channels, dipoles), in volts per ampere metre.

    Potentials are free of a reference (zero at infinity): a device subtracts its own. Only directions of
    ``orientations`` count. The cap is turned about the centre of the head by the rotation vector ``tilt``.
    """
    import mne

    names, places, directions = list(channels), np.asarray(dipoles, float), np.asarray(orientations, float)
    info = mne.create_info(names, 1000.0, "eeg", verbose="error")
    # The standard head is not a sphere: its electrodes are moved onto ours, where the solution holds.
    on_sphere = CENTRE + RADIUS * outward(electrode_positions(names, tilt=tilt))
    positions = dict(zip(names, on_sphere, strict=True))
    info.set_montage(mne.channels.make_dig_montage(positions, coord_frame="head"), verbose="error")
    directions = directions / np.linalg.norm(directions, axis=1)[:, None]
    ones = np.ones(len(places))
    sources = mne.Dipole(np.arange(len(places)) / 1000.0, places, ones, directions, ones)
    forward, _ = mne.make_forward_dipole(sources, _sphere(), info, verbose="error")
    return np.asarray(forward["sol"]["data"], np.float64)


def electrode_positions(channels: Sequence[str], *, tilt: Any = None) -> Array:
    """Return where electrodes sit, (channels, 3), in metres, in head coordinates."""
    from scipy.spatial.transform import Rotation

    places = np.array([_montage()[name] for name in channels])
    if tilt is None:
        return places
    return np.asarray(Rotation.from_rotvec(tilt).apply(places - CENTRE) + CENTRE)


def beneath(channels: Sequence[str], depth: float = 0.025) -> Array:
    """Return a point beneath each electrode, (channels, 3), this many metres below the scalp."""
    return np.asarray(CENTRE + (RADIUS - depth) * outward(electrode_positions(channels)))


def outward(places: Any) -> Array:
    """Return the direction from the centre of the head to each place, (k, 3)."""
    away = np.asarray(places, float) - CENTRE
    return np.asarray(away / np.linalg.norm(away, axis=1, keepdims=True))


def below(person: Person, channels: Sequence[str]) -> tuple[Array, Array]:
    """Return where dipoles beneath electrodes lie, and how they point, in a person's own head."""
    from scipy.spatial.transform import Rotation

    average = beneath(channels)
    shifted = average + person.shift
    away = np.linalg.norm(shifted - CENTRE, axis=1, keepdims=True)
    # A shift must not push a source out of the brain.
    shifted = CENTRE + (shifted - CENTRE) * np.minimum(1.0, 0.97 * BRAIN_RADIUS / away)
    return np.asarray(shifted), np.asarray(Rotation.from_rotvec(person.turn).apply(outward(average)))


def background(person: Person, n_samples: int, sfreq: float, rng: np.random.Generator) -> Sources:
    """Return ongoing activity: 1/f sources all over the cortex, and an alpha rhythm at the back."""
    # Anatomy, unlike activity, stays with the person: its own stream of random numbers.
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
    return Sources(places, directions, ongoing).joined(Sources(*at, rhythm))


def alpha_rhythm(shape: tuple[int, int], frequency: float, sfreq: float, rng: np.random.Generator) -> Array:
    """Return waxing and waning oscillations of unit variance: noise around ``frequency``, 1 Hz wide.

    Half of it is common to all rows, as neighbouring generators go together.
    """
    from scipy.fft import irfft, next_fast_len, rfft, rfftfreq

    n = next_fast_len(shape[1], real=True)
    peak = np.exp(-0.5 * (rfftfreq(n, 1 / sfreq) - frequency) ** 2)
    peak /= np.sqrt(2 * np.sum(peak**2) / n)
    waves = irfft(rfft(rng.normal(size=(shape[0] + 1, n))) * peak, n)[:, : shape[1]]
    return np.asarray((waves[:-1] + waves[-1]) / np.sqrt(2))


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
