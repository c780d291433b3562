"""No correction: the floor every method is measured from."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from ..estimators.base import CorrectionEstimator, MethodTags
from ..estimators.parameters import check_parameters
from ..maps import AffineMap
from ..moments import Standardizer


class Identity(CorrectionEstimator):
    """Leave embeddings as they are.

    Needs nothing, works without the source, and removes nothing: what a source reader finds after it is what
    the encoder left there. Its map carries the standardisation, so that movements are in common units.

    Parameters
    ----------
    standardize : bool
        Store the mean and standard deviation of the fitting rows.

    Attributes
    ----------
    map_ : AffineMap
        Of rank 0.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> bool((Identity().fit(X).transform(X) == X).all())
    True
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True, needs_source=False)

    def __init__(self, *, standardize: bool = True) -> None:
        self.standardize = standardize

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
        """Remember the shape of X; everything else is accepted and not looked at."""
        check_parameters(self)
        self._forget()
        X = self._validate_rows(X, reset=True)
        standardizer = Standardizer.from_rows(X, None, self.standardize)
        self.map_ = AffineMap.identity(
            X.shape[1],
            center=standardizer.center,
            scale=standardizer.scale,
            info=self._info(n_rows=len(X)),
        )
        return self
