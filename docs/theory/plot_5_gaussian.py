r"""
.. _theory-gaussian:

Conditional erasure in the Gaussian model
=========================================

*Section 5.2, equations (8) and (11), the theorem's first half, appendix A.1 and A.3.*

When does a projection of one score erase the source? In the model

.. math::

   Z\mid Q=q,U=u\;\sim\;\mathcal N\bigl(m(q)+(2u-1)\delta/2,\;\Sigma\bigr),\qquad
   D=\delta^\top\Sigma^{-1}\delta>0, \tag{8}

both sources share a covariance, and the shift :math:`\delta` between them is the same in every context. The
Bayes score, the posterior log-odds of source 1, splits into what the context says and what the gate adds,

.. math::

   s(q,z)=\underbrace{\operatorname{logit}p(q)}_{s_Q(q)}
   +\log\frac{dP_{Z\mid Q=q,U=1}}{dP_{Z\mid Q=q,U=0}}(z), \tag{11}

and here the second term is :math:`\ell=\delta^\top\Sigma^{-1}(z-m(q))`. The theorem's first half: every map
:math:`R_\kappa(q,z)=\bigl(q,\,z+\tfrac{\delta}{D}\{\kappa(q)-\ell\}\bigr)` preserves :math:`Q` and makes the
output independent of the source given :math:`Q`.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import logit
from scipy.stats import multivariate_normal
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from mgpa import AffineMap, ClosedFormMGPA, MeasurementGate
from mgpa.audit import plots
from mgpa.audit.plots import COLORS, SOURCE_COLORS, grid
from mgpa.baselines.leace import erasure
from mgpa.closed_form import projection
from mgpa.studies.gaussian import (
    expected_movement,
    gaussian_model,
    information,
    linear_part,
    separation_left,
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
# The model
# ---------
# ``mgpa.studies.gaussian.gaussian_model``: three contexts, of which the last says nothing about the source,
# and three editable coordinates that are correlated.

Sigma = np.array([[1.0, 0.5, 0.2], [0.5, 1.5, -0.3], [0.2, -0.3, 0.8]])
model = gaussian_model(
    [0.8, 0.3, 0.5], weight=[0.3, 0.3, 0.4], means=[[-0.8, -0.3, 0], [0.8, 0.9, 0.4]], covariance=Sigma
)
delta, D = model.delta, model.D

# %%
# Equation (11): the score, and its moments
# -----------------------------------------
# By hand: scipy's normal densities and Bayes' rule, in the first context; and simulated rows.

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
agree("   simulated", w @ model.covariance[k] @ w, (ell - (2 * p - 1) * D / 2) ** 2)
agree(
    "share of source 1 among rows with a score near 1",
    1 / (1 + np.exp(-1)),
    rows.source[np.abs(score - 1) < 0.05].astype(float),
)

# %%
# The last line is what makes it the Bayes score: among rows with log-odds 1, the source is 1 as often as that
# says.
#
# Every target erases
# -------------------
# The linear part of :math:`R_\kappa` is :math:`L=I-\delta\delta^\top\Sigma^{-1}/D`. It maps :math:`\delta` to
# zero, so that both sources get the same mean, and they have the same covariance :math:`L\Sigma L^\top`
# anyway: two Gaussian laws with equal moments are one. ``mgpa.studies.gaussian.target_map`` is the map,
# ``separation_left`` what is left of :math:`D`, and ``information`` what that is worth. By hand: the matrix,
# and a quadratic reader of the corrected block that is fitted on half of the rows and judged on the other
# half.

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
    agree(
        "   score after, largest distance to the target",
        np.abs(model.evidence[k] + model.residual_score(after, k) - target).max(),
        0.0,
    )
    agree("   separation left", separation_left(model, m), 0.0)
    agree("   bits left given q", information(p, separation_left(model, m)), 0.0)
    agree("   reader's AUROC; 0.5 is guessing", read_again(after), 0.5, within=0.02)

# %%
# At a fixed context it is LEACE
# ------------------------------
# ``mgpa.baselines.leace.erasure``, given the covariance of :math:`Z` at this :math:`q` and its covariance
# with the source, has the same linear part. LEACE of *all* rows is another map: it does not treat :math:`q`
# apart, and moves it (by how much at the setting of figure 2: the last line of the list in
# :ref:`theory-proven`).

readout, direction = erasure(model.covariance[k], p * (1 - p) * delta[:, None])
agree(
    "largest difference of LEACE at this q to I - L",
    np.abs(direction @ readout.T - (np.eye(3) - L)).max(),
    0.0,
)

# %%
# Erasure rests on the direction; the metric only sets the price
# --------------------------------------------------------------
# The argument used :math:`L\delta=0` and the common covariance, and nothing else. With the true
# :math:`\delta` and a wrong metric, say the identity in place of :math:`\Sigma^{-1}`, the source is erased
# too, but rows move further.


def along(shift, C):
    """Return the full closed-form step in the first context, along a direction and in a metric of choice."""
    direction, readout = projection(C, shift[:, None])
    return AffineMap(
        center=model.mean[k], scale=np.ones(3), readout=readout, direction=direction, offset=np.zeros(1)
    )


moments = model.mean[k], model.covariance[k], model.metric
for name, C in (("Σ", Sigma), ("I", np.eye(3))):
    agree(f"separation left, true δ, C = {name}", separation_left(model, along(delta, C)), 0.0)
    print(f"   cost {expected_movement(along(delta, C), *moments):.4f}")

# %%
# With an estimated direction, erasure need not hold
# --------------------------------------------------
# Along :math:`\widehat\delta` at an angle :math:`\theta` to :math:`\delta`, measured in whitened coordinates,
# :math:`D\sin^2\theta` is left. Below, the direction is turned on purpose, and then estimated from few and
# from many pairs by ``mgpa.ClosedFormMGPA`` (contrasts scatter about :math:`\delta` with a standard deviation
# of 0.5).

whiten = np.linalg.inv(np.linalg.cholesky(Sigma))


def sine2(hat):
    """Return sin² of the whitened angle between an estimate and δ."""
    one, two = whiten @ hat, whiten @ delta
    return 1 - (one @ two) ** 2 / (one @ one) / (two @ two)


side = np.array([0.3, -0.8, 1.0])
turned = [delta + t * side for t in np.concatenate([[0], np.geomspace(0.02, 30, 60)])]
left = np.array([separation_left(model, along(hat, Sigma)) for hat in turned])
agree(
    "largest difference of what is left to D sin²θ",
    np.abs(left - [D * sine2(hat) for hat in turned]).max(),
    0.0,
    within=1e-8,
)

fitting = model.sample(5000, random_state=4)
numbers = np.array([3, 10, 30, 100, 300])
remaining = np.empty((len(numbers), 20))
for i, m_pairs in enumerate(numbers):
    for j in range(20):
        pairs = model.record_twice(m_pairs, random_state=100 + j)
        gate = MeasurementGate(rank=3, norm_quantile=0.0)
        fitted = ClosedFormMGPA.paper(gate, ridge=0.0, shrinkage=0.0, standardize=False).fit(
            fitting.H, source=fitting.source, pairs=pairs
        )
        hat = (fitted.gate_.basis_ @ fitted.direction_[0])[1:]
        block = np.eye(3) - (fitted.to_map().direction @ fitted.to_map().readout.T)[1:, 1:]
        shift = block @ delta
        remaining[i, j] = shift @ np.linalg.pinv(block @ Sigma @ block.T, rcond=1e-10, hermitian=True) @ shift
    agree(
        f"{m_pairs} pairs, the last of 20 fits: D left; D sin²θ of its δ̂",
        remaining[i, -1],
        D * sine2(hat),
        within=1e-8,
    )

# %%
# The fitted :math:`C` does not matter here either: what is left is decided by the line that is projected out.

with plots.style():
    figure, [one, two, three] = plt.subplots(1, 3, figsize=(plots.PAGE, 2.4), layout="constrained")
    shown = rows.Z[:300], target_map(model, model.mean_score[k], k).transform(rows.Z[:300])
    # Whitened, with the shift along the first axis: what happens across it can be seen.
    turn = np.linalg.qr(np.column_stack([whiten @ delta, np.eye(3)[:, 1:]]))[0]
    turn[:, 0] *= np.sign(turn[:, 0] @ whiten @ delta)
    for ax, Z, apart, title in (
        (one, shown[0], 0.0, "Before"),
        (two, shown[1], 0.15, r"After $R_{\kappa_*}$ (sources drawn side by side)"),
    ):
        for s in (0, 1):
            x, y, _ = ((Z - model.m[k])[rows.source[:300] == s] @ whiten.T @ turn).T
            marks = {"ms": 2.6, "mfc": "none", "mew": 0.6, "color": SOURCE_COLORS[s], "label": f"$U={s}$"}
            ax.plot(x + (2 * s - 1) * apart, y, "os"[s], **marks)
        ax.set(xlim=(-4, 4), ylim=(-4, 4), aspect="equal", xlabel="Along δ, whitened")
        ax.set_title(title, loc="left")
    one.set_ylabel("Across")
    one.legend(loc="lower left", handletextpad=0.1, borderpad=0)
    three.plot(numbers, np.median(remaining, axis=1), color=COLORS[1])
    for j in range(20):
        three.plot(numbers, remaining[:, j], "o", ms=2.2, mew=0, alpha=0.5, color=COLORS[1])
    three.axhline(D, color=COLORS[0], ls=":", lw=0.9)
    three.text(numbers[-1], D * 0.93, "before", ha="right", va="top")
    three.set(xscale="log", yscale="log", xlabel="Pairs", ylabel="Separation left", ylim=(1e-5, 5))
    three.set_title("With an estimated direction", loc="left")
    grid(three, "y")

# %%
# Left and middle: one context, before and after. All rows have moved to one level along :math:`\delta` and
# kept their place across it. Right: every dot is a fit, the line their median. More pairs leave less; no
# number of them leaves exactly nothing.

plt.show()
