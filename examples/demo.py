"""Two headsets, one task, and an unlucky recording plan: fit a correction, store it, apply it blind.

Most "left hand" trials were recorded with headset B, so a decoder can score by recognising the headset.
Forty events recorded by both headsets at once are enough to separate the two.
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mgpa

D, RESPONSE_RANK = 48, 5
rng = np.random.default_rng(7)
MIXING = rng.normal(size=(D, D)) / np.sqrt(D) + np.eye(D)
TASK = rng.normal(size=D)
RESPONSE = rng.normal(size=(RESPONSE_RANK, D))  # directions in which the hardware moves embeddings
OFFSET = 2.0 * np.array([1.0, -0.5, 0.3, 0.2, -0.1]) @ RESPONSE / np.sqrt(D)


def content(task):
    """What the brain did: the same whichever headset watches."""
    return rng.normal(size=(len(task), D)) @ MIXING + 0.12 * (2 * task - 1)[:, None] * TASK


def headset_b(embedding):
    """What headset B adds: a common offset and a response that varies from event to event."""
    wobble = 0.3 * rng.normal(size=(len(embedding), RESPONSE_RANK)) @ RESPONSE / np.sqrt(D)
    return embedding + OFFSET + wobble


def observe(n, association):
    """Return embeddings, headset and task; ``association`` is how often left hand goes with headset B."""
    task = rng.integers(0, 2, n)
    on_b = rng.random(n) < np.where(task == 1, association, 1 - association)
    events = content(task)
    return np.where(on_b[:, None], headset_b(events), events), np.where(on_b, "B", "A"), task


def auroc(train, labels, test, truth):
    """Return how well a fresh linear reader ranks new rows."""
    reader = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(train, labels)
    return roc_auc_score(truth, reader.decision_function(test))


def main():
    X, headset, _ = observe(3000, association=0.9)  # fitting data: task and headset entangled
    calibration = content(rng.integers(0, 2, 40))
    pairs = (calibration, headset_b(calibration))  # 40 events seen by both headsets

    model = mgpa.ClosedFormMGPA().fit(X, source=headset, pairs=pairs)
    models = {"closed form": model}
    try:
        models["iterative"] = mgpa.IterativeMGPA(random_state=0, verbose=True).fit(
            X, source=headset, pairs=pairs
        )
    except ImportError as missing:
        print(f"(skipping the iterative map: {missing})")

    with tempfile.TemporaryDirectory() as folder:
        path = model.to_map().save(Path(folder) / "headsets.safetensors")
        print(
            f"Stored in one file of {path.stat().st_size / 1024:.0f} kB:\n{mgpa.load_map(path).summary()}\n"
        )

    head_X, _, head_task = observe(2000, association=0.9)  # the decoder's own, entangled data
    new_X, new_source, new_task = observe(4000, association=0.1)  # later: the association has reversed
    decoder = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(head_X, head_task)
    reader_X, reader_source, _ = observe(2000, association=0.5)

    print(f"{'':14}{'headset readable':>18}{'existing decoder,':>20}{'moved by':>11}")
    print(f"{'':14}{'(AUROC, want .5)':>18}{'association flipped':>20}")
    identity = model.to_map().with_strength(0.0)
    for name, m in {"uncorrected": identity, **{k: v.to_map() for k, v in models.items()}}.items():
        corrected = m.transform(new_X)
        readable = auroc(m.transform(reader_X), reader_source == "B", corrected, new_source == "B")
        task = roc_auc_score(new_task, decoder.decision_function(corrected))
        moved = mgpa.endpoint.relative_movement(m, new_X)
        print(f"{name:14}{readable:>18.3f}{task:>20.3f}{moved:>11.3f}")


if __name__ == "__main__":
    main()
