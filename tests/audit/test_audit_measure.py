"""What is measured is what users deploy: every feature is read, and sizes are of features that have one."""

import time
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import mgpa
from audited import run
from mgpa import audit
from mgpa.baselines import make_method
from mgpa.tables import apply_to_table, fit_table
from simulated import simulated_table


def with_silent_unit(table, size=3.0):
    """Return the table with a unit that says nothing in FIT people, and tells the device in all others."""
    rng = np.random.default_rng(0)
    unit = (table.source == "wet") + rng.normal(scale=0.3, size=len(table))
    unit = np.where(table.role == "FIT", 1.0, size * unit)
    shape = (*table.X.shape[:-1], 1)
    unit = np.broadcast_to(unit.reshape(-1, *[1] * (len(shape) - 1)), shape)
    return replace(table, X=np.concatenate([table.X, unit], axis=-1))


@pytest.fixture(scope="module")
def silent():
    return with_silent_unit(simulated_table())


def test_a_unit_that_is_silent_in_fit_is_read_where_it_speaks(silent):
    found = run(silent, {"mgpa": mgpa.ClosedFormMGPA(), "leace": "leace"})
    for name, model in (("mgpa", mgpa.ClosedFormMGPA()), ("leace", make_method("leace"))):
        corrected = apply_to_table(fit_table(model, silent).to_map(), silent)
        head, evaluation = corrected.rows("HEAD"), corrected.rows("EVAL")
        reader = LogisticRegression(max_iter=5000).fit(head.X, head.source)
        scores = reader.decision_function(evaluation.X)
        reached = audit.participant_auroc(scores, evaluation.source, evaluation.participant)[1].mean()
        assert reached > 0.9
        assert found[name].estimate("S").value > reached - 0.02
    assert found["mgpa"].estimate("floor").value > 0.9  # the gate keeps it, too


def test_a_unit_without_a_size_makes_no_movement_small(silent):
    methods = {"mgpa": mgpa.ClosedFormMGPA(), "leace": "leace"}
    plain = run(simulated_table(), methods)
    found = run(with_silent_unit(simulated_table(), 3000.0), methods)
    for name in methods:
        np.testing.assert_allclose(found[name].movement, plain[name].movement, rtol=1e-9)
    coverage = found["mgpa"].facts[0]["gate_coverage"]  # of what has a size
    assert coverage == pytest.approx(plain["mgpa"].facts[0]["gate_coverage"])


def test_movement_is_of_all_features_relative_to_those_that_have_a_size():
    before, after = np.array([[3.0, 4.0, 100.0]]), np.array([[3.0, 4.0, 105.0]])
    varies = np.array([True, True, False])
    assert audit.movement_by_group(before, after, np.array(["p"]), varies)[1] == pytest.approx([1.0])
    tokens = audit.movement_by_group(before[:, None], after[:, None], np.array(["p"]), varies)[1]
    assert tokens == pytest.approx([1.0])
    with pytest.raises(ValueError, match="empty or all at the fitting mean"):
        audit.movement_by_group(before * [0, 0, 1], after, np.array(["p"]), varies)


def renamed(table, sources=None, labels=None):
    """Return the table with sources or labels called otherwise, so that they sort the other way round."""
    source = table.source if sources is None else np.array([sources[s] for s in table.source])
    label = table.label if labels is None else np.array([labels[y] for y in table.label])
    return replace(table, source=source, label=label)


@pytest.mark.parametrize("association", [0.9, 0.0], ids=["found in FIT", "neither direction"])
def test_worst_association_does_not_depend_on_names(association):
    table = simulated_table(association=association)
    table = renamed(table, labels={y: f"class {y}" for y in np.unique(table.label).tolist()})
    first, second = table.sources.tolist()
    zero, one = np.unique(table.label).tolist()
    sources, labels = {first: "z", second: "a"}, {zero: "z", one: "a"}
    found = [
        run(renamed(table, **changes), ["leace"])
        for changes in ({}, {"sources": sources}, {"labels": labels})
    ]
    for other in found[1:]:
        for name in found[0]:
            for metric in ("worst", "aligned", "reversed", "control"):
                assert other[name].estimate(metric).value == pytest.approx(
                    found[0][name].estimate(metric).value, abs=1e-6
                )


def test_a_stated_direction_is_the_one_that_is_measured():
    table = simulated_table(association=0.9)
    as_found = run(table, ["leace"])
    [way] = as_found.settings.directions
    first, second = table.sources.tolist()
    label = way.partition(" means ")[2]
    stated = {source: run(table, ["leace"], association=(source, label)) for source in (first, second)}
    for source, result in stated.items():
        assert result.settings.directions == (f"{source} means {label}",)
        same = result.settings.directions == (way,)
        assert (str(result["leace"].shortcut) == str(as_found["leace"].shortcut)) == same
    with pytest.raises(ValueError, match="expected one of"):
        run(table, ["leace"], association=("foam", label))
    with pytest.raises(ValueError, match="expected one of"):
        run(table, ["leace"], association=(first, "none"))


def test_many_more_features_than_rows_are_audited_in_seconds():
    table = simulated_table()
    noise = np.random.default_rng(0).normal(size=(len(table), 6_000)).astype(np.float32)
    wide = replace(table, X=np.concatenate([table.X.astype(np.float32), noise], axis=1), label=None)
    started = time.process_time()
    found = run(wide.take(np.isin(np.arange(len(table)) % 8, (0, 1))), ["leace"])
    assert time.process_time() - started < 120  # a matrix of all features takes hours to decompose
    assert found["leace"].source_auroc.shape[1] == len(found["identity"].participants)
