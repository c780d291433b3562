"""A small table with known answers, at the size tests like."""

from typing import Any

from mgpa.tables import Table
from mgpa.tables.simulate import simulate_table


def simulated_table(**changes: Any) -> Table:
    sizes = {"n_people": 20, "events": 16, "d": 8, "random_state": changes.pop("seed", 0)}
    if "K" in changes:
        sizes["n_sources"] = changes.pop("K")
    return simulate_table(**(sizes | changes))
