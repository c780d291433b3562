"""The paper's theory holds in code: costs, excesses, retained information and conditional erasure.

Simulated rows follow eq. (8): h = Eq + Bz with z | q, u ~ N(m(q) + (2u - 1) δ / 2, Σ) and p(q), m(q)
affine in q, so that E[z | q] is affine too and the closed form's ridge anchor can be exactly right.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import logit
from sklearn.linear_model import LinearRegression

from mgpa import ClosedFormMGPA, IterativeMGPA, MeasurementGate
from mgpa.anchor import ConditionalMean
from mgpa.maps import AffineMap
from mgpa.position import projection

D_FEATURES, RANK = 7, 3


@dataclass(frozen=True)
class Gaussian:
    """Eq. gaussian with random parameters and squared separation D."""

    B: np.ndarray  # (d, r), the gate
    E: np.ndarray  # (d, d - r), its complement
    delta: np.ndarray
    Sigma: np.ndarray
    slope: np.ndarray  # m(q) = slope q + level
    level: np.ndarray

    @classmethod
    def random(cls, seed=0, separation=4.0, d=D_FEATURES, r=RANK):
        rng = np.random.default_rng(seed)
        basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
        half = rng.normal(size=(r, r)) + 2 * np.eye(r)
        Sigma, delta = half @ half.T / 4, rng.normal(size=r)
        delta *= np.sqrt(separation / (delta @ np.linalg.solve(Sigma, delta)))
        slope, level = rng.normal(size=(r, d - r)), rng.normal(size=r)
        return cls(basis[:, :r], basis[:, r:], delta, Sigma, slope, level)

    @property
    def D(self):
        return float(self.delta @ np.linalg.solve(self.Sigma, self.delta))

    def p(self, q):
        return 0.5 + 0.45 * q[..., 0]

    def m(self, q):
        return q @ self.slope.T + self.level

    def ell(self, q, z):
        return (z - self.m(q)) @ np.linalg.solve(self.Sigma, self.delta)

    def mean_score(self, q):
        """κ* = E[ℓ | q]."""
        return (2 * self.p(q) - 1) * self.D / 2

    def contexts(self, n, rng):
        q = rng.normal(size=(n, self.E.shape[1]))
        q[:, 0] = rng.uniform(-1, 1, size=n)
        return q

    def sample(self, q, rng):
        """Return u and z, one per row of q."""
        u = (rng.random(len(q)) < self.p(q)).astype(int)
        noise = rng.multivariate_normal(np.zeros(len(self.delta)), self.Sigma, size=len(q))
        return u, self.m(q) + np.outer(2 * u - 1, self.delta / 2) + noise

    def rows(self, n, rng):
        """Return embeddings, sources and contexts."""
        q = self.contexts(n, rng)
        u, z = self.sample(q, rng)
        return q @ self.E.T + z @ self.B.T, u, q

    def pairs(self, rng, m=40):
        """Return views whose contrasts span the gate and have mean exactly δ."""
        spread = rng.normal(size=(m, len(self.delta)))
        contrasts = self.delta + np.concatenate([spread, -spread])
        first = rng.normal(size=(2 * m, len(self.B)))
        return first, first + contrasts @ self.B.T

    def editable_map(self, q, kappa):
        """Return R_κ on the editable coordinates at one q, as the library's affine map."""
        D, W = projection(self.Sigma, self.delta[:, None])
        target = W.T @ self.delta * (kappa / self.D)  # the level κ in the units of W
        ones = np.ones(len(self.delta))
        return AffineMap(center=self.m(q), scale=ones, readout=W, direction=D, offset=-target)

    def cost(self, q, kappa):
        """Eq. gauge-cost."""
        p = self.p(q)
        return 1 + self.D * p * (1 - p) + (kappa - (2 * p - 1) * self.D / 2) ** 2 / self.D


def squared_movement(before, after, metric):
    step = after - before
    return np.einsum("ni,ij,nj->n", step, metric, step)


def assert_mean(values, expected, errors=4.5):
    """Assert that a sample mean is within a few standard errors of its expectation."""
    error = values.std() / np.sqrt(len(values))
    assert abs(values.mean() - expected) < errors * error, (values.mean(), expected, error)


def fit_closed_form(model, n=60_000, seed=1, **settings):
    rng = np.random.default_rng(seed)
    X, u, _ = model.rows(n, rng)
    settings = {"ridge": 0.0, "shrinkage": 0.0, "standardize": False} | settings
    estimator = ClosedFormMGPA.paper(MeasurementGate(rank=len(model.delta)), **settings)
    return estimator.fit(X, source=u, pairs=model.pairs(rng))


@pytest.fixture(scope="module")
def gaussian():
    return Gaussian.random()


@pytest.fixture(scope="module")
def fitted(gaussian):
    return fit_closed_form(gaussian)


@pytest.fixture(scope="module")
def fresh(gaussian):
    """Rows the estimator has not seen: embeddings, sources, contexts."""
    return gaussian.rows(100_000, np.random.default_rng(2))


# Theorem 1: what every target costs.


@pytest.mark.parametrize("context", [-0.9, 0.0, 0.7])
@pytest.mark.parametrize("target", ["conditional mean", "zero score", "off by two"])
@pytest.mark.parametrize("separation", [0.5, 4.0])
def test_the_cost_of_a_target_at_fixed_context(context, target, separation):
    model = Gaussian.random(separation=separation)
    q = np.array([context, 0.3, -1.0, 0.5])
    kappa = {
        "conditional mean": model.mean_score(q),
        "zero score": -logit(model.p(q)),
        "off by two": model.mean_score(q) + 2.0,
    }[target]
    _, z = model.sample(np.repeat(q[None], 50_000, axis=0), np.random.default_rng(3))
    corrected = model.editable_map(q, kappa).transform(z)
    np.testing.assert_allclose(model.ell(q, corrected), kappa, rtol=0, atol=1e-10)  # the level is reached
    assert_mean(squared_movement(z, corrected, np.linalg.inv(model.Sigma)), model.cost(q, kappa))
    p = model.p(q)
    excess = (logit(p) + (2 * p - 1) * model.D / 2) ** 2 / model.D  # eq. (10): nothing at p = 1/2
    least = model.cost(q, model.mean_score(q))
    assert model.cost(q, -logit(p)) - least == pytest.approx(excess, abs=1e-12)


def test_no_other_affine_eraser_moves_less(gaussian):
    rng, r, p = np.random.default_rng(8), RANK, 0.8
    delta, metric = gaussian.delta, np.linalg.inv(gaussian.Sigma)
    covariance = gaussian.Sigma + p * (1 - p) * np.outer(delta, delta)

    def cost(F):  # with the best intercept
        step = F - np.eye(r)
        return np.trace(metric @ step @ covariance @ step.T)

    D, W = projection(gaussian.Sigma, delta[:, None])
    selective = np.eye(r) - D @ W.T
    np.testing.assert_allclose(selective @ delta, 0.0, rtol=0, atol=1e-12)
    assert cost(selective) == pytest.approx(1 + gaussian.D * p * (1 - p), rel=1e-12)
    for size in (1e-3, 0.1, 1.0):
        for _ in range(50):
            change = size * rng.normal(size=(r, r))
            eraser = selective + change - np.outer(change @ delta, delta) / (delta @ delta)
            np.testing.assert_allclose(eraser @ delta, 0.0, rtol=0, atol=1e-10)
            assert cost(eraser) > cost(selective)


# Proposition 1: any joint law, any affine score, any metric.


def skewed(n, rng, r=RANK):
    """Return decidedly non-Gaussian editable coordinates."""
    mix = rng.normal(size=(r, r)) + 2 * np.eye(r)
    return (rng.exponential(size=(n, r)) + 3.0 * (rng.random((n, r)) < 0.1)) @ mix


def score_map(w, b, Omega, a):
    """Return T_a for the score b + wᵀz in the metric Ω, and (v, w, d_Ω), from the library's projection."""
    inverse = np.linalg.inv(Omega)
    D, W = projection(inverse, (inverse @ w)[:, None])
    unit = np.ones(len(w))
    # D Wᵀ = v wᵀ, so W = w / c and D = c v.
    c = (w @ w) / (w @ W[:, 0])
    T = AffineMap(center=0 * unit, scale=unit, readout=W, direction=D, offset=np.array([(b - a) / c]))
    return T, D[:, 0] / c, w @ inverse @ w


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("euclidean", [True, False])
def test_the_cost_of_an_affine_score_needs_no_gaussian_data(seed, euclidean):
    rng = np.random.default_rng(seed)
    z, w, b, half = skewed(500, rng), rng.normal(size=RANK), rng.normal(), rng.normal(size=(RANK, RANK))
    Omega = np.eye(RANK) if euclidean else half @ half.T + 0.1 * np.eye(RANK)
    score = z @ w + b
    costs = {}
    for a in (0.0, score.mean(), score.mean() + 0.1, score.mean() - 0.1):
        T, v, d = score_map(w, b, Omega, a)
        corrected = T.transform(z)
        np.testing.assert_allclose(corrected @ w + b, a, rtol=0, atol=1e-10)
        np.testing.assert_allclose(corrected, z + np.outer(a - score, v), rtol=0, atol=1e-10)
        costs[a] = squared_movement(z, corrected, Omega).mean()
        # Eq. affine-cost is an identity of second moments, so it holds for the empirical law exactly.
        assert costs[a] == pytest.approx((score.var() + (score.mean() - a) ** 2) / d, rel=1e-10)
    assert min(costs, key=costs.get) == score.mean()


@pytest.mark.parametrize("seed", range(2))
def test_no_other_edit_to_the_same_score_is_shorter(seed):
    rng = np.random.default_rng(seed)
    z, w, half = skewed(50, rng), rng.normal(size=RANK), rng.normal(size=(RANK, RANK))
    Omega = half @ half.T + 0.1 * np.eye(RANK)
    T, _, _ = score_map(w, 0.0, Omega, 1.0)
    shortest = T.transform(z)
    sideways = rng.normal(size=z.shape)
    sideways -= np.outer(sideways @ w, w) / (w @ w)  # keeps the score
    for size in (1e-2, 1.0):
        other = shortest + size * sideways
        assert (squared_movement(z, other, Omega) > squared_movement(z, shortest, Omega)).all()


def test_all_targets_retain_the_same_information(gaussian, fitted, fresh):
    X, B = fresh[0][:500], fitted.gate_.basis_
    conditional = fitted.to_map()
    rng = np.random.default_rng(9)
    outside = rng.normal(size=(D_FEATURES, 1))
    outside -= B @ (B.T @ outside)
    targets = {
        "conditional": conditional,
        "constant": replace(conditional, offset=conditional.offset + 3.0),
        "zero": replace(conditional, readout=B @ (B.T @ conditional.readout), offset=np.zeros(1)),
        "another function of Q": replace(conditional, readout=conditional.readout + outside),
    }
    # N = (I - v wᵀ) Z: what the projection leaves unchanged.
    v, w = B.T @ conditional.direction, B.T @ conditional.readout
    keep = np.eye(RANK) - v @ w.T
    expected, Q = X @ B @ keep.T, fitted.gate_.preserved(X)
    outputs = {name: m.transform(X) for name, m in targets.items()}
    for output in outputs.values():
        np.testing.assert_allclose(output @ B @ keep.T, expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(fitted.gate_.preserved(output), Q, rtol=0, atol=1e-12)
    # They differ by a translation that Q determines, so each can be computed from any other.
    for name, m in targets.items():
        shift = (conditional.readout - m.readout).T @ Q.T + (conditional.offset - m.offset)[:, None]
        moved = outputs["conditional"] + shift.T @ conditional.direction.T
        np.testing.assert_allclose(moved, outputs[name], rtol=0, atol=1e-11)
        assert name == "conditional" or np.abs(outputs[name] - outputs["conditional"]).max() > 0.1


# Strength: a partial step hides nothing from someone who knows Q.


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9, 1.1, 2.0])
def test_any_other_strength_than_one_can_be_undone(fitted, fresh, alpha):
    X, m = fresh[0][:200], fitted.to_map().with_strength(alpha)
    linear = np.eye(D_FEATURES) - alpha * m.direction @ m.readout.T
    origin = m.transform(np.zeros((1, D_FEATURES)))
    recovered = np.linalg.solve(linear, (m.transform(X) - origin).T).T
    np.testing.assert_allclose(recovered, X, rtol=0, atol=1e-8)
    B = fitted.gate_.basis_
    assert np.linalg.det(B.T @ linear @ B) == pytest.approx(1 - alpha, abs=1e-10)


def test_the_full_step_cannot_be_undone(gaussian, fitted, fresh):
    X, m, B = fresh[0][:200], fitted.to_map(), fitted.gate_.basis_
    assert m.strength == 1.0
    block = B.T @ (np.eye(D_FEATURES) - m.direction @ m.readout.T) @ B
    assert np.linalg.det(block) == pytest.approx(0.0, abs=1e-12)
    assert np.linalg.matrix_rank(block, tol=1e-8) == RANK - 1
    # Rows that differ along the measured direction, and have the same Q, become the same row.
    other = X + 2.5 * gaussian.delta @ gaussian.B.T
    np.testing.assert_allclose(m.transform(other), m.transform(X), rtol=0, atol=1e-10)
    assert np.abs(m.with_strength(0.9).transform(other) - m.with_strength(0.9).transform(X)).max() > 0.01


def test_partial_steps_leave_the_covariance_adjusted_separation(gaussian, fitted, fresh):
    X, u, _ = fresh

    def separation(H):
        Z, Q = fitted.gate_.editable(H), H @ gaussian.E
        joint = LinearRegression().fit(np.column_stack([Q, u]), Z)
        residual, effect = Z - joint.predict(np.column_stack([Q, u])), joint.coef_[:, -1]
        return float(effect @ np.linalg.solve(np.cov(residual.T), effect))

    before = separation(X)
    assert before == pytest.approx(gaussian.D, rel=0.05)
    for alpha in (0.5, 0.9, 1.1):
        assert separation(fitted.transform(X, strength=alpha)) == pytest.approx(before, rel=1e-6)


# The closed form, fitted, on new rows.


def test_the_fitted_closed_form_finds_direction_and_covariance(gaussian, fitted):
    B = fitted.gate_.basis_
    np.testing.assert_allclose(B @ B.T, gaussian.B @ gaussian.B.T, rtol=0, atol=1e-10)
    np.testing.assert_allclose(B @ fitted.direction_[0], gaussian.B @ gaussian.delta, rtol=0, atol=1e-10)
    Sigma = gaussian.B @ gaussian.Sigma @ gaussian.B.T
    np.testing.assert_allclose(B @ fitted.covariance_ @ B.T, Sigma, rtol=0, atol=0.03 * np.abs(Sigma).max())


def test_the_fitted_closed_form_moves_as_little_as_theory_allows(gaussian, fitted, fresh):
    X, _, q = fresh
    after = fitted.transform(X)
    movement = squared_movement(X @ gaussian.B, after @ gaussian.B, np.linalg.inv(gaussian.Sigma))
    p = gaussian.p(q)
    least = 1 + gaussian.D * p * (1 - p)
    assert movement.mean() == pytest.approx(least.mean(), rel=0.01)
    # Pulling every row to one level whatever its context would cost visibly more.
    zero = gaussian.cost(q, -logit(p)).mean()
    assert zero > 1.5 * least.mean()


def test_the_fitted_closed_form_makes_source_and_edit_independent_given_context(gaussian, fitted, fresh):
    X, u, q = fresh
    after = fitted.transform(X)

    def effect(H):  # of u on z beyond q, in within-source standard deviations
        joint = LinearRegression().fit(np.column_stack([q, u]), H @ gaussian.B)
        return joint.coef_[:, -1] / np.sqrt(np.diag(gaussian.Sigma))

    def partial_correlation(H):
        design = np.column_stack([np.ones(len(q)), q])
        rest = [Y - design @ np.linalg.lstsq(design, Y, rcond=None)[0] for Y in (H @ gaussian.B, u[:, None])]
        return np.abs(np.corrcoef(np.column_stack(rest).T)[:-1, -1]).max()

    assert np.abs(effect(X)).max() > 0.5
    assert partial_correlation(X) > 0.2
    assert np.abs(effect(after)).max() < 0.03
    assert partial_correlation(after) < 0.02
    # In slices of the context that informs about the source, both sources have the same law.
    for low in (-0.8, -0.2, 0.4):
        here = (q[:, 0] > low) & (q[:, 0] < low + 0.4)
        rest = (after - q @ gaussian.E.T) @ gaussian.B - gaussian.m(q)
        one, zero = rest[here & (u == 1)], rest[here & (u == 0)]
        spread = np.sqrt(np.diag(gaussian.Sigma))
        assert np.abs((one.mean(0) - zero.mean(0)) / spread).max() < 0.1
        assert np.abs((np.cov(one.T) - np.cov(zero.T)) / np.outer(spread, spread)).max() < 0.1


def test_what_the_context_says_about_the_source_stays(gaussian, fitted, fresh):
    X, u, _ = fresh
    X, u = X[:5000], u[:5000]
    before = fitted.gate_.preserved(X)
    for alpha in (0.5, 1.0, 1.3):
        after = fitted.gate_.preserved(fitted.transform(X, strength=alpha))
        np.testing.assert_allclose(after, before, rtol=0, atol=1e-12)
    iterative = IterativeMGPA.paper(
        gate=MeasurementGate(rank=RANK), critics=("linear",), n_stages=3, standardize=False
    ).fit(X, source=u, pairs=gaussian.pairs(np.random.default_rng(0)))
    corrected = iterative.transform(X)
    assert np.abs(corrected - X).max() > 0.05
    np.testing.assert_allclose(corrected @ gaussian.E, X @ gaussian.E, rtol=0, atol=1e-10)


def test_replacing_the_whole_block_costs_r_minus_one_more(gaussian, fitted, fresh):
    X, q = fresh[0], fresh[2]
    selective, metric = fitted.to_map(), np.linalg.inv(gaussian.Sigma)
    B = fitted.gate_.basis_
    # The same anchor, every direction: z' = m(q).
    D, W = projection(fitted.covariance_, np.eye(RANK))
    np.testing.assert_allclose(D @ W.T, np.eye(RANK), rtol=0, atol=1e-10)
    coefficients, intercept = ConditionalMean(X, B, 0.0).fit(fitted.gate_.editable(X))
    complete = AffineMap(
        center=np.zeros(D_FEATURES),
        scale=np.ones(D_FEATURES),
        readout=(B - coefficients.T) @ W,
        direction=B @ D,
        offset=-intercept @ W,
    )
    cost = {}
    for name, m in (("selective", selective), ("complete", complete)):
        movement = squared_movement(X @ gaussian.B, m.transform(X) @ gaussian.B, metric)
        cost[name] = movement.mean()
    assert cost["complete"] - cost["selective"] == pytest.approx(RANK - 1, rel=0.02)
    p = gaussian.p(q)
    assert cost["complete"] == pytest.approx(RANK + (gaussian.D * p * (1 - p)).mean(), rel=0.02)
    # Completion forgets the editable block altogether.
    np.testing.assert_allclose(
        complete.transform(X[:50] + np.ones(RANK) @ B.T), complete.transform(X[:50]), rtol=0, atol=1e-8
    )


# An anchor estimated from few rows costs its mean squared error.


def test_an_estimated_anchor_costs_its_error(gaussian):
    rng, w = np.random.default_rng(10), np.linalg.solve(gaussian.Sigma, gaussian.delta)
    Omega = np.linalg.inv(gaussian.Sigma)
    contexts = np.array([[0.0, 0.0, 0.0, 0.0], [0.8, 1.0, -1.0, 0.5]])
    anchors = []
    for _ in range(200):
        H, _, _ = gaussian.rows(40, rng)
        coefficients, intercept = ConditionalMean(H, gaussian.B, 10.0).fit((H @ gaussian.B @ w)[:, None])
        np.testing.assert_allclose(coefficients @ gaussian.B, 0.0, rtol=0, atol=1e-10)  # reads Q only
        anchors.append(contexts @ gaussian.E.T @ coefficients[0] + intercept[0])
    anchors = np.array(anchors)  # (fits, contexts)
    for i, q in enumerate(contexts):
        mu = w @ (gaussian.m(q) + (gaussian.p(q) - 0.5) * gaussian.delta)
        _, z = gaussian.sample(np.repeat(q[None], 5_000, axis=0), rng)

        def cost(a, z=z):
            T, _, _ = score_map(w, 0.0, Omega, a)
            return squared_movement(z, T.transform(z), Omega).mean()

        error = np.mean((anchors[:, i] - mu) ** 2)
        excess = np.mean([cost(a) for a in anchors[:, i]]) - cost(mu)
        assert excess == pytest.approx(error / gaussian.D, rel=0.1)  # eq. (12); d_Ω = D
        # So a fixed reference is worse exactly when it is further off than the estimate's error.
        for distance, better in ((0.7, False), (1.4, True)):
            reference = cost(mu + distance * np.sqrt(error)) - cost(mu)
            assert (excess < reference) == better
