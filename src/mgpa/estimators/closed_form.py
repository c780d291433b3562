"""Estimators that are computed from streaming statistics, and the closed form.

The closed form (section 4.1) is one affine map, from moments and pairs (:mod:`mgpa.position`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import _check_feature_names, _check_n_features, check_is_fitted

from .._common.checks import on_cuda
from .._common.parameters import (
    Constraint,
    check_parameters,
    flag,
    gate,
    nothing,
    number,
    one_of,
    source_name,
)
from ..effect import Effect
from ..errors import MissingEvidence
from ..gate import no_gate
from ..labels import reference_code, source_names
from ..linalg import blas_for
from ..maps import AffineMap, CorrectionMap, MapInfo
from ..pair_checks import require_right_pairs, usable_pairs
from ..pairs import Pairs, check_views
from ..position import Position, PositionSettings, solve_position
from ..statistics import LabelledRows, Statistics
from .base import CorrectionEstimator, GatedEstimator, HeldOut
from .devices import sample_windows

if TYPE_CHECKING:
    from ..reading.edits import Action, Reading
    from ..reading.spread import SpreadEvidence

Floats = NDArray[Any]


@dataclass(frozen=True)
class Fitted:
    """The result of a fit: a map and its evidence."""

    map: CorrectionMap
    gate: Any = None
    position: Position | None = None
    spread: SpreadEvidence | None = None  # MGPA only: evidence of held-out pairs on spread
    action: Action | None = None  # MGPA only: the chosen correction
    reading: Reading | None = None  # MGPA only: accuracy of recognising the source
    unseen: str = ""  # treatment of rows from unseen devices, in words


class MomentEstimator(CorrectionEstimator):
    """Base class of methods that are computed from statistics: in one call, in batches, or merged."""

    _data: Statistics
    _result: Fitted | None

    def _solve(self, data: Statistics) -> Fitted | CorrectionMap:
        """Return a map with its evidence."""
        raise NotImplementedError

    def _solved(self, data: Statistics) -> Fitted:
        """Return the map with its evidence; raise unless the statistics have two sources or more."""
        data.require_sources()
        result = self._solve(data)
        return result if isinstance(result, Fitted) else Fitted(result)

    def _fit(self, rows: LabelledRows, pairs: Pairs | None, held: HeldOut) -> None:
        data = Statistics.from_rows(rows, pairs)
        self._result = self._solved(data)
        self._data, self._sample = data, data.sample

    def _fit_nothing(self) -> None:
        self._data = Statistics(n_features=self.n_features_in_)
        self._result = self._identity()

    def _identity(self) -> Fitted:
        """Return the identity map, for estimators that may be fitted without evidence."""
        raise NotImplementedError

    def _effects(self) -> Floats | None:
        if not self._reads_pairs:
            return None
        try:
            return self._data.pairs(again=True).source_effects(len(self._data.sources))
        except (MissingEvidence, ValueError):  # no pairs, or they do not connect all sources
            return None

    def _forget(self) -> None:
        super()._forget()
        self._data, self._result = Statistics(), None

    def _validate_rows(self, X: Any, *, reset: bool, name: str = "X") -> Any:
        """Return X as finite float rows: an array, or a tensor that stays on its device."""
        if not (
            on_cuda(X)
            and X.ndim == 2
            and X.numel()
            and str(X.dtype) in ("torch.float32", "torch.float64")
            and X.isfinite().all()
        ):  # all other inputs are converted to arrays
            return super()._validate_rows(X, reset=reset, name=name)
        _check_feature_names(self, X, reset=reset)
        _check_n_features(self, X, reset=reset)
        return X.detach()

    def partial_fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        source: ArrayLike | None = None,
        pairs: Any = None,
        pair_id: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        pair_groups: ArrayLike | None = None,
    ) -> Self:
        """Add rows and pairs. The map equals that of one fit on all data added so far, up to rounding.

        All batches need sources. Pairs may be in any batch, and the two rows of a pair may be in different
        batches. Rows are reduced to moments, but paired rows are stored in the estimator: to protect data,
        share the map, not the estimator.
        """
        check_parameters(self)
        seen = getattr(self, "_data", Statistics())
        first = seen.n_features is None
        if first:
            self._forget()
        try:
            evidence = {"source": source, "pairs": pairs, "pair_id": pair_id, "groups": groups}
            evidence["pair_groups"] = pair_groups
            rows, views = self._read(X, y, sample_weight=sample_weight, **evidence, reset=first)
            self._data = seen + Statistics.from_rows(rows, views)
            self._keep(sample_windows(rows))
        except MissingEvidence as reason:
            self._tolerate(reason, "This batch is not used")
            self._data = replace(seen, n_features=self.n_features_in_)
        self._result, self._sample = None, self._data.sample
        return self

    def add_pairs(self, pairs: LabelledRows | tuple[Any, Any]) -> Self:
        """Add pairs that are not among the rows: aligned arrays (A, B), or rows with sources and ids."""
        check_is_fitted(self)
        if self._reads_pairs:
            if isinstance(pairs, LabelledRows):
                check_views((pairs.X, pairs.X), self.n_features_in_)
                self._data += Statistics(calibration=(pairs,))
            else:
                self._data += Statistics(aligned=(Pairs.from_arrays(pairs, self.n_features_in_),))
            self._result = None
        return self

    def merge(self, other: Any) -> Self:
        """Add the data of another (partially) fitted estimator, for example from another machine."""
        if type(other) is not type(self):
            raise TypeError(f"Cannot merge {type(other).__name__} into {type(self).__name__}.")
        check_is_fitted(other)
        seen = getattr(self, "_data", Statistics())
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
            raise ValueError("Both estimators contain the same rows; merging would count them twice.")
        self._data = seen + other._data
        self._keep(other._windows)
        self._result, self._sample = None, self._data.sample
        return self

    @property
    def _fitted(self) -> Fitted:
        """The result of the fit; it is computed again if data were added."""
        self._require_fitted()
        if self._result is None:
            check_parameters(self)  # parameters may have changed since the last batch
            try:
                self._result = self._solved(self._data)
            except MissingEvidence as reason:
                self._tolerate(reason, "Returning the identity map")
                self._result = self._identity()
        return self._result

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "_data", Statistics()).n_features is not None

    def _require_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet; call fit first.")

    @property
    def map_(self) -> Any:
        """The stored correction."""
        return self._fitted.map

    @property
    def sources_(self) -> Any:
        """Sorted source labels of the fit."""
        self._require_fitted()
        return self._data.sources

    def _evidence_info(self, data: Statistics, *, gate: Any = None, **facts: Any) -> MapInfo:
        """Return the provenance of a map computed from these statistics, and of its gate."""
        if gate is not None:
            facts = {"gate_rank": gate.rank_, "gate_energy": gate.retained_energy} | facts
        return self._info(
            data.standardizer(True),
            source_names=source_names(data.sources),
            n_rows=data.moments.n_rows,
            fingerprint=data.moments.fingerprint,
            **facts,
        )


class GatedMomentEstimator(GatedEstimator, MomentEstimator):
    """Base class of estimators that compute a map inside a gate from moments and pairs."""

    def _solved(self, data: Statistics) -> Fitted:
        """Return the map with its evidence, computed by one BLAS thread if pairs and features are few."""
        with blas_for(data.n_views, data.n_features or 0):
            return super()._solved(data)

    def _identity(self) -> Fitted:
        d = self.n_features_in_
        return Fitted(AffineMap.identity(d, info=self._info(gate_rank=0)), no_gate(d))

    @property
    def gate_(self) -> Any:
        """The fitted gate: the directions in which rows may move."""
        return self._fitted.gate

    @property
    def _position(self) -> Position | None:
        return self._fitted.position

    @property
    def shift_gate_(self) -> Any:
        """The directions of mean differences; ``gate_`` has others if a correction of spread is applied."""
        return self.gate_ if self._position is None else self._position.gate

    @property
    def effect_(self) -> Effect | None:
        """The share of the mean contrast that rows show."""
        return None if self._position is None else self._position.effect


class ClosedFormMGPA(GatedMomentEstimator):
    """Correct embeddings in one affine map fitted from source labels and paired measurements.

    Parameters
    ----------
    gate : int, float, gate estimator or None
        The directions in which rows may move. An int is the rank of a :class:`~mgpa.MeasurementGate`, a float
        the share of directional energy to retain; with None, held-out pairs decide.
    anchor : {"within", "pooled"}
        The target of the gate coordinates: their regression on the preserved coordinates within sources,
        which does not learn an association of source and task, or over the rows of all sources, as published.
        For "within", only relative row weights matter; for "pooled", a weight of 2 equals a repeated row.
    reference : source label or None
        The source to whose mean rows are moved; None is the mean of the sources' means. Preserved coordinates
        and differences between corrected rows do not depend on it.
    strength : float
        α. 1 is the full step; values above 1 overshoot; any α ≠ 1 is invertible given Q.
    ridge : float or "auto"
        Penalty of the regression of gate coordinates on preserved coordinates, on the sum-of-squares scale.
        "auto" is generalised cross-validation for anchors within sources, and the published 10 for anchors
        over all rows.
    shrinkage : float
        Shrinkage of the residual covariance toward its mean diagonal.
    do_no_harm : bool
        With ``anchor="within"``, return the identity unless pairs show a consistent shift and rows show it at
        the 5 % level, tested over participants if ``groups`` are given.
    standardize : bool
        Whether to standardise features on the fitting rows. The output has the units of the input in both
        cases.
    on_missing : {"raise", "warn"}
        Without source labels or pairs, raise an error, or warn and return the identity map.

    Attributes
    ----------
    gate_ : fitted gate
        With ``basis_`` (d, r), ``rank_``, ``cumulative_energy_`` and ``mean_contrast_``.
    map_ : AffineMap
        The stored correction, along the K - 1 directions of the mean contrasts.
    sources_ : array
        Source labels seen.
    direction_ : (K - 1, r) array
        Δ: mean projected contrast of each further source against the first.
    covariance_ : (r, r) array
        Residual covariance C, after shrinkage.
    effect_ : Effect or None
        The share of the mean contrast that rows show, with its standard error; None with ``anchor="pooled"``.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> source = np.repeat(["dry", "wet"], 100)
    >>> shift = np.array([2.0, 0, 0, 0, 0])
    >>> X = rng.normal(size=(200, 5)) + (source == "wet")[:, None] * shift
    >>> A = rng.normal(size=(30, 5)); B = A + shift + 0.1 * rng.normal(size=(30, 5))
    >>> model = ClosedFormMGPA().fit(X, source=source, pairs=(A, B))
    >>> model.transform(X).shape, model.to_map(), bool(0.9 < model.effect_.size < 1.1)
    ((200, 5), <AffineMap: affine, 1 direction, 5 features>, True)
    >>> ClosedFormMGPA.paper().fit(X, source=source, pairs=(A, B)).to_map()
    <AffineMap: affine, 1 direction, 5 features>
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "gate": gate,
        "anchor": one_of("within", "pooled"),
        "reference": source_name | nothing,
        "strength": number(0),
        "ridge": number(0) | one_of("auto"),
        "shrinkage": number(0, 1),
        "do_no_harm": flag,
        "standardize": flag,
        "on_missing": one_of("raise", "warn"),
    }

    def __init__(
        self,
        gate: Any = None,
        *,
        anchor: str = "within",
        reference: Any = None,
        strength: float = 1.0,
        ridge: float | str = "auto",
        shrinkage: float = 0.01,
        do_no_harm: bool = True,
        standardize: bool = True,
        on_missing: str = "raise",
    ) -> None:
        self.gate = gate
        self.anchor = anchor
        self.reference = reference
        self.strength = strength
        self.ridge = ridge
        self.shrinkage = shrinkage
        self.do_no_harm = do_no_harm
        self.standardize = standardize
        self.on_missing = on_missing

    @classmethod
    def paper(cls, gate: Any = None, **changes: Any) -> Self:
        """Return the published settings: a pooled anchor with ridge 10, no test of evidence.

        The default gate is .9, the share of contrast energy in the controlled SSVEP and N170 studies
        (recorded SSVEP: .99, reuse: rank 8). ``changes`` override parameters.
        """
        gate = 0.9 if gate is None else gate
        settings: dict[str, Any] = {"anchor": "pooled", "ridge": 10.0, "do_no_harm": False}
        return cls(gate, **(settings | changes))

    def _solve(self, data: Statistics) -> Fitted:
        left_out = ""
        if self.do_no_harm:
            data, pairs, doubt, left_out = usable_pairs(data)
        else:
            pairs = data.pairs()
            doubt = require_right_pairs(pairs)
        code = reference_code(self.reference, data.sources)
        settings = PositionSettings(
            self.anchor, self.ridge, self.shrinkage, self.do_no_harm, self.strength, code
        )
        effects = pairs.source_effects(len(data.sources))
        position = solve_position(
            data, pairs, effects, gate=self.gate, standardize=self.standardize, settings=settings
        )
        facts = {} if code is None else {"reference": source_names(data.sources)[code]}
        evidence = "; ".join(filter(None, (position.map.info.evidence, left_out)))
        if position.effect is not None:
            doubt = " ".join(filter(None, (doubt, position.effect.doubt)))
        info = self._evidence_info(
            data, gate=position.gate, n_contrasts=len(pairs), evidence=evidence, doubt=doubt, **facts
        )
        return Fitted(replace(position.map, info=info), position.gate, position)

    @property
    def direction_(self) -> Floats:
        """Δ in gate coordinates, one row per source after the first."""
        return np.zeros((0, 0)) if self._position is None else self._position.direction

    @property
    def covariance_(self) -> Floats:
        """Residual covariance C, after shrinkage."""
        return np.zeros((0, 0)) if self._position is None else self._position.covariance
