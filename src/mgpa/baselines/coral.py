"""CORAL: give every source the mean and covariance of a reference (Sun, Feng & Saenko 2016)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._common.parameters import Constraint, flag, number, one_of, source_label
from ..estimators.streamed import Evidence
from ..maps import RoutedMap
from ..moments import Moments
from ._base import (
    Floats,
    SourceAware,
    Transport,
    reference_index,
    require_matrices,
    require_variance,
    routed_map,
)


def symmetric_power(matrix: Floats, power: float) -> Floats:
    """Return a power of a symmetric positive matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * values**power) @ vectors.T)


class CORAL(SourceAware):
    """Whiten each source and colour it like the reference: h' = μ_t + (h - μ_s) C_s^-½ C_t^½.

    Reference: Sun, Feng, Saenko, "Return of frustratingly easy domain adaptation", AAAI 2016, here with means
    as in the MGPA paper (appendix B). ``skada``'s adapter returns centred rows, which a frozen head cannot
    read; hence our own, fitted from moments.

    Needs source labels, also at application. No pairs, no task.

    What it cannot do: correct a row of an unknown or unseen source, or tell a device from a population: any
    difference of mean or covariance between the sources is removed. The reference stays as it is.

    Parameters
    ----------
    reference : label or int
        The source to align to: a label, or a position among the sorted labels.
    ridge : float
        Added to the diagonal of both covariances, in standardised units.
    moments : {"observed", "pairs"}
        Moments of the rows of X, or of all views of the calibration pairs (then pairs are needed).
    standardize : bool
        Work in features scaled to unit variance.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> source = np.repeat(["dry", "wet"], 200)
    >>> X = rng.normal(size=(400, 3)) + 2.0 * (source == "wet")[:, None]
    >>> Y = CORAL(reference="dry").fit_transform(X, source=source)
    >>> bool(np.allclose(Y[:200].mean(0), Y[200:].mean(0))), bool((Y[:200] == X[:200]).all())
    (True, True)
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "reference": source_label, "ridge": number(0), "moments": one_of("observed", "pairs"),
        "standardize": flag,
    }  # fmt: skip

    def __init__(
        self, *, reference: Any = 0, ridge: float = 1.0, moments: str = "observed", standardize: bool = True
    ) -> None:
        self.reference = reference
        self.ridge = ridge
        self.moments = moments
        self.standardize = standardize

    @property
    def _looks_at_pairs(self) -> bool:
        return self.moments == "pairs"

    def _solve(self, data: Evidence) -> RoutedMap:
        K = data.require_sources()
        target = reference_index(self.reference, data.sources)
        standardizer = data.standardizer(self.standardize)
        moments = data.moments if self.moments == "observed" else data.paired_moments()
        missing = sorted(set(data.sources.tolist()) - set(moments.sources))
        if missing:
            raise ValueError(f"moments='pairs' needs paired rows of every source; {missing} has none.")
        require_variance(moments)
        require_matrices(2 * K, moments.n_features, "CORAL")
        means = (moments.means - standardizer.center) / standardizer.scale
        covariances = self._covariances(moments, standardizer.scale, standardizer.varies)
        colour = symmetric_power(covariances[target], 0.5)
        transports: list[Transport] = [
            None if s == target
            else (symmetric_power(covariances[s], -0.5) @ colour, means[s], means[target])
            for s in range(K)
        ]  # fmt: skip
        return routed_map(standardizer, transports, self._evidence_info(data))

    def _covariances(self, moments: Moments, scale: Floats, varies: NDArray[np.bool_]) -> list[Floats]:
        covariances = []
        constant = np.diag((~varies).astype(np.float64))  # features without variance: the same in all sources
        for label, part in moments.parts.items():
            covariance = part.scatter / np.outer(scale, scale) / (part.weight - 1) + constant
            rounding = len(scale) * np.finfo(np.float64).eps * np.trace(covariance)
            if self.ridge <= rounding and np.linalg.matrix_rank(covariance, hermitian=True) < len(scale):
                raise ValueError(
                    f"The covariance of source {label!r} is singular ({part.n_rows} rows, {len(scale)} "
                    f"features), and ridge={self.ridge} would divide by zero; use a larger ridge, such as 1."
                )
            covariances.append(covariance + self.ridge * np.eye(len(scale)))
        return covariances
