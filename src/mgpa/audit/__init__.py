"""Did it work, what did it cost, how sure are we: the paper's measurement protocol for any correction.

:func:`run` measures methods on a table; everything it is made of can be called alone.
"""

from __future__ import annotations

from .association import (
    assign_endpoints,
    assignment_probability,
    association_auroc,
    curve_at,
    curve_coefficients,
    curve_minimum,
    fit_association_heads,
)
from .bootstrap import Estimate, contrast, draws, estimate, leave_one_out
from .diagnostics import confounding, reliability, variance_shares
from .heads import fit_heads, ridge_head, transfer_scores
from .method_result import METRICS, MethodResult
from .metrics import ByParticipant, auroc, participant_auroc
from .movement import complement_drift, movement
from .readers import SourceReading, read_sources
from .result import Audit
from .run import plan, run
from .token_readers import ResidualReaders, read_token_sources

__all__ = [
    "METRICS",
    "Audit",
    "ByParticipant",
    "Estimate",
    "MethodResult",
    "ResidualReaders",
    "SourceReading",
    "assign_endpoints",
    "assignment_probability",
    "association_auroc",
    "auroc",
    "complement_drift",
    "confounding",
    "contrast",
    "curve_at",
    "curve_coefficients",
    "curve_minimum",
    "draws",
    "estimate",
    "fit_association_heads",
    "fit_heads",
    "leave_one_out",
    "movement",
    "participant_auroc",
    "plan",
    "read_sources",
    "read_token_sources",
    "reliability",
    "ridge_head",
    "run",
    "transfer_scores",
    "variance_shares",
]
