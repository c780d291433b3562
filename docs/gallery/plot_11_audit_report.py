"""
Reading an audit report
=======================

Did it work, what did it cost, how sure are we? :func:`mgpa.audit.run` fits methods on some people, trains
source readers and task heads on others, and judges on a third group. It writes one HTML file that opens
offline. This page goes through its figures in the order in which they should be read.
"""

import tempfile
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from mgpa import audit
from mgpa.audit.words import reader_rows
from mgpa.tables import Table, assign_roles

# %%
# The data
# --------
# Two simulated headsets, a task of two classes, 60 people. The wet headset shifts embeddings in three
# directions, each event by a different amount. In the rows that methods are fitted on, wet goes mostly with
# one class.

D = 24
rng = np.random.default_rng(0)
person = np.repeat(np.arange(60), 24)
label = np.tile([0, 1], len(person) // 2)
role = assign_roles(person, random_state=1)
axes = np.linalg.qr(rng.normal(size=(D, D)))[0]
content = rng.normal(size=(len(person), D)) + 0.5 * rng.normal(size=(60, D))[person]
content += 1.3 * label[:, None] * (axes[6] + 0.4 * axes[0])
response = np.array([1.4, -0.9, 0.6]) + 0.5 * rng.normal(size=(len(person), 3))
views = np.stack([content, content + response @ axes[:3]]) + 0.2 * rng.normal(size=(2, *content.shape))
paired = np.isin(role, ("HEAD", "EVAL")) | (np.arange(len(person)) % 5 == 0)
wet = rng.random(len(person)) < np.where(label, 0.85, 0.15)
event, u = np.array([(e, k) for e in range(len(person)) for k in (0, 1) if paired[e] or wet[e] == k]).T
table = Table(
    views[u, event],
    source=np.array(["dry", "wet"])[u],
    participant=[f"p{p:02d}" for p in person[event]],
    label=label[event],
    role=role[event],
    pair_id=np.where(paired[event], event, -1),
)
print(table)

# %%
# Run it
# ------
# One restart of the network readers instead of three, and one fit of each method, keep this page quick;
# leave both out for a report that others will rely on. With ``cache=`` a run that was interrupted goes on
# where it was.

methods = ["leace", "closed_form_mgpa", "iterative_mgpa", "coral"]
result = audit.run(table, methods, seeds=(17,), readers={"restarts": 1}, verbose=False)
print(result)

# %%
# Columns are metrics, brackets 95 % intervals over the people judged. ``S``: how well the best of all
# readers tells the headset. ``T_f``: task heads that existed before; ``T_r``: heads trained afterwards.
# ``M``: how far rows moved. ``worst``: a head that learned the shortcut, at its worst association.
# ``floor``: what readers find in what the gate preserves, which no correction inside the gate can remove.
#
# The verdict
# -----------
# The same in words, with the difference from doing nothing, person by person.

for line in result.verdict("closed_form_mgpa"):
    print(textwrap.fill(line, 96, initial_indent="- ", subsequent_indent="  "))

# %%
# First: source against task
# --------------------------
# Left is better, up is better; the dashed line is the task without correction. Hollow markers are told the
# source of every row they correct, which is an easier problem: compare them with each other.

plt.figure(result.plot("tradeoff", width=4.6))  # drawn without pyplot; this hands it over

# %%
# Second: who still finds the source
# ----------------------------------
# ``S`` is the best reader of a bank (ringed). If linear readers are at chance and networks are not, a
# nonlinear trace is left; if one reader stands out, look at it. A bank is a lower bound: a reader that
# nobody tried may find more.

plt.figure(result.plot("readers"))
for method in result.methods:
    [(_, reader)] = reader_rows([result[method].best_reader()])
    print(f"{method:<18} is read best by: {reader}")

# %%
# Third: when the association changes
# -----------------------------------
# A head was trained while headset and class went together (right end) and meets other associations.
# Uncorrected, it falls as they reverse. A flat curve is a head that no longer leans on the headset. One
# that tilts the other way was corrected too far: LEACE and CORAL took task along with the headset, so now
# the head is at its worst where the association is the one it was trained with.

plt.figure(result.plot("association", width=4.6))

# %%
# Fourth: is it everybody, or a few
# ---------------------------------
# One line a person, the source before and after. A mean can hide people for whom nothing changed;
# ``influence`` says whether a verdict hangs on one of them.

plt.figure(result.plot("participants", "S"))
without = result.influence("closed_form_mgpa", "leace", "S")
print(f"closed form minus LEACE in S: {result.contrast('closed_form_mgpa', 'leace', 'S'):+.3f}")
print(f"leaving out any one person: {without.min():+.3f} to {without.max():+.3f}")

# %%
# Fifth: gate and movement
# ------------------------
# The diamond is what the gate covers of new people's pairs. Far below the ring, the gate has learned its
# own pairs. Here both stand at a little more than half: held-out pairs support one direction, the headset's
# mean effect. How much that varies from event to event, in three directions, and the noise in all of them
# are the other half (:doc:`plot_02_gate_rank`). The iterative map begins with the closed form, and found
# nothing left to do: the two coincide in every figure.

plt.figure(result.plot("gate", width=4.6))

# %%
# How far rows moved, stage by stage and in all:

plt.figure(result.plot("movement"))

# %%
# Write it down
# -------------
# The report holds all of this and more, with everything that was run on what. Figures come as PDF, SVG and
# PNG, tables as CSV and LaTeX.

with tempfile.TemporaryDirectory() as folder:
    report = result.report(Path(folder) / "report.html", title="Two headsets, simulated")
    print(f"{report.name}: {report.stat().st_size / 1e6:.1f} MB, opens offline")
print(result.to_latex())

# %%
# How far to trust this
# ---------------------
# Intervals redraw the people judged, for *these* fitted maps and readers. They do not cover another fit
# (that is what ``seeds`` are for), another reader, or another population. Twelve people were judged here;
# differences smaller than the intervals are not differences.

plt.show()
