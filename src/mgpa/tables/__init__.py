"""Embedding tables, in memory and in files, and their use in fits and corrections.

A :class:`Table` has embeddings and, for each row, its source, participant and other columns.
:func:`fit_table` fits any method to a table, in memory, streamed or on a cluster; :func:`apply_to_table`
applies a map to a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._common.extras import lazy_names

if TYPE_CHECKING:
    from ..errors import TableError
    from .columns import COLUMNS, ROLES, Columns, assign_roles
    from .files import TableFile, open_table, write_table
    from .fitting import fit_table
    from .parquet_folder import TableWriter
    from .rows import apply_to_file, apply_to_table, check_table, rows_for
    from .simulate import simulate_table
    from .table import Table

_HOMES: dict[str, tuple[str, ...]] = {
    "..errors": ("TableError",),
    ".columns": ("COLUMNS", "Columns", "ROLES", "assign_roles"),
    ".files": ("TableFile", "open_table", "write_table"),
    ".fitting": ("fit_table",),
    ".parquet_folder": ("TableWriter",),
    ".rows": ("check_table", "apply_to_table", "apply_to_file", "rows_for"),
    ".simulate": ("simulate_table",),
    ".table": ("Table",),
}

__all__ = [
    "COLUMNS",
    "ROLES",
    "Columns",
    "Table",
    "TableError",
    "TableFile",
    "TableWriter",
    "apply_to_file",
    "apply_to_table",
    "assign_roles",
    "check_table",
    "fit_table",
    "open_table",
    "rows_for",
    "simulate_table",
    "write_table",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
