"""A small table with known answers, at the size tests like."""

from typing import Any

from mgpa.simulate import simulate_table
from mgpa.tables import Table


def simulated_table(**changes: Any) -> Table:
    sizes = {"n_people": 20, "events": 16, "d": 8, "random_state": changes.pop("seed", 0)}
    if "K" in changes:
        sizes["n_sources"] = changes.pop("K")
    return simulate_table(**(sizes | changes))
