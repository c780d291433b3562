"""From raw EEG to an audit: one recording seen against two references, fixed features, two corrections.

People look at flickering lights. Every trial is measured twice, against the average of all channels and
against Oz; nothing but the reference differs, so both views of a trial are a true pair. Power in narrow bands
tells how fast the light was, and gives the reference away. Corrections are fitted on some people; on others
the audit asks whether the reference can still be told, and whether the task survived.

    python examples/raw_eeg.py                # simulated recordings
    python examples/raw_eeg.py epochs.npz     # your own

The file holds X (trial, channel, sample) in microvolts, label, participant, channels (Oz among them) and
sfreq. A few people are judged: look at the intervals, not only at the numbers.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from mgpa import audit
from mgpa.audit.verdict import findings
from mgpa.eeg import BandPower, Trials, crop, encode, measure_views, rereference, scale_table
from mgpa.tables import Table, assign_roles

LEGEND = """
S: how well the reference can be read, .5 is a coin; floor: the same from what the gate preserves, so S cannot
fall below it. T_f, T_r: the task by a decoder trained on uncorrected and on corrected rows. M: how far rows
moved. worst, control: a decoder trained where reference and task go together, once that turns; and one
trained where they do not. In brackets, 95 % intervals over people.

Another reference mixes the channels anew: it moves the means of band powers, and also changes how they vary
together. Corrections of means leave the second, and S shows it while it is large (x 1)."""

# Two hertz each, from alpha to the second harmonic of a fast flicker.
FEATURES = BandPower([(low, low + 2) for low in range(8, 44, 2)], segment=2.0)


def simulated(folder: Path, n_people: int = 20) -> Trials:
    """Write simulated files of a public collection and read them: slow flicker (0) against fast (1)."""
    from mgpa.paper import read_wearable_ssvep, simulate_ssvep

    simulate_ssvep(folder, n_people=n_people, blocks=2)
    trials = read_wearable_ssvep(folder, electrodes="wet", blocks=2)
    return crop(trials, 160, 660)  # two seconds, from when the light reaches the cortex


def stored(path: Path, labels: tuple[str, str], start: float) -> Trials:
    """Read trials of two labels from an .npz file, from ``start`` seconds on."""
    with np.load(path) as file:
        keep = np.isin(file["label"], labels)
        columns = {name: file[name][keep] for name in ("label", "participant")}
        data = file["X"][keep].astype(np.float32) * np.float32(1e-6)
        trials = Trials(data, file["channels"], float(file["sfreq"]), columns=columns)
    return crop(trials, round(start * trials.sfreq), data.shape[2])


def two_references(trials: Trials) -> Table:
    """Return features of both views of every trial; each participant has one role."""
    both = measure_views(
        trials,
        {"car": lambda t: rereference(t, "average"), "oz": lambda t: rereference(t, "Oz")},
    )
    both = both.with_columns(role=assign_roles(both.columns["participant"], random_state=0))
    return encode(both, FEATURES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("epochs", type=Path, nargs="?", help="an .npz file; without it, simulated recordings")
    parser.add_argument("--labels", nargs=2, default=("13Hz", "21Hz"), help="the two to tell apart")
    parser.add_argument("--from", type=float, default=2.0, dest="start", help="seconds to leave out")
    options = parser.parse_args()

    if options.epochs is None:
        with tempfile.TemporaryDirectory() as folder:
            trials = simulated(Path(folder))
    else:
        trials = stored(options.epochs, tuple(options.labels), options.start)
    print(trials)
    print(LEGEND)

    table = two_references(trials)
    # The reference as it is, and its effect scaled down, as in the paper's controlled study.
    for gamma in (1.0, 0.05):
        result = audit.run(
            scale_table(table, gamma), ["leace", "closed_form_mgpa"], readers={"restarts": 0}, verbose=False
        )
        print(f"\nthe change of reference x {gamma:g}\n{result}")
        for name in result.methods[1:]:
            print(f"{name}: {' '.join(findings(result, name))}")


if __name__ == "__main__":
    main()
