"""Every method on one problem whose answer is known: given what is preserved, a device adds a constant.

The device adds δ to two of twelve coordinates, as in the paper's section 5; then all are rotated. In the
fitting rows device and task go together (most positive trials were recorded with the second device); in the
evaluation rows they do not. A good correction makes the device unreadable (S near .5) and leaves an existing
task head where it was (T_f as without correction).

End-to-end comparators replace the head: they have a score on the task, and dashes elsewhere. Methods that act
on signals come last: two amplifiers record the same rhythms, and the gap between their spectra is measured.

    python examples/compare_methods.py
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from scipy.signal import lfilter, welch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from mgpa.baselines import list_methods, make_method, split_source_difference, task_scores
from mgpa.operating_point import relative_movement

N_PRESERVED, N_GATE = 10, 2
# Small settings for the methods whose defaults are meant for larger data.
SETTINGS: dict[str, dict[str, Any]] = {
    "iterative_mgpa": {"random_state": 0},
    "igbp": {"random_state": 0, "n_stages": 10},
    "mance": {"random_state": 0, "n_rounds": 8, "n_steps": 200, "hidden": 64, "reference_size": 500},
    "ncm": {"rank": 1},
    "pisco": {"keep": 1.0},
    "augmentation_invariance": {"random_state": 0},
    "circe": {"random_state": 0, "n_epochs": 10},
    "cmmn": {"filter_size": 64},
    "riemannian_procrustes": {"max_iter": 50},
    "sdda": {"random_state": 0, "n_epochs": 10},
}
FEWER_ROWS = 500  # for the comparator that solves as many equations


def simulate(n: int, association: float, rng: np.random.Generator) -> dict[str, Any]:
    """Draw Q, then U given Q, then Z = m₀(Q) + Uδ + ε; the task is read from Q and Z together.

    ``association`` is the slope of the log odds of U on the task coordinate; 0 makes them independent.
    """
    y = rng.integers(2, size=n)
    Q = rng.normal(size=(n, N_PRESERVED))
    Q[:, 0] += 1.2 * (2 * y - 1)
    u = (rng.random(n) < 1 / (1 + np.exp(-association * Q[:, 0]))).astype(int)
    base = 0.6 * Q[:, :N_GATE] + rng.normal(size=(n, N_GATE))
    base[:, 0] += 0.5 * (2 * y - 1)
    shift = np.array([1.5, 1.5])
    rotation = np.linalg.qr(np.random.default_rng(7).normal(size=(N_PRESERVED + N_GATE,) * 2))[0]
    views = [np.concatenate([Q, base + source * shift], axis=1) @ rotation for source in (0, 1)]
    return {"X": np.where(u[:, None] == 1, views[1], views[0]), "y": y, "source": u, "views": views}


def compare(seed: int = 0, names: list[str] | None = None) -> dict[str, dict[str, float]]:
    """Return, for each method, source accessibility S, frozen-task AUROC T_f and movement M."""
    rng = np.random.default_rng(seed)
    fit, pairs = simulate(4000, 2.0, rng), simulate(300, 0.0, rng)["views"]
    head_rows, held, evaluation = (simulate(4000, 0.0, rng) for _ in range(3))
    head = LogisticRegression().fit(head_rows["X"], head_rows["y"])
    if names is None:
        names = [method.name for method in list_methods() if method.acts_on == "embeddings"]
    rows = {}
    for name in names:
        start = time.process_time()
        model = make_method(name, **SETTINGS.get(name, {}))
        model.fit(fit["X"], fit["y"], source=fit["source"], pairs=tuple(pairs))
        blind = model.tags.source_blind
        corrected = [
            model.transform(part["X"], **({} if blind else {"source": part["source"]}))
            for part in (held, evaluation)
        ]
        reader = LogisticRegression().fit(corrected[0], held["source"])
        rows[name] = {
            "S": roc_auc_score(evaluation["source"], reader.decision_function(corrected[1])),
            "T_f": roc_auc_score(evaluation["y"], head.decision_function(corrected[1])),
            "M": relative_movement(model, evaluation["X"], source=evaluation["source"]),
            "seconds": time.process_time() - start,
        }
    return rows


def compare_predictors(seed: int = 0) -> dict[str, dict[str, float]]:
    """Return each end-to-end comparator's score on the task, in the worse of the two sources.

    They learn the task from the rows in which it goes together with the device.
    """
    rng = np.random.default_rng(seed)
    fit, pairs = simulate(4000, 2.0, rng), simulate(300, 0.0, rng)["views"]
    evaluation = simulate(4000, 0.0, rng)
    rows = {}
    for name in ("head alone", "circe", "awar", "slope_bias"):
        start, few = time.process_time(), slice(None, FEWER_ROWS if name == "awar" else None)
        X, y, source = (fit[key][few] for key in ("X", "y", "source"))
        if name == "head alone":
            model = LogisticRegression().fit(X, y)
            scores = [
                roc_auc_score(evaluation["y"][part], model.decision_function(evaluation["X"][part]))
                for part in (evaluation["source"] == 0, evaluation["source"] == 1)
            ]
            rows[name] = {"T": min(scores)}
        elif name == "slope_bias":  # a regression: the AUROC of what it predicts
            model = make_method(name).fit(X, y.astype(float), source=source, pairs=tuple(pairs))
            predicted = model.predict(evaluation["X"], source=evaluation["source"])
            parts = [evaluation["source"] == s for s in (0, 1)]
            rows[name] = {"T": min(roc_auc_score(evaluation["y"][p], predicted[p]) for p in parts)}
        else:
            model = make_method(name, **SETTINGS.get(name, {}))
            model.fit(X, y, source=source, X_target=evaluation["X"][:FEWER_ROWS])
            scored = (evaluation[key] for key in ("X", "y", "source"))
            rows[name] = {"T": task_scores(model, *scored)["worst"]}
        rows[name]["seconds"] = time.process_time() - start
    return rows


def recordings(rng: np.random.Generator, n: int = 120) -> tuple[Any, Any, Any]:
    """Return trials of four channels, task and amplifier: the second one filters and mixes."""
    y, source, t = rng.integers(2, size=n), np.arange(n) % 2, np.arange(300) / 100
    X = rng.normal(size=(n, 4, 300))
    rhythm = np.sin(2 * np.pi * (10 * t + rng.random((n, 1))))
    X[:, :2] += ((0.3 + 0.5 * y)[:, None] * rhythm)[:, None]
    second = lfilter([1.0], [1.0, -0.5], np.einsum("ij,njt->nit", np.eye(4) + 0.3 * np.eye(4, k=1), X))
    return np.where((source == 1)[:, None, None], second, X), y, source


def compare_signals(seed: int = 0) -> dict[str, dict[str, float]]:
    """Return, for each method on signals, the gap of log spectra and of covariances, and the task's AUROC."""
    rng = np.random.default_rng(seed)
    (X, y, source), (new, new_y, new_source) = recordings(rng), recordings(rng)

    def gaps(Z: Any) -> dict[str, float]:
        spectra = [np.log10(welch(Z[new_source == s], nperseg=64)[1].mean(axis=0)) for s in (0, 1)]
        covariances = [np.mean([np.cov(trial) for trial in Z[new_source == s]], axis=0) for s in (0, 1)]
        sizes = [np.linalg.norm(C) for C in covariances]
        return {
            "log PSD": float(np.abs(spectra[1] - spectra[0]).mean()),
            "covariance": float(np.linalg.norm(covariances[1] - covariances[0]) / max(sizes)),
        }

    rows: dict[str, dict[str, float]] = {"no alignment": gaps(new)}
    for method in list_methods():
        start = time.process_time()
        if method.acts_on == "signals":
            model = make_method(method.name, **SETTINGS.get(method.name, {})).fit(X, y, source=source)
            Z = model.transform(new, source=new_source)
            if Z.ndim == 3:
                rows[method.name] = gaps(Z)
            else:  # an embedding: its task, from one amplifier to the other
                before = model.transform(X, source=source)
                head = LogisticRegression(max_iter=2000).fit(before[source == 0], y[source == 0])
                there = new_source == 1
                rows[method.name] = {"T": roc_auc_score(new_y[there], head.decision_function(Z[there]))}
        elif method.name == "sdda":  # the second amplifier has two channels
            model = make_method("sdda", channels=[0, 2], **SETTINGS["sdda"])
            model.fit(X[source == 0], y[source == 0], X_target=X[source == 1][:, [0, 2]])
            there = new_source == 1
            scored = new[there][:, [0, 2]], new_y[there], new_source[there]
            rows["sdda"] = {"T": task_scores(model, *scored)["worst"]}
        else:
            continue
        rows[method.name]["seconds"] = time.process_time() - start
    return rows


def table(rows: dict[str, dict[str, float]]) -> str:
    """Return results as text, with dashes where a method has none."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    columns.sort(key=lambda column: column == "seconds")
    lines = [f"{'method':<24}" + "".join(f"{column:>11}" for column in columns)]
    for name, row in rows.items():
        values = (f"{row[c]:11.1f}" if c == "seconds" else f"{row[c]:11.3f}" for c in columns if c in row)
        by_column = dict(zip((c for c in columns if c in row), values, strict=True))
        lines.append(f"{name:<24}" + "".join(by_column.get(c, f"{'-':>11}") for c in columns))
    return "\n".join(lines)


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = compare() | compare_predictors() | compare_signals()
    print(table(rows))
    rng = np.random.default_rng(0)
    fit, pairs = simulate(4000, 2.0, rng), simulate(300, 0.0, rng)["views"]
    print("\nWhat differs between the sources of the fitting rows, in standard deviations a feature:")
    print(split_source_difference(fit["X"], fit["source"], pairs=tuple(pairs)))


if __name__ == "__main__":
    main()
