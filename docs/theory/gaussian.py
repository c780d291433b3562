"""The Gaussian model of section 5 (eq. (8)), with exact costs and remaining source information of
corrections.

    z | q, u ~ N(m(q) + (2u - 1) δ / 2, Σ),   D = δᵀΣ⁻¹δ,   s = logit p(q) + ℓ,   ℓ = δᵀΣ⁻¹(z - m(q))

Corrections are affine maps of the package. Costs are computed from their matrices and the first two moments
of z, so that the paper's equations can be checked against them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgpa.maps import AffineMap
from mgpa.position import projection

Floats = NDArray[np.float64]

# Figure 2: source means (±1, 0), covariance I₂, Pr(U = 1 | q) = .8, and a second context with .2.
CAPTION_MEANS, CAPTION_P = ((-1.0, 0.0), (1.0, 0.0)), 0.8


def agree(what: str, package: float, independent: Any, within: float = 1e-9) -> None:
    """Print both numbers; stop if they differ by more than rounding error (draws: four standard errors)."""
    if np.ndim(independent):
        within = 4 * np.std(independent) / np.sqrt(len(independent))
        independent = np.mean(independent)
    print(f"{what:<56} {round(package, 9) + 0.0:>10.6f}  {round(independent, 9) + 0.0:>10.6f}")
    assert abs(package - independent) <= within, (what, package, independent)


@dataclass(frozen=True, eq=False)
class Sample:
    """Gate coordinates, sources, contexts and embeddings h = (q, z)."""

    Z: Floats
    source: NDArray[np.int64]
    context: NDArray[np.int64]
    H: Floats


@dataclass(frozen=True, eq=False)
class GaussianModel:
    """Eq. (8) with finitely many contexts, each with its p(q), weight, coordinate q and midpoint m(q)."""

    delta: Floats
    Sigma: Floats
    p: Floats
    weight: Floats
    q: Floats
    m: Floats

    @property
    def r(self) -> int:
        """Gate coordinates."""
        return len(self.delta)

    @property
    def metric(self) -> Floats:
        """Σ⁻¹, in which movement is measured."""
        return np.asarray(np.linalg.inv(self.Sigma))

    @property
    def D(self) -> float:
        """Squared Mahalanobis separation of the sources."""
        return float(self.delta @ self.metric @ self.delta)

    @property
    def evidence(self) -> Floats:
        """Logit p(q): what the context alone says about the source."""
        return np.asarray(np.log(self.p / (1 - self.p)))

    @property
    def mean(self) -> Floats:
        """E[z | q], (k, r)."""
        return np.asarray(self.m + np.outer(self.p - 0.5, self.delta))

    @property
    def covariance(self) -> Floats:
        """Cov(z | q), (k, r, r), over both sources."""
        between = np.outer(self.delta, self.delta)
        return np.asarray(self.Sigma + (self.p * (1 - self.p))[:, None, None] * between)

    @property
    def mean_score(self) -> Floats:
        """μ(q) = E[s | q], (k,): the conditional-mean target."""
        return np.asarray(self.evidence + (self.mean - self.m) @ self.metric @ self.delta)

    def residual_score(self, Z: Any, context: Any = 0) -> Floats:
        """Return ℓ of some rows: the source evidence in the gate."""
        return np.asarray((np.asarray(Z) - self.m[context]) @ self.metric @ self.delta)

    def sample(self, n: int, random_state: int = 0, context: int | None = None) -> Sample:
        """Draw rows from all contexts, or from one."""
        rng = np.random.default_rng(random_state)
        k = rng.choice(len(self.p), n, p=self.weight) if context is None else np.full(n, context)
        source = (rng.random(n) < self.p[k]).astype(np.int64)
        noise = rng.standard_normal((n, self.r)) @ np.linalg.cholesky(self.Sigma).T
        Z = self.m[k] + np.outer(source - 0.5, self.delta) + noise
        return Sample(Z, source, k, np.column_stack([self.q[k], Z]))

    def record_twice(self, n: int, random_state: int = 0) -> tuple[Floats, Floats]:
        """Draw n trials as both sources record them; contrasts scatter about δ."""
        first = self.sample(n, random_state).H
        noise = np.random.default_rng([random_state, 1]).normal(scale=0.5, size=(n, self.r))
        return first, first + np.column_stack([np.zeros(n), self.delta + noise])


def gaussian_model(
    p: Any = (CAPTION_P, 1 - CAPTION_P),
    *,
    weight: Sequence[float] | None = None,
    means: Any = CAPTION_MEANS,
    covariance: Any = None,
) -> GaussianModel:
    """Return the Gaussian model of section 5, by default that of figure 2."""
    prob, zero_one = np.atleast_1d(np.asarray(p, np.float64)), np.asarray(means, np.float64)
    k, r = len(prob), zero_one.shape[1]
    w = np.full(k, 1 / k) if weight is None else np.asarray(weight, np.float64)
    Sigma = np.eye(r) if covariance is None else np.asarray(covariance, np.float64)
    m = np.tile(zero_one.mean(0), (k, 1))
    return GaussianModel(zero_one[1] - zero_one[0], Sigma, prob, w, np.linspace(1, -1, k), m)


def target_map(model: GaussianModel, target: float, context: int = 0) -> AffineMap:
    """Return the correction of z, in one context, that brings the full score s to ``target`` (R_κ)."""
    direction, readout = projection(model.Sigma, model.delta[:, None])
    # readout is Σ⁻¹δ / √D, so that ℓ = κ reads κ / √D in its units.
    kappa = (target - model.evidence[context]) / np.sqrt(model.D)
    ones, offset = np.ones(model.r), np.array([-kappa])
    return AffineMap(center=model.m[context], scale=ones, readout=readout, direction=direction, offset=offset)


def completion_map(model: GaussianModel, context: int = 0) -> AffineMap:
    """Return the replacement of the whole block z, in one context, by E[z | q]."""
    eye, ones = np.eye(model.r), np.ones(model.r)
    return AffineMap(center=model.mean[context], scale=ones, readout=eye, direction=eye, offset=0 * ones)


def linear_part(mapping: AffineMap) -> Floats:
    """Return the matrix M of z' = Mz + c."""
    step = mapping.direction @ mapping.readout.T
    return np.asarray(np.eye(mapping.n_features) - mapping.strength * step)


def expected_movement(mapping: AffineMap, mean: Floats, covariance: Floats, metric: Floats) -> float:
    """Return the expected squared movement of rows with these moments, exactly."""
    edit = linear_part(mapping) - np.eye(mapping.n_features)
    shift = mapping.transform(mean[None])[0] - mean
    return float(np.trace(metric @ edit @ covariance @ edit.T) + shift @ metric @ shift)


def costs(model: GaussianModel) -> dict[str, Floats]:
    """Return each target's expected squared movement in every context, in Σ⁻¹: eqs. (7), (9) and (10)."""
    k = range(len(model.p))
    overall = float(model.weight @ model.mean_score)
    maps = {
        "conditional": [target_map(model, model.mean_score[i], i) for i in k],
        "mean": [target_map(model, overall, i) for i in k],
        "zero": [target_map(model, 0.0, i) for i in k],
        "completion": [completion_map(model, i) for i in k],
    }
    return {
        name: np.array(
            [expected_movement(per_context[i], model.mean[i], model.covariance[i], model.metric) for i in k]
        )
        for name, per_context in maps.items()
    }


def separation_left(model: GaussianModel, mapping: AffineMap) -> float:
    """Return D after a correction of z: zero exactly where it erases the source given the context."""
    M = linear_part(mapping)
    shift = M @ model.delta
    # Singular after a full step: what has no variance left has no shift either.
    return float(shift @ np.linalg.pinv(M @ model.Sigma @ M.T, rcond=1e-10, hermitian=True) @ shift)


def information(p: float, D: float) -> float:
    """Return I(U; Z | Q = q) in bits, for a context with this p and a separation D."""
    # ℓ is sufficient, and given u it is N(±D / 2, D): one integral for each source.
    x, w = np.polynomial.hermite_e.hermegauss(150)
    w = w / w.sum()
    total = 0.0
    for share, sign in ((p, 1), (1 - p, -1)):
        likelihood_ratio = sign * D / 2 + np.sqrt(D) * x  # log p(z | u = 1) / p(z | u = 0)
        gain = -np.logaddexp(np.log(share), np.log(1 - share) - sign * likelihood_ratio)
        total += share * float(w @ gain)
    return total / float(np.log(2))


def context_information(model: GaussianModel) -> float:
    """Return I(U; Q) in bits: the floor that no correction inside the gate goes below (eqs. (2) and (11))."""

    def bits(p: Any) -> Any:
        return -(p * np.log2(p) + (1 - p) * np.log2(1 - p))

    return float(bits(model.weight @ model.p) - model.weight @ bits(model.p))
