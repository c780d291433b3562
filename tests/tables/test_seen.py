"""Rows are recognised by what is in them: whatever they are called, and however they were read."""

import base64

import numpy as np
import pytest

import mgpa
from mgpa.maps import load_map
from mgpa.tables import apply_to_table, fit_table, write_table
from mgpa.tables.rows import KEPT, encode_sample, merge_samples, row_digests, seen_people
from simulated import simulated_table


def test_digests_tell_rows_apart_and_know_them_in_either_precision():
    X = np.random.default_rng(0).normal(size=(5000, 3, 2)).astype(np.float32)
    assert len(np.unique(row_digests(X))) == 5000
    np.testing.assert_array_equal(row_digests(X), row_digests(X.astype(np.float64)))
    np.testing.assert_array_equal(row_digests(X[::-1]), row_digests(X)[::-1])
    assert row_digests(np.array([[0.0]])) == row_digests(np.array([[-0.0]]))


def test_the_sample_is_small_and_does_not_depend_on_order_or_batches():
    digests = row_digests(np.random.default_rng(0).normal(size=(3 * KEPT, 4)))
    whole, order = merge_samples(digests), np.random.default_rng(1).permutation(len(digests))
    pieces = merge_samples(*(digests[rows] for rows in np.array_split(order, 7)))
    assert encode_sample(pieces) == encode_sample(whole)
    assert len(base64.b64decode(encode_sample(whole))) == 8 * KEPT


def test_everybody_whose_rows_come_back_is_recognised():
    rng = np.random.default_rng(0)
    X, who = rng.normal(size=(4 * KEPT, 4)), np.repeat([f"p{i}" for i in range(64)], KEPT // 16)
    seen = encode_sample(merge_samples(row_digests(X)))
    again = np.char.add(who, " ")
    assert seen_people(seen, row_digests(X), again) == tuple(np.unique(again).tolist())
    half = np.arange(len(X)) % 2 == 0
    assert len(seen_people(seen, row_digests(X[half]), again[half])) == 64
    assert seen_people(seen, row_digests(X + 1), who) == ()
    alike = np.zeros((4, 3))  # a row that several people have identifies none of them
    assert seen_people(encode_sample(row_digests(alike)), row_digests(alike), np.array(list("aabb"))) == ()


@pytest.mark.parametrize(
    "method", [mgpa.ClosedFormMGPA(), mgpa.IterativeMGPA(n_stages=1, critics=("linear",))]
)
def test_a_map_knows_the_rows_it_was_fitted_on_from_memory_and_from_a_file(method, tmp_path):
    pytest.importorskip("pyarrow")
    table = simulated_table()
    here = fit_table(method, table).to_map()
    path = write_table(table, tmp_path / "table.parquet")
    there = fit_table(method, path).to_map()
    assert here.info.row_sample == there.info.row_sample
    fit, others = table.rows("FIT"), table.rows("HEAD", "EVAL")
    everyone = tuple(np.unique(fit.participant).tolist())
    assert seen_people(here.info.row_sample, row_digests(fit.X), fit.participant) == everyone
    assert seen_people(here.info.row_sample, row_digests(others.X), others.participant) == ()
    stored = load_map(here.save(tmp_path / "map.safetensors"))
    assert stored.info.row_sample == here.info.row_sample
    np.testing.assert_array_equal(apply_to_table(stored, table).X, apply_to_table(here, table).X)


def test_rows_of_separate_pairs_count_as_seen():
    table = simulated_table()
    fit, others = table.rows("FIT"), table.rows("EVAL")
    first, second = others.paired_views()
    loose = fit.with_columns(pair_id=None)
    of_arrays = fit_table(mgpa.ClosedFormMGPA(), loose, pairs=(others.X[first], others.X[second])).to_map()
    other = others.with_columns(participant=np.char.add("x", others.participant), role=None)
    of_table = fit_table(mgpa.ClosedFormMGPA(), loose, pairs=other).to_map()
    for m in (of_arrays, of_table):
        known = seen_people(m.info.row_sample, row_digests(others.X), others.participant)
        assert known == tuple(np.unique(others.participant).tolist())
