"""Gates: orthonormal, signed; ranks, filters, coverage, and the paper's controls."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import assert_close, linear, two_sources
from mgpa import MGPA, ClosedFormMGPA, IterativeMGPA, MeasurementGate
from mgpa.gate import FixedGate, PCAGate, RandomGate, held_out_coverage
from mgpa.linalg import Scatter
from random_cases import SEEDS, examples


def noisy_contrasts(seed, m=200, d=10, rank=3, noise=0.02):
    rng = np.random.default_rng(seed)
    span = np.linalg.qr(rng.normal(size=(d, rank)))[0]
    response = rng.normal(size=(m, rank))
    response *= rng.uniform(0.5, 2.0, size=(m, 1)) / np.linalg.norm(response, axis=1, keepdims=True)
    return response @ span.T + noise * rng.normal(size=(m, d)), span


def test_energy_counts_long_and_short_contrasts_alike():
    """As the page about the idea defines it: by summed squared lengths the second axis would hold .99."""
    contrasts = np.diag([1.0, 30.0]).repeat([9, 1], axis=0)
    gate = MeasurementGate(rank=1, norm_quantile=0.0).fit(contrasts)
    assert abs(gate.basis_[0, 0]) == pytest.approx(1)
    assert gate.cumulative_energy_[0] == pytest.approx(0.9)
    assert gate.coverage(contrasts) == pytest.approx(0.9)
    assert (contrasts[:, 1] ** 2).sum() / (contrasts**2).sum() > 0.99


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


@pytest.mark.parametrize("model", [MGPA, ClosedFormMGPA, IterativeMGPA])
@pytest.mark.parametrize("rank", [0, 2, 0.9])
def test_a_number_as_the_gate_is_the_rank_of_a_measurement_gate(model, rank):
    data = two_sources()
    short = {} if model is not IterativeMGPA else {"critics": ("linear",), "n_stages": 2}
    one, other = (data.fit(model(gate, **short)).to_map() for gate in (rank, MeasurementGate(rank)))
    assert one.info.gate_rank == other.info.gate_rank
    np.testing.assert_array_equal(one.transform(data.X), other.transform(data.X))


def check_signs(basis):
    largest = basis[np.abs(basis).argmax(axis=0), np.arange(basis.shape[1])]
    assert (largest > 0).all()


@examples(20)
@given(SEEDS, st.integers(3, 30))
def test_a_gate_is_orthonormal_and_signed(seed, m):
    contrasts = np.random.default_rng(seed).normal(size=(m, 6))
    gate = MeasurementGate(rank=0.8).fit(contrasts)
    assert_close(gate.basis_.T @ gate.basis_, np.eye(gate.rank_), 1e-12)
    check_signs(gate.basis_)
    assert gate.cumulative_energy_[gate.rank_ - 1] >= 0.8
    assert gate.rank_ == 1 or gate.cumulative_energy_[gate.rank_ - 2] < 0.8
    assert_close(gate.mean_contrast_, contrasts.mean(0), 1e-14)


@examples(20)
@given(SEEDS)
def test_the_sign_of_single_contrasts_does_not_matter_to_the_gate(seed):
    rng = np.random.default_rng(seed)
    contrasts = rng.normal(size=(20, 3)) @ rng.normal(size=(3, 6)) + 0.1 * rng.normal(size=(20, 6))
    flipped = contrasts * rng.choice([-1.0, 1.0], size=(20, 1))
    gates = [MeasurementGate(rank=3).fit(c) for c in (contrasts, flipped)]
    assert_close(gates[1].basis_, gates[0].basis_, 1e-9)
    assert_close(gates[1].cumulative_energy_, gates[0].cumulative_energy_, 1e-12)


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
    assert_close(RandomGate(rank=4).fit(X).cumulative_energy_, np.arange(1, 10) / 9, 1e-12)
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
    data = two_sources(27)
    other = replace(data, pairs=two_sources(28).pairs)
    bases = [d.fit(linear(n_stages=0, gate=PCAGate(rank=2))).gate_.basis_ for d in (data, other)]
    assert np.array_equal(*bases)
    streamed = data.fit(ClosedFormMGPA(PCAGate(rank=2))).gate_.basis_
    assert_close(streamed, bases[0], 1e-4)  # from moments; the iterative fit works on float32 rows


def test_a_given_gate_is_used_as_it_is():
    rng = np.random.default_rng(0)
    source = np.repeat([0, 1], 100)
    X = rng.normal(size=(200, 5)) + source[:, None] * np.eye(5)[0]
    X[:, 4] = 3.0  # constant: never edited
    pairs = (X[:20], X[:20] + np.eye(5)[0])
    basis = np.eye(5)[:, [0, 2]]
    model = ClosedFormMGPA(gate=FixedGate(basis)).fit(X, source=source, pairs=pairs)
    np.testing.assert_array_equal(model.gate_.basis_, basis)
    moved = model.transform(X) - X
    assert np.abs(moved[:, [1, 3, 4]]).max() == 0.0
    for bad, message in (
        (np.ones((5, 2)), "orthonormal"),
        (np.eye(4), "of 5 features"),
        (np.eye(5), "constant"),
    ):
        with pytest.raises(ValueError, match=message):
            ClosedFormMGPA(gate=FixedGate(bad)).fit(X, source=source, pairs=pairs)


# The rank by held-out pairs.


def noisy(rng, m=200, d=70, shift=0.3, uneven=True):
    """Draw contrasts of a shift in rank one under noise of full rank, and rows that vary like the noise."""
    sizes = np.geomspace(2.0, 0.3, d) if uneven else np.ones(d)
    mixing = sizes[:, None] * np.linalg.qr(rng.normal(size=(d, d)))[0]
    contrasts = shift * rng.normal(size=d) + rng.normal(size=(m, d)) @ mixing
    return contrasts, Scatter.from_rows(rng.normal(size=(1000, d)) @ mixing)


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("shift", [0.1, 0.3, 1.0])
def test_noise_of_the_pairs_is_not_taken_for_directions(shift, uneven):
    rng = np.random.default_rng(0)
    shifted, rows = noisy(rng, shift=shift, uneven=uneven)
    gate = MeasurementGate().fit(shifted, rows=rows)
    assert gate.rank_ == 1
    mean = shifted.mean(axis=0) / np.linalg.norm(shifted.mean(axis=0))
    assert abs(gate.basis_[:, 0] @ mean) > 0.95  # also where noise varies more than the shift is long
    check_signs(gate.basis_)
    assert np.all(np.diff(gate.cumulative_energy_) >= -1e-12)
    assert gate.cumulative_energy_[-1] == pytest.approx(1.0)
    assert MeasurementGate(rank=0.9).fit(shifted).rank_ > 20


def test_pairs_that_show_nothing_support_no_direction():
    rng = np.random.default_rng(1)
    ranks = []
    for _ in range(40):
        contrasts, rows = noisy(rng, m=80, d=30, shift=0.0)
        ranks.append(MeasurementGate().fit(contrasts, rows=rows).rank_)
    assert np.count_nonzero(ranks) <= 4


@pytest.mark.parametrize("n_people", [1, 2, 3, 5])
def test_noise_of_few_people_seldom_supports_a_direction_and_a_shared_effect_does(n_people):
    taken, people = 0, np.arange(40) % n_people
    for seed in range(60):
        noise = np.random.default_rng(seed).normal(size=(40, 16))
        taken += MeasurementGate().fit(noise, groups=people).rank_ > 0
    assert taken <= 5
    if n_people >= 3:
        assert MeasurementGate().fit(np.eye(16)[0] + 0.2 * noise, groups=people).rank_ >= 1


def test_directions_in_which_pairs_answer_differently_are_supported_without_a_mean():
    rng = np.random.default_rng(2)
    contrasts = 3.0 * rng.normal(size=(200, 3)) @ np.eye(3, 20) + 0.3 * rng.normal(size=(200, 20))
    gate = MeasurementGate().fit(contrasts)
    assert gate.rank_ == 3
    assert np.linalg.norm(gate.basis_[:3]) ** 2 == pytest.approx(3.0, abs=0.05)


def test_unknown_rows_count_alike_in_all_directions_and_take_no_matrix_of_features():
    contrasts = np.random.default_rng(3).normal(size=(30, 40)) + np.repeat([1.0, 0.0], 20)
    alike = MeasurementGate().fit(contrasts, rows=Scatter(np.eye(40)))
    assert_close(MeasurementGate().fit(contrasts).basis_, alike.basis_, 1e-12)
    tracemalloc.start()
    MeasurementGate().fit(np.tile(contrasts, 100))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4000**2 * 8 / 2


@pytest.mark.parametrize(("second", "rank"), [(0.0, 1), (0.05, 2)])
def test_two_sources_that_differ_by_little_beside_a_third_have_their_direction(second, rank):
    """The little is less than a hundredth of the energy, but readers would find it without fail."""
    rng = np.random.default_rng(4)
    effects = np.zeros((3, 12))
    effects[1:, 0], effects[2, 1] = 1.0, second
    kinds = np.repeat([[0, 1], [0, 2], [1, 2]], 40, axis=0)
    noise = 0.3 * rng.normal(size=(120, 1)) * np.eye(12)[0] + 0.01 * rng.normal(size=(120, 12))
    contrasts = effects[kinds[:, 1]] - effects[kinds[:, 0]] + noise
    gate = MeasurementGate().fit(contrasts, kind=kinds)
    assert gate.rank_ == rank
    assert_close(np.linalg.norm(gate.basis_[:rank], axis=1), np.ones(rank), 0.02)
    assert gate.cumulative_energy_[0] > 0.9
