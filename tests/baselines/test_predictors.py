"""End-to-end comparators: their formulas, and predictions on another source."""

import numpy as np
import pytest
import scipy.linalg
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import SVC

from mgpa.baselines import (
    SDDA,
    AwAR,
    CIRCEHead,
    SlopeBias,
    list_methods,
    make_method,
    task_scores,
    transfer_scores,
)
from mgpa.baselines.predictors import class_weights, discrepancy


def test_all_comparators_share_an_interface():
    names = [method.name for method in list_methods() if method.acts_on == "predictions"]
    assert names == ["slope_bias", "circe", "awar", "sdda"]
    for name in names:
        model = make_method(name)
        text = type(model).__doc__
        assert all(words in text for words in ("Reference", "Needs", "cannot do"))
        assert clone(model).get_params() == model.get_params()
        assert {"source", "X_target", "pairs"} <= set(type(model).fit.__annotations__)


# Slope and bias


def instruments(n=60, seed=0, names=("a", "b", "c")):
    """Return spectra of the same samples on several instruments, and the value to predict."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, 4))
    y = truth @ [1.0, -1.0, 0.5, 0.0]
    gains, shifts = (1.0, 1.4, 0.7), (0.0, 1.0, -2.0)
    views = {s: g * truth + shift for s, g, shift in zip(names, gains, shifts, strict=False)}
    return {s: view + 0.02 * rng.normal(size=view.shape) for s, view in views.items()}, y


@pytest.mark.parametrize("by_id", [False, True])
def test_slope_and_bias_are_a_line_through_predictions(by_id):
    views, y = instruments(names=("a", "b", "c") if by_id else ("a", "b"))
    X, source = np.concatenate(list(views.values())), np.repeat(list(views), 60)
    head = LinearRegression().fit(views["b"], y)
    given = {"pair_id": np.tile(np.arange(60), 3)} if by_id else {"pairs": (views["a"], views["b"])}
    model = SlopeBias(head, reference="b").fit(X, source=source, **given)
    assert model.coefficients_["b"] == (1.0, 0.0)
    assert model.reference_ == "b"
    for s in set(views) - {"b"}:
        line = np.polyfit(head.predict(views[s]), head.predict(views["b"]), 1)
        np.testing.assert_allclose(model.coefficients_[s], line, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(
            model.predict(views[s], source=s), np.polyval(line, head.predict(views[s])), atol=1e-9
        )
    only = SlopeBias(head, reference="b", slope=False).fit(X, source=source, **given)
    gap = (head.predict(views["b"]) - head.predict(views["a"])).mean()
    assert only.coefficients_["a"] == pytest.approx((1.0, gap))
    unfitted = SlopeBias(LinearRegression(), reference="b").fit(
        X, np.tile(y, len(views)), source=source, **given
    )
    np.testing.assert_allclose(unfitted.predict(X, source=source), model.predict(X, source=source), atol=1e-9)


def test_it_corrects_new_samples_and_refuses_unknown_sources():
    views, y = instruments(names=("a", "b"))
    X, source = np.concatenate(list(views.values())), np.repeat(["a", "b"], 60)
    model = SlopeBias().fit(X, np.tile(y, 2), source=source, pairs=(views["a"], views["b"]))
    new, new_y = instruments(seed=1, names=("a", "b"))
    scores = task_scores(model, np.concatenate(list(new.values())), np.tile(new_y, 2), source)
    plain = np.sqrt(np.mean((model.head_.predict(new["b"]) - new_y) ** 2))
    assert scores["b"] < 0.15 * plain
    assert scores["worst"] == max(scores["a"], scores["b"])
    for given, words in (({}, "pass source="), ({"source": "c"}, r"\['c'\] was not in the fit")):
        with pytest.raises(ValueError, match=words):
            model.predict(X, **given)
    for changes, words in (
        ({"source": None}, "needs sources"),
        ({"pairs": None}, "No pairs"),
        ({"y": None}, "The head is not fitted: pass y"),
    ):
        given = {"y": np.tile(y, 2), "source": source, "pairs": (views["a"], views["b"])} | changes
        with pytest.raises(ValueError, match=words):
            SlopeBias(LinearRegression()).fit(X, **given)


# Adaptation regularisation


def headsets(n=150, seed=0, classes=2, shift=2.0):
    """Return labelled rows of one headset, and rows of another that shifts and turns them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=2 * n)
    X = rng.normal(size=(2 * n, 5)) + 2.5 * np.eye(5)[y]
    source = np.repeat(["old", "new"], n)
    turn = np.random.default_rng(9).normal(size=(5, 5))
    X[n:] = X[n:] @ scipy.linalg.expm(0.2 * (turn - turn.T)) + shift
    return X, y, source


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("labelled", [0, 12])
def test_awar_is_the_minimum_of_its_loss(classes, labelled):
    torch = pytest.importorskip("torch")
    X, y, source = headsets(60, classes=classes)
    old, new = source == "old", np.flatnonzero(source == "new")
    given = {"X_labelled": X[new[:labelled]], "y_labelled": y[new[:labelled]]} if labelled else {}
    model = AwAR(n_rounds=1).fit(X[old], y[old], X_target=X[new[labelled:]], **given)
    K = torch.as_tensor(model._kernel(model._rows))
    task = np.concatenate([y[old], y[new[:labelled]]])
    guess = SVC(class_weight="balanced").fit(model._rows[: len(task)], task).predict(model._rows[len(task) :])
    everyone = np.concatenate([task, guess])
    M = torch.as_tensor(discrepancy(60, everyone, classes))
    weights = np.zeros(len(K))
    weights[:60], weights[60 : len(task)] = class_weights(task[:60]), 10 * class_weights(task[60:])
    E, Y = torch.as_tensor(weights), torch.as_tensor(2.0 * np.eye(classes)[everyone] - 1)
    alpha = torch.tensor(model.coef_, requires_grad=True)
    f = K @ alpha
    loss = (E[:, None] * (Y - f) ** 2).sum() + 0.1 * (alpha * f).sum() + 10 * (f * (M @ f)).sum()
    loss.backward()
    assert float(alpha.grad.abs().max()) < 1e-6 * float(loss.detach())


def test_the_discrepancy_is_the_distance_between_means():
    rng = np.random.default_rng(0)
    F, task = rng.normal(size=(30, 4)), rng.integers(2, size=30)
    a, b = np.arange(30) < 12, np.arange(30) >= 12
    expected = 2 * np.sum((F[a].mean(0) - F[b].mean(0)) ** 2)
    for c in (0, 1):
        expected += np.sum((F[a & (task == c)].mean(0) - F[b & (task == c)].mean(0)) ** 2)
    assert np.trace(F.T @ discrepancy(12, task, 2) @ F) == pytest.approx(expected)
    np.testing.assert_allclose(class_weights(np.array([0, 0, 0, 1])), [1, 1, 1, 3])


def test_awar_adapts_and_asks_for_the_rows_it_is_unsure_of():
    X, y, source = headsets(shift=3.0)
    old, new = source == "old", source == "new"
    plain = LogisticRegression().fit(X[old], y[old]).score(X[new], y[new])
    model = AwAR().fit(X[old], y[old], X_target=X[new])
    assert (model.predict(X[new]) == y[new]).mean() > plain + 0.05
    asked = model.query(10)
    margins = np.abs(model.decision_function(X[new]))
    assert margins[asked].max() <= np.sort(margins)[10] + 1e-9
    some, rest = np.split(np.random.default_rng(0).permutation(np.flatnonzero(new)), [30])
    again = AwAR().fit(X[old], y[old], X_target=X[rest], X_labelled=X[some], y_labelled=y[some])
    assert (again.predict(X[rest]) == y[rest]).mean() > 0.85
    for given, words in (
        ({}, "AwAR needs a target: pass X_target"),
        ({"X_target": X[new], "X_labelled": X[:3]}, "0 labels for 3 rows"),
        ({"X_target": X[new, :2]}, "2 features"),
    ):
        with pytest.raises(ValueError, match=words):
            AwAR().fit(X[old], y[old], **given)


def test_transfers_are_scored_from_each_source_to_every_other():
    X, y, source = headsets(shift=3.0)
    new, new_y, new_source = headsets(seed=5, shift=3.0)
    scores = transfer_scores(AwAR(), X, y, source, new, new_y, new_source)
    assert set(scores) == {("new", "old"), ("old", "new")}
    assert min(scores.values()) > 0.9
    old = source == "old"
    direct = AwAR().fit(X[old], y[old], X_target=X[~old])
    there = new_source == "new"
    expected = task_scores(direct, new[there], new_y[there], new_source[there])["new"]
    assert scores["old", "new"] == expected
    with pytest.raises(ValueError, match="have one task label"):
        task_scores(direct, new[:3], np.zeros(3), new_source[:3])


# Spatial distillation


def trials(n=80, seed=0, sessions=("s1", "s2")):
    """Return trials of six channels: class 1 has twice the power in a rhythm of channels 0 and 1."""
    rng = np.random.default_rng(seed)
    y, time = rng.integers(2, size=n), np.arange(100) / 100
    X = rng.normal(size=(n, 6, 100))
    rhythm = np.sin(2 * np.pi * (10 * time + rng.random((n, 1))))
    X[:, :2] += ((0.5 + 1.5 * y)[:, None] * rhythm)[:, None]
    return X, y, np.resize(sessions, n)


@pytest.mark.usefixtures("one_torch_thread")
def test_sdda_learns_from_all_channels_and_decodes_few():
    pytest.importorskip("torch")
    X, y, session = trials()
    target, target_y, _ = trials(seed=1)
    target = 3.0 * target[:, [1, 4]]  # another headset: two channels, another gain
    model = SDDA(channels=[1, 4], n_epochs=15, learning_rate=1e-2, random_state=0)
    model.fit(X, y, source=session, X_target=target)
    assert (model.predict(target) == target_y).mean() > 0.8
    again = clone(model).fit(X, y, source=session, X_target=target)
    np.testing.assert_array_equal(again.decision_function(target), model.decision_function(target))
    assert task_scores(model, target, target_y, np.zeros(80))["worst"] > 0.9
    for given, words in (
        ({"X_target": None}, "pass X_target"),
        ({"X_target": target[:, :1]}, "expected .2 channels"),
        ({"X_target": target[:, :, 0]}, "expected .trials, channels, times."),
    ):
        with pytest.raises(ValueError, match=words):
            model.fit(X, y, **given)


def test_its_losses_are_the_published_ones():
    torch = pytest.importorskip("torch")
    from mgpa.baselines.sdda import class_confusion, forward, initial_network, mean_discrepancy

    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 7, 3))
    both = np.concatenate([a, b + 1])
    squares = np.square(both[:, None] - both[None]).sum(axis=2)
    K = sum(np.exp(-squares / (2 * w * squares.mean())) for w in 2.0 ** np.arange(-3, 2))
    e = np.repeat([1 / 7, -1 / 7], 7)
    assert float(mean_discrepancy(*map(torch.as_tensor, (a, b + 1)))) == pytest.approx(e @ K @ e)
    with sklearn.config_context():  # its import switches metadata routing on globally
        skada = pytest.importorskip("skada.deep.losses")
    logits = torch.as_tensor(rng.normal(size=(9, 3)))
    assert float(class_confusion(logits)) == pytest.approx(float(skada.mcc_loss(logits, T=2)), rel=1e-4)
    draw = torch.Generator().manual_seed(0)
    temporal, spatial, W, bias = initial_network(4, 5, 2, draw)
    x = torch.randn(3, 4, 20, generator=draw)
    features, out = forward([temporal, spatial, W, bias], x)
    filtered = torch.stack([
        torch.nn.functional.conv1d(x[:, [c]], temporal, padding="same") for c in range(4)
    ], dim=1)  # temporal filters first, as EEGNet has them  # fmt: skip
    mixed = torch.einsum("kc,nckt->nkt", spatial, filtered.repeat_interleave(2, 2))
    np.testing.assert_allclose(features, torch.log(mixed.square().mean(2) + 1e-6), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out, features @ W.T + bias, rtol=1e-6)


def test_a_head_without_penalty_has_the_same_interface():
    pytest.importorskip("torch")
    X, y, source = headsets(shift=0.0)
    model = CIRCEHead(random_state=0).fit(X, y, source=source, X_target=X[:3], pairs=(X[:3], X[:3]))
    assert task_scores(model, X, y, source)["worst"] > 0.9


@pytest.mark.parametrize("y", [np.zeros(3), 3.0, []], ids=["few", "a number", "none"])
def test_a_task_that_is_not_one_value_for_each_row_is_refused_in_words(y):
    rng = np.random.default_rng(0)
    X, source = rng.normal(size=(40, 4)), np.arange(40) % 2
    with pytest.raises(ValueError, match=r"y has shape .* for 40 rows"):
        SlopeBias().fit(X, y, source=source, pair_id=np.arange(40) // 2)


def test_pairs_that_cannot_be_matched_are_refused_in_words():
    rng = np.random.default_rng(0)
    X, source, y = rng.normal(size=(40, 4)), np.arange(40) % 2, rng.normal(size=40)
    with pytest.raises(ValueError, match="pair_id"):
        SlopeBias().fit(X, y, source=source, pair_id=np.zeros(40, dtype=int))
    with pytest.raises(ValueError, match="source has 1"):
        SlopeBias().fit(X, y, source=np.zeros(40), pairs=(X[:5], X[5:10]))
