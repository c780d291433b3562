"""Estimators fitted from sufficient statistics: in one call, batch by batch, or merged across machines.

Rows are reduced to :class:`~mgpa.moments.Moments` at once, so memory does not grow with their number. Paired
rows are few and are kept: what a method makes of them (a filter, a regression) depends on all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import _check_feature_names, _check_n_features, check_is_fitted

from .._common.checks import on_cuda
from .._common.parameters import check_parameters
from ..errors import MissingEvidence
from ..maps import CorrectionMap
from ..moments import Means, Moments, Standardizer, sample_rows
from ..pairs import (
    Contrasts,
    check_views,
    is_paired,
    joined,
    matched_rows,
    require_distinct,
    source_names,
    to_numpy,
)
from .base import NO_PAIRS, CorrectionEstimator, FitData, require_several

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LabelledPairs:
    """Paired rows with their sources, event ids and (if known) participants."""

    X: NDArray[Any]
    source: NDArray[Any]
    pair_id: NDArray[Any]
    participant: NDArray[Any] | None = None

    def matched(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of the first and of the second view of all pairs, two sources at a time."""
        sources, codes = np.unique(self.source, return_inverse=True)
        matches = [
            matched_rows(codes, self.pair_id, first, second)
            for second in range(len(sources))
            for first in range(second)
        ]
        first, second = (np.concatenate(side) for side in zip(*matches, strict=True))
        return first, second


@dataclass(frozen=True)
class Evidence:
    """The statistics of the data seen so far. ``a + b`` merges."""

    moments: Moments = field(default_factory=lambda: Moments({}))  # of all rows, by source
    # Pairs that are not among the rows: aligned arrays with their people, and rows with sources and ids.
    pairs: tuple[tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None], ...] = ()
    calibration: tuple[LabelledPairs, ...] = ()
    paired_rows: tuple[LabelledPairs, ...] = ()  # rows that have pair ids
    people: Means = field(default_factory=lambda: Means({}))  # by (source, participant)
    task: Means = field(default_factory=lambda: Means({}))
    n_features: int | None = None  # None before anything was seen

    @classmethod
    def from_data(cls, data: FitData) -> Self:
        """Reduce one batch."""
        labels = data.sources[data.codes]
        rows: tuple[LabelledPairs, ...] = ()
        if data.pair_id is not None:
            require_distinct(data.codes, data.pair_id)
            keep = is_paired(data.pair_id)
            people = None if data.groups is None else data.groups[keep]
            rows = (LabelledPairs(to_numpy(data.X[keep]), labels[keep], data.pair_id[keep], people),)
        weight, people_means = data.sample_weight, Means({})
        if data.groups is not None:
            people_means = Means.from_rows(data.X, labels, data.groups, sample_weight=weight)
        return cls(
            Moments.from_rows(data.X, labels, weight),
            pairs=() if data.pairs is None else ((*data.pairs, data.pair_groups),),
            paired_rows=rows,
            people=people_means,
            task=Means({}) if data.task is None else Means.from_rows(data.X, data.task, sample_weight=weight),
            n_features=data.X.shape[1],
        )

    def __add__(self, other: Evidence) -> Evidence:
        return Evidence(
            self.moments + other.moments,
            self.pairs + other.pairs,
            self.calibration + other.calibration,
            self.paired_rows + other.paired_rows,
            self.people + other.people,
            self.task + other.task,
            other.n_features or self.n_features,
        )

    @property
    def sources(self) -> NDArray[Any]:
        """Source labels, sorted."""
        return np.array(self.moments.sources)

    def require_sources(self) -> int:
        """Return the number of sources, at least two, each with some weight."""
        if not self.moments.parts:
            raise MissingEvidence("source is missing: no labelled rows were seen.")
        return require_several(self.sources, self.moments.weights)

    def standardizer(self, standardize: bool) -> Standardizer:
        """Return the centre and scale of all rows seen; raise if no feature varies."""
        m = self.moments
        return Standardizer.from_spread(m.mean, m.variance, m.n_rows, standardize).require_variation()

    def contrasts(self) -> Contrasts:
        """Return every contrast seen, from aligned arrays and from pair ids; raise if there are none."""
        contrasts = [Contrasts.from_pairs((A, B), A.shape[1], people) for A, B, people in self.pairs]
        if self._labelled:
            contrasts.append(Contrasts.from_ids(*self._paired()))
        if not sum(map(len, contrasts)):
            raise MissingEvidence(NO_PAIRS)
        self._require_two_for_arrays()
        return Contrasts.concatenate(contrasts)

    def views(self, first: int, second: int) -> tuple[Floats, Floats]:
        """Return matched rows of two sources (positions among :attr:`sources`), one row per shared event."""
        self._require_two_for_arrays()
        order = 1 if first < second else -1
        views = [(A, B)[::order] for A, B, _ in self.pairs]
        if self._labelled:
            X, codes, ids, _ = self._paired()
            a, b = matched_rows(codes, ids, first, second)
            views.append((X[a], X[b]))
        if not sum(len(a) for a, _ in views):
            one, other = self.sources[[first, second]].tolist()
            raise MissingEvidence(f"No pair joins {one!r} and {other!r}." if views else NO_PAIRS)
        A, B = (np.concatenate(side).astype(np.float64) for side in zip(*views, strict=True))
        return A, B

    def paired_moments(self) -> Moments:
        """Return the moments of all paired views, which show the same events in every source."""
        total = self._array_moments()
        if self._labelled:
            X, codes, ids, _ = self._paired()
            _, event, n_views = np.unique(ids, return_inverse=True, return_counts=True)
            seen = n_views[event] > 1
            X = X if seen.all() else X[seen]
            total = total + Moments.from_rows(X, self.sources[codes[seen]])
        return total

    def calibration_moments(self) -> Moments:
        """Return the moments of the paired views that are not among the rows."""
        total = self._array_moments()
        for rows in self.calibration:
            total = total + Moments.from_rows(rows.X, rows.source)
        return total

    def _array_moments(self) -> Moments:
        self._require_two_for_arrays()
        total = Moments({})
        for *views, _ in self.pairs:
            for label, side in zip(self.sources, views, strict=True):
                total = total + Moments.from_rows(side, np.full(len(side), label))
        return total

    @property
    def _labelled(self) -> tuple[LabelledPairs, ...]:
        return self.paired_rows + self.calibration

    def _paired(self) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any], NDArray[Any] | None]:
        """Return all labelled pairs: rows, codes of their sources, ids, and people if all are known."""
        parts = self._labelled
        X, labels, ids = (
            joined([getattr(rows, name) for rows in parts]) for name in ("X", "source", "pair_id")
        )
        if len(unseen := np.setdiff1d(labels, self.sources)):
            raise ValueError(
                f"The pairs have {len(np.unique(labels))} sources and the rows {len(self.sources)}: no "
                f"row has source {unseen[0].item()!r}. Name the sources alike in both, or add rows."
            )
        codes = np.searchsorted(self.sources, labels)
        require_distinct(codes, ids)
        people = [rows.participant for rows in parts if rows.participant is not None]
        return X, codes, ids, np.concatenate(people) if len(people) == len(parts) else None

    def _require_two_for_arrays(self) -> None:
        if self.pairs and len(self.sources) > 2:
            raise ValueError(
                f"pairs=(A, B) does not say which of the {len(self.sources)} sources each view is; use "
                "pair_id= with source=."
            )


class MomentEstimator(CorrectionEstimator):
    """Base of the closed-form methods. Subclasses say how to :meth:`_solve` the evidence."""

    def _solve(self, data: Evidence) -> Any:
        """Return a :class:`CorrectionMap`, or anything with a ``map`` of that kind."""
        raise NotImplementedError

    def _nothing(self) -> Any:
        """Return the solution without evidence, for estimators that may be fitted without."""
        raise NotImplementedError

    def _forget(self) -> None:
        super()._forget()
        self._data, self._solved = Evidence(), None

    def _validate_rows(self, X: Any, *, reset: bool, name: str = "X") -> Any:
        """Return X as finite float rows: an array, or a tensor that need not leave its accelerator."""
        if not (
            on_cuda(X)
            and X.ndim == 2
            and X.numel()
            and str(X.dtype) in ("torch.float32", "torch.float64")
            and X.isfinite().all()
        ):  # everything else is read as an array
            return super()._validate_rows(X, reset=reset, name=name)
        _check_feature_names(self, X, reset=reset)
        _check_n_features(self, X, reset=reset)
        return X.detach()

    def _fit(self, data: FitData) -> None:
        require_several(data.sources)
        evidence = Evidence.from_data(data)
        self._solved = self._solve(evidence)
        self._data = evidence

    def _become_identity(self) -> None:
        self._data = Evidence(n_features=self.n_features_in_)
        self._solved = self._nothing()

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        source: Any = None,
        pairs: Any = None,
        pair_id: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        pair_groups: Any = None,
    ) -> Self:
        """Add rows and pairs. The map equals one fit on everything seen, to rounding.

        Every batch needs its sources; pairs may come with any, and a pair may be split between them. Rows are
        reduced to moments, but for paired ones: share the map, not the estimator.
        """
        check_parameters(self)
        seen = getattr(self, "_data", Evidence())
        first = seen.n_features is None
        if first:
            self._forget()
        try:
            evidence = {"source": source, "pairs": pairs, "pair_id": pair_id, "groups": groups}
            evidence["pair_groups"] = pair_groups
            data = self._read(X, y, sample_weight=sample_weight, **evidence, reset=first)
            self._data = seen + Evidence.from_data(data)
            self._rows_seen = sample_rows(data.X, self._rows_seen)
        except MissingEvidence as reason:
            self._tolerate(reason, "This batch is not used")
            self._data = replace(seen, n_features=self.n_features_in_)
        self._solved = None
        return self

    def add_pairs(self, pairs: LabelledPairs | tuple[Any, Any]) -> Self:
        """Add pairs that are not among the rows: aligned arrays (A, B), or rows with sources and ids."""
        check_is_fitted(self)
        if self._looks_at_pairs:
            if isinstance(pairs, LabelledPairs):
                check_views((pairs.X, pairs.X), self.n_features_in_)
                self._data += Evidence(calibration=(pairs,))
            else:
                self._data += Evidence(pairs=((*check_views(pairs, self.n_features_in_), None),))
            self._solved = None
        return self

    def merge(self, other: Any) -> Self:
        """Add everything another (partially) fitted estimator has seen, for instance on another machine."""
        if type(other) is not type(self):
            raise TypeError(f"Cannot merge {type(other).__name__} into {type(self).__name__}.")
        check_is_fitted(other)
        seen = getattr(self, "_data", Evidence())
        names = [list(getattr(model, "feature_names_in_", [])) for model in (self, other)]
        if seen.n_features is None:
            self.n_features_in_ = other.n_features_in_
            if names[1]:
                self.feature_names_in_ = np.array(names[1], dtype=object)
        elif seen.n_features != other.n_features_in_:
            raise ValueError(f"Cannot merge fits on {seen.n_features} and {other.n_features_in_} features.")
        elif names[0] != names[1]:
            raise ValueError("Cannot merge fits whose columns have other names or another order.")
        elif seen.moments.n_rows and seen.moments.fingerprint == other._data.moments.fingerprint:
            raise ValueError("Both estimators have seen the same rows; merging would count them twice.")
        self._data = seen + other._data
        if other._rows_seen is not None:
            self._rows_seen = sample_rows(other._rows_seen, self._rows_seen)
        self._solved = None
        return self

    def _solution(self) -> Any:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet; call fit first.")
        if self._solved is None:
            check_parameters(self)  # which may have been set since the last batch
            try:
                self._solved = self._solve(self._data)
            except MissingEvidence as reason:
                self._tolerate(reason, "Returning the identity map")
                self._solved = self._nothing()
        return self._solved

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "_data", Evidence()).n_features is not None

    @property
    def map_(self) -> Any:
        """The stored correction."""
        solution = self._solution()
        return solution if isinstance(solution, CorrectionMap) else solution.map

    @property
    def sources_(self) -> Any:
        """Source labels seen, sorted."""
        self._solution()
        return self._data.sources

    def _evidence_info(self, data: Evidence, **facts: Any) -> Any:
        """Return provenance for a map solved from this evidence."""
        return self._info(
            data.standardizer(True),
            source_names=source_names(data.sources),
            n_rows=data.moments.n_rows,
            fingerprint=data.moments.fingerprint,
            **facts,
        )
