"""Readers of recorded data sets, each in its provider's own layout."""
