"""Fits from sufficient statistics: in one call, batch by batch, or merged, they are one fit."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import assert_close, new_rows, several_sources, two_sources
from mgpa import MGPA, ClosedFormMGPA, IterativeMGPA
from mgpa._common.arrays import is_tensor
from mgpa.baselines._base import views_of
from mgpa.errors import MissingEvidence
from mgpa.maps import AffineMap
from mgpa.moments import Moments, SourceMoments, Standardizer
from mgpa.pairs import Pairs
from mgpa.statistics import LabelledRows, Statistics
from random_cases import SEEDS, examples


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
    data = two_sources(seed) if kind == "pairs" else several_sources(seed, K=kind)
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


def test_means_of_very_many_participants_are_kept_by_group(monkeypatch):
    """Memory then no longer grows with participants; the map, the batches and the count do not change."""
    data = several_sources(3, K=2, events=200, unpaired=0)
    people = np.array([f"p{event % 80}" for event in data.pair_id])
    named = ClosedFormMGPA().fit(data.X, **data.evidence(), groups=people)
    monkeypatch.setattr("mgpa.statistics.MOST_NAMED", 30)
    grouped = ClosedFormMGPA().fit(data.X, **data.evidence(), groups=people)
    streamed = ClosedFormMGPA()
    for rows in np.array_split(np.arange(400), 7):  # the first few batches name their participants
        batch = data.rows(rows)
        streamed.partial_fit(batch.X, **batch.evidence(), groups=people[rows])
    X = new_rows(data)
    effects = [model._fitted.position.effect for model in (named, grouped, streamed)]
    assert len(named._data.participants.parts) > 128 >= len(streamed._data.participants.parts)
    assert {effect.units for effect in effects} == {"80 people"}
    assert effects[1].error == pytest.approx(effects[2].error)
    assert effects[1].error == pytest.approx(effects[0].error, rel=0.5)  # of other groups
    for other in (grouped, streamed):
        assert_close(other.transform(X), named.transform(X), 1e-10)


def test_merging_checks_what_it_merges():
    data = two_sources()
    X, source, pairs = data.X, data.source, data.pairs
    names = list("abcdef")
    half = slice(0, 40), slice(40, 80)
    frames = [pd.DataFrame(X[rows], columns=names) for rows in half]
    first = ClosedFormMGPA().partial_fit(frames[0], source=source[half[0]], pairs=pairs)
    second = ClosedFormMGPA().partial_fit(frames[1], source=source[half[1]])
    fresh = ClosedFormMGPA().merge(first).merge(second)
    whole = ClosedFormMGPA().fit(pd.DataFrame(X, columns=names), source=source, pairs=pairs)
    np.testing.assert_allclose(fresh.transform(frames[0]), whole.transform(frames[0]), atol=1e-10)
    assert list(fresh.feature_names_in_) == names
    with pytest.raises(ValueError, match="count them twice"):
        first.merge(first)
    reversed_columns = ClosedFormMGPA().partial_fit(frames[1][names[::-1]], source=source[half[1]])
    with pytest.raises(ValueError, match="another order"):
        first.merge(reversed_columns)
    with pytest.raises(ValueError, match="not fitted"):
        first.merge(ClosedFormMGPA())


def test_a_batch_without_sources_is_refused_or_left_out_as_asked():
    data, lonely = two_sources(), two_sources(1).X
    strict = ClosedFormMGPA().partial_fit(data.X, **data.evidence())
    with pytest.raises(MissingEvidence, match="source is missing"):
        strict.partial_fit(lonely)
    lenient = ClosedFormMGPA(on_missing="warn").partial_fit(data.X, **data.evidence())
    with pytest.warns(UserWarning, match="source is missing.*This batch is not used"):
        lenient.partial_fit(lonely)
    expected = data.fit(ClosedFormMGPA()).transform(data.X)
    for model in (strict, lenient):
        np.testing.assert_allclose(model.transform(data.X), expected, atol=1e-12)
        assert model.to_map().info.n_rows == len(data.X)


def test_a_stream_without_pairs_is_refused_or_the_identity_as_asked_and_can_go_on():
    data = two_sources()
    strict = ClosedFormMGPA().partial_fit(data.X, source=data.source)
    with pytest.raises(MissingEvidence, match="No pairs"):
        strict.transform(data.X)
    lenient = ClosedFormMGPA(on_missing="warn").partial_fit(data.X, source=data.source)
    with pytest.warns(UserWarning, match="No pairs.*Returning the identity map"):
        np.testing.assert_array_equal(lenient.transform(data.X), data.X)
    assert isinstance(lenient.map_, AffineMap)
    assert (lenient.gate_.rank_, lenient.direction_.shape, lenient.covariance_.shape) == (0, (0, 0), (0, 0))
    assert lenient.map_.info.gate_rank == 0
    expected = data.fit(ClosedFormMGPA()).transform(data.X)
    for model in (strict, lenient):
        np.testing.assert_allclose(model.add_pairs(data.pairs).transform(data.X), expected, atol=1e-12)


def test_pairs_that_are_no_rows_of_x_can_come_with_ids():
    data = several_sources(K=3)
    paired = data.pair_id >= 0
    labelled = LabelledRows(data.X[paired], data.source[paired], data.pair_id[paired], data.source[paired])
    model = ClosedFormMGPA.paper().partial_fit(data.X, source=data.source).add_pairs(labelled)
    np.testing.assert_allclose(
        model.transform(data.X), data.fit(ClosedFormMGPA.paper()).transform(data.X), atol=1e-12
    )
    assert all(rows.participant is None for rows in model._data.paired_rows)  # no name is kept
    with pytest.raises(ValueError, match="The pairs have 5 features, but the rows have 6"):
        model.add_pairs(replace(labelled, X=labelled.X[:, :5]))


@pytest.mark.parametrize("absent", ["c", "e"])  # between the rows' sources, and after them
def test_pairs_of_a_source_without_rows_are_refused(absent):
    rng, names = np.random.default_rng(0), np.array(list("abcde"))
    labelled = LabelledRows(rng.normal(size=(50, 3)), np.repeat(names, 10), np.tile(np.arange(10), 5))
    source = np.repeat(names[names != absent], 20)
    model = ClosedFormMGPA().partial_fit(rng.normal(size=(80, 3)), source=source).add_pairs(labelled)
    with pytest.raises(
        ValueError, match=f"pairs have 5 sources and the rows 4: no row has source '{absent}'"
    ):
        model.transform(labelled.X)


def evidence(data):
    pairs = None if data.pairs is None else Pairs.from_arrays(data.pairs, data.X.shape[1])
    return Statistics.from_rows(LabelledRows(data.X, data.source, data.pair_id), pairs)


def test_views_of_two_sources_are_matched_by_event():
    data = several_sources(K=3)
    shared, sources = np.unique(data.pair_id[data.pair_id >= 0]), np.arange(3)
    for first, second in ((0, 2), (2, 1)):
        A, B, _ = views_of(evidence(data).pairs(), sources, first, second)
        for side, code in ((A, first), (B, second)):
            rows = [np.flatnonzero((data.pair_id == i) & (data.source == code))[0] for i in shared]
            np.testing.assert_array_equal(side, data.X[rows])
    lonely = evidence(replace(data, pair_id=np.where(data.source == 1, -1, data.pair_id))).pairs()
    assert len(views_of(lonely, sources, 0, 2)[0]) == len(shared)
    with pytest.raises(MissingEvidence, match="No pair joins 0 and 1"):
        views_of(lonely, sources, 0, 1)


def test_paired_moments_are_those_of_events_seen_more_than_once():
    data = several_sources(K=2)
    ids = data.pair_id.copy()
    ids[np.flatnonzero(ids == 3)[0]] = 1000  # two rows whose partner is gone
    total = evidence(replace(data, pair_id=ids)).paired_moments()
    seen = np.isin(data.pair_id, np.setdiff1d(np.arange(25), 3))
    expected = np.stack([data.X[seen & (data.source == k)].mean(axis=0) for k in (0, 1)])
    assert (total.sources, total.n_rows) == ((0, 1), 48)
    assert_close(total.means, expected, 1e-12)
    aligned = two_sources()
    assert_close(
        evidence(aligned).paired_moments().means, [side.mean(axis=0) for side in aligned.pairs], 1e-12
    )


def rows_of_two_devices(n=400):
    rng = np.random.default_rng(5)
    X, source = rng.normal(size=(n, 8)).astype(np.float32), np.arange(n) % 2
    X[source == 1, 0] += 2.0
    A = rng.normal(size=(40, 8))
    shift = np.eye(8)[0] * 2.0 + 0.1 * rng.normal(size=(40, 8))
    return X, source, (A, A + shift), rng.choice(["x", "y", "z"], n)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("make", [ClosedFormMGPA, ClosedFormMGPA.paper])
def test_rows_on_an_accelerator_stay_there(monkeypatch, make, by_id, device):
    """Only sums leave it; where there is none, the CPU plays it."""
    torch = pytest.importorskip("torch")
    if device == "cpu":
        monkeypatch.setattr("mgpa.estimators.closed_form.on_cuda", is_tensor)
        monkeypatch.setattr("mgpa.moments.on_cuda", is_tensor)
    elif not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    X, source, pairs, people = rows_of_two_devices()
    evidence = {"pair_id": np.arange(len(X)) // 2} if by_id else {"pairs": pairs}
    evidence |= {"source": source, "groups": people, "sample_weight": np.linspace(0.5, 1.5, len(X))}
    expected = make().fit(X, **evidence).to_map()
    summed = []
    from_tensor = SourceMoments._from_tensor
    monkeypatch.setattr(
        SourceMoments, "_from_tensor", lambda rows, *args: summed.append(rows) or from_tensor(rows, *args)
    )
    stayed = make().fit(torch.as_tensor(X, device=device), **evidence).to_map()
    assert [rows.device.type for rows in summed] == [device, device]
    assert stayed.info == replace(expected.info, gate_energy=stayed.info.gate_energy)
    assert_close(stayed.info.gate_energy, expected.info.gate_energy, 1e-12)
    assert_close(stayed.transform(X), expected.transform(X), 1e-5)


@pytest.mark.parametrize("model", [MGPA(), ClosedFormMGPA(), IterativeMGPA(critics=("linear",), n_stages=2)])
def test_a_fit_computes_the_same_numbers_once(monkeypatch, model):
    data, counts = two_sources(), Counter()
    from_spread, from_codes = Standardizer.from_spread, Moments.from_codes

    def counted_spread(*args):
        counts["standardizer"] += 1
        return from_spread(*args)

    def counted_rows(X, *args):
        counts["moments of all rows"] += len(X) == len(data.X)
        return from_codes(X, *args)

    monkeypatch.setattr(Standardizer, "from_spread", counted_spread)
    monkeypatch.setattr(Moments, "from_codes", counted_rows)
    data.fit(model)
    assert counts == {"standardizer": 1, "moments of all rows": 1}
