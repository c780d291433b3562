"""
Quickstart: fit, plot, store, apply
===================================

Two headsets, "dry" and "wet", record people during a task, and each embedding reveals its headset. Some
events were recorded by both headsets at the same time. These pairs show the effect of the hardware. You need
embeddings, the headset of every row, and some pairs, but no task labels.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import mgpa
from mgpa.audit import plots
from mgpa.tables import simulate_table

# %%
# The data
# --------
# Every participant has one role. Corrections are fitted on FIT participants, readers (classifiers of the
# source) and task heads are trained on HEAD participants, and scores come from EVAL participants. In the FIT
# rows, headset and class are strongly associated.

table = simulate_table(n_people=60, random_state=3)
fit, head, evaluation = (table.rows(role) for role in ("FIT", "HEAD", "EVAL"))
print(table)
print("people:", {role: len(set(table.rows(role).participant)) for role in ("FIT", "VAL", "HEAD", "EVAL")})
print(f"FIT: {len(fit)} rows, {np.count_nonzero(fit.pair_id >= 0) // 2} events seen by both headsets")
for label in (0, 1):
    print(f"class {label}: {np.mean(fit.source[fit.label == label] == 'wet'):.0%} of FIT rows are wet")

# %%
# Fit
# ---
# Rows of one event have the same ``pair_id``. The result is a *map*, which needs only an embedding.

model = mgpa.MGPA().fit(fit.X, source=fit.source, pair_id=fit.pair_id)
m = model.to_map()
print(m.summary())
corrected = m.transform(evaluation.X)

# %%
# Look
# ----
# The panels show rows of participants who were not in the fit, along the measured device direction and along
# the direction of a task head. Both panels have the same axes.

task_head = LogisticRegression(max_iter=1000).fit(head.X, head.label)
device_axis = m.direction[:, 0] / np.linalg.norm(m.direction[:, 0])
task_axis = task_head.coef_[0] - (task_head.coef_[0] @ device_axis) * device_axis
axes_shown = np.stack([device_axis, task_axis / np.linalg.norm(task_axis)], axis=1)

with plots.style():
    figure, panels = plt.subplots(1, 2, figsize=(5.8, 2.9), sharex=True, sharey=True, layout="constrained")
    for ax, title, rows in zip(panels, ("Before", "After"), (evaluation.X, corrected), strict=True):
        for headset, color in zip(("dry", "wet"), plots.SOURCE_COLORS, strict=False):
            cloud = (rows @ axes_shown)[evaluation.source == headset]
            ax.plot(*cloud.T, "o", ms=2.4, mew=0, alpha=0.45, color=color)
            ax.plot(*cloud.mean(axis=0), "o", ms=8, mec="white", color=color, label=f"{headset} (mean)")
        ax.set(title=title, xlabel="Along the device direction")
    panels[0].set_ylabel("Along the task direction")
    panels[0].legend()

# %%
# All rows moved horizontally. Along the one direction of the gate, each row now has the value that the rest
# of its embedding predicts (:ref:`theory-closed-form`). Task information along this direction is lost.
#
# Measure
# -------
# Train a reader of the headset on corrected HEAD rows and compute its AUROC on new participants (chance
# level .5). Also score a task head that was trained *before* the correction.


def device_readable(correct):
    """Return the AUROC of a fresh reader of the headset."""
    reader = LogisticRegression(max_iter=1000).fit(correct(head.X), head.source == "wet")
    return roc_auc_score(evaluation.source == "wet", reader.decision_function(correct(evaluation.X)))


def task_kept(correct):
    """Return the AUROC of the existing task head."""
    return roc_auc_score(evaluation.label, task_head.decision_function(correct(evaluation.X)))


found = {
    "Headset, fresh reader": (device_readable(np.asarray), device_readable(m.transform)),
    "Task, existing head": (task_kept(np.asarray), task_kept(m.transform)),
}
for name, (before, after) in found.items():
    print(f"{name:<24}{before:.3f} before, {after:.3f} after")
print(f"rows moved by {mgpa.operating_point.relative_movement(m, evaluation.X):.0%} of their size")

# %%
# The gate in units of the features
# ---------------------------------
# An audit plots the features that each gate may change: scalp maps if features are named by channel and band,
# a curve for numbers such as wavelengths, and bars otherwise. (``readers`` makes this audit short; omit it in
# your own audits.)

channels = ("Fz", "C3", "Cz", "C4", "Pz", "O1", "Oz", "O2")
bands = [f"{channel} {band}" for band in ("alpha", "beta") for channel in channels]
named = replace(table, info={"feature_names": bands})
result = mgpa.audit.run(named, ["mgpa"], readers={"restarts": 0}, verbose=False)
figure = plt.figure(result.plot("gate"))

# %%
# Store and apply
# ---------------
# The map is stored in one file, without pickle. Applying it needs only numpy and safetensors.

with tempfile.TemporaryDirectory() as folder:
    path = m.save(Path(folder) / "headsets.safetensors")
    again = mgpa.load_map(path)
    print(f"{path.name}: {path.stat().st_size} bytes")
print("same bits:", np.array_equal(again.transform(evaluation.X), corrected))

# %%
# How far to trust this
# ---------------------
# The simulation is an easy case: the device adds one constant in one direction, and the pairs have little
# noise. With your own data, check two things: whether the gate covers pairs on which it was not fitted, and
# whether the device can be read from the part that the gate preserves.

held = table.rows("VAL")
views = held.paired_views()
print(f"gate coverage of new people's pairs: {model.coverage((held.X[views[0]], held.X[views[1]])):.2f}")


def preserved(X):
    """Return what the gate leaves alone."""
    return model.gate_.preserved((X - m.center) / m.scale)


print(f"headset AUROC of what the gate preserves: {device_readable(preserved):.3f}")
plt.show()
