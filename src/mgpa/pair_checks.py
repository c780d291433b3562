"""Pairs are examined before they are used: do they join views of one event, and are some of them wrong?

Two views of one event should be closer than views of different events. :func:`examine_pairs` asks three
questions of both views, without labels and without the rows.

1. *Do pairs match at all?* The squared distance within pairs is compared with that of mismatched pairs, over
   participants. Noise makes right pairs less close: they are called mismatched only if the share of signal is
   below :data:`LEAST_SIGNAL`, by its upper bound, and if no permutation test finds a match, neither of the
   views as they are nor of their similarities, which rotations and gains leave as they are.
2. *Are some of them wrong?* Every distance within a pair comes from a right pair, f, or is like those of
   mismatched views, g. A pair that is only noisy fits no other event either. A wrong one does, as long as its
   event is among the pairs. So with the shares w of wrong and v of noisy pairs the likelihood is

       Σ log[(1 - w - v) f/g + w · (mean of f/g over the other events) + v],

   and its largest value is compared with that of w = 0 (:data:`DOUBTED`, :data:`CLEAR`).
3. *Are they copies?* Identical views show no effect, and a pair given twice adds no evidence
   (:func:`mgpa.pairs.repeated_pairs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import scipy.linalg
import scipy.stats
from numpy.typing import NDArray

from .errors import WrongPairs, first_few
from .evidence import principal_directions, t_quantile
from .linalg import BLOCK, blocks
from .moments import PIECE
from .pairs import Pairs, repeated_pairs, row_keys
from .statistics import Statistics, scale_doubt

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_SIGNAL = 0.2  # share of signal in one view: noise with twice the signal's standard deviation
LEVEL, RESCUED = 0.05, 0.001  # of the bound on closeness; of a permutation test that finds a match after all
SUGGESTED = 0.1  # level of that test from which on enough pairs are not called unclear
# Twice the log likelihood ratio from which on pairs are doubted, and called wrong: see how_often_wrong.md.
DOUBTED, CLEAR = 1.0, 4.0
FEWEST = 6  # pairs; of fewer nothing can be told
ENOUGH = 20  # pairs that can be called mismatched: fewer cannot tell a rotation from a mismatch
MOST = 300  # pairs examined; of more, a draw
MOST_AXES = 32
PERMUTATIONS = 99
CLIP = 6.0  # robust standard deviations: no cell weighs more
# Robust standard deviations from which on a pair is left out of a fit, and the share that may be.
FAR, MOST_FAR = 6.0, 0.2
FOLDS, TRIM = 5, 4.0  # of regressions; median absolute deviations from which on a pair takes no part in them
RIDGE = 0.1  # of the mean variance of midpoints
LAGS = 5  # neighbours among which a shift of clocks is looked for
CLEARLY_LATE = 4.0  # standard errors


class Pairing(Enum):
    """What is known of whether pairs join views of one event."""

    MATCHED = "matched"  # views of one event are closer than mismatched ones
    UNCLEAR = "unclear"  # too few, or too noisy, to tell
    DOUBTFUL = "doubtful"  # some pairs may join views of different events
    PARTLY_WRONG = "partly wrong"  # some pairs join views of different events
    MISMATCHED = "mismatched"  # pairs are no closer than chance makes them
    IDENTICAL = "identical"  # both views are the same numbers


@dataclass(frozen=True)
class PairExamination:
    """What the two views say about the pairs; positions are those of the arrays examined."""

    pairing: Pairing
    n_pairs: int
    n_units: int  # participants, or pairs where they are not known
    by_participant: bool
    closeness: float  # root of the squared distance in pairs relative to that of mismatched views
    closeness_low: float  # and its one-sided bound (95 %), below which it is not
    wrong_share: float  # estimated share of pairs that join views of different events
    evidence: float  # for it: twice the log likelihood ratio; clear from CLEAR on
    wrong: tuple[int, ...]  # such pairs, the clearest first
    belongs_to: tuple[int, ...]  # whose first view fits the second view of each of them best
    swapped: tuple[tuple[Any, Any], ...]  # participants whose second views fit each other's first views
    lag: (
        int  # how many pairs later, in the given order, the first views are that the second ones fit; 0: none
    )
    n_identical: int  # pairs whose views are the same numbers
    repeats: tuple[int, ...]  # pairs that are given before, number for number

    @property
    def is_wrong(self) -> bool:
        """Whether the pairs should not be used as they are."""
        return self.pairing in (Pairing.PARTLY_WRONG, Pairing.MISMATCHED, Pairing.IDENTICAL)


def examine_pairs(
    A: Any, B: Any, participants: Any = None, kinds: Any = None, *, random_state: int = 0
) -> PairExamination:
    """Return whether rows of A and B join views of the same events, and which do not.

    Parameters
    ----------
    A, B : (m, d) arrays
        First and second views.
    participants : (m,) array or None
        The event's participant. If a participant has several events, these are exchanged for comparison.
    kinds : (m,) array or None
        Which two sources a pair is of, if there are more than two; pairs of different kinds are not compared.
    random_state : int
        Seed of permutations and, beyond :data:`MOST` pairs, of the draw.
    """
    A, B = (np.asarray(side, dtype=np.float64) for side in (A, B))
    repeats, n = repeated_pairs(A, B), len(A)
    n_identical = int(np.sum((A == B).all(axis=1)))
    rng = np.random.default_rng(random_state)
    chosen = np.setdiff1d(np.arange(n), repeats)
    if len(chosen) > MOST:
        chosen = np.sort(rng.choice(chosen, MOST, replace=False))
    who = None if participants is None else np.unique(participants, return_inverse=True)[1].ravel()[chosen]
    units = np.arange(len(chosen)) if who is None else np.unique(who, return_inverse=True)[1]
    known = who is not None and units.max(initial=0) > 0
    units = units if known else np.arange(len(chosen))
    kind = np.zeros(len(chosen), np.int64)
    if kinds is not None:
        kind = np.unique(kinds, return_inverse=True)[1].ravel()[chosen]
    facts: dict[str, Any] = {
        "n_pairs": n, "n_units": len(np.unique(units)), "by_participant": known, "closeness": np.nan,
        "closeness_low": 0.0, "wrong_share": 0.0, "evidence": 0.0, "wrong": (), "belongs_to": (),
        "swapped": (), "lag": 0, "n_identical": n_identical, "repeats": tuple(repeats.tolist()),
    }  # fmt: skip
    if n_identical == n:
        return PairExamination(Pairing.IDENTICAL, **facts)
    if len(chosen) < FEWEST or len(np.unique(units)) < 2:
        return PairExamination(Pairing.UNCLEAR, **facts)
    a, b = comparable(A[chosen], B[chosen], kind)
    blocks = exchangeable(units, kind)
    signal, error = shared_signal(a, b, units, blocks)
    df = facts["n_units"] - 1
    facts["closeness"] = float(np.sqrt(max(0.0, 1.0 - signal)))
    upper = signal + t_quantile(LEVEL, df) * error
    facts["closeness_low"] = float(np.sqrt(np.clip(1.0 - upper, 0.0, None)))
    chance = match_chance(a, b, blocks, rng)
    facts["lag"] = late_by(a, b, units if known else kind) if ENOUGH <= len(chosen) == n else 0
    if facts["lag"] or (upper < LEAST_SIGNAL and chance > RESCUED and len(chosen) >= ENOUGH):
        return PairExamination(Pairing.MISMATCHED, **facts)
    distances = pair_distances(*principal_coordinates(a, b), units, kind, rng)
    share, evidence, own, other = wrong_pairs(distances)
    matched = signal - t_quantile(LEVEL, df) * error > 0 or chance <= SUGGESTED
    pairing = Pairing.MATCHED if matched else Pairing.UNCLEAR
    if evidence > DOUBTED:
        pairing = Pairing.PARTLY_WRONG if evidence > CLEAR else Pairing.DOUBTFUL
        order = np.argsort(-own, kind="stable")
        order = order[own[order] > 0.5]
        facts |= {
            "wrong_share": share,
            "wrong": tuple(chosen[order].tolist()),
            "belongs_to": tuple(chosen[other[order]].tolist()),
            "swapped": swapped_units(units, order, other) if known else (),
        }
        if participants is not None:
            names = np.unique(np.asarray(participants)[chosen])
            facts["swapped"] = tuple((names[p].item(), names[q].item()) for p, q in facts["swapped"])
    return PairExamination(pairing, **(facts | {"evidence": evidence}))


def require_right_pairs(pairs: Pairs) -> str:
    """Return what is doubtful about pairs; raise if some of them join views of different events."""
    found = examine_pairs(pairs.a, pairs.b, pairs.participants, kinds_of(pairs))
    if found.pairing is Pairing.PARTLY_WRONG or found.lag:
        ids = range(len(pairs)) if pairs.ids is None else pairs.ids
        raise WrongPairs(sentence(found, pairs.ids), [ids[i] for i in found.wrong])
    return doubt(found, pairs.ids)


def usable_pairs(data: Statistics) -> tuple[Statistics, Pairs, str, str]:
    """Return statistics and pairs without those far off, what is doubtful, and what was left out.

    Raises if some of the pairs join views of different events.
    """
    pairs = data.pairs()
    doubts = [require_right_pairs(pairs), scale_doubt(data.sample, data.standardizer(True))]
    far = far_off(pairs)
    if not len(far):
        return data, pairs, " ".join(filter(None, doubts)), ""
    n, data = len(pairs), data.without_views(pairs.take(far))
    doubts[0] = doubts[0] and require_right_pairs(data.pairs())
    doubtful = " ".join(filter(None, doubts))
    names = "" if pairs.ids is None else f" ({first_few([str(pairs.ids[i]) for i in far], 4)})"
    return data, data.pairs(), doubtful, f"{len(far)} of {n} pairs are far off the others and left out{names}"


def kinds_of(pairs: Pairs) -> Ints:
    """Return a number for the two sources of each pair."""
    return np.asarray(pairs.first * (1 + pairs.kind.max(initial=0)) + pairs.second)


def far_off(pairs: Pairs) -> NDArray[np.intp]:
    """Return the positions of pairs whose contrast is far from what their midpoint predicts.

    A few such pairs (a cell of fifty standard deviations) would decide the fit. Contrasts are predicted as
    gains and rotations make them. None is far off where there are too few to tell, or more than a few.
    """
    kind, found = kinds_of(pairs), np.zeros(len(pairs), bool)
    for some in [np.flatnonzero(kind == one) for one in np.unique(kind)]:
        if len(some) < 2 * FEWEST:
            continue
        # A draw of many pairs says what is usual; all are compared with it, a block at a time.
        draw = some[np.argsort(row_keys(pairs.a[some]))[:MOST]]  # whatever their order
        center = [np.median(side[draw], axis=0) for side in (pairs.a, pairs.b)]
        X = np.concatenate([pairs.a[draw] - center[0], pairs.b[draw] - center[1]])
        scale = robust_scale(X)
        varies = scale > 0
        X = np.clip(X[:, varies] / scale[varies], -CLIP, CLIP)
        axes = principal_directions(X - X.mean(axis=0), X.shape[1])[0][:, :MOST_AXES]
        slope, distance = robust_slope(*np.split(X @ axes, 2)), np.empty(len(some))
        for part in blocks(len(some), max(1, BLOCK // (8 * X.shape[1]))):
            a, b = (
                ((side[some[part]] - c) / np.where(varies, scale, 1.0))[:, varies]
                for side, c in zip((pairs.a, pairs.b), center, strict=True)
            )
            distance[part] = np.linalg.norm(b - a - (a + b) / 2 @ axes @ slope @ axes.T, axis=1)
        far = ~near(distance, FAR)
        found[some] = far & (far.mean() <= MOST_FAR)
    return np.flatnonzero(found)


def doubt(found: PairExamination, ids: Any = None) -> str:
    """Return the sentence about pairs that are doubtful or wrong; empty for others.

    Enough right pairs are hardly ever unclear, shuffled ones often.
    """
    unclear = found.pairing is Pairing.UNCLEAR and found.n_pairs - len(found.repeats) >= ENOUGH
    doubtful = found.is_wrong or found.pairing is Pairing.DOUBTFUL or unclear
    return sentence(found, ids) if doubtful else ""


def sentence(found: PairExamination, ids: Any = None) -> str:
    """Return what was found, in words; ``ids`` are names of the pairs, else they are counted from 0."""
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
        text += (
            f"The clearest are pairs {names(found.wrong)}: their second views fit the first views of pairs "
            f"{names(found.belongs_to)} better. "
        )
        if found.swapped:
            text += (
                "Participants were exchanged: " + first_few([f"{p} and {q}" for p, q in found.swapped]) + ". "
            )
        return text + ("Mend their ids, or leave them out." if sure else "Check their ids.")
    if found.lag:
        where = f"{abs(found.lag)} pair{'s' * (abs(found.lag) > 1)} {'later' if found.lag > 0 else 'earlier'}"
        return (
            f"The second views fit the first views {where} better than their own: check the clocks of both "
            "recordings."
        )
    if found.pairing is Pairing.MISMATCHED:
        return (
            f"Views of one event are no closer than those of different events ({found.closeness:.2f} of "
            f"their distance, {n} pairs): the pairs' mean difference may be right, the ids are not."
        )
    if found.pairing is Pairing.UNCLEAR:
        return f"{n} pairs of this noise cannot tell whether they join views of one event: check their ids."
    return f"Views of one event are closer than those of different events ({found.closeness:.2f} as far)."


def robust_scale(X: Floats) -> Floats:
    """Return the median absolute size of each feature as a standard deviation; that itself, if it is 0."""
    scale, deviation = 1.4826 * medians(np.abs(X).T), X.std(axis=0)
    return np.asarray(np.where(scale > 1e-3 * deviation, scale, deviation))


def comparable(A: Floats, B: Floats, kind: Ints) -> tuple[Floats, Floats]:
    """Return both views, centred by source, in robust units of each feature, no cell beyond CLIP of them."""
    labels = np.concatenate([2 * kind, 2 * kind + 1])
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    X, varies = np.empty((len(labels), A.shape[1])), np.empty(A.shape[1], bool)
    for columns in blocks(A.shape[1], max(1, PIECE // len(labels))):  # which stay in cache
        part = np.concatenate([A[:, columns], B[:, columns]]).T.copy()
        for rows in groups:
            part[:, rows] -= medians(part[:, rows])[:, None]
        scale = robust_scale(part.T)
        varies[columns] = scale > 0
        part /= np.where(scale > 0, scale, 1.0)[:, None]
        np.clip(part, -CLIP, CLIP, out=part)
        for rows in groups:
            part[:, rows] -= part[:, rows].mean(axis=1, keepdims=True)
        X[:, columns] = part.T
    X = X if varies.all() else X[:, varies]
    return X[: len(A)], X[len(A) :]


def medians(rows: Floats) -> Floats:
    """Return the median of every row; of few numbers each, sorting is several times as fast as numpy's."""
    rows, k = np.sort(rows, axis=1), rows.shape[1] // 2
    return np.asarray(rows[:, k] if rows.shape[1] % 2 else (rows[:, k - 1] + rows[:, k]) / 2)


def exchangeable(units: Ints, kind: Ints) -> Ints:
    """Return a label for every pair: those with the same one can exchange views.

    They are a participant's events, of the same sources; of participants with one event, anybody's.
    """
    label = units * (kind.max() + 1) + kind
    _, code, size = np.unique(label, return_inverse=True, return_counts=True)
    label = np.where(size[code] > 1, code, len(size) + kind)
    _, code, size = np.unique(label, return_inverse=True, return_counts=True)
    return np.where(size[code] > 1, code, -1)  # an event alone of its kind has nothing to exchange with


def exchanged(blocks: Ints, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return positions in which members of every block have changed places at random."""
    places = np.arange(len(blocks))
    shuffled = rng.permutation(len(blocks))
    places[np.argsort(blocks, kind="stable")] = shuffled[np.argsort(blocks[shuffled], kind="stable")]
    return places


def shared_signal(a: Floats, b: Floats, units: Ints, blocks: Ints) -> tuple[float, float]:
    """Return the share of one view that the other has too, and its standard error over units (jackknife)."""
    within, mismatched = np.sum((b - a) ** 2, axis=1), np.zeros(len(a))
    for block in np.unique(blocks[blocks >= 0]):
        rows = np.flatnonzero(blocks == block)
        # The mean squared distance of a view to all second views of the block but its own.
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
    """Return how often chance matches views as well: a p-value, of two statistics together.

    One is the inner product of both views of an event; the other that of their similarities to other events,
    which does not change where a device rotates or mixes the features. Both are compared with views exchanged
    within blocks, by a normal approximation of their permutation distribution.
    """
    # Of many pairs a draw will do: similarities are between all of them.
    rows = np.arange(len(a)) if len(a) <= 500 else np.sort(rng.choice(len(a), 500, replace=False))
    inner, alike_a, alike_b = a[rows] @ b[rows].T, a[rows] @ a[rows].T, b[rows] @ b[rows].T
    some, here = blocks[rows], np.arange(len(rows))
    found, shuffled = np.empty((PERMUTATIONS + 1, 2)), np.empty((2, *alike_b.shape))
    for i in range(PERMUTATIONS + 1):
        p = exchanged(some, rng) if i else here
        # Into arrays that are there: new ones would take longer than what is written into them.
        np.take(alike_b, p, axis=0, out=shuffled[0], mode="clip")
        np.take(shuffled[0], p, axis=1, out=shuffled[1], mode="clip")
        found[i] = inner[here, p].sum(), np.vdot(alike_a, shuffled[1])
    spread = found[1:].std(axis=0)
    if not (spread > 0).all():
        return 1.0
    z = (found[0] - found[1:].mean(axis=0)) / spread
    return float(min(1.0, 2.0 * scipy.stats.norm.sf(z.max())))


def late_by(a: Floats, b: Floats, units: Ints) -> int:
    """Return how many pairs later the first views are that the second views fit better than their own.

    Negative: earlier; 0: none is clearly better. Neighbours in the given order are compared within units, as
    clocks that are shifted leave them. Of right pairs none fits better than its own.
    """
    inner, best, found = a @ b.T, CLEARLY_LATE, 0
    for lag in [lag for lag in range(-LAGS, LAGS + 1) if lag]:
        second = np.arange(max(0, -lag), len(a) - max(0, lag))
        second = second[units[second] == units[second + lag]]
        if len(second) < ENOUGH // 2:
            continue
        better = inner[second + lag, second] - inner[second, second]
        t = float(better.mean() / max(better.std(ddof=1), 1e-300) * np.sqrt(len(second)))
        best, found = (t, lag) if t > best else (best, found)
    return found


def principal_coordinates(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return both views along the leading principal axes of all views."""
    X, m = np.concatenate([a, b]), len(a)
    k = min(X.shape[1], MOST_AXES, max(2, m // 2))
    if X.shape[1] <= k:
        return a, b
    few = X.shape[1] > len(X)
    gram = X @ X.T if few else X.T @ X
    values, axes = scipy.linalg.eigh(gram, subset_by_index=[len(gram) - k, len(gram) - 1])
    X = axes * np.sqrt(np.clip(values, 0.0, None)) if few else X @ axes
    return X[:m], X[m:]


def pair_distances(a: Floats, b: Floats, units: Ints, kind: Ints, rng: np.random.Generator) -> Floats:
    """Return how far the second view of every event (rows) is from the first view of every other (columns).

    Contrasts are predicted from midpoints first, as gains and rotations make them (fitted on other units'
    pairs, without those far off), if that brings views closer. Directions count as far as pairs are closer
    along them than mismatched views. The cube root makes sums of squares nearly normal. Views of different
    kinds are infinitely far.
    """
    fold = rng.permutation(units.max() + 1)[units] % FOLDS
    identity = np.eye(a.shape[1])
    plain = [(np.arange(len(a)), np.zeros_like(identity))]
    fitted = [(np.flatnonzero(fold == f), robust_slope(a[fold != f], b[fold != f])) for f in np.unique(fold)]
    best, chosen = np.inf, (a, b, plain)
    for slopes in (plain, fitted) if len(a) >= 2 * FEWEST else (plain,):
        own, others = np.empty_like(a), np.empty_like(a)
        shuffled = np.argsort(kind, kind="stable")
        shuffled = shuffled[np.argsort(np.argsort(kind, kind="stable"), kind="stable") - 1]
        for rows, W in slopes:
            second, first = b @ (identity - W / 2), a @ (identity + W / 2)
            own[rows], others[rows] = second[rows] - first[rows], second[rows] - first[shuffled[rows]]
        ratio = float(np.median(np.sum(own**2, axis=1)) / np.median(np.sum(others**2, axis=1)))
        if ratio < 0.9 * best:
            best, chosen = ratio, (own, others, slopes)
    own, others, slopes = chosen
    variance = np.median(others**2, axis=0)
    variance = np.maximum(variance, 1e-6 * variance.max())
    share = (len(a) * np.median(own**2, axis=0) / variance + 20.0 * best) / (len(a) + 20.0)
    weight = (1.0 / np.clip(share, 0.02, 0.98) - 1.0) / variance
    found = np.empty((len(a), len(a)))
    for rows, W in slopes:
        second, first = (
            (b[rows] @ (identity - W / 2)) * np.sqrt(weight),
            (a @ (identity + W / 2)) * np.sqrt(weight),
        )
        squared = np.sum(second**2, axis=1)[:, None] + np.sum(first**2, axis=1) - 2.0 * second @ first.T
        found[rows] = np.cbrt(np.clip(squared, 0.0, None))
    found[kind[:, None] != kind] = np.inf
    return found


def robust_slope(a: Floats, b: Floats) -> Floats:
    """Return the ridge regression of contrasts on midpoints, without pairs that are far off it."""
    contrasts, midpoints = b - a, (a + b) / 2
    kept = np.ones(len(a), bool)
    for _ in range(3):
        M, C = midpoints[kept], contrasts[kept]
        scatter = M.T @ M
        scatter[np.diag_indices_from(scatter)] += RIDGE * np.trace(scatter) / len(scatter) + 1e-300
        W = np.linalg.solve(scatter, M.T @ C)
        kept = near(np.linalg.norm(contrasts - midpoints @ W, axis=1))
    return np.asarray(W)


def near(distances: Floats, trim: float = TRIM) -> NDArray[np.bool_]:
    """Return which distances are within ``trim`` median absolute deviations of the median, or below."""
    middle = np.median(distances)
    return np.asarray(distances <= middle + trim * 1.4826 * np.median(np.abs(distances - middle)))


def wrong_pairs(distances: Floats) -> tuple[float, float, Floats, Ints]:
    """Return the share of wrong pairs, its evidence, each pair's probability, and where it belongs.

    ``distances`` (m, m) are those of :func:`pair_distances`, its diagonal that of the pairs.
    """
    m, own = len(distances), np.diag(distances).copy()
    off = ~np.eye(m, dtype=bool) & np.isfinite(distances)
    mismatched = distances[off]
    middle, width = np.median(own), 1.4826 * np.median(np.abs(own - np.median(own)))
    grid = np.linspace(0.0, max(mismatched.max(), own.max()) * 1.05 + 1e-12, 512)
    step = grid[1] - grid[0]
    # How mismatched views are distributed, smoothed by about a tenth of their spread.
    counts = np.histogram(mismatched, bins=np.append(grid - step / 2, grid[-1] + step / 2))[0]
    spread = mismatched.std()
    kernel = np.exp(-0.5 * ((grid - grid[256]) / max(0.15 * spread, step)) ** 2)
    density = np.convolve(counts / counts.sum(), kernel / kernel.sum(), "same") / step

    def unlike(x: Any) -> Any:
        return np.maximum(np.interp(x, grid, density), 1e-4 / spread)

    width = max(width, 0.02 * spread)
    right = np.ones(m)
    for _ in range(50):  # how right pairs are distributed, where some are wrong
        ratio = scipy.stats.norm.pdf(own, middle, width) / unlike(own)
        share = np.clip(1.0 - right.mean(), 0.01, 0.9)
        right = (1 - share) * ratio / ((1 - share) * ratio + share)
        middle = np.sum(right * own) / right.sum()
        width = max(np.sqrt(np.sum(right * (own - middle) ** 2) / right.sum()), 0.02 * spread)
    ratio = scipy.stats.norm.pdf(own, middle, width) / unlike(own)
    others = np.zeros((m, m))
    others[off] = scipy.stats.norm.pdf(distances[off], middle, width) / unlike(distances[off])
    elsewhere = others.sum(axis=1) / np.maximum(off.sum(axis=1), 1)
    # Each at its best shares: of wrong pairs, and of right ones that noise alone made unlike the others.
    shares = np.concatenate([[0.0], np.geomspace(0.5 / m, 0.95, 20)])
    w, noise = shares[:, None, None], shares[None, :, None]
    mixed = (1 - w - noise) * ratio + w * elsewhere + noise
    possible = (w + noise <= 1.0)[:, :, 0]
    found = np.where(possible, np.sum(np.log(np.maximum(mixed, 1e-300)), axis=2), -np.inf)
    best = np.unravel_index(int(found.argmax()), found.shape)
    share = float(shares[best[0]])
    of_wrong = share * elsewhere / np.maximum(mixed[best], 1e-300)
    return share, float(2.0 * (found[best] - found[0].max())), of_wrong, others.argmax(axis=1)


def swapped_units(units: Ints, wrong: NDArray[np.intp], belongs_to: Ints) -> tuple[tuple[int, int], ...]:
    """Return participants whose wrong pairs belong to each other: most pairs of both, and both ways."""
    size, n = np.bincount(units), units.max() + 1
    goes = np.zeros((n, n), np.int64)
    np.add.at(goes, (units[wrong], units[belongs_to[wrong]]), 1)
    most = goes > 0.5 * size[:, None]
    return tuple((p, q) for p in range(n) for q in range(p + 1, n) if most[p, q] and most[q, p])
