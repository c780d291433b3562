"""
One row at a time: an online decoder after a change of headset
==============================================================

This example is for users who decode online. A stored map corrects each embedding when it arrives, without the
headset label. In this example, the headset is changed in the middle of a session. The decoder, trained on the
first headset, is not retrained.
"""

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

import mgpa
from mgpa.audit import plots
from mgpa.tables import simulate_table

# %%
# Before the session
# ------------------
# The correction and the decoder are fitted once, and the map is stored. During the session, the map needs
# only numpy and safetensors.

table = simulate_table(60, device_effect=8.0, overlap=0.5)
fit, training, session = (table.rows(role) for role in ("FIT", "HEAD", "EVAL"))
model = mgpa.MGPA(reference="dry").fit(fit.X, source=fit.source, pair_id=fit.pair_id, groups=fit.participant)
path = model.to_map().save(Path(tempfile.mkdtemp()) / "adapter.safetensors")
of_dry = training.source == "dry"
decoder = LogisticRegression(max_iter=1000).fit(training.X[of_dry], training.label[of_dry])

# %%
# The session
# -----------
# Embeddings of new participants arrive one by one: first from the dry headset, then from the wet one.

order = np.argsort(session.source, kind="stable")
m = mgpa.load_map(path)
scores, waits = {"uncorrected": [], "corrected": []}, []
for row in session.X[order]:
    start = time.perf_counter()
    corrected = m.transform(row[None])  # one row; its headset is not given
    waits.append(1e3 * (time.perf_counter() - start))
    scores["uncorrected"].append(decoder.decision_function(row[None])[0])
    scores["corrected"].append(decoder.decision_function(corrected)[0])

label, source = session.label[order], session.source[order]
for name, values in scores.items():
    right = (np.array(values) > 0) == label
    dry, wet = (right[source == name].mean() for name in ("dry", "wet"))
    print(f"{name:<12} right on dry {dry:.2f}, on wet {wet:.2f}")

# %%
# The picture
# -----------
# The plots show the share of correct decisions in a window of 60 rows, and the time of one correction (on the
# machine that built this page).

change = int((source == "dry").sum())

with plots.style():
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(plots.PAGE, 2.3), layout="constrained", width_ratios=(2, 1)
    )
    for name, method in (("uncorrected", "identity"), ("corrected", "mgpa")):
        hits = ((np.array(scores[name]) > 0) == label).astype(float)
        window = np.convolve(hits, np.ones(60) / 60, "valid")
        left.plot(np.arange(len(window)) + 30, window, color=plots.colour_of(method), label=name)
    left.axvline(change, color="#777777", ls=":", lw=0.9)
    left.annotate("the headset is changed", (change, 0.3), xytext=(4, 0), textcoords="offset points")
    left.axhline(0.5, color="#777777", ls=":", lw=0.9)
    left.set(xlabel="row", ylabel="right, of 60 rows", ylim=(0.25, 1.02))
    left.legend(loc="lower left")
    right.hist(waits[10:], bins=30, range=(0, float(np.percentile(waits[10:], 99))), color=plots.COLORS[1])
    right.set(xlabel="one correction (ms)", ylabel="rows")

# %%
# How far to trust this
# ---------------------
# Both headsets were in the fit. A third headset would not be corrected; ``m.check`` detects it
# (:doc:`plot_07_third_headset`). ``examples/real_time.py`` is the same loop as a script
# (:doc:`../../online`).

plt.show()
