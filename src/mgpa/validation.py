"""Held-out rows that some estimators use to decide when to stop."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .pairs import encode_source


def read_validation(
    estimator: Any, X_val: Any, source_val: Any, sources: NDArray[Any]
) -> tuple[NDArray[Any] | None, NDArray[np.int64] | None]:
    """Return held-out rows and their codes among ``sources``; None for what was not given."""
    if X_val is None:
        if source_val is not None:
            raise ValueError("source_val without X_val: pass the held-out rows too.")
        return None, None
    held = estimator._validate_rows(X_val, reset=False, name="X_val")
    if source_val is None:
        return held, None
    names, codes = encode_source(source_val, len(held), "source_val")
    unknown = sorted(set(names.tolist()) - set(sources.tolist()))
    if unknown:
        raise ValueError(f"source_val has {unknown}, which source does not; known: {sources.tolist()}.")
    return held, np.searchsorted(sources, names)[codes].astype(np.int64)
