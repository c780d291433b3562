"""Estimators of equal blocks of features, side by side: what corrects every token by a map of its own."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.linalg

from .._common.arrays import namespace
from ..errors import MissingEvidence
from ..maps import AffineMap, PathMap


class Blocks:
    """Estimators of equal blocks of features, which together correct rows of all blocks.

    A block whose pairs show nothing stays as it is, unless that is so in all of them.

    Parameters
    ----------
    estimators : list of estimators
        One for each block, in order.
    """

    def __init__(self, estimators: list[Any]) -> None:
        self.estimators = estimators
        self.without_evidence: dict[int, MissingEvidence] = {}  # of a fit in one call

    def fit(self, X: Any, y: Any = None, *, pairs: Any = None, X_val: Any = None, **evidence: Any) -> Self:
        """Fit every estimator on its block of X, ``pairs`` and ``X_val``."""
        parts = zip(self.estimators, self._of(X), self._of_pairs(pairs), self._of(X_val), strict=True)
        for i, (model, rows, views, held) in enumerate(parts):
            try:
                model.fit(rows, y, pairs=views, X_val=held, **evidence)
            except MissingEvidence as reason:
                self.without_evidence[i] = reason
        self._maps()
        return self

    def fit_draw(self, all_rows: Any, X: Any, y: Any = None, **evidence: Any) -> Self:
        """Fit on a draw; the methods that look at all rows have no maps that could be joined."""
        return self.fit(X, y, **evidence)

    def partial_fit(self, X: Any, y: Any = None, *, pairs: Any = None, **evidence: Any) -> Self:
        """Add more rows, and pairs, to every estimator."""
        for model, rows, views in zip(self.estimators, self._of(X), self._of_pairs(pairs), strict=True):
            model.partial_fit(rows, y, pairs=views, **evidence)
        return self

    def add_pairs(self, pairs: Any) -> Self:
        """Add pairs that are no rows to every estimator."""
        if isinstance(pairs, (tuple, list)):
            parts = self._of_pairs(pairs)
        else:
            parts = [replace(pairs, X=block) for block in self._of(pairs.X)]
        for model, part in zip(self.estimators, parts, strict=True):
            model.add_pairs(part)
        return self

    def merge(self, other: Blocks) -> Blocks:
        """Return estimators that have also seen everything others of the same blocks have."""
        both = zip(self.estimators, other.estimators, strict=True)
        return Blocks([copy.copy(model).merge(more) for model, more in both])

    def transform(self, X: Any, **operating_point: Any) -> Any:
        """Correct rows, block by block."""
        parts = [
            block if m is None else model.transform(block, **operating_point)
            for model, m, block in zip(self.estimators, self._maps(), self._of(X), strict=True)
        ]
        return namespace(X).concatenate(parts, axis=1)

    def coverage(self, pairs: Any) -> float:
        """Return the share of directional energy inside the gate: its mean over blocks that have one."""
        views = zip(self.estimators, self._maps(), self._of_pairs(pairs), strict=True)
        return float(np.mean([model.coverage(part) for model, m, part in views if m is not None]))

    def to_map(self) -> AffineMap:
        """Return one affine map of all blocks."""
        found = self._maps()
        first = next(m for m in found if m is not None)
        nothing = AffineMap.identity(first.n_features, info=replace(first.info, evidence="nothing to remove"))
        maps = [nothing if m is None else m for m in found]
        affine = [m.affine if isinstance(m, PathMap) else m for m in maps]
        if not all(isinstance(m, AffineMap) for m in affine):
            raise TypeError(
                f"A {type(first).__name__} for each token has no form as one map; use an estimator whose "
                "maps are affine, such as ClosedFormMGPA, or take the maps of estimator_.estimators."
            )
        d = affine[0].n_features
        constant = [i * d + k for i, m in enumerate(affine) for k in m.info.constant_features]
        return AffineMap(
            center=np.concatenate([m.center for m in affine]),
            scale=np.concatenate([m.scale for m in affine]),
            readout=scipy.linalg.block_diag(*[m.readout for m in affine]),
            direction=scipy.linalg.block_diag(*[m.direction for m in affine]),
            offset=np.concatenate([m.offset for m in affine]),
            strength=affine[0].strength,
            info=replace(
                affine[0].info,
                feature_names=None,
                constant_features=tuple(constant),
                gate_rank=None,
                gate_energy=None,
                evidence="; ".join(f"token {i}: {m.info.evidence}" for i, m in enumerate(maps)),
            ),
        )

    def _maps(self) -> list[Any]:
        """Return every block's map, None for one without evidence; without any, raise what was missing."""
        maps, missing = [], list(self.without_evidence.values())
        for i, model in enumerate(self.estimators):
            try:
                maps.append(None if i in self.without_evidence else model.to_map())
            except MissingEvidence as reason:  # of what was streamed, told when it is solved
                maps.append(None)
                missing.append(reason)
        if len(missing) == len(maps):
            raise missing[0]
        return maps

    def _of(self, X: Any) -> list[Any]:
        """Return the blocks of rows X; None for each, if there are no rows."""
        n = len(self.estimators)
        if X is None:
            return [None] * n
        tokens = X.reshape(len(X), n, -1)
        return [tokens[:, i] for i in range(n)]

    def _of_pairs(self, pairs: Any) -> list[Any]:
        if pairs is None:
            return self._of(None)
        return list(zip(*(self._of(np.asarray(side)) for side in pairs), strict=True))
