r"""
.. _theory-gate:

The gate: what a correction may touch
=====================================

*Section 3, equations (1) and (2), appendix A.1.*

An embedding is split in two by an orthonormal basis :math:`B` of the directions along which two measurements
of the same thing differ:

.. math:: h = q + Bz,\qquad z = B^\top h,\qquad q = (I - BB^\top)h .

A correction is *admissible* if it rewrites :math:`z` and nothing else,

.. math:: R(h) = q(h) + B\,\psi(h). \tag{1}

Since :math:`q` can be read off every output, the source information left after any admissible correction has
two terms,

.. math:: \mathrm I(U; R(H)) = \mathrm I(U; Q) + \mathrm I(U; R(H)\mid Q), \tag{2}

and only the second is the correction's to change. The first is the *floor*.
"""

import matplotlib.pyplot as plt
import numpy as np
from gaussian import (
    completion_map,
    context_information,
    costs,
    gaussian_model,
    information,
    separation_left,
    target_map,
)
from scipy.stats import multivariate_normal, norm
from sklearn.linear_model import LogisticRegression

from mgpa import ClosedFormMGPA, IterativeMGPA, MeasurementGate
from mgpa.audit import plots
from mgpa.audit.plots import COLORS, SOURCE_COLORS
from mgpa.audit.plots.drawing import FAINT, INK, MUTED, PAGE, canvas, style


def agree(what, package, independent, within=1e-9):
    """Print both numbers; stop if they differ by more than rounding or, of draws, four standard errors."""
    if np.ndim(independent):
        within = 4 * np.std(independent) / np.sqrt(len(independent))
        independent = np.mean(independent)
    print(f"{what:<56} {round(package, 9) + 0.0:>10.6f}  {round(independent, 9) + 0.0:>10.6f}")
    assert abs(package - independent) <= within, (what, package, independent)


# %%
# The three choices
# -----------------
# Figure 2 of the paper, drawn from the exact model with the package's own maps: where to act (this page), on
# what inside the gate (:ref:`theory-closed-form`), and how far (:ref:`theory-targets`).

CONDITIONAL, ZERO, COMPLETION = COLORS[1], COLORS[2], COLORS[4]


def _arrow(ax, ends, color, width=0.8, **options):
    shape = {"arrowstyle": "-|>,head_length=.28,head_width=.14", "shrinkA": 0, "shrinkB": 0} | options
    ax.annotate("", ends[1], ends[0], arrowprops=shape | {"color": color, "lw": width}, zorder=2.5)


def _embedding_panel(ax, model):
    """Draw pairs, their contrasts, and the closed form moving a new input; Q upward, the gate lying flat."""

    def flat(*H):
        q, one, two = np.array(H, np.float64).T
        return np.column_stack([one + 0.5 * two, 1.7 * q + 0.55 * two])

    # Five trials, at places where they can be told apart, recorded twice.
    first = np.array([[-0.8, -2.9, 0], [-0.5, 0.6, 0], [0.05, -2.5, 0], [0.35, 0.8, 0], [0.85, -2.6, 0]])
    one, other = model.record_twice(len(first), random_state=12)
    contrasts = other - one
    rows = model.sample(20_000)
    fitted = ClosedFormMGPA.paper(MeasurementGate(rank=2), standardize=False)
    fitted.fit(rows.H, source=rows.source, pairs=(first, first + contrasts))

    floor = -2.05
    gate = flat(*((floor, x, y) for x, y in ((-2.6, -1.3), (3.0, -1.3), (3.0, 1.5), (-2.6, 1.5))))
    ax.fill(*gate.T, fc="#f4f4f4", ec=FAINT, lw=0.7, zorder=0)
    foot = np.array([floor, -1.2, 0])
    for k, contrast in enumerate(contrasts):
        ends = flat(first[k], first[k] + contrast)
        ax.plot(*ends.T, color=MUTED, ls=(0, (3, 2)), lw=0.8, zorder=1)
        for u, end in enumerate(ends):
            ax.plot(*end, "os"[u], mfc="white", mec=SOURCE_COLORS[u], ms=3.6, mew=0.9)
            if k == 0:
                _say(ax, f"$U={u}$", end, (0, -10), color=SOURCE_COLORS[u])
        _arrow(ax, flat(foot, foot + contrast), "#a6a6a6")
    mean = flat(foot, foot + contrasts.mean(0))
    _arrow(ax, mean, INK, 1.5)
    _say(ax, r"$\widehat{\delta}$", mean[1], (11, 0), va="center")
    _say(ax, "gate $BZ$", gate[0], (7, 3), ha="left", color=MUTED)

    h = np.array([1.0, 2.7, 0])
    here, there = flat(h, fitted.transform(h[None])[0])
    _arrow(ax, (here, there), CONDITIONAL, 1.3, shrinkA=3, shrinkB=3)
    ax.plot(*here, "o", color=INK, ms=4)
    ax.plot(*there, "o", color=CONDITIONAL, ms=4)
    _say(ax, "$h$", here, (0, 4))
    _say(ax, "$h'$", there, (0, 4), color=CONDITIONAL)
    axis = flat((floor, -3.3, -1.3), (1.2, -3.3, -1.3))
    _arrow(ax, axis, MUTED)
    _say(ax, "$Q$", axis[1], (0, 2), color=MUTED)
    ax.set(aspect="equal", xlim=(-4.3, 3.9), ylim=(-4.3, 2.5), anchor="N")
    ax.axis("off")


def _slice_panel(ax, Z, source):
    for u in (0, 1):
        ax.plot(*Z[source == u].T, "os"[u], mfc="white", mec=SOURCE_COLORS[u], ms=3.6, mew=0.9, zorder=3)
    ax.set(
        xlim=(-3.1, 3.4), ylim=(-2.4, 2.75), xticks=[-2, 0, 2], yticks=[-2, 0, 2], aspect="equal", anchor="N"
    )
    ax.set(xlabel=r"$z_1$, along the device direction $\delta$", ylabel="$z_2$")


def _block_panel(ax, model):
    """Draw rows of three groups before, moved along δ only, and replaced by one point."""
    Z, source, edges = _slice_rows()
    selective = target_map(model, model.mean_score[0]).transform(Z)
    whole = completion_map(model).transform(Z)
    bounds = (-2.1, *edges, 2.1)
    for name, low, high in zip("ABC", bounds[:-1], bounds[1:], strict=True):
        ax.axhspan(low + 0.04, high - 0.04, color="#f4f4f4", lw=0, zorder=0)
        ax.text(-3.0, (low + high) / 2, f"group {name}", color=MUTED, va="center", fontsize=6.5)
    for start, along, onto in zip(Z, selective, whole, strict=True):
        ax.plot(*np.array([start, onto]).T, color=COMPLETION, lw=0.7, ls=(0, (1, 1.5)), zorder=1)
        _arrow(ax, (start, along), CONDITIONAL, 0.7, shrinkA=2, shrinkB=1.5)
    ax.plot(*selective.T, "o", color=CONDITIONAL, ms=2.8, zorder=3)
    ax.plot(*whole[0], "*", color=COMPLETION, ms=10, mec="white", mew=0.6, zorder=4)
    _slice_panel(ax, Z, source)
    _say(ax, "selective", (0.6, 2.2), (0, 2), color=CONDITIONAL)
    _say(ax, "whole block", (3.4, 2.2), (0, 2), ha="right", color=COMPLETION)


def _target_panel(ax, model):
    """Draw the same slice with the levels of two targets, and the way of some rows to each."""
    cost = {name: float(values[0]) for name, values in costs(model).items()}
    Z, source, _ = _slice_rows()
    Z, source = Z[::2], source[::2]
    turn = np.linspace(0, 2 * np.pi, 100)
    for u, side in ((0, -0.5), (1, 0.5)):
        center = model.m[0] + side * model.delta
        circle = center + np.column_stack([np.cos(turn), np.sin(turn)]) @ np.linalg.cholesky(model.Sigma).T
        ax.fill(*circle.T, fc=SOURCE_COLORS[u], alpha=0.1, lw=0, zorder=0)
        _say(ax, f"$U={u}$", center + np.array([side, -1]), (0, -8), color=SOURCE_COLORS[u])
    target = float(model.mean_score[0])
    for level, color, side, align, words in (
        (0.0, ZERO, -1, "right", f"zero\ncost {cost['zero']:.2f}"),
        (target, CONDITIONAL, 1, "left", f"$\\mu(q)={target:.2f}$\ncost {cost['conditional']:.2f}"),
    ):
        moved, lift = target_map(model, level).transform(Z), np.array([0, 0.06 * side])
        ax.axvline(moved[0, 0], ymax=0.98, color=color, lw=1.1)
        _say(ax, words, (moved[0, 0], 2.65), (3 * side, 0), ha=align, va="top", color=color)
        for start, end in zip(Z + lift, moved + lift, strict=True):
            _arrow(ax, (start, end), color, 0.7, shrinkA=2)
    _slice_panel(ax, Z, source)


def _slice_rows():
    """Return fifteen rows, at even quantiles of the drawn context's law, and where the thirds of z₂ meet."""
    from scipy.stats import norm

    n = 15
    source = (np.arange(n) % 5 > 0).astype(np.int64)  # one in five is of source 0: p = .8
    first = np.zeros(n)
    for u in (0, 1):
        count = int((source == u).sum())
        order = np.random.default_rng(7).permutation(count)
        first[source == u] = (2 * u - 1) + norm.ppf((order + 0.5) / count)
    second = norm.ppf((np.arange(n) + 0.5) / n)
    third = float(norm.ppf(1 / 3))
    return np.column_stack([first, second]), source, (third, -third)


def _say(ax, words, at, offset, **options):
    options = {"ha": "center", "fontsize": 7} | options
    ax.annotate(words, at, offset, textcoords="offset points", **options)


def three_choices():
    """Draw figure 2, its points drawn from the model and moved by the package's maps; return the figure."""
    model = gaussian_model()
    with style():
        made, [a, b, c] = canvas(None, PAGE, 2.2, 3, 3, width_ratios=[1.15, 1, 1])
        _embedding_panel(a, model)
        _block_panel(b, model)
        _target_panel(c, model)
        for ax, letter, title in (
            (a, "a", "Where: the gate from pairs"),
            (b, "b", "What: along δ, or the whole block"),
            (c, "c", "How far: which target"),
        ):
            ax.set_title(rf"$\bf{{{letter}}}$  {title}", loc="left", pad=5)
    return made


figure = plt.figure(three_choices())  # drawn without pyplot; this hands it over

# %%
# Contrasts cancel what the two views share
# -----------------------------------------
# Below, every trial has content of its own in all twelve coordinates. The second view adds a response inside
# a plane, with a magnitude and direction that vary from trial to trial. The difference of the two views knows
# nothing of the content: replace the content and the contrasts stay as they were.

rng = np.random.default_rng(0)
d, n_pairs = 12, 300
plane = np.linalg.qr(rng.normal(size=(d, 2)))[0]
response = (np.array([2.0, 0.5]) + rng.normal(size=(n_pairs, 2)) * [0.5, 1.0]) @ plane.T
response += 0.03 * rng.normal(size=(n_pairs, d))
first, other_content = rng.normal(size=(n_pairs, d)), 5 * rng.normal(size=(n_pairs, d))
contrasts = (first + response) - first
print(
    "contrasts change with the content by",
    f"{np.abs((other_content + response) - other_content - contrasts).max():.0e}",
)

# %%
# The basis: leading right singular vectors of unit-length contrasts
# ------------------------------------------------------------------
# ``mgpa.gate.MeasurementGate`` scales every contrast to length one, so that recurring directions count and
# magnitudes do not, leaves out the shortest twentieth (their direction is mostly noise), and keeps as many
# directions as hold the share ``rank`` of the energy. The same by hand, with one singular value
# decomposition:

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
agree("BᵀB is the identity, up to", np.abs(B.T @ B - np.eye(rank)).max(), 0.0)
agree("share of the true plane inside the gate", np.sum((B.T @ plane) ** 2) / 2, 1.0, within=1e-3)

# %%
# The last line needs contrasts that point in diverse directions. Had all pairs shown the same response, the
# gate would be one line, and the rest of the plane would be treated as content. Contrasts that are all zero
# make a gate of rank zero, inside which there is nothing to edit: the map is the identity (the estimators
# say so in an error first, unless ``on_missing="warn"``).
#
# Equation (1): everything the package fits is admissible
# -------------------------------------------------------
# ``Gate.editable`` is :math:`z`, ``Gate.preserved`` is :math:`q`. Rows whose source goes with the content in
# :math:`q`, and both constructions: whole, in part, by a prefix, and one after the other.

u = rng.integers(2, size=4000)
X = rng.normal(size=(len(u), d)) + u[:, None] * (0.4 + plane @ [1.5, 0.5])
evidence = {"source": u, "pairs": (first, first + response)}
closed = ClosedFormMGPA(MeasurementGate(rank=2), standardize=False).fit(X, **evidence)
staged = IterativeMGPA(
    MeasurementGate(rank=2),
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
    "closed form, gate of rank zero": ClosedFormMGPA(MeasurementGate(rank=0)).fit(X, **evidence).transform(X),
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
# Two contexts :math:`q` occur equally often. In one of them, four in five rows come from source 1, in the
# other one in five. Over both, the sources are balanced, and still the context informs about the source:
# balanced counts do not make the floor vanish. ``gaussian.py`` has both terms exactly (the second
# by one integral, since the log likelihood ratio is sufficient). By hand: the first from the joint table of
# context and source, the sum by averaging :math:`\log_2 p(u\mid h)/p(u)` over simulated rows with the
# densities of scipy.

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
# After the full step of :ref:`theory-targets` the second term is zero. By hand: a quadratic reader, fitted
# on half of the corrected rows and scored on the others, gains the floor and no more.

after = np.empty_like(rows.Z)
for k in range(2):
    here = rows.context == k
    after[here] = target_map(model, model.mean_score[k], k).transform(rows.Z[here])
left = floor + information(model.p[0], separation_left(model, target_map(model, model.mean_score[0])))
seen = np.column_stack([model.q[rows.context], after, after**2, model.q[rows.context, None] * after])
train, test = slice(0, 100_000), slice(100_000, None)
reader = LogisticRegression(max_iter=1000).fit(seen[train], rows.source[train])
chance = reader.predict_proba(seen[test])
gain = np.log2(chance[np.arange(len(chance)), rows.source[test]] / 0.5)
agree("I(U; R(H)) after conditional erasure", left, gain)

# %%
# A gate that misses part of the measurement change raises the floor
# ------------------------------------------------------------------
# The floor does not say *why* :math:`Q` informs about the source. It may be content that goes with the
# source, or a measurement change that the gate has missed. Turn a one-dimensional gate away from the device
# direction :math:`\delta` by an angle: what it no longer covers, :math:`D\sin^2` of the angle, is preserved
# with everything else.

angle = np.linspace(0, np.pi / 2, 46)
missed = np.array([information(model.p[0], model.D * np.sin(a) ** 2) for a in angle])

# By hand, at 45 degrees: the coordinate across the gate, and its two normal densities.
across = rows.Z @ [np.sqrt(0.5), -np.sqrt(0.5)]
density = np.stack([norm(side * np.sqrt(0.5), 1).pdf(across) for side in (-1, 1)])
posterior = np.stack([1 - model.p[rows.context], model.p[rows.context]]) * density
gain = np.log2(posterior[rows.source, np.arange(len(across))] / posterior.sum(0) / 0.5)
agree("floor of a gate at 45° to δ", floor + information(model.p[0], model.D / 2), gain)

with plots.style():
    figure, [left_panel, right_panel] = plt.subplots(1, 2, figsize=(plots.PAGE, 2.4), layout="constrained")
    k = np.arange(1, d + 1)
    left_panel.plot(k, gate.cumulative_energy_, "o", color=COLORS[1], label="MeasurementGate")
    left_panel.plot(k, energy, "+", color="black", ms=7, mew=0.8, label="numpy.linalg.svd")
    left_panel.axhline(0.9, color=COLORS[0], ls=":", lw=0.9)
    left_panel.annotate("rank=0.9", (d, 0.9), (0, -3), textcoords="offset points", ha="right", va="top")
    left_panel.set(xlabel="Directions kept", ylabel="Share of directional energy", ylim=(0.75, 1.02))
    left_panel.legend(loc="lower right", bbox_to_anchor=(1, 0.1))
    left_panel.set_title("The gate is the span of the contrasts", loc="left")
    degrees = np.degrees(angle)
    right_panel.fill_between(degrees, 0, floor, color=COLORS[0], alpha=0.25, lw=0)
    right_panel.fill_between(degrees, floor, floor + missed, color=COLORS[2], alpha=0.35, lw=0)
    right_panel.fill_between(degrees, floor + missed, floor + inside, color=COLORS[1], alpha=0.2, lw=0)
    right_panel.text(45, floor / 2, "said by the context: stays", ha="center", va="center")
    right_panel.text(88, floor + 0.4 * inside, "missed by the gate: stays", ha="right", va="center")
    right_panel.text(2, floor + 0.75 * inside, "inside the gate: can go", ha="left", va="center")
    right_panel.set(
        xlabel="Angle of the gate to the device direction (°)", ylabel="Source information (bits)"
    )
    right_panel.set(xlim=(0, 90), ylim=(0, floor + inside))
    right_panel.set_title("The floor, and what the gate leaves to it", loc="left")

# %%
# On the left both computations of the energy fall on each other. On the right, everything below the blue
# region is :math:`\mathrm I(U;Q)` for that gate, and no admissible correction removes any of it.

plt.show()
