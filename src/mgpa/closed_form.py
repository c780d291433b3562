"""Closed-form correction (section 4.1, eq. closed-form-mgpa): one analytic step along a measured direction.

    z' = z - α Δ (ΔᵀC⁻¹Δ)⁻¹ ΔᵀC⁻¹ [z - m(q)],   q' = q,

with Δ the mean projected contrast of each source against the first (one column for two sources), m(q) the
ridge regression of z on the preserved q, and C the shrunk residual covariance of z given q and the source.
Everything follows from :class:`~mgpa.moments.Moments`, so batch, stream and cluster give the same map
(:mod:`mgpa.estimators.streamed`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from .anchor import RidgeSolver, shrink
from .errors import Mention, MissingEvidence, MissingEvidenceWarning
from .estimators.base import GatedEstimator
from .estimators.parameters import Constraint, flag, gate, number, one_of
from .estimators.streamed import Evidence, MomentEstimator
from .gate import FullGate
from .maps import AffineMap

Floats = NDArray[np.float64]


def anchor_and_covariance(
    scatter: Floats, B: Floats, between: Floats, overlap: Floats, ridge: float, n: float
) -> tuple[Floats, Floats]:
    """Return the anchor's coefficients β (d, r) and the residual covariance C (r, r).

    Parameters
    ----------
    scatter : (d, d)
        Centred scatter of the standardised rows.
    B : (d, r)
        Gate basis.
    between : (d, K - 1)
        Centred cross-products of the rows with the source indicators.
    overlap : (K - 1, K - 1)
        Centred scatter of the indicators.
    ridge : float
        Penalty on Q only; intercept and source coefficients are free.
    n : float
        Number of rows (total weight).
    """

    def preserve(columns: Floats) -> Floats:
        return np.asarray(columns - B @ (B.T @ columns))

    Szz, Szq = B.T @ scatter @ B, preserve(scatter @ B).T
    solver = RidgeSolver(preserve(preserve(scatter).T), ridge)
    Squ, Szu = preserve(between), B.T @ between
    beta = solver.solve(Szq.T)  # pooled anchor: Z on Q alone
    # Z on Q and U together, by partialling Q out of U.
    on_q = solver.solve(Squ)
    free = overlap - Squ.T @ on_q
    if np.linalg.eigvalsh(free)[0] <= 1e-12 * max(1.0, float(np.trace(overlap))):
        raise ValueError(
            "The preserved coordinates determine the source exactly, so its effect on the gate cannot be "
            "separated from theirs. Use more rows, or a larger ridge."
        )
    delta = np.linalg.solve(free, Szu.T - Squ.T @ beta)  # (K - 1, r)
    joint = beta - on_q @ delta
    # Residual scatter of Z - Q joint - U delta, from the joint second moments.
    Sqq = preserve(preserve(scatter).T)
    fitted = Szq @ joint + Szu @ delta
    mixed = joint.T @ Squ @ delta
    residual = Szz - fitted - fitted.T + joint.T @ Sqq @ joint + mixed + mixed.T + delta.T @ overlap @ delta
    return preserve(beta), (residual + residual.T) / (2.0 * n)


def projection(C: Floats, Delta: Floats) -> tuple[Floats, Floats]:
    """Return D (r, k) and W (r, k) with D Wᵀ = Δ(ΔᵀC⁻¹Δ)⁻¹ΔᵀC⁻¹, the C⁻¹-orthogonal projection on span Δ.

    Sources whose effects coincide leave fewer than K - 1 independent columns; k is that number.
    """
    try:
        solved = scipy.linalg.cho_solve(scipy.linalg.cho_factor(C), Delta)
    except np.linalg.LinAlgError:  # only without shrinkage: a direction without residual variance
        solved = np.linalg.pinv(C, hermitian=True) @ Delta
    gram = Delta.T @ solved
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    kept = values > max(values[-1] * 1e-12, np.finfo(np.float64).tiny)
    whiten = vectors[:, kept] / np.sqrt(values[kept])
    return np.asarray(Delta @ whiten), np.asarray(solved @ whiten)


class ClosedFormMGPA(GatedEstimator, MomentEstimator):
    """Correct embeddings in one affine step fitted from source labels and paired measurements.

    Parameters
    ----------
    gate : gate estimator or None
        Where the correction may act; None is ``MeasurementGate(rank=0.9)``.
    strength : float
        α. 1 is the full step; values above 1 overshoot; any α ≠ 1 is invertible given Q.
    ridge : float
        Penalty of the regression of gate coordinates on preserved ones.
    shrinkage : float
        Shrinkage of the residual covariance toward its mean diagonal.
    standardize : bool
        Work in features scaled to zero mean and unit variance on the fitting rows. Output is in the input's
        units either way.
    on_missing : {"raise", "warn"}
        Without source labels or pairs there is nothing to fit: raise, or warn and return the identity map.

    Attributes
    ----------
    gate_ : fitted gate
        With ``basis_`` (d, r), ``rank_``, ``cumulative_energy_`` and ``mean_contrast_``.
    map_ : AffineMap
        The stored correction, of rank K - 1.
    sources_ : array
        Source labels seen.
    direction_ : (K - 1, r) array
        Δ: mean projected contrast of each further source against the first.
    covariance_ : (r, r) array
        C after shrinkage.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> source = np.repeat(["dry", "wet"], 100)
    >>> shift = np.array([2.0, 0, 0, 0, 0])
    >>> X = rng.normal(size=(200, 5)) + (source == "wet")[:, None] * shift
    >>> A = rng.normal(size=(30, 5)); B = A + shift + 0.1 * rng.normal(size=(30, 5))
    >>> model = ClosedFormMGPA().fit(X, source=source, pairs=(A, B))
    >>> model.transform(X).shape, model.to_map()
    ((200, 5), <AffineMap: affine, rank 1, strength 1, 5 features>)
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "gate": gate,
        "strength": number(0),
        "ridge": number(0),
        "shrinkage": number(0, 1),
        "standardize": flag,
        "on_missing": one_of("raise", "warn"),
    }

    def __init__(
        self,
        gate: Any = None,
        *,
        strength: float = 1.0,
        ridge: float = 10.0,
        shrinkage: float = 0.01,
        standardize: bool = True,
        on_missing: str = "raise",
    ) -> None:
        self.gate = gate
        self.strength = strength
        self.ridge = ridge
        self.shrinkage = shrinkage
        self.standardize = standardize
        self.on_missing = on_missing

    def _solve(self, data: Evidence) -> Solution:
        return solve(self, data)

    def _nothing(self) -> Solution:
        d = self.n_features_in_
        gate = FullGate().fit(np.zeros((1, d)))._set_basis(np.zeros((d, 0)), np.zeros(d), np.zeros(d))
        identity = AffineMap.identity(d, info=self._info(gate_rank=0))
        return Solution(gate, identity, np.array([]), np.zeros((0, 0)), np.zeros((0, 0)))

    def _skip(self, reason: MissingEvidence) -> None:
        if self.on_missing == "raise":
            raise reason
        said = MissingEvidenceWarning(
            *reason.parts, " This batch is not used (", Mention("on_missing", "warn"), ")."
        )
        warnings.warn(said, stacklevel=3)

    def _solution(self) -> Solution:
        solution: Solution = super()._solution()
        return solution

    @property
    def gate_(self) -> Any:
        """The fitted gate."""
        return self._solution().gate

    @property
    def sources_(self) -> NDArray[Any]:
        """Source labels, sorted."""
        return self._solution().sources

    @property
    def direction_(self) -> Floats:
        """Δ in gate coordinates, one row per source after the first."""
        return self._solution().direction

    @property
    def covariance_(self) -> Floats:
        """C after shrinkage."""
        return self._solution().covariance


@dataclass(frozen=True)
class Solution:
    """What solving the evidence gives."""

    gate: Any
    map: AffineMap
    sources: NDArray[Any]
    direction: Floats
    covariance: Floats


def solve(model: ClosedFormMGPA, data: Evidence) -> Solution:
    """Fit standardisation, gate, anchor and projection from the evidence (Algorithm 1, steps 1 and 2)."""
    K, sources, contrasts = data.require_sources(), data.sources, data.contrasts()
    moments, n = data.moments, float(data.moments.weights.sum())
    d, standardizer = moments.n_features, data.standardizer(model.standardize)
    scale = standardizer.scale
    scatter = moments.scatter / np.outer(scale, scale)
    gate = model._fit_gate(model.gate, contrasts, lambda: _rows_like(scatter), standardizer)
    B, rank = gate.basis_, gate.rank_
    info = model._evidence_info(
        data,
        n_contrasts=len(contrasts),
        gate_rank=rank,
        gate_energy=float(gate.cumulative_energy_[rank - 1]) if rank else 0.0,
    )
    if rank == 0:
        identity = AffineMap.identity(d, center=standardizer.center, scale=scale, info=info)
        return Solution(gate, identity, sources, np.zeros((K - 1, 0)), np.zeros((0, 0)))
    Delta = (contrasts.source_effects(K) / scale @ B).T  # (r, K - 1)
    # Contrasts that cancel leave rounding, and rounding has a direction too.
    typical = np.linalg.norm(contrasts.values / scale @ B, axis=1).mean()
    Delta[:, np.linalg.norm(Delta, axis=0) <= 1e-12 * typical] = 0.0
    share = moments.weights / n
    between = (moments.weights[1:, None] * (moments.means[1:] - moments.mean) / scale).T
    overlap = n * (np.diag(share[1:]) - np.outer(share[1:], share[1:]))
    beta, C = anchor_and_covariance(scatter, B, between, overlap, model.ridge, n)
    C = shrink(C, model.shrinkage)
    if not np.trace(C) > 0:
        raise ValueError(
            f"{moments.n_rows} rows leave no variation inside the gate once Q and the source are accounted "
            "for; use more rows."
        )
    D, W = projection(C, Delta)
    if not D.shape[1]:
        raise MissingEvidence(
            "The mean contrast inside the gate is zero: the pairs differ, but in no common direction. "
            "Use IterativeMGPA, or check that all pairs are ordered alike (first view, second view)."
        )
    readout = (B - beta) @ W / scale[:, None]
    stored = AffineMap(
        center=standardizer.center,
        scale=scale,
        readout=readout,
        direction=B @ D * scale[:, None],
        offset=(standardizer.center - moments.mean) @ readout,
        strength=float(model.strength),
        info=info,
    )
    return Solution(gate, stored, sources, Delta.T, C)


def _rows_like(scatter: Floats) -> Floats:
    """Return rows with this second moment: all the PCA control needs of the rows, which are not kept."""
    values, vectors = np.linalg.eigh(scatter)
    half = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    return np.concatenate([half, -half])  # centred
