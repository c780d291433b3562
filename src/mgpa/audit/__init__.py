"""Did it work, what did it cost, how sure are we: the paper's measurement protocol for any correction.

:func:`run` measures methods on a table; everything it is made of can be called alone.
"""

from __future__ import annotations

from .bootstrap import (
    Estimate,
    contrast,
    curve_coefficients,
    curve_minimum,
    estimate,
)
from .diagnostics import PairCheck, check_pairs, cramers_v
from .heads import (
    assign_endpoints,
    assignment_probability,
    association_auroc,
    fit_association_heads,
    fit_heads,
    ridge_head,
    transfer_scores,
)
from .measure import movement_by_group
from .method_result import MethodResult
from .metrics import METRICS, Metric, find_metric
from .protocol import AuditPlan, run
from .ranks import participant_auroc
from .readers import read_residuals, read_sources, read_token_sources
from .result import Audit

__all__ = [
    "METRICS", "Audit", "AuditPlan", "Estimate", "MethodResult", "Metric", "PairCheck",
    "assign_endpoints", "assignment_probability", "association_auroc", "check_pairs",
    "contrast", "cramers_v", "curve_coefficients", "curve_minimum", "estimate",
    "find_metric", "fit_association_heads", "fit_heads", "movement_by_group",
    "participant_auroc", "read_residuals", "read_sources", "read_token_sources", "ridge_head", "run",
    "transfer_scores",
]  # fmt: skip
