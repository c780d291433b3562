"""INLP: fit a linear source classifier, project its direction out, repeat (Ravfogel et al. 2020)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from threadpoolctl import threadpool_limits

from .._common.parameters import Constraint, flag, number, whole
from ..critics import balanced_weights
from ..estimators.base import CorrectionEstimator, FitData, MethodTags, require_several
from ..moments import Standardizer
from ._base import projector_map

Floats = NDArray[np.float64]


def row_space(weights: Floats, removed: Floats) -> Floats:
    """Return an orthonormal basis (d, k) of what classifier weights add to the directions removed so far."""
    fresh = weights.T - removed @ (removed.T @ weights.T)
    U, values, _ = np.linalg.svd(fresh, full_matrices=False)
    return np.asarray(U[:, values > 1e-8 * np.linalg.norm(weights, 2)])


class INLP(CorrectionEstimator):
    """Project out one linear source classifier after another until none succeeds.

    Reference: Ravfogel, Elazar, Gonen, Twiton, Goldberg, "Null it out", ACL 2020. Written here from its
    description. The projection is about the mean, so that frozen heads keep their operating point.

    Needs source labels. No pairs, no task. Source-blind at application.

    What it cannot do: spare anything. Every direction in which a classifier finds the source is removed
    whole, task included; many rounds remove many dimensions. The source is linearly gone only if the last
    classifier failed: see ``history_``.

    Parameters
    ----------
    n_rounds : int
        At most this many balanced logistic regressions (the paper: 35 to 300 classifiers).
    tolerance : float
        Stop once balanced accuracy is within this of chance. Negative: never stop early.
    standardize : bool
        Work in features scaled to unit variance.

    Attributes
    ----------
    history_ : list of float
        Balanced accuracy of each round's classifier, on (X_val, source_val) if given, else on the fitting
        rows.
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True)

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "n_rounds": whole(1), "tolerance": number(), "standardize": flag,
    }  # fmt: skip

    def __init__(self, *, n_rounds: int = 35, tolerance: float = 0.01, standardize: bool = True) -> None:
        self.n_rounds = n_rounds
        self.tolerance = tolerance
        self.standardize = standardize

    def _fit(self, data: FitData) -> None:
        K, weight = len(data.sources), data.sample_weight
        require_several(data.sources, None if weight is None else np.bincount(data.codes, weight))
        held, held_codes = self._read_held_out(data, "they decide when to stop", every_source=True)
        standardizer = Standardizer.from_rows(data.X, weight, self.standardize).require_variation()
        mean = np.average(data.X.astype(np.float64), axis=0, weights=weight)
        rows, codes = _rows(data.X, mean, standardizer), data.codes
        checks, check_codes = (rows, codes) if held is None else (_rows(held, mean, standardizer), held_codes)
        removed, history = np.zeros((rows.shape[1], 0)), []
        for _ in range(self.n_rounds):
            model = LogisticRegression(max_iter=2500)
            with threadpool_limits(1, user_api="blas"):  # matrix-vector products gain little from threads
                model.fit(rows, codes, sample_weight=balanced_weights(codes, weight))
            weights, predicted = np.atleast_2d(model.coef_), model.predict(checks)
            checked = weight if held is None else None
            history.append(float(balanced_accuracy_score(check_codes, predicted, sample_weight=checked)))
            if history[-1] <= 1 / K + self.tolerance:
                break
            fresh = row_space(weights, removed)
            if not fresh.shape[1]:  # everything this classifier can use is gone
                break
            removed = np.concatenate([removed, fresh], axis=1)
            # Each fresh direction is orthogonal to the earlier ones: this is P applied to the original rows.
            rows = rows - (rows @ fresh) @ fresh.T
            checks = rows if held is None else checks - (checks @ fresh) @ fresh.T
        self.history_, self.sources_ = history, data.sources
        info = self._info(standardizer, **data.facts)
        self.map_ = projector_map(standardizer, mean, removed, info)


def _rows(X: Any, mean: Floats, standardizer: Standardizer) -> Floats:
    return np.where(standardizer.varies, (X - mean) / standardizer.scale, 0.0)
