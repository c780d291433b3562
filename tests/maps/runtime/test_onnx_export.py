"""The ONNX model is the numpy map, for whoever has only a runtime."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from factories import edge_cases, embeddings, random_affine_map, random_staged_map
from mgpa.maps import CorrectionMap

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

SCORES = [(1, 1), (1, 0), (0, 1), (2, 2), (3, 0), (3, 3)]
STEPS = {
    "boundary": {"radius": 0.1},
    "tiny": {"radius": 1e-4, "damping": 1e-6},
    "free": {"radius": 1e3, "damping": 3.0, "stabilizer": 1.0},
}


def staged(n_linear: int = 1, n_network: int = 1, **changes) -> CorrectionMap:
    m = random_staged_map(n_linear=n_linear, n_network=n_network, **changes)
    return m.prefix(3, fraction=0.35).with_strength(1.3)


ALL_MAPS = {
    **{
        f"staged-{L}-{N}-{name}": lambda L=L, N=N, step=step: staged(L, N, **step)
        for L, N in SCORES
        for name, step in STEPS.items()
    },
    **edge_cases(staged, SCORES),
}


@pytest.fixture(params=ALL_MAPS)
def any_map(request) -> CorrectionMap:
    return ALL_MAPS[request.param]()


def session(path: Path) -> "onnxruntime.InferenceSession":
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def test_agrees_with_numpy_for_any_number_of_rows(any_map, tmp_path):
    model, X = session(any_map.to_onnx(tmp_path / "m.onnx")), embeddings()
    Y = any_map.transform(X)
    for n in (50, 1, 0):
        (out,) = model.run(["Y"], {"X": X[:n]})
        assert out.shape == (n, 10)
        assert out.dtype == np.float32
        np.testing.assert_allclose(out, Y[:n], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_bad_rows_come_out_as_nan_and_spoil_no_others(tmp_path, value):
    m, X = ALL_MAPS["staged-2-2-boundary"](), embeddings()
    X[3, 2] = value
    (out,) = session(m.to_onnx(tmp_path / "m.onnx")).run(["Y"], {"X": X})
    good = np.arange(50) != 3
    assert np.isnan(out[3]).all()
    np.testing.assert_allclose(out[good], m.transform(X[good]), atol=1e-5, rtol=1e-5)


def test_graph_does_not_grow_with_the_number_of_stages(tmp_path):
    def count(graph: "onnx.GraphProto") -> int:
        inner = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
        return len(graph.node) + sum(map(count, inner))

    stages = (random_staged_map(stages=s).to_onnx(tmp_path / f"{s}.onnx") for s in (2, 20))
    few, many = (onnx.load(path).graph for path in stages)
    assert count(few) == count(many)


def test_model_says_where_it_comes_from(tmp_path):
    any_map = random_affine_map().with_notes("for the ward")
    model = onnx.load(any_map.to_onnx(tmp_path / "m.onnx"))
    properties = {p.key: p.value for p in model.metadata_props}
    assert properties == {
        "method": any_map.info.method,
        "library_version": any_map.info.library_version,
        "source_names": '["wet", "dry"]',
        "notes": "for the ward",
    }
    assert model.producer_name == "mgpa"


def test_runs_without_this_library(tmp_path):
    m, X = staged(), embeddings()
    m.to_onnx(tmp_path / "m.onnx")
    np.save(tmp_path / "X.npy", X)
    script = (
        "import sys; sys.modules['mgpa'] = sys.modules['torch'] = None\n"
        "import numpy as np, onnxruntime\n"
        "model = onnxruntime.InferenceSession('m.onnx', providers=['CPUExecutionProvider'])\n"
        "np.save('Y.npy', model.run(['Y'], {'X': np.load('X.npy')})[0])\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    np.testing.assert_allclose(np.load(tmp_path / "Y.npy"), m.transform(X), atol=1e-5, rtol=1e-5)


def test_missing_onnx_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "mgpa.maps.runtime.onnx_export", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'onnx"):
        random_affine_map().to_onnx(tmp_path / "m.onnx")
