r"""
.. _theory-anchor:

Estimating the anchor
=====================

*Section 4, appendix A.6, equation (12).*

The conditional mean :math:`\mu(q)=\mathrm E[s\mid Q=q]` is the cheapest target, but it has to be estimated.
Fix the gate, the score and the metric, and let a fitting sample :math:`\mathcal C`, independent of the rows
to be corrected, produce an anchor :math:`\widehat a_{\mathcal C}(q)`. What estimation adds to the cost is its
mean squared error:

.. math::

   \mathrm E_{\mathcal C}\,\mathcal C_{\widehat a_{\mathcal C}}(q)-\mathcal C_\mu(q)
   =\frac{\mathrm E_{\mathcal C}\{\widehat a_{\mathcal C}(q)-\mu(q)\}^2}{d_\Omega(q)}. \tag{12}

So an estimated anchor beats a fixed reference :math:`a_0(q)` exactly when its mean squared error is below
:math:`\{a_0(q)-\mu(q)\}^2`.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge

from mgpa import AffineMap
from mgpa.anchor import ConditionalMean
from mgpa.audit import plots
from mgpa.audit.plots import COLORS, grid
from mgpa.closed_form import projection


def agree(what, package, independent, within=1e-9):
    """Print both numbers; stop if they differ by more than rounding or, of draws, four standard errors."""
    if np.ndim(independent):
        within = 4 * np.std(independent) / np.sqrt(len(independent))
        independent = np.mean(independent)
    print(f"{what:<56} {round(package, 9) + 0.0:>10.6f}  {round(independent, 9) + 0.0:>10.6f}")
    assert abs(package - independent) <= within, (what, package, independent)


# %%
# A model in which the ridge anchor can be right
# ----------------------------------------------
# Twenty preserved coordinates and two editable ones, as in :ref:`theory-gaussian` with :math:`\Sigma=I` and
# :math:`D=4`. The score is :math:`\ell=\delta^\top z`. Both :math:`m(q)` and :math:`p(q)` are affine in
# :math:`q`, so :math:`\mu(q)` is, too.

d_Q, delta = 20, np.array([2.0, 0.0])
D, w, B = float(delta @ delta), delta, np.eye(d_Q + 2)[:, d_Q:]
slope = 0.25 * np.random.default_rng(0).normal(size=(d_Q, 2))


def affine(q):
    """Return Pr(U = 1 | q)."""
    return 0.5 + 0.45 * q[:, 0]


def steep(q):
    """Return another: all but a step."""
    return 1 / (1 + np.exp(-12 * q[:, 0]))


def contexts(n, rng):
    """Draw preserved coordinates."""
    return np.column_stack([rng.uniform(-1, 1, n), rng.normal(size=(n, d_Q - 1))])


def rows_at(q, rng, p=affine):
    """Draw embeddings with these preserved coordinates."""
    u = rng.random(len(q)) < p(q)
    z = q @ slope + np.outer(u - 0.5, delta) + rng.normal(size=(len(q), 2))
    return np.column_stack([q, z])


def mu(q, p=affine):
    """Return the conditional mean of the score."""
    return q @ slope @ w + (p(q) - 0.5) * D


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
# The anchor
# ----------
# ``mgpa.anchor.ConditionalMean`` against scikit-learn's ridge regression of the score on :math:`q`.

rng = np.random.default_rng(1)
H = rows_at(contexts(100, rng), rng)
coefficients, intercept = (part[0] for part in ConditionalMean(H, B, ridge=10.0).fit(H @ B @ w[:, None]))
ridge = Ridge(alpha=10.0).fit(H[:, :d_Q], H @ B @ w)
print(f"{'':<56} {'package':>10}  {'by hand':>10}")
agree("intercept", intercept, ridge.intercept_)
agree("largest coefficient on q", coefficients[:d_Q].max(), ridge.coef_.max())
agree("   largest difference of a coefficient", np.abs(coefficients[:d_Q] - ridge.coef_).max(), 0.0)
agree("   coefficient on the gate", np.abs(coefficients @ B).max(), 0.0)

# %%
# Equation (12) at one context
# ----------------------------
# 400 anchors, each from 40 rows of its own, are applied to the same new rows with one :math:`q`. Left, what
# their maps move more than the map with the exact anchor. Right, their squared errors over
# :math:`d_\Omega=D`.

fits = []
for _ in range(400):
    H = rows_at(contexts(40, rng), rng)
    weight, bias = ConditionalMean(H, B, ridge=10.0).fit(H @ B @ w[:, None])
    fits.append((weight[0], float(bias[0])))
exact = np.concatenate([slope @ w, np.zeros(2)])
exact[0] += 0.45 * D
for name, q in (
    ("typical", contexts(1, rng)),
    ("extreme", np.concatenate([[[0.95]], 2 * np.ones((1, d_Q - 1))], axis=1)),
):
    new = rows_at(np.repeat(q, 4000, axis=0), rng)
    least = movement(anchor_map(exact, 0.0), new).mean()
    excess = np.array([movement(anchor_map(*fit), new).mean() - least for fit in fits])
    error = np.array([(q[0] @ weight[:d_Q] + bias - mu(q)[0]) ** 2 for weight, bias in fits])
    # The rows are the same left and right; their finite number leaves a cross term.
    allowance = 4 * 2 * np.std(new @ B @ w) * np.sqrt(error.mean() / 4000) / D
    agree(f"excess cost of an estimated anchor, {name} q", excess.mean(), error.mean() / D, within=allowance)
    for distance, verdict in ((0.7, "less"), (1.4, "more")):
        reference = anchor_map(exact, distance * np.sqrt(error.mean()))
        fixed = movement(reference, new).mean() - least
        print(f"   a fixed reference off by {distance} root mean squared errors costs {fixed:.4f}: {verdict}")
        assert (fixed < excess.mean()) == (verdict == "less")

# %%
# Few rows
# --------
# The same, averaged over contexts, against the number of fitting rows and the ridge penalty (10 is the
# package's and the paper's). As fixed references serve the overall mean of the score and zero, the other two
# targets of ``mgpa.IterativeMGPA``; here they coincide up to chance. Without a penalty and with about as many
# rows as preserved coordinates, the estimate is worse than no anchor at all.

test = rows_at(contexts(4000, rng), rng)
at = mu(test[:, :d_Q])
reference = float(np.mean(at**2) / D)
sizes = np.array([10, 15, 20, 22, 25, 30, 40, 60, 100, 200, 500, 2000])
penalties = (0.0, 1.0, 10.0, 100.0)
found = {penalty: np.empty((len(sizes), 30)) for penalty in penalties}
on_fitting_rows, on_new_rows, misfit = (np.empty((len(sizes), 30)) for _ in range(3))
bent = rows_at(contexts(4000, rng), rng, steep)
for i, n in enumerate(sizes):
    for j in range(30):
        q = contexts(n, rng)
        H = rows_at(q, rng)
        for penalty in penalties:
            weight, bias = ConditionalMean(H, B, penalty).fit(H @ B @ w[:, None])
            found[penalty][i, j] = np.mean((test @ weight[0] + bias[0] - at) ** 2) / D
            if penalty == 10.0:
                on_fitting_rows[i, j] = movement(anchor_map(weight[0], bias[0]), H).mean()
                on_new_rows[i, j] = movement(anchor_map(weight[0], bias[0]), test).mean()
        H = rows_at(q, rng, steep)
        weight, bias = ConditionalMean(H, B, 10.0).fit(H @ B @ w[:, None])
        misfit[i, j] = np.mean((bent @ weight[0] + bias[0] - mu(bent[:, :d_Q], steep)) ** 2) / D
for penalty in penalties:
    worse = np.flatnonzero(np.mean(found[penalty], axis=1) >= reference)
    enough = sizes[worse[-1] + 1] if len(worse) else sizes[0]
    print(f"ridge {penalty:>5g}: cheaper than aiming at zero from {enough} rows on (of the sizes tried)")

# %%
# Two things not to mistake
# -------------------------
# First, movement in the sample. Equation (12) is about rows that the anchor was not fitted on. On the fitting
# rows an anchor follows the noise, and the correction looks cheaper than it is.
#
# Second, misfit. A ridge anchor is affine. Where the conditional mean is not, more rows do not help: what
# stays is the distance to the best affine function of :math:`q`. By hand, that of a regression of :math:`\mu`
# itself on very many contexts; 2000 rows come close to it.

q = contexts(200_000, rng)
design = np.column_stack([np.ones(len(q)), q])
best = np.linalg.lstsq(design, mu(q, steep))[0]
floor = np.mean((design @ best - mu(q, steep)) ** 2) / D
agree("excess that stays, 2000 rows", np.mean(misfit[-1]), floor, within=0.02)
least = movement(anchor_map(exact, 0.0), test).mean()
agree(
    "movement of new rows, exact anchor; 1 + E[D p (1 - p)]",
    1 + np.mean(D * affine(test) * (1 - affine(test))),
    movement(anchor_map(exact, 0.0), test),
)

with plots.style():
    figure, [one, two, three] = plt.subplots(1, 3, figsize=(plots.PAGE, 2.5), layout="constrained")
    for penalty, color in zip(penalties, (COLORS[2], COLORS[4], COLORS[1], COLORS[3]), strict=True):
        one.loglog(
            sizes,
            np.mean(found[penalty], axis=1),
            color=color,
            marker="o",
            ms=2.5,
            label=f"ridge {penalty:g}",
        )
    one.axhline(reference, color=COLORS[0], ls=":", lw=0.9)
    one.text(sizes[-1], reference * 1.1, "aiming at zero", ha="right")
    one.set(xlabel="Rows the anchor is fitted on", ylabel="Excess cost", ylim=(0.01, 100))
    one.legend(loc="lower left", borderpad=0, labelspacing=0.2)
    one.set_title("Equation (12), with few rows", loc="left")
    two.semilogx(sizes, np.mean(on_new_rows, axis=1), color=COLORS[1], marker="o", ms=2.5)
    two.semilogx(sizes, np.mean(on_fitting_rows, axis=1), color=COLORS[2], marker="o", ms=2.5)
    two.axhline(least, color=COLORS[0], ls=":", lw=0.9)
    two.text(70, 2.5, "new rows", color=COLORS[1])
    two.text(90, 1.0, "fitting rows", color=COLORS[2])
    two.text(sizes[0], least * 1.02, "exact anchor", va="bottom")
    two.set(xlabel="Rows the anchor is fitted on", ylabel="Squared movement", ylim=(0, 3.5))
    two.set_title("In and out of sample", loc="left")
    three.loglog(sizes, np.mean(misfit, axis=1), color=COLORS[2], marker="o", ms=2.5)
    three.loglog(sizes, np.mean(found[10.0], axis=1), color=COLORS[1], marker="o", ms=2.5)
    three.axhline(floor, color=COLORS[0], ls=":", lw=0.9)
    three.text(sizes[0], floor * 0.93, "best affine anchor", va="top")
    three.text(sizes[-1], 0.25, "step-like", ha="right", color=COLORS[2])
    three.text(450, 0.04, "affine", ha="right", color=COLORS[1])
    three.set(xlabel="Rows the anchor is fitted on", ylabel="Excess cost")
    three.set_title("Conditional mean not affine", loc="left")
    for ax in (one, two, three):
        grid(ax, "y")

# %%
# Lines are means of 30 fits. Left: with fewer rows than preserved coordinates the penalty is what keeps the
# anchor reasonable, and too large a penalty gives up what the context says. The crossing with the dotted line
# is the condition below (12).

plt.show()
