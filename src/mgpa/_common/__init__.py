"""Helpers for all layers: array namespaces, checks, atomic files, progress, lazy imports."""
