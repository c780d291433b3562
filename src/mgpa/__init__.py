"""Measurement-Gated Provenance Attenuation: remove how it was measured, keep what was measured.

Importing this package loads nothing; each name below brings in only what it needs, so that opening a
stored map and applying it costs numpy and safetensors.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .closed_form import ClosedFormMGPA
    from .coordinates import Coordinates, fit_coordinates
    from .gate import FixedGate, FullGate, MeasurementGate, PCAGate, RandomGate, held_out_coverage
    from .iterative import IterativeMGPA
    from .maps import (
        AffineMap,
        CorrectionMap,
        ManifoldMap,
        MapError,
        ProjectiveMap,
        RoutedMap,
        StagedMap,
        load_map,
    )
    from .moments import Moments
    from .tokens import TokenMean, transform_tokens

_HOME = {
    "AffineMap": "maps",
    "ClosedFormMGPA": "closed_form",
    "Coordinates": "coordinates",
    "CorrectionMap": "maps",
    "FixedGate": "gate",
    "FullGate": "gate",
    "IterativeMGPA": "iterative",
    "ManifoldMap": "maps",
    "MapError": "maps",
    "MeasurementGate": "gate",
    "Moments": "moments",
    "PCAGate": "gate",
    "ProjectiveMap": "maps",
    "RandomGate": "gate",
    "RoutedMap": "maps",
    "StagedMap": "maps",
    "TokenMean": "tokens",
    "fit_coordinates": "coordinates",
    "held_out_coverage": "gate",
    "load_map": "maps",
    "transform_tokens": "tokens",
}
_MODULES = ("audit", "baselines", "endpoint", "tablefiles", "tables")

__all__ = [
    "AffineMap",
    "ClosedFormMGPA",
    "Coordinates",
    "CorrectionMap",
    "FixedGate",
    "FullGate",
    "IterativeMGPA",
    "ManifoldMap",
    "MapError",
    "MeasurementGate",
    "Moments",
    "PCAGate",
    "ProjectiveMap",
    "RandomGate",
    "RoutedMap",
    "StagedMap",
    "TokenMean",
    "__version__",
    "fit_coordinates",
    "held_out_coverage",
    "load_map",
    "transform_tokens",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module 'mgpa' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
