"""From raw EEG to embedding tables: data sets, measurement views, preprocessing, encoders, a simulator.

>>> import mgpa
>>> trials = mgpa.eeg.Trials([[[1e-6, 3e-6]] * 3], ["Oz", "O1", "O2"], 250.0)
>>> mgpa.eeg.rereference(trials, "Oz")
<Trials: 1 of 3 channels x 2 samples at 250 Hz, with no columns>
"""

from __future__ import annotations

from pkgutil import iter_modules
from typing import TYPE_CHECKING

from .._common.lazy import lazy_names

if TYPE_CHECKING:
    from .checkpoints import EEGPT_WEIGHTS as EEGPT_WEIGHTS
    from .checkpoints import HubFile as HubFile
    from .checkpoints import load_checkpoint as load_checkpoint
    from .datasets.neuroscan_flex import read_neuroscan_flex as read_neuroscan_flex
    from .datasets.wearable_ssvep import read_wearable_ssvep as read_wearable_ssvep
    from .devices import align_devices as align_devices
    from .devices import table_from_epochs as table_from_epochs
    from .encoders import biot as biot
    from .encoders import cbramod as cbramod
    from .encoders import eegpt as eegpt
    from .encoders import labram as labram
    from .encoding import Encoder as Encoder
    from .encoding import as_trials as as_trials
    from .encoding import encode as encode
    from .features import BandPower as BandPower
    from .features import TemporalBins as TemporalBins
    from .features import WindowedPower as WindowedPower
    from .moabb import from_moabb as from_moabb
    from .moabb import table_from_moabb as table_from_moabb
    from .pairing import PairingReport as PairingReport
    from .pairing import TimingLimits as TimingLimits
    from .pairing import match_events as match_events
    from .pairing import timing_test as timing_test
    from .preprocessing import crop as crop
    from .preprocessing import zscore_channels as zscore_channels
    from .raws import table_from_bids as table_from_bids
    from .raws import table_from_raws as table_from_raws
    from .simulate.erp import simulate_flex as simulate_flex
    from .simulate.ssvep import simulate_ssvep as simulate_ssvep
    from .torch_encoder import TorchEncoder as TorchEncoder
    from .transport import Transport as Transport
    from .transport import calibration_subset as calibration_subset
    from .transport import fit_transport as fit_transport
    from .transport import oriented_pairs as oriented_pairs
    from .transport import virtual_views as virtual_views
    from .trials import Trials as Trials
    from .views import bandpass as bandpass
    from .views import measure_views as measure_views
    from .views import pick_montage as pick_montage
    from .views import rereference as rereference
    from .views import resample as resample
    from .views import scale_table as scale_table
    from .views import scaled_endpoints as scaled_endpoints

_MODULES = {module.name: f".{module.name}" for module in iter_modules(__path__) if module.name[0] != "_"}

__getattr__, __dir__, __all__ = lazy_names(__name__, _MODULES)
