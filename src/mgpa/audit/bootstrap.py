"""Bootstrap intervals over participants, with the shared draws of the paper (appendix B).

Results should generalise to new participants, so participants are resampled, not trials or seeds. In every
draw, the complete statistic is computed again, including the maximum over readers and the minimum over
associations, and averaged over fits. All methods share the draws, so differences are paired.

=============  ===============================  ========================================================
statistic      values                           computed in every draw, for every fit
=============  ===============================  ========================================================
``"mean"``     [fit, participant]               mean over participants
``"max"``      [fit, participant, reader]       mean over participants, then maximum over readers
``"best"``     [fit, participant, reader]       as for max, minus the bias from choosing the reader
``"worst"``    [fit, participant, 3]            mean AUROC curve through ξ = -1, 0, 1, then its minimum
a function     [fit, participant, k]            means over participants (..., k) in, one number each (...) out
=============  ===============================  ========================================================

The largest of many means exceeds .5 even without a source effect, because the best reader is chosen on the
same participants. :func:`optimism` estimates this bias. Audits use "best", which subtracts the bias; the
paper uses "max".

Further leading axes also count as fits; a single fit needs no fit axis. All arrays must have the same order
of participants; sorting them as text reproduces the draws of the paper.

By default, participants are drawn as in the paper, with equal probabilities and plain percentile intervals.
Audits draw within cells (of source and label in a nested design, with equal weights) and widen the intervals,
which are too narrow with few participants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit

from .draws import DRAWS, Floats, Sides, cells_of, draws_of, in_groups, shares
from .estimates import LEVEL, Estimate

Statistic = str | Callable[[Floats], Any]

#: The associations ξ at which AUROC is evaluated: reversed, independent, aligned. They determine the curve.
ASSOCIATIONS: tuple[float, ...] = (-1.0, 0.0, 1.0)
OPTIMISM_DRAWS = 2_000
EQUAL = 1e-9  # smaller differences between participants count as zero


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
    return _interval([(1.0, _read(values, statistic))], statistic, strata, leverage, widen, n_draws)


def point(values: Any, statistic: Statistic = "mean", strata: Any = None) -> float:
    """Return a statistic without its interval; parameters are those of :func:`estimate`."""
    return _value([(1.0, _read(values, statistic))], statistic, strata)


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

    In each draw, the maximum or minimum is computed separately for a and b, and each is averaged over its
    fits. Both have the same participants; the other parameters are those of :func:`estimate`.

    Examples
    --------
    >>> once, twice = [0.58, 0.61, 0.64], [[0.59, 0.63, 0.64], [0.59, 0.61, 0.64]]
    >>> print(contrast(twice, once))
    .007 [.000, .010]
    """
    return _interval(_both_sides(a, b, statistic), statistic, strata, leverage, widen, n_draws)


def optimism(values: Any, strata: Any = None, leverage: float = 1.0) -> float:
    """Return the bias of the largest mean over readers, compared with this reader on new participants.

    In every draw of participants, the best reader is chosen as for S. The bias is this reader's mean in the
    draw minus its mean over all participants (Efron 1983). If readers are equally good, draws vary about
    means that are already selected and show 1 / √2 of the bias. If one reader is clearly best, the bias is
    zero. In simulations without an effect, S exceeds .5 by at most .004 with eight or more participants.

    Examples
    --------
    >>> one_is_best = np.array([[0.9, 0.5], [0.8, 0.6], [0.7, 0.5]])
    >>> equal = np.array([[0.6, 0.5], [0.5, 0.6], [0.6, 0.5], [0.5, 0.6]])
    >>> bool(optimism(one_is_best) < 0.001 < optimism(equal))
    True
    """
    ((_, fits),), strata = in_groups([(1.0, _read(values, "best"))], strata)
    n_fits, n, k = fits.shape
    flat, weight = fits.transpose(1, 0, 2).reshape(n, n_fits * k), shares(strata, n)
    whole, cells, gained = (weight @ flat).reshape(n_fits, k), cells_of(strata, n), []
    best = whole.argmax(axis=-1)[None, :, None]
    for counts in draws_of(cells, n, OPTIMISM_DRAWS):
        share = counts * weight
        means = (share / share.sum(axis=1, keepdims=True) @ flat).reshape(-1, n_fits, k)
        gain = leverage * (means - whole)
        reached, of_best = whole + gain, np.take_along_axis(gain, best, axis=-1)
        luck = np.take_along_axis(gain, reached.argmax(axis=-1)[..., None], axis=-1) - of_best
        # The reader that is best on all participants has no bias, so draws that choose it add none. Ties are
        # resolved in its favour.
        again = np.take_along_axis(reached, best, axis=-1) >= reached.max(axis=-1, keepdims=True) - EQUAL
        gained.append(np.where(again, 0.0, luck)[..., 0].mean(axis=1))
    size = n / len(cells)  # draws vary less than new participants, as in _interval
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
    """Return the differences of several (a, b), with intervals that hold jointly for all (max-t).

    For each shared draw, the largest deviation of a difference from its value is computed, in standard
    errors. The 95 % quantile of these deviations replaces 1.96. The other parameters are those of
    :func:`contrast`.

    Examples
    --------
    >>> once, twice, thrice = [0.58, 0.61, 0.64, 0.5], [0.59, 0.63, 0.65, 0.5], [0.5, 0.6, 0.6, 0.5]
    >>> print(*simultaneous([(twice, once), (thrice, once)]))
    .010 [.003, .018] -.033 [-.066, .001]
    """
    differences = [_both_sides(a, b, statistic) for a, b in sides]
    grouped = [in_groups(both, strata) for both in differences]
    evaluate = [_evaluator(both, statistic, groups, leverage) for both, groups in grouped]
    n, cells = grouped[0][0][0][1].shape[1], cells_of(grouped[0][1], grouped[0][0][0][1].shape[1])
    values = np.concatenate([one(np.ones((1, n))) for one in evaluate])
    drawn = np.concatenate(
        [np.stack([one(counts) for one in evaluate], axis=1) for counts in draws_of(cells, n, n_draws)]
    )
    error = drawn.std(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        departure = np.nan_to_num(np.abs(drawn - values) / error, posinf=0.0).max(axis=1)
    half = np.quantile(departure, LEVEL) * error * (_widening(n, len(cells)) if widen else 1.0)
    # Centred on the differences after subtracting the bias from choosing the best reader.
    centres = [
        _value(both, statistic, strata) - _optimism(both, statistic, strata, leverage) for both in differences
    ]
    return [Estimate(v, float(v - h), float(v + h)) for v, h in zip(centres, half, strict=True)]


def _widening(n: int, n_cells: int) -> float:
    """Return the factor by which percentile intervals are widened for few participants."""
    return _quantile(n, n_cells) / float(ndtri((1 + LEVEL) / 2))


def _quantile(n: int, n_cells: int) -> float:
    """Return the t quantile times √(n / (n - 1)), because draws have a smaller variance."""
    size, freedom = n / n_cells, max(n - n_cells, 1)
    return float(stdtrit(freedom, (1 + LEVEL) / 2) * np.sqrt(size / max(size - 1, 0.5)))


def leave_one_out(values: Any, statistic: Statistic, strata: Any = None, leverage: float = 1.0) -> Floats:
    """Return the statistic without each participant; others in the cell then have larger weights."""
    sides = [(1.0, _read(values, statistic))]
    n = sides[0][1].shape[1]
    counts = np.ones((n, n))
    for cell in cells_of(strata, n):
        if len(cell) > 1:
            counts[np.ix_(cell, cell)] = (1.0 - np.eye(len(cell))) * len(cell) / (len(cell) - 1)
    luck = _optimism(sides, statistic, strata, leverage)
    return _evaluator(sides, statistic, strata, leverage)(counts) - luck


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
    xi = np.concatenate([np.broadcast_to(ASSOCIATIONS, (*vertex.shape, 3)), vertex[..., None]], axis=-1)
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


def _both_sides(a: Any, b: Any, statistic: Statistic) -> list[tuple[float, Floats]]:
    """Return a and b as signed sides of a difference."""
    first, second = _read(a, statistic, "a"), _read(b, statistic, "b")
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"a has {first.shape[1]} participants and b {second.shape[1]}; compare the same participants."
        )
    return [(1.0, first), (-1.0, second)]


def _evaluator(
    sides: Sides, statistic: Statistic, strata: Any = None, leverage: float = 1.0
) -> Callable[[Floats], Floats]:
    """Return a function from counts of participants (B, P) to the difference of the statistics, (B,).

    Each statistic is averaged over fits.
    """
    n = sides[0][1].shape[1]
    weight: Any = shares(strata, n)
    flats = [fits.transpose(1, 0, 2).reshape(n, -1) for _, fits in sides]
    wholes = [weight @ flat for flat in flats]
    if strata is None:  # without strata, count participants, to reproduce the paper's numbers exactly
        weight = 1.0

    def evaluate(counts: Floats) -> Floats:
        share = counts * weight
        share /= share.sum(axis=1, keepdims=True)
        difference = np.zeros(len(counts))
        for (sign, fits), flat, whole in zip(sides, flats, wholes, strict=True):
            means = share @ flat
            if leverage != 1.0:
                means = whole + leverage * (means - whole)
            means = means.reshape(-1, len(fits), fits.shape[2])
            if callable(statistic):
                each = np.asarray(statistic(means), dtype=np.float64)
            elif statistic == "worst":
                each = curve_minimum(curve_coefficients(means))[0]
            else:
                each = means.max(axis=-1)  # for "mean", the maximum of a single value
            difference += sign * each.mean(axis=-1)
        return difference

    return evaluate


def _value(sides: Sides, statistic: Statistic, strata: Any) -> float:
    """Return the difference of the statistics over all participants."""
    return float(_evaluator(sides, statistic, strata)(np.ones((1, sides[0][1].shape[1])))[0])


def _optimism(sides: Sides, statistic: Statistic, strata: Any, leverage: float) -> float:
    """Return the bias of the difference from choosing the best readers; 0 for statistics without a choice."""
    if statistic != "best":
        return 0.0
    return sum(sign * optimism(fits, strata, leverage) for sign, fits in sides)


def _interval(
    sides: Sides, statistic: Statistic, strata: Any, leverage: float, widen: bool, n_draws: int
) -> Estimate:
    """Return the difference of the statistics with its bootstrap interval.

    The bias from choosing the best reader is subtracted. Draws contain this bias twice, so they are centred
    on the corrected value.
    """
    grouped, groups = in_groups(sides, strata)
    evaluate, n = _evaluator(grouped, statistic, groups, leverage), grouped[0][1].shape[1]
    cells = cells_of(groups, n)
    value = float(evaluate(np.ones((1, n)))[0]) if grouped is sides else _value(sides, statistic, strata)
    resampled = np.concatenate([evaluate(counts) for counts in draws_of(cells, n, n_draws)])
    if statistic == "best":
        value -= _optimism(sides, statistic, strata, leverage)
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
    """Return the ends of Hall's interval (1992), from the leave-one-out values of participants.

    If few participants lose much, a sample seldom contains them, and a symmetric interval is too short on
    their side. T + γT²/3√n + γ²T³/27n + γ/6√n, with γ the skewness of participants, is nearly normal; its
    inverse is exact.
    """
    n = len(left_out)
    own = (n - 1) * (left_out.mean() - left_out)  # influence of each participant on the value, times n
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
