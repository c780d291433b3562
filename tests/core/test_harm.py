"""What a correction does to existing heads where source and task are associated: real measurements."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mgpa
from shared import SHARED

pytestmark = pytest.mark.skipif(
    not (SHARED / "real").is_dir(), reason="the real data are not on this machine"
)


def corn(instruments, target):
    """Return both instruments' spectra of all samples, a chemical value as the task, and blocks."""
    data = np.load(SHARED / "real" / "corn_nir.npz")
    value = data["targets"][:, target]
    block = np.empty(len(value), int)
    for n, part in enumerate(np.array_split(np.random.default_rng(3).permutation(len(value)), 8)):
        block[part] = n
    views = [data["spectra"][:, i] for i in instruments]
    return views, views, (value > np.median(value)).astype(int), block, (2, 2, 1)


def ssvep(first, second, gamma):
    """Return trials under two references, their contrast scaled by γ, and the whole contrast as pairs."""
    data = np.load(SHARED / "real" / "kalunga_gssc_tokens.npz")
    rows = np.isin(data["label"], [first, second])
    whole = [data[name].mean(1)[rows].astype(float) for name in ("car", "oz")]
    middle, half = (whole[0] + whole[1]) / 2, (whole[1] - whole[0]) / 2
    people = np.unique(data["participant"][rows], return_inverse=True)[1]
    views = [middle - gamma * half, middle + gamma * half]
    return views, whole, (data["label"][rows] == second).astype(int), people, (3, 3, 2)


def rotations(people, sizes):
    """Yield masks of FIT, HEAD and EVAL rows until each participant has been EVAL once."""
    everyone = np.unique(people)
    for k in range(0, len(everyone), sizes[0]):
        order = np.roll(everyone, -k)
        cut = np.cumsum(sizes)
        yield (np.isin(people, who) for who in (order[cut[2] :], order[cut[0] : cut[1]], order[: cut[0]]))


def outcomes(setting, models, readers=False):
    """Return each model's T_f and S: heads and readers of other people, FIT rows nine to one by task."""
    views, whole, task, people, sizes = setting
    found = {name: ([], []) for name in models}
    for n, (fit, head, judged) in enumerate(rotations(people, sizes)):
        odds = np.where(task[fit] == 1, 0.9, 0.1)
        u = (np.random.default_rng(n).random(fit.sum()) < odds).astype(int)
        X = np.where(u[:, None] == 1, views[1][fit], views[0][fit])
        for name, model in models.items():
            fitted = model.fit(X, source=u, pairs=(whole[0][fit], whole[1][fit]))
            before = [view[head] for view in views]
            after = [[fitted.transform(view[rows]) for view in views] for rows in (head, judged)]
            for a in (0, 1):
                ridge = make_pipeline(StandardScaler(), RidgeClassifier(alpha=10, class_weight="balanced"))
                scores = ridge.fit(before[a], task[head]).decision_function(after[1][1 - a])
                for person in np.unique(people[judged]):
                    mine = people[judged] == person
                    found[name][0].append(roc_auc_score(task[judged][mine], scores[mine]))
            if readers:
                found[name][1].append(_source_score(*after))
    return {name: (np.mean(heads), np.mean(sources or [np.nan])) for name, (heads, sources) in found.items()}


def _source_score(train, test):
    labels = [np.repeat([0, 1], len(part[0])) for part in (train, test)]
    reader = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2500))
    return roc_auc_score(
        labels[1], reader.fit(np.vstack(train), labels[0]).decision_function(np.vstack(test))
    )


@pytest.mark.parametrize(("make", "setting"), [(corn, ((0, 1), 2)), (ssvep, ("13Hz", "21Hz", 0.005))])
def test_the_source_is_as_hard_to_read_with_either_anchor_and_heads_survive_one(make, setting):
    models = {
        "identity": mgpa.baselines.make_method("identity"),
        "pooled": mgpa.ClosedFormMGPA.paper(),
        "within": mgpa.ClosedFormMGPA(),
    }
    scores = outcomes(make(*setting), models, readers=True)
    heads, source = ({name: score[i] for name, score in scores.items()} for i in (0, 1))
    assert source["within"] <= source["pooled"] + 0.02
    assert source["pooled"] < 0.7
    assert heads["within"] > heads["identity"] - 0.01
    assert heads["pooled"] < heads["identity"] - 0.01


@pytest.mark.slow
def test_existing_heads_survive_the_within_source_anchor_where_the_pooled_one_breaks_them():
    models = {
        "identity": mgpa.baselines.make_method("identity"),
        "pooled": mgpa.ClosedFormMGPA.paper(),
        "within": mgpa.ClosedFormMGPA(),
    }
    settings = [corn(pair, target) for pair in ((0, 1), (0, 2), (1, 2)) for target in range(4)]
    settings += [ssvep("13Hz", "21Hz", 0.005), ssvep("13Hz", "17Hz", 0.02), ssvep("17Hz", "21Hz", 0.05)]
    heads = np.array([[outcomes(s, models)[name][0] for name in models] for s in settings])
    pooled, within = heads[:, 1] - heads[:, 0], heads[:, 2] - heads[:, 0]
    assert pooled.min() < -0.25
    assert (pooled < -0.01).sum() >= 8
    assert (within >= -0.01).sum() >= 14
    assert within.min() >= -0.03
    assert abs(within.mean()) < 0.01


@pytest.mark.slow
def test_existing_heads_survive_stages_from_the_closed_form_where_published_stages_break_them():
    pytest.importorskip("torch")
    models = {
        "identity": mgpa.baselines.make_method("identity"),
        "default": mgpa.IterativeMGPA(random_state=17, device="cpu"),
        "published": mgpa.IterativeMGPA.paper(device="cpu"),
    }
    settings = [corn((0, 1), 2), corn((0, 2), 2), ssvep("13Hz", "21Hz", 0.005)]
    scores = [outcomes(setting, models, readers=True) for setting in settings]
    heads = np.array([[one[name][0] for name in models] for one in scores])
    assert (heads[:, 1] - heads[:, 0]).min() > -0.01
    assert (heads[:, 2] - heads[:, 0]).min() < -0.05
    assert all(one["default"][1] < 0.7 for one in scores)
