"""A correction inside a scikit-learn pipeline, cross-validated over participants without a leak.

    python examples/sklearn_pipeline.py

Pairs are named by ``pair_id``, one id per row, so every fold fits its correction on its own participants'
pairs. In training, headset and task are associated, as where patients and controls were measured in different
places; on new people it does not. A correction should make the headset unreadable and the task readable.
"""

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mgpa


def recordings(seed: int = 0):
    """Forty participants: one task or the other, mostly by its own headset; eight events seen by both."""
    rng = np.random.default_rng(seed)
    effect = np.zeros(12)
    effect[:3] = 1.0
    rows = []
    for person in range(40):
        task = person % 2
        for event in range(30):
            seen_by_both = event < 8
            usual = "B" if (rng.random() < 0.9) == bool(task) else "A"
            signal = rng.normal(size=12) + 0.6 * task * (np.eye(12)[5] + np.eye(12)[0])
            for headset in ("A", "B") if seen_by_both else (usual,):
                X = signal + (headset == "B") * effect + 0.3 * rng.normal(size=12)
                rows.append((X, task, headset, person * 100 + event if seen_by_both else -1, person))
    X, task, source, pair_id, participant = map(np.array, zip(*rows, strict=True))
    return X, task, source, pair_id, participant


def auroc(step, X, y, source, pair_id, participant):
    """Return the mean AUROC over folds of participants; ``step`` is fitted anew in every fold."""
    pipeline = make_pipeline(clone(step), StandardScaler(), LogisticRegression())
    # Judged on paired rows: there both headsets saw both tasks equally often.
    folds = [
        (train, test[pair_id[test] >= 0]) for train, test in GroupKFold(5).split(X, y, groups=participant)
    ]
    known = {"source": source, "pair_id": pair_id}
    scores = cross_validate(pipeline, X, y, cv=folds, scoring="roc_auc", params=known)
    return scores["test_score"].mean()


def main() -> None:
    X, task, source, pair_id, participant = recordings()
    steps = {
        "uncorrected": mgpa.baselines.Identity(),
        "LEACE": mgpa.baselines.LEACE(),
        "MGPA": mgpa.ClosedFormMGPA(),
    }
    for name, step in steps.items():
        with config_context(enable_metadata_routing=True):
            decoded = auroc(step, X, task, source, pair_id, participant)
            headset = auroc(step, X, source, source, pair_id, participant)
        print(f"{name:<12} task AUROC {decoded:.3f}   headset AUROC {headset:.3f} (chance 0.5)")


if __name__ == "__main__":
    main()
