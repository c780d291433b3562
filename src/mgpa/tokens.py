"""Token embeddings (n, t, d): correct the token mean and shift every token alike.

The displacement of the mean is added to all tokens, so differences between tokens, and with them all
within-trial structure, stay exactly as they were.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from ._common.checks import as_float_matrix, require_finite
from ._common.parameters import Constraint, check_parameters, having
from .estimators.base import Provenance, forget, validate_rows
from .maps import CorrectionMap
from .pairs import to_numpy


def transform_tokens(m: CorrectionMap, X: Any, **operating_point: Any) -> Any:
    """Correct tokens (n, t, d) with a map fitted on token means.

    Parameters
    ----------
    m : CorrectionMap, or any fitted estimator of this package
        Correction of d-dimensional means.
    X : (n, t, d) array or torch tensor
        Tokens.
    **operating_point
        Passed to the estimator's ``transform`` (``strength``, ``n_stages``, ``fraction``).

    Returns
    -------
    (n, t, d) array or torch tensor of the same type
    """
    if type(X).__module__.partition(".")[0] != "torch":
        X = as_tokens(X)
    elif X.ndim != 3 or X.shape[1] == 0:
        raise ValueError(f"X has shape {tuple(X.shape)}; expected tokens (rows, tokens, features).")
    expected = m.info.n_tokens if isinstance(m, CorrectionMap) else None
    if expected is not None and X.shape[1] != expected:
        raise ValueError(
            f"X has {X.shape[1]} tokens per row; this correction was fitted on means of {expected}. A mean "
            "over another number of tokens has another distribution."
        )
    mean = token_mean(X)
    return X + (m.transform(mean, **operating_point) - mean)[:, None, :]


def as_tokens(X: Any, name: str = "X") -> NDArray[Any]:
    """Return X as an (n, t, d) float32 or float64 array, or say what is wrong with it."""
    X = np.asarray(X)
    if X.ndim != 3 or X.shape[1] == 0:
        raise ValueError(f"{name} has shape {X.shape}; expected tokens (rows, tokens, features).")
    tokens: NDArray[Any] = as_float_matrix(X.reshape(-1, X.shape[2]), name=name).reshape(X.shape)
    require_finite(tokens, name)
    return tokens


def _is_tokens(X: Any) -> bool:
    return len(X.shape if hasattr(X, "shape") else np.asarray(X).shape) == 3


def token_mean(X: Any) -> Any:
    """Return the mean over tokens, accumulated in float64, in the tokens' own type."""
    if isinstance(X, np.ndarray):
        return X.mean(axis=1, dtype=np.float64).astype(X.dtype)
    return X.double().mean(dim=1).to(X.dtype)


class TokenMean(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fit a correction on token means and apply it to whole token sequences.

    Parameters
    ----------
    estimator : estimator of this package
        For instance ``ClosedFormMGPA()``.

    Attributes
    ----------
    estimator_ : fitted estimator
        The correction of the mean.
    n_tokens_ : int
        Tokens per row seen in fit.

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

    # As the wrapped estimators do, so that row-aligned metadata follows X under routing.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"source": True, "pair_id": True, "groups": True}
    _provenance: Provenance = Provenance()
    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "estimator": having("fit", "to_map", example="an estimator of rows such as ClosedFormMGPA()"),
    }

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

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
        """Fit on the means of tokens X (n, t, d).

        Everything else is as in the wrapped estimator's ``fit``; ``pairs`` and ``X_val`` hold tokens too. A
        two-dimensional X is taken as rows of a single token.
        """
        evidence = {"source": source, "pair_id": pair_id, "source_val": source_val, "groups": groups}
        return self._fit_means("fit", X, y, pairs=pairs, X_val=X_val, sample_weight=sample_weight, **evidence)

    def _fit_draw(self, X: Any, y: Any = None, **evidence: Any) -> Self:
        return self._fit_means("_fit_draw", X, y, **evidence)

    def _fit_means(
        self, method: str, X: Any, y: Any, *, pairs: Any = None, X_val: Any = None, **evidence: Any
    ) -> Self:
        check_parameters(self)
        forget(self)
        self._provenance = Provenance()
        means, self.n_tokens_ = self._means(X, reset=True)
        if isinstance(pairs, (tuple, list)):
            pairs = self._pair_means(pairs)
        if X_val is not None:
            X_val, n_tokens = self._means(X_val, reset=False, name="X_val")
            self._check_n_tokens(n_tokens, "X_val")
        fresh = clone(self.estimator)
        self.estimator_ = getattr(fresh, method)(means, y, pairs=pairs, X_val=X_val, **evidence)
        return self

    def partial_fit(self, X: Any, y: Any = None, **evidence: Any) -> Self:
        """Add the means of more tokens, if the wrapped estimator has a ``partial_fit``."""
        check_parameters(self)
        first = not hasattr(self, "estimator_")
        means, n_tokens = self._means(X, reset=first)
        if first:
            self.estimator_, self.n_tokens_ = clone(self.estimator), n_tokens
        self._check_n_tokens(n_tokens)
        if evidence.get("pairs") is not None:
            evidence["pairs"] = self._pair_means(evidence["pairs"])
        self.estimator_.partial_fit(means, y, **evidence)
        return self

    def add_pairs(self, pairs: Any) -> Self:
        """Add pairs that are no rows of X; see :meth:`mgpa.estimators.streamed.MomentEstimator.add_pairs`."""
        check_is_fitted(self, "estimator_")
        if isinstance(pairs, (tuple, list)):
            pairs = self._pair_means(pairs)
        elif _is_tokens(pairs.X):
            self._check_n_tokens(pairs.X.shape[1], "pairs")
            pairs = replace(pairs, X=token_mean(pairs.X))
        self.estimator_.add_pairs(pairs)
        return self

    def merge(self, other: Any) -> Self:
        """Add everything another (partially) fitted estimator of the same kind has seen."""
        check_is_fitted(other, "estimator_")
        self._check_n_tokens(other.n_tokens_)
        self.estimator_ = copy.copy(self.estimator_).merge(other.estimator_)
        return self

    def __getattr__(self, name: str) -> Any:
        # What the wrapped estimator learnt (gate_, sources_, history_, ...) is what this one has learnt.
        if name.endswith("_") and not name.startswith("_") and "estimator_" in vars(self):
            return getattr(self.estimator_, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def coverage(self, pairs: Any) -> float:
        """Return the share of directional energy that these pairs have inside the estimator's gate."""
        check_is_fitted(self, "estimator_")
        return float(self.estimator_.coverage(self._pair_means(pairs)))

    def _means(self, X: Any, *, reset: bool, name: str = "X") -> tuple[NDArray[Any], int]:
        """Return token means and the number of tokens."""
        if not _is_tokens(X):
            return validate_rows(self, X, reset=reset, name=name), 1
        tokens = as_tokens(to_numpy(X), name)
        return validate_rows(self, token_mean(tokens), reset=reset, name=name), tokens.shape[1]

    def _pair_means(self, pairs: Any) -> tuple[Any, ...]:
        means = []
        for i, side in enumerate(pairs):
            if _is_tokens(side):
                tokens = as_tokens(to_numpy(side), f"pairs[{i}]")
                self._check_n_tokens(tokens.shape[1], f"pairs[{i}]")
                side = token_mean(tokens)
            means.append(side)
        return tuple(means)

    def _check_n_tokens(self, n_tokens: int, name: str = "X") -> None:
        if n_tokens != self.n_tokens_:
            raise ValueError(
                f"{name} has {n_tokens} tokens per row; fitted on {self.n_tokens_}. A mean over another "
                "number of tokens has another distribution."
            )

    def transform(self, X: Any, **operating_point: Any) -> Any:
        """Correct tokens (n, t, d); the keywords are those of the wrapped estimator's ``transform``."""
        check_is_fitted(self, "estimator_")
        if _is_tokens(X):
            X = X if hasattr(X, "shape") else np.asarray(X)
            self._check_n_tokens(X.shape[1])
            return transform_tokens(self.estimator_, X, **operating_point)
        if type(X).__module__.partition(".")[0] != "torch":
            X = validate_rows(self, X, reset=False)
        self._check_n_tokens(1)
        return self.estimator_.transform(X, **operating_point)

    def fit_transform(self, X: Any, y: Any = None, *, source: Any = None, **evidence: Any) -> Any:
        """Fit, then correct the same tokens."""
        known = {"source": source} if self._is_source_aware() else {}
        return self.fit(X, y, source=source, **evidence).transform(X, **known)

    def get_metadata_routing(self) -> Any:
        """Return what scikit-learn should route here: sources reach ``transform`` where they are needed."""
        request = super().get_metadata_routing()
        if self._is_source_aware():
            request.transform.add_request(param="source", alias=True)
        return request

    def _is_source_aware(self) -> bool:
        tags = getattr(self.estimator, "tags", None)
        return tags is not None and not tags.source_blind

    def to_map(self) -> CorrectionMap:
        """Return the frozen correction of the mean; apply it with :func:`transform_tokens`."""
        check_is_fitted(self, "estimator_")
        m: CorrectionMap = self.estimator_.to_map()
        m = replace(m, info=replace(m.info, n_tokens=self.n_tokens_))
        return self._provenance.added_to(m)
