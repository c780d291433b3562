r"""
.. _theory-closed-form:

The closed form: one step along the measured direction
======================================================

*Section 4.1, equation (3), appendix A.5.*

Inside the gate, the closed form moves every row along one direction :math:`\widehat\delta`, the mean
projected contrast, toward what is expected given the preserved coordinates:

.. math::

   z' = z - \alpha\,\widehat\delta\,
   \frac{\widehat\delta^\top C^{-1}[z-\widehat m_Z(q)]}{\widehat\delta^\top C^{-1}\widehat\delta},
   \qquad q' = q. \tag{3}

:math:`\widehat m_Z(q)` is the ridge regression of :math:`z` on :math:`q`, and :math:`C` the regularised
covariance of what is left of :math:`z` once :math:`q` *and the source* are accounted for. The estimator is
``mgpa.ClosedFormMGPA``; its parts are ``mgpa.closed_form.anchor_and_covariance``, ``mgpa.anchor.shrink`` and
``mgpa.closed_form.projection``.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression, Ridge

from mgpa import ClosedFormMGPA, MeasurementGate
from mgpa.audit import plots
from mgpa.audit.plots import COLORS, SOURCE_COLORS, grid


def agree(what, package, independent, within=1e-9):
    """Print both numbers, and stop if they differ by more than rounding."""
    print(f"{what:<52} {round(package, 9) + 0.0:>10.6f}  {independent:>10.6f}")
    assert abs(package - independent) <= within, (what, package, independent)


# %%
# Rows in which the source goes with the content
# ----------------------------------------------
# Seven features: five are context, two form the gate. The first context coordinate says something about the
# source, and all of them say something about :math:`z`.

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
model = ClosedFormMGPA.paper(MeasurementGate(rank=2)).fit(X, source=source, pairs=(first, second))

# %%
# Equation (3) by hand
# --------------------
# Standardise; take the gate from the last page; ridge regression by scikit-learn; the joint regression on
# :math:`q` and the source as least squares, with a penalty on :math:`q` only; then the formula as it is
# written above.

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


fresh, fresh_source = draw(2000, seed=4)
print(f"{'':<52} {'package':>10}  {'by hand':>10}")
agree("first entry of δ̂", model.direction_[0, 0], hat[0])
agree("second entry of δ̂", model.direction_[0, 1], hat[1])
agree("determinant of C", np.linalg.det(model.covariance_), np.linalg.det(C))
for alpha in (0.5, 1.0, 1.3):
    after, expected = model.transform(fresh, strength=alpha), equation_3(fresh, alpha)
    agree(
        f"mean squared movement of new rows, α = {alpha}",
        np.mean((after - fresh) ** 2),
        np.mean((expected - fresh) ** 2),
    )
    agree("   largest difference of the two outputs", np.abs(after - expected).max(), 0.0)

# %%
# The order of the two views does not matter
# ------------------------------------------
# :math:`\widehat\delta` enters twice, so that its sign cancels.

swapped = ClosedFormMGPA.paper(MeasurementGate(rank=2)).fit(X, source=source, pairs=(second, first))
agree("first entry of δ̂, views swapped", swapped.direction_[0, 0], -hat[0])
agree("   largest change of the output", np.abs(swapped.transform(fresh) - model.transform(fresh)).max(), 0.0)

# %%
# At full strength it is the score-level projection of Proposition 1
# ------------------------------------------------------------------
# With the score :math:`w^\top z`, :math:`w=C^{-1}\widehat\delta`, every output lies at the score level
# :math:`w^\top\widehat m_Z(q)`. The map is affine, so no critic is needed to apply it.

w = np.linalg.solve(C, hat)
output = (model.transform(fresh) - center) / scale
level = mean.predict(output - output @ B @ B.T) @ w
agree("mean score of the outputs", np.mean(output @ B @ w), level.mean())
agree("   largest distance of a score to its level", np.abs(output @ B @ w - level).max(), 0.0)

# %%
# A partial step hides nothing from someone who fits a new reader
# ---------------------------------------------------------------
# On the editable block a step of strength :math:`\alpha` has the linear part
#
# .. math::
#
#    M_\alpha = I - \alpha\,\frac{\widehat\delta\widehat\delta^\top C^{-1}}
#    {\widehat\delta^\top C^{-1}\widehat\delta}, \qquad \det M_\alpha = 1-\alpha .
#
# For :math:`\alpha\ne1` it can be undone given :math:`q`. Below, the block is read off the stored map
# (``mgpa.AffineMap``), and the rows are recovered from their corrected versions.

stored = model.to_map()
for alpha in (0.3, 0.9, 1.0, 1.2):
    linear = np.eye(7) - alpha * (stored.direction / scale[:, None]) @ (stored.readout * scale[:, None]).T
    agree(f"determinant of the block, α = {alpha}", np.linalg.det(B.T @ linear @ B), 1 - alpha)
partial = (model.transform(fresh, strength=0.9) - center) / scale
linear = np.eye(7) - 0.9 * (stored.direction / scale[:, None]) @ (stored.readout * scale[:, None]).T
origin = (model.transform(center[None], strength=0.9)[0] - center) / scale
recovered = np.linalg.solve(linear, (partial - origin).T).T * scale + center
agree("largest error of rows recovered from α = 0.9", np.abs(recovered - fresh).max(), 0.0)

# %%
# So the covariance-adjusted separation of the sources given :math:`q`, which a *refitted* reader can use,
# stays what it was until the very end. A *fixed* reader, fitted before the correction, does respond: the gap
# it sees shrinks as :math:`1-\alpha`.

basis_of_q = np.linalg.qr(np.column_stack([B, rng.normal(size=(7, 5))]))[0][:, 2:]


def separation(rows):
    """Return the source's effect on z given q, and its squared length in the residual covariance."""
    h = (rows - center) / scale
    z, q = h @ B, h @ basis_of_q
    fitted = LinearRegression().fit(np.column_stack([q, fresh_source]), z)
    left, effect = z - fitted.predict(np.column_stack([q, fresh_source])), fitted.coef_[:, -1]
    return effect, effect @ np.linalg.pinv(left.T @ left / len(z), rcond=1e-10, hermitian=True) @ effect


before, D = separation(fresh)
strengths = np.concatenate([np.linspace(0, 0.95, 20), [1.0], np.linspace(1.05, 1.5, 10)])
effects, refitted = zip(*(separation(model.transform(fresh, strength=a)) for a in strengths), strict=True)
gap = np.array([effect @ w / (before @ w) for effect in effects])
for alpha in (0.5, 0.95, 1.2):
    i = int(np.argmin(np.abs(strengths - alpha)))
    agree(f"separation for a refitted reader, α = {alpha}", refitted[i], D)
    agree(f"   gap for a fixed reader, share of before, α = {alpha}", gap[i], 1 - alpha, within=1e-3)
full = refitted[20]
print(f"separation for a refitted reader, α = 1: {full:.4f} (of {D:.2f})")
assert full < 0.02 * D

# %%
# At :math:`\alpha=1` a little is left, because :math:`\widehat\delta`, :math:`C` and :math:`\widehat m_Z` are
# estimates; that the full step erases the source exactly is a statement about the true ones
# (:ref:`theory-gaussian`).

with plots.style():
    figure, [one, two, three] = plt.subplots(
        1, 3, figsize=(plots.PAGE, 2.4), layout="constrained", width_ratios=[1, 1, 1.15]
    )
    expected = mean.predict((fresh - center) / scale @ (np.eye(7) - B @ B.T))
    start = (fresh - center) / scale @ B - expected
    for ax, alpha in ((one, 0.5), (two, 1.0)):
        end = (model.transform(fresh, strength=alpha) - center) / scale @ B - expected
        for k in range(40):
            ax.plot(*np.stack([start[k], end[k]]).T, color="#cccccc", lw=0.6, zorder=1)
        for s in (0, 1):
            mine = np.flatnonzero(fresh_source == s)[:120]
            ax.plot(*end[mine].T, "o", ms=2.6, mew=0, alpha=0.7, color=SOURCE_COLORS[s], label=f"$U={s}$")
        arrow = {"arrowstyle": "-|>", "color": "black", "lw": 1.3, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", hat, (0, 0), arrowprops=arrow)
        ax.set(xlabel="First coordinate of $z'-m_Z(q)$", aspect="equal", xlim=(-3.2, 3.2), ylim=(-3.2, 3.2))
        ax.set_title(f"After a step of α = {alpha:g}", loc="left")
    one.set_ylabel("Second coordinate")
    one.legend(loc="lower left", handletextpad=0.1, borderpad=0)
    three.plot(strengths, np.abs(gap), color=COLORS[2])
    three.plot(strengths, np.array(refitted) / D, "o", ms=3, color=COLORS[1])
    three.text(0.3, 0.9, "refitted reader: separation $D$", color=COLORS[1])
    three.text(0.04, 0.12, "fixed reader:\nsize of the gap", color=COLORS[2])
    three.set(xlabel="Strength α", ylabel="Share of the value before", xlim=(0, 1.5), ylim=(-0.03, 1.1))
    three.set_title("What readers see", loc="left")
    grid(three, "y")

# %%
# Left and middle: the gate, seen from what each row is expected to be given :math:`q`, with
# :math:`\widehat\delta` as an arrow and the way of some rows in grey. Everything moves parallel to the arrow;
# at full strength all rows have arrived at the level of their anchor. Right: why strength is not a dial for
# information. Short of 1 it sets what an existing head sees, no more.

plt.show()
