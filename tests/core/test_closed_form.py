"""The closed form: its regressions, its projection, several sources, and pairs that say nothing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from sklearn.base import clone

import mgpa
from factories import Data, two_sources
from mgpa import ClosedFormMGPA, MeasurementGate
from mgpa.gate import PCAGate
from mgpa.linalg import Scatter
from mgpa.position import anchor_and_covariance, projection
from random_cases import SEEDS, examples


@pytest.mark.parametrize("n_sources", [2, 3])
@pytest.mark.parametrize("ridge", [0.0, 10.0])
@pytest.mark.parametrize(("n", "d", "r"), [(200, 6, 2), (30, 50, 40)])  # scatter as a matrix, and as rows
def test_anchor_and_covariance_equal_regressions_on_the_rows(n, d, r, n_sources, ridge):
    rng = np.random.default_rng(12)
    B = np.linalg.qr(rng.normal(size=(d, r)))[0]
    codes = np.arange(n) % n_sources
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=(n_sources, d))[codes]
    U = np.eye(n_sources)[codes][:, 1:]
    Xc, Uc = X - X.mean(0), U - U.mean(0)
    beta, C = anchor_and_covariance(Scatter.from_rows(Xc), B, Xc.T @ Uc, Uc.T @ Uc, ridge, n)
    Z, Q = Xc @ B, Xc - Xc @ B @ B.T
    penalty = np.sqrt(ridge) * np.eye(d)
    pooled = np.linalg.lstsq(np.vstack([Q, penalty]), np.vstack([Z, np.zeros((d, r))]), rcond=None)[0]
    np.testing.assert_allclose(Q @ beta, Q @ pooled, rtol=0, atol=1e-8)
    np.testing.assert_allclose(B.T @ beta, 0.0, rtol=0, atol=1e-10)
    # Z on Q and U together; U is not penalised.
    design = np.vstack([np.hstack([Q, Uc]), np.hstack([penalty, np.zeros((d, n_sources - 1))])])
    joint = np.linalg.lstsq(design, np.vstack([Z, np.zeros((d, r))]), rcond=None)[0]
    residual = Z - np.hstack([Q, Uc]) @ joint
    np.testing.assert_allclose(C, residual.T @ residual / n, rtol=0, atol=1e-8)


@pytest.fixture
def covariance():
    half = np.random.default_rng(13).normal(size=(3, 3))
    return half @ half.T + 0.1 * np.eye(3)


@pytest.mark.parametrize("columns", [1, 2])
def test_the_projection_is_orthogonal_in_its_metric(covariance, columns):
    Delta = np.random.default_rng(14).normal(size=(3, columns))
    D, W = projection(covariance, Delta)
    Pi, metric = D @ W.T, np.linalg.inv(covariance)
    np.testing.assert_allclose(Pi @ Pi, Pi, rtol=0, atol=1e-10)
    np.testing.assert_allclose(Pi @ Delta, Delta, rtol=0, atol=1e-10)
    np.testing.assert_allclose(metric @ Pi, (metric @ Pi).T, rtol=0, atol=1e-10)
    assert np.linalg.matrix_rank(Pi, tol=1e-8) == columns


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
    model = data.fit(ClosedFormMGPA.paper(MeasurementGate(rank=r), standardize=False))
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


def test_pairs_that_cancel_are_refused_instead_of_followed():
    data = two_sources()
    A, B = data.pairs
    both_ways = replace(data, pairs=(np.concatenate([A, B]), np.concatenate([B, A])))
    with pytest.raises(ValueError, match="mean contrast inside the gate is zero"):
        both_ways.fit(ClosedFormMGPA())


@pytest.mark.parametrize("n", [60, 6000])  # more rows, more rounding
def test_a_source_that_the_context_determines_is_refused(n):
    rng = np.random.default_rng(0)
    source, other = np.arange(n) % 2, rng.normal(size=n)
    X = np.column_stack([rng.normal(size=(n, 2)) + source[:, None], other, 0.37 * source + 1.3 * other])
    pairs = (X[:20], X[:20] + np.array([1.0, 0.1, 0.0, 0.0]))
    model = ClosedFormMGPA.paper(MeasurementGate(rank=1), ridge=0.0)
    with pytest.raises(ValueError, match="predict the source exactly"):
        model.fit(X, source=source, pairs=pairs)
    assert model.set_params(ridge=10.0).fit(X, source=source, pairs=pairs).gate_.rank_ == 1


def test_too_few_rows_for_a_spread_inside_the_gate_are_refused():
    X = np.array([[0.0, 0.0], [1.0, 1.0]])
    pairs = (np.zeros((3, 2)), np.ones((3, 2)))
    with pytest.raises(ValueError, match="2 rows leave no variation inside the gate"):
        ClosedFormMGPA.paper().fit(X, source=[0, 1], pairs=pairs)


@pytest.mark.parametrize(
    "model", [ClosedFormMGPA(), ClosedFormMGPA.paper(), ClosedFormMGPA.paper(PCAGate(3))]
)
def test_features_that_say_nothing_new_do_not_change_the_correction_of_the_others(model):
    """40 rows of 12 features are solved in matrices, of 12 features and 60 copies of them in rows."""
    rng = np.random.default_rng(3)
    n, source = 40, np.arange(40) % 2
    X, shift = rng.normal(size=(n, 12)), np.eye(12)[0] * 3.0
    X += source[:, None] * shift
    A = rng.normal(size=(15, 12))
    pairs = (A, A + shift + 0.1 * rng.normal(size=A.shape))
    wide, wide_pairs = np.tile(X, 6), tuple(np.tile(side, 6) for side in pairs)
    # A ridge in each space that means the same: copies count six times in every scatter.
    model = clone(model).set_params(ridge=2.0)
    few = clone(model).fit(X, source=source, pairs=pairs)
    many = clone(model).set_params(ridge=12.0).fit(wide, source=source, pairs=wide_pairs)
    assert not few._data.moments.total.factored
    assert many._data.moments.total.factored
    np.testing.assert_allclose(many.transform(wide), np.tile(few.transform(X), 6), atol=1e-8)


# A source's level


def shifted(K, seed=0, n=600, m=60, d=8):
    """Return rows of K sources with shifts of 4, the rows' source and their pair ids."""
    rng = np.random.default_rng(seed)
    shifts = np.concatenate([np.zeros((1, d)), 4.0 * np.eye(d)[: K - 1]])
    source, events = np.arange(n) % K, rng.normal(size=(m, d))
    views = [events + shift + 0.1 * rng.normal(size=(m, d)) for shift in shifts]
    X = np.concatenate([rng.normal(size=(n, d)) + shifts[source], *views])
    names = np.array(["phone", "watch", "ring"])[:K]
    return (
        X,
        names[np.concatenate([source, np.repeat(np.arange(K), m)])],
        np.r_[-np.ones(n), np.tile(np.arange(m), K)],
    )


@pytest.mark.parametrize("make", [ClosedFormMGPA, ClosedFormMGPA.paper])
@pytest.mark.parametrize("K", [2, 3])
def test_rows_are_taken_to_the_level_of_the_source_that_was_asked_for(K, make):
    X, source, pair_id = shifted(K)
    evidence = {"source": source, "pair_id": pair_id}
    middle = make().fit(X, **evidence)
    start = middle.transform(X)
    names = np.unique(source)
    for name in names:
        model = make(reference=name).fit(X, **evidence)
        moved = model.transform(X)
        home = (moved - X)[source == name].mean(axis=0)
        assert np.linalg.norm(home) < 0.02 * 4.0
        away = np.linalg.norm((moved - X)[source != name], axis=1).mean()
        assert away > 3.0  # the other sources' rows make up for it
        # Proposition 1: another level, and the same differences between rows, so the same information.
        np.testing.assert_allclose(moved - moved[0], start - start[0], atol=1e-10)
        assert np.linalg.norm((moved - start)[0]) > 1.0
        info = model.to_map().info
        assert info.reference == name
        assert "reference" in info.changed
    assert middle.to_map().info.reference == ""
    with pytest.raises(ValueError, match=r"reference must be one of the sources 'phone'.*got 'fridge'"):
        make(reference="fridge").fit(X, **evidence)


def test_the_level_is_the_same_in_batches_on_tokens_and_from_tables(tmp_path):
    X, source, pair_id = shifted(2)
    model = ClosedFormMGPA(reference="watch")
    expected = model.fit(X, source=source, pair_id=pair_id).transform(X)
    streamed, halves = ClosedFormMGPA(reference="watch"), np.array_split(np.arange(len(X)), 3)
    for rows in halves:
        streamed.partial_fit(X[rows], source=source[rows], pair_id=pair_id[rows])
    np.testing.assert_allclose(streamed.transform(X), expected, atol=1e-10)
    tokens = np.stack([X - 1.0, X + 1.0], axis=1)
    by_mean = mgpa.TokenMean(model).fit(tokens, source=source, pair_id=pair_id)
    np.testing.assert_allclose(by_mean.transform(tokens).mean(axis=1), expected, atol=1e-10)
    table = mgpa.tables.Table.from_columns({"X": X, "source": source, "pair_id": pair_id})
    m = mgpa.tables.fit_table(model, table).to_map()
    np.testing.assert_allclose(m.transform(X), expected, atol=1e-10)
    assert mgpa.load_map(m.save(tmp_path / "map.safetensors")).info.reference == "watch"


def test_a_source_may_be_named_as_text():
    X, source, pair_id = shifted(2)
    evidence = {"source": (source == "watch").astype(int), "pair_id": pair_id}
    by_label, by_name = (ClosedFormMGPA(reference=reference).fit(X, **evidence) for reference in (1, "1"))
    np.testing.assert_array_equal(by_label.transform(X), by_name.transform(X))


@pytest.mark.parametrize("model", [mgpa.ClosedFormMGPA(), mgpa.MGPA()])
def test_few_pairs_are_solved_by_one_thread_of_blas_and_the_threads_come_back(model, monkeypatch):
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    rng, seen, solve = np.random.default_rng(0), [], type(model)._solve
    monkeypatch.setattr(type(model), "_solve", lambda *given: (seen.append(threads()), solve(*given))[1])
    source, A = np.arange(300) % 2, rng.normal(size=(40, 5))
    X, pairs = rng.normal(size=(300, 5)) + 2.0 * source[:, None], (A, A + 2.0)
    with threadpool_limits(2, user_api="blas"):
        few = model.fit(X, source=source, pairs=pairs).transform(X)
        assert seen == [{1}]
        assert threads() == {2}
        monkeypatch.setattr("mgpa.linalg.BLOCK", 100)
        many = model.fit(X, source=source, pairs=pairs).transform(X)
        assert seen == [{1}, {2}]
    np.testing.assert_allclose(many, few, atol=1e-10)
