"""Folds: each participant is scored once, by maps and readers fitted on others."""

import importlib
import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from audited import LINEAR
from mgpa import audit
from mgpa.audit import AuditPlan
from mgpa.audit.folds import is_crossed as everybody_can_judge
from mgpa.audit.report import html_report
from mgpa.audit.running import run_splits
from mgpa.audit.verdict import caveats, text
from mgpa.baselines import make_method
from mgpa.errors import UsageError
from mgpa.tables import Table, TableError, assign_roles, fit_table, simulate_table, write_table
from terminal import done

QUICK = {"readers": LINEAR, "verbose": False}


def few(n=10, roles=True, **columns):
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(n), 32)
    source, y = np.tile(["dry", "wet"], len(person) // 2), np.arange(len(person)) // 2 % 2
    X = rng.normal(size=(len(person), 5)) + 0.3 * rng.normal(size=(n, 5))[person]
    X[:, 0] += 3.0 * (source == "wet")
    X[:, 1] += 2.0 * y
    known = {
        "source": source,
        "participant": [f"p{p:02d}" for p in person],
        "label": y,
        "role": assign_roles(person) if roles else None,
    }
    return Table(X, **(known | columns))


def test_everybody_is_judged_once_by_what_was_fitted_on_others():
    table = few()
    result = audit.run(table, ["leace"], **QUICK)
    assert result["leace"].participants == tuple(np.unique(table.participant).tolist())
    assert result.settings.folds == 5
    assert result["leace"].fitted_on == ()
    once = "scored once, by maps, readers and heads trained on others, in 5 folds"
    assert any(once in s for s in result.verdict("leace"))
    judged = [
        set(plan.table.rows("EVAL").participant) for plan in AuditPlan(table, ["leace"], **QUICK).splits
    ]
    assert sum(map(len, judged)) == len(set.union(*judged)) == 10
    for plan in AuditPlan(table, ["leace"], **QUICK).splits:
        roles = [set(plan.table.rows(role).participant) for role in ("FIT", "VAL", "HEAD")]
        assert not set.union(*roles) & set(plan.table.rows("EVAL").participant)
        assert sum(map(len, roles)) == 8


@pytest.mark.parametrize(("method", "times"), [("closed_form_mgpa", 1), ("leace", 0)])
def test_ids_that_occur_once_are_mentioned_once(method, times, recwarn):
    table, events = few(), np.arange(320) // 2
    ids = np.where((np.arange(320) % 2 == 1) & (events % 3 == 0), -1, events)
    audit.run(replace(table, pair_id=ids), [method], **QUICK)
    said = [str(w.message) for w in recwarn if "pair ids" in str(w.message)]
    assert said == ["54 of 160 pair ids occur once and form no pair."] * times


def test_heads_of_one_person_learn_no_shortcut_and_the_audit_says_so():
    table = few(3, roles=False)
    result = audit.run(replace(table, pair_id=np.arange(len(table)) // 2), ["leace"], **QUICK)
    assert "worst" not in result.metrics
    assert "worst and control were not measured: shortcuts need two or more HEAD participants" in text(
        result, verbose=True
    )


@pytest.mark.parametrize("n", [3, 6])
def test_of_few_people_everybody_is_a_fold(n):
    table = few(n, roles=False)
    table = table.with_columns(pair_id=np.arange(len(table)) // 2)
    plan = AuditPlan(table, ["leace"], **QUICK)
    assert len(plan.splits) == n
    for fold in plan.splits:
        parts = [set(fold.table.rows(role).participant) for role in ("FIT", "VAL", "HEAD", "EVAL")]
        assert sum(map(len, parts)) == len(set.union(*parts)) == n
        assert [bool(part) for part in parts] == [True, n > 3, True, True]
    result = plan.run()
    assert result["leace"].participants == tuple(np.unique(table.participant).tolist())
    said = " ".join(result.verdict("leace"))
    assert f"in {n} folds" in said
    assert ("exploratory" in said) == (n < 6)
    assert "or folds" not in said
    assert ("worst" in result.metrics) == (n >= 6)  # which takes two people to train on


def test_a_method_that_one_fold_left_out_is_left_out_of_all():
    plan = AuditPlan(few(), ["leace"], **QUICK)
    parts = [run_splits(plan, [split])[0] for split in plan.splits]
    fewer = {"identity": parts[1].results["identity"]}
    parts[1] = replace(
        parts[1], results=fewer, settings=replace(parts[1].settings, omitted={"leace": "too far"})
    )
    pooled = audit.Audit.pool(parts)
    assert pooled.methods == ("identity",)
    assert pooled.n_people == 10
    assert pooled.settings.omitted == {"leace": "too far"}
    for order in (parts, parts[::-1]):  # a part without the budget adds nothing to the count of fits
        counted = replace(order[0], settings=replace(order[0].settings, unattained={"leace": [1, 2]}))
        for some in ([counted, *order[1:]], [*order[1:], counted]):
            assert audit.Audit.pool(some).settings.unattained == {"leace": [1, 2]}


def test_roles_are_kept_where_twelve_people_judge_or_it_is_asked_for():
    many = few(60)
    assert AuditPlan(many, ["leace"], **QUICK).settings.folds == 1
    assert AuditPlan(few(), ["leace"], folds=1, **QUICK).settings.folds == 1
    assert AuditPlan(many, ["leace"], folds=6, **QUICK).settings.folds == 6


def test_whom_a_map_was_fitted_on_is_never_scored_where_roles_rotate():
    table = few()
    maps = {"mine": fit_table(make_method("leace"), table).to_map()}
    assert AuditPlan(table, maps, **QUICK).settings.folds == 1
    fitted = {*table.rows("FIT").participant.tolist()}
    plan = AuditPlan(replace(table, role=None), maps, **QUICK)
    scored = [{*split.table.rows("EVAL").participant.tolist()} for split in plan.splits]
    assert set().union(*scored) == {*table.participant.tolist()} - fitted
    assert all(fitted <= {*split.table.rows("FIT").participant.tolist()} for split in plan.splits)
    result = plan.run()
    assert not result["mine"].fitted_on
    assert any(f"{len(fitted)} participants were fitted on in every fold" in line for line in caveats(result))


def test_people_who_lack_a_source_or_pairs_keep_their_roles():
    table, pair_id = few(), np.arange(320) // 2
    fitter = table.rows("FIT").participant[0]
    one_sided = table.take((table.participant != fitter) | (table.source == "dry"))
    assert everybody_can_judge(table)
    assert not everybody_can_judge(one_sided)
    assert AuditPlan(one_sided, ["leace"], **QUICK).settings.folds == 1
    someone = table.participant == table.participant[0]
    assert everybody_can_judge(replace(table, pair_id=pair_id))
    assert everybody_can_judge(replace(table, pair_id=np.full(320, -1)))
    assert not everybody_can_judge(replace(table, pair_id=np.where(someone, -1, pair_id)))


def test_a_number_of_folds_that_people_do_not_fill_is_an_error():
    for folds in (2, 6):
        with pytest.raises(UsageError, match="10 participants make 4 to 5 folds"):
            AuditPlan(few(), ["leace"], folds=folds, **QUICK)
    with pytest.raises(UsageError, match="6 participants make 6 folds of one participant"):
        AuditPlan(few(6), ["leace"], folds=4, **QUICK)
    with pytest.raises(TableError, match="The table has 2 participants; an audit needs 3 or more"):
        AuditPlan(few(2, roles=False), ["leace"], folds=4, **QUICK)


def test_what_is_shown_of_folds_is_about_everybody_or_says_that_it_is_not():
    with_roles = few(8).with_columns(pair_id=np.arange(8 * 32) // 2)
    assert audit.run(with_roles, [], **QUICK).check_pairs().n_pairs == len(with_roles) // 2
    named = {"feature_names": list("abcde")}  # without names, no gate is drawn
    table = few(4, roles=False, info=named).with_columns(pair_id=np.arange(4 * 32) // 2)
    result = audit.run(table, ["closed_form_mgpa"], **QUICK)
    assert table.digest.startswith(result.settings.data)
    assert sum(sum(row.values()) for row in result.counts.values()) == len(table)
    assert result.check_pairs().n_pairs == len(table) // 2
    page = html_report(result)
    # Each row and each participant is counted once.
    assert f"{len(table)} rows of 4 participants, each EVAL once, in 4 folds; other roles rotate." in page
    assert page.count("Only the first fold is shown.") >= 2


@pytest.mark.slow
def test_the_command_makes_folds_of_few_people(tmp_path):
    pytest.importorskip("cyclopts")
    write_table(few(roles=False), tmp_path / "few.npz")
    command = ("audit", "few.npz", "--out", "found", "--methods", "leace", "--quick", "--json")
    facts = json.loads(done(*command, folder=tmp_path).stdout)
    assert facts["folds"] == 5
    facts = json.loads(done(*command, "--folds", "4", folder=tmp_path).stdout)
    assert facts["folds"] == 4


def test_refits_say_what_other_fit_participants_would_change(tmp_path):
    """A correction of two participants' pairs depends on them; one of none does not."""
    table = simulate_table(30, events=12, d=6, device_effect=1.0)
    result = audit.run(table, ["closed_form_mgpa"], refits=4, **QUICK)
    assert len(result.refits) == result.settings.refits == 4
    again, once = result.refitted["closed_form_mgpa"]["S"], result.changes["closed_form_mgpa"]["S"]
    values = [refit["closed_form_mgpa"]["S"] for refit in result.refits]
    assert len(set(values)) == 4
    spread = np.std(values, ddof=1) * scipy.stats.t.ppf(0.975, 3)
    assert again.value == once.value
    assert again.high - again.value == pytest.approx(np.hypot(once.high - once.value, spread))
    assert "(4 fits on half of the FIT participants each)" in " ".join(result.verdict("closed_form_mgpa"))
    frame = result.to_frame()
    assert "S" in set(frame.metric[frame.against == "identity, refitted"])
    assert "refitted_low" in result.to_csv(tmp_path / "table.csv").read_text().partition("\n")[0]
    with pytest.raises(UsageError, match="3 or more"):
        audit.run(table, ["leace"], refits=1, verbose=False)


def test_folds_computed_together_are_those_computed_one_by_one(monkeypatch, one_torch_thread):
    torch, cells = pytest.importorskip("torch"), importlib.import_module("mgpa.audit.cells")
    readers = {"bank": "paper", "restarts": 1, "checkpoints": (1, 3)}
    settings = {"readers": readers, "folds": 5, "verbose": False, "device": "cpu"}
    alone = AuditPlan(simulate_table(16), ["closed_form_mgpa"], **settings).run()
    plan = AuditPlan(simulate_table(16), ["closed_form_mgpa"], **settings)
    # As on a GPU: the networks of all folds and methods as one program.
    plan.engine = replace(plan.engine, device="cuda")
    monkeypatch.setattr(cells, "torch_device", lambda *named: torch.device("cpu"))
    trained = []
    train = cells.trained_scores
    monkeypatch.setattr(
        cells, "trained_scores", lambda readings, **how: trained.append(train(readings, **how)) or trained[-1]
    )
    together = plan.run()
    assert [len(found) for found in trained] == [15]  # in five folds: two methods, and what a gate leaves
    for name in alone.methods:
        np.testing.assert_allclose(together[name].source_auroc, alone[name].source_auroc, atol=2e-3)
        np.testing.assert_array_equal(together[name].movement, alone[name].movement)
        assert together[name].readers == alone[name].readers
