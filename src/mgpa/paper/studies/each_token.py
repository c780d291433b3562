"""Correct each token separately with a source-aware method; the paper corrects the token mean."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg import block_diag
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from ..._common.checks import require_memory
from ...estimators.base import forget
from ...estimators.tokens import TokenEstimator, as_tokens, transform_tokens
from ...maps import CorrectionMap, RoutedMap


class EachToken(TokenEstimator):
    """Fit a source-aware method, such as CORAL, to each token separately.

    The paper shifts all tokens by the correction of their mean, and finds that this shift itself reveals the
    source. Here each token has its own map. They are stored as one map of all tokens (``layout`` "joint"),
    with one block per token.

    Examples
    --------
    >>> import numpy as np
    >>> from mgpa.baselines import CORAL
    >>> rng = np.random.default_rng(0)
    >>> source = np.repeat([0, 1], 50)
    >>> X = rng.normal(size=(100, 3, 4)) + source[:, None, None] * np.arange(3)[:, None]
    >>> Y = EachToken(CORAL()).fit(X, source=source).transform(X, source=source)
    >>> bool(np.allclose(Y[source == 1].mean(axis=0), Y[source == 0].mean(axis=0)))
    True
    """

    layout: ClassVar[str] = "joint"

    def fit(self, X: Any, y: Any = None, **evidence: Any) -> Self:
        """Fit on tokens X (n, t, d); other arguments are passed to the method's ``fit``."""
        forget(self)
        return self.partial_fit(X, y, **{k: v for k, v in evidence.items() if k in ("source", "groups")})

    def partial_fit(self, X: Any, y: Any = None, **evidence: Any) -> Self:
        """Add more tokens."""
        X = as_tokens(X)
        if not hasattr(self, "estimators_"):
            self.estimators_ = [clone(self.estimator) for _ in range(X.shape[1])]
            self.n_tokens_ = X.shape[1]
        self._check_n_tokens(X.shape[1])
        for token, model in enumerate(self.estimators_):
            model.partial_fit(X[:, token], y, **evidence)
        return self

    def add_pairs(self, pairs: Any) -> Self:
        """Do nothing: source-aware methods need no pairs."""
        return self

    def merge(self, other: Any) -> Self:
        """Add the data of another instance."""
        check_is_fitted(other, "estimators_")
        both = zip(self.estimators_, other.estimators_, strict=True)
        self.estimators_ = [copy.copy(one).merge(others) for one, others in both]
        return self

    def transform(self, X: Any, **operating_point: Any) -> Any:
        """Correct tokens (n, t, d); ``source`` is required."""
        return transform_tokens(self.to_map(), X, **operating_point)

    def to_map(self) -> CorrectionMap:
        """Return one map that corrects all tokens."""
        check_is_fitted(self, "estimators_")
        maps = [model.to_map() for model in self.estimators_]
        n_sources, n = len(maps[0].sources), sum(m.n_features for m in maps)
        advice = "Correct the token mean instead."
        require_memory(8.0 * n_sources * n**2, f"A map of {len(maps)} tokens", advice)
        blocks = [np.diag(G) if G.ndim == 1 else G for m in maps for G in m.readout]
        m = RoutedMap(
            center=np.concatenate([m.center for m in maps]),
            scale=np.concatenate([m.scale for m in maps]),
            readout=np.stack([block_diag(*blocks[k::n_sources]) for k in range(n_sources)]),
            offset=np.concatenate([m.offset for m in maps], axis=1),
            info=replace(maps[0].info, n_tokens=self.n_tokens_, token_layout=self.layout),
        )
        return self._with_provenance(m)
