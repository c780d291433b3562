"""Measurement-Gated Provenance Attenuation: remove effects of the recording device from frozen embeddings.

Importing this package loads nothing. Each name below imports only the modules that it needs, so that loading
and applying a stored map needs only numpy and safetensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._common.extras import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .estimators.closed_form import ClosedFormMGPA
    from .estimators.iterative import IterativeMGPA
    from .estimators.left_out import leave_one_source_out
    from .estimators.mgpa import MGPA
    from .estimators.pairs_needed import pairs_needed
    from .estimators.tokens import JointTokens, TokenMean, transform_tokens
    from .gate import MeasurementGate
    from .maps import load_map

_HOMES: dict[str, tuple[str, ...]] = {
    ".estimators.closed_form": ("ClosedFormMGPA",),
    ".estimators.iterative": ("IterativeMGPA",),
    ".estimators.left_out": ("leave_one_source_out",),
    ".estimators.mgpa": ("MGPA",),
    ".estimators.pairs_needed": ("pairs_needed",),
    ".estimators.tokens": ("JointTokens", "TokenMean", "transform_tokens"),
    ".gate": ("MeasurementGate",),
    ".maps": ("load_map",),
}
_MODULES = (
    "audit", "baselines", "coordinates", "eeg", "errors", "gate", "maps", "moments", "operating_point",
    "paper", "tables",
)  # fmt: skip

__all__ = [
    "MGPA",
    "ClosedFormMGPA",
    "IterativeMGPA",
    "JointTokens",
    "MeasurementGate",
    "TokenMean",
    "__version__",
    "leave_one_source_out",
    "load_map",
    "pairs_needed",
    "transform_tokens",
]


__getattr__, __dir__ = lazy_names(__name__, _HOMES, {name: f".{name}" for name in _MODULES})
