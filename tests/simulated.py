"""A small table with known answers, at the size tests like, in memory and in several parts."""

from typing import Any

import numpy as np

from mgpa.tables import Table, TableWriter
from mgpa.tables.simulate import simulate_table


def simulated_table(**changes: Any) -> Table:
    sizes = {"n_people": 20, "events": 16, "d": 8, "random_state": changes.pop("seed", 0)}
    if "K" in changes:
        sizes["n_sources"] = changes.pop("K")
    return simulate_table(**(sizes | changes))


def in_parts(table: Table, path: Any, n_parts: int = 3, **options: Any) -> Any:
    """Write a table in parts of about the same size, and return the path."""
    bounds = np.linspace(0, len(table), n_parts + 1).astype(int)
    with TableWriter(path, table, rows=np.diff(bounds).tolist(), **options) as writer:
        for i in range(n_parts):
            writer.write(i, table.take(slice(bounds[i], bounds[i + 1])))
    return path
