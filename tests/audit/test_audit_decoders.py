"""End-to-end comparators in an audit, and what else differs between sources than the measurement."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score

from mgpa.audit import run
from mgpa.baselines import AwAR, SlopeBias, split_source_difference
from mgpa.errors import UsageError
from mgpa.tables import Table, simulate_table

QUICK = {"readers": {"restarts": 0}, "verbose": False}


@pytest.fixture(scope="module")
def audited():
    pytest.importorskip("torch")
    table = simulate_table(20)
    return table, run(table, ["awar", "circe", "leace"], folds=1, **QUICK)


def test_a_decoder_is_scored_on_the_task_as_its_own_predictions_say(audited):
    table, audit = audited
    head, held = table.rows("HEAD"), table.rows("EVAL")
    scores = []
    for start, goal in (("dry", "wet"), ("wet", "dry")):
        target, new = head.source == goal, held.source == goal
        model = AwAR().fit(head.X[head.source == start], head.label[head.source == start],
                           X_target=head.X[target])  # fmt: skip
        values = model.decision_function(held.X[new])
        of = [held.participant[new] == who for who in np.unique(held.participant)]
        scores.append(np.mean([roc_auc_score(held.label[new][p], values[p]) for p in of]))
    assert audit["awar"].estimate("T_r").value == pytest.approx(np.mean(scores), abs=1e-6)


def test_decoders_have_dashes_elsewhere_and_take_no_part_in_the_verdict(audited, tmp_path):
    _, audit = audited
    assert audit.methods == ("identity", "leace")
    assert set(audit.estimates["awar"]) == {"T_r", "A_r"}
    assert set(audit.estimates["circe"]) == {"T_p", "A_p"}
    brief = str(audit)
    assert "awar replaces the head: T_r ." in brief
    assert "(a head on uncorrected rows: ." in brief
    frame = audit.to_frame()
    assert set(frame[frame.method == "circe"].metric) == {"T_p", "A_p"}
    row = (tmp_path / "r.html", tmp_path / "t.csv")
    audit.report(row[0])
    audit.to_csv(row[1])
    page = row[0].read_text("utf-8")
    assert 'awar <span class="group">source-blind</span></th><td>–</td>' in page
    assert "circe,True,T_p," in row[1].read_text("utf-8")


def test_folds_score_each_participant_once():
    table = simulate_table(12)
    audit = run(table, ["awar"], folds=4, repeats=1, **QUICK)
    assert set(audit["awar"].participants) == set(np.unique(table.participant))
    assert audit["awar"].by_participant("T_r").shape == (12,)


def test_numbers_go_to_regressors_and_classes_to_classifiers():
    rng = np.random.default_rng(0)
    person, event = np.repeat(np.arange(16), 20), np.repeat(np.arange(160), 2)
    source, amount = np.tile(["dry", "wet"], 160), rng.normal(size=160)[event]
    X = amount[:, None] * [1.0, 0.5, 0.0] + 0.1 * rng.normal(size=(320, 3))
    X[source == "wet"] = 2.0 * X[source == "wet"] + 1.0
    table = Table(X, source=source, participant=person, label=amount, pair_id=event)
    audit = run(table, {"line": SlopeBias(Ridge())}, task="regression", folds=4, repeats=1, **QUICK)
    corrected, refitted = (audit[name].estimate("RMSEP_r").value for name in ("line", "identity"))
    assert corrected < 0.3 < refitted
    with pytest.raises(UsageError, match=r"AwAR predicts classes; the labels are numbers\."):
        run(table, ["awar"], task="regression", folds=4, repeats=1, **QUICK)
    with pytest.raises(ValueError, match="cmmn corrects signals"):
        run(table, ["cmmn"], task="regression", **QUICK)


def test_an_audit_splits_the_difference_of_sources(audited):
    table, audit = audited
    fit = table.rows("FIT")
    expected = split_source_difference(fit.X, fit.source, pair_id=fit.pair_id, groups=fit.participant)
    assert audit.source_split() == expected
    alone = Table(table.X, source=table.source, participant=table.participant, label=table.label)
    assert run(alone, ["leace"], folds=4, repeats=1, **QUICK).source_split() is None
