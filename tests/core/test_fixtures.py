"""Fits on the authors' inputs give the authors' outputs, from tests/data and from all that they published."""

import numpy as np
import pytest

import mgpa
from mgpa.baselines import make_method
from mgpa.operating_point import movement_budget, relative_movement

# How far the authors found their own refitted maps from the stored ones between library versions.
REFIT_TOLERANCE = 5e-3


def test_the_gate_is_the_authors_gate(authors):
    first, second = authors.pairs
    gate = mgpa.MeasurementGate(rank=0.9).fit(second - first)
    assert gate.rank_ == authors.arrays["gate_rank"]
    authors.assert_output(gate.basis_ @ gate.basis_.T, "gate_projector", 1e-10)
    authors.assert_output(gate.cumulative_energy_, "gate_cumulative_energy", 1e-12)


@pytest.mark.parametrize("Model", [mgpa.ClosedFormMGPA, mgpa.IterativeMGPA])
def test_estimators_find_the_same_gate_from_raw_units(authors, Model):
    settings = {} if Model is mgpa.ClosedFormMGPA else {"n_stages": 0}
    gate = authors.fit_raw(Model.paper(**settings)).gate_
    authors.assert_output(gate.basis_ @ gate.basis_.T, "gate_projector")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("closed_form", {}),
        ("closed_form_alpha_1_1", {"strength": 1.1}),
        ("closed_form_ridge1_shrink02", {"ridge": 1.0, "shrinkage": 0.2}),
    ],
)
def test_the_closed_form_equals_the_authors(authors, name, settings):
    model = authors.fit(mgpa.ClosedFormMGPA.paper(standardize=False, **settings))
    authors.assert_output(model.transform(authors.arrays["X_new"]), name)


def test_strength_at_application_equals_strength_at_fit(authors):
    model = authors.fit(mgpa.ClosedFormMGPA.paper(standardize=False))
    authors.assert_output(model.transform(authors.arrays["X_new"], strength=1.1), "closed_form_alpha_1_1")


def test_raw_units_in_give_raw_units_out(authors):
    model, X = authors.fit_raw(mgpa.ClosedFormMGPA.paper()), authors.arrays["X_new_raw"]
    authors.assert_output(model.transform(X), "closed_form_raw")
    # The displacement is the same one in standardised units.
    authors.assert_output(authors.arrays["X_new"] + model.to_map().displacement(X), "closed_form")


@pytest.mark.parametrize("name", ["leace", "coral_to_0", "coral_to_1", "featmap_to_0", "featmap_to_1"])
def test_the_papers_baselines_equal_the_authors(authors, name):
    method, _, reference = name.partition("_to_")
    settings = {"reference": int(reference)} if reference else {}
    settings |= {"ridge": 0.0} if method == "featmap" else {}  # as FEATMAP.paper()
    model = authors.fit(make_method(method, standardize=False, **settings))
    known = {"source": authors.arrays["source_new"]} if reference else {}
    authors.assert_output(model.transform(authors.arrays["X_new"], **known), name, 1e-10)


def test_stored_maps_replay_the_authors_outputs(authors):
    X = authors.arrays["X_new"]
    for name, m in authors.maps.items():
        authors.assert_output(m.prefix(4, 0.35).transform(X), f"{name}_prefix4_fraction035", 1e-5)
        if len(m) > 4:  # of some maps the repository has four stages only
            authors.assert_output(m.transform(X), name, 1e-5)
    assert len(authors.maps["iterative_linear"]) == 10


def test_the_movement_budget_stops_where_the_authors_stop(authors):
    m, X, budget = authors.maps["iterative_both"], authors.arrays["X_new"], float(authors.arrays["budget"])
    cut = movement_budget(m, X, budget)
    assert len(cut) == authors.arrays["budget_stages"]
    assert cut.fraction == pytest.approx(float(authors.arrays["budget_fraction"]), abs=1e-6)
    assert relative_movement(cut, X) == pytest.approx(budget, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "n_stages", "settings"),
    [
        ("iterative_both", 10, {}),
        ("iterative_linear", 10, {"critics": ("linear",)}),
        ("iterative_zero", 6, {"target": "zero"}),
        ("iterative_fit_mean", 6, {"target": "mean"}),
        ("iterative_pca_permission", 6, {"anchor_gate": mgpa.MeasurementGate(rank=0.9)}),
    ],
)
def test_refitted_stages_land_on_the_authors_outputs(authors, name, n_stages, settings):
    if "critics" not in settings:
        pytest.importorskip("torch")
    if "anchor_gate" in settings:
        settings = settings | {"gate": mgpa.gate.PCAGate(rank=int(authors.arrays["gate_rank"]))}
    X = authors.arrays["X_new"].astype(np.float32)
    model = mgpa.IterativeMGPA.paper(n_stages=n_stages, standardize=False, device="cpu", **settings)
    authors.fit(model)
    authors.assert_output(model.transform(X), name, REFIT_TOLERANCE)
    partial = model.transform(X, n_stages=4, fraction=0.35)
    authors.assert_output(partial, f"{name}_prefix4_fraction035", REFIT_TOLERANCE)
    # The tolerance has power: the stages move the rows by much more than it.
    expected = authors.arrays[name]
    assert np.abs(expected - X[: len(expected)]).max() > 50 * REFIT_TOLERANCE
    if name in authors.maps:
        for field in ("damping", "radius", "stabilizer"):
            assert getattr(model.map_, field) == pytest.approx(getattr(authors.maps[name], field), rel=1e-6)
