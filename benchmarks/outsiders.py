"""S of the audit beside readers that are not in its bank, on corrected rows of real recordings.

    python benchmarks/outsiders.py --tools ../shared/tools              # the table of docs/audit.md
    python benchmarks/outsiders.py --tools ../shared/tools amplifiers corn --methods LEACE MGPA

Four sets: epochs as two simulated amplifiers would give them, corn on two spectrometers, a frozen network's
embeddings of epochs under two references, and a phone and a watch worn at once. Methods are fitted on FIT
participants, readers trained on corrected HEAD rows of others, scored on EVAL rows; roles rotate until all
have been EVAL. The outsiders are scikit-learn's, the network four times as wide as the bank's. Their best is
taken off its luck as S is. Twins: how often the audit's readers tell both views of an event apart.
"""

import argparse
import importlib
import sys
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import mgpa
from mgpa.audit import estimate, run_readers
from mgpa.audit.ranks import twin_accuracy, within_auroc
from mgpa.baselines import make_method

METHODS = {
    "identity": lambda: make_method("identity"),
    "LEACE": lambda: make_method("leace"),
    "closed form": lambda: mgpa.ClosedFormMGPA(on_missing="warn"),
    "MGPA": lambda: mgpa.MGPA(on_missing="warn"),
    "iterative": lambda: mgpa.IterativeMGPA(random_state=17, on_missing="warn"),
}
OUTSIDERS = {
    "kNN": lambda: KNeighborsClassifier(25),
    "RBF SVM": lambda: SVC(C=3.0),
    "RBF SVM, C 100": lambda: SVC(C=100.0),
    "forest": lambda: RandomForestClassifier(300, min_samples_leaf=3, random_state=0),
    "network of 512": lambda: MLPClassifier((512,), alpha=1e-3, max_iter=150, random_state=0),
    **{
        f"quadratic {share}": partial(QuadraticDiscriminantAnalysis, solver="eigen", shrinkage=share)
        for share in (0.05, 0.2, 0.5)
    },
}
ASSOCIATION = 0.9


def sets(tool, worlds, data):
    """Yield the sets as the tool has them: name, (view0, view1, task, who, rotations, gamma)."""
    yield "amplifiers", dict(worlds.amplifiers())["13Hz 21Hz gains 1.2 to 1.7"]
    for name, found in tool.open_sets():
        if name == "gssc-13Hz-21Hz":
            yield "kalunga", found
        elif name.startswith("corn") and name.lower().endswith("moisture"):
            yield name, found
            break
    worn = np.load(data / "phone_watch.npz")
    kinds = np.unique(worn["label"])[:2]
    chosen = np.flatnonzero(np.isin(worn["label"], kinds))[::4]
    who = worn["participant"][chosen].astype(str)
    rotations = tool.rotate(np.unique(who), 6, 6, 2)
    task = (worn["label"][chosen] == kinds[1]).astype(int)
    yield "phone and watch", (worn["phone"][chosen], worn["watch"][chosen], task, who, rotations, None)


def corrected(data, make_model):
    """Yield corrected HEAD and EVAL rows of every rotation: (rows, source, participant, event) twice."""
    first, second, task, who, rotations, gamma = data
    middle, half = (first + second) / 2, (second - first) / 2
    shown = (first, second) if gamma is None else (middle - gamma * half, middle + gamma * half)
    for number, roles in enumerate(rotations):
        rng = np.random.default_rng(number)
        fit, *judged = (np.isin(who, roles[role]) for role in ("FIT", "HEAD", "EVAL"))
        source = (rng.random(fit.sum()) < np.where(task[fit] == 1, ASSOCIATION, 1 - ASSOCIATION)).astype(int)
        X = np.where(source[:, None] == 1, shown[1][fit], shown[0][fit])
        center, spread = X.mean(axis=0), X.std(axis=0)

        def scaled(rows, center=center, spread=spread):
            return (rows - center) / np.where(spread > 0, spread, 1.0)

        model = make_model()
        pairs = {} if type(model).__name__ in ("LEACE", "Identity") else {
            "pairs": (scaled(first[fit]), scaled(second[fit]))
        }  # fmt: skip
        model.fit(scaled(X), source=source, **pairs)
        yield [
            (
                np.concatenate([model.transform(scaled(view[rows])) for view in shown]),
                np.repeat([0, 1], rows.sum()),
                np.tile(who[rows], 2),
                np.tile(np.flatnonzero(rows), 2),
            )
            for rows in judged
        ]


def outside(head, source, held):
    """Return every outsider's scores of EVAL rows."""
    scaler = StandardScaler().fit(head)
    head, held = scaler.transform(head), scaler.transform(held)
    scores = {}
    for name, make_outsider in OUTSIDERS.items():
        model = make_outsider().fit(head, source)
        if hasattr(model, "decision_function"):
            scores[name] = model.decision_function(held)
        else:
            scores[name] = model.predict_proba(held)[:, 1]
    return scores


def compared(data, make_model):
    """Return S, its reader, the best outsider's AUROC and name, and twin accuracy."""
    areas, twins = {"audit": [], "outside": []}, []
    for head, held in corrected(data, make_model):
        people = head[2], held[2]
        reading = {
            "audit": run_readers(*head[:2], held[0], bank="full", participants=people, device="cpu"),
            "outside": outside(*head[:2], held[0]),
        }
        who = np.unique(held[2], return_inverse=True)[1]
        for side, scores in reading.items():
            areas[side].append(within_auroc(np.stack(list(scores.values()), axis=1), held[1], who))
        stacked = np.stack(list(reading["audit"].values()), axis=1)
        twins.append(twin_accuracy(stacked, held[1], held[3], who))
    row = []
    for side, parts in areas.items():
        values, names = np.concatenate(parts), list(reading[side])
        row += [estimate(values, "best", n_draws=1).value, names[values.mean(axis=0).argmax()]]
    return [*row, estimate(np.concatenate(twins), "best", n_draws=1).value]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="*", help="beginnings of the sets' names; all by default")
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--tools", type=Path, required=True, help="folder of trade_off.py and worlds.py")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    sys.path.insert(0, str(arguments.tools))
    tool, worlds = (importlib.import_module(name) for name in ("trade_off", "worlds"))
    print("| set | method | S of the audit | best outsider | twins |\n|---|---|---|---|---|")
    for name, data in sets(tool, worlds, arguments.tools.parent / "real"):
        if arguments.sets and not name.startswith(tuple(arguments.sets)):
            continue
        for method in arguments.methods:
            S, reader, best, outsider, twin = compared(data, METHODS[method])
            row = f"{S:.3f} ({reader}) | {best:.3f} ({outsider}) | {twin:.3f}"
            print(f"| {name} | {method} | {row} |", flush=True)


if __name__ == "__main__":
    main()
