"""Real EEG: a reference electrode that is associated with the task. docs/start/real_eeg.md tells the story.

pip install moabb                                        # fetches the recordings (CC BY 4.0)
python examples/kalunga_reference.py --figure picture.svg
python examples/kalunga_reference.py --npz kalunga_epochs.npz   # or from an array that you have
"""

import argparse
from pathlib import Path

import numpy as np

import mgpa
from mgpa import audit, eeg
from mgpa.audit import Audit, plots
from mgpa.audit.plots import looks
from mgpa.audit.words import label

# [data]
FLICKER = ["13", "21"]
WITHOUT_OZ = ["O1", "O2", "PO3", "POz", "PO7", "PO8", "PO4"]


def from_moabb():
    """Twelve people look at a light of 13 or 21 Hz: seconds 2 to 5 of every trial."""
    from moabb.datasets import Kalunga2016
    from moabb.paradigms import SSVEP

    return eeg.from_moabb(Kalunga2016(), SSVEP(fmin=4, fmax=45, events=FLICKER, n_classes=2, tmax=3.0))


# [features]
VIEWS = {
    "average": lambda trials: eeg.rereference(trials, "average").pick(WITHOUT_OZ),
    "Oz": lambda trials: eeg.rereference(trials, "Oz").pick(WITHOUT_OZ),  # Oz itself is silent then
}
# Power at every flicker that was shown, and at its first harmonic: what an SSVEP decoder looks at.
FEATURES = eeg.BandPower([(f - 0.5, f + 0.5) for f in (13, 17, 21, 26, 34, 42)], segment=2.0)


# [shortcut]
def tied(table, share=0.9, seed=1):
    """Return the rows that were recorded: one reference per trial, Oz mostly where the light was at 21 Hz."""
    unusual = np.random.default_rng(seed).random(table.pair_id.max() + 1) < 1 - share
    fast = table.label == FLICKER[1]
    return table.source == np.where(fast ^ unusual[table.pair_id], "Oz", "average")


# [rotations]
ROLES = ("EVAL", "HEAD", "VAL", "FIT", "FIT", "FIT")
METHODS = {"LEACE": "leace", "MGPA": mgpa.MGPA()}


def compare(table):
    """Return the audit of all participants: six rotations, each scored on two who are in no fit."""
    people = np.unique(table.participant)
    parts = []
    for turn in range(6):
        role = {person: ROLES[(i - turn) % 6] for i, person in enumerate(people)}
        rows = table.with_columns(role=[role[person] for person in table.participant])
        fit = rows.rows("FIT")
        a, b = fit.paired_views()  # the pairs: the same trials under both references
        held = np.isin(rows.role, ("HEAD", "EVAL"))
        seen = rows.with_columns(pair_id=np.where(held, rows.pair_id, -1)).take(held | tied(rows))
        parts.append(audit.run(seen, METHODS, pairs=(fit.X[a], fit.X[b]), floor=False, verbose=False))
    return Audit.pool(parts)


# [end]
def from_npz(path):
    """Return the same trials from an array with X (trial, channel, sample), label, participant and so on."""
    data = np.load(path)
    names = np.char.rstrip(data["label"], "Hz")
    keep = np.isin(names, FLICKER)
    trials = eeg.Trials(
        1e-6 * data["X"][keep].astype(np.float64),
        data["channels"],
        float(data["sfreq"]),
        columns={"participant": data["participant"][keep], "label": names[keep]},
    )
    return eeg.crop(trials, 2 * int(data["sfreq"]), 5 * int(data["sfreq"]))


def draw(found, path):
    """Draw what is readable of the reference, what existing heads do, and what the shortcut costs."""
    import matplotlib.pyplot as plt

    shown = looks(found)
    with plots.style():
        figure, panels = plt.subplots(
            1, 3, figsize=(plots.PAGE, 2.3), width_ratios=[1, 1, 1.25], layout="constrained"
        )
        for panel, metric, title in (
            (panels[0], "S", "Which reference was it?"),
            (panels[1], "T_f", "Which light, for existing heads?"),
        ):
            for y, (name, look) in enumerate(shown.items()):
                e = found[name].estimate(metric)
                panel.plot([e.low, e.high], [y, y], color=look.color, lw=1.4)
                panel.plot(e.value, y, look.marker, color=look.color, ms=6)
                panel.annotate(
                    f"{e.value:.2f}", (e.value, y), (0, 6), textcoords="offset points", ha="center"
                )
            panel.axvline(0.5, color="#777777", ls=":", lw=0.9)
            panel.set(xlim=(0.35, 1.04), ylim=(len(shown) - 0.5, -0.7), xlabel="AUROC, people never seen")
            panel.set_title(title, loc="left")
            panel.set_yticks(range(len(shown)), [label(name) for name in shown])
        panels[1].set_yticklabels([])
        for i, (name, look) in enumerate(shown.items()):
            points = [found[name].estimate(metric) for metric in ("aligned", "independent", "reversed")]
            at = np.arange(3) + 0.04 * (i - 1)
            panels[2].plot(at, [e.value for e in points], look.marker + "-", color=look.color, ms=5)
            panels[2].vlines(at, [e.low for e in points], [e.high for e in points], color=look.color, lw=1)
            panels[2].annotate(label(name), (at[2] + 0.08, points[2].value), color=look.color, va="center")
        panels[2].axhline(0.5, color="#777777", ls=":", lw=0.9)
        panels[2].set_xticks(range(3), ["as in\ntraining", "gone", "reversed"])
        panels[2].set(xlim=(-0.25, 2.9), ylabel="AUROC", xlabel="how the reference goes with the light")
        panels[2].set_title("A head that learned the shortcut", loc="left")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--npz", type=Path, help="the trials in an array, instead of through MOABB")
    parser.add_argument("--figure", type=Path, help="draw the picture of the page")
    given = parser.parse_args()
    trials = from_npz(given.npz) if given.npz else from_moabb()
    table = eeg.encode(eeg.measure_views(trials, VIEWS), FEATURES)
    print(table)
    found = compare(table)
    print(found)
    for metric in ("S", "T_f", "T_r", "worst"):
        print(f"{metric:<6} MGPA minus identity  {found.contrast('MGPA', 'identity', metric):+.3f}")
        print(f"{metric:<6} MGPA minus LEACE     {found.contrast('MGPA', 'LEACE', metric):+.3f}")
        print(f"{metric:<6} LEACE minus identity {found.contrast('LEACE', 'identity', metric):+.3f}")
    for name in found.methods:
        held = [found[name].estimate(metric) for metric in ("aligned", "independent", "reversed")]
        print(f"{name:<9} shortcut: as in training {held[0]:.3f}, gone {held[1]:.3f}, reversed {held[2]:.3f}")
    if given.figure:
        draw(found, given.figure)


if __name__ == "__main__":
    main()
