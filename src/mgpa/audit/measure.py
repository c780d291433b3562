"""Measure a correction on held-out participants: source readers, task heads, movement, association shift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..labels import is_paired
from ..maps import CorrectionMap
from ..operating_point import movement
from .association import association_auroc, shortcut_scores, views_of
from .calibration import has_pairs
from .draws import present_mean
from .ground import Ground, flat_mean
from .heads import outputs, score_rows
from .information import identity_auroc
from .ranks import between_auroc, twin_accuracy, within_auroc
from .readers import Scores
from .store import Arrays

# Positions of scored rows, scores of a head, and predicted classes.
Transfer = tuple[NDArray[np.intp], NDArray[Any], NDArray[Any]]


def measure(ground: Ground, m: CorrectionMap, trained: Scores | None = None) -> Arrays:
    """Return all measurements of one correction.

    ``trained`` has the scores of source readers that were already trained.
    """
    C_head, C_eval = ground.read("HEAD", m), ground.read("EVAL", m)
    result = source_accessibility(ground, C_head, C_eval, trained)
    result |= task_utility(ground, C_head, C_eval)
    result |= agreement(ground, C_eval)
    head, evaluation = ground.head.participant, ground.evaluation
    whose = (ground.sized(C_head), head, ground.sized(C_eval), evaluation.participant)
    result["identity"] = identity_auroc(*whose, evaluation.pair_id)
    del C_head, whose  # large and no longer needed
    held, varies = ground.evaluation, ground.standardizer.varies
    people, result["movement"] = movement_by_group(ground.read("EVAL"), C_eval, held.participant, varies)
    result |= association(ground, C_eval)
    rows_shown, mean, axes = ground.picture
    result["picture"] = ((ground.sized(C_eval[rows_shown]) - mean) @ axes).astype(np.float32)
    result["participants"] = np.array(people)
    return result


def movement_by_group(
    before: Any, after: Any, groups: NDArray[Any], varies: NDArray[np.bool_] | None = None
) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Return the groups, sorted as text, and ‖H' - H‖_F / ‖H‖_F within each, in standardised coordinates.

    ``varies`` marks the features that varied in the fitting rows (None: all). The other features have
    arbitrary units, so they contribute to the movement of a row, but not to its size.

    Examples
    --------
    >>> H = np.array([[3.0, 4.0], [0.0, 2.0]])
    >>> movement_by_group(H, H + [[0.0, 0.5], [1.0, 0.0]], np.array(["p1", "p2"]))
    (('p1', 'p2'), array([0.1, 0.5]))
    """
    before, after = np.asarray(before), np.asarray(after)
    names, codes = np.unique(np.asarray(groups).astype(str), return_inverse=True)
    counted = np.ones(before.shape[-1], bool) if varies is None else varies
    moved = []
    for code in range(len(names)):
        H, C = (rows[codes == code].astype(np.float64) for rows in (before, after))
        moved.append(movement(C - H, H, counted))
    return tuple(names.tolist()), np.array(moved)


def source_accessibility(
    ground: Ground, C_head: NDArray[Any], C_eval: NDArray[Any], trained: Scores | None = None
) -> Arrays:
    """Return the AUROC of each reader on each EVAL unit, and its scores.

    Sources are compared within units that have several sources, and between the other units.
    """
    reading = ground.run_readers(C_head, C_eval, trained)
    scores, units = np.stack(list(reading.values()), axis=1), ground.unit_codes
    codes = np.searchsorted(ground.head.sources, ground.evaluation.source)
    values = within_auroc(scores, codes, units)
    alone = ~ground.travelled[units]
    if alone.any():
        compared, source = present_only(scores[alone], codes[alone])
        between = between_auroc(compared, source, units[alone], ground.classes[alone])
        n = len(between)
        values[:n] = np.where(ground.travelled[:n, None], values[:n], between)
    return {
        "readers": np.array(list(reading)),
        "source_auroc": values,
        "twin": twin_accuracy(scores, codes, ground.evaluation.pair_id, units),
        "source_scores": scores.astype(np.float32),
        "eval_source": codes,
        "eval_person": units,
        "eval_class": ground.classes,
    }


def present_only(scores: NDArray[Any], codes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return scores without columns of absent classes (or sources), and codes among the present ones."""
    present, numbered = np.unique(codes, return_inverse=True)
    if scores.ndim == 2 or len(present) == scores.shape[-1]:
        return scores, codes
    return scores[..., present], numbered.astype(np.int64)


def task_utility(ground: Ground, C_head: NDArray[Any], C_eval: NDArray[Any]) -> Arrays:
    """Return the scores of task heads on each EVAL unit, separately for each source.

    ``frozen`` (existing) and ``refitted`` heads are transferred from one source to another ("directions").
    ``home`` is an existing head on its own source ("homes"). A ``pooled`` head was trained on corrected rows
    of all sources. For classes, the scores are AUROC and accuracy at the threshold of the head; for numbers,
    the mean error and the mean squared error. Units without rows of the target source have NaN.
    """
    design = ground.design
    if not design.task or len(design.heads) < 2:
        return {}
    rows, frozen_rows = ground.for_heads(C_eval), ground.for_frozen_heads(C_eval)
    frozen, refitted = ground.frozen_heads, ground.fit_heads(C_head)
    starts = [*design.heads, *([] if ground.head_source is None else [ground.head_source])]
    directions = [(a, b) for a in dict.fromkeys(starts) for b in design.heads if a != b]
    homes = _homes(ground)
    abroad = [transfer(ground, frozen.get(a), frozen_rows, b) for a, b in directions]
    at_home = [transfer(ground, frozen.get(a), frozen_rows, a) for a in homes]
    anew = [transfer(ground, refitted.get(a), rows, b) for a, b in directions]
    result: Arrays = {
        "directions": np.array([f"{a} → {b}" for a, b in directions]),
        "homes": np.array([str(a) for a in homes]),
        **in_columns("frozen", [measured(ground, one) for one in abroad]),
        **in_columns("refitted", [measured(ground, one) for one in anew]),
        **in_columns("home", [measured(ground, one) for one in at_home]),
    }
    if ground.pooled:
        pooled = ground.fit_pooled(C_head)
        parts = [measured(ground, transfer(ground, pooled, rows, b)) for b in design.heads]
        result |= in_columns("pooled", parts)
    if design.task == "classification":
        result["recall"] = class_recall(ground, [one for one in abroad if one is not None])
    return result


def _homes(ground: Ground) -> list[Any]:
    """Return the home sources of existing heads; for a deployed head, the stated source."""
    if not ground.deployed:
        return list(ground.design.heads)
    return [] if ground.head_source is None else list(ground.frozen_heads)


def transfer(ground: Ground, head: Any, rows: NDArray[Any], source: Any) -> Transfer | None:
    """Return positions and head scores of a source's EVAL rows; None without a head or rows."""
    to = np.flatnonzero((ground.evaluation.source == source) & ground.scored)
    return None if head is None or not len(to) else (to, *score_rows(head, rows[to]))


def measured(ground: Ground, scored: Transfer | None) -> Arrays:
    """Return the measurements of a head on each unit, by kind of labels; NaN for units without scores."""
    if ground.design.task == "regression":
        return numbers_measured(ground, scored)
    return classes_measured(ground, scored)


def in_columns(heads: str, parts: Sequence[Arrays]) -> Arrays:
    """Return the measurements (P,) of several transfers as columns (P, D), with their names in cells."""
    names = parts[0] if parts else ()
    return {f"{heads}{what}": np.stack([part[what] for part in parts], axis=1) for what in names}


def class_recall(ground: Ground, transfers: Sequence[Transfer]) -> NDArray[np.float64]:
    """Return the share of correctly classified rows of each class and unit, (P, K), over transfers."""
    classes, n = np.array(ground.design.classes), len(ground.units)
    shares = [np.full((n, len(classes)), np.nan)]
    for rows, _, predicted in transfers:
        label = ground.evaluation.label[rows]
        right = predicted == np.searchsorted(np.unique(ground.head.label), label)
        cell = ground.unit_codes[rows] * len(classes) + np.searchsorted(classes, label)
        shares.append(_unit_means(right, cell, n * len(classes)).reshape(n, -1))
    return present_mean(np.stack(shares), axis=0)


def measure_unseen(ground: Ground, maps: dict[Any, CorrectionMap]) -> Arrays:
    """Return the scores of heads on each source that was left out of the fits of map and head.

    ``maps`` were fitted without the source.
    """

    def corrected(source: Any) -> tuple[NDArray[Any], NDArray[Any]] | None:
        m = maps.get(source)
        return None if m is None else (ground.read("HEAD", m), ground.read("EVAL", m))

    return unseen_utility(ground, corrected)


def unseen_utility(
    ground: Ground, corrected: Callable[[Any], tuple[NDArray[Any], NDArray[Any]] | None]
) -> Arrays:
    """Return the scores on each source of heads trained on corrected HEAD rows of the other sources.

    ``corrected`` returns HEAD and EVAL rows after a correction fitted without the source, or None.
    """
    parts = []
    for source in ground.design.heads:
        others = ground.head.source != source
        here = (ground.evaluation.source == source) & ground.scored
        usable = here.any() and len(np.unique(ground.head.label[others])) > 1
        scored, rows = None, corrected(source) if usable else None
        if rows is not None:
            head = ground.fit_pooled(rows[0], others)
            scored = transfer(ground, head, ground.for_heads(rows[1]), source)
        parts.append(measured(ground, scored))
    return in_columns("unseen", parts)


def agreement(ground: Ground, C_eval: NDArray[Any]) -> Arrays:
    """Return the differences between outputs of existing heads for the same unit under two sources.

    For each EVAL unit with several sources, ``flips`` is the share of events for which a head predicts
    different classes under the two sources (without paired events, the share of classes). ``output_change``
    is the mean difference of predicted probabilities or numbers.
    """
    design = ground.design
    if not design.task or not ground.frozen_heads or not ground.travelled.any():
        return {}
    table, units = ground.evaluation, ground.unit_codes
    keep, event = np.ones(len(table), bool), units * (int(ground.classes.max()) + 1) + ground.classes
    if table.pair_id is not None and has_pairs(table):
        keep = np.asarray(is_paired(table.pair_id))
        event = np.unique(table.pair_id, return_inverse=True)[1]
    rows = ground.for_frozen_heads(C_eval)[keep]
    sources, source = np.unique(table.source[keep], return_inverse=True)
    _, first, event = np.unique(event[keep], return_index=True, return_inverse=True)
    owner, cell = units[keep][first], event * len(sources) + source
    count = np.bincount(cell, minlength=len(first) * len(sources)).reshape(len(first), -1)
    a, b = np.array(list(combinations(range(len(sources)), 2))).T
    both = (count[:, a] > 0) & (count[:, b] > 0)  # (events, pairs of sources)
    different: dict[str, list[NDArray[Any]]] = {"flips": [], "output_change": []}
    for head in {id(head): head for head in ground.frozen_heads.values()}.values():
        out = outputs(head, rows)
        with np.errstate(invalid="ignore"):
            mean = np.stack([np.bincount(cell, o, count.size) for o in out.T], -1) / count.reshape(-1, 1)
        mean = mean.reshape(len(first), len(sources), -1)
        size = np.abs(mean[:, a] - mean[:, b]).sum(axis=-1) / (2 if out.shape[1] > 1 else 1)
        flips = mean[:, a].argmax(axis=-1) != mean[:, b].argmax(axis=-1)
        different["output_change"].append(present_mean(np.where(both, size, np.nan), axis=1))
        different["flips"].append(present_mean(np.where(both, flips, np.nan), axis=1))
    if design.task == "regression":
        del different["flips"]
    elif not all(hasattr(head, "predict_proba") for head in ground.frozen_heads.values()):
        del different["output_change"]
    result = {}
    for name, values in different.items():
        mean = np.mean(values, axis=0)
        seen = ~np.isnan(mean)
        result[name] = _unit_means(mean[seen], owner[seen], len(ground.units))
    return result


def classes_measured(ground: Ground, transfer: Transfer | None) -> Arrays:
    """Return AUROC, the AUROC of a perfect head, and balanced accuracy of every scored unit.

    For two classes, also return the share of rows assigned to the second class minus its true share, because
    a shift can move rows across a threshold without changing the AUROC.
    """
    n, kinds = len(ground.units), ("", "_perfect", "_accuracy", "_shift")
    if transfer is None:
        return dict.fromkeys(kinds, np.full(n, np.nan))
    rows, scores, predicted = transfer
    units = ground.unit_codes[rows]
    codes = np.searchsorted(np.unique(ground.head.label), ground.evaluation.label[rows])
    n_classes = 2 if scores.ndim == 1 else scores.shape[-1]
    scores = scores[:, None] if scores.ndim == 1 else scores[:, None, :]
    # For each unit and class: the mean score, and the share of correct predictions.
    entry, place = np.unique(units * n_classes + codes, return_inverse=True)
    right = np.bincount(place, predicted == codes) / np.bincount(place)
    accuracy = _unit_means(right, entry // n_classes, n)
    taken = np.bincount(place, predicted == 1) / np.bincount(place) - entry % n_classes
    shift = _unit_means(taken, entry // n_classes, n) if n_classes == 2 else np.full(n, np.nan)
    if ground.design.labels == "within":
        auroc = np.repeat(within_auroc(scores, codes, units), 2, axis=1)
        auroc[:, 1] = np.where(np.isnan(auroc[:, 0]), np.nan, 1.0)
    else:
        flat = scores.reshape(len(scores), -1)
        means = np.stack([_unit_means(column, place, len(entry)) for column in flat.T], axis=1)
        means = means.reshape(len(entry), *scores.shape[1:])
        right = np.eye(n_classes)[entry % n_classes] if means.ndim == 3 else entry % n_classes
        both = np.concatenate([means, right.reshape(means.shape)], axis=1)
        everything = np.zeros(len(entry), np.int64)
        compared, label = present_only(both, entry % n_classes)
        placed = between_auroc(compared, label, np.arange(len(entry)), everything)
        auroc = np.stack([_unit_means(column, entry // n_classes, n) for column in placed.T], axis=1)
    values = np.full((n, 2), np.nan)
    values[: len(auroc)] = auroc
    return dict(zip(kinds, (values[:, 0], values[:, 1], accuracy, shift), strict=True))


def numbers_measured(ground: Ground, transfer: Transfer | None) -> Arrays:
    """Return mean error, mean squared error, and the latter relative to the variance of labels, by unit.

    The variance is that of all labels of the table, the same in every fold: HEAD may lack an outlier of EVAL.
    """
    n = len(ground.units)
    if transfer is None:
        return dict.fromkeys(("_bias", "_square", "_relative"), np.full(n, np.nan))
    rows, _, predicted = transfer
    units, error = ground.unit_codes[rows], predicted - ground.evaluation.label[rows]
    square, spread = _unit_means(error**2, units, n), float(np.var(ground.table.label))
    return {"_bias": _unit_means(error, units, n), "_square": square, "_relative": square / spread}


def _unit_means(values: NDArray[Any], units: NDArray[Any], n: int) -> NDArray[np.float64]:
    """Return the mean value of each unit; NaN for units without values."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.bincount(units, values, n) / np.bincount(units, minlength=n))


def association(ground: Ground, C_eval: NDArray[Any]) -> Arrays:
    """Return the AUROC of shortcut and control heads at reversed, absent and aligned association.

    Units without paired events of both labels have NaN.
    """
    flat = flat_mean(C_eval)
    curves: dict[str, list[NDArray[Any]]] = {}
    for direction, heads in zip(ground.directions, ground.association_heads, strict=True):
        X0, X1, y, people = views_of(ground.evaluation, flat, direction)
        for name, head in zip(("shortcut", "control"), heads, strict=True):
            scores = shortcut_scores(head, X0), shortcut_scores(head, X1)
            scored, values = association_auroc(*scores, y, people)
            curve = np.full((len(ground.units), values.shape[1]), np.nan)
            curve[np.searchsorted(np.array(ground.units), scored)] = values
            curves.setdefault(name, []).append(curve)
    return {name: np.mean(values, axis=0) for name, values in curves.items()}


def gate_basis(facts: Arrays, scale: NDArray[Any]) -> NDArray[Any]:
    """Return an orthonormal basis of a fit's gate in the coordinates of the readers."""
    basis = facts["gate_basis"]
    scale = np.tile(scale, len(basis) // len(scale))  # repeated for gates of all tokens
    if np.array_equal(facts["gate_scale"], scale):
        return basis
    return np.linalg.qr(basis * (facts["gate_scale"] / scale)[:, None])[0]


def measure_floor(ground: Ground, basis: NDArray[Any], trained: Scores | None = None) -> Arrays:
    """Return the AUROC of source readers on the part that the gate preserves.

    Corrections inside the gate cannot change this part. ``basis`` is the basis of the gate, orthonormal in
    FIT's coordinates.
    """
    return source_accessibility(
        ground, ground.preserved("HEAD", basis), ground.preserved("EVAL", basis), trained
    )
