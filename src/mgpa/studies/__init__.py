"""Studies from recordings to tables and figures: the paper's four, its theory figure, and yours.

>>> from mgpa.studies import load_study, presets
>>> list(presets())
['controlled-ssvep', 'p300-reuse', 'recorded-ssvep', 'temporal-n170']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._common.lazy import lazy_names

if TYPE_CHECKING:
    from ..errors import StudyError as StudyError
    from .config import Study as Study
    from .config import load_study as load_study
    from .config import presets as presets
    from .results import write_results as write_results
    from .run import StudyResult as StudyResult
    from .run import plan_study as plan_study
    from .run import run_study as run_study

__getattr__, __dir__, __all__ = lazy_names(__name__)
