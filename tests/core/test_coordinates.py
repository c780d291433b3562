"""Coordinates are fitted on the stated rows, exact, and travel with the map."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from mgpa import ClosedFormMGPA, load_map
from mgpa.coordinates import Coordinates, fit_coordinates
from mgpa.errors import MapError
from mgpa.maps import AffineMap
from mgpa.tables import Table, fit_table
from mgpa.tables.rows import corrected_rows, in_coordinates
from mgpa.tables.simulate import simulate_table


@pytest.fixture(scope="module")
def raw():
    """Simulated embeddings seen through a mixing that makes them wider."""
    table = simulate_table(n_people=16, d=6)
    mixing = np.random.default_rng(5).normal(size=(6, 20))
    return Table.from_columns({"X": table.X @ mixing, **table.columns}, {"encoder": {"name": "mixing"}})


def test_principal_coordinates_are_those_of_scikit_learn_standardised():
    X = np.random.default_rng(0).normal(size=(60, 9)) @ np.random.default_rng(1).normal(size=(9, 9))
    pca = PCA(4, svd_solver="full").fit(X)
    projected = pca.transform(X)
    c = fit_coordinates(X, n_components=4)
    np.testing.assert_allclose(c.transform(X), (projected - projected.mean(0)) / projected.std(0), atol=1e-12)


def test_constant_features_are_divided_by_one_unless_a_floor_is_given():
    X = np.column_stack([np.arange(4.0), np.full(4, 7.0)])
    assert fit_coordinates(X).scale[1] == 1.0
    assert fit_coordinates(X, floor=1e-5).scale[1] == 1e-5


def test_the_digest_knows_every_number():
    rng = np.random.default_rng(1)
    origin, scale, components = rng.normal(size=3), np.ones(2), np.linalg.qr(rng.normal(size=(3, 2)))[0].T
    digests = {
        Coordinates(origin, scale, components).digest,
        Coordinates(origin + 1e-12, scale, components).digest,
        Coordinates(origin, scale + 1e-12, components).digest,
        Coordinates(origin, scale, -components).digest,
        Coordinates(origin.astype(np.float32), scale, components).digest,
        Coordinates(origin[:2], scale).digest,
    }
    assert len(digests) == 6
    assert Coordinates(origin.copy(), scale, components).digest in digests


def test_a_map_stored_with_coordinates_corrects_raw_features(tmp_path, raw):
    c = fit_coordinates(raw.rows("FIT").X, n_components=5)
    inside = in_coordinates(c, raw)
    model = fit_table(ClosedFormMGPA(standardize=False), raw, coordinates=c)
    m = load_map(model.to_map().save(tmp_path / "m.safetensors"))
    expected = model.transform(inside.X)
    np.testing.assert_allclose(m.from_raw(raw.X), expected, atol=1e-12)
    np.testing.assert_allclose(corrected_rows(m, raw), expected, atol=1e-12)
    np.testing.assert_allclose(corrected_rows(m, inside), expected, atol=1e-12)
    assert m.info.encoder == {"name": "mixing"}
    assert "5 principal components of 20 raw features" in m.summary()


def test_embeddings_of_another_encoder_are_refused(raw):
    m = fit_table(ClosedFormMGPA(), raw).to_map()
    other = Table.from_columns({"X": raw.X, **raw.columns}, {"encoder": {"name": "another"}})
    with pytest.raises(ValueError, match='name "another" instead of "mixing"'):
        corrected_rows(m, other)
    silent = Table.from_columns({"X": raw.X, **raw.columns})
    assert corrected_rows(m, silent).shape == raw.X.shape


def test_rows_get_the_same_bits_in_every_batch():
    X = np.random.default_rng(0).normal(size=(400, 30))
    coordinates = fit_coordinates(X, n_components=7)
    whole = coordinates.transform(X)
    for start, stop in ((0, 1), (3, 20), (100, 293), (399, 400)):
        assert np.array_equal(coordinates.transform(X[start:stop]), whole[start:stop])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(3), np.zeros(3)), "positive"),
        ((np.zeros(3), np.ones(2)), "do not fit together"),
        ((np.zeros(3), np.ones(2), np.ones((3, 2))), "do not fit together"),
        ((np.array([np.nan]), np.ones(1)), "finite"),
        ((np.zeros((1, 3)), np.ones(3)), "do not fit together"),
        ((np.zeros(3), np.ones((3, 1))), "do not fit together"),
        ((np.zeros(3, int), np.ones(3)), "float32 or float64"),
    ],
)
def test_inconsistent_coordinates_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Coordinates(*arguments)


def test_bad_requests_are_refused():
    X = np.random.default_rng(0).normal(size=(4, 6))
    assert fit_coordinates(X, n_components=1).n_coordinates == 1
    assert fit_coordinates(X, n_components=4).n_coordinates == 4
    for wrong in (0, 5):
        with pytest.raises(ValueError, match="4 rows of 6 features have at most 4"):
            fit_coordinates(X, n_components=wrong)
    with pytest.raises(ValueError, match="at least two rows to be fitted on; got 1"):
        fit_coordinates(X[:1])
    assert fit_coordinates(X[:2]).n_raw == 6
    with pytest.raises(MapError, match="The map has 3 features, its coordinates 2"):
        AffineMap.identity(3).with_coordinates(Coordinates(np.zeros(2), np.ones(2)))
    with pytest.raises(ValueError, match="no coordinates"):
        AffineMap.identity(3).from_raw(np.zeros((1, 3)))
