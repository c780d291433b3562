"""Convert raw EEG to embedding tables: trials, measurement views, pairing by time, encoders, simulator.

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
    from .devices import align_devices, align_like, table_from_epochs
    from .features import BandPower, TemporalBins, WindowedPower
    from .moabb import from_moabb
    from .pairing import PairingReport, match_events, timing_test
    from .raws import table_from_bids, table_from_raws
    from .torch_encoder import TorchEncoder
    from .trials import Encoder, Trials, as_trials, encode
    from .views import crop, measure_views, rereference, resample, scale_table, zscore_channels

_NAMES = {
    ".devices": "align_devices align_like table_from_epochs",
    ".features": "BandPower TemporalBins WindowedPower",
    ".moabb": "from_moabb",
    ".pairing": "PairingReport match_events timing_test",
    ".raws": "table_from_bids table_from_raws",
    ".torch_encoder": "TorchEncoder",
    ".trials": "Encoder Trials as_trials encode",
    ".views": "crop measure_views rereference resample scale_table zscore_channels",
}
_MODULES = {module.name: f".{module.name}" for module in iter_modules(__path__) if module.name[0] != "_"}

_HOMES = {home: names.split() for home, names in _NAMES.items()}
__all__ = sorted(name for names in _HOMES.values() for name in names)

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _MODULES)
