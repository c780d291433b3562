"""Raw recordings all the way to an audit: real SSVEP trials where they are, simulated ones everywhere."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mgpa import audit
from mgpa.eeg.views import scale_table
from mgpa.tables import assign_roles
from shared import SHARED

EPOCHS = SHARED / "real" / "kalunga_epochs.npz"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "raw_eeg.py"
needs_epochs = pytest.mark.skipif(not EPOCHS.is_file(), reason="the real recordings are not on this machine")


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("raw_eeg", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def real(example):
    """Trials of two flicker rates, seconds 2 to 5, of twelve people."""
    return example.stored(EPOCHS, ("13Hz", "21Hz"), 2.0)


@pytest.fixture(scope="module")
def simulated(example, tmp_path_factory):
    return example.simulated(tmp_path_factory.mktemp("ssvep"), n_people=10)


def judged(table, gamma=1.0):
    found = audit.run(
        scale_table(table, gamma),
        ["leace", "closed_form_mgpa"],
        readers={"bank": "paper", "restarts": 0},
        folds=1,
        verbose=False,
    )
    return {name: {metric: e.value for metric, e in found.estimates[name].items()} for name in found}


@needs_epochs
@pytest.mark.parametrize("gamma", [1.0, 0.05])
def test_a_change_of_reference_is_hidden_and_the_flicker_stays_readable(example, real, gamma):
    table = example.two_references(real)
    # Two or three people judge; six ways to choose them say more than one.
    splits = [
        judged(replace(table, role=assign_roles(table.participant, random_state=seed)), gamma)
        for seed in range(6)
    ]
    for found in splits:
        before, after = found["identity"], found["closed_form_mgpa"]
        # Anybody can tell the reference from band power.
        assert before["S"] > 0.95
        assert max(after["S"], found["leace"]["S"]) < before["S"] - 0.2
        # A head that leans on the reference fails where the association turns; corrected, it fails less.
        assert after["worst"] > before["worst"] + 0.15
        if gamma < 1:
            # A small contrast is nearly a shift, which one direction takes away.
            assert abs(after["S"] - 0.5) < 0.05

    def mean(method, metric):
        return np.mean([found[method][metric] for found in splits])

    assert mean("identity", "T_f") > 0.65
    for metric in ("T_f", "T_r"):
        assert abs(mean("closed_form_mgpa", metric) - mean("identity", metric)) < 0.03


def test_simulated_recordings_take_the_same_path(example, simulated):
    found = judged(example.two_references(simulated), 0.05)
    assert found["identity"]["S"] > 0.9
    assert found["closed_form_mgpa"]["S"] < 0.65
    assert found["identity"]["T_f"] > 0.8
    assert abs(found["closed_form_mgpa"]["T_f"] - found["identity"]["T_f"]) < 0.04
