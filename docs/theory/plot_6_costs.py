r"""
.. _theory-costs:

What a target costs: the theorem, and completion
================================================

*Section 5.2, equations (9) and (10), appendix A.3 and A.4.*

In the Gaussian model of :ref:`theory-gaussian` every target erases the source given :math:`Q`. They differ in
what they cost. The map that brings :math:`\ell` to :math:`\kappa(q)` has, in the metric :math:`\Sigma^{-1}`,
the expected squared movement

.. math:: \mathcal C_\kappa(q)=1+Dp(1-p)+\frac{\{\kappa(q)-(2p-1)D/2\}^2}{D},\qquad p=p(q). \tag{9}

It is least at :math:`\kappa_*(q)=\mathrm E[\ell\mid Q=q]`, that is, with the total score aimed at
:math:`\mathrm E[s\mid Q=q]`. Aiming at a total score of zero, as if the context had said nothing, costs in
excess

.. math::

   \mathcal C_{-s_Q}(q)-\mathcal C_{\kappa_*}(q)=\frac{\{s_Q(q)+(2p-1)D/2\}^2}{D}\ge0,\qquad
   s_Q(q)=\operatorname{logit}p(q). \tag{10}

Among all maps that preserve :math:`Q`, are affine in :math:`Z` at each :math:`q` and erase the source given
:math:`Q`, none moves less than mean anchoring.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

from mgpa.audit import plots
from mgpa.audit.plots import COLORS, grid
from mgpa.studies import theory
from mgpa.studies.gaussian import (
    completion_map,
    costs,
    expected_movement,
    gaussian_model,
    linear_part,
    target_map,
)


def agree(what, package, independent, within=1e-9):
    """Print both numbers; stop if they differ by more than rounding or, of draws, four standard errors."""
    if np.ndim(independent):
        within = 4 * np.std(independent) / np.sqrt(len(independent))
        independent = np.mean(independent)
    print(f"{what:<56} {round(package, 9) + 0.0:>10.6f}  {round(independent, 9) + 0.0:>10.6f}")
    assert abs(package - independent) <= within, (what, package, independent)


# %%
# Equations (9) and (10)
# ----------------------
# ``mgpa.studies.gaussian.costs`` knows none of these formulas: it takes the matrices of the package's maps
# and the first two moments of :math:`Z`. The targets have the names of ``mgpa.IterativeMGPA``. By hand: the
# equations, and simulated rows, moved.

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
# The excess vanishes only where the context says nothing, and diverges as the sources come closer: the less
# there is to remove, the more it costs to pretend that :math:`q` is silent. At :math:`p=.8`:

for separation in (4.0, 1.0, 0.1, 0.01):
    near = costs(
        gaussian_model([0.8, 0.5], means=[[-np.sqrt(separation) / 2, 0], [np.sqrt(separation) / 2, 0]])
    )
    excess = near["zero"] - near["conditional"]
    agree(f"excess of zero, D = {separation:g}", excess[0], (np.log(4) + 0.3 * separation) ** 2 / separation)
    agree("   where p = 1/2", excess[1], 0.0)

# %%
# No other affine eraser moves less
# ---------------------------------
# Appendix A.4, without its argument: let a generic optimiser search all maps :math:`z'=Fz+c` whose :math:`F`
# annihilates :math:`\delta`. Every such :math:`F` is a free matrix times :math:`L`. It finds the cost and the
# matrix of mean anchoring.

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
# Completion: replacing the whole block
# -------------------------------------
# ``mgpa.studies.gaussian.completion_map`` writes :math:`\mathrm E[Z\mid q]` over all :math:`r` coordinates.
# That erases the source, too, and costs :math:`r+Dp(1-p)`; selective anchoring costs :math:`1+Dp(1-p)` and
# leaves the other :math:`r-1` directions, which are independent of the source given :math:`q` and may carry
# the task, as they are.

sizes = np.arange(1, 17)
whole, selective = [], []
for r in sizes:
    rng = np.random.default_rng(int(r))
    half = rng.normal(size=(r, r)) / np.sqrt(r) + np.eye(r)
    shift = rng.normal(size=r)
    shift *= np.sqrt(4.0 / (shift @ np.linalg.solve(half @ half.T, shift)))  # D = 4
    wide = gaussian_model([0.8], means=[-shift / 2, shift / 2], covariance=half @ half.T)
    moments = wide.mean[0], wide.covariance[0], wide.metric
    whole.append(expected_movement(completion_map(wide), *moments))
    selective.append(expected_movement(target_map(wide, wide.mean_score[0]), *moments))
for r in (1, 2, 8, 16):
    agree(f"cost of completion, r = {r}", whole[r - 1], r + 4 * 0.8 * 0.2, within=1e-6)
    agree("   of selective anchoring", selective[r - 1], 1 + 4 * 0.8 * 0.2, within=1e-6)
kept = np.linalg.matrix_rank(linear_part(target_map(wide, 0.0)), tol=1e-8)
agree("directions left by selective anchoring, r = 16", kept, 15)
agree("   by completion", np.linalg.matrix_rank(linear_part(completion_map(wide)), tol=1e-8), 0)

# %%
# The three costs
# ---------------
# Lines are the equations; dots are the costs of the package's maps (``mgpa.studies.theory.curves`` for the
# first two panels, at the setting of the paper's figure 2: :math:`D=4`, :math:`p=.8`).

drawn = theory.curves()
with plots.style():
    figure, [one, two, three] = plt.subplots(1, 3, figsize=(plots.PAGE, 2.4), layout="constrained")
    aims = drawn["target"]
    one.plot(aims, equation_9(aims - np.log(4), 0.8, 4.0), color=COLORS[0])
    one.plot(aims[::50], drawn["cost"][::50], "o", color=COLORS[0], ms=3)
    for at, words, color in ((0.0, "zero", COLORS[2]), (np.log(4) + 1.2, "E[s | q]", COLORS[1])):
        one.plot(at, equation_9(at - np.log(4), 0.8, 4.0), "o", color=color, ms=6)
        above = words == "zero"
        one.annotate(
            words, (at, equation_9(at - np.log(4), 0.8, 4.0)), (6, 3) if above else (0, -12),
            textcoords="offset points", ha="left" if above else "center", color=color,
        )  # fmt: skip
    one.set(xlabel="Target of the score", ylabel="Expected squared movement", ylim=(0.8, 6))
    one.set_title("Equation (9)", loc="left")
    for p, excess in zip(drawn["p"], drawn["excess"], strict=True):
        separation = drawn["separation"]
        exact = (np.log(p / (1 - p)) + (2 * p - 1) * separation / 2) ** 2 / separation
        two.loglog(separation, exact, color=COLORS[2])
        two.loglog(separation[::12], excess[::12], "o", color=COLORS[2], ms=3)
        two.text(separation[-1] * 1.15, exact[-1], f"p = {p:g}", va="center")
    two.set(xlabel="Separation $D$", ylabel="Excess of aiming at zero", xlim=(0.1, 100))
    two.set_title("Equation (10)", loc="left")
    three.plot(sizes, sizes + 0.64, color=COLORS[4])
    three.plot(sizes, whole, "o", color=COLORS[4], ms=3)
    three.plot(sizes, np.full(len(sizes), 1.64), color=COLORS[1])
    three.plot(sizes, selective, "o", color=COLORS[1], ms=3)
    three.text(9, 11.5, "whole block", ha="right", color=COLORS[4])
    three.text(16, 2.3, "selective", ha="right", color=COLORS[1])
    three.set(xlabel="Editable directions $r$", ylabel="Expected squared movement", ylim=(0, 18))
    three.set_title("Completion", loc="left")
    for ax in (one, two, three):
        grid(ax, "y")

# %%
# What this does not say
# ----------------------
# Costs are compared among maps that erase the source *given* :math:`Q` *in this model*, in its own metric.
# Nothing follows about maps that are not affine, about unequal covariances, or about the task performance of
# a head.

plt.show()
