"""Shared code of estimators: input checks, streaming moments, stages, parameters."""
