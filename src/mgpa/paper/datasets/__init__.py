"""Read public data sets in the file layouts of their providers."""
