"""The methods that act on signals: Euclidean and Riemannian alignment, Monge filters."""

import pickle
import sys

import numpy as np
import pytest
import scipy.signal
import sklearn
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from mgpa.baselines import CMMN, EuclideanAlignment, RiemannianProcrustes, RiemannianRecentring
from mgpa.baselines.signals import zero_phase_filter

pytestmark = pytest.mark.filterwarnings("ignore:Convergence not reached")

METHODS = {
    "ea": EuclideanAlignment(),
    "recentring": RiemannianRecentring(),
    "rpa": RiemannianProcrustes(max_iter=5),  # all the shared tests need
    "cmmn": CMMN(filter_size=16),
}


@pytest.fixture(params=METHODS)
def method(request):
    if request.param in ("recentring", "rpa"):
        pytest.importorskip("pyriemann")
    return clone(METHODS[request.param])


def recordings(sources=("dry", "gel", "wet"), n=20, c=4, t=64, seed=0):
    """Return trials of several sources in mixed order: two classes, each source with its own mixing."""
    rng = np.random.default_rng(seed)
    source, y = np.repeat(sources, n), np.tile([0, 1], n * len(sources) // 2)
    X = rng.normal(size=(len(source), c, t)) * np.exp(0.2 * rng.normal(size=(len(source), c, 1)))
    X[y == 1, 0] *= 2.0
    X += 0.5 * rng.normal(size=(len(source), c, 1))  # electrode offsets
    for s in sources:
        X[source == s] = (np.eye(c) + 0.3 * rng.normal(size=(c, c))) @ X[source == s]
    order = rng.permutation(len(source))
    return X[order], y[order], source[order]


X, Y, SOURCE = recordings()


def relative(a, b):
    return float(abs(a - b).max() / abs(b).max())


# --- what all of them share ---------------------------------------------------------------------------


def test_order_names_and_other_arguments_do_not_matter_and_inputs_stay(method):
    before = X.copy(), Y.copy(), SOURCE.copy()
    expected = method.fit(X, Y, source=SOURCE).transform(X, source=SOURCE)
    ignored = {"pairs": (1, 2), "pair_id": "no", "X_val": 3, "source_val": 4, "groups": 5}
    once = clone(method).fit_transform(X, Y, source=SOURCE, **ignored)
    np.testing.assert_array_equal(once, expected)
    order = np.random.default_rng(3).permutation(len(X))
    shuffled = clone(method).fit_transform(X[order], Y[order], source=SOURCE[order])
    assert relative(shuffled, expected[order]) < 1e-6
    # Slashes and numbers mean something to pyRiemann's labels; the order of names is kept here.
    renamed = np.array([{"dry": "a/b", "gel": "a/c/", "wet": "b/1"}[s] for s in SOURCE])
    np.testing.assert_array_equal(clone(method).fit_transform(X, Y, source=renamed), expected)
    alone = [method.transform(X[i : i + 1], source=SOURCE[i : i + 1])[0] for i in range(6)]
    assert relative(np.array(alone), expected[:6]) < 1e-14
    for now, then in zip((X, Y, SOURCE), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_precision_and_units_are_kept(method):
    double = method.fit_transform(X, Y, source=SOURCE)
    single = clone(method).fit_transform(X.astype(np.float32), Y, source=SOURCE)
    assert (double.dtype, single.dtype) == (np.float64, np.float32)
    assert relative(single, double) < 1e-3
    np.testing.assert_array_equal(method.transform(X.astype(">f8"), source=SOURCE), double)
    with pytest.warns(DataConversionWarning, match="integer dtype int64"):
        assert method.transform(np.rint(100 * X).astype(int), source=SOURCE).dtype == np.float64
    volts = 1e-6 if isinstance(method, CMMN) else 1.0
    assert relative(clone(method).fit_transform(1e-6 * X, Y, source=SOURCE), volts * double) < 1e-9


def test_pickle_clone_and_pipelines(method):
    expected = method.fit(X, Y, source=SOURCE).transform(X, source=SOURCE)
    again = pickle.loads(pickle.dumps(method))
    np.testing.assert_array_equal(again.transform(X, source=SOURCE), expected)
    with pytest.raises(NotFittedError):
        clone(method).transform(X, source=SOURCE)
    flat = FunctionTransformer(lambda Z: Z.reshape(len(Z), -1))
    with sklearn.config_context(enable_metadata_routing=True):
        more = {"pair_id": np.arange(len(X)), "groups": np.arange(len(X))}
        model = make_pipeline(clone(method), flat, LogisticRegression()).fit(X, Y, source=SOURCE, **more)
        assert model.predict(X, source=SOURCE).shape == Y.shape


@pytest.mark.parametrize(
    ("bad", "source", "message"),
    [
        (X[0], SOURCE, "before the encoder"),
        (X[None], SOURCE, "expected .trials, channels, times."),
        (X[:0], SOURCE[:0], "none empty"),
        (X.astype(np.float16), SOURCE, "float16, not precise enough"),
        (X.astype(complex), SOURCE, "dtype complex128; expected a float32 or float64"),
        (X.astype(str), SOURCE, "expected a float32 or float64"),
        (np.where(np.arange(64) == 5, np.nan, X), SOURCE, "NaN or infinite values in 60 of 60"),
        (X, SOURCE[:5], "one label for each of the 60 rows"),
        (X, None, "pass source="),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing_fitted(method, bad, source, message):
    method.fit(X, Y, source=SOURCE)
    with pytest.raises(ValueError, match=message):
        method.transform(bad, source=source)
    with pytest.raises(ValueError, match="5 channels; this method was fitted on 4"):
        method.transform(np.ones((2, 5, 64)), source=["dry", "dry"])
    with pytest.raises(ValueError, match=r"\['saline'\] was not in the fit.*\['dry', 'gel', 'wet'\]"):
        method.transform(X[:1], source=["saline"])
    with pytest.raises(ValueError, match="omit sample_weight"):
        clone(method).fit(X, Y, source=SOURCE, sample_weight=np.ones(60))
    with pytest.raises(ValueError, match=message):
        method.fit(bad, Y, source=source)
    assert not [name for name in vars(method) if name.endswith("_")]


# --- Euclidean alignment ------------------------------------------------------------------------------


def covariances(X):
    centred = X - X.mean(axis=2, keepdims=True)
    return centred @ centred.transpose(0, 2, 1) / X.shape[2]


def test_euclidean_alignment_equals_pyriemanns_whitening_and_gives_identity_covariances():
    preprocessing = pytest.importorskip("pyriemann.preprocessing")
    model = EuclideanAlignment()
    aligned = model.fit_transform(X, source=SOURCE)
    for s, W in model.filters_.items():
        C = covariances(X[s == SOURCE])
        theirs = preprocessing.Whitening(metric="euclid").fit(C)
        np.testing.assert_allclose(W, theirs.filters_, rtol=0, atol=1e-13)
        np.testing.assert_allclose(covariances(aligned[s == SOURCE]).mean(0), np.eye(4), rtol=0, atol=1e-13)
    np.testing.assert_allclose(clone(model).fit_transform(aligned, source=SOURCE), aligned, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_singular_covariances_need_a_ridge(dtype):
    referenced = (X - X.mean(axis=1, keepdims=True)).astype(dtype)
    with pytest.raises(ValueError, match=r"'dry' is singular: 3 of 4 channels.*ridge="):
        EuclideanAlignment().fit(referenced, source=SOURCE)
    model = EuclideanAlignment(ridge=1e-3).fit(referenced, source=SOURCE)
    for s in set(SOURCE):
        R = covariances(referenced[s == SOURCE].astype(float)).mean(axis=0)
        wanted = np.linalg.inv(R + 1e-3 * np.trace(R) / 4 * np.eye(4))
        np.testing.assert_allclose(model.filters_[s] @ model.filters_[s], wanted, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="0 of 4 channels"):
        EuclideanAlignment(ridge=1.0).fit(0 * X, source=SOURCE)


# --- Riemannian Procrustes ----------------------------------------------------------------------------


def oas(X):
    return pytest.importorskip("pyriemann.estimation").Covariances("oas").fit_transform(X)


@pytest.mark.parametrize("target", ["dry", "wet"])
def test_riemannian_procrustes_equals_pyriemanns_chain(target):
    transfer = pytest.importorskip("pyriemann.transfer")
    ours = RiemannianProcrustes(reference=target, max_iter=200).fit_transform(X, Y, source=SOURCE)
    C, labels = transfer.encode_domains(oas(X), Y, SOURCE)
    C = transfer.TLCenter(target_domain=target).fit_transform(C, labels)
    C = transfer.TLScale(target_domain=target, centered_data=True).fit_transform(C, labels)
    theirs = transfer.TLRotate(target_domain=target, maxiter=200).fit_transform(C, labels)
    vectors = pytest.importorskip("pyriemann.geometry.tangentspace").tangent_space(theirs, np.eye(4))
    assert ours.shape == (60, 10)
    np.testing.assert_allclose(ours, vectors, rtol=0, atol=1e-12)


def test_recentring_is_pyriemanns_whitening_as_a_filter_of_signals():
    whitening = pytest.importorskip("pyriemann.preprocessing").Whitening
    mean = pytest.importorskip("pyriemann.geometry.mean").mean_riemann
    model = RiemannianRecentring()
    recentred = model.fit_transform(X, source=SOURCE)
    for s, W in model.filters_.items():
        theirs = whitening(metric="riemann").fit(oas(X[s == SOURCE]))
        np.testing.assert_allclose(W, theirs.filters_, rtol=0, atol=1e-12)
        np.testing.assert_allclose(recentred[s == SOURCE], W @ X[s == SOURCE], rtol=0, atol=1e-12)
        centred = mean(W @ oas(X[s == SOURCE]) @ W.T)
        np.testing.assert_allclose(centred, np.eye(4), rtol=0, atol=1e-7)


def test_mean_is_the_identity_dispersion_one_and_rotations_orthogonal():
    mean = pytest.importorskip("pyriemann.geometry.mean")
    distance = pytest.importorskip("pyriemann.geometry.distance")
    untangent = pytest.importorskip("pyriemann.geometry.tangentspace").untangent_space
    model = RiemannianProcrustes(reference="gel")
    out = untangent(model.fit_transform(X, Y, source=SOURCE), np.eye(4))
    for s in set(SOURCE):
        part = out[s == SOURCE]
        np.testing.assert_allclose(mean.mean_riemann(part), np.eye(4), rtol=0, atol=1e-7)
        spread = distance.distance_riemann(part, np.eye(4), squared=True).mean()
        np.testing.assert_allclose(spread, 1.0, rtol=1e-9)
        Q = model.filters_[s][2]
        np.testing.assert_allclose(Q @ Q.T, np.eye(4), rtol=0, atol=1e-14)
    # The reference is recentred and rescaled, no more; the others' class means come closer to its.
    unrotated = RiemannianProcrustes(reference="gel", rotate=False).fit_transform(X, source=SOURCE)
    unrotated = untangent(unrotated, np.eye(4))
    np.testing.assert_allclose(out[SOURCE == "gel"], unrotated[SOURCE == "gel"], atol=1e-12)

    def gap(C):
        means = {(s, k): mean.mean_riemann(C[(s == SOURCE) & (k == Y)]) for s in set(SOURCE) for k in (0, 1)}
        return sum(np.linalg.norm(M - means["gel", k]) for (_, k), M in means.items())

    assert gap(out) < gap(unrotated)


@pytest.mark.parametrize(
    ("labels", "reference", "expected"),
    [((0, 1, 2), 1, 1), ((1, 2, 3), 1, 1), ((1, 2, 3), 0, 1), (("a", "b", "c"), 2, "c"), ((3, 5, 7), 2, 7)],
)
def test_reference_is_a_label_before_it_is_a_position(labels, reference, expected):
    pytest.importorskip("pyriemann")
    source = np.array(labels)[np.unique(SOURCE, return_inverse=True)[1]]
    model = RiemannianProcrustes(reference=reference, rotate=False).fit(X, source=source)
    assert model.reference_ == expected


def test_what_riemannian_procrustes_cannot_do_is_explained(monkeypatch):
    pytest.importorskip("pyriemann")

    def refuses(message, X=X, y=Y, source=SOURCE, **parameters):
        with pytest.raises(ValueError, match=message):
            RiemannianProcrustes(**parameters).fit(X, y, source=source)

    refuses("y is missing.*rotate=False", y=None)
    refuses("y has shape", y=Y[:4])
    refuses("y has 1 class", y=0 * Y)
    refuses(r"'gel' has no trials of class \[1\]", y=np.where(SOURCE == "gel", 0, Y))
    # As many classes in each source, but not the same: pyRiemann would match them by order.
    refuses(r"'dry' has no trials of class \[2\]", y=np.where(SOURCE == "gel", Y + 1, Y))
    for reference in ("other", 3, -1, True, 0.5):
        refuses(r"reference must be one of the sources \['dry', 'gel', 'wet'\]", reference=reference)
    refuses("covariances are singular; drop flat channels", X=0 * X)
    refuses("All covariances of source .* are equal", X=np.repeat(X[:1], 60, axis=0))
    assert RiemannianProcrustes().fit_transform(X[:, :1], Y, source=SOURCE).shape == (60, 1)
    monkeypatch.setitem(sys.modules, "pyriemann.estimation", None)
    with pytest.raises(ImportError, match=r"pip install 'pyriemann"):
        RiemannianProcrustes().fit(X, Y, source=SOURCE)


# --- Monge filters ------------------------------------------------------------------------------------


def coloured(n=60, t=1000, seed=0):
    """Return two sources of noise whose spectra differ by up to a factor of nine in amplitude."""
    rng = np.random.default_rng(seed)
    source = np.repeat(["red", "white"], n)
    X = rng.normal(size=(2 * n, 2, t + 200))
    X[:n, 0] = scipy.signal.lfilter([1.0], [1.0, -0.6], X[:n, 0])
    X[:n, 1] = 0.5 * scipy.signal.lfilter([1.0, 0.5], [1.0], X[:n, 1])
    return X[..., 200:], source


def power_spectra(X, size):
    return scipy.signal.welch(X, nperseg=size, axis=-1)[1].mean(axis=0)


def decibels(X, source):
    red, white = (power_spectra(X[source == s], 64) for s in ("red", "white"))
    return abs(10 * np.log10(red / white))


def test_spectra_reach_the_barycentre():
    Z, source = coloured()
    model = CMMN(filter_size=64).fit(Z, source=source)
    after = decibels(model.transform(Z, source=source), source)
    assert decibels(Z, source).max() > 5.0
    assert after.max() < 0.2
    fresh, labels = coloured(seed=1)
    assert decibels(model.transform(fresh, source=labels), labels).max() < 1.0  # sampling error
    p = [power_spectra(Z[source == s], 64) for s in ("red", "white")]
    target = (0.5 * np.sqrt(p[0]) + 0.5 * np.sqrt(p[1])) ** 2
    np.testing.assert_allclose(model.barycenter_, target, rtol=1e-13)


@pytest.mark.parametrize("size", [15, 16])
def test_filters_have_the_gains_and_zero_phase(size):
    gains = np.random.default_rng(0).uniform(0.5, 2.0, (3, size // 2 + 1))
    taps = zero_phase_filter(gains, size)
    assert taps.shape == (3, size if size % 2 else size + 1)
    np.testing.assert_array_equal(taps, taps[:, ::-1])
    for k in range(size // 2 + 1):
        response = taps @ np.exp(-2j * np.pi * k / size * (np.arange(taps.shape[1]) - taps.shape[1] // 2))
        np.testing.assert_allclose(response, gains[:, k], rtol=1e-13, atol=1e-13)
    same, source = np.concatenate([X, X]), np.repeat(["a", "b"], len(X))
    assert relative(CMMN(filter_size=size).fit_transform(same, source=source), same) < 1e-14


def test_trials_do_not_leak_into_one_another():
    model = CMMN(filter_size=16).fit(X, source=SOURCE)
    loud = X.copy()
    loud[::2] *= 1e6
    quiet, beside = (model.transform(Z, source=SOURCE)[1::2] for Z in (X, loud))
    assert relative(beside, quiet) < 1e-14


def test_gains_are_clipped_unless_told_otherwise():
    Z, source = coloured(t=200)
    stop = Z.copy()
    sos = scipy.signal.butter(8, 0.4, output="sos")
    stop[source == "red"] = scipy.signal.sosfiltfilt(sos, stop[source == "red"])

    def largest(**parameters):
        filters = CMMN(filter_size=32, **parameters).fit(stop, source=source).filters_["red"]
        return abs(np.fft.rfft(filters, 512)).max()

    assert largest() < 6.0  # 4 at the filter's own frequencies, some ripple between
    assert largest(clip=None) > 50.0
    scaled = np.where((source == "red")[:, None, None], 1e-6, 1.0) * Z
    with pytest.warns(UserWarning, match=r"Every gain of source 'red' was clipped.*units"):
        CMMN(filter_size=32).fit(scaled, source=source)
    flat = np.where(((source == "red")[:, None] & (np.arange(2) == 1))[..., None], 0.0, Z)
    with pytest.raises(ValueError, match="'red' has almost no power in channel 1"):
        CMMN(filter_size=32, clip=None).fit(flat, source=source)
    gone = np.where((np.arange(2) == 1)[:, None], 0.0, Z)
    for clip in (None, (0.25, 4.0)):
        assert np.isfinite(CMMN(filter_size=32, clip=clip).fit_transform(gone, source=source)).all()
    with pytest.raises(ValueError, match="64 samples, shorter than filter_size=128"):
        CMMN().fit(X, source=SOURCE)
