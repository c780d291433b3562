"""Writing corrected rows into an array of the caller's, X itself included."""

from dataclasses import replace

import numpy as np
import pytest

import mgpa
from factories import (
    assert_close,
    random_affine_map,
    random_projective_map,
    random_routed_map,
    random_staged_map,
    two_sources,
)
from mgpa.baselines import make_method

D = 10


MAPS = {
    "affine": random_affine_map,
    "affine-4": lambda: random_affine_map(k=4),
    "affine-wide": lambda: random_affine_map(k=9),
    "affine-none": lambda: random_affine_map(k=0),
    "staged": random_staged_map,
    "staged-anchored": lambda: random_staged_map(n_linear=2, n_network=2, anchored=True),
    "projective": random_projective_map,
    "routed": random_routed_map,
    "routed-gains": lambda: random_routed_map(diagonal=True),
}


def known(m, n):
    return {} if m.source_blind else {"source": ["wet", "dry"] * (n // 2)}


@pytest.fixture(params=MAPS)
def m(request):
    return MAPS[request.param]()


@pytest.fixture(params=["numpy", "numba"], autouse=True)
def engine(request, monkeypatch):
    monkeypatch.setenv("MGPA_NUMBA", "1" if request.param == "numba" else "0")
    if request.param == "numba":
        pytest.importorskip("numba")
        monkeypatch.setattr("mgpa.maps.affine.COMPILED_BYTES", 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_can_be_corrected_into_an_array_and_in_place(m, dtype):
    X = np.random.default_rng(1).normal(size=(2600, D)).astype(dtype)
    labels = known(m, len(X))
    expected = m.transform(X, **labels)
    out = np.full_like(X, np.nan)
    assert m.transform(X, **labels, out=out) is out
    np.testing.assert_array_equal(out, expected)
    columns = np.full((len(X), 2 * D), 7.0, dtype)
    # Rows that are not one after another in memory may be rounded in another order.
    m.transform(X, **labels, out=columns[:, ::2])
    assert_close(columns[:, ::2], expected, 1e-6 if dtype == np.float32 else 1e-14)
    np.testing.assert_array_equal(columns[:, 1::2], 7.0)
    assert m.transform(X, **labels, out=X) is X
    np.testing.assert_array_equal(X, expected)


def test_bad_rows_are_refused_before_anything_is_written(m):
    X = np.random.default_rng(1).normal(size=(2600, D))
    X[-1, 3] = np.inf
    before, out = X.copy(), np.full_like(X, 7.0)
    for into in (out, X):
        with pytest.raises(ValueError, match=r"1 of 2600 rows \(first: row 2599\)"):
            m.transform(X, **known(m, len(X)), out=into)
    np.testing.assert_array_equal(out, 7.0)
    np.testing.assert_array_equal(X, before)


ROWS = np.zeros((21, D))
FROZEN = np.zeros((20, D))
FROZEN.flags.writeable = False


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (np.empty((19, D)), ValueError, r"such as np.empty\(\(20, 10\), 'float64'\); got ndarray \(19, 10\)"),
        (np.empty((20, D), np.float32), ValueError, "'float64'.* float32"),
        (FROZEN, ValueError, "out must be writable"),
        (ROWS.tolist(), ValueError, "got list"),
        (ROWS[1:], ValueError, "out overlaps X; pass X itself"),
        (ROWS[:-1][::-1], ValueError, "out overlaps X"),
    ],
    ids=["shape", "dtype", "frozen", "list", "shifted", "reversed"],
)
def test_what_cannot_be_written_to_is_refused(m, out, error, message):
    with pytest.raises(error, match=message):
        m.transform(ROWS[:-1], **known(m, 20), out=out)


def test_whole_numbers_cannot_be_corrected_in_place(m):
    X = np.ones((20, D), dtype=np.int64)
    with pytest.warns(UserWarning, match="integer"), pytest.raises(ValueError, match="int64"):
        m.transform(X, **known(m, 20), out=X)


def test_a_tensor_has_no_output(m):
    torch = pytest.importorskip("torch")
    X = torch.zeros(4, D)
    with pytest.raises(TypeError, match="out is for numpy arrays"):
        m.transform(X, **known(m, 4), out=X)


@pytest.mark.parametrize("method", ["closed_form", "leace", "coral"])
def test_estimators_write_where_they_are_told(method):
    data = two_sources()
    model = (
        data.fit(make_method(method)) if method != "closed_form" else data.fit(mgpa.ClosedFormMGPA.paper())
    )
    labels = {"source": data.source} if method == "coral" else {}
    X = data.X.copy()
    expected = model.transform(X, **labels, strength=0.5)
    assert model.transform(X, **labels, strength=0.5, out=X) is X
    np.testing.assert_array_equal(X, expected)
    assert not np.array_equal(X, data.X)


def test_warming_up_prepares_the_weights(m):
    for dtype in (np.float32, np.float64):
        cold = replace(m)
        assert cold.warm_up(dtype) is cold
        prepared = set(cold._cache)
        cold.transform(np.zeros((2, D), dtype), **known(m, 2))
        assert set(cold._cache) == prepared
