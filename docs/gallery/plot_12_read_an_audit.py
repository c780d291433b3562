"""
Reading an audit: from the verdict to a figure and a paragraph
==============================================================

This example is for users who report an audit in a paper. The result of an audit contains all numbers as
tables. This page prints the verdict, plots the differences from the uncorrected data, shows single
participants, and prints the methods paragraph.
"""

import textwrap

import matplotlib.pyplot as plt
import numpy as np

import mgpa
from mgpa.audit import plots
from mgpa.tables import simulate_table

# %%
# The verdict
# -----------
# The data come from two simulated headsets, with headset and task associated in the fitting rows. ``readers``
# makes this audit short; omit it for numbers to publish.

table = simulate_table(n_people=80)
result = mgpa.audit.run(table, ["leace", "mgpa", "featmap"], readers={"restarts": 0}, verbose=False)
for sentence in result.verdict():
    print(sentence)

# %%
# Differences, with intervals
# ---------------------------
# Each participant is scored with and without a correction, so differences are more precise than the scores.
# An interval on the good side of the line is an improvement. An interval that excludes a loss above .01 is
# called *kept*. The mark of FEATMAP is hollow because it uses the source of every row.

frame = result.to_frame()
changes = frame[(frame.against == "identity") & (frame.participant == "")]
SHOWN = {"S": "source readable (lower is better)", "home": "accuracy at home", "away": "accuracy away",
         "T_f": "task, existing heads", "worst": "shortcut decoder, worst case"}  # fmt: skip
METHODS = {"leace": "LEACE", "mgpa": "MGPA", "featmap": "FEATMAP (source given)"}
with plots.style():
    figure, panels = plt.subplots(1, len(SHOWN), figsize=(plots.PAGE, 1.9), sharey=True, layout="constrained")
    for ax, (metric, title) in zip(panels, SHOWN.items(), strict=True):
        of_metric = changes[changes.metric == metric].set_index("method")
        for y, name in enumerate(METHODS):
            row, color = of_metric.loc[name], plots.colour_of(name)
            ax.plot([row.low, row.high], [y, y], color=color, lw=1.4)
            face = color if result[name].source_blind else "white"
            ax.plot(row.value, y, plots.marker_of(name), ms=6, color=color, mfc=face)
        ax.axvline(0, color="#777777", ls=":", lw=0.9)
        ax.set_title(title.replace(" (", "\n(").replace(", ", ",\n"), fontsize=7, loc="left")
        ax.set_xlabel(metric)
    panels[0].set_yticks(range(len(METHODS)), METHODS.values())
    panels[0].set(ylim=(len(METHODS) - 0.5, -0.5))
    figure.supxlabel("difference from the uncorrected data, 95 % intervals over participants", fontsize=8)

# %%
# Does one participant drive it?
# ------------------------------

people = result.participants()
share = people[people.metric == "S"].pivot(index="participant", columns="method", values="value")
fell = share["identity"] - share["mgpa"]
print(
    f"S fell for {np.sum(fell > 0)} of {len(fell)} participants, least by {fell.min():.2f} ({fell.idxmin()})"
)
figure = plt.figure(result.plot("participants"))

# %%
# The paragraph
# -------------
# The methods paragraph contains settings, intervals and references.
# ``result.report("report.html")`` writes the complete report, with all charts, as one file.
# ``result.figures("figures")`` writes the charts as PDF, SVG and PNG, and ``result.to_csv("numbers.csv")``
# the numbers.

print(textwrap.fill(result.methods_text(), 100))
plt.show()
