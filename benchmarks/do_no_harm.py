"""What evidence, anchors and targets within sources buy and cost: source and task scores, and movement.

    python benchmarks/do_no_harm.py [folder with corn_nir.npz and kalunga_gssc_tokens.npz]
    python benchmarks/do_no_harm.py [folder] --closed-form    # without the iterative maps: a minute or two
    python benchmarks/do_no_harm.py --chance     # how often corrections start without any effect

S is the best AUROC of four source readers (ordinary, strongly regularised and whitened logistic regression, a
GELU network), T_f and T_r the AUROC of a task head fitted before and after correction, M the relative
movement. Readers and heads are trained on one set of people or samples and scored on another.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mgpa
from mgpa.critics import fit_network

warnings.simplefilter("ignore")


def source_score(train, labels, test, truth):
    """Return the best of four readers."""
    import torch

    center = train.mean(0)
    C = np.cov(train.T, ddof=0)
    values, vectors = np.linalg.eigh(0.99 * C + (0.01 * np.trace(C) / len(C) + 1e-8) * np.eye(len(C)))
    whiten = vectors / np.sqrt(values) @ vectors.T
    views = [
        (train, test, 1.0),
        (train, test, 0.01),
        ((train - center) @ whiten, (test - center) @ whiten, 1.0),
    ]
    scores = [LogisticRegression(C=c, max_iter=3000).fit(a, labels).decision_function(b) for a, b, c in views]
    network = fit_network(
        torch.tensor(train, dtype=torch.float32), labels, 2, seeds=[1099], epochs=50, learning_rate=1e-3
    )
    scores.append(network.scores(torch.tensor(test, dtype=torch.float32))[:, 0].numpy())
    return max(roc_auc_score(truth, score) for score in scores)


def head(X, y):
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=2000)).fit(X, y)


def evaluate(m, train, test):
    """Return S, T_f, T_r and M of a map; train and test are (rows, source, task)."""

    def standardise(rows):
        return (rows - m.center) / m.scale

    before = standardise(train[0]), standardise(test[0])
    after = standardise(m.transform(train[0])), standardise(m.transform(test[0]))
    return (
        source_score(after[0], train[1], after[1], test[1]),
        roc_auc_score(test[2], head(before[0], train[2]).decision_function(after[1])),
        roc_auc_score(test[2], head(after[0], train[2]).decision_function(after[1])),
        np.linalg.norm(after[1] - before[1]) / np.linalg.norm(before[1]),
    )


def compare(name, X, source, pairs, train, test, rank, groups=None, *, stages=True):
    gate = mgpa.MeasurementGate(rank)
    published = mgpa.ClosedFormMGPA.paper(gate=gate).fit(X, source=source, pairs=pairs)
    within = mgpa.ClosedFormMGPA(gate=gate).fit(X, source=source, pairs=pairs, groups=groups)
    by_default = mgpa.ClosedFormMGPA().fit(X, source=source, pairs=pairs, groups=groups)
    print(f"\n{name}: {X.shape[0]} x {X.shape[1]}, gate rank {published.gate_.rank_}")
    maps = {
        "identity": published.to_map().with_strength(0.0),
        "closed form, published": published.to_map(),
        "closed form, this gate": within.to_map(),
        f"closed form, gate {by_default.gate_.rank_}": by_default.to_map(),
    }
    if stages:
        maps["48 stages"] = mgpa.IterativeMGPA.paper(gate=gate).fit(X, source=source, pairs=pairs).to_map()
        for target, label in {"conditional": "rule", "within": "default"}.items():
            model = mgpa.IterativeMGPA(gate=gate, target=target, random_state=17)
            model.fit(X, source=source, pairs=pairs, groups=groups)
            maps[f"{label}, {model.n_stages_} stages"] = model.to_map()
    for label, m in maps.items():
        S, T_f, T_r, M = evaluate(m, train, test)
        scores = f"S {S:.3f}   T_f {T_f:.3f}   T_r {T_r:.3f}   M {M:.3f}"
        print(f"  {label:<24} {scores}   {m.info.evidence}", flush=True)


def simulated(n, shift, association, seed=0, d=32, r=6, **options):
    rng = np.random.default_rng(seed)
    gate = np.linalg.qr(rng.normal(size=(d, r)))[0]
    mixing = np.linalg.qr(rng.normal(size=(d, d)))[0] * np.geomspace(2, 0.3, d)
    task_direction = rng.normal(size=d) / np.sqrt(d)
    effect = gate @ rng.normal(size=r)
    effect *= shift / np.linalg.norm(effect)

    def content(task):
        return rng.normal(size=(len(task), d)) @ mixing.T + 0.4 * (2 * task - 1)[:, None] * task_direction

    task = rng.integers(0, 2, n)
    source = (rng.random(n) < np.where(task == 1, association, 1 - association)).astype(int)
    X = content(task) + source[:, None] * effect
    events = content(rng.integers(0, 2, 200))
    pairs = (events, events + effect + 0.3 * rng.normal(size=(200, r)) @ gate.T)

    def both(m):
        y = rng.integers(0, 2, m)
        rows = content(y)
        return np.concatenate([rows, rows + effect]), np.repeat([0, 1], m), np.tile(y, 2)

    name = f"simulated, shift {shift}, association {association}"
    compare(name, X, source, pairs, both(500), both(500), r, **options)


def corn(folder, first, second, rank=0.99, **options):
    data = np.load(folder / "corn_nir.npz")
    spectra, moisture = data["spectra"].astype(float), data["targets"][:, 0]
    task = (moisture > np.median(moisture)).astype(int)
    order = np.random.default_rng(0).permutation(80)
    fit, train, test = order[:36], order[36:58], order[58:]

    def both(samples):
        rows = np.concatenate([spectra[samples, first], spectra[samples, second]])
        return rows, np.repeat([0, 1], len(samples)), np.tile(task[samples], 2)

    X, source, _ = both(fit)
    pairs = (spectra[fit, first], spectra[fit, second])
    groups = np.tile(np.arange(36), 2)
    name = f"corn, spectrometers {first} and {second}"
    compare(name, X, source, pairs, both(train), both(test), rank, groups, **options)


def kalunga(folder, gamma, rank, association=0.9, **options):
    data = np.load(folder / "kalunga_gssc_tokens.npz")
    keep = np.isin(data["label"], ["13Hz", "21Hz"])
    car, oz = (data[view][keep].mean(1).astype(float) for view in ("car", "oz"))
    people, task = data["participant"][keep], (data["label"][keep] == "21Hz").astype(int)
    rng = np.random.default_rng(0)
    order = rng.permutation(np.unique(people))
    fit, train, test = (np.isin(people, order[part]) for part in (slice(4), slice(6, 9), slice(9, 12)))
    middle, half = (car + oz) / 2, gamma / 2 * (oz - car)

    def both(rows):
        views = np.concatenate([middle[rows] - half[rows], middle[rows] + half[rows]])
        return views, np.repeat([0, 1], rows.sum()), np.tile(task[rows], 2)

    source = (rng.random(fit.sum()) < np.where(task[fit] == 1, association, 1 - association)).astype(int)
    X = middle[fit] + (2 * source - 1)[:, None] * half[fit]
    pairs = (car[fit], oz[fit])
    name = f"Kalunga SSVEP, reference contrast x {gamma}, association {association}"
    compare(name, X, source, pairs, both(train), both(test), rank, people[fit], **options)


def chance(n_fits=200, d=8):
    for n in (120, 300, 1000):
        started = {"closed form": 0, "iterative": 0}
        for seed in range(n_fits):
            rng = np.random.default_rng(seed)
            X, source = rng.normal(size=(n, d)), rng.integers(0, 2, n)
            A = rng.normal(size=(30, d))
            pairs = (A, A + rng.normal(size=(30, 3)) @ np.eye(3, d))
            # These pairs have directions, but no mean: the default gate would not take them for evidence.
            gate = mgpa.MeasurementGate(0.9)
            closed = mgpa.ClosedFormMGPA(gate).fit(X, source=source, pairs=pairs)
            staged = mgpa.IterativeMGPA(gate, critics=("linear",), n_stages=1, random_state=seed)
            started["closed form"] += closed.to_map().rank > 0
            started["iterative"] += staged.fit(X, source=source, pairs=pairs).n_stages_ > 0
        print(f"{n} rows without a source effect, {n_fits} fits; started {started}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    beside = Path(__file__).resolve().parents[2] / "shared" / "real"
    parser.add_argument("folder", nargs="?", type=Path, default=beside, help="of the real sets")
    parser.add_argument("--closed-form", action="store_true", help="leave the iterative maps out")
    parser.add_argument("--chance", action="store_true", help="count starts without any effect")
    asked = parser.parse_args()
    if asked.chance:
        return chance()
    options = {"stages": not asked.closed_form}
    for n in (150, 600, 3000):
        for shift, association in ((0.0, 0.5), (0.5, 0.5), (1.0, 0.9)):
            simulated(n, shift, association, **options)
    if not asked.folder.is_dir():
        return print("\nNo recordings given: real sets skipped.")
    corn(asked.folder, 0, 1, **options)
    corn(asked.folder, 1, 2, **options)
    for gamma, rank in ((0.0, 32), (0.001, 0.9), (0.005, 0.9), (0.005, 32), (1.0, 0.9)):
        kalunga(asked.folder, gamma, rank, **options)
    return None


if __name__ == "__main__":
    main()
