"""No correction: the floor every method is measured from."""

from __future__ import annotations

from typing import ClassVar

from .._common.parameters import Constraint, flag
from ..estimators.base import CorrectionEstimator, FitData, MethodTags
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
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True, needs_source=False)

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {"standardize": flag}

    def __init__(self, *, standardize: bool = True) -> None:
        self.standardize = standardize

    def _fit(self, data: FitData) -> None:
        standardizer = Standardizer.from_rows(data.X, None, self.standardize)
        self.map_ = AffineMap.identity(
            data.X.shape[1],
            center=standardizer.center,
            scale=standardizer.scale,
            info=self._info(standardizer, n_rows=len(data.X)),
        )
