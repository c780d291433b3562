"""Intervals over participants: the shared bootstrap draws of the paper (appendix B).

Results should generalise to new participants, so participants are resampled, not trials or seeds. In every
draw, the complete statistic is computed again, including the maximum over readers and the minimum over
associations, and averaged over fits. All methods share the draws, so differences are paired.

=============  ===============================  ========================================================
statistic      values                           computed in every draw, for every fit
=============  ===============================  ========================================================
``"mean"``     [fit, participant]               mean over participants
``"max"``      [fit, participant, reader]       mean over participants, then maximum over readers
``"best"``     [fit, participant, reader]       the same, less what choosing on these participants adds
``"worst"``    [fit, participant, 3]            mean AUROC curve through ξ = -1, 0, 1, then its minimum
a function     [fit, participant, k]            means over participants (..., k) in, one number each (...) out
=============  ===============================  ========================================================

The largest of many means is above .5 even if no reader finds anything, because the best reader on these
participants is chosen. :func:`optimism` estimates this bias, and "best", which audits use, subtracts it. The
paper uses "max".

Further leading axes are also fits; a single fit needs no fit axis. Participants must be in the same order
everywhere: sorted as text, to repeat the draws of the paper.

By default, participants are drawn as in the paper, with equal probabilities and plain percentile intervals.
Audits draw within cells (of source and label in a nested design, with equal weights) and widen the intervals,
which are too narrow with few participants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

Floats = NDArray[np.float64]
Statistic = str | Callable[[Floats], Any]

#: The associations ξ at which AUROC is evaluated: reversed, independent, aligned. They determine the curve.
ASSOCIATIONS: tuple[float, ...] = (-1.0, 0.0, 1.0)
# Counts of draws that are held at a time; those of few participants are kept for the next estimate.
BLOCK, KEPT = 2**21, 2**21
OPTIMISM_DRAWS = 2_000
# Draws, their seed and the coverage of intervals: the paper's.
DRAWS = 20_000
SEED = 1101
LEVEL = 0.95
EQUAL = 1e-9  # participants that differ by less do not differ
# With more participants than this, groups of them are drawn: at least this many groups in a cell.
MANY, FEWEST_GROUPS = 2_000, 100


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
    # Equal values that were summed in another order must print alike.
    text = format(round(x, 9), spec)
    if float(text) == 0:
        text = text.replace("-", "+" if "+" in spec else "")
    return re.sub(r"^([+-]?)0\.", r"\1.", text)


@dataclass(frozen=True)
class Estimate:
    """A value and its interval; a format applies to all three numbers.

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
    participants: int = 0  # whose skewness claims allow for; 0: claims take the interval as it is

    def __format__(self, spec: str) -> str:
        value, low, high = [number(x, spec or ".3f") for x in (self.value, self.low, self.high)]
        return f"{value} [{low}, {high}]"

    def __str__(self) -> str:
        return format(self)

    def __repr__(self) -> str:
        return f"<Estimate {self}>"


def estimate(
    values: Any,
    statistic: Statistic = "mean",
    *,
    strata: Any = None,
    leverage: float = 1.0,
    widen: bool = False,
    n_draws: int = DRAWS,
) -> Estimate:
    """Return a statistic and its interval over participants.

    Parameters
    ----------
    values, statistic : array, {"mean", "max", "best", "worst"} or callable
        See the table at the top of this module.
    strata : (P,) array or None
        The cell of each participant. Draws keep the size of every cell, and all cells have equal weights.
        None is one cell.
    leverage : float
        The influence of a participant's value on the statistic, relative to its share in the mean. An AUROC
        between participants is a mean over both sides of each comparison, so the leverage is 2.
    widen : bool
        Widen intervals by √(n / (n - 1)) · t / 1.96, with n the mean size of a cell and t the quantile of
        Student's distribution with one degree of freedom less per cell. If t intervals are wider, they are
        used. With one cell, Hall's intervals for skewed participants are used at the ends at which they are
        wider.
    n_draws : int
        Number of draws; the default is that of the paper.

    Examples
    --------
    >>> print(estimate([[0.58, 0.61, 0.64, 0.57], [0.60, 0.62, 0.65, 0.58]]))
    .606 [.583, .631]
    """
    fits = _read(values, statistic)
    luck = optimism(fits, strata, leverage) if statistic == "best" else None
    return _interval([(1.0, fits)], statistic, strata, leverage, widen, n_draws, luck)


def point(values: Any, statistic: Statistic = "mean", strata: Any = None) -> float:
    """Return a statistic without its interval; parameters are those of :func:`estimate`."""
    fits = _read(values, statistic)
    return float(_evaluator(fits, statistic, strata)(np.ones((1, fits.shape[1])))[0])


def contrast(
    a: Any,
    b: Any,
    statistic: Statistic = "mean",
    *,
    strata: Any = None,
    leverage: float = 1.0,
    widen: bool = False,
    n_draws: int = DRAWS,
) -> Estimate:
    """Return the statistic of a minus that of b, and the interval of the difference in shared draws.

    In every draw, the maximum or minimum is computed for each side separately, and each side is averaged over
    its fits. Both sides have the same participants; the other parameters are those of :func:`estimate`.

    Examples
    --------
    >>> once, twice = [0.58, 0.61, 0.64], [[0.59, 0.63, 0.64], [0.59, 0.61, 0.64]]
    >>> print(contrast(twice, once))
    .007 [.000, .010]
    """
    first, second = _read(a, statistic, "a"), _read(b, statistic, "b")
    n = first.shape[1]
    if n != second.shape[1]:
        raise ValueError(f"a has {n} participants and b {second.shape[1]}; compare the same people.")
    luck = None
    if statistic == "best":
        luck = optimism(first, strata, leverage) - optimism(second, strata, leverage)
    sides = [(1.0, first), (-1.0, second)]
    return _interval(sides, statistic, strata, leverage, widen, n_draws, luck)


def optimism(values: Any, strata: Any = None, leverage: float = 1.0) -> float:
    """Return the bias of the largest mean over readers, compared with this reader on new participants.

    In every draw of participants, the best reader is chosen as for S. The bias is the difference of its mean
    in the draw and over all participants (Efron 1983). If readers are equally good, draws vary about means
    that are already selected and show 1 / √2 of the bias. If one reader is clearly best, there is no bias. In
    simulations without an effect, S exceeds .5 by at most .004 with eight or more participants.

    Examples
    --------
    >>> one_is_best = np.array([[0.9, 0.5], [0.8, 0.6], [0.7, 0.5]])
    >>> equal = np.array([[0.6, 0.5], [0.5, 0.6], [0.6, 0.5], [0.5, 0.6]])
    >>> bool(optimism(one_is_best) < 0.001 < optimism(equal))
    True
    """
    fits, strata = _in_groups(_read(values, "best"), strata)
    n_fits, n, k = fits.shape
    flat, weight = fits.transpose(1, 0, 2).reshape(n, n_fits * k), shares(strata, n)
    whole, cells, gained = (weight @ flat).reshape(n_fits, k), cells_of(strata, n), []
    best = whole.argmax(axis=-1)
    for counts in _counts(cells, n, OPTIMISM_DRAWS):
        share = counts * weight
        means = (share / share.sum(axis=1, keepdims=True) @ flat).reshape(-1, n_fits, k)
        gain = leverage * (means - whole)
        chosen = (whole + gain).argmax(axis=-1)[..., None]
        luck = np.take_along_axis(gain, chosen, axis=-1)[..., 0]
        # The reader that is best on all gains nothing on average; where it is chosen, neither does a draw.
        gained.append((luck - gain[:, np.arange(n_fits), best]).mean(axis=1))
    size = n / len(cells)  # draws scatter less than new participants would, as in _interval
    return float(np.concatenate(gained).mean() * np.sqrt(2.0 * size / max(size - 1, 0.5)))


def simultaneous(
    sides: Sequence[tuple[Any, Any]],
    statistic: Statistic = "mean",
    *,
    strata: Any = None,
    leverage: float = 1.0,
    widen: bool = False,
    n_draws: int = DRAWS,
) -> list[Estimate]:
    """Return the differences of several (a, b), with intervals that hold for all of them at once (max-t).

    For each shared draw, the largest deviation of a difference from its value is computed, in standard
    errors. The 95 % quantile of these deviations replaces 1.96. The other parameters are those of
    :func:`contrast`.

    Examples
    --------
    >>> once, twice, thrice = [0.58, 0.61, 0.64, 0.5], [0.59, 0.63, 0.65, 0.5], [0.5, 0.6, 0.6, 0.5]
    >>> print(*simultaneous([(twice, once), (thrice, once)]))
    .010 [.003, .018] -.033 [-.066, .001]
    """
    read = [(_read(a, statistic, "a"), _read(b, statistic, "b")) for a, b in sides]
    grouped = [(_in_groups(a, strata)[0], _in_groups(b, strata)[0]) for a, b in read]
    groups = _in_groups(read[0][0], strata)[1]
    pairs = [tuple(_evaluator(side, statistic, groups, leverage) for side in both) for both in grouped]
    n = grouped[0][0].shape[1]
    cells = cells_of(groups, n)
    values = np.array([float((one(np.ones((1, n))) - other(np.ones((1, n))))[0]) for one, other in pairs])
    drawn = np.concatenate(
        [np.stack([one(counts) - other(counts) for one, other in pairs], axis=1)
         for counts in _counts(cells, n, n_draws)]
    )  # fmt: skip
    error = drawn.std(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        departure = np.nan_to_num(np.abs(drawn - values) / error, posinf=0.0).max(axis=1)
    half = np.quantile(departure, LEVEL) * error * (_widening(n, len(cells)) if widen else 1.0)
    # About the differences themselves, less what choosing the best reader adds.
    how: dict[str, Any] = {"strata": strata, "leverage": leverage, "n_draws": 2}
    told = [contrast(a, b, statistic, **how).value for a, b in sides]
    return [Estimate(v, float(v - h), float(v + h)) for v, h in zip(told, half, strict=True)]


def with_spread(e: Estimate, values: Sequence[float]) -> Estimate:
    """Return an estimate whose interval includes the variance of independent values, for example refits."""
    spread = float(np.std(values, ddof=1) * stdtrit(len(values) - 1, (1 + LEVEL) / 2))
    below, above = (float(np.hypot(end - e.value, spread)) for end in (e.low, e.high))
    return replace(e, low=e.value - below, high=e.value + above)


def caution(participants: int, skewness: float) -> float:
    """Return the factor by which a claim lengthens one side of an interval.

    A claim is one-sided and may be wrong in .05. If the values of n participants have the skewness γ against
    it, their mean in standard errors falls below -q in .05 where, to first order (Johnson 1978),

        q = t + γ (2t² + 1) / (6 √n),

    with t the one-sided quantile of Student's distribution. A sample seldom shows its tail, so γ is assumed.
    Its effect decreases with the number of participants. The interval is never shorter than the two-sided
    interval.

    Examples
    --------
    >>> [round(caution(n, 6.2), 1) for n in (6, 12, 24, 100, 1000)]
    [2.3, 1.8, 1.5, 1.2, 1.0]
    """
    if participants < 2:
        return 1.0
    one_sided, two_sided = (float(stdtrit(participants - 1, p)) for p in (LEVEL, (1 + LEVEL) / 2))
    quantile = one_sided + skewness * (2.0 * one_sided**2 + 1.0) / (6.0 * np.sqrt(participants))
    return float(max(1.0, quantile / two_sided))


def _widening(n: int, n_cells: int) -> float:
    """Return the factor by which percentile intervals of few participants are too narrow."""
    return _quantile(n, n_cells) / float(ndtri((1 + LEVEL) / 2))


def _quantile(n: int, n_cells: int) -> float:
    """Return the t quantile of few participants, times √n / √(n - 1), as draws have a smaller variance."""
    size, freedom = n / n_cells, max(n - n_cells, 1)
    return float(stdtrit(freedom, (1 + LEVEL) / 2) * np.sqrt(size / max(size - 1, 0.5)))


def leave_one_out(values: Any, statistic: Statistic, strata: Any = None, leverage: float = 1.0) -> Floats:
    """Return the statistic without each participant in turn; the rest of the cell gets its weight."""
    fits = _read(values, statistic)
    n = fits.shape[1]
    counts = np.ones((n, n))
    for cell in cells_of(strata, n):
        if len(cell) > 1:
            counts[np.ix_(cell, cell)] = (1.0 - np.eye(len(cell))) * len(cell) / (len(cell) - 1)
    luck = optimism(fits, strata, leverage) if statistic == "best" else 0.0
    return _evaluator(fits, statistic, strata, leverage)(counts) - luck


def cells_of(strata: Any, n: int) -> list[NDArray[np.intp]]:
    """Return the participants of every cell; without strata, of a single cell."""
    if strata is None:
        return [np.arange(n)]
    codes = np.unique(strata, return_inverse=True)[1]
    return [np.flatnonzero(codes == k) for k in range(codes.max() + 1)]


def shares(strata: Any, n: int) -> Floats:
    """Return the weight of each participant: equal for all cells, and equal within a cell."""
    cells = cells_of(strata, n)
    share = np.empty(n)
    for cell in cells:
        share[cell] = 1.0 / (len(cells) * len(cell))
    return share


def curve_coefficients(values: Any) -> Floats:
    """Return (a, b, c) of the AUROC curve aξ² + bξ + c through the values (..., 3) at ξ = -1, 0 and 1.

    The curve is exactly quadratic: weights of positive and negative events are linear in ξ, their totals do
    not depend on ξ, and AUROC is a sum of products of both.
    """
    reverse, independent, aligned = np.moveaxis(np.asarray(values, dtype=np.float64), -1, 0)
    half = (aligned + reverse) / 2
    return np.stack([half - independent, (aligned - reverse) / 2, independent], axis=-1)


def curve_minimum(coefficients: Any) -> tuple[Any, Any]:
    """Return the minimum of the curve on [-1, 1], and its position ξ.

    The candidates are -1, 0, 1 and, if a > 0 and -2a ≤ b ≤ 2a, the vertex -b / 2a; ties go to the first.

    Examples
    --------
    >>> minimum, xi = curve_minimum([1.0, -0.5, 0.5])    # an interior minimum
    >>> float(minimum), float(xi)
    (0.4375, 0.25)
    """
    coefficients = np.asarray(coefficients, dtype=np.float64)
    a, b = coefficients[..., 0], coefficients[..., 1]
    interior = (a > 0) & (np.abs(b) <= 2 * a)
    vertex = np.where(interior, -b / np.where(interior, 2 * a, 1.0), 0.0)
    xi = np.stack([*(np.full(vertex.shape, point) for point in ASSOCIATIONS), vertex], axis=-1)
    a, b, c = (x[..., None] for x in np.moveaxis(coefficients, -1, 0))
    values = (a * xi + b) * xi + c
    where = values.argmin(axis=-1)[..., None]
    return np.take_along_axis(values, where, -1)[..., 0], np.take_along_axis(xi, where, -1)[..., 0]


def _read(values: Any, statistic: Statistic, name: str = "values") -> Floats:
    """Return finite values as an array indexed [fit, participant, k]."""
    # Axes after the fits: participants alone for the mean, participants and readers (or ξ) otherwise.
    inner = 1 if statistic == "mean" else 2
    array = np.asarray(values, dtype=np.float64)
    if array.ndim < inner or not array.size or (statistic == "worst" and array.shape[-1] != 3):
        wanted = {"mean": "", "worst": ", 3"}.get(str(statistic), ", reader")
        raise ValueError(f"{name} has shape {array.shape}; expected [fit, participant{wanted}].")
    if not np.isfinite(array).all():
        first = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        raise ValueError(f"{name} is NaN or infinite at {first}; leave the participant out of all methods.")
    if array.shape[-inner] < 2:
        raise ValueError("Only one participant: an interval over participants needs two or more.")
    return array.reshape(int(np.prod(array.shape[:-inner])), array.shape[-inner], -1)


def _evaluator(
    fits: Floats, statistic: Statistic, strata: Any = None, leverage: float = 1.0
) -> Callable[[Floats], Floats]:
    """Return the statistic, averaged over fits, as a function of the counts (B, P) of participants."""
    n_fits, n, k = fits.shape
    flat = fits.transpose(1, 0, 2).reshape(n, n_fits * k)
    weight: Any = shares(strata, n)
    whole = weight @ flat
    if strata is None:  # to the paper's last digit: participants that are all alike are counted, not weighed
        weight = 1.0

    def evaluate(counts: Floats) -> Floats:
        share = counts * weight
        means = (share / share.sum(axis=1, keepdims=True)) @ flat
        if leverage != 1.0:
            means = whole + leverage * (means - whole)
        means = means.reshape(-1, n_fits, k)
        if callable(statistic):
            each = np.asarray(statistic(means), dtype=np.float64)
        elif statistic == "worst":
            each = curve_minimum(curve_coefficients(means))[0]
        else:
            each = means.max(axis=-1)  # for "mean" of the one value
        return np.asarray(each.mean(axis=-1))

    return evaluate


def _in_groups(fits: Floats, strata: Any) -> tuple[Floats, Any]:
    """Return values and strata of random groups of participants within cells, if there are many.

    Means of groups are resampled with the spread of participants, so draws take the same time and memory for
    any number of participants.
    """
    n = fits.shape[1]
    if n <= MANY:
        return fits, strata
    rng = np.random.default_rng(SEED)
    cells, parts, codes = cells_of(strata, n), [], []
    for k, cell in enumerate(cells):
        wanted = max(FEWEST_GROUPS, MANY * len(cell) // (2 * n))
        size = max(1, len(cell) // wanted)
        starts = np.arange(0, len(cell) - size + 1, size)
        shuffled = fits[:, rng.permutation(cell)]
        total = np.add.reduceat(shuffled, starts, axis=1)
        parts.append(total / np.diff([*starts, len(cell)])[:, None])
        codes += [k] * len(starts)
    return np.concatenate(parts, axis=1), None if strata is None else np.array(codes)


def _interval(
    sides: Sequence[tuple[float, Floats]],
    statistic: Statistic,
    strata: Any,
    leverage: float,
    widen: bool,
    n_draws: int,
    luck: float | None,
) -> Estimate:
    """Return the signed sum of the statistics of the sides, and its interval over bootstrap draws.

    ``luck`` is subtracted from the value. Draws, which contain it twice, are centred on the result.
    """
    once = np.ones((1, sides[0][1].shape[1]))
    value = sum(sign * float(_evaluator(fits, statistic, strata)(once)[0]) for sign, fits in sides)
    grouped = [(sign, *_in_groups(fits, strata)) for sign, fits in sides]
    parts = [(sign, _evaluator(fits, statistic, groups, leverage)) for sign, fits, groups in grouped]
    n, cells = grouped[0][1].shape[1], cells_of(grouped[0][2], grouped[0][1].shape[1])

    def evaluate(counts: Floats) -> Floats:
        return np.asarray(sum([sign * part(counts) for sign, part in parts]))

    resampled = np.concatenate([evaluate(counts) for counts in _counts(cells, n, n_draws)])
    if luck is not None:
        value -= luck
        resampled += value - resampled.mean()
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    if widen:
        factor = _widening(n, len(cells))
        half = factor * float(ndtri((1 + LEVEL) / 2) * resampled.std())
        low, high = value - max(half, factor * (value - low)), value + max(half, factor * (high - value))
        if len(cells) == 1 and n > 3:
            least, most = _skewed_ends(value, evaluate(1.0 - np.eye(n)), _quantile(n, len(cells)))
            low, high = min(low, least), max(high, most)
    return Estimate(value, float(low), float(high), sides[0][1].shape[1] if widen else 0)


def _skewed_ends(value: float, left_out: Floats, quantile: float) -> tuple[float, float]:
    """Return the ends of Hall's interval (1992), from the values without each participant.

    If few participants lose much, a sample seldom contains them, and a symmetric interval is too short on
    their side. T + γT²/3√n + γ²T³/27n + γ/6√n, with γ the skewness of participants, is nearly normal; its
    inverse is exact.
    """
    n = len(left_out)
    own = (n - 1) * (left_out.mean() - left_out)  # how far each participant moves the value, times n
    spread = float(own.std(ddof=1))
    if not spread > EQUAL * max(1.0, abs(value)):
        return value, value
    skewness = n / ((n - 1) * (n - 2)) * float(np.sum((own / spread) ** 3))
    bend, error = skewness / (3.0 * np.sqrt(n)), spread / np.sqrt(n)
    if abs(bend) < EQUAL:
        return value - quantile * error, value + quantile * error
    ends = np.array([quantile, -quantile])
    t = (np.cbrt(1.0 + 3.0 * bend * (ends - skewness / (6.0 * np.sqrt(n)))) - 1.0) / bend
    low, high = value - t * error
    return float(low), float(high)


def _counts(cells: list[NDArray[np.intp]], n: int, n_draws: int) -> Iterable[Floats]:
    """Yield the counts of each participant in blocks of draws (B, n).

    Cells are drawn separately; the draws of a single cell are ``default_rng(SEED).integers``.
    """
    if n * n_draws > KEPT:
        return _drawn(cells, n, n_draws)
    return _kept_draws(tuple(map(tuple, cells)), n, n_draws)


@lru_cache(maxsize=4)
def _kept_draws(cells: tuple[tuple[int, ...], ...], n: int, n_draws: int) -> tuple[Floats, ...]:
    """Return the blocks of draws of few participants, shared by all metrics and methods."""
    return tuple(_drawn([np.array(cell) for cell in cells], n, n_draws))


def _drawn(cells: list[NDArray[np.intp]], n: int, n_draws: int) -> Iterator[Floats]:
    """Yield the blocks of draws."""
    generators = [np.random.default_rng(SEED + k) for k in range(len(cells))]
    at_once = max(1, BLOCK // n)
    for start in range(0, n_draws, at_once):
        size = min(at_once, n_draws - start)
        counts = np.empty((size, n))
        for cell, rng in zip(cells, generators, strict=True):
            flat = rng.integers(len(cell), size=(size, len(cell))) + len(cell) * np.arange(size)[:, None]
            counts[:, cell] = np.bincount(flat.ravel(), minlength=size * len(cell)).reshape(size, -1)
        yield counts
