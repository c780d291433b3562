"""Where a correction may act (section 3, "Estimating the measurement gate").

A gate is an orthonormal basis B of the directions along which paired measurements of the same thing
differ. Corrections move embeddings inside its span only. :class:`MeasurementGate` learns B from paired
contrasts; the other gates are the paper's controls, which ignore the pairs.
"""

from .gates import (
    FixedGate,
    FullGate,
    Gate,
    MeasurementGate,
    PCAGate,
    RandomGate,
    fit_gate,
    held_out_coverage,
)
from .support import contrast_folds, supported_directions

__all__ = [
    "FixedGate",
    "FullGate",
    "Gate",
    "MeasurementGate",
    "PCAGate",
    "RandomGate",
    "contrast_folds",
    "fit_gate",
    "held_out_coverage",
    "supported_directions",
]
