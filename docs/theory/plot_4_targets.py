r"""
.. _theory-targets:

Which target? Proposition 1
===========================

*Section 5.1, equations (6) and (7), appendix A.2.*

Take any score that is affine in the editable coordinates, :math:`s(q,z)=b(q)+w(q)^\top z`, and any
positive-definite metric :math:`\Omega(q)` in which movement is measured. The cheapest way to bring the score
to a target :math:`a(q)` is

.. math::

   d_\Omega=w^\top\Omega^{-1}w,\qquad v=\Omega^{-1}w/d_\Omega,\qquad
   T_a(q,z)=\bigl(q,\;z+v\{a(q)-s(q,z)\}\bigr). \tag{6}

**Proposition 1.** :math:`T_a` is the unique edit of least :math:`\Omega`-norm that reaches the score
:math:`a(q)`. For any distribution of the data, all targets retain the same information, that of :math:`(Q,N)`
with :math:`N=(I-vw^\top)Z`. They cost

.. math::

   \mathcal C_a(q)=\frac{\mathrm{Var}(s\mid Q=q)+\{\mathrm E[s\mid Q=q]-a(q)\}^2}{d_\Omega(q)}, \tag{7}

so that the conditional mean :math:`\mu(q)=\mathrm E[s\mid Q=q]` is the cheapest target, and the only one.

The script imports :download:`gaussian.py </theory/gaussian.py>`: download it into the same folder.
"""

import matplotlib.pyplot as plt
import numpy as np
from gaussian import (
    agree,
    completion_map,
    context_information,
    costs,
    expected_movement,
    gaussian_model,
    information,
    linear_part,
    separation_left,
    target_map,
)
from scipy.optimize import minimize
from scipy.special import logit
from scipy.stats import multivariate_normal
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from mgpa.audit import plots
from mgpa.audit.plots import COLORS, grid
from mgpa.maps import AffineMap
from mgpa.position import projection

# %%
# The setting: not Gaussian
# -------------------------
# The example has one fixed :math:`q`, three editable coordinates with a skewed distribution, and an arbitrary
# score and metric.

rng = np.random.default_rng(8)
n, r = 20_000, 3
Z = rng.exponential(size=(n, r)) @ rng.normal(size=(r, r)).T + rng.normal(size=r)
w, b = rng.normal(size=r), 0.7
half = rng.normal(size=(r, r))
Omega = half @ half.T + 0.3 * np.eye(r)
score = b + Z @ w

# %%
# Equation (6)
# ------------
# ``mgpa.position.projection(C, Delta)`` with :math:`C=\Omega^{-1}` and :math:`\Delta=\Omega^{-1}w` is
# :math:`vw^\top`, in an ``mgpa.maps.AffineMap``. By hand: the formula, and scipy's solver of "least
# :math:`\Omega`-norm subject to the score".


def reach(target, w, b, Omega):
    """Return T_a at this q, as the package's map."""
    direction, readout = projection(np.linalg.inv(Omega), np.linalg.solve(Omega, w)[:, None])
    unit = readout[:, 0] @ w / (w @ w)  # the readout is w in other units
    nothing, ones = np.zeros(len(w)), np.ones(len(w))
    offset = np.array([(b - target) * unit])
    return AffineMap(center=nothing, scale=ones, readout=readout, direction=direction, offset=offset)


d_Omega = w @ np.linalg.solve(Omega, w)
v = np.linalg.solve(Omega, w) / d_Omega
target = 1.5


def least(z):
    """Return the shortest edit of one row that reaches the target, by a generic solver."""
    reached = {"type": "eq", "fun": lambda x: b + w @ (z + x) - target, "jac": lambda x: w}
    found = minimize(
        lambda x: (x @ Omega @ x, 2 * Omega @ x), np.zeros(r), jac=True, constraints=[reached],
        method="SLSQP", options={"ftol": 1e-14, "maxiter": 200},
    )  # fmt: skip
    return found.x


edit = reach(target, w, b, Omega).transform(Z) - Z
by_solver = np.array([least(z) for z in Z[:20]])
print(f"{'':<56} {'package':>10}  {'by hand':>10}")
agree("mean squared edit", np.mean(edit**2), np.mean(np.outer(target - score, v) ** 2))
agree("   largest difference to the formula", np.abs(edit - np.outer(target - score, v)).max(), 0.0)
agree("   largest difference to the solver, 20 rows", np.abs(edit[:20] - by_solver).max(), 0.0, within=1e-5)

# %%
# Equation (7): the cost of a target
# ----------------------------------
# The mean squared :math:`\Omega`-norm of the edits is compared with (7), using the mean and variance of the
# rows.


def cost(a):
    """Return the mean squared movement by T_a in the metric Ω."""
    step = reach(a, w, b, Omega).transform(Z) - Z
    return np.einsum("ni,ij,nj->n", step, Omega, step).mean()


targets = {"the conditional mean": score.mean(), "zero": 0.0, "the median": np.median(score)}
for name, a in targets.items():
    agree(f"cost of aiming at {name}", cost(a), (score.var() + (score.mean() - a) ** 2) / d_Omega)

# %%
# Same information, different coordinates
# ---------------------------------------
# The corrected block is :math:`N+v(a-b)`: targets differ by a translation that :math:`q` determines, so each
# output can be computed from any other.

from_zero = reach(0.0, w, b, Omega).transform(Z)
for name, a in targets.items():
    output = reach(a, w, b, Omega).transform(Z)
    agree(f"{name}, computed from the output for zero: error", np.abs(from_zero + v * a - output).max(), 0.0)

# %%
# The source is erased given :math:`q` exactly if :math:`N` is independent of it. This is not the case if
# sources also differ in *spread*.
#
# Conditional erasure in the Gaussian model
# -----------------------------------------
# *Section 5.2, equations (8) and (11), the theorem's first half, appendix A.1 and A.3.*
#
# In the model
#
# .. math::
#
#    Z\mid Q=q,U=u\;\sim\;\mathcal N\bigl(m(q)+(2u-1)\delta/2,\;\Sigma\bigr),\qquad
#    D=\delta^\top\Sigma^{-1}\delta>0, \tag{8}
#
# both sources share a covariance, and :math:`\delta` is the same in every context. The Bayes score is the sum
# of the evidence from the context and the evidence from the gate,
#
# .. math::
#
#    s(q,z)=\underbrace{\operatorname{logit}p(q)}_{s_Q(q)}
#    +\log\frac{dP_{Z\mid Q=q,U=1}}{dP_{Z\mid Q=q,U=0}}(z), \tag{11}
#
# where the second term is :math:`\ell=\delta^\top\Sigma^{-1}(z-m(q))` in this model. The first half of the
# theorem states that every map :math:`R_\kappa(q,z)=\bigl(q,\,z+\tfrac{\delta}{D}\{\kappa(q)-\ell\}\bigr)`
# preserves :math:`Q` and makes the output independent of the source given :math:`Q`.
#
# Equation (11): the score, and its moments
# -----------------------------------------
# The same numbers are computed with scipy's normal densities and Bayes' rule, and from simulated rows.

Sigma = np.array([[1.0, 0.5, 0.2], [0.5, 1.5, -0.3], [0.2, -0.3, 0.8]])
model = gaussian_model([0.8, 0.3], means=[[-0.8, -0.3, 0], [0.8, 0.9, 0.4]], covariance=Sigma)
delta, D = model.delta, model.D

k, p = 0, float(model.p[0])
rows = model.sample(200_000, random_state=3, context=k)
score = model.evidence[k] + model.residual_score(rows.Z, k)
density = [multivariate_normal(model.m[k] + side * delta / 2, Sigma).logpdf(rows.Z) for side in (-1, 1)]
by_bayes = logit(p) + density[1] - density[0]
ell = model.residual_score(rows.Z, k)

print(f"{'':<56} {'package':>10}  {'by hand':>10}")
agree("score of the first row", score[0], by_bayes[0])
agree("   largest difference over all rows", np.abs(score - by_bayes).max(), 0.0)
agree("mean of ℓ; (2p - 1) D / 2", model.mean_score[k] - model.evidence[k], (2 * p - 1) * D / 2)
agree("   simulated", model.mean_score[k] - model.evidence[k], ell)
w = model.metric @ delta
agree("variance of ℓ; D + D² p (1 - p)", w @ model.covariance[k] @ w, D + D**2 * p * (1 - p))

# %%
# Every target erases
# -------------------
# The linear part :math:`L=I-\delta\delta^\top\Sigma^{-1}/D` maps :math:`\delta` to zero, so both sources have
# the same mean and covariance, and hence the same Gaussian distribution. This is checked with the matrix and
# with a quadratic reader on held-out rows.

L = np.eye(3) - np.outer(delta, w) / D


def read_again(Z):
    """Return the held-out AUROC of a quadratic reader of the source."""
    Z = (Z - Z.mean(0)) / (Z.std(0) + 1e-9)
    features = np.column_stack([Z, *(Z[:, [i]] * Z[:, i:] for i in range(3))])
    train, test = slice(0, 20_000), slice(20_000, 40_000)
    reader = LogisticRegression(max_iter=2000).fit(features[train], rows.source[train])
    return roc_auc_score(rows.source[test], reader.decision_function(features[test]))


print(f"before: D = {D:.4f}, {information(p, D):.4f} bits, reader's AUROC {read_again(rows.Z):.3f}")
for name, target in (("E[s | q]", model.mean_score[k]), ("zero", 0.0), ("5", 5.0)):
    m = target_map(model, target, k)
    after = m.transform(rows.Z)
    agree(
        f"target {name}: largest entry of Lδ", np.abs(linear_part(m) @ delta).max(), np.abs(L @ delta).max()
    )
    agree("   separation left", separation_left(model, m), 0.0)
    agree("   reader's AUROC; 0.5 is guessing", read_again(after), 0.5, within=0.02)

# %%
# The cost of a target: the theorem, and completion
# -------------------------------------------------
# *Section 5.2, equations (9) and (10), appendix A.3 and A.4.*
#
# In the metric :math:`\Sigma^{-1}`, the cost of the map that moves :math:`\ell` to :math:`\kappa(q)` is
#
# .. math:: \mathcal C_\kappa(q)=1+Dp(1-p)+\frac{\{\kappa(q)-(2p-1)D/2\}^2}{D},\qquad p=p(q). \tag{9}
#
# which is smallest at :math:`\kappa_*(q)=\mathrm E[\ell\mid Q=q]`. A target score of zero has the additional
# cost
#
# .. math::
#
#    \mathcal C_{-s_Q}(q)-\mathcal C_{\kappa_*}(q)=\frac{\{s_Q(q)+(2p-1)D/2\}^2}{D}\ge0,\qquad
#    s_Q(q)=\operatorname{logit}p(q). \tag{10}
#
# No map that preserves :math:`Q`, is affine in :math:`Z` at each :math:`q` and erases the source given
# :math:`Q` moves less than mean anchoring. ``gaussian.costs`` uses none of these formulas, but the matrices
# of the package's maps and the moments of :math:`Z`. Its results are compared with the equations and with
# simulated rows.

Sigma = np.array([[1.0, 0.4], [0.4, 0.6]])
model = gaussian_model([0.9, 0.35], weight=[0.4, 0.6], means=[[-0.7, 0.1], [0.9, -0.3]], covariance=Sigma)
D, cost, overall = model.D, costs(model), float(model.weight @ model.mean_score)


def equation_9(kappa, p, D):
    """Return the cost of bringing ℓ to κ."""
    return 1 + D * p * (1 - p) + (kappa - (2 * p - 1) * D / 2) ** 2 / D


print(f"D = {D:.4f}\n{'':<56} {'package':>10}  {'by hand':>10}")
for k, p in enumerate(model.p):
    rows, s_Q = model.sample(200_000, random_state=k, context=k), float(np.log(p / (1 - p)))
    targets = {"conditional": s_Q + (2 * p - 1) * D / 2, "mean": overall, "zero": 0.0}
    for name, target in targets.items():
        step = target_map(model, target, k).transform(rows.Z) - rows.Z
        agree(f"p = {p}, {name}: equation (9)", cost[name][k], equation_9(target - s_Q, p, D))
        agree("   simulated", cost[name][k], np.einsum("ni,ij,nj->n", step, model.metric, step))
    excess = cost["zero"][k] - cost["conditional"][k]
    agree("excess of zero: equation (10)", excess, (s_Q + (2 * p - 1) * D / 2) ** 2 / D)

# %%
# No other affine eraser moves less
# ---------------------------------
# Appendix A.4: a generic optimiser searches all maps :math:`z'=Fz+c` with :math:`F\delta=0`, and finds mean
# anchoring.

k, p = 0, float(model.p[0])
L = np.eye(2) - np.outer(model.delta, model.metric @ model.delta) / D
root = np.linalg.cholesky(model.metric).T


def movement(x):
    """Return the expected squared movement of the affine map with these parameters."""
    edit = x[:4].reshape(2, 2) @ L - np.eye(2)
    shift = edit @ model.mean[k] + x[4:]
    return np.trace(root @ edit @ model.covariance[k] @ edit.T @ root.T) + np.sum((root @ shift) ** 2)


found = minimize(movement, np.random.default_rng(0).normal(size=6), options={"gtol": 1e-9})
anchored = target_map(model, model.mean_score[k], k)
agree("least cost of an affine eraser; found by search", cost["conditional"][k], found.fun, within=1e-6)
difference = np.abs(linear_part(anchored) - found.x[:4].reshape(2, 2) @ L).max()
agree("   largest difference of the two matrices", difference, 0.0, within=1e-4)
output = anchored.transform(model.mean[k][None])[0]
agree("   mean after mean anchoring; mean before", output[0], model.mean[k, 0])

# %%
# The numbers of figure 2
# -----------------------
# Source means :math:`(\pm1,0)`, identity covariance, :math:`p=.8`. *Completion* replaces all :math:`r`
# coordinates by :math:`\mathrm E[Z\mid q]`. Its cost is higher by :math:`r-1` than that of selective
# anchoring, which does not change the other directions. "By hand" is the paper's equation.

model, p, D, r = gaussian_model(), 0.8, 4.0, 2
conditional, completion = target_map(model, model.mean_score[0]), completion_map(model)
half = conditional.with_strength(0.5)
cost = {name: float(values[0]) for name, values in costs(model).items()}
prior, middle = float(np.log(p / (1 - p))), (2 * p - 1) * D / 2
least, excess = 1 + D * p * (1 - p), (prior + middle) ** 2 / D
numbers = {
    "separation D": (model.D, D),
    "evidence of the context": (model.evidence[0], prior),
    "conditional target": (model.mean_score[0], prior + middle),
    "cost of conditional": (cost["conditional"], least),
    "cost of zero": (cost["zero"], least + excess),
    "cost of mean: as zero, for balanced sources": (cost["mean"], least + excess),
    "cost of completion": (cost["completion"], r + D * p * (1 - p)),
    "excess of completion": (cost["completion"] - cost["conditional"], r - 1),
    "directions left by conditional": (np.linalg.matrix_rank(linear_part(conditional)), r - 1),
    "directions left by completion": (np.linalg.matrix_rank(linear_part(completion)), 0),
    "separation left by completion": (separation_left(model, completion), 0),
    "separation left by half a step": (separation_left(model, half), D),
    "bits in the gate after": (information(p, separation_left(model, conditional)), 0),
}
print(f"{'':<56} {'package':>10}  {'by hand':>10}")
for name, (ours, paper) in numbers.items():
    agree(name, ours, paper)
print(f"bits in the context {context_information(model):.4f}, in the gate before {information(p, D):.4f}")

aims = np.linspace(-1.5, 6.5, 81)
with plots.style():
    figure, ax = plt.subplots(figsize=(plots.PAGE / 2, 2.4), layout="constrained")
    moments = model.mean[0], model.covariance[0], model.metric
    ax.plot(aims, equation_9(aims - prior, p, D), color=COLORS[0])
    ax.plot(aims[::5], [expected_movement(target_map(model, a), *moments) for a in aims[::5]], "o", ms=3)
    for at, words, color in ((0.0, "zero", COLORS[2]), (prior + middle, "E[s | q]", COLORS[1])):
        ax.plot(at, equation_9(at - prior, p, D), "o", color=color, ms=6, label=words)
    ax.legend()
    ax.set(xlabel="Target of the score", ylabel="Expected squared movement", ylim=(0.8, 6))
    grid(ax, "y")

plt.show()
