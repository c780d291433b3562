"""Source readers and task heads do what the protocol says, and find what was planted."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from mgpa.audit.heads import TokenNetworkHead, fit_heads, ridge_head, transfer_scores
from mgpa.audit.readers import CHECKPOINTS, logistic, run_readers, run_residual_readers, run_token_readers
from mgpa.audit.readers.networks import restart_seeds
from mgpa.audit.readers.tokens import token_residuals
from mgpa.critics import fit_logistic

torch = pytest.importorskip("torch")
networks = pytest.importorskip("mgpa.networks")

pytestmark = pytest.mark.usefixtures("one_torch_thread")
QUICK = {"device": "cpu", "restarts": 2, "checkpoints": (2, 5)}
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def shifted(n=400, d=6, K=2, gap=1.0, seed=0):
    """Rows whose source moves the mean."""
    rng = np.random.default_rng(seed)
    source = np.arange(n) % K
    X = rng.normal(size=(n, d)) + gap * rng.normal(size=(K, d))[source]
    return X, source


def ordered_tokens(n=1200, t=4, d=8, seed=0, noise=0.5):
    """Tokens with a mark in the first half in one source, in the second in the other; the mean is blind.

    The mark's sign is random, so that no linear score of the tokens sees it either.
    """
    rng = np.random.default_rng(seed)
    source = np.arange(n) % 2
    sign = rng.choice([-1.0, 1.0], size=n)
    X = noise * rng.normal(size=(n, t, d))
    mark = np.zeros((n, t))
    mark[np.arange(n), np.where(source, t - 1, 0)] = 3.0
    X += (mark * sign[:, None])[:, :, None] * np.eye(d)[0]
    return X.astype(np.float32), source


def aurocs(reading, source):
    return {name: roc_auc_score(source, scores) for name, scores in reading.items()}


def stacked(reading):
    return np.stack(list(reading.values()), axis=1)


def plain_run(make, X, codes, seed, checkpoints, batch, rate, clip=None):
    """Train one network as a tutorial would: modules, autograd and a DataLoader. Yield it at checkpoints."""
    torch.manual_seed(seed)
    net = make()
    data = torch.utils.data.TensorDataset(torch.from_numpy(X.astype(np.float32)), torch.from_numpy(codes))
    loader = torch.utils.data.DataLoader(
        data, batch, shuffle=True, generator=torch.Generator().manual_seed(seed)
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=1e-3)
    for epoch in range(1, max(checkpoints) + 1):
        for x, target in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), target).backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
            optimizer.step()
        if epoch in checkpoints:
            yield net


def gelu_net(d, K=2):
    return torch.nn.Sequential(torch.nn.Linear(d, 128), torch.nn.GELU(), torch.nn.Linear(128, K))


def grid_net(t, d, K=2):
    shared = torch.nn.Sequential(torch.nn.LayerNorm(d), torch.nn.Linear(d, 64), torch.nn.GELU())
    return torch.nn.Sequential(shared, torch.nn.Flatten(), torch.nn.Linear(t * 64, K))


def logits_of(net, X):
    with torch.no_grad():
        return net(torch.from_numpy(X.astype(np.float32))).numpy()


def difference(logits):
    return logits[:, 1] - logits[:, 0]


# --- the bank on vectors ---------------------------------------------------------------------------------


def test_the_bank_has_eleven_readers_in_order():
    X, source = shifted(40)
    reading = run_readers(X, source, X[:7], device="cpu", checkpoints=(1, 2, 3))
    networks = [f"gelu r{r} e{e}" for r in range(3) for e in (1, 2, 3)]
    assert list(reading) == ["linear", "whitened_linear", *networks]
    assert {scores.shape for scores in reading.values()} == {(7,)}
    assert restart_seeds(98, 3) == [1099, 11099, 21099]
    assert CHECKPOINTS == (12, 50, 200)


def test_restarts_side_by_side_equal_plain_runs_one_by_one():
    X, source = shifted(700, 12, gap=0.3)
    head, held = X[:600], X[600:]
    codes, checkpoints = source[:600], (2, 20)
    ours = run_readers(head, codes, held, device="cpu", checkpoints=checkpoints)
    for r in range(3):
        runs = plain_run(lambda: gelu_net(12), head, codes, 98 + 1001 + 10000 * r, checkpoints, 256, 1e-3)
        early, late = (difference(logits_of(net, held)) for net in runs)
        np.testing.assert_allclose(ours[f"gelu r{r} e2"], early, atol=1e-4 * np.abs(early).max())
        np.testing.assert_allclose(ours[f"gelu r{r} e20"], late, atol=1e-3 * np.abs(late).max())
        gap = roc_auc_score(source[600:], ours[f"gelu r{r} e20"]) - roc_auc_score(source[600:], late)
        assert abs(gap) < 0.01


def test_reading_twice_gives_the_same_bits_whatever_the_global_seed():
    X, source = shifted(300)
    torch.manual_seed(1)
    first = stacked(run_readers(X, source, X, **QUICK))
    state = torch.get_rng_state()
    assert np.array_equal(first, stacked(run_readers(X, source, X, **QUICK)))
    assert torch.equal(state, torch.get_rng_state())
    assert not np.array_equal(first, stacked(run_readers(X, source, X, **QUICK, seed=99)))


def test_linear_readers_equal_plain_scikit_learn():
    X, source = shifted(300, 5, gap=0.3)
    X = X @ np.diag([1.0, 2.0, 0.1, 1.0, 30.0])
    head, held, codes = X[:200], X[200:], source[:200]
    plain = LogisticRegression(max_iter=2500, class_weight="balanced").fit(head, codes)
    covariance = np.cov(head.T, ddof=0)
    shrunk = 0.99 * covariance + (0.01 * np.trace(covariance) / 5 + 1e-8) * np.eye(5)
    values, vectors = np.linalg.eigh(shrunk)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    white = LogisticRegression(max_iter=2500, class_weight="balanced")
    white.fit((head - head.mean(0)) @ root, codes)
    reading = run_readers(head, codes, held, restarts=0)
    np.testing.assert_allclose(reading["linear"], plain.decision_function(held), rtol=1e-8)
    expected = white.decision_function((held - head.mean(0)) @ root)
    np.testing.assert_allclose(reading["whitened_linear"], expected, rtol=1e-5, atol=1e-7)


def test_three_sources_give_probabilities():
    X, source = shifted(600, K=3, gap=1.5)
    names = np.array(["dry", "gel", "wet"])[source]
    reading = stacked(
        run_readers(X[:400], names[:400], X[400:], device="cpu", restarts=2, checkpoints=(2, 30))
    )
    assert reading.shape == (200, 6, 3)
    np.testing.assert_allclose(reading.sum(2), 1.0)
    for i in (0, 1, 3, 5):
        assert roc_auc_score(names[400:], reading[:, i], multi_class="ovr") > 0.9
    plain = LogisticRegression(max_iter=2500, class_weight="balanced").fit(X[:400], names[:400])
    np.testing.assert_allclose(reading[:, 0], plain.predict_proba(X[400:]), atol=1e-8)
    (net,) = plain_run(lambda: gelu_net(6, 3), X[:400], source[:400], 1099, (2,), 256, 1e-3)
    expected = torch.softmax(torch.from_numpy(logits_of(net, X[400:])), 1).numpy()
    np.testing.assert_allclose(reading[:, 2], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source_head": np.zeros(40)}, "two sources of two rows or more"),
        ({"source_head": np.arange(40) == 3}, "{False: 39, True: 1}; readers need"),
        ({"X_head": np.full((40, 6), np.nan)}, "X_head contains NaN"),
        ({"X_eval": np.zeros((5, 4))}, r"X_head has shape \(40, 6\), X_eval \(5, 4\)"),
        ({"X_head": np.zeros((40, 2, 6))}, "use run_token_readers"),
        ({"checkpoints": (5, 2)}, "increasing"),
        ({"restarts": -1}, "0 .no networks. or more"),
    ],
)
def test_bad_input_is_refused_with_a_reason(change, message):
    X, source = shifted(40)
    arguments = {"X_head": X, "source_head": source, "X_eval": X} | QUICK | change
    with pytest.raises(ValueError, match=message):
        run_readers(**arguments)


# --- tokens ----------------------------------------------------------------------------------------------


def test_token_readers_equal_plain_runs():
    X, source = ordered_tokens(400, t=3, d=5, seed=2)
    head, held, codes, checkpoints = X[:300], X[300:], source[:300], (2, 20)
    schedule = {"device": "cpu", "checkpoints": checkpoints}
    ours = run_token_readers(head, codes, held, **schedule)
    center, scale = head.mean(0), np.maximum(head.std(0), 1e-5)
    H, E = (head - center) / scale, (held - center) / scale
    ours |= run_residual_readers(head, codes, held, **schedule)
    rest = token_residuals(head)
    center, scale = rest.mean(0), np.maximum(rest.std(0), 1e-5)
    rH, rE = (rest - center) / scale, (token_residuals(held) - center) / scale
    for r in range(3):
        for name, make, x, e, batch, rate, clip in (
            ("tokens flat_gelu", lambda: gelu_net(15), H.reshape(-1, 15), E.reshape(-1, 15), 256, 1e-3, None),
            ("tokens grid_gelu", lambda: grid_net(3, 5), H, E, 128, 5e-4, 5.0),
            ("residual grid_gelu", lambda: grid_net(3, 5), rH, rE, 128, 5e-4, 5.0),
        ):
            runs = plain_run(make, x, codes, 1099 + 10000 * r, checkpoints, batch, rate, clip)
            for epochs, tolerance in zip(checkpoints, (1e-4, 1e-3), strict=True):
                plain = difference(logits_of(next(runs), e))
                found = ours[f"{name} r{r} e{epochs}"]
                np.testing.assert_allclose(found, plain, atol=tolerance * np.abs(plain).max(), err_msg=name)
    for name, x, e, C in (
        ("tokens linear_raw", head, held, 1.0),
        ("tokens linear_standardized", H, E, 0.01),
        ("residual linear_standardized", rH, rE, 0.01),
    ):
        model = LogisticRegression(C=C, max_iter=10_000, class_weight="balanced")
        plain = model.fit(x.reshape(300, -1).astype(float), codes).decision_function(e.reshape(100, -1))
        np.testing.assert_allclose(ours[name], plain, atol=1e-4)


def test_a_token_order_signature_is_found_by_networks_of_tokens_only():
    X, source = ordered_tokens()
    head, held, codes = X[:800], X[800:], source[:800]
    schedule = {"device": "cpu", "restarts": 1, "checkpoints": (100,)}
    residual = run_residual_readers(head, codes, held, **schedule)
    reading = run_token_readers(head, codes, held, residual=residual, **schedule)
    found = aurocs(reading, source[800:])
    assert stacked(reading).dtype == np.float64
    for name, value in found.items():
        if name.startswith("mean") or "linear" in name:
            assert value < 0.6, name
        else:
            assert value > 0.9, name


def test_bad_tokens_are_refused_with_a_reason():
    X, source = ordered_tokens(40)
    assert list(run_residual_readers(X, source, X, restarts=0)) == ["residual linear_standardized"]
    for arguments, message in (
        ((X[:, 0], source, X), "expected tokens"),
        ((X, source, X[:, 1:]), r"X_eval has tokens of shape \(3, 8\)"),
        ((X * np.nan, source, X), "X_head contains NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            run_token_readers(*arguments, **QUICK)


# --- heads -----------------------------------------------------------------------------------------------


def task(n=240, d=5, classes=2, sources=2, seed=0):
    rng = np.random.default_rng(seed)
    y, source = np.arange(n) % classes, (np.arange(n) // classes) % sources
    X = rng.normal(size=(n, d)) + rng.normal(size=(classes, d))[y] + rng.normal(size=(sources, d))[source]
    return X, y, source


def test_ridge_heads_equal_plain_scikit_learn():
    X, y, source = task()
    heads = fit_heads(X[:120], y[:120], source[:120])
    moved = X[120:] + 0.1
    found = transfer_scores(heads, moved, source[120:])
    assert list(found) == [(0, 1), (1, 0)]
    for (a, b), (rows, scores, _) in found.items():
        train = (np.arange(240) < 120) & (source == a)
        assert np.array_equal(rows, np.flatnonzero(source[120:] == b))
        scaler = StandardScaler().fit(X[train])
        model = RidgeClassifier(alpha=10.0, class_weight="balanced", solver="lsqr")
        model.fit(scaler.transform(X[train]), y[train])
        np.testing.assert_allclose(scores, model.decision_function(scaler.transform(moved[rows])))
    assert ridge_head(alpha=3.0)[-1].alpha == 3.0


@pytest.mark.parametrize("head", [None, RandomForestClassifier(n_estimators=5), SVC()])
@pytest.mark.parametrize("classes", [2, 3])
def test_any_classifier_is_a_head_and_is_left_as_it_was(head, classes):
    X, y, source = task(classes=classes)
    before = None if head is None else dict(vars(head))
    first, second = (transfer_scores(fit_heads(X, y, source, head), X, source)[1, 0][1] for _ in range(2))
    assert first.shape == ((120,) if classes == 2 else (120, 3))
    assert np.array_equal(first, second)
    assert head is None or vars(head) == before


def tokens_task(n=240, t=3, d=4, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y, source = np.arange(n) % classes, (np.arange(n) // classes) % 2
    X = rng.normal(size=(n, t, d)) + 2 * rng.normal(size=(classes, t, d))[y] + source[:, None, None]
    return X.astype(np.float32), y, source


@pytest.mark.parametrize("classes", [2, 3])
def test_token_heads_equal_a_plain_run(classes):
    X, y, source = tokens_task(classes=classes)
    heads = fit_heads(X, y, source, TokenNetworkHead(epochs=4, device="cpu"))
    for seed, rows, head in ((108, source == 0, heads[0]), (109, source == 1, heads[1])):
        center, scale = X[rows].mean(0), np.maximum(X[rows].std(0), 1e-5)
        standard = (X[rows] - center) / scale
        (net,) = plain_run(lambda: grid_net(3, 4, classes), standard, y[rows], seed, (4,), 128, 5e-4, 5.0)
        plain = logits_of(net, (X - center) / scale)
        ours = head.decision_function(X)
        np.testing.assert_allclose(ours, plain if classes > 2 else difference(plain), atol=1e-4)
        assert np.array_equal(head.predict(X), plain.argmax(1))
    scores = transfer_scores(heads, X, source)[0, 1][1]
    assert scores.shape == ((120,) if classes == 2 else (120, 3))
    if classes == 3:
        np.testing.assert_allclose(scores.sum(1), 1.0)


class Scorer:
    """A classifier that keeps its classes in another order, or not at all."""

    def __init__(self, head, classes):
        self.decision_function, self.predict = head.decision_function, head.predict
        if classes is not None:
            self.classes_ = np.array(classes)


def test_heads_that_cannot_be_are_refused_with_a_reason():
    X, y, source = task()
    lacking = (source == 1) & (y == 1)
    for arguments, message in (
        ((X[~lacking], y[~lacking], source[~lacking]), r"Source 1 has HEAD rows of classes \[0\]"),
        ((X, y * 0, source), "two or more"),
        ((X, y, source * 0), "transfer needs two sources"),
        ((X * np.nan, y, source), "contains NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            fit_heads(*arguments)

    with pytest.raises(ValueError, match="neither decision_function nor predict_proba"):
        fit_heads(X, y, source, LinearRegression())
    heads = fit_heads(X, y, source)
    assert list(transfer_scores(heads, X, np.where(source, 2, 0))) == [(1, 0)]  # no head of source 2
    X, y, source = task(classes=4)
    heads = fit_heads(X, y, source, SVC(decision_function_shape="ovo"))
    with pytest.raises(ValueError, match="decision_function_shape='ovr'"):
        transfer_scores(heads, X, source)
    for classes in (None, [3, 2, 1, 0]):  # scores do not say which class they are of
        heads = dict.fromkeys((0, 1), LogisticRegression().fit(X, y))
        heads = {name: Scorer(head, classes) for name, head in heads.items()}
        with pytest.raises(ValueError, match="expected sorted classes_"):
            transfer_scores(heads, X, source)
    X, y, source = tokens_task(60)
    with pytest.raises(ValueError, match="epochs must be a whole number, 1 or more; got 0"):
        TokenNetworkHead(epochs=0).fit(X, y)


# --- on a GPU --------------------------------------------------------------------------------------------


@needs_cuda
def test_a_gpu_reads_the_same():
    X, source = shifted(1200, 16, gap=0.3)
    schedule = {"restarts": 3, "checkpoints": (2, 20)}
    with threadpool_limits(1):
        cpu, gpu, again = (
            stacked(run_readers(X[:700], source[:700], X[700:], device=device, **schedule))
            for device in ("cpu", "cuda", "cuda")
        )
    assert np.array_equal(gpu, again)
    np.testing.assert_allclose(gpu[:, [2, 4, 6]], cpu[:, [2, 4, 6]], atol=1e-4 * np.abs(cpu).max())
    np.testing.assert_allclose(gpu, cpu, atol=1e-2 * np.abs(cpu).max())


@needs_cuda
def test_a_gpu_reads_tokens_the_same():
    X, source = ordered_tokens(500, t=3, d=5)
    scores = []
    for device in ("cpu", "cuda"):
        schedule = {"device": device, "restarts": 3, "checkpoints": (2,)}
        residual = run_residual_readers(X, source, X, **schedule)
        scores.append(stacked(run_token_readers(X, source, X, residual=residual, **schedule)))
    # Networks agree; logistic readers of the mean stop earlier on a CPU, as scikit-learn does.
    np.testing.assert_allclose(scores[1], scores[0], atol=5e-3)


@pytest.mark.parametrize("n_sources", [2, 3])
def test_whitening_few_rows_of_many_features_takes_no_matrix_of_them(n_sources, monkeypatch):
    monkeypatch.setattr(logistic, "WIDE", 100)
    rng = np.random.default_rng(0)
    n, d = 60, 150
    codes = np.arange(n) % n_sources
    head, held = (rng.normal(size=(rows, d)) * np.linspace(0.1, 3, d) for rows in (n, 40))
    head[:, :3] += codes[:, None]
    found = logistic.linear_scores(head, codes, n_sources, held)["whitened_linear"]
    center = head.mean(axis=0)
    covariance = (head - center).T @ (head - center) / n
    values, vectors = np.linalg.eigh(
        (1 - logistic.SHRINKAGE) * covariance
        + (logistic.SHRINKAGE * np.trace(covariance) / d + logistic.RIDGE) * np.eye(d)
    )
    whitener = (vectors / np.sqrt(values)) @ vectors.T
    reader = fit_logistic((head - center) @ whitener, codes, n_sources)
    expected = logistic.logistic_scores(reader, (held - center) @ whitener)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert logistic.whitening(head)[1].shape == (d, n)


@pytest.mark.parametrize("n_sources", [2, 3])
def test_linear_readers_of_tensors_are_those_of_arrays(n_sources):
    rng = np.random.default_rng(0)
    codes = np.arange(120) % n_sources
    head, held = (rng.normal(size=(120, 5)) + codes[:, None] * [1.0, 0.5, 0, 0, 0] for _ in range(2))
    arrays = logistic.linear_scores(head, codes, n_sources, held)
    tensors = logistic.linear_scores(torch.as_tensor(head), codes, n_sources, torch.as_tensor(held))
    for name, scores in arrays.items():
        np.testing.assert_allclose(tensors[name], scores, atol=5e-3)


def test_frequencies_are_classes_of_a_task():
    rng = np.random.default_rng(0)
    y, source = np.tile([12.5, 13.5], 50), np.repeat(["dry", "wet"], 50)
    X = rng.normal(size=(100, 3)) + (y[:, None] - 12.5) * 3
    heads = fit_heads(X, y, source)
    for rows, scores, predicted in transfer_scores(heads, X, source).values():
        assert roc_auc_score(y[rows] == 13.5, scores) > 0.9
        assert np.mean(predicted == (y[rows] == 13.5)) > 0.8
    # Whole numbers are classes as they are, as a head may name them.
    fit_heads(X, y + 0.5, source, head=LogisticRegression(class_weight={13.0: 1, 14.0: 5}))
