"""One correction measured: source readers, task heads, movement and association shift on held-out people."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ..endpoint import movement
from ..errors import UsageError
from ..estimators.tokens import token_mean
from ..maps import CorrectionMap
from ..moments import Standardizer
from ..tables.rows import corrected_rows
from ..tables.table import Table
from .design import Design, columns_only, require_everyone
from .fits import is_fitted
from .heads import (
    association_auroc,
    fit_association_heads,
    fit_heads,
    shortcut_scores,
    transfer_scores,
)
from .information import identity_auroc
from .ranks import between_auroc, twin_accuracy, within_auroc
from .readers import Scores, moves_tokens_alike, read_residuals, read_sources, read_token_sources
from .store import Arrays, array_digest, cell_key

# Rows of the before/after picture: enough to see clouds, few enough to draw.
PICTURE_ROWS = 1500
# Rows that are corrected and standardised at a time: double precision of all of them would take more memory
# than the table.
BLOCK = 2048
# Values of HEAD rows up to which everything is computed by one thread.
SMALL = 2**22


class Ground:
    """What every method is measured on: HEAD and EVAL rows in FIT's coordinates, and their heads.

    Rows are read from the table when they are needed, in blocks: reading again costs less than the memory.
    The table is in the audit's coordinates and the input's units; the standardizer is that of the FIT rows
    (of their tokens, for tokens). A fitted ``task_head`` is used as it is, on rows in the input's units,
    where heads are frozen; any other is cloned for every fit. ``directions`` are the (source, label) that
    go together where shortcut heads are trained; curves of several are averaged.
    """

    def __init__(
        self,
        table: Table,
        standardizer: Standardizer,
        design: Design,
        task_head: Any,
        device: str,
        bank: dict[str, Any],
        directions: tuple[tuple[Any, Any], ...],
    ) -> None:
        self.table, self.standardizer, self.design = table, standardizer, design
        self.task_head, self.device, self.bank, self.directions = task_head, device, bank, directions
        self.positions = {role: np.flatnonzero(table.role == role) for role in ("HEAD", "EVAL")}
        self.head, self.evaluation = (columns_only(table).take(rows) for rows in self.positions.values())
        self.deployed = task_head is not None and is_fitted(task_head)
        self.tokens = table.X.ndim == 3
        # EVAL units, sorted as text (the first axis of whatever is measured), and that of every row.
        self.units = tuple(np.unique(self.evaluation.participant).tolist())
        self.unit_codes = np.searchsorted(np.array(self.units), self.evaluation.participant)
        self.travelled = np.array([design.travelled(unit) for unit in self.units])
        self.classes = self._classes()

    def _classes(self) -> NDArray[np.int64]:
        """Return the class of every EVAL row within which sources are compared."""
        if self.design.task == "classification":
            return np.asarray(np.searchsorted(np.unique(self.head.label), self.evaluation.label))
        if self.design.task == "regression" and self.design.labels == "between":
            parts = np.array([self.design.units[unit][1][0] for unit in self.units])
            return np.asarray(parts[self.unit_codes], dtype=np.int64)
        return np.zeros(len(self.evaluation), np.int64)

    @cached_property
    def key(self) -> str:
        """A digest of the above, part of the names of measured cells."""
        scaling = array_digest(self.standardizer.center, self.standardizer.scale, self.standardizer.varies)
        head = joblib.hash(self.task_head) if self.deployed else self.task_head
        settings = (head, self.device, self.bank, self.directions)
        design = (self.design.task, self.design.labels, list(self.design.heads), self.classes)
        return cell_key("ground", self.table.digest, scaling, settings, design)

    def read(self, role: str, m: CorrectionMap | None = None) -> NDArray[Any]:
        """Return the rows of a role in FIT's coordinates, uncorrected or corrected by a map.

        Features that were constant in FIT are there too, centred: maps leave them in the rows that users
        deploy, where readers find them.
        """
        X, rows = self.table.X, self.positions[role]
        H = np.empty((len(rows), *X.shape[1:]), X.dtype)
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            values = X[block] if m is None else corrected_rows(m, self.table.take(block))
            H[start : start + BLOCK] = self.standardized(values)
        return H

    def standardized(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return rows in FIT's coordinates, in their own precision."""
        H = (X - self.standardizer.center) / self.standardizer.scale
        return np.asarray(H, dtype=X.dtype)

    def sized(self, H: NDArray[Any]) -> NDArray[Any]:
        """Return the rows (the mean of tokens) without features that were constant in FIT."""
        return _flat_mean(H)[:, self.standardizer.varies]

    @cached_property
    def frozen_heads(self) -> dict[Any, Any]:
        """Task heads that exist before any correction, by source."""
        if not self.deployed:
            return self.fit_heads(self.read("HEAD"))
        if self.design.task == "classification":
            trained, classes = set(np.asarray(self.task_head.classes_).tolist()), np.unique(self.head.label)
            if trained != set(classes.tolist()):
                raise UsageError(
                    f"The head was fitted on labels {sorted(map(str, trained))}; the table has "
                    f"{classes.tolist()}."
                )
        return dict.fromkeys(self.design.heads, self.task_head)

    def fit_heads(self, rows: NDArray[Any]) -> dict[Any, Any]:
        """Return a task head for every source with rows of all classes; none if fewer than two have."""
        head, task = self.head, self.design.task
        transfers = list(self.design.heads) if task else []
        if task == "classification":
            n_classes = len(np.unique(head.label))
            transfers = [s for s in transfers if len(np.unique(head.label[head.source == s])) == n_classes]
        if len(transfers) < 2:
            return {}
        X = _flat_mean(rows) if task == "regression" else rows
        label, source, chosen = head.label, head.source, np.isin(head.source, transfers)
        if not chosen.all():
            X, label, source = X[chosen], label[chosen], source[chosen]
        template = clone(self.task_head) if self.deployed else self.task_head
        return fit_heads(X, label, source, template, task=task, device=self.device)

    @cached_property
    def association_heads(self) -> tuple[tuple[Any, Any], ...]:
        """Shortcut and control heads of every direction, trained on paired events."""
        if not self.directions:
            return ()
        flat = _flat_mean(self.read("HEAD"))
        return tuple(
            fit_association_heads(*_paired_events(self.head, flat, direction))
            for direction in self.directions
        )

    @cached_property
    def residual_reading(self) -> Scores:
        """Scores of readers that see only differences between tokens; a common shift cannot change them."""
        return self.read_residuals(self.read("HEAD"), self.read("EVAL"))

    def read_residuals(self, head: NDArray[Any], held: NDArray[Any]) -> Scores:
        """Return the scores that readers of centred HEAD tokens give EVAL tokens, corrected or not."""
        schedule = {name: value for name, value in self.bank.items() if name != "bank"}
        return read_residuals(head, self.head.source, held, device=self.device, **schedule)

    @cached_property
    def picture(self) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
        """EVAL rows to draw, their mean and their two leading directions before any correction."""
        rows = np.sort(np.random.default_rng(0).permutation(len(self.evaluation))[:PICTURE_ROWS])
        H = self.sized(self.standardized(self.table.X[self.positions["EVAL"][rows]])).astype(np.float64)
        mean = H.mean(axis=0)
        return rows, mean, np.linalg.svd(H - mean, full_matrices=False)[2][:2].T

    @property
    def n_threads(self) -> int | None:
        """1 for few rows, where parallel libraries slow each other down; else None."""
        return 1 if len(self.head) * self.table.X[:1].size < SMALL else None

    def read_sources(self, C_head: NDArray[Any], C_eval: NDArray[Any]) -> Scores:
        """Return the source readers' scores of corrected EVAL rows."""
        source, how = self.head.source, {"device": self.device, **self.bank}
        if self.design.kind != "nested":  # units of one source have nothing to compare their rows with
            how["participants"] = (self.head.participant, self.evaluation.participant)
        if not self.tokens:
            return read_sources(C_head, source, C_eval, **how)
        pairs = ((self.read("HEAD"), C_head), (self.read("EVAL"), C_eval))
        # A reading of uncorrected centred tokens serves every correction that shifts all tokens alike.
        alike = all(moves_tokens_alike(before, after) for before, after in pairs)
        residual = self.residual_reading if alike else self.read_residuals(C_head, C_eval)
        return read_token_sources(C_head, source, C_eval, residual=residual, **how)

    def prepare(self) -> None:
        """Fit everything shared, so that workers need not fit it again."""
        _ = self.frozen_heads, self.association_heads, self.picture
        if self.tokens:
            _ = self.residual_reading
        views = self.evaluation.paired_views() if self.directions else None
        if views is not None:
            seen = self.evaluation.take(views[0])
            for label in np.unique(self.evaluation.label).tolist():
                what = f"paired events with label {label!r} (which association shift needs)"
                require_everyone(seen.participant[seen.label == label], self.evaluation, what)


def _flat_mean(H: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(token_mean(H)) if H.ndim == 3 else H


def measure(ground: Ground, m: CorrectionMap) -> Arrays:
    """Return every measurement of one correction."""
    C_head, C_eval = ground.read("HEAD", m), ground.read("EVAL", m)
    result = source_accessibility(ground, C_head, C_eval)
    result |= task_utility(ground, C_head, C_eval)
    head, evaluation = ground.head.participant, ground.evaluation
    whose = (ground.sized(C_head), head, ground.sized(C_eval), evaluation.participant)
    result["identity"] = identity_auroc(*whose, evaluation.pair_id)
    del C_head, whose  # which is large, and no longer needed
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

    ``varies`` says which features varied in the fitting rows (None: all). The units of the others are
    arbitrary, so they have no size; where they move, that counts all the same.

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


def source_accessibility(ground: Ground, C_head: NDArray[Any], C_eval: NDArray[Any]) -> Arrays:
    """Return each reader's AUROC on every EVAL unit, and its scores.

    Units with several sources are compared within themselves, the others with each other.
    """
    reading = ground.read_sources(C_head, C_eval)
    scores, units = np.stack(list(reading.values()), axis=1), ground.unit_codes
    codes = np.searchsorted(ground.head.sources, ground.evaluation.source)
    values = within_auroc(scores, codes, units)
    alone = ~ground.travelled[units]
    if alone.any():
        between = between_auroc(scores[alone], codes[alone], units[alone], ground.classes[alone])
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


def task_utility(ground: Ground, C_head: NDArray[Any], C_eval: NDArray[Any]) -> Arrays:
    """Return the scores of frozen and refitted heads for every EVAL unit and direction of transfer.

    Of classes: AUROC (``frozen``, ``refitted``) and accuracy at the heads' own threshold. Of numbers: the
    mean error and the mean squared error. Units without rows of the source a head goes to have NaN.
    """
    design = ground.design
    if not design.task or len(design.heads) < 2:
        return {}
    directions = [(a, b) for a in design.heads for b in design.heads if a != b]
    result: Arrays = {"directions": np.array([f"{a} → {b}" for a, b in directions])}
    heads = {"frozen": ground.frozen_heads, "refitted": ground.fit_heads(C_head)}
    for name, fitted in heads.items():
        rows = C_eval
        if name == "frozen" and ground.deployed:  # in the input's units
            scaling = ground.standardizer
            rows = (C_eval * scaling.scale + scaling.center).astype(C_eval.dtype)
        if design.task == "regression":
            rows = _flat_mean(rows)
        transfers = transfer_scores(fitted, rows, ground.evaluation.source) if fitted else {}
        measures = _numbers_measured if design.task == "regression" else _classes_measured
        columns = [measures(ground, transfers.get(pair)) for pair in directions]
        for what in columns[0]:
            result[f"{name}{what}"] = np.stack([column[what] for column in columns], axis=1)
    return result


def _classes_measured(ground: Ground, transfer: tuple[Any, Any, Any] | None) -> Arrays:
    """Return AUROC, what a head without error has, and balanced accuracy of every unit that was scored."""
    n = len(ground.units)
    if transfer is None:
        return dict.fromkeys(("", "_perfect", "_accuracy"), np.full(n, np.nan))
    rows, scores, predicted = transfer
    units, codes = ground.unit_codes[rows], ground.classes[rows]
    n_classes = int(ground.classes.max()) + 1
    scores = scores[:, None] if scores.ndim == 1 else scores[:, None, :]
    # One entry for every unit and class: the mean score, and the share that is right.
    entry, place = np.unique(units * n_classes + codes, return_inverse=True)
    right = np.bincount(place, predicted == codes) / np.bincount(place)
    accuracy = _unit_means(right, entry // n_classes, n)
    if ground.design.labels == "within":
        auroc = np.repeat(within_auroc(scores, codes, units), 2, axis=1)
        auroc[:, 1] = 1.0
    else:
        flat = scores.reshape(len(scores), -1)
        means = np.stack([_unit_means(column, place, len(entry)) for column in flat.T], axis=1)
        means = means.reshape(len(entry), *scores.shape[1:])
        right = np.eye(n_classes)[entry % n_classes] if means.ndim == 3 else entry % n_classes
        both = np.concatenate([means, right.reshape(means.shape)], axis=1)
        everything = np.zeros(len(entry), np.int64)
        placed = between_auroc(both, entry % n_classes, np.arange(len(entry)), everything)
        auroc = np.stack([_unit_means(column, entry // n_classes, n) for column in placed.T], axis=1)
    values = np.full((n, 2), np.nan)
    values[: len(auroc)] = auroc
    return {"": values[:, 0], "_perfect": values[:, 1], "_accuracy": accuracy}


def _numbers_measured(ground: Ground, transfer: tuple[Any, Any, Any] | None) -> Arrays:
    """Return mean error, mean squared error, and that relative to the labels' variance, of every unit."""
    n = len(ground.units)
    if transfer is None:
        return dict.fromkeys(("_bias", "_square", "_relative"), np.full(n, np.nan))
    rows, _, predicted = transfer
    units, error = ground.unit_codes[rows], predicted - ground.evaluation.label[rows]
    square, spread = _unit_means(error**2, units, n), float(np.var(ground.head.label))
    return {"_bias": _unit_means(error, units, n), "_square": square, "_relative": square / spread}


def _unit_means(values: NDArray[Any], units: NDArray[Any], n: int) -> NDArray[np.float64]:
    """Return the mean of every unit's values; NaN for units without any."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.bincount(units, values, n) / np.bincount(units, minlength=n))


def association(ground: Ground, C_eval: NDArray[Any]) -> Arrays:
    """Return the AUROC of shortcut and control heads at reversed, no and aligned association."""
    flat = _flat_mean(C_eval)
    curves: dict[str, list[NDArray[Any]]] = {}
    for direction, heads in zip(ground.directions, ground.association_heads, strict=True):
        X0, X1, y, people = _paired_events(ground.evaluation, flat, direction)
        for name, head in zip(("shortcut", "control"), heads, strict=True):
            scores = shortcut_scores(head, X0), shortcut_scores(head, X1)
            curves.setdefault(name, []).append(association_auroc(*scores, y, people)[1])
    return {name: np.mean(values, axis=0) for name, values in curves.items()}


def _paired_events(table: Table, flat: NDArray[Any], direction: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Return events through the other source and the direction's, which have its label, and whose."""
    (source, label), views = direction, table.paired_views()
    assert views is not None
    first, second = views if table.sources[1] == source else views[::-1]
    return flat[first], flat[second], table.label[first] == label, table.participant[first]


def gate_basis(facts: Arrays, scale: NDArray[Any]) -> NDArray[Any]:
    """Return an orthonormal basis of a fit's gate in the coordinates of the readers."""
    basis = facts["gate_basis"]
    scale = np.tile(scale, len(basis) // len(scale))  # of all tokens, for a gate of all of them
    if np.array_equal(facts["gate_scale"], scale):
        return basis
    return np.linalg.qr(basis * (facts["gate_scale"] / scale)[:, None])[0]


def measure_floor(ground: Ground, basis: NDArray[Any]) -> Arrays:
    """Read the source from what the gate preserves, which no correction in the gate can change.

    ``basis`` is the gate's, orthonormal in FIT's coordinates.
    """
    tokens_alike = ground.tokens and len(basis) == ground.table.X.shape[-1]

    def preserved(H: NDArray[Any]) -> NDArray[Any]:
        for start in range(0, len(H), BLOCK):
            rows = H[start : start + BLOCK]
            if tokens_alike:  # a correction inside the gate shifts all tokens as it shifts their mean
                rows -= ((token_mean(rows) @ basis) @ basis.T)[:, None, :].astype(H.dtype)
            else:  # of vectors, or of all tokens together
                flat = rows.reshape(len(rows), -1)
                flat[...] = flat - (flat @ basis) @ basis.T
        return H

    return source_accessibility(ground, preserved(ground.read("HEAD")), preserved(ground.read("EVAL")))
