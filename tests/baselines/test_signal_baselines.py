"""The methods that act on signals: Euclidean alignment, Riemannian Procrustes, Monge filters."""

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

from mgpa.baselines._signals import check_signals
from mgpa.baselines.euclidean_alignment import EuclideanAlignment, mean_covariance
from mgpa.baselines.monge import CMMN, barycentre, power_spectra, zero_phase_filter
from mgpa.baselines.riemannian_procrustes import RiemannianProcrustes

pytestmark = pytest.mark.filterwarnings("ignore:Convergence not reached")

METHODS = {
    "ea": EuclideanAlignment(),
    "rpa": RiemannianProcrustes(max_iter=5),  # all the shared tests need
    "cmmn": CMMN(filter_size=16),
}


@pytest.fixture(params=METHODS)
def method(request):
    if request.param == "rpa":
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
NEW = recordings(sources=("saline",), seed=1)


def relative(a, b):
    return float(abs(a - b).max() / abs(b).max())


# --- what all of them share ---------------------------------------------------------------------------


def test_fit_transform_is_fit_then_transform_and_inputs_stay_as_they_were(method):
    before = X.copy(), Y.copy(), SOURCE.copy()
    once = method.fit_transform(X, Y, source=SOURCE)
    twice = clone(method).fit(X, Y, source=SOURCE).transform(X, source=SOURCE)
    np.testing.assert_array_equal(once, twice)
    for now, then in zip((X, Y, SOURCE), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert not method.tags.source_blind
    assert method.tags.needs_source
    assert method.tags.acts_on == "signals"


def test_order_of_trials_and_names_of_sources_do_not_matter(method):
    expected = method.fit_transform(X, Y, source=SOURCE)
    order = np.random.default_rng(3).permutation(len(X))
    shuffled = clone(method).fit_transform(X[order], Y[order], source=SOURCE[order])
    assert relative(shuffled, expected[order]) < 1e-6
    # Slashes and numbers mean something to pyRiemann's labels; the order of names is kept here.
    renamed = np.array([{"dry": "a/b", "gel": "a/c/", "wet": "b/1"}[s] for s in SOURCE])
    np.testing.assert_array_equal(clone(method).fit_transform(X, Y, source=renamed), expected)


def test_each_trial_is_transformed_alone(method):
    method.fit(X, Y, source=SOURCE)
    together = method.transform(X[:6], source=SOURCE[:6])
    alone = [method.transform(X[i : i + 1], source=SOURCE[i : i + 1])[0] for i in range(6)]
    assert relative(np.array(alone), together) < 1e-14


def test_other_arguments_are_ignored(method):
    expected = method.fit(X, Y, source=SOURCE).transform(X, source=SOURCE)
    ignored = {"pairs": (1, 2), "pair_id": "no", "X_val": 3, "source_val": 4, "groups": 5}
    again = clone(method).fit(X, Y, source=SOURCE, **ignored)
    np.testing.assert_array_equal(again.transform(X, source=SOURCE), expected)


def test_a_weight_is_a_number_of_repetitions(method):
    weight = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    weight[np.arange(len(X)) % 10 < 4] = 1.0
    rows = np.repeat(np.arange(len(X)), weight.astype(int))
    weighted = method.fit(X, Y, source=SOURCE, sample_weight=weight).transform(X, source=SOURCE)
    repeated = clone(method).fit(X[rows], Y[rows], source=SOURCE[rows]).transform(X, source=SOURCE)
    assert relative(weighted, repeated) < 1e-6
    with pytest.raises(ValueError, match=r"zero in every trial of source \['gel'\]"):
        method.fit(X, Y, source=SOURCE, sample_weight=1.0 * (SOURCE != "gel"))
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        method.fit(X, Y, source=SOURCE, sample_weight=-weight)


def test_precision_is_kept(method):
    double = method.fit_transform(X, Y, source=SOURCE)
    single = clone(method).fit_transform(X.astype(np.float32), Y, source=SOURCE)
    assert double.dtype == np.float64
    assert single.dtype == np.float32
    assert relative(single, double) < 1e-3
    swapped = method.transform(X.astype(">f8"), source=SOURCE)
    assert swapped.dtype == np.float64
    np.testing.assert_array_equal(swapped, double)
    with pytest.warns(DataConversionWarning, match="integer dtype int64"):
        whole = method.transform(np.rint(100 * X).astype(np.int64), source=SOURCE)
    assert whole.dtype == np.float64


def test_units_do_not_matter(method):
    volts = 1e-6 if isinstance(method, CMMN) else 1.0
    expected = method.fit_transform(X, Y, source=SOURCE)
    assert relative(clone(method).fit_transform(1e-6 * X, Y, source=SOURCE), volts * expected) < 1e-9


def test_tensors_come_back_as_tensors(method):
    torch = pytest.importorskip("torch")
    expected = method.fit(X, Y, source=SOURCE).transform(X, source=SOURCE)
    out = method.transform(torch.tensor(X), source=SOURCE)
    assert isinstance(out, torch.Tensor)
    np.testing.assert_array_equal(out.numpy(), expected)


def test_pickle_and_clone(method):
    expected = method.fit(X, Y, source=SOURCE).transform(X, source=SOURCE)
    again = pickle.loads(pickle.dumps(method))
    np.testing.assert_array_equal(again.transform(X, source=SOURCE), expected)
    copy = clone(method)
    assert copy.get_params() == method.get_params()
    assert repr(copy) == repr(method)
    with pytest.raises(NotFittedError):
        copy.transform(X, source=SOURCE)
    with pytest.raises(NotFittedError):
        copy.adapt(X, source=SOURCE)


def test_one_source_is_enough_to_start_with(method):
    one = SOURCE == "dry"
    out = method.fit_transform(X[one], Y[one], source=SOURCE[one])
    assert method.sources_.tolist() == ["dry"]
    assert np.isfinite(out).all()


@pytest.mark.filterwarnings("ignore:.*not rotated")
def test_adapt_adds_a_source_as_fitting_alone_would(method):
    method.fit(X, Y, source=SOURCE)
    before = method.transform(X, source=SOURCE)
    with pytest.raises(ValueError, match=r"\['saline'\] was not seen.*\['dry', 'gel', 'wet'\].*adapt"):
        method.transform(NEW[0], source=NEW[2])
    assert method.adapt(NEW[0], source=NEW[2]) is method
    assert method.sources_.tolist() == ["dry", "gel", "wet", "saline"]
    np.testing.assert_array_equal(method.transform(X, source=SOURCE), before)
    out = method.transform(NEW[0], source=NEW[2])
    if not isinstance(method, CMMN):  # whose target depends on the sources it was fitted on
        alone = clone(method).fit_transform(NEW[0], NEW[1], source=NEW[2])
        np.testing.assert_allclose(out, alone, rtol=0, atol=1e-12)
    mixed = method.transform(np.concatenate([X, NEW[0]]), source=np.concatenate([SOURCE, NEW[2]]))
    np.testing.assert_array_equal(mixed, np.concatenate([before, out]))


def test_adapt_refuses_known_sources_and_keeps_the_fit(method):
    before = method.fit(X, Y, source=SOURCE).transform(X, source=SOURCE)
    with pytest.raises(ValueError, match=r"\['gel'\] is already fitted"):
        method.adapt(X, source=np.where(SOURCE == "dry", "other", "gel"))
    with pytest.raises(ValueError, match=r"\[3\] is of another type"):
        method.adapt(X, source=np.full(len(X), 3))
    with pytest.raises(ValueError, match="5 channels; this method was fitted on 4"):
        method.adapt(np.ones((2, 5, 64)), source=["a", "a"])
    with pytest.raises(ValueError, match="source has shape"):
        method.adapt(NEW[0], source="saline")
    assert method.sources_.tolist() == ["dry", "gel", "wet"]
    np.testing.assert_array_equal(method.transform(X, source=SOURCE), before)


def test_missing_or_wrong_sources_are_explained(method):
    with pytest.raises(ValueError, match="source is missing: pass source="):
        method.fit(X, Y)
    method.fit(X, Y, source=SOURCE)
    with pytest.raises(ValueError, match="is source-aware"):
        method.transform(X)
    with pytest.raises(ValueError, match="one label for each of the 60 rows"):
        method.transform(X, source=SOURCE[:5])
    with pytest.raises(ValueError, match=r"\[0, 1\] was not seen"):
        method.transform(X, source=Y)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (X[0], "expected three dimensions .*before the encoder"),
        (X[None], "expected three dimensions"),
        (X.astype(np.float16), "float16, too coarse"),
        (X.astype(np.longdouble), "expected a float32 or float64"),
        (X.astype(complex), "dtype complex128; expected"),
        (X.astype(str), "expected a float32 or float64"),
        (X[:0], "it is empty"),
        (np.where(np.arange(64) == 5, np.nan, X), "NaN or infinite values in 60 of 60"),
    ],
)
def test_bad_signals_are_refused_and_leave_nothing_fitted(method, bad, message):
    method.fit(X, Y, source=SOURCE)
    with pytest.raises(ValueError, match=message):
        method.transform(bad, source=SOURCE)
    with pytest.raises(ValueError, match=message):
        method.fit(bad, Y, source=SOURCE)
    with pytest.raises(NotFittedError):
        method.transform(X, source=SOURCE)
    assert not [name for name in vars(method) if name.endswith("_")]


def test_sources_are_routed_through_a_pipeline(method):
    flat = FunctionTransformer(lambda Z: Z.reshape(len(Z), -1))
    with sklearn.config_context(enable_metadata_routing=True):
        more = {"pair_id": np.arange(len(X)), "groups": np.arange(len(X))}
        model = make_pipeline(method, flat, LogisticRegression()).fit(X, Y, source=SOURCE, **more)
        assert model.predict(X, source=SOURCE).shape == Y.shape


# --- Euclidean alignment ------------------------------------------------------------------------------


def covariances(X):
    centred = X - X.mean(axis=2, keepdims=True)
    return centred @ centred.transpose(0, 2, 1) / X.shape[2]


def test_mean_covariance_is_the_identity_in_every_source():
    aligned = EuclideanAlignment().fit_transform(X, source=SOURCE)
    raw = EuclideanAlignment(demean=False).fit_transform(X, source=SOURCE)
    for s in set(SOURCE):
        np.testing.assert_allclose(covariances(aligned[s == SOURCE]).mean(0), np.eye(4), rtol=0, atol=1e-13)
        second = raw[s == SOURCE] @ raw[s == SOURCE].transpose(0, 2, 1) / 64
        np.testing.assert_allclose(second.mean(0), np.eye(4), rtol=0, atol=1e-13)


def test_euclidean_alignment_is_idempotent_and_symmetric():
    model = EuclideanAlignment()
    once = model.fit_transform(X, source=SOURCE)
    for W in model.filters_.values():
        np.testing.assert_allclose(W, W.T, rtol=0, atol=1e-14)
    np.testing.assert_allclose(clone(model).fit_transform(once, source=SOURCE), once, rtol=0, atol=1e-12)


def test_euclidean_alignment_equals_pyriemanns_whitening():
    preprocessing = pytest.importorskip("pyriemann.preprocessing")
    model = EuclideanAlignment().fit(X, source=SOURCE)
    for s, W in model.filters_.items():
        C = covariances(X[s == SOURCE])
        theirs = preprocessing.Whitening(metric="euclid").fit(C)
        np.testing.assert_allclose(W, theirs.filters_, rtol=0, atol=1e-13)
        np.testing.assert_allclose(W @ C @ W, theirs.transform(C), rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_singular_covariances_need_a_ridge(dtype):
    referenced = (X - X.mean(axis=1, keepdims=True)).astype(dtype)
    with pytest.raises(ValueError, match=r"'dry' is singular: 3 of its 4 channels.*ridge="):
        EuclideanAlignment().fit(referenced, source=SOURCE)
    assert np.isfinite(EuclideanAlignment().fit_transform(referenced[:, 1:], source=SOURCE)).all()
    model = EuclideanAlignment(ridge=1e-3)
    aligned = model.fit_transform(referenced, source=SOURCE)
    for s in set(SOURCE):
        R = mean_covariance(referenced[s == SOURCE].astype(float), np.ones((s == SOURCE).sum()))
        wanted = np.linalg.inv(R + 1e-3 * np.trace(R) / 4 * np.eye(4))
        np.testing.assert_allclose(model.filters_[s] @ model.filters_[s], wanted, rtol=1e-9, atol=1e-9)
        values = np.linalg.eigvalsh(covariances(aligned[s == SOURCE].astype(float)).mean(0))
        assert values[0] < 1e-6
        assert (abs(values[1:] - 1) < 0.02).all()
    flat = X.copy()
    flat[:, 2] = 7.0
    with pytest.raises(ValueError, match="flat channel"):
        EuclideanAlignment().fit(flat, source=SOURCE)
    with pytest.raises(ValueError, match="0 of its 4 channels"):
        EuclideanAlignment(ridge=1.0).fit(0 * X, source=SOURCE)


# --- Riemannian Procrustes ----------------------------------------------------------------------------


def chain(C, y, source, target, centered_data=True):
    """Return the output of pyRiemann's own steps, on a copy, since TLScale overwrites its input."""
    transfer = pytest.importorskip("pyriemann.transfer")
    C, labels = transfer.encode_domains(C.copy(), y, source)
    C = transfer.TLCenter(target_domain=target).fit_transform(C, labels)
    C = transfer.TLScale(target_domain=target, centered_data=centered_data).fit_transform(C, labels)
    return transfer.TLRotate(target_domain=target, maxiter=200).fit_transform(C, labels)


def oas(X):
    return pytest.importorskip("pyriemann.estimation").Covariances("oas").fit_transform(X)


@pytest.mark.parametrize("target", ["dry", "wet"])
def test_riemannian_procrustes_equals_pyriemanns_chain(target):
    C = oas(X)
    ours = RiemannianProcrustes(reference=target, max_iter=200).fit_transform(X, Y, source=SOURCE)
    np.testing.assert_allclose(ours, chain(C, Y, SOURCE, target), rtol=0, atol=1e-14)
    # Their default estimates the recentred mean again, which is I to the tolerance of the first estimate.
    np.testing.assert_allclose(ours, chain(C, Y, SOURCE, target, centered_data=False), rtol=0, atol=1e-7)
    given = RiemannianProcrustes(reference=target, max_iter=200, input="covariances")
    np.testing.assert_array_equal(given.fit_transform(C, Y, source=SOURCE), ours)
    np.testing.assert_array_equal(C, oas(X))


def test_mean_is_the_identity_dispersion_one_and_rotations_orthogonal():
    mean = pytest.importorskip("pyriemann.geometry.mean")
    distance = pytest.importorskip("pyriemann.geometry.distance")
    model = RiemannianProcrustes(reference="gel")
    out = model.fit_transform(X, Y, source=SOURCE)
    np.testing.assert_array_equal(out, out.transpose(0, 2, 1))
    for s in set(SOURCE):
        part = out[s == SOURCE]
        np.testing.assert_allclose(mean.mean_riemann(part), np.eye(4), rtol=0, atol=1e-7)
        spread = distance.distance_riemann(part, np.eye(4), squared=True).mean()
        np.testing.assert_allclose(spread, 1.0, rtol=1e-12)
        Q = model.rotations_[s]
        np.testing.assert_allclose(Q @ Q.T, np.eye(4), rtol=0, atol=1e-14)
    # The reference is recentred and rescaled, no more; the others' class means come closer to its.
    unrotated = RiemannianProcrustes(reference="gel", rotate=False).fit_transform(X, source=SOURCE)
    np.testing.assert_array_equal(out[SOURCE == "gel"], unrotated[SOURCE == "gel"])
    assert model.reference_ == "gel"

    def gap(C):
        return sum(
            np.linalg.norm(
                mean.mean_riemann(C[(s == SOURCE) & (k == Y)])
                - mean.mean_riemann(C[(SOURCE == "gel") & (k == Y)])
            )
            for s in ("dry", "wet")
            for k in (0, 1)
        )

    assert gap(out) < gap(unrotated)


def test_class_means_are_rotated_onto_those_of_the_reference():
    mean = pytest.importorskip("pyriemann.geometry.mean")
    one = SOURCE == "dry"
    C, y = oas(X[one]), np.tile(Y[one], 2)
    Q = np.linalg.qr(np.random.default_rng(5).normal(size=(4, 4)))[0]
    both, source = np.concatenate([C, Q @ C @ Q.T]), np.repeat(["a", "b"], one.sum())

    def gap(out):
        # Trials need not match: two recentred class means determine the axes, not their signs.
        a, b = ([mean.mean_riemann(out[(source == s) & (y == k)]) for k in (0, 1)] for s in "ab")
        return abs(np.array(a) - np.array(b)).max()

    model = RiemannianProcrustes(input="covariances")
    before = gap(clone(model).set_params(rotate=False).fit_transform(both, source=source))
    assert gap(model.fit_transform(both, y, source=source)) < 0.01 * before


def test_without_rotation_or_scaling_less_is_done():
    mean = pytest.importorskip("pyriemann.geometry.mean")
    model = RiemannianProcrustes(rotate=False, scale=False, estimator="lwf")
    out = model.fit_transform(X, source=SOURCE)
    assert set(model.dispersions_.values()) == {1.0}
    np.testing.assert_allclose(mean.mean_riemann(out[SOURCE == "wet"]), np.eye(4), rtol=0, atol=1e-7)
    model.adapt(NEW[0], source=NEW[2])  # nothing is missing, so nothing is warned about
    one = RiemannianProcrustes().fit_transform(X[:, :1], Y, source=SOURCE)
    assert one.shape == (60, 1, 1)


def test_adapting_warns_that_the_rotation_is_missing():
    pytest.importorskip("pyriemann")
    model = RiemannianProcrustes().fit(X, Y, source=SOURCE)
    with pytest.warns(UserWarning, match=r"\['saline'\] is recentred and rescaled but not rotated"):
        model.adapt(NEW[0], source=NEW[2])
    np.testing.assert_array_equal(model.rotations_["saline"], np.eye(4))


@pytest.mark.parametrize(
    ("labels", "reference", "found"),
    [((0, 1, 2), 1, 1), ((1, 2, 3), 1, 1), ((1, 2, 3), 0, 1), (("a", "b", "c"), 2, "c"), ((3, 5, 7), 2, 7)],
)
def test_reference_is_a_label_before_it_is_a_position(labels, reference, found):
    pytest.importorskip("pyriemann")
    source = np.array(labels)[np.unique(SOURCE, return_inverse=True)[1]]
    model = RiemannianProcrustes(reference=reference, rotate=False).fit(X, source=source)
    assert model.reference_ == found


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
    for reference in ("nobody", 3, -1, True, 0.5):
        refuses(r"reference must be one of the sources \['dry', 'gel', 'wet'\]", reference=reference)
    refuses("covariances are square", input="covariances")
    refuses("60 of 60 matrices are not symmetric", X=X[:, :, :4], input="covariances")
    referenced = X - X.mean(axis=1, keepdims=True)
    refuses("not positive definite.*estimator='oas'", X=referenced, estimator="scm")
    refuses("not positive definite", X=-oas(X), input="covariances")
    refuses("All covariances of source .* are the same", X=np.repeat(X[:1], 60, axis=0))
    refuses("nonsense", estimator="nonsense")
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


def decibels(X, source):
    red, white = (power_spectra(X[source == s], np.ones(60), 64) for s in ("red", "white"))
    return abs(10 * np.log10(red / white))


def test_spectra_of_two_sources_match_after_filtering():
    Z, source = coloured()
    before, after = (
        decibels(Z, source),
        decibels(CMMN(filter_size=64).fit_transform(Z, source=source), source),
    )
    assert before.max() > 5.0
    assert after.max() < 0.2
    assert after.mean() < 0.05
    fresh, labels = coloured(seed=1)
    new = CMMN(filter_size=64).fit(Z, source=source).transform(fresh, source=labels)
    assert decibels(new, labels).max() < 1.0  # sampling error of four spectra


def test_filters_reach_the_barycentre_at_their_own_frequencies():
    Z, source = coloured()
    model = CMMN(filter_size=64, clip=None).fit(Z, source=source)
    p = [power_spectra(Z[source == s], np.ones(60), 64) for s in ("red", "white")]
    np.testing.assert_allclose(
        model.barycenter_, (0.5 * np.sqrt(p[0]) + 0.5 * np.sqrt(p[1])) ** 2, rtol=1e-13
    )
    np.testing.assert_allclose(barycentre([p[0]] * 3), p[0], rtol=1e-14)
    for spectra, filters in zip(p, model.filters_.values(), strict=True):
        taps = filters.copy()
        taps[:, 0] += taps[:, -1]
        response = np.fft.rfft(np.fft.ifftshift(taps[:, :-1], axes=-1))
        np.testing.assert_allclose(spectra * abs(response) ** 2, model.barycenter_, rtol=1e-12)


@pytest.mark.parametrize("size", [15, 16])
def test_identical_sources_are_left_as_they_are(size):
    same = np.concatenate([X, X])
    source = np.repeat(["a", "b"], len(X))
    model = CMMN(filter_size=size).fit(same, source=source)
    assert relative(model.transform(same, source=source), same) < 1e-14
    delta = np.eye(2 * (size // 2) + 1)[size // 2]
    for filters in model.filters_.values():
        np.testing.assert_allclose(filters, np.tile(delta, (4, 1)), rtol=0, atol=1e-15)


@pytest.mark.parametrize("size", [15, 16])
def test_filters_have_zero_phase(size):
    gains = np.random.default_rng(0).uniform(0.5, 2.0, (3, size // 2 + 1))
    taps = zero_phase_filter(gains, size)
    assert taps.shape == (3, size if size % 2 else size + 1)
    np.testing.assert_array_equal(taps, taps[:, ::-1])
    middle = taps.shape[1] // 2
    for k in range(size // 2 + 1):
        response = taps @ np.exp(-2j * np.pi * k / size * (np.arange(taps.shape[1]) - middle))
        np.testing.assert_allclose(response, gains[:, k], rtol=1e-13, atol=1e-13)
    # A pulse stays where it is.
    model = CMMN(filter_size=size).fit(X, source=SOURCE)
    pulse = np.zeros((1, 4, 64))
    pulse[..., 30] = 1.0
    out = model.transform(pulse, source=["dry"])[0]
    assert (out.argmax(axis=-1) == 30).all()
    np.testing.assert_allclose(out[:, 20:41], out[:, 20:41][:, ::-1], rtol=0, atol=1e-14)


def test_trials_do_not_leak_into_one_another():
    model = CMMN(filter_size=16).fit(X, source=SOURCE)
    loud = X.copy()
    loud[::2] *= 1e6
    quiet, beside = (model.transform(Z, source=SOURCE)[1::2] for Z in (X, loud))
    assert relative(beside, quiet) < 1e-14
    # Nor do segments of the spectra span two trials: trials in another order give the same barycentre.
    spectra = power_spectra(X, np.ones(60), 16)
    np.testing.assert_allclose(power_spectra(X[::-1], np.ones(60), 16), spectra, rtol=1e-12)


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
    out = CMMN(filter_size=32).fit_transform(flat, source=source)
    assert abs(out[source == "red", 1]).max() == 0.0
    gone = np.where((np.arange(2) == 1)[:, None], 0.0, Z)
    for clip in (None, (0.25, 4.0)):
        assert np.isfinite(CMMN(filter_size=32, clip=clip).fit_transform(gone, source=source)).all()


def test_adapted_sources_reach_the_stored_barycentre():
    Z, source = coloured()
    model = CMMN(filter_size=64).fit(Z, source=source)
    target = model.barycenter_.copy()
    new = scipy.signal.lfilter([1.0], [1.0, 0.3], np.random.default_rng(7).normal(size=(60, 2, 1000)))
    out = model.adapt(new, source=["blue"] * 60).transform(new, source=["blue"] * 60)
    np.testing.assert_array_equal(model.barycenter_, target)
    assert abs(10 * np.log10(power_spectra(out, np.ones(60), 64) / target)).max() < 0.5


def test_trials_shorter_than_the_filter_are_refused():
    with pytest.raises(ValueError, match="64 samples, shorter than filter_size=128"):
        CMMN().fit(X, source=SOURCE)
    model = CMMN(filter_size=32).fit(X, source=SOURCE)
    with pytest.raises(ValueError, match="20 samples, shorter"):
        model.transform(X[..., :20], source=SOURCE)


def test_the_check_of_signals_copies_nothing_it_need_not():
    assert check_signals(X) is X or np.shares_memory(check_signals(X), X)
