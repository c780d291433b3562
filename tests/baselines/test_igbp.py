"""IGBP trains, moves and stores what its protocol says, and the stored map replays it."""

import sys

import numpy as np
import pytest

import mgpa
from factories import random_projective_map
from mgpa.baselines.igbp import IGBP, MIN_GAIN, WEIGHT_DECAY, stale_epochs
from mgpa.maps import MapError, ProjectiveMap
from mgpa.operating_point import operating_points, relative_movement

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("one_torch_thread")
QUICK = {"n_stages": 3, "batch_size": 32, "max_epochs": 6, "learning_rate": 1e-2, "device": "cpu"}
QUICK["random_state"] = 3


def data(n: int = 90, d: int = 6, K: int = 2, seed: int = 0, gap: float = 1.0):
    rng = np.random.default_rng(seed)
    source = rng.integers(0, K, n)
    source[:K] = range(K)
    shift = rng.normal(size=(K, d)) * gap
    return rng.normal(size=(n, d)) + shift[source], source


def held_out(K: int = 2, **changes):
    X, source = data(140, K=K, **changes)
    return {"X": X[:90], "source": source[:90], "X_val": X[90:], "source_val": source[90:]}


def autograd_step(h, net, fraction=1.0):
    """Move rows by the definition: the margin of the two largest logits, differentiated by torch."""
    h = h.detach().requires_grad_()
    top = net(h).topk(2, dim=1).values
    margin = top[:, 0] - top[:, 1]
    (gradient,) = torch.autograd.grad(margin.sum(), h)
    length2 = gradient.square().sum(1, keepdim=True)
    step = torch.where(length2 > 1e-12, margin[:, None] * gradient / length2, 0.0)
    return (h - fraction * step).detach()


def stored_network(m: ProjectiveMap, k: int):
    """Return one stage of a stored map as the torch network it was, in float64."""
    _, H, K = m.sizes
    net = torch.nn.Sequential(torch.nn.Linear(m.n_features, H), torch.nn.ReLU(), torch.nn.Linear(H, K))
    for parameter, name in zip(net.double().parameters(), m.stage_tensors, strict=True):
        parameter.data = torch.from_numpy(np.array(getattr(m, name)[k], dtype=float))
    return net


def standardised(m: ProjectiveMap, X):
    return torch.from_numpy((X - m.center) / m.scale).double()


def plain_training(H, codes, held, held_codes, K, model):
    """Train and move as anyone would with torch's own parts; return the stages' weights and epochs."""
    stages, epochs = [], []
    for k in range(model.n_stages):
        seed = model.random_state + 1009 * k
        torch.manual_seed(seed)
        d = H.shape[1]
        net = torch.nn.Sequential(torch.nn.Linear(d, d), torch.nn.ReLU(), torch.nn.Linear(d, K))
        optimizer = torch.optim.AdamW(net.parameters(), lr=model.learning_rate, weight_decay=WEIGHT_DECAY)
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(H, codes),
            batch_size=model.batch_size,
            shuffle=True,
            generator=torch.Generator().manual_seed(seed + 1),
        )
        best, stale, n_epochs = None, 0, 0
        while n_epochs < model.max_epochs:
            n_epochs += 1
            for x, y in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(x), y).backward()
                optimizer.step()
            accuracy = float((net(held).argmax(1) == held_codes).double().mean())
            if best is None:
                best, stale = accuracy, 1
            elif accuracy > best + MIN_GAIN and accuracy < 1:
                best, stale = accuracy, 0
            else:
                stale += 1
            if stale >= model.patience:
                break
        H, held = autograd_step(H, net), autograd_step(held, net)
        stages.append([p.detach().numpy() for p in net.parameters()])
        epochs.append(n_epochs)
    return stages, epochs


# Training


@pytest.mark.parametrize("K", [2, 3])
def test_training_equals_torch_s_own_parts(K):
    known = held_out(K)
    model = IGBP(**QUICK | {"patience": 3, "max_epochs": 15}).fit(**known)
    center, scale = model.map_.center, model.map_.scale
    H, held = (torch.from_numpy(((known[x] - center) / scale).astype(np.float32)) for x in ("X", "X_val"))
    codes, held_codes = torch.from_numpy(known["source"]), torch.from_numpy(known["source_val"])
    with torch.random.fork_rng(devices=[]):
        stages, epochs = plain_training(H, codes, held, held_codes, K, model)
    assert [record["epochs"] for record in model.history_] == epochs
    assert len(set(epochs)) > 1, "the patience should matter"
    for k, stage in enumerate(stages):
        for name, expected in zip(model.map_.stage_tensors, stage, strict=True):
            np.testing.assert_allclose(getattr(model.map_, name)[k], expected, atol=5e-6)
    expected = [relative_movement(m, known["X_val"]) for m in list(operating_points(model.map_))[1:]]
    np.testing.assert_allclose([record["movement"] for record in model.history_], expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("accuracies", "stops_at"),
    [
        ([0.5] * 9, 3),  # the first epoch counts as stale
        ([0.5, 0.6, 0.6, 0.6, 0.6], 5),  # a gain starts the count again, at zero
        ([0.5, 0.501, 0.502, 0.6], 3),  # gains of .002 and less are none, and leave the reference
        ([0.5, 0.501, 0.5021, 0.5021, 0.5021, 0.5021], 6),  # measured from the reference, not step by step
        ([0.5, 1.0, 1.0], 3),  # a perfect epoch is stale
        ([1.0, 0.9, 0.95], 3),  # and a perfect reference cannot be beaten
        ([0.5, 0.6, 1.0, 0.7, 0.7, 0.7, 0.7], 7),  # nor does it become the reference
    ],
)
def test_patience_is_the_published_one(accuracies, stops_at):
    stale = [stale_epochs(accuracies[:n]) for n in range(1, len(accuracies) + 1)]
    assert stale.index(3) + 1 == stops_at


def test_the_same_seed_gives_the_same_map_to_the_bit_and_torch_s_own_generator_is_left_alone():
    known, before = held_out(), torch.random.get_rng_state()
    a, b, c = (IGBP(**QUICK | {"random_state": seed}).fit(**known).map_ for seed in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(np.array_equal(getattr(a, name), getattr(b, name)) for name in a.tensor_names)
    assert not np.array_equal(a.hidden_weight, c.hidden_weight)
    drawn = IGBP(**QUICK | {"random_state": np.random.RandomState(0)}).fit(**known).map_
    again = IGBP(**QUICK | {"random_state": drawn.info.random_state}).fit(**known).map_
    np.testing.assert_array_equal(drawn.hidden_weight, again.hidden_weight)


def test_weights_count_and_held_out_rows_fit_nothing_but_the_length_of_training():
    known = held_out()
    X, source, endless = known["X"], known["source"], QUICK | {"patience": 99}

    def fit(weight=None, **held):
        return IGBP(**endless).fit(X, source=source, sample_weight=weight, **held).map_.hidden_weight

    np.testing.assert_allclose(fit(np.full(len(X), 2.0)), fit(), atol=1e-5)
    assert not np.allclose(fit(np.linspace(0, 1, len(X))), fit(), atol=1e-3)
    np.testing.assert_array_equal(fit(X_val=known["X_val"], source_val=known["source_val"]), fit())


def test_features_that_never_varied_are_neither_read_nor_moved():
    X, source = data()
    X[:, 2] = 7.0
    model = IGBP(**QUICK).fit(X, source=source)
    new = X.copy()
    new[:, 2] = np.linspace(-9, 9, len(X))
    changed = model.transform(new)
    np.testing.assert_array_equal(changed[:, 2], new[:, 2])
    np.testing.assert_allclose(np.delete(changed, 2, 1), np.delete(model.transform(X), 2, 1), atol=1e-12)


# Estimator


def test_the_map_says_where_it_came_from_and_takes_operating_points(capsys):
    X, source = data()
    model = IGBP(**QUICK | {"standardize": False}, verbose=True).fit(
        X, source=np.array(["dry", "wet"])[source]
    )
    assert "IGBP stages done" in capsys.readouterr().err
    m = model.map_
    assert (m.info.method, m.info.source_names, m.info.n_rows) == ("IGBP", ("dry", "wet"), 90)
    assert (
        m.info.fingerprint == mgpa.moments.Moments.from_rows(X, np.array(["dry", "wet"])[source]).fingerprint
    )
    assert ((m.center == 0) & (m.scale == 1)).all()
    assert model.n_stages_ == len(m) == len(model.history_) == 3
    np.testing.assert_array_equal(model.transform(X, n_stages=0), X)
    expected = m.prefix(2, 0.5).with_strength(0.7).transform(X)
    np.testing.assert_array_equal(model.transform(X, n_stages=2, fraction=0.5, strength=0.7), expected)
    np.testing.assert_array_equal(model.transform(torch.from_numpy(X)).numpy(), model.transform(X))
    assert IGBP(n_stages=0).fit(X, source=source).map_.sizes == (0, 6, 2)


@pytest.mark.parametrize("k", [0, 2])
def test_an_interrupt_keeps_the_complete_stages(monkeypatch, k):
    X, source = data()
    whole = IGBP(**QUICK).fit(X, source=source).map_
    train, calls = IGBP._train, []

    def interrupted(self, *args):
        calls.append(1)
        if len(calls) > k:
            raise KeyboardInterrupt
        return train(self, *args)

    monkeypatch.setattr(IGBP, "_train", interrupted)
    model = IGBP(**QUICK)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, source=source)
    assert model.n_stages_ == len(model.map_) == k
    np.testing.assert_array_equal(model.transform(X), whole[:k].transform(X))


def test_missing_torch_and_divergence_are_said(monkeypatch):
    X, source = data()
    train = IGBP._train

    def broken(self, *args):
        weights, record = train(self, *args)
        weights[3].fill_(torch.inf)
        return weights, record

    monkeypatch.setattr(IGBP, "_train", broken)
    model = IGBP(**QUICK)
    with pytest.raises(ValueError, match="diverged in stage 1"):
        model.fit(X, source=source)
    assert not hasattr(model, "map_")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install 'torch"):
        IGBP(**QUICK).fit(X, source=source)


# The stored map


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-10), (np.float32, 1e-4)])
def test_replay_equals_automatic_differentiation(K, dtype, tolerance):
    m = random_projective_map(n_sources=K, dtype=np.float64, stages=6, hidden=16)
    m = m.prefix(5, 0.35).with_strength(1.3)
    X = np.random.default_rng(1).normal(size=(200, 10)).astype(dtype)
    h = start = standardised(m, X)
    for k in range(len(m)):
        h = autograd_step(h, stored_network(m, k), m.fraction if k == len(m) - 1 else 1.0)
    expected = X + m.strength * m.scale * (h - start).numpy()
    corrected = m.transform(X)
    assert corrected.dtype == dtype
    assert relative_movement(m, X) > 0.1
    np.testing.assert_allclose(corrected, expected, atol=tolerance, rtol=tolerance)


def test_flat_rows_are_not_moved():
    X = np.random.default_rng(1).normal(size=(20, 10))
    faint = random_projective_map(dtype=np.float64, output_weight=np.full((4, 2, 10), 1e-9) * [[[1], [2]]])
    for m in (random_projective_map(hidden_bias=np.full((4, 10), -1e3)), faint):
        for dtype in (np.float32, np.float64):
            np.testing.assert_array_equal(m.transform(X.astype(dtype)), X.astype(dtype))


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-4), (np.float64, 1e-11)])
def test_rows_do_not_depend_on_their_block_and_bad_ones_are_named(monkeypatch, dtype, tolerance):
    m = random_projective_map(n_sources=3, stages=3)
    X = np.random.default_rng(1).normal(size=(50, 10)).astype(dtype)
    whole = m.transform(X)
    alone = np.concatenate([m.transform(row[None]) for row in X])
    monkeypatch.setattr("mgpa.maps.sequential.BLOCK_NUMBERS", 70)
    np.testing.assert_allclose(alone, whole, atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(m.transform(X), whole, atol=tolerance, rtol=tolerance)
    np.testing.assert_allclose(m.stage_movement(X)[-1], np.linalg.norm(m.displacement(X)), rtol=1e-4)
    assert m.transform(X[:0]).shape == (0, 10)
    for value in (np.nan, np.inf):
        X[3, 2] = value
        for one in (m, random_projective_map(), m[:0]):
            with pytest.raises(ValueError, match="first: row 3"):
                one.transform(X)
    with pytest.raises(MapError, match="overflows"):
        m.transform(np.full((2, 10), 3e38, dtype=np.float32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_weight": np.zeros((4, 10))}, r"hidden_weight has shape \(4, 10\); expected \(S, H, 10\)"),
        ({"output_weight": np.zeros((4, 1, 10)), "output_bias": np.zeros((4, 1))}, "at least two logits"),
        ({"fraction": 1.5}, "fraction must lie in"),
    ],
)
def test_inconsistent_maps_are_refused(changes, message):
    with pytest.raises(MapError, match=message):
        random_projective_map(**changes)
    m = random_projective_map().prefix(3, 0.5).with_strength(2.0)
    assert "3 projections, 0.5 of the last, by networks of 10 units, 2 sources, at strength 2" in repr(m)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("K", [2, 3])
def test_cuda_fits_the_same_correction(K):
    known = held_out(K)
    cpu, cuda = (IGBP(**QUICK | {"patience": 99, "device": name}).fit(**known) for name in ("cpu", "cuda"))
    np.testing.assert_allclose(cuda.map_.hidden_weight, cpu.map_.hidden_weight, atol=1e-3)
