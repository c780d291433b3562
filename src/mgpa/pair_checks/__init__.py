"""Check pairs before use: do they join views of one event, and are some of them wrong?

Two views of one event should be closer than views of different events. :func:`examine_pairs` answers three
questions from both views, without labels and without the rows.

1. *Do pairs match at all?* The squared distance within pairs is compared with that of mismatched pairs, over
   participants. Noise increases the distance within correct pairs. Pairs are called mismatched only if the
   upper bound of the share of signal is below :data:`LEAST_SIGNAL`, and if no permutation test finds a match,
   neither for the views nor for their similarities, which rotations and gains do not change.
2. *Are some of them wrong?* :mod:`mgpa.pair_checks.wrong`: some fit other events better, or share no signal.
3. *Are they copies?* Identical views show no effect, and a pair given twice adds no evidence
   (:func:`mgpa.pairs.repeated_pairs`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from ..errors import WrongPairs, first_few
from ..evidence import t_quantile
from ..linalg import BLOCK, blocks
from ..pairs import Pairs, repeated_pairs, row_keys
from ..statistics import Statistics, scale_doubt
from .views import (
    CLIP,
    Floats,
    Ints,
    comparable,
    exchangeable,
    exchanged,
    medians,
    near,
    principal_axes,
    robust_scale,
    robust_slope,
)
from .wrong import Suspicion, suspect, swapped_units

LEAST_SIGNAL = 0.2  # share of signal in one view, if noise has twice the standard deviation of the signal
# Levels of the bound on closeness, and of the permutation test if that bound finds no match.
LEVEL, RESCUED = 0.05, 0.001
SUGGESTED = 0.1  # level of the permutation test at which pairs count as matched
FEWEST = 6  # minimum number of pairs for an examination
ENOUGH = 20  # pairs that can be called mismatched: fewer cannot tell a rotation from a mismatch
MOST = 300  # maximum number of examined pairs; from more, a random sample
PERMUTATIONS = 99
# Limit in robust standard deviations beyond which a fit leaves a pair out, and the largest share left out.
FAR, MOST_FAR = 6.0, 0.2
LAGS = 5  # largest shift of clocks that is searched for, in pairs
CLEARLY_LATE = 4.0  # standard errors for a clear shift of clocks


class Pairing(Enum):
    """The result of the test of whether pairs join views of one event."""

    MATCHED = "matched"  # views of one event are closer than mismatched ones
    UNCLEAR = "unclear"  # pairs are too few or too noisy for a decision
    DOUBTFUL = "doubtful"  # some pairs may join views of different events
    PARTLY_WRONG = "partly wrong"  # some pairs join views of different events
    MISMATCHED = "mismatched"  # pairs are not closer than by chance
    IDENTICAL = "identical"  # both views are the same numbers


@dataclass(frozen=True)
class PairExamination:
    """The evidence of both views on the pairs; positions refer to the examined arrays."""

    pairing: Pairing
    n_pairs: int
    n_units: int  # number of participants or, if unknown, of pairs
    by_participant: bool
    closeness: float = np.nan  # distance within pairs relative to mismatched views (root mean square)
    closeness_low: float = 0.0  # lower one-sided bound of closeness (95 %)
    wrong_share: float = 0.0  # estimated share of pairs that join views of different events
    evidence: float = 0.0  # evidence for wrong pairs: twice the log likelihood ratio
    wrong: tuple[int, ...] = ()  # wrong pairs, the clearest first
    # For each wrong pair, the pair whose first view fits its second view best; empty if noise hides it.
    belongs_to: tuple[int, ...] = ()
    swapped: tuple[tuple[Any, Any], ...] = ()  # participants whose second views fit each other's first views
    # Shift in the given order, in pairs, from second views to the first views that fit them; 0: none.
    lag: int = 0
    n_identical: int = 0  # pairs whose views are the same numbers
    repeats: tuple[int, ...] = ()  # exact copies of earlier pairs

    @property
    def is_wrong(self) -> bool:
        """Whether the pairs should not be used unchanged."""
        return self.pairing in (Pairing.PARTLY_WRONG, Pairing.MISMATCHED, Pairing.IDENTICAL)


def examine_pairs(
    A: Any, B: Any, participants: Any = None, kinds: Any = None, *, random_state: int = 0
) -> PairExamination:
    """Test whether rows of A and B are views of the same events, and find wrong pairs.

    Parameters
    ----------
    A, B : (m, d) arrays
        First and second views.
    participants : (m,) array or None
        Participant of each event. If participants have several events, views are permuted within them.
    kinds : (m,) array or None
        Number of the two sources of each pair, for more than two sources; pairs of different kinds are not
        compared.
    random_state : int
        Seed of permutations and, with more than :data:`MOST` pairs, of the sample.
    """
    A, B = (np.asarray(side, dtype=np.float64) for side in (A, B))
    rng, repeats, n = np.random.default_rng(random_state), repeated_pairs(A, B), len(A)
    chosen = np.setdiff1d(np.arange(n), repeats)
    if len(chosen) > MOST:
        chosen = np.sort(rng.choice(chosen, MOST, replace=False))
    units, by_participant = _units(participants, chosen)
    n_units, n_identical = len(np.unique(units)), int(np.sum((A == B).all(axis=1)))
    found = PairExamination(
        Pairing.UNCLEAR, n, n_units, by_participant, n_identical=n_identical, repeats=tuple(repeats.tolist())
    )
    if n_identical == n:
        return replace(found, pairing=Pairing.IDENTICAL)
    if len(chosen) < FEWEST or n_units < 2:
        return found
    kind = np.zeros(len(chosen), np.int64)
    if kinds is not None:
        kind = np.unique(kinds, return_inverse=True)[1].ravel()[chosen]
    a, b = comparable(A[chosen], B[chosen], kind)
    order = units if by_participant else kind
    late = late_by(a, b, order) if ENOUGH <= len(chosen) == n else 0
    found = _matching(replace(found, lag=late), a, b, units, kind, rng)
    if found.pairing is Pairing.MISMATCHED:
        return found
    suspicion = suspect(a, b, units, kind, rng)
    if not suspicion.doubted:
        return replace(found, evidence=suspicion.evidence)
    names = (
        None if participants is None or not by_participant else np.unique(np.asarray(participants)[chosen])
    )
    return _with_wrong(found, suspicion, chosen, units, names)


def _matching(
    found: PairExamination, a: Floats, b: Floats, units: Ints, kind: Ints, rng: np.random.Generator
) -> PairExamination:
    """Return the examination with the closeness of pairs, and whether they match at all."""
    blocks = exchangeable(units, kind)
    signal, error = shared_signal(a, b, units, blocks)
    margin = t_quantile(LEVEL, found.n_units - 1) * error
    chance = match_chance(a, b, blocks, rng)
    pairing = found.pairing
    if found.lag or (signal + margin < LEAST_SIGNAL and chance > RESCUED and len(a) >= ENOUGH):
        pairing = Pairing.MISMATCHED
    elif signal - margin > 0 or chance <= SUGGESTED:
        pairing = Pairing.MATCHED
    return replace(
        found,
        pairing=pairing,
        closeness=float(np.sqrt(max(0.0, 1.0 - signal))),
        closeness_low=float(np.sqrt(np.clip(1.0 - signal - margin, 0.0, None))),
    )


def _units(participants: Any, chosen: NDArray[np.intp]) -> tuple[Ints, bool]:
    """Return the unit of each pair as a number, and whether units are participants (else single pairs)."""
    if participants is not None:
        codes = np.unique(participants, return_inverse=True)[1].ravel()[chosen]
        units = np.unique(codes, return_inverse=True)[1]
        if units.max(initial=0) > 0:
            return units, True
    return np.arange(len(chosen)), False


def _with_wrong(
    found: PairExamination, suspicion: Suspicion, chosen: NDArray[np.intp], units: Ints, names: Any
) -> PairExamination:
    """Return the examination with the probably wrong pairs; ``names`` has the participant of each unit."""
    order = np.argsort(-suspicion.probability, kind="stable")
    order = order[suspicion.probability[order] > 0.5]
    other = suspicion.belongs_to
    swapped: tuple[tuple[Any, Any], ...] = ()
    if other is not None and names is not None:
        swapped = tuple((names[p].item(), names[q].item()) for p, q in swapped_units(units, order, other))
    return replace(
        found,
        pairing=Pairing.PARTLY_WRONG if suspicion.clear else Pairing.DOUBTFUL,
        wrong_share=suspicion.share,
        evidence=suspicion.evidence,
        wrong=tuple(chosen[order].tolist()),
        belongs_to=() if other is None else tuple(chosen[other[order]].tolist()),
        swapped=swapped,
    )


def require_right_pairs(pairs: Pairs) -> str:
    """Return doubts about pairs in words; raise if some of them join views of different events."""
    found = examine_pairs(pairs.a, pairs.b, pairs.participants, kinds_of(pairs))
    if found.pairing is Pairing.PARTLY_WRONG or found.lag:
        ids = range(len(pairs)) if pairs.ids is None else pairs.ids
        raise WrongPairs(sentence(found, pairs.ids), [ids[i] for i in found.wrong])
    return doubt(found, pairs.ids)


def usable_pairs(data: Statistics) -> tuple[Statistics, Pairs, str, str]:
    """Return the statistics and pairs without outliers, doubts about pairs, and a note on omitted pairs.

    Raises if some of the pairs join views of different events.
    """
    pairs = data.pairs()
    doubts = [require_right_pairs(pairs), scale_doubt(data.sample, data.standardizer(True))]
    far = far_off(pairs)
    if not len(far):
        return data, pairs, " ".join(filter(None, doubts)), ""
    n, data = len(pairs), data.without_views(pairs.take(far))
    doubts[0] = doubts[0] and require_right_pairs(data.pairs(again=True))
    doubtful = " ".join(filter(None, doubts))
    names = "" if pairs.ids is None else f" ({first_few([str(pairs.ids[i]) for i in far], 4)})"
    return (
        data,
        data.pairs(again=True),
        doubtful,
        f"{len(far)} of {n} pairs are outliers and were left out{names}",
    )


def kinds_of(pairs: Pairs) -> Ints:
    """Return a number for the two sources of each pair."""
    return np.asarray(pairs.first * (1 + pairs.kind.max(initial=0)) + pairs.second)


def far_off(pairs: Pairs) -> NDArray[np.intp]:
    """Return the positions of pairs whose contrast is far from the prediction from their midpoint.

    A few such pairs (a value of fifty standard deviations) would dominate the fit. Contrasts are predicted
    from gains and rotations. No pair is called an outlier if there are too few pairs, or if there would be
    more than a few outliers.
    """
    kind, found = kinds_of(pairs), np.zeros(len(pairs), bool)
    for some in [np.flatnonzero(kind == one) for one in np.unique(kind)]:
        if len(some) < 2 * FEWEST:
            continue
        # Compare all pairs, in blocks, with the predictions from a sample.
        draw = some[np.argsort(row_keys(pairs.a[some]))[:MOST]]  # independent of the order of pairs
        center = [medians(side[draw].T) for side in (pairs.a, pairs.b)]
        X = np.concatenate([pairs.a[draw] - center[0], pairs.b[draw] - center[1]])
        scale = robust_scale(X)
        varies: Any = slice(None) if (scale > 0).all() else scale > 0  # a mask would copy all views
        scale = scale[varies]
        X = np.clip(X[:, varies] / scale, -CLIP, CLIP)
        axes = principal_axes(X - X.mean(axis=0))
        slope, distance = robust_slope(*np.split(X @ axes, 2)), np.empty(len(some))
        for part in blocks(len(some), max(1, BLOCK // (8 * X.shape[1]))):
            a, b = (
                (side[some[part]] - c)[:, varies] / scale
                for side, c in zip((pairs.a, pairs.b), center, strict=True)
            )
            distance[part] = np.linalg.norm(b - a - (a + b) / 2 @ axes @ slope @ axes.T, axis=1)
        far = ~near(distance, FAR)
        found[some] = far & (far.mean() <= MOST_FAR)
    return np.flatnonzero(found)


def doubt(found: PairExamination, ids: Any = None) -> str:
    """Return a sentence about doubtful or wrong pairs; empty for other pairs.

    With enough pairs, unclear results are rare for correct pairs and frequent for shuffled pairs.
    """
    unclear = found.pairing is Pairing.UNCLEAR and found.n_pairs - len(found.repeats) >= ENOUGH
    doubtful = found.is_wrong or found.pairing is Pairing.DOUBTFUL or unclear
    return sentence(found, ids) if doubtful else ""


def sentence(found: PairExamination, ids: Any = None) -> str:
    """Return the result in words; ``ids`` has the names of pairs (default: numbers from 0)."""
    n = found.n_pairs

    def names(pairs: tuple[int, ...]) -> str:
        return first_few([str(i if ids is None else ids[i]) for i in pairs])

    if found.pairing is Pairing.IDENTICAL:
        return f"Both views of all {n} pairs are the same numbers: check where the second view comes from."
    if found.pairing in (Pairing.PARTLY_WRONG, Pairing.DOUBTFUL):
        sure = found.pairing is Pairing.PARTLY_WRONG
        text = (
            f"About {found.wrong_share:.0%} of the {n} pairs {'' if sure else 'may '}join views of different "
            "events. "
        )
        if not found.wrong:
            return text + "Check their ids."
        text += f"The clearest are pairs {names(found.wrong)}"
        if found.belongs_to:
            text += f": their second views fit the first views of pairs {names(found.belongs_to)} better. "
        else:
            text += ": their views share no signal. With much noise, some wrong pairs are missed, and some "
            text += "correct pairs are named. "
        if found.swapped:
            text += (
                "Participants were exchanged: " + first_few([f"{p} and {q}" for p, q in found.swapped]) + ". "
            )
        return text + ("Correct their ids, or leave these pairs out." if sure else "Check their ids.")
    if found.lag:
        where = f"{abs(found.lag)} pair{'s' * (abs(found.lag) > 1)} {'later' if found.lag > 0 else 'earlier'}"
        return (
            f"The second views fit the first views {where} better than their own: check the clocks of both "
            "recordings."
        )
    if found.pairing is Pairing.MISMATCHED:
        return (
            f"Views of one event are not closer than those of different events ({found.closeness:.2f} of "
            f"their distance, {n} pairs): the ids are wrong, but the pairs' mean difference may be right."
        )
    if found.pairing is Pairing.UNCLEAR:
        return f"{n} pairs with this noise do not show whether they join views of one event: check their ids."
    return f"Views of one event are closer than those of different events ({found.closeness:.2f} as far)."


def shared_signal(a: Floats, b: Floats, units: Ints, blocks: Ints) -> tuple[float, float]:
    """Return the share of variance that both views have in common, and its standard error over units."""
    within, mismatched = np.sum((b - a) ** 2, axis=1), np.zeros(len(a))
    for block in np.unique(blocks[blocks >= 0]):
        rows = np.flatnonzero(blocks == block)
        # The mean squared distance of a view to all second views of the block except its own.
        mean = b[rows].mean(axis=0)
        total = len(rows) * np.sum((a[rows] - mean) ** 2, axis=1) + np.sum((b[rows] - mean) ** 2)
        mismatched[rows] = (total - within[rows]) / (len(rows) - 1)
    within = np.where(blocks >= 0, within, 0.0)
    x, y = np.bincount(units, within), np.bincount(units, mismatched)
    if not y.sum() > 0:
        return 0.0, np.inf
    left_out, n = 1.0 - (x.sum() - x) / np.maximum(y.sum() - y, 1e-300), len(x)
    error = np.sqrt((n - 1) / n * np.sum((left_out - left_out.mean()) ** 2))
    return float(1.0 - x.sum() / y.sum()), float(error)


def match_chance(a: Floats, b: Floats, blocks: Ints, rng: np.random.Generator) -> float:
    """Return the p-value of a match of views, from two statistics.

    The first is the inner product of both views of an event. The second is the inner product of their
    similarities to other events, which does not change if a device rotates or mixes features. Both are
    compared with views exchanged within blocks, by a normal approximation of their permutation distribution.
    """
    # For many pairs, use a sample, because similarities are computed between all pairs.
    rows = np.arange(len(a)) if len(a) <= 500 else np.sort(rng.choice(len(a), 500, replace=False))
    inner, alike_a, alike_b = a[rows] @ b[rows].T, a[rows] @ a[rows].T, b[rows] @ b[rows].T
    some, here = blocks[rows], np.arange(len(rows))
    found, shuffled = np.empty((PERMUTATIONS + 1, 2)), np.empty((2, *alike_b.shape))
    for i in range(PERMUTATIONS + 1):
        p = exchanged(some, rng) if i else here
        # Reuse arrays, because allocating new ones takes longer than the computation.
        np.take(alike_b, p, axis=0, out=shuffled[0], mode="clip")
        np.take(shuffled[0], p, axis=1, out=shuffled[1], mode="clip")
        found[i] = inner[here, p].sum(), np.vdot(alike_a, shuffled[1])
    spread = found[1:].std(axis=0)
    if not (spread > 0).all():
        return 1.0
    z = (found[0] - found[1:].mean(axis=0)) / spread
    return float(min(1.0, 2.0 * scipy.stats.norm.sf(z.max())))


def late_by(a: Floats, b: Floats, units: Ints) -> int:
    """Return the shift, in pairs, at which first views fit the second views better than their own.

    Negative means earlier; 0 means that no shift is clearly better. Shifted clocks pair neighbouring events,
    so neighbours in the given order are compared within units. Correct pairs fit no other event better. If
    content repeats (replicates, alternating trials), earlier and later views fit equally well, and no shift
    of clocks is reported.
    """
    inner = a @ b.T
    fits = {lag: _fits_better(inner, units, lag) for lag in range(-LAGS, LAGS + 1) if lag}
    best = max(fits, key=lambda lag: fits[lag])
    other_way = max((lag for lag in fits if lag * best < 0), key=lambda lag: fits[lag])
    both_ways = fits[other_way] > CLEARLY_LATE and _fits_better(inner, units, best, other_way) < CLEARLY_LATE
    return best if fits[best] > CLEARLY_LATE and not both_ways else 0


def _fits_better(inner: Floats, units: Ints, lag: int, other: int = 0) -> float:
    """Return by how many standard errors second views fit first views at this lag better than at another."""
    last = len(inner) - max(0, lag, other)
    second = np.arange(max(0, -lag, -other), last)
    second = second[(units[second] == units[second + lag]) & (units[second] == units[second + other])]
    if len(second) < ENOUGH // 2:
        return -np.inf
    better = inner[second + lag, second] - inner[second + other, second]
    return float(better.mean() / max(better.std(ddof=1), 1e-300) * np.sqrt(len(second)))
