"""Methods of a study are made with its gate, and refused before anything is computed."""

from dataclasses import replace

import numpy as np
import pytest

from mgpa import JointTokens
from mgpa.gate import FixedGate, FullGate, MeasurementGate, PCAGate, RandomGate
from mgpa.paper import StudyError, load_study, plan_study
from mgpa.paper.studies.arms import make_arms, measured_rank, pairs_by_method
from mgpa.paper.studies.recordings import Recordings
from mgpa.paper.studies.splits import Split, make_split
from mgpa.tables.simulate import simulate_table
from small_studies import RECORDED, run, written


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ({"method": "leaze"}, "methods.X: No method 'leaze'. Did you mean leace"),
        ({"method": "euclidean_alignment"}, "euclidean_alignment corrects signals"),
        ({"method": "closed_form_mgpa", "gate": "full"}, "methods.X: control gates are"),
        ({"method": "leace", "parameters": {"rigde": 1}}, "methods.X: .*rigde"),
    ],
)
def test_methods_that_cannot_be_made_are_refused_before_anything_is_computed(method, said, tmp_path):
    study = load_study(written(tmp_path, RECORDED), methods={"X": method})
    for start in (run, plan_study):
        with pytest.raises(StudyError, match=said):
            start(study, tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_control_gates_have_the_measured_rank_and_its_anchors(associated, tmp_path):
    iterative = {"method": "iterative_mgpa"}
    study = load_study(
        tmp_path / "my.toml",
        endpoints={"gamma": 0.2, "association": 0.9},
        gate={"rank": 3},
        methods={
            "P": iterative | {"gate": "pca"},
            "R": iterative | {"gate": "random", "gate_seeds": [5, 6]},
            "U": iterative | {"gate": "full"},
            "C": {"method": "coral", "pairs": "endpoints", "parameters": {"reference": "dry"}},
        },
    )
    split = make_split(study, Recordings(study, tmp_path))
    made = make_arms(study, split)
    assert isinstance(made["P"].gate, PCAGate)
    assert isinstance(made["U"].gate, FullGate)
    assert [type(model.gate) for model in made["R"]] == [RandomGate] * 2
    assert [model.gate.random_state for model in made["R"]] == [5, 6]
    assert {made["P"].gate.rank, *(model.gate.rank for model in made["R"])} == {3}
    for model in (made["P"], made["U"], *made["R"]):
        assert model.anchor_gate.rank == 3
        assert model.standardize is False
    assert made["CF"].standardize is False
    pairs = pairs_by_method(study, split)
    assert pairs["C"] is split.endpoints
    assert pairs["CF"] is split.contrasts
    without = replace(split, endpoints=None)
    with pytest.raises(StudyError, match=r"pairs = 'endpoints' needs endpoints"):
        pairs_by_method(study, without)


def test_tokens_are_taken_as_a_method_says(tmp_path):
    table = simulate_table(n_people=16, d=6, n_sources=2, tokens=3)
    closed = {"method": "closed_form_mgpa"}
    study = load_study(
        "controlled-ssvep",
        data={"kind": "table", "table": str(tmp_path / "t.npz")},
        encoder=None,
        views=None,
        gate={"rank": 2, "tokens": True},
        methods={"M": closed, "J": closed | {"tokens": "joint"}},
    )
    of_tokens = FixedGate(np.eye(6)[:, :1])
    made = make_arms(study, Split(table, None, gate=of_tokens))
    assert made["M"].gate is of_tokens
    assert isinstance(made["J"], JointTokens)
    # The gate of single tokens does not fit all of them together.
    assert (type(made["J"].estimator.gate), made["J"].estimator.gate.rank) == (MeasurementGate, 2)
    assert made["J"].estimator.standardize is False
    for sources in (2, 3):
        rows = simulate_table(n_people=16, d=6, n_sources=sources)
        assert measured_rank(study, Split(rows, None)) >= 1
