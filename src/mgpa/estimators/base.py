"""Base class of all estimators, which check their input, fit a map, and apply it.

``_read`` checks the input of a fit and returns rows and pairs (:class:`~mgpa.statistics.LabelledRows`,
:class:`~mgpa.pairs.Pairs`). Methods computed from moments and pairs (:class:`MomentEstimator`) reduce them to
:class:`~mgpa.statistics.Statistics` and call ``_solve``, for data from one call, batches or several machines.
All other methods call ``_fit`` on the rows.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from .._common.checks import as_floats, is_tensor, refuse_masked, require_finite
from .._common.parameters import Constraint, check_parameters
from ..errors import MissingEvidence, MissingEvidenceWarning, UsageError
from ..labels import (
    Labels,
    check_labels,
    check_pair_id,
    encode_source,
    refuse_gaps_as_text,
    require_length,
    to_numpy,
)
from ..maps import CorrectionMap, MapInfo, SequentialMap
from ..maps.check import FittedRange
from ..maps.population import Population
from ..moments import Standardizer
from ..pairs import Pairs
from ..statistics import LabelledRows, sample_rows
from .devices import Window, fit_population, keep_windows, sample_windows

Floats = NDArray[Any]
# X_val and source_val as passed; methods that hold out rows read them.
HeldOut = tuple[ArrayLike | None, ArrayLike | None]


@dataclass(frozen=True, kw_only=True)
class MethodTags:
    """The requirements and outputs of a method; listed by :func:`mgpa.baselines.list_methods`.

    ``source_blind`` methods correct new rows without their source. The ``needs_`` tags refer to ``fit``.
    Signals (n, channels, times) must be embedded after a correction. Streaming methods have ``partial_fit``
    and ``merge``. ``extra`` names an extra that must be installed.
    """

    name: str = ""
    source_blind: bool
    needs_source: bool = True
    needs_pairs: bool = False
    needs_task: bool = False
    acts_on: str = "embeddings"
    streams: bool = False
    extra: str = ""
    reference: str = ""


class Described:
    """Mixin that adds the caller's facts to a map: encoder, participants, coordinates."""

    _provenance: dict[str, Any] | None = None

    def describe(self, **facts: Any) -> Self:
        """Add facts to the map of ``to_map``: fields of its info, and coordinates; ignore empty values."""
        self._provenance = (self._provenance or {}) | {k: v for k, v in facts.items() if v}
        return self

    def _with_provenance(self, m: CorrectionMap) -> CorrectionMap:
        facts = dict(self._provenance or {})
        if not facts:
            return m
        coordinates = facts.pop("coordinates", m.coordinates)
        return replace(m, info=replace(m.info, **facts), coordinates=coordinates)


def forget(estimator: Any) -> None:
    """Delete fitted attributes, so that a failed fit leaves an unfitted estimator."""
    for name in [name for name in vars(estimator) if name.endswith("_") and not name.startswith("_")]:
        delattr(estimator, name)


def validate_rows(estimator: Any, X: Any, *, reset: bool, name: str = "X") -> Floats:
    """Return X as finite float rows; store (``reset``) or check its width and feature names."""
    X = to_numpy(X, name) if is_tensor(X) else X
    refuse_masked(X, name)
    # Lists have no shape and no dtype; data frames have no single dtype.
    array = X if hasattr(X, "shape") and hasattr(X, "dtype") else np.asarray(X)
    shape, dtype = array.shape, array.dtype
    if getattr(dtype, "kind", "") in "US":
        raise ValueError(f"{name} holds text (dtype {dtype}); expected numbers.")
    if getattr(dtype, "kind", "") in "iub" or getattr(dtype, "name", "") in ("float16", "bfloat16"):
        as_floats(np.empty(0, dtype), name, "numbers", category=DataConversionWarning, stacklevel=5)
    if len(shape) == 3:
        raise ValueError(
            f"{name} has shape {shape}; expected two dimensions (rows, features). "
            "For tokens (n, t, d) use mgpa.TokenMean or mgpa.transform_tokens."
        )
    if name != "X" and len(shape) == 2 and shape[1] != estimator.n_features_in_:
        raise ValueError(f"{name} has {shape[1]} features but X has {estimator.n_features_in_}.")
    checked: Floats = validate_data(
        estimator, X, dtype=(np.float64, np.float32), order="C", reset=reset, ensure_all_finite=False
    )  # in C order, so that results are bit-identical whatever the memory layout of X
    require_finite(checked, name)
    return checked


def _in_words(value: Any) -> str:
    """Return a parameter as one line of text, with only the shapes of arrays."""
    if isinstance(value, np.ndarray):
        return f"<{' x '.join(map(str, value.shape))} array>"
    parts = value.get_params(deep=False) if isinstance(value, BaseEstimator) else {}
    if any(isinstance(part, np.ndarray) for part in parts.values()):
        return f"{type(value).__name__}({', '.join(f'{k}={_in_words(v)}' for k, v in parts.items())})"
    return " ".join(repr(value).split())


class CorrectionEstimator(Described, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of estimators that are fitted on source labels and pairs and applied to new rows."""

    # Metadata routing slices row-aligned arguments with X, but passes ``pairs`` unsliced to each fold.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"source": True, "pair_id": True, "groups": True}

    tags: ClassVar[MethodTags]
    _parameter_constraints: ClassVar[dict[str, Constraint]]
    n_features_in_: int
    map_: Any  # a CorrectionMap
    _sample: Any = None  # a sample of the fitting rows
    _windows: tuple[Window, ...] = ()  # windows of consecutive fitting rows
    _population: Population | None = None

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        source: ArrayLike | None = None,
        pairs: Any = None,
        pair_id: ArrayLike | None = None,
        X_val: ArrayLike | None = None,
        source_val: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        pair_groups: ArrayLike | None = None,
    ) -> Self:
        """Fit the correction.

        Parameters
        ----------
        X : (n, d) array
            Embeddings.
        y : (n,) array
            The task, used only by methods with the tag ``needs_task``. It is never used as the source.
        source : (n,) array
            Acquisition condition of each row; two or more distinct labels.
        pairs : tuple (A, B) of (m, d) arrays
            Row i of A and row i of B are the first and second view of one event: with sources "dry" and
            "wet", A is dry. With more than two sources, use pair_id. Methods without the tag ``needs_pairs``
            ignore pairs and check only the length of pair_id.
        pair_id : (n,) array
            Instead of pairs, and safe under cross-validation: rows of X that share an id are views of one
            event, one per source. Negative ids are unpaired.
        X_val, source_val : (n_val, d) array, (n_val,) array
            Held-out rows, if possible of other participants, for methods with early stopping.
        sample_weight : (n,) array or None
            Row weights. A weight of 2 equals a repeated row; for within-source anchors, only relative weights
            matter.
        groups : (n,) array or None
            Participants of the rows. Evidence is tested over participants, and no participant is on both
            sides of a split.
        pair_groups : (m,) array or None
            Participants of ``pairs``. With ``pair_id``, participants are taken from ``groups``.
        """
        check_parameters(self)
        self._forget()
        evidence = {"source": source, "pairs": pairs, "pair_id": pair_id, "groups": groups}
        evidence["pair_groups"] = pair_groups
        try:
            rows, views = self._read(X, y, sample_weight=sample_weight, **evidence)
            self._fit(rows, views, (X_val, source_val))
            self._sample = sample_rows(rows.X) if self._sample is None else self._sample
            self._keep(sample_windows(rows) if self.tags.needs_source else ())
        except MissingEvidence as reason:
            self._tolerate(reason, "Returning the identity map")
            self._fit_nothing()
        return self

    def _fit(self, rows: LabelledRows, pairs: Pairs | None, held: HeldOut) -> None:
        """Fit on rows and set ``map_``; implemented by methods that need rows and not only moments."""
        raise NotImplementedError

    def _fit_nothing(self) -> None:
        """Set all fitted attributes for a map that moves no rows."""
        raise NotImplementedError

    def _keep(self, windows: tuple[Window, ...]) -> None:
        """Keep windows of rows, from which the map's description of devices and participants is estimated."""
        self._windows, self._population = keep_windows(self._windows + windows), None

    def _effects(self) -> Floats | None:
        """Return levels (K - 1, d) of the sources relative to the first, from pairs; None without pairs."""
        return None

    def _tolerate(self, reason: MissingEvidence, consequence: str) -> None:
        """Raise, or warn of the consequence if the parameter ``on_missing`` is "warn"."""
        if getattr(self, "on_missing", "raise") == "raise":
            raise reason
        warnings.warn(MissingEvidenceWarning(f"{reason} {consequence} (on_missing='warn')."), stacklevel=3)

    def _forget(self) -> None:
        """Remove the results of an earlier fit."""
        forget(self)
        self._provenance, self._sample, self._windows, self._population = None, None, (), None

    @property
    def _reads_pairs(self) -> bool:
        """Whether pairs are used; if not, neither pairs nor ``pair_id`` are validated or kept."""
        return self.tags.needs_pairs

    def _validate_rows(self, X: Any, *, reset: bool, name: str = "X") -> Floats:
        return validate_rows(self, X, reset=reset, name=name)

    def _read(
        self,
        X: Any,
        y: ArrayLike | None,
        *,
        source: ArrayLike | None = None,
        pairs: Any = None,
        pair_id: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        pair_groups: ArrayLike | None = None,
        reset: bool = True,
    ) -> tuple[LabelledRows, Pairs | None]:
        """Return the validated data of one call; raise MissingEvidence without a source."""
        X = self._validate_rows(X, reset=reset)
        if not self.tags.needs_source:
            return LabelledRows(X, np.zeros(len(X), np.int64)), None
        if not self._reads_pairs:
            require_length(pair_id, len(X), "pair_id")
            pairs = pair_id = pair_groups = None
        weight = None
        if sample_weight is not None:
            weight, rows = to_numpy(sample_weight, "sample_weight"), np.empty(len(X))  # X may be a tensor
            weight = _check_sample_weight(weight, rows, dtype=np.float64, ensure_non_negative=True)
        if source is None:
            raise MissingEvidence(
                "source is missing: pass source=, one acquisition label per row of X "
                "(y is the task and is never used as the source)."
            )
        source = check_labels(source, len(X), "source")
        refuse_gaps_as_text(source, "source")
        if pairs is not None and pair_id is not None:
            raise ValueError("Pass pairs=(A, B) or pair_id=, not both.")
        views = self._read_pairs(pairs, pair_groups, X.shape[1])
        return LabelledRows(
            X,
            source,
            None if pair_id is None else check_pair_id(pair_id, len(X)),
            participant=None if groups is None else check_labels(groups, len(X), "groups"),
            sample_weight=weight,
            task=self._read_task(y, len(X)),
        ), views

    def _read_pairs(self, pairs: Any, pair_groups: ArrayLike | None, n_features: int) -> Pairs | None:
        """Return pairs that were passed as arrays, with their participants."""
        if pairs is None:
            if pair_groups is not None:
                raise ValueError("pair_groups has participants of pairs=(A, B); with pair_id, pass groups.")
            return None
        views = Pairs.from_arrays(pairs, n_features)
        if pair_groups is not None:
            views = replace(views, participants=check_labels(pair_groups, len(views), "pair_groups"))
        names = list(getattr(self, "feature_names_in_", []))
        for i, side in enumerate(pairs):
            if names and names != list(getattr(side, "columns", names)):
                raise ValueError(f"pairs[{i}] has other columns than X, or another order; select as in X.")
        return views

    def _read_held_out(
        self,
        sources: Labels,
        held_out: HeldOut,
        purpose: str,
        *,
        every_source: bool = False,
        sources_needed: bool = True,
    ) -> tuple[Floats | None, NDArray[np.int64] | None]:
        """Return held-out rows and their codes among the fitted sources; None if not given."""
        X_val, source_val = held_out
        if X_val is None:
            if source_val is not None:
                raise ValueError("source_val is given without X_val: also pass the held-out rows.")
            return None, None
        held = self._validate_rows(X_val, reset=False, name="X_val")
        if source_val is None:
            if sources_needed:
                raise ValueError(f"X_val is given without source_val: also pass their sources; {purpose}.")
            return held, None
        names, codes = encode_source(source_val, len(held), "source_val")
        fitted = sources.tolist()
        unknown = sorted(set(names.tolist()) - set(fitted))
        if unknown:
            raise UsageError(f"Unknown source {unknown} in source_val; fitted sources: {fitted}.")
        missing = sorted(set(fitted) - set(names.tolist()))
        if missing and every_source:
            raise UsageError(f"No rows of source {missing} in X_val; {purpose}, so every source is needed.")
        return held, np.searchsorted(sources, names)[codes].astype(np.int64)

    def _read_task(self, y: ArrayLike | None, n: int) -> Labels | None:
        """Return task labels for methods that need them; None for all others."""
        if not self.tags.needs_task:
            require_length(y, n, "y")
            return None
        if y is None:
            raise UsageError(f"{type(self).__name__} preserves a given task: pass y, one task label per row.")
        labels, codes = encode_source(y, n, "y")
        if len(labels) > max(20, n // 4):
            raise UsageError(f"y has {len(labels)} distinct values in {n} rows; expected task classes.")
        return np.asarray(labels[codes])

    def _info(self, standardizer: Standardizer | None = None, **facts: Any) -> MapInfo:
        """Return the provenance of a map; the standardisation shows the constant features."""
        # Settings of progress messages do not change the result.
        parameters = {k: v for k, v in self.get_params(deep=False).items() if k != "verbose"}
        defaults = {k: p.default for k, p in signature(type(self)).parameters.items()}
        names = getattr(self, "feature_names_in_", None)
        constant: Any = () if standardizer is None else ~standardizer.varies
        return MapInfo(
            method=type(self).__name__,
            parameters={k: v if isinstance(v, (int, float, str, bool, type(None))) else _in_words(v)
                        for k, v in parameters.items()},
            changed=tuple(k for k, v in parameters.items() if repr(v) != repr(defaults[k])),
            feature_names=None if names is None else tuple(map(str, names)),
            constant_features=tuple(np.flatnonzero(constant).tolist()),
            **facts,
        )  # fmt: skip

    def transform(self, X: Any, *, strength: float | None = None, out: Any = None) -> Any:
        """Correct embeddings. Never takes a source.

        Parameters
        ----------
        X : (n, d) array or torch tensor
            New embeddings, from any source, known or unknown.
        strength : float or None
            Apply this multiple of the displacement instead of the fitted strength.
        out : (n, d) numpy array or None
            Output array for the corrected rows (:meth:`mgpa.maps.CorrectionMap.transform`).
        """
        check_is_fitted(self)
        return self._transform(X, self.map_, strength=strength, out=out)

    def _transform(self, X: Any, m: CorrectionMap, **known: Any) -> Any:
        if is_tensor(X):
            return m.transform(X, **known)
        return m.transform(self._validate_rows(X, reset=False), **known)

    def __sklearn_is_fitted__(self) -> bool:
        return "map_" in vars(self)

    def to_map(self) -> Any:
        """Return the fitted map, which can be saved and applied with numpy alone."""
        check_is_fitted(self)
        m = self._with_provenance(self.map_)
        if self._sample is None:
            return m
        if self._population is None:
            self._population = fit_population(self._windows, self._effects())
        return replace(m, fitted=FittedRange.from_rows(self._sample), population=self._population)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class GatedEstimator(CorrectionEstimator):
    """Base class of the MGPA estimators, which fit a gate on pairs and move no rows without evidence."""

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True, needs_pairs=True)

    gate: Any
    gate_: Any
    on_missing: str

    def coverage(self, pairs: Any) -> float:
        """Return the share of the directional energy of pairs (A, B) inside the fitted gate.

        Use pairs that were not in the fit: near 1, the gate also covers their measurement change.
        """
        check_is_fitted(self)
        contrasts = Pairs.from_arrays(pairs, self.n_features_in_).contrasts / self.map_.scale
        # Constant features have no scale, so their differences could dominate.
        return float(self.gate_.coverage(contrasts * self.map_.varies))


class SequentialEstimator(CorrectionEstimator):
    """Base class of estimators with a map of consecutive stages, of which the first n can be applied."""

    map_: SequentialMap

    def transform(
        self,
        X: Any,
        *,
        strength: float | None = None,
        n_stages: int | None = None,
        fraction: float = 1.0,
        out: Any = None,
    ) -> Any:
        """Correct embeddings. Never takes a source.

        Parameters
        ----------
        X : (n, d) array or torch tensor
            New embeddings.
        strength : float or None
            Factor of the total displacement.
        n_stages, fraction : int, float
            Apply only the first ``n_stages`` stages, and ``fraction`` of the last.
        out : (n, d) numpy array or None
            Output array for the corrected rows (:meth:`mgpa.maps.CorrectionMap.transform`).
        """
        check_is_fitted(self)
        return self._transform(X, self.map_, strength=strength, n_stages=n_stages, fraction=fraction, out=out)
