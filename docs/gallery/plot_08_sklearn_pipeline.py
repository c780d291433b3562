"""
A scikit-learn pipeline, cross-validated without a leak
=======================================================

In cross-validation, a correction must be fitted again in every fold, on the training participants and *on the
training pairs*. ``pair_id`` has one entry per row and is split with the rows. Metadata routing passes source
and pair ids to the correction.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mgpa
from mgpa.audit import plots
from mgpa.audit.plots import COLORS, colour_of, marker_of

# %%
# The data
# --------
# There are thirty participants with 30 events each. Headset B shifts two directions for all participants and
# two more directions for each participant. Six events of each participant were recorded by both headsets. The
# others were mostly recorded by B if the class is 1, and by A if it is 0.

D = 24
rng = np.random.default_rng(0)
axes = np.linalg.qr(rng.normal(size=(D, D)))[0]
rows = []
for person in range(30):
    own = rng.normal(size=(2, D)) / np.sqrt(D)
    for event in range(30):
        y = event % 2
        content = rng.normal(size=D) + 1.1 * y * (axes[5] + 0.5 * axes[0])
        effect = 1.4 * axes[0] + 0.8 * axes[1] + rng.normal(size=2) @ own
        paired = event < 6
        usual = "B" if rng.random() < (0.85 if y else 0.15) else "A"
        for headset in ("A", "B") if paired else (usual,):
            x = content + (headset == "B") * effect + 0.2 * rng.normal(size=D)
            rows.append((x, y, headset, 100 * person + event if paired else -1, person))
X, task, source, pair_id, person = (np.array(column) for column in zip(*rows, strict=True))
print(f"{len(X)} rows, {len(set(pair_id)) - 1} paired events, {len(set(person))} people")

# %%
# Cross-validate
# --------------
# Folds consist of whole participants. Scores are computed on events that both headsets recorded, so a decoder
# that learned the headset has no advantage.

folds = [(train, test[pair_id[test] >= 0]) for train, test in GroupKFold(10).split(X, task, groups=person)]
known = {"source": source, "pair_id": pair_id}
steps = {
    "Uncorrected": mgpa.baselines.Identity(),
    "LEACE": mgpa.baselines.LEACE(),
    "MGPA": mgpa.MGPA(),
}
scores = {}
with config_context(enable_metadata_routing=True):
    for name, step in steps.items():
        pipeline = make_pipeline(step, StandardScaler(), LogisticRegression(max_iter=1000))
        for target, y in (("task", task), ("headset", source)):
            done = cross_validate(pipeline, X, y, cv=folds, scoring="roc_auc", params=known)
            scores[name, target] = done["test_score"]
for (name, target), values in scores.items():
    print(f"{name:<18}{target:<9}AUROC {values.mean():.3f} (folds {values.min():.3f} to {values.max():.3f})")

# %%
# A parameter is chosen in the same way: an inner search uses only the training participants of the outer
# fold.

with config_context(enable_metadata_routing=True):
    pipeline = make_pipeline(
        mgpa.ClosedFormMGPA(mgpa.MeasurementGate()), StandardScaler(), LogisticRegression(max_iter=1000)
    )
    grid = {"closedformmgpa__gate": [1, 2, 4, 8]}
    search = GridSearchCV(pipeline, grid, cv=GroupKFold(5), scoring="roc_auc")
    search.fit(X, task, groups=person, **known)
for settings, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
    print(f"rank {settings['closedformmgpa__gate']}: inner task AUROC {score:.3f}")

# %%
# In most of these rows, headset and class are associated, so the score rewards the shortcut. Choose a rank by
# coverage (``mgpa.gate.held_out_coverage``), which does not use the task.
#
# How a leak appears in the scores
# --------------------------------
# ``pairs=(A, B)`` is not aligned with the rows, so every fold gets *all* pairs, also those of its test
# participants. The gate then seems to cover the differences of the test participants better than it covers
# those of new participants.

a, b = (np.flatnonzero((pair_id >= 0) & (source == s)) for s in ("A", "B"))
b = b[np.argsort(pair_id[b])][np.argsort(np.argsort(pair_id[a]))]
ranks = [1, 2, 3, 4, 6, 8, 12, 16]
covered = {"all pairs in every fold (leak)": [], "each fold's own pairs": []}
for rank in ranks:
    leaky, honest = [], []
    for train, test in GroupKFold(10).split(X, task, groups=person):
        mine = np.isin(a, test)
        held_out = X[a[mine]], X[b[mine]]
        model = mgpa.ClosedFormMGPA(gate=rank)  # the gate alone is looked at
        model.fit(X[train], source=source[train], pairs=(X[a], X[b]))
        leaky.append(model.coverage(held_out))
        model.fit(X[train], source=source[train], pair_id=pair_id[train])
        honest.append(model.coverage(held_out))
    for values, found in zip(covered.values(), (leaky, honest), strict=True):
        values.append(np.mean(found))
for name, values in covered.items():
    print(f"{name:<32}" + " ".join(f"{value:.3f}" for value in values))

with plots.style():
    figure, panels = plt.subplots(1, 3, figsize=(plots.PAGE, 2.5), layout="constrained")
    for ax, target in zip(panels, ("headset", "task"), strict=False):
        values = np.array([scores[name, target] for name in steps])
        ax.plot(range(len(steps)), values, color="#d9d9d9", lw=0.7, zorder=1)
        for i, method in enumerate(("identity", "leace", "mgpa")):
            at, color = np.full(values.shape[1], i), colour_of(method)
            ax.plot(at, values[i], marker_of(method), ms=3.2, color=color, alpha=0.6, mew=0)
            ax.plot([i - 0.25, i + 0.25], [values[i].mean()] * 2, color=color, lw=2)
        ax.axhline(0.5, color=COLORS[0], ls=":", lw=0.9)
        ax.set_xticks(range(len(steps)), [name.replace(" ", "\n") for name in steps])
        ax.set_xlim(-0.5, 2.5)
        ax.set_ylabel(f"{target.capitalize()} AUROC, ten folds of people")
    lines = {name: (ranks, values) for name, values in covered.items()}
    for (name, line), color in zip(lines.items(), COLORS[1:], strict=False):
        panels[2].plot(*line, "-o", ms=3, color=color, label=name)
    panels[2].set_title("Coverage of test people's pairs", loc="left")
    panels[2].set_xlabel("Gate rank")
    panels[2].legend()
    panels[2].set_ylim(0, 1)

# %%
# How far to trust this
# ---------------------
# After both corrections, a reader of the headset in the same pipeline is at chance, but LEACE loses part of
# the task. The leak grows with the rank, because later directions come from single participants. Folds share
# training participants, so the spread over folds is not a confidence interval. :doc:`../../audit` explains
# intervals.

plt.show()
