"""Values with intervals: formatting, and the allowance for skewness in claims."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

# The coverage of intervals: the paper's.
LEVEL = 0.95


def number(x: float, spec: str = ".3f") -> str:
    """Return a number as text for all outputs; rounding is done only here.

    The zero before the decimal point is omitted, unless the format requires it.

    Examples
    --------
    >>> number(0.8123), number(-0.02, "+.3f"), number(-1e-5), number(0.8975) == number(0.8975 + 1e-15)
    ('.812', '-.020', '.000', True)
    """
    if "0" in spec.partition(".")[0]:
        return format(x, spec)
    # Values that are equal up to the order of summation must print equally.
    text = format(round(x, 9), spec)
    if float(text) == 0:
        text = text.replace("-", "+" if "+" in spec else "")
    return re.sub(r"^([+-]?)0\.", r"\1.", text)


@dataclass(frozen=True)
class Estimate:
    """A value and its interval; a format specification applies to all three numbers.

    Examples
    --------
    >>> gain = Estimate(0.0574, 0.0338, 0.0831)
    >>> print(gain), f"{gain:+.3f}", f"{gain:0.3f}"
    .057 [.034, .083]
    (None, '+.057 [+.034, +.083]', '0.057 [0.034, 0.083]')
    """

    value: float
    low: float
    high: float
    participants: int = 0  # number of participants for the skewness allowance; 0: no allowance

    def __format__(self, spec: str) -> str:
        value, low, high = [number(x, spec or ".3f") for x in (self.value, self.low, self.high)]
        return f"{value} [{low}, {high}]"

    def __str__(self) -> str:
        return format(self)

    def __repr__(self) -> str:
        return f"<Estimate {self}>"


def with_spread(e: Estimate, values: Sequence[float]) -> Estimate:
    """Return an estimate with an interval that includes the variance of values such as refits."""
    spread = float(np.std(values, ddof=1) * stdtrit(len(values) - 1, (1 + LEVEL) / 2))
    below, above = (float(np.hypot(end - e.value, spread)) for end in (e.low, e.high))
    return replace(e, low=e.value - below, high=e.value + above)


def caution(participants: int, skewness: float) -> float:
    """Return the factor by which claims lengthen one side of an interval.

    A claim is one-sided with an error rate of .05. If the values of n participants have an unfavourable
    skewness γ, their mean in standard errors falls below -q with probability .05. To first order (Johnson
    1978),

        q = t + γ (2t² + 1) / (6 √n),

    with t the one-sided quantile of Student's distribution. Samples seldom show the tail, so γ is assumed.
    Its effect decreases with the number of participants. The interval is never shorter than the two-sided
    interval.

    Examples
    --------
    >>> [round(caution(n, 6.2), 1) for n in (6, 12, 24, 100, 1000)]
    [2.3, 1.8, 1.5, 1.2, 1.0]
    """
    if participants < 2:
        return 1.0
    one_sided, two_sided = stdtrit(participants - 1, [LEVEL, (1 + LEVEL) / 2])
    quantile = one_sided + skewness * (2.0 * one_sided**2 + 1.0) / (6.0 * np.sqrt(participants))
    return float(max(1.0, quantile / two_sided))
