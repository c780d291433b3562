"""Area under the ROC curve, by ranks, for many readers and every participant at once; ties count half.

Participants are the unit of replication, so none is dropped silently: a participant without some class is an
error.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..pairs import encode_source, to_numpy

Floats = NDArray[np.float64]


class ByParticipant(NamedTuple):
    """Participants, sorted as text, and one row of values for each."""

    participants: tuple[str, ...]
    values: Floats


def placements(scores: NDArray[Any], reference: NDArray[Any], weight: Any = None) -> Floats:
    """Return the share of reference scores below each score, ties counting half; columns are readers.

    Examples
    --------
    >>> placements(np.array([[2.0], [5.0]]), np.array([[1.0], [2.0], [3.0], [4.0]])).ravel().tolist()
    [0.375, 1.0]
    """
    weight = np.ones(len(reference)) if weight is None else weight
    return np.asarray(_beaten(scores, reference, weight) / (2 * weight.sum()))


def _beaten(scores: NDArray[Any], reference: NDArray[Any], weight: Floats) -> Floats:
    """Return twice the weight of the reference below each score; exact, if weights are whole numbers."""
    beaten = np.empty(scores.shape)
    for k in range(scores.shape[1]):
        # Stable, so that sums of weights within ties do not depend on the processor's sorting code.
        order = np.argsort(reference[:, k], kind="stable")
        ordered, total = reference[order, k], np.concatenate([[0.0], np.cumsum(weight[order])])
        first, last = np.searchsorted(ordered, scores[:, k]), np.searchsorted(ordered, scores[:, k], "right")
        beaten[:, k] = total[first] + total[last]
    return beaten


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
    flags, weights = check_binary(positive, len(scores), "positive"), _weights(weight, len(scores))
    for kind, rows in (("positive", flags), ("negative", ~flags)):
        if not weights[rows].sum() > 0:
            raise ValueError(f"None of the {len(scores)} rows is {kind}; AUROC needs both kinds.")
    areas = _areas(scores.reshape(len(scores), -1), flags, weights)
    return float(areas[0]) if scores.ndim == 1 else areas


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
        Whose rows they are.
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
    scores, n = check_scores(scores), len(scores)
    names, rows = participant_rows(participants, n)
    known, codes = _class_codes(labels, n, classes)
    weights = _weights(weight, n)
    for name, mine in zip(names, rows, strict=True):
        lacking = [k for k in range(len(known)) if not weights[mine][codes[mine] == k].sum() > 0]
        if lacking:
            raise ValueError(
                f"Participant {name!r} has no rows of class {known[lacking[0]]!r}; AUROC needs every class "
                "for every participant. Leave the participant or the class out of all methods."
            )
    single = scores.ndim == (1 if len(known) == 2 else 2)
    columns = score_columns(scores, len(known))
    values = np.array([_mean_area(columns, codes, weights, mine) for mine in rows])
    return ByParticipant(names, values[:, 0] if single else values)


def within_auroc(scores: NDArray[Any], codes: NDArray[np.int64], units: NDArray[np.int64]) -> Floats:
    """Return each unit's AUROC of its own sources, (P, R); NaN for units with one source or none.

    Parameters
    ----------
    scores : (n, R) or (n, R, K) array
        As in :func:`participant_auroc`.
    codes, units : (n,) arrays
        Number of each row's source and unit.
    """
    columns = score_columns(scores, scores.shape[-1] if scores.ndim == 3 else 2)
    values = np.full((int(units.max()) + 1, columns[0][1].shape[1]), np.nan)
    order = np.argsort(units, kind="stable")
    starts = np.flatnonzero(np.diff(units[order], prepend=-1))
    for mine in np.split(order, starts[1:]):
        if len(np.unique(codes[mine])) > 1:
            values[units[mine[0]]] = _mean_area(columns, codes, np.ones(len(codes)), mine)
    return values


def between_auroc(
    scores: NDArray[Any], codes: NDArray[np.int64], units: NDArray[np.int64], classes: NDArray[np.int64]
) -> Floats:
    """Return how well each unit is told from units of other sources, (P, R), within classes of the label.

    Every unit weighs the same. The mean over units of a class and source, then over sources, then over
    classes, is the AUROC over rows (of one source against the rest, if there are more than two). A unit in
    several classes has the mean of its values there; one that nothing compares with has NaN.

    Parameters
    ----------
    scores : (n, R) or (n, R, K) array
        As in :func:`participant_auroc`.
    codes, units, classes : (n,) arrays
        Number of each row's source (0 to K - 1), unit (0 to P - 1) and class of the label.

    Examples
    --------
    >>> scores = np.array([[0.1], [0.3], [0.2], [0.9]])
    >>> between_auroc(scores, np.array([0, 0, 1, 1]), np.arange(4), np.zeros(4, int)).ravel().tolist()
    [1.0, 0.5, 0.5, 1.0]
    """
    n_units, columns = (
        int(units.max()) + 1,
        score_columns(scores, scores.shape[-1] if scores.ndim == 3 else 2),
    )
    total, count = np.zeros((n_units, columns[0][1].shape[1])), np.zeros(n_units)
    for label in np.unique(classes):
        rows = np.flatnonzero(classes == label)
        source, unit = codes[rows], units[rows]
        members, first = np.unique(unit, return_index=True)
        sizes = np.bincount(source[first], minlength=int(codes.max()) + 1)  # units of every source
        if (sizes > 0).sum() < 2:
            continue
        weight = 1.0 / np.bincount(unit, minlength=n_units)[unit]
        for k, column in columns:
            is_k, rest = source == k, sizes.sum() - sizes[k]
            if not sizes[k] or not rest:
                continue
            scored = column[rows]
            right = np.empty(scored.shape)
            right[is_k] = placements(scored[is_k], scored[~is_k], weight[~is_k])
            right[~is_k] = 1 - placements(scored[~is_k], scored[is_k], weight[is_k])
            # Both sides of a comparison know the same area; with two sources it is looked at once.
            share = np.where(is_k, 1.0, sizes[source] / rest) * (1.0 if len(columns) == 1 else 0.5)
            np.add.at(total, unit, right * (weight * share)[:, None])
        count[members] += 1
    with np.errstate(invalid="ignore"):
        return np.asarray(total / count[:, None])


def score_columns(scores: NDArray[Any], n_classes: int) -> list[tuple[int, NDArray[Any]]]:
    """Return each scored class with its (n, R) scores; of two classes only the second is scored."""
    if n_classes == 2 and scores.ndim <= 2:
        return [(1, scores.reshape(len(scores), -1))]
    if n_classes == 2 or scores.ndim not in (2, 3) or scores.shape[-1] != n_classes:
        wanted = "(rows,) or (rows, readers)" if n_classes == 2 else f"(rows, [readers,] {n_classes})"
        raise ValueError(f"scores has shape {scores.shape}; with {n_classes} classes expected {wanted}.")
    return [(k, scores[..., k].reshape(len(scores), -1)) for k in range(n_classes)]


def participant_rows(participants: Any, n: int) -> tuple[tuple[str, ...], list[NDArray[np.int64]]]:
    """Return the participants' names, sorted as text, and the rows of each.

    Examples
    --------
    >>> participant_rows([9, 10, 9], 3)
    (('10', '9'), [array([1]), array([0, 2])])
    """
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
            f"(first: row {int(np.argmin(finite))}); such rows cannot be ranked."
        )
    checked: NDArray[Any] = scores
    return checked


def check_binary(values: Any, n: int, name: str) -> NDArray[np.bool_]:
    """Return n labels that are all 0 or 1 as booleans."""
    values = to_numpy(values)
    if values.shape != (n,):
        raise ValueError(f"{name} has shape {values.shape}; expected one entry for each of the {n} rows.")
    if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        distinct = np.unique(values.astype(str)).tolist()
        raise ValueError(
            f"{name} must be 0 or 1 (or booleans), not {', '.join(distinct[:4])}. Compare with the positive "
            f"class first: {name} == 'target'."
        )
    flags: NDArray[np.bool_] = values.astype(bool)
    return flags


def _weights(weight: Any, n: int) -> Floats:
    weights: Floats = np.ones(n) if weight is None else to_numpy(weight).astype(np.float64)
    if weights.shape != (n,) or not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(f"weight must hold {n} finite numbers, zero or more.")
    return weights


def _mean_area(
    columns: list[tuple[int, NDArray[Any]]],
    codes: NDArray[np.int64],
    weight: Floats,
    rows: NDArray[np.int64],
) -> Floats:
    """Return the AUROC of some rows, averaged over the classes among them."""
    present = set(codes[rows].tolist())
    areas = [_areas(column[rows], codes[rows] == k, weight[rows]) for k, column in columns if k in present]
    return np.asarray(np.mean(areas, axis=0))


def _areas(scores: NDArray[Any], positive: NDArray[np.bool_], weight: Floats) -> Floats:
    """Return the AUROC of each column of scores (n, R); both classes have weight."""
    above, below = weight[positive], weight[~positive]
    beaten = above @ _beaten(scores[positive], scores[~positive], below)
    return np.asarray(np.clip(beaten / (2 * above.sum() * below.sum()), 0.0, 1.0))


def _class_codes(labels: Any, n: int, classes: Any) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the classes, in the order of the score columns, and each row's index among them."""
    names, codes = encode_source(labels, n, name="labels")
    known = names.tolist() if classes is None else np.asarray(classes).tolist()
    if len(known) < 2 or len(set(known)) < len(known):
        raise ValueError(f"AUROC needs two or more distinct classes; got {known}.")
    unknown = [label for label in names.tolist() if label not in known]
    if unknown:
        raise ValueError(f"labels has {unknown}, which classes does not; classes: {known}.")
    return known, np.array([known.index(label) for label in names.tolist()])[codes]
