"""What must hold for any data: preserved complements, invariances, streaming, reproducibility, gates."""

import os
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression

import mgpa
from mgpa import (
    ClosedFormMGPA,
    FullGate,
    IterativeMGPA,
    MeasurementGate,
    Moments,
    PCAGate,
    RandomGate,
    TokenMean,
    transform_tokens,
)
from mgpa.gate import held_out_coverage

SEEDS = st.integers(0, 2**20)


def examples(n):
    """Return settings for a property tried on n examples, the same ones each time."""
    return settings(
        max_examples=n, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )


@dataclass(frozen=True)
class Data:
    X: np.ndarray
    source: np.ndarray
    pairs: tuple[np.ndarray, np.ndarray] | None = None
    pair_id: np.ndarray | None = None
    sample_weight: np.ndarray | None = None

    def fit(self, model):
        return model.fit(self.X, **self.evidence())

    def evidence(self):
        names = ("source", "pairs", "pair_id", "sample_weight")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def rows(self, chosen):
        """Return the data of these rows; pairs given as arrays stay whole."""
        arrays = {
            name: value[chosen]
            for name in ("X", "source", "pair_id", "sample_weight")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **arrays)

    def map_features(self, function):
        pairs = None if self.pairs is None else tuple(map(function, self.pairs))
        return replace(self, X=function(self.X), pairs=pairs)


def with_pairs(seed, n=80, d=6, m=30, dtype=np.float64):
    """Rows of two sources and pairs given as two arrays."""
    rng = np.random.default_rng(seed)
    shift, mix = 1.5 * rng.normal(size=d), rng.normal(size=(d, d)) + 2 * np.eye(d)
    source = rng.permutation(np.arange(n) % 2)
    X = rng.normal(size=(n, d)) @ mix + np.outer(source, shift) + rng.normal(size=d)
    first = rng.normal(size=(m, d)) @ mix
    second = first + shift + 0.5 * rng.normal(size=(m, 2)) @ rng.normal(size=(2, d))
    return Data(X.astype(dtype), source, (first.astype(dtype), (second).astype(dtype)))


def with_ids(seed, events=25, d=6, K=3, unpaired=10):
    """Rows of K sources; every event has one view per source, some rows have none. Shuffled."""
    rng = np.random.default_rng(seed)
    effects, mix = 1.5 * rng.normal(size=(K, d)), rng.normal(size=(d, d)) + 2 * np.eye(d)
    source = np.concatenate([np.tile(np.arange(K), events), rng.integers(K, size=unpaired)])
    pair_id = np.concatenate([np.repeat(np.arange(events), K), np.full(unpaired, -1)])
    content = np.concatenate([np.repeat(rng.normal(size=(events, d)), K, 0), rng.normal(size=(unpaired, d))])
    X = content @ mix + effects[source] + 0.3 * rng.normal(size=(len(source), d))
    order = rng.permutation(len(source))
    return Data(X[order], source[order], pair_id=pair_id[order])


def linear(n_stages=3, **changes):
    """Return a small iterative estimator without torch."""
    return IterativeMGPA.paper(critics=("linear",), n_stages=n_stages, **changes)


def both(n_stages=2, **changes):
    changes = {"critic_epochs": 2, "device": "cpu"} | changes
    return IterativeMGPA.paper(n_stages=n_stages, **changes)


def new_rows(data, seed=0, n=40):
    rng = np.random.default_rng(seed)
    d = data.X.shape[1]
    return (data.X.mean(0) + 3 * rng.normal(size=(n, d))).astype(data.X.dtype)


def assert_close(actual, expected, tolerance):
    """Compare relative to the size of the whole array."""
    size = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * size)


def same_tensors(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in a.tensor_names)


# The complement.


@examples(25)
@given(SEEDS, st.integers(1, 5), st.sampled_from([0.5, 1.0, 1.7]), st.sampled_from([np.float32, np.float64]))
def test_the_closed_form_leaves_the_complement(seed, rank, strength, dtype):
    data = with_pairs(seed, dtype=dtype)
    model = data.fit(ClosedFormMGPA(MeasurementGate(rank=min(rank, 3)), strength=strength))
    check_complement(model, new_rows(data), dtype)


@examples(8)
@given(SEEDS, st.integers(1, 3), st.booleans(), st.sampled_from([np.float32, np.float64]))
def test_the_iterative_map_leaves_the_complement(seed, rank, network, dtype):
    data = with_pairs(seed, dtype=dtype)
    model = data.fit((both if network else linear)(gate=MeasurementGate(rank=rank), radius=0.3))
    check_complement(model, new_rows(data), dtype)


def check_complement(model, X, dtype):
    m = model.to_map()
    after = model.transform(X)
    assert after.dtype == dtype
    H, moved = ((Y.astype(np.float64) - m.center) / m.scale for Y in (X, after))
    assert np.linalg.norm(moved - H) > 1e-3 * np.linalg.norm(H)
    left = model.gate_.preserved(moved) - model.gate_.preserved(H)
    tolerance = 1e-5 if dtype == np.float32 else 1e-10
    assert np.linalg.norm(left) <= tolerance * np.linalg.norm(H)


def test_every_prefix_and_fraction_leaves_the_complement():
    data = with_pairs(0)
    model, X = data.fit(both(n_stages=3, gate=MeasurementGate(rank=2))), new_rows(with_pairs(0))
    scale = model.map_.scale
    for n_stages, fraction, strength in [(1, 1.0, None), (2, 0.35, None), (3, 0.5, 1.5)]:
        moved = model.transform(X, n_stages=n_stages, fraction=fraction, strength=strength)
        assert_close(model.gate_.preserved((moved - X) / scale), 0.0, 1e-10)


# Nothing to do is nothing done.


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rank_zero_changes_nothing(dtype):
    data = with_pairs(1, dtype=dtype)
    for model in (ClosedFormMGPA(MeasurementGate(rank=0)), linear(gate=MeasurementGate(rank=0)),
                  both(gate=MeasurementGate(rank=0))):  # fmt: skip
        X = new_rows(data)
        assert np.array_equal(data.fit(model).transform(X), X)
        assert model.gate_.rank_ == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_strength_zero_and_no_stages_change_nothing(dtype):
    data = with_pairs(2, dtype=dtype)
    X = new_rows(data)
    assert np.array_equal(data.fit(ClosedFormMGPA(strength=0.0)).transform(X), X)
    assert np.array_equal(data.fit(ClosedFormMGPA()).transform(X, strength=0.0), X)
    model = data.fit(both())
    assert not np.array_equal(model.transform(X), X)
    assert np.array_equal(model.transform(X, strength=0.0), X)
    assert np.array_equal(model.transform(X, n_stages=0), X)
    assert np.array_equal(model.transform(X, n_stages=1, fraction=0.0), X)
    assert np.array_equal(data.fit(linear(n_stages=0)).transform(X), X)


# Invariances.


@examples(20)
@given(SEEDS)
def test_which_view_comes_first_does_not_matter(seed):
    data = with_pairs(seed)
    swapped = replace(data, pairs=data.pairs[::-1])
    X = new_rows(data)
    closed = [d.fit(ClosedFormMGPA()).transform(X) for d in (data, swapped)]
    assert_close(closed[1], closed[0], 1e-10)
    iterative = [d.fit(linear()).transform(X) for d in (data, swapped)]
    assert_close(iterative[1], iterative[0], 1e-6)


@examples(20)
@given(SEEDS)
def test_the_sign_of_single_contrasts_does_not_matter_to_the_gate(seed):
    rng = np.random.default_rng(seed)
    contrasts = rng.normal(size=(20, 3)) @ rng.normal(size=(3, 6)) + 0.1 * rng.normal(size=(20, 6))
    flipped = contrasts * rng.choice([-1.0, 1.0], size=(20, 1))
    gates = [MeasurementGate(rank=3).fit(c) for c in (contrasts, flipped)]
    assert_close(gates[1].basis_, gates[0].basis_, 1e-9)
    assert_close(gates[1].cumulative_energy_, gates[0].cumulative_energy_, 1e-12)


@examples(20)
@given(SEEDS)
def test_the_order_of_rows_and_pairs_does_not_matter(seed):
    data, rng = with_pairs(seed), np.random.default_rng(seed)
    order, pair_order = rng.permutation(len(data.X)), rng.permutation(len(data.pairs[0]))
    shuffled = replace(data.rows(order), pairs=tuple(side[pair_order] for side in data.pairs))
    X = new_rows(data)
    assert_close(shuffled.fit(ClosedFormMGPA()).transform(X), data.fit(ClosedFormMGPA()).transform(X), 1e-10)
    assert_close(shuffled.fit(linear()).transform(X), data.fit(linear()).transform(X), 1e-5)


@examples(20)
@given(SEEDS)
def test_the_order_of_rows_with_pair_ids_does_not_matter(seed):
    data = with_ids(seed)
    shuffled = data.rows(np.random.default_rng(seed).permutation(len(data.X)))
    X = new_rows(data)
    assert_close(shuffled.fit(ClosedFormMGPA()).transform(X), data.fit(ClosedFormMGPA()).transform(X), 1e-10)


@examples(20)
@given(SEEDS)
def test_permuted_features_give_permuted_output(seed):
    data = with_pairs(seed)
    order, X = np.random.default_rng(seed).permutation(data.X.shape[1]), new_rows(data)
    permuted = data.map_features(lambda Y: Y[:, order])
    for make, tolerance in ((ClosedFormMGPA, 1e-9), (linear, 1e-5)):
        expected = data.fit(make()).transform(X)[:, order]
        assert_close(permuted.fit(make()).transform(X[:, order]), expected, tolerance)


@examples(20)
@given(SEEDS)
def test_scaled_and_shifted_features_give_scaled_and_shifted_output(seed):
    data, rng = with_pairs(seed), np.random.default_rng(seed)
    scale, shift = 10 ** rng.uniform(-3, 3, size=data.X.shape[1]), 10 * rng.normal(size=data.X.shape[1])
    changed = data.map_features(lambda Y: (Y + shift) * scale)
    X = new_rows(data)
    for make, tolerance in ((ClosedFormMGPA, 1e-9), (linear, 1e-5)):
        expected = data.fit(make()).transform(X)
        actual = changed.fit(make()).transform((X + shift) * scale) / scale - shift
        assert_close(actual, expected, tolerance)


def test_other_units_give_the_same_critics_bit_for_bit():
    # Powers of two change no rounding, so even the networks must come out alike.
    data = with_pairs(3)
    scale = 2.0 ** np.random.default_rng(3).integers(-8, 8, size=data.X.shape[1])
    maps = [d.fit(both()).to_map() for d in (data, data.map_features(lambda Y: Y * scale))]
    assert all(np.array_equal(getattr(maps[0], n), getattr(maps[1], n)) for n in maps[0].stage_tensors)
    assert np.array_equal(maps[1].scale, maps[0].scale * scale)


def test_without_standardising_units_matter():
    data, scale = with_pairs(4), np.array([10.0, 1, 1, 1, 1, 1])
    X = new_rows(data)
    expected = data.fit(ClosedFormMGPA(standardize=False)).transform(X)
    changed = data.map_features(lambda Y: Y * scale).fit(ClosedFormMGPA(standardize=False))
    assert np.abs(changed.transform(X * scale) / scale - expected).max() > 1e-3


@examples(15)
@given(SEEDS)
def test_renaming_the_sources_changes_nothing(seed):
    data = with_ids(seed)
    X, expected = new_rows(data), data.fit(ClosedFormMGPA())
    for names in (["c", "a", "b"], [7, -1, 3], [2, 1, 0]):
        renamed = replace(data, source=np.array(names)[data.source]).fit(ClosedFormMGPA())
        assert renamed.sources_.tolist() == sorted(names)
        assert_close(renamed.transform(X), expected.transform(X), 1e-9)
    two = with_pairs(seed)
    swapped = replace(two, source=1 - two.source)
    assert_close(swapped.fit(linear()).transform(X), two.fit(linear()).transform(X), 1e-5)


# Streaming.


def split(data, rng, n_batches):
    """Return the data in random batches of rows, pairs given as arrays split too."""
    parts = np.array_split(rng.permutation(len(data.X)), n_batches)
    batches = [data.rows(rows) for rows in parts]
    if data.pairs is not None:
        chunks = np.array_split(rng.permutation(len(data.pairs[0])), n_batches)
        batches = [
            replace(batch, pairs=tuple(side[rows] for side in data.pairs) if len(rows) else None)
            for batch, rows in zip(batches, chunks, strict=True)
        ]
    return batches


@examples(30)
@given(SEEDS, st.integers(1, 6), st.sampled_from(["pairs", 2, 3]), st.booleans())
def test_batch_streamed_and_merged_fits_are_one(seed, n_batches, kind, weighted):
    rng = np.random.default_rng(seed)
    data = with_pairs(seed) if kind == "pairs" else with_ids(seed, K=kind)
    if weighted:
        data = replace(data, sample_weight=rng.uniform(0.1, 3.0, size=len(data.X)))
    X, whole = new_rows(data), data.fit(ClosedFormMGPA())
    batches = split(data, rng, n_batches)  # views of one event often fall into different batches
    streamed = ClosedFormMGPA()
    for batch in batches:
        streamed.partial_fit(batch.X, **batch.evidence())
    parts = [ClosedFormMGPA().partial_fit(batch.X, **batch.evidence()) for batch in batches]
    merged = ClosedFormMGPA()
    for i in rng.permutation(len(parts)):
        merged.merge(parts[i])
    for other in (streamed, merged):
        assert_close(other.transform(X), whole.transform(X), 1e-10)
        assert_close(other.covariance_, whole.covariance_, 1e-10)
        info, expected = (replace(model.to_map().info, gate_energy=None) for model in (other, whole))
        assert info == expected


@examples(30)
@given(SEEDS, st.integers(1, 8), st.booleans())
def test_moments_merge_in_any_order(seed, n_batches, weighted):
    rng = np.random.default_rng(seed)
    X, source = 5 + rng.normal(size=(40, 4)), rng.choice(["a", "b", "c"], size=40)
    weight = rng.uniform(size=40) if weighted else None
    whole = Moments.from_rows(X, source, weight)
    pieces = [
        Moments.from_rows(X[rows], source[rows], None if weight is None else weight[rows])
        for rows in np.array_split(rng.permutation(40), n_batches)
    ]
    left = Moments.merge(pieces)
    right = pieces[-1]
    for piece in pieces[-2::-1]:
        right = piece + right
    for merged in (left, right):
        assert merged.sources == whole.sources
        assert merged.n_rows == 40
        assert merged.fingerprint == whole.fingerprint
        assert_close(merged.weights, whole.weights, 1e-12)
        assert_close(merged.means, whole.means, 1e-12)
        assert_close(merged.scatter, whole.scatter, 1e-10)
    weights = np.ones(40) if weight is None else weight
    assert_close(whole.mean, np.average(X, axis=0, weights=weights), 1e-12)
    assert_close(whole.scatter, np.cov(X.T, aweights=weights, ddof=0) * weights.sum(), 1e-10)


def test_rows_can_be_added_after_a_fit():
    data = with_ids(5, K=2)
    rng = np.random.default_rng(5)
    first, second = split(data, rng, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some pairs are still incomplete
        model = first.fit(ClosedFormMGPA())
        early = model.transform(data.X)
    model.partial_fit(second.X, **second.evidence())
    assert np.abs(model.transform(data.X) - early).max() > 1e-6
    assert_close(model.transform(data.X), data.fit(ClosedFormMGPA()).transform(data.X), 1e-10)


@examples(20)
@given(SEEDS)
def test_whole_number_weights_equal_repeated_rows(seed):
    data, rng = with_pairs(seed), np.random.default_rng(seed)
    counts = rng.integers(0, 4, size=len(data.X))
    weighted = replace(data, sample_weight=counts.astype(float))
    repeated = data.rows(np.repeat(np.arange(len(data.X)), counts))
    X = new_rows(data)
    for make, tolerance in ((ClosedFormMGPA, 1e-10), (linear, 1e-5)):
        models = [d.fit(make()) for d in (weighted, repeated)]
        assert_close(models[0].map_.scale, models[1].map_.scale, 1e-12)
        assert_close(models[0].transform(X), models[1].transform(X), tolerance)
    assert np.abs(data.fit(ClosedFormMGPA()).transform(X) - models[0].transform(X)).max() > 1e-6


# Constant features.

GATES = [
    MeasurementGate(),
    MeasurementGate(rank=2),
    PCAGate(rank=2),
    RandomGate(rank=2, random_state=0),
    FullGate(),
]


@examples(20)
@given(
    SEEDS,
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=3),
    st.sampled_from(GATES),
    st.sampled_from([np.float32, np.float64]),
    st.booleans(),
)
def test_constant_features_are_never_edited(seed, values, gate, dtype, weighted):
    rng = np.random.default_rng(seed)
    data = with_pairs(seed, dtype=dtype)
    dead = rng.permutation(data.X.shape[1])[: len(values)]
    data.X[:, dead] = values
    if weighted:
        data = replace(data, sample_weight=rng.uniform(0.1, 2.0, size=len(data.X)))
    X = new_rows(data)
    X[:, dead] += rng.normal(size=(len(X), len(dead))).astype(dtype) * 100
    for model in (ClosedFormMGPA(gate), linear(gate=gate)):
        after = data.fit(model).transform(X)
        assert np.array_equal(after[:, dead], X[:, dead])
        assert (model.map_.scale[dead] == 1.0).all()
        assert not model.gate_.basis_[dead].any()
        living = np.delete(np.arange(data.X.shape[1]), dead)
        assert np.isfinite(after).all()
        assert np.abs(after - X)[:, living].max() > 0


def test_constant_features_are_never_edited_by_networks_or_with_pair_ids():
    data = with_ids(6)
    data.X[:, [1, 4]] = [0.1, 0.0]
    X = new_rows(data)
    for model in (both(), ClosedFormMGPA(), both(target="zero", critics=("gelu",))):
        after = data.fit(model).transform(X)
        assert np.array_equal(after[:, [1, 4]], X[:, [1, 4]])
        assert not np.array_equal(after, X)


@examples(20)
@given(SEEDS, st.floats(-1e6, 1e6), st.integers(2, 6))
def test_constant_features_stay_constant_when_streamed(seed, value, n_batches):
    data = with_pairs(seed)
    data.X[:, 2] = value
    model = ClosedFormMGPA()
    for batch in split(data, np.random.default_rng(seed), n_batches):
        model.partial_fit(batch.X, **batch.evidence())
    X = new_rows(data)
    assert model.map_.scale[2] == 1.0
    assert np.array_equal(model.transform(X)[:, 2], X[:, 2])


def test_a_feature_that_barely_varies_is_not_taken_for_constant():
    data = with_pairs(7)
    data = data.map_features(lambda Y: np.column_stack([1e-9 * Y[:, 0] + 1.0, Y[:, 1:]]))
    model = data.fit(ClosedFormMGPA())
    assert model.map_.scale[0] == pytest.approx(data.X[:, 0].std(), rel=1e-6)
    assert model.gate_.basis_[0].any()


# Reproducibility.


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    data = with_pairs(8)
    for changes in ({}, {"do_no_harm": True}, {"critics": ("gelu",)}):
        first, again, other = (data.fit(both(random_state=s, **changes)).to_map() for s in (3, 3, 4))
        assert len(first) > 0
        assert same_tensors(first, again)
        assert not same_tensors(first, other)


def test_linear_critics_do_not_depend_on_the_seed():
    data = with_pairs(9)
    assert same_tensors(*(data.fit(linear(random_state=s)).to_map() for s in (0, 1)))


def test_fitting_leaves_global_random_state_alone():
    torch = pytest.importorskip("torch")
    data = with_pairs(10)
    torch.manual_seed(0)
    state, numpy_state = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    data.fit(both())
    assert torch.equal(state, torch.random.get_rng_state())
    assert np.array_equal(numpy_state, np.random.get_state()[1])  # noqa: NPY002


FIT_ONCE = """
import sys
import numpy as np
from test_properties import both, new_rows, with_pairs
data = with_pairs(11, n=300, d=12)
model = data.fit(both(n_stages=4, critic_epochs=4))
m = model.to_map()
tensors = {name: getattr(m, name) for name in m.tensor_names}
np.savez(sys.argv[1], output=model.transform(new_rows(data)), **tensors)
"""


def test_threads_change_rounding_only_and_one_thread_changes_nothing(tmp_path):
    results = []
    for i, threads in enumerate(("1", "1", "2")):
        folders = (Path(__file__).parents[1], Path(mgpa.__file__).parents[1])
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        environment = os.environ | dict.fromkeys(names, threads) | {"PYTHONPATH": ":".join(map(str, folders))}
        out = tmp_path / f"{i}.npz"
        subprocess.run([sys.executable, "-c", FIT_ONCE, str(out)], env=environment, check=True, timeout=120)
        with np.load(out) as arrays:
            results.append(dict(arrays))
    once, again, two = results
    assert all(np.array_equal(once[name], again[name]) for name in once)
    np.testing.assert_allclose(two["output"], once["output"], rtol=0, atol=1e-4)


# Precision.


@pytest.mark.parametrize("make", [ClosedFormMGPA, linear, both])
def test_float32_and_float64_rows_get_the_same_correction_in_their_own_type(make):
    data = with_pairs(12, dtype=np.float32)
    X = new_rows(data)
    assert X.dtype == np.float32
    model = data.fit(make())
    single, double = model.transform(X), model.transform(X.astype(np.float64))
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    # Where the critics nearly agree, damping of .001 turns rounding of 1e-7 into 1e-4.
    assert_close(single, double, 3e-4 if make is both else 1e-5)
    # The fit itself does not depend on the type the same numbers come in.
    wide = data.map_features(lambda Y: Y.astype(np.float64)).fit(make())
    assert_close(wide.map_.center, model.map_.center, 1e-12)
    assert_close(wide.map_.scale, model.map_.scale, 1e-12)
    assert_close(wide.transform(X.astype(np.float64)), double, 1e-5)


@pytest.mark.parametrize("make", [ClosedFormMGPA, linear, both])
def test_a_row_alone_equals_the_row_in_a_batch(make):
    data = with_pairs(13)
    model, X = data.fit(make()), new_rows(data)
    alone = np.concatenate([model.transform(row[None]) for row in X])
    assert_close(alone, model.transform(X), 1e-12)


# More than two sources.


@examples(15)
@given(SEEDS)
def test_three_sources_share_their_means_after_correction(seed):
    rng = np.random.default_rng(seed)
    events, d, r = 200, 7, 3
    gate = np.linalg.qr(rng.normal(size=(d, r)))[0]
    effects = 2 * rng.normal(size=(3, r)) @ gate.T
    content = rng.normal(size=(events, d)) @ rng.normal(size=(d, d))
    response = 0.5 * rng.normal(size=(3 * events, r)) @ gate.T
    source, pair_id = np.tile(np.arange(3), events), np.repeat(np.arange(events), 3)
    data = Data(np.repeat(content, 3, axis=0) + effects[source] + response, source, pair_id=pair_id)
    model = data.fit(ClosedFormMGPA(MeasurementGate(rank=r), standardize=False))
    m = model.to_map()
    assert m.readout.shape == m.direction.shape == (d, 2)
    assert model.direction_.shape == (2, r)
    after = model.transform(data.X)

    def gaps(X):
        means = np.stack([X[source == k].mean(0) for k in range(3)])
        return np.abs(means[1:] - means[0]).max()

    assert gaps(data.X) > 0.5
    assert gaps(after) < 1e-9  # every row is paired, so the measured effects are the mean gaps
    # What is removed is two-dimensional and what is left of it equals the anchor for every row.
    assert np.linalg.matrix_rank(after - data.X, tol=1e-6) == 2
    B = model.gate_.basis_
    block = B.T @ (np.eye(d) - 0.7 * m.direction @ m.readout.T) @ B
    assert np.linalg.det(block) == pytest.approx(0.3**2, abs=1e-9)


def test_three_sources_cannot_be_told_apart_given_the_context():
    rng = np.random.default_rng(14)
    n, d, r = 30_000, 6, 3
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    gate, effects = basis[:, :r], 2 * rng.normal(size=(3, r))
    source = rng.integers(3, size=n)
    q = rng.normal(size=(n, d - r))
    z = q @ rng.normal(size=(d - r, r)) + effects[source] + rng.normal(size=(n, r)) @ rng.normal(size=(r, r))
    pair_id = np.full(n, -1)
    paired = np.concatenate([np.flatnonzero(source == k)[:300] for k in range(3)])
    pair_id[paired] = np.tile(np.arange(300), 3)
    X = q @ basis[:, r:].T + z @ gate.T
    # Views of one event: same context and noise, so the measured effects are exact.
    X[paired] = np.tile(X[paired[:300]], (3, 1)) - effects[0] @ gate.T + effects[source[paired]] @ gate.T
    contrasts_span = MeasurementGate(rank=2)
    data = Data(X, source, pair_id=pair_id)
    model = data.fit(ClosedFormMGPA(contrasts_span, ridge=0.0, shrinkage=0.0, standardize=False))
    after = model.transform(X)

    def effect(Y):
        design = np.column_stack(
            [Y - Y @ model.gate_.basis_ @ model.gate_.basis_.T, np.eye(3)[source][:, 1:]]
        )
        return np.abs(LinearRegression().fit(design, Y @ model.gate_.basis_).coef_[:, -2:]).max()

    assert effect(X) > 1.0
    assert effect(after) < 0.05


def largest_change_under_other_names(data, model, **evidence):
    """Return how much the displacement of new rows depends on what the sources are called, relative to it."""
    X = new_rows(data)

    def displacement(names):
        names = np.array(names)
        held = {**evidence, "source_val": names[evidence["source_val"]]} if evidence else {}
        renamed = replace(data, source=names[data.source]).evidence()
        return clone(model).fit(data.X, **renamed, **held).transform(X) - X

    expected = displacement([0, 1, 2])
    assert np.linalg.norm(expected) > 0.01 * np.linalg.norm(X)
    others = [displacement(names) for names in (["c", "a", "b"], [7, -1, 3], [2, 1, 0])]
    return max(np.linalg.norm(other - expected) for other in others) / np.linalg.norm(expected)


@pytest.mark.parametrize("do_no_harm", [False, True])
@pytest.mark.parametrize("target", ["conditional", "zero"])
def test_renaming_three_sources_does_not_change_what_linear_critics_move(do_no_harm, target):
    model = linear(n_stages=4, radius=0.2, do_no_harm=do_no_harm, target=target)
    assert largest_change_under_other_names(with_ids(15, events=60), model) < 1e-9


@pytest.mark.parametrize("held_out", [False, True])
def test_renaming_three_sources_changes_what_networks_move_by_rounding_only(held_out):
    # A stage's networks come out with the same bits. Their scores are summed up in another order, though, and
    # training magnifies that from stage to stage.
    data, held = with_ids(15, events=60), with_ids(15, events=70)
    model = both(n_stages=4, radius=0.2, critic_epochs=12, early_stopping=held_out, patience=2)
    evidence = {"X_val": held.X, "source_val": held.source} if held_out else {}
    assert largest_change_under_other_names(data, model, **evidence) < 1e-5


def test_networks_of_three_sources_have_the_same_bits_whatever_the_sources_are_called():
    torch = pytest.importorskip("torch")
    from mgpa.critics import fit_network

    data = with_ids(15, events=60)
    H = torch.as_tensor(data.X, dtype=torch.float32)
    first, renamed = (
        fit_network(H, codes, 3, seed=5, epochs=3, learning_rate=1e-3)
        for codes in (data.source, np.array([2, 0, 1])[data.source])
    )
    assert torch.equal(first.hidden_weight, renamed.hidden_weight)
    torch.testing.assert_close(renamed.output_weight[[2, 0, 1]], first.output_weight)


@pytest.mark.parametrize("make", [linear, both])
def test_iterative_critics_of_three_sources_give_one_score_per_source(make):
    data = with_ids(15, events=60)
    model = data.fit(make(n_stages=8, radius=0.2, gate=MeasurementGate(rank=2)))
    S, L, _, N = model.map_.sizes
    assert [8, 3, 3 if make is both else 0] == [S, L, N]
    after = model.transform(data.X)

    def gaps(X):
        H = (X - model.map_.center) / model.map_.scale @ model.gate_.basis_
        means = np.stack([H[data.source == k].mean(0) for k in range(3)])
        return np.linalg.norm(means - means.mean(0))

    assert gaps(after) < 0.5 * gaps(data.X)


# Operating points.


def test_a_prefix_equals_stopping_the_fit():
    data = with_pairs(16)
    whole = data.fit(both(n_stages=4)).to_map()
    X = new_rows(data)
    for k in range(5):
        stopped = data.fit(both(n_stages=k)).to_map()
        assert same_tensors(whole[:k], stopped)
        assert np.array_equal(whole[:k].transform(X), stopped.transform(X))


@examples(15)
@given(SEEDS, st.floats(0.0, 2.0))
def test_strength_scales_the_chord(seed, strength):
    data = with_pairs(seed)
    X = new_rows(data)
    for model in (data.fit(ClosedFormMGPA()), data.fit(linear())):
        chord = model.transform(X) - X
        assert_close(model.transform(X, strength=strength), X + strength * chord, 1e-12)
        assert_close(model.to_map().with_strength(strength).transform(X), X + strength * chord, 1e-12)


def test_a_fraction_scales_the_last_stage_only():
    data = with_pairs(17)
    model, X = data.fit(both(n_stages=3)), new_rows(with_pairs(17))
    before, after = model.transform(X, n_stages=2), model.transform(X, n_stages=3)
    assert_close(model.transform(X, n_stages=3, fraction=0.25), before + 0.25 * (after - before), 1e-12)


def test_no_stage_moves_a_row_further_than_the_radius():
    data = with_pairs(18)
    model = data.fit(both(n_stages=3, radius=0.02))
    X, before = new_rows(data), 0.0
    for k in range(1, 4):
        after = model.map_[:k].displacement(X)
        assert np.linalg.norm(after - before, axis=1).max() <= 0.02 * np.sqrt(X.shape[1]) * (1 + 1e-6)
        before = after


# Tokens.


@examples(15)
@given(SEEDS, st.integers(1, 5), st.sampled_from([np.float32, np.float64]))
def test_tokens_move_with_their_mean(seed, n_tokens, dtype):
    data, rng = with_pairs(seed), np.random.default_rng(seed)

    def tokens(rows):
        return (rows[:, None] + rng.normal(size=(len(rows), n_tokens, rows.shape[1]))).astype(dtype)

    X, pairs = tokens(data.X), tuple(map(tokens, data.pairs))
    model = TokenMean(ClosedFormMGPA()).fit(X, source=data.source, pairs=pairs)
    new = tokens(new_rows(data))
    after = model.transform(new)
    assert (after.shape, after.dtype) == (new.shape, dtype)
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    inner, inner_after = (Y - Y.mean(axis=1, keepdims=True) for Y in (new, after))
    assert_close(inner_after, inner, tolerance)
    m = model.to_map()
    assert m.info.n_tokens == n_tokens
    assert_close(after.mean(axis=1), m.transform(new.mean(axis=1)), tolerance)
    assert np.abs(after - new).max() > 1e-3
    assert_close(transform_tokens(m, new), after, 1e-12)
    direct = replace(data, X=X.mean(1), pairs=tuple(side.mean(1) for side in pairs)).fit(ClosedFormMGPA())
    assert_close(m.transform(new.mean(axis=1)), direct.transform(new.mean(axis=1)), 10 * tolerance)


def test_another_number_of_tokens_is_refused():
    data, rng = with_pairs(19), np.random.default_rng(19)
    X = data.X[:, None] + rng.normal(size=(len(data.X), 3, data.X.shape[1]))
    pairs = tuple(np.repeat(side[:, None], 3, axis=1) for side in data.pairs)
    model = TokenMean(ClosedFormMGPA()).fit(X, source=data.source, pairs=pairs)
    for apply in (model.transform, lambda Y: transform_tokens(model.to_map(), Y)):
        assert apply(X).shape == X.shape
        with pytest.raises(ValueError, match="2 tokens per row"):
            apply(X[:, :2])


# Doing no harm.


def unrelated(seed, n=300, d=8):
    """Pairs that differ in two directions, and sources that have nothing to do with the rows."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(40, d))
    second = first + rng.normal(size=(40, 2)) @ rng.normal(size=(2, d)) + 0.05 * rng.normal(size=(40, d))
    return Data(rng.normal(size=(n, d)), rng.permutation(np.arange(n) % 2), (first, second))


@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5])
def test_without_a_source_effect_nothing_is_done(seed):
    data = unrelated(seed)
    for model in (linear(do_no_harm=True), both(do_no_harm=True)):
        data.fit(model)
        assert model.n_stages_ == len(model.to_map()) == 0
        assert np.array_equal(model.transform(data.X), data.X)
        assert not model.history_[0]["kept"]


def test_chance_rarely_starts_a_correction():
    started = [unrelated(seed).fit(linear(n_stages=1, do_no_harm=True)).n_stages_ for seed in range(100, 160)]
    assert sum(started) <= 8  # 5 % error, binomial: more than 8 of 60 has probability .003


def shifted(seed, n=400, d=8, size=1.5):
    rng = np.random.default_rng(seed)
    shift = size * np.eye(d)[0]
    source = np.arange(n) % 2
    first = rng.normal(size=(40, d))
    pairs = (first, first + shift + 0.1 * rng.normal(size=(40, d)) * (np.arange(d) < 2))
    return Data(rng.normal(size=(n, d)) + np.outer(source, shift), source, pairs)


@pytest.mark.parametrize("make", [linear, both])
@pytest.mark.parametrize("held_out", [True, False])
def test_a_strong_source_effect_is_reduced(make, held_out):
    data, test = shifted(0), shifted(1, n=2000)
    validation = shifted(2, n=200)
    extra = {"X_val": validation.X, "source_val": validation.source} if held_out else {}
    model = make(n_stages=20, do_no_harm=True).fit(data.X, **data.evidence(), **extra)
    assert model.n_stages_ > 0
    assert len(model.history_) >= model.n_stages_
    assert model.history_[0]["kept"]
    assert max(model.history_[0]["auroc"]) > 0.7

    def auroc(X_fit, X):
        score = LogisticRegression().fit(X_fit, data.source).decision_function(X)
        ranks = rankdata(score)[test.source == 1]
        n1 = len(ranks)
        return (ranks.sum() - n1 * (n1 + 1) / 2) / (n1 * (len(X) - n1))

    before = auroc(data.X, test.X)
    after = auroc(model.transform(data.X), model.transform(test.X))
    assert before > 0.8
    assert abs(after - 0.5) < 0.4 * (before - 0.5)


# Gates.


def noisy_contrasts(seed, m=200, d=10, rank=3, noise=0.02):
    rng = np.random.default_rng(seed)
    span = np.linalg.qr(rng.normal(size=(d, rank)))[0]
    response = rng.normal(size=(m, rank))
    response *= rng.uniform(0.5, 2.0, size=(m, 1)) / np.linalg.norm(response, axis=1, keepdims=True)
    return response @ span.T + noise * rng.normal(size=(m, d)), span


@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize("grouped", [True, False])
def test_held_out_coverage_rises_and_flattens_at_the_true_rank(rank, grouped):
    contrasts, _ = noisy_contrasts(rank, rank=rank)
    groups = np.arange(len(contrasts)) // 10 if grouped else None
    curve = held_out_coverage(contrasts, groups=groups)
    assert len(curve) == 10
    assert (np.diff(curve) >= 0).all()
    assert (np.diff(curve[:rank]) > 0.05).all()
    assert curve[rank - 1] > 0.97
    assert np.diff(curve[rank - 1 :]).max() < 0.01
    assert curve[-1] == pytest.approx(1.0)


def test_the_gate_finds_the_span_and_covers_new_pairs():
    contrasts, span = noisy_contrasts(20, noise=1e-4)
    gate = MeasurementGate(rank=3).fit(contrasts[:100])
    assert_close(gate.basis_ @ gate.basis_.T, span @ span.T, 1e-3)
    assert gate.coverage(contrasts[100:]) > 0.999
    assert gate.coverage(5 * contrasts[100:]) == pytest.approx(gate.coverage(contrasts[100:]))
    elsewhere = np.random.default_rng(0).normal(size=(2000, 10))
    assert gate.coverage(elsewhere) == pytest.approx(0.3, abs=0.02)
    with pytest.raises(ValueError, match="zero"):
        gate.coverage(np.zeros((3, 10)))
    with pytest.raises(ValueError, match="zero"):
        held_out_coverage(np.zeros((10, 3)))


def test_coverage_of_the_fitting_pairs_is_the_retained_energy():
    contrasts, _ = noisy_contrasts(21, noise=0.3)
    gate = MeasurementGate(rank=4, norm_quantile=0.0).fit(contrasts)
    assert gate.coverage(contrasts) == pytest.approx(gate.cumulative_energy_[3], abs=1e-12)


@examples(20)
@given(SEEDS, st.integers(3, 30), st.integers(1, 4))
def test_a_gate_is_orthonormal_signed_and_the_same_in_batches(seed, m, n_batches):
    contrasts = np.random.default_rng(seed).normal(size=(m, 6))
    gate = MeasurementGate(rank=0.8).fit(contrasts)
    assert_close(gate.basis_.T @ gate.basis_, np.eye(gate.rank_), 1e-12)
    check_signs(gate.basis_)
    assert gate.cumulative_energy_[gate.rank_ - 1] >= 0.8
    assert gate.rank_ == 1 or gate.cumulative_energy_[gate.rank_ - 2] < 0.8
    assert_close(gate.mean_contrast_, contrasts.mean(0), 1e-14)
    streamed = MeasurementGate(rank=0.8)
    for batch in np.array_split(contrasts, min(n_batches, m)):
        streamed.partial_fit(batch)
    assert np.array_equal(streamed.basis_, gate.basis_)
    assert np.array_equal(streamed.mean_contrast_, gate.mean_contrast_)
    assert streamed.n_contrasts_ == gate.n_contrasts_
    assert np.array_equal(
        streamed.fit(contrasts[:3]).basis_, MeasurementGate(rank=0.8).fit(contrasts[:3]).basis_
    )


def check_signs(basis):
    largest = basis[np.abs(basis).argmax(axis=0), np.arange(basis.shape[1])]
    assert (largest > 0).all()


def test_editable_and_preserved_coordinates_rebuild_the_rows():
    gate = MeasurementGate(rank=2).fit(noisy_contrasts(22)[0])
    H = np.random.default_rng(0).normal(size=(20, 10))
    assert_close(gate.preserved(H) + gate.editable(H) @ gate.basis_.T, H, 1e-14)
    assert_close(gate.preserved(H) @ gate.basis_, 0.0, 1e-14)


def test_short_contrasts_are_left_out_and_zero_ones_do_not_count():
    rng = np.random.default_rng(23)
    long = rng.normal(size=(75, 1)) * np.eye(4)[0]
    long += np.sign(long[:, :1]) * np.eye(4)[0]  # at least one unit long
    short = 1e-3 * rng.normal(size=(25, 1)) * np.eye(4)[1]
    zeros = np.zeros((300, 4))
    contrasts = np.concatenate([long, short, zeros])
    kept_all = MeasurementGate(rank=1.0, norm_quantile=0.0).fit(contrasts)
    assert (kept_all.rank_, kept_all.n_contrasts_) == (2, 100)
    assert kept_all.cumulative_energy_[0] == pytest.approx(0.75)  # directions count, lengths do not
    kept_long = MeasurementGate(rank=1.0, norm_quantile=0.25).fit(contrasts)
    assert (kept_long.rank_, kept_long.n_contrasts_) == (1, 75)
    # The mean is of all contrasts as given.
    assert_close(kept_long.mean_contrast_, contrasts.mean(axis=0), 1e-15)
    for bad in (-0.1, 1.0):
        with pytest.raises(ValueError, match="norm_quantile"):
            MeasurementGate(norm_quantile=bad).fit(contrasts)


def test_too_many_contrasts_are_thinned_evenly():
    contrasts = np.random.default_rng(24).normal(size=(103, 5))
    thinned = MeasurementGate(rank=2, max_contrasts=10, norm_quantile=0.0).fit(contrasts)
    rows = [0, 11, 22, 34, 45, 56, 68, 79, 90, 102]
    direct = MeasurementGate(rank=2, norm_quantile=0.0).fit(contrasts[rows])
    assert thinned.n_contrasts_ == 10
    assert np.array_equal(thinned.basis_, direct.basis_)
    assert_close(thinned.mean_contrast_, contrasts.mean(axis=0), 1e-15)
    unthinned = MeasurementGate(rank=2, max_contrasts=103).fit(contrasts)
    assert np.array_equal(unthinned.basis_, MeasurementGate(rank=2).fit(contrasts).basis_)
    with pytest.raises(ValueError, match="max_contrasts"):
        MeasurementGate(max_contrasts=0).fit(contrasts)


@pytest.mark.parametrize("make", [MeasurementGate, PCAGate])
def test_ranks_are_counts_or_shares(make):
    rows = np.random.default_rng(25).normal(size=(40, 5)) * [5.0, 4, 3, 2, 1]
    assert [make(rank=k).fit(rows).rank_ for k in (0, 1, 5)] == [0, 1, 5]
    assert make(rank=np.int64(2)).fit(rows).rank_ == 2
    assert make(rank=1.0).fit(rows).rank_ == 5
    energy = make(rank=1.0).fit(rows).cumulative_energy_
    for share in (1e-9, 0.5, float(energy[1]), 0.99):
        rank = make(rank=share).fit(rows).rank_
        assert energy[rank - 1] >= share
        assert rank == 1 or energy[rank - 2] < share
    for bad in (-1, 6, 0.0, 1.5, -0.5, True, False, "2", None, float("nan")):
        with pytest.raises(ValueError, match="rank"):
            make(rank=bad).fit(rows)


def test_a_rank_beyond_the_evidence_is_refused():
    contrasts = np.random.default_rng(26).normal(size=(3, 8))
    assert MeasurementGate(rank=3, norm_quantile=0).fit(contrasts).rank_ == 3
    with pytest.raises(ValueError, match="independent contrasts"):
        MeasurementGate(rank=4, norm_quantile=0).fit(contrasts)
    assert MeasurementGate(rank=2).fit(np.zeros((3, 8))).rank_ == 0


def test_the_random_gate_is_seeded_orthonormal_and_sign_fixed():
    X = np.zeros((2, 9))
    gates = [RandomGate(rank=4, random_state=s).fit(X).basis_ for s in (104729, 104729, 130363)]
    assert np.array_equal(gates[0], gates[1])
    assert not np.allclose(gates[0] @ gates[0].T, gates[2] @ gates[2].T)
    normal = np.random.default_rng(104729).normal(size=(9, 4))
    assert_close(gates[0].T @ gates[0], np.eye(4), 1e-12)
    R = gates[0].T @ normal  # upper triangular with a positive diagonal: the unique such factor
    assert_close(np.tril(R, -1), 0.0, 1e-12)
    assert (np.diag(R) > 0).all()
    assert_close(gates[0] @ R, normal, 1e-12)
    with pytest.raises(ValueError, match="rank"):
        RandomGate(rank=10).fit(X)


def test_the_pca_gate_is_the_leading_variance_with_positive_largest_entries():
    rng = np.random.default_rng(27)
    X = rng.normal(size=(60, 6)) @ rng.normal(size=(6, 6)) + 100.0
    gate = PCAGate(rank=3).fit(X)
    check_signs(gate.basis_)
    values, vectors = np.linalg.eigh(np.cov(X.T))
    top = vectors[:, -3:]
    assert_close(gate.basis_ @ gate.basis_.T, top @ top.T, 1e-10)
    assert_close(gate.cumulative_energy_, np.cumsum(values[::-1]) / values.sum(), 1e-12)
    # It sees rows only: inside an estimator the pairs do not change it.
    data = with_pairs(27)
    other = replace(data, pairs=with_pairs(28).pairs)
    bases = [d.fit(linear(n_stages=0, gate=PCAGate(rank=2))).gate_.basis_ for d in (data, other)]
    assert np.array_equal(*bases)
    streamed = data.fit(ClosedFormMGPA(PCAGate(rank=2))).gate_.basis_
    assert_close(streamed, bases[0], 1e-4)  # from moments; the iterative fit works on float32 rows


def test_the_full_gate_permits_everything():
    gate = FullGate().fit(np.zeros((3, 5)))
    assert np.array_equal(gate.basis_, np.eye(5))
    assert not gate.preserved(np.ones((2, 5))).any()
    assert gate.coverage(np.random.default_rng(0).normal(size=(4, 5))) == pytest.approx(1.0)


def test_a_given_gate_is_used_as_it_is():
    rng = np.random.default_rng(0)
    source = np.repeat([0, 1], 100)
    X = rng.normal(size=(200, 5)) + source[:, None] * np.eye(5)[0]
    X[:, 4] = 3.0  # constant: never edited
    pairs = (X[:20], X[:20] + np.eye(5)[0])
    basis = np.eye(5)[:, [0, 2]]
    model = mgpa.ClosedFormMGPA(gate=mgpa.FixedGate(basis)).fit(X, source=source, pairs=pairs)
    np.testing.assert_array_equal(model.gate_.basis_, basis)
    moved = model.transform(X) - X
    assert np.abs(moved[:, [1, 3, 4]]).max() == 0.0
    for bad, message in (
        (np.ones((5, 2)), "orthonormal"),
        (np.eye(4), "of 5 features"),
        (np.eye(5), "constant"),
    ):
        with pytest.raises(ValueError, match=message):
            mgpa.ClosedFormMGPA(gate=mgpa.FixedGate(bad)).fit(X, source=source, pairs=pairs)
