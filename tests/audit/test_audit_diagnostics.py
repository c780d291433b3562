"""Before a correction: what pairs show, whether rows differ by it, and what is confounded."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

from mgpa.audit import check_pairs, cramers_v, run
from mgpa.audit.diagnostics import count_rows
from mgpa.effect import Displacement, Effect
from mgpa.errors import MissingEvidence, TableError
from mgpa.estimators.mgpa import MGPA
from mgpa.tables import Table, fit_table, open_table, write_table
from simulated import simulated_table


def changed(table, **columns):
    return Table(columns.pop("X", table.X), **{name: columns.get(name, values) for name, values in
                                               table.columns.items()})  # fmt: skip


@pytest.fixture(scope="module")
def table():
    return simulated_table(n_people=30, events=12)


def test_pairs_of_a_planted_difference_show_it_and_the_rows_differ_by_it(table):
    check = check_pairs(table)
    assert check.effect.exists
    assert ", and rows show" in check.verdict
    # Exchanging views leaves the mean and adds the difference of events.
    assert check.closeness < 0.7
    assert check.coverage[0] > np.median(check.shuffled[:, 0]) + 0.2


def test_pairs_may_be_a_file_that_is_open(table, tmp_path):
    file = open_table(write_table(table, tmp_path / "pairs.parquet"))
    assert check_pairs(table, file).coverage.tolist() == check_pairs(table, table).coverage.tolist()


def test_pairs_of_noise_show_nothing(table):
    rng = np.random.default_rng(3)
    found = check_pairs(changed(table, X=rng.normal(size=table.X.shape)))
    assert not found.shows_something
    assert found.rank == 0
    # What is doubtful about the pairs comes first.
    assert found.verdict.startswith("Views of one event are not closer than those of different events")
    assert f"These {found.n_pairs} pairs show no common difference" in found.verdict
    assert found.closeness == pytest.approx(1.0, abs=0.1)


def test_rows_that_do_not_differ_by_what_pairs_show_have_nothing_to_remove(table):
    """Pairs from elsewhere differ; the rows are all of one device, whatever their labels say."""
    rng = np.random.default_rng(0)
    fit = table.rows("FIT")
    same = rng.normal(size=fit.X.shape)
    rows = changed(fit, X=same, pair_id=np.full(len(fit), -1))
    found = check_pairs(rows, fit.take(np.asarray(fit.pair_id) >= 0))
    assert found.shows_something
    assert not found.effect.exists
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
    assert "the ids are wrong" in found.verdict


def test_pairs_of_people_with_one_each_are_mismatched_between_them(table):
    one = table.rows("FIT").take(np.asarray(table.rows("FIT").pair_id) >= 0)
    columns = {"source": one.source, "pair_id": one.pair_id}
    found = check_pairs(Table(one.X, **columns, participant=one.pair_id))
    assert found.closeness == pytest.approx(check_pairs(Table(one.X, **columns)).closeness, abs=0.05)
    assert found.closeness < 0.7
    assert "the ids are wrong" not in found.verdict
    assert "groups of participants" in str(found)


def test_ids_that_occur_once_are_mentioned_once(table):
    rows = table.rows("FIT")
    ids = np.asarray(rows.pair_id).copy()
    ids[np.flatnonzero((ids >= 0) & (rows.source == rows.sources[1]))[:3]] = -1
    rows = changed(rows, pair_id=ids)
    for use in (
        lambda: MGPA().fit(rows.X, source=rows.source, pair_id=ids, groups=rows.participant).to_map(),
        lambda: check_pairs(rows),
    ):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            use()
        assert len([each for each in said if "form no pair" in str(each.message)]) == 1


def test_no_or_too_few_pairs_are_refused(table):
    with pytest.raises(TableError, match="The table lacks pair_id; it has source"):
        check_pairs(table.with_columns(pair_id=None))
    fit = table.rows("FIT")
    ids = np.asarray(fit.pair_id)
    few = changed(fit, pair_id=np.where(np.isin(ids, ids[ids >= 0][:4]), ids, -1))
    with pytest.raises(MissingEvidence, match="too few to hold some out; 5 are needed"):
        check_pairs(few)


def test_an_audit_checks_the_pairs_of_its_fitting_rows_once_and_no_others(table):
    settings = {"readers": {"restarts": 0}, "folds": 1, "verbose": False}
    audited = run(table, ["leace"], **settings)
    assert audited.check_pairs().verdict == check_pairs(table.rows("FIT")).verdict
    assert audited.check_pairs() is audited.check_pairs()
    # Pairs from elsewhere are not those of the rows.
    A, B = (table.rows("FIT").X[view] for view in table.rows("FIT").paired_views())
    assert run(table, ["leace"], pairs=(A, B), **settings).check_pairs() is None


def test_the_command_says_it_also_of_columns_with_other_names(table, tmp_path, capsys):
    pytest.importorskip("cyclopts")
    from mgpa.cli import main

    renamed = Table(table.X, other={"device": table.source, "event": table.pair_id})
    write_table(renamed, tmp_path / "t.npz")
    command = [
        "check-pairs",
        str(tmp_path / "t.npz"),
        "--rename.device",
        "source",
        "--rename.event",
        "pair_id",
    ]
    assert main(command) == 0
    begins = "The pairs show a shift (held-out pairs support a gate of rank "
    assert capsys.readouterr().out.startswith(begins)
    assert main([*command, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["shows_something"] is True
    assert len(facts["shuffled"]) == 20


def test_a_check_of_pairs_prints_the_numbers_of_the_fit():
    """Also where pairs are outliers, which both leave out, and where the source is read without spread."""
    table = simulated_table(n_people=30, events=12)
    X = table.X.copy()
    X[np.flatnonzero((table.role == "FIT") & (table.pair_id >= 0))[0], 2] += 50.0
    table = replace(table, X=X)
    found, stored = check_pairs(table), fit_table(MGPA(), table).to_map()
    assert str(found.effect) in stored.info.evidence
    assert f"(of the fit's own pairs: {stored.info.gate_energy:.1%})" in found.facts["held out"]
    assert found.outliers in stored.info.evidence
    assert "are outliers and were left out" in found.facts["pairs"]


def test_a_check_of_pairs_says_when_populations_explain_the_effect(table):
    displaced = Effect(0.4, 0.05, 11, displacement=Displacement(-1.0, 0.05, 7, ("dry", "wet")))
    verdict = replace(check_pairs(table), effect=displaced).verdict
    assert "Populations, not devices, explain the effect in rows (40 %)" in verdict
    assert "do not clearly show it" not in verdict


def test_pairs_that_differ_in_spread_alone_show_something():
    rng = np.random.default_rng(0)
    person, event = np.repeat(np.arange(12), 20), np.arange(240)
    content = rng.normal(size=(240, 6))
    views = [content * gain + 0.1 * rng.normal(size=content.shape) for gain in (1.0, np.r_[2.5, np.ones(5)])]
    table = Table(
        np.concatenate(views),
        source=np.repeat(["dry", "wet"], 240),
        pair_id=np.tile(event, 2),
        participant=np.tile(person, 2).astype(str),
    )
    found = check_pairs(table)
    assert found.shows_something
    assert "12 participants): gain" in str(found)
    # The shift acts along the gate; a correction of spread, wherever paired views differ.
    assert "no shift is corrected; a correction of spread, in 2 of 6 directions" in str(found)
    model = fit_table(MGPA(), table)
    assert 0.6 < model.to_map().info.gate_energy < 0.9
    assert f"rank 2, {model.to_map().info.gate_energy:.1%} of contrast energy" in model.to_map().summary()
    assert "a correction of spread" not in str(check_pairs(simulated_table(n_people=30, events=12)))


def test_independent_labels_are_not_called_associated():
    rng = np.random.default_rng(0)
    values = []
    for _ in range(300):
        values.append(cramers_v(count_rows(rng.integers(0, 2, 60), rng.integers(0, 2, 60))))
    assert np.mean(values) < 0.07  # without the correction .10
    assert cramers_v({"a": {"x": 10, "y": 5}}) == 0.0
