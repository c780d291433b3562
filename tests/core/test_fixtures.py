"""Fits on the authors' inputs give the authors' outputs."""

import numpy as np
import pytest

import mgpa
from mgpa.endpoint import BudgetNotAttained, movement_budget, relative_movement
from shared import FIXTURES, needs_shared

pytestmark = needs_shared

# How far the authors found their own refitted maps from the stored ones between library versions.
REFIT_TOLERANCE = 5e-3


@pytest.fixture(scope="module", params=["open_a", "open_b"])
def fixture(request):
    folder = FIXTURES / request.param
    with np.load(folder / "fixture.npz") as arrays:
        return folder, dict(arrays)


def fit(model, arrays, suffix=""):
    first, second = np.swapaxes(arrays[f"pairs{suffix}"], 0, 1)
    return model.fit(arrays[f"X{suffix}"], source=arrays["source"], pairs=(first, second))


def test_the_gate_is_the_authors_gate(fixture):
    _, arrays = fixture
    first, second = np.swapaxes(arrays["pairs"], 0, 1)
    gate = mgpa.MeasurementGate(rank=0.9).fit(second - first)
    assert gate.rank_ == arrays["gate_rank"]
    np.testing.assert_allclose(gate.basis_ @ gate.basis_.T, arrays["gate_projector"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(gate.cumulative_energy_, arrays["gate_cumulative_energy"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("Model", [mgpa.ClosedFormMGPA, mgpa.IterativeMGPA])
def test_estimators_find_the_same_gate_from_raw_units(fixture, Model):
    _, arrays = fixture
    settings = {} if Model is mgpa.ClosedFormMGPA else {"n_stages": 0, "do_no_harm": False}
    gate = fit(Model(**settings), arrays, "_raw").gate_
    np.testing.assert_allclose(gate.basis_ @ gate.basis_.T, arrays["gate_projector"], rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("closed_form", {}),
        ("closed_form_alpha_1_1", {"strength": 1.1}),
        ("closed_form_ridge1_shrink02", {"ridge": 1.0, "shrinkage": 0.2}),
    ],
)
def test_the_closed_form_equals_the_authors(fixture, name, settings):
    _, arrays = fixture
    model = fit(mgpa.ClosedFormMGPA(standardize=False, **settings), arrays)
    np.testing.assert_allclose(model.transform(arrays["X_new"]), arrays[name], rtol=0, atol=1e-8)


def test_strength_at_application_equals_strength_at_fit(fixture):
    _, arrays = fixture
    model = fit(mgpa.ClosedFormMGPA(standardize=False), arrays)
    stronger = model.transform(arrays["X_new"], strength=1.1)
    np.testing.assert_allclose(stronger, arrays["closed_form_alpha_1_1"], rtol=0, atol=1e-8)


def test_raw_units_in_give_raw_units_out(fixture):
    _, arrays = fixture
    model = fit(mgpa.ClosedFormMGPA(), arrays, "_raw")
    np.testing.assert_allclose(
        model.transform(arrays["X_new_raw"]), arrays["closed_form_raw"], rtol=0, atol=1e-8
    )
    # The displacement is the same one in standardised units.
    expected = arrays["closed_form"] - arrays["X_new"]
    np.testing.assert_allclose(model.to_map().displacement(arrays["X_new_raw"]), expected, rtol=0, atol=1e-8)


def test_the_movement_budget_stops_where_the_authors_stop(fixture):
    folder, arrays = fixture
    m, X, budget = mgpa.load_map(folder / "iterative_both"), arrays["X_new"], float(arrays["budget"])
    endpoint = movement_budget(m, X, budget)
    assert endpoint.attained
    assert endpoint.n_stages == arrays["budget_stages"]
    assert endpoint.fraction == pytest.approx(float(arrays["budget_fraction"]), abs=1e-6)
    assert relative_movement(endpoint.map, X) == pytest.approx(budget, rel=1e-9)


def test_a_budget_beyond_the_map_is_refused(fixture):
    folder, arrays = fixture
    m, X = mgpa.load_map(folder / "iterative_both"), arrays["X_new"]
    endpoint = movement_budget(m, X, 10.0)
    assert not endpoint.attained
    assert endpoint.movement == pytest.approx(relative_movement(m, X))
    with pytest.raises(BudgetNotAttained, match="not attained"):
        _ = endpoint.map


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("iterative_both", {}),
        ("iterative_linear", {"critics": ("linear",)}),
        ("iterative_zero", {"target": "zero"}),
        ("iterative_fit_mean", {"target": "mean"}),
        ("iterative_pca_permission", {"anchor_gate": mgpa.MeasurementGate(rank=0.9)}),
    ],
)
def test_refitted_stages_land_on_the_authors_outputs(fixture, name, settings):
    folder, arrays = fixture
    stored = mgpa.load_map(folder / name)
    if "anchor_gate" in settings:
        settings = settings | {"gate": mgpa.PCAGate(rank=int(arrays["gate_rank"]))}
    X = arrays["X_new"].astype(np.float32)
    model = mgpa.IterativeMGPA.paper(n_stages=len(stored), standardize=False, device="cpu", **settings)
    model = fit(model, arrays)
    assert len(model.to_map()) == len(stored)
    np.testing.assert_allclose(model.transform(X), arrays[name], rtol=0, atol=REFIT_TOLERANCE)
    partial = model.transform(X, n_stages=4, fraction=0.35)
    expected = arrays[f"{name}_prefix4_fraction035"]
    np.testing.assert_allclose(partial, expected, rtol=0, atol=REFIT_TOLERANCE)
    # The tolerance has power: the stages move the rows by much more than it.
    assert np.abs(arrays[name] - X).max() > 50 * REFIT_TOLERANCE
    for tensor in ("damping", "radius", "stabilizer"):
        assert getattr(model.map_, tensor) == pytest.approx(getattr(stored, tensor), rel=1e-6)
