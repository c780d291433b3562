"""
Tokens: a device effect that changes within a trial
===================================================

This example is for users whose network returns several tokens per trial, for example one per window or patch.
A headset that picks up the flash of the screen changes only the first windows. Correcting the mean of the
tokens shifts all tokens equally, so each trial still reveals its headset. ``JointTokens`` corrects all tokens
of a trial as one vector.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mgpa
from mgpa.audit import plots
from mgpa.eeg import Trials, WindowedPower, encode
from mgpa.eeg.simulate import Device, background, draw_people, leadfield, record

# %%
# Trials of two headsets
# ----------------------
# In half of the trials, alpha falls after a cue at .5 s. The band picks up 15 µV of the screen's 10 Hz
# flicker for the first .4 s. Both headsets record the same brain signals.

CHANNELS = ("Fz", "Cz", "C3", "C4", "Pz", "P3", "P4", "O1", "O2")
SFREQ, SECONDS, TRIALS = 128.0, 2.0, 24
HEADSETS = (
    Device("cap", CHANNELS, SFREQ, "average", white=0.5e-6, highpass=0.5, lowpass=40.0),
    Device("band", CHANNELS, SFREQ, "average", white=1.0e-6, highpass=0.5, lowpass=30.0),
)
samples = int(SECONDS * SFREQ)
time = np.arange(samples) / SFREQ
flash = 15e-6 * np.sin(2 * np.pi * 10 * time) * (time < 0.4)


def record_trials(person):
    """Return one participant's trials by both headsets; a trial has one name in both, ``pair_id``."""
    rng = person.rng(0)
    cued = rng.permutation(np.arange(TRIALS) % 2).astype(bool)
    *places, moments = background(person, TRIALS * samples, SFREQ, rng)
    course = np.where(time > 0.6, 0.5, 1.0) * np.ones((TRIALS, 1))
    course[~cued] = 1.0
    moments[-3:] *= 3 * course.ravel()  # the alpha rhythm's three sources
    parts = []
    for headset in HEADSETS:
        volts = record(moments, leadfield(headset.electrodes, *places), headset, rng, sfreq=SFREQ)
        data = volts.reshape(len(CHANNELS), TRIALS, samples).swapaxes(0, 1)
        if headset.name == "band":
            data = data + flash * rng.uniform(0.5, 1.5, (TRIALS, 1, 1))
        parts.append(Trials(data, CHANNELS, SFREQ).with_columns(
            source=headset.name, participant=person.id, label=cued.astype(int),
            pair_id=[f"{person.id} trial {i}" for i in range(TRIALS)],
        ))  # fmt: skip
    return Trials.concatenate(parts)


people = draw_people([f"S{i + 1:02d}" for i in range(24)], random_state=3)
trials = Trials.concatenate([record_trials(person) for person in people])
windows = WindowedPower(window=0.5, step=0.25, low=4.0, high=32.0, width=4.0)
table = encode(trials, windows)  # seven windows of 9 channels x 7 bands
print(table)

# %%
# Correct the mean, or all tokens together
# ----------------------------------------

number = np.unique(table.participant, return_inverse=True)[1]
fit, head, new = (table.take((number >= low) & (number < low + 8)) for low in (0, 8, 16))
known = {"source": fit.source, "pair_id": fit.pair_id, "groups": fit.participant}
corrections = {
    "uncorrected": None,
    "TokenMean": mgpa.TokenMean(mgpa.MGPA(reference="cap")).fit(fit.X, **known),
    "JointTokens": mgpa.JointTokens(mgpa.MGPA(reference="cap")).fit(fit.X, **known),
}


def learner():
    """Return a linear classifier of all tokens."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=2000))


of_cap = head.source == "cap"
decoder = learner().fit(head.X[of_cap].reshape(of_cap.sum(), -1), head.label[of_cap])
tokens = {}
for name, model in corrections.items():
    seen, rows = (x.X if model is None else model.transform(x.X) for x in (head, new))
    tokens[name] = rows
    reader = learner().fit(seen.reshape(len(seen), -1), head.source == "band")
    flat = rows.reshape(len(rows), -1)
    auroc = roc_auc_score(new.source == "band", reader.decision_function(flat))
    right = [
        balanced_accuracy_score(new.label[new.source == s], decoder.predict(flat[new.source == s]))
        for s in ("cap", "band")
    ]
    on = f"accuracy on the cap {right[0]:.2f}, on the band {right[1]:.2f}"
    print(f"{name:<13}AUROC of the headset {auroc:.2f}   {on}")

# %%
# Alpha power from window to window
# ---------------------------------
# The plot shows means over trials without a cue of new participants. After ``TokenMean``, the effect of the
# flicker on the first windows remains, because all windows are lowered by the same amount. ``JointTokens``
# maps each window to the level of the cap.

of_alpha = [channel * 7 + 1 for channel in range(len(CHANNELS))]  # the second band, 8 to 12 Hz
middle = windows.window / 2 + windows.step * np.arange(table.X.shape[1])
with plots.style():
    figure, panels = plt.subplots(1, 3, figsize=(plots.PAGE, 2.4), sharey=True, layout="constrained")
    for ax, (name, rows) in zip(panels, tokens.items(), strict=True):
        for source, color in zip(("cap", "band"), plots.SOURCE_COLORS, strict=False):
            power = rows[(new.source == source) & (new.label == 0)][:, :, of_alpha].mean(axis=2)
            error = power.std(axis=0) / np.sqrt(len(power))
            ax.plot(middle, power.mean(axis=0), "o-", ms=4, color=color, label=source)
            ax.fill_between(
                middle,
                power.mean(axis=0) - 2 * error,
                power.mean(axis=0) + 2 * error,
                color=color,
                alpha=0.2,
                lw=0,
            )
        ax.axvspan(0, 0.4, color="#88888822", lw=0)
        ax.set_title(name, loc="left")
        ax.set_xlabel("s (middle of the window)")
    panels[0].set_ylabel("log power, 8 to 12 Hz")
    panels[0].legend()

# %%
# How far to trust this
# ---------------------
# ``JointTokens`` has as many features as all tokens together, and may change differences between tokens. If
# changes within a trial must be preserved exactly, correct the mean. :doc:`../../do_no_harm` compares both on
# tokens of a real network. For files, use ``mgpa fit --tokens joint``.

plt.show()
