r"""
.. _theory-gate:

The gate: the part that a correction may change
===============================================

*Section 3, equations (1) and (2), appendix A.1.*

Let :math:`B` be an orthonormal basis of the directions along which two measurements of the same event differ.
It splits an embedding into two parts:

.. math:: h = q + Bz,\qquad z = B^\top h,\qquad q = (I - BB^\top)h .

A correction is *admissible* if it changes only :math:`z`,

.. math:: R(h) = q(h) + B\,\psi(h). \tag{1}

Since :math:`q` can be computed from every output, the source information left after any admissible correction
has two terms,

.. math:: \mathrm I(U; R(H)) = \mathrm I(U; Q) + \mathrm I(U; R(H)\mid Q), \tag{2}

and a correction can change only the second. The first term is the *floor*.

The script imports :download:`gaussian.py </theory/gaussian.py>`: download it into the same folder.
"""

import matplotlib.pyplot as plt
import numpy as np
from gaussian import agree, context_information, gaussian_model, information, separation_left, target_map
from scipy.stats import multivariate_normal, norm

from mgpa import ClosedFormMGPA, IterativeMGPA, MeasurementGate
from mgpa.audit import plots
from mgpa.audit.plots import COLORS

# %%
# Contrasts cancel the content that both views share
# --------------------------------------------------
# The second view of every trial adds a response inside a plane. With different content, the contrasts are the
# same.

rng = np.random.default_rng(0)
d, n_pairs = 12, 300
plane = np.linalg.qr(rng.normal(size=(d, 2)))[0]
response = (np.array([2.0, 0.5]) + rng.normal(size=(n_pairs, 2)) * [0.5, 1.0]) @ plane.T
response += 0.03 * rng.normal(size=(n_pairs, d))
first, other_content = rng.normal(size=(n_pairs, d)), 5 * rng.normal(size=(n_pairs, d))
contrasts = (first + response) - first
assert np.allclose((other_content + response) - other_content, contrasts)

# %%
# The basis: leading right singular vectors of unit-length contrasts
# ------------------------------------------------------------------
# ``mgpa.gate.MeasurementGate`` scales contrasts to length one (so that frequent directions have a large
# weight, but long contrasts do not). It omits the shortest 5 % of the contrasts (mostly noise) and keeps the
# directions with a share ``rank`` of the energy. By hand:

gate = MeasurementGate(rank=0.9).fit(contrasts)
length = np.linalg.norm(contrasts, axis=1)
unit = (contrasts / length[:, None])[length >= np.quantile(length, 0.05)]
sigma, Vt = np.linalg.svd(unit, full_matrices=False)[1:]
energy = np.cumsum(sigma**2) / np.sum(sigma**2)
rank = int(np.searchsorted(energy, 0.9) + 1)
B, P = gate.basis_, gate.basis_ @ gate.basis_.T

print(f"{'':<52} {'package':>10}  {'by hand':>10}")
agree("rank", gate.rank_, rank)
agree("energy inside the first two directions", gate.cumulative_energy_[1], energy[1])
agree("largest entry of the difference of the projections", np.abs(P - Vt[:rank].T @ Vt[:rank]).max(), 0.0)
agree("share of the true plane inside the gate", np.sum((B.T @ plane) ** 2) / 2, 1.0, within=1e-3)

# %%
# If all pairs had the same response, the gate would be a line. If all contrasts are zero, the gate has rank
# zero, and the map is the identity.
#
# Equation (1): both methods are admissible
# -----------------------------------------
# ``Gate.editable`` is :math:`z`, ``Gate.preserved`` is :math:`q`. Both methods are tested complete, at a
# smaller strength, cut after some stages, and one after the other.

u = rng.integers(2, size=4000)
X = rng.normal(size=(len(u), d)) + u[:, None] * (0.4 + plane @ [1.5, 0.5])
evidence = {"source": u, "pairs": (first, first + response)}
closed = ClosedFormMGPA(gate=2, standardize=False).fit(X, **evidence)
staged = IterativeMGPA(
    2,
    n_stages=4,
    critics=("linear",),
    radius=0.1,
    do_no_harm=False,
    standardize=False,
    random_state=0,
).fit(X, **evidence)
outputs = {
    "closed form": closed.transform(X),
    "closed form, strength 0.4": closed.transform(X, strength=0.4),
    "iterative, 4 stages": staged.transform(X),
    "iterative, 2 stages and a half": staged.to_map().prefix(3, 0.5).transform(X),
    "iterative after closed form": staged.transform(closed.transform(X)),
    "closed form, gate of rank zero": ClosedFormMGPA(gate=0).fit(X, **evidence).transform(X),
}
print(f"{'largest change of a coordinate':<34} {'of z':>8}  {'of q':>8}")
for name, after in outputs.items():
    in_z = np.abs(closed.gate_.editable(after - X)).max()
    in_q = np.abs(closed.gate_.preserved(after - X)).max()
    print(f"{name:<34} {in_z:>8.3f}  {in_q:>8.0e}")
    assert in_q < 1e-12
    assert (in_z == 0) == ("zero" in name)

# %%
# Equation (2): the floor
# -----------------------
# There are two contexts :math:`q` with equal frequency. In one, four of five rows come from source 1; in the
# other, one of five. ``gaussian.py`` computes both terms exactly. By hand, the first term follows from the
# joint table, and the sum is the average of :math:`\log_2 p(u\mid h)/p(u)` over simulated rows.

model = gaussian_model()
joint = np.stack([model.weight * (1 - model.p), model.weight * model.p])  # (source, context)
table = np.sum(joint * np.log2(joint / (joint.sum(1, keepdims=True) * joint.sum(0))))
floor = context_information(model)
inside = information(model.p[0], model.D)  # the same in both contexts, by symmetry

rows = model.sample(200_000, random_state=1)
density = np.stack(
    [multivariate_normal(model.m[0] + side * model.delta / 2, model.Sigma).pdf(rows.Z) for side in (-1, 1)]
)
posterior = np.stack([1 - model.p[rows.context], model.p[rows.context]]) * density
posterior /= posterior.sum(0)
gain = np.log2(posterior[rows.source, np.arange(len(rows.source))] / 0.5)

print(f"{'in bits':<52} {'package':>10}  {'by hand':>10}")
agree("I(U; Q), the floor", floor, table)
agree("I(U; Q) + I(U; Z | Q) = I(U; H)", floor + inside, gain)

# %%
# After the full step of :ref:`theory-targets`, the second term is zero, and only the floor remains:

left = information(model.p[0], separation_left(model, target_map(model, model.mean_score[0])))
agree("I(U; R(H)) after conditional erasure", floor + left, table)

# %%
# An incomplete gate raises the floor
# -----------------------------------
# Rotate a one-dimensional gate away from the device direction :math:`\delta`. The part that it no longer
# covers, :math:`D\sin^2` of the angle, is preserved.

angle = np.linspace(0, np.pi / 2, 46)
missed = np.array([information(model.p[0], model.D * np.sin(a) ** 2) for a in angle])

# By hand, at 45 degrees: the coordinate across the gate, and its two normal densities.
across = rows.Z @ [np.sqrt(0.5), -np.sqrt(0.5)]
density = np.stack([norm(side * np.sqrt(0.5), 1).pdf(across) for side in (-1, 1)])
posterior = np.stack([1 - model.p[rows.context], model.p[rows.context]]) * density
gain = np.log2(posterior[rows.source, np.arange(len(across))] / posterior.sum(0) / 0.5)
agree("floor of a gate at 45° to δ", floor + information(model.p[0], model.D / 2), gain)

with plots.style():
    figure, ax = plt.subplots(figsize=(plots.PAGE / 2, 2.4), layout="constrained")
    degrees = np.degrees(angle)
    ax.fill_between(degrees, 0, floor, color=COLORS[0], alpha=0.25, lw=0)
    ax.fill_between(degrees, floor, floor + missed, color=COLORS[2], alpha=0.35, lw=0)
    ax.fill_between(degrees, floor + missed, floor + inside, color=COLORS[1], alpha=0.2, lw=0)
    ax.text(45, floor / 2, "said by the context: stays", ha="center", va="center")
    ax.text(88, floor + 0.4 * inside, "missed by the gate: stays", ha="right", va="center")
    ax.text(2, floor + 0.75 * inside, "inside the gate: can go", ha="left", va="center")
    ax.set(xlabel="Angle of the gate to the device direction (°)", ylabel="Source information (bits)")
    ax.set(xlim=(0, 90), ylim=(0, floor + inside))

plt.show()
