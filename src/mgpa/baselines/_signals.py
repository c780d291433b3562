"""What the methods that act on signals share: reading trials, and routing each trial by its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from .._common.arrays import namespace
from .._common.checks import as_floats, require_finite
from .._common.parameters import Constraint, check_parameters
from ..errors import MissingEvidence
from ..estimators.base import MethodTags, forget
from ..pairs import encode_source, to_numpy

Floats = NDArray[Any]

AXES = "(trials, channels, times)"


@dataclass(frozen=True)
class GroupedSignals:
    """One call's worth of validated trials. ``codes[i]`` is the place of trial i's source in ``sources``."""

    X: Floats
    sources: NDArray[Any]
    codes: NDArray[np.int64]
    weight: Floats

    def by_source(self) -> Iterator[tuple[Any, Floats, Floats]]:
        """Yield each source's label, its trials in float64, and their weights."""
        for code, label in enumerate(self.sources.tolist()):
            rows = self.codes == code
            yield label, self.X[rows].astype(np.float64), self.weight[rows]


def check_signals(X: Any, *, n_channels: int | None = None, axes: str = AXES) -> Floats:
    """Return X as a finite float32 or float64 array of three dimensions, or say what is wrong with it."""
    expected = f"a float32 or float64 array of shape {axes}"
    signals = as_floats(to_numpy(X), "X", expected, category=DataConversionWarning, stacklevel=5)
    if signals.ndim != 3:
        hint = (
            " This method acts on signals, before the encoder, not on embeddings."
            if signals.ndim == 2
            else ""
        )
        raise ValueError(f"X has shape {signals.shape}; expected three dimensions {axes}.{hint}")
    if not signals.size:
        raise ValueError(f"X has shape {signals.shape}: it is empty; expected {axes}, one or more of each.")
    if n_channels is not None and signals.shape[1] != n_channels:
        raise ValueError(f"X has {signals.shape[1]} channels; this method was fitted on {n_channels}.")
    require_finite(signals, "X")
    return signals


def group(X: Floats, source: Any, sample_weight: Any = None) -> GroupedSignals:
    """Return validated trials with their sources and weights."""
    if source is None:
        raise MissingEvidence(
            "source is missing: pass source=, one acquisition label per trial of X "
            "(y is the task and is never used as the source)."
        )
    sources, codes = encode_source(source, len(X))
    if sample_weight is None:
        return GroupedSignals(X, sources, codes, np.ones(len(X)))
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    total = np.bincount(codes, weight)
    if not total.all():
        raise ValueError(
            f"sample_weight is zero in every trial of source {sources[total == 0].tolist()}; "
            "leave such a source out, or give it weight."
        )
    return GroupedSignals(X, sources, codes, weight)


class SignalBaseline(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the signal methods: learn something per source, then apply each trial's own source's.

    A subclass refuses in ``_check``, turns signals into what it aligns in ``_prepare``, learns in ``_fit``
    and ``_adapt``, and applies in ``_apply``.
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"source": True, "pair_id": True, "groups": True}
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"source": True}
    tags: ClassVar[MethodTags] = MethodTags(source_blind=False, acts_on="signals")
    _parameter_constraints: ClassVar[dict[str, Constraint]]

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
            Task labels; used by RiemannianProcrustes(rotate=True) only, ignored by the others.
        source : (n,) array
            Acquisition condition of each trial. A single one is allowed: others can follow by ``adapt``.
        pairs, pair_id, X_val, source_val, groups : ignored
            Accepted so that every method here is called alike.
        sample_weight : (n,) array or None
            Trial weights (a weight of 2 equals a repeated trial, 0 an absent one).
        """
        check_parameters(self)
        forget(self)
        X = self._check(X)
        trials = group(self._prepare(X), source, sample_weight)
        self._fit(trials, y)
        self.n_channels_in_ = X.shape[1]
        self.sources_ = trials.sources
        return self

    def adapt(self, X: Any, *, source: Any) -> Self:
        """Add one or more new sources, each learned from its own unlabelled trials.

        Transductive: if the trials are those to be transformed, declare it. What was fitted stays as it is,
        also when this fails.

        Parameters
        ----------
        X : (n, channels, times) array
            Trials of the new sources.
        source : (n,) array
            Their labels, none of them fitted before.
        """
        check_is_fitted(self)
        check_parameters(self)
        trials = group(self._prepare(self._check(X, self.n_channels_in_)), source)
        known, new = self.sources_.tolist(), trials.sources.tolist()
        if repeated := [label for label in new if label in known]:
            raise ValueError(
                f"source {repeated} is already fitted; adapt adds new sources only. "
                "Give the new recordings a label of their own, or fit again with all trials."
            )
        if isinstance(new[0], (str, bytes)) != isinstance(known[0], (str, bytes)):
            raise ValueError(f"source {new} is of another type than the fitted {known}; use one type.")
        self._adapt(trials)
        self.sources_ = np.array([*known, *new])
        return self

    def transform(self, X: Any, *, source: Any = None) -> Any:
        """Apply to every trial what was learned for its source.

        Parameters
        ----------
        X : (n, channels, times) array or torch tensor
            Trials.
        source : (n,) array
            Acquisition condition of each trial, all of them fitted or adapted to.
        """
        check_is_fitted(self)
        checked = self._check(X, self.n_channels_in_)
        if source is None:
            raise ValueError(
                f"source is missing: {type(self).__name__} is source-aware, so transform needs source=, "
                "the acquisition label of every trial."
            )
        trials = group(self._prepare(checked), source)
        known = self.sources_.tolist()
        if unseen := [label for label in trials.sources.tolist() if label not in known]:
            raise ValueError(
                f"source {unseen} was not seen in fit, which had {known}. Learn it from its own unlabelled "
                "trials with adapt(X, source=...), or fit again with it."
            )
        out = np.empty(trials.X.shape, checked.dtype)
        for code, (label, rows, _) in enumerate(trials.by_source()):
            out[trials.codes == code] = self._apply(rows, label)
        xp = namespace(X)
        return out if xp is np else xp.as_tensor(out, device=X.device)

    def fit_transform(self, X: Any, y: Any = None, *, source: Any = None, **fit_params: Any) -> Any:
        """Fit, then transform the same trials: exactly ``fit(...).transform(X, source=source)``."""
        return self.fit(X, y, source=source, **fit_params).transform(X, source=source)

    def _check(self, X: Any, n_channels: int | None = None) -> Floats:
        return check_signals(X, n_channels=n_channels)

    def _prepare(self, X: Floats) -> Floats:
        return X

    def _fit(self, trials: GroupedSignals, y: Any) -> None:
        raise NotImplementedError

    def _adapt(self, trials: GroupedSignals) -> None:
        raise NotImplementedError

    def _apply(self, X: Floats, label: Any) -> Floats:
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        return "sources_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
