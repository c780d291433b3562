"""Studies, data sets, simulators, encoder and tables of the paper. No other package imports this one.

>>> from mgpa.paper import load_study, presets
>>> list(presets())
['controlled-ssvep', 'p300-reuse', 'recorded-ssvep', 'temporal-n170']
"""

# ruff: noqa: F401
from __future__ import annotations

from typing import TYPE_CHECKING

from .._common.extras import lazy_names

if TYPE_CHECKING:
    from ..errors import StudyError
    from .datasets.neuroscan_flex import read_neuroscan_flex
    from .datasets.wearable_ssvep import read_wearable_ssvep
    from .encoder import EEGPT_WEIGHTS, eegpt, load_checkpoint
    from .simulate.erp import simulate_flex
    from .simulate.ssvep import simulate_ssvep
    from .studies.config import Study
    from .studies.load import load_study, presets
    from .studies.results import write_results
    from .studies.run import StudyResult, plan_study, run_study
    from .transport import Transport, calibration_subset, fit_transport, virtual_views

_NAMES = {
    "..errors": "StudyError",
    ".datasets.neuroscan_flex": "read_neuroscan_flex",
    ".datasets.wearable_ssvep": "read_wearable_ssvep",
    ".encoder": "EEGPT_WEIGHTS eegpt load_checkpoint",
    ".simulate.erp": "simulate_flex",
    ".simulate.ssvep": "simulate_ssvep",
    ".studies.config": "Study",
    ".studies.load": "load_study presets",
    ".studies.results": "write_results",
    ".studies.run": "StudyResult plan_study run_study",
    ".transport": "Transport calibration_subset fit_transport virtual_views",
}
_MODULES = {name: f".{name}" for name in ("datasets", "simulate", "studies", "transport")}

_HOMES = {home: names.split() for home, names in _NAMES.items()}
__all__ = sorted(name for names in _HOMES.values() for name in names)

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _MODULES)
