"""What the methods that act on signals share: reading trials, and transforming each by its source."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted

from .._common.checks import as_floats, require_finite
from .._common.parameters import Constraint, check_parameters
from ..errors import MissingEvidence
from ..estimators.base import MethodTags, forget
from ..pairs import encode_source, to_numpy

Floats = NDArray[Any]
Parts = dict[Any, Floats]  # each source's trials in float64


class SignalBaseline(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the signal methods: learn something from each source, then apply it to that source's trials.

    A subclass learns in ``_learn`` and applies in ``_apply``. What is learned is in ``filters_``, by source;
    a new source needs a new fit. Trials are not weighted.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"source": True, "pair_id": True, "groups": True}
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"source": True}
    tags: ClassVar[MethodTags] = MethodTags(source_blind=False, acts_on="signals")
    _parameter_constraints: ClassVar[dict[str, Constraint]]

    filters_: dict[Any, Any]
    n_channels_in_: int

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
        """Learn each source's transformation from trials X (n, channels, times) and their ``source`` (n,).

        Only RiemannianProcrustes(rotate=True) uses task labels ``y``. The other parameters are accepted so
        that all methods are called alike; weights are refused.
        """
        check_parameters(self)
        forget(self)
        if sample_weight is not None:
            raise ValueError(f"{type(self).__name__} weighs all trials alike: leave sample_weight out.")
        X = self._check(X)
        sources, codes = self._sources(source, len(X))
        parts = {label: X[codes == i].astype(np.float64) for i, label in enumerate(sources)}
        filters = self._learn(parts, y, codes)
        self.filters_, self.n_channels_in_ = filters, X.shape[1]
        return self

    def transform(self, X: Any, *, source: Any = None) -> Floats:
        """Apply to every trial what was learned for its source, which must have been fitted."""
        check_is_fitted(self)
        X = self._check(X)
        sources, codes = self._sources(source, len(X))
        if unseen := [label for label in sources if label not in self.filters_]:
            raise ValueError(
                f"source {unseen} was not seen in fit, which had {list(self.filters_)}. Fit again with its "
                "trials."
            )
        parts = [
            self._apply(X[codes == i].astype(np.float64), self.filters_[s]) for i, s in enumerate(sources)
        ]
        out = np.empty((len(X), *parts[0].shape[1:]), X.dtype)
        for i, part in enumerate(parts):
            out[codes == i] = part
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

    def _sources(self, source: Any, n: int) -> tuple[list[Any], NDArray[np.int64]]:
        if source is None:
            raise MissingEvidence(
                f"{type(self).__name__} is source-aware: pass source=, one label per trial."
            )
        sources, codes = encode_source(source, n)
        return sources.tolist(), codes

    def _learn(self, parts: Parts, y: Any, codes: NDArray[np.int64]) -> dict[Any, Any]:
        """Return what each source's trials are transformed with; ``codes`` are all trials' sources."""
        raise NotImplementedError

    def _apply(self, X: Floats, learned: Any) -> Floats:
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        return "filters_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
