"""Euclidean alignment of signals: equal to pyRiemann's whitening, source by source."""

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from mgpa.baselines import EuclideanAlignment


def recordings(sources=("dry", "gel", "wet"), n=20, c=4, t=64, seed=0):
    """Return trials of several sources in mixed order, each source with its own mixing."""
    rng = np.random.default_rng(seed)
    source, y = np.repeat(sources, n), np.tile([0, 1], n * len(sources) // 2)
    X = rng.normal(size=(len(source), c, t)) + 0.5 * rng.normal(size=(len(source), c, 1))
    for s in sources:
        X[source == s] = (np.eye(c) + 0.3 * rng.normal(size=(c, c))) @ X[source == s]
    order = rng.permutation(len(source))
    return X[order], y[order], source[order]


X, Y, SOURCE = recordings()
ALIGNED = EuclideanAlignment().fit_transform(X, Y, source=SOURCE)


def covariances(X):
    centred = X - X.mean(axis=2, keepdims=True)
    return centred @ centred.transpose(0, 2, 1) / X.shape[2]


def test_it_equals_pyriemanns_whitening_and_gives_identity_covariances():
    preprocessing = pytest.importorskip("pyriemann.preprocessing")
    model = EuclideanAlignment().fit(X, source=SOURCE)
    for s, W in model.filters_.items():
        theirs = preprocessing.Whitening(metric="euclid").fit(covariances(X[s == SOURCE]))
        np.testing.assert_allclose(W, theirs.filters_, rtol=0, atol=1e-13)
        np.testing.assert_allclose(ALIGNED[s == SOURCE], W @ X[s == SOURCE], rtol=0, atol=1e-13)
        np.testing.assert_allclose(covariances(ALIGNED[s == SOURCE]).mean(0), np.eye(4), rtol=0, atol=1e-13)


def test_order_precision_and_units_do_not_matter_and_inputs_stay():
    before = X.copy()
    order = np.random.default_rng(3).permutation(len(X))
    ignored = {"pairs": (1, 2), "pair_id": "no", "X_val": 3, "source_val": 4, "groups": 5}
    shuffled = EuclideanAlignment().fit_transform(X[order], source=SOURCE[order], **ignored)
    np.testing.assert_allclose(shuffled, ALIGNED[order], atol=1e-12)
    np.testing.assert_allclose(EuclideanAlignment().fit_transform(1e-6 * X, source=SOURCE), ALIGNED)
    single = EuclideanAlignment().fit_transform(X.astype(np.float32), source=SOURCE)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, ALIGNED, atol=1e-5)
    with pytest.warns(DataConversionWarning, match="integer dtype int64"):
        EuclideanAlignment().fit(np.rint(100 * X).astype(int), source=SOURCE)
    np.testing.assert_array_equal(X, before)


def test_pickle_and_pipelines():
    model = pickle.loads(pickle.dumps(EuclideanAlignment().fit(X, source=SOURCE)))
    np.testing.assert_array_equal(model.transform(X[:1], source=SOURCE[:1]), ALIGNED[:1])
    with pytest.raises(NotFittedError):
        clone(model).transform(X, source=SOURCE)
    flat = FunctionTransformer(lambda Z: Z.reshape(len(Z), -1))
    with sklearn.config_context(enable_metadata_routing=True):
        more = {"pair_id": np.arange(len(X)), "groups": np.arange(len(X))}
        pipe = make_pipeline(clone(model), flat, LogisticRegression()).fit(X, Y, source=SOURCE, **more)
        assert pipe.predict(X, source=SOURCE).shape == Y.shape


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_singular_covariances_need_a_ridge(dtype):
    referenced = (X - X.mean(axis=1, keepdims=True)).astype(dtype)
    with pytest.raises(ValueError, match=r"'dry' is singular: 3 of 4 channels.*ridge="):
        EuclideanAlignment().fit(referenced, source=SOURCE)
    model = EuclideanAlignment(ridge=1e-3).fit(referenced, source=SOURCE)
    R = covariances(referenced[SOURCE == "gel"].astype(float)).mean(axis=0)
    expected = np.linalg.inv(R + 1e-3 * np.trace(R) / 4 * np.eye(4))
    np.testing.assert_allclose(model.filters_["gel"] @ model.filters_["gel"], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": X[0]}, "before the encoder"),
        ({"X": X[:0], "source": SOURCE[:0]}, "none empty"),
        ({"X": X.astype(np.float16)}, "float16, not precise enough"),
        ({"X": X.astype(str)}, "expected a float32 or float64"),
        ({"X": np.where(np.arange(64) == 5, np.nan, X)}, "NaN or infinite values in 60 of 60"),
        ({"source": SOURCE[:5]}, "one label for each of the 60 rows"),
        ({"source": None}, "pass source="),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing_fitted(changes, message):
    model, bad = EuclideanAlignment().fit(X, source=SOURCE), {"X": X, "source": SOURCE} | changes
    with pytest.raises(ValueError, match="5 channels; this method was fitted on 4"):
        model.transform(np.ones((2, 5, 64)), source=["dry", "dry"])
    with pytest.raises(ValueError, match=r"\['saline'\] was not seen.*\['dry', 'gel', 'wet'\]"):
        model.transform(X[:1], source=["saline"])
    with pytest.raises(ValueError, match=message):
        model.transform(**bad)
    with pytest.raises(ValueError, match="omit sample_weight"):
        clone(model).fit(X, source=SOURCE, sample_weight=np.ones(60))
    with pytest.raises(ValueError, match=message):
        model.fit(**bad)
    assert not [name for name in vars(model) if name.endswith("_")]
