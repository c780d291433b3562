"""Limits of the audit's small functions: what lies just outside them is noticed."""

import numpy as np
import pytest

from mgpa import audit


@pytest.mark.parametrize("xi", [-1.5, 1.5])
def test_an_association_beyond_complete_is_refused(xi):
    with pytest.raises(ValueError, match="-1"):
        audit.assignment_probability([1, 0], ["p", "p"], xi)


def test_movement_outside_the_gate_is_drift_and_inside_is_none():
    basis = np.eye(3)[:, :1]
    assert audit.complement_drift(np.array([[2.0, 0.0, 0.0]]), basis) == 0.0
    assert audit.complement_drift(np.array([[2.0, 1.0, 0.0], [1.0, 0.0, 0.0]]), basis) == pytest.approx(0.5)


def test_chance_of_two_rows_of_two_sources_is_everything():
    shares = audit.variance_shares(np.array([[0.0, 1.0], [1.0, 0.0]]), source=np.array(["a", "b"]))
    assert shares[0].chance == 1.0


def test_methods_of_different_numbers_of_fits_are_told_apart_in_words():
    with pytest.raises(ValueError, match=r"fits of shape \(2,\) and b \(3,\)"):
        audit.contrast(np.zeros((2, 5)), np.zeros((3, 5)))


def test_fits_in_several_dimensions_are_told_by_their_shape():
    with pytest.raises(ValueError, match=r"fits of shape \(2, 3\)"):
        audit.contrast(np.zeros((2, 3, 5)), np.zeros((4, 5)))
