"""Operating points: how much of a fitted correction to apply."""

import numpy as np
import pytest

from factories import random_affine_map, random_projective_map, random_staged_map
from mgpa.operating_point import (
    BudgetNotAttained,
    movement_budget,
    operating_points,
    relative_movement,
    select_by_development,
    select_within_family,
)


def rows(n: int = 60, d: int = 10, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def staged(**changes):
    return random_staged_map(dtype=np.float64, **({"stages": 6, "radius": 0.2} | changes))


def movements(m, X) -> list[float]:
    """Return the movement after 0, 1, … stages, straight from the definition."""
    return [float(relative_movement(m[:k], X)) for k in range(len(m) + 1)]


MAPS = pytest.mark.parametrize(
    "m",
    [random_affine_map(), staged(), random_projective_map(dtype=np.float64)],
    ids=["affine", "staged", "projective"],
)


# Movement


@MAPS
def test_movement_is_the_displacement_norm_in_standardised_coordinates(m):
    X = rows()
    H = (X - m.center) / m.scale
    moved = (m.transform(X) - m.center) / m.scale
    expected = np.linalg.norm(moved - H) / np.linalg.norm(H)
    assert relative_movement(m, X) == pytest.approx(expected, rel=1e-9)
    assert relative_movement(m, X.astype(np.float32)) == pytest.approx(expected, rel=1e-5)


# Movement budgets


@MAPS
@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.99])
def test_the_budget_is_met_exactly(m, share):
    X = rows()
    budget = share * max(movements(m, X)) if hasattr(m, "stage_tensors") else share * relative_movement(m, X)
    assert relative_movement(movement_budget(m, X, budget), X) == pytest.approx(budget, rel=1e-8)


@MAPS
def test_a_budget_beyond_the_map_has_no_map(m):
    X = rows()
    far = 10 * (max(movements(m, X)) if hasattr(m, "stage_tensors") else relative_movement(m, X))
    moves = f"the complete map moves .* by only {relative_movement(m, X):.4g}. .* smaller budget"
    with pytest.raises(BudgetNotAttained, match=moves):
        movement_budget(m, X, far)


@pytest.mark.parametrize("budget", [np.nan, -0.1, np.inf])
def test_a_budget_is_a_number_from_zero(budget):
    with pytest.raises(ValueError, match="budget must be zero or a positive number; got"):
        movement_budget(staged(), rows(), budget)


def test_a_staged_budget_takes_part_of_the_crossing_stage_only():
    X, m = rows(), staged()
    reached = movements(m, X)
    budget = (reached[2] + reached[3]) / 2
    assert max(reached[:3]) < budget < reached[3]
    cut = movement_budget(m, X, budget)
    assert len(cut) == 3
    assert 0 < cut.fraction < 1
    # The first two stages are applied in full, and the displacement is linear in the fraction of the third.
    before, after = m[:2].displacement(X), m[:3].displacement(X)
    np.testing.assert_allclose(cut.displacement(X), before + cut.fraction * (after - before), atol=1e-10)


def there_and_back():
    """Return a map that goes out, comes back, and goes out further: its targets swing."""
    m = staged(n_network=0, r=1, damping=1e-6, stabilizer=1e-3, radius=0.6)
    weight = np.repeat(m.linear_weight[:1], 6, axis=0)
    bias = np.repeat(m.linear_bias[:1], 6, axis=0)
    swing = np.array([3.0, 3.0, -3.0, -3.0, 3.0, 3.0])[:, None] * 1e3
    return staged(
        n_network=0, r=1, damping=1e-6, stabilizer=1e-3, radius=0.6,
        linear_weight=weight, linear_bias=bias, anchor_bias=swing,
    )  # fmt: skip


def test_the_first_upward_crossing_counts():
    X, m = rows(), there_and_back()
    reached = movements(m, X)
    assert reached[1] < reached[2] > reached[3]
    assert reached[4] < reached[5] < reached[6]
    budget = (reached[1] + reached[2]) / 2
    cut = movement_budget(m, X, budget)
    assert len(cut) == 2
    assert relative_movement(cut, X) == pytest.approx(budget, rel=1e-8)


def test_operating_points_of_a_staged_map_are_its_prefixes():
    *prefixes, whole = operating_points(staged())
    assert [len(m) for m in (*prefixes, whole)] == list(range(7))


# The development rule


def test_a_point_that_costs_any_head_more_than_a_hundredth_is_out():
    heads = [[0.9, 0.9], [0.95, 0.889], [0.891, 0.9]]
    assert select_by_development([0.5, 0.9, 0.6], heads, [0, 0.1, 0.2]) == 2
    assert select_by_development([0.5, 0.9, 0.6], heads, [0, 0.1, 0.2], max_loss=0.02) == 1
    assert select_by_development([0.5, 0.9, 0.6], heads, [0, 0.1, 0.2], max_loss=0.0) == 0

    for head in (0.62, 0.7, 0.91, 0.83):  # a loss of exactly a hundredth is allowed despite rounding
        assert select_by_development([0.5, 0.9], [[head], [head - 0.01]], [0, 0.1]) == 1


@pytest.mark.parametrize(
    ("worst", "movement", "chosen"),
    [
        ([0.5, 0.8, 0.8, 0.8], [0, 0.3, 0.1, 0.2], 2),
        ([0.5, 0.8, 0.8, 0.8], [0, 0.2, 0.2, 0.2], 1),
        ([0.5, np.nextafter(0.8, 1), 0.8, 0.7], [0, 0.3, 0.1, 0.2], 2),  # equal but for the last bit is a tie
    ],
)
def test_ties_go_to_less_movement_then_to_the_earlier_point(worst, movement, chosen):
    assert select_by_development(worst, np.full((4, 1), 0.9), movement) == chosen


@pytest.mark.parametrize(
    ("worst", "heads", "movement", "message"),
    [
        ([0.5, 0.6], [[0.9], [0.9]], [0], "dimension"),
        ([0.5, 0.6], [[0.9], [np.nan]], [0, 1], "has missing values"),
        ([0.5, 0.6], [[0.9], [0.9]], [0, np.nan], "has missing values"),
    ],
)
def test_unscored_points_are_an_error(worst, heads, movement, message):
    with pytest.raises(ValueError, match=message):
        select_by_development(worst, heads, movement)


@pytest.mark.parametrize(
    ("worst", "movement", "chosen"),
    [([0.8, 0.799, 0.7979], [0.3, 0.2, 0.1], 1), ([0.8, 0.798], [0.3, 0.2], 1), ([0.8, 0.8], [0.2, 0.2], 0)],
)
def test_within_a_family_two_thousandths_are_a_tie(worst, movement, chosen):
    assert select_within_family(worst, movement) == chosen
