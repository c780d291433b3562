"""Association shift: what happens to a head when device and label go together, then come apart (appendix B).

Every event was recorded by both devices. Choosing which recording a head sees, with a probability that
depends on the label, makes the device predict the label: one way (ξ = 1), not at all (ξ = 0), or the other
way (ξ = -1). The signals never change. A head trained at ξ = 1 learns the shortcut; its AUROC over ξ in
[-1, 1], and above all the lowest point of that curve, tells how much the shortcut costs.

Everything here needs both views of every event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from .._common.checks import as_float_matrix, require_finite
from ..critics import balanced_weights
from ..errors import UsageError
from ..pairs import encode_source, to_numpy
from ..tables.table import Table
from .diagnostics import UNASSOCIATED, confounding
from .ranks import ByParticipant, check_scores, participant_auroc

Floats = NDArray[np.float64]

#: The associations at which AUROC is evaluated: reversed, independent, aligned. They determine the curve.
ASSOCIATIONS: tuple[float, ...] = (-1.0, 0.0, 1.0)

#: How far, at most, the probability of a device departs from one half.
DEPARTURE = 0.4

#: The inverse regularisations tried for the paper's heads: 10⁻⁶, 10⁻⁵, …, 10.
C_GRID: tuple[float, ...] = tuple(10.0**k for k in range(-6, 2))


@dataclass(frozen=True)
class Direction:
    """A source and the label associated with it where a shortcut is learned (ξ = 1).

    The other label is then associated with the other source.
    """

    source: Any
    label: Any

    def __str__(self) -> str:
        return f"{self.label} goes with {self.source}"


def find_directions(source: Any, label: Any) -> tuple[Direction, ...]:
    """Return the direction in which two sources and two labels go together; both, if they do not.

    Rows whose association is none to speak of (Cramér's V, corrected for chance, below .1) have no direction.
    The label is the rarer one, or that of the first row, so that names do not matter.

    Examples
    --------
    >>> find_directions(["dry", "wet", "dry", "wet"], ["left", "right", "left", "right"])
    (Direction(source='dry', label='left'),)
    """
    sources, labels = to_numpy(source), to_numpy(label)
    names, first = np.unique(sources, return_index=True)
    classes, counts = np.unique(labels, return_counts=True)
    rare = labels[0] if counts[0] == counts[1] else classes[counts.argmin()]
    share = [np.mean(labels[sources == name] == rare) for name in names]
    if (confounding(sources, np.zeros(len(sources)), labels).source_label or 0.0) >= UNASSOCIATED:
        return (Direction(names[int(np.argmax(share))].item(), rare.item()),)
    return tuple(Direction(name.item(), rare.item()) for name in names[np.argsort(first)])


def choose_directions(
    stated: tuple[Any, Any] | None, fit: Table, head: Table, evaluation: Table
) -> tuple[tuple[Direction, ...], str]:
    """Return which label is associated with which source where shortcuts are learned, and where that is from.

    No direction, where association shift cannot be measured: it needs events of two sources and two classes
    that both sources saw, in HEAD and in EVAL, and two HEAD participants or more.
    """
    views = head.paired_views()
    if views is None or evaluation.paired_views() is None or head.label is None:
        return (), ""
    labels = np.unique(head.label)
    if len(labels) != 2:
        return (), ""
    if len(np.unique(head.participant[views[0]])) < 2:
        return (), "HEAD has paired events of one participant, and shortcuts are learned of two or more"
    if stated is not None:
        # Compared as text, as a command line states them.
        chosen = []
        for what, value, entries in zip(("source", "label"), stated, (head.sources, labels), strict=True):
            same = [entry for entry in entries.tolist() if str(entry) == str(value)]
            if not same:
                names = ", ".join(map(str, entries.tolist()))
                raise UsageError(f"association names the {what} {value!r}; the table has {names}.")
            chosen.append(same[0])
        return (Direction(*chosen),), "stated"
    # FIT rows may have the labels of another task; they then say nothing about this one's.
    same_task = fit.label is not None and np.array_equal(np.unique(fit.label), labels)
    rows, role = (fit, "FIT") if same_task and len(fit.sources) == 2 else (head, "HEAD")
    return find_directions(rows.source, rows.label), role


def assignment_probability(y: Any, participants: Any, xi: float) -> Floats:
    """Return Pr(U = 1 | y, p; ξ), the probability that an event is seen through device 1.

    ½ + .4 ξ (y - π) / max(π, 1 - π), where π is the share of positive events (label 1) of the participant and
    ξ the association, from -1 to 1. Half of each participant's events are expected on each device at every ξ.

    Examples
    --------
    >>> assignment_probability([1, 0, 0, 0], ["p", "p", "p", "p"], xi=1).round(3).tolist()
    [0.9, 0.367, 0.367, 0.367]
    """
    labels = _labels(y)
    if not -1 <= xi <= 1:
        raise ValueError(f"xi must be between -1 (reversed) and 1 (aligned); got {xi!r}.")
    _, who = encode_source(participants, len(labels), name="participants")
    positive = (np.bincount(who, labels) / np.bincount(who))[who]
    return np.asarray(0.5 + DEPARTURE * xi * (labels - positive) / np.maximum(positive, 1 - positive))


def assign_endpoints(
    y: Any, participants: Any, xi: float, seed: int | np.random.Generator = 1017
) -> NDArray[np.int64]:
    """Return the device, 0 or 1, through which each event is seen: one realised assignment.

    Quotas rather than coin flips. Of each participant's n events, ⌊n / 2⌋ get device 1; among the positive
    ones as many as :func:`assignment_probability` adds up to, rounded (half up), the rest among the negative
    ones. Which events, chance decides: participants in string order, positives before negatives.

    Examples
    --------
    >>> y, who = [1] * 10 + [0] * 10, ["p"] * 20
    >>> device = assign_endpoints(y, who, xi=1)
    >>> int(device[:10].sum()), int(device[10:].sum())
    (9, 1)
    """
    labels = _labels(y)
    probability = assignment_probability(labels, participants, xi)
    rng = np.random.default_rng(seed)
    device = np.zeros(len(labels), np.int64)
    people = _people(participants, len(labels))
    for name in np.unique(people):
        events = np.flatnonzero(people == name)
        positives = rng.permutation(events[labels[events]])
        negatives = rng.permutation(events[~labels[events]])
        n_second = len(events) // 2
        quota = int(np.floor(probability[positives].sum() + 0.5))
        quota = min(max(quota, n_second - len(negatives)), len(positives), n_second)
        device[positives[:quota]] = 1
        device[negatives[: n_second - quota]] = 1
    return device


def association_auroc(scores0: Any, scores1: Any, y: Any, participants: Any) -> ByParticipant:
    """Return each participant's AUROC at ξ = -1, 0 and 1, exactly, as values (P, 3): no endpoint is drawn.

    ``scores0[i]`` and ``scores1[i]`` are a head's scores of two recordings of event i, with label 0 or 1.
    Both count, each with the probability of being the one seen.

    Examples
    --------
    A head that only sees the device:

    >>> association_auroc([0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0], ["p"] * 4).values.round(3)
    array([[0.1, 0.5, 0.9]])
    """
    scores0, scores1 = check_scores(scores0, "scores0"), check_scores(scores1, "scores1")
    labels = _labels(y)
    if not scores0.shape == scores1.shape == labels.shape:
        raise ValueError(
            f"scores0 {scores0.shape}, scores1 {scores1.shape} and y {labels.shape} must describe the same "
            "events, one entry each. Leave out events that only one device saw."
        )
    people = _people(participants, len(labels))
    twice = np.concatenate([scores0, scores1]), np.tile(labels, 2), np.tile(people, 2)
    curves = []
    for xi in ASSOCIATIONS:
        second = assignment_probability(labels, people, xi)
        weight = np.concatenate([1 - second, second])
        curves.append(participant_auroc(*twice, classes=(False, True), weight=weight))
    return ByParticipant(curves[0].participants, np.stack([curve.values for curve in curves], axis=-1))


def curve_coefficients(values: Any) -> Floats:
    """Return (a, b, c) of the AUROC curve aξ² + bξ + c through the values (..., 3) at ξ = -1, 0 and 1.

    The curve is exactly quadratic: a positive event's weight is linear in ξ, a negative one's too, their
    totals do not depend on ξ, and AUROC adds up products of the two.
    """
    reverse, independent, aligned = np.moveaxis(np.asarray(values, dtype=np.float64), -1, 0)
    half = (aligned + reverse) / 2
    return np.stack([half - independent, (aligned - reverse) / 2, independent], axis=-1)


def curve_at(coefficients: Any, xi: Any) -> Any:
    """Return aξ² + bξ + c: shape (...) for coefficients (..., 3) and one ξ, (..., m) for m of them."""
    coefficients = np.asarray(coefficients, dtype=np.float64)
    xi = np.asarray(xi, dtype=np.float64)
    a, b, c = (x.reshape(x.shape + (1,) * xi.ndim) for x in np.moveaxis(coefficients, -1, 0))
    return (a * xi + b) * xi + c


def curve_minimum(coefficients: Any) -> tuple[Any, Any]:
    """Return the lowest value of the curve on [-1, 1], and the ξ where it is reached.

    The candidates are -1, 0, 1 and, if a > 0 and -2a ≤ b ≤ 2a, the vertex -b / 2a; the first of them wins a
    tie.

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


@dataclass(frozen=True)
class AssociationHead:
    """A fitted logistic head and its scaler."""

    scaler: StandardScaler
    model: LogisticRegression

    def scores(self, X: Any) -> NDArray[Any]:
        """Return the probability of label 1 for each row of X, in the precision of X."""
        X = as_float_matrix(to_numpy(X), n_features=self.model.n_features_in_)
        return np.asarray(self.model.predict_proba(self.scaler.transform(X))[:, 1], dtype=X.dtype)


class AssociationHeads(NamedTuple):
    """Heads trained at ξ = 1 (shortcut) and ξ = 0 (control) on the same events, and how C was chosen.

    ``auroc`` is the leave-one-participant-out AUROC of the control head at each C of ``C_grid``.
    """

    shortcut: AssociationHead
    control: AssociationHead
    C: float
    C_grid: tuple[float, ...]
    auroc: tuple[float, ...]


def fit_association_heads(
    X0: Any,
    X1: Any,
    y: Any,
    participants: Any,
    *,
    C_grid: Sequence[float] | Floats = C_GRID,
    seed: int = 1017,
) -> AssociationHeads:
    """Fit the shortcut and the control head on one view of each event, as association decides.

    Both are balanced logistic regressions on scaled features, every participant weighing the same. C is the
    one with the best AUROC of the control head on participants left out in turn, both their views counting
    equally; ties go to the smaller C.

    Parameters
    ----------
    X0, X1 : (n, d) arrays
        Original features of the events through device 0 and device 1; row i of both is the same event.
    y, participants : (n,) arrays
        Task labels, 0 or 1, and who each event is from: two or more, each with both labels.
    C_grid : sequence of float
        Inverse regularisations to try.
    seed : int
        Decides which events are seen through which device; both assignments start from it.
    """
    X0, X1 = (as_float_matrix(to_numpy(X), name=name) for X, name in ((X0, "X0"), (X1, "X1")))
    labels = _labels(y)
    if not (X0.shape == X1.shape and len(X0) == len(labels)):
        raise ValueError(
            f"X0 has shape {X0.shape}, X1 {X1.shape} and y {labels.shape}; they must be two views and the "
            "label of the same events. Leave out events that only one device saw."
        )
    require_finite(X0, "X0")
    require_finite(X1, "X1")
    grid = sorted({float(C) for C in C_grid})
    people = _people(participants, len(labels))
    shortcut, control = (
        np.where(assign_endpoints(labels, people, xi, seed)[:, None] == 1, X1, X0) for xi in (1, 0)
    )
    auroc = _left_out_auroc(control, X0, X1, labels, people, grid)
    C = grid[int(np.argmax(auroc))]
    return AssociationHeads(
        shortcut=_fit_heads(shortcut, labels, people, [C])[0],
        control=_fit_heads(control, labels, people, [C])[0],
        C=C,
        C_grid=tuple(grid),
        auroc=tuple(auroc.tolist()),
    )


def _left_out_auroc(
    X: NDArray[Any],
    X0: NDArray[Any],
    X1: NDArray[Any],
    labels: NDArray[np.bool_],
    people: NDArray[np.str_],
    grid: list[float],
) -> Floats:
    """Return, for each C, the mean AUROC over participants of the head fitted on X without them."""
    everyone = np.unique(people)
    if len(everyone) < 2:
        raise ValueError(
            f"All events are from participant {str(everyone[0])!r}; choosing C leaves out each participant "
            "in turn and needs two or more."
        )
    scores = np.full((2, len(labels), len(grid)), 0.5)
    # Every participant needs both labels; better known before anything is fitted.
    participant_auroc(scores[0], labels, people, classes=(False, True))
    for name in everyone:
        out = people == name
        for k, head in enumerate(_fit_heads(X[~out], labels[~out], people[~out], grid)):
            scores[:, out, k] = head.scores(X0[out]), head.scores(X1[out])
    by_person = participant_auroc(
        np.concatenate(scores), np.tile(labels, 2), np.tile(people, 2), classes=(False, True)
    )
    return np.asarray(by_person.values.mean(axis=0))


def _fit_heads(
    X: NDArray[Any], labels: NDArray[np.bool_], people: NDArray[np.str_], grid: list[float]
) -> list[AssociationHead]:
    """Return a balanced, participant-weighted logistic head for each C."""
    _, person, counts = np.unique(people, return_inverse=True, return_counts=True)
    weight = 1.0 / counts[person]
    weight /= weight.mean()
    scaler = StandardScaler().fit(X, sample_weight=weight)
    # In float64, as scikit-learn itself did up to 1.7: in float32 its solver can stop before it has begun.
    scaled = scaler.transform(X).astype(np.float64)
    weight = balanced_weights(labels, weight)
    return [
        AssociationHead(
            scaler, LogisticRegression(C=C, max_iter=2000).fit(scaled, labels, sample_weight=weight)
        )
        for C in grid
    ]


def _people(participants: Any, n: int) -> NDArray[np.str_]:
    """Return each event's participant as text."""
    names, codes = encode_source(participants, n, name="participants")
    people: NDArray[np.str_] = np.array([str(name) for name in names.tolist()])[codes]
    return people


def _labels(y: Any) -> NDArray[np.bool_]:
    labels = to_numpy(y)
    if labels.ndim != 1 or not len(labels) or not np.isin(labels, (0, 1)).all():
        raise ValueError(f"y must be 0 or 1 for each event; got shape {labels.shape}.")
    flags: NDArray[np.bool_] = labels.astype(bool)
    return flags
