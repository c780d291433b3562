"""What the methods that act on signals share: reading trials, and transforming each by its source."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from .._common.checks import as_floats, require_finite
from .._common.parameters import Constraint, check_parameters
from ..errors import MissingEvidence
from ..estimators.base import MethodTags, forget
from ..pairs import encode_source, to_numpy

Floats = NDArray[Any]
#: Each source's trials in float64, their weights, and their task labels where the method needs them.
Parts = dict[Any, tuple[Floats, Floats, Any]]


class SignalBaseline(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the signal methods: learn something from each source, then apply it to that source's trials.

    A subclass learns in ``_learn`` and applies in ``_apply``. It must be told the source of each trial.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"source": True, "pair_id": True, "groups": True}
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"source": True}
    tags: ClassVar[MethodTags] = MethodTags(source_blind=False, acts_on="signals")
    _parameter_constraints: ClassVar[dict[str, Constraint]]

    filters_: dict[Any, Any]
    n_channels_in_: int
    sources_: NDArray[Any]

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        source: Any = None,
        pairs: Any = None,
        pair_id: Any = None,
        X_val: Any = None,
        source_val: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Self:
        """Learn each source's transformation.

        Parameters
        ----------
        X : (n, channels, times) array
            Trials, float32 or float64.
        y : (n,) array or None
            Task labels; only RiemannianProcrustes(rotate=True) uses them.
        source : (n,) array
            Acquisition condition of each trial. One is enough: others can follow with ``adapt``.
        pairs, pair_id, X_val, source_val, groups : ignored
            Accepted so that all methods are called alike.
        sample_weight : (n,) array or None
            Trial weights (a weight of 2 equals a repeated trial, 0 an absent one).
        """
        check_parameters(self)
        forget(self)
        X = self._check(X)
        parts, sources, _ = self._by_source(X, source, sample_weight, y)
        self.filters_ = self._learn(parts)
        self.n_channels_in_, self.sources_ = X.shape[1], sources
        return self

    def adapt(self, X: Any, *, source: Any) -> Self:
        """Add new sources, each learned from its own unlabelled trials; what was fitted stays as it is.

        If these are the trials to be transformed later, the evaluation is transductive: report it.

        Parameters
        ----------
        X : (n, channels, times) array
            Trials of the new sources.
        source : (n,) array
            Their labels, none of them fitted before.
        """
        check_is_fitted(self)
        check_parameters(self)
        parts, sources, _ = self._by_source(self._check(X), source)
        fitted, new = self.sources_.tolist(), sources.tolist()
        if repeated := [label for label in new if label in fitted]:
            raise ValueError(f"source {repeated} is already fitted; adapt only adds new sources.")
        if isinstance(new[0], (str, bytes)) != isinstance(fitted[0], (str, bytes)):
            raise ValueError(f"source {new} is of another type than the fitted {fitted}; use one type.")
        self.filters_ = self.filters_ | self._learn(parts)
        self.sources_ = np.array([*fitted, *new])
        return self

    def transform(self, X: Any, *, source: Any = None) -> Floats:
        """Apply to every trial what was learned for its source.

        Parameters
        ----------
        X : (n, channels, times) array
            Trials.
        source : (n,) array
            Acquisition condition of each trial, all of them fitted or adapted to.
        """
        check_is_fitted(self)
        X = self._check(X)
        if source is None:
            raise ValueError(f"{type(self).__name__} is source-aware: pass source=, one label per trial.")
        parts, sources, codes = self._by_source(X, source)
        if unseen := [label for label in sources.tolist() if label not in self.filters_]:
            raise ValueError(
                f"source {unseen} was not seen in fit, which had {self.sources_.tolist()}. Learn it from "
                "unlabelled trials with adapt(X, source=...), or fit again with it."
            )
        corrected = [self._apply(trials, self.filters_[label]) for label, (trials, *_) in parts.items()]
        out = np.empty((len(X), *corrected[0].shape[1:]), X.dtype)
        for code, trials in enumerate(corrected):
            out[codes == code] = trials
        return out

    def fit_transform(self, X: Any, y: Any = None, *, source: Any = None, **fit_params: Any) -> Floats:
        """Fit, then transform the same trials: exactly ``fit(...).transform(X, source=source)``."""
        return self.fit(X, y, source=source, **fit_params).transform(X, source=source)

    def _check(self, given: Any) -> Floats:
        """Return trials as a finite float32 or float64 array, or say what is wrong with them."""
        axes = "(trials, channels, times)"
        expected = f"a float32 or float64 array of shape {axes}"
        X: Floats = as_floats(to_numpy(given), "X", expected, category=DataConversionWarning, stacklevel=4)
        if X.ndim != 3 or not X.size:
            hint = " This method acts on signals, before the encoder." if X.ndim == 2 else ""
            raise ValueError(f"X has shape {X.shape}; expected three dimensions {axes}, none empty.{hint}")
        n_channels = getattr(self, "n_channels_in_", X.shape[1])
        if X.shape[1] != n_channels:
            raise ValueError(f"X has {X.shape[1]} channels; this method was fitted on {n_channels}.")
        require_finite(X, "X")
        return X

    def _by_source(
        self, X: Floats, source: Any, sample_weight: Any = None, y: Any = None
    ) -> tuple[Parts, NDArray[Any], NDArray[np.int64]]:
        """Return each source's trials, the sorted sources, and the position of each trial's source."""
        if source is None:
            raise MissingEvidence("source is missing: pass source=, one acquisition label per trial of X.")
        sources, codes = encode_source(source, len(X))
        weight = np.ones(len(X))
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not (total := np.bincount(codes, weight)).all():
            raise ValueError(
                f"sample_weight is zero in every trial of source {sources[total == 0].tolist()}."
            )
        task = None
        if y is not None and self.tags.needs_task:
            classes, positions = encode_source(y, len(X), name="y")
            task = classes[positions]
        parts: Parts = {}
        for code, label in enumerate(sources.tolist()):
            rows = codes == code
            trials = X[rows].astype(np.float64)
            parts[label] = trials, weight[rows], None if task is None else task[rows]
        return parts, sources, codes

    def _learn(self, parts: Parts) -> dict[Any, Any]:
        """Return what each source's trials are transformed with; when adapting, ``filters_`` is there."""
        raise NotImplementedError

    def _apply(self, X: Floats, learned: Any) -> Floats:
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        return "sources_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
