"""Read the source from a row, and edit the row accordingly."""
