"""What an audit found: verdicts, contrasts, frames, and audits put together."""

import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from audited import assert_same, run
from mgpa import audit
from mgpa.audit.verdict import confounding
from simulated import simulated_table


def test_the_verdicts_are_right_on_a_problem_with_a_known_answer(found):
    S = {name: found.estimates[name]["S"].value for name in found}
    assert S["identity"] > 0.9
    assert S["mgpa"] < 0.62
    assert found.contrast("mgpa", metric="S").high < 0
    assert found.contrast("mgpa", metric="T_f").low > -0.02
    assert found.contrast("mgpa", "leace", "worst").value > 0
    text = "\n".join(found.verdict("mgpa"))
    assert "Source (S): " in text
    assert "the part that the gate preserves" in text
    assert abs(found.estimates["mgpa"]["floor"].value - S["mgpa"]) < 0.08
    assert "strong association" in confounding(found)


def test_participants_come_as_a_frame(found):
    pytest.importorskip("pandas")
    people = found.participants()
    one = people[(people.method == "leace") & (people.metric == "S")]
    np.testing.assert_array_equal(one.value, found["leace"].by_participant("S"))
    assert {*people.metric} == {*found.columns}


def test_movement_of_two_people_has_no_interval_below_nothing(found):
    two = {"participants": ("a", "b"), "movement": np.array([[0.01, 0.5]]), "design": None, "widen": True}
    assert replace(found["leace"], **two).estimate("M").low == 0


def test_a_result_can_be_pickled(found):
    assert_same(found, pickle.loads(pickle.dumps(found)))


def test_audits_of_different_people_pool_into_one(table):
    quick = {"readers": {"restarts": 0}, "floor": False, "verbose": False}
    halves = []
    people = np.unique(table.rows("EVAL").participant)
    for chosen in (people[::2], people[1::2]):
        own = (table.role != "EVAL") | np.isin(table.participant, chosen)
        halves.append(run(table.take(own), ["closed_form_mgpa"], **quick))
    pooled, whole = audit.Audit.pool(halves), run(table, ["closed_form_mgpa"], **quick)
    for metric in ("S", "T_f", "M"):
        assert pooled["closed_form_mgpa"].participants == whole["closed_form_mgpa"].participants
        found = pooled.contrast("closed_form_mgpa", metric=metric)
        np.testing.assert_allclose(
            [found.value, found.low], [(c := whole.contrast("closed_form_mgpa", metric=metric)).value, c.low]
        )
    someone = pooled["closed_form_mgpa"].participants[0]
    results = {name: replace(result, fitted_on=(someone,)) for name, result in halves[1].results.items()}
    leaked = audit.Audit.pool([halves[0], replace(halves[1], results=results)])
    assert leaked.verdict("closed_form_mgpa")[0].startswith("Not held out")
    with pytest.raises(ValueError, match="evaluated in more than one split"):
        audit.Audit.pool([whole, whole])
    with pytest.raises(ValueError, match="must have the methods of the first: identity"):
        audit.Audit.pool([replace(whole, results={"identity": whole["identity"]}), halves[0]])


def test_readers_that_reverse_are_not_called_chance():
    result = run(simulated_table(), ["closed_form_mgpa"])
    mine = result["closed_form_mgpa"]
    worse = replace(mine, source_auroc=np.full_like(mine.source_auroc, 0.41))
    said = replace(result, results=result.results | {"closed_form_mgpa": worse}).verdict("closed_form_mgpa")
    (source,) = [line for line in said if line.startswith("Source (S)")]
    assert "S is below chance: readers learned a rule that reverses" in source


def test_an_audit_is_data_and_knows_nothing_of_plots_and_reports(found):
    """In a fresh interpreter, running an audit and reading its numbers loads neither."""
    code = "import sys, mgpa.audit; print({'mgpa.audit.plots', 'mgpa.audit.report'} & {*sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout == "set()\n"
    with pytest.raises(ValueError, match=r"No chart 'gates'\. Charts: tradeoff, differences, readers"):
        found.plot("gates")
