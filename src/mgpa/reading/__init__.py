"""Read the source from a row, and edit the row as if it had been told."""
