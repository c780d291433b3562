"""Splits: weakened contrasts and one view an event, each alone, leave full contrasts for the gate."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from simulated import simulated_table

pytest.importorskip("pydantic")

from mgpa.studies.config import Study
from mgpa.studies.splits import make_split


@pytest.fixture(scope="module")
def recordings():
    """Events that both devices saw, of people without roles."""
    table = simulated_table(n_people=40)
    paired = replace(table.take(np.isin(table.role, ("HEAD", "EVAL"))), role=None)
    return SimpleNamespace(tasks=["task"], table=lambda task: paired)


def split(recordings, **endpoints):
    study = {
        "name": "s",
        "title": "S",
        "data": {"kind": "table", "table": "rows.npz"},
        "endpoints": endpoints,
    }
    study["methods"] = {"CF": {"method": "closed_form_mgpa"}}
    return make_split(Study.model_validate(study), recordings, "all", None)


def test_rows_that_are_seen_as_recorded_are_their_own_pairs(recordings):
    plain = split(recordings)
    assert plain.contrasts is plain.endpoints is None
    assert (plain.table.rows("FIT").pair_id >= 0).all()


def test_one_view_an_event_keeps_both_for_the_gate(recordings):
    associated = split(recordings, association=0.9)
    fit = associated.table.rows("FIT")
    assert (fit.pair_id == -1).all()
    assert len(associated.contrasts[0]) == len(fit)
    for contrast, endpoint in zip(associated.contrasts, associated.endpoints, strict=True):
        np.testing.assert_array_equal(contrast, endpoint)


def test_weakened_contrasts_keep_full_ones_for_the_gate(recordings):
    weakened = split(recordings, gamma=0.5)
    assert (weakened.table.rows("FIT").pair_id >= 0).all()
    full, weak = (second - first for first, second in (weakened.contrasts, weakened.endpoints))
    np.testing.assert_allclose(weak, 0.5 * full, atol=1e-9)
    assert np.abs(full).max() > 1
