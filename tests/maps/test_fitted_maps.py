"""One map serves many threads, rows of any byte order, and exports agree with it when it was fitted."""

import threading

import numpy as np
import pytest

import mgpa
from factories import random_staged_map

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("on_cuda", [False, True])
def test_one_map_serves_many_threads(on_cuda):
    if on_cuda and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    m = random_staged_map(d=32, r=4)
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(400, 32)).astype(np.float32) for _ in range(4)]
    if on_cuda:
        inputs = [torch.as_tensor(X, device="cuda") for X in inputs]
    expected = [np.asarray(m.transform(X).cpu() if on_cuda else m.transform(X)) for X in inputs]
    wrong = []

    def work(i):
        for _ in range(20):
            out = m.transform(inputs[i])
            if not np.array_equal(np.asarray(out.cpu() if on_cuda else out), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_big_endian_rows_are_read():
    m = random_staged_map()
    X = np.random.default_rng(0).normal(size=(5, m.n_features))
    np.testing.assert_array_equal(m.transform(X.astype(">f8")), m.transform(X))


@pytest.mark.parametrize("n_sources", [2, 3])
@pytest.mark.parametrize("rank", [1, 2])
def test_exports_of_fitted_maps_agree_when_scores_outnumber_gate_directions(tmp_path, rank, n_sources):
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    source = np.arange(360) % n_sources
    effects = rng.normal(size=(n_sources, 2)) @ np.eye(2, 12)
    X = (rng.normal(size=(360, 12)) + effects[source]).astype(np.float32)
    events = rng.normal(size=(30, 12))
    views = [events + effect + 0.1 * rng.normal(size=events.shape) for effect in effects]
    rows = np.concatenate([X, *views]).astype(np.float32)
    labels = np.r_[source, np.repeat(np.arange(n_sources), 30)]
    ids = np.r_[np.full(360, -1), np.tile(np.arange(30), n_sources)]
    model = mgpa.IterativeMGPA.paper(n_stages=6, gate=mgpa.MeasurementGate(rank))
    m = model.fit(rows, source=labels, pair_id=ids).to_map()
    exact = m.transform(X.astype(np.float64))
    session = onnxruntime.InferenceSession(m.to_onnx(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    for found in (session.run(None, {"X": X})[0], m.transform(torch.as_tensor(X)).numpy(), m.transform(X)):
        assert np.abs(found - exact).max() < 1e-4
