"""Correct token embeddings (n, t, d) by their mean, or all tokens jointly.

:class:`TokenMean` corrects the token mean and shifts all tokens equally, so differences between tokens, and
with them all structure within a trial, do not change. Information about the source in these differences also
remains. :class:`JointTokens` corrects all t·d numbers of a row together.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from .._common.arrays import token_rows as token_rows
from .._common.checks import as_float_matrix, is_tensor, require_finite
from .._common.parameters import Constraint, check_parameters, having
from ..labels import to_numpy
from ..maps import CorrectionMap
from .base import Described, forget, validate_rows


def transform_tokens(m: Any, X: Any, **operating_point: Any) -> Any:
    """Correct tokens X (n, t, d), an array or a tensor, with a map fitted on tokens or on token means.

    ``m`` is a map, or any fitted estimator of this package. If its ``info.token_layout`` is "joint", it is
    applied to all tokens of a row, concatenated. ``operating_point`` is passed to its ``transform``
    (``strength``, ``n_stages``, ``fraction``).
    """
    if not is_tensor(X):
        X = as_tokens(X)
    elif X.ndim != 3 or X.shape[1] == 0:
        raise ValueError(f"X has shape {tuple(X.shape)}; expected tokens (rows, tokens, features).")
    if isinstance(m, CorrectionMap) and m.info.n_tokens is not None:
        return m.transform(X, **operating_point)
    return _corrected("mean", m, X, operating_point)


def _corrected(layout: str, m: Any, X: Any, operating_point: dict[str, Any]) -> Any:
    rows = token_rows(X, layout)
    corrected = m.transform(rows, **operating_point)
    return X + (corrected - rows)[:, None, :] if layout == "mean" else corrected.reshape(X.shape)


def as_tokens(X: Any, name: str = "X") -> NDArray[Any]:
    """Return X as an (n, t, d) float32 or float64 array, or raise."""
    X = np.asarray(X)
    if X.ndim != 3 or X.shape[1] == 0:
        raise ValueError(f"{name} has shape {X.shape}; expected tokens (rows, tokens, features).")
    tokens: NDArray[Any] = as_float_matrix(X.reshape(-1, X.shape[2]), name=name).reshape(X.shape)
    require_finite(tokens, name)
    return tokens


def _is_tokens(X: Any) -> bool:
    return len(X.shape if hasattr(X, "shape") else np.asarray(X).shape) == 3


def token_mean(X: Any) -> Any:
    """Return the mean over tokens in the type of the tokens, accumulated in float64."""
    return token_rows(X, "mean")


class TokenEstimator(Described, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of token estimators, in which ``estimator_`` corrects rows made from tokens.

    ``layout`` defines the rows, as in :func:`token_rows`. The fitted gate and history are attributes of the
    wrapped estimator: ``model.estimator_.gate_``.
    """

    layout: ClassVar[str]
    # The same requests as in wrapped estimators, so that metadata routing slices row-aligned arguments.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"source": True, "pair_id": True, "groups": True}
    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "estimator": having("fit", "to_map", example="an estimator of rows such as ClosedFormMGPA()"),
    }

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        source: ArrayLike | None = None,
        pairs: Any = None,
        pair_id: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        X_val: ArrayLike | None = None,
        **evidence: Any,
    ) -> Self:
        """Fit on tokens X (n, t, d).

        All other arguments are as in ``fit`` of the wrapped estimator; ``pairs`` and ``X_val`` also contain
        tokens. The rows of a two-dimensional X are treated as single tokens.
        """
        check_parameters(self)
        forget(self)
        self._provenance = None
        rows, self.n_tokens_ = self._rows(X, reset=True)
        if isinstance(pairs, (tuple, list)):
            pairs = self._pair_rows(pairs)
        if X_val is not None:
            X_val, n_tokens = self._rows(X_val, reset=False, name="X_val")
            self._check_n_tokens(n_tokens, "X_val")
        evidence |= {"source": source, "pairs": pairs, "pair_id": pair_id, "groups": groups, "X_val": X_val}
        self.estimator_ = clone(self.estimator).fit(rows, y, **evidence)
        return self

    def partial_fit(self, X: Any, y: ArrayLike | None = None, **evidence: Any) -> Self:
        """Add more tokens, if the wrapped estimator has a ``partial_fit``."""
        check_parameters(self)
        first = not hasattr(self, "estimator_")
        rows, n_tokens = self._rows(X, reset=first)
        if first:
            self.estimator_, self.n_tokens_ = clone(self.estimator), n_tokens
        self._check_n_tokens(n_tokens)
        if evidence.get("pairs") is not None:
            evidence["pairs"] = self._pair_rows(evidence["pairs"])
        self.estimator_.partial_fit(rows, y, **evidence)
        return self

    def add_pairs(self, pairs: Any) -> Self:
        """Add pairs that are not among the rows, as the wrapped estimator does."""
        check_is_fitted(self, "estimator_")
        if isinstance(pairs, (tuple, list)):
            pairs = self._pair_rows(pairs)
        elif _is_tokens(pairs.X):
            self._check_n_tokens(pairs.X.shape[1], "pairs")
            pairs = replace(pairs, X=token_rows(pairs.X, self.layout))
        self.estimator_.add_pairs(pairs)
        return self

    def merge(self, other: Any) -> Self:
        """Add the data of another (partially) fitted estimator of the same kind."""
        check_is_fitted(other, "estimator_")
        self._check_n_tokens(other.n_tokens_)
        self.estimator_ = copy.copy(self.estimator_).merge(other.estimator_)
        return self

    def coverage(self, pairs: Any) -> float:
        """Return the share of the directional energy of these pairs inside the gate."""
        check_is_fitted(self, "estimator_")
        return float(self.estimator_.coverage(self._pair_rows(pairs)))

    def _rows(self, X: Any, *, reset: bool, name: str = "X") -> tuple[NDArray[Any], int]:
        """Return the rows made of tokens, and the number of tokens."""
        if not _is_tokens(X):
            return validate_rows(self, X, reset=reset, name=name), 1
        tokens = as_tokens(to_numpy(X), name)
        return validate_rows(self, token_rows(tokens, self.layout), reset=reset, name=name), tokens.shape[1]

    def _pair_rows(self, pairs: Any) -> tuple[Any, ...]:
        rows = []
        for i, side in enumerate(pairs):
            if _is_tokens(side):
                tokens = as_tokens(to_numpy(side), f"pairs[{i}]")
                self._check_n_tokens(tokens.shape[1], f"pairs[{i}]")
                side = token_rows(tokens, self.layout)
            rows.append(side)
        return tuple(rows)

    def _check_n_tokens(self, n_tokens: int, name: str = "X") -> None:
        if n_tokens != self.n_tokens_:
            mean = self.layout == "mean"
            why = " Means over different numbers of tokens differ in distribution." if mean else ""
            raise ValueError(f"{name} has {n_tokens} tokens per row; fitted on {self.n_tokens_}.{why}")

    def transform(self, X: Any, **operating_point: Any) -> Any:
        """Correct tokens (n, t, d); the keywords are those of the wrapped estimator's ``transform``."""
        check_is_fitted(self, "estimator_")
        if _is_tokens(X):
            X = X if is_tensor(X) else as_tokens(X)
            self._check_n_tokens(X.shape[1])
            return _corrected(self.layout, self.estimator_, X, operating_point)
        if not is_tensor(X):
            X = validate_rows(self, X, reset=False)
        self._check_n_tokens(1)
        return self.estimator_.transform(X, **operating_point)

    def fit_transform(
        self, X: Any, y: ArrayLike | None = None, *, source: ArrayLike | None = None, **evidence: Any
    ) -> Any:
        """Fit on tokens and correct the same tokens."""
        aware = {"source": source} if self._is_source_aware() else {}
        return self.fit(X, y, source=source, **evidence).transform(X, **aware)

    def get_metadata_routing(self) -> Any:
        """Return the metadata requests for scikit-learn; ``transform`` gets sources if it needs them."""
        request = super().get_metadata_routing()
        if self._is_source_aware():
            request.transform.add_request(param="source", alias=True)
        return request

    def _is_source_aware(self) -> bool:
        tags = getattr(self.estimator, "tags", None)
        return tags is not None and not tags.source_blind

    def to_map(self) -> CorrectionMap:
        """Return the frozen correction; apply it with :func:`transform_tokens`."""
        check_is_fitted(self, "estimator_")
        m: CorrectionMap = self.estimator_.to_map()
        m = replace(m, info=replace(m.info, n_tokens=self.n_tokens_, token_layout=self.layout))
        return self._with_provenance(m)


class TokenMean(TokenEstimator):
    """Fit a correction on token means and apply it to whole token sequences.

    ``estimator`` is an estimator of this package, for example ``ClosedFormMGPA()``. ``estimator_`` is the
    fitted estimator and ``n_tokens_`` the number of tokens per row.

    Examples
    --------
    >>> import numpy as np
    >>> from mgpa import ClosedFormMGPA
    >>> rng = np.random.default_rng(0)
    >>> source = np.repeat([0, 1], 50)
    >>> X = rng.normal(size=(100, 3, 4)) + source[:, None, None] * np.eye(4)[0]
    >>> pairs = (X[:20] - np.eye(4)[0], X[:20] + 0.1 * rng.normal(size=(20, 3, 4)))
    >>> Y = TokenMean(ClosedFormMGPA()).fit(X, source=source, pairs=pairs).transform(X)
    >>> Y.shape, bool(np.allclose(Y - Y.mean(1, keepdims=True), X - X.mean(1, keepdims=True)))
    ((100, 3, 4), True)
    """

    layout: ClassVar[str] = "mean"


class JointTokens(TokenEstimator):
    """Correct all tokens of a row together, as one vector of t·d numbers; otherwise like :class:`TokenMean`.

    This also corrects source information in single tokens. With more numbers than rows, the closed form uses
    products of rows instead of products of features.
    """

    layout: ClassVar[str] = "joint"


#: Token estimators by their names in commands and studies.
TOKENS: dict[str, type[TokenEstimator]] = {"mean": TokenMean, "joint": JointTokens}


def row_estimator(model: Any) -> Any:
    """Return the row estimator inside a token estimator; other models are returned unchanged."""
    return model.estimator if isinstance(model, TokenEstimator) else model


def needs_pairs(model: Any) -> bool:
    """Return whether a method (of rows or tokens) needs pairs."""
    tags = getattr(row_estimator(model), "tags", None)
    return tags is not None and tags.needs_pairs


def gate_of(model: Any) -> Any:
    """Return the gate of a fitted estimator of rows or tokens, or None without a gate."""
    return getattr(getattr(model, "estimator_", model), "gate_", None)
