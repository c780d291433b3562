"""Area under the ROC curve: exact, by one sort, for many readers and every participant at once.

The values are those of :func:`sklearn.metrics.roc_auc_score`, ties counting half. Participants are the unit
of replication, so nothing here drops one quietly: a participant without some class is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..pairs import encode_source, to_numpy

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ByParticipant:
    """One value, or one row of values, for each participant.

    Participants are kept sorted as strings, whatever order they are given in, so that bootstrap draws mean
    the same people everywhere.

    Attributes
    ----------
    participants : tuple of str
        Who, sorted as strings.
    values : (P,) or (P, ...) array
        Row i belongs to ``participants[i]``; further axes are readers, associations and the like.

    Examples
    --------
    >>> ByParticipant(("p2", "p10"), np.array([0.7, 0.9]))
    ByParticipant(participants=('p10', 'p2'), values=array([0.9, 0.7]))
    """

    participants: tuple[str, ...]
    values: Floats

    def __post_init__(self) -> None:
        names = [str(name) for name in self.participants]
        values = np.asarray(self.values, dtype=np.float64)
        if values.ndim == 0 or len(values) != len(names):
            raise ValueError(
                f"values has shape {values.shape}; its first axis must hold the {len(names)} participants."
            )
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"Participants {repeated} occur more than once; give one row to each.")
        order = sorted(range(len(names)), key=names.__getitem__)
        object.__setattr__(self, "participants", tuple(names[i] for i in order))
        object.__setattr__(self, "values", values[order])


def auroc(scores: Any, positive: Any, weight: Any = None) -> Any:
    """Return the area under the ROC curve, as :func:`sklearn.metrics.roc_auc_score` computes it.

    Parameters
    ----------
    scores : (n,) or (n, R) array
        Larger means more likely positive. R columns are R readers of the same rows.
    positive : (n,) array
        Which rows are positive: booleans, or 0 and 1.
    weight : (n,) array or None
        Weights of the rows, zero or more; None is one each.

    Returns
    -------
    float or (R,) array
        Share of (positive, negative) pairs in the right order; ties count half.

    Examples
    --------
    >>> auroc([0.1, 0.4, 0.4, 0.8], [0, 0, 1, 1])
    0.875
    """
    scores = check_scores(scores)
    if scores.ndim > 2:
        raise ValueError(f"scores has shape {scores.shape}; expected (rows,) or (rows, readers).")
    positive, weight = check_binary(positive, len(scores), "positive"), check_weight(weight, len(scores))
    for kind, rows in (("positive", positive), ("negative", ~positive)):
        if not weight[rows].sum() > 0:
            raise ValueError(
                f"There are no {kind} rows of positive weight among {len(scores)}; AUROC compares "
                "positive rows with negative ones and needs both."
            )
    if scores.ndim == 1:
        return float(_areas(scores[:, None], positive, weight)[0])
    return _areas(scores, positive, weight)


def participant_auroc(
    scores: Any, labels: Any, participants: Any, classes: Any = None, weight: Any = None
) -> ByParticipant:
    """Return every participant's AUROC: binary, or the macro average of one class against the rest.

    Parameters
    ----------
    scores : array
        With two classes (n,), or (n, R) for R readers, larger meaning the second class. With K > 2 classes
        (n, K), or (n, R, K), one column for each class.
    labels : (n,) array
        The classes of the rows.
    participants : (n,) array
        Who each row is from.
    classes : (K,) array or None
        The classes, in the order of the score columns; None takes those in ``labels``, sorted.
    weight : (n,) array or None
        Weights of the rows; None is one each.

    Returns
    -------
    ByParticipant
        Values of shape (P,), or (P, R) for several readers.

    Raises
    ------
    ValueError
        If a participant lacks a class: an average over fewer people or classes would be another quantity.

    Examples
    --------
    >>> participant_auroc([0.2, 0.9, 0.8, 0.3], ["no", "yes", "no", "yes"], ["b", "b", "a", "a"])
    ByParticipant(participants=('a', 'b'), values=array([0., 1.]))
    """
    scores = check_scores(scores)
    n = len(scores)
    names, rows = participant_rows(participants, n)
    known, codes = _class_codes(labels, n, classes)
    weight = check_weight(weight, n)
    require_every_class(names, rows, known, codes, weight)
    single = scores.ndim == (1 if len(known) == 2 else 2)
    scores = _as_readers(scores, len(known))
    # With two classes only the second is scored; its AUROC against the first is the whole answer.
    scored = [(1, scores[:, :, 0])] if len(known) == 2 else [(k, scores[:, :, k]) for k in range(len(known))]
    values = np.array(
        [
            np.mean([_areas(column[mine], codes[mine] == k, weight[mine]) for k, column in scored], axis=0)
            for mine in rows
        ]
    )
    return ByParticipant(names, values[:, 0] if single else values)


def participant_rows(participants: Any, n: int) -> tuple[tuple[str, ...], list[NDArray[np.int64]]]:
    """Return the participants' names, sorted as strings, and the rows of each.

    Examples
    --------
    >>> participant_rows([9, 10, 9], 3)
    (('10', '9'), [array([1]), array([0, 2])])
    """
    _require_length(participants, n, "participants")
    labels, codes = encode_source(participants, n, name="participants")
    names = [str(label) for label in labels.tolist()]
    rows = np.split(
        np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes, minlength=len(names)))[:-1]
    )
    order = sorted(range(len(names)), key=names.__getitem__)
    return tuple(names[i] for i in order), [rows[i] for i in order]


def check_scores(scores: Any, name: str = "scores") -> NDArray[Any]:
    """Return scores as a finite numeric array with at least one row."""
    scores = to_numpy(scores)
    if scores.ndim == 0 or scores.dtype.kind not in "biuf" or not scores.size:
        raise ValueError(
            f"{name} has shape {scores.shape} and dtype {scores.dtype}; expected numbers, one row or more."
        )
    finite = np.isfinite(scores).reshape(len(scores), -1).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"{name} is NaN or infinite in {int((~finite).sum())} of {len(scores)} rows "
            f"(first: row {int(np.argmin(finite))}); such rows cannot be ranked. Score every row."
        )
    checked: NDArray[Any] = scores
    return checked


def check_binary(values: Any, n: int, name: str) -> NDArray[np.bool_]:
    """Return n labels that are all 0 or 1 as booleans."""
    values = to_numpy(values)
    _require_length(values, n, name)
    if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        found = np.unique(values.astype(str)).tolist()
        raise ValueError(
            f"{name} must be 0 or 1 (or booleans); found {', '.join(found[:4] + ['…'] * (len(found) > 4))}. "
            f"Compare with the positive class first: {name} == 'target'."
        )
    flags: NDArray[np.bool_] = values.astype(bool)
    return flags


def check_weight(weight: Any, n: int) -> Floats:
    """Return n weights, zero or more; None is one each."""
    if weight is None:
        return np.ones(n)
    weight = to_numpy(weight).astype(np.float64)
    _require_length(weight, n, "weight")
    if not (np.isfinite(weight) & (weight >= 0)).all():
        bad = int(np.argmin(np.isfinite(weight) & (weight >= 0)))
        raise ValueError(f"weight must be zero or more and finite; row {bad} has {weight[bad]}.")
    checked: Floats = weight
    return checked


def _areas(scores: NDArray[Any], positive: NDArray[np.bool_], weight: Floats) -> Floats:
    """Return the AUROC of each column of scores (n, R); both classes have weight."""
    n = len(scores)
    columns = np.ascontiguousarray(scores.T)
    # Stable, so that sums of weights within ties do not depend on the processor's sorting code.
    order = np.argsort(columns, axis=1, kind="stable")
    columns = np.take_along_axis(columns, order, axis=1)
    above = (weight * positive)[order]
    below = np.zeros((len(columns), n + 1))
    np.cumsum((weight * ~positive)[order], axis=1, out=below[:, 1:])
    # first and last: where the run of equal scores around each row starts and ends.
    change = columns[:, 1:] != columns[:, :-1]
    edge, rows = np.ones((len(columns), 1), bool), np.arange(n)
    first = np.maximum.accumulate(np.where(np.hstack([edge, change]), rows, 0), axis=1)
    last = np.where(np.hstack([change, edge]), rows, n)[:, ::-1]
    last = np.minimum.accumulate(last, axis=1)[:, ::-1]
    # Twice the negative weight a row beats: that below its run and, for the ties, that up to the run's end.
    beaten = np.take_along_axis(below, first, axis=1) + np.take_along_axis(below, last + 1, axis=1)
    area = (above * beaten).sum(axis=1) / (2 * above.sum(axis=1) * below[:, -1])
    return np.asarray(np.clip(area, 0.0, 1.0))


def _class_codes(labels: Any, n: int, classes: Any) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the classes, in the order of the score columns, and each row's index among them."""
    _require_length(labels, n, "labels")
    found, codes = encode_source(labels, n, name="labels")
    known = found.tolist() if classes is None else np.asarray(classes).tolist()
    if len(known) < 2 or len(set(known)) < len(known):
        raise ValueError(f"AUROC needs two or more distinct classes; got {known}.")
    unknown = [label for label in found.tolist() if label not in known]
    if unknown:
        raise ValueError(f"labels has {unknown}, which classes does not; classes: {known}.")
    return known, np.array([known.index(label) for label in found.tolist()])[codes]


def _as_readers(scores: NDArray[Any], n_classes: int) -> NDArray[Any]:
    """Return scores as (n, readers, classes); with two classes the last axis has one entry."""
    if n_classes == 2:
        if scores.ndim > 2:
            raise ValueError(
                f"scores has shape {scores.shape}; with two classes expected (rows,) or (rows, readers), "
                "larger meaning the second class."
            )
        return scores.reshape(len(scores), -1, 1)
    if scores.ndim not in (2, 3) or scores.shape[-1] != n_classes:
        raise ValueError(
            f"scores has shape {scores.shape}; with {n_classes} classes expected (rows, {n_classes}) or "
            f"(rows, readers, {n_classes}), one column for each class."
        )
    return scores.reshape(len(scores), -1, n_classes)


def require_every_class(
    names: tuple[str, ...],
    rows: list[NDArray[np.int64]],
    classes: list[Any],
    codes: NDArray[np.int64],
    weight: Floats,
) -> None:
    """Raise if some participant has no rows, or no weight, of some class."""
    totals = np.array([np.bincount(codes[mine], weight[mine], len(classes)) for mine in rows])
    lacking = np.argwhere(~(totals > 0))
    if len(lacking):
        person, k = lacking[0]
        others = len(np.unique(lacking[:, 0])) - 1
        raise ValueError(
            f"Participant {names[person]!r} has no rows of class {classes[k]!r}"
            f"{f' ({others} more participants lack a class)' if others else ''}; AUROC needs every class for "
            "every participant. Leave those participants or classes out of all methods, and say so."
        )


def _require_length(values: Any, n: int, name: str) -> None:
    shape = np.shape(to_numpy(values))
    if shape != (n,):
        raise ValueError(f"{name} has shape {shape}; expected one entry for each of the {n} rows of scores.")
