"""Held-out rows that some estimators use to decide when to stop."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Mention, UsageError
from ..pairs import encode_source
from .base import FitData


def read_held_out(
    estimator: Any, data: FitData, purpose: str, *, every_source: bool = False, sources_needed: bool = True
) -> tuple[NDArray[Any] | None, NDArray[np.int64] | None]:
    """Return held-out rows and their codes among the fitted sources; None for what was not given.

    Parameters
    ----------
    estimator : CorrectionEstimator
        Whose rows these are.
    data : FitData
        With ``X_val`` and ``source_val`` as they were given.
    purpose : str
        What the rows are for, as errors say it.
    every_source : bool
        Whether rows of every source are needed.
    sources_needed : bool
        Whether rows without their sources are an error.
    """
    if data.X_val is None:
        if data.source_val is not None:
            raise ValueError("source_val without X_val: pass the held-out rows too.")
        return None, None
    held = estimator._validate_rows(data.X_val, reset=False, name="X_val")
    if data.source_val is None:
        if sources_needed:
            raise ValueError(f"X_val without source_val: pass the held-out rows' sources too; {purpose}.")
        return held, None
    names, codes = encode_source(data.source_val, len(held), "source_val")
    fitted = data.sources.tolist()
    unknown = sorted(set(names.tolist()) - set(fitted))
    if unknown:
        raise UsageError(f"Unknown source {unknown} in ", Mention("source_val"), f"; fitted on are {fitted}.")
    missing = sorted(set(fitted) - set(names.tolist()))
    if missing and every_source:
        raise UsageError(
            f"No rows of source {missing} in ", Mention("X_val"), f"; {purpose}, so every source is needed."
        )
    return held, np.searchsorted(data.sources, names)[codes].astype(np.int64)
