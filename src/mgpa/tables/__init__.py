"""Embeddings with what is known about each row: in memory, in files, and on their way to and from a map.

:class:`Table` is the one form in which rows travel. :func:`fit_table` fits any method to a table, in memory,
streamed or on a cluster; :func:`correct` applies a map to one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._common.lazy import lazy_names

if TYPE_CHECKING:
    from ..errors import TableError as TableError
    from .columns import COLUMNS as COLUMNS
    from .columns import ROLES as ROLES
    from .columns import Columns as Columns
    from .correcting import correct_file as correct_file
    from .files import Part as Part
    from .files import TableFile as TableFile
    from .files import TableWriter as TableWriter
    from .files import open_table as open_table
    from .files import write_table as write_table
    from .fitting import fit_table as fit_table
    from .roles import assign_roles as assign_roles
    from .rows import correct as correct
    from .rows import rows_for as rows_for
    from .simulate import simulate_table as simulate_table
    from .table import Table as Table

__getattr__, __dir__, __all__ = lazy_names(__name__)
