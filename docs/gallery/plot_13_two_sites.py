"""
Two sites: harmonization with travelling participants
=====================================================

This example is for users who pool measurements of two sites (batch effect, site effect) if most patients were
measured at one of them. Methods that use only site labels cannot separate the site from the disease. Twenty
volunteers who travelled to both sites show the effect of the site alone: their measurements are pairs.
"""

import matplotlib.pyplot as plt
import numpy as np

from mgpa.audit import plots
from mgpa.baselines import list_methods, make_method

# %%
# The study
# ---------
# Each of 600 participants has 20 features. The disease raises one of them by one standard deviation, at both
# sites. The scanner of site B shifts all features, and this one most. Patients are three quarters of the
# participants of site B and one quarter of those of site A.

rng = np.random.default_rng(0)
DISEASE = np.eye(20)[0]
SHIFT = np.r_[1.5, rng.normal(size=19) * 0.6]


def measure(truth, site):
    """Return what a site measures of participants: their features, noise, and the shift of site B."""
    return truth + 0.3 * rng.normal(size=truth.shape) + (site == "B")[:, None] * SHIFT


site = np.repeat(["A", "B"], 300)
patient = rng.random(600) < np.where(site == "B", 0.75, 0.25)
X = measure(rng.normal(size=(600, 20)) + patient[:, None] * DISEASE, site)

volunteers = rng.normal(size=(20, 20))  # healthy, measured at both sites
pairs = tuple(measure(volunteers, np.repeat(name, 20)) for name in "AB")

# %%
# Harmonized
# ----------
# The table has two numbers for the feature of the disease: the effect (patients minus controls), and the
# remaining difference between the sites, among patients and among controls. *Truth* is the data without the
# shift.

blind = {method.name for method in list_methods() if method.source_blind}


def effect(Z):
    """Return patients minus controls in the disease's feature."""
    return float((Z[patient].mean(axis=0) - Z[~patient].mean(axis=0)) @ DISEASE)


def site_difference(Z):
    """Return site B minus site A in the disease's feature: the mean over patients and controls."""
    groups = [(group & (site == "B"), group & (site == "A")) for group in (patient, ~patient)]
    return float(np.mean([(Z[b].mean(axis=0) - Z[a].mean(axis=0)) @ DISEASE for b, a in groups]))


harmonized = {"truth": X - (site == "B")[:, None] * SHIFT, "identity": X}
for name in ("combat", "coral", "leace", "traveling_subjects", "mgpa"):
    model = make_method(name).fit(X, source=site, pairs=pairs)
    harmonized[name] = model.transform(X) if name in blind else model.transform(X, source=site)
print("                    effect   between sites")
for name, Z in harmonized.items():
    print(f"{name:<20}{effect(Z):>6.2f}{site_difference(Z):>16.2f}")

# %%
# ComBat, CORAL and LEACE mistake a part of the disease effect for a site effect: after correction, the sites
# differ in the opposite direction. With pairs, little or nothing remains of the difference between sites.
# *Travelling subjects* subtracts one constant for each site and keeps the effect, but needs the site of every
# row. MGPA does not need the site of new rows. It removes effects that it cannot separate from the site, so
# the disease effect becomes smaller.

# %%
# The picture
# -----------

with plots.style():
    figure, panels = plt.subplots(1, 2, figsize=(plots.PAGE, 2.1), layout="constrained", sharey=True)
    for ax, title, measured, truth in (
        (panels[0], "Patients − controls", effect, effect(harmonized["truth"])),
        (panels[1], "Site B − site A", site_difference, 0.0),
    ):
        for y, (name, Z) in enumerate(harmonized.items()):
            color = "#777777" if name == "truth" else plots.colour_of(name)
            ax.plot([truth, measured(Z)], [y, y], color=color, lw=1)
            face = color if name in {*blind, "truth"} else "white"
            ax.plot(
                measured(Z), y, "|" if name == "truth" else plots.marker_of(name), color=color, mfc=face, ms=6
            )
        ax.axvline(truth, color="#777777", ls=":", lw=0.9)
        ax.set_title(title, loc="left")
        ax.set_xlabel("standard deviations; hollow: needs the site")
    panels[0].set_yticks(range(len(harmonized)), [name.replace("_", " ") for name in harmonized])
    panels[0].invert_yaxis()

# %%
# How far to trust this
# ---------------------
# This is one simulated study; with other seeds, the numbers change by .1 to .2. The volunteers are healthy:
# if the scanner affects patients differently, they cannot show it. :doc:`../../unseen` explains how many
# volunteers are enough, and :doc:`../../designs` the comparisons in an audit of such a study.

plt.show()
