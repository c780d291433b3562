"""Pairs are looked at before they are used: what they show, and whether rows differ by it."""

import json

import numpy as np
import pytest

from mgpa.audit import check_pairs
from mgpa.tables import Table, write_table
from simulated import simulated_table


def changed(table, **columns):
    return Table(columns.pop("X", table.X), **{name: columns.get(name, values) for name, values in
                                               table.columns.items()})  # fmt: skip


@pytest.fixture(scope="module")
def table():
    return simulated_table(n_people=30, events=12)


def test_pairs_of_a_planted_difference_show_it_and_the_rows_differ_by_it(table):
    found = check_pairs(table)
    assert found.shows_something
    assert found.effect.is_there
    assert "the rows differ by it" in found.verdict
    assert found.inside > 0.5
    # Exchanging views leaves the mean and adds the difference of events.
    assert found.closeness < 0.7
    assert found.coverage[0] > np.median(found.shuffled[:, 0]) + 0.2


def test_pairs_of_noise_show_nothing(table):
    rng = np.random.default_rng(3)
    found = check_pairs(changed(table, X=rng.normal(size=table.X.shape)))
    assert not found.shows_something
    assert found.rank == 0
    assert found.verdict.startswith(f"These {found.n_pairs} pairs show nothing")
    assert found.closeness == pytest.approx(1.0, abs=0.1)


def test_rows_that_do_not_differ_by_what_pairs_show_have_nothing_to_remove(table):
    """Pairs from elsewhere differ; the rows are all of one device, whatever their labels say."""
    rng = np.random.default_rng(0)
    fit = table.rows("FIT")
    same = rng.normal(size=fit.X.shape)
    rows = changed(fit, X=same, pair_id=np.full(len(fit), -1))
    found = check_pairs(rows, fit.take(np.asarray(fit.pair_id) >= 0))
    assert found.shows_something
    assert not found.effect.is_there
    assert "nothing to remove" in found.verdict


def test_ids_that_join_views_of_different_events_are_doubted(table):
    fit = table.rows("FIT")
    ids, rng = np.asarray(fit.pair_id).copy(), np.random.default_rng(0)
    for person in np.unique(fit.participant):
        rows = np.flatnonzero((fit.participant == person) & (fit.source == fit.sources[1]) & (ids >= 0))
        ids[rows] = ids[np.roll(rows, 1)]
    shift = 3.0 * (fit.source == fit.sources[1])[:, None] * np.eye(fit.X.shape[1])[0]
    found = check_pairs(
        changed(fit, X=rng.normal(size=fit.X.shape) + shift, pair_id=ids, label=np.zeros(len(fit)))
    )
    assert "the ids cannot" in found.verdict


def test_the_same_seed_gives_the_same_exchanges(table):
    first, second = (check_pairs(table, n_shuffles=3, random_state=5) for _ in range(2))
    assert np.array_equal(first.shuffled, second.shuffled)
    assert not np.array_equal(first.shuffled, check_pairs(table, n_shuffles=3, random_state=6).shuffled)


def test_the_command_says_it_and_draws_it(table, tmp_path, capsys):
    pytest.importorskip("cyclopts")
    pytest.importorskip("matplotlib")
    from mgpa.cli import main

    write_table(table, tmp_path / "t.npz")
    assert main(["check-pairs", str(tmp_path / "t.npz"), "--out", str(tmp_path / "pairs.png")]) == 0
    assert capsys.readouterr().out.startswith("The pairs show a difference")
    assert (tmp_path / "pairs.png").stat().st_size > 5000
    assert main(["check-pairs", str(tmp_path / "t.npz"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["shows_something"] is True
    assert len(facts["shuffled"]) == 20
