"""Measurement-Gated Provenance Attenuation: remove how it was measured, keep what was measured.

Importing this package loads nothing; each name below brings in only what it needs, so that opening a
stored map and applying it costs numpy and safetensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._common.extras import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .coordinates import Coordinates, fit_coordinates
    from .errors import MapError
    from .estimators.closed_form import ClosedFormMGPA
    from .estimators.iterative import IterativeMGPA
    from .estimators.left_out import leave_one_source_out
    from .estimators.mgpa import MGPA
    from .estimators.planning import plan_pairs
    from .estimators.tokens import JointTokens, TokenMean, transform_tokens
    from .gate import FixedGate, FullGate, MeasurementGate, PCAGate, RandomGate, held_out_coverage
    from .maps import (
        AffineMap,
        CorrectionMap,
        PosteriorMap,
        ProjectiveMap,
        RoutedMap,
        StagedMap,
        load_map,
    )
    from .moments import Moments

_HOMES: dict[str, tuple[str, ...]] = {
    ".estimators.closed_form": ("ClosedFormMGPA",),
    ".coordinates": ("Coordinates", "fit_coordinates"),
    ".errors": ("MapError",),
    ".estimators.mgpa": ("MGPA",),
    ".gate": ("FixedGate", "FullGate", "MeasurementGate", "PCAGate", "RandomGate", "held_out_coverage"),
    ".estimators.iterative": ("IterativeMGPA",),
    ".estimators.left_out": ("leave_one_source_out",),
    ".estimators.planning": ("plan_pairs",),
    ".maps": (
        "AffineMap",
        "CorrectionMap",
        "ProjectiveMap",
        "RoutedMap",
        "PosteriorMap",
        "StagedMap",
        "load_map",
    ),
    ".moments": ("Moments",),
    ".estimators.tokens": ("JointTokens", "TokenMean", "transform_tokens"),
}
_MODULES = {
    "audit": ".audit",
    "baselines": ".baselines",
    "eeg": ".eeg",
    "endpoint": ".endpoint",
    "errors": ".errors",
    "paper": ".paper",
    "scale": ".tables.scale",
    "simulate": ".tables.simulate",
    "tables": ".tables",
}

__all__ = [
    "MGPA",
    "AffineMap",
    "ClosedFormMGPA",
    "Coordinates",
    "CorrectionMap",
    "FixedGate",
    "FullGate",
    "IterativeMGPA",
    "JointTokens",
    "MapError",
    "MeasurementGate",
    "Moments",
    "PCAGate",
    "PosteriorMap",
    "ProjectiveMap",
    "RandomGate",
    "RoutedMap",
    "StagedMap",
    "TokenMean",
    "__version__",
    "fit_coordinates",
    "held_out_coverage",
    "leave_one_source_out",
    "load_map",
    "plan_pairs",
    "transform_tokens",
]


__getattr__, __dir__ = lazy_names(__name__, _HOMES, _MODULES)
