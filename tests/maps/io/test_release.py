"""Folders written by the paper authors' code replay as their code did, or are refused."""

import hashlib
import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from factories import Payload, random_staged_map
from mgpa import load_map
from mgpa.errors import MapError
from mgpa.maps import AffineMap, StagedMap
from mgpa.maps.io import release
from shared import FIXTURES, needs_shared


@needs_shared
@pytest.mark.parametrize("name", ["open_a", "open_b"])
def test_the_stored_closed_form_replays_the_authors_outputs(name):
    """Their stages are replayed in tests/core/test_fixtures.py."""
    with np.load(FIXTURES / name / "fixture.npz") as arrays:
        m, X = load_map(FIXTURES / name / "closed_form_adapter"), arrays["X_new"]
        assert isinstance(m, AffineMap)
        np.testing.assert_allclose(m.transform(X), arrays["closed_form"], rtol=0, atol=1e-12)
        stronger = m.with_strength(1.1).transform(X)
        np.testing.assert_allclose(stronger, arrays["closed_form_alpha_1_1"], rtol=0, atol=1e-12)


def write_folder(folder: Path, model, arrays, /, **changes) -> Path:
    """Write a folder the way the authors' code does, with a valid checksum unless told otherwise."""
    folder.mkdir(exist_ok=True)
    np.savez_compressed(folder / "model.npz", **arrays)
    document = {
        "model": model,
        "schema": "mgpa-release-model-v1",
        "state_file": "model.npz",
        "state_sha256": hashlib.sha256((folder / "model.npz").read_bytes()).hexdigest(),
    }
    (folder / "model.json").write_text(json.dumps(document | changes))
    return folder


class Store:
    """Numbered arrays and the references to them."""

    def __init__(self):
        self.arrays = {}

    def __call__(self, array):
        name = f"array_{len(self.arrays):05}"
        self.arrays[name] = np.asarray(array)
        return {"__array__": name}


def critic(kind, *weights):
    return {"__record__": "CriticState", "fields": {"kind": kind, "weights": list(weights)}}


def iterative(m: StagedMap):
    """Return a map in the authors' form: (model, arrays)."""
    put = Store()
    stages = []
    for k in range(len(m)):
        # Their score is a difference of two logits; the first one may be zero.
        last, last_bias = (np.stack([0 * w[k, 0], w[k, 0]]) for w in (m.output_weight, m.output_bias))
        gelu = (m.hidden_weight[k], m.hidden_bias[k], last, last_bias)
        fields = {
            "anchor_basis": put(m.basis),
            "anchors": [
                critic("affine", put(m.anchor_weight[k, j]), put(m.anchor_bias[k, j])) for j in range(2)
            ],
            "damping": m.damping,
            "edit_basis": put(m.basis),
            "floor": m.stabilizer,
            "frozen_original_q": False,
            "full": [
                critic("affine", put(m.linear_weight[k, 0]), put(m.linear_bias[k, 0])),
                critic("gelu", *map(put, gelu)),
            ],
            "max_step": 0.05,
            "target": "conditional",
        }
        stages.append({"__record__": "ScoreStage", "fields": fields})
    state = {
        "anchor_basis_": put(m.basis),
        "basis_": put(m.basis),
        "metadata_": {"seed": 17},
        "n_features_in_": m.n_features,
        "stages_": stages,
    }
    parameters = {"damping": 0.001, "floor": 0.1, "max_step": 0.05, "target": "conditional", "odd": []}
    return {"kind": "IterativeMGPA", "parameters": parameters, "state": state}, put.arrays


def closed_form(d=6, r=2, seed=0):
    rng = np.random.default_rng(seed)
    put = Store()
    frame = np.linalg.qr(rng.normal(size=(d, d)))[0]
    state = {
        "basis_": put(frame[:, :r]),
        "complement_": put(frame[:, r:]),
        "metric_inverse_": put(np.eye(r) + 0.3),
        "direction_": put(rng.normal(size=r)),
        "anchor_intercept_": put(rng.normal(size=r)),
        "anchor_coef_": put(rng.normal(size=(d - r, r))),
        "metadata_": {},
        "n_features_in_": d,
    }
    return {"kind": "ClosedFormMGPA", "parameters": {"ridge_alpha": 10.0}, "state": state}, put.arrays


def standardised(**sizes) -> StagedMap:
    d = sizes.setdefault("d", 10)
    return random_staged_map(center=np.zeros(d), scale=np.ones(d), **sizes)


@pytest.mark.parametrize("sizes", [{}, {"stages": 1}, {"stages": 0}, {"stages": 0, "r": 0}])
def test_an_iterative_folder_gives_its_map(tmp_path, sizes):
    m = standardised(**sizes)
    loaded = load_map(write_folder(tmp_path / "m", *iterative(m)))
    assert isinstance(loaded, StagedMap)
    assert len(loaded) == len(m)
    assert loaded.linear_weight.dtype == np.float32
    X = np.random.default_rng(0).normal(size=(20, 10))
    np.testing.assert_allclose(loaded.transform(X), m.transform(X), rtol=0, atol=1e-5)
    assert np.array_equal(loaded.transform(X), X) == (len(m) == 0)


@pytest.mark.parametrize("r", [0, 1, 2, 6])
def test_a_closed_form_folder_gives_its_map(tmp_path, r):
    model, arrays = closed_form(r=r)
    m = load_map(write_folder(tmp_path / "m", model, arrays))
    B, complement, inverse, delta, intercept, coef = arrays.values()
    x = np.random.default_rng(1).normal(size=6)
    if r == 0:  # without a gate, the identity
        assert np.array_equal(m.transform(x[None])[0], x)
        return
    residual = B.T @ x - (intercept + x @ complement @ coef)
    expected = x - B @ delta * (delta @ inverse @ residual) / (delta @ inverse @ delta)
    np.testing.assert_allclose(m.transform(x[None])[0], expected, rtol=0, atol=1e-12)


def stage_fields(model, k=0):
    return model["state"]["stages_"][k]["fields"]


def set_array(state_name, array):
    def change(model, arrays):
        arrays[model["state"][state_name]["__array__"]] = array

    return change


def set_width(model, arrays):
    model["state"]["n_features_in_"] = 10**10
    set_array("basis_", np.ones((10**10, 0)))(model, arrays)


def add_network(model, arrays):
    fields = stage_fields(model)
    fields["full"].append(fields["full"][1])
    fields["anchors"].append(fields["anchors"][1])


def drop_network(model, arrays):
    fields = stage_fields(model, 1)
    del fields["full"][1], fields["anchors"][1]


def move_anchor(model, arrays):
    # Another anchor basis without a frozen anchor: the target would follow the edit.
    basis = np.linalg.qr(np.random.default_rng(5).normal(size=(10, 3)))[0].astype(np.float32)
    arrays[stage_fields(model)["anchor_basis"]["__array__"]] = basis


def other_edit(model, arrays):
    name = stage_fields(model, 2)["edit_basis"]["__array__"]
    arrays[name] = -arrays[name]


def weight_array(model, arrays, array):
    arrays[stage_fields(model)["full"][0]["fields"]["weights"][0]["__array__"]] = array


ITERATIVE_DAMAGE = {
    "other model": (lambda m, a: m.update(kind="LEACE"), "supported: ClosedFormMGPA and IterativeMGPA"),
    "no state": (lambda m, a: m.pop("state"), "damaged"),
    "other damping": (lambda m, a: stage_fields(m, 1).update(damping=0.5), "stages differ in damping"),
    "negative floor": (
        lambda m, a: [stage_fields(m, k).update(floor=-1.0) for k in range(4)],
        "must be positive",
    ),
    "other record": (
        lambda m, a: m["state"]["stages_"][0].update(__record__="os.system"),
        "neither a ScoreStage nor",
    ),
    "unknown critic": (
        lambda m, a: stage_fields(m)["full"][0]["fields"].update(kind="svm"),
        "then at most one gelu",
    ),
    "two networks": (add_network, "at most one gelu"),
    "stages with other critics": (drop_network, "must have the same critics"),
    "moving anchor": (move_anchor, "anchors move with the edit"),
    "two gates": (other_edit, "one gate"),
    "other width": (lambda m, a: weight_array(m, a, np.ones(3, np.float32)), "damaged"),
    "not finite": (lambda m, a: weight_array(m, a, np.full(10, np.inf, np.float32)), "NaN or infinite"),
    "width as text": (lambda m, a: m["state"].update(n_features_in_="10"), "integer"),
}
CLOSED_FORM_DAMAGE = {
    "endless width": (set_width, "integer from 1"),
    "skewed basis": (set_array("basis_", np.ones((6, 2))), "not orthonormal"),
    "no direction": (set_array("direction_", np.zeros(2)), "length zero"),
    "overflowing anchor": (set_array("anchor_coef_", np.full((4, 2), 1e308)), "NaN or infinite"),
}


@pytest.mark.parametrize("name", [*ITERATIVE_DAMAGE, *CLOSED_FORM_DAMAGE])
def test_inconsistent_models_are_refused(tmp_path, name):
    change, message = (ITERATIVE_DAMAGE | CLOSED_FORM_DAMAGE)[name]
    model, arrays = iterative(standardised()) if name in ITERATIVE_DAMAGE else closed_form()
    change(model, arrays)
    folder = write_folder(tmp_path / "m", model, arrays)
    with pytest.raises(MapError, match=message) as caught:
        load_map(folder)
    assert str(folder) in str(caught.value)


DOCUMENTS = {
    "other schema": ({"schema": "mgpa-release-model-v2"}, "schema mgpa-release-model-v1"),
    "wrong checksum": ({"state_sha256": "0" * 64}, "does not match its checksum"),
    "path up": ({"state_file": "../m/model.npz"}, "plain file name"),
    "absolute path": ({"state_file": "/etc/passwd"}, "plain file name"),
    "absent file": ({"state_file": "other.npz"}, "has no file other.npz"),
    "null byte": ({"state_file": "model.npz\0"}, "has no file|damaged"),
    "model is a list": ({"model": []}, "damaged"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_that_do_not_fit_are_refused(tmp_path, name):
    changes, message = DOCUMENTS[name]
    folder = write_folder(tmp_path / "m", *closed_form(), **changes)
    with pytest.raises(MapError, match=message):
        load_map(folder)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 10**6, b'{"schema":' + b"9" * 10**5 + b"}", b" " * 2**25],
    ids=["empty", "list", "null", "cut", "binary", "deep", "endless integer", "large"],
)
def test_bad_json_is_refused(tmp_path, text):
    folder = write_folder(tmp_path / "m", *closed_form())
    (folder / "model.json").write_bytes(text)
    with pytest.raises(MapError):
        load_map(folder)
    (folder / "model.json").unlink()
    with pytest.raises(MapError, match=r"has no file model\.json"):
        load_map(folder)


def with_content(folder, content):
    """Replace the array file and its checksum."""
    (folder / "model.npz").write_bytes(content)
    document = json.loads((folder / "model.json").read_text())
    document["state_sha256"] = hashlib.sha256(content).hexdigest()
    (folder / "model.json").write_text(json.dumps(document))
    return folder


def test_a_cut_or_changed_array_file_is_refused(tmp_path):
    folder = write_folder(tmp_path / "m", *closed_form())
    content = (folder / "model.npz").read_bytes()
    for n in range(0, len(content), 211):
        (folder / "model.npz").write_bytes(content[:n])
        with pytest.raises(MapError, match="checksum"):
            load_map(folder)
    for n in range(0, len(content), 211):
        with pytest.raises(MapError, match="damaged"):
            load_map(with_content(folder, content[:n]))


def test_object_arrays_and_pickles_are_not_executed(tmp_path):
    marker = tmp_path / "executed"
    model, arrays = closed_form()
    set_array("basis_", np.array([Payload(marker)]))(model, arrays)
    folder = write_folder(tmp_path / "m", model, arrays)
    with pytest.raises(MapError):
        load_map(folder)
    with pytest.raises(MapError):
        load_map(with_content(folder, pickle.dumps(Payload(marker))))
    assert not marker.exists()


def npy_header(shape):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return stream.getvalue()


def zip_of(members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "MAX_ARRAY_BYTES", 2**20)
    folder = write_folder(tmp_path / "m", *closed_form())
    bomb = zip_of({"array_00000.npy": npy_header((2**18,)) + bytes(2**21)})
    assert len(bomb) < 2**14
    monkeypatch.setattr(release.np, "load", lambda *args, **kwargs: pytest.fail("unpacked"))
    with pytest.raises(MapError, match="unpack to more than"):
        load_map(with_content(folder, bomb))


def test_many_references_to_one_array_are_bounded(tmp_path, monkeypatch):
    model, arrays = iterative(standardised())
    stages = model["state"]["stages_"]
    model["state"]["stages_"] = [stages[0]] * 1000
    folder = write_folder(tmp_path / "m", model, arrays)
    assert len(load_map(folder)) == 1000
    monkeypatch.setattr(release, "MAX_ARRAY_BYTES", 2**17)
    with pytest.raises(MapError, match="unpack to more than"):
        load_map(folder)
