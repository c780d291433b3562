"""From raw EEG to embedding tables: data sets, measurement views, encoders, a simulator.

>>> import mgpa
>>> trials = mgpa.eeg.Trials([[[1e-6, 3e-6]] * 3], ["Oz", "O1", "O2"], 250.0)
>>> mgpa.eeg.rereference(trials, "Oz")
<Trials: 1 of 3 channels x 2 samples at 250 Hz, with no columns>
"""

# ruff: noqa: F401
from __future__ import annotations

from pkgutil import iter_modules
from typing import TYPE_CHECKING

from .._common.extras import lazy_names

if TYPE_CHECKING:
    from .datasets.neuroscan_flex import read_neuroscan_flex
    from .datasets.wearable_ssvep import read_wearable_ssvep
    from .devices import align_devices, align_like, table_from_epochs
    from .encoders import EEGPT_WEIGHTS, eegpt, load_checkpoint
    from .features import BandPower, TemporalBins, WindowedPower
    from .moabb import from_moabb
    from .pairing import PairingReport, match_events, timing_test
    from .raws import table_from_bids, table_from_raws
    from .simulate.erp import simulate_flex
    from .simulate.ssvep import simulate_ssvep
    from .torch_encoder import TorchEncoder
    from .transport import Transport, calibration_subset, fit_transport, virtual_views
    from .trials import Encoder, Trials, as_trials, encode
    from .views import crop, measure_views, rereference, resample, scale_table, zscore_channels

_NAMES = {
    ".datasets.neuroscan_flex": "read_neuroscan_flex",
    ".datasets.wearable_ssvep": "read_wearable_ssvep",
    ".devices": "align_devices align_like table_from_epochs",
    ".encoders": "EEGPT_WEIGHTS eegpt load_checkpoint",
    ".features": "BandPower TemporalBins WindowedPower",
    ".moabb": "from_moabb",
    ".pairing": "PairingReport match_events timing_test",
    ".raws": "table_from_bids table_from_raws",
    ".simulate.erp": "simulate_flex",
    ".simulate.ssvep": "simulate_ssvep",
    ".torch_encoder": "TorchEncoder",
    ".transport": "Transport calibration_subset fit_transport virtual_views",
    ".trials": "Encoder Trials as_trials encode",
    ".views": "crop measure_views rereference resample scale_table zscore_channels",
}
_MODULES = {module.name: f".{module.name}" for module in iter_modules(__path__) if module.name[0] != "_"}

_HOMES = {home: names.split() for home, names in _NAMES.items()}
__all__ = sorted(name for names in _HOMES.values() for name in names)

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _MODULES)
