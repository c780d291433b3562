"""Intervals over participants: the shared bootstrap draws of the paper (appendix B).

Participants, not trials or seeds, are what a result should generalise over, so they are what is redrawn. In
every draw the whole statistic is computed again, the maximum over readers and the minimum over associations
included, then averaged over fits. All methods share the draws, so differences are paired.

Values come as arrays with the fits first:

=============  ===============================  ========================================================
statistic      values                           computed in every draw, for every fit
=============  ===============================  ========================================================
``"mean"``     [fit, participant]               mean over participants
``"max"``      [fit, participant, reader]       mean over participants, then maximum over readers
``"worst"``    [fit, participant, 3]            mean AUROC curve through ξ = -1, 0, 1, then its minimum
a function     [fit, participant, k]            means over participants (..., k) in, one number each (...) out
=============  ===============================  ========================================================

Further leading axes are fits too: values [orientation, fit, participant, reader] give the maximum for each
orientation and fit, then the mean over both. One fit needs no fit axis. Instead of an array, a
:class:`~mgpa.audit.roc.ByParticipant` is one fit, a list of them several fits; these know who the
participants are, and two sides that disagree are refused. Participants of a plain array must be in the same
order everywhere: sorted as strings, for the draws to be those of the paper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .association import curve_coefficients, curve_minimum
from .roc import ByParticipant

Floats = NDArray[np.float64]
Statistic = str | Callable[[Floats], Any]

BLOCK = 256
# Draws, their seed and the coverage of intervals: the paper's.
DRAWS = 20_000
SEED = 1101
LEVEL = 0.95
# With fewer participants percentile intervals are noticeably too narrow.
FEW = 12


@dataclass(frozen=True)
class Estimate:
    """A value and its interval.

    Formats like a number, every part alike; the zero before the point is left out unless the format asks
    for it.

    Examples
    --------
    >>> gain = Estimate(0.0574, 0.0338, 0.0831)
    >>> print(gain)
    .057 [.034, .083]
    >>> f"{gain:.4f}", f"{gain:+.3f}", f"{gain:0.3f}"
    ('.0574 [.0338, .0831]', '+.057 [+.034, +.083]', '0.057 [0.034, 0.083]')
    """

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        spec = spec or ".3f"
        # Equal values that were summed in another order must print alike.
        value, low, high = (format(round(x, 9), spec) for x in (self.value, self.low, self.high))
        if "0" not in spec.partition(".")[0]:
            value, low, high = (re.sub(r"^([+ -]?)0\.", r"\1.", text) for text in (value, low, high))
        return f"{value} [{low}, {high}]"

    def __str__(self) -> str:
        return format(self)


def draws(n_participants: int, n_draws: int = DRAWS, seed: int = SEED) -> Iterator[NDArray[np.int64]]:
    """Yield blocks of bootstrap draws: (at most 256, n) participant indices, a draw in each row.

    Together they are ``default_rng(seed).integers(n, size=(n_draws, n))``; blocks bound the memory.

    Examples
    --------
    >>> [block.shape for block in draws(8, n_draws=600)]
    [(256, 8), (256, 8), (88, 8)]
    """
    for name, count in (("n_participants", n_participants), ("n_draws", n_draws)):
        if count < 1:
            raise ValueError(f"{name} must be one or more; got {count!r}.")
    rng = np.random.default_rng(seed)
    for start in range(0, n_draws, BLOCK):
        yield rng.integers(n_participants, size=(min(BLOCK, n_draws - start), n_participants))


def estimate(
    values: Any,
    statistic: Statistic = "mean",
    *,
    n_draws: int = DRAWS,
    seed: int = SEED,
    level: float = LEVEL,
) -> Estimate:
    """Return a statistic and its percentile interval over participants.

    Parameters
    ----------
    values : array, ByParticipant, or list of ByParticipant
        See the table at the top of this module.
    statistic : {"mean", "max", "worst"} or callable
        See the same table.
    n_draws, seed : int
        Draws; the defaults are the paper's.
    level : float
        Coverage of the interval.

    Examples
    --------
    >>> print(estimate([[0.58, 0.61, 0.64, 0.57], [0.60, 0.62, 0.65, 0.58]]))
    .606 [.583, .631]
    """
    fits = _read(values, statistic)
    return _interval(
        lambda counts: _evaluate(counts, fits, statistic), fits.n_participants, n_draws, seed, level
    )


def contrast(
    a: Any,
    b: Any,
    statistic: Statistic = "mean",
    *,
    n_draws: int = DRAWS,
    seed: int = SEED,
    level: float = LEVEL,
) -> Estimate:
    """Return the statistic of a minus that of b, and the interval of the difference in shared draws.

    Each side takes its own maximum or minimum in every draw. A method fitted once compares with one fitted
    several times; otherwise the fits of both sides correspond.

    Parameters
    ----------
    a, b : array, ByParticipant, or list of ByParticipant
        The two methods, on the same participants.
    statistic, n_draws, seed, level
        As in :func:`estimate`.

    Examples
    --------
    >>> once, twice = [0.58, 0.61, 0.64], [[0.59, 0.63, 0.64], [0.59, 0.61, 0.64]]
    >>> print(contrast(twice, once))
    .007 [.000, .010]
    """
    first, second = _read(a, statistic, "a"), _read(b, statistic, "b")
    _require_same_people(first, second)
    try:
        np.broadcast_shapes(first.leading, second.leading)
    except ValueError:
        raise ValueError(
            f"a has {_describe(first.leading)} and b {_describe(second.leading)}; the fits must "
            "correspond. Pass the same fits of both, or one fit of either."
        ) from None
    return _interval(
        lambda counts: _evaluate(counts, first, statistic) - _evaluate(counts, second, statistic),
        first.n_participants,
        n_draws,
        seed,
        level,
    )


def leave_one_out(values: Any, statistic: Statistic = "mean") -> Floats:
    """Return the statistic without each participant in turn, in the order of the participants.

    How far these spread tells how much a result leans on one person.

    Examples
    --------
    >>> leave_one_out([0.5, 0.5, 0.8]).round(3).tolist()
    [0.65, 0.65, 0.5]
    """
    fits = _read(values, statistic)
    _require_several(fits.n_participants)
    return _evaluate(1.0 - np.eye(fits.n_participants), fits, statistic)


@dataclass(frozen=True)
class _Fits:
    """Checked values [fit, participant, k], the leading axes they had, and who (empty: unknown)."""

    values: Floats
    leading: tuple[int, ...]
    participants: tuple[str, ...]

    @property
    def n_participants(self) -> int:
        return int(self.values.shape[1])


def _read(values: Any, statistic: Statistic, name: str = "values") -> _Fits:
    if isinstance(statistic, str) and statistic not in ("mean", "max", "worst"):
        raise ValueError(f"statistic must be 'mean', 'max', 'worst' or a function; got {statistic!r}.")
    # Axes after the fits: participants alone for the mean, participants and readers (or ξ) otherwise.
    inner = 1 if statistic == "mean" else 2
    participants, array, depth = _stack(values, name)
    if array.ndim < inner or not array.size or (participants and array.ndim - depth != inner):
        wanted = "[fit, participant]" if inner == 1 else "[fit, participant, reader]"
        raise ValueError(f"{name} has shape {array.shape}; statistic {statistic!r} takes {wanted}.")
    leading = array.shape[:-inner]
    if statistic == "worst" and array.shape[-1] != 3:
        raise ValueError(
            f"{name} has shape {array.shape}; statistic 'worst' takes [fit, participant, 3], AUROC at "
            "xi = -1, 0, 1."
        )
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        raise ValueError(
            f"{name} is NaN or infinite {len(bad)} times in {array.size}, first at {tuple(bad[0].tolist())}. "
            "Nobody is dropped silently: compute every value, or leave the participant out of all methods."
        )
    n = array.shape[-inner]
    return _Fits(array.reshape(int(np.prod(leading)), n, -1), leading, participants)


def _stack(values: Any, name: str) -> tuple[tuple[str, ...], Floats, int]:
    """Return who the participants are (empty: unknown), the values as one array, and how many lists deep."""
    if isinstance(values, ByParticipant):
        return values.participants, values.values, 0
    if not isinstance(values, (list, tuple)) or not _holds_participants(values):
        return (), np.asarray(values, dtype=np.float64), 0
    parts = [_stack(part, f"{name}[{i}]") for i, part in enumerate(values)]
    who, first, depth = parts[0]
    for i, (others, array, _) in enumerate(parts):
        if who != others:
            raise ValueError(_disagreement(f"{name}[0]", who, f"{name}[{i}]", others))
        if array.shape != first.shape:
            raise ValueError(
                f"{name}[0] has shape {first.shape} but {name}[{i}] {array.shape}; fits must agree."
            )
    return who, np.stack([array for _, array, _ in parts]), depth + 1


def _holds_participants(values: Any) -> bool:
    while isinstance(values, (list, tuple)) and values:
        values = values[0]
    return isinstance(values, ByParticipant)


def _evaluate(counts: Floats, fits: _Fits, statistic: Statistic) -> Floats:
    """Return the statistic, averaged over fits, of draws with ``counts[i, p]`` times participant p."""
    n_fits, n, k = fits.values.shape
    share = counts / counts.sum(axis=1, keepdims=True)
    means = (share @ fits.values.transpose(1, 0, 2).reshape(n, n_fits * k)).reshape(-1, n_fits, k)
    if callable(statistic):
        each = np.asarray(statistic(means), dtype=np.float64)
        if each.shape != means.shape[:-1]:
            raise ValueError(
                f"The statistic turned means of shape {means.shape} into {each.shape}; it must reduce the "
                "last axis and keep the others."
            )
    elif statistic == "worst":
        each = curve_minimum(curve_coefficients(means))[0]
    else:
        each = means.max(axis=-1)  # for "mean" of the one value
    return np.asarray(each.mean(axis=-1))


def _interval(
    evaluate: Callable[[Floats], Floats], n_participants: int, n_draws: int, seed: int, level: float
) -> Estimate:
    """Return the value with every participant once, and the percentiles over bootstrap draws."""
    _require_several(n_participants)
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, for instance .95; got {level!r}.")
    value = evaluate(np.ones((1, n_participants)))[0]
    resampled = np.concatenate([evaluate(_counts(block)) for block in draws(n_participants, n_draws, seed)])
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(value), float(low), float(high))


def _counts(block: NDArray[np.int64]) -> Floats:
    """Return how often each participant occurs in each draw."""
    size, n = block.shape
    flat = block + n * np.arange(size)[:, None]
    return np.bincount(flat.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def _require_several(n_participants: int) -> None:
    if n_participants < 2:
        raise ValueError(
            "There is one participant; how a result varies over participants needs two or more. "
            "A single array of values is [fit, participant]."
        )


def _require_same_people(a: _Fits, b: _Fits) -> None:
    if a.participants and b.participants and a.participants != b.participants:
        raise ValueError(_disagreement("a", a.participants, "b", b.participants))
    if a.n_participants != b.n_participants:
        raise ValueError(
            f"a has {a.n_participants} participants and b {b.n_participants}; a paired comparison is between "
            "the same people."
        )


def _disagreement(a: str, who_a: tuple[str, ...], b: str, who_b: tuple[str, ...]) -> str:
    parts = [
        f"{side} lacks {', '.join(missing)}"
        for side, missing in ((a, sorted(set(who_b) - set(who_a))), (b, sorted(set(who_a) - set(who_b))))
        if missing
    ]
    return f"{a} and {b} are not about the same participants: {'; '.join(parts)}. Compare the same people."


def _describe(leading: tuple[int, ...]) -> str:
    return f"fits of shape {leading}" if len(leading) > 1 else f"{int(np.prod(leading))} fits"
