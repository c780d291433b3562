"""Map files: what is read is what was written, or a MapError."""

import json
import os
import pickle
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import mgpa
from factories import (
    Payload,
    embeddings,
    random_affine_map,
    random_projective_map,
    random_routed_map,
    random_staged_map,
)
from mgpa import load_map
from mgpa.coordinates import Coordinates
from mgpa.errors import MapError
from mgpa.maps import AffineMap, MapInfo
from mgpa.maps.io import mapfile

MAPS = {
    "staged32": random_staged_map(),
    "staged64": random_staged_map(dtype=np.float64, n_linear=2, n_network=2),
    "linear only": random_staged_map(n_network=0),
    "network only": random_staged_map(n_linear=0),
    "prefix": random_staged_map().prefix(3, 0.35).with_strength(1.1),
    "no stages": random_staged_map()[:0],
    "anchored": random_staged_map(n_linear=2, anchored=True).prefix(3, 0.35),
    "anchored, no stages": random_staged_map(anchored=True)[:0],
    "affine32": random_affine_map(dtype=np.float32, k=2),
    "affine64": random_affine_map().with_strength(1 / 3).with_notes("naïve\n\x00 \U0001f9e0 \ud800"),
    "identity": AffineMap.identity(5),
    "coordinates": AffineMap.identity(3).with_coordinates(
        Coordinates(np.arange(5.0), np.full(3, 2.0), np.linalg.qr(np.ones((5, 3)) + np.eye(5, 3))[0].T)
    ),
    "standardised": AffineMap.identity(3).with_coordinates(
        Coordinates(np.zeros(3, np.float32), np.ones(3, np.float32))
    ),
    "projective32": random_projective_map().prefix(3, 0.35).with_strength(1.1),
    "projective64": random_projective_map(n_sources=3, dtype=np.float64),
    "no projections": random_projective_map()[:0],
    "routed32": random_routed_map(dtype=np.float32).with_strength(0.7),
    "routed64": random_routed_map(diagonal=True),
    "constant features": AffineMap.identity(5, info=MapInfo(constant_features=(0, 3))),
}


def assert_same_map(a, b):
    assert type(a) is type(b)
    assert a.info == b.info
    assert all(getattr(a, name) == getattr(b, name) for name in a.scalar_names)
    assert a.tensors.keys() == b.tensors.keys()
    for name, x in a.tensors.items():
        y = b.tensors[name]
        assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes()), name
    assert (a.coordinates is None) == (b.coordinates is None)
    assert a.coordinates is None or a.coordinates.digest == b.coordinates.digest


@pytest.fixture(scope="module")
def small():
    """A map whose file is short enough to damage in every place."""
    info = MapInfo(method="m", parameters={"a": [1, 0.5]}, source_names=("x",), notes="é")
    return random_staged_map(d=3, r=1, stages=1, hidden=2, info=info)


def craft(path, m, *, format=1, tensors=None, metadata=None, **document):
    """Write a file with a valid digest, whatever it holds."""
    document = {
        "format": format,
        "kind": m.kind,
        "scalars": {name: getattr(m, name) for name in m.scalar_names},
        "info": asdict(m.info),
    } | document
    text = document.pop("text", None) or mapfile._canonical(document)
    tensors = m.tensors | (tensors or {})
    tensors = {name: array for name, array in tensors.items() if array is not None}
    metadata = metadata or {"mgpa": text, "sha256": mapfile._digest(text, tensors)}
    path.write_bytes(safetensors.numpy.save(tensors, metadata))
    return path


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_loaded_map_is_the_saved_one_to_the_bit(tmp_path, name, dtype):
    m = MAPS[name]
    loaded = load_map(m.save(tmp_path / "m.safetensors"))
    assert_same_map(m, loaded)
    for n_rows in (1, 50):
        X = np.random.default_rng(1).normal(size=(n_rows, m.n_features)).astype(dtype)
        known = {} if m.source_blind else {"source": np.array(["wet", "dry"])[np.arange(n_rows) % 2]}
        assert m.transform(X, **known).tobytes() == loaded.transform(X, **known).tobytes()
    assert loaded.summary() == m.summary()
    again = replace(m, center=np.repeat(m.center, 2)[::2])  # not contiguous: equal maps are equal files
    assert again.save(tmp_path / "n").read_bytes() == (tmp_path / "m.safetensors").read_bytes()


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parent / "data").iterdir()), ids=lambda path: path.stem
)
def test_a_file_of_an_earlier_version_opens(tmp_path, path):
    m = load_map(path)
    assert stated_format(path) < 4
    assert m.varies.all()
    assert_same_map(load_map(m.save(tmp_path / "m")), m)
    X = embeddings(d=m.n_features)
    assert np.abs(m.transform(X) - X).max() > 0.01


def test_a_path_of_directions_from_an_earlier_version_is_an_affine_map(tmp_path):
    path = Path(__file__).parent / "path_0.1.0.safetensors"
    with safetensors.safe_open(path, "numpy") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    m, X = load_map(path), embeddings(dtype=np.float64, d=3)
    coordinates = (X - stored["center"]) @ stored["readout"].T + stored["offset"]
    expected = X - 0.8 * (coordinates * [1.0, 0.5]) @ stored["direction"]
    np.testing.assert_allclose(m.transform(X), expected, atol=1e-12)
    assert_same_map(load_map(m.save(tmp_path / "m")), m)


def test_parameters_that_json_cannot_hold_are_stored_as_text(tmp_path):
    cycle: list = []
    cycle.append(cycle)
    forms = [
        (np.float32(0.5), 0.5), (np.int64(3), 3), (np.arange(2), [0, 1]), ((1, (2,)), [1, [2]]),
        (float("inf"), "inf"), (2**5000, hex(2**5000)), ({1}, "{1}"), (Path("a"), repr(Path("a"))),
    ]  # fmt: skip
    parameters = {i: value for i, (value, _) in enumerate(forms)} | {"cycle": cycle, "long": np.longdouble(1)}
    m = random_affine_map(info=MapInfo(parameters=parameters))
    loaded = load_map(m.save(tmp_path / "m")).info.parameters
    assert [loaded[str(i)] for i in range(len(forms))] == [stored for _, stored in forms]
    assert loaded.keys() == set(map(str, parameters))


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text()
scalars |= st.floats(allow_nan=False, allow_infinity=False)
trees = st.recursive(scalars, lambda t: st.lists(t) | st.dictionaries(st.text(), t), max_leaves=8)
NAMES = st.lists(st.text(), min_size=4, max_size=4).map(tuple)
INFO = st.builds(
    MapInfo, notes=st.text(), method=st.text(), feature_names=NAMES, source_names=NAMES,
    parameters=st.dictionaries(st.text(), trees, max_size=4),
    random_state=st.none() | st.integers(0, 2**128), gate_energy=st.none() | st.floats(0, 1),
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(info=INFO)
def test_any_text_and_parameters_survive(tmp_path_factory, info):
    path = tmp_path_factory.getbasetemp() / "hypothesis.safetensors"
    assert load_map(random_affine_map(d=4, info=info).save(path)).info == info


BAD_INFO = {"n_rows": (1.5, True), "source_names": [(1, 2)], "gate_energy": [float("nan")]}
BAD_INFO |= {"notes": (None, "x" * 2**24)}


@pytest.mark.parametrize("info", [{name: value} for name in BAD_INFO for value in BAD_INFO[name]], ids=list)
def test_info_that_could_not_be_read_is_refused_when_saving(tmp_path, info):
    with pytest.raises(MapError):
        random_affine_map(info=MapInfo(**info)).save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


def is_refused(path):
    # pytest.raises takes longer than reading the file, which counts over thousands of files.
    try:
        load_map(path)
    except MapError as error:
        return str(path) in str(error)
    return False


def test_every_truncation_and_flipped_bit_is_refused_or_harmless(tmp_path, small):
    path = tmp_path / "m"
    content = small.save(path).read_bytes()
    for cut in (*(content[:n] for n in range(0, len(content), 3)), content + b"\0"):
        path.write_bytes(cut)
        assert is_refused(path), len(cut)
    for i in range(0, 8 * len(content), 11):
        damaged = bytearray(content)
        damaged[i // 8] ^= 1 << i % 8
        path.write_bytes(damaged)
        if not is_refused(path):
            assert_same_map(small, load_map(path))


def test_the_layout_of_tokens_is_stored_and_changes_the_digest(tmp_path):
    tokens = replace(MAPS["staged32"].info, n_tokens=2, token_layout="joint", feature_names=None)
    joint = replace(MAPS["staged32"], info=tokens)
    assert load_map(joint.save(tmp_path / "joint")).info.token_layout == "joint"
    mean = replace(joint, info=replace(tokens, token_layout="mean"))
    assert mapfile.map_digest(joint) != mapfile.map_digest(mean)


def stated_format(path):
    with safetensors.safe_open(path, "numpy") as file:
        return json.loads(file.metadata()["mgpa"])["format"]


def nested(depth):
    return '{"format":1,"info":' + "[" * depth + "]" * depth + "}"


HOSTILE = {
    "newer format": (
        {"format": 8},
        r"written by a newer mgpa \(format 8, this library reads up to 7\); upgrade mgpa\.$",
    ),
    "format huge": ({"format": 10**4000}, "no file format"),
    "unknown kind": ({"kind": "pickle"}, "unknown kind of map"),
    "kind of another type": ({"kind": ["staged"]}, "damaged"),
    "other kind": ({"kind": "affine"}, "arrays"),
    "extra key": ({"hook": "os.system"}, "unknown kind"),
    "no metadata keys": ({"metadata": {"a": "b"}}, "not one written by mgpa"),
    "empty document": ({"text": "{}"}, "no file format"),
    "deep JSON": ({"text": nested(100_000)}, "damaged"),
    "deep but parsable JSON": ({"text": nested(300)}, "checksum"),
    "endless integer": ({"text": '{"format":1,"info":' + "9" * 5000 + "}"}, "damaged"),
    "not a number": ({"text": '{"format":1,"info":NaN}'}, "checksum"),
    "repeated key": ({"text": '{"format":1,"format":1}'}, "checksum"),
    "no info": ({"info": None}, "damaged"),
    "unknown info": ({"info": {"colour": "red"}}, "'colour' is unknown"),
    "info of a wrong type": ({"info": {"n_rows": "many"}}, "'n_rows' is unknown or has"),
    "names that are not text": ({"info": {"source_names": [1]}}, "'source_names'"),
    "too many names": ({"info": {"feature_names": ["a"] * 11}}, "11 feature names for 10 features"),
    "constant feature as text": ({"info": {"constant_features": ["3"]}}, "'constant_features'"),
    "no scalars": ({"scalars": {}}, "scalars must be"),
    "scalar integer": ({"scalars": dict.fromkeys(MAPS["staged32"].scalar_names, 1)}, "scalars must be"),
    "fraction above one": ({"scalars": dict.fromkeys(MAPS["staged32"].scalar_names, 1.5)}, "fraction"),
    "missing tensor": ({"tensors": {"basis": None}}, r"lacks arrays .*\(basis\)"),
    "extra tensor": ({"tensors": {"code": np.ones(2)}}, r"has others \(code\)"),
    "half an anchor": (
        {"tensors": {"anchor_readout": np.ones((10, 2)), "anchor_weight": np.ones((4, 0, 10))}},
        "anchor_offset, anchor_direction missing; expected all of",
    ),
    "start of another rank": (
        {"tensors": {"start_readout": np.ones((10, 2)), "start_offset": np.ones(2)}},
        "start_readout has shape",
    ),
    "two anchors": (
        {
            "tensors": {f"anchor_{name}": np.ones((10, 2)) for name in ("readout", "direction")}
            | {"anchor_offset": np.ones(2)}
        },
        r"anchor_weight has shape \(4, 2, 10\); expected \(4, 0, 10\)",
    ),
    "wrong shape": ({"tensors": {"linear_bias": np.ones((4, 2))}}, "linear_bias has shape"),
    "scalar center": ({"tensors": {"center": np.ones(())}}, "center has shape"),
    "empty": ({"tensors": {"center": np.ones(0), "scale": np.ones(0)}}, "at least one feature"),
    "integers": ({"tensors": {"center": np.ones(10, dtype=np.int64)}}, "dtype int64"),
    "not finite": ({"tensors": {"center": np.full(10, np.nan)}}, "center holds NaN"),
    "negative scale": ({"tensors": {"scale": -np.ones(10)}}, "scale must be positive"),
    "skewed basis": ({"tensors": {"basis": np.ones((10, 3))}}, "basis is not orthonormal"),
}


def test_what_is_no_regular_file_is_refused(tmp_path, small):
    with pytest.raises(FileNotFoundError, match="nothing"):
        load_map(tmp_path / "nothing")
    assert_same_map(load_map(craft(tmp_path / "good", MAPS["staged32"])), MAPS["staged32"])
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(MapError, match="regular file"):
            load_map(tmp_path / "pipe")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_content_with_a_valid_checksum_is_refused(tmp_path, name):
    changes, message = HOSTILE[name]
    path = craft(tmp_path / "m", MAPS["staged32"], **changes)
    with pytest.raises(MapError, match=message) as caught:
        load_map(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def header(text, length=None, data=b""):
    text = text if isinstance(text, bytes) else json.dumps(text).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


MGPA = {"mgpa": '{"format":1}', "sha256": ""}
FILES = {
    "empty": b"",
    "zeros": bytes(100),
    "text": b"x,y\n1,2\n" * 100,
    "zip": b"PK\3\4" + bytes(100),
    "no header": header({}),
    "list header": header([]),
    "deep header": header(b"[" * 10**6),
    "binary header": header(b"\xff" * 100),
    "length beyond the file": header({}, length=10**6),
    "length beyond memory": header({}, length=2**64 - 1),
    "metadata list": header({"__metadata__": ["mgpa", "sha256"]}),
    "metadata numbers": header({"__metadata__": {"mgpa": 1, "sha256": 2}}),
    "another model": safetensors.numpy.save({"w": np.ones(3)}),
    "another model with metadata": safetensors.numpy.save({"w": np.ones(3)}, {"format": "pt"}),
    "absurd shape": header(
        {"__metadata__": MGPA, "a": {"dtype": "F32", "shape": [2**62, 0], "data_offsets": [0, 0]}}
    ),
    "absurd offsets": header(
        {"__metadata__": MGPA, "a": {"dtype": "F32", "shape": [2**60], "data_offsets": [0, 2**62]}}
    ),
    "overlapping tensors": header(
        {"__metadata__": MGPA}
        | {name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in "ab"},
        data=bytes(4),
    ),
    "unknown type": header(
        {"__metadata__": MGPA, "a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}, data=bytes(2)
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_no_maps_are_refused(tmp_path, name):
    path = tmp_path / "m"
    path.write_bytes(FILES[name])
    with pytest.raises(MapError) as caught:
        load_map(path)
    assert str(path) in str(caught.value)


def test_a_huge_file_is_refused_without_reading_it(tmp_path, small):
    path = small.save(tmp_path / "m")
    os.truncate(path, 2**40)  # sparse
    with pytest.raises(MapError, match="not a map file"):
        load_map(path)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_is_not_executed(tmp_path, protocol):
    path, marker = tmp_path / "m", tmp_path / "executed"
    path.write_bytes(pickle.dumps(Payload(marker), protocol))
    with pytest.raises(MapError):
        load_map(path)
    np.savez(tmp_path / "m.npz", basis=np.array([Payload(marker)], dtype=object))
    with pytest.raises(MapError):
        load_map(tmp_path / "m.npz")
    assert not marker.exists()


def test_what_exists_is_kept_and_folders_are_named(tmp_path, small):
    path = tmp_path / "m"
    path.write_text("precious")
    with pytest.raises(FileExistsError, match="overwrite"):
        small.save(path, overwrite=False)
    assert path.read_text() == "precious"
    assert small.save(tmp_path / "new", overwrite=False) == tmp_path / "new"
    assert_same_map(load_map(small.save(path)), small)
    with pytest.raises(FileNotFoundError, match=r"folder .*nowhere does not exist"):
        small.save(tmp_path / "nowhere" / "m")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        small.save(tmp_path)


@pytest.mark.parametrize("form", ["save", "to_onnx"])
@pytest.mark.parametrize("step", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, small, form, step, error):
    if form == "to_onnx":
        pytest.importorskip("onnx")
    path = getattr(small, form)(tmp_path / "m")
    before = path.read_bytes()

    def fail(*args):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(os, step, fail)
        with pytest.raises(type(error)):
            getattr(small.with_strength(2.0), form)(path)
    assert [path] == list(tmp_path.iterdir())
    assert path.read_bytes() == before


def test_a_save_killed_half_way_leaves_the_old_file(tmp_path, small):
    path = small.save(tmp_path / "m")
    code = (
        "import os, sys, mgpa; m = mgpa.load_map(sys.argv[1]).with_strength(2.0);"
        "os.fsync = lambda descriptor: os._exit(9); m.save(sys.argv[1])"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)]).returncode == 9
    assert_same_map(load_map(path), small)


def test_applying_a_map_imports_no_heavy_library(tmp_path):
    maps = (random_staged_map(), random_affine_map(), random_projective_map(), random_routed_map())
    paths = [m.save(tmp_path / m.kind) for m in maps]
    code = (
        "import os, sys, numpy, mgpa\n"
        "os.environ['MGPA_NUMBA'] = '0'\n"  # compiled stages take their BLAS from scipy
        "for path in sys.argv[1:]:\n"
        "    m = mgpa.load_map(path)\n"
        "    known = {} if m.source_blind else {'source': 'wet'}\n"
        "    m.transform(numpy.ones((40, 10)), **known); m.transform(numpy.ones((1, 10)), **known)\n"
        "heavy = {'sklearn', 'scipy', 'torch', 'pandas', 'onnx'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(mgpa.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code, *map(str, paths)], env=environment, check=True)
