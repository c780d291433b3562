"""Fits of an audit: seeds, gates, budgets, and methods that came fitted."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mgpa
from audited import HeadOfMeans, run
from mgpa.audit.verdict import findings
from mgpa.baselines import make_method
from mgpa.errors import MissingEvidenceWarning


@pytest.mark.parametrize(
    ("methods", "settings", "message"),
    [
        ("leace", {}, "single text 'leace'"),
        (["laece"], {}, "No method 'laece'"),
        (["euclidean_alignment"], {}, "euclidean_alignment corrects signals"),
        ([make_method("leace")], {}, r"methods has LEACE\(\) without a name"),
        ({"x": make_pipeline(StandardScaler(), make_method("leace"))}, {}, "without a pipeline"),
        ({"x": type(make_method("leace"))}, {}, "x is <class"),
        ({"x": []}, {}, "x has nothing to fit"),
        (["iterative_mgpa"], {"seeds": ()}, "iterative_mgpa has nothing to fit"),
        ({"identity": "leace"}, {}, "'identity' is reserved"),
        (["leace"], {"budget": {"nobody": 0.1}}, "budget names nobody"),
    ],
)
def test_methods_that_are_none_are_refused(table, methods, settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        run(table, methods, **settings)


def test_a_wrapped_random_method_gets_the_seeds(tokens):
    model = mgpa.IterativeMGPA(n_stages=1, critics=("linear",), do_no_harm=False)
    found = run(tokens, {"wrapped": mgpa.TokenMean(model), "bare": model}, head=HeadOfMeans())
    assert found["wrapped"].n_fits == 2
    np.testing.assert_array_equal(found["wrapped"].movement, found["bare"].movement)
    assert found["wrapped"].has("floor")


def test_budgets_and_pairs_are_given_to_single_methods(table, tmp_path):
    fit = table.rows("FIT")
    a, b = fit.paired_views()
    methods = {"whole": "closed_form_mgpa", "part": "closed_form_mgpa", "weak": "closed_form_mgpa"}
    result = run(
        table, methods, budget={"part": 0.05}, pairs={"weak": (fit.X[a][:9], fit.X[b][:9])},
        readers={"restarts": 0}, floor=False, verbose=False, cache=tmp_path,
    )  # fmt: skip
    moved = {name: float(result[name].facts[0]["validation_movement"]) for name in methods}
    assert moved["part"] == pytest.approx(0.05)
    assert moved["whole"] > 0.05
    assert moved["weak"] != moved["whole"]
    # A budget cuts a fit back; it does not make another fit.
    assert len(list(tmp_path.glob("*.safetensors"))) == 1 + 2 + 1


def test_budgets_are_in_common_coordinates(table, tokens):
    wide = replace(table, X=table.X * np.linspace(0.1, 10, 8) + 20)
    methods = {
        "closed": mgpa.ClosedFormMGPA(),
        "closed raw": mgpa.ClosedFormMGPA(standardize=False),
        "staged": mgpa.IterativeMGPA(n_stages=12, critics=("linear",), do_no_harm=False, random_state=1),
        "staged raw": mgpa.IterativeMGPA(
            n_stages=12, critics=("linear",), do_no_harm=False, random_state=1, standardize=False
        ),
    }
    found = run(wide, methods, budget=0.02)
    for name in methods:
        assert found[name].facts[0]["validation_movement"] == pytest.approx(0.02, rel=1e-6)
        assert found[name].estimate("M").value == pytest.approx(0.02, rel=0.4)  # 0.066 in raw units' terms
        if name.startswith("staged"):
            assert found[name].facts[0]["stage_movement"][-1] == pytest.approx(0.02, rel=1e-6)
    found = run(tokens, {"leace": "leace"}, budget=0.05, head=HeadOfMeans())
    assert found["leace"].facts[0]["validation_movement"] == pytest.approx(0.05)


def test_pairs_that_show_nothing_leave_rows_as_they_are_and_the_audit_goes_on(table):
    rng = np.random.default_rng(0)
    noise = replace(table, X=rng.normal(size=table.X.shape))
    with pytest.warns(MissingEvidenceWarning, match="show no common difference"):
        found = run(noise, ["leace", "closed_form_mgpa"])
    assert found["closed_form_mgpa"].estimate("M").value == 0.0
    assert found["closed_form_mgpa"].estimate("S").value == found["identity"].estimate("S").value
    assert found["leace"].estimate("M").value > 0.0
    said = findings(found, "closed_form_mgpa")[0]
    assert said.startswith("No evidence of an effect: rows were not changed. The ")
    assert "pairs show no common difference" in said
    assert not any("No evidence" in line for line in findings(found, "leace"))
