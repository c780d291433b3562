r"""
.. _theory-closed-form:

The closed form: one step along the measured direction
======================================================

*Section 4.1, equation (3), appendix A.5.*

Inside the gate, the closed form moves every row along one direction :math:`\widehat\delta`, the mean
projected contrast, toward the expectation given the preserved coordinates:

.. math::

   z' = z - \alpha\,\widehat\delta\,
   \frac{\widehat\delta^\top C^{-1}[z-\widehat m_Z(q)]}{\widehat\delta^\top C^{-1}\widehat\delta},
   \qquad q' = q. \tag{3}

:math:`\widehat m_Z(q)` is the ridge regression of :math:`z` on :math:`q`, and :math:`C` is the regularised
covariance of the residual of :math:`z` after regression on :math:`q` *and the source*. The estimator is
``mgpa.ClosedFormMGPA``; its parts are ``mgpa.position.anchor_and_covariance``,
``mgpa.position.shrink_or_raise`` and ``mgpa.position.projection``.

The script imports :download:`gaussian.py </theory/gaussian.py>`: download it into the same folder.
"""

import matplotlib.pyplot as plt
import numpy as np
from gaussian import agree
from scipy.stats import norm
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score

import mgpa
from mgpa import ClosedFormMGPA
from mgpa.anchor import ConditionalMean
from mgpa.audit import plots
from mgpa.audit.plots import COLORS, grid
from mgpa.maps import AffineMap
from mgpa.position import projection

# %%
# Rows in which source and content are dependent
# ----------------------------------------------
# Five features are context, and two form the gate.

rng = np.random.default_rng(1)
frame = np.linalg.qr(rng.normal(size=(7, 7)))[0]
gate_axes, context_axes = frame[:, :2], frame[:, 2:]
delta = np.array([1.6, 0.8])
spread = np.linalg.cholesky([[1.0, 0.5], [0.5, 0.8]])
slope = 0.4 * rng.normal(size=(5, 2))


def draw(n, seed):
    """Return embeddings and sources."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(n, 5))
    u = (rng.random(n) < 1 / (1 + np.exp(-1.5 * q[:, 0]))).astype(int)
    z = q @ slope + np.outer(u - 0.5, delta) + rng.normal(size=(n, 2)) @ spread.T
    return q @ context_axes.T + z @ gate_axes.T, u


X, source = draw(3000, seed=2)
first = draw(60, seed=3)[0]
second = first + (delta + 0.4 * rng.normal(size=(60, 2))) @ gate_axes.T
model = ClosedFormMGPA.paper(gate=2).fit(X, source=source, pairs=(first, second))

# %%
# Equation (3) by hand
# --------------------
# Ridge regression by scikit-learn; the joint regression on :math:`q` and the source as least squares, with a
# penalty on :math:`q` only; then the formula.

center, scale = X.mean(0), X.std(0)
H, contrasts = (X - center) / scale, (second - first) / scale
B = model.gate_.basis_
Z, Q = H @ B, H - H @ B @ B.T
mean = Ridge(alpha=10.0).fit(Q, Z)

u = (source - source.mean())[:, None]
design = np.vstack([np.hstack([Q, u]), np.hstack([np.sqrt(10.0) * np.eye(7), np.zeros((7, 1))])])
joint = np.linalg.lstsq(design, np.vstack([Z - Z.mean(0), np.zeros((7, 2))]))[0]
residual = Z - Z.mean(0) - np.hstack([Q, u]) @ joint
C = residual.T @ residual / len(X)
C = 0.99 * C + 0.01 * np.trace(C) / 2 * np.eye(2)
hat = (contrasts @ B).mean(0)


def equation_3(rows, alpha=1.0):
    """Correct rows, in their own units."""
    h = (rows - center) / scale
    z, q = h @ B, h - h @ B @ B.T
    coefficient = (z - mean.predict(q)) @ np.linalg.solve(C, hat) / (hat @ np.linalg.solve(C, hat))
    return (q + (z - alpha * np.outer(coefficient, hat)) @ B.T) * scale + center


fresh = draw(2000, seed=4)[0]
print(f"{'':<52} {'package':>10}  {'by hand':>10}")
agree("first entry of δ̂", model.direction_[0, 0], hat[0])
agree("determinant of C", np.linalg.det(model.covariance_), np.linalg.det(C))
for alpha in (0.5, 1.0, 1.3):
    after, expected = model.transform(fresh, strength=alpha), equation_3(fresh, alpha)
    agree(f"first entry of the first row, α = {alpha}", after[0, 0], expected[0, 0])
    agree("   largest difference of the two outputs", np.abs(after - expected).max(), 0.0)

# %%
# At full strength, the closed form is the projection of Proposition 1
# --------------------------------------------------------------------
# With :math:`w=C^{-1}\widehat\delta`, every output has the score :math:`w^\top\widehat m_Z(q)`.

w = np.linalg.solve(C, hat)
output = (model.transform(fresh) - center) / scale
level = mean.predict(output - output @ B @ B.T) @ w
agree("largest distance of a score to its level", np.abs(output @ B @ w - level).max(), 0.0)

# %%
# A partial step does not affect a new reader
# -------------------------------------------
# On the editable block a step of strength :math:`\alpha` has the linear part
#
# .. math::
#
#    M_\alpha = I - \alpha\,\frac{\widehat\delta\widehat\delta^\top C^{-1}}
#    {\widehat\delta^\top C^{-1}\widehat\delta}, \qquad \det M_\alpha = 1-\alpha .
#
# For :math:`\alpha\ne1` it can be inverted: below, rows are recovered from corrected rows.

stored = model.to_map()
step = (stored.direction / scale[:, None]) @ (stored.readout * scale[:, None]).T
for alpha in (0.3, 1.0, 1.2):
    block = B.T @ (np.eye(7) - alpha * step) @ B
    agree(f"determinant of the block, α = {alpha}", np.linalg.det(block), 1 - alpha)
partial = (model.transform(fresh, strength=0.9) - center) / scale
origin = (model.transform(center[None], strength=0.9)[0] - center) / scale
recovered = np.linalg.solve(np.eye(7) - 0.9 * step, (partial - origin).T).T * scale + center
agree("largest error of rows recovered from α = 0.9", np.abs(recovered - fresh).max(), 0.0)

# %%
# So a *refitted* reader loses nothing if :math:`\alpha<1`.
#
# Estimating the anchor: equation (12)
# ------------------------------------
# *Section 4, appendix A.6, equation (12).*
#
# The cheapest target, :math:`\mu(q)=\mathrm E[s\mid Q=q]`, has to be estimated. With gate, score and metric
# fixed, an anchor :math:`\widehat a_{\mathcal C}(q)` from an independent sample adds its mean squared error:
#
# .. math::
#
#    \mathrm E_{\mathcal C}\,\mathcal C_{\widehat a_{\mathcal C}}(q)-\mathcal C_\mu(q)
#    =\frac{\mathrm E_{\mathcal C}\{\widehat a_{\mathcal C}(q)-\mu(q)\}^2}{d_\Omega(q)}. \tag{12}
#
# The anchor is better than a fixed reference :math:`a_0(q)` exactly if this error is below
# :math:`\{a_0(q)-\mu(q)\}^2`. Below, :math:`m(q)` and :math:`p(q)` are affine in :math:`q`, so :math:`\mu(q)`
# is also affine.

d_Q, delta = 20, np.array([2.0, 0.0])
D, w, B = float(delta @ delta), delta, np.eye(d_Q + 2)[:, d_Q:]
slope = 0.25 * np.random.default_rng(0).normal(size=(d_Q, 2))


def affine(q):
    """Return Pr(U = 1 | q)."""
    return 0.5 + 0.45 * q[:, 0]


def contexts(n, rng):
    """Draw preserved coordinates."""
    return np.column_stack([rng.uniform(-1, 1, n), rng.normal(size=(n, d_Q - 1))])


def rows_at(q, rng):
    """Draw embeddings with these preserved coordinates."""
    u = rng.random(len(q)) < affine(q)
    z = q @ slope + np.outer(u - 0.5, delta) + rng.normal(size=(len(q), 2))
    return np.column_stack([q, z])


def mu(q):
    """Return the conditional mean of the score."""
    return q @ slope @ w + (affine(q) - 0.5) * D


def anchor_map(coefficients, intercept):
    """Return the map that brings the score wᵀz to the anchor, as the package stores it."""
    direction, readout = projection(np.eye(2), delta[:, None])
    unit = float(readout[0, 0] / w[0])  # the readout is w in other units
    d = d_Q + 2
    return AffineMap(
        center=np.zeros(d), scale=np.ones(d), direction=B @ direction,
        readout=(B @ w - coefficients)[:, None] * unit, offset=np.array([-intercept * unit]),
    )  # fmt: skip


def movement(mapping, H):
    """Return the squared movement of every row."""
    return np.sum((mapping.transform(H) - H) ** 2, axis=1)


# %%
# This compares
# ``mgpa.anchor.ConditionalMean`` with scikit-learn's ridge regression of the score on :math:`q`:

rng = np.random.default_rng(1)
H = rows_at(contexts(100, rng), rng)
coefficients, intercept = (part[0] for part in ConditionalMean(H, B, ridge=10.0).fit(H @ B @ w[:, None]))
ridge = Ridge(alpha=10.0).fit(H[:, :d_Q], H @ B @ w)
print(f"{'':<56} {'package':>10}  {'by hand':>10}")
agree("intercept", intercept, ridge.intercept_)
agree("   largest difference of a coefficient", np.abs(coefficients[:d_Q] - ridge.coef_).max(), 0.0)

# %%
# Equation (12): the excess movement with 400 anchors, each fitted on 40 rows, over the movement with the
# exact anchor, and the squared errors of these anchors divided by :math:`d_\Omega=D`.

fits = []
for _ in range(400):
    H = rows_at(contexts(40, rng), rng)
    weight, bias = ConditionalMean(H, B, ridge=10.0).fit(H @ B @ w[:, None])
    fits.append((weight[0], float(bias[0])))
exact = np.concatenate([slope @ w, np.zeros(2)])
exact[0] += 0.45 * D
q = contexts(1, rng)
new = rows_at(np.repeat(q, 4000, axis=0), rng)
least = movement(anchor_map(exact, 0.0), new).mean()
excess = np.array([movement(anchor_map(*fit), new).mean() - least for fit in fits])
error = np.array([(q[0] @ weight[:d_Q] + bias - mu(q)[0]) ** 2 for weight, bias in fits])
# The rows are the same left and right; their finite number leaves a cross term.
allowance = 4 * 2 * np.std(new @ B @ w) * np.sqrt(error.mean() / 4000) / D
agree("excess cost of an estimated anchor", excess.mean(), error.mean() / D, within=allowance)
for distance, verdict in ((0.7, "less"), (1.4, "more")):
    fixed = movement(anchor_map(exact, distance * np.sqrt(error.mean())), new).mean() - least
    print(f"   a fixed reference off by {distance} root mean squared errors costs {fixed:.4f}: {verdict}")
    assert (fixed < excess.mean()) == (verdict == "less")

# %%
# Why the default anchor is regressed within sources
# --------------------------------------------------
# *Not in the paper.*
#
# Consider a task :math:`y=\pm1` and a source :math:`u=\pm1` with :math:`\mathrm E[yu]=\rho`. The preserved
# part is :math:`q=my+e` with :math:`e\sim\mathcal N(0,\Sigma)`, and the part in the gate is
# :math:`z = b\,y+\gamma^\top e+\tfrac a2\,u+\varepsilon`. The slopes of the anchor, regressed over all rows
# and within sources, are
#
# .. math::
#
#    \beta_{\text{pooled}}&=(mm^\top+\Sigma)^{-1}\bigl(m\,(b+\tfrac a2\rho)+\Sigma\gamma\bigr),\\
#    \beta_{\text{within}}&=\bigl((1-\rho^2)\,mm^\top+\Sigma\bigr)^{-1}
#    \bigl((1-\rho^2)\,m\,b+\Sigma\gamma\bigr).
#
# The first contains the term :math:`\tfrac a2\rho`: q predicts the task, the task predicts the source, and
# the source shifts z. After the correction, an existing head :math:`w_q^\top q+w_z z` computes
# :math:`(w_q+w_z\beta)^\top q`. If the shift is large, the sign of its score can change.

rng = np.random.default_rng(0)
D_Q = 23
M = np.r_[0.8, np.zeros(D_Q - 1)]
GAMMA = np.r_[0.0, 0.5, np.zeros(D_Q - 2)]


def slopes(a, b, rho):
    """Return the pooled and the within-source regression of z on q, from the model's moments."""
    outer, noise = np.outer(M, M), np.eye(D_Q)
    pooled = np.linalg.solve(outer + noise, M * (b + a / 2 * rho) + GAMMA)
    free = 1 - rho**2
    within = np.linalg.solve(free * outer + noise, free * M * b + GAMMA)
    return {"pooled": pooled, "within": within}


def head(b):
    """Return the weights (q, z) of the best linear head on the rows of one source."""
    covariance = np.eye(D_Q + 1)
    covariance[-1, :-1] = covariance[:-1, -1] = GAMMA
    covariance[-1, -1] = GAMMA @ GAMMA + 1
    return np.linalg.solve(covariance, np.r_[M, b])


def theory(a, b, rho):
    """Return T_f with each anchor: the AUROC of the head on collapsed rows, exactly."""
    w = head(b)
    seen = {name: w[:-1] + w[-1] * beta for name, beta in slopes(a, b, rho).items()}
    return {name: norm.cdf(np.sqrt(2) * (v @ M) / np.linalg.norm(v)) for name, v in seen.items()}


def draw(n, a, b, rho, rng):
    """Draw rows, their task and their source."""
    y = rng.choice([-1, 1], n)
    u = np.where(rng.random(n) < (1 + rho) / 2, y, -y)
    e = rng.normal(size=(n, D_Q))
    z = b * y + e @ GAMMA + a / 2 * u + rng.normal(size=n)
    return np.column_stack([np.outer(y, M) + e, z]), y, u


def simulate(a, b, rho, rng, n=20_000):
    """Return T_f of the package's two anchors, fitted on rows with the association and scored without it."""
    X, _, u = draw(n, a, b, rho, rng)
    first = draw(400, 0, b, 0, rng)[0]
    pairs = (first - a / 2 * np.eye(D_Q + 1)[-1], first + a / 2 * np.eye(D_Q + 1)[-1])
    test, task, _ = draw(n, a, b, 0, rng)
    options = {"gate": mgpa.gate.FixedGate(np.eye(D_Q + 1)[:, -1:]), "standardize": False}
    models = {
        "pooled": mgpa.ClosedFormMGPA.paper(**options),
        "within": mgpa.ClosedFormMGPA(**options),
    }
    return {
        name: roc_auc_score(task, model.fit(X, source=u, pairs=pairs).transform(test) @ head(b))
        for name, model in models.items()
    }


# %%
# Lines show these equations, and dots show the package, scored on rows with unrelated source and task. With
# the anchor regressed within sources, the result does not depend on the association in this example. With the
# pooled anchor, there is no harm if the shift is small, as in the paper.

RHO = (0.0, 0.5, 0.8, 0.95)

with plots.style():
    figure, axes = plt.subplots(1, 3, figsize=(plots.PAGE, 2.3), layout="constrained", sharey=True)
    along = np.linspace(0, 0.99, 100)
    for ax, a in zip(axes, (2.0, 10.0, 30.0), strict=True):
        for name, color in (("pooled", COLORS[2]), ("within", COLORS[1])):
            ax.plot(along, [theory(a, -0.6, rho)[name] for rho in along], color=color, label=name)
            dots = [simulate(a, -0.6, rho, rng)[name] for rho in RHO]
            ax.plot(RHO, dots, "o", color=color, ms=4)
        ax.axhline(0.5, color=COLORS[0], lw=0.7, ls=":")
        ax.set(title=f"shift {a:g} residual sd", xlabel="association ρ of source and task", ylim=(0, 1))
        grid(ax, "y")
    axes[0].set_ylabel("AUROC of existing heads")
    axes[0].legend(frameon=False, loc="lower left")

# %%
# *Properties that are kept*: the correction stays inside the gate, and all anchors that are functions of q
# leave the same information. *Properties that are lost*: under the association of the fitting rows, the
# movement is no longer the smallest possible, and heads refitted on corrected rows score lower, because they
# cannot use the association that a pooled anchor writes into z. Without the association, heads of the pooled
# anchor lose this advantage.

plt.show()
