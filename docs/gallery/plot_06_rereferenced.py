"""
Two reference electrodes: embeddings that can no longer be re-referenced
========================================================================

This example is for users with stored features, or embeddings of a frozen network, of recordings with
different reference electrodes. Raw signals can be re-referenced, but log power and embeddings of a network
cannot. If a few raw trials are available, both views of them can be computed, which gives exact pairs.

The reference is the average of all electrodes or Oz. Alpha power shows whether the eyes are closed, and a
decoder trained with one reference fails with the other.
"""

import matplotlib.pyplot as plt
import mne
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

import mgpa
from mgpa.audit import plots
from mgpa.eeg import BandPower, Trials, encode, measure_views, rereference
from mgpa.eeg.simulate import Device, background, draw_people, leadfield, record
from mgpa.eeg.trials import standard_montage

# %%
# The archive
# -----------
# Simulated participants rest with open or closed eyes; closed eyes triple the alpha rhythm.

CHANNELS = ("Fz", "F3", "F4", "Cz", "C3", "C4", "Pz", "P3", "P4", "Oz", "O1", "O2")
SFREQ, SECONDS, TRIALS = 128.0, 2.0, 24
AMPLIFIER = Device("amplifier", CHANNELS, SFREQ, white=0.8e-6, highpass=0.5, lowpass=40.0)


def record_rest(person):
    """Return one participant's trials, without a reference."""
    rng = person.rng(0)
    closed = rng.permutation(np.arange(TRIALS) % 2).astype(bool)
    samples = int(SECONDS * SFREQ)
    *places, moments = background(person, TRIALS * samples, SFREQ, rng)
    for trial in np.flatnonzero(closed):
        moments[-3:, trial * samples : (trial + 1) * samples] *= 3  # the alpha rhythm's three sources
    volts = record(moments, leadfield(CHANNELS, *places), AMPLIFIER, rng, sfreq=SFREQ)
    data = volts.reshape(len(CHANNELS), TRIALS, samples).swapaxes(0, 1)
    return Trials(data, CHANNELS, SFREQ).with_columns(participant=person.id, label=closed.astype(int))


people = draw_people([f"S{i + 1:02d}" for i in range(24)], random_state=1)
trials = Trials.concatenate([record_rest(person) for person in people])
views = measure_views(
    trials, {"average": lambda t: rereference(t, "average"), "Oz": lambda t: rereference(t, "Oz")}
)
features = BandPower([(1, 4), (4, 8), (8, 13), (13, 30)], floor=0.1)
both = encode(views, features)  # both views of every trial, to see what is true
number = np.unique(both.participant, return_inverse=True)[1]

# %%
# Stored embeddings and available pairs
# -------------------------------------
# Raw trials are available for the first eight participants, so only these have pairs. For the other sixteen,
# only the embeddings are available.

fit, new = both.take(number < 8), both.take(number >= 8)
model = mgpa.MGPA(reference="average")
model.fit(fit.X, source=fit.source, pair_id=fit.pair_id, groups=fit.participant)
print(model.to_map().summary())

average = fit.source == "average"
decoder = LogisticRegression(max_iter=1000).fit(fit.X[average], fit.label[average])
corrected = model.transform(new.X)
for name, rows in {"before": new.X, "after": corrected}.items():
    home, away = (
        balanced_accuracy_score(new.label[new.source == s], decoder.predict(rows[new.source == s]))
        for s in ("average", "Oz")
    )
    print(f"{name:<7} accuracy of the decoder: {home:.2f} with the average reference, {away:.2f} with Oz")

# %%
# Scalp maps of alpha power, and all new participants
# ---------------------------------------------------
# With Oz as reference, Oz has no signal, and its alpha appears at frontal electrodes. The correction
# recognises the reference from the embedding of a trial and predicts the power under the average reference.

info = mne.create_info(list(CHANNELS), SFREQ, "eeg").set_montage(standard_montage())
closed = new.label == 1
maps = {
    "average reference": new.X[closed & (new.source == "average")],
    "Oz": new.X[closed & (new.source == "Oz")],
    "Oz, corrected": corrected[closed & (new.source == "Oz")],
}
maps = {name: rows.mean(axis=0).reshape(len(CHANNELS), 4)[:, 2] for name, rows in maps.items()}
low, high = min(m.min() for m in maps.values()), max(m.max() for m in maps.values())


def of_each(rows):
    """Return the decoder's accuracy on each new participant's trials with Oz."""
    oz = new.source == "Oz"
    right = decoder.predict(rows[oz]) == new.label[oz]
    return np.array([right[new.participant[oz] == name].mean() for name in np.unique(new.participant)])


before, after = of_each(new.X), of_each(corrected)
with plots.style():
    figure = plt.figure(figsize=(plots.PAGE, 2.2), layout="constrained")
    grid = figure.add_gridspec(1, 4, width_ratios=(1.2, 1, 1, 1))
    ax = figure.add_subplot(grid[0])
    ax.plot([0, 1], [before, after], "-", color="#999999", lw=0.7)
    for x, values in enumerate((before, after)):
        ax.plot(np.full(len(values), x), values, "o", ms=4, mew=0, alpha=0.6, color=plots.SOURCE_COLORS[1])
        ax.plot(x, values.mean(), "_", ms=22, mew=2, color="#222222")
    ax.axhline(0.5, color="#777777", ls=":", lw=0.9)
    ax.set(xticks=[0, 1], xticklabels=["before", "after"], xlim=(-0.5, 1.5), ylabel="accuracy on Oz trials")
    for place, (name, values) in enumerate(maps.items(), 1):
        ax = figure.add_subplot(grid[place])
        image, _ = mne.viz.plot_topomap(
            values, info, axes=ax, show=False, vlim=(low, high), cmap="viridis", contours=0
        )
        ax.set_title(name, fontsize=8)
    figure.colorbar(image, ax=figure.axes[1:], label="log power, alpha", shrink=0.6)

# %%
# How far to trust this
# ---------------------
# Computed pairs are exact, so eight participants are enough here. If you have all raw trials, re-reference
# them instead; no correction is needed then. :doc:`../../start/real_eeg` has real recordings, in which the
# reference is also associated with the task.

plt.show()
