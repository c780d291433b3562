"""Score end-to-end comparators in an audit; they replace the head, so only the task is measured.

A decoder that uses unlabelled target rows or pairs is trained for every transfer from one source to another
and scored like refitted heads (T_r). A decoder of all sources together is scored like pooled heads (T_p).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

from ..errors import UsageError
from .fits import Fit
from .ground import Ground
from .measure import in_columns, measured, transfer
from .method_result import MethodResult
from .pooling import HEADS
from .store import Arrays


@dataclass(frozen=True)
class OnSource:
    """A decoder for rows of one given source."""

    model: Any
    source: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def predict(self, X: Any) -> Any:
        """Return the predictions of the model."""
        return self.model.predict(X, source=np.full(len(X), self.source))


def decode(ground: Ground, model: Any) -> Arrays:
    """Train a decoder on HEAD rows and return its scores for each EVAL unit."""
    design, head, held = ground.design, ground.head, ground.evaluation
    name, classifies = type(model).__name__, is_classifier(model)
    if len(design.heads) < 2:
        raise UsageError(
            f"{name} predicts labels, and fewer than two sources of this table have all of them."
        )
    if classifies != (design.task == "classification"):
        labels = "classes" if design.task == "classification" else "numbers"
        raise UsageError(
            f"{name} predicts {'classes' if classifies else 'numbers'}; the labels are {labels}."
        )
    X, new = ground.read("HEAD"), ground.read("EVAL")

    def trained(start: Any, goal: Any) -> Any:
        rows, target = head.source == start, head.source == goal
        if model.tags.needs_pairs:
            both = rows | target
            ids = None if head.pair_id is None else head.pair_id[both]
            fresh = clone(model).set_params(reference=start)
            return fresh.fit(X[both], head.label[both], source=head.source[both], pair_id=ids)
        fresh = clone(model)
        return fresh.fit(X[rows], head.label[rows], source=head.source[rows], X_target=X[target])

    def scored(fitted: Any, goal: Any) -> Arrays:
        return measured(ground, transfer(ground, OnSource(fitted, goal), new, goal))

    directions = [(a, b) for a in design.heads for b in design.heads if a != b]
    if model.tags.needs_source and not model.tags.needs_pairs:
        fitted = clone(model).fit(X, head.label, source=head.source)
        heads, parts = "pooled", [scored(fitted, goal) for goal in design.heads]
    else:
        heads, parts = "refitted", [scored(trained(a, b), b) for a, b in directions]
    return {
        "participants": np.array(ground.units),
        "directions": np.array([f"{a} → {b}" for a, b in directions]),
        # Readers do not score decoders, but pooling of folds needs the units.
        "source_scores": np.zeros((len(held), 1), np.float32),
        "eval_source": np.searchsorted(head.sources, held.source),
        "eval_person": ground.unit_codes,
        "eval_class": ground.classes,
        **in_columns(heads, parts),
    }


def collect(fits: Sequence[Fit], cells: list[Arrays], **fields: Any) -> MethodResult:
    """Return the scores of a decoder as a result without other measurements."""
    n_units = len(cells[0]["participants"])
    nothing = np.full((len(cells), n_units, 1), np.nan)
    return MethodResult(
        name=fits[0].method,
        source_blind=fits[0].model.tags.source_blind,
        participants=tuple(cells[0]["participants"].tolist()),
        readers=("none",),
        directions=tuple(cells[0]["directions"].tolist()),
        homes=(),
        source_auroc=nothing,
        movement=nothing[..., 0],
        heads={name: np.stack([c[name] for c in cells]) for name in HEADS if name in cells[0]},
        cells=list(cells),
        cell_fits=tuple(range(len(cells))),
        summary=f"{fits[0].model!r}: an end-to-end comparator, scored on the task alone",
        **fields,
    )
