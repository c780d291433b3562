"""
A third headset: detected, then added with ten pairs
====================================================

This example is for users who use a correction and buy another headset. The map was fitted on two headsets. It
detects rows of the third headset. It can be extended from a few events that the new headset and an old one
recorded at the same time, without the rows of the first fit. The decoder does not change.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

import mgpa
from mgpa.audit import plots
from mgpa.eeg import BandPower, Trials, encode
from mgpa.eeg.simulate import Device, background, draw_people, leadfield, record

# %%
# Three headsets
# --------------
# Simulated participants rest with open or closed eyes (alpha is three times as strong with closed eyes).
# Headsets differ in reference electrode, filter, noise and gain. To keep the page short, all three record all
# trials; trials of the third headset are used only where the text states this.

CHANNELS = ("Fz", "F3", "F4", "Cz", "C3", "C4", "Pz", "P3", "P4", "Oz", "O1", "O2")
SFREQ, SECONDS, TRIALS = 128.0, 2.0, 24
rng = np.random.default_rng(0)
band_gains, helmet_gains = np.exp(rng.normal([[0.0], [-0.6]], 0.3, (2, len(CHANNELS))))  # of each electrode
HEADSETS = (
    Device("cap", CHANNELS, SFREQ, "average", white=0.5e-6, highpass=0.1, lowpass=40.0),
    Device("band", CHANNELS, SFREQ, "AFz", white=1e-6, highpass=0.5, lowpass=30.0, gains=tuple(band_gains)),
    Device(
        "helmet", CHANNELS, SFREQ, "Oz", white=1e-6, highpass=1.0, lowpass=20.0, gains=tuple(helmet_gains)
    ),
)


def record_rest(person):
    """Return one participant's trials by each headset; an event has one name in all of them, ``pair_id``."""
    rng = person.rng(0)
    closed = rng.permutation(np.arange(TRIALS) % 2).astype(bool)
    samples = int(SECONDS * SFREQ)
    *places, moments = background(person, TRIALS * samples, SFREQ, rng)
    for trial in np.flatnonzero(closed):
        moments[-3:, trial * samples : (trial + 1) * samples] *= 3  # the alpha rhythm's three sources
    parts = []
    for headset in HEADSETS:
        field = leadfield(headset.electrodes, *places)
        volts = record(moments, field, headset, rng, sfreq=SFREQ)
        data = volts.reshape(len(CHANNELS), TRIALS, samples).swapaxes(0, 1)
        parts.append(Trials(data, CHANNELS, SFREQ).with_columns(
            source=headset.name, participant=person.id, label=closed.astype(int),
            pair_id=[f"{person.id} trial {i}" for i in range(TRIALS)],
        ))  # fmt: skip
    return Trials.concatenate(parts)


people = draw_people([f"S{i + 1:02d}" for i in range(28)], random_state=2)
trials = Trials.concatenate([record_rest(person) for person in people])
table = encode(trials, BandPower([(1, 4), (4, 8), (8, 13), (13, 30)], floor=0.1))
number = np.unique(table.participant, return_inverse=True)[1]

# %%
# Two headsets in the fit
# -----------------------
# Twelve participants wore the cap and the band.

fit = table.take((number < 12) & (table.source != "helmet"))
model = mgpa.MGPA(reference="cap")
model.fit(fit.X, source=fit.source, pair_id=fit.pair_id, groups=fit.participant)
m = model.to_map()
of_cap = fit.source == "cap"
decoder = LogisticRegression(max_iter=1000).fit(fit.X[of_cap], fit.label[of_cap])

# %%
# The third is detected
# ---------------------
# Four participants wear the helmet and the cap (these are the pairs), and twelve others wear only the helmet.
# Two headsets show little about the possible difference of a third, so the evidence for an unknown device
# stays below the alarm threshold (10³). Nevertheless, nearly all rows are reported as outside the range of
# the fit.

bridge = table.take((number >= 12) & (number < 16))
others = table.take(number >= 16)
helmet = others.take(others.source == "helmet")
check = m.check(helmet.X)
print(check)
print(f"evidence for an unknown device: 10^{check.devices[0]['log10_evidence']:.1f}")

# %%
# Ten pairs
# ---------
# Pairs are drawn at random from the trials of the four participants, ten times for each number of pairs.
# ``adapt`` needs only rows of the new headset and no pairs. It assumes the same share of trials with closed
# eyes as in the fit.

first, second = (bridge.X[bridge.source == name] for name in ("cap", "helmet"))
NUMBERS = (3, 5, 10, 20, 40)


def accuracy(m, source="helmet"):
    """Return the balanced accuracy of the cap's decoder on corrected rows of the twelve others."""
    rows = others.take(others.source == source)
    return balanced_accuracy_score(rows.label, decoder.predict(m.transform(rows.X) if m else rows.X))


def with_pairs(n):
    """Return the map with the helmet added from some of the pairs."""
    some = rng.permutation(len(first))[:n]
    return m.add_source("helmet", (first[some], second[some]), known="cap")


curve = np.array([[accuracy(with_pairs(n)) for _ in range(10)] for n in NUMBERS])
levels = {
    "helmet, uncorrected": accuracy(None),
    "helmet, the map as it is": accuracy(m),
    "helmet, adapted without pairs": accuracy(m.adapt(second, "helmet", n_participants=4)),
    "cap": accuracy(m, "cap"),
}
for name, value in levels.items():
    print(f"{name:<30}{value:.2f}")
for n, values in zip(NUMBERS, curve, strict=True):
    print(f"helmet, {n} pairs".ljust(30) + f"{values.mean():.2f} (worst of ten draws {values.min():.2f})")

# %%
# Before and after
# ----------------
# The left panel shows rows of the twelve other participants in the plane of the two largest principal
# components of the cap.

center = others.X[others.source == "cap"].mean(axis=0)
plane = np.linalg.svd(others.X[others.source == "cap"] - center, full_matrices=False)[2][:2].T
names = ("cap", "band", "helmet")
with plots.style():
    figure, panels = plt.subplots(1, 3, figsize=(plots.PAGE, 2.5), layout="constrained")
    panels[1].sharex(panels[0])
    panels[1].sharey(panels[0])
    for ax, title, rows in (
        (panels[0], "Before", others.X),
        (panels[1], "After, with ten pairs", with_pairs(10).transform(others.X)),
    ):
        for name, color in zip(names, plots.SOURCE_COLORS, strict=False):
            ax.plot(
                *((rows - center) @ plane)[others.source == name].T,
                "o",
                ms=2.4,
                mew=0,
                alpha=0.5,
                color=color,
            )
            ax.plot([], [], "o", ms=5, color=color, label=name)
        ax.set_title(title, loc="left")
        ax.set(xlabel="first component", ylabel="second component")
    panels[0].legend(loc="lower left")
    ax = panels[2]
    color = plots.SOURCE_COLORS[2]
    ax.fill_between(NUMBERS, curve.min(axis=1), curve.max(axis=1), color=color, alpha=0.2, lw=0)
    ax.plot(NUMBERS, curve.mean(axis=1), "o-", ms=4, color=color)
    for name, height in levels.items():
        if name != "helmet, adapted without pairs":
            ax.axhline(height, color="#777777", ls="-" if name == "cap" else ":", lw=0.9)
    ax.annotate("on the cap", (3, levels["cap"]), xytext=(0, 3), textcoords="offset points", fontsize=7)
    ax.annotate(
        "helmet, uncorrected", (3, levels["helmet, uncorrected"]), xytext=(0, 3), textcoords="offset points",
        fontsize=7,
    )  # fmt: skip
    ax.set_title("The cap's decoder on the helmet", loc="left")
    ax.set(xscale="log", xlabel="pairs (range of ten draws)", ylabel="balanced accuracy", ylim=(0.5, 0.95))
    ax.set_xticks(NUMBERS, [str(n) for n in NUMBERS])
    ax.minorticks_off()

# %%
# How far to trust this
# ---------------------
# In this example, adapting without pairs works as well because the shares of closed eyes are equal. If they
# may differ, record pairs. :doc:`../../unseen` reports measurements on real devices and the rate of false
# alarms.

plt.show()
