r"""
.. _theory-step:

The iterative correction and its bounded step
=============================================

*Section 4.2, equations (4) and (5); appendix A.7, equations (13) and (14).*

If one direction is not enough, critics :math:`s_j` are trained to read the source. Every row moves so that
its scores approach their anchors, the expectation of the scores given the preserved part:

.. math::

   a_j(q)\approx\mathrm E[s_j(H)\mid Q=q],\qquad e_j(h)=s_j(h)-a_j(q(h)). \tag{4}

With the gated Jacobian :math:`A`, whose rows are :math:`A_j=\nabla_h s_j(h)^\top B`, and weights that balance
the critics,

.. math:: W_{jj}=(\|A_j\|^2+\lambda^2)^{-1/2},\qquad \bar A=WA,\quad \bar e=We, \tag{13}

the step of a stage is

.. math::

   \Delta z_*=\arg\min_{\|\Delta z\|\le\rho}
   \Bigl\{\tfrac12\|\bar A\Delta z+\bar e\|^2+\tfrac\tau2\|\Delta z\|^2\Bigr\},
   \qquad h^+=h+B\Delta z_* . \tag{5}

It is unique, and has the form

.. math::

   \Delta z_*=-\bar A^\top\{\bar A\bar A^\top+(\tau+\nu)I\}^{-1}\bar e,\qquad
   \nu\ge0,\quad\nu(\|\Delta z_*\|-\rho)=0. \tag{14}

The script imports :download:`gaussian.py </theory/gaussian.py>`: download it into the same folder.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from gaussian import agree
from scipy.optimize import minimize
from sklearn.linear_model import Ridge

from mgpa.anchor import ConditionalMean
from mgpa.audit import plots
from mgpa.audit.plots import COLORS
from mgpa.critics import Critic, fit_linear, fit_network
from mgpa.trust_region import multiplier, smooth_weights, step_coefficients

# %%
# Rows, a gate, and a critic
# --------------------------
# Three of eight features are editable. The source shifts the first of them and adds a multiple of it to the
# second. The source also depends on the context.

rng = np.random.default_rng(5)
n, d, r = 600, 8, 3
B = np.linalg.qr(rng.normal(size=(d, r)))[0]
H = rng.normal(size=(n, d))
u = (rng.random(n) < 1 / (1 + np.exp(-(H - H @ B @ B.T)[:, 0]))).astype(int)
Z = H @ B
H = H + (u[:, None] * np.column_stack([np.full(n, 1.2), 0.8 * Z[:, 0], np.zeros(n)])) @ B.T
Z, Q = H @ B, H - H @ B @ B.T

linear = fit_linear(H, u, 2)
network = fit_network(torch.as_tensor(H, dtype=torch.float32), u, 2, seeds=[0], epochs=12, learning_rate=1e-3)
# In double precision, so that derivatives can be checked by differences.
network = Critic(*(part.double() for part in vars(network).values()))

# %%
# Equation (4): anchors
# ---------------------
# ``mgpa.anchor.ConditionalMean`` is the ridge regression of scores on :math:`q`, so the anchor of a row does
# not change when the row is edited.

scores = np.column_stack([linear.scores(H)[:, 0], network.scores(torch.as_tensor(H)).numpy()[:, 0]])
weight, bias = ConditionalMean(H, B, ridge=10.0).fit(scores)
anchors, by_hand = H @ weight.T + bias, Ridge(alpha=10.0).fit(Q, scores).predict(Q)
edited = H + rng.normal(size=(n, r)) @ B.T

print(f"{'':<56} {'package':>10}  {'by hand':>10}")
for j, name in enumerate(("linear", "GELU")):
    agree(f"anchor of the {name} critic, first row", anchors[0, j], by_hand[0, j])
agree("   largest difference over all rows", np.abs(anchors - by_hand).max(), 0.0)
agree(
    "   largest change of an anchor by an edit in the gate",
    np.abs(edited @ weight.T + bias - anchors).max(),
    0.0,
)

# %%
# The gated Jacobian
# ------------------
# The method ``gated`` of a critic returns scores and :math:`A_j`. By hand, they follow from central
# differences along :math:`B`.

step = 1e-5
A = np.concatenate(
    [linear.gated(H, B)[1], network.gated(torch.as_tensor(H), torch.as_tensor(B))[1].numpy()], axis=1
)


def residuals(rows):
    """Return e of both critics, with the anchors of the original rows."""
    own = linear.scores(rows)[:, 0], network.scores(torch.as_tensor(rows)).numpy()[:, 0]
    return np.column_stack(own) - anchors


differences = np.stack(
    [(residuals(H + step * B[:, i]) - residuals(H - step * B[:, i])) / (2 * step) for i in range(r)], axis=2
)
agree(
    "gradient of the GELU critic, first row, first direction", A[0, 1, 0], differences[0, 1, 0], within=1e-7
)
agree("   largest difference over rows, critics, directions", np.abs(A - differences).max(), 0.0, within=1e-7)

# %%
# Equations (5), (13) and (14): the step
# --------------------------------------
# ``mgpa.trust_region.step_coefficients`` solves (5) for all rows at once by Newton's method on :math:`\nu`.
# The same step is computed by bisection and by scipy's SLSQP, and the optimality conditions are checked.

tau, rho, lam = 1e-3, 0.6, 0.1
e = residuals(H)
W = smooth_weights(np.sum(A**2, axis=2), lam)
A_bar, e_bar = W[:, :, None] * A, W * e


def bounded_step(A, e, tau, rho):
    """Return the step of every row."""
    y = step_coefficients(A @ np.swapaxes(A, 1, 2), e, damping=tau, radius=rho)
    return -np.einsum("nj,njr->nr", y, A)


steps = bounded_step(A_bar, e_bar, tau, rho)


def step_at(nu, A, e, tau):
    """Return the step of equation (14) of every row, at given ν."""
    inner = A @ np.swapaxes(A, 1, 2) + (tau + nu)[:, None, None] * np.eye(A.shape[1])
    return -(np.swapaxes(A, 1, 2) @ np.linalg.solve(inner, e[:, :, None]))[:, :, 0]


def bisect(A, e, tau, rho):
    """Return ν of every row: zero, or where the step is as long as the radius."""
    low, high = np.zeros(len(A)), np.linalg.norm(np.einsum("njr,nj->nr", A, e), axis=1) / rho
    free = np.linalg.norm(step_at(low, A, e, tau), axis=1) <= rho
    for _ in range(60):
        middle = (low + high) / 2
        long = np.linalg.norm(step_at(middle, A, e, tau), axis=1) > rho
        low, high = np.where(long, middle, low), np.where(long, high, middle)
    return np.where(free, 0.0, (low + high) / 2)


def objective(x, A, e):
    """Return the function of (5) and its gradient."""
    rest = A @ x + e
    return rest @ rest / 2 + tau / 2 * x @ x, A.T @ rest + tau * x


def generic(A, e):
    """Return SLSQP's answer to (5) for one row."""
    ball = {"type": "ineq", "fun": lambda x: (rho**2 - x @ x) / 2, "jac": lambda x: -x}
    found = minimize(
        objective, np.zeros(r), args=(A, e), jac=True, method="SLSQP", constraints=[ball],
        options={"ftol": 1e-15, "maxiter": 500},
    )  # fmt: skip
    return found.x


nu = bisect(A_bar, e_bar, tau, rho)
by_bisection = step_at(nu, A_bar, e_bar, tau)
bound = nu > 0
both = np.concatenate([np.flatnonzero(bound)[:20], np.flatnonzero(~bound)[:20]])  # some of either kind
by_slsqp = np.array([generic(A_bar[i], e_bar[i]) for i in both])

gram = A_bar @ np.swapaxes(A_bar, 1, 2)
values, vectors = np.linalg.eigh(gram)
pull = np.einsum("nji,nj->ni", vectors, e_bar) ** 2
nu_package = multiplier([(pull[:, i], values[:, i]) for i in range(2)], tau, rho)

print(f"{bound.sum()} of {n} rows reach the radius\n{'':<56} {'package':>10}  {'by hand':>10}")
agree("largest weight W of eq. (13)", W.max(), 1 / np.sqrt(np.sum(A**2, 2) + lam**2).min(), within=1e-9)
agree("mean ν", nu_package.mean(), nu.mean())
agree("   largest difference of a step to bisection's", np.abs(steps - by_bisection).max(), 0.0)
agree("   largest difference of a step to SLSQP's", np.abs(steps[both] - by_slsqp).max(), 0.0, within=1e-4)

# %%
# The conditions are stationarity, complementary slackness, and a step of at most :math:`\rho`:

gradient = np.einsum("njr,nj->nr", A_bar, np.einsum("njr,nr->nj", A_bar, steps) + e_bar)
gradient += (tau + nu_package)[:, None] * steps
length = np.linalg.norm(steps, axis=1)
agree("largest entry of the stationarity condition", np.abs(gradient).max(), 0.0)
agree("largest ν (‖Δz‖ - ρ)", np.abs(nu_package * (length - rho)).max(), 0.0)
agree("longest step; the radius", length.max(), rho)

# %%
# ``mgpa.IterativeMGPA`` refits critics and anchors after every stage and stores them in a
# ``mgpa.maps.StagedMap``; :doc:`/formats/map` says how to replay one by hand.
#
# A plot of the step
# ------------------
# The plot shows contour lines of (5) and the curve of (14). The curve begins at :math:`\nu=0`, the step
# without a radius, and ends on the boundary of the ball.

rho = 1.0
plane_A, plane_e = np.array([[[1.0, 0.35], [0.2, 0.9]]]), np.array([[-1.9, 0.9]])
many = np.linspace(0, 30, 1501)
path = step_at(many, *(np.repeat(part, len(many), axis=0) for part in (plane_A, plane_e)), tau)
chosen = bounded_step(plane_A, plane_e, tau, rho)[0]
root = bisect(plane_A, plane_e, tau, rho)
agree("first coordinate of the step drawn", chosen[0], step_at(root, plane_A, plane_e, tau)[0, 0])

with plots.style():
    figure, ax = plt.subplots(figsize=(plots.PAGE / 2, 2.6), layout="constrained")
    x, y = np.meshgrid(np.linspace(-1.5, 3, 90), np.linspace(-2.6, 1.5, 90))
    points = np.stack([x, y], -1)
    height = 0.5 * np.sum((points @ plane_A[0].T + plane_e[0]) ** 2, -1) + 0.5 * tau * np.sum(points**2, -1)
    ax.contour(x, y, height, levels=np.geomspace(0.03, 8, 9), colors="#bdbdbd", linewidths=0.6)
    ax.add_patch(plt.Circle((0, 0), rho, fc=COLORS[1], alpha=0.12, lw=0))
    ax.plot(*path.T, color=COLORS[2])
    ax.plot(*path[0], "o", mfc="white", mec=COLORS[2])
    ax.plot(*chosen, "o", color=COLORS[1])
    ax.annotate(r"$\nu=0$", path[0], (4, -9), textcoords="offset points", color=COLORS[2])
    ax.annotate(r"$\Delta z_*$", chosen, (4, 3), textcoords="offset points", color=COLORS[1])
    ax.plot(0, 0, "+", color="black", ms=5)
    ax.set(aspect="equal", xlabel=r"$\Delta z_1$", ylabel=r"$\Delta z_2$", xticks=[-1, 0, 1, 2])

# %%
# Each step solves its *linearised* problem. It is not proven that refitted, nonlinear stages are optimal or
# erase the source (:ref:`theory-proven`).

plt.show()
