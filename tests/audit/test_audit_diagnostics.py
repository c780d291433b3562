"""What fills the embedding, what is confounded, and whether readers are calibrated."""

import numpy as np
import pytest

from mgpa.audit.diagnostics import confounding, cramers_v
from mgpa.audit.measure import movement_by_group


def test_confounding_counts_nested_people():
    found = confounding(["a"] * 4 + ["b"] * 4, [1, 2, 3, 4, 4, 5, 6, 7], [0, 0, 1, 1, 0, 0, 1, 1])
    assert (found.nested_participants, found.n_participants) == (6, 7)
    assert found.source_label == pytest.approx(0.0)
    assert len(found.sentences()) == 2
    assert cramers_v(np.array([[10.0, 0.0], [0.0, 10.0]])) == pytest.approx(1.0)
    assert cramers_v(np.array([[10.0, 5.0]])) == 0.0


def test_independent_labels_are_not_called_associated():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(300):
        counts = np.zeros((2, 2))
        np.add.at(counts, (rng.integers(0, 2, 60), rng.integers(0, 2, 60)), 1)
        found.append(cramers_v(counts))
    assert np.mean(found) < 0.07  # without the correction .10
    assert cramers_v(np.array([[30.0, 0.0], [0.0, 30.0]])) == pytest.approx(1.0)


def test_tokens_move_as_their_numbers_do():
    rng = np.random.default_rng(3)
    H = rng.normal(size=(6, 4, 3))
    people = np.array(["p1", "p2"] * 3)
    names, moved = movement_by_group(H, 1.25 * H, people)
    assert names == ("p1", "p2")
    np.testing.assert_allclose(moved, 0.25)
