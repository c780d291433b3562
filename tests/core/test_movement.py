"""One definition of size and movement, also where features were constant in the fitting rows."""

import numpy as np
import pytest

import mgpa
from mgpa.baselines import make_method
from mgpa.operating_point import relative_movement, stage_movement


@pytest.fixture(scope="module")
def silent():
    """Rows whose last feature is silent in the fit and loud, and source-dependent, in other people."""
    rng = np.random.default_rng(0)
    source = np.tile([0, 1], 150)
    X = rng.normal(size=(300, 6)) + 2.0 * source[:, None] * np.eye(6)[0]
    X[:, 5] = 0.0
    new = rng.normal(size=(200, 6)) + 2.0 * np.tile([0, 1], 100)[:, None] * np.eye(6)[0]
    new[:, 5] = 1000.0 * np.tile([0, 1], 100)
    A = rng.normal(size=(60, 6))
    B = A + 2.0 * np.eye(6)[0] + 0.3 * rng.normal(size=(60, 6))
    A[:, 5] = B[:, 5] = 0.0
    return X, source, (A, B), new


MODELS = {
    "closed_form": lambda: mgpa.ClosedFormMGPA(),
    "iterative": lambda: mgpa.IterativeMGPA(
        critics=("linear",), n_stages=4, do_no_harm=False, random_state=0
    ),
    "leace": lambda: make_method("leace"),
    "inlp": lambda: make_method("inlp", n_rounds=2),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_feature_that_was_constant_in_the_fit_has_no_size(silent, name, tmp_path):
    X, source, pairs, new = silent
    m = MODELS[name]().fit(X, source=source, pairs=pairs).to_map()
    assert m.info.constant_features == (5,)
    H = ((new - m.center) / m.scale)[:, :5]
    moved = (m.transform(new) - new) / m.scale
    expected = np.linalg.norm(moved) / np.linalg.norm(H)
    assert relative_movement(m, new) == pytest.approx(expected, rel=1e-6)
    assert expected > 0.1
    stored = mgpa.load_map(m.save(tmp_path / "m.safetensors"))
    assert relative_movement(stored, new) == pytest.approx(expected, rel=1e-6)


def test_history_and_endpoint_agree(silent):
    X, source, pairs, new = silent
    model = MODELS["iterative"]()
    model.fit(X, source=source, pairs=pairs, X_val=new, source_val=np.tile([0, 1], 100))
    history = [stage["held_movement"] for stage in model.history_]
    np.testing.assert_allclose(stage_movement(model.to_map(), new), history, rtol=1e-4)
