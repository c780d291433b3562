"""Studies from recordings to tables and figures: the paper's four, and yours.

>>> from mgpa.studies import load_study, presets
>>> list(presets())
['controlled-ssvep', 'p300-reuse', 'recorded-ssvep', 'temporal-n170']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._common.extras import lazy_names

if TYPE_CHECKING:
    from ..errors import StudyError
    from .config import Study, load_study, presets
    from .results import write_results
    from .run import StudyResult, plan_study, run_study

_HOMES: dict[str, tuple[str, ...]] = {
    "..errors": ("StudyError",),
    ".config": ("Study", "load_study", "presets"),
    ".results": ("write_results",),
    ".run": ("StudyResult", "plan_study", "run_study"),
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

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
