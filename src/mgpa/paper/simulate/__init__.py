"""Simulate recordings with known effects, in the file formats of the paper's two data sets."""
