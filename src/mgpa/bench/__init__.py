"""The benchmark: events recorded by several devices, one protocol for every method, one page.

``mgpa bench`` runs it. From Python, :func:`run` takes settings and methods, of this package or of your own,
and :func:`build` writes the page.
"""

# ruff: noqa: F401
from __future__ import annotations

from typing import TYPE_CHECKING

from .._common.extras import lazy_names

if TYPE_CHECKING:
    from .datasets import DATASETS, DataSet, aligned, find_settings
    from .methods import METHODS, Method, estimator, find_methods, from_pairs, from_rows
    from .page import build, read_results
    from .protocol import run
    from .settings import Calibration, Events, Round, Setting, rotate

_NAMES = {
    ".datasets": "DATASETS DataSet aligned find_settings",
    ".methods": "METHODS Method estimator find_methods from_pairs from_rows",
    ".page": "build read_results",
    ".protocol": "run",
    ".settings": "Calibration Events Round Setting rotate",
}
_HOMES = {home: names.split() for home, names in _NAMES.items()}
__all__ = sorted(name for names in _HOMES.values() for name in names)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
