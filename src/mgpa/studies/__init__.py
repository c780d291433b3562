"""Studies from recordings to tables and figures: the paper's four, its theory figure, and yours.

>>> from mgpa.studies import load_study, presets
>>> list(presets())
['controlled-ssvep', 'p300-reuse', 'recorded-ssvep', 'temporal-n170']
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import Study, StudyError, load_study, presets
    from .results import write_results
    from .run import StudyResult, plan_study, run_study

_HOME = {
    "Study": "config",
    "StudyError": "config",
    "StudyResult": "run",
    "load_study": "config",
    "plan_study": "run",
    "presets": "config",
    "run_study": "run",
    "write_results": "results",
}

__all__ = [
    "Study",
    "StudyError",
    "StudyResult",
    "load_study",
    "plan_study",
    "presets",
    "run_study",
    "write_results",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mgpa.studies' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOME[name]}", __name__), name)
