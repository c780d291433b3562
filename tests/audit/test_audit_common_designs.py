"""The designs people have: few paired participants, missing cells, patients registered twice, one decoder."""

import time
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score

import mgpa
from audited import LINEAR
from mgpa import audit
from mgpa.audit import METRICS, AuditPlan, Estimate
from mgpa.audit.calibration import contrasts, coverage
from mgpa.audit.design import find_design, units_with_pairs
from mgpa.audit.folds import fold_roles
from mgpa.audit.heads import ridge_head
from mgpa.audit.plots import draw_all
from mgpa.audit.verdict import caveats, findings, smallest_cell, warnings
from mgpa.errors import UsageError
from mgpa.gate import PCAGate
from mgpa.tables import Table, assign_roles

QUICK = {"readers": {"restarts": 0}, "verbose": False}


def recorded(n=12, rows=24, d=6, shift=3.0, seed=0, sources=("dry", "wet"), n_classes=2, **columns):
    """Return events of n participants, each seen through every source, with classes in turn."""
    rng, k = np.random.default_rng(seed), len(sources)
    person, event = np.repeat(np.arange(n), rows * k), np.repeat(np.arange(n * rows), k)
    code, y = np.tile(np.arange(k), n * rows), np.repeat(np.arange(n * rows) % n_classes, k)
    X = rng.normal(size=(n * rows, d))[event] + 0.1 * rng.normal(size=(len(event), d))
    X[:, 0] += shift * code
    X[:, 1:3] += 2.0 * np.eye(max(n_classes, 2))[y][:, :2]
    known = {"source": np.array(sources)[code], "participant": [f"p{i:03d}" for i in person], "label": y,
             "pair_id": event}  # fmt: skip
    return Table(X, **(known | columns))


def pairs_of_some(table, people):
    """Return the table in which only these participants have pairs."""
    return table.with_columns(pair_id=np.where(np.isin(table.participant, people), table.pair_id, -1))


@pytest.mark.parametrize(("n", "paired"), [(20, 3), (20, 1), (5, 2), (20, 14)])
def test_pairs_of_a_few_participants_are_enough(n, paired):
    """Pairs are for FIT; whoever has none can be EVAL or HEAD."""
    names = [f"p{i:03d}" for i in range(paired)]
    table = pairs_of_some(recorded(n, rows=8), names)
    plan = AuditPlan(table, ["closed_form_mgpa"], **QUICK)
    assert plan.settings.folds >= 4
    scored = [
        who for split in plan.splits for who in np.unique(split.table.rows("EVAL").participant).tolist()
    ]
    assert len(scored) == len(set(scored)) == (n if paired > 1 else n - 1)
    for split in plan.splits:
        having = units_with_pairs(split.table.rows("FIT"))
        assert having
        if 2 * paired <= n:  # all who have pairs are fitted on, but those that are scored
            assert having == set(names) - {*split.table.rows("EVAL").participant}
    if n == 20 and paired == 3:
        result = plan.run()
        assert result["closed_form_mgpa"].S < 0.7 < result["identity"].S
        assert any("had pairs of only 2 to 3 participants" in line for line in caveats(result))


def test_few_pairs_of_events_do_not_stop_an_audit_that_needs_none():
    table = pairs_of_some(recorded(12, rows=6), ["p000"])
    assert AuditPlan(table, ["leace"], **QUICK).settings.folds == 5


def test_without_roles_fitted_maps_are_the_reason_that_is_given():
    table = recorded(12, rows=6)
    fitted = mgpa.baselines.make_method("leace").fit(table.X, source=table.source)
    with pytest.raises(UsageError, match="a fitted map does not record its participants"):
        AuditPlan(table, {"mine": fitted}, **QUICK)


def test_participants_who_lack_a_combination_are_scored_in_what_they_have():
    table = recorded(12, rows=20, n_classes=4)
    gone = (table.participant == "p003") & (table.source == "wet") & (table.label == 2)
    gone |= (table.participant == "p005") & (table.label == 3)
    result = audit.run(table.take(~gone), ["leace"], **QUICK)
    assert result.n_people == 12
    assert "2 of 12 participants lack a combination of source and label" in " ".join(caveats(result))
    assert {"S", "T_f"} <= set(result.metrics)
    assert np.isfinite(result["identity"].by_participant("T_f")).all()


@pytest.mark.parametrize("n_classes", [3, 4])
def test_five_sources_and_several_classes_of_few_patients_are_scored(n_classes):
    """Where the last class is absent from a transfer, it is not compared."""
    rng = np.random.default_rng(1)
    n, rows = 30, 4
    label, site = rng.choice(2, n), np.arange(n) % 5
    label[:20] = (
        np.arange(20) // 5 % n_classes
    )  # every site has a patient of every class, of rare ones no more
    X = rng.normal(size=(n * rows, 6)) + np.repeat(np.eye(6)[site] + 2 * np.eye(6)[label % 6], rows, axis=0)
    unit = np.repeat(np.arange(n), rows)
    table = Table(X, source=np.array(list("ABCDE"))[site[unit]], participant=unit, label=label[unit])
    result = audit.run(table, ["leace"], **QUICK)
    assert np.isfinite(result["leace"].S)
    assert str(result)


def test_the_smallest_cell_of_many_units_is_found_at_once():
    n = 20_000
    units = {str(i): ((("A", "B")[i % 2],), (i // 2 % 2,)) for i in range(n)}
    cells = {(s, c): n // 4 for s in "AB" for c in (0, 1)}
    design = audit.design.Design("nested", "patient", "classification", "between", units, cells, ("A", "B"))

    class Result:
        participants = tuple(units)

    class Audited:
        def __init__(self):
            self.design = design

        def __getitem__(self, name):
            return Result

    started = time.perf_counter()
    assert smallest_cell(Audited())[1] == n // 4
    assert time.perf_counter() - started < 2.0


def test_standards_on_both_instruments_beside_a_calibration_set_of_the_master_end_in_a_report(tmp_path):
    """No participant stayed on the slave, so those who travelled are the only ones to compare."""
    rng = np.random.default_rng(0)
    value = rng.normal(size=48)
    signal = rng.normal(size=(48, 6)) * 0.3 + value[:, None] * np.eye(6)[1]
    slave = np.arange(48) < 16
    X = np.concatenate([signal, signal[slave] + np.eye(6)[0] * 3])
    who = np.concatenate([np.arange(48), np.arange(48)[slave]])
    table = Table(X + 0.05 * rng.normal(size=X.shape), source=np.repeat(["master", "slave"], [48, 16]),
                  participant=[f"s{i:02d}" for i in who], label=np.concatenate([value, value[slave]]),
                  pair_id=np.where(np.isin(who, np.flatnonzero(slave)), who, -1))  # fmt: skip
    result = audit.run(table, ["closed_form_mgpa"], **QUICK)
    assert result.design.kind == "mixed"
    assert result["identity"].S == result["identity"].estimate("S_travelled").value > 0.9
    # One row with each source: over all folds, exchanging them hardly ever reads as well.
    assert result["identity"].chance.excluded
    assert result["identity"].chance.high < 0.9
    assert "Intervals are over 48 participants (S: 16)," in " ".join(caveats(result))
    assert result.report(tmp_path / "report.html").exists()


def test_a_site_without_any_effect_is_not_what_a_nested_audit_says_is_revealed():
    """Case mix alone: the verdict says that patients of the sites may differ instead."""
    rng = np.random.default_rng(0)
    site = np.repeat(["A", "B"], 24)
    trait = rng.normal(size=(48, 5)) + 1.2 * (site == "B")[:, None] * np.eye(5)[0]
    X = np.repeat(trait, 8, axis=0) + 0.3 * rng.normal(size=(384, 5))
    table = Table(X, source=np.repeat(site, 8), participant=np.repeat(np.arange(48), 8))
    result = audit.run(table, [], **QUICK)
    assert result.verdict()[0].startswith("Your embeddings reveal the source, or how the participants of one")
    assert any("even without an effect of the source itself" in note for note in result.design.notes)


def test_a_dozen_standards_with_a_number_each_are_numbers():
    table = recorded(16, rows=1, label=np.repeat(np.linspace(8.1, 12.4, 16), 2))
    assert find_design(table).task == "regression"
    assert find_design(table.with_columns(label=np.repeat(np.arange(16) % 3, 2))).task == "classification"


def test_patients_who_are_registered_twice_are_named_and_no_method_is_blamed():
    table = recorded(30, rows=8)
    again = table.take(table.participant == "p003").with_columns(participant="p099", pair_id=-1)
    both = Table.concatenate([table, again])
    both = replace(both, role=assign_roles(both.participant, {"FIT": 0.5, "HEAD": 0.25, "EVAL": 0.25}))
    roles = np.where(
        both.participant == "p099", "EVAL", np.where(both.participant == "p003", "FIT", both.role)
    )
    result = audit.run(replace(both, role=roles), ["leace"], **QUICK, folds=1)
    marks = warnings(result)
    assert "Registered twice: p099 = p003." in marks["Duplicate rows"]
    assert "Not held out" not in marks
    headline = " ".join(result.verdict())
    assert "but the same rows have two roles" in headline
    assert "rows of 1 of the participants it is scored on (p099) are also among the FIT rows" in " ".join(
        findings(result, "leace")
    )
    assert "No method clearly lowered" not in headline


def test_a_change_that_prints_as_nothing_is_no_change():
    assert METRICS["S"].outcome(Estimate(-0.0001, -0.0002, -0.00005)) == "unclear"
    assert METRICS["T_f"].outcome(Estimate(0.0002, 0.0001, 0.0003)) == "kept"
    assert METRICS["RMSEP_away"].outcome(Estimate(-0.0001, -0.0002, -0.00005)) == "improved"  # any unit


def test_every_gate_says_what_it_covers_of_contrasts():
    """A gate fitted on rows has the variance of rows as its energy, and little of the contrasts."""
    table = recorded(20, d=8, shift=1.0)
    table.X[:, 4:] *= 5.0  # most variance is where the device does nothing
    scaled = {"standardize": False}
    methods = {
        "pca": mgpa.ClosedFormMGPA(gate=PCAGate(rank=2), do_no_harm=False, **scaled),
        "measured": mgpa.ClosedFormMGPA(gate=mgpa.MeasurementGate(rank=1), do_no_harm=False, **scaled),
    }
    table = replace(table, role=assign_roles(table.participant))
    result = audit.run(table, methods, folds=1, **QUICK)
    share = {name: result[name].provenance[0].gate_energy for name in methods}
    assert share["pca"] < share["measured"]
    for name in methods:
        assert f"{share[name]:.1%} of contrast energy" in result[name].summary
    model = mgpa.ClosedFormMGPA(gate=PCAGate(rank=2), do_no_harm=False, **scaled)
    fit = table.rows("FIT")
    model.fit(fit.X, source=fit.source, pair_id=fit.pair_id, groups=fit.participant)
    by_hand = contrasts(fit, "mean", np.ones(8))
    assert coverage(model.gate_, by_hand) == pytest.approx(share["pca"])
    assert share["pca"] < model.gate_.cumulative_energy_[1] - 0.1  # the share of the rows' variance


def test_a_gate_that_spans_everything_has_no_floor():
    table = recorded(16, d=4)
    result = audit.run(table, {"all": mgpa.ClosedFormMGPA(gate=mgpa.MeasurementGate(rank=4))}, **QUICK)
    assert result["all"].facts[0]["gate_basis"].shape[1] == 4
    assert not result["all"].has("floor")


def test_the_method_with_the_lowest_source_is_named_with_what_speaks_against_it():
    table = recorded(20, rows=24)
    found = audit.run(table, {"leace": "leace", "other": "leace"}, **(QUICK | {"readers": LINEAR}))
    n = found.n_people
    wave = np.resize([0.03, -0.03], n)
    level = {"identity": 0.9, "leace": 0.7, "other": 0.6}
    results = {}
    for name, value in level.items():
        result = found[name]
        shape = result.source_auroc.shape
        source = np.full(shape, value) + 0.01 * np.resize([1, -1], n)[None, :, None]
        task = result.heads["frozen"] * 0 + 0.8 + (wave[None, :, None] if name == "other" else 0)
        results[name] = replace(result, source_auroc=source, heads=result.heads | {"frozen": task})
    result = replace(found, results=results)
    assert result.outcome("other", "T_f") == "unclear"
    second = result.verdict()[1]
    assert second.startswith("LEACE lowers S to .700")
    assert "other has a lower S (.600), but it is not clear whether it keeps the task (T_f " in second


def test_nothing_recommends_a_method_that_ran():
    table = recorded(16, rows=16)
    result = audit.run(table, ["leace", "mgpa"], **QUICK)
    assert not any("Try mgpa.MGPA" in line for line in findings(result, "leace"))


def test_few_participants_are_dealt_to_folds_several_times_and_the_spread_is_told():
    table = recorded(10, rows=8)
    result = audit.run(table, ["leace", "closed_form_mgpa"], repeats=3, **QUICK)
    assert result.settings.repeats == 3
    one = audit.run(table, ["leace", "closed_form_mgpa"], repeats=1, **QUICK)
    for name in result:
        each = result[name].of_each_repeat("S")
        assert len(each) == 3
        assert pytest.approx(np.mean(each), abs=0.01) == result[name].S
        assert each[0] == pytest.approx(one[name].S, abs=1e-9)
        # Repeated deals score the same participants: their number does not grow, nor does certainty.
        assert result[name].participants == one[name].participants
    assert "Over 3 random divisions of the participants into folds, S ranged from" in result.verdict()[2]
    deals = [fold_roles(table, find_design(table), 5, repeat=r) for r in (0, 1)]
    assert deals[0] != deals[1]
    full = AuditPlan(table, ["leace"], verbose=False)
    assert full.settings.repeats == 3
    with pytest.raises(UsageError, match="repeats is 2; expected 1, as the table keeps its roles"):
        AuditPlan(table.with_columns(role=assign_roles(table.participant)), ["leace"], folds=1, repeats=2)


def test_nothing_is_fitted_while_drawing(monkeypatch):
    result = audit.run(recorded(12, rows=8), ["closed_form_mgpa"], **QUICK)
    assert result.pairs is not None
    for name in ("mgpa.audit.result.check_pairs", "mgpa.audit.running.check_pairs"):
        monkeypatch.setattr(name, lambda *_: pytest.fail("a fit while drawing"))
    assert "pairs" in draw_all(result)


def test_the_source_scorer_ranks_methods_in_cross_validation():
    import sklearn
    from sklearn.model_selection import GroupKFold, cross_validate

    table = recorded(16, rows=10)
    table.X[:] += np.random.default_rng(0).normal(size=table.X.shape)
    score = {}
    with sklearn.config_context(enable_metadata_routing=True):
        for name in ("identity", "leace", "coral"):
            params = {"source": table.source, "groups": table.participant}
            found = cross_validate(
                mgpa.baselines.make_method(name),
                table.X,
                cv=GroupKFold(2),
                scoring=audit.source_scorer(),
                params=params,
            )
            score[name] = found["test_score"].mean()
    assert score["identity"] < 0.2 < 0.3 < min(score["leace"], score["coral"])
    direct = audit.source_scorer(greater_is_better=False)
    made = mgpa.baselines.make_method("leace").fit(table.X, source=table.source)
    known = {"source": table.source, "groups": table.participant}
    assert direct(made, table.X, **known) == pytest.approx(1 - audit.source_scorer()(made, table.X, **known))
    with pytest.raises(ValueError, match="S needs four participants"):
        direct(made, table.X[:20], source=table.source[:20], groups=table.participant[:20])


# --- home and away ---------------------------------------------------------------------------------------


def test_heads_are_scored_at_home_and_away():
    table = recorded(16, rows=24, shift=4.0)
    table.X[:, 0] += 2.0 * table.label  # what decides the task is where the device shifts
    result = audit.run(table, {"none": "identity", "mgpa": mgpa.ClosedFormMGPA()}, **QUICK)
    before, after = result["identity"], result["mgpa"]
    assert {"home", "away"} <= set(result.metrics)
    assert {"home", "away"} <= set(METRICS)
    assert before.estimate("home").value > 0.9 > 0.7 > before.estimate("away").value
    by_source = [before.estimate(f"home {source}").value for source in ("dry", "wet")]
    assert before.estimate("home").value == pytest.approx(np.mean(by_source))
    assert before.estimate("away").value == before.estimate("A_f").value
    # By hand: the head of one source on its own corrected rows.
    plan = AuditPlan(table, {"mgpa": mgpa.ClosedFormMGPA()}, **QUICK)
    ground = plan.turn(plan.splits[0]).ground
    head = ground.frozen_heads["dry"]
    rows = ground.read("EVAL")[ground.evaluation.source == "dry"]
    label = ground.evaluation.label[ground.evaluation.source == "dry"]
    who = ground.evaluation.participant[ground.evaluation.source == "dry"]
    right = head.predict(rows) == label
    by_hand = [np.mean([right[(who == w) & (label == c)].mean() for c in (0, 1)]) for w in np.unique(who)]
    first = [before.participants.index(w) for w in np.unique(who)]
    np.testing.assert_allclose(before.heads["home_accuracy"][0, first, 0], by_hand)
    frame = result.to_frame()
    assert {"home", "away", "home dry", "away dry → wet"} <= {*frame.metric}
    assert after.has("home")


def test_a_threshold_that_a_shift_moves_is_told_though_the_auroc_stays():
    table = recorded(14, rows=24, shift=0.0)
    table.X[:, 1] += 1.5 * (table.source == "wet")  # towards the first class
    result = audit.run(table, [], readers=LINEAR, verbose=False)["identity"]
    assert result.estimate("T_f").value > 0.95
    one, other = (result.estimate(f"shift_f {way}").value for way in ("dry → wet", "wet → dry"))
    assert one < -0.05 < 0.05 < other
    assert result.estimate("shift_f").value == pytest.approx((abs(one) + abs(other)) / 2, abs=1e-9)


def test_a_fall_at_home_is_what_the_verdict_begins_with():
    table = recorded(16, rows=24, shift=4.0)
    table.X[:, 0] += 2.0 * table.label
    result = audit.run(table, {"mgpa": mgpa.ClosedFormMGPA(), "leace": "leace"}, **QUICK)
    change = result.contrast("mgpa", metric="home")
    assert change.high < -0.01
    second = result.verdict()[1]
    assert second.startswith("With MGPA, existing heads get worse at home: ")
    assert "MGPA(reference='" in second


def test_a_head_is_judged_by_the_device_it_was_trained_on(tmp_path):
    table = recorded(16, rows=24, shift=4.0)
    table.X[:, 0] += 2.0 * table.label
    table = replace(table, role=assign_roles(table.participant))
    dry = table.rows("FIT", "HEAD")
    dry = dry.take(dry.source == "dry")
    head = LogisticRegression().fit(dry.X, dry.label)
    told = audit.run(table, ["leace"], head=head, head_source="dry", folds=1, **QUICK)
    silent = audit.run(table, ["leace"], head=head, folds=1, **QUICK)
    evaluation = table.rows("EVAL")
    rows = evaluation.take(evaluation.source == "wet")
    right = head.predict(rows.X) == rows.label

    def share(who, label):
        return right[(rows.participant == who) & (rows.label == label)].mean()

    by_hand = np.mean([share(who, label) for who in np.unique(rows.participant) for label in (0, 1)])
    assert told["identity"].estimate("away").value == pytest.approx(by_hand)
    assert told["identity"].homes == ("dry",)
    assert told["identity"].estimate("home").value > 0.9
    assert not silent["identity"].has("home")
    assert silent["identity"].estimate("away").value > told["identity"].estimate("away").value
    assert any("was not stated" in line for line in caveats(silent))
    assert not any("was not stated" in line for line in caveats(told))
    with pytest.raises(UsageError, match="head_source is 'gel'; expected a source: dry, wet"):
        AuditPlan(table, ["leace"], head=head, head_source="gel", **QUICK)
    with pytest.raises(UsageError, match="no fitted head was passed"):
        AuditPlan(table, ["leace"], head_source="dry", **QUICK)


def test_numbers_have_their_errors_in_every_direction_with_signs(tmp_path):
    rng, event = np.random.default_rng(0), np.repeat(np.arange(90), 2)
    value, source = rng.normal(size=90)[event], np.tile(["m5", "mp6"], 90)
    X = 0.1 * rng.normal(size=(180, 5)) + value[:, None] * np.eye(5)[0]
    X[:, 0] += source == "mp6"
    table = Table(X, source=source, participant=event, label=value, pair_id=event)
    result = audit.run(table, ["closed_form_mgpa"], head=LinearRegression(), **QUICK)
    csv = result.to_csv(tmp_path / "table.csv").read_text()
    for way in ("m5 → mp6", "mp6 → m5"):
        assert f"RMSEP_away {way}" in csv
        assert f"bias_f {way}" in csv
    one, other = (result["identity"].estimate(f"bias_f {way}").value for way in ("m5 → mp6", "mp6 → m5"))
    assert one * other < 0
    lines = " ".join(findings(result, "closed_form_mgpa"))
    assert "Existing heads by direction: m5 → mp6 RMSEP " in lines
    assert result["identity"].has("RMSEP_home")


def test_a_method_that_takes_rows_to_one_source_is_judged_for_heads_of_that_source():
    table = recorded(14, rows=16, shift=4.0)
    table.X[:, 0] += 2.0 * table.label
    methods = {"dry": mgpa.ClosedFormMGPA(reference="dry"), "middle": mgpa.ClosedFormMGPA()}
    result = audit.run(table, methods, readers=LINEAR, verbose=False)
    assert result["dry"].reference == "dry"
    for metric, served in (("home", "home dry"), ("away", "away dry → *"), ("T_f", "T_f dry → *")):
        assert result.served("dry", metric) == served
        assert result.served("middle", metric) == served  # beside it, by the same heads, as tables show
        change = result["dry"].estimate(served).value - result["identity"].estimate(served).value
        assert result.contrast("dry", metric=metric).value == pytest.approx(change)
    assert result["dry"].estimate("away dry → *") == result["dry"].estimate("away dry → wet")
    assert "heads of dry)" in " ".join(findings(result, "dry"))


# --- further sources -------------------------------------------------------------------------------------


def test_a_source_that_was_not_in_the_fit_is_measured_wherever_there_are_three():
    table = recorded(14, rows=12, sources=("a", "b", "c"), shift=3.0)
    result = audit.run(table, {"mgpa": mgpa.ClosedFormMGPA(), "coral": "coral"}, **QUICK)
    assert result["identity"].has("A_u")
    assert not result["coral"].has("A_u")  # which has to be told a source it knows
    assert {"A_u a", "A_u b", "A_u c"} <= {
        name for name in ("A_u a", "A_u b", "A_u c") if result["mgpa"].has(name)
    }
    assert "On a source outside the fit, heads refitted on the other sources reach " in result.verdict()[1]
    assert not audit.run(recorded(12, rows=8), ["leace"], **QUICK)["leace"].has("A_u")


def test_heads_for_an_unseen_source_are_trained_and_scored_on_corrected_rows():
    """T_u is recomputed with scikit-learn, from a correction and a head that never saw the source."""
    table = recorded(14, rows=12, sources=("a", "b", "c"), shift=3.0)
    table.X[:, 2] += 1.5 * (table.source == "b")
    table = replace(table, role=assign_roles(table.participant))
    result = audit.run(table, ["leace"], folds=1, **QUICK)
    by_hand = {"identity": [], "leace": []}
    for source in "abc":
        others = table.source != source
        fit, head = (table.take((table.role == role) & others) for role in ("FIT", "HEAD"))
        unseen = table.take((table.role == "EVAL") & ~others)
        erased = mgpa.baselines.make_method("leace").fit(fit.X, source=fit.source)
        for name, transform in (("identity", np.asarray), ("leace", erased.transform)):
            scores = ridge_head().fit(transform(head.X), head.label).decision_function(transform(unseen.X))
            rows = [unseen.participant == who for who in result["leace"].participants]
            by_hand[name].append([roc_auc_score(unseen.label[i], scores[i]) for i in rows])
    for name, values in by_hand.items():
        assert result[name].by_participant("T_u") == pytest.approx(np.mean(values, axis=0), abs=1e-9)
    assert not np.allclose(by_hand["identity"], by_hand["leace"])


def test_with_one_label_for_each_participant_the_auroc_of_an_unseen_source_takes_few_values():
    """It counts other participants that are ranked correctly, so that two methods may have the same value."""
    rng, n, rows = np.random.default_rng(1), 60, 8
    unit, site, label = np.repeat(np.arange(n), rows), np.arange(n) % 5, np.arange(n) // 5 % 3
    X = rng.normal(size=(n * rows, 12)) + 0.5 * rng.normal(size=(n, 12))[unit]
    X += rng.normal(size=(5, 12))[site][unit] + 0.6 * rng.normal(size=(3, 12))[label][unit]
    table = Table(X, source=np.array(list("ABCDE"))[site][unit], participant=unit, label=label[unit])
    result = audit.run(table, ["leace"], **QUICK)
    before, after = (result[name].by_participant("T_u").round(9) for name in ("identity", "leace"))
    assert set(np.concatenate([before, after])) <= {0.0, 0.25, 0.5, 0.75, 1.0}
    assert (before == after).mean() > 0.8
    accuracy = [result[name].by_participant("A_u") for name in ("identity", "leace")]
    assert (accuracy[0] == accuracy[1]).mean() < 0.5


def test_pooled_heads_learn_from_the_rows_of_all_sources():
    table = recorded(12, rows=6, sources=("a", "b", "c", "e"), shift=0.0, d=12)
    table.X[:] += np.random.default_rng(1).normal(size=table.X.shape)
    result = audit.run(table, [], **QUICK)["identity"]
    assert result.estimate("T_p").value > result.estimate("T_r").value
    assert result.heads["pooled_accuracy"].shape[-1] == 4


def test_flips_are_the_share_of_events_that_get_two_predictions():
    table = recorded(14, rows=16, shift=2.0)
    table.X[:, 0] += 2.0 * table.label
    table = replace(table, role=assign_roles(table.participant))
    train = table.rows("HEAD")
    head = LogisticRegression().fit(train.X, train.label)
    result = audit.run(table, ["leace"], head=head, folds=1, **QUICK)["identity"]
    held = table.rows("EVAL")
    first, second = held.paired_views()
    differs = head.predict(held.X[first]) != head.predict(held.X[second])
    change = np.abs(head.predict_proba(held.X[first]) - head.predict_proba(held.X[second]))[:, 1]
    people = held.participant[first]
    for name, values in (("flips", differs), ("output_change", change)):
        by_hand = [values[people == who].mean() for who in np.unique(people)]
        np.testing.assert_allclose(getattr(result, name)[0], by_hand, atol=1e-6)


def test_classes_that_a_correction_serves_differently_are_told_apart(tmp_path):
    """What heads get right of every class averages to their balanced accuracy."""
    table = recorded(12, n_classes=3)
    result = audit.run(table, ["leace"], **QUICK)
    found = result["leace"]
    each = [found.estimate(f"recall {name}").value for name in result.design.classes]
    assert np.mean(each) == pytest.approx(found.estimate("away").value, abs=1e-9)
    assert found.estimate("recall").value == pytest.approx(min(each))
    frame = result.to_frame()
    assert {f"recall {name}" for name in result.design.classes} <= set(frame.metric)
    assert "recall" in result.to_csv(tmp_path / "t.csv").read_text()


def test_twins_bits_and_who_is_who_stand_in_every_output(tmp_path):
    result = audit.run(recorded(12), ["closed_form_mgpa"], **QUICK)
    wanted = {"twin", "I_Q", "I_R", "identity"}
    assert wanted <= set(result.columns)
    assert wanted <= set(result.to_frame().metric)
    said = " ".join(result.verdict("closed_form_mgpa"))
    assert "I(U; R | Q)" in said
    assert "recognised from their rows (identity)" in said
    assert "(twin)" in said
    assert ",I_R," in result.to_csv(tmp_path / "t.csv").read_text()
