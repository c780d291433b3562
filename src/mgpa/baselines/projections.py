"""Linear projections: identity, NCM and EPO (paired differences), PISCO, and INLP (classifiers)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from threadpoolctl import threadpool_limits

from .._common.parameters import Constraint, flag, number, share, whole
from ..critics import balanced_weights
from ..estimators.base import CorrectionEstimator, HeldOut, MethodTags
from ..estimators.closed_form import MomentEstimator
from ..maps import AffineMap
from ..moments import Standardizer
from ..pairs import Pairs
from ..statistics import LabelledRows, Statistics, require_several
from ._base import Floats, projector_map, require_matrices


class Identity(CorrectionEstimator):
    """Do not change embeddings.

    Needs no labels and no pairs, and removes nothing. The map stores the standardisation, so that movements
    have common units.

    Parameters
    ----------
    standardize : bool
        Store the mean and standard deviation of the fitting rows in the map.
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True, needs_source=False)

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {"standardize": flag}

    def __init__(self, *, standardize: bool = True) -> None:
        self.standardize = standardize

    def _fit(self, data: LabelledRows, pairs: Pairs | None, held_out: HeldOut) -> None:
        standardizer = Standardizer.from_rows(data.X, None, self.standardize)
        self.map_ = AffineMap.identity(
            data.X.shape[1],
            center=standardizer.center,
            scale=standardizer.scale,
            info=self._info(standardizer, n_rows=len(data.X)),
        )


def leading_differences(differences: Floats, rank: int | float) -> Floats:
    """Return the leading right singular vectors (d, k) of raw differences; rank: k or an energy share."""
    _, values, rows = np.linalg.svd(differences, full_matrices=False)
    spanned = int((values > max(differences.shape) * np.finfo(np.float64).eps * values[0]).sum())
    if isinstance(rank, (int, np.integer)):
        if not 1 <= rank <= spanned:
            raise ValueError(
                f"rank is {rank}; these {len(differences)} pairs span {spanned} direction(s) of "
                f"{differences.shape[1]}. Choose a rank from 1 to {spanned}."
            )
        k = int(rank)
    else:
        energy = np.cumsum(values**2) / np.sum(values**2)
        k = min(int(np.searchsorted(energy, rank - 1e-12)) + 1, spanned)
    return np.asarray(rows[:k].T)


class NCM(MomentEstimator):
    """Remove the subspace in which two measurements of the same event differ most.

    Reference: Bai, Ji, Zhou, Inouye, "From invariant representations to invariant data: provable robustness
    to spurious correlations via noisy counterfactual matching", arXiv 2505.24843. Implemented from its
    description. The paper trains a head on projected features; to serve existing heads, the projection here
    is around the mean, h' = μ + (I - UUᵀ)(h - μ).

    Needs pairs. Source labels only define how rows are paired. No task. Source-blind.

    What it cannot do: keep task information inside the removed span. The gate of MGPA is a similar span, but
    MGPA keeps the part that the rest of the embedding predicts and the part that a source reader does not
    use. A few large differences dominate the span, because differences are neither centred nor normalised.
    k cannot exceed the number of pairs.

    Parameters
    ----------
    rank : int or float
        Number of directions to remove or, as a float in (0, 1], their share of the squared differences.
        Choose the rank on validation data; the authors' code tries 2 to 24.
    standardize : bool
        Work in features scaled to unit variance.

    Attributes
    ----------
    basis_ : (d, k) array
        The removed directions, in standardised coordinates.
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True, needs_pairs=True)

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {"rank": whole(1) | share, "standardize": flag}

    def __init__(self, *, rank: int | float = 8, standardize: bool = True) -> None:
        self.rank = rank
        self.standardize = standardize

    def _solve(self, data: Statistics) -> AffineMap:
        pairs, standardizer = data.pairs(), data.standardizer(self.standardize)
        differences = np.where(standardizer.varies, pairs.contrasts / standardizer.scale, 0.0)
        if not differences.any():
            raise ValueError("All paired differences are zero: the two views are identical.")
        removed = leading_differences(differences, self.rank)
        info = self._evidence_info(data, n_contrasts=len(pairs), gate_rank=removed.shape[1])
        return projector_map(standardizer, data.moments.mean, removed, info)

    @property
    def basis_(self) -> Floats:
        """The removed directions, in standardised coordinates."""
        m = self.map_
        return np.asarray(m.readout * m.scale[:, None])


class EPO(NCM):
    """External parameter orthogonalisation: project out the leading directions of paired differences.

    Reference: Roger, Chauchard, Bellon-Maurel, "EPO-PLS external parameter orthogonalisation of PLS",
    Chemometrics and Intelligent Laboratory Systems 66, 2003. The projection is that of :class:`NCM`, in the
    units of the features (usual for spectra) and around the mean of all rows.

    Needs pairs. Source labels only define how rows are paired. No task. Source-blind.

    What it cannot do: keep any information inside the removed span.

    Parameters
    ----------
    rank, standardize
        As in :class:`NCM`.
    """

    def __init__(self, *, rank: int | float = 0.9, standardize: bool = False) -> None:
        super().__init__(rank=rank, standardize=standardize)


class PISCO(MomentEstimator):
    """Keep the subspace with much variance of the embedding and small paired differences.

    Reference: Ngweta, Maity, Gittens, Sun, Yurochkin, "Simple disentanglement of style and content in visual
    representations", ICML 2023. Implemented from its description.

    The content basis Q has the eigenvectors of the smallest eigenvalues of -HᵀH/n + λ ΔᵀΔ/m. The paper trains
    a new head on HQ, which has fewer dimensions; to serve existing heads, this implementation keeps the
    dimension: h' = μ + QQᵀ(h - μ).

    Needs pairs. Source labels only define how rows are paired. No task. Source-blind.

    What it cannot do: adapt to the evidence, because it always removes d - ⌊ηd⌋ + K - 1 directions; or
    guarantee removal of the source for any finite λ. With λ = 0 it is PCA, which removes directions of small
    variance.

    Parameters
    ----------
    penalty : float
        λ, the weight of paired differences; the paper tries 0, 1, 10 and 50.
    keep : float in (0, 1]
        η, the share of dimensions to keep, before K - 1 style directions are removed.
    standardize : bool
        Work in features scaled to unit variance.
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True, needs_pairs=True)

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "penalty": number(0), "keep": number(above=0, most=1), "standardize": flag,
    }  # fmt: skip

    def __init__(self, *, penalty: float = 10.0, keep: float = 0.95, standardize: bool = True) -> None:
        self.penalty = penalty
        self.keep = keep
        self.standardize = standardize

    def _solve(self, data: Statistics) -> AffineMap:
        K = len(data.sources)
        pairs, standardizer = data.pairs(), data.standardizer(self.standardize)
        moments, scale = data.moments, standardizer.scale
        varying = np.flatnonzero(standardizer.varies)  # constant features are not changed
        n_content = int(self.keep * len(varying) + 1e-9) - (K - 1)
        if n_content < 1:
            raise ValueError(
                f"keep={self.keep} leaves {n_content} of {len(varying)} dimensions as content after removal "
                f"of {K - 1} style direction(s); pass a larger keep."
            )
        differences = (pairs.contrasts / scale)[:, varying]
        if not differences.any():
            raise ValueError("All paired differences are zero: the two views are identical.")
        require_matrices(4, len(scale), "PISCO")
        mean = (moments.mean - standardizer.center) / scale
        second = moments.scatter / np.outer(scale, scale) / moments.weights.sum() + np.outer(mean, mean)
        objective = (
            self.penalty * differences.T @ differences / len(differences) - second[np.ix_(varying, varying)]
        )
        vectors: Floats = np.linalg.eigh(objective)[1]
        removed = np.zeros((len(scale), len(varying) - n_content))
        removed[varying] = vectors[:, n_content:]
        info = self._evidence_info(data, n_contrasts=len(pairs), gate_rank=removed.shape[1])
        return projector_map(standardizer, moments.mean, removed, info)


def row_space(weights: Floats, removed: Floats) -> Floats:
    """Return an orthonormal basis (d, k) of the part of classifier weights outside the removed directions."""
    fresh = weights.T - removed @ (removed.T @ weights.T)
    U, values, _ = np.linalg.svd(fresh, full_matrices=False)
    return np.asarray(U[:, values > 1e-8 * np.linalg.norm(weights, 2)])


class INLP(CorrectionEstimator):
    """Project out successive linear source classifiers until classification fails.

    Reference: Ravfogel, Elazar, Gonen, Twiton, Goldberg, "Null it out", ACL 2020. Implemented from its
    description. The projection is around the mean, so that frozen heads keep their operating point.

    Needs source labels. No pairs, no task. Source-blind at application.

    What it cannot do: keep task information in the removed directions. Each direction in which a classifier
    finds the source is removed, so many rounds remove many dimensions. Linear removal is complete only if the
    last classifier failed (``history_``).

    Parameters
    ----------
    n_rounds : int
        Maximum number of balanced logistic regressions (the paper uses 35 to 300 classifiers).
    tolerance : float
        Stop if balanced accuracy exceeds chance by at most this value. Negative: never stop early.
    standardize : bool
        Work in features scaled to unit variance.

    Attributes
    ----------
    history_ : list of float
        Balanced accuracy of the classifier in each round, on (X_val, source_val) if given, else on the
        fitting rows.
    """

    tags: ClassVar[MethodTags] = MethodTags(source_blind=True)

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "n_rounds": whole(1), "tolerance": number(), "standardize": flag,
    }  # fmt: skip

    def __init__(self, *, n_rounds: int = 35, tolerance: float = 0.01, standardize: bool = True) -> None:
        self.n_rounds = n_rounds
        self.tolerance = tolerance
        self.standardize = standardize

    def _fit(self, data: LabelledRows, pairs: Pairs | None, held_out: HeldOut) -> None:
        K, weight = len(data.sources), data.sample_weight
        require_several(data.sources, data.source_weights)
        held, held_codes = self._read_held_out(
            data.sources, held_out, "they decide when to stop", every_source=True
        )
        standardizer = Standardizer.from_rows(data.X, weight, self.standardize).require_variation()
        mean = np.average(data.X.astype(np.float64), axis=0, weights=weight)

        def centred(X: Any) -> Floats:
            return np.where(standardizer.varies, (X - mean) / standardizer.scale, 0.0)

        rows, codes = centred(data.X), data.codes
        checks, check_codes = (rows, codes) if held is None else (centred(held), held_codes)
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
            if not fresh.shape[1]:  # all directions of this classifier are already removed
                break
            removed = np.concatenate([removed, fresh], axis=1)
            # New directions are orthogonal to earlier ones, so this equals P applied to the original rows.
            rows = rows - (rows @ fresh) @ fresh.T
            checks = rows if held is None else checks - (checks @ fresh) @ fresh.T
        self.history_, self.sources_ = history, data.sources
        info = self._info(standardizer, **data.facts)
        self.map_ = projector_map(standardizer, mean, removed, info)
