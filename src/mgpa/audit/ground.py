"""Data for measuring corrections: HEAD and EVAL rows, and existing heads."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from ..errors import UsageError
from ..estimators.tokens import token_mean
from ..maps import CorrectionMap
from ..moments import Standardizer
from ..tables.rows import corrected_rows
from ..tables.table import Table
from .association import fit_association_heads, views_of
from .deployed import OnnxClassifier, OnnxRegressor
from .design import Design, columns_only
from .fits import is_fitted
from .heads import fit_heads, fit_pooled_head
from .readers import (
    Reading,
    Scores,
    check_rows,
    moves_tokens_alike,
    run_readers,
    run_residual_readers,
    run_token_readers,
    source_codes,
    with_further,
)
from .store import array_digest, cell_key

# Number of rows in the before/after picture.
PICTURE_ROWS = 1500
# Rows per block for correction and standardisation; all rows in float64 would need too much memory.
BLOCK = 2048
# Up to this number of values in HEAD rows, everything is computed by one thread.
SMALL = 2**22


class Ground:
    """The data for measuring all methods: HEAD and EVAL rows in FIT's coordinates, and their heads.

    Rows are read from the table in blocks when they are needed, to save memory. The table is in the audit's
    coordinates and the units of the input; the standardizer is that of the FIT rows (for tokens, of their
    tokens). A fitted ``task_head`` is used without refitting as existing head, on rows in the units of the
    input, for ``head_source`` if that is given. Other heads are cloned for every fit. With ``pooled``, heads
    are also refitted on the rows of all sources together. ``directions`` are the associated (source, label)
    pairs on which shortcut heads are trained; curves of several are averaged.
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
        head_source: Any = None,
        pooled: bool = False,
    ) -> None:
        self.table, self.standardizer, self.design = table, standardizer, design
        self.task_head, self.device, self.bank, self.directions = task_head, device, bank, directions
        self.head_source, self.pooled = head_source, pooled
        self.positions = {role: np.flatnonzero(table.role == role) for role in ("HEAD", "EVAL")}
        self.head, self.evaluation = (columns_only(table).take(rows) for rows in self.positions.values())
        self.deployed = task_head is not None and is_fitted(task_head)
        self.tokens = table.X.ndim == 3
        # EVAL units, sorted as text (first axis of all measurements), and the unit of each row.
        self.units = tuple(np.unique(self.evaluation.participant).tolist())
        self.unit_codes = np.searchsorted(np.array(self.units), self.evaluation.participant)
        self.travelled = np.array([unit in design.travellers for unit in self.units])
        self.classes = self._classes()

    def _classes(self) -> NDArray[np.int64]:
        """Return the class of every EVAL row within which sources are compared."""
        if self.design.task == "classification":
            known = np.unique(np.concatenate([self.head.label, self.evaluation.label]))
            return np.asarray(np.searchsorted(known, self.evaluation.label))
        if self.design.task == "regression" and self.design.labels == "between":
            parts = np.array([self.design.units[unit][1][0] for unit in self.units])
            return np.asarray(parts[self.unit_codes], dtype=np.int64)
        return np.zeros(len(self.evaluation), np.int64)

    @cached_property
    def scored(self) -> NDArray[np.bool_]:
        """The EVAL rows with a class that occurs in HEAD; a fold may lack a rare class."""
        if self.design.task != "classification":
            return np.ones(len(self.evaluation), bool)
        return np.asarray(np.isin(self.evaluation.label, self.head.label))

    @cached_property
    def key(self) -> str:
        """A checksum of these data, part of the keys of measured cells."""
        scaling = array_digest(self.standardizer.center, self.standardizer.scale, self.standardizer.varies)
        head = joblib.hash(self.task_head) if self.deployed else self.task_head
        settings = (head, self.head_source, self.pooled, self.device, self.bank, self.directions)
        design = (self.design.task, self.design.labels, list(self.design.heads), self.classes)
        return cell_key("ground", self.table.digest, scaling, settings, design)

    def read(self, role: str, m: CorrectionMap | None = None) -> NDArray[Any]:
        """Return the rows of a role in FIT's coordinates, uncorrected or corrected by a map.

        Features that are constant in FIT are included and centred, because they also remain in deployed rows,
        where readers can use them.
        """
        X, rows = self.table.X, self.positions[role]
        H = np.empty((len(rows), *X.shape[1:]), X.dtype)
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            values = X[block] if m is None else corrected_rows(m, self.table.take(block))
            H[start : start + BLOCK] = self.standardized(values)
        return H

    def in_input_units(self, H: NDArray[Any]) -> NDArray[Any]:
        """Return rows in the original units of the table, for deployed heads."""
        return (H * self.standardizer.scale + self.standardizer.center).astype(H.dtype)

    def for_heads(self, H: NDArray[Any]) -> NDArray[Any]:
        """Return rows in the form for task heads; regression heads use the token mean."""
        return flat_mean(H) if self.design.task == "regression" else H

    def for_frozen_heads(self, H: NDArray[Any]) -> NDArray[Any]:
        """Return rows in the form for existing heads."""
        return self.for_heads(self.in_input_units(H) if self.deployed else H)

    def standardized(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return rows in FIT's coordinates, in their own precision."""
        H = (X - self.standardizer.center) / self.standardizer.scale
        return np.asarray(H, dtype=X.dtype)

    def sized(self, H: NDArray[Any]) -> NDArray[Any]:
        """Return the rows (the mean of tokens) without features that were constant in FIT."""
        return flat_mean(H)[:, self.standardizer.varies]

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
        owners = self.design.heads if self.head_source is None else [self.head_source]
        return dict.fromkeys(owners, self.task_head)

    def fit_heads(self, rows: NDArray[Any]) -> dict[Any, Any]:
        """Return a task head for each source with rows of all classes, if at least two sources have them."""
        head, task = self.head, self.design.task
        transfers = list(self.design.heads) if task else []
        if task == "classification":
            n_classes = len(np.unique(head.label))
            transfers = [s for s in transfers if len(np.unique(head.label[head.source == s])) == n_classes]
        if len(transfers) < 2:
            return {}
        X = self.for_heads(rows)
        label, source, chosen = head.label, head.source, np.isin(head.source, transfers)
        if not chosen.all():
            X, label, source = X[chosen], label[chosen], source[chosen]
        return fit_heads(X, label, source, self.template, task=task, device=self.device)

    @property
    def template(self) -> Any:
        """The head to copy and fit; None means the default."""
        if isinstance(self.task_head, OnnxClassifier | OnnxRegressor):
            return None  # ONNX heads cannot be refitted
        return clone(self.task_head) if self.deployed else self.task_head

    def fit_pooled(self, rows: NDArray[Any], chosen: Any = slice(None)) -> Any:
        """Return a task head fitted on the HEAD rows of all sources, or on the chosen rows."""
        X, label = self.for_heads(rows[chosen]), self.head.label[chosen]
        return fit_pooled_head(X, label, self.template, task=self.design.task, device=self.device)

    @cached_property
    def association_heads(self) -> tuple[tuple[Any, Any], ...]:
        """Shortcut and control heads for each direction, trained on paired events."""
        if not self.directions:
            return ()
        flat = flat_mean(self.read("HEAD"))
        return tuple(
            fit_association_heads(*views_of(self.head, flat, direction)) for direction in self.directions
        )

    @cached_property
    def residual_reading(self) -> Scores:
        """Scores of readers of differences between tokens, which a common shift does not change."""
        return self.run_residual_readers(self.read("HEAD"), self.read("EVAL"))

    def run_residual_readers(self, head: NDArray[Any], held: NDArray[Any]) -> Scores:
        """Return the scores of readers of centred HEAD tokens for EVAL tokens, corrected or not."""
        schedule = {name: value for name, value in self.bank.items() if name != "bank"}
        return run_residual_readers(head, self.head.source, held, device=self.device, **schedule)

    @cached_property
    def picture(self) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
        """EVAL rows for plots, their mean and their two leading directions before any correction."""
        rows = np.sort(np.random.default_rng(0).permutation(len(self.evaluation))[:PICTURE_ROWS])
        H = self.sized(self.standardized(self.table.X[self.positions["EVAL"][rows]])).astype(np.float64)
        mean = H.mean(axis=0)
        return rows, mean, np.linalg.svd(H - mean, full_matrices=False)[2][:2].T

    @property
    def n_threads(self) -> int | None:
        """1 for few rows, for which threads are slower; else None."""
        return 1 if len(self.head) * self.table.X[:1].size < SMALL else None

    def run_readers(
        self, C_head: NDArray[Any], C_eval: NDArray[Any], trained: Scores | None = None
    ) -> Scores:
        """Return the scores of source readers for corrected EVAL rows.

        ``trained`` are scores of logistic readers and networks that were already trained.
        """
        if trained is not None:
            reading = Reading(C_head, source_codes(self.head.source, len(C_head))[0], C_eval, self.whose)
            return with_further(trained, reading, self.bank["bank"], self.bank["seed"])
        source, how = self.head.source, {"device": self.device, "participants": self.whose, **self.bank}
        if not self.tokens:
            return run_readers(C_head, source, C_eval, **how)
        pairs = ((self.read("HEAD"), C_head), (self.read("EVAL"), C_eval))
        # Scores on uncorrected centred tokens hold for all corrections that shift tokens equally.
        alike = all(moves_tokens_alike(before, after) for before, after in pairs)
        residual = self.residual_reading if alike else self.run_residual_readers(C_head, C_eval)
        return run_token_readers(C_head, source, C_eval, residual=residual, **how)

    def reading(self, of: CorrectionMap | NDArray[Any]) -> Reading:
        """Return the rows for source readers: corrected by a map, or the part that a gate preserves."""
        head, held = (
            self.preserved(role, of) if isinstance(of, np.ndarray) else self.read(role, of)
            for role in ("HEAD", "EVAL")
        )
        codes, _ = source_codes(self.head.source, len(head))
        return Reading(check_rows(head, "X_head"), codes, check_rows(held, "X_eval"), self.whose)

    @property
    def whose(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """The units of HEAD and EVAL rows."""
        nested = self.design.kind == "nested"
        return None if nested else (self.head.participant, self.evaluation.participant)

    def preserved(self, role: str, basis: NDArray[Any]) -> NDArray[Any]:
        """Return the preserved part of the rows of a role; the gate's ``basis`` is in FIT's coordinates."""
        H = self.read(role)
        tokens_alike = self.tokens and len(basis) == H.shape[-1]
        for start in range(0, len(H), BLOCK):
            rows = H[start : start + BLOCK]
            if tokens_alike:  # corrections inside the gate shift all tokens like their mean
                rows -= ((token_mean(rows) @ basis) @ basis.T)[:, None, :].astype(H.dtype)
            else:  # vectors, or all tokens jointly
                flat = rows.reshape(len(rows), -1)
                flat[...] = flat - (flat @ basis) @ basis.T
        return H

    def preserves(self, basis: NDArray[Any]) -> bool:
        """Return whether a gate preserves anything; differences between tokens are always preserved."""
        varies = int(self.standardizer.varies.sum())
        width = len(self.standardizer.varies)
        of_means = self.tokens and len(basis) == width
        return bool(of_means or basis.shape[1] < varies * (len(basis) // width))

    def prepare(self) -> dict[str, Any]:
        """Fit all shared objects before workers need them, and return them by name."""
        shared = ["frozen_heads", "association_heads", "picture", *["residual_reading"] * self.tokens]
        with threadpool_limits(self.n_threads):
            return {name: getattr(self, name) for name in shared}

    @property
    def prepared(self) -> bool:
        """Whether all shared objects are fitted."""
        return "picture" in vars(self)


def flat_mean(H: NDArray[Any]) -> NDArray[Any]:
    """Return rows, or the means of tokens."""
    return np.asarray(token_mean(H)) if H.ndim == 3 else H
