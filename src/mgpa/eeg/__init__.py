"""From raw EEG to embedding tables: data sets, measurement views, preprocessing, encoders, a simulator.

>>> import mgpa
>>> trials = mgpa.eeg.Trials([[[1e-6, 3e-6]] * 3], ["Oz", "O1", "O2"], 250.0)
>>> mgpa.eeg.rereference(trials, "Oz")
<Trials: 1 of 3 channels x 2 samples at 250 Hz, with no columns>
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._common.lazy import lazy_names

if TYPE_CHECKING:
    from .checkpoints import EEGPT_WEIGHTS, HubFile, load_checkpoint
    from .datasets.neuroscan_flex import read_neuroscan_flex
    from .datasets.wearable_ssvep import read_wearable_ssvep
    from .devices import align_devices, table_from_epochs
    from .encoders import biot, cbramod, eegpt, labram
    from .encoding import Encoder, as_trials, encode
    from .features import BandPower, TemporalBins, WindowedPower
    from .moabb import from_moabb, table_from_moabb
    from .pairing import PairingReport, TimingLimits, match_events, timing_test
    from .preprocessing import crop, zscore_channels
    from .raws import table_from_bids, table_from_raws
    from .simulate.erp import simulate_flex
    from .simulate.ssvep import simulate_ssvep
    from .torch_encoder import TorchEncoder
    from .transport import Transport, calibration_subset, fit_transport, oriented_pairs, virtual_views
    from .trials import Trials
    from .views import (
        bandpass,
        measure_views,
        pick_montage,
        rereference,
        resample,
        scale_table,
        scaled_endpoints,
    )

_HOMES = {
    "BandPower": ".features",
    "EEGPT_WEIGHTS": ".checkpoints",
    "Encoder": ".encoding",
    "HubFile": ".checkpoints",
    "PairingReport": ".pairing",
    "TemporalBins": ".features",
    "TimingLimits": ".pairing",
    "TorchEncoder": ".torch_encoder",
    "Transport": ".transport",
    "Trials": ".trials",
    "WindowedPower": ".features",
    "align_devices": ".devices",
    "as_trials": ".encoding",
    "bandpass": ".views",
    "biot": ".encoders",
    "calibration_subset": ".transport",
    "cbramod": ".encoders",
    "crop": ".preprocessing",
    "eegpt": ".encoders",
    "encode": ".encoding",
    "fit_transport": ".transport",
    "from_moabb": ".moabb",
    "labram": ".encoders",
    "load_checkpoint": ".checkpoints",
    "match_events": ".pairing",
    "measure_views": ".views",
    "oriented_pairs": ".transport",
    "pick_montage": ".views",
    "read_neuroscan_flex": ".datasets.neuroscan_flex",
    "read_wearable_ssvep": ".datasets.wearable_ssvep",
    "rereference": ".views",
    "resample": ".views",
    "scale_table": ".views",
    "scaled_endpoints": ".views",
    "simulate_flex": ".simulate.erp",
    "simulate_ssvep": ".simulate.ssvep",
    "table_from_bids": ".raws",
    "table_from_epochs": ".devices",
    "table_from_moabb": ".moabb",
    "table_from_raws": ".raws",
    "timing_test": ".pairing",
    "virtual_views": ".transport",
    "zscore_channels": ".preprocessing",
}
_MODULES = {
    "checkpoints": ".checkpoints",
    "datasets": ".datasets",
    "devices": ".devices",
    "encoders": ".encoders",
    "encoding": ".encoding",
    "features": ".features",
    "moabb": ".moabb",
    "pairing": ".pairing",
    "preprocessing": ".preprocessing",
    "raws": ".raws",
    "simulate": ".simulate",
    "torch_encoder": ".torch_encoder",
    "transport": ".transport",
    "trials": ".trials",
    "views": ".views",
}

__all__ = [
    "EEGPT_WEIGHTS",
    "BandPower",
    "Encoder",
    "HubFile",
    "PairingReport",
    "TemporalBins",
    "TimingLimits",
    "TorchEncoder",
    "Transport",
    "Trials",
    "WindowedPower",
    "align_devices",
    "as_trials",
    "bandpass",
    "biot",
    "calibration_subset",
    "cbramod",
    "crop",
    "eegpt",
    "encode",
    "fit_transport",
    "from_moabb",
    "labram",
    "load_checkpoint",
    "match_events",
    "measure_views",
    "oriented_pairs",
    "pick_montage",
    "read_neuroscan_flex",
    "read_wearable_ssvep",
    "rereference",
    "resample",
    "scale_table",
    "scaled_endpoints",
    "simulate_flex",
    "simulate_ssvep",
    "table_from_bids",
    "table_from_epochs",
    "table_from_moabb",
    "table_from_raws",
    "timing_test",
    "virtual_views",
    "zscore_channels",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _MODULES)
