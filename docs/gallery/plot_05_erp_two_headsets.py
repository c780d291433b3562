"""
ERPs of two headsets: waveforms and scalp maps, before and after
================================================================

This example is for users who pool event-related potentials of two headsets, or use one decoder for both. A
laboratory cap has the average reference. A headset has its reference at the forehead, stronger filters and
uneven gains. Its waveforms differ from those of the cap, so a decoder of the cap fails on them. Twelve
participants wore both at the same time. From their events, ``MGPA(reference="cap")`` learns the effect of the
headset and maps the waveforms of other participants to those of the cap.

.. index:: ! ERP, ! topography, ! scalp map
"""

import matplotlib.pyplot as plt
import mne
import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import balanced_accuracy_score

import mgpa
from mgpa.audit import plots
from mgpa.eeg import TemporalBins, Trials, encode
from mgpa.eeg.simulate import Device, background, below, draw_people, joined, leadfield, record
from mgpa.eeg.trials import standard_montage

# %%
# The recordings
# --------------
# Simulated participants see frequent and rare events. Rare events evoke a positive wave over parietal
# electrodes (P300). Both devices record the same brain signals.

CHANNELS = ("Fz", "F3", "F4", "Cz", "C3", "C4", "Pz", "P3", "P4", "Oz", "O1", "O2")
SFREQ, EVERY, EVENTS = 128.0, 1.0, 40  # samples a second, seconds between events, events of a participant
gains = tuple(1 - 0.5 * np.random.default_rng(0).random(len(CHANNELS)))
DEVICES = (
    Device("cap", CHANNELS, SFREQ, "average", white=0.5e-6, highpass=0.1, lowpass=40.0),
    Device("headset", CHANNELS, SFREQ, "AFz", white=1.0e-6, highpass=0.5, lowpass=20.0, gains=gains),
)


def record_events(person):
    """Return the trials of a participant on both devices; trials of one event have the same ``pair_id``."""
    rng = person.rng(0)
    rare = rng.permutation(np.arange(EVENTS) % 2).astype(bool)
    onsets = np.round((2 + EVERY * np.arange(EVENTS)) * SFREQ).astype(int)
    *places, moments = background(person, int((EVENTS + 4) * SFREQ), SFREQ, rng)
    time = np.arange(int(0.8 * SFREQ)) / SFREQ
    wave = np.zeros((1, moments.shape[1]))
    for onset, is_rare in zip(onsets, rare, strict=True):
        p300 = (0.4 + 1.2 * is_rare) * np.exp(-0.5 * ((time - 0.36 - person.latency) / 0.07) ** 2)
        wave[0, onset : onset + len(time)] += 60e-9 * person.gain * p300
    *places, moments = joined((*places, moments), (*below(person, ["Pz"]), wave))
    parts = []
    for device in DEVICES:
        volts = record(moments, leadfield(device.electrodes, *places), device, rng, sfreq=SFREQ)
        data = np.stack([volts[:, onset : onset + len(time)] for onset in onsets])
        parts.append(Trials(data, CHANNELS, SFREQ).with_columns(
            source=device.name, participant=person.id, label=rare.astype(int),
            pair_id=[f"{person.id} event {i}" for i in range(EVENTS)],
        ))  # fmt: skip
    return Trials.concatenate(parts)


people = draw_people([f"S{i + 1:02d}" for i in range(24)], random_state=0)
trials = Trials.concatenate([record_events(person) for person in people])
bins = TemporalBins(0.0, 0.75, 0.05)
table = encode(trials, bins)  # 12 channels x 15 bins, in microvolts
print(table)

# %%
# Fit on twelve participants, plot twelve others
# ----------------------------------------------
# ``groups`` contains the participants, so that held-out pairs come from other participants.

was_fitted = np.isin(table.participant, [person.id for person in people[:12]])
fit, new = table.take(was_fitted), table.take(~was_fitted)
model = mgpa.MGPA(reference="cap")
model.fit(fit.X, source=fit.source, pair_id=fit.pair_id, groups=fit.participant)
print(model.to_map().summary())

corrected = model.transform(new.X)
of_cap = fit.source == "cap"
decoder = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(fit.X[of_cap], fit.label[of_cap])
for name, rows in {"before": new.X, "after": corrected}.items():
    cap, headset = (
        balanced_accuracy_score(new.label[new.source == s], decoder.predict(rows[new.source == s]))
        for s in ("cap", "headset")
    )
    print(f"{name:<7} accuracy of the cap's decoder: {cap:.2f} on the cap, {headset:.2f} on the headset")

# %%
# Waveforms and maps
# ------------------
# Features are voltages in time bins, so corrected features can be plotted as waveforms and scalp maps. The
# plots show averages of rare events over new participants. After correction, the wave of the headset at Pz is
# as high as that of the cap, and its scalp map no longer shows the forehead reference.

AT = 7  # the bin from 350 to 400 ms
rare = new.label == 1
waves = {
    "cap": new.X[rare & (new.source == "cap")],
    "headset": new.X[rare & (new.source == "headset")],
    "headset, corrected": corrected[rare & (new.source == "headset")],
}
waves = {name: rows.mean(axis=0).reshape(len(CHANNELS), bins.n_bins) for name, rows in waves.items()}
looks = {
    "cap": (plots.SOURCE_COLORS[0], "-"),
    "headset": (plots.SOURCE_COLORS[1], "--"),
    "headset, corrected": (plots.SOURCE_COLORS[1], "-"),
}
info = mne.create_info(list(CHANNELS), SFREQ, "eeg").set_montage(standard_montage())
top = max(np.abs(wave[:, AT]).max() for wave in waves.values())
with plots.style():
    figure = plt.figure(figsize=(plots.PAGE, 2.2), layout="constrained")
    grid = figure.add_gridspec(1, 4, width_ratios=(1.8, 1, 1, 1))
    ax = figure.add_subplot(grid[0])
    centres = 1e3 * (np.arange(bins.n_bins) + 0.5) * bins.width
    for name, (color, line) in looks.items():
        ax.plot(centres, waves[name][CHANNELS.index("Pz")], line, color=color, label=name)
    ax.axvspan(350, 400, color="#88888833", lw=0)
    ax.set(xlabel="ms after a rare event", ylabel="µV at Pz", ylim=(-17, 18))
    ax.legend(loc="lower left", fontsize=7)
    for place, (name, wave) in enumerate(waves.items(), 1):
        ax = figure.add_subplot(grid[place])
        image, _ = mne.viz.plot_topomap(
            wave[:, AT], info, axes=ax, show=False, vlim=(-top, top), cmap="RdBu_r", contours=0
        )
        ax.set_title(name, fontsize=8)
    figure.colorbar(image, ax=figure.axes[1:], label="µV, 350 to 400 ms", shrink=0.6)

# %%
# How far to trust this
# ---------------------
# Both devices recorded the same brain signals without lost markers, and twelve participants wore both. With
# your own data, audit the fit (:doc:`../../start/from_epochs` leads from epochs to a report) and check
# *home*: in this example, the decoder of the cap is as accurate on the cap as before.

plt.show()
