"""A correction inside a scikit-learn pipeline, cross-validated over participants without a leak.

    python examples/sklearn_pipeline.py

Pairs are named by ``pair_id``, one id per row, so every fold fits its gate on its own participants' pairs.
"""

import numpy as np
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mgpa


def recordings(seed: int = 0):
    """Thirty participants seen by two headsets at once, task on one feature, headset on three."""
    rng = np.random.default_rng(seed)
    participant, event = np.repeat(np.arange(30), 40), np.repeat(np.arange(600), 2)
    source, task = np.tile(["A", "B"], 600), np.repeat(rng.integers(2, size=600), 2)
    effect = np.zeros(12)
    effect[:3] = 1.5
    X = rng.normal(size=(600, 12))[event] + (source == "B")[:, None] * effect
    X[:, 5] += 1.2 * task
    return X + 0.3 * rng.normal(size=X.shape), task, source, event, participant


def main() -> None:
    X, task, source, event, participant = recordings()
    for name, step in {
        "uncorrected": "passthrough",
        "LEACE": mgpa.baselines.LEACE(),
        "MGPA": mgpa.ClosedFormMGPA(),
    }.items():
        with config_context(enable_metadata_routing=True):
            pipeline = make_pipeline(step, StandardScaler(), LogisticRegression())
            known = {"groups": participant}
            if step != "passthrough":
                known |= {"source": source, "pair_id": event}
            scores = cross_validate(pipeline, X, task, cv=GroupKFold(5), scoring="roc_auc", params=known)
        print(f"{name:<12} task AUROC {scores['test_score'].mean():.3f} over 5 folds of participants")


if __name__ == "__main__":
    main()
