r"""
.. _theory-spread:

More than a shift: read the source, then use it
===============================================

*Not in the paper: what* ``mgpa.MGPA`` *adds.*

A gain, a rotation or another reference changes how embeddings *vary*. One affine map for all rows moves both
devices' covariances alike and cannot make them equal without collapsing directions. But where the source can
be read from a row, a map can act on what it reads. After the correction :math:`c` of position
(:ref:`theory-closed-form`),

.. math::

   h' = c(h) + \sum_s p_s(h)\, D_s(c(h)).

:math:`D_s` is the ridge regression, over pairs, from a corrected view of source :math:`s` to the mean of all
views of the same event, less the view itself. It acts in the span of the contrasts. :math:`p_s(h)` is the
posterior of the source given the uncorrected row. If both are right, :math:`h'` is the posterior mean of what
all devices together would have shown.

**Evidence.** With two views :math:`A`, :math:`B` of the same events,

.. math::

   \operatorname{Var} B-\operatorname{Var} A = 2\operatorname{Cov}\bigl(B-A,\tfrac{A+B}2\bigr)

(Pitman and Morgan); a rotation shows in the antisymmetric part of the same covariance.
``mgpa.reading.spread.shared_slope`` multiplies the covariances of contrast and midpoint of different
people and compares the sum with its values under exchanged views. Acting also needs held-out pairs that
come closer, and rows that differ as the pairs do.

**Why the association cannot enter.** Means of the sources come from pairs, in which both devices saw the same
events, and so do the regressions. Rows only add to the covariances, about the mean of their own source.
How often a class was recorded with a device appears nowhere.

**Why it fades.** With an even :math:`p`, rows move by the mean of the :math:`D_s`, which point in opposite
directions and nearly cancel.
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from gaussian import agree
from scipy.stats import multivariate_normal

import mgpa
from mgpa.audit.plots import COLORS, SOURCE_COLORS

# %%
# A gain of 2 along one of six features
# -------------------------------------
# No shift at all. In the rows, nine of ten of a class come from one device.

rng = np.random.default_rng(0)
gain = np.array([2.0, 1, 1, 1, 1, 1])


def content(n):
    """Return contents and their class."""
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 6)) + 2 * np.outer(y - 0.5, np.eye(6)[1]), y


def see(rows, device):
    """Return what a device makes of contents."""
    return rows * gain**device + 0.1 * rng.normal(size=rows.shape)


events, y = content(600)
device = (rng.random(600) < np.where(y == 1, 0.9, 0.1)).astype(int)
X = np.where(device[:, None] == 1, see(events, 1), see(events, 0))
both = content(120)[0]
A, B = see(both, 0), see(both, 1)
model = mgpa.MGPA().fit(X, source=device, pairs=(A, B))
m = model.to_map()
print(m.summary())

# %%
# The identity behind the evidence, and the map by hand
# -----------------------------------------------------
difference = np.cov(B.T) - np.cov(A.T)
slope = np.cov((B - A).T, (A + B).T / 2)[:6, 6:]
print(f"\n{'':56} {'package':>10}  {'by hand':>10}")
agree("Var B - Var A and twice the covariance, first feature", difference[0, 0], 2 * slope[0, 0])
h = (X - m.center) / m.scale
scores = (h @ m.square.T) ** 2 @ m.square_weight + h @ m.linear.T + m.bias
p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
edits = np.einsum("nd,sdr->nsr", h, m.edit) + m.edit_offset
by_hand = X + m.scale * (np.einsum("ns,nsr->nr", p, edits) @ m.direction)
agree("posterior of the first row", m.posterior(X)[0, 1], p[0, 1])
agree("its first feature, corrected", m.transform(X)[0, 0], by_hand[0, 0])
truth = [multivariate_normal(np.zeros(6), np.cov(see(content(20000)[0], k).T)) for k in (0, 1)]
new = content(2000)[0]
views = see(new, 0), see(new, 1)
known = [1 / (1 + np.exp(truth[0].logpdf(v) - truth[1].logpdf(v))) for v in views]
read = [m.posterior(v)[:, 1] for v in views]
agree("how often device 1 is read, against known densities", np.mean(read), np.mean(known), within=0.03)

# %%
# It fades where the source cannot be read
# ----------------------------------------
# Large values along the first feature are the second device's, and are brought back. Small ones could be
# either's, and stay.

corrected = [m.transform(v) for v in views]
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
for k in (0, 1):
    left.plot(views[k][:, 0], corrected[k][:, 0], ".", ms=2, color=SOURCE_COLORS[k], label=f"device {k}")
left.axline((0, 0), slope=1, color="0.7", lw=1)
left.set(xlabel="first feature", ylabel="corrected")
left.legend(markerscale=5)
order = np.linspace(0, 1, 11)
for name, pair, color in (("before", views, "0.6"), ("after", corrected, COLORS[0])):
    size = np.abs(views[1][:, 0])
    apart = np.abs(pair[1][:, 0] - pair[0][:, 0])
    edges = np.quantile(size, order)
    at = [apart[(size >= a) & (size <= b)].mean() for a, b in pairwise(edges)]
    right.plot((edges[:-1] + edges[1:]) / 2, at, color=color, label=name)
right.set(xlabel="size of the second device's value", ylabel="distance between the two views")
right.legend()

# %%
# The association does not enter
# ------------------------------
# Rows in which device and class are unrelated, and rows in which they nearly coincide: the task's feature is
# left alone by both.

moved = {}
for association in (0.5, 0.99):
    u = (rng.random(600) < np.where(y == 1, association, 1 - association)).astype(int)
    rows = np.where(u[:, None] == 1, see(events, 1), see(events, 0))
    fitted = mgpa.MGPA().fit(rows, source=u, pairs=(A, B))
    moved[association] = np.abs(fitted.transform(new)[:, 1] - new[:, 1]).mean()
    print(f"association {association:.2f}: the task's feature moves by {moved[association]:.3f} on average")
assert max(moved.values()) < 0.05

# %%
# What is not promised
# --------------------
# The map is not affine, and the paper's theorem on least movement does not cover it. Nothing is proven about
# how little of the source is left: a device that adds noise, or saturates, stays readable. With few pairs
# nothing beyond the shift is shown, and nothing is done.
