"""
Quickstart: fit, look, store, apply
===================================

Two headsets, "dry" and "wet", record people doing a task, and each embedding shows which headset recorded
it. Some events were recorded by both headsets at once: these pairs show what the hardware does. You need
embeddings, the headset of every row, and some pairs; no task labels.
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
# Every person has one role: corrections are fitted on FIT, readers and task heads on HEAD, and everything is
# scored on EVAL. In the FIT rows the headset mostly tells the class.

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
# ``pair_id`` names the rows that are views of one event. The result is a *map*: it takes an embedding and
# nothing else.

model = mgpa.ClosedFormMGPA().fit(fit.X, source=fit.source, pair_id=fit.pair_id)
m = model.to_map()
print(m.summary())
corrected = m.transform(evaluation.X)

# %%
# Look
# ----
# Rows of people the correction has never seen, along the measured device direction and along the direction
# of a task head. Both panels have the same axes.

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
# Every row has moved sideways only. Along the gate's one direction, each row now has the value that the rest
# of its embedding predicts (:ref:`theory-closed-form`). Task information along that direction is lost.
#
# Measure
# -------
# Train a reader on corrected HEAD rows to tell the headset, and see how well it ranks new people's rows
# (AUROC; .5 is guessing). And ask a task head that was trained *before* the correction.


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
# The gate in the features' own units
# -----------------------------------
# An audit draws which features each gate may change: scalp maps where they are called by channel and
# band, a curve over numbers such as wavelengths, bars otherwise. (``readers`` makes this audit short;
# leave it out.)

channels = ("Fz", "C3", "Cz", "C4", "Pz", "O1", "Oz", "O2")
bands = [f"{channel} {band}" for band in ("alpha", "beta") for channel in channels]
named = replace(table, info={"feature_names": bands})
result = mgpa.audit.run(named, ["mgpa"], readers={"restarts": 0}, verbose=False)
figure = plt.figure(result.plot("gate"))

# %%
# Store and apply
# ---------------
# One file, no pickle. Applying it needs numpy and safetensors.

with tempfile.TemporaryDirectory() as folder:
    path = m.save(Path(folder) / "headsets.safetensors")
    again = mgpa.load_map(path)
    print(f"{path.name}: {path.stat().st_size} bytes")
print("same bits:", np.array_equal(again.transform(evaluation.X), corrected))

# %%
# How far to trust this
# ---------------------
# The simulation is kind: the device adds one constant in one direction, and the pairs are clean. Check on
# your own data: does the gate cover pairs it was not fitted on, and is the device readable from what the
# gate preserves?

held = table.rows("VAL")
views = held.paired_views()
print(f"gate coverage of new people's pairs: {model.coverage((held.X[views[0]], held.X[views[1]])):.2f}")


def preserved(X):
    """Return what the gate leaves alone."""
    return model.gate_.preserved((X - m.center) / m.scale)


print(f"headset AUROC of what the gate preserves: {device_readable(preserved):.3f}")
plt.show()
