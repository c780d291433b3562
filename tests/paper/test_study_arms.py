"""Methods of a study are made with its gate, and refused before anything is computed."""

from dataclasses import replace

import numpy as np
import pytest

from mgpa import IterativeMGPA, JointTokens
from mgpa.gate import FixedGate, FullGate, MeasurementGate, PCAGate, RandomGate
from mgpa.maps.info import gate_words
from mgpa.paper import StudyError, load_study, plan_study
from mgpa.paper.studies.arms import make_arms, measured_rank, pairs_by_method
from mgpa.paper.studies.recordings import Recordings
from mgpa.paper.studies.splits import Split, make_split
from mgpa.tables.fitting import fit_table
from mgpa.tables.simulate import simulate_table
from small_studies import RECORDED, run, written


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ({"method": "leaze"}, "methods.X: No method 'leaze'. Did you mean leace"),
        ({"method": "euclidean_alignment"}, "euclidean_alignment corrects signals"),
        ({"method": "awar"}, "awar predicts labels; studies correct embeddings"),
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


def test_gates_say_how_much_of_the_contrasts_they_hold_or_nothing(tmp_path):
    table = simulate_table(n_people=16, d=6, n_sources=2, tokens=3)
    plan = {"gate": {"rank": 0.9, "tokens": True}, "methods": {"CF": {"method": "closed_form_mgpa"}}}
    study = load_study(written(tmp_path, table=table), **plan)
    split = make_split(study, Recordings(study, tmp_path / "work"))
    info = fit_table(make_arms(study, split)["CF"], split.table).to_map().info
    moved = split.table.rows("FIT")
    moved = np.subtract(*(moved.X[side].astype(np.float64) for side in moved.paired_views())).reshape(-1, 6)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    expected = ((moved @ split.gate.basis) ** 2).sum() / len(moved)
    assert 0.9 <= info.gate_energy < 1
    assert info.gate_energy == pytest.approx(expected, abs=0.03)  # short contrasts are left out of the gate
    vectors = simulate_table(n_people=16, d=6)
    pca = fit_table(IterativeMGPA(PCAGate(2), n_stages=1, critics=("linear",), do_no_harm=False), vectors)
    assert pca.to_map().info.gate_energy is None
    assert "energy" not in gate_words(pca.to_map().info)


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
