"""Crossed, nested and mixed designs, numbers as labels, and the user's own head."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.cross_decomposition import PLSRegression
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.preprocessing import StandardScaler

from mgpa import audit
from mgpa.audit import AuditPlan
from mgpa.audit.design import find_design
from mgpa.audit.draws import shares
from mgpa.audit.plots import draw_all
from mgpa.audit.ranks import between_auroc
from mgpa.errors import TableError
from mgpa.tables import Table, assign_roles
from shared import SHARED, needs_shared

QUICK = {"readers": {"restarts": 0}, "verbose": False}


def patients(
    n=64, rows=8, d=8, shift=2.0, association=0.75, travelled=0, sources="AB", trait=0.5, seed=0, **columns
):
    """Return units with one source and one label each, which go together; the first ones travelled."""
    rng = np.random.default_rng(seed)
    own = np.arange(n) % len(sources)
    label = (rng.uniform(size=n) < np.where(own == 0, association, 1 - association)).astype(int)
    moves = np.eye(len(sources), d) * shift - np.eye(1, d) * shift
    unit = np.repeat(np.arange(n), rows)
    base = trait * rng.normal(size=(n, d))[unit] + rng.normal(size=(n * rows, d))
    base[:, -1] += 1.5 * label[unit]
    parts = []
    for k in range(len(sources)):
        seen = (own[unit] == k) | (unit < travelled)
        X = base[seen] + moves[k] + 0.2 * rng.normal(size=(seen.sum(), d))
        event = np.where(unit < travelled, np.arange(n * rows), -1)[seen]
        parts.append((X, np.full(seen.sum(), sources[k]), unit[seen], label[unit[seen]], event))
    X, source, unit, label, event = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Table(X, **{"source": source, "participant": unit, "label": label, "pair_id": event} | columns)


def grouped_probe(table):
    """Return AUROC of the source by hand, in people who have one: others train, classes apart."""
    aurocs = []
    plan = AuditPlan(table, [], **QUICK)
    for split in plan.splits:
        fit, head, held = (plan.turn(split).data.rows.rows(role) for role in ("FIT", "HEAD", "EVAL"))
        held = held.take([unit not in find_design(table).travellers for unit in held.participant])
        scaler = StandardScaler().fit(fit.X)
        reader = LogisticRegression(class_weight="balanced", max_iter=2000)
        scores = reader.fit(scaler.transform(head.X), head.source).decision_function(scaler.transform(held.X))
        _, unit, counts = np.unique(held.participant, return_inverse=True, return_counts=True)
        aurocs += [
            roc_auc_score(held.source[rows] == "B", scores[rows], sample_weight=1 / counts[unit[rows]])
            for rows in (held.label == 0, held.label == 1)
        ]
    return np.mean(aurocs)


@pytest.mark.parametrize("n_sources", [2, 3])
def test_values_of_units_average_to_the_auroc_of_rows(n_sources):
    rng = np.random.default_rng(0)
    unit = np.repeat(np.arange(24), rng.integers(2, 6, 24))
    source, label = np.arange(24) % n_sources, np.arange(24) // n_sources % 2
    scores = rng.normal(size=(len(unit), 2, n_sources)) + np.eye(n_sources)[source[unit]][:, None]
    scores = scores[..., 1] - scores[..., 0] if n_sources == 2 else scores
    values = between_auroc(scores, source[unit], unit, label[unit])
    cells = [values[(source == s) & (label == c)].mean(axis=0) for s in range(n_sources) for c in (0, 1)]
    weight = 1 / np.bincount(unit)[unit]
    for r in range(2):
        by_hand = [
            roc_auc_score(
                source[unit][rows] == k,
                scores[rows, r] if n_sources == 2 else scores[rows, r, k],
                sample_weight=weight[rows],
            )
            for rows in (label[unit] == 0, label[unit] == 1)
            for k in ([1] if n_sources == 2 else range(n_sources))
        ]
        assert np.mean(cells, axis=0)[r] == pytest.approx(np.mean(by_hand), abs=1e-12)


@pytest.mark.parametrize("travelled", [0, 40], ids=["nested", "some travelled"])
def test_a_nested_study_has_its_known_answer(travelled):
    table = patients(64 + travelled, travelled=travelled)
    method = "closed_form_mgpa" if travelled else "leace"
    result = audit.run(table, [method], **QUICK)
    before, after = result["identity"], result[method]
    assert result.design.kind == ("mixed" if travelled else "nested")
    linear = before.source_auroc[..., [before.readers.index("linear")]].mean(axis=(0, 2))
    alone = ~before.travelled
    weights = shares(before.strata[alone], alone.sum())
    assert weights @ linear[alone] == pytest.approx(grouped_probe(table), abs=0.02)
    assert before.chance.excluded
    assert before.estimate("T_f").value > 0.8
    assert 0.5 < before.estimate("A_f").value <= 1
    assert result.contrast(method, metric="S").high < 0
    if travelled:  # pairs tell what the device does, and nothing of it is left
        assert not after.chance.excluded
        assert after.S < 0.62
    else:
        assert "each of 64 participants has one source (A 32, B 32)" in result.design.sentence


def test_a_label_that_goes_with_the_source_does_not_count_as_one():
    result = audit.run(patients(shift=0.0, association=0.85, seed=3), [], **QUICK)["identity"]
    assert not result.chance.excluded
    assert result.S < 0.62
    assert result.estimate("T_f").value > 0.8


def test_the_same_study_crossed_nested_and_mixed_agrees():
    """Traits of half the rows' spread: noise between people, which within people is none."""
    everyone = patients(48, travelled=48, association=0.5, shift=1.2, rows=10, trait=0.5)
    unit = everyone.participant.astype(int)
    own = everyone.source == np.array(list("AB"))[unit % 2]
    tables = {"crossed": everyone, "nested": everyone.take(own), "mixed": everyone.take(own | (unit < 16))}
    results = {}
    for kind, table in tables.items():
        result = audit.run(table.with_columns(pair_id=None), [], **QUICK)
        assert result.design.kind == kind
        results[kind] = result["identity"]
    within = [results["crossed"].estimate("S"), results["mixed"].estimate("S_travelled")]
    between = [results["nested"].estimate("S"), results["mixed"].estimate("S_stayed")]
    heads = [[result.estimate(metric) for result in results.values()] for metric in ("T_f", "A_f")]
    for estimates in (within, between, *heads):
        assert max(e.low for e in estimates) <= min(e.high for e in estimates)
    # The direction that was planted, read by hand in the nested rows: readers of few people find less.
    nested = tables["nested"]
    _, codes = np.unique(nested.participant, return_inverse=True)
    scores, source = nested.X[:, [1]] - nested.X[:, [0]], (nested.source == "B").astype(int)
    by_hand = np.mean(between_auroc(scores, source, codes, nested.label))
    assert by_hand == pytest.approx(norm.cdf(1.2 / np.sqrt(1 + 0.5**2)), abs=0.04)
    assert between[0].low < by_hand < within[0].low


def test_units_that_travelled_are_a_second_opinion():
    table = patients(60, travelled=16, sources="ABC", info={"unit": "patient"})
    result = audit.run(table, ["closed_form_mgpa"], **QUICK)
    assert result.design.kind == "mixed"
    sentence = "16 of 60 patients have several sources, the rest one (A 14, B 15, C 15)"
    assert sentence in result.design.sentence  # 44, without those who travelled
    for method, readable in (("identity", True), ("closed_form_mgpa", False)):
        both = [result[method].estimate(name).value for name in ("S", "S_travelled")]
        assert (min(both) > 0.75) == result[method].chance.excluded == readable
    # Between units, S also contains who was measured where; those who travelled say what the source does.
    assert result["identity"].estimate("S") == result["identity"].estimate("S_travelled")
    assert any(note.startswith("S_stayed compares different patients") for note in result.design.notes)
    assert not result["identity"].has("worst")


def test_a_source_that_is_never_mistaken_has_an_auroc_of_one_over_folds_of_unequal_cells():
    result = audit.run(patients(60, shift=40.0, travelled=8, sources="ABC"), ["closed_form_mgpa"], **QUICK)
    sizes = np.unique(result["identity"].strata, return_counts=True)[1]
    assert len({*sizes.tolist()}) > 1
    before = result["identity"].estimate("S")
    assert (before.value, before.high) == (pytest.approx(1.0, abs=1e-12), 1.0)


def test_labels_that_are_never_mistaken_have_an_auroc_of_one_over_folds_of_unequal_classes():
    rng = np.random.default_rng(0)
    label, source = (np.repeat(rng.choice(k, 47, p=p), 4) for k, p in ((3, [0.5, 0.3, 0.2]), (2, [0.6, 0.4])))
    X = 0.3 * rng.normal(size=(188, 8)) + 5 * np.eye(3, 8)[label] + 2 * np.eye(8)[3 + source]
    result = audit.run(
        Table(X, source=source, participant=np.repeat(np.arange(47), 4), label=label), [], **QUICK
    )
    assert result["identity"].estimate("T_f").value == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("travelled", [0, 16, 48])
def test_only_aurocs_of_units_alone_are_drawn_or_called_theirs(travelled):
    """Values of units that are compared with each other are contributions, and some exceed 1."""
    table = patients(48, rows=6, travelled=travelled, association=0.5, sources="ABC")
    result = audit.run(table, ["leace"], **QUICK)
    assert (result["identity"].source_auroc > 1).any() == (travelled < 48)
    figures = draw_all(result)
    assert ("participants" in figures, "participants_task" in figures) == (travelled > 0, False)
    if travelled:
        lines = [line.get_ydata() for ax in figures["participants"].axes for line in ax.get_lines()]
        assert np.nanmax(np.concatenate(lines)) <= 1
    with pytest.raises(ValueError, match="T_f compares participants in this design"):
        result.plot("participants", "T_f")
    people = result.participants()
    assert ("S contribution" in {*people.metric}) == (travelled == 0)  # S is of those who travelled
    assert {"T_f contribution", "T_r contribution"} < {*people.metric}
    assert not {"T_f", "T_r"} & {*people.metric}


def test_folds_are_balanced_over_sources_and_labels():
    table = patients(40, association=0.5)
    design, folds = find_design(table), AuditPlan(table, [], **QUICK).splits
    judged = [set(plan.table.rows("EVAL").participant) for plan in folds]
    assert set.union(*judged) == set(design.units)
    assert sum(map(len, judged)) == 40
    for people in judged:
        strata = [design.stratum[unit] for unit in people]
        assert len(set(strata)) == 4
        assert max(map(strata.count, strata)) <= 3


@pytest.mark.parametrize(("travelled", "n"), [(0, 6), (6, 4)], ids=["large cells", "a small cell"])
def test_a_small_cell_makes_fewer_folds(travelled, n, capsys):
    table = patients(64, travelled=travelled, association=0.5)
    assert len(AuditPlan(table, [], readers={"restarts": 0}).splits) == n
    assert f"Roles rotate over {n} folds." in "".join(capsys.readouterr())


def test_what_cannot_be_balanced_is_said_before_anything_runs():
    table = patients(40)
    confounded = table.take((table.source == "A") == (table.label == 0))
    with pytest.raises(TableError, match="no participant of source 'A' has label 1"):
        AuditPlan(confounded, [], **QUICK)
    rare = table.take((table.source == "A") | (table.participant.astype(int) < 6))
    with pytest.raises(TableError, match="Source 'B' has 3 participants; 4 folds need"):
        AuditPlan(rare, [], **QUICK)
    empty = table.take((table.source == "A") | (table.label == 1))
    assert "No participant of source B has label 0" in find_design(empty).notes[0]
    assert AuditPlan(empty, [], **QUICK).run().metrics == ("S", "M", "identity")


def test_a_diagnosis_in_a_crossed_design_is_a_task_between_people():
    table = patients(40, travelled=40, association=0.5)
    result = audit.run(table, [], **QUICK)
    assert (result.design.kind, result.design.labels) == ("crossed", "between")
    assert result["identity"].estimate("T_f").value > 0.8


# Numbers as labels.


def quantities(n=60, d=4, seed=0):
    """Return samples on two instruments, one of which adds to what the label is read from."""
    rng = np.random.default_rng(seed)
    label = np.tile(rng.normal(10, 2, n), 2)
    X = np.concatenate([0.3 * rng.normal(size=(n, d))] * 2) + 0.1 * rng.normal(size=(2 * n, d))
    X[:, :2] += label[:, None]
    X[n:, 0] += 3.0
    return Table(X, source=np.repeat(["m5", "mp6"], n), participant=np.tile(np.arange(n), 2), label=label,
                 pair_id=np.tile(np.arange(n), 2), info={"unit": "sample"})  # fmt: skip


def test_many_numbers_are_a_regression_unless_told_otherwise():
    table = quantities()
    assert find_design(table).task == "regression"
    assert find_design(replace(table, label=np.round(table.label / 5))).task == "classification"
    assert find_design(table, "classification").task == "classification"
    source, person, frequency = np.tile(["a", "b"], 200), np.repeat(np.arange(4), 100), np.arange(50) / 5
    complete = Table(np.zeros((400, 2)), source=source, participant=person, label=np.tile(frequency, 8))
    assert find_design(complete).task == "classification"  # each has all of the fifty
    with pytest.raises(TableError, match="labels are <U"):
        find_design(replace(table, label=table.label.astype(str)), "regression")


def test_one_outlying_label_does_not_make_heads_worse_than_the_mean():
    """Errors are relative to the variance of all labels: HEAD of most folds lacks the outlier."""
    table = quantities()
    label = np.where(table.participant == table.participant[0], 100.0, table.label)
    result = audit.run(replace(table, label=label), ["leace"], **QUICK)
    heads = result["identity"].heads
    np.testing.assert_allclose(heads["frozen_relative"], heads["frozen_square"] / np.var(label))
    assert -0.5 < result["identity"].estimate("R2_f").value < 0.5


def test_errors_of_frozen_and_refitted_heads_from_one_source_to_the_other():
    result = audit.run(quantities(), ["closed_form_mgpa"], head=LinearRegression(), **QUICK)
    before, after = result["identity"], result["closed_form_mgpa"]
    assert before.estimate("bias_f m5 → mp6").value == pytest.approx(1.5, abs=0.6)
    assert before.estimate("bias_f mp6 → m5").value == pytest.approx(-1.5, abs=0.6)
    assert before.estimate("bias_f").value == pytest.approx(1.5, abs=0.6)
    assert before.estimate("RMSEP_f").value > before.estimate("bias_f").value
    assert result.contrast("closed_form_mgpa", metric="RMSEP_f").high < 0
    assert after.estimate("R2_r").value > 0.7 > before.estimate("R2_f").value
    assert not before.has("T_f")
    assert "RMSEP_r" in result.metrics


@needs_shared
def test_corn_moisture_between_two_instruments():
    data = np.load(SHARED / "real" / "corn_nir.npz")
    X = np.concatenate([data["spectra"][:, 0, ::10], data["spectra"][:, 2, ::10]])
    table = Table(X, source=np.repeat(["m5", "mp6"], 80), participant=np.tile(np.arange(80), 2),
                  label=np.tile(data["targets"][:, 0], 2), pair_id=np.tile(np.arange(80), 2))  # fmt: skip
    result = audit.run(table, ["leace", "featmap"], head=PLSRegression(8), **QUICK)
    error = {name: result[name].estimate("RMSEP_f m5 → mp6").value for name in result}
    assert error["identity"] > 1.0 > error["leace"] > 0.5 > error["featmap"]
    assert result["identity"].estimate("bias_f m5 → mp6").high < -1.0
    assert result["leace"].estimate("RMSEP_r").value < 0.4


# The user's own head.


def test_a_deployed_head_is_scored_as_it_is_in_its_own_units():
    table = patients(40, travelled=40, association=0.5)
    table = replace(table, X=100 + 5 * table.X, role=assign_roles(table.participant))
    of_a = table.take(table.source == "A")
    head = LogisticRegression(max_iter=5000).fit(of_a.X, of_a.label)
    weights = head.coef_.copy()
    result = audit.run(table, ["closed_form_mgpa"], head=head, folds=1, **QUICK)
    held = table.rows("EVAL")
    rows = held.source == "B"
    by_hand = balanced_accuracy_score(held.label[rows], head.predict(held.X[rows]))
    assert result["identity"].estimate("A_f A → B").value == pytest.approx(by_hand, abs=1e-9)
    np.testing.assert_array_equal(head.coef_, weights)
    with pytest.raises(ValueError, match="was fitted on labels"):
        audit.run(replace(table, label=table.label + 5), [], head=head, folds=1, **QUICK)
