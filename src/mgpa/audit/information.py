"""Measure source information in bits, and the recognition of participants.

Equation (2) of the paper splits the source information in corrected rows R(H), with Q the preserved part:

    I(U; R(H)) = I(U; Q) + I(U; R(H) | Q)

Corrections inside the gate do not change the first term and should lower the second. Both are measured by
conditional probing (Hewitt, Ethayarajh, Liang and Manning 2021; Xu and others 2020): the cross-entropy of the
best reader of Q minus that of the best reader of Q and R(H) together. Readers are trained on HEAD
participants, and their scores are calibrated to probabilities on EVAL participants other than the scored
ones. Therefore I(U; Q) and the sum are lower bounds, except for random error. Cross-entropies are in bits per
row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from ..labels import encode_source, is_paired, to_numpy
from .bootstrap import estimate
from .estimates import Estimate
from .ranks import ranks, score_columns
from .readers.common import Scores
from .readers.logistic import inverse_root
from .readers.vectors import run_readers

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

#: Number of groups of participants; the readers for one group are weighted on the other groups.
GROUPS = 5
#: Number of readers to combine, and the ridge penalty of their weights.
READERS = 3
RIDGE, NEWTON_STEPS, SMALL_STEP = 1.0, 30, 1e-8
#: Standardised scores are clipped at this value.
FAR = 8.0
#: Number of other participants with which a row is compared, and minimum number of rows of a participant.
OTHERS, FEWEST_ROWS = 32, 4


@dataclass(frozen=True)
class SourceInformation:
    """Information about the source in bits per row, for each participant.

    Attributes
    ----------
    participants : tuple of str
        The first axis of the arrays.
    preserved, editable : (P,) arrays
        I(U; Q) and I(U; R(H) | Q): means over the participant's rows.
    """

    participants: tuple[str, ...]
    preserved: Floats
    editable: Floats

    @property
    def I_Q(self) -> Estimate:
        """I(U; Q) with its interval over participants; corrections inside the gate cannot change it."""
        return estimate(self.preserved, widen=True)

    @property
    def I_R(self) -> Estimate:
        """I(U; R(H) | Q) with its interval over participants; corrections should lower it."""
        return estimate(self.editable, widen=True)

    @property
    def total(self) -> Estimate:
        """I(U; R(H)), the sum of both, with its interval over participants."""
        return estimate(self.preserved + self.editable, widen=True)


def source_information(
    X_head: Any,
    source_head: Any,
    X_eval: Any,
    source_eval: Any,
    participants: Any,
    gate: Any,
    **readers: Any,
) -> SourceInformation:
    """Return I(U; Q) and I(U; R(H) | Q) of rows, in bits, by conditional probing.

    Reference: Hewitt, Ethayarajh, Liang, Manning, "Conditional probing: measuring usable information beyond a
    baseline", EMNLP 2021; the baseline is the part that the gate preserves.

    Needs a gate, sources, and EVAL participants, some to fit probabilities and others to score. No task.

    What it cannot do: find information that none of its readers finds. I(U; Q) and the sum are lower bounds;
    information that readers miss in Q alone, but not in complete rows, is included in the second term.

    Parameters
    ----------
    X_head, source_head, X_eval, source_eval : arrays
        Corrected (or uncorrected) HEAD and EVAL rows (n, d), and their sources.
    participants : (n_eval,) array
        Participants of the EVAL rows.
    gate : (d, r) array
        Orthonormal basis of the gate, in the coordinates of the rows: ``model.gate_.basis_`` where these are
        standardised as the model standardises them.
    **readers
        Settings of :func:`mgpa.audit.run_readers`; by default the full bank without networks.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> source, person = np.tile([0, 1], 1000), np.repeat(np.arange(20), 100)
    >>> X = rng.normal(size=(2000, 3)) + 2 * np.outer(source, [1.0, 0.0, 0.0])
    >>> rows = X[:1000], source[:1000], X[1000:], source[1000:]
    >>> found = source_information(*rows, person[1000:], np.eye(3)[:, :1])
    >>> bool(found.I_Q.value < 0.02), bool(0.4 < found.I_R.value < 0.6)
    (True, True)
    """
    head, held = (np.asarray(to_numpy(X), dtype=np.float64) for X in (X_head, X_eval))
    basis = np.asarray(to_numpy(gate), dtype=np.float64)
    if basis.ndim != 2 or basis.shape[0] != head.shape[-1]:
        raise ValueError(
            f"gate has shape {basis.shape}; expected ({head.shape[-1]}, r), one column per direction."
        )
    how: dict[str, Any] = {"bank": "full", "restarts": 0} | readers
    preserved = [X - (X @ basis) @ basis.T for X in (head, held)]
    of_q = run_readers(preserved[0], source_head, preserved[1], **how)
    of_all = run_readers(head, source_head, held, **how)
    sources = np.unique(to_numpy(source_head))
    codes = np.searchsorted(sources, to_numpy(source_eval))
    names, who = encode_source(participants, len(held), name="participants")
    bits = information_of_scores(_stacked(of_q), _stacked(of_all), codes, who)
    return SourceInformation(tuple(map(str, names.tolist())), *bits)


def _stacked(scores: Scores) -> NDArray[Any]:
    return np.stack(list(scores.values()), axis=1)


def information_of_scores(
    of_preserved: NDArray[Any], of_all: NDArray[Any], codes: Codes, units: Codes
) -> tuple[Floats, Floats]:
    """Return I(U; Q) and I(U; R(H) | Q) of each unit in bits from scores of readers.

    Parameters
    ----------
    of_preserved, of_all : (n, R) arrays, or (n, R, K) of more than two sources
        Scores of readers of Q, and of Q and R(H) together: of whole corrected rows.
    codes, units : (n,) arrays
        Source and unit of each row, numbered from 0. Units without rows have NaN; all units have NaN if fewer
        than two have rows.

    Notes
    -----
    From each set, the readers with the largest AUROC on other units are used; a logistic regression, fitted
    on other units, converts their scores to probabilities. The readers of Q and R(H) together include the
    scores from Q. Readers are used only if they lower the cross-entropy of other units: probabilities fitted
    on few units may be worse than none. Both terms are therefore below zero only by chance.
    """
    n_units, n_sources = int(units.max()) + 1, int(codes.max()) + 1
    bits = np.full((2, n_units), np.nan)
    present = np.unique(units)
    if len(present) < 2 or n_sources < 2:
        return bits[0], bits[1]
    group = np.searchsorted(present, units) % min(GROUPS, len(present))
    loss = np.empty((3, len(codes)))
    for g in np.unique(group):
        own, others = group == g, group != g
        chosen_q = _logits(of_preserved, codes, others)
        chosen_all = np.concatenate([chosen_q, _logits(of_all, codes, others)], axis=1)
        for row, features in enumerate((np.empty((len(codes), 0)), chosen_q, chosen_all)):
            weight = multinomial(features[others], codes[others], n_sources)
            logs = log_softmax(_with_one(features[own]) @ weight, axis=1)
            loss[row, own] = -np.take_along_axis(logs, codes[own][:, None], axis=1)[:, 0] / np.log(2.0)
    count = np.bincount(units, minlength=n_units)[present]
    nothing, q, everything = (np.bincount(units, row, minlength=n_units)[present] / count for row in loss)
    groups = np.arange(len(present)) % min(GROUPS, len(present))
    q = _where_lower(q, nothing, groups)
    everything = _where_lower(everything, q, groups)
    bits[0, present], bits[1, present] = nothing - q, q - everything
    return bits[0], bits[1]


def _where_lower(loss: Floats, without: Floats, groups: Codes) -> Floats:
    """Return the loss of each unit with readers, or without them if they do not help in other groups."""
    chosen = without.copy()
    for g in np.unique(groups):
        others = groups != g
        if loss[others].mean() < without[others].mean():
            chosen[~others] = loss[~others]
    return chosen


def of_floor(cell: Mapping[str, Any], floor: Mapping[str, Any] | None) -> dict[str, Floats]:
    """Return bits from scores of an audit's readers for corrected rows and for their preserved part."""
    if floor is None:
        return {}
    scores = floor["source_scores"], cell["source_scores"]
    q, r = information_of_scores(*scores, cell["eval_source"], cell["eval_person"])
    return {"information_q": q, "information_r": r}


def _logits(scores: NDArray[Any], codes: Codes, rows: NDArray[np.bool_]) -> Floats:
    """Return the scores of the readers that are best on the given rows, standardised on these rows.

    For more than two sources, they are the log-probabilities of each source.
    """
    areas = np.zeros(scores.shape[1])
    for k, column in score_columns(scores):
        positive, n = codes[rows] == k, int(rows.sum())
        m = int(positive.sum())
        if 0 < m < n:
            areas += (ranks(column[rows])[positive].sum(axis=0) - m * (m + 1) / 2) / (m * (n - m))
    best = np.argsort(-areas, kind="stable")[:READERS]
    chosen = scores[:, best].astype(np.float64)
    if chosen.ndim == 3:
        chosen = np.log(chosen.clip(1e-6)).reshape(len(chosen), -1)
    middle, spread = np.median(chosen[rows], axis=0), chosen[rows].std(axis=0)
    return np.asarray(((chosen - middle) / np.where(spread > 0, spread, 1.0)).clip(-FAR, FAR))


def _with_one(X: Floats) -> Floats:
    return np.concatenate([X, np.ones((len(X), 1))], axis=1)


def multinomial(X: Floats, codes: Codes, n_sources: int) -> Floats:
    """Return the weights (features + 1, K) of a logistic regression with a small ridge, by Newton steps."""
    X = _with_one(X)
    p, K = X.shape[1], n_sources
    weight, target = np.zeros((p, K)), np.eye(K)[codes]
    penalty = np.full((p, K), RIDGE)
    penalty[-1] = 1e-6  # for the intercepts
    for _ in range(NEWTON_STEPS):
        probability = np.exp(log_softmax(X @ weight, axis=1))
        gradient = X.T @ (probability - target) + penalty * weight
        hessian = np.empty((p, K, p, K))
        for a in range(K):
            for b in range(K):
                curvature = probability[:, a] * ((a == b) - probability[:, b])
                hessian[:, a, :, b] = (X * curvature[:, None]).T @ X
        flat = hessian.reshape(p * K, p * K) + np.diag(penalty.reshape(-1))
        step = np.linalg.solve(flat, gradient.reshape(-1)).reshape(p, K)
        # Limit steps, which may overshoot far from the minimum; weights are of order one.
        step *= min(1.0, 4.0 / max(float(np.abs(step).max()), 1e-12))
        weight -= step
        if np.abs(step).max() < SMALL_STEP:
            break
    return weight


def identity_auroc(
    X_head: Any, people_head: Any, X_eval: Any, people_eval: Any, events: Any = None, seed: int = 98
) -> Floats:
    """Return the AUROC for recognising rows of each EVAL participant among those of others, (P,).

    Half of a participant's events are the reference; each row of the other half should be closer to it than
    to the references of up to 32 random other participants. Distances are those of a linear discriminant:
    rows are whitened by the covariance within HEAD participants, so that directions in which participants
    differ have large weights. A correction that lowers the AUROC of the source but not this AUROC preserves
    differences between participants; a correction that lowers both also removes information about
    participants, which may or may not be desired. Time is linear in rows. Participants with fewer than four
    rows have NaN.

    Parameters
    ----------
    X_head, people_head, X_eval, people_eval : (n, d) and (n,) arrays
        Rows of HEAD and EVAL, and their participants.
    events : (n_eval,) array or None
        Rows of one event stay in one half (``pair_id``); unpaired rows are separate events.
    seed : int
        Seed for the choice of other participants.
    """
    head, held = (np.asarray(to_numpy(X), dtype=np.float64) for X in (X_head, X_eval))
    who = encode_source(people_head, len(head), name="people_head")[1]
    total = np.stack([np.bincount(who, column) for column in head.T], axis=1)
    within = head - (total / np.bincount(who)[:, None])[who]
    white = held @ inverse_root(within.T @ within / len(within))
    names, person = encode_source(people_eval, len(held), name="people_eval")
    order = sorted(range(len(names)), key=lambda i: str(names[i]))
    person = np.argsort(order)[person]
    P = len(names)
    event = np.arange(len(held))
    if events is not None:  # unpaired rows are events of their own
        paired = is_paired(ids := to_numpy(events))
        event[paired] = len(held) + np.unique(ids[paired], return_inverse=True)[1]
    half = _alternating(event, person)
    values = np.full(P, np.nan)
    counts = np.stack([np.bincount(person[half == h], minlength=P) for h in (0, 1)])
    usable = np.flatnonzero((counts > 0).all(axis=0) & (counts.sum(axis=0) >= FEWEST_ROWS))
    if len(usable) < 2:
        return values
    rng = np.random.default_rng(seed)
    right, seen = np.zeros(P), np.zeros(P)
    for h in (0, 1):
        reference = np.stack(
            [np.bincount(person[half == h], column, P) for column in white[half == h].T], axis=1
        )
        reference[usable] = reference[usable] / counts[h][usable, None]
        tested = np.flatnonzero((half != h) & np.isin(person, usable))
        tested = tested[np.argsort(person[tested], kind="stable")]
        for rows in np.split(tested, np.flatnonzero(np.diff(person[tested])) + 1):
            own = person[rows[0]]
            others = usable if len(usable) <= OTHERS else rng.choice(usable, OTHERS)
            others = others[others != own]
            apart = ((white[rows][:, None] - reference[others][None]) ** 2).sum(axis=2)
            near = ((white[rows] - reference[own]) ** 2).sum(axis=1)[:, None]
            right[own] += ((near < apart) + 0.5 * (near == apart)).mean(axis=1).sum()
            seen[own] += len(rows)
    values[usable] = right[usable] / seen[usable]
    return values


def _alternating(event: Codes, person: Codes) -> Codes:
    """Return the half (0 or 1) of each row; the events of each participant alternate."""
    order = np.lexsort((event, person))
    new_person = np.r_[True, np.diff(person[order]) != 0]
    new_event = np.r_[True, np.diff(event[order]) != 0] | new_person
    number = np.cumsum(new_event)
    first = np.maximum.accumulate(np.where(new_person, number, 0))
    half = np.empty(len(event), np.int64)
    half[order] = (number - first) % 2
    return half
