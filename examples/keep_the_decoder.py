"""A decoder trained on one device, on rows of another one: a phone and a watch that 23 people wore at once.

    python examples/keep_the_decoder.py FOLDER    # with phone_watch.npz
    python examples/keep_the_decoder.py FOLDER --figure picture.svg

Each participant is scored once in each of three rounds of folds. Two fifths of the participants train a
decoder of five activities on one device; it is never changed. Another two fifths, who wore both devices, fit
the correction. The last fifth is scored: balanced accuracy on rows of the decoder's own device (home) and of
the other one (away). S is the AUROC of a quadratic reader of the device, .5 where it is hidden. ``told the
device`` is a ridge regression from paired views that is given the device of every row; MGPA is not.
docs/start/phone_watch.md tells the story.

Data: Matey-Sanz, Casteleyn and Granell (2023), Data in Brief 109809,
doi.org/10.5281/zenodo.8398688, CC BY 4.0.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.linear_model import RidgeClassifier, RidgeCV
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mgpa
from mgpa.audit import plots
from mgpa.baselines import LEACE
from mgpa.bench.datasets import DATASETS

DEVICES = ("phone", "watch")


# [methods]
def corrections(rows, people, own):
    """Return the methods, each a function of rows and of whether these are of the decoder's own device."""
    here, other = (rows[name] for name in (own, *(d for d in DEVICES if d != own)))
    source = np.repeat(DEVICES, len(people))
    stacked, paired = np.concatenate([rows[name] for name in DEVICES]), tuple(rows[name] for name in DEVICES)
    who = {"groups": np.tile(people, 2), "pair_groups": people}

    def fit(model):
        known = {} if isinstance(model, LEACE) else {"pairs": paired, **who}
        m = model.fit(stacked, source=source, **known).to_map()
        return lambda X, at_home: m.transform(X)

    center = other.mean(axis=0), other.std(axis=0)
    regression = RidgeCV(np.geomspace(0.1, 1e4, 16)).fit((other - center[0]) / center[1], here - other)
    return {
        "uncorrected": lambda X, at_home: X,
        "LEACE": fit(LEACE()),
        f'MGPA(reference="{own}")': fit(mgpa.MGPA(reference=own)),
        "MGPA()": fit(mgpa.MGPA()),
        "told the device": lambda X, at_home: (
            X if at_home else X + regression.predict((X - center[0]) / center[1])
        ),
    }


# [scores]
def readability(train, test):
    """Return the AUROC of the device: one Gaussian for each, with covariances that are shrunk a little."""
    label = [np.repeat([0, 1], [len(part) for part in views]) for views in (train, test)]
    reader = make_pipeline(StandardScaler(), QuadraticDiscriminantAnalysis(reg_param=0.1))
    reader.fit(np.concatenate(train), label[0])
    return roc_auc_score(label[1], reader.decision_function(np.concatenate(test)))


def measure(data, n_rounds=3):
    """Return home, away and S of every device's decoder and method: one value for each fold."""
    views = {name: data[name].astype(float) for name in DEVICES}
    activity, participant = data["label"], data["participant"]
    found = {}
    for seed in range(n_rounds):
        names = np.random.default_rng(seed).permutation(np.unique(participant))
        for fold in range(5):
            parts = [np.isin(participant, names[(np.arange(len(names)) - fold) % 5 == k]) for k in range(5)]
            scored, trains, fits = parts[0], parts[1] | parts[2], parts[3] | parts[4]
            for own, other in (DEVICES, DEVICES[::-1]):
                decoder = make_pipeline(StandardScaler(), RidgeClassifier(alpha=10, class_weight="balanced"))
                decoder.fit(views[own][trains], activity[trains])
                rows = {name: X[fits] for name, X in views.items()}
                for method, correct in corrections(rows, participant[fits], own).items():
                    home, away = correct(views[own][scored], True), correct(views[other][scored], False)
                    S = readability(
                        [correct(views[own][trains], True), correct(views[other][trains], False)],
                        [home, away],
                    )
                    accuracy = [
                        balanced_accuracy_score(activity[scored], decoder.predict(X)) for X in (home, away)
                    ]
                    found.setdefault((own, method), []).append([*accuracy, S])
    return found


# [end]
def draw(found, path):
    """Draw accuracy at home (hollow) and away (filled), a panel for each device's decoder."""
    import matplotlib.pyplot as plt

    methods = {
        "uncorrected": ("identity", "no correction"),
        "LEACE": ("leace", "LEACE"),
        "MGPA()": ("mgpa", "MGPA()"),
        "MGPA(reference=": ("mgpa", "MGPA(reference=…)"),
        "told the device": ("featmap", "regression,\ntold the device"),
    }
    with plots.style():
        figure, panels = plt.subplots(1, 2, figsize=(4.6, 2.2), sharey=True, layout="constrained")
        for panel, own in zip(panels, DEVICES, strict=True):
            for y, (start, (key, _)) in enumerate(methods.items()):
                [values] = [v for (d, name), v in found.items() if d == own and name.startswith(start)]
                home, away, _ = np.mean(values, axis=0)
                color = plots.colour_of(key)
                panel.plot([away, home], [y, y], color=color, lw=1.2)
                panel.plot(home, y, "o", color=color, mfc="white", ms=5.5)
                panel.plot(away, y, "o", color=color, ms=5.5)
                text = f"{away:.2f}".lstrip("0")
                panel.annotate(text, (away, y), (0, 5), textcoords="offset points", ha="center")
            panel.set(xlim=(0.2, 1), ylim=(len(methods) - 0.5, -0.7), xlabel="balanced accuracy")
            panel.set_title(f"A {own}'s decoder", loc="left")
            panel.set_yticks(range(len(methods)), [text for _, text in methods.values()])
        for face, text in (("white", "on its own device"), ("#444444", "on the other device")):
            panels[0].plot([], [], "o", color="#444444", mfc=face, label=text)
        figure.legend(loc="outside lower center", ncols=2)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    beside = Path(__file__).resolve().parents[2] / "shared" / "real"
    parser.add_argument("folder", nargs="?", type=Path, default=beside, help="with phone_watch.npz")
    parser.add_argument("--rounds", type=int, default=3, help="of folds")
    parser.add_argument("--figure", type=Path, help="draw the picture of the page")
    asked = parser.parse_args()
    found = measure(DATASETS["phone_watch"].open(asked.folder), asked.rounds)
    print(f"{'decoder of the':<16}{'correction':<26}{'home':>7}{'away':>7}{'S':>7}")
    for own in DEVICES:
        for (device, method), values in found.items():
            if device == own:
                home, away, S = np.mean(values, axis=0)
                print(f"{own:<16}{method:<26}{home:>7.3f}{away:>7.3f}{S:>7.3f}")
    print()
    for title in ("uncorrected", "LEACE", "MGPA(reference=", "MGPA()", "told the device"):
        of_both = np.mean([v for (_, method), v in found.items() if method.startswith(title)], axis=(0, 1))
        title = "MGPA(reference=its own)" if title == "MGPA(reference=" else title
        print(f"{'both':<16}{title:<26}" + "".join(f"{value:>7.3f}" for value in of_both))
    if asked.figure:
        draw(found, asked.figure)


if __name__ == "__main__":
    main()
