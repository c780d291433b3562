"""What estimators share: reading and refusing input, streaming moments, stages, parameters."""
