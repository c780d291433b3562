"""Association shift (appendix B): AUROC of a head as the association of device and label changes.

Every event was recorded by both devices. For each event, one recording is drawn, with a probability that
depends on the label. So the device predicts the label in one direction (ξ = 1), not at all (ξ = 0), or in the
other direction (ξ = -1). The signals do not change. A head trained at ξ = 1 learns the shortcut. Its AUROC
over ξ in [-1, 1], in particular the minimum, shows the cost of the shortcut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from ..critics import balanced_weights
from ..errors import UsageError
from ..labels import encode_source, to_numpy
from ..tables.table import Table
from .bootstrap import ASSOCIATIONS
from .diagnostics import UNASSOCIATED, count_rows, cramers_v
from .ranks import check_scores, participant_auroc
from .readers import check_rows

Floats = NDArray[np.float64]

#: Maximum deviation of the probability of a device from one half.
DEPARTURE = 0.4
#: Candidate inverse regularisations of the paper's heads: 10⁻⁶, 10⁻⁵, …, 10.
C_GRID: tuple[float, ...] = tuple(10.0**k for k in range(-6, 2))
#: From this number of values on, association heads are fitted in parallel threads.
MANY = 2**22


def find_directions(source: Any, label: Any) -> tuple[tuple[Any, Any], ...]:
    """Return the associated (source, label) pair, or both possible pairs without an association.

    Rows with an association below .1 (Cramér's V, corrected for chance) have no direction. The label is the
    rarer one, or that of the first row, so that names do not matter.
    """
    names, first = np.unique(source, return_index=True)
    classes, counts = np.unique(label, return_counts=True)
    rare = label[0] if counts[0] == counts[1] else classes[counts.argmin()]
    if cramers_v(count_rows(source, label)) >= UNASSOCIATED:
        share = [np.mean(label[source == name] == rare) for name in names]
        return ((names[int(np.argmax(share))].item(), rare.item()),)
    return tuple((name.item(), rare.item()) for name in names[np.argsort(first)])


def choose_directions(
    stated: tuple[Any, Any] | None, fit: Table, head: Table, evaluation: Table
) -> tuple[tuple[tuple[Any, Any], ...], str]:
    """Return the (source, label) pairs of the shortcuts, and the origin of this choice in words.

    No pairs are returned if association shift cannot be measured. It needs two sources, two classes, events
    recorded by both sources in HEAD and in EVAL, and at least two HEAD participants with such events.
    """
    labels = np.unique([] if head.label is None else head.label)
    if head.paired_views() is None or evaluation.paired_views() is None or len(labels) != 2:
        return (), ""
    trained, scored = paired_events(head), paired_events(evaluation)
    if len(np.unique(head.participant[trained[0]])) < 2:
        return (), "shortcuts need two or more HEAD participants with paired events of both labels"
    if not len(scored[0]):
        return (), "no EVAL participant has paired events of both labels"
    if stated is not None:
        # Compared as text, because command lines pass text.
        pairs = {(str(s), str(y)): (s, y) for s in head.sources.tolist() for y in labels.tolist()}
        source, label = map(str, stated)
        if (source, label) not in pairs:
            raise UsageError(
                f"association is {source!r}, {label!r}; expected one of {', '.join(map(str, pairs))}."
            )
        return (pairs[source, label],), "stated"
    # FIT rows with labels of another task show no association with this task.
    same_task = fit.label is not None and np.array_equal(np.unique(fit.label), labels)
    rows, role = (fit, "FIT") if same_task and len(fit.sources) == 2 else (head, "HEAD")
    return find_directions(rows.source, rows.label), role


def paired_events(table: Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return both row numbers of paired events, for participants with paired events of each label."""
    views = table.paired_views()
    if views is None:
        none = np.empty(0, np.int64)
        return none, none
    who, label = table.participant[views[0]], table.label[views[0]]
    seen = {*zip(who.tolist(), label.tolist(), strict=True)}
    counts = Counter(name for name, _ in seen)
    n_labels = len(np.unique(table.label))
    full = np.isin(who, [name for name, n in counts.items() if n == n_labels])
    return views[0][full], views[1][full]


def views_of(table: Table, flat: NDArray[Any], direction: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Return paired views of the other source and of the direction's source, labels and participants.

    A direction is a source and a label; labels are returned as True where they equal the direction's label.
    """
    (source, label), views = direction, paired_events(table)
    first, second = views if table.sources[1] == source else views[::-1]
    return flat[first], flat[second], table.label[first] == label, table.participant[first]


def assignment_probability(y: Any, participants: Any, xi: float) -> Floats:
    """Return Pr(U = 1 | y, p; ξ), the probability that the recording of device 1 is used.

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
    """Return the device (0 or 1) that records each event, chosen at random.

    Quotas are used instead of independent draws. Of the n events of a participant, ⌊n / 2⌋ get device 1. The
    number of positive events among these is the sum of :func:`assignment_probability`, rounded half up.
    Events are drawn by participant in string order, positive events before negative events.

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


def association_auroc(
    scores0: Any, scores1: Any, y: Any, participants: Any
) -> tuple[tuple[str, ...], Floats]:
    """Return the participants and their exact expected AUROC (P, 3) at ξ = -1, 0 and 1.

    ``scores0[i]`` and ``scores1[i]`` are the scores of a head for the recordings of event i by device 0 and
    device 1. Both recordings are used, weighted by their probability.

    Examples
    --------
    A head that only sees the device:

    >>> association_auroc([0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0], ["p"] * 4)[1].round(3)
    array([[0.1, 0.5, 0.9]])
    """
    scores0, scores1, labels = check_scores(scores0), check_scores(scores1), _labels(y)
    if not scores0.shape == scores1.shape == labels.shape:
        raise ValueError("scores0, scores1 and y must be of the same events; drop events with one view.")
    people = _people(participants, len(labels))
    twice = np.concatenate([scores0, scores1]), np.tile(labels, 2), np.tile(people, 2)
    curves = []
    for xi in ASSOCIATIONS:
        second = assignment_probability(labels, people, xi)
        weight = np.concatenate([1 - second, second])
        names, values = participant_auroc(*twice, weight=weight)
        curves.append(values)
    return names, np.stack(curves, axis=-1)


def fit_association_heads(X0: Any, X1: Any, y: Any, participants: Any) -> tuple[Pipeline, Pipeline]:
    """Fit the shortcut (ξ = 1) and the control head (ξ = 0) on one view of each event.

    Both are balanced logistic regressions on scaled features, with equal weights of participants. C is the
    value of ``C_GRID`` with the best AUROC of the control head on left-out participants, with equal weights
    of both views; ties go to the smaller C.

    Parameters
    ----------
    X0, X1 : (n, d) arrays
        Original features of the events recorded by device 0 and device 1; row i of both is the same event.
    y, participants : (n,) arrays
        Task labels, 0 or 1, and participants: two or more, each with both labels.
    """
    X0, X1, labels = check_rows(X0, "X0"), check_rows(X1, "X1"), _labels(y)
    people = _people(participants, len(labels))
    everyone = np.unique(people)
    if not (X0.shape == X1.shape and len(X0) == len(labels)) or len(everyone) < 2:
        raise ValueError(
            f"X0 has shape {X0.shape}, X1 {X1.shape}, y {labels.shape}, of {len(everyone)} participants; "
            "expected both views and one label per event, of two participants or more."
        )
    shortcut, control = (
        np.where(assign_endpoints(labels, people, xi)[:, None] == 1, X1, X0) for xi in (1, 0)
    )
    scores = np.full((2, len(labels), len(C_GRID)), 0.5)
    for name in everyone:
        out = people == name
        heads = _fit_heads(control[~out], labels[~out], people[~out], C_GRID)
        for view, X in enumerate((X0[out], X1[out])):
            scaled = heads[0][0].transform(X)  # all heads have the same scaling
            scores[view, out] = np.column_stack([shortcut_scores(head[-1], scaled) for head in heads])
    _, auroc = participant_auroc(np.concatenate(scores), np.tile(labels, 2), np.tile(people, 2))
    best = [C_GRID[int(auroc.mean(axis=0).argmax())]]
    return _fit_heads(shortcut, labels, people, best)[0], _fit_heads(control, labels, people, best)[0]


def _fit_heads(
    X: NDArray[Any], labels: NDArray[np.bool_], people: NDArray[np.str_], grid: Sequence[float]
) -> list[Pipeline]:
    """Return a balanced, participant-weighted logistic head for each C."""
    _, person, counts = np.unique(people, return_inverse=True, return_counts=True)
    weight = 1.0 / counts[person]
    weight /= weight.mean()
    scaler = StandardScaler().fit(X, sample_weight=weight)
    # In float64, as in scikit-learn up to 1.7, because in float32 the solver can stop immediately.
    scaled = scaler.transform(X).astype(np.float64)
    weight = balanced_weights(labels, weight)
    # Matrix-vector products gain nothing from BLAS threads, so with many rows each C gets its own thread.
    several = Parallel(n_jobs=-1 if scaled.size > MANY else 1, prefer="threads")
    with threadpool_limits(1, user_api="blas"):
        models = several(
            delayed(LogisticRegression(C=C, max_iter=2000).fit)(scaled, labels, sample_weight=weight)
            for C in reversed(grid)  # slowest fits first
        )
    return [make_pipeline(scaler, model) for model in reversed(models)]


def shortcut_scores(head: Any, X: Any) -> NDArray[Any]:
    """Return the probability of label 1 from an association head, in the precision of the rows."""
    return np.asarray(head.predict_proba(X)[:, 1], dtype=X.dtype)


def _people(participants: Any, n: int) -> NDArray[np.str_]:
    """Return the participant of each event as text."""
    names, codes = encode_source(participants, n, name="participants")
    return np.array([str(name) for name in names.tolist()])[codes]


def _labels(y: Any) -> NDArray[np.bool_]:
    labels = to_numpy(y)
    if labels.ndim != 1 or not len(labels) or not np.isin(labels, (0, 1)).all():
        raise ValueError(f"y must be 0 or 1 for each event; got shape {labels.shape}.")
    flags: NDArray[np.bool_] = labels.astype(bool)
    return flags
