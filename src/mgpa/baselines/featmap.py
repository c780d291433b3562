"""FEATMAP: regress the reference view on the other view of the same events (Donle et al. 2026)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.linalg

from .._common.parameters import Constraint, flag, number, source_label
from ..estimators.base import MethodTags
from ..estimators.streamed import Evidence
from ..maps import RoutedMap
from ._base import Floats, SourceAware, Transport, reference_index, require_matrices, routed_map


def centred_regression(A: Floats, B: Floats, ridge: float) -> Floats:
    """Return the slope of B on A, both centred: least squares of minimum norm, or ridge."""
    A, B = A - A.mean(axis=0), B - B.mean(axis=0)
    if ridge:
        penalty = ridge * np.eye(A.shape[1])
        return np.asarray(scipy.linalg.solve(A.T @ A + penalty, A.T @ B, assume_a="pos"))
    return np.asarray(np.linalg.lstsq(A, B, rcond=None)[0])


class FEATMAP(SourceAware):
    """Map each source's embeddings to what the reference would have given for the same event.

    Reference: Donle et al. 2026, bioRxiv 10.64898/2026.07.02.736184. Written here from its description.

    Needs pairs and source labels, and the source again at application. No task.

    What it cannot do: correct a row of an unknown or unseen source. With fewer pairs than features,
    directions the pairs do not span collapse to their mean; with noisy pairs the regression shrinks variance,
    by which the source stays readable. A ridge trades the first for more of the second.

    Parameters
    ----------
    reference : label or int
        The source to map to: a label, or a position among the sorted labels.
    ridge : float
        Penalty of the regression, in standardised units; 0 is least squares, of minimum norm where the pairs
        do not determine it.
    standardize : bool
        Work in features scaled to unit variance.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> A = rng.normal(size=(50, 3)); B = 2.0 * A + 1.0
    >>> X, source = np.concatenate([A, B]), np.repeat(["dry", "wet"], 50)
    >>> model = FEATMAP(reference="dry").fit(X, source=source, pairs=(A, B))
    >>> bool(np.allclose(model.transform(B, source="wet"), A))
    True
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=False, needs_pairs=True)

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "reference": source_label,
        "ridge": number(0),
        "standardize": flag,
    }

    def __init__(self, *, reference: Any = 0, ridge: float = 0.0, standardize: bool = True) -> None:
        self.reference = reference
        self.ridge = ridge
        self.standardize = standardize

    def _solve(self, data: Evidence) -> RoutedMap:
        K = data.require_sources()
        target = reference_index(self.reference, data.sources)
        require_matrices(2 * K, data.moments.n_features, "FEATMAP")
        standardizer = data.standardizer(self.standardize)
        transports: list[Transport] = [None] * K
        n_pairs = 0
        for s in range(K):
            if s == target:
                continue
            A, B = ((view - standardizer.center) / standardizer.scale for view in data.views(s, target))
            A[:, ~standardizer.varies] = 0.0
            transports[s] = centred_regression(A, B, self.ridge), A.mean(axis=0), B.mean(axis=0)
            n_pairs += len(A)
        info = self._evidence_info(data, n_contrasts=n_pairs)
        return routed_map(standardizer, transports, info)
