"""GELU and its derivative, to the rounding of float32, from one exponential."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]

# erfc(x) ≈ (a₁t + … + a₅t⁵) exp(-x²) with t = 1 / (1 + px): Abramowitz & Stegun 7.1.26, error 1.5e-7,
# that is float32 rounding. It shares its exponential with the derivative of GELU. The constants below
# absorb p, the √2 of the normal density and its normalisation.
P = 0.3275911 / math.sqrt(2.0)
LOG_DENSITY = -0.5 * math.log(2.0 * math.pi)
ERFC = tuple(
    -0.5 * math.sqrt(2.0 * math.pi) * a / P**i
    for i, a in enumerate((0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429), start=1)
)


def gelu_and_slope(u: Floats) -> tuple[Floats, Floats]:
    """Return GELU(u) = uΦ(u) and its derivative Φ(u) + uφ(u).

    Examples
    --------
    >>> import numpy as np
    >>> value, slope = gelu_and_slope(np.array([-1.0, 0.0, 2.0]))
    >>> value.round(4), slope.round(4)
    (array([-0.1587,  0.    ,  1.9545]), array([-0.0833,  0.5   ,  1.0852]))
    """
    t = np.abs(u)
    t += 1.0 / P
    np.reciprocal(t, out=t)
    value = t * ERFC[4]
    for coefficient in ERFC[3::-1]:
        value += coefficient
        value *= t
    slope = u * u
    slope *= -0.5
    slope += LOG_DENSITY
    np.exp(slope, out=slope)  # φ(u)
    value *= slope
    value += 0.5  # Φ(|u|) - ½
    np.copysign(value, u, out=value)
    value += 0.5  # Φ(u)
    slope *= u
    slope += value
    value *= u
    return value, slope
