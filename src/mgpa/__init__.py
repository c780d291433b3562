"""Measurement-Gated Provenance Attenuation: remove how it was measured, keep what was measured.

Importing this package loads nothing; each name below brings in only what it needs, so that opening a
stored map and applying it costs numpy and safetensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._common.lazy import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .closed_form import ClosedFormMGPA as ClosedFormMGPA
    from .coordinates import Coordinates as Coordinates
    from .coordinates import fit_coordinates as fit_coordinates
    from .errors import MapError as MapError
    from .gate import FixedGate as FixedGate
    from .gate import FullGate as FullGate
    from .gate import MeasurementGate as MeasurementGate
    from .gate import PCAGate as PCAGate
    from .gate import RandomGate as RandomGate
    from .gate import held_out_coverage as held_out_coverage
    from .iterative import IterativeMGPA as IterativeMGPA
    from .maps import AffineMap as AffineMap
    from .maps import CorrectionMap as CorrectionMap
    from .maps import ManifoldMap as ManifoldMap
    from .maps import PathMap as PathMap
    from .maps import ProjectiveMap as ProjectiveMap
    from .maps import RoutedMap as RoutedMap
    from .maps import StagedMap as StagedMap
    from .maps import load_map as load_map
    from .moments import Moments as Moments
    from .tokens import JointTokens as JointTokens
    from .tokens import PerToken as PerToken
    from .tokens import TokenMean as TokenMean
    from .tokens import transform_tokens as transform_tokens

_MODULES = {
    "audit": ".audit",
    "baselines": ".baselines",
    "eeg": ".eeg",
    "endpoint": ".endpoint",
    "errors": ".errors",
    "scale": ".tables.scale",
    "simulate": ".tables.simulate",
    "studies": ".studies",
    "tables": ".tables",
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _MODULES)
