"""
More than two instruments
=========================

With three headsets the hardware can move embeddings in two independent directions, and a correction has to
close a triangle. ``pair_id`` is what makes it possible: it says which rows are views of one event, and
``source`` says by which headset. Nothing else changes.

Not every headset needs to have met every other. Here the gel cap was never worn together with the dry one;
both were worn with the wet one, on different occasions.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import mgpa
from mgpa.audit import plots

SOURCES = ("dry", "gel", "wet")

# %%
# The data
# --------
# Every headset has its own offset in the plane of the first two directions. Some events are recorded by dry
# and wet, some by gel and wet, most by one headset alone.

D = 20
rng = np.random.default_rng(0)
axes = np.linalg.qr(rng.normal(size=(D, D)))[0]
offsets = {"dry": (0.0, 0.0), "gel": (2.6, 0.4), "wet": (1.1, 2.3)}


def view(content, source):
    """Return what a headset makes of events."""
    return content + np.array(offsets[source]) @ axes[:2] + 0.15 * rng.normal(size=content.shape)


def events(n):
    """Return content, and a task that it tells."""
    y = rng.integers(2, size=n)
    return rng.normal(size=(n, D)) + 1.5 * y[:, None] * axes[4], y


def rows(n, sources, paired):
    """Return X, task, source and pair_id of n events, each seen by all of these headsets."""
    content, y = events(n)
    X = np.concatenate([view(content, s) for s in sources])
    ids = np.arange(n) + rng.integers(1, 10**6) * 10**4 if paired else np.full(n, -1)
    return X, np.tile(y, len(sources)), np.repeat(sources, n), np.tile(ids, len(sources))


parts = [rows(60, ["dry", "wet"], paired=True), rows(60, ["gel", "wet"], paired=True)]
parts += [rows(400, [s], paired=False) for s in SOURCES]
X, y, source, pair_id = (np.concatenate(part) for part in zip(*parts, strict=True))
X_head, y_head, source_head, _ = rows(400, list(SOURCES), paired=False)
X_eval, y_eval, source_eval, _ = rows(400, list(SOURCES), paired=False)

model = mgpa.ClosedFormMGPA(mgpa.MeasurementGate(rank=2)).fit(X, source=source, pair_id=pair_id)
m = model.to_map()
print(m)
print(
    "effects against",
    model.sources_[0],
    "for",
    model.sources_[1:].tolist(),
    "have shape",
    model.direction_.shape,
)

# %%
# The dry-gel side of the triangle was never measured. It is the difference of the two that were:

recovered = model.direction_ @ model.gate_.basis_.T * m.scale @ axes[:2].T
for name, effect in zip(model.sources_[1:], recovered, strict=True):
    print(f"dry to {name}: estimated {np.round(effect, 2)}, true {np.round(offsets[name], 2)}")

# %%
# What is seen
# ------------
# Rows of new events in the plane of the two device directions; then, for each headset against the other
# two, the AUROC of a fresh reader, and the existing task head.

task_head = LogisticRegression(max_iter=1000).fit(X_head, y_head)


def judge(correct):
    """Return each headset's AUROC against the rest, and the task's."""
    reader = LogisticRegression(max_iter=1000).fit(correct(X_head), source_head)
    scores = reader.decision_function(correct(X_eval))
    headsets = [roc_auc_score(source_eval == s, scores[:, i]) for i, s in enumerate(reader.classes_)]
    return [*headsets, roc_auc_score(y_eval, task_head.decision_function(correct(X_eval)))]


before, after = judge(np.asarray), judge(m.transform)
names = [*(f"{s} against the rest" for s in SOURCES), "task, existing head"]
for name, a, b in zip(names, before, after, strict=True):
    print(f"{name:<22}{a:.3f} before, {b:.3f} after")

with plots.style():
    figure, panels = plt.subplots(
        1, 3, figsize=(plots.PAGE, 2.5), width_ratios=[1, 1, 0.9], layout="constrained"
    )
    corrected = m.transform(X_eval)
    clouds = {"Before": X_eval @ axes[:2].T, "After": corrected @ axes[:2].T}
    plots.plot_clouds(
        clouds, source_eval, panels[:2], xlabel="Device direction 1", ylabel="Device direction 2"
    )
    for ax, cloud in zip(panels, clouds.values(), strict=False):
        corners = np.array([cloud[source_eval == s].mean(axis=0) for s in (*SOURCES, "dry")])
        ax.plot(*corners.T, color="#1a1a1a", lw=0.8, zorder=1)
        ax.set(xlim=(-3.5, 6), ylim=(-3.5, 5.5))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    changes = dict(zip(names, zip(before, after, strict=True), strict=True))
    plots.plot_changes(changes, panels[2], xlabel="AUROC", legend="lower left")

# %%
# The triangle has closed to a point: no headset's mean differs from another's. That the clouds have shrunk
# too is the price of a full step. In as many directions as there are independent device effects, a row
# keeps only what the rest of its embedding predicts.
#
# What goes wrong without a chain of pairs
# ----------------------------------------
# Leave the gel-wet pairs out, and nothing ties the gel cap to the others. Labels alone could not tell its
# hardware from the people who wore it, so the fit refuses:

unpaired = np.where(np.isin(pair_id, pair_id[(source == "gel") & (pair_id >= 0)]), -1, pair_id)
try:
    mgpa.ClosedFormMGPA().fit(X, source=source, pair_id=unpaired)
except ValueError as error:
    print(error)

# %%
# How far to trust this
# ---------------------
# A side of the triangle that was never measured carries the errors of both measured ones, and of every
# difference between the occasions. Long chains through many headsets are better than nothing; direct pairs
# are better.

plt.show()
