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
:math:`a(q)`. Whatever the law of the data, all targets retain the same information, that of :math:`(Q,N)`
with :math:`N=(I-vw^\top)Z`. They cost

.. math::

   \mathcal C_a(q)=\frac{\mathrm{Var}(s\mid Q=q)+\{\mathrm E[s\mid Q=q]-a(q)\}^2}{d_\Omega(q)}, \tag{7}

so that the conditional mean :math:`\mu(q)=\mathrm E[s\mid Q=q]` is the cheapest target, and the only one.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize
from sklearn.metrics import roc_auc_score

from mgpa import AffineMap
from mgpa.audit import plots
from mgpa.audit.plots import COLORS
from mgpa.closed_form import projection
from mgpa.trust_region import trust_region_step


def agree(what, package, independent, within=1e-9):
    """Print both numbers, and stop if they differ by more than rounding."""
    print(f"{what:<56} {round(package, 9) + 0.0:>10.6f}  {round(independent, 9) + 0.0:>10.6f}")
    assert abs(package - independent) <= within, (what, package, independent)


# %%
# The setting: nothing Gaussian
# -----------------------------
# One fixed :math:`q` (the statement holds at each separately, and :math:`b`, :math:`w`, :math:`\Omega` may
# change from one to the next), three editable coordinates with a skewed law, an arbitrary score and an
# arbitrary metric. The score is not a Bayes score, and no source is needed yet.

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
# ``mgpa.closed_form.projection(C, Delta)`` gives factors with product :math:`\Delta(\Delta^\top
# C^{-1}\Delta)^{-1}\Delta^\top C^{-1}`. With :math:`C=\Omega^{-1}` and :math:`\Delta=\Omega^{-1}w` that is
# :math:`vw^\top`, and the map is an ordinary ``mgpa.AffineMap``, as the closed form's is. By hand: the
# formula, and for some rows scipy's solver of "least :math:`\Omega`-norm subject to the score".


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


after = reach(target, w, b, Omega).transform(Z)
by_solver = np.array([least(z) for z in Z[:20]])
print(f"{'':<56} {'package':>10}  {'by hand':>10}")
agree("mean squared edit", np.mean((after - Z) ** 2), np.mean(np.outer(target - score, v) ** 2))
agree("   largest difference to the formula", np.abs(after - Z - np.outer(target - score, v)).max(), 0.0)
agree(
    "   largest difference to the solver, 20 rows",
    np.abs((after - Z)[:20] - by_solver).max(),
    0.0,
    within=1e-5,
)
agree("score after the edit, furthest from the target", np.abs(b + after @ w - target).max(), 0.0)

# %%
# Equation (7): what a target costs
# ---------------------------------
# The squared :math:`\Omega`-norm of the edits, averaged over the rows, against (7) with the rows' own mean
# and variance.


def cost(a):
    """Return the mean squared movement by T_a in the metric Ω."""
    step = reach(a, w, b, Omega).transform(Z) - Z
    return np.einsum("ni,ij,nj->n", step, Omega, step).mean()


targets = {
    "the conditional mean": score.mean(),
    "zero": 0.0,
    "one above the mean": score.mean() + 1,
    "the median": np.median(score),
}
for name, a in targets.items():
    agree(f"cost of aiming at {name}", cost(a), (score.var() + (score.mean() - a) ** 2) / d_Omega)

# %%
# The median, for a skewed law, is not the mean, and costs more. Asked for the cheapest target, a generic
# search over :math:`a` finds the mean:

agree(
    "cheapest target found by search",
    float(minimize(lambda a: cost(a[0]), [0.0]).x[0]),
    score.mean(),
    within=1e-4,
)

# %%
# Same information, other coordinates
# -----------------------------------
# The corrected block is :math:`N+v(a-b)`: targets differ by a translation that :math:`q` determines. Anyone
# who knows :math:`q` can compute each output from any other, so all allow the same predictions of the source
# and of any task. A head that stays as it is may still respond differently to the translation.

keep = np.eye(r) - np.outer(v, w)
for name, a in targets.items():
    output = reach(a, w, b, Omega).transform(Z)
    agree(f"(I - vwᵀ) of the output, {name}: change", np.abs(output @ keep.T - Z @ keep.T).max(), 0.0)
    agree(
        "   computed from the output for zero: error",
        np.abs(reach(0.0, w, b, Omega).transform(Z) + v * a - output).max(),
        0.0,
    )

# %%
# With Euclidean movement it is the iterative step without a radius
# -----------------------------------------------------------------
# For :math:`\Omega=I` the edit is :math:`w(a-s)/\|w\|^2`. This is the limit of the step (5) of one linear
# critic for a large radius and no damping; a finite radius or several refitted critics are not covered by the
# proposition.

limit = trust_region_step(np.tile(w, (n, 1, 1)), (score - target)[:, None], damping=1e-12, radius=1e6)
expected = np.outer(target - score, w) / (w @ w)
agree("mean length of the step", *(np.linalg.norm(s, axis=1).mean() for s in (limit, expected)))
agree("   largest difference", np.abs(limit - expected).max(), 0.0)

# %%
# What is kept may include the source
# -----------------------------------
# The proposition is about *cost*. The source is erased given :math:`q` exactly when :math:`N` is independent
# of it. Here the two sources have another mean along one direction and another *spread* across it. The
# projection takes the first; a reader of the second does as well as before.

u = rng.integers(2, size=n)
pair = rng.normal(size=(n, 2)) * np.where(u[:, None] == 1, [1.0, 1.8], [1.0, 0.7]) + np.outer(
    u - 0.5, [2.0, 0.0]
)
moved = reach(0.0, np.array([2.0, 0.0]), 0.0, np.eye(2)).transform(pair)
print("AUROC of the source (guessing: 0.5), before and after")
for name, read in (
    ("along the shift", lambda x: x[:, 0].round(9)),
    ("spread across it", lambda x: np.abs(x[:, 1])),
):
    before, left = (roc_auc_score(u, read(rows)) for rows in (pair, moved))
    print(f"   {name:<18} {before:.3f}  {left:.3f}")
    assert abs(left - (0.5 if name == "along the shift" else before)) < 1e-6

# %%
# The picture
# -----------
# Left: two coordinates of a skewed law, three targets. Rows travel along :math:`v` to parallel levels; the
# order of the rows along a level, :math:`N`, is the same on each. Right: measured cost (dots) and equation
# (7).

cloud = np.random.default_rng(2).exponential(size=(400, 2)) - [1.0, 1.0]
w2, metric = np.array([1.0, 0.6]), np.array([[1.0, 0.3], [0.3, 0.5]])
s2 = cloud @ w2
grid_of_targets = np.linspace(-3, 3, 121)
measured = []
for a in grid_of_targets[::10]:
    step = reach(a, w2, 0.0, metric).transform(cloud) - cloud
    measured.append(np.einsum("ni,ij,nj->n", step, metric, step).mean())
formula = (s2.var() + (s2.mean() - grid_of_targets) ** 2) / (w2 @ np.linalg.solve(metric, w2))
agree("cost at the middle dot", measured[6], formula[60])

with plots.style():
    figure, [left_panel, right_panel] = plt.subplots(1, 2, figsize=(plots.PAGE, 2.6), layout="constrained")
    left_panel.plot(*cloud.T, "o", ms=2.4, mew=0, color="#bdbdbd")
    shown = np.random.default_rng(3).choice(len(cloud), 14, replace=False)
    for a, color, name in (
        (-2.2, COLORS[2], "$a=-2.2$"),
        (float(s2.mean()), COLORS[1], r"$a=\mu$"),
        (2.2, COLORS[3], "$a=2.2$"),
    ):
        ends = reach(a, w2, 0.0, metric).transform(cloud[shown])
        across = np.array([-4, 5.0])
        left_panel.plot(across, (a - across * w2[0]) / w2[1], color=color, lw=0.8)
        left_panel.plot(*ends.T, "o", ms=3, color=color)
        right_panel.axvline(a, color=color, lw=0.8)
        right_panel.text(a + 0.08, 9.5, name, color=color, va="top")
    for k in shown:
        line = np.concatenate([reach(a, w2, 0.0, metric).transform(cloud[k : k + 1]) for a in (-2.2, 2.2)])
        left_panel.plot(*line.T, color="#d9d9d9", lw=0.6, zorder=0)
    left_panel.set(xlim=(-3, 4), ylim=(-2.6, 3.6), xlabel="$z_1$", ylabel="$z_2$", aspect="equal")
    left_panel.set_title("Parallel levels", loc="left")
    right_panel.plot(grid_of_targets, formula, color=COLORS[0])
    right_panel.plot(grid_of_targets[::10], measured, "o", color=COLORS[0], ms=3.5)
    right_panel.set(xlabel="Target $a$", ylabel="Mean squared movement", ylim=(0, 10), xlim=(-3, 3.2))
    right_panel.set_title("Equation (7)", loc="left")

plt.show()
