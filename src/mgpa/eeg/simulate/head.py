"""A head: where sources lie beneath the electrodes, and what they put onto the scalp.

Three concentric shells around the brain (MNE's sphere model), and the standard 10-05 electrode positions, all
in head coordinates: metres, x to the right ear, y to the nose, z up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# The sphere that fits the standard positions best, and its inner skull.
CENTRE = (0.0, 0.0146, 0.0408)
RADIUS = 0.098
BRAIN_RADIUS = 0.9 * RADIUS


def leadfield(channels: Sequence[str], dipoles: Any, orientations: Any, *, tilt: Any = None) -> Array:
    """Return the potential of current dipoles at electrodes, (channels, dipoles), in volts per ampere metre.

    Potentials are free of a reference (zero at infinity): a device subtracts its own.

    Parameters
    ----------
    channels : sequence of str
        Names of the 10-05 system.
    dipoles : (k, 3) array
        Positions in head coordinates, in metres.
    orientations : (k, 3) array
        Directions; only these count, not their lengths.
    tilt : (3,) array or None
        How the cap sits: turned about the centre of the head by this rotation vector, in radians.

    Examples
    --------
    >>> below_oz = beneath(["Oz"])
    >>> bool(np.argmax(leadfield(["Fz", "Oz", "O1"], below_oz, outward(below_oz))) == 1)
    True
    """
    import mne

    places, directions = np.asarray(dipoles, float), np.asarray(orientations, float)
    if places.ndim != 2 or places.shape[1] != 3 or places.shape != directions.shape:
        raise ValueError(
            f"dipoles have shape {places.shape} and orientations {directions.shape}; expected (k, 3) twice."
        )
    names = list(channels)
    if not names or len(set(names)) != len(names):
        raise ValueError(f"channels are {names}; expected different names, at least one.")
    lengths = np.linalg.norm(directions, axis=1)
    if not (np.isfinite(places).all() and np.isfinite(lengths).all() and lengths.all()):
        raise ValueError("dipoles and orientations must be finite, and no orientation zero.")
    outside = np.flatnonzero(np.linalg.norm(places - CENTRE, axis=1) >= BRAIN_RADIUS)
    if len(outside):
        raise ValueError(
            f"Dipole {outside[0]} at {places[outside[0]].tolist()} lies outside the brain: more than "
            f"{BRAIN_RADIUS:g} m from its centre {CENTRE}."
        )
    if not len(places):
        return np.empty((len(names), 0))
    info = mne.create_info(names, 1000.0, "eeg", verbose="error")
    # The standard head is no sphere: its electrodes are moved onto ours, where the solution holds.
    on_sphere = CENTRE + RADIUS * outward(electrode_positions(names, tilt=tilt))
    positions = dict(zip(names, on_sphere, strict=True))
    info.set_montage(mne.channels.make_dig_montage(positions, coord_frame="head"), verbose="error")
    times = np.arange(len(places)) / info["sfreq"]
    ones = np.ones(len(places))
    sources = mne.Dipole(times, places, ones, directions / lengths[:, None], ones)
    forward, _ = mne.make_forward_dipole(sources, _sphere(), info, verbose="error")
    return np.asarray(forward["sol"]["data"], np.float64)


def electrode_positions(channels: Sequence[str], *, tilt: Any = None) -> Array:
    """Return where electrodes sit, (channels, 3), in metres, in head coordinates.

    Examples
    --------
    >>> electrode_positions(["Oz"]).round(2).tolist()
    [[-0.0, -0.08, 0.06]]
    """
    from scipy.spatial.transform import Rotation

    montage = _montage()
    unknown = [name for name in channels if name not in montage]
    if unknown:
        raise ValueError(f"The standard 10-05 montage has no {', '.join(unknown)}.")
    places = np.array([montage[name] for name in channels])
    if tilt is None:
        return places
    turn = np.asarray(tilt, float)
    if turn.shape != (3,) or not np.isfinite(turn).all():
        raise ValueError(f"tilt is {tilt!r}; expected a rotation vector of three numbers, in radians.")
    return np.asarray(Rotation.from_rotvec(turn).apply(places - CENTRE) + CENTRE)


def beneath(channels: Sequence[str], depth: float = 0.025) -> Array:
    """Return a point beneath each electrode, (channels, 3), this many metres below the scalp.

    Examples
    --------
    >>> beneath(["Oz", "O1"]).shape
    (2, 3)
    """
    if not RADIUS - BRAIN_RADIUS < depth <= RADIUS:
        raise ValueError(
            f"depth is {depth:g} m; the brain begins {RADIUS - BRAIN_RADIUS:.4f} m below the scalp "
            f"and its centre is {RADIUS:g} m below it."
        )
    return np.asarray(CENTRE + (RADIUS - depth) * outward(electrode_positions(channels)))


def outward(places: Any) -> Array:
    """Return the direction from the centre of the head to each place, (k, 3)."""
    away = np.asarray(places, float) - CENTRE
    return np.asarray(away / np.linalg.norm(away, axis=1, keepdims=True))


@cache
def _montage() -> dict[str, Array]:
    import mne

    from ..trials import standard_montage

    montage = standard_montage()
    info = mne.create_info(montage.ch_names, 1000.0, "eeg", verbose="error")
    info.set_montage(montage, verbose="error")
    return {channel["ch_name"]: np.array(channel["loc"][:3]) for channel in info["chs"]}


@cache
def _sphere() -> Any:
    import mne

    return mne.make_sphere_model(CENTRE, RADIUS, verbose="error")
