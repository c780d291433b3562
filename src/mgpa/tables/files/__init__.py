"""Tables in files: ``.npz``, Parquet and Zarr, in one schema that other tools can read (docs/tables.md).

A file is opened without reading its embeddings, then read whole, in independent parts, or in batches of
bounded memory. Writing leaves a complete table or nothing under its name. Files are data from somewhere else:
nothing in them is ever run, and whatever is wrong with them is a :class:`TableError` that says so.
"""

from ...errors import TableError
from .opening import open_table, write_table
from .table_file import Part, TableFile
from .writer import TableWriter

__all__ = ["Part", "TableError", "TableFile", "TableWriter", "open_table", "write_table"]
