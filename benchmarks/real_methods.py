"""Every method on real recordings: a phone and a watch worn at once, and EEG under two references.

    python benchmarks/real_methods.py phone_watch.npz       # corrections of embeddings, and decoders
    python benchmarks/real_methods.py kalunga_epochs.npz    # methods on signals
    python benchmarks/real_methods.py phone_watch.npz leace mgpa    # some methods

Phone and watch: an audit of five folds over participants, without networks among the readers. S is the
AUROC of the best source reader, home and away the balanced accuracy of existing heads on their own and on
the other device (of decoders, which replace the head, that of a new one), seconds the CPU time of one fit on
all rows.

Kalunga: 13 against 21 Hz under the common average and against Oz, on the other seven channels; participants
are split into five folds. The gap is that of mean log spectra, S reads the reference from log spectra of new
participants, away is the AUROC of a decoder of the common average on rows against Oz.
"""

import argparse
import time
import warnings

import numpy as np
from scipy.signal import decimate, welch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mgpa
from mgpa.baselines import circe, list_methods, make_method

SETTINGS = {
    "iterative_mgpa": {"random_state": 17, "device": "cpu"},
    "igbp": {"random_state": 17, "n_stages": 10, "device": "cpu"},
    "mance": {"random_state": 17, "n_rounds": 8, "n_steps": 200, "reference_size": 500, "device": "cpu"},
    "augmentation_invariance": {"random_state": 17, "device": "cpu"},
    "circe": {"random_state": 17, "device": "cpu"},
    "sdda": {"random_state": 17, "n_epochs": 40, "kernel_size": 33, "device": "cpu"},
    "euclidean_alignment": {"ridge": 1e-6},
    "cmmn": {"filter_size": 128},
}
READERS = {"restarts": 0}


def phone_watch(path, names):
    with np.load(path) as data:
        views = [data["phone"], data["watch"]]
        columns = {"label": data["label"], "participant": data["participant"]}
    n = len(views[0])
    table = mgpa.tables.Table(
        np.concatenate(views).astype(np.float64),
        source=np.repeat(["phone", "watch"], n),
        pair_id=np.tile(np.arange(n), 2),
        **{name: np.tile(values, 2) for name, values in columns.items()},
    )
    usable = [
        m.name for m in list_methods() if m.acts_on != "signals" and m.name not in ("sdda", "slope_bias")
    ]
    print(f"{n} events of {len(np.unique(table.participant))} people, 48 features, five activities")
    print(f"{'':<26}{'S':>6}{'home':>8}{'away':>8}{'seconds':>9}")
    for name in names or usable:
        model = make_method(name, **SETTINGS.get(name, {}))
        audit = mgpa.audit.run(
            table, {name: model} if name != "identity" else [], folds=5, repeats=1, seeds=(17,),
            readers=READERS, floor=False, verbose=False,
        )  # fmt: skip
        fresh, start = make_method(name, **SETTINGS.get(name, {})), time.process_time()
        few = slice(None, None, 7) if name == "awar" else slice(None)  # a system of as many equations as rows
        if name in audit.decoders:
            goal = table.X[table.source == "watch"][few]
            fresh.fit(table.X[few], table.label[few], source=table.source[few], X_target=goal)
        else:
            fresh.fit(table.X, table.label, source=table.source, pair_id=table.pair_id)
        seconds = time.process_time() - start
        result, cells = audit[name], []
        for metrics in (("S",), ("home",), ("away", "A_r", "A_p")):
            if name in audit.decoders:
                metrics = metrics if len(metrics) > 1 else ()
            value = next((result.estimate(m).value for m in metrics if result.has(m)), None)
            cells.append("–" if value is None else f"{value:.3f}".lstrip("0"))
        print(f"{name:<26}{cells[0]:>6}{cells[1]:>8}{cells[2]:>8}{seconds:>9.1f}", flush=True)
    # One row a participant, device and activity: rows of one person are not independent.
    keys = np.stack([table.participant, table.source, table.label], axis=1)
    cells, cell = np.unique(keys, axis=0, return_inverse=True)
    rows = np.stack([table.X[cell == k].mean(axis=0) for k in range(len(cells))])
    _, source, label = cells.T
    print(f"CIRCE of uncorrected rows: p = {circe(rows, source, label).p_value:.3f}")
    fitted = mgpa.MGPA().fit(table.X, source=table.source, pair_id=table.pair_id)
    print(f"CIRCE after MGPA: p = {circe(fitted.transform(rows), source, label).p_value:.3f}")
    print(mgpa.baselines.split_source_difference(
        table.X, table.source, pair_id=table.pair_id, groups=table.participant
    ))  # fmt: skip


def spectra(X):
    """Return log spectra between 4 and 45 Hz, (trials, channels, frequencies)."""
    f, P = welch(X, fs=256, nperseg=256)
    return np.log10(P[..., (f >= 4) & (f <= 45)] + 1e-12)


def decoder():
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=5000))


def kalunga(path, names):
    with np.load(path) as data:
        kept = np.isin(data["label"], ["13Hz", "21Hz"])
        X, y, people = data["X"][kept].astype(np.float64), data["label"][kept] == "21Hz", data["participant"]
        people, oz = people[kept], data["channels"].tolist().index("Oz")
    seven = np.delete(np.arange(X.shape[1]), oz)
    scale = X.std()
    views = [(X - X.mean(axis=1, keepdims=True))[:, seven] / scale, (X - X[:, [oz]])[:, seven] / scale]
    short = [decimate(view, 4) for view in views]  # for the network: 64 Hz hold both rhythms
    signals = ["no alignment", *(m.name for m in list_methods() if m.acts_on == "signals"), "sdda"]
    print(f"{len(X)} trials of {len(np.unique(people))} people, seven channels, common average and Oz")
    print(f"{'':<26}{'gap':>6}{'S':>8}{'away':>8}{'seconds':>9}")
    for name in names or signals:
        scores, seconds = [], 0.0
        for fit, new in GroupKFold(5).split(X, groups=people):
            both = [np.concatenate([view[part] for view in views]) for part in (fit, new)]
            source, new_source = (np.repeat(["car", "oz"], len(part)) for part in (fit, new))
            labels, start = y[fit], time.process_time()
            if name == "sdda":
                model = make_method(name, channels=list(range(7)), **SETTINGS["sdda"])
                model.fit(short[0][fit], labels, X_target=short[1][fit])
                seconds += time.process_time() - start
                scores.append((np.nan, np.nan, roc_auc_score(y[new], model.decision_function(short[1][new]))))
                continue
            if name != "no alignment":
                model = make_method(name, **SETTINGS.get(name, {}))
                model.fit(both[0], np.tile(labels, 2), source=source)
                both = [model.transform(Z, source=s) for Z, s in zip(both, (source, new_source), strict=True)]
            seconds += time.process_time() - start
            gap, rows = np.nan, both
            if both[0].ndim == 3:
                rows = [spectra(Z) for Z in both]
                gap = np.abs(np.subtract(*(rows[1][new_source == s].mean(0) for s in ("car", "oz")))).mean()
                rows = [Z.reshape(len(Z), -1) for Z in rows]
            S = roc_auc_score(new_source == "oz", decoder().fit(rows[0], source).decision_function(rows[1]))
            head = decoder().fit(rows[0][source == "car"], labels)
            scores.append(
                (gap, S, roc_auc_score(y[new], head.decision_function(rows[1][new_source == "oz"])))
            )
        cells = ("–" if np.isnan(value) else f"{value:.3f}".lstrip("0") for value in np.mean(scores, axis=0))
        print(f"{name:<26}" + "{:>6}{:>8}{:>8}".format(*cells) + f"{seconds / 5:>9.1f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    (kalunga if "kalunga" in options.file else phone_watch)(options.file, options.names)


if __name__ == "__main__":
    main()
