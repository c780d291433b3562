"""Closed-form correction (section 4.1, eq. (3)): analytic steps along measured directions.

    z' = z - α Δ (ΔᵀC⁻¹Δ)⁻¹ ΔᵀC⁻¹ [z - ẑ(q)],   q' = q,

with Δ the mean projected contrast of each source against the first (one column for two sources), ẑ(q) the
ridge regression of z on the preserved q, and C the shrunk residual covariance of z given q and the source.
Everything follows from :class:`~mgpa.moments.Moments`, so batch, stream and cluster give the same map
(:mod:`mgpa.estimators.streamed`).

The paper regresses on the rows of all sources together (``anchor="pooled"``, :func:`solve_pooled`). Where
source and task are associated, that anchor learns the association and writes it into the embeddings. The
default compares rows with the mean of their own source: :mod:`mgpa.within`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ._common.parameters import Constraint, flag, gate, number, one_of
from .errors import MissingEvidence
from .estimators.base import GatedEstimator
from .estimators.streamed import Evidence, MomentEstimator
from .gate import MeasurementGate, fit_gate, identical_views, no_gate
from .maps import AffineMap
from .moments import Moments, Scatter, Standardizer, outside
from .pairs import Contrasts
from .within import Effect, preserved_axes, projection, shrink_or_raise, solve_within

Floats = NDArray[np.float64]


def anchor_and_covariance(
    total: Scatter, B: Floats, between: Floats, overlap: Floats, ridge: float, n: float
) -> tuple[Floats, Floats]:
    """Return the anchor's coefficients β (d, r) and the residual covariance C (r, r) of n rows.

    ``between`` and ``overlap`` are the cross-products of the centred source indicators with the rows,
    (d, K - 1), and with each other. The ridge penalises Q only.
    """
    Szz, Sqz, axes = preserved_axes(total, B)  # q is meant along its principal axes
    Squ, Szu = axes.along(outside(B, between)), B.T @ between
    shrunk = (axes.values + ridge)[:, None]
    beta, on_q = Sqz / shrunk, Squ / shrunk  # pooled anchor: Z on Q alone; and U on Q
    # Z on Q and U together, by partialling Q out of U.
    free = overlap - Squ.T @ on_q  # scatter of the indicators that q does not explain
    if np.linalg.eigvalsh(free)[0] <= 1e-12 * max(1.0, float(np.trace(overlap))):
        raise ValueError(
            "The preserved coordinates predict the source exactly, so its effect on the gate cannot be "
            "estimated. Use more rows, or a larger ridge."
        )
    delta = np.linalg.solve(free, Szu.T - Squ.T @ beta)  # (K - 1, r)
    joint = beta - on_q @ delta
    # Residual scatter of Z - Q joint - U delta, from the joint second moments.
    fitted = Sqz.T @ joint + Szu @ delta
    mixed = joint.T @ Squ @ delta
    explained = joint.T @ (axes.values[:, None] * joint) + mixed + mixed.T + delta.T @ overlap @ delta
    residual = Szz - fitted - fitted.T + explained
    return outside(B, axes.back(beta)), (residual + residual.T) / (2.0 * n)


@dataclass(frozen=True)
class Solution:
    """The result of a fit: the attributes of a fitted estimator."""

    gate: Any
    map: Any  # a CorrectionMap
    direction: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    covariance: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    effect: Effect | None = None
    spread: Any = None  # SpreadEvidence, of MGPA


class GatedMomentEstimator(GatedEstimator, MomentEstimator):
    """Base of the estimators that solve moments and contrasts for a map inside a gate."""

    def _nothing(self) -> Solution:
        d = self.n_features_in_
        return Solution(no_gate(d), AffineMap.identity(d, info=self._info(gate_rank=0)))

    def _described(self, solution: Solution, data: Evidence, n_contrasts: int, words: str) -> Solution:
        """Return the solution with the map's provenance: rows, pairs, gate, and the evidence in words."""
        gate = solution.gate
        info = self._evidence_info(
            data,
            n_contrasts=n_contrasts,
            gate_rank=gate.rank_,
            gate_energy=None if gate.fitted_on == "rows" else gate.retained_energy,
            evidence=words,
        )
        return replace(solution, map=replace(solution.map, info=info))

    @property
    def gate_(self) -> Any:
        """The fitted gate: where rows move."""
        return self._solution().gate

    @property
    def effect_(self) -> Effect | None:
        """How much of the mean contrast the rows show."""
        effect: Effect | None = self._solution().effect
        return effect


class ClosedFormMGPA(GatedMomentEstimator):
    """Correct embeddings in one affine map fitted from source labels and paired measurements.

    Parameters
    ----------
    gate : gate estimator or None
        Where the correction may act; None is ``MeasurementGate()``.
    anchor : {"within", "pooled"}
        What gate coordinates aim for: their regression on the preserved ones within sources, which does not
        learn an association of source and task, or over the rows of all sources, as published. To the first
        row weights are relative; to the second, a weight of 2 is a repeated row.
    strength : float
        α. 1 is the full step; values above 1 overshoot; any α ≠ 1 is invertible given Q.
    ridge : float or "auto"
        Penalty of the regression of gate coordinates on preserved ones, on the sum-of-squares scale; "auto"
        takes generalised cross-validation within sources and the published 10 over all.
    shrinkage : float
        Shrinkage of the residual covariance toward its mean diagonal.
    do_no_harm : bool
        With ``anchor="within"``: return the identity unless pairs agree on a shift and the rows show it more
        clearly than chance does in one of twenty fits, over participants where ``groups`` are known.
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
        The stored correction, along the K - 1 directions of the mean contrasts.
    sources_ : array
        Source labels seen.
    direction_ : (K - 1, r) array
        Δ: mean projected contrast of each further source against the first.
    covariance_ : (r, r) array
        Residual covariance C, after shrinkage.
    effect_ : Effect or None
        How much of the mean contrast the rows show, with its standard error; None with ``anchor="pooled"``.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> source = np.repeat(["dry", "wet"], 100)
    >>> shift = np.array([2.0, 0, 0, 0, 0])
    >>> X = rng.normal(size=(200, 5)) + (source == "wet")[:, None] * shift
    >>> A = rng.normal(size=(30, 5)); B = A + shift + 0.1 * rng.normal(size=(30, 5))
    >>> model = ClosedFormMGPA().fit(X, source=source, pairs=(A, B))
    >>> model.transform(X).shape, model.to_map(), bool(0.9 < model.effect_.size < 1.1)
    ((200, 5), <AffineMap: affine, 1 direction, 5 features>, True)
    >>> ClosedFormMGPA.paper().fit(X, source=source, pairs=(A, B)).to_map()
    <AffineMap: affine, 1 direction, 5 features>
    """

    _parameter_constraints: ClassVar[dict[str, Constraint]] = {
        "gate": gate,
        "anchor": one_of("within", "pooled"),
        "strength": number(0),
        "ridge": number(0) | one_of("auto"),
        "shrinkage": number(0, 1),
        "do_no_harm": flag,
        "standardize": flag,
        "on_missing": one_of("raise", "warn"),
    }

    def __init__(
        self,
        gate: Any = None,
        *,
        anchor: str = "within",
        strength: float = 1.0,
        ridge: float | str = "auto",
        shrinkage: float = 0.01,
        do_no_harm: bool = True,
        standardize: bool = True,
        on_missing: str = "raise",
    ) -> None:
        self.gate = gate
        self.anchor = anchor
        self.strength = strength
        self.ridge = ridge
        self.shrinkage = shrinkage
        self.do_no_harm = do_no_harm
        self.standardize = standardize
        self.on_missing = on_missing

    @classmethod
    def paper(cls, gate: Any = None, **changes: Any) -> Self:
        """Return the published settings: rank .9, a pooled anchor with ridge 10, no test of evidence.

        ``gate`` replaces the published ``MeasurementGate(rank=0.9)``; ``changes`` override parameters.
        """
        gate = MeasurementGate(rank=0.9) if gate is None else gate
        settings: dict[str, Any] = {"anchor": "pooled", "ridge": 10.0, "do_no_harm": False}
        return cls(gate, **(settings | changes))

    def _solve(self, data: Evidence) -> Solution:
        parameters = {k: v for k, v in self.get_params(deep=False).items() if k != "on_missing"}
        data.require_sources()
        contrasts = data.contrasts()
        solution = solve(data, contrasts, **parameters)
        return self._described(solution, data, len(contrasts), solution.map.info.evidence)

    @property
    def direction_(self) -> Floats:
        """Δ in gate coordinates, one row per source after the first."""
        return np.asarray(self._solution().direction)

    @property
    def covariance_(self) -> Floats:
        """Residual covariance C, after shrinkage."""
        return np.asarray(self._solution().covariance)


def solve(
    data: Evidence,
    contrasts: Contrasts,
    *,
    gate: Any,
    anchor: str,
    standardize: bool,
    ridge: float | str,
    **settings: Any,
) -> Solution:
    """Fit standardisation and gate, then anchor and projection (Algorithm 1, steps 1 and 2)."""
    K, moments = len(data.sources), data.moments
    effects = contrasts.source_effects(K)
    standardizer = data.standardizer(standardize)
    scale = standardizer.scale
    gate = fit_gate(
        gate,
        contrasts,
        standardizer,
        lambda: _rows_like(moments.total.scaled(scale)),
        lambda: moments.within.scaled(scale),
    )
    B = gate.basis_
    if not gate.rank_:
        identity = AffineMap.identity(len(scale), center=standardizer.center, scale=scale)
        return Solution(gate, identity, np.zeros((K - 1, 0)))
    delta = effects / scale @ B
    # Contrasts that cancel leave rounding, and rounding has a direction too.
    typical = np.linalg.norm(contrasts.values / scale @ B, axis=1).mean()
    delta[np.linalg.norm(delta, axis=1) <= 1e-12 * typical] = 0.0
    if not contrasts.values.any():  # in a gate that is blind to them
        raise identical_views(len(contrasts))
    if not delta.any():
        raise MissingEvidence(
            "The mean contrast inside the gate is zero: the pairs differ, but in no common direction. "
            "Use IterativeMGPA, or check that all pairs are ordered alike (first view, second view)."
        )
    if anchor == "pooled":
        ridge = 10.0 if ridge == "auto" else float(ridge)
        strength, shrinkage = settings["strength"], settings["shrinkage"]
        stored, C = solve_pooled(moments, standardizer, B, delta, ridge, shrinkage, strength)
        return Solution(gate, stored, delta, C)
    calibration = data.calibration_moments()
    stored, C, effect = solve_within(
        moments, data.people, calibration, contrasts, standardizer, B, delta, ridge=ridge, **settings
    )
    return Solution(gate, stored, delta, C, effect)


def solve_pooled(
    moments: Moments,
    standardizer: Standardizer,
    B: Floats,
    delta: Floats,
    ridge: float,
    shrinkage: float,
    strength: float,
) -> tuple[AffineMap, Floats]:
    """Return the published closed form, eq. (3), with one regression over all rows, and C."""
    weights, scale, center = moments.weights, standardizer.scale, standardizer.center
    n = float(weights.sum())
    # The indicators of all sources but the first, centred.
    indicators = np.sqrt(weights)[:, None] * (np.eye(len(weights)) - weights / n)[:, 1:]
    between = (weights[1:, None] * (moments.means[1:] - moments.mean) / scale).T
    total = moments.total.scaled(scale)
    beta, C = anchor_and_covariance(total, B, between, indicators.T @ indicators, ridge, n)
    C = shrink_or_raise(C, shrinkage, moments.n_rows)
    D, W = projection(C, delta.T)
    readout = (B - beta) @ W / scale[:, None]
    stored = AffineMap(
        center=center,
        scale=scale,
        readout=readout,
        direction=B @ D * scale[:, None],
        offset=(center - moments.mean) @ readout,
        strength=float(strength),
    )
    return stored, C


def _rows_like(spread: Scatter) -> Floats:
    """Return rows with this scatter, twice: all the PCA control needs of the rows, which are not kept."""
    if spread.factored:
        half = spread.rows()
    else:
        values, vectors = np.linalg.eigh(spread.matrix)
        half = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    return np.concatenate([half, -half])  # centred
